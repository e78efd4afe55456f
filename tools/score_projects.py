"""Lock public projects as images and score the answers against what was expected of each before; uv answers beside it.

The list says of each project what should come of it: `lock` (its lines go together), `flag` (they leave something to a
flag, with which they lock), `no` (they go together nowhere), `unreachable` (they need an address that this machine
cannot ask). A checkout of OWNER/NAME is the folder OWNER+NAME below --sources. Nothing of a checkout is run by this
program; uv runs the build scripts of packages that tell their needs in no other way.

Each line of the user is held against the lock: its version, and by uv what its extras bring. A line that does not hold
is `told` where the output names its package, and `silent` where it does not.

    .venv/bin/python tools/score_projects.py tests/projects/world.toml --sources DIR --part mending -o answers.jsonl
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision.errors import ProvisionError
from provision.project.read import read_inputs

_OWN_INDEX = re.compile(r"^\s*(--(extra-)?index-url|-i|--find-links|-f)[ =]\S*pytorch\.org\S*\s*$", re.MULTILINE)
_LOCAL = re.compile(r"(==\s*[0-9][0-9a-z.]*)\+(cu|cpu)[0-9]*")
REFUSED = (2, 3, 4)
_OF_THE_STACK = ("nvidia-", "triton", "cuda-", "jax-cuda")
"""Packages that another build of a framework brings under other names."""


def run(words: list[str], seconds: int) -> tuple[int, str, float]:
    """Return the exit code of a command (124: out of time), the end of what it said, and its seconds."""
    start = time.monotonic()
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)
        code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        code, said = 124, f"not finished after {seconds} s"
    return code, said[-60000:], round(time.monotonic() - start, 1)


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


def lines_of(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the requirements of a user: what this project's own readers find, and what plainly stands in the files.

    What stands for other requirements of its package, by the user's own word, is returned apart too.

    A line that pip would install and the readers lost is so seen too.
    """
    place, extras = Path(words[1]), [words[index + 1] for index, word in enumerate(words) if word == "--extra"]
    given = read_inputs([place]) if words[0] == "-r" else read_inputs([], place, extras)
    lines = [line.requirement.text for line in given.lines]
    pyproject = place / "pyproject.toml"
    if place.suffix == ".txt":
        lines += _listed(place)
    elif pyproject.is_file():
        table = tomllib.loads(pyproject.read_text()).get("project", {})
        parts = [
            table.get("dependencies", []),
            *(table.get("optional-dependencies", {}).get(name, []) for name in extras),
        ]
        lines += [line for part in parts for line in part if canonicalize_name(_name(line)) != _name(table["name"])]
    replaced = {canonicalize_name(_name(text)) for text in given.overrides} | set(given.excludes)
    kept = [line for line in lines if _name(line) not in replaced or line in given.overrides]
    return list(dict.fromkeys(kept)), list(given.overrides)


def _name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    return canonicalize_name(found[0]) if found else ""


def _listed(file: Path) -> list[str]:
    """Return the requirements with a name that stand in a list and in the lists that it reads."""
    found = []
    text = file.read_text("utf-8-sig", errors="replace").replace("\\\n", " ")
    for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()):
        if named := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", line):
            found += _listed(file.parent / named[1])
            continue
        bare = re.split(r"\s+--", line, maxsplit=1)[0]
        try:
            found.append(str(Requirement(bare)))
        except InvalidRequirement:
            continue
    return found


