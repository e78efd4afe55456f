"""An NVIDIA library pinned to another version than the framework pins."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Edit, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, admits, effective
from provision.matrix.load import Matrix
from provision.matrix.model import TensorflowRelease, TorchBuild

ID = "C12"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold pinned NVIDIA packages against the pins of the frameworks."""
    for framework in ("torch", "tensorflow"):
        wanted = effective(environment, matrix, framework)
        pins = _pins(matrix, wanted) if wanted is not None else None
        if wanted is None or pins is None:
            continue
        for install, requirement in environment.requirements():
            bound = pins.get(requirement.name)
            if bound is None or not _clashes(install, requirement, wanted, bound):
                continue
            label, needs = bound
            yield found(
                matrix,
                ID,
                span=requirement.span,
                message=f"{requirement.text} is not what {framework} {wanted.version} needs",
                reasons=(f"{label} pins {requirement.name}{needs}",),
                hint=f"drop the pin: {framework} brings {requirement.name}{needs} itself",
                facts=(f"{framework}/{label.partition(' ')[2]}",),
                edits=_edits(requirement, needs),
                fix=f"take {requirement.name}{needs}",
            )


def _pins(matrix: Matrix, wanted: Wanted) -> dict[str, tuple[str, str]] | None:
    if wanted.version is None:
        return None
    rows: list[TorchBuild | TensorflowRelease] = []
    if wanted.framework == "torch":
        builds = matrix.torch_builds_of({wanted.version})
        rows = [row for row in builds if row.variant == wanted.variant or (wanted.is_default and row.index == "pypi")]
    elif wanted.variant == "and-cuda":
        rows = [row for row in matrix.tensorflow if row.version == wanted.version]
    if len(rows) != 1 or rows[0].pins is None:
        return None
    row = rows[0]
    label = f"torch {row.torch}+{row.variant}" if isinstance(row, TorchBuild) else f"tensorflow {row.version}"
    more = (row.toolkit_pins or {}) if isinstance(row, TorchBuild) else {}
    return {name: (label, bound) for name, bound in {**more, **(row.pins or {})}.items() if "[" not in name}


def _clashes(install: Install, requirement: Requirement, wanted: Wanted, bound: tuple[str, str]) -> bool:
    """Tell whether a pin surely clashes.

    In one command pip refuses it. A later one gets its way, which does harm where it changes the major.
    """
    if requirement.version is None or requirement.applies is not True or install.is_dry or not install.is_certain:
        return False
    if install.target != wanted.install.target or admits(bound[1], requirement.version):
        return False
    if install.span == wanted.install.span and install.stage == wanted.install.stage:
        return not install.has_no_deps
    exact = bound[1].removeprefix("==")
    return exact != bound[1] and exact.partition(".")[0] != requirement.version.partition(".")[0]


def _edits(requirement: Requirement, needs: str) -> tuple[Edit, ...]:
    is_plain = requirement.specifier == f"=={requirement.version}" and not requirement.is_hashed
    is_exact = needs.startswith("==") and "*" not in needs and "," not in needs
    if not (requirement.is_literal and is_plain and is_exact) or requirement.is_locked:
        return ()
    return (Edit(span=requirement.specifier_span, text=needs),)
