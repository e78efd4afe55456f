"""Lock public projects as images and score the answers against what was expected of each before; uv answers beside it.

The list says of each project what should come of it: `lock` (its lines go together), `flag` (they leave something to a
flag, with which they lock), `no` (they go together nowhere), `unreachable` (they need an address that this machine
cannot ask). A checkout of OWNER/NAME is the folder OWNER+NAME below --sources. Nothing of a checkout is run by this
program; uv runs the build scripts of packages that tell their needs in no other way.

    .venv/bin/python tools/score_projects.py tests/projects/world.toml --sources DIR --part mending -o answers.jsonl
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

_OWN_INDEX = re.compile(r"^\s*(--(extra-)?index-url|-i|--find-links|-f)[ =]\S*pytorch\.org\S*\s*$", re.MULTILINE)
_LOCAL = re.compile(r"(==\s*[0-9][0-9a-z.]*)\+(cu|cpu)[0-9]*")
REFUSED = (2, 3, 4)


def run(words: list[str], seconds: int) -> tuple[int, str, float]:
    """Return the exit code of a command (124: out of time), the end of what it said, and its seconds."""
    start = time.monotonic()
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)
        code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        code, said = 124, f"not finished after {seconds} s"
    return code, said[-6000:], round(time.monotonic() - start, 1)


def words_of(project: dict[str, Any], sources: Path) -> list[str]:
    """Return the flags that name a project's file or folder."""
    place = sources / project["repository"].replace("/", "+") / project["path"]
    return ["-r", str(place)] if place.suffix == ".txt" else ["--project", str(place)]


def outcome(code: int, said: str) -> str:
    """Say in one word what came of a request."""
    if "Traceback (most recent call last)" in said:
        return "traceback"
    return "locked" if code == 0 else "refused" if code in REFUSED else "late" if code == 124 else "failed"


def uv_input(place: Path, folder: Path) -> Path | None:
    """Return what uv can read of a project: a list without PyTorch's own index, or a project's file; or nothing."""
    if place.suffix == ".txt":
        # Files that a list reads stay beside it.
        copy = folder / "in"
        shutil.copytree(place.parent, copy, ignore=_others)
        for file in copy.rglob("*.txt"):
            text = file.read_text(errors="replace")
            file.write_text(_LOCAL.sub(r"\1", _OWN_INDEX.sub("", text)))
        return copy / place.name
    files = [place / name for name in ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")]
    return next((file for file in files if _names(file)), None)


def _others(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".txt") and not (Path(folder) / name).is_dir()]


def _names(file: Path) -> bool:
    if not file.is_file():
        return False
    return (
        file.name != "pyproject.toml"
        or re.search(r"^\[project\]|^\[tool\.poetry\]", file.read_text(), re.MULTILINE) is not None
    )


def ask_uv(place: Path, flags: str, pins: list[str], python: str, limits: tuple[int, str]) -> tuple[str, str]:
    """Resolve the same input by uv alone, with these pins beside it, and return the outcome and what it said."""
    seconds, day = limits
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        given = uv_input(place, folder)
        if given is None:
            return "no input", "uv reads no file of it"
        (folder / "pins.in").write_text("\n".join(pins))
        words = ["uv", "pip", "compile", "-q", str(given), str(folder / "pins.in"), "--python-version", python]
        words += ["--python-platform", "x86_64-manylinux_2_36", "--exclude-newer", day, "-o", str(folder / "out.txt")]
        words += flags.split() if flags.startswith("--extra") and given.name == "pyproject.toml" else []
        code, said, _ = run(words, seconds)
    return ("locked" if code == 0 else "late" if code == 124 else "refused"), said[-1500:]


