"""The standing proof that answers install: a draw that repeats, a true table, and one small stack proved."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from itertools import islice
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
    table = installs.Table(title="Frameworks", command="--number 2 --seed 7", dated="2026-11-22", proofs=tuple(proofs))
    page = installs.write_page([table])
    assert "1 of 2 stacks" in page
    assert "prove_installs --number 2 --seed 7`" in page
    assert "| two | 0 | 3: no / such | not tried | not tried | not tried | not tried |" in page


def test_each_table_of_the_page_is_written_without_the_other(tmp_path: Path) -> None:
    page = tmp_path / "installs.md"
    steps = {"written": "yes", "loaded": "yes, 2 files"}
    for title, command in (("Frameworks with extras", "--extras"), ("Frameworks", "a"), ("Frameworks", "b")):
        proof = installs.Proof(stack=f"of {command}", packages=1, seconds=1.0, steps=steps)
        table = installs.Table(title=title, command=command, dated="day", proofs=(proof,), refused=("two: why",))
        installs.put_table(page, table)
    text = page.read_text()
    assert text.index("## Frameworks\n") < text.index("## Frameworks with extras\n")
    assert ("of a |" in text, "of b |" in text, "of --extras |" in text) == (False, True, True)
    assert "- two: why" in text


def test_what_passed_is_read_from_the_page_again_and_what_failed_is_not(tmp_path: Path) -> None:
    page = tmp_path / "installs.md"
    assert installs.read_proofs(page, "Frameworks") == ()
    good = installs.Proof(stack="one", packages=3, seconds=0.0, steps={"written": "yes", "loaded": "yes, 2 files"})
    bad = installs.Proof(stack="two", packages=0, seconds=0.0, steps={"written": "5: a | b"})
    page.write_text("# Installed stacks\n")
    installs.put_table(page, installs.Table(title="Frameworks", command="a", dated="day", proofs=(bad, good)))
    assert installs.read_proofs(page, "Frameworks") == (good,)
    assert installs.read_proofs(page, "Frameworks with extras") == ()


def test_extras_are_drawn_that_wheels_suffice_for_and_all_before_one_again() -> None:
    matrix = Matrix()
    drawn = list(islice(installs.draw_extras(matrix, ("3.11", "3.12"), 5), 12))
    assert drawn == list(islice(installs.draw_extras(matrix, ("3.11", "3.12"), 5), 12))
    rows = {row.id: row for row in matrix.extras}
    for wanted in drawn:
        extras = wanted["with"].split(",")
        assert 1 <= len(extras) <= 3
        assert not any(rows[name].refused or rows[name].is_fetched for name in extras)
        assert all(not rows[name].needs_nvcc or rows[name].runs_nvcc for name in extras)
    assert len({name for wanted in drawn for name in wanted["with"].split(",")}) >= 12


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the fault")
def test_a_missing_symbol_is_a_fault_and_a_missing_driver_is_none(tmp_path: Path) -> None:
    minor = ".".join(map(str, sys.version_info[:2]))
    site = tmp_path / "lib" / f"python{minor}" / "site-packages"
    (site / "part-1.dist-info").mkdir(parents=True)
    (site / "part").mkdir()
    (site / "part" / "__init__.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')")
    (site / "script.py").write_text("1 / 0")
    source = tmp_path / "planted.c"
    source.write_text("extern int gone(void);\nint planted(void) { return gone(); }\n")
    words = ["cc", "-shared", "-fPIC", "-o", str(site / "part" / "good.so")]
    subprocess.run([*words, "-x", "c", "/dev/null"], check=True, capture_output=True)
    files = ["part/__init__.py", "part/good.so", "script.py", "part/other.cpython-399-x86_64-linux-gnu.so"]
    (site / "part-1.dist-info" / "RECORD").write_text("".join(f"{path},,\n" for path in files))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    steps = installs.import_modules(str(python), tmp_path, ["part"], [])
    assert steps == {"imported": "yes, 1 modules", "loaded": "yes, 1 files"}
    # Bound at once, as extension modules are.
    subprocess.run([*words, "-Wl,-z,now", str(source)], check=True, capture_output=True)
    steps = installs.import_modules(str(python), tmp_path, ["part"], [])
    assert "part/good.so: undefined symbol: gone" in steps["loaded"]


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
