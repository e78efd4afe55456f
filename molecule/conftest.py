"""What the tests of all scenarios use: the nodes over ssh, plays against them, and the scenario's own lock.

molecule runs these tests as its verifier, with its own inventory and environment; ``play`` runs the committed playbooks
against the same hosts and returns what the record of the run says.
"""

from __future__ import annotations

import copy
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

MOLECULE = Path(__file__).resolve().parent
sys.path.insert(0, str(MOLECULE / "shared"))

import nodes as machines  # noqa: E402  the folder is known from here on

REPOSITORY = MOLECULE.parent
PLAYBOOKS = Path(os.environ.get("PROVISION_PLAYBOOKS", REPOSITORY / "playbooks"))
RECORDS = Path(os.environ.get("PROVISION_MOLECULE_RECORDS", "/tmp/provision-molecule-records"))  # noqa: S108
_SSH = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
_SSH += ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a playbook: exit status, all that it said, and its record by host."""

    status: int
    output: str
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def failures(self) -> str:
        """What failed, host by host, in one text."""
        return "\n".join(f"{name}: {text}" for name, row in self.hosts.items() for text in row["failed_tasks"])

    def changed(self, host: str) -> list[str]:
        """Return the tasks that changed a host."""
        return list(self.hosts[host]["changed_tasks"])

    def expect_success(self) -> Outcome:
        """Return itself, or fail the test with the end of what was said."""
        assert self.status == 0, f"exit status {self.status}\n{self.failures}\n{self.output[-6000:]}"
        return self


class Node:
    """A node, by its name in molecule.yml."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def instance(self) -> dict[str, Any]:
        """Where it is; asked anew each time, as a node that was restarted moves."""
        return next(each for each in machines.instances() if each["instance"] == self.name)

    @property
    def ssh(self) -> list[str]:
        """The words that reach it."""
        at = self.instance
        return ["ssh", *_SSH, "-i", at["identity_file"], "-p", str(at["port"]), f"root@{at['address']}"]

    def run(self, script: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a shell script on it, whatever its exit status."""
        words = [*self.ssh, shlex.join(["sh", "-c", script, "sh", *arguments])]
        return subprocess.run(words, check=False, capture_output=True, text=True, **settings)

    def say(self, script: str, *arguments: str) -> str:
        """Run a shell script on it that must succeed and return what it printed."""
        done = self.run(script, *arguments)
        assert done.returncode == 0, f"{self.name}: `{script}` ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def read(self, path: str) -> str:
        """Return a file's text."""
        done = self.run('cat "$1"', path)
        assert done.returncode == 0, f"{self.name}: {done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file, folders included."""
        done = self.run('mkdir -p "${1%/*}" && cat >"$1"', path, input=text)
        assert done.returncode == 0, done.stderr

    def has(self, path: str) -> bool:
        """Tell whether something is there, dangling links included."""
        return self.run('test -e "$1" || test -L "$1"', path).returncode == 0

    def tree(self, *, residue: bool = False) -> dict[str, str]:
        """Return path → mode, owner and digest of everything that a change would show in."""
        program = (MOLECULE / "shared/tree.py").read_text(encoding="utf-8")
        words = [*self.ssh, "python3", "-", *(["--residue"] if residue else [])]
        done = subprocess.run(words, check=False, capture_output=True, text=True, input=program)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def packages(self) -> dict[str, str]:
        """Return installed package → version and status."""
        listed = self.say("dpkg-query -W -f '${Package}:${Architecture}|${db:Status-Abbrev}|${Version}\\n'")
        rows = (line.split("|") for line in listed.splitlines())
        return {name: f"{status.strip()} {version}" for name, status, version in rows}

    def services(self) -> dict[str, str]:
        """Return running service → when it was started and by which process; timers' own services come and go."""
        shown = self.say(
            "systemctl show --property=Id,ExecMainStartTimestampMonotonic,MainPID"
            " $(systemctl list-units --type=service --state=running --no-legend --plain | cut -d' ' -f1)"
        )
        rows = [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.split("\n\n") if block]
        return {
            row["Id"]: f"{row['ExecMainStartTimestampMonotonic']} {row['MainPID']}"
            for row in rows
            if not row["Id"].startswith(
                ("user", "session", "ssh@", "apt-daily", "systemd-hostnamed", "systemd-timedated")
            )
        }


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what differs between two trees or lists, one readable line each."""
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [f"{path}: {before.get(path, 'absent')} → {after.get(path, 'absent')}" for path in paths]


@pytest.fixture(scope="session")
def difference() -> Callable[[Mapping[str, str], Mapping[str, str]], list[str]]:
    """What differs between two trees or lists, one line each."""
    return compare


def inventories() -> list[str]:
    """Return the flags that name molecule's inventory and the scenario's."""
    folder = machines.ephemeral()
    return ["-i", str(folder / "inventory"), "-i", str(folder / "site")]


@pytest.fixture(scope="session")
def node_named() -> Callable[[str], Node]:
    """A node by its name."""
    return Node


@pytest.fixture(scope="session")
def gpu_node() -> Node:
    """The first node of the group gpu_nodes."""
    return Node(next(each["name"] for each in machines.platforms() if "gpu_nodes" in each.get("groups", ())))


@pytest.fixture(scope="session")
def scenario_folder() -> Path:
    """Where the scenario lies."""
    return Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])


@pytest.fixture(scope="session")
def node_lock() -> dict[str, Any]:
    """The lock that the plays of this scenario read."""
    own = machines.ephemeral() / "site/group_vars/gpu_nodes/provision_lock.yml"
    path = own if own.exists() else PLAYBOOKS / "group_vars/all/provision_lock.yml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["provision_lock"])


SYSTEMS = {"bookworm": "debian12", "trixie": "debian13", "jammy": "ubuntu22.04", "noble": "ubuntu24.04"}


@pytest.fixture(scope="session")
def site_vars() -> dict[str, Any]:
    """The variables that the scenario gives the group gpu_nodes."""
    path = machines.ephemeral() / "site/group_vars/gpu_nodes/scenario.yml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.exists() else {}


def vars_of(name: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of one node: the group's, beaten by its own."""
    path = machines.ephemeral() / f"site/host_vars/{name}.yml"
    own = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {**shared, **own}


def profile_of(name: str, lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a lock for a node's release."""
    release = next(each["release"] for each in machines.platforms() if each["name"] == name)
    return dict(lock["profiles"][SYSTEMS[release]])


@pytest.fixture
def node(host: Any) -> Node:
    """The node that testinfra looks at."""
    return Node(host.backend.host)


@pytest.fixture
def profile(node: Node, node_lock: dict[str, Any]) -> dict[str, Any]:
    """The part of the lock for that node."""
    return profile_of(node.name, node_lock)


@dataclass(frozen=True, slots=True)
class Driver:
    """What the scenario promises of a node's driver."""

    version: str
    packages: Mapping[str, str | None]
    followers: frozenset[str]
    """Those of them that go with the kernel: the lock gives them no version, and an upgrade may move them."""
    module: str
    license: str
    dkms_name: str | None


@pytest.fixture
def driver(node: Node, profile: dict[str, Any], site_vars: dict[str, Any]) -> Driver:
    """The driver that this node must have; the version of a package is None where the archive has moved on."""
    wanted = vars_of(node.name, site_vars)
    section = profile["driver"]
    flavour = wanted.get("gpu_driver_flavour", "auto")
    if flavour == "auto":
        state = json.loads(node.read("/var/lib/provision/state.json"))
        flavour = find_key(state, "flavour") or next(iter(section["flavours"]))
    kind = section["flavours"][flavour]
    is_moved = "gpu_driver_version" in wanted
    rows = [*kind["packages"], *section["profiles"][wanted.get("gpu_driver_profile", "compute")]]
    named = {row["name"].replace("{kernel_flavour}", "generic"): row["version"] for row in rows}
    packages = {name: None if is_moved else version for name, version in named.items()}
    followers = frozenset(name for name, version in named.items() if not version)
    version = str(wanted.get("gpu_driver_version", section["version"]))
    return Driver(version, packages, followers, kind["module"], kind["license"], kind.get("dkms_name"))


def find_key(document: Any, key: str) -> Any:
    """Return the first value of a key anywhere in a document, or None."""
    if isinstance(document, Mapping):
        if key in document:
            return document[key]
        document = list(document.values())
    if isinstance(document, list):
        for part in document:
            if (found := find_key(part, key)) is not None:
                return found
    return None


def run_play(
    playbook: str, *flags: str, during: Callable[[Callable[[], bool]], None] | None = None, **variables: Any
) -> Outcome:
    """Run a committed playbook against the scenario's hosts.

    Args:
        playbook: Its name in ``playbooks/``, or a path.
        flags: More words for ansible-playbook, such as ``--check``.
        during: Called once while the play runs, with what tells whether it still does; it decides itself when to act.
        variables: Extra variables, which beat everything else.
    """
    path = Path(playbook) if "/" in playbook else PLAYBOOKS / playbook
    extra = ["--extra-vars", json.dumps(variables)] if variables else []
    seen = set(RECORDS.glob("[0-9]*.json"))
    words = ["ansible-playbook", *inventories(), *extra, *flags, str(path)]
    started = time.monotonic()
    log = RECORDS / "plays.log"
    RECORDS.mkdir(parents=True, exist_ok=True)
    # Assertions read the output, where molecule would have it in colours.
    plain = {name: value for name, value in os.environ.items() if name != "ANSIBLE_FORCE_COLOR"}
    # A file takes all that is said while `during` waits; a pipe that nobody reads would stop the play.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(
            words,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**plain, "ANSIBLE_NOCOLOR": "1"},
        ) as process,
    ):
        if during is not None:
            during(lambda: process.poll() is None)
        process.wait()
        said.seek(0)
        output = said.read()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {shlex.join(words)}\n{output}\n")
    new = sorted(set(RECORDS.glob("[0-9]*.json")) - seen)
    hosts = json.loads(new[-1].read_text(encoding="utf-8"))["hosts"] if new else {}
    return Outcome(process.returncode, output, hosts, time.monotonic() - started)


