"""Preflight: an environment without code for a node's GPU is refused, by what the lock says of both."""

from __future__ import annotations

import copy
from typing import Any

import playbook_files
import pytest
import yaml

gpu_code = playbook_files.load_filters("gpu_code")

Document = dict[str, Any]
LOCK: Document = yaml.safe_load(
    (playbook_files.PLAYBOOKS / "group_vars/all/provision_lock.yml").read_text(encoding="utf-8")
)["provision_lock"]
"""The committed lock: its torch begins with compute capability 7.5."""

A100, H100, T4, V100, V100_UNLISTED = "20b2", "2330", "1eb8", "1db1", "1df5"


def environments(lock: Document) -> list[Document]:
    found: list[Document] = lock["profiles"]["debian12"]["frameworks"]["environments"]
    return found


def judge(*devices: str, lock: Document = LOCK) -> Document:
    return gpu_code.judge_code([{"device": device} for device in devices], lock, environments(lock))


def with_build(**changes: Any) -> Document:
    lock = copy.deepcopy(LOCK)
    environments(lock)[0]["builds"][0].update(changes)
    return lock


@pytest.mark.parametrize("devices", [(), (T4,), (A100,), (H100,), (T4, A100, H100), ("20B2",)])
def test_gpus_that_the_build_has_code_for_pass_in_silence(devices: tuple[str, ...]) -> None:
    assert judge(*devices) == {"problems": [], "notes": []}


def test_a_v100_is_refused_with_everything_one_must_know() -> None:
    (problem,) = judge(V100)["problems"]
    build = environments(LOCK)[0]["builds"][0]
    for words in (
        "Tesla V100 SXM2 16GB of this node (compute capability 7.0)",
        f"torch {build['version']} ({build['variant']}) in environment `torch`",
        f"built for {' '.join(build['code'])}. ",
        "`provision node lock --gpu v100-sxm2-16gb --torch 2.14 --driver 580`",
        "gpu_frameworks_enabled: false",
    ):
        assert words in problem


def test_a_gpu_that_the_facts_do_not_list_is_judged_by_its_architecture() -> None:
    (problem,) = judge(V100_UNLISTED)["problems"]
    assert "Volta GPU of PCI id 10de:1df5 of this node (compute capability 7.0)" in problem
    assert "--gpu sm_70 " in problem


def test_several_gpus_of_a_kind_are_one_problem_and_the_way_out_serves_them_all() -> None:
    (problem,) = judge(V100, A100, V100)["problems"]
    assert "2 × Tesla V100 SXM2 16GB" in problem
    assert "--gpu v100-sxm2-16gb --gpu a100-sxm4-80gb " in problem


def test_an_unknown_gpu_is_told_and_not_refused() -> None:
    found = judge("0001")
    assert found["problems"] == []
    (note,) = found["notes"]
    assert "10de:0001" in note
    assert "not known" in note


def test_an_architecture_of_which_some_gpus_run_is_told_and_not_refused() -> None:
    capabilities = LOCK["compute_capabilities"]["Blackwell"]
    assert len(capabilities) > 1
    lock = with_build(runs_on=capabilities[:1], lacks=capabilities[1:])
    unlisted = "29fe"
    found = judge(unlisted, lock=lock)
    assert found["problems"] == []
    assert "Blackwell GPU" in found["notes"][0]


def test_a_listed_gpu_is_judged_by_its_own_capability() -> None:
    lock = with_build(runs_on=["10.0"], lacks=["10.3", "12.0"])
    assert judge("2901", lock=lock)["problems"] == []
    assert "B300" in judge("3182", lock=lock)["problems"][0]


def test_a_capability_that_the_lock_leaves_open_is_told_and_not_refused() -> None:
    found = judge(V100, lock=with_build(lacks=[]))
    assert found["problems"] == []
    assert "V100" in found["notes"][0]


def test_a_lock_from_before_is_let_pass_and_told_of() -> None:
    lock = copy.deepcopy(LOCK)
    del lock["gpus"], lock["compute_capabilities"]
    for environment in environments(lock):
        del environment["builds"]
    found = judge(V100, lock=lock)
    assert found["problems"] == []
    assert "torch" in found["notes"][0]
    assert "provision node lock" in found["notes"][0]


def test_a_build_known_by_its_minimum_names_that() -> None:
    lock = with_build(code=[], minimum="7.5")
    assert "built for compute capability 7.5 and newer" in judge(V100, lock=lock)["problems"][0]


def test_ptx_that_the_driver_cannot_compile_is_named_with_the_branch_that_can() -> None:
    lock = with_build(code=["sm_80", "compute_90"], ptx_driver_branch=555, runs_on=["8.0"], lacks=["9.0"])
    assert (
        "sm_80 compute_90, and driver branch 555 is the first that compiles compute_90"
        in (judge(H100, lock=lock)["problems"][0])
    )


def test_a_build_asked_for_by_name_does_not_stand_in_the_way_out() -> None:
    lock = copy.deepcopy(LOCK)
    lock["request"].update(torch="2.14.1+cu130", cuda="13.0")
    (problem,) = judge(V100, lock=lock)["problems"]
    assert "--torch 2.14.1 " in problem
    assert "--cuda" not in problem


def test_environments_of_somebodys_own_are_not_judged() -> None:
    found = gpu_code.judge_code([{"device": V100}], LOCK, [{"name": "mine", "requirements": ""}, "text"])
    assert found["problems"] == []
    assert "mine" in found["notes"][0]


def test_a_lock_whose_build_serves_none_of_its_own_gpus_contradicts_itself() -> None:
    gpu_lock = playbook_files.load_filters("gpu_lock")
    lock = copy.deepcopy(LOCK)
    lock["stack"]["architectures"] = ["Ampere", "Volta"]
    lock["digest"] = gpu_lock.digest_lock(lock)
    problems = gpu_lock.list_lock_problems(lock)
    assert len(problems) == sum(1 for row in lock["profiles"].values() if (row["frameworks"] or {}).get("environments"))
    assert "`provision_lock.profiles.debian12.frameworks.environments[0].builds[0]` was built for sm_75" in problems[0]
    assert "the lock is for Volta GPUs" in problems[0]


@pytest.mark.parametrize("given", [5, "text", {"name": "torch"}, None])
def test_environments_that_are_no_list_are_left_to_the_judgement_of_types(given: Any) -> None:
    assert gpu_code.judge_code([{"device": V100}], LOCK, given) == {"problems": [], "notes": []}


@pytest.mark.parametrize(
    ("place", "value"), [("architectures", [["x"]]), ("architectures", [{}]), ("runs_on", [{}]), ("lacks", [["7.0"]])]
)
def test_hostile_values_do_not_break_the_judgement_of_a_lock(place: str, value: Any) -> None:
    lock = with_build(**({place: value} if place != "architectures" else {}))
    lock["compute_capabilities"]["Volta"] = [{}]
    lock["stack"]["architectures"] = value if place == "architectures" else ["Volta"]
    assert isinstance(gpu_code.find_contradictions(lock, lock["profiles"]["debian12"]), list)
