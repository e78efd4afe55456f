"""Networks whose operations nobody states are forecast from runs of their own."""

from __future__ import annotations

import pytest

from provision.matrix.load import Matrix
from provision.predict.hardware import Hardware
from provision.predict.tables import read_sheet
from tools.suites import find_suite, score_suite


def test_networks_of_unknown_operations_are_forecast_from_their_own_runs(tmp_path):
    speeds = {"v100-sxm2-16gb": 1.0, "a100-sxm4-80gb": 2.2, "h100-sxm5-80gb": 4.5, "rtx-3090": 0.9}
    lines = ["precision,gpu,gpu_count,model,throughput,unit,batch_per_gpu\n"]
    for model, scale in (("waveglow", 1e5), ("ssd", 200.0), ("ncf", 1e7), ("gnmt", 5e4)):
        lines += [
            f"fp16,{gpu},{gpus},{model},{scale * speed * gpus**0.95:g},x/s,32\n"
            for gpu, speed in speeds.items()
            for gpus in (1, 2, 4, 8)
        ]
    lines.append("fp16,h100-sxm5-80gb,1,only_here,7,x/s,32\n")
    path = tmp_path / "table.csv"
    path.write_text("".join(lines))
    sheet = read_sheet(path)
    found, refused = score_suite(sheet, find_suite(sheet), Hardware(Matrix()))
    assert found.mdape_percent < 8
    assert [row.line for row in refused] == [len(lines)]


@pytest.mark.parametrize(
    ("heading", "good", "bad"),
    [
        ("system,m,n,k,latency_ms,tflops", "h100_sxm,64,64,64,0.01,", "h100_sxm,0.2,64,64,1,"),
        (
            "benchmark,accelerator,accelerators,global_batch_size,minutes_to_target_olympic_mean",
            "bert,H100,8,256,5",
            "bert,H100,0.4,256,5",
        ),
    ],
)
def test_a_speed_that_cannot_be_is_refused_by_row(tmp_path, heading, good, bad):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([heading, *[good] * 12, bad]) + "\n")
    sheet = read_sheet(path)
    _, refused = score_suite(sheet, find_suite(sheet), Hardware(Matrix()))
    assert [row.line for row in refused] == [14]
    assert "number of GPUs" in refused[0].reason or "what was measured" in refused[0].reason


def test_a_speed_follows_from_a_time_where_only_that_is_given(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("system,m,n,k,latency_ms,tflops\nh100_sxm,1024,1024,1024,0.01,\n")
    sheet = read_sheet(path)
    assert find_suite(sheet).read(sheet.rows[0]).value == pytest.approx(2 * 1024**3 / 1e-5 / 1e12)
