"""A build of PyTorch with a local version, and no index that has it."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Edit, Environment, Finding, Install, Options, Requirement
from provision.audit.verdict import found
from provision.audit.wanted import CPU, index_variant
from provision.matrix.load import Matrix
from provision.resolve.published import is_on_index

ID = "C04"

_FAMILY = ("torch", "torchvision", "torchaudio")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the index of each local version among those in force; unknown indexes may have anything."""
    for install in environment.installs:
        if not (install.is_complete or install.is_index_known) or install.has_no_index:
            continue
        missing = [item for item in install.requirements if _is_missing(environment, matrix, install, item)]
        if missing:
            yield _finding(matrix, environment, install, missing)


def _is_missing(environment: Environment, matrix: Matrix, install: Install, requirement: Requirement) -> bool:
    if requirement.ecosystem != "pypi" or requirement.applies is not True:
        return False
    if not requirement.local or requirement.url is not None or requirement.is_locked:
        return False
    base = environment.base
    if requirement.name not in _FAMILY:
        return False
    if base is not None and base.frameworks.get(requirement.name) in (requirement.version, ""):
        return False
    known = {row.variant for row in matrix.torch_builds} | {CPU}
    if requirement.local not in known or is_on_index(matrix, requirement.name, requirement.version or "") is False:
        # What no index has in any build is another rule's matter.
        return False
    own = requirement.index
    urls = [index.url for index in install.indexes if index.kind != "channel"] if own is None else [own]
    variants = [index_variant(matrix, url) for url in urls]
    return None not in variants and requirement.local not in variants


def _finding(matrix: Matrix, environment: Environment, install: Install, missing: list[Requirement]) -> Finding:
    requirement = missing[0]
    template = matrix.setting("frameworks/torch.toml", "wheel_index").value or ""
    url = template.replace("{variant}", requirement.local)
    is_alone = all(item.name in _FAMILY for item in install.requirements)
    edits: list[Edit] = []
    is_one_build = len({item.local for item in missing}) == 1
    # uv asks an extra index first for every package, and would take old copies of the others from there.
    if install.flags_at is not None and is_one_build and (install.installer == "pip" or is_alone):
        edits.append(Edit(span=install.flags_at, text=install.flag_text(f"--extra-index-url {url}")))
    own = requirement.index
    indexes = [index.url or "" for index in install.indexes] if own is None else [own]
    where = f"only {', '.join(indexes)} is asked" if indexes else "no index but the default one is asked"
    return found(
        matrix,
        ID,
        span=requirement.span,
        message=f"{requirement.text} is not on PyPI, and no index in force has it",
        reasons=(f"builds with a local version such as +{requirement.local} are on PyTorch's index only", where),
        hint=_hint(environment, install, url),
        facts=[
            f"torch/{row.torch}+{row.variant}"
            for row in matrix.torch_builds
            if requirement.name == "torch" and requirement.version == f"{row.torch}+{row.variant}"
        ],
        edits=edits,
        fix=f"add the index of {requirement.local}",
    )


def _hint(environment: Environment, install: Install, url: str) -> str:
    """Return how the index is named there: a project has a table for it, and conda a line of pip."""
    if environment.kind == "pyproject":
        if install.installer == "poetry":
            return f'add a `[[tool.poetry.source]]` with `url = "{url}"`, and name it as the `source` of it'
        return f'add a `[[tool.uv.index]]` with `url = "{url}"`, and name it in `[tool.uv.sources]`'
    if environment.kind == "conda" and install.flags_at is None:
        return f"add `--extra-index-url {url}` to the list of pip"
    return f"add `--extra-index-url {url}`"
