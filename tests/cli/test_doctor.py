"""`provision doctor` as people run it, over bundles of stand-in machines and over stand-in tools on PATH."""

from __future__ import annotations

import argparse
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import machines
import pytest

from provision.cli.output import Output as CommandOutput
from provision.cli.repair import plan_steps, repair
from provision.doctor.engine import Finding, Report
from provision.doctor.sign import Sign
from provision.errors import ActionFailedError
from provision.matrix.load import Matrix
from provision.matrix.model import Diagnosis
from provision.probe.bundle import write_bundle
from provision.probe.output import Output
from provision.records import replace

Machine = Mapping[str, Output]

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105\n"
ERROR_804 = "RuntimeError: Error 804: forward compatibility was attempted on non supported HW\n"
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
UVM = "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment\n"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Path]:
    """Write machines, target → what was collected there, into one file."""

    def write(name: str = "b.tar.gz", **hosts: Machine) -> Path:
        path = tmp_path / name
        write_bundle(path, {target: machines.snapshot(outputs, target) for target, outputs in hosts.items()})
        return path

    return write


def mismatched() -> Machine:
    """Return a machine whose driver was upgraded under a running kernel module, and a program that ran into it."""
    outputs = machines.hgx_h100()
    outputs = machines.change(outputs, "module-nvidia", "loaded_version=580.105.08", "loaded_version=580.95.05")
    outputs = machines.change(outputs, "driver-version", "580.105.08", "580.95.05")
    outputs = machines.fail(outputs, "nvidia-smi-xml", 18, text=MISMATCH)
    return machines.fail(outputs, "torch", 1, error=ERROR_804)


def causes(answer, target: str = "gpu001") -> list[dict]:
    (row,) = [row for row in answer.document["result"]["targets"] if row["target"] == target]
    return row["causes"]


class TestTarget:
    def test_a_cause_stands_first_with_what_it_explains_beneath(self, provision, bundle):
        path = bundle(gpu001=mismatched())
        answer = provision("doctor", "--from", path, "--json")
        assert answer.code == 6
        first = causes(answer)[0]
        assert first["diagnosis"] == "driver.mismatch"
        assert "cuda.forward-compatibility" in [row["diagnosis"] for row in first["explains"]]
        assert "cuda.forward-compatibility" not in [row["diagnosis"] for row in causes(answer)]
        out = provision("doctor", "--from", path).out
        assert out.startswith("gpu001: ")
        assert "1. The driver's libraries and the loaded kernel module" in out
        assert out.index("driver.mismatch: critical, ") < out.index("explains  ") < out.index("cuda.forward-compat")
        for label in ("   seen      the kernel runs 580.95.05", "   expected  ", "   cause     ", "   fix       1. "):
            assert label in out

    def test_a_healthy_machine_ends_with_0(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(gpu001=machines.hgx_h100()))
        assert answer.code == 0
        assert answer.out == "gpu001: no known cause of a failure was found\n"

    def test_a_machine_without_a_gpu_ends_with_7_and_says_so(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(web=machines.cpu_only()))
        assert answer.code == 7
        assert answer.out.startswith("web: no NVIDIA GPU is visible")
        assert "warning: no NVIDIA GPU is visible on web" in answer.err

    def test_a_target_that_cannot_be_reached_ends_with_7(self, provision):
        answer = provision("doctor", "ssh://no-such-host.invalid", "--json")
        assert answer.code == 7
        assert [row["target"] for row in answer.document["result"]["unreachable"]] == ["ssh://no-such-host.invalid"]
        assert answer.document["result"]["ok"] is False

    def test_what_was_not_seen_is_told(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(web=machines.gpu_container()))
        assert answer.code == 0
        assert "not seen:\n   not on the target: " in answer.out

    def test_several_machines_are_told_apart(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(gpu001=mismatched(), gpu002=machines.hgx_h100()))
        assert answer.code == 6
        assert "gpu002: no known cause" in answer.out

    def test_a_message_helps_what_the_machine_shows(self, provision, bundle, tmp_path):
        (tmp_path / "error.log").write_text(NO_IMAGE)
        answer = provision("doctor", "--from", bundle(gpu001=machines.hgx_h100()), "--text", tmp_path / "error.log")
        assert answer.code == 6
        assert "cuda.no-kernel-image" in answer.out

    def test_the_document_is_whole(self, provision, bundle):
        document = provision("doctor", "--from", bundle(gpu001=mismatched()), "--json").document
        assert (document["schema_version"], document["command"]) == (1, "doctor")
        assert document["result"]["ok"] is False
        (row,) = document["result"]["targets"]
        assert row.keys() == {"target", "causes", "notes", "unseen", "broken"}
        assert row["broken"] == []
        fields = {"diagnosis", "title", "layer", "severity", "confidence", "seen", "cause", "fix", "source", "explains"}
        assert fields <= row["causes"][0].keys()
        assert row["unseen"][0].keys() == {"probe", "reason"}

    @pytest.mark.parametrize("name", sorted(machines.MACHINES))
    def test_no_rule_breaks_on_any_machine(self, provision, bundle, name):
        document = provision("doctor", "--from", bundle(gpu001=machines.MACHINES[name]()), "--json").document
        assert [row["broken"] for row in document["result"]["targets"]] == [[]]

    def test_verbose_names_the_sources(self, provision, bundle):
        path = bundle(gpu001=mismatched())
        assert "   source    " not in provision("doctor", "--from", path).out
        assert "   source    " in provision("doctor", "--from", path, "-v").out


