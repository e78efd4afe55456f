"""What other programs recorded of a machine is read by what it says: bug reports, archives, listings, journals."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import machines
import pytest

from provision.errors import UsageError
from provision.probe.bundle import write_bundle
from provision.probe.output import ABSENT, Unreadable
from provision.probe.recordings import archive
from provision.probe.recordings.archive import holds_files, read_members
from provision.probe.recordings.read import is_bundle, read_recordings
from provision.probe.snapshot import Snapshot

RULE = "_" * 44
PACKINGS = {"none": bytes, "gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress}
TABLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:01:00.0 Off |                    0 |
| N/A   32C    P0              62W / 400W |      4MiB / 81920MiB |      7%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM...            Off  | 00000000:41:00.0 Off |                    3 |
| N/A   ERR!   P0              N/A / 400W |      4MiB / 81920MiB |    100%      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+
"""
LISTING = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Nov  3 10:12:01 2025
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:41:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 0
    Persistence Mode                      : Enabled
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Clocks Event Reasons
        Idle                              : Active
    Processes                             : None
"""
VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    "GCC version:  gcc version 12.3.0\n"
)
DMESG = """\
[    0.000000] Linux version 6.8.0-48-generic (build@host) (gcc 12) #48-Ubuntu SMP
[   11.200000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
[ 9000.123456] NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
"""
COLLECTED = """\
Collecting environment information...
PyTorch version: 2.1.2+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1

OS: Ubuntu 22.04.3 LTS (x86_64)
Python version: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-5.15.0-91-generic-x86_64-with-glibc2.35
Is CUDA available: False
CUDA runtime version: 12.1.105
GPU models and configuration: GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB

Nvidia driver version: 470.82.01

Versions of relevant libraries:
[pip3] numpy==1.26.3
[pip3] torch==2.1.2+cu121
[conda] Could not collect
"""
PIP = "Package           Version\n----------------- ----------\nnumpy             2.1.0\ntorch             2.2.0+cpu\n"
CONDA = (
    "# packages in environment at /opt/conda:\n#\n# Name                    Version                   Build  Channel\n"
    "cudnn                     8.9.2.26               cuda12_0    conda-forge\n"
    "pytorch                   2.1.2           py3.10_cuda12.1_cudnn8.9.2_0    pytorch\n"
)
HEALTH = {
    "body": {
        "Overall Health": {"value": "Failure"},
        "GPU": {
            "children": {
                "3": {
                    "value": "Failure",
                    "children": {
                        "Errors": {
                            "children": {"Memory system": {"value": "Failure", "overflow": ["An error", "was found"]}}
                        }
                    },
                }
            }
        },
    },
    "header": ["Health Monitor Report"],
}


def bug_report(*, driver: str = VERSION, host: str = "gpu007", dmesg: str = DMESG) -> str:
    """Return a report in the form of ``nvidia-bug-report.sh``, cut down."""
    version = (
        f"*** /proc/driver/nvidia/./version\n*** ls: -r--r--r-- 1 root root 0 /proc/driver/nvidia/./version\n{driver}"
        if driver
        else "*** /proc/driver/nvidia/./version does not exist\n"
    )
    parts = [
        "Start of NVIDIA bug report log file.  Please include this file, along\nwith a description of your problem.\n\n"
        f"nvidia-bug-report.sh Version: 33474217\n\nDate: Mon Nov  3\nuname: Linux {host} 6.8.0-48-generic "
        "#48-Ubuntu SMP PREEMPT_DYNAMIC x86_64 x86_64 x86_64 GNU/Linux\ncommand line flags: \n",
        "/sbin/systemctl status nvidia-persistenced.service\n     Loaded: loaded (/usr; enabled)\n",
        "*** /var/log/Xorg.0.log\n*** ls: -rw-r--r--\n(EE) NVIDIA(GPU-0): no device\n",
        "/usr/bin/lspci -nnDvvvxxx\n\n0000:41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330]\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)\n"
        "\tKernel driver in use: nvidia\n00: de 10 30 23 07 05 10 00\n",
        "Scanning kernel log files for NVIDIA kernel messages:\n\n  journalctl -b -0:\n"
        "Nov 03 10:00:00 gpu007 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module\n\n  journalctl -b -1:\n"
        "Nov 02 10:00:00 gpu007 kernel: NVRM: Xid (PCI:0000:41:00): 48, pid=1\n",
        f"dmesg:\n\n{dmesg}",
        "*** /proc/cmdline\n*** ls: -r--r--r-- 1 root\nBOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n",
        "*** /proc/cpuinfo\n*** ls: -r--r--r--\nprocessor\t: 0\nflags\t\t: fpu vme\n",
        "*** /proc/modules\n*** ls: -r--r--r--\nnvidia 9000000 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000\n",
        version,
        f"/usr/bin/nvidia-smi --query\n\n{LISTING}\n/usr/bin/nvidia-smi --query --unit\n\n"
        "==============NVSMI LOG==============\n\nAttached Units : 0\n",
    ]
    return "".join(f"{RULE}\n\n{part}\n" for part in parts)


def pack(path: Path, members: Mapping[str, bytes | str], mode: str = "w:gz") -> Path:
    """Write an archive of files."""
    with tarfile.open(path, mode) as file:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return path


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Snapshot]:
    """Return the one machine of a text, saved under a name that says nothing."""

    def take(content: str | bytes, name: str = "x") -> Snapshot:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (host,) = read_recordings(path)
        return host

    return take


class TestBugReport:
    @pytest.mark.parametrize("packing", PACKINGS)
    def test_it_is_read_packed_or_not_and_named_after_the_machine(self, read, packing):
        host = read(PACKINGS[packing](bug_report().encode()))
        assert host.target == "gpu007"
        assert (host.driver.version, host.driver.is_open) == ("580.95.05", True)
        assert (host.uname.release, host.uname.machine) == ("6.8.0-48-generic", "x86_64")
        assert host.command_line["iommu"] == "pt"
        assert [module.name for module in host.modules] == ["nvidia"]

    def test_its_sections_are_what_the_tools_print(self, read):
        host = read(bug_report())
        (gpu,) = host.smi.gpus
        assert (gpu.name, gpu.remap_pending) == ("NVIDIA H100 80GB HBM3", True)
        (device,) = host.pci
        assert (device.address, device.width, device.width_max, device.driver) == ("0000:41:00.0", 8, 16, "nvidia")
        assert [event.code for event in host.kernel_log.of("xid")] == [79]
        assert "(EE) NVIDIA" in host.text("recorded-log")

    def test_a_driver_that_is_not_loaded_is_absent_and_not_unasked(self, read):
        host = read(bug_report(driver=""))
        assert host.output("driver-version").status == ABSENT

    def test_a_log_that_was_overwritten_gives_way_to_the_journal_of_this_boot(self, read):
        host = read(bug_report(dmesg="[ 9000.1] usb 1-1: new device\n"))
        assert host.kernel_log.of("xid") == ()
        assert "loading NVIDIA" in host.output("kernel-log").text

    def test_a_host_with_services_is_no_container(self, read):
        assert read(bug_report()).virtualization.is_container is False
        bare = bug_report().replace("Loaded: ", "").replace("journalctl -b -0:", "none:")
        with pytest.raises(Unreadable):
            _ = read(bare).virtualization


class TestNvidiaSmi:
    def test_the_table_tells_what_it_has_columns_for(self, read):
        host = read(f"$ nvidia-smi\n{TABLE}")
        first, second = host.smi.gpus
        assert (host.smi.driver_version, host.smi.cuda_version) == ("535.129.03", "12.2")
        assert (first.pci, first.name, first.persistence) == ("0000:01:00.0", "NVIDIA A100-SXM4-80GB", True)
        assert (first.temperature_c, first.power_limit_w, first.memory_total_mib) == (32, 400.0, 81920)
        assert (first.ecc_volatile_uncorrectable, first.ecc_current, first.mig_current) == (0, True, False)
        assert (second.ecc_volatile_uncorrectable, second.mig_current, second.utilization_percent) == (3, True, 100)
        assert "temperature_c" in second.broken
        assert "power_draw_w" in second.unsupported

    def test_a_name_that_was_cut_is_not_taken_for_a_whole_one(self, read):
        assert read(TABLE).smi.gpus[1].name is None

    def test_what_has_no_column_is_unread_and_no_empty_answer(self, read):
        assert {"throttle", "processes"} <= dict(read(TABLE).smi.gpus[0].unread).keys()

    @pytest.mark.parametrize(
        "text",
        [TABLE.split("|====")[1].partition("|\n")[2], LISTING.replace("Driver Version    ", "Something Else    ")],
    )
    def test_without_a_driver_it_is_a_machine_whose_driver_is_not_known(self, read, text):
        host = read(text)
        assert host.smi.driver_version is None
        assert host.smi.gpus
        with pytest.raises(Unreadable, match="names no driver"):
            host.find_smi_driver_version()

    def test_the_listing_and_the_document_are_read(self, read):
        assert read(f"me@gpu:~$ nvidia-smi -q\n{LISTING}me@gpu:~$ exit\n").smi.gpus[0].remap_pending is True
        xml = machines.hgx_h100()["nvidia-smi-xml"].text
        assert len(read(f"some words\n{xml}").smi.gpus) == 8


class TestListings:
    def test_collect_env_names_framework_driver_and_system(self, read):
        host = read(COLLECTED)
        assert (host.torch.version, host.torch.cuda, host.torch.is_available) == ("2.1.2+cu121", "12.1", False)
        assert host.torch.names == ("NVIDIA A100-SXM4-80GB",) * 2
        assert (host.driver.version, host.driver.is_open) == ("470.82.01", None)
        assert host.python.version == "3.10.12"
        assert host.python.packages["numpy"] == "1.26.3"
        assert (host.os_release.id, host.os_release.version) == ("ubuntu", "22.04")
        assert (host.uname.release, host.nvcc.release) == ("5.15.0-91-generic", "12.1")

    def test_collect_env_of_a_machine_without_torch_names_none(self, read):
        host = read(COLLECTED.replace("2.1.2+cu121", "N/A").replace("12.1\n", "N/A\n"))
        with pytest.raises(Unreadable):
            _ = host.torch

    def test_distributions_are_read_in_three_forms(self, read):
        assert read(PIP).python.packages["numpy"] == "2.1.0"
        assert read(CONDA).python.packages["cudnn"] == "8.9.2.26"
        assert read("numpy==2.1.0\ntorch==2.2.0\n").python.packages["torch"] == "2.2.0"

    def test_the_version_of_torch_tells_its_build_where_it_says_so(self, read):
        assert read(PIP).torch.is_cuda_build is False
        assert read("torch==2.4.0+cu124\n").torch.cuda == "12.4"
        assert read("torch==2.4.0\n").torch.is_cuda_build is None

    def test_dcgm_is_read_by_level(self, read):
        text = machines.hgx_h100()["dcgmi-diag"].text
        assert read(text).diag == machines.snapshot(machines.hgx_h100()).diag
        assert read(text.replace('"Deployment"', '"Stress"')).output("dcgmi-diag-3").status == "ok"

    def test_dcgm_health_names_what_is_wrong(self, read):
        (test,) = read(json.dumps(HEALTH)).read_health()
        assert (test.name, test.results[0].entity, test.results[0].status) == ("Memory system", 3, "Fail")
        assert test.results[0].warnings == ("An error was found",)

    def test_healthy_is_no_test_that_passed(self, read):
        assert read('{"body": {"Overall Health": {"value": "Healthy"}}}').read_health() == ()

    def test_several_listings_in_one_text_are_one_machine(self, read):
        host = read(f"{TABLE}\n{COLLECTED}")
        assert len(host.smi.gpus) == 2
        assert host.torch.cuda == "12.1"

    def test_secrets_are_taken_out(self, read):
        host = read(f"{DMESG}[ 9001.1] app: password=hunter22222\n")
        assert "hunter22222" not in host.text("kernel-log")


class TestJournal:
    KERNEL = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."

    def _entry(self, **fields: object) -> dict[str, object]:
        known = {"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1795262400000000", "_BOOT_ID": "b", "_HOSTNAME": "gpu009"}
        return known | {"__MONOTONIC_TIMESTAMP": "9000123456", "_TRANSPORT": "kernel", "MESSAGE": self.KERNEL} | fields

    def _json(self, *entries: dict[str, object]) -> str:
        return "".join(f"{json.dumps(entry)}\n" for entry in entries)

    def _export(self, entry: dict[str, object]) -> bytes:
        found = b""
        for name, value in entry.items():
            data = str(value).encode()
            if name == "MESSAGE" and b"\n" in data:
                found += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
            else:
                found += name.encode() + b"=" + data + b"\n"
        return found + b"\n"

    def test_json_is_a_kernel_log_with_the_kernels_time(self, read):
        host = read(self._json(self._entry()))
        (event,) = host.kernel_log.of("xid")
        assert (host.target, event.code, event.seconds) == ("gpu009", 79, pytest.approx(9000.123456))

    def test_a_message_in_bytes_is_text(self, read):
        host = read(self._json(self._entry(MESSAGE=list(self.KERNEL.encode()))))
        assert [event.code for event in host.kernel_log.of("xid")] == [79]

    def test_only_the_last_boot_counts(self, read):
        host = read(self._json(self._entry(), self._entry(_BOOT_ID="c", MESSAGE="Linux version 6.8.0")))
        assert host.kernel_log.of("xid") == ()

    def test_programs_do_not_speak_for_the_kernel(self, read):
        entry = self._entry(_TRANSPORT="stdout", SYSLOG_IDENTIFIER="app")
        host = read(self._json(self._entry(MESSAGE="NVRM: loading NVIDIA UNIX"), entry))
        assert host.kernel_log.of("xid") == ()
        assert "app: NVRM: Xid" in host.text("recorded-log")

    def test_export_is_read_with_fields_of_bytes(self, read):
        host = read(self._export(self._entry(MESSAGE=f"{self.KERNEL}\nsecond line")))
        assert [event.code for event in host.kernel_log.of("xid")] == [79]

    def test_a_length_that_lies_ends_the_reading(self, read):
        content = self._export(self._entry()) + b"MESSAGE\n" + (1 << 60).to_bytes(8, "little") + b"x"
        assert len(read(content).kernel_log.of("xid")) == 1


SOS = {
    "sosreport-gpu011/sos_commands/kernel/dmesg": DMESG,
    "sosreport-gpu011/sos_commands/kernel/lsmod": "Module     Size  Used by\nnvidia 9000000  2 nvidia_uvm\n",
    "sosreport-gpu011/sos_commands/host/hostname": "gpu011\n",
    "sosreport-gpu011/etc/os-release": 'NAME="Rocky Linux"\nID="rocky"\nVERSION_ID="9.4"\n',
    "sosreport-gpu011/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1\n",
    "sosreport-gpu011/sos_commands/pci/lspci_-nnvv": (
        "41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330]\n\tKernel driver in use: nvidia\n"
    ),
    "sosreport-gpu011/sos_commands/nvidia/nvidia-smi_-q": LISTING,
    "sosreport-gpu011/var/log/secure": "no concern of this program\n" * 100,
}


class TestArchives:
    @pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
    def test_a_sosreport_is_one_machine(self, tmp_path, mode):
        (host,) = read_recordings(pack(tmp_path / "s", SOS, mode))
        assert host.target == "gpu011"
        assert host.os_release.id == "rocky"
        assert [event.code for event in host.kernel_log.of("xid")] == [79]
        assert [module.name for module in host.modules] == ["nvidia"]
        assert host.smi.driver_version == "580.95.05"
        assert [device.vendor for device in host.pci] == ["10de"]

    def test_of_a_system_only_what_is_needed_is_opened(self, tmp_path):
        names = [member.name for member in read_members(pack(tmp_path / "s", SOS))]
        assert "sosreport-gpu011/var/log/secure" not in names
        assert "sosreport-gpu011/sos_commands/kernel/dmesg" in names

    def test_its_folder_is_read_too(self, tmp_path):
        for name, text in SOS.items():
            path = tmp_path / "s" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert [host.target for host in read_recordings(tmp_path / "s")] == ["gpu011"]

    def test_a_must_gather_holds_a_machine_for_each_bug_report(self, tmp_path):
        members = {
            f"must-gather/nvidia-bug-report_{name}.log.gz": gzip.compress(bug_report(host=name).encode())
            for name in ("gpu001", "gpu002")
        }
        members["must-gather/gpu_operator_pod.log"] = b"a line of a pod\n"
        hosts = read_recordings(pack(tmp_path / "m.tar.xz", members, "w:xz"))
        assert [host.target for host in hosts] == ["gpu001", "gpu002"]

    def test_files_beside_each_other_that_repeat_a_listing_are_several_machines(self, tmp_path):
        (tmp_path / "s").mkdir()
        for name in ("node1", "node2"):
            (tmp_path / "s" / f"{name}.txt").write_text(TABLE)
        assert [host.target for host in read_recordings(tmp_path / "s")] == ["node1", "node2"]

    def test_files_of_different_kinds_are_one_machine(self, tmp_path):
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "a").write_text(TABLE)
        (tmp_path / "s" / "b").write_text(DMESG)
        (host,) = read_recordings(tmp_path / "s")
        assert host.smi.gpus
        assert host.kernel_log.events

    def test_a_bundle_is_told_from_a_record(self, tmp_path):
        write_bundle(tmp_path / "b", [machines.snapshot(machines.hgx_h100())])
        assert is_bundle(tmp_path / "b")
        assert not is_bundle(pack(tmp_path / "s", SOS))

    def test_what_holds_files_is_told_by_what_it_is(self, tmp_path):
        (tmp_path / "log").write_bytes(gzip.compress(b"a log"))
        assert holds_files(pack(tmp_path / "a.log", SOS, "w:xz"))
        assert not holds_files(tmp_path / "log")
        assert holds_files(tmp_path)
        os.mkfifo(tmp_path / "pipe")
        assert not holds_files(tmp_path / "pipe")


def refusal(path: Path) -> str:
    """Return why nothing is read, in full."""
    with pytest.raises(UsageError) as caught:
        read_recordings(path)
    return " ".join((caught.value.message, *caught.value.because, *caught.value.hints))


class TestHostileInput:
    def test_a_bomb_is_refused_before_it_takes_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "_RATIO_FREE_BYTES", 1024 * 1024)
        assert "no archive of logs does" in refusal(pack(tmp_path / "b", {"a": b"\0" * (32 * 1024 * 1024)}))

    def test_a_bomb_of_one_text_is_cut(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "_RATIO_FREE_BYTES", 1024 * 1024)
        (tmp_path / "b").write_bytes(gzip.compress(b"\0" * (32 * 1024 * 1024)))
        assert "no archive of logs does" in refusal(tmp_path / "b")

    def test_names_that_leave_the_archive_write_nothing(self, tmp_path):
        (tmp_path / "in").mkdir()
        path = pack(tmp_path / "in" / "t", {"../../etc/os-release": "ID=evil\nNAME=evil\n", "/abs/dmesg": DMESG})
        read_recordings(path)
        assert sorted(item.name for item in tmp_path.rglob("*")) == ["in", "t"]

    def test_links_and_devices_are_passed_over(self, tmp_path):
        with tarfile.open(tmp_path / "t", "w") as file:
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
                entry = tarfile.TarInfo("dmesg")
                entry.type, entry.linkname = kind, "/etc/shadow"
                file.addfile(entry)
        assert "not a record of a machine" in refusal(tmp_path / "t")

    def test_a_link_in_a_folder_is_not_followed(self, tmp_path):
        (tmp_path / "f").mkdir()
        (tmp_path / "secret").write_text(DMESG)
        (tmp_path / "f" / "dmesg").symlink_to(tmp_path / "secret")
        assert "not a record of a machine" in refusal(tmp_path / "f")

    @pytest.mark.parametrize("packing", ["gzip", "xz", "bzip2"])
    def test_what_was_cut_off_is_told(self, tmp_path, packing):
        whole = PACKINGS[packing](os.urandom(4000) + bug_report().encode())
        (tmp_path / "x").write_bytes(whole[: len(whole) // 2])
        assert "cannot be read" in refusal(tmp_path / "x")

    def test_a_damaged_file_in_an_archive_does_not_hide_the_others(self, tmp_path):
        whole = gzip.compress(bug_report().encode())
        path = pack(tmp_path / "t", {"a.gz": whole[: len(whole) // 2], "b": TABLE})
        (host,) = read_recordings(path)
        assert host.smi.gpus

    @pytest.mark.parametrize(("content", "word"), [(b"\x28\xb5\x2f\xfdx", "zstd"), (b"PK\x03\x04x", "zip")])
    def test_other_packings_are_named(self, tmp_path, content, word):
        (tmp_path / "x").write_bytes(content)
        assert word in refusal(tmp_path / "x")

    def test_a_line_without_an_end_is_no_trap(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "MEMBER_BYTES_MAX", 1024 * 1024)
        (tmp_path / "x").write_bytes(b"[    1.000000] NVRM: " + b"x" * (8 * 1024 * 1024))
        (host,) = read_recordings(tmp_path / "x")
        with pytest.raises(Unreadable, match="more than is kept"):
            _ = host.kernel_log

    @pytest.mark.parametrize("content", [b"", b"\0\1\2" * 1000, b"hello\n", b"{", b"\xff" * 500])
    def test_rubbish_is_refused_with_what_is_read(self, tmp_path, content):
        (tmp_path / "x").write_bytes(content)
        assert "nvidia-bug-report" in refusal(tmp_path / "x")

    def test_what_is_no_file_is_refused(self, tmp_path):
        os.mkfifo(tmp_path / "x")
        assert "neither a file nor a folder" in refusal(tmp_path / "x")
        assert "No such file" in refusal(tmp_path / "y")
