"""The checks of the links between GPUs."""

from __future__ import annotations

import machines
import pytest
from asking import ask, text

from provision.probe.output import Output

LINK3 = "Link 3: 26.562 GB/s"
H100 = machines.hgx_h100()


def test_a_whole_board_passes_with_what_it_has() -> None:
    assert ask("nvlink.active", H100).seen == "each GPU has 18 links of 26.562 GB/s"


def test_an_inactive_link_is_named_with_its_gpu() -> None:
    outcome = ask("nvlink.active", machines.change(H100, "nvlink-status", LINK3, "Link 3: <inactive>", 1))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU 0 (0000:18:00.0)",))
    assert outcome.seen == "GPU 0 (0000:18:00.0) has 17 of 18 NVLinks (inactive: 3)"
    assert outcome.expected == "18 links of 25 GB/s"


def test_a_slow_link_fails() -> None:
    outcome = ask("nvlink.active", machines.change(H100, "nvlink-status", LINK3, "Link 3: 12.5 GB/s", 1))

    assert outcome.status == "fail"
    assert "1 NVLinks at 12.5 of 25 GB/s" in outcome.seen


def test_no_link_at_all_is_a_fault_of_a_board_built_with_them() -> None:
    outcome = ask("nvlink.active", text(H100, "nvlink-status", ""))

    assert outcome.status == "fail"
    assert len(outcome.subjects) == 8


def test_cards_without_links_are_not_asked() -> None:
    assert ask("nvlink.active", machines.l40s_pcie(), machine="l40s_pcie").status == "skip"
    assert ask("nvlink.errors", machines.l40s_pcie(), machine="l40s_pcie").status == "skip"


def test_silence_of_the_tool_is_unknown() -> None:
    outcome = ask("nvlink.active", machines.fail(H100, "nvlink-status", status="hung"))

    assert (outcome.status, outcome.seen) == ("unknown", "nvidia-smi nvlink -s did not answer in time")


ONCE = machines.replace_output(H100, "nvlink-errors-later", status="not-run", text="")
"""The counters read once, as the quick level does."""


@pytest.mark.parametrize("counter", ["Replay", "Recovery"])
def test_one_error_that_should_never_be_fails(counter: str) -> None:
    outputs = machines.change(ONCE, "nvlink-errors", f"Link 5: {counter} Errors: 0", f"Link 5: {counter} Errors: 2", 1)
    outcome = ask("nvlink.errors", outputs)

    assert outcome.status == "fail"
    assert outcome.seen == f"GPU 0 (0000:18:00.0) link 5: 2 {counter.lower()} errors"


def test_checksum_errors_alone_are_repaired_by_the_link() -> None:
    outputs = machines.change(ONCE, "nvlink-errors", "Link 5: CRC Errors: 0", "Link 5: CRC Errors: 7", 1)

    assert ask("nvlink.errors", outputs).status == "pass"


def test_links_without_a_bridge_are_no_fault_and_half_a_bridge_is() -> None:
    def bridged(*said: str) -> dict[str, Output]:
        links = "".join(f"\t Link {number}: {word}\n" for number, word in enumerate(said))
        listing = "".join(f"GPU {gpu}: NVIDIA RTX A6000 (UUID: GPU-{gpu})\n{links}" for gpu in range(2))
        return text(machines.l40s_pcie(), "nvlink-status", listing)

    none = ask("nvlink.active", bridged("<inactive>", "<inactive>"), machine="l40s_pcie")
    half = ask("nvlink.active", bridged("14.062 GB/s", "<inactive>"), machine="l40s_pcie")
    whole = ask("nvlink.active", bridged("14.062 GB/s", "14.062 GB/s"), machine="l40s_pcie")

    assert none.status == "skip"
    assert half.subjects == ("GPU 0 (0000:2a:00.0)", "GPU 1 (0000:ab:00.0)")
    assert "has 1 of 2 NVLinks (inactive: 1)" in half.seen
    assert whole.seen == "each GPU has 2 links of 14.062 GB/s"


