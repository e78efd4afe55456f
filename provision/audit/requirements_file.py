"""Requirements and constraints files, in pip's own format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from posixpath import normpath

from provision.audit.model import Index, Requirement, Source, Span, Variable
from provision.audit.requirement import parse_requirement
from provision.audit.shell import Text, content_of
from provision.errors import UsageError, shown
from provision.records import NOTHING, record, replace

Reader = Callable[[str], Source | None]
"""Path relative to where the program runs → its text, ``None`` where there is no such file."""

# Compiled when they are first used: a Dockerfile often reads no such file.
_COMMENT = r"(?:^|(?<=\s))#.*$"
_OPTION = r"\s+--?[a-z]"
_HASH = r"--hash[=\s]\s*\S+"
_SHA256 = r"--hash[=\s]\s*sha256:([0-9A-Fa-f]{64})"
_VARIABLE = r"\$\{([A-Z0-9_]+)\}"
_DEPTH_MAX = 50
"""How many files may lead from one to the next."""
_VALUED = {
    "-i": "index",
    "--index-url": "index",
    "--pypi-url": "index",
    "--extra-index-url": "extra",
    "-f": "find-links",
    "--find-links": "find-links",
    "-r": "file",
    "--requirement": "file",
    "-c": "constraint",
    "--constraint": "constraint",
    "-e": "editable",
    "--editable": "editable",
    "--no-binary": "note",
    "--only-binary": "note",
    "--trusted-host": "note",
    "--use-feature": "note",
    "--use-deprecated": "note",
    "--index-strategy": "note",
}
_BARE = frozenset(("--no-index", "--require-hashes", "--pre", "--prefer-binary", "--all-releases"))


@record
class Left:
    """Something that a file says and its requirements do not.

    Attributes:
        kind: ``option`` (chooses among files, not versions), ``line option`` (of one requirement), ``unknown option``,
            ``malformed``, ``variable``, ``path``, ``editable``, and of files that are named: ``missing``, ``cycle``,
            ``depth`` and ``address`` (it would have to be fetched).
        text: What is written, without its comment.
        span: Where.
        chain: The files that lead to it, for a cycle.
    """

    kind: str
    text: str
    span: Span
    chain: tuple[str, ...] = ()

    @property
    def is_gap(self) -> bool:
        """Whether what the file asks for is not known whole without it."""
        return self.kind not in ("option", "line option")


class Listing:
    """What a file asks for.

    Attributes:
        requirements: In order, those of files it names in their place.
        constraints: Of the files it names as constraints.
        indexes: In order.
        has_no_index: It says ``--no-index``.
        left: What is not a requirement, constraint or index, in order.
        sources: Names of all files that were read.
    """

    def __init__(self) -> None:
        self.requirements: list[Requirement] = []
        self.constraints: list[Requirement] = []
        self.indexes: list[Index] = []
        self.has_no_index = False
        self.left: list[Left] = []
        self.sources: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Whether everything was understood and every file was there."""
        return not any(item.is_gap for item in self.left)

    @property
    def is_index_known(self) -> bool:
        """Whether nothing that is left could name an index: a project in a folder brings packages alone."""
        return not any(item.is_gap and item.kind not in ("path", "editable") for item in self.left)

    def take(self, other: Listing, *, is_constraint: bool) -> None:
        """Add what a file that this one names asks for."""
        target = self.constraints if is_constraint else self.requirements
        target += other.requirements
        self.constraints += other.constraints
        self.indexes += other.indexes
        self.has_no_index = self.has_no_index or other.has_no_index
        self.left += other.left
        self.sources += other.sources


