"""Measure a real image against what it could cost at best and against its rivals, as ratios within one run.

    python tests/benchmarks/build_image.py CONTEXT [--ca-cert FILE] [--rivals pip recipe] [--compare] [--json FILE]

CONTEXT is a folder written by ``provision image … -r requirements.txt``. Every cold build downloads its wheels anew
into a cache of its own. What is measured:

=========  ==========================================================================================================
floor      uv downloads and installs the same wheels in one step, and the engine exports that layer
cold       ``provision image --build`` with nothing cached
warm       the same again after one line was added to the user's requirements
pip        pip downloads and installs the same wheels by hash in one step (``--rivals pip``)
recipe     ``pip install`` of the framework and its companions without a lock, on ``--recipe-base``
=========  ==========================================================================================================

Sizes are what the engine reports for its store, so they are comparable only in a graph-driver store. ``--compare``
builds once more and compares the file trees of every layer. A framework with its CUDA libraries takes about 40 GB of
disk meanwhile. Images and wheels are removed at the end; the layers stay in the engine's build cache until
``docker buildx prune``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from provision.build.engine import BuildRequest, BuildResult, Engine, find_engine
from provision.build.progress import report_progress
from provision.build.verify import verify_image
from provision.errors import ProvisionError

NAME = "provision-bench"
# Bytes that the wheels unpack to: their own records list them, and leave out the byte code that is compiled later.
SUM_OF_RECORDS = """
import importlib.metadata as m
print(sum(f.size or 0 for d in m.distributions() for f in d.files or ()))
"""
LIMITS = {
    "image / (base + wheels), bytes": 1.03,
    "cold build / (uv install + export), seconds": 1.2,
    "rebuild / cold build, seconds": 0.15,
}


@dataclass(frozen=True)
class Bench:
    """What every build of the run shares."""

    engine: Engine
    context: Path
    base: str
    ca_cert: Path | None
    epoch: int
    network: str | None

    def build(self, folder: Path, tag: str, *, is_cached: bool) -> BuildResult:
        """Build a folder and show how it goes."""
        sys.stderr.write(f"== {tag}\n")
        # No build pays for what the one before left to be written to the disk.
        os.sync()
        request = BuildRequest(
            tags=(f"{NAME}:{tag}",),
            source_date_epoch=self.epoch,
            secrets={"provision-ca": self.ca_cert} if self.ca_cert else {},
            network=self.network,
            is_cached=is_cached,
        )
        with report_progress(sys.stderr) as observer:
            return self.engine.build(folder, request, observer)

    def size(self, result: BuildResult) -> int:
        """Return the size of what was built."""
        assert result.image is not None
        return result.image.size_bytes


def seconds_of(result: BuildResult, part: str) -> float:
    """Return the seconds of the steps whose name holds a text."""
    return sum(step.seconds or 0.0 for step in result.steps if part in step.name)


@contextmanager
def fresh_copy(bench: Bench) -> Iterator[Path]:
    """Yield a copy of the context whose cache mounts are its own, empty ones."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as scratch:
        folder = Path(scratch) / "context"
        shutil.copytree(bench.context, folder)
        dockerfile = folder / "Dockerfile"
        text = dockerfile.read_text()
        dockerfile.write_text(re.sub(r"\bid=provision-(?!ca\b)", f"id={NAME}-{secrets.token_hex(4)}-", text))
        yield folder


def write_rival(folder: Path, bench: Bench, base: str, command: str) -> None:
    """Write a Dockerfile that installs in one step; uv stands ready under /opt/tools."""
    mounts = "--mount=type=bind,target=/context"
    environment = ""
    if bench.ca_cert:
        mounts += " --mount=type=secret,id=provision-ca,required=true"
        environment = "PIP_CERT=/run/secrets/provision-ca SSL_CERT_FILE=/run/secrets/provision-ca "
    (folder / "Dockerfile").write_text(
        f"FROM {bench.base} AS tools\n"
        f"RUN {mounts} {environment}python -m pip install --target /opt/tools --no-deps -r /context/tools.txt\n"
        f"FROM {base}\n"
        f"RUN {mounts} --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools "
        f"--mount=type=cache,id={NAME}-{secrets.token_hex(4)},target=/root/.cache {environment}{command}\n"
    )


