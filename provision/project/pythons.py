"""Which Pythons the bounds of a project admit."""

from __future__ import annotations

import re

PYTHON_MINORS = 40
"""As many minors of Python 3 are looked at."""


def python_bound(text: str) -> str | None:
    """Return which Python minors a specifier admits, as ``--python`` takes it; ``None`` for any.

    An image is built for a minor, on its newest patch, so bounds on patches count by their minor.
    """
    clauses = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(
            r"(===|~=|==|!=|<=|>=|<|>|=)?v?([0-9]+)(?:\.([0-9]+|\*))?(?:\.([0-9]+|\*))?[A-Za-z0-9.+*]*", part
        )
        if match is None:
            continue
        operator, major, minor, patch = match[1] or "==", match[2], match[3], match[4]
        if minor in (None, "*"):
            bound = {">": f">={int(major) + 1}", "<=": f"<{int(major) + 1}"}.get(operator, f"{operator}{major}")
            clauses.append(f"=={major}.*" if operator in ("==", "===", "=", "~=") else bound)
        elif operator in ("==", "===", "="):
            clauses.append(f"=={major}.{minor}.*")
        elif operator == "~=":
            clauses += [f"=={major}.{minor}.*"] if patch else [f">={major}.{minor}", f"<{int(major) + 1}"]
        elif operator == "!=":
            clauses += [] if patch and patch != "*" else [f"!={major}.{minor}.*"]
        elif operator == "<" and patch and patch.strip("0*"):
            clauses.append(f"<={major}.{minor}")
        elif operator == ">":
            clauses.append(f">={major}.{minor}" if patch else f">={major}.{int(minor) + 1}")
        else:
            clauses.append(f"{operator}{major}.{minor}")
    if len(clauses) == 1 and (pin := re.fullmatch(r"==([0-9]+\.[0-9]+)\.\*", clauses[0])):
        return pin[1]
    return ",".join(dict.fromkeys(clauses)) or None


def pythons_of(bound: str) -> set[int]:
    """Return the minors of Python 3 that a bound admits."""
    from provision.resolve.request import python_fits

    return {minor for minor in range(PYTHON_MINORS) if python_fits(bound, f"3.{minor}")}
