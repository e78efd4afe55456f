"""Naming GPUs, knowing their models, and the switches between them."""

from __future__ import annotations

import machines
import pytest

from provision.matrix.load import Matrix
from provision.probe.gpus import (
    find_device,
    find_models,
    gpu_addresses,
    has_nvswitch,
    has_visible_nvswitch,
    name_address,
    name_gpu,
    smi_gpus,
)
from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice

MATRIX = Matrix()
B = SmiGpu(pci="0000:2a:00.0", minor=1)


def device(number, name=None):
    return PciDevice(address="0000:18:00.0", class_code="0302", vendor="10de", device=number, name=name)


class TestNames:
    def test_gpu_with_and_without_a_number(self):
        assert name_gpu(B) == "GPU 1 (0000:2a:00.0)"
        assert name_gpu(SmiGpu(pci="0000:2a:00.0")) == "GPU 0000:2a:00.0"

    def test_address_of_a_listed_gpu(self):
        assert name_address(machines.snapshot(machines.hgx_h100()), "0000:5d:00.0") == "GPU 3 (0000:5d:00.0)"

    def test_address_of_a_gpu_that_nvidia_smi_does_not_list(self):
        host = machines.snapshot(machines.absent(machines.hgx_h100(), "nvidia-smi-xml"))
        assert name_address(host, "0000:5d:00.0") == "GPU 3 (0000:5d:00.0)"
        without = machines.absent(machines.hgx_h100(), "nvidia-smi-xml", "driver-gpus")
        assert name_address(machines.snapshot(without), "0000:5d:00.0") == "GPU 0000:5d:00.0"

    def test_address_of_something_else(self):
        host = machines.snapshot(machines.absent(machines.hgx_h100(), "nvidia-smi-xml", "pci", "driver-gpus"))
        assert name_address(host, "0000:5d:00.0") == "0000:5d:00.0"
        assert name_address(host, None) == "a device without an address"

    def test_address_where_there_is_only_text(self):
        assert name_address(None, "0000:5d:00.0") == "0000:5d:00.0"


class TestAddresses:
    def test_of_every_probe_that_knows_gpus(self):
        outputs = machines.hgx_h100()
        known = gpu_addresses(machines.snapshot(outputs))
        assert len(known) == 8
        for left in ("nvidia-smi-xml", "pci", "driver-gpus"):
            others = {"nvidia-smi-xml", "pci", "driver-gpus"} - {left}
            assert gpu_addresses(machines.snapshot(machines.absent(outputs, *others))) == known

    def test_none_where_nothing_answers(self):
        assert gpu_addresses(machines.snapshot({})) == frozenset()
        assert smi_gpus(machines.snapshot({})) == ()

    def test_device_at_an_address(self):
        host = machines.snapshot(machines.hgx_h100())
        assert find_device(host, "0000:5d:00.0").is_nvidia_gpu
        assert find_device(host, "ffff:00:00.0") is None
        assert find_device(machines.snapshot({}), "0000:5d:00.0") is None


