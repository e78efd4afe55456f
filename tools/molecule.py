"""Run Molecule scenarios, and believe a green one only when hosts and tests were really there.

::

    tools/molecule.py default check-mode faults
    tools/molecule.py --all --json molecule.json
    tools/molecule.py --emptied gpu_nccl default      # the scenario must turn red without that role's tasks
    tools/molecule.py --prove-red drift remove        # the same for every role that `emptied` in scenario.yml names
    tools/molecule.py --again default                 # what failed runs once more; both runs are shown
    tools/molecule.py --ansible-core newest default   # on a Python that the newest ansible-core takes

Molecule itself calls a play without hosts and a verifier without tests successful. Here each scenario says in
``scenario.yml`` which hosts its converge must have and how many tests it has at least; less is a failure. Logs go to
one folder a scenario.

Exit status: 0 all passed or were skipped with a reason, or turned red where they had to; 2 wrong usage, 5 a scenario
failed, or stayed green without a role, 7 no way to boot a node or no molecule.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
SCENARIOS = REPOSITORY / "molecule"
FIRST = "default"
"""It leaves the image that others start from."""
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_PLAYBOOKS = ("gpu-node", "gpu-monitoring", "gpu-slurm")
"""What the names of the committed playbooks begin with; others only make the nodes."""
_NEWEST = ("ansible-core>=2.20", "molecule>=26", "pytest-testinfra>=10", "pytest>=9", "pyyaml>=6", "rich>=13")
_MINUTES = 60
_SHOWN_LINES = 60
_ERRORS = re.compile(r"E  |fatal: |\S+ FAILED|ERROR|CRITICAL")
"""Lines of the log that say what went wrong; the log itself stays where a run of CI cannot show it."""
LEAST_PYTHON = (3, 12)
"""What the newest ansible-core runs on."""


class MissingError(Exception):
    """Something that a run needs is not on this machine; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a scenario ended."""

    scenario: str
    status: str
    seconds: float
    passed: int = 0
    collected: int = 0
    reasons: tuple[str, ...] = ()
    skipped_tests: tuple[str, ...] = ()
    remote_executions: Mapping[str, int] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a scenario turned red without the tasks of a role."""

    scenario: str
    role: str
    is_red: bool
    seconds: float
    why: str
    failed_tests: tuple[str, ...] = ()
    log: str = ""
    is_skipped: bool = False
    """The scenario could not run here, so that nothing is known."""


def list_scenarios(folder: Path = SCENARIOS) -> list[str]:
    """Return the scenarios, the one that others start from first."""
    names = sorted(path.parent.name for path in folder.glob("*/molecule.yml"))
    return sorted(names, key=lambda name: (name != FIRST, name))


def read_said(scenario: str, folder: Path = SCENARIOS) -> dict[str, Any]:
    """Return what a scenario promises of itself.

    Raises:
        ValueError: It does not say which hosts and how many tests it has.
    """
    path = folder / scenario / "scenario.yml"
    said = dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    if not said.get("hosts") or not isinstance(said.get("tests"), int) or said["tests"] < 1:
        raise ValueError(f"{path}: `hosts` (names that converge must have) and `tests` (their least number) are needed")
    return said


def read_pairs(scenarios: Iterable[str], folder: Path = SCENARIOS) -> list[tuple[str, str]]:
    """Return each scenario with each role without whose tasks it says it turns red.

    Raises:
        ValueError: One names no role.
    """
    pairs: list[tuple[str, str]] = []
    for scenario in scenarios:
        roles = read_said(scenario, folder).get("emptied")
        if not isinstance(roles, list) or not roles or not all(isinstance(role, str) for role in roles):
            path = folder / scenario / "scenario.yml"
            raise ValueError(f"{path}: `emptied` is needed, a list of roles without whose tasks it turns red")
        pairs += [(scenario, role) for role in roles]
    return pairs


def judge_red(role: str, result: Result, records: Path) -> Proof:
    """Say whether a run without the tasks of a role failed as it had to.

    A scenario that never came as far as a play or a test failed for another reason, and that proves nothing.

    Args:
        role: The emptied role.
        result: How the run ended.
        records: Folder with the records of its plays and tests.
    """
    log = Path(result.log)
    text = log.read_text(encoding="utf-8", errors="replace") if result.log and log.exists() else ""
    failed = tuple(dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) \S*?::(.+?)(?: - .*)?$", text, re.MULTILINE)))
    plays = [play for play in read_records(records, "[0-9]*.json") if play["playbook"].startswith(_PLAYBOOKS)]
    is_red = result.status == FAILED and any(play["hosts"] for play in plays)
    if is_red:
        tests = sum(report["failed"] for report in read_records(records, "verify-*.json"))
        why = f"{tests} tests failed" if tests else f"the play failed{_first_failure(plays)}"
    elif result.status == FAILED:
        why = f"it broke before any play: {'; '.join(result.reasons)}"
    else:
        why = "; ".join(["skipped", *result.reasons]) if result.status == SKIPPED else "it stayed green"
    is_skipped = result.status == SKIPPED
    return Proof(result.scenario, role, is_red, result.seconds, why, failed, result.log, is_skipped)


