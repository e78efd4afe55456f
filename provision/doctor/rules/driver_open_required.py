"""The proprietary kernel modules are loaded on a GPU that only the open ones drive."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.flavour import examine_flavour
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"requires use of the NVIDIA open kernel modules",)

_EXPECTED = "the open kernel modules on GPUs that need them"


def examine(case: Case) -> Sign | None:
    """Look for proprietary modules, or for the kernel's complaint of them."""
    return examine_flavour(
        case, symptoms=SYMPTOMS, event="open-required", is_open=False, models="required", expected=_EXPECTED
    )
