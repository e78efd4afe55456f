"""The libraries of CUDA that a program gets, and the GPUs that it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provision.matrix.load import Matrix
from provision.matrix.query import gpu_ids
from provision.probe.gpus import smi_gpus
from provision.probe.output import ABSENT, Unreadable, read_or
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.system import Library
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown
from provision.signals.work import count_gpus, judge_work
from provision.versions import is_older, is_prefix_of

LOADER = ("ldconfig", "LD_LIBRARY_PATH")
"""Origins the loader itself looks in."""
_OF_TORCH = "PyTorch's"


def major_of(library: Library) -> str | None:
    """Return what stands behind ``.so.``: ``12`` of ``libcudart.so.12``; a link for compilers has its file's."""
    numbers = library.soname.partition(".so.")[2] or library.file.partition(".so.")[2]
    return numbers.split(".")[0] or None


def agrees(planned: str, found: str) -> bool:
    """Tell whether two versions are the same as far as the shorter one tells: 8.9.2 agrees with 8.9.2.26."""
    pairs = list(zip(_version_parts(planned), _version_parts(found), strict=False))
    return bool(pairs) and all(a == b for a, b in pairs)


def _version_parts(version: str) -> list[str]:
    return version.partition("+")[0].partition("-")[0].split(".")


def _judge_library(host: Snapshot, expected: Expectation, label: str) -> Signal:
    """Compare every copy of a library that a program may get with the planned version.

    A wheel's own copy is what its framework loads, so the system's is judged only where there is no such copy; one on
    LD_LIBRARY_PATH comes before both.

    Args:
        host: Where to look.
        expected: The plan, which may have another version for PyTorch's own copy.
        label: Name for people (``cuDNN``); the plan, PyTorch, the wheel and the file have it in small letters.
    """
    name = label.lower()
    planned: str | None = getattr(expected, name)
    if planned is None:
        return skipped(f"no {label} is planned")
    of_torch: str | None = getattr(expected.build_of("torch"), name)
    reasons: list[str] = []
    paths: list[tuple[str, str]] = []
    own: list[tuple[str, str]] = []
    majors: dict[str, str] = {}
    try:
        copies = [
            library for library in host.libraries if library.soname.startswith(f"lib{name}.so") and not library.is_stub
        ]
    except Unreadable as error:
        copies = []
        reasons.append(error.reason)
    for library in copies:
        version = library.version or major_of(library)
        if version is None:
            continue
        if library.origin in LOADER and (major := major_of(library)):
            majors[major] = library.path
        (own if library.origin == "python" else paths).append((library.path, version))
    own += _wheels_of(host, f"nvidia-{name}", reasons) + _copy_of_torch(host, name, label, reasons)
    shadowing = [
        copy for copy, library in zip(_located(copies), copies, strict=True) if library.origin == "LD_LIBRARY_PATH"
    ]
    judged = [copy for copy in shadowing if copy[1]] + (own or paths)
    plans = {
        where: of_torch if of_torch and (where.startswith(_OF_TORCH) or "/torch/lib/" in where) else planned
        for where, _ in judged
    }
    wrong = [(where, version) for where, version in dict.fromkeys(judged) if not agrees(plans[where], version)]
    if wrong:
        told = "; ".join(f"{where} is {version}" for where, version in wrong)
        wanted = dict.fromkeys(plans[where] for where, _ in wrong)
        return failed(told, f"{label} {' and '.join(wanted)}", subjects=[where for where, _ in wrong])
    if len(majors) > 1:
        told = " and ".join(f"{path} ({major})" for major, path in sorted(majors.items()))
        return failed(
            f"the loader finds two majors of {label}: {told}", f"{label} {planned} alone", subjects=majors.values()
        )
    if judged:
        return passed(f"{label} is {max((version for _, version in judged), key=len)}")
    if reasons:
        return unknown(reasons[0])
    return failed(f"there is no {label}", f"{label} {planned}")


def _located(copies: Sequence[Library]) -> list[tuple[str, str]]:
    return [(library.path, library.version or major_of(library) or "") for library in copies]


def _wheels_of(host: Snapshot, wheel: str, reasons: list[str]) -> list[tuple[str, str]]:
    try:
        packages = host.python.packages
    except Unreadable as error:
        reasons.append(error.reason)
        return []
    return [(name, version) for name, version in packages.items() if name.startswith(wheel)]


def _copy_of_torch(host: Snapshot, said: str, label: str, reasons: list[str]) -> list[tuple[str, str]]:
    try:
        version = getattr(host.torch, said)
    except Unreadable as error:
        reasons.append(error.reason)
        return []
    return [(f"{_OF_TORCH} {label}", version)] if isinstance(version, str) else []


