"""Lock the whole of an image: what the user's lines and the extras need is resolved by uv, and kept by hash.

The facts decide frameworks, CUDA libraries and compilers; uv decides the rest under their bounds. Where the request
leaves the version of a framework open, what the lines need has a say in it: uv is asked which one it would take, and
the solver holds that version to the GPU, the driver and everything else that was asked.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from provision.build.majors import find_misfit, line_hint
from provision.build.uv import Bound, Found, NoSolution, Place, Question, SourceNeeds, Uv
from provision.build.ways import Trials, find_ways
from provision.errors import ActionFailedError, IncompatibleError, ProvisionError, UnknownError, first_of
from provision.generate.image import COMPILE_NEEDS, open_lines
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu, PythonRelease
from provision.matrix.query import distribution_of, find_gpus, is_placeholder, same_files
from provision.records import NOTHING, record, replace
from provision.resolve.environment import MACHINES, applies, needed_glibc
from provision.resolve.halves import Halves, hidden_constraints, hidden_needs, is_open, split
from provision.resolve.request import ANY, FIND_LINKS, SOURCE, Request, is_exact, python_fits
from provision.resolve.requirements import normalise_name, requirement_of
from provision.resolve.rules import find_exclusion
from provision.resolve.solve import solve
from provision.resolve.stack import (
    BaseImage,
    ImagePart,
    LockedPackage,
    ProjectBuild,
    Reason,
    Refusal,
    SourceBuild,
    Stack,
)
from provision.resolve.system import system_packages
from provision.versions import is_empty, outside_of, parse, spec_of

_ROUNDS_MAX = 4
_OLDER_PYTHONS_MAX = 3
_EARLIER_RELEASES_MAX = 3
_OWN = "your requirements"
_LIBRARIES = "nvidia-"
"""What the names of NVIDIA's libraries begin with."""
_SHOWN_MAX = 5
_DATELESS = "--exclude-newer now"


@record
class Opened:
    """How the open half is resolved.

    Attributes:
        moment: What was published before it (RFC 3339) is looked at.
        is_dated: Whether an index is held to that; one that tells no dates cannot be.
        kept: Name → version of an earlier lock, taken where nothing speaks against it.
    """

    moment: str
    is_dated: bool = True
    kept: Mapping[str, str] = NOTHING

    @property
    def published_before(self) -> str | None:
        """The moment, where an index is held to it."""
        return self.moment if self.is_dated else None


def needs_lock(stack: Stack) -> bool:
    """Tell whether lines of the user or of extras would be resolved only when the image is built."""
    # uv resolves for no interpreter without the lock on its threads.
    is_usual = stack.python is not None and not stack.python.endswith("t")
    return is_usual and stack.image is not None and not stack.image.is_whole and bool(open_lines(stack.image))


def lock_whole(
    request: Request, matrix: Matrix, stack: Stack, uv: Uv, opened: Opened, trials: Trials | None = None
) -> Stack:
    """Return the stack with everything that its lines need, by hash.

    Args:
        request: What the stack is the answer to.
        matrix: The facts.
        stack: The answer so far, its first half decided.
        uv: Who is asked.
        opened: How.
        trials: Tries ways out of a refusal; none are named without.

    Raises:
        IncompatibleError: No set of packages meets all of it.
        MissingDependencyError: The index cannot be reached.
    """
    best: Stack | None = None
    failed: NoSolution | None = None

    def starts() -> Iterator[Stack]:
        yield stack
        yield from _other_releases(request, matrix, stack)
        yield from _older(request, matrix, stack, _tagged(failed))

    for start in starts():
        if best is not None and not (
            _is_supported(start, matrix) and _has_more_wheels(start, best, matrix, uv, opened)
        ):
            continue
        if best is None and failed is not None and start.python != stack.python and not _is_about_python(failed):
            break
        locked = _lock_freely(request, matrix, start, uv, opened)
        if isinstance(locked, NoSolution):
            failed = failed or locked
        elif best is None or _sources(locked) < _sources(best):
            best = locked
        if (best is not None and not _sources(best)) or (failed is not None and failed.absent):
            break
    if best is None:
        failed = failed or NoSolution(because=())
        if failed.absent:
            raise _refuse_names(stack, matrix, uv, opened, failed)
        dateless = replace(opened, is_dated=False)
        hints = []
        if failed.is_dated and opened.is_dated and trials is not None:
            later = trials.attempt(lambda: lock_whole(request, matrix, stack, uv, dateless), _DATELESS)
            told = "it takes what was published later too, and what an index tells no date of"
            hints += [f"`{_DATELESS}` works: {told}"] if later is not None else []
        raise _refusal(request, matrix, stack, failed, trials, hints)
    if best.frameworks != stack.frameworks or best.python != stack.python:
        best = replace(best, reasons=_told(best, stack))
    problem = _failing(best, matrix)
    if problem is not None:
        name, ways, because = problem
        for bound in ways:
            cuda = re.fullmatch(r"cuda([<>=].*)", bound)
            if requirement_of(bound).extras:
                bounded = replace(request, requirements=(*request.requirements, bound))
            elif cuda is None:
                bounded = replace(request, constraints=(*request.constraints, bound))
            elif request.cuda is None:
                bounded = replace(request, cuda=cuda[1])
            else:
                continue
            other = solve(bounded, matrix, is_image=True)
            try:
                again = lock_whole(bounded, matrix, other, uv, opened) if isinstance(other, Stack) else None
            except (IncompatibleError, UnknownError, ActionFailedError):
                continue
            if again is not None and name in again.packages:
                is_told = cuda is not None or requirement_of(bound).extras
                reasons = (*again.reasons, Reason(subject=name, because=because)) if is_told else again.reasons
                return replace(again, request=request, reasons=reasons)
        raise _refusal(request, matrix, best, NoSolution(because=(because,)), trials, [*line_hint(best, matrix, name)])
    locked = _paired(request, matrix, best, uv, opened)
    warnings = (*locked.warnings, *_twins(locked, matrix), *_for_cuda(locked, matrix))
    return replace(locked, request=request, warnings=warnings)


