"""The parsers by the name of the tool whose output they read, for text that was recorded somewhere else.

``provision probe --parse TOOL FILE`` goes through this table, so that what a person pasted is read by the same code as
what the collector brought.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from provision.errors import UsageError
from provision.records import fields_of, record

_PAIRS = "Mapping[tuple"


@record
class Tool:
    """A tool whose output can be read.

    Attributes:
        parser: ``module:function`` below ``provision.probe.parse``; imported when it is first needed.
        reads: What the text is, for people.
    """

    parser: str
    reads: str


TOOLS: dict[str, Tool] = {
    "cdi": Tool(
        parser="containers:parse_cdi_file", reads="a CDI specification, or several, each below `== PATH SECONDS`"
    ),
    "clock": Tool(parser="system:parse_clock", reads="timedatectl show, or chronyc tracking"),
    "command-line": Tool(parser="system:parse_command_line", reads="/proc/cmdline"),
    "containerd": Tool(parser="containers:parse_containerd_config", reads="/etc/containerd/config.toml"),
    "dcgmi": Tool(parser="measurements:parse_dcgmi_diag", reads="dcgmi diag -j"),
    "dcgmi-health": Tool(parser="measurements:parse_dcgmi_health", reads="dcgmi health -c -j"),
    "device-nodes": Tool(parser="system:parse_device_nodes", reads="ls -ln of nodes below /dev"),
    "df": Tool(parser="system:parse_file_systems", reads="df -kP"),
    "dkms": Tool(parser="packages:parse_dkms", reads="dkms status"),
    "dmesg": Tool(parser="kernel_log:parse_kernel_log", reads="dmesg, journalctl -k, or a syslog"),
    "docker-daemon": Tool(parser="containers:parse_docker_config", reads="/etc/docker/daemon.json"),
    "docker-info": Tool(parser="containers:parse_docker_config", reads="docker info --format '{{json .}}'"),
    "dpkg": Tool(parser="packages:parse_dpkg_list", reads="dpkg -l"),
    "driver-gpus": Tool(
        parser="driver:parse_gpu_information",
        reads="/proc/driver/nvidia/gpus/*/information, each below a line `== ADDRESS`",
    ),
    "driver-params": Tool(parser="driver:parse_driver_params", reads="/proc/driver/nvidia/params"),
    "driver-version": Tool(parser="driver:parse_loaded_driver", reads="/proc/driver/nvidia/version"),
    "fabric-manager-log": Tool(parser="services:parse_fabric_manager", reads="/var/log/fabricmanager.log"),
    "firewall": Tool(
        parser="fabric_network:parse_firewall",
        reads="listings of nft, iptables -S, ufw, firewall-cmd, each below a line `== TOOL`",
    ),
    "framework": Tool(parser="frameworks:parse_framework", reads="the payload that imports a framework"),
    "gpu-work": Tool(parser="frameworks:parse_gpu_work", reads="a payload that makes GPUs work"),
    "ibstat": Tool(parser="fabric_network:parse_ibstat", reads="ibstat"),
    "ldconfig": Tool(parser="system:parse_ldconfig", reads="ldconfig -p"),
    "lspci": Tool(parser="pci:parse_lspci", reads="lspci -nn, with any number of -v"),
    "modules": Tool(parser="driver:parse_modules", reads="/proc/modules, or lsmod"),
    "nccl-tests": Tool(parser="measurements:parse_nccl_tests", reads="all_reduce_perf and the like, text or -J"),
    "nvbandwidth": Tool(parser="measurements:parse_nvbandwidth", reads="nvbandwidth, text or -j"),
    "nvcc": Tool(parser="frameworks:parse_nvcc", reads="nvcc --version"),
    "nvidia-smi": Tool(parser="nvidia_smi:parse_nvidia_smi", reads="nvidia-smi: the table, -q, or -q -x"),
    "nvidia-smi-text": Tool(parser="nvidia_smi:parse_nvidia_smi_text", reads="nvidia-smi -q"),
    "nvidia-smi-topo": Tool(parser="topology:parse_topology", reads="nvidia-smi topo -m, or topo -p2p r"),
    "nvidia-smi-xml": Tool(parser="nvidia_smi:parse_nvidia_smi_xml", reads="nvidia-smi -q -x"),
    "nvlink": Tool(parser="nvlink:parse_nvlink_status", reads="nvidia-smi nvlink -s"),
    "nvlink-errors": Tool(parser="nvlink:parse_nvlink_errors", reads="nvidia-smi nvlink -e"),
    "os-release": Tool(parser="system:parse_os_release", reads="/etc/os-release"),
    "prometheus": Tool(parser="measurements:parse_metrics", reads="metrics in the Prometheus text format"),
    "python": Tool(parser="frameworks:parse_python_environment", reads="the payload that lists distributions"),
    "rpm": Tool(parser="packages:parse_rpm_list", reads="rpm -qa"),
    "secure-boot": Tool(parser="system:parse_secure_boot", reads="mokutil --sb-state"),
    "systemctl": Tool(parser="services:parse_units", reads="systemctl show of one or several units"),
    "toolkit-config": Tool(
        parser="containers:parse_toolkit_config",
        reads="/etc/nvidia-container-runtime/config.toml, or nvidia-ctk --version",
    ),
    "uname": Tool(parser="system:parse_uname", reads="uname -srm"),
}
"""Name of a tool → what reads its output, by name."""


def parse_recorded(tool: str, text: str) -> object:
    """Read recorded text with the parser of a tool.

    Args:
        tool: A key of :data:`TOOLS`.
        text: What the tool printed.

    Returns:
        Plain data, ready for JSON.

    Raises:
        UsageError: No tool has that name.
        Unreadable: The text is not that tool's.
    """
    if tool not in TOOLS:
        from difflib import get_close_matches

        close = get_close_matches(tool, TOOLS, n=1)
        hints = [f"did you mean `{close[0]}`?"] if close else []
        raise UsageError(f"no parser is called `{tool}`", hints=[*hints, f"choose among {', '.join(TOOLS)}"])
    from importlib import import_module

    module, _, function = TOOLS[tool].parser.partition(":")
    return to_json(getattr(import_module(f"provision.probe.parse.{module}"), function)(text))


def to_json(value: Any) -> Any:
    """Return a record and all it holds as what JSON has.

    A field that maps pairs of things becomes a list of ``from``, ``to`` and ``value``, empty or not; a set becomes a
    sorted list, and a number that JSON cannot write ``null``.
    """
    if hasattr(value, "__record_fields__"):
        return {
            name: _between_pairs(getattr(value, name)) if kind.startswith(_PAIRS) else to_json(getattr(value, name))
            for name, (kind, _) in fields_of(type(value)).items()
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((to_json(item) for item in value), key=str)
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not float("-inf") < value < float("inf"):
        return None
    return value


def _between_pairs(value: Mapping[tuple[Any, Any], Any]) -> list[dict[str, Any]]:
    return [{"from": start, "to": end, "value": to_json(item)} for (start, end), item in value.items()]
