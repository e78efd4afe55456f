"""Where the shipped trees (compat/, images/, playbooks/) lie.

In an installed wheel they sit under ``provision/_assets``; in a checkout they are the top-level folders.
"""

from __future__ import annotations

from pathlib import Path

from provision.errors import DataError

__all__ = ["asset_dir"]

_PACKAGE = Path(__file__).resolve().parent


def asset_dir(name: str) -> Path:
    """Return the folder of one shipped tree.

    Args:
        name: ``compat``, ``images`` or ``playbooks``.

    Raises:
        DataError: Neither the installed nor the checkout folder exists.
    """
    installed = _PACKAGE / "_assets" / name
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent / name
    if (_PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    raise DataError(
        f"the shipped folder `{name}` is missing",
        because=(f"neither {installed} nor {checkout} exists",),
        hints=("install the package again: `pipx install --force gpu-provision`",),
    )
