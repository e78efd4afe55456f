"""What measuring tools print is read as they meant it, and nothing else passes for a measurement."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse.measurements import (
    parse_dcgmi_diag,
    parse_metrics,
    parse_nccl_tests,
    parse_nvbandwidth,
)

PARSERS = [parse_nccl_tests, parse_nvbandwidth, parse_dcgmi_diag, parse_metrics]

TWO_HALVES = """\
# nccl-tests version 2.17.1 nccl-headers=22706 nccl-library=22706
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid   4242 on    node-1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4242 on    node-1 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
  8589934592    2147483648     float     sum      -1  31000.1  277.10  480.25       3  31001.0  277.09  479.00     N/A
  1073741824     268435456     float     sum      -1   4000.0  268.44  460.00       0   4000.0  268.44  459.00       0
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 469.5
#
# Collective test concluded: all_reduce_perf
"""

ONE_HALF = """\
NCCL version 2.21.5+cuda12.4
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   4000.0  268.44  460.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 460
"""

OLD = """\
NCCL version 2.8.4+cuda11.0
#   Rank  0 Pid   1234 on     node-1 device  0 [0x07] Tesla V100-SXM2-16GB
#
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   134217728      33554432     float     sum   2000.0   67.11  117.40  2e-07   2001.0   67.08  117.30  2e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 117.35
"""


def test_two_halves_of_columns_are_kept_apart() -> None:
    run = parse_nccl_tests(TWO_HALVES)

    assert (run.test, run.nccl_version, run.ranks) == ("all_reduce_perf", "2.27.6", 2)
    assert run.devices == ("NVIDIA H100 80GB HBM3",) * 2
    assert [row.bus_gb_s for row in run.rows] == [480.25, 460.0]
    assert [row.bus_gb_s for row in run.in_place] == [479.0, 459.0]
    assert (run.rows[0].wrong, run.in_place[0].wrong) == (3, None)
    assert (run.out_of_bounds, run.average_gb_s) == (3, 469.5)


def test_largest_row_is_found_in_any_order() -> None:
    assert parse_nccl_tests(TWO_HALVES).largest.size_bytes == 8 * 2**30


def test_one_half_of_columns_leaves_in_place_empty() -> None:
    run = parse_nccl_tests(ONE_HALF)

    assert (run.rows[0].bus_gb_s, run.rows[0].wrong, run.in_place) == (460.0, 0, ())
    assert run.nccl_version == "2.21.5"


def test_deviations_of_old_releases_are_no_counts_of_wrong_values() -> None:
    run = parse_nccl_tests(OLD)

    assert (run.rows[0].bus_gb_s, run.rows[0].wrong, run.out_of_bounds) == (117.4, None, 0)
    assert run.devices == ("Tesla V100-SXM2-16GB",)


def test_recorded_run_of_eight_gpus(samples: Path) -> None:
    run = parse_nccl_tests((samples / "nccl" / "gcm-allreduce-8xA100.txt").read_text())

    assert (run.ranks, run.nccl_version, len(run.rows), len(run.in_place)) == (8, "2.16.2", 6, 6)
    assert (run.largest.size_bytes, run.largest.bus_gb_s, run.largest.wrong) == (2**30, 231.72, 0)
    assert (run.average_gb_s, run.out_of_bounds) == (210.99, 0)


def nccl_document(**changes: object) -> str:
    half = {"time": 4000.0, "alg_bw": 268.4, "bus_bw": 460.0, "nwrong": 0}
    document = {
        "version": 3,
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1G"],
        "nccl_version": 22706,
        "config": {"devices": [{"rank": 0, "device_info": "NVIDIA H100"}, {"rank": 1, "device_info": "NVIDIA H100"}]},
        "results": [{"size": 2**30, "out_of_place": half, "in_place": {**half, "bus_bw": 459.0, "nwrong": None}}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 459.5, "okay": "unchecked"},
        "errors": [],
    }
    return json.dumps(document | changes)


def test_json_of_nccl_tests_says_the_same_as_its_text() -> None:
    run = parse_nccl_tests(nccl_document())

    assert (run.test, run.nccl_version, run.ranks) == ("all_reduce_perf", "2.27.6", 2)
    assert (run.largest.bus_gb_s, run.largest.wrong, run.in_place[0].wrong) == (460.0, 0, None)
    assert (run.average_gb_s, run.out_of_bounds) == (459.5, 0)


@pytest.mark.parametrize(
    ("number", "version"), [(2708, "2.7.8"), (21605, "2.16.5")], ids=["before-two-digit-minors", "after"]
)
def test_version_numbers_of_nccl(number: int, version: str) -> None:
    assert parse_nccl_tests(nccl_document(nccl_version=number)).nccl_version == version


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("# nThread 1 nGpus 8\n# Avg bus bandwidth    : 400\n", id="average-without-rows"),
        pytest.param(TWO_HALVES.replace("479.00     N/A", ""), id="row-broken-off"),
        pytest.param(
            TWO_HALVES + "node-1: Test NCCL failure common.cu:958 'unhandled cuda error'\n", id="said-failure"
        ),
        pytest.param(ONE_HALF.replace("460.00 ", "inf "), id="bandwidth-without-end"),
        pytest.param(nccl_document(results=[]), id="document-without-results"),
        pytest.param(nccl_document(results=[{"size": 8, "out_of_place": None}]), id="document-without-bandwidth"),
    ],
)
def test_half_a_run_of_nccl_tests_is_none(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_nccl_tests(text)


BANDWIDTH = """\
nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.10     12.34

