"""The checks as pytest tests: a pytest of its own, in an empty folder, over a real sshd on loopback."""

import contextlib
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import machines
import pytest

from provision.cli.main import main
from provision.cli.pytest_run import name_host
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.probe.catalogue import LEVELS
from provision.probe.targets import parse_target
from provision.records import replace
from provision.verify.engine import SEVERITIES
from provision.verify.report.junit import name_test
from provision.verify.testinfra.options import OPTIONS

pytest.importorskip("testinfra", reason="pytest-testinfra is needed (`pip install 'gpu-provision[verify]'`)")

ROOT = Path(__file__).resolve().parents[3]
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not (os.access(SSHD, os.X_OK) and shutil.which("ssh") and shutil.which("ssh-keygen")),
    reason="an OpenSSH server and client are needed (Debian, Ubuntu: openssh-server)",
)
CHECKS = {check.id: check for check in Matrix().checks.values() if check.scope == "host"}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class _Host:
    """One sshd whose PATH begins with a stand-in for nvidia-smi, which notes that it was called."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        self.log, self.config, self.calls = folder / "log", folder / "config", folder / "calls"
        tools = folder / "tools"
        tools.mkdir()
        (folder / "xml").write_text(machines.hgx_h100()["nvidia-smi-xml"].text)
        tool = tools / "nvidia-smi"
        tool.write_text(
            "#!/bin/sh\n# stand-in\n"
            f'[ "$*" = "-q -x" ] || exit 2\necho called >>{shlex.quote(str(self.calls))}\n'
            f"exec cat {shlex.quote(str(folder / 'xml'))}\n"
        )
        tool.chmod(0o755)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        settings = (
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder / 'host'}",
            "PidFile none",
            f"AuthorizedKeysFile {folder / 'user.pub'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
            f"SetEnv PATH={tools}:{os.environ['PATH']}",
        )
        (folder / "sshd_config").write_text("\n".join(settings) + "\n")
        (folder / "known_hosts").write_text(f"* {(folder / 'host.pub').read_text()}")
        self.config.write_text(
            f"Host *\n  User {getpass.getuser()}\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder / 'known_hosts'}\n  GlobalKnownHostsFile /dev/null\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._process = subprocess.Popen([SSHD, "-D", "-f", folder / "sshd_config", "-E", self.log])
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        pytest.fail(f"sshd did not start: {self.log.read_text()}")

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey")

    def sessions(self) -> str:
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().strip()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture
def host(tmp_path):
    folder = tmp_path / "sshd"
    folder.mkdir()
    made = _Host(folder)
    yield made
    made.stop()


@pytest.fixture
def sockets():
    """A folder for temporary files whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def run(tmp_path, sockets):
    """Start pytest in an empty folder, where every warning is an error."""
    folder = tmp_path / "empty"
    folder.mkdir()

    def start(*words: object, loads_plugin: bool = True) -> subprocess.CompletedProcess[str]:
        plugin = ("-p", "provision.verify.testinfra.plugin") if loads_plugin else ()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *plugin, *map(str, words)],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(sockets)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    start.folder = folder
    return start


def _read_cases(path: Path) -> dict[str, tuple[str, str]]:
    """Return the name of each test → how it ended, and what was said."""
    cases = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        fault = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        cases[case.get("name")] = (
            ("passed", "") if fault is None else (fault.tag, f"{fault.get('message')}{fault.text}")
        )
    return cases


@needs_sshd
def test_a_host_is_asked_once_over_one_connection(host, run, sockets):
    (run.folder / "test_mine.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.parametrize('number', range(5))\n"
        "def test_commands_of_my_own(host, number):\n    assert host.run('true').rc == 0\n\n\n"
        "def test_what_was_collected(gpu_snapshot, gpu_results, gpu_expectation):\n"
        "    assert len(gpu_snapshot.smi.gpus) == 8\n"
        "    assert gpu_results['gpu.count'].outcome.status == 'pass'\n"
        "    assert gpu_expectation.gpus == 8\n"
    )
    words = ("test_mine.py", "--pyargs", "provision.verify.testinfra", f"--hosts=ssh://127.0.0.1:{host.port}")
    done = run(*words, f"--ssh-config={host.config}", "--provision-gpus=8", "--junit-xml=cases.xml")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cases = _read_cases(run.folder / "cases.xml")
    assert cases["test_what_was_collected[ssh://127.0.0.1]"] == ("passed", "")
    assert host.logins() == 1
    assert host.calls.read_text().split() == ["called"]
    # Nothing is left behind: no socket, no connection that waits for another command.
    assert list(sockets.iterdir()) == []
    for _ in range(100):
        if not host.sessions():
            break
        time.sleep(0.05)
    assert host.sessions() == ""


