"""A verdict written down can be read by the programs it is written for, whatever a target said."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import machines
import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.probe.parse.measurements import parse_metrics
from provision.records import replace
from provision.signals.expectation import Expectation
from provision.signals.signal import failed, passed, skipped, unknown
from provision.verify.engine import Result, Verdict
from provision.verify.fleet import Difference
from provision.verify.report.document import count_statuses, read_report, write_document
from provision.verify.report.html import write_html
from provision.verify.report.junit import write_junit
from provision.verify.report.prometheus import read_host_facts, write_prometheus

HOSTILE = 'a<script>alert(1)</script> & "b" \x1b]0;title\x07\x1b[31m{{ 7 * 7 }}\x00\u202e'


def result(check: str, outcome, *, target="gpu001", severity="high") -> Result:
    return Result(
        check=check,
        target=target,
        level="quick",
        severity=severity,
        title="cool",
        outcome=outcome,
        remedy="Cool it.",
        runbook="docs/runbooks.md#gpu-temp",
        source=("gpud",),
    )


VERDICT = Verdict(
    results=(
        result("gpu.temp", failed("GPU 3 has 97 C", "at most 85 C", subjects=("GPU 3",), figures={"highest_c": 97.0})),
        result("gpu.driver.lib_match", unknown("nothing answered")),
        result("gpu.ecc.mode", skipped("GeForce")),
        result("gpu.smi.ok", passed("it answers")),
        result("gpu.vbios", failed("odd"), severity="low"),
        result("gpu.temp", passed("cool"), target="gpu002"),
    )
)


def hostile() -> Verdict:
    return Verdict(results=(result("gpu.temp", failed(HOSTILE, HOSTILE, subjects=(HOSTILE,)), target=HOSTILE),))


def test_document_counts_and_groups() -> None:
    document = write_document(VERDICT, facts_date="2026-11-21", collected={"gpu001": "2026-11-21T10:00:00+00:00"})
    assert document["ok"] is False
    assert document["counts"] == {"targets": 2, "pass": 2, "fail": 2, "unknown": 1, "skip": 1, "failures": 2}
    assert [(target["target"], target["ok"]) for target in document["targets"]] == [("gpu001", False), ("gpu002", True)]
    assert [group["check"] for group in document["groups"]] == ["gpu.temp", "gpu.driver.lib_match"]
    assert document["targets"][0]["checks"][0]["figures"] == {"highest_c": 97.0}


def test_document_is_read_back() -> None:
    document = write_document(VERDICT, facts_date="2026-11-21")
    for text in (json.dumps(document), json.dumps({"schema_version": 1, "ok": True, "result": document})):
        again = read_report(text, "report.json").verdict
        assert write_document(again, facts_date="2026-11-21") == document


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="list"),
        pytest.param("{}", id="other-document"),
        pytest.param('{"ok": false, "error": {"message": "x"}}', id="error"),
        pytest.param('{"fail_on": "never", "targets": []}', id="unknown-severity"),
        pytest.param('{"fail_on": "low", "targets": [{"target": "a", "checks": [{"id": 1}]}]}', id="broken-check"),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a report"):
        read_report(text, "report.json")


def test_counts_name_every_status() -> None:
    assert count_statuses([]) == {"pass": 0, "fail": 0, "unknown": 0, "skip": 0}


def test_junit_has_a_suite_a_target_and_a_case_a_check() -> None:
    root = ET.fromstring(write_junit(VERDICT, collected={"gpu001": "2026-11-21T10:00:00+00:00"}))
    first, second = root
    assert root.attrib == {"name": "provision verify", "tests": "6", "failures": "1", "errors": "1", "skipped": "1"}
    assert (first.get("name"), first.get("tests"), first.get("timestamp")) == (
        "gpu001",
        "5",
        "2026-11-21T10:00:00+00:00",
    )
    assert second.get("failures") == "0"
    cases = {case.get("name"): case for case in first}
    assert cases["test_gpu_temp"].find("failure").get("message") == "GPU 3 has 97 C"
    assert "expected: at most 85 C" in cases["test_gpu_temp"].find("failure").text
    assert "more: provision explain check/gpu.temp" in cases["test_gpu_temp"].find("failure").text
    assert cases["test_gpu_driver_lib_match"].find("error") is not None
    assert cases["test_gpu_ecc_mode"].find("skipped").get("message") == "GeForce"
    assert len(cases["test_gpu_smi_ok"]) == 0
    assert cases["test_gpu_vbios"].find("system-out").text == "fail: odd"


def test_junit_survives_what_a_target_says() -> None:
    text = write_junit(hostile())
    assert "\x1b" not in text
    ET.fromstring(text)


def test_junit_holds_nothing_that_xml_forbids() -> None:
    said = "boom \uffff \ufffe \ud800 \x01 end"
    row = replace(result("gpu.temp", failed(said, said, subjects=(said,)), target=said), title=said, runbook=said)
    text = write_junit(Verdict(results=(row,)), collected={said: said})
    (suite,) = ET.fromstring(text.encode("utf-8"))
    assert suite.get("timestamp").split() == ["boom", "end"]
    assert suite[0].find("failure").get("message").split() == ["boom", "end"]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onload"} & {name for name, _ in attrs}

    def handle_data(self, data) -> None:
        self.text += data


def _read_page(text: str) -> _Tags:
    page = _Tags()
    page.feed(text)
    return page


def test_page_says_what_the_document_says_and_asks_nothing_of_anybody() -> None:
    differences = [Difference(trait="driver", majority="580", majority_count=3, targets={"": ("gpu002",)})]
    page = _read_page(write_html(write_document(VERDICT, facts_date="2026-11-21", differences=differences)))
    assert "script" not in page.tags
    assert "GPU 3 has 97 C" in page.text
    assert "not known: gpu002" in page.text
    assert "more: provision explain check/gpu.temp" in page.text
    assert "docs/" not in page.text


def test_page_escapes_what_a_target_says() -> None:
    text = write_html(write_document(hostile(), facts_date="2026-11-21"))
    page = _read_page(text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "\x1b" not in text
    assert "\u202e" not in text


def fleet(count: int, broken: int) -> Verdict:
    """A verdict on many targets, of which some fail and one fails in a way of its own."""
    rows = []
    for number in range(count):
        target = f"gpu{number:04}"
        seen = failed(f"GPU 3 has {number} C") if number in (7, broken) else passed("cool")
        rows.append(result("gpu.temp", seen, target=target))
        rows += [result(f"check.{index}", passed("well"), target=target) for index in range(20)]
        rows.append(result("gpu.lost", failed("lost") if number == 9 else passed("there"), target=target))
    return Verdict(results=tuple(rows), fail_on="medium")


def test_page_of_a_fleet_shows_failures_first_and_one_of_each_kind_in_full() -> None:
    text = write_html(write_document(fleet(1000, 400), facts_date="2026-11-21"))
    page = _read_page(text)
    assert len(text.encode()) < 1_000_000
    assert len(page.tags) < 2_000
    assert "2 targets" in page.text
    assert page.text.index("fail gpu.lost") < page.text.index("nothing to tell")
    # The two that are alike, the one that is not, and one that passed.
    assert text.count("<table>") == 1 + 3
    for name in ("gpu0007", "gpu0400", "gpu0009"):
        assert name in page.text


def test_page_of_a_fleet_stays_small_whatever_fails() -> None:
    rows = [result(f"check.{number}", failed("x" * 200), target=f"gpu{number:04}") for number in range(3000)]
    text = write_html(write_document(Verdict(results=tuple(rows), fail_on="medium"), facts_date="2026-11-21"))
    assert len(text.encode()) < 1_000_000
    assert "2800 more in the JSON report" in _read_page(text).text
    assert "2800 targets more failed, each in a way of its own" in _read_page(text).text


def test_page_of_few_targets_shows_every_answer() -> None:
    text = write_html(write_document(fleet(32, 20), facts_date="2026-11-21"))
    assert text.count("<code>check.19</code>") == 32
    assert "in full" not in text.lower()


def test_metrics_are_read_by_a_parser_and_hold_the_verdict() -> None:
    outputs = machines.kernel_line(
        machines.hgx_h100(), "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."
    )
    host = machines.snapshot(outputs)
    facts = read_host_facts(host, Matrix())
    text = write_prometheus(
        VERDICT, expected={"gpu001": Expectation(gpus=8, driver="580.105.08")}, hosts={"gpu001": facts}
    )
    found = {(metric.name, *sorted(metric.labels.items())): metric.value for metric in parse_metrics(text)}
    labels = (("check", "gpu.temp"), ("severity", "high"), ("status", "fail"), ("target", "gpu001"))
    assert found["provision_verify_status", *labels] == 0
    assert found["provision_gpu_expected", ("target", "gpu001")] == 8
    assert found["provision_verify_failures", ("target", "gpu001")] == 2
    xid = (("pci", "0000:18:00.0"), ("severity", "fatal"), ("target", "gpu001"), ("xid", "79"))
    assert found["provision_xid_events_total", *xid] == 1
    assert {name for name, *_ in found} >= {"provision_kernel_events_total", "provision_verify_figure"}


def test_metrics_of_a_log_that_could_not_be_read_claim_no_zero() -> None:
    facts = read_host_facts(machines.snapshot(machines.fail(machines.hgx_h100(), "kernel-log")), Matrix())
    text = write_prometheus(VERDICT, hosts={"gpu001": facts})
    assert "provision_kernel_events_total" not in text


def test_labels_survive_what_a_target_says() -> None:
    (metric,) = [
        metric for metric in parse_metrics(write_prometheus(hostile())) if metric.name == "provision_verify_status"
    ]
    assert metric.labels["target"].startswith('a<script>alert(1)</script> & "b"')


def test_metrics_of_many_targets_read_the_failures_once(monkeypatch) -> None:
    read = []
    failures = Verdict.failures

    def count(verdict):
        read.append(verdict)
        return failures.fget(verdict)

    monkeypatch.setattr(Verdict, "failures", property(count))
    rows = [result("gpu.temp", failed("hot"), target=f"gpu{number:03}") for number in range(50)]
    rows += [result("gpu.xid", failed("fallen"), target="gpu007"), result("gpu.xid", passed("none"), target="gpu050")]
    metrics = parse_metrics(write_prometheus(Verdict(results=tuple(rows))))
    counts = {metric.labels["target"]: metric.value for metric in metrics if metric.name == "provision_verify_failures"}
    assert len(read) <= 1
    assert (counts["gpu000"], counts["gpu007"], counts["gpu050"], len(counts)) == (1, 2, 0, 51)


def nccl(outcome, check="perf.nccl.node", target="gpu001"):
    return result(check, outcome, target=target)


def nccl_samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (metric.name.removeprefix("provision_nccl_"), metric.labels["check"]): metric.value
        for metric in parse_metrics(text)
        if metric.name.startswith("provision_nccl_")
    }


def measured() -> str:
    host = machines.snapshot(machines.hgx_h100())
    outcome = failed("slow", "fast", figures={"allreduce_bus_gb_s": 41.5})
    facts = {"gpu001": read_host_facts(host, Matrix())}
    return write_prometheus(Verdict(results=(nccl(outcome),)), hosts=facts)


def test_nccl_stands_in_base_units_with_its_time() -> None:
    host = machines.snapshot(machines.hgx_h100())
    found = nccl_samples(measured())
    node = "perf.nccl.node"
    assert found["status", node] == 0
    assert found["bus_bandwidth_bytes_per_second", node] == 41.5e9
    smallest = min(host.nccl_tests.rows, key=lambda row: row.size_bytes)
    assert found["latency_seconds", node] == pytest.approx(smallest.time_us / 1e6)
    assert found["ranks", node] == host.nccl_tests.ranks
    assert found["timestamp_seconds", node] > 1e9


@pytest.mark.parametrize("outcome", [unknown("it did not run"), skipped("one GPU")], ids=["unknown", "skipped"])
def test_nccl_that_was_not_measured_leaves_what_was_known(outcome) -> None:
    before = measured()
    text = write_prometheus(Verdict(results=(nccl(outcome), result("gpu.temp", passed("cool")))), before=before)
    assert nccl_samples(text) == nccl_samples(before) != {}
    assert text.count("# TYPE provision_nccl_status ") == 1
    # Nothing else of the earlier file is kept.
    assert "provision_xid_events_total" not in write_prometheus(Verdict(results=()), before=before)


def test_nccl_that_was_measured_again_replaces_all_that_was_known() -> None:
    before = measured()
    text = write_prometheus(Verdict(results=(nccl(passed("fast")),)), before=before)
    assert nccl_samples(text) == {("status", "perf.nccl.node"): 1}
    assert nccl_samples(write_prometheus(Verdict(results=(nccl(passed("fast"), target="gpu002"),)), before=before))[
        "bus_bandwidth_bytes_per_second", "perf.nccl.node"
    ] == pytest.approx(41.5e9)


@pytest.mark.parametrize(
    "line",
    [
        'provision_nccl_status{target="a"} 1',
        'provision_nccl_status{target="a",check="perf.nccl.node"} 1 # {}',
        'provision_nccl_status{target="a",check="perf.nccl.node",more="x"} 1',
        'provision_nccl_unheard_of{target="a",check="perf.nccl.node"} 1',
        'provision_verify_status{target="a",check="perf.nccl.node",severity="high"} 0',
        "\x00\x1b[31m",
    ],
)
def test_what_is_no_result_of_nccl_is_not_carried_over(line: str) -> None:
    assert write_prometheus(Verdict(results=()), before=line + "\n") == ""
