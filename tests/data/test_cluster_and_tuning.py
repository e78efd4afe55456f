"""What code reads out of cluster.toml and tuning.toml is there, and what they say of each other fits."""

from __future__ import annotations

import re

import pytest

from provision.generate.tuning import CONDITIONS, Situation, judge, recommend
from provision.matrix.load import Matrix
from provision.matrix.query import secure_minimums
from provision.versions import branch_of, parse

MATRIX = Matrix()
HOLES = {"rdma_devices", "cpus_per_gpu", "affinity", "bridges", "fast_interfaces"}


@pytest.mark.parametrize("row", [*MATRIX.tunings, *MATRIX.folk_settings], ids=lambda row: row.id)
def test_conditions_are_words_that_code_knows(row: object) -> None:
    assert set(row.when) <= set(CONDITIONS)  # type: ignore[attr-defined]


def test_every_condition_is_asked_for() -> None:
    used = {word for row in (*MATRIX.tunings, *MATRIX.folk_settings) for word in row.when}
    assert used == set(CONDITIONS)


@pytest.mark.parametrize("row", MATRIX.tunings, ids=lambda row: row.id)
def test_values_of_the_machine_are_those_that_code_fills_in(row: object) -> None:
    assert set(re.findall(r"\{([a-z_]+)\}", row.value)) <= HOLES  # type: ignore[attr-defined]


def test_what_nccl_is_told_is_what_it_reads() -> None:
    keys = set(MATRIX.setting("nccl.toml", "conf_keys").values)
    assert {row.name for row in MATRIX.tunings if row.kind == "nccl"} <= keys
    wrong = {row.names for row in MATRIX.folk_settings if row.verdict == "wrong"}
    named = {name for row in MATRIX.folk_settings for name in row.names if name.startswith("NCCL_")}
    assert named - keys == {"NCCL_PORT"}
    assert ("NCCL_PORT",) in wrong


def test_no_recommendation_is_refuted() -> None:
    values = {"rdma_devices": "mlx5_0", "cpus_per_gpu": "8", "affinity": "GPU0 on 0-7", "bridges": "virbr0"}
    values["fast_interfaces"] = "ens1f0"
    for nccl, torch in (("2.20.5", "2.2.0"), ("2.25.1", "2.9.1"), ("2.32.3", "2.12.0")):
        situation = Situation(
            libraries={"nccl": nccl, "torch": torch, "jax": "0.9.0", "tensorflow": "2.20.0"},
            facts=frozenset(CONDITIONS),
            values=values,
        )
        settings = [(advice.row.name, advice.value) for advice in recommend(situation, MATRIX)]
        assert len(settings) > 8
        assert [item for item in judge(settings, situation, MATRIX) if item.row is not None or item.is_refused] == []


@pytest.mark.parametrize("row", MATRIX.driver_images, ids=lambda row: row.version)
def test_a_driver_image_is_of_its_branch_and_without_a_known_fault(row: object) -> None:
    assert branch_of(row.version) == row.branch  # type: ignore[attr-defined]
    floor = secure_minimums(MATRIX).get(row.branch)  # type: ignore[attr-defined]
    assert floor is None or parse(row.version) >= parse(floor[0])  # type: ignore[attr-defined]


def test_the_plugin_is_the_one_that_its_row_names() -> None:
    plugin = MATRIX.cluster_components["device-plugin"]
    assert plugin.image is not None
    assert plugin.image.endswith(f":{plugin.version}")
