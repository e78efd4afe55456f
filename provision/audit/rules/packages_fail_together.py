"""Two packages that are known not to work together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from provision.audit.model import Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import CPU, Wanted, build_of, cuda_of, effective, python_of, resolve_request, standing
from provision.audit.ways import ways_of
from provision.audit.wording import facts_of, reasons_of
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS

ID = "C09"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold everything that is pinned against the pairs of the facts."""
    pinned: dict[str, tuple[str, Requirement]] = {}
    torch = standing(environment, matrix, "torch")
    if torch is not None and torch.variant == CPU:
        return
    targets = {install.target for install in environment.installs}
    if len(targets) > 1:
        return
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.ecosystem == "pypi" and requirement.version is not None and is_sure:
            has_own_index = bool(install.indexes) and requirement.name.startswith("onnxruntime")
            if not has_own_index and requirement.url is None:
                pinned[requirement.name] = (requirement.version.partition("+")[0], requirement)
    since: dict[str, str] = {}
    sides = {_name(side) for row in matrix.exclusions if not row.is_open for side in (row.left, row.right)}
    for _, requirement in environment.requirements():
        name = requirement.name
        if name in sides and name not in pinned and name not in FRAMEWORKS and requirement.version is None:
            # An open wish comes to one release too.
            from provision.audit.solved import taken_surely

            taken = taken_surely(environment, matrix, options, name)
            if len(taken) == 1:
                pinned[name] = (taken[0], requirement)
                since[name] = f"as of {matrix.dated} `{requirement.text}` takes {name} {taken[0]}"
    named = {name: version for name, (version, _) in pinned.items()}
    if torch is not None and torch.version is not None:
        if torch.install.installer == "base":
            named["torch"] = torch.version
        cuda = cuda_of(build_of(matrix, torch))
        if cuda is not None:
            named["cuda"] = cuda
    elif torch is None and environment.base is not None and environment.base.cuda is not None:
        named["cuda"] = environment.base.cuda
    variants = _by_build(matrix, torch, named)
    for row in matrix.exclusions:
        if row.is_open or not (_name(row.left) in named and _name(row.right) in named):
            continue
        from provision.resolve.rules import side_holds

        if not all(side_holds(row.left, each) and side_holds(row.right, each) for each in variants):
            continue
        pair = [_name(row.left), _name(row.right)]
        spans = [pinned[name][1].span for name in pair if name in pinned]
        if not spans:
            continue
        shown = " and ".join(f"{name} {named[name]}" for name in pair)
        yield found(
            matrix,
            ID,
            span=spans[-1],
            message=f"{shown} fail together",
            reasons=(*(since[name] for name in pair if name in since), row.symptom),
            hint=f"until: {row.until}" if row.until else "",
            facts=(f"exclusion/{row.id}",),
        )
        return
    yield from _together(environment, matrix, options)


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


def _by_build(matrix: Matrix, torch: Wanted | None, named: dict[str, str]) -> list[dict[str, str]]:
    """Return what is named once for each build that torch may be: some pairs are about some builds."""
    if torch is None or torch.version is None or named.get("torch") != torch.version:
        return [named]
    variant = build_of(matrix, torch)
    builds = [variant] if variant else [row.variant for row in matrix.torch_builds_of({torch.version})]
    return [{**named, "torch": f"{torch.version}+{build}"} for build in builds] or [named]


_JOINT = ("packages", "exclusion", "majors", "complete")


@cache
def _name(side: str) -> str:
    """Return the package that one side of a pair is about; the pairs are few and asked about often."""
    for place, letter in enumerate(side):
        if letter in "<>=~! ":
            return side[:place]
    return side
