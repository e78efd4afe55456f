"""The collector's answer: whole, cut at every byte, garbled, forged, oversized."""

from __future__ import annotations

import gzip
import zlib

import pytest

from provision.probe import stream
from provision.probe.collect import read_answer
from provision.probe.compose import CollectOptions
from provision.probe.output import Output, Unreadable
from provision.probe.stream import StreamError, decode_stream

NONCE = "0123456789abcdef"
RECORDS = [
    ("uname", "ok", "0", 12, b"Linux 6 x86_64\n", b""),
    ("nvidia-smi-xml", "failed", "9", 1500, b"half\n@record of nobody\n", b"why\n"),
    ("torch", "hung", "-", 60000, b"", b""),
]
OUTPUTS = (
    Output(probe="uname", status="ok", code=0, seconds=0.012, text="Linux 6 x86_64\n"),
    Output(
        probe="nvidia-smi-xml", status="failed", code=9, seconds=1.5, text="half\n@record of nobody\n", error="why\n"
    ),
    Output(probe="torch", status="hung", code=None, seconds=60.0),
)


def body_of(records=RECORDS, nonce: str = NONCE, count: int | None = None) -> bytes:
    parts = []
    for probe, status, code, milliseconds, text, error in records:
        header = f"@record {nonce} {probe} {status} {code} {milliseconds} {len(text)} {len(error)}\n"
        parts += [header.encode(), text, error, b"\n"]
    parts.append(f"@end {nonce} {len(records) if count is None else count}\n".encode())
    return b"".join(parts)


def header_of(form: str, version: str = "1", nonce: str = NONCE) -> bytes:
    return f"@provision-collector {nonce} {version} {form}\n".encode()


def plain(**options) -> bytes:
    return header_of("plain") + body_of(**options)


def packed(body: bytes | None = None) -> bytes:
    return header_of("gzip") + gzip.compress(body_of() if body is None else body, mtime=0)


@pytest.mark.parametrize("data", [plain(), packed()], ids=["plain", "gzip"])
def test_whole_answers_are_read(data: bytes) -> None:
    assert decode_stream(data, NONCE) == OUTPUTS


@pytest.mark.parametrize("data", [plain(), packed()], ids=["plain", "gzip"])
def test_what_stands_around_the_answer_is_skipped(data: bytes) -> None:
    around = b"Welcome!\n@provision-collector other 1 plain\n\x00\xff" + data + b"logout\n@record\n"
    assert decode_stream(around, NONCE) == OUTPUTS


def test_every_cut_keeps_the_whole_records_before_it() -> None:
    data = plain()
    ends = [len(header_of("plain")) + len(body_of(RECORDS[:number])) - len(f"@end {NONCE} 0\n") for number in range(4)]
    for length in range(len(data)):
        with pytest.raises(StreamError) as caught:
            decode_stream(data[:length], NONCE)
        whole = sum(1 for end in ends[1:] if length >= end)
        assert caught.value.outputs == OUTPUTS[:whole], length


def test_every_cut_of_a_packed_answer_is_an_error() -> None:
    data = packed()
    # The last eight bytes are gzip's own check, behind all records.
    for length in range(len(data) - 16):
        with pytest.raises(StreamError) as caught:
            decode_stream(data[:length], NONCE)
        assert caught.value.outputs == OUTPUTS[: len(caught.value.outputs)]


def test_no_damaged_byte_raises_anything_else() -> None:
    for data in (plain(), packed()):
        for position in range(len(data)):
            damaged = data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]
            try:
                outputs = decode_stream(damaged, NONCE)
            except StreamError as error:
                outputs = error.outputs
            assert len(outputs) <= len(OUTPUTS)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"sh: not found\n", id="no-shell"),
        pytest.param(plain(nonce="fedcba9876543210"), id="another-call"),
        pytest.param(header_of("plain", version="2") + body_of(), id="another-version"),
        pytest.param(header_of("zstd") + body_of(), id="another-packing"),
        pytest.param(header_of("gzip") + body_of(), id="not-packed"),
        pytest.param(plain(count=4), id="too-few-records"),
        pytest.param(plain(count=2), id="too-many-records"),
        pytest.param(plain(records=[RECORDS[0], RECORDS[0]]), id="twice"),
        pytest.param(plain(records=[("uname", "fine", "0", 1, b"", b"")]), id="unknown-status"),
        pytest.param(plain(records=[("u/../name", "ok", "0", 1, b"", b"")]), id="bad-name"),
        pytest.param(plain(records=[("uname", "ok", "x", 1, b"", b"")]), id="bad-code"),
        pytest.param(plain(records=[("uname", "ok", "0", -1, b"", b"")]), id="negative-time"),
        pytest.param(plain().replace(b" 15 0\n", b" 99999999999 0\n"), id="beyond-the-end"),
        pytest.param(plain().replace(b" 15 0\n", b" 14 0\n"), id="too-short"),
        pytest.param(plain().replace(b"x86_64\n\n@record", b"x86_64\nX@record"), id="no-line-end"),
        pytest.param(plain().replace(b" 15 0\n", b" " + b"9" * 5000 + b" 0\n"), id="endless-number"),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(StreamError):
        decode_stream(data, NONCE)


def test_a_refusal_repeats_what_the_target_said() -> None:
    with pytest.raises(StreamError, match="Permission denied"):
        decode_stream(b"Permission denied\n", NONCE)


def test_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BYTES_MAX", 1 << 16)
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(8)]) + packer.flush()
    with pytest.raises(StreamError, match="too large"):
        decode_stream(header_of("gzip") + bomb, NONCE)
    with pytest.raises(StreamError, match="too large"):
        decode_stream(header_of("plain") + bytes(1 << 17), NONCE)


def test_bytes_become_text_without_escapes_and_secrets() -> None:
    dirty = b"ok \x1b[31mred\x1b[0m\x1b]0;title\x07 \xff\xfe end\ntoken=ghp_" + b"a" * 36 + b"\n"
    output = decode_stream(plain(records=[("uname", "ok", "0", 1, dirty, dirty)]), NONCE)[0]
    for text in (output.text, output.error):
        assert "\x1b" not in text
        assert "ok red" in text
        assert "�" in text
        assert "ghp_" not in text


@pytest.mark.parametrize("count", [1, 2])
def test_what_an_answer_that_breaks_off_lacks_is_lost_and_not_hung(count: int) -> None:
    names = ("uname", "nvidia-smi-xml", "torch")
    cut = header_of("plain") + body_of(RECORDS[:count]).removesuffix(f"@end {NONCE} {count}\n".encode())
    host = read_answer("gpu001", cut, CollectOptions(nonce=NONCE, probes=names))
    assert [host.output(name) for name in names[:count]] == list(OUTPUTS[:count])
    for name in names[count:]:
        assert (host.output(name).status, host.output(name).text) == ("lost", "")
        with pytest.raises(Unreadable, match="ended before it"):
            host.text(name)
