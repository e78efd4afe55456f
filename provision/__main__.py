"""Let ``python -m provision`` be the command."""

from __future__ import annotations

from provision.cli.main import entry

if __name__ == "__main__":
    entry()
