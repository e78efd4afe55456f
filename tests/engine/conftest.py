"""Engines, bases and registries for the tests that build images.

Where something is absent the tests are skipped with the reason, unless PROVISION_REQUIRE_ENGINE=1 makes that a failure.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import http.server
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NoReturn

import pytest

from provision.assets import asset_dir
from provision.build import buildx, sdk
from provision.build.engine import Engine, find_engine
from provision.errors import MissingDependencyError, ProvisionError
from provision.resolve.request import Request
from provision.resolve.stack import BaseImage, DriverNeed, ImagePart, LockedPackage, Stack

EPOCH = 1_700_000_000
TAG = "provision-test/build"


def _load(name: str) -> ModuleType:
    """Import a file of this folder by its path: tests are no package, and are run from any folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


base_image = _load("base_image")


def _absent(reason: str) -> NoReturn:
    if os.environ.get("PROVISION_REQUIRE_ENGINE") == "1":
        pytest.fail(f"PROVISION_REQUIRE_ENGINE=1, but {reason}")
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine that ``--build`` would use."""
    try:
        return find_engine()
    except ProvisionError as error:
        _absent(f"{error.message} (`sudo tools/engine.sh` installs and starts one)")


@pytest.fixture(scope="session")
def buildx_engine(engine: Engine) -> Engine:
    """An engine with BuildKit."""
    if engine.frontend == "classic":
        _absent("the engine at hand has no BuildKit")
    return engine


@pytest.fixture(scope="session")
def sdk_engine(engine: Engine) -> Engine:
    """The same engine without the docker command."""
    try:
        return sdk.connect()
    except (ModuleNotFoundError, MissingDependencyError) as error:
        _absent(f"the docker SDK has no engine: {error}")


@pytest.fixture(params=["command", "sdk"])
def any_engine(request: pytest.FixtureRequest) -> Engine:
    """The engine through both doors."""
    found: Engine = request.getfixturevalue("buildx_engine" if request.param == "command" else "sdk_engine")
    return found


@pytest.fixture(scope="session")
def python_base(engine: Engine) -> str:
    """A stand-in for the official slim Python image."""
    if not base_image.is_made():
        reason = base_image.missing_tool()
        if reason is not None:
            _absent(reason)
    return str(base_image.make_python_base())


@dataclass(frozen=True)
class OwnImage:
    """An image that no other test starts: the engine is shared, and other workers' containers come and go.

    Attributes:
        ref: Its name.
    """

    ref: str

    def containers(self) -> list[str]:
        """Return the ids of all its containers, stopped ones too."""
        words = ["docker", "ps", "--all", "--quiet", "--filter", f"ancestor={self.ref}"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()


@pytest.fixture
def own_image(python_base: str) -> Iterator[OwnImage]:
    """An image of this one test, with what the slim Python image has."""
    name = f"provision-test/own:{uuid.uuid4().hex}"
    recipe = f"FROM {python_base}\nLABEL provision-test={name}\n"
    subprocess.run(["docker", "build", "--quiet", "--tag", name, "-"], input=recipe, text=True, check=True, timeout=120)
    yield OwnImage(name)
    subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False, timeout=60)


@pytest.fixture(scope="session")
def full_base(python_base: str) -> str:
    """A stand-in for the official full Python image, which has git and ssh."""
    if not base_image.is_made(base_image.FULL, ("git", "openssh-client")):
        reason = base_image.missing_tool()
        if reason is not None:
            _absent(reason)
    return str(base_image.make_full_base())


@pytest.fixture
def ssh_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of ssh on loopback, as ``user@host:port``, that lets in the key of an agent, the only way in."""
    program = shutil.which("sshd")
    if program is None or shutil.which("ssh-agent") is None or os.geteuid() != 0:
        _absent("a server of ssh needs sshd, ssh-agent and root")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    log = folder / "log"
    words = [program, "-D", "-e", "-f", "/dev/null", "-h", str(folder / "host"), "-p", str(port)]
    for option in (
        f"AuthorizedKeysFile={folder / 'key.pub'}",
        "ListenAddress=127.0.0.1",
        "StrictModes=no",
        "UsePAM=no",
        "PasswordAuthentication=no",
        "PermitRootLogin=yes",
        f"PidFile={folder / 'pid'}",
    ):
        words += ["-o", option]
    socket_path = folder / "agent"
    with log.open("wb") as output:
        server = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until(lambda: _is_listening(port) and socket_path.exists(), server, "sshd", log)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        monkeypatch.setenv(
            "GIT_SSH_COMMAND",
            "ssh -F /dev/null -o IdentityFile=none -o StrictHostKeyChecking=accept-new "
            f"-o UserKnownHostsFile={folder / 'known'}",
        )
        subprocess.run(["ssh-add", "-q", str(folder / "key")], check=True)
        (folder / "key").unlink()
        yield f"root@127.0.0.1:{port}"
    finally:
        for process in (server, agent):
            process.terminate()
            process.wait()


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for an image that is removed afterwards."""
    name = f"{TAG}:{request.node.name.replace('[', '-').replace(']', '').lower()}"
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)


MakeContext = Callable[..., Path]


@pytest.fixture
def make_context(tmp_path: Path) -> MakeContext:
    """Write a context: the Dockerfile's lines, and more files by name."""

    def make(*lines: str, **files: str) -> Path:
        folder = tmp_path / "context"
        folder.mkdir()
        (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)
        return folder

    return make


