"""Everything doctor was given: a target's snapshot, pasted text, an Xid, and the facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from provision.doctor.needles import Page
from provision.matrix.load import Matrix
from provision.probe.output import NOT_RUN, Unreadable
from provision.probe.parse.frameworks import spell_out
from provision.probe.parse.kernel_log import EVENT_WORDS, KernelEvent, parse_kernel_log
from provision.probe.snapshot import Snapshot
from provision.signals.catalogue import read_signal
from provision.signals.expectation import Expectation
from provision.signals.gpus import has_gpu
from provision.signals.signal import UNKNOWN, Fault, Signal

_Value = TypeVar("_Value")

_QUOTE_CHARACTERS = 200
_SPOKEN_XID = r"\bXid(?:s| errors?| codes?)?\W{1,4}(?P<code>[0-9]{1,3})\b(?!\.[0-9]|[%:]?\s?true)"
"""An Xid in a sentence of a person or of another program; the kernel's own lines are read by their form."""
BRIDGE = r"(?:172\.17\.0\.[0-9]{1,3}|172\.(?:1[89]|2[0-9]|30)\.0\.1)\b"
"""Addresses that docker gives to its bridges and to what hangs on the first of them."""

_TALKATIVE = (
    "torch",
    "tensorflow",
    "jax",
    "cuda-work",
    "torch-work",
    "torch-nccl",
    "nccl-pair",
    "container-gpu",
    "daemon-reload",
    "kernel-log",
    "fabric-manager",
    "recorded-log",
)
"""Probes whose answer may hold an error's own words although they ended well."""


class Quote(NamedTuple):
    """A line that matched: where it stands, the line, the match, and the line's number."""

    where: str
    line: str
    match: re.Match[str]
    number: int


