"""Write what nvidia-smi says of the GPUs of this node as metrics, for a node that has no dcgm-exporter.

    gpu_textfile.py FOLDER [--nvidia-smi PATH] [--seconds N] [--kernel-log PATH]

Writes ``FOLDER/provision-gpu.prom``, whole or not at all, and exits 0 whatever was found: that nvidia-smi is absent,
hangs or says what cannot be read is a metric too, ``provision_gpu_exporter_up 0``, and no series of a GPU stands beside
it. The series carry the names, units and labels of dcgm-exporter, so that one set of rules holds for both; what
nvidia-smi does not tell is left out, never guessed. Windows of events are counted from ``FOLDER/state.json``.

Python 3.8 and the standard library alone, for this runs on nodes that have nothing else.

Source: labels and windows of dcgm-exporter (internal/pkg/rendermetrics, internal/pkg/collector); elements of
nvidia-smi -q -x as recorded from drivers 418 to 595.
"""

import argparse
import contextlib
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from xml.etree import ElementTree

FILE = "provision-gpu.prom"
STATE = "state.json"
# dcgm-exporter counts samples and Xids of the last five minutes.
WINDOW_SECONDS = 300
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
LOG_RECORDS_MAX = 100_000

# Name, kind, what it says, and where nvidia-smi -q -x has it, newest spelling first.
SERIES = (
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (MiB)", ("fb_memory_usage/used",)),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU (C)", ("temperature/gpu_temp",)),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Utilisation (%)", ("utilization/gpu_util",)),
    (
        "DCGM_FI_DEV_PCIE_LINK_WIDTH",
        "gauge",
        "PCIe lanes in use",
        ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    ),
    (
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        "gauge",
        "PCIe lanes at most",
        ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    ),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe packets sent again", ("pci/replay_counter",)),
    (
        "DCGM_FI_DEV_POWER_USAGE",
        "gauge",
        "Power (W)",
        (
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/power_draw",
            "power_readings/power_draw",
        ),
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "A memory row could not be replaced",
        ("remapped_rows/remapped_row_failure",),
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "gauge",
        "A memory row waits for a reset to be replaced",
        ("remapped_rows/remapped_row_pending",),
    ),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the processors (MHz)", ("clocks/sm_clock",)),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Memory rows replaced", ("remapped_rows/remapped_row_unc",)),
)
# Counters that stand in parts are added; no driver prints a part and the sum that it is in.
SUMS = (
    (
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Memory errors not corrected since the driver was loaded",
        (
            "ecc_errors/volatile/sram_uncorrectable",
            "ecc_errors/volatile/sram_uncorrectable_parity",
            "ecc_errors/volatile/sram_uncorrectable_secded",
            "ecc_errors/volatile/dram_uncorrectable",
            "ecc_errors/volatile/double_bit/total",
        ),
    ),
)
CLOCK_EVENTS = ("DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge", "Samples with a clock event in the window")
XIDS = ("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Xids in the window")
# Reasons of nvidia-smi to the words of dcgm-exporter.
REASONS = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "clocks_setting",
    "sw_power_cap": "power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
    "display_clocks_setting": "display_clocks",
    "display_clock_setting": "display_clocks",
}
OWN = (
    ("provision_gpu_exporter_up", "Whether nvidia-smi answered and was understood: 1 yes, 0 no."),
    ("provision_gpu_exporter_problem_info", "Why it did not: absent, hung, failed or unreadable."),
    ("provision_gpu_exporter_kernel_log_up", "Whether the kernel's log could be read for Xids: 1 yes, 0 no."),
    ("provision_gpu_exporter_duration_seconds", "How long nvidia-smi took."),
    ("provision_gpu_exporter_timestamp_seconds", "When it was asked."),
)

NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?) ?(?:MiB|MHz|C|W|%|x)?")
FLAGS = {"Yes": 1, "No": 0}
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d{1,5}),")


class Problem(Exception):  # noqa: N818 - it is told as a metric
    """Why nothing is known of the GPUs, in one word that becomes a label."""


# nvidia-smi


