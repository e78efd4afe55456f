"""Print shell completion for bash, zsh or fish.

Examples:
  eval "$(provision completion bash)"
  provision completion zsh > "${fpath[1]}/_provision"
  provision completion fish > ~/.config/fish/completions/provision.fish
"""

from __future__ import annotations

import argparse
import shlex

from provision.cli.output import Output
from provision.cli.parser import COMMANDS, Parser, add_choice, build_parser, build_top_parser
from provision.records import record

__all__ = ["configure", "run"]


@record
class _Flag:
    """One flag as a shell needs it: ``words`` are what it takes, empty for any text or path."""

    names: tuple[str, ...]
    text: str
    takes_value: bool
    words: tuple[str, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_choice(parser, "shell", tuple(_WRITERS), help="shell to write the script for")


def run(options: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    script = _WRITERS[options.shell]()
    output.give({"shell": options.shell, "script": script}, script)
    return 0


def _flags(parser: Parser) -> list[_Flag]:
    found: dict[str, _Flag] = {}
    for part in (parser, *_parts(parser)):
        for action in part._actions:
            if action.option_strings:
                flag = _Flag(
                    names=tuple(action.option_strings),
                    text=(action.help or "").replace("%%", "%"),
                    takes_value=action.nargs != 0,
                    words=tuple(str(choice) for choice in action.choices or ()),
                )
                # Where the actions of a command share a flag it is offered once.
                found.setdefault(flag.names[-1], flag)
    return list(found.values())


def _parts(parser: Parser) -> list[Parser]:
    """Return the parsers of a command's actions, where it has some."""
    parts = [
        part
        for action in parser._actions
        if isinstance(action.choices, dict)
        for part in action.choices.values()
        if isinstance(part, Parser)
    ]
    for part in parts:
        part.fill()
    return parts


def _arguments(parser: Parser) -> list[str]:
    """Return the words that the arguments without a flag may be."""
    return [str(word) for action in parser._actions if not action.option_strings for word in action.choices or ()]


def _bash() -> str:
    lines = [
        "# bash completion of provision",
        "_provision() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" command="" word',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f"    case $word in {'|'.join(COMMANDS)}) command=$word; break ;; esac",
        "  done",
        "  COMPREPLY=()",
        '  case "$command:$previous" in',
    ]
    parsers = {"": build_top_parser(), **{name: build_parser(name) for name in COMMANDS}}
    for name, parser in parsers.items():
        for flag in _flags(parser):
            if flag.takes_value:
                patterns = "|".join(f"{name}:{item}" for item in flag.names)
                reply = _bash_words(flag.words) if flag.words else "compopt -o default; COMPREPLY=()"
                lines.append(f"    {patterns}) {reply}; return ;;")
    lines += ["  esac", '  case "$command" in']
    for name, parser in parsers.items():
        words = [*(COMMANDS if not name else _arguments(parser)), *(n for flag in _flags(parser) for n in flag.names)]
        lines.append(f"    {name or chr(39) * 2}) {_bash_words(words)} ;;")
    lines += [
        "  esac",
        "}",
        "complete -o bashdefault -o default -F _provision provision",
    ]
    return "\n".join(lines)


def _bash_words(words: list[str] | tuple[str, ...]) -> str:
    return f'mapfile -t COMPREPLY < <(compgen -W {shlex.quote(" ".join(words))} -- "$current")'


def _zsh() -> str:
    lines = ["#compdef provision", "_provision() {", "  local -a commands", "  commands=("]
    lines += [f"    {shlex.quote(f'{name}:{text}')}" for name, text in COMMANDS.items()]
    lines += [
        "  )",
        "  local command=${words[(r)(" + "|".join(COMMANDS) + ")]}",
        "  case $command in",
    ]
    for name in COMMANDS:
        parser = build_parser(name)
        specs = [_zsh_flag(flag) for flag in _flags(parser)]
        words = _arguments(parser)
        specs.append(f"'*:argument:({' '.join([name, *words])})'" if words else "'*:file:_files'")
        lines += [f"    {name})", "      _arguments \\"]
        lines += [f"        {spec} \\" for spec in specs[:-1]]
        lines += [f"        {specs[-1]}", "      ;;"]
    lines += [
        "    *) _describe command commands ;;",
        "  esac",
        "}",
        'if [ "$funcstack[1]" = _provision ]; then _provision "$@"; else compdef _provision provision; fi',
    ]
    return "\n".join(lines)


def _zsh_flag(flag: _Flag) -> str:
    text = flag.text.replace("[", "(").replace("]", ")").replace(":", " ")
    value = ""
    if flag.takes_value:
        value = f":value:({' '.join(flag.words)})" if flag.words else ":value:_files"
    specs = [shlex.quote(f"*{name}[{text}]{value}") for name in flag.names]
    return " ".join(specs)


def _fish() -> str:
    lines = ["# fish completion of provision"]
    names = " ".join(COMMANDS)
    for name, text in COMMANDS.items():
        lines.append(
            f"complete -c provision -f -n 'not __fish_seen_subcommand_from {names}' -a {name} -d {_fish_word(text)}"
        )
    for name in COMMANDS:
        parser = build_parser(name)
        seen = f"complete -c provision -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen} -f -a {word}" for word in _arguments(parser)]
        for flag in _flags(parser):
            named = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names)
            value = ""
            if flag.takes_value:
                value = f" -x -a {_fish_word(' '.join(flag.words))}" if flag.words else " -r"
            lines.append(f"{seen} {named}{value} -d {_fish_word(flag.text)}")
    return "\n".join(lines)


def _fish_word(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
