"""Take hashes of wheels that only PyTorch's own index serves out of public lock files.

That index publishes wheels under local versions (``2.1.2+cu118``). Whoever locked a project against it wrote their
hashes down. This reads every version of every lock file in checkouts of such projects and merges what it finds into
``compat/wheels/``. A hash that two projects agree on is trusted; one that a single project shows is kept and its
file listed under ``confidence_low``; a hash that two projects contradict each other about stops the run.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from provision.errors import ActionFailedError, DataError, ProvisionError
from provision.matrix.cache import load_toml
from provision.matrix.canonical import encode_json, encode_toml
from provision.matrix.load import Matrix
from provision.refresh.requires import reduce_requires

COMPAT = Path(__file__).resolve().parent.parent / "compat"

PACKAGES = ("torch", "torchvision", "torchaudio")
LOCKS = re.compile(r"(\.lock|requirements[^/]*\.txt|pylock[^/]*\.toml|hashes\.nix)$")
ENTRY = re.compile(
    r"((?:test|nightly)/cu\d+/)?((?:torch|torchvision|torchaudio)-[0-9.]+(?:%2B|\+)cu\d+-cp\d+-cp\d+[mt]?-[\w.]*(?:x86_64|aarch64)\.whl)"
    r"[^\n]{0,80}?\n?[^\n]{0,80}?sha256[:=-]\s*([0-9a-f]{64}|[A-Za-z0-9+/]{43}=)"
)
FULL_PINS = 8
"""A lock made for another system than Linux lists fewer CUDA packages than this; the fullest list speaks."""
IS_CUDA = re.compile(r"^(nvidia-|triton$|cuda-)")


@dataclass(slots=True)
class Findings:
    """Hashes and requirements read from locks."""

    hashes: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    requires: dict[tuple[str, str], list[list[str]]] = field(default_factory=dict)
    pins: dict[tuple[str, str], list[list[str]]] = field(default_factory=dict)


def read_locks(folder: Path) -> Iterator[str]:
    """Yield the text of each lock file, of every commit when the folder is a git repository."""
    if not (folder / "HEAD").is_file() and not (folder / ".git").exists():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and LOCKS.search(path.name):
                yield path.read_text(encoding="utf-8", errors="replace")
        return
    git = ["git", "-C", str(folder)]
    listing = subprocess.run(
        [*git, "rev-list", "--objects", "--all", "--missing=allow-any"], capture_output=True, check=False
    )
    if listing.returncode:
        reason = listing.stderr.decode("utf-8", "replace").strip()
        raise ActionFailedError(f"git cannot list {folder}", because=(reason,))
    wanted = [line.split(" ", 1) for line in listing.stdout.decode("utf-8", "replace").splitlines() if " " in line]
    with subprocess.Popen([*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        if reader.stdin is None or reader.stdout is None:
            raise DataError(f"git could not be asked about {folder.name}")
        for object_id, path_text in wanted:
            if not LOCKS.search(path_text):
                continue
            reader.stdin.write(f"{object_id}\n".encode())
            reader.stdin.flush()
            head = reader.stdout.readline().split()
            if len(head) == 3:
                content = reader.stdout.read(int(head[2]))
                reader.stdout.read(1)
                if head[1] == b"blob":
                    yield content.decode("utf-8", "replace")


def collect(project: str, text: str, findings: Findings) -> None:
    """Add what one lock file says.

    Args:
        project: ``owner/name`` of the repository, the unit of independence.
        text: The lock file.
        findings: Where to add.
    """
    # Release candidates carry the version of the release, under another folder.
    found = {
        (urllib.parse.unquote(name), _hex(digest)) for candidate, name, digest in ENTRY.findall(text) if not candidate
    }
    is_news = False
    for name, digest in found:
        findings.hashes[name][digest].add(project)
        package, version = name.split("-")[:2]
        pins = findings.pins.get((package, version), [])
        is_full = len(pins) >= FULL_PINS and all(bound for _, bound, _, _ in pins)
        is_news = is_news or not (is_full or (package, version) in findings.requires)
    if not is_news or "[[package]]" not in text:
        return
    try:
        lock = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    packages = lock.get("package", [])
    forced = {str(canonicalize_name(row["name"])) for row in lock.get("manifest", {}).get("overrides", ())}
    versions: dict[str, set[str]] = defaultdict(set)
    for row in packages:
        versions[row["name"]].add(row.get("version", ""))
    for row in packages:
        key = (row["name"], row.get("version", ""))
        needs = row.get("dependencies")
        if row["name"] in PACKAGES and "+cu" in key[1] and needs:
            if isinstance(needs, dict):
                findings.requires.setdefault(key, _poetry(needs))
            elif isinstance(needs[0], dict):
                findings.pins[key] = _united(findings.pins.get(key, []), _uv(needs, versions, forced))


def _hex(digest: str) -> str:
    return digest if len(digest) == 64 else base64.b64decode(digest).hex()


def _poetry(needs: dict[str, Any]) -> list[list[str]]:
    """Return the rows of poetry's table, which holds the metadata's own bounds and markers."""
    lines = []
    for name, value in needs.items():
        for item in value if isinstance(value, list) else [value]:
            table = item if isinstance(item, dict) else {"version": item}
            if table.get("optional"):
                continue
            bound = str(table.get("version", "*"))
            bound = "" if bound == "*" else bound if bound[0] in "<>=!~" else f"=={bound}"
            # poetry unfolds `!=8.3.*` into the two ranges around it.
            bound = re.sub(r"<([0-9.]+)\.dev0 \|\| >=[0-9.]+\.dev0", r"!=\1.*", bound)
            marker = f" ; {table['markers']}" if table.get("markers") else ""
            lines.append(f"{name}{bound}{marker}")
    return reduce_requires(lines, (), None)


def _united(known: list[list[str]], new: list[list[str]]) -> list[list[str]]:
    """Return the fuller of two lists, its open bounds filled from the other."""
    fuller, other = (new, known) if len(new) > len(known) else (known, new)
    bounds = {name: bound for name, bound, _, _ in other}
    return [[name, bound or bounds.get(name, ""), marker, extra] for name, bound, marker, extra in fuller]


def _uv(needs: list[dict[str, Any]], versions: dict[str, set[str]], forced: set[str]) -> list[list[str]]:
    """Return the CUDA packages of uv's list, pinned to the version the lock holds.

    uv keeps no bounds, but torch pins these exactly. A package is left open when the lock holds two versions of it, or
    when the project forces one whatever torch asks (``override-dependencies``).
    """
    rows = []
    for need in needs:
        name = canonicalize_name(need["name"])
        if not IS_CUDA.match(name):
            continue
        held = {need["version"]} if "version" in need else versions[need["name"]]
        bound = f"=={next(iter(held))}" if len(held) == 1 and name not in forced else ""
        extras = f"[{','.join(sorted(need['extra']))}]" if need.get("extra") else ""
        marker = 'platform_machine == "x86_64"' if "platform_machine == 'x86_64'" in need.get("marker", "") else ""
        row = [f"{name}{extras}", bound, marker, ""]
        if row not in rows:
            rows.append(row)
    return rows


def releases_of(
    package: str, findings: Findings, shipped: Sequence[dict[str, Any]], index_url: str, bundled: set[str]
) -> list[dict[str, Any]]:
    """Return rows of ``releases`` for one package.

    A torch whose CUDA packages no lock shows is left out unless it brings CUDA itself: its needs would be wrong.

    Raises:
        DataError: Two projects contradict each other about a file.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for name in findings.hashes:
        if name.startswith(f"{package}-"):
            files[name.split("-")[1]].append(name)
    public = {row["version"]: row for row in shipped if row["index"] == "pypi"}
    releases = []
    for version in sorted(files, key=Version, reverse=True):
        variant = version.partition("+")[2]
        wheels = []
        for name in sorted(files[version]):
            digests = findings.hashes[name]
            if len(digests) > 1:
                raise DataError(
                    f"{name} has {len(digests)} hashes",
                    because=tuple(f"{digest} in {', '.join(sorted(where))}" for digest, where in digests.items()),
                )
            parse_wheel_filename(name)
            url = f"{index_url.rstrip('/')}/{variant}/{urllib.parse.quote(name)}"
            wheels.append({"file": name, "sha256": next(iter(digests)), "url": url})
        release: dict[str, Any] = {"version": version, "index": "pytorch"}
        twin = public.get(Version(version).public)
        if twin and "requires_python" in twin:
            release["requires_python"] = twin["requires_python"]
        requires = _requires(package, version, findings, twin)
        if package == "torch" and version not in bundled and not any(row[0].startswith("nvidia-") for row in requires):
            print(f"left out, needs unknown: torch {version}", file=sys.stderr)
            continue
        if requires:
            release["requires"] = requires
        release["wheels"] = wheels
        releases.append(release)
    return releases


