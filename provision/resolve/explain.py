"""Why a request is refused: the smallest conflict, the chain of reasons, and ways out that were tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, islice
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.query import called_extras, find_extras, newest_release
from provision.records import replace
from provision.resolve.named import named_lines
from provision.resolve.options import fact_of
from provision.resolve.request import ANY, FRAMEWORKS, Request, matches, to_flags
from provision.resolve.rules import Rejection, taken
from provision.resolve.stack import Alternative, FactRef, Reason, Refusal
from provision.versions import branch_of, minor_of, parse

ALTERNATIVES_MAX = 3
TRIALS_MAX = 60
PAIR_TRIALS_MAX = 400
PAIR_VALUES_MAX = 24
SUBJECTS_SHOWN = 6
GROUPS_SHOWN = 4

OF_BUILDS = ("cuda", "gpu", "gpu-library", "driver", "platform")
"""The rules whose word on every known build is a proof only where no other build can exist."""

OF_LINES = "lines"
"""The rule that lines of a user break among themselves."""

NOT_COMPLETED = "cannot be completed: "
"""What a rejection says first that is about the packages beside a candidate."""

Trial = Callable[[Request], Any]
"""Returns a list of rejections where a request cannot be met, anything else where it can."""

Proof = Callable[[Request, str], bool]
"""Tells whether a request that the facts can meet, and what differs in it, is met by whoever else has a say."""


def refuse(
    request: Request, matrix: Matrix, rejections: list[Rejection], trial: Trial, proof: Proof | None = None
) -> Refusal:
    """Word a refusal.

    Args:
        request: The request that cannot be met.
        matrix: The facts.
        rejections: Why each candidate failed.
        trial: Attempts a changed request.
        proof: Has a say in whether an alternative works.
    """
    core = _smallest(request, trial, is_proved=_is_proved(rejections))
    found = trial(core)
    causes = found if isinstance(found, list) else rejections
    is_proved = _is_proved(causes)
    worded = core
    if all(cause.rule == OF_LINES for cause in causes):
        # Lines that exclude each other do so beside any framework.
        worded = replace(core, **dict.fromkeys(FRAMEWORKS))
        said = {cause.because.removeprefix(NOT_COMPLETED) for cause in causes}
        causes = [Rejection(rule=OF_LINES, is_proved=True, subject="", because=text) for text in sorted(said)]
    conflict = tuple(dict.fromkeys(_words(worded, request)))
    wanted = " and ".join(f"`{words}`" for words in conflict) or "this request"
    if is_proved:
        message = f"{wanted} cannot be met" if len(conflict) < 2 else f"{wanted} cannot be met together"
    else:
        message = f"the facts do not know whether {wanted} can be met"
    return Refusal(
        is_proved=is_proved,
        message=message,
        conflict=conflict,
        because=(
            *_chain(causes),
            *(completeness(causes, matrix) if is_proved else ()),
            *taken_release(core.driver, matrix),
        ),
        alternatives=tuple(_alternatives(request, core, matrix, trial, proof or _has_no_say)),
    )


def taken_release(driver: str | None, matrix: Matrix) -> Iterator[Reason]:
    """Say which release a driver branch was taken as."""
    if driver is not None and "." not in driver:
        branch = branch_of(driver)
        release = newest_release(matrix, branch)
        row = next((item for item in matrix.driver_branches if item.branch == branch), None)
        if release is not None and row is not None:
            fact = fact_of("driver", driver, row)
            yield Reason(subject="driver release", because=taken(driver, release), facts=(fact,))


def _is_proved(causes: list[Rejection]) -> bool:
    """Tell whether every candidate is excluded by facts; one open candidate leaves the request open."""
    return bool(causes) and all(cause.is_proved for cause in causes)


PARTS = (
    "constraints",
    "requirements",
    "extras",
    "require_secure",
    "container_toolkit",
    "base",
    "flavor",
    "os",
    "platform",
    "gpus",
    "driver",
    "python",
    "cuda",
    "jax",
    "tensorflow",
    "torch",
)


def _smallest(request: Request, trial: Trial, *, is_proved: bool) -> Request:
    """Drop every part whose absence leaves the request impossible; what remains is a smallest conflict.

    A part on which the proof rests stays, so that a proved refusal is not explained by an open question.
    """

    def is_still_refused(fewer: Request) -> bool:
        found = trial(fewer)
        return isinstance(found, list) and (not is_proved or _is_proved(found))

    core = request
    for part in PARTS:
        value = getattr(core, part)
        if not value:
            continue
        if isinstance(value, tuple):
            # A file may have thousands of lines: what has no part in the conflict goes in large pieces first.
            size = len(value)
            while size:
                left = getattr(core, part)
                for start in range(0, len(left), size):
                    piece = frozenset(left[start : start + size])
                    fewer = _changed(core, part, tuple(item for item in getattr(core, part) if item not in piece))
                    if is_still_refused(fewer):
                        core = fewer
                size //= 2
            continue
        is_last = part in FRAMEWORKS and not any(getattr(core, name) for name in FRAMEWORKS if name != part)
        if is_last and any(cause.subject for cause in trial(core)):
            # Without any framework the request would be another one, for CUDA alone, unless no build was looked at.
            continue
        fewer = _changed(core, part, False if part == "require_secure" else None)
        if not _is_empty(fewer) and is_still_refused(fewer):
            core = fewer
    return core


def _is_empty(request: Request) -> bool:
    return not any(getattr(request, part) for part in PARTS)


def _words(core: Request, request: Request) -> Iterator[str]:
    """Yield the parts of a conflict; a framework that only lines of the whole request name goes by these lines."""
    words = to_flags(replace(core, requirements=(), constraints=()))
    position = 0
    while position < len(words):
        if position + 1 < len(words) and not words[position + 1].startswith("--"):
            framework = words[position].removeprefix("--")
            lines = [line.text for line in named_lines(request.requirements) if line.framework == framework]
            if words[position + 1] == ANY and request.requirements:
                yield from (f"requirement {line}" for line in lines)
            else:
                yield f"{words[position]} {words[position + 1]}"
            position += 2
        else:
            yield words[position]
            position += 1
    for line in core.requirements:
        yield f"requirement {line}"
    for line in core.constraints:
        yield f"constraint {line}"


def _chain(causes: list[Rejection]) -> Iterator[Reason]:
    """Group rejections that say the same of different candidates, most common rule first."""
    groups: dict[tuple[str, str, bool], list[Rejection]] = {}
    for cause in causes:
        groups.setdefault((cause.rule, cause.because, cause.is_proved), []).append(cause)
    said: dict[str, int] = {}
    for (rule, because, _), members in groups.items():
        said[rule] = said.get(rule, 0) + 1
        if said[rule] > GROUPS_SHOWN:
            continue
        subjects = list(dict.fromkeys(member.subject for member in members if member.subject))
        facts: dict[str, FactRef] = {fact.id: fact for member in members for fact in member.facts}
        text = _sentence(subjects, because)
        yield Reason(subject=rule, because=text, facts=tuple(facts.values())[: SUBJECTS_SHOWN + 2])
    for rule, count in said.items():
        if count > GROUPS_SHOWN:
            yield Reason(subject=rule, because=f"{count - GROUPS_SHOWN} more candidates fail likewise")


PLURAL = {
    "is": "are",
    "has": "have",
    "needs": "need",
    "reaches": "reach",
    "lacks": "lack",
    "brings": "bring",
    "names": "name",
    "does": "do",
    "fails": "fail",
    "stands": "stand",
}


def _sentence(subjects: list[str], because: str) -> str:
    """Join candidates and what is wrong with them; a framework's name is written once."""
    if not subjects:
        return because
    if len(subjects) == 1:
        return f"{subjects[0]} {because}"
    first = subjects[0].partition(" ")[0]
    if all(subject.startswith(f"{first} ") for subject in subjects):
        subjects = [subjects[0], *(subject.removeprefix(f"{first} ") for subject in subjects[1:])]
    if len(subjects) > SUBJECTS_SHOWN:
        names = f"{', '.join(subjects[: SUBJECTS_SHOWN - 1])} and {len(subjects) - SUBJECTS_SHOWN + 1} more"
    else:
        names = f"{', '.join(subjects[:-1])} and {subjects[-1]}"
    verb, _, rest = because.partition(" ")
    return f"{names} {PLURAL.get(verb, verb)} {rest}"


