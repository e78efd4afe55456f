"""Drift: what was edited, deleted, disabled or removed is named one by one in check mode, and repaired by a run."""

import json

import pytest

PIN = "/etc/apt/preferences.d"
NOUVEAU = "/etc/modprobe.d/zz-provision-nouveau.conf"
DAEMON = "/etc/docker/daemon.json"


@pytest.fixture(scope="module")
def pin(gpu_node):
    """The file of the pins."""
    names = gpu_node.say(f"ls {PIN}").split()
    return next(f"{PIN}/{name}" for name in names if "src:nvidia" in gpu_node.read(f"{PIN}/{name}"))


@pytest.fixture(scope="module")
def healthy(gpu_node):
    """What the node was when it had converged."""
    return gpu_node.tree(), gpu_node.packages()


@pytest.fixture(scope="module")
def drifted(gpu_node, healthy, pin, play):
    """The damage, and what check mode and a run say of it."""
    gpu_node.say('rm "$1"', pin)
    gpu_node.say('echo "# edited" >>"$1"', NOUVEAU)
    gpu_node.say("systemctl disable nvidia-persistenced")
    settings = json.loads(gpu_node.read(DAEMON))
    gpu_node.write(DAEMON, json.dumps({"log-driver": settings["log-driver"], "debug": True}))
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y purge nvidia-smi")
    before = gpu_node.tree()
    checked = play("gpu-node.yml", "--check", "--diff")
    return checked, (before, gpu_node.tree()), play("gpu-node.yml", "--diff")


def test_check_mode_names_each_drifted_file(drifted, pin):
    output = drifted[0].expect_success().output
    for path in (pin, NOUVEAU, DAEMON):
        assert path in output


def test_check_mode_shows_the_line_that_someone_added(drifted):
    assert "-# edited" in drifted[0].output


def test_check_mode_counts_each_file_by_itself(drifted, gpu_node, pin):
    checked = drifted[0].output
    for path in (pin, NOUVEAU):
        assert f"changed: [{gpu_node.name}] => (item={path})" in checked


def test_check_mode_names_the_package_and_the_service(drifted):
    assert "nvidia-smi=" in drifted[0].output
    assert "nvidia-persistenced" in drifted[0].output


def test_check_mode_touched_nothing(drifted, difference):
    assert difference(*drifted[1]) == []


def test_a_run_repairs_all_of_it(drifted, gpu_node, healthy, difference):
    drifted[2].expect_success()
    assert difference(healthy[1], gpu_node.packages()) == []
    own = {path: text for path, text in healthy[0].items() if path.startswith("/etc/") and path != DAEMON}
    now = {path: text for path, text in gpu_node.tree().items() if path.startswith("/etc/") and path != DAEMON}
    assert difference(own, now) == []


def test_what_the_user_added_meanwhile_is_kept(drifted, gpu_node):
    settings = json.loads(gpu_node.read(DAEMON))
    assert settings["debug"] is True
    assert settings["log-driver"] == "local"
    assert "nvidia" in settings["runtimes"]


def test_the_run_after_that_changes_nothing(drifted, gpu_node, play):
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []


@pytest.fixture
def without_parts(gpu_node, drifted, healthy):
    """The node without NCCL and DCGM; returned are their packages, those of DCGM last."""
    names = [name.split(":")[0] for name in healthy[1]]
    parts = [name for pattern in ("libnccl", "datacenter-gpu-manager") for name in names if name.startswith(pattern)]
    assert parts[0].startswith("libnccl")
    assert parts[-1].startswith("datacenter")
    gpu_node.say('DEBIAN_FRONTEND=noninteractive apt-get -y purge "$@"', *parts)
    return parts


def count_transactions(node):
    """How often apt has changed something."""
    return node.read("/var/log/apt/history.log").count("Start-Date:")


def test_what_several_roles_lack_comes_in_one_transaction(gpu_node, play, healthy, difference, without_parts):
    before = count_transactions(gpu_node)
    play("gpu-node.yml").expect_success()
    assert count_transactions(gpu_node) - before == 1
    assert difference(healthy[1], gpu_node.packages()) == []


