"""Write the parts of the documentation that the code and the facts decide.

``README.md`` and the READMEs of the roles hold blocks between ``<!-- generated: NAME -->`` and ``<!-- end -->``; the
files of ``docs/`` named here are generated whole. ``make docs`` rewrites them, and a test refuses a tree in which they
are stale.

usage: python tools/docs.py --write | --check
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.parser import COMMANDS, build_parser, build_top_parser
from provision.errors import EXIT_INTERRUPTED, ProvisionError
from provision.matrix.load import Matrix
from provision.versions import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from provision.matrix.model import DriverPackages, TorchBuild

ROOT = Path(__file__).resolve().parents[1]
ROLES = ROOT / "playbooks" / "roles"
COVERAGE = Path(__file__).with_name("node_coverage.toml")
_BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def exit_codes() -> str:
    """Return the table of exit codes, from the error classes themselves."""
    meanings = {
        0: "Done.",
        1: "A bug of this program; `PROVISION_DEBUG=1` shows the traceback.",
        EXIT_INTERRUPTED: "Interrupted.",
    }
    for error in ProvisionError.__subclasses__():
        if error.__module__ != ProvisionError.__module__:
            continue
        meanings[error.exit_code] = (error.__doc__ or "").splitlines()[0].replace("``", "`")
    return table(("exit", "meaning"), sorted(meanings.items()))


def facts_summary() -> str:
    """Return what the facts cover: rows, versions and Pythons for each subject."""
    matrix = Matrix()
    branches = (str(row.branch) for row in matrix.driver_branches)
    rows = [
        _framework("PyTorch", matrix.torch_builds, lambda row: row.torch, lambda row: row.cuda),
        _framework("TensorFlow", matrix.tensorflow, lambda row: row.version, lambda row: row.cuda),
        _framework("JAX", matrix.jax, lambda row: row.version, lambda row: row.cuda_floor),
        ("CUDA toolkit", len(matrix.cuda), span(row.version for row in matrix.cuda), "", ""),
        ("NVIDIA driver branch", len(matrix.driver_branches), span(branches), "", ""),
        (
            "GPU model",
            len(matrix.gpus),
            "compute capability " + span(row.compute_capability for row in matrix.gpus),
            "",
            "",
        ),
        ("nvidia/cuda tag", len(matrix.cuda_images), "", span(row.cuda for row in matrix.cuda_images), ""),
    ]
    heading = f"The facts are dated {matrix.dated} and come from {len(matrix.sources)} sources.\n\n"
    return heading + table(("subject", "rows", "versions", "CUDA", "Python"), rows)


def supported_stacks() -> str:
    """Return the page that lists every known build of every framework."""
    matrix = Matrix()
    builds: dict[str, list[TorchBuild]] = {}
    for build in matrix.torch_builds:
        builds.setdefault(build.torch, []).append(build)
    torch = [
        (
            row.version,
            ", ".join(build.cuda for build in builds.get(row.version, ())),
            ", ".join(_pythons(builds.get(row.version, ()))),
            row.torchvision or "",
            row.torchaudio or "",
        )
        for row in matrix.torch_releases
    ]
    tensorflow = [(row.version, row.cuda, row.cudnn_major, ", ".join(row.pythons)) for row in matrix.tensorflow]
    jax = [(row.version, row.variant, row.cuda_floor, row.cudnn or "", ", ".join(row.pythons)) for row in matrix.jax]
    return "\n".join(
        (
            "# Known stacks",
            "",
            f"Written by `make docs` from `compat/`, facts of {matrix.dated}; `provision explain` names the sources.",
            "",
            "## PyTorch",
            "",
            table(("torch", "CUDA", "Python", "torchvision", "torchaudio"), torch),
            "## TensorFlow",
            "",
            table(("tensorflow", "CUDA", "cuDNN", "Python"), tensorflow),
            "## JAX",
            "",
            table(("jax", "plugin", "CUDA from", "cuDNN", "Python"), jax).rstrip("\n"),
            "",
        )
    )


def runbooks() -> str:
    """Return the page that says of each check and each diagnosis what it means and what to do."""
    matrix = Matrix()
    lines = [
        "# Runbooks",
        "",
        f"Written by `make docs` from `compat/checks.toml` and `compat/diagnoses.toml`, facts of {matrix.dated}.",
        "",
        f"## Checks ({len(matrix.checks)})",
        "",
        '<a id="host-reachable"></a>',
        "",
        "### host.reachable",
        "",
        "The target answers. *Critical, every level.*",
        "",
        "Reach it by hand with the same user and the same settings; the message holds what the transport said.",
        "",
    ]
    for check in matrix.checks.values():
        compared = " Hosts are compared with each other." if check.scope == "fleet" else ""
        lines += [
            f'<a id="{check.runbook.partition("#")[2]}"></a>',
            "",
            f"### {check.id}",
            "",
            f"{_sentence(check.title)} *{check.severity.capitalize()}, level {check.level}.*{compared}",
            "",
            f"{_sentence(check.remedy)}",
            "",
            f"Reads: {', '.join(check.probes)}. Source: {_named(matrix, check.source)}.",
            "",
        ]
    lines += [f"## Diagnoses ({len(matrix.diagnoses)})", ""]
    for diagnosis in matrix.diagnoses.values():
        lines += [
            f'<a id="{diagnosis.runbook.partition("#")[2]}"></a>',
            "",
            f"### {diagnosis.id}",
            "",
            f"{_sentence(diagnosis.title)} *{diagnosis.severity.capitalize()}, {diagnosis.layer} layer.*",
            "",
            _sentence(diagnosis.cause),
            "",
            *(f"{number}. {step}" for number, step in enumerate(diagnosis.fix, 1)),
            "",
        ]
        if diagnosis.explains:
            lines += [f"Explains: {', '.join(diagnosis.explains)}.", ""]
        lines += [f"Source: {_named(matrix, diagnosis.source)}.", ""]
    return "\n".join(lines)


def xids() -> str:
    """Return the page of the Xid catalogue."""
    matrix = Matrix()
    rows = [
        (row.code, row.meaning, row.severity, row.action or "", row.investigate or "") for row in matrix.xids.values()
    ]
    heading = [
        "# Xids",
        "",
        f"Written by `make docs` from `compat/xid.toml`, facts of {matrix.dated}.",
        "`provision doctor --xid 79` explains one of them.",
        "",
    ]
    return "\n".join(heading) + "\n" + table(("Xid", "meaning", "severity", "action", "then"), rows)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "`", "?")) else f"{text}."


def _named(matrix: Matrix, ids: Iterable[str]) -> str:
    sources = [matrix.sources.get(name) for name in ids]
    return "; ".join(
        f"[{source.title}]({source.url})" if source.url else source.title for source in sources if source is not None
    )


def commands_summary() -> str:
    """Return the table of commands, one line each."""
    return table(("command", "does"), ((f"`provision {name}`", line) for name, line in COMMANDS.items()))


def commands() -> str:
    """Return the page of every command and flag, from the parsers themselves."""
    lines = ["# Commands and flags", "", "Written by `make docs` from the program's own parsers.", ""]
    shared = _flags(build_top_parser())
    for name in COMMANDS:
        parser = build_parser(name)
        own = [flag for flag in _flags(parser) if flag not in shared]
        lines += [f"## provision {name}", "", (parser.description or "").strip(), "", table(("word", "does"), own)]
        for action, inner in _actions(parser):
            fresh = [flag for flag in _flags(inner) if flag not in shared and flag not in own]
            description = (inner.description or "").strip()
            lines += [f"### provision {name} {action}", "", _sentence(description), "", table(("word", "does"), fresh)]
    return "\n".join([*lines, "## Flags of every command", "", table(("word", "does"), shared)])


def example() -> str:
    """Return what the program really says to one request that works and to one that cannot."""
    return _session("resolve", "--cuda", "11.8", "--torch", "2.1") + _session(
        "resolve", "--cuda", "12.4", "--torch", "2.1"
    )


def doctor_example() -> str:
    """Return what doctor says of one of the driver's error numbers."""
    return _session("doctor", "--xid", "79")


