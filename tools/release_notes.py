"""Print the changelog of a version; refuse a version that the program or the changelog does not have.

usage: python tools/release_notes.py 0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes_of(version: str, changelog: str, program: str) -> str:
    """Return what the changelog says of a version.

    Args:
        version: Without ``v``.
        changelog: Text of CHANGELOG.md.
        program: Text of ``provision/__init__.py``.

    Raises:
        SystemExit: The program has another version, or the changelog none of that name or nothing under it.
    """
    have = re.search(r'^__version__ = "([^"]+)"', program, re.MULTILINE)
    if have is None or have[1] != version:
        raise SystemExit(f"the program is version {have[1] if have else 'unknown'}, the tag says {version}")
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`")
    if not found[1].strip():
        raise SystemExit(f"CHANGELOG.md says nothing of {version}")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.stdout.write(
        notes_of(
            sys.argv[1],
            (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
            (ROOT / "provision" / "__init__.py").read_text(encoding="utf-8"),
        )
    )
