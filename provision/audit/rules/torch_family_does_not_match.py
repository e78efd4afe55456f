"""torch, torchvision and torchaudio of different releases or builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.channels import conda_pytorch, release_of, wish_of
from provision.audit.companions import needs_of
from provision.audit.model import WARN, Edit, Environment, Finding, Install, Options, Requirement, Way
from provision.audit.verdict import found
from provision.audit.wanted import Wanted, admits, build_of, cuda_major, cuda_of, resolve_request, standing, variant_of
from provision.matrix.load import Matrix
from provision.matrix.model import TorchRelease
from provision.resolve.request import matches

ID = "C03"

_COMPANIONS = ("torchvision", "torchaudio")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the companions against the torch that stands at the end."""
    for install, requirement in conda_pytorch(environment):
        yield from _beside(matrix, install, requirement)
    torch = standing(environment, matrix, "torch")
    if torch is None or torch.version is None:
        yield from _outside(environment, matrix, torch) if torch is not None else ()
        return
    release = next(iter(matrix.torch_releases_where(lambda version: version == torch.version)), None)
    if release is None:
        return
    for install, requirement in _last(environment, torch):
        version = (requirement.version or "").partition("+")[0]
        right = getattr(release, requirement.name)
        because = _why_not(matrix, torch, requirement.name, version)
        if because and right not in (None, version):
            because = (*because, *_origin(environment, torch))
            yield _mismatch(environment, matrix, torch, (install, requirement), release, right, because)
            continue
        yield from _mixed(matrix, torch, install, requirement)
    yield from _newest(environment, matrix, options, torch, release)


def _newest(
    environment: Environment, matrix: Matrix, options: Options, torch: Wanted, release: TorchRelease
) -> Iterator[Finding]:
    """Yield the open companions of which a release for another torch is taken: some ask for no torch at all."""
    from provision.audit.presence import taken_of_all

    for install, requirement in environment.requirements():
        name = requirement.name
        if name not in _COMPANIONS or requirement.version is not None or requirement.applies is not True:
            continue
        if requirement.ecosystem != "pypi" or requirement.url is not None or install.target != torch.install.target:
            continue
        right = getattr(release, name)
        taken, is_sure = taken_of_all(environment, matrix, options, name)
        if len(taken) != 1 or right in (None, taken[0]) or needs_of(matrix, name, taken[0]) is not None:
            continue
        with_it = [row.version for row in matrix.torch_releases if getattr(row, name) == taken[0]]
        if not with_it or torch.version in with_it:
            continue
        edit = Edit(span=requirement.specifier_span, text=f"=={right}")
        ways = (Way(text=f"write `{name}=={right}`", edits=(edit,)),)
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} takes {name} {taken[0]}, which does not belong to torch {torch.version}",
            reasons=(
                f"{name} {taken[0]} asks for no torch, so an installer takes it beside any",
                f"it was released with torch {' and '.join(with_it)}",
                *_origin(environment, torch),
            ),
            ways=ways if requirement.is_literal and not requirement.is_locked else (),
            facts=(f"torch/{release.version}",),
            severity="" if is_sure else WARN,
        )


def _beside(matrix: Matrix, install: Install, torch: Requirement) -> Iterator[Finding]:
    """Yield the packages of conda of which no release that is asked for goes with the PyTorch beside them."""
    have = release_of(torch)
    release = next(iter(matrix.torch_releases_where(lambda version: version == have)), None)
    for requirement in install.requirements if release is not None else ():
        if requirement.ecosystem != "conda" or requirement.name not in _COMPANIONS:
            continue
        wish, package = wish_of(requirement), matrix.package(requirement.name)
        versions = package.versions if wish is not None and package is not None else ()
        fitting = [version for version in versions if "+" not in version and matches(wish or "", version)]
        needs = {version: needs_of(matrix, requirement.name, version) for version in fitting}
        if not needs or any(need is None or admits(need, have or "0") for need in needs.values()):
            continue
        right = getattr(release, requirement.name)
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.name} {wish} does not belong to pytorch {have}",
            reasons=[f"{requirement.name} {version} needs torch{need}" for version, need in needs.items()],
            hint=f"{requirement.name} {right} was released with torch {have}" if right else "",
            facts=(f"torch/{have}",),
        )


def _outside(environment: Environment, matrix: Matrix, torch: Wanted) -> Iterator[Finding]:
    """Yield the pinned companions whose torch lies outside the range that is asked for."""
    for _, requirement in _last(environment, torch) if torch.specifier else ():
        version = (requirement.version or "").partition("+")[0]
        with_it = [row.version for row in matrix.torch_releases if getattr(row, requirement.name) == version]
        if not with_it or any(admits(torch.specifier, have) for have in with_it):
            continue
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.name} {version} does not belong to torch {torch.specifier}",
            reasons=(f"{requirement.name} {version} was released with torch {' and '.join(with_it)}",),
            hint="ask for the torch that it was released with, or for the release that goes with the newest one",
            facts=tuple(f"torch/{have}" for have in with_it),
        )


