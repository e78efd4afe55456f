"""`provision image` with lines of the user's own, resolved by a real uv from an index on loopback."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from provision.resolve import prebuilt
from tests.unit.build import package_index

TORCH = "2.4.1"


def locked(folder="out"):
    return json.loads(Path(folder, "provision.lock").read_text())["packages"]


def project(lines, lock=None):
    Path("pyproject.toml").write_text(f'[project]\nname = "app"\ndependencies = {json.dumps(lines)}\n')
    if lock is not None:
        rows = "".join(
            f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "https://x.example" }}\n'
            for name, version in lock.items()
        )
        Path("uv.lock").write_text(f"version = 1\n{rows}")


def test_the_versions_of_the_projects_lock_are_kept_where_they_fit(image, index):
    for version in ("1.0", "2.0"):
        index.add("demo", version)
        index.add("other", version)
    project([f"torch=={TORCH}", "demo", "other>=2"], {"demo": "1.0", "other": "1.0", "torch": "2.3.1"})
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    assert "uv.lock holds 3 versions, kept where they fit" in answer.err
    assert "others are taken: other 1.0 → 2.0, torch 2.3.1 → 2.4.1" in answer.err
    assert (locked()["demo"], locked()["other"], locked()["torch"].partition("+")[0]) == ("1.0", "2.0", TORCH)
    assert image("--project", ".", "-o", "out", "--check").code == 0


def test_the_projects_lock_chooses_the_framework_that_its_lines_leave_open(image, index):
    index.add("demo", "1.0")
    project(["torch>=2.2,<2.5", "demo"], {"torch": "2.3.1"})
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    assert locked()["torch"].partition("+")[0] == "2.3.1"
    lock = json.loads(Path("out", "provision.lock").read_text())
    assert lock["request"]["torch"] == "<2.5,>=2.2"
    assert "others are taken" not in answer.err


def test_the_day_is_kept_and_counts_for_what_comes_later(image, index):
    index.add("demo", "1.0", day="2024-01-01T00:00:00Z")
    index.add("demo", "2.0", day="2025-06-01T00:00:00Z")
    Path("r.txt").write_text("demo\n")
    words = ("--torch", TORCH, "-r", "r.txt", "-o", "out")
    answer = image(*words, "--exclude-newer", "2025-01-01")
    assert answer.code == 0, answer.err
    assert json.loads(Path("out", "provision.options.json").read_text())["exclude_newer"] == "2025-01-01"
    assert image(*words, "--check").code == 0
    assert image("-o", "out", "--locked").code == 0
    answer = image("-o", "out", "--upgrade", "demo")
    assert answer.code == 0, answer.err
    assert "packages published after 2025-01-01 do not count" in answer.err
    assert locked()["demo"] == "1.0"
    answer = image("-o", "out", "--upgrade", "demo", "--exclude-newer", "2025-07-01")
    assert answer.code == 0, answer.err
    assert locked()["demo"] == "2.0"
    assert json.loads(Path("out", "provision.options.json").read_text())["exclude_newer"] == "2025-07-01"


def test_a_day_to_come_is_refused(image):
    Path("r.txt").write_text("demo\n")
    day = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)).date().isoformat()
    answer = image("--torch", TORCH, "-r", "r.txt", "-o", "out", "--exclude-newer", day)
    assert answer.code == 2
    assert f"--exclude-newer {day} is in the future" in answer.err
    assert not Path("out").exists()


def test_what_the_facts_refuse_names_only_ways_that_the_lines_go_with(image, index):
    index.add("demo", "1.0", "torch<2.4")
    Path("r.txt").write_text("demo\n")
    words = ("--torch", "2.3", "--cuda", "12.4", "-r", "r.txt", "-o", "out")
    answer = image(*words, "--json")
    assert answer.code == 3, answer.err
    commands = [item["command"] for item in answer.document["error"]["alternatives"]]
    assert any("--torch 2.3 --cuda 12.1 -r r.txt" in command for command in commands)
    assert not any("--torch 2.4" in command for command in commands)  # the facts alone would name it
    assert "also tried, without success: torch 2.4" in answer.document["error"]["hints"][-1]
    answer = image(*words, "--offline")
    assert "--torch 2.4 --cuda 12.4" in answer.err
    assert not Path("out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_index_is_waited_for_leaves_nothing(command, environment, tmp_path, number):
    (tmp_path / "r.txt").write_text("demo\n")
    (tmp_path / "scratch").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        words = [*command, "image", "--torch", TORCH, "-r", "r.txt", "-o", "out", "--index-url", url]
        changed = {"TMPDIR": str(tmp_path / "scratch"), "UV_CACHE_DIR": str(tmp_path / "cache")}
        kept = {name: value for name, value in environment.items() if name != "UV_OFFLINE"}
        child = subprocess.Popen(
            words, cwd=tmp_path, env={**kept, **changed}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        connection, _ = server.accept()  # uv has asked, and waits
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
        connection.close()
    assert child.returncode == 130
    assert said.splitlines()[-1] == "error: interrupted"
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "scratch").iterdir())


STACKS = f"""
[defaults]
requirements = "r.txt"

