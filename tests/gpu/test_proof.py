"""``make gpu`` on a stand-in machine: green where all is well, red for each planted fault."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.matrix.load import Matrix
from provision.probe.bundle import read_bundle
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROVE = HERE / "prove.py"
RECORDS = sorted(ROOT.glob("docs/proof/*/captures.tar.gz"))


def load(name: str) -> ModuleType:
    """Import a file of this folder as the suite itself does."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


load("proof_process")
record = load("proof_record")
faults = load("proof_faults")
stand_in = load("stand_in")
needs_namespaces = pytest.mark.skipif(bool(stand_in.reason_not_here()), reason=str(stand_in.reason_not_here()))


def prove(folder: Path, *words: str, machine: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the suite on the stand-in machine."""
    command = [sys.executable, str(HERE / "stand_in.py"), *machine, "--", sys.executable, "-B", str(PROVE)]
    return subprocess.run(
        [*command, "--python", "python3", "--out", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def steps_of(folder: Path) -> dict[str, dict]:
    """Return step → its row in the record."""
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {step["id"]: step for step in document["steps"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The record of one whole run on the stand-in."""
    folder = tmp_path_factory.mktemp("proof") / "record"
    return folder, prove(folder)


@needs_namespaces
def test_every_step_passes_on_a_healthy_stand_in(whole) -> None:
    folder, done = whole
    steps = steps_of(folder)
    not_passed = {name: (step["result"], step["said"]) for name, step in steps.items() if step["result"] != "passed"}
    # The stand-in has no assembler of machine code.
    assert not_passed.keys() <= {"doctor.foreign-code"}, not_passed
    assert done.returncode == 0, done.stderr
    assert len([name for name in steps if name.startswith("doctor.")]) - 1 >= 8


@needs_namespaces
def test_the_record_says_that_it_is_of_a_stand_in_and_holds_no_identifier(whole) -> None:
    folder, _ = whole
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert document["is_stand_in"]
    assert document["is_complete"]
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert "Stand-in: no GPU was there" in page
    assert "GPU-uuid-1" in captures(folder / "captures.tar.gz")["healthy"].output("nvidia-smi-xml").text
    assert len(list(folder.iterdir())) <= 8
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 2**20


@needs_namespaces
@pytest.mark.parametrize(
    ("plant", "steps", "red"),
    [
        ("wrong-sum", "probe,verify.standard", "verify.standard"),
        ("unknown-answer", "probe", "probe.parsers"),
        ("unknown-unit", "probe", "probe.parsers"),
        ("slow-gemm", "bench.quick-1", "bench.quick-1"),
        ("noisy-bench", "bench.quick", "bench.quick-noise"),
        ("ignores-visible", "doctor.hidden-number", "doctor.hidden-number"),
        ("sick", "probe,doctor.healthy", "doctor.healthy"),
    ],
)
def test_a_planted_fault_turns_its_step_and_the_run_red(tmp_path: Path, plant: str, steps: str, red: str) -> None:
    done = prove(tmp_path / "record", "--only", steps, machine=("--plant", plant))
    assert done.returncode == 6, done.stderr
    assert steps_of(tmp_path / "record")[red]["result"] == "failed"
    assert done.stdout.count("failed") == 1


@needs_namespaces
def test_in_a_sandbox_that_hides_all_but_the_gpu_nothing_fails(tmp_path: Path) -> None:
    done = prove(tmp_path / "record", "--only", "probe,verify,doctor,image", machine=("--sandbox",))
    steps = steps_of(tmp_path / "record")
    assert [(name, step["said"]) for name, step in steps.items() if step["result"] == "failed"] == []
    assert done.returncode == 0
    # The gate of images reads the kernel's file, which is not there.
    assert {name for name, step in steps.items() if step["result"] != "passed"} <= {"image.gate", "doctor.foreign-code"}


@needs_namespaces
def test_a_step_that_has_no_time_left_is_not_run_and_no_run_of_nothing_is_green(tmp_path: Path) -> None:
    done = prove(tmp_path / "record", "--minutes", "0", "--only", "image.gate")
    assert steps_of(tmp_path / "record")["image.gate"]["result"] == "not run"
    assert done.returncode == 6


@needs_namespaces
def test_a_record_is_resumed_with_the_steps_that_it_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    assert prove(folder, "--only", "probe.collect,image.gate").returncode == 0
    first = steps_of(folder)
    done = prove(folder, "--only", "probe,verify.standard,image.gate", "--resume")
    assert done.returncode == 0, done.stderr
    assert "probe.collect" not in done.stderr
    found = steps_of(folder)
    assert list(found) == ["probe.collect", "probe.parsers", "verify.standard", "image.gate"]
    assert found["probe.collect"] == first["probe.collect"]
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    document["machine"]["driver"] = "1.0"
    (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")
    other = prove(folder, "--only", "image.gate", "--resume")
    assert other.returncode == 2
    assert "of another machine: its driver differ" in other.stderr


@needs_namespaces
def test_a_python_without_pytorch_that_was_named_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "stand_in.py"), "--", sys.executable, "-B", str(PROVE)]
    words = ["--python", "/no/such/python", "--out", str(tmp_path / "record")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "/no/such/python" in done.stderr
    assert not (tmp_path / "record").exists()


@needs_namespaces
def test_a_run_that_is_ended_by_a_signal_leaves_its_record_and_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    command = [sys.executable, str(HERE / "stand_in.py"), "--", sys.executable, "-B", str(PROVE)]
    words = ["--python", "python3", "--out", str(folder), "--only", "image.gate,bench"]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.stderr.readline() if b"image.gate" not in line else None
        deadline = time.monotonic() + 60
        while not list(folder.glob("bench-*.json")) and time.monotonic() < deadline:
            time.sleep(0.1)
        suite = next(pid for pid in processes_with(str(PROVE)) if "stand_in" not in processes_with(str(PROVE))[pid])
        os.kill(suite, signal.SIGTERM)
        process.wait(60)
    assert "image.gate" in steps_of(folder)
    time.sleep(1)
    assert [line for line in processes_with(str(folder)).values() if "bench" in line] == []


def processes_with(word: str) -> dict[int, str]:
    """Return the processes whose command line has a word."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if word in line:
                found[int(path.parent.name)] = line
    return found


@needs_namespaces
def test_a_record_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    done = prove(tmp_path, "--only", "image.gate")
    assert done.returncode == 2
    assert "--replace" in done.stderr
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == "{}"


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU here")
def test_without_a_gpu_it_ends_with_7_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", str(PROVE), "--out", str(tmp_path / "record")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 7
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "there is no NVIDIA GPU here" in done.stderr
    assert not (tmp_path / "record").exists()


def test_a_step_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", str(PROVE), "--only", "docter"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "docter" in done.stderr


def test_every_fault_has_a_diagnosis_of_the_facts() -> None:
    diagnoses = Matrix().diagnoses
    assert [fault.cause for fault in faults.FAULTS if fault.cause not in diagnoses] == []
    assert len({fault.id for fault in faults.FAULTS}) == len(faults.FAULTS)


def test_a_run_that_is_ended_leaves_what_it_had(tmp_path: Path) -> None:
    planned = {"one": "one", "two": "two"}
    kept = record.Record(tmp_path / "record", {"gpu": "NVIDIA H100"}, "2026-11-22", is_stand_in=True, planned=planned)
    kept.add(record.Step(id="one", title="one", result="passed", said="it works"))
    document = json.loads((tmp_path / "record" / "report.json").read_text(encoding="utf-8"))
    assert [step["id"] for step in document["steps"]] == ["one"]
    assert not document["is_complete"]
    assert "Not every step was run" in (tmp_path / "record" / "report.md").read_text(encoding="utf-8")


def test_secrets_and_identifiers_do_not_reach_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "trainer-17")
    machine = {"gpu": "NVIDIA H100", "name": "trainer-17", "cudnn": "9.19.0.56"}
    kept = record.Record(tmp_path / "record", machine, "2026-11-22", is_stand_in=True)
    said = "token=hf_abcdefghijklmnopqrstuvwx on 10.20.30.40 with GPU-01234567-89ab-cdef-0123-456789abcdef"
    kept.add(record.Step(id="verify.quick", title="verify", result="failed", said=said))
    text = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "record").iterdir())
    for secret in ("hf_abc", "10.20.30.40", "89ab-cdef", "trainer-17"):
        assert secret not in text
    assert "9.19.0.56" in text


def captures(path: Path) -> dict[str, Snapshot]:
    """Return step → what the probes printed there."""
    return {host.target: host for host in read_bundle(path)}


def judge_captures(path: Path) -> None:
    """Hold parsers and doctor against what a machine printed."""
    matrix = Matrix()
    causes = {fault.id: fault.cause for fault in faults.FAULTS}
    steps = steps_of(path.parent)
    found = captures(path)
    assert found
    for name, host in found.items():
        for field, value in vars(Snapshot).items():
            if isinstance(value, property):
                try:
                    getattr(host, field)
                except Unreadable as error:
                    assert error.status != "unreadable", f"{name}: {field}: {error.reason}"
        step = steps[f"doctor.{name}"]
        if step["result"] != "passed":
            continue
        text = step["details"].get("program", "")
        report = diagnose(Case(matrix, host, [("program.log", text)] if text else []))
        named = [finding.diagnosis.id for finding in report.causes]
        assert named[:1] == ([] if name == "healthy" else [causes[name]]), f"{path}: {name}"


@needs_namespaces
def test_captures_of_the_stand_in_are_judged_as_on_the_machine(whole) -> None:
    judge_captures(whole[0] / "captures.tar.gz")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_captures_of_real_machines_are_judged_as_there(path: Path) -> None:
    judge_captures(path)
