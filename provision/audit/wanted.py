"""Which frameworks an environment asks for, as far as its own words tell: version, CUDA build, Python.

Nothing is decided here: what a wish comes to is asked of the resolver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.audit.channels import CUDA_CHOICE, conda_pytorch, is_from_channel, release_of, wish_of
from provision.audit.commands import is_apart, is_removed, is_removed_after, is_upgrade
from provision.audit.last import keeps_last
from provision.audit.model import Base, Environment, Install, Options, Requirement
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import FRAMEWORKS, Request, parse_request
from provision.versions import is_empty, spec_of

if TYPE_CHECKING:
    from provision.resolve.stack import Refusal, Stack

CPU = "cpu"

_VARIANT = r"cu[0-9]{2,3}"


@record
class Wanted:
    """One framework that one install asks for.

    Attributes:
        framework: ``torch``, ``tensorflow`` or ``jax``.
        specifier: Versions that will do, constraints included.
        version: The exact public version, ``None`` for a range.
        variant: The build: torch's ``cu118`` or ``cpu``, jax's ``cuda12``, TensorFlow's ``and-cuda`` or
            ``system-cuda``; ``None`` where the words do not tell.
        is_default: It is what PyPI serves, whichever build that is.
    """

    framework: str
    install: Install
    requirement: Requirement
    specifier: str
    version: str | None
    variant: str | None
    is_default: bool = False


@keeps_last
def frameworks(environment: Environment, matrix: Matrix) -> tuple[Wanted, ...]:
    """Return every wish for a framework from a Python index, in order."""
    return tuple(_wishes(environment, matrix))


def effective(environment: Environment, matrix: Matrix, framework: str) -> Wanted | None:
    """Return the wish that stands at the end: the first one, or a later one that contradicts it or is an upgrade.

    A wish before the framework was taken out counts for nothing, and so does one that the base meets already: pip
    leaves what is there. ``None`` where nothing asks for the framework, where installs go to several places, or where
    one might not run.
    """
    current: Wanted | None = None
    have: str | None = None
    for wanted in frameworks(environment, matrix):
        if wanted.framework != framework or wanted.install.is_dry:
            continue
        have = have or _held_by_base(environment, framework)
        if is_removed_after(environment, wanted.install, framework):
            continue
        if not wanted.install.is_certain or wanted.requirement.applies is None:
            return None
        if current is None:
            if have and not wanted.install.target and _keeps(environment, wanted.install, wanted.requirement, have):
                continue
            current = wanted
        elif wanted.install.target != current.install.target:
            return None
        elif _replaces(wanted, current) or (
            wanted.version is None and is_upgrade(environment, wanted.install, framework)
        ):
            current = wanted
    return current


def standing(environment: Environment, matrix: Matrix, framework: str) -> Wanted | None:
    """Return what an environment has of a framework at the end: a wish, or what its base or conda brought.

    The base's own is told as a wish of the line that names the base. It stands where nothing asks for another release,
    nothing takes it out, and no virtual environment stands between.
    """
    base = environment.base
    have = _held_by_base(environment, framework)
    asked = [(install, item) for install, item in environment.requirements() if item.name == framework]
    from_conda = list(conda_pytorch(environment)) if framework == "torch" else []
    if from_conda:
        have = release_of(from_conda[0][1]) if len(from_conda) == 1 else None
    if asked and (not have or not all(_keeps(environment, install, item, have) for install, item in asked)):
        return effective(environment, matrix, framework)
    if from_conda:
        return _of_conda(*from_conda[0]) if have else None
    if base is None or not have or any(is_removed(command, framework) for command in environment.commands):
        return None
    return _of_base(base, framework, have)


def _held_by_base(environment: Environment, framework: str) -> str | None:
    """Return the release of a framework that the base brings to where packages go; ``None`` where that is not known."""
    base = environment.base
    have = base.frameworks.get(framework) if base is not None and base.frameworks else None
    return None if not have or is_apart(environment) else have


def _keeps(environment: Environment, install: Install, item: Requirement, have: str) -> bool:
    """Tell whether a wish leaves the release that is there already."""
    if item.ecosystem != "pypi" or item.url is not None or item.local or not install.is_certain:
        return False
    return install.is_dry or (admits(item.specifier, have) and not is_upgrade(environment, install, item.name))


def _of_conda(install: Install, requirement: Requirement) -> Wanted | None:
    """Return PyTorch from conda as a wish; its build is told by pytorch-cuda where the channel pytorch is asked."""
    version = release_of(requirement)
    if version is None or not install.is_certain or install.is_dry:
        return None
    named = {item.name: item for item in install.requirements if item.ecosystem == "conda"}
    cuda = wish_of(named[CUDA_CHOICE]) if CUDA_CHOICE in named and is_from_channel(install) else None
    return Wanted(
        framework="torch",
        install=install,
        requirement=requirement,
        specifier=f"=={version}",
        version=version,
        variant=f"cu{cuda.replace('.', '')}" if cuda is not None and cuda.count(".") == 1 else None,
    )


def _of_base(base: Base, framework: str, version: str) -> Wanted:
    """Return the framework of a base as a wish: torch of the CUDA in the tag, TensorFlow with the CUDA of the image.

    An image of TensorFlow whose tag does not say ``gpu`` has no CUDA, so it asks nothing of a driver.
    """
    cuda = base.cuda
    variant = f"cu{cuda.replace('.', '')}" if framework == "torch" and cuda and cuda.count(".") == 1 else None
    if framework == "tensorflow" and "gpu" in base.tag.split("-"):
        variant = "system-cuda"
    requirement = Requirement(
        name=framework,
        specifier=f"=={version}",
        version=version,
        is_literal=False,
        text=f"{framework} {version} of the base",
        span=base.span,
        name_span=base.span,
        specifier_span=base.span,
    )
    return Wanted(
        framework=framework,
        install=Install(installer="base", command="FROM", requirements=(requirement,), span=base.span),
        requirement=requirement,
        specifier=requirement.specifier,
        version=version,
        variant=variant,
    )


def _replaces(later: Wanted, earlier: Wanted) -> bool:
    if later.version is not None and earlier.version is not None:
        is_other_build = bool(later.requirement.local) and later.requirement.local != earlier.variant
        return later.version != earlier.version or is_other_build
    if later.version is not None:
        return True
    if earlier.version is not None and later.specifier:
        return earlier.version not in spec_of(later.specifier)
    return False


def _wishes(environment: Environment, matrix: Matrix) -> Iterator[Wanted]:
    for install, requirement in environment.requirements():
        if requirement.ecosystem != "pypi" or requirement.name not in FRAMEWORKS:
            continue
        bounds = [item.specifier for item in install.constraints if item.name == requirement.name and item.specifier]
        url_version, url_local = _of_file(requirement)
        pinned = requirement.version or url_version
        for bound in bounds:
            if pinned is None and bound.startswith("==") and "," not in bound and "*" not in bound:
                pinned = bound.removeprefix("==")
        specifier = ",".join(part for part in (requirement.specifier, *bounds) if part)
        variant, is_default = variant_of(matrix, install, requirement, pinned, url_local)
        yield Wanted(
            framework=requirement.name,
            install=install,
            requirement=requirement,
            specifier=specifier,
            version=pinned.partition("+")[0] if pinned else None,
            variant=variant,
            is_default=is_default,
        )


def _unquoted(text: str) -> str:
    return text.replace("%2B", "+").replace("%2b", "+")


def _of_file(requirement: Requirement) -> tuple[str | None, str]:
    """Return version and local part from the address of a wheel."""
    if requirement.url is None:
        return None, ""
    # No other escape stands in the name of a wheel, and urllib takes long to import.
    file = _unquoted(requirement.url.partition("#")[0].rpartition("/")[2])
    found = re.match(rf"{re.escape(requirement.name.replace('-', '_'))}-([0-9][^-]*)-", file)
    if not file.endswith(".whl") or found is None:
        return None, ""
    return found[1], found[1].partition("+")[2]


def variant_of(
    matrix: Matrix, install: Install, requirement: Requirement, pinned: str | None, url_local: str = ""
) -> tuple[str | None, bool]:
    """Return the build that an install takes, and whether it is simply what PyPI serves.

    Args:
        matrix: The facts.
        install: The install.
        requirement: The wish for the framework.
        pinned: Its exact version, with the local part where it has one.
        url_local: Local part of the wheel's address.
    """
    if requirement.name == "tensorflow":
        return ("and-cuda" if "and-cuda" in requirement.extras else "system-cuda"), True
    if requirement.name == "jax":
        found = [re.match(r"cuda[0-9]{2}", extra) for extra in requirement.extras]
        variant = next((match[0] for match in found if match), None)
        # Without an extra pip installs no CUDA plugin, and a plugin that is named beside it tells no build of jax.
        return variant, variant is not None
    local = (pinned or "").partition("+")[2] or url_local
    if local:
        return local, False
    if requirement.url is not None:
        return None, False
    if requirement.index is not None:
        return index_variant(matrix, requirement.index), False
    if not install.is_complete or install.has_no_index:
        return None, False
    own = [index for index in install.indexes if not index.is_explicit and index.kind != "channel"]
    if not own:
        return None, install.has_default_index
    variants = [index_variant(matrix, index.url) for index in own]
    if None in variants:
        return None, False
    if len(own) == 1 and own[0].kind == "index" and not install.has_default_index:
        return variants[0], False
    if len(own) == 1 and own[0].kind in ("extra", "index") and pinned is not None:
        # A local version sorts above the same version without one; uv asks the extra index first.
        return variants[0], False
    return None, False


def is_pytorch_index(matrix: Matrix, url: str | None) -> bool:
    """Tell whether an address belongs to PyTorch's own index."""
    root = (matrix.setting("frameworks/torch.toml", "wheel_index").value or "").partition("{")[0]
    return bool(url) and bool(root) and f"{url}/".startswith(root)


