"""Notes of a release come from the changelog, and only for the version that the program has."""

from __future__ import annotations

import pytest

from tools.release_notes import notes_of

PROGRAM = '"""Title."""\n\n__version__ = "1.2.0"\n'
CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-11-24

### Added

- One thing.

## [1.1.0] - 2026-10-01

- Another.
"""


def test_notes_are_what_stands_under_the_heading_of_the_version() -> None:
    assert notes_of("1.2.0", CHANGELOG, PROGRAM) == "### Added\n\n- One thing.\n"


@pytest.mark.parametrize(
    ("version", "changelog", "said"),
    [
        ("1.1.0", CHANGELOG, "the program is version 1.2.0, the tag says 1.1.0"),
        ("1.2.0", CHANGELOG.replace("[1.2.0]", "[1.2.1]"), r"has no heading `## \[1.2.0\]"),
        ("1.2.0", CHANGELOG.replace("### Added\n\n- One thing.\n", ""), "says nothing of 1.2.0"),
    ],
)
def test_a_tag_that_fits_neither_program_nor_changelog_is_refused(version: str, changelog: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        notes_of(version, changelog, PROGRAM)