class TestText:
    @pytest.fixture
    def log(self, tmp_path) -> Callable[[str], Path]:
        def write(text: str) -> Path:
            (tmp_path / "error.log").write_text(text)
            return tmp_path / "error.log"

        return write

    def test_a_file_is_explained_without_any_target(self, provision, log):
        answer = provision("doctor", "--text", log(NO_IMAGE))
        assert answer.code == 0
        assert answer.out.startswith("error.log: 1 cause\n")
        assert '"RuntimeError: CUDA error: no kernel image is available' in answer.out

    def test_an_error_of_nccl_without_a_reason_leads_to_the_log_that_has_it(self, provision, log):
        answer = provision("doctor", "--text", log("NCCL error: the rings frobbed"))
        assert answer.code == 4
        assert "hint: run it with `NCCL_DEBUG=INFO`" in answer.err
        assert "NCCL_DEBUG" not in provision("doctor", "--text", log("error: the rings frobbed")).err

    def test_an_empty_file_is_called_empty(self, provision, log):
        answer = provision("doctor", "--text", log(" \n"))
        assert answer.code == 4
        assert "because it is empty" in answer.err

    def test_the_standard_input_is_read(self, program):
        answer = program("doctor", "--text", "-", stdin=NO_IMAGE)
        assert answer.code == 0
        assert answer.out.startswith("the standard input: 1 cause\n")

    def test_several_errors_are_told_apart_and_the_deeper_one_is_first(self, provision, log):
        fallen = "[ 12.5] NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n"
        text = NO_IMAGE + "epoch 3 of 9\n" * 500 + fallen
        found = provision("doctor", "--text", log(text), "--json").document["result"]["causes"]
        names = [row["diagnosis"] for row in found]
        assert names.index("xid.79") < names.index("cuda.no-kernel-image")

    @pytest.mark.parametrize(
        "text", ["all is well\n", "", "\n\n", "\x00\x01"], ids=["words", "empty", "lines", "bytes"]
    )
    def test_an_unknown_text_ends_with_4_and_the_way_out(self, provision, log, text):
        answer = provision("doctor", "--text", log(text))
        assert answer.code == 4
        assert "error: nothing in error.log is a known sign of a failure" in answer.err
        assert "hint: let `provision doctor ssh://host --text error.log` look at the machine as well" in answer.err
        assert answer.out == ""

    def test_a_text_commands_no_terminal(self, provision, log):
        answer = provision("doctor", "--text", log(ESCAPE + NO_IMAGE.strip() + ESCAPE + "\u202e\n"), "-v")
        assert answer.code == 0
        for character in ("\x1b", "\x07", "\u202e"):
            assert character not in answer.out + answer.err

    def test_an_xid_is_explained(self, provision):
        answer = provision("doctor", "--xid", "79")
        assert answer.code == 0
        assert answer.out.startswith("Xid 79: ")
        assert "xid.79" in answer.out
        result = provision("doctor", "--xid", "79", "--json").document["result"]
        assert result["xid"]["code"] == 79
        assert result["xid"]["sources"]
        assert result["causes"][0]["diagnosis"] == "xid.79"

    @pytest.mark.parametrize("code", [9999, 0], ids=str)
    def test_an_unknown_xid_ends_with_4(self, provision, code):
        assert code not in Matrix().xids
        answer = provision("doctor", "--xid", code)
        assert answer.code == 4
        assert f"error: Xid {code} is not in the catalogue" in answer.err

    def test_every_xid_of_the_catalogue_is_explained(self, provision):
        for code in Matrix().xids:
            assert provision("doctor", "--xid", code).code == 0


