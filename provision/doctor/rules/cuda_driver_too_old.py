"""The program was built for a CUDA that is newer than the loaded driver can run."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import (
    branch_with_cuda,
    builds_for_driver,
    cuda_of_number,
    driver_of,
    minimum_driver,
    torch_of,
)
from provision.versions import minor_of, parse

SYMPTOMS = (
    r"NVIDIA driver on your system is too old \(found version ([0-9]{4,6})\)",
    r"CUDA driver version is insufficient for CUDA runtime version",
    r"cudaErrorInsufficientDriver|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    r"CUDA driver version \S{2,10} does not support this CUDA runtime",
    r"provided PTX was compiled with an unsupported toolchain",
    r"Driver does not support the required nvenc API version",
    r"minimum required Nvidia driver (?:for nvenc is|(?:version )?is [0-9])",
    r"libcuda\.so[.0-9]{0,14}: undefined symbol: cu[A-Z]",
    r"undefined symbol: cu(?:GreenCtx|CtxFromGreenCtx|DevSmResource|DeviceGetDevResource)",
    r"This container was built for NVIDIA Driver Release .{0,120}compatibility mode is UNAVAILABLE",
    r"ptxas application ptx input.{0,80}Unsupported \.version",
    r"\b(?:CUDA|cu[A-Z]\w{3,30}|cuda[A-Z]\w{3,30})\W{0,3} ?(?:runtime |driver |initiali[sz]ation )?(?:error|"
    r"failure|returned|failed)(?: with error)?(?: code)?\W{1,4}(?:35|36|222)\b(?! ?(?:[KMG]i?B|%|/))",
    r"not implemented for CUDA below version|cudaErrorUnsupportedPtxVersion|cudaErrorCallRequiresNewerDriver|"
    r"CUDA_ERROR_INSUFFICIENT_DRIVER|API call is not supported in the installed CUDA driver",
    r"CUTENSOR_STATUS_INSUFFICIENT_DRIVER|CUDA Driver version found is [0-9]{4,6}\. Minimum requirement is",
    r"Driver missing function: cu[A-Z]",
    r"old CUDA driver detected",
    r"PTX was compiled with an unsupported toolchain",
    r"\b(?:detected|found|installed|current|your)\b.{0,80}minimum (?:required|supported) (?:NVIDIA )?driver version"
    r"\W{0,3}[0-9]|"
    r"\bdriver (?:version )?[0-9.]{3,12} is (?:below|older than|less than|lower than)",
    r"GPU driver version is not supported\. Required|\bRequired: (?:NVIDIA |GPU )?driver version >= ?[0-9]",
)

_BELOW_FLOOR = re.compile(r"too old \(found version|is insufficient for|insufficient_?driver", re.IGNORECASE)
"""What says that the driver runs no program of this CUDA; the others ask for more than that, as PTX does."""


def examine(case: Case) -> Sign | None:
    """Compare the driver with what the program's CUDA needs; the message's own number stands in for either."""
    quote = case.find(*SYMPTOMS)
    driver = driver_of(case)
    torch = torch_of(case)
    needed = minimum_driver(case.matrix, torch.cuda) if torch.cuda else None
    is_able = case.look(lambda host: host.torch.is_available)
    if quote is None and (needed is None or driver is None or parse(driver) >= parse(needed) or is_able):
        return None
    cuda = cuda_of_number(int(quote.match[1])) if quote and quote.match.re.groups and quote.match[1] else None
    is_enough = needed is not None and (
        parse(driver) >= parse(needed) if driver else cuda is not None and parse(cuda) >= parse(torch.cuda or "")
    )
    is_floor = needed is not None and not is_enough
    expected = f"driver {needed} or newer, which CUDA {torch.cuda} needs" if is_floor else "a driver as new as the CUDA"
    seen = []
    if driver:
        seen.append(f"the driver is {driver}")
    if cuda:
        seen.append(f"the driver is CUDA {cuda}'s")
    if torch.cuda:
        seen.append(f"torch {torch.version or ''} was built for CUDA {torch.cuda}".replace("  ", " "))
    if quote is not None and torch.cuda and is_enough:
        name = driver or f"of CUDA {cuda}"
        fix = _ways_on(case, name, driver, torch.cuda, is_denied=_BELOW_FLOOR.search(quote.match[0]) is not None)
    else:
        fix = _ways_out(case, driver, cuda, torch.minor, needed)
    if needed and driver and parse(driver) < parse(needed):
        return Sign(confidence="high", seen=(*seen, *quoted(quote)), expected=expected, fix=fix)
    unseen = (
        *(() if driver else ("the version of the driver: `nvidia-smi` prints it",)),
        *(() if torch.cuda else ("which CUDA the program was built for",)),
    )
    return hint(quote, seen=seen, expected=expected, fix=fix, unseen=unseen)


def _ways_on(case: Case, name: str, driver: str | None, cuda: str, *, is_denied: bool) -> tuple[str, ...]:
    """Say what to do where the driver runs this CUDA by the facts: what is told differs, or more than that is asked."""
    if is_denied:
        return (
            f"The driver {name} runs CUDA {cuda}, and the message says that it does not: one of them is not what the"
            " program runs with. See both where it runs: `nvidia-smi`, and"
            " `python -c 'import torch; print(torch.version.cuda)'`.",
        )
    own = branch_with_cuda(case.matrix, cuda)
    if own is None or (driver is not None and parse(driver) >= parse(str(own.branch))):
        return ()
    return (f"Upgrade the driver to branch {own.branch} or newer, whose own CUDA is {cuda}.",)


def _ways_out(
    case: Case, driver: str | None, cuda: str | None, minor: str | None, needed: str | None
) -> tuple[str, ...]:
    """Say which driver is needed, and which build would do with the driver that is there."""
    if driver is None and cuda is not None:
        branch = branch_with_cuda(case.matrix, cuda)
        driver = branch.last_release if branch else None
    steps = [f"Upgrade the driver to {needed} or newer." if needed else "Upgrade the driver."]
    if driver is None:
        return tuple(steps) if needed else ()
    builds = builds_for_driver(case.matrix, driver, minor) or builds_for_driver(case.matrix, driver)
    if builds:
        best = builds[0]
        short = minor_of(best.torch)
        steps.append(
            f"Or keep the driver and install torch {best.torch} built for CUDA {best.cuda} ({best.variant}), which it"
            f" can run: `provision resolve --torch {short} --driver {driver}` names the whole stack."
        )
    return tuple(steps)
