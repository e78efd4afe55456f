"""The kernel that the node boots takes the module and keeps nouveau out; a restart that is due happens, once."""

import pytest


@pytest.fixture(scope="module")
def restarted(gpu_node, play):
    """The node after a run that must restart it, and the boots before and after."""
    before = gpu_node.say("cat /proc/sys/kernel/random/boot_id")
    outcome = play("gpu-node.yml", "-e", "gpu_reboot_policy=always").expect_success()
    return outcome, before, gpu_node.say("cat /proc/sys/kernel/random/boot_id")


def test_the_play_restarts_it_and_finds_it_again(restarted, gpu_node):
    outcome, before, after = restarted
    assert before != after
    assert [task for task in outcome.changed(gpu_node.name) if "Restart the node" in task] != []


def test_it_is_not_restarted_again_without_need(restarted, gpu_node, play):
    before = gpu_node.say("cat /proc/sys/kernel/random/boot_id")
    outcome = play("gpu-node.yml").expect_success()
    assert gpu_node.say("cat /proc/sys/kernel/random/boot_id") == before
    assert outcome.changed(gpu_node.name) == []


def test_the_module_is_built_for_the_kernel_that_runs(restarted, gpu_node, node_lock):
    name = gpu_node.say("modprobe --resolve-alias nvidia | tail -n 1") or "nvidia-current"
    assert gpu_node.say("modinfo -F vermagic nvidia-current").split()[0] == gpu_node.say("uname -r"), name
    assert gpu_node.say("modinfo -F version nvidia-current") == node_lock["profiles"]["debian12"]["driver"]["version"]


def test_the_kernel_takes_the_module_which_then_finds_no_gpu(restarted, gpu_node):
    gpu_node.say("dmesg --clear")
    tried = gpu_node.run("modprobe nvidia-current")
    said = gpu_node.say("dmesg")
    # Its own words: a module of another kernel or without a trusted signature never gets to say anything.
    assert "No NVIDIA GPU found" in said, said
    assert tried.returncode != 0
    assert "No such device" in tried.stderr
    for refused in (
        "disagrees about version",
        "Key was rejected",
        "Required key not available",
        "Invalid module format",
    ):
        assert refused not in said + tried.stderr


def test_nouveau_stays_out(restarted, gpu_node):
    assert "nouveau" not in gpu_node.say("lsmod")
    assert "blacklist nouveau" in gpu_node.say("modprobe --showconfig")


def test_the_proof_calls_it_a_node_without_gpu(restarted, gpu_node, play):
    outcome = play("gpu-node-verify.yml").expect_success()
    assert "driver installed, no GPU" in " ".join(outcome.output.split())
