"""Listings that people paste: each is told by what it says, and written as the collector would have brought it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from provision.probe.output import Unreadable
from provision.probe.parse.packages import Package, parse_dpkg_list, parse_rpm_list

_MARK: Final = "@provision-payload "
_LINES_LOOKED_AT: Final = 200
_MACHINE: Final = re.compile(r"\b(x86_64|aarch64|ppc64le|i[3-6]86)\b")

_STAMPED: Final = re.compile(
    r"(?:<\d{1,3}>)?\[ {0,12}\d{1,12}\.\d{1,9}\]|\d{1,6},\d{1,20},\d{1,20},"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\S{8,25}) \S{1,253} kernel(?:\[\d{1,9}\])?:"
)
_DRIVERS: Final = re.compile(r"(?:^|\] ?|: )NVRM: (?:Xid|loading NVIDIA|API mismatch|GPU |The NVIDIA)", re.MULTILINE)

_RELEASE: Final = (re.compile(r"^ID=", re.MULTILINE), re.compile(r"^(?:NAME|PRETTY_NAME)=", re.MULTILINE))
_SMI_TABLE: Final = re.compile(
    r"^\| {0,4}0  [^|\n]{1,80}\| {1,8}[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7] ", re.MULTILINE
)
_PIP_HEADING: Final = re.compile(r"^Package {1,80}Version[^\n]{0,120}\n-{3,80} -{3,80}", re.MULTILINE)
_PIP_ROW: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99}) {1,80}([0-9][A-Za-z0-9.+!_-]{0,60})(?: .{0,200})?")
_PINNED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})==([0-9][A-Za-z0-9.+!_-]{0,60})")
_CONDA: Final = re.compile(r"^# packages in environment at ", re.MULTILINE)
_COLLECTED: Final = re.compile(r"^(PyTorch version|CUDA used to build PyTorch|Is debug build): ", re.MULTILINE)
_COLLECTED_GPU: Final = re.compile(
    r"^(?:GPU models and configuration: )?GPU \d{1,3}: ([^\n(]{1,80}?)(?: \(UUID.*)?$", re.MULTILINE
)
_COLLECTED_PACKAGE: Final = re.compile(
    r"^\[(?:pip3?|conda)\] ([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:==| {1,60})([0-9][A-Za-z0-9.+!_-]{0,60})", re.MULTILINE
)
_SYSTEM: Final = re.compile(r"([A-Za-z][A-Za-z /]{2,60}?) (?:release )?([0-9]{1,2}(?:\.[0-9]{1,2})?)")
_SYSTEMS: Final = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "rocky": "rocky",
    "almalinux": "almalinux",
    "centos": "centos",
    "red hat": "rhel",
    "amazon linux": "amzn",
    "fedora": "fedora",
}


def read_listings(text: str) -> dict[str, str]:
    """Return probe → text for every listing that stands in a text, empty where none is known.

    Args:
        text: What somebody saved or pasted; several listings may follow each other.
    """
    found: dict[str, str] = {}
    for read in (_read_whole, _read_smi, _read_dcgm, _read_collected, _read_distributions, _read_kernel_log):
        for probe, said in read(text).items():
            found.setdefault(probe, said)
    return found


def to_uname(line: str) -> str:
    """Return ``uname -srm`` out of ``uname -a``."""
    words = line.split()
    machine = _MACHINE.search(line)
    return f"{words[0]} {words[2]} {machine[1]}\n" if len(words) > 3 and machine else line


def to_virtualization(processors: str, hardware: str = "") -> str:
    """Return what the collector says of a host that is no container.

    Args:
        processors: ``/proc/cpuinfo``.
        hardware: ``dmidecode``, where it was recorded.
    """
    flags = re.search(r"^(?:flags|Features)\s*:(.{1,4000})$", processors, re.MULTILINE)
    kind = "" if flags is None else "kind=vm-other\n" if " hypervisor" in flags[1] else "kind=none\n"
    system = re.search(r"^System Information\n((?:[ \t].{0,200}\n){1,20})", hardware, re.MULTILINE)
    said = f"{kind}container=no\n"
    for label, key in (("Manufacturer", "vendor"), ("Product Name", "product")):
        found = re.search(rf"^\s+{label}: (.{{1,100}})$", system[1], re.MULTILINE) if system else None
        said += f"{key}={found[1].strip()}\n" if found else ""
    return said


def _read_whole(text: str) -> dict[str, str]:
    """Read what fills a file alone, by its first line."""
    first = next((line for line in text[:20_000].split("\n") if line.strip()), "")
    for probe, pattern, change in _WHOLE:
        if pattern.match(first):
            return {probe: said} if (said := change(text)) is not None else {}
    is_release = all(pattern.search(text[:4000]) for pattern in _RELEASE)
    return {"os-release": text} if is_release else {}


def _same(text: str) -> str:
    return text


def _with_end(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _packages(parse: Callable[[str], tuple[Package, ...]]) -> Callable[[str], str | None]:
    def change(text: str) -> str | None:
        try:
            rows = parse(text)
        except Unreadable:
            return None
        return "".join(f"{row.name}\t{row.version}\t{row.architecture}\t{row.state}\n" for row in rows)

    return change


def _first_words(text: str) -> str:
    """Return the first word of each line: what is installed, without the day of it."""
    return "".join(f"{line.split()[0]}\n" for line in text.split("\n") if line.strip())


def _dpkg(text: str) -> str | None:
    """Return the listing of dpkg without what its heading explains."""
    return _packages(parse_dpkg_list)(text)


_WHOLE: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str | None]], ...]] = (
    ("modules", re.compile(r"Module +Size +Used by"), _with_end),
    ("modules", re.compile(r"[a-z0-9_]{2,60} \d{3,9} \d{1,4} \S+ (?:Live|Loading|Unloading) 0x[0-9a-f]+"), _with_end),
    ("command-line", re.compile(r"(?:BOOT_IMAGE=|root=|\S* ?root=(?:UUID|LABEL|/dev))"), _same),
    ("uname", re.compile(r"Linux \S{1,255} \d+\.\d+.{3,200} (?:GNU/)?Linux\s*$"), to_uname),
    ("packages", re.compile(r"Desired=Unknown/Install"), _dpkg),
    (
        "packages",
        re.compile(r"[A-Za-z0-9][\w.+-]{1,120}-[^-\s]{1,60}-[^-\s]{1,60}\.(?:x86_64|noarch|aarch64)(?:\s|$)"),
        lambda text: _packages(parse_rpm_list)(_first_words(text)),
    ),
    ("dkms", re.compile(r"nvidia[\w-]*[,/] ?[0-9.]+(?:, [^:]{1,120})?: (?:added|built|installed)"), _with_end),
    (
        "lspci",
        re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z0-9][^:\n]{2,60}(?: \[[0-9a-f]{4}\])?: "),
        _with_end,
    ),
    ("virtualization", re.compile(r"processor\s*: 0"), to_virtualization),
    ("driver-version", re.compile(r"NVRM version: "), _with_end),
    ("nvcc", re.compile(r"nvcc: NVIDIA \(R\) Cuda compiler"), _with_end),
    ("secure-boot", re.compile(r"SecureBoot (?:enabled|disabled)"), _with_end),
    ("file-systems", re.compile(r"Filesystem +1024-blocks +Used"), _with_end),
    ("nvidia-smi-topology", re.compile(r"\s+GPU0\s.*CPU Affinity"), _with_end),
)
"""Probe, what the first line looks like, and what makes the collector's form of the text."""


