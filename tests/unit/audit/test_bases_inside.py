"""What images of a framework hold by the facts: Python, CUDA and cuDNN, and the framework that pip leaves alone."""

from __future__ import annotations

import pytest

from provision.audit.engine import audit
from provision.audit.model import Environment, Finding, Options, Source
from provision.audit.surroundings import complete
from provision.audit.wanted import effective, standing
from provision.matrix.load import Matrix

MATRIX = Matrix()


def stage(text: str) -> Environment:
    document = audit([Source("Dockerfile", text)], lambda name: None, MATRIX, Options()).documents[0]
    return complete(document.environments[-1], MATRIX, Options())


def find(text: str) -> list[Finding]:
    return audit([Source("Dockerfile", text)], lambda name: None, MATRIX, Options()).findings


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("pytorch/pytorch:1.12.0-cuda11.3-cudnn8-devel", "3.7"),
        ("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime", "3.10"),
        ("docker.io/pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", "3.11"),
        ("tensorflow/tensorflow:2.10.0-gpu", "3.8"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "3.10"),
        ("pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", None),
        ("tensorflow/tensorflow:2.1.1-gpu-py3", None),
        ("someone/pytorch:2.0.1-cuda11.7-cudnn8-runtime", None),
    ],
)
def test_the_python_of_an_image_is_known_where_the_facts_have_its_release(image: str, python: str | None) -> None:
    assert stage(f"FROM {image}\nRUN pip install numpy\n").python == python


@pytest.mark.parametrize("line", ["RUN conda install -y python=3.9", "RUN apt-get install -y python3.9"])
def test_another_python_that_is_installed_counts_before_that_of_the_image(line: str) -> None:
    assert stage(f"FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\n{line}\n").python != "3.10"


def test_cuda_and_cudnn_are_told_by_the_tag_and_by_the_table_of_releases() -> None:
    base = stage("FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\n").base
    assert base is not None
    assert (base.cuda, base.cudnn, base.has_cudnn) == ("11.7", "8", True)
    of_ngc = stage("FROM nvcr.io/nvidia/pytorch:26.03-py3\n").base
    assert of_ngc is not None
    assert (of_ngc.cuda, of_ngc.cudnn) == ("13.2.0", "9.20.0.48")


def test_pip_leaves_the_framework_of_the_base_where_the_same_one_is_asked_for() -> None:
    text = "FROM pytorch/pytorch:2.5.1-cuda11.8-cudnn9-runtime\nRUN pip install {}torch==2.5.1{}\n"
    kept = stage(text.format("", ""))
    assert effective(kept, MATRIX, "torch") is None
    assert getattr(standing(kept, MATRIX, "torch"), "variant", None) == "cu118"
    for before, behind in (("--upgrade ", ""), ("", "+cu124"), ("--target /opt/x ", "")):
        other = effective(stage(text.format(before, behind)), MATRIX, "torch")
        assert other is not None, (before, behind)
        assert other.requirement.text == f"torch==2.5.1{behind}"


def test_what_stands_for_another_cuda_on_the_index_is_not_held_against_the_base() -> None:
    text = "FROM pytorch/pytorch:2.3.1-cuda11.8-cudnn8-runtime\nRUN pip install torch==2.3.1 onnxruntime-gpu=={}\n"
    assert [item.rule for item in find(text.format("1.18.0")) if item.rule == "C09"] == []
    replaced = text.format("1.18.0").replace("pip install", "pip install --upgrade")
    assert [item.rule for item in find(replaced) if item.rule == "C09"] == ["C09"]


def test_a_release_without_a_wheel_for_the_python_of_the_image_is_an_error() -> None:
    found = find("FROM tensorflow/tensorflow:2.10.0-gpu\nRUN pip install torch==2.6.0\n")
    assert any("3.8" in item.message and item.severity == "error" for item in found)
