"""A second run changes nothing: not in the recap, not in the file tree, not in packages, not in services."""

import pytest

REMOTE_EXECUTIONS_MAX = 12


@pytest.fixture(scope="module")
def twice(gpu_node, play):
    """One further run, with what the node was before and after it."""
    lists = "stat -c '%n %Y' /var/lib/apt/lists /var/lib/apt/lists/* /var/cache/apt/*.bin"
    before = (gpu_node.tree(), gpu_node.packages(), gpu_node.services(), gpu_node.say(lists))
    outcome = play("gpu-node.yml")
    after = (gpu_node.tree(), gpu_node.packages(), gpu_node.services(), gpu_node.say(lists))
    return outcome, before, after


def test_the_recap_says_changed_0(twice, gpu_node):
    outcome = twice[0].expect_success()
    assert outcome.changed(gpu_node.name) == []
    assert outcome.hosts[gpu_node.name]["changed"] == 0


def test_the_file_tree_is_the_same(twice, difference):
    assert len(twice[1][0]) > 1000, "the tree was read"
    assert difference(twice[1][0], twice[2][0]) == []


def test_the_packages_are_the_same(twice, difference):
    assert len(twice[1][1]) > 50
    assert difference(twice[1][1], twice[2][1]) == []


def test_no_service_was_restarted(twice, difference):
    assert "ssh.service" in twice[1][2]
    assert difference(twice[1][2], twice[2][2]) == []


def test_apt_read_no_lists(twice):
    assert twice[1][3] == twice[2][3]


def test_remote_executions_a_host_stay_few(twice, gpu_node):
    row = twice[0].expect_success().hosts[gpu_node.name]
    assert 0 < row["modules"] <= REMOTE_EXECUTIONS_MAX, row["ran"]
