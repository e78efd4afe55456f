"""`provision image --engine`: what the flags mean, before anything is loaded."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from provision.cli.main import main
from provision.errors import UsageError

STACK = ("image", "--torch", "2.1.2", "--cuda", "12.1", "--python", "3.11")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in, with a base that is none yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_OFFLINE", "1")
    (tmp_path / "base").mkdir()
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict, str]:
    code = main([*words, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out), said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "oci"), "--engine oci needs the base image as files"),
        (("--engine", "oci", "--base-layout", "absent"), "--base-layout: absent does not exist"),
        (("--base-layout", "base"), "--base-layout is about `--engine oci`"),
        (("--engine", "docker", "--build", "--base-layout", "base"), "--base-layout is about `--engine oci`"),
        (("--layer-cache", "5"), "--layer-cache is about `--engine oci`"),
        (("--engine", "docker", "--build", "--layer-cache", "5"), "--layer-cache is about `--engine oci`"),
        (
            ("--engine", "oci", "--base-layout", "base", "--layer-cache", "some"),
            "--layer-cache `some` is not a number of GiB",
        ),
        (("--engine", "docker"), "--engine is about a build"),
        (("--engine", "oci", "--push", "--tag", "a"), "--push and --engine oci exclude each other"),
        (("--engine", "oci", "--builder", "sdk"), "--builder and --engine oci exclude each other"),
        (
            ("--engine", "oci", "--base-layout", "base", "--compression", "estargz"),
            "--compression estargz needs an engine",
        ),
        (
            ("--engine", "oci", "--base-layout", "base", "--output", "type=docker,dest=x.tar"),
            "--output type=docker needs an engine",
        ),
        (
            ("--engine", "oci", "--base-layout", "base", "--output", "type=oci,dest=x.tar,rewrite-timestamp=true"),
            "--output rewrite-timestamp=true is nothing that --engine oci takes",
        ),
        (
            ("--engine", "oci", "--base-layout", "base", "--with", "jupyter"),
            "the image of torch2.1.2-cu121-py311 cannot be written without an engine",
        ),
        (("--engine", "oci", "--base-layout", "base", "--output", "type=oci,dest=base"), None),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_anything_is_written(capsys, folder, words, message):
    (folder / "base" / "file").write_text("somebody's")
    code, document, _ = answer(capsys, *STACK, *words)
    assert code == 2
    assert document["error"]["message"] == (message or "base is a folder with something else in it")
    assert document["error"]["hints"]
    assert sorted(path.name for path in folder.iterdir() if path.name != "cache") == ["base"]


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(capsys, folder):
    words = ("--engine", "oci", "--base-layout", "base", "--dry-run")
    code, document, said = answer(capsys, *STACK, *words)
    assert code == 0
    assert "would write" in said
    assert f"{folder.name}/torch2.1.2-cu121-py311.oci.tar from base" in said
    assert document["result"]["written"]
    assert [path.name for path in folder.iterdir() if path.name != "cache"] == ["base"]


def test_printing_writes_no_image(capsys, folder):
    assert main([*STACK, "--engine", "oci", "--print"]) == 0
    assert capsys.readouterr().out.startswith("# provision.lock")


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_base_that_is_none_is_refused_and_no_image_is_left(capsys, folder, kind):
    base = Path("base")
    if kind == "archive":
        base = Path("base.tar")
        tarfile.open(base, "w").close()
    code, document, _ = answer(capsys, *STACK, "--engine", "oci", "--base-layout", str(base))
    assert code == 5
    assert document["error"]["message"] == f"the base {base} cannot be built on"
    assert list(folder.glob("*.oci.tar")) == []


def test_an_index_that_does_not_answer_ends_with_a_reason_and_no_image(capsys, folder, monkeypatch):
    monkeypatch.setattr("provision.build.oci.image.open_base", _any_base)
    code, document, _ = answer(capsys, *STACK, "--engine", "oci", "--base-layout", "base", "--base", "python:3.11")
    assert code == 7
    assert "the index did not say where" in document["error"]["message"]
    assert list(folder.glob("*.oci.tar")) == []


class _any_base:  # noqa: N801 - stands in for a function
    def __init__(self, *_: object) -> None:
        """Take whatever is asked for."""

    def __enter__(self) -> object:
        from provision.build.oci.base import Base

        return Base(where="base", config={}, layers=(), digests=(), shelf=None)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        """Have nothing to close."""


def test_auto_leaves_to_an_engine_what_must_be_run(capsys, folder, monkeypatch):
    from provision.cli.commands import image
    from provision.errors import MissingDependencyError

    def none_here(_builder: str) -> object:
        raise MissingDependencyError("no engine answers")

    monkeypatch.setattr(image, "_find_engine", none_here)
    words = ("--engine", "auto", "--build", "--base-layout", "base", "--with", "jupyter")
    code, document, said = answer(capsys, *STACK, *words)
    assert (code, document["error"]["message"]) == (7, "no engine answers")
    assert "an engine builds it: the image of torch2.1.2-cu121-py311 cannot be written without an engine" in said


@pytest.mark.parametrize(
    ("words", "variable", "bound"),
    [((), None, 20 * 2**30), ((), "0.5", 2**29), (("--layer-cache", "3"), "0.5", 3 * 2**30)],
)
def test_a_bound_of_the_cache_comes_from_flag_then_environment(capsys, folder, monkeypatch, words, variable, bound):
    if variable is not None:
        monkeypatch.setenv("PROVISION_LAYER_CACHE", variable)
    seen = []

    def refuse(job: object, _watch: object) -> None:
        seen.append(job.store.bytes_max)
        raise UsageError("seen")

    monkeypatch.setattr("provision.build.oci.image.write_image", refuse)
    answer(capsys, *STACK, "--engine", "oci", "--base-layout", "base", *words)
    assert seen == [bound]


def test_a_bound_in_the_environment_that_is_no_number_is_named(capsys, folder, monkeypatch):
    monkeypatch.setenv("PROVISION_LAYER_CACHE", "much")
    code, document, _ = answer(capsys, *STACK, "--engine", "oci", "--base-layout", "base")
    assert code == 2
    assert document["error"]["message"] == "PROVISION_LAYER_CACHE `much` is not a number of GiB"
