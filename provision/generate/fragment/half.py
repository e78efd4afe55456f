"""The GPU half of a stack: what a project's own tool must be told so that it installs the stack's frameworks."""

from __future__ import annotations

import re

from provision.errors import UsageError
from provision.generate.requirements import check_has_python
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import CPU
from provision.resolve.stack import Stack
from provision.versions import parse

_TORCH = ("torch", "torchvision", "torchaudio")
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


@record
class Pin:
    """One package at one version.

    Attributes:
        version: Without local part; ``local`` is that part (``cu124``), empty for a build of the package index.
        index: Address of the index that has the build; absent for the package index.
        is_flat: The index is one page of links to files.
    """

    name: str
    version: str
    extras: tuple[str, ...] = ()
    local: str = ""
    index: str | None = None
    is_flat: bool = False

    @property
    def label(self) -> str:
        """Name with extras: ``jax[cuda12]``."""
        return f"{self.name}[{','.join(self.extras)}]" if self.extras else self.name

    @property
    def line(self) -> str:
        """The requirement where the index is chosen by name: with the local part only where a page has several."""
        return f"{self.label}=={self.version}" + (f"+{self.local}" if self.is_flat and self.local else "")

    @property
    def exact_line(self) -> str:
        """The requirement with the local part, for tools that look in all indexes."""
        return f"{self.label}=={self.version}" + (f"+{self.local}" if self.local else "")


@record
class GpuHalf:
    """What is written into a project.

    Attributes:
        stack: Name of the stack.
        python: ``3.11``; ``pythons`` are all that have wheels of every framework, lowest first.
        machine: ``x86_64`` or ``aarch64``.
        build: ``cu124`` or ``cuda12``: what the extra or feature with CUDA is called.
        cuda_major: ``12``.
        pins: The frameworks with CUDA; ``cpu_pins`` the same versions without. In a stack without CUDA they are equal.
        bounds: Package → bound that no metadata states (``numpy`` → ``<2``), by name.
        added: Packages that are needed beside them and named by no metadata.
        held: NVIDIA libraries → version, where the frameworks leave their tool a choice; by name.
    """

    stack: str
    python: str
    pythons: tuple[str, ...]
    machine: str
    build: str
    cuda_major: str
    pins: tuple[Pin, ...]
    cpu_pins: tuple[Pin, ...]
    bounds: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    held: tuple[tuple[str, str], ...] = ()

    @property
    def is_cpu(self) -> bool:
        """Whether the stack is without CUDA, so that there is nothing to choose."""
        return self.build == CPU

    @property
    def names(self) -> frozenset[str]:
        """The frameworks and what comes with them."""
        return frozenset(pin.name for pin in (*self.pins, *self.cpu_pins))

    @property
    def python_range(self) -> str:
        """The Pythons as a specifier: ``>=3.9,<3.13``."""
        first, last = self.pythons[0], parse(self.pythons[-1])
        return f">={first},<{last.major}.{last.minor + 1}"


def is_library(name: str) -> bool:
    """Tell whether a package is a library of CUDA, which a build without CUDA has no use for."""
    return name.startswith("nvidia-")