def index_variant(matrix: Matrix, url: str | None) -> str | None:
    """Return the one build that an index serves (``cu118``, ``cpu``), ``None`` where it is not one build's index.

    A mirror is known by the end of its path.
    """
    if not url or "nightly" in url or "/test/" in url:
        return None
    root = (matrix.setting("frameworks/torch.toml", "wheel_index").value or "").partition("{")[0]
    tail = root.rstrip("/").rpartition("/")[2]
    found = re.search(rf"/{re.escape(tail)}/({_VARIANT}|{CPU})/?$", url)
    return found[1] if found else None


def cuda_of(variant: str | None) -> str | None:
    """Return the CUDA of a torch build: ``cu118`` → ``11.8``."""
    if variant is None or not re.fullmatch(_VARIANT, variant):
        return None
    digits = variant.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def build_of(matrix: Matrix, torch: Wanted) -> str | None:
    """Return the build of torch that is named, or else the one that PyPI serves."""
    if torch.variant is not None or not torch.is_default or torch.version is None:
        return torch.variant
    rows = [row.variant for row in matrix.torch_builds_of({torch.version}) if row.index == "pypi"]
    return rows[0] if len(rows) == 1 else None


def is_offered(environment: Environment, matrix: Matrix, options: Options, wanted: Wanted) -> bool:
    """Tell whether the facts list the very build for the very Python, so that nothing need be searched for it."""
    python = python_of(environment, wanted, options)
    if wanted.framework == "torch" and wanted.version is not None:
        rows = matrix.torch_builds_of({wanted.version})
        fitting = [row for row in rows if wanted.variant in (None, row.variant)]
        if any(python is None or python in row.pythons for row in fitting):
            return True
    try:
        request = parse_request({wanted.framework: _version_wish(wanted)})
    except UsageError:
        return False
    # Most files ask for nothing that the resolver must search for, and it takes long to import.
    from provision.resolve.options import offer

    return any(
        option.is_known
        and (python is None or python in option.pythons)
        and (wanted.variant is None or option.variant == wanted.variant)
        for option in offer(matrix, wanted.framework, request, "linux/amd64")
    )


