"""The options alone, so that pytest can know them before it has seen a single test, and nothing else happens.

Named as an entry point of pytest under its own module's name, it makes ``--provision-lock`` and the others known to
``pytest --pyargs provision.verify.testinfra``; whoever loads the plugin with ``-p`` gets it along with that. The plugin
imports it before pytest does, which is no matter (PYTEST_DONT_REWRITE), as nothing is asserted here.
"""

from __future__ import annotations

from typing import Any

import pytest

_LEVELS = ("quick", "standard", "deep")
_SEVERITIES = ("critical", "high", "medium", "low")

OPTIONS: dict[str, dict[str, Any]] = {
    "--provision-lock": {"metavar": "FILE", "help": "provision.lock whose promises the hosts must keep"},
    "--provision-expect": {"metavar": "FILE", "help": "TOML file with what else is expected of the hosts"},
    "--provision-gpus": {
        "metavar": "N",
        "type": int,
        "help": "GPUs a host must have; 0 skips what needs one",
    },
    "--provision-level": {
        "default": "quick",
        "choices": _LEVELS,
        "help": "read only, let the GPUs work, or let them work long",
    },
    "--provision-fail-on": {
        "default": "medium",
        "choices": _SEVERITIES,
        "help": "lowest severity whose failures fail a test",
    },
    "--provision-python": {"metavar": "PATH", "help": "interpreter on the hosts that has the frameworks"},
    "--provision-data-dir": {"metavar": "DIR", "help": "facts to use instead of the shipped ones"},
}
"""Flag → how it is read; the same flags as those of ``provision verify``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what ``provision verify`` takes as flags."""
    group = parser.getgroup("provision")
    for flag, settings in OPTIONS.items():
        group.addoption(flag, **settings)


def read_option(config: pytest.Config, flag: str) -> Any:
    """Return the value of a flag, its default where pytest had read its command line before it knew the flag."""
    return config.getoption(flag.removeprefix("--").replace("-", "_"), OPTIONS[flag].get("default"))
