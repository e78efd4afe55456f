"""Replayed metrics of GPUs that are not there, in the names and labels of dcgm-exporter, and of nodes that verify.

The stand-in for the exporter serves what lies in its folder on a node; tests write there what a GPU is to look like.

Source: dcgm-exporter, ``etc/default-counters.csv`` and ``internal/pkg/rendermetrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.records import NOTHING
from provision.signals.expectation import Expectation
from provision.signals.signal import Signal, passed
from provision.signals.signal import failed as broken
from provision.verify.engine import Result, Verdict
from provision.verify.report.prometheus import HostFacts, write_prometheus

__all__ = ["Gpu", "pci", "render", "render_listing", "render_verify"]

DRIVER = "535.261.03"
MODEL = "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at work, unless told otherwise."""

    index: int
    temperature_celsius: int = 58
    activity_percent: int = 96
    memory_used_mib: int = 61_440
    sm_clock_mhz: int = 1755
    power_watts: int = 540
    xids: Mapping[str, int] = field(default_factory=dict)
    """Code of an Xid → how often it was seen in the window."""


def render(node: str, gpus: Iterable[Gpu]) -> str:
    """Return what the exporter of a node would say, in Prometheus' text format, series of one metric together."""
    series: dict[str, list[str]] = {}
    for gpu in gpus:
        labels = {
            "gpu": str(gpu.index),
            "UUID": f"GPU-{node}-{gpu.index}",
            "pci_bus_id": f"0000{pci(gpu.index)}.0",
            "device": f"nvidia{gpu.index}",
            "modelName": MODEL,
            "Hostname": f"{node}.internal.example",
            "DCGM_FI_DRIVER_VERSION": DRIVER,
        }
        values = {
            "DCGM_FI_DEV_GPU_TEMP": gpu.temperature_celsius,
            "DCGM_FI_DEV_GPU_UTIL": gpu.activity_percent,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": gpu.activity_percent / 100,
            "DCGM_FI_DEV_FB_USED": gpu.memory_used_mib,
            "DCGM_FI_DEV_SM_CLOCK": gpu.sm_clock_mhz,
            "DCGM_FI_DEV_POWER_USAGE": gpu.power_watts,
        }
        for name, value in values.items():
            series.setdefault(name, []).append(line(name, labels, value))
        for xid, count in {"0": 0, **gpu.xids}.items():
            name = "DCGM_EXP_XID_ERRORS_COUNT"
            series.setdefault(name, []).append(line(name, {**labels, "xid": xid}, count))
    return "".join(f"# TYPE {name} gauge\n" + "".join(lines) for name, lines in series.items())


def pci(index: int) -> str:
    """Return the address of a GPU as the kernel's log writes it."""
    return f"0000:{0x18 + index:02x}:00"


def line(name: str, labels: Mapping[str, str], value: float) -> str:
    """Return one sample."""
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value:g}\n"


def render_listing(node: str, gpus: Iterable[Gpu]) -> str:
    """Return what ``nvidia-smi -q -x`` would print of the same GPUs, as far as metrics are made of it."""
    rows = [_listed(node, gpu) for gpu in gpus]
    head = f"<nvidia_smi_log><driver_version>{DRIVER}</driver_version><attached_gpus>{len(rows)}</attached_gpus>"
    return "\n".join(['<?xml version="1.0" ?>', head, *rows, "</nvidia_smi_log>", ""])


def _listed(node: str, gpu: Gpu) -> str:
    return f"""<gpu id="0000{pci(gpu.index)}.0">
<product_name>{MODEL}</product_name><uuid>GPU-{node}-{gpu.index}</uuid><minor_number>{gpu.index}</minor_number>
<fb_memory_usage><total>81559 MiB</total><used>{gpu.memory_used_mib} MiB</used></fb_memory_usage>
<utilization><gpu_util>{gpu.activity_percent} %</gpu_util></utilization>
<temperature><gpu_temp>{gpu.temperature_celsius} C</gpu_temp></temperature>
<gpu_power_readings><power_draw>{gpu.power_watts:.2f} W</power_draw></gpu_power_readings>
<clocks><sm_clock>{gpu.sm_clock_mhz} MHz</sm_clock></clocks>
</gpu>"""


def render_verify(node: str, gpus: int, *, xids: Mapping[int, int] = NOTHING, failed: Iterable[str] = ()) -> str:
    """Return what ``provision verify --prometheus`` writes, by its own writer, of a node that is planned as given.

    Args:
        node: Its name, as it calls itself.
        gpus: How many GPUs were planned.
        xids: Code → index of the GPU that the kernel's log names.
        failed: Ids of the checks that fail; one more passes.
    """
    matrix = Matrix()
    results = [result(matrix.checks[key], node, passed("as planned")) for key in ("gpu.driver.loaded",)]
    results += [result(matrix.checks[key], node, broken("not as planned")) for key in failed]
    stamp = datetime.now(UTC).isoformat()
    seen = {(pci(index), code, matrix.xids[code].severity): 1 for code, index in xids.items()}
    return write_prometheus(
        Verdict(results=tuple(results)),
        expected={node: Expectation(gpus=gpus, driver=DRIVER)},
        hosts={node: HostFacts(collected=stamp, xids=seen, is_log_read=True)},
    )


def result(check: Check, node: str, outcome: Signal) -> Result:
    """Return one answer of verify, with what the facts say of its check."""
    return Result(
        check=check.id,
        target=node,
        level=check.level,
        severity=check.severity,
        title=check.title,
        outcome=outcome,
        remedy=check.remedy,
        runbook=check.runbook,
    )
