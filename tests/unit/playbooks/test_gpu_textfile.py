"""The script that writes metrics of GPUs where there is no dcgm-exporter, run as its timer runs it.

nvidia-smi is a stand-in here: a shell script that prints a listing made in this file, after the shape of recorded ones.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import playbook_files
import pytest

from provision.generate.monitoring import rule_groups
from provision.matrix.load import Matrix
from provision.probe.parse.measurements import parse_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = playbook_files.ROLES / "gpu_exporter" / "files" / "gpu_textfile.py"
script = playbook_files.load_script(SCRIPT)
UUIDS = ("GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222")
_GPU = """\
 <gpu id="{address}">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <uuid>{uuid}</uuid>
  <minor_number>{minor}</minor_number>
  <pci>
   <pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>
    <current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info>
   <replay_counter>3</replay_counter>
  </pci>
  <{reasons}s><{reasons}_gpu_idle>Not Active</{reasons}_gpu_idle>
   <{reasons}_sw_thermal_slowdown>Active</{reasons}_sw_thermal_slowdown></{reasons}s>
  <fb_memory_usage><total>81559 MiB</total><used>1234 MiB</used></fb_memory_usage>
  <utilization><gpu_util>{busy}</gpu_util></utilization>
  <ecc_errors><volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>
   <sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>4</dram_uncorrectable></volatile></ecc_errors>
  <remapped_rows><remapped_row_unc>5</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending>
   <remapped_row_failure>No</remapped_row_failure></remapped_rows>
  <temperature><gpu_temp>{temperature}</gpu_temp></temperature>
  <gpu_power_readings><power_draw>N/A</power_draw><instant_power_draw>701.25 W</instant_power_draw></gpu_power_readings>
  <clocks><sm_clock>1980 MHz</sm_clock></clocks>
 </gpu>
