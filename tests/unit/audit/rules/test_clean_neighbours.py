"""Files that work, one step beside files that do not: a rule that speaks here is wrong."""

from __future__ import annotations

import pytest

from provision.audit.engine import audit
from provision.audit.model import Finding, Options, Source
from provision.matrix.load import Matrix

MATRIX = Matrix()
PY = "FROM python:3.11\n"
OLD = "RUN pip install torch==2.1.0"
CU126 = "--index-url https://download.pytorch.org/whl/cu126"


def find(rule: str, text: str) -> list[Finding]:
    found = audit([Source("Dockerfile", text)], lambda name: None, MATRIX, Options()).findings
    return [finding for finding in found if finding.rule == rule]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("N01", f"{PY}RUN pip install tensorflow==2.16.1"),
        ("N01", f"{PY}RUN pip install tensorflow==2.16.2"),
        ("N01", f"{PY}RUN pip install tensorflow==2.17.1"),
        ("N01", "FROM ubuntu:22.04\nRUN pip install tensorflow==2.17.1"),
        ("N01", f"{PY}{OLD} torchvision==0.16.0 numba==0.57.0"),
        ("N01", f"{PY}{OLD} torchvision==0.16.0 langchain==0.1.0"),
        ("N01", f"{PY}{OLD} torchvision==0.16.0 gradio==4.0.0"),
        ("N01", f"{PY}{OLD} numpy numba==0.57.0"),
        ("N01", f"{PY}{OLD} numpy tensorflow==2.15.0"),
        ("N01", f'{PY}{OLD} numpy==2.0.0\nRUN pip install "numpy<2"'),
        ("N01", f'{PY}{OLD} numpy==2.0.0\nRUN pip install "numpy~=1.26"'),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip uninstall -y numpy"),
        ("N01", f"{PY}{OLD} numpy==2.0.0 && pip uninstall -y numpy && pip install 'numpy<2'"),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip install tensorflow==2.15.0"),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip install -U torch"),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip install --force-reinstall torch"),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip uninstall -y torch"),
        ("N01", f"{PY}{OLD} numpy==2.0.0\nRUN pip uninstall -y torch && pip install torch"),
        ("N01", f"{PY}{OLD} numpy\nRUN pip install 'torch>=2.3'"),
        (
            "C03",
            f"{PY}{OLD} torchvision==0.16.0 numpy==1.26.4\nRUN pip install torch==2.2.0 torchvision",
        ),
        ("C03", f'{PY}{OLD} torchvision==0.16.0\nRUN pip install torch==2.2.0\nRUN pip install "torchvision>=0.17"'),
        ("C09", f"{PY}RUN pip install torch==2.6.0 {CU126}\nRUN pip install tensorflow==2.18.0"),
        ("C07", "FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04\nRUN pip install torch==2.2.2 tensorflow==2.15.0"),
    ],
)
def test_what_works_is_left_alone(rule: str, text: str) -> None:
    assert find(rule, text) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("N01", f"{PY}{OLD} torchvision==0.16.0"),
        ("N01", f"{PY}RUN pip install --upgrade pip setuptools wheel\n{OLD} torchvision torchaudio"),
        ("N01", f"{PY}{OLD} numpy"),
        ("N01", f"{PY}{OLD} numpy\nRUN pip install torch"),
        ("N01", f"{PY}{OLD} numpy\nRUN pip install 'torch>=2.0'"),
        ("N01", f"{PY}RUN pip uninstall -y torch\n{OLD} numpy==2.0.0"),
        ("N01", f"{PY}{OLD} numpy==2.0.0"),
        ("N01", f'{PY}{OLD} numpy==2.0.0\nRUN pip install "numpy>1"'),
        ("N01", f"{PY}{OLD} numpy==1.26.4\nRUN pip install -U numpy"),
        ("N01", f"{PY}{OLD} numpy==1.26.4\nRUN pip uninstall -y numpy && pip install numpy"),
        ("C03", f"{PY}{OLD} torchvision==0.16.0\nRUN pip install torch==2.2.0"),
        ("C03", f"{PY}{OLD} torchvision==0.16.0\nRUN pip install torch==2.2.0\nRUN pip install torchvision"),
        ("C09", f"{PY}RUN pip install torch==2.6.0\nRUN pip install tensorflow==2.18.0"),
        ("C07", "FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04\nRUN pip install tensorflow==2.15.0"),
        (
            "C07",
            "FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04\n"
            "RUN pip install torch==2.2.2 --index-url https://download.pytorch.org/whl/cpu\n"
            "RUN pip install tensorflow==2.15.0",
        ),
    ],
)
def test_what_fails_beside_it_is_still_found(rule: str, text: str) -> None:
    assert [finding.rule for finding in find(rule, text)] == [rule]


@pytest.mark.parametrize(
    "text",
    [
        f'{PY}{OLD} torchvision==0.16.0 "numpy<2"\nRUN pip install torch==2.2.0',
        f"FROM python:3.11 AS b\n{OLD} torchvision==0.16.0\nFROM b\nRUN pip install torch==2.0.1",
        "FROM python:3.11 AS b\nRUN pip install torchvision==0.16.0\nFROM b\nRUN pip install torch==2.0.1",
    ],
)
def test_a_companion_is_not_changed_where_its_own_install_would_break(text: str) -> None:
    (finding,) = find("C03", text)
    assert finding.edits == ()


def test_an_argument_that_a_compose_file_takes_from_outside_is_not_the_default_of_the_dockerfile() -> None:
    files = {
        "Dockerfile": "FROM python:3.11\nARG T=2.2.0\nRUN pip install torch==${T} torchvision==0.16.0\n",
        "compose.yaml": "services:\n  a:\n    build:\n      context: .\n      args:\n        T: ARGUMENT\n",
    }

    def rules(argument: str) -> list[str]:
        sources = {name: Source(name, text.replace("ARGUMENT", argument)) for name, text in files.items()}
        found = audit([sources["compose.yaml"]], sources.get, MATRIX, Options()).findings
        return [finding.rule for finding in found if finding.rule == "C03"]

    assert rules('"2.2.0"') == ["C03"]
    assert rules('"${TV:-2.2.0}"') == ["C03"]
    assert rules('"${TV}"') == []
    assert rules("") == []