def completeness(causes: list[Rejection], matrix: Matrix) -> Iterator[Reason]:
    """Say that the rejected builds are all there are, where that is what the proof rests on."""
    versions = {cause.version[1] for cause in causes if cause.version[0] == "torch" and cause.rule in OF_BUILDS}
    rows = [row for row in matrix.torch_releases if row.version in versions and row.is_variants_complete]
    if rows:
        facts = tuple(fact_of("torch", row.version, row) for row in rows)
        names = [f"torch {row.version}" for row in rows]
        because = "is known with all its builds" if len(rows) == 1 else "are known with all their builds"
        yield Reason(subject="complete", because=_sentence(names, because), facts=facts[:SUBJECTS_SHOWN])


def _has_no_say(_: Request, __: str) -> bool:
    return True


def _alternatives(request: Request, core: Request, matrix: Matrix, trial: Trial, proof: Proof) -> list[Alternative]:
    """Return changed requests that work: for each part of the conflict the nearest value that does."""
    found: list[Alternative] = []
    trials = 0
    parts = [part for part in reversed(PARTS) if getattr(core, part)]
    queues = [queue for part in parts for queue in _queues(part, request, core, matrix)]
    # Round-robin over the parts, so that one stubborn part does not use up the trials of the others.
    solved: set[int] = set()
    while queues and trials < TRIALS_MAX and len(found) < ALTERNATIVES_MAX:
        for number, queue in enumerate(queues):
            if number in solved or len(found) >= ALTERNATIVES_MAX:
                continue
            changed = next(queue, None)
            if changed is None:
                solved.add(number)
                continue
            trials += 1
            candidate, change = changed
            if _is_empty(candidate) or isinstance(trial(candidate), list):
                continue
            flags = to_flags(candidate)
            is_new = all(flags != other.flags for other in found)
            if is_new and not proof(candidate, change):
                continue
            if is_new:
                found.append(Alternative(flags=flags, change=change))
            solved.add(number)
        if len(solved) == len(queues):
            break
    return found or _pairs(request, core, matrix, trial, proof) or _remainder(request, trial, proof)


