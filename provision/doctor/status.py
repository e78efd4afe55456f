"""Statuses of CUDA and its libraries by name, sentence or number, for texts that no message of a diagnosis is in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from provision.doctor.case import Case, Quote
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.matrix.model import ApiError

_SPEAKERS = {
    "cuda": r"(?<![\w/\\.-])cuda(?!_?(?:home|path|root|visible|version))\w{0,40}|\bcu(?:Init|Ctx|Device|Mem|Module"
    r"|Launch|Stream|Event|Get|Func|Link|Graph|Tex|Array|IpcGet|IpcOpen|DriverGet)\w{0,40}"
    r"|\bCUresult|\bGPUassert|\bnvcuda\w{0,12}",
    "cublas": r"\bcublas\w{0,40}",
    "cudnn": r"\bcudnn\w{0,40}",
    "nccl": r"\bnccl\w{0,40}",
    "nvml": r"\bnvml\w{0,40}",
    "nvrtc": r"\bnvrtc\w{0,40}",
}
"""Library → how lines name it or its functions; what is not here is told by the names of its statuses alone."""

_FAILED = (
    r"(?:\(.{0,60}?\))?(?:(?!exit)[^0-9\n]){0,40}?(?:error|failure|err|failed|code|status|returned|result|errno)"
    r"(?: (?:with|code|number|no|status|error|value|returned|of|result))*\W{0,5}"
)
_NUMBER = r"(?P<number>[0-9]{1,4})\b(?![.:x][0-9]|\s?(?:/|%|[KMG]i?B\b|times\b|devices?\b|GPUs?\b|of\b))"


def read_status(case: Case) -> tuple[str, Sign] | None:
    """Return the diagnosis of the first status in a pasted text: by its name, else its sentence, else its number."""
    rows: Sequence[ApiError] = case.matrix.rows("diagnoses.toml", "api_error")
    names = dict(case.texts)
    for row, quote in (*_named(case, rows), *_said(case, rows), *_numbered(case, rows)):
        if quote.where in names and (sign := hint(quote)) is not None:
            return row.diagnosis, sign
    return None


def _named(case: Case, rows: Iterable[ApiError]) -> Iterator[tuple[ApiError, Quote]]:
    by_name = {name.lower(): row for row in rows for name in row.names}
    for quote in case.find_all(rf"(?<![A-Za-z0-9])(?P<name>{_any_of(by_name)})(?![A-Za-z0-9_])"):
        yield by_name[quote.match["name"].lower()], quote


def _said(case: Case, rows: Sequence[ApiError]) -> Iterator[tuple[ApiError, Quote]]:
    for library, speaker in _SPEAKERS.items():
        by_sentence = {row.says.lower(): row for row in rows if row.library == library and row.says}
        if not by_sentence:
            continue
        for quote in case.find_all(rf"(?:{speaker}).{{0,120}}?\b(?P<says>{_any_of(by_sentence)})(?![A-Za-z0-9_])"):
            yield by_sentence[quote.match["says"].lower()], quote


def _numbered(case: Case, rows: Sequence[ApiError]) -> Iterator[tuple[ApiError, Quote]]:
    for library, speaker in _SPEAKERS.items():
        by_number = {row.number: row for row in rows if row.library == library}
        for quote in case.find_all(rf"(?:{speaker}){_FAILED}{_NUMBER}"):
            row = by_number.get(int(quote.match["number"]))
            if row is not None:
                yield row, quote


def _any_of(words: Iterable[str]) -> str:
    """Return an expression for any of some words, the longest first, so that none hides a longer one."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