def _twins(stack: Stack, matrix: Matrix) -> Iterator[str]:
    """Yield a sentence on each group of packages of a lock that put their files into one folder."""
    held = {name for name, version in stack.packages.items() if not is_placeholder(matrix, name, version)}
    for there in same_files(matrix, held):
        last = "what is installed last is what is loaded: leave one of them out"
        yield f"{', '.join(there[:-1])} and {there[-1]} write the same files, and {last}"


def _for_cuda(stack: Stack, matrix: Matrix) -> Iterator[str]:
    """Yield a sentence on what lines bring that needs CUDA, where a stack without it was asked for."""
    if not stack.request.is_cpu:
        return
    decided = {name: f"=={version}" for name, version in stack.frameworks.items()}
    bare = replace(stack.request, requirements=(), constraints=(), extras=(), **decided)
    ids = {row.id for row in matrix.extras}
    for name in dict.fromkeys(requirement_of(line).name for line in stack.request.requirements):
        found = solve(replace(bare, extras=(name,)), matrix, is_image=True) if name in ids else None
        if isinstance(found, Refusal) and found.because:
            yield f"{name} is in your lines, and `--cpu` asks for no CUDA: {found.because[0].because}"
    if libraries := [name for name in stack.packages if name.startswith(_LIBRARIES)]:
        yield f"your lines bring {first_of(libraries, _SHOWN_MAX)}, and `--cpu` asks for no CUDA"


def _paired(request: Request, matrix: Matrix, stack: Stack, uv: Uv, opened: Opened) -> Stack:
    """Return a lock with the releases that the facts pair with its PyTorch, of what the user's lines leave open.

    The metadata of some releases admits any PyTorch, of which their code is built for one. Where the facts pair no
    release, the one that the metadata admits is kept, and a warning says so.
    """
    ids = {name for row in matrix.extras for name in (row.id, *row.by_cuda)} if "torch" in stack.frameworks else set()
    lines = map(requirement_of, request.requirements)
    names = {line.name for line in lines if line.name in ids and line.url is None and "==" not in line.specifier}
    for name in sorted(names & set(stack.packages)):
        rows = list(matrix.rows_where("companions.toml", "release", "package", name.__eq__))
        if not any(row.paired_torch or any(tag != "any" for tag in row.platform_tags) for row in rows):
            continue
        decided = {"torch": stack.frameworks["torch"], "python": stack.python, "cuda": stack.cuda}
        asked = replace(request, **decided, extras=(*request.extras, name))
        found = solve(asked, matrix, is_image=True)
        extras = found.image.extras if isinstance(found, Stack) and found.image is not None else ()
        pins = [line for extra in extras for line in map(requirement_of, extra.requires) if line.name == name]
        pin = next((line.specifier for line in pins if line.specifier.startswith("==")), None)
        version = stack.packages[name]
        if pin is not None and version not in spec_of(pin):
            bounded = replace(request, constraints=(*request.constraints, f"{name}{pin}"))
            start = solve(bounded, matrix, is_image=True)
            locked = _lock_freely(bounded, matrix, start, uv, opened) if isinstance(start, Stack) else None
            if isinstance(locked, Stack) and locked.frameworks == stack.frameworks:
                stack = locked
        elif pin is None and isinstance(found, Refusal):
            because = f"no release of {name} is known to go with torch {stack.frameworks['torch']}"
            warning = f"{because}; {version} is what its metadata admits"
            stack = replace(stack, warnings=(*stack.warnings, warning))
    return stack


def _failing(stack: Stack, matrix: Matrix) -> tuple[str, tuple[str, ...], str] | None:
    """Return a package of a lock that is known to fail beside the rest or on a GPU of the request.

    Returns:
        Its name, bounds that lead to other releases of it or to another CUDA, and the reason.
    """
    named = {name: version.partition("+")[0] for name, version in stack.packages.items()}
    named |= {name: value for name, value in (("cuda", stack.cuda), ("cudnn", stack.cudnn)) if value}
    gpus: list[Gpu | None] = [find_gpus(matrix, text)[0] for text in stack.request.gpus]
    for gpu in gpus or [None]:
        found = find_exclusion(matrix, named, gpu)
        if found is not None and not found[0].is_open:
            left = requirement_of(found[0].left)
            if is_open(left.name) and left.name in named:
                right = requirement_of(found[0].right)
                sides = [left, right] if right.name == "cuda" else [left]
                ways = tuple(f"{side.name}{way}" for side in sides for way in outside_of(side.specifier))
                return left.name, ways, f"{left.name} {named[left.name]} {found[1]}"
        if gpu is None:
            continue
        # Other conflicts are those of the lines of the extra, which may name one CUDA of several.
        for extra in matrix.extras:
            name = distribution_of(extra)
            bounds = [line for line in map(requirement_of, extra.requires) if line.name == name]
            held = named.get(name)
            if held is None or not all(not line.specifier or held in spec_of(line.specifier) for line in bounds):
                continue
            if f"gpu-architecture=={gpu.architecture}" in extra.conflicts:
                return name, (), f"{name} {held} does not run on {gpu.architecture} GPUs"
    misfit = find_misfit(stack, matrix)
    return (misfit.name, misfit.bounds, misfit.because) if misfit is not None else None


