"""Measure an environment with small workloads, and detect slowdowns.

`provision bench run` times matrix products, copies, networks of each kind, a data loader and an all-reduce with the
PyTorch of --python or --image. Networks are created on the fly and nothing is downloaded. --save stores the results
after each case; --resume continues with the missing cases. On a GPU that the facts know, results are compared with
those of a healthy GPU; a result below them ends with exit code 6.

`provision bench compare` compares the last file with the baseline, which is all files before it. A case that is slower
beyond noise ends with exit code 6. With several baseline runs, the differences between them count as noise. `provision
bench show` prints saved results; --roofline draws them in a roofline chart of the GPU.

Examples:
  provision bench run --save before.json
  provision bench run --image train:1 --only gemm,copy --seconds 1
  provision bench compare before.json after.json --tolerance 3
  provision bench show after.json --roofline after.svg
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from provision.cli.number import number, whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.errors import UsageError

_ACTIONS = ("run", "compare", "show")
_SUITES = ("quick", "standard", "full")
_DEVICES = ("auto", "cuda", "cpu")
_SECONDS = 2.0
_WARMUP = 10
_TOLERANCE = 5.0
_FILES_COMPARED = 2
_LOCK_BYTES_MAX = 16 * 2**20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_choice(
        parser,
        "action",
        _ACTIONS,
        help=("run: measure; compare: compare results with a baseline of one or more runs; show: print saved results"),
    )
    parser.add_argument(
        "files",
        nargs="*",
        # With a default the files are not counted among what is missing where the action is.
        default=[],
        type=parse_path,
        metavar="FILE",
        help="compare: one or more baseline files, then the new results; show: one file",
    )
    where = parser.add_argument_group("what is measured")
    add_value(where, "--python", "PROGRAM", "Python with PyTorch (default: the one on PATH)")
    add_value(where, "--image", "IMAGE", "image with PyTorch, run with docker")
    add_value(where, "--lock", "FILE", "provision.lock of the environment", parse_path)
    add_choice(where, "--device", _DEVICES, default="auto", help="auto uses a GPU if there is one, otherwise the CPU")
    how = parser.add_argument_group("how it is measured")
    add_choice(
        how,
        "--suite",
        _SUITES,
        default="quick",
        help="quick (minutes), standard (a sixth of all combinations, with every pair of values), full",
    )
    add_value(
        how, "--only", "KIND,…", "only these cases: gemm, copy, stream, cnn, rnn, transformer, …", action="append"
    )
    add_value(how, "--seconds", "S", "time per case (default: 2)", number("--seconds", 0.01, 3600))
    add_value(how, "--warmup", "N", "repetitions that are not timed (default: 10)", whole("--warmup", 0, 10_000))
    add_switch(how, "--list", "list the cases and exit")
    kept = parser.add_argument_group("results")
    add_value(kept, "--save", "FILE", "save the results to this file", parse_path)
    add_switch(kept, "--resume", "continue with the results in --save")
    add_value(
        kept,
        "--tolerance",
        "PERCENT",
        "differences up to this are never a slowdown (default: 5)",
        number("--tolerance", 0, 100),
    )
    add_value(kept, "--roofline", "FILE", "write a roofline chart (SVG)", parse_path)


def run(options: argparse.Namespace, output: Output) -> int:
    """Measure, compare or show."""
    count = len(options.files)
    if not {"run": count == 0, "compare": count >= _FILES_COMPARED, "show": count == 1}[options.action]:
        words = {
            "run": "no file",
            "compare": "two files or more, the baseline first and what is judged last",
            "show": "one file",
        }[options.action]
        example = {"run": "", "compare": " monday.json friday.json", "show": " bench.json"}[options.action]
        raise UsageError(
            f"`provision bench {options.action}` takes {words}",
            hints=(f"write it as in `provision bench {options.action}{example}`",),
        )
    if options.action == "compare":
        return _compare(options, output)
    if options.action == "show":
        from provision.bench.results import read_results

        return _give(read_results(options.files[0]), options, output)
    return _measure(options, output)


def _measure(options: argparse.Namespace, output: Output) -> int:
    from provision.bench.cases import choose
    from provision.bench.runner import Environment, Run, find_device, run_cases

    if options.python and options.image:
        raise UsageError("--python and --image name two environments", hints=("keep one of the two",))
    if options.resume and not options.save:
        raise UsageError("--resume goes on with the file of --save", hints=("name it: `--save bench.json --resume`",))
    only = tuple(part for text in options.only or () for part in text.split(",") if part)
    if options.list:
        cases = choose(options.suite, "cpu" if options.device == "cpu" else "cuda", only)
        output.give({"cases": [case.to_json() for case in cases]}, "\n".join(case.id for case in cases))
        return 0
    choose(options.suite, "cpu" if options.device == "cpu" else "cuda", only)
    digest = _read_digest(options.lock) if options.lock else None
    environment = Environment(
        python=options.python or ("python3" if options.image else sys.executable),
        image=options.image,
        has_gpu=options.device != "cpu",
    )
    how = Run(device=options.device, seconds=options.seconds or _SECONDS, warmup=_default(options.warmup, _WARMUP))
    machine = find_device(environment, how)
    device = machine["device"]
    if device == "cpu" and options.device == "auto":
        output.warn("there is no GPU: the processor is measured")
    cases = choose(options.suite, device, only)
    settings = {"suite": options.suite, "seconds": how.seconds, "warmup": how.warmup}
    book = _Book(options.save, machine, settings, digest, output)
    if options.save is not None:
        book.open(resumes=options.resume)
    left = [case for case in cases if case.id not in book.done]
    if len(left) < len(cases):
        output.note(f"{len(cases) - len(left)} of {len(cases)} cases are measured already")
    with _Progress(output, len(left)) as progress:
        take = Run(device=device, seconds=how.seconds, warmup=how.warmup)
        run_cases(environment, take, left, lambda figure: progress.advance(book.add(figure)), progress.begin)
    return _give(book.results([case.id for case in cases]), options, output)


def _give(results: Any, options: argparse.Namespace, output: Output) -> int:
    from provision.bench.bands import find_unjudged, judge
    from provision.bench.roofline import roofline_svg
    from provision.cli.text.bench import show_results
    from provision.predict.hardware import Hardware
    from provision.records import plain

    matrix = read_matrix(options)
    bands, unjudged = judge(results, matrix), find_unjudged(results, matrix)
    if options.roofline is not None:
        output.save(options.roofline, roofline_svg(results, Hardware(matrix)))
    is_ok = all(band.is_met for band in bands) and any(figure.status == "ok" for figure in results.figures)
    document = {
        **results.to_json(),
        "bands": [plain(band) for band in bands],
        "unjudged": [plain(row) for row in unjudged],
    }
    output.give(document, show_results(results, bands, unjudged), is_ok=is_ok)
    return 0 if is_ok else 6


def _compare(options: argparse.Namespace, output: Output) -> int:
    from provision.bench.compare import compare
    from provision.bench.results import read_results
    from provision.cli.text.bench import show_comparison
    from provision.records import plain

    *before, last = options.files
    names = [os.path.realpath(path) for path in before]
    for path, name in zip(before, names, strict=True):
        if names.count(name) > 1:
            raise UsageError(
                f"{path} is named twice in the baseline",
                because=("a run compared with itself shows neither a change nor noise",),
                hints=("name each run once",),
            )
    baseline = [read_results(path) for path in before]
    found = compare(baseline, read_results(last), _default(options.tolerance, _TOLERANCE) / 100)
    for text in found.machines:
        output.warn(f"the machines differ in {text}")
    document = {**plain(found), "slower": [row.id for row in found.slower]}
    output.give(document, show_comparison(found), is_ok=not found.is_worse)
    return 6 if found.is_worse else 0


class _Book:
    """Results as they grow; with a path they are written after every case.

    Args:
        path: Where they are kept; nowhere when absent.
        machine: What is measured.
        settings: How.
        digest: Of the lock, where one was named.
        output: Says what is not written in a dry run.
    """

    def __init__(
        self, path: Path | None, machine: dict[str, Any], settings: dict[str, Any], digest: str | None, output: Output
    ) -> None:
        self._path, self._machine, self._settings, self._digest = path, machine, settings, digest
        self._output = output
        self._figures: dict[str, Any] = {}

    @property
    def done(self) -> frozenset[str]:
        """Ids of cases that need not be measured again; those that failed are tried once more."""
        return frozenset(name for name, figure in self._figures.items() if figure.status != "failed")

    def open(self, *, resumes: bool) -> None:
        """Read what is there.

        Raises:
            UsageError: There is a file and nobody said to go on with it, or it is of another machine.
        """
        from provision.bench.results import read_results

        if self._path is None or not self._path.exists():
            return
        if not resumes:
            raise UsageError(
                f"{self._path} exists", hints=("continue it with `--resume`", "or name another file with `--save`")
            )
        old = read_results(self._path)
        for key in ("gpu", "device", "torch", "driver", "system"):
            if old.machine.get(key) != self._machine.get(key):
                raise UsageError(
                    f"{self._path} is of another environment",
                    because=(f"its {key} is {old.machine.get(key)}, and this one's {self._machine.get(key)}",),
                    hints=("name another file with `--save`",),
                )
        if old.lock_digest != self._digest:
            raise UsageError(f"{self._path} was measured with another lock", hints=("name another file with `--save`",))
        self._figures = {figure.id: figure for figure in old.figures}

    def add(self, figure: Any) -> Any:
        """Take a figure, and write."""
        self._figures[figure.id] = figure
        if self._path is not None and not self._output.is_dry_run:
            _write(self._path, self.results(list(self._figures)).to_json())
        return figure

    def results(self, order: list[str]) -> Any:
        """Return what there is, in the order of the cases, others behind."""
        from provision.bench.results import Results

        names = [*order, *(name for name in self._figures if name not in order)]
        figures = tuple(self._figures[name] for name in names if name in self._figures)
        return Results(machine=self._machine, settings=self._settings, figures=figures, lock_digest=self._digest)


def _write(path: Path, document: dict[str, Any]) -> None:
    import json

    from provision.generate.write import Artifact, write_artifacts

    whole = path.resolve()
    text = json.dumps(document, indent=1) + "\n"
    write_artifacts(whole.parent, (Artifact(path=whole.name, text=text),), force=True)


class _Progress:
    """A bar where the standard error is a terminal, a line a case with -v, else nothing.

    Args:
        output: Knows how much is to be said.
        total: Cases.
    """

    def __init__(self, output: Output, total: int) -> None:
        self._output, self._total = output, total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
        """Show the bar."""
        if self._total and self._output.verbosity >= 0 and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def begin(self, name: str) -> None:
        """Say which case runs."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def advance(self, figure: Any) -> None:
        """Count a case."""
        if self._bar is not None:
            self._bar.advance(self._task)
        elif self._output.verbosity > 0:
            self._output.note(f"{figure.id}: {figure.status}")


def _read_digest(path: Path) -> str:
    """Return the digest of a provision.lock, or of the one in a folder."""
    from provision.files import read_text
    from provision.resolve.stack import Stack

    file = path / "provision.lock" if path.is_dir() else path
    return Stack.from_lock(read_text(file, "--lock", bytes_max=_LOCK_BYTES_MAX)).lock_digest


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value
