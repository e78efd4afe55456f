"""Transports: real programs on this machine, real sshd instances on loopback, and stand-ins only where named so."""

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError, UsageError
from provision.probe.collect import collect_targets, run_command
from provision.probe.compose import CollectOptions, new_nonce
from provision.probe.targets import Target, parse_target
from provision.probe.transports import Limits, UnreachableError, containers, local, ssh
from provision.probe.transports.process import run_process
from provision.records import replace

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not (os.access(SSHD, os.X_OK) and shutil.which("ssh") and shutil.which("ssh-keygen")),
    reason="an OpenSSH server and client are needed (Debian, Ubuntu: openssh-server)",
)
LIMITS = Limits(seconds=20, connect_seconds=5)


def _options(*probes: str) -> CollectOptions:
    return CollectOptions(nonce=new_nonce(), probes=probes or ("uname",))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class _Sshd:
    """One sshd of our own: its port, its log, its host key."""

    def __init__(self, folder: Path, authorized: Path, *settings: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = _free_port()
        self.log = folder / "log"
        self.key = folder / "host"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.key}",
            f"PidFile {folder / 'pid'}",
            f"AuthorizedKeysFile {authorized}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
            *(settings or ("PasswordAuthentication no",)),
        ]
        config = folder / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._process = subprocess.Popen([SSHD, "-D", "-f", config, "-E", self.log])
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        pytest.fail(f"sshd did not start: {self.log.read_text()}")

    def known(self) -> str:
        key = self.key.with_suffix(".pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {key[0]} {key[1]}\n"

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


class _Network:
    """Servers that share one user key, and a client configuration that knows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[_Sshd] = []
        self.user_key = folder / "user"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.user_key], check=True)
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("")
        self.config = folder / "config"
        self.config.write_text(
            f"Host *\n  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            f"  IdentityFile {self.user_key}\n  IdentitiesOnly yes\n  User {getpass.getuser()}\n"
        )

    def start(self, *settings: str, is_known: bool = True) -> _Sshd:
        server = _Sshd(self.folder / f"sshd-{len(self.servers)}", self.user_key.with_suffix(".pub"), *settings)
        self.servers.append(server)
        if is_known:
            self.known_hosts.write_text(self.known_hosts.read_text() + server.known())
        return server

    def target(self, port: int, **fields: str) -> Target:
        return replace(parse_target(f"ssh://127.0.0.1:{port}"), config=str(self.config), **fields)


@pytest.fixture
def network(tmp_path: Path):
    made = _Network(tmp_path)
    yield made
    for server in made.servers:
        server.stop()


def _failure(target: Target, *, connect_seconds: int = 5, seconds: float = 20) -> str:
    found = collect_targets((target,), _options(), seconds=seconds, connect_seconds=connect_seconds)
    assert not found.snapshots
    return found.unreachable[target.name]


def _processes_with(word: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if word in words and entry.parent.name != str(os.getpid()):
                found.append(words)
    return found


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _await_end(pid: int) -> bool:
    for _ in range(100):
        if not _is_alive(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def black_hole():
    """A port where the connection is taken and nobody ever says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


class TestProcess:
    def test_output_code_and_errors_come_back(self):
        done = asyncio.run(run_process(("sh", "-s"), b"echo out; echo err >&2; exit 3", LIMITS))
        assert (done.code, done.out, done.err.strip(), done.is_late) == (3, b"out\n", "err", False)

    def test_children_end_with_their_parent_at_the_deadline(self, tmp_path):
        script = f"sleep 300 & echo $! >{tmp_path}/pid; wait".encode()
        done = asyncio.run(run_process(("sh", "-s"), script, Limits(seconds=0.5)))
        assert done.is_late
        assert _await_end(int((tmp_path / "pid").read_text()))

    def test_what_was_said_before_the_deadline_is_kept(self):
        done = asyncio.run(run_process(("sh", "-c", "echo early; exec sleep 300"), None, Limits(seconds=0.5)))
        assert (done.out, done.is_late) == (b"early\n", True)

    def test_endless_output_is_cut_at_the_limit(self):
        done = asyncio.run(run_process(("yes",), None, Limits(seconds=30, bytes_max=100_000)))
        assert (len(done.out), done.is_cut, done.is_late) == (100_000, True, False)

    def test_endless_errors_keep_their_end_only(self):
        script = b"i=0; while [ $i -lt 3000 ]; do echo line-$i; i=$((i+1)); done >&2"
        done = asyncio.run(run_process(("sh", "-s"), script, LIMITS))
        assert "line-2999" in done.err
        assert "line-0\n" not in done.err

    def test_secrets_and_escapes_in_errors_are_taken_out(self):
        done = asyncio.run(run_process(("sh", "-c", r"printf '\033[31mpassword=hunter2\n' >&2"), None, LIMITS))
        assert done.err == "password=<redacted>\n"

    def test_a_child_that_keeps_the_pipe_does_not_keep_us(self, tmp_path):
        script = f"setsid sleep 120 & echo $! >{tmp_path}/pid; echo done".encode()
        done = asyncio.run(run_process(("sh", "-s"), script, Limits(seconds=50)))
        child = int((tmp_path / "pid").read_text())
        was_alive = _is_alive(child)
        os.kill(child, signal.SIGKILL)
        assert (done.out, done.is_late, was_alive) == (b"done\n", False, True)

    def test_a_program_that_reads_nothing_is_no_error(self):
        done = asyncio.run(run_process(("true",), b"x" * 1_000_000, LIMITS))
        assert done.code == 0

    def test_a_missing_program_is_named(self):
        with pytest.raises(MissingDependencyError, match="`no-such-program-here` is not on this machine"):
            asyncio.run(run_process(("no-such-program-here",), None, LIMITS))

    def test_cancelling_ends_the_children(self, tmp_path):
        async def cancel() -> None:
            script = f"echo $$ >{tmp_path}/pid; exec sleep 300".encode()
            task = asyncio.ensure_future(run_process(("sh", "-s"), script, LIMITS))
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
                await asyncio.sleep(0.02)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        assert _await_end(int((tmp_path / "pid").read_text()))


class TestLocal:
    def test_the_collector_answers(self):
        found = collect_targets((parse_target("local"),), _options("uname", "limits"))
        assert found.snapshots["local"].uname.release == os.uname().release
        assert set(found.snapshots["local"].outputs) == {"uname", "limits"}

    def test_a_command_gives_code_and_both_streams(self):
        assert asyncio.run(run_command(parse_target("local"), "echo a; echo b >&2; exit 4", 10)) == (4, "a\n", "b\n")

    def test_a_late_command_has_the_code_of_timeout(self):
        assert asyncio.run(run_command(parse_target("local"), "sleep 60", 0.5))[0] == 124

    def test_nothing_at_all_is_unreachable(self):
        with pytest.raises(UnreachableError, match="answered nothing"):
            asyncio.run(local.collect(parse_target("local"), b"exit 0", LIMITS))


@needs_sshd
class TestSsh:
    def test_the_collector_answers(self, network):
        target = network.target(network.start().port)
        found = collect_targets((target,), _options("uname", "os-release"))
        assert found.unreachable == {}
        assert found.snapshots[target.name].uname.release == os.uname().release

    def test_a_command_with_quotes_arrives_as_written(self, network):
        target = network.target(network.start().port)
        command = """printf '%s|' "a b" 'c"d' '$HOME'; exit 5"""
        assert asyncio.run(run_command(target, command, 20)) == (5, 'a b|c"d|$HOME|', "")

    def test_a_jump_host_is_gone_through(self, network):
        gate, inner = network.start(), network.start()
        target = network.target(inner.port, jump=f"127.0.0.1:{gate.port}")
        found = collect_targets((target,), _options())
        assert found.unreachable == {}
        assert (gate.logins(), inner.logins()) == (1, 1)

    def test_a_dead_jump_host_is_named(self, network):
        port = _free_port()
        reason = _failure(network.target(network.start().port, jump=f"127.0.0.1:{port}"))
        assert "the way through `127.0.0.1:" in reason
        assert "refused" in reason

    def test_a_host_that_the_jump_host_cannot_reach_is_told_apart(self, network):
        gate = network.start()
        reason = _failure(network.target(_free_port(), jump=f"127.0.0.1:{gate.port}"))
        assert f"`127.0.0.1:{gate.port}` was reached and cannot reach it: Connection refused" in reason

    def test_an_unknown_key_of_the_jump_host_is_told(self, network):
        gate = network.start(is_known=False)
        reason = _failure(network.target(network.start().port, jump=f"127.0.0.1:{gate.port}"))
        assert "the way through" in reason
        assert "does not know its host key" in reason

    def test_an_unknown_host_key_is_named_and_never_accepted(self, network):
        server = network.start(is_known=False)
        said = subprocess.run(["ssh-keygen", "-lf", server.key], capture_output=True, text=True, check=True).stdout
        reason = _failure(network.target(server.port))
        assert "does not know its host key" in reason
        assert said.split()[1] in reason
        assert f"ssh-keyscan -p {server.port} 127.0.0.1" in reason
        assert "StrictHostKeyChecking" not in reason
        assert network.known_hosts.read_text() == ""
        assert server.logins() == 0

    def test_a_changed_host_key_is_told_apart(self, network):
        server, other = network.start(is_known=False), network.start(is_known=False)
        network.known_hosts.write_text(other.known().replace(str(other.port), str(server.port)))
        reason = _failure(network.target(server.port))
        assert "another one than ssh remembers" in reason
        assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in reason

    def test_a_server_that_wants_a_password_is_not_asked_for_one(self, network):
        server = network.start(
            "PubkeyAuthentication no", "PasswordAuthentication yes", "KbdInteractiveAuthentication no"
        )
        reason = _failure(network.target(server.port))
        assert "accepts none of" in reason
        assert "(password)" in reason.replace("(publickey,password)", "(password)")

    def test_a_closed_port_is_refused(self, network):
        assert "refused the connection" in _failure(network.target(_free_port()))

    def test_an_unknown_name_is_told(self, network):
        target = replace(parse_target("no-such-host.invalid"), config=str(network.config))
        assert "the name `no-such-host.invalid` is not known here" in _failure(target)

    def test_a_silent_host_costs_its_time_limit_once(self, network, black_hole):
        asked: list[str] = []
        found = collect_targets(
            (network.target(black_hole),), _options(), connect_seconds=1, on_done=lambda *done: asked.append(done[2])
        )
        assert len(asked) == 1
        assert "did not answer in time" in asked[0]
        assert list(found.unreachable.values()) == asked

    def test_the_limit_of_a_target_holds_before_that_of_the_connection(self, network, black_hole):
        assert "did not answer within 1 s" in _failure(network.target(black_hole), connect_seconds=60, seconds=1)

    def test_dead_hosts_do_not_hold_up_the_others(self, network, black_hole):
        alive = network.target(network.start().port)
        dead = [replace(network.target(black_hole), name=f"dead-{number}") for number in range(3)]
        order: list[str] = []
        found = collect_targets(
            (*dead, alive), _options(), parallel=4, connect_seconds=3, on_done=lambda name, *_: order.append(name)
        )
        assert order[0] == alive.name
        assert list(found.unreachable) == ["dead-0", "dead-1", "dead-2"]

    def test_a_missing_identity_is_no_traceback(self, network):
        target = replace(network.target(network.start("PasswordAuthentication no").port), identity="/nonexistent/key")
        config = network.config.read_text().replace(f"  IdentityFile {network.user_key}\n", "")
        network.config.write_text(config)
        assert "accepts none of" in _failure(target)

    def test_a_shell_that_only_greets_is_told(self, network):
        server = network.start("PasswordAuthentication no", "ForceCommand echo This account is not available")
        assert "This account is not available" in _failure(network.target(server.port))

    def test_a_cut_connection_keeps_whole_records(self, network):
        server = network.start("PasswordAuthentication no", f"ForceCommand {network.folder}/cut")
        # The collector answers without compression; all but the last 30 bytes pass.
        (network.folder / "cut").write_text("#!/bin/sh\nsh -s | head -c -30\n")
        (network.folder / "cut").chmod(0o755)
        options = CollectOptions(nonce=new_nonce(), probes=("uname", "limits"), is_compressed=False)
        target = network.target(server.port)
        snapshot = collect_targets((target,), options).snapshots[target.name]
        assert snapshot.has("uname")
        assert set(snapshot.outputs) == {"uname", "limits"}

    def test_kept_connections_are_shared_and_leave_nothing(self, network):
        server = network.start()
        target = network.target(server.port)
        folders: list[Path] = []

        async def twice() -> None:
            async with ssh.Connections(is_kept=True) as connections:
                for _ in range(3):
                    code, said, _ = await run_command(target, "echo here", 20, connections)
                    assert (code, said) == (0, "here\n")
                folders.append(connections._folder)
                assert folders[0].stat().st_mode & 0o777 == 0o700
                assert _processes_with(str(folders[0]))

        asyncio.run(twice())
        assert server.logins() == 1
        assert not folders[0].exists()
        for _ in range(100):
            if not _processes_with(str(folders[0])):
                break
            time.sleep(0.05)
        assert _processes_with(str(folders[0])) == []

    def test_the_socket_path_is_short_enough(self, monkeypatch, tmp_path):
        long = tmp_path / ("x" * 120)
        long.mkdir()
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(long))
        connections = ssh.Connections(is_kept=True)
        folder = connections._make_folder()
        assert folder is not None
        assert len(f"{folder}/") + 40 + 17 < 104
        folder.rmdir()

    def test_a_connection_the_person_keeps_open_is_used(self, network):
        server = network.start()
        with network.config.open("a") as file:
            file.write(f"  ControlPath {network.folder}/own\n")
        target = network.target(server.port)
        opened = ["ssh", "-F", str(network.config), "-M", "-N", "-f", "-p", str(server.port), "127.0.0.1"]
        subprocess.run(
            opened, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert collect_targets((target,), _options()).unreachable == {}
            assert server.logins() == 1
        finally:
            close = ["ssh", "-F", str(network.config), "-O", "exit", "-p", str(server.port), "127.0.0.1"]
            subprocess.run(close, check=True, capture_output=True)

    def test_ctrl_c_ends_the_children(self, network, black_hole):
        words = [sys.executable, "-m", "provision", "probe", f"ssh://127.0.0.1:{black_hole}"]
        words += ["--ssh-config", str(network.config), "--connect-timeout", "60"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        mark = f"-p {black_hole}"
        for _ in range(200):
            if _processes_with(mark):
                break
            time.sleep(0.05)
        assert _processes_with(mark)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 130
        assert b"Traceback" not in said
        assert _processes_with(mark) == []


class TestSshWords:
    """What the client is told, seen by a stand-in for `ssh` on PATH."""

    @pytest.fixture
    def words(self, tmp_path, monkeypatch):
        stand_in = tmp_path / "ssh"
        stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/words\nexit 0\n')
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

        def run(text: str, **fields: object) -> list[str]:
            with contextlib.suppress(UnreachableError):
                asyncio.run(ssh.collect(replace(parse_target(text), **fields), b"", LIMITS))
            return (tmp_path / "words").read_text().splitlines()

        return run

    def test_nothing_is_asked_and_no_check_is_weakened(self, words):
        said = words("ssh://me@node1:2200")
        assert "BatchMode=yes" in said
        assert not any("StrictHostKeyChecking" in word or "UserKnownHostsFile" in word for word in said)
        assert said[-3:] == ["--", "node1", "exec sh -s"]
        assert said[said.index("-l") + 1] == "me"
        assert said[said.index("-p") + 1] == "2200"

    def test_identity_jump_and_configuration_are_passed(self, words):
        said = words("node1", identity="/k", jump="gate", config="/c")
        assert [said[said.index(flag) + 1] for flag in ("-i", "-J", "-F")] == ["/k", "gate", "/c"]

    def test_an_ipv6_address_goes_without_brackets(self, words):
        assert words("ssh://[fe80::1%eth0]:22")[-2] == "fe80::1%eth0"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param("ssh: connect to host n port 22: No route to host", "no route leads to it", id="route"),
        pytest.param(
            "kex_exchange_identification: Connection closed by remote host", "closed the connection", id="kex"
        ),
        pytest.param("Received disconnect: 2: Too many authentication failures", "after too many keys", id="keys"),
        pytest.param("Unable to negotiate: no matching host key type found.", "no method in common", id="method"),
        pytest.param("/c: line 1: Bad configuration option: foo", "configuration has a mistake: /c", id="config"),
        pytest.param("something new", "something new", id="unknown"),
        pytest.param("", "ended without a word", id="silent"),
    ],
)
def test_failures_of_ssh_are_worded(said, reason):
    assert reason in str(ssh.explain(parse_target("n"), said))


