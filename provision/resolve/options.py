"""What the matrix offers: every build of every framework, and CUDA alone, in one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.model import CudaRelease, JaxRelease, TensorflowRelease, TorchBuild, TorchRelease
from provision.matrix.query import cuda_releases, runs_on
from provision.records import record, replace
from provision.resolve.environment import Demand, Given, wheel_rank
from provision.resolve.request import CPU, Request, matches
from provision.resolve.stack import FactRef
from provision.versions import branch_of, minor_of, parse


@record
class Option:
    """One build of one framework on one platform, or one CUDA toolkit alone.

    Attributes:
        framework: ``torch``, ``tensorflow``, ``jax`` or ``cuda``.
        version: Without local part.
        cuda: Minor (``12.1``); empty where the packages decide it (JAX plugins) or nobody knows it.
        cuda_major: ``12``; 0 when unknown.
        pythons: Pythons with wheels; empty for CUDA alone, where Python is free.
        pythons_preferred: Those with every companion package too.
        is_default: What the framework's own index serves without any choice.
        is_known: False for a build whose existence is open; it can be excluded, never chosen.
        is_complete: Another build of this version is proved absent.
        is_pythons_complete: A wheel for another Python is proved absent.
        has_platform: Whether this platform has wheels; ``None`` = unknown.
        sm_min: Lowest compute capability × 10 that its documents name.
        system_cuda: CUDA comes from an nvidia/cuda image rather than from wheels.
        row: The row of the matrix.
    """

    framework: str
    version: str
    variant: str
    cuda: str
    cuda_major: int
    pythons: tuple[str, ...] = ()
    pythons_preferred: tuple[str, ...] = ()
    released: str = ""
    is_default: bool = False
    is_known: bool = True
    is_complete: bool = True
    is_pythons_complete: bool = True
    has_platform: bool | None = True
    sm: tuple[str, ...] | None = None
    ptx: tuple[str, ...] = ()
    sm_min: int | None = None
    glibc: str | None = None
    minimum_driver: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    system_cuda: bool = False
    fact: FactRef
    row: Any

    @property
    def label(self) -> str:
        """How messages call it: ``torch 2.1.2+cu118``."""
        if self.framework == "cuda":
            return f"CUDA {self.version}"
        joint = "+" if self.framework == "torch" else " with "
        return f"{self.framework} {self.version}{joint}{self.variant}"


def fact_of(kind: str, key: str, row: Any, field: str | None = None) -> FactRef:
    """Return the reference to a row, or to one of its fields where that has an origin of its own."""
    origin = row.evidence.get(field, row) if field else row
    return FactRef(id=f"{kind}/{key}", source=origin.source, where=origin.where, status=origin.status)


def has_code_for(option: Option, capability: tuple[int, int], *, can_compile: bool = True) -> bool | None:
    """Tell whether a build of a framework runs on GPUs of a compute capability; None where the facts do not say.

    Args:
        option: The build.
        capability: Of the GPU, ``(8, 6)``.
        can_compile: Whether the driver compiles the build's PTX.
    """
    if option.sm_min is not None and capability[0] * 10 + capability[1] < option.sm_min:
        return False
    if option.sm is not None:
        return runs_on(capability, option.sm, option.ptx if can_compile else ()) is not None
    return None if option.sm_min is None else True


def late_compiler(matrix: Matrix, option: Option, driver: str) -> CudaRelease | None:
    """Return the CUDA release whose PTX a build carries, where a driver is too old to compile it.

    Args:
        matrix: The facts.
        option: The build.
        driver: Version or branch.
    """
    if not option.cuda:
        return None
    newest = next(iter(cuda_releases(matrix, option.cuda)), None)
    if newest is None or not newest.matching_driver_branch or branch_of(driver) >= newest.matching_driver_branch:
        return None
    return newest


def offer(matrix: Matrix, framework: str, request: Request, platform: str) -> list[Option]:
    """Return the options of one framework whose version is what the request asks for, best first.

    Args:
        matrix: The facts.
        framework: ``torch``, ``tensorflow``, ``jax`` or ``cuda``.
        request: Only its version wish for this framework is looked at.
        platform: ``linux/amd64`` or ``linux/arm64``.
    """
    if request.is_cpu:
        return _without_cuda(matrix, offer(matrix, framework, replace(request, is_cpu=False), platform), platform)
    offers = {"torch": _torch, "tensorflow": _tensorflow, "jax": _jax, "cuda": _cuda}
    options = offers[framework](matrix, request, platform)
    # 0.9.0 is a prefix of 0.9.0.1, but whoever writes a whole version means it.
    return [option for option in options if option.version == getattr(request, framework)] or options


def _without_cuda(matrix: Matrix, options: list[Option], platform: str) -> list[Option]:
    """Return one option a version, as its build without CUDA: what is said of the version holds, of CUDA nothing."""
    found: dict[str, Option] = {}
    for option in sorted(options, key=lambda option: not (option.is_known and option.is_default)):
        if option.is_known and option.version not in found:
            found[option.version] = option
    is_arm = platform == "linux/arm64"
    listed = matrix.settings("frameworks/torch.toml").get("cpu_builds")
    plain = []
    for option in sorted(found.values(), key=lambda option: parse(option.version), reverse=True):
        row, has_platform = option.row, True
        fact = option.fact
        if isinstance(row, TorchBuild):
            if listed is None:
                continue
            fact = fact_of("torch", listed.id, listed)
            builds = matrix.torch_builds_of({row.torch})
            has_platform = not is_arm or _serves(matrix, "torch", row.torch, "aarch64")
            # PyPI's own wheel for Arm is without CUDA unless it is one of the builds with it.
            arm64 = "pytorch" if any(build.arm64_index == "pypi" for build in builds) else "pypi"
            changes: dict[str, Any] = {
                "index": "pytorch",
                "arm64_index": arm64,
                "triton": None,
                "is_cuda_bundled": False,
            }
        elif isinstance(row, TensorflowRelease):
            changes = {"has_cuda_extra": False, "needs_library_path": None}
        else:
            changes = {"delivery": CPU, "legacy_builds": ()}
        if not isinstance(row, TensorflowRelease):
            changes["variant"] = CPU
        plain.append(
            Option(
                framework=option.framework,
                version=option.version,
                variant=CPU,
                cuda="",
                cuda_major=0,
                pythons=option.pythons,
                pythons_preferred=option.pythons_preferred,
                released=option.released,
                is_default=option.framework != "torch",
                is_pythons_complete=option.is_pythons_complete,
                has_platform=has_platform or None,
                glibc=option.glibc,
                fact=fact,
                row=replace(row, pins={}, **changes),
            )
        )
    return plain


def _torch(matrix: Matrix, request: Request, platform: str) -> list[Option]:
    wish = request.torch
    # A refusal asks for the same few versions beside everything else that could be changed.
    return list(matrix.keep(("torch", wish, platform), lambda: tuple(_torch_options(matrix, wish, platform))))


def _torch_options(matrix: Matrix, wish: str | None, platform: str) -> list[Option]:
    variant_wish = wish.partition("+")[2] if wish and wish[0] not in "<>=!~" else ""
    version_wish = wish.partition("+")[0] if variant_wish and wish else wish
    found = matrix.torch_releases_where(lambda version: matches(version_wish, version))
    releases = {row.version: row for row in found}
    is_arm = platform == "linux/arm64"
    options = []
    for row in matrix.torch_builds_of(releases):
        release = releases.get(row.torch)
        if release is not None and (not variant_wish or row.variant == variant_wish):
            options.append(_torch_option(row, release, is_arm=is_arm))
    for open_row in matrix.unknown_torch_builds:
        release = releases.get(open_row.torch)
        if release is not None and (not variant_wish or open_row.variant == variant_wish):
            known = next((option for option in options if option.version == open_row.torch), None)
            options.append(
                Option(
                    framework="torch",
                    version=open_row.torch,
                    variant=open_row.variant,
                    cuda=open_row.cuda,
                    cuda_major=parse(open_row.cuda).release[0],
                    pythons=known.pythons if known else (),
                    pythons_preferred=known.pythons_preferred if known else (),
                    released=release.released,
                    is_known=False,
                    is_complete=release.is_variants_complete,
                    is_pythons_complete=release.is_pythons_complete and known is not None,
                    fact=fact_of("torch", f"{open_row.torch}+{open_row.variant}", open_row),
                    row=open_row,
                )
            )
    have = {(option.version, option.variant) for option in options}
    for release in releases.values():
        options += [
            _lost_option(release, variant)
            for variant in release.variants
            if (release.version, variant) not in have and variant_wish in ("", variant)
        ]
    options.sort(key=lambda option: (parse(option.version), option.is_default, parse(option.cuda)), reverse=True)
    return options


def _lost_option(release: TorchRelease, variant: str) -> Option:
    """Return a build its release names and no row describes: it exists, and nothing more is known."""
    digits = variant.removeprefix("cu")
    cuda = f"{digits[:-1]}.{digits[-1]}"
    return Option(
        framework="torch",
        version=release.version,
        variant=variant,
        cuda=cuda,
        cuda_major=parse(cuda).release[0],
        released=release.released,
        is_known=False,
        is_complete=release.is_variants_complete,
        is_pythons_complete=False,
        fact=fact_of("torch", release.version, release),
        row=release,
    )


def _torch_option(row: TorchBuild, release: TorchRelease, *, is_arm: bool) -> Option:
    return Option(
        framework="torch",
        version=row.torch,
        variant=row.variant,
        cuda=row.cuda,
        cuda_major=parse(row.cuda).release[0],
        pythons=row.pythons,
        pythons_preferred=row.pythons_with_companions,
        released=release.released,
        is_default=(row.arm64_index if is_arm else row.index) == "pypi",
        is_complete=release.is_variants_complete,
        is_pythons_complete=release.is_pythons_complete,
        has_platform=row.is_arm64_published if is_arm else True,
        sm=row.sm_arm64 if is_arm else row.sm,
        ptx=() if is_arm else row.ptx,
        glibc=row.glibc,
        cudnn=row.cudnn,
        nccl=row.nccl,
        fact=fact_of("torch", f"{row.torch}+{row.variant}", row),
        row=row,
    )


def _tensorflow(matrix: Matrix, request: Request, platform: str) -> list[Option]:
    options = [
        Option(
            framework="tensorflow",
            version=row.version,
            variant="and-cuda" if row.has_cuda_extra else "system-cuda",
            cuda=minor_of(row.cuda),
            cuda_major=parse(row.cuda).release[0],
            pythons=row.pythons,
            pythons_preferred=row.pythons,
            released=row.released,
            is_default=True,
            is_pythons_complete=row.is_pythons_complete,
            has_platform=row.is_arm64_cuda if platform == "linux/arm64" else True,
            sm=row.sm,
            ptx=row.ptx,
            glibc=row.glibc,
            cudnn=row.cudnn_major,
            system_cuda=not row.has_cuda_extra,
            fact=fact_of("tensorflow", row.version, row),
            row=row,
        )
        for row in matrix.tensorflow
        if matches(request.tensorflow, row.version)
    ]
    options.sort(key=lambda option: parse(option.version), reverse=True)
    return options


def _jax(matrix: Matrix, request: Request, platform: str) -> list[Option]:
    options = [
        Option(
            framework="jax",
            version=row.version,
            variant=row.variant,
            cuda=minor_of(row.cuda_floor) if _is_system_cuda(row) else "",
            cuda_major=int(row.variant.removeprefix("cuda")),
            pythons=row.pythons,
            pythons_preferred=row.pythons,
            released=row.released,
            is_pythons_complete=row.is_pythons_complete,
            has_platform=row.is_arm64_published if platform == "linux/arm64" else True,
            sm=row.sm or None,
            ptx=row.ptx,
            sm_min=row.sm_min,
            glibc=_glibc_of(row.platform_tag),
            minimum_driver=row.minimum_driver,
            cudnn=row.cudnn.lstrip("<>=~").partition(".")[0] if row.cudnn and _is_system_cuda(row) else row.cudnn,
            system_cuda=_is_system_cuda(row),
            fact=fact_of("jax", f"{row.version}+{row.variant}", row),
            row=row,
        )
        for row in matrix.jax
        if matches(request.jax, row.version)
    ]
    options.sort(key=lambda option: (parse(option.version), option.cuda_major), reverse=True)
    return options


def _is_system_cuda(row: JaxRelease) -> bool:
    """Tell whether a JAX build looks for CUDA on the system, as the early ones do."""
    return row.delivery == "legacy" and row.pins is None


def _cuda(matrix: Matrix, request: Request, platform: str) -> list[Option]:
    del platform  # Whether a platform has an image is a question to the image tags, not to the toolkit.
    return [
        Option(
            framework="cuda",
            version=row.version,
            variant="toolkit",
            cuda=minor_of(row.version),
            cuda_major=parse(row.version).release[0],
            released=row.released or "",
            sm=tuple(f"sm_{number}" for number in row.sm) if row.sm is not None else None,
            fact=fact_of("cuda", row.version, row),
            row=row,
        )
        for row in matrix.cuda
        if matches(request.cuda, row.version)
    ]


def _glibc_of(tag: str | None) -> str | None:
    if tag and tag.startswith("manylinux_"):
        return ".".join(tag.split("_")[1:3])
    return None


def demands_of(
    matrix: Matrix, option: Option, python: str, machine: str
) -> tuple[tuple[Demand, ...], dict[str, Given]]:
    """Return the roots of one option's environment and the wheels that have no row.

    Args:
        matrix: The facts.
        option: A known option.
        python: The chosen Python.
        machine: ``x86_64`` or ``aarch64``.
    """
    row = option.row
    if isinstance(row, TorchBuild):
        return _torch_demands(matrix, row, python, machine)
    if isinstance(row, TensorflowRelease):
        # The extra's own pins, less TensorRT: what the libraries need and no more.
        pins = row.pins or {}
        extra = "[and-cuda]" if row.has_cuda_extra and not pins else ""
        roots = [_root(f"tensorflow{extra}", f"=={row.version}", "tensorflow")]
        why = f"tensorflow[and-cuda] {row.version}"
        return (*roots, *(_root(name, bound, "tensorflow", why) for name, bound in pins.items())), {}
    if isinstance(row, JaxRelease):
        return _jax_demands(matrix, row)
    return (), {}


def _root(name: str, specifier: str, part: str, why: str = "the request") -> Demand:
    return Demand(name=name, specifier=specifier, why=why, part=part)


def _torch_demands(
    matrix: Matrix, row: TorchBuild, python: str, machine: str
) -> tuple[tuple[Demand, ...], dict[str, Given]]:
    local = "" if index_of(row, machine) == "pypi" else f"+{row.variant}"
    demands = [_root("torch", f"=={row.torch}{local}", "torch")]
    given: dict[str, Given] = {}
    if local:
        _give(matrix, given, "torch", row.torch, local, index_requires(matrix, row, machine))
    for name, version, own in _companions(matrix, row, machine, local):
        if not _has_wheel(matrix, name, version, python, machine):
            continue
        demands.append(_root(name, f"=={version}{own}", "torch", f"torch {row.torch}"))
        if own:
            _give(matrix, given, name, version, own, None)
    demands.append(_root("numpy", "", "torch", f"torch {row.torch} (tensors to arrays and back)"))
    return tuple(demands), given


def companions_of(matrix: Matrix, option: Option) -> dict[str, str]:
    """Return what is released with a build of PyTorch, by name: its version, whether or not there is a wheel of it."""
    if not isinstance(option.row, TorchBuild):
        return {}
    (release,) = matrix.torch_releases_where(lambda version: version == option.row.torch)
    named = (("torchvision", release.torchvision), ("torchaudio", release.torchaudio))
    return {name: version for name, version in named if version is not None}


def _companions(matrix: Matrix, row: TorchBuild, machine: str, local: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and local part of what goes with a build that has a local part of its own.

    The last torchaudio serves every later torch, but refuses to be imported beside a CUDA of another minor than its
    own: of its releases that is taken whose build is known to be for the same, the one that is paired with the torch
    before newer and older ones.
    """
    (release,) = matrix.torch_releases_where(lambda version: version == row.torch)
    if release.torchvision is not None:
        yield "torchvision", release.torchvision, local
    if release.torchaudio is None:
        return
    minor = parse(release.torchaudio).release[:2]
    if minor == parse(row.torch).release[:2] or parse(row.torch).major == 1:
        yield "torchaudio", release.torchaudio, local
        return
    others = {item.torchaudio for item in matrix.torch_releases if item.torchaudio} - {release.torchaudio}
    alike = sorted((text for text in others if parse(text).release[:2] == minor), key=parse, reverse=True)
    for version in (release.torchaudio, *alike):
        build = _build_of(matrix, version, row, machine)
        if build is not None:
            yield "torchaudio", version, build
            return


