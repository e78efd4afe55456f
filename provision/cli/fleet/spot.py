"""`provision fleet spot`: what a spot instance is given so that it acts on the notice of its end."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from provision.cli.number import number
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.errors import UsageError, shown
from provision.matrix.load import Matrix

_ADVICE = ("ignore", "checkpoint", "drain")
_COMMANDS = {
    "checkpoint": "saves the jobs; must finish within the warning time minus margin and reserve",
    "drain": "takes the node out of service; runs after --checkpoint",
    "requeue": "requeues the jobs on other nodes; runs last",
    "resume": "puts the node back into service when a notice is withdrawn",
}
_NUMBERS = {
    "margin_seconds": "time kept free before the interruption (default: 3)",
    "reserve_seconds": "time reserved for the commands after --checkpoint (default: 10)",
    "warning_seconds": "warning time, if it differs from the provider's documented one",
}
_SECONDS_MAX = 86_400
_OF_A_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh", "ssh"})


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_value(parser, "--output", "DIR", "output folder", parse_path, short="-o", dest="folder")
    add_switch(parser, "--check", "end with exit code 8 when the folder would change")
    add_value(parser, "--provider", "NAME", "cloud provider whose spot notices are handled")
    commands = parser.add_argument_group("commands, run as root without a shell")
    for name, line in _COMMANDS.items():
        add_value(commands, f"--{name}", "COMMAND", line)
    add_value(commands, "--hooks", "DIR", "folder on the node whose executables run after --drain")
    when = parser.add_argument_group("timing")
    for name, line in _NUMBERS.items():
        add_value(when, f"--{name.replace('_', '-')}", "N", line)
    add_choice(
        when,
        "--advice",
        _ADVICE,
        help="what to do on a rebalance recommendation (default: ignore)",
    )
    add_switch(when, "--no-acknowledge", "do not acknowledge the event to a provider that waits for it (Azure)")
    add_value(parser, "--textfiles", "DIR", "textfile folder of node_exporter on the nodes")


def run(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Write the handler, its settings and its unit.

    Raises:
        UsageError: A flag makes no sense.
        UnknownError: The facts know no notice of the provider.
    """
    from provision.generate.spot import SpotOptions, providers_with_notices, render_spot
    from provision.generate.verify_units import TEXTFILES
    from provision.generate.write import check_artifacts, write_artifacts
    from provision.planner.catalogue import find_provider

    if options.provider is None:
        raise UsageError("--provider is missing", hints=("name the cloud provider, as in `--provider aws`",))
    try:
        provider = find_provider(matrix, options.provider).id
    except UsageError as error:
        # The catalogue also has providers that warn nobody: none of these is a way out.
        warn = providers_with_notices(matrix)
        near = [hint for hint in error.hints if any(hint == f"did you mean `{name}`?" for name in warn)]
        raise UsageError(error.message, hints=(*near, f"the notices of {', '.join(warn)} are known")) from error
    folder: Path | None = options.folder
    if folder is None:
        raise UsageError("-o is missing", hints=("name a folder with `-o DIR`",))
    numbers = {name: _number(name, getattr(options, name)) for name in _NUMBERS if getattr(options, name) is not None}
    words = {name: _words(name, getattr(options, name)) for name in _COMMANDS}
    artifacts = render_spot(
        matrix,
        SpotOptions(
            provider=provider,
            checkpoint=words["checkpoint"],
            drain=words["drain"],
            requeue=words["requeue"],
            resume=words["resume"],
            hooks=options.hooks or "",
            textfiles=TEXTFILES if options.textfiles is None else options.textfiles,
            advice=options.advice or "ignore",
            acknowledge=not options.no_acknowledge,
            **numbers,
        ),
    )
    document: dict[str, object] = {
        "folder": str(folder),
        "provider": provider,
        "files": [artifact.path for artifact in artifacts],
    }
    if options.check:
        check_artifacts(folder, artifacts)
        output.give(document, f"{folder} is what the facts of {matrix.dated} write")
        return 0
    changes = write_artifacts(folder, artifacts, dry_run=output.is_dry_run)
    verb = "would write" if output.is_dry_run else "wrote"
    lines = [f"{verb} {len(changes.written)} of {len(artifacts)} files in {folder}", *changes.written]
    lines += ["", "their paths are those on the node; there, run", "  systemctl enable --now provision-spot"]
    output.give(document | {"written": list(changes.written)}, "\n".join(lines))
    return 0


def _words(name: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--{name} `{shown(text)}` is not a command: {error}", hints=("close every quotation mark",)
        ) from error
    if not words:
        raise UsageError(f"--{name} is an empty command", hints=("leave the flag out",))
    meant = next((word for word in words if word in _OF_A_SHELL or "$(" in word or "`" in word), None)
    if meant is not None and Path(words[0]).name not in _SHELLS:
        raise UsageError(
            f"--{name} `{shown(text)}` needs a shell",
            because=(f"it runs without one, and {words[0]} would be given {shown(meant)!r} as a word",),
            hints=(f"write `--{name} {shlex.quote(f'sh -c {shlex.quote(text)}')}`",),
        )
    return words


def _number(name: str, text: str) -> float:
    """Return the seconds of a flag; a warning of none would leave nothing to act in."""
    return number(f"--{name.replace('_', '-')}", 1 if name == "warning_seconds" else 0, _SECONDS_MAX)(text)
