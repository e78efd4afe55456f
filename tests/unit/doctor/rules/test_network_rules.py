"""Rules about NCCL and the network: logs of a job, the state of ports, and hosts compared with each other."""

from __future__ import annotations

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose, rule_of
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()


def ask(name: str, outputs=None, text: str = "", others=()) -> Sign | None:
    host = machines.snapshot(outputs) if outputs is not None else None
    more = [machines.snapshot(other, target) for target, other in others]
    return rule_of(MATRIX.diagnoses[name]).examine(
        Case(MATRIX, host, texts=[("pasted", text)] if text else (), others=more)
    )


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
    assert "gpu002 does not answer on port 50000" in sign.seen


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
    assert rule_of(MATRIX.diagnoses["nccl.version-skew"]).examine(case) is None
    assert rule_of(MATRIX.diagnoses["net.mtu"]).examine(case) is None
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


def test_slots_are_read_from_the_message() -> None:
    text = "There are not enough slots available in the system to satisfy the 16 slots that were requested"
    (finding,) = diagnose(Case(MATRIX, texts=[("pasted", text)])).causes
    assert finding.diagnosis.id == "mpi.slots"
    assert "16 in all" in finding.fix[0]


# An all-reduce that is too slow


RUN = """# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  8589934592    2147483648     float     sum      -1 {time} {alg:.2f} {bus:.2f} 0 {time} {alg:.2f} {bus:.2f} 0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {bus:.3f}
#
"""


def pasted_run(bus_gb_s: float, name: str = "NVIDIA H100 80GB HBM3") -> str:
    devices = "\n".join(
        f"#  Rank  {index} Group  0 Pid   4242 on     gpu001 device  {index} [0000:{index + 16:02x}:00] {name}"
        for index in range(8)
    )
    alg = bus_gb_s / 1.75
    return RUN.format(devices=devices, time=round(8.6e6 / alg), alg=alg, bus=bus_gb_s)


def slow_machine(bus_gb_s: float = 42.0, machine=machines.hgx_h100):
    return machines.replace_output(machine(), "nccl-tests", text=pasted_run(bus_gb_s))


@pytest.mark.parametrize(("bus_gb_s", "is_slow"), [(42.0, True), (481.0, False)], ids=["slow", "sound"])
def test_pasted_run_is_judged_by_the_gpus_that_it_names(bus_gb_s, is_slow):
    sign = ask("nccl.slow", text=pasted_run(bus_gb_s))
    assert (sign is not None) is is_slow
    if sign is not None:
        assert sign.confidence == "medium"
        assert "42.0 GB/s" in sign.seen[0]


def test_pasted_run_of_an_unknown_gpu_over_pcie_is_judged_by_the_floor_of_pcie():
    floor = next(row for row in MATRIX.performance_floors if row.id == "allreduce-pcie").floor
    assert ask("nccl.slow", text=pasted_run(floor / 2, "Some GPU")).confidence == "medium"
    assert ask("nccl.slow", text=pasted_run(floor * 2, "Some GPU")) is None


def test_pasted_run_is_judged_by_the_floor_of_its_size():
    run = pasted_run(350.0)
    small = run.replace("8589934592", "134217728").replace("2147483648", "33554432")
    assert "440 are the least" in ask("nccl.slow", text=run).seen[0]
    assert "386 are the least" in ask("nccl.slow", text=small.replace("134217728", "268435456")).seen[0]
    assert ask("nccl.slow", text=small) is None


def test_other_collectives_are_not_judged_by_the_floor_of_the_all_reduce():
    assert ask("nccl.slow", text=pasted_run(42.0).replace("all_reduce_perf", "broadcast_perf")) is None


def test_own_slow_run_is_proof_and_says_when_nothing_stands_out():
    sign = ask("nccl.slow", slow_machine())
    assert sign.confidence == "high"
    assert "no single link stands out" in sign.seen


@pytest.mark.parametrize(
    ("probe", "old", "new", "seen"),
    [
        ("nvlink-status", "Link 4: 26.562 GB/s", "Link 4: <inactive>", "NVLink 4 of GPU 0 is inactive"),
        ("nvidia-smi-topology", "NV18", "SYS", "reach each other by SYS, not NVLink"),
        ("lspci", "SrcValid-", "SrcValid+", "access control redirects at"),
        ("command-line", "iommu=pt", "amd_iommu=on", "amd_iommu=on, so the IOMMU translates"),
        ("environment", "PATH=", "NCCL_P2P_DISABLE=1\nPATH=", "NCCL_P2P_DISABLE is set to 1"),
        ("nvidia-smi-p2p", "OK", "NS", "may not read the memory of"),
        (
            "nvidia-smi-xml",
            "<current_link_width>16x</current_link_width>",
            "<current_link_width>4x</current_link_width>",
            "runs on 4 of 16 PCIe lanes",
        ),
    ],
    ids=["link", "topology", "acs", "iommu", "setting", "access", "width"],
)
def test_likely_link_is_named(probe, old, new, seen):
    sign = ask("nccl.slow", machines.change(slow_machine(), probe, old, new, 1))
    assert any(seen in one for one in sign.seen), sign.seen


