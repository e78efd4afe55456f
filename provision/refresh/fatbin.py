"""Which GPUs the compiled code inside a file is for: the containers that nvcc puts there, read as they pass by."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from provision.matrix.query import capability_of

_MAGIC = b"\x50\xed\x55\xba"
_HEADER = struct.Struct("<HHQ")
"""After the magic: version, bytes of the header, bytes of what follows it."""
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
"""Kind, version, bytes of the header, bytes of the code, then the architecture and the flags."""
_KINDS = {1: "compute_", 2: "sm_"}
_ONE_ONLY, _FAMILY = 1 << 20, 1 << 21
"""Flags of code that runs on one architecture alone (``sm_90a``) and on those of its family (``sm_100f``)."""


class FatbinScanner:
    """Collects the targets of a file that is handed over piece by piece.

    What stands between the headers is passed over and not kept, so a file may be of any size.

    Attributes:
        targets: Cubins (``sm_80``, ``sm_90a``) and PTX (``compute_90``).
        is_whole: Every container was as its kind has to be; otherwise there may be targets that were not seen.
    """

    def __init__(self) -> None:
        self.targets: set[str] = set()
        self.is_whole = True
        self._kept = b""
        self._skip = 0
        self._left = 0

    def feed(self, piece: bytes) -> None:
        """Read on.

        Args:
            piece: What follows in the file.
        """
        data = self._kept + piece if self._kept else piece
        place = 0
        while True:
            if self._skip:
                step = min(self._skip, len(data) - place)
                place, self._skip = place + step, self._skip - step
                if self._skip:
                    self._kept = b""
                    return
            if self._left > 0:
                if len(data) - place < _ENTRY.size:
                    break
                self._read_entry(data, place)
                continue
            found = data.find(_MAGIC, place)
            if found < 0:
                # The magic may begin at the end of this piece.
                place = max(place, len(data) - len(_MAGIC) + 1)
                break
            if len(data) - found < len(_MAGIC) + _HEADER.size:
                place = found
                break
            version, header, size = _HEADER.unpack_from(data, found + len(_MAGIC))
            place = found + len(_MAGIC)
            # The four bytes may stand anywhere; a container begins with its own version and length.
            if version == 1 and header == len(_MAGIC) + _HEADER.size:
                place, self._left = found + header, size
        self._kept = data[place:]

    def _read_entry(self, data: bytes, place: int) -> None:
        kind, _, header, size, architecture, flags = _ENTRY.unpack_from(data, place)
        length = header + size
        is_code = kind in _KINDS
        if header < _ENTRY.size or length > self._left or (is_code and not 10 <= architecture < 1000):
            self.is_whole, self._left = False, 0
            return
        self._skip, self._left = length, self._left - length
        if not is_code:
            # Other kinds are of the linker's use.
            return
        suffix = "a" if flags & _ONE_ONLY else "f" if flags & _FAMILY else ""
        self.targets.add(f"{_KINDS[kind]}{architecture}{suffix}")


def ordered_targets(targets: Iterable[str]) -> list[str]:
    """Return targets as facts list them: cubins before PTX, each from old to new."""
    return sorted(set(targets), key=lambda item: (not item.startswith("sm_"), capability_of(item), item))
