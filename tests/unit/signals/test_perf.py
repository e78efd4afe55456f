"""The checks of bandwidths and rates."""

from __future__ import annotations

import json

import machines
import pytest
from asking import MATRIX, ask, of_gpu, payload, text

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
A10G = machines.cloud_a10g()
GPU3 = "GPU 3 (0000:5d:00.0)"


def copies(outputs: dict[str, Output], test: str, row: int, column: int, value: str) -> dict[str, Output]:
    document = json.loads(outputs["nvbandwidth"].text)
    (found,) = [case for case in document["nvbandwidth"]["testcases"] if case["name"] == test]
    found["bandwidth_matrix"][row][column] = value
    return text(outputs, "nvbandwidth", json.dumps(document))


def test_copies_at_the_rate_of_the_slot_pass_with_figures() -> None:
    outcome = ask("perf.h2d", H100)

    assert outcome.status == "pass"
    assert outcome.figures == {"h2d_gb_s": 55.3, "d2h_gb_s": 55.3}


def test_a_slow_copy_names_gpu_and_numbers() -> None:
    outcome = ask("perf.h2d", copies(H100, "host_to_device_memcpy_ce", 0, 3, "12.9"))

    assert (outcome.status, outcome.subjects) == ("fail", (GPU3,))
    assert outcome.seen == f"{GPU3} copies 12.9 GB/s to the GPU"
    assert outcome.expected == "48 GB/s or more on 16 lanes of PCIe 5"


def test_a_narrow_slot_is_told_beside_the_slow_copy() -> None:
    slow = copies(H100, "device_to_host_memcpy_ce", 0, 3, "26.0")
    narrow = machines.xml_gpu(slow, 3, "<current_link_width>16x", "<current_link_width>8x")

    assert ask("perf.h2d", narrow).seen == f"{GPU3} copies 26.0 GB/s from the GPU (on 8 of 16 lanes)"


def test_fewer_planned_lanes_lower_the_floor() -> None:
    slow = copies(H100, "host_to_device_memcpy_ce", 0, 3, "25.0")

    assert ask("perf.h2d", slow, pcie_width=8).status == "pass"
    assert ask("perf.h2d", slow, pcie_width=16).status == "fail"


def test_a_virtual_machine_is_told_and_not_failed() -> None:
    outcome = ask("perf.h2d", copies(A10G, "host_to_device_memcpy_ce", 0, 0, "4.0"), machine="cloud_a10g")

    assert outcome.status == "pass"
    assert "4.0 GB/s to the GPU" in outcome.seen
    assert outcome.seen.endswith("virtual machines vary")


def test_torch_measures_where_nvbandwidth_is_absent() -> None:
    outputs = of_gpu(machines.absent(H100, "nvbandwidth"), "torch-work", 3, "figures", h2d_gb_s=9.0)

    assert ask("perf.h2d", outputs).subjects == (GPU3,)


def test_copies_nobody_measured_are_unknown() -> None:
    assert ask("perf.h2d", machines.absent(H100, "nvbandwidth", "torch-work")).status == "unknown"
    assert ask("perf.h2d", machines.cpu_only(), machine="cpu_only").status == "skip"


def test_copies_of_an_unknown_slot_are_unknown() -> None:
    outputs = machines.change(
        H100, "nvidia-smi-xml", "<max_link_gen>5</max_link_gen>", "<max_link_gen>N/A</max_link_gen>"
    )

    assert "no floor is known" in ask("perf.h2d", outputs).seen


PEERS = "device_to_device_memcpy_read_ce"


def test_copies_between_gpus_pass_with_the_slowest() -> None:
    outcome = ask("perf.p2p", H100)

    assert outcome.seen == "the slowest pair, GPU 6 to GPU 7, copies 366.9 GB/s"
    assert outcome.figures == {"p2p_gb_s": 366.9}


