"""Stand-in machines: what the collector would bring from hosts that cannot be had where the tests run.

None of this was recorded. Every text is generated from a short description of a machine, in the form the tools print,
with invented serial numbers, addresses and readings. A test takes a healthy machine and breaks one thing in it::

    outputs = machines.change(machines.hgx_h100(), "driver-version", "580.105.08", "580.95.05")
    host = machines.snapshot(outputs)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as _with

from provision.probe.catalogue import PROBES
from provision.probe.output import ABSENT, DENIED, FAILED, NOT_RUN, OK, Output
from provision.probe.snapshot import Snapshot
from provision.records import replace
from provision.signals.expectation import Expectation

__all__ = [
    "EXPECTED",
    "MACHINES",
    "absent",
    "change",
    "cloud_a10g",
    "cpu_only",
    "fail",
    "gb10",
    "gpu_container",
    "hgx_a100",
    "hgx_b200",
    "hgx_h100",
    "hgx_h100_without_root",
    "kernel_line",
    "l40s_pcie",
    "mixed_gpus",
    "old_p100",
    "replace_output",
    "rocky_h100",
    "snapshot",
    "workstation_rtx4090",
    "wsl2",
    "xml_gpu",
]

EPOCH_SECONDS = 1795262400
"""The moment at which every stand-in was looked at: 2026-11-21 12:00 UTC."""

Outputs = dict[str, Output]


# What a test does to a machine


def snapshot(outputs: Mapping[str, Output], target: str = "gpu001") -> Snapshot:
    """Return a machine as verify and doctor take it."""
    return Snapshot(target, outputs, collected="2026-11-21T12:00:00+00:00")


def change(outputs: Mapping[str, Output], probe: str, old: str, new: str, count: int = -1) -> Outputs:
    """Return a machine on which one text of a probe is another; a text that is not there is a mistake of the test."""
    text = outputs[probe].text
    assert old in text, f"`{old}` is not in what {probe} printed"
    return {**outputs, probe: replace(outputs[probe], text=text.replace(old, new, count))}


def replace_output(outputs: Mapping[str, Output], probe: str, **fields: object) -> Outputs:
    """Return a machine on which fields of a probe's output are others."""
    return {**outputs, probe: replace(outputs.get(probe, Output(probe=probe, status=OK)), **fields)}


def fail(
    outputs: Mapping[str, Output], probe: str, code: int = 1, error: str = "", text: str = "", status: str = FAILED
) -> Outputs:
    """Return a machine on which a probe did not end well."""
    ended = code if status == FAILED else None
    return {**outputs, probe: Output(probe=probe, status=status, code=ended, text=text, error=error)}


def absent(outputs: Mapping[str, Output], *probes: str) -> Outputs:
    """Return a machine without the tools or files of some probes."""
    return {**outputs, **{probe: Output(probe=probe, status=ABSENT) for probe in probes}}


def xml_gpu(outputs: Mapping[str, Output], index: int, old: str, new: str) -> Outputs:
    """Return a machine on which nvidia-smi says something else of one GPU, counted from 0."""
    text = outputs["nvidia-smi-xml"].text
    starts = [match.start() for match in re.finditer(r"<gpu id=", text)]
    assert index < len(starts), f"there are {len(starts)} GPUs"
    start, end = starts[index], [*starts, len(text)][index + 1]
    block = text[start:end]
    assert old in block, f"`{old}` is not said of GPU {index}"
    changed = text[:start] + block.replace(old, new) + text[end:]
    return {**outputs, "nvidia-smi-xml": replace(outputs["nvidia-smi-xml"], text=changed)}


def kernel_line(outputs: Mapping[str, Output], line: str) -> Outputs:
    """Return a machine whose kernel said one thing more; a line without a time gets one an hour after boot."""
    stamped = line if line.startswith("[") else f"[ 3600.000000] {line}"
    text = outputs["kernel-log"].text
    return {**outputs, "kernel-log": replace(outputs["kernel-log"], text=f"{text}{stamped}\n")}


# What a machine is made of


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A model of GPU."""

    name: str
    brand: str = "NVIDIA"
    architecture: str
    device: str
    class_code: str = "0302"
    vbios: str
    memory_mib: int
    bar1_mib: int
    bars: tuple[str, ...]
    power_w: int
    power_max_w: int | None = None
    sm_mhz: int
    capability: str
    generation: int
    links: int = 0
    link_gb_s: str = ""
    has_ecc: bool = True
    has_mig: bool = False
    has_remapping: bool = False
    has_retirement: bool = False
    has_margin: bool = False
    has_own_memory: bool = True
    slowdown_c: int = 0
    operating_c: int = 0
    bf16_tflops: float = 0.0
    copy_gb_s: float = 0.0
    idle_w: str = "69.85"


_H100 = _Model(
    name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    device="2330",
    vbios="96.00.A5.00.01",
    memory_mib=81559,
    bar1_mib=131072,
    bars=("16M", "128G", "32M"),
    power_w=700,
    sm_mhz=1980,
    capability="9.0",
    generation=5,
    links=18,
    link_gb_s="26.562",
    has_mig=True,
    has_remapping=True,
    has_margin=True,
    bf16_tflops=868.4,
    copy_gb_s=55.3,
)
_B200 = _Model(
    name="NVIDIA B200",
    architecture="Blackwell",
    device="2901",
    vbios="97.00.9A.00.0F",
    memory_mib=183359,
    bar1_mib=262144,
    bars=("64M", "256G", "32M"),
    power_w=1000,
    sm_mhz=1965,
    capability="10.0",
    generation=5,
    links=18,
    link_gb_s="53.125",
    has_mig=True,
    has_remapping=True,
    has_margin=True,
    bf16_tflops=1586.2,
    copy_gb_s=55.8,
    idle_w="142.31",
)
_GB10 = _Model(
    name="NVIDIA GB10",
    architecture="Blackwell",
    device="2e12",
    vbios="9A.0B.1A.00.05",
    memory_mib=0,
    bar1_mib=0,
    bars=("64M",),
    power_w=0,
    sm_mhz=3003,
    capability="12.1",
    generation=5,
    has_ecc=False,
    has_own_memory=False,
    slowdown_c=96,
    operating_c=90,
    bf16_tflops=92.7,
    copy_gb_s=58.4,
    idle_w="4.53",
)
_A100 = _Model(
    name="NVIDIA A100-SXM4-80GB",
    architecture="Ampere",
    device="20b2",
    vbios="92.00.45.00.05",
    memory_mib=81920,
    bar1_mib=131072,
    bars=("16M", "128G", "32M"),
    power_w=400,
    sm_mhz=1410,
    capability="8.0",
    generation=4,
    links=12,
    link_gb_s="25",
    has_mig=True,
    has_remapping=True,
    slowdown_c=89,
    operating_c=85,
    bf16_tflops=279.6,
    copy_gb_s=25.4,
)
_A10G = _Model(
    name="NVIDIA A10G",
    architecture="Ampere",
    device="2237",
    vbios="94.02.75.00.01",
    memory_mib=23028,
    bar1_mib=32768,
    bars=("16M", "32G", "32M"),
    power_w=300,
    sm_mhz=1710,
    capability="8.6",
    generation=4,
    has_remapping=True,
    slowdown_c=95,
    operating_c=88,
    bf16_tflops=66.1,
    copy_gb_s=12.6,
    idle_w="25.58",
)
_RTX_4090 = _Model(
    name="NVIDIA GeForce RTX 4090",
    brand="GeForce",
    architecture="Ada Lovelace",
    device="2684",
    class_code="0300",
    vbios="95.02.3C.40.B8",
    memory_mib=24564,
    bar1_mib=32768,
    bars=("16M", "32G", "32M"),
    power_w=450,
    power_max_w=600,
    sm_mhz=3120,
    capability="8.9",
    generation=4,
    has_ecc=False,
    slowdown_c=95,
    operating_c=90,
    bf16_tflops=161.5,
    copy_gb_s=25.1,
    idle_w="21.40",
)
_L40S = _Model(
    name="NVIDIA L40S",
    architecture="Ada Lovelace",
    device="26b9",
    vbios="95.02.66.00.02",
    memory_mib=46068,
    bar1_mib=65536,
    bars=("16M", "64G", "32M"),
    power_w=350,
    sm_mhz=2520,
    capability="8.9",
    generation=4,
    has_remapping=True,
    has_margin=True,
    bf16_tflops=318.2,
    copy_gb_s=25.7,
    idle_w="34.12",
)
_P100 = _Model(
    name="Tesla P100-PCIE-16GB",
    brand="Tesla",
    architecture="Pascal",
    device="15f8",
    vbios="86.00.52.00.02",
    memory_mib=16280,
    bar1_mib=16384,
    bars=("16M", "16G", "32M"),
    power_w=250,
    sm_mhz=1328,
    capability="6.0",
    generation=3,
    has_retirement=True,
    slowdown_c=82,
    operating_c=0,
    bf16_tflops=9.1,
    copy_gb_s=11.9,
    idle_w="26.13",
)


@dataclass(frozen=True, kw_only=True)
class _Host:
    """A machine, as far as its probes differ from another's."""

    name: str
    os: tuple[str, str, str]
    """Id, version and name of the operating system."""
    kernel: str
    older_kernel: str = ""
    model: _Model | None = None
    others: Mapping[int, _Model] = field(default_factory=dict)
    """Models of GPUs that are not like the rest, by number."""
    machine: str = "x86_64"
    gpus: tuple[str, ...] = ()
    """Addresses of the GPUs in sysfs' spelling."""
    numa: tuple[int, ...] = ()
    driver: str = ""
    cuda_of_driver: str = ""
    is_open: bool = True
    virtualization: str = "none"
    vendor: str = "Supermicro"
    product: str = "SYS-821GE-TNHR"
    switches: tuple[str, ...] = ()
    bridges: tuple[str, ...] = ()
    """Network adapters on the GPU board that manage its switches, which do not show themselves."""
    nics: tuple[str, ...] = ()
    width: int = 16
    width_max: int = 16
    speed: str = ""
    """Rate of the GPUs' links as sysfs spells it, when it is not the highest."""
    smi_generation: int = 0
    """Link generation that nvidia-smi prints, when it is not the highest."""
    has_persistence: bool = True
    has_docker: bool = True
    has_dcgm: bool = True
    has_toolkit: bool = True
    is_server: bool = True
    torch: str = ""
    cuda: str = ""
    cuda_full: str = ""
    cudnn: str = ""
    cudnn_package: str = ""
    nccl: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    busbw_gb_s: float = 0.0
    p2p_gb_s: float = 0.0

    @property
    def count(self) -> int:
        return len(self.gpus)

    @property
    def generation(self) -> int:
        return self.smi_generation or (self.model.generation if self.model else 0)

    def uuid(self, index: int) -> str:
        return f"GPU-{self.name[-4:].encode().hex()}-{index:04d}-4a6e-8b1d-{0x5E1F00000000 + index * 4097:012x}"

    def device(self, index: int) -> _Model:
        assert self.model is not None
        return self.others.get(index, self.model)

    @property
    def has_fabric(self) -> bool:
        return bool(self.switches or self.bridges)

    @property
    def has_rpm(self) -> bool:
        return self.os[0] == "rocky"


