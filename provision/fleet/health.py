"""One pass of the health loop on a controller: act upon what was said of nodes, and put nodes back after proof.

The loop itself (limits, reasons, ledger, proofs) is that of Slurm nodes, ``health_loop.py`` of role gpu_slurm. It
runs on old Pythons and therefore lies with the role; it is loaded from there, so that there is one of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from provision.assets import asset_dir
from provision.errors import ActionFailedError, MissingDependencyError, UsageError
from provision.files import try_lock
from provision.generate.monitoring import alert_name
from provision.matrix.load import Matrix
from provision.probe.clean import clean_line
from provision.probe.prometheus import Prometheus
from provision.records import record

PROOF = ("provision", "verify", "--level", "standard")
"""What a node must pass before it is put back, as the ledger names it."""
_LOCK_SECONDS = 10.0
_PROVE_SECONDS = 1800.0

Proof = Callable[[str], tuple[int | None, str, str]]


@record
class Verdict:
    """What was found on a node: id, sentence, since when it is so (seconds since the epoch), and how it is repaired."""

    node: str
    id: str
    sentence: str
    since: float
    repair: str = ""


@cache
def load_loop() -> Any:
    """Return the module of the loop."""
    path = asset_dir("playbooks") / "roles" / "gpu_slurm" / "files" / "health_loop.py"
    spec = spec_from_file_location("provision_health_loop", path)
    if spec is None or spec.loader is None:
        raise MissingDependencyError(f"{path} cannot be read")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_reports(paths: Sequence[Path]) -> list[Verdict]:
    """Return the first serious failure of each target in reports of ``provision verify --json``.

    Raises:
        UsageError: A file is no such report.
    """
    loop = load_loop()
    found = []
    for path in paths:
        targets = loop.read_targets(path)
        if targets is None:
            raise UsageError(
                f"{path} is not a report of `provision verify --json`",
                hints=("write one with `provision verify TARGET --json -o report.json`",),
            )
        for target in targets:
            try:
                failure = loop.read_failure(target)
                since = datetime.fromisoformat(target.get("collected") or "").timestamp()
            except (AttributeError, KeyError, TypeError):
                continue
            except ValueError:
                since = path.stat().st_mtime
            if failure:
                found.append(
                    Verdict(
                        node=loop.node_of(target["target"]),
                        id=failure[0],
                        sentence=failure[1],
                        since=since,
                        repair=failure[2],
                    )
                )
    return found


def find_alerts(server: Prometheus, matrix: Matrix, cluster: str | None) -> list[Verdict]:
    """Return the critical alerts about GPUs that fire, by the rules of ``provision fleet rules``, in doctor's words.

    Args:
        server: One that runs these rules.
        matrix: The facts, which know what is critical.
        cluster: Label ``cluster`` of the nodes; needed where alerts of several are there.

    Raises:
        MissingDependencyError: The server does not answer.
        UsageError: Alerts of several clusters fire, and none was named.
    """
    # That an exporter or a node is silent does not say that its GPUs are bad: their likeliest cause is no diagnosis.
    diagnoses = {
        alert_name(key): (f"alert/{key}", matrix.diagnoses[alert.runbook[0]])
        for key, alert in matrix.alerts.items()
        if alert.severity == "critical" and alert.runbook[:1] and alert.runbook[0] in matrix.diagnoses
    }
    firing = [line for line in server.ask('ALERTS{alertstate="firing",severity="critical",node!=""}') if line.labels]
    clusters = sorted({line.labels.get("cluster", "") for line in firing})
    if cluster is None and len(clusters) > 1:
        raise UsageError(
            f"alerts of {len(clusters)} clusters fire",
            because=(", ".join(clusters),),
            hints=("name one: `--cluster NAME`",),
        )
    began = {
        _alert_key(line.labels): line.last for line in server.ask('ALERTS_FOR_STATE{node!=""}') if line.last is not None
    }
    found = []
    for line in firing:
        named = diagnoses.get(line.labels.get("alertname", ""))
        if named is None or cluster not in (None, line.labels.get("cluster", "")):
            continue
        gpu = line.labels.get("gpu")
        found.append(
            Verdict(
                node=line.labels["node"],
                id=named[0],
                sentence=f"{named[1].title}{f': GPU {gpu}' if gpu else ''}",
                since=began.get(_alert_key(line.labels), 0.0),
                # A step with a place is filled by what doctor sees, and an alert sees nothing more.
                repair=" ".join(step for step in named[1].fix if "{" not in step),
            )
        )
    return found


def _alert_key(labels: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if key not in ("alertstate", "__name__")))


def run_verify(*where: str) -> tuple[int, str, str]:
    """Verify a target, named as on the command line, as a node is proved; return status, output and errors.

    Raises:
        EngineError: It cannot be started, or did not end in time.
    """
    found: tuple[int, str, str] = load_loop().run([sys.executable, "-m", *PROOF, *where, "--json"], _PROVE_SECONDS)
    return found


def lock_file(path: Path, mode: int) -> int | None:
    """Return a handle that holds the lock of a file until it is closed; nothing, where somebody has it.

    Raises:
        OSError: The file cannot be made, or its file system knows no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        if try_lock(number):
            return number
    except OSError:
        os.close(number)
        raise
    os.close(number)
    return None


