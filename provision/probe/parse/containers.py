"""How containers get at the GPUs: docker, containerd, the NVIDIA toolkit, CDI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import bounded, headed, kept, load_json, load_toml, read_integer, read_lines
from provision.records import record

_CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_SNAP_FOLDER = "/var/snap/"
_TOOLKIT_VERSION = re.compile(r"NVIDIA Container Toolkit CLI version ([0-9][A-Za-z0-9.+~-]*)")
_TOOLKIT_KEYS = frozenset(
    {
        "accept-nvidia-visible-devices-as-volume-mounts",
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
        "disable-require",
        "features",
        "nvidia-container-cli",
        "nvidia-container-runtime",
        "nvidia-container-runtime-hook",
        "nvidia-ctk",
        "supported-driver-capabilities",
        "swarm-resource",
    }
)
_CDI_WORD = re.compile(r"""\b(kind|name|hostPath)["']?\s{0,8}:\s{0,8}["']?([^\s"',{}\[\]]{1,4000})""")
_DRIVER_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so\.([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})$")


@record
class DockerConfig:
    """``/etc/docker/daemon.json``; ``cgroup_driver`` as set there or, from ``docker info``, as in use.

    ``features`` are those that are switched on (``cdi``).
    """

    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cgroup_driver: str | None = None
    default_shm_size: str | None = None
    features: tuple[str, ...] = ()
    is_snap: bool | None = None
    version: str | None = None


@record
class ContainerdConfig:
    """``/etc/containerd/config.toml``: runtimes, and whether CDI is on.

    ``has_systemd_cgroup`` is that of the runtime GPUs are given through: ``nvidia``, else the default, else ``runc``.
    """

    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    has_systemd_cgroup: bool | None = None
    has_cdi: bool | None = None


@record
class ToolkitConfig:
    """``/etc/nvidia-container-runtime/config.toml``; ``version`` from ``nvidia-ctk --version``."""

    version: str | None = None
    has_no_cgroups: bool | None = None
    mode: str | None = None
    debug: str | None = None


@record
class CdiSpec:
    """One CDI specification.

    ``driver_versions`` are those named in its library paths, ``modified`` seconds of the epoch.
    """

    path: str
    kind: str | None = None
    devices: tuple[str, ...] = ()
    driver_versions: tuple[str, ...] = ()
    modified: int | None = None


def parse_docker_config(text: str) -> DockerConfig:
    """Read ``daemon.json``, or the document of ``docker info --format '{{json .}}'``.

    Raises:
        Unreadable: It is not a JSON object, a value has the wrong type, or ``docker info`` reached no daemon.
    """
    what = "Docker's configuration"
    read_lines(text, what)
    document = _mapping(load_json(text, what), what)
    if {"ServerVersion", "ServerErrors", "DockerRootDir"} & set(document):
        return _docker_info(document)
    options = [_string(option, "exec-opts") or "" for option in _sequence(document.get("exec-opts"), "exec-opts")]
    drivers = [option.partition("=")[2] for option in options if option.startswith("native.cgroupdriver=")]
    features = _mapping(document.get("features") or {}, "features")
    root = _string(document.get("data-root"), "data-root")
    return DockerConfig(
        runtimes=_names(document.get("runtimes"), "runtimes"),
        default_runtime=_string(document.get("default-runtime"), "default-runtime"),
        cgroup_driver=drivers[-1] if drivers else None,
        default_shm_size=_size(document.get("default-shm-size")),
        features=tuple(sorted(kept(name) for name, is_on in features.items() if _switch(is_on, "a feature"))),
        is_snap=None if root is None else root.startswith(_SNAP_FOLDER),
    )


def parse_containerd_config(text: str) -> ContainerdConfig:
    """Read containerd's configuration, versions 2 and 3.

    Raises:
        Unreadable: It is not TOML, says nothing, or a value has another type than containerd's.
    """
    what = "containerd's configuration"
    read_lines(text, what)
    document = load_toml(text, what)
    if not document:
        raise Unreadable(f"{what} says nothing")
    plugins = _mapping(document.get("plugins", {}), "plugins")
    runtimes: dict[str, Mapping[str, Any]] = {}
    default_runtime: str | None = None
    has_cdi: bool | None = None
    for name in _CRI_PLUGINS:
        plugin = _mapping(plugins.get(name, {}), name)
        section = _mapping(plugin.get("containerd", {}), "containerd")
        found = _mapping(section.get("runtimes", {}), "runtimes")
        runtimes |= {kept(runtime): _mapping(table, "a runtime") for runtime, table in found.items()}
        default_runtime = default_runtime or _string(section.get("default_runtime_name"), "default_runtime_name")
        if has_cdi is None and "enable_cdi" in plugin:
            has_cdi = _switch(plugin["enable_cdi"], "enable_cdi")
    return ContainerdConfig(
        runtimes=bounded(sorted(runtimes), what),
        default_runtime=default_runtime,
        has_systemd_cgroup=_systemd_cgroup(runtimes, ("nvidia", default_runtime or "runc", "runc")),
        has_cdi=has_cdi,
    )


def parse_toolkit_config(text: str) -> ToolkitConfig:
    """Read the toolkit's configuration, or the line ``nvidia-ctk --version`` prints.

    Raises:
        Unreadable: It is neither, or a value has another type than the toolkit's.
    """
    what = "the container toolkit's configuration"
    for line in read_lines(text, what):
        version = _TOOLKIT_VERSION.match(line)
        if version:
            return ToolkitConfig(version=version[1])
    document = load_toml(text, what)
    if not _TOOLKIT_KEYS & set(document):
        raise Unreadable(f"{what} holds none of the toolkit's settings")
    cli = _mapping(document.get("nvidia-container-cli", {}), "nvidia-container-cli")
    runtime = _mapping(document.get("nvidia-container-runtime", {}), "nvidia-container-runtime")
    return ToolkitConfig(
        has_no_cgroups=_switch(cli["no-cgroups"], "no-cgroups") if "no-cgroups" in cli else None,
        mode=_string(runtime.get("mode"), "mode"),
        debug=_string(runtime.get("debug"), "debug") or _string(cli.get("debug"), "debug"),
    )


def parse_cdi(text: str) -> tuple[CdiSpec, ...]:
    """Read the ``cdi`` probe: ``== PATH MTIME`` headings, under each the lines of the file that matter.

    A specification is YAML or JSON, as few lines as its writer liked. Empty where there is none.

    Raises:
        Unreadable: Text stands before the first heading, or a heading has another form.
    """
    found = []
    for heading, lines in headed(read_lines(text, "cdi"), "cdi"):
        path, _, modified = heading.rpartition(" ")
        if not path.startswith("/"):
            raise Unreadable(f"cdi has a heading of another form: `{kept(heading, 80)}`")
        found.append(_cdi_spec(kept(path), lines, read_integer(modified, "cdi: the time of a file")))
    return tuple(found)


def parse_cdi_file(text: str) -> tuple[CdiSpec, ...]:
    """Read one CDI specification as it lies in its folder, without path and time, or what :func:`parse_cdi` reads.

    Raises:
        Unreadable: It names no kind of device, or has not the form of the probe.
    """
    lines = read_lines(text, "cdi")
    if any(line.startswith("== ") for line in lines):
        return parse_cdi(text)
    found = _cdi_spec("", lines, None)
    if found.kind is None:
        raise Unreadable("cdi names no kind of device")
    return (found,)


def _docker_info(document: Mapping[str, Any]) -> DockerConfig:
    version = _string(document.get("ServerVersion"), "ServerVersion")
    errors = _sequence(document.get("ServerErrors"), "ServerErrors")
    if errors or not version:
        said = _string(errors[0], "ServerErrors") if errors else None
        raise Unreadable(f"docker info reached no daemon{f': {said}' if said else ''}")
    root = _string(document.get("DockerRootDir"), "DockerRootDir")
    return DockerConfig(
        runtimes=_names(document.get("Runtimes"), "Runtimes"),
        default_runtime=_string(document.get("DefaultRuntime"), "DefaultRuntime"),
        cgroup_driver=_string(document.get("CgroupDriver"), "CgroupDriver"),
        # Docker names the folders it reads specifications from only while it reads them.
        features=("cdi",) if _sequence(document.get("CDISpecDirs"), "CDISpecDirs") else (),
        is_snap=None if root is None else root.startswith(_SNAP_FOLDER),
        version=version,
    )


def _systemd_cgroup(runtimes: Mapping[str, Mapping[str, Any]], names: tuple[str, ...]) -> bool | None:
    for name in names:
        options = _mapping(runtimes.get(name, {}).get("options", {}), "options")
        if "SystemdCgroup" in options:
            return _switch(options["SystemdCgroup"], "SystemdCgroup")
        if name in runtimes:
            return None
    return None


def _cdi_spec(path: str, lines: Sequence[str], modified: int | None) -> CdiSpec:
    words: dict[str, dict[str, None]] = {"kind": {}, "name": {}, "hostPath": {}}
    for word in (word for line in lines for word in _CDI_WORD.finditer(line)):
        words[word[1]][kept(word[2], 4000)] = None
    versions = (_DRIVER_LIBRARY.search(library) for library in words["hostPath"])
    return CdiSpec(
        path=path,
        kind=next(iter(words["kind"]), None),
        devices=bounded(tuple(words["name"]), "cdi"),
        driver_versions=tuple(dict.fromkeys(version[1] for version in versions if version)),
        modified=modified,
    )


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unreadable(f"{what} is not a table of names and values")
    return value


def _sequence(value: object, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable(f"{what} is not a list")
    return value


def _string(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unreadable(f"{what} is not text")
    return kept(value, 4000) or None


def _switch(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise Unreadable(f"{what} is neither true nor false")
    return value


def _size(value: object) -> str | None:
    """Return a size that may stand as a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return str(value)
    return _string(value, "default-shm-size")


def _names(value: object, what: str) -> tuple[str, ...]:
    return bounded(sorted(kept(name) for name in _mapping(value or {}, what)), what)