def _queues(part: str, request: Request, core: Request, matrix: Matrix) -> Iterator[Iterator[tuple[Request, str]]]:
    """Yield the changes of a part: of extras those of each one for itself, so that a way is found for each."""
    if part != "extras":
        yield changes_of(part, request, matrix)
        return
    for item in core.extras:
        yield _of_extra(item, request, matrix)


_WEIGHT = (
    *("gpus", "platform", "extras", "driver", *FRAMEWORKS, "python", "cuda", "os", "flavor", "base"),
    *("container_toolkit", "require_secure"),
)
"""Parts of a request, those first that people can change least."""


def _remainder(request: Request, trial: Trial, proof: Proof) -> list[Alternative]:
    """Return what of a request stands where no one or two changes are enough: part by part, what can be kept is."""
    changes: dict[str, Any] = {part: () if isinstance(getattr(request, part), tuple) else None for part in _WEIGHT}
    changes |= {name: ANY for name in FRAMEWORKS if getattr(request, name) is not None}
    kept = replace(request, **{**changes, "require_secure": False})
    left: list[str] = []
    for part in _WEIGHT:
        value = getattr(request, part)
        for item in value if isinstance(value, tuple) else (value,) if value else ():
            more = (*getattr(kept, part), item) if isinstance(value, tuple) else item
            fuller = _changed(kept, part, more)
            if isinstance(trial(fuller), list):
                alone = _changed(Request(), part, (item,) if isinstance(value, tuple) else item)
                left.append(item if part == "extras" else " ".join(to_flags(alone)[:2]))
            else:
                kept = fuller
    found = trial(kept)
    if _is_empty(kept) or isinstance(found, list):
        return []
    change = f"without {' and '.join(left)}"
    written = {line.framework for line in named_lines(kept.requirements)}
    for option in found.options:
        # A flag without a version is left out beside a file, where a line of it may say which framework that is.
        if getattr(kept, option.framework, None) == ANY and option.framework not in written:
            version = minor_of(option.version)
            kept = _changed(kept, option.framework, version)
            change = f"{option.framework} {version} {change}"
    if isinstance(trial(kept), list):
        return []
    return [Alternative(flags=to_flags(kept), change=change)] if left and proof(kept, change) else []


def _pairs(request: Request, core: Request, matrix: Matrix, trial: Trial, proof: Proof) -> list[Alternative]:
    """Return requests that work with two parts changed, where no single change does: for each pair the nearest."""
    found: list[Alternative] = []
    trials = 0
    parts = [part for part in reversed(PARTS) if getattr(request, part)]
    # A part outside the conflict may be what keeps the way out of it shut.
    pairs = [pair for pair in combinations(parts, 2) if any(getattr(core, part) for part in pair)]
    for first, second in pairs:
        for changed, change in _both(first, second, request, matrix):
            if trials >= PAIR_TRIALS_MAX or len(found) >= ALTERNATIVES_MAX:
                return found
            trials += 1
            if not isinstance(trial(changed), list) and proof(changed, change):
                found.append(Alternative(flags=to_flags(changed), change=change))
                break
    return found


def _both(first: str, second: str, request: Request, matrix: Matrix) -> Iterator[tuple[Request, str]]:
    """Yield the request with two parts changed, those nearest together first."""
    lefts = list(islice(changes_of(first, request, matrix), PAIR_VALUES_MAX))
    rights = list(islice(changes_of(second, request, matrix), PAIR_VALUES_MAX))
    for distance in range(len(lefts) + len(rights) - 1):
        for index, (_, left) in enumerate(lefts):
            if 0 <= distance - index < len(rights):
                changed, right = rights[distance - index]
                value = getattr(lefts[index][0], first)
                yield _changed(changed, first, value), f"{left} and {right}"


