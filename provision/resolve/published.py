"""Whether an installer can meet a set of requirements, and which releases it would take, by what the index has.

Most sets need no search: where the newest release of everything that is asked for fits everything else that is asked
for, every installer takes just these. Else what one release alone will do for is settled, with what that asks for, and
only what leaves a choice is searched, by resolvelib, which is pip's own resolver. What is not kept of the index meets
anything and asks for nothing, so that it is never a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.published import PublishedPackage, PublishedRelease
from provision.records import record, replace
from provision.resolve.markers import applies
from provision.resolve.request import FRAMEWORKS
from provision.versions import is_empty, parse, spec_of

_TRIES_MAX = 40
"""How often something is left out to find the smallest part that is still refused."""
_WALKS_MAX = 6
"""How often the newest of everything is tried before a search, which costs as much as a few of these."""
_NEWEST = 4
"""How many releases are tried one by one before those that a specifier admits are reckoned all at once."""
_ROUNDS_MAX = 120
"""How long a search may take, beside what the requirements themselves take; what takes longer stays unknown."""
_ROUNDS_THERE_MAX = 300
"""How long one may take where releases are there already, which stand in the way of the newest of everything."""


@record
class Want:
    """One requirement, of a file or of a release.

    Attributes:
        name: Normalised.
        extras: Extras.
        specifier: Clauses, empty for any version; a local part counts for nothing.
    """

    name: str
    extras: tuple[str, ...] = ()
    specifier: str = ""

    @property
    def text(self) -> str:
        """The requirement as people write it."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.specifier}"


@record
class Problem:
    """What one command asks an installer for.

    Attributes:
        wants: Its requirements.
        bounds: What limits distributions without asking for them.
        python: ``3.11``; ``None`` where releases are not held against a Python.
        machine: ``x86_64`` or ``aarch64``.
        opaque: Distributions that come from elsewhere, so that nothing is known of them.
        is_open: Other indexes are asked too: they may have what is not known here.
        is_shallow: What the requirements themselves ask for is left out.
        there: Distribution and release of what is there already: an installer keeps it where it will do.
    """

    wants: tuple[Want, ...]
    bounds: tuple[Want, ...] = ()
    there: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    machine: str = "x86_64"
    opaque: tuple[str, ...] = ()
    is_open: bool = False
    is_shallow: bool = False


@record
class Picks:
    """The releases that an installer takes.

    Attributes:
        versions: Distribution → version, ``None`` where it is not known.
    """

    versions: Mapping[str, str | None]


@record
class Clash:
    """Why no installer can meet a problem.

    Attributes:
        wants: Requirements that cannot be met together, none of which can be left out.
        reasons: Why, the shortest chain that was found.
    """

    wants: tuple[Want, ...]
    reasons: tuple[str, ...]


@record
class _Refusal:
    """Why a search found nothing, and the distributions that have a part in it."""

    reasons: tuple[str, ...]
    names: frozenset[str]


def solve_published(matrix: Matrix, problem: Problem) -> Picks | Clash | None:
    """Solve a problem; ``None`` where the search was given up."""
    answer = _search(matrix, problem)
    if not isinstance(answer, _Refusal):
        return answer
    least = least_of(matrix, problem, (problem.python,))
    chain = _search(matrix, least, is_told=True)
    return Clash(wants=least.wants, reasons=chain.reasons if isinstance(chain, _Refusal) else answer.reasons)


def picks_of(matrix: Matrix, problem: Problem) -> Picks | None:
    """Return what an installer takes; ``None`` where that is nothing, or not known. Why is not looked for."""
    answer = _search(matrix, problem)
    return answer if isinstance(answer, Picks) else None


def is_satisfiable(matrix: Matrix, problem: Problem) -> bool:
    """Tell whether a problem has an answer, or may have one."""
    return _has_answer(matrix, problem) or not _is_refused(matrix, problem)


