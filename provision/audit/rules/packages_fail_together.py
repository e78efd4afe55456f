"""Two packages that are known not to work together, or one with the CUDA and cuDNN in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from provision.audit.libraries import brings_own, libraries_of
from provision.audit.model import WARN, Environment, Finding, Install, Options, Requirement
from provision.audit.presence import origin_at_end, taken_of_all, walks_of
from provision.audit.verdict import found
from provision.audit.wanted import (
    CPU,
    Wanted,
    admits,
    build_of,
    effective,
    is_pytorch_index,
    python_of,
    resolve_request,
    standing,
)
from provision.audit.ways import ways_of
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.matrix.model import Exclusion
from provision.records import record
from provision.resolve.request import FRAMEWORKS

ID = "C09"

_LIBRARIES = ("cuda", "cudnn")


@record
class _Side:
    """What one side of a pair is, as far as that is known.

    Attributes:
        versions: All that it may be; a pair holds where each of them is part of it.
        requirement: Where it is asked for, ``None`` for what nobody writes.
        because: How its version follows from what is written.
        is_likely: Packages of which nothing is known may ask for another one.
    """

    versions: tuple[str, ...]
    requirement: Requirement | None = None
    because: str = ""
    is_likely: bool = False


_BARE = "tensorflow brings no CUDA here: it may load that of torch, or run without the GPU"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold everything that is surely there against the pairs of the facts."""
    torch = standing(environment, matrix, "torch")
    if torch is not None and torch.variant == CPU:
        return
    if len({install.target for install in environment.installs}) > 1:
        return
    sides = _sides(environment, matrix, options, torch)
    for row in matrix.exclusions:
        pair = (_name(row.left), _name(row.right))
        if row.is_open or pair[0] not in sides or pair[1] not in sides:
            continue
        if not all(_holds(name, sides[name], row) for name in pair):
            continue
        asked = [sides[name].requirement for name in pair]
        spans = [requirement.span for requirement in asked if requirement is not None]
        has_own = any(requirement is not None and brings_own(requirement) for requirement in asked)
        if not spans or (has_own and not set(pair).isdisjoint(_LIBRARIES)):
            continue
        shown = " and ".join(f"{_WORDS.get(name, name)} {sides[name].versions[0].partition('+')[0]}" for name in pair)
        is_bare = "tensorflow" in pair and _brings_no_cuda(environment, matrix)
        is_likely = any(sides[name].is_likely for name in pair)
        yield found(
            matrix,
            ID,
            span=spans[-1],
            message=f"{shown} fail together",
            reasons=(
                *(sides[name].because for name in pair if sides[name].because),
                row.symptom,
                *((_BARE,) if is_bare else ()),
            ),
            severity=WARN if is_bare or is_likely else "",
            hint=f"until: {row.until}" if row.until else "",
            facts=(f"exclusion/{row.id}",),
        )
        return
    yield from _together(environment, matrix, options)


_WORDS = {"cuda": "CUDA", "cudnn": "cuDNN"}


def _holds(name: str, side: _Side, row: Exclusion) -> bool:
    from provision.resolve.rules import side_holds

    text = next(text for text in (row.left, row.right) if _name(text) == name)
    return all(side_holds(text, {name: version}) for version in side.versions)


def _sides(environment: Environment, matrix: Matrix, options: Options, torch: Wanted | None) -> dict[str, _Side]:
    """Return what of the pairs is there: pins, what open requirements come to, what other packages bring, libraries."""
    known = {_name(text) for row in matrix.exclusions if not row.is_open for text in (row.left, row.right)}

    sides: dict[str, _Side] = {}
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem != "pypi" or requirement.version is None or not is_sure:
            continue
        has_own_index = requirement.name.startswith("onnxruntime") and any(
            not is_pytorch_index(matrix, index.url) for index in install.indexes if index.kind != "channel"
        )
        if not has_own_index and requirement.url is None and requirement.name in known:
            version = requirement.version.partition("+")[0]
            sides[requirement.name] = _Side(versions=(version,), requirement=requirement)
    for name in known.difference(sides, FRAMEWORKS):
        sides |= _taken(environment, matrix, options, name)
    for install, requirement in environment.requirements():
        name = requirement.name
        if name in known and name not in sides and name not in FRAMEWORKS and requirement.version is None:
            sides |= _any(matrix, install, requirement)
    if torch is not None and torch.version is not None:
        own = sides.get("torch")
        if torch.install.installer == "base" or (own is not None and own.versions == (torch.version,)):
            written = own.requirement if own is not None and torch.install.installer != "base" else None
            sides["torch"] = _Side(versions=_by_build(matrix, torch), requirement=written)
    if not sides.keys() - set(FRAMEWORKS):
        return sides
    # A torch that nobody names decides which CUDA is there.
    brought: tuple[str, ...] = ()
    is_sure = True
    if torch is None or (torch.version is None and torch.is_default):
        brought, is_sure = taken_of_all(environment, matrix, options, "torch")
        # A machine that nobody describes may have libraries of another CUDA.
        is_sure = not brought or (is_sure and environment.base is not None)
    because = f"as of {matrix.dated} an installer takes torch {brought[0]}" if brought else ""
    return sides | {
        name: _Side(versions=versions, because=because, is_likely=not is_sure)
        for name, versions in libraries_of(environment, matrix, torch, brought).items()
    }


