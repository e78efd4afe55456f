"""The GPU half of a stack as the file of a project's own tool: uv, pixi, conda, Poetry, pip."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.generate.fragment.edit import Edit
    from provision.generate.fragment.half import GpuHalf

FRAGMENTS = {
    "uv": ("pyproject.toml",),
    "pixi": ("pixi.toml",),
    "conda": ("environment.yml", "environment.yaml"),
    "poetry": ("pyproject.toml",),
    "pip": ("requirements.txt",),
}
"""Tool → the names its file has, the usual one first."""


def write_fragment(form: str, half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into the file of a tool.

    Args:
        form: A key of ``FRAGMENTS``.
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name.
        name: Name of a new project; absent where only the fragment is wanted.

    Raises:
        UsageError: The file is malformed, or the tool has no way to say it.
    """
    # Each tool is imported alone: a call wants one.
    if form == "uv":
        from provision.generate.fragment.uv import write_uv as write
    elif form == "pixi":
        from provision.generate.fragment.pixi import write_pixi as write
    elif form == "conda":
        from provision.generate.fragment.conda import write_conda as write
    elif form == "poetry":
        from provision.generate.fragment.poetry import write_poetry as write
    else:
        from provision.generate.fragment.pip import write_pip as write
    return write(half, text, path, name=name)
