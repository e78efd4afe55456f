"""What holds the clocks of a GPU down: heat, brakes, power limits."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.records import replace
from provision.signals.expectation import Expectation
from provision.signals.gpus import FieldReading, fault_of, judge_gpus, read_field
from provision.signals.signal import Fault, Signal


def gpu_temp(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare with one limit at work and one at rest, and with what is left to the GPU's own slowdown."""
    hot, warm = matrix.limit("gpu.temp.active"), matrix.limit("gpu.temp.idle")
    least = matrix.limit("gpu.temp.margin")
    readings: list[FieldReading] = []
    for gpu in host.smi.gpus:
        degrees, absence = read_field(gpu, "temperature_c")
        limit = warm if not expected.is_in_use and _is_idle(gpu) else hot
        doing = "at rest" if limit == warm else "at work"
        is_fine = None if degrees is None else degrees <= limit
        fault = f"is at {degrees} °C {doing}, limit {limit:.0f} °C"
        readings.append(FieldReading(gpu, is_fine, fault, absence, "temperature", "low"))
        margin, absence = _margin(gpu)
        is_far = None if margin is None else margin > least
        fault = f"is {margin} °C below its slowdown, at {degrees} °C"
        readings.append(FieldReading(gpu, is_far, fault, absence, "margin", "low"))
    every = [gpu.temperature_c for gpu in host.smi.gpus if gpu.temperature_c is not None]
    outcome = judge_gpus(
        readings,
        fine=f"at most {max(every)} °C" if every else "far from the slowdown",
        expected=f"at most {hot:.0f} °C at work and {warm:.0f} °C at rest, more than {least:.0f} °C below the slowdown",
    )
    return replace(outcome, figures={"temperature_c": float(max(every))}) if every else outcome


def _is_idle(gpu: SmiGpu) -> bool:
    return gpu.utilization_percent == 0 and not gpu.processes


def _margin(gpu: SmiGpu) -> tuple[int | None, str]:
    """Return the degrees left to the slowdown: as the GPU tells them, else from its absolute threshold."""
    told, absence = read_field(gpu, "temperature_margin_c")
    if told is not None or absence == "broken":
        return told, absence
    slowdown, absence = read_field(gpu, "temperature_slowdown_c")
    if slowdown is None or gpu.temperature_c is None:
        return None, absence
    return slowdown - gpu.temperature_c, ""


def gpu_throttle(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the reasons that the hardware gives; caps set by software are no fault.

    A slowdown that names no reason is one for heat, unless the GPU is cool: then its power supply brakes.
    """
    readings: list[FieldReading] = []
    asides: list[Fault] = []
    for gpu in host.smi.gpus:
        reasons, absence = read_field(gpu, "throttle")
        if reasons is None:
            readings.append(FieldReading(gpu, None, "", absence))
            continue
        margin = _margin(gpu)[0]
        is_cool = margin is not None and margin > matrix.limit("gpu.temp.margin")
        exact = {kind: words for reason, kind, words in _SLOWDOWNS if reason in reasons}
        heat = f" at {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
        heat += f", {margin} °C below its slowdown" if heat and margin is not None else ""
        if not exact and "hw_slowdown" in reasons:
            kind = "unexplained" if margin is None else "brake" if is_cool else "heat"
            fault = "is slowed down by its hardware"
            readings.append(FieldReading(gpu, False, fault, "", kind, "medium", heat))
        elif exact:
            fault = f"is slowed down by {' and '.join(exact.values())}"
            readings += [FieldReading(gpu, False, fault, "", kind, detail=heat) for kind in exact]
        else:
            readings.append(FieldReading(gpu, True, ""))
        if "sw_thermal_slowdown" in reasons and "heat" not in exact:
            asides.append(fault_of(gpu, f"is slowed down by software for heat{heat}", "heat", "medium"))
    return judge_gpus(readings, fine="no hardware slowdown", expected="none active", asides=asides)


_SLOWDOWNS = (
    ("hw_power_brake_slowdown", "brake", "the power supply's brake signal"),
    ("hw_thermal_slowdown", "heat", "heat"),
)
"""A reason of the driver's, the kind of fault, and words for it."""

_TOLERANCE_W = 1


def gpu_power_limit(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the limit in force with the board's default; a cap at the default is how a busy GPU works."""
    readings: list[FieldReading] = []
    for gpu in host.smi.gpus:
        limit, absence = read_field(gpu, "power_limit_w")
        default, default_absence = read_field(gpu, "power_default_w")
        if limit is None or default is None:
            readings.append(FieldReading(gpu, None, "", absence or default_absence))
            continue
        is_felt = "sw_power_cap" in gpu.throttle
        fault = f"is limited to {limit:g} W, its default is {default:g} W"
        is_fine, certainty = limit >= default - _TOLERANCE_W, "high" if is_felt else "medium"
        detail = ", and is held down by it" if is_felt else ""
        readings.append(FieldReading(gpu, is_fine, fault, certainty=certainty, detail=detail))
    return judge_gpus(
        readings, fine="power limits are at or above the default", expected="the board's default, or more"
    )