def least_of(matrix: Matrix, problem: Problem, pythons: Sequence[str | None]) -> Problem:
    """Return the smallest part of a problem that each of some Pythons refuses, as it does the whole.

    It is as small as leaving out one at a time makes it.
    """

    def is_refused(wants: Sequence[Want]) -> bool:
        part = replace(problem, wants=tuple(wants))
        return not any(is_satisfiable(matrix, replace(part, python=python)) for python in pythons)

    answers = [_search(matrix, replace(problem, python=python), is_told=True) for python in pythons]
    names = frozenset[str]().union(*(answer.names for answer in answers if isinstance(answer, _Refusal)))
    kept = list(problem.wants)
    named = [want for want in kept if want.name in names]
    if named and len(named) < len(kept) and is_refused(named):
        kept = named
    size, left = len(kept) // 2, _TRIES_MAX
    # Whole stretches first: most requirements have no part in it.
    while size:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            left -= 1
            if rest and left > 0 and is_refused(rest):
                kept = rest
            else:
                start += size
        size //= 2
    return replace(problem, wants=tuple(kept))


def _is_refused(matrix: Matrix, problem: Problem) -> bool:
    return isinstance(_search(matrix, problem), _Refusal)


def is_on_index(matrix: Matrix, name: str, version: str) -> bool | None:
    """Tell whether an index has a release; ``None`` for what may have come since, and for pre-releases."""
    package = matrix.published(name)
    if package is None or not package.versions:
        return None
    if release_for(package, version.partition("+")[0]) is not None:
        return True
    public = parse(version.partition("+")[0])
    if public.is_prerelease or public > parse(package.versions[0]):
        return None
    return False


def need_asks(
    matrix: Matrix, name: str, version: str, problem: Problem, extras: tuple[str, ...] = ()
) -> tuple[Want, ...]:
    """Return what a release, with some extras, asks for where a problem is, nothing where it is not known."""
    package = matrix.published(name)
    release = release_for(package, version) if package is not None else None
    if release is None:
        return ()
    shelf = _Shelf(matrix, problem)
    wants: dict[Want, None] = {}
    left: list[tuple[str, ...]] = [(), extras] if extras else [()]
    while left:
        own = left.pop()
        key = f"{name}[{','.join(own)}]" if own else name
        for ask in shelf.needs(_Candidate(key, name, own, release, version)):
            if ask.want.name == name and ask.want.extras and ask.want not in wants:
                left.append(ask.want.extras)
            wants[ask.want] = None
    return tuple(want for want in wants if want.name != name)


def release_for(package: PublishedPackage, version: str) -> PublishedRelease | None:
    """Return a release by its version, however many zeros that is written with."""
    found = package.release(version)
    if found is not None:
        return found
    wanted = parse(version.partition("+")[0])
    return next((package.release(have) for have in package.versions if parse(have) == wanted), None)


@lru_cache(maxsize=512)
def _has_answer(matrix: Matrix, problem: Problem) -> bool:
    """Tell whether a few walks find an answer, each within the limits that those before ran into.

    What they find is an answer, but not always the one that installers take.
    """
    shelf = _Shelf(matrix, problem)
    limits: dict[str, list[str]] = {}
    for tried in range(_WALKS_MAX):
        if shelf.walk(limits) is not None:
            return True
        if sum(map(len, limits.values())) == tried:
            return False
    return False


