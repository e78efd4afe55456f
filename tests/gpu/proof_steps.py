"""The steps of ``make gpu``: each runs a part of provision on the GPU and says what that proved."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

from proof_faults import FAULTS, Fault, Made, NotHereError, Scene
from proof_process import run
from proof_record import NOT_RUN, Outcome, Record, Step, failed, passed, skipped

from provision.bench.compare import run_noise
from provision.bench.results import Figure, Results, read_results
from provision.errors import IncompatibleError, ProvisionError, UnknownError
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus as find_models
from provision.predict import PredictRequest, estimate
from provision.probe.bundle import read_bundle, write_bundle
from provision.probe.catalogue import PROBES, probes_of
from provision.probe.output import Unreadable
from provision.probe.redact import Mask, redact
from provision.probe.snapshot import Snapshot
from provision.records import replace

__all__ = ["STEPS", "Proof", "StepPlan", "find_gpus", "run_steps"]

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
QUICK_SECONDS, STANDARD_SECONDS = "0.5", "0.3"
PROBE_SECONDS_MAX = 300
"""Diagnostics that may take longer than this are left out, and named."""
READ_ALWAYS = ("smi", "libraries", "environment", "uname", "limits")
READ_WITH_TORCH = ("python", "torch", "cuda_work", "torch_work")
PROVED = {
    "quick": ("gpu.smi.ok", "gpu.count", "gpu.driver.min_for_cuda"),
    "standard": ("cuda.smoke",),
    "deep": ("cuda.smoke",),
}
PROVED_WITH_TORCH = {
    "quick": ("fw.torch.import", "fw.torch.cuda", "fw.torch.arch"),
    "standard": ("fw.torch.matmul", "fw.torch.cudnn", "perf.gemm", "perf.h2d"),
    "deep": ("fw.torch.matmul", "fw.torch.cudnn", "perf.gemm", "perf.h2d"),
}
"""Level → checks that must pass, or say that no fact tells what a healthy GPU reaches; the others must not fail."""
DEVICES = {"jax": "fw.jax.devices", "tensorflow": "fw.tf.devices"}
LIGHT = ("low",)
"""Severities of a failed check that is a remark."""
SETTINGS = ("gpu.persistence", "ctr.", "env.packages", "host.", "mon.", "net.")
"""Beginnings of checks on how a machine is set up: what fails there is told, and is no fault of the GPU's."""
FAULT_PROBES = tuple(name for name in probes_of("quick") if name not in ("tensorflow", "jax", "initramfs"))
"""What is looked at under a fault: no fault is one of a framework beside PyTorch, and each import takes its time."""
TOLERANCE_PERCENT = "15"
"""By how much a case may differ between two runs minutes apart before the comparison counts it as a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command of provision said: exit code, the result or error of its JSON document, the end of its errors."""

    code: int
    result: Mapping[str, Any]
    said: str


