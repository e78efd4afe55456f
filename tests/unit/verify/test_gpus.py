"""Naming GPUs, knowing their models, adding answers up."""

from __future__ import annotations

import machines
import pytest

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice
from provision.verify.gpus import (
    FieldReading,
    count_words,
    find_device,
    find_models,
    judge_field,
    judge_gpus,
    list_gpu_devices,
    name_address,
    name_gpu,
    read_events,
    read_field,
)

MATRIX = Matrix()
A = SmiGpu(pci="0000:18:00.0", minor=0)
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
        assert name_address(host, "0000:5d:00.0") == "GPU 0000:5d:00.0"

    def test_address_of_something_else(self):
        host = machines.snapshot(machines.absent(machines.hgx_h100(), "nvidia-smi-xml", "pci"))
        assert name_address(host, "0000:5d:00.0") == "0000:5d:00.0"
        assert name_address(host, None) == "a device without an address"

    @pytest.mark.parametrize(("count", "said"), [(0, "0 GPUs"), (1, "1 GPU"), (8, "8 GPUs")])
    def test_number_and_noun(self, count, said):
        assert count_words(count, "GPU") == said

    def test_irregular_noun(self):
        assert count_words(2, "mismatch", "mismatches") == "2 mismatches"


class TestReadField:
    def test_value(self):
        assert read_field(SmiGpu(pci="a", remap_failure=False), "remap_failure") == (False, "")

    @pytest.mark.parametrize("field", ["remap_failure", "throttle", "processes"])
    def test_reasons_for_absence_also_of_lists(self, field):
        assert read_field(SmiGpu(pci="a", unsupported=frozenset({field})), field) == (None, "unsupported")
        assert read_field(SmiGpu(pci="a", broken=frozenset({field})), field) == (None, "broken")

    def test_field_that_the_driver_does_not_have(self):
        assert read_field(A, "recovery_action") == (None, "absent")

    def test_empty_list_is_an_answer(self):
        assert read_field(A, "throttle") == ((), "")


class TestJudge:
    def judge(self, *readings):
        return judge_gpus(readings, fine="all well", expected="well")

    def test_nothing_is_unknown(self):
        assert self.judge().status == "unknown"

    def test_fault_wins_over_everything(self):
        outcome = self.judge(
            FieldReading(A, None, "", "broken"), FieldReading(B, False, "is bad"), FieldReading(B, False, "is worse")
        )
        assert outcome.status == "fail"
        assert outcome.seen == "GPU 1 (0000:2a:00.0) is bad; GPU 1 (0000:2a:00.0) is worse"
        assert outcome.subjects == ("GPU 1 (0000:2a:00.0)",)
        assert outcome.expected == "well"

    def test_broken_answer_wins_over_a_fine_one(self):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(B, None, "", "broken"))
        assert outcome.status == "unknown"
        assert "GPU 1" in outcome.seen

    def test_fine_answers_pass(self):
        assert self.judge(FieldReading(A, True, ""), FieldReading(B, True, "")).seen == "all well"

    def test_gpus_without_an_answer_are_counted_in_the_pass(self):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(B, None, "", "unsupported"))
        assert outcome.status == "pass"
        assert "1 of 2 GPUs" in outcome.seen

    def test_second_field_without_an_answer_is_no_gpu_without_one(self):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(A, None, "", "absent"))
        assert outcome.seen == "all well"

    @pytest.mark.parametrize(("absence", "word"), [("unsupported", "GPUs"), ("absent", "driver")])
    def test_no_answer_at_all_is_skipped(self, absence, word):
        outcome = self.judge(FieldReading(A, None, "", absence))
        assert outcome.status == "skip"
        assert word in outcome.seen

    def test_one_field_of_all(self):
        gpus = [SmiGpu(pci="a", minor=0, retired_single=1), SmiGpu(pci="b", minor=1, retired_single=5)]
        outcome = judge_field(
            gpus, "retired_single", lambda pages: f"has {pages}" if pages > 3 else None, fine="few", expected="few"
        )
        assert outcome.seen == "GPU 1 (b) has 5"


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


class TestDevices:
    def test_gpus_on_the_bus_in_its_order(self):
        found = list_gpu_devices(machines.snapshot(machines.hgx_h100()))
        assert len(found) == 8
        assert found[3].address == "0000:5d:00.0"

    def test_device_at_an_address(self):
        host = machines.snapshot(machines.hgx_h100())
        assert find_device(host, "0000:5d:00.0").is_nvidia_gpu
        assert find_device(host, "ffff:00:00.0") is None
        assert find_device(machines.snapshot({}), "0000:5d:00.0") is None


class TestEvents:
    def test_events_of_the_asked_kinds(self):
        outputs = machines.kernel_line(
            machines.hgx_h100(), "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."
        )
        host = machines.snapshot(outputs)
        assert [event.code for event in read_events(host, "xid")] == [79]
        assert read_events(host, "sxid") == ()

    def test_empty_log_is_no_silence(self):
        outputs = machines.replace_output(machines.hgx_h100(), "kernel-log", text="")
        with pytest.raises(Unreadable, match="holds no line"):
            read_events(machines.snapshot(outputs), "xid")
