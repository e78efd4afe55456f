"""`provision predict`: forecasts, scores and bad input, as people run it."""

from __future__ import annotations

import pytest

from provision.cli.text.predict import show_evaluation
from provision.predict.evaluation import Evaluation, Score

TRAIN = ("predict", "--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8")
LLAMA = ("--model", "llama-3.1-8b", "--gpu", "h100")
ALL_REDUCE = "collective,h100_sxm,all_reduce,8,536870912,445\n"
NCCL = "task,gpu,operation,gpus,message_bytes,measured\n"


def test_a_forecast_names_its_interval_mode_and_basis(provision):
    answer = provision(*TRAIN, "--seq", "8192")
    for text in ("tokens/s/GPU", "together", "interval", "(80 %)", "mode", "rests on", "learnt from"):
        assert text in answer.out


def test_a_forecast_as_json(provision):
    result = provision(*TRAIN, "--json").document["result"]
    forecast = result["forecast"]
    assert forecast["low"] < forecast["value"] < forecast["high"]
    assert (forecast["confidence"], forecast["unit"], forecast["mode"]) == (0.8, "tokens/s/GPU", "cold")
    assert result["total"]["value"] == pytest.approx(8 * forecast["value"])
    assert result["request"]["model"] == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        (("--task", "serve", "--model", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8", "--batch", "32"), "ms"),
        (("--task", "inference", "--model", "llama-3.1-8b", "--gpu", "h100"), "ms"),
        (("--task", "decode", "--model", "llama-3.1-8b", "--gpu", "rtx-4090"), "tokens/s"),
        (("--task", "vision-inference", "--model", "resnet50", "--gpu", "rtx-3090"), "images/s"),
        (
            ("--task", "vision-training", "--gpu", "a100", "--gmacs", "4", "--macts", "11", "--params", "25e6"),
            "images/s",
        ),
        (("--task", "collective", "--gpu", "h100", "--message", "512MiB"), "GB/s"),
        (("--task", "finetune", "--params", "8B", "--gpu", "b200", "--gpus", "8"), "tokens/s/GPU"),
    ],
)
def test_every_task_answers_in_its_unit(provision, words, unit):
    forecast = provision("predict", *words, "--json").document["result"]["forecast"]
    assert forecast["unit"] == unit
    assert 0 < forecast["low"] < forecast["high"]


def test_what_is_to_be_known_before_use_is_warned_of(provision):
    answer = provision("predict", "--task", "serve", "--model", "llama-3.1-405b", "--gpu", "h100")
    assert "warning: weights of 812 GB do not fit into 80 GB" in answer.err
    assert "would beat what good runs reach" in answer.err
    assert provision(*TRAIN).err.count("beat the ceilings") == 0


def test_the_articles_formula_is_a_baseline(provision):
    result = provision(*TRAIN, "--baseline", "seed", "--json").document["result"]
    assert result["baseline"]["name"] == "seed"
    assert "the articles' formula says" in provision(*TRAIN, "--baseline", "seed").out


def test_probe_runs_calibrate(provision, tmp_path):
    probes = tmp_path / "probes.csv"
    probes.write_text(
        "task,model,gpu,gpus,sequence,measured\n"
        + "".join(f"train,llama-3.1-8b,l40s,8,{sequence},900\n" for sequence in (1024, 2048, 4096))
    )
    words = ("predict", "--task", "train", "--model", "llama-3.1-8b", "--gpu", "l40s", "--gpus", "8")
    cold = provision(*words, "--json").document["result"]["forecast"]
    calibrated = provision(*words, "--measured", str(probes), "--json").document["result"]["forecast"]
    assert (cold["mode"], calibrated["mode"]) == ("cold", "calibrated")
    assert abs(calibrated["value"] - 900) < abs(cold["value"] - 900)


