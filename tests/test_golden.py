"""Whole build contexts, compared byte for byte with those in tests/golden and read by the tools their readers use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden_cases import CASES
from packaging.requirements import Requirement

from provision.assets import asset_dir
from provision.generate.image import render_image

GOLDEN = Path(__file__).with_name("golden")
COPIED = ("compile_bytecode.py", "entrypoint.sh", "verify.py")


def _files(case) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in render_image(case.stack, case.options)}


def _tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: install the extra `test`")
    return found


def test_golden(golden_name: str, golden_case, update_golden: bool) -> None:
    files = _files(golden_case)
    for name in COPIED:
        if name in files:
            assert files.pop(name) == (asset_dir("images") / name).read_text(encoding="utf-8")
    folder = GOLDEN / golden_name
    if update_golden:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path, text in files.items():
            (folder / path).write_text(text, encoding="utf-8")
    have = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert sorted(have) == sorted(files)
    for path, text in files.items():
        assert have[path] == text, f"{golden_name}/{path}: look at it, then run pytest --update-golden"


def test_no_golden_folder_is_an_orphan() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    paths = [str(GOLDEN / name / "Dockerfile") for name in sorted(CASES)]
    # Run where no configuration file can hide a finding.
    done = subprocess.run([_tool("hadolint"), *paths], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert not any("hadolint" in Path(path).read_text(encoding="utf-8") for path in paths)


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(
        [_tool("shellcheck"), str(asset_dir("images") / "entrypoint.sh")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_requirements_parse_and_every_locked_line_has_one_hash(golden_case) -> None:
    files = _files(golden_case)
    for path, text in files.items():
        if not path.startswith(("requirements.", "tools.", "constraints.")):
            continue
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            requirement, _, digest = line.partition(" --hash=sha256:")
            Requirement(requirement)
            is_whole = golden_case.stack.image.is_whole
            is_open = path in ("constraints.txt", "requirements.git.txt", "requirements.git.1.txt")
            is_open |= not is_whole and path in ("requirements.user.txt", "requirements.source.txt")
            is_locked = not is_open and "unverified" not in path
            assert bool(digest) == is_locked
            assert len(digest) in (0, 64)


def test_layers_are_the_lock_cut_in_pieces(golden_case) -> None:
    files = _files(golden_case)
    if "requirements.lock.txt" not in files:
        return

    def lines(path: str) -> set[str]:
        return set(files.get(path, "").splitlines()[1:])

    names = ("cuda", "framework", "rest", *(("user", "build", "build.1") if golden_case.stack.image.is_whole else ()))
    pieces = [lines(f"requirements.{layer}.txt") for layer in names]
    assert set.union(*pieces) == lines("requirements.lock.txt")
    assert sum(map(len, pieces)) == len(lines("requirements.lock.txt"))


def test_dockerfile_names_only_files_of_the_context(golden_case) -> None:
    files = _files(golden_case)
    allowed = {line[1:] for line in files[".dockerignore"].splitlines() if line.startswith("!")}
    own = {path for path in allowed if path.startswith(("code/", "hooks/"))}
    assert allowed - own == set(files) - {".dockerignore"}
    assert bool(own) == bool(golden_case.options.copies or golden_case.options.hooks)
    files |= dict.fromkeys((*own, *(f"{path}/" for path in own)), "")
    for line in files["Dockerfile"].splitlines():
        words = line.split()
        if "--mount=type=bind,source=" in line:
            assert line.split("source=")[1].split(",")[0] in files
        if words[:1] == ["COPY"] and "--from" not in line:
            assert set(words[1:-1]) - {"--link", "--chown=10001:10001"} <= set(files)


def test_frontends_use_only_what_their_engine_knows(golden_case) -> None:
    text = _files(golden_case)["Dockerfile"]
    frontend = golden_case.options.frontend
    assert ("COPY --link" in text) == (frontend == "modern")
    assert ("--mount" in text) == (frontend != "classic" and golden_case.stack.python is not None)
    assert "<<" not in text.replace(">>", "")
    assert text.startswith("# syntax=") == (golden_case.options.syntax is not None)


def test_image_is_not_root_and_carries_no_installer_or_certificate(golden_case) -> None:
    text = _files(golden_case)["Dockerfile"]
    final = text[text.index("AS runtime") :]
    uid = golden_case.options.non_root_uid
    assert f"\nUSER {uid}:{uid}\n" in final
    copied = [line for line in final.splitlines() if line.startswith("COPY")]
    # Of the tools the image has the init, and the installer where it is worked in.
    tools = [line for line in text.splitlines() if line.startswith("COPY") and "--from=tools" in line]
    programs = ["dumb-init"] if golden_case.stack.python else []
    programs += ["uv"] if golden_case.stack.image.flavor == "dev" else []
    words = [f"/opt/tools/bin/{name}" for name in programs]
    assert [line.split("--from=tools ")[1].split() for line in tools] == (
        [[*words, "/usr/local/bin/"]] if words else []
    )
    copied = [line for line in copied if line not in tools]
    assert not any("provision-ca" in line or "tools" in line for line in copied)
    has_path = golden_case.stack.image.library_path
    assert ("LD_LIBRARY_PATH" in text) == bool(has_path)


def test_expectations_do_not_change_with_the_users_own_lines() -> None:
    files = _files(CASES["torch-user-requirements"])
    others = _files(CASES["torch-cu121"])
    assert files["expect.json"] == others["expect.json"]
    assert files["provision.lock"] != others["provision.lock"]
    assert json.loads(files["expect.json"])["packages"] == json.loads(files["provision.lock"])["packages"]
