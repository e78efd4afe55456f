"""Read project pages of a package index through the polite client."""

from __future__ import annotations

from provision.index.page import ACCEPT, Page, PageError, parse_page
from provision.refresh.client import Client, UnreachableError


def read_page(client: Client, index_url: str, name: str) -> Page:
    """Read the page of one project.

    Args:
        client: Who asks.
        index_url: Root of the index.
        name: Normalised distribution name.

    Raises:
        UnreachableError: The index does not answer, or not with a page.
    """
    url = f"{index_url.rstrip('/')}/{name}/"
    answer = client.get(url, accept=ACCEPT)
    try:
        return parse_page(answer.content, answer.kind, answer.url, name=name, asked=url)
    except PageError as error:
        raise UnreachableError(error.message, because=error.because) from error
