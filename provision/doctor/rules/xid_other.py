"""The driver logged an Xid that no other rule speaks of."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.sign import Sign
from provision.doctor.xid import explain_xids
from provision.records import replace

SYMPTOMS = (r"Xid \([^)]{1,40}\)[^:]{0,60}: \d{1,6}\b",)

_SPOKEN_OF = frozenset(
    {
        *(13, 31, 43, 45, 46, 48, 54, 61, 62, 63, 64, 68, 69, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 137),
        *(140, 143, *range(144, 151), 154, 155, 156, 157, 158, 167, 169, 171, 172),
    }
)


def examine(case: Case) -> Sign | None:
    """Name the Xids that are left, with what the vendor's catalogue says of each."""
    codes = dict.fromkeys(
        event.code for event in case.events("xid") if event.code is not None and event.code not in _SPOKEN_OF
    )
    if not codes:
        return None
    rows = {code: case.matrix.xids.get(code) for code in codes}
    meanings = []
    steps = []
    for code, row in rows.items():
        if row is None:
            meanings.append(f"Xid {code} is not in the catalogue")
            continue
        action = f"; the vendor's action is {row.action}" if row.action else "; the catalogue names no action"
        meanings.append(f"Xid {code}: {row.meaning}{action}")
        if row.advice:
            steps.append(row.advice)
    found = explain_xids(case, *codes, seen=meanings, fix=steps)
    if found is None:
        return None
    is_weak = all(row is None or row.severity == "information" for row in rows.values())
    # What it means comes first: the lines alone are what the person had already.
    seen = (*meanings, *(line for line in found.seen if line not in meanings))
    return replace(found, seen=seen, confidence="low" if is_weak else found.confidence)
