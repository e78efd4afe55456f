"""A network link goes down and comes back again and again."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.probe.parse.kernel_log import KernelEvent

SYMPTOMS = (
    r"\b(?:ib|en|eth|bond|mlx|roce|rdma)[a-z0-9_.-]{0,16}: (?:Lost carrier|carrier lost|[Ll]ink is [Dd]own|Link down)",
    r"\blink flap",
)

_DAY_SECONDS = 24 * 60 * 60


def examine(case: Case) -> Sign | None:
    """Count the losses of the link within a day."""
    quote = case.find(*SYMPTOMS)
    events = case.events("link-lost")
    limit = int(case.matrix.limit("link-flaps-per-day"))
    lines = sum(1 for _ in case.find_all(SYMPTOMS[0])) if quote else 0
    expected = f"fewer than {limit} losses of a link a day"
    busiest = _most_in_a_day(events)
    if len(busiest) >= limit:
        return Sign(
            confidence="high",
            seen=(f"the link was lost {len(busiest)} times within a day", f'"{busiest[0].text}"'),
            expected=expected,
            seconds=busiest[0].seconds,
        )
    if quote is None or (events and not case.texts):
        return None
    is_often = "flap" in quote.line.lower() or (lines >= limit and not events)
    return hint(
        quote,
        confidence="medium" if is_often else "low",
        seen=(f"{lines} lines say so",) if lines > 1 else (),
        expected=expected,
        unseen=("how often within a day: `journalctl -b | grep -ci 'lost carrier'`",),
    )


def _most_in_a_day(events: tuple[KernelEvent, ...]) -> tuple[KernelEvent, ...]:
    """Return the longest run of events within one day; those without a stamp count as one day's."""
    bare = tuple(event for event in events if event.seconds is None)
    stamped = sorted((event.seconds, index) for index, event in enumerate(events) if event.seconds is not None)
    best: list[int] = []
    start = 0
    for end, (seconds, _) in enumerate(stamped):
        while seconds - stamped[start][0] > _DAY_SECONDS:
            start += 1
        if end - start + 1 > len(best):
            best = [index for _, index in stamped[start : end + 1]]
    return max(bare, tuple(events[index] for index in best), key=len)
