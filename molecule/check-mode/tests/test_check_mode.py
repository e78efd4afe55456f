"""Check mode on a bare node: exit status 0, everything is listed, nothing is touched."""

import pytest


@pytest.fixture(scope="module")
def checked(gpu_node, play):
    """One run with --check --diff, with what the node was before and after it."""
    before = (gpu_node.tree(), gpu_node.packages(), gpu_node.services())
    outcome = play("gpu-node.yml", "--check", "--diff")
    return outcome, before, (gpu_node.tree(), gpu_node.packages(), gpu_node.services())


def test_the_node_is_bare(checked):
    assert not [name for name in checked[1][1] if "nvidia" in name or "dkms" in name]


def test_it_ends_well(checked, gpu_node):
    outcome = checked[0].expect_success()
    assert outcome.hosts[gpu_node.name]["failures"] == 0


def test_it_says_that_it_would_change_the_node(checked, gpu_node):
    assert checked[0].hosts[gpu_node.name]["changed"] > 0


@pytest.mark.parametrize("section", ["driver", "cuda", "nccl", "container_toolkit", "dcgm"])
def test_it_lists_every_package_of_the_section_with_its_version(checked, node_lock, section):
    profile = node_lock["profiles"]["debian12"]
    rows = {
        "driver": lambda part: part["flavours"]["proprietary"]["packages"] + part["profiles"]["compute"],
        "cuda": lambda part: [row for rows in part["packages"].values() for row in rows],
        "nccl": lambda part: part["packages"],
        "container_toolkit": lambda part: part["packages"],
        "dcgm": lambda part: part["packages"],
    }
    if not profile.get(section):
        pytest.skip(f"the lock has no {section}")
    for row in rows[section](profile[section]):
        if row.get("version"):
            assert f"{row['name']}={row['version']}" in checked[0].output.replace(" ", ""), row


def test_it_shows_the_files_it_would_write(checked):
    for path in ("/etc/apt/preferences.d/", "/etc/modprobe.d/zz-provision-nouveau.conf", "/usr/local/lib/provision/"):
        assert f"+++ after: {path}" in checked[0].output or path in checked[0].output, path


def test_a_difference_is_shown_line_by_line(checked):
    assert "+blacklist nouveau" in checked[0].output


def test_the_file_tree_is_untouched(checked, difference):
    assert len(checked[1][0]) > 1000
    assert difference(checked[1][0], checked[2][0]) == []


def test_no_package_was_installed(checked, difference):
    assert difference(checked[1][1], checked[2][1]) == []


def test_no_service_was_touched(checked, difference):
    assert difference(checked[1][2], checked[2][2]) == []