def _build_of(matrix: Matrix, version: str, row: TorchBuild, machine: str) -> str | None:
    """Return the local part of a torchaudio's build for the CUDA of a newer torch, ``None`` where none is known.

    It has the builds of the torch of its own version. Where there is no such torch it was paired by its day with one
    of the package index, and is there for the CUDA of that.
    """
    builds = matrix.torch_builds_of({version})
    if not builds:
        paired = {item.version for item in matrix.torch_releases if item.torchaudio == version}
        served = (item for item in matrix.torch_builds_of(paired) if index_of(item, machine) == "pypi")
        return "" if row.variant in {item.variant for item in served} else None
    if row.variant == CPU:
        return "" if index_of(row, machine) == "pypi" else f"+{CPU}"
    same = next((item for item in builds if item.variant == row.variant), None)
    if same is None:
        return None
    return "" if index_of(same, machine) == "pypi" else f"+{row.variant}"


def index_of(row: TorchBuild, machine: str) -> str:
    """Return which index serves a build on a machine: on Arm the wheel that PyPI has may be one without CUDA."""
    if machine == "aarch64":
        return row.arm64_index or "pytorch"
    return row.index


def _has_wheel(matrix: Matrix, name: str, version: str, python: str, machine: str) -> bool:
    package = matrix.package(name)
    release = package.release(version) if package else None
    if release is None:
        return package is None
    return any(wheel_rank(wheel.file, python, machine, None) for wheel in release.wheels)


