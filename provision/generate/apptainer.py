"""A Stack to an Apptainer definition, from the same steps as its Dockerfile.

The final file system of a definition is one image without layers, so what only the build needs is removed at the end
of ``%post``. Containers run as the user who starts them, so no user is made.
"""

from __future__ import annotations

import shlex

from provision.errors import UsageError
from provision.generate.engine import render
from provision.generate.image import ImageOptions, hook_files, pull_reference, to_artifacts, write_down
from provision.generate.write import Artifact
from provision.records import replace
from provision.resolve.stack import BaseImage, Stack

__all__ = ["DEFINITION", "render_apptainer"]

DEFINITION = "provision.def"


def render_apptainer(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write a stack down as a definition and the files it copies.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: How to write it; what only Dockerfiles have is not used.

    Returns:
        The files, sorted by path.

    Raises:
        UsageError: A value would not be safe in a file, or code would have to be compiled.
    """
    options = replace(options or ImageOptions(), frontend="modern", syntax=None)
    texts, values = write_down(stack, options)
    if stack.image is not None and stack.image.compiled:
        raise UsageError(
            f"{' and '.join(stack.image.compiled)} would be compiled, which the Apptainer definition has no stage for",
            hints=(
                "build the image from the Dockerfile and convert it: `apptainer build x.sif docker-daemon:NAME:TAG`",
            ),
        )
    image = stack.image
    assert image is not None  # noqa: S101 - write_down refused the stack without one
    files = sorted([*(path for path in texts if path != "requirements.lock.txt"), *hook_files(options)])
    values |= {
        "base_from": _from(image.base, options),
        "cuda_from": _from(image.cuda_base, options) if image.cuda_base else None,
        "files": files,
        "copy_commands": [_copy_command(place, target) for place, target in values["copies"]],
        "definition_labels": [f"{key} {value}" for key, value in sorted(values["label_values"].items()) if value],
        "command_words": " ".join(shlex.quote(word) for word in values["command"]),
    }
    texts[DEFINITION] = render("provision.def.j2", values)
    return to_artifacts(texts)


def _copy_command(place: str, target: str) -> str:
    """Return what puts a file, or all that a folder holds, where the image has it."""
    if place.endswith("/"):
        return f"mkdir -p {target} && cp -r /build/{place}. {target}"
    return f"mkdir -p {target.rpartition('/')[0] or '/'} && cp /build/{place} {target}"


def _from(base: BaseImage, options: ImageOptions) -> str:
    """Return what to pull; of a tag and a digest together Apptainer takes the digest alone."""
    reference = pull_reference(base, options)
    name, at, digest = reference.partition("@")
    if not at:
        return reference
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"