def forget(*tags: str) -> None:
    """Remove images, and the caches of wheels that only this run has."""
    for tag in tags:
        subprocess.run(["docker", "image", "rm", f"{NAME}:{tag}"], capture_output=True, check=False)
    usage = subprocess.run(["docker", "buildx", "du", "--verbose"], capture_output=True, text=True, check=False)
    for record in usage.stdout.split("\n\n"):
        found = re.search(r"^ID:\s+(\S+)", record, re.MULTILINE)
        if found and NAME in record and "exec.cachemount" in record:
            words = ["docker", "buildx", "prune", "--force", f"--filter=id={found[1]}"]
            subprocess.run(words, capture_output=True, check=False)


def measure_rival(bench: Bench, tag: str, base: str, command: str) -> dict[str, float]:
    """Build a rival and return its seconds without its tools, the export among them, and its size."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as scratch:
        folder = Path(scratch)
        for name in ("tools.txt", "requirements.lock.txt"):
            shutil.copy(bench.context / name, folder)
        write_rival(folder, bench, base, command)
        result = bench.build(folder, tag, is_cached=False)
    size = bench.size(result)
    forget(tag)
    # Between two steps the engine commits a layer; that belongs to the price of the layer. The tools do not.
    return {
        "seconds": result.seconds - seconds_of(result, "--target /opt/tools"),
        "export_seconds": seconds_of(result, "exporting to"),
        "bytes": size,
    }


def trees(image: str) -> list[dict[str, tuple[object, ...]]]:
    """Return for each layer: path → type, mode, owner, link, size and digest of the contents, but no time."""
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        layers: dict[str, dict[str, tuple[object, ...]]] = {}
        order: list[str] = []
        with tarfile.open(fileobj=process.stdout, mode="r|") as outer:
            for member in outer:
                file = outer.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                if member.name == "manifest.json":
                    order = json.load(file)[0]["Layers"]
                elif member.size > 10240 or member.name.endswith(".tar"):
                    try:
                        layers[member.name] = read_tree(file)
                    except tarfile.ReadError:
                        continue
    return [layers.get(name, {}) for name in order]


def read_tree(file: IO[bytes]) -> dict[str, tuple[object, ...]]:
    """Return the tree of one layer."""
    tree: dict[str, tuple[object, ...]] = {}
    with tarfile.open(fileobj=file, mode="r|") as layer:
        for item in layer:
            contents = layer.extractfile(item) if item.isfile() else None
            digest = hashlib.file_digest(contents, "sha256").hexdigest() if contents else None  # type: ignore[arg-type]
            tree[item.name] = (item.type, item.mode, item.uid, item.gid, item.linkname, item.size, digest)
    return tree


def compare(first: str, second: str) -> list[str]:
    """Return the paths whose contents, kind, mode or owner differ between two images."""
    one, two = trees(first), trees(second)
    if len(one) != len(two):
        return [f"{len(one)} and {len(two)} layers"]
    return sorted(
        path for a, b in zip(one, two, strict=True) for path in a.keys() | b.keys() if a.get(path) != b.get(path)
    )


def packages(context: Path) -> dict[str, str]:
    """Return the framework's packages of the lock: name → version."""
    lock: dict[str, Any] = json.loads((context / "provision.lock").read_text())
    wanted = (*lock["frameworks"], "torchvision", "torchaudio")
    return {name: lock["packages"][name] for name in wanted if name in lock["packages"]}