def _read_smi(text: str) -> dict[str, str]:
    start = text.find("<nvidia_smi_log")
    if start >= 0:
        return {"nvidia-smi-xml": text[start:]}
    if "NVSMI LOG" in text:
        return {"nvidia-smi-xml": _listing(text)}
    if found := _SMI_TABLE.search(text):
        heading = text.rfind("| NVIDIA-SMI", 0, found.start())
        return {"nvidia-smi-xml": text[heading if heading >= 0 else found.start() :]}
    return {}


def _listing(text: str) -> str:
    """Return the listing of ``nvidia-smi -q`` without what stands before and behind it."""
    lines = text[text.find("NVSMI LOG") :].split("\n")
    kept = [f"=============={lines[0]}"]
    is_open = False
    for line in lines[1:]:
        is_own = not line.strip() or line[0] == " " or " : " in line or line.startswith("GPU ")
        if is_open and not is_own:
            break
        is_open = is_open or line.startswith("GPU ")
        kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"


def _read_dcgm(text: str) -> dict[str, str]:
    if '"Overall Health"' in text:
        return {"dcgmi-health": text}
    if '"DCGM Diagnostic"' not in text and '"DCGM GPU Diagnostic"' not in text:
        return {}
    categories = set(re.findall(r'"category"\s{0,8}:\s{0,8}"([A-Za-z ]{1,40})"', text))
    level = "-3" if "Stress" in categories else "-2" if categories & {"Hardware", "Integration"} else ""
    return {f"dcgmi-diag{level}": text}