@lru_cache(maxsize=512)
def _search(matrix: Matrix, problem: Problem, *, is_told: bool = False) -> Picks | _Refusal | None:
    """Return the picks, why there are none, or ``None`` where the search was given up.

    Args:
        matrix: What indexes have.
        problem: What is asked for.
        is_told: Every reason is wanted: what cannot be beside what is settled is tried all the same, which costs more.
    """
    shelf = _Shelf(matrix, problem, is_told=is_told)
    picks = shelf.walk()
    if picks is not None:
        return Picks(versions=picks)
    alone = shelf.unmet()
    if alone:
        return shelf.refusal([(ask, None) for ask in alone])
    aside = shelf.set_aside()
    rounds = (_ROUNDS_THERE_MAX if problem.there else _ROUNDS_MAX) + 2 * len(shelf.roots)
    refused = shelf.settle()
    if refused:
        return shelf.refusal([(ask, ask.by) for ask in refused])
    picks = shelf.walk()
    if picks is not None:
        return Picks(versions=aside | picks)
    from resolvelib import BaseReporter
    from resolvelib.resolvers import Resolution, ResolutionImpossible, ResolutionTooDeep

    resolution: Resolution[Any, Any, Any] = Resolution(_provider(shelf), BaseReporter())
    # Optimistic backjumping of resolvelib 1.2 forgets a state when it is given up, and calls impossible what is not.
    resolution._optimistic_backjumping_ratio = 0.0
    try:
        # Not `Resolver`: where distributions ask for each other, its graph of the answer can recurse without end.
        state = resolution.resolve(shelf.roots, max_rounds=max(rounds - len(shelf.settled), 1))
    except ResolutionImpossible as error:
        return shelf.refusal([(cause.requirement, cause.requirement.by) for cause in error.causes])
    except ResolutionTooDeep:
        return None
    found = shelf.reached(state.mapping)
    return Picks(versions=aside | found) if found is not None else None


class _Ask:
    """A requirement with its origin."""

    __slots__ = ("by", "key", "want")

    def __init__(self, want: Want, by: _Candidate | None) -> None:
        self.want = want
        self.by = by
        self.key = want.name if not want.extras else f"{want.name}[{','.join(want.extras)}]"


class _Candidate:
    """A release with the extras that are asked for.

    ``release`` is absent where nothing is known of it, and ``version`` too where no pin names it.
    """

    __slots__ = ("extras", "key", "name", "release", "version")

    def __init__(
        self, key: str, name: str, extras: tuple[str, ...], release: PublishedRelease | None, version: str | None
    ) -> None:
        self.key = key
        self.name = name
        self.extras = extras
        self.release = release
        self.version = release.version if release is not None else version


class _Known:
    """What was looked up once for all problems of one Python, machine and kind of index."""

    __slots__ = ("candidates", "fitting", "needs")

    def __init__(self) -> None:
        self.candidates: dict[tuple[str, str | None], _Candidate] = {}
        self.needs: dict[tuple[str, str | None], tuple[_Ask, ...]] = {}
        self.fitting: dict[tuple[str, str, bool], bool] = {}


@lru_cache(maxsize=64)
def _known(matrix: Matrix, python: str | None, machine: str, is_open: bool, without: tuple[str, ...]) -> _Known:
    del matrix, python, machine, is_open, without
    return _Known()


