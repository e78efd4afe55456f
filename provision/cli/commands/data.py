"""Look after the facts.

`provision data check` holds every fact file against every rule and lists each fault with the id of its rule. It ends
with exit code 9 when there is one.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from provision.assets import asset_dir
from provision.cli.output import Output
from provision.cli.parser import one_of
from provision.cli.request import read_matrix
from provision.errors import DataError

__all__ = ["configure", "run"]

_ACTIONS = ("check",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "action", type=one_of("action", _ACTIONS), choices=_ACTIONS, help="check: hold the facts against every rule"
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Check the facts."""
    from provision.matrix.check import RULES, check

    folder = read_matrix(options).data_dir if options.data_dir is not None else asset_dir("compat")
    findings = check(folder)
    rules = {name: (rule.__doc__ or "").strip() for name, rule in RULES.items()}
    if not findings:
        output.give(
            {"folder": str(folder), "rules": rules, "findings": []},
            f"{folder} keeps all {len(rules)} rules of the facts",
        )
        return 0
    if not output.is_json:
        lines = [
            f"{item.file}{f': {item.where}' if item.where else ''}: {item.rule} {item.message}" for item in findings
        ]
        output.give(None, "\n".join(lines))
    broken = sorted({item.rule for item in findings})
    raise DataError(
        f"{len(findings)} {'fault' if len(findings) == 1 else 'faults'} in {folder}",
        because=[f"{name}: {rules[name]}" for name in broken],
        hints=("compat/README.md says how a fact is written",),
        details={"findings": [asdict(item) for item in findings], "rules": rules},
    )