def test_a_slow_pair_is_named() -> None:
    outcome = ask("perf.p2p", copies(H100, PEERS, 2, 5, "41.5"))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU 2 to GPU 5",))
    assert (outcome.seen, outcome.expected) == ("GPU 2 to GPU 5 copies 41.5 GB/s", "335 GB/s or more")


def test_copies_over_pcie_without_a_plan_are_not_asked() -> None:
    assert ask("perf.p2p", machines.l40s_pcie(), machine="l40s_pcie").status == "skip"


def test_copies_between_gpus_that_nobody_measured_are_unknown() -> None:
    assert ask("perf.p2p", machines.absent(H100, "nvbandwidth", "torch-work", "torch-nccl")).status == "unknown"


def test_every_gpu_at_its_rate_passes() -> None:
    assert ask("perf.gemm", H100).seen == "8 GPUs with 866 TFLOPS or more"


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (240.0, "reaches 240 TFLOPS, below the floor of 595"),
        (700.0, "reaches 700 TFLOPS, where the median of this host is 867"),
    ],
    ids=["below-the-floor", "behind-its-neighbours"],
)
def test_a_slow_gpu_is_named_with_its_rate(rate: float, said: str) -> None:
    outcome = ask("perf.gemm", of_gpu(H100, "torch-work", 3, "figures", gemm__bf16_tflops=rate))

    assert (outcome.status, outcome.subjects, outcome.seen) == ("fail", (GPU3,), f"{GPU3} {said}")
    assert outcome.figures == {"gemm_bf16_tflops": rate}


def test_a_lone_gpu_without_a_floor_is_not_asked() -> None:
    assert ask("perf.gemm", A10G, machine="cloud_a10g").status == "skip"


def test_a_rate_nobody_measured_is_unknown() -> None:
    assert ask("perf.gemm", payload(H100, "torch-work", gpus=[])).status == "unknown"
    assert ask("perf.gemm", machines.fail(H100, "torch-work", status="hung")).status == "unknown"


def bus(outputs: dict[str, Output], value: str, wrong: str = "0") -> dict[str, Output]:
    lines = outputs["nccl-tests"].text.splitlines()
    place = max(index for index, line in enumerate(lines) if line.split()[:1] == [str(8 << 30)])
    words = lines[place].split()
    words[7], words[8] = value, wrong
    lines[place] = " ".join(words)
    return text(outputs, "nccl-tests", "\n".join(lines) + "\n")


def test_an_all_reduce_passes_by_its_largest_size() -> None:
    outcome = ask("perf.nccl.node", H100)

    assert outcome.seen == "481.3 GB/s bus bandwidth at 8 GiB, 8 GPUs, no wrong value"
    assert outcome.figures == {"allreduce_bus_gb_s": 481.3}


def test_a_slow_all_reduce_says_which_pair_is_slow() -> None:
    outcome = ask("perf.nccl.node", copies(bus(H100, "212.40"), PEERS, 2, 5, "41.5"))

    assert outcome.status == "fail"
    assert outcome.seen == (
        "212.4 GB/s bus bandwidth at 8 GiB: GPU 2 to GPU 5 copies 41.5 GB/s where the median is 367.5"
    )
    assert outcome.expected == "440 GB/s or more over nvlink"


def test_a_slow_all_reduce_says_which_links_are_inactive_and_which_slots_narrow() -> None:
    outputs = machines.change(bus(H100, "212.40"), "nvlink-status", "Link 3: 26.562 GB/s", "Link 3: <inactive>", 1)
    outputs = machines.xml_gpu(outputs, 3, "<current_link_width>16x", "<current_link_width>8x")
    seen = ask("perf.nccl.node", outputs).seen

    assert "NVLink 3 of GPU 0 is inactive" in seen
    assert f"{GPU3} runs on 8 of 16 PCIe lanes" in seen


