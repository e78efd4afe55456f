"""``provision image --matrix FILE``: many stacks out of one file, each solved as if its keys were flags.

The file is TOML: ``[defaults]`` for all, a ``[[stack]]`` for each, ``[bake]`` for the builders. A key that takes one
value takes a list as well, and stands for one stack each; several such lists make every combination.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from provision.cli.image.lock import with_options
from provision.cli.image.logins import refuse_ssh, with_logins
from provision.cli.output import Output
from provision.cli.parser import did_you_mean
from provision.cli.request import read_request, solve_request
from provision.errors import ActionFailedError, IncompatibleError, ProvisionError, UnknownError, UsageError, shown
from provision.files import read_text
from provision.generate.bake import BakeOptions, BakeStack, render_bake
from provision.generate.formats import render_format
from provision.generate.image import ImageOptions, check_value
from provision.generate.write import Artifact
from provision.index.account import Accounts
from provision.matrix.load import Matrix
from provision.project.inputs import Inputs
from provision.project.read import read_inputs
from provision.records import NOTHING, record
from provision.resolve.request import Request, parse_request
from provision.resolve.stack import Stack

if TYPE_CHECKING:
    from provision.build.ways import Trials

_BYTES_MAX = 1024 * 1024
_STACKS_MAX = 500
_COMBINATIONS_MAX = 10 * _STACKS_MAX
"""Of one [[stack]], before `exclude` takes some away."""
_AXES = (
    *("torch", "tensorflow", "jax", "cuda", "python", "os", "platform", "driver", "container-toolkit", "flavor"),
    *("base", "apt-snapshot"),
)
_LISTS = ("gpu", "with", "apt")
_INPUTS = ("requirements", "project", "project-extra", "project-group")
_IMAGE_TEXTS = ("index-url", "registry-mirror", "syntax")
_KEYS = (
    *_AXES, *_LISTS, *_INPUTS, "require-secure", "exclude-newer",
    *_IMAGE_TEXTS, "ca-cert", "non-root-uid", "label",
    "tag", "group",
)  # fmt: skip
_STACK_KEYS = (*_KEYS, "name", "exclude")
_BAKE_KEYS = ("registry", "cache", "compression")
_TABLES = ("defaults", "bake", "stack")


@record
class Entry:
    """One stack of the file, its axes resolved to one value each.

    Attributes:
        where: File, table and, with axes, their values; for messages.
        name: As asked for; the stack's own without.
        request: Flag → value.
        files: Requirements files.
        project: Folder of a project.
        project_parts: Its optional dependencies, and its dependency groups, that are taken too.
        day: The day after which packages do not count, as it was written.
        image: Keyword → value of ``ImageOptions``.
        has_axes: It is one combination of several.
    """

    where: str
    name: str | None
    request: Mapping[str, Any]
    files: tuple[Path, ...]
    project: Path | None
    project_parts: tuple[tuple[str, ...], tuple[str, ...]]
    day: str | None
    image: Mapping[str, Any]
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    has_axes: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The flags of ``provision image`` that name its files."""
        places = [*(("-r", str(path)) for path in self.files)]
        places += [("--project", str(self.project))] if self.project is not None else []
        for flag, names in zip(("--extra", "--group"), self.project_parts, strict=True):
            places += [(flag, name) for name in names]
        return tuple(word for pair in places for word in pair)


@record
class Baked:
    """Everything that the file asks for: the stacks by name, and all files of the folder."""

    stacks: tuple[BakeStack, ...]
    artifacts: tuple[Artifact, ...]


class Locker(Protocol):
    """Who resolves what the lines of an entry need."""

    def trials(self, entry: Entry, request: Request, options: ImageOptions, inputs: Inputs | None) -> Trials | None:
        """Return who tries ways out of a refusal with an index too."""

    def lock(
        self, entry: Entry, stack: Stack, options: ImageOptions, inputs: Inputs | None, trials: Trials | None
    ) -> Stack:
        """Return the stack with what its lines need."""


