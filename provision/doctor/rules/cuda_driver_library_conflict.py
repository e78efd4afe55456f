"""Programs load a libcuda that is older than the driver in the kernel."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of
from provision.probe.parse.system import Library
from provision.versions import parse

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"unsupported display driver / cuda driver combination",
    r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|cudaErrorSystemDriverMismatch",
    r"\berror:? 803\b",
    r"kernel version [0-9.]{5,12} does not match DSO version [0-9.]{5,12}",
)


def examine(case: Case) -> Sign | None:
    """Look for a libcuda put in front by the environment whose version is not the kernel's."""
    quote = case.find(*SYMPTOMS)
    driver = driver_of(case)
    libraries = case.look(lambda host: host.libraries) or ()
    for library in libraries:
        if library.soname == "libcuda.so.1" and driver and _is_older(library, driver):
            return Sign(
                confidence="high",
                seen=(f"{library.path} is {library.version}, the kernel's driver {driver}", *quoted(quote)),
                expected="no libcuda in front of the driver's own",
                fix=(
                    f"Take the folder of {library.path} out of LD_LIBRARY_PATH, and of the image if it is set there.",
                    "Look again at what is loaded: `ldconfig -p | grep libcuda.so.1`.",
                ),
            )
    unseen = () if libraries else ("which libcuda is loaded: `echo $LD_LIBRARY_PATH; ldconfig -p | grep libcuda.so.1`",)
    return hint(quote, expected="libcuda of the same version as the kernel's driver", unseen=unseen)


def _is_older(library: Library, driver: str) -> bool:
    """Tell whether a library that the environment put in front is older; a newer one is forward compatibility."""
    if library.version is None or not (library.origin == "LD_LIBRARY_PATH" or "/compat" in library.path):
        return False
    try:
        return parse(library.version) < parse(driver)
    except ValueError:
        return False
