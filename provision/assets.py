"""Where the shipped trees (compat/, images/, playbooks/) lie, and which facts are in force.

In an installed wheel the trees sit under ``provision/_assets``; in a checkout they are the top-level folders.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from provision.errors import DataError

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


def is_installed() -> bool:
    """Tell whether this is an installed package and not a checkout."""
    return (_PACKAGE / "_assets").is_dir()


def update_dir() -> Path:
    """Return the folder of the user where `provision data update` keeps facts.

    Source: XDG Base Directory Specification, ``XDG_DATA_HOME``.
    """
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "provision" / "facts"


def facts_dir() -> Path:
    """Return the folder of the facts in force: those of an update where they are newer than the shipped ones.

    A checkout has its own facts in ``compat/``, and no update takes their place.

    Raises:
        DataError: The shipped facts are missing.
    """
    shipped = asset_dir("compat")
    if not is_installed():
        return shipped
    with suppress(OSError, RuntimeError, DataError):
        current = (update_dir() / "current").resolve(strict=True)
        if read_date(current) > read_date(shipped):
            return current
    return shipped


def read_date(folder: Path) -> str:
    """Return the day of a folder of facts (ISO).

    Raises:
        DataError: It has none.
    """
    path = folder / "frameworks" / "torch.toml"
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        found = re.search(r"^dated = (\d{4}-\d\d-\d\d)$", file.read(1024), re.MULTILINE)
        if found:
            return found[1]
    raise DataError("the facts have no date", because=(f"{path} names none",))
