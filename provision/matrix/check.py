"""Every rule the facts obey, each a small function; all faults are collected, none stops the others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from provision.errors import DataError
from provision.matrix import model
from provision.matrix.cache import load_toml, plain_toml
from provision.matrix.canonical import encode_json, encode_pretty, encode_toml
from provision.matrix.decode import decode_row
from provision.matrix.query import normalise_gpu
from provision.records import fields_of
from provision.versions import Spec, branch_of, minor_of, parse


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One fault of the facts.

    Attributes:
        file: Path below the data folder.
        where: Row and key (``release[3].minimum_driver``), empty for the whole file.
        rule: Id of the broken rule (``D003``).
        message: What is wrong, without a full stop.
    """

    file: str
    where: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    array: str
    index: int
    table: dict[str, Any]
    value: Any

    @property
    def where(self) -> str:
        return f"{self.array}[{self.index}]"


class _File:
    """One file that could be read, and what it says without the others."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        # As it was written: TOML has dates, which rows hold as text.
        self._written = load_toml(content, name) if name.endswith(".toml") else json.loads(content)
        self.document: Any = plain_toml(self._written) if name.endswith(".toml") else self._written
        self.text = content.decode("utf-8")
        self._judged: dict[Callable[[_File], Iterable[Finding]], tuple[Finding, ...]] = {}

    def rows(self, array: str, row_type: type) -> tuple[list[_Row], list[Finding]]:
        """Return the rows of an array, and what is wrong with those that are none."""
        rows: list[_Row] = []
        misshapen: list[Finding] = []
        tables = self.document.get(array, [] if self.name in model.ARRAY_OF else None)
        if not isinstance(tables, list):
            return [], [Finding(self.name, array, "D002", "must be an array of tables")]
        for index, table in enumerate(tables):
            where = f"{array}[{index}]"
            try:
                value = decode_row(row_type, table, where)
                # Origins are decoded when they are asked for, so ask.
                dict(getattr(value, "evidence", {}))
            except DataError as error:
                misshapen.append(Finding(self.name, where, "D002", error.message))
            else:
                rows.append(_Row(self.name, array, index, table, value))
        return rows, misshapen

    @cached_property
    def arrays(self) -> tuple[tuple[list[_Row], list[Finding]], ...]:
        types = model.ARRAY_OF.get(self.name, {"releases": model.WheelRelease})
        return tuple(self.rows(array, row_type) for array, row_type in types.items())

    def canonical(self) -> str:
        """Return the text that its facts are written as."""
        if self.name.startswith("shapes/"):
            return encode_pretty(self._written)
        return encode_toml(self.name, self._written) if self.name.endswith(".toml") else encode_json(self._written)

    def judge(self, rule: Callable[[_File], Iterable[Finding]]) -> tuple[Finding, ...]:
        """Return what a rule finds that looks at nothing but this file."""
        if rule not in self._judged:
            self._judged[rule] = tuple(rule(self))
        return self._judged[rule]


@lru_cache(maxsize=1024)
def _read_file(name: str, content: bytes) -> _File:
    """Read a file once in this process: a refresh checks a folder that is all but the one it began with."""
    return _File(name, content)


@dataclass
class _Facts:
    """What could be read of a data folder, and what could not."""

    data_dir: Path
    unreadable: list[Finding] = field(default_factory=list)
    misshapen: list[Finding] = field(default_factory=list)

    @cached_property
    def tomls(self) -> dict[str, _File]:
        return self._read(model.ARRAY_OF)

    @cached_property
    def wheels(self) -> dict[str, _File]:
        return self._read_folder("wheels")

    @cached_property
    def published(self) -> dict[str, _File]:
        return self._read_folder("published")

    @cached_property
    def shapes(self) -> dict[str, _File]:
        return self._read_folder("shapes")

    @property
    def files(self) -> Iterator[_File]:
        for files in (self.tomls, self.wheels, self.published, self.shapes):
            yield from files.values()

    def _read_folder(self, folder: str) -> dict[str, _File]:
        return self._read(f"{folder}/{path.name}" for path in sorted((self.data_dir / folder).glob("*.json")))

    def _read(self, names: Iterable[str]) -> dict[str, _File]:
        found = {}
        for name in names:
            try:
                file = _read_file(name, (self.data_dir / name).read_bytes())
            except FileNotFoundError:
                self.unreadable.append(Finding(name, "", "D001", "the file is missing"))
            except (OSError, ValueError, DataError) as error:
                why = "; ".join(error.because) if isinstance(error, DataError) else str(error)
                self.unreadable.append(Finding(name, "", "D001", f"cannot be read: {why}"))
            else:
                if isinstance(file.document, dict):
                    found[name] = file
                else:
                    self.unreadable.append(Finding(name, "", "D001", "is not a table"))
        return found

    @cached_property
    def all_rows(self) -> tuple[_Row, ...]:
        found: list[_Row] = []
        for file in (*self.tomls.values(), *self.wheels.values()):
            for rows, misshapen in file.arrays:
                found += rows
                self.misshapen += misshapen
        return tuple(found)

    @cached_property
    def _by_array(self) -> dict[tuple[str, str], tuple[_Row, ...]]:
        grouped: dict[tuple[str, str], list[_Row]] = {}
        for row in self.all_rows:
            grouped.setdefault((row.file, row.array), []).append(row)
        return {key: tuple(rows) for key, rows in grouped.items()}

    def rows(self, name: str, array: str) -> tuple[_Row, ...]:
        return self._by_array.get((name, array), ())

    def column(self, name: str, array: str, key: str) -> set[Any]:
        return {getattr(row.value, key) for row in self.rows(name, array)}

    def setting(self, name: str, id_: str) -> model.Setting | None:
        return next((row.value for row in self.rows(name, "setting") if row.value.id == id_), None)

    @cached_property
    def newest_date(self) -> str:
        return max(
            (str(file.document.get("dated", "")) for file in (*self.tomls.values(), *self.wheels.values())), default=""
        )


_Rule = Callable[[_Facts], Iterable[Finding]]
RULES: dict[str, _Rule] = {}
"""Rule id → function; the docstring of the function says what the rule means."""


def check(data_dir: Path) -> tuple[Finding, ...]:
    """Return every fault of a data folder, by file and place.

    Args:
        data_dir: A folder laid out like ``compat/``.
    """
    facts = _Facts(data_dir)
    # The rules read what decodes; reading first fills the two lists that D001 and D002 report.
    _ = (facts.all_rows, facts.published, facts.shapes)
    findings: set[Finding] = set()
    for rule in RULES.values():
        # A value that does not parse stops the rules that reckon with it; D015 reports it.
        with suppress(ValueError):
            findings.update(rule(facts))
    return tuple(sorted(findings))


def _rule(id_: str) -> Callable[[_Rule], _Rule]:
    def register(function: _Rule) -> _Rule:
        RULES[id_] = function
        return function

    return register


@_rule("D001")
def _readable(facts: _Facts) -> Iterable[Finding]:
    """Every file is there and parses."""
    return facts.unreadable


@_rule("D002")
def _shape(facts: _Facts) -> Iterator[Finding]:
    """Every row has the keys and types of its class, every file its head."""
    yield from facts.misshapen
    for name, file in (*facts.tomls.items(), *facts.wheels.items()):
        known = {"schema_version", "dated", *model.ARRAY_OF.get(name, ())}
        if name in facts.wheels:
            known |= {"package", "source", "confidence_low", "releases"}
        for key in sorted(set(file.document) - known):
            yield Finding(name, key, "D002", "is an unknown key")
        if file.document.get("schema_version") != 1:
            yield Finding(name, "schema_version", "D002", "must be 1")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(file.document.get("dated"))):
            yield Finding(name, "dated", "D002", "must be a date")


@_rule("D003")
def _known_sources(facts: _Facts) -> Iterator[Finding]:
    """Every source a fact names is in sources.toml."""
    known = facts.column("sources.toml", "source", "id")
    for file, where, source in _citations(facts):
        if source not in known:
            yield Finding(file, where, "D003", f"names the unknown source `{source}`")


@_rule("D004")
def _used_sources(facts: _Facts) -> Iterator[Finding]:
    """Every source is named by some fact."""
    used = {source for _, _, source in _citations(facts)}
    for row in facts.rows("sources.toml", "source"):
        if row.value.id not in used:
            yield Finding(row.file, row.where, "D004", f"no fact names the source `{row.value.id}`")


def _citations(facts: _Facts) -> Iterator[tuple[str, str, str]]:
    for row in facts.all_rows:
        if isinstance(row.value, model.Fact):
            for source in row.value.source:
                yield row.file, row.where, source
            for key, evidence in row.value.evidence.items():
                for source in evidence.source:
                    yield row.file, f"{row.where}.evidence.{key}", source
    for name, file in (*facts.wheels.items(), *facts.published.items(), *facts.shapes.items()):
        for source in file.document.get("source", ()):
            yield name, "source", str(source)


def _down(*keys: str) -> Callable[[Any], Any]:
    return lambda row: tuple(_Descending(parse(getattr(row, key))) for key in keys)


@dataclass(frozen=True, slots=True)
class _Descending:
    value: Any

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)


_ORDER: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("sources.toml", "source"): lambda row: row.id,
    ("cuda.toml", "release"): _down("version"),
    ("drivers.toml", "branch"): lambda row: -row.branch,
    ("drivers.toml", "security_floor"): lambda row: -int(row.bulletin),
    ("cudnn.toml", "release"): _down("version"),
    ("nccl.toml", "pairing"): _down("cuda", "nccl"),
    ("gpus.toml", "pci_range"): lambda row: int(row.first, 16),
    ("node_packages.toml", "system"): lambda row: row.id,
    ("node_packages.toml", "driver"): lambda row: (row.os, row.method, -row.branch),
    ("node_packages.toml", "known_bad"): lambda row: row.id,
    ("python.toml", "python"): _down("version"),
    ("ngc.toml", "release"): _down("release"),
    ("images.toml", "python_image"): _down("python"),
    ("images.toml", "cuda_image"): lambda row: (_Descending(parse(row.cuda)), row.tag),
    ("container_toolkit.toml", "release"): _down("version"),
    ("frameworks/torch.toml", "release"): _down("version"),
    ("frameworks/torch.toml", "build"): _down("torch", "cuda"),
    ("frameworks/torch.toml", "unknown_build"): _down("torch", "cuda"),
    ("frameworks/tensorflow.toml", "release"): _down("version"),
    ("frameworks/jax.toml", "release"): _down("version"),
    ("companions.toml", "release"): lambda row: (row.package, _Descending(parse(row.version))),
    ("prebuilt.toml", "release"): lambda row: (row.package, _Descending(parse(row.version)), row.machines),
    ("system_libraries.toml", "library"): lambda row: row.id.lower(),
    ("system_libraries.toml", "need"): lambda row: row.id,
    ("knowledge.toml", "item"): lambda row: (row.topic, row.id),
    ("checks.toml", "check"): lambda row: row.id,
    ("checks.toml", "limit"): lambda row: row.id,
    ("diagnoses.toml", "diagnosis"): lambda row: row.id,
    ("diagnoses.toml", "api_error"): lambda row: (row.library, row.number),
    ("diagnoses.toml", "claim"): lambda row: row.id,
    ("diagnoses.toml", "module"): lambda row: row.id,
    ("diagnoses.toml", "soname"): lambda row: row.id,
    ("performance.toml", "floor"): lambda row: row.id,
    ("performance.toml", "nvlink"): lambda row: row.gpu,
    ("xid.toml", "xid"): lambda row: row.code,
    ("alerts.toml", "recording"): lambda row: row.name,
    ("alerts.toml", "alert"): lambda row: row.id,
    ("alerts.toml", "inhibition"): lambda row: row.id,
    ("alerts.toml", "counter"): lambda row: row.name,
    ("alerts.toml", "limit"): lambda row: row.id,
    ("alerts.toml", "notifier"): lambda row: row.id,
    ("dashboards.toml", "panel"): lambda row: (row.dashboard, row.order),
    ("audit_rules.toml", "rule"): lambda row: row.id,
    ("models.toml", "model"): lambda row: row.id,
    ("scaling.toml", "gap"): lambda row: row.id,
    ("scaling.toml", "limit"): lambda row: row.id,
    ("planning.toml", "limit"): lambda row: row.id,
    ("planning.toml", "utilisation"): lambda row: row.id,
    ("planning.toml", "mig_profile"): lambda row: row.id,
    ("cloud/providers.toml", "provider"): lambda row: row.id,
    ("cloud/instances.toml", "instance"): lambda row: (row.provider, row.type, row.region),
    ("cluster.toml", "component"): lambda row: row.id,
    ("cluster.toml", "driver_image"): lambda row: -row.branch,
    ("cluster.toml", "product"): lambda row: row.gpu,
    ("spot.toml", "notice"): lambda row: row.id,
    ("tuning.toml", "tuning"): lambda row: row.id,
    ("tuning.toml", "folk"): lambda row: row.id,
}


@_rule("D005")
def _sorted(facts: _Facts) -> Iterator[Finding]:
    """Rows are sorted: versions newest first by value, ids and names by letter."""
    orders = dict(_ORDER)
    architectures = facts.setting("gpus.toml", "architectures")
    if architectures is not None:
        rank = {name: place for place, name in enumerate(architectures.values)}
        orders["gpus.toml", "gpu"] = lambda row: (rank.get(row.architecture, len(rank)), row.name.lower())
    for name in facts.wheels:
        orders[name, "releases"] = _down("version")
    for (name, array), order in orders.items():
        previous = None
        for row in facts.rows(name, array):
            try:
                key = order(row.value)
            except ValueError as error:
                yield Finding(name, row.where, "D005", f"cannot be ordered: {error}")
                continue
            if previous is not None and key < previous:
                yield Finding(name, row.where, "D005", "stands after a row that should follow it")
            previous = key


_KEYS: dict[type, Callable[[Any], Hashable]] = {
    model.CloudInstance: lambda row: (row.provider, row.type, row.region),
    model.ClusterProduct: lambda row: row.gpu,
    model.CompanionPackage: lambda row: (row.package, row.version),
    model.ContainerToolkit: lambda row: row.version,
    model.Counter: lambda row: row.name,
    model.CudaImage: lambda row: row.tag,
    model.CudaRelease: lambda row: row.version,
    model.Cudnn: lambda row: row.version,
    model.DistroDriver: lambda row: (row.os, row.branch, row.flavour),
    model.DriverBranch: lambda row: row.branch,
    model.DriverImage: lambda row: row.branch,
    model.JaxRelease: lambda row: (row.version, row.variant),
    model.Nccl: lambda row: (row.cuda, row.nccl, row.os),
    model.NgcRelease: lambda row: row.release,
    model.NvlinkLayout: lambda row: row.gpu,
    model.PciRange: lambda row: row.first,
    model.PrebuiltWheels: lambda row: (row.package, row.version, row.machines),
    model.PythonImage: lambda row: row.tag,
    model.PythonRelease: lambda row: row.version,
    model.RecordingRule: lambda row: row.name,
    model.SecurityFloor: lambda row: row.bulletin,
    model.TensorflowRelease: lambda row: row.version,
    model.TorchBuild: lambda row: (row.torch, row.variant),
    model.TorchRelease: lambda row: row.version,
    model.UnknownBuild: lambda row: (row.torch, row.variant),
    model.WheelRelease: lambda row: row.version,
    model.Xid: lambda row: row.code,
}


@_rule("D006")
def _unique(facts: _Facts) -> Iterator[Finding]:
    """No two rows of an array have the same id, version or tag."""
    seen: dict[Hashable, str] = {}
    for row in facts.all_rows:
        key_of = _KEYS.get(type(row.value))
        key = (row.file, row.array, key_of(row.value) if key_of is not None else row.value.id)
        if key in seen:
            yield Finding(row.file, row.where, "D006", f"repeats the key of {seen[key]}")
        seen.setdefault(key, row.where)


@_rule("D007")
def _canonical(facts: _Facts) -> Iterator[Finding]:
    """Every file has the bytes its own facts are written as."""
    broken = {finding.file for finding in facts.misshapen}
    for file in facts.files:
        if file.name not in broken:
            yield from file.judge(_as_written)


def _as_written(file: _File) -> Iterator[Finding]:
    try:
        text = file.canonical()
    except (KeyError, TypeError, ValueError) as error:
        yield Finding(file.name, "", "D007", f"cannot be written: {error}")
        return
    if text != file.text:
        pairs = zip(text.splitlines(), file.text.splitlines(), strict=False)
        line = next((number for number, (want, have) in enumerate(pairs, 1) if want != have), None)
        place = f"line {line}" if line else "its last line"
        yield Finding(file.name, "", "D007", f"differs from its canonical form from {place} on")


@_rule("D008")
def _references(facts: _Facts) -> Iterator[Finding]:
    """What a row points to exists: CUDA minors, drivers, systems, Pythons, torch, GPUs, models, runbooks, alerts."""
    minors = {_minor(version) for version in facts.column("cuda.toml", "release", "version")}
    branches = facts.column("drivers.toml", "branch", "branch")
    systems = facts.column("os.toml", "os", "id")
    pythons = facts.column("python.toml", "python", "version")
    torches = facts.column("frameworks/torch.toml", "release", "version")
    gpus = facts.column("gpus.toml", "gpu", "id")
    providers = facts.column("cloud/providers.toml", "provider", "id")
    runbooks = facts.column("checks.toml", "check", "id") | facts.column("diagnoses.toml", "diagnosis", "id")
    limits = facts.column("checks.toml", "limit", "id") | facts.column("alerts.toml", "limit", "id")
    oldest = min(minors, default=None)
    points: dict[type, tuple[tuple[str, set[Any], Callable[[Any], Any]], ...]] = {
        model.TorchBuild: (("torch", torches, str), ("cuda", minors, _minor)),
        model.UnknownBuild: (("torch", torches, str),),
        model.TensorflowRelease: (("cuda", minors, _minor),),
        model.JaxRelease: (("cuda_floor", minors, _minor),),
        model.CudaImage: (("cuda", minors, _minor), ("os", systems, str)),
        model.NgcRelease: (("cuda", minors, _minor), ("python", pythons, str), ("os", systems, str)),
        model.PythonImage: (("python", pythons, str), ("os", systems, str)),
        model.DistroDriver: (("os", systems, str), ("branch", branches, int), ("transition_to", branches, int)),
        model.Nccl: (("os", systems, str),),
        model.NodeSystem: (("id", systems, str),),
        model.DriverPackages: (("os", systems, str), ("branch", branches, int)),
        model.DriverImage: (("branch", branches, int),),
        model.CudaRelease: (("matching_driver_branch", branches, int),),
        model.CloudInstance: (("provider", providers, str), ("gpu", gpus, str)),
        model.ClusterProduct: (("gpu", gpus, str),),
        model.Utilisation: (("gpu", gpus, str),),
        model.Gpu: (
            ("last_cuda", minors, _minor),
            ("first_driver_branch", branches, int),
            ("last_driver_branch", branches, int),
            ("ubuntu_first_branch", branches, int),
            ("ubuntu_last_branch", branches, int),
        ),
        model.Panel: (("warn", limits, str),),
    }
    alerts = facts.column("alerts.toml", "alert", "id")
    lists: dict[type, tuple[tuple[str, set[Any]], ...]] = {
        model.PrebuiltWheels: (("pythons", {minor_of(version) for version in torches}),),
        model.SystemLibrary: (("packages", systems),),
        model.SystemNeed: (("libraries", facts.column("system_libraries.toml", "library", "id")),),
        model.Alert: (("runbook", runbooks),),
        model.Inhibition: (("sources", alerts), ("targets", alerts)),
    }
    for row in facts.all_rows:
        for key, known, normal in points.get(type(row.value), ()):
            value = getattr(row.value, key)
            # An empty target is a missing file, which D001 reports once.
            if value is not None and known and normal(value) not in known:
                yield Finding(row.file, f"{row.where}.{key}", "D008", f"`{value}` is in no row it could point to")
        for key, known in lists.get(type(row.value), ()):
            for value in getattr(row.value, key):
                if known and value not in known:
                    yield Finding(row.file, f"{row.where}.{key}", "D008", f"`{value}` is in no row it could point to")
        if isinstance(row.value, model.Alert) and bool(row.value.runbook) == bool(row.value.remedy):
            yield Finding(row.file, row.where, "D008", "needs a runbook or a remedy of its own, and not both")
        if isinstance(row.value, model.Gpu) and oldest is not None:
            # CUDA before the oldest toolkit kept is history, not a dangling pointer.
            first = _minor(row.value.first_cuda) if row.value.first_cuda else oldest
            if first >= oldest and first not in minors:
                yield Finding(row.file, f"{row.where}.first_cuda", "D008", f"`{row.value.first_cuda}` is not a toolkit")


_PRICES = (("on_demand", "on_demand_date"), ("spot", "spot_date"), ("reserved_1y", "reserved_date"))


@_rule("D017")
def _instances(facts: _Facts) -> Iterator[Finding]:
    """Prices are above zero, dated and plausible beside their neighbours; memory and shares fit the GPU."""
    gpus = {row.value.id: row.value for row in facts.rows("gpus.toml", "gpu")}
    rows = facts.rows("cloud/instances.toml", "instance")
    by_gpu: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        each = row.value.on_demand
        if each:
            share = row.value.gpu_count * (row.value.gpu_share or 1)
            by_gpu.setdefault((row.value.gpu, row.value.currency), []).append(each / share)
    for row in rows:
        item: model.CloudInstance = row.value
        for price, date in (*_PRICES, ("reserved_3y", "reserved_date")):
            value = getattr(item, price)
            if value is not None and not value > 0:
                yield Finding(row.file, f"{row.where}.{price}", "D017", "a price of nothing is a missing price")
            if value is not None and getattr(item, date) is None:
                yield Finding(row.file, f"{row.where}.{date}", "D017", f"`{price}` has no date")
        for price in ("spot", "reserved_1y", "reserved_3y"):
            value = getattr(item, price)
            if value is not None and item.on_demand is not None and value > item.on_demand:
                yield Finding(row.file, f"{row.where}.{price}", "D017", "is above the price on demand")
        if item.gpu_count < 1 or not 0 < (item.gpu_share or 1) <= 1:
            yield Finding(row.file, row.where, "D017", "there is a whole number of GPUs, or of parts of one")
        gpu = gpus.get(item.gpu)
        if gpu is not None and gpu.memory_gb is not None:
            whole = gpu.memory_gb * (item.gpu_share or 1)
            if not _MEMORY_LOW * whole <= item.gpu_memory_gb <= _MEMORY_HIGH * whole:
                said = f"{item.gpu_memory_gb} GB is not a memory size of {gpu.name}"
                yield Finding(row.file, f"{row.where}.gpu_memory_gb", "D017", said)
        known = sorted(by_gpu.get((item.gpu, item.currency), ()))
        if item.on_demand and known:
            each = item.on_demand / (item.gpu_count * (item.gpu_share or 1))
            middle = known[len(known) // 2]
            if not middle / _PRICE_SPREAD <= each <= middle * _PRICE_SPREAD:
                said = f"{each:.2f} a GPU is far from {middle:.2f}, the middle of its kind"
                yield Finding(row.file, f"{row.where}.on_demand", "D017", said)


# Providers report what the driver leaves, in GB or GiB; a unit mistaken is a factor of 1000, a count one of 2.
_MEMORY_LOW = 0.85
_MEMORY_HIGH = 1.1
_PRICE_SPREAD = 6.0


def _minor(version: str) -> tuple[int, ...]:
    release = parse(version).release
    return (*release, 0)[:2]


_PAST_FIELDS = ("released", "retrieved", "updated", "first_release", "last_release_date", "dated", "uploaded")


@_rule("D009")
def _no_future(facts: _Facts) -> Iterator[Finding]:
    """Nothing happened after the newest date of the files; ends of life may lie ahead."""
    for row in facts.all_rows:
        dates = [(key, row.table.get(key)) for key in _PAST_FIELDS]
        if isinstance(row.value, model.WheelRelease):
            dates += [(f"wheels[{place}].uploaded", wheel.uploaded) for place, wheel in enumerate(row.value.wheels)]
        for key, value in dates:
            if isinstance(value, str) and value[:10] > facts.newest_date:
                yield Finding(row.file, f"{row.where}.{key}", "D009", f"{value} lies after {facts.newest_date}")


_STATUSES = ("stated", "derived", "measured")
_CONFIDENCES = ("high", "medium", "low")


@_rule("D010")
def _evidence(facts: _Facts) -> Iterator[Finding]:
    """A fact says where it was read; exactly the derived ones say why; evidence speaks of fields of its row."""
    for row in facts.all_rows:
        if not isinstance(row.value, model.Fact):
            continue
        names = set(fields_of(type(row.value)))
        parts: list[tuple[str, model.Fact | model.Evidence]] = [(row.where, row.value)]
        parts += [(f"{row.where}.evidence.{key}", value) for key, value in row.value.evidence.items()]
        for where, part in parts:
            if not part.source:
                yield Finding(row.file, where, "D010", "names no source")
            if part.status not in _STATUSES:
                yield Finding(row.file, where, "D010", f"`{part.status}` is not a status")
            if part.confidence not in _CONFIDENCES:
                yield Finding(row.file, where, "D010", f"`{part.confidence}` is not a confidence")
        if (row.value.status == "derived") != bool(row.value.because):
            want = "a derived fact needs `because`" if not row.value.because else "only a derived fact has `because`"
            yield Finding(row.file, row.where, "D010", want)
        for key in row.value.evidence:
            if key not in names or row.table.get(key) is None:
                yield Finding(row.file, f"{row.where}.evidence.{key}", "D010", "speaks of a key the row lacks")


@_rule("D011")
def _aliases(facts: _Facts) -> Iterator[Finding]:
    """A GPU name, however written, means one compute capability."""
    owners: dict[str, model.Gpu] = {}
    for row in facts.rows("gpus.toml", "gpu"):
        gpu: model.Gpu = row.value
        for name in (gpu.id, gpu.name, *gpu.aliases):
            spelling = normalise_gpu(name)
            if not spelling:
                yield Finding(row.file, row.where, "D011", f"nothing is left of the name `{name}`")
                continue
            owner = owners.setdefault(spelling, gpu)
            if owner.compute_capability != gpu.compute_capability:
                yield Finding(
                    row.file,
                    row.where,
                    "D011",
                    f"`{name}` also means {owner.name}, of compute capability {owner.compute_capability}",
                )


@_rule("D012")
def _floors(facts: _Facts) -> Iterator[Finding]:
    """A newer toolkit never needs an older driver, and a branch serves the majors whose floor it reaches."""
    releases = sorted(facts.rows("cuda.toml", "release"), key=lambda row: parse(row.value.version))
    highest = None
    for row in releases:
        minimum = parse(row.value.minimum_driver)
        if highest is not None and minimum < highest:
            yield Finding(row.file, f"{row.where}.minimum_driver", "D012", f"an older toolkit needs {highest}")
        highest = minimum if highest is None else max(highest, minimum)
    floors = facts.setting("cuda.toml", "minor_compatibility_floors")
    if floors is None:
        return
    for row in releases:
        floor = floors.entries.get(str(parse(row.value.version).release[0]))
        # A toolkit that came before its major's floor runs on the driver that it came with.
        is_older = (
            row.value.minimum_driver == row.value.bundled_driver
            and floor is not None
            and parse(row.value.minimum_driver) < parse(floor)
        )
        if floor is not None and row.value.minimum_driver != floor and not is_older:
            yield Finding(row.file, f"{row.where}.minimum_driver", "D012", f"the floor of its major is {floor}")
    for row in facts.rows("drivers.toml", "branch"):
        reached = tuple(int(major) for major, floor in floors.entries.items() if branch_of(floor) <= row.value.branch)
        if tuple(sorted(row.value.cuda_majors)) != tuple(sorted(reached)):
            yield Finding(row.file, f"{row.where}.cuda_majors", "D012", f"the floors give {sorted(reached)}")


@_rule("D013")
def _wheels(facts: _Facts) -> Iterator[Finding]:
    """A file's name, hash and needs parse and fit its release; sources stand alone, other indexes need addresses."""
    from packaging.markers import InvalidMarker, Marker
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        canonicalize_name,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    for name, file in facts.wheels.items():
        package = file.document.get("package")
        if name != f"wheels/{canonicalize_name(str(package))}.json":
            yield Finding(name, "package", "D013", f"`{package}` belongs into another file")
    for row in facts.all_rows:
        if not isinstance(row.value, model.WheelRelease):
            continue
        package = str(facts.wheels[row.file].document.get("package"))
        for place, wheel in enumerate(row.value.wheels):
            where = f"{row.where}.wheels[{place}]"
            is_wheel = wheel.file.endswith(".whl")
            try:
                named, version = parse_wheel_filename(wheel.file)[:2] if is_wheel else parse_sdist_filename(wheel.file)
            except (InvalidWheelFilename, InvalidSdistFilename) as error:
                yield Finding(row.file, where, "D013", str(error))
                continue
            if named != canonicalize_name(package) or version != parse(row.value.version):
                yield Finding(row.file, where, "D013", f"{wheel.file} is not a file of {package} {row.value.version}")
            if not is_wheel and len(row.value.wheels) > 1:
                yield Finding(row.file, where, "D013", f"{wheel.file} is a source distribution and has other files")
            if wheel.url is not None and row.value.index == "pypi":
                yield Finding(row.file, where, "D013", "needs no url: its index finds it by name")
            if wheel.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", wheel.sha256):
                yield Finding(row.file, where, "D013", "sha256 must be 64 hexadecimal digits")
        for place, (_, specifier, marker, _) in enumerate(row.value.requires):
            try:
                SpecifierSet(specifier)
                if marker:
                    Marker(marker)
            except (InvalidSpecifier, InvalidMarker) as error:
                yield Finding(row.file, f"{row.where}.requires[{place}]", "D013", str(error).splitlines()[0])


