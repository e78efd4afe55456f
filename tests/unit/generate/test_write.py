"""provision.generate.write: all or nothing, nobody else's files, and drift."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from golden_cases import CASES

from provision.errors import ActionFailedError, DriftError, UsageError
from provision.generate import write
from provision.generate.image import render_image
from provision.generate.write import Artifact, Changes, check_artifacts, write_artifacts

if TYPE_CHECKING:
    from pathlib import Path

HEADER = f"# provision.lock sha256:{'a' * 64}\n"
ARTIFACTS = (
    Artifact(path="Dockerfile", text=f"{HEADER}FROM x\n"),
    Artifact(path="entrypoint.sh", text="#!/bin/sh\n", mode=0o755),
)


def test_writes_with_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        written = write_artifacts(tmp_path / "a" / "b", ARTIFACTS)
    finally:
        os.umask(before)
    assert written.written == ("Dockerfile", "entrypoint.sh")
    assert (tmp_path / "a/b/Dockerfile").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "a/b/entrypoint.sh").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["Dockerfile", "entrypoint.sh"]


def test_second_run_writes_only_what_changed(tmp_path: Path) -> None:
    write_artifacts(tmp_path, ARTIFACTS)
    stamp = (tmp_path / "Dockerfile").stat().st_mtime_ns
    changed = (ARTIFACTS[0], Artifact(path="entrypoint.sh", text="#!/bin/sh\nexit\n", mode=0o755))
    assert write_artifacts(tmp_path, changed) == Changes(written=("entrypoint.sh",))
    assert (tmp_path / "Dockerfile").stat().st_mtime_ns == stamp
    assert write_artifacts(tmp_path, changed) == Changes()


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    assert write_artifacts(tmp_path / "new", ARTIFACTS, dry_run=True).written == ("Dockerfile", "entrypoint.sh")
    assert not (tmp_path / "new").exists()


def test_somebody_elses_dockerfile_is_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "Dockerfile"
    theirs.write_text("FROM debian\n", encoding="utf-8")
    with pytest.raises(UsageError, match="was not written by this program") as caught:
        write_artifacts(tmp_path, ARTIFACTS)
    assert any("--force" in hint for hint in caught.value.hints)
    assert [path.name for path in tmp_path.iterdir()] == ["Dockerfile"]
    assert theirs.read_text(encoding="utf-8") == "FROM debian\n"
    write_artifacts(tmp_path, ARTIFACTS, force=True)
    assert theirs.read_text(encoding="utf-8").startswith(HEADER)


def test_our_own_dockerfile_is_written_over_even_below_a_syntax_line(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"# syntax=x\n{HEADER}FROM old\n", encoding="utf-8")
    assert "Dockerfile" in write_artifacts(tmp_path, ARTIFACTS).written


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        write_artifacts(tmp_path / "out", ARTIFACTS)


@pytest.mark.parametrize("name", ["Dockerfile", "entrypoint.sh"])
def test_a_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept", encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        write_artifacts(out, ARTIFACTS, force=True)
    assert elsewhere.read_text(encoding="utf-8") == "kept"


def test_a_link_to_nothing_and_a_folder_in_a_files_place(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="link to nothing"):
        write_artifacts(tmp_path / "dangling", ARTIFACTS)
    (tmp_path / "out" / "Dockerfile").mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder"):
        write_artifacts(tmp_path / "out", ARTIFACTS)


def test_full_disk_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_artifacts(tmp_path / "out", ARTIFACTS)
    calls = []

    def chmod(path: object, mode: int) -> None:
        calls.append((path, mode))
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write.Path, "chmod", chmod)
    changed = tuple(Artifact(path=item.path, text=item.text + "# more\n", mode=item.mode) for item in ARTIFACTS)
    for folder in (tmp_path / "out", tmp_path / "new" / "deep"):
        calls.clear()
        with pytest.raises(ActionFailedError) as caught:
            write_artifacts(folder, changed)
        assert "No space left" in caught.value.because[0]
    check_artifacts(tmp_path / "out", ARTIFACTS)
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert not (tmp_path / "new").exists()


def test_a_place_where_nothing_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(self: Path, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(write.Path, "mkdir", mkdir)
    with pytest.raises(ActionFailedError, match="cannot write") as caught:
        write_artifacts(tmp_path / "out", ARTIFACTS)
    assert "Read-only file system" in caught.value.because[0]


def test_drift_names_each_file(tmp_path: Path) -> None:
    write_artifacts(tmp_path, ARTIFACTS)
    check_artifacts(tmp_path, ARTIFACTS)
    (tmp_path / "Dockerfile").write_text("edited", encoding="utf-8")
    (tmp_path / "entrypoint.sh").unlink()
    with pytest.raises(DriftError) as caught:
        check_artifacts(tmp_path, ARTIFACTS)
    assert caught.value.because == ("Dockerfile differs", "entrypoint.sh is missing")


def test_lost_permission_bits_are_drift(tmp_path: Path) -> None:
    write_artifacts(tmp_path, ARTIFACTS)
    (tmp_path / "entrypoint.sh").chmod(0o644)
    with pytest.raises(DriftError):
        check_artifacts(tmp_path, ARTIFACTS)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ""])
def test_no_path_leaves_the_folder(path: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        Artifact(path=path, text="")


def test_file_of_an_earlier_write_that_is_no_longer_wanted_is_removed(tmp_path):
    extra = Artifact(path="requirements.unverified.txt", text="torch\n")
    ignore = Artifact(path=".dockerignore", text="*\n!Dockerfile\n!requirements.unverified.txt\n")
    write_artifacts(tmp_path, (ARTIFACTS[0], extra, ignore))
    (tmp_path / "notes.txt").write_text("mine\n")
    fewer = (ARTIFACTS[0], Artifact(path=".dockerignore", text="*\n!Dockerfile\n"))
    with pytest.raises(DriftError) as caught:
        check_artifacts(tmp_path, fewer)
    assert "requirements.unverified.txt would be removed" in caught.value.because
    removed = Changes(written=(".dockerignore",), removed=("requirements.unverified.txt",))
    assert write_artifacts(tmp_path, fewer, dry_run=True) == removed
    assert (tmp_path / "requirements.unverified.txt").is_file()
    assert write_artifacts(tmp_path, fewer) == removed
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dockerignore", "Dockerfile", "notes.txt"]


@pytest.mark.parametrize(
    "name", ["notes.txt", "requirements.txt", "requirements.mine.txt", "entrypoint.sh.bak", "main.py"]
)
def test_file_that_only_an_edited_dockerignore_names_is_kept(tmp_path: Path, name: str) -> None:
    ignore = Artifact(path=".dockerignore", text="*\n!Dockerfile\n")
    write_artifacts(tmp_path, (ARTIFACTS[0], ignore))
    (tmp_path / name).write_text("mine\n")
    (tmp_path / ".dockerignore").write_text(f"*\n!Dockerfile\n!{name}\n")
    assert write_artifacts(tmp_path, (ARTIFACTS[0], ignore)) == Changes(written=(".dockerignore",))
    assert (tmp_path / name).read_text() == "mine\n"


def test_every_file_of_a_context_can_be_taken_away_again(tmp_path: Path) -> None:
    for name, case in CASES.items():
        artifacts = render_image(case.stack, case.options)
        write_artifacts(tmp_path / name, artifacts)
        bare = (ARTIFACTS[0], Artifact(path=".dockerignore", text="*\n"))
        removed = write_artifacts(tmp_path / name, bare).removed
        assert {*removed, "Dockerfile", ".dockerignore"} == {artifact.path for artifact in artifacts}


@pytest.mark.parametrize("has_dockerfile", [False, True])
def test_files_of_somebody_else_are_kept(tmp_path: Path, has_dockerfile: bool) -> None:
    names = ["entrypoint.sh", *(["Dockerfile"] if has_dockerfile else [])]
    for name in names:
        (tmp_path / name).write_text("theirs\n")
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="was not written by this program") as caught:
            write_artifacts(tmp_path, ARTIFACTS, dry_run=dry_run)
        assert all(name in caught.value.message for name in names)
        assert any("--force" in hint for hint in caught.value.hints)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "theirs\n")
    assert write_artifacts(tmp_path, ARTIFACTS, force=True).written == ("Dockerfile", "entrypoint.sh")


def test_the_same_file_is_nobodys_loss(tmp_path: Path) -> None:
    (tmp_path / "entrypoint.sh").write_text(ARTIFACTS[1].text)
    (tmp_path / "entrypoint.sh").chmod(0o755)
    assert write_artifacts(tmp_path, ARTIFACTS).written == ("Dockerfile",)
