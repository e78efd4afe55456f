"""Monitor GPU nodes with Prometheus, take bad ones out, scale by policy, simulate policies, handle spot notices.

`rules` writes the configuration of the monitoring, `show` reads the state of the fleet from a Prometheus server,
`health` takes bad nodes out of service and puts them back after a proof, `idle` lists the nodes that can be released,
`usage` counts GPU-hours, and `policy` decides whether nodes are added or removed,
or writes the policy for an autoscaler. `simulate` replays a recorded load against policies, and `spot` writes a handler
that saves the work of a spot instance before it is reclaimed.

Examples:
  provision fleet rules -o monitoring
  provision fleet show --prometheus https://prometheus.example:9090
  provision fleet simulate load.csv --policy day.toml --price 5.67 --gpus 4
  provision fleet spot -o spot --provider aws
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.fleet.server import add_server_flags, connect
from provision.cli.output import Output
from provision.cli.parser import add_actions, add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.errors import UsageError, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.generate.fleet_page import Line, Survey
    from provision.generate.write import Artifact

_ACTIONS = {
    "rules": "write the configuration of Prometheus, Alertmanager, Grafana and dcgm-exporter",
    "show": "show the state of the fleet from a Prometheus server",
    "health": "take bad nodes out of service, and put them back after a proof",
    "idle": "list the nodes that can be released now",
    "usage": "count the GPU-hours of jobs, users, accounts or pods, and what was idle",
    "policy": "decide whether nodes are added or removed, or write the policy for an autoscaler",
    "simulate": "replay a recorded load: what policies cost, and how long jobs wait",
    "spot": "write a handler that saves, drains and requeues before a spot instance is reclaimed",
}
_DESCRIPTIONS = {
    "rules": """Write the configuration of Prometheus, Alertmanager, Grafana and dcgm-exporter.

Writes alert rules with the thresholds and fixes of `provision verify` and `provision doctor`, routes, dashboards, the
list of fields, and the timer with which a node verifies itself for node_exporter. The same facts produce the same
bytes.

Examples:
  provision fleet rules -o monitoring --webhook default=https://hooks.example/gpu
  provision fleet rules -o monitoring --check""",
    "show": """Show the state of the fleet from a Prometheus server.

The server must run the rules of `provision fleet rules`. Shows the current value of every panel of the dashboards.
--html also writes one page that needs neither Grafana nor a network.

