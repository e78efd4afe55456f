"""Prove that answers install: sample stacks at random, install each lock by hash, and look at what came.

    python -m tools.prove_installs --number 40 --seed 7 --out docs/installs.md

For each stack: `provision image` writes its context; uv makes a plain environment and installs the lock by hash;
`verify.py --static` and an import of every top-level module run in it; `provision check` reads the context. Only
stacks whose wheels the package index serves, and Pythons that are on this machine (`--pythons` names folders to look
in), are drawn. The same seed draws the same stacks from the same facts. Environments are removed as soon as they are
judged, and the cache once it is larger than `--cache-gib`. The exit code is 6 when a stack is not proved.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal

__all__ = ["Proof", "draw", "main", "prove", "write_table"]

ROOT = Path(__file__).resolve().parents[1]
EXIT_FAILED, EXIT_ABSENT = 6, 7
_PAIRS = (("torch",), ("torch",), ("tensorflow",), ("jax",), ("torch", "jax"), ("torch", "tensorflow"))
"""What a stack holds; PyTorch alone is drawn twice as often, as people ask for it more."""
_SECONDS = 1800
_IMPORTS = """
import importlib, json, pathlib, sys, warnings
warnings.simplefilter("ignore")
failed, count = {}, 0
for name in json.loads(sys.argv[1]):
    if name in sys.modules:
        continue
    count += 1
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
print("@" + json.dumps({"count": count, "failed": failed}))
"""
_NOT_FOR_IMPORT = re.compile(
    r"nvidia|_distutils_hack|tensorflow_io_gcs_filesystem|.*__mypyc|tests?|testing|docs?|examples?|bin|include|lib|share"
)
"""Namespaces of libraries, a plugin that TensorFlow loads by itself and once, and what wheels leave by mistake."""


@record
class Proof:
    """What became of one stack: its name, and for each step `yes`, or why not."""

    stack: str
    packages: int
    seconds: float
    steps: dict[str, str]

    @property
    def is_proved(self) -> bool:
        """Tell whether every step ended well."""
        return all(word == "yes" or word.startswith("yes,") for word in self.steps.values())


def find_pythons(folders: Sequence[Path]) -> dict[str, str]:
    """Return minor version → interpreter, of PATH and of some folders."""
    found: dict[str, str] = {}
    for minor in range(8, 20):
        name = f"python3.{minor}"
        candidates = [*(folder / name for folder in folders), *(Path(path) for path in [shutil.which(name)] if path)]
        for candidate in candidates:
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            try:
                done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=30, check=False)
            except OSError:
                continue
            if done.stdout.strip() == f"3.{minor}":
                found[f"3.{minor}"] = str(candidate)
                break
    return found


def draw(matrix: Matrix, pythons: Sequence[str], number: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield requests that have an answer whose wheels the package index serves, at random, none twice.

    Args:
        matrix: The facts.
        pythons: Minor versions to draw from.
        number: How many.
        seed: Of the generator; the same seed gives the same requests from the same facts.
    """
    dice = random.Random(seed)  # noqa: S311 - a sample, and no secret
    versions = {
        "torch": sorted({row.torch for row in matrix.torch_builds if row.index == "pypi"}),
        "tensorflow": sorted({row.version for row in matrix.tensorflow}),
        "jax": sorted({row.version for row in matrix.jax}),
    }
    told: set[str] = set()
    for _ in range(number * 200):
        if len(told) == number:
            return
        wanted = {name: dice.choice(versions[name]) for name in dice.choice(_PAIRS)}
        wanted["python"] = dice.choice(list(pythons))
        try:
            stack = solve(parse_request(wanted), matrix)
        except ProvisionError:
            continue
        if isinstance(stack, Refusal):
            continue
        packages = stack.image.packages if stack.image else ()
        if stack.name in told or not packages or any(not row.sha256 or row.index != "pypi" for row in packages):
            continue
        told.add(stack.name)
        yield wanted


def prove(wanted: dict[str, str], python: str, folder: Path, uv: str, cache: Path) -> Proof:
    """Install one stack and return what became of it.

    Args:
        wanted: A request, flag → value.
        python: The interpreter to make the environment with.
        folder: An empty folder for its context and environment.
        uv: The program.
        cache: uv's folder for downloads.
    """
    began = time.monotonic()
    steps: dict[str, str] = {}
    context, environment = folder / "context", folder / "environment"
    flags = [word for name, value in wanted.items() for word in (f"--{name}", value)]
    done = _run([sys.executable, "-m", "provision", "image", *flags, "-o", str(context), "--json"])
    steps["written"] = _word(done)
    name, packages = " ".join(f"{key} {value}" for key, value in wanted.items()), 0
    if done.returncode == 0:
        lock = json.loads((context / "provision.lock").read_text(encoding="utf-8"))
        packages = len(json.loads((context / "expect.json").read_text(encoding="utf-8"))["packages"])
        name = lock.get("name", name)
        steps["installed"] = _install(uv, cache, python, environment, context)
    if steps.get("installed") == "yes":
        inside = str(environment / "bin" / "python")
        done = _run([inside, str(context / "verify.py"), "--static", "--lock", str(context / "expect.json")])
        wrong = [line for line in done.stdout.splitlines() if not line.startswith("pass")]
        steps["verified"] = "yes" if done.returncode == 0 else "; ".join(wrong[:3]) or _word(done)
        steps["imported"] = _import(inside, environment)
        steps["checked"] = _word(_run([sys.executable, "-m", "provision", "check", str(context), "--color", "never"]))
    return Proof(stack=name, packages=packages, seconds=time.monotonic() - began, steps=steps)


