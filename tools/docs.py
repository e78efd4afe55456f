"""Write the parts of the documentation that the code and the facts decide.

``README.md``, the READMEs of the roles and the pages of ``docs/commands/`` hold blocks between ``<!-- generated: NAME
-->`` and ``<!-- end -->``; the files of ``docs/`` named here are generated whole, and so are the files
of facts that roles carry. The console examples of ``docs/`` are run, and show what came (``tools/console.py``). ``make
docs`` rewrites all that, and tests refuse a tree in which it is stale. A new command gets its page by itself; its
examples are written by hand.

usage: python -m tools.docs --write | --check [--skip-examples]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.parser import COMMANDS, build_parser, build_top_parser
from provision.cli.text.help import part_examples
from provision.errors import EXIT_INTERRUPTED, ProvisionError
from provision.generate.monitoring import (
    DASHBOARDS,
    render_alertmanager,
    render_counters,
    render_dashboard,
    render_rules,
)
from provision.generate.slurm.health import render_health_facts
from provision.generate.spot import render_notices
from provision.generate.verify_units import render_service, render_timer
from provision.matrix.load import Matrix
from provision.resolve.request import matches
from provision.resolve.system import system_packages
from provision.versions import parse

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from console import BrokenExampleError, has_examples, replay
from proofs import show_records, show_steps
from rule_docs import rule_pages
from traces import traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from provision.matrix.model import DriverPackages, Extra, TorchBuild

ROOT = Path(__file__).resolve().parents[1]
ROLES = ROOT / "playbooks" / "roles"
COMMAND_PAGES = ROOT / "docs" / "commands"
COVERAGE = Path(__file__).with_name("node_coverage.toml")
_NEW_PAGE = """\
<!-- generated: command -->
<!-- end -->

## Examples

