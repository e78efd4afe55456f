"""Logs of the ranks of one job: which rank failed first, and which rank left no log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from provision.doctor.suspect import find_suspect
from provision.probe.clean import clean_line
from provision.records import record

_LINE_CHARACTERS = 240
_HEAD_CHARACTERS = 400_000
_LINES_ABOVE = 60
_WORLD_MAX = 100_000

_PREFIXED = re.compile(r"^\[rank(\d{1,5})\]:", re.MULTILINE)
_OWN = re.compile(
    r"\b(?:global_rank|rank|RANK)[=: ]{1,3}(\d{1,5})[, ]{1,4}(?:nranks|world_size|world size|WORLD_SIZE|of)\b",
)
_SET = re.compile(r"^(?:export )?RANK=(\d{1,5})$", re.MULTILINE)
_WORLD = re.compile(
    r"\b(?:nranks|world_size|world size|WORLD_SIZE)[=: ]{1,3}(\d{1,5})\b|\b\d{1,5}/(\d{1,5}) clients joined"
)
_NAMED = re.compile(r"(?:rank|worker|proc|task)[-_.]?(\d{1,5})(?!\d)", re.IGNORECASE)
_FOLDER = re.compile(r"(?:^|/)(\d{1,5})/(?:stderr|stdout|error)[^/]{0,20}$")
_NUMBER = re.compile(r"[-_.](\d{1,5})(?:\.(?:log|out|err|txt|gz))*$")
_ROOT = re.compile(r"Root Cause \(first observed failure\):.{0,400}?\brank +: (\d{1,5})\b", re.DOTALL)
_CONSEQUENCE = re.compile(
    r"Watchdog caught collective|collective operation timeout|operations have failed or timed out|ncclRemoteError"
    r"|remote process exited|Connection (?:closed|reset) by peer|Broken pipe|ChildFailedError|DistStoreError"
    r"|clients joined|signal (?:15|SIGTERM)|SignalException|TCPStore|Socket Timeout|wait timeout",
    re.IGNORECASE,
)
"""What a rank says when another one is gone."""

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_SHORT_TIME = re.compile(r"\b[EWIF](\d\d)(\d\d) (\d\d:\d\d:\d\d)\.(\d{1,9})")
_ANY_YEAR = 2000


@record
class RankFailure:
    """How a rank ended: the line that most likely failed, and when, where the log says it."""

    rank: int
    line: str
    time: datetime | None = None
    is_consequence: bool = False


@record
class Ranks:
    """What the logs of a job tell of its ranks.

    Attributes:
        first: The rank that failed first; ``None`` where none did, or the logs leave it open.
        failed: All that failed, in order of rank.
        missing: Ranks of the job without a log.
        world: How many ranks the logs name; ``None`` where none does.
        names: Rank → its logs.
    """

    first: RankFailure | None
    failed: tuple[RankFailure, ...]
    missing: tuple[int, ...]
    world: int | None
    names: Mapping[int, tuple[str, ...]]

    @property
    def deciding(self) -> frozenset[str]:
        """The logs of the rank that failed first: those of the others tell of what followed."""
        return frozenset(self.names[self.first.rank]) if self.first is not None else frozenset()

    def say(self) -> tuple[str, ...]:
        """Return what is told to a person, one sentence each."""
        said: list[str] = []
        if self.first is not None:
            when = f" at {self.first.time:%H:%M:%S}" if self.first.time else ""
            said.append(
                f"rank {self.first.rank} failed first{when} ({self.names[self.first.rank][-1]}): {self.first.line}"
            )
            others = [str(row.rank) for row in self.failed if row.rank != self.first.rank]
            if others:
                said.append(f"after it failed {'rank' if len(others) == 1 else 'ranks'} {', '.join(others)}")
        elif self.failed:
            listed = ", ".join(str(row.rank) for row in self.failed)
            said.append(f"ranks {listed} failed; which of them first, their logs do not say")
        else:
            said.append("no rank's log has a line that reads like an error")
        if self.missing:
            some = ", ".join(str(rank) for rank in self.missing[:8]) + (" …" if len(self.missing) > 8 else "")
            said.append(f"of {self.world} ranks, rank {some} has no log here: see whether it started")
        return tuple(said)


def read_ranks(texts: Sequence[tuple[str, str]]) -> Ranks | None:
    """Read the logs of a job, or return ``None`` where fewer than two are of a rank.

    Args:
        texts: (name, text) of each log.
    """
    logs: dict[int, str] = {}
    names: dict[int, tuple[str, ...]] = {}
    for name, text in texts:
        rank = _rank_of(name, text)
        if rank is not None:
            # A rank may write its two streams to two files.
            logs[rank] = f"{logs[rank]}\n{text}" if rank in logs else text
            names[rank] = (*names.get(rank, ()), name)
    if len(logs) < 2:
        return None
    failed = [failure for rank, text in sorted(logs.items()) if (failure := _failure_of(rank, text)) is not None]
    world = _world_of(logs.values())
    missing = tuple(rank for rank in range(world or 0) if rank not in logs)
    return Ranks(
        first=_first(failed, [text for _, text in texts]),
        failed=tuple(failed),
        missing=missing,
        world=world,
        names=names,
    )


def _rank_of(name: str, text: str) -> int | None:
    """Return whose log this is: by its lines, and only where they do not tell by its name."""
    head = text[:_HEAD_CHARACTERS]
    for pattern in (_PREFIXED, _OWN, _SET):
        found = {int(rank) for rank in pattern.findall(head)}
        if len(found) == 1:
            return found.pop()
        if found:
            break
    for pattern in (_NAMED, _FOLDER, _NUMBER):
        named = pattern.findall(name)
        if named:
            return int(named[-1])
    return None


def _world_of(texts: Iterable[str]) -> int | None:
    found = [
        int(world)
        for text in texts
        for pair in _WORLD.findall(text[:_HEAD_CHARACTERS])
        for world in pair
        if world and 1 < int(world) <= _WORLD_MAX
    ]
    return max(found) if found else None


def _failure_of(rank: int, text: str) -> RankFailure | None:
    suspect = find_suspect(text)
    lines = text.splitlines()
    waited = next((place for place, line in enumerate(lines, 1) if _CONSEQUENCE.search(line[:2000])), None)
    number = suspect.number if suspect is not None else waited
    if number is None:
        return None
    above = reversed(lines[max(0, number - _LINES_ABOVE) : number])
    time = next((time for line in above if (time := _time_of(line)) is not None), None)
    line = clean_line(lines[number - 1], _LINE_CHARACTERS)
    return RankFailure(rank=rank, line=line, time=time, is_consequence=_CONSEQUENCE.search(line) is not None)


def _time_of(line: str) -> datetime | None:
    try:
        if found := _TIME.search(line[:400]):
            return datetime.fromisoformat(f"{found[1]}-{found[2]}-{found[3]}T{found[4]}.{_micro(found[5])}")
        if found := _SHORT_TIME.search(line[:400]):
            return datetime.fromisoformat(f"{_ANY_YEAR}-{found[1]}-{found[2]}T{found[3]}.{_micro(found[4])}")
    except ValueError:
        pass
    return None


def _micro(digits: str | None) -> str:
    return (digits or "")[:6].ljust(6, "0")


def _first(failed: Sequence[RankFailure], texts: Iterable[str]) -> RankFailure | None:
    """Return what failed first: what the launcher saw, else the earliest that no other rank explains."""
    told = {int(rank) for text in texts for rank in _ROOT.findall(text)}
    if len(told) == 1:
        named = next((row for row in failed if row.rank in told), None)
        if named is not None:
            return named
    own = [row for row in failed if not row.is_consequence] or list(failed)
    if len(own) == 1:
        return own[0]
    timed = [(row.time, row) for row in own if row.time is not None]
    if len(timed) < len(own) or len({time.year == _ANY_YEAR for time, _ in timed}) > 1:
        return None
    earliest = sorted(timed, key=lambda pair: pair[0])
    return earliest[0][1] if earliest and (len(earliest) == 1 or earliest[0][0] < earliest[1][0]) else None
