"""Preflight: every problem of a host's variables is found, each with a way out."""

from __future__ import annotations

import re
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

PLAYBOOKS = playbook_files.PLAYBOOKS
gpu_values = playbook_files.load_filters("gpu_values")
gpu_variables = playbook_files.load_filters("gpu_variables")


def test_unknown_variable_is_told_with_its_neighbour() -> None:
    (problem,) = gpu_variables.list_variable_problems({"gpu_driver_flavor": "open"}, ["gpu_driver_flavour"])
    assert "`gpu_driver_flavor`" in problem
    assert "did you mean `gpu_driver_flavour`?" in problem.lower()


def test_known_and_ignored_variables_pass() -> None:
    values = {"gpu_driver_flavour": "open", "gpu_team": "x"}
    assert gpu_variables.list_variable_problems(values, ["gpu_driver_flavour"], ["gpu_team"]) == []


@pytest.mark.parametrize("value", ["a\x1b[0m", ["fine", "{{ x }}"], {"key": "../../x"}])
def test_hostile_variable_is_refused(value: Any) -> None:
    (problem,) = gpu_variables.list_variable_problems({"gpu_a": value}, ["gpu_a"])
    assert "`gpu_a" in problem


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu_kernel_policy", "hodl", "one of track, hold, pin"),
        ("gpu_reboot_policy", ["always"], "one of if_needed"),
        ("gpu_nccl_conf", "NCCL_DEBUG", "type dict"),
        ("gpu_frameworks_keep", "few", "type int"),
        ("gpu_repos_without", {"id": "x"}, "type list of str"),
        ("gpu_driver_persistence", "perhaps", "type bool"),
    ],
)
def test_value_that_a_role_does_not_take_is_named_with_its_role(name: str, value: Any, words: str) -> None:
    (problem,) = gpu_values.list_value_problems({name: value}, str(playbook_files.ROLES))
    assert problem.startswith(f"`{name}` is ")
    assert f"and {name.rpartition('_')[0]}" in problem
    assert words in problem


def test_values_that_ansible_would_convert_pass() -> None:
    values = {
        "gpu_driver_persistence": "yes",
        "gpu_frameworks_keep": "3",
        "gpu_repos_without": "a,b",
        "gpu_mig_capable": True,
        "gpu_kernel_policy": None,  # It cannot be told yet.
        "gpu_hosts": "all",
        "gpu_unknown": [],
    }
    assert gpu_values.list_value_problems(values, str(playbook_files.ROLES)) == []


def test_what_a_run_does_not_reach_is_not_judged() -> None:
    parts = {"cuda": ["cuda", "packages"], "frameworks": ["frameworks"]}
    asked = gpu_values.list_asked_parts
    assert asked(parts, ["all"], []) == asked(parts, ["tagged"], []) == ["cuda", "frameworks"]
    assert asked(parts, ["packages"], []) == asked(parts, ["cuda"], []) == ["cuda"]
    assert asked(parts, ["driver"], []) == asked(parts, ["untagged"], []) == []
    assert asked(parts, ["all"], ["packages"]) == ["frameworks"]
    assert asked(parts, ["all"], ["all"]) == []


def test_parts_that_are_judged_have_the_tags_of_the_play() -> None:
    import yaml

    plays = yaml.safe_load((PLAYBOOKS / "gpu-node.yml").read_text(encoding="utf-8"))
    tags = {row["role"]: sorted(row["tags"]) for row in plays[1]["roles"]}
    text = (playbook_files.ROLES / "gpu_preflight" / "vars" / "main.yml").read_text(encoding="utf-8")
    parts = yaml.safe_load(text)["gpu_preflight_parts"]
    assert {part: sorted(words) for part, words in parts.items()} == {part: tags[f"gpu_{part}"] for part in parts}


def test_variables_of_all_roles_are_known() -> None:
    known = set(gpu_variables.list_known_variables(str(playbook_files.ROLES)))
    assert {"gpu_preflight_mode", "gpu_repos_mirror", "gpu_driver_flavour", "gpu_hosts", "gpu_facts_host"} <= known
    assert "gpu_driver_flavor" not in known


def test_what_the_plays_make_for_themselves_is_known() -> None:
    known = set(gpu_variables.list_known_variables(str(playbook_files.ROLES)))
    files = [*PLAYBOOKS.glob("gpu-node*.yml"), *(PLAYBOOKS / "tasks").glob("*.yml")]
    made = {name for path in files for name in re.findall(r"\bgpu_node_\w+", path.read_text(encoding="utf-8"))}
    assert {"gpu_node_lock_text", "gpu_node_lock_digest"} <= made
    assert made <= known
