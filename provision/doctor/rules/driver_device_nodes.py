"""The driver is loaded, and a program cannot reach it: nodes below /dev are missing or closed."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.records import replace

SYMPTOMS = (
    r"could not open the device file /dev/nvidia",
    r"^(?!.{0,200}gres\.conf).{0,200}/dev/nvidia(?:ctl|[0-9]{1,3})\b.{0,60}(?:No such file or directory|ENOENT)",
    r"error gathering device information while adding (?:custom )?device \W{0,2}/dev/nvidia",
    r"(?:stat|lstat|open) failed: /dev/nvidia[a-z0-9-]{0,16}: no such file|Failed to (?:open|"
    r"create) /dev/nvidia",
)

_CONTROL = "/dev/nvidiactl"
_EXPECTED = f"{_CONTROL} and a node for every GPU, open to everybody or to a group"
_LISTING = "which nodes there are: `ls -l /dev/nvidia*`"


def examine(case: Case) -> Sign | None:
    """Compare the nodes with the GPUs the module serves; a container has those of the GPUs it was given."""
    quote = case.find(*SYMPTOMS)
    faults = case.faults("gpu.devnodes/node")
    if faults:
        driver = case.look(lambda host: host.driver)
        seen = (f"the driver {driver.version} is loaded",) if driver is not None else ()
        sign = explain_faults(case, faults, expected=_EXPECTED, quote=quote, seen=seen)
        return replace(sign, confidence="high") if sign is not None and quote is not None else sign
    is_there = case.is_well("gpu.devnodes/node")
    # What complains may run in a container with a /dev of its own.
    return hint(
        quote,
        confidence="low" if is_there else "medium",
        seen=("the nodes are there",) if is_there else (),
        expected=_EXPECTED,
        unseen=(f"{_LISTING}, where the program runs" if is_there else _LISTING,),
    )