@dataclass(kw_only=True)
class Proof:
    """What the steps share.

    ``gpus`` are names, in the order of nvidia-smi. ``python`` is the program that was asked for as the one with
    PyTorch; :attr:`framework` the one that has it. ``scratch`` is a folder that is removed at the end.
    """

    gpus: tuple[str, ...]
    python: str | None
    folder: Path
    scratch: Path
    minutes: float
    matrix: Matrix = field(default_factory=Matrix)
    captures: dict[str, Snapshot] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    mask: Mask = field(default_factory=lambda: Mask([platform.node()]))
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        """How long steps may still take."""
        return self.minutes * 60 - (time.monotonic() - self.began)

    @cached_property
    def framework(self) -> str | None:
        """A Python with PyTorch."""
        candidates = [self.python] if self.python else [sys.executable, shutil.which("python3"), shutil.which("python")]
        for candidate in candidates:
            if candidate and self._ask(candidate, "import torch; print(torch.__version__)"):
                return candidate
        return None

    @cached_property
    def torch(self) -> str | None:
        """The version of PyTorch, with its local part."""
        return self._ask(self.framework, "import torch; print(torch.__version__)") if self.framework else None

    @cached_property
    def framework_python(self) -> str | None:
        """Major and minor version of that Python."""
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        return self._ask(self.framework, code) if self.framework else None

    @cached_property
    def driver(self) -> str | None:
        """The version of the driver, as nvidia-smi says it."""
        words = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        return next(iter(lines_of(*words)), None)

    @cached_property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability of the first GPU, by the facts."""
        with suppress(ProvisionError):
            major, _, minor = find_models(self.matrix, self.gpus[0])[0].compute_capability.partition(".")
            return int(major), int(minor)
        return None

    def _ask(self, python: str, code: str) -> str | None:
        try:
            done = run([python, "-c", code], 120)
        except OSError:
            return None
        lines = done.out.strip().splitlines()
        return lines[-1] if done.code == 0 and lines else None

    def words_for_python(self) -> list[str]:
        """Return the flag that names the Python of the frameworks."""
        return ["--python", self.framework] if self.framework else []

    def resume(self, steps: Sequence[Step]) -> None:
        """Take over what steps of an earlier run left in the folder for those that follow."""
        bundle = self.folder / "captures.tar.gz"
        if bundle.exists():
            self.captures = {host.target: host for host in read_bundle(bundle)}
        if "healthy" in self.captures:
            write_bundle(self.healthy, [self.captures["healthy"]], facts_date=str(self.matrix.dated))
        self.results = {path.name: read_results(path) for path in self.folder.glob("bench-*.json")}
        for step in steps:
            self.forecasts += step.details.get("forecasts", ())

    def provision(self, *words: str, made: Made | None = None, seconds: float = 300.0) -> Answer:
        """Run a command of provision and return what it said.

        Args:
            words: The command and its flags.
            made: The fault it runs under.
            seconds: After this it is interrupted, as by a person; what it had written by then stays.
        """
        made = made or Made()
        command = [*made.prefix, sys.executable, "-B", "-m", "provision", *words, "--json", "--color", "never"]
        limit = max(10.0, min(seconds, self.seconds_left + 30))
        done = run(command, limit, made.environment, ROOT)
        document: dict[str, Any] = {}
        with suppress(ValueError):
            document = json.loads(done.out)
        error = document.get("error") or {}
        said = error.get("message") or "; ".join(done.err.strip().splitlines()[-3:])
        because = "; ".join(error.get("because") or ())
        result = document.get("result") or {}
        return Answer(code=done.code, result=result, said=f"{said}: {because}" if because else said)

    def keep(self, name: str, bundle: Path) -> None:
        """Keep what a bundle holds as the capture of a step."""
        for host in read_bundle(bundle):
            self.captures[name] = Snapshot(name, host.outputs, collected=host.collected, version=host.version)
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = [self._hide(host) for host in self.captures.values()]
        write_bundle(self.folder / "captures.tar.gz", hidden, facts_date=str(self.matrix.dated))

    def _hide(self, host: Snapshot) -> Snapshot:
        """Return a capture without what identifies the machine; its name, which is a step's, stays."""
        outputs = {
            probe: replace(output, text=self.mask(output.text, probe), error=self.mask(output.error, probe))
            for probe, output in host.outputs.items()
        }
        return Snapshot(host.target, outputs, collected=host.collected, version=host.version)

    @property
    def healthy(self) -> Path:
        """The bundle of the healthy machine."""
        return self.scratch / "healthy.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step: its id, what it is for people, and what runs it."""

    id: str
    title: str
    run: Callable[[Proof], Outcome]


def lines_of(*words: str) -> list[str]:
    """Return the lines that a program prints, none where it is not there or fails."""
    try:
        done = run(words, 60)
    except OSError:
        return []
    return done.out.strip().splitlines() if done.code == 0 else []


