"""A stand-in of nvidia-smi on the made-up machine; what it says comes from there, memory from who holds some now."""

import json
import os
import re
import stat
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
WORDS = sys.argv[2:]
FACTS = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))
COULD_NOT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
MIB = 1 << 20
DISPLAYS = {
    ("topo", "-m"): "nvidia-smi-topology",
    ("topo", "-p2p", "r"): "nvidia-smi-p2p",
    ("nvlink", "-s"): "nvlink-status",
    ("nvlink", "-e"): "nvlink-errors",
    ("-L",): "container-gpu",
}


def said(name):
    """Return a text of the machine."""
    return (FOLDER / "said" / name).read_text(encoding="utf-8")


def leave(text, code):
    """Print and end, as the tool does."""
    print(text)
    sys.exit(code)


def is_node(path):
    """Tell whether a node is as the driver made it, and nothing was put in its place."""
    try:
        seen = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISCHR(seen.st_mode) and seen.st_rdev != os.makedev(1, 3) and os.access(path, os.R_OK | os.W_OK)


def load_library():
    """End where LD_LIBRARY_PATH puts another library of the driver in front."""
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        path = Path(folder, "libnvidia-ml.so.1")
        if path.exists():
            if path.parent == FOLDER / "nvidia":
                return
            number = re.search(r"\.so\.(\d+\.\d+)", path.resolve().name)
            leave(
                "Failed to initialize NVML: Driver/library version mismatch\n"
                f"NVML library version: {number[1] if number else '535.54'}",
                18,
            )


def holders():
    """Return process → bytes of the GPU that it holds."""
    found = {}
    for path in (FOLDER / "memory").iterdir():
        try:
            os.kill(int(path.name), 0)
            found[int(path.name)] = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return {process: size for process, size in sorted(found.items()) if size}


def name_of(process):
    """Return a process's program."""
    try:
        return str(Path(f"/proc/{process}/exe").readlink())
    except OSError:
        return "[Not Found]"


def document():
    """Return the XML with the memory that is held now."""
    text = said("nvidia-smi-xml")
    held = holders()
    if not held:
        return text
    used = sum(held.values()) // MIB
    for key, change in (("used", used), ("free", -used)):
        pattern = rf"(<fb_memory_usage>.*?<{key}>)(\d+)( MiB)"
        text = re.sub(
            pattern, lambda found, change=change: f"{found[1]}{int(found[2]) + change}{found[3]}", text, flags=re.DOTALL
        )
    rows = "".join(
        "\t\t\t<process_info>\n\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>\n"
        "\t\t\t\t<compute_instance_id>N/A</compute_instance_id>\n"
        f"\t\t\t\t<pid>{process}</pid>\n\t\t\t\t<type>C</type>\n"
        f"\t\t\t\t<process_name>{name_of(process)}</process_name>\n"
        f"\t\t\t\t<used_memory>{size // MIB} MiB</used_memory>\n\t\t\t</process_info>\n"
        for process, size in held.items()
    )
    return text.replace("<processes>\n", f"<processes>\n{rows}", 1)


def values():
    """Return field of a query → its value and unit."""
    used = 1 + sum(holders().values()) // MIB
    throttle = ("0x0000000000000000", "")
    clock = (str(FACTS["sm_mhz"]), "MHz")
    return {
        "index": ("0", ""),
        "count": ("1", ""),
        "name": (FACTS["gpu"], ""),
        "uuid": (FACTS["uuid"], ""),
        "gpu_uuid": (FACTS["uuid"], ""),
        "serial": (FACTS["serial"], ""),
        "pci.bus_id": (FACTS["address"].upper(), ""),
        "gpu_bus_id": (FACTS["address"].upper(), ""),
        "driver_version": (FACTS["driver"], ""),
        "compute_cap": ("9.0", ""),
        "compute_mode": ("Default", ""),
        "persistence_mode": ("Enabled", ""),
        "mig.mode.current": ("Disabled", ""),
        "ecc.mode.current": ("Enabled", ""),
        "clocks.sm": clock,
        "clocks.gr": clock,
        "clocks.current.sm": clock,
        "clocks.max.sm": clock,
        "clocks.mem": ("2619", "MHz"),
        "clocks.current.memory": ("2619", "MHz"),
        "clocks_throttle_reasons.active": throttle,
        "clocks_event_reasons.active": throttle,
        "power.draw": ("312.48", "W"),
        "power.limit": ("700.00", "W"),
        "power.default_limit": ("700.00", "W"),
        "power.max_limit": ("700.00", "W"),
        "temperature.gpu": ("41", ""),
        "utilization.gpu": ("0", "%"),
        "memory.total": (str(FACTS["memory_mib"]), "MiB"),
        "memory.reserved": (str(FACTS["reserved_mib"]), "MiB"),
        "memory.used": (str(used), "MiB"),
        "memory.free": (str(max(0, FACTS["memory_mib"] - FACTS["reserved_mib"] - used)), "MiB"),
        "pcie.link.gen.current": ("5", ""),
        "pcie.link.gen.gpucurrent": ("5", ""),
        "pcie.link.gen.max": ("5", ""),
        "pcie.link.gen.gpumax": ("5", ""),
        "pcie.link.gen.hostmax": ("N/A", ""),
        "pcie.link.width.current": ("16", ""),
        "pcie.link.width.max": ("16", ""),
    }


def query(fields, style):
    """Return the answer to a query."""
    known = values()
    names = [field.strip() for field in fields.split(",")]
    for name in names:
        if name not in known:
            leave(f'Field "{name}" is not a valid field to query.\n', 2)
    unit = "nounits" not in style
    cells = [" ".join(filter(None, known[name])) if unit else known[name][0] for name in names]
    heads = [f"{name} [{known[name][1]}]" if unit and known[name][1] else name for name in names]
    return "\n".join([", ".join(cells)] if "noheader" in style else [", ".join(heads), ", ".join(cells)])


def main():
    """Answer."""
    load_library()
    if not is_node("/dev/nvidiactl"):
        leave(COULD_NOT, 9)
    if not is_node("/dev/nvidia0"):
        leave("No devices were found", 6)
    words, chosen, fields, style = [], "0", None, ""
    for word in WORDS:
        if words and words[-1] == "-i":
            words.pop()
            chosen = word
        elif word.startswith(("-i=", "--id=")):
            chosen = word.partition("=")[2]
        elif word.startswith("--query-gpu="):
            fields = word.partition("=")[2]
        elif word.startswith("--format="):
            style = word.partition("=")[2]
        else:
            words.append(word)
    short = FACTS["address"].lower().removeprefix("0000")
    if chosen.lower() not in {"0", FACTS["uuid"].lower(), FACTS["address"].lower(), short, short.removeprefix("0000:")}:
        leave("No devices were found", 6)
    if fields is not None:
        leave(query(fields, style.split(",")), 0)
    if set(words) in ({"-q", "-x"}, {"-q", "--xml-format"}, {"-x", "-q"}):
        leave(document(), 0)
    if tuple(words) in DISPLAYS:
        leave(said(DISPLAYS[tuple(words)]).rstrip("\n"), 0)
    leave(f"stand-in: nvidia-smi {' '.join(WORDS)} has no answer here", 2)


main()
