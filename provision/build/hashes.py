"""Ask a package index for the hashes the facts do not hold.

The index is read as PEP 503 (HTML) or PEP 691 (JSON) describe it. A hash is taken only from the page of the very
project and only for a wheel of the locked version that fits Python and platform; nothing is downloaded but the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from provision.errors import USERINFO, MissingDependencyError, UsageError, without_secrets
from provision.records import record, replace
from provision.resolve.environment import wheel_rank
from provision.resolve.stack import LockedPackage, Stack
from provision.versions import parse

if TYPE_CHECKING:
    import ssl

__all__ = ["IndexFile", "complete_hashes", "find_urls", "parse_page", "read_page", "trust"]

_PAGE_BYTES_MAX = 64 * 1024 * 1024
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
# What installers on this machine are told to use; an index is never assumed.
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


@record
class IndexFile:
    """One file of a project's page; ``sha256`` is absent where the page gives none, ``size`` is in bytes."""

    file: str
    url: str
    sha256: str | None
    size: int | None = None


def complete_hashes(
    stack: Stack,
    *,
    index_url: str | None = None,
    ca_cert: str | None = None,
    timeout_seconds: float = 30,
    environment: Mapping[str, str] | None = None,
) -> tuple[Stack, tuple[str, ...]]:
    """Return the stack with the hashes an index could add.

    A package whose own needs are unknown keeps none: by hash it would be installed without them.

    Args:
        stack: The stack; its image part names where each unverified package is looked up.
        index_url: Index to ask for every package; else each is asked for where it comes from.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        timeout_seconds: For each answer of the index.
        environment: Variables that may name an index; the process's own when absent.

    Returns:
        The stack, and a sentence for every package that stays unverified.

    Raises:
        UsageError: No index is known for a package of PyPI.
        MissingDependencyError: An index cannot be reached or answers with no page, or none had any of the hashes.
    """
    if stack.image is None or stack.python is None:
        return stack, ()
    packages, left, missed = [], [], []
    has_found = False
    for package in stack.image.packages:
        found = package
        if package.sha256 is None and package.has_unknown_dependencies:
            name = f"{package.name} {package.version}"
            left.append(f"{name}: the facts do not know what it needs, so the installer must look it up")
        elif package.sha256 is None:
            index = index_url or package.index_url or _index_of(environment)
            found, why = _complete(package, stack, index, ca_cert, timeout_seconds)
            if why is None and index_url is not None:
                found = replace(found, url=None)  # the lock depends on what a mirror holds, not on where it stands
            missed += [why] if why else []
            has_found = has_found or why is None
        packages.append(found)
    if missed and not has_found:
        raise _without_hashes(*missed)
    return replace(stack, image=replace(stack.image, packages=tuple(packages))), (*left, *missed)