def _is_about_python(failed: NoSolution) -> bool:
    """Tell whether another Python may have what this one has not."""
    is_said = failed.is_about_python or failed.unbuilt is not None
    return is_said or any("python" in text.lower() or "wheel" in text for text in failed.because)


def _has_more_wheels(candidate: Stack, best: Stack, matrix: Matrix, uv: Uv, opened: Opened) -> bool:
    """Tell whether a stack of another Python has wheels of what would have to be built."""
    image = best.image
    sources = [item for item in image.packages if item.is_built and item.file] if image is not None else []
    lines = tuple(f"{item.name}=={item.version}" for item in sources if item.url is None)
    moment = opened.published_before
    question = Question(lines=lines, place=_place(candidate, matrix), published_before=moment, has_needs=False)
    found = uv.ask(question) if lines else ()
    return not isinstance(found, NoSolution) and any(not item.is_source for item in found)


def _is_supported(stack: Stack, matrix: Matrix) -> bool:
    """Tell whether somebody mends the Python of a stack: only for an answer, not for a wheel, an older one is taken."""
    return any(row.version == stack.python and _is_alive(row, matrix) for row in matrix.pythons)


def _is_alive(row: PythonRelease, matrix: Matrix) -> bool:
    return row.end_of_life is None or row.end_of_life > matrix.dated


def _other_releases(request: Request, matrix: Matrix, stack: Stack) -> Iterator[Stack]:
    """Yield the stacks with earlier releases of the extras that the facts pair with a framework."""
    constraints = request.constraints
    for _ in range(_EARLIER_RELEASES_MAX):
        lines = stack.image.extras if stack.image is not None else ()
        pinned = [line for extra in lines for line in extra.requires if "==" in line]
        if not pinned:
            return
        constraints = (*constraints, *(re.sub(r"\[[^\]]*\]", "", line).replace("==", "<", 1) for line in pinned))
        found = solve(replace(request, constraints=constraints), matrix)
        if not isinstance(found, Stack) or found.image is None:
            return
        stack = found
        yield replace(stack, request=request)


def _tagged(failed: NoSolution | None) -> set[str]:
    """Return the Pythons that uv found wheels for, of what has none for the one that was asked for."""
    said = failed.because if failed is not None else ()
    return {f"3.{tag}" for text in said for tag in re.findall(r"`cp3(\d+)m?`", text)}


def _older(request: Request, matrix: Matrix, stack: Stack, tagged: set[str]) -> Iterator[Stack]:
    """Yield the stacks of older Pythons: first of those that a package is known to have wheels for."""
    lowest = parse(str(stack.python))
    rows = [row for row in matrix.pythons if not row.version.endswith("t") and parse(row.version) < lowest]
    rows = [row for row in rows if python_fits(request.python, row.version)]
    rows.sort(key=lambda row: (row.version in tagged, _is_alive(row, matrix), parse(row.version)), reverse=True)
    fitting = [row.version for row in rows]
    for python in fitting[:_OLDER_PYTHONS_MAX]:
        found = solve(replace(request, python=python), matrix)
        if isinstance(found, Stack) and found.image is not None and found.image.tools:
            yield found


def _lock_freely(request: Request, matrix: Matrix, stack: Stack, uv: Uv, opened: Opened) -> Stack | NoSolution:
    """Close the open half; where the request leaves frameworks open, with the versions that the lines go with.

    What is chosen with them left open is often the answer already; else it is asked for again with them fixed.
    """
    free = [name for name in stack.frameworks if not is_exact(getattr(request, name) or "")]
    if not free:
        return _lock(stack, matrix, uv, opened)
    halves = split(stack, matrix)
    # What the user's lines name is chosen before the frameworks: a package that pins one decides its version.
    # What the newest framework needs is not a line here, or it would decide before them.
    lines = (*_lines(stack), *(_wished(request, name) for name in free))
    # Nor do bounds count yet that hold for the version of now.
    others = {name: version for name, version in stack.packages.items() if is_open(name)}
    halves = replace(halves, bounds=hidden_needs(matrix, stack, others)[1])
    preferred = {item.name: item.version for item in halves.fixed if item.name not in free and "+" not in item.version}
    question = _question(stack, matrix, opened, lines, halves)
    question = replace(question, fixed=(), preferred={**preferred, **question.preferred})
    found = _choose(question, stack, matrix, uv)
    if isinstance(found, NoSolution):
        locked = _lock(stack, matrix, uv, opened)
        is_about_python = _is_about_python(found)
        return replace(locked, is_about_python=is_about_python) if isinstance(locked, NoSolution) else locked
    taken = {item.name: item.version.partition("+")[0] for item in found}
    changes: dict[str, Any] = {name: taken[name] for name in free if taken.get(name, "") != stack.frameworks[name]}
    other: Stack | Refusal = stack
    if changes:
        other = solve(replace(request, python=stack.python, **changes), matrix)
    if isinstance(other, Refusal):
        # What the lines go with may have no wheels for this Python.
        other = solve(replace(request, **changes), matrix, is_image=True)
    if isinstance(other, Refusal) or other.image is None:
        return _lock(stack, matrix, uv, opened)
    seen = {item.name: item.version for item in found if is_open(item.name)} if other.python == stack.python else {}
    if seen and _agrees(other, matrix, found):
        decided = {package.name for package in other.image.packages if not is_open(package.name)}
        chosen = tuple(item for item in found if item.name not in decided)
        return _merge(other, matrix, chosen, opened, kept=set(split(other, matrix).preferred))
    locked = _lock(other, matrix, uv, opened, seen)
    if isinstance(locked, NoSolution) and seen:
        locked = _lock(other, matrix, uv, opened)
    return _lock(stack, matrix, uv, opened) if isinstance(locked, NoSolution) and changes else locked


