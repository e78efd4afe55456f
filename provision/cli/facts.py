"""Facts by the ids that reasons name, and the publications behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provision.cli.parser import did_you_mean
from provision.errors import UnknownError, shown
from provision.matrix.decode import field_order
from provision.matrix.load import Matrix
from provision.matrix.model import Evidence, Source

_Rows = Iterable[tuple[str, Any]]

KINDS: dict[str, Callable[[Matrix], _Rows]] = {
    "torch": lambda matrix: [
        *((f"{row.torch}+{row.variant}", row) for row in matrix.torch_builds),
        *((f"{row.torch}+{row.variant}", row) for row in matrix.unknown_torch_builds),
        *((row.version, row) for row in matrix.torch_releases),
    ],
    "tensorflow": lambda matrix: [(row.version, row) for row in matrix.tensorflow],
    "jax": lambda matrix: [(f"{row.version}+{row.variant}", row) for row in matrix.jax],
    "cuda": lambda matrix: [(row.version, row) for row in matrix.cuda],
    "cudnn": lambda matrix: [(row.version, row) for row in matrix.cudnn],
    "nccl": lambda matrix: [(f"{row.nccl}+cuda{row.cuda}", row) for row in matrix.nccl],
    "driver": lambda matrix: [(str(row.branch), row) for row in matrix.driver_branches],
    "distro-driver": lambda matrix: [(f"{row.os}-{row.branch}-{row.flavour}", row) for row in matrix.distro_drivers],
    "security": lambda matrix: [(row.bulletin, row) for row in matrix.security_floors],
    "gpu": lambda matrix: [(row.id, row) for row in matrix.gpus],
    "os": lambda matrix: [(row.id, row) for row in matrix.os_releases],
    "python": lambda matrix: [(row.version, row) for row in matrix.pythons],
    "image": lambda matrix: [
        *((row.tag, row) for row in matrix.python_images),
        *((row.tag, row) for row in matrix.cuda_images),
        *((f"ngc-{row.release}", row) for row in matrix.ngc_releases),
    ],
    "container-toolkit": lambda matrix: [
        *((row.version, row) for row in matrix.container_toolkits),
        *((row.value, row) for row in matrix.settings("container_toolkit.toml").values() if row.value),
    ],
    "companion": lambda matrix: [(f"{row.package}-{row.version}", row) for row in matrix.companions],
    "constraint": lambda matrix: [(row.id, row) for row in matrix.constraints],
    "exclusion": lambda matrix: [(row.id, row) for row in matrix.exclusions],
    "extra": lambda matrix: [(row.id, row) for row in matrix.extras],
    "prebuilt": lambda matrix: [
        ("-".join((row.package, row.version, *set(row.machines) - {"x86_64"})), row)
        for row in matrix.rows("prebuilt.toml", "release")
    ],
    "system": lambda matrix: [
        (row.id, row) for array in ("library", "need") for row in matrix.rows("system_libraries.toml", array)
    ],
    "knowledge": lambda matrix: [(row.id, row) for row in matrix.rows("knowledge.toml", "item")],
    "check": lambda matrix: list(matrix.checks.items()),
    "limit": lambda matrix: [
        (row.id, row) for file in ("checks.toml", "alerts.toml") for row in matrix.rows(file, "limit")
    ],
    "alert": lambda matrix: list(matrix.alerts.items()),
    "counter": lambda matrix: [(row.name, row) for row in matrix.counters],
    "inhibition": lambda matrix: [(row.id, row) for row in matrix.inhibitions],
    "panel": lambda matrix: [(row.id, row) for row in matrix.panels],
    "recording": lambda matrix: [(row.name, row) for row in matrix.recordings],
    "diagnosis": lambda matrix: list(matrix.diagnoses.items()),
    "cluster": lambda matrix: [
        *matrix.cluster_components.items(),
        *((f"product.{row.gpu}", row) for row in matrix.rows("cluster.toml", "product")),
    ],
    "driver-image": lambda matrix: [(row.version, row) for row in matrix.driver_images],
    "tuning": lambda matrix: [(row.id, row) for row in matrix.tunings],
    "folk": lambda matrix: [(row.id, row) for row in matrix.folk_settings],
    "node-system": lambda matrix: list(matrix.node_systems.items()),
    "node-driver": lambda matrix: [(row.id, row) for row in matrix.driver_packages],
    "known-bad": lambda matrix: [(row.id, row) for row in matrix.known_bad_modules],
    "performance": lambda matrix: [(row.id, row) for row in matrix.performance_floors],
    "nvlink": lambda matrix: [(row.gpu, row) for row in matrix.nvlinks],
    "xid": lambda matrix: [(str(code), row) for code, row in matrix.xids.items()],
    "rule": lambda matrix: list(matrix.audit_rules.items()),
    "model": lambda matrix: [(row.id, row) for row in matrix.rows("models.toml", "model")],
    "planning": lambda matrix: [
        (row.id, row)
        for array in ("limit", "utilisation", "mig_profile", "setting")
        for row in matrix.rows("planning.toml", array)
    ],
    "scaling": lambda matrix: [
        (row.id, row) for array in ("gap", "limit", "setting") for row in matrix.rows("scaling.toml", array)
    ],
    "provider": lambda matrix: [(row.id, row) for row in matrix.rows("cloud/providers.toml", "provider")],
    "instance": lambda matrix: [
        (f"{row.provider}/{row.type}/{row.region}", row) for row in matrix.rows("cloud/instances.toml", "instance")
    ],
    "source": lambda matrix: list(matrix.sources.items()),
}
"""Kind of a fact → its rows with what follows the slash in their ids (``torch/2.1.2+cu118``)."""


def find_fact(matrix: Matrix, fact: str) -> Any:
    """Return the row of a fact id.

    Raises:
        UnknownError: No row has it.
    """
    kind, _, key = fact.partition("/")
    rows = list(KINDS[kind](matrix)) if kind in KINDS else []
    for have, row in rows:
        if have == key:
            return row
    near = did_you_mean(fact, [f"{kind}/{have}" for have, _ in rows] or [f"{name}/" for name in KINDS])
    raise UnknownError(
        f"no fact has the id `{shown(fact)}`",
        hints=(*near, f"ids begin with {', '.join(f'{name}/' for name in KINDS)}"),
    )


def describe_sources(matrix: Matrix, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return what a person needs to look a fact up: title, address and day of each of its sources."""
    found = []
    for name in ids:
        source = matrix.sources.get(name)
        found.append(_plain(source) if source is not None else {"id": name})
    return found


def fact_document(matrix: Matrix, fact: str, row: Any) -> dict[str, Any]:
    """Return a row as plain data, its id first and its sources in full."""
    if isinstance(row, Source):
        return _plain(row)
    values = {key: value for key, value in _plain(row).items() if key not in ("id", "source")}
    return {"id": fact, **values, "sources": describe_sources(matrix, row.source)}


def _plain(row: Any) -> dict[str, Any]:
    """Return the keys of a row in the order of its file, those left out that are absent there."""
    return {
        key: _data(value)
        for key in field_order(type(row))
        if (value := getattr(row, key)) is not None and value != () and (not isinstance(value, Mapping) or value)
    }


def _data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _data(item) for key, item in value.items()}
    return _plain(value) if isinstance(value, Evidence) else value