METHODS = {
    "distro": "the system's own archive",
    "cuda_repo": "NVIDIA's repository",
    "precompiled": "modules compiled and signed by the system",
}


def node_coverage() -> str:
    """Return the table that says for each system and install method what was run and what was only rendered."""
    matrix = Matrix()
    runs: dict[tuple[str, str], list[str]] = {}
    for row in tomllib.loads(COVERAGE.read_text(encoding="utf-8"))["run"]:
        runs.setdefault((row["os"], row["method"]), []).append(f"{row['scenario']} ({row['what']})")
    sets: dict[tuple[str, str], list[DriverPackages]] = {}
    for packages in matrix.driver_packages:
        sets.setdefault((packages.os, packages.method), []).append(packages)
    unknown = runs.keys() - sets.keys()
    if unknown:
        raise SystemExit(f"{COVERAGE.name} names what the facts do not know: {sorted(unknown)}")
    names = {row.id: row.name for row in matrix.rows("os.toml", "os")}
    rows = []
    for system in matrix.node_systems:
        for method, words in METHODS.items():
            found = sets.get((system, method), [])
            if found:
                branches = ", ".join(str(branch) for branch in sorted({row.branch for row in found}))
                flavours = [name for name in ("proprietary", "open") if any(getattr(row, name) for row in found)]
                done = "; ".join(runs.get((system, method), ())) or "rendered and linted only"
                rows.append((names[system], words, branches, ", ".join(flavours), done))
    return table(("system", "driver from", "branches", "modules", "run in CI, by scenario"), rows)


