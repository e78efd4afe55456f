"""A fact that changes in compat/ changes everything that is written from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUEST = ("--cuda", "11.8", "--torch", "2.1")


def _provision(*words: str | Path) -> str:
    done = subprocess.run([sys.executable, "-m", "provision", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_driver_floor_reaches_stack_and_image(tmp_path: Path) -> None:
    facts = tmp_path / "compat"
    shutil.copytree(ROOT / "compat", facts)
    before = json.loads(_provision("resolve", *REQUEST, "--json"))["result"]["stack"]["driver"]["minimum"]
    after = f"{int(before.split('.')[0]) + 3}.99.01"
    cuda = facts / "cuda.toml"
    text = cuda.read_text(encoding="utf-8")
    cuda.write_text(text.replace(f'minimum_driver = "{before}"', f'minimum_driver = "{after}"'), encoding="utf-8")

    changed = json.loads(_provision("resolve", *REQUEST, "--json", "--data-dir", facts))["result"]["stack"]["driver"]
    assert changed["minimum"] == after
    dockerfile = _provision("image", *REQUEST, "--print", "--data-dir", facts)
    assert after in dockerfile
    assert before not in dockerfile
