"""What holds the clocks of a GPU down: heat, brakes, power limits."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.records import replace
from provision.signals.expectation import Expectation
from provision.signals.gpus import FieldReading, judge_field, judge_gpus, read_field
from provision.signals.signal import Signal


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
        readings.append(FieldReading(gpu, is_fine, f"is at {degrees} °C {doing}, limit {limit:.0f} °C", absence))
        margin, absence = _margin(gpu)
        is_far = None if margin is None else margin > least
        fault = f"is {margin} °C below its slowdown, at {degrees} °C"
        readings.append(FieldReading(gpu, is_far, fault, absence, "margin"))
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


_SLOWDOWNS = {
    "hw_power_brake_slowdown": "the power supply's brake signal",
    "hw_slowdown": "its hardware",
    "hw_thermal_slowdown": "heat",
}


def gpu_throttle(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the reasons that the hardware gives; caps set by software are no fault."""
    return judge_field(
        host.smi.gpus,
        "throttle",
        lambda reasons: _say_slowdown([reason for reason in reasons if reason in _SLOWDOWNS]),
        fine="no hardware slowdown",
        expected="none active",
    )


def _say_slowdown(reasons: list[str]) -> str | None:
    # The general reason comes along with each of the others and says nothing more.
    exact = [reason for reason in reasons if reason != "hw_slowdown"] or reasons
    return f"is slowed down by {' and '.join(_SLOWDOWNS[reason] for reason in exact)}" if exact else None


def gpu_power_limit(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the limit in force with the board's default."""
    readings: list[FieldReading] = []
    for gpu in host.smi.gpus:
        limit, absence = read_field(gpu, "power_limit_w")
        default, default_absence = read_field(gpu, "power_default_w")
        if limit is None or default is None:
            readings.append(FieldReading(gpu, None, "", absence or default_absence))
        else:
            readings.append(
                FieldReading(gpu, limit >= default, f"is limited to {limit:g} W, its default is {default:g} W")
            )
    return judge_gpus(
        readings, fine="power limits are at or above the default", expected="the board's default, or more"
    )
