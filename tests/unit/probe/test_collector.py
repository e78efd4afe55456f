"""The collector, run for real by the shells that targets have, with stand-in tools before the real ones."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from provision.errors import UsageError
from provision.probe.catalogue import PROBES, probes_of
from provision.probe.compose import COLLECTOR, CollectOptions, compose, new_nonce
from provision.probe.output import Output
from provision.probe.parse.kernel_log import KernelLog, parse_kernel_log
from provision.probe.parse.pci import parse_pci_sysfs
from provision.probe.stream import decode_stream

NONCE = "abcdef0123456789"
SHELLS = {"dash": ("dash",), "bash": ("bash",), "busybox": ("busybox",)}


class Target:
    """A shell, a folder of stand-in tools and a folder for temporary files."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.tools = folder / "tools"
        self.temporary = folder / "temporary"
        self.tools.mkdir()
        self.temporary.mkdir()
        # Called by the name `sh`, bash keeps to POSIX and busybox knows which of its programs is meant.
        (self.tools / "sh").symlink_to(shell)
        self.environment = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
            "HOME": str(folder),
        }

    def add_tool(self, name: str, *lines: str) -> None:
        """Put a tool before the real one."""
        path = self.tools / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        path.chmod(0o755)

    def run(self, program: bytes) -> subprocess.CompletedProcess[bytes]:
        """Feed a program to the shell, as a transport does."""
        command = [str(self.tools / "sh"), "-s"]
        return subprocess.run(
            command, input=program, capture_output=True, env=self.environment, check=False, timeout=120
        )

    def collect(self, *probes: str, change: dict[str, str] | None = None, **options: object) -> dict[str, Output]:
        """Run some probes; `change` replaces parts of the program's text, absolute paths for instance."""
        program = compose(CollectOptions(nonce=NONCE, probes=probes, **options)).decode()
        for old, new in (change or {}).items():
            assert old in program
            program = program.replace(old, new)
        done = self.run(program.encode())
        assert done.stderr == b""
        assert done.returncode == 0
        return {output.probe: output for output in decode_stream(done.stdout, NONCE)}

    def processes(self, word: str) -> list[str]:
        """Return the command lines with a word that are running."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
        return found


@pytest.fixture(params=sorted(SHELLS))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    shell = next((path for name in SHELLS[request.param] if (path := shutil.which(name))), None)
    if shell is None:
        pytest.skip(f"{request.param} is not installed here")
    return Target(shell, tmp_path)


@pytest.fixture
def any_target(tmp_path: Path) -> Target:
    return Target(shutil.which("dash") or shutil.which("sh") or "/bin/sh", tmp_path)


@pytest.fixture(params=["bash", "dash"])
def outer_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Not busybox, which may prefer its own tools to those on the path."""
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"{request.param} is not installed here")
    return Target(shell, tmp_path)


