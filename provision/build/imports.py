"""What the user's code imports whatever happens: the imports of its modules that stand outside every condition.

The code is read, never run. The same files are read that go into the image, and of these not the ones that are run
elsewhere or by somebody else: tests, docs, examples and setup scripts.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from provision.records import record

_FILES_MAX = 5000
_BYTES_MAX = 1024 * 1024
_STATEMENT = re.compile(rb"^(?:from|import)[ \t]+[^\n\\#(;]*(?:\([^)]*\)|(?:\\\r?\n[^\n\\#;]*)*)", re.MULTILINE)
"""An import at the start of a line; in a text it is none, which a look at the tree tells where it matters."""
_ELSEWHERE = re.compile(
    r"(?:^|/)(?:tests?|testing|docs?|documentation|examples?|samples?|tutorials?|notebooks?|benchmarks?|\.[^/]*)/"
    r"|(?:^|/)(?:setup|conftest|noxfile|test_[^/]*|[^/]*_tests?)\.py$"
)
_REMOVED = frozenset(
    {
        *("aifc", "asynchat", "asyncore", "audioop", "binhex", "cgi", "cgitb", "chunk", "crypt", "distutils"),
        *("formatter", "imghdr", "imp", "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "parser"),
        *("pipes", "smtpd", "sndhdr", "spwd", "sunau", "symbol", "telnetlib", "uu", "xdrlib"),
    }
)
"""Modules of the standard library of a Python that an image can have, and of no later one."""
_OF_EVERY_PYTHON = sys.stdlib_module_names | _REMOVED


@record
class Import:
    """Something that a module imports.

    Attributes:
        module: With its dots.
        name: What is taken out of it, where something is: an attribute, or a module below it.
        file: Below the folder, with slashes.
        line: From 1.
    """

    module: str
    name: str | None
    file: str
    line: int

    @property
    def top(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]

    @property
    def place(self) -> str:
        """Where it stands, for a message."""
        return f"{self.file}:{self.line}"


@record
class Code:
    """What a folder of code imports from elsewhere.

    Attributes:
        imports: By file and line.
        paths: File below the folder → where it is.
        skipped: How many files were too large, too many, or not Python of today.
    """

    imports: tuple[Import, ...]
    paths: Mapping[str, Path]
    skipped: int


def read_code(files: Mapping[str, Path], own: Collection[str] = ()) -> Code:
    """Return what code imports that is neither the standard library's nor its own.

    Args:
        files: Path below the folder → file, as they go into the image.
        own: Names that modules may have of what is copied beside the folder.
    """
    names = [name for name in files if name.endswith(".py") and _ELSEWHERE.search(name) is None]
    own = own_names(files).union(own)
    found: list[Import] = []
    skipped = max(0, len(names) - _FILES_MAX)
    for name in names[:_FILES_MAX]:
        try:
            content = files[name].read_bytes() if files[name].stat().st_size <= _BYTES_MAX else None
        except OSError:
            content = None
        read = _read(content, name) if content is not None else None
        skipped += read is None
        found += (item for item in read or () if item.top not in own and item.top not in _OF_EVERY_PYTHON)
    return Code(imports=tuple(found), paths=files, skipped=skipped)


def own_names(files: Mapping[str, Path]) -> set[str]:
    """Return every name that a module of the code may have: which folders are on the path shows when it runs."""
    own: set[str] = set()
    for name in files:
        *folders, file = name.split("/")
        own.update(folders)
        own.add(file.partition(".")[0])
    return own


def _read(content: bytes, file: str) -> list[Import] | None:
    """Return the imports at the start of lines; nothing for what is not Python of today."""
    found: list[Import] = []
    line, end = 1, 0
    for match in _STATEMENT.finditer(content):
        line, end = line + content.count(b"\n", end, match.start()), match.start()
        try:
            body = ast.parse(match[0]).body
        except (SyntaxError, ValueError, RecursionError):
            # A text, or a statement that only the whole of the file shows.
            tree = _parsed(content)
            return list(_imports(tree.body, file, 0)) if tree is not None else None
        found += _imports(body, file, line - 1)
    return found


def _parsed(content: bytes) -> ast.Module | None:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(content)
    return None


def _imports(body: list[ast.stmt], file: str, before: int) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module=alias.name, name=None, file=file, line=before + node.lineno)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                name = alias.name if alias.name != "*" else None
                yield Import(module=node.module, name=name, file=file, line=before + node.lineno)


def is_certain(item: Import, code: Code) -> bool:
    """Tell whether an import is a statement of its module that always runs, and finds what the environment has."""
    try:
        content = code.paths[item.file].read_bytes()
    except OSError:
        return False
    tree = _parsed(content)
    # Where a script adds to the path, what it imports may come from there.
    if tree is None or b"sys.path" in content:
        return False
    return any(
        (found.module, found.name, found.line) == (item.module, item.name, item.line)
        for found in _imports(tree.body, item.file, 0)
    )
