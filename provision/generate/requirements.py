"""A Stack to requirements files alone, for machines that have their own Python and no container."""

from __future__ import annotations

import re

from provision.errors import UsageError
from provision.generate.image import ImageOptions, make_recipe, to_artifacts
from provision.generate.write import Artifact
from provision.resolve.stack import Stack

REQUIREMENTS = "requirements.lock.txt"
_KEPT = re.compile(
    r"requirements\.(?:lock|user|source|git|unverified(?:\.[0-9]+)?)\.txt|constraints\.txt|provision\.lock"
)


def render_requirements(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write the environment of a stack down as pip and uv read it.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: Only the index counts.

    Returns:
        The files, sorted by path. ``requirements.lock.txt`` holds what is known by hash; what has none, and what is
        resolved later, lies in files of its own, since installers refuse the mixture.

    Raises:
        UsageError: The stack has no Python.
    """
    check_has_python(stack, "requirements")
    files = make_recipe(stack, options or ImageOptions()).files
    kept = {path: text for path, text in files.items() if _KEPT.fullmatch(path)}
    if stack.image is not None and stack.image.is_whole:
        # What the user's lines brought is locked with the rest; only a commit has no hash.
        kept.pop("requirements.user.txt", None)
        kept.pop("requirements.source.txt", None)
    others = sorted(path for path in kept if path not in (REQUIREMENTS, "constraints.txt", "provision.lock"))
    head = [
        f"# provision.lock {stack.lock_digest}",
        f"# {stack.name}: Python {stack.python} on {stack.platform}, facts of {stack.facts_date}.",
        f"# Install: python{stack.python} -m pip install --no-deps --require-hashes -r {REQUIREMENTS}",
        *(f"# then, with `--constraint constraints.txt`: {path}" for path in others),
    ]
    kept[REQUIREMENTS] = "\n".join(head) + "\n" + kept[REQUIREMENTS]
    return to_artifacts(kept)


def check_has_python(stack: Stack, kind: str) -> None:
    """Refuse a stack of CUDA alone, which has no packages to list.

    Raises:
        UsageError: The stack has no Python.
    """
    if stack.python is None:
        raise UsageError(
            f"{stack.name} has no Python, so there is nothing to write as {kind}",
            hints=("name a framework, or a Python with `--python`",),
        )