@needs_sshd
def test_every_check_of_a_host_is_a_test_and_a_dead_host_fails_only_its_own(host, run):
    hosts = f"ssh://127.0.0.1:{host.port},ssh://127.0.0.2:{_free_port()}"
    words = ("--pyargs", "provision.verify.testinfra", f"--hosts={hosts}", f"--ssh-config={host.config}")
    done = run(*words, "--provision-gpus=4", "--junit-xml=cases.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    cases = _read_cases(run.folder / "cases.xml")
    names = {name_test(check) for check in CHECKS}
    assert set(cases) == {f"{name}[ssh://127.0.0.{number}]" for name in names for number in (1, 2)}
    for check, row in CHECKS.items():
        status, said = cases[f"{name_test(check)}[ssh://127.0.0.2]"]
        if row.level == "quick":
            # It could not be looked at, which is no skip and no pass.
            assert (status, "nothing could be collected from ssh://127.0.0.2" in said) == ("error", True)
            assert "Connection refused" in said
        else:
            assert (status, "it belongs to the level" in said) == ("skipped", True)
        assert "nothing could be collected" not in cases[f"{name_test(check)}[ssh://127.0.0.1]"][1]
    status, said = cases["test_gpu_count[ssh://127.0.0.1]"]
    assert status == "failure"
    for word in ("gpu.count", "expected: 4", "remedy: ", "more: provision explain check/gpu.count"):
        assert word in said


@needs_sshd
def test_a_plan_without_gpus_skips_what_needs_one(host, run):
    (run.folder / "plan.toml").write_text("gpus = 0\n")
    words = ("--pyargs", "provision.verify.testinfra", f"--hosts=ssh://127.0.0.1:{host.port}")
    run(*words, f"--ssh-config={host.config}", "--provision-expect=plan.toml", "--junit-xml=cases.xml", "-k", "remap")
    cases = _read_cases(run.folder / "cases.xml")
    assert {status for status, _ in cases.values()} == {"skipped"}
    assert len(cases) == sum(".remap" in check for check in CHECKS)


@needs_sshd
def test_the_program_runs_the_same_tests(host, tmp_path):
    report = tmp_path / "cases.xml"
    words = [f"ssh://127.0.0.1:{host.port}", "--ssh-config", host.config, "--gpus", 4, "--pytest", "--junit", report]
    done = subprocess.run(
        [sys.executable, "-m", "provision", "verify", *map(str, words)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 6, done.stdout + done.stderr
    assert _read_cases(report)["test_gpu_count[ssh://127.0.0.1]"][0] == "failure"
    assert host.logins() == 1


def test_the_package_can_be_named_without_its_plugin(run):
    # pytest meets the plugin in the package's conftest then, after it has read its own command line.
    done = run("--pyargs", "provision.verify.testinfra", "--hosts=local://", "-k", "host_os", loads_plugin=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout


def test_tests_of_ones_own_name_the_plugin(run):
    (run.folder / "conftest.py").write_text('pytest_plugins = ["provision.verify.testinfra.plugin"]\n')
    (run.folder / "test_mine.py").write_text("def test_it(gpu_snapshot):\n    assert gpu_snapshot.uname.release\n")
    # Options are known, since pytest reads this conftest before its command line.
    done = run("--provision-level=quick", loads_plugin=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        pytest.param("--provision-lock", None, "--provision-lock: plan cannot be read", id="no-lock"),
        pytest.param("--provision-lock", "{", "lock", id="no-json"),
        pytest.param("--provision-expect", "gpus =", "--provision-expect: plan cannot be read", id="no-toml"),
        pytest.param("--provision-expect", "gpu_count = 8", "nothing that can be expected", id="no-field"),
    ],
)
def test_a_plan_that_cannot_be_read_stops_pytest_with_a_sentence(run, flag, text, said):
    if text is not None:
        (run.folder / "plan").write_text(text)
    done = run("--pyargs", "provision.verify.testinfra", f"{flag}=plan")
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_options_know_every_level_and_severity():
    assert OPTIONS["--provision-level"]["choices"] == LEVELS
    assert OPTIONS["--provision-fail-on"]["choices"] == SEVERITIES


@pytest.mark.parametrize(
    ("text", "host"),
    [
        pytest.param("local", "local://", id="local"),
        pytest.param("gpu001", "ssh://gpu001", id="bare"),
        pytest.param("ssh://admin@gpu001:2222", "ssh://admin@gpu001:2222", id="user-and-port"),
        pytest.param("ssh://[fd00::1]:22", "ssh://[fd00::1]:22", id="ipv6"),
        pytest.param("docker://trainer", "docker://trainer", id="docker"),
        pytest.param("podman://trainer", "podman://trainer", id="podman"),
        pytest.param(
            "kubectl://ml/trainer-0/main?context=eu",
            "kubectl://trainer-0?namespace=ml&container=main&context=eu",
            id="kubectl",
        ),
    ],
)
def test_targets_are_written_as_testinfra_reads_them(text, host):
    assert name_host(parse_target(text)) == host


def test_settings_of_ssh_reach_testinfra():
    import testinfra

    target = replace(parse_target("ssh://gpu001"), config="/etc/a b", identity="/keys/a,b")
    backend = testinfra.get_host(name_host(target, 3)).backend
    assert (backend.ssh_config, backend.ssh_identity_file, backend.timeout) == ("/etc/a b", "/keys/a,b", 3)
    # testinfra takes hosts apart at commas before it reads them.
    assert "," not in name_host(target)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param(parse_target("image://python:3"), "is an image", id="image"),
        pytest.param(replace(parse_target("ssh://gpu001"), jump="gate"), "behind a jump host", id="jump"),
    ],
)
def test_what_testinfra_does_not_reach_is_refused(target, said):
    with pytest.raises(UsageError, match=said):
        name_host(target)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--only", "gpu"), id="only"),
        pytest.param(("--skip", "gpu"), id="skip"),
        pytest.param(("--json",), id="json"),
        pytest.param(("--html", "page.html"), id="html"),
        pytest.param(("--diff-fleet",), id="diff-fleet"),
        pytest.param(("--disruptive",), id="disruptive"),
        pytest.param(("--timeout", "3"), id="timeout"),
    ],
)
def test_flags_that_pytest_would_drop_are_refused(words, capsys):
    assert main(["verify", "--pytest", *words]) == 2
    captured = capsys.readouterr()
    assert f"{words[0]} has no meaning with --pytest" in captured.out + captured.err
