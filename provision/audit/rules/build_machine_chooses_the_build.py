"""A build of torch that is chosen by the driver of the machine on which an image is built."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C30"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for installs of an image that leave the choice to the machine."""
    for install in environment.own_installs if environment.kind == "stage" else ():
        for index in install.indexes if install.is_certain and not install.is_dry else ():
            if index.kind == "backend" and index.url == "auto":
                yield found(
                    matrix,
                    ID,
                    span=index.span,
                    message="the machine that builds the image chooses the build of torch",
                    reasons=("uv takes the build for the CPU where it sees no driver, as on most machines that build",),
                )
