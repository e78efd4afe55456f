"""Scores say what they claim; calibration follows measurements as far as they deserve."""

from __future__ import annotations

import random
from math import exp

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.predict.baseline import Baseline
from provision.predict.calibration import Calibration
from provision.predict.evaluation import evaluate
from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest
from provision.predict.tables import Measured, detect, read_sheet
from provision.records import replace
from tools.measured_tables import KINDS

RUN = PredictRequest(task="train", model="llama-3.1-8b", gpu="h100", gpus=8, sequence=4096, micro_batch=2)
HEADING = "task,model,gpu,gpus,sequence,micro_batch,measured\n"


@pytest.fixture(scope="module")
def predictor():
    return Predictor(Matrix())


def _evaluate(predictor, tmp_path, lines, **words):
    path = tmp_path / "table.csv"
    path.write_text(HEADING + "".join(lines))
    sheet = read_sheet(path)
    return evaluate(sheet, detect(sheet, KINDS), predictor, **words)


def _line(predictor, factor, **changes):
    run = replace(RUN, **changes)
    value = predictor.forecast(predictor.describe(run)).value * factor
    return f"train,{run.model},{run.gpu},{run.gpus},{run.sequence},{run.micro_batch:g},{value!r}\n"


def test_perfect_rows_score_perfectly(predictor, tmp_path):
    found = _evaluate(predictor, tmp_path, [_line(predictor, 1, sequence=s) for s in (1024, 2048, 4096)])
    assert found.score.mdape_percent == pytest.approx(0, abs=1e-6)
    assert (found.score.within_8_share, found.score.coverage_80, found.score.answered_share) == (1, 1, 1)


def test_error_coverage_and_share_are_counted(predictor, tmp_path):
    found = _evaluate(predictor, tmp_path, [_line(predictor, f) for f in (1 / 1.05, 1 / 1.10, 1 / 9)])
    assert found.score.mdape_percent == pytest.approx(10)
    assert found.score.within_8_share == pytest.approx(1 / 3)
    assert found.score.coverage_80 <= 2 / 3


def test_a_refused_row_counts_as_a_miss(predictor, tmp_path):
    good = [_line(predictor, 1, sequence=s) for s in (1024, 2048)]
    found = _evaluate(predictor, tmp_path, [*good, "train,llama-3.1-8b,abacus,8,2048,1,7\n"])
    assert found.score.answered_share == pytest.approx(2 / 3)
    assert found.score.coverage_80 == pytest.approx(2 / 3)
    assert found.score.p90_percent is None
    assert found.refused[0].line == 4
    assert "abacus" in found.refused[0].reason


def test_mostly_refused_tables_have_no_median(predictor, tmp_path):
    found = _evaluate(predictor, tmp_path, [_line(predictor, 1), *["train,gpt,h100,8,2048,1,7\n"] * 3])
    assert found.score.mdape_percent is None


def test_the_articles_formula_and_one_utilisation_stand_beside(predictor, tmp_path):
    found = _evaluate(predictor, tmp_path, [_line(predictor, 1)])
    assert set(found.baselines) == {"seed", "constant"}
    assert found.baselines["seed"].coverage_80 is None


def test_measured_rows_calibrate_the_score(predictor, tmp_path):
    lines = [_line(predictor, 0.5, sequence=s) for s in (1024, 2048, 4096)]
    path = tmp_path / "probes.csv"
    path.write_text(HEADING + "".join(lines))
    probes = read_sheet(path)
    rows = [detect(probes, KINDS).read(cells) for cells in probes.rows]
    gpu = {"gpu": "rtx-4090"}
    lines = [_line(predictor, 0.5, sequence=s, **gpu) for s in (1024, 2048, 4096)]
    path.write_text(HEADING + "".join(lines))
    probes = read_sheet(path)
    rows = [detect(probes, KINDS).read(cells) for cells in probes.rows]
    found = _evaluate(predictor, tmp_path, [_line(predictor, 0.5, sequence=8192, **gpu)], measured=rows)
    assert found.modes["cold"].mdape_percent == pytest.approx(100)
    assert found.score.mdape_percent < 20


def _calibrated(predictor, factors, **changes):
    rows = [(predictor.describe(replace(RUN, **changes)), 0.0)]
    described = rows[0][0]
    cold = predictor.forecast(described)
    measured = [(described, cold.value * factor) for factor in factors]
    return cold, Calibration(predictor, measured).forecast(described, cold)


def test_probes_move_the_forecast_and_narrow_the_interval(predictor):
    cold, calibrated = _calibrated(predictor, [0.7, 0.71, 0.69, 0.7, 0.7], gpu="l40s")
    assert (cold.mode, calibrated.mode) == ("cold", "calibrated")
    assert calibrated.value == pytest.approx(0.7 * cold.value, rel=0.05)
    assert calibrated.high / calibrated.low < cold.high / cold.low
    assert calibrated.low < 0.7 * cold.value < calibrated.high


def test_one_broken_probe_among_many_changes_little(predictor):
    cold, calibrated = _calibrated(predictor, [1.0] * 8 + [0.01], gpu="l40s")
    assert calibrated.value == pytest.approx(cold.value, rel=0.1)


