"""The sign that the state of a target is: what its signals say is wrong, with the messages that say the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provision.doctor.case import Case, Quote
from provision.doctor.gpus import own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import CONFIDENCES, Sign
from provision.probe.parse.kernel_log import KernelEvent
from provision.signals.signal import Fault


def explain_faults(
    case: Case,
    faults: Sequence[Fault],
    *,
    expected: str,
    quote: Quote | None = None,
    events: Sequence[KernelEvent] = (),
    seen: Iterable[str] = (),
    fix: Iterable[str] = (),
    unseen: Iterable[str] = (),
) -> Sign | None:
    """Return the sign of some faults, as sure as the surest of them; ``None`` where there is none.

    Args:
        case: What is to be explained.
        faults: From :meth:`Case.faults`.
        expected: What a healthy target shows instead.
        quote: A message that says the same.
        events: What the kernel said of it.
        seen: Further things seen, after the faults.
        fix: Steps for this very case.
        unseen: What would settle it.
    """
    if not faults:
        return None
    said = dict.fromkeys((*(fault.said for fault in faults), *seen, *quote_events(events), *quoted(quote)))
    return Sign(
        confidence=min((fault.certainty for fault in faults), key=CONFIDENCES.index),
        seen=tuple(said),
        expected=expected,
        subjects=tuple(dict.fromkeys(fault.subject for fault in faults if fault.subject)),
        fix=tuple(fix),
        unseen=tuple(unseen),
        seconds=own_seconds(case, events),
    )
