"""The open kernel modules are loaded on a GPU that is too old for them."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.flavour import examine_flavour
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"installed in this system is not supported by (?:the )?(?:NVIDIA )?open",)

_EXPECTED = "the proprietary kernel modules on GPUs without a system processor"


def examine(case: Case) -> Sign | None:
    """Look for open modules, or for the kernel's complaint of them."""
    return examine_flavour(
        case, symptoms=SYMPTOMS, event="open-unsupported", is_open=True, models="unsupported", expected=_EXPECTED
    )
