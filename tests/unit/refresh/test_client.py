"""A reader that is patient, polite and bounded."""

from __future__ import annotations

import base64
import stat
import threading
import time
from pathlib import Path

import pytest
from upstream import Reply

from provision.errors import UsageError, without_secrets
from provision.refresh.client import AbsentError, Client, UnreachableError, each

SECRET = "s3cret"


def test_a_server_that_stumbles_is_asked_again(upstream, client):
    upstream.replies["/page"] = Reply(b"whole")
    upstream.faults["/page"] = [Reply(b"", 500), Reply(b"", 503, headers={"Retry-After": "0"})]
    assert client.get(f"{upstream.url}/page").content == b"whole"
    assert client.counts.requests == 3


def test_a_server_that_stays_broken_is_given_up(upstream, client):
    upstream.faults["/page"] = [Reply(b"", 500)] * 9
    with pytest.raises(UnreachableError, match="does not answer") as caught:
        client.get(f"{upstream.url}/page")
    assert "500" in caught.value.because[0]
    assert client.counts.requests == 3


def test_an_absent_page_is_not_asked_for_again(upstream, client):
    with pytest.raises(AbsentError):
        client.get(f"{upstream.url}/page")
    assert client.counts.requests == 1


def test_a_body_that_ends_early_is_no_answer(upstream, client):
    upstream.replies["/page"] = Reply(b"half of it", claimed=2000)
    with pytest.raises(UnreachableError) as caught:
        client.get(f"{upstream.url}/page")
    assert "IncompleteRead" in caught.value.because[0]
    upstream.replies["/page"] = Reply(b"all of it")
    assert client.get(f"{upstream.url}/page").content == b"all of it"


def test_redirects_are_followed_and_tell_where_they_led(upstream, client):
    upstream.replies["/old"] = Reply(b"", 301, headers={"Location": "/new/"})
    upstream.replies["/new/"] = Reply(b"here")
    answer = client.get(f"{upstream.url}/old")
    assert (answer.content, answer.url) == (b"here", f"{upstream.url}/new/")


def test_a_redirect_in_a_circle_ends(upstream, client):
    upstream.replies["/a"] = Reply(b"", 302, headers={"Location": "/a"})
    with pytest.raises(UnreachableError, match="circle"):
        client.get(f"{upstream.url}/a")


def test_a_huge_answer_is_left_unread(upstream, client):
    upstream.replies["/page"] = Reply(b"x" * 20_000_000)
    with pytest.raises(UnreachableError, match="too large"):
        client.get(f"{upstream.url}/page", bytes_max=100_000)
    assert client.counts.received < 400_000


def test_a_page_with_an_etag_is_read_once(upstream, tmp_path):
    upstream.replies["/page"] = Reply(b"facts", headers={"ETag": '"1"'})
    for _ in range(2):
        client = Client(cache=tmp_path, attempts=1)
        assert client.get(f"{upstream.url}/page").content == b"facts"
        client.close()
    assert client.counts.cached == 1
    assert client.counts.received == 0
    upstream.replies["/page"] = Reply(b"new facts", headers={"ETag": '"2"'})
    client = Client(cache=tmp_path, attempts=1)
    assert client.get(f"{upstream.url}/page").content == b"new facts"
    client.close()


def test_a_damaged_cache_only_costs_time(upstream, tmp_path):
    upstream.replies["/page"] = Reply(b"facts", headers={"ETag": '"1"'})
    client = Client(cache=tmp_path, attempts=1)
    client.get(f"{upstream.url}/page")
    for path in (tmp_path / "pages").glob("*.body"):
        path.write_bytes(b"other")
    assert client.get(f"{upstream.url}/page").content == b"facts"
    client.close()


def test_parts_are_parts(upstream, client):
    upstream.replies["/file"] = Reply(bytes(range(100)))
    assert client.get_range(f"{upstream.url}/file", 10, 13) == (bytes([10, 11, 12]), 100)
    assert client.get_range(f"{upstream.url}/file", -2, 0) == (bytes([98, 99]), 100)


def test_a_server_without_parts_is_refused_before_its_body_is_read(upstream, client):
    upstream.replies["/file"] = Reply(b"x" * 5_000_000, has_ranges=False)
    with pytest.raises(UnreachableError, match="not served in parts"):
        client.get_range(f"{upstream.url}/file", 0, 10)
    assert client.counts.received == 0


def test_another_part_than_asked_for_is_refused(upstream, client):
    upstream.faults["/file"] = [Reply(b"xyz", 206, headers={"Content-Range": "bytes 5-7/100"})]
    with pytest.raises(UnreachableError, match="not served in parts"):
        client.get_range(f"{upstream.url}/file", 0, 3)


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://mirror.example/x", "page"])
def test_only_http_is_read(client, address):
    with pytest.raises(UsageError, match="not an http address"):
        client.get(address)


