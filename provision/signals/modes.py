"""How the GPUs are set: ECC, MIG, persistence, compute mode, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import (
    FieldReading,
    fault_of,
    is_for_servers,
    judge_field,
    judge_gpus,
    name_gpu,
    read_field,
)
from provision.signals.signal import Fault, Signal, skipped


def _judge_mode(
    gpus: Sequence[SmiGpu],
    mode: str,
    wanted: bool | None,
    *,
    after: str,
    is_uneven: bool = False,
    asides: Iterable[Fault] = (),
) -> Signal:
    """Compare what a mode is, what it will be, and what was planned; without a plan, the first two.

    Args:
        gpus: All GPUs of the host.
        mode: ``ECC`` or ``MIG``; its fields in ``SmiGpu`` end with ``_current`` and ``_pending``.
        wanted: The plan.
        after: What a pending mode waits for, ``reboot`` or ``reset``.
        is_uneven: Whether GPUs of one model that differ are a fault where nothing is planned.
        asides: What is told besides and is no fault.
    """
    current, pending = f"{mode.lower()}_current", f"{mode.lower()}_pending"
    having = {gpu.name for gpu in gpus if getattr(gpu, current) is not None}
    switched_on = {gpu.name for gpu in gpus if getattr(gpu, current)}

    def read(gpu: SmiGpu) -> FieldReading:
        is_on, absence = read_field(gpu, current)
        if is_on is None:
            if absence == "unsupported" and wanted is not None and (wanted or gpu.name not in having):
                return FieldReading(gpu, not wanted, f"has no {mode}")
            return FieldReading(gpu, None, "", absence)
        will_be, silence = read_field(gpu, pending)
        if wanted is not None and is_on != wanted:
            later = f", {_word(will_be)} after the next {after}" if will_be not in (None, is_on) else ""
            return FieldReading(gpu, False, f"has {mode} {_word(is_on)}{later}")
        if will_be is None:
            return FieldReading(gpu, None, "", "absent" if silence == "unsupported" else silence, pending)
        if is_uneven and will_be == is_on is False and gpu.name in switched_on:
            return FieldReading(gpu, False, f"has {mode} off, others have it on")
        fault = f"has {mode} {_word(is_on)}, and {_word(will_be)} after the next {after}"
        return FieldReading(gpu, will_be == is_on, fault)

    words = sorted({_word(getattr(gpu, current)) for gpu in gpus if getattr(gpu, current) is not None})
    return judge_gpus(
        [read(gpu) for gpu in gpus],
        fine=f"{mode} is {' and '.join(words)}" if words else f"no GPU has {mode}, as planned",
        expected=f"{mode} {_word(wanted)}" if wanted is not None else f"one mode now and after the next {after}",
        asides=asides,
    )


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"


def gpu_ecc_mode(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare current, pending and planned; without a plan, current and pending, and GPUs of one model."""
    gpus, wanted = host.smi.gpus, expected.is_ecc
    off = [gpu for gpu in gpus if gpu.ecc_current is False and gpu.ecc_pending is not True]
    is_odd = wanted is None and not any(gpu.ecc_current for gpu in gpus)
    asides = [fault_of(gpu, "has ECC off", certainty="low") for gpu in off if is_odd and is_for_servers(gpu, matrix)]
    return _judge_mode(gpus, "ECC", wanted, after="reboot", is_uneven=wanted is None, asides=asides)


def gpu_mig(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare current, pending and planned; without a plan, current and pending."""
    return _judge_mode(host.smi.gpus, "MIG", expected.is_mig, after="reset")


def gpu_persistence(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read the mode of each GPU; guests of WSL and of a virtual GPU cannot set it."""
    if host.virtualization.kind == "wsl":
        return skipped("WSL has no persistence mode")
    gpus = host.smi.gpus
    if gpus and all((gpu.virtualization or "").lower() == "vgpu" for gpu in gpus):
        return skipped("a virtual GPU has no persistence mode of its own")
    readings: list[FieldReading] = []
    held: list[str] = []
    for gpu in gpus:
        is_on, absence = read_field(gpu, "persistence")
        has_display = any("G" in process.kind for process in gpu.processes)
        if is_on is False and has_display:
            held.append(name_gpu(gpu))
        is_fine = None if is_on is None else is_on or has_display
        certainty = "high" if is_for_servers(gpu, matrix) else "low"
        readings.append(FieldReading(gpu, is_fine, "has persistence mode off", absence, certainty=certainty))
    fine = f"a display holds {', '.join(held)}, persistence mode is off" if held else "persistence mode is on"
    return judge_gpus(readings, fine=fine, expected="Enabled")


def gpu_compute_mode(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare without regard to case and to how the words are joined."""
    wanted = expected.compute_mode or "Default"
    return judge_field(
        host.smi.gpus,
        "compute_mode",
        lambda mode: None if _plain(mode) == _plain(wanted) else f"is in mode {mode}",
        fine=f"compute mode {wanted}",
        expected=wanted,
    )


def _plain(mode: str) -> str:
    return mode.lower().replace("_", "").replace(" ", "").replace("-", "")


def gpu_processes(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """List compute programs, unless the plan says that the GPUs are in use."""
    if expected.is_in_use:
        return skipped("the plan says that programs run")
    return judge_field(
        host.smi.gpus,
        "processes",
        lambda processes: _say_programs(
            [f"{process.name} (pid {process.pid})" for process in processes if "C" in process.kind]
        ),
        fine="no program computes",
        expected="none",
    )


def _say_programs(programs: list[str]) -> str | None:
    return f"runs {', '.join(programs)}" if programs else None
