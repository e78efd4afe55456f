"""The baseline of a run: known findings are taken out of it, or written."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from provision.audit.baseline import Known, baseline_document, read_baseline, split
from provision.audit.engine import Report
from provision.cli.check.scope import Scopes
from provision.cli.output import Output
from provision.errors import UsageError

_BYTES_MAX = 16 * 1024 * 1024
_SHOWN = 3


def write_known(path: Path, report: Report, output: Output) -> None:
    """Write every finding of a report as known."""
    document = baseline_document(report.findings, report.sources, _namer(path))
    output.save(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    count = len(report.findings)
    text = f"{count} {'finding is' if count == 1 else 'findings are'} known from now on"
    output.give({"baseline": path.as_posix(), "known": count}, text)


def tell_known(path: Path | None, report: Report, scopes: Scopes, output: Output) -> list[Known]:
    """Take the findings of baselines out of a report, and tell which of their entries have no finding left.

    Args:
        path: The baseline of the flag, ``None`` for those of the settings.
        report: The report; what is known moves from its findings.
        scopes: Knows the settings of each file, and the rules that ran over it.
        output: Tells what is gone.

    Raises:
        UsageError: A baseline cannot be read, or is none.
    """
    files = {source: path or scopes.config(source).baseline for source in report.sources}
    gone: list[Known] = []
    for baseline in sorted({item for item in files.values() if item is not None}):
        name = _namer(baseline)
        entries = _read(baseline)
        own = {name(file) for file, other in files.items() if other == baseline}
        mine = [item for item in report.findings if files.get(item.span.file) == baseline]
        _, old, left = split(mine, report.sources, entries, name)
        is_old = set(map(id, old))
        report.known += old
        report.findings = [item for item in report.findings if id(item) not in is_old]
        ran = set(report.rules)
        lost = [item for item in left if item.rule in ran and (item.file in own or _is_missing(baseline, item))]
        if lost:
            _tell(baseline, lost, output)
        gone += lost
    return gone


def _tell(baseline: Path, lost: list[Known], output: Output) -> None:
    named = [f"{item.rule} in {item.file}: `{item.text}`" for item in lost[:_SHOWN]]
    if len(lost) > _SHOWN:
        named.append(f"{len(lost) - _SHOWN} more")
    output.warn(
        f"{len(lost)} of the findings in {baseline.as_posix()} {'is' if len(lost) == 1 else 'are'} gone: "
        f"{'; '.join(named)}; `--write-baseline {baseline.as_posix()}` writes what is left"
    )


def _read(path: Path) -> Counter[Known]:
    from provision.files import read_text

    text = read_text(path, "--baseline", bytes_max=_BYTES_MAX)
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        hints = (f"`--write-baseline {path.as_posix()}` writes one",)
        raise UsageError(f"{path.as_posix()} is not a baseline of check", because=(str(error),), hints=hints) from error
    return read_baseline(data, path.as_posix())


def _namer(path: Path) -> Callable[[str], str]:
    """Return what turns a file into its name in a baseline: its path from the folder that the baseline lies in."""
    folder = path.absolute().parent
    return lambda file: Path(os.path.relpath(Path(file).absolute(), folder)).as_posix()


def _is_missing(path: Path, entry: Known) -> bool:
    return not (path.absolute().parent / entry.file).exists()
