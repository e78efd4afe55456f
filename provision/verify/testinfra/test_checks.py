"""One test a check, named by its id; what fails says what was seen, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from provision.matrix.load import Matrix
from provision.probe.catalogue import LEVELS
from provision.verify.engine import Result
from provision.verify.outcome import FAIL, SKIP, UNKNOWN
from provision.verify.report.junit import name_test

__all__: list[str] = []


def _make_test(check: str, level: str, title: str) -> Callable[..., None]:
    def test(
        gpu_results: Mapping[str, Result], pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
    ) -> None:
        result = gpu_results[check]
        outcome = result.outcome
        record_property("severity", result.severity)
        record_property("seen", outcome.seen)
        if outcome.status == SKIP:
            pytest.skip(outcome.seen)
        if not result.is_failure(pytestconfig.getoption("provision_fail_on")):
            if outcome.status in (FAIL, UNKNOWN):
                record_property("below", f"{outcome.status}, of severity {result.severity}")
            return
        lines = [f"{check}: {outcome.seen}"]
        lines += [f"expected: {outcome.expected}"] if outcome.expected else []
        lines += [f"remedy: {result.remedy}", f"runbook: {result.runbook}"]
        pytest.fail("\n".join(lines), pytrace=False)

    test.__name__ = name_test(check)
    test.__doc__ = title
    return pytest.mark.skipif(
        f"{LEVELS.index(level)} > {LEVELS!r}.index(config.getoption('provision_level'))",
        reason=f"it belongs to the level {level}",
    )(test)


for _check in Matrix().checks.values():
    if _check.scope == "host":
        globals()[name_test(_check.id)] = _make_test(_check.id, _check.level, _check.title)
