"""What tools/docs.py writes from the roles and from the table of what CI runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[3] / "tools" / "docs.py"
_SPEC = importlib.util.spec_from_file_location("docs_tool", _PATH)
docs = importlib.util.module_from_spec(_SPEC)
sys.modules["docs_tool"] = docs
_SPEC.loader.exec_module(docs)

SPECS = """\
argument_specs:
  main:
    short_description: Try
    options:
      gpu_try_policy:
        type: str
        choices: [if_needed, never]
        default: if_needed
        description: When it does C(this) or C(that).
      gpu_try_list:
        type: list
        elements: str
        default: []
        description:
          - First sentence.
          - Second.
      gpu_try_template:
        type: raw
        default: >-
          {{ one
             | default("") }}
        description: From the lock.
      gpu_try_text:
        type: str
        default: ""
        description: Nothing as yet.
      gpu_try_on: {type: bool, default: true, description: Whether.}
"""


@pytest.fixture
def role(tmp_path: Path) -> Path:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "argument_specs.yml").write_text(SPECS)
    return tmp_path


def test_variables_become_a_table_in_their_order(role: Path) -> None:
    assert docs.role_variables(role).splitlines()[2:] == [
        "| `gpu_try_policy` | str: `if_needed`, `never` | `if_needed` | When it does `this` or `that`. |",
        "| `gpu_try_list` | list of str | `[]` | First sentence. Second. |",
        '| `gpu_try_template` | raw | `{{ one \\| default("") }}` | From the lock. |',
        '| `gpu_try_text` | str | `""` | Nothing as yet. |',
        "| `gpu_try_on` | bool | `true` | Whether. |",
    ]


def test_role_without_variables_says_so(role: Path) -> None:
    (role / "meta" / "argument_specs.yml").write_text("argument_specs: {main: {short_description: Try}}\n")
    assert docs.role_variables(role) == "It has none.\n"


def test_what_no_scenario_runs_is_called_rendered_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "node_coverage.toml"
    table.write_text('[[run]]\nos = "debian12"\nmethod = "distro"\nscenario = "default"\nwhat = "it"\n')
    monkeypatch.setattr(docs, "COVERAGE", table)
    rows = [line.split(" | ") for line in docs.node_coverage().splitlines()[2:]]
    done = {(row[0].removeprefix("| "), row[1]): row[-1].removesuffix(" |") for row in rows}
    assert done.pop(("Debian 12", docs.METHODS["distro"])) == "default (it)"
    assert set(done.values()) == {"rendered and linted only"}


def test_row_that_the_facts_do_not_know_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "node_coverage.toml"
    table.write_text('[[run]]\nos = "debian7"\nmethod = "distro"\nscenario = "x"\nwhat = "it"\n')
    monkeypatch.setattr(docs, "COVERAGE", table)
    with pytest.raises(SystemExit, match="debian7"):
        docs.node_coverage()


def test_backslashes_and_group_marks_of_a_table_stay_as_they_are() -> None:
    text = r"a \| b \g<1>"
    assert docs._fill("<!-- generated: variables -->\nold<!-- end -->", {"variables": lambda: text}) == (
        f"<!-- generated: variables -->\n{text}<!-- end -->"
    )
