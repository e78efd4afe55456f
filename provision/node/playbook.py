"""One run of a committed playbook, from its order to how every host fared."""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from provision.assets import asset_dir
from provision.errors import ActionFailedError, UsageError
from provision.node.ansible import errors_in, find_program
from provision.node.events import Run
from provision.node.process import run_process
from provision.probe.clean import clean_line
from provision.probe.redact import redact
from provision.records import NOTHING, record

PLAYBOOKS = {
    "plan": "gpu-node.yml",
    "apply": "gpu-node.yml",
    "upgrade": "gpu-node-upgrade.yml",
    "verify": "gpu-node-verify.yml",
    "rollback": "gpu-node-rollback.yml",
    "remove": "gpu-node-remove.yml",
}
"""Action → the playbook that does it."""

_LINES_KEPT = 400
_EVERYWHERE = ("always", "all", "never")


@record
class Order:
    """What is to be run.

    Attributes:
        playbook: The file.
        hosts: Every host of the run.
        inventories: As Ansible takes them.
        lock: The ``provision_lock`` to use; absent where the playbooks and the inventory decide.
        variables: Extra variables.
        tags: Only these parts.
        forks: How many hosts at a time; absent where Ansible's own number is to be used.
        is_check: Change nothing, say what would be changed.
        has_diff: Ask for the differences of files.
        words: More flags of ansible-playbook.
        verbosity: How much Ansible says in its log.
        log: Folder that keeps what Ansible printed and the events.
        log_name: Name of the files in it, without ending.
    """

    playbook: Path
    hosts: tuple[str, ...]
    inventories: tuple[str, ...] = ()
    lock: Mapping[str, Any] | None = None
    variables: Mapping[str, Any] = NOTHING
    tags: tuple[str, ...] = ()
    forks: int | None = None
    is_check: bool = False
    has_diff: bool = False
    words: tuple[str, ...] = ()
    verbosity: int = 0
    log: Path | None = None
    log_name: str = "node"


@record
class Outcome:
    """How a run ended.

    Attributes:
        code: Exit status of ansible-playbook; absent where it was interrupted.
        errors: What it complained of that belongs to no host.
    """

    code: int | None
    errors: tuple[str, ...] = ()

    @property
    def was_interrupted(self) -> bool:
        """Whether somebody ended it."""
        return self.code is None


def playbook_path(action: str) -> Path:
    """Return the committed playbook of an action.

    Raises:
        DataError: The playbooks are not installed.
        UsageError: This one is missing.
    """
    path = asset_dir("playbooks") / PLAYBOOKS[action]
    if not path.is_file():
        raise UsageError(f"the playbook {path} is missing", hints=("install the package again",))
    return path


def known_tags(playbook: Path) -> tuple[str, ...]:
    """Return the tags of a playbook, as far as its text names them."""
    import re

    words: set[str] = set()
    for path in sorted(playbook.parent.glob("gpu-node*.yml")) if playbook.name.startswith("gpu-") else [playbook]:
        for found in re.findall(r"^\s*(?:- )?tags:\s*\[([^\]]*)\]", path.read_text(encoding="utf-8"), re.MULTILINE):
            words |= {word.strip().strip("'\"") for word in found.split(",")}
    return tuple(sorted(words - {""} | set(_EVERYWHERE))) if words else ()


def run_playbook(
    order: Order,
    run: Run,
    *,
    environment: Mapping[str, str],
    on_event: Callable[[dict[str, Any]], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run a playbook and collect what it does.

    Args:
        order: What to run.
        run: Takes the events.
        environment: The variables Ansible runs with.
        on_event: Called after each event was taken.
        on_tick: Called several times a second.

    Raises:
        MissingDependencyError: ansible-core is not installed.
        ActionFailedError: The log cannot be written.
    """
    program = find_program("ansible-playbook")
    tail: deque[str] = deque(maxlen=_LINES_KEPT)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="provision-node-")))
        printed = _open_log(stack, order, "log")
        events = _open_log(stack, order, "events.jsonl")

        def take_line(line: str) -> None:
            tail.append(line)
            _copy(printed, line)

        def take_event(line: str) -> None:
            event = run.take(line)
            _copy(events, line)
            if event is not None:
                on_event(event)

        argv = [program, *_arguments(order, scratch)]
        code: int | None = None
        try:
            code = run_process(argv, environment=environment, on_event=take_event, on_line=take_line, on_tick=on_tick)
        except KeyboardInterrupt:
            return Outcome(code=None)
    said = tuple(redact(clean_line(line)) for line in errors_in("\n".join(tail))[:5]) if code else ()
    return Outcome(code=code, errors=said)


def _arguments(order: Order, scratch: Path) -> Sequence[str]:
    limit = scratch / "limit"
    limit.write_text("".join(f"{name}\n" for name in order.hosts), encoding="utf-8")
    words = [str(order.playbook), *(f"--inventory={word}" for word in order.inventories), f"--limit=@{limit}"]
    if order.lock is not None:
        words.append(f"--extra-vars=@{_write_json(scratch / 'lock.json', {'provision_lock': order.lock})}")
    if order.variables:
        words.append(f"--extra-vars=@{_write_json(scratch / 'variables.json', order.variables)}")
    if order.tags:
        words.append(f"--tags={','.join(order.tags)}")
    if order.forks is not None:
        words.append(f"--forks={order.forks}")
    words += ["--check"] * order.is_check + ["--diff"] * order.has_diff
    if order.verbosity > 0:
        words.append("-" + "v" * min(order.verbosity, 4))
    return [*words, *order.words]


def _write_json(path: Path, document: Mapping[str, Any]) -> Path:
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, default=dict), encoding="utf-8")
    return path


def _open_log(stack: ExitStack, order: Order, ending: str) -> IO[str] | None:
    if order.log is None:
        return None
    path = order.log / f"{order.log_name}.{ending}"
    try:
        order.log.mkdir(parents=True, exist_ok=True)
        return stack.enter_context(path.open("w", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise ActionFailedError(
            f"the log {path} cannot be written",
            because=(error.strerror or str(error),),
            hints=("choose another folder with `--log DIR`, or leave it out",),
        ) from error


def _copy(file: IO[str] | None, line: str) -> None:
    if file is None:
        return
    try:
        file.write(redact(line) + "\n")
    except OSError as error:
        raise ActionFailedError(f"the log {file.name} cannot be written", because=(str(error),)) from error
