"""Rules about NCCL and the network: logs of a job, the state of ports, and hosts compared with each other."""

from __future__ import annotations

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import load_rule
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()


def ask(name: str, outputs=None, text: str = "", others=()) -> Sign | None:
    host = machines.snapshot(outputs) if outputs is not None else None
    more = [machines.snapshot(other, target) for target, other in others]
    return load_rule(name).examine(Case(MATRIX, host, texts=[("pasted", text)] if text else (), others=more))


def environment(outputs, line: str):
    return machines.change(outputs, "environment", "PATH=", f"{line}\nPATH=", 1)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("ens9", "is none of this host's interfaces"),
        ("docker0", "is down: docker0"),
        ("=eth", "is none of this host's"),
    ],
    ids=["unknown", "down", "exact"],
)
def test_interface_that_the_environment_names(value, seen):
    sign = ask("nccl.wrong-interface", environment(machines.hgx_h100(), f"NCCL_SOCKET_IFNAME={value}"))
    assert sign.confidence == "high"
    assert seen in sign.seen[0]
    assert sign.fix == ("Name the interface: `export NCCL_SOCKET_IFNAME=eth0`.",)


@pytest.mark.parametrize("value", ["eth", "=eth0", "^docker,lo", "ib0,eth0"])
def test_interface_that_is_there_is_fine(value):
    assert ask("nccl.wrong-interface", environment(machines.hgx_h100(), f"NCCL_SOCKET_IFNAME={value}")) is None


def test_firewall_and_silent_ports():
    outputs = machines.change(machines.hgx_h100(), "ports", "gpu002 50000 open", "gpu002 50000 silent")
    sign = ask("nccl.firewall", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("gpu002",)
    assert "gpu002 is silent on port 50000" in sign.seen


def test_port_that_nobody_listens_on_is_no_firewall():
    outputs = machines.change(machines.hgx_h100(), "ports", "gpu002 50000 open", "gpu002 50000 refused")
    assert ask("nccl.firewall", outputs) is None


def test_watchdog_lists_ranks_and_what_they_waited_in():
    work = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType={}, NumelIn=1)"
    text = "\n".join([work.format(0, 812, "ALLREDUCE"), work.format(3, 813, "BROADCAST")])
    sign = ask("nccl.watchdog", text=text)
    assert "ranks 0, 3 waited in ALLREDUCE 812, BROADCAST 813" in sign.seen
    assert any("not in the same operation" in one for one in sign.seen)


def test_watchdog_shows_the_xid_before_it():
    line = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    outputs = machines.kernel_line(machines.hgx_h100(), line)
    sign = ask("nccl.watchdog", outputs, "Watchdog caught collective operation timeout")
    assert any("Xid" in one for one in sign.seen)


SOCKET = "NCCL INFO Using network Socket"


def test_no_rdma_depends_on_there_being_some():
    assert ask("nccl.no-rdma", text=SOCKET).confidence == "low"
    assert ask("nccl.no-rdma", machines.hgx_h100(), SOCKET).confidence == "high"
    assert ask("nccl.no-rdma", machines.cloud_a10g(), SOCKET) is None


def test_rdma_switched_off_by_the_environment():
    sign = ask("nccl.no-rdma", environment(machines.hgx_h100(), "NCCL_IB_DISABLE=1"))
    assert sign.confidence == "high"
    assert sign.fix == ("Take it back: `unset NCCL_IB_DISABLE`.",)


