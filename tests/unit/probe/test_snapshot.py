"""A snapshot answers what was collected, and nothing that was not."""

from __future__ import annotations

import machines
import pytest

from provision.probe.output import STATUSES, Output, Unreadable
from provision.probe.snapshot import Shelf, Snapshot


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ok"])
def test_probe_that_did_not_end_well_has_no_text(status: str) -> None:
    host = Snapshot("gpu001", {"uname": Output(probe="uname", status=status, code=3, text="Linux 6.8 x86_64")})
    with pytest.raises(Unreadable) as caught:
        host.text("uname")
    assert (caught.value.probe, caught.value.status) == ("uname", status)
    assert not host.has("uname")


def test_probe_nobody_ran_was_not_asked() -> None:
    assert Snapshot("gpu001", {}).output("uname").status == "not-run"


def test_reason_holds_what_the_tool_said() -> None:
    outputs = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", code=18, error="Driver/library version mismatch\nx")
    with pytest.raises(Unreadable, match=r"ended with 18: Driver/library version mismatch$"):
        _ = machines.snapshot(outputs).smi


def test_what_cannot_be_parsed_is_unreadable_each_time() -> None:
    host = machines.snapshot(machines.replace_output(machines.hgx_h100(), "uname", text="x"))
    for _ in range(2):
        with pytest.raises(Unreadable) as caught:
            _ = host.uname
        assert (caught.value.probe, caught.value.status) == ("uname", "unreadable")


def test_parsed_once() -> None:
    host = machines.snapshot(machines.hgx_h100())
    assert host.smi is host.smi


def test_whole_document_of_a_complaining_nvidia_smi_is_read() -> None:
    outputs = machines.replace_output(machines.hgx_h100(), "nvidia-smi-xml", status="failed", code=14)
    assert len(machines.snapshot(outputs).smi.gpus) == 8


def test_half_a_document_of_a_failing_nvidia_smi_is_not() -> None:
    outputs = machines.hgx_h100()
    half = outputs["nvidia-smi-xml"].text[:5000]
    outputs = machines.replace_output(outputs, "nvidia-smi-xml", status="failed", code=15, text=half)
    with pytest.raises(Unreadable, match="ended with 15"):
        _ = machines.snapshot(outputs).smi


def test_narrowed_snapshot_keeps_its_target_and_some_probes() -> None:
    host = machines.snapshot(machines.hgx_h100(), "gpu007").narrow({"uname"})
    assert (host.target, list(host.outputs), host.collected) == ("gpu007", ["uname"], "2026-11-21T12:00:00+00:00")


def test_shelf_gives_back_what_was_put_and_keeps_nothing_parsed() -> None:
    shelf = Shelf()
    for name in ("gpu002", "gpu001"):
        shelf.put(machines.snapshot(machines.hgx_h100(), name))
    assert list(shelf) == ["gpu002", "gpu001"]
    assert shelf["gpu001"].outputs == machines.hgx_h100()
    assert (shelf["gpu001"].target, shelf["gpu001"].collected) == ("gpu001", "2026-11-21T12:00:00+00:00")
    assert shelf["gpu001"] is not shelf["gpu001"]
    assert len(shelf["gpu001"].smi.gpus) == 8


def test_shelf_takes_a_tenth_of_the_room() -> None:
    host = machines.snapshot(machines.hgx_h100())
    room = sum(len(output.text) for output in host.outputs.values())
    assert len(host.pack()) * 10 < room


def test_target_put_again_is_replaced() -> None:
    shelf = Shelf()
    shelf.put(Snapshot("a", {}))
    shelf.put(Snapshot("a", {"uname": Output(probe="uname", status="ok", text="\ud800x")}))
    assert len(shelf) == 1
    assert shelf["a"].output("uname").text == "\ud800x"
