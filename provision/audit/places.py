"""YAML and TOML with the place of every value: what a finding in such a file points at."""

from __future__ import annotations

import re
from typing import Any

from provision.audit.model import Source, Span
from provision.audit.shell import Text
from provision.errors import MissingDependencyError, UsageError, install_command

Path = tuple[str | int, ...]

_HEADER = re.compile(r"[ \t]*(\[\[?)([^\n]*?)(\]\]?)[ \t]*(?:#[^\n]*)?(?=\r?\n|\Z)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_BLANKS = frozenset(" \t\r\n")
_BROKEN_LINE = re.compile(r"\\\r?\n[ \t]*")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0abtnvfreN_LP]))")
_ESCAPED = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
_NODES_MAX = 200_000


class Placed:
    """A document as plain data, and where its values stand.

    Attributes:
        data: What the parser of the format gave.
        source: The file.
    """

    def __init__(self, data: Any, source: Source, places: dict[Path, tuple[int, int]]) -> None:
        self.data = data
        self.source = source
        self._places = places

    def span(self, *path: str | int) -> Span:
        """Return where a value stands, or the nearest thing above it."""
        for size in range(len(path), -1, -1):
            if path[:size] in self._places:
                return self.source.span(*self._places[path[:size]])
        return self.source.span(0, 0)

    def text(self, *path: str | int) -> Text:
        """Return the characters of a text value with their offsets; quotes and escapes are taken off."""
        value = self.data
        for part in path:
            value = value[part]
        value = str(value)
        span = self.span(*path)
        raw = self.source.cut(span)
        if path in self._places and (at := raw.find(value)) >= 0:
            return Text(value, list(range(span.start + at, span.start + at + len(value))))
        if path not in self._places:
            return Text(value, [-1] * len(value))
        if raw.startswith("|"):
            return Text(value, _block_places(value, raw, span.start))
        return Text(value, _folded_places(value, raw, span.start))


def _block_places(value: str, raw: str, start: int) -> list[int]:
    """Return the offsets of the characters of a YAML block, whose indentation is not part of its value.

    Args:
        value: What the parser gave.
        raw: The block as written, from its ``|``.
        start: Offset of the block.
    """
    at: list[int] = []
    position = raw.find("\n") + 1
    for line in value.splitlines(keepends=True):
        end = raw.find("\n", position)
        end = len(raw) if end < 0 else end
        bare = line.rstrip("\r\n")
        column = raw[position:end].rstrip("\r").rfind(bare) if bare else 0
        if column < 0:
            return [-1] * len(value)
        at += range(start + position + column, start + position + column + len(bare))
        at += [start + end] * (len(line) - len(bare))
        position = end + 1
    # YAML knows more ends of lines than a newline; where one of those moved the rest, no place is known.
    is_sound = all(char.isspace() or raw[offset - start] == char for char, offset in zip(value, at, strict=True))
    return at if is_sound else [-1] * len(value)


def _folded_places(value: str, raw: str, start: int) -> list[int]:
    """Return the offsets of the characters of a YAML text that is quoted, escaped or folded over several lines.

    Every character that is no blank is looked for in the order of the value; blanks that folding put there, or took
    away, count as the place they were folded at.

    Args:
        value: What the parser gave.
        raw: The text as written, with its quotes or its ``>``, and a tag or an anchor before it.
        start: Offset of the text.
    """
    unknown = [-1] * len(value)
    lead = _PROPERTIES.match(raw)
    position = lead.end() if lead else 0
    quote = raw[position : position + 1]
    if quote in (">", "|"):
        position = raw.find("\n", position)
    elif quote in ("'", '"'):
        position += 1
    else:
        quote = ""
    at: list[int] = []
    for char in value:
        while quote == '"' and (broken := _BROKEN_LINE.match(raw, position)):
            position = broken.end()
        while char not in _BLANKS and raw[position : position + 1] in _BLANKS:
            position += 1
        written, size = _character(raw, position, quote)
        if written == char:
            at.append(start + position)
            position += size
        elif char in _BLANKS and raw[position : position + 1] in _BLANKS:
            at.append(start + position)
        else:
            return unknown
    return at


def _character(raw: str, position: int, quote: str) -> tuple[str, int]:
    """Return the character that stands at a place of a YAML text, and with how many it is written."""
    if quote == '"' and raw.startswith("\\", position):
        match = _ESCAPE.match(raw, position)
        if match is None:
            return raw[position + 1 : position + 2], 2
        code = match[1] or match[2] or match[3]
        return chr(int(code, 16)) if code else _ESCAPED[match[4]], len(match[0])
    if quote == "'" and raw.startswith("''", position):
        return "'", 2
    return raw[position : position + 1], 1


