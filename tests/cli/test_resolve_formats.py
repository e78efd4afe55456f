"""`provision resolve --format … --write`: what a project's own tool is told, and what stays as it was."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from provision.generate.fragment import FRAGMENTS

CU118 = ("--torch", "2.6", "--cuda", "11.8")
CU126 = ("--torch", "2.6", "--cuda", "12.6")

PROJECT = """\
# of our own
[project]
name = "train"  # the name
version = "1.0"
requires-python = ">=3.8.1"
dependencies = [
    "timm",  # models
    "torch==1.13.1",  # old
    "torch<2.3; sys_platform == 'darwin' and platform_machine == 'x86_64'",
]

[project.optional-dependencies]
web = ["gradio", "torchvision==0.14.1"]

[tool.ruff]
line-length = 100 # wide

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""

ENVIRONMENT = """\
# of our own
name: train
channels:
- pytorch  # gone upstream
- conda-forge
dependencies:
- python=3.10
- pytorch=2.1   # was conda's
- pytorch-cuda=11.8
- ffmpeg  # for video
- pip
- pip:
  - timm  # models
  - torchvision==0.16.0
variables:
  A: "1"
"""

REQUIREMENTS = """\
# of our own
--extra-index-url https://download.pytorch.org/whl/cu121  # the builds
timm  # models
torch>=1.13 # the framework
torch==2.0.0 ; sys_platform == 'win32'
-e .
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    place = tmp_path / "my project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def _comments(text: str) -> list[str]:
    return sorted(line.partition("#")[2].strip() for line in text.splitlines() if "#" in line)


@pytest.mark.parametrize("form", sorted(FRAGMENTS))
def test_each_form_is_printed_and_written_once(provision, folder, form):
    printed = provision("resolve", *CU118, "--format", form)
    assert printed.code == 0, printed.err
    assert "2.6.0" in printed.out
    assert "whl/cu118" in printed.out
    assert not list(folder.iterdir())
    dry = provision("resolve", *CU118, "--format", form, "--write", "--dry-run")
    assert dry.code == 0
    assert dry.out.startswith("--- ")
    assert not list(folder.iterdir())
    first = provision("resolve", *CU118, "--format", form, "--write")
    assert first.code == 0, first.err
    (file,) = folder.iterdir()
    assert file.name == FRAGMENTS[form][0]
    text = file.read_text()
    again = provision("resolve", *CU118, "--format", form, "--write", "--json")
    assert again.document["result"]["is_changed"] is False
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("form", "name", "text"),
    [
        ("uv", "pyproject.toml", PROJECT),
        ("poetry", "pyproject.toml", PROJECT),
        ("pixi", "pyproject.toml", PROJECT + "\n[tool.pixi.workspace]\nchannels = []\nplatforms = []  # all\n"),
        ("conda", "environment.yml", ENVIRONMENT),
        ("pip", "requirements.txt", REQUIREMENTS),
    ],
)
def test_what_is_the_users_stays_and_a_second_run_changes_nothing(provision, folder, form, name, text):
    file = folder / name
    file.write_text(text)
    file.chmod(0o640)
    answer = provision("resolve", *CU118, "--format", form, "--write", name)
    assert answer.code == 0, answer.err
    after = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    gone = {"was conda's"} if form == "conda" else set()
    assert set(_comments(text)) - gone <= set(_comments(after))
    kept = [line for line in text.splitlines() if len(line) > 2 and line in after.splitlines()]
    assert [line for line in after.splitlines() if line in kept] == kept
    again = provision("resolve", *CU118, "--format", form, "--write", name)
    assert file.read_text() == after
    assert "says this already" in again.out
    assert "became" not in again.err


def test_what_is_new_to_a_project_of_poetry_is_not_told_as_a_change(provision, folder):
    text = '[tool.poetry]\nname = "demo"\nversion = "1"\n[tool.poetry.dependencies]\npython = ">=3.10,<3.12"\n'
    (folder / "pyproject.toml").write_text(text)
    answer = provision("resolve", "--torch", "2.1", "--cuda", "11.8", "--format", "poetry", "--write")
    assert answer.code == 0
    assert "became" not in answer.err
    table = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["poetry"]["dependencies"]
    assert "<82" in table["setuptools"]
    assert table["packaging"] == "*"


@pytest.mark.parametrize(("named", "taken"), [("torchvision", ["torch", "torchvision"]), ("numpy", None)])
def test_a_project_gets_what_it_uses_of_what_is_released_together(provision, folder, named, taken):
    (folder / "pyproject.toml").write_text(f'[project]\nname = "demo"\nversion = "1"\ndependencies = ["{named}"]\n')
    answer = provision("resolve", "--torch", "2.6", "--format", "uv", "--write")
    assert answer.code == 0, answer.err
    lines = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
    names = sorted(re.split("[=<>]", line)[0] for line in lines)
    assert names == (taken or ["numpy", "torch", "torchaudio", "torchvision"])


def test_an_extra_of_the_project_that_uv_needs_is_told(provision, folder):
    extra = '[project.optional-dependencies]\ncpu = ["onnxruntime"]\n'
    (folder / "pyproject.toml").write_text(f'[project]\nname = "demo"\nversion = "1"\n{extra}')
    sentence = "extra cpu, which the project has, takes torch==2.6.0"
    assert sentence in provision("resolve", *CU118, "--format", "uv", "--write").err
    again = provision("resolve", *CU118, "--format", "uv", "--write")
    assert again.code == 0
    assert sentence not in again.err
    extras = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["cpu"][0] == "onnxruntime"


def test_uv_replaces_what_conflicts_and_tells(provision, folder):
    (folder / "pyproject.toml").write_text(PROJECT)
    answer = provision("resolve", *CU118, "--format", "uv", "--write")
    for sentence in (
        'project.dependencies: "torch==1.13.1" became "torch==2.6.0"',
        'extra web: "torchvision==0.14.1" became "torchvision==0.21.0"',
        'project.requires-python: ">=3.8.1" became ">=3.9,<3.14"',
    ):
        assert sentence in answer.err
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["dependencies"][0::2] == [
        "timm",
        "torch<2.3; sys_platform == 'darwin' and platform_machine == 'x86_64'",
    ]
    # Elsewhere the project wants another version, so the stack's is for its platform alone.
    assert project["project"]["optional-dependencies"]["cpu"][0] == "torch==2.6.0 ; sys_platform == 'linux'"
    assert project["tool"]["ruff"] == {"line-length": 100}


def test_uv_leaves_a_range_that_admits_the_version(provision, folder):
    (folder / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\ndependencies = ["torch>=2.1,<3"]\n')
    answer = provision("resolve", *CU118, "--format", "uv", "--write")
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == ["torch>=2.1,<3"]
    assert "torch==2.6.0" in project["tool"]["uv"]["constraint-dependencies"]
    assert "became" not in answer.err


def test_uv_takes_another_stack_in_place_of_the_first(provision, folder):
    provision("resolve", *CU118, "--format", "uv", "--write")
    first = (folder / "pyproject.toml").read_text()
    answer = provision("resolve", *CU126, "--format", "uv", "--write")
    assert "extra cu118 is gone: cu126 takes its place" in answer.err
    assert (folder / "pyproject.toml").read_text() == first.replace("cu118", "cu126")


def test_uv_keeps_an_extra_that_holds_more(provision, folder):
    text = '[project]\nname = "a"\nversion = "1"\n[project.optional-dependencies]\ncu121 = ["torch", "xformers"]\n'
    (folder / "pyproject.toml").write_text(text)
    provision("resolve", *CU118, "--format", "uv", "--write")
    extras = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["cu121"] == ["torch", "xformers"]


def test_uv_takes_the_name_an_index_has_already(provision, folder):
    text = (
        '[project]\nname = "a"\nversion = "1"\n'
        '[[tool.uv.index]]\nname = "ours"\nurl = "https://download.pytorch.org/whl/cu118/"\n'
    )
    (folder / "pyproject.toml").write_text(text)
    provision("resolve", *CU118, "--format", "uv", "--write")
    tool = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["uv"]
    assert tool["index"][0] == {"name": "ours", "url": "https://download.pytorch.org/whl/cu118/", "explicit": True}
    assert tool["sources"]["torch"][1]["index"] == "ours"


def test_a_build_of_the_package_index_needs_no_index_and_no_extra(provision):
    text = provision("resolve", "--torch", "2.6", "--format", "uv").out
    document = tomllib.loads(text)
    assert [row["name"] for row in document["tool"]["uv"]["index"]] == ["pytorch-cpu"]
    assert "torch==2.6.0" in document["project"]["dependencies"]
    jax = tomllib.loads(provision("resolve", "--jax", "0.6", "--format", "uv").out)
    assert "index" not in jax["tool"]["uv"]
    assert jax["project"]["optional-dependencies"] == {"cpu": ["jax==0.6.2"], "cuda12": ["jax[cuda12]==0.6.2"]}
    held = jax["tool"]["uv"]["constraint-dependencies"]
    assert any(line.startswith("nvidia-cudnn-cu12==") for line in held)


def test_hidden_bounds_are_constraints(provision):
    document = tomllib.loads(provision("resolve", "--torch", "2.1", "--format", "uv").out)
    assert "numpy<2" in document["tool"]["uv"]["constraint-dependencies"]
    text = provision("resolve", "--torch", "2.1", "--format", "pip").out
    assert "numpy<2" in text.splitlines()


def test_poetry_chooses_by_one_extra(provision, folder):
    (folder / "pyproject.toml").write_text(PROJECT)
    provision("resolve", *CU118, "--format", "poetry", "--write")
    document = tomllib.loads((folder / "pyproject.toml").read_text())
    assert 'torch==2.6.0; extra != "cu118"' in document["project"]["dependencies"]
    assert document["tool"]["poetry"]["dependencies"]["torch"] == [
        {"markers": "extra != 'cu118'", "source": "pytorch-cpu"},
        {"markers": "extra == 'cu118'", "source": "pytorch-cu118"},
    ]
    assert {row["priority"] for row in document["tool"]["poetry"]["source"]} == {"explicit"}


def test_poetry_of_the_older_form_takes_the_stack_with_cuda(provision, folder):
    text = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\npython = "^3.10" # ours\ntorch = "^2.1" # old\n'
    (folder / "pyproject.toml").write_text(text)
    answer = provision("resolve", *CU118, "--format", "poetry", "--write")
    assert answer.code == 0, answer.err
    after = (folder / "pyproject.toml").read_text()
    table = tomllib.loads(after)["tool"]["poetry"]["dependencies"]
    assert table["torch"] == {"version": "2.6.0", "source": "pytorch-cu118"}
    assert table["python"] == ">=3.10,<3.14"
    assert "# ours" in after
    assert "# old" in after


def test_conda_hands_the_frameworks_to_pip(provision, folder):
    (folder / "environment.yml").write_text(ENVIRONMENT)
    answer = provision("resolve", *CU118, "--format", "conda", "--write")
    document = yaml.safe_load((folder / "environment.yml").read_text())
    assert document["dependencies"] == [
        "python=3.11",
        "ffmpeg",
        "pip",
        {
            "pip": [
                "--extra-index-url https://download.pytorch.org/whl/cu118",
                "timm",
                "torchvision==0.21.0+cu118",
                "torch==2.6.0+cu118",
                "torchaudio==2.6.0+cu118",
                "setuptools",
            ]
        },
    ]
    assert document["variables"] == {"A": "1"}
    assert '"pytorch-cuda=11.8" is gone: pip installs it' in answer.err


def test_conda_without_a_pip_section_gets_one(provision, folder):
    (folder / "environment.yaml").write_text("dependencies:\n  - numpy\n")
    assert provision("resolve", *CU118, "--format", "conda", "--write").code == 0
    document = yaml.safe_load((folder / "environment.yaml").read_text())
    assert document["dependencies"][:3] == ["python=3.11", "numpy", "pip"]
    assert "torch==2.6.0+cu118" in document["dependencies"][3]["pip"]


def test_pip_replaces_lines_in_their_place(provision, folder):
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    answer = provision("resolve", *CU118, "--format", "pip", "--write")
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert lines[:6] == [
        "# of our own",
        "--extra-index-url https://download.pytorch.org/whl/cu118  # the builds",
        "timm  # models",
        "torch==2.6.0+cu118 # the framework",
        "torch==2.0.0 ; sys_platform == 'win32'",
        "-e .",
    ]
    assert 'requirements.txt, line 4: "torch>=1.13" became "torch==2.6.0+cu118"' in answer.err


def test_pixi_has_an_environment_with_and_one_without_cuda(provision, folder):
    (folder / "pixi.toml").write_text(
        '[workspace]\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n'
        '[dependencies]\npytorch-gpu = "*"\n[pypi-dependencies]\ntorch = "*"\n[tasks]\nrun = "a"\n'
    )
    answer = provision("resolve", *CU118, "--format", "pixi", "--write")
    document = tomllib.loads((folder / "pixi.toml").read_text())
    assert document["environments"] == {"cu118": ["cu118"], "cpu": ["cpu"]}
    assert document["feature"]["cu118"]["pypi-dependencies"]["torch"] == {
        "version": "==2.6.0",
        "index": "https://download.pytorch.org/whl/cu118",
    }
    assert document["feature"]["cu118"]["platforms"] == ["linux-64-cuda11"]
    assert document["dependencies"] == {"python": "3.11.*"}
    assert document["pypi-dependencies"] == {}
    assert document["tasks"] == {"run": "a"}
    assert "pytorch-gpu is gone" in answer.err


def test_line_ends_of_another_system_stay(provision, folder):
    (folder / "requirements.txt").write_bytes(b"timm\r\ntorch\r\n")
    provision("resolve", *CU118, "--format", "pip", "--write")
    content = (folder / "requirements.txt").read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n") > 2


@pytest.mark.parametrize(
    ("form", "name", "text", "said"),
    [
        ("uv", "pyproject.toml", "[project\n", "is not TOML"),
        ("uv", "pyproject.toml", '[build-system]\nrequires = ["setuptools"]\n', "no [project] table"),
        ("uv", "pyproject.toml", '[tool.poetry]\nname = "a"\n', "`--format poetry`"),
        (
            "uv",
            "pyproject.toml",
            '[project]\nname = "a"\ndynamic = ["optional-dependencies"]\n',
            "leaves its extras to the build backend",
        ),
        ("uv", "pyproject.toml", 'project = "a"\n', "`project` is not a table"),
        ("uv", "pyproject.toml", '[project]\nname = "a"\ndependencies = "torch"\n', "is not a list"),
        ("poetry", "pyproject.toml", "[build-system]\nrequires = []\n", "neither a [project]"),
        ("conda", "environment.yml", "a: [\n", "is not YAML"),
        ("conda", "environment.yml", "name: a\n", "no list `dependencies`"),
        ("pixi", "pixi.toml", "workspace = 1\n", "`workspace` is not a table"),
    ],
)
def test_a_file_that_cannot_take_it_is_refused_and_left_alone(provision, folder, form, name, text, said):
    (folder / name).write_text(text)
    answer = provision("resolve", *CU118, "--format", form, "--write")
    assert answer.code == 2, answer.out
    assert said in answer.err
    assert (folder / name).read_text() == text


def test_flags_that_mean_nothing_together(provision, folder):
    (folder / "requests.jsonl").write_text("{}\n")
    assert provision("resolve", *CU118, "--write").code == 2
    assert provision("resolve", "--batch", "requests.jsonl", "--format", "uv").code == 2
    answer = provision("resolve", "--cuda", "12.4", "--format", "uv")
    assert answer.code == 2
    assert "no Python" in answer.err


def test_what_is_not_written_is_said(provision):
    answer = provision("resolve", *CU118, "--with", "jupyter", "--format", "pip")
    assert "only the frameworks are written; `jupyter`" in answer.err


def _stub(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """Put a wheel that holds nothing but its metadata into an index of files."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    content = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content += "".join(f"Requires-Dist: {line}\n" for line in requires)
    with zipfile.ZipFile(place / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", content)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    links = []
    for file in sorted(place.glob("*.whl")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        links.append(f'<a href="{file.name.replace("+", "%2B")}#sha256={digest}">{file.name}</a>')
    (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")


@pytest.mark.parametrize("dependencies", [["timm"], ["timm", "torch>=2"], ["torchvision"]])
def test_uv_locks_one_build_for_each_extra(provision, folder, tmp_path, dependencies):
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    index = tmp_path / "index"
    versions = {"torch": "2.6.0", "torchvision": "0.21.0", "torchaudio": "2.6.0"}
    for name, version in versions.items():
        for variant in ("cpu", "cu118"):
            own = () if name == "torch" else (f"torch==2.6.0+{variant}",)
            _stub(index / variant, name, f"{version}+{variant}", own)
        _stub(index / "pypi", name, version, () if name == "torch" else ("torch==2.6.0",))
        _stub(index / "pypi", name, "9.0", () if name == "torch" else ("torch==9.0",))
    _stub(index / "pypi", "timm", "1.0", ("torch", "torchvision"))
    _stub(index / "pypi", "setuptools", "80.0")
    file = folder / "pyproject.toml"
    file.write_text(f'[project]\nname = "a"\nversion = "1"\ndependencies = {json.dumps(dependencies)}\n')
    assert provision("resolve", *CU118, "--format", "uv", "--write").code == 0
    file.write_text(file.read_text().replace("https://download.pytorch.org/whl", index.as_uri()))
    places = ["--default-index", (index / "pypi").as_uri(), "--cache-dir", str(tmp_path / "cache")]
    places += ["--no-python-downloads", "--python", sys.executable]
    done = subprocess.run([uv, "lock", *places], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for extra in ("cpu", "cu118"):
        words = [uv, "export", "--quiet", "--frozen", "--no-hashes", "--no-emit-project", "--extra", extra, *places]
        out = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
        pins = {line.partition(" ")[0] for line in out.splitlines()}
        assert {f"{name}=={version}+{extra}" for name, version in versions.items()} <= pins
        assert not any("9.0" in pin for pin in pins)


@pytest.mark.parametrize("form", sorted(FRAGMENTS))
def test_a_stack_without_cuda_leaves_nothing_to_choose(provision, form):
    text = provision("resolve", "--torch", "2.6", "--cpu", "--format", form).out
    assert "whl/cpu" in text
    assert "cuda" not in text
    assert "nvidia" not in text
    if form in ("uv", "poetry"):
        document = tomllib.loads(text)
        assert "optional-dependencies" not in document["project"]
        assert "conflicts" not in document["tool"].get("uv", {})
        assert document["project"]["dependencies"][0] == "torch==2.6.0"
