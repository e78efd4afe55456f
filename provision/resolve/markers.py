"""What is left of environment markers once platform and extra are known: Pythons and machines."""

from __future__ import annotations

import re
from functools import lru_cache

from provision.versions import Spec

_CLAUSE = r"\s*(python_version|python_full_version|platform_machine)\s*(<=|>=|==|!=|<|>|~=)\s*[\"']([^\"']+)[\"']\s*"


@lru_cache(maxsize=None)
def applies(marker: str, python: str, machine: str) -> bool:
    """Evaluate what is left of a marker: comparisons joined by ``and`` and ``or``, parentheses allowed."""
    tokens = re.findall(r"\(|\)|\band\b|\bor\b|[^()]+?(?=\(|\)|\band\b|\bor\b|$)", marker)
    words = []
    for token in (part.strip() for part in tokens):
        if not token:
            continue
        if token in ("(", ")", "and", "or"):
            words.append(token)
            continue
        clause = re.fullmatch(_CLAUSE, token)
        if clause is None:
            raise ValueError(f"marker `{marker}` is not in the reduced form")
        variable, operator, value = clause.groups()
        if variable == "platform_machine":
            words.append(str((machine == value) == (operator == "==")))
        else:
            have = python.rstrip("t")
            if variable == "python_full_version" and value.count(".") > 1:
                # A patch bound is about the newest patch of the minor, which is what images hold.
                have = f"{have}.99"
            words.append(str(have in Spec(f"{operator}{value}")))
    return _evaluate(words)


def _evaluate(words: list[str]) -> bool:
    """Evaluate True/False, and, or and parentheses; ``and`` binds tighter."""
    position = 0

    def either() -> bool:
        nonlocal position
        value = both()
        while position < len(words) and words[position] == "or":
            position += 1
            right = both()
            value = value or right
        return value

    def both() -> bool:
        nonlocal position
        value = single()
        while position < len(words) and words[position] == "and":
            position += 1
            right = single()
            value = value and right
        return value

    def single() -> bool:
        nonlocal position
        word = words[position]
        position += 1
        if word == "(":
            value = either()
            position += 1
            return value
        return word == "True"

    return either()
