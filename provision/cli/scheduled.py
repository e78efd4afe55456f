"""What `cluster` and `slurm` share: the stack they write down, the script they start, the variables of a job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.output import Output
from provision.cli.request import given_inputs, has_inputs, other_words, read_request, read_values, solve_request
from provision.errors import UsageError, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.generate.subject import Subject
    from provision.generate.tuning import Situation

_STARTERS = ("torchrun", "python", "python3")


def read_stack(options: argparse.Namespace, command: str, matrix: Matrix, output: Output) -> Subject:
    """Return what the lock of ``--lock`` says, or the stack of a request.

    Raises:
        UsageError: There are both, or the lock is none.
        IncompatibleError: No stack meets the request.
        UnknownError: The facts do not know whether one does.
    """
    from provision.cli.lock_file import read_subject, subject_of

    values = read_values(options)
    if options.lock is None:
        inputs = given_inputs(options, output, matrix)
        request = read_request(values, inputs)
        return subject_of(solve_request(request, matrix, command, other_words(options), values=values, inputs=inputs))
    if values or has_inputs(options):
        raise UsageError(
            "--lock and a request exclude each other",
            because=("the lock is the answer to a request already",),
            hints=("leave one of the two out",),
        )
    return read_subject(options.lock)


def refuse_starter(script: Sequence[str]) -> None:
    """Refuse a script that names its starter once more.

    Raises:
        UsageError: It does.
    """
    if script and Path(script[0]).name in _STARTERS:
        rest = " ".join(script[1:]) or "train.py"
        raise UsageError(
            f"`{shown(script[0])}` is not a script",
            because=("torchrun starts what stands behind `--`, and is put before it",),
            hints=(f"write `-- {shown(rest)}`",),
        )


def judge_variables(texts: Sequence[str], situation: Situation, matrix: Matrix, output: Output) -> dict[str, str]:
    """Return the variables of ``--env``, judged by the facts.

    Raises:
        UsageError: One is named twice.
        IncompatibleError: The facts refute one.
    """
    from provision.cli.commands.tune import refuse_settings
    from provision.generate.tuning import judge, parse_setting

    settings = [parse_setting(text) for text in texts]
    if len({name for name, _ in settings}) < len(settings):
        raise UsageError("--env names one variable twice", hints=("keep one of the two",))
    judgements = judge(settings, situation, matrix)
    refuse_settings(judgements)
    for item in judgements:
        if item.row is not None:
            output.warn(f"{item.name}={item.value}: {item.row.truth}; {item.row.instead}")
    return dict(settings)
