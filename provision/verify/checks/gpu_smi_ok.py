"""nvidia-smi runs and answers."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import FAILED
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import count_words
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]

_CODES = {
    2: "an argument it does not know",
    3: "an operation that is not available",
    4: "no permission",
    6: "no GPU found",
    8: "a GPU without its external power cables",
    9: "the driver is not loaded",
    11: "an interrupt problem of a GPU",
    12: "the NVML library is missing",
    13: "a function missing in the NVML library",
    14: "a damaged InfoROM",
    15: "a GPU fallen off the bus",
    16: "a GPU that needs a reset",
    17: "the control device blocked by the operating system",
    18: "driver and library of different versions",
}
"""Exit code of nvidia-smi → what it means.

Source: NVML's return codes, which nvidia-smi ends with.
"""


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Run it, and read what it prints."""
    del expected, matrix
    output = host.output("nvidia-smi-xml")
    if output.status == FAILED:
        lines = f"{output.error}\n{output.text}".splitlines()
        said = next((line.strip() for line in lines if line.strip() and not line.startswith("<")), "")
        meaning = f" ({_CODES[output.code]})" if output.code in _CODES else ""
        return failed(f"nvidia-smi ended with {output.code}{meaning}{': ' if said else ''}{said}", "an answer")
    smi = host.smi
    if not smi.gpus:
        return failed("nvidia-smi answers and lists no GPU", "at least one GPU")
    return passed(f"nvidia-smi answers for {count_words(len(smi.gpus), 'GPU')}, driver {smi.driver_version}")
