"""Sentences from what the resolver answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.resolve.stack import FactRef, Refusal


def reasons_of(refusal: Refusal) -> tuple[str, ...]:
    """Return why, in the resolver's own words."""
    return tuple(reason.because for reason in refusal.because)


def facts_of(refusal: Refusal) -> tuple[FactRef, ...]:
    """Return the facts behind a refusal."""
    return tuple(fact for reason in refusal.because for fact in reason.facts)
