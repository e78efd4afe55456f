"""`provision plan`: a choice with its reasons, refusals with the nearest, files for other tools."""

from __future__ import annotations

import datetime
import json
import shlex
import xml.etree.ElementTree as ET

import pytest
import yaml

from provision.cli.commands import plan as command
from provision.resolve.stack import Stack

JOB = ("--task", "finetune", "--model", "llama-3.1-8b", "--tokens", "1b", "--seq", "4096")


def test_plan_as_json(provision):
    answer = provision("plan", *JOB, "--spot", "--on-demand", "--json")
    result = answer.document["result"]
    winner = result["winner"]
    assert answer.code == 0
    assert answer.document["command"] == "plan"
    assert winner["cost"]["usd"] == pytest.approx(sum(item["usd"] for item in winner["cost"]["items"]))
    assert {"usd_per_hour", "currency", "as_of", "source", "status"} <= set(winner["price"])
    assert winner["memory"]["total_gib"] <= winner["memory"]["usable_gib"]
    assert winner["hours"]["low"] <= winner["hours"]["median"] <= winner["hours"]["high"]
    assert len(result["fallbacks"]) == 3
    assert all(item["because"] for item in result["rejected"])
    assert {row["purchase"] for row in result["pareto"]} <= {"spot", "on-demand"}


def test_plan_for_people_says_why(provision):
    answer = provision("plan", *JOB)
    for text in ("first choice", "memory", "checkpointing", "tokens/s", "price", "if it is out of stock", "left out"):
        assert text in answer.out
    assert "`-v` names them all" in answer.out
    loud = provision("plan", *JOB, "--top", "5", "-v").out
    assert loud.count("does not compute in bf16") > answer.out.count("does not compute in bf16")
    assert loud.count("  machine  ") == 5


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_keeps_within_the_terminal(provision, monkeypatch, columns):
    from provision.cli.text import plan as plan_text

    for module in (plan_text, command):
        monkeypatch.setattr(module, "columns_of", lambda _: columns)
    answer = provision("plan", *JOB, "--spot", "--on-demand", "-v", "--chart", "terminal")
    assert max(map(len, answer.out.splitlines())) <= columns
    for text in ("us-east-1", "on-demand", "GiB", "USD/h", "price of 20", "first choice"):
        assert text in answer.out


def test_a_narrow_table_says_the_same_as_a_wide_one(provision, monkeypatch):
    from provision.cli.text import plan as plan_text

    said = []
    for columns in (70, 500):
        monkeypatch.setattr(plan_text, "columns_of", lambda _, columns=columns: columns)
        table = provision("plan", *JOB, "--top", "4").out.split("\n\n")[0]
        said.append(sorted(word.strip(",*") for word in table.split() if word.strip(",*")))
    narrow, wide = said
    heading = {"region", "GPUs", "memory", "price", "of"}
    assert [word for word in narrow if word not in heading] == [word for word in wide if word not in heading]


@pytest.mark.parametrize(("words", "example"), [(("--hours", "0"), "--hours 8"), (("--tokens", "-5"), "--tokens 70b")])
def test_a_number_that_makes_no_sense_is_told_one_that_does(provision, words, example):
    answer = provision("plan", "--task", "finetune", "--model", "llama-3.1-8b", *words)
    assert answer.code == 2
    assert f"`{example}`" in answer.err
    assert "--hours 70b" not in answer.err


def test_the_price_says_how_to_look_it_up(provision):
    words = next(
        line.strip().strip("`") for line in provision("plan", *JOB).out.splitlines() if "provision explain" in line
    )
    found = provision(*shlex.split(words)[1:])
    assert found.code == 0
    assert "on_demand" in found.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "is missing"),
        (("--task", "train"), "not known"),
        (("--task", "finetune"), "no model"),
        (("--task", "finetune", "--params", "0", "--tokens", "1b"), "--params `0` is not above 0"),
        (("--task", "finetune", "--params=-8b", "--tokens", "1b"), "is not above 0"),
        (("--task", "finetune", "--params", "1e20", "--tokens", "1b"), "is none"),
        (("--task", "finetune", "--params", "nan", "--tokens", "1b"), "--params `nan` is not a number"),
        (("--task", "pretrain", "--layers", "0", "--hidden", "64", "--tokens", "1b"), "--layers `0` is not from 1"),
        (("--task", "pretrain", "--layers", "2.5", "--hidden", "64", "--tokens", "1b"), "not a whole number"),
        (("--task", "pretrain", "--layers", "2", "--hidden", "100", "--heads", "7", "--tokens", "1"), "not divided"),
        ((*JOB, "--hours", "5"), "given twice"),
        ((*JOB, "--layers", "3"), "described twice"),
        ((*JOB, "--providers", "aws,foo"), "not a provider"),
        ((*JOB, "--region", "mars"), "no region"),
        ((*JOB, "--gpu", "4"), "`--gpus 4` asks for so many"),
        ((*JOB, "--gpus", "7", "--mig", "1g.10gb"), "`--gpus` counts whole GPUs"),
        ((*JOB, "--deadline", "0"), "is not above 0"),
        ((*JOB, "--budget", "-1"), "is not above 0"),
        ((*JOB, "--top", "0"), "`--top 8`"),
        ((*JOB, "--batch", "4", "--micro-batch", "8"), "does not hold 8 at once"),
        (("--task", "render", "--hours", "1e300"), "more than a century"),
        ((*JOB, "--spot-share", "0.5"), "speaks of spot"),
        ((*JOB, "--spot", "--spot-share", "1.5"), "is not from 0 to 1"),
        ((*JOB, "--reserved", "2y"), "not known"),
        ((*JOB, "--rate", "CNY"), "not a rate"),
        ((*JOB, "--peak-factor", "0.5"), "is none"),
        ((*JOB, "--mig", "1g.99gb"), "not a profile"),
        ((*JOB, "--qps", "3"), "for serving"),
        ((*JOB, "--chart", "x.png"), "neither SVG nor HTML"),
        ((*JOB, "--config", "/nowhere/config.json"), "described twice"),
        (("--task", "finetune", "--config", "/nowhere/config.json", "--tokens", "1"), "cannot be read"),
        (("--task", "inference", "--model", "llama-3.1-8b", "--tokens", "1b", "--hours", "1"), "for training"),
        (("--task", "inference", "--model", "llama-3.1-8b"), "duration of serving"),
        (("--task", "render"), "is not known"),
    ],
    ids=lambda value: " ".join(value)[-50:] if isinstance(value, tuple) else None,
)
def test_bad_input_is_2_and_says_what(provision, words, said):
    answer = provision("plan", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err


def test_an_unknown_gpu_is_4_as_for_the_other_commands(provision):
    for words in (("plan", *JOB), ("predict", "--task", "train", "--model", "llama-3.1-8b"), ("resolve",)):
        answer = provision(*words, "--gpu", "h1000")
        assert answer.code == 4
        assert "no GPU called `h1000`" in answer.err


@pytest.mark.parametrize(
    ("text", "because"),
    [("", "it is empty"), ("{", "Expecting"), ('{"hidden_size": NaN}', "`hidden_size` must be a whole number")],
)
def test_a_config_that_is_none_is_named_as_it_was_typed(provision, tmp_path, text, because):
    path = tmp_path / "model.json"
    path.write_text(text)
    answer = provision("plan", "--task", "finetune", "--tokens", "1b", "--config", path)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {path}")
    assert because in answer.err
    assert "hint: name the `config.json` of a model" in answer.err


def test_a_config_that_windows_wrote_is_read(provision, tmp_path):
    path = tmp_path / "config.json"
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    path.write_text(json.dumps(sizes), encoding="utf-8-sig")
    assert provision("plan", "--task", "finetune", "--tokens", "1m", "--config", path).code == 0


def test_an_unknown_model_is_4(provision):
    answer = provision("plan", "--task", "finetune", "--model", "llama-9", "--tokens", "1b")
    assert answer.code == 4
    assert "--config" in answer.err


@pytest.mark.parametrize("limit", [("--deadline", "0.01"), ("--budget", "1")])
def test_a_limit_nothing_keeps_is_3_and_its_hint_works(provision, limit):
    answer = provision("plan", *JOB, *limit)
    assert answer.code == 3
    assert "the cheapest is" in answer.err
    assert "the fastest is" in answer.err
    hint = next(line for line in answer.err.splitlines() if line.startswith("hint:"))
    words = shlex.split(hint.split("`")[1])
    assert words[0] == limit[0]
    assert provision("plan", *JOB, *words).code == 0


def test_a_torch_the_gpu_cannot_run_is_refused_with_the_reason(provision):
    answer = provision("plan", *JOB, "--torch", "1.12", "--gpu", "h100")
    assert answer.code == 3
    assert "no code for H100" in answer.err


def test_a_torch_some_gpus_cannot_run_leaves_the_others(provision):
    result = provision("plan", *JOB, "--torch", "2.6", "--json", "--top", "9999").document["result"]
    assert result["rows_total"] == len(result["rows"]) > 0
    assert not any(row["gpu"] in ("b200", "b300") for row in result["rows"])
    assert any(item["kind"] == "stack" and "B200" in item["because"] for item in result["rejected"])


def test_a_price_nobody_states_is_4_and_no_proof(provision):
    answer = provision("plan", "--task", "hpc", "--hours", "10", "--providers", "tencent")
    assert answer.code == 4
    assert "price on demand is not known" in answer.err


def test_old_prices_are_warned_of_on_the_standard_error(provision, monkeypatch):
    where = ("--providers", "gcp")
    assert "older than a year" not in at(monkeypatch, 2026, provision, *where).err
    later = at(monkeypatch, 2028, provision, *where)
    assert "older than a year" in later.err
    assert "older than a year" not in later.out
    assert later.out == at(monkeypatch, 2026, provision, *where).out


def at(monkeypatch, year, provision, *words):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(year, 11, 22, tzinfo=tz)

    monkeypatch.setattr(command.datetime, "datetime", Clock)
    return provision("plan", *JOB, *words)


def test_a_config_is_as_good_as_a_name(provision, tmp_path):
    config = {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    rest = ("--tokens", "1b", "--seq", "4096", "--providers", "gcp", "--json")
    by_file = provision("plan", "--task", "finetune", "--config", path, *rest).document["result"]["winner"]
    by_name = provision("plan", "--task", "finetune", "--model", "llama-3.1-8b", *rest).document["result"]["winner"]
    assert by_file["memory"] == by_name["memory"]
    assert by_file["cost"] == by_name["cost"]


def test_a_number_of_parameters_alone_is_enough_and_what_it_assumes_is_said(provision):
    answer = provision("plan", "--task", "finetune", "--params", "8b", "--tokens", "1b")
    assert answer.code == 0
    assert "the shape is that of llama-3-8b" in answer.out


def test_apply_writes_what_the_next_commands_read(provision, tmp_path):
    folder = tmp_path / "out"
    answer = provision("plan", *JOB, "--providers", "aws", "--torch", "2.8", "--apply", folder)
    assert answer.code == 0
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {
        "dstack.yml",
        "inventory.yml",
        "plan.json",
        "provision.lock",
        "skypilot.yaml",
        "terraform.tfvars.json",
    }
    stack = Stack.from_lock((folder / "provision.lock").read_text(encoding="utf-8"))
    document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert document["lock_digest"] == stack.lock_digest
    assert stack.frameworks["torch"].startswith("2.8")
    assert document["winner"]["gpu_name"] in stack.gpus
    hosts = yaml.safe_load((folder / "inventory.yml").read_text(encoding="utf-8"))["gpu_nodes"]["hosts"]
    assert len(hosts) == document["winner"]["nodes"]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "up to date" in provision("plan", *JOB, "--providers", "aws", "--torch", "2.8", "--apply", folder).err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_dry_run_writes_nothing(provision, tmp_path):
    folder = tmp_path / "out"
    answer = provision("plan", *JOB, "--apply", folder, "--chart", tmp_path / "x.svg", "--dry-run")
    assert answer.code == 0
    assert "would write" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_somebody_elses_files_are_left_alone(provision, tmp_path):
    (tmp_path / "inventory.yml").write_text("mine: 1\n", encoding="utf-8")
    answer = provision("plan", *JOB, "--apply", tmp_path)
    assert answer.code == 2
    assert (tmp_path / "inventory.yml").read_text(encoding="utf-8") == "mine: 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.yml"]


def test_an_inventory_with_its_addresses_is_not_written_over(provision, tmp_path):
    assert provision("plan", *JOB, "--providers", "aws", "--apply", tmp_path).code == 0
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(inventory.read_text(encoding="utf-8").replace("192.0.2.1", "10.0.0.7"), encoding="utf-8")
    answer = provision("plan", *JOB, "--providers", "gcp", "--apply", tmp_path)
    assert answer.code == 2
    assert "inventory.yml" in answer.err
    assert "10.0.0.7" in inventory.read_text(encoding="utf-8")


def test_another_choice_replaces_the_files_of_the_first(provision, tmp_path):
    assert provision("plan", *JOB, "--providers", "aws", "--apply", tmp_path).code == 0
    assert provision("plan", *JOB, "--providers", "gcp", "--apply", tmp_path).code == 0
    assert "gcp" in (tmp_path / "inventory.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_chart_is_written(provision, tmp_path, suffix):
    path = tmp_path / f"plan.{suffix}"
    assert provision("plan", *JOB, "--chart", path).code == 0
    text = path.read_text(encoding="utf-8")
    if suffix == "svg":
        ET.fromstring(text)
    assert "<svg" in text


def test_a_chart_on_the_terminal_comes_first(provision):
    assert provision("plan", *JOB, "--chart", "terminal").out.lstrip().startswith("USD")


def test_the_models_that_are_known(provision):
    assert "llama-3.1-8b" in provision("plan", "--list-models").out


def test_the_same_words_give_the_same_bytes(provision):
    words = ("plan", *JOB, "--spot", "--on-demand", "--reserved", "1y", "--json")
    assert provision(*words).out == provision(*words).out


def test_a_gpu_that_no_machine_of_the_catalogue_has_is_unknown_and_not_proved(provision):
    answer = provision("plan", "--task", "hpc", "--hours", "1", "--gpu", "rtx-5090")
    assert answer.code == 4
    assert "no machine for `--gpu rtx-5090`" in answer.err
    assert "none of 0" not in answer.err