class TestUsage:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            pytest.param(["--yes"], "--yes without --fix", id="yes"),
            pytest.param(["--mask"], "--mask without --bundle", id="mask"),
            pytest.param(["--xid", "seventy"], "--xid `seventy` is not a whole number", id="xid"),
            pytest.param(["--xid", "-1"], "is not from 0 to 9999", id="negative"),
            pytest.param(["--xid", "123456"], "is not from 0 to 9999", id="large"),
            pytest.param(["--text", "/none/x"], "cannot be read", id="no-file"),
            pytest.param(["--xid", "79", "--fix"], "--fix needs a target", id="fix-xid"),
            pytest.param(["--from", "/none/x.tar.gz"], "/none/x.tar.gz", id="no-bundle"),
        ],
    )
    def test_wrong_usage_ends_with_2(self, provision, words, said):
        answer = provision("doctor", *words)
        assert answer.code == 2
        assert said in answer.err

    def test_a_bundle_is_not_repaired(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(gpu001=mismatched()), "--fix")
        assert answer.code == 2
        assert "a bundle is a record of one" in answer.err


class TestScreen:
    def test_color(self, provision, bundle, monkeypatch):
        words = ("doctor", "--from", bundle(gpu001=mismatched()))
        assert "\x1b[1;31m" in provision(*words, "--color", "always").out
        assert "\x1b" not in provision(*words).out
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in provision(*words).out

    def test_commands_stay_on_one_line(self, provision, bundle):
        out = provision("doctor", "--from", bundle(gpu001=mismatched())).out
        assert max(map(len, out.splitlines())) <= 100
        assert all(line.count("`") % 2 == 0 for line in out.splitlines())

    def test_what_a_target_says_commands_no_terminal(self, provision, bundle):
        hostile = {
            name: replace(row, text=ESCAPE + row.text, error=ESCAPE + row.error) for name, row in mismatched().items()
        }
        hostile = machines.fail(hostile, "torch", 1, error=f"{ESCAPE}{ERROR_804}{ESCAPE}")
        path = bundle(gpu001=hostile)
        for flags in ((), ("-v",), ("--json",)):
            answer = provision("doctor", "--from", path, *flags)
            assert "\x1b" not in answer.out + answer.err
            assert "\x07" not in answer.out + answer.err


