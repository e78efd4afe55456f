"""Do one thing to many, some of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")


async def fan_out(items: Iterable[_Item], work: Callable[[_Item], Awaitable[None]], parallel: int) -> None:
    """Await ``work`` for each item, at most ``parallel`` at once.

    Items are taken when their turn comes, so that a long list costs no more than a short one. The first exception ends
    the others and is raised.

    Args:
        items: What to work on, in order.
        work: What to do; it keeps its own results.
        parallel: How many at once, at least 1.
    """
    waiting = iter(items)

    async def labour() -> None:
        for item in waiting:
            await work(item)

    tasks = [asyncio.ensure_future(labour()) for _ in range(max(1, parallel))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            # One that is on its way out already is not interrupted while it cleans up.
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
