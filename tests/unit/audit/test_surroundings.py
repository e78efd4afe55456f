from __future__ import annotations

import pytest

from provision.audit.dockerfile import parse_dockerfile
from provision.audit.model import Environment, Options, Source
from provision.audit.surroundings import complete
from provision.matrix.load import Matrix

MATRIX = Matrix()
APT = "RUN apt-get update && apt-get install -y"


def last(text: str, options: Options | None = None) -> Environment:
    stage = parse_dockerfile(Source("Dockerfile", text), lambda _: None).stages[-1]
    return complete(stage, MATRIX, options or Options())


@pytest.mark.parametrize(
    ("image", "system", "cuda", "flavour"),
    [
        ("nvidia/cuda:11.8.0-base-ubuntu22.04", "ubuntu22.04", "11.8.0", "base"),
        ("nvcr.io/nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04", "ubuntu22.04", "12.1.1", "devel"),
        ("nvidia/cuda:99.1.0-runtime-ubuntu22.04", "ubuntu22.04", "99.1.0", "runtime"),
        ("nvidia/cuda:latest", None, None, ""),
        ("ubuntu:22.04", "ubuntu22.04", None, ""),
        ("debian:bookworm-slim", "debian12", None, ""),
        ("debian:12", "debian12", None, ""),
        ("docker.io/library/debian:12", "debian12", None, ""),
        ("index.docker.io/nvidia/cuda:11.8.0-base-ubuntu22.04", "ubuntu22.04", "11.8.0", "base"),
        ("python:3.11-slim-bookworm", "debian12", None, "slim"),
        ("python:3.11", None, None, "full"),
        ("pytorch/pytorch:2.1.0-cuda11.8-cudnn8-devel", None, "11.8", "devel"),
        ("registry.example/a:1", None, None, ""),
    ],
)
def test_a_tag_tells_the_system_and_the_toolkit(image: str, system: str | None, cuda: str | None, flavour: str) -> None:
    found = last(f"FROM {image}\n")
    assert found.base is not None
    assert (found.os, found.base.cuda, found.base.flavour) == (system, cuda, flavour)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("FROM python:3.10-slim\n", "3.10"),
        ("FROM python:3.10.13\n", "3.10"),
        ("FROM python:3-slim\n", None),
        (f"FROM ubuntu:22.04\n{APT} python3-pip\n", "3.10"),
        (f"FROM ubuntu:22.04\n{APT} python3.11 python3-pip\n", None),
        (f"FROM ubuntu:22.04\n{APT} python3.11\nRUN ln -sf /usr/bin/python3.11 /usr/bin/python\n", "3.11"),
        (f"FROM ubuntu:22.04\n{APT} python3.11\nRUN python3.11 -m pip install x\n", "3.11"),
        (f"FROM ubuntu:22.04\n{APT} python3-pip\nRUN ./setup.sh\n", None),
        ("FROM ubuntu:22.04\n", None),
        ("FROM ubuntu:22.04\nRUN uv venv --python 3.12 /v\n", "3.12"),
        ("FROM python:3.10\nRUN uv venv --python 3.12 /v\n", "3.12"),
        ("FROM x\nRUN conda create -y python=3.9 pytorch\n", "3.9"),
        ("FROM x\nENV UV_PYTHON=3.13\n", "3.13"),
    ],
)
def test_the_python_in_force_is_told_or_unknown(text: str, python: str | None) -> None:
    assert last(text).python == python


def test_a_python_of_the_person_fills_what_is_unknown_only() -> None:
    options = Options(python="3.9")
    assert last("FROM x\n", options).python == "3.9"
    assert last("FROM python:3.12\n", options).python == "3.12"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\n", True),
        ("FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\n", False),
        ("FROM python:3.11-slim\nRUN pip install torch\n", False),
        (f"FROM ubuntu:22.04\n{APT} nvidia-cuda-toolkit\n", True),
        (f"FROM ubuntu:22.04\n{APT} cuda-toolkit-12-1\n", True),
        ("FROM python:3.11-slim\nRUN ./install.sh\n", None),
        ("FROM registry.example/a\n", None),
        ("FROM a AS b\nFROM python:3.11-slim\nCOPY --from=b /usr/local/cuda /usr/local/cuda\n", None),
        ("FROM a AS b\nFROM python:3.11-slim\nCOPY --from=b /usr/local /usr/local\n", None),
        ("FROM a AS b\nFROM python:3.11-slim\nCOPY --from=b /app /app\n", False),
        ("FROM python:3.11-slim\nRUN conda install -y cuda-nvcc\n", True),
    ],
)
def test_nvcc_is_there_absent_or_unknown(text: str, expected: bool | None) -> None:
    assert last(text).has_nvcc is expected


@pytest.mark.parametrize(
    ("marker", "platforms", "applies"),
    [
        ("sys_platform == 'linux'", (), True),
        ("sys_platform == 'win32'", (), False),
        ("platform_machine == 'x86_64'", (), None),
        ("platform_machine == 'x86_64'", ("linux/arm64",), False),
        ("python_version < '3.11'", (), True),
        ("python_version >= '3.11'", (), False),
        ("extra == 'x'", (), False),
    ],
)
def test_a_marker_is_decided_where_it_can_be(marker: str, platforms: tuple[str, ...], applies: bool | None) -> None:
    text = f'FROM python:3.10\nRUN pip install "torch ; {marker}"\n'
    (requirement,) = last(text, Options(platforms=platforms)).installs[0].requirements
    assert requirement.applies is applies


def test_a_marker_of_an_unknown_python_stays_open() -> None:
    (requirement,) = last("FROM x\nRUN pip install \"torch ; python_version < '3.11'\"\n").installs[0].requirements
    assert requirement.applies is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n", True),
        ("FROM a\nRUN pip install torch\n", True),
        ("FROM a\nRUN pip install torch --index-url https://x/whl/cpu\n", False),
        ("FROM a\nRUN pip install flask\n", False),
    ],
)
def test_an_environment_for_gpus_is_told_from_others(text: str, expected: bool) -> None:
    assert last(text).is_gpu is expected
