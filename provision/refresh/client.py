"""A polite reader of http: few requests at once, patience with busy servers, nothing asked twice, nothing unbounded.

Proxies, certificates and passwords are those of the environment (``HTTPS_PROXY``, ``SSL_CERT_FILE``,
``REQUESTS_CA_BUNDLE``, ``~/.netrc``), as for any program that uses ``requests``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from provision.errors import MissingDependencyError, UnreachableError, UsageError, install_command, without_secrets
from provision.files import write_whole
from provision.records import record

if TYPE_CHECKING:
    import requests

__all__ = [
    "AbsentError",
    "Answer",
    "Client",
    "Counts",
    "UnreachableError",
    "each",
    "number_of",
    "without_secrets",
]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_BUSY = frozenset({429, 500, 502, 503, 504})
_WAIT_SECONDS_MAX = 30.0
_CHUNK_BYTES = 64 * 1024
_PAGE_BYTES_MAX = 64 * 1024 * 1024


def number_of(text: str) -> int | None:
    """Return a whole number that a server wrote in plain digits; ``None`` for anything else."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


class AbsentError(UnreachableError):
    """The server answers and says that it has no such thing."""


@record
class Answer:
    """What a server gave: the body, its media type and the address it really came from, without a password."""

    content: bytes
    kind: str
    url: str


@record
class Counts:
    """Requests sent and bytes of bodies received so far, and answers taken from the cache."""

    requests: int
    received: int
    cached: int


