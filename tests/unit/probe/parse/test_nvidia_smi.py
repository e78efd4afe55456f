"""nvidia-smi's document and its listing, of real drivers from 418 to 595 and of stand-in machines."""

from __future__ import annotations

import re
from pathlib import Path

import machines
import pytest

from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu, SmiProcess, parse_nvidia_smi_text, parse_nvidia_smi_xml

HEADING = re.compile(r"^#{80}\n# [^\n]*\n# \$ ([^\n]*)\n#{80}\n", re.MULTILINE)
RULE = re.compile(r"^#{80}\n", re.MULTILINE)


def capture(folder: Path, name: str, command: str, which: int = 0) -> str:
    """One section of a collection of captures: what a command printed."""
    text = (folder / "smi-text" / name).read_text(encoding="utf-8")
    found = [match for match in HEADING.finditer(text) if match[1].strip() == command][which]
    following = RULE.search(text, found.end())
    return text[found.end() : following.start() if following else len(text)]


def of(gpu: SmiGpu, **expected: object) -> dict[str, object]:
    return {name: getattr(gpu, name) for name in expected}


XML = {
    "418-quadro-p400": (
        "telegraf-quadro-p400.xml",
        "418.43",
        "10.1",
        1,
        {
            "pci": "0000:43:00.0",
            "name": "Quadro P400",
            "architecture": None,
            "vbios": "86.07.3B.00.4A",
            "persistence": False,
            "mig_current": None,
            "ecc_current": None,
            "recovery_action": None,
            "temperature_c": 33,
            "temperature_slowdown_c": 100,
            "throttle": ("gpu_idle",),
            "power_draw_w": None,
            "pcie_gen_current": 1,
            "pcie_gen_max": 3,
            "pcie_width_current": 16,
            "memory_total_mib": 1998,
            "bar1_total_mib": 256,
        },
    ),
    "515-a10g": (
        "telegraf-a10g.xml",
        "515.105.01",
        "11.7",
        1,
        {
            "pci": "0000:00:1e.0",
            "virtualization": "Pass-Through",
            "ecc_current": True,
            "ecc_volatile_uncorrectable": 0,
            "remapped_uncorrectable": 0,
            "remap_pending": False,
            "remap_failure": False,
            "gsp_firmware": "515.105.01",
            "throttle": ("gpu_idle",),
            "power_draw_w": 25.58,
            "power_limit_w": 300.0,
            "power_default_w": 300.0,
            "pcie_gen_current": 1,
            "pcie_gen_max": 4,
            "pcie_width_current": 8,
            "pcie_width_max": 16,
            "processes": (SmiProcess(pid=725, kind="G", name="/usr/lib/xorg/Xorg", used_mib=22),),
        },
    ),
    "535-a100-mig": (
        "telegraf-a100-sxm4-v12.xml",
        "535.54.03",
        "12.2",
        4,
        {
            "pci": "0000:01:00.0",
            "minor": 1,
            "mig_current": True,
            "mig_devices": 4,
            "throttle": (),
            "temperature_slowdown_c": 89,
            "temperature_max_operating_c": 85,
            "temperature_margin_c": None,
            "power_draw_w": 67.03,
            "pcie_gen_host_max": 4,
            "utilization_percent": None,
            "remap_pending": None,
            "fabric_state": None,
            "recovery_action": None,
            "sm_clock_mhz": 1275,
            "sm_clock_max_mhz": 1410,
        },
    ),
    "595-rtx-3080": (
        "telegraf-rtx-3080-v13.xml",
        "595.58.03",
        "13.2",
        1,
        {
            "brand": "GeForce",
            "architecture": "Ampere",
            "addressing_mode": "HMM",
            "recovery_action": "None",
            "channel_repair_pending": False,
            "tpc_repair_pending": False,
            "ecc_volatile_uncorrectable": None,
            "power_draw_w": 142.33,
            "power_max_w": 336.0,
            "utilization_percent": 65,
            "memory_used_mib": 9184,
            "performance_state": "P2",
        },
    ),
}


