r"""Show how far `provision predict` is off on what it never saw: learn without some groups, then score them.

    python -m tools.prove_predict --foundry FILE --timm FILE --nccl FILE --megatron FILE --serving FILE

Every table is split into whole groups (a model size, a family, a GPU). The models are learnt again without the rows of
some groups, and those rows are scored by the program itself, as a user would: `provision predict --evaluate ROWS
--data-dir FACTS`. Needs numpy and scikit-learn. The same tables give the same figures.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from provision.assets import asset_dir
from provision.predict.tables import Measured, detect, read_sheet
from provision.records import record

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from measured_tables import KINDS
from train_predict import RECIPES, SOURCES
from train_predict import main as learn


@record
class Split:
    """One way to hold out rows: the table, the kind of group, and into how many parts its groups are dealt."""

    table: str
    group: str
    parts: int


SPLITS = (
    Split(table="foundry", group="model", parts=99),
    Split(table="foundry", group="gpu", parts=99),
    Split(table="megatron", group="model", parts=99),
    Split(table="megatron", group="gpu", parts=99),
    Split(table="torchtitan", group="table", parts=99),
    Split(table="nccl", group="gpu", parts=99),
    Split(table="serving", group="model", parts=99),
    Split(table="serving", group="gpu", parts=99),
    Split(table="timm", group="family", parts=5),
    Split(table="timm", group="gpu", parts=99),
)


def deal(names: Sequence[str], parts: int) -> Iterator[frozenset[str]]:
    """Yield the names of each part, dealt like cards so that neighbours in the alphabet are parted.

    Args:
        names: Of the groups.
        parts: How many parts at most.
    """
    ordered = sorted(set(names))
    count = min(parts, len(ordered))
    for first in range(count):
        yield frozenset(ordered[first::count])


def split_table(path: Path, is_held: Callable[[Measured], bool], folder: Path) -> tuple[Path, Path, int]:
    """Write the rows of a table to two files.

    Args:
        path: The table.
        is_held: Tells which rows go to the second file.
        folder: Where both go.

    Returns:
        The file to learn from, the file to score, and how many rows the second has.
    """
    sheet = read_sheet(path)
    kind = detect(sheet, KINDS)
    kept, held = folder / f"learn-{path.name}", folder / f"score-{path.name}"
    count = 0
    with kept.open("w", newline="", encoding="utf-8") as to_learn, held.open("w", newline="", encoding="utf-8") as out:
        writers = csv.writer(to_learn), csv.writer(out)
        for writer in writers:
            writer.writerow(sheet.columns)
        for cells in sheet.rows:
            if kind.is_unmeasured(cells):
                continue
            is_out = is_held(kind.read(cells))
            count += is_out
            writers[is_out].writerow(list(cells.values.values()))
    return kept, held, count


def prove(split: Split, tables: dict[str, Path], say: Callable[[str], None]) -> None:
    """Hold out every part of a table's groups in turn, and say the scores.

    Args:
        split: What is held out.
        tables: Key of :data:`tools.train_predict.SOURCES` → file.
        say: Takes a line.
    """
    path = tables[split.table]
    sheet = read_sheet(path)
    kind = detect(sheet, KINDS)
    names = [kind.read(cells).groups[split.group] for cells in sheet.rows if not kind.is_unmeasured(cells)]
    recipe = next(recipe for recipe in RECIPES if split.table in recipe.tables)
    total, covered, answered = 0, 0.0, 0.0
    for part in deal(names, split.parts):
        with tempfile.TemporaryDirectory(prefix="provision-prove-") as name:
            folder = Path(name)
            kept, held, rows = split_table(path, lambda row, part=part: row.groups[split.group] in part, folder)  # type: ignore[misc]
            facts = folder / "compat"
            shutil.copytree(asset_dir("compat"), facts)
            others = [f"--{key}={tables[key]}" for key in recipe.tables if key != split.table and key in tables]
            learn(
                [
                    f"--{split.table}={kept}",
                    *others,
                    *("--only", recipe.name, "--only", "networks"),
                    *("-q", "-o", str(facts / "predict")),
                ]
            )
            score = _score(held, facts)
        total += rows
        covered += (score["coverage_80"] or 0.0) * rows
        answered += score["answered_share"] * rows
        label = ", ".join(sorted(part)) if len(part) < 4 else f"{len(part)} groups"
        transfer = score["modes"].get("transfer")
        say(
            f"{split.table:10} {split.group:7} {label:34.34} {rows:6} rows  {_percent(score['mdape_percent']):>8}"
            f"  answered {100 * score['answered_share']:5.1f} %  80 % holds {100 * (score['coverage_80'] or 0):3.0f} %"
            + (f"  transfer {_percent(transfer['mdape_percent'])}" if transfer else "")
        )
    say(
        f"{split.table:10} {split.group:7} {'together':34} {total:6} rows            "
        f"  answered {100 * answered / total:5.1f} %  80 % holds {100 * covered / total:3.0f} %"
    )


def _score(held: Path, facts: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.score_predict", str(held), "--data-dir", str(facts)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{held.name} could not be scored:\n{done.stdout}{done.stderr}")
    # A table of served models is scored twice; its first line is of the time between tokens.
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return document


def _percent(value: float | None) -> str:
    return "refused" if value is None else f"{value:.1f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hold out, learn and score every table that is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, what in SOURCES.items():
        parser.add_argument(f"--{key}", type=Path, metavar="FILE", help=what)
    parser.add_argument("--group", action="append", help="hold out only groups of this kind; may be repeated")
    parser.add_argument("--only", action="append", metavar="TABLE", help="score only this table; may be repeated")
    options = parser.parse_args(arguments)
    tables = {key: path for key in SOURCES if (path := getattr(options, key)) is not None}
    for split in SPLITS:
        is_wanted = split.table in (options.only or tables) and split.group in (options.group or {split.group})
        if split.table in tables and is_wanted:
            prove(split, tables, lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
