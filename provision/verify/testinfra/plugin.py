"""Fixtures: what was planned, what was collected, what the checks say.

All hosts are asked at the same time when the first test wants to know, each with one call of the collector. testinfra
opens a connection for every command unless it has a control path, so every ssh host gets one here; it never ends a
command that hangs, so ssh is told to notice when the other side is gone, and to ask nobody for a password.
"""

from __future__ import annotations

import base64
import gzip
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from provision.errors import ProvisionError, UsageError
from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.resolve.stack import Stack
from provision.signals.expectation import Expectation, expect_stack, merge_expectation
from provision.verify.engine import Result, choose_checks, verify_one
from provision.verify.testinfra.options import read_option

pytest_plugins = ["provision.verify.testinfra.options"]

_PARALLEL = 32
_AT_ONCE = ("chroot", "docker", "kubectl", "local", "lxc", "openshift", "podman", "safe-ssh", "ssh")
"""Backends that start a program for each command and keep nothing between them, so that threads can share them."""
_SSH_FLAGS = "-o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
_ARGUMENT_BYTES_MAX = 120_000
"""Linux takes no longer single argument than 128 KiB."""
_SOCKET_BYTES_MAX = 100
_SOCKET_NAME_BYTES = 57
"""%C is 40 characters, and ssh adds 17 while it makes the socket."""

_CONTROL_FOLDER = pytest.StashKey[Path]()
_PLAN = pytest.StashKey[tuple[Matrix, Expectation]]()
_SNAPSHOTS = pytest.StashKey[dict[object, Snapshot | str]]()
_RESULTS = pytest.StashKey[dict[object, Mapping[str, Result]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Read the plan once, and fail with a sentence when it cannot be read."""
    config.stash[_SNAPSHOTS] = {}
    config.stash[_RESULTS] = {}
    try:
        config.stash[_PLAN] = _read_plan(config)
    except ProvisionError as error:
        raise pytest.UsageError("; ".join((error.message, *error.because, *error.hints))) from error


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the connections that are still open and remove their sockets."""
    folder = config.stash.get(_CONTROL_FOLDER, None)
    if folder is None:
        return
    for socket in folder.iterdir():
        with suppress(OSError, subprocess.TimeoutExpired):
            words = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "all"]
            subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=5)
    shutil.rmtree(folder, ignore_errors=True)


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Give every ssh host of testinfra a control path before its first command."""
    if fixturedef.argname == "_testinfra_host":
        _share_connection(request.param.backend, request.config)


@pytest.fixture(scope="session")
def gpu_expectation(pytestconfig: pytest.Config) -> Expectation:
    """What was planned for the hosts."""
    return pytestconfig.stash[_PLAN][1]


@pytest.fixture
def gpu_snapshot(host: Any, request: pytest.FixtureRequest) -> Snapshot:
    """What the collector brought from this host, in one call for all tests of it."""
    snapshots = request.config.stash[_SNAPSHOTS]
    if host.backend not in snapshots:
        _collect_all(host, request)
    found = snapshots[host.backend]
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    return found


@pytest.fixture
def gpu_results(host: Any, gpu_snapshot: Snapshot, pytestconfig: pytest.Config) -> Mapping[str, Result]:
    """Check → what it says of this host; checks that compare hosts are not among them."""
    known = pytestconfig.stash[_RESULTS]
    if host.backend not in known:
        matrix, expected = pytestconfig.stash[_PLAN]
        checks = choose_checks(matrix, read_option(pytestconfig, "--provision-level"))
        results = verify_one(gpu_snapshot, expected, matrix, checks)
        known[host.backend] = {result.check: result for result in results}
    return known[host.backend]


def _read_plan(config: pytest.Config) -> tuple[Matrix, Expectation]:
    import tomllib

    folder = read_option(config, "--provision-data-dir")
    matrix = Matrix(Path(folder) if folder else None)
    expected = Expectation()
    flag = ""
    try:
        if lock := read_option(config, flag := "--provision-lock"):
            expected = expect_stack(Stack.from_lock(Path(lock).read_text(encoding="utf-8")))
        if plan := read_option(config, flag := "--provision-expect"):
            expected = merge_expectation(expected, tomllib.loads(Path(plan).read_text(encoding="utf-8")), plan)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{flag}: {read_option(config, flag)} cannot be read", because=(str(error),)) from error
    if (gpus := read_option(config, "--provision-gpus")) is not None:
        expected = merge_expectation(expected, {"gpus": gpus}, "--provision-gpus")
    return matrix, expected


def _share_connection(backend: Any, config: pytest.Config) -> None:
    """Let all commands of an ssh host share one connection; what its own settings say is left as it is."""
    if not hasattr(backend, "controlpath"):
        return
    if backend.controlpath is None:
        # testinfra fills its commands in with `%`, which ssh is to see too.
        backend.controlpath = f"{_control_folder(config)}/%%C"
    if not backend.ssh_extra_args and not backend.host.password:
        backend.ssh_extra_args = _SSH_FLAGS


def _control_folder(config: pytest.Config) -> Path:
    """Return a folder for sockets, whose paths have little room, that other users of the machine cannot enter."""
    if _CONTROL_FOLDER not in config.stash:
        has_room = len(tempfile.gettempdir().encode()) + len("/pv-12345678/") + _SOCKET_NAME_BYTES <= _SOCKET_BYTES_MAX
        config.stash[_CONTROL_FOLDER] = Path(tempfile.mkdtemp(prefix="pv-", dir=None if has_room else "/tmp"))  # noqa: S108
    return config.stash[_CONTROL_FOLDER]


def _hosts_of(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield the hosts of all tests that will ask what was collected, in their order."""
    for item in request.session.items:
        if "gpu_snapshot" in getattr(item, "fixturenames", ()):
            host = getattr(getattr(item, "callspec", None), "params", {}).get("_testinfra_host")
            if host is not None:
                yield host


