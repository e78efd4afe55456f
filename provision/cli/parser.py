"""The words of the command line: which commands there are, which flags all of them share, and how a word is checked.

Only the command that was called has its module imported and its flags built, so that help and small commands start
at once.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from provision import __version__
from provision.cli.output import COLOR_MODES, Output
from provision.cli.text.help import HelpFormatter
from provision.errors import UsageError, shown

COMMANDS = {
    "image": "write, check or build a GPU container image",
    "resolve": "find the versions that fit a request, or explain why none do",
    "explain": "show why a stack was chosen, why a request was refused, or the source of a fact",
    "matrix": "browse known builds, toolkits, drivers, GPUs and images",
    "check": "check Dockerfiles, requirements and environments for GPU incompatibilities",
    "probe": "inspect machines, containers and images",
    "verify": "verify hosts, containers and images against their lock",
    "doctor": "diagnose why a GPU does not work, and how to fix it",
    "node": "set up GPU nodes with Ansible: lock, plan, apply, verify, roll back, remove, export",
    "plan": "choose machines for a job: what fits, how fast, at what cost",
    "bench": "measure an environment and detect slowdowns",
    "predict": "forecast the speed of a run, or score forecasts on measurements",
    "fleet": "monitor GPU nodes with Prometheus, scale by policy, simulate policies, handle spot notices",
    "cluster": "write a Kubernetes bundle: operator, monitoring, queues, tenants, work",
    "slurm": "write batch files of Slurm for a stack: verify, train, serve, measure",
    "tune": "recommend settings for a machine and a job",
    "data": "check, compare and refresh the facts",
    "completion": "print shell completion",
}
"""Command → its line in the help; the module of the same name in ``provision.cli.commands`` does it."""

_VALUE_FLAGS = ("-o", "--output", "--color", "--data-dir")
_PURPOSE = """\
Find the NVIDIA driver, CUDA, framework, Python and GPU versions that work together, and use them: in container images,
on nodes, in clusters."""
_EXAMPLES = """\
Examples:
  provision resolve --torch 2.8 --driver 535 --gpu a100
  provision image --torch 2.8 --cuda 12.8 -o train
  provision check
  provision doctor --text error.log"""
_EXIT_CODES = """exit codes:
  0 done                   5 a build, an apply or a write failed
  1 a bug of this program  6 a check failed
  2 wrong usage            7 an engine, a host, a driver or an index is missing
  3 proven incompatible    8 --check, --fail-on-change: something differs
  4 unknown to the facts   9 the facts are broken
                         130 interrupted"""


class Command(Protocol):
    """What a module of ``provision.cli.commands`` offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own flags."""

    def run(self, options: argparse.Namespace, output: Output) -> int:
        """Do it and return the exit code."""


class Parser(argparse.ArgumentParser):
    """argparse that raises :class:`UsageError` and suggests what was meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, add_help=False, formatter_class=HelpFormatter, **settings)
        # Later Pythons colour help by rules of their own, which know nothing of --color.
        self.color = False
        self.elsewhere: dict[str, str] = {}
        """Flag of other commands or programs → what to write here instead, in a sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the words."""
        raise UsageError(message.removeprefix("argument "), hints=(f"`{self.prog} --help` lists the flags",))

    @property
    def actions(self) -> dict[str, ActionParser]:
        """The words that choose what the command does, as in `provision node plan` → their parsers; often none."""
        found = (item.choices for item in self._actions if isinstance(item, argparse._SubParsersAction))
        return dict(next(found, {}))

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words; the result carries this parser as ``parser``.

        Raises:
            UsageError: A word is unknown, lacks its value or has a wrong one.
        """
        self._refuse_early(words)
        options, unknown = self.parse_known_args(words)
        options.parser = self
        if unknown:
            self.refuse(unknown[0])
        return options

    def _refuse_early(self, words: Sequence[str]) -> None:
        """Refuse a flag of an action that stands before the action, and say where it belongs."""
        actions = self.actions
        if not actions:
            return
        early = (word.partition("=")[0] for word in words[: find_command(words)] if word.startswith("--"))
        unknown = next((word for word in early if word not in self._option_string_actions), None)
        if unknown is None:
            return
        named = next((word for word in words if word in actions), None)
        asked = list(actions) if named is None else [named]
        for name in asked:
            actions[name].fill()
        owners = [name for name in asked if unknown in actions[name]._option_string_actions]
        if not owners:
            (self if named is None else actions[named]).refuse(unknown)
        raise UsageError(
            f"`{unknown}` must come after the action",
            because=(f"it is a flag of the action {', '.join(owners)}",),
            hints=(f"write `{self.prog} {owners[0]} {unknown} …`",),
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an action that there is none of, with the one that was meant."""
        if isinstance(action, argparse._SubParsersAction):
            one_of("action", tuple(action.choices))(value)
        super()._check_value(action, value)

    def fill(self) -> None:
        """Add the flags that are only built when they are needed; most parsers have none."""

    def refuse(self, unknown: str) -> NoReturn:
        """Refuse a word that means nothing here."""
        word = unknown.partition("=")[0]
        if not word.startswith("-") or word == "--":
            self.error(f"unexpected argument `{shown(unknown)}`")
        meant = (self.elsewhere[word],) if word in self.elsewhere else did_you_mean(word, self._option_string_actions)
        raise UsageError(
            f"unknown flag `{shown(word)}` for `{self.prog}`", hints=(*meant, f"`{self.prog} --help` lists the flags")
        )