def _requires(package: str, version: str, findings: Findings, twin: dict[str, Any] | None) -> list[list[str]]:
    stated = (twin or {}).get("requires", [])
    if (package, version) in findings.requires:
        rows = findings.requires[package, version]
        bounded = [row for row in rows if IS_CUDA.match(row[0])]
        return [row for row in rows if row not in bounded] + conditioned(bounded, stated)
    plain = [row for row in stated if not IS_CUDA.match(row[0])]
    if package != "torch":
        return plain
    return plain + conditioned(findings.pins.get((package, version)) or _pins_of_sibling(version, findings), stated)


def conditioned(pins: list[list[str]], stated: list[list[str]]) -> list[list[str]]:
    """Return pins under the markers that the same torch on PyPI states for these packages.

    uv writes markers reduced to the lock's own Pythons and machines, so a bound on Python may be gone.
    """
    markers = {name.partition("[")[0]: marker for name, _, marker, _ in stated}
    return [[name, bound, markers.get(name.partition("[")[0], marker), extra] for name, bound, marker, extra in pins]


def _pins_of_sibling(version: str, findings: Findings) -> list[list[str]]:
    """Return the CUDA rows of another patch of the same minor and variant: patches share their pins."""
    wanted = Version(version)
    for table in (findings.pins, findings.requires):
        for (package, other), rows in sorted(table.items()):
            have = Version(other)
            if package == "torch" and have.release[:2] == wanted.release[:2] and have.local == wanted.local:
                return [row for row in rows if IS_CUDA.match(row[0])]
    return []


