"""Wheels and archives of this machine: copied into the context, locked and installed by hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from provision.build.local import Local, write_local
from provision.errors import IncompatibleError, ProvisionError
from provision.project.read import read_inputs
from provision.resolve.requirements import LOCAL

TORCH = "2.4.1"
WHEEL = "demo-1.0-py3-none-any.whl"


@pytest.fixture
def publish(index, serve_index):
    """Write wheels and sources into a folder as an index would have them."""

    def write(folder, *names):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, files in serve_index.files.items():
            for file, (content, _) in files.items():
                if not names or name in names:
                    Path(folder, file).write_bytes(content)

    return write


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def packages(folder="out"):
    return {item["name"]: item for item in json.loads(Path(folder, "provision.lock").read_text())["image"]["packages"]}


@pytest.mark.parametrize(
    "line",
    [
        f"./dist/{WHEEL}",
        f"dist/{WHEEL}",
        f"demo @ ./dist/{WHEEL}",
        f"demo @ file://HERE/dist/{WHEEL}",
        f"file://HERE/dist/{WHEEL}",
    ],
)
def test_a_wheel_is_copied_and_installed_by_hash_and_what_it_needs_is_locked(image, index, serve_index, publish, line):
    serve_index.add("demo", "1.0", "other>=2")
    publish("dist")
    for version in ("1.0", "2.0"):
        index.add("other", version)
    Path("r.txt").write_text(line.replace("HERE", str(Path.cwd())) + " --hash=sha256:00\n")
    words = ("--torch", TORCH, "-r", "r.txt", "-o", "out")
    answer = image(*words)
    assert answer.code == 0, answer.err
    digest = sha256(f"dist/{WHEEL}")
    found = packages()
    assert (found["demo"]["sha256"], found["demo"]["url"], found["other"]["version"]) == (digest, LOCAL + WHEEL, "2.0")
    assert sha256(f"out/local/{WHEEL}") == digest
    text = Path("out", "Dockerfile").read_text()
    assert f"--mount=type=bind,source=local/{WHEEL},target=/build/local/{WHEEL}" in text
    assert f"demo @ {LOCAL}{WHEEL} --hash=sha256:{digest}" in Path("out", "requirements.user.txt").read_text()
    assert f"!local/{WHEEL}" in Path("out", ".dockerignore").read_text()
    assert str(Path.cwd()) not in "".join(path.read_text() for path in Path("out").iterdir() if path.is_file())
    assert image(*words, "--check").code == 0
    assert image("-o", "out", "--locked").code == 0


def test_what_changed_or_is_gone_is_told(image, serve_index, publish):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    words = ("--torch", TORCH, "-r", "r.txt", "-o", "out")
    assert image(*words).code == 0
    Path("out", "local", WHEEL).write_bytes(b"another")
    for flags in (("-o", "out", "--locked"), (*words, "--check")):
        answer = image(*flags)
        assert answer.code == 8
        assert f"local/{WHEEL} is another file" in answer.err
    assert image(*words).code == 0
    assert image("-o", "out", "--locked").code == 0
    # The request is another one with another file.
    Path("dist", WHEEL).write_bytes(Path("dist", WHEEL).read_bytes() + b"\0")
    assert image(*words, "--check").code == 8
    # What no line names any more goes.
    Path("r.txt").write_text("filelock\n")
    assert image(*words).code == 0
    assert not Path("out", "local").exists()


def test_an_upgrade_keeps_to_the_files_of_the_context(image, index, serve_index, publish):
    serve_index.add("demo", "1.0", "other")
    publish("dist")
    index.add("other", "1.0", day="2025-01-01T00:00:00Z")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    assert image("--torch", TORCH, "-r", "r.txt", "-o", "out").code == 0
    Path("dist", WHEEL).unlink()
    index.add("other", "2.0", day="2025-02-01T00:00:00Z")
    answer = image("-o", "out", "--upgrade", "other")
    assert answer.code == 0, answer.err
    assert packages()["other"]["version"] == "2.0"
    assert Path("out", "local", WHEEL).is_file()


def test_an_upgrade_whose_file_is_gone_writes_nothing(image, serve_index, publish):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    assert image("--torch", TORCH, "-r", "r.txt", "-o", "out", "--offline").code == 0
    Path("out", "local", WHEEL).unlink()
    Path("out", "constraints.txt").unlink()
    answer = image("-o", "out", "--upgrade", "--force", "--offline")
    assert answer.code == 2
    assert f"{WHEEL} is not here any more" in answer.err
    assert not Path("out", "constraints.txt").exists()


@pytest.mark.parametrize("place", ["out/local", f"out/local/{WHEEL}"])
def test_somebody_elses_files_stay_and_nothing_is_written_beside_them(image, serve_index, publish, place):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    Path(place).parent.mkdir(parents=True)
    Path(place).write_text("mine")
    answer = image("--torch", TORCH, "-r", "r.txt", "-o", "out", "--offline")
    assert answer.code == 2
    assert f"{place} was not written by this program" in answer.err
    assert Path(place).read_text() == "mine"
    assert not Path("out", "provision.lock").exists()


def test_an_interrupted_copy_leaves_no_draft(image, serve_index, publish, monkeypatch):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", lambda source, target: (Path(target).write_text("half"), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            write_local(Path("out"), {WHEEL: Path("dist", WHEEL)}, {}, mtime=0)
    assert list(Path("out", "local").iterdir()) == []


@pytest.mark.parametrize("name", ["a;b-1.0.tar.gz", "$(id)-1.0.zip", "a b-1.0.tar.gz", "a\nb-1.0.tar.gz"])
def test_a_name_that_no_line_can_hold_is_refused_as_such(tmp_path, name):
    Path(tmp_path, name).write_bytes(b"")
    Path(tmp_path, "r.txt").write_text(f"demo @ ./{quote(name)}\n")
    with pytest.raises(ProvisionError, match="has a name that cannot be copied as it is"):
        read_inputs([tmp_path / "r.txt"])


def test_a_source_archive_is_built_in_its_stage(image, serve_index, publish):
    serve_index.add_source("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text("./dist/demo-1.0.tar.gz\n")
    answer = image("--torch", TORCH, "-r", "r.txt", "-o", "out")
    assert answer.code == 0, answer.err
    line = f"demo @ {LOCAL}demo-1.0.tar.gz --hash=sha256:{sha256('dist/demo-1.0.tar.gz')}"
    assert line in Path("out", "requirements.build.1.txt").read_text()
    stage = Path("out", "Dockerfile").read_text().partition("AS compile")[2].partition("\nFROM")[0]
    assert "source=local/demo-1.0.tar.gz,target=/build/local/demo-1.0.tar.gz" in stage


def test_a_folder_after_find_links_is_asked_and_what_it_serves_is_copied(image, index, serve_index, publish):
    serve_index.add("demo", "2.0", "inner")
    serve_index.add("inner", "1.0")
    serve_index.add("unused", "1.0")
    publish("wheels")
    index.add("demo", "1.0")
    Path("r.txt").write_text("--find-links ./wheels\ndemo\n")
    answer = image("--torch", TORCH, "-r", "r.txt", "-o", "out")
    assert answer.code == 0, answer.err
    assert (packages()["demo"]["version"], packages()["inner"]["url"]) == ("2.0", f"{LOCAL}inner-1.0-py3-none-any.whl")
    names = sorted(path.name for path in Path("out", "local").iterdir())
    assert names == ["demo-2.0-py3-none-any.whl", "inner-1.0-py3-none-any.whl"]
    answer = image("-o", "out", "--upgrade", "demo")
    assert answer.code == 0, answer.err
    assert packages()["demo"]["version"] == "2.0"


def test_without_an_index_the_wheel_is_copied_all_the_same(provision, serve_index, publish):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    answer = provision("image", "--torch", TORCH, "-r", "r.txt", "-o", "out", "--offline")
    assert answer.code == 0, answer.err
    assert f"demo @ {LOCAL}{WHEEL}#sha256={sha256(f'dist/{WHEEL}')}" in Path("out", "requirements.user.txt").read_text()
    assert sha256(f"out/local/{WHEEL}") == sha256(f"dist/{WHEEL}")
    assert f"source=local/{WHEEL}" in Path("out", "Dockerfile").read_text()


@pytest.mark.parametrize("form", ["bake", "requirements", "pylock"])
def test_a_form_that_is_no_context_is_refused(provision, serve_index, publish, form):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    answer = provision("image", "--torch", TORCH, "-r", "r.txt", "-o", "out", "--offline", "--format", form)
    assert answer.code == 2
    assert f"{WHEEL} goes into a context, which `--format {form}` is not" in answer.err


@pytest.mark.parametrize("form", ["dockerfile", "apptainer", "devcontainer"])
@pytest.mark.parametrize("frontend", ["modern", "classic"])
def test_every_writer_of_a_context_brings_the_file(provision, serve_index, publish, form, frontend):
    serve_index.add("demo", "1.0")
    publish("dist")
    Path("r.txt").write_text(f"dist/{WHEEL}\n")
    words = ("--torch", TORCH, "-r", "r.txt", "-o", "out", "--offline", "--format", form, "--frontend", frontend)
    answer = provision("image", *words)
    assert answer.code == 0, answer.err
    text = "".join(path.read_text() for path in Path("out").iterdir() if path.name in ("Dockerfile", "provision.def"))
    assert f"local/{WHEEL} /build/local/" in text or f"source=local/{WHEEL}" in text


def read(folder, *lines):
    path = folder / "r.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_inputs([path])


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("demo-1.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "3.10"),
        ("demo-1.0-cp39-abi3-linux_x86_64.whl", ">=3.9"),
        ("demo-1.0-py3-none-manylinux_2_17_x86_64.whl", None),
        ("demo-1.0-py2.py3-none-any.whl", None),
    ],
)
def test_a_wheel_for_one_python_chooses_it(tmp_path, name, python):
    (tmp_path / name).write_bytes(b"")
    assert read(tmp_path, f"./{name}").python == python


@pytest.mark.parametrize(
    "name",
    [
        "demo-1.0-cp311-cp311-win_amd64.whl",
        "demo-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "demo-1.0-py3-none-macosx_11_0_arm64.whl",
    ],
)
def test_a_wheel_for_another_platform_is_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(IncompatibleError, match=r"r\.txt, line 1: demo-1\.0-.* is a wheel for .*linux/amd64"):
        read(tmp_path, f"./{name}")


def test_wheels_for_two_pythons_are_refused_with_both(tmp_path):
    names = ("a-1-cp310-cp310-linux_x86_64.whl", "b-1-cp311-cp311-linux_x86_64.whl")
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(IncompatibleError, match=r"a-1-cp310.* and b-1-cp311.* cannot be met together"):
        read(tmp_path, *(f"./{name}" for name in names))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["./absent-1.0-py3-none-any.whl"], "no such file or project is here"),
        (["demo @ file:///absent/demo-1.0-py3-none-any.whl"], "the file is not there"),
        (["--find-links ./absent"], "is not a folder here"),
        (["./master.zip"], "does not say what it holds"),
        (["./a/x-1-py3-none-any.whl", "./b/x-1-py3-none-any.whl"], "have one name and are two files"),
    ],
)
def test_what_cannot_be_copied_is_refused(tmp_path, lines, said):
    (tmp_path / "master.zip").write_bytes(b"")
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x-1-py3-none-any.whl").write_text(name)
    with pytest.raises(ProvisionError) as caught:
        read(tmp_path, *lines)
    assert said in caught.value.message
    assert "r.txt, line" in caught.value.message
    assert caught.value.hints


def test_an_archive_that_is_named_may_have_any_name(tmp_path):
    (tmp_path / "master.zip").write_bytes(b"")
    inputs = read(tmp_path, "demo[x] @ ./master.zip ; python_version > '3.8'")
    digest = hashlib.sha256(b"").hexdigest()
    assert inputs.lines[0].requirement.text == f"demo[x] @ {LOCAL}master.zip#sha256={digest} ; python_version > '3.8'"
    assert Local(files=inputs.files).find("master.zip") == tmp_path / "master.zip"
