"""The checks of DCGM's diagnostics."""

from __future__ import annotations

import json

import machines
import pytest
from asking import ask, text

from provision.probe.output import Output

H100 = machines.hgx_h100()
CHECKS = [("dcgm.diag1", "dcgmi-diag"), ("dcgm.diag2", "dcgmi-diag-2"), ("dcgm.diag3", "dcgmi-diag-3")]


def results(outputs: dict[str, Output], probe: str, place: int, **fields: object) -> dict[str, Output]:
    """Return a machine on which the first test says something else of one GPU."""
    document = json.loads(outputs[probe].text)
    found = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][place]
    found.update(fields)
    return text(outputs, probe, json.dumps(document))


@pytest.mark.parametrize(("check", "probe"), CHECKS)
class TestLevel:
    def test_passes_on_every_gpu(self, check: str, probe: str) -> None:
        del probe
        assert "passed on 8 GPUs" in ask(check, H100).seen

    def test_names_test_gpu_and_message_of_a_failure(self, check: str, probe: str) -> None:
        warning = {"warning": "Persistence mode is off", "error_id": 29, "error_severity": 5}
        outcome = ask(check, results(H100, probe, 3, status="Fail", warnings=[warning]))

        assert (outcome.status, outcome.subjects) == ("fail", ("software on GPU 3",))
        assert outcome.seen == "software on GPU 3 fails (DCGM error 29): Persistence mode is off"

    def test_is_unknown_where_it_did_not_end(self, check: str, probe: str) -> None:
        assert "did not end within its time" in ask(check, machines.fail(H100, probe, status="hung")).seen

    def test_is_unknown_where_it_is_planned_and_absent(self, check: str, probe: str) -> None:
        assert ask(check, machines.absent(H100, probe)).status == "unknown"

    def test_is_unknown_where_the_document_is_of_another_kind(self, check: str, probe: str) -> None:
        outputs = machines.change(H100, probe, "DCGM Diagnostic", "DCGM 5 Diagnostic")
        assert ask(check, outputs).status == "unknown"

    def test_is_not_asked_where_dcgm_is_not_planned(self, check: str, probe: str) -> None:
        del probe
        assert ask(check, H100, has_dcgm=False).status == "skip"


def test_dcgm_that_is_neither_planned_nor_there_is_not_asked() -> None:
    assert ask("dcgm.diag1", machines.absent(H100, "dcgmi-diag"), has_dcgm=None).status == "skip"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("Warn", "fail"), ("Not Run", "unknown"), ("Excellent", "unknown")],
    ids=["warning", "not-run", "new-word"],
)
def test_words_other_than_pass(status: str, verdict: str) -> None:
    assert ask("dcgm.diag1", results(H100, "dcgmi-diag", 3, status=status)).status == verdict


def test_a_failure_weighs_more_than_what_did_not_run() -> None:
    outputs = results(results(H100, "dcgmi-diag", 2, status="Not Run"), "dcgmi-diag", 3, status="Fail")

    assert ask("dcgm.diag1", outputs).status == "fail"


def test_tests_that_were_all_left_out_are_unknown() -> None:
    outputs = machines.change(H100, "dcgmi-diag-2", '"status": "Pass"', '"status": "Skip"')

    assert ask("dcgm.diag2", outputs).seen == "no test of dcgmi diag ran"


def test_a_pass_with_an_error_contradicts_itself() -> None:
    outputs = results(H100, "dcgmi-diag", 3, warnings=[{"warning": "memory", "error_id": 12}])
    outcome = ask("dcgm.diag1", outputs)

    assert (outcome.status, outcome.seen) == (
        "unknown",
        "software on GPU 3 contradicts itself: Pass, with error 12",
    )


def test_a_summary_worse_than_its_results_counts() -> None:
    document = json.loads(H100["dcgmi-diag"].text)
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["test_summary"]["status"] = "Fail"

    assert ask("dcgm.diag1", text(H100, "dcgmi-diag", json.dumps(document))).seen == "software fails"


def test_a_gpu_that_was_not_tested_makes_it_unknown() -> None:
    document = json.loads(H100["dcgmi-diag"].text)
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"].pop()
    outcome = ask("dcgm.diag1", text(H100, "dcgmi-diag", json.dumps(document)))

    assert (outcome.status, outcome.seen) == ("unknown", "dcgmi diag tested 7 of 8 GPUs")


def test_results_of_dcgm_three_about_the_host_pass() -> None:
    tests = [{"name": "Inforom", "results": [{"status": "Pass"}]}, {"name": "PCIe", "results": [{"status": "Skip"}]}]
    document = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}

    assert ask("dcgm.diag1", text(H100, "dcgmi-diag", json.dumps(document))).seen == "1 test passed, 1 not asked"


def test_a_summary_does_not_make_up_for_results_that_were_left_out() -> None:
    document = json.loads(H100["dcgmi-diag"].text)
    test = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["results"] = [result | {"status": "Skip"} for result in test["results"]]

    assert ask("dcgm.diag1", text(H100, "dcgmi-diag", json.dumps(document))).seen == "no test of dcgmi diag ran"


def test_a_test_without_any_result_is_unknown() -> None:
    tests = [{"name": "Inforom", "results": [{"status": "Pass"}]}, {"name": "PCIe", "results": []}]
    document = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}

    assert ask("dcgm.diag1", text(H100, "dcgmi-diag", json.dumps(document))).seen == "PCIe has no result"