def _install(uv: str, cache: Path, python: str, environment: Path, context: Path) -> str:
    made = _run([uv, "venv", "--quiet", "--python", python, "--cache-dir", str(cache), str(environment)])
    if made.returncode:
        return _word(made)
    words = [uv, "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--cache-dir", str(cache)]
    words += ["--python", str(environment / "bin" / "python"), "-r", str(context / "requirements.lock.txt")]
    return _word(_run(words))


def _import(python: str, environment: Path) -> str:
    """Import every top-level module that a wheel brought, each by itself failing or not."""
    names = sorted({name for site in environment.glob("lib/python*/site-packages") for name in _modules(site)})
    done = _run([python, "-c", _IMPORTS, json.dumps(names)])
    line = next((line[1:] for line in reversed(done.stdout.splitlines()) if line.startswith("@{")), None)
    if line is None:
        return _word(done) if done.returncode else "the imports said nothing"
    said = json.loads(line)
    # What fails beside the others must work alone.
    failed = {name: why for name, why in said["failed"].items() if _run([python, "-c", f"import {name}"]).returncode}
    if failed:
        return "; ".join(f"{name}: {why}" for name, why in failed.items())
    return f"yes, {said['count']} modules"


def _modules(site: Path) -> Iterator[str]:
    for path in site.iterdir():
        is_module = path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").is_file())
        name = path.stem if path.suffix == ".py" else path.name
        if is_module and name.isidentifier() and not _NOT_FOR_IMPORT.fullmatch(name):
            yield name


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(words), 124, "", f"not ended after {_SECONDS} s")


def _word(done: subprocess.CompletedProcess[str]) -> str:
    """Return `yes`, or the end of what a program said."""
    if done.returncode == 0:
        return "yes"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return f"{done.returncode}: {' '.join(lines[-3:])}"[:300]


def write_table(proofs: Sequence[Proof], matrix: Matrix, seed: int) -> str:
    """Return the page of the results."""
    names = ("written", "installed", "verified", "imported", "checked")
    proved = sum(proof.is_proved for proof in proofs)
    lines = [
        "# Installed stacks",
        "",
        f"Written by `python -m tools.prove_installs --number {len(proofs)} --seed {seed}`, facts of {matrix.dated}.",
        f"{proved} of {len(proofs)} stacks, drawn at random, were installed by hash in plain environments and passed.",
        "",
        f"| stack | packages | {' | '.join(names)} |",
        f"| --- | --- | {' | '.join('---' for _ in names)} |",
    ]
    for proof in proofs:
        cells = [proof.steps.get(name, "not tried").replace("|", "/") for name in names]
        lines.append(f"| {proof.stack} | {proof.packages} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, prove, write; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=40, metavar="N", help="stacks to draw (40)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the draw; printed (a random one)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there after each stack")
    parser.add_argument("--pythons", type=Path, action="append", default=[], metavar="DIR", help="with interpreters")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no stack after this time")
    parser.add_argument("--cache-gib", type=float, default=20.0, metavar="N", help="empty uv's cache above this (20)")
    chosen = parser.parse_args(arguments)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    pythons = find_pythons(chosen.pythons)
    if uv is None or not pythons:
        print("prove_installs: uv and a Python of 3.8 or newer are needed", file=sys.stderr)
        return EXIT_ABSENT
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1_000_000)
    matrix = Matrix()
    print(f"seed {seed}; Pythons {', '.join(pythons)}", file=sys.stderr, flush=True)
    proofs: list[Proof] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="prove-installs.") as scratch:
        cache = Path(scratch, "cache")
        for wanted in draw(matrix, tuple(pythons), chosen.number, seed):
            if chosen.minutes is not None and time.monotonic() - began > chosen.minutes * 60:
                break
            folder = Path(scratch, f"stack-{len(proofs)}")
            folder.mkdir()
            proof = prove(wanted, pythons[wanted["python"]], folder, uv, cache)
            shutil.rmtree(folder)
            proofs.append(proof)
            said = "yes" if proof.is_proved else json.dumps(proof.steps)
            print(f"{proof.stack}: {said} ({proof.seconds:.0f} s)", file=sys.stderr, flush=True)
            if chosen.out is not None:
                chosen.out.write_text(write_table(proofs, matrix, seed), encoding="utf-8")
            if cache.is_dir() and _size(cache) > chosen.cache_gib * 2**30:
                shutil.rmtree(cache)
    proved = sum(proof.is_proved for proof in proofs)
    print(f"{proved} of {len(proofs)} stacks proved (seed {seed})")
    return 0 if proofs and proved == len(proofs) else EXIT_FAILED


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    sys.exit(main())
