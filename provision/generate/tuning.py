"""Settings for speed: which the facts recommend for a machine and a job, and which they refute."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import FolkSetting, Tuning
from provision.records import NOTHING, record
from provision.versions import Spec

CONDITIONS = (
    *("100g", "affinity", "bridge", "container", "cpus", "firewall", "idle-rdma", "limited-memlock"),
    *("multi-node", "nfs", "no-rdma", "no-vendor-default", "node", "rdma", "shared-gpu"),
)
"""Every word that ``when`` of a row may hold."""

_REFUSING = ("wrong", "harmful")
_SETTING = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_. -]{0,99}?)=(?P<value>[\x20-\x7e]{0,1000})")
_HOLE = re.compile(r"\{([a-z_]+)\}")
_CONTAINER_KINDS = ("nccl", "env")


@record
class Situation:
    """A machine and a job, as far as they are known.

    Attributes:
        libraries: Library → version without local part.
        facts: Words of :data:`CONDITIONS` that hold; what is not there is unknown or does not hold.
        values: What rows may put into a value: ``rdma_devices``, ``cpus_per_gpu``, ``affinity``, ``bridges``,
            ``fast_interfaces``.
    """

    libraries: Mapping[str, str] = NOTHING
    facts: frozenset[str] = frozenset()
    values: Mapping[str, str] = NOTHING


@record
class Advice:
    """A setting that the facts recommend here; ``value`` is what to write."""

    row: Tuning
    value: str


@record
class Judgement:
    """A setting somebody gave, beside the fact about it; ``is_refused`` where it must not be written."""

    name: str
    value: str
    row: FolkSetting | None = None
    is_refused: bool = False


def recommend(situation: Situation, matrix: Matrix) -> tuple[Advice, ...]:
    """Return what helps in a situation, the safe settings first, then by id.

    A row whose library's version is unknown is left out: its range cannot be judged.
    """
    found = [
        Advice(row=row, value=_fill(row.value, situation.values))
        for row in matrix.tunings
        if _applies(row, situation) and all(hole in situation.values for hole in _HOLE.findall(row.value))
    ]
    return tuple(sorted(found, key=lambda advice: (not advice.row.is_default, advice.row.id)))


def judge(settings: Iterable[tuple[str, str]], situation: Situation, matrix: Matrix) -> tuple[Judgement, ...]:
    """Return what the facts say of settings, in the order given.

    A variable of NCCL that NCCL does not have is refused too.

    Args:
        settings: Name and value.
        situation: The machine and the job.
        matrix: The facts.
    """
    return tuple(_judge(name, value, situation, matrix) for name, value in settings)


def container_variables(situation: Situation, matrix: Matrix) -> dict[str, str]:
    """Return the variables that are safe in a container without a measurement, by name."""
    return {
        advice.row.name: advice.value
        for advice in recommend(situation, matrix)
        if advice.row.is_default and advice.row.kind in _CONTAINER_KINDS
    }


def parse_setting(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``.

    Raises:
        UsageError: It is none.
    """
    found = _SETTING.fullmatch(text)
    if found is None:
        raise UsageError(f"{text[:80]!a} is not NAME=VALUE", hints=("write it as in `NCCL_DEBUG=WARN`",))
    return found["name"], found["value"]


def _judge(name: str, value: str, situation: Situation, matrix: Matrix) -> Judgement:
    rows = [row for row in matrix.folk_settings if _is_about(row, name, value) and _applies(row, situation)]
    # What refuses wins; then a row about this very value, which says more than one about any.
    rows.sort(key=lambda row: (row.verdict not in _REFUSING, not row.values, row.id))
    if rows:
        return Judgement(name=name, value=value, row=rows[0], is_refused=rows[0].verdict in _REFUSING)
    keys = matrix.setting("nccl.toml", "conf_keys").values
    return Judgement(name=name, value=value, is_refused=name.startswith("NCCL_") and name not in keys)


def _is_about(row: FolkSetting, name: str, value: str) -> bool:
    return name in row.names and (not row.values or any(_matches(pattern, value) for pattern in row.values))


def _matches(pattern: str, value: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def _applies(row: Any, situation: Situation) -> bool:
    if not set(row.when) <= situation.facts:
        return False
    if row.library is None:
        return True
    version = situation.libraries.get(row.library)
    if version is None:
        # A rule for every version holds for a library that is there in whichever version; folk has no version at all.
        return isinstance(row, FolkSetting) and row.versions is None
    return row.versions is None or version in Spec(row.versions)


def _fill(value: str, values: Mapping[str, str]) -> str:
    return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), value)