class _Shelf:
    """The releases that may be taken for one problem."""

    def __init__(self, matrix: Matrix, problem: Problem, *, is_told: bool = False) -> None:
        self.problem = problem
        self._is_told = is_told
        self._matrix = matrix
        self._open_needs: dict[tuple[str, str | None], tuple[_Ask, ...]] = {}
        self.settled: dict[str, _Candidate] = {}
        self._impossible: set[_Candidate] = set()
        self._settled_by: dict[str, list[_Ask]] = {}
        self._bounds: dict[str, tuple[str, ...]] = {}
        for bound in problem.bounds:
            if bound.specifier:
                self._bounds[bound.name] = (*self._bounds.get(bound.name, ()), bound.specifier)
        self._there = dict(problem.there)
        self._aside: dict[str, tuple[str, ...]] = {}
        self.roots = [_Ask(want, None) for want in problem.wants]
        self.origins: dict[str, _Ask] = {}
        names = {want.name for want in problem.wants}
        is_one = len(names.intersection(FRAMEWORKS)) < 2 and not any(name.startswith(_BROUGHT) for name in names)
        # Libraries of CUDA that one framework brings can exclude nothing, and builds of another index bring others.
        self._without = _BROUGHT if is_one or problem.is_open else ()
        known = _known(matrix, problem.python, problem.machine, problem.is_open, self._without)
        self._candidates, self._needs, self._fitting = known.candidates, known.needs, known.fitting

    def walk(self, limits: dict[str, list[str]] | None = None) -> dict[str, str | None] | None:
        """Take what is there, else the newest; ``None`` as soon as something else asks for another release of it.

        Args:
            limits: Distribution → clauses that are to be met too, where the newest that suits what was taken before
                will do. What asks for another release is added.
        """
        asks: dict[str, list[_Ask]] = {}
        picks: dict[str, _Candidate] = {}
        versions = {item.name: item.version for item in self.settled.values()}
        queue = sorted(self.roots, key=lambda ask: "==" not in ask.want.specifier)
        for ask in queue:
            asks.setdefault(ask.want.name, []).append(ask)
        while queue:
            ask = queue.pop(0)
            name = ask.want.name
            if name not in versions:
                texts = [item.want.specifier for item in asks[name]]
                if limits is None:
                    found = next(self.matches(ask.key, texts), None)
                else:
                    suiting = self.matches(ask.key, [*texts, *limits.get(name, ())])
                    found = next((item for item in suiting if self._suits(item, versions)), None)
                if found is None:
                    return None
                versions[name] = found.version
            elif not self.meets(ask.want, versions[name]):
                if limits is not None:
                    limits.setdefault(name, []).append(ask.want.specifier)
                return None
            if ask.key in picks:
                continue
            picks[ask.key] = candidate = self._candidate(ask.key, name, ask.want.extras, versions[name])
            for need in self.open_needs(candidate):
                asks.setdefault(need.want.name, []).append(need)
                queue.append(need)
        return versions

    def _suits(self, candidate: _Candidate, versions: Mapping[str, str | None]) -> bool:
        return all(self.meets(need.want, versions.get(need.want.name)) for need in self.needs(candidate))

    def reached(self, mapping: Mapping[str, _Candidate]) -> dict[str, str | None] | None:
        """Return what is asked for among what a search took on its way, beginning with the requirements themselves.

        ``None`` where that is no answer: resolvelib can lose what one asked for where distributions ask for each other.
        """
        queue = list(self.roots)
        found = dict(self.settled)
        while queue:
            ask = queue.pop(0)
            candidate = found.get(ask.key)
            if candidate is None:
                candidate = found[ask.key] = mapping[ask.key]
                queue += self.open_needs(candidate)
            if not self.meets(ask.want, candidate.version):
                return None
        return {item.name: item.version for item in found.values()}

    def unmet(self) -> list[_Ask]:
        """Return the requirements on one distribution that no release of it meets, whatever else is asked for."""
        by_name: dict[str, list[_Ask]] = {}
        for ask in self.roots:
            by_name.setdefault(ask.want.name, []).append(ask)
        for name, asks in by_name.items():
            if next(self.matches(name, [ask.want.specifier for ask in asks]), None) is None:
                return asks
        return []

    def set_aside(self) -> dict[str, str | None]:
        """Ask no longer for what nothing is known of, and return what is taken of it: it limits what others ask for."""
        found: dict[str, str | None] = {}
        for ask in self.roots:
            name = ask.want.name
            if not ask.want.extras and (name in self.problem.opaque or self._matrix.published(name) is None):
                self._aside[name] = (*self._aside.get(name, ()), ask.want.specifier)
        for name, specifiers in self._aside.items():
            found[name] = next(self.matches(name, specifiers)).version
        self.roots = [ask for ask in self.roots if ask.want.extras or ask.want.name not in found]
        return found

    def settle(self) -> list[_Ask]:
        """Take whatever one release alone will do for, and ask for what that asks for, until a choice is left.

        What is left to a search are ``roots``; each of its rounds costs as much as there are names.

        Returns:
            What is asked of one distribution and no release meets, nothing where there is no such.
        """
        asks: dict[str, list[_Ask]] = {}
        for ask in self.roots:
            asks.setdefault(ask.key, []).append(ask)
        # What is settled is looked at again behind all that is not, when everybody has said what they ask of it.
        waiting, again = dict.fromkeys(asks), dict[str, None]()
        refused = ""
        while waiting or again:
            key = next(iter(waiting or again))
            (waiting or again).pop(key)
            texts = [ask.want.specifier for ask in asks[key]]
            few = list(islice(self.matches(key, texts), 2))
            if not few:
                refused = refused or key
            if len(few) != 1 or key in self.settled or self._may_change(few[0], texts):
                continue
            self.settled[key] = few[0]
            for need in self.needs(few[0]):
                asks.setdefault(need.key, []).append(need)
                (again if need.key in self.settled else waiting)[need.key] = None
        if refused:
            return asks[refused]
        self._settled_by = {key: asks[key] for key in self.settled}
        self._open_needs.clear()
        self.roots = [ask for key, own in asks.items() if key not in self.settled for ask in own]
        return []

    def _may_change(self, only: _Candidate, texts: Iterable[str]) -> bool:
        """Tell whether more requirements may lead to a release that is not known, where one that is known will do."""
        if only.version is None or only.release is None:
            return True
        if only.extras and only.name in self.settled:
            return False
        limited = self._limited(only.name, texts)
        package = self._matrix.published(only.name)
        return (
            package is not None
            and not any(map(_is_pin, limited))
            and _admits_above(tuple(limited), package.versions[0])
        )

    def _limited(self, name: str, specifiers: Iterable[str]) -> list[str]:
        """Return specifiers with what else limits a distribution, each once."""
        limits = (*self._bounds.get(name, ()), *self._aside.get(name, ()))
        return [text for text in dict.fromkeys((*specifiers, *limits)) if text]

    def open_needs(self, candidate: _Candidate) -> tuple[_Ask, ...]:
        """Return what a release asks for, less what is settled and meets it."""
        at = (candidate.key, candidate.version)
        if at not in self._open_needs:
            self._open_needs[at] = tuple(
                need
                for need in self.needs(candidate)
                if need.key not in self.settled or not self.meets(need.want, self._settled_version(need.key))
            )
        return self._open_needs[at]

    def meets(self, want: Want, version: str | None) -> bool:
        """Tell whether a release meets a requirement; one of which nothing is known meets any."""
        return version is None or _admits(want.specifier, version)

    def matches(self, key: str, specifiers: Iterable[str], without: Iterable[str | None] = ()) -> Iterator[_Candidate]:
        """Yield the releases that meet all of some specifiers, newest first."""
        name, _, rest = key.partition("[")
        extras = tuple(rest.removesuffix("]").split(",")) if rest else ()
        texts = self._limited(name, specifiers)
        barred = set(without)
        is_opaque = name in self.problem.opaque
        package = self._matrix.published(name) if not is_opaque else None
        if package is None and not is_opaque and (pin := next(filter(_is_plain_pin, texts), None)) is not None:
            # Nothing is known of its releases, but which one of them is taken.
            version = pin.removeprefix("==")
            if version not in barred and all(_admits(text, version) for text in texts):
                yield self._candidate(key, name, extras, version)
            return
        is_known = False
        is_pinned = any(_is_pin(text) for text in texts)
        kept = self._there.get(name)
        if kept is not None and not is_opaque and all(_admits(text, kept) for text in texts):
            # Nobody asks whether the index still has it.
            is_known = True
            if kept not in barred:
                yield self._candidate(key, name, extras, kept)
            barred.add(kept)
        for version in self._admitted(package, texts) if package is not None else ():
            is_known = True
            if version not in barred and package is not None and self._is_fitting(package, version, is_pinned):
                candidate = self._candidate(key, name, extras, version)
                if not self.settled or self._is_told or self._is_possible(candidate):
                    yield candidate
        if None not in barred and (is_opaque or self._may_have_more(package, texts, is_known=is_known)):
            yield self._candidate(key, name, extras, None)

    def _admitted(self, package: PublishedPackage, texts: list[str]) -> Iterator[str]:
        """Yield the releases that all of some specifiers admit, newest first."""
        for text in texts:
            if text.startswith("==") and "," not in text and not text.endswith("*"):
                release = release_for(package, text.lstrip("="))
                if release is not None and all(_admits(text, release.version) for text in texts):
                    yield release.version
                return
        for version in package.versions[:_NEWEST]:
            if all(_admits(text, version) for text in texts):
                yield version
        # A search asks for the older ones again and again, in ever other company.
        if len(package.versions) > _NEWEST:
            places = -1 << _NEWEST
            for text in texts or [""]:
                places &= package.places(text, _admits)
            while places:
                place = places & -places
                places ^= place
                yield package.versions[place.bit_length() - 1]

    def _is_possible(self, candidate: _Candidate) -> bool:
        """Tell whether what a release asks for can be beside what is settled."""
        if candidate in self._impossible:
            return False
        if all(self.meets(need.want, self._settled_version(need.key)) for need in self.needs(candidate)):
            return True
        self._impossible.add(candidate)
        return False

    def _settled_version(self, key: str) -> str | None:
        settled = self.settled.get(key)
        return settled.version if settled is not None else None

    def _is_fitting(self, package: PublishedPackage, version: str, is_pinned: bool) -> bool:
        at = package.name, version, is_pinned
        found = self._fitting.get(at)
        if found is None:
            found = self._fitting[at] = self._fits(package, version, is_pinned)
        return found

    def _fits(self, package: PublishedPackage, version: str, is_pinned: bool) -> bool:
        release = package.release(version)
        if release is None or (release.is_yanked and not is_pinned):
            return False
        python = self.problem.python
        if python is None:
            return True
        if release.requires_python and not _admits(release.requires_python, f"{python.rstrip('t')}.99"):
            return False
        return self.problem.is_open or release.file_for(python, self.problem.machine) is not None

    def _may_have_more(self, package: PublishedPackage | None, texts: list[str], *, is_known: bool) -> bool:
        """Tell whether a release that is not known here may meet some specifiers."""
        if package is None or not package.versions:
            return self.problem.is_open or not _is_contradiction(tuple(texts))
        if is_known and any(_is_pin(text) for text in texts):
            return False
        if _is_contradiction(tuple(texts)):
            return False
        if self.problem.is_open or any(_names_prerelease(text) for text in texts):
            return True
        # Nothing that is known meets them: what was asked for may have come since.
        return not is_known and _admits_above(tuple(texts), package.versions[0])

    def _candidate(self, key: str, name: str, extras: tuple[str, ...], version: str | None) -> _Candidate:
        found = self._candidates.get((key, version))
        if found is None:
            package = self._matrix.published(name) if version is not None else None
            release = package.release(version) if package is not None and version is not None else None
            found = self._candidates[key, version] = _Candidate(key, name, extras, release, version)
        return found

    def needs(self, candidate: _Candidate) -> tuple[_Ask, ...]:
        """Return what a release asks for; of its extras only what these add, and itself."""
        if self.problem.is_shallow:
            return ()
        at = (candidate.key, candidate.version)
        found = self._needs.get(at)
        if found is None:
            found = self._needs[at] = tuple(self._asked(candidate))
        if self._is_told:
            for ask in found:
                if ask.want.name != candidate.name:
                    self.origins.setdefault(ask.want.name, ask)
        return found

    def _asked(self, candidate: _Candidate) -> Iterator[_Ask]:
        release = candidate.release
        if release is None:
            if candidate.extras:
                yield _Ask(Want(name=candidate.name), candidate)
            return
        if candidate.extras:
            yield _Ask(Want(name=candidate.name, specifier=f"=={release.version}"), candidate)
        python = self.problem.python
        for extra in candidate.extras or ("",):
            for need in release.needs(extra):
                if need.marker and (
                    (python is None and "python" in need.marker)
                    or not applies(need.marker, python or "", self.problem.machine)
                ):
                    continue
                if self._without and need.name.startswith(self._without):
                    continue
                yield _Ask(Want(name=need.name, extras=need.extras, specifier=need.specifier), candidate)

    def refusal(self, causes: list[tuple[_Ask, _Candidate | None]]) -> _Refusal:
        """Return a conflict in words, and the distributions that have a part in it."""
        if self._is_told:
            causes = self._deciding(causes)
        names = {ask.want.name for ask, _ in causes} | {parent.name for _, parent in causes if parent is not None}
        queue = list(names)
        while queue:
            ask = self.origins.get(queue.pop())
            if ask is not None and ask.by is not None and ask.by.name not in names:
                names.add(ask.by.name)
                queue.append(ask.by.name)
        return _Refusal(reasons=self._reasons(causes), names=frozenset(names))

    def _deciding(self, causes: Iterable[tuple[_Ask, _Candidate | None]]) -> list[tuple[_Ask, _Candidate | None]]:
        """Return causes with those that settled what they are about, less what can be beside all others."""
        by_key: dict[str, dict[_Ask, _Candidate | None]] = {}
        for ask, parent in causes:
            by_key.setdefault(ask.key, {item: item.by for item in self._settled_by.get(ask.key, ())})[ask] = parent
        found: list[tuple[_Ask, _Candidate | None]] = []
        for key, asks in by_key.items():
            texts = dict.fromkeys(ask.want.specifier for ask in asks)
            stuck = {
                text for pair in combinations(texts, 2) if next(self.matches(key, pair), None) is None for text in pair
            }
            found += [item for item in asks.items() if not stuck or item[0].want.specifier in stuck]
        return found

    def _reasons(self, causes: Iterable[tuple[_Ask, _Candidate | None]]) -> tuple[str, ...]:
        """Return a conflict in words: what asks for what, and what cannot be had."""
        roots = {ask.want.name for ask in self.roots}
        lines: list[str] = []
        by_parent: dict[tuple[str, str], list[_Ask]] = {}
        targets: dict[str, list[str]] = {}
        for ask, parent in causes:
            targets.setdefault(ask.want.name, []).append(ask.want.specifier)
            if parent is None or parent.name == ask.want.name:
                continue
            by_parent.setdefault((parent.name, ask.want.name), []).append(ask)
            lines += self._origins(parent.name, roots)
        for asks in by_parent.values():
            newest = max((ask for ask in asks if ask.by is not None), key=lambda ask: parse(_version(ask)))
            others = {_version(ask) for ask in asks} - {_version(newest)}
            rest = ", and no other release that fits helps" if others else ""
            lines.append(f"{_said(newest)}{rest}")
        lines += [f"a constraint asks {name}{text}" for name in targets for text in self._bounds.get(name, ())]
        for name, specifiers in targets.items():
            lines += self._absences(name, specifiers)
        return tuple(dict.fromkeys(lines))

    def _origins(self, name: str, roots: set[str]) -> list[str]:
        """Return how something comes into the set that no file asks for."""
        lines: list[str] = []
        while name not in roots and name in self.origins and len(lines) < _LINKS_MAX:
            ask = self.origins[name]
            lines.insert(0, _said(ask))
            name = ask.by.name if ask.by is not None else ""
        return lines

    def _absences(self, name: str, specifiers: Iterable[str]) -> Iterator[str]:
        """Yield why no release of a distribution can be taken, where it has none of that version or for that Python."""
        package = self._matrix.published(name)
        python = self.problem.python
        texts = [text for text in specifiers if text]
        if package is None or python is None or name in self.problem.opaque:
            return
        for text in texts:
            if not any(_admits(text, version) for version in package.versions):
                yield f"the index has no {name}{text}"
                return
        fitting = [version for version in package.versions if all(_admits(text, version) for text in texts)]
        is_pinned = any(_is_pin(text) for text in texts)
        if not fitting or any(self._is_fitting(package, version, is_pinned) for version in fitting):
            return
        release = package.release(fitting[0])
        if release is None:
            return
        if release.requires_python and not _admits(release.requires_python, f"{python.rstrip('t')}.99"):
            yield f"{name} {release.version} needs Python {release.requires_python}"
        else:
            have = release.pythons(self.problem.machine)
            yield f"{name} {release.version} has no file for Python {python}" + (
                f", its wheels are for {', '.join(have)}" if have else ""
            )


