"""Lists of requirements: what of one a request can hold, and what is left out or refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import UsageError, without_secrets
from provision.project.collector import Collector
from provision.project.files import Files

if TYPE_CHECKING:
    from provision.audit.model import Requirement, Source, Variable
    from provision.audit.requirements_file import Left, Listing

SHOWN = 100
"""Characters of a text that a message repeats."""
_CONDA_EXPORT = re.compile(r"[A-Za-z0-9_.-]+=[^=\s]+=[^=\s]+")
CONDA_WAYS_OUT = (
    "write `conda env export --from-history > environment.yml` in the environment, and give that file to `-r`",
    "or give `-r` what `pip list --format=freeze` prints",
)


class CondaListError(UsageError):
    """A file is what ``conda list --export`` prints, and no list of requirements."""


def read_list(found: Collector, source: Source, files: Files, *, root: Path | None = None) -> None:
    """Take what a list of requirements asks for, with the files that it names; see `take_listing`."""
    from provision.audit.requirements_file import read_listing
    from provision.audit.shell import content_of

    listing = read_listing(content_of(source), source, files, variables=variables(), is_strict=False)
    take_listing(found, listing, files, root=root)


def take_listing(found: Collector, listing: Listing, files: Files, *, root: Path | None = None) -> None:
    """Take what a requirements file asks for.

    Args:
        found: Where it goes.
        listing: It.
        files: Where its files were read.
        root: Folder of the project it belongs to, which it may name itself.
    """
    for item in listing.left:
        _judge(found, item, found.where(item.span, files), root)
    for is_constraint, requirements in ((False, listing.requirements), (True, listing.constraints)):
        for requirement in requirements:
            where = found.where(requirement.span, files)
            found.add(requirement.text, where, to=found.constraints if is_constraint else None)
            if requirement.hashes:
                found.hashes.setdefault(requirement.name, (where, set()))[1].update(requirement.hashes)
            if not is_constraint and _is_editable(requirement, files):
                found.warnings.append(f"{where}: {requirement.name} is installed, and not for editing")
    for index in listing.indexes:
        where = found.where(index.span, files)
        if index.url is None and index.span is not None:
            span = index.span
            raise _unset(files.sources[span.file].text[span.start : span.end], where)
        found.add_index(index, where, is_default=index.kind == "index")


def _judge(found: Collector, item: Left, where: str, root: Path | None) -> None:
    """Refuse what a file says and a request cannot hold, or tell that it is left out."""
    text = without_secrets(item.text)
    shown = repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
    if item.kind in ("path", "editable"):
        if root is not None and _is_itself(text, where, root):
            found.warnings.append(
                f"{where}: {shown} is the project itself, which `--copy` or `--install-project` puts into the image"
            )
            return
        if found.take_path(re.sub(r"^(?:-e|--editable)[\s=]*", "", text).strip("'\" "), where):
            return
        bare = re.split(r"\s+--", text, maxsplit=1)[0]
        if found.take_archive(bare, where) != bare:
            found.add(bare, where)
            return
    if item.kind == "option" and not text.startswith("--no-index"):
        found.warnings.append(f"{where}: {shown} is left out: {_why_ignored(text)}")
        return
    raise _refusal(item, where, shown)


def _is_editable(requirement: Requirement, files: Files) -> bool:
    source = files.sources.get(requirement.span.file)
    return source is not None and source.position(requirement.span).text.lstrip().startswith(("-e", "--editable"))


def _is_itself(text: str, where: str, root: Path) -> bool:
    """Tell whether a path of a requirements file is the project that the file belongs to."""
    path = re.sub(r"^(?:-e|--editable)[\s=]*", "", text).strip("'\" ").partition("[")[0].removeprefix("file:")
    folder = Path(where.rpartition(", line ")[0]).parent
    try:
        return (folder / path).resolve() == root.resolve()
    except OSError:
        return False


def _why_ignored(text: str) -> str:
    if text.startswith("--pre"):
        return "a pre-release is taken only where a line names one"
    if text.startswith("--trusted-host"):
        return "only https addresses are used"
    return "it chooses between the files of a release, or ways to ask for them, and the lock holds files by hash"


def _refusal(item: Left, where: str, shown: str) -> UsageError:
    flag = re.split(r"[\s=]", without_secrets(item.text), maxsplit=1)[0]
    if item.kind == "option":
        return UsageError(
            f"{where}: `--no-index` cannot be kept to: the frameworks come from their own indexes",
            hints=("leave it out; pages after `--find-links` are read all the same",),
        )
    if item.kind == "line option":
        return UsageError(
            f"{where}: of the options of one requirement only `--hash` is taken: {shown}",
            hints=("leave the others out",),
        )
    if item.kind == "unknown option":
        return UsageError(
            f"{where}: `{flag}` is not an option that is taken from a requirements file", hints=("leave the line out",)
        )
    if item.kind == "variable":
        return _unset(item.text, where)
    if item.kind in ("path", "editable"):
        return UsageError(
            f"{where}: no such wheel, archive or project is here: {shown}",
            hints=(
                "correct the path; for a project of your own write `--project DIR` in place of the line",
                "for anything else write `name==version`, or the https address of its wheel",
            ),
        )
    if item.kind == "missing":
        return UsageError(
            f"{where}: the file that it names is not there: {shown}",
            hints=("a path is relative to the file that names it",),
        )
    if item.kind == "cycle":
        return UsageError(
            f"{where}: the files lead in a circle",
            because=(" → ".join(item.chain),),
            hints=("leave one of these lines out",),
        )
    if item.kind == "depth":
        return UsageError(
            f"{where}: too many files lead from one to the next",
            because=(" → ".join(item.chain),),
            hints=("write their lines into one file",),
        )
    if item.kind == "address":
        return UsageError(
            f"{where}: no file is fetched from an address: {shown}",
            hints=("save the file in the folder of this one and name it",),
        )
    if _CONDA_EXPORT.fullmatch(item.text):
        return CondaListError(
            f"{where}: {shown} is a package of conda, as `conda list --export` prints it", hints=CONDA_WAYS_OUT
        )
    return UsageError(
        f"{where}: {shown} is not a requirement",
        hints=("write one requirement such as `name==version`, or one option of pip, a line",),
    )


def _unset(text: str, where: str) -> UsageError:
    """Return the refusal of a text with variables that are not set, by their names."""
    names = [name for name in re.findall(r"\$\{([A-Z0-9_]+)\}", text) if name not in os.environ]
    return UsageError(
        f"{where}: the variable `{names[0]}` is not set",
        because=("the file names it, and pip would take its text as it stands",),
        hints=(f"set it, as in `{names[0]}=… provision …`, or write its value into the file",),
    )


def variables() -> Mapping[str, Variable]:
    """Return the variables of this process, for the ``${NAME}`` of a requirements file."""
    from provision.audit.model import Span, Variable

    nowhere = Span(file="", start=0, end=0)
    return {
        name: Variable(name=name, value=value, kind="env", span=nowhere, name_span=nowhere)
        for name, value in os.environ.items()
    }
