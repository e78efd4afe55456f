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

__all__ = ["Matrix", "Package"]

_Made = TypeVar("_Made")


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
        found = []
        for index, table in enumerate(tables):
            value = table.get(key) if key and isinstance(table, dict) else None
            if isinstance(value, str) and not is_wanted(value):
                continue
            if index not in decoded:
                decoded[index] = decode_row(row_type, table, f"{name}: {array}[{index}]")
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

    @cached_property
    def sources(self) -> dict[str, model.Source]:
        """Publications by id."""
        return {row.id: row for row in self.rows("sources.toml", "source")}

    @cached_property
    def cuda(self) -> tuple[model.CudaRelease, ...]:
        """CUDA toolkits."""
        return self.rows("cuda.toml", "release")

    def cuda_below(self, prefix: str) -> tuple[model.CudaRelease, ...]:
        """Return the toolkits of a major (``12``) or minor (``12.1``)."""
        if prefix not in self._cuda_below:
            self._cuda_below[prefix] = self.rows_where(
                "cuda.toml", "release", "version", lambda version: f"{version}.".startswith(f"{prefix}.")
            )
        return self._cuda_below[prefix]

    @cached_property
    def driver_branches(self) -> tuple[model.DriverBranch, ...]:
        """Driver branches."""
        return self.rows("drivers.toml", "branch")

    @cached_property
    def security_floors(self) -> tuple[model.SecurityFloor, ...]:
        """Driver security bulletins."""
        return self.rows("drivers.toml", "security_floor")

    @cached_property
    def distro_drivers(self) -> tuple[model.DistroDriver, ...]:
        """Drivers in the archives of distributions."""
        return self.rows("drivers.toml", "distro_driver")

    @cached_property
    def gpus(self) -> tuple[model.Gpu, ...]:
        """GPU models, by architecture then name."""
        return self.rows("gpus.toml", "gpu")

    @cached_property
    def cudnn(self) -> tuple[model.Cudnn, ...]:
        """The cuDNN support matrix."""
        return self.rows("cudnn.toml", "release")

    @cached_property
    def nccl(self) -> tuple[model.Nccl, ...]:
        """Pairings of NCCL with CUDA in packages."""
        return self.rows("nccl.toml", "pairing")

    @cached_property
    def os_releases(self) -> tuple[model.OsRelease, ...]:
        """Operating systems."""
        return self.rows("os.toml", "os")

    def os_release(self, name: str | None) -> model.OsRelease | None:
        """Return one operating system; ``None`` when it is unknown."""
        return next(iter(self.rows_with("os.toml", "os", "id", name)), None) if name is not None else None

    @cached_property
    def pci_ranges(self) -> tuple[model.PciRange, ...]:
        """PCI device numbers by GPU architecture."""
        return self.rows("gpus.toml", "pci_range")

    @cached_property
    def node_systems(self) -> dict[str, model.NodeSystem]:
        """Systems a node can run, by id."""
        return {row.id: row for row in self.rows("node_packages.toml", "system")}

    @cached_property
    def driver_packages(self) -> tuple[model.DriverPackages, ...]:
        """Packages of the driver, by system, way to get them and branch."""
        return self.rows("node_packages.toml", "driver")

    @cached_property
    def known_bad_modules(self) -> tuple[model.KnownBadModule, ...]:
        """Drivers whose module does not build on some kernels."""
        return self.rows("node_packages.toml", "known_bad")

    @cached_property
    def pythons(self) -> tuple[model.PythonRelease, ...]:
        """Python minors."""
        return self.rows("python.toml", "python")

    @cached_property
    def ngc_releases(self) -> tuple[model.NgcRelease, ...]:
        """What NVIDIA's framework images hold, by month."""
        return self.rows("ngc.toml", "release")

    @cached_property
    def python_images(self) -> tuple[model.PythonImage, ...]:
        """Official Python image tags."""
        return self.rows("images.toml", "python_image")

    @cached_property
    def cuda_images(self) -> tuple[model.CudaImage, ...]:
        """nvidia/cuda tags."""
        return self.rows("images.toml", "cuda_image")

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

    @cached_property
    def container_toolkits(self) -> tuple[model.ContainerToolkit, ...]:
        """NVIDIA container toolkit versions."""
        return self.rows("container_toolkit.toml", "release")

    @cached_property
    def torch_releases(self) -> tuple[model.TorchRelease, ...]:
        """Versions of torch."""
        return self.rows("frameworks/torch.toml", "release")

    @cached_property
    def torch_builds(self) -> tuple[model.TorchBuild, ...]:
        """Builds of torch, newest version first, then highest CUDA."""
        return self.rows("frameworks/torch.toml", "build")

    def torch_releases_where(self, is_wanted: Callable[[str], bool]) -> tuple[model.TorchRelease, ...]:
        """Return the torch versions somebody wants."""
        return self.rows_where("frameworks/torch.toml", "release", "version", is_wanted)

    def torch_builds_of(self, versions: Container[str]) -> tuple[model.TorchBuild, ...]:
        """Return the builds of some torch versions, in the order of :attr:`torch_builds`."""
        if isinstance(versions, set) and len(versions) == 1:
            return self.rows_with("frameworks/torch.toml", "build", "torch", next(iter(versions)))
        return self.rows_where("frameworks/torch.toml", "build", "torch", lambda version: version in versions)

    @cached_property
    def unknown_torch_builds(self) -> tuple[model.UnknownBuild, ...]:
        """Builds of torch whose existence is open."""
        return self.rows("frameworks/torch.toml", "unknown_build")

    @cached_property
    def tensorflow(self) -> tuple[model.TensorflowRelease, ...]:
        """Versions of TensorFlow."""
        return self.rows("frameworks/tensorflow.toml", "release")

    @cached_property
    def jax(self) -> tuple[model.JaxRelease, ...]:
        """Versions of JAX, one row a CUDA plugin."""
        return self.rows("frameworks/jax.toml", "release")

    @cached_property
    def companions(self) -> tuple[model.CompanionPackage, ...]:
        """Packages built against a framework."""
        return self.rows("companions.toml", "release")

    @cached_property
    def constraints(self) -> tuple[model.HiddenConstraint, ...]:
        """Needs that metadata does not declare."""
        return self.rows("constraints.toml", "constraint")

    def constraints_of(self, packages: Container[str]) -> tuple[model.HiddenConstraint, ...]:
        """Return the undeclared needs of some packages alone."""
        return self.rows_where("constraints.toml", "constraint", "package", lambda name: name in packages)

    @cached_property
    def exclusions(self) -> tuple[model.Exclusion, ...]:
        """Pairs known to fail together."""
        return self.rows("exceptions.toml", "exclusion")

    def exclusions_where(self, is_wanted: Callable[[str], bool]) -> tuple[model.Exclusion, ...]:
        """Return the pairs known to fail together whose left side somebody wants."""
        return self.rows_where("exceptions.toml", "exclusion", "left", is_wanted)

    @cached_property
    def extras(self) -> tuple[model.Extra, ...]:
        """What ``--with`` can add."""
        return self.rows("extras.toml", "extra")

    @cached_property
    def checks(self) -> dict[str, model.Check]:
        """What ``verify`` asks, by id, in file order."""
        return {row.id: row for row in self.rows("checks.toml", "check")}

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

    @cached_property
    def diagnoses(self) -> dict[str, model.Diagnosis]:
        """What ``doctor`` can name, by id, in file order."""
        return {row.id: row for row in self.rows("diagnoses.toml", "diagnosis")}

    @cached_property
    def audit_rules(self) -> dict[str, model.AuditRule]:
        """What ``check`` looks for, by id, in file order."""
        return {row.id: row for row in self.rows("audit_rules.toml", "rule")}

    @cached_property
    def xids(self) -> dict[int, model.Xid]:
        """The Xid catalogue by code."""
        return {row.code: row for row in self.rows("xid.toml", "xid")}

    @cached_property
    def recordings(self) -> tuple[model.RecordingRule, ...]:
        """Series that Prometheus computes, in the order in which it can."""
        return self.rows("alerts.toml", "recording")

    @cached_property
    def alerts(self) -> dict[str, model.Alert]:
        """What monitoring tells people of, by id, in file order."""
        return {row.id: row for row in self.rows("alerts.toml", "alert")}

    @cached_property
    def inhibitions(self) -> tuple[model.Inhibition, ...]:
        """Which alerts silence which."""
        return self.rows("alerts.toml", "inhibition")

    @cached_property
    def notifiers(self) -> dict[str, model.Notifier]:
        """Services that Alertmanager tells in a form of their own, by id."""
        return {row.id: row for row in self.rows("alerts.toml", "notifier")}

    @cached_property
    def counters(self) -> tuple[model.Counter, ...]:
        """What dcgm-exporter collects, by name."""
        return self.rows("alerts.toml", "counter")

    @cached_property
    def panels(self) -> tuple[model.Panel, ...]:
        """The pictures of the dashboards, by dashboard and place."""
        return self.rows("dashboards.toml", "panel")

    @cached_property
    def cluster_components(self) -> dict[str, model.ClusterComponent]:
        """What a Kubernetes cluster runs for GPUs, by id."""
        return {row.id: row for row in self.rows("cluster.toml", "component")}

    @cached_property
    def driver_images(self) -> tuple[model.DriverImage, ...]:
        """Drivers published as container images, newest branch first."""
        return self.rows("cluster.toml", "driver_image")

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

    @cached_property
    def spot_notices(self) -> tuple[model.SpotNotice, ...]:
        """How providers tell spot instances that they are taken back, by id."""
        return self.rows("spot.toml", "notice")

    @cached_property
    def tunings(self) -> tuple[model.Tuning, ...]:
        """Settings that help somewhere, by id."""
        return self.rows("tuning.toml", "tuning")

    @cached_property
    def folk_settings(self) -> tuple[model.FolkSetting, ...]:
        """Settings that are passed on and refuted, by id."""
        return self.rows("tuning.toml", "folk")

    @cached_property
    def performance_floors(self) -> tuple[model.PerformanceFloor, ...]:
        """What healthy GPUs reach."""
        return self.rows("performance.toml", "floor")

    @cached_property
    def nvlinks(self) -> tuple[model.NvlinkLayout, ...]:
        """The NVLinks of GPUs."""
        return self.rows("performance.toml", "nvlink")

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
