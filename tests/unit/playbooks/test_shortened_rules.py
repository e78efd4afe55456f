"""The rules that the scenario `monitoring` plays in a shorter time: durations are divided, nothing else changes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import playbook_files
import pytest
import yaml

from provision.generate.monitoring import render_alertmanager, render_rules
from provision.matrix.load import Matrix

SCENARIO = playbook_files.PLAYBOOKS.parent / "molecule" / "monitoring"
FACTOR = yaml.safe_load((SCENARIO / "scenario.yml").read_text(encoding="utf-8"))["factor"]
# What a rule waits for or looks back on, written again here so that a forgotten kind is seen.
WINDOW = re.compile(r"\[([0-9a-z]+)\]|offset ([0-9a-z]+)")
WAITING = {"for", "keep_firing_for", "interval", "group_wait", "group_interval", "repeat_interval"}

durations = playbook_files.load_script(SCENARIO / "durations.py")


@pytest.fixture(scope="module", params=["rules", "routes"])
def text(request: pytest.FixtureRequest) -> str:
    matrix = Matrix()
    return render_rules(matrix) if request.param == "rules" else render_alertmanager(matrix)


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf of a document with the way to it."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from walk(part, f"{path}/{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from walk(part, f"{path}/{number}")
    else:
        yield path, value


def test_nothing_but_durations_differs(text: str) -> None:
    shortened = durations.shorten_text(text, FACTOR)
    assert shortened != text
    assert durations.mask(shortened) == durations.mask(text)
    before, after = dict(walk(yaml.safe_load(text))), dict(walk(yaml.safe_load(shortened)))
    assert list(before) == list(after)
    changed = {path for path in before if before[path] != after[path]}
    assert {path.rpartition("/")[2] for path in changed} <= WAITING | {"expr"}


def test_every_duration_is_shorter_by_the_factor(text: str) -> None:
    before = dict(walk(yaml.safe_load(text)))
    after = dict(walk(yaml.safe_load(durations.shorten_text(text, FACTOR))))
    seen = 0
    for path, value in before.items():
        key = path.rpartition("/")[2]
        if key in WAITING:
            pairs = [(value, after[path])]
        elif key == "expr":
            pairs = list(zip(windows(value), windows(after[path]), strict=True))
            assert WINDOW.sub("?", value) == WINDOW.sub("?", after[path])
        else:
            assert after[path] == value
            continue
        seen += len(pairs)
        for long, short in pairs:
            assert durations.milliseconds(long) == FACTOR * durations.milliseconds(short), path
    assert seen > 3


def windows(expression: str) -> list[str]:
    return [next(filter(None, found)) for found in WINDOW.findall(expression)]


def test_words_that_look_like_durations_stay() -> None:
    text = "  - alert: For5m\n    expr: up{job=~\"a[5]m\"} offset 1m > 30\n    summary: 'for: 5m, [10m], offset 1h'\n"
    assert durations.shorten_text(text, 30) == text.replace("offset 1m >", "offset 2s >")


@pytest.mark.parametrize(
    ("duration", "shortened"),
    [("30s", "1s"), ("5m", "10s"), ("1d", "2880s"), ("1h30m", "180s"), ("45s", "1500ms"), ("1s500ms", "50ms")],
)
def test_a_duration_is_divided(duration: str, shortened: str) -> None:
    assert durations.shorten(duration, 30) == shortened


@pytest.mark.parametrize("duration", ["1s", "0s", "soon", "5", "m5"])
def test_a_duration_that_cannot_be_divided_is_refused_by_name(duration: str) -> None:
    with pytest.raises(ValueError, match=re.escape(duration)):
        durations.shorten(duration, 30)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_shortened_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(durations.shorten_text(render_rules(Matrix()), FACTOR), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
