"""PCI devices from sysfs and from lspci."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from provision.probe.output import Unreadable
from provision.probe.parse.pci import parse_lspci, parse_pci_sysfs


def test_a_board_is_seen_whole() -> None:
    devices = parse_pci_sysfs(machines.hgx_h100()["pci"].text)
    gpus = [device for device in devices if device.is_nvidia_gpu]
    assert [gpu.address for gpu in gpus][:4] == ["0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0"]
    assert {(gpu.device, gpu.driver, gpu.width, gpu.width_max, gpu.speed_gt_s) for gpu in gpus} == {
        ("2330", "nvidia", 16, 16, 32.0)
    }
    assert [gpu.numa_node for gpu in gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert gpus[0].d3cold_allowed is True
    assert gpus[0].is_virtual_function is False
    assert sum(device.is_nvswitch for device in devices) == 4
    assert sum(device.vendor == "15b3" for device in devices) == 8
    assert sum(device.class_code == "0604" for device in devices) == 24


def test_what_a_virtual_machine_hides_is_not_known() -> None:
    line = (
        "address=0000:00:1e.0\tclass=030200\tvendor=10de\tdevice=2237\twidth=0\twidth_max=255\tspeed=Unknown\tnuma=-1\n"
    )
    (gpu,) = parse_pci_sysfs(line)
    assert gpu.is_nvidia_gpu
    assert (gpu.width, gpu.width_max, gpu.speed_gt_s, gpu.numa_node, gpu.driver, gpu.revision) == (None,) * 6
    assert (gpu.is_virtual_function, gpu.d3cold_allowed, gpu.power_state) == (None, None, None)


def test_a_gpu_off_the_bus_keeps_its_line() -> None:
    outputs = machines.change(machines.hgx_h100(), "pci", "device=2330\trevision=a1", "device=2330\trevision=ff", 1)
    assert parse_pci_sysfs(outputs["pci"].text)[3].revision == "ff"
    gone = "address=0000:18:00.0\tclass=ffffff\tvendor=ffff\tdevice=ffff\trevision=ff\twidth=63\tpower_state=error\n"
    (device,) = parse_pci_sysfs(gone)
    assert (device.class_code, device.vendor, device.width, device.power_state) == ("ffff", "ffff", None, "error")


def test_keys_nobody_knows_are_passed_over() -> None:
    line = "address=0000:18:00.0\tclass=0x030200\tvendor=0x10de\tdevice=0x2330\tcolour=green\tspeed=8 GT/s\n"
    (device,) = parse_pci_sysfs(line)
    assert (device.class_code, device.vendor, device.speed_gt_s) == ("0302", "10de", 8.0)


def test_no_bus_gives_no_devices() -> None:
    assert parse_pci_sysfs("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "ls: cannot access '/sys/bus/pci/devices'\n",
        "address=0000:18:00.0\tclass=030200\tvendor=10de\n",
        "address=here\tclass=030200\tvendor=10de\tdevice=2330\n",
        "class=030200\tvendor=10de\tdevice=2330\n",
        "address=0000:18:00.0\tclass=030200\tvendor=10de\tdevice=2330\twidth\n",
    ],
    ids=["words", "no-device", "no-address", "address-missing", "cut"],
)
def test_another_form_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="the list of PCI devices"):
        parse_pci_sysfs(text)


def test_lspci_tells_what_sysfs_does_not() -> None:
    devices = {device.address: device for device in parse_lspci(machines.hgx_h100()["lspci"].text)}
    gpu, bridge = devices["0000:18:00.0"], devices["0000:17:00.0"]
    assert gpu.is_nvidia_gpu
    assert gpu.bar_sizes == ("16M", "128G", "32M")
    assert gpu.is_acs_redirecting is None
    assert (gpu.width, gpu.speed_gt_s, gpu.driver, gpu.numa_node) == (16, 32.0, "nvidia", 0)
    assert bridge.is_acs_redirecting is False
    assert devices["0000:83:00.0"].is_nvswitch
    changed = machines.change(machines.hgx_h100(), "lspci", "ACSCtl:\tSrcValid-", "ACSCtl:\tSrcValid+", 1)
    assert [device.is_acs_redirecting for device in parse_lspci(changed["lspci"].text)][:2] == [True, False]


def test_lspci_and_sysfs_agree() -> None:
    for machine in ("hgx_a100", "cloud_a10g", "workstation_rtx4090"):
        outputs = machines.MACHINES[machine]()
        for a, b in zip(parse_pci_sysfs(outputs["pci"].text), parse_lspci(outputs["lspci"].text), strict=True):
            for name in ("address", "class_code", "vendor", "device", "revision", "driver", "width", "width_max"):
                assert getattr(a, name) == getattr(b, name), (machine, a.address, name)
            assert (a.speed_gt_s, a.speed_max_gt_s, a.numa_node) == (b.speed_gt_s, b.speed_max_gt_s, b.numa_node)


def test_unassigned_regions_have_no_size() -> None:
    text = (
        "0000:18:00.0 3D controller [0302]: NVIDIA Corporation H100 [10de:2330] (rev a1)\n"
        "\tRegion 0: Memory at d9000000 (32-bit, non-prefetchable) [size=16M]\n"
        "\tRegion 1: Memory at <unassigned> (64-bit, prefetchable) [size=128G]\n"
        "\tRegion 5: I/O ports at 7000 [size=128]\n"
        "\tCapabilities: [100] Single Root I/O Virtualization (SR-IOV)\n"
        "\t\tRegion 0: Memory at 96200000 (32-bit, non-prefetchable) [size=4M]\n"
    )
    assert parse_lspci(text)[0].bar_sizes == ("16M", "0")


def test_lspci_of_a_gpu_off_the_bus_shows_it() -> None:
    text = (
        "3b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b2] (rev ff) (prog-if ff)\n"
        "\t!!! Unknown header type 7f\n"
        "\tKernel driver in use: nvidia\n"
    )
    (device,) = parse_lspci(text)
    assert (device.address, device.revision, device.driver) == ("0000:3b:00.0", "ff", "nvidia")
    assert device.name == "NVIDIA Corporation GA100"


def test_a_real_short_listing_reads_right(samples: Path) -> None:
    devices = parse_lspci((samples / "lspci" / "gpud-lspci-nn-a10.txt").read_text(encoding="utf-8"))
    assert len(devices) == 20
    (gpu,) = [device for device in devices if device.is_nvidia_gpu]
    assert (gpu.address, gpu.device, gpu.revision, gpu.name) == (
        "0000:06:00.0",
        "2236",
        "a1",
        "NVIDIA Corporation GA102GL [A10]",
    )
    assert [device.address for device in devices if device.is_virtual_function] == ["0000:05:00.0"]
    assert not any(device.is_nvswitch for device in devices)


def test_a_real_long_listing_without_numbers_reads_right(samples: Path) -> None:
    devices = parse_lspci((samples / "lspci" / "gpud-lspci-vvv-h100-excerpt.txt").read_text(encoding="utf-8"))
    assert [device.address for device in devices] == [
        f"0000:{slot}"
        for slot in ("00:0c.0", "00:0e.0", "15:01.0", "17:00.0", "19:00.0", "3b:00.0", "83:00.0", "1a:00.0")
    ]
    assert [device.is_acs_redirecting for device in devices] == [True, True, False, False, None, None, None, None]
    gpu, switch, card = devices[4], devices[6], devices[7]
    assert gpu.is_nvidia_gpu
    assert (gpu.device, gpu.bar_sizes, gpu.width, gpu.speed_gt_s) == ("2330", ("16M", "128G", "32M"), 16, 32.0)
    assert switch.is_nvswitch
    assert (switch.device, switch.driver, switch.numa_node) == ("22a3", "nvidia-nvswitch", 1)
    assert (card.vendor, card.driver) == ("15b3", "mlx5_core")
    assert (devices[3].speed_gt_s, devices[3].speed_max_gt_s, devices[3].width) == (16.0, 32.0, 4)


@pytest.mark.parametrize("text", ["", "pcilib: Cannot open /proc/bus/pci\n", "\tRegion 0: Memory at 0 [size=16M]\n"])
def test_a_listing_without_a_device_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="lspci lists no device"):
        parse_lspci(text)
