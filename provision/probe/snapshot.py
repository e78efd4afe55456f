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
    parse_cdi,
    parse_containerd_config,
    parse_docker_config,
    parse_toolkit_config,
)
from provision.probe.parse.driver import (
    parse_driver_params,
    parse_gpu_information,
    parse_loaded_driver,
    parse_modules,
    parse_nvidia_module,
)
from provision.probe.parse.fabric_network import (
    parse_firewall,
    parse_infiniband_sysfs,
    parse_interfaces,
)
from provision.probe.parse.frameworks import (
    parse_framework,
    parse_gpu_work,
    parse_nvcc,
    parse_python_environment,
)
from provision.probe.parse.kernel_log import parse_kernel_log
from provision.probe.parse.measurements import (
    DiagTest,
    parse_dcgmi_diag,
    parse_dcgmi_health,
    parse_metrics,
    parse_nccl_tests,
    parse_nvbandwidth,
)
from provision.probe.parse.nvidia_smi import parse_nvidia_smi
from provision.probe.parse.nvlink import parse_nvlink_errors, parse_nvlink_status
from provision.probe.parse.packages import (
    parse_dkms,
    parse_holds,
    parse_initramfs,
    parse_kernels,
    parse_packages,
)
from provision.probe.parse.pci import PciDevice, parse_lspci, parse_pci_sysfs
from provision.probe.parse.services import parse_fabric_manager, parse_units
from provision.probe.parse.system import (
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
from provision.probe.parse.topology import parse_topology
from provision.records import plain

_Parsed = TypeVar("_Parsed")

_REASONS = {
    ABSENT: "is not on the target",
    DENIED: "may not be read by this user",
    HUNG: "did not answer in time",
    CUT: "printed more than is kept",
    LOST: "is not in the target's answer, which ended before it",
    NOT_RUN: "was not asked",
}


def _reads(probe: str, parse: Callable[[str], _Parsed], what: str, *, also_failed: bool = False) -> _Parsed:
    """Return a property of a snapshot: what a probe printed, parsed once.

    Args:
        probe: Its id.
        parse: What reads it.
        what: What the property is, in a sentence without a full stop.
        also_failed: Take a document that is whole though the program ended with an error.
    """
    # A type checker sees the value that the property has.
    return property(lambda host: host._read(probe, parse, also_failed=also_failed), doc=f"{what}.")  # type: ignore[return-value]


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

    os_release = _reads("os-release", parse_os_release, "The operating system")
    uname = _reads("uname", parse_uname, "Kernel and machine")
    command_line = _reads("command-line", parse_command_line, "The kernel's parameters")
    virtualization = _reads("virtualization", parse_virtualization, "What stands between this and the hardware")
    kernels = _reads("kernels", parse_kernels, "Kernel releases that can be booted, lowest first")
    modules = _reads("modules", parse_modules, "Loaded kernel modules")
    nvidia_module = _reads("module-nvidia", parse_nvidia_module, "The nvidia module in memory and on disk")
    driver = _reads("driver-version", parse_loaded_driver, "The driver that is loaded")

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

    driver_params = _reads("driver-params", parse_driver_params, "The driver's parameters")
    driver_gpus = _reads("driver-gpus", parse_gpu_information, "GPUs as the kernel module lists them")
    firmware = _reads("driver-firmware", parse_lines, "Driver versions whose firmware is on disk")
    secure_boot = _reads("secure-boot", parse_secure_boot, "Whether only signed modules load")
    reboot_required = _reads(
        "reboot-required", parse_reboot_required, "Packages that ask for a reboot; ``None`` when none is needed"
    )
    packages = _reads("packages", parse_packages, "Installed packages that matter")
    holds = _reads("holds", parse_holds, "What keeps packages from being upgraded on their own")
    dkms = _reads("dkms", parse_dkms, "Modules that DKMS builds")
    initramfs = _reads("initramfs", parse_initramfs, "Versions of nvidia modules inside the initial RAM disk")
    kernel_log = _reads("kernel-log", parse_kernel_log, "What the kernel said since boot")
    units = _reads("units", parse_units, "Services around GPUs")
    fabric_manager = _reads("fabric-manager", parse_fabric_manager, "Fabric manager and its log")
    limits = _reads("limits", parse_limits, "Limits of a process; ``None`` for unlimited")
    file_systems = _reads("file-systems", parse_file_systems, "Mounted file systems")
    environment = _reads("environment", parse_environment, "Variables that matter")
    libraries = _reads("libraries", parse_libraries, "Shared libraries that programs would load")
    device_nodes = _reads("device-nodes", parse_device_nodes, "Device nodes of the driver")

    @property
    def pci(self) -> tuple[PciDevice, ...]:
        """PCI devices from sysfs, or from lspci in a record of a machine that has nothing else."""
        if self.output("pci").status == NOT_RUN and self.has("lspci"):
            return self.lspci
        return self._read("pci", parse_pci_sysfs)

    lspci = _reads("lspci", parse_lspci, "PCI devices from lspci, with what sysfs does not tell")
    clock = _reads("clock", parse_clock, "Whether the clock is kept")
    interfaces = _reads("interfaces", parse_interfaces, "Network interfaces")
    firewall = _reads("firewall", parse_firewall, "What filters packets")
    rdma_ports = _reads("infiniband", parse_infiniband_sysfs, "Ports of RDMA devices")
    smi = _reads(
        "nvidia-smi-xml",
        parse_nvidia_smi,
        "What nvidia-smi says, also where it complains about one of the GPUs and ends with an error",
        also_failed=True,
    )
    topology = _reads("nvidia-smi-topology", parse_topology, "How devices reach each other")
    p2p = _reads("nvidia-smi-p2p", parse_topology, "Whether GPUs can read each other's memory")
    nvlinks = _reads("nvlink-status", parse_nvlink_status, "State of the NVLinks")
    nvlink_errors = _reads("nvlink-errors", parse_nvlink_errors, "Error counters of the NVLinks")
    nvlink_errors_later = _reads(
        "nvlink-errors-later", parse_nvlink_errors, "Error counters of the NVLinks after the GPUs have worked"
    )
    nvcc = _reads("nvcc", parse_nvcc, "The CUDA compiler")
    docker = _reads("docker-config", parse_docker_config, "Docker's configuration")
    docker_info = _reads("docker-info", parse_docker_config, "Docker as it runs")
    containerd = _reads("containerd-config", parse_containerd_config, "Containerd's configuration")
    toolkit = _reads("toolkit", parse_toolkit_config, "The container toolkit's version")
    toolkit_config = _reads("toolkit-config", parse_toolkit_config, "The container toolkit's configuration")
    cdi = _reads("cdi", parse_cdi, "CDI specifications")
    exporter = _reads("exporter", parse_metrics, "Metrics of dcgm-exporter")
    textfile_age_seconds = _reads("textfile", parse_number, "Age of the metrics that verify left for node_exporter")
    python = _reads("python", parse_python_environment, "The interpreter and its distributions")
    torch = _reads("torch", parse_framework, "PyTorch")
    tensorflow = _reads("tensorflow", parse_framework, "TensorFlow")
    jax = _reads("jax", parse_framework, "JAX")
    cuda_work = _reads("cuda-work", parse_gpu_work, "A kernel through libcuda on each GPU")
    torch_work = _reads("torch-work", parse_gpu_work, "PyTorch at work on each GPU")
    torch_nccl = _reads("torch-nccl", parse_gpu_work, "PyTorch over all local GPUs")
    nccl_pair = _reads("nccl-pair", parse_gpu_work, "PyTorch over two hosts")
    container_gpus = _reads("container-gpu", parse_lines, "GPUs that a container sees")
    daemon_reload = _reads("daemon-reload", parse_lines, "GPUs a container sees after systemctl daemon-reload")
    ports = _reads("ports", parse_lines, "Answers of other hosts: ``host port open|refused|silent``")
    device_users = _reads("device-users", parse_lines, "Processes on /dev/nvidia*: ``pid name``")
    diag = _reads("dcgmi-diag", parse_dcgmi_diag, "DCGM's diagnostics, level 1")
    diag_2 = _reads("dcgmi-diag-2", parse_dcgmi_diag, "DCGM's diagnostics, level 2")
    diag_3 = _reads("dcgmi-diag-3", parse_dcgmi_diag, "DCGM's diagnostics, level 3")

    def read_health(self) -> tuple[DiagTest, ...]:
        """Return what DCGM's watches found wrong; the collector does not ask, and only records of others hold it."""
        return self._read("dcgmi-health", parse_dcgmi_health)

    nvbandwidth = _reads("nvbandwidth", parse_nvbandwidth, "Copies between memories")
    nccl_tests = _reads("nccl-tests", parse_nccl_tests, "All-reduce over the local GPUs")


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
