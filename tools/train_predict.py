r"""Learn what `provision predict` knows, from tables of measurements, and write it as small JSON files.

    python -m tools.train_predict --timm FILE --foundry FILE --megatron FILE --torchtitan FILE --nccl FILE \
        --serving FILE -o compat/predict

Needs numpy and scikit-learn, which the program itself does not. The same tables give the same bytes. Only tables whose
licence lets a model learnt from them be shipped belong here; others are for `provision predict --measured`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest
from provision.predict.serving import Engine, holds
from provision.predict.tables import Measured, detect, read_sheet
from provision.records import plain, record, replace

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from fit_serving import fit_engine, fit_stream, fit_unstated
from measured_tables import FIRST_TOKENS, KINDS

Array = Any
Deployments = list[tuple[PredictRequest, float, float | None]]
_TARGET = 0.80
_SEED = 0
_KIND_ROWS = 60
"""Rows of one model, engine and layout count for no more than so many."""


@record
class Recipe:
    """How one model is learnt.

    ``tables`` are keys of ``SOURCES``. ``ridge`` is the weight of the penalty, ``trees`` their number (0: none).
    ``offsets`` names the keys whose own offset is learnt, with how many rows an offset counts as doubtful;
    ``holds`` the groups that are held out, each with the offsets that then remain known. ``doubtful`` names GPUs whose
    rows are learnt from but not judged by. ``alike`` counts how many rows are so alike that they tell what one does;
    0 gives intervals of one width. ``metric`` is that of serving, whose physics is fitted as well.
    """

    name: str
    tables: tuple[str, ...]
    ridge: float
    trees: int = 0
    offsets: tuple[tuple[str, float], ...] = ()
    holds: tuple[tuple[str, tuple[str, ...]], ...]
    folds: int = 8
    alike: float = 0.0
    doubtful: tuple[str, ...] = ()
    metric: str | None = None
    about: str


SOURCES = {
    "timm": "huggingface/pytorch-image-models, results/*.csv, Apache-2.0",
    "foundry": "mosaicml/llm-foundry, scripts/train/benchmarking/README.md, Apache-2.0",
    "megatron": "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary*.md, Apache-2.0",
    "torchtitan": "pytorch/torchtitan, benchmarks/*.md, BSD-3-Clause",
    "nccl": "aiconfigurator-core (NVIDIA), measured NCCL tables, Apache-2.0",
    "llamacpp": "llama.cpp on cloud machines (SpareCores) and XiongjieDai/GPU-Benchmarks-on-LLM-Inference; "
    "nothing but nine constants of physics is taken from them",
    "serving": "aiconfigurator-core (NVIDIA), silicon tables, Apache-2.0",
}

RECIPES = (
    Recipe(
        name="vision",
        tables=("timm",),
        ridge=10.0,
        trees=150,
        offsets=(("setup", 20.0), ("model", 1.0)),
        holds=(("family", ("setup",)), ("gpu", ("model",)), ("gpu", ()), ("row", ("model", "setup"))),
        folds=5,
        about="timm's own benchmark results",
    ),
    Recipe(
        name="training-fsdp",
        tables=("foundry", "torchtitan"),
        ridge=0.3,
        alike=10.0,
        offsets=(("gpu", 1e9),),
        holds=(("size", ("gpu",)), ("gpu", ())),
        about="llm-foundry's and torchtitan's published training speeds",
    ),
    Recipe(
        name="training-megatron",
        tables=("megatron",),
        ridge=2.0,
        offsets=(("gpu", 4.0), ("model", 2.0), ("run", 0.5)),
        holds=(("release", ("gpu", "model", "run")), ("model", ("gpu",)), ("gpu", ("model",)), ("model", ())),
        about="Megatron-Bridge's published training speeds",
    ),
    Recipe(
        name="collective",
        tables=("nccl",),
        ridge=1.0,
        trees=120,
        offsets=(("fabric", 1e9), ("link", 1e9), ("gpu", 1e9)),
        holds=(
            ("gpu", ("fabric", "link")),
            ("link", ("fabric",)),
            ("link", ()),
            ("release", ("fabric", "gpu", "link")),
        ),
        # One host without switches, whose bus bandwidth of 2 GB/s among eight GPUs is that of something broken.
        doubtful=("l40s",),
        about="NCCL measurements inside one node",
    ),
    *(
        Recipe(
            name=f"serving-{metric}",
            metric=metric,
            tables=("serving",),
            # Few models and engines, with hundreds of rows each: only what they all show may bend the physics.
            ridge=1000.0,
            trees=trees,
            offsets=(("model", 30.0), ("gpu", 30.0)),
            holds=(("model", ("gpu",)), ("gpu", ("model",)), ("row", ("gpu", "model")), ("model", ())),
            about="measured deployments of vLLM, SGLang and TensorRT-LLM",
        )
        for metric, trees in (("tpot", 80), ("ttft", 40))
    ),
)


class Samples:
    """Rows as numbers.

    Attributes:
        features: Names of the columns of ``inputs``.
        inputs: One row each, columns as ``features``.
        residuals: Logarithm of what was measured over what the ceilings give.
        groups: Group kind → one name a row.
        keys: Offset kind → one name a row.
        plain: Columns batch, log(size), GPUs of the articles' formula.
        values: What was measured.
    """

    def __init__(self, predictor: Predictor, tables: Sequence[Path], metric: str | None = None) -> None:
        self.predictor = predictor
        self.engines: dict[str, dict[int, Engine]] = {}
        rows: list[tuple[Measured, Any]] = []
        for table in tables:
            sheet = read_sheet(table)
            kind = FIRST_TOKENS if metric == "ttft" else detect(sheet, KINDS)
            read = []
            for cells in sheet.rows:
                try:
                    measured = kind.read(cells)
                except ProvisionError:
                    continue
                read.append(measured)
                predictor.networks.learn(measured.request)
            for measured in read:
                try:
                    rows.append((measured, predictor.signal(measured.request)))
                except ProvisionError:
                    continue
        self.requests = [measured.request for measured, _ in rows]
        self.features = tuple(sorted({name for _, signal in rows for name in signal.features}))
        self.values = np.array([measured.value for measured, _ in rows])
        self._take([signal for _, signal in rows])
        self.keys = {kind: np.array([signal.keys.get(kind, "") for _, signal in rows]) for kind in rows[0][1].keys}
        self.plain = np.array([[signal.batch, np.log(signal.size), signal.gpus, 1.0] for _, signal in rows])
        kinds = sorted({kind for measured, _ in rows for kind in measured.groups})
        self.groups = {kind: np.array([measured.groups.get(kind, "") for measured, _ in rows]) for kind in kinds}
        self.groups["gpu"] = self.keys["gpu"]
        if "link" in self.keys:
            self.groups["link"] = self.keys["link"]
        # Two tables share the model `training-fsdp`; a torchtitan table is a group as a size is.
        self.groups["size"] = np.array(
            ["table " + m.groups["table"] if "table" in m.groups else m.groups.get("model", "") for m, _ in rows]
        )
        if metric:
            # Names of one and the same network, and its checkpoints in other precisions, are one group.
            self.groups["model"] = self.keys["model"]
        # One measurement stands in several dumps of a table: it must not be learnt from where it is held out.
        each = [measured.groups.get("measurement", str(at)) for at, (measured, _) in enumerate(rows)]
        names = {name: at for at, name in enumerate(dict.fromkeys(each))}
        order = np.random.RandomState(_SEED).permutation(len(names))
        self.groups["row"] = np.array([f"{order[names[name]] % 10}" for name in each])
        self.shares = np.array(_shares([measured for measured, _ in rows], predictor)) if metric else None

    def _take(self, signals: Sequence[Any]) -> None:
        self.inputs = np.array([[signal.features[name] for name in self.features] for signal in signals])
        self.physics = np.array([signal.physics for signal in signals])
        self.residuals = np.log(self.values) - self.physics

    def under(self, engine: Engine) -> None:
        """Describe the rows again, with other constants of serving."""
        self.predictor.engine = engine
        self._take([self.predictor.signal(request) for request in self.requests])


def _shares(rows: Sequence[Measured], predictor: Predictor) -> list[float]:
    """Return how much each row of serving counts: 0 for one that is not learnt from.

    One row of a measurement is learnt from, the first that says how many machines decode and whose weights fit into the
    GPUs that it names; none where no row does. Models and engines that were measured often count
    for no more than others, so that what is learnt holds for the next.
    """
    chosen: dict[str, int] = {}
    for index, row in enumerate(rows):
        request = row.request
        accelerator, shape = predictor.hardware.find(request.gpu), predictor.shapes.of(request)
        if (request.is_disaggregated and not request.workers) or not holds(request, accelerator, shape):
            continue
        chosen.setdefault(row.groups["measurement"], index)
    kinds = [(predictor.shapes.of(row.request).name, row.request.backend, row.request.is_disaggregated) for row in rows]
    count = Counter(kinds[index] for index in chosen.values())
    shares = [0.0] * len(rows)
    for index in chosen.values():
        shares[index] = min(1.0, _KIND_ROWS / count[kinds[index]])
    return shares


class Fit:
    """One learnt function.

    Args:
        inputs: Rows of features.
        targets: Residuals.
        keys: Offset kind → names.
        recipe: How to learn.
        known: Which offsets to learn.
        shares: How much each row counts; all alike where absent.
    """

    def __init__(
        self,
        inputs: Array,
        targets: Array,
        keys: dict[str, Array],
        recipe: Recipe,
        known: Sequence[str],
        shares: Array | None = None,
    ) -> None:
        self.alike = recipe.alike
        self.low, self.high = inputs.min(0), inputs.max(0)
        self.centre = inputs.mean(0)
        self.scale = inputs.std(0)
        self.scale[self.scale < 1e-9] = 1.0
        self._fit_line((inputs - self.centre) / self.scale, targets, recipe.ridge, shares)
        rest = targets - self._line(inputs)
        self._booster: Any = None
        if recipe.trees and len(targets) > 200:
            self._booster = _grow(inputs, rest, recipe.trees, shares)
            rest = rest - self._booster.predict(inputs)
        self.offsets: dict[str, dict[str, float]] = {}
        for kind, doubt in recipe.offsets:
            if kind not in known:
                continue
            own: dict[str, float] = {}
            order = np.argsort(keys[kind], kind="stable")
            names, starts = np.unique(keys[kind][order], return_index=True)
            for name, members in zip(names, np.split(order, starts[1:]), strict=True):
                own[str(name)] = float(np.median(rest[members])) * len(members) / (len(members) + doubt)
            rest = rest - np.array([own[str(name)] for name in keys[kind]])
            self.offsets[kind] = own

    def _fit_line(self, inputs: Array, targets: Array, penalty: float, shares: Array | None) -> None:
        from sklearn.linear_model import Ridge

        line = Ridge(alpha=penalty).fit(inputs, targets, sample_weight=shares)
        for _ in range(5):
            # Huber's weights: a broken host must not bend the line.
            misses = np.abs(targets - line.predict(inputs))
            knee = 1.345 * np.median(misses) / 0.6745 + 1e-9
            trust = np.minimum(1, knee / np.maximum(misses, 1e-9)) * (1.0 if shares is None else shares)
            line = Ridge(alpha=penalty).fit(inputs, targets, sample_weight=trust)
        self.weights, self.intercept = line.coef_, float(line.intercept_)
        self.spread = np.linalg.inv(inputs.T @ inputs + penalty * np.eye(inputs.shape[1]))

    def _line(self, inputs: Array) -> Array:
        margin = (self.high - self.low) / 4
        held = np.clip(inputs, self.low - margin, self.high + margin)
        return ((held - self.centre) / self.scale) @ self.weights + self.intercept

    def difficulty(self, inputs: Array) -> Array:
        """Return how much wider than the narrowest an interval must be: the further from what was seen, the wider.

        Source: the predictive variance of ridge regression, with as many rows as are alike counted as one.
        """
        if not self.alike:
            return np.ones(len(inputs))
        margin = (self.high - self.low) / 4
        held = (np.clip(inputs, self.low - margin, self.high + margin) - self.centre) / self.scale
        return np.sqrt(1 + self.alike * np.einsum("ij,jk,ik->i", held, self.spread, held))

    def predict(self, inputs: Array, keys: dict[str, Array]) -> Array:
        """Return residuals for rows."""
        found = self._line(inputs)
        if self._booster is not None:
            found = found + self._booster.predict(inputs)
        for kind, own in self.offsets.items():
            found = found + np.array([own.get(str(name), 0.0) for name in keys[kind]])
        return found

    def export_trees(self) -> list[list[list[float]]]:
        """Return every tree as rows ``[feature, threshold, left, right]``; a leaf is ``[-1, value]``."""
        if self._booster is None:
            return []
        base = float(np.ravel(self._booster._baseline_prediction)[0])
        trees: list[list[list[float]]] = [[[-1, _short(base)]]]
        for (predictor,) in self._booster._predictors:
            trees.append(
                [
                    [-1, _short(node["value"])]
                    if node["is_leaf"]
                    else [
                        int(node["feature_idx"]),
                        float(f"{node['num_threshold']:.9g}"),
                        int(node["left"]),
                        int(node["right"]),
                    ]
                    for node in predictor.nodes
                ]
            )
        return trees


def _grow(inputs: Array, targets: Array, count: int, shares: Array | None) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=count,
        max_leaf_nodes=12,
        learning_rate=0.1,
        min_samples_leaf=30,
        early_stopping=False,
        random_state=_SEED,
    ).fit(inputs, targets, sample_weight=shares)


def hold_out(
    samples: Samples, recipe: Recipe, group: str, known: Sequence[str], measured: Deployments | None = None
) -> tuple[Array, Array]:
    """Return, for every row, the logarithm that a model without its group predicts, and how difficult it finds that.

    The constants of serving are fitted without the group as well, to the deployments in ``measured``.
    """
    names = sorted(set(samples.groups[group]))
    engines = samples.engines.setdefault(group, {})
    rank = np.random.RandomState(_SEED).permutation(len(names))
    fold_of = {name: int(rank[i]) % min(recipe.folds, len(names)) for i, name in enumerate(names)}
    folds = np.array([fold_of[name] for name in samples.groups[group]])
    predicted = np.zeros(len(folds))
    difficulties = np.ones(len(folds))
    for fold in sorted(set(folds)):
        out = folds == fold
        kept = ~out if samples.shares is None else ~out & (samples.shares > 0)
        keys = {kind: names[kept] for kind, names in samples.keys.items()}
        if measured is not None:
            if fold not in engines:
                engines[fold] = fit_engine(samples.predictor, _others(measured, samples, out))
            samples.under(engines[fold])
        fit = Fit(samples.inputs[kept], samples.residuals[kept], keys, recipe, known, _of(samples.shares, kept))
        predicted[out] = fit.predict(samples.inputs[out], {kind: names[out] for kind, names in samples.keys.items()})
        difficulties[out] = fit.difficulty(samples.inputs[out])
        predicted[out] += samples.physics[out]
    return predicted, difficulties


def _of(shares: Array | None, rows: Array) -> Array | None:
    return None if shares is None else shares[rows]


def _others(measured: Deployments, samples: Samples, out: Array) -> Deployments:
    """Return the deployments that are not among the rows held out."""
    held = {replace(request, metric="tpot") for request, is_out in zip(samples.requests, out, strict=True) if is_out}
    return [row for row in measured if row[0] not in held]


def read_deployments(table: Path, predictor: Predictor, *, is_unstated: bool = False) -> Deployments:
    """Return the deployments of a table of serving that are learnt from, with both of their figures.

    Args:
        table: The file.
        predictor: Knows GPUs and models.
        is_unstated: Return those of which nobody says how many machines decode instead.
    """
    rows: list[tuple[Measured, float | None]] = []
    sheet = read_sheet(table)
    kind = detect(sheet, KINDS)
    for cells in sheet.rows:
        first = None
        try:
            row = kind.read(cells)
            predictor.hardware.find(row.request.gpu), predictor.shapes.of(row.request)
        except ProvisionError:
            continue
        with suppress(ProvisionError):
            first = FIRST_TOKENS.read(cells).value
        rows.append((row, first))
    if is_unstated:
        return [
            (row.request, row.value, first)
            for row, first in {row.groups["measurement"]: (row, first) for row, first in reversed(rows)}.values()
            if row.request.is_disaggregated and not row.request.workers
        ]
    shares = _shares([row for row, _ in rows], predictor)
    return [(row.request, row.value, first) for (row, first), share in zip(rows, shares, strict=True) if share]


def interval(misses: Array, groups: Array) -> tuple[float, float, float]:
    """Return the 80 % interval of a miss, and the share of rows it covers when its group is left out of it.

    The level of the quantiles is raised until intervals made without a group cover 80 % of that group's rows, as
    cross-conformal prediction does (Vovk 2015; Barber et al. 2021).
    """
    names = sorted(set(groups))
    choices = [(float(level), 1.0) for level in np.arange(0.16, 0.004, -0.005)]
    # Few groups cannot show how far the next one lies: then the whole is stretched.
    choices += [(0.05, float(stretch)) for stretch in np.arange(1.1, 5.0, 0.1)]
    for level, stretch in choices:
        covered = 0
        for name in names:
            low, high = stretch * np.quantile(misses[groups != name], [level, 1 - level])
            own = misses[groups == name]
            covered += int(((own >= low) & (own <= high)).sum())
        if covered >= _TARGET * len(misses):
            break
    low, high = stretch * np.quantile(misses, [level, 1 - level])
    return float(low), float(high), covered / len(misses)


def train(recipe: Recipe, tables: Sequence[Path], predictor: Predictor, say: Callable[[str], None]) -> dict[str, Any]:
    """Learn one model.

    Args:
        recipe: How.
        tables: Its tables, in the order of the recipe.
        predictor: Describes rows.
        say: Takes a line of progress.

    Returns:
        The JSON document.
    """
    measured = read_deployments(tables[0], predictor) if recipe.metric else None
    if measured is not None:
        predictor.engine = fit_engine(predictor, measured)
    whole = predictor.engine if measured is not None else None
    samples = Samples(predictor, tables, recipe.metric)
    judged = []
    intervals: dict[str, list[float]] = {}
    for group, known in recipe.holds:
        if len(set(samples.groups[group])) < 2:
            continue
        judged_rows = ~np.isin(samples.keys["gpu"], recipe.doubtful) if known else np.full(len(samples.values), True)
        if samples.shares is not None:
            judged_rows = samples.shares > 0
        predicted, difficulties = hold_out(samples, recipe, group, known, measured)
        misses = (np.log(samples.values) - predicted)[judged_rows]
        difficulty = difficulties[judged_rows]
        low, high, coverage = interval(misses / difficulty, samples.groups[group][judged_rows])
        errors = np.abs(np.exp(-misses) - 1)
        row = {
            "held_out": group,
            "known": sorted(known),
            "rows": len(misses),
            "groups": len(set(samples.groups[group][judged_rows])),
            "mdape_percent": round(float(100 * np.median(errors)), 1),
            "p90_percent": round(float(100 * np.quantile(errors, 0.9)), 1),
            "within_8_percent": round(float(100 * (errors <= 0.08).mean()), 1),
            "coverage_80": round(coverage, 3),
        }
        judged.append(row)
        say(f"{recipe.name}: {row}")
        intervals["+".join(sorted(known)) or "none"] = [_short(low), _short(high)]
    widest = max(intervals.values(), key=lambda pair: pair[1] - pair[0])
    intervals["any"] = intervals.get("none", widest)
    every = [kind for kind, _ in recipe.offsets]
    if whole is not None:
        samples.under(whole)
    kept = np.full(len(samples.values), True) if samples.shares is None else samples.shares > 0
    keys = {kind: names[kept] for kind, names in samples.keys.items()}
    fit = Fit(samples.inputs[kept], samples.residuals[kept], keys, recipe, every, _of(samples.shares, kept))
    seed, *_ = np.linalg.lstsq(samples.plain[kept], samples.values[kept], rcond=None)
    return {
        "schema_version": 1,
        "name": recipe.name,
        "summary": f"learnt from {int(kept.sum())} rows of {recipe.about}",
        "sources": [
            {"table": key, "what": SOURCES[key], "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for key, path in zip(recipe.tables, tables, strict=True)
        ],
        "cross_validation": judged,
        "intervals": intervals,
        "baselines": {
            "seed": [_short(value) for value in seed],
            "constant": _short(float(np.median(samples.residuals[kept]))),
        },
        "features": list(samples.features),
        "centre": [_short(value) for value in fit.centre],
        "scale": [_short(value) for value in fit.scale],
        "low": [_short(value) for value in fit.low],
        "high": [_short(value) for value in fit.high],
        "weights": [_short(value) for value in fit.weights],
        "intercept": _short(fit.intercept),
        "offsets": {
            kind: {name: _short(value) for name, value in sorted(own.items()) if name}
            for kind, own in fit.offsets.items()
        },
        "alike": recipe.alike,
        "spread": [[_short(value) for value in row[: index + 1]] for index, row in enumerate(fit.spread)]
        if recipe.alike
        else [],
        "trees": fit.export_trees(),
    }


def learn_networks(table: Path) -> dict[str, Any]:
    """Return operations, activations and parameters of every network a table names, and a guess from parameters."""
    sheet = read_sheet(table)
    kind = detect(sheet, KINDS)
    networks: dict[str, list[float]] = {}
    for cells in sheet.rows:
        try:
            measured = kind.read(cells)
        except ProvisionError:
            continue
        request = measured.request
        if not (request.model and request.gmacs and request.macts_m and request.parameters):
            continue
        size = request.image_size or 224
        have = networks.get(request.model.lower())
        if have is None or abs(size - 224) < abs(have[0] - 224):
            networks[request.model.lower()] = [size, round(request.parameters / 1e6, 4), request.gmacs, request.macts_m]
    rows = np.array(list(networks.values()))
    millions = np.log(rows[:, 1])
    area = (rows[:, 0] / 224) ** 2
    guess = {
        name: [
            _short(value) for value in np.polyfit(millions, np.log(np.maximum(rows[:, column], 0.01) / area), 1)[::-1]
        ]
        for name, column in (("gmacs", 2), ("macts_m", 3))
    }
    return {
        "schema_version": 1,
        "note": "name: [pixels of the edge, 10^6 parameters, 10^9 multiply-adds, 10^6 activations], as timm has them",
        "sources": [
            {"table": "timm", "what": SOURCES["timm"], "sha256": hashlib.sha256(table.read_bytes()).hexdigest()}
        ],
        "guess": guess,
        "networks": dict(sorted(networks.items())),
    }


def learn_serving(table: Path, streams: Sequence[Path]) -> dict[str, Any]:
    """Return how far engines stay from the hardware's ceilings, part by part."""
    predictor = Predictor(Matrix())
    measured = read_deployments(table, predictor)
    engine = fit_engine(predictor, measured)
    engine = replace(
        engine, unstated=fit_unstated(predictor, engine, measured, read_deployments(table, predictor, is_unstated=True))
    )
    prompts = []
    for path in streams:
        sheet = read_sheet(path)
        kind = detect(sheet, KINDS)
        for cells in sheet.rows:
            with suppress(ProvisionError):
                row = kind.read(cells)
                predictor.hardware.find(row.request.gpu)
                if row.request.input_tokens and row.request.weight_bytes:
                    prompts.append((row.request, row.value))
    if prompts:
        engine = replace(engine, stream=fit_stream(predictor, prompts))
    return {
        "schema_version": 1,
        "note": "how often the ideal time of each part of a step, and of the wait for the first token, engines take; "
        "layers, step, exchange_start, dispatch, scheduling, prompt_layers and constant are in micro- or milliseconds",
        "sources": [
            {"table": "serving", "what": SOURCES["serving"], "sha256": hashlib.sha256(table.read_bytes()).hexdigest()},
            *(
                {
                    "table": "llamacpp",
                    "what": SOURCES["llamacpp"],
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                }
                for path in streams
            ),
        ],
        "rows": len(measured) + len(prompts),
        **plain(engine),
    }


