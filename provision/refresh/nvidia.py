"""CUDA toolkits from NVIDIA's own manifests (``redistrib_*.json``)."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from provision.records import record
from provision.refresh.book import Book, Row
from provision.refresh.client import Answer, Client, UnreachableError
from provision.refresh.frameworks.row import origin
from provision.refresh.guard import Alarms
from provision.versions import branch_of, parse

_FILE = "cuda.toml"
_NAME = re.compile(r"redistrib_([0-9]+\.[0-9]+(?:\.[0-9]+)?)\.json")
_HEAD = frozenset({"release_date", "release_label", "release_product"})
_PART = frozenset(
    [
        "name",
        "license",
        "license_path",
        "version",
        "cuda_variant",
        "linux-x86_64",
        "linux-sbsa",
        "linux-aarch64",
        "linux-ppc64le",
        "linux-all",
        "windows-x86_64",
        "windows-aarch64",
        "source",
    ]
)
_DRIVER = "nvidia_driver"


@record
class Manifest:
    """One manifest: the toolkit, its day, the driver it came with, and the columns nobody here has read."""

    version: str
    released: str
    driver: str | None = None
    unseen: tuple[str, ...] = ()


def list_manifests(answer: Answer, asked: str) -> dict[str, str]:
    """Return toolkit → address of its manifest, from the listing of their folder.

    Raises:
        UnreachableError: The page lists none.
    """
    import urllib.parse

    text = answer.content.decode("utf-8", "replace")
    names = dict.fromkeys(found[0] for found in _NAME.finditer(text))
    if not names:
        raise UnreachableError(f"{asked} lists no manifest", because=("no link to a redistrib_*.json is in it",))
    base = answer.url if answer.url.endswith("/") else f"{answer.url}/"
    return {found[1]: urllib.parse.urljoin(base, name) for name in names if (found := _NAME.fullmatch(name))}


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Read a manifest.

    Raises:
        UnreachableError: It is none.
    """
    try:
        document = json.loads(content)
        parts: dict[str, dict[str, Any]] = {key: value for key, value in document.items() if isinstance(value, dict)}
        label, released = document["release_label"], document["release_date"]
        datetime.date.fromisoformat(released)
        parse(label)
        versions = {name: str(part["version"]) for name, part in parts.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreachableError(
            f"{where} is not a manifest of a toolkit", because=(f"{type(error).__name__}: {error}",)
        ) from error
    if not parts:
        raise UnreachableError(f"{where} is not a manifest of a toolkit", because=("it lists no component",))
    columns = {key for key, value in document.items() if not isinstance(value, dict) and key not in _HEAD}
    for part in parts.values():
        columns |= {f"component.{key}" for key in part if key not in _PART}
    driver = versions.get(_DRIVER)
    return Manifest(version=label, released=released, driver=driver, unseen=tuple(sorted(columns)))


def toolkit_row(book: Book, manifest: Manifest) -> Row | None:
    """Return the row of a toolkit; ``None`` where the facts have no driver floor for its major."""
    floors = book.find(_FILE, "setting", id="minor_compatibility_floors") or {}
    major = manifest.version.partition(".")[0]
    floor = floors.get("entries", {}).get(major)
    if floor is None:
        return None
    row: Row = {
        "version": manifest.version,
        "released": datetime.date.fromisoformat(manifest.released),
        "bundled_driver": manifest.driver,
        "minimum_driver": floor,
        "source": ["nvidia-redistrib"],
        "where": f"redistrib_{manifest.version}.json",
        "status": "stated",
        "confidence": "high",
    }
    where = f"minor_compatibility_floors, major {major}"
    row["evidence"] = {"minimum_driver": origin(floors["source"], where, "derived", "high")}
    if manifest.driver is not None:
        branch = branch_of(manifest.driver)
        if book.find("drivers.toml", "branch", branch=branch) is not None:
            row["matching_driver_branch"] = branch
            row["evidence"]["matching_driver_branch"] = origin(["nvidia-redistrib"], _DRIVER, "derived", "high")
    return row


def update_toolkits(
    book: Book, client: Client, url: str, alarms: Alarms, dated: datetime.date
) -> tuple[list[str], list[str]]:
    """Add the toolkits that the folder of manifests has and the facts lack; compare the driver of the newest known.

    Args:
        book: The facts, edited in place.
        client: Who asks.
        url: Folder with the manifests.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.

    Returns:
        Versions that were added, and notes.
    """
    listed = list_manifests(client.get(url, bytes_max=4 * 1024 * 1024), url)
    rows = {row["version"]: row for row in book.rows(_FILE, "release")}
    added: list[str] = []
    notes: list[str] = []
    newest = max(rows, key=parse, default=None)
    for version in sorted(listed, key=parse, reverse=True):
        if version != newest and (version in rows or (newest is not None and parse(version) < parse(newest))):
            continue
        manifest = parse_manifest(client.get(listed[version], bytes_max=4 * 1024 * 1024).content, listed[version])
        for column in manifest.unseen:
            alarms.raise_("unseen", f"redistrib.{column}", f"{listed[version]} has a column `{column}`")
        if manifest.version != version:
            alarms.raise_("meaning", f"redistrib/{version}", f"{listed[version]} says that it is {manifest.version}")
            continue
        if version in rows:
            _compare(rows[version], manifest, alarms)
            continue
        row = toolkit_row(book, manifest)
        if row is None:
            notes.append(f"CUDA {version} is new, and the facts know no driver floor for its major")
            continue
        book.insert(_FILE, "release", row)
        added.append(version)
    if added:
        book.cite(_SOURCE, dated)
        book.date(_FILE, dated)
        book.date("sources.toml", dated)
    return added, notes


_SOURCE: Row = {
    "id": "nvidia-redistrib",
    "title": "CUDA redistributables: manifests of the toolkits",
    "publisher": "NVIDIA",
    "kind": "index",
    "edition": "redistrib_*.json",
}


def _compare(row: Row, manifest: Manifest, alarms: Alarms) -> None:
    known = str(row.get("released", ""))
    for key, before, now in (
        ("released", known, manifest.released),
        ("driver", row.get("bundled_driver"), manifest.driver),
    ):
        if before and now and before != now[: len(before)]:
            said = f"CUDA {row['version']}: `{key}` was {before}, the manifest says {now}"
            alarms.raise_("meaning", f"cuda/{row['version']}.{key}", said)
