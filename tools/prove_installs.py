"""Prove that answers install: sample stacks at random, install each lock by hash, and look at what came.

    python -m tools.prove_installs --number 40 --seed 7 --out docs/installs.md
    python -m tools.prove_installs --extras --number 40 --seed 7 --out docs/installs.md

For each stack: `provision image` writes its context; uv makes a plain environment and installs the lock by hash;
`verify.py --static` and an import of every top-level module run in it; `provision check` reads the context. With
`--extras` each stack has one to three extras: what these and the frameworks bring is imported, and every compiled file
of the extras is loaded; a driver that is not there is no fault, a missing symbol is. Only stacks whose wheels the
package index serves, and Pythons that are on this machine (`--pythons` names folders to look in), are drawn; of the
extras those that no compiler is needed for. A draw that is refused with its reason is counted and drawn anew. The same
seed draws the same stacks from the same facts. Environments are removed as soon as they are judged, and the cache once
it is larger than `--cache-gib`. The page has a table of stacks and one of stacks with extras; each run writes its own.
The exit code is 6 when a stack is not proved.
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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from packaging.utils import canonicalize_name

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Extra
from provision.records import record
from provision.resolve.request import ANY, FRAMEWORKS, parse_request
from provision.resolve.requirements import parse_requirements
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal

ROOT = Path(__file__).resolve().parents[1]
EXIT_FAILED, EXIT_ABSENT, EXIT_INCOMPATIBLE, EXIT_UNKNOWN = 6, 7, 3, 4
_PAIRS = (("torch",), ("torch",), ("tensorflow",), ("jax",), ("torch", "jax"), ("torch", "tensorflow"))
"""What a stack holds; PyTorch alone is drawn twice as often, as people ask for it more."""
_SECONDS = 1800
_TRIES = 80
"""Stacks that are tried for one extra before the next one has its turn."""
_IMPORTS = """
import ctypes, importlib, json, os, sys, warnings
warnings.simplefilter("ignore")
failed, count, loaded, unloaded = {}, 0, 0, {}
for name in json.loads(sys.argv[1]):
    if name in sys.modules:
        continue
    count += 1
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
for path in json.loads(sys.argv[2]):
    # What crashes crashes in a process of its own; the modules have brought the libraries.
    loaded += 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "ended early"
        try:
            ctypes.CDLL(path)
            said = ""
        except BaseException as error:
            said = str(error)
        os.write(writer, said.encode()[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    status = os.waitpid(child, 0)[1]
    if said or status:
        unloaded[path] = said or f"ended with {status}"
print("@" + json.dumps({"count": count, "failed": failed, "loaded": loaded, "unloaded": unloaded}))
"""
_NEEDS_GPU = re.compile(
    r"lib(cuda|nvidia-[a-z0-9-]+|nvcuvid|nvoptix)\.so[.0-9]*: cannot open|CUDA driver library"
    r"|NVML Shared Library Not Found|No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device"
    r"|CUDA_ERROR_NO_DEVICE|CUDA driver version is insufficient|\d+ active drivers"
)
"""What ends an import or a load where there is no driver or no GPU, as on the machine that proves."""
_SOURCE = "requirements.source.txt"
_BUILT_WITH = ("setuptools<82", "wheel", "ninja", "packaging", "psutil", "py-cpuinfo")
"""What is built against a framework says nothing of its tools."""
_MISFIT = re.compile(r"undefined symbol|version `[A-Z_]+[0-9.]+' not found|invalid ELF")
"""What makes a compiled file unfit; one that is a plugin, or lacks the library of a backend, waits for its own host."""
_TITLES = ("Frameworks", "Frameworks with extras")
_STEPS = ("written", "installed", "verified", "imported", "loaded", "checked")
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


@record
class Table:
    """One table of the page.

    Attributes:
        title: Its heading.
        command: The flags that wrote it.
        dated: The day of the facts.
        proofs: Its rows.
        refused: Draws that were refused instead → why.
    """

    title: str
    command: str
    dated: str
    proofs: tuple[Proof, ...]
    refused: tuple[str, ...] = ()


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


def draw_extras(matrix: Matrix, pythons: Sequence[str], seed: int) -> Iterator[dict[str, str]]:
    """Yield requests with one to three extras, without an end: every extra has its turn before one has a second.

    A third of them leave the version of the framework open.

    Args:
        matrix: The facts.
        pythons: Minor versions to draw from.
        seed: Of the generator; the same seed gives the same requests from the same facts.
    """
    dice = random.Random(seed)  # noqa: S311 - a sample, and no secret
    versions = {
        "torch": sorted({row.torch for row in matrix.torch_builds if row.index == "pypi"}),
        "tensorflow": sorted({row.version for row in matrix.tensorflow}),
        "jax": sorted({row.version for row in matrix.jax}),
    }
    rows = [row for row in matrix.extras if _is_installable(row)]
    told: set[tuple[tuple[str, str], ...]] = set()
    while True:
        turns = list(rows)
        dice.shuffle(turns)
        has_found = False
        for turn in turns:
            for _ in range(_TRIES):
                extras = [turn, *dice.sample([row for row in rows if row.id != turn.id], dice.choice((0, 1, 2)))]
                framework = dice.choice(turn.frameworks or ("torch", "torch", "tensorflow", "jax"))
                version = dice.choice([ANY, *versions[framework][-12:], *versions[framework]])
                wanted = {framework: version, "python": dice.choice(list(pythons))}
                wanted["with"] = ",".join(sorted(row.id for row in extras))
                key = tuple(sorted(wanted.items()))
                if key not in told and _is_answered(wanted, matrix):
                    told.add(key)
                    has_found = True
                    yield wanted
                    break
        if not has_found:
            return


def _framework_of(wanted: dict[str, str]) -> tuple[str, str]:
    return next((name, wanted[name]) for name in FRAMEWORKS if name in wanted)


def _is_installable(extra: Extra) -> bool:
    """Tell whether wheels, or source without compiled code, are all that an extra needs."""
    return extra.refused is None and not extra.is_fetched and (not extra.needs_nvcc or extra.runs_nvcc)


def _is_answered(wanted: dict[str, str], matrix: Matrix) -> bool:
    try:
        stack = solve(parse_request(wanted), matrix)
    except ProvisionError:
        return False
    if isinstance(stack, Refusal) or stack.image is None:
        return False
    return all(row.sha256 and row.index == "pypi" for row in stack.image.packages)


def prove(wanted: dict[str, str], python: str, folder: Path, uv: str, cache: Path, names: Sequence[str] = ()) -> Proof:
    """Install one stack and return what became of it.

    Args:
        wanted: A request, flag → value.
        python: The interpreter to make the environment with.
        folder: An empty folder for its context and environment.
        uv: The program.
        cache: uv's folder for downloads.
        names: Distributions of its extras: then these and the frameworks are imported, and not all that came along.
    """
    began = time.monotonic()
    steps: dict[str, str] = {}
    context, environment = folder / "context", folder / "environment"
    flags = [word for name, value in wanted.items() for word in (f"--{name}", value)]
    done = _run([sys.executable, "-m", "provision", "image", *flags, "-o", str(context), "--json"])
    steps["written"] = _refusal(done) or _word(done)
    packages = 0
    if done.returncode == 0:
        lock = json.loads((context / "provision.lock").read_text(encoding="utf-8"))
        packages = len(lock["image"]["packages"])
        steps["installed"] = _install(uv, cache, python, environment, context)
    if steps.get("installed") == "yes":
        inside = str(environment / "bin" / "python")
        # The whole lock names the extras, each of which is imported.
        expected = context / ("provision.lock" if names else "expect.json")
        done = _run([inside, str(context / "verify.py"), "--static", "--lock", str(expected)])
        wrong = [line for line in done.stdout.splitlines() if line.startswith(("fail", "unknown"))]
        steps["verified"] = "yes" if done.returncode == 0 else "; ".join(wrong[:3]) or _word(done)
        frameworks = [key for key in FRAMEWORKS if key in lock["frameworks"]]
        steps |= import_modules(inside, environment, names, frameworks)
        steps["checked"] = _word(_run([sys.executable, "-m", "provision", "check", str(context), "--color", "never"]))
    return Proof(stack=name_of(wanted), packages=packages, seconds=time.monotonic() - began, steps=steps)


def _refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a refusal or another error of the program says; nothing where it gave an answer."""
    if done.returncode == 0 or not done.stdout.startswith("{"):
        return ""
    error = json.loads(done.stdout)["error"]
    is_refused = done.returncode in (EXIT_INCOMPATIBLE, EXIT_UNKNOWN)
    words = "; ".join([error["message"], *error.get("because", ())])
    return f"{'refused' if is_refused else done.returncode}: {words}"[:300]


def _install(uv: str, cache: Path, python: str, environment: Path, context: Path) -> str:
    made = _run([uv, "venv", "--quiet", "--python", python, "--cache-dir", str(cache), str(environment)])
    if made.returncode:
        return _word(made)
    words = [uv, "pip", "install", "--quiet", "--no-deps", "--cache-dir", str(cache)]
    words += ["--python", str(environment / "bin" / "python")]
    # What is built against the framework, and what is built by itself.
    sources = [path for path in (context / _SOURCE, *sorted(context.glob("requirements.build*.txt"))) if path.is_file()]
    # What makes the wheels is not part of the environment.
    others = {context / "requirements.lock.txt", *sources, *context.glob("requirements.backend*.txt")}
    lists = sorted(set(context.glob("requirements.*.txt")) - others)
    for path in lists if sources else [context / "requirements.lock.txt"]:
        done = _run([*words, "--require-hashes", "-r", str(path)])
        if done.returncode:
            return _word(done)
    if sources:
        done = _run([*words[:4], *words[5:], *_BUILT_WITH])
    for path in sources:
        isolation = ["--no-build-isolation"] if path.name == _SOURCE else []
        done = done if done.returncode else _run([*words, *isolation, "--require-hashes", "-r", str(path)])
    # What builds may be another release than the one that is locked, which counts in the end.
    for path in lists if sources else ():
        done = done if done.returncode else _run([*words, "--require-hashes", "-r", str(path)])
    if done.returncode:
        return _word(done)
    return "yes"


def import_modules(python: str, environment: Path, names: Sequence[str], frameworks: Sequence[str]) -> dict[str, str]:
    """Import every top-level module that a wheel brought, each by itself failing or not.

    With names of distributions only theirs and those of the frameworks are imported, and the compiled files of the
    named ones are loaded; what needs the driver is none that fails.
    """
    site = next(environment.glob("lib/python*/site-packages"))
    modules = sorted(set(_modules(site, [*frameworks, *names] if names else ())))
    paths = [str(site / path) for path in sorted(_files(site, names)) if _is_loadable(path, site)]
    done = _run([python, "-c", _IMPORTS, json.dumps(modules), json.dumps(paths)])
    line = next((line[1:] for line in reversed(done.stdout.splitlines()) if line.startswith("@{")), None)
    if line is None:
        return {"imported": _word(done) if done.returncode else "the imports said nothing"}
    said = json.loads(line)
    failed = []
    for name, why in said["failed"].items():
        # What fails beside the others must work alone.
        alone = _run([python, "-c", f"import {name}"])
        if alone.returncode and not _NEEDS_GPU.search(alone.stderr):
            failed.append(f"{name}: {why}")
    steps = {"imported": "; ".join(failed) or f"yes, {said['count']} modules"}
    if names:
        failed = [
            f"{Path(path).relative_to(site)}: {why.removeprefix(path).lstrip(': ')}"
            for path, why in said["unloaded"].items()
            if _MISFIT.search(why)
        ]
        steps["loaded"] = "; ".join(failed) or f"yes, {said['loaded']} files"
    return steps


def _is_loadable(path: str, site: Path) -> bool:
    """Tell whether a file is a library, and not of another Python than that of `site`, as in `python3.12`."""
    minor = site.parent.name.removeprefix("python3.")
    found = re.search(r"\.cpython-3([0-9]+)[a-z]*-[^/]*\.so$", path)
    return bool(re.search(r"\.so(\.[0-9.]+)?$", path)) and (found is None or found[1] == minor)


def _files(site: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield the files of distributions, as their records have them."""
    wanted = {canonicalize_name(name) for name in names}
    for record_file in sorted(site.glob("*.dist-info/RECORD")):
        if canonicalize_name(record_file.parent.name.partition("-")[0]) in wanted:
            for line in record_file.read_text(encoding="utf-8", errors="replace").splitlines():
                path = line.rsplit(",", 2)[0].strip('"')
                if not path.startswith(("..", "/")):
                    yield path


def _modules(site: Path, names: Sequence[str] = ()) -> Iterator[str]:
    own = set(_files(site, names))
    top = {path.partition("/")[0] for path in own}
    has_package = any(path.endswith("/__init__.py") for path in own)
    for path in site.iterdir():
        is_file = path.suffix == ".py"
        name = path.stem if is_file else path.name
        # Beside a package a file that stands alone is a script.
        if names and (path.name not in top or (is_file and has_package)):
            continue
        is_module = is_file or (path.is_dir() and (path / "__init__.py").is_file())
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


def write_page(tables: Sequence[Table]) -> str:
    """Return the page of the results."""
    return "# Installed stacks\n\n" + "\n".join(_write_table(table) for table in tables)


def _write_table(table: Table) -> str:
    names = list(dict.fromkeys(name for proof in table.proofs for name in proof.steps))
    names.sort(key=_STEPS.index)
    proved = sum(proof.is_proved for proof in table.proofs)
    lines = [
        f"## {table.title}",
        "",
        f"Written by `python -m tools.prove_installs {table.command}`, facts of {table.dated}.",
        f"{proved} of {len(table.proofs)} stacks, drawn at random, were installed by hash in plain environments and"
        " passed.",
        "",
        f"| stack | packages | {' | '.join(names)} |",
        f"| --- | --- | {' | '.join('---' for _ in names)} |",
    ]
    for proof in table.proofs:
        cells = [proof.steps.get(name, "not tried").replace("|", "/") for name in names]
        lines.append(f"| {proof.stack} | {proof.packages} | {' | '.join(cells)} |")
    if table.refused:
        lines += ["", f"Refused with a reason and drawn anew: {len(table.refused)}.", ""]
        lines += [f"- {text}" for text in table.refused]
    return "\n".join(lines) + "\n"


def name_of(wanted: Mapping[str, str]) -> str:
    """Return what the page calls a request."""
    return " ".join(f"{key} {value}" for key, value in wanted.items())


def read_proofs(page: Path, title: str) -> tuple[Proof, ...]:
    """Return the rows of a table of the page that passed; none where there is no page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    part = next((part for part in text.split("\n## ")[1:] if part.startswith(f"{title}\n")), "")
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in part.splitlines() if line.startswith("|")]
    proofs = [
        Proof(stack=row[0], packages=int(row[1]), seconds=0.0, steps=dict(zip(rows[0][2:], row[2:], strict=True)))
        for row in rows[2:]
    ]
    return tuple(proof for proof in proofs if proof.is_proved)


def put_table(page: Path, table: Table) -> None:
    """Write a table into the page, in the place of the one with its heading, and keep the other."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    parts = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in text.split("\n## ")[1:]}
    parts[table.title] = _write_table(table)
    ordered = [parts[title] for title in _TITLES if title in parts]
    page.write_text("# Installed stacks\n\n" + "\n".join(ordered), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, prove, write; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=40, metavar="N", help="stacks to draw (40)")
    parser.add_argument("--extras", action="store_true", help="draw stacks with one to three extras each")
    parser.add_argument("--resume", action="store_true", help="keep the rows of --out that passed, and prove the rest")
    parser.add_argument("--seed", type=int, metavar="N", help="of the draw; printed (a random one)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there after each stack")
    parser.add_argument("--pythons", type=Path, action="append", default=[], metavar="DIR", help="with interpreters")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no stack after this time")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="uv's folder for downloads (one that is removed)")
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
    title = _TITLES[1 if chosen.extras else 0]
    proofs = list(read_proofs(chosen.out, title)) if chosen.resume and chosen.out is not None else []
    known = {proof.stack for proof in proofs}
    refused: list[str] = []
    began = time.monotonic()
    draws = draw(matrix, tuple(pythons), chosen.number, seed)
    if chosen.extras:
        drawn = draw_extras(matrix, tuple(pythons), seed)
        # In the order of their frameworks, so that less is downloaded; what is refused is made up for later.
        first = sorted(islice(drawn, chosen.number), key=_framework_of, reverse=True)
        draws = chain(first, islice(drawn, 3 * chosen.number))
    command = f"{'--extras ' if chosen.extras else ''}--number {chosen.number} --seed {seed}"
    with tempfile.TemporaryDirectory(prefix="prove-installs.") as scratch:
        cache = chosen.cache or Path(scratch, "cache")
        for wanted in draws:
            if len(proofs) == chosen.number or (chosen.minutes and time.monotonic() - began > chosen.minutes * 60):
                break
            if name_of(wanted) in known:
                continue
            folder = Path(scratch, f"stack-{len(proofs)}")
            folder.mkdir()
            names = _distributions(matrix, wanted.get("with", ""))
            proof = prove(wanted, pythons[wanted["python"]], folder, uv, cache, names)
            shutil.rmtree(folder)
            if chosen.extras and proof.steps["written"].startswith("refused: "):
                refused.append(f"{proof.stack}: {proof.steps['written'].removeprefix('refused: ')}")
                print(refused[-1], file=sys.stderr, flush=True)
                continue
            proofs.append(proof)
            said = "yes" if proof.is_proved else json.dumps(proof.steps)
            print(f"{proof.stack}: {said} ({proof.seconds:.0f} s)", file=sys.stderr, flush=True)
            if chosen.out is not None:
                table = Table(
                    title=title,
                    command=command,
                    dated=f"{matrix.dated}",
                    proofs=tuple(proofs),
                    refused=tuple(refused),
                )
                put_table(chosen.out, table)
            if cache.is_dir() and _size(cache) > chosen.cache_gib * 2**30:
                shutil.rmtree(cache)
    proved = sum(proof.is_proved for proof in proofs)
    print(f"{proved} of {len(proofs)} stacks proved (seed {seed})")
    return 0 if proofs and proved == len(proofs) else EXIT_FAILED


def _distributions(matrix: Matrix, extras: str) -> list[str]:
    """Return what the lines of some extras are about."""
    rows = {row.id: row for row in matrix.extras}
    lines = [line for name in extras.split(",") if name for line in rows[name].requires]
    return sorted({line.name for line in parse_requirements("\n".join(lines), "extras")})


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    sys.exit(main())
