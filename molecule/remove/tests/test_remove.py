"""Removal leaves no NVIDIA file and the host as it was before."""

import json

import pytest
import yaml


@pytest.fixture(scope="module")
def baseline(gpu_node):
    """What the node was before its first run."""
    return json.loads(gpu_node.read("/var/lib/provision/baseline/packages.json"))


@pytest.fixture(scope="module")
def removed(baseline, gpu_node, node_named, play):
    bare = {name.partition(":")[0] for name in node_named("bare").packages()}
    assert set(baseline["packages"]) == bare, (
        "what it starts from was not bare before its first run, so removal does not lead there"
    )
    return play("gpu-node-remove.yml")


@pytest.fixture(scope="module")
def trees(removed, gpu_node, node_named):
    removed.expect_success()
    return node_named("bare").tree(residue=True), gpu_node.tree(residue=True)


def test_it_ends_well(removed):
    removed.expect_success()


def test_no_package_of_nvidia_is_left_not_even_its_configuration(removed, gpu_node):
    left = [
        name for name in gpu_node.packages() if "nvidia" in name or name.startswith(("libcuda", "cuda-", "libnccl"))
    ]
    assert left == []


def test_no_file_of_nvidia_is_left_anywhere(removed, gpu_node):
    listed = gpu_node.say(
        "find / -xdev '(' -path /proc -o -path /sys -o -path /run -o -path /opt/provision-stubs"
        " -o -path '/lib/modules/*/kernel' -o -path '/usr/lib/modules/*/kernel' -o -path '/usr/src/linux-*' ')' -prune"
        " -o '(' -iname '*nvidia*' -o -iname '*libcuda*' ')' -print"
    ).splitlines()
    ours = ("/var/lib/provision/", "/var/log/", "/var/lib/apt/", "/var/cache/", "/root/.ansible")
    assert [path for path in listed if not path.startswith(ours)] == []


def test_no_module_is_left_to_dkms(removed, gpu_node):
    assert gpu_node.run("dkms status 2>/dev/null").stdout.strip() == ""


def test_the_packages_are_those_of_a_bare_node(removed, gpu_node, node_named, difference):
    bare = node_named("bare").packages()
    assert difference(bare, gpu_node.packages()) == []


def test_automatic_marks_are_those_of_a_bare_node(removed, gpu_node, node_named):
    assert gpu_node.say("apt-mark showmanual | sort") == node_named("bare").say("apt-mark showmanual | sort")


def test_the_file_tree_is_that_of_a_bare_node(trees, difference):
    assert len(trees[0]) > 1000
    # A container has headers of a kernel that it does not have: what depmod wrote for it is nobody's.
    kept = ("/etc/docker", "/usr/lib/modules")
    assert [line for line in difference(*trees) if not line.startswith(kept)] == []


def test_the_users_own_keys_in_daemon_json_are_left_alone(removed, gpu_node):
    assert json.loads(gpu_node.read("/etc/docker/daemon.json")) == {"log-driver": "local"}


def test_the_users_daemon_json_has_its_very_bytes_again(baseline, removed, gpu_node, scenario_folder):
    said = yaml.safe_load((scenario_folder / "scenario.yml").read_text(encoding="utf-8"))["files"][
        "/etc/docker/daemon.json"
    ]
    assert baseline["texts"]["/etc/docker/daemon.json"] == said, "the image was made by older playbooks: run default"
    assert gpu_node.read("/etc/docker/daemon.json") == said


def test_apt_and_dpkg_are_well(removed, gpu_node):
    assert gpu_node.say("dpkg --audit") == ""
    gpu_node.say("apt-get -s -o Debug::NoLocking=1 install -f")


def test_removing_again_changes_nothing(removed, gpu_node, play):
    outcome = play("gpu-node-remove.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []
