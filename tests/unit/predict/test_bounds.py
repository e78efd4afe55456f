"""No forecast beats what the hardware can do at best, and none hides that it rests on another precision."""

from __future__ import annotations

from math import exp, log

import pytest

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.predict.bounds import clip, hold, is_beyond, widen
from provision.predict.calibration import Calibration
from provision.predict.predictor import Predictor
from provision.predict.regression import Estimate
from provision.predict.request import PredictRequest
from provision.predict.signal import Signal
from provision.records import replace

SERVE = PredictRequest(task="serve", model="llama-3.1-8b", gpu="l4", gpus=2, tensor_parallel=2)
TRAIN = PredictRequest(task="train", model="llama-3.1-8b", gpu="b200", gpus=8, sequence=8192)


@pytest.fixture(scope="module")
def predictor():
    return Predictor(Matrix())


def _forecast(predictor, request):
    return predictor.forecast(predictor.describe(request))


def _signal(*, bound, rises):
    return Signal(
        physics=0.0, features={}, keys={}, unit="", size=1, batch=1, gpus=1, higher_is_better=rises, bound=bound
    )


def test_a_middle_beyond_the_bound_gives_way_to_it():
    held, is_held = hold(_signal(bound=0.0, rises=True), Estimate(middle=1, low=0.5, high=2), (0.25, 0.5))
    assert is_held
    assert (held.low, held.middle, held.high) == pytest.approx((log(0.25), log(0.5), 0.0))


def test_times_are_bound_from_below():
    held, is_held = hold(_signal(bound=0.0, rises=False), Estimate(middle=-1, low=-2, high=1), (0.25, 0.5))
    assert is_held
    assert (held.low, held.middle, held.high) == pytest.approx((0.0, log(2), log(4)))


def test_an_end_beyond_the_bound_is_cut_and_the_rest_stays():
    held, is_held = hold(_signal(bound=0.0, rises=False), Estimate(middle=1, low=-1, high=2), (0.25, 0.5))
    assert not is_held
    assert (held.low, held.middle, held.high) == (0.0, 1, 2)


def test_without_a_bound_nothing_changes():
    estimate = Estimate(middle=5, low=4, high=6)
    signal = _signal(bound=None, rises=True)
    assert hold(signal, estimate, (0.2, 0.4)) == (estimate, False)
    assert clip(signal, 4, 5, 6) == (4, 5, 6)
    assert not is_beyond(signal, 1e9)


def test_doubt_widens_both_ends():
    wide = widen(Estimate(middle=0, low=-3, high=3), -1, 4)
    assert (wide.low, wide.middle, wide.high) == pytest.approx((-6, -1, 4))


def test_tokens_do_not_come_faster_than_weights_are_read(predictor):
    """8.03 · 10⁹ parameters of two bytes over twice 300 GB/s."""
    least = 8.03e9 * 2 / (2 * 300e9) * 1e3
    forecast = _forecast(predictor, SERVE)
    assert forecast.low == pytest.approx(least, rel=0.01)
    # Engines read weights at 80 to 90 % of the bandwidth, and do more than that in a step.
    assert 1.1 * least < forecast.value < 1.5 * least
    assert forecast.high > 1.4 * forecast.value
    assert forecast.mode == "cold"
    assert any("would beat what good runs reach" in text for text in forecast.cautions)


def test_a_held_forecast_claims_no_measurement_of_its_model(predictor):
    assert not any("itself was" in text for text in _forecast(predictor, SERVE).basis)


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "a100", "l4", "l40s", "t4", "v100", "rtx-4090"])
@pytest.mark.parametrize("batch", [1.0, 8.0, 256.0])
@pytest.mark.parametrize("precision", ["bf16", "fp8", "int4"])
def test_no_serving_forecast_beats_its_memory(predictor, gpu, batch, precision):
    run = predictor.describe(replace(SERVE, gpu=gpu, batch=batch, precision=precision))
    forecast = predictor.forecast(run)
    assert exp(run.signal.bound) <= forecast.low * (1 + 1e-9)
    assert forecast.low <= forecast.value <= forecast.high


def test_one_stream_is_no_faster_than_the_memory(predictor):
    forecast = _forecast(
        predictor, PredictRequest(task="decode", model="llama-3.1-8b", gpu="rtx-4090", precision="int4")
    )
    assert forecast.high <= 1010e9 / (8.03e9 * 0.55) * 1.001


def test_weights_beyond_the_memory_are_told(predictor):
    big = replace(SERVE, model="llama-3.1-405b", gpu="h100", gpus=1, tensor_parallel=1)
    assert any("do not fit into 80 GB" in text for text in _forecast(predictor, big).cautions)
    assert not any("do not fit" in text for text in _forecast(predictor, SERVE).cautions)


def test_probes_do_not_carry_a_forecast_past_the_ceiling(predictor):
    probe = replace(SERVE, batch=8.0)
    run = predictor.describe(probe)
    calibration = Calibration(predictor, [(run, exp(run.signal.bound) * 1.01)] * 3)
    forecast = calibration.forecast(run, predictor.forecast(run))
    assert forecast.mode == "calibrated"
    assert forecast.low >= exp(run.signal.bound) * (1 - 1e-9)


def test_probes_that_beat_the_ceiling_are_believed(predictor):
    run = predictor.describe(SERVE)
    calibration = Calibration(predictor, [(run, exp(run.signal.bound) / 3)] * 8)
    assert calibration.forecast(run, predictor.forecast(run)).value < exp(run.signal.bound)


def test_sixteen_bits_that_nobody_measured_are_half_to_all_as_fast_as_eight(predictor):
    narrow, wide = (_forecast(predictor, replace(TRAIN, precision=kind)) for kind in ("fp8", "bf16"))
    assert narrow.value / 2 < wide.value < narrow.value
    assert wide.high / wide.low > narrow.high / narrow.low
    assert any("no run in bf16 was learnt from" in text for text in wide.cautions)
    assert not narrow.cautions


def test_what_was_learnt_in_sixteen_bits_is_used_as_it_is(predictor):
    assert not _forecast(predictor, replace(TRAIN, gpu="h100")).cautions


@pytest.mark.parametrize(("precision", "share"), [("tf32", 494.5 / 989), ("fp32", 67 / 989)])
def test_wide_precisions_have_their_own_peak_and_more_doubt(predictor, precision, share):
    base, wide = (_forecast(predictor, replace(TRAIN, gpu="h100", precision=kind)) for kind in ("bf16", precision))
    assert wide.value == pytest.approx(share * base.value, rel=0.05)
    assert wide.high / wide.low > 1.5 * base.high / base.low
    assert wide.cautions


@pytest.mark.parametrize(("gpu", "precision"), [("a100", "fp8"), ("h100", "nvfp4"), ("h100", "mxfp8")])
def test_a_precision_the_gpu_lacks_is_refused(predictor, gpu, precision):
    with pytest.raises(IncompatibleError, match="does not compute in"):
        predictor.describe(replace(TRAIN, gpu=gpu, precision=precision))


def test_nothing_is_trained_in_integers(predictor):
    with pytest.raises(UsageError, match="nothing is trained in int4"):
        predictor.describe(replace(TRAIN, precision="int4"))


def test_a_peak_that_no_fact_has_is_unknown(predictor):
    with pytest.raises(UnknownError, match="peak of GeForce RTX 5070 in tf32"):
        predictor.describe(replace(TRAIN, gpu="rtx-5070", precision="tf32"))


def test_bf16_on_a_gpu_without_it_is_told(predictor):
    assert any("does not compute in bf16" in text for text in _forecast(predictor, replace(TRAIN, gpu="t4")).cautions)


def test_more_active_parameters_than_there_are_is_refused(predictor):
    with pytest.raises(UsageError, match="a token meets"):
        predictor.describe(replace(TRAIN, parameters=8e9, active_parameters=9e9))


def test_a_batch_that_is_smaller_than_the_passes_makes_them_smaller(predictor):
    """Eight sequences on eight GPUs are one each, not the two that 4096 tokens would be."""
    told = replace(TRAIN, gpu="h100", sequence=2048, global_batch=8.0)
    assert predictor.signal(told).features == predictor.signal(replace(told, micro_batch=1.0)).features


def test_operations_that_are_given_count_without_the_rest(predictor):
    run = PredictRequest(task="vision-inference", gpu="h100", model="brand_new_net", parameters=25e6)
    assert predictor.networks.of(replace(run, gmacs=40.0)).gmacs == 40.0
    assert not predictor.networks.of(replace(run, gmacs=40.0)).is_exact


def test_a_table_with_a_precision_the_gpu_lacks_is_scored_as_a_miss(predictor, tmp_path):
    from provision.predict.evaluation import evaluate
    from provision.predict.tables import detect, read_sheet
    from tools.measured_tables import KINDS

    path = tmp_path / "table.csv"
    path.write_text(
        "task,model,gpu,gpus,precision,measured\ntrain,llama-3.1-8b,a100,8,fp8,7\ntrain,llama-3.1-8b,a100,8,bf16,4000\n"
    )
    sheet = read_sheet(path)
    assert evaluate(sheet, detect(sheet, KINDS), predictor).score.answered_share == 0.5


def test_not_knowing_how_many_machines_decode_costs_certainty(predictor):
    request = replace(SERVE, model="deepseek-r1", gpu="b200", tensor_parallel=8, precision="fp8", batch=256.0)
    told = _forecast(predictor, replace(request, is_disaggregated=True, workers=4))
    untold = _forecast(predictor, replace(request, is_disaggregated=True))
    assert untold.high / untold.value > 1.2 * told.high / told.value
