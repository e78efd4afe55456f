"""PCI devices, from sysfs and from ``lspci``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import record, replace

_ADDRESS: Final = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"(?:0x)?([0-9a-f]{2,6})", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,6}", re.ASCII)
_SPEED: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) ?GT/s", re.ASCII)
_LINK: Final = re.compile(r"Width x([0-9]{1,3})", re.ASCII)
_SIZE: Final = re.compile(r"\[size=([0-9]{1,6}[KMGTP]?)\]", re.ASCII)
_REVISION: Final = re.compile(r"\(rev ([0-9a-f]{2})\)", re.ASCII)
_IDS: Final = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.ASCII)
_CLASS: Final = re.compile(r"([^\[\]:]{1,100}?)(?: \[([0-9a-f]{4})\])?: ", re.ASCII)
_POWER: Final = re.compile(r"Status: (D[0-3](?:hot|cold)?)\b", re.ASCII)

_HIDDEN_WIDTHS: Final = (0, 63, 255)
"""Widths that only say that there is no answer; the large ones are all bits of a register that did not reply."""

_PARENTS_MAX: Final = 32

_CLASS_CODES: Final = {
    "3D controller": "0302",
    "Bridge": "0680",
    "Ethernet controller": "0200",
    "Host bridge": "0600",
    "Infiniband controller": "0207",
    "ISA bridge": "0601",
    "PCI bridge": "0604",
    "VGA compatible controller": "0300",
}
_VENDOR_NAMES: Final = {
    "Broadcom / LSI": "1000",
    "Intel Corporation": "8086",
    "Mellanox Technologies": "15b3",
    "NVIDIA Corporation": "10de",
}
"""What lspci prints instead of numbers when it was not asked for them."""


@record
class PciDevice:
    """One PCI function; what its listing does not tell is ``None``.

    Attributes:
        address: ``0000:18:00.0``, lower case.
        class_code: Four hexadecimal digits (``0302`` 3D controller, ``0300`` VGA, ``0604`` bridge, ``0680`` NVSwitch).
        vendor: ``10de`` is NVIDIA, ``15b3`` Mellanox; ``device`` likewise four digits.
        revision: ``a1``; ``ff`` is how a device that fell off the bus reads.
        driver: Kernel driver bound to it.
        width: Lanes in use, ``width_max`` those it could use. A virtual machine may hide both (0 reads as ``None``).
        speed_gt_s: Rate in use; drops at idle.
        is_acs_redirecting: A bridge whose ``ACSCtl`` has ``SrcValid+``; ``None`` without that capability.
        bar_sizes: Sizes of its memory regions as printed (``64K``, ``32G``), unassigned ones as ``0``.
        is_virtual_function: It is an SR-IOV function (a vGPU or a slice of a network card).
        d3cold_allowed: As sysfs says.
        parents: Addresses of the bridges it hangs on, the nearest last; empty where none is or the listing does not
            tell.
    """

    address: str
    class_code: str
    vendor: str
    device: str
    name: str | None = None
    revision: str | None = None
    driver: str | None = None
    width: int | None = None
    width_max: int | None = None
    speed_gt_s: float | None = None
    speed_max_gt_s: float | None = None
    numa_node: int | None = None
    is_acs_redirecting: bool | None = None
    bar_sizes: tuple[str, ...] = ()
    is_virtual_function: bool | None = None
    power_state: str | None = None
    d3cold_allowed: bool | None = None
    parents: tuple[str, ...] = ()

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA display or 3D controller."""
        return self.vendor == "10de" and self.class_code in ("0300", "0302")

    @property
    def is_nvswitch(self) -> bool:
        """Whether it is an NVSwitch."""
        return self.vendor == "10de" and self.class_code == "0680"


def list_gpu_bridges(devices: Iterable[PciDevice]) -> frozenset[str] | None:
    """Return the addresses of all bridges above GPUs, or ``None`` where it is not told on which a GPU hangs.

    Args:
        devices: What sysfs lists; lspci does not tell it.
    """
    above = [device.parents for device in devices if device.is_nvidia_gpu]
    if not above or not all(above):
        return None
    return frozenset(address for parents in above for address in parents)


def parse_pci_sysfs(text: str) -> tuple[PciDevice, ...]:
    """Read the collector's walk over ``/sys/bus/pci/devices``; the form is described in ``collector.sh``.

    Args:
        text: One device a line, ``key=value`` words between tabs.

    Returns:
        The devices in the order of the listing.

    Raises:
        Unreadable: The text is something else. A machine without PCI devices gives an empty text, and none.
    """
    devices = []
    for line in clean(text).split("\n"):
        if not line.strip():
            continue
        words = [word.partition("=") for word in line.split("\t")]
        if not all(separator for _, separator, _ in words):
            raise Unreadable(f"the list of PCI devices holds `{clean_line(line, 80)}`")
        devices.append(_sysfs_device({key.strip(): value.strip() for key, _, value in words}))
    return tuple(devices)


