"""Find the versions that fit a request, or explain why none do.

The result is printed as text or, with --json, as one complete document. A request that the facts prove incompatible
ends with exit code 3, a request that the facts cannot decide with exit code 4; both name the nearest requests that
work.

--format prints the entries that make uv, pixi, conda, Poetry or pip install the frameworks of the stack, with and
without CUDA. --write writes them to the project file, leaves the rest of the file unchanged, and lists what it
replaced.

--batch reads one JSON object per line, whose keys are the flags without their dashes, and prints one JSON document per
line, in the same order. A line that cannot be read gets an error document. The exit code is 0 once every line has an
answer.

Examples:
  provision resolve --torch 2.8 --gpu a100 --driver 535
  provision resolve --torch '>=2.5,<2.8' --cuda 12.4 --python 3.12 --json
  provision resolve --driver host --torch 2.7
  provision resolve --torch 2.8 --format uv --write
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from provision.cli.fragment import add_fragment_flags, check_fragment_flags, give_fragment
from provision.cli.output import Output
from provision.cli.parser import add_value, parse_path
from provision.cli.request import (
    add_request_flags,
    given_inputs,
    has_inputs,
    other_words,
    read_matrix,
    read_request,
    read_values,
    solve_request,
)
from provision.cli.text.screen import show_stack
from provision.errors import ProvisionError, UsageError, shown
from provision.files import open_stdin
from provision.matrix.load import Matrix

_LINE_BYTES_MAX = 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_request_flags(parser, can_be_cpu=True)
    add_fragment_flags(parser)
    add_value(
        parser.add_argument_group("many requests"),
        "--batch",
        "FILE",
        "read one JSON request per line (- is stdin)",
        parse_path,
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Answer one request, or many."""
    values = read_values(options)
    check_fragment_flags(options)
    if options.batch is not None:
        if values or has_inputs(options) or output.target is not None:
            raise UsageError(
                "--batch takes neither a request nor -o",
                because=("the requests are the lines of its file, the answers go to the standard output",),
                hints=('write the request into the file: one line such as `{"torch": "2.1"}`',),
            )
        return _answer_batch(options.batch, read_matrix(options), other_words(options), output)
    matrix = read_matrix(options)
    inputs = given_inputs(options, output, matrix)
    request = read_request(values, inputs, can_be_cpu=True)
    stack = solve_request(request, matrix, "resolve", other_words(options), values=values, inputs=inputs)
    output.note(f"facts of {stack.facts_date}")
    if options.format is not None:
        give_fragment(stack, matrix, options, output)
        return 0
    output.give({"stack": stack.to_json()}, show_stack(stack, output))
    return 0


def _answer_batch(path: Path, matrix: Matrix, others: tuple[str, ...], output: Output) -> int:
    output.note(f"facts of {matrix.dated}")
    for number, line in enumerate(_read_lines(path), 1):
        try:
            values = _parse_line(line)
            stack = solve_request(read_request(values, can_be_cpu=True), matrix, "resolve", others, values=values)
        except ProvisionError as error:
            output.stream(error.at(f"{'the standard input' if str(path) == '-' else path}, line {number}"))
        else:
            output.stream({"stack": stack.to_json()})
    return 0


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines as they come, so that a writer at the other end of a pipe gets its answers one by one."""
    if str(path) == "-":
        yield from _cut(open_stdin("--batch"))
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"--batch: {path} cannot be read", because=(error.strerror or str(error),)) from error
    with file:
        yield from _cut(file)


def _cut(file: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            line = file.readline(_LINE_BYTES_MAX + 1)
            rest = line
            while len(rest) > _LINE_BYTES_MAX and not rest.endswith(b"\n"):
                rest = file.readline(_LINE_BYTES_MAX + 1)
        except OSError as error:
            raise UsageError("--batch: the file cannot be read", because=(error.strerror or str(error),)) from error
        if not line:
            return
        yield line


def _parse_line(line: bytes) -> dict[str, Any]:
    if len(line) > _LINE_BYTES_MAX:
        raise UsageError(f"the line is longer than {_LINE_BYTES_MAX // 1024} KiB")
    try:
        values = json.loads(line, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        said = shown(str(error)) or type(error).__name__
        raise UsageError("the line is not JSON", because=(said,), hints=('write `{"torch": "2.1"}`',)) from error
    if not isinstance(values, dict):
        raise UsageError("the line is not a JSON object", hints=('write `{"torch": "2.1"}`',))
    return values


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise UsageError("a key stands twice in the line", hints=("keep one of the two",))
    return values
