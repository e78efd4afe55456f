"""Asking an index as pip would: who is told a password, and through what."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from provision.build.hashes import read_page
from provision.build.reader import Reader, describe
from provision.errors import MissingDependencyError, UsageError
from provision.index.address import IndexAddress

PAGE = b'<html><body><a href="x-1-py3-none-any.whl">x</a></body></html>'


class _Server(ThreadingHTTPServer):
    """Wants a password where ``account`` says so, and sends on what ``moved`` names."""

    daemon_threads = True

    def __init__(self) -> None:
        self.account: str | None = None
        self.moved: dict[str, str] = {}
        self.heard: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        said = self.headers.get("Authorization")
        server.heard.append((self.path, said))
        if self.path in server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved[self.path])
            self.end_headers()
            return
        wanted = server.account and f"Basic {base64.b64encode(server.account.encode()).decode()}"
        self.send_response(200 if said == wanted or not wanted else 401)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


def _serve() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(name="server")
def serve_one() -> Iterator[_Server]:
    yield from _serve()


@pytest.fixture(name="other")
def serve_another() -> Iterator[_Server]:
    yield from _serve()


@pytest.fixture(autouse=True)
def no_netrc(monkeypatch, tmp_path):
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def reader(url: str, **values: object) -> Reader:
    return Reader(IndexAddress(url=url, told_by="test", **values), timeout_seconds=5)  # type: ignore[arg-type]


def test_a_user_and_password_of_the_address_are_sent(server):
    server.account = "me@site:p@ss"
    url = f"http://me%40site:p%40ss@{server.place}/simple"
    page = read_page(reader(url), url, "x")
    # What the page links to has no password in it.
    assert page.files[0].url == f"http://{server.place}/simple/x/x-1-py3-none-any.whl"
    asking = reader(url)
    read_page(asking, url, "x")
    with asking.open(page.files[0].url, {}) as response:
        assert response.status == 200


def test_those_of_netrc_are_sent(server, tmp_path):
    server.account = "me:secret"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    url = f"http://{server.place}/simple"
    assert len(read_page(reader(url), url, "x").files) == 1


def test_without_them_the_way_to_give_them_is_named_and_nothing_is_repeated(server):
    server.account = "me:secret"
    url = f"http://me:wrong-secret@{server.place}/simple"
    with pytest.raises(MissingDependencyError) as caught:
        read_page(reader(url), url, "x")
    assert caught.value.because == ("the index answered 401 Unauthorized",)
    assert "netrc" in caught.value.hints[0]
    assert "wrong-secret" not in str(caught.value.to_json())


def test_a_password_goes_along_on_the_same_server_and_to_no_other(server, other):
    server.account = "me:secret"
    server.moved = {"/simple/x/": "/mirror/x/", "/simple/y/": f"http://{other.place}/y/"}
    url = f"http://me:secret@{server.place}/simple"
    asking = reader(url)
    assert read_page(asking, url, "x").files[0].url == f"http://{server.place}/mirror/x/x-1-py3-none-any.whl"
    read_page(asking, url, "y")
    assert other.heard == [("/y/", None)]


def test_a_proxy_of_pip_is_gone_through(server, monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    url = "http://index.example/simple"
    read_page(reader(url, proxy=f"http://{server.place}"), url, "x")
    assert server.heard == [(f"{url}/x/", None)]


@pytest.mark.parametrize("name", ["absent.pem", "none.pem"])
def test_certificates_of_pip_that_cannot_be_read_are_named(tmp_path, name):
    (tmp_path / "none.pem").write_text("none\n")
    with pytest.raises(UsageError, match=name):
        reader("https://index.example/simple", ca_bundle=str(tmp_path / name))


def test_a_malformed_address_shows_no_password():
    url = "http://me:hidden@index.example:port/simple"
    with pytest.raises(ValueError, match="port") as caught:
        reader(url).open(url, {})
    assert "hidden" not in describe(caught.value, url)
    assert describe(HTTPError("u", 503, "busy", None, None), url) == "the index answered 503 busy"  # type: ignore[arg-type]


def test_of_two_accounts_of_one_server_each_goes_where_it_belongs(server):
    first, second = (f"http://{name}:secret@{server.place}/{name}/simple" for name in ("one", "two"))
    asking = reader(first, extra=(second,))
    for url in (first, second):
        read_page(asking, url, "x")
    for name in ("one", "two"):
        with asking.open(f"http://{server.place}/{name}/files/x-1-py3-none-any.whl", {}):
            pass
    users = [
        base64.b64decode((said or "").removeprefix("Basic ")).decode().partition(":")[0] for _, said in server.heard
    ]
    assert users == ["one", "two", "one", "two"]
