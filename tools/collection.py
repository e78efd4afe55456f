"""Assemble the Ansible collection from playbooks/, and pack it.

usage: tools/collection.py [--only-tree] FOLDER

Below FOLDER comes ``ansible_collections/gpu/provision``, and beside it the tarball. There is no second copy of anything
in the tree: roles, plays and filters are those of a clone, with three differences that a collection asks for.

- Filters, roles and plays have their full name, since Jinja looks in no collection that is not named.
- A play is named as Python would name it (``gpu_node.yml``), since that is part of its full name.
- Filters take each other by import, from ``plugins/plugin_utils``: code of the controller alone, which
  ``module_utils`` must not hold.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from provision import __version__

ROOT = Path(__file__).resolve().parents[1]
PLAYBOOKS = ROOT / "playbooks"
NAMESPACE, NAME = "gpu", "provision"
FULL_NAME = f"{NAMESPACE}.{NAME}"

_LOADER = "_neighbour"
_LOADER_IMPORTS = frozenset({"importlib.machinery", "importlib.util", "pathlib", "types"})
_MODULE_PREFIX = "provision_filters_"
_MADE = re.compile(rf'^(\w+ = )ModuleType\("{_MODULE_PREFIX}(\w+)"\)$', re.MULTILINE)
_LOADED = re.compile(r"SourceFileLoader\(.*\)\.exec_module\(\w+\)$")
_TEXTS = frozenset({".j2", ".md", ".py", ".yml"})
_PLAY = re.compile(r"(?:playbooks/)?\bgpu-(node|monitoring|slurm)((?:-[a-z]+)?)\.yml\b")
_ROLE_LINE = re.compile(r"^(\s*(?:- )?(?:name|role): |\s+- )(gpu_[a-z0-9_]+)$", re.MULTILINE)


def assemble(target: Path) -> None:
    """Write the collection's tree; one that is there already is replaced."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(PLAYBOOKS / "collection", target)
    galaxy = target / "galaxy.yml"
    galaxy.write_text(galaxy.read_text(encoding="utf-8") + f"version: {__version__}\n", encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", target / "LICENSE")
    ignored = shutil.ignore_patterns("__pycache__", "filter_plugins")
    shutil.copytree(PLAYBOOKS / "roles", target / "roles", ignore=ignored)
    shutil.copytree(PLAYBOOKS / "tasks", target / "playbooks" / "tasks")
    shutil.copytree(PLAYBOOKS / "group_vars", target / "playbooks" / "group_vars")
    for play in sorted(PLAYBOOKS.glob("gpu-*.yml")):
        shutil.copy(play, target / "playbooks" / play.name.replace("-", "_"))
    filters = _copy_filters(target / "plugins")
    roles = {path.name for path in (target / "roles").iterdir()}
    for path in sorted(target.rglob("*")):
        if path.suffix in _TEXTS and path.is_file() and "group_vars" not in path.parts:
            text = path.read_text(encoding="utf-8")
            path.write_text(name_fully(text, filters, roles), encoding="utf-8")


def name_fully(text: str, filters: Iterable[str], roles: Iterable[str]) -> str:
    """Return a file of a role or play with filters, roles and plays under their full names.

    Variables that are called like a filter stay: a filter stands behind a pipe, or is the first word of ``map``,
    ``select`` and ``reject``.
    """
    names = "|".join(sorted(filters, key=len, reverse=True))
    known = set(roles)
    text = re.sub(rf"(?<!:)(?<!: )(\|\s*)({names})\b(?!:)", rf"\g<1>{FULL_NAME}.\g<2>", text)
    text = re.sub(rf"\b((?:map|select|reject)\(\s*['\"])({names})(['\"])", rf"\g<1>{FULL_NAME}.\g<2>\g<3>", text)
    text = _ROLE_LINE.sub(lambda found: found[1] + _full(found[2], known), text)
    return _PLAY.sub(lambda found: f"{FULL_NAME}.gpu_{found[1]}{found[2].replace('-', '_')}", text)


def _full(name: str, known: set[str]) -> str:
    return f"{FULL_NAME}.{name}" if name in known else name


def _copy_filters(plugins: Path) -> set[str]:
    """Write the plugins and what they share; return the names of all filters."""
    sources = sorted([*PLAYBOOKS.glob("filter_plugins/*.py"), *PLAYBOOKS.glob("roles/*/filter_plugins/*.py")])
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sources}
    shared = {name for text in texts.values() for name in _neighbours(ast.parse(text))}
    names = set()
    (plugins / "filter").mkdir(parents=True)
    (plugins / "plugin_utils").mkdir()
    for name, text in texts.items():
        found = _filter_names(ast.parse(text))
        names |= found
        place = plugins / ("plugin_utils" if name in shared else "filter") / f"{name}.py"
        place.write_text(import_neighbours(text), encoding="utf-8")
        if name in shared and found:
            (plugins / "filter" / f"{name}.py").write_text(
                f'"""The filters of ``plugin_utils/{name}.py``, which other filters take from there."""\n\n'
                "from __future__ import annotations\n\n"
                f"from ansible_collections.{FULL_NAME}.plugins.plugin_utils.{name} import FilterModule\n\n"
                '__all__ = ["FilterModule"]\n',
                encoding="utf-8",
            )
    return names


