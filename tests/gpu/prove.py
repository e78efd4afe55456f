"""Run everything GPU-shaped on a real GPU, offline, and keep the record: ``make gpu``.

usage: prove.py [--python PROGRAM] [--out FOLDER] [--minutes N] [--only STEP,…] [--resume | --replace] [--list]

It needs Linux with an NVIDIA driver, a Python that provision runs with and, for what concerns frameworks, one with
PyTorch. Nothing is downloaded and no setting of a GPU is changed. What is absent is skipped with its reason. The record
grows step by step in ``docs/proof/GPU-DATE/`` (``proof_record.py`` says what is in it), so that a run which is ended
leaves one.

The exit code is 0 when a step passed and none failed, 6 when a step failed or none passed, 7 where there is no GPU or a
module is missing, and 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXIT_FAILED, EXIT_USAGE, EXIT_ABSENT, EXIT_INTERRUPTED = 6, 2, 7, 130


def main() -> int:
    """Run the steps and return the exit code."""
    options = read_arguments()
    if sys.version_info < (3, 11):  # noqa: UP036 - it runs with whichever Python a machine has
        print(f"make gpu: provision needs Python 3.11 or newer, and {sys.executable} is older", file=sys.stderr)
        return EXIT_ABSENT
    # The checkout is what is proved, installed or not.
    sys.path.insert(0, str(ROOT))
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
    # Steps run in folders of their own. A link, as in a virtual environment, must stay one.
    python = options.python and os.path.abspath(shutil.which(options.python) or options.python)  # noqa: PTH100
    gpus, why = find_gpus()
    if not gpus:
        print(f"make gpu: there is no NVIDIA GPU here ({why}), so nothing was proved", file=sys.stderr)
        return EXIT_ABSENT
    name = re.sub(r"[^a-z0-9]+", "-", gpus[0].lower().replace("nvidia", "")).strip("-") or "gpu"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    folder = (options.out or ROOT / "docs" / "proof" / f"{name}-{day}").resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (options.replace or options.resume):
        print(f"make gpu: {folder} is not empty: add --resume or --replace, or use another --out", file=sys.stderr)
        return EXIT_USAGE
    # A signal must end what the steps started, and leave the record of those that ended.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # A job in the background ignores it, and so would the programs that are to be interrupted when their time is over.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="provision-proof-") as scratch:
        proof = Proof(gpus=tuple(gpus), python=python, folder=folder, scratch=Path(scratch), minutes=options.minutes)
        if python and not proof.framework:
            print(f"make gpu: `{options.python}` cannot import torch: name a Python with PyTorch", file=sys.stderr)
            return EXIT_USAGE
        if options.replace:
            for path in (folder / "report.json", folder / "report.md", *folder.glob("bench-*.json")):
                path.unlink(missing_ok=True)
            (folder / "captures.tar.gz").unlink(missing_ok=True)
        try:
            record = run_steps(proof, only)
        except ValueError as error:
            print(f"make gpu: {error}; write another with --out, or overwrite it with --replace", file=sys.stderr)
            return EXIT_USAGE
        except KeyboardInterrupt:
            print(f"make gpu: interrupted; {folder} holds what had ended by then", file=sys.stderr)
            return EXIT_INTERRUPTED
    print(f"{folder / 'report.md'}: {record.summary()}")
    return 0 if record.is_green else EXIT_FAILED


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    what = "Run every GPU-dependent part of provision on this machine's GPU and keep a record."
    parser = argparse.ArgumentParser(description=what, prog="prove.py")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python with PyTorch (looked for on PATH)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the record (docs/proof/GPU-DATE)")
    parser.add_argument("--minutes", type=float, default=9.0, metavar="N", help="start no step after N minutes (9)")
    parser.add_argument("--only", metavar="STEPS", help="only steps whose id starts so (comma-separated)")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="add the steps that a record lacks to it")
    again.add_argument("--replace", action="store_true", help="overwrite a record")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
