"""The checks of the network."""

from __future__ import annotations

import machines
import pytest
from asking import MATRIX, ask, text

from provision.probe.output import Output
from provision.records import replace
from provision.signals.signal import Signal
from provision.verify.engine import compare_hosts


def compare(check: str, hosts: dict[str, dict[str, Output]], **changes: object) -> dict[str, Signal]:
    """Return target and answer of one check that compares hosts."""
    expected = replace(machines.EXPECTED["hgx_h100"], **changes)
    asked = {name: machines.snapshot(outputs, name) for name, outputs in hosts.items()}
    results = compare_hosts(asked, dict.fromkeys(asked, expected), MATRIX, [MATRIX.checks[check]])
    return {result.target: result.outcome for result in results}


H100 = machines.hgx_h100()


def test_all_ports_pass() -> None:
    assert ask("net.rdma.links", H100).seen == "8 of 8 ports active at 400 Gb/s"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 1: DOWN", "mlx5_3/1 is DOWN (LinkUp)"),
        ("mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 2: INIT", "mlx5_3/1 is INIT (LinkUp)"),
        ("mlx5_3 1 rate 400", "mlx5_3 1 rate 200", "mlx5_3/1 runs at 200 Gb/s"),
    ],
    ids=["down", "no-subnet-manager", "slow"],
)
@pytest.mark.parametrize("rdma_gbit", [400, None], ids=["planned", "known-of-the-gpu"])
def test_a_port_that_is_not_well_is_named(old: str, new: str, said: str, rdma_gbit: int | None) -> None:
    outcome = ask("net.rdma.links", machines.change(H100, "infiniband", old, new), rdma_gbit=rdma_gbit)

    assert (outcome.status, outcome.seen, outcome.subjects) == ("fail", said, ("mlx5_3/1",))
    assert outcome.expected == "ACTIVE, 400 Gb/s or more"


def test_planned_ports_that_are_not_there_fail() -> None:
    outcome = ask("net.rdma.links", text(H100, "infiniband", ""))

    assert (outcome.seen, outcome.expected) == ("there is no RDMA device", "ports of 400 Gb/s")


def test_ports_over_ethernet_without_a_plan_pass_when_one_is_up() -> None:
    ethernet = machines.change(H100, "infiniband", "link_layer InfiniBand", "link_layer Ethernet")
    one_down = machines.change(ethernet, "infiniband", "mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 1: DOWN")
    all_down = machines.change(ethernet, "infiniband", "state 4: ACTIVE", "state 1: DOWN")

    assert ask("net.rdma.links", one_down, rdma_gbit=None).seen == "7 of 8 RDMA ports over Ethernet are active"
    assert ask("net.rdma.links", all_down, rdma_gbit=None).status == "fail"


def test_ports_without_an_answer_are_unknown_and_without_a_plan_not_asked() -> None:
    assert ask("net.rdma.links", machines.fail(H100, "infiniband", status="denied")).status == "unknown"
    assert ask("net.rdma.links", text(H100, "infiniband", ""), rdma_gbit=None).status == "skip"


FLAP = "mlx5_core 0000:1a:00.0 ibp26s0: lost carrier"


def flapping(times: int, *, apart_seconds: int = 60) -> dict[str, Output]:
    outputs = H100
    for place in range(times):
        outputs = machines.kernel_line(outputs, f"[{3600 + place * apart_seconds}.000000] {FLAP}")
    return outputs


def test_a_few_lost_links_pass_and_many_fail_with_their_number() -> None:
    assert ask("net.rdma.flap", flapping(4)).seen == "4 lost links in the last day of the kernel log"
    outcome = ask("net.rdma.flap", flapping(5))
    assert (outcome.status, outcome.expected) == ("fail", "fewer than 5 times")
    assert "0000:1a:00.0" in outcome.seen
    assert "5 times in a day" in outcome.seen


def test_lost_links_of_other_days_do_not_count() -> None:
    assert ask("net.rdma.flap", flapping(6, apart_seconds=24 * 3600)).status == "pass"


def test_a_kernel_log_that_may_not_be_read_is_unknown() -> None:
    assert ask("net.rdma.flap", machines.fail(H100, "kernel-log", status="denied")).status == "unknown"
    assert ask("net.rdma.flap", H100, rdma_gbit=0).status == "skip"


def without_peermem() -> dict[str, Output]:
    lines = [line for line in H100["modules"].text.splitlines(keepends=True) if not line.startswith("nvidia_peermem")]
    return text(H100, "modules", "".join(lines).replace("nvidia_peermem", "-"))