_RUNTIME = "libcudart.so"
_JIT = "libnvJitLink.so"


def cuda_libs(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for stubs on the loader's path, two majors of the runtime, and a linker that shadows a wheel's own."""
    libraries = [library for library in host.libraries if library.origin in LOADER]
    faults = [
        Fault(said=f"{path}: a stub for linking is where programs load from", subject=path, kind="stub")
        for path in _stubs(host, libraries)
    ]
    runtimes = {major_of(library): library for library in libraries if library.soname.startswith(_RUNTIME)}
    if len(runtimes) > 1:
        majors = " and ".join(sorted(major or "an unknown major" for major in runtimes))
        paths = ", ".join(library.path for library in runtimes.values())
        faults.append(Fault(said=f"{paths}: the loader finds CUDA runtimes {majors}", subject=paths, kind="runtimes"))
    wheels = {library.soname: library for library in host.libraries if library.origin == "python"}
    for library in libraries:
        own = wheels.get(library.soname)
        is_shadow = library.origin == "LD_LIBRARY_PATH" and library.soname.startswith(_JIT)
        if is_shadow and own is not None and own.version != library.version:
            wheel = own.version or _wheel_version(host, "nvidia-nvjitlink")
            versions = f"{library.version or 'of no known version'}, the wheel's is {wheel or 'unknown'}"
            said = f"{library.path}: it is {versions}, and LD_LIBRARY_PATH puts it first"
            certainty = "high" if is_older(library.version, wheel) else "medium"
            faults.append(Fault(said=said, subject=library.path, kind="shadow", certainty=certainty))
    if faults:
        return faulty(faults, "one CUDA runtime, no stubs, nothing before a wheel's own libraries")
    if not libraries and (expected.gpus or host.has("driver-version")):
        return unknown("the loader finds no library of the driver or of CUDA, though the machine has GPUs")
    if not libraries:
        return skipped("the loader finds no library of CUDA")
    return passed(f"{len(libraries)} libraries, none in another's way")


def _wheel_version(host: Snapshot, beginning: str) -> str | None:
    return read_or(
        lambda: next(
            (version for name, version in sorted(host.python.packages.items()) if name.startswith(beginning)), None
        ),
        None,
    )


def _stubs(host: Snapshot, libraries: Iterable[Library]) -> list[str]:
    """Return the stubs that the loader finds, and folders of stubs on its path."""
    found = [library.path for library in libraries if library.is_stub]
    path = read_or(lambda: host.environment.get("LD_LIBRARY_PATH", ""), "")
    folders = [part for part in path.split(":") if part.rstrip("/").endswith("/stubs")]
    return found + [folder for folder in folders if not any(stub.startswith(folder) for stub in found)]


_COMPAT_PACKAGE = "cuda-compat"
_LIBCUDA = "libcuda.so"


def cuda_compat(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for a libcuda of a compat folder on the loader's path, and for the package beside GPUs it does not serve."""
    names = {gpu.name or "GPU" for gpu in host.smi.gpus}
    unserved = sorted(name for name in names if not _is_served(matrix, name))
    driver = host.find_smi_driver_version()
    if not host.libraries:
        return unknown("the loader finds no library of the driver, though the machine has GPUs")
    loaded = [
        library
        for library in host.libraries
        if library.soname.startswith(_LIBCUDA)
        and "/compat/" in library.path
        and library.origin in ("ldconfig", "LD_LIBRARY_PATH")
    ]
    if loaded and unserved:
        said = f"{loaded[0].path} is loaded for {unserved[0]}, which it does not support"
        should = "no compatibility libraries on the loader's path"
        fault = Fault(said=said, subject=loaded[0].path, kind="unserved")
        return failed(said, should, subjects=[library.path for library in loaded], faults=[fault])
    for library in loaded:
        if is_older(library.version, driver):
            said = f"{library.path} is {library.version}, older than the driver {driver}"
            fault = Fault(said=said, subject=library.path, kind="older")
            return faulty([fault], "compatibility libraries newer than the driver, or none")
    installed = read_or(
        lambda: [package.name for package in host.packages if package.name.startswith(_COMPAT_PACKAGE)], []
    )
    if installed and unserved and not host.virtualization.is_container:
        said = f"`{installed[0]}` is installed beside {unserved[0]}, which it does not support"
        fault = Fault(said=said, subject=installed[0], kind="installed")
        return failed(said, "not installed", subjects=installed, faults=[fault])
    if loaded:
        return passed(f"{loaded[0].path} is newer than the driver {driver}")
    return passed("no program gets them")


def _is_served(matrix: Matrix, name: str) -> bool:
    ids = gpu_ids(matrix, name)
    segments = {gpu.segment for gpu in matrix.gpus if gpu.id in ids}
    return not segments or bool(segments - {"consumer"})


def cuda_cudnn(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the copies of the loader, of the wheels and of PyTorch with the plan."""
    return _judge_library(host, expected, "cuDNN")


def cuda_nccl(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the copies of the loader, of the wheels and of PyTorch with the plan."""
    return _judge_library(host, expected, "NCCL")


def cuda_nvcc(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare releases where a compiler is planned, or is there without a word about it."""
    if expected.cuda is None:
        return skipped("no CUDA is planned")
    if expected.has_toolkit is False:
        return skipped("no compiler is planned, only what programs need to run")
    if host.output("nvcc").status == ABSENT:
        if expected.has_toolkit:
            return failed("there is no `nvcc`", f"CUDA {expected.cuda}")
        return skipped("there is no `nvcc`, and none is planned")
    nvcc = host.nvcc
    found = nvcc.version or nvcc.release
    if is_prefix_of(expected.cuda, found) or is_prefix_of(nvcc.release, expected.cuda):
        return passed(f"`nvcc` is {found}")
    return failed(f"`nvcc` is {found}", f"CUDA {expected.cuda}")


_DRIVER_TESTS = ("vector-add",)
_TORCH_TESTS = ("matmul-fp32",)


def cuda_smoke(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the kernel through libcuda; where that could not be asked, PyTorch's simplest work."""
    fine, should = "computed correctly", "the right sum on every GPU"
    try:
        work = host.cuda_work
    except Unreadable as first:
        try:
            work = host.torch_work
        except Unreadable:
            raise first from None
        return judge_work(host, work, expected, _TORCH_TESTS, fine=fine, should=should)
    return judge_work(host, work, expected, _DRIVER_TESTS, fine=fine, should=should)


_VISIBLE, _CONTAINER_VISIBLE = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
HIDING = ("", "-1", "none", "nodevfiles", "void")


def env_visible(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Check each entry as the driver would, which stops at the first that is none."""
    value = host.environment.get(_VISIBLE)
    if value is None:
        return passed(f"`{_VISIBLE}` is not set", faults=_hidden_by_toolkit(host))
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0].lower() in HIDING:
        return _fail_visible(f"`{_VISIBLE}={value}` hides every GPU", "hidden")
    if len(set(entries)) < len(entries):
        return _fail_visible(f"`{_VISIBLE}={value}` names a GPU twice, and that hides all", "hidden")
    try:
        gpus = host.smi.gpus
    except Unreadable as error:
        return unknown(f"`{_VISIBLE}={value}`; {error.reason}")
    for place, entry in enumerate(entries):
        if not _names_gpu(entry, gpus):
            hidden = f", and hides all from place {place} on" if place else ", and hides every GPU"
            is_number = entry.isdecimal() or entry.startswith("MIG-")
            said = f"`{_VISIBLE}={value}`: `{entry}` is none of {len(gpus)} GPUs{hidden}"
            return _fail_visible(said, "cut-short" if place else "beyond" if is_number else "hidden")
    count = count_gpus(host, expected)
    if expected.gpus is not None and count is not None and len(entries) < count and not entries[0].startswith("MIG-"):
        said = f"`{_VISIBLE}={value}` leaves {len(entries)} of {count} GPUs"
        return failed(said, f"{count} GPUs", subjects=[_VISIBLE])
    return passed(f"`{_VISIBLE}={value}` names {len(entries)} of {len(gpus)} GPUs", faults=_hidden_by_toolkit(host))


def _fail_visible(said: str, kind: str) -> Signal:
    fault = Fault(said=said, subject=_VISIBLE, kind=kind)
    return faulty([fault], "unset, or GPUs that exist")


def _hidden_by_toolkit(host: Snapshot) -> list[Fault]:
    """Look for the variable by which a container asks for no GPU; another way may have given it some all the same."""
    value = host.environment.get(_CONTAINER_VISIBLE, "all")
    if value.strip().lower() not in HIDING or smi_gpus(host):
        return []
    said = f"`{_CONTAINER_VISIBLE}={value}` gives the container no GPU"
    return [Fault(said=said, subject=_CONTAINER_VISIBLE, kind="hidden", certainty="medium")]


def _names_gpu(entry: str, gpus: Sequence[SmiGpu]) -> bool:
    if entry.isascii() and entry.isdigit():
        return len(entry) < 6 and int(entry) < len(gpus)
    if entry.startswith("MIG-"):
        return any(gpu.mig_current for gpu in gpus)
    return entry.startswith("GPU-") and sum((gpu.uuid or "").startswith(entry) for gpu in gpus) == 1
