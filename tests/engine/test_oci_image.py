"""Images written without an engine, in engines: they load, run, prove themselves and say what built ones say."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provision.build.engine import BuildRequest, Engine
from provision.build.export import CONTAINERD
from provision.build.oci.codec import find_codec
from provision.build.oci.image import OciImage, OciJob, write_image
from provision.build.oci.store import Store
from provision.build.oci.target import Formats
from provision.build.verify import verify_image
from provision.generate.image import ImageOptions, make_recipe, render_image
from provision.resolve.request import Request
from provision.resolve.stack import BaseImage, DriverNeed, ExtraPart, ImagePart, LockedPackage, Stack

EPOCH = 1_700_000_000
DESCRIBED = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Labels", "ExposedPorts")


def make_wheel(name: str, needs: str = "") -> bytes:
    """Return a wheel with a module and a script."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": f"def main():\n    print('{name} runs')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return buffer.getvalue()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A package index on loopback, and its wheels."""
    wheels = {"lower-1.0-py3-none-any.whl": make_wheel("lower")}
    wheels["upper-1.0-py3-none-any.whl"] = make_wheel("upper", "Requires-Dist: lower>=1\n")
    folder = tmp_path / "index"
    for file, data in wheels.items():
        page = folder / "simple" / file.partition("-")[0]
        page.mkdir(parents=True)
        (page / file).write_bytes(data)
        (page / "index.html").write_text(f'<a href="{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple", wheels
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def stack(index: tuple[str, dict[str, bytes]], python_base: str) -> Stack:
    """A stack of two small packages in two layers."""
    packages = tuple(
        LockedPackage(
            name=file.partition("-")[0],
            version="1.0",
            index="pypi",
            file=file,
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
            layer="cuda" if file.startswith("lower") else "rest",
            why="test",
        )
        for file, data in index[1].items()
    )
    return Stack(
        request=Request(),
        facts_date="2026-11-21",
        python="3.11",
        platform={"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[os.uname().machine],
        os="debian12",
        cuda="12.1",
        variant="cu121",
        variants={},
        frameworks={},
        packages={package.name: package.version for package in packages},
        driver=DriverNeed(minimum="525.60.13"),
        image=ImagePart(
            flavor="runtime",
            base=BaseImage(ref=python_base),
            packages=packages,
            tools=(LockedPackage(name="uv", version="1.0", index="pypi", sha256="0" * 64, why="test"),),
            source_date_epoch=EPOCH,
            extras=(ExtraPart(id="board", port=8888, command=("upper",)),),
        ),
    )


@pytest.fixture
def saved_base(python_base: str, tmp_path: Path) -> Path:
    """The base as `docker save` writes it."""
    path = tmp_path / "base.tar"
    subprocess.run(["docker", "save", f"--output={path}", python_base], check=True)
    return path


Write = Callable[..., OciImage]


@pytest.fixture
def write(stack: Stack, index: tuple[str, dict[str, bytes]], saved_base: Path, tmp_path: Path) -> Write:
    """Write the stack's image without an engine."""

    def run(tag: str, *, compression: str = "zstd", target: str = "image.tar") -> OciImage:
        return write_image(
            OciJob(
                stack=stack,
                recipe=make_recipe(stack, ImageOptions()),
                base=saved_base,
                target=tmp_path / target,
                is_folder=not target.endswith(".tar"),
                tags=(tag,),
                codec=find_codec(compression),  # type: ignore[arg-type]
                store=Store(tmp_path / "cache"),
                formats=Formats(layout="1.0.0", hub="docker.io"),
                index_url=index[0],
            )
        )

    return run


def check_loaded(engine: Engine, image: OciImage, tag: str) -> None:
    """Load an archive, then let the image prove itself and run."""
    subprocess.run(["docker", "load", f"--input={image.target}"], check=True, capture_output=True)
    found = engine.inspect(tag)
    assert list(found.layers) == [layer.diff_id for layer in image.layers]
    assert [finding.check for finding in verify_image(engine, tag)] == [
        "python",
        "machine",
        "packages",
        "requirements",
    ]
    done = subprocess.run(["docker", "run", "--rm", "--network=none", tag], capture_output=True, text=True, check=True)
    assert done.stdout == "upper runs\n"
    # Judged by its exit status: engines lose the output of what ends at once, where the machine is busy.
    inside = 'test "$(id -u)" = 10001 && touch /workspace/x ~/x && ! command -v pip'
    assert engine.run(tag, ("-c", inside), entrypoint="sh").returncode == 0


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_the_engine_loads_it_and_it_proves_itself(buildx_engine, write, tag, compression):
    check_loaded(buildx_engine, write(tag, compression=compression), tag)


def test_a_containerd_store_loads_it_as_it_is(start_engine, write, tag):
    image = write(tag)
    own = start_engine(size_mb=1500, has_containerd_store=True)
    assert own.engine.image_store == CONTAINERD
    check_loaded(own.engine, image, tag)
    assert own.engine.inspect(tag).id in (image.manifest_digest, image.config_digest)


def test_it_is_described_as_the_dockerfile_describes_it(buildx_engine, stack, write, tag, make_context):
    """The engine itself reads those lines of the same Dockerfile that describe an image."""
    dockerfile = next(item.text for item in render_image(stack, ImageOptions()) if item.path == "Dockerfile")
    stage = dockerfile.rpartition("FROM base AS runtime\n")[2].replace("\\\n", "")
    lines = [line for line in stage.splitlines() if line.partition(" ")[0] not in ("RUN", "COPY", "#", "")]
    assert stack.image is not None
    context = make_context(f"FROM {stack.image.base.ref}", *lines)
    built = f"{tag}-built"
    buildx_engine.build(context, BuildRequest(tags=(built,), network="none", source_date_epoch=EPOCH), lambda *_: None)
    try:
        image = write(tag)
        subprocess.run(["docker", "load", f"--input={image.target}"], check=True, capture_output=True)
        by_engine, by_us = (
            json.loads(subprocess.run(["docker", "inspect", name], capture_output=True, check=True).stdout)[0]
            for name in (built, tag)
        )
        histories = [
            [
                row["CreatedBy"]
                for row in json.loads(
                    subprocess.run(
                        [
                            "curl",
                            "--silent",
                            "--unix-socket",
                            "/var/run/docker.sock",
                            f"http://x/images/{name}/history",
                        ],
                        capture_output=True,
                        check=True,
                    ).stdout
                )
                if row["Size"] == 0
                and row["CreatedBy"].split(" ")[0] in ("ENV", "LABEL", "USER", "ENTRYPOINT", "CMD", "EXPOSE")
            ]
            for name in (built, tag)
        ]
    finally:
        subprocess.run(["docker", "image", "rm", built], capture_output=True, check=False)
    for name in DESCRIBED:
        assert by_us["Config"].get(name) == by_engine["Config"].get(name), name
    assert by_us["Created"] == by_engine["Created"]
    assert histories[1] == histories[0]


def test_skopeo_reads_and_copies_it(write, tag, tmp_path):
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is absent (Debian, Ubuntu: `apt install skopeo`)")
    image = write("team/image:1")
    policy = tmp_path / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    said = subprocess.run([skopeo, "inspect", f"oci-archive:{image.target}"], capture_output=True, check=True).stdout
    assert json.loads(said)["Digest"] == image.manifest_digest
    copy = [skopeo, f"--policy={policy}", "copy", "--preserve-digests"]
    subprocess.run([*copy, f"oci-archive:{image.target}", f"oci:{tmp_path}/copy:1"], check=True, capture_output=True)
    folder = write("team/image:1", target="layout")
    subprocess.run([*copy, f"oci:{folder.target}", f"oci:{tmp_path}/other:1"], check=True, capture_output=True)
    index = json.loads((tmp_path / "other" / "index.json").read_text())
    assert index["manifests"][0]["digest"] == image.manifest_digest
