"""A program did something that the GPU refuses."""

from __future__ import annotations

from collections import defaultdict

from provision.doctor.case import Case
from provision.doctor.gpus import name_address
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: (?:13|31|43|68|69)\b",)

_CODES = (13, 31, 43, 68, 69)
_PROGRAMS_MIN = 2


def examine(case: Case) -> Sign | None:
    """Look for Xids of programs, and for the pattern that speaks against the GPU: one GPU, whatever runs on it."""
    programs = defaultdict(set)
    for event in case.xid(*_CODES):
        if event.process is not None:
            programs[event.process.partition(" (")[0]].add(event.pci)
    addresses = {address for found in programs.values() for address in found if address is not None}
    seen: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    if len(addresses) == 1 and len(programs) >= _PROGRAMS_MIN:
        (address,) = addresses
        seen = (f"different programs failed, all on {name_address(case, address)}",)
        fix = (
            "Test that GPU with `dcgmi diag -r 3 -i INDEX`: it fails whatever runs on it.",
            "If the test passes, run one of the programs under `compute-sanitizer`.",
        )
    elif len(addresses) > 1 and len(programs) == 1:
        (program,) = programs
        seen = (f"{program} failed on {len(addresses)} GPUs",)
    return explain_xids(
        case,
        *_CODES,
        expected="no program is stopped for what it does",
        seen=seen,
        fix=fix,
        unseen=("whether it follows the program or the GPU",),
    )
