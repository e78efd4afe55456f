"""Write the manual pages, one for each page of `--help`, from the same parsers.

usage: python -m tools.man FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argparse_manpage.manpage import Manpage

from provision import __version__
from provision.cli.parser import COMMANDS, Parser, build_parser, build_top_parser
from provision.cli.text.help import part_examples
from provision.matrix.load import Matrix


def manual_pages() -> dict[str, str]:
    """Return the pages: file name → text for groff."""
    dated = Matrix().dated
    pages = {}
    for parser in (build_top_parser(), *map(build_parser, COMMANDS)):
        actions = list(parser.actions.values())
        for action in actions:
            action.fill()
        for item in parser._actions:
            if isinstance(item, argparse._SubParsersAction):
                # Their list stays; the flags of each are on a page of its own.
                item.choices.clear()
        for part in (parser, *actions):
            pages[f"{part.prog.replace(' ', '-')}.1"] = _page(part, dated)
    return pages


def _page(parser: Parser, dated: str) -> str:
    head, _, prose = (parser.description or "").strip().partition("\n\n")
    parser.description, examples = part_examples(prose)
    page = Manpage(parser)
    page.prog = parser.prog.replace(" ", "-")
    page.description = " ".join(head.split()).rstrip(".")
    page.date, page.source, page.manual = dated, f"provision {__version__}", "Manual of provision"
    page.add_section("examples", ">", f".nf\n{_escaped(examples)}\n.fi")
    if parser.epilog:
        page.add_section("comments", ">", f".nf\n{_escaped(parser.epilog)}\n.fi")
    return str(page)


def _escaped(text: str) -> str:
    """Return lines that groff prints as they are."""
    return "\n".join(f"\\&{line}" for line in text.replace("\\", "\\e").replace("-", "\\-").splitlines())


def main() -> None:
    """Write them."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manual_pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
