"""`provision node export`: what it says about the site, and what comes next."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Answer = Any


def test_next_step_follows_what_is_filled_in(provision: Callable[..., Answer], tmp_path: Path) -> None:
    site = tmp_path / "my site"
    fresh = provision("node", "export", "-o", site)
    assert fresh.code == 0
    assert f"next: fill in {site}/inventory/hosts.yml; {site}/README.md" in fresh.err
    (site / "inventory" / "hosts.yml").write_text("gpu_nodes: {hosts: {gpu01: }}\n")
    filled = provision("node", "export", "-o", site)
    assert "kept what somebody has filled in: inventory/hosts.yml" in filled.err
    assert f"next: `ansible-playbook -i '{site}'/inventory '{site}'/site.yml --check --diff`" in filled.err
    assert "next:" not in provision("node", "export", "-o", site, "--dry-run").err


def test_archive_is_to_be_unpacked(provision: Callable[..., Answer], tmp_path: Path) -> None:
    archive = tmp_path / "site.tar.gz"
    assert f"next: unpack {archive}" in provision("node", "export", "--archive", archive).err


def test_archive_on_a_read_only_file_system_is_a_failure_with_a_way_out(
    provision: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    # There even the removal of a file that is not there is refused.
    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    answer = provision("node", "export", "--archive", tmp_path / "site.tar.gz")
    assert answer.code == 5
    assert "because Read-only file system" in answer.err
    assert "hint: name another file with `--archive" in answer.err


@pytest.mark.parametrize("words", [("--archive", "site.zip"), ()])
def test_place_that_is_none_is_refused_with_one_that_is(
    provision: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = provision("node", "export", *words)
    assert answer.code == 2
    assert "hint: " in answer.err
    assert list(tmp_path.iterdir()) == []
