"""What of a framework an environment has at the end: from a wish, from its base, or from conda."""

from __future__ import annotations

import pytest

from provision.audit.documents import parse_document
from provision.audit.engine import audit
from provision.audit.model import Environment, Options, Source
from provision.audit.surroundings import complete
from provision.audit.wanted import standing
from provision.matrix.load import Matrix

MATRIX = Matrix()
PYTORCH = "FROM pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime\n"
CONDA = "name: x\nchannels: [{channels}]\ndependencies:\n  - pytorch={version}\n  - pytorch-cuda=11.8\n"


def environment(name: str, text: str) -> Environment:
    (found,) = parse_document(Source(name, text), {}.get, Options()).environments
    return complete(found, MATRIX, Options())


def torch(name: str, text: str) -> tuple[str | None, str | None] | None:
    wanted = standing(environment(name, text), MATRIX, "torch")
    return None if wanted is None else (wanted.version, wanted.variant)


@pytest.mark.parametrize(
    ("line", "have"),
    [
        ("", ("2.1.0", "cu118")),
        ("RUN pip install 'torch>=2.0' timm\n", ("2.1.0", "cu118")),
        ("RUN pip download torch==2.3.0\n", ("2.1.0", "cu118")),
        ("RUN pip install torch==2.3.0\n", ("2.3.0", None)),
        ("RUN pip install -U torch\n", (None, None)),
        ("RUN uv pip install --system -P torch torch timm\n", (None, None)),
        ("RUN uv pip install --system -P torch==2.3.0 torch\n", ("2.3.0", None)),
        ("RUN uv pip install --system -P timm torch timm\n", ("2.1.0", "cu118")),
        ("RUN pip uninstall -y torch\n", None),
    ],
)
def test_the_torch_of_the_base_stands_until_something_replaces_it(line: str, have: object) -> None:
    assert torch("Dockerfile", PYTORCH + line) == have


@pytest.mark.parametrize(
    ("tag", "frameworks", "is_own_build"),
    [
        ("pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime", {"torch": "2.1.0"}, False),
        ("docker.io/pytorch/pytorch:latest", {"torch": ""}, False),
        ("tensorflow/tensorflow:2.15.0-gpu", {"tensorflow": "2.15.0"}, False),
        ("nvcr.io/nvidia/pytorch:24.05-py3", {"torch": ""}, True),
        ("nvcr.io/nvidia/tensorflow:24.05-tf2-py3", {"tensorflow": ""}, True),
        ("nvcr.io/nvidia/tritonserver:24.05-py3", {}, False),
        ("python:3.11", {}, False),
    ],
)
def test_images_that_come_with_a_framework_are_known(
    tag: str, frameworks: dict[str, str], is_own_build: object
) -> None:
    base = environment("Dockerfile", f"FROM {tag}\n").base
    assert base is not None
    assert (dict(base.frameworks), base.is_own_build) == (frameworks, is_own_build)


@pytest.mark.parametrize(
    ("tag", "cuda", "system"),
    [
        ("nvcr.io/nvidia/pytorch:24.05-py3", "12.4.1", "ubuntu22.04"),
        ("nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "12.8.0", "ubuntu24.04"),
        ("nvcr.io/nvidia/jax:25.04-py3", "12.9.0", "ubuntu24.04"),
        ("nvcr.io/nvidia/pytorch:19.05-py3", None, None),
        ("nvcr.io/nvidia/pytorch:latest", None, None),
    ],
)
def test_the_month_of_an_image_of_nvidia_says_its_cuda_and_system(tag: str, cuda: object, system: object) -> None:
    found = environment("Dockerfile", f"FROM {tag}\n")
    assert found.base is not None
    assert (found.base.cuda, found.os) == (cuda, system)


@pytest.mark.parametrize(
    ("channels", "version", "have"),
    [
        ("pytorch, nvidia", "2.1.0", ("2.1.0", "cu118")),
        ("pytorch, nvidia", "2.1", None),
        ("conda-forge", "2.1.0", ("2.1.0", None)),
    ],
)
def test_pytorch_from_conda_stands_where_its_release_is_named(channels: str, version: str, have: object) -> None:
    assert torch("environment.yml", CONDA.format(channels=channels, version=version)) == have


def test_pip_keeps_what_conda_brought_where_it_is_enough() -> None:
    text = CONDA.format(channels="pytorch, nvidia", version="2.1.0")
    assert torch("environment.yml", f"{text}  - pip:\n    - torch>=2.0\n") == ("2.1.0", "cu118")
    assert torch("environment.yml", f"{text}  - pip:\n    - torch==2.3.0\n") == ("2.3.0", None)


@pytest.mark.parametrize(
    ("tag", "variant"), [("2.15.0-gpu", "system-cuda"), ("2.15.0", None), ("2.15.0-jupyter", None)]
)
def test_a_tensorflow_image_asks_for_a_gpu_only_where_its_tag_says_so(tag: str, variant: str | None) -> None:
    wanted = standing(environment("Dockerfile", f"FROM tensorflow/tensorflow:{tag}\n"), MATRIX, "tensorflow")
    assert wanted is not None
    assert (wanted.version, wanted.variant) == ("2.15.0", variant)


@pytest.mark.parametrize(("extra", "rules"), [("", set()), ("[cuda12]", {"D01"})])
def test_jax_without_an_extra_is_for_no_gpu(extra: str, rules: set[str]) -> None:
    source = Source("Dockerfile", f"FROM python:3.11-slim\nRUN pip install 'jax{extra}==0.4.30'\n")
    report = audit([source], {}.get, MATRIX, Options(driver="450.80.02", gpus=("h100",)))
    assert {item.rule for item in report.findings} & {"D01", "G01"} == rules


@pytest.mark.parametrize(
    ("lines", "is_base"),
    [
        ("RUN python -m venv /v\nENV VIRTUAL_ENV=/v PATH=/v/bin:$PATH\n", False),
        ("RUN python -m venv /v\nENV PATH=/v/bin:$PATH\n", False),
        ("RUN python -m venv /v && . /v/bin/activate\n", False),
        ("RUN uv venv\n", False),
        ("RUN python -m venv --system-site-packages /v\nENV VIRTUAL_ENV=/v\n", True),
        # Its own pip is named by its path, and the one without a path is still the base's.
        ("RUN python -m venv /tools && /tools/bin/pip install poetry\n", True),
        ("RUN apt-get install -y python3-venv\nENV PATH=/x/bin:$PATH\n", True),
    ],
)
def test_a_virtual_environment_has_nothing_of_the_base(lines: str, is_base: bool) -> None:
    source = Source("Dockerfile", f"{PYTORCH}{lines}RUN pip install torchvision==0.15.0 vllm==0.5.0\n")
    assert (torch("Dockerfile", source.text) is not None) is is_base
    found = {item.rule for item in audit([source], {}.get, MATRIX, Options()).findings} & {"B08", "C03", "C10", "C11"}
    assert bool(found) is is_base
