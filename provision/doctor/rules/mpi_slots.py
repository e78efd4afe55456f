"""mpirun was asked for more processes than its list of hosts has places for."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"There are not enough slots available in the system",
    r"satisfy the ([0-9]{1,6})\s{0,4}slots\s+that were requested",
    r"All nodes which are allocated for this job are already filled",
)


def examine(case: Case) -> Sign | None:
    """Read how many places were asked for; the GPUs are not the matter."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    asked = case.find(r"(?:satisfy the|the) ([0-9]{1,6})\s{0,4}slots")
    count = asked.match[1] if asked else re.sub(r"[^0-9]", "", quote.match[0])
    seen = (f"{count} slots were asked for",) if count else ()
    return hint(
        quote,
        confidence="high",
        seen=seen,
        expected="as many slots as processes, one a GPU",
        unseen=("how many slots the list of hosts has",),
    )
