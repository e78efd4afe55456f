"""Another cuDNN than the framework was built with is loaded."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import wheel_version

SYMPTOMS = (
    r"compiled with CUDNN [0-9.]{1,8}, but CUDNN version in your machine is [0-9.]{1,8}",
    r"cuDNN version incompatibility: PyTorch was compiled"
    r"\s{1,4}against \(?([0-9, .]{3,12})\)?.{0,60}found runtime version \(?([0-9, .]{3,12})",
    r"Loaded runtime CuDNN library: ([0-9.]{3,12}).{0,40} but source was compiled with:? ([0-9.]{3,12})",
    r"libcudnn[a-z_]{0,30}\.so[.0-9]{0,10}.{0,20}undefined symbol",
    r"(?<!handle: )CUDNN_STATUS_(?:NOT_INITIALIZED|VERSION_MISMATCH)",
    r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)",
    r"CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)",
    r"(?<!handle: )CUDNN_STATUS_INTERNAL_ERROR",
    r"unable to find an engine to execute this computation",
    r"CUDNN_STATUS_(?:BAD_PARAM|RUNTIME_PREREQUISITE_MISSING|LICENSE_ERROR|INVALID_VALUE)|"
    r"cuDNN error: CUDNN_STATUS_SUCCESS",
    r"linked against cuDNN [0-9.]{3,12} but loaded|not defined in file libcudnn",
    r"No valid engine configs for|No (?:valid )?execution plans (?:built|support)",
    r"Outdated cuDNN installation found",
)

_LOADED = re.compile(SYMPTOMS[2], re.IGNORECASE)
_OPEN = re.compile(
    r"CUDNN_STATUS_(?!VERSION_MISMATCH|SUBLIBRARY)|unable to find an engine|No valid engine|"
    r"No (?:valid )?execution plans",
    re.IGNORECASE,
)
"""What cuDNN says of many failures: the others name two releases of it."""

_TELL_APART = (
    "See whether its memory is full while it runs: `nvidia-smi`. Then take a smaller batch or a free GPU.",
    "See whether the build has code for the GPU: "
    "`python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'`.",
    "See whether another cuDNN was loaded: run it with `env -u LD_LIBRARY_PATH`; `ldconfig -p | grep cudnn` names it.",
    "Look for an earlier error: `CUDA_LAUNCH_BLOCKING=1` names the call that broke.",
)


def examine(case: Case) -> Sign | None:
    """Look for a cuDNN in LD_LIBRARY_PATH that is not the one in the framework's wheels."""
    quote = case.find(*SYMPTOMS)
    libraries = [
        library
        for library in case.look(lambda host: host.libraries) or ()
        if library.soname.startswith("libcudnn.so") and library.version
    ]
    front = [library for library in libraries if library.origin == "LD_LIBRARY_PATH"]
    own = wheel_version(case, "nvidia-cudnn-cu") or case.look(lambda host: host.torch.cudnn)
    clash = next((library for library in front if own and _number(library.version) != _number(own)), None)
    expected = "one cuDNN, the one from the framework's wheels"
    if clash:
        return Sign(
            confidence="high" if quote else "medium",
            seen=(f"LD_LIBRARY_PATH puts {clash.path} ({clash.version}) before the framework's {own}", *quoted(quote)),
            expected=expected,
        )
    if quote and (versions := _LOADED.search(quote.line)) and (fix := _upgrade(versions[2].rstrip("."))):
        first = ("which one is found first: `ldconfig -p | grep cudnn`",)
        return hint(quote, expected=expected, fix=fix, unseen=first, message_kind="root")
    full = case.find(r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY") if quote else None
    if quote and "NOT_INITIALIZED" in quote.line and full:
        return hint(quote, confidence="low", seen=(f'"{full.line}"',), expected=expected)
    unseen = () if libraries else ("which cuDNN is loaded: `echo $LD_LIBRARY_PATH; ldconfig -p | grep cudnn`",)
    if quote and _OPEN.search(quote.line):
        return hint(quote, expected=expected, fix=_TELL_APART, unseen=unseen)
    return hint(quote, expected=expected, unseen=unseen, message_kind="root")


def _upgrade(wanted: str) -> tuple[str, ...]:
    """Name the cuDNN that a program was built with, where its version is written with dots."""
    major = wanted.partition(".")[0]
    if "." not in wanted or not major.isdigit():
        return ()
    requirement = f"nvidia-cudnn-cu12>={wanted},<{int(major) + 1}"
    return (
        f"Install a cuDNN of {wanted} or newer with the same major, for CUDA 12 as in `pip install '{requirement}'`.",
        "If such a one is there, an older one stands in front: `echo $LD_LIBRARY_PATH; ldconfig -p | grep cudnn`.",
        "Put the folder of the newer one first: `export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH`.",
    )


def _number(version: str | None) -> tuple[str, ...]:
    """Return the first three numbers: the fourth, of a build, may differ between a package and a wheel."""
    return tuple((version or "").split(".")[:3])