Examples:
  provision fleet show --prometheus https://prometheus.example:9090 --user gpu --password-file secret
  provision fleet show --prometheus https://prometheus.example:9090 --html fleet.html""",
    "health": """Take bad nodes out of service, and put them back after a proof.

One pass: nodes of a Kubernetes cluster that the watch of `provision cluster --health`, a report of `provision verify
--json` or a critical alert calls bad get a taint with the reason, as long as no more than --limit-percent of a pool is
out. A node that was taken out this way, that nothing is said against any more and on which no Pod with GPUs is left, is
put back when `provision verify --level standard` passes in a Pod with all of its GPUs. A node that a person cordoned is
left alone. Each step is a line in the ledger, DIR/ledger.jsonl. Run it from a timer.

With --hosts or --inventory the nodes are hosts reached over ssh. A bad one is written into the file of --maintenance,
which people, playbooks and launchers read; --alertmanager silences its alerts. It is put back when no program uses its
GPUs and it passes over ssh. An entry that a person wrote is left alone.

The exit code is 6 when a bad node is still in service, because of the limit or a failure. --dry-run changes nothing and
proves nothing.

Examples:
  provision fleet health --state health --dry-run
  provision fleet health --state health --jobs requeue --prometheus https://prometheus.example:9090
  provision fleet health --state health --report report.json --limit-percent 5 --no-proof
  provision fleet health --state health -i inventory --report report.json --alertmanager https://alerts.example:9093""",
    "idle": """List the nodes that can be released now.

The server must run the rules of `provision fleet rules`. A node can be released when none of its GPUs was busier than
the limit during the window, all of them were monitored for nearly all of it, and it is not on hold.
--instance or --price shows how much that would save. Nothing is released.

Examples:
  provision fleet idle --prometheus https://prometheus.example:9090
  provision fleet idle --prometheus https://prometheus.example:9090 --instance aws/p4d.24xlarge/us-east-1""",
    "usage": """Count the GPU-hours of jobs, users, accounts or pods, and what was idle.

FILE is the output of `sacct -a -X -P -o JobID,JobName,User,Account,Partition,Submit,Start,End,ElapsedRaw,AllocTRES` of
Slurm. Without a file, the counts come from a Prometheus server that scrapes dcgm-exporter, whose series name the Pod or
job on each GPU and its utilisation. --gpu-price converts hours to US dollars.

Examples:
  provision fleet usage jobs.txt --by user --gpus 64 --gpu-price 2.10
  provision fleet usage --prometheus https://prometheus.example:9090 --by namespace --hours 168""",
    "policy": """Decide whether nodes are added or removed, or write the policy for an autoscaler.

The policy comes from a TOML file, from flags, or from both; flags take precedence. The load comes from a Prometheus
server, which also knows how long it has lasted, or from --observe. --render writes the policy for Kubernetes, AWS or
Tencent Cloud and lists what that autoscaler cannot express. Nothing is sent to any of them.

Examples:
  provision fleet policy policy.toml --observe nodes=4,utilisation=93
  provision fleet policy policy.toml --prometheus https://prometheus.example:9090
  provision fleet policy policy.toml --render k8s --name chat -o scaling""",
    "simulate": """Replay a recorded load: what policies cost, and how long jobs wait.

TRACE is a CSV file with `time_seconds,duration_seconds,gpus`, one line per job, or `time_seconds,gpus_busy`, one line
per sample; or the output of `sacct -a -X -P -o Submit,ElapsedRaw,AllocTRES`. It is replayed on a fixed fleet sized for
the peak, on one sized for the mean, and with every policy. The same files, flags and seed produce the same result. The
output states what the model covers; docs/simulate.md what it does not.

Examples:
  provision fleet simulate load.csv --policy day.toml --policy night.toml --instance aws/p4d.24xlarge/us-east-1
  provision fleet simulate load.csv --policy spot.toml --gpus 4 --price 5.67 --spot-price 1.9 --html load.html""",
    "spot": """Write a handler that saves, drains and requeues before a spot instance is reclaimed.

Writes the handler, its settings and its systemd unit, at their paths below the root of a node; role `gpu_spot` installs
the same files. The handler polls the provider's metadata service, acts on each notice once, and stops every command at
its deadline. Commands are executed without a shell; use `sh -c '...'` for one that needs a shell.

Examples:
  provision fleet spot -o spot --provider aws --checkpoint /usr/local/bin/save-jobs --drain 'scontrol update ...'""",
}
_TOLD = {
    "webhook": ("URL", "URL to which Alertmanager posts alerts for default, release or watchdog; may be repeated"),
    "slack": ("URL", "the same for an incoming webhook of Slack, or the path of a file on the monitor with its URL"),
    "teams": ("URL", "the same for a workflow of Microsoft Teams (Alertmanager 0.28 or later)"),
    "pagerduty": ("KEY", "the same for an integration key of PagerDuty's Events API v2"),
}
_HOURS = 6.0
_HOURS_MAX = 24 * 366
_NAMED = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, "fleet", _ACTIONS, _DESCRIPTIONS, _filler)


def _filler(name: str) -> Callable[[argparse.ArgumentParser], None]:
    own = {"rules": _fill_rules, "show": _fill_show}
    return own[name] if name in own else import_module(f"provision.cli.fleet.{name}").fill


def _fill_rules(parser: argparse.ArgumentParser) -> None:
    add_value(parser, "--output", "DIR", "output folder", parse_path, short="-o", dest="folder")
    for name, (what, line) in _TOLD.items():
        add_value(parser, f"--{name}", f"NAME={what}", line, action="append")
    add_value(parser, "--textfiles", "DIR", "textfile folder of node_exporter on the nodes")
    add_value(parser, "--runbooks", "URL", "URL of the published docs/runbooks.md")
    add_value(
        parser,
        "--monitor",
        "ADDRESS",
        "also write servers that watch together, one of these for each monitor; name two or more",
        action="append",
    )
    add_switch(parser, "--check", "end with exit code 8 when the folder would change")


def _fill_show(parser: argparse.ArgumentParser) -> None:
    add_server_flags(parser)
    add_value(parser, "--hours", "N", "time range of the charts (default: 6)")
    add_value(parser, "--html", "FILE", "also write an HTML page", parse_path)


def run(options: argparse.Namespace, output: Output) -> int:
    """Do what the action says."""
    if options.action == "usage":
        from provision.cli.fleet.usage import count_fleet_usage

        return count_fleet_usage(options, output)
    own = {"rules": _write_rules, "show": _show}
    act = own.get(options.action) or import_module(f"provision.cli.fleet.{options.action}").run
    return act(options, read_matrix(options), output)


