"""The page as a file: its bytes, its size, its policy, and hostile facts that stay text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_tables import read_tables

from provision import __version__
from provision.assets import asset_dir
from provision.generate import page as page_module
from provision.generate.page import render_page
from provision.matrix.load import Matrix

HOSTILE = "</script><script>alert('x')</script><!-- <img src=x onerror=alert(1)> & \"quoted\" {version} {style}"


class _Reader(HTMLParser):
    """Collects elements with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts.append((self._inside, data))


def _cut(folder: Path, name: str, table: str, keep: re.Pattern[str]) -> None:
    """Keep the tables of one array whose text matches, so that the resolver has little to do."""
    path = folder / name
    head, *rows = re.split(rf"(?m)^(?=\[\[{table}\]\])", path.read_text(encoding="utf-8"))
    # What follows the last row of this array belongs to the next one.
    kept = []
    for row in rows:
        own, _, rest = row.partition("\n[[" if f"\n[[{table}]]" not in row[3:] else "\0")
        other = f"\n[[{rest}" if rest else ""
        kept.append((own if keep.search(own) else "") + other)
    path.write_text(head + "".join(kept), encoding="utf-8")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few builds, GPUs and systems of the shipped facts, one of each kind with hostile words in it."""
    folder = tmp_path_factory.mktemp("facts") / "compat"
    shutil.copytree(asset_dir("compat"), folder)
    _cut(folder, "frameworks/torch.toml", "build", re.compile(r'(?m)^torch = "2\.1\.2"'))
    _cut(folder, "frameworks/torch.toml", "release", re.compile(r'(?m)^version = "2\.1\.2"'))
    _cut(folder, "frameworks/tensorflow.toml", "release", re.compile(r'(?m)^version = "2\.15\.1"'))
    _cut(folder, "frameworks/jax.toml", "release", re.compile(r'(?m)^version = "0\.4\.38"'))
    _cut(folder, "cuda.toml", "release", re.compile(r'(?m)^version = "1[12]\.[18]\.'))
    _cut(folder, "os.toml", "os", re.compile(r'(?m)^id = "(debian12|ubuntu22\.04)"'))
    for name, pattern in (
        ("gpus.toml", r'(?m)^(name = )"NVIDIA H100 PCIe"$'),
        ("gpus.toml", r'(?m)^(name = )"GeForce RTX 4090"$'),
        ("os.toml", r'(?m)^(name = )"Debian 12"$'),
        ("sources.toml", r'(?m)^(title = )".*"$'),
        ("frameworks/torch.toml", r'(?m)^(where = )".*"$'),
    ):
        path = folder / name
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(pattern, lambda found: found[1] + json.dumps(HOSTILE), text), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def text(facts: Path) -> str:
    return render_page(Matrix(facts), __version__)


def test_same_facts_same_bytes(facts: Path, text: str) -> None:
    assert render_page(Matrix(facts), __version__) == text


def test_it_says_how_far_it_is(facts: Path, text: str) -> None:
    told: list[tuple[str, int, int]] = []
    assert render_page(Matrix(facts), __version__, lambda *values: told.append(values)) == text
    assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
    assert all(done <= total for _, done, total in told)
    assert told[-1][1] == told[-1][2]


def test_it_holds_no_address_to_load(text: str) -> None:
    for tag, attributes in _Reader(text).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form" if "action" in attributes else "")
        assert not attributes.get("src"), (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#"), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)


def test_policy_admits_exactly_the_own_scripts_and_style(text: str) -> None:
    reader = _Reader(text)
    policy = next(
        attributes["content"]
        for tag, attributes in reader.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    scripts = [attributes for tag, attributes in reader.elements if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None, None]
    data, *run = [words for tag, words in reader.texts if tag == "script"]
    json.loads(data)
    (style,) = (words for tag, words in reader.texts if tag == "style")
    for words in (*run, style):
        digest = base64.b64encode(hashlib.sha256(words.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == 3


def test_hostile_facts_stay_data(text: str) -> None:
    assert HOSTILE not in text
    assert "<img" not in text
    reader = _Reader(text)
    assert sum(tag == "script" for tag, _ in reader.elements) == 3
    tables = read_tables(text)
    systems = {row[1]: row[2] for row in tables["systems"]}
    assert systems[HOSTILE]["sources"][0][0] == HOSTILE
    facts = [row["fact"] for row, *_ in next(iter(tables["offers"].values()))["torch"].values() for row in row]
    assert HOSTILE in {fact["where"] for fact in facts}


def test_a_slot_inside_data_is_not_filled() -> None:
    filled = page_module._fill({"dated": "2026-01-02", "x": "{style}{tables}{version}"}, "1.0")
    assert "{style}{tables}{version}" in filled


def test_map_tells_how_each_generation_is_served() -> None:
    found = page_module._map(Matrix())
    column = {name: position for position, name in enumerate(found["generations"])}
    label, served = found["cells"]["2.1"]["11.8"]
    assert label == "torch 2.1.2+cu118"
    assert served[column["Hopper"]] == page_module._SERVED["own"]
    assert served[column["Rubin"]] == page_module._SERVED["none"]
    assert all(len(row[1]) == len(column) for cells in found["cells"].values() for row in cells.values())
