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
    is_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    if is_checkout and checkout.is_dir():
        return checkout
    # Which tool installed the package, and from where, is not known here: pip, pipx, uv or a distribution's own.
    hint = "install the package again, with the tool and from the place it came from"
    if is_checkout:
        import shlex

        hint = f"`git -C {shlex.quote(str(_PACKAGE.parent))} checkout -- {name}` brings it back"
    raise DataError(
        f"the shipped folder `{name}` is missing",
        because=(f"there is no {checkout if is_checkout else installed}",),
        hints=(hint,),
    )