class TestContainers:
    def test_a_missing_engine_names_the_program(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        found = collect_targets((parse_target("podman://web"),), _options())
        assert found.unreachable == {"podman://web": "`podman` is not on this machine"}
        assert found.missing[0].exit_code == 7

    def test_an_image_without_any_engine_is_missing_one(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingDependencyError, match="needs a container engine"):
            asyncio.run(containers.collect_image(parse_target("image://x"), b"", LIMITS))

    def test_a_command_in_an_image_is_refused(self):
        with pytest.raises(UsageError, match="would change nothing"):
            asyncio.run(run_command(parse_target("image://x"), "true", 5))

    @pytest.fixture
    def kubectl(self, tmp_path, monkeypatch):
        """A stand-in for kubectl: it writes its arguments down and runs what follows `--` here."""
        stand_in = tmp_path / "kubectl"
        stand_in.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\n'
            'while [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
        )
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return lambda: (tmp_path / "words").read_text().splitlines()

    def test_a_pod_is_entered_in_its_namespace_and_container(self, kubectl):
        target = parse_target("kubectl://train/pod-0/main?context=prod")
        found = collect_targets((target,), _options())
        assert found.snapshots[target.name].has("uname")
        assert kubectl() == [
            *(
                "--context",
                "prod",
                "--namespace",
                "train",
                "exec",
                "-i",
                "pod-0",
                "--container",
                "main",
                "--",
                "sh",
                "-s",
            )
        ]

    def test_a_command_in_a_pod_reads_nothing(self, kubectl):
        assert asyncio.run(run_command(parse_target("kubectl://pod-0"), "cat; echo end", 10)) == (0, "end\n", "")
        assert kubectl()[:3] == ["exec", "pod-0", "--"]

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            pytest.param(
                "Error response from daemon: No such container: web", "No such container: web", id="no-container"
            ),
            pytest.param(
                "Error response from daemon: container web is not running", "start it: `docker start web`", id="stopped"
            ),
            pytest.param(
                'OCI runtime exec failed: exec failed: exec: "sh": executable file not found in $PATH',
                "it has no shell",
                id="no-shell",
            ),
            pytest.param(
                "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
                "start the engine",
                id="no-daemon",
            ),
        ],
    )
    def test_what_the_engine_says_becomes_the_reason(self, tmp_path, monkeypatch, said, reason):
        stand_in = tmp_path / "docker"
        (tmp_path / "said").write_text(said)
        stand_in.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        found = collect_targets((parse_target("docker://web"),), _options())
        assert reason in found.unreachable["docker://web"]
