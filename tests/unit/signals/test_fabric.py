"""The checks of NVSwitch fabrics."""

from __future__ import annotations

import machines
import pytest
from asking import ask, text

from provision.probe.output import Output

H100 = machines.hgx_h100()
UNIT = "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=active"


def test_fabric_manager_of_the_driver_passes() -> None:
    assert ask("fabric.manager", H100).seen == "`nvidia-fabricmanager` 580.105.08 is active"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("LoadState=loaded\nActiveState=active", "LoadState=not-found\nActiveState=inactive", "is not installed"),
        ("LoadState=loaded\nActiveState=active", "LoadState=loaded\nActiveState=failed", "is failed"),
    ],
    ids=["not-installed", "failed"],
)
def test_a_fabric_manager_that_does_not_run_fails(old: str, new: str, said: str) -> None:
    outcome = ask("fabric.manager", machines.change(H100, "units", UNIT, UNIT.replace(old, new)))

    assert (outcome.status, outcome.subjects) == ("fail", ("nvidia-fabricmanager",))
    assert said in outcome.seen


def test_another_version_than_the_driver_fails_with_both() -> None:
    outputs = machines.change(H100, "fabric-manager", "580.105.08", "580.95.05")

    assert ask("fabric.manager", outputs).seen == "fabric manager is 580.95.05, the driver 580.105.08"


def test_an_unreadable_version_is_unknown() -> None:
    assert ask("fabric.manager", machines.absent(H100, "fabric-manager")).status == "unknown"


def test_machines_without_switches_need_no_fabric_manager() -> None:
    assert ask("fabric.manager", machines.l40s_pcie(), machine="l40s_pcie").seen == "the machine has no NVSwitch"


def test_a_gpu_that_joined_passes() -> None:
    assert ask("fabric.state", H100).seen == "every GPU has joined the fabric"


def test_a_gpu_still_joining_is_named() -> None:
    outcome = ask("fabric.state", machines.xml_gpu(H100, 3, "<state>Completed</state>", "<state>In Progress</state>"))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU 3 (0000:5d:00.0)",))
    assert "`In Progress`" in outcome.seen


def test_boards_before_fabric_states_are_not_asked() -> None:
    assert ask("fabric.state", machines.hgx_a100(), machine="hgx_a100").status == "skip"


def gb200(outputs: dict[str, Output]) -> dict[str, Output]:
    return machines.change(outputs, "nvidia-smi-xml", "NVIDIA H100 80GB HBM3", "NVIDIA GB200")


IMEX = "Id=nvidia-imex.service\nLoadState=not-found\nActiveState=inactive"


def test_imex_is_asked_of_the_gpus_built_for_it_only() -> None:
    assert ask("fabric.imex", H100).status == "skip"
    assert ask("fabric.imex", gb200(H100)).seen == "`nvidia-imex` is not installed"


def test_imex_that_runs_passes_and_one_that_stopped_fails() -> None:
    running = machines.change(
        gb200(H100), "units", IMEX, IMEX.replace("not-found", "loaded").replace("inactive", "active")
    )
    stopped = machines.change(gb200(H100), "units", IMEX, IMEX.replace("not-found", "loaded"))

    assert ask("fabric.imex", running).seen == "`nvidia-imex` is active"
    assert ask("fabric.imex", stopped).seen == "`nvidia-imex` is inactive"


def test_a_fabric_manager_without_a_version_is_unknown() -> None:
    outcome = ask("fabric.manager", text(H100, "fabric-manager", "no-program\n"))

    assert (outcome.status, outcome.seen) == (
        "unknown",
        "`nvidia-fabricmanager` is active and does not report its version",
    )


def test_imex_is_unknown_where_no_gpu_is_listed() -> None:
    xml = H100["nvidia-smi-xml"].text
    empty = text(H100, "nvidia-smi-xml", xml[: xml.index("<gpu id=")] + "</nvidia_smi_log>\n")

    assert ask("fabric.imex", empty).status == "unknown"


B200 = machines.hgx_b200()


def test_a_fabric_manager_is_judged_where_the_switches_do_not_show_themselves() -> None:
    failed = machines.change(B200, "units", UNIT, UNIT.replace("active", "failed"))

    assert ask("fabric.manager", B200, machine="hgx_b200").status == "pass"
    assert ask("fabric.manager", failed, machine="hgx_b200").seen == "`nvidia-fabricmanager` is failed"


def test_a_fabric_manager_is_missed_where_only_the_gpus_tell_of_switches() -> None:
    outputs = text(machines.change(B200, "units", UNIT, UNIT.replace("active", "inactive")), "infiniband", "")
    waiting = machines.change(outputs, "nvidia-smi-xml", "<state>Completed<", "<state>In Progress<")
    silent = machines.absent(outputs, "nvidia-smi-xml")

    for case in (outputs, waiting, silent):
        assert ask("fabric.manager", case, machine="hgx_b200").status == "fail"


def test_a_guest_without_the_switches_is_not_asked_for_their_manager() -> None:
    guest = text(text(B200, "infiniband", ""), "virtualization", "kind=kvm\ncontainer=no\n")
    stopped = machines.change(guest, "units", UNIT, UNIT.replace("loaded", "not-found").replace("active", "inactive"))

    assert ask("fabric.manager", stopped, machine="hgx_b200", rdma_gbit=0).status == "skip"
    with_switches = {**stopped, "infiniband": B200["infiniband"]}
    assert ask("fabric.manager", with_switches, machine="hgx_b200").status == "fail"


def test_a_rack_has_its_fabric_manager_elsewhere() -> None:
    rack = machines.change(text(B200, "infiniband", ""), "nvidia-smi-xml", "NVIDIA B200", "NVIDIA GB200")
    rack = machines.change(rack, "pci", "device=2901", "device=2941")

    assert ask("fabric.manager", rack, machine="hgx_b200", gpu="GB200").seen == "the machine has no NVSwitch"
