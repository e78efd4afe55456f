"""Forecast the speed of a run, with an interval that contains the true value four times in five.

A forecast is cold (from specifications), transfer (the model was measured on another GPU) or calibrated (--measured
contains runs on this GPU), and is marked as such. --task train forecasts tokens/s per GPU, serve the milliseconds
between tokens, decode the tokens/s of one stream, vision-inference and vision-training images/s, and collective the bus
bandwidth of NCCL.

--evaluate scores forecasts on a table of measurements instead: how large the errors are, how often the interval
contains the measured value, how many rows got a forecast, and the same for the articles' formula and for one constant
utilisation.

Examples:
  provision predict --task train --model llama-3.1-8b --gpu h100 --gpus 8
  provision predict --task serve --model llama-3.1-70b --gpu h200 --gpus 4 --precision fp8 --batch 32
  provision predict --task vision-training --model resnet50 --gpu a100-80gb
  provision predict --evaluate measured.csv
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provision.cli.number import SCALES, number, whole
from provision.cli.output import Output
from provision.cli.parser import Parser, add_choice, add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.cli.text.paragraph import columns_of
from provision.cli.text.predict import evaluation_document, forecast_document, show_evaluation, show_forecast
from provision.errors import UsageError, shown
from provision.predict.baseline import BASELINES
from provision.predict.request import TASKS

_PRECISIONS = (
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "amp",
    "amp_bf16",
    "fp8",
    "mxfp8",
    "fp4",
    "nvfp4",
    "mxfp4",
    "int8",
    "int4",
)
_ELSEWHERE = {
    "--nodes": "`--gpus` counts the GPUs of all machines",
    "--bytes": "`--message` is the size of a collective's message",
    "--tokens": "`--seq` is the length of a training sequence, `--input-tokens` and `--output-tokens` are for serving",
}
_HEADLINE = ("mdape_percent", "answered_share", "coverage_80")
"""Keys of a score that stand at the top of the document of --json too."""
_SYNONYMS = {"pretrain": "train", "finetune": "train", "inference": "serve"}
_UNITS = {**SCALES, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_FEWEST_PARAMETERS = 1e3
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("seq", "micro_batch", "recompute", "stack", "finetune", "pp", "cp"), ("train",)),
    "compiled": ("train", "vision"),
    "tp": ("train", "serve"),
    "ep": ("train", "serve"),
    "input_tokens": ("serve", "decode"),
    "output_tokens": ("serve", "decode"),
    "backend": ("serve",),
    "cached": ("serve",),
    **dict.fromkeys(("image_size", "channels_last", "torch", "gmacs", "macts"), ("vision",)),
    **dict.fromkeys(("operation", "message"), ("collective",)),
    "batch": ("train", "serve", "vision"),
    "model": ("train", "serve", "decode", "vision"),
    "precision": ("train", "serve", "decode", "vision"),
}
"""Flag → the beginnings of the tasks that it says something about."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    if isinstance(parser, Parser):
        parser.elsewhere.update(_ELSEWHERE)
    run_flags = parser.add_argument_group("run")
    tasks = (*TASKS, *_SYNONYMS)
    add_choice(run_flags, "--task", tasks, metavar="TASK", help=f"what to forecast: {', '.join(tasks)}")
    _add(run_flags, "--model", str, "NAME", "language model (llama-3.1-8b) or image network (resnet50)")
    _add(run_flags, "--gpu", str, "NAME", "GPU (h100, a100-80gb, rtx-4090)")
    _add(run_flags, "--gpus", _whole, "N", "number of GPUs (default: 1; for collective 8)")
    add_choice(
        run_flags,
        "--precision",
        _PRECISIONS,
        metavar="KIND",
        help=f"precision of the arithmetic or, for serving, of the weights: {', '.join(_PRECISIONS)} "
        "(default: bf16; for images amp)",
    )
    _add(run_flags, "--batch", _whole, "N", "sequences or images per step; for training, on all GPUs together")
    sizes = parser.add_argument_group("unpublished model")
    _add(sizes, "--params", _number, "N", "parameters (8e9, 8B)")
    _add(sizes, "--active-params", _number, "N", "parameters used per token, for a mixture of experts")
    _add(sizes, "--layers", _whole, "N", "number of layers")
    _add(sizes, "--hidden", _whole, "N", "hidden size")
    _add(sizes, "--gmacs", _number, "N", "10⁹ multiply-adds per image")
    _add(sizes, "--macts", _number, "N", "10⁶ activations per image")
    language = parser.add_argument_group("language models")
    _add(language, "--seq", _whole, "TOKENS", "tokens per training sequence (default: 2048)")
    _add(language, "--micro-batch", _whole, "N", "sequences per GPU and pass")
    add_choice(language, "--recompute", ("none", "selective", "full"), help="activation recomputation (default: none)")
    add_choice(
        language,
        "--stack",
        ("fsdp", "megatron"),
        help="training software (default: depends on GPU, precision and parallelism)",
    )
    add_switch(language, "--compiled", "the run uses torch.compile")
    add_switch(language, "--finetune", "train adapters with a frozen model")
    _add(language, "--tp", _whole, "N", "tensor parallelism: GPUs per layer")
    _add(language, "--pp", _whole, "N", "pipeline parallelism: number of stages")
    _add(language, "--cp", _whole, "N", "context parallelism: GPUs per sequence")
    _add(language, "--ep", _whole, "N", "expert parallelism: GPUs that share the experts")
    _add(language, "--input-tokens", _whole, "N", "tokens per prompt (default: 1024)")
    _add(language, "--output-tokens", _whole, "N", "tokens per answer (default: 1024)")
    add_choice(language, "--backend", ("vllm", "sglang", "trtllm"), help="serving software")
    _add(
        language,
        "--cached",
        _share,
        "SHARE",
        "share of each prompt that is in the prefix cache, 0 to below 1 (default: 0)",
    )
    images = parser.add_argument_group("images and collectives")
    _add(images, "--image-size", _whole, "PIXELS", "width and height of an image (default: that of the network)")
    add_switch(images, "--channels-last", "images are in channels-last memory format")
    _add(images, "--torch", str, "VERSION", "PyTorch version of the run")
    _add(images, "--operation", str, "NAME", "all_reduce, all_gather, reduce_scatter, alltoall (default: all_reduce)")
    _add(images, "--message", _number, "SIZE", "message size of the collective (default: 512MiB)")
    data = parser.add_argument_group("measurements")
    add_value(
        data,
        "--measured",
        "FILE",
        "table of measured runs to calibrate forecasts with; may be repeated",
        parse_path,
        action="append",
    )
    add_value(data, "--evaluate", "FILE", "score forecasts on a table of measurements", parse_path)
    add_choice(
        data,
        "--baseline",
        BASELINES,
        help=("show the forecast of the articles' formula (seed) or of a constant utilisation; --evaluate shows both"),
    )
    add_switch(data, "--strict", "stop --evaluate at a malformed row, instead of counting it as missed")