class ActionParser(Parser):
    """The flags of one action, built only when that action is called.

    Args:
        fill: Adds the action's own flags.
    """

    def __init__(self, *, fill: Callable[[argparse.ArgumentParser], None] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._fill = fill

    def fill(self) -> None:
        """Add the flags, once."""
        if self._fill is None:
            return
        fill, self._fill = self._fill, None
        fill(self)
        before = len(self._actions)
        add_shared(self)
        for action in self._actions[before:]:
            # A shared flag may stand before the action; what is not given here must not undo that.
            if action.dest not in ("help", "version"):
                action.default = argparse.SUPPRESS

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words behind the action; all of them must be known."""
        self.fill()
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.refuse(unknown[0])
        return options, unknown


def add_actions(
    parser: argparse.ArgumentParser,
    command: str,
    lines: Mapping[str, str],
    descriptions: Mapping[str, str],
    filler: Callable[[str], Callable[[argparse.ArgumentParser], None]],
) -> None:
    """Give a command its actions, each with flags and a help of its own.

    Args:
        parser: The command's.
        command: Its name.
        lines: Action → what it does, in a line.
        descriptions: Action → more about it; the line where there is none.
        filler: Returns what adds the flags of an action.
    """
    actions = parser.add_subparsers(
        dest="action",
        metavar="ACTION",
        required=True,
        title="actions",
        help="what to do",
        description=f"`provision {command} ACTION --help` shows the flags and examples of an action.",
        parser_class=ActionParser,
    )
    for name, line in lines.items():
        actions.add_parser(
            name,
            help=line,
            description=descriptions.get(name, line),
            fill=filler(name),
            prog=f"provision {command} {name}",
        )


class Once(argparse.Action):
    """Store a value, and refuse another one instead of forgetting the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value of one flag."""
        del parser
        given = namespace.__dict__.setdefault("given", {})
        if given.setdefault(self.dest, values) != values:
            raise UsageError(f"{option_string} was given two values", hints=("keep one of the two",))
        setattr(namespace, self.dest, values)


def load_command(name: str) -> Command:
    """Import the module of a command."""
    return cast("Command", importlib.import_module(f"provision.cli.commands.{name}"))


def build_parser(name: str) -> Parser:
    """Return the parser of one command, with the flags that all share."""
    command = load_command(name)
    parser = Parser(prog=f"provision {name}", description=(command.__doc__ or "").strip())
    command.configure(parser)
    add_shared(parser)
    return parser


def build_top_parser() -> Parser:
    """Return the parser of the words before a command: only the shared flags."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {line}" for name, line in COMMANDS.items())
    parser = Parser(
        prog="provision",
        usage="provision COMMAND [flags]",
        description=f"{_PURPOSE}\n\ncommands:\n{listed}\n\n{_EXAMPLES}",
        epilog=f"`provision COMMAND --help` shows the flags and examples of a command.\n\n{_EXIT_CODES}",
    )
    add_shared(parser)
    return parser


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the flags that mean the same everywhere."""
    group = parser.add_argument_group("flags of every command")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
    group.add_argument(
        "--version", action="version", version=f"provision {__version__}", help="show the version and exit"
    )
    add_switch(group, "--json", "print the result as one JSON document")
    if "-o" not in parser._option_string_actions:
        add_value(
            group, "--output", "FILE", "write the result to a file; with --json also an error", parse_path, short="-o"
        )
    add_switch(group, "--dry-run", "write nothing, only show what would be written")
    add_switch(group, "--quiet", "show only the result and errors", short="-q")
    group.add_argument("-v", "--verbose", action="count", default=0, help="show more details")
    add_choice(
        group, "--color", COLOR_MODES, default="auto", help="use colour (NO_COLOR and FORCE_COLOR are respected)"
    )
    add_value(group, "--data-dir", "DIR", "use the facts in this folder instead of the shipped ones", parse_path)


def find_command(words: Sequence[str]) -> int | None:
    """Return where the command stands: the first word that is no shared flag and no value of one."""
    is_value = False
    for position, word in enumerate(words):
        if is_value:
            is_value = False
        elif not word.startswith("-"):
            return position
        else:
            is_value = word in _VALUE_FLAGS
    return None


def did_you_mean(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return a hint with the nearest known word, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, sorted(known), n=1)
    return (f"did you mean `{near[0]}`?",) if near else ()


def add_choice(group: argparse._ActionsContainer, flag: str, known: Sequence[str], **settings: Any) -> None:
    """Add a flag that takes one of a few words, and says which was meant where it takes another.

    Args:
        group: A parser, or a group of it.
        flag: With its dashes; without, it is an argument by its place.
        known: The words, in the order of the help.
        settings: As of ``add_argument``; unless ``action`` is among them, a flag is given once.
    """
    if flag.startswith("-"):
        settings = {"action": Once, **settings}
    group.add_argument(flag, type=one_of(flag, known), choices=tuple(known), **settings)


def add_value(
    group: argparse._ActionsContainer,
    flag: str,
    metavar: str,
    text: str,
    read: Callable[[str], Any] | None = None,
    *,
    short: str | None = None,
    **settings: Any,
) -> None:
    """Add a flag that takes a value.

    Args:
        group: A parser, or a group of it.
        flag: With its dashes.
        metavar: What the help calls the value.
        text: The help.
        read: Makes the value of what was typed.
        short: The same flag in one letter.
        settings: As of ``add_argument``; unless ``action`` is among them, the flag is given once.
    """
    _add(group, flag, short, metavar=metavar, help=text, **{"action": Once, "type": read, **settings})


def add_switch(
    group: argparse._ActionsContainer, flag: str, text: str, *, short: str | None = None, **settings: Any
) -> None:
    """Add a flag that takes no value and is off without it; arguments as those of :func:`add_value`."""
    _add(group, flag, short, help=text, action="store_true", **settings)


def _add(group: argparse._ActionsContainer, flag: str, short: str | None, **settings: Any) -> None:
    group.add_argument(*((flag,) if short is None else (short, flag)), **settings)


def one_of(flag: str, known: Sequence[str]) -> Callable[[str], str]:
    """Return a check that a value is one of a few words."""

    def check(text: str) -> str:
        if text not in known:
            hints = (*did_you_mean(text, known), f"choose {', '.join(known)}")
            raise UsageError(f"{flag} `{shown(text)}` is not known", hints=hints)
        return text

    return check


def parse_path(text: str) -> Path:
    """Check that a value can be a path."""
    if not text:
        raise UsageError("a path is empty", hints=("name a file or folder, or leave the flag out",))
    if not text.isprintable():
        raise UsageError(f"the path `{shown(text)}` holds characters that no name should have")
    return Path(text)
