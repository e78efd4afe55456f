"""A GPU could not be reset because something holds it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"In use by another client",
    r"GPU .{0,60}could not be reset because it's being used",
    r"Unable to reset (?:this )?GPU because it's being used",
    r"is currently being used by one or more other processes",
    r"could not be reset:|is currently in use by one or more other processes",
)

_SERVICES = ("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "dcgm", "nvidia-imex", "dcgm-exporter")
_USERS_SHOWN = 6


def examine(case: Case) -> Sign | None:
    """Take the refusal, and name who holds the GPUs."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    users = case.look(lambda host: host.device_users) or ()
    units = case.look(lambda host: host.units) or {}
    running = [name for name in _SERVICES if name in units and units[name].is_active]
    seen = []
    if users:
        shown = ", ".join(users[:_USERS_SHOWN])
        seen.append(f"processes on /dev/nvidia*: {shown}" + (" and more" if len(users) > _USERS_SHOWN else ""))
    if running:
        seen.append(f"services that hold GPUs are running: {', '.join(running)}")
    return hint(
        quote,
        confidence="high" if users or running else "medium",
        seen=seen,
        expected="no process on the GPU while it is reset",
        unseen=() if users or running else ("who holds the GPUs: `fuser -v /dev/nvidia*`",),
    )