def _collect_all(first: Any, request: pytest.FixtureRequest) -> None:
    """Ask this host, and with it all others that can be asked at the same time and have not been."""
    from concurrent.futures import ThreadPoolExecutor

    snapshots = request.config.stash[_SNAPSHOTS]
    hosts = {first.backend: first}
    if first.backend.NAME in _AT_ONCE:
        others = (host for host in _hosts_of(request) if host.backend.NAME in _AT_ONCE)
        hosts |= {host.backend: host for host in others if host.backend not in snapshots}
    for backend in hosts:
        _share_connection(backend, request.config)
    pool = ThreadPoolExecutor(min(_PARALLEL, len(hosts)))
    try:
        answers = pool.map(lambda host: _try_to_collect(host, request.config), hosts.values())
        snapshots.update(zip(hosts, answers, strict=True))
    finally:
        # Someone who interrupts does not wait for hosts that have not been asked yet.
        pool.shutdown(wait=False, cancel_futures=True)


def _try_to_collect(host: Any, config: pytest.Config) -> Snapshot | str:
    name = host.backend.get_pytest_id()
    try:
        return _collect(host, name, config)
    except Exception as error:  # what a backend raises is its own affair; each test of the host says it
        return f"nothing could be collected from {name}: {_say(error)}"


def _say(error: Exception) -> str:
    """Return one line; testinfra raises with a whole result, of which only what was said is worth reading."""
    from provision.probe.clean import clean_line

    said = getattr(error.args[0], "stderr", None) if error.args else None
    lines = [line.strip() for line in str(said or error).splitlines() if line.strip()]
    return clean_line(lines[-1]) if lines else type(error).__name__


def _collect(host: Any, name: str, config: pytest.Config) -> Snapshot:
    from provision.probe.collect import read_answer
    from provision.probe.compose import CollectOptions, compose, new_nonce

    options = CollectOptions(
        level=read_option(config, "--provision-level"),
        python=read_option(config, "--provision-python"),
        container_image=config.stash[_PLAN][1].container_image,
        nonce=new_nonce(),
    )
    script = compose(options)
    packed = base64.b64encode(gzip.compress(script, mtime=0)).decode()
    done = host.run("printf %%s %s | base64 -d | gzip -dc | sh -s", packed)
    if not done.stdout_bytes and len(script) <= _ARGUMENT_BYTES_MAX:
        # Small images have neither of the two; the text itself fits into an argument too, if barely.
        done = host.run("sh -c %s", script.decode())
    if not done.stdout_bytes and done.rc != 0:
        raise RuntimeError(done)
    return read_answer(name, done.stdout_bytes, options)