class TestModels:
    @pytest.mark.parametrize(
        ("name", "model"),
        [
            ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
            ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
            ("Tesla T4", "t4"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("NVIDIA L40S", "l40s"),
            ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ],
    )
    def test_names_of_nvidia_smi(self, name, model):
        assert [gpu.id for gpu in find_models(MATRIX, name=name)] == [model]

    def test_id_on_the_bus_tells_variants_apart(self):
        assert {gpu.id for gpu in find_models(MATRIX, name="NVIDIA H200")} == {"h200-sxm", "h200-nvl"}
        assert [gpu.id for gpu in find_models(MATRIX, name="NVIDIA H200", device=device("2335"))] == ["h200-sxm"]

    def test_id_on_the_bus_alone(self):
        assert [gpu.id for gpu in find_models(MATRIX, device=device("2901"))] == ["b200"]

    def test_lower_case_id(self):
        assert [gpu.id for gpu in find_models(MATRIX, device=device("20b2"))] == ["a100-sxm4-80gb"]

    def test_name_in_the_brackets_of_lspci(self):
        listed = device("0001", "NVIDIA Corporation GH100 [H100 SXM5 80GB]")
        assert [gpu.id for gpu in find_models(MATRIX, device=listed)] == ["h100-sxm5-80gb"]

    def test_half_a_name_is_no_name(self):
        assert find_models(MATRIX, name="NVIDIA A1") == ()
        assert find_models(MATRIX, name="NVIDIA") == ()

    def test_nothing_known(self):
        assert find_models(MATRIX) == ()
        assert find_models(MATRIX, name="Q999", device=device("0001")) == ()


def without_switches(outputs):
    """Return a machine whose bus shows no NVSwitch."""
    rows = [row for row in outputs["pci"].text.splitlines(keepends=True) if "class=0680" not in row]
    return machines.replace_output(outputs, "pci", text="".join(rows))


def without_fabric(outputs):
    """Return a machine whose GPUs tell no state in a fabric."""
    text = outputs["nvidia-smi-xml"].text
    for word in ("Completed", "Success"):
        text = text.replace(f">{word}<", ">N/A<")
    return machines.replace_output(outputs, "nvidia-smi-xml", text=text)


def without_bridges(outputs):
    rows = [row for row in outputs["infiniband"].text.splitlines(keepends=True) if "switch-management" not in row]
    return machines.replace_output(outputs, "infiniband", text="".join(rows))


class TestNvswitch:
    def ask(self, outputs):
        host = machines.snapshot(outputs)
        return has_nvswitch(host, MATRIX), has_visible_nvswitch(host)

    def test_switches_on_the_bus(self):
        assert self.ask(machines.hgx_h100()) == (True, True)
        assert self.ask(without_fabric(machines.hgx_a100())) == (True, True)

    def test_switches_behind_network_adapters(self):
        assert self.ask(machines.hgx_b200()) == (True, True)
        assert self.ask(without_fabric(machines.hgx_b200())) == (True, True)

    def test_gpus_that_have_a_state_in_the_fabric(self):
        assert self.ask(without_bridges(machines.hgx_b200())) == (True, False)

    def test_board_of_eight_whose_model_is_built_with_switches(self):
        bare = without_bridges(without_fabric(machines.hgx_b200()))
        assert self.ask(bare) == (True, False)
        assert self.ask(machines.absent(bare, "nvidia-smi-xml")) == (True, False)

    def test_smaller_board_of_the_same_model_joins_its_gpus_directly(self):
        outputs = without_switches(without_fabric(machines.hgx_a100()))
        assert self.ask(outputs) == (True, False)
        text = outputs["nvidia-smi-xml"].text
        four = text[: [place for place in range(len(text)) if text.startswith("<gpu id=", place)][4]]
        assert self.ask(machines.replace_output(outputs, "nvidia-smi-xml", text=f"{four}</nvidia_smi_log>\n")) == (
            False,
            False,
        )

    @pytest.mark.parametrize("name", ["l40s_pcie", "workstation_rtx4090", "cpu_only", "old_p100", "gb10", "mixed_gpus"])
    def test_machines_without_switches(self, name):
        assert self.ask(machines.MACHINES[name]()) == (False, False)

    def test_gpus_of_a_rack_have_their_switches_elsewhere(self):
        outputs = without_bridges(machines.hgx_b200())
        rack = machines.change(outputs, "nvidia-smi-xml", "NVIDIA B200", "NVIDIA GB200")
        assert self.ask(machines.change(rack, "pci", "device=2901", "device=2941")) == (False, False)

    def test_unread_bus_is_not_known(self):
        with pytest.raises(Unreadable):
            has_nvswitch(machines.snapshot(machines.absent(machines.l40s_pcie(), "pci")), MATRIX)

    def test_unread_bus_does_not_matter_where_the_gpus_tell(self):
        assert has_nvswitch(machines.snapshot(machines.absent(machines.hgx_b200(), "pci", "infiniband")), MATRIX)