def _choose(question: Question, stack: Stack, matrix: Matrix, uv: Uv) -> tuple[Found, ...] | NoSolution:
    """Ask with frameworks left open, until what is chosen bounds none of them in ways that no metadata says."""
    found = uv.ask(question)
    for _ in range(_ROUNDS_MAX):
        if isinstance(found, NoSolution):
            break
        tighter = _framework_bounds(stack, matrix, found)
        if set(tighter) <= set(question.bounds):
            break
        question = replace(question, bounds=tuple(dict.fromkeys((*question.bounds, *tighter))))
        found = uv.ask(question)
    return found


def _framework_bounds(stack: Stack, matrix: Matrix, found: tuple[Found, ...]) -> tuple[str, ...]:
    """Return the bounds in no metadata that packages of the open half set to the first half."""
    versions = {item.name: item.version for item in found if is_open(item.name)}
    return tuple(line for line in hidden_needs(matrix, stack, versions)[1] if not is_open(requirement_of(line).name))


def _agrees(stack: Stack, matrix: Matrix, found: tuple[Found, ...]) -> bool:
    """Tell whether what was chosen freely would do beside the first half of a stack."""
    halves = split(stack, matrix)
    fixed = {item.name: item.version for item in halves.fixed}
    if any(fixed.get(item.name, item.version) != item.version for item in found):
        return False
    chosen = {item.name: item.version for item in found}
    # Of what only the first half needs, the facts know the files and their needs.
    more = {name: version for name, version in halves.preferred.items() if name not in chosen}
    needs = _needs_of(stack, matrix, more)
    if needs is None or (more and (stack.request.excludes or stack.request.overrides)):
        return False
    versions = {**fixed, **more, **chosen}
    added, bounds = hidden_needs(matrix, stack, versions)
    added, bounds = (*added, *needs), (*bounds, *stack.request.constraints)
    needed = (*(line for item in halves.fixed for line in item.requires), *added)
    return all(_is_met(line, versions, is_needed=True) for line in needed) and all(
        _is_met(line, versions) for line in bounds
    )


def _needs_of(stack: Stack, matrix: Matrix, versions: Mapping[str, str]) -> list[str] | None:
    """Return what distributions need, as lines; nothing, where the facts do not know a file and its needs of each."""
    known = {package.name: package for package in stack.image.packages} if stack.image is not None else {}
    machine, python = MACHINES[stack.platform], str(stack.python)
    lines: list[str] = []
    for name, version in versions.items():
        package = matrix.package(name)
        release = package.release(version) if package is not None else None
        if release is None or known[name].sha256 is None:
            return None
        lines += [
            f"{other}{specifier}"
            for other, specifier, marker, extra in release.requires
            if not extra and (not marker or applies(marker, python, machine))
        ]
    return lines


def _wished(request: Request, framework: str) -> str:
    wish = getattr(request, framework)
    if wish in (None, ANY):
        return framework
    return f"{framework}{wish if wish[0] in '<>=!~' else f'=={wish}.*'}"


def _lines(stack: Stack) -> tuple[str, ...]:
    """Return the lines of the user and of extras for uv: of what the facts answer too, where uv may choose another.

    uv chooses in the order of the lines. What is open takes its newest release: where that excludes what a bounded line
    admits, uv falls back to an old release of that, after many tries. So the bounded ones come first.
    """
    image = stack.image
    if image is None:
        return ()
    lines = open_lines(image)
    answered = (line for line in image.user_requirements if is_open(normalise_name(requirement_of(line).name)))
    return tuple(sorted(dict.fromkeys((*lines, *answered)), key=_openness))


def _openness(line: str) -> int:
    specifier = requirement_of(line).specifier
    return 0 if "==" in specifier else 1 if "<" in specifier or "~=" in specifier else 2


