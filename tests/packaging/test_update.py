"""`provision data update` on the installed program: a signed bundle of newer facts, and everything that is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from provision.refresh.bundle import read_bundle
from provision.refresh.client import Client
from tools.facts_bundle import COMPAT, main, pack

NEWER, OLDER = "2099-01-02", "2020-01-02"

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is absent: signatures of facts are not tested", allow_module_level=True)


def key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    kind, public, *_ = path.with_suffix(".pub").read_text().split()
    (folder / f"{name}.signers").write_text(f"facts {kind} {public}\n")
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    key(folder, "ours")
    key(folder, "theirs")
    return folder


def facts(folder: Path, dated: str, *, broken: bool = False) -> Path:
    shutil.copytree(COMPAT, folder)
    path = folder / "frameworks" / "torch.toml"
    text = path.read_text(encoding="utf-8")
    lines = [f"dated = {dated}" if line.startswith("dated = ") else line for line in text.splitlines()]
    if broken:
        lines.insert(3, 'unheard = "of"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def bundle(tmp_path: Path, keys: Path, dated: str, *, signer: str = "ours", broken: bool = False) -> Path:
    path = tmp_path / f"facts-{dated}.tar.gz"
    folder = facts(tmp_path / f"facts-{dated}", dated, broken=broken)
    assert main([str(path), "--folder", str(folder), "--key", str(keys / signer)]) == 0
    return path


@pytest.fixture
def call(installed, tmp_path: Path, keys: Path):
    """Run the installed program with a home of its own; returns exit code, document and what was said."""
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*words: object) -> tuple[int, dict, str]:
        done = subprocess.run(
            [installed.bin / "provision", *map(str, words), "--json"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    def take(path: Path, *words: object, signers: str = "ours") -> tuple[int, dict, str]:
        return run("data", "update", "--from", path, "--signers", keys / f"{signers}.signers", *words)

    run.take = take
    return run


def in_force(call) -> str:
    _, document, said = call("matrix", "--framework", "torch", "--cuda", "12.8")
    return f"{document} {said}"


def test_newer_facts_answer_from_then_on_and_the_shipped_ones_come_back(call, tmp_path: Path, keys: Path) -> None:
    path = bundle(tmp_path, keys, NEWER)
    assert NEWER not in in_force(call)
    status, document, _ = call.take(path, "--dry-run")
    assert (status, document["result"]["facts_date"], document["result"]["is_changed"]) == (0, NEWER, False)
    assert NEWER not in in_force(call)
    status, document, _ = call.take(path)
    assert (status, document["result"]["is_changed"]) == (0, True)
    assert NEWER in in_force(call)
    # The same again changes nothing, and an older one is refused.
    assert call.take(path)[1]["result"]["is_changed"] is False
    status, document, _ = call.take(bundle(tmp_path, keys, "2098-01-02"))
    assert status == 9
    assert "older" in document["error"]["message"]
    assert NEWER in in_force(call)
    status, document, _ = call("data", "update", "--shipped")
    assert (status, document["result"]["is_changed"]) == (0, True)
    assert NEWER not in in_force(call)
    assert not (tmp_path / "data" / "provision" / "facts").exists()


def test_a_bundle_that_was_changed_or_signed_by_another_is_refused(call, tmp_path: Path, keys: Path) -> None:
    path = bundle(tmp_path, keys, NEWER)
    status, document, _ = call.take(path, signers="theirs")
    assert status == 9
    assert "signature" in document["error"]["message"]
    path.write_bytes(pack(facts(tmp_path / "other", "2099-01-03")))
    status, document, _ = call.take(path)
    assert status == 9
    assert "signature" in document["error"]["message"]
    assert NEWER not in in_force(call)


@pytest.mark.parametrize(
    ("dated", "broken", "said"),
    [(OLDER, False, "older than the facts in force"), (NEWER, True, "does not keep the rules of this program")],
)
def test_facts_that_are_older_or_unreadable_are_refused(
    call, tmp_path: Path, keys: Path, dated: str, broken: bool, said: str
) -> None:
    status, document, _ = call.take(bundle(tmp_path, keys, dated, broken=broken))
    assert status == 9
    assert said in document["error"]["message"]
    assert NEWER not in in_force(call)


@pytest.mark.parametrize("member", ["../out", "/out", "link"])
def test_a_signed_archive_that_leads_out_of_its_folder_is_refused(
    call, tmp_path: Path, keys: Path, member: str
) -> None:
    path = tmp_path / "facts.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(member)
        if member == "link":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
        else:
            info.size = 2
            archive.addfile(info, io.BytesIO(b"ab"))
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", keys / "ours", "-n", "provision-facts", path], check=True)
    status, document, _ = call.take(path)
    assert status == 9
    assert NEWER not in str(document)
    assert not (tmp_path / "data" / "provision" / "out").exists()
    assert [item.name for item in (tmp_path / "data" / "provision" / "facts").iterdir()] == []


def test_a_checkout_keeps_its_own_facts(tmp_path: Path, keys: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "provision", "data", "update", "--from", "x", "--signers", keys / "ours.signers"],
        capture_output=True,
        text=True,
        check=False,
        cwd=COMPAT.parent,
    )
    assert done.returncode == 2
    assert "a checkout has its own facts" in done.stderr


def test_what_is_missing_is_named(call, tmp_path: Path, keys: Path) -> None:
    assert call("data", "update")[0] == 2
    status, document, _ = call("data", "update", "--from", "facts.tar.gz")
    assert status == 2
    assert "--signers" in document["error"]["hints"][0]
    status, document, _ = call.take(tmp_path / "none.tar.gz")
    assert status == 2
    assert "none.tar.gz cannot be read" in document["error"]["message"]


def test_a_bundle_and_its_signature_are_fetched_from_one_address(tmp_path: Path) -> None:
    (tmp_path / "facts.tar.gz").write_bytes(b"bundle")
    (tmp_path / "facts.tar.gz.sig").write_bytes(b"signature")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/facts.tar.gz"
        assert read_bundle(address, lambda: Client(concurrency=1)) == (b"bundle", b"signature")
        server.shutdown()


def test_the_same_facts_are_packed_into_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(COMPAT, copy, copy_function=shutil.copy)
    assert pack(copy) == pack(COMPAT)
