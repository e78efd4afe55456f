"""What compiled files inside wheels say: GPU targets, the newest glibc symbol, versions written as text."""

from __future__ import annotations

import ast
import re
from typing import Any

_TARGET = rb"(?:sm|compute)_[0-9]{2,3}[af]?"
ARCH_LIST = re.compile(rb"(?<=\x00)" + _TARGET + rb"(?: " + _TARGET + rb")+(?=\x00)")
"""The list that torch was compiled for, a text of its own in the Python half: what ``get_arch_list`` returns."""
_GLIBC = re.compile(rb"\x00GLIBC_(2\.[0-9]+)(?:\.[0-9]+)?(?=\x00)")


def targets_of(found: bytes | None) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return cubins (``sm_80``) and PTX (``compute_90``) of an architecture list, in its order.

    Args:
        found: What :data:`ARCH_LIST` matched.
    """
    if found is None:
        return None
    words = found.decode("ascii").split()
    cubins = tuple(word for word in words if word.startswith("sm_"))
    return cubins, tuple(word for word in words if word.startswith("compute_"))


def newest_glibc(content: bytes) -> str | None:
    """Return the newest glibc symbol version that an ELF file asks for (``2.17``)."""
    found = {tuple(map(int, text.split(b"."))) for text in _GLIBC.findall(content)}
    return ".".join(map(str, max(found))) if found else None


def abi_of_config(text: str) -> int | None:
    """Return the C++11 ABI flag of a ``TorchConfig.cmake``; ``None`` where it leaves the compiler's default."""
    found = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", text)
    return int(found[1]) if found else None


def assignments_of(text: str) -> dict[str, Any]:
    """Return name → value of the literals that a Python module assigns; the module is parsed, never run.

    ``OrderedDict([...])`` counts as the dictionary it makes.
    """
    values: dict[str, Any] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return values
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names, value = [node.target.id], node.value
        elif isinstance(node, ast.Assign):
            names, value = [target.id for target in node.targets if isinstance(target, ast.Name)], node.value
        else:
            continue
        if isinstance(value, ast.Call) and len(value.args) == 1:
            value = value.args[0]
        try:
            literal = ast.literal_eval(value)
            if isinstance(literal, list) and literal and all(isinstance(i, tuple) and len(i) == 2 for i in literal):
                literal = dict(literal)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            continue
        values |= dict.fromkeys(names, literal)
    return values
