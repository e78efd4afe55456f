"""Run the console examples of a document, and put into it what the program really says.

An example is a fence of the kind ``console``: lines that begin with ``$ `` are commands, what follows is their output.
The examples of a document run in order, in one empty folder, without a network configuration and without a terminal.
In the output a line ``...`` stands for any number of lines and ``[..]`` for any text within one, for what differs from
machine to machine. A command that fails must be followed by ``$ echo $?``.

Three comments prepare files, and do not show when the document is read::

    <!-- file: requirements.txt -->      the next fence is written to a file of that name
    <!-- copy: traces/stages.csv -->     a file below docs/ is copied, under its last name
    <!-- stand-in: gpu001.tar.gz hgx_h100 [PROBE OLD NEW]... -->
                                         a bundle of a machine of tests/machines.py, with texts of probes changed
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

from provision.matrix.cache import ParsedFile
from provision.matrix.model import ARRAY_OF

ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_SECONDS = 600
_PARTS = re.compile(
    r"<!-- file: (?P<file>[\w./-]+) -->\n+```\w*\n(?P<content>.*?)^```$"
    r"|<!-- copy: (?P<copy>[\w./-]+) -->"
    r"|<!-- stand-in: (?P<bundle>.+?) -->"
    r"|^```console\n(?P<session>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class BrokenExampleError(Exception):
    """An example that cannot be run, or that fails without saying so."""


class _Step(NamedTuple):
    command: str
    expected: list[str]


def has_examples(text: str) -> bool:
    """Tell whether a document has examples to run."""
    return "```console\n" in text


def replay(text: str) -> str:
    """Run the examples of a document.

    Returns:
        The document with the outputs that came; the same text where all are as written.

    Raises:
        BrokenExampleError: A command failed and the example does not show it, or a file cannot be prepared.
    """
    with tempfile.TemporaryDirectory(prefix="provision-docs-") as made:
        root = Path(made)
        programs, folder = root / "bin", root / "work"
        programs.mkdir()
        folder.mkdir()
        # The home of the examples: a command that parses the facts again takes as long as ten that do not.
        shutil.copytree(_parsed_facts(), folder / ".cache" / "provision")
        program = programs / "provision"
        # The program of this very tree, whatever tree the interpreter's environment was made for.
        start = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m provision"
        program.write_text(f'#!/bin/sh\n{start} "$@"\n', encoding="utf-8")
        program.chmod(0o755)

        def run(part: re.Match[str]) -> str:
            if part["file"]:
                path = folder / part["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(part["content"], encoding="utf-8")
                return part[0]
            if part["copy"]:
                _copy(part["copy"], folder)
                return part[0]
            if part["bundle"]:
                _write_bundle(folder, shlex.split(part["bundle"]))
                return part[0]
            return f"```console\n{_play(part['session'], folder, programs)}```"

        return _PARTS.sub(run, text)


@cache
def _parsed_facts() -> Path:
    """Return a folder with what commands keep of the facts between runs."""
    kept = Path(tempfile.mkdtemp(prefix="provision-docs-"))
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    with patch.dict(os.environ, {"PROVISION_CACHE_DIR": str(kept)}):
        for name in ARRAY_OF:
            ParsedFile(ROOT / "compat" / name, name).part("dated")
    return kept


def _copy(name: str, folder: Path) -> None:
    path = ROOT / "docs" / name
    if not path.is_file():
        raise BrokenExampleError(f"docs/{name} is to be copied and is not there")
    (folder / path.name).write_bytes(path.read_bytes())


def _play(session: str, folder: Path, programs: Path) -> str:
    """Run one example and return it with what came."""
    steps = _read(session)
    environment = {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    code, lines = 0, []
    for number, step in enumerate(steps):
        try:
            done = subprocess.run(
                ["bash", "-c", f"(exit {code})\n{step.command}"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise BrokenExampleError(f"`{step.command}` did not end within {_TIMEOUT_SECONDS} s") from error
        code = done.returncode
        said = [line.rstrip() for line in f"{done.stdout}{done.stderr}".rstrip("\n").splitlines()]
        following = steps[number + 1].command if number + 1 < len(steps) else ""
        if code and following != "echo $?":
            raise BrokenExampleError(
                "\n".join((f"`{step.command}` ended with {code}, which the example does not show", *said))
            )
        lines += [f"$ {line}" if not index else line for index, line in enumerate(step.command.splitlines())]
        shown = step.expected if _matches(step.expected, said) else _shaped(step.expected, said)
        for line in shown:
            if any(str(path) in line for path in (folder, ROOT, sys.prefix)):
                raise BrokenExampleError(f"`{step.command}` prints a path of this machine; mask it by [..]: {line}")
        lines += shown
    return "".join(f"{line}\n" for line in lines)


def _read(session: str) -> list[_Step]:
    """Split an example into commands and what they are said to print."""
    steps: list[_Step] = []
    is_open = False
    for line in session.splitlines():
        if line.startswith("$ "):
            steps.append(_Step(line[2:], []))
        elif not steps:
            raise BrokenExampleError(f"an example begins with output: {line}")
        elif is_open:
            steps[-1] = _Step(f"{steps[-1].command}\n{line}", [])
        else:
            steps[-1].expected.append(line)
        is_open = line.endswith("\\") and not steps[-1].expected
    return steps


def _matches(expected: list[str], said: list[str]) -> bool:
    """Tell whether an output is the expected one."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else f"{_masked(line)}\n" for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in said)) is not None


def _masked(line: str) -> str:
    """The pattern of an expected line."""
    return ".*".join(re.escape(part) for part in line.split("[..]"))


def _shaped(expected: list[str], said: list[str]) -> list[str]:
    """Return a new output with the old one's masks, shortened where that was."""
    masks = [line for line in expected if "[..]" in line]
    shown = [next((mask for mask in masks if re.fullmatch(_masked(mask), line)), line) for line in said]
    if "..." not in expected:
        return shown
    head, tail = expected.index("..."), len(expected) - 1 - expected.index("...")
    return shown if len(shown) <= head + tail else [*shown[:head], "...", *shown[len(shown) - tail :]]


def _write_bundle(folder: Path, words: list[str]) -> None:
    """Write what would have been collected from a stand-in machine."""
    from provision.probe.bundle import write_bundle

    machines = _machines()
    name, machine, *changes = words
    target = name.partition(".")[0]
    if machine not in machines.MACHINES or len(changes) % 3:
        raise BrokenExampleError(f"`stand-in: {' '.join(words)}` cannot be made")
    outputs = machines.MACHINES[machine]()
    for probe, old, new in zip(changes[::3], changes[1::3], changes[2::3], strict=True):
        outputs = machines.change(outputs, probe, old, new)
    write_bundle(folder / name, {target: machines.snapshot(outputs, target)})


def _machines() -> ModuleType:
    """The stand-in machines of the tests."""
    path = ROOT / "tests" / "machines.py"
    spec = importlib.util.spec_from_file_location("machines", path)
    if spec is None or spec.loader is None:
        raise BrokenExampleError(f"{path.name} is missing, which makes the stand-in machines")
    module = sys.modules.get("machines") or importlib.util.module_from_spec(spec)
    if "machines" not in sys.modules:
        sys.modules["machines"] = module
        spec.loader.exec_module(module)
    return module
