"""PyTorch imports, in the planned version."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.frameworks import has_planned_version
from provision.verify.libraries import agrees
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Ask for the import's own error, then for the version."""
    del matrix
    torch = host.torch
    planned = expected.packages.get("torch") or expected.frameworks["torch"]
    cuda = expected.build_of("torch").cuda
    if torch.error:
        return failed(f"importing torch fails: {torch.error}", f"torch {planned}")
    if torch.version is None:
        return unknown("torch imports and does not tell its version")
    if not has_planned_version(planned, torch.version):
        return failed(f"torch is {torch.version}", f"torch {planned}")
    if torch.is_cuda_build is False and cuda is not None:
        return failed(f"torch {torch.version} is a build for processors only", f"a build for CUDA {cuda}")
    if torch.cuda is not None and cuda is not None and not agrees(cuda, torch.cuda):
        return failed(f"torch {torch.version} is built for CUDA {torch.cuda}", f"torch {planned} for CUDA {cuda}")
    return passed(f"torch {torch.version} imports")
