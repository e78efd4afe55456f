"""Turn a parsed table into a frozen row, or say exactly which key of which row is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.errors import DataError
from provision.matrix import model
from provision.records import fields_of

_FACT_FIELDS = tuple(fields_of(model.Fact))


def field_order(row_type: type) -> tuple[str, ...]:
    """Return a row's keys in file order: its own first, then where it was read."""
    names = list(fields_of(row_type))
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
        raise _broken(path, "is not a table")
    kinds, required = _plan(row_type)
    values: dict[str, Any] = {}
    for key, value in table.items():
        kind = kinds.get(key)
        if kind == "str" and type(value) is str:
            # Most values are, and need neither a call nor the words of a message.
            values[key] = value
        elif kind is None:
            raise _broken(path, f"has an unknown key `{key}`")
        else:
            values[key] = _KINDS[kind](value, f"{path}.{key}")
    for key in required:
        if key not in values:
            raise _broken(path, f"lacks the key `{key}`")
    return row_type(**values)


_Plan = tuple[dict[str, str], tuple[str, ...]]
_PLANS: dict[type, _Plan] = {}


def _plan(row_type: type) -> _Plan:
    """Return the kind of each key, and the keys that a row must have."""
    plan = _PLANS.get(row_type)
    if plan is None:
        fields = fields_of(row_type)
        kinds = {name: kind.removesuffix(" | None") for name, (kind, _) in fields.items()}
        plan = _PLANS[row_type] = kinds, tuple(name for name, (_, is_required) in fields.items() if is_required)
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
    items = _list(value, path)
    for index, item in enumerate(items):
        if type(item) is not str:
            _text(item, f"{path}[{index}]")
    return tuple(items)


def _wholes(value: Any, path: str) -> tuple[int, ...]:
    return tuple(_whole(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _text_table(value: Any, path: str) -> dict[str, str]:
    return {key: _text(item, f"{path}.{key}") for key, item in _table(value, path).items()}


def _text_tables(value: Any, path: str) -> dict[str, dict[str, str]]:
    return {key: _text_table(item, f"{path}.{key}") for key, item in _table(value, path).items()}


class _Origins(Mapping[str, model.Evidence]):
    """The origins of single fields, each decoded when it is asked for: most never are."""

    def __init__(self, table: dict[str, Any], path: str) -> None:
        self._table = table
        self._path = path

    def __getitem__(self, key: str) -> model.Evidence:
        origin: model.Evidence = decode_row(model.Evidence, self._table[key], f"{self._path}.{key}")
        return origin

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _evidence(value: Any, path: str) -> _Origins:
    return _Origins(_table(value, path), path)


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
    "Mapping[str, str]": _text_table,
    "Mapping[str, Mapping[str, str]]": _text_tables,
    "Mapping[str, Evidence]": _evidence,
    "tuple[tuple[str, str, str, str], ...]": _requires,
    "tuple[Wheel, ...]": _wheels,
}
