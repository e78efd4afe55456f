"""The report of ``nvidia-bug-report.sh``: its sections, as what the collector would have brought."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provision.probe.output import ABSENT, Output
from provision.probe.recordings.listings import to_uname, to_virtualization
from provision.records import record

BEGINNING = "Start of NVIDIA bug report log file"
"""What stands in the first lines of every report."""

_RULE = re.compile(r"^_{40,60}$", re.MULTILINE)
_UNAME = re.compile(r"^uname: (Linux (\S{1,255}) .{1,400})$", re.MULTILINE)
_SMI = re.compile(r"^(?:/\S{1,80}/)?nvidia-smi (?:-|nvlink |topo )[^\n|]{1,80}$", re.MULTILINE)
_MISSING = re.compile(r"\*{0,3} ?(/\S{1,200}) (?:does not exist|is not readable)")
_JOURNAL = re.compile(r"^ {2}journalctl -b -?(\d):$", re.MULTILINE)
_DRIVER = re.compile(r"/proc/driver/nvidia/(?:\./)?")
_GPU = re.compile(r"gpus/([0-9a-fA-F:.]{7,20})/information")
_BEGINS = re.compile(r"Linux version \d|Booting Linux on ")

_FILES = {
    "/etc/os-release": "os-release",
    "/proc/cmdline": "command-line",
    "/proc/modules": "modules",
    "/proc/driver/nvidia/version": "driver-version",
    "/proc/driver/nvidia/params": "driver-params",
}
_COMMANDS = (
    (re.compile(r"(?:\S*/)?nvidia-smi (?:--query|-q)"), "nvidia-smi-xml"),
    (re.compile(r"(?:\S*/)?nvidia-smi topo (?:-m|--matrix)"), "nvidia-smi-topology"),
    (re.compile(r"(?:\S*/)?nvidia-smi nvlink (?:--status|-s)"), "nvlink-status"),
    (re.compile(r"(?:\S*/)?nvidia-smi nvlink (?:--errorcounters|-e)"), "nvlink-errors"),
    (re.compile(r"(?:\S*/)?lspci -nnDvvvxxx"), "lspci"),
    (re.compile(r"(?:\S*/)?lspci -nn"), "lspci -nn"),
    (re.compile(r"dmesg:?|(?:\S*/)?dmesg(?: -\S+)?"), "kernel-log"),
)
_LOGS = re.compile(r"/var/log/(?:Xorg|XFree86)\.0\.log|journalctl -b -0 _COMM=\S{1,40}")
_HARDWARE = re.compile(r"(?:\S*/)?dmidecode")
_SERVICES = re.compile(r"(?:\S*/)?systemctl status ")
_SCANNED = "Scanning kernel log files"


@record
class _Section:
    """A section: the line that names it, and what stands below."""

    title: str
    text: str


def find_host(text: str) -> str:
    """Return the machine's name as the report says it, empty where it does not."""
    found = _UNAME.search(text[:8000])
    return found[2] if found else ""


def read_bug_report(text: str) -> Mapping[str, Output]:
    """Return probe → what a report says to it; what a report never asks for is left out.

    Args:
        text: The report, unpacked.
    """
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    gpus: list[str] = []
    logs: list[str] = []
    journal = processors = hardware = ""
    is_host = False
    if uname := _UNAME.search(text[:8000]):
        found["uname"] = to_uname(uname[1])
    for section in _sections(text):
        path = _DRIVER.sub("/proc/driver/nvidia/", section.title)
        if gone := _MISSING.match(section.title):
            probe = _FILES.get(_DRIVER.sub("/proc/driver/nvidia/", gone[1]))
            if probe is not None:
                missing[probe] = f"{_DRIVER.sub('/proc/driver/nvidia/', gone[1])} does not exist"
        elif path in _FILES:
            found.setdefault(_FILES[path], section.text)
        elif path == "/proc/cpuinfo":
            processors = section.text
        elif _HARDWARE.fullmatch(section.title):
            hardware = section.text
        elif _SERVICES.match(section.title):
            is_host = is_host or "Loaded: " in section.text
        elif gpu := _GPU.search(path):
            gpus.append(f"== {gpu[1]}\n{section.text}")
        elif section.title.startswith(_SCANNED):
            journal = _newest_boot(section.text)
            is_host = is_host or bool(journal.strip())
        elif _LOGS.fullmatch(section.title):
            logs.append(section.text)
        else:
            probe = next((probe for pattern, probe in _COMMANDS if pattern.fullmatch(section.title)), None)
            if probe is not None and section.text.strip():
                found.setdefault(probe, section.text)
    short = found.pop("lspci -nn", "")
    if short:
        found.setdefault("lspci", short)
    if journal.strip() and not _BEGINS.search(found.get("kernel-log", "")):
        # The kernel's own buffer was overwritten: the journal still has the driver's lines since boot.
        found["kernel-log"] = journal
    if is_host and processors:
        # A container has neither services nor a journal of its own.
        found["virtualization"] = to_virtualization(processors, hardware)
    if gpus:
        found["driver-gpus"] = "\n".join(gpus)
    if logs:
        found["recorded-log"] = "\n".join(logs)
    outputs = {probe: Output(probe=probe, status=ABSENT, error=why) for probe, why in missing.items()}
    return outputs | {probe: Output(probe=probe, status="ok", text=said) for probe, said in found.items()}


def _sections(text: str) -> Iterator[_Section]:
    for part in _RULE.split(text)[1:]:
        yield from _commands(part)


def _commands(part: str) -> Iterator[_Section]:
    """Yield a section; the runs of nvidia-smi stand in one, each below the line that was run."""
    starts = [found.start() for found in _SMI.finditer(part)]
    for start, end in zip([0, *starts], [*starts, len(part)], strict=True):
        if not part[start:end].strip():
            continue
        lines = part[start:end].strip("\n").split("\n")
        title = lines[0].strip().removeprefix("*** ").strip()
        rest = lines[1:]
        while rest and rest[0].startswith("*** ls:"):
            rest = rest[1:]
        yield _Section(title=title, text="\n".join(rest).strip("\n") + "\n")


def _newest_boot(text: str) -> str:
    """Return the lines of the boot in which the report was made."""
    marks = list(_JOURNAL.finditer(text))
    for place, mark in enumerate(marks):
        if mark[1] == "0":
            return text[mark.end() : marks[place + 1].start() if place + 1 < len(marks) else len(text)]
    return ""
