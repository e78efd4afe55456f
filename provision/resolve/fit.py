"""What the libraries below a framework say of GPUs: a stack fits a GPU only where every one of them does."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import Cudnn, Gpu
from provision.matrix.query import capability_of, cudnn_distribution
from provision.records import record
from provision.resolve.options import Option, fact_of
from provision.resolve.stack import FactRef
from provision.versions import is_empty, parse, spec_of


@record
class Bound:
    """The versions of a library that serve a GPU.

    Attributes:
        name: The distribution that brings the library (``nvidia-cudnn-cu12``).
        specifier: Versions that serve the GPU.
        because: What is said of all others, as the rest of a sentence.
        fact: The row that says so.
    """

    name: str
    specifier: str
    because: str
    fact: FactRef


def cudnn_bounds(matrix: Matrix, gpu: Gpu, cuda_major: int) -> tuple[Bound, ...]:
    """Return which cuDNN built for a CUDA major serves a GPU, as far as the facts bound it.

    A version between two rows has at least the floor of the lower and at most the end of the higher one: support of
    old GPUs is only ever dropped, that of new ones only ever added.

    Source: cuDNN support matrix; cuDNN documentation, hardware forward compatibility.
    """
    key = ("cudnn_bounds", gpu.compute_capability, cuda_major)
    return matrix.keep(key, lambda: _cudnn_bounds(matrix, gpu, cuda_major))


def _cudnn_bounds(matrix: Matrix, gpu: Gpu, cuda_major: int) -> tuple[Bound, ...]:
    name = cudnn_distribution(matrix, cuda_major)
    if name is None:
        return ()
    major, minor = capability_of(f"sm_{gpu.compute_capability.replace('.', '')}")
    number = major * 10 + minor
    bounds = []
    rows: list[Cudnn] = sorted(matrix.cudnn, key=lambda row: parse(row.version))
    stated = [row for row in rows if row.sm_min is not None]
    while stated and (stated[0].sm_min or 0) <= number:
        # What comes last counts: a row that serves the GPU makes every floor before it void.
        stated.pop(0)
    for row in stated[:1]:
        because = f"cuDNN {row.version} and newer begin with sm_{row.sm_min}"
        bounds.append(_bound(name, f"<{row.version}", because, row, "sm_min"))
    ended = [
        row
        for row in rows
        if row.sm_max is not None and row.sm_max // 10 < major and cuda_major not in row.forward_compatible_cuda
    ]
    for row in ended[-1:]:
        last = row.last_version or row.version
        because = f"cuDNN {last} and older end with sm_{row.sm_max} and do not run on newer GPUs"
        bounds.append(_bound(name, f">={_next_version(last, rows)}", because, row, "sm_max"))
    return tuple(bounds)


def _next_version(last: str, rows: list[Cudnn]) -> str:
    """Return the lowest version that a row does not speak of: 8.9.7.29 is above 8.9.7 and is still meant by it."""
    number = parse(last)
    following = next((row.version for row in rows if parse(row.version) > number), None)
    if following is not None and parse(following).major > number.major:
        return f"{parse(following).major}"
    return f"{number.major}.{number.minor}.{number.micro + 1}"


def _bound(name: str, specifier: str, because: str, row: Cudnn, field: str) -> Bound:
    return Bound(name=name, specifier=specifier, because=because, fact=fact_of("cudnn", row.version, row, field))


def excluding_bound(matrix: Matrix, option: Option, gpu: Gpu) -> tuple[str, Bound] | None:
    """Return the cuDNN that a build cannot do without and the bound that excludes it, or ``None``."""
    for bound in cudnn_bounds(matrix, gpu, option.cuda_major):
        wanted = _wanted(option, bound.name)
        if wanted and is_empty((wanted, bound.specifier)):
            return wanted, bound
        if option.system_cuda and not wanted:
            have = _of_images(matrix, option)
            if have and not any(version in spec_of(bound.specifier) for version in have):
                return f"=={have[0]}", bound
    return None


def open_bounds(matrix: Matrix, option: Option, gpu: Gpu) -> tuple[Bound, ...]:
    """Return the bounds that decide which cuDNN goes with a build: it admits some that serve the GPU, and others."""
    found = []
    for bound in cudnn_bounds(matrix, gpu, option.cuda_major):
        wanted = _wanted(option, bound.name)
        if wanted:
            is_open = not is_empty((wanted, bound.specifier)) and not is_empty((wanted, _outside(bound.specifier)))
        else:
            have = _of_images(matrix, option) if option.system_cuda else []
            is_open = len({version in spec_of(bound.specifier) for version in have}) > 1
        if is_open:
            found.append(bound)
    return tuple(found)


def _outside(specifier: str) -> str:
    """Return the versions that one comparison leaves out."""
    return f">={specifier[1:]}" if specifier.startswith("<") else f"<{specifier[2:]}"


def _wanted(option: Option, name: str) -> str:
    """Return which cuDNN a build asks for, as a specifier; nothing where no version is known."""
    pins = getattr(option.row, "pins", None) or {}
    if name in pins:
        return str(pins[name])
    have = option.cudnn or ""
    if have[:1] in ("<", ">", "=", "~", "!"):
        return have
    # A major alone says nothing of the versions that rows speak of.
    return f"=={have}" if "." in have else ""


def _of_images(matrix: Matrix, option: Option) -> list[str]:
    """Return the cuDNN versions of the images that a build without a CUDA of its own can stand on, newest first."""
    found = {
        image.cudnn
        for image in matrix.cuda_images_below(option.cuda)
        if image.has_cudnn and image.cudnn and option.cudnn and image.cudnn.split(".")[0] == option.cudnn
    }
    return sorted(found, key=parse, reverse=True)
