"""Hosts behind ssh, through the ssh client of this machine and its configuration.

Host keys are always checked as that configuration says, and nothing is ever asked of a person. A connection that the
person keeps open is used. With :class:`Connections` that are kept, further calls share the first one's connection.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from provision.probe.targets import Target
from provision.probe.transports import Finished, Limits, UnreachableError
from provision.probe.transports.process import last_line, run_process, stream_of

_FAILED = 255
_PERSIST_SECONDS = 60
_SOCKET_BYTES_MAX = 100
_ASK_SECONDS = 5.0
_HINTS = ("install the OpenSSH client (Debian, Ubuntu: `apt install openssh-client`)",)


class Connections:
    """Connections of ssh that later calls share; a folder only this user can read holds their sockets.

    Args:
        is_kept: Share them. Otherwise each call has its own, and nothing is left to close.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._folder: Path | None = None
        self._targets: dict[str, Target] = {}

    async def __aenter__(self) -> Connections:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what is open and remove the folder."""
        await self.close()

    async def close(self) -> None:
        """End every shared connection and remove the sockets."""
        import asyncio
        import shutil

        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        targets, self._targets = self._targets, {}
        with suppress(OSError):
            if any(folder.iterdir()):
                asked = Limits(seconds=_ASK_SECONDS)
                ends = [
                    run_process(("ssh", "-O", "exit", *_where(target, (f"ControlPath={folder}/%C",))), None, asked)
                    for target in targets.values()
                ]
                await asyncio.gather(*ends, return_exceptions=True)
        shutil.rmtree(folder, ignore_errors=True)

    async def options(self, target: Target) -> tuple[str, ...]:
        """Return what ``-o`` says about sharing for one target."""
        if not self._is_kept:
            # A connection the person opened is used, none is opened on their behalf.
            return ("ControlMaster=no",)
        if target.name not in self._targets:
            check = await run_process(("ssh", "-O", "check", *_where(target, ())), None, Limits(seconds=_ASK_SECONDS))
            if check.code == 0:
                return ("ControlMaster=no",)
        folder = self._make_folder()
        if folder is None:
            return ("ControlMaster=no",)
        self._targets[target.name] = target
        return ("ControlMaster=auto", f"ControlPath={folder}/%C", f"ControlPersist={_PERSIST_SECONDS}")

    def _make_folder(self) -> Path | None:
        import tempfile

        if self._folder is None:
            # %C is 40 characters and ssh adds 17 while it makes the socket, whose path may have 107.
            for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a private folder in it
                if len(parent.encode()) + len("/pv-12345678/") + 57 <= _SOCKET_BYTES_MAX:
                    self._folder = Path(tempfile.mkdtemp(prefix="pv-", dir=parent))
                    break
        return self._folder


async def collect(target: Target, script: bytes, limits: Limits, connections: Connections | None = None) -> bytes:
    """Run a script on a host with its ``sh`` and return what it printed.

    Raises:
        MissingDependencyError: There is no ssh client here.
        UnreachableError: No connection came about, or nothing came back over it.
    """
    shared = await (connections or Connections()).options(target)
    argv = ("ssh", *_flags(target, limits, shared), "exec sh -s")
    finished = await run_process(argv, script, limits, hints=_HINTS)
    if finished.code == _FAILED and not finished.out:
        raise explain(target, finished.err + await _ask_host_key(target, finished.err))
    if finished.is_late and not finished.out and _said(finished.err):
        raise explain(target, finished.err)
    return stream_of(finished, limits, missing="its login shell answered nothing")


async def run_command(target: Target, command: str, limits: Limits, connections: Connections | None = None) -> Finished:
    """Run one command on a host.

    Raises:
        MissingDependencyError: There is no ssh client here.
        UnreachableError: No connection came about.
    """
    shared = await (connections or Connections()).options(target)
    argv = ("ssh", *_flags(target, limits, shared), f"exec sh -c {shlex.quote(command)}")
    finished = await run_process(argv, None, limits, hints=_HINTS)
    if finished.code == _FAILED and not finished.out and _said(finished.err):
        failure = explain(target, finished.err + await _ask_host_key(target, finished.err))
        if failure.hint:
            raise failure
    return finished


async def _ask_host_key(target: Target, said: str) -> str:
    """Return the line in which ssh names the key it does not accept; it only does so when it talks more than usual."""
    if "Host key verification failed" not in said or "SHA256:" in said:
        return ""
    limits = Limits(seconds=15.0)
    options = ("BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no", "ControlPath=none", "LogLevel=DEBUG1")
    finished = await run_process(("ssh", "-T", *_where(target, options)), None, limits)
    found = re.search(r"Server host key: (\S{1,64} SHA256:\S{1,64})", finished.err)
    return f"\nServer host key: {found.group(1)}" if found else ""


def _flags(target: Target, limits: Limits, shared: Iterable[str]) -> tuple[str, ...]:
    options = (
        "BatchMode=yes",
        f"ConnectTimeout={limits.connect_seconds}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        "PermitLocalCommand=no",
        "RequestTTY=no",
        "LogLevel=ERROR",
        *shared,
    )
    return ("-T", *_where(target, options))


def _where(target: Target, options: Iterable[str]) -> tuple[str, ...]:
    flags: list[str] = []
    if target.config:
        flags += ["-F", target.config]
    for option in options:
        flags += ["-o", option]
    if target.identity:
        flags += ["-i", target.identity, "-o", "IdentitiesOnly=yes"]
    if target.jump:
        flags += ["-J", target.jump]
    if target.port is not None:
        flags += ["-p", str(target.port)]
    if target.user:
        flags += ["-l", target.user]
    return (*flags, "--", target.host)


def _shown_address(target: Target) -> str:
    user = f"{target.user}@" if target.user else ""
    port = f"-p {target.port} " if target.port is not None else ""
    jump = f"-J {target.jump} " if target.jump else ""
    config = f"-F {shlex.quote(target.config)} " if target.config else ""
    return f"{config}{jump}{port}{user}{target.host}"


_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed|differs from the key for the IP address",
        "its host key is another one than ssh remembers{key}",
        "find out why; when the host was set up anew, `ssh-keygen -R {known}` forgets the old key",
    ),
    (
        r"Host key verification failed|No \S+ host key is known for",
        "ssh does not know its host key{key}",
        "connect once by hand and compare the key (`ssh {address}`), or add what `ssh-keyscan {scan}` prints to"
        " `known_hosts` after comparing it",
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE|bad permissions",
        "ssh does not use the private key because others can read it",
        "`chmod 600` the key",
    ),
    (
        r"Permission denied(?: \(([^)\n]*)\))?",
        "it accepts none of the available keys{methods}",
        "try `ssh {address}` by hand; load a key with `ssh-add` or name one with `--identity`; passwords are not asked",
    ),
    (r"Too many authentication failures", "it refused after too many keys", "name the right one with `--identity`"),
    (
        r"Could not resolve hostname|Name or service not known|nodename nor servname",
        "the name `{host}` is not known here",
        "check how it is written, or give its address",
    ),
    (
        r"Connection refused",
        "it refused the connection",
        "check that sshd runs there and listens on this port",
    ),
    (
        r"timed out|Operation timed out|Connection timeout",
        "it did not answer in time",
        "check that it is up and that no firewall stands between; `--connect-timeout` waits longer",
    ),
    (r"No route to host|Network is unreachable", "no route leads to it", "check the network and the address"),
    (
        r"kex_exchange_identification|Connection closed by|Connection reset by|ssh_exchange_identification"
        r"|banner exchange",
        "it closed the connection before anybody could log in",
        "it may take only so many at once: try `--parallel 8`; its log says why",
    ),
    (
        r"no matching (?:host key type|key exchange method|cipher|MAC)",
        "it and this ssh client have no method in common",
        "update the older one of the two",
    ),
    (r"Bad configuration option|terminating, \d+ bad configuration", "the ssh configuration has a mistake", ""),
    (r"Can't open user config file|No such identity|Load key", "a file that was named for ssh cannot be read", ""),
)


def explain(target: Target, said: str) -> UnreachableError:
    """Return what went wrong, worded from what the ssh client said.

    Args:
        target: Where it was to connect.
        said: Its standard error.
    """
    beyond = re.search(r"open failed: (?:connect failed|administratively prohibited): ([^\n]{1,200})", said)
    if target.jump and beyond:
        return UnreachableError(
            f"`{target.jump}` was reached and cannot reach it: {beyond.group(1)}",
            "check the address as that host sees it",
        )
    for pattern, reason, hint in _FAILURES:
        found = re.search(pattern, said)
        if not found:
            continue
        methods = f" ({found.group(1)})" if found.groups() and found.group(1) else ""
        port = f"-p {target.port} " if target.port is not None else ""
        words = {
            "key": _host_key(said),
            "methods": methods,
            "host": _unresolved(said) or target.host,
            "address": _shown_address(target),
            "scan": f"{port}{target.host}",
            "known": shlex.quote(f"[{target.host}]:{target.port}") if target.port not in (None, 22) else target.host,
        }
        text = reason.format(**words)
        way_out = hint.format(**words)
        if not hint:
            text = f"{text}: {_said(said)}"
        if target.jump and _is_jump(said):
            text = f"the way through `{target.jump}` failed: {text}"
        return UnreachableError(text, way_out)
    return UnreachableError(_said(said) or "ssh ended without a word")


def _said(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("Warning: Permanently", "@"))]
    return last_line("\n".join(lines))


def _is_jump(said: str) -> bool:
    """Tell whether the failure was on the way: the last hop then only sees its pipe close, after the reason."""
    before, closed, _ = said.partition("kex_exchange_identification")
    return bool(closed and before.strip()) or "UNKNOWN port 65535" in said


def _host_key(said: str) -> str:
    kind = re.search(r"Server host key: (\S{1,64})|fingerprint for the (\S{1,64}) key", said)
    mark = re.search(r"SHA256:[A-Za-z0-9+/=]{20,64}", said)
    words = [next(filter(None, kind.groups()))] if kind else []
    words += [mark.group()] if mark else []
    return f" ({' '.join(words)})" if words else ""


def _unresolved(said: str) -> str:
    found = re.search(r"Could not resolve hostname ([^\s:]{1,255})", said)
    return found.group(1) if found else ""