def settled(condition, seconds: float = 5.0) -> bool:
    """Wait a little for something that another process is about to do."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


# ------------------------------------------------------------------------------------------------- the whole of it


def test_script_and_catalogue_name_the_same_probes() -> None:
    functions = re.findall(r"^probe_([a-z0-9_]+)\(\)", COLLECTOR.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(functions) == sorted(name.replace("-", "_") for name in PROBES)


def test_every_quick_probe_answers_in_order_and_leaves_nothing(target: Target) -> None:
    program = compose(CollectOptions(nonce=NONCE, exporter_port=None, seconds_scale=5.0))
    done = target.run(program)
    outputs = decode_stream(done.stdout, NONCE)
    assert done.stderr == b""
    assert [output.probe for output in outputs] == list(probes_of("quick"))
    found = {output.probe: output for output in outputs}
    machine = os.uname()
    assert found["uname"] == Output(
        probe="uname",
        status="ok",
        code=0,
        seconds=found["uname"].seconds,
        text=f"{machine.sysname} {machine.release} {machine.machine}\n",
    )
    assert found["exporter"].status == "not-run"
    assert found["file-systems"].text.splitlines()[0].split()[:2] == ["Filesystem", "1024-blocks"]
    assert list(target.temporary.iterdir()) == []
    assert settled(lambda: not target.processes(f"{target.temporary}/provision."))


def test_probes_that_keep_the_gpus_busy_run_one_after_another_and_last(any_target: Target) -> None:
    journal = any_target.temporary.parent / "journal"
    for name in ("nvidia-smi", "dcgmi", "nvbandwidth"):
        any_target.add_tool(name, f"echo begin {name} >>{journal}", "sleep 0.3", f"echo end {name} >>{journal}")
    any_target.collect("nvlink-status", "dcgmi-diag", "nvbandwidth", "dcgmi-diag-2")
    words = ["nvidia-smi", "dcgmi", "nvbandwidth", "dcgmi"]
    assert journal.read_text(encoding="utf-8").split() == [
        word for name in words for word in ("begin", name, "end", name)
    ]


def test_quick_probes_run_side_by_side(any_target: Target) -> None:
    meeting = any_target.temporary.parent / "meeting"
    meeting.mkdir()
    # Each waits for the other: one after another they would never end.
    any_target.add_tool(
        "nvidia-smi",
        f'touch "{meeting}/$1-$2"',
        f"while [ $(ls {meeting} | wc -l) -lt 2 ]; do sleep 0.05; done",
        "echo met",
    )
    found = any_target.collect("nvlink-status", "nvlink-errors")
    assert [found[name].text for name in ("nvlink-status", "nvlink-errors")] == ["met\n", "met\n"]


# -------------------------------------------------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        pytest.param(["echo fine"], "ok", 0, id="ok"),
        pytest.param(["echo half; echo reason >&2; exit 9"], "failed", 9, id="failed"),
        pytest.param(["echo 'Insufficient Permissions' >&2; exit 4"], "denied", None, id="denied"),
        pytest.param(["echo half; kill -SEGV $$"], "failed", 139, id="crashed"),
    ],
)
def test_status_tells_how_a_tool_ended(target: Target, lines: list[str], status: str, code: int | None) -> None:
    target.add_tool("nvidia-smi", *lines)
    found = target.collect("nvlink-status")["nvlink-status"]
    assert found.status == status
    if code is not None:
        assert found.code == code


def test_a_tool_that_is_not_there_is_absent(any_target: Target) -> None:
    found = any_target.collect("nvidia-smi-xml", change={"need nvidia-smi": "need no-such-tool"})["nvidia-smi-xml"]
    assert (found.status, found.code, found.text) == ("absent", None, "")
    assert found.error == "no-such-tool is not on the target\n"


def test_what_a_failed_tool_said_is_kept(any_target: Target) -> None:
    any_target.add_tool("nvidia-smi", "echo half", "echo why >&2", "exit 15")
    found = any_target.collect("nvidia-smi-topology")["nvidia-smi-topology"]
    assert (found.status, found.code, found.text, found.error) == ("failed", 15, "half\n", "why\n")


@pytest.mark.parametrize("code", [0, 15], ids=["good", "gpu-lost"])
def test_supported_clocks_are_dropped_and_the_code_is_kept(target: Target, code: int) -> None:
    document = "\n".join(
        [
            "<gpu><name>first</name>",
            "<supported_clocks>",
            "<mem>1</mem>",
            "</supported_clocks>",
            "<between>1</between>",
            "<supported_clocks>N/A</supported_clocks>",
            "<after>2</after></gpu>",
        ]
    )
    target.add_tool("nvidia-smi", f"cat <<'X'\n{document}\nX", f"exit {code}")
    found = target.collect("nvidia-smi-xml")["nvidia-smi-xml"]
    assert found.code == code
    assert found.status == ("failed" if code else "ok")
    assert found.text.splitlines() == ["<gpu><name>first</name>", "<between>1</between>", "<after>2</after></gpu>"]


@pytest.mark.parametrize(
    ("said", "status"),
    [('{"DCGM Diagnostic": {}}', "ok"), ('{"DCGM GPU Diagnostic": {}}', "ok"), ("no host engine", "failed")],
    ids=["dcgm-4", "dcgm-3", "no-document"],
)
def test_dcgm_document_counts_more_than_its_code(any_target: Target, said: str, status: str) -> None:
    any_target.add_tool("dcgmi", f"echo '{said}'", "exit 226")
    found = any_target.collect("dcgmi-diag")["dcgmi-diag"]
    assert (found.status, found.code) == (status, 226)


# ---------------------------------------------------------------------------------------------- tools that misbehave

STUBBORN = ("trap '' TERM HUP INT", "echo begun", "while :; do sleep 33.125; done")


def test_a_tool_that_ignores_signals_is_hung_and_ended(target: Target) -> None:
    target.add_tool("nvidia-smi", *STUBBORN)
    found = target.collect("nvlink-status", "uname", seconds_scale=0.1)
    assert (found["nvlink-status"].status, found["nvlink-status"].code) == ("hung", None)
    assert found["nvlink-status"].text == "begun\n"
    assert found["uname"].status == "ok"
    assert settled(lambda: not target.processes(f"{target.tools}/nvidia-smi"))
    assert list(target.temporary.iterdir()) == []


@pytest.mark.parametrize("setsid", [True, False], ids=["with-groups", "without-groups"])
def test_without_a_timeout_the_collector_watches_itself(outer_target: Target, setsid: bool) -> None:
    outer_target.add_tool("timeout", "exit 125")
    if not setsid:
        outer_target.add_tool("setsid", "exit 1")
    outer_target.add_tool("nvidia-smi", *STUBBORN)
    found = outer_target.collect("nvlink-status", seconds_scale=0.1)["nvlink-status"]
    assert (found.status, found.text) == ("hung", "begun\n")
    assert settled(lambda: not outer_target.processes(f"{outer_target.tools}/nvidia-smi"))


def test_a_timeout_that_never_ends_anything_is_seen_through(outer_target: Target) -> None:
    outer_target.add_tool("timeout", 'while [ "${1#-}" != "$1" ]; do shift 2; done', "shift", 'exec "$@"')
    outer_target.add_tool("nvidia-smi", *STUBBORN)
    found = outer_target.collect("nvlink-status", seconds_scale=0.1)["nvlink-status"]
    assert (found.status, found.text) == ("hung", "begun\n")
    assert settled(lambda: not outer_target.processes(f"{outer_target.tools}/nvidia-smi"))


def test_a_process_that_cannot_be_ended_holds_nothing_up(outer_target: Target) -> None:
    # Neither timeout nor the collector can end it, as with a process that waits inside the driver.
    outer_target.add_tool("timeout", 'while [ "${1#-}" != "$1" ]; do shift 2; done', "shift", 'exec "$@"')
    mark = outer_target.temporary.parent / "pid"
    outer_target.add_tool("nvidia-smi", f"echo $$ >{mark}", "echo begun", "exec sleep 44")
    began = time.monotonic()
    found = outer_target.collect(
        "nvlink-status", "uname", seconds_scale=0.1, change={"set -u\nLC_ALL=C": "kill() { :; }\nset -u\nLC_ALL=C"}
    )
    took = time.monotonic() - began
    process = int(mark.read_text(encoding="utf-8"))
    os.kill(process, 0)
    os.kill(process, signal.SIGKILL)
    assert found["nvlink-status"].status == "hung"
    assert found["uname"].status == "ok"
    # It sleeps for 44 seconds, and whoever held the channel would keep the caller as long.
    assert took < 40
    assert list(outer_target.temporary.iterdir()) == []


def test_a_tool_that_leaves_somebody_behind_has_answered(target: Target) -> None:
    target.add_tool("nvidia-smi", "sleep 55.5 &", "echo done")
    found = target.collect("nvlink-status")["nvlink-status"]
    assert (found.status, found.code, found.text) == ("ok", 0, "done\n")
    assert settled(lambda: not target.processes("sleep 55.5"))


def test_endless_output_is_cut(target: Target) -> None:
    target.add_tool("nvidia-smi", "yes 0123456789012345678901234567890123456789")
    found = target.collect("nvlink-status", bytes_max=5000)["nvlink-status"]
    assert found.status == "cut"
    assert len(found.text) == 5000


def test_endless_errors_are_cut(any_target: Target) -> None:
    any_target.add_tool("nvidia-smi", "echo fine", "head -c 1000000 /dev/zero | tr '\\0' x >&2")
    found = any_target.collect("nvlink-status")["nvlink-status"]
    assert (found.status, found.text) == ("ok", "fine\n")
    assert len(found.error) == 16384


def test_output_that_looks_like_the_stream_stays_output(target: Target) -> None:
    forged = f"@record {NONCE} uname ok 0 10 0 0\n\n@end {NONCE} 1\n@provision-collector {NONCE} 1 plain\n"
    target.add_tool("nvidia-smi", f"printf '%s' '{forged}'", "head -c 3000 /dev/urandom")
    found = target.collect("nvlink-status", "uname", is_compressed=False)
    assert found["nvlink-status"].text.startswith(forged)
    assert found["uname"].text.startswith("Linux ")


def test_probes_cannot_read_the_program_itself(target: Target) -> None:
    target.add_tool("nvidia-smi", "cat")
    found = target.collect("nvlink-status", "uname")
    assert (found["nvlink-status"].status, found["nvlink-status"].text) == ("ok", "")
    assert found["uname"].status == "ok"


def test_the_deadline_for_all_probes_holds(any_target: Target) -> None:
    any_target.add_tool("nvidia-smi", "echo begun", "exec sleep 50")
    any_target.add_tool("nvbandwidth", "echo never")
    found = any_target.collect("nvlink-status", "uname", "nvbandwidth", total_seconds=1)
    assert found["nvlink-status"].status == "hung"
    assert found["nvlink-status"].seconds < PROBES["nvlink-status"].seconds
    assert found["uname"].status == "ok"
    assert (found["nvbandwidth"].status, found["nvbandwidth"].text) == ("not-run", "")


def test_a_collector_that_is_told_to_stop_cleans_up(target: Target) -> None:
    target.add_tool("nvidia-smi", *STUBBORN)
    program = compose(CollectOptions(nonce=NONCE, probes=("nvlink-status",)))
    command = [str(target.tools / "sh"), "-s"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=target.environment,
        start_new_session=True,
    )
    process.stdin.write(program)
    process.stdin.close()
    assert settled(lambda: bool(target.processes(f"{target.tools}/nvidia-smi")))
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=20)
    process.stdout.close()
    process.stderr.close()
    assert settled(lambda: not target.processes(f"{target.tools}/nvidia-smi"))
    assert settled(lambda: not list(target.temporary.iterdir()))


# --------------------------------------------------------------------------------------------- what is told, and not


def test_only_known_variables_and_no_secret_leave_the_target(any_target: Target) -> None:
    any_target.environment |= {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "SLURM_JOB_ID": "7",
        "LD_LIBRARY_PATH": "",
        "NVIDIA_API_KEY": "nvapi-1",
        "TORCH_HUB_TOKEN": "t",
        "NCCL_SECRET": "s",
        "AWS_SECRET_ACCESS_KEY": "a",
        "DATABASE": "d",
        "SLURM_JWT": "j",
    }
    found = any_target.collect("environment")["environment"]
    values = dict(line.split("=", 1) for line in found.text.splitlines())
    assert values == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "SLURM_JOB_ID": "7",
        "LD_LIBRARY_PATH": "",
        "PATH": any_target.environment["PATH"],
    }


def test_pci_devices_are_told_one_a_line(target: Target) -> None:
    devices = target.temporary.parent / "pci"
    gpu = {
        "vendor": "0x10de",
        "device": "0x2330",
        "class": "0x030200",
        "revision": "0xa1",
        "current_link_width": "16",
        "max_link_width": "16",
        "current_link_speed": "2.5 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "numa_node": "0",
        "power_state": "D0",
        "d3cold_allowed": "1",
    }
    sound = {"vendor": "0x8086", "device": "0x1234", "class": "0x040300"}
    for address, files in {"0000:18:00.0": gpu, "0000:00:1f.3": sound}.items():
        (devices / address).mkdir(parents=True)
        for name, value in files.items():
            (devices / address / name).write_text(value + "\n", encoding="ascii")
    (devices / "nvidia").mkdir()
    (devices / "0000:18:00.0" / "driver").symlink_to("../nvidia")
    found = target.collect("pci", change={"/sys/bus/pci/devices": str(devices)})["pci"]
    assert found.text.splitlines() == [
        "\t".join(
            [
                "address=0000:18:00.0",
                "class=030200",
                "vendor=10de",
                "device=2330",
                "revision=a1",
                "driver=nvidia",
                "width=16",
                "width_max=16",
                "speed=2.5 GT/s PCIe",
                "speed_max=32.0 GT/s PCIe",
                "numa=0",
                "power_state=D0",
                "d3cold=1",
                "is_vf=no",
            ]
        )
    ]


BOOT = "[    0.000000] Linux version 6.8.0 (buildd@host) #1 SMP"
XID_79 = "[  500.000000] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
CORRECTED = "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:18:00.0"


def test_what_a_device_hangs_on_is_told(target: Target) -> None:
    listing, root = target.temporary.parent / "pci", target.temporary.parent / "pci0000:16"
    listing.mkdir()
    chain = ("0000:16:01.0", "0000:17:00.0", "0000:18:00.0")
    folder = root
    for address in chain:
        folder /= address
        folder.mkdir(parents=True)
        values = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
        for name, value in values.items():
            (folder / name).write_text(value + "\n", encoding="ascii")
        (listing / address).symlink_to(folder)
    found = target.collect("pci", change={"/sys/bus/pci/devices": str(listing)})["pci"]
    assert [device.parents for device in parse_pci_sysfs(found.text)] == [chain[:0], chain[:1], chain[:2]]


def _say(*lines: str) -> str:
    """Return a command of a tool that prints these lines."""
    return "\n".join(["cat <<'LOG'", *lines, "LOG"])


def _kernel_log(target: Target, **options: object) -> tuple[Output, KernelLog]:
    # busybox has a dmesg of its own, which it prefers to one on the path.
    change = {'dmesg >"$DIR/kernel.said"': f'{target.tools}/dmesg >"$DIR/kernel.said"'}
    found = target.collect("kernel-log", change=change, **options)["kernel-log"]
    return found, parse_kernel_log(found.text)


def test_kernel_log_keeps_its_beginning_and_what_concerns_gpus(target: Target) -> None:
    lines = [BOOT, "[    1.0] NVRM: first", "[    2.0] audit: nothing of interest", XID_79]
    target.add_tool("dmesg", _say(*lines))
    assert _kernel_log(target)[0].text.splitlines() == [lines[0], lines[1], lines[3]]


def test_a_flood_of_corrected_errors_hides_no_fault(target: Target) -> None:
    flood = [f"[{1000 + number}.000000] {CORRECTED}" for number in range(5200)]
    quiet = [f"[{600 + number}.000000] NVRM: loading {number}" for number in range(20)]
    target.add_tool("dmesg", _say(BOOT, XID_79, *quiet, *flood))
    found, log = _kernel_log(target)
    assert (found.status, log.is_whole) == ("ok", True)
    assert [event.code for event in log.of("xid")] == [79]
    kept = found.text.splitlines()
    assert kept[:22] == [BOOT, XID_79, *quiet]
    assert kept[22:] == flood[-500:]


def test_of_more_faults_than_there_is_room_the_first_and_the_last_are_kept_and_it_is_said(target: Target) -> None:
    faults = [f"[{number}.000000] NVRM: Xid (PCI:0000:18:00): 31, line {number}" for number in range(1, 301)]
    target.add_tool("dmesg", _say(BOOT, *faults))
    found, log = _kernel_log(target, bytes_max=2000)
    assert (found.status, log.is_whole) == ("ok", False)
    kept = found.text.splitlines()
    assert len(found.text) <= 4000
    assert kept[1:3] == [BOOT, faults[0]]
    assert kept[-1] == faults[-1]
    assert set(kept[1:]) < {BOOT, *faults}


WRAPPED = tuple(f"[{900000 + number}.000000] NVRM: loading {number}" for number in range(30))
JOURNAL = "2026-01-01T00:00:{:02}+00:00 host kernel: {}"


@pytest.mark.parametrize(
    ("journal", "codes", "is_whole"),
    [
        pytest.param(
            [JOURNAL.format(0, "Linux version 6.8.0"), JOURNAL.format(9, XID_79[15:])], [79], True, id="journal-whole"
        ),
        pytest.param([JOURNAL.format(9, XID_79[15:])], [], False, id="journal-shorter"),
        pytest.param([JOURNAL.format(9, XID_79[15:])] * 40, [79] * 40, False, id="journal-longer"),
        pytest.param(["-- No entries --"], [], False, id="journal-hidden"),
        pytest.param(None, [], False, id="journal-never-ends"),
    ],
)
def test_a_buffer_that_was_overwritten_gives_way_to_the_journal(
    outer_target: Target, journal: list[str] | None, codes: list[int], is_whole: bool
) -> None:
    outer_target.add_tool("dmesg", _say(*WRAPPED))
    if journal is None:
        outer_target.add_tool("timeout", 'case $1 in 6) exit 124 ;; esac; exec /usr/bin/timeout "$@"')
    outer_target.add_tool("journalctl", _say(*(journal or [JOURNAL.format(0, "Linux version 6.8.0")])))
    found, log = _kernel_log(outer_target)
    assert found.status == "ok"
    assert ([event.code for event in log.of("xid")], log.is_whole) == (codes, is_whole)
    assert found.text.splitlines()[0] == (journal[0] if codes else WRAPPED[0])


def test_a_buffer_that_holds_all_since_boot_is_enough(outer_target: Target) -> None:
    asked = outer_target.temporary.parent / "asked"
    outer_target.add_tool("dmesg", _say(BOOT, XID_79))
    outer_target.add_tool("journalctl", f"touch {asked}")
    assert _kernel_log(outer_target)[1].is_whole
    assert not asked.exists()


@pytest.mark.parametrize(
    ("journal", "status", "text"),
    [
        pytest.param("-- No entries --", "denied", "", id="journal-hidden"),
        pytest.param(
            "2026-01-01T00:00:00+00:00 host kernel: NVRM: loading",
            "ok",
            "2026-01-01T00:00:00+00:00 host kernel: NVRM: loading\n",
            id="journal-readable",
        ),
    ],
)
def test_a_kernel_log_that_may_not_be_read_is_no_empty_log(
    any_target: Target, journal: str, status: str, text: str
) -> None:
    any_target.add_tool("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2", "exit 1")
    any_target.add_tool("journalctl", f"echo '{journal}'")
    found = any_target.collect("kernel-log")["kernel-log"]
    assert (found.status, found.text) == (status, text)


def test_limits_are_those_of_the_session(target: Target) -> None:
    found = target.collect("limits")["limits"]
    values = dict(line.split() for line in found.text.splitlines())
    said = Path("/proc/self/limits").read_text(encoding="ascii")
    files = re.search(r"Max open files\s+(\S+)", said)
    assert values["nofile"] == files[1]
    assert {"memlock_kib", "nofile"} <= set(values)


def test_libraries_of_the_search_path_are_followed_to_their_files(target: Target) -> None:
    folder = target.temporary.parent / "lib dir"
    folder.mkdir()
    (folder / "libcudnn.so.8.9.2").touch()
    (folder / "libcudnn.so.8").symlink_to("libcudnn.so.8.9.2")
    (folder / "libother.so.1").touch()
    target.environment["LD_LIBRARY_PATH"] = f"/nowhere:{folder}/:"
    text = target.collect("libraries")["libraries"].text
    ours = [line for line in text.splitlines() if str(folder) in line]
    assert ours == [f"libcudnn.so.8\t{folder}/libcudnn.so.8\tlibcudnn.so.8.9.2\tLD_LIBRARY_PATH"]


def test_a_script_of_ours_brings_the_interpreter(target: Target) -> None:
    found = target.collect("python", python=shutil.which("python3"))["python"]
    assert found.status == "ok"
    assert "@provision-payload {" in found.text


def test_an_interpreter_that_is_not_there_is_absent(any_target: Target) -> None:
    found = any_target.collect("python", "torch", python="/no/such/python")
    assert {output.status for output in found.values()} == {"absent"}


def test_nothing_writable_is_said_in_one_record(target: Target) -> None:
    target.environment["TMPDIR"] = "/no/such/folder"
    found = target.collect("uname", change={'/dev/shm /tmp /var/tmp /run "${HOME:-}" .': "/proc"})
    assert list(found) == ["collector"]
    assert found["collector"].status == "failed"
    assert found["collector"].error.startswith("no folder can be written")


def test_a_folder_without_room_is_passed_over(outer_target: Target) -> None:
    outer_target.add_tool("dd", f'case "$*" in *{outer_target.temporary}*) exit 1 ;; esac', 'exec /bin/dd "$@"')
    found = outer_target.collect("uname")
    assert found["uname"].status == "ok"
    assert list(outer_target.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        pytest.param({}, "not-run", "no container image was named", id="no-image"),
        pytest.param(
            {"container_image": "missing:1"}, "absent", "the image missing:1 is not on the target", id="no-such"
        ),
        pytest.param({"container_image": "here:1"}, "ok", "", id="there"),
    ],
)
def test_a_container_runs_only_from_an_image_that_is_there(
    any_target: Target, options: dict[str, str], status: str, reason: str
) -> None:
    any_target.add_tool(
        "docker",
        'case "$*" in',
        "'image inspect here:1') exit 0 ;;",
        "'image inspect '*) echo 'Error: No such image: x' >&2; exit 1 ;;",
        '*) echo "$*" ;;',
        "esac",
    )
    found = any_target.collect("container-gpu", **options)["container-gpu"]
    assert (found.status, found.error.strip()) == (status, reason)
    if status == "ok":
        assert found.text.split()[0] == "run"
        assert "--gpus all" in found.text


@pytest.mark.parametrize("knows_all", [True, False], ids=["new", "old"])
def test_docker_is_asked_for_what_matters(any_target: Target, knows_all: bool) -> None:
    refusal = "echo 'template: can'\\''t evaluate field CDISpecDirs in type' >&2; exit 1"
    any_target.add_tool(
        "docker",
        f'case "$3" in *CDISpecDirs*) {"" if knows_all else refusal} ;; esac',
        "printf '%s\\n' \"$3\"",
    )
    found = any_target.collect("docker-info")["docker-info"]
    assert found.status == "ok"
    words = found.text.strip()
    if knows_all:
        assert words.startswith('{"ServerVersion":{{json .ServerVersion}},"Runtimes":{{json .Runtimes}},')
        assert words.endswith('"ServerErrors":{{json .ServerErrors}}}')
    else:
        assert words == "{{json .}}"


def test_systemd_is_not_reloaded_unless_it_was_allowed(any_target: Target) -> None:
    called = any_target.temporary.parent / "called"
    for name in ("systemctl", "docker"):
        any_target.add_tool(name, f"echo {name} >>{called}")
    found = any_target.collect("daemon-reload", container_image="here:1")["daemon-reload"]
    assert found.status == "not-run"
    assert not called.exists()


def test_ports_of_other_hosts(target: Target) -> None:
    import socket

    with socket.socket() as listener, socket.socket() as closed:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        closed.bind(("127.0.0.1", 0))
        heard, unheard = listener.getsockname()[1], closed.getsockname()[1]
        found = target.collect("ports", peers=("127.0.0.1",), ports=(heard, unheard))["ports"]
    assert sorted(found.text.splitlines()) == sorted([f"127.0.0.1 {heard} open", f"127.0.0.1 {unheard} refused"])


def test_a_silent_exporter_is_a_failure_and_not_an_empty_answer(any_target: Target) -> None:
    any_target.add_tool("curl", "echo 'curl: (7) Failed to connect' >&2", "exit 7")
    found = any_target.collect("exporter", exporter_port=9400)["exporter"]
    assert (found.status, found.code, found.text) == ("failed", 7, "")
    assert "9400" in found.error


# --------------------------------------------------------------------------------------------------------- composing


def test_same_options_give_the_same_bytes() -> None:
    options = CollectOptions(nonce=NONCE, level="deep")
    assert compose(options) == compose(CollectOptions(nonce=NONCE, level="deep"))
    assert new_nonce() != new_nonce()


def test_values_reach_the_target_as_words(target: Target) -> None:
    pwned = target.temporary.parent / "pwned"
    hostile = f"/x'; touch {pwned}; echo '$(touch {pwned})`touch {pwned}`"
    found = target.collect("python", "textfile", python=hostile, textfile_dir=hostile, dcgmi=hostile)
    assert found["python"].status == "absent"
    assert not pwned.exists()


def test_only_the_scripts_that_are_needed_travel() -> None:
    assert b"payload-" not in compose(CollectOptions(nonce=NONCE, probes=("uname",))).replace(b"payload-$1.py", b"")
    assert b"/payload-framework.py" in compose(CollectOptions(nonce=NONCE, probes=("jax",)))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"nonce": "a b"}, id="nonce"),
        pytest.param({"level": "thorough"}, id="level"),
        pytest.param({"probes": ("no-such-probe",)}, id="probe"),
        pytest.param({"engine": "rkt"}, id="engine"),
        pytest.param({"backend": "mpi"}, id="backend"),
        pytest.param({"peers": ("-oProxyCommand=x",)}, id="peer"),
        pytest.param({"master": "a;b"}, id="master"),
        pytest.param({"ports": (70000,)}, id="port"),
        pytest.param({"python": "a\nb"}, id="line-end"),
        pytest.param({"container_image": "--privileged"}, id="option"),
        pytest.param({"seconds_scale": 0.0}, id="scale"),
        pytest.param({"total_seconds": 0}, id="total"),
    ],
)
def test_what_a_shell_must_not_see_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        CollectOptions(**{"nonce": NONCE, **options})


def test_time_limits_add_up() -> None:
    quick = CollectOptions(nonce=NONCE, probes=("uname", "tensorflow"))
    both = CollectOptions(nonce=NONCE, probes=("uname", "tensorflow", "nvbandwidth"))
    assert quick.deadline_seconds() >= PROBES["tensorflow"].seconds
    assert both.deadline_seconds() >= quick.deadline_seconds() + PROBES["nvbandwidth"].seconds
    assert CollectOptions(nonce=NONCE, total_seconds=10).deadline_seconds() < 20
