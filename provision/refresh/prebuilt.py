"""Wheels that a project publishes with its releases on GitHub, by the names of their files."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from packaging.version import InvalidVersion, Version

from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError
from provision.refresh.guard import Alarms

__all__ = ["row_of_release", "update_prebuilt"]

_FILE = "prebuilt.toml"
_ADDRESS = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/(.+)")
_WORDS = {
    "cuda": r"(?P<cuda>cu[0-9]{2})",
    "torch": r"(?P<torch>[0-9]+\.[0-9]+)",
    "abi": r"(?P<abi>TRUE|FALSE)",
    "python": r"cp(?P<python>[0-9]+)",
}
_MEASURED = ("cuda", "pythons", "cxx11_abi")


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
    newest: dict[str, Row] = {}
    for row in book.rows(_FILE, "release"):
        before = newest.get(row["package"])
        if _ADDRESS.fullmatch(row["address"]) and (before is None or _of(row["version"]) > _of(before["version"])):
            newest[row["package"]] = row
    notes: list[str] = []
    silent: dict[str, UnreachableError] = {}
    for package, known in newest.items():
        project, tag, file = _ADDRESS.fullmatch(known["address"]).groups()  # type: ignore[union-attr]
        try:
            releases = _releases(client, f"{api_url.rstrip('/')}/repos/{project}/releases?per_page=100")
        except UnreachableError as error:
            silent[package] = error
            continue
        for tag_name, names in releases.items():
            version = re.fullmatch(re.escape(tag).replace(re.escape("{version}"), "(.+)"), tag_name)
            if version is None or _of(version[1]) < _of(known["version"]):
                continue
            found = row_of_release(file, version[1], names)
            if version[1] == known["version"]:
                _compare(known, found, alarms, book, dated)
            elif found is None:
                notes.append(f"{package} {version[1]} was released without wheels of the names known here")
            else:
                head = {"package": package, "version": version[1], "address": known["address"]}
                foot = {"where": f"files of the release {tag_name}", "status": "measured"}
                foot |= {"confidence": "high"}
                row = {**head, **found, "machines": known["machines"], "source": known["source"], **foot}
                book.insert(_FILE, "release", row)
                book.date(_FILE, dated)
    if silent and len(silent) == len(newest):
        raise next(iter(silent.values()))
    return notes, {package: "; ".join((error.message, *error.because)) for package, error in silent.items()}


def row_of_release(file: str, version: str, names: list[str]) -> Row | None:
    """Return what the wheels of a release are for: ``cuda``, ``pythons`` and ``cxx11_abi`` of its row.

    A Python counts for a torch where there is a wheel for each CUDA and each C++ ABI that the release has at all.

    Args:
        file: Name of a wheel, with the words of an address.
        version: The release.
        names: Names of its files.
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
    wheels = [match.groupdict() for name in names if (match := re.fullmatch(pattern, name))]
    if not wheels:
        return None
    cudas = sorted({item["cuda"] for item in wheels}, key=lambda word: -int(word[2:]))
    abis = sorted({item["abi"] for item in wheels})
    have = {(item["torch"], item["python"], item["cuda"], item["abi"]) for item in wheels}
    pythons: dict[str, str] = {}
    for torch in sorted({item["torch"] for item in wheels}, key=Version, reverse=True):
        own = sorted({item["python"] for item in wheels if item["torch"] == torch}, key=lambda word: int(word[1:]))
        whole = [word for word in own if all((torch, word, cuda, abi) in have for cuda in cudas for abi in abis)]
        if whole:
            pythons[torch] = " ".join(f"{word[0]}.{word[1:]}" for word in whole)
    return {
        "cuda": {word[2:4]: word for word in cudas},
        "pythons": pythons,
        "cxx11_abi": [number for number, word in enumerate(("FALSE", "TRUE")) if word in abis],
    }


def _compare(known: Row, found: Row | None, alarms: Alarms, book: Book, dated: datetime.date) -> None:
    label = f"prebuilt/{known['package']}-{known['version']}"
    if found is None:
        alarms.raise_(
            "fewer", label, f"{known['package']} {known['version']} has no wheels of the known names any more"
        )
        return
    for field in _MEASURED:
        if found[field] != known.get(field):
            said = (
                f"{_FILE}: {field} of {known['package']} {known['version']} was {known.get(field)}, now {found[field]}"
            )
            if alarms.raise_("meaning", f"{label}.{field}", said):
                known[field] = found[field]
                book.date(_FILE, dated)


def _releases(client: Client, url: str) -> dict[str, list[str]]:
    """Return the tag of each release → the names of its files."""
    content = client.get(url, accept="application/vnd.github+json").content
    try:
        releases: list[dict[str, Any]] = json.loads(content)
        # The slice refuses what is a mapping.
        return {
            str(item["tag_name"]): [str(asset["name"]) for asset in item["assets"]]
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