def find_gpus() -> tuple[list[str], str]:
    """Return the names of the GPUs here, or why none is seen.

    A GPU whose driver does not answer counts too, under no name: that is a fault to report, and not an absence.
    """
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    # The parts that MIG makes of a GPU are listed too, indented.
    found = (re.match(r"GPU \d+: (.+?) \(UUID", line) for line in lines_of("nvidia-smi", "-L"))
    names = [match[1] for match in found if match]
    if names:
        return names, ""
    marks = list(Path("/proc/driver/nvidia/gpus").glob("*")) or list(Path("/dev").glob("nvidia[0-9]*"))
    if marks:
        return ["unknown"] * len(marks), ""
    has_tool = shutil.which("nvidia-smi") is not None
    return [], "nvidia-smi lists none" if has_tool else "neither nvidia-smi nor a device node"


def run_steps(proof: Proof, only: Sequence[str]) -> Record:
    """Run the steps that were chosen, one after the other, and return their record."""
    machine = {
        "gpu": proof.gpus[0],
        "gpus": len(proof.gpus),
        "driver": proof.driver,
        "torch": proof.torch,
        "python": proof.framework_python,
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
    }
    is_stand_in = os.environ.get("PROVISION_STAND_IN") == "1"
    planned = {plan.id: plan.title for plan in STEPS}
    record = Record(proof.folder, machine, str(proof.matrix.dated), is_stand_in=is_stand_in, planned=planned)
    record.resume()
    proof.resume(record.steps)
    record.write()
    done = {step.id for step in record.steps}
    for plan in STEPS:
        if plan.id in done or (only and not plan.id.startswith(tuple(only))):
            continue
        print(f"{plan.id}: ", end="", file=sys.stderr, flush=True)
        began = time.monotonic()
        outcome = _run(plan, proof)
        seconds = time.monotonic() - began
        print(f"{outcome.result}: {outcome.said}", file=sys.stderr, flush=True)
        record.add(
            Step(
                id=plan.id,
                title=plan.title,
                result=outcome.result,
                said=outcome.said,
                seconds=seconds,
                details=outcome.details,
            )
        )
    return record


def _run(plan: StepPlan, proof: Proof) -> Outcome:
    if proof.seconds_left <= 0:
        return Outcome(result=NOT_RUN, said=f"the {proof.minutes:g} minutes were over")
    try:
        return plan.run(proof)
    except NotHereError as reason:
        return skipped(str(reason))
    except (ProvisionError, Unreadable) as error:
        return failed(str(error))
    except Exception as error:  # a step that breaks must not take the record of the others with it
        return failed(f"the step broke: {type(error).__name__}: {error}")


# probe


def collect(proof: Proof) -> Outcome:
    """Look at the machine with every probe, and keep what was printed."""
    chosen = [name for name in probes_of("deep") if PROBES[name].seconds <= PROBE_SECONDS_MAX]
    words = ["probe", "--probes", ",".join(chosen), "--bundle", str(proof.healthy), *proof.words_for_python()]
    answer = proof.provision(*words, seconds=proof.seconds_left)
    if not proof.healthy.exists():
        return failed(f"nothing was collected: {answer.said}")
    proof.keep("healthy", proof.healthy)
    outputs = proof.captures["healthy"].outputs
    counts: dict[str, int] = {}
    for output in outputs.values():
        counts[output.status] = counts.get(output.status, 0) + 1
    late = [name for name, output in outputs.items() if output.status in ("hung", "cut", "lost")]
    slowest = sorted(outputs.values(), key=lambda output: -output.seconds)[:5]
    details = {
        "statuses": counts,
        "left_out": [name for name in probes_of("deep") if name not in chosen],
        "seconds": {output.probe: output.seconds for output in slowest},
    }
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    if late:
        return failed(f"{', '.join(late)} did not come whole; {said}", **details)
    return passed(f"{len(outputs)} probes: {said}", **details)


