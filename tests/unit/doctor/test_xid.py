"""Xids: incidents, the fields of NVLink 5, and the sign rules make of them."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.xid import decode_nvlink, explain_xids, group_incidents, incidents_of
from provision.matrix.load import Matrix
from provision.probe.parse.kernel_log import KernelEvent, parse_kernel_log

MATRIX = Matrix()
WORDS = "0x00000000 0x00000000 0x00000000 0x00000000"


def event(code: int, seconds: float | None = None, pci: str | None = "0000:18:00.0") -> KernelEvent:
    return KernelEvent(kind="xid", code=code, seconds=seconds, pci=pci, text=f"NVRM: Xid (PCI:{pci}): {code}, rest")


def logged(rest: str) -> KernelEvent:
    (found,) = parse_kernel_log(f"[1.0] NVRM: Xid (PCI:0000:18:00): {rest}").events
    return found


def codes(incidents) -> list[tuple[int, ...]]:
    return [incident.codes for incident in incidents]


def test_xids_that_follow_closely_are_one_incident() -> None:
    events = [event(79, 10.0), event(45, 11.0), event(45, 150.0), event(119, 320.0)]
    assert codes(group_incidents(events, 180.0)) == [(79, 45, 119)]


def test_silence_ends_an_incident() -> None:
    assert codes(group_incidents([event(79, 10.0), event(45, 190.0), event(13, 370.5)], 180.0)) == [(79, 45), (13,)]


def test_gpus_have_incidents_of_their_own() -> None:
    events = [event(79, 10.0), event(31, 11.0, "0000:5d:00.0"), event(45, 12.0)]
    incidents = group_incidents(events, 180.0)
    assert [(incident.pci, incident.codes) for incident in incidents] == [
        ("0000:18:00.0", (79, 45)),
        ("0000:5d:00.0", (31,)),
    ]


def test_xids_without_a_time_join_the_incident_before() -> None:
    assert codes(group_incidents([event(79, 10.0), event(45), event(13, 500.0)], 180.0)) == [(79, 45), (13,)]
    assert codes(group_incidents([event(79), event(45)], 180.0)) == [(79, 45)]


def test_no_xids_are_no_incidents() -> None:
    assert group_incidents([], 180.0) == ()


def test_gap_is_a_fact() -> None:
    gap = MATRIX.limit("doctor.incident")
    lines = "".join(f"[ {moment}.0] NVRM: Xid (PCI:0000:18:00): 45, Ch 8\n" for moment in (100, 100 + int(gap), 999))
    assert codes(incidents_of(Case(MATRIX, texts=[("log", lines)]))) == [(45,), (45,)]


@pytest.mark.parametrize(
    ("rest", "fields"),
    [
        pytest.param(
            f"145, pid=9, name=trainer, RLW_REMAP Fatal XC0 i0 Link 12 (0x00000082 0x00000040 {WORDS})",
            ("RLW_REMAP", True, 12, 0, 0x40),
            id="with-a-process",
        ),
        pytest.param(
            f"149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x004531c6 0x00000000 {WORDS})",
            ("NETIR_LINK_EVT", True, 3, 4, 0),
            id="sub-code",
        ),
        pytest.param(
            "144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000008 0x00000000",
            ("SAW_MVB", False, 0, 0, 8),
            id="cut",
        ),
        pytest.param(
            f"146, TLW_RX/TLW_RX_PIPE1 Nonfatal XC0 i0 Link 00 (0x0000000b 0x00000001 {WORDS})",
            ("TLW_RX/TLW_RX_PIPE1", False, 0, 0, 1),
            id="two-names",
        ),
        pytest.param("147, TREX Nonfatal XC0 i0 (0x03f0000e)", ("TREX", False, None, 63, None), id="no-link-no-status"),
    ],
)
def test_fields_are_read(rest: str, fields: tuple[object, ...]) -> None:
    fault = decode_nvlink(logged(rest), MATRIX)
    assert (fault.unit, fault.is_fatal, fault.link, fault.sub_code, fault.status) == fields
    assert fault.code == int(rest[:3])


@pytest.mark.parametrize(
    ("rest", "action"),
    [
        ("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001 0x0", "IGNORE"),
        ("144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x0", "RESET_GPU"),
        ("145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000082 0x00000001 0x0", "XID_154"),
        ("146, TLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000123 0xdeadbeef 0x0", None),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00086226 0x00000001 0x0", "IGNORE"),
        ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x004001c6 0x00000000 0x0", "RESET_GPU"),
        ("149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x028001c6 0x12345678 0x0", "IGNORE"),
    ],
)
def test_action_is_the_catalogues(rest: str, action: str | None) -> None:
    assert decode_nvlink(logged(rest), MATRIX).action == action


@pytest.mark.parametrize(
    "rest", ["79, GPU has fallen off the bus.", "145, pid=9, name=trainer, something else", "149, (0x1 0x2)"]
)
def test_lines_without_the_fields_are_not_decoded(rest: str) -> None:
    assert decode_nvlink(logged(rest), MATRIX) is None


def test_captured_lines_are_decoded(samples: Path) -> None:
    rows = [row.split("\t") for row in (samples / "xid" / "kernel-lines.tsv").read_text(encoding="utf-8").splitlines()]
    lines = [row[2] for row in rows if row[0].isdigit() and 144 <= int(row[0]) <= 150]
    faults = [decode_nvlink(found, MATRIX) for line in lines for found in parse_kernel_log(line).events]
    assert len(faults) == len(lines) > 10
    assert all(fault is not None and fault.link is not None and not fault.is_fatal for fault in faults)


def test_signs_name_gpu_time_and_company() -> None:
    outputs = machines.kernel_line(machines.hgx_h100(), "[ 50.0] NVRM: Xid (PCI:0000:5d:00): 94, pid=1, name=a")
    outputs = machines.kernel_line(outputs, "[ 51.0] NVRM: Xid (PCI:0000:5d:00): 45, pid=1, name=a")
    case = Case(MATRIX, machines.snapshot(outputs))
    sign = explain_xids(case, 94)
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)
    assert sign.seconds == 50.0
    assert sign.confidence == "high"
    assert sign.seen[-1] == "in the same incident: Xid 45"
    assert explain_xids(case, 79) is None


def test_pasted_lines_beside_a_target_bring_no_time_of_another_clock() -> None:
    text = "[ 50.0] NVRM: Xid (PCI:0000:5d:00): 94, pid=1, name=a"
    alone = explain_xids(Case(MATRIX, texts=[("log", text)]), 94)
    beside = explain_xids(Case(MATRIX, machines.snapshot(machines.hgx_h100()), texts=[("log", text)]), 94)
    assert (alone.seconds, beside.seconds) == (50.0, None)
    assert alone.confidence == beside.confidence == "medium"


def test_many_lines_are_counted_instead_of_listed() -> None:
    text = "".join(f"[ {moment}.0] NVRM: Xid (PCI:0000:5d:00): 13, pid={moment}, name=a\n" for moment in range(30))
    sign = explain_xids(Case(MATRIX, texts=[("log", text)]), 13)
    assert len(sign.seen) == 4
    assert sign.seen[3] == "27 more such lines"


# The catalogue


def test_catalogue_holds_what_the_captured_one_does(samples: Path) -> None:
    rows = (samples / "xid" / "catalog-used-codes.tsv").read_text(encoding="utf-8").splitlines()
    for row in (row.split("\t") for row in rows if row and not row.startswith("#")):
        known = MATRIX.xids[int(row[0])]
        assert known.mnemonic == row[1]
        assert (known.action or "") == row[3].strip()


@pytest.mark.parametrize(
    ("code", "severity"), [(79, "fatal"), (63, "warning"), (13, "application"), (106, "information")]
)
def test_severity_of_well_known_codes(code: int, severity: str) -> None:
    assert MATRIX.xids[code].severity == severity


def test_what_the_vendor_would_ignore_is_never_fatal() -> None:
    assert [row.code for row in MATRIX.xids.values() if row.action == "IGNORE" and row.severity == "fatal"] == []


def test_no_fault_of_a_link_has_two_actions() -> None:
    lists = [row.values for row in MATRIX.settings("xid.toml").values()]
    everything = [entry for values in lists for entry in values]
    assert len(everything) == len(set(everything)) > 100
