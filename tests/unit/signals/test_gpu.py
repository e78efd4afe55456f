"""The checks of the GPUs and their driver."""

from __future__ import annotations

import re

import machines
import pytest
from asking import MATRIX, ask, text
from verdicts import verify_hosts

from provision.verify.engine import verify_one

GPU3 = "GPU 3 (0000:5d:00.0)"
XML = "nvidia-smi-xml"


def element(name, value):
    return f"<{name}>{value}</{name}>"


def of_gpu3(name, old, new, outputs=None):
    """Return eight H100 of which the fourth says something else in one element."""
    return machines.xml_gpu(outputs or machines.hgx_h100(), 3, element(name, old), element(name, new))


FIELD_FAULTS = [
    pytest.param(
        "gpu.recovery_action", "gpu_recovery_action", "None", "Reset", "asks for: Reset", id="recovery-action"
    ),
    pytest.param(
        "gpu.persistence", "persistence_mode", "Enabled", "Disabled", "persistence mode off", id="persistence"
    ),
    pytest.param("gpu.compute_mode", "compute_mode", "Default", "Prohibited", "in mode Prohibited", id="compute-mode"),
    pytest.param("gpu.ecc.mode", "current_ecc", "Enabled", "Disabled", "has ECC off", id="ecc-off"),
    pytest.param("gpu.ecc.mode", "pending_ecc", "Enabled", "Disabled", "off after the next reboot", id="ecc-pending"),
    pytest.param("gpu.ecc.uncorrected", "dram_uncorrectable", "0", "2", "2 uncorrectable", id="ecc-dram"),
    pytest.param("gpu.ecc.uncorrected", "sram_uncorrectable_parity", "0", "1", "1 uncorrectable", id="ecc-parity"),
    pytest.param("gpu.ecc.corrected", "dram_correctable", "0", "50000000", "50000000 corrected", id="ecc-corrected"),
    pytest.param(
        "gpu.ecc.corrected", "sram_correctable", "0", "10000", "10000 corrected SRAM", id="ecc-corrected-sram"
    ),
    pytest.param("gpu.ecc.sram_threshold", "sram_threshold_exceeded", "No", "Yes", "has exceeded", id="sram-threshold"),
    pytest.param("gpu.remap.failure", "remapped_row_failure", "No", "Yes", "failed to remap", id="remap-failure"),
    pytest.param("gpu.remap.pending", "remapped_row_pending", "No", "Yes", "a row remap", id="remap-pending"),
    pytest.param("gpu.remap.pending", "channel_repair_pending", "No", "Yes", "channel repair", id="channel-repair"),
    pytest.param("gpu.remap.pending", "tpc_repair_pending", "No", "Yes", "processing-cluster", id="tpc-repair"),
    pytest.param("gpu.remap.count", "remapped_row_unc", "0", "512", "512 rows", id="remap-count"),
    pytest.param("gpu.temp", "gpu_temp", "SAME", "71 C", "71 °C at rest, limit 70", id="warm-at-rest"),
    pytest.param("gpu.temp", "gpu_temp_tlimit", "SAME", "5 C", "5 °C below its slowdown", id="near-slowdown"),
    pytest.param(
        "gpu.power.limit", "current_power_limit", "700.00 W", "500.00 W", "limited to 500 W", id="power-limit"
    ),
    pytest.param("gpu.mig", "current_mig", "Disabled", "Enabled", "has MIG on", id="mig-on"),
    pytest.param("gpu.mig", "pending_mig", "Disabled", "Enabled", "on after the next reset", id="mig-pending"),
    pytest.param("gpu.gsp", "gsp_firmware_version", "580.105.08", "580.95.05", "firmware 580.95.05", id="gsp"),
    pytest.param(
        "gpu.throttle", "clocks_event_reason_hw_thermal_slowdown", "Not Active", "Active", "by heat", id="heat"
    ),
    pytest.param(
        "gpu.throttle", "clocks_event_reason_hw_power_brake_slowdown", "Not Active", "Active", "brake", id="brake"
    ),
    pytest.param("gpu.throttle", "clocks_event_reason_hw_slowdown", "Not Active", "Active", "its hardware", id="slow"),
    pytest.param(
        "gpu.model", "product_name", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "is NVIDIA A100", id="model"
    ),
]


ASKED_OF_EVERY_GPU = (
    "fabric.state",
    "gpu.compute_mode",
    "gpu.ecc.corrected",
    "gpu.ecc.mode",
    "gpu.ecc.sram_threshold",
    "gpu.ecc.uncorrected",
    "gpu.gsp",
    "gpu.mig",
    "gpu.persistence",
    "gpu.power.limit",
    "gpu.recovery_action",
    "gpu.remap.count",
    "gpu.remap.failure",
    "gpu.remap.pending",
    "gpu.temp",
    "gpu.throttle",
)


def value_of(outputs, index, name):
    """Return what a GPU says in an element."""
    block = outputs[XML].text.split("<gpu id=")[index + 1]
    return block.split(f"<{name}>")[1].split("<")[0]


def value_of_gpu3(name):
    return value_of(machines.hgx_h100(), 3, name)