def read_captures(proof: Proof) -> Outcome:
    """Let every parser read what the machine printed."""
    host = _healthy(proof)
    parsed, absent, unread = [], {}, {}
    for name in readings():
        try:
            getattr(host, name)
        except Unreadable as error:
            (unread if error.status == "unreadable" else absent)[name] = error.reason
        else:
            parsed.append(name)
    with suppress(Unreadable):
        unread |= {f"smi.{field}": said for gpu in host.smi.gpus for field, said in gpu.unread}
    needed = [*READ_ALWAYS, *(READ_WITH_TORCH if proof.framework else ())]
    missing = [name for name in needed if name in absent]
    details = {"read": parsed, "absent": absent, "unreadable": unread}
    if unread or missing:
        said = [f"{name}: {reason}" for name, reason in unread.items()]
        said += [f"{name} is missing: {absent[name]}" for name in missing]
        return failed("; ".join(said), **details)
    return passed(f"{len(parsed)} answers read, {len(absent)} not given by this machine", **details)


def readings() -> Iterator[str]:
    """Yield the names of what a snapshot can be asked."""
    for name, value in vars(Snapshot).items():
        if isinstance(value, property) and not name.startswith("_"):
            yield name


def _healthy(proof: Proof) -> Snapshot:
    if "healthy" not in proof.captures:
        raise NotHereError("the step probe.collect brought nothing")
    return proof.captures["healthy"]


# verify


def verify(level: str, proof: Proof) -> Outcome:
    """Judge the machine at one level."""
    frameworks = _frameworks(_healthy(proof))
    expect = proof.scratch / "expect.toml"
    lines = [f"gpus = {len(proof.gpus)}", "[frameworks]"]
    lines += [f'{name} = "{version.partition("+")[0]}"' for name, version in frameworks.items()]
    expect.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = proof.provision("verify", "--from", str(proof.healthy), "--level", level, "--expect", str(expect))
    targets = answer.result.get("targets")
    if not targets:
        return failed(f"verify gave no answer: {answer.said}")
    checks = {check["id"]: check for check in targets[0]["checks"]}
    faults = [
        row
        for row in checks.values()
        if row["status"] == "fail" and row["severity"] not in LIGHT and not row["id"].startswith(SETTINGS)
    ]
    wanted = [*PROVED[level], *(PROVED_WITH_TORCH[level] if "torch" in frameworks else ())]
    wanted += [name for framework, name in DEVICES.items() if framework in frameworks]
    absent = {"status": "absent", "severity": "critical", "seen": "no such check was asked"}
    unproved = [row for name in wanted if not _is_proved(row := checks.get(name, {"id": name, **absent}))]
    remarks = [row["id"] for row in checks.values() if row["status"] == "fail" and row not in faults]
    counts: dict[str, int] = {}
    for row in checks.values():
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    table = [("check", "status", "seen")]
    table += [(row["id"], row["status"], row.get("seen", "")) for row in checks.values() if row["status"] != "skip"]
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    details = {"counts": counts, "checks": {name: [row["status"], row.get("seen", "")] for name, row in checks.items()}}
    if level == "deep":
        details["tables"] = {"What verify saw": table}
    wrong = list({row["id"]: row for row in [*faults, *unproved]}.values())
    if wrong:
        return failed("; ".join(f"{row['id']} {row['status']}: {row.get('seen', '')}" for row in wrong), **details)
    return passed(f"{said}; not as it should be: {', '.join(remarks)}" if remarks else said, **details)


def _frameworks(host: Snapshot) -> dict[str, str]:
    """Return name → version of the frameworks that the machine's Python imports."""
    found = {}
    for name in ("torch", "tensorflow", "jax"):
        with suppress(Unreadable):
            framework = getattr(host, name)
            if framework.version and not framework.error:
                found[name] = framework.version
    return found


def _is_proved(check: Mapping[str, Any]) -> bool:
    """Tell whether a check passed; a figure of a GPU or slot that no fact knows has nothing to be held to."""
    has_no_floor = any(words in check.get("seen", "") for words in ("no floor is known", "MIG divides"))
    return check["status"] == "pass" or (check["status"] in ("skip", "unknown") and has_no_floor)


# doctor


