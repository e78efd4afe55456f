"""The systemd units that let ``provision verify`` feed node_exporter's textfile collector."""

from __future__ import annotations

import re

from provision.errors import UsageError
from provision.matrix.load import Matrix

TEXTFILE = "provision.prom"
TEXTFILES = "/var/lib/prometheus/node-exporter"
"""Where Debian's node_exporter looks for textfiles."""
EXPECT = "/etc/provision/expect.toml"
"""What is expected of the node that asks itself."""

_FOLDER = re.compile(r"/[A-Za-z0-9][A-Za-z0-9._/-]*")
# A file is stale after this many runs that did not happen.
_MISSED = 3

_SERVICE = """\
# Written by `provision fleet` from facts of {dated}; edit compat/, not this file.
[Unit]
Description=Check this GPU node against what is expected of it
ConditionPathIsDirectory={folder}

[Service]
Type=oneshot
ExecStart=/usr/bin/env provision verify local --level quick --expect {expect} --prometheus {folder}/{file}
# A check that fails is told by the file, and does not make this unit fail.
SuccessExitStatus=6
StandardOutput=null
TimeoutStartSec={seconds}
Nice=10
IOSchedulingClass=idle
CacheDirectory=provision
Environment=XDG_CACHE_HOME=/var/cache/provision
ProtectSystem=strict
ReadWritePaths={folder}
ProtectHome=read-only
PrivateTmp=yes
NoNewPrivileges=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
"""
_TIMER = """\
# Written by `provision fleet` from facts of {dated}; edit compat/, not this file.
[Unit]
Description=Check this GPU node against what is expected of it, again and again

[Timer]
OnBootSec=2min
OnUnitActiveSec={seconds}
RandomizedDelaySec=30
AccuracySec=10

[Install]
WantedBy=timers.target
"""


def render_service(matrix: Matrix, *, folder: str = TEXTFILES) -> str:
    """Return the unit that asks once.

    Args:
        matrix: How old the file may get.
        folder: Where node_exporter on the nodes looks for textfiles.

    Raises:
        UsageError: The folder is not an absolute path that a unit can name.
    """
    if not _FOLDER.fullmatch(folder) or ".." in folder.split("/"):
        raise UsageError(
            "the folder for textfiles is not an absolute path of letters, digits and `._-`",
            hints=(f"Debian's node_exporter reads `{TEXTFILES}`",),
        )
    return _SERVICE.format(
        dated=matrix.dated, folder=folder.rstrip("/"), file=TEXTFILE, expect=EXPECT, seconds=_seconds(matrix)
    )


def render_timer(matrix: Matrix) -> str:
    """Return the unit that has it asked often enough: three runs must be missed before the file counts as stale."""
    return _TIMER.format(dated=matrix.dated, seconds=_seconds(matrix))


def _seconds(matrix: Matrix) -> int:
    return int(matrix.limit("mon.textfile-age") / _MISSED)