def measure(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    """Build everything and return the figures."""
    install = "--target /opt/bench --no-deps --require-hashes -r /context/requirements.lock.txt"
    figures: dict[str, Any] = {
        "engine": f"{bench.engine.name} {bench.engine.version}, {bench.engine.image_store}",
        "packages": packages(bench.context),
        "base_bytes": bench.engine.inspect(bench.base).size_bytes,
        "floor": measure_rival(
            bench, "floor", bench.base, f"/opt/tools/bin/uv pip install --link-mode copy --system {install}"
        ),
    }
    with fresh_copy(bench) as folder:
        cold = bench.build(folder, "cold", is_cached=False)
        user = folder / "requirements.user.txt"
        user.write_text(f"{user.read_text()}{arguments.added}\n")
        warm = bench.build(folder, "warm", is_cached=True)
        if arguments.compare:
            shutil.copy(bench.context / "requirements.user.txt", user)
            bench.build(folder, "again", is_cached=False)
            figures["differing_paths"] = compare(f"{NAME}:cold", f"{NAME}:again")
    for tag, result in (("cold", cold), ("warm", warm)):
        figures[tag] = {
            "seconds": result.seconds,
            "export_seconds": seconds_of(result, "exporting to"),
            "bytes": bench.size(result),
        }
    figures["export"] = cold.export.why
    figures["verification"] = [finding.detail for finding in verify_image(bench.engine, f"{NAME}:cold")]
    wheels = bench.engine.run(f"{NAME}:cold", ("-c", SUM_OF_RECORDS), entrypoint="python")
    figures["wheel_bytes"] = int(wheels.stdout)
    if "pip" in arguments.rivals:
        figures["pip"] = measure_rival(bench, "pip", bench.base, f"python -m pip install --no-cache-dir {install}")
    if "recipe" in arguments.rivals:
        names = " ".join(f"{name}=={version}" for name, version in packages(bench.context).items())
        figures["recipe"] = measure_rival(
            bench, "recipe", arguments.recipe_base or bench.base, f"python -m pip install --no-cache-dir {names}"
        )
    cold_seconds, cold_bytes = figures["cold"]["seconds"], figures["cold"]["bytes"]
    ratios = {
        "image / (base + wheels), bytes": cold_bytes / (figures["base_bytes"] + figures["wheel_bytes"]),
        "cold build / (uv install + export), seconds": cold_seconds / figures["floor"]["seconds"],
        "rebuild / cold build, seconds": figures["warm"]["seconds"] / cold_seconds,
    }
    for rival in ("pip", "recipe"):
        if rival in figures:
            ratios[f"cold build / {rival}, seconds"] = cold_seconds / figures[rival]["seconds"]
            ratios[f"image / {rival}, bytes"] = cold_bytes / figures[rival]["bytes"]
    figures["ratios"] = ratios
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print the figures for people."""
    print(f"{figures['engine']}; {figures['export']}")
    print(", ".join(f"{name} {version}" for name, version in figures["packages"].items()))
    for name in ("floor", "cold", "warm", "pip", "recipe"):
        if name in figures:
            row = figures[name]
            times = f"{row['seconds']:8.1f} s  (export {row['export_seconds']:5.1f} s)"
            print(f"{name:<8}{times} {row['bytes'] / 1e6:9.0f} MB")
    print(f"base {figures['base_bytes'] / 1e6:.0f} MB, wheels unpacked {figures['wheel_bytes'] / 1e6:.0f} MB")
    for name, ratio in figures["ratios"].items():
        wanted = f"   (wanted: at most {LIMITS[name]})" if name in LIMITS else ""
        print(f"{ratio:6.3f}  {name}{wanted}")
    if "differing_paths" in figures:
        paths = figures["differing_paths"]
        print(
            f"two cold builds: {len(paths)} paths differ in anything but time" + "".join(f"\n  {p}" for p in paths[:20])
        )


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure a real image build as ratios within one run.")
    parser.add_argument("context", type=Path, help="written by `provision image … -r requirements.txt`")
    parser.add_argument("--ca-cert", type=Path, help="certificates that the build steps need to reach the index")
    parser.add_argument("--network", help="network of the build steps")
    parser.add_argument("--added", default="tabulate", help="line added to the user's requirements")
    parser.add_argument("--rivals", nargs="+", choices=("pip", "recipe"), default=[], help="build these too")
    parser.add_argument("--recipe-base", help="base of the recipe (an nvidia/cuda tag); default: the context's base")
    parser.add_argument("--compare", action="store_true", help="build again and compare the file trees")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    lock = json.loads((arguments.context / "provision.lock").read_text())
    base = lock["image"]["base"]
    bench = Bench(
        engine=find_engine(),
        context=arguments.context,
        base=base["ref"] + (f"@{base['digest']}" if base["digest"] else ""),
        ca_cert=arguments.ca_cert,
        epoch=int(lock["image"]["source_date_epoch"]),
        network=arguments.network,
    )
    if not (arguments.context / "requirements.user.txt").is_file():
        parser.error("the context has no requirements.user.txt: write it with `-r requirements.txt`")
    try:
        figures = measure(bench, arguments)
    except ProvisionError as error:
        sys.exit("\n  ".join((error.message, *error.because, *error.hints)))
    finally:
        forget("floor", "cold", "warm", "again", "pip", "recipe")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    show(figures)


if __name__ == "__main__":
    main()
