"""Few memory pages are retired, and none waits for it."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, judge_gpus, name_gpu, read_field
from provision.verify.outcome import Outcome

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Add pages retired for single-bit and double-bit errors, and look for one that waits for a reset."""
    del expected
    maximum, notice = matrix.limit("gpu.retired.maximum"), matrix.limit("gpu.retired.notice")
    readings: list[FieldReading] = []
    noticed: list[str] = []
    for gpu in host.smi.gpus:
        pages, absence = _pages(gpu)
        readings.append(
            FieldReading(
                gpu, None if pages is None else pages < maximum, f"has {pages} retired pages", absence, "pages"
            )
        )
        waits, absence = read_field(gpu, "retired_pending")
        readings.append(
            FieldReading(gpu, None if waits is None else not waits, "waits to retire a page", absence, "pending")
        )
        if pages is not None and pages > notice:
            noticed.append(f"{name_gpu(gpu)} has {pages} retired pages")
    return judge_gpus(
        readings,
        fine=f"{', '.join(noticed)}, above {notice:.0f}: watch it" if noticed else "no GPU has many retired pages",
        expected=f"fewer than {maximum:.0f} pages, none pending",
    )


def _pages(gpu: SmiGpu) -> tuple[int | None, str]:
    counts = [read_field(gpu, field) for field in ("retired_single", "retired_double")]
    known = [count for count, _ in counts if count is not None]
    if len(known) == len(counts):
        return sum(known), ""
    return None, "broken" if any(absence == "broken" for _, absence in counts) else counts[0][1] or counts[1][1]
