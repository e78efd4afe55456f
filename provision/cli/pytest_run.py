"""``provision verify --pytest``: the same checks as pytest tests, for those who collect their results there."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from urllib.parse import quote

from provision.cli.output import Output
from provision.cli.targets import targets_of
from provision.errors import MissingDependencyError, UsageError, VerificationFailedError, install_command
from provision.probe.targets import Target

_TESTS_FAILED = 1
_INTERRUPTED = 2


def run_pytest(options: argparse.Namespace, output: Output) -> int:
    """Run pytest over the targets as testinfra hosts and return this program's exit code.

    Raises:
        MissingDependencyError: pytest-testinfra is not installed.
        UsageError: A target has no testinfra backend, or a flag has no meaning there.
    """
    if importlib.util.find_spec("testinfra") is None:
        raise MissingDependencyError(
            "--pytest needs pytest-testinfra", hints=(f"install it with {install_command('verify')}",)
        )
    refused = [
        flag
        for flag, value in (
            ("--only", options.only),
            ("--skip", options.skip),
            ("--diff-fleet", options.diff_fleet),
            ("--html", options.html),
            ("--prometheus", options.prometheus),
            ("--merge", options.merge),
            ("--from", options.bundles),
            ("--disruptive", options.is_disruptive),
            ("--timeout", options.timeout),
            ("--json", output.is_json),
        )
        if value not in (None, False, [])
    ]
    if refused:
        raise UsageError(
            f"{refused[0]} has no meaning with --pytest",
            hints=("leave one of the two out; pytest chooses tests with `-k` in PYTEST_ADDOPTS",),
        )
    targets = targets_of(options)
    planned = next((target.name for target in targets if target.expect), None)
    if planned is not None:
        raise UsageError(
            f"the inventory expects something of `{planned}` that the tests would not know",
            hints=("run without --pytest, or name the hosts and give --expect FILE",),
        )
    hosts = [name_host(target, options.connect_timeout) for target in targets]
    words = [sys.executable, "-m", "pytest", "--pyargs", "provision.verify.testinfra"]
    words += [
        "-p",
        "provision.verify.testinfra.plugin",
        "-p",
        "no:cacheprovider",
        f"--rootdir={_here()}",
        "-c",
        "/dev/null",
    ]
    words += [f"--hosts={','.join(hosts)}"]
    words += [f"--provision-level={options.level}", f"--provision-fail-on={options.fail_on}"]
    for flag, value in (
        ("--provision-lock", options.lock),
        ("--provision-expect", options.expect),
        ("--provision-gpus", options.gpus),
        ("--provision-python", options.python),
        ("--provision-data-dir", options.data_dir),
        ("--junit-xml", options.junit),
    ):
        if value is not None:
            words.append(f"{flag}={value}")
    done = subprocess.run(words, check=False)
    if done.returncode == 0:
        return 0
    if done.returncode == _TESTS_FAILED:
        return VerificationFailedError.exit_code
    if done.returncode == _INTERRUPTED:
        raise KeyboardInterrupt
    raise UsageError("pytest did not run the tests", because=(f"it ended with {done.returncode}",))


def _here() -> str:
    from pathlib import Path

    return str(Path.cwd())


def name_host(target: Target, connect_seconds: int | None = None) -> str:
    """Return a target as testinfra writes it.

    Args:
        target: Where to look.
        connect_seconds: Limit for a connection of ssh to come about, where it is not testinfra's own.

    Raises:
        UsageError: testinfra reaches no such target.
    """
    if target.kind == "local":
        return "local://"
    if target.kind == "ssh":
        user = f"{target.user}@" if target.user else ""
        host = f"[{target.host}]" if ":" in target.host else target.host
        port = f":{target.port}" if target.port is not None else ""
        settings = {
            "ssh_config": target.config,
            "ssh_identity_file": target.identity,
            "timeout": "" if connect_seconds is None else str(connect_seconds),
        }
        if target.jump:
            raise UsageError(
                f"`{target.name}` is behind a jump host, which testinfra takes from a configuration only",
                hints=("write `ProxyJump` into an ssh configuration and name it with `--ssh-config FILE`",),
            )
        return f"ssh://{user}{host}{port}{_query(settings.items())}"
    if target.kind in ("docker", "podman"):
        return f"{target.kind}://{target.container}"
    if target.kind == "kubectl":
        settings = {"namespace": target.namespace, "container": target.container, "context": target.context}
        return f"kubectl://{target.pod}{_query(settings.items())}"
    raise UsageError(
        f"`{target.name}` is an image, and testinfra looks into running containers only",
        hints=("start it, then name the container as in `docker://NAME`",),
    )


def _query(settings: Iterable[tuple[str, str]]) -> str:
    given = "&".join(f"{name}={quote(value)}" for name, value in settings if value)
    return f"?{given}" if given else ""