class TestFieldsOfEveryGpu:
    @pytest.mark.parametrize(("check", "name", "old", "new", "said"), FIELD_FAULTS)
    def test_fault_of_one_gpu_is_named(self, check, name, old, new, said):
        old = value_of_gpu3(name) if old == "SAME" else old
        if check == "gpu.model":
            # The PCI id would tell the truth against a false name.
            outputs = machines.change(machines.hgx_h100(), "pci", "device=2330", "device=20b2")
            outputs = of_gpu3(name, old, new, outputs)
        else:
            outputs = of_gpu3(name, old, new)
        outcome = ask(check, outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert said in outcome.seen
        assert GPU3 in outcome.seen
        assert outcome.expected

    @pytest.mark.parametrize("check", sorted({case.values[0] for case in FIELD_FAULTS}))
    def test_healthy_gpus_pass(self, check):
        assert ask(check, machines.hgx_h100()).status == "pass"

    @pytest.mark.parametrize(
        ("check", "name"), [pytest.param(*case.values[:2], id=case.id) for case in FIELD_FAULTS if case.id != "slow"]
    )
    def test_error_in_place_of_a_value_is_unknown(self, check, name):
        value = value_of_gpu3(name)
        outcome = ask(check, of_gpu3(name, value, "GPU is lost"))
        assert outcome.status == "unknown"

    @pytest.mark.parametrize(
        ("check", "name", "value"),
        [
            ("gpu.ecc.mode", "current_ecc", "Enabled"),
            ("gpu.mig", "current_mig", "Disabled"),
            ("gpu.gsp", "gsp_firmware_version", "580.105.08"),
            ("gpu.recovery_action", "gpu_recovery_action", "None"),
            ("gpu.remap.failure", "remapped_row_failure", "No"),
        ],
    )
    def test_gpus_without_the_thing_are_skipped(self, check, name, value):
        outputs = machines.change(machines.hgx_h100(), XML, element(name, value), element(name, "N/A"))
        assert ask(check, outputs, is_ecc=None, is_mig=None).status == "skip"

    @pytest.mark.parametrize("word", ["N/A", "", "[N/A]", "ERR!", "Requested functionality has been deprecated"])
    def test_gpu_that_answers_nothing_beside_good_ones_is_lost_and_passes_nothing(self, word):
        text = machines.hgx_h100()[XML].text
        block = text.split("<gpu id=")[4]
        kept = ("product_name", "product_architecture", "minor_number", "uuid", "pci_bus_id")
        silent = re.sub(
            r"<(\w+)>([^<>]*\S[^<>]*)</\1>",
            lambda found: found[0] if found[1] in kept else f"<{found[1]}>{word}</{found[1]}>",
            block,
        )
        outputs = machines.replace_output(machines.hgx_h100(), XML, text=text.replace(block, silent))
        assert ask("gpu.lost", outputs).status == "fail"
        assert ask("gpu.lost", outputs).subjects == (GPU3,)
        plan = {"is_ecc": None, "is_mig": None}
        passing = {check for check in ASKED_OF_EVERY_GPU if ask(check, outputs, **plan).status != "unknown"}
        assert passing == set()

    @pytest.mark.parametrize(
        ("check", "name", "value", "plan"),
        [
            ("gpu.ecc.mode", "current_ecc", "Enabled", "is_ecc"),
            ("gpu.mig", "current_mig", "Disabled", "is_mig"),
        ],
    )
    def test_thing_that_one_gpu_lacks_and_others_have_fails_where_planned_and_is_unknown_elsewhere(
        self, check, name, value, plan
    ):
        every = machines.change(machines.hgx_h100(), XML, element(name, value), element(name, "Disabled"))
        outputs = of_gpu3(name, "Disabled", "N/A", every)
        outputs = machines.change(
            outputs,
            XML,
            element(name.replace("current", "pending"), value),
            element(name.replace("current", "pending"), "Disabled"),
        )
        assert ask(check, outputs, **{plan: True}).status == "fail"
        assert ask(check, outputs, **{plan: False}).status == "unknown"

    @pytest.mark.parametrize(
        ("check", "name"),
        [
            ("gpu.temp", "gpu_temp_tlimit"),
            ("gpu.remap.pending", "channel_repair_pending"),
            ("gpu.ecc.corrected", "sram_correctable"),
            ("fabric.state", "status"),
        ],
    )
    def test_each_of_several_answers_is_missed(self, check, name):
        outcome = ask(check, of_gpu3(name, value_of_gpu3(name), "N/A"))
        assert outcome.status == "unknown"
        assert GPU3 in outcome.seen

    def test_one_gpu_without_what_others_of_its_model_tell_is_unknown(self):
        outcome = ask("gpu.remap.failure", of_gpu3("remapped_row_failure", "No", "N/A"))
        assert outcome.status == "unknown"
        assert outcome.seen == f"{GPU3} does not report it, and others of its model do"

    @pytest.mark.parametrize(("check", "plan"), [("gpu.ecc.mode", "is_ecc"), ("gpu.mig", "is_mig")])
    def test_planned_thing_that_the_gpu_lacks_fails(self, check, plan):
        machine = "workstation_rtx4090"
        outcome = ask(check, machines.workstation_rtx4090(), machine=machine, **{plan: True})
        assert outcome.status == "fail"
        assert ask(check, machines.workstation_rtx4090(), machine=machine, **{plan: False}).status == "pass"

    def test_old_driver_without_the_field_is_skipped(self):
        assert ask("gpu.recovery_action", machines.old_p100(), machine="old_p100").status == "skip"

    def test_no_gpu_listed_is_no_pass(self):
        whole = machines.hgx_h100()[XML].text
        start, end = whole.index("<gpu id="), whole.rindex("</gpu>") + len("</gpu>")
        outputs = text(machines.hgx_h100(), XML, whole[:start] + whole[end:])
        for check in ("gpu.remap.failure", "gpu.temp", "gpu.throttle", "gpu.lost", "gpu.processes", "gpu.persistence"):
            assert ask(check, outputs).status == "unknown", check
        for check in ("gpu.smi.ok", "gpu.count"):
            assert ask(check, outputs).status == "fail", check


class TestPciCount:
    def test_planned_number_passes(self):
        assert ask("gpu.pci.count", machines.hgx_h100()).seen == "8 GPUs on the PCI bus"

    def test_missing_gpu_fails(self):
        lines = machines.hgx_h100()["pci"].text.splitlines(keepends=True)
        outputs = text(machines.hgx_h100(), "pci", "".join(line for line in lines if "0000:5d:00.0" not in line))
        outcome = ask("gpu.pci.count", outputs)
        assert outcome.status == "fail"
        assert outcome.expected == "8"
        assert "7 GPUs" in outcome.seen

    def test_gpu_that_no_longer_answers_fails(self):
        line = next(row for row in machines.hgx_h100()["pci"].text.splitlines() if "0000:5d:00.0" in row)
        outputs = machines.change(machines.hgx_h100(), "pci", line, line.replace("revision=a1", "revision=ff"))
        outcome = ask("gpu.pci.count", outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == ("GPU 0000:5d:00.0",)
        assert outcome.seen.startswith("7 GPUs, and")

    def test_without_a_plan_none_fails_and_any_passes(self):
        assert ask("gpu.pci.count", machines.hgx_h100(), gpus=None).status == "pass"
        assert ask("gpu.pci.count", text(machines.hgx_h100(), "pci", ""), gpus=None).status == "fail"

    def test_promise_of_none_is_held_against_the_machine(self):
        assert ask("gpu.pci.count", machines.hgx_h100(), gpus=0).status == "fail"
        assert ask("gpu.pci.count", machines.cpu_only(), machine="cpu_only").status == "skip"

    def test_virtual_functions_of_a_host_are_not_counted(self):
        line = next(row for row in machines.hgx_h100()["pci"].text.splitlines() if "0000:5d:00.0" in row)
        slice_ = line.replace("0000:5d:00.0", "0000:5d:00.4").replace("is_vf=no", "is_vf=yes")
        outputs = text(machines.hgx_h100(), "pci", f"{machines.hgx_h100()['pci'].text}{slice_}\n")
        assert ask("gpu.pci.count", outputs).status == "pass"

    def test_wsl_has_no_bus(self):
        outputs = text(text(machines.hgx_h100(), "pci", ""), "virtualization", "kind=wsl\ncontainer=no\n")
        assert ask("gpu.pci.count", outputs, gpus=None).status == "skip"

    def test_unread_bus_is_unknown(self):
        assert ask("gpu.pci.count", machines.absent(machines.hgx_h100(), "pci")).status == "unknown"


def without_module(outputs, name):
    lines = outputs["modules"].text.splitlines(keepends=True)
    return text(outputs, "modules", "".join(line for line in lines if not line.startswith(f"{name} ")))


class TestDriverModules:
    NOUVEAU = "nouveau 2400256 4 - Live 0x0000000000000000\n"

    def test_loaded_passes(self):
        assert ask("gpu.driver.loaded", machines.hgx_h100()).status == "pass"
        assert ask("gpu.driver.nouveau", machines.hgx_h100()).status == "pass"

    def test_not_loaded_fails(self):
        outcome = ask("gpu.driver.loaded", without_module(machines.hgx_h100(), "nvidia"))
        assert outcome.status == "fail"
        assert "not loaded" in outcome.seen

    def test_nouveau_in_its_place_fails_both(self):
        outputs = without_module(machines.hgx_h100(), "nvidia")
        outputs = text(outputs, "modules", outputs["modules"].text + self.NOUVEAU)
        assert "nouveau is" in ask("gpu.driver.loaded", outputs).seen
        assert ask("gpu.driver.nouveau", outputs).status == "fail"

    def test_gpu_bound_to_nouveau_is_named(self):
        line = next(row for row in machines.hgx_h100()["pci"].text.splitlines() if "0000:5d:00.0" in row)
        outputs = machines.change(machines.hgx_h100(), "pci", line, line.replace("driver=nvidia", "driver=nouveau"))
        outcome = ask("gpu.driver.nouveau", outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == ("GPU 0000:5d:00.0",)

    def test_module_on_its_way_fails(self):
        line = next(row for row in machines.hgx_h100()["modules"].text.splitlines() if row.startswith("nvidia "))
        outputs = machines.change(machines.hgx_h100(), "modules", line, line.replace("Live", "Loading"))
        assert "Loading" in ask("gpu.driver.loaded", outputs).seen

    @pytest.mark.parametrize("check", ["gpu.driver.loaded", "gpu.driver.nouveau"])
    def test_no_list_of_modules_is_unknown(self, check):
        assert ask(check, text(machines.hgx_h100(), "modules", "")).status == "unknown"
        assert ask(check, machines.fail(machines.hgx_h100(), "modules", status="hung")).status == "unknown"


class TestDriverVersion:
    def test_planned_version_passes(self):
        assert ask("gpu.driver.version", machines.hgx_h100()).status == "pass"

    def test_another_version_fails(self):
        outcome = ask("gpu.driver.version", machines.hgx_h100(), driver="580.95.05")
        assert outcome.status == "fail"
        assert (outcome.seen, outcome.expected) == ("driver 580.105.08", "580.95.05")

    def test_without_a_plan_there_is_no_question(self):
        assert ask("gpu.driver.version", machines.hgx_h100(), driver=None).status == "skip"

    def test_driver_that_is_not_loaded_is_unknown(self):
        outputs = machines.fail(machines.absent(machines.hgx_h100(), "driver-version"), XML, 9, error="no driver")
        assert ask("gpu.driver.version", outputs).status == "unknown"


class TestDriverLibraries:
    LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"

    def test_equal_passes(self):
        assert ask("gpu.driver.lib_match", machines.hgx_h100()).status == "pass"

    def test_newer_library_fails_and_is_named(self):
        outputs = machines.change(machines.hgx_h100(), "libraries", "libcuda.so.580.105.08", "libcuda.so.580.126.09")
        outcome = ask("gpu.driver.lib_match", outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == (self.LIBRARY,)
        assert "580.126.09" in outcome.seen
        assert "580.105.08" in outcome.seen

    @pytest.mark.parametrize(
        "path",
        [
            "/usr/local/cuda/compat/libcuda.so.1",
            "/usr/lib/i386-linux-gnu/libcuda.so.1",
            "/usr/local/cuda/lib64/stubs/libcuda.so.1",
        ],
    )
    def test_copies_that_may_differ_do_not_count(self, path):
        line = f"libcuda.so.1\t{path}\tlibcuda.so.570.86.10\tldconfig\n"
        outputs = text(machines.hgx_h100(), "libraries", machines.hgx_h100()["libraries"].text + line)
        assert ask("gpu.driver.lib_match", outputs).status == "pass"

    def test_complaint_of_nvidia_smi_is_enough(self):
        outputs = machines.absent(machines.hgx_h100(), "libraries")
        outputs = machines.fail(outputs, XML, 18, text="Failed to initialize NVML: Driver/library version mismatch\n")
        assert ask("gpu.driver.lib_match", outputs).status == "fail"

    def test_complaint_of_nvidia_smi_wins_over_names_that_agree(self):
        said = "Failed to initialize NVML: Driver/library version mismatch\n"
        outputs = machines.fail(machines.hgx_h100(), XML, 18, text=said)
        assert ask("gpu.driver.lib_match", outputs).status == "fail"

    def test_library_without_a_version_is_unknown(self):
        outputs = machines.change(machines.hgx_h100(), "libraries", "libcuda.so.580.105.08", "libcuda.so.1")
        assert ask("gpu.driver.lib_match", outputs).status == "unknown"

    @pytest.mark.parametrize("broken", ["libraries", "driver-version"])
    def test_unread_side_is_unknown(self, broken):
        assert ask("gpu.driver.lib_match", machines.absent(machines.hgx_h100(), broken)).status == "unknown"

    def test_no_library_is_unknown(self):
        assert ask("gpu.driver.lib_match", text(machines.hgx_h100(), "libraries", "")).status == "unknown"


def with_flavour(outputs, *, is_open):
    version = "580.105.08"
    line = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (builder@host)\n"
        if is_open
        else f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Oct 29 22:13:00 UTC 2025\n"
    )
    return text(outputs, "driver-version", f"{line}GCC version:  gcc version 12.3.0\n")


class TestDriverFlavour:
    @pytest.mark.parametrize("is_open", [True, False])
    def test_gpu_that_runs_with_both_passes(self, is_open):
        assert ask("gpu.driver.flavour", with_flavour(machines.hgx_h100(), is_open=is_open)).status == "pass"

    def test_blackwell_with_proprietary_modules_fails_although_nvidia_smi_sees_nothing(self):
        outputs = machines.change(machines.hgx_h100(), "pci", "device=2330", "device=2901")
        outputs = machines.fail(with_flavour(outputs, is_open=False), XML, 6, text="No devices were found\n")
        outcome = ask("gpu.driver.flavour", outputs)
        assert outcome.status == "fail"
        assert outcome.expected == "open kernel modules"
        assert len(outcome.subjects) == 8
        assert GPU3 in outcome.subjects

    def test_pascal_with_open_modules_fails(self):
        outputs = with_flavour(machines.old_p100(), is_open=True)
        outcome = ask("gpu.driver.flavour", outputs, machine="old_p100")
        assert outcome.status == "fail"
        assert outcome.expected == "proprietary kernel modules"

    def test_unknown_model_is_judged_by_its_architecture(self):
        outputs = machines.change(machines.hgx_h100(), "pci", "device=2330", "device=0001")
        outputs = machines.change(outputs, XML, "NVIDIA H100 80GB HBM3", "NVIDIA B999")
        outputs = machines.change(
            outputs,
            XML,
            element("product_architecture", "Hopper"),
            "<product_architecture>Blackwell</product_architecture>",
        )
        assert ask("gpu.driver.flavour", with_flavour(outputs, is_open=False)).status == "fail"
        assert ask("gpu.driver.flavour", with_flavour(outputs, is_open=True)).status == "pass"

    def test_only_the_gpu_that_cannot_run_is_named(self):
        """A card of a model the facts do not know stands beside others; its own name tells its architecture."""
        line = next(row for row in machines.hgx_h100()["pci"].text.splitlines() if "0000:5d:00.0" in row)
        outputs = machines.change(machines.hgx_h100(), "pci", line, line.replace("device=2330", "device=0001"))
        outputs = of_gpu3("product_name", "NVIDIA H100 80GB HBM3", "NVIDIA B999", outputs)
        outputs = of_gpu3("product_architecture", "Hopper", "Blackwell", outputs)
        assert ask("gpu.driver.flavour", with_flavour(outputs, is_open=False)).subjects == (GPU3,)

    def test_gpu_that_nothing_tells_of_is_unknown(self):
        outputs = machines.change(machines.hgx_h100(), "pci", "device=2330", "device=0001")
        outputs = machines.absent(outputs, XML)
        outcome = ask("gpu.driver.flavour", outputs)
        assert outcome.status == "unknown"
        assert "0000:18:00.0" in outcome.seen

    def test_no_gpu_on_the_bus_is_unknown(self):
        assert ask("gpu.driver.flavour", text(machines.hgx_h100(), "pci", "")).status == "unknown"


def with_driver(outputs, version):
    return machines.change(outputs, "driver-version", "580.105.08", version)


class TestDriverFloor:
    def test_new_enough_passes(self):
        outcome = ask("gpu.driver.min_for_cuda", machines.hgx_h100())
        assert outcome.status == "pass"
        assert "525.60.13" in outcome.seen

    def test_floor_of_the_lock_is_held(self):
        outcome = ask("gpu.driver.min_for_cuda", machines.hgx_h100(), driver_minimum="590.44.01")
        assert outcome.status == "fail"
        assert "the lock needs 590.44.01" in outcome.seen

    def test_floor_of_the_planned_cuda_is_held(self):
        outputs = with_driver(machines.hgx_h100(), "550.54.15")
        outcome = ask("gpu.driver.min_for_cuda", outputs, cuda="13.0", driver_minimum=None)
        assert outcome.status == "fail"
        assert "CUDA 13.0 of the plan needs 580.65.06" in outcome.seen

    def test_floor_of_the_installed_framework_is_held(self):
        outputs = machines.change(machines.hgx_h100(), "torch", '"cuda": "12.8"', '"cuda": "13.0"')
        outcome = ask("gpu.driver.min_for_cuda", with_driver(outputs, "550.54.15"))
        assert outcome.status == "fail"
        assert "of torch" in outcome.seen

    def test_changed_fact_changes_the_answer(self):
        floors = {row.minimum_driver for row in MATRIX.cuda_below("12.8")}
        assert len(floors) == 1
        below = "525.60.12"
        assert f"needs {floors.pop()}" in ask("gpu.driver.min_for_cuda", with_driver(machines.hgx_h100(), below)).seen

    def test_forward_compatibility_lifts_a_listed_branch(self):
        outputs = with_driver(machines.hgx_h100(), "550.54.15")
        line = "libcuda.so.1\t/usr/local/cuda/compat/libcuda.so.1\tlibcuda.so.580.65.06\tcompat\n"
        lifted = text(outputs, "libraries", outputs["libraries"].text + line)
        outcome = ask("gpu.driver.min_for_cuda", lifted, cuda="13.0", driver_minimum=None)
        assert outcome.status == "pass"
        assert "/compat/" in outcome.seen
        other = with_driver(machines.hgx_h100(), "545.23.06")
        lifted = text(other, "libraries", other["libraries"].text + line)
        assert ask("gpu.driver.min_for_cuda", lifted, cuda="13.0", driver_minimum=None).status == "fail"

    def test_cuda_that_the_facts_do_not_know_is_unknown(self):
        outcome = ask("gpu.driver.min_for_cuda", machines.hgx_h100(), cuda="99.0")
        assert outcome.status == "unknown"
        assert "99.0" in outcome.seen

    def test_without_any_cuda_there_is_no_question(self):
        outputs = machines.absent(machines.hgx_h100(), "torch", "tensorflow", "jax")
        assert ask("gpu.driver.min_for_cuda", outputs, cuda=None, driver_minimum=None).status == "skip"

    def test_unread_driver_is_unknown(self):
        outputs = machines.fail(machines.hgx_h100(), "driver-version", status="hung")
        assert ask("gpu.driver.min_for_cuda", outputs).status == "unknown"


class TestDeviceNodes:
    def node(self, line):
        """Return eight H100 of which the fourth has another node."""
        lines = machines.hgx_h100()["device-nodes"].text.splitlines()
        changed = [line if row.endswith(" /dev/nvidia3") else row for row in lines]
        assert changed != lines
        return text(machines.hgx_h100(), "device-nodes", "\n".join(changed) + "\n")

    def test_all_nodes_pass(self):
        assert ask("gpu.devnodes", machines.hgx_h100()).status == "pass"

    @pytest.mark.parametrize("node", ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"])
    def test_missing_node_fails_and_is_named(self, node):
        lines = machines.hgx_h100()["device-nodes"].text.splitlines(keepends=True)
        kept = "".join(line for line in lines if not line.rstrip().endswith(f" {node}"))
        outcome = ask("gpu.devnodes", text(machines.hgx_h100(), "device-nodes", kept))
        assert outcome.status == "fail"
        assert outcome.subjects == (node,)

    @pytest.mark.parametrize(
        ("line", "status"),
        [
            pytest.param("crw-rw---- 1 0 44 195, 3 Nov 20 08:00 /dev/nvidia3", "pass", id="of-a-group"),
            pytest.param("crw-rw---- 1 0 0 195, 3 Nov 20 08:00 /dev/nvidia3", "fail", id="of-root"),
            pytest.param("crw-r--r-- 1 0 44 195, 3 Nov 20 08:00 /dev/nvidia3", "fail", id="read-only"),
            pytest.param("-rw-rw-rw- 1 0 0 0 Nov 20 08:00 /dev/nvidia3", "fail", id="plain-file"),
        ],
    )
    def test_modes(self, line, status):
        outcome = ask("gpu.devnodes", self.node(line))
        assert outcome.status == status
        assert outcome.subjects == (("/dev/nvidia3",) if status == "fail" else ())

    def test_container_needs_the_nodes_of_its_own_gpus_only(self):
        outputs = machines.gpu_container()
        hosts = machines.hgx_h100()["driver-gpus"].text
        outcome = ask("gpu.devnodes", text(outputs, "driver-gpus", hosts), machine="gpu_container")
        assert outcome.status == "pass"

    def test_nodes_are_counted_on_the_bus_where_the_driver_tells_nothing(self):
        outputs = machines.absent(machines.hgx_h100(), "driver-gpus", XML)
        assert ask("gpu.devnodes", outputs).status == "pass"
        assert ask("gpu.devnodes", machines.absent(outputs, "pci")).status == "unknown"

    def test_several_missing_nodes_are_all_named(self):
        outputs = text(machines.hgx_h100(), "device-nodes", "crw-rw-rw- 1 0 0 195, 255 Nov 20 08:00 /dev/nvidiactl\n")
        outcome = ask("gpu.devnodes", outputs)
        assert "/dev/nvidia7, /dev/nvidia-uvm are missing" in outcome.seen
        assert len(outcome.subjects) == 9

    def test_excluded_gpu_needs_no_node(self):
        gpus = machines.hgx_h100()["driver-gpus"].text.split("== ")
        excluded = "== ".join([*gpus[:4], gpus[4].replace("GPU Excluded:\t No", "GPU Excluded:\t Yes"), *gpus[5:]])
        outputs = text(machines.hgx_h100(), "driver-gpus", excluded)
        lines = outputs["device-nodes"].text.splitlines(keepends=True)
        kept = "".join(line for line in lines if not line.rstrip().endswith(" /dev/nvidia3"))
        assert ask("gpu.devnodes", text(outputs, "device-nodes", kept)).status == "pass"

    def test_wsl_has_no_such_nodes(self):
        outputs = text(machines.hgx_h100(), "virtualization", "kind=wsl\ncontainer=no\n")
        assert ask("gpu.devnodes", outputs).status == "skip"

    def test_unread_nodes_are_unknown(self):
        assert ask("gpu.devnodes", machines.absent(machines.hgx_h100(), "device-nodes")).status == "unknown"


class TestDevChar:
    def broken(self):
        lines = machines.hgx_h100()["device-nodes"].text.splitlines(keepends=True)
        kept = [line for line in lines if "/dev/char/195:3 " not in line]
        assert len(kept) == len(lines) - 1
        return text(machines.hgx_h100(), "device-nodes", "".join(kept))

    def test_links_pass(self):
        assert ask("gpu.devchar", machines.hgx_h100()).status == "pass"

    def test_missing_link_fails_and_is_named(self):
        outcome = ask("gpu.devchar", self.broken())
        assert outcome.status == "fail"
        assert outcome.subjects == ("/dev/char/195:3",)

    def test_cgroupfs_makes_it_no_question(self):
        outputs = machines.change(
            self.broken(), "docker-info", '"CgroupDriver": "systemd"', '"CgroupDriver": "cgroupfs"'
        )
        assert ask("gpu.devchar", outputs).status == "skip"

    def test_cdi_makes_it_no_question(self):
        outputs = machines.change(self.broken(), "toolkit-config", 'mode = "auto"', 'mode = "cdi"')
        assert ask("gpu.devchar", outputs).status == "skip"

    def test_without_containers_there_is_no_question(self):
        assert ask("gpu.devchar", self.broken(), has_containers=False).status == "skip"

    def test_no_node_is_unknown(self):
        assert ask("gpu.devchar", text(machines.hgx_h100(), "device-nodes", "")).status == "unknown"


class TestSmiOk:
    def test_answer_passes(self):
        outcome = ask("gpu.smi.ok", machines.hgx_h100())
        assert outcome.status == "pass"
        assert "8 GPUs" in outcome.seen

    @pytest.mark.parametrize(
        ("code", "word"), [(9, "not loaded"), (15, "fallen off"), (14, "InfoROM"), (77, "with 77")]
    )
    def test_exit_codes_are_told(self, code, word):
        outputs = machines.fail(machines.hgx_h100(), XML, code, text="NVIDIA-SMI has failed\n")
        outcome = ask("gpu.smi.ok", outputs)
        assert outcome.status == "fail"
        assert word in outcome.seen
        assert "NVIDIA-SMI has failed" in outcome.seen

    @pytest.mark.parametrize("status", ["absent", "hung", "denied", "cut", "not-run"])
    def test_no_answer_is_unknown(self, status):
        assert ask("gpu.smi.ok", machines.fail(machines.hgx_h100(), XML, status=status)).status == "unknown"

    def test_answer_that_cannot_be_read_is_unknown(self):
        assert ask("gpu.smi.ok", text(machines.hgx_h100(), XML, "<nvidia_smi_log>")).status == "unknown"


def without_gpu3(outputs):
    whole = outputs[XML].text
    blocks = whole.split("<gpu id=")
    return text(outputs, XML, "<gpu id=".join([*blocks[:4], *blocks[5:]]))


class TestCount:
    def test_three_equal_numbers_pass(self):
        outcome = ask("gpu.count", machines.hgx_h100())
        assert (outcome.status, outcome.seen) == ("pass", "nvidia-smi lists 8 GPUs")

    def test_gpu_that_only_the_bus_shows_is_named(self):
        outcome = ask("gpu.count", without_gpu3(machines.hgx_h100()))
        assert outcome.status == "fail"
        assert outcome.subjects == ("GPU 0000:5d:00.0",)
        assert outcome.expected == "8 GPUs"

    def test_attached_number_is_held_against_the_list(self):
        outputs = machines.change(machines.hgx_h100(), XML, element("attached_gpus", 8), element("attached_gpus", 9))
        assert ask("gpu.count", outputs).status == "fail"

    def test_plan_is_held_against_both(self):
        assert ask("gpu.count", machines.hgx_h100(), gpus=16).status == "fail"
        assert ask("gpu.count", machines.hgx_h100(), gpus=None).status == "pass"

    def test_gpu_that_the_bus_does_not_show_fails(self):
        lines = machines.hgx_h100()["pci"].text.splitlines(keepends=True)
        outputs = text(machines.hgx_h100(), "pci", "".join(line for line in lines if "0000:5d:00.0" not in line))
        outcome = ask("gpu.count", outputs)
        assert outcome.status == "fail"
        assert "the PCI bus 7" in outcome.seen

    def test_none_anywhere_fails_without_a_plan(self):
        whole = machines.hgx_h100()[XML].text
        start, end = whole.index("<gpu id="), whole.rindex("</gpu>") + len("</gpu>")
        outputs = text(machines.hgx_h100(), XML, whole[:start] + whole[end:])
        outputs = machines.change(outputs, XML, element("attached_gpus", 8), element("attached_gpus", 0))
        outcome = ask("gpu.count", text(outputs, "pci", ""), gpus=None)
        assert (outcome.status, outcome.expected) == ("fail", "at least one")

    def test_container_is_held_against_the_plan_only(self):
        outputs = text(machines.gpu_container(), "pci", machines.hgx_h100()["pci"].text)
        assert ask("gpu.count", outputs, machine="gpu_container").status == "pass"
        assert ask("gpu.count", outputs, machine="gpu_container", gpus=2).status == "fail"

    @pytest.mark.parametrize("broken", [XML, "pci"])
    def test_unread_side_is_unknown(self, broken):
        assert ask("gpu.count", machines.fail(machines.hgx_h100(), broken, status="hung")).status == "unknown"


class TestModel:
    @pytest.mark.parametrize("plan", ["H100", "h100-sxm5-80gb", "NVIDIA H100 80GB HBM3", "sm_90", "HGX H100"])
    def test_spellings_of_the_plan(self, plan):
        assert ask("gpu.model", machines.hgx_h100(), gpu=plan).status == "pass"

    @pytest.mark.parametrize("plan", ["A100", "H200", "H100 PCIe", "RTX 4090"])
    def test_another_model_fails(self, plan):
        outcome = ask("gpu.model", machines.hgx_h100(), gpu=plan)
        assert outcome.status == "fail"
        assert outcome.expected == plan
        assert len(outcome.subjects) == 8

    def test_name_unknown_to_the_facts_is_compared_letter_by_letter(self):
        outputs = machines.change(machines.hgx_h100(), XML, "NVIDIA H100 80GB HBM3", "NVIDIA Q999")
        outputs = machines.change(outputs, "pci", "device=2330", "device=0001")
        assert ask("gpu.model", outputs, gpu="q999").status == "pass"
        outcome = ask("gpu.model", outputs)
        assert outcome.status == "unknown"
        assert "Q999" in outcome.seen

    def test_without_a_plan_there_is_no_question(self):
        assert ask("gpu.model", machines.hgx_h100(), gpu=None).status == "skip"


class TestLost:
    def test_answering_gpus_pass(self):
        outcome = ask("gpu.lost", machines.hgx_h100())
        assert (outcome.status, outcome.seen) == ("pass", "all 8 GPUs answer")

    def test_words_of_a_driver_that_is_not_known_are_unknown_and_no_lost_gpu(self):
        outcome = ask("gpu.lost", of_gpu3("persistence_mode", "Enabled", "perhaps"))
        assert outcome.status == "unknown"
        assert "`perhaps` of persistence" in outcome.seen
        outcome = ask("gpu.persistence", of_gpu3("persistence_mode", "Enabled", "perhaps"))
        assert outcome.status == "unknown"
        assert "`perhaps`" in outcome.seen

    def test_error_in_place_of_a_value_fails(self):
        outcome = ask("gpu.lost", of_gpu3("persistence_mode", "Enabled", "ERR!"))
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "persistence" in outcome.seen

    @pytest.mark.parametrize(
        "line",
        [
            "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.  Reboot the system to recover",
            "Unable to determine the device handle for GPU0: 00000000:5D:00.0: Unknown Error",
        ],
        ids=["handle-and-lost", "eight-digit-domain"],
    )
    def test_nvidia_smi_that_gave_up_over_one_gpu(self, line):
        outcome = ask("gpu.lost", machines.fail(machines.hgx_h100(), XML, 15, text=f"{line}\n"))
        assert outcome.status == "fail"
        assert outcome.subjects == ("GPU 0000:5d:00.0",)

    def test_gpu_that_reads_as_ones_on_the_bus_fails(self):
        line = next(row for row in machines.hgx_h100()["pci"].text.splitlines() if "0000:5d:00.0" in row)
        outputs = machines.change(machines.hgx_h100(), "pci", line, line.replace("revision=a1", "revision=ff"))
        outcome = ask("gpu.lost", outputs)
        assert outcome.subjects == (GPU3,)

    def test_other_failure_of_nvidia_smi_is_unknown(self):
        outputs = machines.fail(machines.hgx_h100(), XML, 9, text="NVIDIA-SMI has failed\n")
        assert ask("gpu.lost", outputs).status == "unknown"


class TestModes:
    """ECC and MIG: now, after the next reset, and in the plan."""

    @pytest.mark.parametrize(
        ("check", "plan", "now", "later", "on", "off"),
        [
            ("gpu.ecc.mode", "is_ecc", "current_ecc", "pending_ecc", "Enabled", "Disabled"),
            ("gpu.mig", "is_mig", "current_mig", "pending_mig", "Enabled", "Disabled"),
        ],
        ids=["ecc", "mig"],
    )
    def test_every_combination(self, check, plan, now, later, on, off):
        for current in (on, off):
            for pending in (on, off):
                outputs = of_gpu3(now, value_of_gpu3(now), current)
                outputs = of_gpu3(later, value_of_gpu3(later), pending, outputs)
                for name, old in ((now, value_of_gpu3(now)), (later, value_of_gpu3(later))):
                    new = current if name == now else pending
                    for index in (0, 1, 2, 4, 5, 6, 7):
                        outputs = machines.xml_gpu(outputs, index, element(name, old), element(name, new))
                for planned in (None, True, False):
                    outcome = ask(check, outputs, **{plan: planned})
                    is_fine = current == pending and planned in (None, current == on)
                    assert outcome.status == ("pass" if is_fine else "fail"), (current, pending, planned)
                    if outcome.status == "pass":
                        assert outcome.seen.endswith(" on" if current == on else " off")
                    elif planned is None:
                        assert "one mode now" in outcome.expected
                    else:
                        assert outcome.expected.endswith(" on" if planned else " off")
                        assert ("after the next" in outcome.seen) is (current != pending)


class TestPersistence:
    def test_display_keeps_the_driver_loaded(self):
        outcome = ask("gpu.persistence", machines.workstation_rtx4090(), machine="workstation_rtx4090")
        assert outcome.status == "pass"
        assert outcome.seen.startswith("a display holds GPU 0")
        assert ask("gpu.persistence", machines.hgx_h100()).seen == "persistence mode is on"

    def test_guests_that_cannot_set_it_are_skipped(self):
        off = machines.change(
            machines.hgx_h100(), XML, element("persistence_mode", "Enabled"), element("persistence_mode", "Disabled")
        )
        wsl = text(off, "virtualization", "kind=wsl\ncontainer=no\n")
        assert ask("gpu.persistence", wsl).status == "skip"
        vgpu = machines.change(off, XML, element("virtualization_mode", "None"), element("virtualization_mode", "VGPU"))
        assert ask("gpu.persistence", vgpu).status == "skip"


class TestComputeMode:
    @pytest.mark.parametrize("planned", ["Exclusive_Process", "exclusive process", "EXCLUSIVE-PROCESS"])
    def test_planned_mode_in_any_spelling(self, planned):
        mode = element("compute_mode", "Exclusive_Process")
        outputs = machines.change(machines.hgx_h100(), XML, element("compute_mode", "Default"), mode)
        assert ask("gpu.compute_mode", outputs, compute_mode=planned).status == "pass"
        assert ask("gpu.compute_mode", outputs, compute_mode=None).status == "fail"


class TestRetired:
    def pages(self, count, *, pending="No"):
        outputs = machines.xml_gpu(
            machines.old_p100(), 1, element("retired_count", "0"), element("retired_count", str(count))
        )
        return machines.xml_gpu(outputs, 1, element("pending_retirement", "No"), element("pending_retirement", pending))

    def test_none_passes(self):
        assert ask("gpu.retired", machines.old_p100(), machine="old_p100").status == "pass"

    @pytest.mark.parametrize(("each", "status"), [(32, "fail"), (31, "pass")], ids=["64-pages", "62-pages"])
    def test_limit_is_of_both_kinds_together(self, each, status):
        outcome = ask("gpu.retired", self.pages(each), machine="old_p100")
        assert outcome.status == status
        assert f"{each * 2} retired pages" in outcome.seen
        assert "GPU 1" in outcome.seen

    def test_notice_is_told_in_the_pass(self):
        assert "above 15" in ask("gpu.retired", self.pages(8), machine="old_p100").seen
        assert "above 15" not in ask("gpu.retired", self.pages(7), machine="old_p100").seen

    @pytest.mark.parametrize(
        ("double", "status", "is_noticed"), [(63, "fail", False), (62, "pass", True), (15, "pass", False)]
    )
    def test_edges_of_the_limits(self, double, status, is_noticed):
        outputs = machines.old_p100()
        before, after = outputs[XML].text.rsplit("<double_bit_retirement>", 1)
        after = after.replace(element("retired_count", "0"), element("retired_count", str(double)), 1)
        outcome = ask("gpu.retired", text(outputs, XML, f"{before}<double_bit_retirement>{after}"), machine="old_p100")
        assert outcome.status == status
        assert ("above 15" in outcome.seen) is is_noticed

    def test_pending_page_fails(self):
        outcome = ask("gpu.retired", self.pages(0, pending="Yes"), machine="old_p100")
        assert outcome.status == "fail"
        assert outcome.subjects == ("GPU 1 (0000:85:00.0)",)

    def test_gpus_that_remap_rows_instead_are_skipped(self):
        assert ask("gpu.retired", machines.hgx_h100()).status == "skip"


class TestTemperature:
    def warm(self, degrees, outputs=None):
        return of_gpu3("gpu_temp", value_of_gpu3("gpu_temp"), f"{degrees} C", outputs)

    @pytest.mark.parametrize(("degrees", "status"), [(70, "pass"), (71, "fail")])
    def test_limit_at_rest(self, degrees, status):
        assert ask("gpu.temp", self.warm(degrees)).status == status

    @pytest.mark.parametrize(("degrees", "status"), [(85, "pass"), (86, "fail")])
    def test_limit_at_work(self, degrees, status):
        assert ask("gpu.temp", self.warm(degrees), is_in_use=True).status == status
        busy = of_gpu3("gpu_util", "0 %", "97 %")
        assert ask("gpu.temp", self.warm(degrees, busy)).status == status

    @pytest.mark.parametrize(("slowdown", "status"), [("89 C", "pass"), ("80 C", "fail")])
    def test_absolute_slowdown_of_older_gpus(self, slowdown, status):
        outputs = machines.old_p100()
        for name, new in (("gpu_temp_slow_threshold", slowdown), ("gpu_temp", "76 C")):
            outputs = machines.xml_gpu(outputs, 1, element(name, value_of(outputs, 1, name)), element(name, new))
        outcome = ask("gpu.temp", outputs, machine="old_p100", is_in_use=True)
        assert outcome.status == status
        assert ("4 °C below" in outcome.seen) is (status == "fail")

    def test_highest_is_a_figure(self):
        assert ask("gpu.temp", self.warm(66)).figures == {"temperature_c": 66.0}


class TestPcieWidth:
    def narrow(self, lanes, outputs=None):
        outputs = outputs or machines.hgx_h100()
        line = next(row for row in outputs["pci"].text.splitlines() if "0000:5d:00.0" in row)
        return machines.change(outputs, "pci", line, line.replace("width=16", f"width={lanes}", 1))

    def test_all_lanes_pass(self):
        assert ask("gpu.pcie.width", machines.hgx_h100()).seen == "x16 on 8 GPUs"

    def test_narrow_gpu_is_named(self):
        outcome = ask("gpu.pcie.width", self.narrow(8))
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "x8 of x16" in outcome.seen

    def test_plan_of_a_narrow_slot(self):
        assert ask("gpu.pcie.width", self.narrow(8), pcie_width=8).status == "pass"
        assert ask("gpu.pcie.width", self.narrow(4), pcie_width=8).status == "fail"

    def test_model_that_clouds_give_fewer_lanes(self):
        outputs = machines.cloud_a10g()
        assert ask("gpu.pcie.width", outputs, machine="cloud_a10g", pcie_width=None).status == "pass"
        outputs = machines.change(outputs, "pci", "width=8", "width=4")
        assert ask("gpu.pcie.width", outputs, machine="cloud_a10g", pcie_width=None).status == "fail"

    def test_hidden_lanes(self):
        hidden = machines.change(machines.hgx_h100(), "pci", "width=16", "width=0")
        assert ask("gpu.pcie.width", hidden).status == "unknown"
        guest = text(hidden, "virtualization", "kind=kvm\ncontainer=no\n")
        assert ask("gpu.pcie.width", guest).status == "skip"

    def test_no_gpu_on_the_bus_is_unknown(self):
        assert ask("gpu.pcie.width", text(machines.hgx_h100(), "pci", "")).status == "unknown"


class TestPcieGeneration:
    def slow(self, outputs=None):
        """Let the fourth GPU run its copies at generation 3."""
        outputs = outputs or machines.hgx_h100()
        uuid = value_of_gpu3("uuid")
        before, after = outputs["torch-work"].text.split(uuid)
        after = after.replace('"pcie_gen_under_load": 5', '"pcie_gen_under_load": 3', 1)
        return text(outputs, "torch-work", f"{before}{uuid}{after}")

    def test_full_generation_passes(self):
        assert ask("gpu.pcie.gen_load", machines.hgx_h100()).seen == "generation 5 under load"

    def test_slow_gpu_is_named(self):
        outcome = ask("gpu.pcie.gen_load", self.slow())
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "generation 3 of 5" in outcome.seen

    def test_gpus_are_matched_by_uuid_and_else_by_place(self):
        shuffled = text(
            machines.hgx_h100(),
            "torch-work",
            self.slow()["torch-work"].text.replace('"gpu": 3', '"gpu": 33').replace('"gpu": 0', '"gpu": 3'),
        )
        assert ask("gpu.pcie.gen_load", shuffled).subjects == (GPU3,)
        nameless = text(machines.hgx_h100(), "torch-work", self.slow()["torch-work"].text.replace('"uuid"', '"id"'))
        assert ask("gpu.pcie.gen_load", nameless).subjects == (GPU3,)

    def test_slot_that_can_do_no_more_passes(self):
        assert ask("gpu.pcie.gen_load", of_gpu3("max_host_link_gen", "5", "3", self.slow())).status == "pass"

    def test_generation_that_nobody_read_is_unknown(self):
        outputs = machines.change(machines.hgx_h100(), "torch-work", ', "pcie_gen_under_load": 5', "")
        assert ask("gpu.pcie.gen_load", outputs).status == "unknown"

    def test_work_that_did_not_begin_is_unknown(self):
        outputs = machines.change(machines.hgx_h100(), "torch-work", '"error": null', '"error": "out of memory"')
        assert "out of memory" in ask("gpu.pcie.gen_load", outputs).seen
        assert ask("gpu.pcie.gen_load", outputs).status == "unknown"

    def test_without_torch_there_is_no_question(self):
        assert ask("gpu.pcie.gen_load", self.slow(), frameworks={}).status == "skip"


class TestAer:
    FATAL = "pcieport 0000:5c:00.0: AER: Uncorrectable (Fatal) error message received from 0000:5d:00.0"

    def test_silence_passes(self):
        assert ask("gpu.pcie.aer", machines.hgx_h100()).status == "pass"

    def test_fatal_error_of_a_gpu_is_named(self):
        outcome = ask("gpu.pcie.aer", machines.kernel_line(machines.hgx_h100(), self.FATAL))
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "1 fatal error" in outcome.seen

    def test_error_of_a_bridge_above_gpus_fails(self):
        bridge = next(
            row.split("\t")[0].removeprefix("address=")
            for row in machines.hgx_h100()["pci"].text.splitlines()
            if "class=0604" in row
        )
        line = f"pcieport {bridge}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer"
        outcome = ask("gpu.pcie.aer", machines.kernel_line(machines.hgx_h100(), line))
        assert outcome.status == "fail"
        assert outcome.subjects == (bridge,)

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(
                "pcieport 0000:f0:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=x", id="elsewhere"
            ),
            pytest.param("nvidia 0000:5d:00.0: PCIe Bus Error: severity=Correctable, type=Data Link", id="corrected"),
        ],
    )
    def test_errors_that_do_not_count(self, line):
        assert ask("gpu.pcie.aer", machines.kernel_line(machines.hgx_h100(), line)).status == "pass"

    def test_unread_log_is_unknown(self):
        outputs = machines.fail(machines.hgx_h100(), "kernel-log", status="denied")
        assert ask("gpu.pcie.aer", outputs).status == "unknown"


class TestProcesses:
    def running(self, kind):
        process = (
            "<processes><process_info><pid>4711</pid>"
            f"<type>{kind}</type><process_name>python3</process_name><used_memory>512 MiB</used_memory>"
            "</process_info></processes>"
        )
        return machines.xml_gpu(machines.hgx_h100(), 3, "<processes>\n\t\t</processes>", process)

    @pytest.mark.parametrize("kind", ["C", "C+G"])
    def test_compute_program_is_named(self, kind):
        outcome = ask("gpu.processes", self.running(kind))
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "python3 (pid 4711)" in outcome.seen

    def test_display_is_no_compute_program(self):
        assert ask("gpu.processes", self.running("G")).status == "pass"

    def test_host_in_use_is_skipped(self):
        assert ask("gpu.processes", self.running("C"), is_in_use=True).status == "skip"


class TestIommuAcs:
    def test_acs_off_passes(self):
        assert ask("gpu.iommu_acs", machines.hgx_h100()).status == "pass"

    def test_redirecting_bridge_is_named(self):
        whole = machines.hgx_h100()["lspci"].text
        first = whole.split(" ", 1)[0]
        outputs = text(machines.hgx_h100(), "lspci", whole.replace("ACSCtl:\tSrcValid-", "ACSCtl:\tSrcValid+", 1))
        outcome = ask("gpu.iommu_acs", outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == (first,)

    @pytest.mark.parametrize(
        ("words", "status"),
        [
            ("intel_iommu=on", "fail"),
            ("intel_iommu=on,sm_on", "fail"),
            ("amd_iommu=on", "fail"),
            ("iommu=force", "fail"),
            ("intel_iommu=on iommu=pt", "pass"),
            ("amd_iommu=on iommu.passthrough=1", "pass"),
            ("intel_iommu=off", "pass"),
            ("quiet", "pass"),
        ],
    )
    def test_kernel_parameters(self, words, status):
        outcome = ask("gpu.iommu_acs", text(machines.hgx_h100(), "command-line", f"root=/dev/sda1 {words}\n"))
        assert outcome.status == status

    def test_lspci_without_root_is_unknown(self):
        lines = machines.hgx_h100()["lspci"].text.splitlines(keepends=True)
        outputs = text(machines.hgx_h100(), "lspci", "".join(line for line in lines if "ACS" not in line))
        assert ask("gpu.iommu_acs", outputs).status == "unknown"
        assert ask("gpu.iommu_acs", machines.absent(outputs, "lspci")).status == "unknown"

    def test_translating_iommu_fails_even_where_lspci_is_missing(self):
        outputs = machines.absent(machines.hgx_h100(), "lspci")
        outputs = text(outputs, "command-line", "root=/dev/sda1 intel_iommu=on\n")
        assert ask("gpu.iommu_acs", outputs).status == "fail"

    def test_guests_and_single_gpus_are_skipped(self):
        guest = text(machines.hgx_h100(), "virtualization", "kind=kvm\ncontainer=no\n")
        assert ask("gpu.iommu_acs", guest).status == "skip"
        assert ask("gpu.iommu_acs", machines.workstation_rtx4090(), machine="workstation_rtx4090").status == "skip"


def xid(code, outputs=None, pci="0000:5d:00"):
    return machines.kernel_line(
        outputs or machines.hgx_h100(), f"NVRM: Xid (PCI:{pci}): {code}, pid=4711, name=python3"
    )


class TestXid:
    def codes(self, severity):
        return [code for code, row in sorted(MATRIX.xids.items()) if row.severity == severity]

    def test_silence_passes(self):
        assert ask("gpu.xid", machines.hgx_h100()).seen == "no Xid since boot"

    def test_every_fatal_code_fails(self):
        codes = self.codes("fatal")
        assert codes
        for code in codes:
            outcome = ask("gpu.xid", xid(code))
            assert outcome.status == "fail", code
            assert outcome.subjects == (GPU3,)
            assert f"Xid {code} " in outcome.seen
            assert outcome.remedy == (MATRIX.xids[code].advice or "")

    @pytest.mark.parametrize("code", [63, 92, 94, 121, 137])
    def test_warning_passes_and_is_told_so_that_a_repaired_gpu_does_not_fail_until_the_next_boot(self, code):
        outcome = ask("gpu.xid", xid(code, xid(13)))
        assert outcome.status == "pass"
        assert outcome.seen.startswith("none fatal, to be watched: ")
        assert f"{GPU3} Xid {code} " in outcome.seen
        assert "Xid 13 " not in outcome.seen

    @pytest.mark.parametrize("severity", ["application", "information"])
    def test_errors_of_programs_pass_and_are_told(self, severity):
        for code in self.codes(severity):
            outcome = ask("gpu.xid", xid(code, xid(code)))
            assert outcome.status == "pass", code
            assert f"Xid {code} " in outcome.seen
            assert "2 times" in outcome.seen
            assert GPU3 in outcome.seen

    def test_code_outside_the_catalogue_is_unknown(self):
        code = max(MATRIX.xids) + 1000
        outcome = ask("gpu.xid", xid(code))
        assert outcome.status == "unknown"
        assert str(code) in outcome.seen

    def test_fatal_code_wins_over_an_unknown_one(self):
        assert ask("gpu.xid", xid(79, xid(max(MATRIX.xids) + 1000))).status == "fail"

    def test_gpu_that_fell_off_without_an_xid_fails(self):
        outputs = machines.kernel_line(machines.hgx_h100(), "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.")
        outcome = ask("gpu.xid", outputs)
        assert outcome.status == "fail"
        assert outcome.subjects == (GPU3,)
        assert "fell off the bus" in outcome.seen

    def test_gpu_is_named_by_address_where_nvidia_smi_is_silent(self):
        outputs = machines.fail(xid(79), XML, 15, text="GPU is lost\n")
        assert ask("gpu.xid", outputs).subjects == (GPU3,)
        assert ask("gpu.xid", machines.absent(outputs, "driver-gpus")).subjects == ("GPU 0000:5d:00.0",)

    @pytest.mark.parametrize("status", ["denied", "hung", "absent"])
    def test_unread_log_is_unknown(self, status):
        outputs = machines.fail(machines.hgx_h100(), "kernel-log", status=status)
        assert ask("gpu.xid", outputs).status == "unknown"

    def test_emptied_log_proves_no_silence(self):
        assert ask("gpu.xid", text(machines.hgx_h100(), "kernel-log", "")).status == "unknown"

    def test_container_is_skipped(self):
        assert ask("gpu.xid", machines.gpu_container(), machine="gpu_container").status == "skip"


class TestSxid:
    def said(self, word):
        line = f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, {word}, Link 32 egress non-posted PRIV error"
        return machines.kernel_line(machines.hgx_h100(), line)

    def test_silence_passes(self):
        assert ask("gpu.sxid", machines.hgx_h100()).seen == "no SXid since boot"

    def test_fatal_one_is_named(self):
        outcome = ask("gpu.sxid", self.said("Fatal"))
        assert outcome.status == "fail"
        assert outcome.subjects == ("NVSwitch 0000:c1:00.0",)
        assert "12028" in outcome.seen

    def test_other_one_is_told_in_the_pass(self):
        outcome = ask("gpu.sxid", self.said("Non-fatal"))
        assert outcome.status == "pass"
        assert "12028" in outcome.seen

    def test_one_that_does_not_say_whether_it_is_fatal_is_unknown(self):
        line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Link 32 egress non-posted PRIV error"
        outputs = machines.kernel_line(machines.kernel_line(machines.hgx_h100(), line), line)
        outcome = ask("gpu.sxid", outputs)
        assert outcome.status == "unknown"
        assert "NVSwitch 0000:c1:00.0 SXid 12028, 2 times" in outcome.seen

    def test_machine_without_nvswitch_is_skipped(self):
        assert ask("gpu.sxid", machines.l40s_pcie(), machine="l40s_pcie").status == "skip"

    def test_unread_log_is_unknown(self):
        outputs = machines.fail(machines.hgx_h100(), "kernel-log", status="hung")
        assert ask("gpu.sxid", outputs).status == "unknown"


class TestVbios:
    OTHER = "96.00.99.00.01"

    def compare(self, **hosts):
        snapshots = {name: machines.snapshot(outputs, name) for name, outputs in hosts.items()}
        expected = dict.fromkeys(hosts, machines.EXPECTED["hgx_h100"])
        verdict = verify_hosts(snapshots, expected, MATRIX, [MATRIX.checks["gpu.vbios"]])
        return {result.target: result.outcome for result in verdict.results}

    def odd(self):
        return of_gpu3("vbios_version", "96.00.A5.00.01", self.OTHER)

    def test_equal_hosts_pass(self):
        answers = self.compare(a=machines.hgx_h100(), b=machines.hgx_h100())
        assert {name: outcome.status for name, outcome in answers.items()} == {"a": "pass", "b": "pass"}

    def test_odd_gpu_is_named_on_its_host_only(self):
        answers = self.compare(a=machines.hgx_h100(), b=self.odd(), c=machines.hgx_h100())
        assert {name: outcome.status for name, outcome in answers.items()} == {"a": "pass", "b": "fail", "c": "pass"}
        assert answers["b"].subjects == (GPU3,)
        assert self.OTHER in answers["b"].seen
        assert "as most have" in answers["b"].expected

    def test_even_split_is_nobodys_majority(self):
        other = machines.change(machines.hgx_h100(), XML, "96.00.A5.00.01", self.OTHER)
        answers = self.compare(a=machines.hgx_h100(), b=other)
        assert {outcome.status for outcome in answers.values()} == {"fail"}

    def test_unread_host_is_unknown_and_the_others_are_compared(self):
        silent = machines.fail(machines.hgx_h100(), XML, status="hung")
        answers = self.compare(a=machines.hgx_h100(), b=silent, c=machines.hgx_h100())
        assert {name: outcome.status for name, outcome in answers.items()} == {"a": "pass", "b": "unknown", "c": "pass"}

    def test_gpu_that_does_not_tell_is_unknown(self):
        answers = self.compare(a=machines.hgx_h100(), b=of_gpu3("vbios_version", "96.00.A5.00.01", "N/A"))
        assert answers["b"].status == "unknown"

    def test_models_are_compared_with_their_own_kind(self):
        answers = self.compare(a=machines.hgx_h100(), b=machines.hgx_h100(), c=machines.l40s_pcie())
        assert answers["c"].status == "skip"
        assert answers["a"].status == "pass"

    def test_one_host_is_skipped(self):
        assert self.compare(a=machines.hgx_h100())["a"].status == "skip"


class TestWsl:
    """Linux inside Windows: no kernel module, no GPU on the bus, and the driver of Windows."""

    @pytest.mark.parametrize(
        "check",
        [
            "gpu.driver.flavour",
            "gpu.driver.lib_match",
            "gpu.driver.loaded",
            "gpu.pci.count",
            "gpu.pcie.width",
            "gpu.xid",
            "host.kernel_running",
            "host.secureboot",
        ],
    )
    @pytest.mark.parametrize("gpus", [1, None])
    def test_what_it_does_not_have_is_skipped(self, check, gpus):
        assert ask(check, machines.wsl2(), machine="wsl2", gpus=gpus).status == "skip"

    def test_driver_is_the_one_nvidia_smi_tells(self):
        assert ask("gpu.driver.min_for_cuda", machines.wsl2(), machine="wsl2").seen.startswith("driver 581.80, ")
        assert ask("gpu.driver.version", machines.wsl2(), machine="wsl2", driver="581.80").status == "pass"
        old = machines.change(machines.wsl2(), XML, "581.80", "516.40")
        assert ask("gpu.driver.min_for_cuda", old, machine="wsl2").status == "fail"
        assert ask("gpu.driver.version", old, machine="wsl2", driver="581.80").status == "fail"

    def test_gpus_are_still_counted(self):
        assert ask("gpu.count", machines.wsl2(), machine="wsl2", gpus=2).status == "fail"

    def test_other_virtual_machines_keep_their_questions(self):
        bare = machines.absent(machines.cloud_a10g(), "driver-version")
        assert ask("gpu.driver.lib_match", bare, machine="cloud_a10g").status == "unknown"
        gone = machines.replace_output(bare, "pci", text="")
        assert ask("gpu.pci.count", gone, machine="cloud_a10g").status == "fail"


@pytest.mark.parametrize(
    ("check", "element"),
    [
        ("gpu.remap.failure", "remapped_rows"),
        ("gpu.remap.count", "remapped_rows"),
        ("gpu.ecc.uncorrected", "ecc_errors"),
        ("gpu.ecc.sram_threshold", "sram_threshold_exceeded"),
        ("gpu.recovery_action", "gpu_recovery_action"),
        ("fabric.state", "fabric"),
    ],
)
def test_part_of_the_listing_that_is_gone_is_unknown(check: str, element: str) -> None:
    outputs = machines.hgx_h100()
    text = re.sub(rf"\s*<{element}>.*?</{element}>", "", outputs["nvidia-smi-xml"].text, flags=re.DOTALL)
    assert element not in text
    outputs = machines.replace_output(outputs, "nvidia-smi-xml", text=text)
    (result,) = verify_one(machines.snapshot(outputs), machines.EXPECTED["hgx_h100"], MATRIX, [MATRIX.checks[check]])
    assert result.outcome.status == "unknown"


class TestSandbox:
    """A sandbox passes the GPUs on and shows neither the kernel's files nor the PCI bus."""

    OUTPUTS = machines.absent(machines.hgx_h100(), "driver-version", "pci", "modules", "driver-gpus")

    def test_the_driver_is_the_one_that_nvidia_smi_names(self):
        assert ask("gpu.driver.version", self.OUTPUTS, driver="580.105.08").status == "pass"
        assert ask("gpu.driver.version", self.OUTPUTS, driver="570.86.15").status == "fail"
        assert ask("gpu.driver.min_for_cuda", self.OUTPUTS).seen.startswith("driver 580.105.08")

    def test_the_gpus_are_counted_against_the_plan_alone_and_without_one_are_unknown(self):
        assert ask("gpu.count", self.OUTPUTS, gpus=8).status == "pass"
        assert ask("gpu.count", self.OUTPUTS, gpus=7).status == "fail"
        assert ask("gpu.count", self.OUTPUTS, gpus=None).status == "unknown"
        # A bus that is there and may not be read is another matter.
        denied = machines.fail(machines.hgx_h100(), "pci", status="denied")
        assert ask("gpu.count", denied, gpus=8).status == "unknown"

    def test_without_nvidia_smi_too_the_driver_is_unknown(self):
        outputs = machines.absent(self.OUTPUTS, XML)
        assert ask("gpu.driver.min_for_cuda", outputs).status == "unknown"
