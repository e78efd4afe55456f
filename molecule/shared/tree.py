"""Print a node's file tree as JSON: path → what it is. Sent to the node's own Python, so it stands alone.

A file is its mode, owner, group and the digest of its content; a link is where it points; a folder has no content.
Times are left out: they change without anything having changed. Two trees are equal when nothing was touched.
"""

import hashlib
import json
import os
import stat
import sys

# Path → why a difference there is none. Everything else counts.
VOLATILE = {
    "/dev": "made by the kernel",
    "/proc": "made by the kernel",
    "/sys": "made by the kernel",
    "/run": "lives as long as the boot",
    "/tmp": "lives as long as the boot",  # noqa: S108
    "/var/tmp": "systemd keeps folders there for its services",  # noqa: S108
    "/var/log": "grows by being looked at",
    "/var/lib/systemd": "systemd notes when its timers ran",
    "/var/lib/private": "systemd keeps state of services there",
    "/root/.ansible": "where Ansible's modules are unpacked",
    "/root/.ssh": "the key of this run",
    "/etc/ssh": "host keys are made at boot",
    "/etc/machine-id": "made at boot",
    "/etc/hostname": "named by the engine",
    "/etc/hosts": "named by the engine",
    "/etc/resolv.conf": "named by the engine",
    "/etc/.pwd.lock": "touched by whoever looks users up for writing",
    "/.dockerenv": "made by the engine",
    "/usr/local/share/provision-test": "put there by the scenario",
    "/opt/provision-stubs": "put there by the scenario",
}
# What a run leaves that says nothing about the state: what `remove` is allowed to differ in, besides the above.
RESIDUE = {
    "/var/lib/apt/lists": "apt's own copy of the indexes",
    "/var/cache": "caches",
    "/var/backups": "dpkg's daily copies",
    "/var/lib/dpkg": "dpkg's own books; the list of packages is compared instead",
    "/var/lib/apt": "apt's own books; the marks are compared instead",
    "/var/lib/ucf": "ucf's own books",
    "/var/lib/pam": "pam-auth-update's own books",
    "/var/lib/provision": "what provision remembers, where it was asked to keep it",
    "/etc/ld.so.cache": "made by ldconfig from the folders; its bytes depend on their order",
    "/etc/passwd-": "the copy before the last change",
    "/etc/group-": "the copy before the last change",
    "/etc/shadow-": "the copy before the last change",
    "/etc/gshadow-": "the copy before the last change",
}


def describe(path, info):
    """Return what one entry is, in one line."""
    start = f"{info.st_mode:o} {info.st_uid}:{info.st_gid}"
    if stat.S_ISLNK(info.st_mode):
        return "link " + os.readlink(path)  # noqa: PTH115  names need not be text
    if stat.S_ISREG(info.st_mode):
        digest = hashlib.sha256()
        with open(path, "rb") as file:  # noqa: PTH123  the same
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        return start + " " + digest.hexdigest()
    return start


def walk(excluded):
    """Return path → description for everything but the excluded paths; compiled Python counts by its source."""
    found = {}
    folders = ["/"]
    while folders:
        folder = folders.pop()
        try:
            names = os.listdir(folder)  # noqa: PTH208  the same
        except OSError:
            continue
        for name in names:
            path = folder.rstrip("/") + "/" + name
            if path in excluded or name == "__pycache__":
                continue
            try:
                info = os.lstat(path)
                found[path] = describe(path, info)
            except OSError:
                continue
            if stat.S_ISDIR(info.st_mode):
                folders.append(path)
    return found


if __name__ == "__main__":
    json.dump(walk(set(VOLATILE) | set(RESIDUE if "--residue" in sys.argv else ())), sys.stdout, sort_keys=True)
