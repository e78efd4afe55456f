"""Names of errors that CUDA's libraries document: each is told by a diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.matrix.load import Matrix

MATRIX = Matrix()

NAMES = (Path(__file__).parent / "error_names.txt").read_text(encoding="utf-8").splitlines()
"""As the documentation of each library spells them, and the sentences of CUDA's runtime."""


def is_told(line: str) -> bool:
    case = Case(MATRIX, texts=[("pasted", line)])
    report = diagnose(case)
    return bool(report.causes or report.notes)


@pytest.mark.parametrize("name", NAMES)
def test_documented_error_is_told(name: str) -> None:
    assert is_told(name)


def test_a_name_that_nobody_documents_is_not_told() -> None:
    assert not is_told("CUDA_ERROR_OF_THE_SEVENTH_KIND")


@pytest.mark.parametrize("code", [row.code for row in MATRIX.rows("xid.toml", "xid")])
def test_documented_xid_is_told(code: int) -> None:
    assert is_told(f"[ 8123.4] NVRM: Xid (PCI:0000:5d:00): {code}, pid=4242, name=python3")