_PUBLISHED_HEAD = ["schema_version", "package", "dated", "source", "scope", "requires", "files", "releases"]
_FILES = r"(?:(?:any|x86_64|aarch64)(?: 3\.\d+[+t]?)+|sdist)"


@_rule("D018")
def _published(facts: _Facts) -> Iterator[Finding]:
    """Releases of an index stand newest first, each once, and what they ask for and are built for can be read."""
    for file in facts.published.values():
        yield from file.judge(_published_file)


def _published_file(file: _File) -> Iterator[Finding]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    from provision.matrix.published import places_of

    name, document = file.name, file.document
    if list(document) != _PUBLISHED_HEAD or document.get("schema_version") != 1:
        yield Finding(name, "", "D018", f"has other keys than {', '.join(_PUBLISHED_HEAD)}")
        return
    if name != f"published/{document['package']}.json":
        yield Finding(name, "package", "D018", f"`{document['package']}` belongs into another file")
    try:
        versions = [parse(version) for group in document["releases"] for version in group["versions"]]
        if any(not after < before for before, after in pairwise(versions)):
            yield Finding(name, "releases", "D018", "versions are not in order, newest first, each once")
        for text in {line for group in document["requires"] for line in group[1:]}:
            Requirement(text)
        for group in document["releases"]:
            SpecifierSet(group.get("requires_python", ""))
            if set(group.get("yanked", ())) - set(group["versions"]):
                yield Finding(name, "releases", "D018", "a release is withdrawn that is not there")
            extras = [document["requires"][place][0] for place in places_of(group.get("requires", ""))]
            if extras and (extras[0] or len(extras) != len(set(extras))):
                yield Finding(name, "releases", "D018", f"{group['versions'][0]} asks twice for one extra")
            if not re.fullmatch(rf"{_FILES}(?:; {_FILES})*|", document["files"][group["files"]]):
                yield Finding(name, "files", "D018", f"`{document['files'][group['files']]}` cannot be read")
    except (InvalidRequirement, InvalidSpecifier, ValueError, LookupError, TypeError, AttributeError) as error:
        yield Finding(name, "releases", "D018", f"cannot be read: {str(error).splitlines()[0]}")