@pytest.mark.parametrize(("file", "driver", "cuda", "attached", "expected"), XML.values(), ids=XML)
def test_documents_of_real_drivers_read_right(
    samples: Path, file: str, driver: str, cuda: str, attached: int, expected: dict[str, object]
) -> None:
    smi = parse_nvidia_smi_xml((samples / "smi-xml" / file).read_text(encoding="utf-8"))
    assert (smi.driver_version, smi.cuda_version, smi.attached, len(smi.gpus)) == (driver, cuda, attached, 1)
    assert of(smi.gpus[0], **expected) == expected
    assert not smi.gpus[0].broken


def test_what_a_real_driver_does_not_support_is_told_from_what_it_does_not_know(samples: Path) -> None:
    gpu = parse_nvidia_smi_xml((samples / "smi-xml" / "telegraf-quadro-p400.xml").read_text(encoding="utf-8")).gpus[0]
    assert {"ecc_current", "power_draw_w", "retired_pending", "ecc_volatile_uncorrectable"} <= gpu.unsupported
    assert not {"recovery_action", "remap_pending", "mig_current", "fabric_state"} & (gpu.unsupported | gpu.broken)
    newer = parse_nvidia_smi_xml((samples / "smi-xml" / "telegraf-a100-sxm4-v12.xml").read_text(encoding="utf-8")).gpus[
        0
    ]
    assert {"remap_pending", "remap_failure", "utilization_percent", "temperature_margin_c"} <= newer.unsupported


TEXT = {
    "h100-idle": (
        "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
        0,
        {
            "pci": "0000:00:09.0",
            "name": "NVIDIA H100 80GB HBM3",
            "persistence": True,
            "temperature_c": 41,
            "temperature_margin_c": 46,
            "temperature_slowdown_c": None,
            "throttle": ("gpu_idle",),
            "power_draw_w": 69.62,
            "pcie_gen_max": 5,
            "pcie_gen_host_max": None,
            "pcie_replays": 9,
            "ecc_current": True,
            "ecc_aggregate_correctable": 0,
            "sram_threshold_exceeded": False,
            "channel_repair_pending": False,
            "remap_failure": False,
            "recovery_action": "None",
            "fabric_state": "Completed",
            "fabric_status": "Success",
            "memory_total_mib": 81559,
            "utilization_percent": 0,
            "processes": (),
        },
    ),
    "h100-busy": (
        "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
        1,
        {
            "temperature_margin_c": 26,
            "throttle": (),
            "utilization_percent": 100,
            "processes": (
                SmiProcess(pid=11327, kind="C", name="/data/tools/memhog", used_mib=2566),
                SmiProcess(pid=11328, kind="C", name="/data/tools/memhog", used_mib=1542),
                SmiProcess(pid=11345, kind="C", name="./gpu_burn", used_mib=15690),
            ),
        },
    ),
    "h100-mig": (
        "linux-x86_64__nvidia-h100-mig__590.48.01.txt",
        0,
        {"mig_current": True, "mig_devices": 4, "utilization_percent": None, "remap_pending": None},
    ),
    "l40s": (
        "linux-x86_64__nvidia-l40s__595.80.txt",
        1,
        {"persistence": False, "mig_current": None, "pcie_gen_max": 4, "fabric_state": None, "bar1_total_mib": 65536},
    ),
}


@pytest.mark.parametrize(("file", "which", "expected"), TEXT.values(), ids=TEXT)
def test_listings_of_real_drivers_read_right(samples: Path, file: str, which: int, expected: dict[str, object]) -> None:
    smi = parse_nvidia_smi_text(capture(samples, file, "nvidia-smi -q", which))
    assert smi.driver_version == file.rpartition("__")[2].removesuffix(".txt")
    assert (smi.attached, len(smi.gpus)) == (1, 1)
    assert of(smi.gpus[0], **expected) == expected
    assert not smi.gpus[0].broken


def test_a_listing_of_one_section_is_read_for_all_gpus(samples: Path) -> None:
    smi = parse_nvidia_smi_text((samples / "smi-text" / "azure-orig_nvsmi8_output.txt").read_text(encoding="utf-8"))
    assert (smi.driver_version, smi.attached) == ("535.86.10", 8)
    assert [gpu.pci for gpu in smi.gpus] == [f"000{number}:00:00.0" for number in range(1, 9)]
    assert {(gpu.retired_single, gpu.retired_double, gpu.retired_pending) for gpu in smi.gpus} == {(0, 0, False)}
    assert smi.gpus[0].ecc_current is None