def test_a_table_is_scored(provision, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(NCCL + ALL_REDUCE + "collective,h100_sxm,all_gather,8,536870912,336\n")
    result = provision("predict", "--evaluate", str(table), "--json").document["result"]
    assert {"mdape_percent", "answered_share", "coverage_80", "within_8_share"} <= set(result)
    assert result["mdape_percent"] < 15
    assert result["answered_share"] == 1
    assert set(result["baselines"]) == {"seed", "constant"}
    assert "MdAPE" in provision("predict", "--evaluate", str(table)).out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--gpu", "h100"), 2, "--task is missing"),
        (("--task", "train", "--model", "llama-3.1-8b"), 2, "--gpu is missing"),
        (("--task", "train", "--gpu", "h100"), 2, "--model is missing"),
        (("--task", "dance", "--gpu", "h100"), 2, "dance"),
        (("--task", "train", "--model", "gpt", "--gpu", "h100"), 4, "size of the model `gpt`"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "abacus"), 4, "abacus"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "0"), 2, "--gpus `0` is not from 1"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "-8"), 2, "--gpus"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1.5"), 2, "whole"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--params", "nan"), 2, "nan"),
        (("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "4", "--tp", "8"), 2, "not fit 4"),
        (("--task", "collective", "--gpu", "h100", "--gpus", "1"), 2, "two GPUs"),
        (("--task", "collective", "--gpu", "h100", "--operation", "all_dance"), 2, "all_dance"),
        (("--task", "vision-inference", "--gpu", "h100", "--model", "nonesuch"), 4, "nonesuch"),
        (
            ("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8", "--batch", "4"),
            2,
            "does not feed 8 GPUs",
        ),
        (
            ("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "int4"),
            2,
            "nothing is trained in int4",
        ),
        (
            ("--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "nvfp4"),
            3,
            "does not compute in nvfp4",
        ),
        (
            ("--task", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--tp", "4"),
            2,
            "does not fit 2",
        ),
        (("--task", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--batch", "0.001"), 2, "not a whole number"),
        (("--task", "decode", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "4"), 2, "of one GPU"),
        (("--task", "vision-inference", "--model", "resnet50", "--gpu", "h100", "--gpus", "4"), 2, "of one GPU"),
        (("--task", "train", *LLAMA, "--ep", "16"), 2, "do not fit 1"),
        (("--task", "train", *LLAMA, "--message", "5"), 2, "--message has no effect on the task `train`"),
        (("--task", "collective", "--gpu", "h100", "--precision", "fp8"), 2, "--precision has no effect"),
        (("--task", "decode", *LLAMA, "--batch", "4"), 2, "--batch has no effect"),
        (("--task", "train", "--params", "1e-5", "--gpu", "h100"), 2, "is none"),
        (("--task", "vision-inference", "--model", "resnet50", "--gpu", "h100", "--torch", "x"), 2, "not a version"),
        (("--evaluate", "absent.csv"), 2, "cannot be read"),
        (("--evaluate", "absent.csv", "--gpu", "h100"), 2, "from the table"),
        (("--task", "train", "--gpu", "h100", "--model", "llama-3.1-8b", "--strict"), 2, "--evaluate"),
    ],
)
def test_bad_input_is_worded(provision, words, code, says):
    answer = provision("predict", *words)
    assert answer.code == code
    assert says in answer.err
    assert "Traceback" not in answer.err


def test_a_bad_row_counts_as_missed_and_is_named(provision, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(NCCL + ALL_REDUCE + "collective,h100_sxm,all_reduce,many,512,1\n")
    answer = provision("predict", "--evaluate", str(table), "--json")
    assert answer.code == 0
    assert "row 3: row 3: column" not in answer.err
    assert "1 row is refused" in answer.err
    assert "`many` in column `gpus` is not a number" in answer.err
    assert answer.document["result"]["answered_share"] == 0.5
    strict = provision("predict", "--evaluate", str(table), "--strict")
    assert strict.code == 2
    assert "row 3: `many` in column `gpus` is not a number" in strict.err


def test_the_three_figures_of_a_score_stand_at_the_top_of_the_document(provision, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(NCCL + "collective,h100_sxm,all_reduce,8,536870912,445\n")
    document = provision("predict", "--evaluate", str(table), "--json").document
    for key in ("mdape_percent", "answered_share", "coverage_80"):
        assert document[key] == document["result"][key]
    assert document["answered_share"] == 1
    assert 0 < document["mdape_percent"] < 20


@pytest.mark.parametrize("columns", [60, 80])
def test_a_forecast_keeps_within_the_terminal(provision, monkeypatch, columns):
    from provision.cli.commands import predict

    monkeypatch.setattr(predict, "columns_of", lambda _: columns)
    lines = provision(*TRAIN, "--baseline", "seed").out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("rests on") for line in lines) == 1
    assert "half the misses were below" in " ".join(" ".join(lines).split())


def test_a_score_keeps_within_eighty_columns_and_tells_forecasts_that_cannot_be():
    def score(rows, not_positive):
        return Score(
            rows=rows,
            answered_share=1.0,
            mdape_percent=None,
            p90_percent=None,
            within_8_share=1.0,
            coverage_80=1.0,
            not_positive=not_positive,
        )

    found = Evaluation(
        kind="vision",
        score=score(21_275, 0),
        modes={"cold": score(21_275, 0)},
        baselines={"seed": score(21_275, 17)},
        refused=(),
        skipped=(),
        is_in_sample=False,
        is_baseline_in_sample=False,
    )
    text = show_evaluation(found, ("seed",))
    assert max(map(len, text.splitlines())) <= 80
    assert "forecasts at or below zero: 17 of the articles' formula" in text
    assert "below zero" not in show_evaluation(found, ())


def test_a_table_of_another_project_is_led_to_what_reads_it(provision, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("gpu,model,batch_size,samples_per_sec\nRTX4090,resnet50,256,4000\n")
    answer = provision("predict", "--evaluate", str(table))
    assert answer.code == 2
    assert "lacks the columns `task`, `measured`" in answer.err
    assert "tools.score_predict" in answer.err


def test_a_table_of_nothing_but_bad_rows_is_refused(provision, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(NCCL + "collective,h100_sxm,all_reduce,8,536870912,NaN\n")
    answer = provision("predict", "--evaluate", str(table))
    assert answer.code == 2
    assert "has no measured row" in answer.err
    assert "row 2: column `measured` is empty or NaN" in answer.err


def test_a_collective_over_more_gpus_than_a_machine_has_is_no_forecast_of_a_network(provision):
    words = ("predict", "--task", "collective", "--gpu", "h100")
    assert "the network between them decides" in provision(*words, "--gpus", "16").err
    assert "network" not in provision(*words, "--gpus", "8").err


@pytest.mark.parametrize(("flag", "meant"), [("--nodes", "`--gpus` counts"), ("--bytes", "`--message` is")])
def test_a_flag_of_another_program_is_led_to_the_one_here(provision, flag, meant):
    answer = provision("predict", "--task", "collective", "--gpu", "h100", flag, "2")
    assert answer.code == 2
    assert f"hint: {meant}" in answer.err
    assert "did you mean" not in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "decode"), "weights in int4"),
        (("--task", "serve"), "weights in bf16"),
        (("--task", "serve"), "1 sequence at once, 1024 tokens in and 1024 out each"),
        (("--task", "serve", "--batch", "8", "--input-tokens", "200"), "8 sequences at once, 200 tokens in"),
    ],
)
def test_what_was_taken_for_a_flag_that_was_not_given_is_said(provision, words, said):
    assert said in " ".join(provision("predict", *words, *LLAMA).out.split())