def read_entries(path: Path) -> tuple[tuple[Entry, ...], BakeOptions]:
    """Read the file of a matrix.

    Args:
        path: The file; ``-`` is the standard input. Paths in it are relative to its folder.

    Returns:
        The stacks in the order of the file, and what it says about building.

    Raises:
        UsageError: It is not TOML, or a key or value is not known; the message names file, stack and key.
    """
    try:
        document = tomllib.loads(read_text(path, "--matrix", bytes_max=_BYTES_MAX))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"--matrix: {path} is not TOML",
            because=(str(error),),
            hints=('a stack is the line `[[stack]]` and below it its keys, as in `torch = "2.1"`',),
        ) from error
    _check_keys(document, _TABLES, f"{path}")
    defaults = _table(document.get("defaults", {}), f"{path}: [defaults]")
    _check_keys(defaults, _KEYS, f"{path}: [defaults]")
    rows = document.get("stack", [])
    if not isinstance(rows, list) or not rows:
        raise UsageError(
            f"{path} has no [[stack]]", hints=('add at least one, as in `[[stack]]` and below it `torch = "2.1"`',)
        )
    bake = _bake_options(_table(document.get("bake", {}), f"{path}: [bake]"), f"{path}: [bake]")
    entries: list[Entry] = []
    for number, row in enumerate(rows, 1):
        where = f"{path}: [[stack]] {number}"
        own = _table(row, where)
        if isinstance(own.get("name"), str):
            where += f" (`{shown(own['name'])}`)"
        _check_keys(own, _STACK_KEYS, where)
        entries += _expand({**defaults, **own}, where, path.parent)
        if len(entries) > _STACKS_MAX:
            raise _too_many(where, f"more than {_STACKS_MAX} stacks")
    return tuple(entries), bake


def solve_entries(
    entries: tuple[Entry, ...],
    bake: BakeOptions,
    matrix: Matrix,
    locker: Locker,
    output: Output,
    *,
    overrides: Mapping[str, Any] = NOTHING,
    has_sbom: bool = False,
) -> Baked:
    """Solve and render every stack of a file.

    Args:
        entries: The stacks.
        bake: How they are built.
        matrix: The facts.
        locker: Resolves what lines need.
        output: Where it is told what was read and left out.
        overrides: Keywords of ``ImageOptions`` that count for all of them, whatever the file says.
        has_sbom: Add a bill of materials to each context.

    Raises:
        IncompatibleError: The facts or an index exclude a stack; every refused one is named.
        UnknownError: The facts do not know one.
        ActionFailedError: What a package of one needs cannot be told.
        MissingDependencyError: The index does not answer.
        UsageError: A value makes no sense, or two stacks have one name.
    """
    stacks: dict[str, BakeStack] = {}
    origins: dict[str, str] = {}
    refused: list[tuple[Entry, ProvisionError]] = []
    read = _Reader(matrix, output)
    for entry in entries:
        options = _of(entry.where, lambda entry=entry: ImageOptions(**{**entry.image, **overrides}))
        try:
            # Ways out are printed for the first that is refused.
            stack = _solve(entry, matrix, options, read, locker, has_ways=not refused)
            artifacts = _of(
                entry.where,
                lambda stack=stack, options=options, day=entry.day: with_options(
                    render_format("dockerfile", stack, options, has_sbom=has_sbom),
                    options,
                    has_sbom=has_sbom,
                    exclude_newer=day,
                ),
            )
        except (IncompatibleError, UnknownError, ActionFailedError) as error:
            refused.append((entry, error))
            continue
        name = entry.name or stack.name.lower()
        if name in stacks:
            raise UsageError(
                f"{entry.where}: a second stack called `{name}`",
                because=(f"the first is {origins[name]}",),
                hints=('give one of them another name: `name = "…"`', "or leave out what makes two equal stacks"),
            )
        origins[name] = entry.where
        stacks[name] = BakeStack(name=name, stack=stack, artifacts=artifacts, tags=entry.tags, groups=entry.groups)
    if refused:
        raise _refuse_all(refused, len(entries))
    made = tuple(stacks.values())
    return Baked(stacks=made, artifacts=render_bake(made, bake))


class _Reader:
    """Reads the files that stacks name, each set of them once, and tells what was read and left out."""

    def __init__(self, matrix: Matrix, output: Output) -> None:
        self._matrix = matrix
        self._output = output
        self._known: dict[Any, Inputs] = {}
        self._told: set[str] = set()

    def __call__(self, entry: Entry) -> Inputs | None:
        if not entry.files and entry.project is None and not any(entry.project_parts):
            return None
        platform = parse_request({"platform": entry.request.get("platform")}).platform
        key = (entry.files, entry.project, entry.project_parts, platform)
        if key not in self._known:
            accounts = Accounts()
            self._known[key] = read_inputs(
                entry.files,
                entry.project,
                *entry.project_parts,
                matrix=self._matrix,
                platform=platform,
                accounts=accounts,
            )
            if accounts.is_told:
                raise UsageError(
                    "an address contains credentials, and a bake file has no build secret for them",
                    hints=("lock that image alone, with `provision image -r FILE`",),
                )
            told = [(self._output.note, text) for text in self._known[key].read]
            told += [(self._output.warn, text) for text in self._known[key].warnings]
            for tell, text in told:
                if text not in self._told:
                    tell(text)
                self._told.add(text)
        return self._known[key]


