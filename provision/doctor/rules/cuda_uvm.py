"""The module for unified memory is not loaded, has no device node, or broke over a suspend."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"CUDA unknown error - this may be due to an incorrectly set up environment",
    r"CUDA_ERROR_UNKNOWN",
    r"cuInit.{0,60}\b999\b",
    r"\berror:? 999\b",
    r"cudaErrorUnknown",
)


def examine(case: Case) -> Sign | None:
    """Look whether nvidia_uvm is loaded and its node is there.

    Both come with the first CUDA program on many hosts, so that they are missing counts only beside a complaint.
    """
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    modules = case.look(lambda host: host.modules)
    nodes = case.look(lambda host: host.device_nodes)
    names = {module.name for module in modules} if modules is not None else set()
    seen = []
    if "nvidia" in names and "nvidia_uvm" not in names:
        seen.append("the module nvidia_uvm is not loaded")
    if nodes and not any(node.path == "/dev/nvidia-uvm" for node in nodes):
        seen.append("/dev/nvidia-uvm is missing")
    asleep = case.events("suspend")
    if asleep:
        seen.append("the host was suspended since it booted")
    expected = "nvidia_uvm loaded, and /dev/nvidia-uvm"
    reload = (
        "Load it afresh, after every program on the GPU has ended: `modprobe -r nvidia_uvm && modprobe nvidia_uvm`.",
    )
    if seen:
        return Sign(
            confidence="high" if len(seen) > len(asleep[:1]) else "medium",
            seen=(*seen, *quoted(quote)),
            expected=expected,
            fix=reload if asleep and len(seen) == 1 else (),
        )
    is_whole = "nvidia_uvm" in names and bool(nodes)
    unseen = (
        () if is_whole else ("whether the module and its node are there: `lsmod | grep uvm; ls -l /dev/nvidia-uvm`",)
    )
    return hint(quote, confidence="low" if is_whole else "medium", expected=expected, unseen=unseen)
