"""The page of `provision matrix --html` in a real browser: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provision import __version__
from provision.generate.page import render_page
from provision.matrix.load import Matrix

WIDE, NARROW = (1440, 1000), (390, 844)


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture(scope="session")
def page(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the shipped facts, written once for all workers: the resolver works for a minute on it."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "matrix.html"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # One that is ended while it writes leaves no half of a page.
            beside = path.with_suffix(".new")
            beside.write_text(render_page(matrix, __version__), encoding="utf-8")
            beside.replace(path)
    return path


@pytest.fixture(scope="session")
def start_browser() -> Iterator[Callable[..., Any]]:
    """Start browsers; where none can be, every test that needs one is skipped and says so."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "no Chromium with its chromedriver is here; `sudo tools/browser.sh` installs them"
        if os.environ.get("PROVISION_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    webdriver = pytest.importorskip("selenium.webdriver")
    started = []

    def start(*, dark: bool = False, size: tuple[int, int] = WIDE) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        for flag in (
            "--headless=new",
            "--no-sandbox",  # the tests may run as root, where Chromium's own sandbox does not work
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            f"--window-size={size[0]},{size[1]}",
        ):
            options.add_argument(flag)
        found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        started.append(found)
        found.set_script_timeout(300)
        found.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        found.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        return found

    yield start
    for found in started:
        found.quit()


@pytest.fixture(scope="session")
def browser(start_browser: Callable[..., Any]) -> Any:
    return start_browser()


@pytest.fixture
def opened(browser: Any, page: Path) -> Callable[..., Any]:
    """Open the page with a question in its address, from a blank page, so that nothing is left of the test before."""

    def visit(fragment: str = "") -> Any:
        browser.get("about:blank")
        browser.get(f"{page.as_uri()}{fragment}")
        return browser

    return visit


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core: where AXE_CORE names it, or in a node_modules above the working folder."""
    named = os.environ.get("AXE_CORE")
    above = [folder / "node_modules" / "axe-core" / "axe.min.js" for folder in (Path.cwd(), *Path.cwd().parents)]
    path = next((path for path in ([Path(named)] if named else above) if path.is_file()), None)
    if path is None:
        pytest.skip("axe-core is not here: `npm install axe-core` in any folder, and AXE_CORE=…/axe.min.js")
    return path.read_text(encoding="utf-8")
