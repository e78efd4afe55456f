"""``setup.py`` and ``setup.cfg``, as far as they say without being run what a project needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import UsageError
from provision.project.choices import no_such, others
from provision.resolve.requirements import normalise_name

if TYPE_CHECKING:
    from provision.audit.setup_script import Needs
    from provision.project.folder import Folder


def take_setup(folder: Folder) -> bool:
    """Take what setup scripts ask for, and tell whether they say so."""
    from provision.audit.setup_script import Setup, read_setup_cfg, read_setup_py

    setups: list[tuple[Path, Setup]] = []
    if (path := folder.file("setup.cfg")) is not None:
        setups.append((path, read_setup_cfg(folder.files.take(path))))
    if (path := folder.file("setup.py")) is not None:
        try:
            setups.append((path, read_setup_py(folder.files.take(path))))
        except UsageError as error:
            # Scripts for an older Python are still lying about; what else there is may say it all.
            folder.found.warnings.append(f"{error.message}, and is not read")
    known = {normalise_name(name): (path, needs) for path, setup in setups for name, needs in setup.extras.items()}
    lists = [(path, setup.needs) for path, setup in setups if setup.needs is not None]
    before = len(folder.found.lines)
    for path, needs in lists[:1]:
        _take_needs(folder, path, needs)
    for path, setup in setups:
        if setup.python:
            folder.found.pythons.append((setup.python, f"`python_requires = {setup.python}` in {path}"))
    if len(folder.found.lines) == before and not any(name in known for name in folder.extras):
        folder.unread += [
            f"{path}, line {needs.unread}: what it asks for shows only when it runs"
            for path, needs in lists[:1]
            if needs.unread is not None
        ]
        if lists and lists[0][1].unread is None:
            folder.taken.append(lists[0][0].name)
            folder.empty.append(f"{lists[0][0]} asks for no package{others(known)}")
        return False
    for name in folder.extras:
        if name not in known:
            raise no_such("--extra", name, setups[-1][0], known)
        _take_needs(folder, *known[name])
    if folder.groups:
        raise no_such("--group", folder.groups[0], setups[-1][0], ())
    folder.tell((lists or setups)[0][0], len(folder.found.lines) - before)
    return True


def _take_needs(folder: Folder, path: Path, needs: Needs) -> None:
    """Take a list of a setup script."""
    for text, line in needs.lines:
        where = f"{path}, line {line}" if line else str(path)
        if bare := re.sub(r"(?:^|\s)#.*$", "", text).strip():
            folder.found.add(bare, where)
    for name in needs.files:
        folder.take_list(path.parent / name, path)
    if needs.unread is not None:
        folder.found.warnings.append(f"{path}, line {needs.unread}: what is added here shows only when it runs")
