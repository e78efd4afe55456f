"""Driver, CUDA and PyTorch of a case, and what the facts say of them together."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.matrix.load import Matrix
from provision.matrix.model import DriverBranch, TorchBuild
from provision.matrix.query import runs_on
from provision.versions import minor_of, parse

_DRIVERS = (
    r"Driver Version: ([0-9]{3}(?:\.[0-9]{2,3}){1,2})",
    r"NVRM version: NVIDIA UNIX .{0,60}Kernel Module .{0,12}?([0-9]{3}(?:\.[0-9]{2,3}){1,2})",
    r"^(?!.*\b(?:requires?|required|needs?|minimum|at least|upgrade|update|install|older|newer|later|supports?"
    r"|tested|verified|compatible|recommended|works? with)\b)"
    r".*\bdriver(?: version)?(?: is)?[:= ]{1,3}v?([0-9]{3}(?:\.[0-9]{2,3}){1,2})\b",
)
"""The table of nvidia-smi, /proc/driver/nvidia/version, and what people and collect_env write."""
_TORCH = (
    r"\btorch(?:[=\s:'\"-]|version){1,6}([0-9]+\.[0-9]+(?:\.[0-9]+)?)(?:\+(cu[0-9]{2,3}|cpu))?",
    r"PyTorch version: ([0-9]+\.[0-9]+(?:\.[0-9]+)?)(?:\+(cu[0-9]{2,3}|cpu))?",
)
_TORCH_CUDA = (
    r"CUDA used to build PyTorch: ([0-9]+\.[0-9]+)",
    r"^\W{0,4}pytorch-cuda(?:==|[ =]{1,40})([0-9]+\.[0-9]+)",
)
_TOOLKIT = r"^\W{0,4}cuda-toolkit(?:==|[ =]{1,40})([0-9]+\.[0-9]+)"


class Torch:
    """PyTorch as far as it is known: ``version`` (``2.1.2``) and the ``cuda`` it was built for (``12.1``)."""

    def __init__(self, version: str | None = None, cuda: str | None = None) -> None:
        self.version = version
        self.cuda = cuda

    @property
    def minor(self) -> str | None:
        """The first two numbers of the version, as ``--torch`` takes them."""
        return minor_of(self.version) if self.version else None


def driver_of(case: Case) -> str | None:
    """Return the version of the loaded driver, from the target or from a pasted table of nvidia-smi."""
    smi = case.look(lambda host: host.smi)
    if smi is not None and smi.driver_version is not None:
        return smi.driver_version
    driver = case.look(lambda host: host.driver)
    if driver is not None:
        return driver.version
    quote = case.find(*_DRIVERS)
    return quote.match[1] if quote else None


def torch_of(case: Case) -> Torch:
    """Return what is known of PyTorch, from the target or from pasted text."""
    torch = case.look(lambda host: host.torch)
    if torch is not None and torch.version:
        return Torch(torch.version.partition("+")[0], torch.cuda)
    quote = case.find(*_TORCH)
    version = quote.match[1] if quote else None
    digits = quote.match[2] if quote else None
    if digits and digits.startswith("cu"):
        return Torch(version, f"{digits[2:-1]}.{digits[-1]}")
    cuda = case.find(*_TORCH_CUDA)
    return Torch(version, cuda.match[1] if cuda else _cuda_of_toolkit(case, version))


def _cuda_of_toolkit(case: Case, version: str | None) -> str | None:
    """Return the CUDA of the packages of the toolkit where a build of this PyTorch pins them: others only stand by."""
    toolkit = case.find(_TOOLKIT)
    return next(
        (
            row.cuda
            for row in case.matrix.torch_builds
            if toolkit is not None
            and (row.torch, row.cuda) == (version, toolkit.match[1])
            and any(name.startswith("cuda-toolkit") for name in row.pins or {})
        ),
        None,
    )


def has_gpu(case: Case) -> bool | None:
    """Tell whether the target has an NVIDIA GPU, by nvidia-smi or by the PCI bus; ``None`` where neither tells."""
    smi = case.look(lambda host: host.smi)
    if smi is not None and smi.gpus:
        return True
    pci = case.look(lambda host: host.pci)
    if pci is not None:
        return any(device.is_nvidia_gpu for device in pci)
    return None if smi is None else False


def cuda_of_number(number: int) -> str:
    """Return the CUDA version that a number of the driver's means: 11040 → ``11.4``.

    Source: CUDA driver API, cuDriverGetVersion: 1000 × major + 10 × minor.
    """
    return f"{number // 1000}.{number % 1000 // 10}"


def minimum_driver(matrix: Matrix, cuda: str) -> str | None:
    """Return the lowest driver that runs programs of a CUDA minor, ``None`` where the facts do not know it."""
    floors = [row.minimum_driver for row in matrix.cuda_below(minor_of(cuda))]
    return min(floors, key=parse) if floors else None


def branch_with_cuda(matrix: Matrix, cuda: str) -> DriverBranch | None:
    """Return the driver branch whose newest CUDA is this minor."""
    return next((row for row in matrix.driver_branches if row.max_cuda == cuda), None)


def builds_for_driver(matrix: Matrix, driver: str, minor: str | None = None) -> tuple[TorchBuild, ...]:
    """Return the CUDA builds of PyTorch that run on a driver, newest first.

    Args:
        matrix: The facts.
        driver: Version of the driver.
        minor: Only builds of this torch (``2.1``).
    """
    found = []
    for build in matrix.torch_builds:
        if minor and not f"{build.torch}.".startswith(f"{minor}."):
            continue
        floor = minimum_driver(matrix, build.cuda) if build.cuda[:1].isdigit() else None
        if floor is not None and parse(floor) <= parse(driver):
            found.append(build)
    return tuple(found)


def builds_for_gpu(matrix: Matrix, capability: tuple[int, int]) -> tuple[TorchBuild, ...]:
    """Return the builds of PyTorch that hold code for a compute capability, newest first."""
    return tuple(build for build in matrix.torch_builds if build.sm and runs_on(capability, build.sm, build.ptx))


def wheel_version(case: Case, prefix: str) -> str | None:
    """Return the version of the first installed distribution whose name begins so (``nvidia-cudnn-cu``)."""
    packages = case.look(lambda host: host.python.packages) or {}
    return next((version for name, version in sorted(packages.items()) if name.startswith(prefix)), None)
