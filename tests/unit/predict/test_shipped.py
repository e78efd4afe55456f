"""The models that are shipped: as accurate as is claimed, well formed, and what the training makes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from provision.matrix.load import Matrix
from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest
from provision.predict.tables import detect, read_sheet
from tools.measured_tables import KINDS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "compat" / "predict"
NAMES = ("collective", "serving-tpot", "training-fsdp", "training-megatron", "vision")
REFERENCE = ROOT.parent / "shared" / "reference" / "plan" / "data"
TITLES = {
    "training-fsdp": "training, FSDP",
    "training-megatron": "training, Megatron",
    "vision": "images",
    "collective": "collectives",
    "serving-tpot": "serving",
    "serving-ttft": "serving, first token",
}


def _document(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_meets_its_schema(name):
    import jsonschema

    schema = json.loads((ROOT / "compat" / "schema" / "predict.schema.json").read_text(encoding="utf-8"))
    document = _document(name)
    jsonschema.validate(document, schema)
    count = len(document["features"])
    assert {len(document[key]) for key in ("centre", "scale", "low", "high", "weights")} == {count}


@pytest.mark.parametrize("name", NAMES)
def test_every_tree_ends(name):
    for tree in _document(name)["trees"]:
        for index, node in enumerate(tree):
            if node[0] != -1:
                assert index < node[2] < len(tree)
                assert index < node[3] < len(tree)


@pytest.mark.parametrize(
    ("name", "held_out", "most"),
    [
        ("training-fsdp", "size", 6),
        ("training-megatron", "release", 10),
        ("vision", "family", 16),
        ("vision", "row", 7),
        ("collective", "gpu", 15),
        ("collective", "link", 15),
    ],
)
def test_what_was_left_out_is_forecast_as_well_as_is_asked(name, held_out, most):
    rows = [row for row in _document(name)["cross_validation"] if row["held_out"] == held_out]
    assert rows
    assert all(row["mdape_percent"] <= most for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_hold_what_they_claim(name):
    for row in _document(name)["cross_validation"]:
        assert 0.75 <= row["coverage_80"] <= 0.85, row


def test_the_page_tells_the_accuracy_of_the_models():
    page = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")
    for name, title in TITLES.items():
        for row in _document(name)["cross_validation"]:
            line = (
                f"| {title} | {row['held_out']} | {', '.join(row['known']) or '–'} | {row['rows']:,} "
                f"| {row['mdape_percent']} % | {row['p90_percent']} % | {row['within_8_percent']:.0f} % "
                f"| {100 * row['coverage_80']:.0f} % |"
            )
            assert line in page


def _self_made(path):
    """Write a table of NCCL runs as links of 80 % would give, with 3 % of noise."""
    chance = random.Random(7)  # noqa: S311
    links = {"h100_sxm": 450e9, "h200_sxm": 450e9, "b200_sxm": 900e9, "gb200": 900e9, "a100_sxm": 300e9}
    lines = ["system,op_name,num_gpus,bytes,busbw_gbs\n"]
    for system, link in links.items():
        for gpus in (2, 4, 8):
            for power in range(10, 30):
                message = 2.0**power
                seconds = 1e-5 + message / (0.8 * link)
                value = message / seconds / 1e9 * math.exp(chance.gauss(0, 0.03))
                lines.append(f"{system},all_gather,{gpus},{message:g},{value:.6g}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("sklearn", reason="training needs scikit-learn, which is not installed here")
    from threadpoolctl import threadpool_limits

    from tools.train_predict import main

    folder = tmp_path_factory.mktemp("trained")
    table = _self_made(folder / "nccl.csv")
    # Beside other tests more threads only wait for each other.
    with threadpool_limits(1):
        for turn in ("one", "two"):
            assert main(["--nccl", str(table), "-o", str(folder / turn)]) == 0
        yield folder


def test_training_finds_what_a_self_made_table_hides(trained):
    document = json.loads((trained / "one" / "collective.json").read_text(encoding="utf-8"))
    by_gpu = next(row for row in document["cross_validation"] if row["held_out"] == "gpu")
    assert by_gpu["mdape_percent"] < 8
    assert 0.75 <= by_gpu["coverage_80"] <= 0.9


def test_training_twice_gives_the_same_bytes(trained):
    assert (trained / "one" / "collective.json").read_bytes() == (trained / "two" / "collective.json").read_bytes()


def test_what_is_evaluated_is_what_was_trained(trained):
    """The plain evaluation of the JSON file and scikit-learn's own agree, trees and all."""
    from provision.predict.regression import read_regression
    from tools.train_predict import RECIPES, Fit, Samples

    recipe = next(recipe for recipe in RECIPES if recipe.name == "collective")
    predictor = Predictor(Matrix())
    samples = Samples(predictor, [trained / "nccl.csv"])
    fit = Fit(samples.inputs, samples.residuals, samples.keys, recipe, [kind for kind, _ in recipe.offsets])
    wanted = fit.predict(samples.inputs, samples.keys)
    model = read_regression(trained / "one" / "collective.json")
    sheet = read_sheet(trained / "nccl.csv")
    kind = detect(sheet, KINDS)
    for cells, residual in zip(sheet.rows, wanted, strict=True):
        signal = predictor.signal(kind.read(cells).request)
        found = model.estimate(signal.physics, signal.features, signal.keys)
        assert found.middle - signal.physics == pytest.approx(residual, abs=2e-3)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("training-fsdp", {"foundry": "throughput_llmfoundry_train.csv", "torchtitan": "throughput_torchtitan.csv"}),
        ("training-megatron", {"megatron": "throughput_megatron_bridge.csv"}),
    ],
)
def test_the_shipped_model_is_what_training_makes(tmp_path, name, tables):
    pytest.importorskip("sklearn", reason="training needs scikit-learn, which is not installed here")
    if not REFERENCE.is_dir():
        pytest.skip(f"the tables that {name} was learnt from are not beside this checkout: not compared with a retrain")
    from tools.train_predict import main

    words = [word for key, file in tables.items() for word in (f"--{key}", str(REFERENCE / file))]
    assert main([*words, "-o", str(tmp_path)]) == 0
    made, shipped = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")), _document(name)
    assert made["sources"] == shipped["sources"]
    assert made["features"] == shipped["features"]
    assert made["weights"] == pytest.approx(shipped["weights"], rel=1e-4, abs=1e-6)
    assert made["cross_validation"] == shipped["cross_validation"]


def test_table_names_reach_a_model():
    predictor = Predictor(Matrix())
    for gpu, wanted in (("h100", "training-fsdp"), ("b200", "training-megatron")):
        request = PredictRequest(task="train", model="llama-3.1-8b", gpu=gpu, gpus=8)
        assert predictor.describe(request).model == wanted
