"""A security update of half the driver's packages cannot split user space and module."""

import pytest


def moved(node, command="upgrade"):
    """Packages of the driver that apt would move, with the version they would get."""
    listed = node.say(f"apt-get -s -o Debug::NoLocking=1 {command}")
    lines = [line.split() for line in listed.splitlines() if line.startswith("Inst")]
    return {words[1]: words[3].lstrip("(") for words in lines if "nvidia" in words[1] or words[1].startswith("libcuda")}


@pytest.fixture(scope="module")
def pin(gpu_node):
    names = gpu_node.say("ls /etc/apt/preferences.d").split()
    paths = [f"/etc/apt/preferences.d/{name}" for name in names]
    return next(path for path in paths if "src:nvidia" in gpu_node.read(path))


@pytest.fixture(scope="module")
def unpinned(gpu_node, pin):
    """What would happen without the pins: the proof that there is something to guard against."""
    gpu_node.say('mv "$1" /root/pins', pin)
    try:
        return moved(gpu_node)
    finally:
        gpu_node.say('mv /root/pins "$1"', pin)


def test_the_archive_offers_a_newer_release_of_half_the_packages(unpinned):
    if not unpinned:
        pytest.skip("the archive has no newer release of this branch today, so nothing can split")
    assert any("nvidia" in name for name in unpinned)


@pytest.mark.parametrize("command", ["upgrade", "dist-upgrade"])
def test_the_pins_keep_every_package_of_the_driver(gpu_node, command):
    assert moved(gpu_node, command) == {}


def test_unattended_upgrades_leave_them_alone(gpu_node):
    said = gpu_node.run("unattended-upgrade --dry-run -d 2>&1").stdout
    taken = [line for line in said.splitlines() if line.startswith("Packages that will be upgraded")]
    # Where the driver is all that is newer, it finds nothing to do and says that.
    assert taken or "No packages found that can be upgraded unattended" in said, said[-2000:]
    assert not [line for line in taken if "nvidia" in line or "libcuda" in line]


def test_the_other_packages_are_upgraded_and_the_driver_stays_whole(gpu_node):
    before = {
        name: text for name, text in gpu_node.packages().items() if "nvidia" in name or name.startswith("libcuda")
    }
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Options::=--force-confold upgrade")
    after = {name: text for name, text in gpu_node.packages().items() if "nvidia" in name or name.startswith("libcuda")}
    assert before == after
    library = gpu_node.say("basename $(readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1)")
    kernel = gpu_node.say("ls -d /lib/modules/*/build | head -n 1 | cut -d/ -f4")
    module = gpu_node.say(f"modinfo -k {kernel} -F version nvidia-current")
    assert library == f"libcuda.so.{module}"


def test_a_run_after_the_upgrade_changes_nothing(gpu_node, play):
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []
