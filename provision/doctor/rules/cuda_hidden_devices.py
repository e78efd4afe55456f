"""The GPUs are there, and a variable or the scheduler hides them from the program."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.situation import find_starts
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"no CUDA-capable device is detected",
    r"No CUDA GPUs are available",
    r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
    r"\bcu(?:Init|da\w{2,30}|DeviceGet\w{0,10})\b.{0,24}\b(?:returned|failed|error|code)\W{1,4}100\b",
    r"\b(?:CUDA )?error(?: code)?:? \(?100\b(?!.{0,40}(?:network|connect|http|unreachable))",
    r"\bCUDA_VISIBLE_DEVICES=(?:\"\"|''|-1|\"-1\"|NoDevFiles)?\s*$",
    r"invalid literal for int\(\) .{0,40}'NoDevFiles'",
    r"The NVIDIA Driver was not detected\.\s{0,4}GPU functionality",
    r"init(?:iali[sz]ation)? failure: 100\b",
    r"RuntimeError: Failed to infer device type",
    r"your machine only has: \[\]|only supported with GPUs, no GPUs found|"
    r"Cannot access accelerator device when none is available",
    r"exec: \W{0,2}nvidia-smi\W{0,2}: executable file not found|"
    r"CUDA driver initialization failed, you might not have a CUDA",
    r"Unable to proceed, no GPU resources available|`?CUDAAccelerator`? can ?not run on your system",
    r"only 0 Devices available|No GPU found\. A GPU is needed for quantization|can only be used on CUDA devices",
    r"IndexError: list index out of range.{0,80}arch_list\[-1\]|arch_list\[-1\] \+= '\+PTX'",
    r"Environment for task type \[GPU\] not found|XGBoostError: .{0,60}Must have at least one device|"
    r"your CUDA device is not set properly|No compatible CUDA device is available|"
    r"find/initialize a specified accelerator device",
    r"no compatible GPUs were discovered|unable to locate gpu dependency libraries",
    r"GPU is required to (?:quantize|run)",
)

_COMPLAINTS = (
    r"\bno (?:\w{2,8} )?(?:GPUs?|CUDA devices?|accelerators?)(?: devices?)? (?:was |were )?"
    r"(?:detected|found|available)",
    r"CUDA (?:is )?not available|is_available\(\)\W{0,4}False|No devices were found",
    r"GPU (?:is )?not (?:available|found)",
)
"""What programs say of no GPU in words of their own, which count where the text tells why."""


def examine(case: Case) -> Sign | None:
    """Look for a variable that names no GPU of this host."""
    quote = case.find(*SYMPTOMS)
    environment = case.look(lambda host: host.environment)
    expected = "CUDA_VISIBLE_DEVICES unset, or naming GPUs of this host"
    sign = explain_faults(case, case.faults("env.visible/hidden"), expected=expected, quote=quote)
    if sign is not None:
        return sign
    if case.faults("env.visible/beyond"):
        # A number that no GPU has is a diagnosis of its own, and the reason of the same messages.
        return None
    if case.host is None:
        complaint = quote or case.find(*_COMPLAINTS)
        starts = find_starts(case, complaint) if complaint is not None else iter(())
        start = next((start for start in starts if quote is not None or start.is_sure), None)
        if start is not None:
            steps = (start.fix, *case.matrix.diagnoses["cuda.hidden-devices"].fix)
            return hint(complaint, seen=(start.said, *quoted(start.quote)), expected=expected, fix=steps)
    unseen = (
        () if environment is not None else ("what the program's own environment holds: `env | grep VISIBLE_DEVICES`",)
    )
    return hint(quote, expected=expected, unseen=unseen)