def _version(ask: _Ask) -> str:
    return ask.by.version or "0" if ask.by is not None else "0"


def _said(ask: _Ask) -> str:
    by = f"{ask.by.key} {ask.by.version}" if ask.by is not None else "the file"
    return f"{by} needs {ask.want.text}"


_LINKS_MAX = 4
_BROUGHT = ("nvidia-", "cuda-")


def _provider(shelf: _Shelf) -> Any:
    """Return what resolvelib asks about a shelf; its base class is only imported where there is something to search."""
    from resolvelib import AbstractProvider

    class Provider(AbstractProvider[Any, Any, Any]):
        def identify(self, requirement_or_candidate: Any) -> str:
            key: str = requirement_or_candidate.key
            return key

        def narrow_requirement_selection(
            self, identifiers: Any, resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
        ) -> Any:
            """Return the one name that is taken next, so that no preference of each is asked for one by one."""
            del resolutions, candidates
            causes = {cause.requirement.key for cause in backtrack_causes}
            causes |= {cause.parent.key for cause in backtrack_causes if cause.parent is not None}

            def order(name: str) -> tuple[bool, bool, bool, str]:
                specifiers = [item.requirement.want.specifier for item in information[name]]
                return not any(map(_is_pin, specifiers)), name not in causes, not any(specifiers), name

            return [min(identifiers, key=order)]

        def find_matches(self, identifier: str, requirements: Any, incompatibilities: Any) -> Any:
            specifiers = [ask.want.specifier for ask in requirements[identifier]]
            barred = [item.version for item in incompatibilities[identifier]]
            if identifier in shelf.settled:
                # What is settled and meets it is not asked for.
                return ()
            return lambda: shelf.matches(identifier, specifiers, barred)

        def is_satisfied_by(self, requirement: Any, candidate: Any) -> bool:
            return shelf.meets(requirement.want, candidate.version)

        def get_dependencies(self, candidate: Any) -> Any:
            return shelf.open_needs(candidate)

    return Provider()


