"""What every test may ask for: the golden cases, and whether to write their files again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def _load_cases():
    """Import golden_cases.py by its path: tests are no package, and are run from any folder."""
    spec = importlib.util.spec_from_file_location("golden_cases", Path(__file__).with_name("golden_cases.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["golden_cases"] = module
    spec.loader.exec_module(module)
    return module


golden_cases = _load_cases()


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
