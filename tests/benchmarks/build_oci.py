"""Measure an image written from wheels against BuildKit and against plain ``docker build`` with pip, in one run.

    python tests/benchmarks/build_oci.py BASE [--torch 2.1.1 2.1.2] [--runs N] [--paths oci buildkit pip] [--json FILE]

BASE is an image of the engine at hand with the Python of the stack (``python:3.11-slim-bookworm``). The wheels of both
stacks are loaded once and served from loopback to all three, so that no figure depends on a network. What is measured,
each path twice in a row, the first stack from nothing and the second after it:

=========  ==========================================================================================================
oci        ``provision image --engine oci``: an archive, from an empty cache of layers
buildkit   the Dockerfile, by BuildKit with a containerd store, exported as an OCI archive with zstd and rewritten time
           stamps
pip        ``pip install`` by hash in one step, by plain ``docker build`` into the same store (``--pip-second`` builds
           the second stack too)
=========  ==========================================================================================================

Both engines are one of their own, started for each path with an empty disk below ``--work`` and ended after it: root
and dockerd are needed, and about 40 GB. Seconds are those of the clock, on whatever else the machine does; CPU seconds
are the path's own (program, client, engine, build steps), and the ones to compare where the machine is busy. Memory is
the most that all processes of the path held together, files not counted. ``load`` brings the archive of ``oci`` into
such an engine, where the verification inside must pass.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provision.build.engine import BuildRequest, find_engine
from provision.build.oci.download import Wheels, locate
from provision.build.oci.refused import Halt
from provision.build.oci.store import Store
from provision.build.oci.watch import Silent
from provision.build.progress import report_progress
from provision.build.reader import Reader
from provision.build.verify import verify_image
from provision.generate.image import ImageOptions, render_image
from provision.generate.write import write_artifacts
from provision.index.address import find_index
from provision.resolve.stack import Stack

_TICKS = os.sysconf("SC_CLK_TCK")
_IMPORT = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t)"
PATHS = ("oci", "buildkit", "pip")


@dataclass
class Figure:
    """What one build cost and gave."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    layers: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the image's layers as they would be pushed."""
        return sum(self.layers.values())


