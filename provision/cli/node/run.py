"""plan, apply, verify, rollback and remove: one run of a committed playbook each."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, did_you_mean, parse_path
from provision.cli.request import read_matrix
from provision.errors import (
    EXIT_INTERRUPTED,
    ActionFailedError,
    DriftError,
    MissingDependencyError,
    UsageError,
    VerificationFailedError,
    shown,
)
from provision.files import read_text
from provision.node.events import CHANGED, FAILED, OK, UNREACHABLE, Run
from provision.node.lock import COMMITTED, NodeLock, committed_lock, parse_lock
from provision.records import record, replace

_LOCK_BYTES_MAX = 16 * 1024 * 1024
_FORKS_MAX = 1000
_FORKS = 25
_PATTERN = re.compile(r"[^\x00-\x1f\x7f]{1,4000}")
_HAS_WORD = re.compile(r"[\w*]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}")
_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GENERATIONS_MAX = 1_000_000
_LEVELS = ("packages", "node", "gpu")
_CHANGING = ("apply", "rollback", "remove")
_PASSWORD_FILES = ("become", "connection", "vault")
_HINT_OF_SECRETS = "name a file with the password in it, or a program that prints it"
_NAMES_MAX = 8


def configure_run(parser: argparse.ArgumentParser, action: str) -> None:
    """Add the flags of one action.

    Args:
        parser: Takes them.
        action: ``plan``, ``apply``, ``verify``, ``rollback`` or ``remove``.
    """
    where = parser.add_argument_group("hosts")
    add_value(
        where,
        "--inventory",
        "FILE",
        "Ansible inventory: file, folder, script, or hosts with a comma; may be repeated",
        short="-i",
        action="append",
        dest="inventories",
    )
    add_value(where, "--limit", "PATTERN", "host pattern of Ansible", _pattern, short="-l")
    add_value(where, "--slice", "I/N", "only the I-th of N equal parts of the hosts", dest="slice_word")
    if action == "apply":
        add_switch(where, "--resume", "skip hosts that an interrupted run has finished")
    what = parser.add_argument_group("what to do")
    if action != "rollback":
        add_value(
            what,
            "--lock",
            "FILE",
            "lock written by `provision node lock` (default: that of the inventory, or the one shipped with "
            "the playbooks)",
            parse_path,
        )
    else:
        add_value(what, "--to", "N", "generation to go back to (default: the previous one)", _generation)
        add_value(
            what,
            "--lock",
            "FILE",
            "lock to go back to: each node uses its last generation with this lock, whatever its number",
            parse_path,
        )
    if action in ("plan", "apply"):
        add_switch(what, "--upgrade", "change one node at a time, each drained and verified; allows downgrades")
    if action == "verify":
        add_choice(
            what, "--level", _LEVELS, help="check packages and files only, the whole node, or also run work on its GPUs"
        )
    if action in ("plan", "apply", "verify"):
        add_value(
            what,
            "--tags",
            "NAME,…",
            "only these components (driver, cuda, …); may be repeated",
            short="-t",
            action="append",
        )
    add_value(
        what,
        "--extra",
        "KEY=VALUE",
        "role variable, overrides the inventory; may be repeated",
        short="-e",
        action="append",
        dest="variables",
    )
    way = parser.add_argument_group("connection (never prompts)")
    add_value(way, "--user", "NAME", "user name", _user, short="-u")
    add_value(
        way,
        "--private-key",
        "FILE",
        "private key for ssh",
        _file("--private-key", "name the private half of a pair, as in `~/.ssh/id_ed25519`"),
    )
    for name in _PASSWORD_FILES:
        whose = {"become": "sudo", "connection": "the connection", "vault": "ansible-vault"}[name]
        add_value(
            way,
            f"--{name}-password-file",
            "FILE",
            f"file with the password of {whose}, or a program that prints it",
            _file(f"--{name}-password-file", _HINT_OF_SECRETS),
        )
    add_value(way, "--forks", "N", "hosts in parallel", whole("--forks", 1, _FORKS_MAX, example="25"))
    out = parser.add_argument_group("output")
    if action == "plan":
        add_switch(out, "--fail-on-change", "exit with 8 if something would change")
    add_value(out, "--log", "DIR", "save the output of Ansible and all events in this folder", parse_path)
    if action in _CHANGING:
        add_value(
            out,
            "--state",
            "DIR",
            f"folder for {'progress and ' if action == 'apply' else ''}run locks (default: .provision)",
            parse_path,
            default=Path(".provision"),
        )


def _pattern(text: str) -> str:
    # Of separators alone Ansible makes every host.
    if not _PATTERN.fullmatch(text) or text.startswith("-") or not _HAS_WORD.search(text):
        raise UsageError(
            f"--limit `{shown(text)}` is not a pattern of hosts", hints=("write it as in `--limit rack1:!gpu07`",)
        )
    return text


def _generation(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:9]) > _GENERATIONS_MAX:
        raise UsageError(f"--to `{shown(text)}` is not a generation", hints=("write its number, as in `--to 3`",))
    return int(text)


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise UsageError(f"--user `{shown(text)}` is not a user", hints=("write the name alone, as in `-u admin`",))
    return text


def _file(flag: str, hint: str) -> Callable[[str], Path]:
    def check(text: str) -> Path:
        path = parse_path(text)
        if not path.is_file():
            raise UsageError(f"{flag}: {path} is not a file", hints=(hint,))
        return path.absolute()

    return check


@record
class _Job:
    """One run, before it has begun."""

    action: str
    playbook: Path
    lock: NodeLock | None
    variables: Mapping[str, Any]
    tags: tuple[str, ...]
    inventories: tuple[str, ...]
    environment: Mapping[str, str]
    words: tuple[str, ...]
    is_check: bool
    hosts: tuple[str, ...] = ()
    done_before: tuple[str, ...] = ()


def run_action(options: argparse.Namespace, output: Output) -> int:
    """Run the playbook of an action and say how every host fared."""
    job = _prepare(options, output)
    is_changing = options.action in _CHANGING and not job.is_check
    with _hold(job, options, output) if is_changing else nullcontext():
        if options.action != "apply":
            return _run_and_report(job, None, options, output)
        state = _state_of(job, options)
        if options.resume:
            job = _leave_out_done(job, state.resume(), state.path, output)
            if not job.hosts:
                output.note("every host was finished before: nothing is left to do")
                if is_changing:
                    state.remove()
                return _report(job, Run(()), state, options, output, code=0)
        return _run_and_report(job, state if is_changing else None, options, output)


@contextmanager
def _hold(job: _Job, options: argparse.Namespace, output: Output) -> Iterator[None]:
    """Let no second run change the same hosts before this one has ended."""
    from provision.node.hold import hold_hosts

    with ExitStack() as stack:
        try:
            stack.enter_context(hold_hosts(options.state, _name_hosts(job, options), options.action))
        except OSError as error:
            # As with the note of what is finished: the nodes matter more.
            output.warn(f"no lock can be had in {options.state}, so a second run is not kept out: {error.strerror}")
        yield


def _run_and_report(job: _Job, state: Any, options: argparse.Namespace, output: Output) -> int:
    run = Run(job.hosts)
    interrupted, code, errors = _run(job, run, state, options, output)
    for row in _describe_locks(job, run, options):
        if row["origin"] == "inventory":
            output.note(f"the lock of {', '.join(row['hosts'])} was the inventory's, {row['name']}")
    results = run.results()
    is_fine = all(row.status in (OK, CHANGED) for row in results)
    exit_code = EXIT_INTERRUPTED if interrupted else _exit_code(job, run, code, options)
    if state is not None and is_fine and exit_code == 0:
        state.remove()
    if errors and exit_code not in (0, EXIT_INTERRUPTED) and all(row.message is None for row in results):
        # Nothing of it is any host's fault, so only Ansible's own words can tell.
        raise ActionFailedError(
            f"ansible-playbook ended with {code} and no host's error",
            because=errors,
            hints=("`--log DIR` keeps all that it printed",) if options.log is None else (f"see {options.log}",),
            details={"result": _document(job, run, options, state)},
        )
    _report(job, run, state, options, output, code=exit_code, was_interrupted=interrupted)
    for sentence in _next_steps(job, run, state, options):
        output.note(f"{_hint(output)} {sentence}")
    if options.action == "plan" and exit_code == 0 and any(row.status == CHANGED for row in results):
        output.note("next: the same command with `apply` in place of `plan` makes it so")
    return exit_code


def _next_steps(job: _Job, run: Run, state: Any, options: argparse.Namespace) -> Iterator[str]:
    """Yield what to do about hosts that are not what they should be, as commands."""
    from provision.node.ansible import find_way_out
    from provision.probe.clean import clean_line

    yield from dict.fromkeys(found for row in run.results() if (found := find_way_out(row.message or "")))
    hosts = {
        status: ",".join(clean_line(row.name) for row in run.results() if row.status == status)
        for status in (FAILED, UNREACHABLE)
        if 0 < sum(row.status == status for row in run.results()) <= _NAMES_MAX
    }
    where = [word for name in job.inventories for word in ("-i", name)]
    if names := hosts.get(UNREACHABLE):
        way = [f"--user={options.user}"] if options.user else []
        way += [f"--private-key={options.private_key}"] if options.private_key else []
        ping = shlex.join(("ansible", names, *where, *way, "-m", "ansible.builtin.ping"))
        yield f"`{ping}` tries the connection alone"
        if len(names.split(",")) < len(job.hosts):
            rest = shlex.quote(":".join((options.limit or "all", *(f"!{name}" for name in names.split(",")))))
            yield f"`--limit {rest}` on the same command does the others without"
    if job.action == "verify" and (names := hosts.get(FAILED)):
        yield "`provision node apply` with the same inventory and lock brings back what is missing"
        if len(job.inventories) == 1 and "," not in job.inventories[0]:
            words = shlex.join(("provision", "doctor", "-i", job.inventories[0], "--limit", names))
            yield f"`{words}` looks for deeper causes"
    if state is not None and state.path.exists():
        yield "`--resume` on the same command goes on with the hosts that are left"


def _prepare(options: argparse.Namespace, output: Output) -> _Job:
    from provision.node.ansible import make_environment
    from provision.node.hosts import GROUP, check_inventory, list_hosts, take_slice
    from provision.node.lock import digest_inventory_locks
    from provision.node.playbook import playbook_path
    from provision.node.variables import parse_variables

    playbook = playbook_path("upgrade" if getattr(options, "upgrade", False) else options.action)
    is_rollback = options.action == "rollback"
    lock = None if is_rollback and options.lock is None else read_lock(options)
    variables = parse_variables(options.variables or ())
    values = {name: getattr(options, name, None) for name in ("to", "level")}
    if is_rollback and lock is not None:
        if options.to is not None:
            raise UsageError("--to and --lock both name a generation", hints=("keep one of the two",))
        # Every node holds the lock of each of its generations, and takes it from there.
        values["lock"] = lock.digest
    for flag, name in (("to", "gpu_rollback_to"), ("lock", "gpu_rollback_to"), ("level", "gpu_verify_level")):
        value = values.get(flag)
        if value is not None and variables.setdefault(name, value) != value:
            raise UsageError(f"--{flag} and -e {name} say different things", hints=("keep one of the two",))
    tags = _read_tags(getattr(options, "tags", None) or (), playbook)
    inventories = tuple(dict.fromkeys(map(check_inventory, options.inventories or ())))
    environment = make_environment(os.environ)
    passwords = {name: getattr(options, f"{name}_password_file") for name in _PASSWORD_FILES}
    vault = [f"--vault-password-file={passwords['vault']}"] if passwords["vault"] else []
    words = [f"--{name}-password-file={path}" for name, path in passwords.items() if path]
    if options.user:
        words.append(f"--user={options.user}")
    if options.private_key:
        words.append(f"--private-key={options.private_key}")
    pattern = variables.get("gpu_hosts", GROUP)
    if not isinstance(pattern, str) or not pattern or pattern.startswith("-"):
        raise UsageError("-e gpu_hosts: it is not a pattern of hosts", hints=("write it as in `-e gpu_hosts=all`",))
    hosts = list_hosts(inventories, pattern=pattern, limit=options.limit, words=vault, environment=environment)
    if options.slice_word is not None:
        hosts = take_slice(hosts, options.slice_word)
    if lock is not None and lock.is_committed and digest_inventory_locks(inventories):
        # Which hosts have it only Ansible knows; the result says it.
        output.note("lock: the inventory's own")
    elif lock is not None:
        output.note(f"lock {lock.name}{' of the playbooks' * lock.is_committed}; facts of {lock.facts_date}")
        if output.verbosity > 0:
            output.note(f"lock digest {lock.digest}")
    return _Job(
        action=options.action,
        playbook=playbook,
        lock=lock,
        variables=variables,
        tags=tags,
        inventories=inventories,
        environment=environment,
        words=tuple(words),
        is_check=options.action == "plan" or output.is_dry_run,
        hosts=hosts,
    )


def read_lock(options: argparse.Namespace) -> NodeLock:
    """Read the lock that ``--lock`` names, or the one that the playbooks have.

    Args:
        options: ``lock`` is a ``provision_lock.yml``, or a ``provision.lock`` that was made for nodes.

    Raises:
        UsageError: It is not a lock of nodes.
    """
    if options.lock is None:
        return committed_lock()
    if not os.path.lexists(options.lock):
        words = shlex.join(("provision", "node", "lock", "--gpu", "h100", "-o", str(options.lock)))
        raise UsageError(f"--lock: {options.lock} does not exist", hints=(f"`{words}` writes one for such GPUs",))
    if os.access(inside := options.lock / COMMITTED, os.R_OK):
        raise UsageError(
            f"--lock: {options.lock} is a folder",
            hints=(f"the lock of that site is `--lock {shlex.quote(str(inside))}`",),
        )
    text = read_text(options.lock, "--lock", bytes_max=_LOCK_BYTES_MAX)
    where = f"--lock: {options.lock}"
    if not _is_stack(text):
        return parse_lock(text, where)
    from provision.generate.node import render_node_lock
    from provision.resolve.request import to_flags
    from provision.resolve.stack import Stack

    stack = Stack.from_lock(text)
    if stack.node is None:
        words = shlex.join(("provision", "node", "lock", *to_flags(stack.request)))
        raise UsageError(f"{where} is a lock of images, not of nodes", hints=(f"`{words}` writes one",))
    return parse_lock(render_node_lock(stack, read_matrix(options)), where)


def _is_stack(text: str) -> bool:
    """Tell whether a text is a ``provision.lock`` and not what Ansible reads."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return "lock_digest" in json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False


