"""A compatibility libcuda that is newer than the driver was tried on a GPU that does not support that."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of
from provision.errors import UnknownError, UsageError
from provision.matrix.query import find_gpus
from provision.versions import parse

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"forward compatibility was attempted on non supported HW",
    r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|cudaErrorCompatNotSupportedOnDevice",
    r"\berror:? 804\b",
)


def examine(case: Case) -> Sign | None:
    """Look for a libcuda newer than the driver beside a GPU that is no data-centre GPU."""
    quote = case.find(*SYMPTOMS)
    driver = driver_of(case)
    others = [
        library
        for library in case.look(lambda host: host.libraries) or ()
        if library.soname == "libcuda.so.1" and driver and _is_newer(library.version, driver)
    ]
    smi = case.look(lambda host: host.smi)
    outside = [gpu.name for gpu in smi.gpus if gpu.name and _segment(case, gpu.name) == "consumer"] if smi else []
    expected = "libcuda of the driver itself, or a data-centre GPU"
    if others and outside:
        return Sign(
            confidence="high",
            seen=(
                f"{others[0].path} is {others[0].version}, the driver {driver}",
                f"{outside[0]} has no forward compatibility",
                *quoted(quote),
            ),
            expected=expected,
        )
    unseen = () if others or driver else ("whether driver and libraries have one version: `nvidia-smi` alone tells",)
    return hint(quote, expected=expected, unseen=unseen)


def _is_newer(version: str | None, driver: str) -> bool:
    try:
        return version is not None and parse(version) > parse(driver)
    except ValueError:
        return False


def _segment(case: Case, name: str) -> str | None:
    try:
        return find_gpus(case.matrix, name)[0].segment
    except (UnknownError, UsageError):
        return None