_SPEEDS = {1: "2.5 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def _bus(address: str) -> int:
    return int(address.split(":")[1], 16)


def _shift(address: str, buses: int, slot: str = "00.0") -> str:
    domain, _, _ = address.split(":")
    return f"{domain}:{_bus(address) + buses:02x}:{slot}"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


# The operating system


def _system(host: _Host) -> dict[str, str]:
    release_id, version, name = host.os
    return {
        "os-release": _lines(
            f'PRETTY_NAME="{name}"',
            f'NAME="{name.split()[0]}"',
            f'VERSION_ID="{version}"',
            f"ID={release_id}",
            *(("ID_LIKE=debian",) if release_id == "ubuntu" else ()),
            *(('ID_LIKE="rhel centos fedora"',) if host.has_rpm else ()),
        ),
        "uname": f"Linux {host.kernel} {host.machine}\n",
        "command-line": f"BOOT_IMAGE=/boot/vmlinuz-{host.kernel} root=/dev/mapper/root ro quiet iommu=pt\n",
        "virtualization": _lines(
            f"kind={host.virtualization}",
            f"container={'yes' if host.virtualization == 'docker' else 'no'}",
            *((f"vendor={host.vendor}", f"product={host.product}") if host.vendor else ()),
        ),
        "limits": _lines("memlock_kib unlimited", "nofile 1048576", "shm_kib 1056558960"),
        "file-systems": _lines(
            "Filesystem     1024-blocks      Used  Available Capacity Mounted on",
            "/dev/nvme0n1p2   959786032 211408220  699549068      24% /",
            "tmpfs           1056558960         0 1056558960       0% /dev/shm",
            "/dev/nvme1n1    7501476528 902144000 6599332528      13% /data",
        ),
        "environment": _lines("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        "kernels": _lines(*filter(None, (host.older_kernel, host.kernel))),
        "secure-boot": "SecureBoot disabled\n",
        "reboot-required": "no\n",
        "clock": _lines(
            "NTP=yes",
            "NTPSynchronized=yes",
            "chrony_leap=Normal",
            "chrony_offset_seconds=0.000021125",
            f"epoch={EPOCH_SECONDS}.250000000",
        ),
        "interfaces": _lines(
            "lo mtu 65536",
            "lo operstate unknown",
            "lo kind loopback",
            "lo address 127.0.0.1/8",
            "eth0 mtu 9000",
            "eth0 operstate up",
            "eth0 speed 100000",
            "eth0 address 10.20.0.11/24",
            "eth0 kind physical",
            *(("docker0 mtu 1500", "docker0 operstate down", "docker0 address 172.17.0.1/16", "docker0 kind bridge"))
            * host.has_docker,
        ),
        "firewall": _lines(
            "== nft",
            "table inet filter {",
            "\tchain input {",
            "\t\ttype filter hook input priority filter; policy drop;",
            "\t\tct state established,related accept",
            '\t\tiif "lo" accept',
            "\t\ttcp dport 22 accept",
            "\t\tip saddr 10.20.0.0/24 accept",
            "\t}",
            "}",
            "== local-ports",
            "32768\t60999",
        ),
        "initramfs": "" if host.is_server else f"{host.driver}\n",
        "infiniband": _infiniband(host),
        "kernel-log": _kernel_log(host),
        "pci": _pci(host),
        "lspci": _lspci(host),
        "modules": _modules(host),
        "units": _units(host),
        "packages": _packages(host),
        "holds": _holds(host),
        "device-users": "",
        "device-nodes": "",
        "driver-firmware": f"{host.driver}\n" if host.driver else "",
        "libraries": _libraries(host),
    }


def _modules(host: _Host) -> str:
    rows = ["overlay 212992 0 - Live 0x0000000000000000"]
    if host.driver:
        shown = "nvidia_drm " if host.is_server else "nvidia_drm,Xorg "
        rows += [
            "nvidia_uvm 1740800 4 - Live 0x0000000000000000 (OE)",
            "nvidia_drm 122880 0 - Live 0x0000000000000000 (OE)",
            "nvidia_modeset 1716224 1 nvidia_drm, Live 0x0000000000000000 (OE)",
            f"nvidia 104165376 {30 + host.count} nvidia_uvm,{shown.split(',')[0].strip()},nvidia_modeset, "
            "Live 0x0000000000000000 (OE)",
        ]
    if host.nics:
        rows += [
            "nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)",
            "mlx5_ib 507904 0 - Live 0x0000000000000000",
            "ib_uverbs 200704 2 nvidia_peermem,mlx5_ib, Live 0x0000000000000000",
            "ib_core 512000 2 mlx5_ib,ib_uverbs, Live 0x0000000000000000",
            "mlx5_core 2277376 1 mlx5_ib, Live 0x0000000000000000",
        ]
    return _lines(*rows)


def _kernel_log(host: _Host) -> str:
    build = "gcc (GCC) 11.5.0" if host.has_rpm else "gcc (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0"
    rows = [
        f"[    0.000000] Linux version {host.kernel} (buildd@lcy02) ({build}) #1 SMP",
        f"[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-{host.kernel} root=/dev/mapper/root ro quiet iommu=pt",
        "[    1.204511] pci_bus 0000:00: root bus resource [mem 0x90000000-0xfbffffff window]",
        "[    6.771023] EXT4-fs (dm-0): mounted filesystem with ordered data mode.",
    ]
    if host.driver:
        flavour = f"Open Kernel Module for {host.machine}" if host.is_open else f"{host.machine} Kernel Module"
        rows += [
            "[   12.000411] nvidia: loading out-of-tree module taints kernel.",
            f"[   12.345678] NVRM: loading NVIDIA UNIX {flavour}  {host.driver}  Release Build  (builder@host)",
            "[   12.900000] nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms",
            "[   13.120000] [drm] [nvidia-drm] [GPU ID 0x00001800] Loading driver",
            "[   14.000000] nvidia-uvm: Loaded the UVM driver, major device number 508.",
        ]
    rows += [
        f"[   {15 + place}.500000] mlx5_core {nic}: firmware version: 28.42.1000" for place, nic in enumerate(host.nics)
    ]
    return _lines(*rows)


def _units(host: _Host) -> str:
    def unit(name: str, *, is_there: bool = True, is_active: bool = True, enabled: str = "enabled") -> str:
        state = ("active", "running") if is_there and is_active else ("inactive", "dead")
        return _lines(
            f"Id={name}.service",
            f"LoadState={'loaded' if is_there else 'not-found'}",
            f"ActiveState={state[0]}",
            f"SubState={state[1]}",
            f"UnitFileState={enabled if is_there else ''}",
            "Result=success",
            "NRestarts=0",
        )

    return "\n".join(
        (
            unit("nvidia-persistenced", is_there=bool(host.driver), is_active=host.has_persistence),
            unit("nvidia-fabricmanager", is_there=host.has_fabric),
            unit("nvidia-imex", is_there=False),
            unit("nvidia-dcgm", is_there=host.has_dcgm and bool(host.driver)),
            unit("dcgm-exporter", is_there=host.has_dcgm and bool(host.driver)),
            unit("nvidia-cdi-refresh", is_there=host.has_docker and bool(host.driver)),
            unit("docker", is_there=host.has_docker),
            unit("containerd", is_there=host.has_docker),
            unit("node_exporter", is_there=host.has_dcgm),
            unit("chronyd" if host.has_rpm else "chrony"),
        )
    )


def _rpm_packages(host: _Host) -> str:
    kernels = [kernel.removesuffix(f".{host.machine}") for kernel in filter(None, (host.older_kernel, host.kernel))]
    rows = [(name, kernel, host.machine) for kernel in kernels for name in ("kernel", "kernel-core", "kernel-devel")]
    driver = f"{host.driver}-1.el9"
    rows += [
        ("cuda-drivers", driver, "noarch"),
        ("kmod-nvidia-open-dkms", driver, "noarch"),
        ("nvidia-driver", driver, host.machine),
        ("nvidia-driver-cuda", driver, host.machine),
        ("nvidia-driver-cuda-libs", driver, host.machine),
        ("nvidia-fabric-manager", f"{host.driver}-1", host.machine),
        (f"cuda-toolkit-{host.cuda.replace('.', '-')}", f"{host.cuda}.1-1", host.machine),
        ("docker-ce", "28.5.1-1.el9", host.machine),
        ("containerd.io", "1.7.28-1.el9", host.machine),
        ("nvidia-container-toolkit", "1.18.1-1", host.machine),
        ("nvidia-container-toolkit-base", "1.18.1-1", host.machine),
        ("libnvidia-container1", "1.18.1-1", host.machine),
        ("datacenter-gpu-manager-4-core", "4.4.2-1", host.machine),
    ]
    return _lines(*("\t".join((*row, "installed")) for row in rows))


def _packages(host: _Host) -> str:
    if host.has_rpm:
        return _rpm_packages(host)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[host.machine]
    rows: list[tuple[str, str, str]] = [
        (f"linux-image-{kernel}", f"{kernel.split('-')[0]}-87.88", machine)
        for kernel in filter(None, (host.older_kernel, host.kernel))
    ]
    rows += [(f"linux-headers-{host.kernel}", f"{host.kernel.split('-')[0]}-87.88", machine)]
    branch = host.driver.split(".")[0]
    if host.driver:
        flavour = f"{branch}{'-server' if host.is_server else ''}{'-open' if host.is_open else ''}"
        plain = f"{branch}{'-server' if host.is_server else ''}"
        version = f"{host.driver}-0ubuntu1"
        rows += [
            (f"nvidia-driver-{flavour}", version, machine),
            (f"nvidia-dkms-{flavour}", version, machine),
            (f"libnvidia-compute-{plain}", version, machine),
            (f"nvidia-utils-{plain}", version, machine),
        ]
    if host.bridges:
        rows += [("nvlsm", "2025.06.11-1", machine)]
    if host.has_fabric:
        rows += [(f"nvidia-fabricmanager-{branch}", f"{host.driver}-0ubuntu1", machine)]
    if host.has_toolkit and host.cuda:
        rows += [(f"cuda-toolkit-{host.cuda.replace('.', '-')}", f"{host.cuda}.1-1", machine)]
    if host.has_docker:
        rows += [
            ("docker-ce", "5:28.5.1-1~ubuntu.22.04~jammy", machine),
            ("containerd.io", "1.7.28-1~ubuntu.22.04~jammy", machine),
        ]
        if host.driver:
            rows += [
                ("nvidia-container-toolkit", "1.18.1-1", machine),
                ("nvidia-container-toolkit-base", "1.18.1-1", machine),
                ("libnvidia-container1", "1.18.1-1", machine),
                ("libnvidia-container-tools", "1.18.1-1", machine),
            ]
    if host.has_dcgm and host.driver:
        rows += [("datacenter-gpu-manager-4-core", "1:4.4.2-1", machine)]
    return _lines(*("\t".join((*row, "installed")) for row in rows))


def _holds(host: _Host) -> str:
    if host.has_rpm:
        return "unattended no\n"
    held = [
        row.split("\t")[0]
        for row in _packages(host).splitlines()
        if row.startswith(
            ("nvidia-driver", "nvidia-dkms", "libnvidia-compute", "nvidia-utils", "nvidia-fabric", "linux-")
        )
    ]
    return _lines(*(f"held {name}" for name in held), *(("excluded ^nvidia-", "excluded ^linux-")), "unattended yes")


def _libraries(host: _Host) -> str:
    if not host.driver:
        return ""
    system = "/usr/lib64" if host.has_rpm else f"/usr/lib/{host.machine}-linux-gnu"
    rows = [
        ("libcuda.so.1", f"{system}/libcuda.so.1", f"libcuda.so.{host.driver}", "ldconfig"),
        ("libnvidia-ml.so.1", f"{system}/libnvidia-ml.so.1", f"libnvidia-ml.so.{host.driver}", "ldconfig"),
        (
            "libnvidia-ptxjitcompiler.so.1",
            f"{system}/libnvidia-ptxjitcompiler.so.1",
            f"libnvidia-ptxjitcompiler.so.{host.driver}",
            "ldconfig",
        ),
    ]
    if host.has_toolkit and host.cuda_full:
        target = {"x86_64": "x86_64", "aarch64": "sbsa"}[host.machine]
        folder = f"/usr/local/cuda-{host.cuda}/targets/{target}-linux/lib"
        major = host.cuda.split(".")[0]
        rows += [
            (f"libcudart.so.{major}", f"{folder}/libcudart.so.{major}", f"libcudart.so.{host.cuda}.90", "ldconfig"),
            (
                f"libnvJitLink.so.{major}",
                f"{folder}/libnvJitLink.so.{major}",
                f"libnvJitLink.so.{host.cuda}.93",
                "ldconfig",
            ),
        ]
    if host.torch:
        site = f"/opt/env/lib/python{host.python.rsplit('.', 1)[0]}/site-packages/nvidia"
        major = host.cuda.split(".")[0]
        rows += [
            (name, f"{site}/{folder}/lib/{name}", name, "python")
            for folder, name in (
                ("cuda_runtime", f"libcudart.so.{major}"),
                ("cudnn", f"libcudnn.so.{host.cudnn.split('.')[0]}"),
                ("nccl", "libnccl.so.2"),
                ("nvjitlink", f"libnvJitLink.so.{major}"),
            )
        ]
    return _lines(*("\t".join(row) for row in rows))


# PCI


@dataclass(frozen=True)
class _PciRow:
    address: str
    class_code: str
    vendor: str
    device: str
    name: str
    driver: str
    width: int = 16
    width_max: int = 16
    speed: str = "32.0 GT/s PCIe"
    speed_max: str = "32.0 GT/s PCIe"
    numa: int = 0
    revision: str = "a1"
    bars: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()


def _pci_rows(host: _Host) -> list[_PciRow]:
    rows = []
    if host.virtualization == "kvm":
        name = "Intel Corporation 440FX - 82441FX PMC [Natoma]"
        rows.append(_PciRow("0000:00:00.0", "0600", "8086", "1237", name, "", 0, 0, "", "", -1, "02"))
    if host.model:
        for index, address in enumerate(host.gpus):
            model = host.device(index)
            fastest = _SPEEDS[model.generation]
            numa = host.numa[index] if host.numa else -1
            above: list[_PciRow] = []
            if host.virtualization == "none":
                bridge = ("0604", "1000", "c030", "Broadcom / LSI PEX890xx PCIe Gen 5 Switch", "pcieport")
                root = ("0604", "8086", "352a", "Intel Corporation Device 352a", "pcieport")
                if _bus(address) == 1:
                    above = [_PciRow(_shift(address, -1), *root, numa=numa, revision="01")]
                else:
                    above = [
                        _PciRow(_shift(address, -3, "01.0"), *root, numa=numa, revision="04"),
                        _PciRow(_shift(address, -2), *bridge, numa=numa, revision="b0"),
                        _PciRow(_shift(address, -1), *bridge, numa=numa, revision="b0"),
                    ]
                rows += above
            rows.append(
                _PciRow(
                    address,
                    model.class_code,
                    "10de",
                    model.device,
                    f"NVIDIA Corporation {model.name.removeprefix('NVIDIA ')}",
                    "nvidia" if host.driver else "",
                    width=host.width,
                    width_max=host.width_max,
                    speed=host.speed or fastest,
                    speed_max=fastest,
                    numa=numa,
                    bars=model.bars,
                    parents=tuple(row.address for row in above),
                )
            )
    slow = "16.0 GT/s PCIe"
    switch = ("0680", "10de", "22a3" if host.is_open else "1af1", "NVIDIA Corporation NVSwitch", "nvidia-nvswitch")
    rows += [_PciRow(address, *switch, 2, 2, slow, slow, 1, bars=("32M",)) for address in host.switches]
    card = ("0207", "15b3", "1021", "Mellanox Technologies MT2910 Family [ConnectX-7]", "mlx5_core")
    rows += [
        _PciRow(address, *card, numa=host.numa[index], revision="00", bars=("32M",))
        for index, address in enumerate(host.nics)
    ]
    rows += [_PciRow(address, *card, revision="00", width=2, width_max=2, bars=("32M",)) for address in host.bridges]
    return sorted(rows, key=lambda row: row.address)


def _pci(host: _Host) -> str:
    return _lines(
        *(
            "\t".join(
                (
                    f"address={row.address}",
                    f"class={row.class_code}00",
                    f"vendor={row.vendor}",
                    f"device={row.device}",
                    f"revision={row.revision}",
                    *((f"driver={row.driver}",) if row.driver else ()),
                    *(
                        (
                            f"width={row.width}",
                            f"width_max={row.width_max}",
                            f"speed={row.speed}",
                            f"speed_max={row.speed_max}",
                        )
                        if row.speed_max
                        else ()
                    ),
                    f"numa={row.numa}",
                    "power_state=D0",
                    "d3cold=1",
                    "is_vf=no",
                    *((f"parents={','.join(row.parents)}",) if row.parents else ()),
                )
            )
            for row in _pci_rows(host)
        )
    )


_CLASS_NAMES = {
    "0300": "VGA compatible controller",
    "0302": "3D controller",
    "0600": "Host bridge",
    "0604": "PCI bridge",
    "0680": "Bridge",
    "0207": "Infiniband controller",
}


def _lspci(host: _Host) -> str:
    blocks = []
    for row in _pci_rows(host):
        block = [
            f"{row.address} {_CLASS_NAMES[row.class_code]} [{row.class_code}]: {row.name} [{row.vendor}:{row.device}] "
            f"(rev {row.revision})" + (" (prog-if 00 [Normal decode])" if row.class_code == "0604" else ""),
            "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping- SERR+ FastB2B- DisINTx+",
            *((f"\tNUMA node: {row.numa}",) if row.numa >= 0 else ()),
            *(
                f"\tRegion {2 * place}: Memory at {0x210000000000 + (place << 38):x} (64-bit) [size={size}]"
                for place, size in enumerate(row.bars)
            ),
        ]
        if row.speed_max:
            speed, speed_max = (rate.split()[0].removesuffix(".0") for rate in (row.speed, row.speed_max))
            block += [
                "\tCapabilities: [60] Express (v2) Endpoint, MSI 00",
                f"\t\tLnkCap:\tPort #0, Speed {speed_max}GT/s, Width x{row.width_max}, ASPM not supported",
                f"\t\tLnkSta:\tSpeed {speed}GT/s{'' if speed == speed_max else ' (downgraded)'}, Width x{row.width}"
                + ("" if row.width == row.width_max else " (downgraded)"),
            ]
        if row.class_code == "0604":
            off = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
            block += [
                "\tCapabilities: [148 v1] Access Control Services",
                "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-",
                f"\t\tACSCtl:\t{off}",
            ]
        if row.driver:
            block += [f"\tKernel driver in use: {row.driver}"]
        blocks.append(_lines(*block))
    return "\n".join(blocks)


def _infiniband(host: _Host) -> str:
    rows = []
    for index, _ in enumerate(host.nics):
        rows += [
            f"mlx5_{index} 1 {key} {value}"
            for key, value in (
                ("state", "4: ACTIVE"),
                ("phys_state", "5: LinkUp"),
                ("rate", "400 Gb/sec (4X NDR)" if host.driver.startswith("58") else "200 Gb/sec (4X HDR)"),
                ("link_layer", "InfiniBand"),
                ("link_downed", "0"),
                ("fw_ver", "28.42.1000"),
                ("role", "network"),
            )
        ]
    for place, _ in enumerate(host.bridges):
        state = ("4: ACTIVE", "5: LinkUp") if place % 2 else ("1: DOWN", "3: Disabled")
        rows += [
            f"mlx5_{len(host.nics) + place} 1 {key} {value}"
            for key, value in (
                ("state", state[0]),
                ("phys_state", state[1]),
                ("rate", "10 Gb/sec (4X SDR)"),
                ("link_layer", "InfiniBand"),
                ("fw_ver", "28.44.2524"),
                ("role", "switch-management"),
            )
        ]
    return _lines(*rows)


# The driver


def _driver(host: _Host) -> dict[str, str]:
    if not host.driver:
        return {}
    flavour = f"Open Kernel Module for {host.machine}" if host.is_open else f"{host.machine} Kernel Module"
    cards = [(index, f"nvidia{index}") for index in range(host.count)]
    nodes = [
        f"crw-rw-rw- 1 0 0 195, {minor:3d} Nov 20 08:00 /dev/{name}"
        for minor, name in (*cards, (255, "nvidiactl"), (254, "nvidia-modeset"))
    ]
    nodes += [
        "crw-rw-rw- 1 0 0 508,   0 Nov 20 08:00 /dev/nvidia-uvm",
        "crw-rw-rw- 1 0 0 508,   1 Nov 20 08:00 /dev/nvidia-uvm-tools",
    ]
    if host.virtualization != "docker":
        nodes += [
            f"lrwxrwxrwx 1 0 0 12 Nov 20 08:00 /dev/char/195:{minor} -> ../{name}"
            for minor, name in (*cards, (255, "nvidiactl"))
        ]
        nodes += ["lrwxrwxrwx 1 0 0 13 Nov 20 08:00 /dev/char/508:0 -> ../nvidia-uvm"]
    folder = f"/lib/modules/{host.kernel}/updates/dkms"
    texts = {
        "driver-version": _lines(
            f"NVRM version: NVIDIA UNIX {flavour}  {host.driver}  Release Build  (builder@host)  Wed Oct 29 2025",
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)",
        ),
        "module-nvidia": _lines(
            f"loaded_version={host.driver}",
            "modinfo=found",
            f"disk_version={host.driver}",
            "signer=DKMS module signing key",
            f"license={'Dual MIT/GPL' if host.is_open else 'NVIDIA'}",
            f"path={folder}/nvidia.ko.zst",
        ),
        "driver-params": _lines(
            "ResmanDebugLevel: 4294967295",
            "ModifyDeviceFiles: 1",
            "DeviceFileMode: 438",
            "EnableMSI: 1",
            "RmProfilingAdminOnly: 1",
            "PreserveVideoMemoryAllocations: 0",
            "EnableGpuFirmware: 18",
            'RegistryDwords: ""',
        ),
        "driver-gpus": "".join(
            _lines(
                f"== {address}",
                f"Model: \t\t {host.device(index).name}",
                f"IRQ:   \t\t {120 + index}",
                f"GPU UUID: \t {host.uuid(index)}",
                f"Video BIOS: \t {host.device(index).vbios.lower()}",
                "Bus Type: \t PCIe",
                f"Bus Location: \t {address}",
                f"Device Minor: \t {index}",
                f"GPU Firmware: \t {host.driver if _has_gsp(host) else 'N/A'}",
                "GPU Excluded:\t No",
            )
            for index, address in enumerate(host.gpus)
        ),
        "dkms": _lines(
            *(
                f"nvidia/{host.driver}, {kernel}, {host.machine}: installed"
                for kernel in filter(None, (host.older_kernel, host.kernel))
            )
        ),
        "device-nodes": _lines(*nodes),
        "nvidia-smi-xml": _smi_xml(host),
        "nvidia-smi-topology": _topology(host),
        "nvidia-smi-p2p": _p2p(host),
        "nvlink-status": _nvlink(host, has_errors=False),
        "nvlink-errors": _nvlink(host, has_errors=True),
        "nvlink-errors-later": _nvlink(host, has_errors=True),
    }
    if host.has_toolkit and host.cuda_full:
        texts["nvcc"] = _lines(
            "nvcc: NVIDIA (R) Cuda compiler driver",
            "Copyright (c) 2005-2025 NVIDIA Corporation",
            "Built on Fri_Feb_21_20:23:50_PST_2025",
            f"Cuda compilation tools, release {host.cuda}, V{host.cuda_full}",
            f"Build cuda_{host.cuda}.r{host.cuda}/compiler.35583870_0",
        )
    if host.has_fabric:
        texts["fabric-manager"] = _lines(
            f"Fabric Manager version is : {host.driver}",
            "[Nov 20 2026 08:00:41] [INFO] [tid 1584] Fabric Manager Service: starting",
            f"[Nov 20 2026 08:00:41] [INFO] [tid 1584] Fabric Manager version is : {host.driver}",
            "[Nov 20 2026 08:00:52] [INFO] [tid 1584] Successfully configured all the available NVSwitches "
            "to route GPU NVLink traffic.",
        )
    return texts


def _has_gsp(host: _Host) -> bool:
    assert host.model is not None
    return host.model.architecture not in ("Pascal", "Volta", "Maxwell")


def _element(name: str, content: object, depth: int) -> str:
    tabs = "\t" * depth
    if isinstance(content, str):
        return f"{tabs}<{name}>{content}</{name}>\n"
    assert isinstance(content, Sequence)
    inner = "".join(_element(key, value, depth + 1) for key, value in content)
    return f"{tabs}<{name}>\n{inner}{tabs}</{name}>\n"


def _smi_xml(host: _Host) -> str:
    branch = int(host.driver.split(".")[0])
    schema = 13 if branch >= 570 else 12 if branch >= 530 else 11
    head = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{schema}.dtd">',
        "<nvidia_smi_log>",
        "\t<timestamp>Sat Nov 21 12:00:00 2026</timestamp>",
        f"\t<driver_version>{host.driver}</driver_version>",
        f"\t<cuda_version>{host.cuda_of_driver}</cuda_version>",
        f"\t<attached_gpus>{host.count}</attached_gpus>",
    ]
    blocks = []
    for index, address in enumerate(host.gpus):
        long = f"0000{address}".upper()
        inner = "".join(_element(name, content, 2) for name, content in _smi_gpu(host, index, long, branch))
        blocks.append(f'\t<gpu id="{long}">\n{inner}\t</gpu>\n\n')
    return _lines(*head) + "".join(blocks) + "</nvidia_smi_log>\n"


