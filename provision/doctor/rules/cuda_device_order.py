"""CUDA numbers the GPUs by speed and nvidia-smi by PCI address."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"Detected different devices in the system",
    r"\bCUDA_DEVICE_ORDER\b.{0,20}\bFASTEST_FIRST",
    r"(?:order|number|index).{0,60}(?:differs?|is not the same|other than|does not match).{0,60}nvidia-smi",
    r"nvidia-smi.{0,60}(?:order|number|index).{0,60}(?:differs?|is not the same|other than|does not match|!=)",
)


def examine(case: Case) -> Sign | None:
    """Compare the order of names that nvidia-smi and PyTorch give; only mixed GPUs can differ."""
    quote = case.find(*SYMPTOMS)
    smi = case.look(lambda host: host.smi)
    torch = case.look(lambda host: host.torch)
    environment = case.look(lambda host: host.environment) or {}
    expected = "CUDA_DEVICE_ORDER=PCI_BUS_ID, and one order everywhere"
    has_choice = bool({"CUDA_VISIBLE_DEVICES"} & set(environment))
    if smi and torch and not has_choice and len(torch.names) == len(smi.gpus):
        names = tuple(gpu.name for gpu in smi.gpus)
        if names != tuple(torch.names) and sorted(map(str, names)) == sorted(torch.names):
            return Sign(
                confidence="high",
                seen=(f"nvidia-smi begins with {names[0]}, PyTorch with {torch.names[0]}", *quoted(quote)),
                expected=expected,
            )
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return None
    return hint(quote, expected=expected, unseen=() if torch else ("in which order the program sees the GPUs",))
