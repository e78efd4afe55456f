"""`provision image --format`, `--sbom`, `--output type=…` and `--compression`: what is written, and what is refused."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.pylock import Pylock

from provision.build.engine import BuildRequest, BuildResult, ImageInfo
from provision.build.export import choose_export
from provision.cli.commands import image as image_command
from provision.generate.formats import FORMATS

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")
NAME = "torch2.1.2-cu121-py311"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_each_form_is_written_printed_and_checked(provision, folder, form):
    words = ("image", *STACK, "--format", form)
    printed = provision(*words, "--print")
    assert printed.code == 0, printed.err
    assert not _tree(folder)
    answer = provision(*words, "--json")
    assert answer.code == 0, answer.err
    result = answer.document["result"]
    place = folder / result["folder"]
    assert (place / FORMATS[form]).read_text() == printed.out
    assert sorted(_tree(place)) == sorted(result["files"])
    assert provision(*words, "--check").code == 0
    assert provision(*words, "--locked").code == 0
    (place / FORMATS[form]).write_text("edited\n")
    assert provision(*words, "--check").code == 8
    assert provision(*words, "--locked").code == 8


def test_forms_have_folders_of_their_own(provision, folder):
    for form in FORMATS:
        assert provision("image", *STACK, "--format", form).code == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [NAME, ".devcontainer", *(f"{NAME}-{form}" for form in FORMATS if form not in ("dockerfile", "devcontainer"))]
    )


def test_an_unknown_form_is_named(provision):
    answer = provision("image", *STACK, "--format", "aptainer")
    assert answer.code == 2
    assert "did you mean `apptainer`" in answer.err


def test_a_form_without_a_dockerfile_is_not_built(provision):
    answer = provision("image", *STACK, "--format", "apptainer", "--build")
    assert answer.code == 2
    assert "--format apptainer" in answer.err


def test_pylock_is_refused_where_something_is_not_locked(provision, folder):
    answer = provision("image", *STACK, "--with", "jupyter", "--format", "pylock")
    assert answer.code == 2
    assert "jupyterlab" in answer.err
    assert not _tree(folder)


def test_addresses_of_an_index_are_written_where_they_were_asked_for(provision, folder, monkeypatch):
    from provision.build import hashes

    monkeypatch.setattr(hashes, "complete_hashes", lambda stack, **_: (stack, ()))
    monkeypatch.setattr(
        hashes, "find_urls", lambda stack, **_: {name: f"https://mirror.example/{name}.whl" for name in stack.packages}
    )
    assert provision("image", *STACK, "--format", "pylock", "--fetch-hashes", "-o", "it").code == 0
    lock = Pylock.from_dict(tomllib.loads((folder / "it" / "pylock.toml").read_text()))
    assert all(package.wheels[0].url.startswith("https://mirror.example/") for package in lock.packages)


def test_a_bill_of_materials_comes_and_goes(provision, folder):
    provision("image", *STACK, "--sbom", "-o", "it")
    document = json.loads((folder / "it" / "sbom.cdx.json").read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert "sbom.cdx.json" not in (folder / "it" / ".dockerignore").read_text()
    # Without the flag it would grow old beside a new lock.
    assert provision("image", *STACK, "-o", "it", "--check").code == 8
    answer = provision("image", *STACK, "-o", "it")
    assert "sbom.cdx.json" in answer.err
    assert not (folder / "it" / "sbom.cdx.json").exists()


def test_output_still_names_a_folder(provision, folder):
    assert provision("image", *STACK, "--output", "there").code == 0
    assert (folder / "there" / "Dockerfile").exists()
    answer = provision("image", *STACK, "--output", "there", "-o", "elsewhere")
    assert answer.code == 2
    assert "name two folders" in answer.err


@dataclass
class _Engine:
    """An engine that remembers what it was told."""

    frontend: str = "modern"
    name: str = "docker buildx"
    version: str = "0"
    image_store: str = "containerd"
    asked: list[BuildRequest] = field(default_factory=list)

    def build(self, context, request, observer):
        self.asked.append(request)
        export = choose_export(
            self.image_store, request.purpose, compression=request.compression, destination=request.destination
        )
        image = None if request.archive else ImageInfo(id="sha256:" + "1" * 64, size_bytes=1)
        return BuildResult(image=image, archive=request.archive, export=export, steps=(), seconds=1.0)


@pytest.fixture
def engine(monkeypatch):
    made = _Engine()
    monkeypatch.setattr(image_command, "_find_engine", lambda builder: made)
    return made


def test_an_archive_is_asked_of_the_builder(provision, folder, engine):
    answer = provision("image", *STACK, "--build", "--output", "type=oci,dest=image.tar,compression=zstd", "-o", "it")
    assert answer.code == 0, answer.err
    request = engine.asked[0]
    assert (request.purpose, request.archive) == ("file", Path("image.tar"))
    assert dict(request.destination.options) == {"compression": "zstd"}
    assert "wrote image.tar" in answer.err
    assert json.loads((folder / "it.build.json").read_text())["archive"] == "image.tar"


def test_a_compression_is_handed_on(provision, engine):
    engine.image_store = "overlay2"
    answer = provision("image", *STACK, "--build", "--compression", "zstd")
    assert answer.code == 7
    assert "containerd" in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--output", "type=oci,dest=x"), "--output type=… is about a build"),
        (("--compression", "zstd"), "--compression is about a build"),
        (("--build", "--compression", "lz4"), "--compression `lz4` is not known"),
        (("--build", "--output", "type=oci"), "`dest=` names the file"),
        (("--push", "--tag", "x", "--output", "type=oci,dest=x"), "exclude each other"),
    ],
)
def test_flags_about_a_build_are_checked(provision, folder, words, said):
    answer = provision("image", *STACK, *words)
    assert answer.code == 2
    assert said in answer.err
    assert not _tree(folder)


def test_a_pylock_names_only_files_that_come_with_it_or_says_how_they_come(provision, folder):
    assert provision("image", *STACK, "--format", "pylock", "-o", "it").code == 0
    said = re.findall(r"requirements\S*\.txt", (folder / "it" / "pylock.toml").read_text())
    there = {path.name for path in (folder / "it").iterdir()}
    assert said
    assert not set(said) & there
    assert "`--format requirements` writes requirements.lock.txt" in (folder / "it" / "pylock.toml").read_text()
    assert provision("image", *STACK, "--format", "requirements", "-o", "more").code == 0
    assert set(said) <= {path.name for path in (folder / "more").iterdir()}
