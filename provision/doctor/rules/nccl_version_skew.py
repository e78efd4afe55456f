"""The ranks of a job do not all run one NCCL."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (r"Mismatched NCCL version detected",)

_VERSION = r"\bNCCL version ([0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3})\b"
_DISTRIBUTION = re.compile(r"nvidia-nccl-cu[0-9]{2}")


def examine(case: Case) -> Sign | None:
    """Compare NCCL over the hosts that are given, or the versions that a job's log names."""
    quote = case.find(*SYMPTOMS)
    expected = "one NCCL version on all ranks"
    hosts = case.compare(lambda host: host.torch.nccl) or {}
    found = {host: version for host, version in hosts.items() if version}
    if len(found) < 2:
        found = {
            host: version
            for host, packages in case.compare(lambda host: host.python.packages).items()
            if (version := _wheel(packages))
        }
    if len(set(found.values())) > 1:
        seen = ", ".join(f"{version} on {host}" for host, version in found.items())
        return Sign(
            confidence="high", seen=(f"NCCL is {seen}", *quoted(quote)), expected=expected, subjects=tuple(found)
        )
    said = {line.match[1] for line in case.find_all(_VERSION)}
    if quote is None and len(said) > 1:
        first = next(case.find_all(_VERSION))
        return hint(
            first,
            seen=(f"the log names NCCL {', '.join(sorted(said))}",),
            expected=expected,
            unseen=("whether these lines are of one job",),
        )
    return hint(quote, confidence="high", expected=expected, unseen=() if found else ("which host has which NCCL",))


def _wheel(packages: Mapping[str, str]) -> str | None:
    return next((version for name, version in packages.items() if _DISTRIBUTION.fullmatch(name)), None)