def diagnose_healthy(proof: Proof) -> Outcome:
    """Doctor must name no cause on a healthy machine."""
    _healthy(proof)
    answer = proof.provision("doctor", "--from", str(proof.healthy))
    report = next(iter(answer.result.get("targets") or ()), None)
    if report is None:
        return failed(f"doctor gave no answer: {answer.said}")
    causes = [f"{row['diagnosis']} ({'; '.join(row['seen'])})" for row in report["causes"]]
    notes = [row["diagnosis"] for row in report["notes"]]
    unseen = {row["probe"]: row["reason"] for row in report["unseen"]}
    broken = [f"{row['diagnosis']}: {row['error']}" for row in report["broken"]]
    details = {"causes": causes, "notes": notes, "unseen": unseen, "broken": broken}
    if causes or broken:
        return failed(f"it names {'; '.join([*causes, *broken])}", **details)
    return passed(f"no cause, {len(notes)} remarks, {len(unseen)} answers unknown", **details)


def diagnose_fault(fault: Fault, proof: Proof) -> Outcome:
    """Doctor must name the right cause, first, while a fault is there."""
    folder = proof.scratch / f"fault-{fault.id}"
    folder.mkdir()
    scene = Scene(
        python=proof.framework,
        folder=folder,
        driver=proof.driver,
        major=proof.capability[0] if proof.capability else None,
    )
    made = fault.make(scene)
    with made if isinstance(made, AbstractContextManager) else nullcontext(made) as fact:
        bundle = folder / "capture.tar.gz"
        words = ["doctor", "local", "--bundle", str(bundle), "--probes", ",".join(FAULT_PROBES)]
        words += proof.words_for_python()
        if fact.text:
            text = folder / "program.log"
            text.write_text(fact.text, encoding="utf-8")
            words += ["--text", str(text)]
        answer = proof.provision(*words, made=fact, seconds=min(180.0, proof.seconds_left + 30))
    report = next(iter(answer.result.get("targets") or ()), None)
    if report is None:
        return failed(f"doctor gave no answer: {answer.said}", program=fact.text[-2000:])
    proof.keep(fault.id, bundle)
    named = [row["diagnosis"] for row in report["causes"]]
    first = report["causes"][0] if named else {}
    details = {"right": fault.cause, "causes": named, "seen": first.get("seen", []), "program": fact.text[-2000:]}
    if not named:
        return failed(f"no cause is named; {fault.cause} is right", **details)
    if named[0] != fault.cause:
        return failed(f"{named[0]} is named first; {fault.cause} is right", **details)
    others = f", beside {', '.join(named[1:])}" if named[1:] else ""
    return passed(f"{fault.cause}, {first['confidence']} confidence{others}", **details)


# image


def verify_image(proof: Proof) -> Outcome:
    """Run the proof that images carry in the machine's own environment, against a lock of the same versions."""
    if proof.framework is None or proof.torch is None:
        raise NotHereError("no Python with PyTorch is here")
    version, _, variant = proof.torch.partition("+")
    cuda = proof._ask(proof.framework, "import torch; print(torch.version.cuda)")
    folder = proof.scratch / "image"
    words = ["image", "--torch", version, "--cuda", str(cuda), "--python", str(proof.framework_python)]
    answer = proof.provision(*words, "-o", str(folder))
    if answer.code in (IncompatibleError.exit_code, UnknownError.exit_code):
        raise NotHereError(f"the facts have no stack for torch {version} {variant}: {answer.said}")
    if answer.code:
        return failed(f"provision image ended with {answer.code}: {answer.said}")
    words = [proof.framework, "-B", str(folder / "verify.py"), "--gpu", "--json"]
    done = run([*words, "--lock", str(folder / "expect.json")], 180)
    found = json.loads(done.out[done.out.index("{") :]) if "{" in done.out else {}
    rows = found.get("findings") or []
    wrong = [f"{row['check']} {row['status']}: {row['detail']}" for row in rows if row["status"] != "pass"]
    details = {"checks": {row["check"]: [row["status"], row["detail"]] for row in rows}}
    if not rows:
        said = done.err.strip().splitlines()
        return failed(f"verify.py said nothing: {said[-1] if said else done.code}")
    if wrong or done.code:
        return failed("; ".join(wrong) or f"verify.py ended with {done.code}", **details)
    return passed(f"{len(rows)} checks", **details)