def test_the_words_of_a_driver_that_cannot_be_reached_are_no_listing(samples: Path) -> None:
    text = (samples / "smi-text" / "mismatch-580.126.txt").read_text(encoding="utf-8")
    for parse in (parse_nvidia_smi_xml, parse_nvidia_smi_text):
        with pytest.raises(Unreadable, match="Driver/library version mismatch"):
            parse(text)


def test_a_machine_of_eight_reads_in_order() -> None:
    smi = parse_nvidia_smi_xml(machines.hgx_h100()["nvidia-smi-xml"].text)
    assert (smi.driver_version, smi.cuda_version, smi.attached) == ("580.105.08", "13.0", 8)
    assert [gpu.minor for gpu in smi.gpus] == list(range(8))
    assert smi.gpus[3].pci == "0000:5d:00.0"
    assert smi.gpus[0].fabric_health[0] == ("summary", "Healthy")
    assert smi.gpus[0].fabric_health[-1] == ("incorrect_configuration", "None")


@pytest.mark.parametrize(
    ("field", "old", "said"),
    [
        ("temperature_c", "<gpu_temp>35 C<", "<gpu_temp>ERR!<"),
        ("power_draw_w", "<instant_power_draw>69.85 W<", "<instant_power_draw>[Unknown Error]<"),
        ("remap_pending", "<remapped_row_pending>No<", "<remapped_row_pending>Unknown Error<"),
        ("ecc_current", "<current_ecc>Enabled<", "<current_ecc>GPU is lost<"),
        ("name", "<product_name>NVIDIA H100 80GB HBM3<", "<product_name>[GPU is lost]<"),
        ("uuid", "<uuid>GPU-", "<uuid>GPU requires reset GPU-"),
        ("ecc_volatile_uncorrectable", "<dram_uncorrectable>0<", "<dram_uncorrectable>ERR!<"),
        ("throttle", "hw_slowdown>Not Active<", "hw_slowdown>Unknown Error<"),
        ("pcie_width_current", "<current_link_width>16x<", "<current_link_width><"),
        ("fabric_health", "<summary>Healthy<", "<summary>Unknown Error<"),
    ],
)
def test_an_error_in_place_of_a_value_is_broken_and_never_unsupported(field: str, old: str, said: str) -> None:
    outputs = machines.xml_gpu(machines.hgx_h100(), 1, old, said)
    smi = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text)
    assert field in smi.gpus[1].broken
    assert field not in smi.gpus[1].unsupported
    assert not getattr(smi.gpus[1], field)
    assert not smi.gpus[0].broken


@pytest.mark.parametrize(
    ("field", "old", "new", "said"),
    [
        ("persistence", "<persistence_mode>Enabled<", "<persistence_mode>perhaps<", "perhaps"),
        ("memory_total_mib", "<total>81559 MiB<", "<total>81559 Mebi<", "81559 Mebi"),
        ("throttle", "hw_slowdown>Not Active<", "hw_slowdown>Somewhat<", "Somewhat"),
        ("ecc_volatile_uncorrectable", "<dram_uncorrectable>0<", "<dram_uncorrectable>none yet<", "none yet"),
        ("processes", "<pid>", "<pid>no. ", None),
    ],
)
def test_words_that_no_driver_says_are_kept_and_are_no_error(field: str, old: str, new: str, said: str | None) -> None:
    outputs = machines.hgx_h100()
    if field == "processes":
        process = "<process_info><pid>17</pid><type>C</type><process_name>x</process_name></process_info></processes>"
        outputs = machines.xml_gpu(outputs, 1, "</processes>", process)
    outputs = machines.xml_gpu(outputs, 1, old, new)
    gpu = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus[1]
    assert field in dict(gpu.unread)
    assert said is None or dict(gpu.unread)[field] == said
    assert field not in gpu.broken | gpu.unsupported
    assert not getattr(gpu, field)