def _sysfs_device(values: Mapping[str, str]) -> PciDevice:
    address = _ADDRESS.fullmatch(values.get("address", ""))
    numbers = {key: _hexadecimal(values.get(key, "")) for key in ("class", "vendor", "device")}
    if address is None or not all(numbers.values()):
        shown = clean_line(values.get("address", ""), 40)
        raise Unreadable(f"the list of PCI devices does not say what `{shown}` is")
    numa = _number(values.get("numa", ""))
    return PciDevice(
        address=_sysfs_address(address),
        class_code=numbers["class"][:4],
        vendor=numbers["vendor"],
        device=numbers["device"],
        revision=_hexadecimal(values.get("revision", "")) or None,
        driver=clean_line(values.get("driver", ""), 80) or None,
        width=_width(values.get("width", "")),
        width_max=_width(values.get("width_max", "")),
        speed_gt_s=_speed(values.get("speed", "")),
        speed_max_gt_s=_speed(values.get("speed_max", "")),
        numa_node=numa if numa is not None and numa >= 0 else None,
        is_virtual_function=_flag(values.get("is_vf", "")),
        power_state=clean_line(values.get("power_state", ""), 20) or None,
        d3cold_allowed=_flag(values.get("d3cold", "")),
        parents=tuple(
            _sysfs_address(found)
            for word in values.get("parents", "").split(",")[:_PARENTS_MAX]
            if (found := _ADDRESS.fullmatch(word))
        ),
    )


def parse_lspci(text: str) -> tuple[PciDevice, ...]:
    """Read ``lspci`` with ``-nn`` and any number of ``-v``, with or without ``-D``.

    Without ``-nn`` only the classes and makers that matter here are known by their names; of others ``class_code`` or
    ``vendor`` stays empty.

    Args:
        text: What it printed.

    Returns:
        The devices in the order of the listing.

    Raises:
        Unreadable: No line of it begins with a device.
    """
    devices: list[PciDevice] = []
    details: dict[str, Any] = {}
    for line in clean(text).split("\n"):
        if line[:1] in ("\t", " "):
            if devices:
                _read_detail(line, details, is_bridge=devices[-1].class_code.startswith("06"))
            continue
        device = _lspci_device(line)
        if device is not None:
            if devices:
                devices[-1] = replace(devices[-1], **details)
            devices.append(device)
            details = {}
    if not devices:
        raise Unreadable("lspci lists no device")
    devices[-1] = replace(devices[-1], **details)
    return tuple(devices)


def _lspci_device(line: str) -> PciDevice | None:
    head, _, rest = line.partition(" ")
    address = _ADDRESS.fullmatch(head)
    named = _CLASS.match(rest)
    if address is None or named is None:
        return None
    what = rest[named.end() :]
    ids = _IDS.findall(what)
    vendor, device = ids[-1] if ids else _ids_by_name(what)
    revision = _REVISION.search(what)
    name = what.partition(" (rev ")[0].partition(" (prog-if ")[0]
    return PciDevice(
        address=_sysfs_address(address),
        class_code=named[2] or _CLASS_CODES.get(named[1], ""),
        vendor=vendor,
        device=device,
        name=clean_line(name.removesuffix(f" [{vendor}:{device}]"), 120) or None,
        revision=revision[1] if revision else None,
        is_virtual_function=True if "Virtual Function" in name else None,
    )


def _ids_by_name(what: str) -> tuple[str, str]:
    vendor = next((number for name, number in _VENDOR_NAMES.items() if what.startswith(name)), "")
    _, found, rest = what.partition(" Device ")
    number = _hexadecimal(rest[:4]) if found else ""
    return vendor, number if len(number) == 4 else ""


def _read_detail(line: str, details: dict[str, Any], *, is_bridge: bool) -> None:
    said = line.strip()
    if said.startswith("LnkCap:"):
        details.setdefault("speed_max_gt_s", _speed(said))
        details.setdefault("width_max", _lanes(said))
    elif said.startswith("LnkSta:"):
        details.setdefault("speed_gt_s", _speed(said))
        details.setdefault("width", _lanes(said))
    elif said.startswith("ACSCtl:") and is_bridge:
        details["is_acs_redirecting"] = "SrcValid+" in said
    elif said.startswith("NUMA node:"):
        details["numa_node"] = _number(said.removeprefix("NUMA node:").strip())
    elif said.startswith("Kernel driver in use:"):
        details["driver"] = clean_line(said.removeprefix("Kernel driver in use:"), 80) or None
    elif said.startswith("Status: D"):
        power = _POWER.match(said)
        details.setdefault("power_state", power[1] if power else None)
    # Regions of virtual functions stand one step deeper and are not the device's own.
    elif line[:1] == "\t" and line[1:2] not in ("\t", " ") and "Memory at " in said:
        size = _SIZE.search(said)
        at = said.partition("Memory at ")[2]
        if at.startswith(("<unassigned>", "<ignored>")):
            details["bar_sizes"] = (*details.get("bar_sizes", ()), "0")[:8]
        elif size:
            details["bar_sizes"] = (*details.get("bar_sizes", ()), size[1])[:8]


def _sysfs_address(found: re.Match[str]) -> str:
    domain, bus, slot, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}".lower()


def _hexadecimal(word: str) -> str:
    found = _HEXADECIMAL.fullmatch(word.lower())
    return found[1] if found else ""


def _number(word: str) -> int | None:
    return int(word) if _NUMBER.fullmatch(word) else None


def _width(word: str) -> int | None:
    lanes = _number(word)
    return None if lanes is None or lanes < 0 or lanes in _HIDDEN_WIDTHS else lanes


def _lanes(said: str) -> int | None:
    found = _LINK.search(said)
    return _width(found[1]) if found else None


def _speed(said: str) -> float | None:
    found = _SPEED.search(said)
    return float(found[1]) if found else None


def _flag(word: str) -> bool | None:
    return {"yes": True, "1": True, "no": False, "0": False}.get(word)
