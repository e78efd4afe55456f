"""What was held out is scored by the program itself, and nothing of it is learnt from."""

from __future__ import annotations

import csv

import pytest

from tools.prove_predict import deal, main, split_table

HEADING = "Model,SeqLen (T),# GPUs,GPU,Throughput (T/s/GPU),MicroBatchSize,NumParams\n"
SIZES = {"125m": 1.25e8, "1b": 1.3e9, "3b": 2.7e9, "7b": 6.7e9}
PEAKS = {"h100_80gb": 989e12, "a100_80gb": 312e12}


@pytest.fixture
def table(tmp_path):
    """Write the speeds of runs that all reach 40 % of the peak (self-made)."""
    lines = [HEADING]
    for name, parameters in SIZES.items():
        for gpu, peak in PEAKS.items():
            for sequence in (1024, 2048, 4096):
                for gpus in (8, 16):
                    speed = 0.4 * peak / (6 * parameters * (1 + sequence / 1e5))
                    lines.append(f"{name},{sequence},{gpus},{gpu},{speed:.6g},4,{parameters:g}\n")
    path = tmp_path / "foundry.csv"
    path.write_text("".join(lines))
    return path


def test_groups_are_dealt_once_each():
    parts = list(deal(["b", "a", "c", "a", "e", "d"], 2))
    assert parts == [{"a", "c", "e"}, {"b", "d"}]
    assert list(deal(["a", "b"], 99)) == [{"a"}, {"b"}]


def test_a_table_is_split_without_loss(table, tmp_path):
    kept, held, count = split_table(table, lambda row: row.groups["model"] == "3b", tmp_path)
    rows = {path: list(csv.DictReader(path.read_text().splitlines())) for path in (table, kept, held)}
    assert count == len(rows[held]) == len(rows[table]) // len(SIZES)
    assert {row["Model"] for row in rows[held]} == {"3b"}
    assert "3b" not in {row["Model"] for row in rows[kept]}
    assert len(rows[kept]) + len(rows[held]) == len(rows[table])


def test_each_size_is_scored_by_what_never_saw_it(table, capsys):
    pytest.importorskip("sklearn", reason="training needs scikit-learn, which is not installed here")
    assert main(["--foundry", str(table), "--group", "model"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == [*sorted(SIZES), "together"]
    for line in lines[:-1]:
        assert "answered 100.0 %" in line
        assert float(line.split("rows")[1].split("%")[0]) < 25