<!-- generated: flags -->
<!-- end -->
"""
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


def extras_page() -> str:
    """Return the page that lists what ``--with`` adds, and what the facts pair with PyTorch."""
    matrix = Matrix()
    added = [
        (
            f"`{row.id}`",
            row.title,
            ", ".join(f"`{name}`" for name in row.by_cuda),
            ", ".join(f"`{name}`" for name in row.names),
            ", ".join(row.frameworks) or "any",
            _compiler_of(row),
            "; ".join(_conflict(text) for text in row.conflicts),
        )
        for row in matrix.extras
        if not row.refused
    ]
    refused = [(f"`{row.id}`", row.title, row.refused) for row in matrix.extras if row.refused]
    paired = []
    for name in sorted({row.package for row in matrix.companions}):
        rows = [row for row in matrix.companions if row.package == name]
        torches = [
            release.version
            for release in matrix.torch_releases
            if any(
                matches(row.requires.get("torch"), release.version) and matches(row.paired_torch, release.version)
                for row in rows
                if "torch" in row.requires or row.paired_torch
            )
        ]
        read = sum(bool(row.sm or row.sm_aarch64) for row in rows)
        paired.append((name, len(rows), span(row.version for row in rows), span(torches), read or ""))
    prebuilt: dict[tuple[str, str], list[Any]] = {}
    for row in matrix.rows("prebuilt.toml", "release"):
        prebuilt.setdefault((row.package, row.version), []).append(row)
    wheels = []
    for (package, version), alike in prebuilt.items():
        cuda = alike[-1].cuda or sorted(set(" ".join(alike[-1].builds.values()).split()))
        torches = [torch for torch, pythons in alike[-1].pythons.items() if pythons]
        machines = [machine for row in reversed(alike) for machine in row.machines]
        count = sum(len(row.sha256) for row in alike)
        wheels.append((package, version, ", ".join(cuda), span(torches), ", ".join(machines), count or ""))
    needs = [
        (row.id, row.version, ", ".join(system_packages(matrix, [row.id], "debian12")), "yes" if row.is_source else "")
        for row in matrix.rows("system_libraries.toml", "need")
    ]
    return "\n".join(
        (
            "# Extras",
            "",
            "What `--with NAME` adds to an image. Written by `make docs` from `compat/`; a row with its sources and",
            "note is printed by `provision explain extra/NAME`. The name of the distribution that an extra alone is",
            "about will do, and `_` for `-`; of other names people ask for, the answer says which extra is meant.",
            'A name in the column "by CUDA" takes the row for the CUDA of the stack, and has a part in choosing it:',
            "where one extra is for CUDA 12 alone, a PyTorch with CUDA 12 is taken and the others follow.",
            "With `--gpu` a warning names the extras with code for GPUs of which no fact says for which.",
            "",
            table(("name", "adds", "by CUDA", "asked for as", "beside", "needs", "not with"), added),
            "Refused, each with its reason:",
            "",
            table(("name", "is", "because"), refused),
            "## Releases that go with a PyTorch",
            "",
            "Of these packages the facts have releases with what their metadata asks for. An extra takes the newest",
            "that goes with the PyTorch of the stack: by its exact pin, by the table its publisher keeps, or because",
            "none of its files needs PyTorch. What has none of that is left to the installer, and what needs a PyTorch",
            "that nobody names is refused as unknown. `provision data refresh --only companions`",
            "keeps the list fresh.",
            "",
            "Of packages that cannot do without the code for GPUs in their wheels its targets are read from that",
            "code, of as many releases as the last column says; mamba-ssm and causal-conv1d state theirs in",
            "`setup.py`, where no variable changes them. A GPU that neither a target nor text for the driver's",
            "compiler serves is not given such a release, nor one that pins it: an older or newer one is tried, and",
            "where none is left the answer is no. Of torchao and torchcodec, which go on without, a warning says so,",
            "and where the wheel for a machine has no such code at all. What runs kernels of Triton goes with a GPU",
            "only where the assembler in it knows that GPU.",
            "",
            "Unknown it stays where no wheel on the package index holds the code: TensorRT, the DALI for CUDA 11 and",
            "what stands on TensorRT fetch theirs from NVIDIA's own index. Of cuML, libcuml and libcudf are read.",
            "",
            table(("package", "releases", "from … to", "admit PyTorch", "code read of"), paired),
            "## Wheels beside the package index",
            "",
            "What a project publishes with its releases, for one PyTorch, CUDA, C++ ABI and Python each;",
            "`compat/prebuilt.toml` has the addresses. Where the address answers, `provision image` locks the wheel",
            "that fits by its hash, and nothing is compiled. Facts have the hashes of the wheels in the last column,",
            "of which only the metadata is read; another one is downloaded. Where the address does not answer, and",
            "with `--offline`, the package is compiled, and a warning names the wheel. A build that",
            "looks for such a wheel by itself is told not to: only what is locked gets into the image.",
            "",
            table(("package", "release", "CUDA", "PyTorch", "machines", "hashes"), wheels),
            "## Libraries of the system",
            "",
            "What wheels need that they do not bring, read from their compiled files and code, with the packages of",
            "Debian 12; other systems are in `compat/system_libraries.toml`.",
            "",
            table(("distribution", "release read", "apt packages", "built from source"), needs).rstrip("\n"),
            "",
        )
    )


def _compiler_of(row: Extra) -> str:
    if row.is_fetched:
        return "NVIDIA's own index to be built"
    if row.needs_nvcc:
        return "nvcc, at run time too" if row.runs_nvcc else "nvcc to be built"
    return "a C compiler" if row.needs_compiler else ""


def _conflict(text: str) -> str:
    return text.removeprefix("gpu-architecture==")


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
            f"{sentence(check.title)} *{check.severity.capitalize()}, level {check.level}.*{compared}",
            "",
            f"{sentence(check.remedy)}",
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
            f"{sentence(diagnosis.title)} *{diagnosis.severity.capitalize()}, {diagnosis.layer} layer.*",
            "",
            sentence(diagnosis.cause),
            "",
            *(f"{number}. {step}" for number, step in enumerate(diagnosis.fix, 1)),
            "",
        ]
        if diagnosis.explains:
            lines += [f"Explains: {', '.join(diagnosis.explains)}.", ""]
        if diagnosis.message_kind == "symptom":
            lines += ["Its messages are a symptom: it yields to what says more of the same failure.", ""]
        if diagnosis.fits:
            lines += [f"Its messages fit several causes, also these: {', '.join(diagnosis.fits)}.", ""]
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


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter, and ended."""
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