def role_variables(role: Path) -> str:
    """Return the table of a role's variables, from its argument specification."""
    options = _role_options(role)
    if not options:
        return "It has none.\n"
    return table(("variable", "type", "default", "meaning"), [_variable(*item) for item in options.items()])


def roles_page() -> str:
    """Return the page of every role, its entry points and its variables, in the order in which they run."""
    import yaml

    play = yaml.safe_load((ROOT / "playbooks" / "gpu-node.yml").read_text(encoding="utf-8"))
    order = [row["role"] for part in play for row in part.get("roles", ())]
    found = sorted(path for path in ROLES.glob("*") if path.is_dir())
    found.sort(key=lambda path: order.index(path.name) if path.name in order else len(order))
    lines = [
        "# Roles and their variables",
        "",
        "Written by `make docs` from the roles' argument specifications, in the order in which they run.",
        "A default in braces is worked out on the controller, most often from the lock.",
        "",
    ]
    for role in found:
        meta = yaml.safe_load((role / "meta" / "main.yml").read_text(encoding="utf-8"))["galaxy_info"]
        lines += [f"## {role.name}", "", _sentence(meta["description"]), ""]
        others = {name: spec for name, spec in _role_specs(role).items() if name != "main"}
        lines += [f"- `tasks_from: {name}`: {_sentence(spec['short_description'])}" for name, spec in others.items()]
        lines += ([""] if others else []) + [role_variables(role)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _role_specs(role: Path) -> dict[str, Any]:
    import yaml

    specs: dict[str, Any] = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return specs["argument_specs"] or {}


def _role_options(role: Path) -> dict[str, Any]:
    """The options of all entry points, in the order in which they are specified."""
    return {name: option for spec in _role_specs(role).values() for name, option in spec.get("options", {}).items()}


def _variable(name: str, option: dict[str, Any]) -> tuple[str, str, str, str]:
    """One row of a table of variables."""
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    if "choices" in option:
        kind += ": " + ", ".join(f"`{choice}`" for choice in option["choices"])
    meaning = option["description"]
    meaning = " ".join(meaning) if isinstance(meaning, list) else str(meaning)
    # Ansible's own marks for code, options and values.
    meaning = re.sub(r"\b[COV]\(([^()]*)\)", r"`\1`", meaning)
    default = option.get("default")
    shown = " ".join(default.split()) if isinstance(default, str) else json.dumps(default)
    # A double bar would end the cell, and `""` is easier to see than nothing.
    cells = (f"`{name}`", kind, f"`{shown}`" if shown else '`""`', " ".join(meaning.split()))
    return tuple(cell.replace("|", "\\|") for cell in cells)  # type: ignore[return-value]


def _session(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "provision", *words, "--color", "never"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    said = "\n".join(line.rstrip() for line in f"{done.stdout}{done.stderr}".strip().splitlines())
    return f"```console\n$ provision {' '.join(words)}\n{said}\n$ echo $?\n{done.returncode}\n```\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "commands": commands_summary,
    "doctor": doctor_example,
    "example": example,
    "exit-codes": exit_codes,
    "facts": facts_summary,
    "node-coverage": node_coverage,
}
PAGES: dict[str, Callable[[], str]] = {
    "docs/commands.md": commands,
    "docs/roles.md": roles_page,
    "docs/runbooks.md": runbooks,
    "docs/stacks.md": supported_stacks,
    "docs/xids.md": xids,
}


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, one line a row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def span(versions: Iterable[str]) -> str:
    """Return the lowest and the highest of some versions."""
    ordered = sorted(set(versions), key=parse)
    return f"{ordered[0]} … {ordered[-1]}" if ordered else ""


def render() -> dict[Path, str]:
    """Return every file with generated content, as it ought to be."""
    readme = ROOT / "README.md"
    text = _BLOCK.sub(lambda block: block[1] + BLOCKS[block[2]]() + block[3], readme.read_text(encoding="utf-8"))
    found = {readme: text}
    for path in sorted(ROLES.glob("*/README.md")):
        found[path] = _BLOCK.sub(
            rf"\g<1>{_escaped(role_variables(path.parent))}\g<3>", path.read_text(encoding="utf-8")
        )
    return found | {ROOT / name: page() for name, page in PAGES.items()}


def _escaped(text: str) -> str:
    """A text that stands for itself in the replacement of a pattern."""
    return text.replace("\\", r"\\")


def stale() -> list[Path]:
    """Return the files whose generated content differs from what it ought to be."""
    return [path for path, text in render().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    """Write or check; the exit code is 1 when a checked file is stale."""
    parser = argparse.ArgumentParser(description="Write or check the generated parts of the documentation.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="rewrite what is stale")
    action.add_argument("--check", action="store_true", help="name what is stale")
    options = parser.parse_args()
    old = stale()
    if options.write:
        text = render()
        for path in old:
            path.write_text(text[path], encoding="utf-8")
    for path in old:
        print(("wrote " if options.write else "stale: ") + str(path.relative_to(ROOT)))
    return int(bool(old) and options.check)


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The actions of a command that have a page of flags of their own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                # Such a parser adds its flags when they are wanted.
                if callable(fill := getattr(inner, "fill", None)):
                    fill()
                    yield name, inner


def _flags(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Each word a parser takes, as it is written, and its help."""
    rows = []
    for action in parser._actions:
        value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
        takes = "" if action.nargs == 0 else f" {value}"
        word = ", ".join(action.option_strings) + takes if action.option_strings else str(value)
        rows.append((f"`{word}`".replace("|", "\\|"), (action.help or "").replace("%%", "%")))
    return rows


def _framework(
    name: str, rows: Sequence[Any], version: Callable[[Any], str], cuda: Callable[[Any], str]
) -> tuple[object, ...]:
    pythons = _pythons(rows)
    supported = f"{pythons[0]} … {pythons[-1]}" if pythons else ""
    return name, len(rows), span(map(version, rows)), span(map(cuda, rows)), supported


def _pythons(rows: Iterable[Any]) -> list[str]:
    """The Pythons of some rows, oldest first, a free-threaded one after the one it is a form of."""
    found = {python for row in rows for python in row.pythons}
    return sorted(found, key=lambda text: (parse(text.rstrip("t")), text))


if __name__ == "__main__":
    sys.exit(main())
