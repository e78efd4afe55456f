"""Check, compare, refresh and update the facts.

`check` checks every fact file against every rule, `diff` shows what upstream has and the facts lack, `refresh` writes
it into the checkout's compat/ or the folder of --data-dir. `update` brings newer facts to an installed program, from a
signed bundle.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from provision.assets import facts_dir
from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import Once, add_actions, parse_path
from provision.cli.request import read_matrix
from provision.errors import DataError

__all__ = ["configure", "run"]

_JOBS_MAX = 16

_ACTIONS = {
    "check": "check the facts against every rule",
    "diff": "show what upstream has and the facts lack, and write nothing",
    "refresh": "read upstream and write what is new",
    "update": "bring newer facts to an installed program, from a signed bundle",
}
_DESCRIPTIONS = {
    "check": """Check the facts against every rule.

Each fault is listed with the id of its rule. The exit code is 9 when there is one.""",
    "diff": """Show what upstream has and the facts lack, and write nothing.

Read are the package index that pip is configured for, the archives of Debian and Ubuntu, NVIDIA's manifests and the
PyTorch index. With --check the exit code is 8 when something differs.

provision data diff --only torch,jax""",
    "refresh": """Read upstream and write what is new.

Read are the package index that pip is configured for, the archives of Debian and Ubuntu, NVIDIA's manifests and the
PyTorch index. What is new goes into the checkout's compat/ or the folder of --data-dir: all files or none, and only
when every rule holds. It stops with exit code 9 where upstream contradicts the facts, with 7 when nothing could be
read, and with 5, before it reads anything, while another refresh of the same facts is at work.

provision data refresh --data-dir ./facts --changelog CHANGELOG.md""",
    "update": """Bring newer facts to an installed program, from a signed bundle.

A bundle is an archive of compat/ and its signature, FILE and FILE.sig. It is taken when a key of --signers signed it,
when it is newer than the facts in force, and when it keeps every rule of this program; otherwise nothing changes and
the exit code is 9. From then on every command answers from it, until a release of the program brings newer facts.
--shipped goes back to those of the release. A checkout has its own facts and needs no update.

provision data update --from https://mirror.example/facts.tar.gz --signers signers""",
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
    group = parser.add_argument_group("what is read, and how")
    group.add_argument(
        "--only",
        action="append",
        metavar="NAME,…",
        help="sources to read (torch, tensorflow, jax, nvidia, companions, published, drivers, cuda, builds), "
        "or distributions",
    )
    group.add_argument("--index-url", action=Once, metavar="URL", help="package index instead of the one of pip or uv")
    group.add_argument(
        "--apt-mirror",
        action="append",
        metavar="NAME=URL",
        help="archive of debian or ubuntu; else the one that apt here is configured for",
    )
    group.add_argument(
        "--pytorch-url", action=Once, metavar="URL", help="PyTorch index instead of the one in the facts"
    )
    group.add_argument(
        "--redistrib-url",
        action=Once,
        metavar="URL",
        help="folder of NVIDIA's manifests instead of the one in the facts",
    )
    group.add_argument(
        "--accept",
        action="append",
        metavar="ID",
        help="an alarm that was looked at; may be repeated, `*` ends a prefix",
    )
    group.add_argument(
        "--changelog", action=Once, type=parse_path, metavar="FILE", help="also add an entry to this changelog"
    )
    group.add_argument("--check", action="store_true", help="end with exit code 8 when something would change")
    group.add_argument("--dated", action=Once, metavar="DAY", help="day of the new facts, ISO (today)")
    group.add_argument(
        "--jobs", action=Once, type=whole("--jobs", 1, _JOBS_MAX, example="8"), metavar="N", help="requests at once (4)"
    )
    group.add_argument(
        "--cache", action=Once, type=parse_path, metavar="DIR", help="folder for what need not be read twice"
    )


def _fill_update(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what reads a bundle."""
    group = parser.add_argument_group("which facts")
    group.add_argument(
        "--from", dest="place", action=Once, metavar="URL|FILE", help="the bundle; its signature is beside"
    )
    group.add_argument(
        "--signers",
        action=Once,
        type=parse_path,
        metavar="FILE",
        help="keys that may sign it, a line `facts ssh-ed25519 …` each (ssh-keygen's allowed signers)",
    )
    group.add_argument("--shipped", action="store_true", help="go back to the facts of this release")


def run(options: argparse.Namespace, output: Output) -> int:
    """Check the facts, or bring them up to date."""
    if options.action == "check":
        return _check(options, output)
    if options.action == "update":
        from provision.cli.data_update import update

        return update(options, output)
    from provision.cli.data_refresh import refresh

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
