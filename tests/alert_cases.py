"""What each alert must do, as series over time; promtool plays them against the generated rules."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CASES", "INTERVAL", "Case", "Moment"]

INTERVAL = "30s"


@dataclass(frozen=True)
class Moment:
    """What of one alert fires at one time: its labels, without the alert's name."""

    at: str
    fires: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class Case:
    """Series, each a metric with labels and its values every 30 s in promtool's notation, and what must come of it."""

    alert: str
    series: dict[str, str]
    moments: tuple[Moment, ...]
    name: str = field(default="")


def gpu(node: str, index: int = 0, model: str = "H100") -> dict[str, str]:
    return {"node": node, "gpu": str(index), "UUID": f"GPU-{node}-{index}", "modelName": model}


def series(metric: str, labels: dict[str, str] | None = None, **more: str) -> str:
    text = ",".join(f'{key}="{value}"' for key, value in {**(labels or {}), **more}.items())
    return f"{metric}{{{text}}}"


def silent(at: str) -> Moment:
    return Moment(at)


def fires(at: str, *labels: dict[str, str], severity: str, **more: str) -> Moment:
    return Moment(at, tuple({**row, "severity": severity, **more} for row in labels))


def _gauge(alert: str, metric: str, quiet: str, loud: str, before: str, after: str, severity: str) -> Case:
    """Return a case of one GPU that is loud from 10 min on, and one that stays where it may be."""
    return Case(
        alert,
        {
            series(metric, gpu("n1")): f"{quiet}x19 {loud}x100",
            series(metric, gpu("n1", 1)): f"{quiet}x119",
            # What stands for no value must not count as one.
            series(metric, gpu("n2")): "9223372036854775794x119",
        },
        (silent("9m30s"), silent(before), fires(after, gpu("n1"), severity=severity)),
    )


def _clock(alert: str, event: str, other: str, quiet: float, loud: float, severity: str, *, is_named: bool) -> Case:
    metric = "DCGM_EXP_CLOCK_EVENTS_COUNT"
    labels = {**gpu("n1"), **({"clock_event": event} if is_named else {})}
    before, after = ("11m30s", "12m") if is_named else ("10m30s", "11m")
    return Case(
        alert,
        {
            series(metric, gpu("n1"), clock_event=event): f"{quiet}x19 {loud}x60",
            series(metric, gpu("n1", 1), clock_event=event): f"{quiet}x79",
            series(metric, gpu("n1", 2), clock_event=other): "10x79",
        },
        (silent("9m30s"), silent(before), fires(after, labels, severity=severity)),
    )


_XID = "DCGM_EXP_XID_ERRORS_COUNT"
_LOGGED = "provision_xid_events_total"
_ICMP = "probe_icmp_duration_seconds"
_STATUS = "provision_verify_status"
_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"
_MAX_WIDTH = "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
_REPLAYS = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"
_RECOVERIES = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
_PORT = {"device": "mlx5_0", "port": "1"}

