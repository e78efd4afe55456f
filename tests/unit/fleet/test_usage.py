"""GPU-hours: by Slurm's accounting, and by a real Prometheus over recorded series."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from fleet_prometheus import await_value, start_prometheus

from provision.errors import UsageError
from provision.fleet.sacct import read_sacct
from provision.fleet.usage import ask_usage, count_usage

HEADING = "JobID|User|Account|Start|End|ElapsedRaw|AllocTRES"
JOBS = f"""{HEADING}
1|ann|vision|2026-11-20T08:00:00|2026-11-20T10:00:00|7200|gres/gpu=4
2|bob|vision|2026-11-20T09:00:00|2026-11-20T12:00:00|10800|gres/gpu=1
3|bob|chem|2026-11-20T09:00:00|2026-11-20T10:00:00|3600|cpu=4
"""


def test_hours_are_counted_by_what_is_asked_for() -> None:
    jobs = read_sacct(JOBS, "jobs.txt")
    by_user = count_usage(jobs, "user")
    assert [(row.name, row.jobs, row.gpu_hours) for row in by_user.rows] == [("ann", 1, 8), ("bob", 1, 3)]
    (vision,) = count_usage(jobs, "account").rows
    assert (vision.name, vision.jobs, vision.gpu_hours) == ("vision", 2, 11)
    assert by_user.without_gpu == 1
    assert by_user.idle_gpu_hours is None


def test_what_nobody_used_is_idle() -> None:
    usage = count_usage(read_sacct(JOBS, "jobs.txt"), "user", gpus=8)
    assert (usage.hours, usage.idle_gpu_hours) == (4, 8 * 4 - 11)
    assert count_usage(read_sacct(JOBS, "jobs.txt"), "user", gpus=8, hours=24).idle_gpu_hours == 8 * 24 - 11


def test_more_than_there_was_cannot_have_been_used() -> None:
    with pytest.raises(UsageError, match=r"used 11\.0 GPU-hours"):
        count_usage(read_sacct(JOBS, "jobs.txt"), "user", gpus=2)


def test_what_the_file_does_not_say_is_asked_for() -> None:
    jobs = read_sacct("ElapsedRaw|AllocTRES|User\n60|gres/gpu=1|ann\n", "jobs.txt")
    with pytest.raises(UsageError, match="does not name the account"):
        count_usage(jobs, "account")
    with pytest.raises(UsageError, match="does not say when"):
        count_usage(jobs, "user", gpus=1)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_a_server_tells_who_held_gpus_and_how_busy_they_were(tmp_path: Path) -> None:
    now = int(time.time())
    held = {"0": 'namespace="a",pod="train-0",', "1": 'namespace="b",pod="serve-0",', "2": "", "3": 'hpc_job="7",'}
    lines = ["# TYPE DCGM_FI_DEV_FB_USED gauge"]
    lines += [
        f'DCGM_FI_DEV_FB_USED{{cluster="c",node="n1",{labels}gpu="{gpu}"}} 100 {moment}'
        for gpu, labels in held.items()
        for moment in range(now - 3 * 3600, now + 60, 60)
    ]
    lines += ["# TYPE gpu:activity:percent gauge"]
    lines += [
        f'gpu:activity:percent{{cluster="c",node="n1",gpu="{gpu}",modelName="H100"}} {percent} {moment}'
        for gpu, percent in (("0", 90), ("1", 10), ("2", 0), ("3", 50))
        for moment in range(now - 3 * 3600, now + 60, 60)
    ]
    (tmp_path / "series").write_text("\n".join([*lines, "# EOF\n"]))
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "series", "data"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    with start_prometheus(tmp_path) as server:
        await_value(server, "count(DCGM_FI_DEV_FB_USED)", 4.0)
        usage = ask_usage(server, "namespace", hours=2)
        assert [row.name for row in usage.rows] == ["c", "c/a", "c/b"]
        for row, busy in zip(usage.rows, (50, 90, 10), strict=True):
            assert row.gpu_hours == pytest.approx(2, rel=0.05)
            assert row.busy_gpu_hours == pytest.approx(row.gpu_hours * busy / 100, rel=0.01)
        assert usage.idle_gpu_hours == pytest.approx(2, rel=0.05)
        assert usage.gpus == pytest.approx(4, rel=0.05)
        assert {row.name for row in ask_usage(server, "pod", hours=2).rows} == {"c", "c/a/train-0", "c/b/serve-0"}
        assert [row.name for row in ask_usage(server, "job", hours=2).rows] == ["c", "c/7"]
