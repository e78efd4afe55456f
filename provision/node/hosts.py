"""Which hosts a run is about, as Ansible itself reads the inventory."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import MissingDependencyError, UsageError
from provision.node.ansible import errors_in, find_program, origins_in
from provision.probe.clean import clean_line
from provision.probe.redact import redact

if TYPE_CHECKING:
    import subprocess

GROUP = "gpu_nodes"
"""Hosts that the playbooks are for, unless `gpu_hosts` says otherwise."""

_SECONDS = 300
_HOST = re.compile(r"^ {4}(\S.*)$")
_NO_MATCH = re.compile(r"Could not match supplied host pattern, ignoring: (\S+)")
_UNREADABLE = ("Unable to parse", "ailed to parse", "not parsed")
_NO_GROUPS = ("_meta", "all")
_GROUPS_SHOWN = 5
_INTO_THE_GROUP = f"put the hosts into the group `{GROUP}`, or choose others with `-e gpu_hosts=all`"
_SLICE = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")


def check_inventory(word: str) -> str:
    """Check one ``--inventory``: a file, folder or script, or a list of hosts with a comma.

    Raises:
        UsageError: It is neither.
    """
    if not word or not word.isprintable() or word.startswith("-"):
        raise UsageError(
            f"--inventory `{word[:60]!a}` is not an inventory", hints=("name a file, or hosts as in `gpu01,`",)
        )
    if "," not in word and not Path(word).exists():
        raise UsageError(
            f"--inventory: {word} does not exist",
            hints=(f"a list of hosts ends with a comma: `--inventory {word},`",) if "/" not in word else (),
        )
    return word


def list_hosts(
    inventories: Sequence[str],
    *,
    pattern: str = GROUP,
    limit: str | None = None,
    words: Sequence[str] = (),
    environment: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the hosts of a pattern, in the order of the inventory.

    Args:
        inventories: As `check_inventory` returns them; without any Ansible's own configuration decides.
        pattern: Which hosts the playbook is for.
        limit: Which of these to take.
        words: More flags, such as that of a vault's password.
        environment: The variables Ansible runs with.

    Raises:
        MissingDependencyError: ansible-core is not installed, or no host is left.
        UsageError: The inventory or the pattern cannot be read.
    """
    import subprocess

    argv = [find_program("ansible"), pattern, "--list-hosts", *(f"--inventory={word}" for word in inventories), *words]
    if limit is not None:
        argv.append(f"--limit={limit}")
    where = ", ".join(inventories) or "Ansible's own inventory"
    graph = shlex.join(("ansible-inventory", *(word for name in inventories for word in ("-i", name)), "--graph"))
    look = f"`{graph}` shows what is there"
    try:
        done = _ask(argv, environment)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{where}: ansible did not list the hosts within {_SECONDS} s", hints=(f"see how long `{graph}` takes",)
        ) from error
    except OSError as error:
        raise MissingDependencyError("`ansible` cannot be started", because=(error.strerror or str(error),)) from error
    said = done.stderr.decode("utf-8", "replace")
    names = [match[1] for line in done.stdout.decode("utf-8", "replace").splitlines() if (match := _HOST.match(line))]
    if names and limit is not None and (lost := _NO_MATCH.search(said)):
        # Ansible leaves the word out and takes the rest: without an exclusion that would be more than was meant.
        raise UsageError(
            f"--limit `{clean_line(limit, 60)}`: no host or group of {where} is called `{clean_line(lost[1], 60)}`",
            hints=(look,),
        )
    if names:
        return tuple(dict.fromkeys(names))
    chosen = f"`{pattern}`" if limit is None else f"`{pattern}` with `--limit {limit}`"
    because = tuple(redact(clean_line(line)) for line in errors_in(said)[:3])
    if any(mark in said for mark in _UNREADABLE):
        # Which line it is stands among the warnings of the readers that Ansible has tried.
        origins = tuple(redact(clean_line(line)) for line in origins_in(said)[:3])
        raise UsageError(
            f"{where} is not an inventory that Ansible can read",
            because=(*because, *origins),
            hints=(f"`{graph}` shows all that Ansible says of it",),
        )
    # Whatever Ansible's status says, no host means that nothing would be done.
    if done.returncode not in (0, 1):
        raise UsageError(f"{where}: Ansible cannot list the hosts", because=because)
    hints = [look]
    if not inventories:
        hints = ["name an inventory with `-i FILE`"]
    elif pattern == GROUP and f"ignoring: {GROUP}" in said:
        # There is no such group: it may be called a little otherwise.
        because = _name_groups(_list_groups(inventories, words, environment)) or because
        hints.insert(0, _INTO_THE_GROUP)
    elif limit is not None:
        hints.insert(0, "`--limit` takes hosts and groups of the inventory, as in `--limit rack1:!gpu07`")
    elif pattern == GROUP:
        because = because or (f"the group `{GROUP}` has no hosts",)
        hints.insert(0, _INTO_THE_GROUP)
    raise MissingDependencyError(f"{where}: no host matches {chosen}", because=because, hints=hints)


def _ask(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    import subprocess

    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env=dict(environment),
        start_new_session=True,
    )


def _list_groups(
    inventories: Sequence[str], words: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the groups of an inventory that have hosts, sorted, or nothing where Ansible does not tell."""
    import json
    import subprocess

    try:
        argv = [find_program("ansible-inventory"), "--list", *(f"--inventory={word}" for word in inventories), *words]
        document = json.loads(_ask(argv, environment).stdout)
        return tuple(sorted(name for name in document if name not in _NO_GROUPS and document[name].get("hosts")))
    except (MissingDependencyError, OSError, subprocess.TimeoutExpired, ValueError, AttributeError):
        return None


def _name_groups(groups: Sequence[str] | None) -> tuple[str, ...]:
    """Return what the inventory has in place of the group, as a reason."""
    if groups is None:
        return ()
    if not groups:
        return (f"it has no group `{GROUP}`, nor another with hosts",)
    groups = [name for name in groups if name != "ungrouped"]
    if not groups:
        return ("its hosts are in no group",)
    near = difflib.get_close_matches(GROUP, groups, n=1)
    shown = ", ".join(f"`{clean_line(name, 60)}`" for name in (near or groups[:_GROUPS_SHOWN]))
    more = f" and {len(groups) - _GROUPS_SHOWN} more" if not near and len(groups) > _GROUPS_SHOWN else ""
    return (f"it has no group `{GROUP}`, but {shown}{more}",)


def take_slice(names: Sequence[str], slice_word: str) -> tuple[str, ...]:
    """Return every N-th host, so that several controllers share the work.

    Args:
        names: All of them.
        slice_word: ``I/N``: the I-th of N parts, counted from 1.

    Raises:
        UsageError: It is not written like this.
        MissingDependencyError: That part is empty.
    """
    found = _SLICE.fullmatch(slice_word)
    part, parts = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 1 <= part <= parts:
        raise UsageError(
            f"--slice `{clean_line(slice_word, 40)}` is not part of a whole",
            hints=("write `--slice 1/4` for the first of four parts",),
        )
    taken = tuple(names[part - 1 :: parts])
    if not taken:
        raise MissingDependencyError(
            f"--slice {slice_word}: that part has no host",
            because=(f"there {'is one host' if len(names) == 1 else f'are {len(names)} hosts'} to share",),
            hints=(f"share among {len(names)} at most, or leave `--slice` out",),
        )
    return taken