def find_urls(
    stack: Stack,
    *,
    index_url: str | None = None,
    ca_cert: str | None = None,
    timeout_seconds: float = 30,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return where an index has the locked files whose address the facts do not hold: package → address.

    Args:
        stack: The stack.
        index_url: Index to ask for every package; else the one that installers here are told to use.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        timeout_seconds: For each answer of the index.
        environment: Variables that may name an index; the process's own when absent.

    Raises:
        UsageError: No index is known.
        MissingDependencyError: An index cannot be reached, or lacks a file of that hash.
    """
    found: dict[str, str] = {}
    for package in stack.image.packages if stack.image is not None else ():
        if package.sha256 is None or (package.url is not None and index_url is None):
            continue
        index = index_url or package.index_url or _index_of(environment)
        if index is None:
            raise UsageError(
                f"--fetch-hashes: no index is known for {package.name} {package.version}",
                hints=("name one with `--index-url URL`", f"or set {' or '.join(_INDEX_VARIABLES)}"),
            )
        page = f"{index.rstrip('/')}/{package.name}/"
        files = parse_page(*read_page(page, ca_cert, timeout_seconds), page)
        file = next((item for item in files if item.sha256 == package.sha256), None)
        if file is None:
            raise _silent(page, f"it lists no file of {package.name} {package.version} with the hash of the lock")
        found[package.name] = file.url
    return found


def _index_of(environment: Mapping[str, str] | None) -> str | None:
    import os

    variables = os.environ if environment is None else environment
    return next((variables[name] for name in _INDEX_VARIABLES if variables.get(name)), None)


def _complete(
    package: LockedPackage, stack: Stack, index: str | None, ca_cert: str | None, timeout_seconds: float
) -> tuple[LockedPackage, str | None]:
    name = f"{package.name} {package.version}"
    if index is None:
        raise UsageError(
            f"--fetch-hashes: no index is known for {name}",
            hints=("name one with `--index-url URL`", f"or set {' or '.join(_INDEX_VARIABLES)}"),
        )
    page = f"{index.rstrip('/')}/{package.name}/"
    files = parse_page(*read_page(page, ca_cert, timeout_seconds), page)
    if not files:
        return package, f"{name}: {without_secrets(page)} lists no file at all"
    best = _choose(files, package, stack)
    if best is None:
        shown = without_secrets(page)
        return package, f"{name}: {shown} lists no wheel of it for Python {stack.python} on {stack.platform}"
    if best.sha256 is None:
        return package, f"{name}: {without_secrets(page)} gives no hash for {best.file}"
    url = None if package.index == "pypi" else best.url
    size = best.size if best.size is not None else package.size
    return replace(package, file=best.file, sha256=best.sha256, url=url, size=size), None


def _choose(files: tuple[IndexFile, ...], package: LockedPackage, stack: Stack) -> IndexFile | None:
    if package.file is not None:
        return next((item for item in files if item.file == package.file), None)
    machine = _MACHINES[stack.platform]
    ranked = [(_rank(item.file, package, stack.python or "", machine), item.file, item) for item in files]
    fitting = [entry for entry in ranked if entry[0] is not None]
    return max(fitting, key=lambda entry: entry[:2])[2] if fitting else None


def _rank(file: str, package: LockedPackage, python: str, machine: str) -> tuple[int, tuple[int, ...], int] | None:
    """Return how well a file fits; nothing where it is another package, version or platform."""
    parts = file.split("-")
    if not file.endswith(".whl") or len(parts) not in (5, 6):
        return None
    try:
        if parse(parts[1]) != parse(package.version) or re.sub(r"[-_.]+", "-", parts[0]).lower() != package.name:
            return None
        return wheel_rank(file, python, machine, None)
    except ValueError:
        # The page is not ours: a name with other tags than a wheel has fits nothing.
        return None


def read_page(url: str, ca_cert: str | None, timeout_seconds: float) -> tuple[str, str, str]:
    """Return the page's media type, its text and where it really came from; no text where the index has no such page.

    Raises:
        UsageError: The address is none of http.
        MissingDependencyError: The index does not answer, or not with a page.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if not url.startswith(("https://", "http://")):
        raise UsageError(f"the index {without_secrets(url)} is no http address")
    try:
        request = Request(url, headers={"Accept": _ACCEPT, "User-Agent": "provision"})  # noqa: S310 - checked above
        with urlopen(request, timeout=timeout_seconds, context=trust(ca_cert)) as response:  # noqa: S310
            content = response.read(_PAGE_BYTES_MAX + 1)
            kind = response.headers.get_content_type()
            base = response.url
    except HTTPError as error:
        error.close()
        if error.code == 404:
            return "text/html", "", url
        raise _silent(url, f"the index answered {error.code} {error.reason}") from error
    except (URLError, TimeoutError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise _silent(url, str(reason) or type(error).__name__) from error
    if len(content) > _PAGE_BYTES_MAX:
        raise _silent(url, f"its page is larger than {_PAGE_BYTES_MAX // 2**20} MiB")
    return kind, content.decode("utf-8", "replace"), base


def trust(ca_cert: str | None) -> ssl.SSLContext:
    """Return the machine's own trust, with the certificates (PEM) beside it.

    Raises:
        UsageError: They cannot be read.
    """
    import ssl

    context = ssl.create_default_context()
    if ca_cert is not None:
        try:
            context.load_verify_locations(cadata=ca_cert)
        except ssl.SSLError as error:
            raise UsageError("--ca-cert holds no certificate that can be read", because=(str(error),)) from error
    return context


def _silent(url: str, because: str) -> MissingDependencyError:
    # The library repeats what it cannot read of an address, and cuts it anywhere.
    account = USERINFO.search(url)
    for piece in (account[0], account[0].rpartition(":")[2]) if account is not None else ():
        because = because.replace(piece, "")
    return _without_hashes(f"{without_secrets(url)}: {without_secrets(because)}")


def _without_hashes(*because: str) -> MissingDependencyError:
    return MissingDependencyError(
        "the index gave no hashes",
        because=because,
        hints=(
            "try again, or name another index with `--index-url URL`",
            "without `--fetch-hashes` the packages are installed unverified, and the image says so",
        ),
    )


def parse_page(kind: str, text: str, base: str, page: str) -> tuple[IndexFile, ...]:
    """Read a project's page.

    Args:
        kind: Its media type.
        text: The page.
        base: Address it came from; links may be relative to it.
        page: Address that was asked for, for the message.

    Raises:
        MissingDependencyError: It is no page of a package index.
    """
    if "json" in kind:
        try:
            return tuple(_from_json(row, base) for row in json.loads(text)["files"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _silent(page, f"its page is no list of files ({type(error).__name__})") from error
    if kind not in ("text/html", "application/vnd.pypi.simple.v1+html"):
        raise _silent(page, f"it answered with {kind}, which is no page of an index")
    try:
        return _from_html(text, base)
    except ValueError as error:
        raise _silent(page, f"a link on its page is no address: {error}") from error


def _from_json(row: dict[str, Any], base: str) -> IndexFile:
    from urllib.parse import urljoin

    digest, size = row.get("hashes", {}).get("sha256"), row.get("size")
    return IndexFile(
        file=str(row["filename"]),
        url=urljoin(base, str(row["url"])),
        sha256=_digest(digest),
        size=size if isinstance(size, int) else None,
    )


def _digest(text: object) -> str | None:
    return text if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) else None


def _from_html(text: str, base: str) -> tuple[IndexFile, ...]:
    from html.parser import HTMLParser
    from urllib.parse import unquote, urljoin

    links: list[str] = []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(value for name, value in attrs if tag == "a" and name == "href" and value)

    Page().feed(text)
    files = []
    for link in links:
        url, _, fragment = urljoin(base, link).partition("#")
        files.append(
            IndexFile(
                file=unquote(url.rsplit("/", 1)[-1]),
                url=url,
                sha256=_digest(fragment.removeprefix("sha256=")) if fragment.startswith("sha256=") else None,
            )
        )
    return tuple(files)
