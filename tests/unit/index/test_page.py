"""Pages of a package index, in both forms, whole and spoiled."""

from __future__ import annotations

import json

import pytest
from upstream import JSON

from provision.index.page import IndexFile, Page, PageError, parse_page

ASKED = "https://mirror.example/simple/x/"
ROW = {
    "filename": "x-1-py3-none-any.whl",
    "url": "../../files/x-1-py3-none-any.whl",
    "hashes": {"sha256": "a" * 64},
    "size": 12,
    "upload-time": "2026-01-02T03:04:05.678Z",
    "requires-python": ">=3.9",
    "yanked": "broken",
    "core-metadata": {"sha256": "b" * 64},
}
WHOLE = IndexFile(
    file="x-1-py3-none-any.whl",
    url="https://mirror.example/files/x-1-py3-none-any.whl",
    sha256="a" * 64,
    size=12,
    uploaded="2026-01-02T03:04:05Z",
    requires_python=">=3.9",
    is_yanked=True,
    has_metadata=True,
    metadata_sha256="b" * 64,
)
HTML = f"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
<a href="../../files/x-1-py3-none-any.whl#sha256={"a" * 64}" data-requires-python="&gt;=3.9" data-yanked="broken"
 data-core-metadata="sha256={"b" * 64}" data-size="12" data-upload-time="2026-01-02T03:04:05Z">x</a></body></html>"""


def parse(document: object, kind: str = JSON) -> Page:
    content = document if isinstance(document, str) else json.dumps(document)
    return parse_page(content.encode(), kind, ASKED, name="x", asked=ASKED)


def page(**changes: object) -> dict[str, object]:
    return {"meta": {"api-version": "1.1"}, "name": "x", "files": [ROW], **changes}


def test_json_gives_every_column():
    assert parse(page()).files == (WHOLE,)


def test_html_says_the_same():
    found = parse(HTML, "text/html")
    assert found.files == (WHOLE,)
    assert found.unseen == ()


def test_a_base_element_moves_links():
    text = '<html><head><base href="https://cdn.example/d/"></head><body><a href="x-1.tar.gz">x</a></body></html>'
    assert parse(text, "text/html").files[0].url == "https://cdn.example/d/x-1.tar.gz"


@pytest.mark.parametrize("hashes", [{}, {"md5": "0" * 32}, {"sha256": "short"}, {"sha256": None}])
def test_a_missing_hash_stays_missing(hashes):
    assert parse(page(files=[{**ROW, "hashes": hashes}])).files[0].sha256 is None


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        pytest.param(json.dumps(page())[:-40], JSON, id="truncated"),
        pytest.param("", JSON, id="empty"),
        pytest.param([], JSON, id="list"),
        pytest.param(page(files=None), JSON, id="no files"),
        pytest.param(page(files=[{"filename": "x"}]), JSON, id="row without address"),
        pytest.param(page(files=["x"]), JSON, id="row is text"),
        pytest.param(page(files=[{**ROW, "filename": 5}]), JSON, id="name is a number"),
        pytest.param(page(files=[{**ROW, "hashes": None}]), JSON, id="hashes are nothing"),
        pytest.param(page(meta={}), JSON, id="no version"),
        pytest.param(page(meta={"api-version": "2.0"}), JSON, id="version 2"),
        pytest.param(page(name="other"), JSON, id="another project"),
        pytest.param("[" * 200_000, JSON, id="nested"),
        pytest.param("sign in", "text/plain", id="another kind"),
        pytest.param(HTML.replace("../../files", "http://[x"), "text/html", id="link is not an address"),
        pytest.param('<base href="http://[x"></html>', "text/html", id="base is not an address"),
        pytest.param("<html><head><title>Sign", "text/html", id="truncated page"),
        pytest.param(HTML.replace('content="1.1"', 'content="2.0"'), "text/html", id="html version 2"),
    ],
)
def test_what_is_no_page_is_refused(document, kind):
    with pytest.raises(PageError, match="is not a page of a package index"):
        parse(document, kind)


def test_columns_nobody_has_read_are_named():
    spoiled = page(files=[ROW, {**ROW, "attestation-policy": 1}], quarantine=True)
    assert parse(spoiled).unseen == ("files.attestation-policy", "page.quarantine")
    html = HTML.replace("data-size", "data-length")
    assert parse(html, "text/html").unseen == ("a.data-length",)


def test_private_columns_are_nobodys_business():
    assert parse(page(**{"_last-serial": 5})).unseen == ()


@pytest.mark.parametrize("size", ["\u00b2", "\u0663", "9" * 5000, "-1", "1e3"])
def test_a_size_that_is_no_number_is_no_size(size):
    found = parse(HTML.replace('data-size="12"', f'data-size="{size}"'), "text/html")
    assert found.files[0].size is None


def test_a_password_in_an_address_is_not_repeated():
    with pytest.raises(PageError) as caught:
        parse_page(b"", "text/plain", ASKED, name="x", asked=ASKED.replace("//", "//user:secret@"))
    assert "secret" not in str(caught.value.to_json())


def test_html_with_a_declaration_that_nobody_can_read_is_refused():
    with pytest.raises(PageError) as caught:
        parse("<html><![foo[ <a href='x-1-py3-none-any.whl'>x</a></html>", "text/html")
    assert "it is not HTML" in caught.value.because[0]
