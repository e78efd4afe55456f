"""From words to an exit code: find the command, run it, word what went wrong.

A pipe that its reader closed ends the program silently with 141, the code a shell gives a process that such a pipe
ended.
"""

from __future__ import annotations

import sys

try:
    import argparse
    import gc
    import os
    import signal
    from collections.abc import Sequence
    from types import FrameType
    from typing import ClassVar

    from provision.cli.output import Output, silence
    from provision.cli.parser import (
        COMMANDS,
        build_parser,
        build_top_parser,
        did_you_mean,
        find_command,
        load_command,
    )
    from provision.errors import EXIT_INTERRUPTED, ActionFailedError, ProvisionError, UsageError, shown
except KeyboardInterrupt:
    # Importing is most of the time before main() can word an interrupt.
    sys.stderr.write("error: interrupted\n")
    sys.exit(130)

_EXIT_CLOSED_PIPE = 141


class _InterruptedError(ActionFailedError):
    exit_code: ClassVar[int] = EXIT_INTERRUPTED
    code: ClassVar[str] = "interrupted"


def entry() -> None:
    """Run the program and end the process; what `provision` on PATH calls."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A terminal that cannot show an arrow gets its escape, not an error.
                stream.reconfigure(errors="backslashreplace")
        signal.signal(signal.SIGTERM, _interrupt)
        # Nothing here makes cycles worth collecting before the process ends.
        gc.disable()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # The interpreter would walk through all objects once more for cycles, only to end.
    gc.freeze()
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does, so that a program that is told to end takes its children along."""
    del number
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


def main(words: Sequence[str]) -> int:
    """Run one command line.

    Args:
        words: The arguments, without the program's name.

    Returns:
        The exit code.
    """
    flags = words[: words.index("--")] if "--" in words else words
    output = Output(is_json="--json" in flags)
    try:
        try:
            return _run(words, output)
        except ProvisionError as error:
            return _fail(output, error)
        except KeyboardInterrupt:
            return _fail(output, _InterruptedError("interrupted"))
    except BrokenPipeError:
        silence(sys.stdout)
        return _EXIT_CLOSED_PIPE


def _fail(output: Output, error: ProvisionError) -> int:
    try:
        output.fail(error)
    except ActionFailedError as full:
        output.fail(full)
    return error.exit_code


def _run(words: Sequence[str], output: Output) -> int:
    try:
        return _dispatch(words, output)
    except (ProvisionError, BrokenPipeError):
        raise
    except SystemExit as stop:
        # argparse ends the process after printing help or the version.
        if sys.stdout is not None:
            sys.stdout.flush()
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        if os.environ.get("PROVISION_DEBUG"):
            raise
        said = shown(str(error).partition("\n")[0])
        raise ProvisionError(
            f"internal error: {type(error).__name__}{': ' if said else ''}{said}",
            because=("this is a bug of provision",),
            hints=("`PROVISION_DEBUG=1` shows where; please report it with the command you ran",),
        ) from error


def _dispatch(words: Sequence[str], output: Output) -> int:
    # Alone, the program and a command that has actions show their help, as docker, kubectl and cargo do.
    words = words or ["--help"]
    position = find_command(words)
    if position is None:
        _set_up(output, build_top_parser().read(words))
        raise UsageError("no command was given", hints=("`provision --help` lists them",))
    name = words[position]
    if name not in COMMANDS:
        # What looks like a command may be the value of a flag that belongs behind one.
        build_top_parser().read(words[:position])
        raise UsageError(
            f"unknown command `{shown(name)}`", hints=(*did_you_mean(name, COMMANDS), "`provision --help` lists them")
        )
    output.command = name
    parser = build_parser(name)
    others = [*words[:position], *words[position + 1 :]]
    options = parser.read(others or (["--help"] if parser.actions else []))
    _set_up(output, options)
    return load_command(name).run(options, output)


def _set_up(output: Output, options: argparse.Namespace) -> None:
    output.is_json = options.json
    output.is_dry_run = options.dry_run
    output.verbosity = -1 if options.quiet else options.verbose
    output.color = options.color
    target = getattr(options, "output", None)
    output.target = None if target is None or str(target) == "-" else target
