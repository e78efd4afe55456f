"""What ``setup.py`` and ``setup.cfg`` ask for, as far as that stands in them: the script is read and never run."""

from __future__ import annotations

import ast
import configparser
import re

from provision.audit.model import NotJudgedError, Source
from provision.errors import UsageError
from provision.records import NOTHING, record

_FILE = re.compile(r"[\w./-]*(?:\.txt|\.in)")
_STEPS_MAX = 2000
_DEPTH_MAX = 12


@record
class Needs:
    """A list of requirements of a setup script.

    Attributes:
        lines: Requirements that stand in it, each with the line it stands on.
        files: Requirements files that it takes others from.
        unread: Line of what only running it would tell, ``None`` where all is known.
    """

    lines: tuple[tuple[str, int], ...] = ()
    files: tuple[str, ...] = ()
    unread: int | None = None


@record
class Setup:
    """What a setup script asks for.

    Attributes:
        needs: Of the project itself; ``None`` where it does not say.
        extras: Name → of that extra.
        python: The Pythons it allows, as a specifier.
        builds: Of its build (``setup_requires``); ``None`` where it does not say.
    """

    needs: Needs | None = None
    extras: dict[str, Needs] = NOTHING  # type: ignore[assignment]
    python: str | None = None
    builds: Needs | None = None


def read_setup_py(source: Source) -> Setup:
    """Read a ``setup.py``.

    Raises:
        NotJudgedError: It is not Python 3: it is for Python 2, or a template.
    """
    try:
        tree = ast.parse(source.text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        place = f"{source.file}, line {line}" if line else source.file
        raise NotJudgedError(
            f"{place}: not judged, it is not Python 3", because=(str(error).partition(" (")[0],)
        ) from error
    script = _Script(tree)
    call = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "setup"),
        None,
    )
    if call is None:
        return Setup()
    words = {word.arg: word.value for word in call.keywords if word.arg}
    for word in call.keywords:
        if word.arg is None:
            words |= script.mapping(word.value)
    needs, builds = (
        script.needs(words[key]) if key in words else None for key in ("install_requires", "setup_requires")
    )
    named = script.mapping(words["extras_require"]) if "extras_require" in words else {}
    extras = {name: script.needs(value) for name, value in named.items()}
    python = script.value(words["python_requires"]) if "python_requires" in words else None
    return Setup(
        needs=needs,
        extras=extras,
        python=python.value if isinstance(python, ast.Constant) and isinstance(python.value, str) else None,
        builds=builds,
    )


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _grown(node: ast.AST) -> str | None:
    """Return the name of the list that a call adds to."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    is_growing = node.func.attr in ("append", "extend", "insert")
    return node.func.value.id if is_growing and isinstance(node.func.value, ast.Name) else None


class _Script:
    """A script with what its names were given, so that a list can be followed without running anything."""

    def __init__(self, tree: ast.Module) -> None:
        self.given: dict[str, ast.expr] = {}
        self.entries: dict[str, dict[str, ast.expr]] = {}
        self.around: dict[str, ast.With] = {}
        self.changed: dict[str, int] = {}
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.followed: set[str] = set()
        self.steps = 0
        inside = {id(node) for function in self.functions.values() for node in ast.walk(function)}
        for node in ast.walk(tree):
            if id(node) in inside:
                continue
            if isinstance(node, ast.With):
                self._note_with(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.given[target.id] = node.value
                    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                        self._note_entry(target.value.id, target.slice, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.given[node.target.id] = node.value
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.changed.setdefault(node.target.id, node.lineno)
            elif (name := _grown(node)) is not None and isinstance(node, ast.Call):
                self.changed.setdefault(name, node.lineno)

    def _note_entry(self, name: str, key: ast.expr, value: ast.expr) -> None:
        if isinstance(key, ast.Constant):
            self.entries.setdefault(name, {})[str(key.value)] = value

    def _note_with(self, node: ast.With) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                self.around |= {target.id: node for target in inner.targets if isinstance(target, ast.Name)}
            elif (name := _grown(inner)) is not None:
                self.around[name] = node

    def value(self, node: ast.expr) -> ast.expr:
        """Return what a name stands for, or the expression itself."""
        seen = set()
        while isinstance(node, ast.Name) and node.id in self.given and node.id not in seen:
            seen.add(node.id)
            node = self.given[node.id]
        return node

    def mapping(self, node: ast.expr) -> dict[str, ast.expr]:
        """Return the entries of a dictionary by their names, nothing for what is none."""
        found = self.value(node)
        later = self.entries.get(node.id, {}) if isinstance(node, ast.Name) else {}
        if isinstance(found, ast.Dict):
            pairs = zip(found.keys, found.values, strict=True)
            return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)} | later
        if isinstance(found, ast.Call) and _called(found) == "dict":
            return {word.arg: word.value for word in found.keywords if word.arg} | later
        return later

    def needs(self, node: ast.expr) -> Needs:
        """Return the list that an expression makes."""
        self.steps += 1
        if self.steps > _STEPS_MAX:
            return Needs(unread=node.lineno)
        if isinstance(node, ast.Name):
            return self._named(node)
        if isinstance(node, ast.Subscript):
            return self._entry(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return Needs(lines=tuple((line, node.lineno) for line in node.value.splitlines() if line.strip()))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return _joined([self._item(item) for item in node.elts])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self.needs(node.left), self.needs(node.right)])
        if isinstance(node, ast.Call) and _called(node) in ("list", "sorted", "set", "tuple") and len(node.args) == 1:
            return self.needs(node.args[0])
        return self._from_files(node)

    def _item(self, node: ast.expr) -> Needs:
        if isinstance(node, ast.Starred):
            return self.needs(node.value)
        text = self._text(node)
        return Needs(unread=node.lineno) if text is None else Needs(lines=((text, node.lineno),))

    def _text(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return a text that is put together from parts that stand in the script."""
        found = self.value(node)
        inner: list[ast.expr]
        if depth > _DEPTH_MAX:
            return None
        if isinstance(found, ast.Constant):
            return found.value if isinstance(found.value, str) else None
        if isinstance(found, ast.JoinedStr):
            inner = found.values
        elif isinstance(found, ast.FormattedValue) and found.format_spec is None:
            inner = [found.value]
        elif isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add):
            inner = [found.left, found.right]
        else:
            return None
        parts = [part for item in inner if (part := self._text(item, depth + 1)) is not None]
        return "".join(parts) if len(parts) == len(inner) else None

    def _named(self, node: ast.Name) -> Needs:
        around = self.around.get(node.id)
        if around is not None:
            files = _files_in(around)
            return Needs(files=tuple(files)) if len(files) == 1 else Needs(unread=around.lineno)
        found = self.given.get(node.id)
        if found is None or (isinstance(found, ast.Name) and found.id == node.id):
            return Needs(unread=node.lineno)
        # Taken out while it is followed, so that a name that leads to itself ends.
        del self.given[node.id]
        needs = self.needs(found)
        self.given[node.id] = found
        changed = self.changed.get(node.id)
        return needs if changed is None else _joined([needs, Needs(unread=changed)])

    def _entry(self, node: ast.Subscript) -> Needs:
        """Return an entry of a dictionary, asked for by its name."""
        key = ast.dump(node)
        found = self.mapping(node.value).get(str(node.slice.value)) if isinstance(node.slice, ast.Constant) else None
        if found is None or key in self.followed:
            return Needs(unread=node.lineno)
        self.followed.add(key)
        needs = self.needs(found)
        self.followed.remove(key)
        return needs

    def _from_files(self, node: ast.expr) -> Needs:
        """Return the requirements file that an expression, or the function it calls, opens, where it is one."""
        files = _files_in(node)
        if not files:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and _called(inner) in self.functions:
                    files |= _files_in(self.functions[_called(inner)])
                elif isinstance(inner, ast.Name) and inner.id in self.given:
                    files |= _files_in(self.given[inner.id])
        return Needs(files=tuple(files)) if len(files) == 1 else Needs(unread=node.lineno)