@pytest.mark.parametrize(
    ("line", "kind", "machine", "is_found"),
    [
        ("intel_iommu=on", "none", "hgx_h100", True),
        ("amd_iommu=force_enable", "none", "l40s_pcie", True),
        ("intel_iommu=on iommu=pt", "none", "hgx_h100", False),
        ("intel_iommu=on,sm_on", "kvm", "hgx_h100", False),
        ("intel_iommu=on", "none", "workstation_rtx4090", False),
        ("quiet", "none", "hgx_h100", False),
    ],
    ids=["intel", "amd", "passing", "virtual", "one-gpu", "none"],
)
def test_address_translation_counts_on_bare_metal_with_several_gpus(line, kind, machine, is_found):
    outputs = machines.change(machines.MACHINES[machine](), "command-line", "iommu=pt", line)
    outputs = machines.change(outputs, "virtualization", "kind=none", f"kind={kind}")
    sign = ask("nccl.iommu", outputs)
    assert (sign.confidence if sign else None) == ("medium" if is_found else None)


def test_address_translation_is_proved_by_a_slow_run():
    sign = ask("nccl.iommu", machines.change(slow_machine(), "command-line", "iommu=pt", "intel_iommu=on"))
    assert sign.confidence == "high"
    assert any("42.0 of" in one for one in sign.seen)


@pytest.mark.parametrize(("address", "is_found"), [("5d:00.0", True), ("00:1d.0", False)], ids=["gpu", "other"])
def test_fault_of_the_iommu_counts_for_gpus_only(address, is_found):
    text = f"DMAR: [DMA Write NO_PASID] Request device [{address}] fault addr 0xf7a00000 [fault reason 0x05]"
    assert (ask("nccl.iommu", machines.hgx_h100(), text) is not None) is is_found


def test_parameters_that_pass_addresses_through_are_fine_in_text():
    assert ask("nccl.iommu", text="Kernel command line: ro intel_iommu=on iommu=pt") is None


def test_pairs_on_pcie_that_cannot_read_each_other_count_beside_a_slow_run():
    outputs = machines.replace_output(
        machines.l40s_pcie(), "nccl-tests", text=pasted_run(1.0, "NVIDIA L40S").replace("nGpus 8", "nGpus 2")
    )
    outputs = machines.change(outputs, "nvidia-smi-p2p", "OK", "CNS")
    sign = ask("nccl.no-p2p", outputs)
    assert sign.confidence == "medium"
    assert "CNS" in sign.seen[0]
    assert ask("nccl.no-p2p", machines.change(machines.l40s_pcie(), "nvidia-smi-p2p", "OK", "CNS")) is None


def test_peer_access_that_the_environment_forbids():
    sign = ask("nccl.no-p2p", environment(machines.hgx_h100(), "NCCL_P2P_DISABLE=1"))
    assert sign.confidence == "medium"
    assert ask("nccl.no-p2p", environment(machines.cloud_a10g(), "NCCL_P2P_DISABLE=1")) is None


def wrong_run(outputs):
    return machines.change(outputs, "nccl-tests", "# Out of bounds values : 0 OK", "# Out of bounds values : 7 FAILED")


def test_wrong_values_are_access_control_only_where_bridges_redirect():
    wrong = wrong_run(machines.hgx_h100())
    assert ask("nccl.acs", wrong) is None
    assert ask("nccl.acs", machines.change(wrong, "lspci", "SrcValid-", "SrcValid+", 1)).confidence == "high"
    unknown = machines.absent(wrong, "lspci")
    assert ask("nccl.acs", unknown).confidence == "low"
    assert "the all-reduce gave 7 wrong values" in ask("gpu.failed-test", wrong).seen


# RDMA: rates and the way to GPU memory


def all_ports(outputs, rate: str):
    return machines.change(outputs, "infiniband", "400 Gb/sec (4X NDR)", rate)


def test_ports_that_are_all_slower_than_such_machines_have():
    sign = ask("rdma.port", all_ports(machines.hgx_h100(), "200 Gb/sec (4X HDR)"))
    assert sign.confidence == "medium"
    assert len(sign.subjects) == 8
    assert "and 5 more run at 200 Gbit/s or less, and machines with these GPUs have 400" in sign.seen[0]


def test_slower_ports_beside_fast_ones_may_serve_storage():
    outputs = machines.hgx_h100()
    for index in (0, 1, 2, 3):
        outputs = machines.change(
            outputs,
            "infiniband",
            f"mlx5_{index} 1 rate 400 Gb/sec (4X NDR)",
            f"mlx5_{index} 1 rate 200 Gb/sec (4X HDR)",
        )
    assert ask("rdma.port", outputs) is None


