"""Lock what the user's lines and the extras need, where an index may be asked."""

from __future__ import annotations

import argparse
import datetime
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from provision.cli.image.lock import is_same
from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value
from provision.cli.request import keep_pins
from provision.errors import (
    ActionFailedError,
    IncompatibleError,
    MissingDependencyError,
    UnknownError,
    UsageError,
    first_of,
    shown,
)
from provision.generate.image import ImageOptions
from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.request import FRAMEWORKS, Request
from provision.resolve.stack import ProjectBuild, Refusal, Stack

if TYPE_CHECKING:
    from provision.build.closure import Opened
    from provision.build.uv import Uv
    from provision.build.ways import Trials
    from provision.project.inputs import Inputs
    from provision.project.pins import Pin

_PINS_SHOWN = 20
_YOUNGER_SHOWN = 5
_OF_THE_SOLVE = ("indexes", "overrides", "excludes", "sources")


def add_whole_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags about how lines are resolved."""
    add_switch(
        group,
        "--offline",
        "do not use a package index; dependencies of your requirements and extras are then resolved during the build",
    )
    add_value(
        group,
        "--exclude-newer",
        "DATE",
        "ignore packages published after this day (2026-10-01) or `now`; recorded for --upgrade and "
        "--check (default: the day of the facts)",
    )


def lock_lines(
    stack: Stack,
    matrix: Matrix,
    options: argparse.Namespace,
    image_options: ImageOptions,
    output: Output,
    *,
    before: Stack | None = None,
    renewed: Sequence[str] = (),
    pins: Sequence[Pin] = (),
    trials: Trials | None = None,
    uv: Uv | None = None,
    code: Sequence[Path] = (),
) -> Stack:
    """Return the stack with what its lines need, by hash.

    Args:
        stack: The answer to the request.
        matrix: The facts.
        options: The flags.
        image_options: The index and the certificates count.
        output: Where notes go.
        before: An earlier lock, whose versions are kept where nothing speaks against it.
        pins: Versions that a lock of the project holds, kept likewise.
        renewed: What may change although it was locked; all of it, where there is no name.
        trials: Tries ways out of a refusal.
        uv: Who is asked, unless the flags alone say.
        code: Files and folders that go into the image, which are held against the lock.

    Raises:
        IncompatibleError: No set of packages meets all lines.
        MissingDependencyError: uv is absent, or the index cannot be reached.
        UsageError: ``--exclude-newer`` is not a day.
    """
    moment = _moment(options.exclude_newer, stack.facts_date)
    if before is not None and options.exclude_newer not in (None, "now"):
        output.note(
            f"packages published after {options.exclude_newer} do not count; `--exclude-newer DAY` names another"
        )
    is_without = is_offline(options)
    if is_without and before is not None and before.image is not None and before.image.is_whole:
        raise UsageError(
            "--upgrade without an index would drop what the lock holds of your lines",
            hints=("leave `--offline` and UV_OFFLINE out", "or write the folder anew without `--upgrade`"),
        )
    if is_without:
        if left := [name for name in _OF_THE_SOLVE if getattr(stack.request, name)]:
            output.warn(f"without an index the {' and the '.join(left)} of your files are left out of the build")
        if pins and has_lines(stack):
            output.warn(f"without an index {pins[0].file} chooses the frameworks alone")
    if is_without or not has_lines(stack):
        return stack
    from provision.build.closure import Opened, lock_whole, needs_lock

    if not needs_lock(stack):
        return stack
    kept = _kept(pins, stack)
    request = stack.request
    if before is not None and before.image is not None and renewed:
        kept = {package.name: package.version for package in before.image.packages if package.name not in renewed}
        if not set(renewed) & set(FRAMEWORKS):
            request = replace(request, **{name: f"=={version}" for name, version in stack.frameworks.items()})
    opened = Opened(moment=moment, is_dated=not _is_now(options.exclude_newer), kept=kept)
    asked = uv or (trials.uv if trials is not None else None) or ask_uv(image_options, options)
    locked = _lock_published(request, matrix, stack, asked, opened, before=before)
    if locked is None:
        locked = lock_whole(request, matrix, stack, asked, opened, trials)
    if code:
        places = tuple(image_options.copies.values())
        locked = _hold_code(locked, request, matrix, stack, asked, opened, code, places, options, output, before=before)
    _tell_published(locked, stack, matrix, output)
    _check_hashes(locked, options.hashes)
    locked = _lock_sources(locked, matrix, options, image_options, asked, opened, before=before, renewed=renewed)
    _tell_built(locked, matrix, output)
    _tell_moved(pins, locked, output)
    if trials is not None and options.exclude_newer is None:
        _tell_age(request, locked, stack, matrix, asked, opened, trials, output)
        if options.project is not None:
            _tell_younger(Path(options.project), request, locked, asked, trials, output)
    locked = replace(locked, request=stack.request)
    return before if before is not None and is_same(before, locked) else locked


def _hold_code(
    locked: Stack,
    request: Request,
    matrix: Matrix,
    stack: Stack,
    uv: Uv,
    opened: Opened,
    code: Sequence[Path],
    places: Sequence[str],
    options: argparse.Namespace,
    output: Output,
    *,
    before: Stack | None,
) -> Stack:
    """Return the lock as the code needs it that goes into the image, and tell what was moved and what it lacks."""
    from provision.build.brought import Brought
    from provision.build.closure import lock_whole
    from provision.build.code import find_files
    from provision.build.held_code import hold_code
    from provision.build.imports import own_names, read_code
    from provision.matrix.cache import cache_folder
    from provision.project.optional import optional_packages

    # What the code moves is all that has to change: the lock is where the next one begins.
    held_so_far = locked.image.packages if locked.image is not None else ()
    near = {item.name: item.version for item in held_so_far if "+" not in item.version}
    opened = replace(opened, kept={**near, **opened.kept})

    def relock(bounds: tuple[str, ...]) -> Stack | None:
        bounded = replace(request, constraints=(*request.constraints, *bounds))
        start = replace(stack, request=bounded)
        try:
            again = _lock_published(bounded, matrix, start, uv, opened, before=before)
            if again is None:
                again = lock_whole(bounded, matrix, start, uv, opened)
        except (IncompatibleError, UnknownError, ActionFailedError):
            return None
        return replace(again, request=replace(again.request, constraints=request.constraints))

    folders = [find_files(path, without=options.folder)[0] for path in code if path.is_dir()]
    own = {PurePosixPath(place).name.partition(".")[0] for place in places}.union(*map(own_names, folders))
    held = hold_code(
        locked,
        request,
        matrix,
        [read_code(files, own) for files in folders],
        uv=uv,
        brought=Brought(uv.reader(), cache_folder()),
        published_before=opened.published_before,
        relock=relock,
        optional=optional_packages(options.project) if options.project is not None else {},
    )
    for note in held.notes:
        output.note(note)
    for warning in held.warnings:
        output.warn(warning)
    return held.stack


def _check_hashes(stack: Stack, hashes: Mapping[str, tuple[str, frozenset[str]]]) -> None:
    """Refuse a file that is none of those whose hashes a line states.

    A framework has other files for each CUDA, under the same version: which of them it is, the stack decides.

    Raises:
        IncompatibleError: The index has another file.
    """
    from provision.resolve.halves import is_open

    for package in stack.image.packages if stack.image is not None else ():
        where, stated = hashes.get(package.name, ("", frozenset()))
        if stated and is_open(package.name) and package.sha256 is not None and package.sha256 not in stated:
            raise IncompatibleError(
                f"{where}: the file of {package.name} {package.version} on the index has none of the hashes stated",
                because=(f"{package.file} has sha256:{package.sha256}",),
                hints=("correct the hashes of the line, or leave them out: the lock states its own",),
            )


def _lock_published(
    request: Request,
    matrix: Matrix,
    stack: Stack,
    uv: Uv,
    opened: Opened,
    *,
    before: Stack | None,
) -> Stack | None:
    """Return the stack with wheels that projects publish in place of what would be compiled; absent without such.

    A wheel is for one build of PyTorch and one Python: where the rest moves those, there is none.
    """
    from provision.build.closure import lock_whole
    from provision.resolve.prebuilt import hash_of, offered_wheels
    from provision.resolve.solve import solve

    known = {item.url for item in before.image.packages} if before is not None and before.image is not None else set()
    wheels = offered_wheels(stack, matrix)
    taken = {name: url for name, _, url in wheels if url in known}
    served = uv.serving(url for name, _, url in wheels if name not in taken)
    taken |= {name: url for name, _, url in reversed(wheels) if url in served}
    if not taken:
        return None
    # uv reads of a wheel whose hash it is told its metadata alone.
    ends = {url: f"#sha256={digest}" for name, url in taken.items() if (digest := hash_of(matrix, name, url))}
    lines = tuple(f"{name} @ {url}{ends.get(url, '')}" for name, url in taken.items())
    changed = replace(request, requirements=(*request.requirements, *lines))
    start = solve(changed, matrix, is_image=True)
    try:
        locked = lock_whole(changed, matrix, start, uv, opened) if isinstance(start, Stack) else None
    except (IncompatibleError, MissingDependencyError):
        return None
    if locked is None or (locked.packages["torch"], locked.python) != (stack.packages["torch"], stack.python):
        return None
    return locked


def _tell_published(locked: Stack, stack: Stack, matrix: Matrix, output: Output) -> None:
    """Tell which wheels that projects publish are taken in place of what the stack would compile."""
    from provision.resolve.prebuilt import hash_of, offered_wheels

    taken = {package.url for package in locked.image.packages} if locked.image is not None else set()
    for name, _, url in offered_wheels(stack, matrix):
        if url in taken:
            how = "its hash is a fact" if hash_of(matrix, name, url) else "it was downloaded for its hash"
            output.note(f"{name} @ {url} takes the place of what would be compiled; {how}")


def _lock_sources(
    stack: Stack,
    matrix: Matrix,
    options: argparse.Namespace,
    image_options: ImageOptions,
    uv: Uv,
    opened: Opened,
    *,
    before: Stack | None,
    renewed: Sequence[str],
) -> Stack:
    """Return the stack with what makes wheels of its sources; see `lock_lines`."""
    if stack.image is None or not any(package.is_built for package in stack.image.packages):
        return stack
    from provision.build.closure import lock_sources
    from provision.build.sources import Sources
    from provision.index.address import known_index

    known = before.image.source_builds if before is not None and before.image is not None and renewed else ()
    kept = {item.name: item.version for build in known for item in build.packages if item.name not in renewed}
    sources = Sources(known_index(), ca_cert=image_options.ca_cert, accounts=options.accounts, local=options.local)
    return lock_sources(stack, matrix, uv, replace(opened, kept=kept), sources.requires)


def _tell_built(stack: Stack, matrix: Matrix, output: Output) -> None:
    """Tell what is built from source, of what of it the tools are open, and what of it no hash holds."""
    image = stack.image
    built = [item.name for item in image.packages if item.is_built] if image is not None else []
    if image is None or not built:
        return
    output.note(f"built from source in a stage of its own, having no wheel: {', '.join(built)}")
    locked = {name for build in image.source_builds for name in build.names}
    if left := [name for name in built if name not in locked]:
        output.note(f"what makes wheels of {', '.join(left)} is resolved when the image is built")
    fetching = set(matrix.setting("constraints.toml", "fetching_backends").values)
    kinds = [build for build in image.source_builds if fetching & {item.name for item in build.packages}]
    if fetched := sorted(name for build in kinds for name in build.names):
        output.warn(
            f"the source of {', '.join(fetched)} holds no code: its build fetches a wheel from NVIDIA's own index, "
            "which no hash of the lock holds"
        )
    if loose := [item.name for build in image.source_builds for item in build.packages if item.is_source]:
        output.note(f"so is what builds {', '.join(dict.fromkeys(loose))}, which makes wheels and has none itself")


def lock_build(
    stack: Stack,
    folders: Sequence[Path],
    matrix: Matrix,
    options: argparse.Namespace,
    image_options: ImageOptions,
    output: Output,
    *,
    before: Stack | None = None,
    renewed: Sequence[str] = (),
    uv: Uv | None = None,
) -> Stack:
    """Return the stack with what makes wheels of the user's projects, by hash where an index may be asked.

    Args:
        stack: The answer to the request.
        folders: The projects.
        matrix: The facts.
        options: The flags.
        image_options: The index and the certificates count.
        output: Where notes go.
        before: An earlier lock: what it says of the projects holds, and its versions are kept unless all is renewed.
        renewed: What may change although it was locked; all of it, where there is no name.
        uv: Who is asked, unless the flags alone say.
    """
    from provision.build.closure import Opened, lock_project, with_build_base
    from provision.build.sources import build_needs

    stack = with_build_base(stack, matrix)
    known = before.image.project_build if before is not None and before.image is not None else None
    if known is not None:
        requires = known.requires
    else:
        asked = [build_needs(folder) for folder in folders]
        requires = tuple(sorted({line for needs in asked for line in needs.lines}))
        for place in (place for needs in asked for place in needs.unread):
            output.warn(
                f"{place}: what `setup_requires` holds shows only when the script runs, and is not in the lock; "
                "the build fails on what `[build-system] requires` does not name"
            )
    # uv resolves for no interpreter without the lock on its threads.
    if requires and (is_offline(options) or stack.python is None or stack.python.endswith("t")):
        if known is not None:
            return _with_build(stack, known)
        why = "without an index" if is_offline(options) else f"for Python {stack.python}"
        output.warn(f"{why} what builds the project is left open: {', '.join(requires)} is resolved in the build")
        return stack
    kept = {item.name: item.version for item in known.packages if item.name not in renewed} if known and renewed else {}
    day = options.exclude_newer
    opened = Opened(moment=_moment(day, matrix.dated), is_dated=not _is_now(day), kept=kept)
    stack = lock_project(stack, matrix, requires, uv or ask_uv(image_options, options), opened)
    build = stack.image.project_build if stack.image is not None else None
    if sources := [item.name for item in build.packages if item.is_source] if build is not None else []:
        output.warn(
            f"{' and '.join(sources)} builds the project and has no wheel: what builds that is resolved in the build"
        )
    return stack


def _with_build(stack: Stack, build: ProjectBuild) -> Stack:
    return replace(stack, image=replace(stack.image, project_build=build)) if stack.image is not None else stack


def find_trials(
    request: Request,
    matrix: Matrix,
    options: argparse.Namespace,
    image_options: ImageOptions,
    inputs: Inputs | None = None,
    *,
    words: tuple[str, ...],
    uv: Uv | None = None,
) -> Trials | None:
    """Return who tries changed requests as this command would meet them, where it would ask an index.

    Args:
        request: What was asked for.
        matrix: The facts.
        options: The flags.
        image_options: The index and the certificates count.
        inputs: What files ask for.
        words: Of the command line, beyond the request.
        uv: Who is asked, unless the flags alone say.
    """
    if is_offline(options) or not (request.requirements or request.extras):
        return None
    from provision.build.closure import Opened, lock_whole, needs_lock
    from provision.build.ways import Trials
    from provision.resolve.solve import solve

    opened = Opened(moment=_moment(options.exclude_newer, matrix.dated), is_dated=not _is_now(options.exclude_newer))
    pins = inputs.pins if inputs is not None else ()
    asked = uv or ask_uv(image_options, options)

    def answer(changed: Request) -> Stack | Refusal:
        found = solve(changed, matrix, is_image=True)
        return keep_pins(found, changed, matrix, inputs, is_image=True) if isinstance(found, Stack) else found

    def lock(changed: Request, stack: Stack) -> Stack:
        if not needs_lock(stack):
            return stack
        return lock_whole(changed, matrix, stack, asked, replace(opened, kept=_kept(pins, stack)))

    return Trials(answer, lock, asked, words)


def ask_uv(image_options: ImageOptions, options: argparse.Namespace) -> Uv:
    """Return the uv that asks the index of an image."""
    from provision.build.uv import Uv, find_uv
    from provision.index.address import known_index

    return Uv(
        find_uv(),
        index_url=image_options.index_url,
        address=known_index(),
        ca_cert=image_options.ca_cert,
        accounts=options.accounts,
        local=options.local,
    )


def is_offline(options: argparse.Namespace) -> bool:
    """Tell whether no index may be asked."""
    return options.offline or os.environ.get("UV_OFFLINE", "").lower() in ("1", "true", "yes")


def _tell_age(
    request: Request,
    locked: Stack,
    stack: Stack,
    matrix: Matrix,
    uv: Uv,
    opened: Opened,
    trials: Trials,
    output: Output,
) -> None:
    """Warn of pins that are much older than the framework, with the day on which they were new, which is tried."""
    from provision.build.age import find_age
    from provision.build.closure import lock_whole

    age = find_age(request, locked, matrix, uv.uploaded)
    if age is None:
        return
    then = replace(opened, moment=_moment(age.day, stack.facts_date))
    flag = f"--exclude-newer {age.day}"
    found = trials.attempt(lambda: lock_whole(request, matrix, stack, uv, then), flag)
    way = f"`{flag}` was tried, and gives none as old"
    if found is not None and find_age(request, found, matrix, uv.uploaded) is None:
        versions = " and ".join(f"{name} {version}" for name, version in found.frameworks.items())
        way = f"`{trials.command(request)} {flag}` takes {versions} on Python {found.python}"
    output.warn(
        f"{' and '.join(age.pins)} {'is' if len(age.pins) == 1 else 'are'} of {age.newest} at the latest, and "
        f"{age.framework}, which nothing in your lines bounds, is of {age.released}: they were not made for it; {way}"
    )


def _tell_younger(project: Path, request: Request, locked: Stack, uv: Uv, trials: Trials, output: Output) -> None:
    """Warn of packages that the code of a project cannot have known, with the command that leaves them out.

    It is not tried: that takes as long again as the lock, and code that works with younger packages does not need it.
    """
    from provision.build.age import find_changed, find_younger

    day = find_changed(project)
    younger = find_younger(locked, uv.uploaded, day) if day is not None else ()
    if younger:
        output.warn(
            f"the last commit of {project} is of {day}; more than a year younger "
            f"{'is' if len(younger) == 1 else 'are'} {first_of(younger, _YOUNGER_SHOWN)}: if its code fails "
            f"with that, `{trials.command(request)} --exclude-newer {day}` takes what was there then"
        )


def _kept(pins: Sequence[Pin], stack: Stack) -> dict[str, str]:
    """Return what uv is to prefer: the pins of the open half, and of the first half those that the stack has."""
    if not pins:
        return {}
    from provision.project.pins import held
    from provision.resolve.halves import is_open

    plain = {name: pin.version.partition("+")[0] for name, pin in held(pins, stack).items()}
    return {
        name: version
        for name, version in plain.items()
        if is_open(name) or (name in FRAMEWORKS and stack.frameworks.get(name) == version)
    }


def _tell_moved(pins: Sequence[Pin], stack: Stack, output: Output) -> None:
    """Tell what of the versions of the project's own lock could not be kept."""
    if not pins:
        return
    from provision.project.pins import moved

    if left := list(moved(pins, stack)):
        said = first_of(left, _PINS_SHOWN)
        output.warn(f"{pins[0].file} has versions that do not go with what was asked, and others are taken: {said}")


def has_lines(stack: Stack) -> bool:
    """Tell whether lines of the user or of extras are part of a stack."""
    return stack.image is not None and bool(stack.image.user_requirements or stack.image.extras)


def _is_now(day: str | None) -> bool:
    return day is not None and day.strip().lower() == "now"


def _moment(day: str | None, facts_date: str) -> str:
    today = datetime.datetime.now(datetime.UTC).date()
    if _is_now(day):
        day = today.isoformat()
    text = (day or facts_date).strip()
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            after = datetime.date.fromisoformat(text) + datetime.timedelta(days=1)
        except (ValueError, OverflowError):
            pass
        else:
            # Where this machine stands it may be a day later already.
            if day is not None and after - datetime.timedelta(days=2) > today:
                raise UsageError(
                    f"--exclude-newer {text} is in the future",
                    because=(f"today is {today.isoformat()}, and what will be published by then is not known",),
                    hints=("name a day that has passed", "or write `now`, which takes everything that is there"),
                )
            return f"{after.isoformat()}T00:00:00Z"
    raise UsageError(
        f"--exclude-newer `{shown(day or facts_date)}` is not a day", hints=("write it as in `2026-10-01`, or `now`",)
    )
