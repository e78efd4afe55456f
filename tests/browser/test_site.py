"""The published site: every link leads somewhere, every page says what it is, weighs little and can be read by all."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import pytest

from provision.matrix.load import Matrix
from tools.site import LANGUAGES, badge, fact_pages

ROOT = Path(__file__).resolve().parents[2]
URL = "https://provision.example/"
KINDS = (
    *("index.html", "start/index.html", "docs/guide/index.html", "docs/rules/C01/index.html", "torch/index.html"),
    *("torch/2.9.1/index.html", "jax/0.4.38/index.html", "tensorflow/2.15.1/index.html", "cuda/12.8.1/index.html"),
    *("driver/580/index.html", "gpu/h100-sxm5-80gb/index.html", "xid/79/index.html", "check/gpu.lost/index.html"),
    *(
        "diagnosis/cudnn.missing/index.html",
        "zh/index.html",
        "zh/torch/2.9.1/index.html",
        "zh/gpu/h100-sxm5-80gb/index.html",
    ),
)
GZIPPED_MAX = 300_000


class Page(HTMLParser):
    """What a page links to and loads, and what it says of itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.language = self.description = self.title = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids.add(found.get("id", ""))
        if tag == "html":
            self.language = found.get("lang", "")
        elif tag == "meta" and found.get("name") == "description":
            self.description = found.get("content", "")
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("script", "img") and "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loads.append(found["href"])
        self._in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
            self._in_title = False


@pytest.fixture(scope="module")
def site(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: the site is not built")
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", folder, "--url", URL, "--page", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return folder


def read(site: Path, name: str) -> Page:
    return Page((site / name).read_text(encoding="utf-8"))


def led_to(site: Path, name: str, link: str) -> Path | None:
    """Return the file that a link of a page leads to; none for another site."""
    address = urljoin(URL + name.removesuffix("index.html"), link)
    if not address.startswith(URL):
        return None
    path = site / unquote(address.removeprefix(URL).partition("#")[0].partition("?")[0])
    return path / "index.html" if path.is_dir() else path


def test_every_link_of_every_page_leads_somewhere(site: Path) -> None:
    dead = []
    for path in site.rglob("*.html"):
        name = path.relative_to(site).as_posix()
        # This one is served under any address, and has whole addresses of its own.
        if name.endswith("404.html"):
            continue
        page = read(site, name)
        for link in {*page.links, *page.loads}:
            led = led_to(site, name, link)
            if led is not None and not led.is_file():
                dead.append((name, link))
    assert dead == []


@pytest.mark.parametrize("name", KINDS)
def test_a_page_says_what_it_is_and_weighs_little(site: Path, name: str) -> None:
    page = read(site, name)
    assert page.title.strip()
    assert page.language.startswith("zh" if name.startswith("zh/") else "en")
    if not name.startswith(("docs/", "start/", "zh/index")):
        assert len(page.description) > 5
    parts = {site / name} | {led for load in page.loads if (led := led_to(site, name, load)) is not None}
    assert sum(len(gzip.compress(part.read_bytes())) for part in parts) <= GZIPPED_MAX
    # Nothing is loaded from elsewhere.
    assert [load for load in page.loads if led_to(site, name, load) is None] == []


def test_search_finds_facts_and_weighs_little(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_bytes()
    assert b"PyTorch 2.9.1" in index
    assert b"Xid 79" in index
    assert b"error[C13]" in index
    assert len(gzip.compress(index)) <= GZIPPED_MAX


def test_every_fact_that_people_search_for_has_a_page_in_the_sitemap(site: Path) -> None:
    matrix = Matrix()
    sitemap = (site / "sitemap.xml").read_text(encoding="utf-8")
    wanted = [f"torch/{row.version}" for row in matrix.torch_releases]
    wanted += [f"cuda/{row.version}" for row in matrix.cuda]
    wanted += [f"driver/{row.branch}" for row in matrix.driver_branches]
    wanted += [f"gpu/{row.id}" for row in matrix.gpus]
    wanted += [f"xid/{code}" for code in matrix.xids]
    wanted += [f"diagnosis/{name}" for name in matrix.diagnoses]
    wanted += [f"check/{name}" for name in matrix.checks]
    wanted += [f"docs/rules/{name}" for name in matrix.audit_rules]
    assert [name for name in wanted if f"<loc>{URL}{name}/</loc>" not in sitemap] == []


def test_pages_of_both_languages_hold_the_same_facts() -> None:
    english, chinese = (fact_pages(Matrix(), language) for language in LANGUAGES)
    numbers = re.compile(r"\d[\w.]*")
    shared = [name for name in chinese if not name.endswith("index.md")]
    assert len(shared) > 300
    differing = [name for name in shared if numbers.findall(english[name]) != numbers.findall(chinese[name])]
    assert differing == []


def test_a_badge_is_whole_xml_whatever_it_says() -> None:
    from xml.etree import ElementTree

    found = ElementTree.fromstring(badge(["torch <2", "cu130"]))
    assert found.attrib["aria-label"] == "torch <2 · cu130"


@pytest.fixture(scope="module")
def browsers(start_browser) -> dict[str, Any]:
    return {"light": start_browser(size=(390, 844)), "dark": start_browser(dark=True)}


@pytest.mark.parametrize("name", KINDS[1:])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_kind_of_page(site: Path, browsers, axe: str, name: str, scheme: str) -> None:
    browser = browsers[scheme]
    browser.get((site / name).as_uri())
    shown = browser.execute_script("return document.body.getAttribute('data-md-color-scheme')")
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    assert [(item["id"], item["nodes"][0]["html"][:200]) for item in found["violations"]] == []
