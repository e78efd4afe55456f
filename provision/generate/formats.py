"""The forms in which one stack can be written, and the file of each that a person looks at first."""

from __future__ import annotations

from collections.abc import Mapping

from provision.generate.image import ImageOptions, render_image
from provision.generate.write import Artifact
from provision.records import NOTHING
from provision.resolve.stack import Stack

FORMATS = {
    "dockerfile": "Dockerfile",
    "apptainer": "provision.def",
    "devcontainer": "devcontainer.json",
    "bake": "docker-bake.hcl",
    "requirements": "requirements.lock.txt",
    "pylock": "pylock.toml",
}
"""Form → its first file."""


def render_format(
    form: str,
    stack: Stack,
    options: ImageOptions,
    *,
    urls: Mapping[str, str] = NOTHING,
    has_sbom: bool = False,
) -> tuple[Artifact, ...]:
    """Write a stack down in one form.

    Args:
        form: A key of ``FORMATS``.
        stack: The stack; its ``image`` part must be there.
        options: How to write it.
        urls: Package → address of its file, for a pylock.
        has_sbom: Add a bill of materials.

    Returns:
        The files, sorted by path.

    Raises:
        UsageError: A value would not be safe in a file, or the form cannot hold this stack.
        UnknownError: The form needs what the facts do not hold.
    """
    artifacts = _render(form, stack, options, urls)
    if has_sbom:
        from provision.generate.sbom import render_sbom

        artifacts = tuple(sorted((*artifacts, *render_sbom(stack, options)), key=lambda artifact: artifact.path))
    return artifacts


def _render(form: str, stack: Stack, options: ImageOptions, urls: Mapping[str, str]) -> tuple[Artifact, ...]:
    # Each form is imported alone: most calls want one.
    if form == "apptainer":
        from provision.generate.apptainer import render_apptainer

        return render_apptainer(stack, options)
    if form == "devcontainer":
        from provision.generate.devcontainer import render_devcontainer

        return render_devcontainer(stack, options)
    if form == "bake":
        from provision.generate.bake import BakeStack, render_bake

        return render_bake((BakeStack(name=stack.name.lower(), stack=stack, artifacts=render_image(stack, options)),))
    if form == "requirements":
        from provision.generate.requirements import render_requirements

        return render_requirements(stack, options)
    if form == "pylock":
        from provision.generate.pylock import render_pylock

        return render_pylock(stack, options, urls=urls)
    return render_image(stack, options)
