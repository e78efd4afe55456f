"""The Prometheus server that a fleet is asked of: its flags, and the connection that they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from provision.cli.parser import add_value, parse_path
from provision.errors import UsageError

if TYPE_CHECKING:
    from provision.probe.prometheus import Alertmanager, Prometheus

_PASSWORD_BYTES_MAX = 4096


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a server and who asks it."""
    group = parser.add_argument_group("Prometheus server")
    add_value(group, "--prometheus", "URL", "Prometheus server")
    add_value(group, "--user", "NAME", "user name for basic authentication")
    add_value(group, "--password-file", "FILE", "file whose first line is the password", parse_path)
    add_value(group, "--ca", "FILE", "CA certificates for the server", parse_path)


def connect(options: argparse.Namespace, action: str) -> Prometheus:
    """Return the Prometheus server of the flags; nothing is asked yet.

    Raises:
        UsageError: No server is named, or it cannot be asked like this.
    """
    from provision.probe.prometheus import Prometheus

    if options.prometheus is None:
        raise UsageError(
            "the server is missing",
            hints=(f"name it: `provision fleet {action} --prometheus https://prometheus.example:9090`",),
        )
    return Prometheus(options.prometheus, **_access(options))


def connect_alertmanager(options: argparse.Namespace) -> Alertmanager | None:
    """Return the Alertmanager of the flags, reached as the Prometheus server is; nothing is asked yet.

    Raises:
        UsageError: It cannot be asked like this.
    """
    from provision.probe.prometheus import Alertmanager

    return None if options.alertmanager is None else Alertmanager(options.alertmanager, **_access(options))


def _access(options: argparse.Namespace) -> dict[str, Any]:
    return {"user": options.user, "password": _read_password(options), "authority": options.ca}


def _read_password(options: argparse.Namespace) -> str | None:
    from provision.files import read_text

    if (options.user is None) != (options.password_file is None):
        raise UsageError("--user and --password-file go together", hints=("name both, or none",))
    if options.password_file is None:
        return None
    lines = read_text(options.password_file, "--password-file", bytes_max=_PASSWORD_BYTES_MAX).splitlines()
    return lines[0] if lines else ""
