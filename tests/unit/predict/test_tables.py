"""Tables are told apart by their columns, and a bad row is named."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.predict.evaluation import read_rows
from provision.predict.tables import detect, read_sheet
from tools.measured_tables import KINDS

FOUNDRY = "Model,SeqLen (T),# GPUs,GPU,Throughput (T/s/GPU),MicroBatchSize,NumParams,Activation Checkpointing\n"
NCCL = "system,op_name,num_gpus,bytes,busbw_gbs\n"
TIMM = "kind,gpu,precision,mode,model,img_size,batch_size,samples_per_sec,params_m,gmacs,macts_m\n"


def _sheet(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return read_sheet(path)


def _rows(tmp_path, text, **words):
    sheet = _sheet(tmp_path, text)
    return read_rows(sheet, detect(sheet, KINDS), **words)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        (FOUNDRY, "training-foundry"),
        (NCCL, "collective"),
        (TIMM, "vision"),
        ("model,system,gpus,seq_len,tokens_s_gpu\n", "training-megatron"),
        ("caption,config,tps_per_gpu,peak_memory_gib\n", "training-torchtitan"),
        ("model_path,system,isl,osl,silicon_ttft_ms,silicon_tpot_ms\n", "serving"),
        ("gpu,model_file,tokens_per_s\n", "decode"),
        ("phase,gpu,model_quant,tokens_per_s (somebody@abc 2024),status\n", "decode-table"),
        ("task,gpu,gpus,model,measured\n", "probes"),
    ],
)
def test_columns_tell_the_kind(tmp_path, heading, kind):
    cells = ",".join("1" for _ in heading.strip().split(","))
    assert detect(_sheet(tmp_path, heading + cells + "\n"), KINDS).name == kind


def test_a_strange_table_is_refused_with_the_columns_it_lacks(tmp_path):
    with pytest.raises(UsageError) as caught:
        detect(_sheet(tmp_path, "system,op_name,bytes\nh100,all_reduce,8\n"), KINDS)
    assert "`num_gpus`" in caught.value.because[0]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("7b,2048,8,h100,NaN,2,7e9,False", r"row 2: column `Throughput \(T/s/GPU\)` is empty or NaN"),
        ("7b,2048,8,h100,,2,7e9,False", r"row 2: column `Throughput"),
        ("7b,,8,h100,100,2,7e9,False", r"row 2: column `SeqLen \(T\)`"),
        ("7b,2048,0,h100,100,2,7e9,False", "row 2: column `# GPUs` is 0"),
        ("7b,2048,-8,h100,100,2,7e9,False", "row 2: column `# GPUs` is -8"),
        ("7b,2048,many,h100,100,2,7e9,False", "row 2: `many` in column `# GPUs` is not a number"),
        ("7b,2048,8,,100,2,7e9,False", "row 2: column `GPU` is empty"),
        ("7b,2048,8,h100,inf,2,7e9,False", "row 2: column `Throughput"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, says):
    with pytest.raises(UsageError, match=says):
        _rows(tmp_path, FOUNDRY + row + "\n")


def test_bad_rows_may_count_as_missed(tmp_path):
    text = FOUNDRY + "7b,2048,8,h100,NaN,2,7e9,False\n7b,2048,8,h100,9000,2,7e9,False\n"
    rows, bad, empty = _rows(tmp_path, text, is_strict=False)
    assert ([row.line for row in rows], [row.line for row in bad], empty) == ([3], [2], [])


def test_a_run_that_failed_is_left_out_and_no_error(tmp_path):
    failed = "infer,RTX3090,amp,eager,resnet50,224,,,25.6,4.1,11.1\n"
    good = "infer,RTX3090,amp,eager,resnet50,224,256,2000,25.6,4.1,11.1\n"
    rows, _, empty = _rows(tmp_path, TIMM + failed + good)
    assert ([row.line for row in rows], [row.line for row in empty]) == ([3], [2])


def test_missing_optional_columns_are_no_error(tmp_path):
    rows, _, _ = _rows(tmp_path, "gpu,model,params_m,samples_per_sec\nRTX3090,resnet50,25.6,2000\n")
    assert rows[0].request.gmacs is None
    rows, _, _ = _rows(tmp_path, "Model,SeqLen (T),# GPUs,GPU,Throughput (T/s/GPU)\n7b,2048,8,h100,9000\n")
    assert rows[0].request.micro_batch is None


def test_bus_bandwidth_comes_from_the_latency_where_it_is_not_given(tmp_path):
    text = "system,op_name,num_gpus,bytes,latency_ms,busbw_gbs\nh100_sxm,all_reduce,8,1000000,0.01,\n"
    rows, _, _ = _rows(tmp_path, text)
    assert rows[0].value == pytest.approx(1.75e6 / 1e-5 / 1e9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no heading"),
        ("a,b\n", "no rows"),
        ("a,a\n1,2\n", "stands twice"),
        ('a,b\n"1,2\n', "not CSV"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, says):
    with pytest.raises(UsageError, match=says):
        _sheet(tmp_path, text)


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_sheet(tmp_path / "nothing.csv")
    (tmp_path / "x.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_sheet(tmp_path / "x.csv")


def test_captions_of_torchtitan_tell_the_run(tmp_path):
    caption = (
        "Table 5 3D parallelism (FSDP + TP + PP) + torch.compile + Float8. Llama 3.1 405B model. 512 GPUs "
        "(FSDP 8, TP 8, PP8). Local batch size 32, global batch size 256. Full activation checkpointing."
    )
    rows, _, _ = _rows(tmp_path, f'caption,config,tps_per_gpu\n"{caption}","{{""Schedule"": ""1F1B""}}",100\n')
    run = rows[0].request
    assert (run.gpus, run.tensor_parallel, run.pipeline_parallel) == (512, 8, 8)
    assert (run.precision, run.recompute, run.is_compiled) == ("fp8", "full", True)


def test_probe_tables_carry_the_fields_of_a_request(tmp_path):
    text = "task,gpu,gpus,model,sequence,is_compiled,measured\ntrain,h100,8,llama-3.1-8b,4096,true,7000\n"
    rows, _, _ = _rows(tmp_path, text)
    assert (rows[0].request.sequence, rows[0].request.is_compiled, rows[0].value) == (4096, True, 7000)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_cells_may_be_parted_as_spreadsheets_do(tmp_path, separator, mark, end):
    text = NCCL + "h100_sxm,all_reduce,8,1048576,72.3\n"
    path = tmp_path / "table.csv"
    path.write_bytes((mark + text.replace(",", separator).replace("\n", end)).encode())
    sheet = read_sheet(path)
    rows, bad, _ = read_rows(sheet, detect(sheet, KINDS), is_strict=False)
    assert ([row.value for row in rows], bad) == ([72.3], [])


def test_a_separator_in_a_heading_does_not_part_it(tmp_path):
    heading = "kind,gpu,model,samples_per_sec,source (somebody/table; Apache-2.0; 2026)\n"
    assert len(_sheet(tmp_path, heading + "infer,RTX3090,resnet50,2000,a\n").columns) == 5


@pytest.mark.parametrize("row", ["h100_sxm,all_reduce,8", "h100_sxm,all_reduce,8,1,048,576,72.3"])
def test_a_row_of_another_length_is_one_miss_and_not_the_end(tmp_path, row):
    text = NCCL + f"{row}\nh100_sxm,all_reduce,8,1048576,72.3\n"
    rows, bad, _ = _rows(tmp_path, text, is_strict=False)
    assert ([row.line for row in rows], [row.line for row in bad]) == ([3], [2])
    assert "under 5 columns" in bad[0].reason
    with pytest.raises(UsageError, match=r"row 2: . cells under 5 columns"):
        _rows(tmp_path, text)


def test_separators_at_the_end_of_a_row_are_no_cells(tmp_path):
    rows, bad, _ = _rows(tmp_path, NCCL + "h100_sxm,all_reduce,8,1048576,72.3,,\n", is_strict=False)
    assert ([row.value for row in rows], bad) == ([72.3], [])


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,234.5", 1234.5), ("1,234,567", 1234567), ("2.5e3", 2500), (".5", 0.5), ("12_000", 12000), ("1234,5", None)],
)
def test_a_comma_parts_thousands_and_nothing_else(tmp_path, cell, value):
    rows, bad, _ = _rows(tmp_path, NCCL + f'h100_sxm,all_reduce,8,1048576,"{cell}"\n', is_strict=False)
    assert [row.value for row in rows] == ([] if value is None else [value])
    assert [row.reason for row in bad] == (
        [] if value else [f"`{cell}` in column `busbw_gbs` is not a number; a point parts decimals, a comma thousands"]
    )
