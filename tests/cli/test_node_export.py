"""`provision node export`: what it says about the site, and what comes next."""

from __future__ import annotations

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


@pytest.mark.parametrize("words", [("--archive", "site.zip"), ()])
def test_place_that_is_none_is_refused_with_one_that_is(
    provision: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = provision("node", "export", *words)
    assert answer.code == 2
    assert "hint: " in answer.err
    assert list(tmp_path.iterdir()) == []
