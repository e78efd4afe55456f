"""The checks of monitoring."""

from __future__ import annotations

import json

import machines
import pytest
from asking import ask, text

from provision.probe.output import Output

H100 = machines.hgx_h100()
SERVER = "http://localhost:9090"


def test_all_gpus_pass() -> None:
    assert ask("mon.exporter", H100).seen == "the exporter tells 8 GPUs"


def test_a_missing_gpu_fails_with_the_numbers() -> None:
    lines = [line for line in H100["exporter"].text.splitlines() if 'gpu="7"' not in line]
    outcome = ask("mon.exporter", text(H100, "exporter", "\n".join(lines) + "\n"))

    assert (outcome.status, outcome.seen) == ("fail", "the exporter tells 7 of 8 GPUs")


@pytest.mark.parametrize("blank", ["9223372036854775794", "2147483632", "140737488355328"])
def test_numbers_that_stand_for_no_value_fail_by_name(blank: str) -> None:
    line = f'DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="3"}} {blank}\n'
    outcome = ask("mon.exporter", text(H100, "exporter", H100["exporter"].text + line))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU 3",))
    assert outcome.seen.startswith("DCGM_FI_DEV_ROW_REMAP_FAILURE of GPU 3 is ")


def test_large_counters_are_values() -> None:
    line = 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="3"} 150737488355328\n'

    assert ask("mon.exporter", text(H100, "exporter", H100["exporter"].text + line)).status == "pass"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("", "the exporter answers without any metric of DCGM"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 0\n', "the exporter has no DCGM_FI_DEV_GPU_TEMP"),
    ],
    ids=["nothing", "no-temperature"],
)
def test_an_exporter_without_temperatures_fails(said: str, seen: str) -> None:
    outcome = ask("mon.exporter", text(H100, "exporter", said))

    assert (outcome.status, outcome.seen) == ("fail", seen)


def test_an_exporter_that_is_down_fails_with_the_reason() -> None:
    outcome = ask("mon.exporter", machines.fail(H100, "exporter", code=7, error="port 9400: connection refused"))

    assert (outcome.status, outcome.seen) == ("fail", "the exporter does not answer: port 9400: connection refused")


def test_an_exporter_that_hangs_is_unknown_and_one_nobody_plans_not_asked() -> None:
    assert ask("mon.exporter", machines.fail(H100, "exporter", status="hung")).status == "unknown"
    assert ask("mon.exporter", H100, has_exporter=False).status == "skip"


def scraped(*values: str) -> dict[str, Output]:
    result = [
        {"metric": {"__name__": "up", "job": "dcgm", "instance": f"gpu00{place}:9400"}, "value": [1, value]}
        for place, value in enumerate(values, 1)
    ]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return text(H100, "prometheus", json.dumps(answer))


def test_a_server_that_scrapes_passes() -> None:
    assert ask("mon.scrape", scraped("1", "1"), prometheus=SERVER).seen == "2 targets are up"


def test_targets_that_are_down_are_named() -> None:
    outcome = ask("mon.scrape", scraped("1", "0"), prometheus=SERVER)

    assert outcome.seen == f"{SERVER} cannot scrape dcgm (gpu002:9400)"


def test_a_server_that_does_not_know_the_host_fails() -> None:
    assert ask("mon.scrape", scraped(), prometheus=SERVER).status == "fail"


@pytest.mark.parametrize("answer", ["", "{}", '{"status": "error", "error": "parse error"}', "<html>"])
def test_a_server_without_an_answer_is_unknown(answer: str) -> None:
    assert ask("mon.scrape", text(H100, "prometheus", answer), prometheus=SERVER).status == "unknown"


def test_a_server_that_was_not_asked_is_unknown_and_none_is_no_question() -> None:
    assert ask("mon.scrape", H100, prometheus=SERVER).status == "unknown"
    assert ask("mon.scrape", H100).status == "skip"


def test_the_age_of_the_metrics() -> None:
    assert ask("mon.textfile", H100).seen == "`provision.prom` is 42 seconds old"
    outcome = ask("mon.textfile", text(H100, "textfile", "3600\n"))
    assert (outcome.status, outcome.seen) == ("fail", "`provision.prom` is 60 minutes old")


def test_metrics_that_are_not_there() -> None:
    assert ask("mon.textfile", machines.absent(H100, "textfile")).status == "fail"
    assert ask("mon.textfile", text(H100, "textfile", "young\n")).status == "unknown"
    assert ask("mon.textfile", H100, has_textfile=False).status == "skip"


def test_gpus_nobody_counts_are_unknown() -> None:
    uncounted = machines.fail(H100, "nvidia-smi-xml", status="hung")

    assert ask("mon.exporter", uncounted, gpus=None).status == "unknown"
