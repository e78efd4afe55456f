"""What makes wheels of sources is locked by hash, as what is in the image is; what cannot be locked is told."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

SETUPTOOLS = "[build-system]\nrequires = ['setuptools']\n"
WORDS = ("--torch", "2.4.1", "-r", "own.txt", "-o", "ctx")


@pytest.fixture
def write(index):
    """Write a list; the index has what builds it."""
    index.add("setuptools", "70.0")
    index.add("setuptools", "75.0")
    index.add("setuptools", "76.0", day="2099-01-01T00:00:00Z")
    index.add("wheel", "0.45")
    index.add("own-backend", "1.0", "tool-of-backend")
    index.add("tool-of-backend", "2.0")
    return lambda *lines: Path("own.txt").write_text("".join(f"{line}\n" for line in lines))


def builds() -> dict[str, dict[str, str]]:
    """Return the packages that are built, each kind with what builds it."""
    rows = json.loads(Path("ctx", "provision.lock").read_text())["image"].get("source_builds", [])
    return {" ".join(row["names"]): {item["name"]: item["version"] for item in row["packages"]} for row in rows}


def test_a_source_is_built_with_a_cython_of_its_day_unless_it_names_one(image, index, write):
    index.add("cython", "0.29.37")
    index.add("cython", "3.3.1")
    for name, day, builder in (
        ("older", "2021-01-20T00:00:00Z", "Cython"),
        ("named", "2021-01-20T00:00:00Z", "cython>=3"),
        ("newer", "2024-01-20T00:00:00Z", "Cython"),
    ):
        index.add_source(name, "1.0", builders=[builder], day=day)
    write("older", "named", "newer")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert {names: found["cython"] for names, found in builds().items()} == {
        "older": "0.29.37",
        "named": "3.3.1",
        "newer": "3.3.1",
    }


def test_what_builds_a_source_is_locked_with_all_that_it_needs_and_nothing_is_resolved(image, index, write):
    index.add_source("first", "1.0", builders=["setuptools>=61"])
    index.add_source("second", "1.0", builders=["own-backend"])
    index.add_source("third", "1.0", builders=["setuptools>=61"])
    write("first", "second", "third")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    # Not the release that is newer than the day of the facts, and what the backend asks for when it is run.
    assert builds() == {
        "second": {"own-backend": "1.0", "tool-of-backend": "2.0"},
        "first third": {"setuptools": "75.0", "wheel": "0.45"},
    }
    assert "is resolved when the image is built" not in answer.err
    text = Path("ctx", "requirements.backend.2.txt").read_text()
    digest = hashlib.sha256(index.files["setuptools"]["setuptools-75.0-py3-none-any.whl"][0]).hexdigest()
    assert f"setuptools==75.0 --hash=sha256:{digest}\n" in text
    assert re.findall("^[a-z]+", Path("ctx", "requirements.build.2.txt").read_text(), re.MULTILINE) == [
        "first",
        "third",
    ]
    stage = Path("ctx", "Dockerfile").read_text().partition(" AS compile\n")[2].partition("\nFROM ")[0]
    assert stage.count("--require-hashes --only-binary :all:") == 2
    for number in (1, 2):
        environment = f"/wheels/.venv-{number}"
        wheels = re.search(rf"{environment}/bin/python -m pip wheel [^&]*requirements.build.{number}.txt", stage)
        assert wheels is not None
        assert "--no-build-isolation" in wheels[0]
        assert stage.index(f"{environment}/bin/python --no-config") < wheels.start()
    assert not Path("ctx", "build-constraints.txt").exists()
    assert "requirements.backend.1.txt" in Path("ctx", ".dockerignore").read_text()
    # No part of the image.
    for name in ("requirements.lock.txt", "expect.json"):
        assert "tool-of-backend" not in Path("ctx", name).read_text()


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            {"files": {"pyproject.toml": SETUPTOOLS, "setup.py": "setup(setup_requires=asked())"}},
            id="a script asks for more when it runs",
        ),
        pytest.param({"builders": ["nobodys-backend"]}, id="no index has it"),
        pytest.param({"files": {"pyproject.toml": "[build-system]\n"}}, id="it does not say"),
    ],
)
def test_what_cannot_be_locked_is_told_and_resolved_in_the_build_under_the_bounds(image, index, write, source):
    index.add_source("first", "1.0", **source)
    index.add_source("second", "1.0", builders=["own-backend"])
    write("first", "second")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert list(builds()) == ["second"]
    assert "what makes wheels of first is resolved when the image is built" in answer.err
    text = Path("ctx", "Dockerfile").read_text()
    assert re.search(r"PIP_BUILD_CONSTRAINT=/build/build-constraints.txt [^&]*-r /build/requirements.build.txt", text)
    assert Path("ctx", "build-constraints.txt").is_file()
    assert "first==1.0" in Path("ctx", "requirements.build.txt").read_text()


def test_a_builder_of_the_image_is_taken_in_its_version(image, index, write):
    index.add("numpy", "99.0", day="2099-01-01T00:00:00Z")
    index.add("torch", "2.5.0")
    index.add_source("first", "1.0", builders=["numpy", "torch"])
    write("first")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    packages = json.loads(Path("ctx", "provision.lock").read_text())["image"]["packages"]
    image_has = {item["name"]: item["version"] for item in packages}
    found = builds()["first"]
    assert found["torch"] == "2.4.1"
    assert found["numpy"] == image_has["numpy"]


def test_a_lock_keeps_them_and_an_upgrade_renews_what_it_names_and_says_so(image, index, write):
    index.add_source("first", "1.0", builders=["setuptools>=61"])
    write("first")
    assert image(*WORDS).code == 0
    text = Path("ctx", "provision.lock").read_text()
    index.add("setuptools", "75.1")
    index.add("wheel", "0.46")
    assert image("--locked", "-o", "ctx").code == 0
    assert Path("ctx", "provision.lock").read_text() == text
    assert image(*WORDS, "--check").code == 8
    answer = image("--upgrade", "wheel", "-o", "ctx")
    assert answer.code == 0, answer.err
    assert builds()["first"] == {"setuptools": "75.0", "wheel": "0.46"}
    assert "wheel, which builds first 0.45 -> 0.46" in answer.err.replace("→", "->").replace(":", "")
    assert image("--upgrade", "-o", "ctx").code == 0
    assert builds()["first"] == {"setuptools": "75.1", "wheel": "0.46"}
    # What is not built any more leaves no list behind.
    index.add("first", "2.0")
    assert image(*WORDS).code == 0
    assert not list(Path("ctx").glob("requirements.b*.txt"))


def test_what_is_compiled_against_the_framework_is_built_with_locked_tools(image, index, write):
    for name in ("einops", "ninja", "packaging", "psutil"):
        index.add(name, "1.0")
    index.add_source("flash-attn", "2.8.3", builders=["nobody-asks-for-this"])
    write("flash-attn==2.8.3")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    tools = {"ninja": "1.0", "packaging": "1.0", "psutil": "1.0", "setuptools": "75.0", "wheel": "0.45"}
    assert builds() == {"flash-attn": tools}
    assert "is resolved when the image is built" not in answer.err
    stage = Path("ctx", "Dockerfile").read_text().partition(" AS compile\n")[2].partition("\nFROM ")[0]
    install = re.search(r"--python /opt/venv/bin/python [^&]*requirements.backend.1.txt", stage)
    assert install is not None
    assert "--no-deps --require-hashes --only-binary :all:" in install[0]
    assert install.end() < stage.index("python -m pip wheel")
    assert "constraints.txt" not in stage


def test_a_source_whose_build_fetches_its_wheel_is_told_since_no_hash_holds_that(image, index, write):
    index.add("wheel-stub", "0.5.0")
    index.add_source("first", "1.0", builders=["wheel-stub"])
    index.add_source("second", "1.0", builders=["own-backend"])
    write("first", "second")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert "the source of first holds no code: its build fetches a wheel from NVIDIA's own index" in answer.err


def test_a_source_for_older_pythons_is_not_taken_on_a_newer_one(image, index, write):
    index.add_source("old", "2.0", builders=["setuptools>=61"], requires_python=">=3.7,<3.11")
    index.add_source("old", "1.0", builders=["setuptools>=61"], requires_python=">=3.7")
    write("old")
    answer = image(*WORDS, "--python", "3.11")
    assert answer.code == 0, answer.err
    assert "old==1.0 --hash" in Path("ctx", "requirements.build.1.txt").read_text()
    write("old==2.0")
    refused = image("--torch", "2.4.1", "--python", "3.11", "-r", "own.txt", "-o", "refused")
    assert refused.code == 3, refused.err
    assert "because the source of old 2.0 is for Python >=3.7,<3.11\n" in refused.err
    assert "old!=" not in refused.err
    assert "old>2.0" not in refused.err
    # No Python was asked for by name: an older one has it.
    other = image("--torch", "2.4.1", "-r", "own.txt", "-o", "other")
    assert other.code == 0, other.err
    assert json.loads(Path("other", "provision.lock").read_text())["python"] == "3.10"