SUM host_to_device_memcpy_ce 67.44

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    390.12
 1    389.90       N/A

&&&& PERF device_to_device_memcpy_read_ce 780.02 +GB/s

Running multinode_device_to_device_memcpy_read_ce.
Waived:
"""


def test_matrices_of_nvbandwidth() -> None:
    copies, peers, waived = parse_nvbandwidth(BANDWIDTH)

    assert copies.name == "host_to_device_memcpy_ce"
    assert copies.cells == {(0, 0): 55.10, (0, 1): 12.34}
    assert (copies.total_gb_s, copies.status) == (67.44, "Passed")
    assert peers.cells == {(0, 0): None, (0, 1): 390.12, (1, 0): 389.9, (1, 1): None}
    assert (waived.cells, waived.status) == ({}, None)


@pytest.mark.parametrize(
    ("file", "name", "cells", "slowest"),
    [
        ("readme-h2d.txt", "host_to_device_memcpy_ce", 8, 25.94),
        ("readme-8xA100-d2d-write.txt", "device_to_device_memcpy_write_ce", 64, 274.89),
    ],
    ids=["host-to-device", "device-to-device"],
)
def test_recorded_matrices(samples: Path, file: str, name: str, cells: int, slowest: float) -> None:
    (matrix,) = parse_nvbandwidth((samples / "nvbandwidth" / file).read_text())

    assert (matrix.name, len(matrix.cells)) == (name, cells)
    assert min(value for value in matrix.cells.values() if value) == slowest


def bandwidth_document(testcases: object, **more: object) -> str:
    return json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": testcases, **more}})


def test_document_of_nvbandwidth_holds_numbers_as_text() -> None:
    matrix, failed = parse_nvbandwidth(
        "warning: something else\n"
        + bandwidth_document(
            [
                {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 780.02,
                 "bandwidth_matrix": [["N/A", "390.12"], ["389.9", "N/A"]]},
                {"name": "host_to_device_memcpy_ce", "status": "Error"},
            ]
        )
    )  # fmt: skip

    assert matrix.cells == {(0, 0): None, (0, 1): 390.12, (1, 0): 389.9, (1, 1): None}
    assert (failed.cells, failed.status) == ({}, "Error")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("Running host_to_device_memcpy_ce.\n", id="no-matrix"),
        pytest.param(BANDWIDTH.replace("12.34", ""), id="hole"),
        pytest.param(BANDWIDTH.replace("12.34", "nan"), id="no-number"),
        pytest.param(bandwidth_document([], error="No CUDA devices"), id="document-with-error"),
        pytest.param(bandwidth_document([{"status": "Passed"}]), id="test-without-name"),
        pytest.param(json.dumps({"other": {"testcases": []}}), id="another-document"),
    ],
)
def test_matrices_with_holes_are_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_nvbandwidth(text)


def test_reason_of_nvbandwidth_is_kept() -> None:
    with pytest.raises(Unreadable, match="No CUDA devices"):
        parse_nvbandwidth(bandwidth_document([], error="No CUDA devices"))


@pytest.mark.parametrize(
    ("file", "tests", "failing"),
    [
        ("gcm-dcgm3-diag_pass_output.json", 9, []),
        ("gcm-dcgm3-diag_warn_output.json", 9, [("Persistence Mode", "Warn", None)]),
        ("glimmer-dcgm4.2.3-gb10-level1-fail-persistence.json", 1, [("software", "Fail", 0)]),
        ("glimmer-dcgm4.5.2-gb10-level2-plugins-allowed.json", 3, [("software", "Fail", 0)]),
    ],
    ids=["three-pass", "three-warn", "four-fail", "four-level-two"],
)
def test_recorded_diagnostics(samples: Path, file: str, tests: int, failing: list[object]) -> None:
    found = parse_dcgmi_diag((samples / "dcgm" / file).read_text())

    assert len(found) == tests
    assert [
        (test.name, result.status, result.entity)
        for test in found
        for result in test.results
        if result.status != "Pass"
    ] == failing


def test_codes_of_a_recorded_failure(samples: Path) -> None:
    (test,) = parse_dcgmi_diag((samples / "dcgm" / "glimmer-dcgm4.2.3-gb10-level1-fail-persistence.json").read_text())

    assert (test.results[0].error_ids, test.results[0].severities) == ((29,), (5,))
    assert "Persistence mode for GPU 0 is disabled" in test.results[0].warnings[0]
    assert test.summary is not None
    assert test.summary.status == "Fail"


def diagnosis(root: str, results: list[object], **more: object) -> str:
    tests = [{"name": "Memory", "results": results, **more}]
    return json.dumps({root: {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def test_results_of_dcgm_three_name_several_gpus() -> None:
    text = diagnosis("DCGM GPU Diagnostic", [{"gpu_ids": "0,1", "status": "Pass"},
                                             {"gpu_ids": "2", "status": "Fail", "warnings": "bad memory"}])  # fmt: skip

    (test,) = parse_dcgmi_diag(f"Successfully started.\n{text}\nDone {{}}\n")

    assert [(result.entity, result.status) for result in test.results] == [(0, "Pass"), (1, "Pass"), (2, "Fail")]
    assert test.results[2].warnings == ("bad memory",)
    assert test.summary is None


def test_results_about_a_processor_are_of_no_gpu() -> None:
    text = diagnosis("DCGM Diagnostic", [{"entity_group": "CPU", "entity_id": 1, "status": "Pass"}])

    (test,) = parse_dcgmi_diag(text)

    assert (test.results[0].entity, test.results[0].group) == (None, "CPU")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{}", id="empty-document"),
        pytest.param(diagnosis("DCGM 5 Diagnostic", [{"status": "Pass"}]), id="unknown-root"),
        pytest.param('{"DCGM Diagnostic": {"test_categories": []}}', id="no-test"),
        pytest.param('{"DCGM Diagnostic": "Pass"}', id="root-is-a-word"),
        pytest.param(diagnosis("DCGM Diagnostic", [{"status": "Pass"}])[:-3], id="cut-short"),
        pytest.param(diagnosis("DCGM Diagnostic", [{"entity_id": 0}]), id="result-without-status"),
        pytest.param('{"DCGM Diagnostic": ' * 5000, id="very-deep"),
    ],
)
def test_unknown_diagnosis_is_never_a_pass(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_dcgmi_diag(text)


def test_reason_why_dcgm_could_not_run_is_kept() -> None:
    with pytest.raises(Unreadable, match="another instance is running"):
        parse_dcgmi_diag('{"DCGM Diagnostic": {"runtime_error": "another instance is running"}}')


def test_samples_with_labels_escapes_and_exponents() -> None:
    first, second, third, fourth = parse_metrics(
        "# HELP a_total Text with { and }\n"
        "# TYPE a_total counter\n"
        'a_total{gpu="0",name="a \\"b\\" \\\\ c, }",} 1.5e3 1700000000000\n'
        "b -Inf\n"
        'c{} NaN # {trace_id="1"} 1\n'
        'd { gpu = "1" } .5\n'
    )

    assert (first.name, first.labels, first.value) == ("a_total", {"gpu": "0", "name": 'a "b" \\ c, }'}, 1500.0)
    assert (second.name, second.value) == ("b", -math.inf)
    assert math.isnan(third.value)
    assert (fourth.labels, fourth.value) == ({"gpu": "1"}, 0.5)


def test_recorded_metrics(samples: Path) -> None:
    text = (samples / "metrics" / "dcgm-exporter-h100-580.105.08-excerpt.prom").read_text()
    temperatures = [metric for metric in parse_metrics(text) if metric.name == "DCGM_FI_DEV_GPU_TEMP"]

    assert [(metric.labels["gpu"], metric.value) for metric in temperatures] == [("0", 30.0), ("1", 29.0)]


@pytest.mark.parametrize(
    "text",
    ["", "# HELP a b\n", "<html>not found</html>", "a", "a-5", 'a{b="c" 1', 'a{b=c} 1', "a 1_000", "a 1 later"],
    ids=["empty", "comments", "page", "no-value", "no-space", "open-labels", "no-quotes", "underscore", "bad-stamp"],
)  # fmt: skip
def test_other_text_is_no_metrics(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_metrics(text)


def test_terminal_escapes_do_not_reach_records() -> None:
    metric = parse_metrics('a{b="\x1b]0;title\x07red\x1b[31m"} 1')[0]
    test = parse_dcgmi_diag(diagnosis("DCGM Diagnostic", [{"status": "Fail", "warnings": ["\x1b[31mred\x1b[2J"]}]))[0]

    assert metric.labels == {"b": "red"}
    assert "\x1b" not in test.results[0].warnings[0]


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text() | st.binary().map(lambda raw: raw.decode(errors="replace")))
def test_no_text_raises_anything_else(parse, text) -> None:  # type: ignore[no-untyped-def]
    try:
        parse(text)
    except Unreadable:
        return


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("whole", [TWO_HALVES, BANDWIDTH, nccl_document(), diagnosis("DCGM Diagnostic", [{}])],
                         ids=["nccl", "nvbandwidth", "nccl-json", "dcgm"])  # fmt: skip
def test_no_truncation_raises_anything_else(parse, whole) -> None:  # type: ignore[no-untyped-def]
    for end in range(0, len(whole), 7):
        try:
            parse(whole[:end] + '\x00\xff{["')
        except Unreadable:
            continue