def _write_wheel(folder: Path) -> str:
    """Write a wheel of a package called sample, and return its file name."""
    name = "sample-1.0-py3-none-any.whl"
    files = {
        "sample.py": "value = 1\n",
        "sample-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
        "sample-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    files["sample-1.0.dist-info/RECORD"] = "\n".join([*rows, "sample-1.0.dist-info/RECORD,,", ""])
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name


@pytest.fixture(scope="session")
def write_wheel() -> Callable[[Path], str]:
    """Write a wheel of a package called sample into a folder, and return its file name."""
    return _write_wheel


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the installer and of the init that the facts name for this machine, by the name of the package."""
    folder = tmp_path_factory.mktemp("tools")
    found = {}
    for name in ("uv", "dumb-init"):
        package = json.loads((asset_dir("compat") / "wheels" / f"{name}.json").read_text())
        ending = f"{os.uname().machine}.whl"
        wheel = next(item for item in package["releases"][0]["wheels"] if ending in item["file"])
        lines = folder / f"{name}.txt"
        lines.write_text(f"{name}=={package['releases'][0]['version']} --hash=sha256:{wheel['sha256']}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--dest", str(folder / name), "-r", str(lines)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            _absent(f"the wheel of {name} could not be had from an index: {done.stderr[-300:]}")
        found[name] = next((folder / name).iterdir())
    return found


@contextlib.contextmanager
def served(folder: Path, account: str | None = None) -> Iterator[str]:
    """Serve a folder on loopback, to everybody or to one ``user:password``."""
    wanted = account and f"Basic {base64.b64encode(account.encode()).decode()}"

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def send_head(self) -> Any:
            """Ask who it is, where that is asked."""
            if wanted and self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="index"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            return super().send_head()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def serve_folder() -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Serve a folder on loopback, to everybody or to one ``user:password``."""
    return served


@pytest.fixture(scope="session")
def sample_index(
    tools: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, write_wheel
) -> Iterator[tuple[str, dict]]:
    """An index on loopback with the tools and one small package, and its wheels by the name of the package."""
    folder = tmp_path_factory.mktemp("index")
    found = {}
    for name in (*tools, "sample"):
        page = folder / "simple" / name
        page.mkdir(parents=True)
        if name in tools:
            os.link(tools[name], page / tools[name].name)
        else:
            write_wheel(page)
        (found[name],) = page.iterdir()
        digest = hashlib.sha256(found[name].read_bytes()).hexdigest()
        (page / "index.html").write_text(f'<a href="{found[name].name}#sha256={digest}">{found[name].name}</a>')

    with served(folder) as url:
        yield f"{url}/simple", found


@pytest.fixture(scope="session")
def sample_stack(sample_index: tuple[str, dict[str, Path]], python_base: str) -> Stack:
    def locked(name: str) -> LockedPackage:
        file = sample_index[1][name]
        return LockedPackage(
            name=name,
            version=file.name.split("-")[1],
            index="pypi",
            file=file.name,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            size=file.stat().st_size,
            why="test",
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
        packages={"sample": "1.0"},
        driver=DriverNeed(minimum="525.60.13"),
        image=ImagePart(
            flavor="runtime",
            base=BaseImage(ref=python_base),
            packages=(locked("sample"),),
            tools=(locked("uv"), locked("dumb-init")),
            source_date_epoch=EPOCH,
        ),
    )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    for _ in range(300):
        if is_ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    _absent(f"{what} did not come up: {log.read_text(errors='replace')[-500:]}")


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry on the loopback interface, ``host:port``."""
    program = shutil.which("docker-registry")
    if program is None:
        _absent("docker-registry is absent (tools/engine.sh installs it)")
    folder = tmp_path_factory.mktemp("registry")
    port = free_port()
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until(lambda: _is_listening(port), process, "docker-registry", log)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class _BrokenRegistry(http.server.BaseHTTPRequestHandler):
    """Takes every layer and answers 500 to the manifest, the one request that engines do not repeat for minutes."""

    protocol_version = "HTTP/1.1"
    taken: ClassVar[set[str]] = set()

    def _read(self) -> int:
        """Read the body away and return its length."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return len(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        length = 0
        while size := int(self.rfile.readline(), 16):
            length += size
            self.rfile.read(size + 2)
        self.rfile.readline()
        return length

    def _answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": "0"} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_GET(self) -> None:
        self._answer(200)

    def do_HEAD(self) -> None:
        digest = self.path.rsplit("/", 1)[1]
        if digest in self.taken:
            self._answer(200, Content_Length="1", Docker_Content_Digest=digest)
        else:
            self._answer(404)

    def do_POST(self) -> None:
        self._read()
        self._answer(202, Location="/v2/image/blobs/uploads/1", Docker_Upload_UUID="1")

    def do_PATCH(self) -> None:
        last = self._read() - 1
        self._answer(202, Location="/v2/image/blobs/uploads/1", Docker_Upload_UUID="1", Range=f"0-{last}")

    def do_PUT(self) -> None:
        self._read()
        if "/manifests/" in self.path:
            self._answer(500)
            return
        digest = self.path.partition("digest=")[2].replace("%3A", ":")
        self.taken.add(digest)
        self._answer(201, Location="/v2/image/blobs/1", Docker_Content_Digest=digest)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def broken_registry() -> Iterator[str]:
    """A registry that answers 500, ``host:port``."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _BrokenRegistry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(frozen=True)
class OwnEngine:
    """An engine that a test may fill and kill."""

    engine: Engine
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it as a crash would; the kernel ends all that it had started."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_engine(
    tmp_path_factory: pytest.TempPathFactory, python_base: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., OwnEngine]]:
    """Start a second engine in its own namespaces, on a disk of its own in memory.

    Nothing of it survives its first process, and it cannot touch the network that the other engine set up.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        _absent("a second engine needs root and dockerd")
    started: list[subprocess.Popen[bytes]] = []
    bridges: list[str] = []

    def start(*, size_mb: int, has_containerd_store: bool = False, is_on_host_network: bool = False) -> OwnEngine:
        folder = tmp_path_factory.mktemp("engine")
        (folder / "data").mkdir()
        feature = str(has_containerd_store).lower()
        (folder / "daemon.json").write_text(f'{{"features": {{"containerd-snapshotter": {feature}}}}}')
        script = 'mount -t tmpfs -o "size=$1m" tmpfs "$2/data" && exec dockerd --config-file "$2/daemon.json" \
            --host "unix://$2/socket" --data-root "$2/data" --exec-root "$2/exec" --pidfile "$2/pid" \
            --bridge "$3" --iptables=false --ip-forward=false'
        log = folder / "log"
        bridge = "none"
        if is_on_host_network:
            # An engine without a bridge deletes docker0, which is the other engine's there.
            bridge = f"pvt{os.getpid() % 10**6}n{len(bridges)}"
            bridges.append(bridge)
            subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    # On the host's network it has no network of its own to set up, and sees loopback registries.
                    *("unshare", "--mount", *(() if is_on_host_network else ("--net",))),
                    *("--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("sh", "-c", script, "sh", str(size_mb), str(folder), bridge),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        saved = folder / "base.tar"
        subprocess.run(["docker", "save", f"--output={saved}", python_base], check=True)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/socket")
        _wait_until(
            lambda: subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0,
            process,
            "a second dockerd",
            log,
        )
        subprocess.run(["docker", "load", "--quiet", f"--input={saved}"], check=True, capture_output=True)
        saved.unlink()
        found = buildx.connect()
        assert found is not None
        return OwnEngine(found, process)

    yield start
    for process in started:
        process.kill()
        process.wait()
    for bridge in bridges:
        subprocess.run(["ip", "link", "delete", bridge], check=False)
