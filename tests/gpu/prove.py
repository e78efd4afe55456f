"""Run everything GPU-shaped on a real GPU, offline, and keep the record: ``make gpu``.

usage: prove.py [--python PROGRAM] [--out FOLDER] [--minutes N] [--only STEP,…] [--replace] [--list]

It needs Linux with an NVIDIA driver, a Python that provision runs with and, for what concerns frameworks, one with
PyTorch. Nothing is downloaded and no setting of a GPU is changed. What is absent is skipped with its reason. The record
grows step by step in ``docs/proof/GPU-DATE/`` (``proof_record.py`` says what is in it), so that a run which is ended
leaves one.

The exit code is 0 when nothing failed, 6 when a step did, 7 where there is no GPU, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXIT_FAILED, EXIT_USAGE, EXIT_ABSENT = 6, 2, 7


def main() -> int:
    """Run the steps and return the exit code."""
    # The checkout is what is proved, installed or not.
    sys.path.insert(0, str(ROOT))
    options = read_arguments()
    try:
        from proof_steps import STEPS, Proof, find_gpus, run_steps
    except ImportError as error:
        print(f"make gpu: {sys.executable} cannot import {error.name}: install it, or bring its wheel", file=sys.stderr)
        return EXIT_ABSENT
    if options.list:
        print("\n".join(f"{step.id}: {step.title}" for step in STEPS))
        return 0
    only = tuple(part for part in (options.only or "").split(",") if part)
    unknown = [name for name in only if not any(step.id.startswith(name) for step in STEPS)]
    if unknown:
        print(f"make gpu: no step begins with `{unknown[0]}`; `--list` shows them", file=sys.stderr)
        return EXIT_USAGE
    gpus, why = find_gpus()
    if not gpus:
        print(f"make gpu: there is no NVIDIA GPU here ({why}), so nothing was proved", file=sys.stderr)
        return EXIT_ABSENT
    name = re.sub(r"[^a-z0-9]+", "-", gpus[0].lower().replace("nvidia", "")).strip("-") or "gpu"
    folder = options.out or ROOT / "docs" / "proof" / f"{name}-{datetime.now(UTC).date().isoformat()}"
    if folder.is_dir() and any(folder.iterdir()) and not options.replace:
        print(f"make gpu: {folder} is not empty: name another with --out, or add --replace", file=sys.stderr)
        return EXIT_USAGE
    with tempfile.TemporaryDirectory(prefix="provision-proof-") as scratch:
        proof = Proof(
            gpus=tuple(gpus), python=options.python, folder=folder, scratch=Path(scratch), minutes=options.minutes
        )
        record = run_steps(proof, only)
    print(f"{folder / 'report.md'}: {record.summary()}")
    return 0 if record.is_green else EXIT_FAILED


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], prog="make gpu")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python with PyTorch (looked for on PATH)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the record (docs/proof/GPU-DATE)")
    parser.add_argument("--minutes", type=float, default=9.0, metavar="N", help="begin no step after this time (9)")
    parser.add_argument("--only", metavar="STEPS", help="steps whose id begins so, comma between")
    parser.add_argument("--replace", action="store_true", help="write over a record that is there")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
