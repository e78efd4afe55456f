"""Images written from wheels: real wheels, bases and an index on loopback, in every mood they can have."""

from __future__ import annotations

import base64
import csv
import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import threading
import time
import tracemalloc
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provision.build.oci import download
from provision.build.oci import image as image_module
from provision.build.oci.base import open_base
from provision.build.oci.codec import find_codec, open_layer
from provision.build.oci.image import OciJob, write_image
from provision.build.oci.refused import Halt
from provision.build.oci.store import Store
from provision.build.oci.target import Formats
from provision.build.oci.tree import Tree
from provision.build.oci.watch import Silent
from provision.build.reader import Reader
from provision.errors import ActionFailedError, MissingDependencyError, ProvisionError, UsageError
from provision.generate.image import ImageOptions, make_recipe
from provision.generate.recipe import Copy, Run
from provision.index.address import IndexAddress
from provision.records import replace
from provision.resolve.request import Request
from provision.resolve.requirements import LOCAL
from provision.resolve.stack import BaseImage, DriverNeed, ExtraPart, ImagePart, LockedPackage, Stack

EPOCH = 1_700_000_000
SITE = "opt/venv/lib/python3.11/site-packages"


def make_wheel(
    name: str,
    files: dict[str, bytes] | None = None,
    *,
    version: str = "1.0",
    entry_points: str = "",
    raw: list[tuple[zipfile.ZipInfo, bytes]] | None = None,
    date: tuple[int, ...] = (2020, 1, 1, 0, 0, 0),
) -> bytes:
    """Return a wheel; ``raw`` entries go in as they are."""
    files = dict(files if files is not None else {f"{name}/__init__.py": b"value = 1\n"})
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points.encode()
    rows = [f"{path},sha256={record_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(zipfile.ZipInfo(path, date), data, zipfile.ZIP_DEFLATED)
        for entry, data in raw or ():
            wheel.writestr(entry, data)
    return buffer.getvalue()


def record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make_layer(files: dict[str, bytes | str | None]) -> bytes:
    """Return a tar: bytes are files (run where below bin), texts are links, nothing is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, what in files.items():
            item = tarfile.TarInfo(path)
            item.mode = 0o755 if what is None or "/bin/" in path else 0o644
            if what is None:
                item.type = tarfile.DIRTYPE
            elif isinstance(what, str):
                item.type, item.linkname = tarfile.SYMTYPE, what
            else:
                item.size = len(what)
            tar.addfile(item, io.BytesIO(what if isinstance(what, bytes) else b""))
    return buffer.getvalue()


SLIM: dict[str, bytes | str | None] = {
    "etc/": None,
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\n",
    "home/": None,
    "opt/": None,
    "usr/local/bin/": None,
    "usr/bin/python3.11": b"\x7fELF",
    "usr/local/bin/python3.11": "../../bin/python3.11",
    "usr/local/bin/pip3": b"#!",
    "usr/local/lib/python3.11/site-packages/pip/": None,
    "usr/local/lib/python3.11/site-packages/pip/__init__.py": b"",
}
CONFIG = {"Env": ["PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8"], "Cmd": ["python3"], "Labels": {"of.the": "base"}}


def put(folder: Path, data: bytes) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (folder / "blobs" / "sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def make_base(
    folder: Path,
    files: dict[str, bytes | str | None] | None = None,
    *,
    architecture: str = "amd64",
    packed: bool = True,
) -> str:
    """Write a layout and return the digest of its manifest."""
    layer = make_layer(SLIM if files is None else files)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": CONFIG,
        "history": [{"created_by": "test"}, {"created_by": "CMD", "empty_layer": True}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    kind = "application/vnd.oci.image.layer.v1.tar"
    blob = gzip.compress(layer, mtime=0) if packed else layer
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {**put(folder, json.dumps(config).encode()), "mediaType": "application/vnd.oci.image.config.v1+json"},
        "layers": [{**put(folder, blob), "mediaType": f"{kind}+gzip" if packed else kind}],
    }
    row = {**put(folder, json.dumps(manifest).encode()), "mediaType": manifest["mediaType"]}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [row]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(row["digest"])


class Index(ThreadingHTTPServer):
    """A package index that may cut a file short, change it or lose it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.wheels: dict[str, bytes] = {}
        self.cut: dict[str, list[int]] = {}
        self.ranges: list[str | None] = []
        self.knows_ranges = True
        self.has_hashes = True
        self.loaded: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Index)
        if self.path.startswith("/simple/"):
            name = self.path.split("/")[2].replace("-", "_")
            body = "<html><body>" + "".join(
                f'<a href="/f/{file}{f"#sha256={hashlib.sha256(data).hexdigest()}" if server.has_hashes else ""}">x</a>'
                for file, data in server.wheels.items()
                if file.startswith(f"{name}-")
            )
            self.answer(200, f"{body}</body></html>".encode(), kind="text/html")
            return
        file = self.path.removeprefix("/f/")
        data = server.wheels[file]
        server.loaded.append(file)
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        status = 200
        if asked and server.knows_ranges:
            data, status = data[int(asked.removeprefix("bytes=").rstrip("-")) :], 206
        cuts = server.cut.get(file, [])
        self.answer(status, data, limit=cuts.pop(0) if cuts else None)

    def answer(self, status: int, data: bytes, *, kind: str = "application/zip", limit: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if limit is None else data[:limit])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class World:
    """A base, an index, and a stack of the wheels that were put there."""

    folder: Path
    index: Index
    packages: list[LockedPackage] = field(default_factory=list)
    base: Path | None = None
    base_digest: str | None = None
    platform: str = "linux/amd64"

    def add(self, name: str, wheel: bytes, layer: str = "rest", version: str = "1.0", **values: object) -> None:
        file = f"{name}-{version}-py3-none-any.whl"
        self.index.wheels[file] = wheel
        self.packages.append(
            LockedPackage(
                **{  # type: ignore[arg-type]
                    "name": name,
                    "version": version,
                    "index": "pypi",
                    "file": file,
                    "sha256": hashlib.sha256(wheel).hexdigest(),
                    "size": len(wheel),
                    "layer": layer,
                    "why": "test",
                    **values,
                }
            )
        )

    def stack(self, **image: object) -> Stack:
        part = ImagePart(
            **{  # type: ignore[arg-type]
                "flavor": "runtime",
                "base": BaseImage(ref="python:3.11-slim-bookworm", digest=self.base_digest),
                "packages": tuple(self.packages),
                "tools": (LockedPackage(name="uv", version="1.0", index="pypi", sha256="0" * 64, why="test"),),
                "source_date_epoch": EPOCH,
                **image,
            }
        )
        return Stack(
            request=Request(),
            facts_date="2026-11-21",
            python="3.11",
            platform=self.platform,
            os="debian12",
            cuda="12.1",
            variant="cu121",
            variants={"torch": "cu121"},
            frameworks={"torch": "2.1.2"},
            packages={package.name: package.version for package in self.packages},
            driver=DriverNeed(minimum="525.60.13"),
            sm=("sm_80",),
            image=part,
        )

    def job(self, target: str = "image.tar", *, stack: Stack | None = None, compression: str = "gzip") -> OciJob:
        stack = stack or self.stack()
        if self.base is None:
            self.base = self.folder / "base"
            make_base(self.base)
        return OciJob(
            stack=stack,
            recipe=make_recipe(stack, ImageOptions()),
            base=self.base,
            target=self.folder / target,
            is_folder=not target.endswith(".tar"),
            tags=("team/image:1", "other"),
            codec=find_codec(compression),  # type: ignore[arg-type]
            store=Store(self.folder / "cache"),
            formats=Formats(layout="1.0.0", hub="docker.io"),
            address=IndexAddress(url=self.index.url, told_by="test"),
        )

    def left_behind(self) -> list[str]:
        """Return every file that is neither the base nor a verified wheel or finished layer."""
        cache = self.folder / "cache"
        return sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file()
            and (self.folder / "base") not in path.parents
            and path.parent != cache / "wheels"
            and path != cache / ".lock"
        )


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.01)
    with Index() as index:
        thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield World(folder=tmp_path, index=index)
        index.shutdown()
        thread.join()


