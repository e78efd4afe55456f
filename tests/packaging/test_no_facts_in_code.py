"""Versions, architectures and addresses of the outside world live in compat/, so that each has a source.

Comments and docstrings may speak of them; so may the examples in messages, which stand in backticks.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

FACTS = {
    "driver version": re.compile(r"(?<![\w.])[3-9]\d\d\.\d{2,3}(\.\d{2})?(?![\w.])"),
    "CUDA build variant": re.compile(r"(?<![A-Za-z0-9])cu(9|1\d)\d(?!\d)"),
    "GPU architecture": re.compile(r"(?<![A-Za-z0-9])(sm|compute)_\d{2,3}"),
    "pinned package": re.compile(r"[A-Za-z][\w.-]*\s*(==|~=|>=|<=|<|>)\s*\d+(\.\d+)+"),
    "image tag": re.compile(r"(?<![\w/])[a-z][a-z0-9./-]*:\d+\.\d+[\w.-]*"),
    "address": re.compile(r"https?://(?!localhost|127\.0\.0\.1|[\w.-]*\.example\b)[\w-]+(\.[\w-]+)+"),
    "registry": re.compile(r"\b(nvcr\.io|docker\.io|quay\.io|ghcr\.io)\b"),
}
# Addresses have four numbers too: this machine's own, every one of it, and those that documents may use.
WHOLE_VERSION = re.compile(r"(?!127\.|0\.0\.0\.0$|192\.0\.2\.)v?\d+\.\d+(\.\d+)*([+-][\w.]+)?")
EXAMPLE = re.compile(r"`[^`]*`")

PYTHON = sorted(path for top in ("provision", "images", "playbooks") for path in (ROOT / top).rglob("*.py"))
TEXT = sorted(
    path
    for pattern in (
        *("images/**/*.sh", "playbooks/roles/**/*.j2", "playbooks/roles/**/*.sh"),
        *("playbooks/*.yml", "playbooks/tasks/*.yml", "playbooks/roles/*/[dhvt]*/**/*.yml"),
    )
    for path in ROOT.glob(pattern)
)


def _docstrings(tree: ast.AST) -> set[int]:
    """The lines on which docstrings, and strings that stand alone, begin."""
    return {
        node.value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def facts_in_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each fact written as a literal in Python."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node.lineno in skipped or not isinstance(node.value, str):
            continue
        if WHOLE_VERSION.fullmatch(node.value):
            yield node.lineno, "version", node.value
        else:
            for kind, text in _search(EXAMPLE.sub("", node.value)):
                yield node.lineno, kind, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NUMBER and re.fullmatch(r"[3-9]\d\d\.\d{2,3}", token.string):
            yield token.start[0], "driver version", token.string


def facts_in_text(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each fact in a template or a script, its comments left out."""
    source = re.sub(r"\{#.*?#\}", lambda comment: "\n" * comment[0].count("\n"), source, flags=re.DOTALL)
    for number, line in enumerate(source.splitlines(), 1):
        for kind, text in _search(re.sub(r"(^|\s)#.*", "", line)):
            yield number, kind, text


def _search(text: str) -> Iterator[tuple[str, str]]:
    for kind, pattern in FACTS.items():
        for match in pattern.finditer(text):
            yield kind, match[0]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_holds_no_fact(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    found = [fact for fact in facts_in_python(source) if path != ROOT / "provision/__init__.py" or fact[1] != "version"]
    assert not found, f"{path.relative_to(ROOT)}: move these to compat/: {found}"


@pytest.mark.parametrize("path", TEXT, ids=lambda path: str(path.relative_to(ROOT)))
def test_template_holds_no_fact(path: Path) -> None:
    found = list(facts_in_text(path.read_text(encoding="utf-8")))
    assert not found, f"{path.relative_to(ROOT)}: move these to compat/: {found}"


def test_there_is_something_to_read() -> None:
    assert PYTHON
    assert TEXT


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('floor = "525.60.13"', "version"),
        ('floor = f"needs driver 525.60 or newer on {host}"', "driver version"),
        ("floor = 450.80", "driver version"),
        ('variant = "cu118"', "CUDA build variant"),
        ('index = f"{url}/cu121/"', "CUDA build variant"),
        ('flags = ["sm_90"]', "GPU architecture"),
        ('need = "numpy<2.0"', "pinned package"),
        ('base = "nvidia/cuda:12.4.1-runtime-ubuntu22.04"', "image tag"),
        ('index = "https://vendor.invalid/whl"', "address"),
        ('base = "nvcr.io/nvidia/cuda"', "registry"),
    ],
)
def test_scanner_sees_a_fact_in_python(code: str, kind: str) -> None:
    assert kind in {found for _, found, _ in facts_in_python(code)}


@pytest.mark.parametrize(
    "code",
    [
        '"""As in cu118 with driver 525.60."""',
        "# sm_90 was first\nx = 1",
        'hint = "write it as in `535.104.05` or `sm_90`"',
        'url = "http://localhost:5000/v2/"',
        'kind = "text/x-python; charset=utf-8"',
        'address = "127.0.0.1"',
    ],
)
def test_scanner_lets_prose_and_examples_pass(code: str) -> None:
    assert not list(facts_in_python(code))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("FROM python:3.11-slim", "image tag"),
        ("ENV TORCH_CUDA_ARCH_LIST=sm_90", "GPU architecture"),
        ("RUN pip install numpy==1.26.4  # pinned", "pinned package"),
        ("minimum=525.60.13", "driver version"),
    ],
)
def test_scanner_sees_a_fact_in_a_template(line: str, kind: str) -> None:
    assert kind in {found for _, found, _ in facts_in_text(f"# sm_50\n{{# cu118\n #}}{line}\n")}
