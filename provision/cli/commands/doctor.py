"""Diagnose why a GPU does not work: what was seen, what was expected, the cause and the fix.

Targets are those of `provision verify`; the default is this machine. --from reads what was recorded elsewhere: a
bundle, nvidia-bug-report.log.gz, a sosreport or must-gather, nvidia-smi (table, -q, -q -x), DCGM's JSON,
torch.utils.collect_env, pip or conda list, journalctl -o export or json. --text explains an error message, the log of a
program, or a folder with one log per rank of a job; --xid explains an Xid error number of the driver. Both are combined
with what a target shows.

Causes are listed from the lowest layer up, each with the symptoms it explains. Nothing is changed: --fix prints a plan,
and --fix --yes runs those of its steps that can be undone.

The exit code is 0 when no cause was found or a text was explained, 6 when a target has a cause of failure or a repair
left steps to do, 4 when a text or number is unknown to the facts, 7 when a target cannot be reached or has no GPU.

Examples:
  provision doctor
  provision doctor ssh://gpu001
  provision doctor --text train.log
  provision doctor --xid 79
  provision doctor --from nvidia-bug-report.log.gz
  provision doctor --fix
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.log_file import read_log
from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.cli.targets import add_probe_flags, add_target_flags, collect_from, has_no_gpu, has_targets
from provision.cli.text.diagnosis import ranks_document, report_document, show_report, show_xid, xid_document
from provision.cli.text.paragraph import columns_of, wrap
from provision.doctor.case import Case
from provision.doctor.engine import Report, diagnose
from provision.doctor.needles import keep_needles
from provision.doctor.ranks import Ranks, read_ranks
from provision.doctor.suspect import find_suspect, name_versions
from provision.errors import MissingDependencyError, UnknownError, UsageError, VerificationFailedError, shown
from provision.matrix.load import Matrix
from provision.probe.clean import clean_line
from provision.probe.recordings.archive import holds_files, read_members
from provision.probe.snapshot import Snapshot

if TYPE_CHECKING:
    from provision.probe.collect import Collection

_TEXT_BYTES_MAX = 64 * 1024 * 1024
_CODE_MAX = 9999
_LOOK_HINT = "let `provision doctor ssh://host --text error.log` look at the machine as well"
_NCCL_HINT = "run it with `NCCL_DEBUG=INFO` and give that log: there NCCL says what failed before this"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_target_flags(parser)
    add_probe_flags(parser)
    group = parser.add_argument_group("other symptoms")
    add_value(
        group,
        "--text",
        "FILE",
        "explain an error message, a log, or a folder with the logs of a job's ranks (- is stdin)",
        parse_path,
    )
    add_value(group, "--xid", "N", "explain an Xid error number", whole("--xid", 0, _CODE_MAX, example="79"))
    group = parser.add_argument_group("fixing and reporting")
    add_switch(group, "--fix", "show the steps that --yes would run, and those to do by hand")
    add_switch(group, "--yes", "with --fix: run the steps that can be undone")
    add_value(group, "--bundle", "FILE", "write what was collected to a file, without secrets", parse_path)
    add_switch(group, "--mask", "with --bundle: also replace addresses, names and serial numbers")


def run(options: argparse.Namespace, output: Output) -> int:
    """Diagnose every target, or the text alone."""
    _check_flags(options)
    matrix = read_matrix(options)
    texts = _read_texts(options)
    is_target = has_targets(options) or not (texts or options.xid is not None)
    if not is_target:
        return _explain(options, matrix, texts, output)
    collection = collect_from(options, output)
    snapshots = collection.snapshots
    documents: list[dict[str, Any]] = []
    pages: list[str] = []
    reports: dict[str, Report] = {}
    for name, report in _diagnose_each(matrix, snapshots, texts, options.xid):
        reports[name] = report
        host = snapshots[name]
        documents.append({"target": name, **report_document(report)})
        pages.append(show_report(name, report, output, matrix, is_bare=has_no_gpu(host)))
    if options.bundle is not None:
        _write_bundle(options, collection, documents, matrix.dated, output)
    if options.fix:
        from provision.cli.repair import repair

        def look_again() -> Mapping[str, Report]:
            return dict(_diagnose_each(matrix, collect_from(options, output).snapshots, texts, options.xid))

        bare = [name for name, host in snapshots.items() if has_no_gpu(host)]
        if bare and not any(report.causes for report in reports.values()):
            raise MissingDependencyError(
                f"no NVIDIA GPU is visible on {', '.join(bare)}, so there is nothing to repair",
                hints=("`provision doctor` without `--fix` shows what was seen",),
            )
        return repair(reports, collection.unreachable, options, output, look_again)
    unreachable = [{"target": name, "reason": why} for name, why in collection.unreachable.items()]
    for name, why in collection.unreachable.items():
        pages.append("\n".join(wrap(clean_line(f"{name}: {why}", 2000), columns_of(output), hanging=3)))
    output.note(f"facts of {matrix.dated}")
    document = {"targets": documents, "unreachable": unreachable}
    if any(report.causes for report in reports.values()):
        output.give({**document, "ok": False}, "\n\n".join(pages), is_ok=False)
        return VerificationFailedError.exit_code
    bare = [name for name, host in snapshots.items() if has_no_gpu(host)]
    is_ok = not (unreachable or bare)
    output.give({**document, "ok": is_ok}, "\n\n".join(pages), is_ok=is_ok)
    if bare:
        output.warn(f"no NVIDIA GPU is visible on {', '.join(bare)}, so little could be judged there")
    return MissingDependencyError.exit_code if unreachable or bare else 0


def _diagnose_each(
    matrix: Matrix, snapshots: Mapping[str, Snapshot], texts: list[tuple[str, str]], xid: int | None
) -> Iterator[tuple[str, Report]]:
    """Yield what is found on each target, which is compared with the others, in order."""
    xids = () if xid is None else (xid,)
    for name, host in snapshots.items():
        others = [other for key, other in snapshots.items() if key != name]
        yield name, diagnose(Case(matrix, host, texts, xids, others=others))


def _check_flags(options: argparse.Namespace) -> None:
    if options.yes and not options.fix:
        raise UsageError("--yes without --fix does nothing", hints=("write `--fix --yes`, or leave it out",))
    if options.mask and options.bundle is None:
        raise UsageError("--mask without --bundle does nothing", hints=("write `--bundle FILE --mask`",))
    if options.fix and not has_targets(options) and (options.text is not None or options.xid is not None):
        raise UsageError(
            "--fix needs a target",
            because=("a text or a number says what is wrong, not where",),
            hints=("name it, as in `provision doctor ssh://gpu001 --text error.log --fix`",),
        )
    if options.fix and getattr(options, "bundles", None):
        raise UsageError("--fix needs a live target, and a bundle is a record of one")


def _read_texts(options: argparse.Namespace) -> list[tuple[str, str]]:
    if options.text is None:
        return []
    if str(options.text) != "-" and holds_files(options.text):
        return _read_logs(options.text)
    name = "the standard input" if str(options.text) == "-" else Path(options.text).name
    return [(shown(name), read_log(options.text, "--text", bytes_max=_TEXT_BYTES_MAX))]


def _read_logs(path: Path) -> list[tuple[str, str]]:
    """Return the logs of a folder or an archive."""
    from provision.probe.clean import clean

    texts: list[tuple[str, str]] = []
    left = _TEXT_BYTES_MAX
    for member in read_members(path):
        if b"\x00" in member.content[:4096] or not member.content.strip():
            continue
        left -= len(member.content)
        if left < 0:
            raise UsageError(
                f"--text: {path} holds more than {_TEXT_BYTES_MAX >> 20} MiB of text",
                hints=("give the logs of one job alone",),
            )
        text = member.content.decode("utf-8", "replace").removeprefix("\ufeff")
        texts.append((shown(member.name), clean(text.replace("\r\n", "\n").replace("\r", "\n"))))
    if not texts:
        raise UsageError(f"--text: {path} holds no log", hints=("name the folder that the logs lie in",))
    return texts


def _explain(options: argparse.Namespace, matrix: Matrix, texts: list[tuple[str, str]], output: Output) -> int:
    """Explain a text or a number that comes without a target."""
    codes = () if options.xid is None else (options.xid,)
    ranks = read_ranks(texts) if len(texts) > 1 else None
    report, texts = _diagnose_texts(matrix, texts, codes, ranks)
    keep_needles()
    row = matrix.xids.get(options.xid) if options.xid is not None else None
    if options.xid is not None and row is None:
        raise UnknownError(
            f"Xid {options.xid} is not in the catalogue",
            hints=("`provision doctor --text dmesg.log` reads the driver's whole message",),
        )
    if row is None and not (report.causes or report.notes):
        raise _unknown(texts[0][0], texts[0][1], matrix, ranks.say() if ranks is not None else ())
    document = report_document(report)
    if ranks is not None:
        document["ranks"] = ranks_document(ranks)
    pages = []
    if row is not None:
        document["xid"] = xid_document(row, matrix)
        pages.append(show_xid(row, output))
    if ranks is not None:
        pages.append("\n".join(line for said in ranks.say() for line in wrap(said, columns_of(output), hanging=2)))
    if report.causes or report.notes:
        pages.append(show_report(texts[0][0] if texts else f"Xid {options.xid}", report, output, matrix))
    output.note(f"facts of {matrix.dated}")
    output.give(document, "\n\n".join(pages))
    return 0


def _diagnose_texts(
    matrix: Matrix, texts: list[tuple[str, str]], codes: tuple[int, ...], ranks: Ranks | None
) -> tuple[Report, list[tuple[str, str]]]:
    """Return what is found and the texts it was found in: where a rank failed first, its own say why."""
    of_others = (
        frozenset(name for names in ranks.names.values() for name in names) if ranks is not None else frozenset()
    )
    deciding = ranks.deciding if ranks is not None else frozenset()
    if deciding:
        own = sorted(
            (row for row in texts if row[0] not in of_others - deciding), key=lambda row: row[0] not in deciding
        )
        report = diagnose(Case(matrix, None, own, codes))
        if report.causes:
            return report, own
        texts = [*own, *(row for row in texts if row[0] in of_others - deciding)]
    return diagnose(Case(matrix, None, texts, codes)), texts


def _unknown(name: str, text: str, matrix: Matrix, ranks: Sequence[str] = ()) -> UnknownError:
    """Return the answer to a text that no diagnosis knows: the line that most likely failed, and where to go on."""
    if not text.strip():
        return UnknownError(
            f"nothing in {name} is a known sign of a failure", because=("it is empty",), hints=(_LOOK_HINT,)
        )
    suspect = find_suspect(text)
    case = Case(matrix, None, ((name, text),))
    versions = name_versions(case)
    return UnknownError(
        f"nothing in {name} is a known sign of a failure",
        because=(
            *ranks,
            *((f"line {suspect.number} most likely failed: {suspect.line}",) if suspect else ()),
            *((suspect.where,) if suspect and suspect.where else ()),
            *((f"the text names {', '.join(versions)}",) if versions else ()),
            *(() if suspect else ("no line of it reads like an error",)),
        ),
        hints=(
            *((suspect.next,) if suspect else ()),
            *((_NCCL_HINT,) if re.search("nccl", text, re.IGNORECASE) else ()),
            _LOOK_HINT,
        ),
    )


def _write_bundle(
    options: argparse.Namespace, found: Collection, documents: list[dict[str, Any]], facts_date: str, output: Output
) -> None:
    import json

    from provision.probe.bundle import write_bundle

    extra = {"doctor.json": json.dumps(documents, indent=1) + "\n"}
    if output.is_dry_run:
        output.note(f"would write {options.bundle}")
        return
    write_bundle(
        options.bundle,
        found.snapshots,
        extra,
        facts_date=facts_date,
        unreachable=found.unreachable,
        is_masked=options.mask,
    )
    output.note(f"wrote {options.bundle}")