@lru_cache(maxsize=None)
def _admits(specifier: str, version: str) -> bool:
    """Tell whether clauses admit a release; what makes no sense admits all."""
    try:
        return not specifier or version in spec_of(specifier)
    except ValueError:
        return True


@lru_cache(maxsize=None)
def _is_pin(specifier: str) -> bool:
    return any(clause.startswith("==") and not clause.endswith("*") for clause in specifier.split(","))


@lru_cache(maxsize=None)
def _is_plain_pin(specifier: str) -> bool:
    """Tell whether clauses are one pin on a version that can be compared."""
    if not specifier.startswith("==") or "," in specifier or specifier.endswith("*"):
        return False
    try:
        return parse(specifier[2:]) is not None
    except ValueError:
        return False


@lru_cache(maxsize=None)
def _is_contradiction(specifiers: tuple[str, ...]) -> bool:
    try:
        return is_empty(specifiers)
    except ValueError:
        return False


@lru_cache(maxsize=None)
def _names_prerelease(specifier: str) -> bool:
    try:
        return spec_of(specifier).names_prerelease
    except ValueError:
        return True


@lru_cache(maxsize=None)
def _admits_above(specifiers: tuple[str, ...], newest: str) -> bool:
    """Tell whether specifiers admit something newer than the newest release that is known."""
    return not _is_contradiction((*specifiers, f">{newest}"))
