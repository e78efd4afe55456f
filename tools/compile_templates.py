"""Compile the templates of images/ to Python, so that rendering one does not import jinja2.

Run it after editing a template; ``--check`` only says whether it is needed (exit 1).
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from provision.assets import asset_dir
from provision.generate.engine import make_environment, module_name, source_digest

COMPILED = Path(__file__).resolve().parents[1] / "provision" / "generate" / "compiled"
KNOWN = ("TemplateRuntimeError", "environment", "internalcode", "missing")
HEADER = """\
# Written by tools/compile_templates.py with jinja2's compiler from images/{template}. Do not edit.
# ruff: noqa
# mypy: ignore-errors
# fmt: off
from provision.generate.engine import {names}

SOURCE_DIGEST = "{digest}"

"""


def compile_template(template: str) -> str:
    """Return the Python module of a template.

    Raises:
        ValueError: The template needs more of jinja2's runtime than ``provision.generate.engine`` has.
    """
    source = (asset_dir("images") / template).read_text(encoding="utf-8")
    code = make_environment().compile(source, template, None, raw=True)
    first, _, rest = code.partition("\n")
    provided = {name.strip() for name in first.removeprefix("from jinja2.runtime import ").split(",")}
    root = next(node for node in ast.parse(rest).body if isinstance(node, ast.FunctionDef) and node.name == "root")
    body = ast.unparse(root).replace("cond_expr_undefined = Undefined", "")
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    if unknown := sorted(used & provided - set(KNOWN)):
        raise ValueError(f"{template}: what it does needs {', '.join(unknown)}, which compiled templates lack")
    header = HEADER.format(template=template, names=", ".join(KNOWN), digest=source_digest(source))
    return header + ast.unparse(ast.parse(body)) + "\n"


def main() -> int:
    """Write or check every compiled template; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file would change")
    is_check = parser.parse_args().check
    stale = 0
    for path in sorted(asset_dir("images").glob("*.j2")):
        target = COMPILED / f"{module_name(path.name)}.py"
        text = compile_template(path.name)
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{target.name} {'is out of date' if is_check else 'written'}", file=sys.stderr)
        if not is_check:
            target.write_text(text, encoding="utf-8")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
