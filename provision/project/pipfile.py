"""Manifests of pipenv."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.project.folder import Folder


def take_pipfile(folder: Folder) -> bool:
    """Take what a ``Pipfile`` asks for, and tell whether there is one."""
    path = folder.file("Pipfile")
    if path is None:
        return False
    from provision.audit.manifests import read_pipfile

    project = read_pipfile(folder.files.take(path))
    folder.refuse_left(project.left, path)
    folder.refuse_choices(path)
    before = len(folder.found.lines)
    for requirement in project.requirements:
        if folder.take_member(requirement):
            continue
        folder.add(requirement)
        for index in project.indexes:
            if requirement.index and requirement.index in (index.name, index.url):
                folder.found.add_index(index, str(path), package=requirement.name)
    for number, index in enumerate(project.indexes):
        folder.found.add_index(index, str(path), is_default=number == 0)
    if project.python:
        folder.found.pythons.append((f"=={project.python}", f"`python_version = {project.python}` in {path}"))
    folder.tell(path, len(folder.found.lines) - before)
    return True
