"""A reader that is patient, polite and bounded."""

from __future__ import annotations

import threading
import time

import pytest
from upstream import Reply

from provision.errors import UsageError
from provision.refresh.client import AbsentError, Client, UnreachableError, each


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
    with pytest.raises(UsageError, match="no http address"):
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
