"""Programs around programs."""

from __future__ import annotations

import pytest

from provision.audit.model import Span
from provision.audit.shell import Text, parse_shell
from provision.audit.wrappers import find_script, reads_input


def programs(script: str) -> list[list[str | None]]:
    place = Span(file="f", start=0, end=0)
    found = parse_shell(Text.of(script, 0, len(script)), "f", {}, instruction="RUN", instruction_span=place)
    return [[word.text for word in item.command.words] for item in found]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["bash", "-c", "a"], 2),
        (["/bin/sh", "-ec", "a"], 2),
        (["bash", "-euxo", "pipefail", "-c", "a"], 4),
        (["bash", "-euxoc", "pipefail", "a"], 3),
        (["bash", "--rcfile", "x", "--login", "+o", "posix", "-c", "a"], 7),
        (["su", "-", "app", "-c", "a"], 4),
        (["runuser", "-c", "a", "app"], 2),
        (["bash", "file", "-c", "a"], None),
        (["bash", "-c"], None),
        (["cc", "-c", "a"], None),
        (["bash", None, "-c", "a"], None),
        ([], None),
    ],
)
def test_the_script_of_a_shell_is_found(words: list[str | None], script: int | None) -> None:
    assert find_script(words) == script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bash"], True),
        (["bash", "-euo", "pipefail"], True),
        (["bash", "file"], False),
        (["bash", "-s", "word"], False),
        (["bash", "-c", "a"], False),
    ],
)
def test_a_shell_without_a_script_runs_its_input(words: list[str | None], *, expected: bool) -> None:
    assert reads_input(words) is expected


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "sudo -H {}",
        "env A=b {}",
        "timeout -k 5 60 {}",
        "gosu app {}",
        "conda run -n e {}",
        "poetry run {}",
        "exec nice -n 5 {}",
        "dumb-init -- {}",
        "runuser -u app -- {}",
        "doas -u app {}",
    ],
)
@pytest.mark.parametrize("shell", ["bash -c 'a b'", "bash -eo pipefail -c 'a b'", 'sh -lc "a b"'])
def test_a_script_is_read_behind_other_programs(around: str, shell: str) -> None:
    assert programs(around.format(shell))[-1] == ["a", "b"]


@pytest.mark.parametrize("head", ["bash", "bash -euo pipefail", "sudo bash"])
def test_a_document_is_read_as_the_script_of_its_shell(head: str) -> None:
    assert programs(f"{head} <<'EOF'\na b\nEOF\n")[-1] == ["a", "b"]