def _why_not(matrix: Matrix, wanted: Wanted, name: str, version: str) -> tuple[str, ...]:
    """Return why a companion does not go with a torch: by its own metadata, else by the resolver; empty if it does."""
    needs, torch = needs_of(matrix, name, version), wanted.version or ""
    if needs is not None:
        # The torch of another index than PyPI has the build in its version, and so has the companion beside it.
        public = needs if wanted.is_default else needs.partition("+")[0]
        return () if admits(public, torch) else (f"{name} {version} needs torch{needs}",)
    pythons = sorted({python for row in matrix.torch_builds_of({torch}) for python in row.pythons_with_companions})
    wish: dict[str, object] = {
        "torch": torch,
        "python": pythons[0] if pythons else None,
        "requirements": (f"{name}=={version}",),
    }
    refusal = resolve_request(matrix, wish)
    from provision.resolve.stack import Refusal

    if not isinstance(refusal, Refusal) or not refusal.is_proved:
        return ()
    is_about_it = any(reason.subject == "requirements" for reason in refusal.because)
    # The resolver's own sentence speaks of a requirements file, which is none here.
    return (f"no build of torch {torch} goes with {name} {version}",) if is_about_it else ()


def _origin(environment: Environment, torch: Wanted) -> tuple[str, ...]:
    """Return where the torch comes from, if that is the base."""
    base = environment.base
    if base is None or torch.requirement.span != base.span:
        return ()
    return (f"{base.repository}:{base.tag} comes with torch {torch.version}",)


def _last(environment: Environment, torch: Wanted) -> Iterator[tuple[Install, Requirement]]:
    """Yield the companions that stand at the end, where they are pinned."""
    ends: dict[str, tuple[Install, Requirement]] = {}
    for install, requirement in environment.requirements():
        if requirement.name not in _COMPANIONS or requirement.ecosystem != "pypi" or requirement.applies is not True:
            continue
        is_there = install.target == torch.install.target and install.is_certain and not install.is_dry
        if is_there and (
            requirement.name not in ends or _replaces(install, requirement, ends[requirement.name], torch)
        ):
            ends[requirement.name] = (install, requirement)
    yield from (item for item in ends.values() if item[1].version is not None)


def _replaces(install: Install, requirement: Requirement, before: tuple[Install, Requirement], torch: Wanted) -> bool:
    """Tell whether a later wish for a companion may put another release in the place of the one that is there."""
    if requirement.version is not None:
        return True
    if install.span == torch.install.span and before[0].span != install.span:
        # The installer looks for releases that go with the torch of the same command.
        return True
    return not admits(requirement.specifier, before[1].version or "0")


def _is_editable(environment: Environment, torch: Wanted, install: Install) -> bool:
    """Tell whether nothing but the torch that stands at the end rests on a pin.

    A stage below serves other stages too, and with another torch in the same install that install would fail.
    """
    if environment.kind == "stage" and not any(own.span == install.span for own in environment.own_installs):
        return False
    return all(
        item.name != "torch" or item.version is None or item.version.partition("+")[0] == torch.version
        for item in install.requirements
    )


def _mismatch(
    environment: Environment,
    matrix: Matrix,
    torch: Wanted,
    place: tuple[Install, Requirement],
    release: TorchRelease,
    right: str,
    because: tuple[str, ...],
) -> Finding:
    install, requirement = place
    local = f"+{requirement.local}" if requirement.local else ""
    edits: list[Edit] = []
    is_plain = requirement.specifier == f"=={requirement.version}" and not requirement.is_hashed
    is_free = is_plain and not requirement.is_locked and _is_editable(environment, torch, install)
    if requirement.is_literal and is_free:
        edits.append(Edit(span=requirement.specifier_span, text=f"=={right}{local}"))
    return found(
        matrix,
        ID,
        span=requirement.span,
        message=f"{requirement.name} {requirement.version} does not belong to torch {torch.version}",
        reasons=because,
        hint=f"{requirement.name} {right} was released with torch {torch.version}",
        facts=(f"torch/{release.version}",),
        edits=edits,
        fix=f"take {requirement.name} {right}" if edits else "",
    )


def _mixed(matrix: Matrix, torch: Wanted, install: Install, requirement: Requirement) -> Iterator[Finding]:
    variant, is_default = variant_of(matrix, install, requirement, requirement.version)
    right = build_of(matrix, torch)
    reason = "a companion loads the libraries that its torch was built with"
    if variant is None and is_default:
        if torch.requirement.ecosystem == "pypi" and torch.install.installer == "base":
            # The base has the very release, in its own build, and pip leaves it.
            return
        variant = _of_pypi(matrix, torch.version or "")
        reason = f"nothing names an index here, and PyPI has the build {variant}"
        # A companion asks for the CUDA major of its own build.
        if cuda_major(cuda_of(variant)) == cuda_major(cuda_of(right)) or None in (cuda_of(variant), cuda_of(right)):
            return
    elif not torch.variant:
        return
    if variant is None or right is None or variant == right:
        return
    yield found(
        matrix,
        ID,
        span=requirement.span,
        message=f"{requirement.name} is the build {variant} and torch the build {right}",
        reasons=(reason,),
        hint=f"take both from the index of {right}",
        facts=[
            f"torch/{row.torch}+{row.variant}"
            for row in matrix.torch_builds_of({torch.version or ""})
            if row.variant == right
        ],
    )


def _of_pypi(matrix: Matrix, torch: str) -> str | None:
    """Return the build of a release that PyPI has: torch and its companions are published there as one."""
    rows = [row.variant for row in matrix.torch_builds_of({torch}) if row.index == "pypi"]
    return rows[0] if len(rows) == 1 else None
