"""A release without a wheel for the Python in force, or for more than the oldest of those that are supported."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.model import ERROR, Environment, Finding, Options, Requirement
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS
from provision.versions import minor_of, parse, spec_of

ID = "L01"

_LAST_PATCH = 99
_UPPER = ("<", "==", "~=")
"""What bounds a release from above."""
_WITH_TORCH = frozenset(("torchvision", "torchaudio", "torchtext"))


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the newest Python of what each bound admits against the one in force, or against all that are supported."""
    told: set[int] = set()
    narrow: dict[int, list[Requirement]] = {}
    ended: dict[int, list[tuple[Requirement, str]]] = {}
    for install, requirement in environment.requirements():
        if requirement.ecosystem != "pypi" or requirement.url is not None:
            continue
        if requirement.applies is not True or requirement.is_locked or install.is_dry:
            continue
        # Whoever reads it of torch knows it of what goes with torch.
        if requirement.name in _WITH_TORCH and id(install) in told:
            continue
        last, is_listed = _last_python(matrix, requirement)
        if last is None:
            continue
        python = install.python or environment.python or options.python
        if python is None and _is_narrow(environment, matrix, last):
            narrow.setdefault(id(install), []).append(requirement)
            continue
        if python is None and not _may_be_any_supported(environment, last):
            continue
        if python is None and last in _supported(matrix):
            continue
        if requirement.name == "torch":
            told.add(id(install))
        if python is None:
            ended.setdefault(id(install), []).append((requirement, last))
            continue
        minor = minor_of(python.removesuffix("t"))
        if is_listed or parse(minor) <= parse(last):
            continue
        yield found(
            matrix,
            ID,
            span=requirement.span,
            message=f"{requirement.text} has no wheel for Python {minor}",
            reasons=(_reason(requirement, last),),
            severity=ERROR,
        )
    for pairs in ended.values():
        yield _of_ended(environment, matrix, pairs)
    for install_id, requirements in narrow.items():
        if install_id not in ended:
            yield _narrowed(environment, matrix, requirements)


def _of_ended(environment: Environment, matrix: Matrix, pairs: list[tuple[Requirement, str]]) -> Finding:
    """Return the one finding about an install of which something is for no supported Python."""
    last = min((python for _, python in pairs), key=parse)
    first = next((item for item, _ in pairs if item.name in FRAMEWORKS), pairs[0][0])
    texts = list(dict.fromkeys(item.text for item, _ in pairs))
    shown = f"{', '.join(texts[:-1])} and {texts[-1]} install" if len(texts) > 1 else f"{texts[0]} installs"
    allowed = f", and the file allows {environment.pythons}" if environment.pythons else ""
    ends = {row.version: row.end_of_life for row in matrix.pythons if row.end_of_life is not None}
    return found(
        matrix,
        ID,
        span=first.span,
        message=f"{shown} on Python {last} at most{allowed}",
        reasons=(
            *(_reason(item, python) for item, python in pairs),
            *((f"Python {last} ended on {ends[last]}",) if last in ends else ()),
        ),
    )


def _reason(requirement: Requirement, last: str) -> str:
    return f"the newest Python that {requirement.name} {_shown(requirement)} installs on is {last}"


def _is_narrow(environment: Environment, matrix: Matrix, last: str) -> bool:
    """Tell whether the Python that is not known may be any supported one, and only the oldest has a wheel."""
    supported = _supported(matrix)
    if not supported or last != supported[-1] or len(supported) == 1:
        return False
    if environment.pythons:
        newer = (f"{python}.{_LAST_PATCH}" for python in supported[:-1])
        return any(python in spec_of(environment.pythons) for python in newer)
    return _may_be_any_supported(environment, last)


def _supported(matrix: Matrix) -> list[str]:
    """Return the Pythons that have not ended, newest first."""
    return [row.version for row in matrix.pythons if row.end_of_life is None or row.end_of_life >= matrix.dated]


def _narrowed(environment: Environment, matrix: Matrix, requirements: list[Requirement]) -> Finding:
    """Return the one finding about an install of which something is for the oldest supported Python alone."""
    first = next((item for item in requirements if item.name in FRAMEWORKS), requirements[0])
    supported = _supported(matrix)
    others = [item.name for item in requirements if item is not first]
    allowed = f"the file allows {environment.pythons}" if environment.pythons else "nothing says which Python it is"
    return found(
        matrix,
        ID,
        span=first.span,
        message=f"of the supported Pythons {first.text} installs on {supported[-1]} at most",
        reasons=(
            _reason(first, supported[-1]),
            f"{allowed}, and Python {supported[0]} is the newest",
            *((f"so it is with {', '.join(others)}",) if others else ()),
        ),
        hint="say which Python it is: in the file, with `requires-python`, or with `--python`",
    )


def _shown(requirement: Requirement) -> str:
    return requirement.version.partition("+")[0] if requirement.version is not None else requirement.specifier


def _may_be_any_supported(environment: Environment, last: str) -> bool:
    """Tell whether the Python that is not known is one of those that are supported, and allowed where some are named.

    A base that the facts do not know may hold an older one.
    """
    if environment.pythons:
        return not any(f"{last}.{patch}" in spec_of(environment.pythons) for patch in (0, _LAST_PATCH))
    if environment.kind not in ("stage", "image"):
        return True
    return environment.base is not None and environment.base.repository == "python"


def _last_python(matrix: Matrix, requirement: Requirement) -> tuple[str | None, bool]:
    """Return the newest Python that what is asked for has a wheel for, and whether the facts list its builds.

    ``None`` where that is not known, or no matter: it is also there as source, or for Pythons to come.
    """
    listed: Iterable[str] = ()
    version = _shown(requirement)
    if requirement.name == "torch":
        listed = [item for row in matrix.torch_builds_of({version}) for item in row.pythons]
    elif requirement.name == "tensorflow":
        listed = [item for row in matrix.tensorflow if row.version == version for item in row.pythons]
    pythons = [item for item in listed if not item.endswith("t")]
    if pythons:
        return max(pythons, key=parse), True
    return _last_published(matrix, requirement), False


def _last_published(matrix: Matrix, requirement: Requirement) -> str | None:
    """Return the newest Python of all releases that a bound admits, ``None`` where one of them is for any Python.

    Source counts for any Python, but for those that it is known not to build on.
    """
    if not any(clause in requirement.specifier for clause in _UPPER):
        return None
    package = matrix.published(requirement.name)
    try:
        admitted = spec_of(",".join(clause.partition("+")[0] for clause in requirement.specifier.split(",")))
    except ValueError:
        return None
    newest = matrix.pythons[0].version
    builds = matrix.setting("audit_rules.toml", "source_builds_until").entries.get(requirement.name)
    failing, _, until = (builds or "").partition(" ")
    last: list[str] = []
    for version in package.versions if package is not None else ():
        release = package.release(version) if package is not None and version in admitted else None
        if release is not None:
            file = release.file_for(newest, "x86_64")
            if file == "sdist" and until and version in spec_of(failing):
                last.append(until)
            elif file is not None:
                return None
            last += release.pythons("x86_64")
    return max(last, key=parse, default=None)