"""


def listing(*gpus: str) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f" <driver_version>580.105.08</driver_version>\n{''.join(gpus)}</nvidia_smi_log>\n"
    )


def gpu(number: int = 0, **said: str) -> str:
    words = {"busy": "42 %", "temperature": "91 C", "reasons": "clocks_event_reason", "uuid": UUIDS[number]}
    return _GPU.format(**{"address": f"00000000:{0x18 + number:02X}:00.0", "minor": number, **words, **said})


class Node:
    """A folder for textfiles, and what stands in for nvidia-smi and the kernel's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "textfiles"
        self.folder.mkdir()
        self.program = folder / "nvidia-smi"
        self.log = folder / "kmsg"
        self.log.write_text("")

    def says(self, text: str, code: int = 0) -> None:
        listing = self.program.with_suffix(".xml")
        listing.write_text(text)
        self.does(f"cat {listing}\nexit {code}")

    def does(self, words: str) -> None:
        self.program.write_text(f"#!/bin/sh\n# A stand-in of the tests, no real nvidia-smi.\n{words}\n")
        self.program.chmod(0o755)

    def logs(self, text: str, *, age_seconds: float = 0) -> None:
        stamp = int((time.clock_gettime(time.CLOCK_MONOTONIC) - age_seconds) * 1e6)
        with self.log.open("a") as file:
            file.write(f"3,{stamp},{stamp},-;{text}\n")

    def run(self, *words: str) -> dict[str, list[Any]]:
        done = subprocess.run(
            [
                *(sys.executable, SCRIPT, self.folder, "--nvidia-smi", self.program),
                *("--kernel-log", self.log, "--seconds", "1", *words),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, list[Any]] = {}
        for metric in parse_metrics((self.folder / script.FILE).read_text()):
            found.setdefault(metric.name, []).append(metric)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def value(found: dict[str, list[Any]], name: str) -> float:
    (metric,) = found[name]
    return metric.value


# What nvidia-smi says


def test_values_stand_under_the_names_units_and_labels_of_dcgm_exporter(node: Node) -> None:
    node.says(listing(gpu()))
    found = node.run()
    assert {name: rows[0].value for name, rows in found.items() if name.startswith("DCGM_")} == {
        "DCGM_EXP_CLOCK_EVENTS_COUNT": 1,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 7,
        "DCGM_FI_DEV_FB_USED": 1234,
        "DCGM_FI_DEV_GPU_TEMP": 91,
        "DCGM_FI_DEV_GPU_UTIL": 42,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8,
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 3,
        "DCGM_FI_DEV_POWER_USAGE": 701.25,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 1,
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 5,
    }
    assert found["DCGM_FI_DEV_GPU_TEMP"][0].labels == {
        "gpu": "0",
        "UUID": UUIDS[0],
        "pci_bus_id": "00000000:18:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "DCGM_FI_DRIVER_VERSION": "580.105.08",
    }
    assert value(found, "provision_gpu_exporter_up") == 1


def test_every_gpu_has_its_own_row(node: Node) -> None:
    node.says(listing(gpu(0), gpu(1, temperature="40 C")))
    found = node.run()
    assert [(row.labels["gpu"], row.value) for row in found["DCGM_FI_DEV_GPU_TEMP"]] == [("0", 91), ("1", 40)]


@pytest.mark.parametrize("said", ["N/A", "ERR!", "[Unknown Error]", "GPU is lost", ""])
def test_what_is_not_told_is_left_out_and_not_guessed(node: Node, said: str) -> None:
    node.says(listing(gpu(busy=said)))
    found = node.run()
    assert "DCGM_FI_DEV_GPU_UTIL" not in found
    assert value(found, "DCGM_FI_DEV_GPU_TEMP") == 91


@pytest.mark.parametrize("reasons", ["clocks_event_reason", "clocks_throttle_reason"])
def test_clock_events_of_old_and_new_drivers_are_counted_in_a_window(node: Node, reasons: str) -> None:
    node.says(listing(gpu(reasons=reasons)))
    node.run()
    found = node.run()
    (row,) = found["DCGM_EXP_CLOCK_EVENTS_COUNT"]
    assert (row.labels["clock_event"], row.value) == ("sw_thermal", 2)
    state = json.loads((node.folder / script.STATE).read_text())
    state["samples"] = [[stamp - script.WINDOW_SECONDS, active] for stamp, active in state["samples"]]
    (node.folder / script.STATE).write_text(json.dumps(state))
    assert node.run()["DCGM_EXP_CLOCK_EVENTS_COUNT"][0].value == 1


def test_one_gpu_that_is_lost_does_not_take_the_others_along(node: Node) -> None:
    lost = '<gpu id="00000000:18:00.0"><product_name>GPU is lost</product_name><uuid>GPU is lost</uuid></gpu>\n'
    node.says(listing(lost, gpu(1)), code=15)
    found = node.run()
    assert [row.labels["UUID"] for row in found["DCGM_FI_DEV_GPU_TEMP"]] == [UUIDS[1]]
    # Its number is that of its place, so that no other GPU takes it over.
    assert found["DCGM_FI_DEV_GPU_TEMP"][0].labels["gpu"] == "1"


def test_names_cannot_break_out_of_their_label(node: Node) -> None:
    node.says(listing(gpu().replace("NVIDIA H100 80GB HBM3", 'a"} 1\\ &#10;x')))
    assert node.run()["DCGM_FI_DEV_GPU_TEMP"][0].labels["modelName"].startswith('a"} 1\\')


# Where it says nothing


def silent(node: Node) -> None:
    node.program.unlink(missing_ok=True)


def ends_badly(node: Node) -> None:
    node.does("echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9")


def hangs(node: Node) -> None:
    node.does("exec sleep 60")


def stammers(node: Node) -> None:
    node.says(listing(gpu())[:900])


@pytest.mark.parametrize(
    ("fault", "reason"), [(silent, "absent"), (ends_badly, "failed"), (hangs, "hung"), (stammers, "unreadable")]
)
def test_exporter_that_knows_nothing_says_so_and_shows_no_old_value(
    node: Node, fault: Callable[[Node], None], reason: str
) -> None:
    node.says(listing(gpu()))
    node.run()
    fault(node)
    found = node.run()
    assert value(found, "provision_gpu_exporter_up") == 0
    assert found["provision_gpu_exporter_problem_info"][0].labels == {"reason": reason}
    assert not [name for name in found if name.startswith("DCGM_FI")]


def test_one_that_cannot_be_ended_is_not_started_a_second_time(node: Node) -> None:
    with subprocess.Popen(["sleep", "60"]) as stuck:
        try:
            state = {"hung": [stuck.pid, script.start_of(stuck.pid)]}
            (node.folder / script.STATE).write_text(json.dumps(state))
            mark = node.folder.parent / "started"
            node.does(f"touch {mark}")
            assert node.run()["provision_gpu_exporter_problem_info"][0].labels == {"reason": "hung"}
            assert not mark.exists()
        finally:
            stuck.kill()
            stuck.wait()
    node.says(listing(gpu()))
    assert value(node.run(), "provision_gpu_exporter_up") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"samples": 1}', '{"known": []}'])
