"""What the collector can be asked: probe by probe, with its level and its time limit.

The commands themselves are in ``collector.sh``; a test holds the two lists equal.
"""

from __future__ import annotations

from provision.records import record

LEVELS = ("quick", "standard", "deep")
"""Quick reads only. Standard makes the GPUs work for seconds. Deep takes minutes."""


@record
class Probe:
    """One probe.

    Attributes:
        level: The lowest level at which it runs.
        seconds: After this it is ended and reported as hung.
        is_exclusive: It keeps the GPUs busy, so it runs alone and after the quick ones.
        reads: What it looks at, for people.
    """

    level: str = "quick"
    seconds: int = 10
    is_exclusive: bool = False
    reads: str


PROBES: dict[str, Probe] = {
    "os-release": Probe(reads="/etc/os-release"),
    "uname": Probe(reads="uname -srm"),
    "command-line": Probe(reads="/proc/cmdline"),
    "virtualization": Probe(reads="systemd-detect-virt, DMI names, container marks"),
    "kernels": Probe(reads="kernel releases below /boot or /lib/modules that can be booted"),
    "modules": Probe(reads="/proc/modules"),
    "module-nvidia": Probe(reads="/sys/module/nvidia, modinfo nvidia"),
    "driver-version": Probe(reads="/proc/driver/nvidia/version"),
    "driver-params": Probe(reads="/proc/driver/nvidia/params"),
    "driver-gpus": Probe(reads="/proc/driver/nvidia/gpus/*/information"),
    "driver-firmware": Probe(reads="versions below /lib/firmware/nvidia"),
    "secure-boot": Probe(reads="mokutil --sb-state, the SecureBoot variable"),
    "reboot-required": Probe(reads="/run/reboot-required, needs-restarting -r"),
    "packages": Probe(reads="installed packages of drivers, CUDA, kernels, container engines"),
    "holds": Probe(reads="apt-mark showhold, unattended upgrades, dnf versionlock"),
    "dkms": Probe(reads="dkms status"),
    "initramfs": Probe(seconds=20, reads="nvidia modules inside the initial RAM disk of the running kernel"),
    "kernel-log": Probe(reads="dmesg or journalctl -k -b, lines that concern GPUs"),
    "units": Probe(reads="systemctl show of the services around GPUs"),
    "fabric-manager": Probe(reads="nv-fabricmanager --version, the end of its log"),
    "limits": Probe(reads="ulimit -l, ulimit -n, the size of /dev/shm"),
    "file-systems": Probe(reads="df -kP"),
    "environment": Probe(reads="variables of CUDA, NCCL, the loader and the frameworks"),
    "libraries": Probe(reads="CUDA, cuDNN, NCCL and driver libraries that the loader finds"),
    "device-nodes": Probe(reads="/dev/nvidia*, links for them in /dev/char"),
    "device-users": Probe(reads="processes that hold /dev/nvidia*"),
    "pci": Probe(reads="/sys/bus/pci/devices: NVIDIA, network cards and the bridges above them"),
    "lspci": Probe(reads="lspci -Dvvnn of the same devices"),
    "clock": Probe(reads="timedatectl, chronyc tracking, date"),
    "interfaces": Probe(reads="/sys/class/net"),
    "firewall": Probe(reads="nft, iptables, ufw, firewalld, the local port range"),
    "infiniband": Probe(reads="/sys/class/infiniband"),
    "nvidia-smi-xml": Probe(seconds=20, reads="nvidia-smi -q -x without the supported clocks"),
    "nvidia-smi-topology": Probe(reads="nvidia-smi topo -m"),
    "nvidia-smi-p2p": Probe(reads="nvidia-smi topo -p2p r"),
    "nvlink-status": Probe(reads="nvidia-smi nvlink -s"),
    "nvlink-errors": Probe(reads="nvidia-smi nvlink -e"),
    "nvcc": Probe(reads="nvcc --version"),
    "docker-config": Probe(reads="/etc/docker/daemon.json"),
    "containerd-config": Probe(reads="/etc/containerd/config.toml"),
    "toolkit": Probe(reads="nvidia-ctk --version"),
    "toolkit-config": Probe(reads="/etc/nvidia-container-runtime/config.toml"),
    "cdi": Probe(reads="/etc/cdi and /var/run/cdi"),
    "exporter": Probe(reads="the metrics of dcgm-exporter on this host"),
    "textfile": Probe(reads="the age of provision.prom in node_exporter's folder"),
    "python": Probe(seconds=20, reads="the interpreter and its distributions"),
    "torch": Probe(seconds=60, reads="import torch, what it was built for, what it sees"),
    "tensorflow": Probe(seconds=90, reads="import tensorflow, likewise"),
    "jax": Probe(seconds=60, reads="import jax, likewise"),
    "docker-info": Probe(level="standard", seconds=15, reads="docker info"),
    "cuda-work": Probe(level="standard", seconds=60, is_exclusive=True, reads="a kernel through libcuda on each GPU"),
    "torch-work": Probe(
        level="standard", seconds=180, is_exclusive=True, reads="products, a convolution and copies on each GPU"
    ),
    "torch-nccl": Probe(level="standard", seconds=120, is_exclusive=True, reads="an all-reduce over the local GPUs"),
    "container-gpu": Probe(
        level="standard", seconds=60, is_exclusive=True, reads="nvidia-smi -L in a container with all GPUs"
    ),
    "ports": Probe(level="standard", seconds=20, reads="connections to the other hosts on NCCL's ports"),
    "dcgmi-diag": Probe(level="standard", seconds=300, is_exclusive=True, reads="dcgmi diag -r 1 -j"),
    "nvbandwidth": Probe(level="standard", seconds=180, is_exclusive=True, reads="nvbandwidth -j"),
    "dcgmi-diag-2": Probe(level="deep", seconds=900, is_exclusive=True, reads="dcgmi diag -r 2 -j"),
    "dcgmi-diag-3": Probe(level="deep", seconds=3600, is_exclusive=True, reads="dcgmi diag -r 3 -j"),
    "nccl-tests": Probe(
        level="deep", seconds=900, is_exclusive=True, reads="all_reduce_perf over the local GPUs up to 8 GiB"
    ),
    "nccl-pair": Probe(level="deep", seconds=300, is_exclusive=True, reads="an all-reduce with one other host"),
    "nvlink-errors-later": Probe(
        level="standard", is_exclusive=True, reads="nvidia-smi nvlink -e, after the GPUs have worked"
    ),
    "daemon-reload": Probe(
        level="deep", seconds=60, is_exclusive=True, reads="a container's GPUs after systemctl daemon-reload"
    ),
}
"""Probe → what is known of it, in the order of the collector."""


def probes_of(level: str) -> tuple[str, ...]:
    """Return the probes that run at a level, those of the levels below it included."""
    highest = LEVELS.index(level)
    return tuple(name for name, probe in PROBES.items() if LEVELS.index(probe.level) <= highest)