def index_requires(
    matrix: Matrix, row: TorchBuild, machine: str = "x86_64"
) -> tuple[tuple[str, str, str, str], ...] | None:
    """Return what a build of the PyTorch index requires beyond its PyPI sibling; ``None`` when nobody knows.

    Args:
        matrix: The facts.
        row: A build that PyPI does not serve.
        machine: ``x86_64`` or ``aarch64``.
    """
    if row.pins is None and not row.is_cuda_bundled:
        package = matrix.package("torch")
        release = package.release(f"{row.torch}+{row.variant}") if package else None
        if release is None or not release.requires:
            return None
        return tuple(
            (name, bound, _marker(matrix, marker, bound, machine) if name == "triton" else marker, extra)
            for name, bound, marker, extra in release.requires
        )
    needs = [(name, bound, "", "") for name, bound in sorted((row.pins or {}).items())]
    package = matrix.package("torch")
    sibling = package.release(row.torch) if package else None
    # Which Pythons and machines get triton is the same in every build of a version.
    markers = [marker for name, _, marker, _ in (sibling.requires if sibling else ()) if name == "triton"]
    if row.triton is not None:
        marker = _marker(matrix, markers[0] if markers else "", row.triton, machine)
        needs.append(("triton", row.triton, marker, ""))
    return tuple(needs)


