"""Frozen, slotted records: what ``dataclasses`` gives, at a tenth of its start-up cost.

``dataclasses`` writes source for every method of every class and compiles it; for the classes a command loads this
takes longer than most commands have for all their work, and importing it brings ``inspect`` along. Here all records
share one set of methods. A type checker reads ``@record`` as a frozen, keyword-only dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")
_Record = TypeVar("_Record")
_Plan = list[tuple[str, Any, Callable[[Any, Any], None]]]
_REQUIRED = object()
_PLANS: dict[type, _Plan] = {}
_READERS: dict[type, Callable[[Any], Any]] = {}

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""The default of a mapping."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(record_type: type[_Class]) -> type[_Class]:
    """Make a frozen record of a class whose body lists fields as annotations.

    Instances take keyword arguments, compare and hash by their fields, and call ``__post_init__`` where there is
    one. Fields of a base that is a record come first.
    """
    fields: dict[str, tuple[str, Any]] = dict(getattr(record_type, "__record_fields__", {}))
    body = {"__repr__": _represent, **vars(record_type), **_METHODS}
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    own = [(name, str(kind)) for name, kind in body.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
    fields |= {name: (kind, body.pop(name, _REQUIRED)) for name, kind in own}
    body |= {"__slots__": tuple(name for name, _ in own), "__record_fields__": fields}
    made: type[_Class] = type(record_type.__name__, record_type.__bases__, body)
    return made


def fields_of(record_type: type) -> dict[str, tuple[str, bool]]:
    """Return field name → (its type as written, whether it must be given), in the order of the class."""
    fields: dict[str, tuple[str, Any]] = getattr(record_type, "__record_fields__", {})
    return {name: (kind, default is _REQUIRED) for name, (kind, default) in fields.items()}


def replace(instance: _Record, **changes: Any) -> _Record:
    """Return a copy with some fields changed."""
    names: Iterable[str] = instance.__record_fields__  # type: ignore[attr-defined]
    values = {name: getattr(instance, name) for name in names}
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


def _fill(self: Any, **values: Any) -> None:
    for name, default, put in _PLANS.get(type(self)) or _plan(type(self)):
        value = values.pop(name, default)
        if value is _REQUIRED:
            raise TypeError(f"{type(self).__name__} lacks `{name}`")
        put(self, value)
    if values:
        raise TypeError(f"{type(self).__name__} has no `{next(iter(values))}`")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _plan(record_type: type) -> _Plan:
    """Return each field with its default and what sets its slot, which takes half the time of object.__setattr__."""
    fields: dict[str, tuple[str, Any]] = record_type.__record_fields__  # type: ignore[attr-defined]
    plan = [(name, default, getattr(record_type, name).__set__) for name, (_, default) in fields.items()]
    return _PLANS.setdefault(record_type, plan)


def _values(self: Any) -> Any:
    """Return what a record is compared and hashed by: its fields in order, or its only one."""
    read = _READERS.get(type(self))
    if read is None:
        names = tuple(self.__record_fields__)
        read = _READERS[type(self)] = attrgetter(*names) if names else _nothing
    return read(self)


def _nothing(self: Any) -> None:
    del self


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


_METHODS = {"__init__": _fill, "__eq__": _equal, "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
