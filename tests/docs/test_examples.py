"""Every console example of the documentation is run here, and prints what it is said to print."""

from __future__ import annotations

import importlib.util
import sys
from difflib import unified_diff
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("console_examples", ROOT / "tools" / "console.py")
console = importlib.util.module_from_spec(_SPEC)
sys.modules["console_examples"] = console
_SPEC.loader.exec_module(console)

EXAMPLES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if console.has_examples(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_examples_print_what_they_are_said_to(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    lines = unified_diff(
        written.splitlines(), console.replay(written).splitlines(), "written", "printed", lineterm="", n=1
    )
    difference = "\n".join(lines)
    assert not difference, f"read the difference; if it is right, run `make docs`:\n{difference}"