def processes() -> dict[int, tuple[int, float]]:
    """Return pid → parent, CPU seconds of it and of the children that it has waited for."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    return found


def family(roots: set[int]) -> dict[int, float]:
    """Return pid → CPU seconds of processes and all that descend from them."""
    known = processes()
    members = {pid for pid in roots if pid in known}
    while more := {pid for pid, (parent, _) in known.items() if parent in members} - members:
        members |= more
    return {pid: known[pid][1] for pid in members}


def anonymous_bytes(pid: int) -> int:
    """Return the memory of a process that no file backs."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def measured(*roots: int) -> Iterator[Figure]:
    """Yield a figure that is filled when the block ends; children of this process count from now on."""
    figure = Figure(0.0, 0.0, 0)
    done = threading.Event()
    mine = os.getpid()

    def pids() -> dict[int, float]:
        return {pid: cpu for pid, cpu in family({mine, *roots}).items() if pid != mine}

    def watch() -> None:
        while not done.wait(0.2):
            figure.peak_bytes = max(figure.peak_bytes, sum(map(anonymous_bytes, pids())))

    os.sync()
    before, waited = pids(), os.times()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.monotonic()
    try:
        yield figure
    finally:
        figure.seconds = time.monotonic() - started
        done.set()
        watcher.join()
        after, now = pids(), os.times()
        figure.cpu_seconds = sum(after.values()) - sum(before.get(pid, 0.0) for pid in after)
        figure.cpu_seconds += now.children_user + now.children_system - waited.children_user - waited.children_system
        # Said at once, since a run takes long and may be broken off.
        sys.stderr.write(
            f"   clock {figure.seconds:.1f} s, CPU {figure.cpu_seconds:.1f} s, peak {figure.peak_bytes / 1e6:.0f} MB\n"
        )


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the wheels of a folder as a package index."""

    class Index(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/simple/"):
                super().do_GET()
                return
            name = self.path.split("/")[2]
            page = json.loads((folder / "pages.json").read_text()).get(name, {})
            links = [f'<a href="/{file}#sha256={digest}">{file}</a><br>' for file, digest in sorted(page.items())]
            body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    handler = functools.partial(Index, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()


def load_wheels(stacks: list[Stack], folder: Path) -> None:
    """Bring all wheels here that any of the stacks needs."""
    packages = {
        item.sha256: item for stack in stacks if stack.image for item in (*stack.image.packages, *stack.image.tools)
    }
    reader = Reader(find_index())
    wheels = Wheels(Store(folder), reader, halt=Halt(), watch=Silent())
    pages: dict[str, dict[str, str]] = {}
    for wanted in locate(packages.values(), reader):
        file = folder / wanted.file
        if not file.is_file():
            sys.stderr.write(f"== {wanted.file}\n")
            wheels.fetch(wanted).replace(file)
        pages.setdefault(wanted.package, {})[wanted.file] = wanted.sha256
    (folder / "pages.json").write_text(json.dumps(pages))


BRIDGE = "pvbench0"


@contextlib.contextmanager
def own_engine(work: Path, base: Path) -> Iterator[int]:
    """Yield the pid of an engine with a containerd store and an empty disk, which DOCKER_HOST names meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="engine-", dir=work))
    (folder / "daemon.json").write_text('{"features": {"containerd-snapshotter": true}}')
    # An engine without a bridge deletes docker0, which is the other engine's.
    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=False, capture_output=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("dockerd", f"--config-file={folder}/daemon.json", f"--host=unix://{folder}/socket"),
                *(f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"),
                *(f"--bridge={BRIDGE}", "--iptables=false"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{folder}/socket"
    try:
        for _ in range(600):
            if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0:
                break
            if process.poll() is not None:
                sys.exit(f"dockerd ended: {(folder / 'log').read_text(errors='replace')[-800:]}")
            time.sleep(0.1)
        subprocess.run(["docker", "load", "--quiet", f"--input={base}"], check=True, stdout=sys.stderr)
        yield process.pid
    finally:
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        process.kill()
        process.wait()
        time.sleep(1)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def layers_of_layout(archive: Path) -> dict[str, int]:
    """Return digest → size of the layers of an OCI archive."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> Any:
            file = tar.extractfile(name)
            assert file is not None
            return json.load(file)

        document = read("index.json")
        while "layers" not in document:
            document = read(f"blobs/{document['manifests'][0]['digest'].replace(':', '/')}")
    return {row["digest"]: row["size"] for row in document["layers"]}


def layers_of_image(name: str) -> dict[str, int]:
    """Return digest → size of the layers that the engine would push."""
    with subprocess.Popen(["docker", "save", name], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        sizes: dict[str, int] = {}
        manifest: dict[str, Any] = {}
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            for member in tar:
                sizes[member.name] = member.size
                file = tar.extractfile(member) if member.isfile() and member.size < 1_000_000 else None
                with contextlib.suppress(ValueError):
                    document = json.load(file) if file is not None else None
                    if isinstance(document, dict) and "layers" in document:
                        manifest = document
    return {row["digest"]: row["size"] for row in manifest["layers"]}


@dataclass(frozen=True)
class Bench:
    """What every build of the run shares."""

    work: Path
    index: str
    base: str
    base_archive: Path
    stacks: list[Stack]
    has_pip_second: bool

    def context(self, stack: Stack, folder: Path) -> Path:
        """Write a stack's context."""
        write_artifacts(folder, render_image(stack, ImageOptions(index_url=self.index)), force=True)
        return folder

    def oci(self) -> dict[str, Any]:
        """Write both stacks from wheels."""
        from provision.resolve.request import to_flags

        figures: dict[str, Any] = {}
        cache = Path(tempfile.mkdtemp(prefix="cache-", dir=self.work))
        archives = []
        for name, stack in zip(("first", "second"), self.stacks, strict=True):
            archive = self.work / f"{stack.name}.tar"
            command = [
                *(
                    sys.executable,
                    "-m",
                    "provision",
                    "image",
                    "--engine",
                    "oci",
                    "--base-layout",
                    str(self.base_archive),
                ),
                *("-o", str(self.work / f"context-{stack.name}"), "--output", f"type=oci,dest={archive}", "--quiet"),
                *("--index-url", self.index, "--tag", f"provision-bench:{name}", "--force"),
                *to_flags(stack.request),
            ]
            sys.stderr.write(f"== oci {name}\n")
            with measured() as figure:
                subprocess.run(command, check=True, env={**os.environ, "PROVISION_CACHE_DIR": str(cache)})
            figure.layers = layers_of_layout(archive)
            archives.append(archive)
            figures[name] = figure
        digest = hashlib.file_digest(archives[1].open("rb"), "sha256").hexdigest()
        figures["archive"] = digest
        with own_engine(self.work, self.base_archive) as pid:
            sys.stderr.write("== oci load\n")
            with measured(pid) as figures["load"]:
                subprocess.run(["docker", "load", "--quiet", f"--input={archives[1]}"], check=True, stdout=sys.stderr)
            engine = find_engine()
            figures["checks"] = len(verify_image(engine, "provision-bench:second"))
            figures["import_seconds"] = float(
                engine.run("provision-bench:second", ("-c", _IMPORT), entrypoint="python").stdout
            )
        shutil.rmtree(cache)
        for archive in archives:
            archive.unlink()
        return figures

    def buildkit(self) -> dict[str, Any]:
        """Build both stacks from their Dockerfiles."""
        figures: dict[str, Any] = {}
        with own_engine(self.work, self.base_archive) as pid:
            engine = find_engine()
            for name, stack in zip(("first", "second"), self.stacks, strict=True):
                archive = self.work / f"{stack.name}-buildkit.tar"
                request = BuildRequest(
                    tags=(f"provision-bench:{name}",),
                    purpose="file",
                    archive=archive,
                    network="host",
                    source_date_epoch=stack.image.source_date_epoch if stack.image else None,
                )
                context = self.context(stack, self.work / f"buildkit-{stack.name}")
                sys.stderr.write(f"== buildkit {name}\n")
                with measured(pid) as figure, report_progress(sys.stderr) as observer:
                    result = engine.build(context, request, observer)
                figure.layers = layers_of_layout(archive)
                figures[name] = figure
                figures[f"{name}_export_seconds"] = sum(
                    step.seconds or 0.0 for step in result.steps if "exporting to" in step.name
                )
                if name == "first":
                    archive.unlink()
            subprocess.run(["docker", "load", "--quiet", f"--input={archive}"], check=True, stdout=sys.stderr)
            figures["import_seconds"] = float(
                engine.run("provision-bench:second", ("-c", _IMPORT), entrypoint="python").stdout
            )
            archive.unlink()
        return figures

    def pip(self) -> dict[str, Any]:
        """Build with pip in one step."""
        figures: dict[str, Any] = {}
        with own_engine(self.work, self.base_archive) as pid:
            for name, stack in zip(("first", "second")[: 1 + self.has_pip_second], self.stacks, strict=False):
                context = self.context(stack, self.work / f"pip-{stack.name}")
                (context / ".dockerignore").unlink()
                (context / "Dockerfile").write_text(
                    f"FROM {self.base}\nCOPY requirements.lock.txt /\n"
                    f"RUN python -m pip install --no-cache-dir --no-deps --require-hashes --index-url {self.index} "
                    "-r /requirements.lock.txt\n"
                )
                words = ["docker", "build", "--network=host", "--progress=plain", f"--tag=provision-bench:{name}"]
                sys.stderr.write(f"== pip {name}\n")
                with measured(pid) as figure:
                    subprocess.run([*words, str(context)], check=True, stderr=subprocess.DEVNULL)
                figure.layers = layers_of_image(f"provision-bench:{name}")
                figures[name] = figure
        return figures


def shared(figures: dict[str, Any]) -> int | None:
    """Return the bytes of layers that both stacks have."""
    if "second" not in figures:
        return None
    first: dict[str, int] = figures["first"].layers
    second: dict[str, int] = figures["second"].layers
    return sum(size for digest, size in second.items() if digest in first)


def show(figures: dict[str, list[dict[str, Any]]]) -> None:
    """Print the figures for people."""
    print(f"{'':<18}{'clock s':>9}{'CPU s':>8}{'peak MB':>9}{'MB':>7}")
    for path, rounds in figures.items():
        for number, found in enumerate(rounds, 1):
            for name in ("first", "second", "load"):
                if name in found:
                    row = found[name]
                    size = f"{row.bytes / 1e6:7.0f}" if row.layers else ""
                    label = f"{path} {name}" + (f" #{number}" if len(rounds) > 1 else "")
                    print(f"{label:<18}{row.seconds:9.1f}{row.cpu_seconds:8.1f}{row.peak_bytes / 1e6:9.0f}{size}")
            if (both := shared(found)) is not None:
                print(f"{path}: {both / 1e6:.0f} MB of the second stack's layers are the first's")
            for name, value in found.items():
                if not isinstance(value, Figure):
                    print(
                        f"{path}: {name.replace('_', ' ')} {value if not isinstance(value, float) else round(value, 1)}"
                    )
    for path in figures:
        if path != "oci" and "oci" in figures:
            ours, theirs = figures["oci"][0]["first"], figures[path][0]["first"]
            print(
                f"oci / {path}, first stack: clock {ours.seconds / theirs.seconds:.2f}, "
                f"CPU {ours.cpu_seconds / theirs.cpu_seconds:.2f}, bytes {ours.bytes / theirs.bytes:.2f}"
            )


def solve(torch: str, python: str, base: str) -> Stack:
    """Return the stack of a torch version on the base."""
    from provision.matrix.load import Matrix
    from provision.resolve.request import Request
    from provision.resolve.solve import solve as resolve

    found = resolve(Request(torch=torch, python=python, base=base), Matrix())
    if not isinstance(found, Stack):
        sys.exit(f"torch {torch} on Python {python}: {found.message}")
    return found


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure an image written from wheels against engines.")
    parser.add_argument("base", help="image of the engine at hand, with the stack's Python")
    parser.add_argument("--torch", nargs=2, default=["2.1.1", "2.1.2"], metavar="VERSION", help="two patch releases")
    parser.add_argument("--python", default="3.11", help="Python of the stacks and of the base")
    parser.add_argument("--runs", type=int, default=1, help="rounds; each takes every path once")
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS), help="which to measure")
    parser.add_argument("--pip-second", action="store_true", help="build the second stack with pip too")
    parser.add_argument("--work", type=Path, help="folder for about 40 GB; wheels stay there for the next run")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="provision-bench-")))
        wheels = work / "wheels"
        wheels.mkdir(parents=True, exist_ok=True)
        stacks = [solve(version, arguments.python, arguments.base) for version in arguments.torch]
        load_wheels(stacks, wheels)
        archive = work / "base.tar"
        subprocess.run(["docker", "save", f"--output={archive}", arguments.base], check=True)
        bench = Bench(
            work=work,
            index=stack.enter_context(serve(wheels)),
            base=arguments.base,
            base_archive=archive,
            stacks=stacks,
            has_pip_second=arguments.pip_second,
        )
        figures: dict[str, list[dict[str, Any]]] = {path: [] for path in arguments.paths}
        for _ in range(arguments.runs):
            for path in arguments.paths:
                figures[path].append(getattr(bench, path)())
                if arguments.json:
                    text = json.dumps(figures, default=lambda item: {**vars(item), "bytes": item.bytes}, indent=1)
                    arguments.json.write_text(text + "\n")
    load = os.getloadavg()
    print(f"load of the machine at the end: {load[0]:.1f} {load[1]:.1f} {load[2]:.1f} on {os.cpu_count()} CPUs")
    show(figures)


if __name__ == "__main__":
    main()
