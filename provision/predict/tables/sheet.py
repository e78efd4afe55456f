"""Reads CSV tables with row numbers, so that every refusal can say where."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path

from provision.errors import UsageError
from provision.records import record

MISSING = frozenset({"", "nan", "n/a", "na", "none", "null", "-", "inf", "-inf"})
_BYTES_MAX = 256 * 2**20
_SEPARATORS = (",", ";", "\t")
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d[\d_]*|(?=\.\d))(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
"""A number; commas part thousands. ``1234,5`` is none, since nothing tells whether it means 1234.5 or 12345."""


class Cells:
    """One row: what its cells say, by column.

    Args:
        line: Number of the row in its file, the heading being 1.
        values: Column → text.
        fault: What is wrong with the row as a whole, where something is.
    """

    __slots__ = ("fault", "line", "values")

    def __init__(self, line: int, values: Mapping[str, str], fault: str | None = None) -> None:
        self.line = line
        self.values = values
        self.fault = fault

    def check(self) -> None:
        """Refuse a row that is wrong as a whole.

        Raises:
            UsageError: It has a fault.
        """
        if self.fault is not None:
            raise UsageError(f"row {self.line}: {self.fault}")

    def text(self, *columns: str) -> str | None:
        """Return the first of some columns that has something in it."""
        for column in columns:
            value = (self.values.get(column) or "").strip()
            if value.lower() not in MISSING:
                return value
        return None

    def number(self, *columns: str) -> float | None:
        """Return the first of some columns as a finite number; absent where empty or NaN.

        Raises:
            UsageError: Something else than a number stands there.
        """
        value = self.text(*columns)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value):
            named = next(column for column in columns if self.text(column) is not None)
            why = "; a point parts decimals, a comma thousands" if "," in value else ""
            raise UsageError(f"row {self.line}: `{value}` in column `{named}` is not a number{why}")
        number = float(value.replace(",", "").replace("_", ""))
        return number if math.isfinite(number) else None

    def need(self, *columns: str) -> float:
        """Return a number above zero that must be there.

        Raises:
            UsageError: It is missing, no number, or not above zero.
        """
        number = self.number(*columns)
        if number is None:
            raise UsageError(f"row {self.line}: column `{columns[0]}` is empty or NaN")
        if number <= 0:
            raise UsageError(f"row {self.line}: column `{columns[0]}` is {number:g}, and must be above zero")
        return number

    def need_text(self, *columns: str) -> str:
        """Return a text that must be there.

        Raises:
            UsageError: It is missing.
        """
        text = self.text(*columns)
        if text is None:
            raise UsageError(f"row {self.line}: column `{columns[0]}` is empty or NaN")
        return text

    def whole(self, *columns: str, default: int | None = None) -> int | None:
        """Return a whole number above zero, or the default where there is none."""
        number = self.number(*columns)
        return default if number is None or number < 1 else round(number)


@record
class Sheet:
    """A table: its columns in order, its rows, and the SHA-256 of the file."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    sha256: str


def read_sheet(path: Path) -> Sheet:
    """Read a table with a heading, its cells parted by commas, semicolons or tabs.

    A row of another length than the heading has a ``fault``: which of its cells is which nobody can tell.

    Raises:
        UsageError: It cannot be read, is not UTF-8, empty, or too large.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read", because=(error.strerror or str(error),)) from error
    if len(raw) > _BYTES_MAX:
        raise UsageError(f"{path} is larger than {_BYTES_MAX // 2**20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8",
            because=(f"byte {error.start} is not part of a character",),
            hints=("save it as CSV in UTF-8",),
        ) from error
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text), strict=True)
        heading = next(lines, None)
        if not heading or not any(heading):
            raise UsageError(f"{path} has no heading", hints=("its first line names the columns",))
        columns = tuple(name.strip() for name in heading)
        twice = sorted({name for name in columns if name and columns.count(name) > 1})
        if twice:
            raise UsageError(f"{path}: the column `{twice[0]}` stands twice")
        rows = []
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            while len(cells) > len(columns) and not cells[-1].strip():
                cells.pop()
            fault = None
            if len(cells) != len(columns):
                fault = f"{len(cells)} cells under {len(columns)} columns; quote cells that hold a separator"
            rows.append(Cells(lines.line_num, dict(zip(columns, cells, strict=False)), fault))
    except csv.Error as error:
        raise UsageError(f"{path} is not CSV", because=(str(error),)) from error
    if not rows:
        raise UsageError(f"{path} has no rows below its heading")
    return Sheet(path=path, columns=columns, rows=tuple(rows), sha256=hashlib.sha256(raw).hexdigest())


def _separator(text: str) -> str:
    """Return what parts the cells of a table: what its heading has most columns by."""
    heading = text[: text.find("\n")] if "\n" in text else text
    return max(_SEPARATORS, key=lambda separator: len(next(csv.reader([heading], delimiter=separator), ())))