def import_neighbours(text: str) -> str:
    """Return a file of filters in which what it takes from others is imported, and loading by path is gone.

    In a clone Ansible loads filters by path, and a file finds its neighbours by path as well: by the function
    ``_neighbour``, or by a ``SourceFileLoader``.
    """
    tree = ast.parse(text)
    wanted = _neighbours(tree)
    if not wanted:
        return text
    lines = text.splitlines()
    doomed: set[int] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _LOADER:
            doomed.update(range(node.lineno - 1, (node.end_lineno or node.lineno) + 2))
        elif isinstance(node, ast.Expr) and _LOADED.match(lines[node.lineno - 1]):
            doomed.update({node.lineno - 1} | ({node.lineno - 3} if "by path" in lines[node.lineno - 3] else set()))
    rest = "\n".join(line for number, line in enumerate(lines) if number not in doomed)
    rest = _MADE.sub(r"\g<1>_module_\g<2>", rest)
    imports = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "") in _LOADER_IMPORTS
    ]
    for node in imports:
        kept = [alias.name for alias in node.names if len(re.findall(rf"\b{alias.name}\b", rest)) > 1]
        was = f"from {node.module} import {', '.join(alias.name for alias in node.names)}\n"
        rest = rest.replace(was, f"from {node.module} import {', '.join(kept)}\n" if kept else "", 1)
    last = max(node.end_lineno or 0 for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    gap = "\n" if not lines[last - 1].startswith("from ansible") else ""
    added = gap + "".join(
        f"from ansible_collections.{FULL_NAME}.plugins.plugin_utils import {name} as _module_{name}\n"
        for name in sorted(wanted)
    )
    rest = rest.replace(lines[last - 1] + "\n", lines[last - 1] + "\n" + added, 1)
    return re.sub(rf'\b{_LOADER}\("(\w+)"\)', r"_module_\1", re.sub(r"\n{4,}", "\n\n\n", rest)) + "\n"


def _neighbours(tree: ast.Module) -> set[str]:
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    words = [
        (node.func.id, node.args[0].value)
        for node in called
        if isinstance(node.func, ast.Name) and node.args and isinstance(node.args[0], ast.Constant)
    ]
    return {
        str(word).removeprefix(_MODULE_PREFIX)
        for name, word in words
        if name == _LOADER or (name == "ModuleType" and str(word).startswith(_MODULE_PREFIX))
    }


def _filter_names(tree: ast.Module) -> set[str]:
    """Return the keys of what ``FilterModule.filters`` returns."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "FilterModule":
            keys = [key for found in ast.walk(node) if isinstance(found, ast.Dict) for key in found.keys]
            return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return set()


def pack(tree: Path, folder: Path) -> Path:
    """Build the tarball by ansible-galaxy and return its path."""
    beside = Path(sys.executable).with_name("ansible-galaxy")
    program = str(beside) if beside.exists() else "ansible-galaxy"
    subprocess.run([program, "collection", "build", "--force", "--output-path", str(folder), str(tree)], check=True)
    return folder / f"{NAMESPACE}-{NAME}-{yaml.safe_load((tree / 'galaxy.yml').read_text())['version']}.tar.gz"


def main() -> int:
    """Assemble, and pack unless told otherwise."""
    parser = argparse.ArgumentParser(description="Assemble the Ansible collection from playbooks/.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only-tree", action="store_true", help="write the tree and no tarball")
    options = parser.parse_args()
    tree = options.folder / "ansible_collections" / NAMESPACE / NAME
    assemble(tree)
    print(tree if options.only_tree else pack(tree, options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