def test_ports_over_ethernet_have_no_usual_rate():
    outputs = machines.change(machines.hgx_h100(), "infiniband", "link_layer InfiniBand", "link_layer Ethernet")
    assert ask("rdma.port", all_ports(outputs, "200 Gb/sec (4X HDR)")) is None


def without_peermem(outputs):
    return machines.change(outputs, "modules", "nvidia_peermem 16384", "another 16384")


@pytest.mark.parametrize(
    ("machine", "is_found"), [("hgx_a100", True), ("hgx_h100", False)], ids=["proprietary", "open-on-a-new-kernel"]
)
def test_adapters_without_a_way_to_gpu_memory(machine, is_found):
    sign = ask("nccl.no-rdma", without_peermem(machines.MACHINES[machine]()))
    assert (sign is not None) is is_found
    if sign is not None:
        assert sign.fix == ("Load GPUDirect's module: `modprobe nvidia_peermem`.",)
        assert "the driver's modules are not the open ones" in sign.seen[0]


def test_old_kernel_has_no_shared_buffers():
    old = machines.change(without_peermem(machines.hgx_h100()), "uname", "6.8.0-87-generic", "5.4.0-216-generic")
    assert "the kernel is too old for DMA-BUF" in ask("nccl.no-rdma", old).seen[0]


def test_firewall_that_accepts_one_port_only_on_a_host_with_rdma():
    shut = machines.change(machines.hgx_h100(), "firewall", "\t\tip saddr 10.20.0.0/24 accept\n", "")
    sign = ask("nccl.firewall", shut)
    assert sign.confidence == "medium"
    assert "accepts only port 22" in sign.seen[-1]
    assert ask("nccl.firewall", machines.replace_output(shut, "infiniband", text="")) is None
    ranged = machines.change(shut, "firewall", "tcp dport 22 accept", "tcp dport 50000-51000 accept")
    assert ask("nccl.firewall", ranged) is None


def test_pair_that_copies_slowly_is_seen_where_nvlink_joins_all_alike():
    def slow(outputs):
        text = outputs["nvbandwidth"].text.replace("368.00", "36.50", 1).replace("367.90", "36.40", 1)
        assert text != outputs["nvbandwidth"].text
        return machines.replace_output(outputs, "nvbandwidth", text=text)

    sign = ask("nccl.slow", slow(machines.hgx_h100()))
    assert sign.confidence == "medium"
    assert "where the median is" in sign.seen[0]


REMOTE = (
    "DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "Last error:\n"
)


def test_lost_connection_names_the_peer_that_closed_it():
    text = f"{REMOTE}socketProgressOpt: Call to recv from 10.20.0.7<33759> failed : Connection reset by peer"
    sign = ask("nccl.remote-error", text=text)
    assert "peer 10.20.0.7 closed the connection, as a rank does that ends" in sign.seen
    assert any("the logs of all ranks" in gap for gap in sign.unseen)


def test_lost_connection_after_a_rank_was_killed_is_settled_by_that():
    ended = "  exitcode  : -9 (pid: 4242)\n  traceback : Signal 9 (SIGKILL) received by PID 4242\n"
    sign = ask("nccl.remote-error", text=f"{REMOTE}{ended}")
    assert any("ended by a signal" in clause and "exitcode" in clause for clause in sign.seen)
    assert sign.unseen == ()
    # The launcher ends the other ranks with this one: it says nothing of the first.
    stopped = ask("nccl.remote-error", text=f"{REMOTE}  traceback : Signal 15 (SIGTERM) received by PID 4243\n")
    assert not any("ended by a signal" in clause for clause in stopped.seen)


def test_transfer_that_the_network_failed_is_no_peer_that_ended():
    failed = "NET/OFI Request 0x7f14cc completed with error. RC: 113. Error: 2 (UNDELIVERABLE)"
    closed = "NCCL WARN Net : Connection closed by remote peer gpu002<47861>"
    sign = ask("nccl.remote-error", text=f"{REMOTE}{failed}\n{closed}\n")
    assert any("the network failed a transfer" in clause for clause in sign.seen)
    assert not any("gpu002" in clause for clause in sign.seen)


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (
            "rdma.roce",
            "NET/IB : Got completion from peer 10.20.0.7<39122> with status=12 opcode=0 len=0 vendor err 129",
        ),
        ("nccl.segfault", "Fatal signal 11 in /opt/lib/libnccl.so.2"),
        ("cuda.out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("cuda.illegal-access", "CUDA error: an illegal memory access was encountered"),
    ],
)
def test_lost_connection_stands_below_what_ended_the_rank(cause, line):
    report = diagnose(Case(MATRIX, texts=[("pasted", f"{line}\n{REMOTE}")]))
    assert [finding.diagnosis.id for finding in report.causes] == [cause]
    assert [finding.diagnosis.id for finding in report.causes[0].consequences] == ["nccl.remote-error"]


def test_process_that_exited_elsewhere_is_not_nccl():
    assert ask("nccl.remote-error", text="ssh: Connection closed by remote host\nremote process exited") is None