def _question(stack: Stack, matrix: Matrix, opened: Opened, lines: tuple[str, ...], halves: Halves) -> Question:
    image = stack.image
    own = tuple(line for extra in image.extras for line in extra.constraints) if image is not None else ()
    indexes = stack.request.indexes
    return Question(
        lines=lines,
        place=_place(stack, matrix),
        bounds=(*own, *stack.request.constraints, *halves.bounds),
        build_bounds=_build_bounds(matrix),
        fixed=halves.fixed,
        preferred={**halves.preferred, **opened.kept},
        published_before=opened.published_before,
        extra_indexes=tuple(url for url in indexes if not url.startswith(FIND_LINKS)),
        find_links=tuple(url.removeprefix(FIND_LINKS) for url in indexes if url.startswith(FIND_LINKS)),
        overrides=stack.request.overrides,
        excludes=stack.request.excludes,
        bound=tuple(match for text in stack.request.sources if (match := _bound(text)) is not None),
        known=_source_needs(matrix),
    )


def _source_needs(matrix: Matrix) -> tuple[SourceNeeds, ...]:
    """Return what the facts know of sources whose build wants a framework, or a wheel, before it says their needs."""
    found = []
    for releases, needs in matrix.setting("constraints.toml", "source_needs").entries.items():
        name, *versions = releases.split()
        found.append(SourceNeeds(name=name, versions=tuple(versions), requires=tuple(needs.split())))
    return tuple(found)


def _bound(source: str) -> Bound | None:
    match = re.fullmatch(SOURCE, source)
    if match is None:
        return None
    return Bound(package=match["package"], url=match["url"], name=match["name"] or "", is_flat=bool(match["flat"]))


def _place(stack: Stack, matrix: Matrix) -> Place:
    """Return where the environment will be, with the newest glibc that uv names and the system has."""
    system = matrix.os_release(stack.os)
    named = sorted(matrix.setting("constraints.toml", "uv_glibc").values, key=parse)
    if system is not None and system.glibc is not None:
        fitting = [glibc for glibc in named if parse(glibc) <= parse(system.glibc)]
        glibc = fitting[-1] if fitting else named[0]
    else:
        # Of an unknown system the oldest is assumed that the first half runs on; a build looks before it begins.
        packages = stack.image.packages if stack.image is not None else ()
        decided = (package.file or "" for package in packages if not is_open(package.name))
        needed = parse(f"2.{needed_glibc(decided)}")
        glibc = next((glibc for glibc in named if parse(glibc) >= needed), named[-1])
    return Place(python=str(stack.python), machine=MACHINES[stack.platform], glibc=glibc)


def _lock(
    stack: Stack, matrix: Matrix, uv: Uv, opened: Opened, seen: Mapping[str, str] = NOTHING
) -> Stack | NoSolution:
    """Close the open half of a stack.

    Args:
        stack: Its first half is decided.
        matrix: The facts.
        uv: Who is asked.
        opened: How.
        seen: What was chosen before the first half was: what it needs that no metadata says is asked for at once.
    """
    halves = split(stack, matrix)
    added = (*halves.added, *halves.preferred)
    bounds = halves.bounds
    chosen: dict[str, str] = {}
    failed: NoSolution | None = None
    if seen:
        chosen = {**stack.packages, **seen}
        more, tighter = hidden_needs(matrix, stack, chosen)
        added = tuple(dict.fromkeys((*added, *more)))
        bounds = tuple(dict.fromkeys((*bounds, *_on_the_open_half(matrix, stack, chosen, tighter))))
    for _ in range(_ROUNDS_MAX):
        lines = (*_lines(stack), *added)
        question = _question(stack, matrix, opened, lines, replace(halves, bounds=bounds))
        # The answer before is where the next one begins, as far as the bounds let it.
        before = {name: version for name, version in chosen.items() if is_open(name) and "+" not in version}
        found = uv.ask(replace(question, preferred={**before, **question.preferred}))
        if isinstance(found, NoSolution):
            others = _other_choices(matrix, stack, chosen, bounds, found.because)
            if failed is not None or others == bounds:
                return failed or found
            failed, bounds = replace(found, because=_explained(matrix, stack, chosen, found.because)), others
            continue
        versions = {**stack.packages, **{item.name: item.version for item in found}}
        more, tighter = hidden_needs(matrix, stack, versions)
        if set(more) <= set(added) and all(_is_met(line, versions) for line in tighter):
            return _merge(stack, matrix, found, opened)
        tighter = _on_the_open_half(matrix, stack, versions, tighter)
        # What was chosen needs what its metadata does not say.
        added = tuple(dict.fromkeys((*added, *more)))
        bounds = tuple(dict.fromkeys((*bounds, *tighter)))
        chosen = versions
    return failed or NoSolution(because=("what your lines bring needs more each time it is met",))


