"""NCCL's ports of the other hosts can be reached."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import NOT_RUN
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import counted

__all__ = ["check"]

_ANSWERS = ("open", "refused", "silent")
_SHOWN = 6


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Take a refusal for an answer: the packet came through, and no program listened."""
    del expected, matrix
    if host.output("ports").status == NOT_RUN:
        return skipped("no other host was named to connect to")
    answers = [line.split() for line in host.ports]
    odd = [words for words in answers if len(words) != 3 or words[2] not in _ANSWERS]
    if odd:
        return unknown(f"the probe of ports said `{' '.join(odd[0])[:80]}`")
    silent = [f"{name}:{port}" for name, port, answer in answers if answer == "silent"]
    if silent:
        more = f" and {len(silent) - _SHOWN} more" if len(silent) > _SHOWN else ""
        return failed(
            f"no answer from {', '.join(silent[:_SHOWN])}{more}", "an answer from every port", subjects=silent
        )
    if not answers:
        return unknown("the probe of ports tried none")
    hosts = len({words[0] for words in answers})
    return passed(f"{counted(len(answers), 'port')} of {counted(hosts, 'host')} answer")
