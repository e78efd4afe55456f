"""Exports of the journal: ``journalctl -o export`` and ``-o json``, as a kernel log and the lines of programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_FIELD_BYTES_MAX: Final = 1024 * 1024
_ENTRIES_MAX: Final = 1_000_000
_KERNEL: Final = "kernel"


def is_journal(content: bytes) -> bool:
    """Tell by the first bytes whether this is the journal in one of the two forms."""
    head = content[:4096].lstrip()
    return head.startswith(b"__CURSOR=") or (head.startswith(b"{") and b'"__REALTIME_TIMESTAMP"' in content[:16384])


def read_journal(content: bytes) -> tuple[str, str, str]:
    """Return the kernel's lines, the programs' lines, and the machine's name; of several boots the last one's.

    Args:
        content: What ``journalctl`` wrote.
    """
    entries = _read_json(content) if content.lstrip().startswith(b"{") else _read_export(content)
    boot = host = ""
    kernel: list[str] = []
    programs: list[str] = []
    for count, entry in enumerate(entries):
        if count >= _ENTRIES_MAX:
            break
        message = entry.get("MESSAGE")
        if message is None:
            continue
        host = entry.get("_HOSTNAME", host)
        if entry.get("_BOOT_ID", boot) != boot:
            boot = entry["_BOOT_ID"]
            kernel, programs = [], []
        if entry.get("_TRANSPORT") == _KERNEL or entry.get("SYSLOG_IDENTIFIER") == _KERNEL:
            kernel.append(f"{_stamp(entry)}{message}")
        else:
            programs.append(f"{entry.get('SYSLOG_IDENTIFIER', '')}: {message}".removeprefix(": "))
    return _join(kernel), _join(programs), host


def _join(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _stamp(entry: Mapping[str, str]) -> str:
    """Return the kernel's own time in the form of dmesg, or nothing where it is not told."""
    said = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP") or ""
    if not said.isascii() or not said.isdecimal() or len(said) > 15:
        return ""
    return f"[{int(said) // 1_000_000:5d}.{int(said) % 1_000_000:06d}] "


def _read_json(content: bytes) -> Iterator[dict[str, str]]:
    for line in content.split(b"\n"):
        try:
            document = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            yield {key: text for key, value in document.items() if (text := _to_text(value)) is not None}


def _to_text(value: Any) -> str | None:
    """Return a field as text: journalctl writes what is not text as a list of bytes, and a repeated field as a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if all(isinstance(item, int) and 0 <= item < 256 for item in value):
            return bytes(value).decode("utf-8", "replace")
        return _to_text(value[-1])
    return None


def _read_export(content: bytes) -> Iterator[dict[str, str]]:
    """Yield entries: lines of NAME=VALUE, or NAME, eight bytes of length, and so many bytes; an empty line ends one."""
    entry: dict[str, str] = {}
    place = 0
    while place < len(content):
        end = content.find(b"\n", place)
        end = len(content) if end < 0 else end
        line = content[place:end]
        place = end + 1
        if not line:
            if entry:
                yield entry
            entry = {}
            continue
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(content[place : place + 8], "little")
            if size > _FIELD_BYTES_MAX or place + 8 + size > len(content):
                break
            value = content[place + 8 : place + 8 + size]
            place += 8 + size + 1
        entry[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
    if entry:
        yield entry