def test_nvlink_without_access():
    outputs = machines.change(machines.hgx_h100(), "nvidia-smi-p2p", " GPU0\tX\tOK", " GPU0\tX\tNS")
    sign = ask("nccl.no-p2p", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU0", "GPU1")


def test_geforce_without_access_is_how_it_is_made():
    table = " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n"
    outputs = machines.replace_output(machines.l40s_pcie(), "nvidia-smi-p2p", text=table)
    assert ask("nccl.no-p2p", outputs) is None


def test_bridges_that_redirect_matter_on_bare_metal_only():
    outputs = machines.hgx_h100()
    assert "SrcValid-" in outputs["lspci"].text
    changed = machines.change(outputs, "lspci", "SrcValid-", "SrcValid+", 1)
    assert ask("nccl.acs", changed).confidence == "medium"
    assert ask("nccl.acs", changed, "# Out of bounds values : 3 FAILED").confidence == "high"
    virtual = machines.change(changed, "virtualization", "kind=none", "kind=kvm")
    assert ask("nccl.acs", virtual) is None


def test_memlock_is_judged_by_the_limit():
    text = "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"
    low = machines.change(machines.hgx_h100(), "limits", "memlock_kib unlimited", "memlock_kib 8192")
    assert ask("nccl.memlock", low).confidence == "medium"
    assert ask("nccl.memlock", machines.replace_output(low, "infiniband", text="")) is None
    assert ask("nccl.memlock", low, text).confidence == "high"
    assert ask("nccl.memlock", machines.hgx_h100(), text).confidence == "low"


@pytest.mark.parametrize(
    ("old", "new", "confidence", "seen"),
    [
        (
            "mlx5_3 1 state 4: ACTIVE",
            "mlx5_3 1 state 2: INIT",
            "high",
            "mlx5_3 port 1 is INIT: no subnet manager has set it up",
        ),
        (
            "mlx5_3 1 rate 400 Gb/sec (4X NDR)",
            "mlx5_3 1 rate 200 Gb/sec (4X HDR)",
            "medium",
            "runs at 200 of 400 Gbit/s",
        ),
    ],
    ids=["init", "slow"],
)
def test_port_that_is_not_as_its_neighbours(old, new, confidence, seen):
    sign = ask("rdma.port", machines.change(machines.hgx_h100(), "infiniband", old, new))
    assert sign.confidence == confidence
    assert any(seen in one for one in sign.seen)
    assert sign.subjects == ("mlx5_3 port 1",)


def test_port_that_looks_for_a_link():
    outputs = machines.change(machines.hgx_h100(), "infiniband", "mlx5_3 1 state 4: ACTIVE", "mlx5_3 1 state 1: DOWN")
    polling = machines.change(outputs, "infiniband", "mlx5_3 1 phys_state 5: LinkUp", "mlx5_3 1 phys_state 2: Polling")
    disabled = machines.change(
        outputs, "infiniband", "mlx5_3 1 phys_state 5: LinkUp", "mlx5_3 1 phys_state 3: Disabled"
    )
    assert ask("rdma.port", polling).subjects == ("mlx5_3 port 1",)
    assert ask("rdma.port", disabled) is None


def flaps(count: int, apart_seconds: int) -> str:
    return "\n".join(
        f"[{1000 + index * apart_seconds}.000000] mlx5_core 0000:19:00.0 ib0: Lost carrier" for index in range(count)
    )


@pytest.mark.parametrize(
    ("count", "apart_seconds", "confidence"), [(5, 3600, "high"), (4, 3600, "low"), (5, 30_000, "low")]
)
def test_flaps_are_counted_within_a_day(count, apart_seconds, confidence):
    sign = ask("rdma.flap", text=flaps(count, apart_seconds))
    assert sign.confidence == confidence


def test_retries_point_to_roce_on_ethernet_only():
    text = "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=1 len=0 vendor err 129"
    assert ask("rdma.roce", machines.hgx_h100(), text).confidence == "low"
    ethernet = machines.change(machines.hgx_h100(), "infiniband", "link_layer InfiniBand", "link_layer Ethernet")
    sign = ask("rdma.roce", ethernet, text)
    assert sign.confidence == "medium"
    assert any("active ports are Ethernet" in one for one in sign.seen)


def test_mtu_is_compared_over_hosts():
    other = machines.change(machines.hgx_h100(), "interfaces", "eth0 mtu 9000", "eth0 mtu 1500")
    sign = ask("net.mtu", machines.hgx_h100(), others=[("gpu002", other)])
    assert sign.confidence == "medium"
    assert sign.seen == ("eth0 has MTU 9000 on gpu001, 1500 on gpu002",)
    assert ask("net.mtu", machines.hgx_h100(), others=[("gpu002", machines.hgx_h100())]) is None
    text = "ping: local error: message too long, mtu=1500"
    assert ask("net.mtu", machines.hgx_h100(), text, others=[("gpu002", other)]).confidence == "high"


def test_nccl_is_compared_over_hosts():
    other = machines.change(machines.hgx_h100(), "torch", '"nccl": "2.27.3"', '"nccl": "2.26.2"')
    sign = ask("nccl.version-skew", machines.hgx_h100(), others=[("gpu002", other)])
    assert sign.confidence == "high"
    assert sign.seen == ("NCCL is 2.27.3 on gpu001, 2.26.2 on gpu002",)
    assert ask("nccl.version-skew", machines.hgx_h100(), others=[("gpu002", machines.hgx_h100())]) is None


def test_host_that_cannot_tell_is_not_compared():
    silent = machines.absent(machines.hgx_h100(), "torch", "python", "interfaces")
    case = Case(MATRIX, machines.snapshot(machines.hgx_h100()), others=[machines.snapshot(silent, "gpu002")])
    assert load_rule("nccl.version-skew").examine(case) is None
    assert load_rule("net.mtu").examine(case) is None
    assert "torch of gpu002" in case.unseen


def test_card_that_lacks_power_is_named():
    line = "mlx5_core 0000:3b:00.0: mlx5_pcie_event:301: Detected insufficient power on the PCIe slot (27W)."
    sign = ask("rdma.nic-power", machines.kernel_line(machines.hgx_h100(), line))
    assert sign.confidence == "high"
    assert sign.subjects == ("0000:3b:00.0",)


def test_crash_in_nccl_from_the_kernel_log():
    line = "python3[4242]: segfault at 18 ip 00007f1c sp 00007ffd error 4 in libnccl.so.2.18.1[7f1c38000000+9e0]"
    sign = ask("nccl.segfault", machines.kernel_line(machines.hgx_h100(), line))
    assert sign.confidence == "high"
    assert sign.seconds == 3600


def test_slots_are_read_from_the_message():
    text = "There are not enough slots available in the system to satisfy the 16\nslots that were requested"
    assert ask("mpi.slots", text=text.replace("\n", " ")).seen[1] == "16 slots were asked for"
