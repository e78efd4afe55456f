"""What the facts say to a message: the wheel that brings a library, the toolkit that knows a GPU, the matching pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from provision.doctor.case import Case
from provision.doctor.stack import driver_of, torch_of
from provision.matrix.model import TorchBuild
from provision.versions import minor_of, parse

_SONAME = re.compile(r"lib([A-Za-z]+(?:_host)?)(?:_[a-z_]+)?\.so(?:\.([0-9]+))?")
_SUFFIX = re.compile(r"-cu([0-9]{2})")
_ABI_TAG = re.compile(r"\.cpython-3([0-9]{1,2})")
_PIN = r"\btorch==(?P<torch>[0-9]+\.[0-9]+\.[0-9]+)(?:\+(?P<variant>cu[0-9]{2,3}))?"
_REFUSED_TORCH = rf"(?:requirement|found for|no version of) {_PIN}"
_TORCH_OF_COMMAND = rf"\b(?:pip3?|uv) (?:install|add)\b.{{0,200}}{_PIN}"
_REFUSED = (
    r"(?:satisfies the requirement|distribution found for|there is no version of) (?P<name>[A-Za-z0-9][\w.-]{0,60})",
    r"\b(?P<name>[A-Za-z0-9][\w.]{0,60})-[0-9]\S{3,120}\.whl\W{0,2} is not a supported wheel",
)
_PYTHONS = (
    r"\bpython(?: version)?[:=]{0,2} {0,2}(?P<python>3\.[0-9]{1,2})\b",
    r"/(?:python|lib/python)(?P<python>3\.[0-9]{1,2})/",
)
_INDEX = r"/whl/(?:test/)?(?P<variant>cu[0-9]{2,3})\b"
_CUDA_OF_WHEELS = r"\bnvidia-[a-z-]{3,20}-cu(1[1-9])\b"


def complete(values: Mapping[str, str], case: Case) -> dict[str, str]:
    """Return values with those that follow from them by the facts.

    Args:
        values: What a message names: ``library``, ``sm`` and whatever else its row's groups are called.
        case: For versions elsewhere in the text or on the target, and the facts.
    """
    found = dict(values)
    for name, read in _READERS.items():
        if name not in found and (text := read(found, case)):
            found[name] = text
    return found


def _wheel(values: Mapping[str, str], case: Case) -> str | None:
    """Name the wheel that brings a library, in the version that the PyTorch of the case pins."""
    soname = _SONAME.match(values.get("library", ""))
    if soname is None:
        return None
    key = f"lib{soname[1]}.so.{soname[2]}"
    row = next((row for row in case.matrix.rows("diagnoses.toml", "soname") if row.id == key), None)
    if row is None:
        return None
    build = _build(case)
    for wheel in row.wheels:
        name = re.split(r"[<>=]", wheel)[0]
        if build is not None and name in (build.pins or {}):
            return f"'{name}{(build.pins or {})[name]}'"
    quote = case.find(_CUDA_OF_WHEELS)
    cuda = build.cuda.partition(".")[0] if build is not None else quote.match[1] if quote else None
    fitting = [wheel for wheel in row.wheels if (suffix := _SUFFIX.search(wheel)) and suffix[1] == cuda]
    return f"'{(fitting or row.wheels)[0]}'"


def _nccl(_: Mapping[str, str], case: Case) -> str | None:
    """Name the NCCL that the PyTorch of the case pins."""
    build = _build(case)
    pins = (build.pins or {}).items() if build is not None else ()
    return next((f"'{name}{pin}'" for name, pin in pins if name.startswith("nvidia-nccl")), None)


def _toolkit(values: Mapping[str, str], case: Case) -> str | None:
    """Name the oldest CUDA whose compiler knows an architecture."""
    if not values.get("sm", "").isdigit():
        return None
    able = [row.version for row in case.matrix.rows("cuda.toml", "release") if int(values["sm"]) in (row.sm or ())]
    return minor_of(min(able, key=parse)) if able else None


def _torch(_: Mapping[str, str], case: Case) -> str | None:
    return torch_of(case).version


def _torch_cuda(_: Mapping[str, str], case: Case) -> str | None:
    """Name the CUDA that the PyTorch of the case was built for."""
    build = _build(case)
    cuda = torch_of(case).cuda or (build.cuda if build is not None else None)
    return cuda if cuda and cuda[:1].isdigit() else None


def _toolkit_package(values: Mapping[str, str], case: Case) -> str | None:
    """Name the same CUDA as packages of the toolkit spell it."""
    cuda = _torch_cuda(values, case)
    return cuda.replace(".", "-") if cuda else None


def _branch(_: Mapping[str, str], case: Case) -> str | None:
    """Name the branch of the driver."""
    driver = driver_of(case)
    return driver.partition(".")[0] if driver else None


def _torch_published(_: Mapping[str, str], case: Case) -> str | None:
    """Say which builds of a pinned PyTorch there are, where the one that is asked for is not one of them."""
    pin, index, python = case.find(_REFUSED_TORCH), case.find(_INDEX), case.find(*_PYTHONS)
    if pin is None and all(quote.match["name"].lower() == "torch" for quote in case.find_all(*_REFUSED)):
        pin = case.find(_TORCH_OF_COMMAND)
    if pin is None:
        return None
    variant = pin.match["variant"] or (index.match["variant"] if index is not None else None)
    builds = [row for row in case.matrix.torch_builds if row.torch == pin.match["torch"]]
    wanted = [row for row in builds if variant in (None, row.variant)]
    version = f"torch {pin.match['torch']}"
    if builds and not wanted:
        return f"{version} was never built for {variant}, only for {', '.join(sorted({row.variant for row in builds}))}"
    known = {text for row in wanted for text in row.pythons}
    if python is not None and known and python.match["python"] not in known:
        pythons = sorted((text for text in known if text[-1].isdigit()), key=parse)
        if not pythons:
            return f"{version} has wheels for Python {', '.join(sorted(known))} alone"
        return f"{version} has wheels for Python {pythons[0]} to {pythons[-1]}, and none for {python.match['python']}"
    if wanted and pin.match["variant"] and index is None:
        return f"{version} for {variant} is on PyTorch's index of that name, and not on PyPI"
    return None


def _module_package(values: Mapping[str, str], case: Case) -> str | None:
    """Name what pip calls a module that is missing, the module itself where both have one name."""
    module = values.get("module", "").partition(".")[0]
    row = next((row for row in case.matrix.rows("diagnoses.toml", "module") if row.id == module), None)
    return row.package if row is not None else module or None


def _extension_package(values: Mapping[str, str], case: Case) -> str | None:
    """Name what pip calls the package of a compiled extension, by its folder, else by its file; those of the facts."""
    names = (values.get("folder"), values.get("extension", "").partition(".")[0])
    rows = {row.id: row.package.split()[0] for row in case.matrix.rows("diagnoses.toml", "module")}
    found = [rows.get(name, name.replace("_", "-")) for name in names if name]
    known = {row.package for row in case.matrix.rows("prebuilt.toml", "release")}
    return next((name for name in found if name in known), None)


def _extension_wheel(values: Mapping[str, str], case: Case) -> str | None:
    """Name the newest wheel that the project of ``extension_package`` publishes for the PyTorch and Python."""
    from provision.resolve.prebuilt import prebuilt_wheels

    package, build = values.get("extension_package"), _build(case)
    tag = _ABI_TAG.search(values.get("extension", ""))
    python = f"3.{tag[1]}" if tag is not None else values.get("python")
    if package is None or build is None or python is None:
        return None
    wheels = prebuilt_wheels(case.matrix, package, build, python, "x86_64")
    return wheels[0][1] if wheels else None


def _system_package(values: Mapping[str, str], case: Case) -> str | None:
    """Name the packages that bring a library of the system, as the newest system of the facts calls them."""
    library = values.get("library")
    row = next((row for row in case.matrix.rows("system_libraries.toml", "library") if row.id == library), None)
    return next(iter(row.packages.values()), None) if row is not None else None


def _torchvision(_: Mapping[str, str], case: Case) -> str | None:
    """Name the torchvision that goes with the PyTorch of the case."""
    torch = torch_of(case).version
    row = next((row for row in case.matrix.torch_releases if row.version == torch), None)
    return row.torchvision if row is not None else None


def _build(case: Case) -> TorchBuild | None:
    """Return the build of PyTorch in the case; where its CUDA is not told, the one that PyPI serves."""
    torch = torch_of(case)
    builds = [row for row in case.matrix.torch_builds if torch.version and row.torch == torch.version]
    if torch.cuda:
        return next((row for row in builds if row.cuda == torch.cuda), None)
    return next((row for row in builds if row.index == "pypi"), None)


_READERS: Mapping[str, Callable[[Mapping[str, str], Case], str | None]] = {
    "wheel": _wheel,
    "nccl": _nccl,
    "toolkit": _toolkit,
    "torch": _torch,
    "torch_cuda": _torch_cuda,
    "toolkit_package": _toolkit_package,
    "branch": _branch,
    "module_package": _module_package,
    "extension_package": _extension_package,
    "extension_wheel": _extension_wheel,
    "system_package": _system_package,
    "torch_published": _torch_published,
    "torchvision": _torchvision,
}
