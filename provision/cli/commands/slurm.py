"""Write batch files of Slurm for a stack: verify, train, serve, measure.

The stack comes from a lock (--lock), of an image or of nodes, or from a request like those of `provision resolve`.
--image writes a file that runs the verification of the image on each node; arguments after `--` a training job with
torchrun on all nodes; --serve a service; --nccl-tests-image or `--runtime host` a measurement of NCCL.

Images run with enroot and the pyxis plugin, or with Apptainer; `--runtime host` uses an environment of the nodes. Only
environment variables of NCCL and the frameworks that the facts call safe are set, and --env is checked against the same
facts.

A training job or service gets SIGUSR1 --save-seconds before its time limit, saves its state, and is requeued.

The same lock, flags and facts produce the same bytes. --test-only asks Slurm whether and when it would start each file
(exit code 6 if it would not).

Examples:
  provision slurm --lock provision.lock --image registry.example/team/train:1 -o jobs
  provision slurm --torch 2.8 --image registry.example/team/train:1 --nodes 2 --gpus 8 -o jobs -- train.py --epochs 3
  provision slurm --lock provision.lock --runtime host --env-dir /opt/provision/envs/main -o jobs -- train.py
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import (
    add_request_flags,
    read_matrix,
)
from provision.cli.scheduled import judge_variables, read_stack, refuse_starter
from provision.errors import UsageError, VerificationFailedError, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.generate.slurm.options import JobOptions
    from provision.generate.subject import Subject
    from provision.generate.write import Artifact

_RUNTIMES = ("pyxis", "apptainer", "host")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_request_flags(parser)
    add_value(
        parser.add_argument_group("or a lock"),
        "--lock",
        "FILE",
        "provision.lock, or a lock written by `provision node lock`",
        parse_path,
    )
    what = parser.add_argument_group("what to run")
    add_value(what, "--image", "IMAGE", "image of the jobs, built by `provision image`")
    add_choice(what, "--runtime", _RUNTIMES, help="container runtime, or host for none (default: pyxis)")
    add_value(what, "--env-dir", "DIR", "virtual environment on the nodes, with --runtime host")
    add_value(what, "--mount", "SRC[:DST]", "folder of the nodes to mount; may be repeated", action="append")
    add_value(what, "--env", "NAME=VALUE", "environment variable of the job; may be repeated", action="append")
    add_value(what, "--serve", "WORDS", "command of a service on one node, in quotes")
    add_value(what, "--nccl-tests-image", "IMAGE", "image with nccl-tests, to measure NCCL")
    what.add_argument(
        "script", nargs="*", metavar="SCRIPT", help="after `--`: the script that torchrun starts and its arguments"
    )
    asked = parser.add_argument_group("Slurm options")
    for name, text in (
        ("--nodes", "nodes of the training job (default: 1)"),
        ("--gpus", "GPUs per node (default: 1)"),
        ("--cpus", "CPUs per node (default: Slurm's)"),
        ("--memory-gib", "memory per node; 0 for all of it (default: Slurm's)"),
        ("--save-seconds", "seconds before the time limit at which a job is signalled to save (default: 120)"),
    ):
        add_value(asked, name, "N", text, whole(name, 0))
    for name, metavar, text in (
        ("--gpu-type", "NAME", "GPU type in Slurm (`h100`)"),
        ("--time", "LIMIT", "time limit of the jobs (`12:00:00`; default: that of the partition)"),
        ("--partition", "NAME", "partition (default: Slurm's)"),
        ("--account", "NAME", "account to charge"),
        ("--qos", "NAME", "quality of service"),
    ):
        add_value(asked, name, metavar, text)
    out = parser.add_argument_group("output")
    add_value(out, "--output", "DIR", "output folder", parse_path, short="-o", dest="folder")
    add_switch(out, "--check", "write nothing; exit with 8 if a file differs")
    add_switch(out, "--test-only", "ask Slurm whether it would start each file")


def run(options: argparse.Namespace, output: Output) -> int:
    """Render, then write or compare.

    Raises:
        UsageError: Neither a lock nor a request, or both; no folder; nothing to write.
        DriftError: ``--check``, and a file is not what would be written.
    """
    from provision.generate.slurm.jobs import render_jobs
    from provision.generate.write import check_artifacts, write_artifacts

    if options.folder is None:
        raise UsageError("slurm needs to know where to", hints=("name a folder with `-o DIR`",))
    if options.test_only and output.is_dry_run:
        raise UsageError(
            "--test-only asks about the files, and --dry-run writes none", hints=("leave one of them out",)
        )
    refuse_starter(options.script)
    chosen = _options(options)
    matrix = read_matrix(options)
    subject = read_stack(options, "slurm", matrix, output)
    chosen = _with_variables(chosen, options, subject, matrix, output)
    artifacts = render_jobs(subject, chosen, matrix)
    if options.check:
        check_artifacts(options.folder, artifacts)
        written: tuple[str, ...] = ()
    else:
        written = write_artifacts(options.folder, artifacts, dry_run=output.is_dry_run).written
    output.note(f"facts of {matrix.dated}")
    answers = _ask_slurm(options.folder, artifacts) if options.test_only else {}
    is_ok = all(code == 0 for code, _ in answers.values())
    output.give(
        {
            "folder": str(options.folder),
            "lock": {"name": subject.name, "digest": subject.digest, "facts_date": subject.facts_date},
            "files": [artifact.path for artifact in artifacts],
            "written": list(written),
            "commands": [f"sbatch {artifact.path}" for artifact in artifacts],
            **({"slurm": [_row(name, *answer) for name, answer in answers.items()]} if options.test_only else {}),
        },
        _text(options.folder, artifacts, written, answers, output),
        is_ok=is_ok,
    )
    return 0 if is_ok else VerificationFailedError.exit_code


def _ask_slurm(folder: Path, artifacts: tuple[Artifact, ...]) -> dict[str, tuple[int, str]]:
    """Return file → exit code and words of `sbatch --test-only`."""
    from provision.fleet.batch import ask_sbatch

    return {artifact.path: ask_sbatch(folder / artifact.path) for artifact in artifacts}


def _row(name: str, code: int, said: str) -> dict[str, object]:
    return {"file": name, "is_taken": code == 0, "said": said}


def _options(options: argparse.Namespace) -> JobOptions:
    from provision.generate.slurm.options import JobOptions

    try:
        service = tuple(shlex.split(options.serve or ""))
    except ValueError as error:
        raise UsageError(f"--serve: {shown(options.serve)} has a quote without its other half") from error
    given = {
        name: getattr(options, name)
        for name in ("nodes", "gpus", "gpu_type", "time", "partition", "account", "qos", "save_seconds")
        if getattr(options, name) is not None
    }
    return JobOptions(
        runtime=options.runtime or "pyxis",
        image=options.image,
        environment=options.env_dir,
        script=tuple(options.script),
        service=service,
        nccl_tests_image=options.nccl_tests_image,
        cpus=options.cpus,
        memory_gib=options.memory_gib,
        mounts=tuple(options.mount or ()),
        **given,
    )


def _with_variables(
    chosen: JobOptions, options: argparse.Namespace, subject: Subject, matrix: Matrix, output: Output
) -> JobOptions:
    """Return the options with the variables of ``--env``, judged by the facts.

    Raises:
        UsageError: One is named twice.
        IncompatibleError: The facts refute one.
    """
    if not options.env:
        return chosen
    from provision.generate.slurm.jobs import job_situation
    from provision.records import replace

    situation = job_situation(subject, chosen)
    return replace(chosen, variables=judge_variables(options.env, situation, matrix, output))


def _text(
    folder: Path,
    artifacts: tuple[Artifact, ...],
    written: tuple[str, ...],
    answers: dict[str, tuple[int, str]],
    output: Output,
) -> str:
    verb = "would write" if output.is_dry_run else "wrote"
    lines = [f"{folder}: {f'{verb} {len(written)} of {len(artifacts)} files' if written else 'up to date'}"]
    lines += [f"  {artifact.path}" for artifact in artifacts]
    lines += ["then, in that folder:", *(f"  sbatch {artifact.path}" for artifact in artifacts)]
    for name, (code, said) in answers.items():
        lines.append(f"Slurm would {'start' if code == 0 else 'not take'} {name}: {said}")
    return "\n".join(lines)
