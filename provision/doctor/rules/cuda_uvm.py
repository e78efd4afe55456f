"""The module for unified memory is not loaded, has no device node, or broke over a suspend."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"CUDA unknown error - this may be due to an incorrectly set up environment",
    r"CUDA_ERROR_UNKNOWN",
    r"cuInit.{0,60}\b999\b",
    r"\berror:? 999\b",
    r"cudaErrorUnknown",
    r"(?:ggml_cuda_init|cuInit|cudaGetDeviceCount|initiali[sz]e CUDA).{0,60}\bunknown error\b(?! \()",
    r"init(?:iali[sz]ation)? failure: (?:3|999)\b",
    r"CUDA error: unknown error",
    r"cuda runtime error \(30\)",
    r"cuInit.{0,40}CUDA_ERROR_NOT_INITIALIZED",
    r"\bCUDA\b.{0,40}\b(?:fail|broken|lost|unavailable|not (?:work|found|available))\w{0,6}\b.{0,40}"
    r" (?:after|since) (?:a |the )?(?:suspend|hibernat|resum\w{1,4} from (?:suspend|sleep|hibernat))",
    r"cudaGetDeviceCount\(?\)? returned 3\b",
)


def examine(case: Case) -> Sign | None:
    """Look whether nvidia_uvm is loaded and its node is there.

    Both come with the first CUDA program on many hosts, so that a missing one is only a note without a complaint; in a
    container nothing makes the node later.
    """
    quote = case.find(*SYMPTOMS)
    modules = case.look(lambda host: host.modules)
    faults = case.faults("gpu.devnodes/uvm")
    names = {module.name for module in modules} if modules is not None else set()
    seen = []
    if "nvidia" in names and "nvidia_uvm" not in names:
        seen.append("the module nvidia_uvm is not loaded")
    # Where the other nodes are missing too, it is not this one that is.
    seen += [fault.said for fault in faults if not case.faults("gpu.devnodes/node")]
    expected = "nvidia_uvm loaded, and /dev/nvidia-uvm"
    if quote is None:
        return explain_faults(case, faults, expected=expected, seen=seen)
    asleep = case.events("suspend")
    if asleep:
        seen.append("the host was suspended since it booted")
    reload = ("Load it afresh, after every program on the GPU has ended: `rmmod nvidia_uvm && modprobe nvidia_uvm`.",)
    if seen:
        return Sign(
            confidence="high" if len(seen) > len(asleep[:1]) else "medium",
            seen=(*seen, *quoted(quote)),
            expected=expected,
            fix=reload if asleep and len(seen) == 1 else (),
        )
    is_whole = "nvidia_uvm" in names and case.signal("gpu.devnodes") is not None
    unseen = (
        () if is_whole else ("whether the module and its node are there: `lsmod | grep uvm; ls -l /dev/nvidia-uvm`",)
    )
    return hint(quote, confidence="low" if is_whole else "medium", expected=expected, unseen=unseen)
