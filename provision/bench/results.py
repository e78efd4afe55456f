"""What was measured: a document that can be read again, gone on with and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from provision.errors import UsageError
from provision.records import plain, record

SCHEMA_VERSION = 1
_BYTES_MAX = 64 * 2**20
_STATUSES = ("ok", "failed", "skipped")


@record
class Figure:
    """One case as it was measured.

    ``seconds`` is the median of ``repeats`` repetitions and ``spread_seconds`` their median absolute deviation;
    ``rate`` is work in a second, in ``unit``. ``flop`` and ``bytes`` are what one repetition computes and moves at
    least. ``clocks`` holds what nvidia-smi said before and after. ``reason`` says why there is no figure.
    """

    id: str
    kind: str
    status: str
    case: Mapping[str, Any]
    seconds: float | None = None
    spread_seconds: float | None = None
    repeats: int = 0
    rate: float | None = None
    unit: str | None = None
    flop: float | None = None
    bytes: float | None = None
    memory_bytes: float | None = None
    clocks: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def noise(self) -> float:
        """Relative standard deviation of one repetition, as the median absolute deviation tells it."""
        return 1.4826 * (self.spread_seconds or 0.0) / self.seconds if self.seconds else 0.0

    @property
    def throttled(self) -> tuple[str, ...]:
        """What slowed the GPU down at the end of the case."""
        return tuple(((self.clocks or {}).get("after") or {}).get("throttled", ()))


@record
class Results:
    """All figures of one machine and environment.

    ``lock_digest`` is that of the provision.lock the environment was made from, where it is known. ``settings`` are the
    suite, the seconds and warm-ups of a case.
    """

    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    figures: tuple[Figure, ...]
    lock_digest: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain data."""
        return {"schema_version": SCHEMA_VERSION, **plain(self)}


def summarise(case: Mapping[str, Any], seconds: Sequence[float], facts: Mapping[str, Any]) -> Figure:
    """Return the figure of a case from its single timings.

    Args:
        case: The workload.
        seconds: One timing a repetition.
        facts: What the workload says of itself: ``work`` and its ``unit``, ``flop``, ``bytes``.
    """
    middle = median(seconds)
    return Figure(
        id=case["id"],
        kind=case["kind"],
        status="ok",
        case=case,
        seconds=middle,
        spread_seconds=median([abs(value - middle) for value in seconds]),
        repeats=len(seconds),
        rate=facts["work"] / middle if middle > 0 else None,
        unit=facts["unit"],
        flop=facts.get("flop"),
        bytes=facts.get("bytes"),
        memory_bytes=facts.get("memory_bytes"),
        clocks=facts.get("clocks") or None,
        reason=facts.get("note"),
    )


def median(values: Sequence[float]) -> float:
    """Return the middle value, between two the mean of them."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def read_results(path: Path) -> Results:
    """Read results that were written before.

    Raises:
        UsageError: The file cannot be read or holds no such results.
    """
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise UsageError(f"{path} is larger than {_BYTES_MAX // 2**20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read", because=(error.strerror or str(error),)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON", because=(str(error),)) from error
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    try:
        if document["schema_version"] != SCHEMA_VERSION:
            raise UsageError(
                f"{path} is of version {document['schema_version']}, and this program reads {SCHEMA_VERSION}"
            )
        figures = tuple(Figure(**figure) for figure in document["figures"])
        results = Results(
            machine=document["machine"],
            settings=document["settings"],
            figures=figures,
            lock_digest=document.get("lock_digest"),
        )
        if any(figure.status not in _STATUSES or not isinstance(figure.case, dict) for figure in figures):
            raise UsageError(f"{path} holds a figure that says neither ok nor failed nor skipped")
        for figure in figures:
            if figure.status == "ok" and not (isinstance(figure.seconds, (int, float)) and 0 < figure.seconds < inf):
                raise UsageError(f"{path}: `{figure.id}` has no time")
    except (KeyError, TypeError, AttributeError) as error:
        said = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path} holds no results of `provision bench`", because=(said,)) from error
    return results
