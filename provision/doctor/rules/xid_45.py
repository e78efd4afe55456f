"""The driver cleared away the work of a program after something else went wrong."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids, incidents_of
from provision.records import replace

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: 45\b",)


def examine(case: Case) -> Sign | None:
    """Look for Xid 45, and for another one in the same incident that it follows."""
    found = explain_xids(case, 45, expected="no Xid 45", unseen=("the Xids before it on the same GPU",))
    if found is None:
        return None
    alone = any(incident.codes == (45,) for incident in incidents_of(case))
    if not alone:
        steps = ("Follow the other Xid of the same incident; this one is its consequence.",)
        return replace(found, confidence="low", fix=steps)
    return replace(found, seen=(*found.seen, "it stands alone: a program was ended, or fabric manager restarted"))
