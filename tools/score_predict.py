"""Score `provision predict` on tables that other projects publish.

    python -m tools.score_predict TABLE [TABLE ...] [--json] [--data-dir FOLDER]

Which table it is, its columns tell; `docs/predict.md` lists them. A table of served models is scored twice: by the time
between tokens, and by the time to the first one. `provision predict --evaluate` does the same with a table whose
columns are the fields of a request.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from provision.cli.text.predict import evaluation_document, show_evaluation
from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.predict.baseline import BASELINES
from provision.predict.evaluation import Evaluation, evaluate
from provision.predict.hardware import Hardware
from provision.predict.predictor import Predictor
from provision.predict.tables import Sheet, detect, read_sheet

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from measured_tables import FIRST_TOKENS, KINDS
from suites import Suite, find_suite, score_suite


def main(arguments: Sequence[str] | None = None) -> int:
    """Score each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="facts to use instead of those of the checkout")
    parser.add_argument("--json", action="store_true", help="one document a table")
    parser.add_argument("--strict", action="store_true", help="a malformed row ends it, instead of counting as missed")
    options = parser.parse_args(arguments)
    try:
        for path in options.tables:
            sheet = read_sheet(path)
            suite = find_suite(sheet)
            if suite is not None:
                _show_suite(path, sheet, suite, is_json=options.json)
                continue
            kind = detect(sheet, KINDS)
            kinds = [kind, FIRST_TOKENS] if FIRST_TOKENS.value in sheet.columns else [kind]
            for each in kinds:
                predictor = Predictor(Matrix(options.data_dir) if options.data_dir else Matrix())
                found = evaluate(sheet, each, predictor, is_strict=options.strict)
                document = {"table": path.name, **evaluation_document(found, BASELINES)}
                print(json.dumps(document) if options.json else f"{path.name}\n{show_evaluation(found, BASELINES)}\n")
    except ProvisionError as error:
        print(
            f"error: {error.message}",
            *error.because,
            *(f"hint: {hint}" for hint in error.hints),
            sep="\n  ",
            file=sys.stderr,
        )
        return 2
    return 0


def _show_suite(path: Path, sheet: Sheet, suite: Suite, *, is_json: bool) -> None:
    found, refused = score_suite(sheet, suite, Hardware(Matrix()))
    evaluation = Evaluation(
        kind=suite.name,
        score=found,
        modes={"calibrated": found},
        baselines={},
        refused=refused,
        skipped=(),
        is_baseline_in_sample=False,
        is_in_sample=False,
    )
    document = {"table": path.name, **evaluation_document(evaluation, ())}
    print(json.dumps(document) if is_json else f"{path.name}\n{show_evaluation(evaluation, ())}\n")


if __name__ == "__main__":
    raise SystemExit(main())