def _other_choices(
    matrix: Matrix, stack: Stack, chosen: Mapping[str, str], bounds: tuple[str, ...], reasons: tuple[str, ...]
) -> tuple[str, ...]:
    """Return bounds with those that chosen packages brought turned into bounds that lead to other releases of these.

    pyarrow 26 wants numpy 2, which its metadata does not say: where a line wants numpy below 2, an older pyarrow does.
    Where bounds exclude each other, or the reasons name one, only what brought one of these is turned. What the lines
    hold to a release that brings a bound is not.
    """
    asked: dict[str, list[str]] = {}
    for line in map(requirement_of, (*bounds, *_lines(stack))):
        asked.setdefault(normalise_name(line.name), []).append(str(line.specifier))
    empty = {name for name, specifiers in asked.items() if is_empty(tuple(filter(None, specifiers)))}
    turned: dict[str, set[str]] = {}
    clashing: set[str] = set()
    for row in hidden_constraints(matrix, stack, chosen):
        lines = {f"{name}{bound}" for name, bound in row.requires.items()}
        other = next(outside_of(row.versions or ""), None)
        if row.kind == "add" or not is_open(row.package) or other is None or not lines & set(bounds):
            continue
        if is_empty(tuple(filter(None, (*asked.get(row.package, ()), other)))):
            continue
        bound = f"{row.package}{other}"
        turned.setdefault(bound, set()).update(lines)
        if empty & row.requires.keys() or any(line in reason for line in lines for reason in reasons):
            clashing.add(bound)
    for bound in filter((clashing or turned).__contains__, turned):
        bounds = (*(line for line in bounds if line not in turned[bound]), bound)
    return bounds


def _on_the_open_half(
    matrix: Matrix, stack: Stack, versions: Mapping[str, str], bounds: tuple[str, ...]
) -> tuple[str, ...]:
    """Return bounds with those that what is decided does not meet turned into bounds of the package they come from.

    torchcodec 0.17 wants torch 2.11, which its metadata does not say: beside torch 2.8 the release is chosen that the
    facts pair with it.
    """
    unmet = {line for line in bounds if not is_open(requirement_of(line).name) and not _is_met(line, versions)}
    turned = []
    for row in hidden_constraints(matrix, stack, versions):
        lines = {f"{name}{bound}" for name, bound in row.requires.items()}
        if not lines & unmet or not is_open(row.package):
            continue
        fitting = [
            other.versions
            for other in matrix.constraints_of((row.package,))
            if other.package == row.package
            and other.versions
            and set(other.requires) == set(row.requires)
            and all(_is_met(f"{name}{bound}", versions) for name, bound in other.requires.items())
        ]
        if fitting:
            newest = max(fitting, key=lambda text: max(map(parse, re.findall(r"[0-9][^,]*", text))))
            turned.append(f"{row.package}{newest}")
            unmet -= lines
            bounds = tuple(line for line in bounds if line not in lines)
    return (*bounds, *turned)


def _is_met(line: str, versions: Mapping[str, str], *, is_needed: bool = False) -> bool:
    needed = requirement_of(line)
    version = versions.get(needed.name)
    if version is None:
        return not is_needed
    return not needed.specifier or version in spec_of(needed.specifier)


def _merge(
    stack: Stack, matrix: Matrix, found: tuple[Found, ...], opened: Opened, kept: Set[str] = frozenset()
) -> Stack:
    image = stack.image
    assert image is not None  # noqa: S101 - whoever has no image has no lines
    known = {package.name: package for package in image.packages}
    asked = _asked(image)
    packages = {name: package for name, package in known.items() if not is_open(name) or name in kept}
    for item in found:
        before = known.get(item.name)
        if before is not None and before.version == item.version and before.sha256 is not None:
            packages[item.name] = before
            continue
        why = before.why if before is not None else _OWN if item.name in asked else f"a need of {_OWN}"
        packages[item.name] = _lock_file(item, why, layer=before.layer if before is not None else "user")
    ordered = tuple(sorted(packages.values(), key=lambda package: package.name))
    moments = [item.uploaded for item in found if item.uploaded]
    newest = max((int(datetime.datetime.fromisoformat(moment).timestamp()) for moment in moments), default=0)
    system = system_packages(matrix, (package.name for package in ordered), image.base.os or stack.os)
    has_builds = any(package.is_built for package in ordered)
    whole = replace(
        image,
        packages=ordered,
        apt=tuple(sorted({*image.apt, *system})),
        source_date_epoch=max(image.source_date_epoch, newest),
        build_base=build_base(stack, matrix) if has_builds else None,
        build_bounds=_build_bounds(matrix) if has_builds else (),
        resolved_before=opened.moment,
    )
    return replace(stack, image=whole, packages={package.name: package.version for package in ordered})


def _lock_file(item: Found, why: str, layer: str = "rest") -> LockedPackage:
    """Return the row of a lock for a file that uv chose."""
    return LockedPackage(
        name=item.name,
        version=item.version,
        index="pypi",
        file=item.file,
        sha256=item.sha256,
        size=item.size,
        url=item.url if item.is_addressed else None,
        layer=layer,
        why=why,
        is_source=item.is_source,
    )


def _asked(image: ImagePart) -> set[str]:
    return {normalise_name(requirement_of(line).name) for line in open_lines(image)}


def _sources(stack: Stack) -> int:
    return sum(package.is_built for package in stack.image.packages) if stack.image is not None else 0


def with_build_base(stack: Stack, matrix: Matrix) -> Stack:
    """Return a stack whose image has what a project is built with, whether or not anything else is built."""
    image = stack.image
    if image is None or image.build_base is not None or image.compile_base is not None:
        return stack
    return replace(
        stack,
        image=replace(image, build_base=build_base(stack, matrix), build_bounds=_build_bounds(matrix)),
    )


