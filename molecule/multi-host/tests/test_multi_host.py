"""One bad host in a batch stops the batches behind it; the others keep their state."""

import pytest

NAMES = ("a-good", "b-bad", "c-good")
VICTIM = "nvidia-smi:amd64"


@pytest.fixture(scope="module")
def hosts(node_named):
    return {name: node_named(name) for name in NAMES}


@pytest.fixture(scope="module")
def refused(hosts, play, tmp_path_factory):
    """One host that the preflight refuses, before any host has changed."""
    for node in hosts.values():
        node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-smi && apt-get clean")
    before = {name: (node.tree(), node.packages()) for name, node in hosts.items()}
    inventory = tmp_path_factory.mktemp("more") / "hosts.yml"
    inventory.write_text("gpu_nodes: {hosts: {b-bad: {gpu_drivr_flavour: open}}}\n", encoding="utf-8")
    outcome = play("gpu-node.yml", "-i", str(inventory))
    after = {name: (node.tree(), node.packages()) for name, node in hosts.items()}
    return outcome, before, after


@pytest.fixture(scope="module")
def stopped(hosts, refused, play):
    """One host whose disk is full, in the second of three batches."""
    hosts["b-bad"].say("mount -t tmpfs -o size=16k tmpfs /var/cache/apt/archives")
    before = hosts["c-good"].tree()
    outcome = play("gpu-node.yml", gpu_rollout_batches=[1])
    return outcome, before, hosts["c-good"].tree()


@pytest.fixture(scope="module")
def together(hosts, stopped, play):
    """The same three in one batch; the disk of the second is full still."""
    hosts["a-good"].say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-smi && apt-get clean")
    return play("gpu-node.yml", gpu_rollout_batches=["100%"])


def test_a_host_that_the_preflight_refuses_stops_the_run_by_name(refused):
    assert refused[0].status != 0
    assert "gpu_drivr_flavour" in refused[0].failures
    assert "b-bad" in refused[0].failures


def test_a_refusal_of_one_host_leaves_all_hosts_as_they_were(refused, difference):
    for name in NAMES:
        assert difference(refused[1][name][0], refused[2][name][0]) == [], name
        assert difference(refused[1][name][1], refused[2][name][1]) == [], name


def test_a_host_that_fails_in_its_batch_fails_the_run(stopped):
    assert stopped[0].status != 0
    assert stopped[0].hosts["b-bad"]["failures"] == 1


def test_the_batch_before_it_keeps_what_it_got(stopped, hosts):
    assert stopped[0].hosts["a-good"]["failures"] == 0
    assert "ii" in hosts["a-good"].packages()[VICTIM]


def test_the_batch_behind_it_is_not_touched(stopped, difference):
    assert difference(stopped[1], stopped[2]) == []


def test_the_failed_host_has_a_sane_dpkg(stopped, hosts):
    assert hosts["b-bad"].say("dpkg --audit") == ""


def test_in_one_batch_the_bad_host_alone_fails(together):
    assert together.status != 0
    assert {name: row["failures"] for name, row in together.hosts.items()} == {"a-good": 0, "b-bad": 1, "c-good": 0}
    assert "space" in together.failures


def test_the_others_of_its_batch_are_stopped_between_tasks_and_sane(together, hosts):
    for name, node in hosts.items():
        assert node.say("dpkg --audit") == "", name
        half = [package for package, row in node.packages().items() if not row.startswith(("ii", "hi", "rc"))]
        assert half == [], name


def test_mended_all_three_converge_with_the_next_run(together, hosts, play):
    hosts["b-bad"].say("umount /var/cache/apt/archives")
    outcome = play("gpu-node.yml").expect_success()
    assert set(outcome.hosts) >= set(NAMES)
    for name, node in hosts.items():
        assert "ii" in node.packages()[VICTIM], name


def test_then_nothing_changes_on_any_of_them_and_each_costs_the_same(together, play):
    outcome = play("gpu-node.yml").expect_success()
    assert {name: outcome.changed(name) for name in NAMES} == {name: [] for name in NAMES}
    counts = {outcome.hosts[name]["modules"] for name in NAMES}
    assert len(counts) == 1
    assert max(counts) <= 12