def check_gate(proof: Proof) -> Outcome:
    """The entrypoint of images must let this driver pass, and refuse it where a newer one is needed."""
    source = Path("/proc/driver/nvidia/version")
    if not source.is_file():
        raise NotHereError(f"{source} is not there, so an image could not see the driver either")
    if proof.driver is None:
        return failed("nvidia-smi does not say the version of the driver")
    head, _, _ = proof.driver.partition(".")
    said = []
    for floor, code in ((proof.driver, 0), (f"{int(head) - 1}.0", 0), (f"{head}.999", 78), (f"{int(head) + 1}.0", 78)):
        gate = ["sh", str(ROOT / "images" / "entrypoint.sh"), "echo", "begun"]
        done = run(gate, 20, {"PROVISION_DRIVER_MIN": floor})
        if done.code != code or (done.out == "begun\n") != (code == 0):
            return failed(f"with a floor of {floor} it ends with {done.code}, and not {code}: {done.err.strip()}")
        said.append(f"{floor}: {'begun' if code == 0 else 'refused'}")
    return passed(f"driver {proof.driver}; floors {', '.join(said)}")


# bench and predict


def bench(suite: str, number: int, proof: Proof) -> Outcome:
    """Measure one suite, and hold it against what a healthy GPU reaches."""
    if proof.framework is None:
        raise NotHereError("no Python with PyTorch is here")
    name = f"bench-{suite}-{number}.json"
    path = proof.folder / name
    path.unlink(missing_ok=True)
    proof.folder.mkdir(parents=True, exist_ok=True)
    seconds = STANDARD_SECONDS if suite == "standard" else QUICK_SECONDS
    words = ["bench", "run", "--suite", suite, "--seconds", seconds, "--device", "cuda", "--python", proof.framework]
    # The second run of a suite needs as long as the first.
    share = proof.seconds_left / (2 if suite == "standard" and number == 1 else 1)
    words += ["--save", str(path), "--resume"]
    began = proof.seconds_left
    if suite == "standard":
        # What forecasts were made of comes first, as the time may not reach all.
        proof.provision(*words, "--only", "cnn,transformer", seconds=share)
    answer = proof.provision(*words, seconds=share - (began - proof.seconds_left))
    if not path.exists():
        return failed(f"nothing was measured: {answer.said}")
    path.write_text(proof.mask(redact(path.read_text(encoding="utf-8")), "packages"), encoding="utf-8")
    results = read_results(path)
    proof.results[name] = results
    shown = proof.provision("bench", "show", str(path))
    bands = shown.result.get("bands") or []
    listed = proof.provision("bench", "run", "--suite", suite, "--device", "cuda", "--list")
    planned = len(listed.result.get("cases") or ())
    ok = [figure for figure in results.figures if figure.status == "ok"]
    wrong = [f"{figure.id}: {figure.reason}" for figure in results.figures if figure.status == "failed"]
    low = [f"{row['measure']} {row['value']:.4g} below {row['floor']:g} {row['unit']}" for row in _below(bands)]
    details: dict[str, Any] = {"bands": bands, "skipped": _skipped(results)}
    if number == 1:
        details["tables"] = {f"What {suite} measured": _table(results)}
    said = f"{len(ok)} of {planned} cases measured, {len(_skipped(results))} skipped"
    if len(results.figures) < planned:
        said += f", {planned - len(results.figures)} not in the time"
    said += f"; {len(bands) - len(low)} of {len(bands)} bands met" if bands else "; no band for this GPU"
    if wrong or low or not ok:
        return failed("; ".join([*low, *wrong]) or answer.said or said, **details)
    return passed(said, **details)


def _below(bands: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in bands if row.get("is_met") is False]


def _skipped(results: Results) -> dict[str, str]:
    return {row.id: row.reason or "" for row in results.figures if row.status == "skipped"}


def _table(results: Results) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("case", "median", "noise within the run", "rate")]
    for row in results.figures:
        if row.status == "ok" and row.seconds and row.rate:
            rate = f"{row.rate:.4g} {row.unit}"
            table.append((row.id, f"{row.seconds * 1e3:.4g} ms", f"{row.noise:.1%}", rate))
    return table


