"""A node that dies, fills up or is cut off in the middle of a play converges on the next run."""

import pytest

SLOW = "/etc/dpkg/dpkg.cfg.d/slow"
MARK = "/run/in-the-middle"
HOLDER = (
    "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); "
    "fcntl.lockf(file, fcntl.LOCK_EX); time.sleep({seconds})"
)


@pytest.fixture(autouse=True)
def wanting(gpu_node):
    """A driver that lacks a part, so that a run installs something."""
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-smi && apt-get clean")


@pytest.fixture
def slow(gpu_node):
    """dpkg waits between unpacking and configuring, which is the worst moment to die."""
    hook = f'[ "$DPKG_HOOK_ACTION" != configure ] || [ -e {MARK} ] || {{ touch {MARK}; sleep 25; }}'
    gpu_node.say(f"rm -f {MARK}")
    gpu_node.write(SLOW, f"pre-invoke={hook}\n")


def healed(gpu_node, play):
    gpu_node.run(f"rm -f {SLOW} {MARK}")
    outcome = play("gpu-node.yml").expect_success()
    assert gpu_node.say("dpkg --audit") == ""
    assert "ii" in gpu_node.packages()["nvidia-smi:amd64"]
    return outcome


def test_killed_between_unpacking_and_configuring_it_converges_on_the_next_run(gpu_node, play, breaker, wait, slow):
    harm = breaker(gpu_node)

    def strike(is_running):
        wait(lambda: gpu_node.has(MARK) or not is_running(), 900)
        assert gpu_node.has(MARK), "the play never came to dpkg"
        harm.kill()

    outcome = play("gpu-node.yml", during=strike)
    harm.start()
    assert outcome.status != 0
    assert gpu_node.say("dpkg --audit") != "", "it died in the middle"
    healed(gpu_node, play)
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []


def is_compiling(node):
    """Whether dpkg has begun to configure the module's package, and DKMS runs the compiler for it."""
    question = (
        """test "$(dpkg-query -W -f '${db:Status-Status}' nvidia-kernel-dkms)" = half-configured && pgrep -x make"""
    )
    return node.run(question).returncode == 0


def test_killed_while_the_module_is_compiled_it_converges_on_the_next_run(gpu_node, play, breaker, wait, node_lock):
    harm = breaker(gpu_node)
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-kernel-dkms && apt-get clean")
    struck = []

    def strike(is_running):
        wait(lambda: struck.append(is_compiling(gpu_node)) or struck[-1] or not is_running(), 900)
        assert struck[-1], "the play never came to the compiler"
        harm.kill()

    outcome = play("gpu-node.yml", during=strike)
    harm.start()
    assert outcome.status != 0
    audit = gpu_node.say("dpkg --audit")
    assert "half configured" in audit
    assert "nvidia-kernel-dkms" in audit
    healed(gpu_node, play)
    kernel = gpu_node.say("ls -d /lib/modules/*/build | head -n 1 | cut -d/ -f4")
    version = node_lock["profiles"]["debian12"]["driver"]["version"]
    assert gpu_node.say(f"modinfo -k {kernel} -F version nvidia-current") == version
    assert f"{version}, {kernel}" in gpu_node.say("dkms status")


def test_cut_off_in_the_middle_it_converges_on_the_next_run(gpu_node, play, breaker, wait, slow):
    harm = breaker(gpu_node)

    def strike(is_running):
        wait(lambda: gpu_node.has(MARK) or not is_running(), 900)
        assert gpu_node.has(MARK), "the play never came to dpkg"
        harm.unplug()

    outcome = play("gpu-node.yml", during=strike)
    harm.plug()
    assert outcome.status != 0
    healed(gpu_node, play)


def test_a_full_disk_is_named_and_after_making_room_it_converges(gpu_node, play):
    gpu_node.say("mount -t tmpfs -o size=16k tmpfs /var/cache/apt/archives")
    try:
        outcome = play("gpu-node.yml")
        assert outcome.status != 0
        assert "space" in outcome.failures
        assert gpu_node.say("dpkg --audit") == ""
    finally:
        gpu_node.say("umount /var/cache/apt/archives")
    healed(gpu_node, play)


def test_while_another_holds_apts_lock_it_waits_and_then_converges(gpu_node, play):
    gpu_node.say(f'systemd-run --quiet --unit=holder python3 -c "{HOLDER.format(seconds=15)}"')
    gpu_node.say("sleep 1; systemctl is-active holder")
    healed(gpu_node, play)


def test_a_lock_that_is_never_given_back_ends_with_who_holds_it(gpu_node, play):
    gpu_node.say(f'systemd-run --quiet --unit=forever python3 -c "{HOLDER.format(seconds=300)}"')
    try:
        outcome = play("gpu-node.yml", gpu_repos_lock_timeout=3)
        assert outcome.status != 0
        assert "lock" in outcome.failures
    finally:
        gpu_node.say("systemctl stop forever")
    healed(gpu_node, play)