def ask(program, seconds, state):
    """Return what ``nvidia-smi -q -x`` prints, and whether it ended well.

    A process in uninterruptible sleep cannot be ended. It is left behind and remembered in ``state``, and as long as it
    is there no second one is started.
    """
    if is_alive(state.get("hung")):
        raise Problem("hung")
    state.pop("hung", None)
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [program, "-q", "-x"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=dict(os.environ, LC_ALL="C"),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Problem("absent") from None
        except OSError:
            raise Problem("failed") from None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                state["hung"] = [process.pid, start_of(process.pid)]
            raise Problem("hung") from None
        output.seek(0)
        text = output.read(OUTPUT_BYTES_MAX + 1)
    if len(text) > OUTPUT_BYTES_MAX:
        raise Problem("unreadable")
    return text.decode("utf-8", "replace"), code == 0


def start_of(pid):
    """Return the tick at which a process began, or None where it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(mark):
    return bool(mark) and mark[1] is not None and start_of(mark[0]) == mark[1]


def read(text, is_well=True):
    """Return one mapping a GPU: its labels, its values by series, and its active clock events.

    Where one GPU is lost, nvidia-smi fails and lists the others all the same: those that have a UUID are taken.
    """
    begin = text.find("<nvidia_smi_log")
    # A declared document type could bring entities along; nothing of it is needed.
    try:
        root = ElementTree.fromstring(text[begin:] if begin >= 0 else "")  # noqa: S314 - what the driver says
    except ElementTree.ParseError:
        raise Problem("unreadable" if is_well else "failed") from None
    driver = said(root, "driver_version")
    found = []
    for number, element in enumerate(root.findall("gpu")):
        uuid, name, address = said(element, "uuid"), said(element, "product_name"), element.get("id", "")
        if uuid is None or not uuid.startswith("GPU-"):
            continue
        labels = {
            "gpu": str(number),
            "UUID": uuid,
            "pci_bus_id": address,
            "device": "nvidia%s" % (said(element, "minor_number") or number),
            "modelName": name or "",
            "DCGM_FI_DRIVER_VERSION": driver or "",
        }
        values = {}
        for series, _, _, paths in SERIES:
            value = next((value for value in (number_at(element, path) for path in paths) if value is not None), None)
            if value is not None:
                values[series] = value
        for series, _, _, paths in SUMS:
            parts = [value for value in (number_at(element, path) for path in paths) if value is not None]
            if parts:
                values[series] = sum(parts)
        found.append({"labels": labels, "values": values, "events": events_of(element)})
    if not found and not is_well:
        raise Problem("failed")
    return found


def said(element, path):
    text = (element.findtext(path) or "").strip()
    return text if text and text not in ("N/A", "[N/A]") else None


def number_at(element, path):
    text = said(element, path)
    if text in FLAGS:
        return FLAGS[text]
    match = NUMBER.fullmatch(text or "")
    return float(match.group(1)) if match else None


def events_of(element):
    """Return the clock events that are active, in dcgm-exporter's words, or None where nvidia-smi does not tell."""
    for kind in ("event", "throttle"):
        block = element.find("clocks_%s_reasons" % kind)
        if block is not None and len(block):
            prefix = "clocks_%s_reason_" % kind
            active = {child.tag[len(prefix) :] for child in block if (child.text or "").strip() == "Active"}
            return sorted({REASONS[name] for name in active if name in REASONS})
    return None


# The kernel's log


def read_xids(path, now_monotonic):
    """Return (PCI address, number) of each Xid in the window, or None where the log cannot be read."""
    found = []
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        for _ in range(LOG_RECORDS_MAX):
            try:
                # One read of /dev/kmsg is one record: priority,sequence,microseconds,flags;text
                record = os.read(log, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                # Records were overwritten while this read: the next one is there.
                if error.errno == errno.EPIPE:
                    continue
                return None
            if not record:
                break
            for line in record.decode("utf-8", "replace").splitlines():
                head, _, text = line.partition(";")
                match = XID.search(text)
                stamp = head.split(",")[2:3]
                if match and stamp and stamp[0].isdigit():
                    age = now_monotonic - int(stamp[0]) / 1e6
                    if age <= WINDOW_SECONDS:
                        found.append((match.group(1).lower(), int(match.group(2))))
    finally:
        os.close(log)
    return found


def address_key(address):
    """Return a PCI address without domain padding and function, as the kernel and nvidia-smi spell it differently."""
    domain, _, rest = address.lower().partition(":")
    return "%x:%s" % (int(domain, 16), rest.partition(".")[0]) if re.fullmatch("[0-9a-f]+", domain) else address.lower()


# Metrics


def render(gpus, problem, xids, state, stamp, duration):
    """Return the text of the metrics; ``state`` takes the samples of this run and gives those of the window."""
    families = {}

    def add(name, kind, words, value, labels):
        rows = families.setdefault(name, ["# HELP %s %s" % (name, words), "# TYPE %s %s" % (name, kind)])
        rows.append("%s%s %s" % (name, write_labels(labels), write_value(value)))

    words = dict(OWN)
    add("provision_gpu_exporter_up", "gauge", words["provision_gpu_exporter_up"], int(problem is None), {})
    if problem is not None:
        name = "provision_gpu_exporter_problem_info"
        add(name, "gauge", words[name], 1, {"reason": problem})
    name = "provision_gpu_exporter_kernel_log_up"
    add(name, "gauge", words[name], int(xids is not None), {})
    name = "provision_gpu_exporter_duration_seconds"
    add(name, "gauge", words[name], round(duration, 3), {})
    name = "provision_gpu_exporter_timestamp_seconds"
    add(name, "gauge", words[name], round(stamp, 3), {})
    for gpu in gpus:
        for name, kind, meaning, _ in SERIES + SUMS:
            if name in gpu["values"]:
                add(name, kind, meaning + ", as nvidia-smi says it", gpu["values"][name], gpu["labels"])
    window = note_samples(gpus, state, stamp)
    for gpu in gpus:
        counts = window.get(gpu["labels"]["UUID"], {})
        for event in sorted(counts):
            name, kind, meaning = CLOCK_EVENTS
            meaning += " of five minutes, as nvidia-smi says it"
            add(name, kind, meaning, counts[event], dict(gpu["labels"], clock_event=event))
    known = state.setdefault("known", {})
    known.update({address_key(gpu["labels"]["pci_bus_id"]): gpu["labels"] for gpu in gpus})
    counted = {}
    for address, code in xids or ():
        counted[(address, code)] = counted.get((address, code), 0) + 1
    for (address, code), count in sorted(counted.items()):
        # A GPU that fell off the bus is listed no more: its labels are those of the last time that it was.
        labels = known.get(address_key(address)) or {"pci_bus_id": address}
        name, kind, meaning = XIDS
        meaning += " of five minutes, as the kernel's log says it"
        add(name, kind, meaning, count, dict(labels, xid=code))
    return "".join("%s\n" % row for name in sorted(families) for row in families[name])


def note_samples(gpus, state, stamp):
    """Return GPU → event → samples of the window in which it was active, this one included."""
    samples = [row for row in state.get("samples", []) if 0 <= stamp - row[0] < WINDOW_SECONDS]
    samples.append([stamp, {gpu["labels"]["UUID"]: gpu["events"] or [] for gpu in gpus}])
    state["samples"] = samples
    counts = {}
    for _, active in samples:
        for uuid, events in active.items():
            for event in events:
                row = counts.setdefault(uuid, {})
                row[event] = row.get(event, 0) + 1
    return counts


def write_labels(labels):
    return "{%s}" % ",".join('%s="%s"' % (name, escape(str(value))) for name, value in labels.items()) if labels else ""


def escape(text):
    text = "".join(char for char in text if char.isprintable())
    return text.replace("\\", "\\\\").replace('"', '\\"')


def write_value(value):
    return "%d" % value if math.isfinite(value) and value == int(value) else repr(float(value))


# Files


def load_state(path):
    """Return what the last run left; what cannot be used is forgotten, for it only counts events."""
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(state, dict) or not all(
        isinstance(state.get(key, kind()), kind) for key, kind in (("samples", list), ("known", dict), ("hung", list))
    ):
        return {}
    return state


def write(path, text):
    """Put a file in place whole: who reads it sees the former one or this one."""
    handle, name = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def main(words):
    parser = argparse.ArgumentParser(description="Write what nvidia-smi says of the GPUs of this node as metrics.")
    parser.add_argument("folder", help="where the textfile collector looks")
    parser.add_argument("--nvidia-smi", default="nvidia-smi", metavar="PATH", help="the program to ask")
    parser.add_argument("--seconds", type=float, default=20, help="how long it may take")
    parser.add_argument("--kernel-log", default="/dev/kmsg", metavar="PATH", help="where Xids are read")
    options = parser.parse_args(words)
    state_path = os.path.join(options.folder, STATE)
    state = load_state(state_path)
    stamp, started = time.time(), time.monotonic()
    gpus, problem = [], None
    try:
        gpus = read(*ask(options.nvidia_smi, options.seconds, state))
    except Problem as error:
        problem = str(error)
    duration = time.monotonic() - started
    try:
        write(
            os.path.join(options.folder, FILE),
            render(gpus, problem, read_xids(options.kernel_log, time.monotonic()), state, stamp, duration),
        )
        write(state_path, json.dumps(state))
    except OSError as error:
        sys.exit("%s cannot be written: %s" % (options.folder, error.strerror))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
