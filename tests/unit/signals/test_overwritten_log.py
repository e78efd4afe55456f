"""A kernel log whose beginning is gone proves no silence, and what it still holds fails as always."""

from __future__ import annotations

import machines
import pytest

from provision.matrix.load import Matrix
from provision.verify.engine import choose_checks, verify_one

MATRIX = Matrix()
LATE = "[900000.000000] "
FAULTS = {
    "gpu.xid": "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.",
    "gpu.sxid": "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error",
    "gpu.pcie.aer": "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:5d:00.0",
    "host.hugelog": "NVRM: API mismatch: the client has the version 1.1, but this kernel module has the version 2.2.",
}
HARMLESS = {
    "gpu.xid": "NVRM: Xid (PCI:0000:5d:00): 13, pid=4242, name=python3, Graphics Exception",
    "gpu.sxid": FAULTS["gpu.sxid"].replace("Fatal", "Non-fatal"),
    "gpu.pcie.aer": FAULTS["gpu.pcie.aer"].replace("0000:5d:00.0", "0000:ee:00.0"),
}


def ask(check: str, *lines: str):
    text = "".join(f"{LATE}{line}\n" for line in ("audit: denied", *lines))
    outputs = machines.replace_output(machines.hgx_h100(), "kernel-log", text=text)
    expected = machines.EXPECTED["hgx_h100"]
    found = verify_one(machines.snapshot(outputs), expected, MATRIX, choose_checks(MATRIX, "quick", only=[check]))
    return next(row.outcome for row in found if row.check == check)


@pytest.mark.parametrize("check", FAULTS)
def test_silence_is_unknown(check: str) -> None:
    outcome = ask(check)
    assert outcome.status == "unknown"
    assert "does not hold all since boot" in outcome.seen


@pytest.mark.parametrize("check", HARMLESS)
def test_harmless_lines_are_unknown(check: str) -> None:
    assert ask(check, HARMLESS[check]).status == "unknown"


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_fails(check: str) -> None:
    assert ask(check, FAULTS[check]).status == "fail"
