"""Print shell completion for bash, zsh or fish.

Completes commands, actions, flags and their values: versions of frameworks, CUDA, Python and drivers, names of GPUs,
operating systems and extras, as the facts have them.

Examples:
  provision completion bash > ~/.local/share/bash-completion/completions/provision
  provision completion zsh > "${fpath[1]}/_provision"
  provision completion fish > ~/.config/fish/completions/provision.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping

from provision.cli.output import Output
from provision.cli.parser import COMMANDS, Parser, add_choice, build_parser, build_top_parser
from provision.cli.request import read_matrix
from provision.errors import MissingDependencyError, install_command
from provision.matrix.load import Matrix
from provision.resolve.request import PLATFORMS
from provision.versions import minor_of

_SHELLS = ("bash", "zsh", "fish")
_METAVARS = ("VERSION", "X.Y", "NAME", "NAME,…", "PLATFORM")
"""What the value of a flag is called where it is one of the facts; `--python PROGRAM` is another."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_choice(parser, "shell", _SHELLS, help="shell to write the script for")


def run(options: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise MissingDependencyError("shtab is not installed", hints=(install_command(),)) from error
    program = _build_program()
    values = _values(read_matrix(options))
    files = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in _actions(program):
        if action.choices is not None or action.metavar is None:
            continue
        flag = action.option_strings[-1] if action.option_strings else ""
        if action.metavar in _METAVARS and flag in values:
            action.choices = values[flag]
        elif kind := next((kind for kind in files if kind in action.metavar), None):
            action.complete = files[kind]  # type: ignore[attr-defined]
    script = shtab.complete(program, options.shell).rstrip("\n")
    output.give({"shell": options.shell, "script": script}, script)
    return 0


def _build_program() -> Parser:
    """Return the parser of the whole command line, every command and action in it."""
    program = build_top_parser()
    # What makes a parser need not be a class: each command has its own.
    commands = program.add_subparsers(  # type: ignore[call-overload]
        parser_class=lambda **settings: build_parser(settings["prog"].split()[-1])
    )
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line)
    return program


def _actions(parser: Parser) -> Iterator[argparse.Action]:
    """Give the words and flags of a parser and of those below it."""
    parser.fill()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action


def _values(matrix: Matrix) -> Mapping[str, tuple[str, ...]]:
    """Return the values that the facts know, newest first: flag → values."""
    return {
        "--torch": _minors(row.version for row in matrix.torch_releases),
        "--tensorflow": _minors(row.version for row in matrix.tensorflow),
        "--jax": _minors(row.version for row in matrix.jax),
        "--cuda": _minors(row.version for row in matrix.cuda),
        "--python": tuple(row.version for row in matrix.pythons),
        "--os": tuple(row.id for row in matrix.os_releases),
        "--driver": ("host", *(str(row.branch) for row in matrix.driver_branches)),
        "--gpu": tuple(row.id for row in matrix.gpus),
        "--platform": PLATFORMS,
        "--with": tuple(sorted({name for row in matrix.extras for name in (row.id, *row.by_cuda)})),
    }


def _minors(versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(minor_of(version) for version in versions))
