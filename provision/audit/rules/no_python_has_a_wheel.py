"""A release without a wheel for any Python that is still supported, or for the one in force."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import ERROR, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import parse, spec_of

ID = "L01"

_LAST_PATCH = 99


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the newest Python of each pinned release against the one in force, or against all that are supported."""
    for install, requirement in environment.requirements():
        if requirement.ecosystem != "pypi" or requirement.url is not None or requirement.version is None:
            continue
        if requirement.applies is not True or requirement.is_locked or install.is_dry:
            continue
        version = requirement.version.partition("+")[0]
        last, is_listed = _last_python(matrix, requirement.name, version)
        if last is None:
            continue
        python = install.python or environment.python or options.python
        if python is None and not _may_be_any_supported(environment, last):
            continue
        reasons = [f"the newest Python with a wheel of {requirement.name} {version} is {last}"]
        if python is not None:
            minor = ".".join(python.removesuffix("t").split(".")[:2])
            if is_listed or parse(minor) <= parse(last):
                continue
            message = f"{requirement.text} has no wheel for Python {minor}"
        else:
            row = next((item for item in matrix.pythons if item.version == last), None)
            if row is not None and (row.end_of_life is None or row.end_of_life >= matrix.dated):
                continue
            allowed = environment.pythons
            message = f"{requirement.text} installs on no {f'Python {allowed}' if allowed else 'supported Python'}"
            if row is not None:
                reasons.append(f"Python {last} ended on {row.end_of_life}")
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=message,
            reasons=reasons,
            severity=ERROR if python is not None else "",
        )


def _may_be_any_supported(environment: Environment, last: str) -> bool:
    """Tell whether the Python that is not known is one of those that are supported, and allowed where some are named.

    A base that the facts do not know may hold an older one.
    """
    if environment.pythons:
        return not any(f"{last}.{patch}" in spec_of(environment.pythons) for patch in (0, _LAST_PATCH))
    if environment.kind not in ("stage", "image"):
        return True
    return environment.base is not None and environment.base.repository == "python"


def _last_python(matrix: Matrix, name: str, version: str) -> tuple[str | None, bool]:
    """Return the newest Python a release has a wheel for, and whether the facts list the release itself."""
    listed: Iterable[str] = ()
    if name == "torch":
        listed = [item for row in matrix.torch_builds_of({version}) for item in row.pythons]
    elif name == "tensorflow":
        listed = [item for row in matrix.tensorflow if row.version == version for item in row.pythons]
    pythons = [item for item in listed if not item.endswith("t")]
    if pythons:
        return max(pythons, key=lambda python: tuple(map(int, python.split(".")))), True
    known = matrix.setting("audit_rules.toml", "old_release_pythons").entries
    for key, last in known.items():
        named, _, versions = key.partition(" ")
        if named == name and version in spec_of(versions):
            return last, False
    return None, False
