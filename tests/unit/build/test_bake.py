"""Baking, with a stand-in for the docker command on PATH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.build.bake import bake
from provision.build.progress import Step
from provision.errors import ActionFailedError, MissingDependencyError

METADATA = {
    "notebook": {
        "containerimage.digest": "sha256:1",
        "image.name": "r.example/notebook:latest,r.example/notebook:lock-1",
    },
    "tools-1": {"buildx.build.ref": "x"},
}


def ignore(_event: str, _step: Step, _text: str) -> None:
    """Observe nothing."""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Put a docker command on PATH that notes its words and folder, and does what a script says."""

    def make(script: str) -> Path:
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\npwd >> {tmp_path}/calls\necho "$*" >> {tmp_path}/calls\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return tmp_path / "calls"

    return make


WRITES = f"for word; do case $word in --metadata-file=*) echo '{json.dumps(METADATA)}' > ${{word#*=}};; esac; done"


@pytest.mark.parametrize("is_push", [True, False])
def test_a_bake_runs_in_the_folder_with_the_selected_builder(docker, tmp_path, is_push):
    calls = docker(WRITES)
    folder = tmp_path / "many"
    folder.mkdir()
    images = bake(folder, is_push=is_push, observer=ignore, log_path=tmp_path / "log")
    assert images == {
        "notebook": {"digest": "sha256:1", "tags": ["r.example/notebook:latest", "r.example/notebook:lock-1"]}
    }
    place, words = calls.read_text().splitlines()
    assert place == str(folder)
    assert words.startswith("buildx bake --progress=plain --file=docker-bake.hcl ")
    assert ("--push" in words, "--load" in words) == (is_push, not is_push)
    assert "--builder" not in words


def test_a_builder_that_says_nothing_gives_nothing(docker, tmp_path):
    docker(":")
    assert bake(tmp_path, is_push=False, observer=ignore) == {}


def test_a_failed_step_is_named(docker, tmp_path):
    docker("echo '#5 [notebook runtime 2/3] RUN false'; echo '#5 ERROR: exit code: 1'; exit 1")
    with pytest.raises(ActionFailedError) as caught:
        bake(tmp_path, is_push=False, observer=ignore, log_path=tmp_path / "log")
    assert "notebook runtime 2/3" in caught.value.message
    assert "RUN false" in (tmp_path / "log").read_text()


def test_no_docker_command_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError) as caught:
        bake(tmp_path, is_push=False, observer=ignore)
    assert caught.value.hints


def test_a_driver_without_a_registry_cache_is_explained(docker, tmp_path):
    docker("echo 'ERROR: Cache export is not supported for the docker driver.' >&2; exit 1")
    with pytest.raises(ActionFailedError) as caught:
        bake(tmp_path, is_push=False, observer=ignore)
    assert "`docker` driver" in caught.value.because[0]
    assert any("CACHE=" in hint for hint in caught.value.hints)
    assert f"cd {tmp_path} && docker buildx bake" in caught.value.hints[-1]
    assert not any("buildx build" in hint for hint in caught.value.hints)