class Case:
    """What is to be explained.

    Rules ask through :meth:`look`, :meth:`find` and :meth:`events`, which never raise for what is missing and remember
    what could not be seen.

    Args:
        matrix: The facts.
        host: What a probe brought; absent when there is only text.
        texts: (name, text) of logs and pasted errors.
        xids: Codes given by number.
        others: Snapshots of further hosts of the same job, for what only shows when hosts are compared.
    """

    def __init__(
        self,
        matrix: Matrix,
        host: Snapshot | None = None,
        texts: Sequence[tuple[str, str]] = (),
        xids: Sequence[int] = (),
        others: Sequence[Snapshot] = (),
    ) -> None:
        self.matrix = matrix
        self.host = host
        self.texts = tuple(texts)
        self.xids = tuple(xids)
        self.others = tuple(others)
        self.unseen: dict[str, str] = {}
        self._events: tuple[KernelEvent, ...] | None = None
        self._pages: tuple[Page, ...] | None = None
        self._kept: dict[str, Any] = {}

    def look(self, read: Callable[[Snapshot], _Value]) -> _Value | None:
        """Return what a function reads off the target, or ``None`` where that is not known.

        Args:
            read: Such as ``lambda host: host.smi``.
        """
        if self.host is None:
            return None
        try:
            return read(self.host)
        except Unreadable as error:
            # What nobody asked for is not a gap in what was found.
            if error.status != NOT_RUN:
                self.unseen.setdefault(error.probe, error.reason)
            return None

    @property
    def plan(self) -> Expectation:
        """What doctor takes the target to be meant for: the frameworks that it has, and no GPU where there is none."""
        return self.keep("plan", lambda: _plan_of(self.host))

    def signal(self, check: str) -> Signal | None:
        """Return one fact of the target as it is judged for everybody, ``None`` where it cannot be."""
        row = self.matrix.checks[check]
        return self.keep(
            f"signal {check}", lambda: self.look(lambda host: read_signal(row, host, self.plan, self.matrix))
        )

    def faults(self, *names: str) -> tuple[Fault, ...]:
        """Return what is wrong with some facts of the target.

        Args:
            names: Checks, ``CHECK/KIND`` for one kind of their faults only.
        """
        wanted = [(self.signal(check), kind) for check, _, kind in (name.partition("/") for name in names)]
        return tuple(
            fault
            for signal, kind in wanted
            if signal is not None
            for fault in signal.faults
            if kind in ("", fault.kind)
        )

    def is_well(self, *names: str) -> bool:
        """Tell whether all these facts are known, and none is amiss."""
        signals = [self.signal(name.partition("/")[0]) for name in names]
        return all(signal is not None and signal.status != UNKNOWN for signal in signals) and not self.faults(*names)

    def compare(self, read: Callable[[Snapshot], _Value]) -> dict[str, _Value]:
        """Return target → what a function reads off each host, in order; those that cannot tell are left out.

        Args:
            read: Such as ``lambda host: host.interfaces``.
        """
        found: dict[str, _Value] = {}
        for host in (*((self.host,) if self.host is not None else ()), *self.others):
            try:
                found.setdefault(host.target, read(host))
            except Unreadable as error:
                if error.status != NOT_RUN:
                    self.unseen.setdefault(f"{error.probe} of {host.target}", error.reason)
        return found

    def find(self, *patterns: str) -> Quote | None:
        """Return the first line that matches any of some regular expressions, case ignored.

        Pasted text comes first, then what the target's probes printed when they failed, then its kernel log.
        """
        return next(self.find_all(*patterns), None)

    def find_all(self, *patterns: str) -> Iterator[Quote]:
        """Yield every line that matches, in the order of :meth:`find`."""
        for page in self._open_pages():
            told = -1
            for number, position in page.candidates(patterns):
                if number == told:
                    continue
                match = _compile(patterns[position]).search(page.lines[number])
                if match is not None:
                    told = number
                    yield Quote(page.name, _shorten(page.lines[number], match), match, number)

    def events(self, *kinds: str) -> tuple[KernelEvent, ...]:
        """Return the kernel's events of some kinds, from the target's log and from pasted text, oldest first."""
        if self._events is None:
            found = list(log.events) if (log := self.look(lambda host: host.kernel_log)) is not None else []
            for (_, text), page in zip(self.texts, self._open_pages(), strict=False):
                # A log of a program is long, and most have no line of the kernel's.
                if not page.has_any(EVENT_WORDS):
                    continue
                try:
                    found += parse_kernel_log(text).events
                except Unreadable:
                    continue
            found += [KernelEvent(kind="xid", code=code, text=f"Xid {code}, given by number") for code in self.xids]
            if not found:
                found += self._spoken_xids()
            self._events = tuple(found)
        return tuple(event for event in self._events if event.kind in kinds)

    def keep(self, name: str, make: Callable[[], _Value]) -> _Value:
        """Return what a function makes, made once for all rules that ask by this name."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast(_Value, self._kept[name])

    def xid(self, *codes: int) -> tuple[KernelEvent, ...]:
        """Return the Xids of some codes, oldest first."""
        return tuple(event for event in self.events("xid") if event.code in codes)

    def _spoken_xids(self) -> Iterator[KernelEvent]:
        """Yield the Xids that pasted text only speaks of, each once; lists of those that a program ignores are none."""
        names = dict(self.texts)
        told: set[int] = set()
        for quote in self.find_all(_SPOKEN_XID):
            code, line = int(quote.match["code"]), quote.line.lower()
            if quote.where in names and code not in told and "ignore" not in line and "ignoring" not in line:
                told.add(code)
                yield KernelEvent(kind="xid", code=code, text=quote.line)

    def _open_pages(self) -> tuple[Page, ...]:
        """Return the texts that can be searched, each read once for all rules."""
        if self._pages is None:
            self._pages = tuple(Page(where, text) for where, text in self._texts())
        return self._pages

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield from self.texts
        if self.host is None:
            return
        for output in self.host.outputs.values():
            if output.error:
                yield f"{output.probe} (errors)", output.error
            if output.text and output.status != "ok":
                yield output.probe, output.text
        for probe in _TALKATIVE:
            if self.host.has(probe):
                yield probe, spell_out(self.host.output(probe).text)


def _plan_of(host: Snapshot | None) -> Expectation:
    if host is None:
        return Expectation()
    found: dict[str, str] = {}
    for name in ("torch", "tensorflow", "jax"):
        with suppress(Unreadable):
            version: str | None = getattr(host, name).version
            found |= {name: version} if version else {}
    return Expectation(gpus=0 if has_gpu(host) is False else None, frameworks=found)


def _shorten(line: str, match: re.Match[str]) -> str:
    """Return what is quoted of a line: all of it, or so much of a long one that what matched is in it."""
    from provision.probe.clean import clean_line

    if len(line) <= _QUOTE_CHARACTERS:
        return clean_line(line)
    room = max(0, _QUOTE_CHARACTERS - (match.end() - match.start()))
    start = max(0, match.start() - room // 4)
    return clean_line(line[start : start + _QUOTE_CHARACTERS])


@lru_cache(maxsize=None)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
