"""PyTorch holds code that runs on every GPU."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.matrix.query import runs_on
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_TARGET = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare what it was compiled for with the compute capability of each GPU it sees."""
    del matrix
    torch = host.torch
    if torch.error:
        return unknown(f"importing torch fails: {torch.error}")
    targets = [target for target in torch.targets if _TARGET.fullmatch(target)]
    capabilities = [one for one in torch.capabilities if _CAPABILITY.fullmatch(one)]
    if not targets:
        return unknown("torch does not tell what it was compiled for")
    if expected.gpus == 0 and not capabilities:
        build = expected.build_of("torch")
        missing = [target for target in (*build.sm, *build.ptx) if target not in torch.targets]
        if missing:
            return failed(f"torch has no code for {', '.join(missing)}", f"code for {', '.join(build.sm)}")
        return passed(f"torch was compiled for {', '.join(targets)}")
    if not capabilities:
        return unknown("torch tells the compute capability of no GPU")
    if len(capabilities) < (torch.device_count or 0):
        return unknown(f"torch tells the compute capability of {len(capabilities)} of {torch.device_count} GPUs")
    cubins = [target for target in targets if target.startswith("sm_")]
    texts = [target for target in targets if target.startswith("compute_")]
    used: dict[str, str] = {}
    for index, capability in enumerate(capabilities):
        major, minor = capability.split(".")
        code = runs_on((int(major), int(minor)), cubins, texts)
        if code is None:
            name = torch.names[index] if index < len(torch.names) else "a GPU"
            label = f"GPU {index} ({name})"
            return failed(
                f"{label} has compute capability {capability}, torch was compiled for {', '.join(targets)}",
                f"code for {capability}",
                subjects=[label],
            )
        used[capability] = code
    return passed(", ".join(f"{code} runs on {capability}" for capability, code in sorted(used.items())))
