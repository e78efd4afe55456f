"""Flags that say which machines are looked at and how they are reached, shared by probe, verify and doctor."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, did_you_mean, parse_path
from provision.errors import MissingDependencyError, UsageError, shown
from provision.files import read_text
from provision.probe.catalogue import LEVELS, PROBES
from provision.probe.collect import PARALLEL, Collection, collect_targets
from provision.probe.output import NOT_RUN, Unreadable, read_or
from provision.probe.snapshot import Snapshot
from provision.probe.targets import FORMS, LOCAL, Target, parse_jump, parse_target
from provision.records import replace

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from provision.probe.collect import Adapt
    from provision.probe.compose import CollectOptions

Advance = Callable[[str, "bool | None"], None]
"""Takes a target that is done, and whether all is well there; ``None`` where it gave no answer."""

_MARGIN_SECONDS = 20.0
_HOSTS_BYTES_MAX = 16 * 1024 * 1024
_PARALLEL_MAX = 1024
_PORT_MAX = 65535
_SECONDS_MAX = 86400
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}")
_ENGINES = ("docker", "podman")


def add_target_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of targets, of the way there, and of what is collected."""
    where = parser.add_argument_group("targets", f"A target is {', '.join(FORMS)}. The default is this machine.")
    where.add_argument("targets", nargs="*", metavar="TARGET", help="machine, container, pod or image")
    add_host_flags(where)
    add_value(where, "--shard", "I/N", "only the I-th of N equal parts of the targets")
    add_value(
        where,
        "--from",
        "FILE",
        "read a bundle or the recorded output of another tool; may be repeated",
        parse_path,
        action="append",
        dest="bundles",
    )
    way = parser.add_argument_group("connection")
    add_value(way, "--user", "NAME", "ssh user, unless the target names one", _user)
    add_value(way, "--port", "N", "ssh port, unless the target names one", whole("--port", 1, _PORT_MAX, example="22"))
    add_value(way, "--identity", "FILE", "ssh private key", parse_path)
    add_value(way, "--jump", "HOST", "jump hosts, separated by commas", parse_jump)
    add_value(way, "--ssh-config", "FILE", "ssh configuration file", parse_path)
    add_value(
        way,
        "--parallel",
        "N",
        f"targets asked in parallel (default: {PARALLEL})",
        whole("--parallel", 1, _PARALLEL_MAX, example="16"),
    )
    add_value(way, "--timeout", "SECONDS", "timeout per target", whole("--timeout", 1, _SECONDS_MAX, example="120"))
    add_value(
        way,
        "--connect-timeout",
        "SECONDS",
        "timeout per connection (default: 10)",
        whole("--connect-timeout", 1, _SECONDS_MAX, example="30"),
    )
    add_choice(way, "--engine", _ENGINES, help="container engine that starts images")
    add_switch(way, "--with-gpus", "start images with all GPUs", dest="has_gpus", default=None)
    way.add_argument("--no-gpus", dest="has_gpus", action="store_false", default=None, help="start images without GPUs")
    add_value(way, "--python", "PATH", "Python on the target whose frameworks are inspected", _python)


def add_host_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags that name lists of machines."""
    add_value(group, "--hosts", "FILE", "file with one target per line (- is stdin)", parse_path)
    add_value(group, "--inventory", "FILE", "Ansible inventory: file, folder or script", parse_path, short="-i")
    add_value(group, "--limit", "PATTERN", "hosts of the inventory, as a pattern of Ansible")


def add_probe_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what is collected, for commands that have no other way to know."""
    what = parser.add_argument_group("what to collect")
    add_choice(what, "--level", LEVELS, help="how much to collect (default: quick)")
    add_value(what, "--probes", "NAMES", "only these probes, separated by commas", _probes)


def has_targets(options: argparse.Namespace) -> bool:
    """Tell whether the flags name a target or a bundle; without either it would be this machine."""
    return bool(options.targets or options.bundles or options.hosts or options.inventory or _scheduler_of(options))


def targets_of(options: argparse.Namespace) -> tuple[Target, ...]:
    """Return the targets that the flags name, each once; this machine where they name none and no bundle.

    Raises:
        UsageError: A target, a file or a part is not as it should be.
        MissingDependencyError: An inventory was named and ansible-core is not installed.
    """
    # The standard input can be read once, and Ansible takes seconds.
    if "known_targets" not in options:
        options.known_notes = ()
        options.known_targets = _find_targets(options)
    found: tuple[Target, ...] = options.known_targets
    return found


def expectations_of(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return target → what its inventory says it must have, where it says something."""
    return {target.name: dict(target.expect) for target in targets_of(options) if target.expect}


def collect_options(options: argparse.Namespace) -> CollectOptions:
    """Return what is to be collected."""
    from provision.probe.compose import CollectOptions, new_nonce

    given = {name: getattr(options, name, None) for name in ("level", "probes", "python", "engine")}
    return CollectOptions(nonce=new_nonce(), **{name: value for name, value in given.items() if value})


def collect_from(options: argparse.Namespace, output: Output, what: CollectOptions | None = None) -> Collection:
    """Collect from every target and read every bundle that the flags name.

    Args:
        options: The flags of :func:`add_target_flags`.
        output: Where progress is shown.
        what: What to collect, where it is not what the flags say.

    Raises:
        UsageError: A target or a bundle is not as it should be.
        MissingDependencyError: A program of this machine is needed, and nothing was collected without it.
    """
    snapshots: dict[str, Snapshot] = {}

    def take(snapshot: Snapshot) -> bool:
        snapshots[snapshot.target] = snapshot
        return True

    unreachable = collect_each(options, output, take, what)
    # Bundles come first; live targets came in the order in which they answered.
    live = dict.fromkeys(target.name for target in targets_of(options))
    order = [*(name for name in snapshots if name not in live), *(name for name in live if name in snapshots)]
    return Collection(snapshots={name: snapshots[name] for name in order}, unreachable=unreachable)


def collect_each(
    options: argparse.Namespace,
    output: Output,
    take: Callable[[Snapshot], bool],
    what: CollectOptions | None = None,
    show: Callable[[int], AbstractContextManager[Advance]] | None = None,
    adapt: Adapt | None = None,
) -> Mapping[str, str]:
    """Hand over what came from each target and bundle as it comes, and keep none of it.

    Args:
        options: The flags of :func:`add_target_flags`.
        output: Where progress is shown.
        take: Called with each snapshot; tells whether all is well there, which the progress line counts.
        what: What to collect, where it is not what the flags say.
        show: Makes what shows progress of so many targets to a person, in place of the progress line.
        adapt: Returns what to collect from one target, where that is not the same for all.

    Returns:
        Target → why nothing came, in the order in which the targets were named.

    Raises:
        UsageError: A target or a bundle is not as it should be.
        MissingDependencyError: A program of this machine is needed, and nothing was collected without it.
    """
    targets = targets_of(options)
    for note in options.known_notes:
        output.warn(note)
    names = {target.name for target in targets}
    count = 0
    for path in options.bundles or ():
        for snapshot in _read_bundle(path, names):
            take(snapshot)
            count += 1
    if not targets:
        return {}
    with _progress(len(targets), output, show or _Line) as advance:

        def on_done(name: str, snapshot: Snapshot | None, reason: str) -> None:
            del reason
            is_fine = take(snapshot) if snapshot is not None else None
            if advance is not None:
                advance(name, is_fine)

        if _scheduler_of(options):
            return _collect_by_scheduler(options, targets, what or collect_options(options), adapt, on_done)
        found = collect_targets(
            targets,
            what or collect_options(options),
            parallel=options.parallel or PARALLEL,
            seconds=options.timeout,
            connect_seconds=options.connect_timeout or 10,
            on_done=on_done,
            keeps_snapshots=False,
            adapt=adapt,
        )
    if found.missing and not count and len(found.unreachable) == len(targets):
        raise found.missing[0]
    return found.unreachable


def _collect_by_scheduler(
    options: argparse.Namespace,
    targets: tuple[Target, ...],
    what: CollectOptions,
    adapt: Adapt | None,
    on_done: Callable[[str, Snapshot | None, str], None],
) -> dict[str, str]:
    """Ask all idle nodes at once; all of them get the same program."""
    import gc

    from provision.probe.collect import read_answer
    from provision.probe.compose import compose
    from provision.probe.transports import UnreachableError, ray, slurm

    gc.enable()
    what = what if adapt is None else adapt(targets[0], what)
    unreachable = {target.name: options.known_reasons.get(target.name, "") for target in targets}
    free = [name for name, why in unreachable.items() if not why]
    seconds = options.timeout or what.deadline_seconds() + _MARGIN_SECONDS
    for name, why in list(unreachable.items()):
        if why:
            on_done(name, None, why)
    asked: Iterable[tuple[str, bytes, str]] = ()
    if free and _scheduler_of(options) == "slurm":
        asked = slurm.ask_nodes(free, compose(what), seconds=seconds, partition=options.partition)
    elif free:
        asked = ray.ask_nodes(free, compose(what), seconds=seconds)
    for name, answer, said in asked:
        snapshot, reason = None, said
        if not said:
            try:
                snapshot = read_answer(name, answer, what)
            except UnreachableError as error:
                reason = str(error)
        unreachable[name] = reason
        on_done(name, snapshot, reason)
    return {name: why for name, why in unreachable.items() if why}


def run_on_target(options: argparse.Namespace, name: str, command: str, seconds: float) -> tuple[int, str]:
    """Run one command on a target and return its exit code and its output; of one that failed, its errors if any.

    Commands on one host share a connection, which is closed when the program ends.

    Args:
        options: The flags that named the target.
        name: The target, as results are filed under it.
        command: One line for ``sh``.
        seconds: After this it is ended.

    Raises:
        MissingDependencyError: The target cannot be reached.
        UsageError: Nothing can be run there.
    """
    import asyncio
    import atexit

    from provision.probe.collect import run_command
    from provision.probe.transports import UnreachableError
    from provision.probe.transports.ssh import Connections

    target = next((target for target in targets_of(options) if target.name == name), None)
    if target is None:
        raise UsageError(f"`{shown(name)}` is a record of a machine, and nothing can be run on it")
    if "connections" not in options:
        connections = Connections(is_kept=True)
        atexit.register(lambda: asyncio.run(connections.close()))
        options.connections = connections
    try:
        code, out, said = asyncio.run(run_command(target, command, seconds, options.connections))
    except UnreachableError as error:
        hints = (error.hint,) if error.hint else ()
        raise MissingDependencyError(
            f"`{shown(name)}` cannot be reached", because=(error.reason,), hints=hints
        ) from error
    return code, (said.strip() if code else "") or out.strip()


def _scheduler_of(options: argparse.Namespace) -> str | None:
    via: str | None = getattr(options, "via", None)
    return via


def _find_nodes(options: argparse.Namespace) -> tuple[Target, ...]:
    """Return the nodes that a scheduler reaches; ``options.known_reasons`` says why some cannot be asked now.

    Raises:
        UsageError: A flag of another way to name hosts, or to reach them, was given too.
    """
    from provision.probe.transports import Node, ray, slurm

    via = options.via
    title = {"slurm": "Slurm", "ray": "Ray"}[via]
    for flag in ("hosts", "inventory", "limit", "user", "port", "identity", "jump", "ssh_config", "connect_timeout"):
        if getattr(options, flag) is not None:
            raise UsageError(
                f"--{flag.replace('_', '-')} has no effect with --via {via}",
                because=(f"{title} knows its nodes and reaches them",),
                hints=(f"name nodes as {title} does, or leave --via out",),
            )
    listed: Iterable[Node] = (
        ray.list_nodes(options.targets) if via == "ray" else slurm.list_nodes(options.targets, options.partition)
    )
    why = {node.name: node.why for node in listed}
    options.known_reasons = {name: reason for name, reason in why.items() if reason}
    found = tuple(Target(name=name, kind=via, host=name) for name in why)
    if options.shard is not None:
        from provision.probe.inventory import take_shard

        return take_shard(found, options.shard)
    return found


def _find_targets(options: argparse.Namespace) -> tuple[Target, ...]:
    if _scheduler_of(options):
        return _find_nodes(options)
    targets = [parse_target(text) for text in options.targets]
    if options.hosts is not None:
        from provision.probe.inventory import parse_hosts

        name = "the standard input" if str(options.hosts) == "-" else str(options.hosts)
        targets += parse_hosts(read_text(options.hosts, "--hosts", bytes_max=_HOSTS_BYTES_MAX), name)
    if options.inventory is not None:
        from provision.probe.inventory import read_inventory

        inventory = read_inventory(options.inventory, options.limit)
        options.known_notes = inventory.notes
        # A name that the inventory knows is its host, and not one that happens to be called so.
        known = {target.name: target for target in inventory.targets}
        targets = [*(known.get(target.name, target) for target in targets), *inventory.targets]
    elif options.limit is not None:
        raise UsageError("--limit chooses from an inventory", hints=("add `--inventory FILE`",))
    if not targets and not options.bundles:
        targets = [LOCAL]
    once: dict[str, Target] = {}
    for target in targets:
        once.setdefault(target.name, target)
    found = tuple(_complete(target, options) for target in once.values())
    if options.shard is not None:
        from provision.probe.inventory import take_shard

        return take_shard(found, options.shard)
    return found


def _complete(target: Target, options: argparse.Namespace) -> Target:
    """Fill in what flags say and the target does not."""
    if target.kind == "image":
        return replace(target, engine=options.engine or "", has_gpus=options.has_gpus)
    if target.kind != "ssh":
        return target
    given = {
        "user": options.user,
        "port": options.port,
        "identity": str(options.identity.expanduser()) if options.identity else "",
        "config": str(options.ssh_config.expanduser()) if options.ssh_config else "",
        "jump": options.jump,
    }
    for flag in ("identity", "config"):
        if given[flag] and not Path(given[flag]).is_file():
            name = "--ssh-config" if flag == "config" else "--identity"
            raise UsageError(f"{name}: {given[flag]} is not a file")
    return replace(target, **{name: value for name, value in given.items() if value and not getattr(target, name)})


def _read_bundle(path: Path, taken: set[str]) -> Iterator[Snapshot]:
    """Yield the snapshots of a bundle or record; a name that another one has already gets the file's behind it."""
    from provision.probe.bundle import read_bundle
    from provision.probe.recordings.read import is_bundle, read_recordings

    for snapshot in read_bundle(path) if is_bundle(path) else read_recordings(path):
        name, number = snapshot.target, 1
        while name in taken:
            mark = path.name if number == 1 else f"{path.name}, {number}"
            name, number = f"{snapshot.target} ({mark})", number + 1
        taken.add(name)
        yield Snapshot(name, snapshot.outputs, collected=snapshot.collected, version=snapshot.version)


def _progress(
    count: int, output: Output, show: Callable[[int], AbstractContextManager[Advance]]
) -> AbstractContextManager[Advance | None]:
    """Return what tells how many have answered, where a person watches and there is something to wait for."""
    if output.verbosity < 0 or sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    return show(count)


class _Line:
    """One line on the standard error that goes away when all is done."""

    def __init__(self, count: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("collecting"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("collecting", total=count, last="")
        self._silent = 0
        self._failing = 0

    def __enter__(self) -> Advance:
        self._bar.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _advance(self, name: str, is_fine: bool | None) -> None:
        self._silent += is_fine is None
        self._failing += is_fine is False
        counts = ((self._failing, "with failures"), (self._silent, "without an answer"))
        said = ", ".join(f"{count} {words}" for count, words in counts if count)
        self._bar.update(self._task, advance=1, last=said or name)


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise UsageError(f"--user `{shown(text)}` is not a user name")
    return text


def _python(text: str) -> str:
    if not text or text.startswith("-") or not text.isprintable():
        raise UsageError(
            f"--python `{shown(text)}` is not an interpreter", hints=("name it: `--python /opt/venv/bin/python`",)
        )
    return text


def _probes(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in PROBES:
            raise UsageError(
                f"--probes: `{shown(name)}` is not known",
                hints=(*did_you_mean(name, PROBES), "`provision probe --list` lists them"),
            )
    if not names:
        raise UsageError("--probes names none", hints=("`provision probe --list` lists them",))
    return names


def has_no_gpu(host: Snapshot) -> bool:
    """Whether neither the bus nor the driver of a machine shows an NVIDIA GPU; a record that asked neither has none."""
    if all(host.output(probe).status == NOT_RUN for probe in ("pci", "lspci", "nvidia-smi-xml")):
        return False
    try:
        if any(device.is_nvidia_gpu for device in host.pci):
            return False
    except Unreadable:
        pass
    return read_or(lambda: not host.smi.gpus, True)
