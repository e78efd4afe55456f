"""For which GPUs packages are compiled: those that a request names, else all that the framework has code for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provision.matrix.load import Matrix
from provision.matrix.query import capability_of, cuda_releases, serves
from provision.resolve.options import Option
from provision.resolve.rules import Wish
from provision.resolve.stack import TORCH_ARCHS


def compile_targets(matrix: Matrix, wish: Wish, options: Iterable[Option], cuda: str) -> tuple[str, ...]:
    """Return what nvcc compiles for (``sm_89``, ``compute_90``) where a request names GPUs.

    That is the GPU itself where the nvcc of this CUDA knows it, else what of the framework's own code runs on it.
    """
    releases = cuda_releases(matrix, cuda)
    known = releases[0].sm or () if releases else ()
    targets = set()
    for _, rows in wish.gpus:
        number = int(rows[0].compute_capability.replace(".", ""))
        ways = {serves(rows[0], option.sm or (), option.ptx) for option in options}
        targets |= {f"sm_{number}"} if number in known else {way for way in ways if way is not None}
    return tuple(sorted(targets, key=lambda target: (_digits(target), target)))


def target_variables(targets: Iterable[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell builds their targets.

    Args:
        targets: What nvcc compiles for.
        own: Variables of some builds → all targets that they know, as they write them, or the separator alone.
    """
    targets = tuple(targets)
    if not targets:
        return {}
    variables = {TORCH_ARCHS: ";".join(map(torch_arch, targets))}
    for name, text in own.items():
        separator = text.strip("0123456789")[0]
        known = [int(item) for item in text.split(separator) if item]
        fitting = [[item for item in known if _runs(item, _digits(target))] for target in targets]
        if not known:
            variables[name] = separator.join(dict.fromkeys(str(_digits(target)) for target in targets))
        elif all(fitting):
            variables[name] = separator.join(dict.fromkeys(str(max(items)) for items in fitting))
    return variables


def _runs(code: int, target: int) -> bool:
    return code // 10 == target // 10 and code <= target


def torch_arch(target: str) -> str:
    """Return a target as extensions of PyTorch want it: ``9.0a`` for ``sm_90a``, ``9.0+PTX`` for ``compute_90``."""
    major, minor = capability_of(target)
    return (
        f"{major}.{minor}{target[-1] if target[-1].isalpha() else ''}{'+PTX' if target.startswith('compute') else ''}"
    )


def _digits(target: str) -> int:
    major, minor = capability_of(target)
    return 10 * major + minor