_SHAPE_HEAD = {"schema_version", "name", "api", "is_namespaced", "component", "version", "source", "where", "fields"}
_SCALARS = frozenset(("string", "integer", "number", "boolean", "integer or string", "any"))


@_rule("D019")
def _shapes(facts: _Facts) -> Iterator[Finding]:
    """The keys of a document that a component defines are those of its release, of types that can be checked."""
    components = {row.value.id: row.value.version for row in facts.rows("cluster.toml", "component")}
    for name, file in facts.shapes.items():
        document = file.document
        if not set(document) <= _SHAPE_HEAD or document.get("schema_version") != 1:
            yield Finding(name, "", "D019", f"has other keys than {', '.join(sorted(_SHAPE_HEAD))}")
            continue
        if name != f"shapes/{str(document.get('name')).lower()}.json":
            yield Finding(name, "name", "D019", f"`{document.get('name')}` belongs into another file")
        version = components.get(str(document.get("component")))
        if components and document.get("version") != version:
            yield Finding(name, "version", "D019", f"is not that of the component, `{version or 'none'}`")
        for path in _strange(document.get("fields"), "fields"):
            yield Finding(name, path, "D019", "is neither keys, nor all values, nor a type")


def _strange(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, dict) and node:
        for key, below in node.items():
            yield from _strange(below, f"{path}.{key}")
    elif isinstance(node, list):
        if not node or not all(isinstance(item, (str, int)) for item in node):
            yield path
    elif not isinstance(node, str) or not (node in _SCALARS or node[:1].isupper()):
        yield path


