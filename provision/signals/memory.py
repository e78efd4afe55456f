"""The memory of the GPUs: errors, spare rows, retired pages."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import FieldReading, is_field_told, judge_field, judge_gpus, name_gpu, read_field
from provision.signals.signal import Signal


def gpu_ecc_uncorrected(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count volatile uncorrectable errors of all kinds."""
    maximum = matrix.limit("gpu.ecc.uncorrected.maximum")
    return judge_field(
        host.smi.gpus,
        "ecc_volatile_uncorrectable",
        lambda count: f"has {count} uncorrectable errors" if count > maximum else None,
        fine="no uncorrectable error since the driver loaded",
        expected=f"{maximum:.0f}",
    )


def gpu_ecc_corrected(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count corrected errors over the life of the board: of all memories, and of SRAM alone."""
    limits = {
        "ecc_aggregate_correctable": ("corrected errors", matrix.limit("gpu.ecc.corrected.maximum")),
        "ecc_aggregate_sram_correctable": ("corrected SRAM errors", matrix.limit("gpu.ecc.corrected.sram.maximum")),
    }
    readings = [
        FieldReading(gpu, None if count is None else count < maximum, f"has {count} {what}", absence, field, "medium")
        for gpu in host.smi.gpus
        for field, (what, maximum) in limits.items()
        for count, absence in [read_field(gpu, field)]
    ]
    every = [gpu.ecc_aggregate_correctable for gpu in host.smi.gpus if gpu.ecc_aggregate_correctable is not None]
    return judge_gpus(
        readings,
        fine=f"at most {max(every)} corrected errors on a GPU" if every else "few corrected errors",
        expected=", ".join(f"fewer than {maximum:.0f} {what}" for what, maximum in limits.values()),
    )


def gpu_ecc_sram_threshold(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read the flag the GPU sets itself."""
    return judge_field(
        host.smi.gpus,
        "sram_threshold_exceeded",
        lambda is_exceeded: "has exceeded its SRAM error threshold" if is_exceeded else None,
        fine="no SRAM error threshold exceeded",
        expected="No",
        is_told=is_field_told(host.smi, matrix, "sram-threshold"),
    )


_REPAIRS = {
    "remap_pending": "a row remap",
    "channel_repair_pending": "a channel repair",
    "tpc_repair_pending": "a processing-cluster repair",
}


def gpu_remap_pending(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask each GPU for each of the three repairs that a reset completes."""
    readings = [
        FieldReading(gpu, None if waits is None else not waits, f"waits for {what}", absence, field)
        for gpu in host.smi.gpus
        for field, what in _REPAIRS.items()
        for waits, absence in [read_field(gpu, field)]
    ]
    return judge_gpus(
        readings,
        fine="no GPU waits for a repair",
        expected="no repair pending",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
    )


def gpu_remap_failure(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read the flag the GPU sets when a bank has no row to spare."""
    return judge_field(
        host.smi.gpus,
        "remap_failure",
        lambda has_failed: "failed to remap a memory row" if has_failed else None,
        fine="no row remap failed",
        expected="No",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
    )


def gpu_remap_count(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count rows remapped for uncorrectable errors."""
    maximum = matrix.limit("gpu.remap.count.maximum")
    return judge_field(
        host.smi.gpus,
        "remapped_uncorrectable",
        lambda count: f"has {count} rows remapped for uncorrectable errors" if count >= maximum else None,
        fine="rows to spare on every GPU",
        expected=f"fewer than {maximum:.0f}",
        is_told=is_field_told(host.smi, matrix, "remapped-rows"),
        certainty="medium",
    )


def gpu_retired(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Add pages retired for single-bit and double-bit errors, and look for one that waits for a reset."""
    maximum, notice = matrix.limit("gpu.retired.maximum"), matrix.limit("gpu.retired.notice")
    readings: list[FieldReading] = []
    noticed: list[str] = []
    for gpu in host.smi.gpus:
        pages, absence = _retired_pages(gpu)
        is_fine = None if pages is None else pages < maximum
        readings.append(FieldReading(gpu, is_fine, f"has {pages} retired pages", absence, "pages", "medium"))
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


def _retired_pages(gpu: SmiGpu) -> tuple[int | None, str]:
    counts = [read_field(gpu, field) for field in ("retired_single", "retired_double")]
    known = [count for count, _ in counts if count is not None]
    if len(known) == len(counts):
        return sum(known), ""
    return None, "broken" if any(absence == "broken" for _, absence in counts) else counts[0][1] or counts[1][1]