def commands_index() -> str:
    """Return the page that lists the commands and holds what all of them share."""
    rows = ((f"[provision {name}]({name}.md)", line) for name, line in COMMANDS.items())
    return "\n".join(
        (
            "# Commands",
            "",
            "A page for each, with every flag and with examples that a test runs.",
            "",
            table(("command", "does"), rows),
            "## Flags of every command",
            "",
            table(("flag", "does"), _flags(build_top_parser())),
            "Results go to the standard output, everything else to the standard error. `--json` prints one document,",
            '`{"schema_version": 1, "command": …, "ok": …}` with a `result` or an `error`. No command asks anything.',
            "",
            "## Exit codes",
            "",
            exit_codes().rstrip("\n"),
            "",
        )
    )


def command_summary(name: str) -> str:
    """Return the head of a command's page: what it does, and its actions."""
    parser = build_parser(name)
    words = [word for word in _positionals(parser) if word != "ACTION"]
    actions = dict(_actions(parser))
    calls = [f"provision {name} {action}" for action in actions] or [" ".join(["provision", name, *words])]
    usage = ["```text", *(f"{call} [flags]" for call in calls), "```"]
    return "\n".join([f"# provision {name}", "", _prose(parser), "", *usage, ""])


def command_flags(name: str) -> str:
    """Return every word a command and its actions take, from the parsers themselves, in the groups of their help."""
    parser = build_parser(name)
    shared = set(_flags(build_top_parser()))
    lines = _groups(parser, shared, level=3)
    known = shared | set(_flags(parser))
    for action, inner in _actions(parser):
        lines += [f"### provision {name} {action}", "", sentence(_prose(inner)), "", *_groups(inner, known, level=4)]
    if lines:
        lines = ["## Flags", "", *lines]
    return "\n".join(
        [*lines, "Flags that all commands share are in the [list of commands](README.md#flags-of-every-command).", ""]
    )


def data_rules() -> str:
    """Return the rules that the facts are held against."""
    from provision.matrix.check import RULES

    rows = ((name, " ".join((rule.__doc__ or "").split()).replace("``", "`")) for name, rule in sorted(RULES.items()))
    return table(("rule", "says"), rows)


def _groups(parser: argparse.ArgumentParser, known: set[tuple[str, str]], *, level: int) -> list[str]:
    """The tables of a parser's own words, a table a group."""
    lines = []
    for group in parser._action_groups:
        rows = [row for row in _flags(group) if row not in known]
        if not rows:
            continue
        if group.title not in ("positional arguments", "options", "actions"):
            title = group.title or ""
            lines += [f"{'#' * level} {title[:1].upper()}{title[1:]}", ""]
        lines += [table(("word", "does"), rows)]
    return lines


def _positionals(parser: argparse.ArgumentParser) -> list[str]:
    """The words a command takes without a flag, as a call writes them."""
    words = []
    for action in parser._actions:
        if not action.option_strings:
            word = str(action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper()))
            many = "…" if action.nargs in ("*", "+") else ""
            words.append(f"[{word}{many}]" if action.nargs in ("?", "*") else f"{word}{many}")
    return words


def _prose(parser: argparse.ArgumentParser) -> str:
    """What a parser says of itself, with its examples as a block of shell."""
    prose, examples = part_examples(parser.description or "")
    calls = "\n".join(line.strip() for line in examples.splitlines())
    return prose + (f"\n\n```sh\n{calls}\n```" if calls else "")


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

    plays = [
        yaml.safe_load((ROOT / "playbooks" / name).read_text(encoding="utf-8"))
        for name in ("gpu-node.yml", "gpu-slurm.yml", "gpu-monitoring.yml")
    ]
    order = [row["role"] for play in plays for part in play for row in part.get("roles", ())]
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
        lines += [f"## {role.name}", "", sentence(meta["description"]), ""]
        others = {name: spec for name, spec in _role_specs(role).items() if name != "main"}
        lines += [f"- `tasks_from: {name}`: {sentence(spec['short_description'])}" for name, spec in others.items()]
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


