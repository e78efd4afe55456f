"""The tests of NCCL, from stand-ins of their sources: built whole or not at all, and what was there before stays."""

import json
import os
from pathlib import Path

import nodes
import pytest

testinfra_hosts = ["gpu_nodes"]
BASE = "/opt/provision/nccl-tests"
LINK = f"{BASE}/current"
PROGRAM = f"{LINK}/build/all_reduce_perf"
PART = f"{BASE}/building"
BEGUN = "/var/lib/provision/nccl-tests.begun"
PLAYBOOKS = Path(os.environ.get("PROVISION_PLAYBOOKS", Path(__file__).resolve().parents[3] / "playbooks"))
MARKER = "/var/lib/provision/nccl-tests.json"


@pytest.fixture(scope="module")
def sources():
    """Name → the variables that name one stand-in."""
    text = (nodes.ephemeral() / "nccl-tests/stand-ins.json").read_text(encoding="utf-8")
    return {
        name: {"gpu_nccl_tests_source": row["path"], "gpu_nccl_tests_sha256": row["sha256"]}
        for name, row in json.loads(text).items()
    }


def builds(node):
    """Return what lies in the folder of builds, with what the link leads to."""
    return node.say(f"ls -la --time-style=full-iso {BASE}")


def test_the_program_is_built_and_the_link_leads_to_it(host):
    home = host.file(LINK).linked_to
    assert home.startswith(f"{BASE}/")
    assert home != PART
    assert host.check_output(PROGRAM) == "STAND-IN first"
    assert json.loads(host.file(MARKER).content_string)["home"] == home


def test_it_is_roots_and_everybody_may_run_it(host):
    assert host.check_output(f"find {BASE} ! -user root") == ""
    assert host.check_output(f"runuser -u nobody -- {PROGRAM}") == "STAND-IN first"


def test_make_had_as_many_jobs_as_the_node_has_processors(host):
    processors = host.check_output("nproc")
    words = host.file(f"{LINK}/build/flags").content_string.split()
    assert f"-j{processors}" in words or (processors == "1" and not [word for word in words if word.startswith("-j")])


def test_it_is_compiled_for_the_gpus_of_the_lock_by_the_default_toolkit(host, node_lock):
    assert node_lock["stack"]["gpus"] == ["a100"]
    assert host.file(f"{LINK}/build/gencode").content_string.split() == ["-gencode=arch=compute_80,code=sm_80"]
    assert "release 12.1" in host.file(f"{LINK}/build/toolkit").content_string


def test_no_build_is_under_way_any_more(host):
    assert not host.file(PART).exists
    assert not host.file(BEGUN).exists


def test_check_mode_names_the_build_and_touches_nothing(play, gpu_node, sources, difference):
    before = gpu_node.tree()
    checked = play("gpu-node.yml", "-t", "nccl", "--check", "--diff", **sources["second"]).expect_success()
    assert f"Would build nccl-tests from {sources['second']['gpu_nccl_tests_source']}" in checked.output
    assert difference(before, gpu_node.tree()) == []


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("second", {"gpu_nccl_tests_sha256": "0" * 64}, "and not " + "0" * 64),
        ("breaks", {}, "STAND-IN has no such architecture"),
        ("another", {}, "build/all_reduce_perf is not among the result"),
    ],
    ids=["wrong-digest", "failing-make", "another-program"],
)
def test_what_cannot_be_built_is_told_and_leaves_the_former_build(
    play, gpu_node, sources, difference, name, changed, words
):
    tree, listed = gpu_node.tree(), builds(gpu_node)
    outcome = play("gpu-node.yml", "-t", "nccl", **{**sources[name], **changed})
    assert outcome.status != 0
    assert "nccl-tests were not built" in outcome.failures
    assert words in outcome.failures
    assert difference(tree, gpu_node.tree()) == []
    assert builds(gpu_node).splitlines()[3:] == listed.splitlines()[3:]
    assert gpu_node.say(PROGRAM) == "STAND-IN first"


def test_other_sources_are_another_build_and_the_way_back_is_the_link_alone(play, gpu_node, sources):
    home = gpu_node.say(f"readlink {LINK}")
    made = gpu_node.say(f"stat -c %Y.%i {home}/build/all_reduce_perf")
    play("gpu-node.yml", "-t", "nccl", **sources["second"]).expect_success()
    assert gpu_node.say(PROGRAM) == "STAND-IN second"
    assert gpu_node.say(f"readlink {LINK}") != home
    play("gpu-node.yml", "-t", "nccl").expect_success()
    assert gpu_node.say(PROGRAM) == "STAND-IN first"
    assert gpu_node.say(f"readlink {LINK}") == home
    assert gpu_node.say(f"stat -c %Y.%i {home}/build/all_reduce_perf") == made


def test_a_link_that_is_lost_is_led_there_again(play, gpu_node):
    gpu_node.say(f"rm {LINK}")
    outcome = play("gpu-node.yml", "-t", "nccl").expect_success()
    assert outcome.changed(gpu_node.name) == ["gpu_nccl : Lead the link to this build"]
    assert gpu_node.say(PROGRAM) == "STAND-IN first"


def break_off(node):
    """Leave what a node has whose power went while the tests were compiled for the first time: half, and a note."""
    node.say(f"rm -rf {BASE} {MARKER}; mkdir -p {PART}/build; echo half >{PART}/label; echo {PART} >{BEGUN}")
    node.say(f"printf '#!/bin/sh\\necho half\\n' >{PART}/build/all_reduce_perf; chmod +x {PART}/build/all_reduce_perf")


def test_half_a_build_counts_for_nothing_and_is_gone_after_the_next(play, gpu_node):
    break_off(gpu_node)
    play("gpu-node.yml", "-t", "nccl").expect_success()
    assert gpu_node.say(PROGRAM) == "STAND-IN first"
    assert gpu_node.run(f"test -e {PART} || test -e {BEGUN}").returncode != 0


def test_a_further_run_changes_nothing(play, gpu_node):
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []


REMOVAL = """---
- name: Take the part of one role away
  hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Look at the node
      ansible.builtin.include_role:
        name: gpu_facts

    - name: Take it away
      ansible.builtin.include_role:
        name: gpu_nccl
        tasks_from: absent
"""


@pytest.mark.parametrize("broken_off", [True, False], ids=["half-a-build", "whole"])
def test_a_removal_leaves_nothing_of_it(play, gpu_node, tmp_path, monkeypatch, broken_off):
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(PLAYBOOKS / "roles"))
    monkeypatch.setenv("ANSIBLE_FILTER_PLUGINS", str(PLAYBOOKS / "filter_plugins"))
    if broken_off:
        break_off(gpu_node)
    else:
        play("gpu-node.yml", "-t", "nccl").expect_success()
        assert gpu_node.say(PROGRAM) == "STAND-IN first"
    path = tmp_path / "gpu-node-one-part.yml"
    path.write_text(REMOVAL, encoding="utf-8")
    play(str(path)).expect_success()
    assert gpu_node.say(f"ls -d {BASE} {MARKER} {BEGUN} 2>/dev/null || true") == ""
    play("gpu-node.yml").expect_success()