def _read_tags(words: list[str] | tuple[()], playbook: Path) -> tuple[str, ...]:
    from provision.node.playbook import known_tags

    tags = tuple(dict.fromkeys(tag.strip() for word in words for tag in word.split(",")))
    known = known_tags(playbook) if tags else ()
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise UsageError(f"--tags `{shown(tag)}` is not a tag", hints=("write them as in `--tags driver,cuda`",))
        if known and tag not in known:
            hints = (*did_you_mean(tag, known), f"choose of {', '.join(known)}")
            raise UsageError(f"--tags `{shown(tag)}`: no part is called so", hints=hints)
    return tags


def _state_of(job: _Job, options: argparse.Namespace) -> Any:
    from provision.node.lock import digest_folder, digest_inventory_locks
    from provision.node.state import Identity, StateFile

    variables = json.dumps(job.variables, sort_keys=True).encode()
    patterns = ("*.yml", "group_vars/**/*", "filter_plugins/*.py", "roles/**/*.*", "tasks/**/*")
    lock = "" if job.lock is None else job.lock.digest
    if job.lock is not None and job.lock.is_committed:
        # An inventory's own lock comes before the playbooks'.
        lock += digest_inventory_locks(job.inventories)
    identity = Identity(
        lock=lock,
        playbook=digest_folder(job.playbook.parent, patterns),
        tags=job.tags,
        variables=hashlib.sha256(variables).hexdigest(),
    )
    return StateFile(options.state, (job.playbook.name, *_name_hosts(job, options)), identity)


