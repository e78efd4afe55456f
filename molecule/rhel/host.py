"""Make a node of Debian look like one of Rocky Linux 9 to the plays, and let the lock's repositories be stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

import inventory
import nodes

BASE = "/opt/provision-standins"
PLACES = {"cuda": "cuda", "build": "build", "container-toolkit": "toolkit"}
_TOOLS = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install \
    dnf dnf-plugins-core rpm createrepo-c gnupg gpg-agent binutils >/dev/null
mkdir -p /etc/yum.repos.d /etc/pki/rpm-gpg /etc/provision-test /var/lib/dkms
# A release without a network's name for it; rpm has the distribution's key, as every host does.
printf '%s\\n' 'NAME="Rocky Linux"' 'ID="rocky"' 'ID_LIKE="rhel centos fedora"' 'VERSION_ID="9.6"' \
    'PLATFORM_ID="platform:el9"' 'PRETTY_NAME="Rocky Linux 9.6 (stand-in on Debian)"' >/etc/os-release.new
rm -f /etc/os-release && mv /etc/os-release.new /etc/os-release
mkdir -p /etc/dnf/vars && echo 9 >/etc/dnf/vars/releasever
"""
_BASE = """
set -eu
rpm --import {base}/distribution.asc
dnf -q -y --disablerepo='*' --repofrompath=base,{base}/build --setopt=base.gpgcheck=0 install bash kernel-core >&2
"""


def main() -> int:
    """Install, build, and write the lock anew; return the exit status."""
    instance = nodes.instances()[0]
    reach = inventory.words_to(instance)
    subprocess.run([*reach, "sh", "-s"], input=_TOOLS, text=True, check=True)
    script = (Path(__file__).with_name("standins.py")).read_text(encoding="utf-8")
    built = subprocess.run([*reach, f"python3 - {BASE} el9"], input=script, text=True, check=False, capture_output=True)
    if built.returncode:
        nodes.say(f"error: the stand-ins cannot be built: {built.stderr or built.stdout}")
        return 1
    summary = json.loads(built.stdout.splitlines()[-1])
    subprocess.run([*reach, "sh", "-s"], input=_BASE.format(base=BASE), text=True, check=True)
    key = subprocess.run([*reach, f"cat {BASE}/vendor.asc"], check=True, capture_output=True, text=True).stdout
    path = inventory.site() / "group_vars/gpu_nodes/provision_lock.yml"
    lock = yaml.safe_load(path.read_text(encoding="utf-8"))["provision_lock"]
    for source in lock["profiles"]["rhel9"]["repos"]["sources"]:
        source["uri"] = f"file://{BASE}/{PLACES[source['id']]}/"
        source["key"] = {"url": "", "sha256": None, "fingerprint": summary["fingerprint"]}
    inventory.write_lock(lock, path)
    variables = inventory.site() / "group_vars/gpu_nodes/standins.yml"
    inventory.dump(variables, {"gpu_repos_keys": dict.fromkeys(PLACES, key)})
    inventory.record([f"rpms of {BASE} (stand-ins, real transactions)"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
