"""Real transactions of dnf with stand-ins of NVIDIA's packages: converge, upgrade, back, holds, faults, removal.

The tests go on from each other in their order, and each leaves the node converged.
"""

import json

import pytest

BASE = "/opt/provision-standins"
FORMER, LATER = "580.178.04", "595.91.07"
PACKAGES = (
    "kmod-nvidia-open-dkms",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "libnvidia-ml",
    "nvidia-persistenced",
)
KERNEL = "5.14.0-687.51.1.el9_8.x86_64"
MODULE = f"/lib/modules/{KERNEL}/extra/nvidia.ko"
LOCKS = "/etc/dnf/plugins/versionlock.list"


def rpms(node):
    """All that rpm has: package → epoch, version and release."""
    lines = node.say(r"rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' | sort").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def drivers(node):
    """The versions of the driver's packages, which must be one."""
    found = rpms(node)
    return {found.get(name, "none").partition(":")[2].rpartition("-")[0] for name in PACKAGES}


def state_of(node):
    """The driver's packages, its module and its license."""
    said = node.say(f"modinfo -F version {MODULE}; modinfo -F license {MODULE}").splitlines()
    return drivers(node), said


def to_later(lock):
    """Let the lock name the later driver, as a lock for that branch does."""
    profile = lock["profiles"]["rhel9"]
    text = json.dumps(profile).replace(FORMER, LATER).replace('"580-', '"595-')
    lock["profiles"]["rhel9"] = json.loads(text)
    lock["profiles"]["rhel9"]["driver"]["branch"] = 595


def test_packages_of_the_lock_are_there_at_their_versions(gpu_node):
    assert state_of(gpu_node) == ({FORMER}, [FORMER, "Dual MIT/GPL"])
    found = rpms(gpu_node)
    assert found["kmod-nvidia-open-dkms"] == f"3:{FORMER}-1.el9"
    assert "kmod-nvidia-latest-dkms" not in found
    assert found["libnccl"] == "0:2.25.1-1+cuda12.8"
    assert found["nvidia-container-toolkit"] == "0:1.20.0-1"
    assert f"kernel-devel-{KERNEL}" in gpu_node.say("rpm -qa kernel-devel")


def test_stream_and_version_locks_keep_them_there(gpu_node):
    assert "stream=580-open" in gpu_node.read("/etc/dnf/modules.d/nvidia-driver.module")
    assert f"nvidia-driver*-3:{FORMER}-1.el9.*\n" in gpu_node.read(LOCKS)
    # Later drivers of other branches are in the same repository.
    assert gpu_node.say("dnf -q check-update || test $? -eq 100").strip() == ""


def test_packages_are_checked_and_where_they_are_not_signed_the_index_is(gpu_node):
    assert "gpgcheck=1" in gpu_node.read("/etc/yum.repos.d/provision-cuda.repo")
    toolkit = gpu_node.read("/etc/yum.repos.d/provision-container-toolkit.repo")
    assert "repo_gpgcheck=1" in toolkit
    assert "\ngpgcheck=0" in toolkit


def test_second_run_is_one_remote_execution(gpu_node, play):
    row = play("gpu-node.yml").expect_success().hosts[gpu_node.name]
    assert (row["changed"], row["modules"]) == (0, 1), row["ran"]


def test_check_mode_of_an_upgrade_changes_nothing(gpu_node, play, altered_lock):
    before = gpu_node.tree(), rpms(gpu_node)
    play("gpu-node.yml", "--check", "-e", altered_lock(to_later)).expect_success()
    assert (gpu_node.tree(), rpms(gpu_node)) == before


def test_what_somebody_holds_is_not_moved(gpu_node, play, altered_lock):
    line = f"nvidia-persistenced-3:{FORMER}-1.el9.*"
    gpu_node.say(f"sed -i '1i {line}' {LOCKS}")
    outcome = play("gpu-node.yml", "-e", altered_lock(to_later))
    assert outcome.status != 0
    assert f"nvidia-persistenced is held by the version lock {line}" in outcome.failures
    assert state_of(gpu_node) == ({FORMER}, [FORMER, "Dual MIT/GPL"])
    gpu_node.say(f"sed -i '1d' {LOCKS}")
    play("gpu-node.yml").expect_success()
    assert state_of(gpu_node)[0] == {FORMER}


