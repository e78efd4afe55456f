"""Verify that hosts, containers and images match their lock.

A target is this machine (the default), `ssh://host`, `docker://container`, `image://ref`, `kubectl://pod`, a host of an
Ansible inventory or, with --from, a bundle or a file that `provision doctor --help` lists. Each target is asked once;
all checks are evaluated here from its answer. --via asks the idle nodes of a Slurm or Ray cluster through it.

Expected values come from the lock, from --expect and from `provision_expect` in an inventory. A check that gets no
answer is reported as unknown, and an unknown check of high severity counts as failed. A missing GPU is skipped only if
no GPU is expected, as with `--gpus 0`.

The exit code is 0 when everything passed, 6 when a check failed, 7 when no target could be reached.

Examples:
  provision verify --lock provision.lock
  provision verify ssh://gpu001 ssh://gpu002 --lock provision.lock --gpus 8
  provision verify image://train:1 --lock train/provision.lock --with-gpus
  provision verify -i inventory --limit rack1 --level standard --html report.html
  provision verify --from gpu001.tar.gz --lock provision.lock
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, did_you_mean, parse_path
from provision.cli.request import read_matrix
from provision.cli.targets import (
    add_target_flags,
    collect_each,
    collect_options,
    expectations_of,
    has_targets,
    targets_of,
)
from provision.cli.text.verdict import show_checks, show_verdict
from provision.errors import MissingDependencyError, UsageError, VerificationFailedError, shown
from provision.files import read_text
from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.probe.catalogue import LEVELS, PROBES, probes_of
from provision.probe.clean import clean_line
from provision.probe.collect import PARALLEL
from provision.probe.output import Output as Answer
from provision.probe.snapshot import Shelf, Snapshot
from provision.records import replace
from provision.signals.expectation import Expectation, expect_stack, merge_expectation
from provision.signals.signal import SKIP
from provision.verify.engine import (
    REACH,
    SEVERITIES,
    Result,
    Verdict,
    choose_checks,
    compare_hosts,
    conclude,
    fleet_probes,
    unreached,
    verify_one,
)
from provision.verify.fleet import find_differences, read_traits
from provision.verify.report.document import count_statuses, read_report, write_document

if TYPE_CHECKING:
    from provision.cli.text.live import Board
    from provision.probe.compose import CollectOptions
    from provision.probe.targets import Target

_LOCK_BYTES_MAX = 16 * 1024 * 1024
_REPORT_BYTES_MAX = 1024 * 1024 * 1024
_GPUS_MAX = 1024
_PEERS_MAX = 16
_SCRAPE = "mon.scrape"
_LOCK_OF_NODES = re.compile(r'^\s*[{]?\s*"?provision_lock"?\s*:', re.MULTILINE)
_NO_GPU = ("gpu.pci.count", "gpu.smi.ok")
"""What fails, or has no answer, where there is no GPU at all."""
_MEASURING = {"--nccl-tests": "all_reduce_perf", "--nvbandwidth": "nvbandwidth"}
"""Flag → the program that it names, by the name of its option in ``CollectOptions``."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_target_flags(parser)
    group = parser.add_argument_group("through a scheduler")
    add_choice(
        group,
        "--via",
        ("slurm", "ray"),
        help="ask the idle nodes of a Slurm or Ray cluster; a TARGET is then a node of it, such as `n[1-9]` for Slurm",
    )
    add_value(group, "--partition", "NAME", "with --via slurm: only nodes of this partition")
    group = parser.add_argument_group("expected values")
    add_value(group, "--lock", "FILE", "provision.lock that the targets must match", parse_path)
    add_value(group, "--expect", "FILE", "TOML file with more expected values (`gpus = 8`)", parse_path)
    add_value(
        group,
        "--gpus",
        "N",
        "expected number of GPUs; 0 skips checks that need one",
        whole("--gpus", 0, _GPUS_MAX, example="8"),
    )
    group = parser.add_argument_group("checks")
    add_choice(group, "--level", LEVELS, default="quick", help="read only, run GPU work for seconds, or for minutes")
    group.add_argument("--deep", action="store_const", dest="level", const="deep", help="short for --level deep")
    add_switch(
        group, "--disruptive", "also run checks that disturb other programs (a reload of systemd)", dest="is_disruptive"
    )
    for flag, program in _MEASURING.items():
        add_value(
            group,
            flag,
            "PATH",
            f"path of `{program}` on the target, or of its source folder there, which is built for this run only",
        )
    add_value(group, "--only", "ID", "run only checks whose id starts with this; may be repeated", action="append")
    add_value(group, "--skip", "ID", "skip checks whose id starts with this; may be repeated", action="append")
    add_switch(group, "--list", "list the checks and exit", dest="is_list")
    group = parser.add_argument_group("output")
    add_choice(group, "--fail-on", SEVERITIES, default="medium", help="lowest severity that fails the run")
    add_switch(group, "--diff-fleet", "show where a target differs from the majority")
    add_value(group, "--junit", "FILE", "also write JUnit XML", parse_path)
    add_value(group, "--html", "FILE", "also write an HTML page", parse_path)
    add_value(group, "--prometheus", "FILE", "also write metrics for node_exporter", parse_path)
    add_value(group, "--merge", "REPORT", "merge JSON reports of other controllers", parse_path, action="append")
    add_switch(group, "--pytest", "run the checks as pytest tests with testinfra instead", dest="is_pytest")


def run(options: argparse.Namespace, output: Output) -> int:
    """Collect, judge, write down."""
    _check_reports(options)
    matrix = read_matrix(options)
    checks = choose_checks(matrix, options.level, only=options.only or (), without=options.skip or ())
    _check_names(matrix, [*(options.only or ()), *(options.skip or ())])
    if options.is_list:
        output.give(
            {"checks": [_check_document(check) for check in checks]}, show_checks(checks, output.terminal_columns())
        )
        return 0
    if not checks:
        raise UsageError("no check is left to ask", hints=("`provision verify --list` shows what a level has",))
    expected = _read_expectation(options)
    if expected.gpus == 0 and options.has_gpus is None:
        options.has_gpus = False
    if options.partition is not None and options.via != "slurm":
        raise UsageError("--partition has no effect without --via slurm", hints=("add `--via slurm`, or leave it out",))
    if options.is_pytest:
        if options.via is not None:
            raise UsageError("--pytest reaches hosts itself, and --via has a scheduler do it", hints=("leave one out",))
        from provision.cli.pytest_run import run_pytest

        return run_pytest(options, output)
    if options.merge and not has_targets(options):
        for flag in ("--lock", "--expect", "--gpus"):
            if getattr(options, flag[2:]) is not None:
                raise UsageError(
                    f"{flag} has no use where reports are only merged",
                    because=("their targets were judged when the reports were written",),
                    hints=("give it to the runs that write the reports",),
                )
        return _finish(_Round(matrix, checks, expected, options), options, output)
    this = _Round(matrix, checks, expected, options)
    this.per_target = {
        name: merge_expectation(expected, values, f"the inventory, host {name}")
        for name, values in expectations_of(options).items()
    }
    this.ask_prometheus()
    probes = _choose_probes(options)
    this.has_color = output.color != "never"
    show = this.show if len(targets_of(options)) > 1 else None
    peers = [target.host for target in targets_of(options) if target.kind == "ssh"]

    def adapt(target: Target, what: CollectOptions) -> CollectOptions:
        return _add_plan(what, this.plan_of(target.name), [host for host in peers if host != target.host])

    this.unreachable = collect_each(options, output, this.take, probes, show, adapt)
    this.measure_pairs(probes)
    return _finish(this, options, output)


def _choose_probes(options: argparse.Namespace) -> CollectOptions:
    """Return what to collect from every target."""
    return replace(
        collect_options(options),
        engine=options.engine or "docker",
        is_disruptive=options.is_disruptive,
        **_choose_programs(options),
    )


