"""Runs workloads in the environment they are to be measured in: a Python with PyTorch, or an image."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

from provision.bench.cases import Case
from provision.bench.results import Figure, summarise
from provision.errors import ActionFailedError, MissingDependencyError
from provision.records import record

_MARKER = b"@provision-payload "
_CASE_SECONDS_MAX = 600
_LINE_BYTES_MAX = 16 * 2**20
_IN_IMAGE = "/provision-bench"


@record
class Environment:
    """Where workloads run: a local Python, or an image by the docker command.

    ``python`` is the interpreter; in an image, its name there.
    """

    python: str
    image: str | None = None
    has_gpu: bool = False

    def command(self, script: Path, *arguments: str) -> list[str]:
        """Return the words that run a script there."""
        if self.image is None:
            return [self.python, "-B", str(script), *arguments]
        gpus = ["--gpus", "all"] if self.has_gpu else []
        mount = f"{script.parent}:{_IN_IMAGE}:ro"
        words = ["docker", "run", "--rm", "--network", "none", "--shm-size", "2g", *gpus, "-v", mount]
        return [*words, "--entrypoint", self.python, self.image, "-B", f"{_IN_IMAGE}/{script.name}", *arguments]


@record
class Run:
    """How cases are run: ``cuda``, ``cpu`` or ``auto``; seconds and warm-ups of each."""

    device: str
    seconds: float
    warmup: int


def find_device(environment: Environment, run: Run) -> dict[str, Any]:
    """Return the machine as the environment's PyTorch sees it.

    Raises:
        MissingDependencyError: There is no PyTorch, or a GPU that it cannot use.
        ActionFailedError: It ended without a word.
    """
    with closing(_events(environment, run, ())) as events:
        for event in events:
            if event["event"] == "machine":
                machine: dict[str, Any] = event["machine"]
                return machine
    raise ActionFailedError("the workloads ended without telling what they run on")


def run_cases(
    environment: Environment,
    run: Run,
    cases: Sequence[Case],
    on_figure: Callable[[Figure], None],
    on_begin: Callable[[str], None],
) -> None:
    """Run cases one after the other; a case that hangs or ends the interpreter is failed, and the next one begun.

    Args:
        environment: Where.
        run: How.
        cases: What.
        on_figure: Takes each figure as soon as it is there.
        on_begin: Takes the id of each case that begins.

    Raises:
        MissingDependencyError: There is no PyTorch, or a GPU that it cannot use.
    """
    left = [case for case in cases if case.kind != "allreduce"]
    while left:
        done = 0
        current: str | None = None
        reason = "the interpreter ended"
        try:
            for event in _events(environment, run, left):
                name = event["event"]
                if name == "begin":
                    current = event["id"]
                    on_begin(event["id"])
                elif name in {"case", "failed", "skipped"}:
                    on_figure(_figure(left[done], event))
                    done, current = done + 1, None
        except TimeoutError as error:
            reason = str(error)
        left = left[done:]
        if current is not None and left:
            on_figure(_failed(left[0], reason))
            left = left[1:]
        elif left and not done:
            raise ActionFailedError("the workloads ended before the first of them", because=(reason,))
    for case in cases:
        if case.kind == "allreduce":
            on_begin(case.id)
            on_figure(_reduce(environment, run, case))


def _figure(case: Case, event: Mapping[str, Any]) -> Figure:
    if event["event"] != "case":
        return _failed(case, str(event.get("reason") or "no reason was given"), event["event"])
    return summarise(case.to_json(), [float(value) for value in event["seconds"]], event["facts"])


def _failed(case: Case, reason: str, status: str = "failed") -> Figure:
    return Figure(id=case.id, kind=case.kind, status=status, case=case.to_json(), reason=reason)


def _events(environment: Environment, run: Run, cases: Sequence[Case]) -> Generator[dict[str, Any], None, None]:
    plan = {
        "device": run.device,
        "seconds": run.seconds,
        "warmup": run.warmup,
        "cases": [case.to_json() for case in cases],
    }
    script = _script("provision.bench", "workloads.py")
    told = _read(environment.command(script, json.dumps(plan)), 2 * run.seconds + _CASE_SECONDS_MAX)
    with closing(told):
        yield from _checked(environment, run, told)


def _checked(environment: Environment, run: Run, told: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for event in told:
        if event["event"] == "refused":
            raise MissingDependencyError(
                f"`{environment.image or environment.python}` cannot run workloads",
                because=(str(event["reason"]),),
                hints=(
                    "name a Python that has PyTorch with `--python`, or an image with `--image`",
                    *(() if run.device == "cpu" else ("`--device cpu` measures the processor on purpose",)),
                ),
            )
        yield event


def _read(command: Sequence[str], silence_seconds: float) -> Generator[dict[str, Any], None, None]:
    """Yield the events that a program prints, and end it where it says nothing for too long."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise MissingDependencyError(
            f"`{command[0]}` cannot be started",
            because=(error.strerror or str(error),),
            hints=("name a Python that has PyTorch with `--python`",),
        ) from error
    said_any = False
    errors = bytearray()
    try:
        for line in _lines(process, silence_seconds, errors):
            if line.startswith(_MARKER):
                said_any = True
                yield json.loads(line[len(_MARKER) :])
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if not said_any:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-3:]
        raise ActionFailedError(
            "the workloads did not start", because=tuple(last) or (f"exit code {process.returncode}",)
        )


def _lines(process: subprocess.Popen[bytes], silence_seconds: float, errors: bytearray) -> Iterator[bytes]:
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        deadline = time.monotonic() + silence_seconds
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing was heard for {silence_seconds:.0f} s")
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    errors += chunk
                    del errors[:-65536]
                else:
                    deadline = time.monotonic() + silence_seconds
                    *whole, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _LINE_BYTES_MAX:
                        raise ActionFailedError("the workloads printed a line without an end")
                    yield from whole


def _reduce(environment: Environment, run: Run, case: Case) -> Figure:
    """Return the bus bandwidth of a sum over all GPUs, or over two processes where there is none."""
    script = _script("provision.probe", "torch_nccl.py")
    backend = "nccl" if run.device == "cuda" else "gloo"
    try:
        done = subprocess.run(
            environment.command(script, "local", backend),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CASE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _failed(case, str(error))
    line = next((line for line in done.stdout.splitlines() if line.startswith(_MARKER)), None)
    if line is None:
        return _failed(case, "no answer")
    document = json.loads(line[len(_MARKER) :])
    said = document.get("error") or document.get("together", {}).get("allreduce", "no answer")
    speed = document.get("figures", {}).get("allreduce_bus_gb_s")
    if said != "ok" or not speed:
        is_skipped = str(said).startswith("skipped")
        return _failed(case, str(said), "skipped" if is_skipped else "failed")
    ranks = int(document["figures"].get("ranks", 2))
    moved = 4.0 * (64 << 20 if backend == "nccl" else 1 << 20)
    seconds = moved * 2 * (ranks - 1) / ranks / (speed * 1e9)
    return Figure(
        id=case.id,
        kind=case.kind,
        status="ok",
        case=case.to_json() | {"size": int(moved), "workers": ranks, "mode": backend},
        seconds=seconds,
        spread_seconds=seconds * float(document["figures"].get("allreduce_spread", 0.0)),
        repeats=int(document["figures"].get("allreduce_rounds", 1)),
        rate=speed * 1e9,
        unit="B/s",
        bytes=moved,
    )


def _script(package: str, name: str) -> Path:
    return Path(str(files(package).joinpath("payloads", name)))