BLOCKS: dict[str, Callable[[], str]] = {
    "commands": commands_summary,
    "facts": facts_summary,
    "gpu-records": lambda: show_records(table),
    "gpu-steps": lambda: show_steps(table),
    "node-coverage": node_coverage,
}
PAGES: dict[str, Callable[[], str]] = {
    "docs/commands/README.md": commands_index,
    "docs/extras.md": extras_page,
    "docs/roles.md": roles_page,
    "docs/runbooks.md": runbooks,
    "docs/stacks.md": supported_stacks,
    "docs/xids.md": xids,
    "playbooks/roles/gpu_slurm/files/health_facts.json": lambda: render_health_facts(Matrix()),
    "playbooks/roles/gpu_spot/files/notices.json": lambda: render_notices(Matrix()),
}
# What a role carries of the facts: the files that `provision fleet rules` writes without a webhook.
ROLE_FILES: dict[str, Callable[[Matrix], str]] = {
    "gpu_alertmanager/files/alertmanager.yml": render_alertmanager,
    "gpu_exporter/files/dcgm-counters.csv": render_counters,
    "gpu_exporter/files/provision-verify.service": render_service,
    "gpu_exporter/files/provision-verify.timer": render_timer,
    "gpu_prometheus/files/provision-gpu.rules.yml": render_rules,
    **{
        f"gpu_grafana/files/dashboards/provision-{name}.json": partial(render_dashboard, name=name)
        for name in DASHBOARDS
    },
}


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, one line a row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def span(versions: Iterable[str]) -> str:
    """Return the lowest and the highest of some versions."""
    ordered = sorted(set(versions), key=parse)
    return f"{ordered[0]} … {ordered[-1]}" if ordered else ""


def render(*, is_run: bool = True) -> dict[Path, str]:
    """Return every file with generated content, as it ought to be.

    Args:
        is_run: Run the examples too; without that they stay as they are written.
    """
    found = {}
    for path in sorted(ROLES.glob("*/README.md")):
        role = path.parent
        found[path] = _fill(path.read_text(encoding="utf-8"), {"variables": partial(role_variables, role)})
    found |= {ROOT / name: page() for name, page in PAGES.items()}
    found |= {ROOT / name: text for name, text in rule_pages().items()}
    found |= {ROLES / name: write(Matrix()) for name, write in ROLE_FILES.items()}
    found |= {ROOT / "docs" / "traces" / name: text for name, text in traces().items()}
    for path in (*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        if path not in found:
            text = path.read_text(encoding="utf-8")
            try:
                text = replay(text) if is_run and has_examples(text) else text
            except BrokenExampleError as error:
                raise SystemExit(f"{path.relative_to(ROOT)}: {error}") from error
            found[path] = _fill(text, BLOCKS) if path.parent in (ROOT, ROOT / "docs") else text
    for name in COMMANDS:
        path = COMMAND_PAGES / f"{name}.md"
        blocks = {"command": partial(command_summary, name), "flags": partial(command_flags, name)}
        found[path] = _fill(found.get(path, _NEW_PAGE), blocks | {"data-rules": data_rules})
    return found


def _fill(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """Return a text with its generated blocks as they ought to be."""
    return _BLOCK.sub(lambda block: block[1] + blocks[block[2]]() + block[3], text)


def stale(*, is_run: bool = True) -> dict[Path, str]:
    """Return the files whose generated content differs from what it ought to be, with that."""
    return {
        path: text
        for path, text in render(is_run=is_run).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Write or check; the exit code is 1 when a checked file is stale."""
    parser = argparse.ArgumentParser(description="Write or check the generated parts of the documentation.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="rewrite what is stale")
    action.add_argument("--check", action="store_true", help="name what is stale")
    parser.add_argument("--skip-examples", action="store_true", help="leave the console examples as they are")
    options = parser.parse_args()
    old = stale(is_run=not options.skip_examples)
    if options.write:
        for path, text in old.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in old:
        print(("wrote " if options.write else "stale: ") + str(path.relative_to(ROOT)))
    return int(bool(old) and options.check)


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The actions of a command that have a page of flags of their own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                # Some parsers add their flags only when they are wanted.
                if callable(fill := getattr(inner, "fill", None)):
                    fill()
                yield name, inner


def _flags(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Each word a parser or one of its groups takes, as it is written, and its help."""
    rows = []
    actions = group._actions if isinstance(group, argparse.ArgumentParser) else group._group_actions
    for action in actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
        takes = {0: "", "?": f" [{value}]"}.get(action.nargs, f" {value}")
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
