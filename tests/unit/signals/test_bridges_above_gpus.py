"""Of all bridges of a machine only those count on which a GPU hangs, as far as that is told."""

from __future__ import annotations

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import rule_of
from provision.matrix.load import Matrix
from provision.probe.parse.pci import list_gpu_bridges
from provision.verify.engine import choose_checks, verify_one

MATRIX = Matrix()
DISK_BRIDGE = "0000:e9:01.0"


def with_disk(outputs, *, parents: bool = True):
    """Return a machine with a bridge that redirects, above a disk."""
    row = "\t".join((f"address={DISK_BRIDGE}", "class=060400", "vendor=8086", "device=352a", "is_vf=no"))
    said = f"{DISK_BRIDGE} PCI bridge [0604]: Intel Corporation Device 352a [8086:352a]\n\t\tACSCtl:\tSrcValid+\n"
    outputs = machines.replace_output(outputs, "pci", text=f"{outputs['pci'].text}{row}\n")
    outputs = machines.replace_output(outputs, "lspci", text=f"{outputs['lspci'].text}\n{said}")
    if not parents:
        lines = [line.partition("\tparents=")[0] for line in outputs["pci"].text.split("\n")]
        outputs = machines.replace_output(outputs, "pci", text="\n".join(lines))
    return outputs


def ask(check: str, outputs) -> str:
    expected = machines.EXPECTED["hgx_h100"]
    found = verify_one(machines.snapshot(outputs), expected, MATRIX, choose_checks(MATRIX, "quick", only=[check]))
    return next(row.outcome.status for row in found if row.check == check)


@pytest.mark.parametrize(("parents", "status"), [(True, "pass"), (False, "fail")], ids=["told", "not-told"])
class TestDiskBridge:
    def test_its_errors(self, parents: bool, status: str) -> None:
        line = f"pcieport {DISK_BRIDGE}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer"
        outputs = machines.kernel_line(with_disk(machines.hgx_h100(), parents=parents), line)
        assert ask("gpu.pcie.aer", outputs) == status

    def test_its_access_control(self, parents: bool, status: str) -> None:
        assert ask("gpu.iommu_acs", with_disk(machines.hgx_h100(), parents=parents)) == status

    def test_doctor_on_its_access_control(self, parents: bool, status: str) -> None:
        case = Case(MATRIX, machines.snapshot(with_disk(machines.hgx_h100(), parents=parents)))
        assert (rule_of(MATRIX.diagnoses["nccl.acs"]).examine(case) is None) == (status == "pass")


def test_bridge_above_a_gpu_counts() -> None:
    outputs = machines.change(with_disk(machines.hgx_h100()), "lspci", "SrcValid-", "SrcValid+", 1)
    assert ask("gpu.iommu_acs", outputs) == "fail"


def test_bridges_above_gpus_are_listed() -> None:
    host = machines.snapshot(machines.hgx_h100())
    first = next(device for device in host.pci if device.is_nvidia_gpu)
    bridges = list_gpu_bridges(host.pci)
    assert set(first.parents) < bridges
    assert bridges == {device.address for device in host.pci if device.class_code == "0604"}
    assert list_gpu_bridges(()) is None
