"""Tables of networks whose operations nobody states: what a measured run of one says of another run of it.

Nothing cold can be said of such a network. A row is the level of its network, how its setup (GPU, precision) runs all
networks, and what its number of GPUs and its batch bring; each tenth of a table is forecast from the other nine.
"""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from statistics import median

from provision.errors import ProvisionError, UnknownError, UsageError
from provision.predict.evaluation import Refused, Score, score
from provision.predict.hardware import Hardware
from provision.predict.precision import read_precision
from provision.predict.request import Forecast
from provision.predict.tables import Sheet
from provision.predict.tables.sheet import Cells
from provision.records import record

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from measured_tables import above_zero

_FULL_BATCH = 8.0
"""Samples at which a GPU is half busy."""
_SCALING = 0.95
"""Share of ideal that each doubling of GPUs in one machine keeps; what Lambda's published runs have in the median."""
_FOLDS = 10
_ROUNDS = 3


@record
class Run:
    """One row of such a table."""

    line: int
    model: str
    gpu: str
    value: float
    gpus: int = 1
    precision: str = ""
    batch: float | None = None

    def __post_init__(self) -> None:
        """Refuse what has no logarithm.

        Raises:
            UsageError: What was measured, or the number of GPUs, is not above zero.
        """
        if not 0 < self.value < math.inf:
            raise UsageError(f"what was measured comes to {self.value:g}")
        if self.gpus < 1:
            raise UsageError(f"a number of GPUs of {self.gpus} makes no sense")


@record
class Suite:
    """One kind of table: its columns, the one that was measured, and what reads a row."""

    name: str
    needs: tuple[str, ...]
    value: str
    read: Callable[[Cells], Run]


def find_suite(sheet: Sheet) -> Suite | None:
    """Return which of these tables a sheet is, or ``None``."""
    have = set(sheet.columns)
    return next((suite for suite in SUITES if have.issuperset({*suite.needs, suite.value})), None)


def score_suite(sheet: Sheet, suite: Suite, hardware: Hardware) -> tuple[Score, tuple[Refused, ...]]:
    """Return how well each tenth of a table is forecast from the others, and the rows that were not.

    Args:
        sheet: The table.
        suite: What it is.
        hardware: Looks GPUs up; one that is not known stands only for itself.
    """
    runs: list[tuple[Run, float, str]] = []
    refused: list[Refused] = []
    for cells in sheet.rows:
        try:
            cells.check()
            run = suite.read(cells)
            runs.append((run, *_ideal(run, hardware)))
        except ProvisionError as error:
            refused.append(Refused(line=cells.line, reason=str(error)))
    answers, values = [], []
    for fold in range(_FOLDS):
        forecast = _learn([row for index, row in enumerate(runs) if index % _FOLDS != fold])
        for row in runs[fold::_FOLDS]:
            answer = forecast(row)
            if answer is None:
                refused.append(Refused(line=row[0].line, reason=f"`{row[0].model}` was measured nowhere else"))
            else:
                answers.append(answer)
                values.append(row[0].value)
    return score(answers, values, len(refused)), tuple(refused)


def _ideal(run: Run, hardware: Hardware) -> tuple[float, str]:
    """Return the logarithm of a run's speed in relation to others of its network, and its board."""
    try:
        gpu = hardware.find(run.gpu)
        board, ceiling = gpu.id, 0.5 * math.log(gpu.tensor_flop_s * gpu.memory_bytes_s)
    except UnknownError:
        board, ceiling = f"unknown {run.gpu.lower()}", 0.0
    batch = run.batch or _FULL_BATCH
    gpus = math.log(run.gpus) * (1 + math.log(_SCALING) / math.log(2))
    return ceiling + gpus + math.log(batch / (batch + _FULL_BATCH)), f"{board}/{run.precision}"


