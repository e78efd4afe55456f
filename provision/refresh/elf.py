"""Which libraries a compiled file asks the loader for."""

from __future__ import annotations

import struct
from typing import BinaryIO

_PROGRAM, _DYNAMIC, _LOAD = struct.Struct("<IIQQQQQQ"), 2, 1
_ENTRY = struct.Struct("<qQ")
_NEEDED, _STRINGS, _STRINGS_SIZE = 1, 5, 10
_TABLE_BYTES_MAX = 16 * 1024 * 1024


def needed_of(file: BinaryIO) -> tuple[str, ...] | None:
    """Return the names of ``DT_NEEDED`` in their order; ``None`` for what is not a whole 64-bit ELF file.

    Args:
        file: The file; what is read of it are its headers, its dynamic section and its table of names.
    """
    head = _read(file, 0, 64)
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return None
    start, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    if size != _PROGRAM.size:
        return None
    table = _read(file, start, size * count)
    if len(table) < size * count:
        return None
    parts = [_PROGRAM.unpack_from(table, size * number) for number in range(count)]
    dynamic = next((part for part in parts if part[0] == _DYNAMIC), None)
    if dynamic is None:
        return ()
    section = _read(file, dynamic[2], min(dynamic[5], _TABLE_BYTES_MAX))
    entries = [_ENTRY.unpack_from(section, place) for place in range(0, len(section) - 15, 16)]
    values = dict(entries)
    # The table of names is told by its address in memory.
    load = next(
        (part for part in parts if part[0] == _LOAD and part[3] <= values.get(_STRINGS, -1) < part[3] + part[5]), None
    )
    if load is None or _STRINGS_SIZE not in values:
        return None
    names = _read(file, values[_STRINGS] - load[3] + load[2], min(values[_STRINGS_SIZE], _TABLE_BYTES_MAX))
    found = []
    for tag, value in entries:
        if tag == 0:
            break
        if tag == _NEEDED:
            end = names.find(b"\0", value)
            if end < 0:
                return None
            found.append(names[value:end].decode("utf-8", "replace"))
    return tuple(found)


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
