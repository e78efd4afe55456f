"""A stack on one screen: what was chosen, in which words, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from provision.cli.output import Output
from provision.cli.request import show_facts
from provision.resolve.stack import Reason, Stack

__all__ = ["align", "show_size", "show_stack", "size_of"]

_ROOM_MIN = 12
"""Columns below which a last cell is not folded: words one below another are harder to read than a long line."""
_COMPANIONS = ("torchvision", "torchaudio", "triton", "jaxlib")


def show_stack(stack: Stack, output: Output, stream: TextIO | None = None) -> str:
    """Return the lines of a stack: the versions, then every decision with its reason.

    Args:
        stack: The stack.
        output: Decides on colour, and on whether the facts of a decision are named.
        stream: Where the lines will go, the standard output unless said.
    """
    rows = [(reason.subject, _value(stack, reason), _why(reason, output)) for reason in stack.reasons]
    if stack.sm or stack.ptx:
        newer = f"newer GPUs compile {stack.ptx[-1]} when they first run it" if stack.ptx else "no code for newer GPUs"
        rows.append(("gpu code", _span(stack.sm or stack.ptx), newer))
    if stack.image is not None and stack.image.packages:
        rows.append(("size", *show_size(stack)))
    columns = output.terminal_columns(stream)
    head = "  ".join(_named(stack)) or f"CUDA {stack.cuda}"
    lines = [f"{output.paint(stack.name, 'label', stream)}   {head}", *align(rows, indent="  ", columns=columns)]
    lines.append(f"  lock {stack.lock_digest}")
    lines += [f"  {output.paint('warning:', 'warning', stream)} {text}" for text in stack.warnings]
    return "\n".join(lines)


def _named(stack: Stack) -> Iterator[str]:
    for name in (*stack.frameworks, *_COMPANIONS):
        if name in stack.packages:
            yield f"{name} {stack.packages[name]}"


def _value(stack: Stack, reason: Reason) -> str:
    subject = reason.subject
    if subject in stack.frameworks:
        return stack.frameworks[subject]
    image = stack.image
    known = {
        "python": stack.python,
        "cuda": stack.cuda,
        "cudnn": stack.cudnn,
        "nccl": stack.nccl,
        "driver": f"≥ {stack.driver.minimum}",
        "driver branch": stack.driver.recommended_branch,
        "base": image.base.ref if image else None,
        "cuda image": image.cuda_base.ref if image and image.cuda_base else None,
    }
    return known.get(subject) or stack.packages.get(subject) or ""


def _why(reason: Reason, output: Output) -> str:
    return show_facts(reason) if output.verbosity > 0 else reason.because


def _span(targets: Sequence[str]) -> str:
    return targets[0] if len(targets) == 1 else f"{targets[0]} … {targets[-1]}"


def show_size(stack: Stack) -> tuple[str, str]:
    """Return the installed size of the packages, and the rest that can be said of sizes."""
    download, installed, unknown = size_of(stack)
    total = len(stack.image.packages) if stack.image else 0
    if not installed:
        return "unknown", f"no size is known of the {total} packages"
    rest = f"{_giga(download)} to download, {total} packages"
    if unknown:
        rest += f", the sizes of {unknown} of them unknown and on top of this"
    if stack.image and stack.image.base.size_mb:
        rest += f"; the base is {stack.image.base.size_mb} MB"
    return f"{'over ' if unknown else ''}{_giga(installed)}", rest


def size_of(stack: Stack) -> tuple[int, int, int]:
    """Return bytes to download, bytes on disk, and how many packages have no known size."""
    packages = stack.image.packages if stack.image else ()
    return (
        sum(package.size or 0 for package in packages),
        sum(package.installed or 0 for package in packages),
        sum(package.installed is None for package in packages),
    )


def _giga(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def align(rows: Iterable[Sequence[str]], *, indent: str = "", columns: int | None = None) -> list[str]:
    """Return rows as lines with their columns aligned, the last one free.

    Args:
        rows: Cells; all rows have as many.
        indent: What each line begins with.
        columns: Width of the terminal, where there is one: a last cell too long for it goes on below itself.
    """
    table = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]) - 1)] if table else []
    lines: list[str] = []
    for row in table:
        lead = indent + "".join(cell.ljust(width) + "  " for cell, width in zip(row, widths, strict=False))
        if columns is None or len(lead + row[-1]) <= columns or columns - len(lead) < _ROOM_MIN:
            lines.append((lead + row[-1]).rstrip())
            continue
        from provision.cli.paragraph import wrap

        lines += wrap(row[-1], columns, lead=lead)
    return lines