def _smi_gpu(host: _Host, index: int, address: str, branch: int) -> list[tuple[str, object]]:
    model = host.device(index)
    none = "N/A"
    newest = branch >= 570
    deprecated = "Requested functionality has been deprecated" if branch >= 580 else none
    ecc = "Enabled" if model.has_ecc else none
    zero = "0" if model.has_ecc else none
    mig = "Disabled" if model.has_mig else none
    word = "event" if branch >= 535 else "throttle"
    reasons = [
        (f"clocks_{word}_reason_{name}", "Active" if name == "gpu_idle" else "Not Active")
        for name in (
            "gpu_idle",
            "applications_clocks_setting",
            "sw_power_cap",
            "hw_slowdown",
            "hw_thermal_slowdown",
            "hw_power_brake_slowdown",
            "sync_boost",
            "sw_thermal_slowdown",
            "display_clocks_setting",
        )
    ]
    if model.has_retirement:
        places = (
            "device_memory",
            "register_file",
            "l1_cache",
            "l2_cache",
            "texture_memory",
            "texture_shm",
            "cbu",
            "total",
        )
        cell = {name: "0" if name not in ("l1_cache", "cbu") else none for name in places}
        kinds = [(kind, list(cell.items())) for kind in ("single_bit", "double_bit")]
        errors: list[tuple[str, object]] = [("volatile", kinds), ("aggregate", kinds)]
    else:
        broad = ["sram_correctable", "sram_uncorrectable", "dram_correctable", "dram_uncorrectable"]
        split = ["sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", *broad[2:]]
        counts = [(name, zero) for name in (split if newest else broad)]
        exceeded = [("sram_threshold_exceeded", "No" if model.has_ecc else none)] if newest else []
        errors = [("volatile", counts), ("aggregate", counts + exceeded)]
        if newest:
            sources = ("sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie", "sram_other")
            errors += [
                ("aggregate_uncorrectable_sram_sources", [(name, zero) for name in sources]),
                ("channel_repair_pending", "No"),
                ("tpc_repair_pending", "No"),
            ]
    pages = "0" if model.has_retirement else none
    pending = "No" if model.has_retirement else none
    retired = [
        ("multiple_single_bit_retirement", [("retired_count", pages), ("retired_pagelist", none)]),
        ("double_bit_retirement", [("retired_count", pages), ("retired_pagelist", none)]),
        ("pending_blacklist", pending),
        ("pending_retirement", pending),
    ]
    remapped: object = none
    if model.has_remapping:
        banks = {"max": "2560", "high": "0", "partial": "0", "low": "0", "none": "0"}
        remapped = [
            ("remapped_row_corr", "0"),
            ("remapped_row_unc", "0"),
            ("remapped_row_pending", "No"),
            ("remapped_row_failure", "No"),
            ("row_remapper_histogram", [(f"row_remapper_histogram_{key}", f"{n} bank(s)") for key, n in banks.items()]),
        ]
    if model.has_margin:
        temperature = [
            ("gpu_temp", f"{34 + index} C"),
            ("gpu_temp_tlimit", f"{53 - index} C"),
            ("gpu_temp_max_tlimit_threshold", "-8 C"),
            ("gpu_temp_slow_tlimit_threshold", "-2 C"),
            ("gpu_temp_max_gpu_tlimit_threshold", "0 C"),
            ("gpu_target_temperature", none),
            ("memory_temp", "44 C"),
            ("gpu_temp_max_mem_tlimit_threshold", "0 C"),
        ]
    else:
        temperature = [
            ("gpu_temp", f"{34 + index} C"),
            *((("gpu_temp_tlimit", none),) if branch >= 535 else ()),
            ("gpu_temp_max_threshold", f"{model.slowdown_c + 3} C"),
            ("gpu_temp_slow_threshold", f"{model.slowdown_c} C"),
            ("gpu_temp_max_gpu_threshold", f"{model.operating_c} C" if model.operating_c else none),
            ("gpu_target_temperature", "84 C" if model.brand == "GeForce" else none),
            ("memory_temp", none),
        ]
    limit, most = f"{model.power_w}.00 W", f"{model.power_max_w or model.power_w}.00 W"
    if not model.power_w:
        limit = most = none
    draws = [("average_power_draw", f"{model.idle_w} W"), ("instant_power_draw", f"{model.idle_w} W")]
    if not newest:
        draws = [("power_draw", f"{model.idle_w} W")]
    power = [("power_state", deprecated if branch >= 580 else "P0"), *draws]
    if branch >= 530:
        power += [("current_power_limit", limit), ("requested_power_limit", limit)]
    else:
        power += [("power_management", "Supported"), ("power_limit", limit)]
    power += [("default_power_limit", limit)]
    if branch < 530:
        power += [("enforced_power_limit", limit)]
    power += [("min_power_limit", "100.00 W" if model.power_w else none), ("max_power_limit", most)]
    recovery: list[tuple[str, object]] = [("gpu_recovery_action", "None")] if newest else []
    if 530 <= branch < 570:
        recovery = [("gpu_reset_status", [("reset_required", "No"), ("drain_and_reset_recommended", "No")])]
    generation = [("max_link_gen", str(model.generation)), ("current_link_gen", str(host.generation))]
    if branch >= 530:
        generation += [
            ("device_current_link_gen", str(host.generation)),
            ("max_device_link_gen", str(model.generation)),
            ("max_host_link_gen", none if host.virtualization != "none" else str(model.generation)),
        ]
    health = "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery"
    has_fabric = host.has_fabric and model.architecture in ("Hopper", "Blackwell")
    fabric: list[tuple[str, object]] = [
        ("state", "Completed" if has_fabric else none),
        ("status", "Success" if has_fabric else none),
    ]
    if newest:
        fabric += [
            ("cliqueId", "0" if has_fabric else none),
            ("clusterUuid", "00000000-0000-0000-0000-000000000000" if has_fabric else none),
            (
                "health",
                [
                    ("summary", "Healthy" if has_fabric else none),
                    ("bandwidth", "Full" if has_fabric else none),
                    *((name, "False" if has_fabric else none) for name in health),
                    ("incorrect_configuration", "None" if has_fabric else none),
                ],
            ),
        ]
    is_shown = model.brand == "GeForce"
    used = 412 if is_shown else 1
    process = [
        (
            "process_info",
            [
                ("gpu_instance_id", none),
                ("compute_instance_id", none),
                ("pid", "2411"),
                ("type", "G"),
                ("process_name", "/usr/lib/xorg/Xorg"),
                ("used_memory", "396 MiB"),
            ],
        )
    ]
    mode = "Pass-Through" if host.virtualization == "kvm" else "None"
    return [
        ("product_name", model.name),
        ("product_brand", model.brand),
        *((("product_architecture", model.architecture),) if branch >= 470 else ()),
        ("display_mode", deprecated if newest else "Disabled"),
        *((("display_attached", "Yes" if is_shown else "No"),) if newest else ()),
        ("display_active", "Enabled" if is_shown else "Disabled"),
        ("persistence_mode", "Enabled" if host.has_persistence else "Disabled"),
        *((("addressing_mode", "HMM" if host.is_open else "None"),) if branch >= 530 else ()),
        *(
            ((("mig_mode", [("current_mig", mig), ("pending_mig", mig)])), ("mig_devices", "None"))
            if branch >= 450
            else ()
        ),
        ("accounting_mode", "Disabled"),
        ("accounting_mode_buffer_size", "4000"),
        ("serial", f"16505231{index:05d}" if model.brand != "GeForce" else none),
        ("uuid", host.uuid(index)),
        ("minor_number", str(index)),
        ("vbios_version", model.vbios),
        ("multigpu_board", "No"),
        ("board_id", f"0x{_bus(host.gpus[index]):x}00"),
        ("inforom_version", [("img_version", "G520.0200.00.05"), ("oem_object", "2.1"), ("ecc_object", "7.16")]),
        *((("gsp_firmware_version", host.driver if _has_gsp(host) else none),) if branch >= 470 else ()),
        ("gpu_virtualization_mode", [("virtualization_mode", mode), ("host_vgpu_mode", none)]),
        *recovery,
        (
            "pci",
            [
                ("pci_bus", f"{_bus(host.gpus[index]):02X}"),
                ("pci_device", "00"),
                ("pci_domain", "0000"),
                ("pci_device_id", f"{model.device.upper()}10DE"),
                ("pci_bus_id", address),
                (
                    "pci_gpu_link_info",
                    [
                        ("pcie_gen", generation),
                        (
                            "link_widths",
                            [
                                ("max_link_width", f"{host.width_max or 16}x"),
                                ("current_link_width", f"{host.width or 8}x"),
                            ],
                        ),
                    ],
                ),
                ("replay_counter", "0"),
                ("replay_rollover_counter", "0"),
            ],
        ),
        ("fan_speed", "30 %" if is_shown else none),
        ("performance_state", "P8" if is_shown or host.generation == 1 else "P0"),
        (f"clocks_{word}_reasons", reasons),
        (
            "fb_memory_usage",
            [
                ("total", f"{model.memory_mib} MiB" if model.has_own_memory else none),
                *((("reserved", "479 MiB" if model.has_own_memory else none),) if branch >= 510 else ()),
                ("used", f"{used} MiB" if model.has_own_memory else none),
                ("free", f"{model.memory_mib - 479 - used} MiB" if model.has_own_memory else none),
            ],
        ),
        (
            "bar1_memory_usage",
            [("total", f"{model.bar1_mib} MiB"), ("used", "1 MiB"), ("free", f"{model.bar1_mib - 1} MiB")]
            if model.has_own_memory
            else [("total", none), ("used", none), ("free", none)],
        ),
        ("compute_mode", "Default"),
        ("utilization", [("gpu_util", "0 %"), ("memory_util", "0 %")]),
        ("ecc_mode", [("current_ecc", ecc), ("pending_ecc", ecc)]),
        ("ecc_errors", errors),
        ("retired_pages", retired),
        ("remapped_rows", remapped),
        ("temperature", temperature),
        ("gpu_power_readings" if branch >= 530 else "power_readings", power),
        ("clocks", [("graphics_clock", "345 MHz"), ("sm_clock", "345 MHz"), ("mem_clock", "2619 MHz")]),
        ("max_clocks", [("graphics_clock", f"{model.sm_mhz} MHz"), ("sm_clock", f"{model.sm_mhz} MHz")]),
        *((("fabric", fabric),) if branch >= 530 else ()),
        ("processes", process if is_shown else []),
        ("accounted_processes", []),
    ]