@_rule("D016")
def _nodes(facts: _Facts) -> Iterator[Finding]:
    """Driver packages are of their branch and complete for each flavour; PCI blocks part and hold their GPUs."""
    for row in facts.rows("node_packages.toml", "driver"):
        packages: model.DriverPackages = row.value
        for version in packages.versions:
            if branch_of(version) != packages.branch:
                yield Finding(row.file, f"{row.where}.versions", "D016", f"`{version}` is of another branch")
        for flavour, listed, names, module in (
            ("open", packages.open, packages.open_packages, packages.open_module),
            ("proprietary", packages.proprietary, packages.proprietary_packages, packages.proprietary_module),
        ):
            for version in sorted(set(listed) - set(packages.versions)):
                yield Finding(row.file, f"{row.where}.{flavour}", "D016", f"`{version}` has no user space")
            if bool(listed) != bool(names) or bool(listed) != bool(module):
                yield Finding(row.file, f"{row.where}.{flavour}", "D016", "versions, packages and module go together")
    ranges: list[model.PciRange] = [row.value for row in facts.rows("gpus.toml", "pci_range")]
    ranges.sort(key=lambda item: int(item.first, 16))
    for place, (lower, upper) in enumerate(pairwise(ranges), 1):
        if int(lower.last, 16) >= int(upper.first, 16):
            yield Finding("gpus.toml", f"pci_range[{place}]", "D016", "overlaps the block before it")
    for row in facts.rows("gpus.toml", "gpu"):
        device = row.value.pci_device_id
        owners = {item.architecture for item in ranges if device and _holds(item, device)}
        if device and ranges and owners != {row.value.architecture}:
            said = ", ".join(sorted(owners)) or "no architecture"
            yield Finding(row.file, f"{row.where}.pci_device_id", "D016", f"`{device}` lies in a block of {said}")


