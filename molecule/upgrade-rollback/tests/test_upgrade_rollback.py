"""Up over the releases that the archive offers, and back: packages, module, user space and files agree each time."""

import functools
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


def agreed(release):
    """What a node in which all agree on a release looks like."""
    version = release.partition("-")[0]
    return {"package": release, "library": version, "module": version, "audit": ""}


def remembered(node):
    """The state file, and the record of the generation that it names."""
    state = json.loads(node.read("/var/lib/provision/state.json"))
    path = f"/var/lib/provision/generations/{state['generation']}/generation.json"
    return state["generation"], json.loads(node.read(path))


@pytest.fixture(scope="module")
def releases(gpu_node):
    """What is installed and every newer release of the branch that apt could install, oldest first."""
    listed = gpu_node.say(f"apt-cache madison {PACKAGE}").splitlines()
    found = {line.split("|")[1].strip() for line in listed if "|" in line}
    now = gpu_node.say(f"dpkg-query -W -f '${{Version}}' {PACKAGE}")
    branch = now.split(".")[0]
    newer = [each for each in found if each.split(".")[0] == branch and is_older(gpu_node, now, each)]
    if not newer:
        pytest.skip(f"the archive offers no release after {now} today: {', '.join(sorted(found))}")
    newer.sort(key=functools.cmp_to_key(lambda one, other: -1 if is_older(gpu_node, one, other) else 1))
    return [now, *newer]


@pytest.fixture(scope="module")
def before(gpu_node, releases):
    return gpu_node.packages(), gpu_node.tree(residue=True), remembered(gpu_node)


@pytest.fixture(scope="module")
def upgraded(gpu_node, releases, before, play, altered_lock):
    """Each newer release in turn: what the node was after it, and which generation that is."""
    steps = []
    for release in releases[1:]:
        lock = altered_lock(lambda lock, to=release: move(lock, releases[0], to))
        play("gpu-node-upgrade.yml", "-e", lock).expect_success()
        steps.append((release, state_of(gpu_node), remembered(gpu_node), gpu_node.packages()))
    return steps


@pytest.fixture(scope="module")
def rolled_back(gpu_node, before, upgraded, play):
    """One release up: the generation before, which nobody has to name; several: the first one, by its number."""
    words = {"gpu_rollback_to": before[2][0]} if len(upgraded) > 1 else {}
    outcome = play("gpu-node-rollback.yml", **words)
    return outcome.expect_success(), state_of(gpu_node), remembered(gpu_node)


def test_each_upgrade_moves_packages_library_and_module_together(upgraded, releases):
    assert [step[0] for step in upgraded] == releases[1:]
    for release, state, _generation, _packages in upgraded:
        assert state == agreed(release)


def test_each_upgrade_moves_every_package_of_the_driver(upgraded, before, releases):
    old = [name for name, text in before[0].items() if text.endswith(f" {releases[0]}")]
    assert len(old) > 5
    for release, _state, _generation, packages in upgraded:
        # What the new release no longer has may be gone; nothing of the old one may stay.
        assert [name for name in old if name in packages and not packages[name].endswith(f" {release}")] == []


def test_each_upgrade_keeps_a_generation_of_its_own(upgraded, before):
    last = before[2][0]
    for release, _state, (number, record), _packages in upgraded:
        assert number > last
        assert (record["kind"], record["driver"]) == ("upgrade", release.partition("-")[0])
        last = number


def test_rollback_says_which_generation_it_goes_back_to(rolled_back, before):
    assert f"Going back to generation {before[2][0]}:" in " ".join(rolled_back[0].output.split())


def test_rollback_is_a_generation_with_the_lock_of_the_first(rolled_back, before, upgraded):
    number, record = rolled_back[2]
    assert number > upgraded[-1][2][0]
    assert record["kind"] == "rollback"
    assert record["lock_digest"] == before[2][1]["lock_digest"]
    assert record["lock_digest"] != upgraded[-1][2][1]["lock_digest"]


def test_rollback_brings_packages_library_and_module_back_together(rolled_back, releases):
    assert rolled_back[1] == agreed(releases[0])


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


def test_rollback_to_a_generation_that_is_not_there_is_refused_and_says_which_are(rolled_back, before, play):
    outcome = play("gpu-node-rollback.yml", gpu_rollback_to=999)
    assert outcome.status != 0
    assert "has no generation 999" in " ".join(outcome.output.split())
    assert f"{before[2][0]} (" in outcome.output
