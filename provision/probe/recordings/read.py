"""A record of any kind becomes snapshots: told by what it says, never by what it is called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from provision.errors import UsageError
from provision.probe.clean import clean, clean_line
from provision.probe.output import CUT, OK, Output
from provision.probe.recordings.archive import Member, read_members
from provision.probe.recordings.bug_report import BEGINNING, find_host, read_bug_report
from provision.probe.recordings.journal import is_journal, read_journal
from provision.probe.recordings.listings import read_listings
from provision.probe.redact import redact
from provision.probe.snapshot import Snapshot
from provision.records import record

FORMS: Final = (
    "a bundle of this program",
    "nvidia-bug-report.log.gz",
    "a sosreport or must-gather (tar, packed or not, or its folder)",
    "nvidia-smi (the table, -q, -q -x)",
    "dcgmi diag -j and dcgmi health -j",
    "python -m torch.utils.collect_env",
    "pip list, pip freeze, conda list",
    "journalctl -o export or -o json",
    "dmesg, lspci, lsmod, dkms status, dpkg -l, rpm -qa, nvcc --version",
)
"""What is read, for people."""

_BUNDLE: Final = re.compile(r"(?:\./)?(?:manifest\.json|targets/[0-9]{2,5}/[^/]+|extra/[^/]+)")
_HOSTNAME: Final = re.compile(r"(?:^|/)(?:etc/hostname|sos_commands/host/hostname(?:_-f)?)$")
_ROOT: Final = re.compile(r"^(.*?)(?:^|/)(?:sos_commands|proc|etc|var|usr)/")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_SUFFIXES: Final = re.compile(r"(?:\.(?:tar|tgz|txz|gz|xz|bz2|log|txt|json|xml|out|csv))+$")
_LOG: Final = "recorded-log"
_LOG_CHARACTERS_MAX: Final = 8 * 1024 * 1024


@record
class _Part:
    """What one file told: of which machine, and probe → what it says."""

    group: str
    name: str
    host: str
    outputs: Mapping[str, Output]
    is_machine: bool = False
    """Whether the file tells of a whole machine, and is not part of what lies beside it."""


def is_bundle(path: Path) -> bool:
    """Tell whether this is a bundle of this program, packed or as a folder."""
    import tarfile

    if path.is_dir():
        return (path / "manifest.json").is_file()
    try:
        with tarfile.open(path, mode="r|*") as archive:
            first = archive.next()
    except (OSError, EOFError, tarfile.TarError, ValueError):
        return False
    return first is not None and _BUNDLE.fullmatch(first.name) is not None


def read_recordings(path: Path) -> tuple[Snapshot, ...]:
    """Read what other programs recorded of one machine or several.

    Args:
        path: A file, an archive or a folder.

    Returns:
        A snapshot for each machine, in the order of the files.

    Raises:
        UsageError: It cannot be read, or nothing in it tells of a machine.
    """
    parts: list[_Part] = []
    hosts: dict[str, str] = {}
    for member in read_members(path):
        if _HOSTNAME.search(member.name):
            hosts.setdefault(_group_of(member), _host_name(member.content.decode("utf-8", "replace").strip()))
            continue
        part = _read(member)
        if part is not None:
            parts.append(part)
    machines = _gather(parts, path, hosts)
    if not any(set(outputs) - {_LOG} for outputs in machines.values()):
        raise UsageError(
            f"{path} is not a record of a machine that can be read",
            because=(f"read are: {'; '.join(FORMS)}",),
            hints=("a log or an error message is explained by `provision doctor --text FILE`",),
        )
    return tuple(Snapshot(name, outputs) for name, outputs in machines.items() if set(outputs) - {_LOG})


def _read(member: Member) -> _Part | None:
    group, name = _group_of(member), _stem(member.name)
    if is_journal(member.content):
        kernel, programs, host = read_journal(member.content)
        texts = {"kernel-log": kernel, _LOG: programs[-_LOG_CHARACTERS_MAX:]}
        texts = {probe: text for probe, text in texts.items() if text}
        return _Part(group=group, name=name, host=_host_name(host), outputs=_outputs(texts, is_cut=member.is_cut))
    if b"\x00" in member.content[:4096]:
        return None
    text = member.content.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    if BEGINNING in text[:4000]:
        report = {probe: _clean(output) for probe, output in read_bug_report(text).items()}
        return _Part(group=group, name=name, host=_host_name(find_host(text)), outputs=report, is_machine=True)
    texts = read_listings(text)
    if not texts and not member.is_of_system and text.strip():
        texts = {_LOG: text[-_LOG_CHARACTERS_MAX:]}
    outputs = _outputs(texts, is_cut=member.is_cut)
    return _Part(group=group, name=name, host="", outputs=outputs) if outputs else None


def _outputs(texts: Mapping[str, str], *, is_cut: bool) -> dict[str, Output]:
    status = CUT if is_cut else OK
    return {probe: _clean(Output(probe=probe, status=status, text=text)) for probe, text in texts.items()}


def _clean(output: Output) -> Output:
    return Output(
        probe=output.probe,
        status=output.status,
        text=redact(clean(output.text)),
        error=redact(clean(output.error)),
    )


def _gather(parts: Iterable[_Part], path: Path, hosts: Mapping[str, str]) -> dict[str, dict[str, Output]]:
    """Put together what tells of the same machine; files beside each other that repeat a probe are of several."""
    groups: dict[str, list[_Part]] = {}
    for part in parts:
        groups.setdefault(part.group, []).append(part)
    machines: dict[str, dict[str, Output]] = {}
    for group, members in groups.items():
        beside = [part for part in members if not part.is_machine]
        listed = [probe for part in beside for probe in part.outputs if probe != _LOG]
        is_system = any(_ROOT.match(f"{part.group}/") or part.group in hosts for part in beside)
        is_several = len(set(listed)) < len(listed) and group not in hosts and not is_system
        for part in members:
            is_own = part.is_machine or (is_several and bool(set(part.outputs) - {_LOG}))
            name = part.host or hosts.get(group) or (part.name if is_own else _stem(group) or _stem(path.name))
            _merge(machines.setdefault(name or "recorded", {}), part.outputs)
    return machines


def _merge(found: dict[str, Output], more: Mapping[str, Output]) -> None:
    """Add what a file tells; of two answers to one probe the longer one stays, and logs follow each other."""
    for probe, output in more.items():
        known = found.get(probe)
        if known is None:
            found[probe] = output
        elif probe == _LOG:
            joined = f"{known.text}\n{output.text}"[:_LOG_CHARACTERS_MAX]
            found[probe] = Output(probe=probe, status=known.status, text=joined)
        elif len(output.text) > len(known.text):
            found[probe] = output


def _group_of(member: Member) -> str:
    """Return where the machine of a file begins: above the copied tree, else the folder the file lies in."""
    if member.is_of_system and (root := _ROOT.match(member.name)):
        return root[1].strip("/")
    return member.name.rpartition("/")[0]


def _stem(name: str) -> str:
    found = _NAME.match(_SUFFIXES.sub("", clean_line(name.rpartition("/")[2], 120)))
    return found[0] if found else ""


def _host_name(text: str) -> str:
    found = _NAME.fullmatch(text.strip())
    return found[0] if found else ""
