"""A word of an install that is no requirement: the command ends with an error before it looks for anything."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.model import WARN, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import python_of
from provision.matrix.load import Matrix
from provision.versions import parse

ID = "C28"

_WITH_VERSION = re.compile(r"[^=<>!~]+(?:===|~=|==|!=|<=|>=|<|>)\s*[^=<>!~\s]+")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at what the installers were given and refuse."""
    last = matrix.setting("audit_rules.toml", "legacy_versions_until").value or "0"
    for install in environment.installs:
        # What stands in a branch may be guarded against just this: `if [ -n "$VERSION" ]`.
        for word in install.refused if install.installer in ("pip", "uv") and install.is_certain else ():
            text = word.text or ""
            is_version = _WITH_VERSION.fullmatch(text) is not None
            python = install.python or python_of(environment, None, options)
            if is_version and python is not None and parse(python) <= parse(last):
                # The last pip for this Python reads versions of any form.
                continue
            operator = text.partition("=")[0] and "==" not in text and "=" in text and not is_version
            yield found(
                matrix,
                ID,
                span=word.span,
                message=f"`{text}` is not a requirement",
                reasons=(
                    "its version is none that PEP 440 has: pip refuses it from 24.1 on, and uv always"
                    if is_version
                    else f"`{install.command}` ends with an error at this word",
                ),
                hint=f"write `{text.replace('=', '==', 1)}`"
                if operator and re.fullmatch(r"[A-Za-z0-9._-]+=[0-9][^=]*", text)
                else "",
                severity=WARN if is_version else "",
            )