def _name_hosts(job: _Job, options: argparse.Namespace) -> tuple[str, ...]:
    """Return the words that name the hosts of a run."""
    return (
        *(str(Path(word).resolve()) if "," not in word else word for word in job.inventories),
        f"limit {options.limit}",
        f"slice {options.slice_word}",
    )


def _leave_out_done(job: _Job, done: tuple[str, ...] | None, path: Path, output: Output) -> _Job:
    if done is None:
        output.note(f"no run broke off ({path} does not exist): all {len(job.hosts)} hosts are done")
        return job
    left = tuple(name for name in job.hosts if name not in done)
    before = tuple(name for name in job.hosts if name in done)
    if left:
        done_words = f"{len(before)} of {len(job.hosts)} hosts {'was' if len(before) == 1 else 'were'} finished before"
        output.note(f"{done_words}; {len(left)} {'is' if len(left) == 1 else 'are'} left")
    return replace(job, hosts=left, done_before=before)


def _run(
    job: _Job, run: Run, state: Any, options: argparse.Namespace, output: Output
) -> tuple[bool, int | None, tuple[str, ...]]:
    from provision.node.ansible import has_configuration
    from provision.node.playbook import Order, run_playbook

    forks = options.forks
    if forks is None and "ANSIBLE_FORKS" not in job.environment and not has_configuration(os.environ):
        forks = min(_FORKS, max(5, len(job.hosts)))
    order = Order(
        playbook=job.playbook,
        hosts=job.hosts,
        inventories=job.inventories,
        lock=None if job.lock is None or job.lock.is_committed or job.action == "rollback" else job.lock.document,
        variables=job.variables,
        tags=job.tags,
        forks=forks,
        is_check=job.is_check,
        has_diff=job.is_check or output.verbosity > 0,
        words=job.words,
        verbosity=max(0, output.verbosity - 1),
        log=options.log,
        log_name=job.action,
    )
    saved: set[str] = set()
    if state is not None:
        _save(state, {}, output)

    def keep(event: Mapping[str, Any]) -> None:
        if state is None or event["event"] not in ("play", "stats"):
            return
        done = {row.name: row.status for row in run.results() if row.status in (OK, CHANGED)}
        if done.keys() - saved:
            saved.update(done)
            _save(state, done, output)

    with _progress(run, job, output) as show:

        def on_event(event: dict[str, Any]) -> None:
            keep(event)
            show(event)

        outcome = run_playbook(order, run, environment=job.environment, on_event=on_event)
    if run.unread:
        output.warn(f"{run.unread} lines of Ansible's events could not be read")
    return outcome.was_interrupted, outcome.code, outcome.errors


