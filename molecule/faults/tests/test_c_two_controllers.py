"""Two controllers at one node: the second is told who is at work, and touches nothing of what the first does.

The slow part is a stand-in, a hook that lets dpkg wait between unpacking and configuring; the transactions are real.
"""

import pytest

SLOW = "/etc/dpkg/dpkg.cfg.d/slow"
MARK = "/run/in-the-middle"
PIN = "/etc/apt/preferences.d/provision-restored"
GO_ON = "/run/go-on"


@pytest.fixture(autouse=True)
def slow_driver(gpu_node):
    """A driver that lacks a part, and a dpkg that waits, before it configures it, until it is told to go on."""
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-smi && apt-get clean")
    wait = f"for i in $(seq 900); do [ -e {GO_ON} ] && break; sleep 1; done"
    hook = f'[ "$DPKG_HOOK_ACTION" != configure ] || [ -e {MARK} ] || {{ touch {MARK}; {wait}; }}'
    gpu_node.say(f"rm -f {MARK} {GO_ON}")
    gpu_node.write(SLOW, f"pre-invoke={hook}\n")
    yield
    gpu_node.run(f"rm -f {SLOW} {MARK} {GO_ON}")


def test_the_second_controller_ends_with_who_is_at_work_and_the_first_with_its_driver(gpu_node, play, wait):
    seconds = []

    def begin_second(is_running):
        assert wait(lambda: gpu_node.has(MARK) or not is_running(), 900)
        assert gpu_node.has(MARK), "the first never came to dpkg"
        seconds.append(play("gpu-node.yml", gpu_repos_lock_timeout=5))
        gpu_node.say(f"touch {GO_ON}")
        assert is_running(), "the second ended after the first: nothing is shown"

    first = play("gpu-node.yml", during=begin_second)
    (second,) = seconds
    assert second.status != 0
    assert "is at work on" in second.failures, second.failures
    assert "make.log" not in second.output
    first.expect_success()
    assert "ii" in gpu_node.packages()["nvidia-smi:amd64"]
    assert gpu_node.say("dpkg --audit") == ""
    assert not gpu_node.has(PIN)
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []


def test_apts_lock_that_another_program_keeps_takes_nothing_back(gpu_node, play):
    """Upgrades that run by themselves hold apt's lock for longer than a run waits."""
    gpu_node.run(f"rm -f {SLOW}")
    before = gpu_node.packages()
    holder = (
        "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); "
        "fcntl.lockf(file, fcntl.LOCK_EX); time.sleep(300)"
    )
    gpu_node.say(f'systemd-run --quiet --unit=upgrades python3 -c "{holder}"')
    try:
        outcome = play("gpu-node.yml", gpu_repos_lock_timeout=3)
    finally:
        gpu_node.say("systemctl stop upgrades")
    assert outcome.status != 0
    assert "another program holds apt's lock" in outcome.failures
    assert "could not be installed" not in outcome.failures
    assert gpu_node.packages() == before
    assert not gpu_node.has(PIN)
    assert play("gpu-node.yml").expect_success().status == 0