@pytest.mark.parametrize(
    "said", ["N/A", "[N/A]", "[Not Supported]", "Not Supported", "Requested functionality has been deprecated"]
)
def test_what_is_not_supported_is_said_so(said: str) -> None:
    outputs = machines.xml_gpu(machines.hgx_h100(), 0, "<persistence_mode>Enabled<", f"<persistence_mode>{said}<")
    gpu = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus[0]
    assert gpu.persistence is None
    assert "persistence" in gpu.unsupported
    assert "persistence" not in gpu.broken


def test_counters_in_parts_are_added_up() -> None:
    outputs = machines.xml_gpu(machines.hgx_h100(), 0, "<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>2<")
    outputs = machines.xml_gpu(outputs, 0, "<dram_uncorrectable>0<", "<dram_uncorrectable>3<")
    outputs = machines.xml_gpu(outputs, 0, "<dram_correctable>0<", "<dram_correctable>7<")
    gpu = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus[0]
    assert (gpu.ecc_volatile_uncorrectable, gpu.ecc_aggregate_uncorrectable) == (5, 5)
    assert gpu.ecc_aggregate_correctable == 7
    assert gpu.ecc_aggregate_sram_correctable == 0


def test_page_retirement_and_double_bit_errors_of_old_gpus_are_read() -> None:
    outputs = machines.xml_gpu(machines.old_p100(), 1, "<retired_count>0<", "<retired_count>12<")
    outputs = machines.xml_gpu(outputs, 1, "<pending_retirement>No<", "<pending_retirement>Yes<")
    outputs = machines.xml_gpu(outputs, 1, "<total>0<", "<total>4<")
    smi = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text)
    gpu = smi.gpus[1]
    assert (gpu.retired_single, gpu.retired_double, gpu.retired_pending) == (12, 12, True)
    assert (gpu.ecc_volatile_uncorrectable, gpu.ecc_aggregate_correctable) == (4, 4)
    assert smi.gpus[0].retired_pending is False


def test_both_spellings_of_throttle_reasons_are_read() -> None:
    new = machines.xml_gpu(machines.hgx_h100(), 0, "hw_thermal_slowdown>Not Active<", "hw_thermal_slowdown>Active<")
    old = machines.xml_gpu(machines.old_p100(), 0, "hw_thermal_slowdown>Not Active<", "hw_thermal_slowdown>Active<")
    for outputs, word in ((new, "clocks_event_reasons"), (old, "clocks_throttle_reasons")):
        assert word in outputs["nvidia-smi-xml"].text
        gpu = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus[0]
        assert gpu.throttle == ("gpu_idle", "hw_thermal_slowdown")


def test_without_throttle_reasons_nothing_is_said_of_them() -> None:
    text = machines.hgx_h100()["nvidia-smi-xml"].text.replace("clocks_event_reason", "clocks_other_reason")
    gpu = parse_nvidia_smi_xml(text).gpus[0]
    assert gpu.throttle == ()
    assert "throttle" in gpu.unsupported


@pytest.mark.parametrize(
    ("asked", "action"),
    [("reset_required", "Reset"), ("drain_and_reset_recommended", "Drain and Reset")],
)
def test_drivers_before_570_ask_for_a_reset_in_flags(asked: str, action: str) -> None:
    healthy = machines.hgx_a100()
    assert parse_nvidia_smi_xml(healthy["nvidia-smi-xml"].text).gpus[2].recovery_action is None
    outputs = machines.xml_gpu(healthy, 2, f"<{asked}>No<", f"<{asked}>Yes<")
    assert parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus[2].recovery_action == action


def test_a_recovery_action_is_the_word_that_was_printed() -> None:
    outputs = machines.xml_gpu(machines.hgx_h100(), 0, "action>None<", "action>Drain P2P<")
    gpus = parse_nvidia_smi_xml(outputs["nvidia-smi-xml"].text).gpus
    assert [gpu.recovery_action for gpu in gpus[:2]] == ["Drain P2P", "None"]


