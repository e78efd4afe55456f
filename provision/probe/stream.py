"""The wire format of the collector, described in ``collector.sh``: bytes in, outputs out.

Every length is announced and every line carries the nonce of its call, so that no output can pass for a record. What
a shell says before the first line, a greeting for instance, is skipped; so is what follows the last one.
"""

from __future__ import annotations

import re
import zlib

from provision.probe.clean import clean
from provision.probe.output import STATUSES, Output

BYTES_MAX = 64 * 1024 * 1024
"""More than any collector prints; a stream that unpacks to more is refused."""

_VERSION = "1"
_LINE_MAX = 400
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_NUMBER = re.compile(r"[0-9]{1,12}")


class StreamError(Exception):
    """A stream that is not whole.

    Args:
        reason: One sentence without a full stop.
        outputs: The records before the place where it breaks off.
    """

    def __init__(self, reason: str, outputs: tuple[Output, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outputs = outputs


def decode_stream(data: bytes, nonce: str) -> tuple[Output, ...]:
    """Return what the probes brought, in the order of the stream, without escapes and secrets.

    Args:
        data: Standard output of the collector, as bytes.
        nonce: The one it was composed with.

    Raises:
        StreamError: No stream of this call is in it, it is cut short or garbled, or it is larger than `BYTES_MAX`.
    """
    body = _body_of(data, nonce)
    outputs: list[Output] = []
    seen: set[str] = set()
    position = 0
    while True:
        end = body.find(b"\n", position, position + _LINE_MAX)
        if end < 0:
            raise StreamError("the collector's answer breaks off", tuple(outputs))
        words = body[position:end].decode("ascii", "replace").split(" ")
        if words[:2] == ["@end", nonce]:
            if words[2:] != [str(len(outputs))]:
                raise StreamError("the collector's answer lacks records", tuple(outputs))
            return tuple(outputs)
        header = _header_of(words, nonce)
        if header is None or header[0] in seen:
            raise StreamError("the collector's answer is garbled", tuple(outputs))
        probe, status, code, milliseconds, size, error_size = header
        start, position = end + 1, end + 1 + size + error_size + 1
        if position > len(body):
            raise StreamError("the collector's answer breaks off", tuple(outputs))
        if body[position - 1 : position] != b"\n":
            raise StreamError("the collector's answer is garbled", tuple(outputs))
        seen.add(probe)
        outputs.append(
            Output(
                probe=probe,
                status=status,
                code=code,
                seconds=milliseconds / 1000,
                text=_read(body[start : start + size]),
                error=_read(body[start + size : start + size + error_size]),
            )
        )


def _body_of(data: bytes, nonce: str) -> bytes:
    """Return what follows the first line, unpacked."""
    mark = f"@provision-collector {nonce} ".encode()
    start = data.find(mark)
    end = data.find(b"\n", start, start + _LINE_MAX) if start >= 0 else -1
    if end < 0:
        said = _read(data[:4096]).strip()
        first = said.splitlines()[0][:200] if said else ""
        raise StreamError(f"the collector did not answer{': ' if first else ''}{first}")
    words = data[start:end].decode("ascii", "replace").rstrip("\r").split(" ")
    if words[2] != _VERSION:
        raise StreamError("the collector answered in a form that is not known here")
    body = data[end + 1 :]
    if words[3:] == ["plain"]:
        if len(body) > BYTES_MAX:
            raise StreamError("the collector's answer is too large")
        return body
    if words[3:] == ["gzip"]:
        return _unpack(body)
    raise StreamError("the collector answered in a form that is not known here")


def _unpack(packed: bytes) -> bytes:
    # What was unpacked before a fault is kept: its whole records are worth having. The input goes in by slices,
    # so that a fault costs no more than the slice it lies in.
    unpacker = zlib.decompressobj(wbits=31)
    body = bytearray()
    for start in range(0, len(packed), 4096):
        try:
            body += unpacker.decompress(packed[start : start + 4096], BYTES_MAX + 1 - len(body))
        except zlib.error:
            break
        if len(body) > BYTES_MAX:
            raise StreamError("the collector's answer is too large")
        if unpacker.eof:
            break
    return bytes(body)


def _header_of(words: list[str], nonce: str) -> tuple[str, str, int | None, int, int, int] | None:
    if len(words) != 8 or words[:2] != ["@record", nonce] or not _WORD.fullmatch(words[2]) or words[3] not in STATUSES:
        return None
    if words[4] != "-" and not _NUMBER.fullmatch(words[4]):
        return None
    if not all(_NUMBER.fullmatch(word) for word in words[5:]):
        return None
    code = None if words[4] == "-" else int(words[4])
    return words[2], words[3], code, int(words[5]), int(words[6]), int(words[7])


def _read(data: bytes) -> str:
    # Most probes have nothing to complain about, and a fleet has many probes.
    if not data:
        return ""
    from provision.probe.redact import redact

    return redact(clean(data.decode("utf-8", "replace")))
