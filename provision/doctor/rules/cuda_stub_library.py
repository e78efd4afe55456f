"""The stub of libcuda, which is for linking only, is loaded at run time."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"CUDA driver is a stub library",
    r"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary",
    r"/stubs/libcuda\.so",
    r"\bLD_LIBRARY_PATH=\S{0,300}/stubs\b",
)


def examine(case: Case) -> Sign | None:
    """Look for a folder of stubs on the loader's path."""
    quote = case.find(*SYMPTOMS)
    path = (case.look(lambda host: host.environment) or {}).get("LD_LIBRARY_PATH", "")
    libraries = case.look(lambda host: host.libraries) or ()
    stubs = [library.path for library in libraries if library.soname == "libcuda.so.1" and library.is_stub]
    stubs += [part for part in path.split(":") if part.rstrip("/").endswith("/stubs")]
    expected = "no folder of stubs on the run-time path"
    if stubs:
        return Sign(confidence="high", seen=(f"the loader looks at {stubs[0]}", *quoted(quote)), expected=expected)
    return hint(quote, expected=expected, unseen=() if libraries else ("the loader's path: `echo $LD_LIBRARY_PATH`",))