def test_the_module_or_shared_buffers_pass() -> None:
    assert ask("net.peermem", H100).seen == "`nvidia_peermem` is loaded"
    assert "DMA-BUF" in ask("net.peermem", without_peermem()).seen


def test_neither_module_nor_shared_buffers_fail_with_the_reason() -> None:
    closed = machines.change(
        without_peermem(), "driver-version", "Open Kernel Module for x86_64", "x86_64 Kernel Module"
    )
    old = machines.change(without_peermem(), "uname", "6.8.0", "5.4.0")

    assert "are not the open ones" in ask("net.peermem", closed).seen
    assert "too old for DMA-BUF" in ask("net.peermem", old).seen
    assert ask("net.peermem", machines.absent(H100, "modules")).status == "unknown"


def test_a_broken_context_of_peermem_fails_although_it_is_loaded() -> None:
    line = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
    outcome = ask("net.peermem", machines.kernel_line(H100, line))

    assert outcome.status == "fail"
    assert "invalid context" in outcome.seen


def test_one_mtu_everywhere_passes() -> None:
    assert compare("net.mtu", {"a": H100, "b": H100})["a"].seen == "eth0 has 9000"


def test_another_mtu_than_planned_fails_with_both() -> None:
    odd = machines.change(H100, "interfaces", "eth0 mtu 9000", "eth0 mtu 1500")
    outcomes = compare("net.mtu", {"a": H100, "b": odd})

    assert outcomes["a"].status == "pass"
    assert (outcomes["b"].seen, outcomes["b"].expected) == ("eth0 has 1500", "eth0 9000, as planned")


def test_another_mtu_than_most_fails_without_a_plan() -> None:
    odd = machines.change(H100, "interfaces", "eth0 mtu 9000", "eth0 mtu 1500")
    outcomes = compare("net.mtu", {"a": H100, "b": odd, "c": H100}, mtu=None, interfaces=())

    assert [outcome.status for outcome in outcomes.values()] == ["pass", "fail", "pass"]
    assert outcomes["b"].expected == "eth0 9000, as most hosts have"


def test_interfaces_that_are_missing_fail_and_unread_ones_are_unknown() -> None:
    outcomes = compare("net.mtu", {"a": H100, "b": machines.absent(H100, "interfaces")}, interfaces=("eth0", "eth9"))

    assert (outcomes["a"].seen, outcomes["b"].status) == ("there is no interface eth9", "unknown")


def test_one_host_has_nothing_to_compare() -> None:
    assert compare("net.mtu", {"a": H100})["a"].status == "skip"


def test_ports_that_answer_pass_and_a_refusal_is_an_answer() -> None:
    assert ask("net.ports", H100).seen == "3 ports of 1 host answer"
    assert ask("net.ports", machines.change(H100, "ports", "open", "refused")).status == "pass"


def test_silent_ports_fail_by_name() -> None:
    outcome = ask("net.ports", machines.change(H100, "ports", "50500 open", "50500 silent"))

    assert (outcome.status, outcome.seen) == ("fail", "no answer from gpu002:50500")


@pytest.mark.parametrize(
    ("said", "status"), [("", "unknown"), ("gpu002 50000 perhaps\n", "unknown")], ids=["empty", "odd-word"]
)
def test_ports_without_a_clear_answer_are_unknown(said: str, status: str) -> None:
    assert ask("net.ports", text(H100, "ports", said)).status == status


def test_ports_are_not_asked_without_other_hosts() -> None:
    assert ask("net.ports", machines.cloud_a10g(), machine="cloud_a10g").status == "skip"


def test_a_firewall_that_accepts_the_cluster_passes() -> None:
    assert ask("net.firewall", H100).seen == "nft accepts 10.20.0.0/24"
    assert ask("net.firewall", H100, cluster_subnet="10.20.0.128/25").status == "pass"


def test_a_firewall_that_drops_the_cluster_fails_with_what_it_accepts() -> None:
    outcome = ask("net.firewall", H100, cluster_subnet="10.99.0.0/24")

    assert outcome.status == "fail"
    assert "10.20.0.0/24" in outcome.seen
    assert outcome.expected == "10.99.0.0/24 accepted"


def test_a_firewall_that_accepts_the_ports_passes() -> None:
    outputs = machines.change(H100, "firewall", "tcp dport 22 accept", "tcp dport 49000-52000 accept")

    assert ask("net.firewall", outputs, cluster_subnet="10.99.0.0/24").seen == "nft accepts ports 50000-51000"


