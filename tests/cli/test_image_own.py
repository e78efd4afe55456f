"""`provision image`: the parts of a context that are the user's own: code, system packages, steps, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.stack import Stack

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to stand in that holds some code."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("print('hello')\n")
    (tmp_path / "train.py").write_text("print('train')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dockerfile(folder: Path) -> list[str]:
    return (folder / "out" / "Dockerfile").read_text().splitlines()


def read_lock(folder: Path) -> Stack:
    return Stack.from_lock((folder / "out" / "provision.lock").read_text())


def test_code_is_copied_beside_the_dockerfile_and_is_the_last_layer(provision, folder):
    (folder / "src" / ".env").write_text("TOKEN=1\n")
    answer = provision("image", *STACK, "--copy", "src", "--copy", "train.py:/opt/", "-o", "out")
    assert answer.code == 0, answer.err
    assert "copied 2 files of yours into out/code" in answer.err
    assert "warning: left out, since they may hold secrets: src/.env" in answer.err
    steps = [line for line in dockerfile(folder) if line.startswith(("RUN", "COPY"))]
    assert steps[-2:] == [
        "COPY --chown=10001:10001 code/src/ /workspace/src/",
        "COPY --chown=10001:10001 code/train.py /opt/train.py",
    ]
    assert {"!code/src", "!code/train.py"} < set((folder / "out" / ".dockerignore").read_text().splitlines())
    assert (folder / "out" / "code" / "src" / "app.py").read_text() == "print('hello')\n"


def test_code_is_no_part_of_the_lock_and_no_drift(provision, folder):
    words = ("image", *STACK, "-o", "out")
    provision(*words)
    digest = read_lock(folder).lock_digest
    provision(*words, "--copy", "src")
    assert read_lock(folder).lock_digest == digest
    answer = provision(*words, "--copy", "src", "--check")
    assert answer.code == 0
    assert "warning" not in answer.err
    (folder / "src" / "app.py").write_text("print('changed')\n")
    answer = provision(*words, "--copy", "src", "--check")
    assert answer.code == 0
    assert "out/code is not what your code is now" in answer.err
    assert provision(*words, "--check").code == 8


def test_a_locked_context_keeps_its_code_and_command(provision, folder):
    provision("image", *STACK, "--copy", "src", "--command", "python -m app --name 'two words'", "-o", "out")
    kept = json.loads((folder / "out" / "provision.options.json").read_text())
    assert kept == {"command": ["python", "-m", "app", "--name", "two words"], "copies": {"src/": "/workspace/src/"}}
    assert dockerfile(folder)[-1] == 'CMD ["python", "-m", "app", "--name", "two words"]'
    assert provision("image", "--locked", "-o", "out").code == 0
    assert provision("image", "--upgrade", "-o", "out").code == 0
    assert dockerfile(folder)[-1].startswith('CMD ["python", "-m", "app"')
    answer = provision("image", "--locked", "--command", "bash", "-o", "out")
    assert answer.code == 8
    assert "--command" in answer.err
    (folder / "out" / "code" / "src" / "app.py").unlink()
    (folder / "out" / "code" / "src").rmdir()
    answer = provision("image", "--locked", "-o", "out")
    assert (answer.code, "out/code lacks src/" in answer.err) == (8, True)


def test_code_that_is_named_no_more_is_taken_away(provision, folder):
    provision("image", *STACK, "--copy", "src", "-o", "out")
    provision("image", *STACK, "-o", "out")
    assert not (folder / "out" / "code").exists()
    assert (folder / "src").exists()


def test_a_folder_called_code_of_somebody_else_is_left_alone(provision, folder):
    (folder / "out" / "code").mkdir(parents=True)
    (folder / "out" / "code" / "mine").touch()
    answer = provision("image", *STACK, "--copy", "src", "-o", "out")
    assert answer.code == 2
    assert "out/code was not written by this program" in answer.err
    assert provision("image", *STACK, "-o", "out").code == 0
    assert (folder / "out" / "code" / "mine").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--copy", "absent"), "absent does not exist"),
        (("--copy", "src:/opt/venv/x"), "/opt/venv/x/ is a place that the image itself needs"),
        (("--copy", "src:/a b"), "is not a valid place in the image"),
        (("--copy", "src:/../etc"), "is not a valid place in the image"),
        (("--copy", "src", "--copy", "src"), "puts two things at /workspace/src"),
        (("--copy", "src", "--format", "bake"), "--copy goes into a context"),
        (("--command", "a 'b"), "is not a command"),
        (("--command", " "), "without a command"),
        (("--apt", "Bad Name"), "is not a package of a system"),
        (("--apt", "git", "--apt", "git=1:2"), "names git twice"),
        (("--apt", "git", "--apt-snapshot", "yesterday"), "is not a day"),
    ],
)
def test_what_cannot_be_meant_is_refused(provision, folder, words, said):
    answer = provision("image", *STACK, *words, "-o", "out")
    assert answer.code == 2, answer.err
    assert said in answer.err
    assert not (folder / "out" / "Dockerfile").exists()


def test_system_packages_are_in_the_lock_and_the_image(provision, folder):
    provision("image", *STACK, "-o", "out")
    plain = read_lock(folder)
    assert provision("image", *STACK, "--apt", "ffmpeg", "--apt", "libgl1=1.6.0-1", "-o", "out").code == 0
    stack = read_lock(folder)
    assert stack.image.apt == ("ffmpeg", "libgl1=1.6.0-1")
    assert stack.request == replace(plain.request, apt=("ffmpeg", "libgl1=1.6.0-1"))
    assert "      libgl1=1.6.0-1 \\" in dockerfile(folder)
    # Who asks for none gets the lock as it always was.
    assert "apt" not in json.loads(plain.to_lock())["request"]
    assert "apt_snapshot" not in json.loads(plain.to_lock())["image"]
    assert provision("image", "--locked", "-o", "out").code == 0


def test_a_version_that_the_user_names_stands_for_the_stacks_own(provision, folder):
    assert provision("image", *STACK, "--flavor", "jit", "--apt", "gcc=4:12.2.0-3", "-o", "out").code == 0
    assert read_lock(folder).image.apt == ("gcc=4:12.2.0-3", "libc6-dev")


@pytest.mark.parametrize("frontend", ["modern", "builtin", "classic"])
def test_packages_come_from_the_archive_of_a_day(provision, folder, frontend):
    words = ("--apt", "ffmpeg", "--apt-snapshot", "2026-05-01", "--frontend", frontend, "-o", "out")
    assert provision("image", *STACK, *words).code == 0
    text = "\n".join(dockerfile(folder))
    assert "sh /build/apt_snapshot.sh 20260501T000000Z /tmp/apt && export APT_CONFIG=" in text
    assert (folder / "out" / "apt_snapshot.sh").exists()
    assert provision("image", *STACK, "--apt", "ffmpeg", "-o", "out").code == 0
    assert not (folder / "out" / "apt_snapshot.sh").exists()


def test_auto_is_the_day_of_the_facts(provision, folder):
    assert provision("image", *STACK, "--apt", "ffmpeg", "--apt-snapshot", "auto", "-o", "out").code == 0
    assert read_lock(folder).image.apt_snapshot == Matrix(None).dated


def test_steps_of_ones_own_outlive_every_write(provision, folder):
    hooks = folder / "out" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "before-packages.sh").write_text("echo before\n")
    (hooks / "after-packages.sh").write_text("echo after\n")
    words = ("image", *STACK, "-o", "out")
    assert provision(*words).code == 0
    lines = dockerfile(folder)
    before, after = (lines.index(f"    sh -eu /build/hooks/{name}-packages.sh") for name in ("before", "after"))
    first = next(number for number, line in enumerate(lines) if "uv pip install" in line)
    proof = next(number for number, line in enumerate(lines) if "verify.py --static" in line)
    assert before < first < proof < after
    assert provision(*words, "--check").code == 0
    assert provision("image", "--locked", "-o", "out").code == 0
    assert provision("image", "--upgrade", "-o", "out").code == 0
    assert provision(*words, "--non-root-uid", "2000").code == 0
    assert (hooks / "after-packages.sh").read_text() == "echo after\n"
    assert "    sh -eu /build/hooks/after-packages.sh" in dockerfile(folder)
    (hooks / "after-packages.sh").unlink()
    assert provision(*words, "--check").code == 8


@pytest.mark.parametrize("words", [(*STACK, "--check"), ("--locked",), ("--upgrade",)])
def test_an_edited_dockerfile_is_shown_the_way_out(provision, folder, words):
    provision("image", *STACK, "-o", "out")
    path = folder / "out" / "Dockerfile"
    path.write_text(path.read_text().replace("WORKDIR", "RUN true\nWORKDIR"))
    answer = provision("image", *words, "-o", "out")
    assert answer.code == 8
    assert "steps of your own go into out/hooks/before-packages.sh and after-packages.sh" in answer.err


def test_a_write_says_which_lines_of_somebody_it_drops(provision, folder):
    words = ("image", *STACK, "--non-root-uid", "2000", "-o", "out")
    provision(*words)
    path = folder / "out" / "Dockerfile"
    path.write_text(path.read_text().replace("WORKDIR", "RUN apt-get install vim\nWORKDIR"))
    answer = provision("image", "--torch", "2.2", "--python", "3.11", "-o", "out")
    assert answer.code == 0
    assert "out/Dockerfile had what no lock makes, and this write drops it: `RUN apt-get install vim`\n" in answer.err
    assert "steps of your own go into out/hooks/before-packages.sh" in answer.err
    # Another request, other options, a script that came or went: nothing of that is an edit.
    assert "drops it" not in provision(*words, "--flavor", "jit").err
    (folder / "out" / "hooks").mkdir()
    (folder / "out" / "hooks" / "after-packages.sh").touch()
    assert "drops it" not in provision(*words, "--frontend", "builtin").err
    (folder / "out" / "hooks" / "after-packages.sh").unlink()
    assert "drops it" not in provision(*words).err
    path.write_text(path.read_text() + "RUN true\n")
    assert "drops it" not in provision(*words, "--force").err


def test_dev_has_an_installer_and_git_and_its_environment_can_be_written(provision, folder):
    assert provision("image", *STACK, "--flavor", "dev", "-o", "out").code == 0
    assert {"gcc", "git", "ca-certificates"} < set(read_lock(folder).image.apt)
    text = "\n".join(dockerfile(folder))
    assert "/opt/tools/bin/uv /usr/local/bin/" in text
    assert "RUN find /opt/venv -type d -exec chown 10001:10001 {} +" in text
    provision("image", *STACK, "-o", "out")
    assert "chown 10001:10001 {} +" not in "\n".join(dockerfile(folder))


def test_dev_has_no_nvcc(provision):
    answer = provision("image", "--torch", "2.6", "--flavor", "dev", "--with", "deepspeed")
    assert answer.code == 3
    assert "deepspeed compiles code, which the flavor dev has no nvcc for" in answer.err


def test_a_development_container_is_one_to_work_in(provision, folder):
    assert provision("image", *STACK, "--format", "devcontainer", "-o", "out").code == 0
    assert read_lock(folder).request.flavor == "dev"
    assert provision("image", *STACK, "--format", "devcontainer", "--flavor", "runtime", "-o", "plain").code == 0
    assert "/opt/tools/bin/uv /usr" not in (folder / "plain" / "Dockerfile").read_text()
    assert provision("image", "--torch", "2.6", "--with", "deepspeed", "--format", "devcontainer", "-o", "nv").code == 0


def test_an_apptainer_definition_has_them_all(provision, folder):
    (folder / "out" / "hooks").mkdir(parents=True)
    (folder / "out" / "hooks" / "after-packages.sh").touch()
    words = ("--copy", "src", "--copy", "train.py:/opt/", "--command", "python src/app.py", "--flavor", "dev")
    snapshot = ("--apt", "ffmpeg", "--apt-snapshot", "2026-05-01")
    assert provision("image", *STACK, *words, *snapshot, "--format", "apptainer", "-o", "out").code == 0
    lines = [line.strip() for line in (folder / "out" / "provision.def").read_text().splitlines()]
    for line in (
        "code /build/code",
        "hooks/after-packages.sh /build/hooks/after-packages.sh",
        "sh -eu /build/hooks/after-packages.sh",
        "mkdir -p /workspace/src/ && cp -r /build/code/src/. /workspace/src/",
        "mkdir -p /opt && cp /build/code/train.py /opt/train.py",
        "cp /opt/tools/bin/uv /usr/local/bin/",
        "set -- python src/app.py",
    ):
        assert line in lines
    assert any(line.startswith("sh /build/apt_snapshot.sh 20260501T000000Z") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--apt", "ffmpeg"), "apt installs ffmpeg"),
        (("--flavor", "dev"), "the flavor dev makes its environment writable"),
    ],
)
def test_without_an_engine_nothing_is_run(provision, words, said):
    answer = provision("image", *STACK, *words, "--engine", "oci", "--base-layout", "src")
    assert answer.code == 2
    assert said in answer.err


def test_without_an_engine_no_step_of_ones_own_is_run(provision, folder):
    (folder / "out" / "hooks").mkdir(parents=True)
    (folder / "out" / "hooks" / "after-packages.sh").touch()
    answer = provision("image", *STACK, "-o", "out", "--engine", "oci", "--base-layout", "src")
    assert answer.code == 2
    assert "hooks/after-packages.sh" in answer.err


@pytest.mark.parametrize(
    ("base", "python", "code"),
    [
        ("python:3.9.7-slim", "3.11", 3),
        ("docker.io/library/python:3.12.1", "3.11", 3),
        ("python:3.11.4-bullseye", "3.11", 0),
        ("python:latest", "3.11", 0),
        ("nvidia/cuda:12.1.1-base-ubi9", "3.11", 3),
        ("nvcr.io/nvidia/cuda:12.1.1-base-ubi9", "3.11", 3),
        ("registry.example/nvidia/cuda:12.1.1-base-ubi9", "3.11", 0),
    ],
)
def test_a_base_whose_name_says_what_it_lacks_is_refused(provision, base, python, code):
    answer = provision("image", "--torch", "2.1", "--python", python, "--base", base, "-o", "out")
    assert answer.code == code, answer.err


PYPROJECT = """
[project]
name = "app"
version = "1"
dependencies = ["torch==2.4.1"]
[project.scripts]
app = "app:main"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with code, a secret, and a folder to stand in."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "app"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("x")
    (folder / ".env").write_text("TOKEN=1")
    (folder / "app.py").write_text("def main(): pass\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def test_a_project_is_built_in_a_stage_of_its_own_and_installed_last(provision, project):
    words = ("image", "--project", "app", "--install-project", "-o", "ctx")
    answer = provision(*words)
    assert answer.code == 0, answer.err
    text = Path("ctx", "Dockerfile").read_text()
    stage, runtime = text.partition(" AS project\n")[2].split("\nFROM ", 1)
    assert "COPY --link code/app/ /projects/app/" in stage
    assert "pip wheel" in stage
    assert "--wheel-dir /wheels /projects/app" in stage
    assert "--mount=type=bind,from=project,source=/wheels,target=/wheels" in runtime
    assert "--no-deps /wheels/*.whl" in runtime
    assert runtime.index("verify.py --static") < runtime.index("WORKDIR") < runtime.index("/wheels/*.whl")
    # Made on the image that has compilers, which the lock names.
    lock = json.loads(Path("ctx", "provision.lock").read_text())["image"]
    assert text.partition(" AS project\n")[0].endswith(f"FROM {lock['build_base']['ref']}")
    assert sorted(path.name for path in Path("ctx", "code", "app").iterdir()) == ["app.py", "pyproject.toml"]
    assert "!code/app\n" in Path("ctx", ".dockerignore").read_text()
    assert provision(*words, "--check").code == 0
    assert provision("image", "-o", "ctx", "--locked").code == 0
    answer = provision("image", "-o", "ctx", "--upgrade")
    assert answer.code == 0, answer.err
    assert Path("ctx", "Dockerfile").read_text() == text
    assert Path("ctx", "code", "app", "app.py").is_file()


def test_a_project_that_changed_is_told_and_one_that_is_left_out_goes(provision, project):
    words = ("image", "--project", "app", "--install-project", "-o", "ctx")
    assert provision(*words).code == 0
    (project / "app.py").write_text("def main(): return\n")
    answer = provision(*words, "--check")
    assert answer.code == 0
    assert "is not what your code is now" in answer.err
    assert provision(*words[:3], "-o", "ctx").code == 0
    assert not Path("ctx", "code").exists()
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()


def test_folders_that_lines_name_are_installed_too_and_beside_copies(provision, project):
    (project / "part").mkdir()
    (project / "part" / "setup.py").write_text("from setuptools import setup\nsetup(name='part')\n")
    Path("r.txt").write_text("torch==2.4.1\n-e ./app\n./app/part\n")
    answer = provision("image", "-r", "r.txt", "--install-project", "--copy", "app", "-o", "ctx")
    assert answer.code == 0, answer.err
    text = Path("ctx", "Dockerfile").read_text()
    assert "--wheel-dir /wheels /projects/app /projects/part" in text
    assert "code/app/ /workspace/app/" in text


def test_apptainer_builds_the_project_too(provision, project):
    answer = provision("image", "--project", "app", "--install-project", "--format", "apptainer", "-o", "ctx")
    assert answer.code == 0, answer.err
    text = Path("ctx", "provision.def").read_text()
    assert "code /build/code" in text
    assert "mkdir -p /projects/app/ && cp -r /build/code/app/. /projects/app/" in text
    assert "/projects" in text.rpartition("rm -rf")[2].splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--frontend", "classic"), "the classic builder has no mounts"),
        (("--format", "pylock"), "--install-project goes into a context"),
        (("--engine", "oci"), "it needs `pip wheel`"),
    ],
)
def test_what_cannot_build_a_project_is_refused(provision, project, words, said):
    answer = provision("image", "--project", "app", "--install-project", "-o", "ctx", *words)
    assert answer.code == 2
    assert said in answer.err
    assert not Path("ctx").exists()