def hold_lines(lines: list[str], lock: dict[str, Any], said: str) -> dict[str, list[str]]:
    """Hold each requirement of a user against what is locked.

    Args:
        lines: Requirements as pip takes them.
        lock: What was written.
        said: What the program told, without which a change is silent.

    Returns:
        The lines that hold, are for another machine by their marker, do not hold and are told of, and are not.
    """
    locked = {package["name"]: package for package in lock["image"]["packages"]}
    python = lock["python"].removesuffix("t")
    machine = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    machine |= {"platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "extra": ""}
    machine |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    sorted_lines: dict[str, list[str]] = {"held": [], "elsewhere": [], "told": [], "silent": []}
    for line in lines:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            # An address alone: what it holds shows only when it is built.
            found = any(_is_at(line, package) for package in locked.values())
            sorted_lines["held" if found else "told" if line in said else "silent"].append(line)
            continue
        if wanted.marker is not None and not Marker(str(wanted.marker)).evaluate(machine):
            sorted_lines["elsewhere"].append(line)
            continue
        package = locked.get(canonicalize_name(wanted.name))
        if package is not None and _is_met(wanted, package, lock.get("cuda")):
            sorted_lines["held"].append(line)
            continue
        word = re.sub(r"[-_.]", "[-_.]", re.escape(wanted.name).replace("\\", ""))
        is_told = re.search(rf"(?<![\w-]){word}(?![\w-])", said, re.IGNORECASE) is not None
        got = f"{package['version']} is locked" if package is not None else "is not locked"
        sorted_lines["told" if is_told else "silent"].append(f"{line}: {got}")
    return sorted_lines


def _is_met(wanted: Requirement, package: dict[str, Any], cuda: str | None) -> bool:
    if wanted.url is not None:
        return _is_at(wanted.url, package) or package["version"] in wanted.url
    version = Version(package["version"])
    clauses = []
    for clause in wanted.specifier:
        base, _, local = clause.version.partition("+")
        if local and version.local is None:
            # The lock says the build of a framework in a word of its own.
            if local.startswith("cu") and local[2:] != (cuda or "").replace(".", "")[: len(local) - 2]:
                return False
            clauses.append(f"{clause.operator}{base}")
        else:
            clauses.append(str(clause))
    return SpecifierSet(",".join(clauses)).contains(version, prereleases=True)


def _is_at(address: str, package: dict[str, Any]) -> bool:
    """Tell whether a package was locked from an address, whatever branch or commit either says."""
    place = re.sub(r"@[^/]*$|\.git(?=@|$)", "", re.sub(r"#.*", "", address)).partition("://")[2].lower()
    return bool(place) and place in str(package["url"]).lower().replace(".git", "")


def hold_together(
    lock: dict[str, Any], context: Path, lines: list[str], overrides: list[str], limits: tuple[int, str]
) -> tuple[str, str, list[str]]:
    """Let uv resolve the locked versions by their own metadata, with the extras that the user's lines name beside them.

    Returns:
        ``yes``, ``late``, or ``no`` for a lock that contradicts itself; what uv said; what the extras would add to it.
    """
    seconds, day = limits
    pins = set()
    for path in (context / "requirements.lock.txt", *sorted(context.glob("requirements.build*.txt"))):
        if path.is_file():
            written = path.read_text().splitlines()
            pins |= {re.sub(r"\+.*", "", line.split(" ")[0]) for line in written if re.match(r"^[\w.-]+==", line)}
    names = {_name(pin) for pin in pins}
    wanted = [Requirement(line) for line in lines if "[" in line and "://" not in line]
    extras = {f"{item.name}[{','.join(sorted(item.extras))}]" for item in wanted if _name(item.name) in names}
    names |= {package["name"] for package in lock["image"]["packages"]}
    with tempfile.TemporaryDirectory() as scratch:
        listed, out = Path(scratch) / "pins.in", Path(scratch) / "out"
        listed.write_text("\n".join(sorted(pins | extras)))
        (Path(scratch) / "overrides").write_text("\n".join(overrides))
        words = ["uv", "pip", "compile", "-q", str(listed), "--python-version", lock["python"], "--python-platform"]
        words += ["x86_64-manylinux_2_36", "--prerelease", "allow", "--exclude-newer", day, "-o", str(out)]
        words += ["--override", str(Path(scratch) / "overrides")]
        code, said, _ = run(words, seconds)
        added = [] if code else [line for line in out.read_text().splitlines() if re.match(r"[\w.-]+==", line)]
    # Another build of a framework brings CUDA libraries under other names.
    missing = [line for line in added if _name(line) not in names and not line.startswith(_OF_THE_STACK)]
    return ("yes" if code == 0 else "late" if code == 124 else "no"), said[-1500:], missing if extras else []


def answer(
    project: dict[str, Any], sources: Path, kept: Path, limits: tuple[int, str], *, is_uv_asked: bool = True
) -> dict[str, Any]:
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
        code, said, took = run([*program, *given, *flags, "-o", str(context)], limits[0])
        row[column] = {"outcome": outcome(code, said), "code": code, "said": said, "seconds": took}
        if code == 0:
            lock = json.loads((context / "provision.lock").read_text())
            row[column] |= {"frameworks": lock["frameworks"], "python": lock["python"], "cuda": lock.get("cuda")}
            row[column] |= hold(lock, context, [*given, *flags], said, limits)
    if not is_uv_asked:
        return row
    place = sources / project["repository"].replace("/", "+") / project["path"]
    flags_given = project.get("flags", "")
    row["uv_bare"] = ask_uv(place, flags_given, [], "3.12", limits)
    pins = [f"{name}=={version.split('+')[0]}" for name, version in lock.get("frameworks", {}).items()]
    asked = ask_uv(place, flags_given, pins, lock["python"], limits) if lock else ("not asked", "")
    row["uv_pinned"] = asked
    return row


def hold(lock: dict[str, Any], context: Path, words: list[str], said: str, limits: tuple[int, str]) -> dict[str, Any]:
    """Hold the lines of a user against a lock, and its versions against each other."""
    try:
        lines, overrides = lines_of(words)
    except ProvisionError as error:
        return {"lines": "unread", "lines_said": str(error)}
    found = hold_lines(lines, lock, said)
    agree, agree_said, missing = hold_together(lock, context, found["held"], overrides, limits)
    word = "no" if found["silent"] or missing else "told" if found["told"] else "yes"
    return {"lines": word, "lines_of": found, "extras_missing": missing, "holds": agree, "holds_said": agree_said}


def main() -> int:
    """Ask for every project of one part, write the answers line by line, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--sources", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--part", choices=["mending", "held-out"], help="one part alone (default: both)")
    parser.add_argument("--sample", type=int, metavar="N", help="ask for N of them, chosen at random")
    parser.add_argument("--seed", type=int, default=18, help="of the order in which they are asked for (default: 18)")
    parser.add_argument("--skip-uv", action="store_true", help="leave out what uv alone makes of the same input")
    parser.add_argument("--only", help="projects whose name holds this")
    parser.add_argument("--kept", type=Path, default=Path("contexts"), help="folder of the contexts that are written")
    parser.add_argument("--seconds", type=int, default=300, help="limit of one request")
    parser.add_argument("--day", default="2026-11-23", help="packages published from this day on do not count for uv")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    projects = tomllib.loads(arguments.list.read_text())["project"]
    random.Random(arguments.seed).shuffle(projects)  # noqa: S311 - a sample, not a secret
    chosen = [p for p in projects if arguments.part in (None, p["part"]) and (arguments.only or "") in p["repository"]]
    chosen = chosen[: arguments.sample]
    print(f"{len(chosen)} of {len(projects)} projects, in the order of seed {arguments.seed}", flush=True)
    counts: collections.Counter[str] = collections.Counter()
    with arguments.output.open("a") as out:
        for project in chosen:
            limits = (arguments.seconds, arguments.day)
            row = answer(project, arguments.sources, arguments.kept, limits, is_uv_asked=not arguments.skip_uv)
            out.write(json.dumps(row) + "\n")
            out.flush()
            asked = [row[name] for name in ("bare", "flags") if name in row]
            said = f"{row['truth']}: {', '.join(item['outcome'] for item in asked)}"
            counts[said] += 1
            if (lines := asked[-1].get("lines")) is not None:
                said += f"; every line holds: {lines}; versions agree: {asked[-1].get('holds')}"
                counts[f"every line holds in the lock: {lines}"] += 1
            if not arguments.skip_uv:
                said += f"; uv {row['uv_bare'][0]}, {row['uv_pinned'][0]}"
                counts[f"uv alone: {row['uv_bare'][0]}"] += 1
                counts[f"uv with our pins: {row['uv_pinned'][0]}"] += 1
            print(f"{row['repository']}: {said}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:4} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