def hold_together(lock: dict[str, Any], context: Path, seconds: int, day: str) -> tuple[str, str]:
    """Let uv resolve the locked versions by their own metadata: what it refuses is a lock that contradicts itself."""
    pins = set()
    for path in (context / "requirements.lock.txt", *sorted(context.glob("requirements.build*.txt"))):
        if path.is_file():
            lines = path.read_text().splitlines()
            pins |= {line.split(" ")[0] for line in lines if re.match(r"^[\w.-]+==", line)}
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "pins.in"
        listed.write_text("\n".join(sorted(re.sub(r"\+.*", "", pin) for pin in pins)))
        words = ["uv", "pip", "compile", "-q", str(listed), "--python-version", lock["python"], "--python-platform"]
        words += [
            "x86_64-manylinux_2_36",
            "--prerelease",
            "allow",
            "--exclude-newer",
            day,
            "-o",
            str(Path(scratch) / "out"),
        ]
        code, said, _ = run(words, seconds)
    return ("yes" if code == 0 else "late" if code == 124 else "no"), said[-1500:]


def answer(project: dict[str, Any], sources: Path, kept: Path, seconds: int, day: str) -> dict[str, Any]:
    """Ask for one project without a flag and, where the list names flags, with them; then ask uv."""
    program = [sys.executable, "-m", "provision", "image"]
    given = words_of(project, sources)
    row: dict[str, Any] = {"repository": project["repository"], "truth": project["truth"], "part": project["part"]}
    lock: dict[str, Any] = {}
    for column, flags in (("bare", []), ("flags", project.get("flags", "").split())):
        if column == "flags" and not flags:
            continue
        context = kept / f"{project['repository'].replace('/', '+')}-{column}"
        shutil.rmtree(context, ignore_errors=True)
        code, said, took = run([*program, *given, *flags, "-o", str(context), "-q"], seconds)
        row[column] = {"outcome": outcome(code, said), "code": code, "said": said, "seconds": took}
        if code == 0:
            lock = json.loads((context / "provision.lock").read_text())
            row[column] |= {"frameworks": lock["frameworks"], "python": lock["python"], "cuda": lock.get("cuda")}
            row[column]["holds"], row[column]["holds_said"] = hold_together(lock, context, seconds, day)
    place = sources / project["repository"].replace("/", "+") / project["path"]
    flags_given = project.get("flags", "")
    row["uv_bare"] = ask_uv(place, flags_given, [], "3.12", (seconds, day))
    pins = [f"{name}=={version.split('+')[0]}" for name, version in lock.get("frameworks", {}).items()]
    asked = ask_uv(place, flags_given, pins, lock["python"], (seconds, day)) if lock else ("not asked", "")
    row["uv_pinned"] = asked
    return row


def main() -> int:
    """Ask for every project of one part, write the answers line by line, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--sources", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--part", choices=["mending", "held-out"], required=True)
    parser.add_argument("--only", help="projects whose name holds this")
    parser.add_argument("--kept", type=Path, default=Path("contexts"), help="folder of the contexts that are written")
    parser.add_argument("--seconds", type=int, default=300, help="limit of one request")
    parser.add_argument("--day", default="2026-11-23", help="packages published from this day on do not count for uv")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    projects = tomllib.loads(arguments.list.read_text())["project"]
    chosen = [p for p in projects if p["part"] == arguments.part and (arguments.only or "") in p["repository"]]
    counts: collections.Counter[str] = collections.Counter()
    with arguments.output.open("a") as out:
        for project in chosen:
            row = answer(project, arguments.sources, arguments.kept, arguments.seconds, arguments.day)
            out.write(json.dumps(row) + "\n")
            out.flush()
            said = f"{row['truth']}: {', '.join(row[name]['outcome'] for name in ('bare', 'flags') if name in row)}"
            counts[said] += 1
            counts[f"uv alone: {row['uv_bare'][0]}"] += 1
            counts[f"uv with our pins: {row['uv_pinned'][0]}"] += 1
            print(f"{row['repository']}: {said}; uv {row['uv_bare'][0]}, {row['uv_pinned'][0]}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:4} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