def test_state_that_is_damaged_costs_the_window_and_no_more(node: Node, text: str) -> None:
    (node.folder / script.STATE).write_text(text)
    node.says(listing(gpu()))
    assert value(node.run(), "DCGM_FI_DEV_GPU_TEMP") == 91


def test_file_is_replaced_whole_and_readable_for_the_exporter(node: Node) -> None:
    node.says(listing(gpu()))
    node.run()
    before = (node.folder / script.FILE).stat()
    node.run()
    after = (node.folder / script.FILE).stat()
    assert before.st_ino != after.st_ino
    assert after.st_mode & 0o777 == 0o644
    assert {path.name for path in node.folder.iterdir()} == {script.FILE, script.STATE}


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs a folder that is not there")
def test_folder_that_is_not_there_ends_in_one_line(tmp_path: Path) -> None:
    words = [sys.executable, SCRIPT, tmp_path / "nowhere", "--nvidia-smi", tmp_path / "none"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


# The kernel's log

XID = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_xid_of_the_window_stands_with_its_gpu(node: Node) -> None:
    node.says(listing(gpu(0), gpu(1)))
    node.logs(XID)
    node.logs(XID)
    node.logs(XID.replace("79", "31"), age_seconds=script.WINDOW_SECONDS + 1)
    node.logs("usb 1-1: new device")
    (row,) = node.run()["DCGM_EXP_XID_ERRORS_COUNT"]
    assert (row.labels["xid"], row.labels["UUID"], row.labels["gpu"], row.value) == ("79", UUIDS[0], "0", 2)


def test_gpu_that_fell_off_the_bus_keeps_the_labels_it_had(node: Node) -> None:
    node.says(listing(gpu(0), gpu(1)))
    node.run()
    node.logs(XID)
    node.says(listing(gpu(1)))
    assert node.run()["DCGM_EXP_XID_ERRORS_COUNT"][0].labels["UUID"] == UUIDS[0]


def test_xid_of_a_gpu_that_nobody_knows_stands_with_its_address(node: Node) -> None:
    silent(node)
    node.logs(XID)
    assert node.run()["DCGM_EXP_XID_ERRORS_COUNT"][0].labels == {"pci_bus_id": "0000:18:00", "xid": "79"}


def test_log_that_cannot_be_read_is_told(node: Node) -> None:
    node.says(listing(gpu()))
    assert value(node.run(), "provision_gpu_exporter_kernel_log_up") == 1
    node.log.unlink()
    assert value(node.run(), "provision_gpu_exporter_kernel_log_up") == 0


# One set of rules


def offered() -> dict[str, str]:
    rows = {name: kind for name, kind, *_ in (*script.SERIES, *script.SUMS, script.CLOCK_EVENTS, script.XIDS)}
    assert len(rows) == len(script.SERIES) + len(script.SUMS) + 2
    return rows


def test_every_series_is_one_that_the_facts_ask_dcgm_exporter_for() -> None:
    counters = {row.name: row.kind for row in Matrix().counters}
    assert {name: kind for name, kind in offered().items() if counters.get(name) != kind} == {}


def test_what_the_script_lacks_is_what_nvidia_smi_does_not_tell() -> None:
    lacking = {row.name for row in Matrix().counters} - set(offered())
    assert lacking == {
        "DCGM_EXP_GPU_HEALTH_STATUS",
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        # A label, on every series.
        "DCGM_FI_DRIVER_VERSION",
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    }


def test_clock_events_are_the_words_that_rules_ask_for() -> None:
    text = json.dumps(rule_groups(Matrix()))
    asked = {word for row in re.findall(r'clock_event=~?\\+"([^"\\]+)', text) for word in row.split("|")}
    assert asked == {"hw_thermal", "sw_thermal", "hw_power_brake"}
    assert asked <= set(script.REASONS.values())


def test_age_of_the_file_is_watched() -> None:
    expression = Matrix().alerts["textfile-stale"].expression
    pattern = re.search(r'file=~"([^"]+)"', expression)
    assert pattern is not None
    assert re.fullmatch(pattern[1], f"/run/provision-gpu/{script.FILE}")


# Where it runs


def test_syntax_is_that_of_the_oldest_python_on_a_node() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_old_python_runs_it(version: str, node: Node) -> None:
    places = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    python = shutil.which(f"python{version}") if not places else str(places[-1])
    if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip(f"no Python {version} on this machine")
    node.says(listing(gpu()))
    words = [python, SCRIPT, node.folder, "--nvidia-smi", node.program, "--kernel-log", node.log]
    done = subprocess.run(words, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