def read_yaml(source: Source) -> Placed:
    """Read a YAML document.

    Raises:
        MissingDependencyError: PyYAML is not installed.
        UsageError: It is not YAML, or several documents.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(
            f"{source.file} is YAML, and PyYAML is not installed",
            hints=(install_command(),),
        ) from error
    loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # The parser in C counts bytes where the other counts characters.
    if not source.text.isascii():
        loader_type = yaml.SafeLoader
    places: dict[Path, tuple[int, int]] = {}
    try:
        loader = loader_type(source.text)
        try:
            node = loader.get_single_node()
            data = _read_node(yaml, loader, node, (), places, [0], ()) if node is not None else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _yaml_fault(source, error) from error
    return Placed(data, source, places)


def _read_node(
    yaml: Any,
    loader: Any,
    node: Any,
    path: Path,
    places: dict[Path, tuple[int, int]],
    count: list[int],
    above: tuple[Any, ...],
) -> Any:
    """Return a node as plain data; an alias is followed, but not into itself."""
    count[0] += 1
    if count[0] > _NODES_MAX or any(one is node for one in above):
        raise ValueError("it refers to itself, or is larger than such a file can be")
    places.setdefault(path, (node.start_mark.index, node.end_mark.index))
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            value = _read_node(yaml, loader, value_node, (*path, key), places, count, (*above, node))
            if key == "<<":
                for merged in value if isinstance(value, list) else [value]:
                    if isinstance(merged, dict):
                        found = {**merged, **found}
            else:
                found[key] = value
        return found
    if isinstance(node, yaml.SequenceNode):
        return [
            _read_node(yaml, loader, item, (*path, number), places, count, (*above, node))
            for number, item in enumerate(node.value)
        ]
    if node.tag == "tag:yaml.org,2002:null":
        return None
    if node.tag == "tag:yaml.org,2002:bool":
        return node.value.lower() in ("true", "yes", "on")
    # Numbers stay as they are written: 3.10 is a version and not 3.1.
    return node.value


def _yaml_fault(source: Source, error: Exception) -> UsageError:
    mark = getattr(error, "problem_mark", None)
    place = f"{source.file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source.file
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return UsageError(f"{place}: it is not YAML that can be read", because=(str(problem),))


def read_toml(source: Source) -> Placed:
    """Read a TOML document.

    Raises:
        UsageError: It is not TOML.
    """
    import tomllib

    text = source.text.removeprefix("\ufeff")
    try:
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = f"{source.file}:{match[1]}:{match[2]}: it" if match else source.file
        because = str(error).partition(" (at ")[0]
        raise UsageError(f"{place} is not TOML", because=(because,)) from error
    return Placed(data, source, _Places(source.text).find())


class _Places:
    """Finds the values of a TOML document that is known to be sound."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 1 if text.startswith("\ufeff") else 0
        self.places: dict[Path, tuple[int, int]] = {}
        self.counts: dict[Path, int] = {}

    def find(self) -> dict[Path, tuple[int, int]]:
        table: Path = ()
        try:
            while self.pos < len(self.text):
                self._skip(newlines=True)
                if self.pos >= len(self.text):
                    break
                if self.text[self.pos] == "[":
                    table = self._header()
                else:
                    start = self.pos
                    key = self._key()
                    self._expect("=")
                    self.places.setdefault((*table, *key), (start, start))
                    self._value((*table, *key))
        except (IndexError, ValueError):
            # A place that is not found is less precise; the data is the parser's own.
            pass
        return self.places

    def _skip(self, *, newlines: bool) -> None:
        blanks = " \t\r\n" if newlines else " \t"
        while self.pos < len(self.text):
            if self.text[self.pos] in blanks:
                self.pos += 1
            elif self.text[self.pos] == "#":
                end = self.text.find("\n", self.pos)
                self.pos = len(self.text) if end < 0 else end
            else:
                return

    def _expect(self, char: str) -> None:
        self._skip(newlines=False)
        if self.text[self.pos] != char:
            raise ValueError
        self.pos += 1

    def _header(self) -> Path:
        start = self.pos
        is_array = self.text.startswith("[[", self.pos)
        self.pos += 2 if is_array else 1
        key = self._key()
        self._skip(newlines=False)
        self.pos += 2 if is_array else 1
        path: Path = ()
        for number, part in enumerate(key):
            path = (*path, part)
            if is_array and number == len(key) - 1:
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:
                path = (*path, self.counts[path])
        self.places[path] = (start, self.pos)
        return path

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip(newlines=False)
            char = self.text[self.pos]
            if char in "\"'":
                start, end = self._string()
                parts.append(self.text[start + 1 : end - 1])
            else:
                match = _BARE.match(self.text, self.pos)
                if match is None:
                    raise ValueError
                parts.append(match[0])
                self.pos = match.end()
            self._skip(newlines=False)
            if self.text[self.pos] != ".":
                return tuple(parts)
            self.pos += 1

    def _string(self) -> tuple[int, int]:
        start = self.pos
        quote = self.text[start]
        triple = quote * 3
        if self.text.startswith(triple, start):
            position = start + 3
            while not self.text.startswith(triple, position):
                position += 2 if quote == '"' and self.text[position] == "\\" else 1
            position += 3
            while self.text.startswith(quote, position):
                position += 1
        else:
            position = start + 1
            while self.text[position] != quote:
                position += 2 if quote == '"' and self.text[position] == "\\" else 1
            position += 1
        self.pos = position
        return start, position

    def _value(self, path: Path) -> None:
        self._skip(newlines=False)
        start = self.pos
        char = self.text[start]
        if char in "\"'":
            self._string()
        elif char == "[":
            self.pos += 1
            number = 0
            while True:
                self._skip(newlines=True)
                if self.text[self.pos] == "]":
                    break
                self._value((*path, number))
                number += 1
                self._skip(newlines=True)
                if self.text[self.pos] == ",":
                    self.pos += 1
            self.pos += 1
        elif char == "{":
            self.pos += 1
            while True:
                self._skip(newlines=True)
                if self.text[self.pos] == "}":
                    break
                key = self._key()
                self._expect("=")
                self._value((*path, *key))
                self._skip(newlines=True)
                if self.text[self.pos] == ",":
                    self.pos += 1
            self.pos += 1
        else:
            while self.pos < len(self.text) and self.text[self.pos] not in ",]}#\r\n":
                self.pos += 1
        self.places[path] = (start, self.pos)
