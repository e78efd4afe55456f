"""A network card gets too little power from its slot, or is too hot."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"mlx5_core.{0,80}(?:insufficient power on the PCIe slot|[Dd]etected insufficient power)",
    r"mlx5_core.{0,80}High Temperature",
    r"mlx5_core.{0,80}(?:over temperature|temperature.{0,20}exceeds)",
)


def examine(case: Case) -> Sign | None:
    """Look for the card's own complaint in the kernel log."""
    events = case.events("mlx5-power", "mlx5-temperature")
    expected = "no complaint of the card about power or heat"
    if events:
        return Sign(
            confidence="high",
            seen=tuple(dict.fromkeys(f'"{event.text}"' for event in events))[:4],
            expected=expected,
            subjects=tuple(dict.fromkeys(event.pci for event in events if event.pci)),
            seconds=events[0].seconds,
        )
    return hint(case.find(*SYMPTOMS), confidence="high", expected=expected)