def _learn(rows: Sequence[tuple[Run, float, str]]) -> Callable[[tuple[Run, float, str]], Forecast | None]:
    """Return what forecasts a row: how setups differ once each network's level is taken out (Tukey's median polish)."""
    misses = [(setup, run.model, math.log(run.value) - ideal) for run, ideal, setup in rows]
    setups: dict[Hashable, float] = defaultdict(float)
    levels: dict[Hashable, float] = {}
    for _ in range(_ROUNDS):
        levels = _medians([(model, miss - setups[setup]) for setup, model, miss in misses])
        setups = defaultdict(float, _medians([(setup, miss - levels[model]) for setup, model, miss in misses]))
    levels = _medians([(model, miss - setups[setup]) for setup, model, miss in misses])
    own = _medians([((model, setup), miss) for setup, model, miss in misses])
    left = sorted(miss - own[model, setup] for setup, model, miss in misses) or [0.0]
    # What is left of a row is seen with the row itself in the middle: the ends are taken further out than a tenth.
    end = len(left) // 25
    apart = [abs(own[model, setup] - levels[model] - setups[setup]) for setup, model, _ in misses] or [0.0]
    doubt = 1.9 * median(apart)

    def forecast(row: tuple[Run, float, str]) -> Forecast | None:
        run, ideal, setup = row
        if run.model not in levels:
            return None
        measured = own.get((run.model, setup))
        shift = levels[run.model] + setups[setup] if measured is None else measured
        middle = ideal + shift
        low, high = (left[end], left[-1 - end]) if measured is not None else (-doubt, doubt)
        return Forecast(
            value=math.exp(middle),
            low=math.exp(middle + min(low, -0.03)),
            high=math.exp(middle + max(high, 0.03)),
            unit="samples/s",
            mode="calibrated",
        )

    return forecast


def _medians(rows: Sequence[tuple[Hashable, float]]) -> dict[Hashable, float]:
    grouped: dict[Hashable, list[float]] = defaultdict(list)
    for name, miss in rows:
        grouped[name].append(miss)
    return {name: median(misses) for name, misses in grouped.items()}


def _read_lambda(cells: Cells) -> Run:
    return Run(
        line=cells.line,
        model=f"{cells.need_text('model')}/{cells.text('unit') or ''}",
        gpu=cells.need_text("gpu"),
        gpus=round(cells.need("gpu_count")),
        precision=_any_precision(cells),
        batch=above_zero(cells.number("batch_per_gpu")),
        value=cells.need("throughput"),
    )


def _read_examples(cells: Cells) -> Run:
    column = cells.need_text("throughput_column")
    where = " ".join(cells.text(name) or "" for name in ("gpu", "system", "throughput_column", "heading_path", "row"))
    board = re.search(r"\b(H100|A100|V100|A30|A10|T4)\b", where.replace("-", " "))
    named = re.sub(r"\W+", " ", column).strip().lower()
    return Run(
        line=cells.line,
        model="/".join((cells.need_text("model_dir"), cells.text("kind") or "", named)),
        gpu=board[1] if board else "not stated",
        gpus=round(_first_number(cells.text("gpus")) or 1) or 1,
        precision=_any_precision(cells),
        batch=_first_number(cells.text("batch_size")),
        value=cells.need("throughput"),
    )


def _read_mlperf(cells: Cells) -> Run:
    gpus = round(cells.need("accelerators"))
    batch = above_zero(cells.number("global_batch_size"))
    return Run(
        line=cells.line,
        model=cells.need_text("benchmark"),
        gpu=cells.need_text("accelerator"),
        gpus=gpus,
        batch=batch / max(gpus, 1) if batch else None,
        # A speed, as everything that is forecast: runs to the target a minute.
        value=1 / cells.need("minutes_to_target_olympic_mean"),
    )


def _read_product(cells: Cells) -> Run:
    sizes = [round(cells.need(name)) for name in ("m", "n", "k")]
    value = above_zero(cells.number("tflops"))
    return Run(
        line=cells.line,
        model="x".join(map(str, sizes)),
        gpu=cells.need_text("system"),
        precision="bf16",
        value=value or 2e-9 * math.prod(sizes) / cells.need("latency_ms"),
    )


def _any_precision(cells: Cells) -> str:
    """Return a precision that only tells rows apart."""
    text = cells.text("precision") or "fp32"
    return read_precision(text) or text.lower()


def _first_number(text: str | None) -> float | None:
    """Return the first number in a cell of prose such as ``256 (8 GPUs)``."""
    found = re.search(r"\d+(?:\.\d+)?", text or "")
    return above_zero(float(found[0])) if found else None


SUITES = (
    Suite(name="suite", needs=("gpu", "gpu_count", "model"), value="throughput", read=_read_lambda),
    Suite(name="examples", needs=("model_dir", "throughput_column"), value="throughput", read=_read_examples),
    Suite(
        name="mlperf",
        needs=("benchmark", "accelerator", "accelerators"),
        value="minutes_to_target_olympic_mean",
        read=_read_mlperf,
    ),
    Suite(name="products", needs=("system", "m", "n", "k"), value="tflops", read=_read_product),
)
