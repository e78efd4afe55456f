"""One target as it was at one moment: raw outputs, each parsed when it is first asked for.

Whoever asks for what was not brought back, or cannot be read, gets :class:`Unreadable` and nothing else: there is no
default that could pass for an answer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from provision.probe.catalogue import PROBES
from provision.probe.output import ABSENT, CUT, DENIED, FAILED, HUNG, LOST, NOT_RUN, Output, Unreadable
from provision.probe.parse.containers import (
    CdiSpec,
    ContainerdConfig,
    DockerConfig,
    ToolkitConfig,
    parse_cdi,
    parse_containerd_config,
    parse_docker_config,
    parse_toolkit_config,
)
from provision.probe.parse.driver import (
    KernelModule,
    LoadedDriver,
    NvidiaModule,
    ProcGpu,
    parse_driver_params,
    parse_gpu_information,
    parse_loaded_driver,
    parse_modules,
    parse_nvidia_module,
)
from provision.probe.parse.fabric_network import (
    Firewall,
    Interface,
    RdmaPort,
    parse_firewall,
    parse_infiniband_sysfs,
    parse_interfaces,
)
from provision.probe.parse.frameworks import (
    Framework,
    GpuWork,
    Nvcc,
    PythonEnvironment,
    parse_framework,
    parse_gpu_work,
    parse_nvcc,
    parse_python_environment,
)
from provision.probe.parse.kernel_log import KernelLog, parse_kernel_log
from provision.probe.parse.measurements import (
    BandwidthMatrix,
    DiagTest,
    Metric,
    NcclRun,
    parse_dcgmi_diag,
    parse_dcgmi_health,
    parse_metrics,
    parse_nccl_tests,
    parse_nvbandwidth,
)
from provision.probe.parse.nvidia_smi import Smi, parse_nvidia_smi
from provision.probe.parse.nvlink import NvlinkCounters, NvlinkState, parse_nvlink_errors, parse_nvlink_status
from provision.probe.parse.packages import (
    DkmsModule,
    Holds,
    Package,
    parse_dkms,
    parse_holds,
    parse_initramfs,
    parse_kernels,
    parse_packages,
)
from provision.probe.parse.pci import PciDevice, parse_lspci, parse_pci_sysfs
from provision.probe.parse.services import FabricManager, Unit, parse_fabric_manager, parse_units
from provision.probe.parse.system import (
    Clock,
    DeviceNode,
    FileSystem,
    Library,
    OsRelease,
    SecureBoot,
    Uname,
    Virtualization,
    parse_clock,
    parse_command_line,
    parse_device_nodes,
    parse_environment,
    parse_file_systems,
    parse_libraries,
    parse_limits,
    parse_lines,
    parse_number,
    parse_os_release,
    parse_reboot_required,
    parse_secure_boot,
    parse_uname,
    parse_virtualization,
)
from provision.probe.parse.topology import Topology, parse_topology
from provision.records import plain

__all__ = ["Shelf", "Snapshot"]

_Parsed = TypeVar("_Parsed")

_REASONS = {
    ABSENT: "is not on the target",
    DENIED: "may not be read by this user",
    HUNG: "did not answer in time",
    CUT: "printed more than is kept",
    LOST: "is not in the target's answer, which ended before it",
    NOT_RUN: "was not asked",
}


class Snapshot:
    """What one collector call brought from one target.

    Args:
        target: As the person named it.
        outputs: Probe → what it brought; one that is missing counts as not asked.
        collected: When, ISO with a zone, by the clock of the machine that asked; empty for hand-made ones.
        version: Version of the collector's format.
    """

    def __init__(self, target: str, outputs: Mapping[str, Output], *, collected: str = "", version: int = 1) -> None:
        self.target = target
        self.outputs = dict(outputs)
        self.collected = collected
        self.version = version
        self._parsed: dict[tuple[str, str], Any] = {}

    def output(self, probe: str) -> Output:
        """Return what a probe brought, whatever that is."""
        return self.outputs.get(probe) or Output(probe=probe, status=NOT_RUN)

    def has(self, probe: str) -> bool:
        """Tell whether a probe ended well."""
        return self.output(probe).status == "ok"

    def text(self, probe: str) -> str:
        """Return what a probe printed.

        Raises:
            Unreadable: It did not end well; the reason holds the first line it said.
        """
        output = self.output(probe)
        if output.status == "ok":
            return output.text
        what = PROBES[probe].reads if probe in PROBES else probe
        said = next((line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()), "")
        if output.status == FAILED:
            raise Unreadable(f"{what} ended with {output.code}{': ' if said else ''}{said}", probe=probe, status=FAILED)
        if output.status in (ABSENT, DENIED) and said:
            # The collector names the very tool or file.
            raise Unreadable(said, probe=probe, status=output.status)
        raise Unreadable(f"{what} {_REASONS[output.status]}", probe=probe, status=output.status)

    def narrow(self, probes: Container[str]) -> Snapshot:
        """Return the same target with some probes only, so that a thousand of them fit into memory."""
        kept = {name: output for name, output in self.outputs.items() if name in probes}
        return Snapshot(self.target, kept, collected=self.collected, version=self.version)

    def pack(self) -> bytes:
        """Return the snapshot in little room; :class:`Shelf` unpacks it."""
        outputs = [plain(output) for output in self.outputs.values()]
        document = [self.target, self.collected, self.version, outputs]
        return zlib.compress(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    def _read(self, probe: str, parse: Callable[[str], _Parsed], *, also_failed: bool = False) -> _Parsed:
        """Parse what a probe printed, once.

        Args:
            probe: Its id.
            parse: What reads it.
            also_failed: Take a document that is whole though the program ended with an error.
        """
        key = (probe, parse.__name__)
        if key not in self._parsed:
            try:
                self._parsed[key] = self._parse_failed(probe, parse) if also_failed else parse(self.text(probe))
            except Unreadable as error:
                status = error.status or "unreadable"
                self._parsed[key] = Unreadable(error.reason, probe=probe, status=status)
        found = self._parsed[key]
        if isinstance(found, Unreadable):
            raise Unreadable(found.reason, probe=found.probe, status=found.status)
        return found  # type: ignore[no-any-return]

    def _parse_failed(self, probe: str, parse: Callable[[str], _Parsed]) -> _Parsed:
        output = self.output(probe)
        if output.status == FAILED:
            with suppress(Unreadable):
                return parse(output.text)
        return parse(self.text(probe))

    @property
    def os_release(self) -> OsRelease:
        """The operating system."""
        return self._read("os-release", parse_os_release)

    @property
    def uname(self) -> Uname:
        """Kernel and machine."""
        return self._read("uname", parse_uname)

    @property
    def command_line(self) -> Mapping[str, str]:
        """The kernel's parameters."""
        return self._read("command-line", parse_command_line)

    @property
    def virtualization(self) -> Virtualization:
        """What stands between this and the hardware."""
        return self._read("virtualization", parse_virtualization)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernel releases that can be booted, lowest first."""
        return self._read("kernels", parse_kernels)

    @property
    def modules(self) -> tuple[KernelModule, ...]:
        """Loaded kernel modules."""
        return self._read("modules", parse_modules)

    @property
    def nvidia_module(self) -> NvidiaModule:
        """The nvidia module in memory and on disk."""
        return self._read("module-nvidia", parse_nvidia_module)

    @property
    def driver(self) -> LoadedDriver:
        """The driver that is loaded."""
        return self._read("driver-version", parse_loaded_driver)

    def find_driver_version(self) -> str:
        """Return the loaded driver's version: the kernel's word, or nvidia-smi's where WSL or a sandbox shows none.

        Raises:
            Unreadable: Neither tells it.
        """
        try:
            return self.driver.version
        except Unreadable as error:
            if error.status in (ABSENT, NOT_RUN):
                with suppress(Unreadable):
                    return self.find_smi_driver_version()
            raise

    def find_smi_driver_version(self) -> str:
        """Return the driver that nvidia-smi names.

        Raises:
            Unreadable: It names none, as a record that was cut down may.
        """
        version = self.smi.driver_version
        if version is None:
            raise Unreadable("nvidia-smi names no driver", probe="nvidia-smi-xml", status="unreadable")
        return version

    @property
    def driver_params(self) -> Mapping[str, str]:
        """The driver's parameters."""
        return self._read("driver-params", parse_driver_params)

    @property
    def driver_gpus(self) -> tuple[ProcGpu, ...]:
        """GPUs as the kernel module lists them."""
        return self._read("driver-gpus", parse_gpu_information)

    @property
    def firmware(self) -> tuple[str, ...]:
        """Driver versions whose firmware is on disk."""
        return self._read("driver-firmware", parse_lines)

    @property
    def secure_boot(self) -> SecureBoot:
        """Whether only signed modules load."""
        return self._read("secure-boot", parse_secure_boot)

    @property
    def reboot_required(self) -> tuple[str, ...] | None:
        """Packages that ask for a reboot; ``None`` when none is needed."""
        return self._read("reboot-required", parse_reboot_required)

    @property
    def packages(self) -> tuple[Package, ...]:
        """Installed packages that matter."""
        return self._read("packages", parse_packages)

    @property
    def holds(self) -> Holds:
        """What keeps packages from being upgraded on their own."""
        return self._read("holds", parse_holds)

    @property
    def dkms(self) -> tuple[DkmsModule, ...]:
        """Modules that DKMS builds."""
        return self._read("dkms", parse_dkms)

    @property
    def initramfs(self) -> tuple[str, ...]:
        """Versions of nvidia modules inside the initial RAM disk."""
        return self._read("initramfs", parse_initramfs)

    @property
    def kernel_log(self) -> KernelLog:
        """What the kernel said since boot."""
        return self._read("kernel-log", parse_kernel_log)

    @property
    def units(self) -> Mapping[str, Unit]:
        """Services around GPUs."""
        return self._read("units", parse_units)

    @property
    def fabric_manager(self) -> FabricManager:
        """Fabric manager and its log."""
        return self._read("fabric-manager", parse_fabric_manager)

    @property
    def limits(self) -> Mapping[str, int | None]:
        """Limits of a process; ``None`` for unlimited."""
        return self._read("limits", parse_limits)

    @property
    def file_systems(self) -> tuple[FileSystem, ...]:
        """Mounted file systems."""
        return self._read("file-systems", parse_file_systems)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that matter."""
        return self._read("environment", parse_environment)

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Shared libraries that programs would load."""
        return self._read("libraries", parse_libraries)

    @property
    def device_nodes(self) -> tuple[DeviceNode, ...]:
        """Device nodes of the driver."""
        return self._read("device-nodes", parse_device_nodes)

    @property
    def pci(self) -> tuple[PciDevice, ...]:
        """PCI devices from sysfs, or from lspci in a record of a machine that has nothing else."""
        if self.output("pci").status == NOT_RUN and self.has("lspci"):
            return self.lspci
        return self._read("pci", parse_pci_sysfs)

    @property
    def lspci(self) -> tuple[PciDevice, ...]:
        """PCI devices from lspci, with what sysfs does not tell."""
        return self._read("lspci", parse_lspci)

    @property
    def clock(self) -> Clock:
        """Whether the clock is kept."""
        return self._read("clock", parse_clock)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """Network interfaces."""
        return self._read("interfaces", parse_interfaces)

    @property
    def firewall(self) -> Firewall:
        """What filters packets."""
        return self._read("firewall", parse_firewall)

    @property
    def rdma_ports(self) -> tuple[RdmaPort, ...]:
        """Ports of RDMA devices."""
        return self._read("infiniband", parse_infiniband_sysfs)

    @property
    def smi(self) -> Smi:
        """What nvidia-smi says, also where it complains about one of the GPUs and ends with an error."""
        return self._read("nvidia-smi-xml", parse_nvidia_smi, also_failed=True)

    @property
    def topology(self) -> Topology:
        """How devices reach each other."""
        return self._read("nvidia-smi-topology", parse_topology)

    @property
    def p2p(self) -> Topology:
        """Whether GPUs can read each other's memory."""
        return self._read("nvidia-smi-p2p", parse_topology)

    @property
    def nvlinks(self) -> tuple[NvlinkState, ...]:
        """State of the NVLinks."""
        return self._read("nvlink-status", parse_nvlink_status)

    @property
    def nvlink_errors(self) -> tuple[NvlinkCounters, ...]:
        """Error counters of the NVLinks."""
        return self._read("nvlink-errors", parse_nvlink_errors)

    @property
    def nvlink_errors_later(self) -> tuple[NvlinkCounters, ...]:
        """Error counters of the NVLinks after the GPUs have worked."""
        return self._read("nvlink-errors-later", parse_nvlink_errors)

    @property
    def nvcc(self) -> Nvcc:
        """The CUDA compiler."""
        return self._read("nvcc", parse_nvcc)

    @property
    def docker(self) -> DockerConfig:
        """Docker's configuration."""
        return self._read("docker-config", parse_docker_config)

    @property
    def docker_info(self) -> DockerConfig:
        """Docker as it runs."""
        return self._read("docker-info", parse_docker_config)

    @property
    def containerd(self) -> ContainerdConfig:
        """Containerd's configuration."""
        return self._read("containerd-config", parse_containerd_config)

    @property
    def toolkit(self) -> ToolkitConfig:
        """The container toolkit's version."""
        return self._read("toolkit", parse_toolkit_config)

    @property
    def toolkit_config(self) -> ToolkitConfig:
        """The container toolkit's configuration."""
        return self._read("toolkit-config", parse_toolkit_config)

    @property
    def cdi(self) -> tuple[CdiSpec, ...]:
        """CDI specifications."""
        return self._read("cdi", parse_cdi)

    @property
    def exporter(self) -> tuple[Metric, ...]:
        """Metrics of dcgm-exporter."""
        return self._read("exporter", parse_metrics)

    @property
    def textfile_age_seconds(self) -> float:
        """Age of the metrics that verify left for node_exporter."""
        return self._read("textfile", parse_number)

    @property
    def python(self) -> PythonEnvironment:
        """The interpreter and its distributions."""
        return self._read("python", parse_python_environment)

    @property
    def torch(self) -> Framework:
        """PyTorch."""
        return self._read("torch", parse_framework)

    @property
    def tensorflow(self) -> Framework:
        """TensorFlow."""
        return self._read("tensorflow", parse_framework)

    @property
    def jax(self) -> Framework:
        """JAX."""
        return self._read("jax", parse_framework)

    @property
    def cuda_work(self) -> GpuWork:
        """A kernel through libcuda on each GPU."""
        return self._read("cuda-work", parse_gpu_work)

    @property
    def torch_work(self) -> GpuWork:
        """PyTorch at work on each GPU."""
        return self._read("torch-work", parse_gpu_work)

    @property
    def torch_nccl(self) -> GpuWork:
        """PyTorch over all local GPUs."""
        return self._read("torch-nccl", parse_gpu_work)

    @property
    def nccl_pair(self) -> GpuWork:
        """PyTorch over two hosts."""
        return self._read("nccl-pair", parse_gpu_work)

    @property
    def container_gpus(self) -> tuple[str, ...]:
        """GPUs that a container sees."""
        return self._read("container-gpu", parse_lines)

    @property
    def daemon_reload(self) -> tuple[str, ...]:
        """GPUs a container sees after systemctl daemon-reload."""
        return self._read("daemon-reload", parse_lines)

    @property
    def ports(self) -> tuple[str, ...]:
        """Answers of other hosts: ``host port open|refused|silent``."""
        return self._read("ports", parse_lines)

    @property
    def device_users(self) -> tuple[str, ...]:
        """Processes on /dev/nvidia*: ``pid name``."""
        return self._read("device-users", parse_lines)

    @property
    def diag(self) -> tuple[DiagTest, ...]:
        """DCGM's diagnostics, level 1."""
        return self._read("dcgmi-diag", parse_dcgmi_diag)

    @property
    def diag_2(self) -> tuple[DiagTest, ...]:
        """DCGM's diagnostics, level 2."""
        return self._read("dcgmi-diag-2", parse_dcgmi_diag)

    @property
    def diag_3(self) -> tuple[DiagTest, ...]:
        """DCGM's diagnostics, level 3."""
        return self._read("dcgmi-diag-3", parse_dcgmi_diag)

    def read_health(self) -> tuple[DiagTest, ...]:
        """Return what DCGM's watches found wrong; the collector does not ask, and only records of others hold it."""
        return self._read("dcgmi-health", parse_dcgmi_health)

    @property
    def nvbandwidth(self) -> tuple[BandwidthMatrix, ...]:
        """Copies between memories."""
        return self._read("nvbandwidth", parse_nvbandwidth)

    @property
    def nccl_tests(self) -> NcclRun:
        """All-reduce over the local GPUs."""
        return self._read("nccl-tests", parse_nccl_tests)


class Shelf(Mapping[str, Snapshot]):
    """Snapshots of many targets in little room, in the order in which they were put here.

    Each look unpacks one and keeps nothing of what is parsed from it, so that comparing a thousand hosts takes no more
    memory than looking at one.
    """

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def put(self, host: Snapshot) -> None:
        """Add a target, or replace what was known of it."""
        self._packed[host.target] = host.pack()

    def __getitem__(self, target: str) -> Snapshot:
        """Return one target's snapshot, made anew."""
        name, collected, version, outputs = json.loads(zlib.decompress(self._packed[target]))
        found = {row["probe"]: Output(**row) for row in outputs}
        return Snapshot(name, found, collected=collected, version=version)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the targets' names."""
        return iter(self._packed)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._packed)
