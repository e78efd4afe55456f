"""`provision fleet simulate`: the table, the JSON, the page, and every way to ask for none."""

from __future__ import annotations

import pytest

from provision.cli.fleet import simulate as fleet_simulate

JOBS = "time_seconds,duration_seconds,gpus\n0,3600,1\n0,3600,1\n7200,600,2\n"
POLICY = 'minimum = 1\nmaximum = 2\nmetric = "queue"\ntarget = 1\nout_above = 1\nin_below = 0.9\n'


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text(JOBS, encoding="utf-8")
    (tmp_path / "day.toml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "spot.toml").write_text(POLICY + "handles_spot = true\n", encoding="utf-8")
    return path


def test_fleets_are_compared_and_the_bound_is_said(provision, load) -> None:
    answer = provision("fleet", "simulate", load, "--gpus", "1", "--price", "2", "--policy", load.with_name("day.toml"))
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 100, "as wide as everything that goes to no terminal"
    assert lines[0] == "3 jobs in 2.2 h, 2.3 GPU hours, 1.1 GPUs on average"
    assert [line.split("  ")[0] for line in lines[3:6]] == ["fixed, for the peak", "fixed, for the mean", "day"]
    # 2 nodes for 130 minutes at 2 USD an hour, of which 140 of 260 GPU minutes are work.
    assert "8.67" in lines[3]
    assert "no fleet at this price saves more than 46.2 %" in answer.out


@pytest.mark.parametrize("columns", [80, 140])
def test_a_table_too_wide_for_the_terminal_becomes_two(provision, load, monkeypatch, columns) -> None:
    monkeypatch.setattr(fleet_simulate, "columns_of", lambda _: columns)
    answer = provision("fleet", "simulate", load, "--gpus", "1", "--price", "2", "--policy", load.with_name("day.toml"))
    assert max(map(len, answer.out.splitlines())) <= columns
    assert sum(line.startswith("fleet ") for line in answer.out.splitlines()) == (2 if columns == 80 else 1)
    assert set(answer.out.split()) > {"bought", "node-hours", "USD", "saves", "busy", "p95", "taken", "lost"}


def test_json_holds_every_figure_once(provision, load) -> None:
    words = ("--gpus", "1", "--price", "2", "--fixed", "2", "--policy", load.with_name("day.toml"), "--json")
    found = provision("fleet", "simulate", load, *words).document["result"]
    assert [fleet["name"] for fleet in found["fleets"]] == [
        "fixed, for the peak",
        "fixed, for the mean",
        "fixed, 2",
        "day",
    ]
    assert found["fleets"][0]["saving_percent"] == 0
    assert found["trace"]["jobs"] == 3
    assert all(fleet["jobs"] == 3 for fleet in found["fleets"])


def test_same_seed_same_answer(provision, load) -> None:
    words = ("--gpus", "1", "--price", "2", "--spot-price", "1", "--mtbf-hours", "0.5", "--warning-seconds", "120")
    words += ("--count", "gpus", "--policy", load.with_name("spot.toml"), "--json", "--seed")
    first, again = (provision("fleet", "simulate", load, *words, "7").out for _ in range(2))
    assert first == again
    assert '"purchase": "spot"' in first or '"purchase":"spot"' in first


def test_machine_of_the_catalogue_has_its_price_and_spot(provision, load) -> None:
    words = ("--instance", "aws/g5.12xlarge/us-east-1", "--policy", load.with_name("spot.toml"))
    answer = provision("fleet", "simulate", load, *words)
    assert answer.code == 0
    assert "aws g5.12xlarge us-east-1 as of" in answer.out
    assert "with 120 s of warning" in answer.out


def test_policy_for_spot_without_a_price_runs_on_demand_and_that_is_said(provision, load) -> None:
    words = ("--gpus", "1", "--price", "2", "--policy", load.with_name("spot.toml"))
    answer = provision("fleet", "simulate", load, *words)
    assert "no price as spot is known, so on demand" in answer.out


def test_page_draws_every_fleet(provision, load, tmp_path) -> None:
    page = tmp_path / "load.html"
    words = ("--gpus", "1", "--price", "2", "--policy", load.with_name("day.toml"), "--html", page)
    assert provision("fleet", "simulate", load, *words).code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<path ") == 3
    assert "day: up to 2 nodes" in text
    assert text.endswith("</html>\n")


PRICE = ("--gpus", "1", "--price", "2")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "what a node is and costs is missing"),
        (("--gpus", "1"), 2, "what a node is and costs is missing"),
        (("--gpus", "0", "--price", "2"), 2, "--gpus `0` is not from 1 to 10000"),
        (("--gpus", "1", "--price", "free"), 2, "--price `free` is not a number"),
        (("--gpus", "1", "--instance", "aws/p4d.24xlarge/us-east-1"), 2, "exclude each other"),
        (("--instance", "aws/p4d.24xlarg"), 4, "the catalogue has no aws `p4d.24xlarg`"),
        (("--instance", "p4d"), 2, "names no machine"),
        ((*PRICE, "--boot-seconds", "-1"), 2, "--boot-seconds `-1` is not from 0"),
        ((*PRICE, "--step-seconds", "0"), 2, "--step-seconds `0` is not from"),
        ((*PRICE, "--fixed", "1.5"), 2, "--fixed `1.5` is not a whole number"),
        ((*PRICE, "--fixed", "1"), 2, "line 4 fits into no fleet of 1 nodes"),
        ((*PRICE, "--seed", "x"), 2, "--seed `x` is not a whole number"),
        ((*PRICE, "--spot-price", "1", "--checkpoint-every", "soon"), 2, "--checkpoint-every `soon` is not a number"),
        ((*PRICE, "--policy", "absent.toml"), 2, "absent.toml"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else None,
)
def test_what_makes_no_sense_is_refused(provision, load, words, code, said) -> None:
    answer = provision("fleet", "simulate", load, *words)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("flag", ["--spot-price", "--mtbf-hours", "--checkpoint-every", "--restart-seconds"])
def test_flag_about_spot_is_refused_where_nothing_would_be_on_spot(provision, load, flag) -> None:
    words = ("--instance", "aws/g5.12xlarge/us-east-1", flag, "1", "--policy", load.with_name("day.toml"))
    answer = provision("fleet", "simulate", load, *words)
    assert answer.code == 2
    assert f"`{flag}` is about nodes on spot, and none would be on spot" in answer.err


def test_flag_about_spot_is_refused_where_spot_has_no_price(provision, load) -> None:
    words = (*PRICE, "--mtbf-hours", "5", "--policy", load.with_name("spot.toml"))
    answer = provision("fleet", "simulate", load, *words)
    assert answer.code == 2
    assert "`--spot-price USD`" in answer.err


def test_nothing_is_assumed_of_spot_where_no_policy_uses_it(provision, load) -> None:
    words = ("--instance", "aws/g5.12xlarge/us-east-1", "--policy", load.with_name("day.toml"))
    assert "as spot" not in provision("fleet", "simulate", load, *words).out


def test_line_of_a_broken_trace_is_named(provision, load) -> None:
    load.write_text(JOBS + "7000,1,1\n", encoding="utf-8")
    answer = provision("fleet", "simulate", load, *PRICE)
    assert answer.code == 2
    assert "load.csv:5: 7000 s comes after 7200 s" in answer.err