def test_repository_that_is_broken_is_refused_and_taken_back(gpu_node, play, altered_lock):
    before = gpu_node.tree()

    def broken(lock):
        sources = lock["profiles"]["rhel9"]["repos"]["sources"]
        next(row for row in sources if row["id"] == "cuda")["uri"] = "file:///opt/nothing-here/"

    outcome = play("gpu-node.yml", "-e", altered_lock(broken))
    assert outcome.status != 0
    assert "repository provision-cuda does not answer or is broken" in outcome.failures
    after = gpu_node.tree()
    assert [path for path in {*before, *after} if "/etc/" in path and before.get(path) != after.get(path)] == []
    play("gpu-node.yml").expect_success()


def test_package_without_a_signature_is_refused(gpu_node, play, altered_lock):
    gpu_node.say(
        f"rm -rf /opt/unsigned; cp -a {BASE}/cuda /opt/unsigned; cd /opt/unsigned;"
        f" rpmsign --delsign *{LATER}*.rpm >/dev/null; zcat repodata/*modules.yaml.gz >/tmp/modules.yaml;"
        " rm -r repodata; createrepo_c -q .; modifyrepo_c --mdtype=modules /tmp/modules.yaml repodata >/dev/null"
    )

    def unsigned(lock):
        to_later(lock)
        sources = lock["profiles"]["rhel9"]["repos"]["sources"]
        next(row for row in sources if row["id"] == "cuda")["uri"] = "file:///opt/unsigned/"

    outcome = play("gpu-node-upgrade.yml", "-e", altered_lock(unsigned))
    assert outcome.status != 0
    assert "a signature is missing or wrong" in outcome.failures
    assert state_of(gpu_node) == ({FORMER}, [FORMER, "Dual MIT/GPL"])
    play("gpu-node.yml").expect_success()
    assert "stream=580-open" in gpu_node.read("/etc/dnf/modules.d/nvidia-driver.module")


def test_module_that_does_not_build_leaves_the_former_driver(gpu_node, play, altered_lock):
    gpu_node.say("touch /etc/provision-test/dkms-fails")
    outcome = play("gpu-node-upgrade.yml", "-e", altered_lock(to_later))
    gpu_node.say("rm /etc/provision-test/dkms-fails")
    assert outcome.status != 0
    assert "error: too few arguments to function" in outcome.failures
    assert "Put back" in outcome.failures
    assert drivers(gpu_node) == {FORMER}
    play("gpu-node.yml").expect_success()
    assert state_of(gpu_node) == ({FORMER}, [FORMER, "Dual MIT/GPL"])


def test_upgrade_moves_packages_module_and_locks_together(gpu_node, play, altered_lock):
    play("gpu-node-upgrade.yml", "-e", altered_lock(to_later)).expect_success()
    assert state_of(gpu_node) == ({LATER}, [LATER, "Dual MIT/GPL"])
    assert FORMER not in gpu_node.read(LOCKS)


def test_rollback_goes_back_by_what_the_node_remembers(gpu_node, play):
    play("gpu-node-rollback.yml").expect_success()
    assert state_of(gpu_node) == ({FORMER}, [FORMER, "Dual MIT/GPL"])
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []


def test_removal_leaves_what_was_there_before(gpu_node, play):
    play("gpu-node-remove.yml").expect_success()
    assert set(rpms(gpu_node)) == {"bash", "gpg-pubkey", "kernel-core"}
    assert gpu_node.say("rpm -qa gpg-pubkey | wc -l") == "1"
    left = gpu_node.say("find /etc /var/lib /usr -name '*provision*' -not -path '*provision-test*' || :").splitlines()
    assert left == []
    assert "provision" not in gpu_node.read(LOCKS)


@pytest.mark.parametrize("path", ["/etc/yum.repos.d/provision-cuda.repo", MODULE])
def test_removal_leaves_no_file(gpu_node, path):
    assert gpu_node.run(f"test -e {path}").returncode != 0
