"""The collector inside real containers: with little, with next to nothing, without rights, without a place to write."""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from provision.probe.catalogue import probes_of
from provision.probe.compose import CollectOptions, compose, new_nonce
from provision.probe.output import Output
from provision.probe.stream import decode_stream

BUSYBOX = "provision-test/busybox:collector"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


base_image = _load("base_image")


@pytest.fixture(scope="module")
def python_image(engine) -> str:
    """A Debian without procps, iproute, kmod and systemd, with Python."""
    reason = None if base_image.is_made() else base_image.missing_tool()
    if reason:
        pytest.skip(reason)
    return base_image.make_python_base()


@pytest.fixture(scope="module")
def busybox_image(engine) -> Iterator[str]:
    """Nothing but a static busybox and links to it."""
    busybox = shutil.which("busybox")
    if busybox is None or b"=>" in subprocess.run(["ldd", busybox], capture_output=True, check=False).stdout:
        pytest.skip("there is no static busybox here (package busybox-static)")
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for folder in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(busybox, "bin/busybox")
        for name in names:
            if name != "busybox":
                entry = tarfile.TarInfo(f"bin/{name}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
    subprocess.run(
        ["docker", "import", "--change", "ENV PATH=/bin", "-", BUSYBOX],
        input=held.getvalue(),
        capture_output=True,
        check=True,
    )
    yield BUSYBOX
    subprocess.run(["docker", "image", "rm", "-f", BUSYBOX], capture_output=True, check=False)


def collect(image: str, *arguments: str, **options: object) -> dict[str, Output]:
    """Run the collector as the only program of a container."""
    nonce = new_nonce()
    # Patient, since what is tested is the answer and not the speed of this machine.
    program = compose(CollectOptions(nonce=nonce, **{"seconds_scale": 5.0, **options}))
    command = ["docker", "run", "--rm", "-i", "--network", "none", *arguments, "--entrypoint", "sh", image, "-s"]
    done = subprocess.run(command, input=program, capture_output=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return {output.probe: output for output in decode_stream(done.stdout, nonce)}


def test_a_slim_image_answers_every_quick_probe(python_image: str) -> None:
    found = collect(python_image)
    assert list(found) == list(probes_of("quick"))
    assert "ID=debian" in found["os-release"].text
    assert found["virtualization"].text.splitlines()[:2] == ["kind=docker", "container=yes"]
    assert found["packages"].status == "ok"
    assert "\tinstalled\n" in found["packages"].text
    assert "@provision-payload" in found["python"].text
    assert "No module named 'torch'" in found["torch"].text
    for name in ("nvidia-smi-xml", "driver-version", "units", "dkms", "lspci", "nvcc"):
        assert found[name].status == "absent", name
    assert not [output for output in found.values() if output.status in ("hung", "cut")]


def test_a_user_without_rights_is_denied_and_not_told_nothing(python_image: str) -> None:
    found = collect(python_image, "--user", "65534:65534")
    assert list(found) == list(probes_of("quick"))
    assert found["uname"].status == "ok"
    # With the default rights of a container the kernel log may not be read.
    assert found["kernel-log"].status in ("denied", "absent")
    assert found["secure-boot"].status == "denied"


def test_nothing_but_busybox_is_enough(busybox_image: str) -> None:
    found = collect(busybox_image)
    assert list(found) == list(probes_of("quick"))
    for name in ("uname", "environment", "limits", "file-systems", "device-nodes", "interfaces", "clock", "pci"):
        assert found[name].status == "ok", (name, found[name])
    for name in ("os-release", "packages", "nvidia-smi-xml", "python", "torch"):
        assert found[name].status == "absent", (name, found[name])
    assert "PATH=/bin" in found["environment"].text.splitlines()


def test_nothing_but_busybox_ends_what_hangs(busybox_image: str, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ntrap '' TERM\necho begun\nwhile :; do sleep 1; done\n", encoding="utf-8")
    tool.chmod(0o755)
    mount = f"{tool}:/bin/nvidia-smi:ro"
    found = collect(busybox_image, "-v", mount, probes=("nvlink-status", "uname"), seconds_scale=0.1)
    assert (found["nvlink-status"].status, found["nvlink-status"].text) == ("hung", "begun\n")
    assert found["uname"].status == "ok"


@pytest.mark.parametrize("image", ["python_image", "busybox_image"])
def test_a_container_without_a_place_to_write_says_so(image: str, request: pytest.FixtureRequest) -> None:
    arguments = ["--read-only", "--tmpfs", "/dev/shm:ro,size=64k", "--user", "65534:65534"]
    found = collect(request.getfixturevalue(image), *arguments)
    assert list(found) == ["collector"]
    assert found["collector"].status == "failed"


def test_a_read_only_container_is_read_through_shared_memory(python_image: str) -> None:
    found = collect(python_image, "--read-only", probes=("uname", "python"))
    assert {output.status for output in found.values()} == {"ok"}


def test_nothing_is_left_in_a_container_that_goes_on(python_image: str) -> None:
    name = f"provision-test-{new_nonce()}"
    start = ["docker", "run", "--rm", "-d", "--network", "none", "--name", name, "--entrypoint", "sleep", python_image]
    subprocess.run([*start, "120"], capture_output=True, check=True)
    try:
        nonce = new_nonce()
        before = _listing(name)
        done = subprocess.run(
            ["docker", "exec", "-i", name, "sh", "-s"],
            input=compose(CollectOptions(nonce=nonce)),
            capture_output=True,
            check=True,
            timeout=180,
        )
        assert len(decode_stream(done.stdout, nonce)) == len(probes_of("quick"))
        assert _listing(name) == before
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)


def _listing(container: str) -> list[str]:
    """Return every file of a container, and the commands of its processes."""
    script = "find / -xdev; find /dev/shm; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    done = subprocess.run(["docker", "exec", container, "sh", "-c", script], capture_output=True, text=True, check=True)
    return sorted(line for line in done.stdout.splitlines() if line and "find / -xdev" not in line)
