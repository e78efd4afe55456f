"""What an audit says it understood, and what it says it did not judge."""

from __future__ import annotations

import pytest

from provision.audit.engine import audit
from provision.audit.judged import Gap, Judged, describe, left_of, of_releases
from provision.audit.model import Options, Source
from provision.matrix.load import Matrix

MATRIX = Matrix()


def judge(name: str, text: str, **options: str) -> list[Judged]:
    told = Options(python=options.get("python"))
    report = audit([Source(name, text)], lambda name: None, MATRIX, told)
    left = left_of(report.documents[0])
    return [describe(item, MATRIX, told, left) for item in report.environments]


def releases(text: str) -> tuple[Gap, ...]:
    report = audit([Source("requirements.txt", text)], lambda name: None, MATRIX, Options())
    return of_releases(report.environments, MATRIX, [])


def why(gaps: tuple[Gap, ...], what: str) -> str:
    return next((gap.why for gap in gaps if gap.what == what), "")


def test_what_was_understood_names_base_releases_cuda_and_python() -> None:
    (item,) = judge("Dockerfile", "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install jax==0.4.30\n")
    assert dict(item.frameworks) == {"torch": "2.0.1+cu117", "jax": "0.4.30"}
    assert (item.cuda, item.cudnn, item.python) == ("11.7", "8", "3.10")
    for words in ("torch 2.0.1+cu117", "CUDA 11.7", "cuDNN 8", "Python 3.10"):
        assert words in item.understood


def test_an_unknown_python_is_said_and_is_no_gap_where_it_is_told() -> None:
    (item,) = judge("requirements.txt", "torch==2.6.0\n")
    assert "Python unknown" in item.understood
    assert why(item.gaps, "Python")
    assert why(judge("requirements.txt", "torch==2.6.0\n", python="3.11")[0].gaps, "Python") == ""


@pytest.mark.parametrize("name", ["tensorflow-gpu==1.15", "torch==1.1.0", "tensorflow==1.14.0", "jax==0.1.60"])
def test_a_release_without_facts_is_named(name: str) -> None:
    (item,) = judge("requirements.txt", f"{name}\n")
    assert why(item.gaps, name) == "no facts on this release"
    assert [gap.what for gap in releases(f"{name}\n")] == [name]


@pytest.mark.parametrize("name", ["torch==2.6.0", "torch==2.6", "tensorflow==2.16.1", "jax==0.4.30", "einops==0.1"])
def test_a_release_with_facts_or_of_another_package_is_no_gap(name: str) -> None:
    assert releases(f"{name}\n") == ()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-r missing.txt", "-r missing.txt"),
        ("-e .", "-e ."),
        ("./wheels/a.whl", "./wheels/a.whl"),
        ("torch==${VERSION}", "torch==${VERSION}"),
    ],
)
def test_a_line_that_is_not_read_is_named_with_the_reason(line: str, what: str) -> None:
    assert why(judge("requirements.txt", f"numpy\n{line}\n")[0].gaps, what)


@pytest.mark.parametrize(
    ("image", "part"),
    [
        ("example/base:1", "is not in the facts"),
        ("pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", "do not list all tags"),
        ("nvidia/cuda:13.9.0-base-ubuntu24.04", "do not list this tag"),
    ],
)
def test_what_is_not_known_of_a_base_is_said(image: str, part: str) -> None:
    (item,) = judge("Dockerfile", f"FROM {image}\nRUN echo\n")
    assert part in why(item.gaps, image)


def test_a_known_base_and_known_words_leave_nothing_open() -> None:
    (item,) = judge("Dockerfile", "FROM python:3.11-slim-bookworm\nRUN pip install torch==2.6.0\n")
    assert item.gaps == ()
