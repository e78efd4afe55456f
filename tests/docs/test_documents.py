"""The documentation tells the truth: commands exist, tables are fresh, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from provision import errors

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "compat/*.md", "playbooks/**/*.md", "molecule/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
BYTES_OF_A_README = 8192
LINES_OF_A_SCREEN = 40
SET_UP = ["make install && .venv/bin/provision image --cuda 11.8 --torch 2.1", "make test"]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@cache
def _help(*command: str) -> str:
    done = _run("-m", "provision", *command, "--help")
    assert done.returncode == 0, f"`provision {' '.join(command)}` is not a command: {done.stderr}"
    return done.stdout


def _fences(text: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def _commands(text: str) -> list[str]:
    """Every call of the program in a code span or a shell block."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    calls = (re.search(r"(?:^|&& |\.venv/bin/)(provision [a-z].*)", words) for words in [*spans, *_fences(text)])
    return sorted({call[1] for call in calls if call})


def test_first_screen_has_exactly_the_two_set_up_commands() -> None:
    assert _fences("\n".join(README.splitlines()[:LINES_OF_A_SCREEN])) == SET_UP


def test_readme_is_short() -> None:
    assert len(README.encode()) <= BYTES_OF_A_README


def test_chinese_readme_has_the_same_commands_files_and_links() -> None:
    def parts(text: str) -> tuple[list[str], list[str], list[str]]:
        links = re.findall(r"\]\(([^)]+)\)", text)
        return (
            re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE),
            re.findall(r"<!-- .*? -->", text),
            sorted({link for link in links if not link.startswith("README")}),
        )

    assert parts(CHINESE) == parts(README)
    assert "](README.zh-CN.md)" in README
    assert "](README.md)" in CHINESE


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    named = [word for call in re.findall(r"\bmake ((?:-k )?[a-z -]+)(?=[`\n&])", text) for word in call.split()]
    assert {word for word in named if word != "-k"} <= targets


@pytest.mark.parametrize(
    "call", sorted({call for path in DOCUMENTS for call in _commands(path.read_text(encoding="utf-8"))})
)
def test_call_of_the_program_exists(call: str) -> None:
    words = call.split()[1:]
    command = [words[0]]
    if words[0] in ("data", "fleet", "node") and len(words) > 1:
        command.append(words[1])
    text = _help(*command)
    unknown = [word for word in words if word.startswith("-") and not re.search(rf"(?<!\S){re.escape(word)}\b", text)]
    assert not unknown


def test_exit_codes_are_those_of_the_errors() -> None:
    classes = [error for error in vars(errors).values() if isinstance(error, type)]
    # What is derived of one of them says more of the same, by the same code.
    own = [error for error in classes if error is errors.ProvisionError or error.__base__ is errors.ProvisionError]
    codes = [error.exit_code for error in own]
    assert len(set(codes)) == len(codes)
    table = (ROOT / "docs/commands/README.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    assert sorted(map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))) == sorted(
        [0, *codes, errors.EXIT_INTERRUPTED]
    )


def test_table_of_files_is_what_an_image_context_holds() -> None:
    table = (ROOT / "docs" / "image.md").read_text(encoding="utf-8").split("\n\n")[2]
    listed = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`([\w.-]+\.\w+|Dockerfile|\.\w+|\w+/)`", line.split("|")[1])
    }
    contexts = [path.parent for path in ROOT.glob("tests/golden/*/.dockerignore")]
    written = {
        re.sub(r"/.*", "/", name[1:])
        for folder in contexts
        for name in (folder / ".dockerignore").read_text().split()
        if name[0] == "!"
    }
    assert contexts
    # A certificate is copied for the classic builder only, when one was given.
    assert listed == written - {"provision-ca.crt"} | {".dockerignore"}


def test_coverage_of_nodes_names_scenarios_that_exist() -> None:
    rows = tomllib.loads((ROOT / "tools/node_coverage.toml").read_text(encoding="utf-8"))["run"]
    assert rows
    assert [
        row["scenario"] for row in rows if not (ROOT / "molecule" / row["scenario"] / "molecule.yml").is_file()
    ] == []


def test_generated_parts_are_fresh() -> None:
    done = _run("-m", "tools.docs", "--check", "--skip-examples")
    assert done.returncode == 0, f"run `make docs`:\n{done.stdout}{done.stderr}"


@cache
def _anchors(path: Path) -> set[str]:
    """The places of a page that a link can name: headings as GitHub names them, and ids."""
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_the_tree_lead_somewhere(path: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        led = (path.parent / name).resolve() if name else path
        if "://" in target:
            continue
        if not led.exists() or (anchor and led.suffix == ".md" and anchor not in _anchors(led)):
            dead.append(target)
    assert dead == []