def test_no_firewall_passes_and_no_cluster_is_not_asked() -> None:
    assert ask("net.firewall", text(H100, "firewall", "== none\n== local-ports\n32768\t60999\n")).status == "pass"
    assert ask("net.firewall", H100, cluster_subnet=None, nccl_ports=None).status == "skip"
    assert ask("net.firewall", machines.fail(H100, "firewall", status="denied")).status == "unknown"


def test_a_kept_clock_passes() -> None:
    assert ask("net.clock", H100).seen == "the clock is synchronised, 2.1e-05 s off"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("offset_seconds=0.000021125", "offset_seconds=-3.5", "the clock is -3.5 s off"),
        (
            "NTPSynchronized=yes\nchrony_leap=Normal",
            "NTPSynchronized=no\nchrony_leap=Not synchronised",
            "not synchronised",
        ),
    ],
    ids=["off", "free"],
)
def test_a_clock_that_runs_away_fails(old: str, new: str, said: str) -> None:
    outcome = ask("net.clock", machines.change(H100, "clock", old, new))

    assert outcome.status == "fail"
    assert said in outcome.seen


def test_a_clock_nobody_speaks_of_is_unknown_and_a_containers_is_not_asked() -> None:
    assert ask("net.clock", text(H100, "clock", "epoch=1790000000\n")).status == "unknown"
    assert ask("net.clock", machines.gpu_container(), machine="gpu_container").status == "skip"


def test_a_firewall_that_does_not_tell_its_default_is_unknown() -> None:
    outcome = ask("net.firewall", text(H100, "firewall", "== ufw\nStatus: active\n== local-ports\n32768\t60999\n"))

    assert (outcome.status, outcome.seen) == (
        "unknown",
        "the rules of ufw do not say what happens to other packets",
    )


def test_hosts_without_an_interface_that_is_up_are_unknown() -> None:
    down = machines.change(H100, "interfaces", "eth0 operstate up", "eth0 operstate down")

    assert compare("net.mtu", {"a": H100, "b": down}, interfaces=(), mtu=None)["b"].status == "unknown"


def test_a_port_without_a_rate_is_unknown() -> None:
    lines = [line for line in H100["infiniband"].text.splitlines() if not line.startswith("mlx5_3 1 rate")]

    assert (
        ask("net.rdma.links", text(H100, "infiniband", "\n".join(lines) + "\n")).seen
        == "mlx5_3/1 does not report its rate"
    )


B200 = machines.hgx_b200()


def without_roles(outputs: dict[str, Output]) -> dict[str, Output]:
    rows = [row for row in outputs["infiniband"].text.splitlines(keepends=True) if " role " not in row]
    return text(outputs, "infiniband", "".join(rows))


@pytest.mark.parametrize("rdma_gbit", [400, None], ids=["planned", "known-of-the-gpu"])
def test_ports_that_manage_switches_are_no_ports_of_the_network(rdma_gbit: int | None) -> None:
    outcome = ask("net.rdma.links", B200, machine="hgx_b200", rdma_gbit=rdma_gbit)

    assert (outcome.status, outcome.seen) == ("pass", "8 of 8 ports active at 400 Gb/s")


def test_ports_that_only_manage_switches_are_no_rdma() -> None:
    rows = [row for row in B200["infiniband"].text.splitlines(keepends=True) if row.startswith(("mlx5_8", "mlx5_9"))]
    only = text(B200, "infiniband", "".join(rows))

    assert ask("net.rdma.links", only, machine="hgx_b200", rdma_gbit=None).status == "skip"
    assert ask("net.rdma.links", only, machine="hgx_b200").seen == "there is no RDMA device"


def test_slow_ports_that_may_manage_switches_are_unknown() -> None:
    outcome = ask("net.rdma.links", without_roles(B200), machine="hgx_b200")

    assert outcome.status == "unknown"
    assert "mlx5_8/1 is DOWN" in outcome.seen
    assert "takes root" in outcome.seen


def test_ports_of_boards_with_switches_of_their_own_are_judged_without_roles() -> None:
    slow = machines.change(without_roles(H100), "infiniband", "mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 1: DOWN")

    assert ask("net.rdma.links", slow).subjects == ("mlx5_3/1",)


def test_an_emptied_kernel_log_proves_no_steady_link() -> None:
    assert ask("net.rdma.flap", text(H100, "kernel-log", "")).status == "unknown"