def changes_of(part: str, request: Request, matrix: Matrix) -> Iterator[tuple[Request, str]]:
    """Yield the request with one part changed, nearest value first, and the change in words."""
    if part in FRAMEWORKS:
        for version in _nearest(getattr(request, part), _minors(part, matrix)):
            yield _changed(request, part, version), f"{part} {version}"
        others = [name for name in FRAMEWORKS if name != part and getattr(request, name)]
        if others:
            yield _changed(request, part, None), f"without {part}"
    elif part == "cuda":
        minors = sorted({minor_of(row.version) for row in matrix.cuda}, key=parse)
        for version in _nearest(request.cuda, minors):
            yield replace(request, cuda=version), f"CUDA {version}"
    elif part == "python":
        versions = sorted({row.version for row in matrix.pythons}, key=parse)
        for version in _nearest((request.python or "").rstrip("t"), versions):
            yield replace(request, python=version), f"Python {version}"
    elif part == "driver":
        for driver in _drivers(request.driver or "0", matrix):
            yield replace(request, driver=driver), f"driver {driver}"
    elif part == "container_toolkit":
        for toolkit in reversed(matrix.container_toolkits):
            yield replace(request, container_toolkit=toolkit.version), f"container toolkit {toolkit.version}"
    elif part == "platform":
        yield replace(request, platform="linux/amd64"), "on linux/amd64"
    elif part == "flavor":
        for flavor in ("jit", "devel"):
            yield replace(request, flavor=flavor), f"flavor {flavor}"
    elif part in ("requirements", "constraints"):
        return
    elif part == "extras":
        for item in request.extras:
            yield from _of_extra(item, request, matrix)
    elif part in ("os", "base", "gpus", "require_secure"):
        if part == "gpus" and len(request.gpus) < 2:
            return
        yield from _without(part, request)


def _of_extra(item: str, request: Request, matrix: Matrix) -> Iterator[tuple[Request, str]]:
    """Yield the request with another extra in the place of one, and without it."""
    kept = tuple(other for other in request.extras if other != item)
    meant = find_extras(matrix, item) or called_extras(matrix, item)
    for name in dict.fromkeys(name for row in meant for name in (*row.by_cuda[:1], row.successor or row.id)):
        if name not in request.extras:
            yield replace(request, extras=tuple(sorted((*kept, name)))), f"--with {name}"
    yield replace(request, extras=kept), f"without {item}"


def _drivers(wanted: str, matrix: Matrix) -> list[str]:
    """Return drivers the facts name: those above the wished one, lowest first, then those below, highest first."""
    named = {row.minimum_driver for row in matrix.cuda}
    named |= {version for row in matrix.security_floors for version in row.fixed.values()}
    named |= {row.last_release for row in matrix.driver_branches if row.last_release is not None}
    ordered = sorted(named, key=parse)
    newer = [driver for driver in ordered if parse(driver) > parse(wanted)]
    return newer + [driver for driver in reversed(ordered) if parse(driver) < parse(wanted)]


def _without(part: str, request: Request) -> Iterator[tuple[Request, str]]:
    value = getattr(request, part)
    if isinstance(value, tuple):
        for item in value:
            yield _changed(request, part, tuple(other for other in value if other != item)), f"without {item}"
    elif part != "require_secure":
        yield _changed(request, part, None), f"without --{part} {value}"


def _changed(request: Request, part: str, value: object) -> Request:
    changes: dict[str, Any] = {part: value}
    return replace(request, **changes)


def _minors(framework: str, matrix: Matrix) -> list[str]:
    rows: Iterable[Any] = {
        "torch": matrix.torch_releases,
        "tensorflow": matrix.tensorflow,
        "jax": matrix.jax,
    }[framework]
    return sorted({minor_of(row.version) for row in rows}, key=parse)


def _nearest(wanted: str | None, versions: list[str]) -> list[str]:
    """Order versions by their distance from the wished one in the list, the newer first at equal distance."""
    if not versions:
        return []
    numbers = re.findall(r"[0-9]+(?:\.[0-9]+)*", wanted or "")
    anchor = parse(numbers[0]) if numbers else parse(versions[-1])
    at = sum(1 for version in versions if parse(version) < anchor)
    ordered = sorted(range(len(versions)), key=lambda index: (abs(index - at), -index))
    return [versions[index] for index in ordered if not wanted or not matches(wanted, versions[index])]