class TestBundle:
    @pytest.fixture
    def secret(self) -> Machine:
        outputs = machines.hgx_h100()
        token = "HF_TOKEN=hf_" + "a1B2" * 9
        return machines.change(outputs, "environment", "PATH=", f"{token}\nPATH=")

    def test_it_holds_what_was_said_and_is_read_again(self, provision, bundle, tmp_path):
        source, path = bundle(gpu001=mismatched()), tmp_path / "support.tar.gz"
        first = provision("doctor", "--from", source, "--bundle", path, "--json")
        assert first.code == 6
        with tarfile.open(path) as archive:
            (name,) = [name for name in archive.getnames() if name.endswith("doctor.json")]
            report = json.load(archive.extractfile(name))
        assert report == first.document["result"]["targets"]
        again = provision("doctor", "--from", path, "--json")
        assert again.document["result"]["targets"] == first.document["result"]["targets"]

    def test_secrets_stay_behind(self, provision, bundle, tmp_path, secret):
        path = tmp_path / "support.tar.gz"
        provision("doctor", "--from", bundle(gpu001=secret), "--bundle", path)
        assert "hf_a1B2" not in _whole(path)
        assert "<redacted>" in _whole(path)

    def test_masked_it_names_no_machine(self, provision, bundle, tmp_path):
        plain, masked = tmp_path / "plain.tar.gz", tmp_path / "masked.tar.gz"
        outputs = machines.kernel_line(mismatched(), "eth0: address 10.20.0.17 on trainer-node-7.example.org")
        source = bundle(**{"trainer-node-7.example.org": outputs})
        provision("doctor", "--from", source, "--bundle", plain)
        provision("doctor", "--from", source, "--bundle", masked, "--mask")
        for word in ("10.20.0.17", "trainer-node-7"):
            assert word in _whole(plain)
            assert word not in _whole(masked)
        answer = provision("doctor", "--from", masked, "--json")
        assert [row["causes"][0]["diagnosis"] for row in answer.document["result"]["targets"]] == ["driver.mismatch"]

    def test_a_dry_run_writes_none(self, provision, bundle, tmp_path):
        answer = provision("doctor", "--from", bundle(a=machines.hgx_h100()), "--bundle", tmp_path / "x", "--dry-run")
        assert answer.code == 0
        assert f"would write {tmp_path / 'x'}" in answer.err
        assert not (tmp_path / "x").exists()

    def test_one_that_cannot_be_written_ends_with_5(self, provision, bundle):
        answer = provision("doctor", "--from", bundle(a=machines.hgx_h100()), "--bundle", "/proc/none/b.tar.gz")
        assert answer.code == 5
        assert "cannot write /proc/none/b.tar.gz" in answer.err


def _whole(path: Path) -> str:
    with tarfile.open(path) as archive:
        held = [archive.extractfile(member).read() for member in archive.getmembers() if member.isfile()]
        return "\n".join([*archive.getnames(), *(content.decode(errors="replace") for content in held)])