def _marker(matrix: Matrix, marker: str, triton: str, machine: str) -> str:
    """Return where a build asks for triton: an x86-64 wheel's marker does not hold for the Arm build with CUDA.

    Since there is a triton for Arm, all CUDA builds ask for it. Source: pull request 165013 of PyTorch.
    """
    is_narrow = machine == "aarch64" and "platform_machine" in marker
    return "" if is_narrow and _serves(matrix, "triton", triton.removeprefix("=="), machine) else marker


def _serves(matrix: Matrix, name: str, version: str, machine: str) -> bool:
    """Tell whether any wheel of a version is for a machine."""
    package = matrix.package(name)
    release = package.release(version) if package else None
    return release is not None and any(f"_{machine}" in wheel.file for wheel in release.wheels)


def _give(
    matrix: Matrix,
    given: dict[str, Given],
    name: str,
    version: str,
    local: str,
    requires: tuple[tuple[str, str, str, str], ...] | None,
) -> None:
    """State an index wheel: what its PyPI sibling requires, less the CUDA libraries, plus what is said of it."""
    package = matrix.package(name)
    sibling = package.release(version) if package else None
    own = tuple(
        need
        for need in (sibling.requires if sibling else ())
        if not need[0].startswith(("nvidia-", "triton", "cuda-toolkit", "cuda-bindings"))
    )
    given[name] = Given(version=version + local, requires=own + (requires or ()))