def _solve(
    entry: Entry,
    matrix: Matrix,
    options: ImageOptions,
    read: Callable[[Entry], Inputs | None],
    locker: Locker,
    *,
    has_ways: bool,
) -> Stack:
    inputs = _of(entry.where, lambda: read(entry))
    if inputs is not None:
        _refuse_local(entry, inputs)
    request = _of(entry.where, lambda: read_request(entry.request, inputs, can_be_cpu=True))
    trials = _of(entry.where, lambda: locker.trials(entry, request, options, inputs)) if has_ways else None
    stack: Stack = _of(
        entry.where,
        lambda: solve_request(
            request, matrix, "image", entry.words, values=entry.request, inputs=inputs, trials=trials
        ),
    )
    if stack.image is None:
        raise UnknownError(f"{stack.name} is a sound stack, but the facts list no image to build it on")
    if stack.python is not None and not stack.image.tools:
        return stack  # whoever renders it says why there can be no image
    locked: Stack = _of(entry.where, lambda: locker.lock(entry, stack, options, inputs, trials))
    _of(entry.where, lambda: refuse_ssh("matrix", locked))
    _of(entry.where, lambda: with_logins(locked, options, Accounts(), form="matrix"))
    return locked


def _refuse_local(entry: Entry, inputs: Inputs) -> None:
    """Refuse files of this machine, which no context of a file of many stacks is given.

    Raises:
        UsageError: A line names one, or a folder of them.
    """
    if places := [*inputs.files.values(), *inputs.folders]:
        raise UsageError(
            f"{entry.where}: {' and '.join(map(str, places))} goes into the context of one image, and not into many",
            hints=(
                "write that image alone, with `provision image -r FILE`",
                "or name a release, or the https address of the wheel",
            ),
        )


def _too_many(where: str, what: str) -> UsageError:
    return UsageError(
        f"{where}: {what}",
        because=("every combination of the lists is a stack",),
        hints=("shorten a list, or split the file",),
    )


def _of(where: str, make: Any) -> Any:
    """Make something; where that is refused as malformed, say which stack of which file it was."""
    try:
        return make()
    except UsageError as error:
        raise error.at(where) from error


def _refuse_all(refused: list[tuple[Entry, ProvisionError]], total: int) -> ProvisionError:
    kinds = (IncompatibleError, ActionFailedError, UnknownError)
    kind = next(kind for kind in kinds if any(isinstance(error, kind) for _, error in refused))
    first, error = refused[0]
    hints = [*error.hints]
    if any(entry.has_axes for entry, _ in refused):
        hints.append("leave a combination out: `exclude = [{ …its keys… }]` in its [[stack]]")
    details = {"refused": [{"where": entry.where, **error.to_json()} for entry, error in refused]}
    if len(refused) == 1:
        return kind(f"{first.where}: {error.message}", because=error.because, hints=hints, details=details)
    because = [error.at(entry.where).message for entry, error in refused]
    return kind(f"{len(refused)} of {total} stacks cannot be resolved", because=because, hints=hints, details=details)


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(
            f"{where} is not a table", hints=("a table is its name in brackets on a line, and its keys below it",)
        )
    return value


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: `{shown(key)}` is not a key",
                hints=(*did_you_mean(key, known), f"known are: {', '.join(sorted(known))}"),
            )


def _bake_options(table: dict[str, Any], where: str) -> BakeOptions:
    _check_keys(table, _BAKE_KEYS, where)
    values = {key: _text(value, where, key) for key, value in table.items()}
    options: BakeOptions = _of(where, lambda: BakeOptions(**values))
    return options


