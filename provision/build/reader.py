"""Ask a package index as pip on this machine would: its certificates, its proxy, its user and password.

A user and password come from the address of the index or from ``~/.netrc``, are sent to the server they belong to and
to no other, not even where it sends the question on, and stand in no message.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from provision.errors import USERINFO, UnreachableError, UsageError, without_secrets
from provision.index.account import Accounts
from provision.index.address import IndexAddress

if TYPE_CHECKING:
    import ssl
    from urllib.request import OpenerDirector, Request

_PART = 206


class Response(Protocol):
    """An answer: its status, its headers, where it came from, and its body as a stream."""

    status: int
    headers: Any
    url: str

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes of the body."""

    def __enter__(self) -> Response:
        """Return the answer."""

    def __exit__(self, *_: object) -> None:
        """Give the connection back."""


class Reader:
    """Opens addresses; safe to use from several threads.

    Args:
        address: How this machine is told to reach its index; nothing special when absent.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords beside those in addresses and in the netrc file.
        timeout_seconds: For connecting, and for each silence of a server.

    Raises:
        UsageError: Certificates cannot be read.
    """

    def __init__(
        self,
        address: IndexAddress | None = None,
        *,
        ca_cert: str | None = None,
        accounts: Accounts | None = None,
        timeout_seconds: float = 30,
    ) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._accounts = accounts or Accounts()
        self._told: dict[tuple[str, str], str] = {}
        self._kept: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._opener = self._build(address, _trust(address, ca_cert))

    def indexes(self) -> tuple[str, ...]:
        """Return the roots of this machine's indexes, in the order in which they are asked."""
        return (self.address.url, *self.address.extra) if self.address is not None else ()

    def open(self, url: str, headers: Mapping[str, str]) -> Response:
        """Ask for an address.

        Raises:
            UsageError: It is none of http.
            OSError: No answer, or one that says no; ``urllib`` has the kinds.
            http.client.HTTPException: An answer that is none.
        """
        from urllib.request import Request

        if not url.startswith(("https://", "http://")):
            raise UsageError(f"{without_secrets(url)} is not an http address")
        self._learn(url)
        request = Request(without_secrets(url), headers=dict(headers))  # noqa: S310 - checked above
        self._sign(request)
        return cast("Response", self._opener.open(request, timeout=self.timeout_seconds))

    def get_range(self, url: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes from ``start`` to before ``end``, and the size of the whole.

        A negative ``start`` counts from the end, and ``end`` is ignored.

        Raises:
            UnreachableError: No answer, or a server that sends no parts.
        """
        from http.client import HTTPException

        asked = f"bytes={start}" if start < 0 else f"bytes={start}-{end - 1}"
        headers = {"Range": asked, "Accept-Encoding": "identity", "User-Agent": "provision"}
        try:
            with self.open(url, headers) as answer:
                told = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18})", answer.headers["Content-Range"] or "")
                # The whole of it may be gigabytes: not one of them is read.
                if answer.status != _PART or told is None or (start >= 0 and int(told[1]) != start):
                    raise UnreachableError(f"{url} is not served in parts")
                return answer.read(-start if start < 0 else end - start), int(told[2])
        except (HTTPException, OSError, ValueError) as error:
            raise UnreachableError(f"{url} cannot be read", because=(describe(error, url),)) from error

    def _learn(self, url: str) -> None:
        """Note the user and password of an address: the server is told them again for what it names itself."""
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(url)
        if parts.username is not None:
            account = _basic(unquote(parts.username), unquote(parts.password or ""))
            with self._lock:
                self._told[_origin(url), without_secrets(url)] = account

    def _sign(self, request: Request) -> None:
        """Say who asks: of several accounts of one server that whose address has most in common, as pip does."""
        from os.path import commonpath

        url, origin = request.full_url, _origin(request.full_url)
        with self._lock:
            told = [place for server, place in self._told if server == origin]
            if told:
                nearest = max(told, key=lambda place: len(commonpath((place, url))))
                account: str | None = self._told[origin, nearest]
            else:
                if origin not in self._kept:
                    found = self._accounts.find(request.host.rpartition("@")[2].partition(":")[0])
                    self._kept[origin] = _basic(*found) if found is not None else None
                account = self._kept[origin]
        if account is not None:
            # Of the other kind are headers that go along to wherever the server sends the question.
            request.add_unredirected_header("Authorization", account)

    def _build(self, address: IndexAddress | None, context: ssl.SSLContext) -> OpenerDirector:
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

        sign = self._sign

        class Redirect(HTTPRedirectHandler):
            def redirect_request(
                self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
            ) -> Request | None:
                new = super().redirect_request(req, fp, code, msg, headers, without_secrets(newurl))
                if new is not None:
                    sign(new)
                return new

        proxy = address.proxy if address is not None else None
        proxies = ProxyHandler({"http": proxy, "https": proxy} if proxy else None)
        return build_opener(proxies, HTTPSHandler(context=context), Redirect())


def describe(error: BaseException, url: str) -> str:
    """Return what an error says, without the user and the password of an address.

    Args:
        error: What was raised while the address was read.
        url: The address, with whatever it holds.
    """
    code = getattr(error, "code", None)
    if code is not None:
        return f"the index answered {code} {getattr(error, 'reason', '')}".rstrip()
    said = str(getattr(error, "reason", None) or error) or type(error).__name__
    # The library repeats what it cannot read of an address, and cuts it anywhere.
    account = re.search(USERINFO, url)
    for piece in (account[0], account[0].rpartition(":")[2]) if account is not None else ():
        said = said.replace(piece, "")
    return without_secrets(said)


def _origin(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}"


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def trusted_certificates(address: IndexAddress | None, ca_cert: str | None) -> str | None:
    """Return what another program has to trust (PEM), where that is more than the machine does by itself.

    Args:
        address: How this machine is told to reach its index.
        ca_cert: Certificates (PEM) to trust beside.

    Raises:
        UsageError: Certificates cannot be read.
    """
    bundle = address.ca_bundle if address is not None else None
    # What SSL_CERT_FILE names the other program reads itself.
    if ca_cert is None and bundle in (None, os.environ.get("SSL_CERT_FILE")):
        return None
    import ssl

    context = _trust(address, ca_cert)
    found = [ssl.DER_cert_to_PEM_cert(item) for item in context.get_ca_certs(binary_form=True)]
    # The certificate of a server alone, which is not an authority's, is not among them.
    return "".join([*found, ca_cert or ""])


def _trust(address: IndexAddress | None, ca_cert: str | None) -> ssl.SSLContext:
    """Return the machine's own trust, with the certificates of pip's configuration and those given beside it."""
    import ssl

    context = ssl.create_default_context()
    bundle = address.ca_bundle if address is not None else None
    if bundle is not None:
        try:
            if Path(bundle).is_dir():
                context.load_verify_locations(capath=bundle)
            else:
                context.load_verify_locations(cafile=bundle)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"{bundle} holds no certificate that can be read",
                because=(getattr(error, "strerror", None) or str(error), "pip or the environment says to trust it"),
                hints=("`pip config list` and the variables PIP_CERT, REQUESTS_CA_BUNDLE, SSL_CERT_FILE say where",),
            ) from error
    if ca_cert is not None:
        try:
            context.load_verify_locations(cadata=ca_cert)
        except ssl.SSLError as error:
            raise UsageError("--ca-cert holds no certificate that can be read", because=(str(error),)) from error
    return context