@pytest.fixture(scope="session")
def altered_lock(node_lock: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Write an altered copy of the lock: ``play("gpu-node.yml", "-e", altered_lock(change))``."""
    import inventory as sites

    def write(change: Callable[[dict[str, Any]], None], *, is_digested: bool = True) -> str:
        lock = copy.deepcopy(node_lock)
        change(lock)
        if is_digested:
            lock["digest"] = sites.lock_digest(lock)
        path = tmp_path_factory.mktemp("lock") / "lock.yml"
        sites.dump(path, {"provision_lock": lock})
        return f"@{path}"

    return write


class Breaker:
    """Ways to harm a node from outside, as a rack or a network would."""

    def __init__(self, node: Node) -> None:
        if machines.engine() != "docker":
            pytest.skip("harming a node from outside takes a container engine")
        self.node, self.container = node, machines.container(node.name)

    def kill(self) -> None:
        """Take the power away."""
        machines.run(["docker", "kill", self.container])

    def start(self) -> None:
        """Give it back; the node may have moved."""
        machines.run(["docker", "start", self.container])
        self.follow()

    def freeze(self) -> None:
        """Stop all that runs on it where it is: nothing is lost and nobody gets an answer."""
        machines.run(["docker", "pause", self.container])

    def thaw(self) -> None:
        """Let it go on."""
        machines.run(["docker", "unpause", self.container])

    def unplug(self) -> None:
        """Take the network away."""
        machines.run(["docker", "network", "disconnect", "-f", "bridge", self.container])

    def plug(self) -> None:
        """Give it back; the node may have moved."""
        machines.run(["docker", "network", "connect", "bridge", self.container])
        self.follow()

    def follow(self) -> None:
        """Write down where the node is now, for molecule and for Ansible."""
        rows = machines.instances()
        old = next(row["address"] for row in rows if row["instance"] == self.node.name)
        new = machines.located(self.node.name)
        machines.write_instances([new if row["instance"] == self.node.name else row for row in rows])
        path = machines.ephemeral() / "inventory/ansible_inventory.yml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f"ansible_host: {old}\n", f"ansible_host: {new['address']}\n"), encoding="utf-8")


@pytest.fixture(scope="session")
def breaker() -> Callable[[Node], Breaker]:
    """What harms a node: ``breaker(gpu_node).kill()``."""
    return Breaker


def wait_until(question: Callable[[], bool], seconds: float = 120) -> bool:
    """Ask again and again; tell whether it became true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if question():
            return True
        time.sleep(0.5)
    return False


@pytest.fixture(scope="session")
def wait() -> Callable[..., bool]:
    """Wait for something that a play does meanwhile."""
    return wait_until


@pytest.fixture(scope="session")
def play() -> Callable[..., Outcome]:
    """Run a playbook: ``play("gpu-node.yml", "--check", gpu_driver_flavour="open")``."""
    return run_play


@pytest.fixture(scope="session")
def converged() -> Outcome:
    """What the record of the scenario's own converge says; that a node was in it is what the first test asserts."""
    paths = sorted([*RECORDS.glob("[0-9]*-gpu-node.json"), *RECORDS.glob("[0-9]*-gpu-monitoring.json")])
    assert paths, "no converge left a record"
    record = json.loads(paths[0].read_text(encoding="utf-8"))
    return Outcome(0, "", record["hosts"], record["seconds"])


# The report that the runner reads: a scenario that lost its tests is red, not green.

_REPORT: dict[str, Any] = {"collected": 0, "passed": 0, "failed": 0, "skipped": []}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many tests there are."""
    _REPORT["collected"] = len(session.items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how each ended; a skip with its reason."""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _REPORT["skipped"].append(f"{report.nodeid.rpartition('::')[2]}: {reason.removeprefix('Skipped: ')}")
    elif report.failed:
        _REPORT["failed"] += 1
    elif report.when == "call":
        _REPORT["passed"] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write the report; each verify of a sequence leaves its own."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    number = len(list(RECORDS.glob("verify-*.json"))) + 1
    (RECORDS / f"verify-{number}.json").write_text(json.dumps(_REPORT, indent=1) + "\n", encoding="utf-8")
