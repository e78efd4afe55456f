"""Programs find no libcuda: the driver's user-space part is missing, or the container was not given it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"libcuda\.so(?:\.1)?['\"]?: ?cannot open shared object",
    r"Could not (?:find|load) (?:dynamic library '?)?libcuda(?![a-z])",
    r"libcuda\.so(?:\.1)? (?:cannot be|could not be|not) found",
    r"cuInit: UNKNOWN ERROR \(303\)",
    r"Found no NVIDIA driver on your system",
    r"(?:could not|couldn't|unable to|cannot|can't|failed to|not able to) (?:find|load|open|dlopen|"
    r"locate)\b.{0,30}libcuda(?:\.so)?(?![a-z])(?!.{0,160}undefined symbol)",
    r"CUDA Version: ERR!",
    r"Unable to find cuda lib under the names",
    r"NVML Shared Library Not Found|NVMLError_LibraryNotFound",
    r"libnvidia-ml\.so(?:\.1)?: cannot open shared object",
    r"NVML_ERROR_LIBRARY_NOT_FOUND|CUDA driver library cannot be found|Failed to open libnvidia-ml|"
    r"CUDA driver (?:is )?not (?:found|functional)|CudaSupportError: Error at driver init(?!.{0,60}\bCUDA_ERROR_)",
    r"CUDA\.jl did not successfully initialize|UndefVarError: `?libcuda`? not defined",
    r"dynamically load the .{0,4}(?:cuda|nvcuda).{0,4}shared library",
)

_NEEDED = ("compute", "all")


def examine(case: Case) -> Sign | None:
    """Look whether the loader finds libcuda, and what the container asked for."""
    quote = case.find(*SYMPTOMS)
    libraries = case.look(lambda host: host.libraries)
    driver = case.look(lambda host: host.driver)
    environment = case.look(lambda host: host.environment) or {}
    capabilities = environment.get("NVIDIA_DRIVER_CAPABILITIES")
    is_missing = libraries is not None and not any(library.soname == "libcuda.so.1" for library in libraries)
    expected = "libcuda.so.1 where the loader looks"
    if is_missing and capabilities is not None and not {*_NEEDED} & {*capabilities.replace(" ", "").split(",")}:
        return Sign(
            confidence="high",
            seen=(f"NVIDIA_DRIVER_CAPABILITIES is `{capabilities}`, which leaves libcuda out", *quoted(quote)),
            expected=expected,
            fix=("Start the container with `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`.",),
        )
    if is_missing and driver is not None:
        seen = (f"the kernel runs driver {driver.version} and the loader finds no libcuda.so.1", *quoted(quote))
        return Sign(confidence="high", seen=seen, expected=expected)
    unseen = () if libraries else ("whether the library is there: `ldconfig -p | grep libcuda`",)
    return hint(quote, expected=expected, unseen=unseen)