def test_a_board_whose_links_are_all_down_is_judged_by_what_it_should_do() -> None:
    outputs = machines.change(bus(H100, "18.50"), "nvidia-smi-topology", "NV18", "SYS")

    assert ask("perf.nccl.node", outputs).expected == "440 GB/s or more over nvlink"


def test_wrong_values_fail_whatever_the_rate() -> None:
    outcome = ask("perf.nccl.node", bus(H100, "481.30", "17"))

    assert (outcome.status, outcome.seen) == ("fail", "the all-reduce gave 17 wrong values")
    assert "out of use" in outcome.remedy


def test_values_nobody_checked_are_unknown() -> None:
    unchecked = text(H100, "nccl-tests", bus(H100, "481.30")["nccl-tests"].text.replace("      0", "    N/A"))
    outputs = machines.change(unchecked, "nccl-tests", "# Out of bounds values", "#")
    rows = [line for line in outputs["nccl-tests"].text.splitlines() if not line.endswith("0")]

    assert ask("perf.nccl.node", text(H100, "nccl-tests", "\n".join(rows))).status == "unknown"


def test_fewer_gpus_than_planned_fail() -> None:
    lines = [line for line in H100["nccl-tests"].text.splitlines() if "Rank  7" not in line]

    assert ask("perf.nccl.node", text(H100, "nccl-tests", "\n".join(lines))).seen == "7 of 8 GPUs took part"


def test_a_number_of_gpus_without_a_floor_is_unknown_with_what_was_measured() -> None:
    lines = [
        line for line in H100["nccl-tests"].text.splitlines() if not any(f"Rank  {rank}" in line for rank in "567")
    ]
    outcome = ask("perf.nccl.node", text(H100, "nccl-tests", "\n".join(lines)), gpus=5)

    assert outcome.status == "unknown"
    assert "481.3 GB/s" in outcome.seen
    assert "performance.toml" in outcome.remedy


def test_an_all_reduce_over_pcie_has_a_floor_of_its_own() -> None:
    two = machines.l40s_pcie()

    assert ask("perf.nccl.node", two, machine="l40s_pcie").status == "pass"
    assert ask("perf.nccl.node", bus(two, "4.20"), machine="l40s_pcie").expected == "10 GB/s or more over pcie-gen4"


def test_an_all_reduce_that_hangs_is_unknown_and_one_gpu_is_not_asked() -> None:
    assert ask("perf.nccl.node", machines.fail(H100, "nccl-tests", status="hung")).status == "unknown"
    assert ask("perf.nccl.node", A10G, machine="cloud_a10g").status == "skip"


def begun(mib: int, status: str = "hung", more: str = "", code: int | None = None) -> dict[str, Output]:
    """Return a machine whose all-reduce printed its results up to a size and then no more."""
    lines = H100["nccl-tests"].text.splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.split()[:1] and line.split()[0].isdecimal()]
    cut = "".join(lines[: next(place for place in rows if int(lines[place].split()[0]) > mib << 20)])
    return machines.replace_output(H100, "nccl-tests", text=cut + more, status=status, code=code)


def test_an_all_reduce_that_hangs_tells_how_far_it_came_and_which_link_is_down() -> None:
    # The last line breaks off where the program was ended.
    outputs = machines.change(
        begun(2048, more="   32768  81"), "nvlink-status", "Link 3: 26.562 GB/s", "Link 3: <inactive>", 1
    )
    outcome = ask("perf.nccl.node", outputs)

    assert outcome.status == "unknown"
    assert "did not answer in time; the last it told was" in outcome.seen
    assert outcome.seen.endswith("at 2 GiB: NVLink 3 of GPU 0 is inactive")


def test_wrong_values_before_a_hang_fail() -> None:
    wrong = bus(H100, "481.30", "17")
    text = wrong["nccl-tests"].text.partition("# Out of bounds")[0]

    outcome = ask("perf.nccl.node", machines.replace_output(wrong, "nccl-tests", text=text, status="hung", code=None))
    assert (outcome.status, outcome.seen) == ("fail", "the all-reduce gave 17 wrong values")


@pytest.mark.parametrize(
    "complaint",
    ["node1: Test timeout (600s) common.cu:523", "node1: Test NCCL failure common.cu:958 'unhandled cuda error'"],
    ids=["timeout", "nccl"],
)
def test_a_run_that_gives_up_says_why_and_how_far_it_came(complaint: str) -> None:
    outcome = ask("perf.nccl.node", begun(2048, "failed", f"{complaint}\n .. node1: Test failure common.cu:401\n", 3))

    assert outcome.status == "unknown"
    assert outcome.seen.startswith(f"{complaint}; the last it told was ")


@pytest.mark.parametrize(
    ("status", "error", "seen"),
    [
        ("hung", "building nccl-tests from /src did not end within 3 seconds", ""),
        ("not-run", "one GPU has nobody to talk to", ""),
        ("absent", "all_reduce_perf is neither on the PATH nor in a usual place", ""),
        ("failed", "nccl-tests could not be built from /src: x.cu(7): error", "ended with 2: "),
    ],
    ids=["build-hangs", "not-run", "absent", "build-fails"],
)
def test_a_run_that_did_not_begin_says_why(status: str, error: str, seen: str) -> None:
    code = 2 if status == "failed" else None
    outputs = machines.replace_output(H100, "nccl-tests", text="", error=f"{error}\n", status=status, code=code)
    outcome = ask("perf.nccl.node", outputs)

    assert outcome.status == "unknown"
    assert outcome.seen.endswith(f"{seen}{error}")


def test_a_slow_all_reduce_of_small_sizes_proves_nothing() -> None:
    small = begun(128, "ok", "# Out of bounds values : 0 OK\n", 0)
    outcome = ask("perf.nccl.node", small)

    assert outcome.status == "unknown"
    assert outcome.seen.endswith("350.0 GB/s bus bandwidth at 128 MiB; the floor of 386 GB/s holds from 256 MiB on")


def test_an_all_reduce_is_judged_by_the_floor_of_its_size() -> None:
    whole = begun(256, "ok", "# Out of bounds values : 0 OK\n", 0)
    slow = machines.change(whole, "nccl-tests", "405.31", "300.31")

    assert ask("perf.nccl.node", whole).status == "pass"
    assert ask("perf.nccl.node", slow).expected == "386 GB/s or more over nvlink"


def test_a_small_all_reduce_that_reaches_the_floor_of_larger_ones_passes() -> None:
    two = machines.l40s_pcie()
    lines = two["nccl-tests"].text.splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.split()[:1] and line.split()[0].isdecimal()]
    last = next(place for place in rows if int(lines[place].split()[0]) == 512 << 20)
    kept = "".join([*lines[: last + 1], *lines[rows[-1] + 1 :]])

    assert ask("perf.nccl.node", text(two, "nccl-tests", kept), machine="l40s_pcie").status == "pass"


def test_parts_of_divided_gpus_are_not_measured_together() -> None:
    outputs = machines.xml_gpu(H100, 0, "<current_mig>Disabled", "<current_mig>Enabled")

    assert [ask(check, outputs).status for check in ("perf.nccl.node", "perf.p2p")] == ["skip", "skip"]


def test_a_gpu_whose_pairs_are_all_slow_is_named_itself() -> None:
    outputs = H100
    for other in (0, 1, 2, 4, 5, 6, 7):
        outputs = copies(copies(outputs, PEERS, 3, other, "180.0"), PEERS, other, 3, "175.5")
    outcome = ask("perf.p2p", outputs)

    assert outcome.seen == f"{GPU3} copies 175.5 to 180.0 GB/s from or to 7 other GPUs"
    assert outcome.subjects == (GPU3,)


