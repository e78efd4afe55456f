"""Install real container engines on the node, from its own archive and with the settings that a user wrote there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

import inventory
import nodes

# Files that are there before the package are the user's: dpkg keeps them.
_INSTALL = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
rm -f /usr/local/bin/docker
apt-get -qq update
apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-confold install \
    containerd docker.io iptables needrestart podman sudo
systemctl restart containerd docker
"""


def main() -> int:
    """Install them; return the exit status."""
    if nodes.engine() != "docker":
        return nodes.skip("the node shares this machine's network: its allow-list would be this machine's too")
    for instance in nodes.instances():
        subprocess.run([*inventory.words_to(instance), "sh", "-s"], input=_INSTALL, text=True, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
