"""Check, compare, refresh and update the facts.

`check` checks every fact file against every rule, `diff` shows what was published upstream and is missing from the
facts, and `refresh` adds it to compat/ of the checkout or to the folder of --data-dir. `update` installs newer facts
from a signed bundle.

Examples:
  provision data check
  provision data diff --only torch,jax
  provision data update --from https://mirror.example/facts.tar.gz --signers signers
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from provision.assets import facts_dir
from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_actions, add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.errors import DataError

_JOBS_MAX = 16

_ACTIONS = {
    "check": "check the facts against every rule",
    "diff": "show what was published upstream and is missing from the facts",
    "refresh": "add what was published upstream to the facts",
    "update": "install newer facts from a signed bundle",
}
_DESCRIPTIONS = {
    "check": """Check the facts against every rule.

Each violation is listed with the id of its rule. The exit code is 9 if there is one.

Examples:
  provision data check
  provision data check --data-dir facts""",
    "diff": """Show what was published upstream and is missing from the facts.

Reads the package index that pip is configured for, the archives of Debian and Ubuntu, NVIDIA's manifests and the
PyTorch index, and writes nothing. With --check the exit code is 8 when something differs.

Examples:
  provision data diff --only torch,jax
  provision data diff --check""",
    "refresh": """Add what was published upstream to the facts.

Reads the package index that pip is configured for, the archives of Debian and Ubuntu, NVIDIA's manifests and the
PyTorch index. New rows are written to compat/ of the checkout or to the folder of --data-dir: all files or none, and
only if every rule holds. The exit code is 9 if upstream contradicts the facts, 7 if nothing could be read, and 5,
before anything is read, if another refresh of the same facts is running.

Examples:
  provision data refresh --data-dir ./facts --changelog CHANGELOG.md""",
    "update": """Install newer facts from a signed bundle.

A bundle is an archive of compat/ and its signature, FILE and FILE.sig. It is installed if a key in --signers signed it,
if it is newer than the current facts, and if it passes every rule of this program; otherwise nothing changes and the
exit code is 9. All commands then use these facts, until a release of the program has newer ones. --shipped goes back to
the facts of the release. A checkout has its own facts and needs no update.

Examples:
  provision data update --from https://mirror.example/facts.tar.gz --signers signers
  provision data update --shipped""",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, "data", _ACTIONS, _DESCRIPTIONS, _filler)


def _filler(name: str) -> Callable[[argparse.ArgumentParser], None]:
    return {"check": _fill_nothing, "update": _fill_update}.get(name, _fill_reading)


def _fill_nothing(_parser: argparse.ArgumentParser) -> None:
    """Add no flag: there are only those of every command."""


def _fill_reading(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what reads upstream."""
    group = parser.add_argument_group("sources")
    add_value(
        group,
        "--only",
        "NAME,…",
        "read only these sources (torch, tensorflow, jax, nvidia, companions, published, system, drivers, cuda, "
        "builds, ngc, prebuilt), distributions, or one release of a companion (NAME==VERSION)",
        action="append",
    )
    add_value(group, "--index-url", "URL", "package index to use instead of that of pip or uv")
    add_value(
        group,
        "--apt-mirror",
        "NAME=URL",
        "archive of debian or ubuntu (default: the one apt is configured for)",
        action="append",
    )
    add_value(group, "--pytorch-url", "URL", "PyTorch index to use instead of the one in the facts")
    add_value(group, "--redistrib-url", "URL", "URL of NVIDIA's manifests to use instead of the one in the facts")
    add_value(
        group, "--accept", "ID", "accept this reviewed alarm; `*` matches any ending; may be repeated", action="append"
    )
    add_value(group, "--changelog", "FILE", "also add an entry to this changelog", parse_path)
    add_switch(group, "--check", "exit with 8 if something would change")
    add_value(group, "--dated", "DAY", "date of the new facts, YYYY-MM-DD (default: today)")
    add_value(group, "--jobs", "N", "parallel requests (default: 4)", whole("--jobs", 1, _JOBS_MAX, example="8"))
    add_value(group, "--cache", "DIR", "folder for cached responses", parse_path)


def _fill_update(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what reads a bundle."""
    group = parser.add_argument_group("facts to install")
    add_value(
        group,
        "--from",
        "URL|FILE",
        "bundle; its signature is read from the same place, with .sig appended",
        dest="place",
    )
    add_value(
        group,
        "--signers",
        "FILE",
        "keys that may sign it, one line `facts ssh-ed25519 …` per key (allowed signers of ssh-keygen)",
        parse_path,
    )
    add_switch(group, "--shipped", "go back to the facts of this release")


def run(options: argparse.Namespace, output: Output) -> int:
    """Check the facts, or bring them up to date."""
    if options.action == "check":
        return _check(options, output)
    if options.action == "update":
        from provision.cli.data.update import update

        return update(options, output)
    from provision.cli.data.refresh import refresh

    return refresh(options, output)


def _check(options: argparse.Namespace, output: Output) -> int:
    from provision.matrix.check import RULES, check

    folder: Path = read_matrix(options).data_dir if options.data_dir is not None else facts_dir()
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