def _jax_demands(matrix: Matrix, row: JaxRelease) -> tuple[tuple[Demand, ...], dict[str, Given]]:
    if row.delivery == "plugin":
        return (_root(f"jax[{row.extra or row.variant}]", f"=={row.version}", "jax"),), {}
    if row.delivery == CPU:
        listed = matrix.package("jax")
        release = listed.release(row.version) if listed else None
        demands = [_root("jax", f"=={row.version}", "jax")]
        if release is None or not any(name == "jaxlib" and not extra for name, _, _, extra in release.requires):
            # Early versions name their jaxlib in extras alone.
            jaxlib = (row.jaxlib or row.version).partition("+")[0]
            specifier = jaxlib if jaxlib[0] in "<>=!~" else f"=={jaxlib}"
            demands.append(_root("jaxlib", specifier, "jax", f"jax {row.version}"))
        return tuple(demands), {}
    demands = [_root("jax", f"=={row.version}", "jax")]
    given: dict[str, Given] = {}
    package = matrix.package("jax")
    known = package.release(row.version) if package else None
    if known is None or not known.wheels:
        # Early versions are on PyPI as source alone; what they need is left to the installer.
        given["jax"] = Given(version=row.version, requires=())
        demands.append(_root("numpy", "", "jax", f"jax {row.version}"))
    if row.legacy_builds:
        # The newest cuDNN build is the last one listed.
        local = row.legacy_builds[-1]
        version = f"{row.jaxlib or row.version}+{local}" if "+" not in local else local
        given["jaxlib"] = Given(version=version, requires=())
        demands.append(_root("jaxlib", f"=={version}", "jax", f"jax {row.version}"))
    demands += [_root(name, specifier, "jax", f"jax {row.version}") for name, specifier in (row.pins or {}).items()]
    return tuple(demands), given
