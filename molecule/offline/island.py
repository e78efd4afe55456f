"""Fetch every package of the lock with all it needs into a folder of the node, index it, and cut the node off.

This is what someone does who fills a mirror for an air gap: apt says what belongs to it, and an index goes over it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared/stubs"))

import build
import inventory
import nodes

MIRROR = f"{inventory.STUBS}/mirror"
_FETCH = r"""
set -eu
work=$1; shift
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/mirror"
sed -e '/^deb .* main *$/s/main *$/main contrib non-free non-free-firmware/' /etc/apt/sources.list >"$work/sources"
for folder in /opt/provision-stubs/*/; do
    [ ! -e "$folder/InRelease" ] || echo "deb [trusted=yes] file:$folder ./" >>"$work/sources"
done
options="-o Dir::Etc::SourceList=$work/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$work/lists
    -o Dir::Cache=$work/cache -o Acquire::Languages=none -o APT::Sandbox::User=root"
apt-get $options -qq update
apt-get $options -qq -y --no-install-recommends --download-only install "$@"
cp "$work"/cache/archives/*.deb "$work/mirror/"
cp /opt/provision-stubs/*/*.deb "$work/mirror/" 2>/dev/null || true
"""


def wanted(profile: dict[str, Any]) -> list[str]:
    """Return apt words for the driver, its build and the kernel's headers."""
    driver = profile["driver"]
    rows = [*driver["flavours"]["proprietary"]["packages"], *driver["profiles"]["compute"]]
    pinned = [f"{row['name']}={row['version']}" if row.get("version") else row["name"] for row in rows]
    return [*pinned, *profile["kernel"]["build"], profile["kernel"]["headers"]]


def main() -> int:
    """Fill the folder and take the default route; return the exit status."""
    lock = inventory.site() / "group_vars/gpu_nodes/provision_lock.yml"
    profile = yaml.safe_load(lock.read_text(encoding="utf-8"))["provision_lock"]["profiles"]["debian12"]
    instance = nodes.instances()[0]
    reach = inventory.words_to(instance)
    pins = "\n".join(
        f"Package: {pin['packages']}\nPin: version {pin['version']}\nPin-Priority: 1001\n"
        for pin in profile["repos"]["pins"]
    )
    subprocess.run([*reach, "cat >/etc/apt/preferences.d/fetching"], input=pins, text=True, check=True)
    work = "/opt/provision-stubs/work"
    subprocess.run([*reach, "sh", "-s", work, *wanted(profile)], input=_FETCH, text=True, check=True)
    subprocess.run([*reach, "rm /etc/apt/preferences.d/fetching"], check=True)
    with tempfile.TemporaryDirectory(dir=os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) as name:
        folder = Path(name)
        packed = subprocess.run([*reach, f"tar -C {work}/mirror -cf - ."], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-C", name, "-xf", "-"], input=packed, check=True)
        build.write_index(folder)
        index = subprocess.run(
            ["tar", "-C", name, "-cf", "-", "Packages", "Release"], check=True, capture_output=True
        ).stdout
    script = f"mv {work}/mirror {MIRROR} && tar -C {MIRROR} -xf - && rm -rf {work}"
    subprocess.run([*reach, script], input=index, check=True)
    # ssh comes over the bridge itself; everything else went over this route.
    subprocess.run([*reach, "ip route del default"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