def _taken(environment: Environment, matrix: Matrix, options: Options, name: str) -> dict[str, _Side]:
    """Return what an open wish comes to, or what another package brings that nobody asks for."""
    taken, is_sure = taken_of_all(environment, matrix, options, name)
    walk = next(iter(walks_of(environment, matrix, options)), None)
    requirement = origin_at_end(matrix, walk, name) if walk is not None and taken else None
    if requirement is None:
        return {}
    verb = "takes" if requirement.name == name else "brings"
    because = f"as of {matrix.dated} `{requirement.text}` {verb} {name} {taken[0]}"
    return {name: _Side(versions=taken, requirement=requirement, because=because, is_likely=not is_sure)}


def _any(matrix: Matrix, install: Install, requirement: Requirement) -> dict[str, _Side]:
    """Return all that a wish admits where a page of wheels is asked, whose releases are those of the index."""
    pages = matrix.setting("audit_rules.toml", "wheel_pages").entries
    package = matrix.published(requirement.name)
    is_sure = install.is_certain and not install.is_dry and requirement.applies is True and requirement.url is None
    if package is None or not is_sure or not any((item.url or "").startswith(tuple(pages)) for item in install.indexes):
        return {}
    fitting = tuple(version for version in package.versions if admits(requirement.specifier, version))
    return {requirement.name: _Side(versions=fitting, requirement=requirement)} if fitting else {}


def _brings_no_cuda(environment: Environment, matrix: Matrix) -> bool:
    """Tell whether TensorFlow comes without CUDA of its own, and over none that is known."""
    tensorflow = effective(environment, matrix, "tensorflow")
    if tensorflow is None or tensorflow.variant not in (None, "system-cuda"):
        return False
    return environment.base is None or environment.base.cuda is None


def _together(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Finding]:
    """Ask the resolver for two frameworks that one command installs."""
    torch = effective(environment, matrix, "torch")
    for framework in ("tensorflow", "jax"):
        other = effective(environment, matrix, framework)
        if torch is None or other is None or torch.version is None or other.version is None:
            continue
        if (
            torch.install.span != other.install.span
            or torch.install.has_no_deps
            or other.variant in (None, "system-cuda")
        ):
            continue
        variant = build_of(matrix, torch)
        if variant is None:
            continue
        wish: dict[str, object] = {"torch": f"{torch.version}+{variant}", framework: other.version}
        wish["python"] = python_of(environment, torch, options)
        if framework == "jax":
            wish["cuda"] = (other.variant or "").removeprefix("cuda")
        from provision.resolve.stack import Refusal

        refusal = resolve_request(matrix, wish)
        if not isinstance(refusal, Refusal) or not refusal.is_proved:
            continue
        if all(reason.subject in _JOINT for reason in refusal.because):
            yield found(
                matrix,
                ID,
                span=other.requirement.span,
                message=f"torch {torch.version} and {framework} {other.version} cannot be installed together",
                reasons=reasons_of(refusal),
                ways=ways_of(environment, matrix, options, torch),
                facts=facts_of(refusal),
            )


def _by_build(matrix: Matrix, torch: Wanted) -> tuple[str, ...]:
    """Return the version once for each build that torch may be: some pairs are about some builds."""
    version, variant = torch.version or "", build_of(matrix, torch)
    builds = [variant] if variant else [row.variant for row in matrix.torch_builds_of({version})]
    return tuple(f"{version}+{build}" for build in builds) or (version,)


_JOINT = ("packages", "exclusion", "majors", "complete")


@cache
def _name(side: str) -> str:
    """Return the package that one side of a pair is about; the pairs are few and asked about often."""
    for place, letter in enumerate(side):
        if letter in "<>=~! ":
            return side[:place]
    return side
