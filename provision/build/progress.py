"""Follow a build: what a builder prints becomes steps, and steps become lines or a live display.

Two dialects are read. ``BuildKitLog`` reads ``--progress=plain``, which buildx and the BuildKit inside older engines
print alike (``rawjson`` says no more and exists only in newer ones). ``ClassicLog`` reads the JSON stream of the
classic builder.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

StepStatus = Literal["running", "done", "cached", "failed", "canceled"]
Event = Literal["started", "output", "ended"]

_TAIL_LINES = 40
# Colours, cursor movements and other control characters that a tool prints must not reach a terminal or a record.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of a build, filled while the build goes on.

    Attributes:
        name: The step as the builder words it (``[runtime 3/9] RUN …``).
        seconds: How long it took, by the builder's clock where it tells.
        tail: Its last lines of output.
    """

    name: str
    status: StepStatus = "running"
    seconds: float | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))

    @property
    def is_internal(self) -> bool:
        """The builder's own housekeeping, not a line of the Dockerfile."""
        return self.name.startswith("[internal]")


Observer = Callable[[Event, Step, str], None]


def _ignore(_event: Event, _step: Step, _text: str) -> None:
    """Observe nothing."""


class BuildLog:
    """The steps of one build, told to an observer as they happen.

    Args:
        observer: Called with each event, its step, and the line of output (empty for the other events).
    """

    def __init__(self, observer: Observer = _ignore) -> None:
        self.steps: list[Step] = []
        self.error = ""
        self.line: int | None = None
        self._observer = observer

    @property
    def failed_step(self) -> Step | None:
        """The step that broke the build, if one did."""
        return next((step for step in self.steps if step.status == "failed"), None)

    @property
    def text(self) -> str:
        """What is known about a failure: the failed step's output and the builder's own error."""
        step = self.failed_step
        return "\n".join([*(step.tail if step else ()), self.error])

    def _start(self, name: str) -> Step:
        step = Step(name=name)
        self.steps.append(step)
        self._observer("started", step, "")
        return step

    def _output(self, step: Step, text: str) -> None:
        # BuildKit goes on with a step that it had ended, as when it unpacks a base it has looked up.
        step.status = "running"
        plain = _CONTROL.sub("", text)
        if plain:
            step.tail.append(plain)
            self._observer("output", step, plain)

    def _end(self, step: Step, status: StepStatus, seconds: float | None) -> None:
        if step.status != "running" and status != "failed":
            return
        step.status = status
        step.seconds = seconds
        self._observer("ended", step, "")


class BuildKitLog(BuildLog):
    """Read the lines of ``--progress=plain``."""

    _LINE = re.compile(r"#(\d+) (.*)")
    _STAMP = re.compile(r"\d+\.\d+ ?(.*)")
    _DONE = re.compile(r"DONE (\d+\.\d+)s")
    _PLACE = re.compile(r"\S.*:(\d+)")
    _ERROR = re.compile(
        r"(?:ERROR: |error: )?(failed to (?:solve|receive status|build)\b.*|.*rpc error:.*)|ERROR: (.*)"
    )

    def __init__(self, observer: Observer = _ignore) -> None:
        super().__init__(observer)
        self._by_number: dict[str, Step] = {}
        self._is_over = False

    def feed(self, line: str) -> None:
        """Take one line without its line end."""
        match = self._LINE.fullmatch(line)
        if match and not self._is_over:
            self._feed_step(match[1], match[2])
            return
        if line == "------":
            # From here on the builder repeats the failed step for people; a line of it may look like any other.
            self._is_over = True
        self._feed_end(line)

    def _feed_step(self, number: str, rest: str) -> None:
        if number == "0":
            return
        step = self._by_number.get(number)
        if step is None:
            self._by_number[number] = self._start(rest)
            return
        if rest in ("...", step.name):
            return
        done = self._DONE.fullmatch(rest)
        if done:
            self._end(step, "done", float(done[1]))
        elif rest == "CACHED":
            self._end(step, "cached", 0.0)
        elif rest == "CANCELED":
            self._end(step, "canceled", None)
        elif rest.startswith("ERROR: "):
            self.error = rest.removeprefix("ERROR: ")
            self._end(step, "failed", None)
        else:
            stamp = self._STAMP.fullmatch(rest)
            self._output(step, stamp[1] if stamp else rest)

    def _feed_end(self, line: str) -> None:
        place = self._PLACE.fullmatch(line)
        if place and not line.startswith(("ERROR", " ")):
            self.line = int(place[1])
            return
        error = self._ERROR.fullmatch(line)
        if error:
            self.error = error[1] or error[2]


