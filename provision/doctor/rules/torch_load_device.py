"""A checkpoint was saved from a GPU that this program does not see."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import has_gpu

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"Attempting to deserialize object on a CUDA device",
    r"Attempting to deserialize object on CUDA device ([0-9]{1,4}) but torch\.cuda\.device_count\(\) is ([0-9]{1,4})",
)

_TO_CPU = "Load onto the CPU: `torch.load(PATH, map_location='cpu')`."
_ONTO_FIRST = "Load onto one that exists: `torch.load(PATH, map_location='cuda:0')`."


def examine(case: Case) -> Sign | None:
    """Tell a checkpoint of more GPUs from a machine without any, and both from a GPU that PyTorch does not reach."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    counted = case.find(SYMPTOMS[1])
    if counted is not None:
        return hint(
            counted,
            confidence="high",
            seen=(f"it was saved from GPU {counted.match[1]}, and the program sees {counted.match[2]}",),
            expected="a checkpoint that is loaded onto a device that exists",
            fix=(
                _ONTO_FIRST,
                "If it is to see more, look what hides them: `env | grep VISIBLE_DEVICES; nvidia-smi -L`.",
            ),
        )
    gpu = has_gpu(case)
    if gpu is False:
        return Sign(
            confidence="high",
            seen=("the target has no NVIDIA GPU", *quoted(quote)),
            expected="a checkpoint that is loaded onto the CPU where there is no GPU",
            fix=(_TO_CPU,),
        )
    return hint(
        quote,
        seen=("the target has an NVIDIA GPU, and PyTorch did not reach it",) if gpu else (),
        expected="torch.cuda.is_available() is True, or a checkpoint that is loaded onto the CPU",
        unseen=() if gpu else ("whether the machine has a GPU, and what PyTorch sees of it",),
    )
