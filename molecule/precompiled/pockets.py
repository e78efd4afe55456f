"""Take the pocket of updates out of the node's sources where its modules are named and not there.

A mirror may carry the index of a kernel some time before the modules for it. Then the pocket of security updates, whose
kernel is older, is what can be installed; where that has none either the scenario is skipped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

import inventory
import nodes
import yaml

_TRY = r"""
set -eu
work=$(mktemp -d); mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/out"
trap 'rm -rf "$work"' EXIT
sed -e "/ $1 /d" -e '/^deb /s/ main.*/ main restricted universe multiverse/' /etc/apt/sources.list >"$work/sources"
options="-o Dir::Etc::SourceList=$work/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$work/lists
    -o Dir::Cache=$work/cache -o Acquire::Languages=none -o APT::Sandbox::User=root"
apt-get $options -qq update
apt-get $options -qq -y --no-install-recommends --download-only install "$2"
"""


def main() -> int:
    """Try the archive with and without the pocket; return the exit status."""
    lock = inventory.site() / "group_vars/gpu_nodes/provision_lock.yml"
    driver = yaml.safe_load(lock.read_text(encoding="utf-8"))["provision_lock"]["profiles"]["ubuntu24.04"]["driver"]
    package = driver["flavours"]["open"]["packages"][0]["name"]
    instance = nodes.instances()[0]
    reach = inventory.words_to(instance)
    for pocket in ("none", "noble-updates"):
        words = [*reach, "sh", "-s", pocket, package]
        done = subprocess.run(words, input=_TRY, text=True, check=False, capture_output=True)
        if not done.returncode:
            subprocess.run([*reach, f"sed -i '/ {pocket} /d' /etc/apt/sources.list"], check=True)
            return 0
        nodes.say(f"WARNING: {package} cannot be fetched (left out: {pocket}): {done.stderr.strip()[-300:]}")
    return nodes.skip(f"the archive names {package} and does not have it")


if __name__ == "__main__":
    sys.exit(main())