def test_warnings_around_the_document_do_not_hide_it() -> None:
    text = machines.cloud_a10g()["nvidia-smi-xml"].text
    noisy = f"WARNING: something\n{text}WARNING: infoROM is corrupted at gpu 0000:00:1E.0\n"
    assert parse_nvidia_smi_xml(noisy) == parse_nvidia_smi_xml(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no document"),
        ("No devices were found\n", "No devices were found"),
        ("<nvidia_smi_log></nvidia_smi_log>", "names neither a driver nor a GPU"),
        ("<nvidia_smi_log><driver_version>N/A</driver_version></nvidia_smi_log>", "names neither a driver nor a GPU"),
        ("<nvidia_smi_log><driver_version>580.1</driver_version>", "cut off"),
        (
            '<nvidia_smi_log><driver_version>580.1</driver_version><gpu id="00000000:18:00.0"/></nvidia_smi_log>',
            "reports nothing about it",
        ),
        (
            '<nvidia_smi_log><driver_version>580.1</driver_version><gpu id="x"><uuid>y</uuid></gpu></nvidia_smi_log>',
            "without its address",
        ),
        (
            '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log><driver_version>580.1</driver_version></nvidia_smi_log>',
            "declares entities",
        ),
        ("<nvidia_smi_log><driver_version>&lol;</driver_version></nvidia_smi_log>", "not well formed"),
        ("<nvidia_smi_log>\x1b[2J</nvidia_smi_log>", "not well formed"),
        ("<nvidia_smi_log>\ud800</nvidia_smi_log>", "not well formed"),
        ("<a>" * 400_001 + "<nvidia_smi_log></nvidia_smi_log>", "more than is read"),
        (" " * (16 * 1024 * 1024 + 1), "more than is read"),
    ],
    ids=lambda value: value if len(value) < 30 and value.isprintable() else f"{len(value)}-characters",
)
def test_what_is_no_whole_document_is_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_nvidia_smi_xml(text)


def test_a_document_cut_anywhere_is_unreadable() -> None:
    text = machines.cloud_a10g()["nvidia-smi-xml"].text
    for length in range(0, len(text) - 1, 7):
        with pytest.raises(Unreadable):
            parse_nvidia_smi_xml(text[:length])


LISTING = """
==============NVSMI LOG==============

Timestamp                                 : Sat Nov 21 12:00:00 2026
Driver Version                            : 470.256.02
CUDA Version                              : 11.4

Attached GPUs                             : 2
GPU 00000000:05:00.0
    Product Name                          : Tesla P100-PCIE-16GB
    Clocks Throttle Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        Display Clock Setting             : Not Active
    Ecc Mode
        Current                           : Enabled
    ECC Errors
        Volatile
            Single Bit
                Total                     : 1
            Double Bit
                Total                     : 2
    Remapped Rows                         : N/A
    Processes                             : None

GPU 00000000:85:00.0
    Product Name                          : Tesla P100-PCIE-16GB
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 77
            Type                          : C
            Name                          : python
            Used GPU Memory               : 512 MiB
"""


def test_an_old_listing_with_nested_reasons_is_read() -> None:
    smi = parse_nvidia_smi_text(LISTING)
    first, second = smi.gpus
    assert first.throttle == ("hw_slowdown", "hw_thermal_slowdown")
    assert (first.ecc_current, first.ecc_volatile_uncorrectable) == (True, 2)
    assert "remap_pending" in first.unsupported
    assert second.processes == (SmiProcess(pid=77, kind="C", name="python", used_mib=512),)
    assert second.ecc_current is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LISTING.replace("NVSMI LOG", "SOMETHING"), "no listing"),
        (LISTING.rstrip("\n"), "middle of a line"),
        (LISTING[: LISTING.index("    Processes\n")], "middle of a GPU"),
        (LISTING.replace("GPU 00000000:85:00.0", "GPU nowhere"), "without its address"),
    ],
    ids=["no-heading", "no-line-end", "no-processes", "no-address"],
)
def test_what_is_no_whole_listing_is_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_nvidia_smi_text(text)


def test_a_listing_without_a_driver_is_of_a_driver_that_is_not_known() -> None:
    assert parse_nvidia_smi_text(LISTING.replace("470.256.02", "N/A")).driver_version is None