def take_gpu_half(stack: Stack, matrix: Matrix) -> GpuHalf:
    """Return the GPU half of a stack.

    Args:
        stack: The stack; its ``image`` part must be there.
        matrix: The facts it came from.

    Raises:
        UsageError: The stack has no framework.
    """
    check_has_python(stack, "dependencies of a project")
    if not stack.frameworks:
        raise UsageError(
            f"{stack.name} has no framework, so there is nothing to write into a project",
            hints=("name one, as in `--torch 2.1`",),
        )
    pins: list[Pin] = []
    cpu_pins: list[Pin] = []
    direct: tuple[str, ...] = ()
    pythons: set[str] | None = None
    for name, version in stack.frameworks.items():
        variant = stack.variants[name]
        if name == "torch":
            pins += [pin for part in _TORCH if (pin := _locked_pin(stack, part)) is not None]
            cpu_pins += pins if variant == CPU else _torch_cpu(pins, matrix)
            own = next((row for row in matrix.torch_builds_of({version}) if variant in (row.variant, CPU)), None)
            found = own.pythons if own is not None else ()
        elif name == "tensorflow":
            tensorflow = next(row for row in matrix.tensorflow if row.version == version)
            has_extra = tensorflow.has_cuda_extra and variant != CPU
            is_whole = has_extra and not _brings_tensorrt(matrix, version)
            direct += () if is_whole or not has_extra else tuple(tensorflow.pins or ())
            pins.append(Pin(name=name, version=version, extras=("and-cuda",) if is_whole else ()))
            cpu_pins.append(Pin(name=name, version=version))
            found = tensorflow.pythons
        else:
            jax = next(row for row in matrix.jax if row.version == version and variant in (row.variant, CPU))
            if variant == CPU:
                pins.append(Pin(name=name, version=version))
            elif jax.delivery == "plugin":
                pins.append(Pin(name=name, version=version, extras=(jax.extra or variant,)))
            else:
                early = [pin for part in ("jax", "jaxlib") if (pin := _locked_pin(stack, part)) is not None]
                pins += early
                direct += tuple(jax.pins or ())
                # Early versions name their jaxlib in extras alone.
                cpu_pins += [Pin(name=pin.name, version=pin.version) for pin in early if pin.name != name]
            cpu_pins.append(Pin(name=name, version=version))
            found = jax.pythons
        plain = {python for python in found if not python.endswith("t")}
        pythons = plain if pythons is None else pythons & plain
    python = (stack.python or "").rstrip("t")
    bounds, added = _hidden(stack, matrix)
    libraries = {
        package.name: package.version
        for package in (stack.image.packages if stack.image else ())
        if package.layer == "cuda" and set(stack.frameworks) != {"torch"}
    }
    pins += [Pin(name=name, version=libraries[name]) for name in sorted(direct) if name in libraries]
    variant = stack.variants.get("torch", stack.variant)
    return GpuHalf(
        stack=stack.name,
        python=python,
        pythons=tuple(sorted({*(pythons or ()), python}, key=parse)),
        machine=_MACHINES[stack.platform],
        build=variant if re.fullmatch(r"cu(da)?[0-9]+|cpu", variant) else f"cuda{parse(stack.cuda).major}",
        cuda_major=str(parse(stack.cuda).major) if stack.cuda else "",
        pins=tuple(pins),
        cpu_pins=tuple(cpu_pins),
        # What is held to one version needs no bound.
        bounds=tuple((name, bound) for name, bound in bounds if name not in libraries),
        added=added,
        held=tuple(sorted((name, version) for name, version in libraries.items() if name not in direct)),
    )


def _locked_pin(stack: Stack, name: str) -> Pin | None:
    packages = stack.image.packages if stack.image is not None else ()
    package = next((item for item in packages if item.name == name), None)
    if package is None:
        return None
    version, _, local = package.version.partition("+")
    return Pin(name=name, version=version, local=local, index=package.index_url, is_flat=package.index == "jax")


def _torch_cpu(pins: list[Pin], matrix: Matrix) -> list[Pin]:
    urls = matrix.settings("frameworks/torch.toml").get("wheel_index")
    template = urls.value if urls is not None else None
    index = template.replace("{variant}", "cpu") if template else None
    return [Pin(name=pin.name, version=pin.version, local="cpu" if index else "", index=index) for pin in pins]


def _brings_tensorrt(matrix: Matrix, version: str) -> bool:
    """Tell whether the extra of a TensorFlow asks for TensorRT, which the package index never had for all of them."""
    package = matrix.package("tensorflow")
    release = package.release(version) if package else None
    return release is not None and any(name.startswith("tensorrt") for name, _, _, _ in release.requires)


def _hidden(stack: Stack, matrix: Matrix) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    named = {fact.id for reason in stack.reasons for fact in reason.facts}
    bounds: dict[str, str] = {}
    added: set[str] = set()
    for row in matrix.constraints:
        if f"constraint/{row.id}" not in named:
            continue
        for name, bound in row.requires.items():
            if row.kind == "add":
                added.add(f"{name}{bound}")
            else:
                bounds[name] = f"{bounds[name]},{bound}" if name in bounds and bounds[name] != bound else bound
    return tuple(sorted(bounds.items())), tuple(sorted(added))
