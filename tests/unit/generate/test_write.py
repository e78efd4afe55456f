"""provision.generate.write: all or nothing, nobody else's files, and drift."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from provision.errors import ActionFailedError, DriftError, UsageError
from provision.generate import write
from provision.generate.write import Artifact, check_artifacts, write_artifacts

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
    assert written == ("Dockerfile", "entrypoint.sh")
    assert (tmp_path / "a/b/Dockerfile").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "a/b/entrypoint.sh").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["Dockerfile", "entrypoint.sh"]


def test_second_run_writes_only_what_changed(tmp_path: Path) -> None:
    write_artifacts(tmp_path, ARTIFACTS)
    stamp = (tmp_path / "Dockerfile").stat().st_mtime_ns
    changed = (ARTIFACTS[0], Artifact(path="entrypoint.sh", text="#!/bin/sh\nexit\n", mode=0o755))
    assert write_artifacts(tmp_path, changed) == ("entrypoint.sh",)
    assert (tmp_path / "Dockerfile").stat().st_mtime_ns == stamp
    assert write_artifacts(tmp_path, changed) == ()


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    assert write_artifacts(tmp_path / "new", ARTIFACTS, dry_run=True) == ("Dockerfile", "entrypoint.sh")
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
    assert "Dockerfile" in write_artifacts(tmp_path, ARTIFACTS)


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
    with pytest.raises(ValueError, match="no path inside"):
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
    write_artifacts(tmp_path, fewer)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dockerignore", "Dockerfile", "notes.txt"]
