"""Which files `provision check` finds in a folder, how it reads them, and what a fix leaves of a file as it is."""

from __future__ import annotations

import codecs
import json
import os
import re
from pathlib import Path

import pytest

from provision.cli.main import main

FROM = "FROM python:3.11-slim-bookworm\n"
BAD = "torch==2.2.2\nnumpy==2.1.0\n"
CONDA = """name: a
channels: [conda-forge]
dependencies:
  - python=3.11
  - pip:
      - torch==2.1.2
      - numpy==2.1.0
"""
TREE = {
    "Dockerfile": FROM,
    "docker/gpu": FROM,
    "docker/train/cuda12": f"# GPU\n{FROM}",
    "docker/entrypoint": "#!/bin/sh\nexec true\n",
    "docker/train.docker": FROM,
    "gpu.Dockerfile": FROM,
    "Containerfile": FROM,
    ".devcontainer/Dockerfile": FROM,
    "requirements/base.txt": "numpy\n",
    "requirements/gpu/train.in": "numpy\n",
    "requirements-dev.in": "numpy\n",
    "docs/notes.txt": "numpy\n",
    "docs/build-in-dockerfile.md": "This is how.\n",
    "deploy/in-dockerfile-deployment.yml": "a: 1\n",
    "templates/Dockerfile.j2": "FROM {{ base }}\n",
    "env/gpu.yml": CONDA,
    "env/values.yml": "a: 1\n",
    "environment310.yml": CONDA,
    "environments.yml": "production:\n  a: 1\n",
    "Pipfile": "[packages]\nnumpy = '*'\n",
    "pixi.toml": "[workspace]\nchannels = ['conda-forge']\n[dependencies]\npython = '3.11.*'\n",
    "setup.cfg": "[options]\ninstall_requires =\n    numpy\n",
    "setup.py": "from setuptools import setup\nsetup(install_requires=['numpy'])\n",
    "compose.gpu.yml": "services: {}\n",
    ".git/Dockerfile": FROM,
    ".venv/lib/requirements.txt": "numpy\n",
    "node_modules/a/Dockerfile": FROM,
    "lib/site-packages/a/requirements.txt": "numpy\n",
    "my-env/pyvenv.cfg": "",
    "my-env/requirements.txt": "numpy\n",
    "miniconda/conda-meta/history": "",
    "miniconda/requirements.txt": "numpy\n",
}
FOUND = """
.devcontainer/Dockerfile Containerfile Dockerfile Pipfile compose.gpu.yml docker/gpu docker/train.docker
docker/train/cuda12 env/gpu.yml environment310.yml gpu.Dockerfile pixi.toml requirements-dev.in requirements/base.txt
requirements/gpu/train.in setup.cfg setup.py
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    out, err = capsys.readouterr()
    return code, out, err


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    _, out, _ = run(capsys, "--json", *words)
    return sorted(item["file"] for item in json.loads(out)["result"]["files"])


def rules(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, str]]:
    _, out, _ = run(capsys, "--json", *words)
    return sorted({(item["file"], item["rule"]) for item in json.loads(out)["result"]["findings"]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_folder_is_searched_for_what_asks_for_packages_and_not_for_what_others_put_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, TREE)
    assert checked(capsys, ".") == FOUND.split()


def test_a_search_from_inside_a_folder_finds_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, TREE)
    monkeypatch.chdir(folder / "requirements")
    assert checked(capsys, ".") == ["base.txt", "gpu/train.in"]


def test_pipes_and_dead_links_are_passed_by(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, {"Dockerfile": FROM})
    os.mkfifo(folder / "requirements.txt")
    (folder / "docker").mkdir()
    os.mkfifo(folder / "docker" / "gpu")
    (folder / "pyproject.toml").symlink_to(folder / "missing.toml")
    assert checked(capsys, ".") == ["Dockerfile"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Pipfile", "[packages]\ntorch = '==2.1.2'\nnumpy = '==2.1.0'\n"),
        (
            "setup.py",
            "from setuptools import setup\nsetup(\n    install_requires=[\n        'torch==2.1.2',\n'numpy==2.1.0'])\n",
        ),
        ("setup.py", "from setuptools import setup\nsetup(extras_require={'gpu': ['torch==2.1.2', 'numpy==2.1.0']})\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch==2.1.2\n    numpy==2.1.0\n"),
        ("setup.cfg", "[options]\ninstall_requires = file: pins.txt\n"),
        (
            "pixi.toml",
            "[workspace]\nchannels = ['conda-forge']\n[dependencies]\npython = '3.11.*'\n"
            "[pypi-dependencies]\ntorch = '==2.1.2'\nnumpy = '==2.1.0'\n",
        ),
        ("env/gpu.yml", CONDA),
    ],
)
def test_a_fault_in_each_kind_of_file_is_found(
    name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, {name: text, "pins.txt": BAD})
    assert "N01" in [rule for _, rule in rules(capsys, ".", "--select", "N01")]
    put(folder, {name: text.replace("2.1.0", "1.26.4"), "pins.txt": BAD.replace("2.1.0", "1.26.4")})
    assert rules(capsys, ".", "--select", "N01") == []


def test_a_finding_in_a_setup_script_points_at_the_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        "# numpy==2.1.0",
        "from setuptools import setup",
        "setup(install_requires=['torch==2.1.2', 'numpy==2.1.0'])",
    )
    put(folder, {"setup.py": "\n".join(lines)})
    _, out, _ = run(capsys, "setup.py", "--select", "N01")
    assert out.startswith("setup.py:3:42: error[N01]")


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["requirements.txt", "Dockerfile"])
def test_a_fix_keeps_encoding_mark_and_line_ends(
    mark: bytes, encoding: str, ends: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "torch==2.1.2+cu118"
    before = (
        f"# é{ends}{line}{ends}"
        if name == "requirements.txt"
        else f"FROM python:3.11{ends}RUN pip install {line}{ends}"
    )
    (folder / name).write_bytes(mark + before.encode(encoding))
    code, _, err = run(capsys, name, "--select", "C04", "--fix")
    assert (code, f"changed {name}" in err) == (0, True)
    after = (folder / name).read_bytes()
    assert after.startswith(mark)
    text = after.removeprefix(mark).decode(encoding)
    assert "download.pytorch.org" in text
    assert text.count("\r\n") == (text.count("\n") if ends == "\r\n" else 0)


def test_a_file_that_another_one_names_is_read_in_its_encoding(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, {"requirements.txt": "-r pins.txt\n"})
    (folder / "pins.txt").write_bytes(codecs.BOM_UTF16_LE + BAD.encode("utf-16-le"))
    assert rules(capsys, "requirements.txt", "--select", "N01") == [("pins.txt", "N01")]


def test_files_that_lead_to_each_other_are_followed_to_the_last(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, {f"{number}.txt": f"-r {number + 1}.txt\n" for number in range(20)})
    put(folder, {"20.txt": BAD})
    assert rules(capsys, "0.txt", "--select", "N01") == [("20.txt", "N01")]


def test_a_driver_without_a_dot_is_the_newest_of_its_branch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, {"requirements.txt": "torch==2.5.1\n"})
    assert rules(capsys, "requirements.txt", "--driver", "525") == []
    assert rules(capsys, "requirements.txt", "--driver", "525.60.10") == [("requirements.txt", "D01")]
    _, out, _ = run(capsys, "requirements.txt", "--driver", "470", "--fail-on", "never")
    assert "error[D01]" in out
    assert re.search(r"not 470\.[0-9]+\.[0-9]+", out)


def test_a_moving_tag_is_a_note_on_images_that_are_not_for_gpus(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def severity(text: str) -> list[str]:
        put(folder, {"Dockerfile": text})
        _, out, _ = run(capsys, "--json", "Dockerfile", "--select", "B06")
        return [item["severity"] for item in json.loads(out)["result"]["findings"]]

    assert severity("FROM python:latest\nRUN echo\n") == ["info"]
    assert severity("FROM python:latest\nRUN pip install torch\n") == ["warn"]


def test_a_template_that_is_named_and_begins_like_one_is_read_as_a_dockerfile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, {"Dockerfile.in": "FROM nvidia/cuda:9.0-devel-ubuntu16.04\n"})
    assert ("Dockerfile.in", "B01") in rules(capsys, "Dockerfile.in")


def test_an_open_release_is_a_warning_in_an_image_and_a_note_in_a_list(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, {"Dockerfile": f"{FROM}RUN pip install torch\n", "requirements.txt": "torch\n"})
    _, out, _ = run(capsys, "--json", ".", "--select", "C06")
    severities = {item["file"]: item["severity"] for item in json.loads(out)["result"]["findings"]}
    assert severities == {"Dockerfile": "warn", "requirements.txt": "info"}


SERVICE = "services:\n  app:\n    image: nvidia/cuda:12.4.1-runtime-ubuntu22.04\n"
RESERVED = "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}\n"


@pytest.mark.parametrize(
    ("files", "is_found"),
    [
        ({"compose.yaml": SERVICE}, True),
        ({"compose.cpu.yaml": SERVICE}, False),
        ({"docker-compose-cpu.yml": SERVICE}, False),
        ({"compose.yaml": f"{SERVICE}    profiles: [cpu]\n"}, False),
        ({"compose.yaml": f"{SERVICE}    profiles: [gpu]\n"}, True),
        ({"compose.yaml": SERVICE, "compose.gpu.yaml": f"services:\n  app:\n{RESERVED}"}, False),
        ({"compose.yaml": SERVICE, "compose.gpu.yaml": f"services:\n  other:\n{RESERVED}"}, True),
        ({"compose.yaml": SERVICE, "compose.gpu.yaml": ": [\n"}, True),
    ],
)
def test_a_service_for_machines_without_gpus_or_with_an_overlay_reserves_none(
    files: dict[str, str], is_found: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, files)
    first = next(iter(files))
    assert bool(rules(capsys, first, "--select", "R01")) is is_found
