"""Project pages through the polite client."""

from __future__ import annotations

import json

import pytest
from upstream import JSON, Reply

from provision.refresh.client import UnreachableError
from provision.refresh.index import read_page

FILE = {"filename": "x-1-py3-none-any.whl", "url": "../../files/x-1-py3-none-any.whl", "hashes": {}}
PAGE = {"meta": {"api-version": "1.1"}, "name": "x", "files": [FILE]}


def test_links_are_relative_to_where_the_page_really_was(upstream, client):
    upstream.replies["/simple/x/"] = Reply(b"", 302, headers={"Location": "/mirror/simple/x/"})
    upstream.replies["/mirror/simple/x/"] = Reply(json.dumps(PAGE).encode(), kind=JSON)
    found = read_page(client, upstream.index, "x")
    assert found.files[0].url == f"{upstream.url}/mirror/files/x-1-py3-none-any.whl"


def test_what_is_no_page_counts_as_not_read(upstream, client):
    upstream.replies["/simple/x/"] = Reply(b"sign in", kind="text/plain")
    with pytest.raises(UnreachableError, match="is not a page of a package index"):
        read_page(client, upstream.index, "x")
