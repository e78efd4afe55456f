"""What is there after each command of an environment: a walk through them that does what pip and uv do.

An installer keeps what is there wherever that will do, and else takes the newest release that suits all it is asked
for. What nothing is known of meets anything and asks for nothing, so that what follows beside it is likely, not sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from provision.audit.bases import may_have_frameworks
from provision.audit.channels import PYTORCH, release_of
from provision.audit.commands import command_of, is_apart, is_removed, upgrade_of
from provision.audit.last import keeps_last
from provision.audit.model import Command, Environment, Install, Options, Requirement
from provision.audit.solved import FAMILY, INSTALLERS, KINDS, Asked, current_pythons, likely_of, pin_of, problem_of
from provision.audit.wanted import admits, index_variant
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.published import Problem, Want, is_satisfiable, need_asks, picks_of
from provision.versions import parse

_TORCH = "torch"
_TAG = re.compile(r"-cp(3[0-9]+)-(?!abi3)[^/]*\.whl")
"""The Python that a wheel is for which is named by its address."""
_IN_IMAGES = ("numpy", "packaging", "pillow", "protobuf", "scipy", "setuptools", "torchaudio", "torchvision")
"""What images of a framework come with beside it, as far as facts are about it."""


@record
class Present:
    """A distribution that is there.

    Attributes:
        version: Its release; ``None`` where it is there in a release that is not known.
        step: Number of the step that put it there; ``None`` for what the base brings.
        is_sure: Nothing that is not known could have brought another release.
    """

    version: str | None
    step: int | None
    is_sure: bool


@record
class Step:
    """One command that installs something.

    Attributes:
        asked: What it asks for, on the Python of the walk and with what was there before.
        before: Distribution → what is there before it.
        after: Distribution → what is there after it.
    """

    asked: Asked
    before: Mapping[str, Present]
    after: Mapping[str, Present]


@record
class Walk:
    """All commands on one Python.

    Attributes:
        python: The Python.
        steps: The commands, in order.
        end: Distribution → what is there at the end.
        is_whole: The steps are the commands. Where they cannot be met, each requirement is a step of its own.
    """

    python: str
    steps: tuple[Step, ...]
    end: Mapping[str, Present]
    is_whole: bool = True


@keeps_last
def walks_of(environment: Environment, matrix: Matrix, options: Options) -> tuple[Walk, ...]:
    """Return one walk for each Python that the environment may have and that has not ended, newest first.

    A Python that nothing can be installed for is none that it may have; where that is each that has not ended, it is
    the newest of the others. There is none where commands install to different places, or where no Python will do.
    """
    return tuple(_walks(environment, matrix, options))


def whole_walks_of(environment: Environment, matrix: Matrix, options: Options) -> tuple[Walk, ...]:
    """Return the walks whose steps are the commands: of others nobody can say what one command does to another."""
    return tuple(walk for walk in walks_of(environment, matrix, options) if walk.is_whole)


def taken_of_all(environment: Environment, matrix: Matrix, options: Options, name: str) -> tuple[tuple[str, ...], bool]:
    """Return the releases of a distribution that are there at the end, one for each Python, and whether that is sure.

    None where it is not there, or not known, on one of them.
    """
    there = [walk.end.get(name) for walk in walks_of(environment, matrix, options)]
    versions = [item.version for item in there if item is not None and item.version is not None]
    if not there or len(versions) != len(there):
        return (), False
    return tuple(dict.fromkeys(versions)), all(item.is_sure for item in there if item is not None)


def brings(
    environment: Environment, matrix: Matrix, options: Options, name: str
) -> Iterator[tuple[Install, tuple[str, ...]]]:
    """Yield the commands that put a distribution there, asked for or not, on every Python, with its releases."""
    walks = whole_walks_of(environment, matrix, options)
    for number, steps in enumerate(zip(*(walk.steps for walk in walks), strict=True)):
        there = [step.after.get(name) for step in steps]
        versions = [item.version for item in there if item is not None and item.step == number and item.version]
        if len(versions) == len(steps):
            yield steps[0].asked.install, tuple(dict.fromkeys(versions))


def origin_of(matrix: Matrix, step: Step, name: str) -> Requirement | None:
    """Return the requirement of a command that comes to a distribution, the one that names it if there is one."""
    queue = [(want.name, want.extras, item) for want, item in step.asked.origins.items()]
    queue.sort(key=lambda item: item[0] != name)
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while queue:
        at, extras, item = queue.pop(0)
        if at == name:
            return item
        present = step.after.get(at)
        if (at, extras) in seen or present is None or present.version is None:
            continue
        seen.add((at, extras))
        needs = need_asks(matrix, at, present.version, step.asked.problem, extras)
        queue += [(need.name, need.extras, item) for need in needs]
    return None


def origin_at_end(matrix: Matrix, walk: Walk, name: str) -> Requirement | None:
    """Return the requirement that comes to a distribution which is there at the end; none for what the base brings."""
    step = walk.end[name].step
    return origin_of(matrix, walk.steps[step], name) if step is not None else None


def _walks(environment: Environment, matrix: Matrix, options: Options) -> Sequence[Walk]:
    places = {(item.target, item.python or environment.python) for item in environment.installs if not item.is_dry}
    if environment.kind not in KINDS or len(places) != 1:
        return ()
    asked = [problem_of(environment, matrix, options, item) for item in environment.installs if not item.is_dry]
    if not asked:
        return ()
    # A project and its extras are one thing to install.
    found = _on_pythons(environment, matrix, [_together(asked)]) if environment.kind == "pyproject" else ()
    return found or _on_pythons(environment, matrix, asked)


def _on_pythons(environment: Environment, matrix: Matrix, asked: list[Asked]) -> Sequence[Walk]:
    tags = [_TAG.search(item.url or "") for one in asked for item in one.install.requirements]
    tagged = {tag[1] for tag in tags if tag is not None}
    pythons = [python for python in asked[0].pythons if not tagged or python.replace(".", "") in tagged]
    current = [python for python in current_pythons(matrix, asked[0]) if python in pythons]
    ended = (python for python in pythons if python not in current)
    walks = [_walk(environment, matrix, asked, python, is_current=True) for python in current]
    found = [walk for walk in walks if walk is not None]
    # Nobody is sure to have a Python that has ended.
    older = (_walk(environment, matrix, asked, python, is_current=False) for python in ended if not found)
    found = found or list(islice((walk for walk in older if walk is not None), 1))
    if found:
        return found
    # What stops the install is told by other rules; what else is wrong shows once that is gone.
    parts = [part for one in asked for part in _parts(one)]
    likely = max(pythons, key=lambda python: sum(_is_met(matrix, part, python) for part in parts), default=None)
    walk = _walk(environment, matrix, parts, likely, is_current=False, is_lenient=True) if likely is not None else None
    return [walk] if walk is not None else []


def _parts(asked: Asked) -> Iterator[Asked]:
    """Yield each requirement of a command as a command of its own, which keeps to what the others name."""
    for want, item in asked.origins.items():
        install = replace(asked.install, requirements=(item,))
        others = tuple(other for other in asked.problem.wants if other.specifier)
        problem = replace(asked.problem, wants=(want,), bounds=(*asked.problem.bounds, *others))
        yield replace(asked, install=install, problem=problem, origins={want: item})


def _is_met(matrix: Matrix, asked: Asked, python: str) -> bool:
    names = {want.name for want in asked.problem.wants}
    bounds = tuple(bound for bound in asked.problem.bounds if bound.name in names)
    return is_satisfiable(matrix, replace(asked.problem, bounds=bounds, python=python, is_shallow=True))


def _together(asked: Sequence[Asked]) -> Asked:
    """Return several commands as one."""
    origins = {want: item for one in asked for want, item in one.origins.items()}
    problem = replace(
        asked[0].problem,
        wants=tuple(origins),
        bounds=tuple(bound for one in asked for bound in one.problem.bounds),
        opaque=tuple(dict.fromkeys(name for one in asked for name in one.problem.opaque)),
        is_open=any(one.problem.is_open for one in asked),
    )
    install = replace(
        asked[0].install,
        requirements=tuple(item for one in asked for item in one.install.requirements),
        indexes=tuple(dict.fromkeys(index for one in asked for index in one.install.indexes)),
        is_complete=all(one.install.is_complete for one in asked),
        is_certain=all(one.install.is_certain for one in asked),
    )
    return replace(asked[0], install=install, problem=problem, origins=origins)


def _walk(
    environment: Environment,
    matrix: Matrix,
    asked: list[Asked],
    python: str,
    *,
    is_current: bool,
    is_lenient: bool = False,
) -> Walk | None:
    there: dict[str, Present] = {}
    base = environment.base
    if base is not None and not is_apart(environment):
        there = {name: Present(version=have or None, step=None, is_sure=True) for name, have in base.frameworks.items()}
        if there or (may_have_frameworks(matrix, environment) and "conda" not in (base.repository or "")):
            there = {name: Present(version=None, step=None, is_sure=False) for name in _IN_IMAGES} | there
    is_sure = is_current and not (may_have_frameworks(matrix, environment) or _may_bring_more(environment))
    there |= {name: Present(version=None, step=None, is_sure=False) for name in _of_system(environment)}
    steps: list[Step] = []
    removals = [
        (number, command)
        for number, command in enumerate(environment.commands)
        if any(word.text == "uninstall" for word in command.words)
    ]
    for one in asked:
        place = _place(environment, one.install)
        while removals and removals[0][0] < place:
            there = _without(there, removals.pop(0)[1])
        likely = likely_of(matrix, one)
        is_sure = is_sure and _is_known(matrix, likely)
        is_own = likely.problem == one.problem
        likely = _of_index(matrix, likely, one.pythons[0] if one.is_python_known else python, there)
        after = _after(
            environment, matrix, likely, there, len(steps), is_sure=is_sure and is_own, is_lenient=is_lenient
        )
        if after is None:
            return None
        steps.append(Step(asked=likely, before=there, after=after))
        there = after
    for _, command in removals:
        there = _without(there, command)
    return Walk(python=python, steps=tuple(steps), end=there, is_whole=not is_lenient)


def _of_index(matrix: Matrix, asked: Asked, python: str, there: Mapping[str, Present]) -> Asked:
    """Return a command on one Python, with what it takes from an index of PyTorch where no pin says so.

    Nothing is said of what is there already, and where the rest of the command does not go with the newest. pip takes
    the newest of all indexes, which is PyPI's, and uv that of the first index that has any.
    """
    install, problem = asked.install, asked.at(python)
    own = [index for index in install.indexes if not index.is_explicit and index.kind != "channel"]
    variant = index_variant(matrix, own[0].url) if len(own) == 1 else None
    family = {
        want.name: want
        for want in problem.wants
        if want.name in problem.opaque and want.name in FAMILY and want.name not in there
    }
    if variant is None or not family:
        return replace(asked, problem=problem)
    bounds: tuple[Want, ...] = ()
    if own[0].kind != "extra" or install.installer != "pip":
        torch = family.get(_TORCH)
        newest = _newest_build(matrix, variant, python, torch.specifier) if torch is not None else None
        release = next(iter(matrix.torch_releases_where(lambda version: version == newest)), None)
        if release is None:
            return replace(asked, problem=problem)
        versions = {name: newest if name == _TORCH else getattr(release, name) for name in family}
        family = {name: want for name, want in family.items() if versions[name]}
        bounds = tuple(Want(name=name, specifier=f"=={versions[name]}") for name in family)
    opaque = tuple(name for name in problem.opaque if name not in family)
    newest_ = replace(problem, opaque=opaque, bounds=(*problem.bounds, *bounds))
    return replace(asked, problem=newest_ if is_satisfiable(matrix, newest_) else problem)


@lru_cache(maxsize=64)
def _newest_build(matrix: Matrix, variant: str, python: str, specifier: str) -> str | None:
    rows = [row for row in matrix.torch_builds if row.variant == variant and python in row.pythons]
    return max((row.torch for row in rows if admits(specifier, row.torch)), key=parse, default=None)


def _place(environment: Environment, install: Install) -> int:
    """Return where a command stands among all; what no command says is taken to come before them."""
    command = command_of(environment, install)
    return next((at for at, other in enumerate(environment.commands) if other is command), -1)


def _without(there: dict[str, Present], command: Command) -> dict[str, Present]:
    is_known = command.is_certain and all(word.text is not None for word in command.words)
    left = {name: item for name, item in there.items() if not is_removed(command, name)}
    if is_known:
        return left
    return {name: item if name in left else replace(item, version=None, is_sure=False) for name, item in there.items()}


def _is_known(matrix: Matrix, asked: Asked) -> bool:
    """Tell whether everything that a command may install is known."""
    install = asked.install
    if not (install.is_certain and install.is_complete) or install.installer not in INSTALLERS:
        return False
    if asked.problem.is_open or any(item.applies is None for item in install.requirements):
        return False
    return all(want.name in FAMILY or matrix.published(want.name) for want in asked.problem.wants)


def _after(
    environment: Environment,
    matrix: Matrix,
    asked: Asked,
    there: dict[str, Present],
    number: int,
    *,
    is_sure: bool,
    is_lenient: bool,
) -> dict[str, Present] | None:
    """Return what is there after a command; ``None`` where it cannot be met."""
    install, problem = asked.install, asked.problem
    unsure = {
        item.name: Present(version=None, step=number, is_sure=False)
        for item in install.requirements
        if item.ecosystem == "pypi" and (item.applies is None or item.url is not None or not install.is_certain)
    }
    is_sync = install.installer == "uv" and install.command.endswith("sync")
    have = ({} if is_sync else there) | dict(_of_conda(matrix, asked, there, number))
    wanted = {want.name for want in problem.wants}
    upgrade = upgrade_of(environment, install)
    free = wanted.union(have) if install.installer == "uv" else wanted
    upgraded = free if upgrade.is_of_asked else free & upgrade.names
    kept = {} if upgrade.is_of_all else have
    held = {name: item.version for name, item in kept.items() if name not in upgraded}
    opaque = (*problem.opaque, *(name for name, version in held.items() if version is None))
    problem = replace(
        problem,
        there=tuple((name, version) for name, version in held.items() if version is not None),
        is_shallow=install.has_no_deps,
        opaque=tuple(dict.fromkeys(opaque)),
    )
    is_open = not install.is_certain or install.has_no_index or problem.is_open
    answer = picks_of(matrix, problem) if not is_open else None
    if answer is None and not is_open and not is_satisfiable(matrix, problem):
        if not is_lenient:
            return None
        brought = {
            name: Present(version=version, step=number, is_sure=False) for name, version in _alone(matrix, problem)
        }
        return brought | have
    pinned = {want.name: _pinned(item) for want, item in asked.origins.items()}
    picked = answer.versions.items() if answer is not None else ()
    is_sure = is_sure and all(_has_needs(matrix, name, version) for name, version in picked)
    if answer is None:
        # Nobody knows what else this moves.
        moved = {name: replace(item, version=None) for name, item in have.items()}
        named = {name: Present(version=version, step=number, is_sure=False) for name, version in pinned.items()}
        return have | (moved if pinned else {}) | named | unsure
    found = {}
    for name, version in answer.versions.items():
        release = version or pinned.get(name)
        if name not in held or (release is not None and release != held[name]):
            found[name] = Present(version=release, step=number, is_sure=is_sure and name not in upgraded)
    return have | found | unsure


def _has_needs(matrix: Matrix, name: str, version: str | None) -> bool:
    """Tell whether it is known what a release needs, as far as releases of the package are known at all."""
    package = matrix.published(name) if version is not None else None
    release = package.release(version) if package is not None and version is not None else None
    return release is None or release.has_needs


def _may_bring_more(environment: Environment) -> bool:
    """Tell whether something that nobody reads may put packages there: a script, or what another stage copies in."""
    if environment.copies_from:
        return True
    texts = [[word.text or "" for word in command.words[:2]] for command in environment.commands]
    return any(
        words[0].startswith(("./", "../")) or (words[0] in ("sh", "bash") and not "".join(words[1:]).startswith("-"))
        for words in texts
        if words
    )


def _of_system(environment: Environment) -> Iterator[str]:
    """Yield the packages that apt puts where the Python of the system looks."""
    for command in environment.commands:
        if command.program in ("apt", "apt-get"):
            for word in command.words:
                if (word.text or "").startswith("python3-"):
                    yield (word.text or "").removeprefix("python3-").partition("=")[0]


def _alone(matrix: Matrix, problem: Problem) -> Iterator[tuple[str, str | None]]:
    """Yield what the needs of pins come to, each by itself, where all together exclude each other."""
    free = replace(problem, bounds=(), there=())
    for want in problem.wants:
        pin = pin_of(want.specifier)
        if pin is not None:
            yield want.name, pin
        for need in need_asks(matrix, want.name, pin, free, want.extras) if pin is not None else (want,):
            answer = picks_of(matrix, replace(free, wants=(need,)))
            yield from answer.versions.items() if answer is not None else ()


def _pinned(requirement: Requirement) -> str | None:
    return requirement.version.partition("+")[0] if requirement.version is not None else None


def _of_conda(matrix: Matrix, asked: Asked, there: Mapping[str, Present], number: int) -> Iterator[tuple[str, Present]]:
    """Yield what conda brings: the releases that are named, and what they need in one that is not known."""
    of_conda = [item for item in asked.install.requirements if item.ecosystem == "conda"]
    named = {_TORCH if item.name == PYTORCH else item.name: release_of(item) or item.version for item in of_conda}
    for name in named:
        for need in _closure(matrix, name, asked.problem.python or ""):
            if need not in there:
                yield need, Present(version=None, step=number, is_sure=False)
    for name, version in named.items():
        yield name, Present(version=version, step=number, is_sure=False)


@lru_cache(maxsize=256)
def _closure(matrix: Matrix, name: str, python: str) -> tuple[str, ...]:
    answer = picks_of(matrix, Problem(wants=(Want(name=name),), python=python))
    return tuple(other for other in answer.versions if other != name) if answer is not None else ()