def _topology(host: _Host) -> str:
    gpus = [f"GPU{index}" for index in range(host.count)]
    nics = [f"NIC{index}" for index in range(len(host.nics))]
    devices = gpus + nics
    side = {name: host.numa[int(name[3:])] if host.numa else 0 for name in devices}

    def cell(row: str, column: str) -> str:
        if row == column:
            return " X "
        if row[:3] == column[:3] == "GPU" and host.device(0).links and host.has_fabric:
            return f"NV{host.device(0).links}"
        if row[3:] == column[3:]:
            return "PIX"
        return "NODE" if side[row] == side[column] else "SYS"

    rows = ["\t\x1b[4m" + "\t".join(devices) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for name in devices:
        cells = "\t".join(cell(name, other) for other in devices)
        cores = "0-55" if side[name] == 0 else "56-111"
        rows.append(f"{name}\t{cells}\t" + (f"{cores}\t{side[name]}\t\tN/A" if name in gpus else "\t\t\t"))
    rows += [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]
    if nics:
        rows += ["", "NIC Legend:", "", *(f"  {name}: mlx5_{name[3:]}" for name in nics)]
    return _lines(*rows)


def _p2p(host: _Host) -> str:
    gpus = [f"GPU{index}" for index in range(host.count)]
    word = "OK" if host.device(0).brand == "NVIDIA" or host.count == 1 else "CNS"
    return _lines(
        " \t" + "\t".join(gpus) + "\t",
        *(f" {name}\t" + "\t".join("X" if name == other else word for other in gpus) + "\t" for name in gpus),
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  OK   = Status Ok",
        "  CNS  = Chipset not supported",
        "  GNS  = GPU not supported",
        "  TNS  = Topology not supported",
        "  NS   = Not supported",
        "  U    = Unknown",
    )


def _nvlink(host: _Host, *, has_errors: bool) -> str:
    rows = []
    for index in range(host.count):
        model = host.device(index)
        rows.append(f"GPU {index}: {model.name} (UUID: {host.uuid(index)})")
        if not model.links:
            rows.append("Device does not have or support Nvlink")
        for link in range(model.links):
            if has_errors:
                rows += [f"\t Link {link}: {kind} Errors: 0" for kind in ("Replay", "Recovery", "CRC")]
                rows.append("")
            else:
                rows.append(f"\t Link {link}: {model.link_gb_s} GB/s")
    return _lines(*rows)


# Containers


def _containers(host: _Host) -> dict[str, str]:
    if not host.has_docker:
        return {}
    runtimes = {"nvidia": {"args": [], "path": "nvidia-container-runtime"}} if host.driver else {}
    daemon = {
        "exec-opts": ["native.cgroupdriver=systemd"],
        "features": {"cdi": True},
        "log-driver": "json-file",
        "runtimes": runtimes,
        "default-shm-size": "16G",
    }
    info = {
        "ServerVersion": "28.5.1",
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "DefaultRuntime": "runc",
        "DockerRootDir": "/var/lib/docker",
        "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}, **runtimes},
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    }
    texts = {
        "docker-config": json.dumps(daemon, indent=4) + "\n",
        "docker-info": json.dumps(info) + "\n",
        "containerd-config": _lines(
            "version = 2",
            "",
            "[plugins]",
            '  [plugins."io.containerd.grpc.v1.cri"]',
            "    enable_cdi = true",
            '    cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]',
            '    [plugins."io.containerd.grpc.v1.cri".containerd]',
            '      default_runtime_name = "runc"',
            '      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]',
            '        runtime_type = "io.containerd.runc.v2"',
            '        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]',
            "          SystemdCgroup = true",
            '      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]',
            '        runtime_type = "io.containerd.runc.v2"',
            '        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]',
            '          BinaryName = "/usr/bin/nvidia-container-runtime"',
            "          SystemdCgroup = true",
        ),
    }
    if host.driver:
        texts |= {
            "toolkit": _lines("NVIDIA Container Toolkit CLI version 1.18.1", "commit: 0123456789abcdef"),
            "toolkit-config": _lines(
                'supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"',
                "",
                "[nvidia-container-cli]",
                '#debug = "/var/log/nvidia-container-toolkit.log"',
                "load-kmods = true",
                "#no-cgroups = false",
                "",
                "[nvidia-container-runtime]",
                '#debug = "/var/log/nvidia-container-runtime.log"',
                'log-level = "info"',
                'mode = "auto"',
                'runtimes = ["runc", "crun"]',
            ),
            "cdi": _lines(
                f"== /etc/cdi/nvidia.yaml {EPOCH_SECONDS - 86400}",
                "cdiVersion: 0.5.0",
                "kind: nvidia.com/gpu",
                *(f'- name: "{index}"' for index in range(host.count)),
                "- name: all",
                f"  hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{host.driver}",
                f"  hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{host.driver}",
            ),
            "container-gpu": _gpu_list(host),
            "daemon-reload": _gpu_list(host),
        }
    return texts


def _gpu_list(host: _Host) -> str:
    return _lines(
        *(f"GPU {index}: {host.device(index).name} (UUID: {host.uuid(index)})" for index in range(host.count))
    )


# Frameworks and measurements


def _payload(document: Mapping[str, object]) -> str:
    return f"@provision-payload {json.dumps(document)}\n"


def _software(host: _Host) -> dict[str, str]:
    if not host.python:
        return {}
    texts = {
        name: _payload({"name": name, "error": f"ModuleNotFoundError: No module named '{name}'"})
        for name in ("torch", "tensorflow", "jax")
    }
    texts["python"] = _payload(
        {
            "executable": "/opt/env/bin/python",
            "version": host.python,
            "prefix": "/opt/env",
            "packages": dict(host.packages),
            "duplicates": [],
        }
    )
    if host.torch:
        texts["torch"] = _payload(
            {
                "name": "torch",
                "version": host.torch,
                "error": None,
                "is_available": True,
                "reason": None,
                "is_cuda_build": True,
                "cuda": host.cuda,
                "cudnn": host.cudnn,
                "nccl": host.nccl,
                "device_count": host.count,
                "names": [host.device(index).name for index in range(host.count)],
                "capabilities": [host.device(index).capability for index in range(host.count)],
                "targets": list(host.targets),
                "warnings": [],
            }
        )
    return texts


def _work(host: _Host) -> dict[str, str]:
    if not host.driver:
        return {}
    ids = [{"gpu": index, "name": host.device(index).name, "uuid": host.uuid(index)} for index in range(host.count)]
    texts = {
        "cuda-work": _payload(
            {
                "tool": "cuda-work",
                "error": None,
                "gpus": [{**one, "tests": {"alloc": "ok", "vector-add": "ok"}, "figures": {}} for one in ids],
                "together": {},
                "figures": {},
                "pairs": [],
            }
        )
    }
    if host.torch:
        model = host.device(0)
        has_bf16 = float(model.capability) >= 8
        names = ("alloc", "matmul-fp32", "matmul-tf32", "matmul-fp16", "matmul-bf16", "conv-cudnn")
        tests = dict.fromkeys(names, "ok")
        if not has_bf16:
            tests |= {f"matmul-{name}": f"skipped: this GPU has no {name.upper()}" for name in ("tf32", "bf16")}
        rows = []
        for place, one in enumerate(ids):
            figures = {
                "h2d_gb_s": round(model.copy_gb_s + place * 0.02, 2),
                "d2h_gb_s": round(model.copy_gb_s - 0.4 + place * 0.02, 2),
                "error-fp32": 1.9e-06,
                "error-tf32": 3.1e-04,
                "error-fp16": 2.4e-04,
                "error-bf16": 1.8e-03,
                "gemm-bf16_tflops": round(model.bf16_tflops - place * 0.3, 1),
                "pcie_gen_under_load": model.generation,
            }
            rows.append({**one, "tests": tests, "figures": figures})
        pairs = [
            [a, b, host.p2p_gb_s] for a in range(host.count) for b in range(host.count) if a != b and host.p2p_gb_s
        ]
        texts["torch-work"] = _payload(
            {"tool": "torch-work", "error": None, "gpus": rows, "together": {}, "figures": {}, "pairs": pairs}
        )
        if host.count > 1:
            together = {"allreduce": "ok"}
            figures = {"allreduce_bus_gb_s": round(host.busbw_gb_s * 0.9, 1), "ranks": host.count}
            document = {
                "tool": "torch-nccl",
                "error": None,
                "gpus": [],
                "together": together,
                "figures": figures,
                "pairs": [],
            }
            texts["torch-nccl"] = _payload(document)
    if host.count > 1:
        texts["nccl-tests"] = _nccl_tests(host)
    if host.is_server:
        texts["nvbandwidth"] = _nvbandwidth(host)
    if host.has_dcgm:
        texts["dcgmi-diag"] = _diag(host, 1)
        texts["dcgmi-diag-2"] = _diag(host, 2)
        texts["dcgmi-diag-3"] = _diag(host, 3)
        texts["exporter"] = _metrics(host)
        texts["textfile"] = "42\n"
    if host.nics:
        texts["ports"] = _lines(*(f"gpu002 {port} open" for port in (50000, 50500, 51000)))
        pair = {"tool": "nccl-pair", "error": None, "gpus": [], "together": {"allreduce": "ok"},
                "figures": {"allreduce_bus_gb_s": round(host.busbw_gb_s * 0.78, 1)}, "pairs": []}  # fmt: skip
        texts["nccl-pair"] = _payload(pair)
    return texts


_NCCL_COLUMNS = "     time   algbw   busbw #wrong"
_NCCL_UNITS = "     (us)  (GB/s)  (GB/s)       "


def _nccl_tests(host: _Host) -> str:
    rows = [
        "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 8589934592 step: 2(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    rows += [
        f"#  Rank {index:2d} Group  0 Pid  66421 on {host.name} device {index:2d} "
        f"[{address[5:7]}] {host.device(0).name}"
        for index, address in enumerate(host.gpus)
    ]
    rows += [
        f"NCCL version {host.nccl}+cuda{host.cuda}",
        "#",
        f"#{'out-of-place':>74}{'in-place':>33}          ",
        f"#       size         count      type   redop    root{_NCCL_COLUMNS}{_NCCL_COLUMNS}",
        f"#        (B)    (elements)                          {_NCCL_UNITS}{_NCCL_UNITS}",
    ]
    factor = 2 * (host.count - 1) / host.count
    size, total, lines = 1 << 20, 0.0, 0
    while size <= 8 << 30:
        bus = host.busbw_gb_s * size / (size + (48 << 20))
        if size == 8 << 30:
            bus = host.busbw_gb_s
        algorithm = bus / factor
        microseconds = size / algorithm / 1000
        half = f"{microseconds:8.1f} {algorithm:7.2f} {bus:7.2f}      0"
        rows.append(f"{size:12d} {size // 4:13d}     float     sum      -1 {half} {half}")
        total, lines, size = total + bus, lines + 1, size * 2
    rows += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {total / lines:.3f}", "#"]
    return _lines(*rows)


def _nvbandwidth(host: _Host) -> str:
    model = host.device(0)
    row = [[f"{model.copy_gb_s + index * 0.02:.2f}" for index in range(host.count)]]
    cases = [
        ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", row),
        ("device_to_host_memcpy_ce", "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)", row),
    ]
    if host.count > 1 and host.p2p_gb_s:
        peers = [
            ["N/A" if a == b else f"{host.p2p_gb_s - (a + b) * 0.1:.2f}" for b in range(host.count)]
            for a in range(host.count)
        ]
        cases.append(("device_to_device_memcpy_read_ce", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", peers))
    document = {
        "nvbandwidth": {
            "CUDA Runtime Version": 12080,
            "Driver Version": 13000,
            "git_version": "v0.8",
            "testcases": [
                {
                    "name": name,
                    "status": "Passed",
                    "bandwidth_description": description,
                    "bandwidth_matrix": matrix,
                    "sum": round(sum(float(cell) for line in matrix for cell in line if cell != "N/A"), 2),
                }
                for name, description, matrix in cases
            ],
        }
    }
    return json.dumps(document, indent=4) + "\n"


_DIAG = {
    1: (("Deployment", ("software",)),),
    2: (("Deployment", ("software",)), ("Hardware", ("memory",)), ("Integration", ("pcie",))),
    3: (
        ("Deployment", ("software",)),
        ("Hardware", ("memory", "diagnostic", "nvbandwidth")),
        ("Integration", ("pcie",)),
        ("Stress", ("memory_bandwidth", "targeted_stress", "targeted_power")),
    ),
}


def _diag(host: _Host, level: int) -> str:
    group = {"entity_group": "GPU", "entity_group_id": 1}
    document = {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": category,
                    "tests": [
                        {
                            "name": name,
                            "results": [{**group, "entity_id": index, "status": "Pass"} for index in range(host.count)],
                            "test_summary": {"status": "Pass"},
                        }
                        for name in names
                    ],
                }
                for category, names in _DIAG[level]
            ]
        },
        "entity_groups": [
            {
                **group,
                "entities": [
                    {"device_id": host.device(index).device, "entity_id": index, "serial_num": f"16505231{index:05d}"}
                    for index in range(host.count)
                ],
            }
        ],
        "metadata": {"Driver Version Detected": host.driver, "version": "4.4.2"},
    }
    return json.dumps(document, indent=2) + "\n"