def lock_project(stack: Stack, matrix: Matrix, requires: tuple[str, ...], uv: Uv, opened: Opened) -> Stack:
    """Return a stack with everything that makes wheels of the user's projects, by hash, in an environment of its own.

    Args:
        stack: The stack. What is built against a package of the image takes its version.
        matrix: The facts.
        requires: What the projects ask for; their backends add what the facts know of.
        uv: Who is asked.
        opened: How.

    Raises:
        IncompatibleError: No set of packages meets it.
        UnknownError: The index has no such package, or has it as a repository alone.
        MissingDependencyError: The index cannot be reached.
    """
    image = stack.image
    assert image is not None  # noqa: S101 - whoever has no image installs no project
    if not requires:
        return replace(stack, image=replace(image, project_build=ProjectBuild()))
    question, found = _ask_builders(stack, matrix, requires, uv, opened)
    if isinstance(found, NoSolution):
        raise _refuse_build(stack, question, found, uv)
    if loose := [item.name for item in found if item.sha256 is None]:
        raise UnknownError(
            f"what builds the project cannot be locked: {' and '.join(loose)} has no file with a hash",
            because=("`[build-system] requires` leads to a repository, or the index states no hash",),
            hints=("name a release of it in `[build-system] requires`",),
        )
    packages = tuple(_lock_file(item, "builds your project") for item in sorted(found, key=lambda item: item.name))
    return replace(stack, image=replace(image, project_build=ProjectBuild(requires=requires, packages=packages)))


def lock_sources(
    stack: Stack, matrix: Matrix, uv: Uv, opened: Opened, requires_of: Callable[[Found], tuple[str, ...] | None]
) -> Stack:
    """Return a stack with everything that makes wheels of its sources, by hash, an environment for each kind of them.

    What asks for nothing that can be told or locked is left to the build.

    Args:
        stack: The stack, locked whole by the same uv. What is built against a package of the image takes its version.
        matrix: The facts.
        uv: Who is asked.
        opened: How.
        requires_of: Tells what a source asks for, where that can be told.

    Raises:
        MissingDependencyError: The index cannot be reached.
    """
    image = stack.image
    kinds: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for package in image.packages if image is not None else ():
        source = uv.sources.get((package.name, package.version)) if package.is_built else None
        if image is None or source is None:
            continue
        # What is compiled against the framework is built with what is at hand, whatever it asks for.
        requires = COMPILE_NEEDS if package.name in image.compiled else requires_of(source)
        if requires is not None:
            kinds.setdefault((requires, _bounds_of_its_day(matrix, source, requires)), []).append(package.name)
    builds = []
    for (requires, bounds), names in sorted(kinds.items()):
        found = _ask_builders(stack, matrix, requires, uv, opened, bounds)[1] if requires else ()
        if not isinstance(found, NoSolution) and all(item.sha256 is not None for item in found):
            ordered = sorted(found, key=lambda item: item.name)
            packages = tuple(_lock_file(item, f"builds {names[0]}") for item in ordered)
            builds.append(SourceBuild(names=tuple(sorted(names)), requires=requires, packages=packages))
    if image is None or not kinds:
        return stack
    return replace(stack, image=replace(image, source_builds=tuple(builds)))


def _bounds_of_its_day(matrix: Matrix, source: Found, requires: tuple[str, ...]) -> tuple[str, ...]:
    """Return bounds on what a source asks for without one, where that has changed since the source was uploaded."""
    open_names = {normalise_name(line.name) for line in map(requirement_of, requires) if not line.specifier}
    return tuple(
        bound
        for day, bound in matrix.setting("constraints.toml", "build_bounds_before").entries.items()
        if source.uploaded and source.uploaded < day and requirement_of(bound).name in open_names
    )


def _ask_builders(
    stack: Stack, matrix: Matrix, requires: tuple[str, ...], uv: Uv, opened: Opened, bounds: tuple[str, ...] = ()
) -> tuple[Question, tuple[Found, ...] | NoSolution]:
    """Return what an environment to build in holds, and what was asked."""
    added = matrix.setting("constraints.toml", "backend_needs").entries
    names = {normalise_name(requirement_of(line).name) for line in requires}
    more = [need for name in sorted(names) for need in added.get(name, "").split() if need not in names]
    lines = tuple(sorted({*requires, *more}))
    plain = {name: version.partition("+")[0] for name, version in stack.packages.items()}
    decided = tuple(f"{name}=={version}" for name, version in sorted(plain.items()) if not is_open(name))
    question = _question(stack, matrix, opened, lines, split(stack, matrix))
    question = replace(
        question,
        bounds=(*decided, *question.build_bounds, *bounds),
        fixed=(),
        preferred={**plain, **opened.kept},
        overrides=(),
        excludes=(),
        bound=tuple(item for item in question.bound if item.package in names),
    )
    found = uv.ask(question)
    if isinstance(found, NoSolution):
        # A project may ask for more than what is good for sources of old.
        question = replace(question, bounds=decided)
        found = uv.ask(question)
    return question, found


def _refuse_build(stack: Stack, question: Question, failed: NoSolution, uv: Uv) -> ProvisionError:
    hints = ["change `[build-system] requires` in its pyproject.toml, or `setup_requires` in its setup script"]
    if failed.is_dated and not isinstance(uv.ask(replace(question, published_before=None)), NoSolution):
        hints.insert(0, f"`{_DATELESS}` works: it takes what was published later too")
    kind = UnknownError if failed.absent else IncompatibleError
    return kind(
        f"what builds the project cannot be installed on Python {stack.python}",
        because=(*failed.because, f"its build asks for {', '.join(question.lines)}"),
        hints=hints,
    )