def _save(state: Any, done: Mapping[str, str], output: Output) -> None:
    try:
        state.save(done)
    except OSError as error:
        # The nodes matter more than the note about them.
        output.warn(f"{state.path} cannot be written, so `--resume` will not know of this run: {error.strerror}")


@contextmanager
def _progress(run: Run, job: _Job, output: Output) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show what happens: a table where the standard error is a terminal, lines elsewhere, nothing with ``-q``."""
    if output.verbosity < 0:
        yield lambda _: None
        return
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if is_terminal:
        from provision.cli.node.board import NodeBoard

        with NodeBoard(run, job.hosts, has_color=output.color != "never" and not os.environ.get("NO_COLOR")):
            yield lambda _: None
        return
    yield lambda event: _tell(event, run, output)


def _tell(event: Mapping[str, Any], run: Run, output: Output) -> None:
    """Say one event in a line."""
    from provision.probe.clean import clean_line

    kind = event["event"]
    if kind == "play":
        output.note(f"play: {run.play}{f' (batch {run.batch})' if run.batch > 1 else ''}")
    elif kind == "task" and output.verbosity > 0:
        output.note(f"task: {f'{run.role}: ' if run.role else ''}{run.task}")
    elif kind == "result" and event["status"] in ("changed", "failed", "unreachable"):
        place = f"{event['role']}: " if event.get("role") else ""
        output.note(clean_line(f"{event['host']}: {event['status']}: {place}{event['task']}"))


def _exit_code(job: _Job, run: Run, code: int | None, options: argparse.Namespace) -> int:
    statuses = {row.status for row in run.results()}
    failed = VerificationFailedError if job.action == "verify" else ActionFailedError
    bad = statuses - {OK, CHANGED}
    if bad == {UNREACHABLE}:
        return MissingDependencyError.exit_code
    if bad or code:
        return failed.exit_code
    if getattr(options, "fail_on_change", False) and CHANGED in statuses:
        return DriftError.exit_code
    return 0


def _document(job: _Job, run: Run, options: argparse.Namespace, state: Any) -> dict[str, Any]:
    from provision.cli.node.screen import write_results

    locks = _describe_locks(job, run, options)
    return {
        "action": job.action,
        "playbook": str(job.playbook),
        "is_check": job.is_check,
        # Where hosts have different ones no single lock can be named.
        "lock": {key: value for key, value in locks[0].items() if key != "hosts"} if len(locks) == 1 else None,
        "locks": locks,
        "ansible": run.ansible,
        "tags": list(job.tags),
        "done_before": list(job.done_before),
        "log": None if options.log is None else str(options.log),
        "state": str(state.path) if state is not None and state.path.exists() else None,
        **write_results(run.results(), has_diff=job.is_check or options.verbose > 0),
    }


def _describe_locks(job: _Job, run: Run, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the locks that are used, with their hosts; none where nobody can tell."""
    lock = job.lock
    if lock is None:
        return []
    if lock.is_committed and not run.locks:
        from provision.node.lock import digest_inventory_locks

        if digest_inventory_locks(job.inventories):
            # Ansible has not said which of the two it takes.
            return []
    if not lock.is_committed or not run.locks:
        origin = "playbooks" if lock.is_committed else str(options.lock)
        return [_lock_row(lock.name, lock.digest, lock.facts_date, origin, job.hosts)]
    return [
        _lock_row(
            row.name, row.digest, row.facts_date, "playbooks" if row.digest == lock.digest else "inventory", row.hosts
        )
        for row in run.locks
    ]


def _lock_row(name: str, digest: str, facts_date: str, origin: str, hosts: tuple[str, ...]) -> dict[str, Any]:
    return {"name": name, "digest": digest, "facts_date": facts_date, "origin": origin, "hosts": list(hosts)}


def _report(
    job: _Job,
    run: Run,
    state: Any,
    options: argparse.Namespace,
    output: Output,
    *,
    code: int,
    was_interrupted: bool = False,
) -> int:
    from provision.cli.node.screen import show_results

    results = run.results()
    document = _document(job, run, options, state) | {"is_interrupted": was_interrupted}
    text = show_results(results, output, is_check=job.is_check, done_before=len(job.done_before))
    output.give(document, text, is_ok=code == 0)
    if was_interrupted:
        output.note(f"{output.paint('error:', 'error', sys.stderr)} interrupted")
    return code


def _hint(output: Output) -> str:
    return output.paint("hint:", "hint", sys.stderr)
