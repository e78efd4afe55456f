"""What every test may ask for: the golden cases, and whether to write their files again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest

# No test depends on how long it takes: a busy machine is not a fault. What a change is judged by is the same in each
# run; new examples are looked for with `--hypothesis-profile=explore`.
hypothesis.settings.register_profile("provision", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("provision")


def _load(name: str):
    """Import a file of this folder by its path: tests are no package, and are run from any folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


golden_cases = _load("golden_cases")
_load("alert_cases")
_load("fake_metadata")
_load("fake_prometheus")
_load("fleet_exporter")
_load("fleet_prometheus")
_load("machines")
_load("upstream")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden again instead of comparing")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_name" in metafunc.fixturenames:
        metafunc.parametrize("golden_name", sorted(golden_cases.CASES))


@pytest.fixture
def golden_case(golden_name: str):
    """One stack and the options to write it down with."""
    return golden_cases.CASES[golden_name]


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether the golden files are to be written again."""
    return request.config.getoption("--update-golden")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Captures of real tools that lie beside the checkout of some machines; the project carries its own fixtures."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "reference" / "verify" / "samples"
    if not folder.is_dir():
        pytest.skip("the captures of other projects are not beside this checkout")
    return folder
