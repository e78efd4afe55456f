"""Inspect machines, containers and images, without judging what is found.

One round trip per target collects everything; nothing is installed or left behind. A probe that gets no answer is
reported as such. --bundle writes everything to one file, with secrets removed; --from reads it again here, in
`provision verify` and in `provision doctor`.

--parse reads recorded output of one tool from a file and shows what was understood, or why it cannot be read. --list
lists the probes and tools.

Examples:
  provision probe
  provision probe ssh://gpu001 ssh://gpu002 --json
  provision probe ssh://gpu001 --level deep --bundle gpu001.tar.gz --mask
  provision probe --parse nvidia-smi-xml gpu001.xml
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value, did_you_mean, parse_path
from provision.cli.targets import add_probe_flags, add_target_flags, collect_from, has_targets
from provision.cli.text.paragraph import wrap
from provision.cli.text.screen import align
from provision.errors import MissingDependencyError, UsageError, shown
from provision.probe.catalogue import PROBES
from provision.probe.clean import clean_line
from provision.probe.collect import Collection
from provision.probe.output import OK, Unreadable
from provision.probe.snapshot import Snapshot

_PARSE_BYTES_MAX = 256 * 1024 * 1024

VALUES: dict[str, str] = {
    "os-release": "os_release",
    "uname": "uname",
    "command-line": "command_line",
    "virtualization": "virtualization",
    "kernels": "kernels",
    "modules": "modules",
    "module-nvidia": "nvidia_module",
    "driver-version": "driver",
    "driver-params": "driver_params",
    "driver-gpus": "driver_gpus",
    "driver-firmware": "firmware",
    "secure-boot": "secure_boot",
    "reboot-required": "reboot_required",
    "packages": "packages",
    "holds": "holds",
    "dkms": "dkms",
    "initramfs": "initramfs",
    "kernel-log": "kernel_log",
    "units": "units",
    "fabric-manager": "fabric_manager",
    "limits": "limits",
    "file-systems": "file_systems",
    "environment": "environment",
    "libraries": "libraries",
    "device-nodes": "device_nodes",
    "device-users": "device_users",
    "pci": "pci",
    "lspci": "lspci",
    "clock": "clock",
    "interfaces": "interfaces",
    "firewall": "firewall",
    "infiniband": "rdma_ports",
    "nvidia-smi-xml": "smi",
    "nvidia-smi-topology": "topology",
    "nvidia-smi-p2p": "p2p",
    "nvlink-status": "nvlinks",
    "nvlink-errors": "nvlink_errors",
    "nvlink-errors-later": "nvlink_errors_later",
    "nvcc": "nvcc",
    "docker-config": "docker",
    "containerd-config": "containerd",
    "toolkit": "toolkit",
    "toolkit-config": "toolkit_config",
    "cdi": "cdi",
    "exporter": "exporter",
    "textfile": "textfile_age_seconds",
    "python": "python",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "docker-info": "docker_info",
    "cuda-work": "cuda_work",
    "torch-work": "torch_work",
    "torch-nccl": "torch_nccl",
    "container-gpu": "container_gpus",
    "ports": "ports",
    "dcgmi-diag": "diag",
    "nvbandwidth": "nvbandwidth",
    "dcgmi-diag-2": "diag_2",
    "dcgmi-diag-3": "diag_3",
    "nccl-tests": "nccl_tests",
    "nccl-pair": "nccl_pair",
    "daemon-reload": "daemon_reload",
}
"""Probe → the property of a snapshot that holds what was understood of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_target_flags(parser)
    add_probe_flags(parser)
    add_switch(parser.add_argument_group("images"), "--gpus", "same as --with-gpus", dest="has_gpus", default=None)
    kept = parser.add_argument_group("recording")
    add_value(kept, "--bundle", "FILE", "write everything to one file (.tar.gz)", parse_path)
    add_switch(kept, "--mask", "with --bundle: replace what identifies machines with pseudonyms")
    recorded = parser.add_argument_group("recorded output")
    recorded.add_argument(
        "--parse", nargs=2, metavar=("TOOL", "FILE"), help="read the output of one tool from a file (- is stdin)"
    )
    add_switch(recorded, "--list", "list probes and tools")


def run(options: argparse.Namespace, output: Output) -> int:
    """Collect and print, or read recorded output, or list what there is."""
    if options.list:
        return _list(output)
    if options.parse is not None:
        return _parse(*options.parse, options=options, output=output)
    if options.mask and options.bundle is None:
        raise UsageError("--mask is about a bundle", hints=("add `--bundle FILE`",))
    collection = collect_from(options, output)
    if options.bundle is not None:
        _write_bundle(options.bundle, collection, options, output)
    output.give(_to_document(collection), _to_text(collection, output), is_ok=not collection.unreachable)
    return MissingDependencyError.exit_code if collection.unreachable else 0


