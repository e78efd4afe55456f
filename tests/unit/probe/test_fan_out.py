"""Many at once, but never more than asked, and none left running."""

import asyncio

import pytest

from provision.probe.fan_out import fan_out


def _run(count: int, parallel: int) -> tuple[list[int], int]:
    done: list[int] = []
    running = highest = 0

    async def work(item: int) -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0.001 * (item % 3))
        running -= 1
        done.append(item)

    asyncio.run(fan_out(range(count), work, parallel))
    return done, highest


@pytest.mark.parametrize(
    ("count", "parallel"),
    [
        pytest.param(20, 4, id="more-than-at-once"),
        pytest.param(2, 8, id="fewer"),
        pytest.param(0, 4, id="none"),
        pytest.param(5, 1, id="one-by-one"),
    ],
)
def test_each_is_done_once_and_no_more_at_once_than_asked(count, parallel):
    done, highest = _run(count, parallel)
    assert sorted(done) == list(range(count))
    assert highest <= parallel


def test_all_that_may_run_at_once_do():
    assert _run(50, 8)[1] == 8


def test_items_are_taken_when_their_turn_comes():
    taken: list[int] = []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        if item == 3:
            raise LookupError("stop")

    with pytest.raises(LookupError):
        asyncio.run(fan_out(items(), work, 2))
    assert len(taken) < 10


def test_the_first_exception_ends_the_others():
    ended: list[str] = []

    async def work(item: str) -> None:
        if item == "bad":
            raise ValueError("bad")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="bad"):
        asyncio.run(fan_out(("a", "b", "bad"), work, 3))
    assert sorted(ended) == ["a", "b"]
