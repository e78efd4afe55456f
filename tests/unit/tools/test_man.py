"""Manual pages: one for each page of help, which groff reads without a warning."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from provision.cli.parser import COMMANDS
from tools.man import manual_pages

pages = cache(manual_pages)


def test_every_command_and_action_has_a_page_with_its_examples() -> None:
    assert {"provision.1", "provision-node.1", "provision-node-plan.1"} <= set(pages())
    assert {f"provision-{name}.1" for name in COMMANDS} <= set(pages())
    for name, page in pages().items():
        assert f".SH NAME\n{name.removesuffix('.1')}".replace("-", "\\-") in page
        assert ".SH EXAMPLES\n.nf\n\\&  provision " in page or name == "provision-completion.1"


def test_flags_of_an_action_are_on_its_own_page_alone() -> None:
    assert "fail\\-on\\-change" in pages()["provision-node-plan.1"]
    assert "fail\\-on\\-change" not in pages()["provision-node.1"]
    assert "show what apply would change" in pages()["provision-node.1"]


def test_groff_reads_every_page_without_a_warning() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for name, page in pages().items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"], input=page, capture_output=True, text=True, check=False
        )
        assert done.stderr == "", name
