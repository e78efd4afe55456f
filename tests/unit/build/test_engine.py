"""Finding an engine, with stand-ins for the docker command on PATH."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from provision.build.engine import BuildRequest, find_engine
from provision.build.progress import Step
from provision.errors import ActionFailedError, MissingDependencyError, UsageError

INFO = '{"ServerVersion": "20.10", "Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]]}'
CONTAINERD_INFO = (
    '{"ServerVersion": "28", "Driver": "overlayfs", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}'
)


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Put a docker command on an otherwise empty PATH: a case for each start of its arguments."""

    def make(**cases: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for tool in ("sh", "cat", "grep"):
            (folder / tool).symlink_to(f"/bin/{tool}")
        branches = "".join(f"  '{start.replace('_', ' ')}'*) {action} ;;\n" for start, action in cases.items())
        program = folder / "docker"
        program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncase "$*" in\n{branches}  *) exit 1 ;;\nesac\n')
        program.chmod(0o755)
        return tmp_path / "calls"

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent")
    return make


# The probe's Dockerfile is the last argument's file; it holds a link or a mode.
ONLY_MODES = 'for last; do :; done; ! grep -q link "$last/Dockerfile"'


@pytest.mark.parametrize(
    ("cases", "frontend", "name"),
    [
        ({"buildx_version": ":", "buildx_build": ":"}, "modern", "docker buildx"),
        ({"buildx_version": ":", "buildx_build": ONLY_MODES}, "builtin", "docker buildx"),
        ({"build_--tag": ":"}, "builtin", "docker build"),
    ],
)
def test_the_builder_is_known_by_what_it_builds(docker, cases, frontend, name):
    docker(info=f"echo '{INFO}'", image=":", context="echo default", **cases)
    engine = find_engine()
    assert (engine.frontend, engine.name) == (frontend, name)
    assert engine.version == "20.10"
    assert engine.image_store == "overlay2"


def test_the_containerd_store_is_told_from_a_graph_driver(docker):
    docker(info=f"echo '{CONTAINERD_INFO}'", buildx=":", image=":", context="echo default")
    assert find_engine().image_store == "containerd"


def test_the_engines_own_builder_is_used(docker):
    calls = docker(info=f"echo '{INFO}'", buildx=":", image=":", context="echo mine")
    find_engine()
    assert "--builder=mine" in calls.read_text()


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "no container engine answers"),
        ("""echo '{"ServerErrors": ["Cannot connect"]}'""", "no container engine answers"),
        ("echo 'permission denied while trying to connect' >&2; exit 1", "this user may not talk"),
        ("echo nonsense", "no container engine answers"),
    ],
)
def test_an_engine_that_does_not_answer_is_missing(docker, answer, part):
    docker(info=answer)
    with pytest.raises(MissingDependencyError, match=part) as caught:
        find_engine()
    assert caught.value.hints


def test_neither_a_command_nor_the_sdk_is_explained(docker, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    (tmp_path / "bin").mkdir()
    with pytest.raises(MissingDependencyError, match="no way to build") as caught:
        find_engine()
    assert "no docker command" in caught.value.because[0]
    assert any("gpu-provision[docker]" in hint for hint in caught.value.hints)


# The SDK forgets the socket of an attempt that failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_sdk_is_tried_where_the_command_has_no_buildkit(docker):
    pytest.importorskip("docker")
    docker(info=f"echo '{INFO}'")
    # The stand-in's socket does not exist, so that reaching for it is what shows.
    with pytest.raises(MissingDependencyError, match="no container engine answers"):
        find_engine()
    gc.collect()


def ignore(_event: str, _step: Step, _text: str) -> None:
    """Observe nothing."""


@pytest.fixture
def built(docker, tmp_path):
    """Build with a stand-in and return the words of the command."""
    calls = docker(
        info=f"echo '{INFO}'",
        buildx=":",
        context="echo default",
        image_rm=":",
        image_inspect="""echo '[{"Id": "sha256:1", "Size": 1}]'""",
    )

    def build(**values: object) -> list[str]:
        engine = find_engine()
        calls.write_text("")
        engine.build(tmp_path, BuildRequest(tags=("a:1", "b:1"), **values), ignore)  # type: ignore[arg-type]
        return calls.read_text().splitlines()[0].split()

    return build


def test_a_request_becomes_flags(built, tmp_path):
    secret = tmp_path / "ca.pem"
    secret.write_text("x")
    words = built(
        source_date_epoch=5,
        build_args={"A": "1"},
        secrets={"provision-ca": secret},
        platform="linux/arm64",
        network="none",
        is_cached=False,
    )
    assert words[:3] == ["buildx", "build", "--builder=default"]
    assert {
        "--tag=a:1", "--tag=b:1", "--build-arg=A=1", "--build-arg=SOURCE_DATE_EPOCH=5", "--platform=linux/arm64",
        "--network=none", "--no-cache", f"--secret=id=provision-ca,src={secret}", "--output=type=docker",
    } <= set(words)  # fmt: skip
    assert words[-1] == str(tmp_path)


def test_proxies_of_this_process_are_not_handed_on(built, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@127.0.0.1:1")
    assert "secret" not in " ".join(built())


def test_a_secret_that_is_not_there_is_refused(built, tmp_path):
    with pytest.raises(UsageError, match=r"absent\.pem"):
        built(secrets={"provision-ca": tmp_path / "absent.pem"})


def test_a_log_that_cannot_be_written_stops_the_build(built, tmp_path):
    with pytest.raises(ActionFailedError, match="log"):
        built(log_path=tmp_path / "absent" / "log")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_disk_that_fills_up_under_the_log_stops_the_build(docker, tmp_path):
    docker(info=f"echo '{INFO}'", buildx="echo something", context="echo default", image=":")
    with pytest.raises(ActionFailedError, match="/dev/full") as caught:
        find_engine().build(tmp_path, BuildRequest(tags=("a:1",), log_path=Path("/dev/full")), ignore)
    assert "No space left" in caught.value.because[0]


def test_importing_the_engines_loads_no_engine():
    code = (
        "import sys, provision.build.buildx, provision.build.record, provision.build.sdk\n"
        "print(sorted({'docker', 'requests', 'rich', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
