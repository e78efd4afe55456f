"""What a spot instance is given so that it saves, drains and requeues before it is taken back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from provision.assets import asset_dir
from provision.errors import UnknownError, UsageError
from provision.generate.write import Artifact
from provision.matrix.load import Matrix
from provision.matrix.model import SpotNotice
from provision.records import record

HANDLER = "/usr/local/lib/provision/spot_notice.py"
SETTINGS = "/etc/provision/spot.json"
UNIT = "/etc/systemd/system/provision-spot.service"
TEXTFILE = "provision_spot.prom"
_ROLE = "roles/gpu_spot/files"
_SCHEMA_VERSION = 1
_FOLDER = re.compile(r"/[A-Za-z0-9][A-Za-z0-9._/-]*")
# A metadata service answers inside of the machine alone, and knows no TLS.
_SCHEME = "http" + "://"


@record
class SpotOptions:
    """What a user decides. Commands are words, run without a shell.

    Attributes:
        provider: Id of a provider, as the facts name it.
        checkpoint: Saves the jobs; has the warning less ``margin_seconds`` and ``reserve_seconds``.
        drain: Takes the node out of service.
        requeue: Has the jobs run elsewhere.
        resume: Puts the node back into service when a notice is taken back.
        hooks: Folder whose executable files run after ``drain``, by name; empty for none.
        textfiles: Folder of node_exporter's textfiles; empty for none.
        advice: What to do when a provider only says that an interruption has become likely: ``ignore``, ``checkpoint``
            or ``drain``.
        margin_seconds: Kept free before the interruption.
        reserve_seconds: Kept from the checkpoint for what follows it.
        warning_seconds: In place of what the facts say, where a longer warning was bought or configured.
        acknowledge: Whether a provider that waits is told once all is done.
    """

    provider: str
    checkpoint: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    requeue: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    hooks: str = ""
    textfiles: str = ""
    advice: str = "ignore"
    margin_seconds: float = 3.0
    reserve_seconds: float = 10.0
    warning_seconds: float | None = None
    acknowledge: bool = True


def providers_with_notices(matrix: Matrix) -> tuple[str, ...]:
    """Return the ids of the providers whose notices the facts know, by letter."""
    return tuple(sorted({row.provider for row in matrix.spot_notices}))


def notices_of(matrix: Matrix, provider: str) -> tuple[SpotNotice, ...]:
    """Return how a provider tells of interruptions and then of their likelihood.

    Raises:
        UnknownError: The facts know no notice of that provider.
    """
    rows = sorted(
        (row for row in matrix.spot_notices if row.provider == provider), key=lambda row: row.kind != "interruption"
    )
    if not rows:
        raise UnknownError(
            f"the facts know no spot notice of `{provider}`",
            hints=(f"those of {', '.join(providers_with_notices(matrix))} are known",),
        )
    return tuple(rows)


def render_notices(matrix: Matrix) -> str:
    """Return what the role is given: provider → its notices, as the handler reads them."""
    rows = {name: [_row(row) for row in notices_of(matrix, name)] for name in providers_with_notices(matrix)}
    return json.dumps(rows, indent=2) + "\n"


def render_settings(matrix: Matrix, options: SpotOptions) -> str:
    """Return the settings of the handler.

    Raises:
        UnknownError: The facts know no notice of that provider.
        UsageError: An option makes no sense, or there is nothing to do when a notice comes.
    """
    rows = [_row(row) for row in notices_of(matrix, options.provider)]
    _check(options, rows)
    if options.warning_seconds is not None:
        for row in rows:
            if row["kind"] == "interruption":
                row["warning_seconds"] = options.warning_seconds
    settings: dict[str, Any] = {
        "schema_version": _SCHEMA_VERSION,
        "notices": rows,
        "checkpoint": list(options.checkpoint),
        "drain": list(options.drain),
        "requeue": list(options.requeue),
        "resume": list(options.resume),
        "hooks": options.hooks,
        "textfile": f"{options.textfiles.rstrip('/')}/{TEXTFILE}" if options.textfiles else "",
        "advice": options.advice,
        "margin_seconds": options.margin_seconds,
        "reserve_seconds": options.reserve_seconds,
        "acknowledge": options.acknowledge,
    }
    return json.dumps(settings, indent=2) + "\n"


def render_spot(matrix: Matrix, options: SpotOptions) -> tuple[Artifact, ...]:
    """Return the handler, its settings and its unit, at their places below the root of a node.

    Raises:
        UnknownError: The facts know no notice of that provider.
        UsageError: An option makes no sense.
    """
    # A command may hold what others need not see.
    settings = Artifact(path=SETTINGS.lstrip("/"), text=render_settings(matrix, options), mode=0o640)
    return (
        settings,
        Artifact(path=UNIT.lstrip("/"), text=_shipped("provision-spot.service")),
        Artifact(path=HANDLER.lstrip("/"), text=_shipped("spot_notice.py"), mode=0o755),
    )


def _shipped(name: str) -> str:
    return (asset_dir("playbooks") / _ROLE / name).read_text(encoding="utf-8")


def _row(row: SpotNotice) -> dict[str, Any]:
    """Return a row as the handler reads it: fields that are unknown are left out."""
    names = ("id", "provider", "kind", "form")
    found: dict[str, Any] = {name: getattr(row, name) for name in names}
    found |= {"address": _SCHEME + row.host, "path": row.path}
    if row.headers:
        found["headers"] = dict(row.headers)
    for name in (
        *("token_path", "token_header", "token_seconds_header", "token_seconds", "name_path", "wait_query"),
        *("utc_offset_hours", "warning_seconds", "poll_seconds"),
    ):
        if getattr(row, name) is not None:
            found[name] = getattr(row, name)
    return found


def _check(options: SpotOptions, rows: Sequence[dict[str, Any]]) -> None:
    if not (options.checkpoint or options.drain or options.requeue or options.hooks):
        raise UsageError(
            "there is nothing to do when a notice comes",
            hints=("give `--checkpoint`, `--drain`, `--requeue` or `--hooks`",),
        )
    if options.resume and not (options.drain or options.requeue or options.hooks):
        raise UsageError("--resume puts back what --drain takes out, and there is no --drain")
    for name, folder in (("--hooks", options.hooks), ("--textfiles", options.textfiles)):
        if folder and (not _FOLDER.fullmatch(folder) or ".." in folder.split("/")):
            raise UsageError(f"{name} is not an absolute path of letters, digits and `._-`")
    warning = options.warning_seconds
    if warning is None:
        known = [row["warning_seconds"] for row in rows if row["kind"] == "interruption" and "warning_seconds" in row]
        warning = min(known) if known else None
    kept = options.margin_seconds + (options.reserve_seconds if options.checkpoint else 0.0)
    if warning is not None and kept >= warning:
        raise UsageError(
            f"nothing of the warning is left for the checkpoint: {warning:g} s less a margin of "
            f"{options.margin_seconds:g} s and a reserve of {options.reserve_seconds:g} s",
            hints=("lower `--reserve-seconds`",),
        )
