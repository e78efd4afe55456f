"""Turn a parsed table into a frozen row, or say exactly which key of which row is wrong."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from provision.errors import DataError
from provision.matrix import model

__all__ = ["decode_row", "field_order"]

_FACT_FIELDS = tuple(field.name for field in fields(model.Fact))


def field_order(row_type: type) -> tuple[str, ...]:
    """Return a row's keys in file order: its own first, then where it was read."""
    names = [field.name for field in fields(row_type)]
    if not issubclass(row_type, model.Fact):
        return tuple(names)
    own = [name for name in names if name not in _FACT_FIELDS]
    return (*own, *_FACT_FIELDS)


def decode_row(row_type: type, table: Any, path: str) -> Any:
    """Build one row.

    Args:
        row_type: A dataclass of :mod:`provision.matrix.model`.
        table: What the TOML or JSON parser gave.
        path: Where the table stands (``cuda.toml: release[3]``), for the message.

    Raises:
        DataError: A key is missing, unknown or of the wrong type.
    """
    if not isinstance(table, dict):
        raise _broken(path, "is no table")
    plan = _plan(row_type)
    values = {}
    for key, value in table.items():
        step = plan.get(key)
        if step is None:
            raise _broken(path, f"has an unknown key `{key}`")
        values[key] = _KINDS[step[0]](value, f"{path}.{key}")
    for key, (_, is_required) in plan.items():
        if is_required and key not in values:
            raise _broken(path, f"lacks the key `{key}`")
    return row_type(**values)


_PLANS: dict[type, dict[str, tuple[str, bool]]] = {}


def _plan(row_type: type) -> dict[str, tuple[str, bool]]:
    plan = _PLANS.get(row_type)
    if plan is None:
        plan = {}
        for field in fields(row_type):
            kind = str(field.type).removesuffix(" | None")
            plan[field.name] = (kind, field.default is MISSING and field.default_factory is MISSING)
        _PLANS[row_type] = plan
    return plan


def _broken(path: str, what: str) -> DataError:
    return DataError(
        f"{path} {what}",
        hints=("run `provision data check` for every fault of the data at once",),
    )


def _text(value: Any, path: str) -> str:
    if type(value) is not str:
        raise _broken(path, f"must be a string, not {_name(value)}; versions are quoted")
    return value


def _whole(value: Any, path: str) -> int:
    if type(value) is not int:
        raise _broken(path, f"must be a whole number, not {_name(value)}")
    return value


def _number(value: Any, path: str) -> float:
    if type(value) is not int and type(value) is not float:
        raise _broken(path, f"must be a number, not {_name(value)}")
    return float(value)


def _flag(value: Any, path: str) -> bool:
    if type(value) is not bool:
        raise _broken(path, f"must be true or false, not {_name(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if type(value) is not list:
        raise _broken(path, f"must be a list, not {_name(value)}")
    return value


def _table(value: Any, path: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise _broken(path, f"must be a table, not {_name(value)}")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(_text(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _wholes(value: Any, path: str) -> tuple[int, ...]:
    return tuple(_whole(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _text_table(value: Any, path: str) -> dict[str, str]:
    return {key: _text(item, f"{path}.{key}") for key, item in _table(value, path).items()}


def _text_tables(value: Any, path: str) -> dict[str, dict[str, str]]:
    return {key: _text_table(item, f"{path}.{key}") for key, item in _table(value, path).items()}


def _evidence(value: Any, path: str) -> dict[str, Any]:
    return {key: decode_row(model.Evidence, item, f"{path}.{key}") for key, item in _table(value, path).items()}


def _requires(value: Any, path: str) -> tuple[tuple[str, ...], ...]:
    rows = tuple(_texts(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))
    for index, row in enumerate(rows):
        if len(row) != len(("name", "specifier", "marker", "extra")):
            raise _broken(f"{path}[{index}]", "must be [name, specifier, marker, extra]")
    return rows


def _wheels(value: Any, path: str) -> tuple[Any, ...]:
    return tuple(decode_row(model.Wheel, item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _name(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.40}"


_KINDS = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": _flag,
    "tuple[str, ...]": _texts,
    "tuple[int, ...]": _wholes,
    "dict[str, str]": _text_table,
    "dict[str, dict[str, str]]": _text_tables,
    "dict[str, Evidence]": _evidence,
    "tuple[tuple[str, str, str, str], ...]": _requires,
    "tuple[Wheel, ...]": _wheels,
}
