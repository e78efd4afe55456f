"""Which images a stack stands on: an official Python image, an nvidia/cuda tag, or both."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.matrix.model import CudaImage, PythonImage
from provision.matrix.query import cuda_releases
from provision.records import record
from provision.resolve.fit import cudnn_bounds
from provision.resolve.foreign import ForeignBase, is_musl, known_base, name_and_tag
from provision.resolve.options import Option, fact_of
from provision.resolve.request import FRAMEWORKS
from provision.resolve.rules import Rejection, Wish, cuda_matches
from provision.versions import minor_of, parse, spec_of


@record
class Base:
    """The images, and the glibc wheels will meet there (``None`` = not known)."""

    python_image: PythonImage | None
    cuda_image: CudaImage | None
    glibc: str | None


def choose_base(matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str | None) -> Base | Rejection:
    """Pick the images a stack stands on; a base the user names is taken as it is."""
    system = next((option for option in options if option.system_cuda or option.framework == "cuda"), None)
    cuda_image: CudaImage | None = None
    if system is not None and not (wish.request.base is not None and python is None):
        flavour = "devel" if wish.flavor == "devel" else "runtime"
        cudnn = system.cudnn if system.system_cuda else None
        patch = system.version if system.framework == "cuda" else None
        chosen = choose_cuda_image(matrix, wish, system.cuda, flavour=flavour, cudnn_major=cudnn, patch=patch)
        if isinstance(chosen, Rejection):
            return chosen
        cuda_image = chosen
    if wish.request.base is not None:
        foreign = known_base(matrix, wish.request.base)
        problem = _unfit_base(matrix, wish.request.base, options, python)
        problem = problem or (_unfit_foreign(matrix, wish, options, python, foreign) if foreign is not None else None)
        if problem:
            return problem
        below = wish.os or (matrix.os_release(foreign.os) if foreign is not None else None)
        return Base(python_image=None, cuda_image=cuda_image, glibc=below.glibc if below else None)
    if python is None:
        return Base(python_image=None, cuda_image=cuda_image, glibc=wish.os.glibc if wish.os else None)
    wanted = "full" if wish.flavor == "devel" else "slim"
    fitting = []
    preference = matrix.setting("images.toml", "base_preference").values
    glibc = max((option.glibc for option in options if option.glibc), key=parse, default=None)
    compilers = cuda_releases(matrix, options[0].cuda or "0") if wish.flavor == "devel" else ()
    gcc_max = min((row.gcc_max for row in compilers if row.gcc_max), default=None)
    for image in matrix.python_images_of(python):
        if image.python != python or image.flavour != wanted or wish.platform not in image.platforms:
            continue
        if wish.os is not None and image.os != wish.os.id:
            continue
        system_row = matrix.os_release(image.os)
        if glibc and system_row and system_row.glibc and parse(system_row.glibc) < parse(glibc):
            continue
        if gcc_max and system_row and system_row.gcc and system_row.gcc > gcc_max:
            continue
        position = preference.index(image.os) if image.os in preference else len(preference)
        fitting.append((position, image.tag, image, system_row))
    if not fitting:
        if wish.os is not None or python.endswith("t"):
            # The stack is sound on that system or interpreter; only an official image to build it on is missing.
            return Base(python_image=None, cuda_image=cuda_image, glibc=wish.os.glibc if wish.os else None)
        return Rejection(
            rule="base",
            is_proved=False,
            subject="",
            because=f"needs an official Python {python} image ({wanted}) for {wish.platform}; the facts list none",
        )
    _, _, best, row = min(fitting, key=lambda item: item[:2])
    return Base(python_image=best, cuda_image=cuda_image, glibc=row.glibc if row else None)


def _serves_gpus(matrix: Matrix, wish: Wish, cudnn: str, cuda_major: int) -> bool:
    bounds = (bound for _, rows in wish.gpus for bound in cudnn_bounds(matrix, rows[0], cuda_major))
    return all(cudnn in spec_of(bound.specifier) for bound in bounds)


_LIFECYCLES = ("supported", "unsupported", "unlisted", "deleted")


def _unfit_base(matrix: Matrix, base: str, options: tuple[Option, ...], python: str | None) -> Rejection | None:
    """Return why a base whose name says what it holds cannot hold this Python or CUDA; of others nothing is known."""
    ref = base.partition("@")[0]
    name, tag = name_and_tag(matrix, base)
    short = f"{name}:{tag}" if tag else name
    lacking, lacks = None, ""
    if is_musl(matrix, name, tag):
        lacking = matrix.setting("audit_rules.toml", "musl_images")
        lacks = "has musl: wheels of frameworks are for glibc alone"
    elif name in (systems := matrix.setting("images.toml", "systems_without_python")).values:
        lacking, lacks = systems, "holds no Python; without `--base` an image is chosen that has one"
    if python is not None and lacking is not None:
        fact = fact_of("setting", lacking.id, lacking)
        because = f"cannot stand on {ref}, which {lacks}"
        return Rejection(rule="base", is_proved=True, subject="", because=because, facts=(fact,))
    image = next((row for row in matrix.python_images if row.tag == short), None)
    if image is None and (found := re.match(r"python:([0-9]+\.[0-9]+)(?![0-9t])", short)):
        # An official tag that the facts do not list says its Python too.
        image = next((row for row in matrix.python_images if row.python == found[1]), None)
    if image is not None and python is not None and image.python != python:
        because = f"cannot stand on {ref}, which holds Python {image.python}"
        fact = fact_of("image", image.tag, image)
        return Rejection(rule="base", is_proved=True, subject="", because=because, facts=(fact,))
    bare = next((row for row in matrix.cuda_images if row.tag == short), None)
    if python is None and (bare is None or minor_of(bare.cuda) == minor_of(options[0].cuda)):
        return None
    if bare is None and name in (*matrix.setting("images.toml", "registries").values, *_names(matrix)):
        bare = next(iter(matrix.cuda_images), None)
    if bare is None:
        return None
    because = f"cannot stand on {ref}, which holds CUDA {bare.cuda}"
    if python is not None:
        because = (
            f"cannot stand on {ref}, which holds no Python {python}; without `--base` the CUDA that it needs is put "
            "into an image that has one"
        )
    fact = fact_of("image", bare.tag, bare)
    return Rejection(rule="base", is_proved=True, subject="", because=because, facts=(fact,))


def _unfit_foreign(
    matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str | None, foreign: ForeignBase
) -> Rejection | None:
    """Return why a base with a framework of its own cannot hold this Python, this CUDA or this system."""
    because = ""
    minor = minor_of(foreign.cuda) if foreign.cuda is not None else None
    stands_on_it = {minor_of(option.cuda) for option in options if option.system_cuda or option.framework == "cuda"}
    is_other_cuda = minor is not None and (not cuda_matches(matrix, wish.request.cuda, minor) or stands_on_it - {minor})
    if python is not None and foreign.python is not None and python != foreign.python:
        because = f"which holds Python {foreign.python}"
    elif is_other_cuda:
        because = f"which holds CUDA {foreign.cuda}"
    elif wish.os is not None and foreign.os is not None and wish.os.id != foreign.os:
        because = f"which is {foreign.os}"
    if not because:
        return None
    because = f"cannot stand on {wish.request.base}, {because}"
    return Rejection(rule="base", is_proved=True, subject="", because=because, facts=foreign.facts)


def _names(matrix: Matrix) -> set[str]:
    """Return the names of the images whose tags are listed as CUDA's."""
    return {row.tag.partition(":")[0] for row in matrix.cuda_images}


