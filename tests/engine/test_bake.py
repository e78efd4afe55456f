"""A matrix of real stacks, baked in parallel by an engine with a registry as cache and target.

The stacks are the smallest that the facts know: CUDA with a Python and one wheel of the user's. The images they stand
on are stand-ins under the names that the facts give; the engine is one with the containerd store, which like every
builder but the plain docker driver can write a registry cache.
"""

from __future__ import annotations

import functools
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.cli.main import main
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.solve import solve

CUDA = ("11.8", "12.4")
MATRIX = """
[defaults]
python = "3.11"
os = "debian12"
base = "{registry}/stand-in/python:3.11"
requirements = "mine.txt"

[bake]
registry = "{registry}/ml"
cache = "{registry}/ml/cache"
compression = "zstd"

[[stack]]
cuda = ["11.8", "12.4"]

[[stack]]
name = "compiled"
cuda = "12.4"
flavor = "devel"
requirements = "sources.txt"
"""
# What the stage that compiles installs beside the source itself.
BUILD_TOOLS = ("ninja", "packaging", "psutil", "setuptools", "wheel")
# A package that exists only as source, and cannot be built without nvcc and the environment.
SETUP = """
import subprocess, sys
from setuptools import setup
said = subprocess.check_output(["nvcc", "--version"], text=True)
assert sys.prefix == "/opt/venv", sys.prefix
with open("flash_attn.py", "w") as file:
    file.write(f"compiler = {said!r}\\n")
setup(name="flash-attn", version="2.9.9", py_modules=["flash_attn"], install_requires=["sample"])
"""
ACCEPT = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)


def _run(*words: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done


def _facts(folder: Path) -> Path:
    """Return a copy of the facts in which flash-attn needs no PyTorch: the stand-in of that name compiles without."""
    data = shutil.copytree(asset_dir("compat"), folder / "compat")
    rows = (data / "extras.toml").read_text().split("\n\n")
    rows = [row.replace('frameworks = ["torch"]\n', "") if 'id = "flash-attn"' in row else row for row in rows]
    (data / "extras.toml").write_text("\n\n".join(rows))
    rows = (data / "companions.toml").read_text().split("\n\n")
    (data / "companions.toml").write_text("\n\n".join(row for row in rows if 'package = "flash-attn"' not in row))
    return data


def _bake(words: tuple[str, ...], folder: Path, log: Path) -> str:
    """Bake, keep all that was said, and return it."""
    with log.open("w") as output:
        done = subprocess.run(words, cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=False)
    text = log.read_text()
    assert done.returncode == 0, text[-3000:]
    return text


@dataclass(frozen=True)
class Index:
    """A package index on the loopback interface and the requests it answered."""

    url: str
    asked: list[str]


@pytest.fixture
def index(tmp_path: Path, write_wheel, downloaded: Path) -> Iterator[Index]:
    """An index of what installs and builds wheels, of the user's own package, and of one that exists only as source."""
    folder = tmp_path / "index" / "simple"
    for file in downloaded.iterdir():
        project = folder / file.name.split("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        (project / file.name).write_bytes(file.read_bytes())
    (folder / "sample").mkdir()
    write_wheel(folder / "sample")
    (folder / "flash-attn").mkdir()
    with tarfile.open(folder / "flash-attn" / "flash_attn-2.9.9.tar.gz", "w:gz") as tar:
        for name, text in {
            "setup.py": SETUP,
            # What it needs can be read and not only built: nothing here has the compiler.
            "PKG-INFO": "Metadata-Version: 2.2\nName: flash-attn\nVersion: 2.9.9\nRequires-Dist: sample\n",
        }.items():
            member = tarfile.TarInfo(f"flash_attn-2.9.9/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    for project in folder.iterdir():
        links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in sorted(project.iterdir()))
        (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *words: object) -> None:  # noqa: A002
            asked.append(self.path)

    place = str(folder.parent)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=place))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Index(f"http://127.0.0.1:{server.server_port}/simple/", asked)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def downloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The very wheels that the facts lock as tools, and tools for the build of another."""
    stack = solve(parse_request({"cuda": CUDA[0], "python": "3.11"}), Matrix(None))
    tools = [f"{tool.name}=={tool.version}" for tool in stack.image.tools]
    folder = tmp_path_factory.mktemp("tool")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--platform=manylinux_2_17_x86_64", "--python-version=3.11", "-d", str(folder)),
            *(*tools, *BUILD_TOOLS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no index gives {', '.join((*tools, *BUILD_TOOLS))}: {done.stderr[-300:]}")
    return folder


def _push(registry: str, source: str, name: str, *lines: str) -> None:
    """Push an image of the main engine, with more lines on top of it."""
    target = f"{registry}/{name}"
    dockerfile = "\n".join([f"FROM {source}", *lines]) + "\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", target, "-"],
        input=dockerfile, env={**os.environ, "DOCKER_BUILDKIT": "1"}, text=True, check=True, capture_output=True,
    )  # fmt: skip
    try:
        _run("docker", "push", "--quiet", target)
    finally:
        _run("docker", "image", "rm", target)


def _manifest(registry: str, name: str, tag: str) -> tuple[str, dict]:
    request = urllib.request.Request(f"http://{registry}/v2/{name}/manifests/{tag}", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.headers["Docker-Content-Digest"], json.loads(response.read())


def _ran(log: str) -> list[str]:
    """Return the steps that ran rather than came from a cache, by all the names that targets give each.

    A step whose layer is fetched from the registry at once is not always called cached; its lines then tell the layer.
    """
    names: dict[str, list[str]] = {}
    for number, name in re.findall(r"^#(\d+) \[(.+?)\] ?RUN ", log, re.MULTILINE):
        names.setdefault(number, []).append(name)
    cached = set(re.findall(r"^#(\d+) (?:CACHED$|sha256:[0-9a-f]{64} .* / )", log, re.MULTILINE))
    return [", ".join(dict.fromkeys(found)) for number, found in names.items() if number not in cached]


def test_a_matrix_is_baked_in_parallel_pushed_and_comes_from_the_cache(
    registry, python_base, start_engine, index, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "many"
    (tmp_path / "mine.txt").write_text("sample==1.0\n")
    (tmp_path / "sources.txt").write_text("flash-attn==2.9.9\n")
    (tmp_path / "stacks.toml").write_text(MATRIX.format(registry=registry))
    flags = ("--index-url", index.url, "--registry-mirror", registry, "--data-dir", str(_facts(tmp_path)))
    flags = (*flags, "--exclude-newer", "now")  # The index tells no dates.
    assert main(["image", "--matrix", str(tmp_path / "stacks.toml"), "-o", str(folder), *flags]) == 0

    # What the facts build on, under the names that they give.
    _push(registry, python_base, "stand-in/python:3.11")
    for dockerfile in folder.glob("*/Dockerfile"):
        tag = re.search(rf"^FROM {registry}/(\S+) AS cuda$", dockerfile.read_text(), re.MULTILINE)[1]
        minor = re.search(r"/usr/local/(cuda-\d+\.\d+)", dockerfile.read_text())[1]
        _push(
            registry,
            python_base,
            tag,
            f"RUN mkdir -p /usr/local/{minor}/bin /usr/local/{minor}/lib64",
            f"RUN printf '#!/bin/sh\\necho {tag}\\n' > /usr/local/{minor}/bin/nvcc",
            f"RUN chmod +x /usr/local/{minor}/bin/nvcc",
        )

    # The index is on this machine's loopback interface, so the steps need its network; users' builders have their own.
    # Of the two languages of bake only Compose's can say so in every version.
    targets = dict(
        re.findall(r'^target "(.+)" \{\n  context = "(.+)"$', (folder / "docker-bake.hcl").read_text(), re.MULTILINE)
    )
    services = {name: {"build": {"context": context, "network": "host"}} for name, context in targets.items()}
    (folder / "override.yaml").write_text(json.dumps({"services": services}))
    names = sorted(path.parent.name for path in folder.glob("*/Dockerfile"))
    words = ("docker", "buildx", "bake", "--builder=default", "-f", "docker-bake.hcl", "-f", "override.yaml")
    words = (*words, "--progress=plain", "--push", *names)

    start_engine(size_mb=3000, has_containerd_store=True, is_on_host_network=True)
    first = _bake(words, folder, tmp_path / "first.log")
    assert len(names) == len(CUDA) + 1
    pushed = {name: _manifest(registry, f"ml/{name}", "latest") for name in names}
    assert all(
        {layer["mediaType"] for layer in manifest["layers"][-3:]} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
        for _, manifest in pushed.values()
    )

    # One download serves both; the stack that compiles needs an installer with one tool more. Which of its targets a
    # shared step is named after is the builder's choice.
    tool_steps = [names_of for names_of in _ran(first) if " tools 1/1" in names_of]
    assert len(tool_steps) == 2
    assert sum(path.startswith("/simple/uv/uv-") for path in index.asked) == 2
    assert any("compiled compile" in names_of for names_of in _ran(first))

    # An engine that has nothing takes every step from the registry, and pushes the same images.
    start_engine(size_mb=3000, has_containerd_store=True, is_on_host_network=True)
    index.asked.clear()
    second = _bake(words, folder, tmp_path / "second.log")
    assert _ran(second) == []
    assert index.asked == []
    assert {name: _manifest(registry, f"ml/{name}", "latest")[0] for name in names} == {
        name: digest for name, (digest, _) in pushed.items()
    }

    # What was pushed proves itself where it is pulled, and nothing but its wheels is left of what compiled them.
    monkeypatch.delenv("DOCKER_HOST")
    for name in names:
        image = f"{registry}/ml/{name}:latest"
        _run("docker", "pull", "--quiet", image)
        run = ("docker", "run", "--rm", "--network=none")
        try:
            module = "import sample, flash_attn as f; print(f.compiler)" if name == "compiled" else "import sample"
            said = _run(*run, "--entrypoint=python", image, "-c", module).stdout
            lock = _run(*run, "--entrypoint=cat", image, "/opt/provision/provision.lock").stdout
            left = _run(*run, "--entrypoint=sh", image, "-c", "ls /opt/venv/lib/python3.11/site-packages; ls /").stdout
        finally:
            _run("docker", "image", "rm", image)
        assert lock == (folder / name / "provision.lock").read_text()
        assert ("-devel-" in said) == (name == "compiled")
        assert "sample.py" in left
        assert not {"ninja", "setuptools", "wheel", "wheels"} & set(left.split())