def write(document: dict[str, Any], path: Path) -> None:
    """Write a document, one entry a line, so that a retrain gives a readable difference."""
    lines = []
    for key, value in document.items():
        if isinstance(value, dict) and len(value) > 8:
            body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{body}\n }}")
        elif isinstance(value, list) and value and isinstance(value[0], (list, dict)):
            body = ",\n".join(f"  {json.dumps(entry, separators=(',', ':'))}" for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{body}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    beside = path.with_suffix(".tmp")
    beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    beside.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn every model whose tables are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, what in SOURCES.items():
        if key == "llamacpp":
            continue
        parser.add_argument(f"--{key}", type=Path, metavar="FILE", help=what)
    parser.add_argument("--llamacpp", type=Path, action="append", metavar="FILE", help=SOURCES["llamacpp"])
    parser.add_argument("--only", metavar="NAME", action="append", help="learn only this model; may be repeated")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of the scores")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the files go")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.timm and (not options.only or "networks" in options.only):
        write(learn_networks(options.timm), options.output / "networks.json")
    if options.serving and (not options.only or "serving" in options.only):
        write(learn_serving(options.serving, options.llamacpp or ()), options.output / "serving.json")
    for recipe in RECIPES:
        tables = [getattr(options, key) for key in recipe.tables]
        given = [(key, path) for key, path in zip(recipe.tables, tables, strict=True) if path]
        if not given or (options.only and recipe.name not in options.only):
            continue
        partial = replace(recipe, tables=tuple(key for key, _ in given))
        say = _ignore if options.quiet else _tell
        document = train(partial, [path for _, path in given], Predictor(Matrix()), say)
        write(document, options.output / f"{recipe.name}.json")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _ignore(_: str) -> None:
    pass


def _short(value: float) -> float:
    return float(f"{float(value):.7g}")


if __name__ == "__main__":
    raise SystemExit(main())
