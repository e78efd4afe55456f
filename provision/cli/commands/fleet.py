"""Watch a fleet of GPU nodes with Prometheus.

`provision fleet rules` writes what Prometheus, Alertmanager, Grafana and dcgm-exporter are told: rules whose limits and
remedies are those of `verify` and `doctor`, routes, dashboards, the list of fields, and the timer by which a node
verifies itself for node_exporter. The same facts give the same bytes.

`provision fleet show` asks a Prometheus server that these rules run on what every panel of the dashboards shows now.
With --html it writes one page to look at, which needs neither Grafana nor a network.

provision fleet rules -o monitoring --webhook default=https://hooks.example/gpu
provision fleet show --prometheus https://prometheus.example:9090 --user gpu --password-file secret --html fleet.html
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.output import Output
from provision.cli.parser import Once, add_choice, parse_path, shown
from provision.cli.request import read_matrix
from provision.errors import UsageError
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.generate.fleet_page import Line, Survey
    from provision.generate.write import Artifact

__all__ = ["configure", "run"]

_ACTIONS = ("rules", "show")
_FLAGS = {
    "rules": ("folder", "webhook", "textfiles", "check"),
    "show": ("prometheus", "user", "password_file", "ca", "hours", "html", "folder"),
}
_HOURS = 6.0
_HOURS_MAX = 24 * 366
_PASSWORD_BYTES_MAX = 4096
_NAMED = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_choice(
        parser,
        "action",
        _ACTIONS,
        help="rules: write what the monitoring is told; show: ask a Prometheus what it knows",
    )
    parser.add_argument(
        "-o",
        "--output",
        dest="folder",
        action=Once,
        type=parse_path,
        metavar="DIR|FILE",
        help="rules: the folder to write; show: the file for the text or the JSON",
    )
    rules = parser.add_argument_group("flags of rules")
    rules.add_argument(
        "--webhook",
        action="append",
        metavar="NAME=URL",
        help="where Alertmanager posts what goes to default, release or watchdog; may be repeated",
    )
    rules.add_argument(
        "--textfiles", action=Once, metavar="DIR", help="where node_exporter on the nodes looks for textfiles"
    )
    rules.add_argument("--check", action="store_true", help="end with exit code 8 when the folder would change")
    show = parser.add_argument_group("flags of show")
    show.add_argument("--prometheus", action=Once, metavar="URL", help="the server")
    show.add_argument("--user", action=Once, metavar="NAME", help="user for basic auth")
    show.add_argument(
        "--password-file", action=Once, type=parse_path, metavar="FILE", help="file whose first line is the password"
    )
    show.add_argument(
        "--ca", action=Once, type=parse_path, metavar="FILE", help="certificates that the server's is signed by"
    )
    show.add_argument("--hours", action=Once, metavar="N", help="how far back lines reach (6)")
    show.add_argument("--html", action=Once, type=parse_path, metavar="FILE", help="also write a page to look at")


def run(options: argparse.Namespace, output: Output) -> int:
    """Write the rules, or show the fleet."""
    for action, names in _FLAGS.items():
        given = [name for name in names if getattr(options, name) not in (None, False)]
        wrong = [name for name in given if name not in _FLAGS[options.action]]
        if action != options.action and wrong:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise UsageError(f"`provision fleet {options.action}` knows no {flags}", hints=(f"see `fleet {action}`",))
    matrix = read_matrix(options)
    return _write_rules(options, matrix, output) if options.action == "rules" else _show(options, matrix, output)


def _write_rules(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    from provision.generate.write import check_artifacts, write_artifacts

    artifacts = _artifacts(matrix, _webhooks(options.webhook or ()), options.textfiles)
    folder: Path | None = options.folder
    if folder is None:
        raise UsageError("where to is missing", hints=("name a folder with `-o DIR`",))
    document: dict[str, object] = {"folder": str(folder), "files": [artifact.path for artifact in artifacts]}
    if options.check:
        check_artifacts(folder, artifacts)
        output.give(document, f"{folder} is what the facts of {matrix.dated} write")
        return 0
    changes = write_artifacts(folder, artifacts, dry_run=output.is_dry_run)
    verb = "would write" if output.is_dry_run else "wrote"
    output.give(
        document | {"written": list(changes.written)},
        "\n".join([f"{verb} {len(changes.written)} of {len(artifacts)} files in {folder}", *changes.written]),
    )
    return 0


def _artifacts(matrix: Matrix, webhooks: dict[str, str], textfiles: str | None) -> tuple[Artifact, ...]:
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
        Artifact(path="provision-gpu.rules.yml", text=render_rules(matrix)),
        # An address may hold a token.
        Artifact(path="alertmanager.yml", text=render_alertmanager(matrix, webhooks), mode=0o640),
        Artifact(path="dcgm-counters.csv", text=render_counters(matrix)),
        *(
            Artifact(path=f"dashboards/provision-{name}.json", text=render_dashboard(matrix, name))
            for name in DASHBOARDS
        ),
        Artifact(path="systemd/provision-verify.service", text=render_service(matrix, folder=textfiles or TEXTFILES)),
        Artifact(path="systemd/provision-verify.timer", text=render_timer(matrix)),
    )


def _webhooks(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, address = word.partition("=")
        if not equals or not name or not address:
            # What was typed may be an address with a token, so that it is not repeated.
            raise UsageError("--webhook needs NAME=URL", hints=("write `--webhook default=https://hooks.example/gpu`",))
        if name in found:
            raise UsageError(f"--webhook names `{shown(name)}` twice", hints=("keep one of the two",))
        found[name] = address
    return found


def _show(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    from provision.fleet.prometheus import Prometheus
    from provision.fleet.survey import survey_fleet
    from provision.generate.fleet_page import render_fleet_page
    from provision.records import plain

    if options.prometheus is None:
        raise UsageError(
            "the server is missing",
            hints=("name it: `provision fleet show --prometheus https://prometheus.example:9090`",),
        )
    hours = _read_hours(options.hours)
    server = Prometheus(options.prometheus, user=options.user, password=_read_password(options), authority=options.ca)
    survey = survey_fleet(server, matrix, hours=hours)
    if options.html is not None:
        output.save(options.html, render_fleet_page(survey))
    output.target = options.folder
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
        raise UsageError(f"--hours `{shown(text)}` is no number of hours up to a year", hints=("write `--hours 24`",))
    return hours


def _read_password(options: argparse.Namespace) -> str | None:
    from provision.cli.files import read_text

    if (options.user is None) != (options.password_file is None):
        raise UsageError("--user and --password-file go together", hints=("name both, or none",))
    if options.password_file is None:
        return None
    lines = read_text(options.password_file, "--password-file", bytes_max=_PASSWORD_BYTES_MAX).splitlines()
    return lines[0] if lines else ""


def _word(survey: Survey) -> str:
    from provision.cli.screen import align
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
    return node, severity, name
