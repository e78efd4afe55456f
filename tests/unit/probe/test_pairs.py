"""Every host meets others, never two at once, and is judged by its best round."""

from __future__ import annotations

import asyncio
import json

import pytest

from provision.probe import collect, pairs
from provision.probe.collect import Collection
from provision.probe.compose import CollectOptions
from provision.probe.output import Output
from provision.probe.pairs import collect_pairs, plan_rounds
from provision.probe.snapshot import Snapshot
from provision.probe.targets import parse_target


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 31])
def test_no_host_has_two_partners_and_no_pair_comes_twice(count: int) -> None:
    names = [f"gpu{number:03}" for number in range(count)]
    rounds = plan_rounds(names, rounds=count)
    for round_ in rounds:
        met = [name for pair in round_ for name in pair]
        assert len(met) == len(set(met)) >= count - 1
    every = [frozenset(pair) for round_ in rounds for pair in round_]
    assert len(every) == len(set(every)) == count * (count - 1) // 2


def test_one_host_has_no_pair() -> None:
    assert all(round_ == () for round_ in plan_rounds(["gpu001"]))


@pytest.fixture
def cluster(monkeypatch):
    """Hosts with a rate each; a pair is as fast as its slower member."""
    asked = []

    def start(rates, unreachable=()):
        async def collect_one(targets, options, parallel, **_):
            (target,) = targets
            asked.append((target.name, options.rank, options.master))
            await asyncio.sleep(0)
            if target.name in unreachable:
                return Collection(snapshots={}, unreachable={target.name: "refused"})
            partner = next(name for name, rank, master in reversed(asked) if master == options.master)
            await asyncio.sleep(0)
            members = {name for name, _, master in asked if master == options.master} & {
                target.name,
                partner,
                options.master,
            }
            document = {
                "tool": "torch-nccl",
                "error": None,
                "gpus": [],
                "together": {"allreduce": "ok"},
                "figures": {"allreduce_bus_gb_s": min(rates[name] for name in members)},
                "pairs": [],
            }
            output = Output(probe="nccl-pair", status="ok", code=0, text=f"@provision-payload {json.dumps(document)}\n")
            return Collection(snapshots={target.name: Snapshot(target.name, {"nccl-pair": output})}, unreachable={})

        monkeypatch.setattr(collect, "collect_targets_async", collect_one)
        targets = [parse_target(f"ssh://{name}") for name in rates]
        # Targets are filed under what was written.
        rates.update({target.name: rates[target.host] for target in targets})
        return collect_pairs(targets, CollectOptions(nonce="abcdef123456"), port=50000), asked

    return start


def test_each_round_has_one_leader_a_pair(cluster) -> None:
    _, asked = cluster({"a": 100.0, "b": 100.0, "c": 100.0, "d": 100.0})
    assert len(asked) == 4 * pairs.ROUNDS
    assert sorted(rank for _, rank, _ in asked) == [0] * 4 + [1] * 4


def test_host_that_cannot_be_reached_is_told(cluster) -> None:
    best, _ = cluster({"a": 100.0, "b": 100.0}, unreachable=("ssh://b",))
    assert (best["ssh://b"].status, best["ssh://b"].error) == ("failed", "refused")


def test_best_round_of_a_host_counts() -> None:
    def output(rate):
        document = {
            "tool": "torch-nccl",
            "gpus": [],
            "together": {},
            "figures": {"allreduce_bus_gb_s": rate},
            "pairs": [],
        }
        return Output(probe="nccl-pair", status="ok", text=f"@provision-payload {json.dumps(document)}\n")

    assert pairs._rate(output(90.0)) > pairs._rate(output(20.0)) > pairs._rate(Output(probe="nccl-pair", status="hung"))
