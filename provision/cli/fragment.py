"""A stack for the project's own tool: printed, or written into the project's file."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.output import Output
from provision.cli.parser import Once, add_choice, parse_path
from provision.errors import UsageError
from provision.files import read_text
from provision.generate.fragment import FRAGMENTS, write_fragment
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.generate.fragment.half import GpuHalf
    from provision.resolve.stack import Stack

_FILE_BYTES_MAX = 4 * 1024 * 1024


def add_fragment_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("for an existing project")
    add_choice(
        group,
        "--format",
        tuple(FRAGMENTS),
        help="print the entries that make this tool install the frameworks, instead of the stack",
    )
    group.add_argument(
        "--write",
        action=Once,
        nargs="?",
        const=Path(),
        type=parse_path,
        metavar="FILE",
        help=("write them to the project file (default: the tool's usual file); with --dry-run only show the change"),
    )


def give_fragment(stack: Stack, matrix: Matrix, options: argparse.Namespace, output: Output) -> None:
    """Print the GPU half of a stack for a tool, or write it into a file.

    Raises:
        UsageError: The file is malformed, or the tool has no way to say it.
        ActionFailedError: The file cannot be written.
    """
    from provision.generate.fragment.half import take_gpu_half

    half = take_gpu_half(stack, matrix)
    left = [*stack.request.extras, *stack.request.requirements]
    if left:
        output.warn(f"only the frameworks are written; `{left[0]}` and the like are the project's own to name")
    form: str = options.format
    if options.write is None:
        text = write_fragment(form, half, None, FRAGMENTS[form][0]).text
        output.give({"stack": stack.to_json(), "format": form, "text": text}, text.rstrip("\n"))
        return
    _write(stack, half, form, options.write, output)


def _write(stack: Stack, half: GpuHalf, form: str, named: Path, output: Output) -> None:
    path = named if named != Path() else _usual_file(form)
    is_new = not path.exists()
    before = None if is_new else read_text(path, "--write", bytes_max=_FILE_BYTES_MAX)
    edit = write_fragment(
        form,
        half,
        None if before is None else before.replace("\r\n", "\n"),
        path.name,
        name=_project_name(path) if is_new else None,
    )
    after = edit.text.replace("\n", "\r\n") if before is not None and "\r\n" in before else edit.text
    for sentence in edit.told:
        output.note(sentence)
    is_changed = after != before
    change = _difference(path, before or "", after)
    is_dry_run = output.is_dry_run
    if is_changed:
        mode = None if is_new else path.stat().st_mode
        output.save(path, after)
        if mode is not None and not is_dry_run:
            path.chmod(stat.S_IMODE(mode))
    document = {
        "stack": stack.to_json(),
        "format": form,
        "file": str(path),
        "is_changed": is_changed,
        "replaced": list(edit.told),
        "difference": change,
    }
    if not is_changed:
        output.give(document, f"{path} says this already")
    else:
        output.give(document, change.rstrip("\n") if is_dry_run else f"{path} takes {stack.name} ({form})")


def _usual_file(form: str) -> Path:
    """Return the file in this folder that a tool reads."""
    names = FRAGMENTS[form]
    found = next((Path(name) for name in names if Path(name).is_file()), None)
    if found is None and form == "pixi":
        project = Path("pyproject.toml")
        if project.is_file() and "[tool.pixi" in read_text(project, "--write", bytes_max=_FILE_BYTES_MAX):
            return project
    return found or Path(names[0])


def _project_name(path: Path) -> str:
    """Return a name for a new project: that of its folder, as names are spelled."""
    import re

    name = re.sub(r"[^a-z0-9]+", "-", path.resolve().parent.name.lower()).strip("-")
    return name or "project"


def _difference(path: Path, before: str, after: str) -> str:
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), str(path)
    )
    return "".join(lines)


def check_fragment_flags(options: argparse.Namespace) -> None:
    """Refuse flags that mean nothing together.

    Raises:
        UsageError: ``--write`` without ``--format``, or either with ``--batch``.
    """
    if options.write is not None and options.format is None:
        raise UsageError("--write needs to know for which tool", hints=(f"add `--format`: {', '.join(FRAGMENTS)}",))
    if options.format is not None and options.batch is not None:
        raise UsageError("--batch takes no --format", because=("each of its answers is a document of its own",))
