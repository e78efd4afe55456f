"""The index of PyTorch's own wheels: which CUDA builds of a version exist, and that no other does."""

from __future__ import annotations

import datetime
import re
import urllib.parse
from collections.abc import Mapping, Sequence

from packaging.version import Version

from provision.index.page import IndexFile, Page
from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError
from provision.refresh.frameworks.row import origin
from provision.refresh.guard import Alarms
from provision.refresh.index import read_page
from provision.refresh.tags import is_kept, machines_of, platform_tag, pythons_of, version_of
from provision.refresh.wheels import wheel_file

_FILE = "frameworks/torch.toml"
_VARIANT = re.compile(r"cu[0-9]{2,4}")
_SOURCE: Row = {
    "id": "pytorch-wheel-index",
    "title": "PyTorch wheel index: project pages",
    "publisher": "PyTorch",
    "kind": "index",
    "note": "read by `provision data refresh`",
}


def read_builds(client: Client, index_url: str) -> tuple[Page, ...]:
    """Read the pages of torch and its companions.

    Raises:
        UnreachableError: The index does not answer.
    """
    return tuple(read_page(client, index_url, name) for name in ("torch", "torchvision", "torchaudio"))


def builds_of(page: Page) -> dict[str, dict[str, list[IndexFile]]]:
    """Return version → variant → Linux wheels of the CUDA builds on a page."""
    found: dict[str, dict[str, list[IndexFile]]] = {}
    for row in page.files:
        version = version_of(row.file)
        if version is None or not is_kept(row.file) or Version(version).is_prerelease:
            continue
        public, _, variant = version.partition("+")
        if _VARIANT.fullmatch(variant):
            found.setdefault(public, {}).setdefault(variant, []).append(row)
    return found


def update_builds(
    book: Book, pages: Sequence[Page], alarms: Alarms, dated: datetime.date, names: Mapping[str, str]
) -> list[str]:
    """Add the builds that the index lists and the facts lack, and close the list of variants of what was read.

    A page that was read to its end lists every build there is: a version on it gets ``is_variants_complete``.

    Args:
        book: The facts, edited in place.
        pages: Pages of torch, torchvision and torchaudio.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.
        names: Variant → CUDA minor of the builds that are known, to write the dot where it belongs.

    Returns:
        Builds that were added (``2.15.0+cu126``).
    """
    for page in pages:
        for column in page.unseen:
            alarms.raise_("unseen", f"pytorch.{page.name}.{column}", f"its page of {page.name} has a column `{column}`")
    listed = builds_of(pages[0])
    if not listed:
        raise UnreachableError("the PyTorch index lists no CUDA build", because=("its page of torch has none",))
    added: list[str] = []
    for release in book.rows(_FILE, "release"):
        version = release["version"]
        variants = listed.get(version)
        if variants is None:
            continue
        have = set(release.get("variants", ()))
        served = {
            row["variant"] for row in book.rows(_FILE, "build") if row["torch"] == version and row["index"] == "pypi"
        }
        for variant in sorted(have - set(variants) - served):
            alarms.raise_("fewer", f"torch/{version}+{variant}", f"torch {version}+{variant} is not on its index")
        for variant in sorted(set(variants) - have):
            row = _build(book, version, variant, variants[variant], pages, names)
            if row is None:
                continue
            book.insert(_FILE, "build", row)
            unknown = book.find(_FILE, "unknown_build", torch=version, variant=variant)
            if unknown is not None:
                book.rows(_FILE, "unknown_build").remove(unknown)
            added.append(f"{version}+{variant}")
        new = sorted({row["variant"] for row in book.rows(_FILE, "build") if row["torch"] == version}, key=_number)
        if new != release.get("variants") or not release["is_variants_complete"]:
            release["variants"] = new
            _complete(release)
        for page in pages:
            _add_wheels(book, page, version if page.name == "torch" else release.get(page.name), dated, alarms)
    if book.document(_FILE) != book.before(_FILE):
        book.cite(_SOURCE, dated)
        book.date(_FILE, dated)
        book.date("sources.toml", dated)
    return added


def _complete(release: Row) -> None:
    if release["is_variants_complete"]:
        return
    release["is_variants_complete"] = True
    release.pop("note", None)
    evidence = release.setdefault("evidence", {})
    evidence["is_variants_complete"] = origin(["pytorch-wheel-index"], "page of torch, read whole", "measured", "high")


def _build(
    book: Book, version: str, variant: str, files: Sequence[IndexFile], pages: Sequence[Page], names: Mapping[str, str]
) -> Row | None:
    digits = variant.removeprefix("cu")
    cuda = names.get(variant) or f"{digits[:-1]}.{digits[-1]}"
    amd64 = [row.file for row in files if row.file.endswith("x86_64.whl")]
    pythons = pythons_of(amd64, "x86_64")
    if not pythons:
        return None
    release = book.find(_FILE, "release", version=version) or {}
    both = set(pythons)
    for page in pages[1:]:
        partner = release.get(page.name)
        beside = builds_of(page).get(str(partner), {}).get(variant, [])
        both &= set(pythons_of([row.file for row in beside], "x86_64"))
    return {
        "torch": version,
        "variant": variant,
        "cuda": cuda,
        "index": "pytorch",
        "is_listed": True,
        "pythons": list(pythons),
        "pythons_with_companions": [python for python in pythons if python in both],
        "platform_tag": platform_tag(amd64[0]),
        "is_arm64_published": any("aarch64" in machines_of(row.file) for row in files),
        "source": ["pytorch-wheel-index"],
        "where": "file names on the page of torch",
        "status": "measured",
        "confidence": "high",
    }


def _add_wheels(book: Book, page: Page, version: str | None, dated: datetime.date, alarms: Alarms) -> None:
    """Keep address and hash of the wheels of a release's CUDA builds.

    The address is the public one, wherever the page was read: a mirror is the business of whoever has it.
    """
    file = wheel_file(page.name)
    public = str((book.find(_FILE, "setting", id="wheel_index") or {}).get("value", ""))
    if version is None or not book.has(file):
        return
    document = book.document(file)
    for variant, files in sorted(builds_of(page).get(version, {}).items()):
        name = f"{version}+{variant}"
        known = next((row for row in document["releases"] if row["version"] == name), None)
        wheels = {wheel["file"]: wheel for wheel in (known or {}).get("wheels", [])}
        for row in files:
            if row.file in wheels:
                before = wheels[row.file].get("sha256")
                if before and row.sha256 and before != row.sha256:
                    alarms.raise_("hash", row.file, f"{row.file} had the hash {before[:12]}…, now {row.sha256[:12]}…")
                continue
            url = f"{public.format(variant=variant)}/{urllib.parse.quote(row.file)}" if public else None
            wheel = {"file": row.file, "sha256": row.sha256, "size": row.size, "url": url, "uploaded": row.uploaded}
            wheels[row.file] = {key: value for key, value in wheel.items() if value is not None}
        rows = [wheels[key] for key in sorted(wheels)]
        if known is None:
            release: Row = {"version": name, "index": "pytorch", "wheels": rows}
            releases = document["releases"]
            place = next(
                (at for at, row in enumerate(releases) if Version(row["version"]) < Version(name)), len(releases)
            )
            releases.insert(place, release)
        elif known["wheels"] != rows:
            known["wheels"] = rows
        else:
            continue
        if "pytorch-wheel-index" not in document["source"]:
            document["source"].append("pytorch-wheel-index")
        book.cite(_SOURCE, dated)
        book.date("sources.toml", dated)
        book.date(file, dated)


def _number(variant: str) -> int:
    return int(variant.removeprefix("cu"))
