"""The program asked for a GPU by a number that does not exist."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (
    r"invalid device ordinal",
    r"CUDA_ERROR_INVALID_DEVICE|cudaErrorInvalidDevice",
    r"\bcu(?:Init|da\w{2,30}|DeviceGet\w{0,10})\b.{0,24}\b(?:returned|failed|error|code)\W{1,4}101\b",
    r"\b(?:CUDA )?error(?: code)?:? \(?101\b(?!.{0,40}(?:network|connect|http|unreachable))",
    r"\bdevice[ =]+'?cuda:[0-9]{1,3}'?.{0,40}(?:not available|invalid|out of range)",
    r"\bdevice < num_gpus|AssertionError: Invalid device id\b",
    r"World size \([0-9]{1,4}\) is larger than the number of available GPUs",
    r"(?:[Tt]ensor parallel size|number of required GPUs|num_gpus|world.?size|"
    r"nproc)\b.{0,60}(?:cannot be larger than|exceeds|is larger than|greater than).{0,40}(?:available|visible|"
    r"number of) .{0,12}GPUs",
    r"(?:Requested|You requested) .{0,30}(?:GPU|gpu|device)s?\b.{0,60}(?:but|"
    r"only) .{0,30}(?:[1-9][0-9]? (?:available|visible|GPU)|has(?: only)?: \[[0-9])",
    r"specifies invalid or unsupported gpu id|device index out of range|your machine only has: \[[0-9]",
    r"not enough (?:cuda |CUDA )?(?:devices|GPUs)\b|No slot \W[0-9]{1,3}\W specified on host",
    r"(?:num_gpus|gpus|devices|nproc_per_node|world_size)\b.{0,40}(?:must be|should be|has to be) (?:less|smaller|"
    r"fewer).{0,40}(?:number of |available|visible)",
    r"Requested device.{0,40}but only [0-9]{1,3} (?:device|GPU)|[0-9]{1,3} GPUs? (?:are |is )?(?:required|requested|"
    r"needed),? but (?:only )?[0-9]",
)


def examine(case: Case) -> Sign | None:
    """Compare the numbers in CUDA_VISIBLE_DEVICES with the GPUs there are."""
    quote = case.find(*SYMPTOMS)
    smi = case.look(lambda host: host.smi)
    environment = case.look(lambda host: host.environment) or {}
    named = [part.strip() for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    count = len(smi.gpus) if smi else None
    expected = f"numbers from 0 to {count - 1}" if count else "numbers below the count of GPUs"
    sign = explain_faults(
        case, case.faults("env.visible/beyond", "env.visible/cut-short"), expected=expected, quote=quote
    )
    if sign is not None:
        return sign
    shown = (f"CUDA_VISIBLE_DEVICES={','.join(named)} leaves {len(named)} GPUs, numbered from 0",) if named else ()
    unseen = (
        ()
        if count
        else ("how many GPUs the program sees: `python -c 'import torch; print(torch.cuda.device_count())'`",)
    )
    return hint(quote, seen=shown, expected=expected, unseen=unseen)
