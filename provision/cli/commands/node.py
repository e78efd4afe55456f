"""Set up GPU nodes with Ansible.

`lock` writes the lock of the nodes: drivers, CUDA, frameworks and packages with their versions. `plan` shows what
`apply` would change and changes nothing; `verify` checks the nodes against the lock, `rollback` goes back one
generation, `remove` uninstalls everything. `export` writes a site that does not need this program: for AWX,
ansible-pull and machines without a network; `image` writes one that Packer bakes into a machine image.

The playbooks also run on their own: `ansible-playbook -i inventory playbooks/gpu-node.yml`.

Examples:
  provision node lock --torch 2.8 --gpu h100 --os ubuntu24.04
  provision node plan -i inventory
  provision node apply -i inventory --limit rack1
  provision node rollback -i inventory
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from provision.cli.output import Output
from provision.cli.parser import add_actions

_ACTIONS = {
    "lock": "choose drivers, CUDA and frameworks for nodes and write a lock",
    "plan": "show what apply would change, and change nothing",
    "apply": "make the nodes match the lock",
    "verify": "verify that the nodes match the lock",
    "rollback": "go back to the previous generation",
    "remove": "uninstall everything that apply installed",
    "export": "write a site that runs without this program",
    "image": "write a site that Packer bakes into a machine image",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, "node", _ACTIONS, _DESCRIPTIONS, _filler)


def _filler(name: str) -> Callable[[argparse.ArgumentParser], None]:
    def fill(parser: argparse.ArgumentParser) -> None:
        if name == "lock":
            from provision.cli.node.lock import configure_lock

            configure_lock(parser)
        elif name == "export":
            from provision.cli.node.export import configure_export

            configure_export(parser)
        elif name == "image":
            from provision.cli.node.export import configure_image

            configure_image(parser)
        else:
            from provision.cli.node.run import configure_run

            configure_run(parser, name)

    return fill


def run(options: argparse.Namespace, output: Output) -> int:
    """Do one action."""
    if options.action == "lock":
        from provision.cli.node.lock import run_lock

        return run_lock(options, output)
    if options.action in ("export", "image"):
        from provision.cli.node.export import run_export

        return run_export(options, output)
    from provision.cli.node.run import run_action

    return run_action(options, output)


_DESCRIPTIONS = {
    "lock": """Choose drivers, CUDA and frameworks for nodes and write a lock.

The lock contains one profile for every operating system the facts know: repositories, packages with their versions,
environments with hashes. Put it into the inventory (group_vars/gpu_nodes/), or pass it to --lock of the other actions.

Examples:
  provision node lock --torch 2.8 --gpu h100
  provision node lock --driver 580 --toolkit 12.8 --include nccl,cudnn --os ubuntu24.04 -o lock.yml
  provision node lock --torch 2.8 --check""",
    "plan": """Show what apply would change, and change nothing.

Every host is asked. The output lists every package, file and service that would change; -v shows the differences of
files. The exit code is 0 when all hosts answered; with --fail-on-change it is 8 when something would change.

Examples:
  provision node plan -i inventory
  provision node plan -i inventory --limit rack1 --fail-on-change""",
    "apply": """Make the nodes match the lock.

No host is changed before every host has passed the preflight checks. Hosts are changed in batches
(`gpu_rollout_batches`); a host that fails stops the batches after it. Progress is kept in .provision/, so that --resume
continues an interrupted run with the remaining hosts.

Examples:
  provision node apply -i hosts.yml
  provision node apply -i hosts.yml --limit rack1 --log logs
  provision node apply -i hosts.yml --resume
  provision node apply -i localhost, -e ansible_connection=local -e gpu_hosts=all""",
    "verify": """Verify that the nodes match the lock.

Runs the checks of `provision verify` on every host. The exit code is 6 when one fails.

Examples:
  provision node verify -i inventory
  provision node verify -i inventory --level gpu --limit rack1""",
    "rollback": """Go back to the previous generation.

Every apply creates a generation on the node: the lock, the packages and the files of that time. --to selects one by its
number, --lock by its lock, since nodes that were set up at different times number the same generation differently. Use
`provision node apply --upgrade --lock FILE` for a lock that the nodes never had. --dry-run only shows what would
change.

Examples:
  provision node rollback -i inventory --dry-run
  provision node rollback -i inventory --limit gpu001 --to 3""",
    "remove": """Uninstall everything that apply installed: packages, files, repositories, environments.

Files and settings that the node had before are restored. --dry-run only shows what would change.

Examples:
  provision node remove -i inventory --dry-run
  provision node remove -i inventory --limit gpu001""",
    "export": """Write a site that runs without this program.

The folder contains the playbooks with the lock, an inventory to fill in, the wheels and packages that a mirror must
provide, and the definition of an execution environment. The same lock produces the same bytes. Use it for AWX, for
ansible-pull, which needs no control machine, and for sites without a network.

Examples:
  provision node export --lock provision_lock.yml -o site
  provision node export --archive site.tar.gz""",
    "image": """Write a site that Packer bakes into a machine image.

The folder is that of `export`, and image/ in it has a template of Packer for Amazon, Azure, Google and QEMU, the script
that seals the machine (host keys, identity, logs, caches), the check of the first boot, and user data for a machine
that makes itself by cloud-init instead. Drivers are compiled while the image is built, which needs no GPU.

Examples:
  provision node image --lock provision_lock.yml --os debian12 -o site
  provision node image --os ubuntu24.04 --builder amazon-ebs,qemu -o site""",
}
