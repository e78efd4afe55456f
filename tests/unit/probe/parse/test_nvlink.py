"""The state and the counters of NVLinks."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from provision.probe.output import Unreadable
from provision.probe.parse.nvlink import parse_nvlink_errors, parse_nvlink_status


@pytest.mark.parametrize(("machine", "links", "rate"), [("hgx_h100", 18, 26.562), ("hgx_a100", 12, 25.0)])
def test_all_links_of_a_healthy_board_are_active(machine: str, links: int, rate: float) -> None:
    states = parse_nvlink_status(machines.MACHINES[machine]()["nvlink-status"].text)
    assert [state.gpu for state in states] == list(range(8))
    assert all(state.links == dict.fromkeys(range(links), rate) for state in states)
    assert all(state.uuid is not None and state.reason is None for state in states)


def test_an_inactive_link_has_no_rate() -> None:
    outputs = machines.change(machines.hgx_h100(), "nvlink-status", "Link 7: 26.562 GB/s", "Link 7: <inactive>", 1)
    states = parse_nvlink_status(outputs["nvlink-status"].text)
    assert states[0].links[7] is None
    assert states[1].links[7] == 26.562


@pytest.mark.parametrize(
    "said",
    [
        "Device does not have or support Nvlink",
        "Nvlink queries are not supported for Devices in MIG mode",
        "NVML: Unable to retrieve NVLink information as all links are inActive",
    ],
)
def test_a_gpu_that_lists_no_links_says_why(said: str) -> None:
    (state,) = parse_nvlink_status(f"GPU 0: NVIDIA L40S (UUID: GPU-0)\n{said}\n")
    assert (state.links, state.reason) == ({}, said)


def test_an_empty_listing_gives_no_state() -> None:
    assert parse_nvlink_status("") == ()
    assert parse_nvlink_errors("") == ()


@pytest.mark.parametrize(
    ("file", "gpus"), [("gpud-nvlink-status-a100.txt", list(range(8))), ("azure-good_nvlink_status.txt", [7])]
)
def test_real_listings_of_a100_have_twelve_links(samples: Path, file: str, gpus: list[int]) -> None:
    states = parse_nvlink_status((samples / "fabric" / file).read_text(encoding="utf-8"))
    assert [state.gpu for state in states] == gpus
    assert {tuple(state.links.items()) for state in states} == {tuple((link, 25.0) for link in range(12))}


@pytest.mark.parametrize(
    "text",
    [
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "\t Link 0: 25 GB/s\n",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25\n",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: ERR!\n",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Lin",
    ],
    ids=["error", "no-gpu", "no-unit", "no-rate", "cut"],
)
def test_anything_else_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="nvidia-smi nvlink said"):
        parse_nvlink_status(text)


def test_the_counters_of_a_healthy_board_are_zero() -> None:
    counters = parse_nvlink_errors(machines.hgx_h100()["nvlink-errors"].text)
    assert len(counters) == 8
    assert counters[0].links == {link: {"replay": 0, "recovery": 0, "crc": 0} for link in range(18)}


def test_counters_of_newer_links_keep_their_names() -> None:
    text = (
        "GPU 0: NVIDIA B200 (UUID: GPU-0)\n"
        "\t Link 0: Tx packets: 123456\n"
        "\t Link 0: Malformed packet Errors: 1\n"
        "\t Link 0: Buffer overrun Errors: 0\n"
        "\t Link 0: Rx Errors: 3\n"
        "\t Link 0: Link recovery failed events: 2\n"
        "\t Link 0: Effective BER: 15e-255\n"
        "\t Link 0: Symbol Errors: N/A\n"
        "\t Link 0: FEC Errors - 1: 9\n"
        "\t Link 1: ECC Errors: 4\n"
    )
    (counters,) = parse_nvlink_errors(text)
    assert counters.links == {
        0: {"malformed_packet": 1, "buffer_overrun": 0, "rx": 3, "link_recovery_failed_events": 2, "fec_1": 9},
        1: {"ecc": 4},
    }


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: Replay Errors: Unknown Error\n",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: Replay Errors: ERR!\n",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: Replay Errors: 12",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n",
        "No devices were found\n",
    ],
    ids=["unknown", "error", "no-line-end", "status", "no-device"],
)
def test_a_counter_that_is_none_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="nvidia-smi nvlink"):
        parse_nvlink_errors(text)