def choose_cuda_image(
    matrix: Matrix, wish: Wish, cuda: str, *, flavour: str, cudnn_major: str | None, patch: str | None = None
) -> CudaImage | Rejection:
    """Pick an nvidia/cuda tag: the best kept one, then the newest patch, then the newest system.

    Args:
        matrix: The facts.
        wish: The request.
        cuda: Minor (``11.2``).
        flavour: ``runtime`` or ``devel``.
        cudnn_major: cuDNN it must hold, or ``None`` for a tag without.
        patch: Exact CUDA release, where one was asked for.
    """
    fitting = []
    minor = parse(cuda).release[:2]
    is_final = wish.request.python is None and not any(getattr(wish.request, name) for name in FRAMEWORKS)
    for image in matrix.cuda_images_below(minor_of(cuda)):
        if image.flavour != flavour or parse(image.cuda).release[:2] != minor:
            continue
        if patch is not None and image.cuda != patch:
            continue
        if cudnn_major is not None and (not image.has_cudnn or (image.cudnn or "").split(".")[0] != cudnn_major):
            continue
        if cudnn_major is None and image.has_cudnn:
            continue
        if image.cudnn and not _serves_gpus(matrix, wish, image.cudnn, minor[0]):
            continue
        if wish.platform != "linux/amd64" and wish.platform not in image.platforms:
            continue
        if not image.os.startswith("ubuntu") and wish.os is None:
            continue
        if wish.os is not None and is_final and image.os != wish.os.id:
            continue
        age = _LIFECYCLES.index(image.lifecycle) if image.lifecycle in _LIFECYCLES else len(_LIFECYCLES)
        fitting.append(((-age, parse(image.cuda), image.os), image))
    if not fitting:
        what = f"nvidia/cuda {patch or cuda} {flavour} image" + (f" with cuDNN {cudnn_major}" if cudnn_major else "")
        where = f" on {wish.os.id}" if wish.os else ""
        return Rejection(
            rule="cuda-image",
            is_proved=False,
            subject="",
            because=f"needs an {what}{where} for {wish.platform}, and the facts list none",
        )
    return max(fitting, key=lambda item: item[0])[1]