[[stack]]
torch = "{TORCH}"
python = ["3.11", "3.12"]

[[stack]]
name = "own"
torch = "2.3.1"
python = "3.11"
exclude-newer = "2024-06-01"
"""


def test_every_stack_of_a_matrix_is_locked_whole(image, index):
    index.add("demo", "1.0", "helper")
    index.add("demo", "2.0", "helper", day="2025-01-01T00:00:00Z")
    index.add("helper", "1.0")
    Path("r.txt").write_text("demo\n")
    Path("stacks.toml").write_text(STACKS)
    answer = image("--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 0, answer.err
    names = sorted(path.parent.name for path in Path("out").glob("*/provision.lock"))
    assert len(names) == 3
    assert {name: locked(f"out/{name}")["demo"] for name in names} == {
        name: "1.0" if name == "own" else "2.0" for name in names
    }
    for name in names:
        assert "--hash=sha256:" in Path("out", name, "requirements.user.txt").read_text()
        assert "provision-uv" not in Path("out", name, "Dockerfile").read_text()
    single = image("-r", "r.txt", "--torch", TORCH, "--python", "3.12", "-o", "single")
    assert single.code == 0, single.err
    folder = next(name for name in names if name.endswith("py312"))
    assert Path("single", "provision.lock").read_text() == Path("out", folder, "provision.lock").read_text()
    assert image("--matrix", "stacks.toml", "-o", "out", "--check").code == 0
    asked = len(index.asked)
    answer = image("--matrix", "stacks.toml", "-o", "out", "--locked")
    assert answer.code == 0, answer.err
    assert len(index.asked) == asked  # a lock is kept without an index
    Path("r.txt").write_text("demo\nhelper\n")
    assert image("--matrix", "stacks.toml", "-o", "out", "--locked").code == 8


def test_a_stack_of_a_matrix_that_the_index_refuses_is_named_and_nothing_is_written(image, index):
    index.add("demo", "1.0", "torch==2.3.1")
    Path("r.txt").write_text("demo==1.0\n")
    Path("stacks.toml").write_text(STACKS)
    answer = image("--matrix", "stacks.toml", "-o", "out", "--json")
    assert answer.code == 3
    error = answer.document["error"]
    assert error["message"] == "2 of 3 stacks cannot be resolved"
    assert [row["where"] for row in error["refused"]] == [
        "stacks.toml: [[stack]] 1, python 3.11",
        "stacks.toml: [[stack]] 1, python 3.12",
    ]
    assert "torch 2.3.1 --python 3.11 -r r.txt` works" in " ".join(error["hints"])
    assert not Path("out").exists()


def test_old_pins_beside_an_open_framework_are_warned_of_with_a_day_that_was_tried(image, index):
    index.add("accelerate", "0.21.0", "torch>=1.10")
    index.add("torch", TORCH, day="2026-01-01T00:00:00Z")
    for name, files in index.files.items():
        for file, (content, _) in files.items():
            if TORCH not in file or name != "torch":
                files[file] = (content, "2023-07-13T00:00:00Z")
    Path("r.txt").write_text("accelerate==0.21.0\n")
    words = ("--torch", ">=2.3,<2.5", "-r", "r.txt", "-o", "out", "--dry-run")
    answer = image(*words)
    assert answer.code == 0, answer.err
    assert "accelerate 0.21.0 is of 2023-07-13 at the latest, and torch 2.4.1" in answer.err
    assert "--exclude-newer 2023-07-13` takes torch 2.3.1" in answer.err
    assert "they were not made for it" not in image(*words, "--exclude-newer", "2026-02-01").err
    index.files["torch"].pop("torch-2.3.1-py3-none-any.whl")
    assert "`--exclude-newer 2023-07-13` was tried, and gives none" in image(*words).err


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for loopback with its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    words += ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(words, check=True, capture_output=True)
    (folder / "both").write_text((folder / "cert").read_text() + (folder / "key").read_text())
    return folder


@pytest.fixture
def published(certificate, monkeypatch):
    """A server that stands for the one where a project publishes its wheels, which knows flash-attn."""
    with package_index.serve(certificate / "both") as served:
        served.add("flash-attn", "2.8.3", "torch", "einops", tag="cp311-cp311-linux_x86_64")
        address = f"{served.url}/flash-attn/flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
        wheels = (("2.8.3", address),)
        monkeypatch.setattr(prebuilt, "prebuilt_wheels", lambda *_, is_known: wheels if is_known else ())
        served.ca_cert, served.address = str(certificate / "cert"), address
        yield served


def flash_attn():
    packages = json.loads(Path("out/provision.lock").read_text())["image"]["packages"]
    return next(item for item in packages if item["name"] == "flash-attn")


def test_a_wheel_that_its_project_publishes_is_locked_in_place_of_a_build(image, index, published):
    for name in ("einops", "ninja", "packaging", "setuptools"):
        index.add(name, "25.0")
    words = ("--torch", "2.4.1", "--python", "3.11", "--with", "flash-attn", "-o", "out", "--ca-cert")
    answer = image(*words, published.ca_cert)
    assert answer.code == 0, answer.err
    assert f"flash-attn @ {published.address} takes the place of what would be compiled" in answer.err
    row = flash_attn()
    content = published.files["flash-attn"]["flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"][0]
    assert (row["url"], row["sha256"]) == (published.address, hashlib.sha256(content).hexdigest())
    assert "nvcc" not in Path("out/Dockerfile").read_text()
    assert image(*words, published.ca_cert, "--check").code == 0
    assert image("-o", "out", "--upgrade", "einops", "--ca-cert", published.ca_cert).code == 0
    assert flash_attn() == row


def test_a_published_wheel_whose_hash_is_a_fact_is_locked_by_it(image, index, published, monkeypatch):
    for name in ("einops", "ninja", "packaging", "setuptools"):
        index.add(name, "25.0")
    content = published.files["flash-attn"]["flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"][0]
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(prebuilt, "hash_of", lambda *_: digest)
    words = ("--torch", "2.4.1", "--python", "3.11", "--with", "flash-attn", "-o", "out", "--ca-cert")
    answer = image(*words, published.ca_cert)
    assert answer.code == 0, answer.err
    assert "takes the place of what would be compiled; its hash is a fact" in answer.err
    assert (flash_attn()["url"], flash_attn()["sha256"]) == (published.address, digest)
    assert image(*words, published.ca_cert, "--check").code == 0


def test_a_wheel_that_no_fact_names_is_asked_for_and_taken_where_it_is_served(image, index, published, monkeypatch):
    for name in ("einops", "ninja", "packaging", "setuptools"):
        index.add(name, "25.0")
    wheels = (("2.8.3.post1", f"{published.address}.none"), ("2.8.3", published.address), ("2.8.2", published.address))
    monkeypatch.setattr(prebuilt, "prebuilt_wheels", lambda *_, is_known: () if is_known else wheels)
    words = ("--torch", "2.9.1", "--python", "3.11", "--with", "flash-attn", "-o", "out", "--ca-cert")
    answer = image(*words, published.ca_cert)
    assert answer.code == 0, answer.err
    assert f"flash-attn @ {published.address} takes the place of what would be compiled" in answer.err
    assert flash_attn()["url"] == published.address
    assert image(*words, published.ca_cert, "--check").code == 0


def test_a_published_wheel_stays_where_the_code_moves_another_package(image, index, published):
    for name in ("einops", "ninja", "packaging", "setuptools", "wheel", "psutil"):
        index.add(name, "25.0")
    index.add_source("flash-attn", "2.8.3", "torch", "einops")
    for version, code in (("1.0", "old = 1"), ("2.0", "")):
        index.add("demo", version, code={"demo/__init__.py": f"{code}\n"})
    Path("app").mkdir()
    Path("app", "main.py").write_text("from demo import old\n")
    Path("app", "lines.txt").write_text("demo\n")
    words = ("--torch", "2.4.1", "--python", "3.11", "--with", "flash-attn", "-r", "app/lines.txt", "--copy", "app")
    answer = image(*words, "-o", "out", "--ca-cert", published.ca_cert)
    assert answer.code == 0, answer.err
    assert "1.0 is taken, as `demo<2.0` in your lines would" in answer.err
    assert answer.err.count(f"flash-attn @ {published.address} takes the place of what would be compiled") == 1
    assert flash_attn()["url"] == published.address


def test_where_the_address_does_not_answer_it_is_compiled_and_a_warning_says_so(image, index, published):
    for name in ("einops", "ninja", "packaging", "setuptools", "wheel", "psutil"):
        index.add(name, "25.0")
    index.add_source("flash-attn", "2.8.3", "torch", "einops")
    published.files.clear()
    words = ("--torch", "2.4.1", "--python", "3.11", "--with", "flash-attn", "-o", "out")
    answer = image(*words, "--ca-cert", published.ca_cert)
    assert answer.code == 0, answer.err
    assert "takes the place of" not in answer.err
    assert f"the line `flash-attn @ {published.address}` takes in its place" in answer.err
    assert "AS compile" in Path("out/Dockerfile").read_text()


def test_packages_that_the_projects_last_commit_cannot_know_are_warned_of(image, index):
    for version, day in (("1.0", "2023-01-01T00:00:00Z"), ("2.0", "2026-01-01T00:00:00Z")):
        index.add("demo", version, day=day)
    project(["torch==2.3.1", "demo"])
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-c", "init.defaultBranch=main")
    day = {**os.environ, "GIT_COMMITTER_DATE": "2024-05-01T12:00:00Z", "GIT_AUTHOR_DATE": "2024-05-01T12:00:00Z"}
    for words in (("init", "-q"), ("add", "pyproject.toml"), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *words], check=True, env=day)
    words = ("--project", ".", "-o", "out", "--dry-run")
    answer = image(*words)
    assert answer.code == 0, answer.err
    assert "last commit of . is of 2024-05-01; more than a year younger is demo 2.0: if its code fails" in answer.err
    assert f"--index-url {index.url} --exclude-newer 2024-05-01` takes what was there then" in answer.err
    assert "last commit" not in image(*words, "--exclude-newer", "2026-02-01").err
    subprocess.run(
        [*git, "commit", "-q", "--amend", "-C", "HEAD"],
        check=True,
        env={**os.environ, "GIT_COMMITTER_DATE": "2025-06-01T12:00:00Z"},
    )
    assert "last commit" not in image(*words).err


def test_a_file_must_have_one_of_the_hashes_that_its_line_states(image, index):
    index.add("demo", "1.0")
    content = index.files["demo"]["demo-1.0-py3-none-any.whl"][0]
    own, other = hashlib.sha256(content).hexdigest(), "0" * 64
    Path("r.txt").write_text(f"demo==1.0 \\\n    --hash=sha256:{other} \\\n    --hash=sha256:{own}\n")
    answer = image("-r", "r.txt", "--torch", TORCH, "-o", "out")
    assert answer.code == 0, answer.err
    Path("r.txt").write_text(f"demo==1.0 --hash=sha256:{other}\n")
    assert f"has sha256:{own}" in image("-r", "r.txt", "--torch", TORCH, "-o", "other").err
    Path("stacks.toml").write_text(STACKS)
    for words in (("-r", "r.txt", "--torch", TORCH), ("--matrix", "stacks.toml")):
        answer = image(*words, "-o", "other")
        assert answer.code == 3
        assert "r.txt, line 1: the file of demo 1.0 on the index has none of the hashes stated" in answer.err
        assert not Path("other").exists()


@pytest.mark.parametrize(("line", "pyarrow"), [("numpy<2", "25.0.1"), ("numpy", "26.0.0")])
def test_a_need_that_no_metadata_says_leads_to_an_older_release_where_a_line_excludes_it(image, index, line, pyarrow):
    for name, version in (("numpy", "1.26.4"), ("numpy", "2.4.0"), ("pyarrow", "25.0.1"), ("pyarrow", "26.0.0")):
        index.add(name, version)
    index.add("demo", "1.0", "pyarrow")
    project([f"torch=={TORCH}", line, "demo"])
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    assert locked()["pyarrow"] == pyarrow


def test_only_what_brought_a_bound_that_cannot_be_met_is_taken_in_an_older_release(image, index):
    for name, version in (("numpy", "1.26.4"), ("numpy", "2.4.0"), ("pyarrow", "25.0.1"), ("pyarrow", "26.0.0")):
        index.add(name, version)
    for version in ("4.55.4", "4.57.1"):
        index.add("transformers", version)
    index.add("autoawq", "0.1.8", "transformers")
    index.add("autoawq", "0.2.9", "transformers", "pyarrow")
    project([f"torch=={TORCH}", "numpy<2", "autoawq"])
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    taken = locked()
    assert (taken["autoawq"], taken["transformers"], taken["pyarrow"]) == ("0.2.9", "4.55.4", "25.0.1")


def test_a_release_that_a_line_names_is_kept_where_a_bound_of_another_package_has_to_give_way(image, index):
    for name, version in (("numpy", "1.26.4"), ("numpy", "2.4.0"), ("pyarrow", "25.0.1"), ("pyarrow", "26.0.0")):
        index.add(name, version)
    for version in ("4.55.4", "4.57.1"):
        index.add("transformers", version)
    index.add("autoawq", "0.2.9", "transformers")
    index.add("demo", "1.0", "pyarrow", "numpy<2")
    project([f"torch=={TORCH}", "autoawq==0.2.9", "demo"])
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    taken = locked()
    assert (taken["autoawq"], taken["transformers"], taken["pyarrow"]) == ("0.2.9", "4.55.4", "25.0.1")


def test_lines_that_a_fact_alone_sets_against_each_other_are_refused_with_that_fact(image, index):
    index.add("transformers", "4.57.1")
    index.add("autoawq", "0.2.9", "transformers")
    project([f"torch=={TORCH}", "autoawq==0.2.9", "transformers==4.57.1"])
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 3, answer.err
    assert "error: your requirements exclude each other\n" in answer.err
    assert "autoawq >=0.2 needs transformers!=4.57.*, which its metadata does not say: import awq" in answer.err


def test_a_line_that_wants_what_another_package_cannot_have_is_refused(image, index):
    for name, version in (("numpy", "1.26.4"), ("numpy", "2.4.0"), ("pyarrow", "25.0.1"), ("pyarrow", "26.0.0")):
        index.add(name, version)
    project([f"torch=={TORCH}", "numpy<2", "pyarrow>=26"])
    answer = image("--project", ".", "-o", "out")
    assert answer.code == 3, answer.err
    assert "numpy>=2" in answer.err
