"""Programs that ask the driver never get an answer."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import is_own, own_seconds, quote_events
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"nvidia-smi.{0,60}(?:hangs|hung|timed out|did not (?:end|answer))",
    r"INFO: task (?:nvidia|nv_queue|irq/\d{1,4}-nvidia|cuda)[^ ]{0,40} blocked for more than",
)

_EXPECTED = "nvidia-smi ends within its time"
_PROBES = ("nvidia-smi-xml", "nvidia-smi-topology", "nvlink-status", "driver-gpus")
_DRIVER_TASKS = ("nvidia", "nv_queue", "irq/", "dcgm", "cuda")


def examine(case: Case) -> Sign | None:
    """Look for a probe of the driver that did not end, and for tasks of the driver the kernel gave up on."""
    hung = [probe for probe in _PROBES if case.host is not None and case.host.output(probe).status == "hung"]
    tasks = [event for event in case.events("hung-task") if (event.process or "").startswith(_DRIVER_TASKS)]
    if hung or tasks:
        earlier = tuple(dict.fromkeys(f"Xid {event.code}" for event in case.events("xid")))
        return Sign(
            confidence="high" if hung or any(is_own(case, event) for event in tasks) else "medium",
            seen=(
                *(f"`{probe}` did not end in time" for probe in hung),
                *quote_events(tasks),
                *((f"the kernel log holds {', '.join(earlier[:5])}",) if earlier else ()),
            ),
            expected=_EXPECTED,
            unseen=() if earlier else ("the Xid that began it",),
            seconds=own_seconds(case, tasks),
        )
    return hint(case.find(SYMPTOMS[0]), expected=_EXPECTED, unseen=("what the kernel said: `dmesg -T | grep -i xid`",))
