"""The driver as the kernel sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse import driver

if TYPE_CHECKING:
    from collections.abc import Callable

OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  565.57.01  Release Build  (dvs-builder@x)  Thu Oct 10 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
MODULES = """\
nvidia_uvm 1740800 4 - Live 0x0000000000000000 (POE)
nvidia 56823808 42 nvidia_uvm,nvidia_modeset, Live 0xffffffffc1234000 (POE)
nouveau 2306048 0 - Loading 0x0000000000000000
nf_tables 372736 - - Live 0x0000000000000000
"""
LSMOD = """\
Module                  Size  Used by
nvidia_uvm           1740800  4
nvidia              56823808  42 nvidia_uvm,nvidia_modeset
"""
MODULE = """\
loaded_version=535.104.05
modinfo=found
disk_version=535.129.03
signer=
license=NVIDIA
path=/lib/modules/5.15.0-91-generic/updates/dkms/nvidia.ko
later=thing
"""
PARAMS = 'ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nRegistryDwords: "a=1;b=2"\nExcludedGpus: ""\n'
GPUS = """\
== 0000:18:00.0
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 18
GPU UUID: \t GPU-00000000-0000-0000-0000-000000000001
Bus Location: \t 0000:18:00.0
Device Minor: \t 0
GPU Firmware: \t 535.104.05
GPU Excluded:\t No
== 0000:2A:00.0
Model: \t\t Tesla P100-PCIE-16GB
Device Minor: \t 1
GPU Firmware: \t N/A
"""
SAMPLES: dict[Callable[[str], object], str] = {
    driver.parse_loaded_driver: OPEN,
    driver.parse_modules: MODULES,
    driver.parse_nvidia_module: MODULE,
    driver.parse_driver_params: PARAMS,
    driver.parse_gpu_information: GPUS,
}


@pytest.mark.parametrize(
    ("name", "version", "is_open", "compiler"),
    [
        ("open-570.195.03", "570.195.03", True, "gcc version 12.3.0"),
        ("open-580.142", "580.142", True, "gcc version 13.3.0"),
        ("proprietary-440.95.01", "440.95.01", False, "gcc version 7.5.0"),
        ("proprietary-515.76", "515.76", False, "gcc version 7.5.0"),
    ],
)
def test_recorded_drivers(samples: Path, name: str, version: str, is_open: bool, compiler: str) -> None:
    found = driver.parse_loaded_driver((samples / "proc" / f"nvidia-version-{name}.txt").read_text())

    assert (found.version, found.is_open) == (version, is_open)
    assert found.compiler is not None
    assert found.compiler.startswith(compiler)


def test_open_modules_of_another_machine() -> None:
    found = driver.parse_loaded_driver(OPEN)

    assert (found.version, found.is_open) == ("565.57.01", True)


def test_modules() -> None:
    found = {module.name: module for module in driver.parse_modules(MODULES)}

    assert found["nvidia"] == driver.KernelModule(
        name="nvidia", size=56823808, users=42, used_by=("nvidia_uvm", "nvidia_modeset")
    )
    assert (found["nvidia_uvm"].used_by, found["nvidia_uvm"].state) == ((), "Live")
    assert found["nouveau"].state == "Loading"
    assert found["nf_tables"].users == 0


def test_lsmod_says_the_same() -> None:
    assert driver.parse_modules(LSMOD) == driver.parse_modules(MODULES)[:2]


def test_module_on_disk_and_in_memory() -> None:
    assert driver.parse_nvidia_module(MODULE) == driver.NvidiaModule(
        loaded_version="535.104.05",
        disk_version="535.129.03",
        signer="",
        license="NVIDIA",
        path="/lib/modules/5.15.0-91-generic/updates/dkms/nvidia.ko",
        is_on_disk=True,
    )


@pytest.mark.parametrize(
    ("text", "is_on_disk"),
    [
        ("modinfo=none\n", False),
        ("loaded_version=535.104.05\nmodinfo=absent\n", None),
        ("loaded_version=535.104.05\n", None),
        ("disk_version=535.104.05\n", True),
    ],
    ids=["none", "no-modinfo", "untold", "version-tells"],
)
def test_whether_a_module_is_on_disk(text: str, is_on_disk: bool | None) -> None:
    found = driver.parse_nvidia_module(text)

    assert found.is_on_disk is is_on_disk
    assert found.signer is None


def test_parameters() -> None:
    assert driver.parse_driver_params(PARAMS) == {
        "ResmanDebugLevel": "4294967295",
        "RmProfilingAdminOnly": "1",
        "RegistryDwords": "a=1;b=2",
        "ExcludedGpus": "",
    }


def test_gpus_of_the_kernel_module() -> None:
    assert driver.parse_gpu_information(GPUS) == (
        driver.ProcGpu(
            pci="0000:18:00.0", model="NVIDIA H100 80GB HBM3", minor=0, firmware="535.104.05", is_excluded=False
        ),
        driver.ProcGpu(pci="0000:2a:00.0", model="Tesla P100-PCIE-16GB", minor=1),
    )
    assert driver.parse_gpu_information("") == ()


REFUSED = [
    (driver.parse_loaded_driver, "", "names no version"),
    (driver.parse_loaded_driver, "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n", "names no version"),
    (driver.parse_loaded_driver, "GCC version:  gcc version 12.3.0\n", "names no version"),
    (driver.parse_modules, "", "lists no module"),
    (driver.parse_modules, LSMOD.splitlines()[0], "lists no module"),
    (driver.parse_modules, "cat: /proc/modules: No such file or directory\n", "not a module"),
    (driver.parse_modules, "nvidia 56823808 42 - Asleep 0x0\n", "state that is not known"),
    (driver.parse_modules, "nvidia big 42 - Live 0x0\n", "not a whole number"),
    (driver.parse_nvidia_module, "", "nothing that is known"),
    (driver.parse_nvidia_module, "modinfo=perhaps\n", "not known"),
    (driver.parse_nvidia_module, "modinfo: ERROR: Module nvidia not found.\n", "another form"),
    (driver.parse_driver_params, "", "is empty"),
    (driver.parse_driver_params, "no colon\n", "another form"),
    (driver.parse_gpu_information, "Model: x\n", "something else than a heading"),
    (driver.parse_gpu_information, "== gpu0\n", "no PCI address"),
    (driver.parse_gpu_information, "== 0000:18:00.0\ncat: No such device\nx\n", "another form"),
    (driver.parse_gpu_information, "== 0000:18:00.0\nDevice Minor: one\n", "not a whole number"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize("parse", SAMPLES, ids=lambda parse: parse.__name__)
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(parse: Callable[[str], object], data: st.DataObject) -> None:
    text = SAMPLES[parse]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from("\x1b[\0\n\t =:,"), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())
    expected = machines.EXPECTED[name]
    if not expected.gpus or host.virtualization.kind == "wsl":
        assert not host.has("driver-version")
        assert "nvidia" not in {module.name for module in host.modules}
        return

    assert "nvidia" in {module.name for module in host.modules}
    assert len(host.driver_gpus) == expected.gpus
    assert [gpu.minor for gpu in host.driver_gpus] == list(range(expected.gpus))
    assert host.driver_params["ModifyDeviceFiles"] == "1"
    if expected.driver:
        assert host.driver.version == expected.driver
    if host.has("module-nvidia"):
        assert host.nvidia_module.loaded_version == host.nvidia_module.disk_version == host.driver.version
        assert host.nvidia_module.is_on_disk
        assert host.firmware == (host.driver.version,)
