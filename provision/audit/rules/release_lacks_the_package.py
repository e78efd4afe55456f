"""A package that apt is asked for, and that the release of the base does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provision.audit.apt import of_release
from provision.audit.bases import is_cuda_repository, is_plain
from provision.audit.model import Environment, Finding, Options, Word
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.matrix.model import OsRelease

ID = "B14"

_OTHER_RELEASE = ("-t", "--target-release", "--default-release")
_DEADSNAKES = "deadsnakes"
_PYTHON = re.compile(r"python(3\.[0-9]+)(-dev|-venv|-minimal|-distutils)?")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look each name up that is known to be gone, and each Python."""
    base, system = environment.base, _system_of(environment, matrix)
    if base is None or system is None or not (is_plain(matrix, environment) or is_cuda_repository(matrix, base)):
        return
    settings = matrix.settings("audit_rules.toml")
    gone, pythons = settings["apt_packages_gone"].entries, settings["apt_pythons"].entries.get(system.id, "").split()
    for command, _, texts in of_release(environment):
        if "install" not in texts or any(text.partition("=")[0] in _OTHER_RELEASE for text in texts):
            continue
        for word in command.words:
            name = word.text or ""
            releases, _, instead = gone.get(name, "").partition(" > ")
            is_other = _is_other_python(name, pythons)
            if not is_other and system.id not in releases.split():
                continue
            if is_other:
                reason = f"{system.name} has Python {' and '.join(pythons)}, and no archive of others is added before"
            else:
                reason = f"the archive of {system.name} has it no more, and no other is added before"
            yield _not_found(matrix, system, word, reason, f"take {instead}" if instead and not is_other else "")
    if system.id in settings["deadsnakes_left"].values and pythons:
        yield from _from_deadsnakes(environment, matrix, system, pythons)


def _from_deadsnakes(
    environment: Environment, matrix: Matrix, system: OsRelease, pythons: Sequence[str]
) -> Iterable[Finding]:
    """Yield the Pythons that are to come from an archive which has nothing for this release any more."""
    for command, _, texts in of_release(environment, beside=_DEADSNAKES):
        for word in command.words if "install" in texts else ():
            if _is_other_python(word.text or "", pythons):
                reason = f"deadsnakes has deleted its packages for {system.name}, which has ended"
                yield _not_found(matrix, system, word, reason, "take a newer base, or Python from uv or conda")


def _is_other_python(name: str, pythons: Sequence[str]) -> bool:
    python = _PYTHON.fullmatch(name)
    return python is not None and bool(pythons) and python[1] not in pythons


def _not_found(matrix: Matrix, system: OsRelease, word: Word, reason: str, hint: str) -> Finding:
    return found(
        matrix,
        ID,
        span=word.span,
        message=f"apt does not find {word.text} on {system.name}",
        reasons=(reason,),
        hint=hint,
        facts=(f"os/{system.id}",),
    )


def _system_of(environment: Environment, matrix: Matrix) -> OsRelease | None:
    """Return the system of the base, that of today for a Python image that names none."""
    base = environment.base
    if environment.os is None and base is not None and base.repository == "python" and not base.digest:
        systems = matrix.setting("audit_rules.toml", "python_image_systems").entries
        return matrix.os_release(systems.get(base.tag.removesuffix("-slim")))
    return matrix.os_release(environment.os)
