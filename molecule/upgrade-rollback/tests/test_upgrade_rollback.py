"""Up over the releases that the archive offers, and back: packages, module, user space and files agree each time."""

import json

import pytest

PACKAGE = "nvidia-kernel-dkms"


def is_older(node, one, other):
    """Debian's own opinion."""
    return node.run('dpkg --compare-versions "$1" lt "$2"', one, other).returncode == 0


def move(lock, old, new):
    """Let a lock name another release of the driver wherever it names the old one."""
    text = json.dumps(lock["profiles"]).replace(old, new).replace(old.partition("-")[0], new.partition("-")[0])
    lock["profiles"] = json.loads(text)


def state_of(node):
    """What must agree: version of the packages, of the library, of the module; and dpkg's own opinion."""
    kernel = node.say("ls -d /lib/modules/*/build | head -n 1 | cut -d/ -f4")
    library = node.say("basename $(readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1)").removeprefix("libcuda.so.")
    module = node.say(f"modinfo -k {kernel} -F version nvidia-current")
    package = node.say(f"dpkg-query -W -f '${{Version}}' {PACKAGE}")
    return {"package": package, "library": library, "module": module, "audit": node.say("dpkg --audit")}


@pytest.fixture(scope="module")
def releases(gpu_node):
    """Releases of the branch that apt could install, oldest first; two are needed."""
    listed = gpu_node.say(f"apt-cache madison {PACKAGE}").splitlines()
    found = {line.split("|")[1].strip() for line in listed if "|" in line}
    now = gpu_node.say(f"dpkg-query -W -f '${{Version}}' {PACKAGE}")
    branch = now.split(".")[0]
    newer = sorted(each for each in found if each.split(".")[0] == branch and is_older(gpu_node, now, each))
    if not newer:
        pytest.skip(f"the archive offers no release after {now} today: {', '.join(sorted(found))}")
    return now, newer[0]


@pytest.fixture(scope="module")
def before(gpu_node, releases):
    return gpu_node.packages(), gpu_node.tree(residue=True)


@pytest.fixture(scope="module")
def upgraded(gpu_node, releases, before, play, altered_lock):
    outcome = play("gpu-node-upgrade.yml", "-e", altered_lock(lambda lock: move(lock, *releases)))
    return outcome.expect_success(), state_of(gpu_node), gpu_node.say("ls /var/lib/provision/generations")


@pytest.fixture(scope="module")
def rolled_back(gpu_node, upgraded, play):
    outcome = play("gpu-node-rollback.yml")
    return outcome.expect_success(), state_of(gpu_node)


def test_the_upgrade_moves_packages_library_and_module_together(upgraded, releases):
    new = releases[1].partition("-")[0]
    assert upgraded[1] == {"package": releases[1], "library": new, "module": new, "audit": ""}


def test_the_upgrade_moves_every_package_of_the_driver(upgraded, gpu_node, before, releases):
    old = [name for name, text in before[0].items() if text.endswith(releases[0])]
    assert len(old) > 5


def test_the_upgrade_keeps_a_generation(upgraded):
    assert len(upgraded[2].split()) >= 2


def test_rollback_brings_packages_library_and_module_back_together(rolled_back, releases):
    old = releases[0].partition("-")[0]
    assert rolled_back[1] == {"package": releases[0], "library": old, "module": old, "audit": ""}


def test_rollback_brings_every_package_back(rolled_back, gpu_node, before, difference):
    assert difference(before[0], gpu_node.packages()) == []


def test_rollback_brings_every_file_back(rolled_back, gpu_node, before, difference):
    # Built again: a module carries the time of its build and of its signature.
    changed = difference(before[1], gpu_node.tree(residue=True))
    assert [line for line in changed if "/updates/dkms/" not in line and "/dkms/" not in line] == []


def test_the_pin_is_that_of_the_old_release_again(rolled_back, gpu_node, releases):
    policy = gpu_node.say(f"apt-cache policy {PACKAGE}")
    assert f"Candidate: {releases[0]}" in policy


def test_a_further_run_changes_nothing(rolled_back, gpu_node, play):
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []


def test_rollback_to_a_generation_that_is_not_there_is_refused_and_says_which_are(rolled_back, play):
    outcome = play("gpu-node-rollback.yml", gpu_rollback_to=999)
    assert outcome.status != 0
    assert "999" in outcome.output