def test_a_slow_pair_is_told_with_the_links_that_are_down_and_the_slots_that_are_narrow() -> None:
    outputs = machines.change(
        copies(H100, PEERS, 2, 5, "41.5"), "nvlink-status", "Link 3: 26.562 GB/s", "Link 3: <inactive>", 1
    )
    outputs = machines.xml_gpu(outputs, 3, "<current_link_width>16x", "<current_link_width>8x")

    assert ask("perf.p2p", outputs).seen == (
        f"GPU 2 to GPU 5 copies 41.5 GB/s: NVLink 3 of GPU 0 is inactive, {GPU3} runs on 8 of 16 PCIe lanes"
    )


def test_a_pair_that_is_slow_both_ways_is_two_pairs_and_no_gpu() -> None:
    outcome = ask("perf.p2p", copies(copies(H100, PEERS, 2, 5, "41.5"), PEERS, 5, 2, "40.0"))

    assert outcome.subjects == ("GPU 5 to GPU 2", "GPU 2 to GPU 5")


def paired(rate: float, said: str = "ok") -> dict[str, Output]:
    return payload(H100, "nccl-pair", figures={"busbw_gb_s": rate}, together={"allreduce": said})


def test_a_host_behind_the_fleet_fails_with_both_numbers() -> None:
    outcomes = compare("perf.nccl.pair", {"a": paired(370), "b": paired(372), "c": paired(190)})

    assert [outcome.status for outcome in outcomes.values()] == ["pass", "pass", "fail"]
    assert outcomes["c"].seen == "190.0 GB/s with its partner, where the median of 3 hosts is 370.0"


def test_pairs_without_a_sum_fail_or_are_unknown() -> None:
    outcomes = compare(
        "perf.nccl.pair",
        {
            "wrong": paired(370, "failed: wrong sum"),
            "error": payload(H100, "nccl-pair", error="no route"),
            "hung": machines.fail(H100, "nccl-pair", status="hung"),
            "alone": paired(370),
            "unpaired": {name: output for name, output in H100.items() if name != "nccl-pair"},
        },
    )

    statuses = {name: outcome.status for name, outcome in outcomes.items()}
    assert statuses == {"wrong": "fail", "error": "fail", "hung": "unknown", "alone": "unknown", "unpaired": "skip"}
    assert "no route" in outcomes["error"].seen


def test_the_payloads_own_name_of_the_figure_is_read() -> None:
    other = payload(H100, "nccl-pair", figures={"allreduce_bus_gb_s": 190.0})
    outcomes = compare("perf.nccl.pair", {"a": paired(370), "b": paired(372), "c": other})

    assert outcomes["c"].figures == {"pair_bus_gb_s": 190.0}


def test_parts_of_a_divided_gpu_have_no_rate_of_their_own() -> None:
    outputs = machines.xml_gpu(H100, 0, "<current_mig>Disabled", "<current_mig>Enabled")

    assert ask("perf.gemm", outputs).status == "skip"


def test_a_pair_that_says_nothing_is_unknown() -> None:
    silent = payload(H100, "nccl-pair", figures={}, together={})

    assert compare("perf.nccl.pair", {"a": paired(370), "b": silent})["b"].status == "unknown"


def test_gpus_that_cannot_copy_to_each_other_are_not_asked() -> None:
    outputs = machines.absent(H100, "nvbandwidth", "torch-work", "torch-nccl")

    assert ask("perf.p2p", machines.change(outputs, "nvidia-smi-p2p", "OK\t", "CNS\t")).status == "skip"


def test_pairs_of_a_board_without_a_floor_are_compared_only_with_each_other() -> None:
    b200 = machines.change(H100, "nvidia-smi-xml", "NVIDIA H100 80GB HBM3", "NVIDIA B200")

    assert ask("perf.p2p", b200).status == "skip"
    assert ask("perf.p2p", copies(b200, PEERS, 2, 5, "41.5")).expected == "every pair as fast as the others"
