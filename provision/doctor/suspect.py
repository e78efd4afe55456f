"""The line of a text that most likely failed, for texts that no diagnosis knows."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.stack import driver_of, torch_of
from provision.probe.clean import clean_line
from provision.records import record

_LINE_CHARACTERS = 240

_EXCEPTION = re.compile(
    r"(?:\S{0,40}[\s:\]]{1,4})?(?:[A-Za-z_][\w.]{0,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt)\b: ?\S"
)
_RAISED = re.compile(
    r"(?:^|[\s\"'|\]])(?:[A-Za-z_][\w.]{0,80}\.)?(?:[A-Z]\w{0,60}(?:Error|Exception)|Exception)\b(?:: ?|\([\"'])\S"
)
_FATAL = re.compile(r"\b(?:NVRM: |Kernel panic|BUG: |Oops: |segfault at |Call Trace)", re.IGNORECASE)
_BAD = re.compile(
    r"\b(?:fail|failed|failure|cannot|could not|unable|fatal|abort(?:ed)?|not found|denied|panic|insufficient"
    r"|no module named|not compiled|out[ _]of[ _](?:\w+[ _])?memory)\b|`Err` value: ",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\b(?:fatal )?error\b\s?(?:\[[^\]]{1,20}\])?[:!]|^E[:0-9]|\b(?:ERROR|FATAL|CRITICAL)\b|\*\*\* \[.{1,120}\] Error",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"\b(?:hangs?|hung|hanging|freezes?|freezing|frozen|stuck|deadlock\w{0,3}|unusable|unavailable|refuse[sd]"
    r"|never (?:finish|return|end|start|stop)\w{0,3}|stop(?:s|ped)? working|no longer work\w{0,3}|takes forever"
    r"|(?:is|are|was|were|does|do|did|will|has|have)(?: not|n't) (?:\w{2,10} ){0,2}"
    r"(?:work|us|list|detect|recogni[sz]|visib|exist|see|start|load|run|registered|toler)\w{0,6}"
    r"|didn't (?:have|tolerate)|can ?not use|(?:falls?|falling|fell|fallback) (?:back )?(?:to|on) (?:the )?CPU"
    r"|(?:only|runs?|running|train\w{0,4}) (?:\w{2,8} )?on (?:the )?CPU|must be (?:valid|set)|FailedScheduling)\b",
    re.IGNORECASE,
)
"""How people, and events of Kubernetes, tell that something does not work, without a word of error."""

_LAYERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (layer, re.compile(pattern, re.IGNORECASE), step)
    for layer, pattern, step in (
        (
            "the driver",
            r"NVRM|nvidia-smi|NVML|\bXid\b|modprobe|dkms",
            "see what the driver said first: `dmesg -T | grep -i -e nvrm -e xid`",
        ),
        (
            "the container engine",
            r"docker|podman|containerd|runc|nvidia-container|kubelet|CDI",
            "see what the engine was asked: `docker info; nvidia-ctk cdi list`",
        ),
        (
            "the network between ranks",
            r"NCCL|c10d|ProcessGroup|ibv_|mlx5|\bgloo|\b(?:Open)?MPI",
            "run it again with `NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL` and give that log",
        ),
        (
            "a build",
            r"nvcc|ninja|gcc|g\+\+|cmake|setup\.py|Failed building wheel|\.cu\b|\bld:|\bmake",
            "see the first error of the build, above the last ones: build with `MAX_JOBS=1` and give the whole log",
        ),
        (
            "the libraries that are loaded",
            r"\.so\b|undefined symbol|ImportError|shared object",
            "see which libraries are loaded: `pip list; ldd FILE`, with the file that the line names",
        ),
        (
            "CUDA in the program",
            r"CUDA|cublas|cudnn|cusolver|cufft|GPU",
            "see the very call: run it with `CUDA_LAUNCH_BLOCKING=1`, and give `python -m torch.utils.collect_env` too",
        ),
        ("the program", r"", "give the whole traceback, and `python -m torch.utils.collect_env` with it"),
    )
)


@record
class Suspect:
    """The line that most likely failed.

    Attributes:
        number: Its number in the text, from 1.
        where: The layer it belongs to, in words.
        next: What to do next.
    """

    number: int
    line: str
    where: str
    next: str


def find_suspect(text: str, *, has_error: bool = False) -> Suspect | None:
    """Return the error that began the last tracebacks, else the kernel's last fatal line, else the first error.

    Args:
        text: A log or an error message.
        has_error: Whether what people tell without a word of error is left alone.
    """
    lines = text.splitlines()
    number = _of_traceback(lines)
    if number is None:
        tiers = ((_RAISED, True), (_FATAL, True), (_ERROR, False), (_BAD, False), (_TOLD, False))
        for pattern, is_last in tiers[:-1] if has_error else tiers:
            found = [
                index for index, line in enumerate(lines) if pattern.search(line[:2000]) and _is_error(pattern, line)
            ]
            if found:
                number = found[-1 if is_last else 0]
                break
    if number is None:
        return None
    line = clean_line(lines[number], _LINE_CHARACTERS)
    layer, _, step = next(row for row in _LAYERS if row[1].search(line))
    return Suspect(number=number + 1, line=line, where=f"it comes from {layer}", next=step)


def name_versions(case: Case) -> tuple[str, ...]:
    """Return what a text says of versions: driver, PyTorch and its CUDA."""
    driver, torch = driver_of(case), torch_of(case)
    return (
        *((f"driver {driver}",) if driver else ()),
        *((f"torch {torch.version}{f' for CUDA {torch.cuda}' if torch.cuda else ''}",) if torch.version else ()),
    )


def _is_error(pattern: re.Pattern[str], line: str) -> bool:
    """Tell the driver's complaints from what it says when it starts well."""
    return pattern is not _FATAL or "NVRM" not in line or _BAD.search(line) is not None


def _of_traceback(lines: list[str]) -> int | None:
    """Return the number of the exception that began the last chain of tracebacks: what follows it is a consequence."""
    first: int | None = None
    is_open = False
    is_chained = False
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            first = first if is_chained else None
            is_open, is_chained = True, False
        elif "exception was the direct cause" in line or "another exception occurred" in line:
            is_chained = True
        elif is_open and _EXCEPTION.match(line.strip()[:2000]):
            first = number if first is None else first
            is_open = False
    return first