def merge(package: str, findings: Findings, index_url: str, sources: Sequence[str], data_dir: Path) -> int:
    """Write one file; return how many wheels of the other index it then holds."""
    path = data_dir / "wheels" / f"{package}.json"
    builds = Matrix(data_dir).torch_builds
    bundled = {f"{row.torch}+{row.variant}" for row in builds if row.is_cuda_bundled and row.index != "pypi"}
    document = json.loads(path.read_text(encoding="utf-8"))
    new = releases_of(package, findings, document["releases"], index_url, bundled)
    kept = [row for row in document["releases"] if row["index"] == "pypi"]
    document["source"] = [*(item for item in document["source"] if not item.startswith("lock-")), *sources]
    low = sorted(
        wheel["file"]
        for row in new
        for wheel in row["wheels"]
        if len(findings.hashes[wheel["file"]][wheel["sha256"]]) < 2
    )
    releases = sorted([*kept, *new], key=lambda row: Version(row["version"]), reverse=True)
    head = {key: value for key, value in document.items() if key not in ("releases", "confidence_low")}
    write(path, encode_json({**head, "confidence_low": low, "releases": releases}))
    return sum(len(row["wheels"]) for row in new)


def register(projects: Sequence[str], dated: str, data_dir: Path) -> list[str]:
    """Write a row per project into ``sources.toml``, dropping earlier ones; return the ids."""
    path = data_dir / "sources.toml"
    document = load_toml(path.read_bytes(), "sources.toml")
    rows = {row["id"]: row for row in document["source"] if not row["id"].startswith("lock-")}
    ids = []
    for project in projects:
        identifier = f"lock-{project.lower().replace('/', '-')}"
        ids.append(identifier)
        rows[identifier] = {
            "id": identifier,
            "title": f"{project.partition('/')[2]}: lock files of all commits",
            "publisher": project.partition("/")[0],
            "url": f"https://github.com/{project}",
            "kind": "repository",
            "retrieved": datetime.date.fromisoformat(dated),
        }
    document["source"] = sorted(rows.values(), key=lambda row: row["id"])
    write(path, encode_toml("sources.toml", document))
    return sorted(ids)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as part:
        part.write(text)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("projects", nargs="+", metavar="OWNER/NAME=FOLDER", help="a git repository or a plain folder")
    parser.add_argument("--index-url", required=True, help="the index's folder that holds the variants' folders")
    parser.add_argument("--dated", required=True, help="day the checkouts were made, ISO")
    parser.add_argument("--data-dir", type=Path, default=COMPAT, help="folder laid out like compat/")
    options = parser.parse_args(arguments)
    findings = Findings()
    try:
        for item in options.projects:
            project, _, folder = item.partition("=")
            for text in read_locks(Path(folder)):
                if "torch" in text and "cu1" in text:
                    collect(project, text, findings)
            print(f"{project}: {len(findings.hashes)} wheels so far", file=sys.stderr)
        used = sorted({name for digests in findings.hashes.values() for names in digests.values() for name in names})
        sources = register(used, options.dated, options.data_dir)
        for package in PACKAGES:
            print(f"{package}: {merge(package, findings, options.index_url, sources, options.data_dir)} wheels")
    except ProvisionError as error:
        print(f"error: {error.message}", *error.because, *error.hints, sep="\n  ", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
