"""A node is offered only where everything that is known speaks for it, and enough is known."""

from __future__ import annotations

from typing import Any

import pytest

from provision.errors import MissingDependencyError
from provision.fleet.idle import Evidence, IdleLimits, find_idle, judge_node
from provision.generate.fleet_page import Line
from provision.matrix.load import Matrix
from provision.records import replace

LIMITS = IdleLimits(activity_percent=30, memory_mib=1024)
FREE = Evidence(
    node="n1", is_up=True, gpus=8, planned=8, watched=8, busiest_percent=2.0, peak_percent=9.0, memory_mib=400.0
)


def test_an_idle_node_is_offered() -> None:
    assert judge_node(FREE, LIMITS).verdict == "release"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"busiest_percent": 29.9}, "release"),
        ({"busiest_percent": 30.0}, "busy"),
        ({"busiest_percent": None}, "unknown"),
        ({"watched": 7}, "unknown"),
        ({"watched": 7, "busiest_percent": 80.0}, "busy"),
        ({"memory_mib": 1024.0}, "release"),
        ({"memory_mib": 1025.0}, "ask"),
        ({"memory_mib": None}, "unknown"),
        ({"jobs": 1}, "ask"),
        ({"is_held": True}, "keep"),
        ({"is_noticed": True}, "keep"),
        ({"is_up": False}, "unknown"),
        ({"is_up": None}, "release"),
        ({"gpus": None}, "unknown"),
        ({"gpus": 0, "watched": 0}, "unknown"),
        ({"gpus": 7, "watched": 7}, "unknown"),
        ({"planned": None}, "release"),
        ({"planned": 4}, "release"),
    ],
    ids=str,
)
def test_each_piece_of_evidence_counts(change: dict[str, Any], verdict: str) -> None:
    judged = judge_node(replace(FREE, **change), LIMITS)
    assert judged.verdict == verdict
    assert judged.reason


class Server:
    """STAND-IN: a Prometheus that knows a few answers by a part of the question."""

    address = "http://prometheus.example"

    def __init__(self, **answers: dict[str, float]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def ask(self, expression: str, *, at: float | None = None) -> tuple[Line, ...]:
        del at
        self.asked.append(expression)
        if expression == "vector(time())":
            return (Line(labels={}, points=((1e9, 1e9),)),)
        for key, values in self.answers.items():
            if key in expression and (key == "bool") == ("bool" in expression):
                return tuple(Line(labels={"node": name}, points=((1e9, value),)) for name, value in values.items())
        return ()


def test_nodes_are_told_apart_and_ordered() -> None:
    nodes = ("n1", "n2", "n3")
    server = Server(
        gpu_visible=dict.fromkeys(nodes, 8.0),
        bool={"n1": 3.0, "n2": 8.0, "n3": 8.0},
        avg_over_time={"n1": 80.0, "n2": 1.0, "n3": 1.0},
        count_over_time=dict.fromkeys(nodes, 8.0),
        memory_used=dict.fromkeys(nodes, 10.0),
        node_hold={"n3": 1.0},
    )
    report = find_idle(server, Matrix(), window_seconds=3600)  # type: ignore[arg-type]
    assert [(node.evidence.node, node.verdict) for node in report.nodes] == [
        ("n2", "release"),
        ("n3", "keep"),
        ("n1", "busy"),
    ]
    assert [node.evidence.node for node in report.of("release")] == ["n2"]
    assert [node.evidence.idle_gpus for node in report.nodes] == [8, 8, 3]


def test_as_many_samples_are_asked_for_as_the_window_is_long() -> None:
    server = Server(gpu_visible={"n1": 8.0})
    find_idle(server, Matrix(), window_seconds=3600)  # type: ignore[arg-type]
    needed = 2 * Matrix().limit("idle.samples")
    assert any(f"[3600s]) >= {needed:g})" in question for question in server.asked)


def test_a_server_without_nodes_is_no_fleet_of_idle_ones() -> None:
    with pytest.raises(MissingDependencyError, match="knows no GPU node") as caught:
        find_idle(Server(), Matrix(), window_seconds=60)  # type: ignore[arg-type]
    assert "fleet rules" in caught.value.hints[0]
