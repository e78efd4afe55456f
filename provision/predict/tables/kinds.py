"""Tables of measured runs: each row becomes a request and what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from provision.errors import UsageError
from provision.predict.precision import read_precision
from provision.predict.request import PredictRequest
from provision.predict.tables.sheet import Cells, Sheet
from provision.records import fields_of, record


@record
class Measured:
    """One row: what was run, what was measured, and the groups it belongs to (``model``, ``gpu``, …)."""

    line: int
    request: PredictRequest
    value: float
    groups: dict[str, str]

    def __post_init__(self) -> None:
        """Refuse a value that no logarithm has.

        Raises:
            UsageError: It is not above zero, or not finite.
        """
        if not 0 < self.value < math.inf:
            raise UsageError(f"row {self.line}: what was measured comes to {self.value:g}")


@record
class Kind:
    """One kind of table.

    ``needs`` are columns without which it is another table, ``value`` begins the name of the one that was measured,
    and ``empty_with`` are those that are empty beside it where a run failed. ``read`` makes a row's records.
    ``assumes`` pairs columns that may be missing with what is then taken to be so.
    """

    name: str
    needs: tuple[str, ...]
    read: Callable[[Cells], Measured]
    value: str
    empty_with: tuple[str, ...] = ()
    assumes: tuple[tuple[str, str], ...] = ()

    def assumed(self, sheet: Sheet) -> tuple[tuple[str, str], ...]:
        """Return the columns that a table of this kind has not, each with what is taken to be so instead."""
        # A disaggregated deployment writes `decode_tp_size`.
        return tuple(
            (column, value)
            for column, value in self.assumes
            if not any(name == column or name.endswith(f"_{column}") for name in sheet.columns)
        )

    def is_unmeasured(self, cells: Cells) -> bool:
        """Tell whether a row says itself that its run brought nothing, as after running out of memory."""
        if (cells.text("status") or "").upper() in {"OOM", "FAILED", "ERROR"}:
            return True
        return bool(self.empty_with) and not cells.text(self.value, *self.empty_with)


def detect(sheet: Sheet, kinds: Sequence[Kind] = ()) -> Kind:
    """Return which kind of table a sheet is.

    Args:
        sheet: The table.
        kinds: Those that are understood; tables of requests alone without it.

    Raises:
        UsageError: None whose columns it has; says which columns the nearest kind lacks.
    """
    kinds = kinds or (PROBES,)
    have = set(sheet.columns)
    found = [kind for kind in kinds if have.issuperset(kind.needs) and _has_value(have, kind.value)]
    if found:
        return max(found, key=lambda kind: len(kind.needs))
    near = max(kinds, key=lambda kind: len(have.intersection(kind.needs)) / len(kind.needs))
    lacking = [name for name in near.needs if name not in have]
    lacking += [] if _has_value(have, near.value) else [near.value]
    raise UsageError(
        f"{sheet.path} is not a table of measured runs",
        because=(f"as a table of `{near.name}` it lacks the columns {', '.join(f'`{name}`' for name in lacking)}",),
        hints=(
            "name its columns as the fields of a request, and `measured`: `docs/predict.md` shows one",
            "what other projects publish is scored by `python -m tools.score_predict FILE` in a checkout",
        ),
    )


def _has_value(columns: set[str], value: str) -> bool:
    """Tell whether a column is there; a heading may go on with where the table is from, in parentheses."""
    return any(name == value or name.startswith(f"{value} (") for name in columns)


def precision_of(cells: Cells, *columns: str, default: str) -> str:
    """Return the precision of a row, the default where no column has one.

    Raises:
        UsageError: Something stands there that names none.
    """
    text = cells.text(*columns)
    if text is None:
        return default
    name = read_precision(text)
    if name is None:
        raise UsageError(f"row {cells.line}: `{text}` in column `{columns[0]}` names no precision")
    return name


def _read_probe(cells: Cells) -> Measured:
    values: dict[str, object] = {}
    for name, (kind, _) in fields_of(PredictRequest).items():
        if kind in {"bool", "bool | None"}:
            text = cells.text(name)
            if text is not None:
                values[name] = text.lower() in {"true", "1", "yes"}
        elif kind.startswith("str"):
            text = cells.text(name)
            if text is not None:
                values[name] = text
        else:
            number = cells.number(name)
            if number is not None:
                values[name] = round(number) if kind.startswith("int") else number
    values |= {"task": cells.need_text("task"), "gpu": cells.need_text("gpu")}
    if cells.text("precision") is not None:
        values["precision"] = precision_of(cells, "precision", default="bf16")
    request = PredictRequest(**values)  # type: ignore[arg-type]
    groups = {"model": request.model or "", "gpu": request.gpu, "task": request.task}
    return Measured(line=cells.line, request=request, value=cells.need("measured"), groups=groups)


PROBES = Kind(name="probes", needs=("task", "gpu"), read=_read_probe, value="measured")
"""Runs of one's own: columns are the fields of a request."""