CASES: tuple[Case, ...] = (
    Case(
        "comm-latency-high",
        {
            series(_ICMP, node="n1", phase="rtt"): "0.0004x239 0.00122x60",
            # Far over what is usual there, and still below the floor.
            series(_ICMP, node="n2", phase="rtt"): "0.0002x239 0.00098x60",
            series(_ICMP, node="n2", phase="setup"): "0.0002x239 1x60",
            # Over the floor, and no more than usual there.
            series(_ICMP, node="n3", phase="rtt"): "0.001x239 0.0029x60",
        },
        (silent("2h"), silent("2h14m"), fires("2h16m", {"node": "n1"}, severity="warning")),
    ),
    Case(
        "comm-nccl-slow",
        {
            series("provision_nccl_status", node="n1", target="local", check="perf.nccl.node"): "1x9 0x9",
            series("provision_nccl_status", node="n2", target="local", check="perf.nccl.pair"): "1x19",
            series(_STATUS, node="n3", target="local", check="perf.gemm", severity="high"): "0x19",
        },
        (silent("4m30s"), fires("5m", {"node": "n1", "check": "perf.nccl.node"}, severity="critical")),
    ),
    Case(
        "driver-drift",
        {
            series(_TEMPERATURE, gpu("n1"), DCGM_FI_DRIVER_VERSION="570.1"): "40x79",
            series(_TEMPERATURE, gpu("n2"), DCGM_FI_DRIVER_VERSION="580.2"): "40x79",
            series(_TEMPERATURE, gpu("n3"), DCGM_FI_DRIVER_VERSION="570.1"): "40x79",
            series("provision_gpu_expected_driver_info", node="n1", version="580.2"): "1x79",
            series("provision_gpu_expected_driver_info", node="n2", version="580.2"): "1x79",
        },
        (silent("14m30s"), fires("15m", {"node": "n1", "version": "570.1"}, severity="warning")),
    ),
    Case(
        "fabric-manager-down",
        {
            series("node_systemd_unit_state", node=node, name=f"{name}.service", state=state): values
            for node, name, state, values in (
                ("n1", "nvidia-fabricmanager", "active", "1x9 0x40"),
                ("n1", "nvidia-fabricmanager", "failed", "0x9 1x40"),
                ("n2", "nvidia-fabricmanager", "active", "1x49"),
                ("n3", "nvidia-imex", "active", "0x49"),
            )
        },
        (silent("9m30s"), fires("10m", {"node": "n1"}, severity="critical")),
    ),
    Case(
        "gpu-count-below-expected",
        {
            **{series(_TEMPERATURE, gpu("n1", index)): "40x79" for index in range(7)},
            series("provision_gpu_expected", node="n1", target="local"): "8x79",
            series(_TEMPERATURE, gpu("n2")): "40x79",
            series("provision_gpu_expected", node="n2", target="local"): "1x79",
            # No GPU at all leaves no series that could be counted.
            series("provision_gpu_expected", node="n3", target="local"): "8x79",
        },
        (silent("9m30s"), fires("10m", {"node": "n1"}, {"node": "n3"}, severity="critical")),
    ),
    Case(
        "gpu-ecc-uncorrectable",
        {
            series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu("n1")): "0x9 1x9",
            series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu("n1", 1)): "0x19",
            series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu("n2")): "9223372036854775794x19",
        },
        (silent("4m30s"), fires("5m", gpu("n1"), severity="critical")),
    ),
    Case(
        "gpu-exporter-down",
        {
            series("up", node="n1", job="gpu", instance="n1:9400"): "1x9 0x40",
            series("up", node="n2", job="gpu", instance="n2:9400"): "1x49",
            series("up", node="n3", job="node", instance="n3:9100"): "0x49",
        },
        (silent("8m30s"), fires("9m", {"node": "n1"}, severity="critical")),
    ),
    Case(
        "gpu-exporter-empty",
        {
            series("up", node="n1", job="gpu", instance="n1:9400"): "1x49",
            series("up", node="n2", job="gpu", instance="n2:9400"): "1x49",
            series(_TEMPERATURE, gpu("n2")): "40x49",
            series("up", node="n3", job="gpu", instance="n3:9400"): "0x49",
            series("up", node="n4", job="node", instance="n4:9100"): "1x49",
        },
        (silent("4m30s"), fires("5m", {"node": "n1"}, severity="critical")),
    ),
    Case(
        "gpu-health-failed",
        {
            series(
                "DCGM_EXP_GPU_HEALTH_STATUS", gpu("n1"), health_watch="NVLINK", health_error_code="DCGM_FR_X"
            ): "0x9 20x40",
            series("DCGM_EXP_GPU_HEALTH_STATUS", gpu("n1", 1), health_watch="MEM", health_error_code="W"): "19x49",
            series("DCGM_EXP_GPU_HEALTH_STATUS", gpu("n2"), health_watch="MEM", health_error_code="DCGM_FR_OK"): "0x49",
        },
        (
            silent("6m30s"),
            fires(
                "7m",
                {"node": "n1", "gpu": "0", "health_watch": "NVLINK", "health_error_code": "DCGM_FR_X"},
                severity="critical",
            ),
        ),
    ),
    Case(
        "gpu-idle-allocated",
        {
            series(_ACTIVE, gpu("n1")): "0.28x200",
            series("DCGM_FI_DEV_FB_USED", gpu("n1")): "1200x200",
            # At work as far as it is asked for.
            series(_ACTIVE, gpu("n1", 1)): "0.30x200",
            series("DCGM_FI_DEV_FB_USED", gpu("n1", 1)): "20000x200",
            # Idle, with nobody on it.
            series(_ACTIVE, gpu("n1", 2)): "0x200",
            series("DCGM_FI_DEV_FB_USED", gpu("n1", 2)): "1000x200",
            # Profiling that says 0 where the driver sees work.
            series(_ACTIVE, gpu("n1", 3)): "0x200",
            series("DCGM_FI_DEV_GPU_UTIL", gpu("n1", 3)): "95x200",
            series("DCGM_FI_DEV_FB_USED", gpu("n1", 3)): "20000x200",
            # No profiling at all.
            series("DCGM_FI_DEV_GPU_UTIL", gpu("n2", model="RTX")): "3x200",
            series("DCGM_FI_DEV_FB_USED", gpu("n2", model="RTX")): "8000x200",
            # Seen too seldom to be judged.
            series(_ACTIVE, gpu("n3")): "_x160 0x40",
            series("DCGM_FI_DEV_FB_USED", gpu("n3")): "20000x200",
        },
        (
            silent("50m"),
            fires("56m", gpu("n1"), gpu("n2", model="RTX"), severity="info", action="release"),
            fires("1h39m", gpu("n1"), gpu("n2", model="RTX"), severity="info", action="release"),
        ),
    ),
    Case(
        "gpu-idle-allocated",
        {
            # Some 43 samples in half an hour: a value is taken for current for five minutes.
            series(_ACTIVE, gpu("n1")): "0.1x32 _x27 " * 4,
            series("DCGM_FI_DEV_FB_USED", gpu("n1")): "20000x200",
        },
        (silent("1h"), silent("1h20m"), silent("1h45m")),
        name="too few samples",
    ),
    Case(
        "gpu-lost",
        {
            series(_TEMPERATURE, gpu("n1")): "40x79",
            series(_TEMPERATURE, gpu("n1", 1)): "40x19 stale",
            series(_TEMPERATURE, gpu("n2")): "40x79",
            # It still states something, though no temperature.
            series(_TEMPERATURE, gpu("n3")): "40x19 9223372036854775794x60",
            series(_TEMPERATURE, gpu("n3", 1)): "40x79",
        },
        (silent("11m30s"), fires("12m", {"node": "n1"}, {"node": "n3"}, severity="critical")),
    ),
    Case(
        "gpu-nvlink-errors",
        {
            # Fractions, to be near the limit of 1 on both sides.
            series(_REPLAYS, gpu("n1")): "0x29 1.15x60",
            series(_RECOVERIES, gpu("n2")): "0x29 1.15x60",
            series(_REPLAYS, gpu("n3")): "7x29 7.85x60",
            series(_RECOVERIES, gpu("n3")): "7x29 7.85x60",
        },
        (silent("14m30s"), silent("19m30s"), fires("20m", gpu("n1"), gpu("n2"), severity="warning"), silent("30m")),
    ),
    Case(
        "gpu-pcie-narrow",
        {
            series(_WIDTH, gpu("n1")): "16x9 8x60",
            series(_MAX_WIDTH, gpu("n1")): "16x69",
            series(_WIDTH, gpu("n1", 1)): "16x69",
            series(_MAX_WIDTH, gpu("n1", 1)): "16x69",
            # Wired with eight lanes whatever it says.
            series(_WIDTH, gpu("n2", model="Tesla T4")): "8x69",
            series(_MAX_WIDTH, gpu("n2", model="Tesla T4")): "16x69",
            series(_WIDTH, gpu("n3")): "16x69",
            series(_MAX_WIDTH, gpu("n3")): "9223372036854775794x69",
        },
        (silent("19m30s"), fires("20m", gpu("n1"), severity="warning")),
    ),
    Case(
        "gpu-pcie-replays",
        {
            series("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", gpu("n1")): "0+17x100",
            series("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", gpu("n1", 1)): "0+15x100",
        },
        # The rate of ten minutes is whole only when they are over.
        (silent("18m30s"), fires("20m", gpu("n1"), severity="warning")),
    ),
    _clock("gpu-power-brake", "hw_power_brake", "power_cap", 0, 1, "critical", is_named=False),
    Case(
        "gpu-row-remap-failed",
        {
            series("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu("n1")): "0x9 1x9",
            series("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu("n1", 1)): "0x19",
            series("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu("n2")): "9223372036854775794x19",
        },
        (silent("4m30s"), fires("5m", gpu("n1"), severity="critical")),
    ),
    _gauge("gpu-row-remap-pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", "0", "1", "19m30s", "20m", "warning"),
    Case(
        "gpu-straggler",
        {
            **{series("DCGM_FI_DEV_SM_CLOCK", gpu(f"n{node}")): "1900x119" for node in (1, 2, 3)},
            **{series("DCGM_FI_DEV_GPU_UTIL", gpu(f"n{node}")): "84x119" for node in (1, 2, 3, 4, 6)},
            # 84 % of the others, and 90 %.
            series("DCGM_FI_DEV_SM_CLOCK", gpu("n4")): "1596x119",
            series("DCGM_FI_DEV_SM_CLOCK", gpu("n6")): "1710x119",
            # Slow because it has little to do.
            series("DCGM_FI_DEV_SM_CLOCK", gpu("n5")): "345x119",
            series("DCGM_FI_DEV_GPU_UTIL", gpu("n5")): "76x119",
            # Alone of its model.
            series("DCGM_FI_DEV_SM_CLOCK", gpu("n7", model="A100")): "1400x119",
            series("DCGM_FI_DEV_GPU_UTIL", gpu("n7", model="A100")): "99x119",
        },
        (silent("14m30s"), fires("15m", gpu("n4"), severity="warning")),
    ),
    _gauge("gpu-temperature-high", _TEMPERATURE, "85", "86", "14m30s", "15m", "warning"),
    _clock("gpu-thermal-throttling", "hw_thermal", "power_cap", 2.5, 3, "warning", is_named=True),
    Case(
        "gpu-xid-fatal",
        {
            series(_XID, gpu("n1"), xid="79"): "_x20 1x9 stale",
            series(_XID, gpu("n1", 1), xid="13"): "5x119",
            series(_XID, gpu("n1", 2), xid="48"): "0x119",
        },
        (
            silent("9m30s"),
            fires("10m", {**gpu("n1"), "xid": "79"}, severity="critical"),
            fires("40m", {**gpu("n1"), "xid": "79"}, severity="critical"),
            silent("50m"),
        ),
    ),
    Case(
        "gpu-xid-kernel-log",
        {
            # The first that was ever seen, one more, one that was there before, and one of a program.
            series(
                "provision_xid_events_total", node="n1", pci="0000:9b:00", xid="119", severity="fatal"
            ): "_x90 1x200",
            series(_LOGGED, node="n1", pci="0000:9c:00", xid="48", severity="fatal"): "2x90 3x200",
            series(_LOGGED, node="n2", pci="0000:9b:00", xid="79", severity="fatal"): "1x290",
            series(_LOGGED, node="n2", pci="0000:9c:00", xid="13", severity="app"): "_x90 7x200",
        },
        (
            fires(
                "5m",
                {"node": "n1", "pci": "0000:9c:00", "xid": "48"},
                {"node": "n2", "pci": "0000:9b:00", "xid": "79"},
                severity="critical",
            ),
            # What was there when the log was first read is news for no longer than anything else.
            silent("42m"),
            fires(
                "1h20m",
                {"node": "n1", "pci": "0000:9b:00", "xid": "119"},
                {"node": "n1", "pci": "0000:9c:00", "xid": "48"},
                severity="critical",
            ),
            silent("1h40m"),
        ),
    ),
    Case(
        "gpu-xid-warning",
        {
            series(_XID, gpu("n1"), xid="94"): "0x9 1x19",
            series(_XID, gpu("n1", 1), xid="79"): "1x29",
            series(_XID, gpu("n1", 2), xid="13"): "1x29",
            series(_XID, gpu("n1", 3), xid="0"): "1x29",
            series(_XID, gpu("n1", 4)): "1x29",
            # Not in the catalogue.
            series(_XID, gpu("n2"), xid="9999"): "0x9 1x19",
        },
        (
            silent("4m30s"),
            fires("5m", {**gpu("n1"), "xid": "94"}, {**gpu("n2"), "xid": "9999"}, severity="warning"),
        ),
    ),
    Case(
        "node-down",
        {
            series("up", node="n1", job="node", instance="n1:9100"): "1x9 0x40",
            series("up", node="n2", job="node", instance="n2:9100"): "1x49",
            series("up", node="n3", job="gpu", instance="n3:9400"): "0x49",
        },
        (silent("7m30s"), fires("8m", {"node": "n1"}, severity="critical")),
    ),
    Case(
        "node-idle",
        {
            # The busiest GPU decides.
            series(_ACTIVE, gpu("n1")): "0.28x400",
            series(_TEMPERATURE, gpu("n1")): "40x400",
            series(_ACTIVE, gpu("n2")): "0x400",
            series(_TEMPERATURE, gpu("n2")): "40x400",
            series(_ACTIVE, gpu("n2", 1)): "0.31x400",
            series(_TEMPERATURE, gpu("n2", 1)): "40x400",
            # Held by hand.
            series(_ACTIVE, gpu("n3")): "0x400",
            series(_TEMPERATURE, gpu("n3")): "40x400",
            series("provision_node_hold", node="n3"): "1x400",
            # A GPU of which nothing is known may be at work.
            series(_ACTIVE, gpu("n4")): "0x400",
            series(_TEMPERATURE, gpu("n4")): "40x400",
            series(_TEMPERATURE, gpu("n4", 1)): "40x400",
            series("provision_node_hold", node="n1"): "0x400",
        },
        (silent("1h54m"), fires("1h57m", {"node": "n1"}, severity="info", action="release")),
    ),
    Case(
        "node-idle",
        {
            # Some 43 samples in each half hour.
            series(_ACTIVE, gpu("n1")): "0x32 _x27 " * 6,
            series(_TEMPERATURE, gpu("n1")): "40x400",
        },
        (silent("1h55m"), silent("2h45m")),
        name="too few samples",
    ),
    Case(
        "rdma-link-down",
        {
            series("node_infiniband_state_id", node="n1", **_PORT): "4x9 1x40",
            series("node_infiniband_state_id", node="n2", **_PORT): "4x49",
            # Never in use.
            series("node_infiniband_state_id", node="n3", **_PORT): "1x49",
        },
        (silent("6m30s"), fires("7m", {"node": "n1", **_PORT}, severity="critical")),
    ),
    Case(
        "rdma-link-flapping",
        {
            series("node_infiniband_link_downed_total", node="n1", **_PORT): "0x9 5.5x100",
            series("node_infiniband_link_downed_total", node="n2", **_PORT): "0x9 4.5x100",
            series("node_infiniband_link_downed_total", node="n3", **_PORT): "90x109",
        },
        (silent("4m30s"), fires("50m", {"node": "n1", **_PORT}, severity="warning")),
    ),
    Case(
        "spot-handler-blind",
        {
            series("provision_spot_metadata_up", node="n1"): "1x9 0x40",
            # A question that failed now and then is no blindness.
            series("provision_spot_metadata_up", node="n2"): "1 0x8 " * 5,
        },
        (silent("9m30s"), fires("10m", {"node": "n1"}, severity="warning")),
    ),
    Case(
        "spot-notice",
        {
            series("provision_spot_notice", node="n1", action="none", provider="aws"): "0x9 _x30",
            series("provision_spot_notice", node="n1", action="terminate", provider="aws"): "_x10 1x20",
            series("provision_spot_notice", node="n2", action="none", provider="aws"): "0x40",
        },
        (
            silent("4m30s"),
            fires("5m30s", {"node": "n1", "action": "terminate", "provider": "aws"}, severity="warning"),
        ),
    ),
    Case(
        "spot-step-failed",
        {
            # The node goes: the alert stays for half an hour.
            series("provision_spot_step_ok", node="n1", step="checkpoint"): "_x9 0x4 stale",
            series("provision_spot_step_ok", node="n1", step="drain"): "_x9 1x4 stale",
            series("provision_spot_step_ok", node="n2", step="checkpoint"): "1x99",
        },
        (
            silent("4m"),
            fires("6m", {"node": "n1", "step": "checkpoint"}, severity="critical"),
            fires("30m", {"node": "n1", "step": "checkpoint"}, severity="critical"),
            silent("40m"),
        ),
    ),
    Case(
        "textfile-stale",
        {
            series("node_textfile_mtime_seconds", node="n1", file="/var/lib/x/provision.prom"): "0x99",
            series("node_textfile_mtime_seconds", node="n2", file="/var/lib/x/provision.prom"): "0+30x99",
            series("node_textfile_mtime_seconds", node="n3", file="/var/lib/x/apt.prom"): "0x99",
            # One file that is fresh does not hide another one that is not.
            series("node_textfile_mtime_seconds", node="n2", file="/run/x/provision-gpu.prom"): "0x99",
            series("node_textfile_mtime_seconds", node="n4", file="/run/x/provision_spot.prom"): "0x99",
        },
        (
            silent("15m"),
            silent("20m"),
            fires(
                "20m30s",
                {"node": "n1", "file": "/var/lib/x/provision.prom"},
                {"node": "n2", "file": "/run/x/provision-gpu.prom"},
                {"node": "n4", "file": "/run/x/provision_spot.prom"},
                severity="warning",
            ),
        ),
    ),
    Case(
        "verify-failed",
        {
            series(_STATUS, node="n1", target="local", check="gpu.ecc.mode", severity="high"): "1x9 0x40",
            series(_STATUS, node="n5", check="gpu.ecc.mode", severity="high", status="fail"): "_x10 0x40",
            series(_STATUS, node="n5", check="gpu.ecc.mode", severity="high", status="pass"): "1x9 stale",
            series(_STATUS, node="n2", target="local", check="gpu.count", severity="critical"): "-2x49",
            series(_STATUS, node="n3", target="local", check="gpu.vbios", severity="low"): "0x49",
            series(_STATUS, node="n4", target="local", check="perf.nccl.node", severity="high"): "0x49",
        },
        (
            silent("5m30s"),
            fires("6m", *({"node": node, "check": "gpu.ecc.mode"} for node in ("n1", "n5")), severity="warning"),
        ),
    ),
    Case("watchdog", {}, (fires("0s", {}, severity="none"),)),
)