def _add_plan(what: CollectOptions, plan: Expectation, others: Sequence[str]) -> CollectOptions:
    """Return what to collect from one target, with what its plan says of checks that start or reach something."""
    ports = tuple(sorted({int(port) for port in (plan.nccl_ports or "").split("-") if port.isdecimal()}))
    peers = tuple(others[:_PEERS_MAX]) if ports else ()
    return replace(what, container_image=plan.container_image, peers=peers, ports=ports if peers else ())


def _choose_programs(options: argparse.Namespace) -> dict[str, str]:
    """Return what to measure with, and refuse a program that nothing would run."""
    found: dict[str, str] = {}
    for flag, program in _MEASURING.items():
        probe = flag[2:]
        path = getattr(options, probe.replace("-", "_"))
        if path is None:
            continue
        if not path or path.startswith("-") or not path.isprintable():
            raise UsageError(f"{flag} `{shown(path)}` is not a path", hints=(f"name it: `{flag} /opt/{probe}`",))
        if probe not in probes_of(options.level):
            level = PROBES[probe].level
            raise UsageError(
                f"{flag} has no use at level {options.level}",
                because=(f"{program} runs at level {level} and above",),
                hints=(f"add `--level {level}`",),
            )
        if not targets_of(options):
            raise UsageError(
                f"{flag} needs a target that can be reached", because=("a bundle holds what was measured before",)
            )
        found[program] = path
    return found


class _Round:
    """What is kept of the targets as they answer, one after the other, so that a thousand fit into memory."""

    def __init__(
        self, matrix: Matrix, checks: Sequence[Check], expected: Expectation, options: argparse.Namespace
    ) -> None:
        self.matrix = matrix
        self.checks = checks
        self.expected = expected
        self.options = options
        self.per_target: dict[str, Expectation] = {}
        self.unreachable: Mapping[str, str] = {}
        self.results: list[Result] = []
        self.collected: dict[str, str] = {}
        self.traits: dict[str, dict[str, str]] = {}
        self.metrics: dict[str, Any] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.has_color = True
        self._kept = Shelf()
        self._scrapes: dict[str, Answer] = {}
        self._probes = fleet_probes(checks)

    def plan_of(self, target: str) -> Expectation:
        """Return what was planned for one target."""
        return self.per_target.get(target, self.expected)

    def ask_prometheus(self) -> None:
        """Ask the servers that plans name about their hosts, once for all hosts of a server."""
        servers: dict[str, dict[str, str]] = {}
        if not any(check.id == _SCRAPE for check in self.checks):
            return
        for target in targets_of(self.options):
            address = self.plan_of(target.name).prometheus
            if address is not None:
                servers.setdefault(address, {})[target.name] = target.host or target.name
        for address, hosts in servers.items():
            from provision.probe.prometheus import ask_prometheus

            answers = ask_prometheus(address, tuple(hosts.values()))
            self._scrapes |= {name: answers[host] for name, host in hosts.items()}

    def take(self, host: Snapshot) -> bool:
        """Judge one target, keep what comparisons need, and tell whether it is fine so far."""
        scrape = self._scrapes.get(host.target)
        if scrape is not None:
            host.outputs[scrape.probe] = scrape
        results = verify_one(host, self.plan_of(host.target), self.matrix, self.checks)
        self.results += results
        self.counts[host.target] = count_statuses(results)
        self.collected[host.target] = host.collected
        if self.options.diff_fleet:
            self.traits[host.target] = read_traits(host)
        if self.options.prometheus is not None:
            from provision.verify.report.prometheus import read_host_facts

            self.metrics[host.target] = read_host_facts(host, self.matrix)
        self._kept.put(host.narrow(self._probes))
        return not any(result.is_failure(self.options.fail_on) for result in results)

    def measure_pairs(self, probes: CollectOptions) -> None:
        """Let the hosts that answered reduce two by two, where that was asked for and a port is known."""
        targets = [target for target in targets_of(self.options) if target.kind == "ssh" and target.name in self._kept]
        if "nccl-pair" not in self._probes or len(targets) < 2:
            return
        first = (self.plan_of(targets[0].name).nccl_ports or "").partition("-")[0]
        if not first.isdecimal():
            return
        from provision.probe.pairs import collect_pairs

        answers = collect_pairs(
            targets,
            probes,
            port=int(first),
            parallel=self.options.parallel or PARALLEL,
            seconds=self.options.timeout,
            connect_seconds=self.options.connect_timeout or 10,
        )
        for name, answer in answers.items():
            host = self._kept[name]
            outputs = {**host.outputs, answer.probe: answer}
            self._kept.put(Snapshot(name, outputs, collected=host.collected, version=host.version))

    def show(self, total: int) -> Board:
        """Return the table that a person watches while targets answer."""
        from provision.cli.text.live import Board

        return Board(total, self.counts, has_color=self.has_color)

    def conclude(self) -> Verdict:
        """Compare the targets with each other and put all answers in order."""
        plans = {name: self.plan_of(name) for name in self._kept}
        results = [*self.results, *compare_hosts(self._kept, plans, self.matrix, self.checks)]
        results += [unreached(name, why) for name, why in self.unreachable.items()]
        # As they were named, not as they happened to answer; bundles come first.
        live = dict.fromkeys((*(target.name for target in targets_of(self.options)), *self.unreachable))
        order = (*(name for name in self._kept if name not in live), *live)
        return conclude(results, self.matrix, order, fail_on=self.options.fail_on)