def test_measurements_elsewhere_make_a_transfer(predictor):
    here = predictor.describe(replace(RUN, gpu="l40s"))
    there = predictor.describe(RUN)
    cold = predictor.forecast(here)
    calibration = Calibration(predictor, [(there, exp(there.estimate.middle))])
    assert calibration.forecast(here, cold).mode == "transfer"


def test_no_measurement_at_all_leaves_the_forecast_cold(predictor):
    described = predictor.describe(RUN)
    cold = predictor.forecast(described)
    assert Calibration(predictor, []).forecast(described, cold) == cold


def test_unrelated_measurements_leave_the_forecast_cold(predictor):
    here = predictor.describe(RUN)
    there = predictor.describe(replace(RUN, model="llama-3.1-70b", gpu="a100"))
    cold = predictor.forecast(here)
    assert Calibration(predictor, [(there, 1000.0)]).forecast(here, cold) == cold


def test_measurements_of_other_work_on_the_same_gpu_change_nothing(predictor):
    train = predictor.describe(RUN)
    serve = predictor.describe(PredictRequest(task="serve", model="llama-3.1-8b", gpu="h100", precision="bf16"))
    cold = predictor.forecast(serve)
    calibration = Calibration(predictor, [(train, 0.1 * exp(train.estimate.middle))] * 5)
    assert calibration.forecast(serve, cold) == cold
    assert not calibration.has(serve)
    assert calibration.forecast(train, predictor.forecast(train)).mode == "calibrated"


def test_one_table_may_mix_tasks_each_with_its_own_baseline(predictor, tmp_path):
    path = tmp_path / "table.csv"
    rows = []
    for task, words in (("train", "fp8,8,2048,2,,"), ("serve", "fp8,1,,,8,"), ("collective", ",8,,,,all_reduce")):
        precision, gpus, sequence, micro, batch, operation = words.split(",")
        values = {"gpus": int(gpus), "operation": operation or None}
        if task != "collective":
            values |= {"model": "llama-3.1-8b", "precision": precision}
        if sequence:
            values |= {"sequence": int(sequence), "micro_batch": float(micro)}
        if batch:
            values |= {"batch": float(batch)}
        run = PredictRequest(task=task, gpu="h100", **values)
        value = predictor.forecast(predictor.describe(run)).value
        model = values.get("model", "")
        rows.append(f"{task},{model},h100,{gpus},{precision},{sequence},{micro},{batch},{operation},{value!r}\n")
    heading = "task,model,gpu,gpus,precision,sequence,micro_batch,batch,operation,measured\n"
    path.write_text(heading + "".join(rows))
    sheet = read_sheet(path)
    found = evaluate(sheet, detect(sheet, KINDS), predictor)
    assert found.score.mdape_percent == pytest.approx(0, abs=1e-6)
    assert (found.score.rows, found.score.answered_share) == (3, 1)
    assert found.baselines["constant"].p90_percent < 1000


@pytest.mark.parametrize("cell", ["1e300", "-3", "0", "NaN", "inf", "many", ""])
def test_no_number_in_a_cell_breaks_the_score(predictor, tmp_path, cell):
    """Whatever stands in a cell, the row is answered or refused by name, and the other rows are scored."""
    path = tmp_path / "table.csv"
    heading = "kind,gpu,precision,model,img_size,batch_size,samples_per_sec,params_m,gmacs,macts_m\n"
    good = ["infer", "RTX3090", "amp", "resnet50", "224", "256", "2000", "25.6", "4.1", "11.1"]
    lines = [",".join([*good[:place], cell, *good[place + 1 :]]) + "\n" for place in range(4, len(good))]
    path.write_text(heading + ",".join(good) + "\n" + "".join(lines))
    sheet = read_sheet(path)
    found = evaluate(sheet, detect(sheet, KINDS), predictor)
    assert found.score.rows + len(found.skipped) == 1 + len(lines)
    assert all(row.reason for row in found.refused)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_no_row_has_a_speed_without_a_logarithm(value):
    with pytest.raises(UsageError, match="row 7: what was measured"):
        Measured(line=7, request=RUN, value=value, groups={})


def test_a_word_that_no_run_has_is_refused():
    with pytest.raises(UsageError, match="recompute `often`"):
        PredictRequest(task="train", gpu="h100", recompute="often")
    with pytest.raises(UsageError, match="nothing has so many"):
        PredictRequest(task="train", gpu="h100", parameters=1e200)


def test_a_table_of_failures_is_refused(predictor, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("phase,gpu,model_quant,tokens_per_s,status\ndecode,3090 24GB,70B F16,,OOM\n")
    sheet = read_sheet(path)
    with pytest.raises(UsageError, match="no measured row"):
        evaluate(sheet, detect(sheet, KINDS), predictor)


def test_the_articles_formula_can_be_fitted_where_it_is_true(predictor):
    chance = random.Random(1)  # noqa: S311
    signal = predictor.signal(RUN)
    rows = []
    for _ in range(50):
        batch, gpus = chance.uniform(1, 64), chance.randint(1, 16)
        made = replace(signal, batch=batch, gpus=gpus, size=exp(chance.uniform(10, 25)))
        from math import log

        rows.append((made, 3 * batch - 2 * log(made.size) + 5 * gpus + 100))
    baseline = Baseline.fit(rows)
    assert all(baseline.predict("seed", made) == pytest.approx(value, rel=1e-4) for made, value in rows)
    assert baseline.is_in_sample
