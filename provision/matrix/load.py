"""Read ``compat/``: each file once, when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from provision.assets import facts_dir
from provision.errors import DataError
from provision.matrix import model
from provision.matrix.cache import ParsedFile
from provision.matrix.decode import decode_row

if TYPE_CHECKING:
    from provision.matrix.published import PublishedPackage

_Made = TypeVar("_Made")


def _rows(name: str, array: str, what: str, *, by: str = "") -> Any:
    """Return a property of the facts: the rows of one array, read when they are first asked for.

    Args:
        name: Path below compat/, a key of ``ARRAY_OF``.
        array: Name of the array of tables.
        what: What the rows are, in a phrase without a full stop.
        by: The field by which they are found; without it, they are a tuple.
    """

    def read(matrix: Matrix) -> Any:
        rows = matrix.rows(name, array)
        return {getattr(row, by): row for row in rows} if by else rows

    read.__doc__ = f"{what}."
    return cached_property(read)


def _places(tables: list[Any], key: str) -> dict[Any, list[int]]:
    """Return value → positions of the tables that have it; what is no text stands under nothing."""
    found: dict[Any, list[int]] = {}
    for index, table in enumerate(tables):
        value = table.get(key) if key and isinstance(table, dict) else None
        found.setdefault(value if isinstance(value, str) else None, []).append(index)
    return found


class Matrix:
    """All facts. Attributes are tuples of rows in file order, newest version first.

    Args:
        data_dir: A folder laid out like ``compat/``; the facts in force when absent.

    Raises:
        DataError: From any attribute, when its file is missing or malformed.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir if data_dir is not None else facts_dir()
        self._files: dict[str, ParsedFile] = {}
        self._cuda_below: dict[str, tuple[model.CudaRelease, ...]] = {}
        self._images: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._parts: dict[tuple[str, str], Any] = {}
        self._decoded: dict[tuple[str, str], dict[int, Any]] = {}
        self._found: dict[tuple[str, str, str, str], tuple[Any, ...]] = {}
        self._packages: dict[str, Package | None] = {}
        self._published: dict[str, PublishedPackage | None] = {}
        self._settings: dict[str, dict[str, model.Setting]] = {}
        self._kept: dict[tuple[Any, ...], Any] = {}

    def keep(self, key: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
        """Return what was made of these facts before under a key, or make it now.

        Args:
            key: The name of what is made, then all that it depends on beside the facts.
            make: Makes a value that nobody changes.
        """
        if key not in self._kept:
            self._kept[key] = make()
        made: _Made = self._kept[key]
        return made

    def rows(self, name: str, array: str) -> tuple[Any, ...]:
        """Return the rows of one array of tables.

        Args:
            name: Path below compat/, a key of ``ARRAY_OF``.
            array: Name of the array of tables.
        """
        return self.rows_where(name, array, "", lambda _: True)

    def rows_where(self, name: str, array: str, key: str, is_wanted: Callable[[str], bool]) -> tuple[Any, ...]:
        """Return the rows whose value of one text key is wanted; the others are not even decoded.

        A row is the same object each time it is returned.
        """
        row_type = model.ARRAY_OF[name][array]
        tables = self._part(name, array)
        if not isinstance(tables, list):
            raise DataError(f"{name}: `{array}` must be an array of tables")
        decoded = self._decoded.setdefault((name, array), {})
        places = self.keep((name, array, key), lambda: _places(tables, key))
        found = []
        for index in sorted(
            index for value, held in places.items() if not isinstance(value, str) or is_wanted(value) for index in held
        ):
            if index not in decoded:
                decoded[index] = decode_row(row_type, tables[index], f"{name}: {array}[{index}]")
            found.append(decoded[index])
        return tuple(found)

    def rows_with(self, name: str, array: str, key: str, value: str) -> tuple[Any, ...]:
        """Return the rows whose text key has one value; where the parse cache is warm the others are not even read."""
        asked = (name, array, key, value)
        if asked not in self._found:
            self._found[asked] = self._search(name, array, key, value)
        return self._found[asked]

    def _search(self, name: str, array: str, key: str, value: str) -> tuple[Any, ...]:
        found = None if (name, array) in self._parts else self._file(name).rows_with(array, key, value)
        if found is None:
            return self.rows_where(name, array, key, lambda have: have == value)
        row_type = model.ARRAY_OF[name][array]
        decoded = self._decoded.setdefault((name, array), {})
        for index, table in found:
            if index not in decoded:
                decoded[index] = decode_row(row_type, table, f"{name}: {array}[{index}]")
        return tuple(decoded[index] for index, _ in found)

    def _part(self, name: str, key: str) -> Any:
        """Return one top-level value of a TOML file, through the parse cache."""
        if (name, key) not in self._parts:
            self._parts[name, key] = self._file(name).part(key)
        return self._parts[name, key]

    def _file(self, name: str) -> ParsedFile:
        if name not in self._files:
            self._files[name] = ParsedFile(self.data_dir / name, name)
        return self._files[name]

    @cached_property
    def dated(self) -> str:
        """The day the facts were last checked, ISO."""
        dated = self._part("frameworks/torch.toml", "dated")
        if not isinstance(dated, str):
            raise DataError("frameworks/torch.toml: `dated` must be a date")
        return dated

    sources: dict[str, model.Source] = _rows("sources.toml", "source", "Publications by id", by="id")
    cuda: tuple[model.CudaRelease, ...] = _rows("cuda.toml", "release", "CUDA toolkits")

    def cuda_below(self, prefix: str) -> tuple[model.CudaRelease, ...]:
        """Return the toolkits of a major (``12``) or minor (``12.1``)."""
        if prefix not in self._cuda_below:
            self._cuda_below[prefix] = self.rows_where(
                "cuda.toml", "release", "version", lambda version: f"{version}.".startswith(f"{prefix}.")
            )
        return self._cuda_below[prefix]

    driver_branches: tuple[model.DriverBranch, ...] = _rows("drivers.toml", "branch", "Driver branches")
    security_floors: tuple[model.SecurityFloor, ...] = _rows(
        "drivers.toml", "security_floor", "Driver security bulletins"
    )
    distro_drivers: tuple[model.DistroDriver, ...] = _rows(
        "drivers.toml", "distro_driver", "Drivers in the archives of distributions"
    )
    gpus: tuple[model.Gpu, ...] = _rows("gpus.toml", "gpu", "GPU models, by architecture then name")
    cudnn: tuple[model.Cudnn, ...] = _rows("cudnn.toml", "release", "The cuDNN support matrix")
    nccl: tuple[model.Nccl, ...] = _rows("nccl.toml", "pairing", "Pairings of NCCL with CUDA in packages")
    os_releases: tuple[model.OsRelease, ...] = _rows("os.toml", "os", "Operating systems")

    def os_release(self, name: str | None) -> model.OsRelease | None:
        """Return one operating system; ``None`` when it is unknown."""
        return next(iter(self.rows_with("os.toml", "os", "id", name)), None) if name is not None else None

    pci_ranges: tuple[model.PciRange, ...] = _rows("gpus.toml", "pci_range", "PCI device numbers by GPU architecture")
    node_systems: dict[str, model.NodeSystem] = _rows(
        "node_packages.toml", "system", "Systems a node can run, by id", by="id"
    )
    driver_packages: tuple[model.DriverPackages, ...] = _rows(
        "node_packages.toml", "driver", "Packages of the driver, by system, way to get them and branch"
    )
    known_bad_modules: tuple[model.KnownBadModule, ...] = _rows(
        "node_packages.toml", "known_bad", "Drivers whose module does not build on some kernels"
    )
    pythons: tuple[model.PythonRelease, ...] = _rows("python.toml", "python", "Python minors")
    ngc_releases: tuple[model.NgcRelease, ...] = _rows(
        "ngc.toml", "release", "What NVIDIA's framework images hold, by month"
    )
    python_images: tuple[model.PythonImage, ...] = _rows("images.toml", "python_image", "Official Python image tags")
    cuda_images: tuple[model.CudaImage, ...] = _rows("images.toml", "cuda_image", "nvidia/cuda tags")

    def python_images_of(self, python: str) -> tuple[model.PythonImage, ...]:
        """Return the official images of one Python."""
        key = ("python_image", python)
        if key not in self._images:
            self._images[key] = self.rows_where("images.toml", "python_image", "python", lambda value: value == python)
        return self._images[key]

    def cuda_images_below(self, minor: str) -> tuple[model.CudaImage, ...]:
        """Return the nvidia/cuda tags of one CUDA minor (``12.1``)."""
        key = ("cuda_image", minor)
        if key not in self._images:
            self._images[key] = self.rows_where(
                "images.toml", "cuda_image", "cuda", lambda version: f"{version}.".startswith(f"{minor}.")
            )
        return self._images[key]

    container_toolkits: tuple[model.ContainerToolkit, ...] = _rows(
        "container_toolkit.toml", "release", "NVIDIA container toolkit versions"
    )
    torch_releases: tuple[model.TorchRelease, ...] = _rows("frameworks/torch.toml", "release", "Versions of torch")
    torch_builds: tuple[model.TorchBuild, ...] = _rows(
        "frameworks/torch.toml", "build", "Builds of torch, newest version first, then highest CUDA"
    )

    def torch_releases_where(self, is_wanted: Callable[[str], bool]) -> tuple[model.TorchRelease, ...]:
        """Return the torch versions somebody wants."""
        return self.rows_where("frameworks/torch.toml", "release", "version", is_wanted)

    def torch_builds_of(self, versions: Container[str]) -> tuple[model.TorchBuild, ...]:
        """Return the builds of some torch versions, in the order of :attr:`torch_builds`."""
        if isinstance(versions, set) and len(versions) == 1:
            return self.rows_with("frameworks/torch.toml", "build", "torch", next(iter(versions)))
        return self.rows_where("frameworks/torch.toml", "build", "torch", lambda version: version in versions)

    unknown_torch_builds: tuple[model.UnknownBuild, ...] = _rows(
        "frameworks/torch.toml", "unknown_build", "Builds of torch whose existence is open"
    )
    tensorflow: tuple[model.TensorflowRelease, ...] = _rows(
        "frameworks/tensorflow.toml", "release", "Versions of TensorFlow"
    )
    jax: tuple[model.JaxRelease, ...] = _rows(
        "frameworks/jax.toml", "release", "Versions of JAX, one row a CUDA plugin"
    )
    companions: tuple[model.CompanionPackage, ...] = _rows(
        "companions.toml", "release", "Packages built against a framework"
    )
    constraints: tuple[model.HiddenConstraint, ...] = _rows(
        "constraints.toml", "constraint", "Needs that metadata does not declare"
    )

    def constraints_of(self, packages: Container[str]) -> tuple[model.HiddenConstraint, ...]:
        """Return the undeclared needs of some packages alone."""
        return self.rows_where("constraints.toml", "constraint", "package", lambda name: name in packages)

    exclusions: tuple[model.Exclusion, ...] = _rows("exceptions.toml", "exclusion", "Pairs known to fail together")

    def exclusions_where(self, is_wanted: Callable[[str], bool]) -> tuple[model.Exclusion, ...]:
        """Return the pairs known to fail together whose left side somebody wants."""
        return self.rows_where("exceptions.toml", "exclusion", "left", is_wanted)

    extras: tuple[model.Extra, ...] = _rows("extras.toml", "extra", "What ``--with`` can add")
    checks: dict[str, model.Check] = _rows(
        "checks.toml", "check", "What ``verify`` asks, by id, in file order", by="id"
    )

    def limit(self, key: str) -> float:
        """Return one threshold of checks.

        Raises:
            DataError: The facts have no such threshold.
        """
        for file in ("checks.toml", "alerts.toml"):
            for row in self.rows(file, "limit"):
                if row.id == key:
                    value: float = row.value
                    return value
        raise DataError(f"the limit `{key}` is in neither checks.toml nor alerts.toml")

    diagnoses: dict[str, model.Diagnosis] = _rows(
        "diagnoses.toml", "diagnosis", "What ``doctor`` can name, by id, in file order", by="id"
    )
    audit_rules: dict[str, model.AuditRule] = _rows(
        "audit_rules.toml", "rule", "What ``check`` looks for, by id, in file order", by="id"
    )
    xids: dict[int, model.Xid] = _rows("xid.toml", "xid", "The Xid catalogue by code", by="code")
    recordings: tuple[model.RecordingRule, ...] = _rows(
        "alerts.toml", "recording", "Series that Prometheus computes, in the order in which it can"
    )
    alerts: dict[str, model.Alert] = _rows(
        "alerts.toml", "alert", "What monitoring tells people of, by id, in file order", by="id"
    )
    inhibitions: tuple[model.Inhibition, ...] = _rows("alerts.toml", "inhibition", "Which alerts silence which")
    notifiers: dict[str, model.Notifier] = _rows(
        "alerts.toml", "notifier", "Services that Alertmanager tells in a form of their own, by id", by="id"
    )
    counters: tuple[model.Counter, ...] = _rows("alerts.toml", "counter", "What dcgm-exporter collects, by name")
    panels: tuple[model.Panel, ...] = _rows(
        "dashboards.toml", "panel", "The pictures of the dashboards, by dashboard and place"
    )
    cluster_components: dict[str, model.ClusterComponent] = _rows(
        "cluster.toml", "component", "What a Kubernetes cluster runs for GPUs, by id", by="id"
    )
    driver_images: tuple[model.DriverImage, ...] = _rows(
        "cluster.toml", "driver_image", "Drivers published as container images, newest branch first"
    )

    @cached_property
    def cluster_products(self) -> dict[str, tuple[str, ...]]:
        """Labels of nodes by the id of their GPU."""
        return {row.gpu: row.labels for row in self.rows("cluster.toml", "product")}

    @cached_property
    def shapes(self) -> dict[str, model.Shape]:
        """Which keys custom resources, Helm values and configuration files have, by name.

        Raises:
            DataError: A file is malformed.
        """
        found = {}
        for path in sorted((self.data_dir / "shapes").glob("*.json")):
            try:
                document = json.loads(path.read_bytes())
                del document["schema_version"]
                row = model.Shape(**document | {"source": tuple(document["source"])})
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"{type(error).__name__}: {error}"
                raise DataError(f"shapes/{path.name} cannot be read", because=(why,)) from error
            found[row.name] = row
        return found

    spot_notices: tuple[model.SpotNotice, ...] = _rows(
        "spot.toml", "notice", "How providers tell spot instances that they are taken back, by id"
    )
    tunings: tuple[model.Tuning, ...] = _rows("tuning.toml", "tuning", "Settings that help somewhere, by id")
    folk_settings: tuple[model.FolkSetting, ...] = _rows(
        "tuning.toml", "folk", "Settings that are passed on and refuted, by id"
    )
    performance_floors: tuple[model.PerformanceFloor, ...] = _rows(
        "performance.toml", "floor", "What healthy GPUs reach"
    )
    nvlinks: tuple[model.NvlinkLayout, ...] = _rows("performance.toml", "nvlink", "The NVLinks of GPUs")

    def settings(self, name: str) -> Mapping[str, model.Setting]:
        """Return the single values of one file, by id."""
        if name not in self._settings:
            self._settings[name] = {row.id: row for row in self.rows(name, "setting")}
        return self._settings[name]

    def setting(self, name: str, key: str) -> model.Setting:
        """Return one single value of a file.

        Raises:
            DataError: The file has no such value.
        """
        found = self.settings(name).get(key)
        if found is None:
            raise DataError(f"{name}: the setting `{key}` is missing")
        return found

    def package(self, name: str) -> Package | None:
        """Return what is known of a distribution; ``None`` when it is unknown.

        Args:
            name: Normalised distribution name (``nvidia-cudnn-cu12``).
        """
        if name not in self._packages:
            path = self.data_dir / "wheels" / f"{name}.json"
            self._packages[name] = Package(path) if path.is_file() else None
        return self._packages[name]

    def published(self, name: str) -> PublishedPackage | None:
        """Return every release that an index has of a distribution; ``None`` for one that is not kept.

        Args:
            name: Normalised distribution name.
        """
        if name not in self._published:
            # Few commands ask for it.
            from provision.matrix.published import PublishedPackage

            path = self.data_dir / "published" / f"{name}.json"
            self._published[name] = PublishedPackage(path) if path.is_file() else None
        return self._published[name]


class Package:
    """The known releases of one distribution; rows are decoded when they are first looked at.

    Args:
        path: A file of ``wheels/``.

    Raises:
        DataError: The file is malformed.

    Attributes:
        name: Normalised name.
        versions: Newest first.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._where = f"wheels/{path.name}"
        try:
            document = json.loads(path.read_bytes())
            self._rows = {row["version"]: (index, row) for index, row in enumerate(document["releases"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self._where} cannot be read", because=(f"{type(error).__name__}: {error}",)) from error
        self.versions = tuple(self._rows)
        self._releases: dict[str, model.WheelRelease] = {}

    def release(self, version: str) -> model.WheelRelease | None:
        """Return one release, or ``None`` when it is unknown."""
        if version not in self._releases:
            if version not in self._rows:
                return None
            index, row = self._rows[version]
            self._releases[version] = decode_row(model.WheelRelease, row, f"{self._where}: releases[{index}]")
        return self._releases[version]
