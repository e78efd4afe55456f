"""Extensions are built with another CUDA than PyTorch was."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"detected CUDA version \(([0-9.]{3,6})\) mismatches the version that was used to compile",
    r"detected CUDA version \(%s\) mismatches the version that was used to compile ?PyTorch",
    r"detected CUDA version \(([0-9.]{3,6})\) has a minor version mismatch",
    r"Installed CUDA version ([0-9.]{3,6}) does not match the version torch was compiled with(?!.{0,12} but since)",
    r"compiled with a version of Cuda that does not match the version used to compile Pytorch",
    r"is only supported on CUDA [0-9.]{2,5} and above",
)

_TORCH = r"(?:PyTorch \(|torch was compiled with )([0-9]{1,2}\.[0-9]{1,2})"


def examine(case: Case) -> Sign | None:
    """Compare nvcc with the CUDA of the installed PyTorch; only another major breaks a build."""
    quote = case.find(*SYMPTOMS)
    nvcc = case.look(lambda host: host.nvcc)
    torch = case.look(lambda host: host.torch)
    built_for = torch.cuda if torch else None
    said = case.find(_TORCH)
    wanted = built_for or (said.match[1] if quote and said else None)
    expected = f"nvcc of CUDA {wanted}" if wanted else "nvcc of the CUDA that PyTorch was built for"
    fix = (
        (
            f"Install the CUDA {wanted} toolkit, which may stand beside the other.",
            f"Build with it: `export CUDA_HOME=/usr/local/cuda-{wanted}`.",
        )
        if wanted
        else ()
    )
    if nvcc and built_for and nvcc.release.split(".")[0] != built_for.split(".")[0]:
        return Sign(
            confidence="high" if quote else "low",
            seen=(f"nvcc is of CUDA {nvcc.release}, PyTorch was built for {built_for}", *quoted(quote)),
            expected=expected,
            fix=fix,
        )
    return hint(quote, expected=expected, fix=fix)
