"""Which floor fits a machine, and which link of it is slow."""

from __future__ import annotations

import json

import machines
import pytest

from provision.matrix.load import Matrix
from provision.matrix.model import PerformanceFloor
from provision.matrix.query import find_floor, find_layout, find_slot_floor, gpu_ids
from provision.probe.links import describe_slow_links, pair_bandwidths, slowest_pairs, topology_of
from provision.probe.output import Output, Unreadable
from provision.probe.snapshot import Snapshot

MATRIX = Matrix()
H100 = machines.hgx_h100()


def snapshot(outputs: dict[str, Output]) -> Snapshot:
    return machines.snapshot(outputs)


class Floors:
    """Facts with other floors."""

    def __init__(self, *rows: PerformanceFloor) -> None:
        self.performance_floors = rows
        self.gpus = MATRIX.gpus


def row(id_: str, floor: float, **fields: object) -> PerformanceFloor:
    evidence = {"source": ("x",), "where": "x", "status": "stated", "confidence": "high"}
    return PerformanceFloor(id=id_, measure="allreduce", floor=floor, unit="GB/s", **evidence, **fields)


ROWS = Floors(
    row("any-pcie", 10, topology="pcie"),
    row("pcie-4", 12, topology="pcie-gen4"),
    row("h100", 440, gpu="h100-sxm5-80gb", gpus=8, topology="nvlink"),
    row("h100-any-number", 300, gpu="h100-sxm5-80gb", topology="nvlink"),
)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"gpu": "NVIDIA H100 80GB HBM3", "topology": "nvlink", "gpus": 8}, "h100"),
        ({"gpu": "NVIDIA H100 80GB HBM3", "topology": "nvlink", "gpus": 4}, "h100-any-number"),
        ({"gpu": "NVIDIA H100 PCIe", "topology": "pcie-gen5", "gpus": 8}, "any-pcie"),
        ({"gpu": "NVIDIA L40S", "topology": "pcie-gen4", "gpus": 2}, "pcie-4"),
        ({"gpu": "no such GPU", "topology": "pcie"}, "any-pcie"),
        ({"gpu": "NVIDIA A100-SXM4-80GB", "topology": "nvlink", "gpus": 8}, None),
        ({}, None),
    ],
    ids=["exact", "other-number", "pcie-card", "generation", "unknown-gpu", "no-row", "nothing-known"],
)
def test_the_closest_floor_wins(fields: dict[str, object], found: str | None) -> None:
    floor = find_floor(ROWS, "allreduce", **fields)  # type: ignore[arg-type]

    assert (floor.id if floor else None) == found


SIZED = Floors(
    row("h100-256mib", 386, gpu="h100-sxm5-80gb", gpus=8, topology="nvlink", message_bytes_min=256 << 20),
    row("h100-1gib", 440, gpu="h100-sxm5-80gb", gpus=8, topology="nvlink", message_bytes_min=1 << 30),
    row("h200-any-size", 400, gpu="h200-sxm", gpus=8, topology="nvlink"),
)


@pytest.mark.parametrize(
    ("gpu", "message_bytes", "found"),
    [
        ("H100 SXM", 64 << 20, None),
        ("H100 SXM", 256 << 20, "h100-256mib"),
        ("H100 SXM", (1 << 30) - 1, "h100-256mib"),
        ("H100 SXM", 1 << 30, "h100-1gib"),
        ("H100 SXM", 8 << 30, "h100-1gib"),
        ("H100 SXM", None, "h100-256mib"),
        ("H200 SXM", 1, "h200-any-size"),
        ("H200 SXM", None, "h200-any-size"),
    ],
)
def test_a_floor_holds_from_its_message_on(gpu: str, message_bytes: int | None, found: str | None) -> None:
    floor = find_floor(SIZED, "allreduce", gpu=gpu, topology="nvlink", gpus=8, message_bytes=message_bytes)  # type: ignore[arg-type]

    assert (floor.id if floor else None) == found


def test_a_floor_holds_from_its_edge_on() -> None:
    asked = {edge: find_floor(MATRIX, "gemm-bf16", gpu="NVIDIA H200", edge=edge) for edge in (1024, 4096, 8192, None)}

    assert {edge: floor is not None for edge, floor in asked.items()} == {
        1024: False,
        4096: True,
        8192: True,
        None: True,
    }


@pytest.mark.parametrize(
    ("generation", "lanes", "floor"),
    [(5, 16, 48), (5, 8, 24), (5, 32, 48), (5, None, 48), (4, 4, 5.25), (2, 16, None), (None, 16, None)],
)
def test_a_slot_has_its_generation_s_floor_by_its_lanes(
    generation: int | None, lanes: int | None, floor: float | None
) -> None:
    found = find_slot_floor(MATRIX, "h2d", gpu="NVIDIA H200", generation=generation, lanes=lanes)

    assert (found.floor if found else None) == floor


def test_a_floor_of_another_measure_never_fits() -> None:
    assert find_floor(ROWS, "p2p", gpu="H100", topology="nvlink", gpus=8) is None  # type: ignore[arg-type]


def test_names_of_tools_lead_to_the_boards_of_the_facts() -> None:
    assert gpu_ids(MATRIX, "NVIDIA H100 80GB HBM3") == {"h100-sxm5-80gb"}
    assert gpu_ids(MATRIX, "no such GPU") == gpu_ids(MATRIX, None) == frozenset()


def test_every_row_of_the_facts_is_of_a_gpu_that_exists() -> None:
    ids = {gpu.id for gpu in MATRIX.gpus}

    assert {floor.gpu for floor in MATRIX.performance_floors if floor.gpu} <= ids
    assert {layout.gpu for layout in MATRIX.nvlinks} <= ids


def test_a_larger_message_is_never_asked_for_less() -> None:
    kinds: dict[tuple[object, ...], list[PerformanceFloor]] = {}
    for floor in MATRIX.performance_floors:
        kinds.setdefault((floor.measure, floor.gpu, floor.gpus, floor.topology), []).append(floor)
    for rows in kinds.values():
        rows.sort(key=lambda row: row.message_bytes_min or 0)
        assert [row.floor for row in rows] == sorted(row.floor for row in rows)
        assert len({row.message_bytes_min for row in rows}) == len(rows)


def test_every_floor_of_a_collective_or_a_product_says_from_which_size_it_holds() -> None:
    for floor in MATRIX.performance_floors:
        assert (floor.message_bytes_min is not None) is (floor.measure == "allreduce")
        assert (floor.edge_min is not None) is (floor.measure == "gemm-bf16")


MEASURED = {
    # TFLOPS of a BF16 product of 8192 by the tables that the facts name, the median of three frameworks.
    "a100-sxm4-40gb": 262.5,
    "a100-sxm4-80gb": 262.5,
    "h100-sxm5-80gb": 708.1,
    "h200-sxm": 670.3,
    "b200": 1571.4,
    "b300": 1598.4,
    "gb200": 1407.4,
    "gb300": 1926.2,
    "l40s": 207.1,
    "rtx-pro-6000-server": 389.8,
}


@pytest.mark.parametrize("gpu", MEASURED)
def test_a_product_of_the_size_that_is_measured_clears_its_floor_by_a_margin(gpu: str) -> None:
    floor = find_floor(MATRIX, "gemm-bf16", gpu=gpu, edge=8192)

    assert floor is not None
    assert MEASURED[gpu] / 2 < floor.floor <= 0.86 * MEASURED[gpu]


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("NVIDIA A100-SXM4-80GB", 12),
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H200", 18),
        ("NVIDIA B200", 18),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA L40S", None),
    ],
)
def test_boards_with_links_are_told_from_cards(name: str, links: int | None) -> None:
    layout = find_layout(MATRIX, name)

    assert (layout.links if layout else None) == links


def test_topologies_of_machines() -> None:
    assert topology_of(snapshot(H100), MATRIX) == "nvlink"
    assert topology_of(snapshot(machines.l40s_pcie()), MATRIX) == "pcie-gen4"


def test_cards_that_bridges_join_all_together_count_as_linked() -> None:
    outputs = machines.change(machines.l40s_pcie(), "nvidia-smi-topology", "SYS", "NV4")

    assert topology_of(snapshot(outputs), MATRIX) == "nvlink"


def test_a_board_with_its_links_down_is_still_a_linked_board() -> None:
    outputs = machines.change(H100, "nvidia-smi-topology", "NV18", "SYS")

    assert topology_of(snapshot(outputs), MATRIX) == "nvlink"


def test_topology_is_unreadable_where_no_gpu_is_known() -> None:
    with pytest.raises(Unreadable):
        topology_of(snapshot(machines.absent(H100, "nvidia-smi-xml")), MATRIX)


def test_slow_pairs_come_slowest_first() -> None:
    pairs = {(0, 1): 100.0, (1, 0): 95.0, (0, 2): 60.0, (2, 0): 99.0, (1, 2): 40.0, (2, 1): 98.0}

    assert slowest_pairs(pairs, 10) == (((1, 2), 40.0), ((0, 2), 60.0))
    assert slowest_pairs(pairs, 99) == ()
    assert slowest_pairs({}, 10) == ()


def test_pairs_come_from_nvbandwidth_else_from_torch() -> None:
    first = pair_bandwidths(snapshot(H100))
    second = pair_bandwidths(snapshot(machines.absent(H100, "nvbandwidth")))

    assert (first[6, 7], len(first)) == (366.9, 56)
    assert second[6, 7] == 368.2


def test_pairs_nobody_measured_are_unreadable() -> None:
    with pytest.raises(Unreadable, match="nvbandwidth"):
        pair_bandwidths(snapshot(machines.absent(H100, "nvbandwidth", "torch-work", "torch-nccl")))


def test_a_sound_machine_has_no_slow_link() -> None:
    assert describe_slow_links(snapshot(H100), MATRIX) == ""


def test_many_slow_pairs_are_cut_and_counted() -> None:
    document = json.loads(H100["nvbandwidth"].text)
    matrix = document["nvbandwidth"]["testcases"][2]["bandwidth_matrix"]
    matrix[4] = ["20.0" if cell != "N/A" else cell for cell in matrix[4]]
    outputs = machines.replace_output(H100, "nvbandwidth", text=json.dumps(document))

    said = describe_slow_links(snapshot(outputs), MATRIX)

    assert said.startswith("GPU 4 to GPU 0 copies 20.0 GB/s where the median is ")
    assert said.endswith("4 more pairs are slow")
