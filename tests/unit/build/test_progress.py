from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from provision.build.progress import BuildKitLog, ClassicLog, Observer, PushLog, Step, report_progress

LOGS = Path(__file__).with_name("logs")


def read_buildkit(name: str, observer: Observer = lambda *_: None) -> BuildKitLog:
    log = BuildKitLog(observer)
    for line in (LOGS / f"{name}.txt").read_text().splitlines():
        log.feed(line)
    return log


def read_classic(name: str) -> ClassicLog:
    log = ClassicLog()
    for text in (LOGS / f"{name}.jsonl").read_text().splitlines():
        event = json.loads(text)
        for line in event.get("stream", "").splitlines():
            log.feed_line(line.rstrip())
        log.feed(event)
    return log


def statuses(log: BuildKitLog | ClassicLog) -> dict[str, str]:
    return {step.name: step.status for step in log.steps if not step.is_internal}


def test_interleaved_steps_are_told_apart():
    log = read_buildkit("buildkit-parallel")
    by_name = {step.name: step for step in log.steps}
    first = by_name["[one 2/2] RUN echo first && sleep 0.3 && echo made > /file"]
    second = by_name["[two 2/2] RUN echo second && sleep 0.6 && echo more > /more"]
    assert list(first.tail) == ["first"]
    assert list(second.tail) == ["second"]
    assert (first.status, second.status) == ("done", "done")
    assert first.seconds is not None
    assert second.seconds is not None
    assert first.seconds < second.seconds
    assert len(by_name) == len(log.steps)
    assert log.failed_step is None
    assert log.error == ""


def test_a_second_build_is_cached():
    log = read_buildkit("buildkit-cached")
    assert statuses(log).pop("exporting to image") == "done"
    assert {status for name, status in statuses(log).items() if name.startswith("[")} == {"cached"}


def test_a_failed_step_keeps_its_output_and_its_place():
    log = read_buildkit("buildkit-failed")
    assert log.failed_step is not None
    assert "import nothing_here" in log.failed_step.name
    assert log.failed_step.tail[-1] == "ModuleNotFoundError: No module named 'nothing_here'"
    assert log.line == 4
    assert log.error.endswith("exit code: 1")


def test_control_characters_of_a_tool_go_no_further():
    log = read_buildkit("buildkit-failed")
    assert log.failed_step is not None
    assert log.failed_step.tail[0] == "red"


def test_a_syntax_error_has_a_line_and_no_step():
    log = read_buildkit("buildkit-syntax")
    assert log.failed_step is None
    assert log.line == 2
    assert "unknown instruction: RUNN" in log.error


def test_what_a_step_prints_is_no_event():
    log = BuildKitLog()
    for line in ("#1 [1/1] RUN cat log", "#1 0.1 #2 ERROR: fake", "#1 0.1 DONE 0.0s", "#1 DONE 0.2s"):
        log.feed(line)
    assert statuses(log) == {"[1/1] RUN cat log": "done"}
    assert list(log.steps[0].tail) == ["#2 ERROR: fake", "DONE 0.0s"]


def test_a_step_that_ends_twice_is_told_once_unless_it_went_on():
    events: list[str] = []
    log = BuildKitLog(lambda event, _step, _text: events.append(event))
    for line in ("#1 [base 1/1] FROM a", "#1 DONE 0.0s", "#1 CACHED"):
        log.feed(line)
    assert events == ["started", "ended"]
    for line in ("#1 extracting a", "#1 DONE 3.0s"):
        log.feed(line)
    assert events == ["started", "ended", "output", "ended"]
    assert log.steps[0].seconds == 3.0


@pytest.mark.parametrize("line", ["", "#", "#x", "#1", "# 1 DONE", "\x00", "WARNING: something"])
def test_a_line_that_is_no_event_is_passed_over(line):
    log = BuildKitLog()
    log.feed(line)
    assert log.steps == []
    assert log.error == ""


def test_the_classic_builder_is_read():
    log = read_classic("classic-done")
    log.finish()
    assert log.image_id is not None
    assert log.image_id.startswith("sha256:")
    assert [name.split(" : ")[0] for name in statuses(log)] == ["Step 1/3", "Step 2/3", "Step 3/3"]
    assert statuses(log)["Step 2/3 : RUN echo first"] == "cached"


def test_a_failed_step_of_the_classic_builder_is_the_last():
    log = read_classic("classic-failed")
    assert log.failed_step is log.steps[-1]
    assert list(log.steps[-1].tail) == ["out"]
    assert "non-zero code: 1" in log.error


def test_a_push_ends_with_its_digest():
    digest = f"sha256:{'a' * 64}"
    log = PushLog("mirror.example/image:1")
    for line in ("The push refers to repository [mirror.example/image]", "1: Pushed", f"1: digest: {digest} size: 735"):
        log.feed(line)
    log.finish(is_done=True)
    assert log.digest == digest
    assert [(step.name, step.status) for step in log.steps] == [("push mirror.example/image:1", "done")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_every_finished_step_is_reported(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = kind()
    with report_progress(stream) as observer:
        read_buildkit("buildkit-failed", observer)
    text = stream.getvalue()
    assert "[3/3] RUN" in text
    assert "failed" in text
    assert "[internal]" not in text
    assert "\x1b" not in text or kind is Terminal


def test_quiet_is_quiet():
    stream = io.StringIO()
    with report_progress(stream, is_quiet=True) as observer:
        read_buildkit("buildkit-failed", observer)
    assert stream.getvalue() == ""


def test_verbose_shows_what_steps_print():
    stream = Terminal()
    with report_progress(stream, is_verbose=True) as observer:
        read_buildkit("buildkit-failed", observer)
    assert "  ModuleNotFoundError: No module named 'nothing_here'\n" in stream.getvalue()


def test_a_live_display_shows_markup_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with report_progress(stream) as observer:
        step = Step(name="[1/1] RUN echo [/red] [bold]")
        observer("started", step, "")
        observer("output", step, "[/nothing]")
        step.status = "done"
        observer("ended", step, "")
        observer("output", step, "more")
        observer("ended", step, "")
    assert "RUN echo [/red] [bold]" in stream.getvalue()
