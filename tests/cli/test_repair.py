"""`provision doctor --fix` runs what is proved and can be taken back, and looks afterwards whether it helped."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from types import MappingProxyType

import machines
import pytest

from provision.cli.output import Output
from provision.cli.repair import plan_steps, repair
from provision.doctor.case import Case
from provision.doctor.engine import Finding, Report, diagnose
from provision.doctor.sign import Sign
from provision.errors import ActionFailedError, MissingDependencyError
from provision.matrix.load import Matrix
from provision.records import replace

FACTS = MappingProxyType(Matrix().diagnoses)
UVM = "nvidia-modprobe -c 0 -u"
PERSISTENCE_OFF = ("<persistence_mode>Enabled", "<persistence_mode>Disabled")
NVML = (("error.log", "Failed to initialize NVML: Unknown Error"),)


def finding(name: str, confidence: str = "high", **row) -> Finding:
    fact = replace(FACTS[name], **row) if row else FACTS[name]
    return Finding(diagnosis=fact, sign=Sign(confidence=confidence, seen=("x",)))


def kinds_of(found: Finding) -> list[str]:
    return [step["kind"] for step in plan_steps(found)]


def found_on(name: str, outputs, texts=()) -> Finding:
    report = diagnose(Case(Matrix(), machines.snapshot(outputs), texts))
    (found,) = [row for row in (*report.causes, *report.notes) if row.diagnosis.id == name]
    return found


@pytest.mark.parametrize("confidence", ["medium", "low"])
def test_what_is_not_proved_is_left_to_a_person(confidence) -> None:
    assert "run" in kinds_of(finding("cuda.uvm"))
    assert "run" not in kinds_of(finding("cuda.uvm", confidence))


def test_what_something_unseen_could_refute_is_left_to_a_person() -> None:
    sign = Sign(confidence="high", seen=("x",), unseen=("whether docker runs rootless",))
    assert "run" not in kinds_of(Finding(diagnosis=FACTS["cuda.uvm"], sign=sign))


@pytest.mark.parametrize("texts", [pytest.param((), id="alone"), pytest.param(NVML, id="with-a-message")])
def test_a_setting_that_is_right_for_rootless_docker_is_never_changed(texts) -> None:
    outputs = machines.change(machines.hgx_h100(), "toolkit-config", "#no-cgroups = false", "no-cgroups = true")
    assert "run" not in kinds_of(found_on("container.no-cgroups", outputs, texts))


@pytest.mark.parametrize(
    "units", [pytest.param("known", id="installed"), pytest.param("denied", id="units-unreadable")]
)
def test_persistence_is_switched_on_by_the_one_command_that_works_everywhere(units) -> None:
    outputs = machines.change(machines.hgx_h100(), "nvidia-smi-xml", *PERSISTENCE_OFF)
    if units == "denied":
        outputs = machines.fail(outputs, "units", status="denied")
    steps = plan_steps(found_on("gpu.persistence-off", outputs))
    assert [step.get("run") for step in steps if step["kind"] == "run"] == ["nvidia-smi -pm 1"]
    assert any("--no-persistence-mode" in step["step"] for step in steps)


@pytest.mark.parametrize("name", [name for name, row in FACTS.items() if row.undo])
def test_of_several_ways_at_most_one_is_run(name) -> None:
    assert kinds_of(finding(name)).count("run") <= 1


@pytest.mark.parametrize("name", [name for name, row in FACTS.items() if row.undo])
def test_what_is_run_or_taken_back_stops_nothing_and_unloads_nothing_else(name) -> None:
    for command in (*FACTS[name].undo, *FACTS[name].undo.values()):
        words = command.split()
        assert not {"stop", "restart", "disable", "reboot", "--gpu-reset", "-r"} & set(words), command
        assert "fabricmanager" not in command


def test_a_failure_names_what_was_run_before_and_how_it_is_taken_back(monkeypatch) -> None:
    answers = iter([(0, ""), (1, "denied")])
    monkeypatch.setattr("provision.cli.repair.run_on_target", lambda *_: next(answers))
    report = Report(causes=(finding("cuda.uvm"), finding("gpu.persistence-off")))
    with pytest.raises(ActionFailedError) as caught:
        repair({"gpu001": report}, {}, argparse.Namespace(yes=True), Output(), dict)
    said = f"`{UVM}` on `gpu001` was run before, and `rmmod nvidia_uvm` takes it back"
    assert said in caught.value.because


def still_there() -> dict[str, Report]:
    return {"gpu001": Report(causes=(finding("cuda.uvm"),))}


def gone() -> dict[str, Report]:
    return {"gpu001": Report(causes=(finding("cuda.uvm", "low"), finding("gpu.lost")))}


def refused() -> dict[str, Report]:
    raise MissingDependencyError("nothing answers")


@pytest.mark.parametrize(
    ("look_again", "code", "said"),
    [
        pytest.param(gone, 0, "it is gone now", id="gone"),
        pytest.param(still_there, 6, "it is still there", id="still-there"),
        pytest.param(dict, 6, "whether it is gone could not be read", id="not-reached"),
        pytest.param(refused, 6, "whether it is gone could not be read", id="nothing-reached"),
    ],
)
def test_whether_it_helped_decides(monkeypatch, capsys, look_again, code, said) -> None:
    monkeypatch.setattr("provision.cli.repair.run_on_target", lambda *_: (0, ""))
    report = Report(causes=(finding("cuda.uvm", fix=(f"Load it: `{UVM}`.",)),))
    assert repair({"gpu001": report}, {}, argparse.Namespace(yes=True), Output(), look_again) == code
    assert f"    {said}" in capsys.readouterr().out


def test_a_consequence_that_is_still_there_counts(monkeypatch) -> None:
    monkeypatch.setattr("provision.cli.repair.run_on_target", lambda *_: (0, ""))
    report = Report(causes=(finding("cuda.uvm", fix=(f"Load it: `{UVM}`.",)),))
    below = {"gpu001": Report(causes=(replace(finding("gpu.lost"), consequences=(finding("cuda.uvm"),)),))}
    assert repair({"gpu001": report}, {}, argparse.Namespace(yes=True), Output(), lambda: below) == 6


class TestProgram:
    """Stand-in: nvidia-smi is a script that keeps the mode in a file, or ends well and does nothing."""

    @pytest.fixture
    def smi(self, tmp_path, monkeypatch) -> Path:
        tool = tmp_path / "nvidia-smi"
        (tmp_path / "xml").write_text(machines.hgx_h100()["nvidia-smi-xml"].text.replace(*PERSISTENCE_OFF))
        switch = f"sed -i 's/<persistence_mode>Disabled/<persistence_mode>Enabled/' {tmp_path}/xml"
        tool.write_text(
            f'#!/bin/sh\ncase "$*" in "-q -x"*) cat {tmp_path}/xml ;; "-pm 1") {switch} ;; *) exit 2 ;; esac\n'
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tool

    @staticmethod
    def run(provision) -> dict[str, object]:
        answer = provision("doctor", "local", "--fix", "--yes", "--json")
        causes = answer.document["result"]["targets"][0]["causes"]
        return {cause["diagnosis"]: cause.get("found_again") for cause in causes}

    def test_what_helped_is_gone_when_it_is_looked_for_again(self, provision, smi):
        assert self.run(provision)["gpu.persistence-off"] is False

    def test_a_command_that_ends_well_and_does_not_help_is_told(self, provision, smi):
        smi.write_text(smi.read_text().replace("sed -i", "true"))
        assert self.run(provision)["gpu.persistence-off"] is True
