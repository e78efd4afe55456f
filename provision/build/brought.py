"""What wheels bring: their top-level modules, and whether a module or a name is proved to be in none of their files.

A wheel is read where its index has it: its directory, and the sources that matter. Absence counts where it is proved,
by sources that can be read and that bring nothing in by ways that only show when they run.
"""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard
from zipfile import BadZipFile, ZipFile

from provision.errors import UnreachableError
from provision.files import write_whole
from provision.index.remote_zip import Ranges, RemoteFile, open_archive
from provision.records import record

_FORMAT = 3
"""Of what is kept; another one where the same sources would be read otherwise."""
_SOURCE_BYTES_MAX = 4 * 1024 * 1024
_SOURCES_BYTES_MAX = 256 * 1024 * 1024
_GAP_BYTES = 256 * 1024
_AHEAD_BYTES = 8 * 1024 * 1024
_STARS_MAX = 40
_LAZY = "_LazyModule"
_HOOKS = re.compile(rb"\b(?:meta_path|__path__|path_hooks|extend_path)\b|sys\.modules(?!\[__name__\])")
"""What lets a package have modules for which it has no file."""
_FOREIGN = frozenset(
    {
        *("__import__", "import_module", "iter_modules", "walk_packages", "getmembers", "exec", "eval", "dir", "vars"),
        *("__all__", "__dict__", "listdir", "iterdir", "scandir", "glob", "iglob", "rglob"),
    }
)
"""What tells a module names that do not stand in its source."""
_REACHING = frozenset({"globals", "setattr", "__setattr__", "meta_path"})
"""What a function needs to give its module another name."""
_DICTIONARIES = frozenset({"globals", "locals", "vars"})
"""What gives the dictionary of a module's names, called without an argument outside of functions."""
_READING = frozenset({"get", "items", "keys", "values"})
_GROWING = frozenset({"update", "extend", "append", "add", "insert", "setdefault"})
_TABLES = frozenset({"set", "frozenset", "dict", "list", "tuple", "sorted"})
_STAR = re.compile(rb"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\(?[ \t]*\*", re.MULTILINE)
_SCANNED = re.compile(rb"define_import_structure\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_BELOW = re.compile(rb"""Path\(__file__\)\.parent\s*/\s*["'](\w+)["']""")
_ENDS = re.compile(rb"""(?:ends|starts)with\(["'](\w+)["']""")


@record
class Wheel:
    """A wheel on an index; ``find_url`` tells where, and is asked only where the wheel has to be read."""

    name: str
    version: str
    find_url: Callable[[], str | None]
    sha256: str | None


class Brought:
    """Reads wheels, each once; what one with a hash said is kept, since it cannot say anything else.

    Args:
        ranges: Who asks.
        cache: Folder to keep answers in; ``None`` keeps none.
    """

    def __init__(self, ranges: Ranges, cache: Path | None = None) -> None:
        self._ranges = ranges
        self._cache = cache / "brought" if cache is not None else None

    def tops(self, wheel: Wheel) -> frozenset[str] | None:
        """Return the top-level modules of a wheel; nothing, where it cannot be read."""
        kept = self._kept(wheel)
        if "tops" not in kept:
            with suppress(UnreachableError), self._opened(wheel) as opened:
                self._keep(wheel, kept | {"tops": sorted(opened.tops)})
                return opened.tops
            return None
        return frozenset(kept["tops"])

    def lacks(self, wheel: Wheel, wanted: list[tuple[str, str | None]]) -> set[tuple[str, str | None]]:
        """Return which modules, or names in them, are proved not to be in a wheel.

        Args:
            wheel: It.
            wanted: Module, and what is taken out of it.

        Raises:
            UnreachableError: The wheel cannot be read.
        """
        return self._lacks(wheel, wanted, is_one_enough=False)

    def lacks_any(self, wheel: Wheel, wanted: list[tuple[str, str | None]]) -> bool:
        """Tell whether at least one of them is proved not to be in a wheel; those that are soon told come first.

        Raises:
            UnreachableError: The wheel cannot be read.
        """
        ordered = sorted(wanted, key=lambda item: item[0].count("."), reverse=True)
        return bool(self._lacks(wheel, ordered, is_one_enough=True))

    def _lacks(
        self, wheel: Wheel, wanted: list[tuple[str, str | None]], *, is_one_enough: bool
    ) -> set[tuple[str, str | None]]:
        """Return what is absent, as far as it was looked for: the wheel is opened for what no answer is kept of."""
        kept = self._kept(wheel)
        answers = dict(kept.get("lacks", {}))
        left = [item for item in wanted if _key(item) not in answers]
        if left and not (is_one_enough and any(answers.get(_key(item)) for item in wanted)):
            with self._opened(wheel) as opened:
                for item in left:
                    answers[_key(item)] = opened.lacks(*item)
                    if is_one_enough and answers[_key(item)]:
                        break
                self._keep(wheel, kept | {"tops": sorted(opened.tops), "lacks": dict(sorted(answers.items()))})
        return {item for item in wanted if answers.get(_key(item))}

    def _opened(self, wheel: Wheel) -> _Opened:
        url = wheel.find_url()
        if url is None or not url.startswith("http"):
            raise UnreachableError(f"no index is known that has {wheel.name} {wheel.version}")
        return _Opened(*open_archive(self._ranges, url), url)

    def _path(self, wheel: Wheel) -> Path | None:
        return self._cache / f"{wheel.sha256}.{_FORMAT}.json" if self._cache is not None and wheel.sha256 else None

    def _kept(self, wheel: Wheel) -> dict[str, Any]:
        path = self._path(wheel)
        if path is not None:
            with suppress(OSError, ValueError, RecursionError):
                found = json.loads(path.read_bytes())
                return found if isinstance(found, dict) else {}
        return {}

    def _keep(self, wheel: Wheel, value: Mapping[str, object]) -> None:
        path = self._path(wheel)
        if path is None:
            return
        with suppress(OSError):
            write_whole(path, json.dumps(value).encode(), mode=0o600)


class _Opened:
    """A wheel whose directory was read."""

    def __init__(self, archive: ZipFile, remote: RemoteFile, url: str) -> None:
        self._archive = archive
        self._remote = remote
        self._url = url
        # What a wheel has apart for code, by its machine or for all, is installed beside the rest.
        self._members = {
            re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", name): name
            for name in archive.namelist()
            if not name.endswith("/")
        }
        self._texts: dict[str, bytes | None] = {}

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @cached_property
    def places(self) -> frozenset[str]:
        """Modules and folders, as paths without the endings of files."""
        found: set[str] = set()
        for path in self._members:
            *folders, file = path.split("/")
            found.add("/".join([*folders, file.partition(".")[0]]))
            found.update("/".join(folders[: count + 1]) for count in range(len(folders)))
        return frozenset(found)

    @property
    def tops(self) -> frozenset[str]:
        """The first parts of all of them."""
        return frozenset(place for place in self.places if place.isidentifier())

    def lacks(self, module: str, name: str | None) -> bool:
        """Tell whether a module, or a name in it, is proved to be absent."""
        parts = module.split(".")
        if parts[0] not in self.places:
            return False  # another distribution may bring it
        for count in range(1, len(parts)):
            if "/".join(parts[: count + 1]) not in self.places:
                return self._has_no_module(parts[:count], parts[count])
        if name is None or "/".join([*parts, name]) in self.places:
            return False
        return self._has_no_name("/".join(parts), name)

    def _has_no_module(self, parents: list[str], name: str) -> bool:
        """Tell whether nothing in a package makes a module for which there is no file."""
        sources = [self._source("/".join(parents[: count + 1])) for count in range(len(parents))]
        if not all(source is not None and not _HOOKS.search(source) for source in sources):
            return False
        hooked = (text for _, text in self._sources() if _HOOKS.search(text))
        return not any(b"meta_path" in text or _has_word(text, name) for text in hooked)

    def _has_no_name(self, place: str, name: str) -> bool:
        queue, seen = [place], set()
        while queue:
            current = queue.pop()
            if current in seen:
                continue
            seen.add(current)
            source = self._source(current)
            if source is None or _has_word(source, name) or len(seen) > _STARS_MAX:
                return False
            if _LAZY.encode() in source:
                if current != place or not self._is_not_lazy(place, source, name):
                    return False
                continue
            if not _is_closed(source):
                return False
            for dots, module in _STAR.findall(source):
                target = self._target(current, dots.decode(), module.decode())
                if target is None:
                    return False
                queue.append(target)
        return True

    def _target(self, place: str, dots: str, module: str) -> str | None:
        """Return where the module of a star import is, if this wheel has it."""
        parts = module.split(".") if module else []
        if dots:
            parents = place.split("/")
            keep = len(parents) - len(dots) + (f"{place}/__init__.py" in self._members)
            parts = [*parents[: max(keep, 0)], *parts]
        path = "/".join(parts)
        return path if path in self.places else None

    def _is_not_lazy(self, place: str, source: bytes, name: str) -> bool:
        """Tell whether a module that reads names from tables has one in none of them.

        The tables are texts of its own source, or made of the sources of a folder. Such modules are made by a class
        that transformers, diffusers and others carry; it may know names by how they end.
        """
        texts = dict(self._sources())
        classes = [text for text in texts.values() if b"class _LazyModule" in text]
        if len(classes) != 1 or any(name.encode().endswith(end) for end in _ENDS.findall(classes[0])):
            return False
        for argument in _SCANNED.findall(source):
            below = _BELOW.search(argument)
            folder = f"{place}/{below[1].decode()}/" if below else f"{place}/"
            if any(path.startswith(folder) and _has_word(text, name) for path, text in texts.items()):
                return False
        return True

    def _source(self, place: str) -> bytes | None:
        """Return the text of a module; nothing where it has none, or is compiled too."""
        path = next((path for path in (f"{place}/__init__.py", f"{place}.py") if path in self._members), None)
        if path is None:
            return None
        return self._text(path)

    def _text(self, path: str) -> bytes | None:
        if path not in self._texts:
            member = self._archive.getinfo(self._members[path])
            if member.file_size > _SOURCE_BYTES_MAX:
                return None
            self._remote.prefetch(member.header_offset, member.header_offset + member.compress_size + 1024)
            try:
                self._texts[path] = self._archive.read(member)
            except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
                raise UnreachableError(f"{path} in {self._url} cannot be read", because=(str(error),)) from error
        return self._texts[path]

    def _sources(self) -> Iterator[tuple[str, bytes]]:
        """Yield all sources."""
        members = [
            (self._archive.getinfo(name), path)
            for path, name in self._members.items()
            if path.endswith((".py", ".pyi"))
        ]
        if sum(member.file_size for member, _ in members) > _SOURCES_BYTES_MAX:
            raise UnreachableError(f"{self._url} has more sources than are read")
        members.sort(key=lambda pair: pair[0].header_offset)
        ends = [member.header_offset + member.compress_size + 1024 for member, _ in members]
        fetched = 0
        for place, (member, path) in enumerate(members):
            if ends[place] > fetched:
                # What lies close together comes in one answer.
                last = place
                while last + 1 < len(members) and ends[last + 1] - member.header_offset < _AHEAD_BYTES:
                    if members[last + 1][0].header_offset - ends[last] > _GAP_BYTES:
                        break
                    last += 1
                fetched = ends[last]
                self._remote.prefetch(member.header_offset, fetched)
            text = self._text(path)
            if text is not None:
                yield path, text


def _key(wanted: tuple[str, str | None]) -> str:
    return f"{wanted[0]}:{wanted[1] or ''}"


def _has_word(text: bytes, word: str) -> bool:
    return word.encode() in text and re.search(rb"\b" + word.encode() + rb"\b", text) is not None


def _is_closed(source: bytes) -> bool:
    """Tell whether all names of a module, but those of its star imports, stand in its source.

    A ``__getattr__`` may give them out where it asks whether they are in tables that stand there too.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    tables = _tables(tree)
    dictionaries: list[ast.Call] = []
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            name = getattr(node, "name", "")
            if name == "__getattr__" and isinstance(node, ast.FunctionDef) and _is_by_tables(node, tables):
                continue
            words = {_word(inner) for inner in ast.walk(node)}
            dictionaries += (inner for inner in ast.walk(node) if _is_call_of(inner, {"globals"}))
            if name == "__getattr__" or "sys.modules" in words or (words & _REACHING and words & _FOREIGN):
                return False
            continue
        word = _word(node)
        if word in _FOREIGN or word in ("__getattr__", "sys.modules", "meta_path"):
            is_own_list = word == "__all__" and isinstance(node, ast.Name)
            if not is_own_list:
                return False
        if _is_call_of(node, _DICTIONARIES):
            dictionaries.append(node)
        queue += ast.iter_child_nodes(node)
    return not dictionaries or _are_read(dictionaries, tree, tables)


def _is_call_of(node: ast.AST, names: Collection[str]) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _are_read(dictionaries: list[ast.Call], tree: ast.Module, tables: set[str]) -> bool:
    """Tell whether no name is put into dictionaries of a module's names but those that stand in its source."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    functions = (node for node in parents if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    deep = {inner for node in functions for inner in ast.walk(node)}
    spelled = _spelled(tree, tables, deep)
    aliases: set[str] = set()
    for node in dictionaries:
        parent = parents[node]
        if isinstance(parent, ast.Assign) and all(isinstance(target, ast.Name) for target in parent.targets):
            aliases.update(map(_word, parent.targets))
        elif not _is_read(node, parent, () if node in deep else spelled):
            return False
    uses = (node for node in parents if isinstance(node, ast.Name) and node.id in aliases)
    return all(
        isinstance(node.ctx, ast.Store) or _is_read(node, parents[node], () if node in deep else spelled)
        for node in uses
    )


def _spelled(tree: ast.Module, tables: set[str], deep: Set[ast.AST]) -> set[str]:
    """Return the variables that hold nothing but texts written out in a module, outside of functions.

    They are those of loops over a table of texts.
    """
    texts = set(tables)
    targets: dict[ast.AST, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not _are_texts(node.value):
            texts.difference_update(map(_word, node.targets))
        if isinstance(node, ast.AnnAssign) and not (node.value is not None and _are_texts(node.value)):
            texts.discard(_word(node.target))
        if isinstance(node, ast.For) and node not in deep:
            targets[node.target] = node.iter
    spelled = {target for target, over in targets.items() if _are_texts(over) or _word(over) in texts}
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return set(map(_word, spelled)) - {node.id for node in stored if node not in spelled}


def _are_texts(node: ast.expr) -> bool:
    return isinstance(node, (ast.Set, ast.List, ast.Tuple)) and all(isinstance(x, ast.Constant) for x in node.elts)


def _is_read(node: ast.expr, parent: ast.AST, spelled: Collection[str]) -> bool:
    if isinstance(parent, ast.Subscript):
        key = parent.slice
        is_named = isinstance(key, ast.Constant) or (isinstance(key, ast.Name) and key.id in spelled)
        return parent.value is node and (isinstance(parent.ctx, ast.Load) or is_named)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READING
    if isinstance(parent, ast.Call):
        return parent.func is not node and _word(parent.func) in _TABLES
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.In, ast.NotIn))


def _word(node: ast.AST) -> str:
    """Return what a part of a tree names; ``sys.modules`` as one."""
    if isinstance(node, ast.Attribute):
        is_modules = node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys"
        return "sys.modules" if is_modules else node.attr
    if isinstance(node, ast.alias):
        return node.asname or node.name
    return node.id if isinstance(node, ast.Name) else ""


def _tables(tree: ast.Module) -> set[str]:
    """Return the names that stand for collections written out in a module."""
    found: set[str] = set()
    grown: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _GROWING:
            grown.add(_word(node.value))
        if isinstance(node, ast.AugAssign) and not _is_written_out(node.value):
            grown.add(_word(node.target))
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = node.value
            if isinstance(value, ast.Call) and _word(value.func) in _TABLES and len(value.args) == 1:
                value = value.args[0]
            (found if _is_written_out(value) else grown).update(map(_word, targets))
    return found - grown


def _is_written_out(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return None not in node.keys
    is_list = isinstance(node, (ast.Set, ast.List, ast.Tuple))
    return is_list and not any(isinstance(inner, ast.Starred) for inner in ast.iter_child_nodes(node))


def _is_by_tables(function: ast.FunctionDef, tables: set[str]) -> bool:
    """Tell whether a ``__getattr__`` gives something only where the name is in a table, and else raises."""
    if not function.args.args or not isinstance(function.body[-1], ast.Raise):
        return False
    asked = function.args.args[0].arg

    def is_asked(test: ast.expr) -> bool:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or _word(test.left) != asked:
            return False
        if isinstance(test.ops[0], ast.In):
            table = test.comparators[0]
            return _word(table) in tables or _is_written_out(table)
        return isinstance(test.ops[0], ast.Eq) and isinstance(test.comparators[0], ast.Constant)

    rest = [
        node for node in function.body if not (isinstance(node, ast.If) and is_asked(node.test) and not node.orelse)
    ]
    return not any(isinstance(inner, ast.Return) for node in rest for inner in ast.walk(node))
