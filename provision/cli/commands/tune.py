"""Recommend settings of NCCL, frameworks, kernel and mounts for a machine and a job, and refuse settings that do harm.

The hardware comes from a target, from a bundle (--from) or, by default, from this machine. If no machine can be
inspected, describe one (--gpus, --cpus, --numa-nodes, --interconnect, --network-gbit, --container); settings that
depend on a value that is not given are left out. --lock tells which versions run there. Each setting is shown with its
reason, its source and the versions it applies to. Settings that are safe without a measurement are marked; --also adds
another by its id.

--set checks a setting of your own: one that contradicts its vendor's documentation ends with exit code 3 and the fact;
one that has no effect or is deprecated gets a warning. -o writes the chosen settings: variables of role gpu_nccl, an
env file for images, and files for the kernel, limits and logind.

Examples:
  provision tune --nodes 2
  provision tune gpu001 --lock provision.lock --nodes 2 -o tuning
  provision tune --from gpu001.tar.gz --set NCCL_IB_DISABLE=1
  provision tune --gpus 8 --cpus 128 --numa-nodes 2 --interconnect ib --nodes 4
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value, did_you_mean, parse_path
from provision.cli.request import read_matrix
from provision.cli.targets import add_target_flags, collect_from, has_no_gpu
from provision.cli.text.paragraph import columns_of, wrap
from provision.cli.tune.machine import add_machine_flags
from provision.errors import IncompatibleError, MissingDependencyError, UsageError, shown

if TYPE_CHECKING:
    from provision.generate.tuning import Advice, Judgement, Situation
    from provision.matrix.load import Matrix
    from provision.probe.snapshot import Snapshot

_NODES_MAX = 100_000
_MARKS = ("{{", "{%", "{#")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_target_flags(parser)
    add_machine_flags(parser)
    job = parser.add_argument_group("job")
    add_value(job, "--lock", "FILE", "lock of the image or of the nodes", parse_path)
    add_value(job, "--nodes", "N", "number of machines (default: 1)", whole("--nodes", 1, _NODES_MAX))
    add_switch(job, "--shared-gpu", "the job shares its GPU with others")
    add_switch(job, "--nfs", "the job reads its data over NFS")
    add_switch(job, "--firewall", "there is a firewall between the machines")
    chosen = parser.add_argument_group("settings")
    add_value(chosen, "--also", "ID", "also use this recommendation; may be repeated", action="append")
    add_value(
        chosen,
        "--set",
        "NAME=VALUE",
        "check this setting and use it; may be repeated",
        action="append",
        dest="settings",
    )
    out = parser.add_argument_group("output")
    add_value(out, "--output", "DIR", "output folder (default: write nothing)", parse_path, short="-o", dest="folder")


def run(options: argparse.Namespace, output: Output) -> int:
    """Look, recommend, judge, write.

    Raises:
        IncompatibleError: The facts refute a setting of ``--set``.
        UsageError: More than one machine, an unknown id, or a malformed setting.
    """
    from provision.generate.tuning import judge, parse_setting, recommend

    settings = [parse_setting(text) for text in options.settings or ()]
    if len({name for name, _ in settings}) < len(settings):
        raise UsageError("--set names one setting twice", hints=("keep one of the two",))
    for name, value in settings:
        if any(mark in value for mark in _MARKS):
            raise UsageError(f"--set {name} holds a template", because=("Ansible would run it",))
    matrix = read_matrix(options)
    situation = _situation(options, output)
    judgements = judge(settings, situation, matrix)
    refuse_settings(judgements)
    found = recommend(situation, matrix)
    chosen = _choose(found, options.also or ())
    for item in judgements:
        if item.row is not None:
            output.warn(f"{item.name}={item.value}: {item.row.truth}; {item.row.instead}")
    written = _write(options, chosen, settings, matrix, output)
    output.note(f"facts of {matrix.dated}")
    ids = {advice.row.id for advice in chosen}
    document = {
        "libraries": dict(situation.libraries),
        "conditions": sorted(situation.facts),
        "settings": [_row(advice, advice.row.id in ids) for advice in found],
        "judged": [_judged(item) for item in judgements],
        "written": written,
    }
    output.give(document, _text(found, ids, situation, output))
    return 0


def refuse_settings(judgements: Iterable[Judgement]) -> None:
    """Refuse settings that the facts refute.

    Raises:
        IncompatibleError: There is one.
    """
    refused = [item for item in judgements if item.is_refused]
    if not refused:
        return
    first = refused[0]
    because: list[str] = []
    for item in refused:
        if item.row is None:
            because.append(f"NCCL has no `{item.name}`   [nccl.toml: conf_keys]")
        else:
            because.append(f"{item.name}={item.value}: {item.row.truth}   [folk/{item.row.id}]")
    hints = [f"{item.name}: {item.row.instead}" for item in refused if item.row is not None]
    raise IncompatibleError(
        f"`{first.name}={first.value}` is refuted", because=tuple(because), hints=tuple(hints) or ("leave it out",)
    )


def _situation(options: argparse.Namespace, output: Output) -> Situation:
    from provision.cli.lock_file import read_subject
    from provision.cli.tune.machine import UNTOLD, is_described, situation_of_description
    from provision.cli.tune.situation import situation_of

    libraries = dict(read_subject(options.lock).libraries) if options.lock is not None else {}
    asked = {
        word
        for word, holds in (
            ("multi-node", (options.nodes or 1) > 1),
            ("shared-gpu", options.shared_gpu),
            ("nfs", options.nfs),
            ("firewall", options.firewall),
        )
        if holds
    }
    if is_described(options):
        output.note(f"a described machine: nothing is said of {UNTOLD}; a target or a bundle tells them")
        return situation_of_description(options, libraries, frozenset(asked))
    return situation_of(_machine(options, output), libraries, frozenset(asked))


def _machine(options: argparse.Namespace, output: Output) -> Snapshot:
    collection = collect_from(options, output)
    for name, why in collection.unreachable.items():
        raise MissingDependencyError(f"`{shown(name)}` cannot be reached", because=(why,))
    if len(collection.snapshots) != 1:
        raise UsageError(
            f"tune looks at one machine, not at {len(collection.snapshots)}",
            because=("settings follow from one topology; machines of the same build take the same",),
            hints=("name one target or one bundle",),
        )
    name, host = next(iter(collection.snapshots.items()))
    if has_no_gpu(host):
        output.warn(
            f"no NVIDIA GPU is visible on {shown(name)}: name the machine that the job runs on, or a bundle of it "
            "(`provision probe ssh://HOST --bundle FILE`, then `--from FILE`), or describe it (`--gpus N`)"
        )
    return host


def _choose(found: Sequence[Advice], also: Sequence[str]) -> tuple[Advice, ...]:
    known = {advice.row.id for advice in found}
    for name in also:
        if name not in known:
            raise UsageError(
                f"--also `{shown(name)}` is not a setting for this machine and job",
                hints=(*did_you_mean(name, known), "`provision tune` without it lists them"),
            )
    return tuple(advice for advice in found if advice.row.is_default or advice.row.id in also)


def _write(
    options: argparse.Namespace,
    chosen: Sequence[Advice],
    settings: Sequence[tuple[str, str]],
    matrix: Matrix,
    output: Output,
) -> list[str]:
    if options.folder is None:
        return []
    from provision.generate.tuning_files import FILES, render_tuning
    from provision.generate.write import write_artifacts

    kinds: dict[str, dict[str, str]] = {}
    for advice in chosen:
        if advice.row.kind in FILES:
            kinds.setdefault(advice.row.kind, {})[advice.row.name] = advice.value
    keys = matrix.setting("nccl.toml", "conf_keys").values
    for name, value in settings:
        kinds.setdefault("nccl" if name in keys else "env", {})[name] = value
    header = ("Written by `provision tune`; run it again rather than editing.", f"facts of {matrix.dated}")
    artifacts = render_tuning(kinds, header)
    changes = write_artifacts(options.folder, artifacts, dry_run=output.is_dry_run)
    if not artifacts:
        output.note("nothing of this goes into a file: nothing was written")
        return []
    verb = "would write" if output.is_dry_run else "wrote"
    output.note(
        f"{verb} {options.folder}: {', '.join(changes.written)}"
        if changes.written
        else f"{options.folder} is up to date"
    )
    return list(changes.written)


def _row(advice: Advice, is_chosen: bool) -> dict[str, Any]:
    row = advice.row
    return {
        "id": row.id,
        "kind": row.kind,
        "name": row.name,
        "value": advice.value,
        "is_default": row.is_default,
        "is_chosen": is_chosen,
        "library": row.library,
        "versions": row.versions,
        "when": list(row.when),
        "reason": row.reason,
        "source": list(row.source),
        "where": row.where,
    }


def _judged(item: Judgement) -> dict[str, Any]:
    row = item.row
    return {
        "name": item.name,
        "value": item.value,
        "verdict": row.verdict if row is not None else "unknown",
        "truth": row.truth if row is not None else None,
        "instead": row.instead if row is not None else None,
        "source": list(row.source) if row is not None else [],
    }


def _text(found: Sequence[Advice], chosen: set[str], situation: Situation, output: Output) -> str:
    if not found:
        return "nothing is known that helps here"
    lines = []
    for title, is_wanted in (("safe without a measurement", True), ("worth a measurement (--also ID)", False)):
        rows = [advice for advice in found if advice.row.is_default is is_wanted]
        if not rows:
            continue
        lines += [title, ""]
        for advice in rows:
            row = advice.row
            mark = " (taken)" if not is_wanted and row.id in chosen else ""
            lines.append(f"  {row.id}{mark}")
            lines.append(f"    {_assignment(advice)}")
            lines += wrap(row.reason, columns_of(output), lead="    ")
            span = f"{row.library} {row.versions or 'of any version'}; " if row.library else ""
            lines += [f"    {span}{', '.join(row.source)}: {row.where}", ""]
    known = ", ".join(f"{name} {version}" for name, version in sorted(situation.libraries.items()))
    lines.append(f"for {known or 'libraries of unknown version: name a lock with `--lock FILE`'}")
    return "\n".join(lines)


def _assignment(advice: Advice) -> str:
    row = advice.row
    between = {"limit": " ", "affinity": ": ", "mount": " -o "}.get(row.kind, "=")
    return f"{row.name}{between}{advice.value}"
