"""``nvidia-smi topo -m`` and ``topo -p2p``: how GPUs and network cards reach each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import NOTHING, record

_DEVICE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}", re.ASCII)
_WORD: Final = re.compile(r"[A-Z][A-Z0-9/]{0,9}", re.ASCII)
_NIC: Final = re.compile(r"(NIC[0-9]{1,4}): +(\S{1,64})", re.ASCII)
_DEVICES_MAX: Final = 512
"""More devices than any machine has; the matrix grows with their square."""


@record
class Topology:
    """Devices in order (``GPU0``, ``NIC0``), and what joins each pair.

    Attributes:
        devices: As named in the heading row.
        links: (row, column) → the word in that cell: ``NV18``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS`` for ``-m``;
            ``OK``, ``CNS``, ``GNS``, ``TNS``, ``NS``, ``U`` for ``-p2p``. The cell of a device with itself is left out.
        affinity: Device → columns behind the matrix by heading (``NUMA Affinity`` → ``0``).
        names: Legend of network cards (``NIC0`` → ``mlx5_0``).
    """

    devices: tuple[str, ...]
    links: Mapping[tuple[str, str], str] = NOTHING
    affinity: Mapping[str, Mapping[str, str]] = NOTHING
    names: Mapping[str, str] = NOTHING


def parse_topology(text: str) -> Topology:
    """Read either table; escape sequences in it are dropped.

    Args:
        text: What nvidia-smi printed.

    Returns:
        The matrix, without its diagonal.

    Raises:
        Unreadable: There is no heading row, a row is short or missing, or the text ends inside the table.
    """
    lines = clean(text).split("\n")
    start = next((place for place, line in enumerate(lines) if _is_heading(line)), None)
    if start is None:
        raise Unreadable("nvidia-smi topo printed no table")
    columns = [cell.strip() for cell in lines[start].split("\t")[1:]]
    devices = _take_devices(columns)
    headings = [cell for cell in columns[len(devices) :] if cell]
    known = frozenset(devices)
    links: dict[tuple[str, str], str] = {}
    affinity: dict[str, Mapping[str, str]] = {}
    seen: set[str] = set()
    names: dict[str, str] = {}
    for place, line in enumerate(lines[start + 1 :], start + 1):
        cells = [cell.strip() for cell in line.split("\t")]
        row = cells[0]
        if row in known and len(cells) > 1:
            # The last piece has no line end behind it: it was cut, and its last word may be shorter than it was.
            if row in seen or place == len(lines) - 1:
                raise Unreadable(f"the table of nvidia-smi topo ends or repeats at {row}")
            seen.add(row)
            links.update(_read_row(row, cells[1 : len(devices) + 1], devices))
            affinity[row] = _read_affinity(cells[len(devices) + 1 :], headings)
        elif nic := _NIC.fullmatch(line.strip()):
            names[nic[1]] = clean_line(nic[2])
    missing = [device for device in devices if device not in seen]
    if missing:
        raise Unreadable(f"the table of nvidia-smi topo has no row of {missing[0]}")
    return Topology(devices=devices, links=links, affinity=affinity, names=names)


def _is_heading(line: str) -> bool:
    first, tab, rest = line.partition("\t")
    return bool(tab) and not first.strip() and rest.lstrip().startswith("GPU")


def _take_devices(columns: Sequence[str]) -> tuple[str, ...]:
    devices: list[str] = []
    for cell in columns:
        # Headings behind the matrix have a space in them, and the p2p table ends with an empty cell.
        if not _DEVICE.fullmatch(cell):
            break
        devices.append(cell)
    if not devices or len(devices) > _DEVICES_MAX or len(set(devices)) != len(devices):
        raise Unreadable("the heading of nvidia-smi topo names no devices, or one twice")
    return tuple(devices)


def _read_row(row: str, cells: Sequence[str], devices: Sequence[str]) -> dict[tuple[str, str], str]:
    if len(cells) < len(devices) or not all(_WORD.fullmatch(cell) for cell in cells):
        raise Unreadable(f"the row of {row} in the table of nvidia-smi topo is incomplete")
    return {(row, column): cell for column, cell in zip(devices, cells, strict=True) if column != row}


def _read_affinity(cells: Sequence[str], headings: Sequence[str]) -> Mapping[str, str]:
    # nvidia-smi sets two tabs before the last column, so empty cells only count where none is left over.
    filled = [cell for cell in cells if cell]
    values = filled if len(filled) == len(headings) else cells
    return {heading: clean_line(value, 80) for heading, value in zip(headings, values, strict=False) if value}
