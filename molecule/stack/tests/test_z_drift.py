"""Files that are merged with a user's: each is reported and repaired by itself, and the user's new words stay."""

import json

import pytest

testinfra_hosts = ["gpu_nodes"]
DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
NCCL = "/etc/nccl.conf"
OWN_STATE = ("/var/lib/provision", "/var/lib/docker", "/var/lib/containerd")
"""What an engine that was restarted writes down about itself."""


def lose_docker(node):
    settings = json.loads(node.read(DAEMON))
    del settings["runtimes"]
    node.write(DAEMON, json.dumps({**settings, "debug": True}))


def lose_containerd(node):
    kept = [line for line in node.read(CONTAINERD).splitlines() if not line.startswith("imports")]
    node.write(CONTAINERD, "\n".join([*kept, "[debug]", '  level = "warn"', ""]))


def lose_nccl(node):
    node.write(NCCL, node.read(NCCL).replace("NCCL_DEBUG=WARN", "NCCL_DEBUG=TRACE") + "NCCL_NET_GDR_LEVEL=2\n")


CASES = [
    (DAEMON, lose_docker, ('"debug": true', '"nvidia"', '"local"')),
    (CONTAINERD, lose_containerd, ('level = "warn"', "imports", "# The registry of this site")),
    (NCCL, lose_nccl, ("NCCL_NET_GDR_LEVEL=2", "NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME=eth0")),
]


@pytest.mark.parametrize(("path", "lose", "words"), CASES, ids=["docker", "containerd", "nccl"])
def test_one_drifted_file_is_the_one_difference_and_is_repaired(play, gpu_node, difference, path, lose, words):
    lose(gpu_node)
    before = gpu_node.tree()
    checked = play("gpu-node.yml", "--check", "--diff").expect_success()
    assert f"(item={path})" in checked.output
    assert difference(before, gpu_node.tree()) == []
    play("gpu-node.yml").expect_success()
    changed = [line.split(":")[0] for line in difference(before, gpu_node.tree())]
    known = [each for each in changed if not each.startswith(OWN_STATE)]
    assert known == [path]
    for word in words:
        assert word in gpu_node.read(path)


def test_containerd_and_docker_run_with_what_was_repaired(host):
    assert "nvidia" in host.check_output("containerd config dump")
    assert "nvidia" in host.check_output("docker info --format '{{json .Runtimes}}'")


def test_another_default_toolkit_is_one_variable_and_back_again(play, host):
    play("gpu-node.yml", gpu_cuda_default="11.8").expect_success()
    assert host.check_output("readlink -f /usr/local/cuda") == "/usr/local/cuda-11.8"
    assert "release 11.8" in host.check_output("bash -lc 'nvcc --version'")
    play("gpu-node.yml").expect_success()
    assert host.check_output("readlink -f /usr/local/cuda") == "/usr/local/cuda-12.1"


def test_after_all_that_a_run_changes_nothing(play, gpu_node):
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []
