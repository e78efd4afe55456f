"""ECC is as planned, now and after the next reboot."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare current, pending and planned; without a plan, current and pending."""
    del matrix
    wanted = expected.is_ecc
    having = {gpu.name for gpu in host.smi.gpus if gpu.ecc_current is not None}
    readings = [_read(gpu, wanted, has_twin=gpu.name in having) for gpu in host.smi.gpus]
    words = sorted({_word(gpu.ecc_current) for gpu in host.smi.gpus if gpu.ecc_current is not None})
    return judge_gpus(
        readings,
        fine=f"ECC is {' and '.join(words)}" if words else "no GPU has ECC, as planned",
        expected=f"ECC {_word(wanted)}" if wanted is not None else "one mode now and after the next reboot",
    )


def _read(gpu: SmiGpu, wanted: bool | None, *, has_twin: bool) -> FieldReading:
    current, absence = read_field(gpu, "ecc_current")
    if current is None:
        if absence == "unsupported" and wanted is not None and (wanted or not has_twin):
            return FieldReading(gpu, not wanted, "has no ECC")
        return FieldReading(gpu, None, "", absence)
    pending, _ = read_field(gpu, "ecc_pending")
    if wanted is not None and current != wanted:
        later = f", {_word(pending)} after the next reboot" if pending not in (None, current) else ""
        return FieldReading(gpu, False, f"has ECC {_word(current)}{later}")
    if pending is None:
        return FieldReading(gpu, None, "", "broken" if "ecc_pending" in gpu.broken else "absent")
    return FieldReading(
        gpu, pending == current, f"has ECC {_word(current)}, and {_word(pending)} after the next reboot"
    )


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"
