"""A second run changes nothing on any node: not in the recap, not in the file tree, not in packages and services."""

import nodes as machines
import pytest

REMOTE_EXECUTIONS_MAX = 12
LISTS = "stat -c '%n %Y' /var/lib/apt/lists /var/lib/apt/lists/* /var/cache/apt/*.bin"
NODES = [each["name"] for each in machines.platforms() if "gpu_nodes" in each.get("groups", ())]


def look(node):
    return node.tree(), node.packages(), node.services(), node.say(LISTS)


@pytest.fixture(scope="module")
def run(node_named, play):
    """One further run of all nodes, with what each was before and after it."""
    nodes = [node_named(name) for name in NODES]
    before = {node.name: look(node) for node in nodes}
    outcome = play("gpu-node.yml")
    return outcome, before, {node.name: look(node) for node in nodes}


@pytest.fixture(scope="module", params=NODES)
def twice(request, run):
    """The run and what one node was."""
    name = request.param
    return name, run[0], run[1][name], run[2][name]


def test_the_recap_says_changed_0(twice):
    name, outcome, _before, _after = twice
    assert outcome.expect_success().changed(name) == []
    assert outcome.hosts[name]["changed"] == 0


def test_the_file_tree_is_the_same(twice, difference):
    _name, _outcome, before, after = twice
    assert len(before[0]) > 1000, "the tree was read"
    assert difference(before[0], after[0]) == []


def test_the_packages_are_the_same(twice, difference):
    _name, _outcome, before, after = twice
    assert len(before[1]) > 50
    assert difference(before[1], after[1]) == []


def test_no_service_was_restarted(twice, difference):
    _name, _outcome, before, after = twice
    assert "ssh.service" in before[2]
    assert difference(before[2], after[2]) == []


def test_apt_read_no_lists(twice):
    _name, _outcome, before, after = twice
    assert before[3] == after[3]


def test_remote_executions_a_host_stay_few(twice):
    name, outcome, _before, _after = twice
    row = outcome.expect_success().hosts[name]
    assert 0 < row["modules"] <= REMOTE_EXECUTIONS_MAX, row["ran"]
