"""TensorFlow that loads CUDA from the system, on a base that has another one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from provision.audit.bases import cuda_image, may_have_frameworks
from provision.audit.libraries import brings_system_libraries
from provision.audit.model import WARN, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, cuda_major, effective, frameworks
from provision.matrix.load import Matrix
from provision.matrix.model import CudaImage, TensorflowRelease

ID = "C07"

_LIBRARY = r"nvidia-(?:cudnn|cublas|cuda-runtime)-cu([0-9]+)"
_NAMES = ("tensorflow", "tensorflow-gpu")
_OTHERS = ("torch", "pytorch", "jax", "jaxlib", "vllm")
"""What has libraries of CUDA beside it for itself."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the base against what the release was built with."""
    base = environment.base
    wanted = effective(environment, matrix, "tensorflow")
    if wanted is not None and wanted.variant != "system-cuda":
        return
    image = cuda_image(matrix, base) if base is not None else None
    if image is None:
        yield from _wheels_of_another_cuda(environment, matrix)
        return
    row = _release(matrix, wanted.version) if wanted is not None else None
    if wanted is None or row is None or _brings_libraries(environment, matrix):
        return
    for because, message in _faults(image, row):
        yield found(
            matrix,
            ID,
            span=wanted.requirement.span,
            message=f"tensorflow {row.version} {message}",
            reasons=(because, "without its libraries TensorFlow runs on the CPU and says so in a log line only"),
            hint="" if row.has_cuda_extra else f"take a runtime base with CUDA {row.cuda} and cuDNN {row.cudnn_major}",
            facts=(f"tensorflow/{row.version}", f"image/{image.tag}"),
        )
        return


def _wheels_of_another_cuda(environment: Environment, matrix: Matrix) -> Iterator[Finding]:
    """Yield that the libraries which stand beside TensorFlow are not those that it opens."""
    sure = [item for install, item in environment.requirements() if install.is_certain and item.applies is True]
    rows = [row for item in sure if item.name in _NAMES and (row := _release(matrix, item.version)) is not None]
    libraries = {match[1]: item for item in reversed(sure) if (match := re.fullmatch(_LIBRARY, item.name))}
    if not rows or not libraries or may_have_frameworks(matrix, environment):
        return
    row, major = rows[0], str(cuda_major(rows[0].cuda))
    if major in libraries or any(item.name in _OTHERS for _, item in environment.requirements()):
        return
    item = min(libraries.values(), key=lambda library: library.span.start)
    yield found(
        matrix,
        ID,
        span=item.span,
        message=f"{item.name} is not of the CUDA that tensorflow {row.version} loads",
        reasons=(
            f"tensorflow {row.version} was built with CUDA {row.cuda} and cuDNN {row.cudnn_major}",
            "without its libraries TensorFlow runs on the CPU and says so in a log line only",
        ),
        severity=WARN,
        hint=f"take the libraries of CUDA {major}, or a release that was built with this CUDA",
        facts=(f"tensorflow/{row.version}",),
    )


def _release(matrix: Matrix, version: str | None) -> TensorflowRelease | None:
    return next((row for row in matrix.tensorflow if row.version == version and row.cuda), None)


def _faults(image: CudaImage, row: TensorflowRelease) -> Iterator[tuple[str, str]]:
    if cuda_major(image.cuda) != cuda_major(row.cuda):
        yield f"{image.tag} has CUDA {image.cuda}", f"was built with CUDA {row.cuda}"
    elif image.flavour == "base":
        yield f"{image.tag} has the CUDA runtime and none of the libraries", f"loads CUDA {row.cuda} from the system"
    elif not image.has_cudnn:
        yield f"{image.tag} has no cuDNN", f"needs cuDNN {row.cudnn_major}"
    elif image.cudnn is not None and image.cudnn.partition(".")[0] != row.cudnn_major:
        yield f"{image.tag} has cuDNN {image.cudnn}", f"needs cuDNN {row.cudnn_major}"


def _brings_libraries(environment: Environment, matrix: Matrix) -> bool:
    """Tell whether something else may bring CUDA or cuDNN, or whether that cannot be told."""
    if environment.copies_from:
        return True
    # The CUDA builds of torch come with the libraries, or ask for the wheels that hold them.
    if any(wanted.framework == "torch" and wanted.variant != CPU for wanted in frameworks(environment, matrix)):
        return True
    if any(not install.is_complete for install in environment.installs) or brings_system_libraries(environment):
        return True
    return any(
        command.program is None or None in (word.text for word in command.words) for command in environment.commands
    )
