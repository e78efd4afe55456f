"""The fleet changes while the servers run: nodes come and go, certificates go bad, a host freezes."""

import pytest
import surroundings

FOLDER = "/etc/provision/monitoring"
PATIENCE = 300
UNITS = ("prometheus.service", "prometheus-alertmanager.service")
GPUS = surroundings.GPUS
# Another key and a certificate that it has signed itself, for the right address.
SELF_SIGNED = f"""
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=other -addext "subjectAltName=IP:$1" \\
    -keyout /root/other.key -out /root/other.crt 2>/dev/null
cat /root/other.key >{FOLDER}/node.key && cat /root/other.crt >{FOLDER}/node.crt
"""
# The authority's own signature, over at the moment of signing. It is made on the monitor and put on the node.
EXPIRED = f"""
cd "$(mktemp -d)"
openssl req -newkey rsa:2048 -nodes -subj /CN=expired -keyout key -out request 2>/dev/null
printf 'subjectAltName=IP:%s\\n' "$1" >names
openssl x509 -req -days 0 -in request -CA {FOLDER}/authority/ca.crt -CAkey {FOLDER}/authority/ca.key \\
    -set_serial 7 -extfile names -out certificate 2>/dev/null
cat certificate key
"""


def running(monitor):
    """Return server → when it was started and by which process."""
    services = monitor.services()
    return {unit: services[unit] for unit in UNITS}


@pytest.fixture(scope="module")
def with_late(tmp_path_factory):
    """The flags that add one more node to the inventory."""
    path = tmp_path_factory.mktemp("more") / "hosts.yml"
    path.write_text("gpu_nodes: {hosts: {late: {}}}\n", encoding="utf-8")
    return ["-i", str(path)]


@pytest.fixture(scope="module")
def joined(healthy, monitor, node_named, play, with_late, show_gpus):
    """The run that brings the new node in, with the servers before and after."""
    show_gpus(node_named("late"), GPUS)
    before = running(monitor)
    outcome = play("gpu-monitoring.yml", "--diff", *with_late)
    return outcome, before, running(monitor)


def test_a_node_that_is_added_to_the_inventory_becomes_a_target(joined, servers, wait):
    joined[0].expect_success()
    wanted = dict.fromkeys(("node", "gpu", "icmp"), "up")
    assert wait(lambda: servers.health(node="late") == wanted, PATIENCE), servers.health(node="late")


def test_no_server_was_restarted_for_it(joined):
    assert joined[1] == joined[2]


def test_the_nodes_that_were_there_are_left_alone(joined):
    assert {name: joined[0].changed(name) for name in ("one", "two")} == {"one": [], "two": []}


def test_a_difference_shows_no_secret(joined, monitor):
    assert "gpu-textfile" in joined[0].output, "the difference of the new node was shown"
    assert monitor.read(f"{FOLDER}/password").strip() not in joined[0].output
    assert "$2b$" not in joined[0].output


def test_a_gpu_that_it_loses_is_told(joined, node_named, show_gpus, told, servers, wait):
    late, lost = node_named("late"), {"alertname": "GpuLost", "node": "late", "severity": "critical"}
    assert wait(lambda: len(servers.series('gpu:temperature:celsius{node="late"}')) == len(GPUS), PATIENCE)
    before = len(told.messages())
    show_gpus(late, GPUS[:1])
    assert wait(lambda: told.heard("firing", before, **lost) == {"default"}, PATIENCE)
    show_gpus(late, GPUS)
    assert wait(lambda: told.heard("resolved", before, **lost) == {"default"}, PATIENCE)


def test_a_node_that_left_the_inventory_is_no_target_and_no_alarm(joined, play, servers, told, wait):
    before = len(told.messages())
    play("gpu-monitoring.yml").expect_success()
    assert wait(lambda: servers.health(node="late") == {}, PATIENCE)
    assert told.heard("firing", before, alertname="NodeDown", node="late") == set()


@pytest.fixture(scope="module")
def bad_certificates(joined, node_named, monitor, told):
    """One node with a certificate of its own making, one with a certificate that is over; how many messages before."""
    before = len(told.messages())
    one, two = node_named("one"), node_named("two")
    one.say(SELF_SIGNED, one.instance["address"])
    certificate, key = monitor.say(EXPIRED, two.instance["address"]).split("-----BEGIN PRIVATE", 1)
    for path, text in ((f"{FOLDER}/node.crt", certificate), (f"{FOLDER}/node.key", f"-----BEGIN PRIVATE{key}\n")):
        done = two.run('cat >"$1"', path, input=text)
        assert done.returncode == 0, done.stderr
    for node in (one, two):
        # A line that is open already asks for no certificate.
        node.say("systemctl try-restart '*-exporter.service'")
    return before


@pytest.mark.parametrize(("name", "reason"), [("one", "unknown authority"), ("two", "expired")])
def test_a_bad_certificate_is_not_trusted(bad_certificates, servers, wait, name, reason):
    def refused():
        health = servers.health(node=name)
        return all(reason in health[job] for job in ("node", "gpu"))

    assert wait(refused, PATIENCE), servers.health(node=name)


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_bad_certificate_is_told(bad_certificates, told, wait, name):
    wanted = {"alertname": "NodeDown", "node": name}
    assert wait(lambda: told.heard("firing", bad_certificates, **wanted) == {"default"}, PATIENCE)


@pytest.fixture(scope="module")
def healed(bad_certificates, play):
    """The run that puts certificates right."""
    return play("gpu-monitoring.yml")


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_next_run_replaces_it(healed, bad_certificates, servers, told, wait, name):
    assert healed.expect_success().changed(name) != []
    wanted = dict.fromkeys(("node", "gpu", "icmp"), "up")
    assert wait(lambda: servers.health(node=name) == wanted, PATIENCE), servers.health(node=name)
    resolved = {"alertname": "NodeDown", "node": name}
    assert wait(lambda: told.heard("resolved", bad_certificates, **resolved) == {"default"}, PATIENCE)


def test_then_nothing_changes(healed, play):
    outcome = play("gpu-monitoring.yml").expect_success()
    assert {name: outcome.changed(name) for name in outcome.hosts} == {"monitor": [], "one": [], "two": []}


@pytest.fixture(scope="module")
def frozen(healed, node_named, breaker, told, servers, wait):
    """A host that answers nobody any more; how many messages there were before."""
    assert wait(lambda: servers.firing() == {"Watchdog"}, PATIENCE), servers.firing()
    before = len(told.messages())
    harm = breaker(node_named("two"))
    harm.freeze()
    yield before
    harm.thaw()


def test_a_host_that_is_down_is_told_once_and_not_for_each_exporter(frozen, servers, told, wait):
    exporter = {"alertname": "GpuExporterDown", "node": "two"}
    assert wait(lambda: told.heard("firing", frozen, alertname="NodeDown", node="two") == {"default"}, PATIENCE)
    assert wait(lambda: servers.silenced_by(**exporter) == ["NodeDown"], PATIENCE)
    assert servers.fires(**exporter)
    assert told.heard("firing", frozen, **exporter) == set()