def _first_failure(plays: Iterable[Mapping[str, Any]]) -> str:
    """Return where the first play that failed did, and its first lines: they tell whether the role was the reason."""
    for play in plays:
        for name, row in sorted(play["hosts"].items()):
            if row.get("failed_tasks"):
                lines = row["failed_tasks"][0].splitlines()
                return f" on {name}, {' '.join(line.strip() for line in lines[:2])[:200]}"
    return ""


def read_records(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Return the records of a run in their order."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(pattern))]


def judge_run(status: int, records: Path, said: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Say whether a run passed, and every reason why not.

    Args:
        status: Exit status of molecule.
        records: Folder with the records of its plays and tests.
        said: What the scenario promises, as ``read_said`` returns it.

    Returns:
        ``passed``, ``failed`` or ``skipped``, and the reasons.
    """
    note = records / "skipped.txt"
    if note.exists():
        return SKIPPED, (note.read_text(encoding="utf-8").strip(),)
    reasons = [f"molecule ended with {status}"] if status else []
    plays = [play for play in read_records(records, "[0-9]*.json") if play["playbook"].startswith(_PLAYBOOKS)]
    if not plays:
        reasons.append("no play of the committed playbooks left a record")
    else:
        reasons += [f"{play['playbook']} ran on no host" for play in plays if not play["hosts"]]
        if absent := sorted(set(said["hosts"]) - set(plays[0]["hosts"])):
            reasons.append(f"the first play did not have {', '.join(absent)}")
    tests = read_records(records, "verify-*.json")
    collected = sum(report["collected"] for report in tests)
    if collected < said["tests"]:
        reasons.append(f"{collected} tests were found, {said['tests']} or more are there")
    failed = sum(report["failed"] for report in tests)
    if failed:
        reasons.append(f"{failed} tests failed")
    if not reasons and tests and not any(report["passed"] for report in tests):
        return SKIPPED, tuple(reason for report in tests for reason in report["skipped"])
    return (FAILED if reasons else PASSED), tuple(reasons)


def count_remote(records: Path) -> dict[str, int]:
    """Return host → remote executions of the last play that changed nothing, which is the promise that is kept."""
    for play in reversed(read_records(records, "[0-9]*.json")):
        hosts = play["hosts"]
        is_still = hosts and all(not row["changed"] and not row["failures"] for row in hosts.values())
        if play["playbook"].removesuffix(".yml") in _PLAYBOOKS and is_still:
            return {name: row["modules"] for name, row in hosts.items()}
    return {}


def empty_role(role: str, target: Path, playbooks: Path = REPOSITORY / "playbooks") -> Path:
    """Copy the playbooks with every task of a role taken out, and return the copy.

    Raises:
        ValueError: There is no such role.
    """
    if not (playbooks / "roles" / role / "tasks").is_dir():
        known = ", ".join(sorted(path.name for path in (playbooks / "roles").iterdir()))
        raise ValueError(f"`{role}` is not a role; there are {known}")
    shutil.copytree(playbooks, target, symlinks=True)
    for path in (target / "roles" / role / "tasks").glob("*.yml"):
        path.write_text("---\n[]\n", encoding="utf-8")
    return target


def choose_engine(environment: Mapping[str, str]) -> str:
    """Return how nodes are booted here.

    Raises:
        MissingError: Neither an engine nor systemd-nspawn can be used.
    """
    words = [sys.executable, str(SCENARIOS / "shared/nodes.py"), "engine"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=dict(environment))
    if done.returncode:
        raise MissingError(done.stderr.strip().removeprefix("error: "))
    return done.stdout.strip()


def find_python(least: tuple[int, int] = LEAST_PYTHON) -> str:
    """Return an interpreter that the newest ansible-core takes: this one, on PATH, or where version managers put them.

    Raises:
        MissingError: There is none.
    """
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    places += [*Path.home().glob(".pyenv/versions/*/bin"), *Path.home().glob(".local/share/uv/python/*/bin")]
    candidates = [Path(sys.executable)]
    for minor in range(20, least[1] - 1, -1):
        candidates += [path for place in places if (path := place / f"python3.{minor}").exists()]
    code = f"import sys, venv, ensurepip, ssl; sys.exit(sys.version_info < {least})"
    for path in candidates:
        if not subprocess.run([str(path), "-c", code], check=False, capture_output=True).returncode:
            return str(path)
    raise MissingError(
        f"the newest ansible-core wants Python {least[0]}.{least[1]} or newer with venv and ssl, and none was found"
    )


def make_newest(folder: Path) -> Path:
    """Make a virtual environment with the newest ansible-core and return its programs' folder."""
    programs = folder / "bin"
    if not (programs / "molecule").exists():
        print(f"making {folder} with the newest ansible-core", file=sys.stderr)
        subprocess.run([find_python(), "-m", "venv", str(folder)], check=True)
        subprocess.run([str(programs / "pip"), "install", "-q", *_NEWEST], check=True)
    return programs


def choose_programs(asked: str) -> Path:
    """Return the folder of ansible-playbook and molecule.

    Raises:
        MissingError: They are not there.
    """
    if asked == "newest":
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        folder = make_newest(cache / "provision-molecule/ansible-core-newest")
    else:
        folder = Path(asked or os.environ.get("ANSIBLE_BIN", "") or Path(sys.executable).parent)
    for name in ("ansible-playbook", "molecule", "pytest"):
        if not (folder / name).exists():
            raise MissingError(f"{folder} has no {name}: `make dev` puts it into .venv")
    return folder


def run_scenario(scenario: str, logs: Path, programs: Path, extra: Mapping[str, str]) -> Result:
    """Run one scenario from nothing to nothing and judge it.

    Args:
        scenario: Its name.
        logs: Folder for logs and records; the scenario's own part of it is emptied first.
        programs: Folder of molecule and Ansible.
        extra: More environment variables.
    """
    said = read_said(scenario)
    folder = logs / scenario
    shutil.rmtree(folder, ignore_errors=True)
    records = folder / "records"
    records.mkdir(parents=True)
    log = folder / "molecule.log"
    # A short path: ssh's control sockets have little room.
    work = Path(tempfile.mkdtemp(prefix="pvm-"))
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(work),
        "PROVISION_MOLECULE_RECORDS": str(records),
        "NO_COLOR": "1",
        **extra,
    }
    base = ["molecule", "--base-config", str(REPOSITORY / ".config/molecule/config.yml")]
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        limit = 60 * said.get("minutes", _MINUTES)
        try:
            words = [str(programs / base[0]), *base[1:], "test", "-s", scenario]
            status = subprocess.run(
                words,
                check=False,
                cwd=REPOSITORY,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
            file.write(f"\nit took longer than {limit} seconds\n")
        finally:
            # Whatever ended it, no node stays behind.
            words = [str(programs / base[0]), *base[1:], "destroy", "-s", scenario]
            subprocess.run(words, check=False, cwd=REPOSITORY, env=environment, stdout=file, stderr=subprocess.STDOUT)
    shutil.rmtree(work, ignore_errors=True)
    verdict, reasons = judge_run(status, records, said)
    tests = read_records(records, "verify-*.json")
    return Result(
        scenario,
        verdict,
        round(time.monotonic() - started, 1),
        sum(report["passed"] for report in tests),
        sum(report["collected"] for report in tests),
        reasons,
        tuple(reason for report in tests for reason in report["skipped"]),
        count_remote(records),
        str(log),
    )


def read_errors(log: Path, most: int = _SHOWN_LINES) -> str:
    """Return what a log says of failures: what tests asserted and tasks that failed, the first ``most`` lines of it."""
    said = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join([line for line in said if _ERRORS.match(line)][:most] or said[-most:])


def write_table(results: Iterable[Result]) -> str:
    """Return scenario, result, time, tests and remote executions in columns, with the reasons below each."""
    lines = [f"{'scenario':18} {'result':8} {'seconds':>8} {'tests':>9} {'remote executions of a second run'}"]
    for result in results:
        tests = f"{result.passed}/{result.collected}"
        remote = ", ".join(f"{name} {count}" for name, count in sorted(result.remote_executions.items())) or "-"
        lines.append(f"{result.scenario:18} {result.status:8} {result.seconds:8.1f} {tests:>9} {remote}")
        lines += [f"    {reason}" for reason in result.reasons]
        lines += [f"    test skipped: {reason}" for reason in result.skipped_tests]
        if result.status == FAILED:
            lines.append(f"    log: {result.log}")
    return "\n".join(lines)


def write_proofs(proofs: Iterable[Proof]) -> str:
    """Return scenario, role, verdict and time in columns, with what failed below each."""
    lines = [f"{'scenario':18} {'without':22} {'verdict':8} {'seconds':>8} why"]
    for proof in proofs:
        verdict = "red" if proof.is_red else "skipped" if proof.is_skipped else "NOT RED"
        lines.append(f"{proof.scenario:18} {proof.role:22} {verdict:8} {proof.seconds:8.1f} {proof.why}")
        lines += [f"    {test}" for test in proof.failed_tests]
        if not proof.is_red:
            lines.append(f"    log: {proof.log}")
    return "\n".join(lines)


def prove_red(names: Sequence[str], asked: argparse.Namespace) -> int:
    """Run each scenario without each role that it names, and print which turned red; return the exit status.

    Nodes begin as the scenario has them, so that one that starts from what `default` left needs no new compilation.
    What such a node has from the role already proves nothing of it: the scenario takes that away first (``files`` in
    its scenario.yml). A scenario that cannot run here is named, and neither proves nor fails.
    """
    pairs = read_pairs(names)
    programs, document = _start(asked)
    extra = {"PROVISION_MOLECULE_FRESH": "1"} if asked.fresh else {}
    proofs: list[Proof] = []
    for scenario, role in pairs:
        print(f"{scenario} without {role} …", file=sys.stderr, flush=True)
        logs = asked.logs / f"without-{role}"
        with tempfile.TemporaryDirectory(prefix="pvm-") as folder:
            extra["PROVISION_PLAYBOOKS"] = str(empty_role(role, Path(folder) / "playbooks"))
            result = run_scenario(scenario, logs, programs, extra)
        proofs.append(judge_red(role, result, logs / scenario / "records"))
        print(write_proofs(proofs[-1:]).split("\n", 1)[1], file=sys.stderr, flush=True)
        if asked.json:
            # After each, so that a break loses nothing.
            document["proofs"] = [asdict(proof) for proof in proofs]
            asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(write_proofs(proofs))
    return 0 if all(proof.is_red or proof.is_skipped for proof in proofs) else 5


def _start(asked: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Return the folder of programs, and what is said of every run."""
    programs = choose_programs(asked.ansible_core)
    kind = choose_engine(os.environ)
    version = subprocess.run(
        [str(programs / "ansible-playbook"), "--version"], capture_output=True, text=True, check=True
    )
    core = version.stdout.splitlines()[0]
    print(f"nodes: {kind}; {core}; logs: {asked.logs}", file=sys.stderr)
    return programs, {"engine": kind, "ansible": core}


def run_all(names: Sequence[str], asked: argparse.Namespace) -> int:
    """Run the scenarios one after the other and print the table; return the exit status."""
    extra: dict[str, str] = {}
    programs, document = _start(asked)
    if asked.fresh or asked.emptied:
        extra["PROVISION_MOLECULE_FRESH"] = "1"
    with tempfile.TemporaryDirectory(prefix="pvm-") as folder:
        if asked.emptied:
            extra["PROVISION_PLAYBOOKS"] = str(empty_role(asked.emptied, Path(folder) / "playbooks"))
        results = []
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            for attempt in range(2 if asked.again else 1):
                results.append(run_scenario(name, asked.logs, programs, extra))
                print(write_table(results[-1:]).split("\n", 1)[1], file=sys.stderr, flush=True)
                if results[-1].status != FAILED:
                    break
                print(read_errors(Path(results[-1].log)), file=sys.stderr, flush=True)
                if asked.again and not attempt:
                    print(f"{name} once more …", file=sys.stderr, flush=True)
    print(write_table(results))
    if asked.json:
        document |= {"emptied": asked.emptied, "results": [asdict(result) for result in results]}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if asked.emptied:
        green = [result.scenario for result in results if result.status != FAILED]
        if green:
            print(f"without the tasks of {asked.emptied} these did not turn red: {', '.join(green)}", file=sys.stderr)
        return 5 if green else 0
    last = {result.scenario: result.status for result in results}
    return 5 if FAILED in last.values() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="default: every scenario")
    parser.add_argument("--all", action="store_true", help="every scenario")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="the same as naming it")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    parser.add_argument(
        "--emptied", metavar="ROLE", help="take that role's tasks out; a scenario that stays green fails"
    )
    parser.add_argument(
        "--prove-red",
        action="store_true",
        help="run each scenario without each role of its `emptied`; one that stays green fails",
    )
    parser.add_argument(
        "--ansible-core", default="", metavar="newest|DIR", help="which Ansible; default: this Python's"
    )
    parser.add_argument(
        "--again", action="store_true", help="run a scenario that failed once more, and believe that run"
    )
    parser.add_argument("--fresh", action="store_true", help="start every node bare, not from what `default` left")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "provision-molecule", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    asked = parser.parse_args(arguments)
    known = list_scenarios()
    if asked.list:
        print("\n".join(known))
        return 0
    wanted = dict.fromkeys([*asked.scenarios, *asked.only])
    names = sorted(wanted, key=lambda name: name != FIRST) if wanted and not asked.all else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{shlex.join(unknown)}: no such scenario; there are {', '.join(known)}")
    if asked.prove_red and asked.emptied:
        parser.error("--prove-red takes the roles from scenario.yml, --emptied names one: give either")
    try:
        return prove_red(names, asked) if asked.prove_red else run_all(names, asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 7


def end_in_order() -> None:
    """Let SIGTERM end this as an exception does, so that no node and no machine stays behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