def _finish(this: _Round, options: argparse.Namespace, output: Output) -> int:
    verdict = this.conclude()
    for path in options.merge or ():
        more, collected, facts_date = read_report(read_text(path, "--merge", bytes_max=_REPORT_BYTES_MAX), str(path))
        both = {result.target for result in verdict.results} & {result.target for result in more.results}
        if both:
            raise UsageError(
                f"--merge: {path} has targets that another report has too",
                because=(f"one of them is {shown(min(both))}",),
                hints=("give each controller its own hosts, with `--shard 1/2` and `--shard 2/2`",),
            )
        if facts_date != this.matrix.dated:
            output.warn(f"{path} was judged by the facts of {shown(facts_date)}, not by those of {this.matrix.dated}")
        this.collected |= collected
        verdict = Verdict(results=(*verdict.results, *more.results), fail_on=options.fail_on)
    differences = find_differences(this.traits)
    document = write_document(verdict, facts_date=this.matrix.dated, collected=this.collected, differences=differences)
    _write_reports(this, verdict, document, options, output)
    output.note(f"facts of {this.matrix.dated}")
    output.give(document, show_verdict(verdict, differences, output), is_ok=verdict.is_ok)
    _advise(verdict, options, output)
    if verdict.is_ok:
        return 0
    if verdict.results and all(result.check == REACH for result in verdict.results):
        return MissingDependencyError.exit_code
    return VerificationFailedError.exit_code


def _advise(verdict: Verdict, options: argparse.Namespace, output: Output) -> None:
    """Say what to do next, where that is plain."""
    if all(result.outcome.status == SKIP for result in verdict.results):
        output.warn("every check was skipped, so nothing was proved; `-v` shows the reasons")
    failures = [result for result in verdict.failures if result.check != REACH]
    if not failures:
        return
    hint = output.paint("hint:", "hint", sys.stderr)
    level = "" if options.level == "quick" else f" --level {options.level}"
    if options.bundles:
        # All of them: which bundle holds the target that failed is not known any more.
        bundles = " ".join(f"--from {shlex.quote(str(path))}" for path in options.bundles)
        output.note(f"{hint} `provision doctor {bundles}` looks for the cause")
    elif has_targets(options):
        name = clean_line(failures[0].target)
        # What only the inventory knows of a host is needed to reach it.
        is_listed = options.inventory is not None and name not in options.targets
        words = ["-i", str(options.inventory), "--limit", name] if is_listed else [name]
        words += ["--ssh-config", str(options.ssh_config)] if options.ssh_config is not None else []
        output.note(f"{hint} `provision doctor {shlex.join(words)}{level}` looks for the cause")
    elif not options.merge:
        output.note(f"{hint} `provision doctor{level}` looks for the cause")
    if options.gpus is None and any(result.check in _NO_GPU for result in failures):
        output.note(f"{hint} where no GPU is meant to be, `--gpus 0` says so")


