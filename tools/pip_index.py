"""Read a package index the way pip does: pip's own session, configuration, index address and ranged wheel reader.

Nothing here knows a host name: index, proxy, certificate and credentials are whatever pip on this machine uses.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
import urllib.parse
from dataclasses import dataclass
from email.parser import HeaderParser
from html.parser import HTMLParser
from typing import Any
from zipfile import ZipFile

from pip._internal.cli.req_command import RequirementCommand
from pip._internal.commands import create_command
from pip._internal.network.lazy_wheel import LazyZipOverHTTP

__all__ = ["IndexFile", "PipIndex", "WheelContents", "requires_of_egg"]

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_TAIL_BYTES = 256 * 1024
"""First guess at the length of a wheel's directory; a torch wheel's is about 1.3 MB."""
_BIG_WHEELS = frozenset({"torch", "tensorflow", "jaxlib", "triton", "tensorrt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """One file of a project page."""

    file: str
    url: str
    sha256: str | None
    uploaded: str | None
    requires_python: str | None
    is_yanked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelContents:
    """What the directory at the end of a wheel tells; sizes in bytes.

    A source distribution says the same of itself, except how large it is once installed.
    """

    size: int
    installed: int | None
    requires_dist: tuple[str, ...]
    requires_python: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the cache."""
        return {
            "size": self.size,
            "installed": self.installed,
            "requires_dist": list(self.requires_dist),
            "requires_python": self.requires_python,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WheelContents:
        """Rebuild what :meth:`to_json` gave."""
        return cls(
            size=data["size"],
            installed=data["installed"],
            requires_dist=tuple(data["requires_dist"]),
            requires_python=data["requires_python"],
        )


class PipIndex:
    """The index that pip is configured for; safe to use from several threads."""

    def __init__(self) -> None:
        command = create_command("download")
        if not isinstance(command, RequirementCommand):
            raise TypeError("this pip has another shape than expected: `download` is no RequirementCommand")
        self._command = command
        self._options, _ = command.parse_args(["--quiet", "nothing"])
        self._local = threading.local()
        self.url: str = self._options.index_url.rstrip("/")

    @property
    def _session(self) -> Any:
        if not hasattr(self._local, "session"):
            self._local.session = self._command._build_session(self._options, retries=4)
        return self._local.session

    def read_project(self, name: str) -> tuple[IndexFile, ...]:
        """Return every file of a project, in the order of its page.

        Args:
            name: Normalised distribution name.
        """
        url = f"{self.url}/{name}/"
        response = self._session.get(url, headers={"Accept": _ACCEPT})
        response.raise_for_status()
        if "json" in response.headers.get("content-type", ""):
            return tuple(_from_json(row, url) for row in json.loads(response.text)["files"])
        page = _Page(url)
        page.feed(response.text)
        return tuple(page.files)

    def read_wheel(self, url: str, name: str) -> WheelContents:
        """Read size, unpacked size and metadata of a wheel from its last bytes.

        Args:
            url: Where the wheel is.
            name: Normalised distribution name, to guess how long the directory is.
        """
        tail = _TAIL_BYTES * 8 if name in _BIG_WHEELS else _TAIL_BYTES
        with LazyZipOverHTTP(url, self._session, chunk_size=tail) as remote, ZipFile(remote) as archive:
            members = archive.infolist()
            inside = next(m.filename for m in members if re.fullmatch(r"[^/]+\.dist-info/METADATA", m.filename))
            metadata = HeaderParser().parsestr(archive.read(inside).decode("utf-8", "replace"))
            remote.seek(0, 2)
            size = remote.tell()
        return WheelContents(
            size=size,
            installed=sum(member.file_size for member in members),
            requires_dist=tuple(str(value) for value in metadata.get_all("Requires-Dist", [])),
            requires_python=str(metadata["Requires-Python"]) if metadata["Requires-Python"] else None,
        )

    def read_source(self, url: str) -> WheelContents:
        """Read size and metadata of a source distribution, which is downloaded whole.

        Args:
            url: Where the ``.tar.gz`` or ``.zip`` is.
        """
        response = self._session.get(url)
        response.raise_for_status()
        texts = _metadata_of(url, response.content)
        metadata = HeaderParser().parsestr(texts.get("PKG-INFO", ""))
        stated = tuple(str(value) for value in metadata.get_all("Requires-Dist", []))
        return WheelContents(
            size=len(response.content),
            installed=None,
            requires_dist=stated or requires_of_egg(texts.get("requires.txt", "")),
            requires_python=str(metadata["Requires-Python"]) if metadata["Requires-Python"] else None,
        )


def _metadata_of(url: str, content: bytes) -> dict[str, str]:
    """Return the text of ``PKG-INFO`` and, of what setuptools wrote beside it, ``requires.txt``."""
    wanted = re.compile(r"[^/]+/(PKG-INFO|(?:.+/)?[^/]+\.egg-info/requires\.txt)")
    if url.endswith(".zip"):
        with ZipFile(io.BytesIO(content)) as archive:
            found = {name: archive.read(name) for name in archive.namelist() if wanted.fullmatch(name)}
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = [member for member in archive.getmembers() if member.isfile() and wanted.fullmatch(member.name)]
            found = {member.name: file.read() for member in members if (file := archive.extractfile(member))}
    return {name.rsplit("/", 1)[-1]: text.decode("utf-8", "replace") for name, text in found.items()}


def requires_of_egg(text: str) -> tuple[str, ...]:
    """Turn setuptools' ``requires.txt`` into lines of ``Requires-Dist``.

    Args:
        text: Requirements, below headings ``[extra]``, ``[extra:marker]`` or ``[:marker]``.
    """
    lines: list[str] = []
    extra = marker = ""
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("["):
            extra, _, marker = line[1:-1].partition(":")
            continue
        conditions = [f"({marker})"] if marker else []
        conditions += [f'extra == "{extra}"'] if extra else []
        lines.append(f"{line} ; {' and '.join(conditions)}" if conditions else line)
    return tuple(lines)


def _from_json(row: dict[str, Any], base: str) -> IndexFile:
    return IndexFile(
        file=row["filename"],
        url=urllib.parse.urljoin(base, row["url"]),
        sha256=row["hashes"].get("sha256"),
        uploaded=_moment(row.get("upload-time")),
        requires_python=row.get("requires-python"),
        is_yanked=bool(row.get("yanked")),
    )


class _Page(HTMLParser):
    """A project page in the older HTML form of the simple index."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one link."""
        values = dict(attrs)
        link = values.get("href")
        if tag != "a" or not link:
            return
        url, _, fragment = urllib.parse.urljoin(self.base, link).partition("#")
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        self.files.append(
            IndexFile(
                file=urllib.parse.unquote(url.rsplit("/", 1)[-1]),
                url=url,
                sha256=digest,
                uploaded=_moment(values.get("data-upload-time")),
                requires_python=values.get("data-requires-python"),
                is_yanked="data-yanked" in values,
            )
        )


def _moment(text: str | None) -> str | None:
    """Cut an upload time to whole seconds: ``2023-12-14T21:48:56Z``."""
    return f"{text[:19]}Z" if text else None