def _holds(item: model.PciRange, device: str) -> bool:
    return int(item.first, 16) <= int(device, 16) <= int(item.last, 16)


# Labels, not host names: this package names no registry anywhere.
_REGISTRY_LABELS = {"pypi", "pythonhosted", "npmjs"}
_ARCHIVE_LABELS = {"debian", "ubuntu"}
_ARCHIVE_PREFIXES = {"archive", "deb", "ftp", "ports", "security", "snapshot"}


@_rule("D015")
def _values(facts: _Facts) -> Iterator[Finding]:
    """Versions, bounds and code names parse, and a torch release names exactly the builds it has rows for."""
    for row in facts.all_rows:
        for key, kind in _SHAPED.get(type(row.value), ()):
            value = getattr(row.value, key)
            texts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else [value]
            for text in texts:
                if text is not None and not _is_shaped(kind, text):
                    yield Finding(row.file, f"{row.where}.{key}", "D015", f"`{text}` is not a valid {kind}")
    builds: dict[str, set[str]] = {}
    for row in facts.rows("frameworks/torch.toml", "build"):
        builds.setdefault(row.value.torch, set()).add(row.value.variant)
    for row in facts.rows("frameworks/torch.toml", "release"):
        named, have = set(row.value.variants), builds.get(row.value.version, set())
        if have and named != have:
            odd = ", ".join(sorted(named ^ have))
            yield Finding(row.file, f"{row.where}.variants", "D015", f"differ from the builds there are: {odd}")


