"""Make GPU nodes with Ansible: the committed playbooks, driven from here.

A lock says what nodes become; `lock` writes one. `plan` shows what `apply` would change and touches nothing; `verify`
proves it, `rollback` goes back one generation, `remove` takes everything away. `export` writes a site that needs this
program no more: for AWX, ansible-pull and machines without a network.

The same playbooks run without this program too: `ansible-playbook -i inventory playbooks/gpu-node.yml`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from provision.cli.output import Output
from provision.cli.parser import add_actions

__all__ = ["configure", "run"]

_ACTIONS = {
    "lock": "choose drivers, CUDA and frameworks for nodes and write that down",
    "plan": "show what apply would change, and change nothing",
    "apply": "make the nodes what the lock says",
    "verify": "prove that they are",
    "rollback": "go back to the generation before",
    "remove": "take away what apply has put there",
    "export": "write a site that runs without this program",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, "node", _ACTIONS, _DESCRIPTIONS, _filler)


def _filler(name: str) -> Callable[[argparse.ArgumentParser], None]:
    def fill(parser: argparse.ArgumentParser) -> None:
        if name == "lock":
            from provision.cli.node_lock import configure_lock

            configure_lock(parser)
        elif name == "export":
            from provision.cli.node_export import configure_export

            configure_export(parser)
        else:
            from provision.cli.node_run import configure_run

            configure_run(parser, name)

    return fill


def run(options: argparse.Namespace, output: Output) -> int:
    """Do one action."""
    if options.action == "lock":
        from provision.cli.node_lock import run_lock

        return run_lock(options, output)
    if options.action == "export":
        from provision.cli.node_export import run_export

        return run_export(options, output)
    from provision.cli.node_run import run_action

    return run_action(options, output)


_DESCRIPTIONS = {
    "lock": """Choose drivers, CUDA and frameworks for nodes and write that down.

The file holds one profile for every system the facts know: repositories, packages with their versions, environments
with hashes. It belongs into the inventory (group_vars/gpu_nodes/), or to `--lock` of the other actions.""",
    "plan": """Show what apply would change, and change nothing.

Every host is asked, and every package, file and service that would change is listed; `-v` shows the differences of
files. The exit code is 0 when the hosts could be judged; with --fail-on-change it is 8 when something would change.""",
    "apply": """Make the nodes what the lock says.

Nothing changes anywhere before every host has passed the checks that come first. Hosts are done in batches
(`gpu_rollout_batches`); a host that fails stops the batches behind it. What is finished is kept in .provision/, so that
`--resume` goes on after a break with the hosts that are left.

Examples:
  provision node plan  -i hosts.yml
  provision node apply -i hosts.yml --limit rack1 --log logs
  provision node apply -i hosts.yml --resume
  provision node apply -i localhost, -e ansible_connection=local -e gpu_hosts=all""",
    "verify": """Prove that the nodes are what the lock says.

The checks are those of `provision verify`, run on every host. The exit code is 6 when one fails.""",
    "rollback": """Go back to the generation before.

Every apply leaves a generation on the node: the lock, the packages and the files of the time. `--to` names one by its
number, `--lock` by what it was: nodes that were made at different times have different numbers for the same. To a lock
that they never had leads `provision node apply --upgrade --lock FILE`. With --dry-run only shows what would change.""",
    "remove": """Take away what apply has put there: packages, files, repositories, environments.

What the node had before is put back. With --dry-run only shows what would change.""",
    "export": """Write a site that runs without this program.

The folder holds the playbooks with the lock, an inventory to fill in, the wheels and packages that a mirror must have,
and the definition of an execution environment. The same lock gives the same bytes. It is for AWX, for ansible-pull,
which needs no control machine, and for places without a network.""",
}
