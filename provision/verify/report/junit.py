"""JUnit XML: one suite a target, one case a check, named as the testinfra layer names it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.probe.clean import clean
from provision.records import NOTHING
from provision.signals.signal import FAIL, SKIP, UNKNOWN
from provision.verify.engine import Result, Verdict, way_on

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no document of XML may hold, not even escaped."""


def name_test(check: str) -> str:
    """Return the name of a check as a test: ``gpu.driver.lib_match`` → ``test_gpu_driver_lib_match``."""
    return "test_" + check.replace(".", "_").replace("-", "_")


def write_junit(verdict: Verdict, *, collected: Mapping[str, str] = NOTHING) -> str:
    """Return the document.

    A check that fails is a ``failure``, one whose answer is unknown and must be known an ``error``, and what is below
    the severity that counts is a pass with its text in ``system-out``.
    """
    from xml.etree import ElementTree as ET

    root = ET.Element("testsuites", name="provision verify")
    suites: dict[str, list[Result]] = {}
    for result in verdict.results:
        suites.setdefault(result.target, []).append(result)
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for target, results in suites.items():
        suite = ET.SubElement(root, "testsuite", name=clean(target))
        if collected.get(target):
            suite.set("timestamp", clean(collected[target]))
        counts = {"tests": len(results), "failures": 0, "errors": 0, "skipped": 0}
        for result in results:
            kind = _add_case(suite, result, verdict.fail_on)
            if kind:
                counts[kind] += 1
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
    for name, count in totals.items():
        root.set(name, str(count))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{_FORBIDDEN.sub("", text)}\n'


def _add_case(suite: object, result: Result, fail_on: str) -> str:
    from xml.etree import ElementTree as ET

    case = ET.SubElement(suite, "testcase", classname=clean(result.target), name=name_test(result.check))  # type: ignore[arg-type]
    outcome = result.outcome
    seen = clean(outcome.seen)
    if outcome.status == SKIP:
        ET.SubElement(case, "skipped", message=seen)
        return "skipped"
    if not result.is_failure(fail_on):
        if outcome.status in (FAIL, UNKNOWN):
            ET.SubElement(case, "system-out").text = f"{outcome.status}: {seen}"
        return ""
    tag, counted = ("failure", "failures") if outcome.status == FAIL else ("error", "errors")
    fault = ET.SubElement(case, tag, message=seen, type=result.severity)
    lines = [result.title, f"seen: {seen}"]
    lines += [f"expected: {clean(outcome.expected)}"] if outcome.expected else []
    lines += [f"at: {clean(', '.join(outcome.subjects))}"] if outcome.subjects else []
    lines.append(f"remedy: {clean(result.remedy)}")
    lines += [f"more: {way_on(result.check)}"] if way_on(result.check) else []
    fault.text = "\n".join(lines)
    return counted
