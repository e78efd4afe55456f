"""A stack on one screen: what was chosen, in which words, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from provision.cli.output import Output
from provision.cli.request import show_facts
from provision.resolve.stack import Reason, Stack

_ROOM_MIN = 12
"""Columns below which a last cell is not folded: words one below another are harder to read than a long line."""
_FURTHER = "    "
"""How much further in the second line of a row stands."""
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
        columns: Width of the terminal, where there is one. A last cell too long for it goes on below itself; where a
            table has no room for all its columns side by side, those that are left stand on a further line of each
            row, aligned too and further in. A cell that is wider than the terminal remains one line.
    """
    table = [tuple(row) for row in rows]
    if not table:
        return []
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    bands = [range(len(widths))] if columns is None else _part(widths, table, columns - len(indent))
    lines: list[str] = []
    for row in table:
        for band in bands:
            lead = indent if band.start == 0 else f"{indent}{_FURTHER}"
            if band.start == 0 or any(row[column] for column in band):
                lines += _line(row, band, widths, lead, columns)
    return lines


def _line(row: Sequence[str], band: range, widths: Sequence[int], lead: str, columns: int | None) -> list[str]:
    """Return one row's cells of some columns; the last cell of the row is folded where it is too long."""
    lead += "".join(row[column].ljust(widths[column]) + "  " for column in band[:-1])
    cell = row[band[-1]]
    is_last = band.stop == len(row)
    if columns is None or not is_last or len(lead + cell) <= columns or columns - len(lead) < _ROOM_MIN:
        return [(lead + cell).rstrip()]
    from provision.cli.text.paragraph import wrap

    return wrap(cell, columns, lead=lead)


def _part(widths: Sequence[int], table: Sequence[Sequence[str]], room: int) -> list[range]:
    """Return the columns that stand side by side, line by line, with as few lines as the room allows."""
    needed = [*widths[:-1], min(widths[-1], max(_ROOM_MIN, _longest_word(row[-1] for row in table)))]
    bands: list[range] = []
    start, used = 0, needed[0]
    for column in range(1, len(needed)):
        if used + 2 + needed[column] <= room:
            used += 2 + needed[column]
            continue
        bands.append(range(start, column))
        start, used = column, len(_FURTHER) + needed[column]
    return [*bands, range(start, len(needed))]


def _longest_word(cells: Iterable[str]) -> int:
    return max((len(word) for cell in cells for word in cell.split()), default=0)
