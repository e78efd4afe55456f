"""One test a check, named by its id; what fails says what was seen, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from provision.matrix.load import Matrix
from provision.probe.catalogue import LEVELS
from provision.signals.signal import FAIL, SKIP, UNKNOWN
from provision.verify.engine import Result, way_on
from provision.verify.report.junit import name_test
from provision.verify.testinfra.options import read_option

__all__: list[str] = []


def _make_test(check: str, level: str, title: str) -> Callable[..., None]:
    def test(gpu_results: Mapping[str, Result], request: pytest.FixtureRequest) -> None:
        if check not in gpu_results:
            pytest.skip("the facts in use do not have it")
        result = gpu_results[check]
        outcome = result.outcome
        # The fixture for this warns about one of the two families of JUnit files, which both take it.
        noted = request.node.user_properties
        noted += [("severity", result.severity), ("seen", outcome.seen)]
        if outcome.status == SKIP:
            pytest.skip(outcome.seen)
        if not result.is_failure(read_option(request.config, "--provision-fail-on")):
            if outcome.status in (FAIL, UNKNOWN):
                noted.append(("below", f"{outcome.status}, of severity {result.severity}"))
            return
        lines = [f"{check}: {outcome.seen}"]
        lines += [f"expected: {outcome.expected}"] if outcome.expected else []
        lines += [f"remedy: {result.remedy}", f"more: {way_on(check)}"]
        pytest.fail("\n".join(lines), pytrace=False)

    test.__name__ = name_test(check)
    test.__doc__ = title
    # pytest reads the condition before it sets up any fixture: what was not asked for is not collected either.
    return pytest.mark.skipif(f"is_above({level!r}, config)", reason=f"it belongs to the level {level}")(test)


def is_above(level: str, config: pytest.Config) -> bool:
    """Tell whether a check's level is higher than the one that was asked for."""
    return LEVELS.index(level) > LEVELS.index(read_option(config, "--provision-level"))


for _check in Matrix().checks.values():
    if _check.scope == "host":
        globals()[name_test(_check.id)] = _make_test(_check.id, _check.level, _check.title)