class TestRepair:
    """Stand-in: nvidia-smi, systemctl and nvidia-modprobe are scripts that write down how they were called."""

    COMMAND, UNDO = next(iter(Matrix().diagnoses["gpu.persistence-off"].undo.items()))

    @pytest.fixture
    def tools(self, tmp_path, monkeypatch) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        outputs = machines.hgx_h100()
        text = outputs["nvidia-smi-xml"].text
        (folder / "xml").write_text(text.replace("<persistence_mode>Enabled", "<persistence_mode>Disabled"))
        (folder / "after").write_text(text)
        record = f"""said="$(basename "$0") $*"; echo "$said" >>{folder}/calls
            if [ -e {folder}/denied ]; then printf 'Access \\033[31mdenied\\n' >&2; exit 4; fi
            if [ -e {folder}/after ]; then mv {folder}/after {folder}/xml; fi"""
        smi = f'case "$*" in "-q -x"*) cat {folder}/xml ;; -pm*) {record} ;; *) exit 2 ;; esac'
        for name, body in (("nvidia-smi", smi), ("nvidia-modprobe", record), ("systemctl", record)):
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        (folder / "calls").write_text("")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    @staticmethod
    def changes(tools: Path) -> list[str]:
        """Return the calls that were no questions."""
        calls = (tools / "calls").read_text().splitlines()
        return [call for call in calls if "is-enabled" not in call and " show " not in call]

    @pytest.fixture
    def words(self, tmp_path) -> tuple[object, ...]:
        (tmp_path / "error.log").write_text(UVM)
        return ("doctor", "local", "--text", tmp_path / "error.log", "--fix")

    def test_without_consent_it_is_a_plan_and_nothing_is_run(self, provision, tools, words):
        answer = provision(*words)
        assert answer.code == 6
        (line,) = [line for line in answer.out.splitlines() if f"`{self.COMMAND}`" in line]
        assert line.startswith("    run     1. ")
        assert f"`{self.UNDO}` takes it back" in answer.out
        assert "    person  2. " in answer.out
        assert "`--fix --yes` runs what can be taken back" in answer.out
        assert self.changes(tools) == []

    def test_with_consent_only_what_is_proved_and_reversible_is_run(self, provision, tools, words):
        answer = provision(*words, "--yes")
        # The message alone proves nothing of the machine, and steps for a person are left.
        assert self.changes(tools) == [self.COMMAND]
        assert answer.code == 6
        assert "cuda.uvm" in answer.out
        assert "    done    1. " in answer.out
        assert "    person  2. " in answer.out
        assert f"local: {self.COMMAND}" in answer.err

    @pytest.mark.parametrize("helps", [True, False], ids=["helps", "in-vain"])
    def test_whether_it_helped_is_looked_up(self, provision, tools, words, helps):
        if not helps:
            (tools / "after").unlink()
        result = provision(*words, "--yes", "--json").document["result"]
        (cause,) = [row for row in result["targets"][0]["causes"] if row["diagnosis"] == "gpu.persistence-off"]
        assert cause["found_again"] is not helps

    def test_a_dry_run_runs_nothing(self, provision, tools, words):
        answer = provision(*words, "--yes", "--dry-run")
        assert self.changes(tools) == []
        assert "    run     1. " in answer.out

    def test_a_step_that_fails_ends_with_5(self, provision, tools, words):
        (tools / "denied").touch()
        answer = provision(*words, "--yes")
        assert answer.code == 5
        assert f"error: `{self.COMMAND}` failed on local" in answer.err
        assert "it ended with 4: Access denied" in answer.err
        assert "\x1b" not in answer.err

    def test_the_plan_is_data_too(self, provision, tools, words):
        result = provision(*words, "--json").document["result"]
        (cause,) = [row for row in result["targets"][0]["causes"] if row["diagnosis"] == "gpu.persistence-off"]
        assert (cause["steps"][0]["kind"], cause["steps"][1]["kind"]) == ("run", "person")
        assert (cause["steps"][0]["run"], cause["steps"][0]["undo"]) == (self.COMMAND, self.UNDO)
        assert result["ok"] is False

    def test_a_target_that_cannot_be_reached_is_no_target_without_faults(self, provision):
        answer = provision("doctor", "ssh://no-such-host.invalid", "--fix", "--yes")
        assert answer.code == 7
        assert "no-such-host.invalid" in answer.out