def _metrics(host: _Host) -> str:
    rows = []
    for name, value in (
        ("DCGM_FI_DEV_GPU_TEMP", "{temperature}"),
        ("DCGM_FI_DEV_POWER_USAGE", "69.850000"),
        ("DCGM_FI_DEV_GPU_UTIL", "0"),
        ("DCGM_FI_DEV_XID_ERRORS", "0"),
    ):
        for index, address in enumerate(host.gpus):
            labels = {
                "gpu": str(index),
                "UUID": host.uuid(index),
                "pci_bus_id": f"0000{address}".upper(),
                "device": f"nvidia{index}",
                "modelName": host.device(index).name,
                "hostname": host.name,
                "DCGM_FI_DRIVER_VERSION": host.driver,
            }
            inside = ",".join(f'{key}="{value_}"' for key, value_ in labels.items())
            rows.append(f"{name}{{{inside}}} {value.format(temperature=34 + index)}")
    return _lines(*rows)


# The machines


def _machine(host: _Host, *, without: Sequence[str] = ()) -> Outputs:
    texts = _system(host) | _driver(host) | _containers(host) | _software(host) | _work(host)
    outputs = {}
    for place, (probe, known) in enumerate(PROBES.items()):
        if probe in texts and probe not in without:
            outputs[probe] = Output(probe=probe, status=OK, code=0, seconds=0.01 * (place % 9), text=texts[probe])
        else:
            missing = NOT_RUN if known.level != "quick" else ABSENT
            outputs[probe] = Output(probe=probe, status=missing)
    return outputs


