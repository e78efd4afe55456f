"""An all-reduce with another host is as fast as between the other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from provision.matrix.load import Matrix
from provision.probe.output import NOT_RUN, Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["compare"]

_FIGURES = ("allreduce_bus_gb_s", "busbw_gb_s")
"""Names of the bus bandwidth in the documents of PyTorch's payload and of wrappers around nccl-tests."""
_TEST = "allreduce"


def compare(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Outcome]:
    """Compare each host's bus bandwidth with the median of all, after the sum itself."""
    del expected
    outcomes: dict[str, Outcome] = {}
    rates: dict[str, float] = {}
    for name, host in hosts.items():
        try:
            outcomes[name] = _judge_alone(host, name, rates)
        except Unreadable as error:
            not_run = host.output("nccl-pair").status == NOT_RUN
            outcomes[name] = skipped("it was paired with no other host") if not_run else unknown(error.reason)
    middle = median(rates.values()) if rates else 0.0
    percent = matrix.limit("perf.nccl.pair-spread")
    for name, rate in rates.items():
        figures = {"pair_bus_gb_s": rate}
        if len(rates) < 2:
            outcomes[name] = unknown(f"{rate:.1f} GB/s, and no other pair to compare with")
        elif rate < middle * (1 - percent / 100):
            outcomes[name] = failed(
                f"{rate:.1f} GB/s with its partner, where the median of {len(rates)} hosts is {middle:.1f}",
                f"at most {percent:g} % below the median",
                subjects=[name],
                figures=figures,
            )
        else:
            outcomes[name] = passed(f"{rate:.1f} GB/s, the median is {middle:.1f}", figures=figures)
    return outcomes


def _judge_alone(host: Snapshot, name: str, rates: dict[str, float]) -> Outcome:
    work = host.nccl_pair
    if work.error:
        return failed(f"the all-reduce with another host could not begin: {work.error}", "a correct sum")
    said = work.together.get(_TEST)
    if said is not None and said.startswith("failed"):
        return failed(f"the all-reduce with another host {said}", "a correct sum")
    rate = next((work.figures[name] for name in _FIGURES if name in work.figures), None)
    if said != "ok" or rate is None:
        return unknown(said or "the payload did not try an all-reduce with another host")
    rates[name] = rate
    return passed("the sum is right")