def test_what_speaks_against_one_role_s_packages_is_told_by_that_role_alone(
    gpu_node, play, healthy, difference, without_parts
):
    held = without_parts[-1]
    gpu_node.say('apt-mark hold "$1"', held)
    outcome = play("gpu-node.yml")
    gpu_node.say('apt-mark unhold "$1"', held)
    assert outcome.status != 0
    assert f"{held} is held" in outcome.output
    assert "Nothing was installed for DCGM" in outcome.output
    now = {name.split(":")[0] for name in gpu_node.packages()}
    assert without_parts[0] in now, "NCCL came, since nothing spoke against it"
    assert held not in now
    play("gpu-node.yml").expect_success()
    assert difference(healthy[1], gpu_node.packages()) == []


DCGM_PROGRAM = "/usr/bin/dcgmi"


def test_what_fails_of_all_that_came_along_does_not_cost_the_driver(
    gpu_node, play, healthy, difference, without_parts, node_lock
):
    driver = node_lock["profiles"]["debian12"]["driver"]
    rows = driver["flavours"]["proprietary"]["packages"] + driver["profiles"]["compute"]
    names = [row["name"] for row in rows]
    gpu_node.say(
        'export DEBIAN_FRONTEND=noninteractive; apt-get -y -q purge "$@" && apt-get -y -q --purge autoremove', *names
    )
    # dpkg cannot move aside what is mounted: it ends there, before it has configured the driver.
    gpu_node.say('mkdir "$1" && mount -t tmpfs none "$1"', DCGM_PROGRAM)
    outcome = play("gpu-node.yml")
    gpu_node.say('umount "$1" && rmdir "$1"', DCGM_PROGRAM)
    assert outcome.status != 0
    assert f"Driver {driver['version']} is installed. What came along for later roles could not be" in outcome.output
    assert "Packages for DCGM: " in outcome.output, "the role that lacks them tells the reason"
    assert "datacenter-gpu-manager-4-core" in outcome.failures
    now = {name.split(":")[0] for name in gpu_node.packages()}
    assert set(names) <= now
    assert without_parts[0] in now, "NCCL came by its own role"
    assert ": installed" in gpu_node.say("dkms status")
    play("gpu-node.yml").expect_success()
    assert difference(healthy[1], gpu_node.packages()) == []


RUNFILE = "/usr/bin/nvidia-uninstall"
STAND_IN = """#!/bin/sh
# A stand-in for the uninstaller that NVIDIA's runfile leaves: it gives back what it had put aside, and goes.
[ "$1" = --silent ] || exit 1
mv /var/lib/nvidia/nvidia-smi /usr/bin/nvidia-smi
rm -f /usr/lib/x86_64-linux-gnu/libcuda.so.999.1 "$0"
"""


@pytest.fixture(scope="module")
def overwritten(gpu_node, drifted):
    """A driver that somebody put there by a runfile, over what packages own; returned is the tree with it."""
    gpu_node.write(RUNFILE, STAND_IN)
    gpu_node.say(
        'chmod 0755 "$1"; mkdir -p /var/lib/nvidia; touch /usr/lib/x86_64-linux-gnu/libcuda.so.999.1;'
        " mv /usr/bin/nvidia-smi /var/lib/nvidia/nvidia-smi; echo '#!/bin/sh' >/usr/bin/nvidia-smi",
        RUNFILE,
    )
    return gpu_node.tree()


def test_a_driver_of_a_runfile_is_refused_with_both_ways_out(gpu_node, play, difference, overwritten):
    outcome = play("gpu-node.yml")
    assert outcome.status != 0
    assert f"Run `{RUNFILE} --silent` on the node" in outcome.output
    assert "gpu_driver_remove_runfile: true" in outcome.output
    assert difference(overwritten, gpu_node.tree()) == []


def test_it_goes_by_its_own_uninstaller_where_that_is_asked_for(gpu_node, play, overwritten):
    play("gpu-node.yml", gpu_driver_remove_runfile=True).expect_success()
    assert not gpu_node.has(RUNFILE)
    assert not gpu_node.has("/usr/lib/x86_64-linux-gnu/libcuda.so.999.1")
    assert gpu_node.say("dpkg --verify nvidia-smi") == ""
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []
