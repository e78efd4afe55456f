"""Tables of other projects are scored by a script of the checkout."""

from __future__ import annotations

import json

from tools.score_predict import main

SERVING = "model_path,system,backend,precision,isl,osl,batch_size,tp_size,silicon_ttft_ms,silicon_tpot_ms\n"


def test_served_models_are_scored_by_both_of_their_times(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text(SERVING + "meta-llama/Llama-3.1-70B,h200_sxm,vllm,fp8,1024,1024,32,2,200,16\n")
    assert main([str(table), "--json"]) == 0
    between, first = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (between["kind"], first["kind"]) == ("serving", "first tokens")
    assert between["mdape_percent"] < 60


def test_what_a_table_lacks_is_taken_to_be_so_and_said(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("gpu,model,batch_size,samples_per_sec\nRTX4090,resnet50,256,4000\n")
    assert main([str(table), "--json"]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumed"]
    assert assumed["precision"] == "amp"
    assert "batch_size" not in assumed


def test_a_strange_table_is_refused(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    assert main([str(table)]) == 2
    assert "is not a table of measured runs" in capsys.readouterr().err
