"""Versions of frameworks, CUDA and drivers: parse, order, match.

Ordering and parsing are ``packaging.version``'s. The specifier matcher below covers what wheel metadata and
requests use; it exists because importing ``packaging.specifiers`` costs a command more than the rest of its
start-up together. Where a version and all clauses are plain numbers, as most are, they are compared as such, without
``packaging`` at all. Property tests hold all of it equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

_OPERATORS = ("===", "~=", "==", "!=", "<=", ">=", "<", ">")


@lru_cache(maxsize=None)
def parse(text: str) -> Version:
    """Parse a version.

    Raises:
        ValueError: The text is not a PEP 440 version.
    """
    # Not every command compares versions, and this import takes long.
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(f"`{text}` is not a version") from error


def is_older(version: str | None, other: str | None) -> bool:
    """Tell whether a version is below another; not where one of them is not a version."""
    try:
        return parse(version or "") < parse(other or "")
    except ValueError:
        return False


def is_prefix_of(prefix: str, version: str) -> bool:
    """Tell whether ``2.1`` names ``2.1.2``: every release part that was written is equal.

    ``2.1.0`` does not name ``2.1.2``, and ``12`` names ``12.4``. A local part in the prefix must match too.
    """
    plain, whole = _release(prefix), _release(version)
    if plain is not None and whole is not None:
        return _padded(whole, len(plain))[: len(plain)] == plain
    wanted, have = parse(prefix), parse(version)
    if wanted.local is not None and wanted.local != have.local:
        return False
    if wanted.is_prerelease or wanted.is_postrelease:
        return wanted.public == have.public
    release = have.release + (0,) * (len(wanted.release) - len(have.release))
    return wanted.epoch == have.epoch and release[: len(wanted.release)] == wanted.release


def minor_of(version: str) -> str:
    """Return the first two parts of a version: ``11.8.0`` → ``11.8``."""
    return ".".join(version.split(".")[:2])


def branch_of(driver: str) -> int:
    """Return the branch of a driver version: ``535.104.05`` → 535."""
    return parse(driver).release[0]


class Spec:
    """A set of versions written as comparisons joined by commas, such as ``>=2.3,<2.5``.

    Source: the version specifiers of the Python packaging user guide (PEP 440).

    Raises:
        ValueError: A clause has no operator or no valid version.
    """

    __slots__ = ("_held", "_parsed", "_plain", "text")

    def __init__(self, text: str) -> None:
        self.text = ",".join(sorted(part.strip().replace(" ", "") for part in text.split(",") if part.strip()))
        self._plain = _plain_clauses(self.text)
        self._held: dict[str, bool] = {}
        self._parsed: tuple[tuple[str, Version, bool], ...] | None = None
        if self._plain is None:
            self._parsed = self._clauses

    @property
    def _clauses(self) -> tuple[tuple[str, Version, bool], ...]:
        if self._parsed is None:
            self._parsed = tuple(_clause(part) for part in self.text.split(",") if part)
        return self._parsed

    @property
    def names_prerelease(self) -> bool:
        """Whether a clause names a pre-release, so that installers take such releases too."""
        return self._plain is None and any(wanted.is_prerelease for _, wanted, _ in self._clauses)

    def __contains__(self, version: str) -> bool:
        """Tell whether a version lies in the set; a local part of the version is ignored unless named."""
        held = self._held.get(version)
        if held is None:
            # The same few are asked about over and over.
            held = self._held[version] = self._holds(version)
        return held

    def _holds(self, version: str) -> bool:
        if self._plain is not None:
            stem, post, number = version.partition("+")[0].partition(".post")
            release = _release(stem) if not post or number.isdecimal() else None
            if release is not None:
                numbers = _trimmed(release)
                return all(_holds_plain(*clause, numbers, is_post=bool(post)) for clause in self._plain)
        have = parse(version)
        if have.is_prerelease and not self.names_prerelease:
            return False
        return all(_holds(operator, wanted, wild, have) for operator, wanted, wild in self._clauses)

    def __bool__(self) -> bool:
        """Tell whether the set excludes anything."""
        return bool(self.text)

    def __eq__(self, other: object) -> bool:
        """Compare by clauses, whatever their order."""
        return isinstance(other, Spec) and self.text == other.text

    def __hash__(self) -> int:
        """Hash by clauses."""
        return hash(self.text)

    def __str__(self) -> str:
        """Return the clauses, sorted, joined by commas."""
        return self.text

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"Spec({self.text!r})"


@lru_cache(maxsize=None)
def spec_of(text: str) -> Spec:
    """Return the specifier of a text; the same texts are asked about over and over.

    Raises:
        ValueError: As :class:`Spec`.
    """
    return Spec(text)


@lru_cache(maxsize=None)
def admits(specifier: str, version: str) -> bool:
    """Tell whether a specifier admits a version; an empty one admits all.

    Raises:
        ValueError: It has a clause without an operator, or one of the two no valid version.
    """
    return not specifier or version in spec_of(specifier)


@lru_cache(maxsize=None)
def admits_python(requires_python: str, python: str) -> bool:
    """Tell whether ``Requires-Python`` admits a Python (``3.11``, ``3.13t``), whose last patch counts."""
    return f"{python.rstrip('t')}.99" in spec_of(requires_python)


def is_empty(specifiers: Iterable[str]) -> bool:
    """Tell whether no version at all can meet every specifier.

    Together they are a union of intervals whose ends are written in them, so a common version, if there is one, is an
    end, lies right above one, or lies below them all. A prefix (`==1.2.*`, `~=1.2`) ends where the next one begins.
    """
    return _is_empty(",".join(specifiers))


@lru_cache(maxsize=4096)
def _is_empty(specifier: str) -> bool:
    whole = Spec(specifier)
    depth = max((len(wanted.release) for _, wanted, _ in whole._clauses), default=0)
    points = {"0"}
    for operator, wanted, wild in whole._clauses:
        points |= {str(wanted), *_next_suffixes(wanted), _release_of(wanted, (*_padded(wanted.release, depth), 1))}
        if wild or operator == "~=":
            prefix = wanted.release if wild else wanted.release[:-1]
            points.add(_release_of(wanted, (*prefix[:-1], prefix[-1] + 1)))
    return not any(point in whole for point in points)


def _padded(release: tuple[int, ...], length: int) -> tuple[int, ...]:
    return release + (0,) * (length - len(release))


def _release_of(wanted: Version, release: tuple[int, ...]) -> str:
    """Return a final release in the epoch of another version."""
    return f"{wanted.epoch}!{'.'.join(map(str, release))}"


def _next_suffixes(wanted: Version) -> Iterator[str]:
    """Yield the pre-release and the post-release that follow a version."""
    base = wanted.base_version
    if wanted.pre is not None:
        yield f"{base}{wanted.pre[0]}{wanted.pre[1] + 1}"
    head = base if wanted.pre is None else f"{base}{wanted.pre[0]}{wanted.pre[1]}"
    yield f"{head}.post{(wanted.post or 0) + 1}"
    if wanted.dev is not None:
        yield f"{wanted.public.rpartition('.dev')[0]}.dev{wanted.dev + 1}"


@lru_cache(maxsize=None)
def _release(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a plain final release, ``None`` for any other version."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() and part.isascii() for part in parts) else None


@lru_cache(maxsize=None)
def _trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    while len(release) > 1 and not release[-1]:
        release = release[:-1]
    return release


def _plain_clauses(text: str) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] | None:
    """Return operator, numbers and, where one counts, the prefix of each clause; ``None`` where one is not plain."""
    found = []
    for clause in filter(None, text.split(",")):
        operator = next((item for item in _OPERATORS if clause.startswith(item)), "")
        rest = clause[len(operator) :]
        is_wild = rest.endswith(".*") and operator in ("==", "!=")
        release = _release(rest.removesuffix(".*") if is_wild else rest)
        if release is None or operator in ("", "===") or (operator == "~=" and len(release) < 2):
            return None
        prefix = release if is_wild else release[:-1] if operator == "~=" else ()
        found.append((operator, _trimmed(release), prefix))
    return tuple(found)


def _holds_plain(
    operator: str, wanted: tuple[int, ...], prefix: tuple[int, ...], have: tuple[int, ...], *, is_post: bool
) -> bool:
    if prefix:
        is_below = _padded(have, len(prefix))[: len(prefix)] == prefix
        return is_below and have >= wanted if operator == "~=" else is_below == (operator == "==")
    if operator in ("==", "!="):
        return (have == wanted and not is_post) == (operator == "==")
    if operator == ">=":
        return have >= wanted
    if operator == ">":
        # A post-release of a release is not newer than it.
        return have > wanted
    return have < wanted or (operator == "<=" and have == wanted and not is_post)


def _clause(text: str) -> tuple[str, Version, bool]:
    for operator in _OPERATORS:
        if text.startswith(operator):
            rest = text[len(operator) :]
            wild = rest.endswith(".*")
            if wild and operator not in ("==", "!="):
                raise ValueError(f"`{text}`: `.*` goes with == and != only")
            version = parse(rest[:-2] if wild else rest)
            if operator == "~=" and len(version.release) < 2:
                raise ValueError(f"`{text}`: ~= needs at least two parts")
            return operator, version, wild
    raise ValueError(f"`{text}` has no comparison such as == or >=")


def _holds(operator: str, wanted: Version, wild: bool, have: Version) -> bool:
    if operator in ("==", "!=", "==="):
        if wild:
            release = have.release + (0,) * (len(wanted.release) - len(have.release))
            equal = have.epoch == wanted.epoch and release[: len(wanted.release)] == wanted.release
        elif wanted.local is None:
            equal = _public(have) == wanted
        else:
            equal = have == wanted
        return equal != (operator == "!=")
    public = _public(have)
    if operator == "~=":
        prefix = wanted.release[:-1]
        release = public.release + (0,) * (len(prefix) - len(public.release))
        return public >= wanted and public.epoch == wanted.epoch and release[: len(prefix)] == prefix
    if operator == ">=":
        return public >= wanted
    if operator == "<=":
        return public <= wanted
    if operator == "<":
        same = _base(public) == _base(wanted)
        return public < wanted and not (public.is_prerelease and not wanted.is_prerelease and same)
    same = _base(public) == _base(wanted)
    return public > wanted and not (public.is_postrelease and not wanted.is_postrelease and same)


@lru_cache(maxsize=None)
def _public(version: Version) -> Version:
    return parse(version.public) if version.local is not None else version


@lru_cache(maxsize=None)
def _base(version: Version) -> Version:
    return parse(version.base_version)


def outside_of(specifier: str) -> Iterator[str]:
    """Yield the bounds outside of which a specifier admits nothing, those of later versions first."""
    import re

    turned = {"<": ">=", "<=": ">", ">=": "<", ">": "<="}
    clauses = [match for text in specifier.split(",") if (match := re.fullmatch(r"([<>]=?)([^=<>]+)", text.strip()))]
    for match in sorted(clauses, key=lambda match: match[1].startswith(">")):
        yield turned[match[1]] + match[2]
