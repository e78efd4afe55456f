"""A sandbox or a security module forbids the program to open the driver's nodes."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"/dev/nvidia[a-z0-9-]{0,16}.{0,60}(?:EACCES|EPERM|Permission denied|Operation not permitted)",
    r"(?:EACCES|EPERM|Permission denied|Operation not permitted).{0,60}/dev/nvidia",
    r"cuInit.{0,40}\b304\b",
    r"OS call failed or operation not supported on this OS",
    r"cudaErrorOperatingSystem|CUDA_ERROR_OPERATING_SYSTEM",
    r"Failed to initialize NVML: Insufficient Permissions",
)

_OPEN_TO_ALL = 0o006


def examine(case: Case) -> Sign | None:
    """Look whether the nodes' own modes would let the program in: then something above them does not."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    nodes = case.look(lambda host: host.device_nodes) or ()
    expected = "/dev/nvidiactl, /dev/nvidia-uvm and the GPUs' nodes open for reading and writing"
    closed = [
        node
        for node in nodes
        if node.path.startswith("/dev/nvidia") and node.kind == "character" and node.mode is not None
        if node.mode & _OPEN_TO_ALL != _OPEN_TO_ALL
    ]
    if closed:
        return hint(
            quote,
            confidence="high",
            seen=(f"{closed[0].path} has mode {closed[0].mode:o}, owner {closed[0].owner}, group {closed[0].group}",),
            expected=expected,
            fix=(
                f"Put the program's user into the group of {closed[0].path}, or let the driver make the nodes for all:"
                " `NVreg_DeviceFileMode=0666` in its modprobe options.",
            ),
        )
    unseen = () if nodes else ("the nodes' modes: `ls -l /dev/nvidia*`",)
    seen = ("the nodes' own modes let every user in",) if nodes else ()
    return hint(quote, seen=seen, expected=expected, unseen=unseen)