def test_few_requests_are_on_their_way_at_once(upstream):
    upstream.hook = lambda _: time.sleep(0.02)
    for number in range(12):
        upstream.replies[f"/{number}"] = Reply(b"x")
    client = Client(concurrency=2, attempts=1)
    urls = [f"{upstream.url}/{number}" for number in range(12)]
    each(client.get, urls, client, jobs=8)
    client.close()
    assert upstream.busiest == 2


def test_an_interrupt_ends_everything_that_waits(upstream):
    client = Client(concurrency=4, attempts=50, backoff_seconds=5)
    upstream.faults["/slow"] = [Reply(b"", 503)] * 99

    def work(name: str) -> None:
        if name == "stop":
            raise KeyboardInterrupt
        client.get(f"{upstream.url}/slow")

    began = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        each(work, ["stop", "a", "b", "c"], client, jobs=4)
    assert threading.active_count() <= began + 4
    assert client.counts.requests <= 4


# users and passwords


def signed(upstream, path: str = "") -> str:
    return upstream.url.replace("://", f"://user:{SECRET}@") + path


@pytest.fixture
def headers(upstream, monkeypatch) -> list[str | None]:
    """The Authorization of every request that comes in."""
    found: list[str | None] = []
    real = upstream._answer
    monkeypatch.setattr(
        upstream, "_answer", lambda handler: (found.append(handler.headers.get("Authorization")), real(handler))
    )
    return found


def test_a_password_goes_to_its_server_and_nowhere_else(upstream, tmp_path, headers):
    upstream.replies["/page"] = Reply(b"facts", headers={"ETag": '"1"'})
    client = Client(cache=tmp_path, attempts=1)
    answer = client.get(signed(upstream, "/page"))
    assert answer.url == f"{upstream.url}/page"
    client.get_range(answer.url, 0, 2)
    client.close()
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert headers == [f"Basic {basic}"] * 2, "a link on a page is asked for as the page was"
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 2
    for path in kept:
        assert SECRET.encode() not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_password_finds_the_same_page_and_another_user_does_not(upstream, tmp_path):
    upstream.replies["/page"] = Reply(b"facts", headers={"ETag": '"1"'})
    for address, cached in (("a:1", 0), ("a:2", 1), ("b:1", 0)):
        client = Client(cache=tmp_path, attempts=1)
        client.get(upstream.url.replace("://", f"://{address}@") + "/page")
        client.close()
        assert client.counts.cached == cached


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"", 404),
        Reply(b"", 403),
        Reply(b"", 500),
        Reply(b"x" * 200),
        Reply(b"", 302, headers={"Location": "/page"}),
        Reply(b"", 302, headers={"Location": f"http://user:{SECRET}@[x/"}),
        Reply(b"", 302, headers={"Location": f"ftp://user:{SECRET}@mirror.example/"}),
    ],
)
def test_no_message_holds_a_password(upstream, client, reply):
    upstream.replies["/page"] = reply
    with pytest.raises(UnreachableError) as caught:
        client.get(signed(upstream, "/page"), bytes_max=100)
    assert SECRET not in str(caught.value.to_json())
    with pytest.raises(UnreachableError) as caught:
        client.get(signed(upstream, "/none"))
    assert SECRET not in str(caught.value.to_json())


@pytest.mark.parametrize("address", ["ftp://user:s3cret@mirror.example/", "http://user:s3cret/x@mirror.example/"])
def test_an_address_that_cannot_be_read_keeps_its_password_too(client, address):
    with pytest.raises((UsageError, UnreachableError)) as caught:
        client.get(address)
    assert SECRET not in str(caught.value.to_json())


def test_only_the_user_of_an_address_is_left_out():
    assert without_secrets("https://a:b@c@x.example/p@1?q=d@e and http://u@y.example") == (
        "https://x.example/p@1?q=d@e and http://y.example"
    )


# nonsense in headers


def test_digits_that_are_none_are_no_time_to_wait(upstream, client):
    upstream.replies["/page"] = Reply(b"whole")
    upstream.faults["/page"] = [Reply(b"", 503, headers={"Retry-After": "\u00b2"})]
    assert client.get(f"{upstream.url}/page").content == b"whole"
    upstream.faults["/page"] = [Reply(b"abc", 206, headers={"Content-Range": "bytes 0-2/\u00b2"})]
    with pytest.raises(UnreachableError, match="not served in parts"):
        client.get_range(f"{upstream.url}/page", 0, 3)


def test_a_redirect_to_no_address_is_an_answer_that_cannot_be_read(upstream, client):
    upstream.replies["/page"] = Reply(b"", 302, headers={"Location": "http://[x"})
    with pytest.raises(UnreachableError, match="cannot be read"):
        client.get(f"{upstream.url}/page")


def test_a_damaged_record_of_the_cache_only_costs_time(upstream, tmp_path):
    upstream.replies["/page"] = Reply(b"facts", headers={"ETag": '"1"'})
    client = Client(cache=tmp_path, attempts=1)
    client.get(f"{upstream.url}/page")
    for path in Path(tmp_path / "pages").glob("*.json"):
        path.write_text("[" * 200_000)
    assert client.get(f"{upstream.url}/page").content == b"facts"
    client.close()
