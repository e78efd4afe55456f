"""Statuses of CUDA and its libraries: told by name, sentence and number, in the words of any program."""

from __future__ import annotations

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.doctor.status import read_status
from provision.matrix.load import Matrix

MATRIX = Matrix()
ROWS = MATRIX.rows("diagnoses.toml", "api_error")
CUDA = [row for row in ROWS if row.library == "cuda"]


def named(line):
    found = read_status(Case(MATRIX, None, [("text", line + "\n")]))
    return found[0] if found is not None else None


def answered(line):
    report = diagnose(Case(MATRIX, None, [("text", line + "\n")]))
    return [finding.diagnosis.id for finding in (*report.causes, *report.notes)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_status_is_told_by_each_of_its_names(row) -> None:
    same = {other.diagnosis for other in ROWS if set(other.names) & set(row.names)}
    assert row.diagnosis in MATRIX.diagnoses
    assert all(named(f"frob: {name}: no luck") in same for name in row.names)


@pytest.mark.parametrize("row", CUDA, ids=lambda row: row.id)
@pytest.mark.parametrize(
    "form",
    [
        "CUDA error {number} at line 12",
        "cudaGetDeviceCount() failed with error code {number}",
        "CUDA Runtime API error = {number:04} in main.cu",
        "cuInit(0) returned {number}",
        "CUDA failure {number}: of a kind",
    ],
)
def test_number_of_cuda_is_told(row, form) -> None:
    assert named(form.format(number=row.number)) == row.diagnosis


@pytest.mark.parametrize("row", [row for row in CUDA if row.says], ids=lambda row: row.id)
def test_sentence_of_cuda_is_answered(row) -> None:
    assert answered(f"CUDA error: {row.says}")
    assert answered(f"GPUassert: {row.says} main.cu 12")


@pytest.mark.parametrize(
    "line",
    [
        "CUDA 12.1 on 2 GPUs, no failure in 700 steps",
        "the CUDA build returned in 35 s, with code of 2 files",
        "CUDA kernels failed: 2 of 700",
        "exit code 35",
        "batch 700 has no error",
    ],
)
def test_other_numbers_are_left_alone(line) -> None:
    assert named(line) is None


def test_message_that_is_known_comes_before_a_number() -> None:
    assert answered("CUDA error 4 at x.cu") == ["cuda.shutting-down"]
    known = "nvcc fatal   : Unsupported gpu architecture 'compute_89'"
    assert answered(f"CUDA error 4 at x.cu\n{known}") == ["nvcc.arch-unknown"]
