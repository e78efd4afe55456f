"""Containers and images as targets, with a real engine."""

import contextlib
import subprocess
import time

import pytest

from provision.probe.collect import collect_targets
from provision.probe.compose import CollectOptions, new_nonce
from provision.probe.targets import parse_target
from provision.records import replace


def _options() -> CollectOptions:
    return CollectOptions(nonce=new_nonce(), probes=("os-release", "uname", "python"))


def _docker(*words: str, check: bool = True) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check, timeout=60).stdout.strip()


@pytest.fixture
def container(python_base):
    name = "provision-test-probe"
    _docker("rm", "--force", name, check=False)
    _docker("run", "--detach", "--rm", "--name", name, "--network", "none", "--entrypoint", "sleep", python_base, "600")
    yield name
    with contextlib.suppress(subprocess.SubprocessError):
        _docker("rm", "--force", name)


def test_a_running_container_is_entered(container):
    target = parse_target(f"docker://{container}")
    found = collect_targets((target,), _options())
    assert found.unreachable == {}
    assert found.snapshots[target.name].os_release.id == "debian"
    # The collector takes its private folder with it.
    assert "provision." not in _docker("exec", container, "ls", "-a", "/tmp", "/dev/shm")


def test_a_container_that_is_not_there_is_told(engine):
    found = collect_targets((parse_target("docker://provision-test-none"),), _options())
    assert "No such container" in found.unreachable["docker://provision-test-none"]


def test_an_image_is_started_looked_at_and_removed(own_image):
    target = replace(parse_target(f"image://{own_image.ref}"), has_gpus=False)
    found = collect_targets((target,), _options())
    assert found.unreachable == {}
    snapshot = found.snapshots[target.name]
    assert snapshot.os_release.id == "debian"
    assert snapshot.has("python")
    assert own_image.containers() == []


def test_an_image_that_takes_too_long_is_removed_too(own_image):
    target = replace(parse_target(f"image://{own_image.ref}"), has_gpus=False)
    collect_targets((target,), _options(), seconds=0.3)
    for _ in range(50):
        if not own_image.containers():
            break
        time.sleep(0.2)
    assert own_image.containers() == []


def test_an_image_without_a_shell_says_so(engine, tmp_path):
    (tmp_path / "file").write_text("x")
    packed = subprocess.run(["tar", "-C", tmp_path, "-c", "file"], capture_output=True, check=True).stdout
    subprocess.run(["docker", "import", "-", "provision-test/no-shell"], input=packed, capture_output=True, check=True)
    try:
        found = collect_targets((parse_target("image://provision-test/no-shell"),), _options())
        assert "it has no shell" in found.unreachable["image://provision-test/no-shell"]
    finally:
        _docker("image", "rm", "--force", "provision-test/no-shell")


def test_an_image_that_is_nowhere_is_told(engine):
    target = parse_target("image://localhost:1/none/none:1")
    assert "cannot be pulled" in collect_targets((target,), _options()).unreachable[target.name]
