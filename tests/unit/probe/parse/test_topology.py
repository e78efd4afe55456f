"""The two tables of ``nvidia-smi topo``."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from provision.probe.output import Unreadable
from provision.probe.parse.topology import parse_topology


def test_a_board_with_switches_joins_every_pair_of_gpus() -> None:
    table = parse_topology(machines.hgx_h100()["nvidia-smi-topology"].text)
    assert table.devices == tuple([f"GPU{index}" for index in range(8)] + [f"NIC{index}" for index in range(8)])
    between = {table.links[a, b] for a in table.devices[:8] for b in table.devices[:8] if a != b}
    assert between == {"NV18"}
    assert (table.links["GPU0", "NIC0"], table.links["GPU0", "NIC1"], table.links["NIC4", "GPU0"]) == (
        "PIX",
        "NODE",
        "SYS",
    )
    assert ("GPU0", "GPU0") not in table.links
    assert table.affinity["GPU5"] == {"CPU Affinity": "56-111", "NUMA Affinity": "1", "GPU NUMA ID": "N/A"}
    assert table.affinity["NIC0"] == {}
    assert table.names["NIC7"] == "mlx5_7"


def test_the_table_of_reads_between_gpus_is_read() -> None:
    table = parse_topology(machines.hgx_a100()["nvidia-smi-p2p"].text)
    assert len(table.devices) == 8
    assert set(table.links.values()) == {"OK"}
    assert len(table.links) == 56
    broken = machines.change(machines.hgx_a100(), "nvidia-smi-p2p", " GPU1\tOK\t", " GPU1\tCNS\t")
    assert parse_topology(broken["nvidia-smi-p2p"].text).links["GPU1", "GPU0"] == "CNS"


def test_cards_named_by_their_device_are_columns_too() -> None:
    text = "\tGPU0\tmlx5_0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\tN/A\nmlx5_0\tPHB\t X \t\t\n\nLegend:\n"
    table = parse_topology(text)
    assert table.devices == ("GPU0", "mlx5_0")
    assert table.links["GPU0", "mlx5_0"] == "PHB"
    assert table.affinity["GPU0"] == {"CPU Affinity": "0-7", "NUMA Affinity": "N/A"}


@pytest.mark.parametrize("name", ["h100-80gb-hbm3__590.48.01", "l40s__595.80"])
def test_real_tables_with_escape_sequences_are_read(samples: Path, name: str) -> None:
    text = (samples / "smi-text" / f"linux-x86_64__nvidia-{name}.txt").read_text(encoding="utf-8")
    start = text.index("# $ nvidia-smi topo -m")
    section = text[text.index("\n\t", start) + 1 : text.index("\n####", text.index("Legend:", start))]
    assert "\x1b[4m" in section
    table = parse_topology(section)
    assert table.devices == ("GPU0",)
    assert table.links == {}
    assert table.affinity["GPU0"]["NUMA Affinity"] == "0"


TABLE = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no table"),
        ("No devices were found\n", "no table"),
        (TABLE.replace("\tNV12\t0-7", ""), "row of GPU0 .* is incomplete"),
        (TABLE.replace("\t X \t0-7\n", "\n"), "row of GPU1 .* is incomplete"),
        (TABLE[: TABLE.index("GPU1\tNV")], "no row of GPU1"),
        (TABLE.rstrip("\n"), "ends or repeats at GPU1"),
        (TABLE + "GPU0\t X \tSYS\t0-7\n\n", "ends or repeats at GPU0"),
        (TABLE.replace("GPU1\tCPU", "GPU0\tCPU"), "one twice"),
        (TABLE.replace("NV12\t0-7", "\t0-7"), "row of GPU0 .* is incomplete"),
        (TABLE.replace("NV12\t0-7", "nothing good\t0-7"), "row of GPU0 .* is incomplete"),
    ],
    ids=["empty", "words", "short-row", "cut-row", "missing-row", "no-line-end", "repeated", "twice", "hole", "prose"],
)
def test_an_incomplete_table_is_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_topology(text)
