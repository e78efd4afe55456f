"""`provision matrix`, `explain` and `data check`: the facts, by table, by decision and by rule."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from provision.cli.facts import KINDS, find_fact
from provision.errors import UnknownError
from provision.matrix.load import Matrix
from provision.versions import parse

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")


def _rows(provision, *words):
    answer = provision("matrix", *words, "--json")
    assert answer.code == 0, answer.out
    return answer.document["result"]["rows"]


# matrix


def test_rows_of_frameworks_are_narrowed_by_every_flag(provision):
    rows = _rows(provision)
    assert {row["framework"] for row in rows} == {"torch", "tensorflow", "jax"}
    assert {row["framework"] for row in _rows(provision, "--jax", ">=0.4")} == {"jax"}
    assert {row["cuda"] for row in _rows(provision, "--framework", "torch", "--cuda", "11.8")} == {"11.8"}
    for row in _rows(provision, "--framework", "torch", "--driver", "470.57.02"):
        assert row["open"] or parse(row["driver_minimum"]) <= parse("470.57.02")
    for row in _rows(provision, "--framework", "torch", "--python", "3.8"):
        assert row["open"] or "3.8" in row["pythons"]
    served = _rows(provision, "--torch", "2.1", "--gpu", "h100")
    assert served
    assert all("sm_90" in row["sm"] for row in served)
    assert not _rows(provision, "--torch", "2.1", "--gpu", "rtx5090")


def test_rows_name_their_sources(provision):
    for row in _rows(provision, "--torch", "2.1.2"):
        assert row["id"] == f"torch/{row['version']}+{row['variant']}"
        assert row["status"] in ("stated", "derived", "measured")
        assert row["sources"][0]["title"]


def test_gpu_and_driver_that_exclude_each_other_leave_nothing(provision):
    answer = provision("matrix", "--torch", "2", "--gpu", "k80", "--driver", "580.65.06")
    assert answer.code == 0
    assert answer.out.strip() == ""
    assert "no longer drives" in answer.err
    assert "no row is left" in answer.err


def test_other_tables(provision):
    assert all(row["compute_capability"] == "9.0" for row in _rows(provision, "--framework", "gpu", "--gpu", "h100"))
    toolkits = _rows(provision, "--framework", "cuda", "--driver", "470.57.02")
    assert toolkits
    assert all(parse(row["minimum_driver"]) <= parse("470.57.02") for row in toolkits)
    branches = _rows(provision, "--framework", "driver", "--gpu", "v100")
    assert max(row["branch"] for row in branches) == 580
    assert [row["branch"] for row in _rows(provision, "--framework", "driver", "--driver", "535.104.05")] == [535]
    images = _rows(provision, "--framework", "image", "--cuda", "11.8", "--os", "ubuntu22.04")
    assert images
    assert all(row["cuda"].startswith("11.8") and row["os"] == "ubuntu22.04" for row in images)
    pythons = _rows(provision, "--framework", "image", "--python", "3.11")
    assert all(row["python"] == "3.11" for row in pythons)


def test_table_is_aligned(provision):
    lines = provision("matrix", "--framework", "gpu", "--gpu", "a100,h100").out.splitlines()
    column = lines[0].index("architecture")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["--framework", "gpu", "--torch", "2.1"],
        ["--framework", "gpu", "--python", "3.11"],
        ["--framework", "cuda", "--os", "debian12"],
        ["--torch", "2.1", "--jax", "0.4", "--framework", "torch"],
        ["--os", "plan9"],
        ["--torch", "2.1;"],
    ],
)
def test_filter_that_says_nothing_is_2(provision, words):
    assert provision("matrix", *words).code == 2


def test_unknown_gpu_is_4(provision):
    assert provision("matrix", "--gpu", "rtx9999").code == 4


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--html", "x.html", "--torch", "2.1"], id="rows"),
        pytest.param(["--html", "x.html", "--framework", "gpu"], id="table"),
        pytest.param(["--html", "x.html", "-o", "y"], id="output"),
        pytest.param(["--html", "-"], id="stdout"),
        pytest.param(["--html", "."], id="folder"),
        pytest.param(["--html", ""], id="empty"),
    ],
)
def test_page_is_refused_what_it_cannot_take(provision, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = provision("matrix", *words)
    assert answer.code == 2
    assert "hint:" in answer.err
    assert not list(tmp_path.iterdir())


def test_dry_run_writes_no_page(provision, tmp_path):
    answer = provision("matrix", "--html", tmp_path / "x.html", "--dry-run", "--json")
    assert answer.code == 0
    assert answer.document["result"]["file"] == str(tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


# explain


def test_why_of_a_request(provision):
    answer = provision("explain", *STACK)
    assert answer.code == 0
    assert re.search(r"^torch: ", answer.out, re.MULTILINE)
    assert "torch/2.1.2+cu121   measured in pypi_torch: " in answer.out
    for decision in provision("explain", *STACK, "--json").document["result"]["decisions"]:
        assert decision["because"]
        assert all(source["title"] for fact in decision["facts"] for source in fact["sources"])


def test_why_of_a_lock_is_that_of_its_request(provision, tmp_path):
    assert provision("image", *STACK, "-o", tmp_path / "out").code == 0
    asked = provision("explain", *STACK).out
    assert provision("explain", tmp_path / "out").out == asked
    assert provision("explain", tmp_path / "out" / "provision.lock").out == asked


def test_why_not_is_an_answer(provision):
    answer = provision("explain", "--torch", "2.1", "--cuda", "12.4")
    assert answer.code == 0
    assert "cannot be met together (proved by the facts)" in answer.out
    document = provision("explain", "--torch", "2.1", "--cuda", "12.4", "--json").document
    assert document["ok"] is True
    assert document["result"]["verdict"] == "incompatible"
    assert document["result"]["alternatives"]
    for alternative in document["result"]["alternatives"]:
        answer = provision(*shlex.split(alternative["command"])[1:], "--json")
        assert "decisions" in answer.document["result"]
        assert "verdict" not in answer.document["result"]
    silent = provision("explain", "--torch", "99", "--json").document["result"]
    assert silent["verdict"] == "unknown"


def test_every_fact_that_a_decision_names_can_be_shown(provision):
    matrix = Matrix()
    requests = [
        STACK,
        ("--tensorflow", "2.10"),
        ("--jax", "0.4.38", "--gpu", "h100"),
        ("--torch", "2.1", "--cuda", "12.4"),
        ("--torch", "2.6", "--gpu", "rtx5090"),
    ]
    ids = set()
    for request in requests:
        result = provision("explain", *request, "--json").document["result"]
        ids |= {fact["id"] for decision in result["decisions"] for fact in decision["facts"]}
    assert len(ids) > 10
    for name in ids:
        assert find_fact(matrix, name).source


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fact_can_be_shown(provision, kind):
    rows = list(KINDS[kind](Matrix()))
    if not rows:
        pytest.skip(f"the facts hold no {kind}")
    key, _ = rows[0]
    answer = provision("explain", f"{kind}/{key}", "--json")
    assert answer.code == 0
    assert answer.document["result"]["fact"]["id"] in (f"{kind}/{key}", key)


def test_fact_for_people_names_where_to_look(provision):
    answer = provision("explain", "torch/2.1.2+cu121")
    assert "  cuda: 12.1" in answer.out
    assert re.search(r"^  source: pypi_torch: .+ \(read \d{4}-\d\d-\d\d\)$", answer.out, re.MULTILINE)


def test_fact_nobody_has_is_4(provision):
    answer = provision("explain", "gpu/h100-sxm5-80g")
    assert answer.code == 4
    assert "did you mean `gpu/h100-sxm5-80gb`?" in answer.err
    with pytest.raises(UnknownError):
        find_fact(Matrix(), "nothing/1")


def test_explain_refuses_what_it_cannot_read(provision, tmp_path):
    assert provision("explain").code == 2
    assert provision("explain", "nothing").code == 2
    assert provision("explain", tmp_path).code == 2
    assert provision("explain", "gpu/h100", "--torch", "2.1").code == 2
    lock = tmp_path / "provision.lock"
    for content in ("{}", "x", "[]"):
        lock.write_text(content)
        assert provision("explain", lock).code == 2
    assert provision("image", *STACK, "-o", tmp_path / "out").code == 0
    text = (tmp_path / "out" / "provision.lock").read_text()
    lock.write_text(text.replace('"12.1"', '"12.2"'))
    answer = provision("explain", lock)
    assert answer.code == 2
    assert "was edited" in answer.err


# data check


def test_shipped_facts_keep_every_rule(provision):
    answer = provision("data", "check")
    assert answer.code == 0, answer.out
    document = provision("data", "check", "--json").document
    assert document["result"]["findings"] == []
    assert all(document["result"]["rules"].values())


def test_broken_facts_are_9_with_the_id_of_the_rule(provision, tmp_path):
    facts = tmp_path / "compat"
    shutil.copytree(Matrix().data_dir, facts)
    (facts / "cuda.toml").write_text("x = ")
    answer = provision("data", "check", "--data-dir", facts)
    assert answer.code == 9
    assert "cuda.toml: D001" in answer.out
    assert "because D001: " in answer.err
    error = provision("data", "check", "--data-dir", facts, "--json").document["error"]
    assert error["code"] == "data"
    assert {"file", "where", "rule", "message"} == set(error["findings"][0])