@pytest.mark.parametrize("words", [("--project", "app"), ("--torch", "2.4.1")])
def test_what_says_not_how_it_is_built_is_refused(provision, project, words):
    (project / "pyproject.toml").write_text(PYPROJECT.partition("[build-system]")[0])
    answer = provision("image", *words, "--install-project", "-o", "ctx")
    assert answer.code == 2
    assert "no project says how it is built" in answer.err
    assert "--copy DIR" in answer.err
    # Whoever named the folder is not told to name it.
    is_named = words[0] == "--project"
    assert ("add a `[build-system]` table to app/pyproject.toml" in answer.err) == is_named
    assert ("`--project DIR`" in answer.err) != is_named


def test_what_builds_a_project_is_left_open_without_an_index(provision, project):
    answer = provision("image", "--project", "app", "--install-project", "-o", "ctx")
    assert "warning: without an index what builds the project is left open: setuptools" in answer.err
    assert "project_build" not in json.loads(Path("ctx", "provision.lock").read_text())["image"]
    assert "--no-build-isolation" not in Path("ctx", "Dockerfile").read_text()
    # A project that is its own backend leaves nothing open.
    (project / "pyproject.toml").write_text(PYPROJECT.replace('["setuptools"]', "[]"))
    answer = provision("image", "--project", "app", "--install-project", "-o", "ctx")
    assert "left open" not in answer.err
    assert "--no-build-isolation" in Path("ctx", "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("", "[build-system] has no list `requires`"),
        ('requires = "setuptools"', "[build-system] has no list `requires`"),
        ('requires = ["set up"]', "app/pyproject.toml ([build-system] requires)"),
        ('requires = ["./tool"]', "app/pyproject.toml ([build-system] requires)"),
    ],
)
def test_requirements_of_a_build_that_cannot_be_read_are_refused(provision, project, requires, said):
    (project / "pyproject.toml").write_text(PYPROJECT.replace('requires = ["setuptools"]', requires))
    answer = provision("image", "--project", "app", "--install-project", "-o", "ctx")
    assert answer.code == 2
    assert said in answer.err
    assert not Path("ctx").exists()


@pytest.mark.parametrize("words", [("--project", "app", "--install-project"), ("--torch", "2.4.1", "--copy", "app")])
def test_a_link_that_leads_out_of_the_code_leaves_no_half_a_folder(provision, project, words):
    (project / "passwords").symlink_to("/etc/passwd")
    answer = provision("image", *words, "-o", "ctx")
    assert answer.code == 2
    assert "is a link that leads out of app" in answer.err
    assert not Path("ctx").exists()