def _check_reports(options: argparse.Namespace) -> None:
    """Refuse what would only come out after all targets were asked."""
    paths: dict[Path, str] = {}
    for flag in ("--junit", "--html", "--prometheus"):
        path = getattr(options, flag[2:])
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"{flag}: {path} is a folder", hints=(f"name a file: `{flag} {path / 'report'}`",))
        if path in paths:
            raise UsageError(f"{flag} and {paths[path]} name the same file, {path}")
        paths[path] = flag
    if options.output in paths:
        raise UsageError(f"-o and {paths[options.output]} name the same file, {options.output}")


def _write_reports(
    this: _Round, verdict: Verdict, document: Mapping[str, Any], options: argparse.Namespace, output: Output
) -> None:
    texts: dict[Path, str] = {}
    if options.junit is not None:
        from provision.verify.report.junit import write_junit

        texts[options.junit] = write_junit(verdict, collected=this.collected)
    if options.html is not None:
        from provision.verify.report.html import write_html

        texts[options.html] = write_html(document)
    if options.prometheus is not None:
        from provision.verify.report.prometheus import write_prometheus

        targets = dict.fromkeys(result.target for result in verdict.results)
        plans = {name: this.plan_of(name) for name in targets}
        before = _read_before(options.prometheus)
        texts[options.prometheus] = write_prometheus(verdict, expected=plans, hosts=this.metrics, before=before)
    for path, text in texts.items():
        output.save(path, text)


def _read_before(path: Path) -> str:
    """Return the metrics that are written over; what cannot be read holds none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _check_names(matrix: Matrix, names: Sequence[str]) -> None:
    for name in names:
        if not any(check == name or check.startswith(f"{name}.") for check in matrix.checks):
            raise UsageError(
                f"no check is called `{shown(name)}`",
                hints=(*did_you_mean(name, matrix.checks), "`provision verify --list --level deep` shows all of them"),
            )


def _check_document(check: Check) -> dict[str, Any]:
    names = ("id", "level", "severity", "scope", "title", "remedy", "runbook")
    return {
        **{name: getattr(check, name) for name in names},
        "probes": list(check.probes),
        "source": list(check.source),
    }


def _read_expectation(options: argparse.Namespace) -> Expectation:
    expected = Expectation()
    if options.lock is not None:
        from provision.resolve.stack import Stack

        text = read_text(options.lock, "--lock", bytes_max=_LOCK_BYTES_MAX)
        if _LOCK_OF_NODES.search(text):
            lock = shlex.quote(str(options.lock))
            raise UsageError(
                f"--lock: {options.lock} is a lock of nodes, as Ansible reads it",
                hints=(
                    f"`provision node verify -i INVENTORY --lock {lock}` proves nodes by it",
                    "`provision node lock … --stack provision.lock` writes what this command takes, too",
                ),
            )
        expected = expect_stack(Stack.from_lock(text))
    if options.expect is not None:
        import tomllib

        try:
            values = tomllib.loads(read_text(options.expect, "--expect", bytes_max=_LOCK_BYTES_MAX))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            because = "it is nested too deep" if isinstance(error, RecursionError) else shown(str(error))
            raise UsageError(f"--expect: {options.expect} is not TOML", because=(because,)) from error
        expected = merge_expectation(expected, values, str(options.expect))
    if options.gpus is not None:
        expected = merge_expectation(expected, {"gpus": options.gpus}, "--gpus")
    return expected
