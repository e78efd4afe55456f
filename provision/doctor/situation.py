"""What a pasted text tells of how a program was started, where a message alone leaves open why it was given no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.doctor.case import Case, Quote
from provision.records import record

_VISIBLE = r"(?<!NVIDIA_)CUDA_VISIBLE_DEVICES[\"'\]]{0,3} ?[:=] ?[\"']?(?P<value>[\w.,-]{1,80})"
_GPU_LIST = re.compile(r"(?:GPU-|MIG-)\S+|[0-9]{1,3}(?:,[0-9]{1,3})*", re.IGNORECASE)
_CONTAINER = r"(?:^|[\s$#>`(])(?:docker|podman|nerdctl) (?:container )?run\b"
_CONTAINER_ASKS = re.compile(r"--gpus\b|--runtime[ =]nvidia|--device\b|NVIDIA_VISIBLE_DEVICES|--privileged")
_SINGULARITY = r"(?:^|[\s$#>`(])(?:singularity|apptainer) (?:-\S{1,12} )?(?:exec|run|shell) "
_SINGULARITY_ASKS = re.compile(r"(?:^|\s)--(?:nv|nvccli|rocm)\b")
_JOB = r"^#SBATCH |(?:^|[\s$#>`(])(?:sbatch|srun|salloc) "
_JOB_ASKS = r"--gres\b|--gpus|(?:^|\s)-G ?[0-9]|--gpu-bind|--tres"
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
    """

    quote: Quote
    said: str
    fix: str


def find_starts(case: Case) -> Iterator[Start]:
    """Yield what pasted text says of the start of a program that leaves it without a GPU, the surest first."""
    given = dict(case.texts)
    visible = [quote for quote in case.find_all(_VISIBLE) if quote.where in given]
    lists = [quote for quote in visible if _GPU_LIST.fullmatch(quote.match["value"])]
    yield from (_of_variable(quote, ", which names no GPU") for quote in visible if quote not in lists)
    for pattern, asks, said, fix in (
        (_CONTAINER, _CONTAINER_ASKS, "the container is started without a GPU", "Start it with `--gpus all`."),
        (_SINGULARITY, _SINGULARITY_ASKS, "the container is started without --nv", "Start it with `--nv`."),
    ):
        runs = [quote for quote in case.find_all(pattern) if quote.where in given]
        if runs and not any(asks.search(_line_of(case, quote)) for quote in runs):
            yield Start(quote=runs[0], said=said, fix=fix)
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
    yield from (_of_variable(quote, "") for quote in lists)


def _of_variable(quote: Quote, said: str) -> Start:
    return Start(
        quote=quote,
        said=f"the text sets CUDA_VISIBLE_DEVICES to `{quote.match['value']}`{said}",
        fix="Take the setting of CUDA_VISIBLE_DEVICES away, or name GPUs that `nvidia-smi -L` lists, counted from 0. "
        "The variable that takes `all` is NVIDIA_VISIBLE_DEVICES.",
    )


def _line_of(case: Case, quote: Quote) -> str:
    """Return the whole line, with those that a backslash continues it by."""
    lines = dict(case.texts)[quote.where].splitlines()
    end = quote.number
    while end < len(lines) - 1 and lines[end].rstrip().endswith("\\"):
        end += 1
    return " ".join(lines[quote.number : end + 1])