def run(options: argparse.Namespace, output: Output) -> int:
    """Forecast one run, or score a table."""
    from provision.predict.predictor import Predictor

    predictor = Predictor(read_matrix(options))
    measured = [row for path in options.measured or () for row in _read_measured(path, output)]
    if options.evaluate is not None:
        return _evaluate(options, predictor, measured, output)
    if options.strict:
        raise UsageError("--strict is for --evaluate")
    from provision.predict.baseline import Baseline
    from provision.predict.calibration import Calibration

    request = _read_request(options)
    for row in measured:
        predictor.networks.learn(row.request)
    described = predictor.describe(request)
    forecast = predictor.forecast(described)
    if measured:
        rows = [(predictor.describe(row.request), row.value) for row in measured]
        forecast = Calibration(predictor, rows).forecast(described, forecast)
        if forecast.mode == "cold":
            output.warn("the measured runs speak neither of this GPU nor of this model: the forecast stays cold")
    baseline = None
    if options.baseline:
        if described.model is None:
            raise UsageError(f"--baseline: nothing was learnt for the task `{request.task}`, so no baseline is either")
        baseline = Baseline.of(predictor.model(described.model)).predict(options.baseline, described.signal)
    for caution in forecast.cautions:
        output.warn(caution)
    if forecast.extrapolates:
        named = ", ".join(name.replace("_", " ") for name in forecast.extrapolates[:4])
        output.warn(f"this lies beyond what was learnt from ({named}): trust the interval less")
    first = _first_token(predictor, request)
    output.give(
        forecast_document(request, forecast, options.baseline, baseline, first),
        show_forecast(request, forecast, options.baseline, baseline, first, columns=columns_of(output)),
    )
    return 0