def _torch_of(packages: Mapping[str, str]) -> dict[str, str]:
    """Return what the name of an installed PyTorch tells: which it is, and for which CUDA where its version says so."""
    version = packages.get("torch")
    if version is None:
        return {}
    local = version.partition("+")[2]
    cuda = re.fullmatch(r"cu([0-9]{1,2})([0-9])", local)
    document = {
        "name": "torch",
        "version": version,
        "cuda": f"{cuda[1]}.{cuda[2]}" if cuda else None,
        "is_cuda_build": True if cuda else False if local == "cpu" else None,
    }
    return {"torch": _payload(document)}


def _payload(document: Mapping[str, object]) -> str:
    return f"{_MARK}{json.dumps(document, ensure_ascii=False)}\n"


def _read_collected(text: str) -> dict[str, str]:
    """Read what ``python -m torch.utils.collect_env`` printed."""
    if len({found[1] for found in _COLLECTED.finditer(text)}) < 2:
        return {}

    def say(label: str) -> str:
        found = re.search(rf"^{re.escape(label)}: ([^\n]{{1,300}})$", text, re.MULTILINE)
        said = found[1].strip() if found else ""
        return "" if said in ("N/A", "Could not collect") else said

    found: dict[str, str] = {}
    version, cuda = say("PyTorch version"), say("CUDA used to build PyTorch")
    available = {"True": True, "False": False}.get(say("Is CUDA available"))
    names = _COLLECTED_GPU.findall(text)
    if version:
        found["torch"] = _payload({
            "name": "torch",
            "version": version,
            "cuda": cuda if cuda[:1].isdigit() else None,
            "is_cuda_build": cuda[:1].isdigit() if cuda else None,
            "is_available": available,
            "names": names,
        })  # fmt: skip
    packages: dict[str, str] = dict(_COLLECTED_PACKAGE.findall(text))
    if version:
        packages.setdefault("torch", version)
    python = say("Python version")
    found["python"] = _payload({"version": python.split()[0] if python else None, "packages": packages})
    if driver := re.match(r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,3}", say("Nvidia driver version")):
        found["driver-version"] = f"{driver[0]}\n"
    if compiler := re.match(r"([0-9]{1,2}\.[0-9])(?:\.[0-9]{1,4})?", say("CUDA runtime version")):
        found["nvcc"] = f"Cuda compilation tools, release {compiler[1]}, V{compiler[0]}\n"
    if platform := re.match(r"Linux-([0-9][^\n]{1,100}?)-(x86_64|aarch64|ppc64le)-with", say("Python platform")):
        found["uname"] = f"Linux {platform[1]} {platform[2]}\n"
    system = say("OS")
    if (told := _SYSTEM.match(system)) and (name := _system_id(told[1])):
        found["os-release"] = f'ID={name}\nVERSION_ID="{told[2]}"\nPRETTY_NAME="{system.partition(" (")[0]}"\n'
    return found


def _system_id(name: str) -> str:
    return next((identity for words, identity in _SYSTEMS.items() if name.lower().startswith(words)), "")


def _read_distributions(text: str) -> dict[str, str]:
    """Read ``pip list``, ``pip freeze`` and ``conda list``."""
    packages: dict[str, str] = {}
    if found := _PIP_HEADING.search(text):
        for line in text[found.end() :].split("\n")[1:]:
            if row := _PIP_ROW.fullmatch(line.rstrip()):
                packages.setdefault(row[1], row[2])
            elif line.strip():
                break
    elif found := _CONDA.search(text):
        for line in text[found.start() :].split("\n"):
            if not line.startswith("#") and (row := _PIP_ROW.fullmatch(line.rstrip())):
                packages.setdefault(row[1], row[2])
    else:
        lines = [line.strip() for line in text[:2_000_000].split("\n") if line.strip() and not line.startswith("#")]
        rows = [row for line in lines if (row := _PINNED.fullmatch(line))]
        if len(rows) * 2 > len(lines):
            packages = {row[1]: row[2] for row in rows}
    return {"python": _payload({"packages": packages}), **_torch_of(packages)} if packages else {}


def _read_kernel_log(text: str) -> dict[str, str]:
    lines = [line for line in text[:100_000].split("\n") if line.strip()][:_LINES_LOOKED_AT]
    stamped = sum(_STAMPED.match(line) is not None for line in lines)
    if stamped * 2 > len(lines) or (_DRIVERS.search(text) and stamped):
        return {"kernel-log": text}
    return {}
