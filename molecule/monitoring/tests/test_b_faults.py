"""Faults are put on nodes: the right alert fires, is told to the right receiver, and is told to be over afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import replay
import surroundings

# Half an hour of the rules is a minute here, and a busy machine takes its time.
PATIENCE = 300
GPU_UNIT = "nvidia-dcgm-exporter"
GPUS = surroundings.GPUS


@dataclass(frozen=True)
class Fault:
    """An alert that must come of what was put on a node, and who must hear of it."""

    alert: str
    node: str
    receiver: str = "default"
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def wanted(self) -> dict[str, str]:
        """What its labels hold."""
        return {"alertname": self.alert, "node": self.node, **self.labels}


LATENCY = Fault("CommLatencyHigh", "two", labels={"severity": "warning"})
FAULTS = [
    Fault("GpuXidKernelLog", "one", labels={"xid": "79", "pci": replay.pci(1), "severity": "critical"}),
    # An Xid of one GPU says nothing of the others, so that what verify says of the node is told as well.
    Fault("VerifyFailed", "one", labels={"check": "gpu.xid", "severity": "warning"}),
    Fault("GpuTemperatureHigh", "one", labels={"gpu": "0", "severity": "warning"}),
    Fault("TextfileStale", "two", labels={"severity": "warning"}),
    Fault("GpuIdleAllocated", "two", "release", {"gpu": "1", "severity": "info", "action": "release"}),
]
STOPPED = [
    Fault("GpuExporterDown", "one", labels={"severity": "critical"}),
    Fault("NodeDown", "two", labels={"severity": "critical"}),
]


def name(fault: Fault) -> str:
    """Return what a test of a fault is called."""
    return f"{fault.alert}-{fault.node}"


@dataclass(frozen=True)
class Fleet:
    """The nodes, and how they are made to look."""

    one: Any
    two: Any
    show: Callable[..., None]
    say: Callable[..., None]


@pytest.fixture(scope="module")
def fleet(node_named, show_gpus, say_of_node):
    return Fleet(node_named("one"), node_named("two"), show_gpus, say_of_node)


@pytest.fixture(scope="module")
def calm(healthy, fleet, servers, told, wait):
    """Two nodes that are well, and nothing to tell but that monitoring is alive."""
    for node in (fleet.one, fleet.two):
        fleet.show(node, GPUS)
        fleet.say(node, gpus=len(GPUS))
    assert wait(lambda: servers.firing() == {"Watchdog"}, PATIENCE), servers.firing()
    return len(told.messages())


@pytest.fixture(scope="module")
def injected(calm, fleet):
    """Each fault of the list at once; how many messages there were before."""
    fleet.show(fleet.one, [replace(GPUS[0], temperature_celsius=91), GPUS[1]])
    fleet.say(fleet.one, gpus=len(GPUS), xids={79: 1}, failed=["gpu.xid"])
    fleet.show(fleet.two, [GPUS[0], replace(GPUS[1], activity_percent=10)])
    fleet.say(fleet.two, gpus=len(GPUS), age="2 hours ago")
    return calm


def test_monitoring_says_that_it_is_alive(calm, told):
    assert told.heard("firing", alertname="Watchdog") == {"watchdog"}


def test_nothing_else_was_told_while_all_was_well(calm, told):
    assert {row.labels["alertname"] for row in told.messages()[:calm] if row.status == "firing"} <= {"Watchdog"}


@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_a_fault_is_told_to_its_receiver_alone(injected, fault, servers, told, wait):
    assert wait(lambda: told.heard("firing", injected, **fault.wanted), PATIENCE), servers.firing()
    assert told.heard("firing", injected, **fault.wanted) == {fault.receiver}


def test_no_other_alert_than_those_of_the_faults_was_told(injected, told):
    rows = {(row.labels["alertname"], row.labels.get("node", "")) for row in told.messages()[injected:]}
    assert rows - {("Watchdog", "")} == {(fault.alert, fault.node) for fault in FAULTS}


@pytest.fixture(scope="module")
def mended(injected, fleet):
    """All put right."""
    for node in (fleet.one, fleet.two):
        fleet.show(node, GPUS)
        fleet.say(node, gpus=len(GPUS))


@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_a_fault_that_is_over_is_told_to_be(mended, injected, fault, servers, told, wait):
    assert wait(lambda: told.heard("resolved", injected, **fault.wanted) == {fault.receiver}, PATIENCE)
    assert not servers.fires(**fault.wanted)


def test_a_killed_exporter_comes_back_by_itself(mended, fleet, servers, wait):
    for unit in (GPU_UNIT, "prometheus-node-exporter"):
        before = fleet.one.say(f"systemctl show -P MainPID {unit}")
        fleet.one.say(f"systemctl kill -s KILL {unit}")
        assert wait(lambda: fleet.one.say(f"systemctl show -P MainPID {unit}") not in ("0", before)), unit  # noqa: B023
    assert wait(lambda: set(servers.health(node="one").values()) == {"up"}, PATIENCE), servers.health(node="one")


@pytest.fixture(scope="module")
def slowed(mended, fleet, told):
    """A network that became slow a moment ago: what is slow for half a day is usual, and no alert; messages before."""
    before = len(told.messages())
    fleet.two.say("mount -o remount,rw /proc/sys && sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
    fleet.two.say("systemd-run --quiet --unit=stand-in-slow-echo python3 /opt/provision-stand-in/slow_echo.py 0.05")
    return before


def test_a_network_that_became_slow_is_told(slowed, told, wait):
    assert wait(lambda: told.heard("firing", slowed, **LATENCY.wanted) == {"default"}, PATIENCE)


@pytest.fixture(scope="module")
def stopped(slowed, fleet, told):
    """The GPU exporter of one node and the node exporter of the other, gone; the network of the other still slow."""
    before = len(told.messages())
    fleet.one.say(f"systemctl stop {GPU_UNIT}")
    fleet.two.say("systemctl stop prometheus-node-exporter")
    return before


@pytest.mark.parametrize("fault", STOPPED, ids=name)
def test_an_exporter_that_is_gone_is_told(stopped, fault, told, wait):
    assert wait(lambda: told.heard("firing", stopped, **fault.wanted) == {"default"}, PATIENCE)


def test_a_node_that_is_down_silences_its_warnings(stopped, servers, wait):
    assert servers.fires(**LATENCY.wanted)
    assert wait(lambda: servers.silenced_by(**LATENCY.wanted) == ["NodeDown"], PATIENCE)


@pytest.fixture(scope="module")
def started(stopped, fleet):
    """Both exporters there again."""
    fleet.one.say(f"systemctl start {GPU_UNIT}")
    fleet.two.say("systemctl start prometheus-node-exporter")


@pytest.mark.parametrize("fault", STOPPED, ids=name)
def test_an_exporter_that_answers_again_is_told(started, stopped, fault, told, wait):
    assert wait(lambda: told.heard("resolved", stopped, **fault.wanted) == {"default"}, PATIENCE)


def test_a_network_that_is_quick_again_is_told(started, slowed, fleet, servers, told, wait):
    fleet.two.say("systemctl stop stand-in-slow-echo && sysctl -qw net.ipv4.icmp_echo_ignore_all=0")
    assert wait(lambda: told.heard("resolved", slowed, **LATENCY.wanted) == {"default"}, PATIENCE)
    assert wait(lambda: servers.firing() == {"Watchdog"}, PATIENCE), servers.firing()