def build_base(stack: Stack, matrix: Matrix) -> BaseImage | None:
    """Return the Python image with compilers that stands on the same system as the image's own."""
    rows = matrix.python_images_of(str(stack.python))
    full = [row for row in rows if row.flavour == "full" and stack.platform in row.platforms]
    row = next((row for row in full if stack.image is not None and row.os == stack.image.base.os), None)
    return BaseImage(ref=row.tag, digest=row.digest, os=row.os, size_mb=row.size_mb) if row is not None else None


def _build_bounds(matrix: Matrix) -> tuple[str, ...]:
    return matrix.setting("constraints.toml", "build_bounds").values


def _told(best: Stack, first: Stack) -> tuple[Reason, ...]:
    """Return the reasons of a stack, where what the lines need decided a part of it."""
    changed = {name for name, version in best.frameworks.items() if first.frameworks.get(name) != version}
    changed |= {"python"} if best.python != first.python else set()
    rows = []
    for reason in best.reasons:
        if reason.subject in changed:
            before = first.python if reason.subject == "python" else first.frameworks.get(reason.subject)
            because = f"what {_OWN} need goes with this one; {before} is newer"
            rows.append(replace(reason, because=because))
        else:
            rows.append(reason)
    return tuple(rows)


def _refuse_names(stack: Stack, matrix: Matrix, uv: Uv, opened: Opened, failed: NoSolution) -> UnknownError:
    """Return which packages no index has: uv names the first of them alone."""
    lines = _lines(stack)
    elsewhere = {text.partition(" @ ")[0] for text in stack.request.sources}
    named = [requirement_of(line) for line in lines]
    names = [normalise_name(item.name) for item in named if item.url is None]
    question = _question(stack, matrix, opened, lines, split(stack, matrix))
    absent = [str(failed.absent), *uv.absent((name for name in names if name not in elsewhere), question)]
    absent = list(dict.fromkeys(absent))
    if len(absent) == 1:
        message, hint = f"the index has no package `{absent[0]}`", "correct its name"
    else:
        message = f"the index has none of these packages: {', '.join(f'`{name}`' for name in absent)}"
        hint = "correct their names"
    return UnknownError(
        message,
        because=failed.because,
        hints=(hint, "or name the index that has it with `--index-url URL`"),
        details={"absent": absent},
    )


def _refusal(
    request: Request, matrix: Matrix, stack: Stack, failed: NoSolution, trials: Trials | None, hints: list[str]
) -> ProvisionError:
    if failed.unbuilt:
        found = find_ways(request, matrix, None, (failed.unbuilt,), trials) if trials is not None else []
        return ActionFailedError(
            f"what `{failed.unbuilt}` needs cannot be told: it exists as source alone, and its build failed here",
            because=failed.because,
            hints=(
                *line_hint(stack, matrix, requirement_of(failed.unbuilt).name),
                *(way.hint for way in found),
                *(trials.said() if trials is not None else ()),
                "or install what its build needs on this machine",
                "with `--offline` your lines are left to the build of the image",
            ),
            details={"alternatives": [way.to_json() for way in found]},
        )
    names = " and ".join(f"{name} {version}" for name, version in stack.frameworks.items()) or f"CUDA {stack.cuda}"
    because = _explained(matrix, stack, stack.packages, failed.because)
    ways = find_ways(request, matrix, stack, because, trials) if trials is not None else []
    hints = [*hints, *(way.hint for way in ways)] or ["loosen the lines that the reasons name"]
    decided = {"python", *stack.frameworks, *(item.name for item in split(stack, matrix).fixed)}
    words = set(re.findall(r"[a-z0-9][a-z0-9._-]*", " ".join(because).lower()))
    is_about_stack = bool(decided & words)
    return IncompatibleError(
        f"your requirements cannot be installed with {names} on Python {stack.python}"
        if is_about_stack
        else "your requirements exclude each other",
        because=because,
        hints=(*hints, *(trials.said() if trials is not None else ())),
        details={"alternatives": [way.to_json() for way in ways]},
    )


def _explained(matrix: Matrix, stack: Stack, versions: Mapping[str, str], reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Return reasons with where bounds come from that stand in no metadata, of what the reasons speak of."""
    # Of what the lines bring no version was chosen.
    named = {normalise_name(requirement_of(line).name) for line in _lines(stack)} - set(versions)
    brought = (row for row in matrix.constraints_of(dict.fromkeys(named, "")) if not row.variants and not row.pythons)
    for row in (*hidden_constraints(matrix, stack, versions), *brought):
        needs = [f"{name}{bound}" for name, bound in row.requires.items()]
        if any(need in text for need in needs for text in reasons):
            what = ", ".join(needs)
            told = f"{row.package} {row.versions} needs {what}, which its metadata does not say: {row.symptom}"
            # uv takes the bounds of the facts for lines of the user.
            reasons = tuple(text for text in reasons if text not in {f"you require {need}" for need in needs})
            reasons = tuple(dict.fromkeys((*reasons, told)))
    return reasons
