"""What the facts know of a base that comes with a framework of its own, by its tag alone."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.matrix.query import hub_name, split_reference
from provision.records import record
from provision.resolve.options import fact_of
from provision.resolve.stack import FactRef
from provision.versions import spec_of

_TAG = r"(?P<version>[0-9]+(?:\.[0-9]+)+)-cuda(?P<cuda>[0-9.]+)-cudnn(?P<cudnn>[0-9]+)-(?:runtime|devel)"


@record
class ForeignBase:
    """A base with a framework of its own; what is not known of it is absent.

    Attributes:
        framework: ``torch``, ``tensorflow`` or ``jax``.
        version: Of the framework.
        cuda: CUDA inside, ``12.8.0`` or ``12.1``.
        cudnn: cuDNN inside, at least its major.
        nccl: NCCL inside.
        python: Its Python.
        os: Its system.
        facts: The row that says so; none where the tag alone does.
    """

    framework: str
    version: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    python: str | None = None
    os: str | None = None
    facts: tuple[FactRef, ...] = ()

    @property
    def contents(self) -> str:
        """What it brings, in words."""
        named = {self.framework: self.version, "CUDA": self.cuda, "cuDNN": self.cudnn, "NCCL": self.nccl}
        known = [f"{name} {version}" for name, version in {**named, "Python": self.python}.items() if version]
        if self.version is None:
            known.insert(0, f"a {self.framework} of its own")
        return f"{', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else known[0]


def base_cuda(matrix: Matrix, base: str) -> str | None:
    """Return the CUDA that a base is known to hold."""
    rows = matrix.rows_with("images.toml", "cuda_image", "tag", base.partition("@")[0])
    if rows:
        return str(rows[0].cuda)
    foreign = known_base(matrix, base)
    return foreign.cuda if foreign is not None else None


def known_base(matrix: Matrix, base: str) -> ForeignBase | None:
    """Return what an image that comes with a framework brings, ``None`` for any other image.

    Args:
        matrix: The facts.
        base: The image as it was written, with tag or digest.
    """
    name, tag = name_and_tag(matrix, base)
    framework = matrix.setting("audit_rules.toml", "framework_images").entries.get(name)
    if framework is None:
        return None
    if name in matrix.setting("audit_rules.toml", "own_build_images").values:
        row = next((row for row in matrix.ngc_releases if tag.partition("-")[0] == row.release), None)
        if row is None:
            return ForeignBase(framework=framework)
        return ForeignBase(
            framework=framework,
            version=row.torch if framework == "torch" else None,
            cuda=row.cuda,
            cudnn=row.cudnn,
            nccl=row.nccl,
            python=row.python,
            os=row.os,
            facts=(fact_of("image", f"ngc-{row.release}", row),),
        )
    said = re.fullmatch(_TAG, tag)
    if said is None:
        return ForeignBase(framework=framework)
    return ForeignBase(
        framework=framework,
        version=said["version"],
        cuda=said["cuda"],
        cudnn=said["cudnn"],
        python=image_python(matrix, name, said["version"]),
    )


def name_and_tag(matrix: Matrix, base: str) -> tuple[str, str]:
    """Return the repository and the tag of an image, without its digest and without what stands for Docker Hub."""
    repository, tag, _ = split_reference(base)
    return hub_name(matrix, repository), tag


def is_musl(matrix: Matrix, repository: str, tag: str) -> bool:
    """Tell whether the name of an image says that it has musl in place of glibc."""
    names = matrix.setting("audit_rules.toml", "musl_images").values
    is_said = repository.rpartition("/")[2] in names or any(
        re.fullmatch(rf"{re.escape(name)}[0-9.]*", part) for name in names for part in tag.split("-")
    )
    return is_said and "glibc" not in tag


def image_python(matrix: Matrix, repository: str, version: str) -> str | None:
    """Return the Python of the images of a framework's release, ``None`` where the facts do not tell."""
    for key, python in matrix.setting("audit_rules.toml", "framework_image_pythons").entries.items():
        name, _, versions = key.partition(" ")
        if name == repository and version in spec_of(versions):
            return python
    return None
