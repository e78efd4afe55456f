"""`provision data refresh` and `diff`: flags in, a plan; an outcome, words out."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.assets import facts_dir, is_installed
from provision.cli.output import Output
from provision.cli.text.bar import Bar
from provision.errors import DriftError, UsageError, shown
from provision.records import plain, replace

if TYPE_CHECKING:
    from provision.refresh.engine import Outcome, Plan
    from provision.refresh.land import Claim

_JOBS = 4
_CHANGELOG_BYTES_MAX = 4 * 1024 * 1024


def refresh(options: argparse.Namespace, output: Output) -> int:
    """Read upstream, show what differs, and write it where that was asked for.

    Raises:
        UsageError: A flag makes no sense.
        MissingDependencyError: Nothing could be read.
        DataError: Upstream contradicts the facts, or the new facts would break a rule.
        DriftError: `--check`, and something would change.
        ActionFailedError: Another refresh of the same facts is at work, or they cannot be written.
    """
    from provision.refresh.land import Claim

    is_writing = options.action == "refresh" and not output.is_dry_run and not options.check
    target, folder = _folders(options, is_writing=is_writing)
    if not is_writing:
        return _refresh(options, output, target, folder, None)
    with Claim(target) as claim:
        return _refresh(options, output, target, folder, claim)


def _refresh(options: argparse.Namespace, output: Output, target: Path, folder: Path, claim: Claim | None) -> int:
    """Read upstream and show what differs; write it where there is a claim."""
    from provision.refresh.client import Client
    from provision.refresh.diff import changelog_lines
    from provision.refresh.engine import Refresh
    from provision.refresh.land import check_result, land

    plan = _plan(options, folder)
    entry_file = _changelog(options)
    client = Client(
        cache=plan.cache,
        concurrency=plan.jobs,
        ca_bundle=plan.index.ca_bundle if plan.index is not None else None,
        proxy=plan.index.proxy if plan.index is not None else None,
    )
    try:
        with Bar(output) as report:
            outcome = Refresh(folder, plan, client, report).run()
    finally:
        client.close()
    check_result(folder, outcome.texts)
    lines = changelog_lines(outcome.changes, plan.dated)
    _warn(outcome, output)
    written: tuple[str, ...] = ()
    if claim is not None and (outcome.texts or target != folder):
        written = land(claim, {**_seed(folder, target), **outcome.texts})
    output.give(_document(outcome, plan, target, lines, written), _text(outcome, target, written, lines, output))
    if entry_file is not None and lines:
        _write_entry(entry_file, lines, output, is_writing=claim is not None)
    if options.check and outcome.changes:
        raise DriftError(
            f"{len(outcome.changes)} rows of {target} differ from upstream",
            hints=("the same command without `--check` writes them",),
        )
    return 0


def _folders(options: argparse.Namespace, *, is_writing: bool) -> tuple[Path, Path]:
    """Return the folder to write, and the one to compare with: the shipped facts where the first is still empty."""
    shipped = facts_dir()
    if options.data_dir is None:
        if is_writing and is_installed():
            raise UsageError(
                "the facts of an installed provision are not written over",
                because=(f"{shipped} belongs to the package",),
                hints=("keep your own with `--data-dir DIR`; every command takes the same flag",),
            )
        return shipped, shipped
    target: Path = options.data_dir
    if target.exists() and not target.is_dir():
        raise UsageError(f"--data-dir: {target} is not a folder", hints=("name a folder laid out like compat/",))
    with suppress(OSError):
        if target.is_dir() and any(target.iterdir()):
            if not (target / "sources.toml").is_file():
                raise UsageError(
                    f"--data-dir: {target} holds other things than facts",
                    because=("there is no sources.toml in it",),
                    hints=("name an empty folder, or one laid out like compat/",),
                )
            return target, target
    return target, shipped


def _seed(folder: Path, target: Path) -> Mapping[str, str]:
    """Return the shipped facts where the folder to write has none yet."""
    if folder == target:
        return {}
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _plan(options: argparse.Namespace, folder: Path) -> Plan:
    from provision.index.address import IndexAddress, known_index
    from provision.refresh.apt import host_mirrors
    from provision.refresh.engine import Plan, read_plan

    words = [word for text in options.only or () for word in text.split(",")]
    if options.only and not any(word.strip() for word in words):
        raise UsageError("--only names nothing", hints=("leave it out to read everything",))
    axes, packages = read_plan([word for word in words if word.strip()], folder)
    index = None
    if options.index_url:
        url = _url("--index-url", options.index_url).rstrip("/")
        index = replace(known_index() or IndexAddress(url=url, told_by=""), url=url, told_by="--index-url")
    elif packages or set(axes) - {"drivers", "cuda", "builds", "ngc", "prebuilt"}:
        index = known_index()
    mirrors = host_mirrors() if "drivers" in axes else {}
    for text in options.apt_mirror or ():
        name, _, url = text.partition("=")
        if name not in ("debian", "ubuntu"):
            raise UsageError(
                f"--apt-mirror `{shown(text)}` names no distribution",
                hints=("write `--apt-mirror debian=URL` or `--apt-mirror ubuntu=URL`",),
            )
        mirrors[name] = _url("--apt-mirror", url).rstrip("/")
    return Plan(
        axes=axes,
        packages=packages,
        index=index,
        mirrors=mirrors,
        pytorch_url=_url("--pytorch-url", options.pytorch_url) if options.pytorch_url else None,
        redistrib_url=_url("--redistrib-url", options.redistrib_url) if options.redistrib_url else None,
        accepted=tuple(_accepted(text) for text in options.accept or ()),
        dated=_day(options.dated),
        jobs=options.jobs or _JOBS,
        cache=options.cache or _cache(),
    )


def _url(flag: str, text: str) -> str:
    if not re.fullmatch(r"https?://[^\s\"'<>]+", text):
        raise UsageError(
            f"{flag} `{shown(text)}` is not an http address", hints=("write it whole: `https://mirror.example/simple`",)
        )
    return text


def _accepted(text: str) -> str:
    from provision.refresh.guard import KINDS

    kind, colon, name = text.partition(":")
    if kind not in KINDS or not colon or not name:
        raise UsageError(
            f"--accept `{shown(text)}` is not an alarm",
            hints=(f"an alarm is one of {', '.join(KINDS)}, a colon and a name, as the refusal prints it",),
        )
    return text


def _day(text: str | None) -> datetime.date:
    if text is None:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--dated `{shown(text)}` is not a day", hints=("write it as YYYY-MM-DD",)) from error


def _cache() -> Path | None:
    from provision.matrix.cache import cache_folder

    folder = cache_folder()
    return folder / "refresh" if folder is not None else None


def _changelog(options: argparse.Namespace) -> Path | None:
    path: Path | None = options.changelog
    if path is not None and not path.is_file():
        raise UsageError(f"--changelog: {path} is not a file", hints=("name the changelog that shall get an entry",))
    return path


def _write_entry(path: Path, lines: list[str], output: Output, *, is_writing: bool) -> None:
    from provision.files import read_text
    from provision.refresh.land import write_entry

    text = read_text(path, "--changelog", bytes_max=_CHANGELOG_BYTES_MAX)
    if is_writing:
        output.save(path, write_entry(text, lines))
    else:
        output.note(f"would add to {path}: {' '.join(lines)}")


def _warn(outcome: Outcome, output: Output) -> None:
    for name, why in sorted(outcome.silent.items()):
        output.warn(f"not read: {name}: {why}; its facts stay as they are")
    for note in outcome.notes:
        output.note(note)
    output.note(f"read {', '.join(outcome.read)}: {outcome.requests} requests, {outcome.received / 1e6:.1f} MB")


def _text(outcome: Outcome, target: Path, written: tuple[str, ...], lines: list[str], output: Output) -> str:
    from provision.refresh.diff import show_changes

    if not outcome.changes:
        return f"{target} has everything that upstream has"
    counts = {kind: sum(change.kind == kind for change in outcome.changes) for kind in ("added", "changed", "removed")}
    rows = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    state = f"wrote {len(written)} files of {target}" if written else f"{target} was not written"
    parts = [show_changes(outcome.changes), "", f"{rows}; {state}"]
    if output.verbosity > 0:
        parts += ["", *lines]
    return "\n".join(parts)


def _document(outcome: Outcome, plan: Plan, target: Path, lines: list[str], written: tuple[str, ...]) -> dict[str, Any]:
    return {
        "folder": str(target),
        "dated": plan.dated.isoformat(),
        "read": list(outcome.read),
        "unreadable": dict(sorted(outcome.silent.items())),
        "notes": list(outcome.notes),
        "changes": [plain(change) for change in outcome.changes],
        "changelog": lines,
        "written": list(written),
        "requests": outcome.requests,
        "received_bytes": outcome.received,
    }