_TORCH_28_CU128 = {
    "filelock": "4.2.11",
    "fsspec": "2026.9.0",
    "jinja2": "3.1.6",
    "markupsafe": "3.0.4",
    "mpmath": "1.3.0",
    "networkx": "3.6.1",
    "numpy": "2.4.6",
    "nvidia-cublas-cu12": "12.8.4.1",
    "nvidia-cuda-cupti-cu12": "12.8.90",
    "nvidia-cuda-nvrtc-cu12": "12.8.93",
    "nvidia-cuda-runtime-cu12": "12.8.90",
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cufft-cu12": "11.3.3.83",
    "nvidia-cufile-cu12": "1.13.1.3",
    "nvidia-curand-cu12": "10.3.9.90",
    "nvidia-cusolver-cu12": "11.7.3.90",
    "nvidia-cusparse-cu12": "12.5.8.93",
    "nvidia-cusparselt-cu12": "0.7.1",
    "nvidia-nccl-cu12": "2.27.3",
    "nvidia-nvjitlink-cu12": "12.8.93",
    "nvidia-nvtx-cu12": "12.8.90",
    "pillow": "13.0.0",
    "setuptools": "84.2.1",
    "sympy": "1.14.0",
    "torch": "2.8.0",
    "torchaudio": "2.8.0",
    "torchvision": "0.23.0",
    "triton": "3.4.0",
    "typing-extensions": "4.16.0",
}
_WITH_TORCH_28 = {
    "torch": "2.8.0+cu128",
    "cuda": "12.8",
    "cuda_full": "12.8.93",
    "cudnn": "9.10.2",
    "cudnn_package": "9.10.2.21",
    "nccl": "2.27.3",
    "python": "3.11.14",
    "packages": _TORCH_28_CU128,
    "targets": ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
}
_UBUNTU_22 = ("ubuntu", "22.04", "Ubuntu 22.04.5 LTS")
_EIGHT = tuple(f"0000:{bus}:00.0" for bus in ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db"))

_HGX_H100 = _Host(
    name="gpu001",
    os=_UBUNTU_22,
    kernel="6.8.0-87-generic",
    older_kernel="6.8.0-85-generic",
    model=_H100,
    gpus=_EIGHT,
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    driver="580.105.08",
    cuda_of_driver="13.0",
    switches=tuple(f"0000:{bus}:00.0" for bus in ("83", "84", "85", "86")),
    nics=tuple(_shift(address, 2) for address in _EIGHT),
    busbw_gb_s=481.3,
    p2p_gb_s=368.2,
    **_WITH_TORCH_28,
)
_HGX_A100 = _with(
    _HGX_H100,
    name="gpu051",
    product="AS -4124GO-NART",
    kernel="5.15.0-160-generic",
    older_kernel="5.15.0-157-generic",
    model=_A100,
    driver="535.274.02",
    cuda_of_driver="12.2",
    is_open=False,
    switches=tuple(f"0000:{bus}:00.0" for bus in ("83", "84", "85", "86", "87", "88")),
    busbw_gb_s=233.4,
    p2p_gb_s=276.3,
)
_CLOUD_A10G = _with(
    _HGX_H100,
    name="ip-10-0-3-7",
    kernel="6.8.0-1040-aws",
    older_kernel="",
    model=_A10G,
    gpus=("0000:00:1e.0",),
    numa=(-1,),
    driver="535.274.02",
    cuda_of_driver="12.2",
    is_open=False,
    virtualization="kvm",
    vendor="Amazon EC2",
    product="g5.2xlarge",
    switches=(),
    nics=(),
    width=8,
    speed=_SPEEDS[1],
    smi_generation=1,
    busbw_gb_s=0.0,
    p2p_gb_s=0.0,
)
_WORKSTATION = _with(
    _HGX_H100,
    name="desk",
    os=("ubuntu", "24.04", "Ubuntu 24.04.3 LTS"),
    kernel="6.14.0-36-generic",
    older_kernel="6.14.0-35-generic",
    vendor="ASUS",
    product="System Product Name",
    model=_RTX_4090,
    gpus=("0000:05:00.0",),
    numa=(0,),
    driver="570.195.03",
    cuda_of_driver="12.8",
    switches=(),
    nics=(),
    speed=_SPEEDS[1],
    smi_generation=1,
    has_persistence=False,
    has_docker=False,
    has_dcgm=False,
    is_server=False,
    busbw_gb_s=0.0,
    p2p_gb_s=0.0,
)
_TWO_L40S = _with(
    _HGX_H100,
    name="gpu090",
    product="SYS-421GE-TNRT",
    model=_L40S,
    gpus=("0000:2a:00.0", "0000:ab:00.0"),
    numa=(0, 1),
    switches=(),
    nics=(),
    busbw_gb_s=22.4,
    p2p_gb_s=0.0,
)
_CONTAINER = _with(
    _HGX_H100,
    name="3f9c1d",
    os=("debian", "12", "Debian GNU/Linux 12 (bookworm)"),
    virtualization="docker",
    vendor="",
    product="",
    gpus=("0000:5d:00.0",),
    numa=(0,),
    switches=(),
    nics=(),
    has_docker=False,
    has_dcgm=False,
    has_toolkit=False,
    busbw_gb_s=0.0,
    p2p_gb_s=0.0,
)
_WITHOUT_GPU = _Host(
    name="build01",
    os=_UBUNTU_22,
    kernel="6.8.0-87-generic",
    virtualization="kvm",
    vendor="QEMU",
    product="Standard PC (Q35 + ICH9, 2009)",
    has_persistence=False,
    has_dcgm=False,
    python="3.11.14",
    packages={"pip": "25.3", "numpy": "2.4.6"},
)
_OLD_P100 = _Host(
    name="old01",
    os=("ubuntu", "20.04", "Ubuntu 20.04.6 LTS"),
    kernel="5.4.0-216-generic",
    model=_P100,
    gpus=("0000:05:00.0", "0000:85:00.0"),
    numa=(0, 1),
    driver="470.256.02",
    cuda_of_driver="11.4",
    is_open=False,
    vendor="Dell Inc.",
    product="PowerEdge C4130",
    has_docker=False,
    has_dcgm=False,
    cuda="11.3",
    cuda_full="11.3.109",
    nccl="2.10.3",
    torch="1.12.1+cu113",
    cudnn="8.3.2",
    python="3.8.20",
    packages={"torch": "1.12.1+cu113", "numpy": "1.24.4", "typing-extensions": "4.12.2"},
    targets=("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),
    busbw_gb_s=9.8,
)


_HGX_B200 = _with(
    _HGX_H100,
    name="gpu071",
    os=("ubuntu", "24.04", "Ubuntu 24.04.3 LTS"),
    product="SYS-A22GA-NBRT",
    model=_B200,
    switches=(),
    bridges=tuple(f"0000:e{card}:00.{function}" for card in "01" for function in "01"),
    busbw_gb_s=838.6,
    p2p_gb_s=742.8,
)
_MIXED = _with(
    _TWO_L40S,
    name="lab07",
    others={1: _RTX_4090},
    has_dcgm=False,
)
_SPARK = _with(
    _WORKSTATION,
    name="spark-1c2d",
    kernel="6.14.0-1013-nvidia",
    older_kernel="",
    machine="aarch64",
    vendor="NVIDIA",
    product="NVIDIA_DGX_Spark",
    model=_GB10,
    gpus=("000f:01:00.0",),
    driver="580.95.05",
    cuda_of_driver="13.0",
    width=1,
    width_max=1,
    has_persistence=True,
)
_ROCKY = _with(
    _HGX_H100,
    name="rocky03",
    os=("rocky", "9.6", "Rocky Linux 9.6 (Blue Onyx)"),
    kernel="5.14.0-570.58.1.el9_6.x86_64",
    older_kernel="5.14.0-570.49.1.el9_6.x86_64",
)


def hgx_h100() -> Outputs:
    """Eight H100 on an HGX board, InfiniBand, containers, PyTorch: everything there and well."""
    return _machine(_HGX_H100)


def hgx_a100() -> Outputs:
    """Eight A100 on an HGX board with a proprietary driver of branch 535."""
    return _machine(_HGX_A100)


def cloud_a10g() -> Outputs:
    """A rented virtual machine with one A10G on eight lanes, idle at the first generation."""
    return _machine(_CLOUD_A10G)


def workstation_rtx4090() -> Outputs:
    """A desk with a GeForce that also drives the screen: no ECC, no MIG, no containers."""
    outputs = _machine(_WORKSTATION)
    return replace_output(outputs, "device-users", text="2411 Xorg\n")


def l40s_pcie() -> Outputs:
    """Two L40S on PCIe without NVLink."""
    return _machine(_TWO_L40S)


def gpu_container() -> Outputs:
    """A container that was handed one H100: no kernel log, no systemd."""
    host = _CONTAINER
    hidden = """kernels module-nvidia driver-firmware secure-boot reboot-required dkms initramfs kernel-log units clock
        firewall lspci packages holds device-users"""
    outputs = _machine(host, without=hidden.split())
    variables = "NVIDIA_VISIBLE_DEVICES=all\nNVIDIA_DRIVER_CAPABILITIES=compute,utility\n"
    outputs = change(outputs, "environment", "PATH=", f"{variables}PATH=")
    return replace_output(outputs, "kernel-log", status="denied", error="dmesg: read kernel buffer failed")


def cpu_only() -> Outputs:
    """A virtual machine without any GPU or driver."""
    return _machine(_WITHOUT_GPU)


def old_p100() -> Outputs:
    """Two P100 with the last driver branch for scripts of their day: page retirement instead of row remapping."""
    return _machine(_OLD_P100)


def hgx_b200() -> Outputs:
    """Eight B200 whose NVSwitches do not show on the bus: four functions of network adapters manage them."""
    return _machine(_HGX_B200)


def mixed_gpus() -> Outputs:
    """An L40S and a GeForce in one machine: what the one has the other need not have."""
    return _machine(_MIXED)


def gb10() -> Outputs:
    """A small computer whose processor and GPU share one memory: no memory, bars or power limits of its own."""
    return _machine(_SPARK)


def rocky_h100() -> Outputs:
    """Eight H100 under Rocky Linux with packages of rpm."""
    outputs = _machine(_ROCKY)
    return replace_output(outputs, "reboot-required", text="no\n")


def hgx_h100_without_root() -> Outputs:
    """The machine with eight H100, asked by a user who may not become root."""
    outputs = hgx_h100()
    outputs = fail(
        outputs, "kernel-log", status=DENIED, error="dmesg: read kernel buffer failed: Operation not permitted"
    )
    for probe in ("firewall", "initramfs", "fabric-manager", "device-users"):
        outputs = fail(outputs, probe, status=DENIED, error=f"{PROBES[probe].reads} may be read by root only")
    listing = re.sub(r"(?m)^\t(?:Capabilities:.*|\t.*)\n", "", outputs["lspci"].text)
    listing = re.sub(r"(?m)^(\tControl:.*\n)", r"\1\tCapabilities: <access denied>\n", listing)
    outputs = replace_output(outputs, "lspci", text=listing)
    ports = re.sub(r"(?m)^.* role .*\n", "", outputs["infiniband"].text)
    return replace_output(outputs, "infiniband", text=ports)


def wsl2() -> Outputs:
    """Linux inside Windows: the driver is that of Windows, without a kernel module or a GPU on the bus."""
    host = _with(
        _WORKSTATION,
        name="laptop",
        kernel="6.6.87.2-microsoft-standard-WSL2",
        older_kernel="",
        virtualization="wsl",
        vendor="",
        product="",
        driver="581.80",
        cuda_of_driver="13.0",
        has_persistence=True,
    )
    hidden = """driver-version driver-params driver-gpus driver-firmware module-nvidia dkms lspci secure-boot kernels
        initramfs nvidia-smi-topology"""
    outputs = _machine(host, without=hidden.split())
    bare = _with(host, driver="", gpus=())
    outputs |= {
        probe: replace(outputs[probe], text=text)
        for probe, text in (
            ("kernel-log", _kernel_log(bare)),
            ("modules", _modules(bare)),
            ("pci", _pci(_with(bare, model=None))),
            ("units", _units(bare)),
            ("packages", _lines("docker-ce-cli\t5:28.5.1-1~ubuntu.24.04~noble\tamd64\tinstalled")),
            ("holds", "unattended yes\n"),
        )
    }
    folder = "/usr/lib/wsl/lib"
    libraries = [f"{name}\t{folder}/{name}\t{name}\tldconfig" for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    others = [row for row in outputs["libraries"].text.splitlines() if host.driver not in row]
    outputs = replace_output(outputs, "libraries", text=_lines(*libraries, *others))
    return replace_output(outputs, "device-nodes", text="crw-rw-rw- 1 0 0 10, 125 Nov 20 08:00 /dev/dxg\n")


MACHINES: dict[str, Callable[[], Outputs]] = {
    "hgx_h100": hgx_h100,
    "hgx_a100": hgx_a100,
    "cloud_a10g": cloud_a10g,
    "workstation_rtx4090": workstation_rtx4090,
    "l40s_pcie": l40s_pcie,
    "gpu_container": gpu_container,
    "cpu_only": cpu_only,
    "old_p100": old_p100,
    "hgx_b200": hgx_b200,
    "mixed_gpus": mixed_gpus,
    "gb10": gb10,
    "rocky_h100": rocky_h100,
    "wsl2": wsl2,
}
"""Name → what makes it."""

_STACK = Expectation(
    driver_minimum="525.60.13",
    python="3.11",
    cuda="12.8",
    cudnn="9.10.2.21",
    nccl="2.27.3",
    frameworks={"torch": "2.8.0"},
    packages=_TORCH_28_CU128,
    sm=_WITH_TORCH_28["targets"],
)

EXPECTED: dict[str, Expectation] = {
    "hgx_h100": replace(
        _STACK,
        gpus=8,
        gpu="H100",
        driver="580.105.08",
        os="ubuntu22.04",
        has_toolkit=True,
        has_containers=True,
        container_image="nvidia/cuda:12.8.1-base-ubuntu22.04",
        rdma_gbit=400,
        is_mig=False,
        is_ecc=True,
        compute_mode="Default",
        needs_p2p=True,
        mtu=9000,
        interfaces=("eth0",),
        cluster_subnet="10.20.0.0/24",
        nccl_ports="50000-51000",
        has_exporter=True,
        has_textfile=True,
        has_dcgm=True,
    ),
    "hgx_a100": replace(
        _STACK,
        gpus=8,
        gpu="A100-SXM4-80GB",
        driver="535.274.02",
        os="ubuntu22.04",
        has_toolkit=True,
        has_containers=True,
        rdma_gbit=200,
        is_mig=False,
        is_ecc=True,
        needs_p2p=True,
        has_exporter=True,
        has_textfile=True,
        has_dcgm=True,
    ),
    "cloud_a10g": replace(
        _STACK,
        gpus=1,
        gpu="A10G",
        driver="535.274.02",
        os="ubuntu22.04",
        has_toolkit=True,
        has_containers=True,
        rdma_gbit=0,
        is_ecc=True,
        pcie_width=8,
        has_exporter=True,
        has_dcgm=True,
    ),
    "workstation_rtx4090": replace(
        _STACK,
        gpus=1,
        gpu="RTX 4090",
        os="ubuntu24.04",
        has_toolkit=True,
        has_containers=False,
        rdma_gbit=0,
        is_in_use=True,
        has_exporter=False,
        has_textfile=False,
        has_dcgm=False,
    ),
    "l40s_pcie": replace(
        _STACK,
        gpus=2,
        gpu="L40S",
        driver="580.105.08",
        os="ubuntu22.04",
        has_toolkit=True,
        has_containers=True,
        rdma_gbit=0,
        is_ecc=True,
        has_exporter=True,
        has_textfile=True,
        has_dcgm=True,
    ),
    "gpu_container": replace(
        _STACK, gpus=1, gpu="H100", os="debian12", has_toolkit=False, has_containers=False, rdma_gbit=0, is_ecc=True
    ),
    "cpu_only": Expectation(gpus=0, os="ubuntu22.04", has_containers=False, rdma_gbit=0),
    "old_p100": Expectation(
        gpus=2,
        gpu="P100",
        driver="470.256.02",
        os="ubuntu20.04",
        python="3.8",
        cuda="11.3",
        frameworks={"torch": "1.12.1"},
        has_toolkit=True,
        has_containers=False,
        rdma_gbit=0,
        is_ecc=True,
    ),
    "mixed_gpus": replace(_STACK, gpus=2, os="ubuntu22.04", has_toolkit=True, has_containers=True, rdma_gbit=0),
    "gb10": replace(
        _STACK,
        gpus=1,
        gpu="GB10",
        os="ubuntu24.04",
        has_toolkit=True,
        has_containers=False,
        rdma_gbit=0,
        is_in_use=True,
    ),
    "wsl2": replace(
        _STACK,
        gpus=1,
        gpu="RTX 4090",
        os="ubuntu24.04",
        has_toolkit=True,
        has_containers=False,
        rdma_gbit=0,
        is_in_use=True,
    ),
}
EXPECTED |= {
    "hgx_b200": replace(EXPECTED["hgx_h100"], gpu="B200", os="ubuntu24.04"),
    "rocky_h100": replace(EXPECTED["hgx_h100"], os="rocky9.6"),
}
"""Name of a machine → what was planned for it, so that the healthy one fits."""