_SHAPED: dict[type, tuple[tuple[str, str], ...]] = {
    model.CudaRelease: (("version", "version"), ("minimum_driver", "version"), ("bundled_driver", "version")),
    model.SecurityFloor: (("fixed", "version"),),
    model.TorchRelease: (("version", "version"), ("requires_python", "specifier")),
    model.TorchBuild: (
        ("pythons", "Python"),
        ("pythons_with_companions", "Python"),
        ("triton", "specifier"),
        ("cudnn", "version"),
        ("nccl", "version"),
        ("glibc", "version"),
        ("sm", "target"),
        ("sm_arm64", "target"),
        ("ptx", "target"),
        ("pins", "specifier"),
        ("toolkit_pins", "specifier"),
    ),
    model.TensorflowRelease: (("pythons", "Python"), ("sm", "target"), ("ptx", "target"), ("pins", "specifier")),
    model.JaxRelease: (("pythons", "Python"), ("minimum_driver", "version"), ("pins", "specifier")),
    model.HiddenConstraint: (("versions", "specifier"), ("pythons", "specifier"), ("requires", "specifier")),
    model.Exclusion: (("left", "requirement"), ("right", "requirement")),
    model.NgcRelease: (("release", "version"), ("cuda", "version"), ("python", "Python"), ("driver", "version")),
    model.Extra: (("requires", "requirement"), ("constraints", "requirement")),
    model.OsRelease: (("glibc", "version"),),
    model.ContainerToolkit: (("version", "version"),),
    model.DriverImage: (("version", "version"),),
    model.Tuning: (("versions", "specifier"),),
    model.FolkSetting: (("versions", "specifier"),),
}