def compare_runs(suite: str, proof: Proof) -> Outcome:
    """Two runs of one suite on one machine must compare as the same; how far they scatter is the noise."""
    first, second = (proof.folder / f"bench-{suite}-{number}.json" for number in (1, 2))
    runs = [proof.results[path.name] for path in (first, second) if path.name in proof.results]
    if len(runs) < 2:
        raise NotHereError(f"the suite {suite} was not measured twice")
    cut = _both(runs, proof.scratch)
    answer = proof.provision("bench", "compare", *map(str, cut), "--tolerance", TOLERANCE_PERCENT)
    rows = answer.result.get("differences")
    if rows is None:
        return failed(f"bench compare gave no answer: {answer.said}")
    noise = {kind: round(100 * value, 2) for kind, value in run_noise(runs).items()}
    verdicts: dict[str, int] = {}
    for row in rows:
        verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
    changed = [f"{row['id']} {row['ratio'] - 1:+.1%}" for row in rows if row["verdict"] in ("slower", "faster")]
    most = max((abs(row["ratio"] - 1) for row in rows if row["ratio"]), default=0.0)
    table = [("kind", "noise from run to run"), *((kind, f"{value:.2f} %") for kind, value in noise.items())]
    details = {"noise_percent": noise, "verdicts": verdicts, "tables": {f"Noise of {suite}": table}}
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    worst = max(noise.items(), key=lambda item: item[1], default=("nothing", 0.0))
    if changed:
        return failed(f"minutes apart on one machine: {', '.join(changed)}", **details)
    said += f"; noise from run to run up to {worst[1]:.1f} % ({worst[0]}), a single case up to {most:.1%}"
    return passed(said, **details)


def _both(runs: Sequence[Results], scratch: Path) -> list[Path]:
    """Write the cases that both runs have, so that what the time did not reach is no difference."""
    shared = set.intersection(*({row.id for row in results.figures if row.status == "ok"} for results in runs))
    paths = []
    for number, results in enumerate(runs):
        document = results.to_json()
        document["figures"] = [row for row in document["figures"] if row["id"] in shared]
        path = scratch / f"compare-{number}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        paths.append(path)
    return paths


_PRECISIONS = {"bf16": "amp_bf16", "fp16": "amp", "tf32": "tf32", "fp32": "fp32"}
_ENCODER = {"layers": 4, "hidden": 768, "parameters": 4 * (4 * 768**2 + 2 * 768 * 3072)}
"""The transformer that bench trains: four layers of 768, 3072 between them; without biases, which hardly count."""


def forecast(proof: Proof) -> Outcome:
    """Forecast the networks of the suite `standard` before they are measured."""
    quick = proof.results.get("bench-quick-1.json")
    if quick is None:
        raise NotHereError("the suite quick was not measured, and its networks' operations are needed")
    listed = proof.provision("bench", "run", "--suite", "standard", "--device", "cuda", "--list")
    inferences = (row for row in quick.figures if row.kind == "cnn" and row.case["mode"] == "infer" and row.flop)
    counted = next(inferences, None)
    refused: dict[str, str] = {}
    for case in listed.result.get("cases") or ():
        if case["kind"] not in ("cnn", "transformer") or case["mode"] != "train":
            continue
        try:
            request = _request(case, proof.gpus[0], counted)
            made = estimate(request, proof.matrix)
        except ProvisionError as error:
            refused[case["id"]] = error.message
            continue
        row = {"id": case["id"], "unit": made.unit, "mode": made.mode}
        proof.forecasts.append(row | {"value": made.value, "low": made.low, "high": made.high})
    details = {"forecasts": [dict(row) for row in proof.forecasts], "refused": refused}
    if not proof.forecasts:
        return failed(f"nothing could be forecast: {next(iter(refused.values()), listed.said)}", **details)
    said = f"{len(proof.forecasts)} forecasts written down before the measurement, {len(refused)} refused"
    return passed(said, **details)


