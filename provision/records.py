"""Frozen, slotted records: what ``dataclasses`` gives, at a tenth of its start-up cost.

``dataclasses`` writes source for every method of every class and compiles it; for the classes a command loads this
takes longer than most commands have for all their work, and importing it brings ``inspect`` along. Here all records
share one set of methods. A type checker reads ``@record`` as a frozen, keyword-only dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

__all__ = ["NOTHING", "fields_of", "plain", "record", "replace"]

_Class = TypeVar("_Class")
_Record = TypeVar("_Record")
_REQUIRED = object()

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""The default of a mapping."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(record_type: type[_Class]) -> type[_Class]:
    """Make a frozen record of a class whose body lists fields as annotations.

    Instances take keyword arguments, compare and hash by their fields, and call ``__post_init__`` where there is
    one. Fields of a base that is a record come first.
    """
    inherited: dict[str, tuple[str, Any]] = getattr(record_type, "__record_fields__", {})
    own = {name: (str(kind), vars(record_type).get(name, _REQUIRED)) for name, kind in _annotations(record_type)}
    body = {name: value for name, value in vars(record_type).items() if name not in {*own, "__dict__", "__weakref__"}}
    body |= {"__slots__": tuple(own), "__record_fields__": inherited | own}
    body |= {"__init__": _fill, "__eq__": _equal, "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
    body.setdefault("__repr__", _represent)
    made: type[_Class] = type(record_type.__name__, record_type.__bases__, body)
    return made


def fields_of(record_type: type) -> dict[str, tuple[str, bool]]:
    """Return field name → (its type as written, whether it must be given), in the order of the class."""
    fields: dict[str, tuple[str, Any]] = getattr(record_type, "__record_fields__", {})
    return {name: (kind, default is _REQUIRED) for name, (kind, default) in fields.items()}


def replace(instance: _Record, **changes: Any) -> _Record:
    """Return a copy with some fields changed."""
    values = {name: getattr(instance, name) for name in fields_of(type(instance))}
    return type(instance)(**{**values, **changes})


def plain(value: Any) -> Any:
    """Return a record and all it holds as dicts, lists and scalars, ready for JSON."""
    if hasattr(value, "__record_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__record_fields__}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def _annotations(record_type: type) -> list[tuple[str, Any]]:
    return [
        (name, kind)
        for name, kind in vars(record_type).get("__annotations__", {}).items()
        if "ClassVar" not in str(kind)
    ]


def _fill(self: Any, **values: Any) -> None:
    for name, (_, default) in self.__record_fields__.items():
        value = values.pop(name, default)
        if value is _REQUIRED:
            raise TypeError(f"{type(self).__name__} lacks `{name}`")
        object.__setattr__(self, name, value)
    if values:
        raise TypeError(f"{type(self).__name__} has no `{next(iter(values))}`")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__record_fields__)


def _equal(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return self is other or _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: object, name: str, value: object = None) -> None:
    del value
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed: records are frozen")


def _represent(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__record_fields__)
    return f"{type(self).__name__}({shown})"