def _write_rules(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    from provision.generate.write import check_artifacts, find_leftovers, write_artifacts

    told = {name: _named(f"--{name}", what, getattr(options, name) or ()) for name, (what, _) in _TOLD.items()}
    webhooks = told.pop("webhook")
    artifacts = _artifacts(matrix, webhooks, told, options.textfiles, options.runbooks)
    if options.monitor:
        from provision.generate.monitors import render_monitors

        artifacts += render_monitors(options.monitor, matrix, told)
    folder: Path | None = options.folder
    if folder is None:
        raise UsageError("where to is missing", hints=("name a folder with `-o DIR`",))
    document: dict[str, object] = {"folder": str(folder), "files": [artifact.path for artifact in artifacts]}
    leftovers = find_leftovers(folder, artifacts, "monitors/*/*", "Written by `provision fleet`")
    if options.check:
        check_artifacts(folder, artifacts, leftovers)
        output.give(document, f"{folder} is what the facts of {matrix.dated} write")
        return 0
    for path in leftovers:
        output.warn(f"{path} is left over of another request")
    changes = write_artifacts(folder, artifacts, dry_run=output.is_dry_run)
    verb = "would write" if output.is_dry_run else "wrote"
    output.give(
        document | {"written": list(changes.written)},
        "\n".join([f"{verb} {len(changes.written)} of {len(artifacts)} files in {folder}", *changes.written]),
    )
    return 0


def _artifacts(
    matrix: Matrix,
    webhooks: dict[str, str],
    notifiers: dict[str, dict[str, str]],
    textfiles: str | None,
    runbooks: str | None,
) -> tuple[Artifact, ...]:
    from provision.generate.monitoring import (
        DASHBOARDS,
        render_alertmanager,
        render_counters,
        render_dashboard,
        render_rules,
    )
    from provision.generate.verify_units import TEXTFILES, render_service, render_timer
    from provision.generate.write import Artifact

    return (
        Artifact(path="provision-gpu.rules.yml", text=render_rules(matrix, runbooks)),
        # An address may hold a token.
        Artifact(path="alertmanager.yml", text=render_alertmanager(matrix, webhooks, notifiers), mode=0o640),
        Artifact(path="dcgm-counters.csv", text=render_counters(matrix)),
        *(
            Artifact(path=f"dashboards/provision-{name}.json", text=render_dashboard(matrix, name))
            for name in DASHBOARDS
        ),
        Artifact(path="systemd/provision-verify.service", text=render_service(matrix, folder=textfiles or TEXTFILES)),
        Artifact(path="systemd/provision-verify.timer", text=render_timer(matrix)),
    )


def _named(flag: str, what: str, words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, address = word.partition("=")
        if not equals or not name or not address:
            # What was typed may be an address with a token, so that it is not repeated.
            example = "https://hooks.example/gpu" if what == "URL" else what
            raise UsageError(f"{flag} needs NAME={what}", hints=(f"write `{flag} default={example}`",))
        if name in found:
            raise UsageError(f"{flag} names `{shown(name)}` twice", hints=("keep one of the two",))
        found[name] = address
    return found


def _show(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    from provision.fleet.survey import survey_fleet
    from provision.generate.fleet_page import render_fleet_page
    from provision.records import plain

    hours = _read_hours(options.hours)
    survey = survey_fleet(connect(options, "show"), matrix, hours=hours)
    if options.html is not None:
        output.save(options.html, render_fleet_page(survey))
    output.give(plain(survey), _word(survey))
    return 0


def _read_hours(text: str | None) -> float:
    if text is None:
        return _HOURS
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= _HOURS_MAX:
        raise UsageError(
            f"--hours `{shown(text)}` is not a number of hours up to a year", hints=("write `--hours 24`",)
        )
    return hours


def _word(survey: Survey) -> str:
    from provision.cli.text.screen import align
    from provision.generate.fleet_page import is_over, name_line, word_value

    rows = [row for row in survey.shown if row.panel.dashboard == "fleet"]
    lines = align(
        (row.panel.title, word_value(row.lines[0].last if row.lines else None, row.panel.unit))
        for row in rows
        if row.panel.kind == "stat"
    )
    for row in rows:
        unit = row.panel.unit
        if row.panel.id == "fleet.alerts":
            lines += ["", f"{row.panel.title}: {len(row.lines) or 'none'}"]
            lines += align(sorted(_alert(line) for line in row.lines), indent="  ")
        elif row.warn is not None:
            over = [(line.last, name_line(line, row.panel)) for line in row.lines if is_over(row, line)]
            over.sort(key=lambda pair: (-(pair[0] or 0.0), pair[1]))
            lines += ["", f"{row.panel.title}, over {word_value(row.warn, unit)}: {len(over) or 'none'}"]
            lines += align(((name, word_value(value, unit)) for value, name in over[:_NAMED]), indent="  ")
    return "\n".join(lines)


def _alert(line: Line) -> tuple[str, str, str]:
    node, severity, name = (line.labels.get(key, "?") for key in ("node", "severity", "alertname"))
    # Two clusters may have a node of one name.
    return "/".join(filter(None, (line.labels.get("cluster"), node))), severity, name
