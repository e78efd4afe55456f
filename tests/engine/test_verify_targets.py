"""`verify` and `doctor` on containers and images of a real engine, and on hosts behind a real sshd.

Stand-in: nvidia-smi is a script there that prints what a machine of ``tests/machines.py`` would; no test here says
anything about a GPU.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import machines
import pytest

from provision.matrix.load import Matrix
from provision.records import replace

ROOT = Path(__file__).resolve().parents[2]
SMI_ANSWERS = {
    "-q -x": "nvidia-smi-xml",
    "topo -m": "nvidia-smi-topology",
    "topo -p2p r": "nvidia-smi-p2p",
    "nvlink -s": "nvlink-status",
    "nvlink -e": "nvlink-errors",
}
SEEN = ("gpu.smi", "gpu.count", "gpu.ecc", "gpu.remap", "gpu.lost", "gpu.temp", "nvlink", "topo")
"""Checks that the stand-in's answers are enough for."""
ONLY = tuple(word for name in SEEN for word in ("--only", name))
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def run_provision(*words: object, code: int, **variables: str) -> str:
    """Run the program and return what it printed, after its exit code was compared."""
    done = subprocess.run(
        [sys.executable, "-m", "provision", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def checks_of(document: str) -> dict[str, dict]:
    """Return id → check of the one target in a report."""
    (target,) = json.loads(document)["result"]["targets"]
    return {row["id"]: row for row in target["checks"]}


def _docker(*words: object, check: bool = True) -> str:
    command = ["docker", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60).stdout.strip()


def write_smi(folder: Path, outputs: machines.Outputs, seen_at: str) -> None:
    """Write a stand-in for nvidia-smi that answers as the machine would.

    Args:
        folder: Where to write it.
        outputs: The machine.
        seen_at: The folder as the target sees it.
    """
    cases = []
    for number, (arguments, probe) in enumerate(SMI_ANSWERS.items()):
        (folder / f"answer-{number}").write_text(outputs[probe].text)
        (folder / f"error-{number}").write_text(outputs[probe].error)
        code = outputs[probe].code or 0
        print_both = f"cat {seen_at}/answer-{number}; cat {seen_at}/error-{number} >&2; exit {code}"
        cases.append(f'"{arguments}") {print_both} ;;')
    cases.append(f'-pm*) echo "nvidia-smi $*" >>{seen_at}/calls ;;')
    (folder / "nvidia-smi").write_text(f'#!/bin/sh\ncase "$*" in\n{chr(10).join(cases)}\n*) exit 2 ;;\nesac\n')
    (folder / "nvidia-smi").chmod(0o755)


def too_hot(outputs: machines.Outputs) -> machines.Outputs:
    """Return a machine with its first GPU at its limit."""
    first, sign, rest = outputs["nvidia-smi-xml"].text.partition("<gpu_temp_tlimit>")
    assert sign
    text = f"{first}{sign}0 C{rest[rest.index('<') :]}"
    text = text.replace("<gpu_temp>", "<gpu_temp>1", 1)
    return {**outputs, "nvidia-smi-xml": replace(outputs["nvidia-smi-xml"], text=text)}


class TestContainer:
    @pytest.fixture
    def start(self, python_base: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
        """Start a container whose nvidia-smi is the stand-in of a machine, and return it as a target."""
        name = f"provision-test-verify-{os.getpid()}"

        def start(outputs: machines.Outputs) -> str:
            folder = tmp_path / "stand-in"
            folder.mkdir()
            folder.chmod(0o755)
            write_smi(folder, outputs, "/stand-in")
            _docker("rm", "--force", name, check=False)
            settings = (
                "--network",
                "none",
                "--volume",
                f"{folder}:/stand-in:ro",
                "--env",
                "PATH=/stand-in:/usr/bin:/bin",
            )
            _docker("run", "--detach", "--rm", "--name", name, *settings, "--entrypoint", "sleep", python_base, "600")
            return f"docker://{name}"

        yield start
        with contextlib.suppress(subprocess.SubprocessError):
            _docker("rm", "--force", name)

    def test_what_nvidia_smi_says_in_a_container_is_judged(self, start):
        target = start(machines.hgx_h100())
        found = checks_of(run_provision("verify", target, *ONLY, "--gpus", "8", "--json", code=0))
        assert {found[name]["status"] for name in ("gpu.smi.ok", "gpu.count", "gpu.ecc.uncorrected")} == {"pass"}
        assert found["nvlink.active"]["status"] == "pass"

    def test_the_same_bytes_give_the_same_answers_here_and_there(self, start, tmp_path):
        target = start(machines.hgx_h100())
        live = checks_of(run_provision("verify", target, *ONLY, "--json", code=0))
        run_provision("probe", target, "--bundle", tmp_path / "b.tar.gz", "-q", code=0)
        again = checks_of(run_provision("verify", "--from", tmp_path / "b.tar.gz", *ONLY, "--json", code=0))
        assert again == live

    def test_a_broken_gpu_fails_through_the_container(self, start):
        out = run_provision("verify", start(too_hot(machines.hgx_h100())), *ONLY, code=6)
        assert "FAIL gpu.temp" in out
        assert "GPU 0" in out

    def test_the_whole_of_quick_does_not_pass_where_most_cannot_be_seen(self, start):
        found = checks_of(run_provision("verify", start(machines.hgx_h100()), "--json", code=6))
        assert found["gpu.driver.lib_match"]["status"] in ("fail", "unknown")
        assert found["gpu.count"]["status"] != "unknown"

    def test_doctor_names_the_cause(self, start):
        broken = machines.hgx_h100()
        for probe in SMI_ANSWERS.values():
            broken = machines.fail(broken, probe, 18, text=f"{MISMATCH}\n")
        target = start(broken)
        document = json.loads(run_provision("doctor", target, "--json", code=6))
        (report,) = document["result"]["targets"]
        assert "driver.mismatch" in [row["diagnosis"] for row in report["causes"]]
        assert report["broken"] == []
        assert MISMATCH in run_provision("doctor", target, code=6)

    def test_a_container_that_is_not_there_ends_with_7(self, engine):
        out = run_provision("verify", "docker://provision-test-none", code=7)
        assert "FAIL host.reachable (critical)" in out
        assert "No such container" in out


class TestImage:
    @pytest.fixture
    def lock(self, tmp_path) -> Path:
        folder = tmp_path / "context"
        run_provision("image", "--torch", "2.8", "--cuda", "12.8", "--python", "3.11", "-o", folder, code=0)
        return folder / "provision.lock"

    def test_an_image_without_the_locked_framework_fails(self, python_base, lock):
        words = ("verify", f"image://{python_base}", "--gpus", "0", "--lock", lock, "--json")
        found = checks_of(run_provision(*words, code=6))
        assert found["fw.torch.import"]["status"] == "fail"
        assert "No module named 'torch'" in found["fw.torch.import"]["seen"]
        assert found["gpu.count"]["status"] == "skip"
        assert found["cuda.cudnn"]["status"] == "fail"

    def test_an_image_of_which_nothing_is_planned_proves_nothing(self, python_base):
        found = checks_of(run_provision("verify", f"image://{python_base}", "--gpus", "0", "--json", code=0))
        assert found["fw.torch.import"]["status"] == "skip"
        assert {row["status"] for row in found.values()} <= {"pass", "skip"}

    def test_nothing_is_left_running(self, own_image):
        run_provision("verify", f"image://{own_image.ref}", "--gpus", "0", code=0)
        assert own_image.containers() == []


@pytest.mark.skipif(
    not (os.access(SSHD, os.X_OK) and shutil.which("ssh-keygen") and os.geteuid() == 0),
    reason="an OpenSSH server of our own needs root and openssh-server",
)
class TestSsh:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
        """Start an sshd on loopback whose sessions find the stand-ins first; return ssh's settings and their folder."""
        tools = tmp_path / "tools"
        tools.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
        public = (tmp_path / "host.pub").read_text().split()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
        (tmp_path / "config").write_text(
            f"Host gpu001 gpu002\n HostName 127.0.0.1\n HostKeyAlias [127.0.0.1]:{port}\n Port {port}\n"
            f" UserKnownHostsFile {tmp_path}/known\n GlobalKnownHostsFile /dev/null\n"
            f" IdentityFile {tmp_path}/user\n IdentitiesOnly yes\n User {getpass.getuser()}\n"
        )
        (tmp_path / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"AuthorizedKeysFile {tmp_path}/user.pub\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"SetEnv PATH={tools}:{os.environ['PATH']}\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        process = subprocess.Popen([SSHD, "-D", "-f", tmp_path / "sshd_config", "-E", tmp_path / "log"])
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield tmp_path / "config", tools
        process.terminate()
        process.wait(10)

    def test_hosts_behind_ssh_are_judged_and_compared(self, server):
        config, tools = server
        write_smi(tools, machines.hgx_h100(), str(tools))
        words = ("verify", "ssh://gpu001", "ssh://gpu002", "--ssh-config", config, *ONLY, "--gpus", "8", "--diff-fleet")
        out = run_provision(*words, code=0)
        assert out.startswith("passed: 2 targets; checks: ")

    def test_doctor_repairs_over_ssh_what_can_be_taken_back(self, server):
        config, tools = server
        outputs = machines.change(
            machines.hgx_h100(), "nvidia-smi-xml", "<persistence_mode>Enabled", "<persistence_mode>Disabled"
        )
        write_smi(tools, outputs, str(tools))
        for name in ("systemctl", "nvidia-modprobe"):
            (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tools}/calls\n')
            (tools / name).chmod(0o755)
        words = ("doctor", "ssh://gpu001", "--ssh-config", config, "--fix")
        run_provision(*words, code=6)
        assert not (tools / "calls").exists()
        out = run_provision(*words, "--yes", code=6)
        assert "    done    1. " in out
        calls = (tools / "calls").read_text().splitlines()
        assert calls == [next(iter(Matrix().diagnoses["gpu.persistence-off"].undo))]
