"""The driver as the kernel sees it: ``/proc/driver/nvidia``, ``/proc/modules``, ``modinfo``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import frozen, headed, kept, pairs_of, read_integer, read_lines, read_switch
from provision.records import record

_VERSION = re.compile(r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,3}")
_MODULE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MODULE_STATES = ("Live", "Loading", "Unloading")
_NVIDIA_MODULE_KEYS = frozenset({"loaded_version", "modinfo", "disk_version", "signer", "license", "path"})
_MODINFO = {"found": True, "none": False, "absent": None}
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_NOT_TOLD = ("", "N/A", "??")


@record
class LoadedDriver:
    """What is loaded; ``is_open`` tells the open modules from the proprietary, ``None`` where a record does not say."""

    version: str
    is_open: bool | None = None
    compiler: str | None = None


@record
class KernelModule:
    """A line of ``/proc/modules``."""

    name: str
    size: int
    users: int
    used_by: tuple[str, ...] = ()
    state: str = "Live"


@record
class NvidiaModule:
    """The nvidia module in memory and on disk, from the collector's ``module-nvidia`` probe.

    Attributes:
        loaded_version: ``/sys/module/nvidia/version``.
        disk_version: ``modinfo -F version nvidia`` for the running kernel; ``None`` when modinfo finds no module.
        signer: ``modinfo -F signer``; empty where the module is unsigned.
        license: ``modinfo -F license``: ``Dual MIT/GPL`` is the open flavour, ``NVIDIA`` the proprietary.
        path: Where it lies.
        is_on_disk: Whether modinfo knows a module for the running kernel; ``None`` where there is no modinfo to ask.
    """

    loaded_version: str | None = None
    disk_version: str | None = None
    signer: str | None = None
    license: str | None = None
    path: str | None = None
    is_on_disk: bool | None = None


@record
class ProcGpu:
    """``/proc/driver/nvidia/gpus/*/information``."""

    pci: str
    model: str | None = None
    minor: int | None = None
    firmware: str | None = None
    is_excluded: bool | None = None


def parse_loaded_driver(text: str) -> LoadedDriver:
    """Read ``/proc/driver/nvidia/version``.

    The version is the first word after ``Module`` that has the form of one; the open modules name the machine between
    the two, the proprietary ones before them.

    A version alone, as other programs write it down, leaves open which modules these are.

    Raises:
        Unreadable: No version stands in it.
    """
    if _VERSION.fullmatch(alone := text.strip()):
        return LoadedDriver(version=alone)
    version = compiler = None
    is_open = False
    for line in read_lines(text, "/proc/driver/nvidia/version"):
        label, colon, said = line.partition(":")
        label = label.strip()
        if not colon:
            continue
        if label == "NVRM version" and version is None:
            _, _, after = said.partition(" Module")
            version = next((word for word in after.split() if _VERSION.fullmatch(word)), None)
            is_open = " Open Kernel Module" in said
        elif label == "GCC version" and compiler is None:
            compiler = kept(said) or None
    if version is None:
        raise Unreadable("/proc/driver/nvidia/version names no version")
    return LoadedDriver(version=version, is_open=is_open, compiler=compiler)


def parse_modules(text: str) -> tuple[KernelModule, ...]:
    """Read ``/proc/modules``, in its order, or what ``lsmod`` makes of it.

    Raises:
        Unreadable: A line is not a module, or there is none: such a kernel has its drivers built in.
    """
    lines = [line for line in read_lines(text, "/proc/modules") if line.strip()]
    is_lsmod = bool(lines) and lines[0].split() == ["Module", "Size", "Used", "by"]
    found = tuple(_kernel_module(line, is_lsmod=is_lsmod) for line in (lines[1:] if is_lsmod else lines))
    if not found:
        raise Unreadable("/proc/modules lists no module")
    return found


def parse_nvidia_module(text: str) -> NvidiaModule:
    """Read the ``key=value`` lines of the ``module-nvidia`` probe; ``modinfo`` is ``found``, ``none`` or ``absent``.

    Raises:
        Unreadable: A line has another form, or none tells of the module.
    """
    values = pairs_of(read_lines(text, "module-nvidia"), "module-nvidia", _NVIDIA_MODULE_KEYS)
    modinfo = values.get("modinfo", "found" if "disk_version" in values else "absent")
    if modinfo not in _MODINFO:
        raise Unreadable(f"module-nvidia says of modinfo what is not known: `{modinfo}`")
    return NvidiaModule(
        loaded_version=values.get("loaded_version") or None,
        disk_version=values.get("disk_version") or None,
        signer=values.get("signer"),
        license=values.get("license") or None,
        path=values.get("path") or None,
        is_on_disk=_MODINFO[modinfo],
    )


def parse_driver_params(text: str) -> Mapping[str, str]:
    """Read ``/proc/driver/nvidia/params`` (``RmProfilingAdminOnly`` → ``1``).

    Raises:
        Unreadable: A line has another form, or there is none.
    """
    found: dict[str, str] = {}
    for line in read_lines(text, "/proc/driver/nvidia/params"):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not _MODULE_NAME.fullmatch(name):
            raise Unreadable(f"/proc/driver/nvidia/params has a line of another form: `{kept(line, 80)}`")
        found[name] = kept(value.strip().strip('"'), 4000)
    if not found:
        raise Unreadable("/proc/driver/nvidia/params is empty")
    return frozen(found)


def parse_gpu_information(text: str) -> tuple[ProcGpu, ...]:
    """Read the concatenated ``information`` files, each under a line ``== ADDRESS``; empty where the driver has no GPU.

    Raises:
        Unreadable: Text stands before the first such line, or a line has another form.
    """
    found = []
    for heading, lines in headed(read_lines(text, "driver-gpus"), "driver-gpus"):
        address = heading.lower()
        if not _ADDRESS.fullmatch(address):
            raise Unreadable(f"driver-gpus names no PCI address: `{kept(heading, 40)}`")
        values: dict[str, str] = {}
        for line in lines:
            label, colon, value = line.partition(":")
            if not colon:
                raise Unreadable(f"driver-gpus has a line of another form: `{kept(line, 80)}`")
            values[label.strip()] = kept(value)
        found.append(_proc_gpu(address, values))
    return tuple(found)


def _kernel_module(line: str, *, is_lsmod: bool) -> KernelModule:
    words = line.split()
    least, most = (3, 4) if is_lsmod else (6, 8)
    if not least <= len(words) <= most or not _MODULE_NAME.fullmatch(words[0]):
        raise Unreadable(f"/proc/modules has a line that is not a module: `{kept(line, 80)}`")
    if not is_lsmod and words[4] not in _MODULE_STATES:
        raise Unreadable(f"/proc/modules names a state that is not known: `{kept(words[4], 40)}`")
    names = words[3].split(",") if len(words) > 3 else []
    return KernelModule(
        name=words[0],
        size=read_integer(words[1], "/proc/modules: a size"),
        # A kernel that cannot unload modules does not count their users.
        users=0 if words[2] == "-" else read_integer(words[2], "/proc/modules: the number of users"),
        used_by=tuple(name for name in names if _MODULE_NAME.fullmatch(name) and name != "-"),
        state="Live" if is_lsmod else words[4],
    )


def _proc_gpu(address: str, values: Mapping[str, str]) -> ProcGpu:
    minor, excluded = values.get("Device Minor", ""), values.get("GPU Excluded", "")
    firmware = values.get("GPU Firmware", "")
    return ProcGpu(
        pci=address,
        model=values.get("Model") or None,
        minor=read_integer(minor, "driver-gpus: a minor number") if minor else None,
        firmware=None if firmware in _NOT_TOLD else firmware,
        is_excluded=read_switch(excluded, "driver-gpus: excluded") if excluded else None,
    )