def _first_token(predictor: Any, request: Any) -> Any:
    """Return the forecast of the wait for the first token, where something is served."""
    from provision.records import replace

    if request.task != "serve":
        return None
    return predictor.forecast(predictor.describe(replace(request, metric="ttft")))


def _evaluate(options: argparse.Namespace, predictor: Any, measured: list[Any], output: Output) -> int:
    from provision.predict.evaluation import evaluate
    from provision.predict.tables import detect, read_sheet

    if options.task or options.gpu or options.model:
        raise UsageError("--evaluate takes its runs from the table", hints=("leave out the flags of a run",))
    sheet = read_sheet(options.evaluate)
    with _progress(output) as on_row:
        found = evaluate(sheet, detect(sheet), predictor, measured=measured, is_strict=options.strict, on_row=on_row)
    for rows, what in ((found.skipped, "left out"), (found.refused, "refused, each a miss in every score")):
        if rows:
            lines = ", ".join(str(row.line) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            counted = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
            output.warn(f"{counted} {what}: row {lines}: {rows[0].reason}")
    if found.assumed:
        said = ", ".join(f"`{column}` ({value})" for column, value in found.assumed)
        output.warn(f"the table lacks columns, and this was taken to be so: {said}; the intervals do not know of it")
    names = (options.baseline,) if options.baseline else BASELINES
    document = evaluation_document(found, names)
    output.give(document, show_evaluation(found, names), head={key: document[key] for key in _HEADLINE})
    return 0


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[int], None]]:
    """Show a bar where the standard error is a terminal, else nothing."""
    if output.verbosity < 0 or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("rows"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda total: bar.update(task, advance=1, total=total)


def _read_measured(path: Path, output: Output) -> list[Any]:
    from provision.predict.evaluation import read_rows
    from provision.predict.tables import detect, read_sheet

    sheet = read_sheet(path)
    rows, _, empty = read_rows(sheet, detect(sheet))
    if empty:
        output.warn(f"{path}: {len(empty)} rows without a measurement are left out")
    return rows


def _read_request(options: argparse.Namespace) -> Any:
    from provision.predict.request import PredictRequest

    for flag in ("task", "gpu"):
        if getattr(options, flag) is None:
            raise UsageError(
                f"--{flag} is missing",
                hints=("for instance `provision predict --task train --model llama-3.1-8b --gpu h100 --gpus 8`",),
            )
    task = _SYNONYMS.get(options.task, options.task)
    is_image = task.startswith("vision")
    if task != "collective" and options.model is None and options.params is None and options.gmacs is None:
        raise UsageError("--model is missing", hints=("name a model, or give its size with `--params`",))
    if task in ("decode", "vision-inference") and (options.gpus or 1) > 1:
        raise UsageError(
            f"--gpus {options.gpus}: a forecast of `{task}` is of one GPU",
            hints=("leave out `--gpus`" + (": each GPU has images of its own" if is_image else ""),),
        )
    _refuse_idle(options, task)
    if options.torch is not None and not re.search(r"\d", options.torch):
        raise UsageError(f"--torch `{shown(options.torch)}` is not a version", hints=("write it as in `--torch 2.9`",))
    if options.params is not None and options.params < _FEWEST_PARAMETERS:
        raise UsageError(
            f"a model of {options.params:g} parameters is none", hints=("write them as in `--params 8e9`",)
        )
    gpus = options.gpus or (8 if task == "collective" else options.tp or 1)
    values: dict[str, Any] = {
        "task": task,
        "gpu": options.gpu,
        "gpus": gpus,
        "model": options.model,
        "precision": options.precision or ("amp" if is_image else "int4" if task == "decode" else "bf16"),
        "parameters": options.params,
        "active_parameters": options.active_params,
        "layers": options.layers,
        "hidden": options.hidden,
        "gmacs": options.gmacs,
        "macts_m": options.macts,
        "sequence": options.seq,
        "micro_batch": options.micro_batch,
        "recompute": options.recompute,
        "stack": options.stack,
        "is_finetune": options.finetune,
        "input_tokens": options.input_tokens,
        "output_tokens": options.output_tokens,
        "backend": options.backend,
        "cached_share": options.cached,
        "image_size": options.image_size,
        "layout": "nhwc" if options.channels_last else "nchw",
        "framework": options.torch,
        "operation": options.operation,
        "message_bytes": options.message,
        "tensor_parallel": options.tp or (gpus if task == "serve" else 1),
        "pipeline_parallel": options.pp or 1,
        "context_parallel": options.cp or 1,
        "expert_parallel": options.ep or 1,
        "global_batch" if task == "train" else "batch": options.batch,
    }
    if is_image or options.compiled:
        values["is_compiled"] = options.compiled
    split = values["tensor_parallel"] * values["pipeline_parallel"] * values["context_parallel"]
    if task == "train" and split > gpus:
        raise UsageError(
            f"a model split over {split} GPUs does not fit {gpus}", hints=("give more `--gpus`, or a smaller split",)
        )
    if values["expert_parallel"] > gpus:
        raise UsageError(
            f"experts shared by {values['expert_parallel']} GPUs do not fit {gpus}",
            hints=("give more `--gpus`, or a smaller `--ep`",),
        )
    if task == "serve" and values["tensor_parallel"] > gpus:
        raise UsageError(
            f"a model split over {values['tensor_parallel']} GPUs does not fit {gpus}",
            hints=("give more `--gpus`, or a smaller `--tp`",),
        )
    passes = (options.micro_batch or 1) * gpus // split if task == "train" else 0
    if options.batch and options.batch < passes:
        raise UsageError(
            f"a batch of {options.batch} does not feed {gpus} GPUs",
            because=(f"the passes of one moment take {passes} sequences",),
            hints=("give a larger `--batch`, or fewer `--gpus`",),
        )
    return PredictRequest(**values)


def _refuse_idle(options: argparse.Namespace, task: str) -> None:
    """Refuse a flag that says nothing about a task: nothing that is asked for is dropped."""
    for flag, tasks in _ONLY_FOR.items():
        if getattr(options, flag) and not task.startswith(tasks):
            raise UsageError(
                f"--{flag.replace('_', '-')} has no effect on the task `{task}`",
                because=(f"it is for {', '.join(tasks)}",),
                hints=("leave it out",),
            )


def _add(group: Any, flag: str, kind: Any, metavar: str, text: str) -> None:
    add_value(group, flag, metavar, text, kind if kind is str else kind(flag))


def _number(flag: str) -> Callable[[str], float]:
    """Return a reader of a number above zero, with a unit such as ``B`` or ``MiB`` behind it or none."""
    return number(flag, is_above=True, units=_UNITS)


def _share(flag: str) -> Callable[[str], float]:
    return number(flag)


def _whole(flag: str) -> Callable[[str], int]:
    return whole(flag, units=_UNITS)
