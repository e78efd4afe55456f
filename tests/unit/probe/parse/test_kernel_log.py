"""The kernel log: five time styles, every kind of event, and text that is not a log at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from provision.probe.compose import COLLECTOR
from provision.probe.output import Unreadable
from provision.probe.parse import kernel_log
from provision.probe.parse.kernel_log import EVENTS_MAX, KernelEvent, parse_kernel_log

XID = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def only_event(text: str) -> KernelEvent:
    events = parse_kernel_log(text).events
    assert len(events) == 1, events
    return events[0]


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        pytest.param("[   12.500000] ", "[   14.750000] ", 2.25, id="since-boot"),
        pytest.param("[   12.500000][  T123] ", "[   13.500000][ C7] ", 1.0, id="since-boot-with-caller"),
        pytest.param("<4>[   12.500000] ", "<4>[   14.500000] ", 2.0, id="since-boot-with-priority"),
        pytest.param("[Mon Sep  1 10:00:00 2025] ", "[Tue Sep  2 10:00:05 2025] ", 86_405.0, id="calendar"),
        pytest.param("2025-09-01T10:00:00,500000+00:00 ", "2025-09-01T10:00:01,750000+00:00 ", 1.25, id="iso"),
        pytest.param("2025-09-01T10:00:00+0000 n kernel: ", "2025-09-01T12:00:30+0200 n kernel: ", 30.0, id="zones"),
        pytest.param("2025-09-01T10:00:00.25Z node7 kernel: ", "2025-09-01T10:00:01Z node7 kernel: ", 0.75, id="utc"),
        pytest.param("Sep 01 10:00:00 node7 kernel: ", "Sep 01 10:03:00 node7 kernel: ", 180.0, id="syslog"),
        pytest.param("Sep  1 10:00:00 n kernel: [ 1.5] ", "Sep  1 10:00:09 n kernel: [ 9.5] ", 9.0, id="syslog-inner"),
        pytest.param("Dec 31 23:59:50 node7 kernel: ", "Jan  1 00:00:10 node7 kernel: ", 20.0, id="syslog-new-year"),
        pytest.param("6,1234,5000000,-;", "3,1235,6500000,-;", 1.5, id="raw"),
        pytest.param("6,1234,5000000,-,caller=T1;", "3,1235,6500000,c,caller=T1;", 1.5, id="raw-with-caller"),
    ],
)
def test_each_time_style_is_read(first: str, second: str, seconds: float) -> None:
    events = parse_kernel_log(f"{first}{XID}\n{second}{XID}\n").events
    assert [event.code for event in events] == [79, 79]
    assert events[1].seconds - events[0].seconds == pytest.approx(seconds, abs=1e-3)
    assert {event.text for event in events} == {XID}


@pytest.mark.parametrize("prefix", ["kern  :warn  : ", "kern  :err   : ", "user  :notice: ", "kern:err:"])
def test_prefixes_of_decoded_logs_are_taken_off(prefix: str) -> None:
    assert parse_kernel_log(f"{prefix}[  1.5] {XID}").lines == ((1.5, XID),)
    assert parse_kernel_log(f"{prefix}2025-01-21T04:41:44,285060+00:00 {XID}").lines[0][1] == XID


def test_styles_may_be_mixed_and_lines_without_a_stamp_are_kept() -> None:
    log = parse_kernel_log(f"[ 1.0] {XID}\nSep 01 10:00:00 host kernel: {XID}\n{XID}\n6,1,2000000,-;{XID}\n")
    assert [event.seconds is None for event in log.events] == [False, False, True, False]
    assert [line for _, line in log.lines] == [XID] * 4


@pytest.mark.parametrize(
    ("line", "kind", "pci"),
    [
        pytest.param("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", "fallen-off", "0000:18:00.0", id="off-bus"),
        pytest.param("NVRM: nvAssert: GPU lost from the bus [NV_ERR_GPU_IS_LOST]", "fallen-off", None, id="lost"),
        pytest.param("NVRM: API mismatch: the client has version X", "api-mismatch", None, id="api"),
        pytest.param(
            "python3[77]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+d3]",
            "nccl-segfault",
            None,
            id="segfault",
        ),
        pytest.param(
            "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0",
            "aer-fatal",
            "0000:18:00.0",
            id="aer-fatal",
        ),
        pytest.param(
            "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:18:00.0",
            "aer-fatal",
            "0000:18:00.0",
            id="aer-fatal-new",
        ),
        pytest.param(
            "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:18:00.0",
            "aer-uncorrected",
            "0000:18:00.0",
            id="aer-uncorrected",
        ),
        pytest.param(
            "pcieport 0000:00:01.0: AER: Multiple Corrected error received: 0000:18:00.0",
            "aer-corrected",
            "0000:18:00.0",
            id="aer-corrected",
        ),
        pytest.param(
            "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "aer-corrected",
            "0000:18:00.0",
            id="aer-detail",
        ),
        pytest.param(
            "pci 0000:18:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:17:00.0",
            "pcie-limited",
            "0000:18:00.0",
            id="limited",
        ),
        pytest.param(
            "pci 0000:18:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
            "bar-unassigned",
            "0000:18:00.0",
            id="bar-no-space",
        ),
        pytest.param(
            "pci 0000:18:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space",
            "bar-unassigned",
            "0000:18:00.0",
            id="bar-new",
        ),
        pytest.param("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:18:00.0)", "bar-unassigned", "0000:18:00.0", id="bar-nvrm"),
        pytest.param(
            "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
            "rm-init-failed",
            "0000:18:00.0",
            id="rm",
        ),
        pytest.param(
            "nvidia 0000:18:00.0: Direct firmware load for nvidia/1.2.3/gsp_ga10x.bin failed with error -2",
            "gsp-firmware",
            "0000:18:00.0",
            id="gsp",
        ),
        pytest.param(
            "NVRM: GPU 0000:18:00.0 is already bound to nouveau.", "nouveau-bound", "0000:18:00.0", id="nouveau"
        ),
        pytest.param("nvidia: probe of 0000:18:00.0 failed with error -1", "probe-failed", "0000:18:00.0", id="probe"),
        pytest.param(
            "NVRM: The NVIDIA probe routine failed for 1 device(s).", "probe-failed", None, id="probe-routine"
        ),
        pytest.param("Loading of unsigned module is rejected", "module-key-rejected", None, id="unsigned"),
        pytest.param(
            "nvidia 0000:18:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "d3cold",
            "0000:18:00.0",
            id="d3cold",
        ),
        pytest.param(
            "mlx5_core 0000:18:00.0: mlx5_pcie_event:307: Detected insufficient power on the PCIe slot (27W).",
            "mlx5-power",
            "0000:18:00.0",
            id="nic-power",
        ),
        pytest.param("mlx5_core 0000:18:00.0: High Temperature", "mlx5-temperature", "0000:18:00.0", id="nic-hot"),
        pytest.param("mlx5_core 0000:18:00.0 ens1f0: Link down", "link-lost", "0000:18:00.0", id="link"),
        pytest.param(
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            "peermem-context",
            None,
            id="peermem",
        ),
        pytest.param("Out of memory: Killed process 42 (python3) total-vm:1kB", "out-of-memory", None, id="oom"),
        pytest.param(
            "Memory cgroup out of memory: Killed process 42 (python3)", "out-of-memory", None, id="oom-cgroup"
        ),
        pytest.param(
            "watchdog: BUG: soft lockup - CPU#6 stuck for 23s! [python3:42]", "soft-lockup", None, id="lockup"
        ),
        pytest.param("INFO: task nvidia-smi:42 blocked for more than 122 seconds.", "hung-task", None, id="hung"),
        pytest.param("PM: suspend entry (deep)", "suspend", None, id="suspend"),
    ],
)
def test_each_kind_of_event_is_found(line: str, kind: str, pci: str | None) -> None:
    event = only_event(f"[  5.0] {line}")
    assert (event.kind, event.pci, event.seconds, event.text) == (kind, pci, 5.0, line)


@pytest.mark.parametrize(
    ("line", "process"),
    [
        ("NVRM: Xid (PCI:0000:18:00): 43, pid=77, name=pt_main, Ch 8", "pt_main (77)"),
        ("NVRM: Xid (PCI:0000:18:00): 43, pid='77', name=pt_main, Ch 8", "pt_main (77)"),
        ("NVRM: Xid (PCI:0000:18:00): 31, pid=77, Ch 8", "pid 77"),
        ("NVRM: Xid (PCI:0000:18:00): 43, pid='<unknown>', name=<unknown>, Ch 8", None),
        ("INFO: task nvidia-smi:42 blocked for more than 122 seconds.", "nvidia-smi (42)"),
        ("watchdog: BUG: soft lockup - CPU#6 stuck for 23s! [VM Thread:4054]", "VM Thread (4054)"),
        ("Out of memory: Killed process 42 (python3)", "python3 (42)"),
        ("a b[77]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+d3]", "a b (77)"),
    ],
)
def test_processes_are_named(line: str, process: str | None) -> None:
    assert only_event(line).process == process


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("PCI:0000:18:00", "0000:18:00.0"),
        ("0000:18:00", "0000:18:00.0"),
        ("PCI:0000:AF:00.1", "0000:af:00.1"),
        ("PCI:000D:00:00", "000d:00:00.0"),
        ("00000000:04:00.0", "0000:04:00.0"),
        ("PCI:0000:00:16", "0000:00:16.0"),
        ("04:00", "0000:04:00.0"),
    ],
)
def test_addresses_are_written_as_in_sysfs(written: str, normal: str) -> None:
    assert only_event(f"NVRM: Xid ({written}): 13, Graphics Exception").pci == normal


@pytest.mark.parametrize(
    ("word", "is_fatal"), [("Fatal", True), ("Non-fatal", False), ("Non-Fatal", False), ("Link 61", None)]
)
def test_switch_errors_say_whether_they_are_fatal(word: str, is_fatal: bool | None) -> None:
    event = only_event(f"[ 1.0] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, {word}, Link 61 egress error (First)")
    assert (event.kind, event.code, event.is_fatal, event.pci) == ("sxid", 12028, is_fatal, "0000:85:00.0")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "[7.5] NVRM: API mismatch: the client has the version 2.0, but\n"
            "      NVRM: this kernel module has the version 1.0.  Please\n"
            "      NVRM: make sure that this kernel module and all\n",
            id="indented",
        ),
        pytest.param(
            "[7.5] NVRM: API mismatch: the client has the version 2.0, but\n"
            "[7.5] NVRM: this kernel module has the version 1.0.  Please\n"
            "[7.5] NVRM: make sure that this kernel module and all\n",
            id="stamped",
        ),
        pytest.param(
            "NVRM: API mismatch: the client has the version 2.0, but\n"
            "NVRM: this kernel module has the version 1.0.  Please\n",
            id="bare",
        ),
        pytest.param(
            "Jun 30 11:07:05 n kernel: NVRM: API mismatch: the client has the version 2.0, but"
            "#012NVRM: this kernel module has the version 1.0.  Please\n",
            id="syslog",
        ),
        pytest.param(
            "3,1,7500000,-;NVRM: API mismatch: the client has the version 2.0, but"
            "\\x0aNVRM: this kernel module has the version 1.0.  Please\n SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n",
            id="raw",
        ),
    ],
)
def test_a_message_of_several_lines_is_one_event_with_all_of_its_text(text: str) -> None:
    event = only_event(text)
    assert event.kind == "api-mismatch"
    assert "client has the version 2.0" in event.text
    assert "kernel module has the version 1.0" in event.text
    assert "SUBSYSTEM" not in event.text


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("NVRM: fallen off the bus and is not responding to commands.", "fallen-off"),
        ("NVRM: installed in this system is not supported by open\nNVRM: nvidia.ko because", "open-unsupported"),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "open-required"),
    ],
)
def test_what_the_driver_says_of_one_gpu_over_several_lines_names_that_gpu(rest: str, kind: str) -> None:
    event = only_event(f"NVRM: The NVIDIA GPU 0000:3B:00.0\nNVRM: (PCI ID: 10de:1db4) and so on,\n{rest}\n")
    assert (event.kind, event.pci) == (kind, "0000:3b:00.0")


def test_the_next_message_is_not_swallowed_by_one_of_several_lines() -> None:
    log = parse_kernel_log(f"NVRM: API mismatch: a\nNVRM: this kernel module\n{XID}\nNVRM: API mismatch: b\n")
    assert [event.kind for event in log.events] == ["api-mismatch", "xid", "api-mismatch"]


def test_the_detail_of_a_bus_error_is_no_second_error() -> None:
    received = "[1.0] pcieport 0000:00:01.0: AER: Corrected error received: 0000:18:00.0\n"
    detail = "[1.0] nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
    assert [event.pci for event in parse_kernel_log((received + detail) * 3).events] == ["0000:18:00.0"] * 3


@pytest.mark.parametrize(
    "line",
    [
        "pci 0000:00:1c.0: BAR 13: no space for [io  size 0x1000]",
        "pci 0000:18:00.0: BAR 1 [mem 0xe05c0000000-0xe05cfffffff 64bit pref]: assigned",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  1.2.3",
        "NVRM: GPU at PCI:0000:18:00: GPU-a137dd66-f6a3-7951-1348-c37443697050",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "mlx5_core 0000:5e:00.0 ens1f0: Link up",
        "PM: Registering ACPI NVS region",
        "nvidia-nvswitch2: open (major=510)",
    ],
)
def test_everyday_lines_are_no_events(line: str) -> None:
    assert parse_kernel_log(f"[  1.0] {line}\n").events == ()


def test_an_empty_log_is_an_empty_log() -> None:
    for text in ("", "\n\n", "  \n"):
        log = parse_kernel_log(text)
        assert (log.lines, log.events, log.left_out) == ((), (), 0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x7fELF\x00\x00\x01", id="nul"),
        pytest.param("\ufffd" * 50 + "abc", id="replaced"),
        pytest.param("dmesg: read kernel buffer failed: Operation not permitted\n", id="refused"),
        pytest.param("<html><body>Not found</body></html>\n", id="page"),
        pytest.param("alpha\nbeta\ngamma\n" * 100, id="prose"),
        pytest.param("[Mon Foo 99 10:00:00 2025] hello\n9999-99-99T99:99:99 there\n", id="impossible-dates"),
    ],
)
def test_what_is_no_kernel_log_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_kernel_log(text)


def test_terminal_escapes_reach_no_record() -> None:
    log = parse_kernel_log("[1.0] \x1b[31mNVRM: Xid (PCI:0000:18:00): 79\x1b[0m, \x1b]0;title\x07bad\u202e name\n")
    text = log.events[0].text + log.lines[0][1]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "title" not in text


def test_texts_are_cut() -> None:
    assert len(only_event(f"[1.0] {XID}{'x' * 5000}").text) <= 400


def test_a_flood_of_one_kind_does_not_push_out_the_others() -> None:
    flood = [f"[{index}.0] NVRM: API mismatch: flood" for index in range(EVENTS_MAX * 2)]
    lines = (*flood[:EVENTS_MAX], f"[1000000.0] {XID}", *flood[EVENTS_MAX:])
    events = parse_kernel_log("\n".join(lines)).events
    assert len(events) == EVENTS_MAX
    assert [event.code for event in events if event.kind == "xid"] == [79]
    assert events[0].seconds == 0.0
    assert events[-1].seconds == EVENTS_MAX * 2 - 1


def test_left_out_events_are_counted() -> None:
    log = parse_kernel_log("[1.0] NVRM: API mismatch: flood\n" * (EVENTS_MAX + 7))
    assert len(log.events) == EVENTS_MAX
    assert log.left_out == 7


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param("[1.0] NVRM: Xid (" + "0" * 900 + "\n", id="address"),
        pytest.param("[1.0] " + "a" * 900 + " segfault at in libnccl\n", id="segfault"),
        pytest.param("nvidia/" * 200 + "\n", id="firmware"),
        pytest.param(" " * 900 + "x\n", id="blanks"),
        pytest.param("[1.0] \x1b[" + ";" * 900 + "\n", id="escape"),
        pytest.param("INFO: task " * 90 + "\n", id="task"),
    ],
)
def test_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    def spent(times: int) -> float:
        text = f"[1.0] {XID}\n" + unit * times
        start = time.perf_counter()
        parse_kernel_log(text)
        return time.perf_counter() - start

    spent(5)
    assert min(spent(300) for _ in range(3)) < 60 * min(spent(30) for _ in range(3)) + 0.05


def test_captured_lines_give_their_events(samples: Path) -> None:
    kinds = {"noxid79": ("fallen-off", None), "nccl-segv": ("nccl-segfault", None), "softlockup": ("soft-lockup", None)}
    rows = (samples / "xid" / "kernel-lines.tsv").read_text(encoding="utf-8").splitlines()
    for expected, _, line in (row.split("\t") for row in rows if not row.startswith("#")):
        event = only_event(line)
        if expected.isdigit():
            assert (event.kind, event.code) == ("xid", int(expected)), line
        elif expected.startswith("sxid"):
            assert (event.kind, event.code) == ("sxid", int(expected[4:])), line
        else:
            assert (event.kind, event.code) == kinds[expected], line


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("api-mismatch-535-and-470.txt", {"api-mismatch": 2}),
        ("gpud-kmsg-raw.log", {}),
        ("gpud-kmsg-peermem.log", {"peermem-context": 7}),
        ("gpud-nccl-segfault.log", {"nccl-segfault": 2}),
        ("gpud-vfs-file-max.log", {}),
        ("gpud-xid13-and-oom.log", {"xid": 17, "out-of-memory": 3}),
    ],
)
def test_captured_logs_give_their_events(samples: Path, name: str, counts: dict[str, int]) -> None:
    log = parse_kernel_log((samples / "dmesg" / name).read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    for event in log.events:
        found[event.kind] = found.get(event.kind, 0) + 1
    assert found == counts
    assert all(seconds is not None for seconds, _ in log.lines)


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        pytest.param("[    0.000000] Linux version 6.8.0 (x) #1\n[    1.0] NVRM: a", True, id="dmesg"),
        pytest.param("<6>[    0.000000] Booting Linux on physical CPU 0x0", True, id="arm"),
        pytest.param("[    0.000000] DMAR: a\n[    1.0] NVRM: a", True, id="zero"),
        pytest.param("6,0,0,-;Linux version 6.8.0", True, id="raw"),
        pytest.param("2026-01-01T00:00:00+00:00 host kernel: Linux version 6.8.0", True, id="journal"),
        pytest.param("[900000.000000] NVRM: a", False, id="overwritten"),
        pytest.param("NVRM: a", False, id="no-stamp"),
        pytest.param("[    1.0] NVRM: a\n" * 200 + "[    2.0] Linux version 6.8.0", False, id="late"),
        pytest.param("[    1.0] audit: Linux version 6.8.0", False, id="quoted"),
        pytest.param(
            "-- lines that tell of faults are left out --\n[    0.000000] Linux version 6.8.0", False, id="left-out"
        ),
        pytest.param("", False, id="empty"),
    ],
)
def test_a_log_is_whole_where_it_begins_with_the_kernel(text: str, is_whole: bool) -> None:
    assert parse_kernel_log(text).is_whole is is_whole


def test_collector_and_parser_have_the_same_words_for_what_is_left_out() -> None:
    said = f"KERNEL_LEFT_OUT='{kernel_log._LEFT_OUT}'"
    assert said in COLLECTOR.read_text(encoding="utf-8")
