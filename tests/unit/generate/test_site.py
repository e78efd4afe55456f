"""A site: whole, the same for the same lock, and never over somebody's files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from provision.errors import ProvisionError, UsageError
from provision.generate.node import lock_digest
from provision.generate.site import (
    LOCK_PATH,
    SUMS,
    SiteOptions,
    WheelFile,
    pack_site,
    read_requirements,
    render_site,
    write_site,
)

ROOT = Path(__file__).resolve().parents[3]
HASHES = [f"{number:064x}" for number in range(4)]
REQUIREMENTS = f"""# made by hand
Torch==2.1.2+cu121 --hash=sha256:{HASHES[0]}
far_away @ https://mirror.example/far_away-1.0-py3-none-any.whl \\
    --hash=sha256:{HASHES[1]}
unknown.thing==1.0 ; python_version > "3.8" --hash=sha256:{HASHES[2]} --hash=sha256:{HASHES[3]}
"""
OPTIONS = SiteOptions(
    ansible_core="ansible-core>=2.19",
    wheels={HASHES[0]: WheelFile(file="torch-2.1.2-cp311.whl", url="https://mirror.example/torch.whl")},
)


def _lock(**profiles: Any) -> dict[str, Any]:
    document = {"lock_version": 1, "facts_date": "2026-11-21", "name": "test", "profiles": profiles}
    return {**document, "digest": lock_digest(document)}


LOCK = _lock(
    debian12={
        "os": "debian12",
        "refusal": None,
        "repos": {"sources": [{"id": "cuda", "uri": "https://mirror.example/cuda/", "suite": "/", "components": []}]},
        "kernel": {"headers": "linux-headers-amd64", "build": ["dkms"]},
        "driver": {
            "version": "535.1",
            "flavours": {"open": {"packages": [{"name": "nvidia-open", "version": "535.1-1"}]}},
        },
        "cuda": {"versions": ["12.1"], "packages": {"12.1": [{"name": "cuda-toolkit-12-1", "version": None}]}},
        "frameworks": {
            "python": "3.11",
            "packages": [{"name": "python3-venv", "version": None}],
            "environments": [{"name": "torch", "requirements": REQUIREMENTS, "versions": {"torch": "2.1.2"}}],
        },
    },
    debian13={"os": "debian13", "refusal": "it cannot\nbe"},
)


@pytest.fixture
def playbooks(tmp_path: Path) -> Path:
    """A few playbooks, and the templates as they are shipped."""
    folder = tmp_path / "playbooks"
    (folder / "roles" / "gpu_a" / "tasks").mkdir(parents=True)
    (folder / "roles" / "gpu_a" / "tasks" / "main.yml").write_text("---\n")
    (folder / "roles" / "gpu_a" / "__pycache__").mkdir()
    (folder / "roles" / "gpu_a" / "__pycache__" / "x.pyc").write_bytes(b"\xff")
    (folder / "gpu-node.yml").write_text("---\n")
    (folder / "scratch.yml").write_text("not part of it\n")
    (folder / "site").symlink_to(ROOT / "playbooks" / "site")
    return folder


def _render(playbooks: Path, lock: dict[str, Any] = LOCK, options: SiteOptions = OPTIONS) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in render_site(lock, "the lock\n", playbooks, options)}


def test_site_holds_the_playbooks_the_lock_and_what_people_fill_in(playbooks: Path) -> None:
    assert sorted(_render(playbooks)) == [
        "README.md",
        SUMS,
        "execution-environment.yml",
        "gpu-node.yml",
        LOCK_PATH,
        "inventory/group_vars/gpu_nodes.yml",
        "inventory/hosts.yml",
        "packages/debian12.txt",
        "packages/debian13.txt",
        "pull/hosts.yml",
        "requirements/debian12-torch.txt",
        "roles/gpu_a/tasks/main.yml",
        "site.yml",
        "wheelhouse.txt",
    ]


def test_every_file_is_in_the_sums(playbooks: Path) -> None:
    site = _render(playbooks)
    listed = dict(reversed(line.split("  ", 1)) for line in site.pop(SUMS).splitlines())
    assert listed == {path: hashlib.sha256(text.encode()).hexdigest() for path, text in site.items()}


def test_wheelhouse_names_every_wheel_with_address_and_hash(playbooks: Path) -> None:
    rows = [line.split("\t") for line in _render(playbooks)["wheelhouse.txt"].splitlines() if line[0] != "#"]
    far = "far_away-1.0-py3-none-any.whl"
    assert rows == [
        ["far-away", "-", far, f"https://mirror.example/{far}", f"sha256:{HASHES[1]}"],
        ["torch", "2.1.2+cu121", "torch-2.1.2-cp311.whl", "https://mirror.example/torch.whl", f"sha256:{HASHES[0]}"],
        ["unknown-thing", "1.0", "-", "index", f"sha256:{HASHES[2]}"],
        ["unknown-thing", "1.0", "-", "index", f"sha256:{HASHES[3]}"],
    ]


def test_packages_are_what_apt_takes(playbooks: Path) -> None:
    site = _render(playbooks)
    words = [line for line in site["packages/debian12.txt"].splitlines() if line[0] != "#"]
    expected = ["cuda-toolkit-12-1", "dkms", "linux-headers-amd64", "nvidia-open=535.1-1", "python3-venv"]
    assert words == expected
    assert "# repository cuda: https://mirror.example/cuda/ /" in site["packages/debian12.txt"]
    assert site["packages/debian13.txt"].splitlines()[-2:] == ["# it cannot", "# be"]


def test_execution_environment_is_one_of_version_3(playbooks: Path) -> None:
    """The keys are those of ansible-builder's schema, version 3."""
    yaml = pytest.importorskip("yaml")
    jsonschema = pytest.importorskip("jsonschema")
    text = {"type": "string"}
    package = {"type": "object", "additionalProperties": False, "required": ["package_pip"]}
    package["properties"] = {"package_pip": text}
    interpreter = {"type": "object", "additionalProperties": False}
    interpreter["properties"] = {"package_system": text, "python_path": text}
    dependencies = {"type": "object", "additionalProperties": False}
    dependencies["properties"] = {
        "ansible_core": package,
        "ansible_runner": package,
        "python_interpreter": interpreter,
        "python": {"type": "array", "items": text},
        "system": {"type": "array", "items": text},
    }
    base = {"type": "object", "properties": {"name": text, "signature_original_name": text}}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["version"],
        "properties": {
            "version": {"const": 3},
            "images": {"type": "object", "additionalProperties": False, "properties": {"base_image": base}},
            "dependencies": dependencies,
            "options": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"package_manager_path": text, "user": text, "workdir": text},
            },
        },
    }
    for image in (None, "registry.example/team/base:1"):
        options = SiteOptions(ansible_core="ansible-core>=2.19", base_image=image, wheels={})
        document = yaml.safe_load(_render(playbooks, options=options)["execution-environment.yml"])
        jsonschema.validate(document, schema)
        assert document["dependencies"]["ansible_core"]["package_pip"] == "ansible-core>=2.19"
        assert document.get("images", {}).get("base_image", {}).get("name") == image


