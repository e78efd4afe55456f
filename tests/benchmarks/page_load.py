"""Time the page of `provision matrix --html` from disk in Chromium without a window, against an empty page.

    python tests/benchmarks/page_load.py [--runs N] [--page FILE] [--json FILE]

The browser's own clock counts, from the start of the navigation. The two pages are opened in turn in one browser, with
its full speed and with a processor that is four times slower, as a phone's is; the first opening stands by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

EMPTY = '<!doctype html><html lang="en"><meta charset="utf-8"><title>empty</title><p>empty</p></html>\n'
SLOWDOWN = 4
# `loaded` comes after the page's script, which fills the form and answers the first question before it ends.
MOMENTS = """
const done = arguments[0];
const tell = () => {
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  const loaded = performance.getEntriesByType('navigation')[0].loadEventEnd;
  if (paint && loaded) done({painted: paint.startTime, loaded}); else setTimeout(tell, 10);
};
tell();
"""


def start() -> Any:
    """Start Chromium without a window."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        sys.exit("no Chromium with its chromedriver is here; `sudo tools/browser.sh` installs them")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1440,1000",
    ):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def load(browser: Any, page: Path) -> dict[str, float]:
    """Open a page from a blank one; return milliseconds until it was painted first and until it was loaded."""
    browser.get("about:blank")
    browser.get(page.as_uri())
    moments: dict[str, float] = browser.execute_async_script(MOMENTS)
    return moments


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--page", type=Path, help="a page that was written before; else it is written now")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = options.page
        if page is None:
            from provision import __version__
            from provision.generate.page import render_page
            from provision.matrix.load import Matrix

            page = Path(folder) / "matrix.html"
            page.write_text(render_page(Matrix(), __version__), encoding="utf-8")
        empty = Path(folder) / "empty.html"
        empty.write_text(EMPTY, encoding="utf-8")
        browser = start()
        try:
            browser.set_script_timeout(60)
            figures: dict[str, dict[str, float]] = {"first opening": load(browser, page.resolve())}
            for name, rate in (("", 1), (f", {SLOWDOWN} times slower", SLOWDOWN)):
                browser.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": rate})
                pairs = [(load(browser, empty), load(browser, page.resolve())) for _ in range(options.runs)]
                for label, rows in zip(("empty page", "page"), zip(*pairs, strict=True), strict=True):
                    figures[label + name] = {
                        f"{key} {word}": count(row[key] for row in rows)
                        for key in ("painted", "loaded")
                        for word, count in (("min", min), ("median", median))
                    }
        finally:
            browser.quit()
        size = page.stat().st_size
    print(f"{size / 1e6:.2f} MB, {options.runs} runs, load {os.getloadavg()[0]:.1f}; milliseconds")
    for name, row in figures.items():
        print(f"{name:28}" + "".join(f"   {key} {value:.0f}" for key, value in row.items()))
    if options.json is not None:
        options.json.write_text(json.dumps({"bytes": size, "milliseconds": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
