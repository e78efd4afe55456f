"""Nodes of a Slurm cluster, all of them in one step: Slurm's own tree reaches thousands without a connection to each.

A node is asked in an allocation of its own, with all its GPUs, so that only idle ones can be. Their answers come back
through one ``srun`` as lines that it labels with their task: base64, since it works on lines.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from provision.errors import MissingDependencyError, UsageError
from provision.probe.clean import clean_line
from provision.probe.transports import Node
from provision.probe.transports.process import last_line

if TYPE_CHECKING:
    from subprocess import Popen

_IDLE = ("idle", "planned")
_ASK_SECONDS = 60
_START_SECONDS = 60
_MINUTE = 60
"""Slurm keeps limits by the minute."""
_LOOK_SECONDS = 0.1
_BYTES_MAX = 64 * 1024 * 1024
"""Of one node's answer in base64; what goes on is not kept."""
_HOSTLIST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.,_\[\]-]{0,65535}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_LINE = re.compile(rb" *([0-9]+): (.*)", re.DOTALL)
_HINTS = ("run it on a login node (Debian, Ubuntu: `apt install slurm-client`)",)
# Each task says whose it is, answers, and says that this was all.
_TASK = 'echo "@node $SLURMD_NODENAME"; sh -s | base64; echo @end'


def list_nodes(hostlists: Sequence[str], partition: str | None = None) -> tuple[Node, ...]:
    """Return the nodes that Slurm knows, each once, in its order.

    Args:
        hostlists: Which, as Slurm writes them (``n[001-016]``); none for all.
        partition: Of which partition; absent for all.

    Raises:
        UsageError: A name is none, or Slurm does not know it.
        MissingDependencyError: There is no Slurm here.
    """
    for text in (*hostlists, *((partition,) if partition else ())):
        if not _HOSTLIST.fullmatch(text):
            raise UsageError(
                f"`{clean_line(text, 80)}` is not a node of Slurm", hints=("write it as in `node01` or `node[01-16]`",)
            )
    words = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
    words += [f"--partition={partition}"] if partition else []
    words += [f"--nodes={','.join(hostlists)}"] if hostlists else []
    code, out, said = _run(words)
    if code:
        raise MissingDependencyError("Slurm does not say which nodes there are", because=(last_line(said),))
    found: dict[str, Node] = {}
    for line in out.splitlines():
        name, state, reason = ([part.strip() for part in line.split("|", 2)] + ["", ""])[:3]
        if _NAME.fullmatch(name) and name not in found:
            found[name] = Node(name=name, why=_why_not(state.lower(), reason))
    if not found:
        raise UsageError(
            f"Slurm knows no node {clean_line(', '.join(hostlists), 200) if hostlists else 'at all'}",
            hints=("`sinfo --Node` lists them",),
        )
    return tuple(found.values())


def ask_nodes(
    names: Sequence[str], script: bytes, *, seconds: float, partition: str | None = None
) -> Iterator[tuple[str, bytes, str]]:
    """Run a script on idle nodes with their ``sh``, and yield each node with what it printed, as they end.

    A node that printed nothing whole comes last, with the reason.

    Args:
        names: Nodes that :func:`list_nodes` calls free.
        script: What to run; every node gets it on its standard input.
        seconds: Limit of the step on a node.
        partition: Where to ask; absent for Slurm's default.

    Raises:
        MissingDependencyError: There is no srun here.
    """
    import subprocess
    import tempfile

    words = ["srun", "--label", f"--nodelist={','.join(names)}", f"--nodes={len(names)}", "--ntasks-per-node=1"]
    words += ["--exclusive", "--mem=0", f"--immediate={_START_SECONDS}", f"--time={int(seconds) // 60 + 1}"]
    # One node that fails takes no other with it, and the slow ones have all of their time.
    words += ["--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--job-name=provision-verify"]
    words += [f"--partition={partition}"] if partition else []
    # Answers are kept in a file until they are judged: a reader that is slow would hold up the nodes, and time runs.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors, tempfile.NamedTemporaryFile() as kept:
        given.write(script)
        given.seek(0)
        try:
            child = subprocess.Popen(
                [*words, "sh", "-c", _TASK], stdin=given, stdout=kept, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise MissingDependencyError("`srun` is not on this machine", hints=_HINTS) from error
        seen: set[str] = set()
        try:
            with Path(kept.name).open("rb") as lines:
                told = _follow(lines, child, seconds + 2 * _START_SECONDS + _MINUTE)
                for name, answer in _read_answers(told, frozenset(names)):
                    seen.add(name)
                    yield name, answer, ""
        finally:
            if child.poll() is None:
                child.terminate()
            child.wait()
        errors.seek(0)
        said = errors.read(1024 * 1024).decode("utf-8", "replace").splitlines()
    for name in names:
        if name not in seen:
            yield name, b"", _find_reason(name, said)


def _follow(lines: IO[bytes], child: Popen[bytes], seconds: float) -> Iterator[bytes]:
    """Yield the whole lines of a file that a program writes, until it has ended or its time is over."""
    import time

    end = time.monotonic() + seconds
    rest = b""
    while True:
        is_over = child.poll() is not None or time.monotonic() > end
        # What was written before that is read to its end.
        for line in lines:
            rest += line
            if rest.endswith(b"\n"):
                yield rest
                rest = b""
        if is_over:
            return
        time.sleep(_LOOK_SECONDS)


def _read_answers(lines: Iterable[bytes], names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Yield node and answer of each task that said that it was done; what is in between is kept, no more."""
    owners: dict[bytes, str] = {}
    parts: dict[bytes, list[bytes]] = {}
    sizes: dict[bytes, int] = {}
    for line in lines:
        match = _LINE.fullmatch(line.rstrip(b"\r\n"))
        if match is None:
            continue
        task, text = match.groups()
        if text.startswith(b"@node "):
            name = text[6:].decode("ascii", "replace").strip()
            if name in names and task not in owners:
                owners[task], parts[task], sizes[task] = name, [], 0
        elif task not in parts:
            continue
        elif text == b"@end":
            try:
                answer = binascii.a2b_base64(b"".join(parts.pop(task)))
            except binascii.Error:
                continue
            yield owners[task], answer
        elif sizes[task] < _BYTES_MAX:
            sizes[task] += len(text)
            parts[task].append(text)


def _find_reason(name: str, said: Iterable[str]) -> str:
    """Return what srun said of a node, or else last of all."""
    lines = [re.sub(r"^srun: (?:error: )?", "", line.strip()) for line in said if line.strip()]
    own = [line for line in lines if re.search(rf"\b{re.escape(name)}\b", line)]
    return clean_line((own or lines or ["Slurm's step ended before it answered"])[-1], 300)


def _why_not(state: str, reason: str) -> str:
    if state.startswith(_IDLE) and not state.endswith(("*", "~", "#", "%", "$", "@")):
        return ""
    said = f": {clean_line(reason, 200)}" if reason not in ("", "none") else ""
    if state.startswith(("alloc", "mixed", "comp")) and not state.endswith("*"):
        return f"jobs are on it ({state}), and it is asked only when it is idle"
    return f"Slurm has it as {clean_line(state, 40)}{said}"


def _run(words: Sequence[str]) -> tuple[int, str, str]:
    import subprocess

    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingDependencyError(f"`{words[0]}` is not on this machine", hints=_HINTS) from error
    except subprocess.TimeoutExpired as error:
        raise MissingDependencyError(f"`{words[0]}` did not answer within {_ASK_SECONDS} s") from error
    return done.returncode, done.stdout, done.stderr