def run_pass(
    engine: Any,
    settings: dict[str, Any],
    find: Callable[[], Iterable[Verdict]],
    run_proof: Proof | None,
    *,
    is_dry: bool,
) -> list[dict[str, Any]]:
    """Take bad nodes out, put proved ones back, and return what was done, as the lines of the ledger.

    Args:
        engine: As the loop needs one; ``end_pass()`` is called when all is done.
        settings: ``state`` (a folder), ``limit_percent``, ``returns_per_day`` and ``jobs`` (``keep`` or ``requeue``).
        find: Asks what is said of nodes; called when the scheduler has answered.
        run_proof: Proves a node; absent, none is put back.
        is_dry: Whether nothing is done. A dry run proves nothing either.

    Raises:
        ActionFailedError: Another pass with this folder is at work.
        MissingDependencyError: The scheduler does not answer; nothing was done, and the ledger says so.
        UsageError: The folder cannot be written.
    """
    loop = load_loop()
    folder = Path(settings["state"]).absolute()
    complete = {
        "prefix": loop.PREFIX,
        "prove": list(PROOF),
        **settings,
        "state": str(folder),
        "ledger": str(folder / "ledger.jsonl"),
    }
    with _alone(folder):
        book = loop.Book(complete, "loop", is_dry, program="provision fleet health", is_told=False)
        try:
            engine.nodes()
            loop.settle(engine, complete, book)
            verdicts = _current(book, find())
        except loop.EngineError as error:
            book.write("failed", "", str(error))
            raise MissingDependencyError(
                "the scheduler does not answer, and nothing was done", because=(clean_line(str(error)),)
            ) from error
        loop.apply(
            engine,
            complete,
            book,
            [(node, (row.id, row.sentence, row.repair)) for node, row in verdicts.items()],
            _LOCK_SECONDS,
        )
        if run_proof is not None:
            _put_back(loop, engine, complete, book, frozenset(verdicts), run_proof)
        if not is_dry:
            try:
                engine.end_pass()
            except loop.EngineError as error:
                book.write("failed", "", str(error))
        return list(book.rows)


def _current(book: Any, verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """Return node → the first verdict on it that is younger than its last proof."""
    found: dict[str, Verdict] = {}
    for row in verdicts:
        returns = book.returns(row.node)
        if not returns or row.since > returns[-1]:
            found.setdefault(row.node, row)
    return found


def _put_back(
    loop: Any, engine: Any, settings: dict[str, Any], book: Any, bad: frozenset[str], run_proof: Proof
) -> None:
    try:
        rows = engine.nodes()
    except loop.EngineError as error:
        book.write("failed", "", str(error))
        return
    for name in sorted({row.name for row in rows if row.is_out and row.reason.startswith(settings["prefix"])}):
        if name in bad:
            continue
        try:
            if not loop.is_ours(engine, settings, name):
                continue
            if book.is_dry:
                book.write("would prove", name, "nothing is said against it any more")
            else:
                loop.prove(engine, settings, book, name, lambda name=name: run_proof(name))
        except loop.EngineError as error:
            book.write("failed", name, str(error))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        number = lock_file(folder / "lock", 0o640)
    except OSError as error:
        raise UsageError(f"--state: {folder} cannot be written", because=(error.strerror or str(error),)) from error
    if number is None:
        raise ActionFailedError(
            f"another `provision fleet health` works with {folder}",
            hints=("start it again when that one has ended",),
        )
    try:
        yield
    finally:
        os.close(number)
