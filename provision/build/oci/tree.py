"""Which files a stack of layers has, without unpacking them."""

from __future__ import annotations

import fnmatch
import posixpath
import tarfile

from provision.records import record

_KEPT = ("etc/passwd", "etc/group")
_KEPT_BYTES_MAX = 1024 * 1024
_ENTRIES_MAX = 4_000_000
_LINKS_MAX = 40
_GONE = ".wh."
_OPAQUE = ".wh..wh..opq"


@record
class Entry:
    """One file, folder or link; ``data`` is kept of the few files that are edited."""

    kind: str
    mode: int
    owner: tuple[int, int]
    target: str = ""
    data: bytes | None = None

    @property
    def is_executable(self) -> bool:
        """A file that may be run."""
        return self.kind == "file" and bool(self.mode & 0o111)


_FOLDER = Entry(kind="folder", mode=0o755, owner=(0, 0))


class Tree:
    """The files of an image, by path without a leading slash."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def apply(self, layer: tarfile.TarFile) -> None:
        """Put a layer on top.

        Raises:
            ValueError: It has a path that leads out of the image, or too many.
        """
        mine: set[str] = set()
        for item in layer:
            path = posixpath.normpath(item.name).lstrip("/")
            if path == ".":
                continue
            if path.startswith("../") or path == "..":
                raise ValueError(f"the entry {item.name[:120]!r} leads out of the image")
            folder, name = posixpath.split(path)
            if name == _OPAQUE:
                self._clear(folder, mine)
            elif name.startswith(_GONE):
                gone = posixpath.join(folder, name.removeprefix(_GONE))
                self.entries.pop(gone, None)
                self._clear(gone, mine)
            else:
                entry = _entry(item, layer if path in _KEPT else None)
                if entry.kind != "folder" and self.entries.get(path, entry).kind == "folder":
                    self._clear(path, set())
                self.entries[path] = entry
                mine.add(path)
                # Some tools leave the folders of a file out of the tar; they are there all the same.
                while folder and folder not in self.entries:
                    self.entries[folder] = _FOLDER
                    mine.add(folder)
                    folder = posixpath.dirname(folder)
            if len(self.entries) > _ENTRIES_MAX:
                raise ValueError(f"it has more than {_ENTRIES_MAX} files")
            # tarfile keeps every member of a stream, which nobody asks for again.
            layer.members.clear()  # type: ignore[attr-defined]

    def _clear(self, folder: str, kept: set[str]) -> None:
        prefix = f"{folder}/"
        for path in [path for path in self.entries if path.startswith(prefix) and path not in kept]:
            del self.entries[path]

    def resolve(self, path: str) -> str | None:
        """Return what a path leads to after every link, or nothing where it leads nowhere."""
        left = [part for part in path.split("/") if part]
        done: list[str] = []
        links = 0
        while left:
            part = left.pop(0)
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            here = "/".join((*done, part))
            entry = self.entries.get(here)
            if entry is not None and entry.kind == "link":
                links += 1
                if links > _LINKS_MAX:
                    return None
                if entry.target.startswith("/"):
                    done = []
                left = [*(name for name in entry.target.split("/") if name), *left]
            else:
                done.append(part)
        found = "/".join(done)
        return found if found in self.entries else None

    def find_program(self, name: str, search_path: str) -> str | None:
        """Return the path, with its slash, under which a program is first found; links are not followed in it."""
        for folder in search_path.split(":"):
            path = posixpath.join(folder, name)
            found = self.resolve(path)
            if folder.startswith("/") and found is not None and self.entries[found].is_executable:
                return path
        return None

    def match(self, pattern: str) -> list[str]:
        """Return what a shell would make of a pattern in the last part of a path, sorted."""
        folder, name = posixpath.split(pattern.lstrip("/"))
        real = self.resolve(folder)
        if real is None:
            return []
        prefix = f"{real}/"
        return sorted(
            path
            for path in self.entries
            if path.startswith(prefix)
            and "/" not in path[len(prefix) :]
            and fnmatch.fnmatchcase(path[len(prefix) :], name)
        )


def _entry(item: tarfile.TarInfo, layer: tarfile.TarFile | None) -> Entry:
    kind = "folder" if item.isdir() else "link" if item.issym() else "file"
    data = None
    if layer is not None and item.isreg() and item.size <= _KEPT_BYTES_MAX:
        stream = layer.extractfile(item)
        data = stream.read() if stream is not None else None
    return Entry(kind=kind, mode=item.mode, owner=(item.uid, item.gid), target=item.linkname, data=data)