class ClassicLog(BuildLog):
    """Read the objects of the classic builder's stream."""

    _STEP = re.compile(r"Step \d+/\d+ : .*", re.DOTALL)

    def __init__(self, observer: Observer = _ignore) -> None:
        super().__init__(observer)
        self.image_id: str | None = None
        self._since = 0.0
        self._is_cached = False

    def feed(self, event: dict[str, Any]) -> None:
        """Take one object of the stream that is not an output."""
        if "error" in event:
            self.error = str(event["error"]).strip()
            if self.steps and self.steps[-1].status == "running":
                self._close("failed")
        elif isinstance(event.get("aux"), dict) and "ID" in event["aux"]:
            self.image_id = str(event["aux"]["ID"])

    def finish(self) -> None:
        """Close the last step of a build that succeeded."""
        if self.steps and self.steps[-1].status == "running":
            self._close("cached" if self._is_cached else "done")

    def feed_line(self, line: str) -> None:
        """Take one line of the stream's output."""
        if self._STEP.fullmatch(line):
            self.finish()
            self._since = time.monotonic()
            self._is_cached = False
            self._start(line)
        elif line == " ---> Using cache":
            self._is_cached = True
        elif line and self.steps and not line.startswith((" ---> ", "Removing intermediate", "Successfully ")):
            self._output(self.steps[-1], line)

    def _close(self, status: StepStatus) -> None:
        self._end(self.steps[-1], status, round(time.monotonic() - self._since, 1))


class PushLog(BuildLog):
    """Read the lines of a push, which is one step."""

    _DIGEST = re.compile(r".*digest: (sha256:[0-9a-f]{64}) size: .*")

    def __init__(self, tag: str, observer: Observer = _ignore) -> None:
        super().__init__(observer)
        self.digest: str | None = None
        self._since = time.monotonic()
        self._step = self._start(f"push {tag}")

    def feed(self, line: str) -> None:
        """Take one line without its line end."""
        digest = self._DIGEST.fullmatch(line)
        if digest:
            self.digest = digest[1]
        self._output(self._step, line)

    def finish(self, *, is_done: bool) -> None:
        """Close the step."""
        self._end(self._step, "done" if is_done else "failed", round(time.monotonic() - self._since, 1))


def _shorten(name: str, width: int) -> str:
    plain = " ".join(re.sub(r"--mount=\S+ ", "", name).split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _outcome(step: Step) -> str:
    if step.status == "done" and step.seconds is not None:
        return f"{step.seconds:.1f} s"
    return step.status


@contextmanager
def report_progress(stream: TextIO, *, is_quiet: bool = False, is_verbose: bool = False) -> Iterator[Observer]:
    """Show a build while it runs: live on a terminal, one line a finished step elsewhere.

    Args:
        stream: Where people look, the standard error.
        is_quiet: Show nothing.
        is_verbose: Print every line of every step, without a live display.

    Yields:
        The observer for a build log.
    """
    if is_quiet:
        yield _ignore
    elif is_verbose or not stream.isatty():
        yield _line_observer(stream, is_verbose=is_verbose)
    else:
        with _live_observer(stream) as observer:
            yield observer


def _line_observer(stream: TextIO, *, is_verbose: bool) -> Observer:
    def observe(event: Event, step: Step, text: str) -> None:
        if step.is_internal and step.status != "failed":
            return
        if event == "output" and is_verbose:
            stream.write(f"  {text}\n")
        elif event == "ended":
            stream.write(f"build: {_shorten(step.name, 96)}  {_outcome(step)}\n")
        stream.flush()

    return observe


@contextmanager
def _live_observer(stream: TextIO) -> Iterator[Observer]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(file=stream)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as display:
        tasks: dict[int, TaskID] = {}
        width = max(console.width - 14, 20)

        def observe(event: Event, step: Step, text: str) -> None:
            if step.is_internal:
                return
            if id(step) not in tasks:
                tasks[id(step)] = display.add_task(_shorten(step.name, width), total=None)
            if event == "output":
                head = _shorten(step.name, width // 2)
                display.update(tasks[id(step)], description=f"{head}  {_shorten(text, width - len(head) - 2)}")
            elif event == "ended":
                display.remove_task(tasks.pop(id(step)))
                console.print(Text(f"{_shorten(step.name, width)}  {_outcome(step)}"), soft_wrap=True)

        yield observe