def _request(case: Mapping[str, Any], gpu: str, counted: Figure | None) -> PredictRequest:
    if case["kind"] == "transformer":
        return PredictRequest(
            task="train",
            gpu=gpu,
            precision=case["precision"],
            sequence=case["size"],
            micro_batch=case["batch"],
            global_batch=case["batch"],
            recompute="none",
            **_ENCODER,
        )
    gmacs = None
    if counted is not None and counted.flop:
        gmacs = counted.flop / counted.case["batch"] / 2e9 * (case["size"] / counted.case["size"]) ** 2
    return PredictRequest(
        task="vision-training",
        gpu=gpu,
        precision=_PRECISIONS[case["precision"]],
        batch=case["batch"],
        image_size=case["size"],
        gmacs=gmacs,
    )


def score(proof: Proof) -> Outcome:
    """Hold the forecasts against what was measured afterwards."""
    measured = proof.results.get("bench-standard-1.json")
    if measured is None or not proof.forecasts:
        raise NotHereError("there is no forecast, or what it was of was not measured")
    rates = {row.id: row for row in measured.figures if row.status == "ok" and row.rate}
    rows = []
    for row in proof.forecasts:
        figure = rates.get(row["id"])
        if figure is None or figure.rate is None:
            continue
        # Training is forecast in tokens a second.
        value = figure.rate * (figure.case["size"] if figure.kind == "transformer" else 1)
        rows.append({**row, "measured": value, "off_percent": 100 * (row["value"] / value - 1)})
    if not rows:
        raise NotHereError("no case with a forecast was measured in the time")
    inside = sum(row["low"] <= row["measured"] <= row["high"] for row in rows)
    off = median(abs(row["off_percent"]) for row in rows)
    table: list[tuple[str, ...]] = [("case", "forecast", "interval", "measured", "off")]
    table += [
        (
            row["id"],
            f"{row['value']:.4g}",
            f"{row['low']:.4g} to {row['high']:.4g}",
            f"{row['measured']:.4g} {row['unit']}",
            f"{row['off_percent']:+.0f} %",
        )
        for row in rows
    ]
    said = f"{len(rows)} forecasts: half are off by {off:.0f} % or less, {inside} of {len(rows)} inside their interval"
    details = {"median_off_percent": round(off, 1), "inside": inside, "rows": rows}
    return passed(said, **details, tables={"Forecasts, made before": table})


def bench_steps(suite: str) -> tuple[StepPlan, ...]:
    """Return the steps of a suite: twice measured, and the two compared."""
    runs = (
        StepPlan(
            id=f"bench.{suite}-{number}",
            title=f"bench, suite {suite}, run {number}",
            run=partial(bench, suite, number),
        )
        for number in (1, 2)
    )
    noise = StepPlan(
        id=f"bench.{suite}-noise", title=f"bench compare of both runs of {suite}", run=partial(compare_runs, suite)
    )
    return (*runs, noise)


STEPS = (
    StepPlan(id="probe.collect", title="every probe", run=collect),
    StepPlan(id="probe.parsers", title="every parser on what the probes printed", run=read_captures),
    *(
        StepPlan(id=f"verify.{level}", title=f"verify at level {level}", run=partial(verify, level))
        for level in ("quick", "standard", "deep")
    ),
    StepPlan(id="doctor.healthy", title="doctor on the healthy machine", run=diagnose_healthy),
    *(
        StepPlan(id=f"doctor.{fault.id}", title=f"doctor: {fault.title}", run=partial(diagnose_fault, fault))
        for fault in FAULTS
    ),
    StepPlan(id="image.verify", title="verify.py of images, with --gpu", run=verify_image),
    StepPlan(id="image.gate", title="the driver gate of images", run=check_gate),
    *bench_steps("quick"),
    StepPlan(id="predict.before", title="forecasts of standard's networks", run=forecast),
    *bench_steps("standard"),
    StepPlan(id="predict.after", title="the forecasts against the measurement", run=score),
)
"""All steps, in the order they are run: what proves most comes first."""
