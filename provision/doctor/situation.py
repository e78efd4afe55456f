"""What a pasted text tells of how a program was started, where a message alone leaves open why it was given no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.doctor.case import Case, Quote
from provision.records import record

_VALUE = r"-1|none|NoDevFiles|all|(?:GPU-|MIG-)[\w/.,-]{1,200}|[0-9]{1,3}(?:, ?[0-9]{1,3}){0,15}"
_VISIBLE = (
    r"(?<!NVIDIA_)CUDA_VISIBLE_DEVICES(?:[\"'](?:\])?)? ?(?P<sign>[:=]) ?"
    rf"(?:(?P<mark>[\"'])(?P<quoted>{_VALUE})?(?P=mark)|(?P<plain>{_VALUE})(?=$|[\s;,&|)}}\]`\"'])|(?<=DEVICES=)(?=$|\s))"
    r"(?! ?(?:if|or)\b)"
)
"""A literal value: what a program computes, or prints of a variable that is not set, tells nothing."""
_GPU_LIST = re.compile(r"(?:GPU-|MIG-)\S+|[0-9].*", re.IGNORECASE)
_CONTAINER = r"(?:^|[\s$#>`(])(?:docker|podman|nerdctl) (?:container )?run\b"
_CONTAINER_ASKS = re.compile(r"--gpus\b|--runtime[ =]nvidia|--device\b|NVIDIA_VISIBLE_DEVICES|--privileged")
_SINGULARITY = r"(?:^|[\s$#>`(])(?:singularity|apptainer) (?:-\S{1,12} )?(?:exec|run|shell) "
_OTHER_START = (
    r"(?:^|[\s$#>`(])(?:torchrun|accelerate launch|deepspeed|mpirun|srun|ray start|vllm serve|python3? \S{1,80}\.py"
    r"|python3? -[cm]|docker[ -]compose .{0,60}\bup)\b"
)
_INTERACTIVE = re.compile(
    r"\s(?:-\w{0,2}i\w{0,2}|--interactive)(?:\s.*)?\s(?:(?![/.-])\S+[/:]\S+|(?:/\S*/)?(?:ba|da|z)?sh)\s*$"
    r"|\b(?:singularity|apptainer) (?:-\S{1,12} )?shell ",
    re.DOTALL,
)
"""What ends with an image or a shell: a command of its own is all that such a container runs."""
_SINGULARITY_ASKS = re.compile(r"(?:^|\s)--(?:nv|nvccli|rocm)\b")
_JOB = r"^#SBATCH |(?:^|[\s$#>`(])(?:sbatch|srun|salloc) "
_JOB_ASKS = r"--gres\b|--exclusive\b|--gpus|(?:^|\s)-G ?[0-9]|--gpu-bind|--tres"
_CURED = (
    r"\b(?:re-?start(?:ing|ed)?|start(?:ing)? again)\b.{0,60}\b(?:service|daemon|container|client|server|app|docker)\b"
    r".{0,40}\b(?:cures?|fix(?:es|ed)|solv(?:es|ed)|helps|works|resolve[sd])\b",
    r"\bstarts before (?:the )?(?:nvidia|driver|GPU|/dev/nvidia)",
)


@record
class Start:
    """How a text says that a program was started, where that gives it no GPU.

    Attributes:
        quote: The line that tells so.
        said: What is wrong with it, one clause.
        fix: What to write instead.
        is_sure: Whether it leaves any program without a GPU; a list of GPUs does only where none of them is there.
    """

    quote: Quote
    said: str
    fix: str
    is_sure: bool = True


def find_starts(case: Case, failure: Quote) -> Iterator[Start]:
    """Yield what pasted text says of the start of a program that leaves it without a GPU, the surest first.

    Args:
        case: With the text.
        failure: The line that says that there is no GPU.
    """
    given = dict(case.texts)
    visible = [quote for quote in case.find_all(_VISIBLE) if quote.where in given and not _is_unset(quote)]
    lists = [quote for quote in visible if _GPU_LIST.fullmatch(_value_of(quote))]
    yield from (_of_variable(quote, ", which names no GPU") for quote in visible if quote not in lists)
    container = _container_of(case, failure)
    if container is not None:
        yield container
    cured = case.find(*_CURED)
    if cured is not None and cured.where in given:
        yield Start(
            quote=cured,
            said="a later start of the same program finds the GPU",
            fix="Let the service wait for the driver: load `nvidia_uvm` at boot by a file of /etc/modules-load.d, and "
            "order the service behind it: `After=nvidia-persistenced.service` in its unit.",
        )
    job = case.find(_JOB)
    if job is not None and job.where in given and case.find(_JOB_ASKS) is None:
        yield Start(
            quote=job, said="the job asks the scheduler for no GPU", fix="Ask for one, as in `#SBATCH --gpus=1`."
        )
    yield from (_of_variable(quote, "", is_sure=False) for quote in lists)


def _container_of(case: Case, failure: Quote) -> Start | None:
    """Return the container that the failing program was started in, where that gives it no GPU.

    It is the last start before the failure, or the only one of a text that tells of none before it. What follows an
    interactive container was typed in it.
    """
    if failure.where not in dict(case.texts):
        return None
    starts: list[tuple[Quote, str]] = []
    for quote in sorted(
        (quote for quote in case.find_all(_CONTAINER, _SINGULARITY, _OTHER_START) if quote.where == failure.where),
        key=lambda quote: quote.number,
    ):
        if starts and quote.number <= starts[-1][0].number + starts[-1][1].count("\n"):
            continue
        is_compose = "compose" in quote.match[0]
        if not starts or is_compose or _is_container(quote) or not _INTERACTIVE.search(starts[-1][1]):
            starts.append((quote, _command_of(case, quote)))
    before = [start for start in starts if start[0].number <= failure.number]
    if not before and len(starts) != 1:
        return None
    quote, command = (before or starts)[-1]
    if re.search(_CONTAINER, quote.match.string, re.IGNORECASE) and not _CONTAINER_ASKS.search(command):
        return Start(quote=quote, said="the container is started without a GPU", fix="Start it with `--gpus all`.")
    if re.search(_SINGULARITY, quote.match.string, re.IGNORECASE) and not _SINGULARITY_ASKS.search(command):
        return Start(quote=quote, said="the container is started without --nv", fix="Start it with `--nv`.")
    return None


def _is_container(quote: Quote) -> bool:
    return re.search(f"{_CONTAINER}|{_SINGULARITY}", quote.match.string, re.IGNORECASE) is not None


def _value_of(quote: Quote) -> str:
    return quote.match["quoted"] or quote.match["plain"] or ""


def _is_unset(quote: Quote) -> bool:
    """Tell whether a program printed what Python has for a variable that is not set, or a sentence goes on there."""
    rest = quote.match.string[quote.match.end() :].strip(" \t,;)}]`\"'")
    return (
        quote.match["sign"] == ":"
        and quote.match["plain"] is not None
        and (quote.match["plain"] == "None" or bool(rest))
    )


def _of_variable(quote: Quote, said: str, *, is_sure: bool = True) -> Start:
    return Start(
        quote=quote,
        is_sure=is_sure,
        said=f"the text sets CUDA_VISIBLE_DEVICES to `{_value_of(quote)}`{said}",
        fix="Take the setting of CUDA_VISIBLE_DEVICES away, or name GPUs that `nvidia-smi -L` lists, counted from 0. "
        "The variable that takes `all` is NVIDIA_VISIBLE_DEVICES.",
    )


def _command_of(case: Case, quote: Quote) -> str:
    """Return the whole command, with the lines that a backslash continues it by."""
    lines = dict(case.texts)[quote.where].splitlines()
    end = quote.number
    while end < len(lines) - 1 and lines[end].rstrip().endswith("\\"):
        end += 1
    return "\n".join(lines[quote.number : end + 1])