def _expand(table: dict[str, Any], where: str, folder: Path) -> Iterator[Entry]:
    axes = {key: _axis(table[key], where, key) for key in _AXES if key in table}
    varied = [key for key, values in axes.items() if len(values) > 1]
    # Counted before they are made: a few long lists make more than any machine holds.
    count = math.prod(len(values) for values in axes.values())
    limit = _COMBINATIONS_MAX if "exclude" in table else _STACKS_MAX
    if count > limit:
        raise _too_many(where, f"{count} combinations, which is more than {limit}")
    excluded = _exclusions(table.get("exclude", []), axes, where)
    if "name" in table and varied:
        raise UsageError(
            f"{where}, key `name`: one name for several stacks",
            because=(f"{' and '.join(f'`{key}`' for key in varied)} take several values",),
            hints=("leave `name` out: each stack is then named after what is in it",),
        )
    name = _text(table["name"], where, "name") if "name" in table else None
    if name is not None:
        _of(f"{where}, key `name`", lambda: check_value("image name", name, "name"))
    fixed = {key: table[key] for key in (*_LISTS, "require-secure") if key in table}
    for key, value in fixed.items():
        _check_request(where, key, value)
    image = _image_values(table, where, folder)
    files = tuple(folder / text for text in _texts(table.get("requirements", []), where, "requirements"))
    project = folder / _text(table["project"], where, "project") if "project" in table else None
    parts = tuple(_texts(table.get(key, []), where, key) for key in ("project-extra", "project-group"))
    day = _text(table["exclude-newer"], where, "exclude-newer") if "exclude-newer" in table else None
    tags = _texts(table.get("tag", []), where, "tag")
    if tags and varied:
        raise UsageError(
            f"{where}, key `tag`: one tag for several stacks", hints=("leave `tag` out, and set `registry` in [bake]",)
        )
    for tag in tags:
        _of(f"{where}, key `tag`", lambda tag=tag: check_value("image reference", tag, "tag"))
    groups = _texts(table.get("group", []), where, "group")
    for group in groups:
        _of(f"{where}, key `group`", lambda group=group: check_value("group", group, "group"))
    kept = False
    for values in itertools.product(*axes.values()):
        choice = dict(zip(axes, values, strict=True))
        if any(all(choice.get(key) == value for key, value in row.items()) for row in excluded):
            continue
        kept = True
        named = ", ".join(f"{key} {choice[key]}" for key in varied)
        yield Entry(
            where=f"{where}{f', {named}' if named else ''}",
            name=name,
            request={**choice, **fixed},
            files=files,
            project=project,
            project_parts=(parts[0], parts[1]),
            day=day,
            image=image,
            tags=tags,
            groups=groups,
            has_axes=bool(varied),
        )
    if not kept:
        raise UsageError(f"{where}, key `exclude`: nothing is left", hints=("shorten `exclude`, or drop the stack",))


def _axis(value: Any, where: str, key: str) -> list[str]:
    values: list[Any] = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError(f"{where}, key `{key}`: the list is empty", hints=(f"leave `{key}` out to let it be chosen",))
    for item in values:
        _check_request(where, key, item)
    if len(set(values)) != len(values):
        raise UsageError(f"{where}, key `{key}`: a value stands there twice", hints=("keep one of the two",))
    return values


def _check_request(where: str, key: str, value: object) -> None:
    if value == "host" and key == "driver":
        return
    _of(f"{where}, key `{key}`", lambda: parse_request({key: value}))


def _exclusions(value: object, axes: dict[str, list[str]], where: str) -> list[dict[str, Any]]:
    where = f"{where}, key `exclude`"
    if not isinstance(value, list) or not all(isinstance(row, dict) and row for row in value):
        raise UsageError(f"{where}: no list of tables", hints=('write it as in `exclude = [{ torch = "2.1" }]`',))
    for row in value:
        for key, item in row.items():
            if key not in axes:
                raise UsageError(f"{where}: `{shown(key)}` is not a key of this stack that takes one value")
            if item not in axes[key]:
                raise UsageError(
                    f"{where}: `{key}` has no value {shown(repr(item))}", hints=(f"it has: {', '.join(axes[key])}",)
                )
    return value


def _image_values(table: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = {
        key.replace("-", "_"): _text(table[key], where, key) for key in _IMAGE_TEXTS if key in table
    }
    if "non-root-uid" in table:
        uid = table["non-root-uid"]
        if not isinstance(uid, int) or isinstance(uid, bool):
            raise UsageError(f"{where}, key `non-root-uid`: {shown(repr(uid))} is not a number")
        values["non_root_uid"] = uid
    if "label" in table:
        labels = _table(table["label"], f"{where}, key `label`")
        values["labels"] = {key: _text(value, where, f"label.{key}") for key, value in labels.items()}
    if "ca-cert" in table:
        path = folder / _text(table["ca-cert"], where, "ca-cert")
        values["ca_cert"] = _of(where, lambda: read_text(path, "key `ca-cert`", bytes_max=_BYTES_MAX))
    return values


def _texts(value: object, where: str, key: str) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(_text(item, where, key) for item in items)


def _text(value: object, where: str, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}, key `{key}`: {shown(repr(value))} is not text")
    return value
