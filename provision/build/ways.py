"""Ways out of a refusal: changed requests, each tried by the facts, and locked by the index, before it is named."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from provision.build.uv import Uv
from provision.errors import ProvisionError, first_of
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.explain import changes_of
from provision.resolve.request import ANY, FRAMEWORKS, Request, to_flags
from provision.resolve.requirements import normalise_name, requirement_of
from provision.resolve.solve import TENSORFLOW_CPU, named_again
from provision.resolve.stack import Refusal, Stack
from provision.versions import minor_of

TRIES_MAX = 16
SECONDS_MAX = 60
WAYS_MAX = 3
_FAILURES_SHOWN = 8
_LINES_MAX = 6
_LINE_PARTS = ("requirements", "constraints")


@record
class Way:
    """A changed request that was locked whole.

    Attributes:
        request: It.
        change: What differs, in words.
        command: The command line that asks for it; absent where a line has to change, and no flag.
    """

    request: Request
    change: str
    command: str | None

    @property
    def hint(self) -> str:
        """How people are told of it."""
        return f"`{self.command}` works: {self.change}" if self.command else f"it works {self.change}"

    def to_json(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"command": self.command, "change": self.change} if self.command else {"change": self.change}


class Trials:
    """Locks changed requests whole, until a bound of number or time is reached.

    Args:
        answer: Returns what the facts say of a request.
        lock: Returns an answer with all that its lines need, or raises.
        uv: Who is asked; its answers are waited for no longer than the bound. Nobody, where the facts alone decide.
        words: Of the command line, beyond the request.
    """

    def __init__(
        self,
        answer: Callable[[Request], Stack | Refusal],
        lock: Callable[[Request, Stack], Stack],
        uv: Uv | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        self._answer = answer
        self._lock = lock
        self.uv = uv
        self._words = words
        self._deadline: float | None = None
        self._count = 0
        self.failed: list[str] = []

    @property
    def is_spent(self) -> bool:
        """Whether the bound is reached."""
        is_late = self._deadline is not None and time.monotonic() >= self._deadline
        return is_late or self._count >= TRIES_MAX

    def __call__(self, request: Request, change: str) -> Stack | None:
        """Return the lock of a changed request; nothing where there is none, or the bound is reached.

        Args:
            request: It.
            change: What differs, in words.
        """
        try:
            stack = self._answer(named_again(request))
        except ProvisionError:
            return None
        if not isinstance(stack, Stack) or stack.image is None or (stack.python is not None and not stack.image.tools):
            return None
        return self.attempt(lambda: self._lock(stack.request, stack), change)

    def attempt(self, lock: Callable[[], Stack], change: str) -> Stack | None:
        """Return what something locks, within the bound; nothing where it does not."""
        if self._deadline is None:
            self._deadline = time.monotonic() + SECONDS_MAX
        if self.is_spent:
            return None
        self._count += 1
        try:
            with self.uv.until(self._deadline) if self.uv is not None else nullcontext():
                return lock()
        except ProvisionError:
            self.failed.append(change)
            return None

    def way(self, request: Request, change: str, *, is_line: bool = False) -> Way | None:
        """Return a changed request as a way out, where it is one.

        Args:
            request: It.
            change: What differs, in words.
            is_line: It differs in lines, which no flag changes.
        """
        if self(request, change) is None:
            return None
        return Way(request=request, change=change, command=None if is_line else self.command(request))

    def command(self, request: Request) -> str:
        """Return the command line that asks for a request."""
        return shlex.join(("provision", "image", *to_flags(request), *self._words))

    def said(self) -> Iterator[str]:
        """Yield what was tried in vain, as a hint."""
        tried = list(dict.fromkeys(self.failed))
        if tried:
            rest = "; stopped at the limit on attempts" if self.is_spent else ""
            yield f"also tried, without success: {first_of(tried, _FAILURES_SHOWN)}{rest}"


def find_ways(
    request: Request,
    matrix: Matrix,
    stack: Stack | None,
    because: Iterable[str],
    trials: Trials,
    *,
    has_extras: bool = True,
) -> list[Way]:
    """Return ways out, one of a kind: other frameworks, Python, CUDA, release of a package, one package less.

    Args:
        request: What was refused.
        matrix: The facts.
        stack: What the facts answer to it; where they refuse it themselves, they name the versions that do, and only
            lines are changed here.
        because: Why; packages that it names are changed.
        trials: Who tries.
        has_extras: Extras are left out too, each for itself; the facts may have tried that.
    """
    names = {normalise_name(word) for text in because for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", text)}
    queues = [_on_the_cpu(request, names, trials), _releases(request, names, trials), _without(request, names, trials)]
    queues += [_without_extra(request, extra, trials) for extra in request.extras if has_extras]
    if stack is not None:
        queues[:0] = [_frameworks(request, stack, trials), _cudas(request, trials)]
        if request.python is not None or "python" in names:
            queues.insert(1, _pythons(request, matrix, stack, trials))
    found: list[Way] = []
    # In turn, so that one kind does not use up the tries of the others.
    while queues and len(found) < WAYS_MAX and not trials.is_spent:
        for queue in list(queues):
            way = next(queue, False)
            if way is not None:
                queues.remove(queue)
            if isinstance(way, Way):
                found.append(way)
    return found[:WAYS_MAX]


def _frameworks(request: Request, stack: Stack, trials: Trials) -> Iterator[Way | None]:
    loose: dict[str, Any] = {name: ANY for name in FRAMEWORKS if getattr(request, name) not in (None, ANY)}
    if not loose:
        return
    for python in dict.fromkeys((request.python, None)):
        words = f"any version of {' and '.join(loose)}{'' if python == request.python else ' on any Python'}"
        found = trials(replace(request, python=python, **loose), words)
        versions: dict[str, Any] = {name: found.frameworks[name] for name in loose} if found is not None else {}
        if found is None or versions.items() <= stack.frameworks.items():
            yield None
            continue
        change = " and ".join(f"{name} {version}" for name, version in versions.items())
        exact = replace(request, **versions)
        with_python = replace(exact, python=found.python)
        yield trials.way(exact, change) or trials.way(with_python, f"{change} and Python {found.python}")


def _pythons(request: Request, matrix: Matrix, stack: Stack, trials: Trials) -> Iterator[Way | None]:
    for other, change in changes_of("python", request, matrix):
        if other.python != stack.python:
            yield trials.way(other, change)


def _cudas(request: Request, trials: Trials) -> Iterator[Way | None]:
    found = trials(replace(request, cuda=None), "any version of CUDA") if request.cuda is not None else None
    if found is not None:
        version = minor_of(found.cuda)
        yield trials.way(replace(request, cuda=version), f"CUDA {version}")


def _on_the_cpu(request: Request, names: set[str], trials: Trials) -> Iterator[Way | None]:
    """Yield the request with a TensorFlow that leaves the GPU to the other framework, as who only reads data wants."""
    if request.torch is None and request.jax is None:
        return
    for part, line in _lines(request, names):
        requirement = requirement_of(line)
        if part == "requirements" and normalise_name(requirement.name) == "tensorflow" and not requirement.extras:
            other = line.replace(requirement.name, TENSORFLOW_CPU, 1)
            changed = replace(_with_line(request, part, line, other), tensorflow=None)
            yield trials.way(changed, f"with `{other}`, which leaves the GPU alone, in place of `{line}`", is_line=True)


def _releases(request: Request, names: set[str], trials: Trials) -> Iterator[Way | None]:
    for part, line in _lines(request, names):
        requirement = requirement_of(line)
        if not requirement.specifier:
            continue
        name = normalise_name(requirement.name)
        found = trials(_with_line(request, part, line, _respecified(line, "")), f"any version of {name}")
        if found is None or name not in found.packages:
            yield None
            continue
        other = _respecified(line, f"=={found.packages[name].partition('+')[0]}")
        changed = _with_line(request, part, line, other)
        yield trials.way(changed, f"with `{other}` in place of `{line}`", is_line=True) if other != line else None


def _without(request: Request, names: set[str], trials: Trials) -> Iterator[Way | None]:
    for part, line in _lines(request, names):
        if part == "constraints" or normalise_name(requirement_of(line).name) not in FRAMEWORKS:
            yield trials.way(_with_line(request, part, line, None), f"without `{line}`", is_line=True)


def _without_extra(request: Request, extra: str, trials: Trials) -> Iterator[Way | None]:
    other = replace(request, extras=tuple(item for item in request.extras if item != extra))
    yield trials.way(other, f"without --with {extra}") if other != Request() else None


def _lines(request: Request, names: set[str]) -> list[tuple[str, str]]:
    """Return the lines about packages of some names that name a release, or any: what stands in no address."""
    found = []
    for part in _LINE_PARTS:
        for line in getattr(request, part):
            requirement = requirement_of(line)
            if requirement.url is None and normalise_name(requirement.name) in names:
                found.append((part, line))
    # What pins most is most likely what is in the way.
    found.sort(key=lambda item: "==" not in item[1])
    return found[:_LINES_MAX]


def _respecified(line: str, specifier: str) -> str:
    requirement = requirement_of(line)
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker is not None else ""
    return f"{requirement.name}{extras}{specifier}{marker}"


def _with_line(request: Request, part: str, line: str, other: str | None) -> Request:
    """Return the request with one line put in the place of another, or with none."""
    lines = [item if item != line else other for item in getattr(request, part)]
    changes: dict[str, Any] = {part: tuple(item for item in lines if item is not None)}
    name = normalise_name(requirement_of(line).name)
    if name in FRAMEWORKS and getattr(request, name) is not None:
        changes[name] = ANY  # the solver holds it to the lines
    return replace(request, **changes)
