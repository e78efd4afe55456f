"""The CUDA and cuDNN that programs load: those that torch brings, those of the base, or others that are installed."""

from __future__ import annotations

from provision.audit.model import Environment, Requirement
from provision.audit.wanted import Wanted, build_of, cuda_of
from provision.matrix.load import Matrix

_LIBRARIES = ("libcudnn", "libcublas", "cuda-libraries", "cuda-toolkit", "cuda-runtime", "cudnn")
_INSTALLERS = ("apt", "apt-get", "conda", "mamba", "micromamba", "dnf", "yum", "microdnf")
_WHEELS = ("nvidia-", "cuda-toolkit")
_EXTRAS = ("cuda", "cudnn", "ctk")


def brings_system_libraries(environment: Environment) -> bool:
    """Tell whether a command or a wheel brings libraries of CUDA beside those of the base and of a framework."""
    if any(item.name.startswith(_WHEELS) for install in environment.installs for item in install.requirements):
        return True
    return any(
        command.program in _INSTALLERS and any((word.text or "").startswith(_LIBRARIES) for word in command.words)
        for command in environment.commands
    )


def brings_own(requirement: Requirement) -> bool:
    """Tell whether a package is asked for together with the libraries that it loads."""
    return any(extra.startswith(_EXTRAS) for extra in requirement.extras)


def libraries_of(
    environment: Environment, matrix: Matrix, torch: Wanted | None, brought: tuple[str, ...] = ()
) -> dict[str, tuple[str, ...]]:
    """Return ``cuda`` and ``cudnn`` with the version in each place that they are loaded from.

    One is left out where it is not known in each place, and both where something else may bring them.

    Args:
        environment: What is judged.
        matrix: The facts.
        torch: The torch that is asked for, or that of the base.
        brought: Releases of torch that an installer takes from PyPI where none is named.
    """
    base = environment.base
    places: list[tuple[str | None, str | None]] = []
    if brought and (torch is None or torch.version is None):
        rows = [row for version in brought for row in matrix.torch_builds_of({version}) if row.index == "pypi"]
        places += [(cuda_of(row.variant), row.cudnn) for row in rows] or [(None, None)]
    elif torch is not None:
        build = build_of(matrix, torch)
        row = next((row for row in matrix.torch_builds_of({torch.version or ""}) if row.variant == build), None)
        places.append((cuda_of(build), row.cudnn if row is not None else None))
    elif _may_bring_torch(environment, matrix):
        return {}
    is_empty = base is None or base.cuda is None or (torch is not None and base.flavour == "base")
    if base is not None and not is_empty and "torch" not in base.frameworks:
        places.append((base.cuda, base.cudnn if base.has_cudnn else ""))
    if not places or brings_system_libraries(environment):
        return {}
    cuda = [version for version, _ in places]
    # A place without cuDNN serves nobody, and says nothing against what another place has.
    cudnn = [version for _, version in places if version != ""]
    return {
        name: tuple(version for version in versions if version)
        for name, versions in (("cuda", cuda), ("cudnn", cudnn))
        if versions and None not in versions
    }


def _may_bring_torch(environment: Environment, matrix: Matrix) -> bool:
    for install, requirement in environment.requirements():
        package = matrix.published(requirement.name) if requirement.ecosystem == "pypi" else None
        release = package.release(requirement.version or package.versions[0]) if package and package.versions else None
        if release is not None and not install.has_no_deps and any(need.name == "torch" for need in release.needs()):
            return True
    return False