def read_image(archive: Path) -> tuple[dict, dict, list[dict[str, tuple[tarfile.TarInfo, bytes]]]]:
    """Return manifest, configuration, and the tree of each layer."""
    with tarfile.open(archive) as tar:
        files = {item.name: tar.extractfile(item).read() for item in tar if item.isfile()}
    row = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(files[name_of(row["digest"])])
    config = json.loads(files[name_of(manifest["config"]["digest"])])
    trees = []
    for item, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        blob = files[name_of(item["digest"])]
        assert item["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert item["size"] == len(blob)
        data = open_layer(io.BytesIO(blob)).read()
        assert diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
        with tarfile.open(fileobj=io.BytesIO(data)) as layer:
            trees.append(
                {
                    member.name: (member, layer.extractfile(member).read() if member.isfile() else b"")
                    for member in layer
                }
            )
    return manifest, config, trees


def name_of(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def fill(world: World) -> None:
    world.add("nvidia_a", make_wheel("nvidia_a", {"nvidia/__init__.py": b"", "nvidia/a.so": b"a" * 3000}), "cuda")
    world.add("nvidia_b", make_wheel("nvidia_b", {"nvidia/__init__.py": b"", "nvidia/b.so": b"b"}), "cuda")
    world.add("torch", make_wheel("torch", entry_points="[console_scripts]\ntorchrun = torch.run:main\n"), "framework")
    world.add("numpy", make_wheel("numpy"))


def test_the_layers_are_the_groups_of_the_dockerfile(world):
    fill(world)
    image = write_image(world.job())
    assert [layer.name for layer in image.layers] == ["base", "setup", "cuda", "framework", "rest", "files"]
    _, config, trees = read_image(image.target)
    assert f"{SITE}/nvidia/a.so" in trees[2]
    assert f"{SITE}/torch/__init__.py" in trees[3]
    assert f"{SITE}/numpy/__init__.py" in trees[4]
    assert trees[5]["opt/provision/verify.py"][1].startswith(b'"""Prove')
    assert trees[5]["usr/local/bin/provision-entrypoint"][0].mode == 0o755
    full = [item for item in config["history"] if not item.get("empty_layer")]
    assert len(full) == len(config["rootfs"]["diff_ids"]) == 6


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_two_builds_are_the_same_bytes_whatever_the_clock(world, compression):
    fill(world)
    first = write_image(world.job("first.tar", compression=compression))
    world_again = World(folder=world.folder / "again", index=world.index, packages=world.packages, base=world.base)
    world_again.folder.mkdir()
    time.sleep(1.1)
    second = write_image(world_again.job("second.tar", compression=compression))
    assert not any(layer.is_cached for layer in second.layers if layer.name != "base")
    assert first.target.read_bytes() == second.target.read_bytes()


def test_a_layer_depends_on_its_wheels_and_on_nothing_else_of_the_stack(world):
    fill(world)
    first = {layer.name: layer for layer in write_image(world.job("first.tar")).layers}
    world.packages[2:3] = []
    world.add("torch", make_wheel("torch", {"torch/__init__.py": b"value = 2\n"}, version="1.1"), "framework", "1.1")
    later = world.stack(source_date_epoch=EPOCH + 86400)
    second = {layer.name: layer for layer in write_image(world.job("second.tar", stack=later)).layers}
    assert {name for name in first if first[name].digest == second[name].digest} == {"base", "cuda", "rest"}
    assert {name for name in second if second[name].is_cached} == {"base", "cuda", "rest"}


def test_entries_are_owned_by_root_dated_and_in_order(world):
    fill(world)
    _, _, trees = read_image(write_image(world.job()).target)
    for tree in trees[2:5]:
        for item, _ in tree.values():
            assert (item.uid, item.gid, item.uname, item.gname) == (0, 0, "", "")
            assert item.mtime == 315_532_800
            assert item.mode == (0o755 if item.isdir() or item.name.startswith("opt/venv/bin/") else 0o644)
    names = [name for name in trees[2] if "nvidia_a-1.0" in name or "/nvidia/" in name]
    assert names.index(f"{SITE}/nvidia/a.so") < names.index(f"{SITE}/nvidia/b.so")


def test_scripts_and_records_are_what_an_installer_writes(world):
    wheel = make_wheel(
        "sample",
        {
            "sample/__init__.py": b"",
            "sample/__pycache__/__init__.cpython-311.pyc": b"old",
            "sample-1.0.data/scripts/tool": b"#!python\nprint()\n",
            "sample-1.0.data/data/share/man/man1/tool.1": b".TH",
            "sample-1.0.data/headers/sample.h": b"//",
        },
        entry_points="[console_scripts]\nsample = sample.cli:main\n",
    )
    world.add("sample", wheel)
    _, _, trees = read_image(write_image(world.job()).target)
    tree = trees[2]
    assert tree["opt/venv/bin/tool"][1] == b"#!/opt/venv/bin/python\nprint()\n"
    assert tree["opt/venv/bin/sample"][1].startswith(b"#!/opt/venv/bin/python\n")
    assert tree["opt/venv/bin/sample"][0].mode == 0o755
    assert "opt/venv/share/man/man1/tool.1" in tree
    assert "opt/venv/include/site/python3.11/sample/sample.h" in tree
    assert not any("__pycache__" in name for name in tree)
    assert tree[f"{SITE}/sample-1.0.dist-info/INSTALLER"][1] == b"provision\n"
    rows = list(csv.reader(tree[f"{SITE}/sample-1.0.dist-info/RECORD"][1].decode().splitlines()))
    for path, digest, size in rows:
        target = str(Path("/", SITE, path).resolve()).lstrip("/")
        data = tree[target][1]
        if digest:
            assert digest == f"sha256={record_digest(data)}"
            assert int(size) == len(data)
    listed = {str(Path("/", SITE, row[0]).resolve()).lstrip("/") for row in rows}
    assert listed == {name for name, (item, _) in tree.items() if item.isfile()}


def test_the_environment_the_user_and_the_lack_of_pip_are_those_of_the_dockerfile(world):
    fill(world)
    _, _, trees = read_image(write_image(world.job()).target)
    setup = trees[1]
    assert setup["etc/passwd"][1].endswith(b"bash\nprovision:x:10001:10001::/home/provision:/bin/sh\n")
    assert setup["etc/group"][1] == b"root:x:0:\nprovision:x:10001:\n"
    assert (setup["workspace"][0].uid, setup["home/provision"][0].gid) == (10001, 10001)
    assert setup["opt/venv/bin/python3.11"][0].linkname == "/usr/local/bin/python3.11"
    assert setup["opt/venv/bin/python"][0].linkname == "python3.11"
    assert b"home = /usr/local/bin\n" in setup["opt/venv/pyvenv.cfg"][1]
    gone = {name for name in setup if "/.wh." in name}
    assert gone == {"usr/local/bin/.wh.pip3", "usr/local/lib/python3.11/site-packages/.wh.pip"}


def test_the_configuration_is_that_of_the_dockerfile(world):
    fill(world)
    stack = world.stack(extras=(ExtraPart(id="jupyter", port=8888, command=("jupyter", "lab")),))
    _, config, _ = read_image(write_image(world.job(stack=stack)).target)
    said = config["config"]
    environment = dict(item.split("=", 1) for item in said["Env"])
    assert environment["PATH"] == "/opt/venv/bin:/usr/local/bin:/usr/bin"
    assert environment["LANG"] == "C.UTF-8"
    assert environment["NVIDIA_REQUIRE_DRIVER"] == "driver>=525.60.13"
    assert said["Entrypoint"] == ["sh", "/usr/local/bin/provision-entrypoint"]
    assert said["Cmd"] == ["jupyter", "lab"]
    assert (said["User"], said["WorkingDir"]) == ("10001:10001", "/workspace")
    assert said["ExposedPorts"] == {"8888/tcp": {}}
    assert said["Labels"]["dev.provision.lock"] == stack.lock_digest
    assert said["Labels"]["of.the"] == "base"
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert any(item["created_by"] == "USER 10001:10001" for item in config["history"])


def test_an_archive_has_names_for_engines_of_both_kinds(world):
    fill(world)
    image = write_image(world.job())
    with tarfile.open(image.target) as tar:
        saved = json.load(tar.extractfile("manifest.json"))
        rows = json.load(tar.extractfile("index.json"))["manifests"]
    assert saved[0]["RepoTags"] == ["team/image:1", "other:latest"]
    assert saved[0]["Config"] == name_of(image.config_digest)
    names = [row["annotations"]["io.containerd.image.name"] for row in rows]
    assert names == ["docker.io/team/image:1", "docker.io/library/other:latest"]
    assert {row["digest"] for row in rows} == {image.manifest_digest}


def test_a_folder_becomes_a_layout_that_can_be_built_on_and_replaced(world):
    fill(world)
    image = write_image(world.job("layout"))
    with open_base(image.target, "linux/amd64", image.manifest_digest) as base:
        assert len(base.layers) == 6
    world.packages.pop()
    again = write_image(world.job("layout"))
    assert again.manifest_digest != image.manifest_digest
    assert sorted(path.name for path in world.folder.iterdir()) == ["base", "cache", "layout"]


def test_a_folder_of_somebody_else_is_left_alone(world):
    fill(world)
    (world.folder / "layout").mkdir()
    (world.folder / "layout" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="something else in it"):
        write_image(world.job("layout"))
    assert (world.folder / "layout" / "thesis.txt").read_text() == "mine"


def entry(name: str, *, mode: int = 0o100644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


EVIL = {
    "climbs out": ([(entry("../../../etc/cron.d/evil"), b"x")], "leads out of the environment"),
    "climbs in the middle": ([(entry("sample/../../x"), b"x")], "leads out of the environment"),
    "absolute": ([(entry("/etc/passwd"), b"x")], "absolute path"),
    "backslash": ([(entry("..\\x"), b"x")], "absolute path, or one of another system"),
    "link": ([(entry("sample/link", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")], "a link or a device"),
    "device": ([(entry("sample/null", mode=stat.S_IFCHR | 0o666), b"")], "a link or a device"),
    "twice": ([(entry("sample/x.py"), b"1"), (entry("sample/x.py"), b"2")], "twice"),
    "case": ([(entry("sample/x.py"), b"1"), (entry("sample/X.py"), b"2")], "differ by case alone"),
    "interpreter": ([(entry("sample-1.0.data/scripts/python3"), b"#!/bin/sh")], "belongs to the environment"),
    "pyvenv": ([(entry("sample-1.0.data/data/pyvenv.cfg"), b"home = /x")], "belongs to the environment"),
    "unknown scheme": ([(entry("sample-1.0.data/root/etc/x"), b"x")], "not that of a wheel"),
    "two places, one file": (
        [(entry("sample-1.0.data/purelib/sample/__init__.py"), b"x")],
        "two of its files would be written to",
    ),
    "whiteout": ([(entry("sample/.wh.x"), b"")], "would take a file of a lower layer away"),
    "whiteout of a folder": ([(entry("sample/.wh..wh..opq"), b"")], "would take a file of a lower layer away"),
    "whiteout in the middle": ([(entry("sample/.wh.x/y"), b"")], "would take a file of a lower layer away"),
    "whiteout as data": ([(entry("sample-1.0.data/data/bin/.wh.python"), b"")], "would take a file of a lower layer"),
    "whiteout as script": ([(entry("sample-1.0.data/scripts/.wh.python"), b"")], "would take a file of a lower layer"),
    "below a link": ([(entry("sample-1.0.data/data/lib64/x.so"), b"x")], "belongs to the environment"),
    "below pyvenv": ([(entry("sample-1.0.data/data/pyvenv.cfg/x"), b"x")], "belongs to the environment"),
    "below the interpreter": ([(entry("sample-1.0.data/data/bin/python3.11/x"), b"x")], "belongs to the environment"),
    "instead of lib": ([(entry("sample-1.0.data/data/lib"), b"x")], "belongs to the environment"),
    "instead of bin": ([(entry("sample-1.0.data/data/bin"), b"x")], "belongs to the environment"),
    "instead of include": ([(entry("sample-1.0.data/data/include"), b"x")], "belongs to the environment"),
    "instead of the packages": (
        [(entry("sample-1.0.data/data/lib/python3.11/site-packages"), b"x")],
        "belongs to the environment",
    ),
    "file, then folder": ([(entry("sample/a"), b"1"), (entry("sample/a/b"), b"2")], "is a file in sample-1.0"),
    "folder, then file": (
        [
            (entry("sample-1.0.data/data/lib/python3.11/site-packages/sample2/b"), b"1"),
            (entry("sample2"), b"2"),
        ],
        "is a folder in sample-1.0",
    ),
    "a second RECORD": (
        [(entry("sample-1.0.data/purelib/sample-1.0.dist-info/RECORD"), b"x")],
        "two of its files would be written to",
    ),
    "control character": ([(entry("sample/a\nb"), b"x")], "not a name for a file"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", EVIL)
def test_a_wheel_that_reaches_out_is_refused_and_nothing_is_left(world, case):
    raw, why = EVIL[case]
    world.add("good", make_wheel("good"), "framework")
    world.add("sample", make_wheel("sample", raw=raw))
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "sample-1.0-py3-none-any.whl" in caught.value.message
    assert why in caught.value.because[0]
    assert [path for path in world.left_behind() if "cache/layers" not in path and "cache/blobs" not in path] == []
    assert not (world.folder / "cache" / "wheels" / f"{world.packages[1].sha256}.whl").exists()


def test_an_entry_point_with_a_path_for_a_name_is_refused(world):
    world.add("sample", make_wheel("sample", entry_points="[console_scripts]\n../../x = sample:main\n"))
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "'../../x' has a name that leads elsewhere" in caught.value.because[0]
    assert world.left_behind() == []


def test_an_entry_point_that_would_be_a_whiteout_is_refused(world):
    world.add("sample", make_wheel("sample", entry_points="[console_scripts]\n.wh.python = sample:main\n"))
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "takes a file of a lower layer away" in caught.value.because[0]
    assert world.left_behind() == []


@pytest.mark.parametrize(("first", "second"), [("shared/a", "shared/a/b"), ("shared/a/b", "shared/a")])
def test_a_file_of_one_wheel_is_no_folder_of_another(world, first, second):
    world.add("a", make_wheel("a", {first: b"1"}))
    world.add("b", make_wheel("b", {second: b"2"}))
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert caught.value.message == "the wheel b-1.0-py3-none-any.whl is refused"
    assert f"/{SITE}/shared/a as a " in caught.value.because[0]
    assert caught.value.because[0].endswith("in a-1.0-py3-none-any.whl")


@pytest.mark.parametrize(("first", "second"), [("shared/a", "shared/a/b"), ("shared/a/b", "shared/a")])
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_file_of_one_layer_is_no_folder_of_another(world, first, second, is_kept):
    lower, upper = make_wheel("a", {first: b"1"}), make_wheel("b", {second: b"2"})
    if is_kept:
        # Each alone is a sound layer, and is taken from the cache afterwards.
        world.add("a", lower, "cuda")
        write_image(world.job("one.tar"))
        world.packages.clear()
        world.add("b", upper, "rest")
        write_image(world.job("two.tar"))
        world.packages.clear()
    world.add("a", lower, "cuda")
    world.add("b", upper, "rest")
    with pytest.raises(ActionFailedError, match="cannot lie in one image") as caught:
        write_image(world.job())
    assert f"/{SITE}/shared/a is a file in the first and a folder in the second" in caught.value.because[0]
    file, folder = ("a", "b") if first == "shared/a" else ("b", "a")
    assert f"wheels {file}-1.0-py3-none-any.whl and {folder}-1.0" in caught.value.message
    assert not (world.folder / "image.tar").exists()


def test_a_file_that_two_layers_have_is_the_upper_ones_and_that_is_said(world):
    world.add("a", make_wheel("a", {"shared/same.py": b"1", "shared/other.py": b"1"}), "cuda")
    world.add("b", make_wheel("b", {"shared/same.py": b"1", "shared/other.py": b"2"}), "rest")
    image = write_image(world.job())
    (note,) = image.notes
    assert note.startswith(f"/{SITE}/shared/other.py is in a-1.0-py3-none-any.whl and, with other contents, in b-1.0")
    assert write_image(world.job("again.tar")).notes == image.notes


def test_a_script_whose_name_begins_like_the_interpreters_is_taken(world):
    names = ("python-argcomplete-check-easy-install-script", "python3-config", "python3.11-config", "pythonx")
    files = {f"sample-1.0.data/scripts/{name}": b"#!python\n" for name in names}
    world.add("sample", make_wheel("sample", files))
    _, _, trees = read_image(write_image(world.job()).target)
    assert all(f"opt/venv/bin/{name}" in trees[2] for name in names)


def test_a_bomb_is_refused_by_what_it_claims(world):
    world.add("sample", make_wheel("sample", {"sample/zeros": bytes(80_000_000)}), installed=1000)
    with pytest.raises(ActionFailedError, match="is refused") as caught:
        write_image(world.job())
    assert "it would unpack to 8000" in caught.value.because[0]
    assert world.left_behind() == []


@pytest.mark.parametrize("claim", [10, 5000])
def test_a_file_that_lies_about_its_size_is_refused(world, claim):
    data = make_wheel("sample", {"sample/data": b"x" * 1000})
    buffer = bytearray(data)
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            if data[at + offset : at + offset + 4] == (1000).to_bytes(4, "little"):
                buffer[at + offset : at + offset + 4] = claim.to_bytes(4, "little")
    world.add("sample", bytes(buffer))
    with pytest.raises(ActionFailedError, match="is refused"):
        write_image(world.job())
    assert world.left_behind() == []


@pytest.mark.parametrize(
    ("wheel", "why"),
    [
        (b"no archive at all", "its archive is damaged"),
        (make_wheel("sample")[:-30], "its archive is damaged"),
        (make_wheel("other"), "not that of a wheel"),
    ],
)
def test_what_is_no_wheel_is_refused(world, wheel, why):
    world.add("sample", wheel)
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert why in caught.value.because[0]
    assert world.left_behind() == []


def test_another_file_than_the_locked_one_is_refused(world):
    fill(world)
    world.index.has_hashes = False
    file = "torch-1.0-py3-none-any.whl"
    good = world.index.wheels[file]
    world.index.wheels[file] = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert caught.value.message == f"the wheel {file} is not the one in the lock"
    assert hashlib.sha256(good).hexdigest() in caught.value.because[0]
    assert hashlib.sha256(world.index.wheels[file]).hexdigest() in caught.value.because[0]
    assert not (world.folder / "image.tar").exists()
    assert list((world.folder / "cache").glob(".draft-*")) == []


def test_an_index_that_announces_another_hash_is_not_asked_for_the_file(world):
    fill(world)
    world.index.wheels["torch-1.0-py3-none-any.whl"] = make_wheel("torch", {"torch/evil.py": b""})
    with pytest.raises(ActionFailedError, match="is not the one in the lock"):
        write_image(world.job())
    assert world.index.loaded == []


def test_more_bytes_than_the_lock_says_are_not_read_to_their_end(world):
    fill(world)
    world.index.has_hashes = False
    world.index.wheels["torch-1.0-py3-none-any.whl"] += bytes(50_000_000)
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "more arrives than the" in caught.value.because[0]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(world, knows_ranges):
    fill(world)
    world.index.knows_ranges = knows_ranges
    world.index.cut["torch-1.0-py3-none-any.whl"] = [100, 150] if knows_ranges else [100, 350]
    image = write_image(world.job())
    assert image.target.is_file()
    asked = [item for item in world.index.ranges if item]
    assert asked == (["bytes=100-", "bytes=250-"] if knows_ranges else ["bytes=100-", "bytes=350-"])


def test_a_download_that_never_ends_whole_is_refused_and_nothing_is_left(world):
    fill(world)
    world.index.cut["torch-1.0-py3-none-any.whl"] = [10] * 20
    with pytest.raises(MissingDependencyError) as caught:
        write_image(world.job())
    assert "the connection ended after 40 bytes" in caught.value.because[0]
    assert not (world.folder / "image.tar").exists()
    assert list((world.folder / "cache").glob(".draft-*")) == []
    assert not (world.folder / "cache" / "wheels" / f"{world.packages[2].sha256}.whl").exists()


def test_a_wheel_that_the_index_lost_is_named(world):
    fill(world)
    del world.index.wheels["numpy-1.0-py3-none-any.whl"]
    with pytest.raises(MissingDependencyError, match=r"does not have numpy-1\.0-py3-none-any\.whl"):
        write_image(world.job())
    assert world.left_behind() == []


def test_wheels_are_gone_once_their_layer_is_there(world):
    fill(world)
    write_image(world.job())
    assert list((world.folder / "cache" / "wheels").iterdir()) == []


def test_a_damaged_layer_of_the_cache_is_made_anew(world):
    fill(world)
    first = write_image(world.job("first.tar"))
    blob = world.folder / "cache" / name_of(first.layers[2].digest)
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    second = write_image(world.job("second.tar"))
    assert [layer.name for layer in second.layers if layer.is_cached] == ["base", "framework", "rest"]
    assert first.target.read_bytes() == second.target.read_bytes()


def test_two_wheels_with_one_file_keep_the_first_and_say_so_where_they_differ(world):
    world.add("a", make_wheel("a", {"shared/same.py": b"1", "shared/other.py": b"1"}))
    world.add("b", make_wheel("b", {"shared/same.py": b"1", "shared/other.py": b"2"}))
    image = write_image(world.job())
    _, _, trees = read_image(image.target)
    assert trees[2][f"{SITE}/shared/other.py"][1] == b"1"
    assert len(image.notes) == 1
    assert "/shared/other.py is in a-1.0-py3-none-any.whl and, with other contents, in b-1.0" in image.notes[0]
    # What a cached layer had to say is not forgotten.
    assert write_image(world.job("again.tar")).notes == image.notes


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ({"apt": ("git",)}, "apt installs git"),
        ({"user_requirements": ("einops",)}, "1 line of the requirements"),
        ({"cuda_base": BaseImage(ref="nvidia/cuda:1")}, "libraries are copied from the image nvidia/cuda:1"),
    ],
)
def test_what_must_be_run_needs_an_engine(world, image, why):
    fill(world)
    with pytest.raises(UsageError) as caught:
        write_image(world.job(stack=world.stack(**image)))
    assert why in caught.value.because[0]
    assert "--engine docker" in caught.value.hints[0]
    assert world.index.loaded == []


@pytest.mark.parametrize(
    ("change", "why"),
    [({"is_source": True}, "has no wheel and must be compiled"), ({"sha256": None}, "no hash of numpy 1.0 is known")],
)
def test_what_has_no_verified_wheel_needs_an_engine(world, change, why):
    fill(world)
    world.packages[3] = replace(world.packages[3], **change)
    with pytest.raises(UsageError) as caught:
        write_image(world.job())
    assert why in caught.value.because[0]


def test_a_step_that_runs_something_needs_an_engine(world):
    fill(world)
    job = world.job()
    *below, image = job.recipe.stages
    for step, said in (
        (Run(commands=("make-a-sandwich",)), "it needs `make-a-sandwich`"),
        (Copy(sources=("/bread",), target="/", stage="kitchen"), "it needs `COPY --from=kitchen /bread`"),
    ):
        stages = (*below, replace(image, steps=(*image.steps, step)))
        with pytest.raises(UsageError) as caught:
            write_image(replace(job, recipe=replace(job.recipe, stages=stages)))
        assert caught.value.because == (said,)


def test_a_base_without_the_python_is_refused(world):
    fill(world)
    world.base = world.folder / "base"
    make_base(world.base, {path: what for path, what in SLIM.items() if "python3.11" not in path})
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "has python3.11" in caught.value.because[0]


def test_a_base_that_is_not_the_locks_is_refused_and_the_locks_is_taken(world):
    fill(world)
    world.base = world.folder / "base"
    right = make_base(world.base)
    world.base_digest = f"sha256:{'2' * 64}"
    with pytest.raises(UsageError) as caught:
        write_image(world.job())
    assert right in caught.value.because[1]
    world.base_digest = right
    assert write_image(world.job()).target.is_file()


def test_a_base_for_another_platform_is_refused(world):
    fill(world)
    world.base = world.folder / "base"
    make_base(world.base, architecture="arm64")
    with pytest.raises(UsageError, match="holds no image for linux/amd64"):
        write_image(world.job())


@pytest.mark.parametrize("what", ["layer", "header", "manifest", "cut", "gone"])
def test_a_damaged_base_is_refused(world, what):
    fill(world)
    world.base = world.folder / "base"
    manifest = make_base(world.base)
    blobs = world.base / "blobs" / "sha256"
    layer = max(blobs.iterdir(), key=lambda path: path.read_bytes().startswith(b"\x1f\x8b"))
    victim = blobs / manifest.removeprefix("sha256:") if what == "manifest" else layer
    if what == "gone":
        victim.unlink()
    else:
        data = bytearray(victim.read_bytes())
        # The date in the head of a compressed layer changes its digest and not what it unpacks to.
        data[4 if what == "header" else 40] ^= 1
        victim.write_bytes(data[:50] if what == "cut" else data)
    with pytest.raises(ProvisionError) as caught:
        write_image(world.job())
    assert str(world.base) in caught.value.message
    assert not (world.folder / "image.tar").exists()


@pytest.mark.parametrize("packed", [True, False])
def test_what_docker_saves_can_be_built_on(world, packed):
    fill(world)
    layout = world.folder / "layout"
    make_base(layout, packed=False)
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / name_of(index["manifests"][0]["digest"])).read_text())
    layer = (layout / name_of(manifest["layers"][0]["digest"])).read_bytes()
    config = (layout / name_of(manifest["config"]["digest"])).read_bytes()
    world.base = world.folder / "saved.tar"
    with tarfile.open(world.base, "w") as tar:
        saved = json.dumps([{"Config": "config.json", "RepoTags": None, "Layers": ["1/layer.tar"]}]).encode()
        parts = {
            "1/layer.tar": gzip.compress(layer) if packed else layer,
            "config.json": config,
            "manifest.json": saved,
        }
        for name, data in parts.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    image = write_image(world.job())
    manifest, _, trees = read_image(image.target)
    assert manifest["layers"][0]["mediaType"].endswith("tar+gzip" if packed else "tar")
    assert "usr/bin/python3.11" in trees[0]


def test_a_base_that_is_no_base_is_named(world, tmp_path):
    fill(world)
    for name, content in (("text", b"hello"), ("empty.tar", bytes(10240))):
        world.base = tmp_path / name
        world.base.write_bytes(content)
        with pytest.raises(ProvisionError) as caught:
            write_image(world.job())
        assert str(world.base) in caught.value.message
    world.base = tmp_path / "absent"
    with pytest.raises(UsageError, match="does not exist"):
        write_image(world.job())


def test_a_tree_knows_links_removals_and_what_a_folder_hides():
    tree = Tree()
    layers = [
        {"a/": None, "a/x": b"1", "a/y": b"1", "b/": None, "b/z": b"1", "l": "a", "loop": "loop", "up": "../../a/x"},
        {"a/.wh.x": b"", "b/.wh..wh..opq": b"", "b/new": b"1"},
    ]
    for files in layers:
        with tarfile.open(fileobj=io.BytesIO(make_layer(files))) as tar:
            tree.apply(tar)
    assert tree.resolve("l/y") == "a/y"
    assert tree.resolve("l/x") is None
    assert tree.resolve("loop") is None
    assert sorted(path for path in tree.entries if path.startswith("b")) == ["b", "b/new"]
    with (
        tarfile.open(fileobj=io.BytesIO(make_layer({"../x": b""}))) as tar,
        pytest.raises(ValueError, match="leads out"),
    ):
        tree.apply(tar)


def test_a_large_wheel_is_never_in_memory(world):
    size = 96 * 1024 * 1024
    data = b"".join(hashlib.sha256(bytes([number % 256, number // 256])).digest() * 1024 for number in range(64))
    world.add("sample", make_wheel("sample", {"sample/big.so": data * (size // len(data))}), "cuda")
    del data
    job = world.job()
    tracemalloc.start()
    try:
        write_image(job)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The server of this test holds the wheel, outside of what is traced; of the unpacked file only chunks are.
    assert peak < size / 4


def test_a_wheel_of_the_context_is_read_from_there_and_held_to_the_lock(world):
    fill(world)
    package = replace(world.packages[0], url=f"{LOCAL}{world.packages[0].file}")
    store = Store(world.folder / "cache")
    wheels = download.Wheels(store, Reader(), halt=Halt(), watch=Silent(), local=world.folder / "local")
    (wanted,) = download.locate([package], Reader(), index_url=world.index.url)
    with pytest.raises(ActionFailedError, match="is not the one in the lock"):
        wheels.fetch(wanted)
    (world.folder / "local").mkdir()
    path = world.folder / "local" / str(package.file)
    path.write_bytes(b"another")
    with pytest.raises(ActionFailedError, match="is not the one in the lock"):
        wheels.fetch(wanted)
    path.write_bytes(world.index.wheels[path.name])
    assert wheels.fetch(wanted) == path


def test_an_interrupt_ends_every_part(world):
    fill(world)

    class Interrupting(Silent):
        def begin(self, part: str, total_bytes: int | None) -> None:
            if part == "layer framework":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_image(world.job(), Interrupting())
    assert not (world.folder / "image.tar").exists()
    assert list((world.folder / "cache").glob(".draft-*")) == []


def test_a_disk_that_takes_no_more_is_named(world, monkeypatch):
    fill(world)
    wheels = download.Wheels(Store(world.folder / "cache"), Reader(), halt=Halt(), watch=Silent())
    wanted = download.locate(world.packages[:1], Reader(), index_url=world.index.url)[0]

    def refuse(_stream: object, _chunk: bytes) -> None:
        raise download._DiskError(28, "No space left on device")

    monkeypatch.setattr(download, "_write", refuse)
    with pytest.raises(ActionFailedError) as caught:
        wheels.fetch(wanted)
    assert caught.value.because == ("No space left on device",)
    assert "PROVISION_CACHE_DIR" in caught.value.hints[0]


def test_runs_that_share_a_cache_do_not_take_from_each_other(world):
    fill(world)
    world.job()
    inside = threading.Lock()
    met = []

    class Meeting(Silent):
        def begin(self, part: str, total_bytes: int | None) -> None:
            if part == "layer framework":
                met.append(inside.acquire(blocking=False))
                time.sleep(0.1)

        def end(self, part: str, outcome: str) -> None:
            if part == "layer framework" and inside.locked():
                inside.release()

    with ThreadPoolExecutor(3) as pool:
        images = list(
            pool.map(lambda number: write_image(world.job(f"{number}.tar"), Meeting()), range(3)),
        )
    assert len({image.target.read_bytes() for image in images}) == 1
    assert met == [True] * 3
    # The later ones found what the first had made.
    assert sorted(sum(layer.is_cached for layer in image.layers) for image in images) == [1, 4, 4]


def kept(world: World) -> set[str]:
    """Return what the cache holds, its lock aside, after holding every description against its blob."""
    cache = world.folder / "cache"
    blobs = {path.name for path in (cache / "blobs" / "sha256").glob("*")}
    digests = {json.loads(path.read_text())["digest"].removeprefix("sha256:") for path in cache.glob("layers/*.json")}
    assert blobs == digests
    assert {path.stem for path in cache.glob("layers/*.json")} == {path.stem for path in cache.glob("layers/*.files")}
    return blobs


def bounded(world: World, target: str, bytes_max: int) -> OciJob:
    return replace(world.job(target), store=Store(world.folder / "cache", bytes_max=bytes_max))


def test_what_was_not_used_for_longest_goes_first(world):
    digests = {}
    for name in ("old", "used", "new"):
        world.packages.clear()
        world.add(name, make_wheel(name, {f"{name}.bin": os.urandom(100_000)}))
        digests[name] = write_image(world.job(f"{name}.tar")).layers[2].digest.removeprefix("sha256:")
        for path in (world.folder / "cache" / "layers").glob("*"):
            os.utime(path, (path.stat().st_mtime - 100,) * 2)
    world.packages[:] = []
    world.add("used", world.index.wheels["used-1.0-py3-none-any.whl"])
    said: list[str] = []

    class Heard(Silent):
        def end(self, part: str, outcome: str) -> None:
            said.append(f"{part} {outcome}")

    image = write_image(bounded(world, "again.tar", 210_000), Heard())
    assert [layer.is_cached for layer in image.layers][2]
    assert kept(world) == {digests["used"], digests["new"]}
    assert any("1 not used for longest removed" in line for line in said)
    # What a run itself used stays, whatever the bound; the next run takes it away.
    write_image(bounded(world, "last.tar", 0))
    assert kept(world) == {digests["used"]}


def test_wheels_of_a_run_that_failed_stay_for_the_next_whatever_the_bound(world):
    world.add("whole", make_wheel("whole"))
    world.add("broken", make_wheel("broken"))
    world.index.cut["broken-1.0-py3-none-any.whl"] = [10] * 4
    with pytest.raises(MissingDependencyError, match="broken"):
        write_image(bounded(world, "image.tar", 0))
    write_image(bounded(world, "image.tar", 0))
    assert world.index.loaded.count("whole-1.0-py3-none-any.whl") == 1


def test_a_folder_that_shares_blobs_with_the_cache_keeps_them(world):
    fill(world)
    image = write_image(world.job("layout"))
    world.packages.clear()
    world.add("other", make_wheel("other"))
    write_image(bounded(world, "other.tar", 0))
    assert len(kept(world)) == 1
    for layer in image.layers:
        assert (world.folder / "layout" / name_of(layer.digest)).stat().st_size == layer.size


def test_what_a_killed_run_left_and_nothing_refers_to_is_taken_away(world):
    fill(world)
    cache = world.folder / "cache"
    (cache / "blobs" / "sha256").mkdir(parents=True)
    (cache / "blobs" / "sha256" / ("0" * 64)).write_bytes(b"half")
    (cache / "layers").mkdir()
    (cache / "layers" / "broken.json").write_text("{")
    (cache / "layers" / "broken.files").write_text("{}")
    mine = world.folder / "mine"
    mine.write_text("somebody's")
    (cache / "layers" / "astray.json").write_text(json.dumps({"digest": f"sha256:{mine}"}))
    (cache / "layers" / "astray.files").write_text("{}")
    write_image(world.job())
    assert "0" * 64 not in kept(world)
    assert mine.read_text() == "somebody's"


def test_two_runs_with_a_small_bound_do_not_take_from_each_other(world):
    fill(world)
    world.job()
    with ThreadPoolExecutor(3) as pool:
        images = list(pool.map(lambda number: write_image(bounded(world, f"{number}.tar", 1)), range(3)))
    assert len({image.target.read_bytes() for image in images}) == 1
    kept(world)


def test_without_a_lock_nothing_is_taken_away(world, monkeypatch):
    fill(world)
    write_image(world.job("one.tar"))
    world.packages.clear()
    world.add("other", make_wheel("other"))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    write_image(bounded(world, "two.tar", 0))
    assert len(list((world.folder / "cache" / "layers").glob("*.json"))) == 4


def test_drafts_of_runs_that_were_killed_are_cleared_once_they_are_old(world):
    fill(world)
    cache = world.folder / "cache"
    cache.mkdir()
    for name, age in ((".draft-old", 2 * 86400), (".draft-young", 3600)):
        (cache / name).write_bytes(b"x")
        os.utime(cache / name, (time.time() - age,) * 2)
    write_image(world.job())
    assert [path.name for path in cache.glob(".draft-*")] == [".draft-young"]


def edit_manifest(base: Path, **values: object) -> None:
    """Write other values into the first layer's descriptor of a layout."""
    row = json.loads((base / "index.json").read_text())["manifests"][0]
    manifest = json.loads((base / name_of(row["digest"])).read_text())
    manifest["layers"][0] |= values
    row |= put(base, json.dumps(manifest).encode())
    (base / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [row]}))


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_base_whose_layer_is_not_as_long_as_it_says_is_refused(world, difference):
    fill(world)
    world.base = world.folder / "base"
    make_base(world.base)
    size = max(path.stat().st_size for path in (world.base / "blobs" / "sha256").iterdir() if is_gzip(path))
    edit_manifest(world.base, size=size + difference)
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert f"has {size} bytes, not the {size + difference} it says" in caught.value.because[0]


def is_gzip(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x1f\x8b")


@pytest.mark.parametrize("target", ["image.tar", "layout"])
@pytest.mark.parametrize("change", ["other", "longer", "shorter"])
def test_a_base_that_changes_while_the_image_is_written_is_refused(world, monkeypatch, target, change):
    fill(world)
    world.base = world.folder / "base"
    make_base(world.base)
    blob = next(path for path in (world.base / "blobs" / "sha256").iterdir() if is_gzip(path))
    data = blob.read_bytes()
    other = {"other": data[:-1] + bytes([data[-1] ^ 1]), "longer": data + b"x", "shorter": data[:-1]}[change]

    before = image_module.read_tree

    def read_and_change(*values: object) -> object:
        found = before(*values)
        blob.write_bytes(other)
        return found

    monkeypatch.setattr(image_module, "read_tree", read_and_change)
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job(target))
    assert "was changed while the image was written" in caught.value.because[0]
    assert not (world.folder / target).exists()


@pytest.mark.parametrize("way", ["../outside", "a/../../outside", "absolute"])
@pytest.mark.parametrize("what", ["Config", "Layers"])
def test_a_saved_image_as_a_folder_reads_nothing_outside_of_it(world, way, what):
    fill(world)
    layer = make_layer(SLIM)
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = {"architecture": "amd64", "os": "linux", "config": CONFIG, "rootfs": rootfs}
    world.base = world.folder / "base"
    (world.base / "a").mkdir(parents=True)
    parts = {"Config": json.dumps(config).encode(), "Layers": layer}
    outside = world.folder / "outside"
    outside.write_bytes(parts[what])
    row: dict[str, object] = {"RepoTags": None}
    for key, data in parts.items():
        (world.base / key).write_bytes(data)
        name = key if key != what else str(outside) if way == "absolute" else way
        row[key] = name if key == "Config" else [name]
    (world.base / "manifest.json").write_text(json.dumps([row]))
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert "leads out of it" in caught.value.because[0]


def test_a_part_that_ends_just_after_its_time_is_heard(world):
    class Late(Future[Path]):
        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        def result(self, timeout: float | None = None) -> Path:
            self.asked += 1
            if self.asked == 1:
                self.set_result(Path("here"))
                raise TimeoutError
            return super().result(timeout)

    work = image_module._Work(world.job(), Halt(), Silent())
    assert work._await(Late()) == Path("here")
    failed: Future[Path] = Future()
    failed.set_exception(TimeoutError("of its own"))
    with pytest.raises(TimeoutError, match="of its own"):
        work._await(failed)


def test_every_file_of_a_layout_may_be_read_by_everybody(world):
    fill(world)
    image = write_image(world.job("layout"))
    modes = {path.stat().st_mode & 0o777 for path in (image.target / "blobs" / "sha256").iterdir()}
    assert modes == {0o644}


def huge_header(kind: bytes, size: int) -> bytes:
    """Return a tar whose one header says that its continuation is that long, and brings it."""
    item = tarfile.TarInfo("x")
    item.type, item.size = kind, size
    return item.tobuf(tarfile.GNU_FORMAT) + bytes(size) + make_layer(SLIM)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("where", ["layer", "archive"])
def test_a_base_with_an_endless_header_is_refused_before_it_is_read(world, kind, where):
    fill(world)
    size = 16 * 1024 * 1024
    layer = huge_header(kind, size)
    world.base = world.folder / "base.tar"
    if where == "archive":
        world.base.write_bytes(layer)
    else:
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
        config = {"architecture": "amd64", "os": "linux", "config": CONFIG, "rootfs": rootfs}
        row = {"Config": "config", "Layers": ["layer"]}
        parts = {"config": json.dumps(config).encode(), "layer": gzip.compress(layer, 1)}
        parts["manifest.json"] = json.dumps([row]).encode()
        with tarfile.open(world.base, "w") as tar:
            for name, data in parts.items():
                item = tarfile.TarInfo(name)
                item.size = len(data)
                tar.addfile(item, io.BytesIO(data))
    del layer
    job = world.job()
    tracemalloc.start()
    try:
        with pytest.raises(ProvisionError) as caught:
            write_image(job)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"a header of {size} bytes" in caught.value.because[0]
    assert peak < size / 2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000 + "]" * 200_000,
        '{"manifests":' * 100_000 + "1" + "}" * 100_000,
        "9" * 5000,
        '{"manifests": [{"a": ',
    ],
)
def test_documents_of_a_base_that_nobody_can_read_are_refused(world, text):
    fill(world)
    world.base = world.folder / "base"
    make_base(world.base)
    (world.base / "index.json").write_text(text)
    with pytest.raises(ActionFailedError) as caught:
        write_image(world.job())
    assert str(world.base) in caught.value.message
    assert "its documents are" in caught.value.because[0]