def cuda_major(version: str | None) -> int | None:
    """Return the major of a CUDA version."""
    return int(version.partition(".")[0]) if version else None


def python_of(environment: Environment, wanted: Wanted | None, options: Options) -> str | None:
    """Return the Python in force as a minor (``3.10``), ``None`` where nobody tells."""
    text = (wanted.install.python if wanted is not None else None) or environment.python or options.python
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)?(t?)", text)
    return f"{found[1]}{found[2]}" if found else None


def platform_of(environment: Environment, options: Options) -> tuple[str, ...]:
    """Return the platforms it is built for, none where nobody tells."""
    if environment.platform is not None:
        return (environment.platform,)
    return options.platforms


def admits(specifier: str, version: str) -> bool:
    """Tell whether a specifier admits a version; one that makes no sense admits everything."""
    try:
        return not specifier or version.partition("+")[0] in spec_of(specifier)
    except ValueError:
        return True


def excludes(*specifiers: str) -> bool:
    """Tell whether no version meets all specifiers; False where one makes no sense."""
    try:
        return is_empty(text for text in specifiers if text)
    except ValueError:
        return False


def resolve(
    environment: Environment, matrix: Matrix, options: Options, wanted: Wanted, **changes: object
) -> Stack | Refusal | None:
    """Ask the resolver about one wish.

    Args:
        environment: Where it stands.
        matrix: The facts.
        options: What the person told.
        wanted: The wish.
        changes: More parts of the request, or other ones.

    Returns:
        The stack or the refusal, ``None`` where the words make no request.
    """
    values: dict[str, object] = {wanted.framework: _version_wish(wanted)}
    if wanted.framework == "torch" and wanted.variant not in (None, CPU):
        cuda = cuda_of(wanted.variant)
        if cuda is None:
            return None
        if wanted.version is None:
            values["cuda"] = cuda
    if wanted.framework == "jax" and wanted.variant is not None:
        values["cuda"] = wanted.variant.removeprefix("cuda")
    python = python_of(environment, wanted, options)
    if python is not None:
        values["python"] = python
    platforms = platform_of(environment, options)
    if len(platforms) == 1:
        values["platform"] = platforms[0]
    return resolve_request(matrix, {**values, **changes})


def exact_of(stack: Stack, wanted: Wanted) -> dict[str, str]:
    """Return the part of a request that keeps the stack's very build where a wish names one version, else nothing."""
    if wanted.version is None:
        return {}
    version = stack.frameworks[wanted.framework]
    return {wanted.framework: f"{version}+{stack.variants['torch']}" if wanted.framework == "torch" else version}


def resolve_request(matrix: Matrix, values: dict[str, object]) -> Stack | Refusal | None:
    """Ask the resolver; ``None`` where the values make no request."""
    try:
        request = parse_request({name: value for name, value in values.items() if value is not None})
    except UsageError:
        return None
    return _solved(matrix, request)


@lru_cache(maxsize=256)
def _solved(matrix: Matrix, request: Request) -> Stack | Refusal | None:
    from provision.resolve.solve import solve

    try:
        return solve(request, matrix)
    except UsageError:
        return None


def _version_wish(wanted: Wanted) -> str:
    if wanted.version is not None:
        local = wanted.variant if wanted.framework == "torch" and cuda_of(wanted.variant) else None
        return f"{wanted.version}+{local}" if local else wanted.version
    return wanted.specifier or ">=0"
