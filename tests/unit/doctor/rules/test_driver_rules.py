"""Rules about the driver and the GPU itself: on broken machines, in pasted text, and silent on sound ones."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose, rule_of
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()


def _texts() -> dict[str, tuple[str, ...]]:
    spec = importlib.util.spec_from_file_location("driver_texts", Path(__file__).with_name("driver_texts.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TEXTS


TEXTS = _texts()
PASTED = [(name, text) for name, texts in TEXTS.items() for text in texts]
XID = "NVRM: Xid (PCI:0000:5d:00): {}, pid=4242, name=python3, Ch 00000008"


def case_of(outputs=None, text: str = "", xids: tuple[int, ...] = ()) -> Case:
    host = machines.snapshot(outputs) if outputs is not None else None
    return Case(MATRIX, host, texts=[("pasted", text)] if text else (), xids=xids)


def ask(name: str, outputs=None, text: str = "", xids: tuple[int, ...] = ()) -> Sign | None:
    return rule_of(MATRIX.diagnoses[name]).examine(case_of(outputs, text, xids))


def say(outputs, *lines: str):
    for line in lines:
        outputs = machines.kernel_line(outputs, line)
    return outputs


def first(outputs=None, text: str = "") -> str:
    report = diagnose(case_of(outputs, text))
    assert report.broken == {}
    return report.causes[0].diagnosis.id


# Every rule


@pytest.mark.parametrize("name", sorted(TEXTS))
@pytest.mark.parametrize("machine", sorted(machines.MACHINES))
def test_sound_machines_give_no_sign(name: str, machine: str) -> None:
    assert ask(name, machines.MACHINES[machine]()) is None


@pytest.mark.parametrize(("name", "text"), PASTED, ids=[f"{name}-{index}" for index, (name, _) in enumerate(PASTED)])
def test_text_alone_is_explained_by_its_rule_first(name: str, text: str) -> None:
    report = diagnose(case_of(text=text))
    assert report.broken == {}
    assert [found.diagnosis.id for found in (*report.causes, *report.notes)][:1] == [name]


@pytest.mark.parametrize(("name", "text"), PASTED, ids=[f"{name}-{index}" for index, (name, _) in enumerate(PASTED)])
def test_text_alone_is_never_proof_and_the_sign_is_whole(name: str, text: str) -> None:
    sign = ask(name, text=text)
    assert sign.confidence in ("medium", "low")
    assert sign.expected
    assert all(line.strip() == line and line and "\n" not in line for line in (*sign.seen, *sign.fix, *sign.unseen))


@pytest.mark.parametrize("name", sorted(TEXTS))
@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File \"train.py\", line 3\nValueError: shapes do not match\n",
        "[  1.0] pci 0000:00:1c.0: BAR 13: no space for [io  size 0x1000]\n[  2.0] usb 1-1: new device\n",
        "[  1.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build\n",
        "        HW Thermal Slowdown               : Not Active\n        Pending                           : No\n",
        "[  1.0] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress error (First)\n",
        "modprobe: ERROR: could not insert 'px1800kbd': Key was rejected by service\n",
        "\x00\xff\x1b[31m",
        "",
    ],
    ids=["traceback", "other-devices", "loading", "not-active", "switch", "other-module", "binary", "empty"],
)  # fmt: skip
def test_unrelated_text_gives_no_sign(name: str, text: str) -> None:
    assert ask(name, text=text) is None


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_symptoms_are_of_use(name: str) -> None:
    lines = [line for _, text in PASTED for line in text.splitlines()]
    for pattern in rule_of(MATRIX.diagnoses[name]).SYMPTOMS:
        assert any(re.search(pattern, line, re.IGNORECASE) for line in lines), pattern


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_fix_names_commands_and_what_can_be_undone_is_one_of_them(name: str) -> None:
    diagnosis = MATRIX.diagnoses[name]
    commands = {command for step in diagnosis.fix for command in step.split("`")[1::2]}
    assert diagnosis.fix
    assert set(diagnosis.undo) <= commands


# The driver


def _old_module(outputs):
    outputs = machines.change(outputs, "module-nvidia", "loaded_version=580.105.08", "loaded_version=580.95.05")
    outputs = machines.change(outputs, "driver-version", "580.105.08", "580.95.05")
    error = "Failed to initialize NVML: Driver/library version mismatch\n"
    return machines.fail(outputs, "nvidia-smi-xml", 18, text=error)


def test_old_module_in_memory_is_proved_by_the_versions() -> None:
    sign = ask("driver.mismatch", _old_module(machines.hgx_h100()))
    assert sign.confidence == "high"
    assert "580.95.05" in sign.seen[0]
    assert "580.105.08" in sign.seen[0]
    assert first(_old_module(machines.hgx_h100())) == "driver.mismatch"


def test_a_message_of_the_past_is_only_a_note_when_all_versions_agree() -> None:
    outputs = say(
        machines.hgx_h100(),
        "NVRM: API mismatch: the client has the version 570.10.01, but",
        "NVRM: this kernel module has the version 580.105.08.  Please",
    )
    sign = ask("driver.mismatch", outputs)
    assert sign.confidence == "low"
    assert any("570.10.01" in line and "580.105.08" in line for line in sign.seen)


def test_compatibility_libraries_are_no_mismatch() -> None:
    outputs = machines.hgx_h100()
    library = "libcuda.so.1\t/usr/local/cuda/compat/libcuda.so.1\tlibcuda.so.590.10.02\tcompat\n"
    outputs = machines.replace_output(outputs, "libraries", text=outputs["libraries"].text + library)
    assert ask("driver.mismatch", outputs) is None


def test_library_somebody_put_on_the_search_path_is_no_mismatch_of_the_driver() -> None:
    outputs = machines.hgx_h100()
    library = "libcuda.so.1\t/opt/other/libcuda.so.1\tlibcuda.so.590.10.02\tLD_LIBRARY_PATH\n"
    outputs = machines.replace_output(outputs, "libraries", text=outputs["libraries"].text + library)
    assert ask("driver.mismatch", outputs) is None


def test_another_nvml_on_the_search_path_is_why_nvidia_smi_speaks_of_a_mismatch() -> None:
    outputs = machines.hgx_h100()
    library = "libnvidia-ml.so.1\t/opt/old/libnvidia-ml.so.1\tlibnvidia-ml.so.535.104.05\tLD_LIBRARY_PATH\n"
    outputs = machines.replace_output(outputs, "libraries", text=outputs["libraries"].text + library)
    assert ask("driver.mismatch", outputs) is None
    error = "Failed to initialize NVML: Driver/library version mismatch\n"
    sign = ask("driver.mismatch", machines.fail(outputs, "nvidia-smi-xml", 18, text=error))
    assert sign.confidence == "high"
    assert "/opt/old/libnvidia-ml.so.1 (535.104.05)" in sign.seen[0]
    assert "LD_LIBRARY_PATH" in sign.fix[0]


def test_initial_ram_disk_with_the_old_module_explains_the_mismatch() -> None:
    outputs = machines.replace_output(_old_module(machines.hgx_h100()), "initramfs", text="580.95.05\n")
    assert ask("driver.stale-initramfs", outputs).confidence == "high"
    report = diagnose(case_of(outputs))
    assert report.causes[0].diagnosis.id == "driver.stale-initramfs"
    assert "driver.mismatch" in [found.diagnosis.id for found in report.causes[0].consequences]


def test_initial_ram_disk_with_the_new_module_is_well() -> None:
    outputs = machines.replace_output(machines.hgx_h100(), "initramfs", text="580.105.08\n")
    assert ask("driver.stale-initramfs", outputs) is None


def test_two_versions_in_dkms_are_a_hint_where_the_ram_disk_cannot_be_read() -> None:
    outputs = machines.absent(machines.hgx_h100(), "initramfs")
    more = "nvidia/580.95.05, 6.8.0-87-generic, x86_64: installed\n"
    outputs = machines.replace_output(outputs, "dkms", text=outputs["dkms"].text + more)
    sign = ask("driver.stale-initramfs", outputs)
    assert sign.confidence == "medium"
    assert sign.unseen


def _without_module(outputs, disk: str = "modinfo=none\n"):
    outputs = machines.replace_output(outputs, "module-nvidia", text=disk)
    outputs = machines.replace_output(outputs, "modules", text="overlay 212992 0 - Live 0x0000000000000000\n")
    outputs = machines.absent(outputs, "driver-version", "driver-params", "driver-gpus")
    error = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    return machines.fail(outputs, "nvidia-smi-xml", 9, text=error)


def test_kernel_without_a_module_is_proved_by_modinfo_and_dkms() -> None:
    outputs = _without_module(machines.hgx_h100())
    outputs = machines.replace_output(outputs, "dkms", text="nvidia/580.105.08, 6.8.0-85-generic, x86_64: installed\n")
    sign = ask("driver.not-built", outputs)
    assert sign.confidence == "high"
    assert "6.8.0-87-generic" in sign.seen[0]
    assert any("6.8.0-85-generic" in line for line in sign.seen)
    assert first(outputs) == "driver.not-built"


def test_module_on_disk_that_is_not_loaded_is_not_missing() -> None:
    disk = "modinfo=found\ndisk_version=580.105.08\nsigner=\nlicense=Dual MIT/GPL\n"
    assert ask("driver.not-built", _without_module(machines.hgx_h100(), disk)) is None


def test_machine_without_a_gpu_needs_no_module() -> None:
    assert ask("driver.not-built", machines.cpu_only()) is None


def test_unsigned_module_under_secure_boot_is_proved() -> None:
    disk = "modinfo=found\ndisk_version=580.105.08\nsigner=\nlicense=Dual MIT/GPL\n"
    outputs = _without_module(machines.hgx_h100(), disk)
    assert ask("driver.secure-boot", outputs) is None
    outputs = machines.change(outputs, "secure-boot", "SecureBoot disabled", "SecureBoot enabled")
    assert ask("driver.secure-boot", outputs).confidence == "high"
    assert first(outputs) == "driver.secure-boot"


def test_refused_key_is_believed_where_secure_boot_is_on_and_not_where_it_is_off() -> None:
    disk = "modinfo=found\ndisk_version=580.105.08\nsigner=DKMS key\nlicense=Dual MIT/GPL\n"
    outputs = _without_module(machines.hgx_h100(), disk)
    text = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    assert ask("driver.secure-boot", outputs, text) is None
    outputs = machines.change(outputs, "secure-boot", "SecureBoot disabled", "SecureBoot enabled")
    assert ask("driver.secure-boot", outputs) is None
    assert ask("driver.secure-boot", outputs, text).confidence == "high"


def test_module_that_is_loaded_was_not_refused() -> None:
    outputs = machines.change(machines.hgx_h100(), "secure-boot", "SecureBoot disabled", "SecureBoot enabled")
    assert ask("driver.secure-boot", say(outputs, "nvidia: Loading of unsigned module is rejected")) is None


def test_nouveau_on_the_gpus_is_proved_by_the_bus() -> None:
    outputs = _without_module(machines.hgx_h100())
    outputs = machines.change(outputs, "pci", "driver=nvidia\t", "driver=nouveau\t")
    sign = ask("driver.nouveau", outputs)
    assert sign.confidence == "high"
    assert len(sign.subjects) == 8
    assert first(outputs) == "driver.nouveau"


def test_open_modules_on_pascal_are_wrong() -> None:
    outputs = machines.old_p100()
    assert ask("driver.open-unsupported", outputs) is None
    outputs = machines.change(
        outputs, "driver-version", "UNIX x86_64 Kernel Module", "UNIX Open Kernel Module for x86_64"
    )
    sign = ask("driver.open-unsupported", outputs)
    assert sign.confidence == "high"
    assert "P100" in sign.seen[0]


def test_proprietary_modules_on_blackwell_are_wrong() -> None:
    outputs = machines.change(machines.hgx_a100(), "pci", "device=20b2", "device=2901")
    outputs = machines.change(outputs, "nvidia-smi-xml", "NVIDIA A100-SXM4-80GB", "NVIDIA B200")
    sign = ask("driver.open-required", outputs)
    assert sign.confidence == "high"
    assert (
        ask("driver.open-required", machines.change(machines.hgx_h100(), "pci", "device=2330", "device=2901")) is None
    )


def test_firmware_of_another_version_is_proved_where_a_gpu_did_not_start() -> None:
    outputs = machines.replace_output(machines.hgx_h100(), "driver-firmware", text="580.95.05\n")
    assert ask("driver.gsp-firmware", outputs) is None
    outputs = say(outputs, "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0x40:2168)")
    sign = ask("driver.gsp-firmware", outputs)
    assert sign.confidence == "high"
    assert "580.95.05" in sign.seen[0]
    assert sign.subjects == ("0000:5d:00.0",)


# PCIe


def test_unplaced_memory_window_is_proved_by_the_kernel_and_the_address() -> None:
    line = "pci 0000:5d:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space"
    assert ask("pci.bar-space", say(machines.hgx_h100(), line)) is None, "that GPU has its window by now"
    outputs = machines.fail(say(machines.hgx_h100(), line), "nvidia-smi-xml", 9)
    sign = ask("pci.bar-space", outputs)
    assert sign.confidence == "high"
    assert "0000:5d:00.0" in sign.subjects[0]


def test_unplaced_window_of_another_device_is_none_of_ours() -> None:
    line = "pci 0000:02:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space"
    outputs = machines.fail(say(machines.hgx_h100(), line), "nvidia-smi-xml", 9)
    assert ask("pci.bar-space", outputs) is None


def test_device_that_reads_as_all_ones_is_lost() -> None:
    outputs = machines.hgx_h100()
    lines = outputs["pci"].text.splitlines()
    lines = [line.replace("revision=a1", "revision=ff") if "0000:5d:00.0" in line else line for line in lines]
    sign = ask("gpu.lost", machines.replace_output(outputs, "pci", text="\n".join(lines) + "\n"))
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)


def test_lost_gpu_without_an_xid_is_seen_in_the_kernel_log() -> None:
    sign = ask("gpu.lost", say(machines.hgx_h100(), "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus."))
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)


def test_deep_sleep_before_the_loss_is_the_cause_and_after_it_a_consequence() -> None:
    asleep = "[ {}.0] nvidia 0000:5d:00.0: Unable to change power state from D3cold to D0, device inaccessible"
    gone = "[ {}.0] NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."
    assert first(say(machines.hgx_h100(), asleep.format(100), gone.format(110))) == "pci.d3cold"
    after = say(machines.hgx_h100(), gone.format(100), asleep.format(110))
    assert first(after) == "xid.79"
    assert ask("pci.d3cold", after) is None


def test_fewer_lanes_are_a_fault_except_on_models_made_so() -> None:
    outputs = machines.xml_gpu(
        machines.hgx_h100(),
        3,
        "<current_link_width>16x</current_link_width>",
        "<current_link_width>8x</current_link_width>",
    )
    sign = ask("pci.width", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)
    narrower = machines.xml_gpu(
        machines.cloud_a10g(),
        0,
        "<current_link_width>8x</current_link_width>",
        "<current_link_width>4x</current_link_width>",
    )
    assert ask("pci.width", narrower).seen[0].endswith("uses x4 of x8")


def test_slow_rate_counts_only_at_work() -> None:
    slow = machines.xml_gpu(
        machines.hgx_h100(), 0, "<current_link_gen>5</current_link_gen>", "<current_link_gen>1</current_link_gen>"
    )
    assert ask("pci.generation", slow) is None
    untested = machines.absent(slow, "torch-work")
    assert ask("pci.generation", untested) is None
    busy = machines.xml_gpu(untested, 0, "<gpu_util>0 %</gpu_util>", "<gpu_util>97 %</gpu_util>")
    assert ask("pci.generation", busy).confidence == "medium"
    measured = machines.change(
        machines.hgx_h100(), "torch-work", '"pcie_gen_under_load": 5', '"pcie_gen_under_load": 3', 1
    )
    sign = ask("pci.generation", measured)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 0 (0000:18:00.0)",)


def test_corrected_errors_count_by_the_minute_and_uncorrected_ones_at_once() -> None:
    line = "[ {}.0] pcieport 0000:17:00.0: AER: Corrected error received: 0000:18:00.0"
    few = say(machines.hgx_h100(), *(line.format(1000 + 60 * index) for index in range(40)))
    assert ask("pci.aer", few) is None
    storm = say(machines.hgx_h100(), *(line.format(1000 + index) for index in range(40)))
    assert ask("pci.aer", storm).confidence == "high"
    fatal = say(machines.hgx_h100(), "pcieport 0000:17:00.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0")
    assert ask("pci.aer", fatal).confidence == "high"
    other = say(machines.hgx_h100(), "pcieport 0000:02:00.0: AER: Uncorrected (Fatal) error received: 0000:03:00.0")
    assert ask("pci.aer", other) is None


# Xids


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("xid.79", 79), ("xid.48", 48), ("xid.48", 171), ("xid.63", 63), ("xid.64", 64), ("xid.94", 94), ("xid.95", 95),
        ("xid.92", 92), ("xid.nvlink", 74), ("xid.nvlink", 149), ("xid.gsp-hang", 119), ("xid.gsp-hang", 120),
        ("xid.109", 109), ("xid.application", 13), ("xid.application", 31), ("xid.45", 45), ("xid.microcontroller", 62),
        ("xid.54", 54), ("xid.154", 154), ("xid.unrecoverable", 140), ("xid.unrecoverable", 143), ("xid.other", 32),
    ],
)  # fmt: skip
def test_xid_in_the_targets_own_log_is_proof_and_by_number_a_hint(name: str, code: int) -> None:
    outputs = machines.absent(say(machines.hgx_h100(), XID.format(code)), "nvlink-status")
    if code == 154:
        outputs = machines.absent(outputs, "nvidia-smi-xml")
    sign = ask(name, outputs)
    assert sign.confidence == "high"
    if code != 154:
        assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)
        assert sign.seconds == 3600.0
    by_number = ask(name, xids=(code,))
    assert by_number.confidence in ("medium", "low")
    assert str(code) in " ".join(by_number.seen)


@pytest.mark.parametrize("code", sorted(MATRIX.xids))
def test_every_xid_of_the_catalogue_is_explained_by_one_rule(code: int) -> None:
    rules = [name for name in TEXTS if name.startswith("xid.") and ask(name, xids=(code,)) is not None]
    assert len(rules) == 1


def test_an_unknown_xid_is_named_as_unknown() -> None:
    sign = ask("xid.other", say(machines.hgx_h100(), XID.format(777)))
    assert sign.confidence == "low"
    assert sign.seen[0] == "Xid 777 is not in the catalogue"


def test_other_xids_are_told_with_the_vendors_action() -> None:
    sign = ask("xid.other", xids=(32,))
    assert MATRIX.xids[32].meaning in sign.seen[0]
    assert "RESTART_APP" in sign.seen[0]


def test_memory_errors_are_counted_without_an_xid() -> None:
    old = "<dram_uncorrectable>0</dram_uncorrectable>"
    outputs = machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("0", "2"))
    assert ask("xid.48", outputs).confidence == "high"
    confined = say(outputs, XID.format(94))
    assert ask("xid.48", confined) is None
    assert ask("xid.94", confined).confidence == "high"


def test_what_follows_a_memory_error_decides_what_to_do() -> None:
    plain = ask("xid.48", xids=(48,))
    remapped = ask("xid.48", xids=(48, 63))
    failed = ask("xid.48", xids=(48, 64))
    assert plain.fix == ()
    assert "spare row" in remapped.fix[0]
    assert "replaced" in failed.fix[-1]


def test_flag_of_a_failed_remap_is_proof_without_an_xid() -> None:
    old = "<remapped_row_failure>No</remapped_row_failure>"
    outputs = machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("No", "Yes"))
    sign = ask("xid.64", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)


def test_xids_of_one_incident_are_one_cause() -> None:
    lines = [f"[ {100 + index}.0] {XID.format(code)}" for index, code in enumerate((79, 45, 119, 109))]
    report = diagnose(case_of(say(machines.hgx_h100(), *lines)))
    assert [cause.diagnosis.id for cause in report.causes] == ["xid.79"]
    assert any("45, 119, 109" in line for line in report.causes[0].sign.seen)


def test_single_links_that_are_down_are_seen_without_an_xid() -> None:
    outputs = machines.hgx_h100()
    text = outputs["nvlink-status"].text.replace("Link 4: 26.562 GB/s", "Link 4: <inactive>", 1)
    sign = ask("xid.nvlink", machines.replace_output(outputs, "nvlink-status", text=text))
    assert sign.confidence == "high"
    assert sign.seen == ("GPU 0 (0000:18:00.0) has 17 of 18 NVLinks (inactive: 4)",)


def test_links_errors_the_catalogue_ignores_are_a_note() -> None:
    ber = "NVRM: Xid (PCI:0000:5d:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000"
    down = "NVRM: Xid (PCI:0000:5d:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x004531c6 0x00000000 0x00000000"
    assert ask("xid.nvlink", say(machines.hgx_h100(), ber)).confidence == "low"
    sign = ask("xid.nvlink", say(machines.hgx_h100(), ber, down))
    assert sign.confidence == "high"
    assert any("reset" in line for line in sign.seen)


def test_way_out_of_a_gsp_hang_depends_on_the_flavour() -> None:
    opened = ask("xid.gsp-hang", say(machines.hgx_h100(), XID.format(119)))
    closed = ask("xid.gsp-hang", say(machines.hgx_a100(), XID.format(119)))
    assert "open kernel modules" in opened.seen[-1]
    assert not any("NVreg_EnableGpuFirmware" in step for step in opened.fix)
    assert closed.fix == ()
    assert any("NVreg_EnableGpuFirmware" in step for step in MATRIX.diagnoses["xid.gsp-hang"].fix)


def test_different_programs_on_one_gpu_speak_against_the_gpu() -> None:
    line = "NVRM: Xid (PCI:0000:{}:00): 31, pid={}, name={}, Ch 00000008"
    one = say(machines.hgx_h100(), line.format("5d", 1, "python3"), line.format("5d", 2, "namd3"))
    assert "dcgmi diag" in ask("xid.application", one).fix[0]
    program = say(machines.hgx_h100(), line.format("5d", 1, "python3"), line.format("18", 2, "python3"))
    sign = ask("xid.application", program)
    assert sign.fix == ()
    assert any("python3 failed on 2 GPUs" in seen for seen in sign.seen)


def test_clean_up_is_a_cause_only_when_it_stands_alone() -> None:
    alone = ask("xid.45", say(machines.hgx_h100(), XID.format(45)))
    assert any("alone" in line for line in alone.seen)
    together = ask("xid.45", say(machines.hgx_h100(), XID.format(94), XID.format(45)))
    assert together.confidence == "low"


def test_last_recovery_action_counts_and_nvidia_smi_has_the_last_word() -> None:
    line = "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})"
    asked = line.format(0, "None", 2, "Node Reboot Required")
    done = line.format(2, "Node Reboot Required", 0, "None")
    silent = machines.absent(machines.hgx_h100(), "nvidia-smi-xml")
    assert "reboot" in ask("xid.154", say(silent, asked)).fix[0]
    assert ask("xid.154", say(silent, asked, done)) is None
    assert ask("xid.154", say(machines.hgx_h100(), asked)) is None, "nvidia-smi asks for nothing by now"
    old = "<gpu_recovery_action>None</gpu_recovery_action>"
    outputs = machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("None", "Drain and Reset"))
    sign = ask("xid.154", outputs)
    assert sign.confidence == "high"
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)
    assert "Drain" in sign.fix[0]


def test_fatal_switch_errors_are_told_from_the_others() -> None:
    line = "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, {}, Link 30 LTSSM Fault Up"
    assert ask("sxid.fatal", say(machines.hgx_h100(), line.format("Fatal"))).confidence == "high"
    assert ask("sxid.fatal", say(machines.hgx_h100(), line.format("Non-fatal"))) is None


# State of GPUs


@pytest.mark.parametrize(
    ("name", "reason", "confidence"),
    [
        ("gpu.thermal-slowdown", "hw_thermal_slowdown", "high"),
        ("gpu.thermal-slowdown", "sw_thermal_slowdown", "medium"),
        ("gpu.power-brake", "hw_power_brake_slowdown", "high"),
    ],
)
def test_active_slowdown_is_seen(name: str, reason: str, confidence: str) -> None:
    old = f"<clocks_event_reason_{reason}>Not Active<"
    outputs = machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("Not Active", "Active"))
    sign = ask(name, outputs)
    assert sign.confidence == confidence
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)


def test_lowered_limit_is_told_from_a_cap_at_the_default() -> None:
    old = "<clocks_event_reason_sw_power_cap>Not Active<"
    capped = machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("Not Active", "Active"))
    assert ask("gpu.power-cap", capped) is None
    lowered = machines.xml_gpu(
        capped,
        3,
        "<current_power_limit>700.00 W</current_power_limit>",
        "<current_power_limit>350.00 W</current_power_limit>",
    )
    sign = ask("gpu.power-cap", lowered)
    assert sign.confidence == "high"
    assert "350 W, its default is 700 W" in sign.seen[0]


def test_ecc_that_waits_or_differs_is_seen() -> None:
    waiting = machines.xml_gpu(
        machines.hgx_h100(), 3, "<pending_ecc>Enabled</pending_ecc>", "<pending_ecc>Disabled</pending_ecc>"
    )
    assert ask("gpu.ecc-off", waiting).confidence == "high"
    off = machines.xml_gpu(waiting, 3, "<current_ecc>Enabled</current_ecc>", "<current_ecc>Disabled</current_ecc>")
    assert "others have it on" in ask("gpu.ecc-off", off).seen[0]
    everywhere = machines.change(machines.hgx_h100(), "nvidia-smi-xml", "_ecc>Enabled<", "_ecc>Disabled<")
    assert ask("gpu.ecc-off", everywhere).confidence == "low"


@pytest.mark.parametrize(
    ("machine", "old", "what"),
    [
        ("hgx_h100", "<remapped_row_pending>No<", "row remap"),
        ("hgx_h100", "<channel_repair_pending>No<", "channel repair"),
        ("old_p100", "<pending_retirement>No<", "waits to retire a page"),
    ],
)
def test_waiting_repairs_are_seen(machine: str, old: str, what: str) -> None:
    outputs = machines.xml_gpu(machines.MACHINES[machine](), 1, old, old.replace("No<", "Yes<"))
    sign = ask("gpu.remap-pending", outputs)
    assert sign.confidence == "high"
    assert what in sign.seen[0]


def test_persistence_matters_on_servers_only() -> None:
    outputs = machines.change(
        machines.hgx_h100(), "nvidia-smi-xml", "_mode>Enabled</persistence", "_mode>Disabled</persistence"
    )
    assert ask("gpu.persistence-off", outputs).confidence == "high"
    assert ask("gpu.persistence-off", machines.workstation_rtx4090()) is None


def test_refused_reset_names_who_holds_the_gpu() -> None:
    text = "The following GPUs could not be reset:\n  GPU 00000000:5D:00.0: In use by another client"
    outputs = machines.replace_output(machines.hgx_h100(), "device-users", text="4242 python3\n")
    sign = ask("gpu.reset-refused", outputs, text)
    assert sign.confidence == "high"
    assert any("4242 python3" in line for line in sign.seen)
    assert any("nvidia-fabricmanager" in line for line in sign.seen)


def test_probe_that_did_not_end_is_a_hung_driver() -> None:
    outputs = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", status="hung")
    sign = ask("driver.hung", say(outputs, "NVRM: something harmless"))
    assert sign.confidence == "high"
    assert first(outputs) == "driver.hung"
    report = diagnose(case_of(say(outputs, XID.format(79))))
    assert report.causes[0].diagnosis.id == "xid.79"
    assert "driver.hung" in [found.diagnosis.id for found in report.causes[0].consequences]


def test_answer_that_breaks_off_is_no_hung_driver() -> None:
    outputs = machines.hgx_h100()
    for probe in ("nvidia-smi-xml", "nvidia-smi-topology", "nvlink-status", "driver-gpus"):
        outputs = machines.fail(outputs, probe, status="lost")
    assert ask("driver.hung", outputs) is None


def test_task_of_another_driver_does_not_count() -> None:
    assert (
        ask("driver.hung", say(machines.hgx_h100(), "INFO: task jbd2/sda1-8:400 blocked for more than 120 seconds."))
        is None
    )


def _without_gpu(outputs, index: int):
    text = outputs["nvidia-smi-xml"].text
    starts = [match.start() for match in re.finditer(r"<gpu id=", text)]
    ends = [match.end() for match in re.finditer(r"</gpu>", text)]
    return machines.replace_output(outputs, "nvidia-smi-xml", text=text[: starts[index]] + text[ends[index] :])


def test_gpu_on_the_bus_that_nvidia_smi_does_not_list_is_missing() -> None:
    outputs = _without_gpu(machines.hgx_h100(), 3)
    outputs = say(outputs, "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0x40:2168)")
    sign = ask("gpu.missing", outputs)
    assert sign.confidence == "high"
    assert sign.seen[0] == "GPU 3 (0000:5d:00.0) is on the PCI bus, and the driver does not offer it"
    assert "0000:5d:00.0" in sign.subjects[0]


def test_gpus_handed_to_virtual_machines_and_to_other_containers_are_not_missing() -> None:
    outputs = _without_gpu(machines.hgx_h100(), 3)
    lines = outputs["pci"].text.splitlines()
    lines = [line.replace("driver=nvidia", "driver=vfio-pci") if "0000:5d:00.0" in line else line for line in lines]
    assert ask("gpu.missing", machines.replace_output(outputs, "pci", text="\n".join(lines) + "\n")) is None
    contained = machines.change(_without_gpu(machines.hgx_h100(), 3), "virtualization", "container=no", "container=yes")
    assert ask("gpu.missing", contained) is None


# Device nodes


def without_node(outputs, *names: str):
    lines = outputs["device-nodes"].text.splitlines(keepends=True)
    kept = [line for line in lines if not any(line.rstrip().endswith(f" /dev/{name}") for name in names)]
    assert len(kept) == len(lines) - len(names)
    return machines.replace_output(outputs, "device-nodes", text="".join(kept))


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (("nvidia4",), "/dev/nvidia4 is missing"),
        (("nvidia4", "nvidiactl"), "/dev/nvidiactl is missing"),
    ],
    ids=["gpu", "control"],
)
def test_missing_node_is_proved_by_what_the_module_serves(names, seen) -> None:
    sign = ask("driver.device-nodes", without_node(machines.hgx_h100(), *names))
    assert sign.confidence == "high"
    assert seen in sign.seen
    assert sign.subjects == tuple(f"/dev/{name}" for name in names)


@pytest.mark.parametrize(
    ("mode", "is_found"),
    [("crw-rw---- 1 0 0 195,   4", True), ("crw-rw---- 1 0 44 195,   4", False), ("-rw-rw-rw- 1 0 0 12", True)],
    ids=["root-only", "group", "file"],
)
def test_node_that_may_not_be_opened(mode, is_found) -> None:
    outputs = machines.change(machines.hgx_h100(), "device-nodes", "crw-rw-rw- 1 0 0 195,   4", mode)
    sign = ask("driver.device-nodes", outputs)
    assert (sign is not None) is is_found
    assert sign is None or sign.subjects == ("/dev/nvidia4",)


def test_container_has_the_nodes_of_its_own_gpus_only() -> None:
    outputs = machines.gpu_container()
    more = machines.hgx_h100()["driver-gpus"]
    assert ask("driver.device-nodes", {**outputs, "driver-gpus": more}) is None
    assert ask("driver.device-nodes", without_node(outputs, "nvidiactl")).confidence == "high"
    plain = machines.replace_output(outputs, "device-nodes", text="")
    assert ask("driver.device-nodes", plain).confidence == "low"
    assert ask("driver.device-nodes", plain, "could not open the device file /dev/nvidia0").confidence == "high"


def test_nodes_are_not_asked_for_where_no_driver_is_loaded() -> None:
    outputs = machines.absent(machines.replace_output(machines.hgx_h100(), "device-nodes", text=""), "driver-version")
    assert ask("driver.device-nodes", outputs).confidence == "low"


def test_missing_nodes_explain_that_no_gpu_is_found() -> None:
    report = diagnose(case_of(without_node(machines.hgx_h100(), "nvidiactl"), "No CUDA GPUs are available"))
    assert [finding.diagnosis.id for finding in report.causes] == ["driver.device-nodes"]
    assert "cuda.hidden-devices" in [below.diagnosis.id for below in report.causes[0].consequences]


def test_node_of_unified_memory_is_a_note_until_something_complains() -> None:
    assert ask("cuda.uvm", without_node(machines.hgx_h100(), "nvidia-uvm")).confidence == "low"
    assert ask("cuda.uvm", without_node(machines.gpu_container(), "nvidia-uvm")).confidence == "medium"


# What a GPU counts and answers


def test_firmware_of_another_version_than_the_driver() -> None:
    old = "<gsp_firmware_version>580.105.08<"
    sign = ask("driver.gsp-firmware", machines.xml_gpu(machines.hgx_h100(), 3, old, old.replace("580.105", "570.195")))
    assert sign.confidence == "high"
    assert sign.seen[:2] == ("GPU 3 (0000:5d:00.0) runs firmware 570.195.08", "the driver is 580.105.08")


HELD = ("<clocks_event_reason_hw_slowdown>Not Active<", "<clocks_event_reason_hw_slowdown>Active<")


@pytest.mark.parametrize(
    ("machine", "old", "new", "found"),
    [
        ("hgx_h100", "<gpu_temp_tlimit>53 C<", "<gpu_temp_tlimit>1 C<", "gpu.thermal-slowdown"),
        ("cloud_a10g", "<gpu_temp>34 C<", "<gpu_temp>94 C<", "gpu.thermal-slowdown"),
        ("hgx_h100", "<gpu_temp_tlimit>53 C<", "<gpu_temp_tlimit>N/A<", "gpu.thermal-slowdown"),
        ("hgx_h100", "<gpu_temp_tlimit>53 C<", "<gpu_temp_tlimit>53 C<", "gpu.power-brake"),
    ],
    ids=["margin", "threshold", "not-told", "cool"],
)
def test_slowdown_without_a_reason_is_heat_unless_the_gpu_is_cool(machine, old, new, found) -> None:
    outputs = machines.xml_gpu(machines.MACHINES[machine](), 0, *HELD)
    outputs = machines.xml_gpu(outputs, 0, old, new)
    names = ("gpu.thermal-slowdown", "gpu.power-brake")
    signs = {name: sign for name in names if (sign := ask(name, outputs)) is not None}
    assert list(signs) == [found]
    assert signs[found].confidence == "medium"
    assert any("how hot" in one for one in signs[found].unseen) is ("N/A" in new)


def test_hot_gpu_that_is_not_slowed_down_is_a_note() -> None:
    sign = ask("gpu.thermal-slowdown", machines.xml_gpu(machines.hgx_h100(), 0, "<gpu_temp>34 C<", "<gpu_temp>93 C<"))
    assert sign.confidence == "low"
    assert "93 °C" in sign.seen[0]


def corrected_errors(count: int) -> list[str]:
    return [f"pcieport 0000:5c:00.0: AER: Corrected error received: 0000:5d:00.0 #{index}" for index in range(count)]


@pytest.mark.parametrize(
    ("generation", "count", "is_found"),
    [(5, 31, False), (5, 32, True), (4, 16, False), (4, 17, True), (3, 8, False), (3, 9, True)],
)
def test_corrected_errors_are_judged_by_the_generation_of_the_link(generation, count, is_found) -> None:
    outputs = machines.change(machines.hgx_h100(), "nvidia-smi-xml", "<max_link_gen>5<", f"<max_link_gen>{generation}<")
    assert (ask("pci.aer", say(outputs, *corrected_errors(count))) is not None) is is_found


def test_packets_that_were_sent_again_support_errors_of_the_link() -> None:
    counted = machines.xml_gpu(
        machines.hgx_h100(), 3, "<replay_counter>0</replay_counter>", "<replay_counter>412</replay_counter>"
    )
    assert ask("pci.aer", counted) is None
    sign = ask("pci.aer", say(counted, "pcieport 0000:5c:00.0: AER: Uncorrected (Fatal) error received: 0000:5d:00.0"))
    assert any("412 packets sent again" in one for one in sign.seen)


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("<dram_correctable>0<", "<dram_correctable>60000000<", "60000000 corrected errors"),
        ("<sram_correctable>0<", "<sram_correctable>20000<", "20000 corrected SRAM errors"),
    ],
    ids=["all", "sram"],
)
def test_many_corrected_errors_are_seen_without_an_xid(old, new, seen) -> None:
    sign = ask("xid.92", machines.xml_gpu(machines.hgx_h100(), 3, old, new))
    assert sign.confidence == "medium"
    assert seen in sign.seen[0]
    assert sign.subjects == ("GPU 3 (0000:5d:00.0)",)


@pytest.mark.parametrize(
    ("name", "machine", "old", "new", "seen"),
    [
        ("xid.64", "hgx_h100", "<remapped_row_unc>0<", "<remapped_row_unc>512<", "has 512 rows remapped"),
        ("xid.64", "old_p100", "<retired_count>0<", "<retired_count>64<", "retired pages"),
        ("xid.48", "hgx_h100", "<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Yes<", "SRAM error threshold"),
    ],
    ids=["rows", "pages", "sram"],
)
def test_memory_that_is_worn_out_is_seen_without_an_xid(name, machine, old, new, seen) -> None:
    outputs = machines.xml_gpu(machines.MACHINES[machine](), 1, old, new)
    assert any(seen in one for one in ask(name, outputs).seen)


def link_error(link: int, seconds: int) -> str:
    return f"[ {seconds}.0] NVRM: Xid (PCI:0000:5d:00): 74, pid=1, name=x, NVLink: fatal error detected on link {link}"


@pytest.mark.parametrize(
    ("events", "is_repeated"),
    [
        (((6, 100), (6, 9000)), True),
        (((6, 100), (6, 110)), False),
        (((6, 100), (7, 9000)), False),
    ],
    ids=["again", "one-incident", "another-link"],
)
def test_link_that_failed_twice_goes_to_service(events, is_repeated) -> None:
    sign = ask("xid.nvlink", text="\n".join(link_error(*event) for event in events))
    assert any("link 6 of 0000:5d:00.0 failed 2 times" in one for one in sign.seen) is is_repeated
    assert any("serviced" in one for one in sign.fix) is is_repeated
    assert not is_repeated or sign.fix[:-1] == MATRIX.diagnoses["xid.nvlink"].fix


def test_counted_link_errors_are_a_note() -> None:
    outputs = machines.change(
        machines.hgx_h100(), "nvlink-errors", "Link 2: Replay Errors: 0", "Link 2: Replay Errors: 5", 1
    )
    outputs = machines.change(outputs, "nvlink-errors-later", "Link 2: Replay Errors: 0", "Link 2: Replay Errors: 5", 1)
    sign = ask("xid.nvlink", outputs)
    assert sign.confidence == "low"
    assert "5 replays and recoveries since the driver was loaded" in sign.seen[0]


# Tests of a GPU


def answer(outputs, probe: str, old: str, new: str):
    return machines.change(outputs, probe, old, new, 1)


@pytest.mark.parametrize(
    ("probe", "old", "new", "seen"),
    [
        (
            "torch-work",
            '"matmul-bf16": "ok"',
            '"matmul-bf16": "failed: the largest error is 14, allowed are 0.1"',
            "GPU 0, matmul-bf16: the largest error is 14",
        ),
        ("cuda-work", '"vector-add": "ok"', '"vector-add": "failed: 3 of 9 sums are wrong"', "GPU 0, vector-add"),
        ("torch-nccl", '"allreduce": "ok"', '"allreduce": "failed: 3 of 9 sums are wrong"', "over all GPUs, allreduce"),
    ],
    ids=["product", "sum", "all-reduce"],
)
def test_wrong_result_of_a_gpu_is_proof(probe, old, new, seen) -> None:
    sign = ask("gpu.failed-test", answer(machines.hgx_h100(), probe, old, new))
    assert sign.confidence == "high"
    assert sign.seen[0].startswith(seen)
    assert sign.subjects == (() if probe == "torch-nccl" else ("GPU 0",))


@pytest.mark.parametrize(
    "result", ["failed: CUDA error: out of memory", "failed: PyTorch finds no cuDNN", "skipped: out of time"]
)
def test_test_that_could_not_run_is_no_wrong_result(result: str) -> None:
    outputs = answer(machines.hgx_h100(), "torch-work", '"matmul-bf16": "ok"', f'"matmul-bf16": "{result}"')
    assert ask("gpu.failed-test", outputs) is None


def fail_diagnosis(outputs, probe: str, name: str):
    head, found, tail = outputs[probe].text.partition(f'"name": "{name}"')
    assert found
    return machines.replace_output(outputs, probe, text=head + found + tail.replace('"Pass"', '"Fail"', 1))


def test_failed_diagnosis_of_the_hardware_is_told_from_one_of_the_software() -> None:
    sign = ask("gpu.failed-test", fail_diagnosis(machines.hgx_h100(), "dcgmi-diag-2", "memory"))
    assert sign.seen[0].startswith("memory on GPU 0 fails")
    assert ask("gpu.failed-test", fail_diagnosis(machines.hgx_h100(), "dcgmi-diag-2", "software")) is None


def test_a_file_in_the_place_of_a_node_is_seen_where_a_sandbox_shows_no_driver() -> None:
    outputs = machines.absent(machines.hgx_h100(), "driver-version", "driver-gpus", "modules", "module-nvidia", "pci")
    assert ask("driver.device-nodes", outputs) is None
    node = next(line for line in outputs["device-nodes"].text.splitlines() if line.endswith("/dev/nvidia0"))
    file = "-rw-r--r-- 1 0 0 0 Nov 21 12:00 /dev/nvidia0"
    hidden = machines.change(outputs, "device-nodes", node, file)
    hidden = machines.fail(hidden, "nvidia-smi-xml", 6, text="No devices were found\n")
    sign = ask("driver.device-nodes", hidden)
    assert sign.confidence == "high"
    assert sign.subjects == ("/dev/nvidia0",)
    assert first(hidden) == "driver.device-nodes"