class TestSteps:
    FACTS = MappingProxyType(Matrix().diagnoses)

    @staticmethod
    def finding(row: Diagnosis, confidence: str = "high") -> Finding:
        return Finding(diagnosis=row, sign=Sign(confidence=confidence, seen=("x",)))

    def test_a_step_that_only_looks_does_not_stop_the_run(self):
        steps = plan_steps(self.finding(self.FACTS["container.no-cgroups"]))
        assert [step["kind"] for step in steps] == ["look", "run", "person"]

    @pytest.mark.parametrize("confidence", ["low", "medium"])
    def test_what_is_not_proved_is_left_to_a_person(self, confidence):
        steps = plan_steps(self.finding(self.FACTS["container.no-cgroups"], confidence))
        assert "run" not in [step["kind"] for step in steps]

    def test_a_step_with_a_second_command_is_left_to_a_person(self):
        command = next(iter(self.FACTS["cuda.uvm"].undo))
        row = replace(self.FACTS["cuda.uvm"], fix=(f"Do `{command}` and `reboot`.",))
        assert [step["kind"] for step in plan_steps(self.finding(row))] == ["person"]

    def run(self, monkeypatch, *rows: Diagnosis, codes=(0, 0), left=(), **more) -> tuple[int, list[str]]:
        """Repair one target with the causes given, and return the exit code and what was run."""
        ran: list[str] = []

        def answer(_: object, __: str, command: str, ___: float) -> tuple[int, str]:
            ran.append(command)
            return codes[len(ran) - 1], "no"

        monkeypatch.setattr("provision.cli.repair.run_on_target", answer)
        before = {"gpu001": Report(causes=tuple(map(self.finding, rows)))}
        after = {"gpu001": Report(causes=tuple(map(self.finding, left)))}
        given = {"unreachable": {}, "yes": True, **more}
        options = argparse.Namespace(yes=given["yes"])
        return repair(before, given["unreachable"], options, CommandOutput(), lambda: after), ran

    @pytest.fixture
    def uvm(self) -> Diagnosis:
        row = self.FACTS["cuda.uvm"]
        return replace(row, fix=(f"Load it: `{next(iter(row.undo))}`.",))

    def test_what_follows_a_step_for_a_person_is_not_run_and_the_next_cause_is(self, monkeypatch, capsys, uvm):
        second = self.FACTS["container.no-cgroups"]
        code, ran = self.run(monkeypatch, replace(uvm, fix=("Stop the programs.", *uvm.fix)), second)
        assert code == 6
        assert ran == [next(iter(second.undo))]
        assert "    run     2. Load it" in capsys.readouterr().out

    def test_the_exit_code_says_whether_something_is_left(self, monkeypatch, uvm):
        assert self.run(monkeypatch, uvm)[0] == 0
        assert self.run(monkeypatch, uvm, left=[uvm])[0] == 6
        assert self.run(monkeypatch, uvm, yes=False) == (6, [])
        assert self.run(monkeypatch, uvm, unreachable={"gpu002": "it is down"})[0] == 7

    def test_a_failure_names_what_was_run_before_and_what_takes_it_back(self, monkeypatch, uvm):
        second = self.FACTS["container.no-cgroups"]
        with pytest.raises(ActionFailedError) as caught:
            self.run(monkeypatch, uvm, second, codes=(0, 3))
        (command, undo) = next(iter(uvm.undo.items()))
        assert caught.value.because[0] == "it ended with 3: no"
        assert caught.value.because[1] == f"`{command}` on `gpu001` was run before, and `{undo}` takes it back"

    def test_what_can_be_run_is_a_step_of_its_cause_and_neither_reboots_nor_resets(self):
        rows = [row for row in self.FACTS.values() if row.undo or row.looks]
        assert rows
        for row in rows:
            for command, undo in row.undo.items():
                assert command != undo
                assert not {*f"{command} {undo}".split()} & {"reboot", "--gpu-reset", "remove", "purge", "rm", "-pl"}
            commands = [command for step in row.fix for command in step.split("`")[1::2]]
            assert set(row.looks) <= set(commands)
            assert not set(row.looks) & set(row.undo)


def test_there_is_nothing_to_repair_where_there_is_no_gpu(provision, monkeypatch) -> None:
    from provision.probe.collect import Collection

    host = machines.snapshot(machines.cpu_only(), "local")
    collection = Collection(snapshots={"local": host}, unreachable={})
    monkeypatch.setattr("provision.cli.commands.doctor.collect_from", lambda *_: collection)
    answer = provision("doctor", "--fix")
    assert (answer.code, "nothing to repair" in answer.err) == (7, True)