def read_listing(
    content: Text,
    source: Source,
    read: Reader,
    *,
    variables: Mapping[str, Variable] = NOTHING,
    open_files: tuple[str, ...] = (),
    is_strict: bool = True,
) -> Listing:
    """Read a requirements or constraints file.

    Args:
        content: Its text; a part of another file where a Dockerfile holds it.
        source: The file that its places refer to.
        read: Finds the files it names, relative to its own folder.
        variables: Variables in force, for ``${NAME}``.
        open_files: Files that lead here.
        is_strict: A line that is not a requirement and no option of pip is an error; else it is left.

    Raises:
        UsageError: There is such a line.
    """
    listing = Listing()
    if source.file not in open_files:
        listing.sources.append(source.file)
    for start, end in _lines(content.text):
        line = _joined(content.cut(start, end))
        bare = line.text.strip()
        if not bare:
            continue
        if bare.startswith("-"):
            _read_option(line, listing, source, read, variables, open_files, is_strict=is_strict)
            continue
        _read_requirement(line, listing, source, variables, is_strict=is_strict)
    return listing


def _lines(text: str) -> list[tuple[int, int]]:
    """Return where the logical lines begin and end: a line that ends with a backslash goes on."""
    found: list[tuple[int, int]] = []
    position = 1 if text.startswith("\ufeff") else 0
    start: int | None = None
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end].rstrip("\r")
        begin = position if start is None else start
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            start = begin
        else:
            found.append((begin, end))
            start = None
        position = end + 1
    if start is not None:
        found.append((start, len(text)))
    return found


def _joined(line: Text) -> Text:
    """Return a logical line without its line ends and comments."""
    text, at = "", []
    position = 0
    while position <= len(line.text):
        end = line.text.find("\n", position)
        end = len(line.text) if end < 0 else end
        piece = line.cut(position, end)
        content = piece.text.rstrip("\r")
        if (match := re.search(_COMMENT, content, re.MULTILINE)) is not None:
            content = content[: match.start()]
        elif content.endswith("\\"):
            content = content[:-1]
        text += content
        at += piece.at[: len(content)]
        position = end + 1
    return Text(text, at)


def _resolved(source: Text, variables: Mapping[str, Variable]) -> Text | None:
    """Return a text with ``${NAME}`` replaced; ``None`` where one is not known."""
    if "${" not in source.text:
        return source
    text, at, position = "", [], 0
    for match in re.finditer(_VARIABLE, source.text):
        variable = variables.get(match[1])
        if variable is None or variable.value is None:
            return None
        text += source.text[position : match.start()] + variable.value
        at += source.at[position : match.start()] + [-1] * len(variable.value)
        position = match.end()
    return Text(text + source.text[position:], at + source.at[position:])


def _leave(listing: Listing, kind: str, line: Text, source: Source, chain: tuple[str, ...] = ()) -> None:
    span = line.span(source.file, 0, len(line.text))
    listing.left.append(Left(kind=kind, text=line.text.strip(), span=span, chain=chain))


def _read_requirement(
    line: Text, listing: Listing, source: Source, variables: Mapping[str, Variable], *, is_strict: bool
) -> None:
    option = re.search(_OPTION, line.text)
    options = line.text[option.start() :] if option else ""
    written = line.cut(0, option.start()) if option else line
    resolved = _resolved(written, variables)
    if resolved is None:
        _leave(listing, "variable", line, source)
        return
    if re.sub(_HASH, "", options).strip():
        _leave(listing, "line option", line, source)
    found = parse_requirement(resolved, source.file, is_hashed="--hash" in options)
    if found is not None:
        hashes = tuple(text.lower() for text in re.findall(_SHA256, options))
        listing.requirements.append(replace(found, hashes=hashes) if hashes else found)
        return
    bare = resolved.text.strip()
    if _is_path(bare):
        _leave(listing, "path", line, source)
        return
    if is_strict:
        why = ("a local version such as `+cu118` can only be asked for by `==`",) if re.search(_LOCAL, bare) else ()
        raise _fault(line, source, f"`{shown(bare, 60)}` is not a requirement", why)
    _leave(listing, "malformed", line, source)


