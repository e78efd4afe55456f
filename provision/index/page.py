"""Project pages of a package index: JSON (PEP 691, 700, 740, 792) and the older HTML form (PEP 503, 592, 714).

Whoever reads an index, to build or to refresh the facts, reads its pages here.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from html.parser import HTMLParser
from typing import Any

from provision.errors import MissingDependencyError, without_secrets
from provision.records import record

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
"""What to ask an index for: JSON, and what older ones have."""

_HTML = ("text/html", "application/vnd.pypi.simple.v1+html")
_FILE_COLUMNS = frozenset(
    [
        "filename",
        "url",
        "hashes",
        "requires-python",
        "size",
        "upload-time",
        "yanked",
        "gpg-sig",
        "provenance",
        "core-metadata",
        "dist-info-metadata",
        "data-dist-info-metadata",
    ]
)
_PAGE_COLUMNS = frozenset(
    {
        "meta",
        "name",
        "files",
        "versions",
        "project-status",
        "alternate-locations",
        "tracks",
    }
)
_HTML_COLUMNS = frozenset(
    [
        "href",
        "data-requires-python",
        "data-yanked",
        "data-gpg-sig",
        "data-core-metadata",
        "data-dist-info-metadata",
        "data-provenance",
        "data-upload-time",
        "data-size",
        "rel",
        "class",
        "title",
        "target",
        "internal",
    ]
)
_MAJOR = "1"


@record
class IndexFile:
    """One file of a project page.

    Attributes:
        sha256: Absent where the page gives none.
        size: Bytes, where the page says.
        uploaded: Moment, cut to whole seconds (``2023-12-14T21:48:56Z``).
        has_metadata: Whether the index serves the wheel's METADATA beside it.
        metadata_sha256: Its hash.
    """

    file: str
    url: str
    sha256: str | None = None
    size: int | None = None
    uploaded: str | None = None
    requires_python: str | None = None
    is_yanked: bool = False
    has_metadata: bool = False
    metadata_sha256: str | None = None


@record
class Page:
    """A project page: every file in the order of the page, and the columns nobody here knows."""

    name: str
    files: tuple[IndexFile, ...]
    unseen: tuple[str, ...] = ()


class PageError(MissingDependencyError):
    """What an index answered is not a page of the project; it is said without passwords."""


def parse_page(content: bytes, kind: str, url: str, *, name: str, asked: str) -> Page:
    """Read what an index answered.

    Args:
        content: The body.
        kind: Its media type.
        url: Where it came from in the end; links are relative to it.
        name: The project that was asked for, normalised.
        asked: Its address, for the message.

    Raises:
        PageError: It is not a page of this project.
    """
    if kind in _HTML:
        return _from_html(content, url, name, asked)
    if "json" not in kind:
        raise _no_page(asked, f"it answered with `{kind[:60]}`")
    try:
        document = json.loads(content)
        files = tuple(_from_json(row, url) for row in document["files"])
        version = str(document["meta"]["api-version"])
        named = str(document["name"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_page(asked, f"its answer is not a list of files: {type(error).__name__} {error}") from error
    if version.partition(".")[0] != _MAJOR:
        raise _no_page(asked, f"it speaks version {version[:20]} of the interface, which this version cannot read")
    if re.sub(r"[-_.]+", "-", named).lower() != name:
        raise _no_page(asked, f"it is the page of `{named[:60]}`")
    columns = {f"page.{key}" for key in document if key not in _PAGE_COLUMNS and not key.startswith("_")}
    for row in document["files"]:
        columns |= {f"files.{key}" for key in row if key not in _FILE_COLUMNS and not key.startswith("_")}
    return Page(name=name, files=files, unseen=tuple(sorted(columns)))


def _from_json(row: dict[str, Any], base: str) -> IndexFile:
    described = next(
        (row[key] for key in ("core-metadata", "dist-info-metadata", "data-dist-info-metadata") if key in row), False
    )
    size, bound, moment = row.get("size"), row.get("requires-python"), row.get("upload-time")
    return IndexFile(
        file=_text(row["filename"]),
        url=urllib.parse.urljoin(base, _text(row["url"])),
        sha256=_digest(row["hashes"].get("sha256")),
        size=size if type(size) is int and size >= 0 else None,
        uploaded=_moment(moment),
        requires_python=bound if isinstance(bound, str) and bound else None,
        is_yanked=bool(row.get("yanked")),
        has_metadata=bool(described),
        metadata_sha256=_digest(described.get("sha256")) if isinstance(described, dict) else None,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _from_html(content: bytes, url: str, name: str, asked: str) -> Page:
    page = _Links(url)
    text = content.decode("utf-8", "replace")
    try:
        page.feed(text)
        page.close()
    except ValueError as error:
        raise _no_page(asked, f"a link on it is not an address: {error}") from error
    except AssertionError as error:
        # How the library refuses a declaration that it cannot read.
        raise _no_page(asked, f"it is not HTML: {error}") from error
    if "</html" not in text.lower() and "</body" not in text.lower() and not page.files:
        raise _no_page(asked, "its page has no end and no link")
    if page.version and page.version.partition(".")[0] != _MAJOR:
        raise _no_page(asked, f"it speaks version {page.version[:20]} of the interface, which this version cannot read")
    return Page(name=name, files=tuple(page.files), unseen=tuple(sorted(page.unseen)))


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.files: list[IndexFile] = []
        self.unseen: set[str] = set()
        self.version = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one link, or the version of the interface."""
        values = dict(attrs)
        if tag == "meta" and values.get("name") == "pypi:repository-version":
            self.version = values.get("content") or ""
        if tag == "base" and values.get("href"):
            self._base = urllib.parse.urljoin(self._base, values["href"] or "")
        link = values.get("href")
        if tag != "a" or not link:
            return
        url, _, fragment = urllib.parse.urljoin(self._base, link).partition("#")
        file = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
        if not file:
            return
        self.unseen |= {f"a.{key}" for key in values if key not in _HTML_COLUMNS}
        described = next(
            (values[key] for key in ("data-core-metadata", "data-dist-info-metadata") if key in values), None
        )
        self.files.append(
            IndexFile(
                file=file,
                url=url,
                sha256=_digest(fragment.removeprefix("sha256=")) if fragment.startswith("sha256=") else None,
                size=_bytes(values.get("data-size")),
                uploaded=_moment(values.get("data-upload-time")),
                requires_python=values.get("data-requires-python") or None,
                is_yanked="data-yanked" in values,
                has_metadata=bool(described) and described != "false",
                metadata_sha256=_digest((described or "").removeprefix("sha256=")),
            )
        )


def _digest(text: object) -> str | None:
    return text if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) else None


def _moment(text: object) -> str | None:
    if not isinstance(text, str) or not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text):
        return None
    return f"{text[:19]}Z"


def _bytes(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None


def _no_page(asked: str, why: str) -> PageError:
    return PageError(f"{without_secrets(asked)} is not a page of a package index", because=(without_secrets(why),))
