"""What every test of a signal has: a check that breaks is shown, and not answered for."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _show_broken_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_DEBUG", "1")