def test_same_lock_gives_the_same_bytes(playbooks: Path) -> None:
    first, second = (render_site(LOCK, "the lock\n", playbooks, OPTIONS) for _ in range(2))
    assert first == second
    assert pack_site(first, "site") == pack_site(second, "site")


def test_archive_holds_the_files_with_nothing_of_this_machine(playbooks: Path) -> None:
    (playbooks / "roles" / "gpu_a" / "run.sh").write_text("#!/bin/sh\n")
    (playbooks / "roles" / "gpu_a" / "run.sh").chmod(0o755)
    site = render_site(LOCK, "the lock\n", playbooks, OPTIONS)
    packed = pack_site(site, "gpu-site")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
        entries = {entry.name: entry for entry in archive.getmembers()}
    assert set(entries) == {f"gpu-site/{artifact.path}" for artifact in site}
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries.values()} == {(0, 0, 0, "")}
    assert entries["gpu-site/roles/gpu_a/run.sh"].mode == 0o755


def test_second_write_takes_away_what_is_no_longer_wanted_and_nothing_else(playbooks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_site(folder, render_site(LOCK, "the lock\n", playbooks, OPTIONS))
    (folder / "mine.yml").write_text("mine\n")
    (folder / "packages" / "debian13.txt").write_text("edited\n")
    changes = write_site(folder, render_site(_lock(ubuntu={}), "other\n", playbooks, OPTIONS))
    assert set(changes.removed) == {"packages/debian12.txt", "requirements/debian12-torch.txt"}
    assert (folder / "mine.yml").exists()
    assert (folder / "packages" / "debian13.txt").read_text() == "edited\n"
    assert not (folder / "requirements").exists()


def test_inventory_that_was_filled_in_is_kept(playbooks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    site = render_site(LOCK, "the lock\n", playbooks, OPTIONS)
    write_site(folder, site)
    (folder / "inventory" / "hosts.yml").write_text("gpu_nodes: {hosts: {mine: {}}}\n")
    (folder / "site.yml").write_text("edited\n")
    changes = write_site(folder, site)
    assert changes.written == ("site.yml",)
    assert "mine" in (folder / "inventory" / "hosts.yml").read_text()


def test_folder_of_somebody_else_is_refused(playbooks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    site = render_site(LOCK, "the lock\n", playbooks, OPTIONS)
    write_site(folder, site, dry_run=True)
    assert list(folder.iterdir()) == []
    (folder / "notes.txt").write_text("theirs\n")
    with pytest.raises(UsageError, match="holds what was not written"):
        write_site(folder, site)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    write_site(folder, site, force=True)
    assert (folder / "notes.txt").exists()


@pytest.mark.parametrize("line", ["x", f"{'0' * 64}  ../../etc/passwd", f"{'0' * 64}  /etc/passwd"])
def test_sums_that_lead_outside_are_not_followed(playbooks: Path, tmp_path: Path, line: str) -> None:
    folder = tmp_path / "site"
    site = render_site(LOCK, "the lock\n", playbooks, OPTIONS)
    write_site(folder, site)
    with (folder / SUMS).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UsageError, match="holds what was not written"):
        write_site(folder, site)


@pytest.mark.parametrize(
    "lock",
    [
        _lock(**{"../evil": {}}),
        _lock(debian12={"frameworks": {"environments": [{"name": "../evil", "requirements": ""}]}}),
        {**_lock(), "name": "a\nb"},
    ],
)
def test_hostile_lock_is_refused(playbooks: Path, lock: dict[str, Any]) -> None:
    with pytest.raises((UsageError, ProvisionError)):
        _render(playbooks, lock)


def test_file_that_is_no_text_is_refused(playbooks: Path) -> None:
    (playbooks / "roles" / "gpu_a" / "key.gpg").write_bytes(b"\x99\xff")
    with pytest.raises(ProvisionError, match="is not text"):
        _render(playbooks)


def test_requirements_are_read_as_pip_reads_them() -> None:
    assert list(read_requirements(REQUIREMENTS)) == [
        ("torch", "2.1.2+cu121", None, (HASHES[0],)),
        ("far-away", None, "https://mirror.example/far_away-1.0-py3-none-any.whl", (HASHES[1],)),
        ("unknown-thing", "1.0", None, (HASHES[2], HASHES[3])),
    ]
    assert list(read_requirements("--index-url x\n-r y\n# torch==1\n\n")) == []


@pytest.mark.parametrize("name", ["roles", "inventory/group_vars"])
def test_folder_of_a_site_that_is_a_link_is_not_written_through(tmp_path: Path, playbooks: Path, name: str) -> None:
    folder, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    site = render_site(LOCK, "the lock\n", playbooks, OPTIONS)
    link = folder / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        write_site(folder, site, force=True)
    assert list(elsewhere.iterdir()) == []
