"""What a message alone is worth, for rules that have no state to judge by, and for those whose state is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.doctor.case import Quote
from provision.doctor.sign import Sign

_ASIDE = re.compile(
    r"^(?!.*\bNCCL (?:WARN|INFO)\b)"
    r".*?(?:\b(?:WARN|Warning|WARNING|INFO|DEBUG|DEPRECATION)\b|[a-z]Warning: "
    r"|(?:^|\s)[WID](?:[0-9]{4}| tensorflow)|^W: |^warning: |, but you(?:'ll)? have )"
)
"""What a program goes on after. NCCL's own warnings are its errors, and pip's last report speaks of other packages."""


def quoted(quote: Quote | None) -> tuple[str, ...]:
    """Return a line between quotation marks as one thing seen, nothing where no line was found."""
    return (f'"{quote.line}"',) if quote is not None else ()


def hint(
    quote: Quote | None,
    *,
    confidence: str = "medium",
    seen: Iterable[str] = (),
    expected: str = "",
    fix: Iterable[str] = (),
    unseen: Iterable[str] = (),
    message_kind: str = "",
) -> Sign | None:
    """Return a sign for a message, ``None`` where there is no message.

    Args:
        quote: The line.
        confidence: What the message proves on its own.
        seen: Further things seen, after the line.
        expected: What a healthy target shows instead.
        fix: Steps for this very case.
        unseen: What would settle it.
        message_kind: ``root`` where this line names the cause, although the diagnosis' other messages may not.
    """
    if quote is None:
        return None
    return Sign(
        confidence=confidence,
        seen=(*quoted(quote), *seen),
        expected=expected,
        fix=tuple(fix),
        unseen=tuple(unseen),
        spot=(quote.where, quote.number),
        message_kind=message_kind,
        is_aside=_ASIDE.match(quote.line) is not None,
    )
