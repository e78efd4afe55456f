"""Every exporter is scraped under the name of its node, over TLS and with a password, and nobody else gets anything."""

import ipaddress
import json
import os
from pathlib import Path

import durations
import pytest
import surroundings

NODES = ("one", "two")
PORTS = {"node": 9100, "icmp": 9115, "gpu": 9400}
FOLDER = "/etc/provision/monitoring"
PATIENCE = 120
# Asks an address from the monitor, where authority and password are. `-` is the password that the play made.
ASK = f"""
import base64, ssl, sys, urllib.error, urllib.request
address, user, password = sys.argv[1:]
if password == "-":
    password = open("{FOLDER}/password").read().strip()
request = urllib.request.Request(address)
if user:
    request.add_header("Authorization", "Basic " + base64.b64encode((user + ":" + password).encode()).decode())
context = ssl.create_default_context(cafile="{FOLDER}/ca.crt")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}), urllib.request.HTTPSHandler(context=context))
try:
    print(opener.open(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture(scope="module")
def ask(monitor):
    """Return the status of an answer, verified by the authority that the play made."""

    def ask(address, user="", password=""):
        return int(monitor.say('python3 -c "$@"', ASK, address, user, password))

    return ask


@pytest.fixture(scope="module", params=[(node, job) for node in NODES for job in PORTS], ids="-".join)
def exporter(request, node_named):
    """Where one exporter answers, without the scheme."""
    name, job = request.param
    return f"{node_named(name).instance['address']}:{PORTS[job]}/metrics"


def test_the_play_had_every_host(converged):
    assert set(converged.hosts) == {"monitor", *NODES}


def test_every_target_answers_under_the_name_of_its_node(servers, wait):
    wanted = {node: dict.fromkeys(PORTS, "up") for node in NODES}
    assert wait(lambda: {node: servers.health(node=node) for node in NODES} == wanted, PATIENCE), servers.targets()
    assert {row["labels"]["node"] for row in servers.targets()} == {"monitor", *NODES}


def test_every_series_of_the_fleet_carries_the_node_that_it_is_of(servers):
    assert servers.series('{job=~"gpu|node|icmp", node=""}') == []
    for job in PORTS:
        assert {row["node"] for row in servers.series(f'count by (node) ({{job="{job}"}})')} == set(NODES), job


def test_both_ways_to_gpu_metrics_give_the_series_that_rules_ask_for(servers, wait):
    """One node has a package of the GPU exporter, the other nvidia-smi alone."""
    for series in ("gpu:activity:percent", "gpu:memory_used:mebibytes", "gpu:temperature:celsius"):
        wanted = {(node, gpu) for node in NODES for gpu in "01"}
        assert wait(lambda: {(row["node"], row["gpu"]) for row in servers.series(series)} == wanted, PATIENCE), series  # noqa: B023


def test_nodes_are_asked_over_tls(servers):
    fleet = [row for row in servers.targets() if row["labels"]["node"] in NODES]
    assert len(fleet) >= len(NODES) * len(PORTS)
    assert {row["scrapeUrl"].partition(":")[0] for row in fleet} == {"https"}


def test_the_password_of_the_play_is_let_in(ask, exporter):
    assert ask(f"https://{exporter}", "provision", "-") == 200


@pytest.mark.parametrize(("user", "password"), [("", ""), ("provision", "wrong"), ("other", "-")])
def test_a_wrong_password_is_refused(ask, exporter, user, password):
    assert ask(f"https://{exporter}", user, password) == 401


def test_plain_http_is_refused(ask, exporter):
    assert ask(f"http://{exporter}", "provision", "-") == 400


@pytest.mark.parametrize("name", ["monitor", *NODES])
def test_nothing_listens_beyond_loopback_and_the_address_in_the_fleet(node_named, name):
    node = node_named(name)
    own = node.instance["address"]
    found = {row.split()[4].rpartition(":")[::2] for row in node.say("ss -Hltun").splitlines()}
    reached = {(address.strip("[]").partition("%")[0], port) for address, port in found if port != "22"}
    wide = sorted((address, port) for address, port in reached if not is_narrow(address, own))
    assert wide == []
    served = {int(port) for address, port in reached if address == own}
    assert served == (set() if name == "monitor" else set(PORTS.values()))


def is_narrow(address, own):
    """Tell whether only this host, or only its fleet, reaches an address."""
    return address == own or (address != "*" and ipaddress.ip_address(address).is_loopback)


def test_the_rules_are_the_committed_ones_in_a_shorter_time(monitor, servers, scenario_said):
    committed = (surroundings.playbooks() / "roles/gpu_prometheus/files/provision-gpu.rules.yml").read_text()
    loaded = monitor.read(f"{FOLDER}/rules/provision-gpu.rules.yml")
    assert loaded == durations.shorten_text(committed, scenario_said["factor"])
    groups = servers.ask("rules")["groups"]
    assert len(groups) > 5
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if "lastError" in rule
    ] == []


def test_secrets_are_readable_for_those_alone_who_need_them(monitor, node_named):
    files = {node: [f"{FOLDER}/node.key", f"{FOLDER}/web.yml"] for node in map(node_named, NODES)}
    files[monitor] = [f"{FOLDER}/password", f"{FOLDER}/alertmanager.yml"]
    for node, paths in files.items():
        for path in paths:
            assert node.say('stat -c "%a %U %G" "$1"', path) == "640 root provision-monitoring", (node.name, path)
    assert monitor.say(f"stat -c '%a %U' {FOLDER}/authority/ca.key") == "600 root"


@pytest.fixture(scope="module")
def again(monitor, node_named, play):
    """A second run, with the services of each host before and after."""
    hosts = {"monitor": monitor, **{name: node_named(name) for name in NODES}}
    before = {name: node.services() for name, node in hosts.items()}
    outcome = play("gpu-monitoring.yml", "--diff")
    return outcome, before, {name: node.services() for name, node in hosts.items()}


@pytest.mark.parametrize("name", ["monitor", *NODES])
def test_a_second_run_changes_nothing(again, name):
    assert again[0].expect_success().changed(name) == []


@pytest.mark.parametrize("name", ["monitor", *NODES])
def test_a_second_run_restarts_nothing(again, name, difference):
    assert "ssh.service" in again[1][name]
    # What a timer starts again and again comes and goes.
    assert [row for row in difference(again[1][name], again[2][name]) if "textfile" not in row] == []


def test_no_secret_is_shown_by_a_run(again, monitor):
    password = monitor.read(f"{FOLDER}/password").strip()
    assert len(password) > 12
    records = Path(os.environ["PROVISION_MOLECULE_RECORDS"])
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in [*records.iterdir(), records.parent / "molecule.log"]
        if path.is_file()
    }
    assert json.loads(next(text for name, text in texts.items() if name.endswith("gpu-monitoring.json")))["hosts"]
    for name, text in texts.items():
        assert password not in text, name
        assert "$2b$" not in text, name