def _list(output: Output) -> int:
    from provision.probe.parsers import TOOLS

    columns = output.terminal_columns()
    lines = align([(name, probe.level, probe.reads) for name, probe in PROBES.items()], columns=columns)
    tools = sorted(TOOLS)
    document = {
        "probes": {
            name: {"level": probe.level, "seconds": probe.seconds, "reads": probe.reads}
            for name, probe in PROBES.items()
        },
        "tools": tools,
    }
    named = f"tools for --parse: {', '.join(tools)}"
    lines += ["", *([named] if columns is None else wrap(named, columns, hanging=2))]
    output.give(document, "\n".join(lines))
    return 0


def _parse(tool: str, name: str, *, options: argparse.Namespace, output: Output) -> int:
    from provision.probe.parsers import TOOLS, parse_recorded

    if has_targets(options) or options.bundle:
        raise UsageError("--parse reads a file and looks at no target", hints=("leave the targets out",))
    if tool not in TOOLS:
        raise UsageError(
            f"--parse `{shown(tool)}` is not known", hints=(*did_you_mean(tool, TOOLS), f"known are {', '.join(TOOLS)}")
        )
    text = _read_recorded(parse_path(name))
    try:
        records = parse_recorded(tool, text)
    except Unreadable as error:
        raise UsageError(
            f"{shown(name)} is not an output of {tool} that can be read",
            because=(clean_line(error.reason),),
            hints=(
                "record all that the command prints that it names, and nothing else",
                "`provision probe --list` names the other tools",
            ),
        ) from error
    import json

    output.give({"tool": tool, "records": records}, json.dumps(records, indent=1, ensure_ascii=True))
    return 0


def _read_recorded(path: Path) -> str:
    """Read a file that may hold anything: what is not text is for the parser to refuse."""
    from provision.files import open_stdin

    try:
        if str(path) == "-":
            content = open_stdin("--parse").read(_PARSE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                content = file.read(_PARSE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--parse: {path} cannot be read", because=(error.strerror or str(error),)) from error
    if len(content) > _PARSE_BYTES_MAX:
        raise UsageError(f"--parse: {path} is larger than {_PARSE_BYTES_MAX >> 20} MiB")
    return content.decode("utf-8", "replace")


def _write_bundle(path: Path, collection: Collection, options: argparse.Namespace, output: Output) -> None:
    from provision.cli.request import read_matrix
    from provision.probe.bundle import write_bundle

    if path.is_dir():
        raise UsageError(f"--bundle: {path} is a folder", hints=("name a file, such as `gpu.tar.gz`",))
    if output.is_dry_run:
        output.note(f"would write {path}")
        return
    write_bundle(
        path,
        collection.snapshots.values(),
        facts_date=str(read_matrix(options).dated),
        unreachable=collection.unreachable,
        is_masked=options.mask,
    )
    count = len(collection.snapshots)
    output.note(f"wrote {path}: {count} target{'' if count == 1 else 's'}, secrets taken out")


def _to_document(collection: Collection) -> dict[str, Any]:
    return {
        "targets": {
            name: {
                "collected": snapshot.collected,
                "probes": {probe: _describe(snapshot, probe) for probe in snapshot.outputs},
            }
            for name, snapshot in collection.snapshots.items()
        },
        "unreachable": dict(collection.unreachable),
    }


def _describe(snapshot: Snapshot, probe: str) -> dict[str, Any]:
    from provision.probe.parsers import to_json

    out = snapshot.output(probe)
    described: dict[str, Any] = {
        "status": out.status,
        "code": out.code,
        "seconds": out.seconds,
        "text": out.text,
        "error": out.error,
    }
    if probe in VALUES:
        try:
            described["value"] = to_json(getattr(snapshot, VALUES[probe]))
        except Unreadable as error:
            described["reason"] = error.reason
    return described


def _to_text(collection: Collection, output: Output) -> str:
    blocks = []
    for name, snapshot in collection.snapshots.items():
        width = max(map(len, snapshot.outputs), default=0)
        lines = [output.paint(clean_line(name), "label")]
        lines += [f"  {probe:{width}}  {_line(snapshot, probe)}".rstrip() for probe in snapshot.outputs]
        blocks.append("\n".join(lines))
    for name, reason in collection.unreachable.items():
        blocks.append(f"{output.paint(clean_line(name), 'label')}\n  unreachable: {clean_line(reason, 1000)}")
    return "\n\n".join(blocks)


def _line(snapshot: Snapshot, probe: str) -> str:
    out = snapshot.output(probe)
    head = f"{out.status:8}  {out.seconds:6.2f} s  "
    if out.status == OK and probe in VALUES:
        try:
            getattr(snapshot, VALUES[probe])
        except Unreadable as error:
            return f"{'unread':8}  {out.seconds:6.2f} s  {clean_line(error.reason, 80)}"
    said = out.text if out.status == OK else out.error or out.text
    lines = [line for line in said.splitlines() if line.strip()]
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return f"{head}{clean_line(lines[0], 80)}{more}" if lines else head.rstrip()
