"""Logs as programs write them: packed, coloured, with broken bytes."""

from __future__ import annotations

import gzip

import pytest

NUMPY = b"RuntimeError: Numpy is not available\n"


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(NUMPY),
        b"\xff" + NUMPY,
        b"RuntimeError: Nu\x1b[1mmpy is\x1b[0m not available\n",
        b"0%\r50%\r" + NUMPY,
    ],
    ids=["gzip", "byte", "colour", "bar"],
)  # fmt: skip
def test_log_is_read(provision, tmp_path, content: bytes) -> None:
    file = tmp_path / "error.log"
    file.write_bytes(content)
    assert "numpy.abi" in provision("doctor", "--text", file).out


def test_damaged_gzip_and_what_is_no_text_are_refused(provision, tmp_path) -> None:
    file = tmp_path / "error.log"
    file.write_bytes(gzip.compress(NUMPY * 99)[:40])
    assert "is a damaged gzip file" in provision("doctor", "--text", file).err
    file.write_bytes(bytes(range(128, 256)) * 9)
    answer = provision("doctor", "--text", file)
    assert answer.code == 2
    assert "is no text" in answer.err


def test_unknown_text_shows_the_line_that_failed(provision, tmp_path) -> None:
    file = tmp_path / "error.log"
    file.write_text("Traceback (most recent call last):\nzork.MyError: it broke\n")
    answer = provision("doctor", "--text", file)
    assert answer.code == 4
    assert "line 2 most likely failed: zork.MyError: it broke" in answer.err
