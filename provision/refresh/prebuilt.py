"""Wheels that a project publishes with its releases on GitHub, by the names of their files."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError
from provision.refresh.guard import Alarms
from provision.versions import minor_of

_FILE = "prebuilt.toml"
_ADDRESS = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/(.+)")
_WORDS = {
    "cuda": r"(?P<cuda>cu[0-9]{2,3})",
    "torch": r"(?P<torch>[0-9]+\.[0-9]+)",
    "abi": r"(?P<abi>TRUE|FALSE)",
    "python": r"cp(?P<python>[0-9]+)",
}
_MEASURED = ("cuda", "builds", "pythons", "cxx11_abi", "sha256")

_Builds = set[tuple[str, str, int]]
"""Minor of PyTorch, major of CUDA and flag of the C++ ABI, of each of its builds."""


def update_prebuilt(
    book: Book, client: Client, api_url: str, alarms: Alarms, dated: datetime.date
) -> tuple[list[str], dict[str, str]]:
    """Add the releases that came after the newest known, and hold that against its files.

    Rows whose address is not one of GitHub's releases are left as they are.

    Args:
        book: The facts, edited in place.
        client: Who asks.
        api_url: Root of GitHub's interface.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.

    Returns:
        What a person may want to know, and package → why its project was not read.

    Raises:
        UnreachableError: No project answers.
    """
    newest: dict[tuple[str, ...], Row] = {}
    for row in book.rows(_FILE, "release"):
        kind = (row["package"], *row["machines"])
        before, address = newest.get(kind), _ADDRESS.fullmatch(row["address"])
        # Some releases stand under the tag of another one.
        is_read = address is not None and "{version}" in address[2]
        if is_read and (before is None or _of(row["version"]) > _of(before["version"])):
            newest[kind] = row
    builds = {
        (minor_of(row["torch"]), row["cuda"].partition(".")[0], row["cxx11_abi"])
        for row in book.rows("frameworks/torch.toml", "build")
        if "cxx11_abi" in row
    }
    notes: dict[str, None] = {}
    listed: dict[str, dict[str, dict[str, str]]] = {}
    silent: dict[str, UnreachableError] = {}
    for known in newest.values():
        package = known["package"]
        project, tag, file = _ADDRESS.fullmatch(known["address"]).groups()  # type: ignore[union-attr]
        if package in silent:
            continue
        try:
            if project not in listed:
                listed[project] = _releases(client, f"{api_url.rstrip('/')}/repos/{project}/releases?per_page=100")
        except UnreachableError as error:
            silent[package] = error
            continue
        for tag_name, names in listed[project].items():
            version = re.fullmatch(re.escape(tag).replace(re.escape("{version}"), "(.+)"), tag_name)
            if version is None or _of(version[1]) < _of(known["version"]):
                continue
            found = row_of_release(file.replace("{machine}", known["machines"][0]), version[1], names, builds)
            if version[1] == known["version"]:
                _compare(known, found, alarms, book, dated)
            elif found is None:
                notes[f"{package} {version[1]} was released without wheels of the names known here"] = None
            else:
                head = {"package": package, "version": version[1], "address": known["address"]}
                foot = {"where": f"files of the release {tag_name}", "status": "measured"}
                foot |= {"confidence": "high"}
                row = {**head, **found, "machines": known["machines"], "source": known["source"], **foot}
                book.insert(_FILE, "release", row)
                book.date(_FILE, dated)
    if silent and len(silent) == len({row["package"] for row in newest.values()}):
        raise next(iter(silent.values()))
    return list(notes), {package: "; ".join((error.message, *error.because)) for package, error in silent.items()}


def row_of_release(file: str, version: str, names: Mapping[str, str], builds: _Builds) -> Row | None:
    """Return what the wheels of a release are for: its row without the head.

    A Python counts for a torch where there is a wheel for each CUDA and each C++ ABI that the release has for that
    torch at all. What no build of PyTorch can take is left out: wheels for NVIDIA's images are named in the same way.

    Args:
        file: Name of a wheel, with the words of an address.
        version: The release.
        names: Names of its files, with their hashes, or nothing.
        builds: Those of PyTorch.
    """
    parts = re.split(r"\{(\w+)\}", file.replace("{version}", version))
    seen: set[str] = set()
    pattern = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            pattern += re.escape(part)
        else:
            pattern += f"(?:cp)?(?P={part})" if part in seen else _WORDS[part]
            seen.add(part)
    wheels = {name: match.groupdict() for name in sorted(names) if (match := re.fullmatch(pattern, name))}
    wheels = {
        name: item
        for name, item in wheels.items()
        if (item["torch"], item["cuda"][2:4], ("FALSE", "TRUE").index(item["abi"])) in builds
    }
    if not wheels:
        return None
    every = {word for item in wheels.values() for word in (item["cuda"], item["abi"])}
    cudas = sorted((word for word in every if word.startswith("cu")), key=lambda word: -int(word[2:]))
    own: dict[str, str] = {}
    pythons: dict[str, str] = {}
    for torch in sorted({item["torch"] for item in wheels.values()}, key=Version, reverse=True):
        of_torch = [item for item in wheels.values() if item["torch"] == torch]
        kinds = {(item["cuda"], item["abi"]) for item in of_torch}
        have = {(item["python"], item["cuda"], item["abi"]) for item in of_torch}
        found = sorted({item["python"] for item in of_torch}, key=lambda word: int(word[1:]))
        whole = [word for word in found if all((word, *kind) in have for kind in kinds)]
        if whole:
            pythons[torch] = " ".join(f"{word[0]}.{word[1:]}" for word in whole)
            lacking = set(cudas) - {cuda for cuda, _ in kinds}
            if any(minor == torch and major in {word[2:4] for word in lacking} for minor, major, _ in builds):
                own[torch] = " ".join(word for word in reversed(cudas) if word not in lacking)
    if not pythons:
        return None
    return {
        "cuda": {word[2:4]: word for word in cudas},
        **({"builds": own} if own else {}),
        "pythons": pythons,
        "cxx11_abi": [number for number, word in enumerate(("FALSE", "TRUE")) if word in every],
        **({"sha256": hashes} if (hashes := {name: names[name] for name in wheels if names[name]}) else {}),
    }


def _compare(known: Row, found: Row | None, alarms: Alarms, book: Book, dated: datetime.date) -> None:
    label = f"prebuilt/{known['package']}-{known['version']}"
    if found is None:
        alarms.raise_(
            "fewer", label, f"{known['package']} {known['version']} has no wheels of the known names any more"
        )
        return
    for field in _MEASURED:
        old, new = known.get(field), found.get(field)
        if new == old or (field == "sha256" and new is None):
            continue
        said = f"{_FILE}: {field} of {known['package']} {known['version']} was {old}, now {new}"
        if _is_growth(old, new) or alarms.raise_("meaning", f"{label}.{field}", said):
            known[field] = new
            book.date(_FILE, dated)


def _is_growth(old: Any, new: Any) -> bool:
    """Tell whether a field has only gained: files are added to a release when a newer PyTorch has come."""
    if old is None or isinstance(old, list):
        return old is None or set(old) <= set(new or ())
    return all(set(value.split()) <= set((new or {}).get(name, "").split()) for name, value in old.items())


def _releases(client: Client, url: str) -> dict[str, dict[str, str]]:
    """Return the tag of each release → the names of its files → their SHA-256, empty where GitHub has none."""
    content = client.get(url, accept="application/vnd.github+json").content
    try:
        releases: list[dict[str, Any]] = json.loads(content)
        # The slice refuses what is a mapping.
        return {
            str(item["tag_name"]): {
                str(asset["name"]): str(asset.get("digest") or "").removeprefix("sha256:") for asset in item["assets"]
            }
            for item in releases[0:]
            if not item["draft"] and not item["prerelease"] and isinstance(item["assets"], list) and item["tag_name"]
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise UnreachableError(f"{url} is not a list of releases", because=(said,)) from error


def _of(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")