def _is_shaped(kind: str, text: str) -> bool:
    if kind == "Python":
        return re.fullmatch(r"3\.[0-9]{1,2}t?", text) is not None
    if kind == "target":
        return re.fullmatch(r"(sm|compute)_[0-9]{2,3}[af]?", text) is not None
    try:
        if kind == "version":
            parse(text)
        elif kind == "specifier":
            Spec(text)
        else:
            found = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*(?:\[[a-z0-9,-]+\])?\s*(.*)", text)
            if found is None:
                return False
            if not text.startswith("gpu-"):
                Spec(found[1])
    except ValueError:
        return False
    return True


@_rule("D014")
def _no_registries(facts: _Facts) -> Iterator[Finding]:
    """Addresses are https and name no package registry: which mirror is used is the user's choice."""
    for file in (*facts.tomls.values(), *facts.wheels.values()):
        yield from file.judge(_addresses)


def _addresses(file: _File) -> Iterator[Finding]:
    for row in (row for rows, _ in file.arrays for row in rows):
        for key, text in _texts(row.table):
            for address in re.findall(r"\b[a-z]+://[^\s\"'<>]+", text) if "://" in text else ():
                labels = re.split(r"[/:]", address.partition("://")[2].lower())[0].split(".")
                where = f"{row.where}{key}"
                if not address.startswith("https://"):
                    yield Finding(row.file, where, "D014", f"{address} is not https")
                if _REGISTRY_LABELS & set(labels) or (labels[0] in _ARCHIVE_PREFIXES and _ARCHIVE_LABELS & set(labels)):
                    yield Finding(row.file, where, "D014", f"{address} names a package registry")


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{key}[{index}]")
