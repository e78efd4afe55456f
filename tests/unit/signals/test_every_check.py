"""What holds for every check, whoever wrote it: rows and modules agree, and nothing known is never a pass."""

from __future__ import annotations

import re
from contextlib import suppress
from inspect import signature
from pathlib import Path

import machines
import pytest
from verdicts import verify_hosts

import provision.signals
from provision.matrix.load import Matrix
from provision.probe.catalogue import LEVELS, PROBES
from provision.probe.output import Output, Unreadable
from provision.probe.snapshot import Snapshot
from provision.signals.catalogue import find_signal, list_functions, why_not_asked
from provision.signals.expectation import Expectation
from provision.signals.needs import NEEDS
from provision.verify.engine import choose_checks

MATRIX = Matrix()
ROWS = tuple(MATRIX.checks.values())
HOST_ROWS = tuple(row for row in ROWS if row.scope == "host")
FOLDER = Path(provision.signals.__file__).parent

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(machine, check) → why the healthy machine does not pass it. Empty, and to be kept so."""


def ask_all(hosts, expected):
    return verify_hosts(hosts, expected, MATRIX, choose_checks(MATRIX, "deep")).results


class Recorder(Snapshot):
    """A snapshot that remembers which probes it was asked for."""

    def __init__(self, outputs):
        super().__init__("recorded", outputs)
        self.asked = set()

    def output(self, probe):
        self.asked.add(probe)
        return super().output(probe)


def test_every_row_has_a_function_and_every_function_of_that_form_a_row():
    forms = [["host", "expected", "matrix"], ["hosts", "expected", "matrix"]]
    judging = {name for name, function in list_functions().items() if list(signature(function).parameters) in forms}
    assert {row.id.replace(".", "_") for row in ROWS} == judging


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
class TestRow:
    def test_names_probes_and_needs_that_exist(self, row):
        assert set(row.probes) <= set(PROBES)
        assert set(row.needs) <= set(NEEDS)

    def test_reads_something_that_its_level_runs(self, row):
        levels = [LEVELS.index(PROBES[probe].level) for probe in row.probes]
        assert not levels or min(levels) <= LEVELS.index(row.level)

    def test_function_answers_for_its_scope(self, row):
        first = next(iter(signature(find_signal(row.id)).parameters))
        assert first == {"host": "host", "fleet": "hosts"}[row.scope]

    def test_runbook_is_named_after_it(self, row):
        anchor = row.id.replace(".", "-").replace("_", "-")
        assert row.runbook == f"docs/runbooks.md#{anchor}"

    def test_words_are_for_people(self, row):
        assert not row.title.endswith(".")
        assert row.remedy.endswith(".")


@pytest.mark.parametrize("name", sorted(machines.MACHINES))
class TestHealthyMachine:
    def test_passes_or_is_not_asked(self, name):
        host = machines.snapshot(machines.MACHINES[name](), name)
        results = ask_all({name: host}, {name: machines.EXPECTED[name]})
        assert len(results) == len(ROWS)
        other = {
            result.check: (result.outcome.status, result.outcome.seen)
            for result in results
            if result.outcome.status not in ("pass", "skip") and (name, result.check) not in EXCEPTIONS
        }
        assert other == {}

    def test_answers_in_one_line(self, name):
        host = machines.snapshot(machines.MACHINES[name](), name)
        for result in ask_all({name: host}, {name: machines.EXPECTED[name]}):
            seen = result.outcome.seen
            assert seen, result.check
            assert "\n" not in seen, result.check
            assert not seen.endswith("."), result.check

    def test_reads_only_the_probes_it_names(self, name):
        undeclared = {}
        expected = machines.EXPECTED[name]
        outputs = machines.MACHINES[name]()
        for row in HOST_ROWS:
            host = Recorder(outputs)
            with suppress(Unreadable):
                if why_not_asked(row, machines.snapshot(outputs), expected, MATRIX) is None:
                    find_signal(row.id)(host, expected, MATRIX)
            if host.asked - set(row.probes):
                undeclared[row.id] = sorted(host.asked - set(row.probes))
        assert undeclared == {}


def test_user_who_is_not_root_knows_all_but_what_root_alone_may_read():
    host = machines.snapshot(machines.hgx_h100_without_root(), "a")
    results = ask_all({"a": host}, {"a": machines.EXPECTED["hgx_h100"]})
    statuses = {result.check: result.outcome.status for result in results}
    assert {check for check, status in statuses.items() if status not in ("pass", "skip")} == {
        "fabric.manager",
        "gpu.iommu_acs",
        "gpu.pcie.aer",
        "gpu.sxid",
        "gpu.xid",
        "host.hugelog",
        "net.firewall",
        "net.rdma.flap",
    }
    assert "fail" not in statuses.values()


def every_expectation():
    yield "nothing planned", Expectation()
    for name in sorted(machines.MACHINES):
        if machines.EXPECTED[name].gpus:
            yield name, machines.EXPECTED[name]


def outputs_of(status, text=""):
    return {probe: Output(probe=probe, status=status, text=text) for probe in PROBES}


SILENCES = {
    "nothing-collected": {},
    "all-hung": outputs_of("hung"),
    "all-denied": outputs_of("denied"),
    "all-cut": outputs_of("cut", text="half an ans"),
    "none-run": outputs_of("not-run"),
}


@pytest.mark.parametrize(
    ("plan", "expected"), list(every_expectation()), ids=lambda value: value if isinstance(value, str) else ""
)
class TestSilence:
    @pytest.mark.parametrize("silence", sorted(SILENCES))
    def test_is_unknown_and_neither_a_pass_nor_a_fault(self, plan, expected, silence):
        hosts = {name: Snapshot(name, SILENCES[silence]) for name in ("a", "b")}
        results = ask_all(hosts, dict.fromkeys(hosts, expected))
        assert len(results) == 2 * len(ROWS)
        wrong = {
            result.check: (result.outcome.status, result.outcome.seen)
            for result in results
            if result.outcome.status not in ("unknown", "skip")
        }
        assert wrong == {}

    def test_noise_is_no_pass(self, plan, expected):
        noise = outputs_of("ok", text="\x00\x01\ufffd\x1b]0;title\x07\n<<<>>> = : \ufffd\n" * 20)
        hosts = {name: Snapshot(name, noise) for name in ("a", "b")}
        results = ask_all(hosts, dict.fromkeys(hosts, expected))
        passed = {result.check: result.outcome.seen for result in results if result.outcome.status == "pass"}
        assert passed == {}


def test_most_questions_arise_on_a_planned_machine():
    """A silence proves nothing about checks that were all skipped."""
    expected = machines.EXPECTED["hgx_h100"]
    asked = [result for result in ask_all({"a": Snapshot("a", {})}, {"a": expected}) if result.outcome.status != "skip"]
    assert len(asked) > 0.6 * len(HOST_ROWS)


def test_every_threshold_that_code_names_is_a_fact():
    limits = {row.id for row in MATRIX.rows("checks.toml", "limit")}
    named = {
        match
        for path in FOLDER.rglob("*.py")
        for match in re.findall(r'\.limit\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= limits
