"""The standing proof that answers install: a draw that repeats, a true table, and one small stack proved."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision.matrix.load import Matrix

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prove_installs.py"
spec = importlib.util.spec_from_file_location("prove_installs", TOOL)
installs = importlib.util.module_from_spec(spec)
sys.modules["prove_installs"] = installs
spec.loader.exec_module(installs)

PYTHONS = ("3.9", "3.11", "3.13")


def test_the_same_seed_draws_the_same_stacks_and_none_twice() -> None:
    matrix = Matrix()
    first, again = (list(installs.draw(matrix, PYTHONS, 6, 7)) for _ in range(2))
    assert first == again
    assert len({tuple(sorted(wanted.items())) for wanted in first}) == 6
    assert first != list(installs.draw(matrix, PYTHONS, 6, 8))
    assert all(wanted["python"] in PYTHONS and len(wanted) > 1 for wanted in first)


def test_a_stack_is_proved_only_when_every_step_is() -> None:
    good = {"written": "yes", "installed": "yes", "verified": "yes", "imported": "yes, 9 modules", "checked": "yes"}
    proofs = [
        installs.Proof(stack="one", packages=3, seconds=1.0, steps=good),
        installs.Proof(stack="two", packages=0, seconds=1.0, steps={"written": "3: no | such"}),
    ]
    assert [proof.is_proved for proof in proofs] == [True, False]
    table = installs.write_table(proofs, Matrix(), 7)
    assert "1 of 2 stacks" in table
    assert "| two | 0 | 3: no / such | not tried | not tried | not tried | not tried |" in table


def test_without_uv_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert installs.main(["--number", "1"]) == 7
    assert "uv and a Python" in capsys.readouterr().err


@pytest.mark.network
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheels are those of x86-64")
def test_a_small_stack_installs_by_hash_verifies_and_imports(tmp_path: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    words = [uv, "pip", "install", "--quiet", "--dry-run", "--target", str(tmp_path / "none"), "packaging"]
    if subprocess.run(words, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip("the package index does not answer")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # Its CUDA is the image's, so that no CUDA is downloaded.
    wanted = {"tensorflow": "2.13.1" if version == "3.11" else "2.21.0", "python": version}
    (tmp_path / "stack").mkdir()
    proof = installs.prove(wanted, sys.executable, tmp_path / "stack", uv, tmp_path / "cache")
    assert proof.is_proved, proof.steps
    assert set(proof.steps) == {"written", "installed", "verified", "imported", "checked"}