def test_counters_of_other_kinds_only_are_not_judged() -> None:
    lines = [
        line for line in ONCE["nvlink-errors"].text.splitlines() if "Replay" not in line and "Recovery" not in line
    ]

    assert ask("nvlink.errors", text(ONCE, "nvlink-errors", "\n".join(lines) + "\n")).status == "skip"


def test_a_list_without_gpus_is_unknown() -> None:
    xml = ONCE["nvidia-smi-xml"].text
    empty = text(ONCE, "nvidia-smi-xml", xml[: xml.index("<gpu id=")] + "</nvidia_smi_log>\n")

    assert ask("nvlink.active", empty).status == "unknown"
    assert ask("fabric.imex", empty).status == "unknown"


def test_no_counters_at_all_are_unknown_on_a_board_built_with_links() -> None:
    outcome = ask("nvlink.errors", text(ONCE, "nvlink-errors", ""))

    assert outcome.status == "unknown"
    assert "GPU 0 (0000:18:00.0)" in outcome.seen
    assert "GPU 7 (0000:db:00.0)" in outcome.seen


def test_counters_of_half_the_gpus_are_no_answer_for_all() -> None:
    listing = ONCE["nvlink-errors"].text
    half = text(ONCE, "nvlink-errors", listing[: listing.index("GPU 4:")])
    outcome = ask("nvlink.errors", half)

    assert outcome.status == "unknown"
    assert "GPU 4 (0000:9a:00.0)" in outcome.seen
    assert "GPU 3 " not in outcome.seen
    faulty = machines.change(half, "nvlink-errors", "Link 5: Replay Errors: 0", "Link 5: Replay Errors: 2", 1)
    assert ask("nvlink.errors", faulty).status == "fail"


def test_gpus_that_mig_divides_count_no_errors() -> None:
    divided = machines.xml_gpu(ONCE, 7, "<current_mig>Disabled<", "<current_mig>Enabled<")
    listing = ONCE["nvlink-errors"].text
    assert ask("nvlink.errors", text(divided, "nvlink-errors", listing[: listing.index("GPU 7:")])).status == "pass"


def test_counters_without_a_list_of_gpus_are_unknown() -> None:
    assert ask("nvlink.errors", machines.fail(ONCE, "nvidia-smi-xml", status="hung")).status == "unknown"


@pytest.mark.parametrize(
    ("later", "status", "seen"),
    [
        pytest.param(2, "pass", "2 replays and recoveries since the driver was loaded", id="old"),
        pytest.param(5, "fail", "link 5: 3 replay errors", id="rising"),
    ],
)
def test_counters_are_judged_by_what_they_rise(later, status, seen) -> None:
    outputs = H100
    for probe, count in (("nvlink-errors", 2), ("nvlink-errors-later", later)):
        outputs = machines.change(outputs, probe, "Link 5: Replay Errors: 0", f"Link 5: Replay Errors: {count}", 1)
    outcome = ask("nvlink.errors", outputs)
    assert outcome.status == status
    assert seen in outcome.seen


def test_counters_read_once_are_told_as_old() -> None:
    outputs = machines.change(ONCE, "nvlink-errors", "Link 5: Replay Errors: 0", "Link 5: Replay Errors: 2", 1)
    outcome = ask("nvlink.errors", outputs)
    assert (outcome.status, "--level standard" in outcome.remedy) == ("fail", True)


def test_second_reading_without_traffic_says_nothing() -> None:
    outputs = machines.absent(H100, "torch-nccl", "nvbandwidth", "nccl-tests")
    for probe in ("nvlink-errors", "nvlink-errors-later"):
        outputs = machines.change(outputs, probe, "Link 5: Replay Errors: 0", "Link 5: Replay Errors: 2", 1)
    assert ask("nvlink.errors", outputs).status == "fail"


def test_counters_that_were_reset_in_between_are_unknown() -> None:
    outputs = machines.change(H100, "nvlink-errors", "Link 5: Replay Errors: 0", "Link 5: Replay Errors: 2", 1)
    assert ask("nvlink.errors", outputs).status == "unknown"
