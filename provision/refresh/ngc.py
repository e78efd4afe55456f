"""NVIDIA's framework images, a row a month, from the table that the Triton Inference Server keeps of their base."""

from __future__ import annotations

import datetime
import re

from provision.refresh.book import Book, Row
from provision.refresh.client import Client, UnreachableError
from provision.refresh.guard import Alarms
from provision.versions import parse

_FILE = "ngc.toml"
_HEADING = "vllm-python-py3"
_COLUMNS = {"release": "triton release version", "python": "python version", "cuda": "cuda version"}
_COLUMNS |= {"driver": "cuda driver version"}
_SYSTEM = "ubuntu"
"""What every image is built on: the release whose own Python the table names."""
_MEASURED = ("cuda", "python", "os", "driver")


def read_table(text: str) -> list[dict[str, str]]:
    """Return the rows of the table, newest first, by the words that the facts have for its columns.

    Args:
        text: The page, in Markdown.

    Raises:
        UnreachableError: The table is not there, or lacks a column.
    """
    _, found, rest = text.partition(f"## Container Name: {_HEADING}")
    lines = rest.splitlines()[1:]
    table = [line.strip() for line in lines[: next((n for n, line in enumerate(lines) if line.startswith("#")), None)]]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    if not found or len(cells) < 3:
        raise UnreachableError("the table of images is not on its page", because=(f"no table stands under {_HEADING}",))
    head = [cell.lower() for cell in cells[0]]
    if lacking := [name for name in _COLUMNS.values() if name not in head]:
        raise UnreachableError("the table of images has other columns", because=(f"it lacks {', '.join(lacking)}",))
    places = {field: head.index(name) for field, name in _COLUMNS.items()}
    rows = []
    for line in cells[2:]:
        said = {field: line[place] if place < len(line) else "" for field, place in places.items()}
        python = re.match(r"Python ([0-9]+\.[0-9]+)", said["python"])
        cuda = re.match(r"[0-9]+\.[0-9]+\.[0-9]+", said["cuda"])
        is_driver = re.fullmatch(r"[0-9]{3}(\.[0-9]+)+", said["driver"])
        if python and cuda and is_driver and re.fullmatch(r"[0-9]{2}\.[0-9]{2}", said["release"]):
            rows.append({**said, "python": python[1], "cuda": cuda[0]})
    return rows


def update_images(book: Book, client: Client, url: str, alarms: Alarms, dated: datetime.date) -> list[str]:
    """Add the months that the table has and the facts lack, and hold the newest known one against it.

    Args:
        book: The facts, edited in place.
        client: Who asks.
        url: The page.
        alarms: Takes what must stop the refresh.
        dated: The day of new facts.

    Returns:
        What a person may want to know.

    Raises:
        UnreachableError: The page does not answer, or is another.
    """
    listed = read_table(client.get(url).content.decode("utf-8", "replace"))
    if not listed:
        raise UnreachableError("the table of images lists none", because=(f"no row of {url} can be read",))
    notes: list[str] = []
    known = {row["release"]: row for row in book.rows(_FILE, "release")}
    newest = max(known, key=parse)
    rows = book.rows("os.toml", "os")
    systems = {str(row.get("python")): str(row["id"]) for row in rows if str(row["id"]).startswith(_SYSTEM)}
    for said in listed:
        system = systems.get(said["python"])
        if said["release"] in known:
            row = known[said["release"]]
            now = {**said, "os": system}
            differing = [field for field in _MEASURED if now[field] is not None and now[field] != row[field]]
            for field in differing if said["release"] == newest else ():
                text = f"{_FILE}: {field} of {newest} was {row[field]}, now reads {now[field]}"
                if alarms.raise_("meaning", f"ngc/{newest}.{field}", text):
                    row[field] = now[field]
                    book.date(_FILE, dated)
        elif system is None:
            notes.append(f"{said['release']} of NVIDIA's images has Python {said['python']}, of no Ubuntu known here")
        else:
            book.insert(_FILE, "release", _row(said, system))
            book.date(_FILE, dated)
    if newest not in {said["release"] for said in listed}:
        alarms.raise_("fewer", f"ngc/{newest}", f"{newest} is no longer in the table of images")
    return notes


def _row(said: dict[str, str], system: str) -> Row:
    return {
        "release": said["release"],
        "cuda": said["cuda"],
        "python": said["python"],
        "os": system,
        "driver": said["driver"],
        "source": ["triton-server-compatibility"],
        "where": f"table {_HEADING}",
        "status": "derived",
        "confidence": "high",
        "because": ["all framework images of a month stand on one base, whose Python is that of its Ubuntu"],
    }