class Client:
    """Reads addresses; safe to use from several threads.

    Args:
        cache: Folder for answers that carry an ETag; ``None`` keeps none.
        concurrency: Requests that are on their way at the same time.
        timeout_seconds: For connecting, and for each silence of a server.
        attempts: How often one address is tried.
        backoff_seconds: First pause between two tries; it doubles.
        ca_bundle: Certificates to trust instead of those of the environment.
        proxy: What to go through instead of the proxies of the environment.
    """

    def __init__(
        self,
        *,
        cache: Path | None = None,
        concurrency: int = 4,
        timeout_seconds: float = 60,
        attempts: int = 4,
        backoff_seconds: float = 1,
        ca_bundle: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self._proxies = {"http": proxy, "https": proxy} if proxy else None
        self._cache = cache
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds
        self._slots = threading.BoundedSemaphore(concurrency)
        self._session = _open_session(concurrency, ca_bundle)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._counts = [0, 0, 0]
        self._accounts: dict[str, tuple[str, str]] = {}

    @property
    def counts(self) -> Counts:
        """What was sent and received so far."""
        sent, received, cached = self._counts
        return Counts(requests=sent, received=received, cached=cached)

    def close(self) -> None:
        """Give the connections back and wake up what waits between two tries."""
        self._stop.set()
        self._session.close()

    def get(self, url: str, *, accept: str = "*/*", bytes_max: int = _PAGE_BYTES_MAX) -> Answer:
        """Return a whole document, from the cache where the server says that it is still the same.

        Raises:
            AbsentError: There is no such document.
            UnreachableError: No answer, a broken one, or one larger than ``bytes_max``.
        """
        url, account = self._sign_in(url)
        kept = self._kept(url, accept, account)
        headers = {"Accept": accept}
        if kept is not None:
            headers |= {key: value for key, value in kept[0].items() if value and key.startswith("If-")}
        status, answer, marks = self._ask(url, headers, bytes_max, account)
        if status == 304 and kept is not None:
            with self._lock:
                self._counts[2] += 1
            return kept[1]
        self._keep(url, accept, account, answer, marks)
        return answer

    def get_range(self, url: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes from ``start`` to before ``end``, and the size of the whole.

        A negative ``start`` counts from the end, and ``end`` is ignored.

        Raises:
            UnreachableError: No answer, or a server that sends no parts.
        """
        url, account = self._sign_in(url)
        asked = f"bytes={start}" if start < 0 else f"bytes={start}-{end - 1}"
        length = -start if start < 0 else end - start
        # Compressed on the way, the bytes of a part would not be those that were asked for.
        headers = {"Range": asked, "Accept-Encoding": "identity"}
        status, answer, marks = self._ask(url, headers, length, account, is_part=True)
        first, _, total = marks.get("Content-Range", "").removeprefix("bytes ").partition("/")
        size = number_of(total)
        if status != 206 or size is None or not first:
            raise UnreachableError(
                f"{url} is not served in parts", because=(f"a range was asked for, {status} came back",)
            )
        if start >= 0 and first.partition("-")[0] != str(start):
            raise UnreachableError(f"{url} is not served in parts", because=(f"asked for {asked}, got {first}",))
        return answer.content, size

    def _sign_in(self, url: str) -> tuple[str, tuple[str, str] | None]:
        """Return an address without user and password, and these; a server once told who asks is told again.

        The address that an answer came from holds no password, and the links on a page are made from it.
        """
        if not url.startswith(("https://", "http://")):
            raise UsageError(f"`{without_secrets(url)[:80]}` is not an http address")
        try:
            parts = urllib.parse.urlsplit(url)
            origin = f"{parts.scheme}://{parts.hostname}:{parts.port or ''}"
        except ValueError as error:
            # Where the user ends cannot be told, so nothing of it is shown.
            raise UnreachableError("an address cannot be read", because=("its host or port is malformed",)) from error
        with self._lock:
            if parts.username is not None:
                account = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
                self._accounts[origin] = account
            return without_secrets(url), self._accounts.get(origin)

    def _ask(
        self,
        url: str,
        headers: Mapping[str, str],
        bytes_max: int,
        account: tuple[str, str] | None,
        *,
        is_part: bool = False,
    ) -> tuple[int, Answer, Mapping[str, str]]:
        reason, pause = "", self._backoff_seconds
        for attempt in range(self._attempts):
            if attempt and self._stop.wait(min(pause, _WAIT_SECONDS_MAX)):
                raise UnreachableError(f"{url} was given up")
            pause = self._backoff_seconds * 2**attempt
            with self._slots:
                try:
                    return self._ask_once(url, headers, bytes_max, account, is_part=is_part)
                except _BusyError as busy:
                    reason, pause = busy.reason, max(busy.pause, pause)
        raise UnreachableError(f"{url} does not answer", because=(reason,))

    def _ask_once(
        self, url: str, headers: Mapping[str, str], bytes_max: int, account: tuple[str, str] | None, *, is_part: bool
    ) -> tuple[int, Answer, Mapping[str, str]]:
        import requests

        with self._lock:
            self._counts[0] += 1
        # As bytes: requests would write a text as Latin-1. It drops the header where a redirect leaves the host.
        auth = requests.auth.HTTPBasicAuth(account[0].encode(), account[1].encode()) if account is not None else None
        try:
            with self._session.get(
                url,
                headers=dict(headers),
                auth=auth,
                timeout=self._timeout_seconds,
                stream=True,
                allow_redirects=True,
                proxies=self._proxies,
            ) as response:
                status = response.status_code
                came_from = without_secrets(response.url)
                if status in _BUSY:
                    pause = number_of(response.headers.get("Retry-After", ""))
                    raise _BusyError(f"it answered {status}", pause or 0)
                if status in (404, 410):
                    raise AbsentError(f"{url} does not exist", because=(f"it answered {status}",))
                if status >= 400 or status in (301, 302, 303, 307, 308):
                    raise UnreachableError(f"{url} cannot be read", because=(f"it answered {status}",))
                if is_part and status != 206:
                    # The whole of it may be gigabytes: not one of them is read.
                    return status, Answer(content=b"", kind="", url=came_from), response.headers
                content = self._read(response, url, bytes_max)
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                return status, Answer(content=content, kind=kind, url=came_from), response.headers
        except requests.exceptions.SSLError as error:
            raise UnreachableError(
                f"{url} cannot be trusted",
                because=(_said(error),),
                hints=("`SSL_CERT_FILE` names the certificates to trust",),
            ) from error
        except requests.exceptions.TooManyRedirects as error:
            raise UnreachableError(f"{url} leads in a circle", because=(_said(error),)) from error
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise UnreachableError(f"{url} cannot be read", because=(_said(error),)) from error
        except requests.exceptions.RequestException as error:
            if "NameResolutionError" in repr(error):
                raise UnreachableError(f"{url} does not answer", because=(_said(error),)) from error
            raise _BusyError(_said(error), 0) from error
        except ValueError as error:
            # A redirect to what is not an address.
            raise UnreachableError(f"{url} cannot be read", because=(_said(error),)) from error

    def _read(self, response: requests.Response, url: str, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_content(_CHUNK_BYTES):
            size += len(part)
            with self._lock:
                self._counts[1] += len(part)
            if size > bytes_max:
                raise UnreachableError(
                    f"{url} is too large",
                    because=(f"more than {bytes_max} bytes were sent, and that is not such a page",),
                )
            parts.append(part)
        return b"".join(parts)

    def _place(self, url: str, accept: str, account: tuple[str, str] | None) -> Path | None:
        if self._cache is None:
            return None
        # Another user may be shown another page; a password could be guessed from the name of the file.
        basis = f"{accept}\n{url}" + (f"\n{account[0]}" if account is not None else "")
        return self._cache / "pages" / hashlib.sha256(basis.encode()).hexdigest()[:32]

    def _kept(self, url: str, accept: str, account: tuple[str, str] | None) -> tuple[dict[str, str], Answer] | None:
        place = self._place(url, accept, account)
        if place is None:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            marks = json.loads(place.with_suffix(".json").read_bytes())
            content = place.with_suffix(".body").read_bytes()
            # A body that another process is just replacing does not belong to these marks.
            if hashlib.sha256(content).hexdigest() == marks["sha256"]:
                return marks, Answer(content=content, kind=marks["kind"], url=marks["url"])
        return None

    def _keep(
        self, url: str, accept: str, account: tuple[str, str] | None, answer: Answer, marks: Mapping[str, str]
    ) -> None:
        place = self._place(url, accept, account)
        etag = marks.get("ETag", "")
        modified = marks.get("Last-Modified", "")
        if place is None or not (etag or modified):
            return
        head = {
            "If-None-Match": etag,
            "If-Modified-Since": "" if etag else modified,
            "kind": answer.kind,
            "url": answer.url,
            "sha256": hashlib.sha256(answer.content).hexdigest(),
        }
        with suppress(OSError):
            for suffix, content in ((".body", answer.content), (".json", json.dumps(head).encode())):
                # What a private index answers is private too.
                write_whole(place.with_suffix(suffix), content, mode=0o600)


class _BusyError(Exception):
    """Worth another try: why, and how long the server asked to wait."""

    def __init__(self, reason: str, pause: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


def _said(error: BaseException) -> str:
    """Return the innermost sentence of an error of requests; its wrappers repeat it."""
    inner: Any = error
    while True:
        deeper = getattr(inner, "reason", None) or (inner.args[0] if getattr(inner, "args", ()) else None)
        if not isinstance(deeper, BaseException):
            break
        inner = deeper
    text = str(inner).partition("): ")[2] or str(inner)
    return f"{type(inner).__name__}: {without_secrets(text)[:200]}" if text else type(inner).__name__


def _open_session(concurrency: int, ca_bundle: str | None) -> requests.Session:
    try:
        import requests
        from requests.adapters import HTTPAdapter
    except ImportError as error:
        raise MissingDependencyError(
            "reading upstream needs the package requests",
            hints=(f"{install_command('refresh')} brings it",),
        ) from error
    session = requests.Session()
    session.headers["User-Agent"] = "provision-refresh"
    adapter = HTTPAdapter(pool_connections=concurrency, pool_maxsize=concurrency)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    bundle = ca_bundle or os.environ.get("SSL_CERT_FILE")
    if bundle and not (os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")):
        session.verify = bundle
    elif ca_bundle:
        session.verify = ca_bundle
    return session


def each(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    client: Client,
    jobs: int,
    advance: Callable[[int], None] | None = None,
) -> list[_Result]:
    """Do something with every item, several at a time; results come in the order of the items.

    Args:
        work: What to do; it runs in a thread.
        items: What to do it with.
        client: Is closed where this is interrupted, so that nothing goes on reading.
        jobs: Threads.
        advance: Told how many items are done.
    """
    results: list[_Result] = []
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        for result in pool.map(work, items):
            results.append(result)
            if advance is not None:
                advance(len(results))
    except BaseException:
        client.close()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
    return results