def _files_in(node: ast.AST) -> dict[str, None]:
    """Return the names of text files that stand in a piece of code, in order; a docstring names none."""
    return {
        inner.value: None
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and _FILE.fullmatch(inner.value)
    }


def _joined(parts: list[Needs]) -> Needs:
    return Needs(
        lines=tuple(line for part in parts for line in part.lines),
        files=tuple(dict.fromkeys(name for part in parts for name in part.files)),
        unread=next((part.unread for part in parts if part.unread is not None), None),
    )


def read_setup_cfg(source: Source) -> Setup:
    """Read a ``setup.cfg``.

    Raises:
        UsageError: It is malformed.
    """
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(source.text.removeprefix("\ufeff"))
    except configparser.Error as error:
        raise UsageError(f"{source.file} is malformed", because=(str(error).splitlines()[0],)) from error

    def needs(section: str, key: str) -> Needs:
        return listed(parser.get(section, key))

    def listed(text: str) -> Needs:
        if text.strip().startswith("file:"):
            return Needs(files=tuple(part.strip() for part in text.strip().removeprefix("file:").split(",")))
        return Needs(lines=tuple((line.strip(), 0) for line in text.splitlines() if line.strip()))

    options, extras = "options", "options.extras_require"
    builds = parser.get(options, "setup_requires", fallback=None)
    if builds is not None and "\n" not in builds:
        builds = builds.replace(";", "\n")  # in one line it separates requirements, and begins no marker
    return Setup(
        needs=needs(options, "install_requires") if parser.has_option(options, "install_requires") else None,
        extras={name: needs(extras, name) for name in parser.options(extras)} if parser.has_section(extras) else {},
        python=parser.get(options, "python_requires", fallback=None),
        builds=listed(builds) if builds is not None else None,
    )
