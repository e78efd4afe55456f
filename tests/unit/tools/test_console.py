"""How examples of documents are run, compared and rewritten."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[3] / "tools" / "console.py"
_SPEC = importlib.util.spec_from_file_location("console_tool", _PATH)
console = importlib.util.module_from_spec(_SPEC)
sys.modules["console_tool"] = console
_SPEC.loader.exec_module(console)


def example(*lines: str) -> str:
    return "\n".join(("Before.", "", "```console", *lines, "```", "", "After.", ""))


def test_a_true_example_stays() -> None:
    text = example("$ printf 'one\\ntwo\\n'", "one", "two")
    assert console.replay(text) == text


def test_a_false_output_is_replaced_by_what_came() -> None:
    assert console.replay(example("$ echo new", "old", "older")) == example("$ echo new", "new")


def test_the_standard_error_comes_behind_the_output() -> None:
    assert console.replay(example("$ echo error >&2; echo out")) == example(
        "$ echo error >&2; echo out", "out", "error"
    )


def test_examples_of_a_document_share_a_folder_that_begins_empty() -> None:
    text = example("$ ls", "$ touch made") + example("$ ls", "made")
    assert console.replay(text) == text


def test_a_command_goes_on_behind_a_backslash() -> None:
    text = example("$ echo one \\", "  two", "one two")
    assert console.replay(text) == text


def test_a_failure_that_is_not_shown_is_refused() -> None:
    with pytest.raises(console.BrokenExampleError, match="ended with 3"):
        console.replay(example("$ (exit 3)"))


def test_a_failure_that_is_shown_stays() -> None:
    text = example("$ (exit 3)", "$ echo $?", "3")
    assert console.replay(text) == text


def test_the_wrong_exit_code_is_put_right() -> None:
    assert console.replay(example("$ (exit 3)", "$ echo $?", "0")) == example("$ (exit 3)", "$ echo $?", "3")


def test_three_dots_stand_for_any_lines() -> None:
    text = example("$ seq 5", "1", "...", "5")
    assert console.replay(text) == text


def test_a_shortened_output_is_shortened_again() -> None:
    assert console.replay(example("$ seq 3 9", "1", "2", "...", "5")) == example("$ seq 3 9", "3", "4", "...", "9")


def test_a_mask_stands_for_any_text_of_a_line_and_is_kept() -> None:
    text = example("$ pwd", "[..]/work")
    assert console.replay(text) == text
    assert console.replay(example("$ pwd; echo new", "[..]/work", "old")) == example(
        "$ pwd; echo new", "[..]/work", "new"
    )


def test_a_path_of_this_machine_is_never_written() -> None:
    with pytest.raises(console.BrokenExampleError, match="path of this machine"):
        console.replay(example("$ pwd"))


def test_output_before_a_command_is_refused() -> None:
    with pytest.raises(console.BrokenExampleError, match="begins with output"):
        console.replay(example("text"))


def test_a_named_fence_becomes_a_file() -> None:
    text = '<!-- file: conf/a.toml -->\n```toml\nkey = "value"\n```\n\n' + example("$ cat conf/a.toml", 'key = "value"')
    assert console.replay(text) == text


def test_a_file_of_the_documentation_is_copied() -> None:
    text = "<!-- copy: traces/stages.csv -->\n" + example("$ sed -n 2p stages.csv", "time_seconds,gpus_busy")
    assert console.replay(text) == text
    with pytest.raises(console.BrokenExampleError, match=r"docs/traces/absent\.csv"):
        console.replay("<!-- copy: traces/absent.csv -->\n")


def test_other_fences_are_not_run() -> None:
    text = "```sh\nexit 1\n```\n"
    assert console.replay(text) == text
    assert not console.has_examples(text)


def test_a_stand_in_becomes_a_bundle_that_the_program_reads() -> None:
    text = "<!-- stand-in: gpu001.tar.gz hgx_h100 -->\n" + example(
        "$ provision verify --from gpu001.tar.gz -q --json | grep '^ \"ok\"'", ' "ok": true,'
    )
    assert console.replay(text) == text


def test_an_unknown_stand_in_is_refused() -> None:
    with pytest.raises(console.BrokenExampleError, match="no_such_machine"):
        console.replay("<!-- stand-in: gpu001.tar.gz no_such_machine -->\n")


def test_settings_of_the_caller_do_not_reach_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_DEBUG", "1")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    text = example("$ env | grep -i -e proxy -e debug", "$ echo $?", "1")
    assert console.replay(text) == text