def _is_path(text: str) -> bool:
    """Tell whether a requirement names a project or archive by its place."""
    plain = text.partition("[")[0].partition(";")[0].strip()
    return (
        "/" in plain
        or plain.startswith((".", "~"))
        or "\\" in plain
        or plain.endswith((".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"))
    )


def _read_option(
    line: Text,
    listing: Listing,
    source: Source,
    read: Reader,
    variables: Mapping[str, Variable],
    open_files: tuple[str, ...],
    *,
    is_strict: bool,
) -> None:
    start = len(line.text) - len(line.text.lstrip())
    text = line.text.rstrip()
    end = start
    while end < len(text) and not text[end].isspace() and text[end] != "=":
        end += 1
    flag = text[start:end]
    if flag not in _VALUED and flag not in _BARE and not flag.startswith("--") and flag[:2] in _VALUED:
        # Short options take their value without a blank too.
        flag, end = flag[:2], start + 2
    while end < len(text) and (text[end].isspace() or text[end] == "="):
        end += 1
    if flag in _BARE:
        listing.has_no_index = listing.has_no_index or flag == "--no-index"
        if flag != "--require-hashes":
            _leave(listing, "option", line, source)
        return
    kind = _VALUED.get(flag)
    if kind is None:
        if not re.fullmatch(r"--[a-z][a-z-]+", flag) and is_strict:
            raise _fault(line, source, f"`{shown(flag, 60)}` is not an option of a requirements file")
        # The audit takes an option of a newer pip for a gap, and so does whoever asks for what is left.
        _leave(listing, "unknown option", line, source)
        return
    written = line.cut(end, len(text))
    value = _resolved(written, variables)
    if not written.text:
        if is_strict:
            raise _fault(line, source, f"{flag} lacks its value")
        _leave(listing, "malformed", line, source)
        return
    span = written.span(source.file, 0, len(written.text))
    if kind in ("index", "extra", "find-links"):
        url = None if value is None else value.text.strip("'\"")
        listing.indexes.append(Index(kind=kind, url=url, origin="file", span=span))
    elif kind == "note":
        _leave(listing, "option", line, source)
    elif kind == "editable":
        found = parse_requirement(value, source.file) if value is not None else None
        if found is not None and found.url:
            listing.requirements.append(found)
        else:
            _leave(listing, "editable", line, source)
    elif kind in ("file", "constraint"):
        is_constraint = kind == "constraint"
        _read_named(
            line, value, listing, source, read, variables, open_files, is_constraint=is_constraint, is_strict=is_strict
        )


def _read_named(
    line: Text,
    value: Text | None,
    listing: Listing,
    source: Source,
    read: Reader,
    variables: Mapping[str, Variable],
    open_files: tuple[str, ...],
    *,
    is_constraint: bool,
    is_strict: bool,
) -> None:
    path = None if value is None else value.text.strip("'\"")
    if path is None or "://" in path:
        _leave(listing, "variable" if path is None else "address", line, source)
        return
    folder = source.file.rpartition("/")[0]
    name = normpath(path if path.startswith("/") or not folder else f"{folder}/{path}")
    chain = (*open_files, source.file)
    if name in map(normpath, chain):
        _leave(listing, "cycle", line, source, (*chain, name))
        return
    if len(chain) > _DEPTH_MAX:
        _leave(listing, "depth", line, source, (*chain, name))
        return
    found = read(name)
    if found is None:
        _leave(listing, "missing", line, source)
        return
    inner = read_listing(content_of(found), found, read, variables=variables, open_files=chain, is_strict=is_strict)
    listing.take(inner, is_constraint=is_constraint)


_LOCAL = r"[<>~]=?\s*[0-9][^,;]*\+"


def _fault(line: Text, source: Source, what: str, why: tuple[str, ...] = ()) -> UsageError:
    place = source.position(line.span(source.file, 0, len(line.text)))
    return UsageError(
        f"{place.file}:{place.line}: {what}",
        because=why,
        hints=("write one requirement such as `name==version`, or one option of pip, a line",),
    )
