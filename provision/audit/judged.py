"""What was understood of each environment, and what was not judged and why: silence is no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provision.audit.bases import cuda_image, is_cuda_repository, is_deleted, is_plain, is_proved_absent
from provision.audit.documents import Document
from provision.audit.model import Base, Environment, Finding, Install, Options, Span
from provision.audit.wanted import CPU, Wanted, build_of, python_of, standing
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import FRAMEWORKS
from provision.versions import parse

_NO_FACTS = "no facts on this release"
_LEFT = {
    "unknown option": "not an option of a requirements file that is known here",
    "malformed": "not a requirement",
    "variable": "a variable without a value",
    "path": "a project or file at a place, which is not read",
    "editable": "a project at a place, which is not read",
    "missing": "no such file",
    "cycle": "the file leads back to itself",
    "depth": "more files lead there than are followed",
    "address": "it would have to be fetched",
}


@record
class Gap:
    """Something that was not judged.

    Attributes:
        what: What it is, as written where it stands in a file.
        why: The reason.
        span: Where it stands, for a release of a framework that the facts do not have.
    """

    what: str
    why: str
    span: Span | None = None


@record
class Judged:
    """What was understood of one environment.

    Attributes:
        file: The file it was read from.
        kind: Kind of the environment.
        name: Name of the stage, group, service or image.
        base: The image it stands on, as written.
        system: Its operating system, as a row of the facts.
        python: ``None`` where nothing tells.
        cuda: CUDA of the base.
        cudnn: cuDNN of the base.
        frameworks: Name → release, with the build where it is known; a range where no release is named.
        gaps: What was not judged.
    """

    file: str
    kind: str
    name: str
    base: str | None
    system: str | None
    python: str | None
    cuda: str | None
    cudnn: str | None
    frameworks: tuple[tuple[str, str], ...]
    gaps: tuple[Gap, ...]

    @property
    def understood(self) -> str:
        """What was understood, in words."""
        parts = [f"{name} {version}".strip() for name, version in self.frameworks]
        parts += [f"{name} {value}" for name, value in (("CUDA", self.cuda), ("cuDNN", self.cudnn)) if value]
        if self.base is not None:
            parts.insert(0, f"on {self.base}")
        parts.append(f"Python {self.python or 'unknown'}")
        return ", ".join([*parts, self.system] if self.system else parts)


def describe(environment: Environment, matrix: Matrix, options: Options, left: Sequence[Gap] = ()) -> Judged:
    """Return what was understood of an environment whose surroundings are complete.

    Args:
        environment: The environment.
        matrix: The facts.
        options: What the person told beside the files.
        left: What its file says that was not read.
    """
    base = environment.base
    return Judged(
        file=environment.file,
        kind=environment.kind,
        name=environment.name,
        base=base.reference if base is not None else None,
        system=environment.os,
        python=_python(environment, options),
        cuda=base.cuda if base is not None else None,
        cudnn=base.cudnn if base is not None else None,
        frameworks=tuple(_frameworks(environment, matrix)),
        gaps=tuple(dict.fromkeys((*_gaps(environment, matrix, options), *left))),
    )


def left_of(document: Document) -> tuple[Gap, ...]:
    """Return what a list of requirements says that was not read."""
    return tuple(Gap(what=item.text, why=_LEFT.get(item.kind, item.kind)) for item in document.left)


def _without_facts(environment: Environment, matrix: Matrix) -> Iterator[Gap]:
    """Yield each pinned release of a framework that the facts do not have, while they have others of it."""
    for _, requirement in environment.requirements():
        name, version = requirement.name, (requirement.version or "").partition("+")[0]
        if not version or requirement.ecosystem != "pypi" or requirement.url is not None:
            continue
        if name == "torch":
            is_known = bool(matrix.torch_builds_of({version})) or bool(matrix.torch_builds_of({f"{version}.0"}))
        elif name == "tensorflow":
            is_known = any(parse(row.version) == parse(version) for row in matrix.tensorflow)
        elif name == "jax":
            is_known = any(parse(row.version) == parse(version) for row in matrix.jax)
        else:
            is_known = name not in _other_names(matrix)
        if not is_known:
            yield Gap(what=requirement.text, why=_NO_FACTS, span=requirement.span)


def _other_names(matrix: Matrix) -> set[str]:
    """Return the names under which builds of a framework are or were published beside its own."""
    settings = matrix.settings("audit_rules.toml")
    return {
        *settings["placeholders"].entries,
        *settings["framework_builds"].values,
    }


def _python(environment: Environment, options: Options) -> str | None:
    own = {install.python for install in environment.installs if install.python is not None}
    return python_of(environment, None, options) or (own.pop() if len(own) == 1 else None)


def _frameworks(environment: Environment, matrix: Matrix) -> Iterator[tuple[str, str]]:
    for framework in FRAMEWORKS:
        wanted = standing(environment, matrix, framework)
        if wanted is not None:
            yield framework, _release(matrix, wanted)
        elif environment.base is not None and framework in environment.base.frameworks:
            yield framework, environment.base.frameworks[framework]


def _release(matrix: Matrix, wanted: Wanted) -> str:
    if wanted.version is None:
        return wanted.specifier
    build = build_of(matrix, wanted) if wanted.framework == "torch" else None
    build = build or (CPU if wanted.variant == CPU else None)
    return f"{wanted.version}+{build}" if build else wanted.version


def _gaps(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Gap]:
    if environment.base is not None and environment.own_base:
        yield from _of_base(environment, environment.base, matrix)
    yield from _without_facts(environment, matrix)
    if any(install.requirements for install in environment.installs) and _python(environment, options) is None:
        within = f"held against every Python in {environment.pythons}" if environment.pythons else ""
        yield Gap(what="Python", why=within or "nothing says which; what holds for every supported one is still told")
    for install in environment.own_installs:
        yield from _of_install(install)


def _of_base(environment: Environment, base: Base, matrix: Matrix) -> Iterator[Gap]:
    if base.reference is None or base.repository is None:
        if base.reference != "scratch":
            yield Gap(what="the base", why="a variable in it has no value")
    elif is_cuda_repository(matrix, base):
        if cuda_image(matrix, base) is None and not is_proved_absent(matrix, base) and not is_deleted(matrix, base):
            yield Gap(what=base.reference, why="the facts do not list this tag, and not every tag of its release")
    elif base.repository in matrix.setting("audit_rules.toml", "framework_images").entries:
        yield Gap(what=base.reference, why="whether the tag is still there: the facts do not list all tags of it")
    elif not is_plain(matrix, environment):
        yield Gap(what=base.reference, why="what this image holds is not in the facts")


def _of_install(install: Install) -> Iterator[Gap]:
    if not install.is_complete and not install.is_file:
        yield Gap(
            what=install.command, why="a part of it is known only when it runs, or is in a file that was not given"
        )
    for requirement in install.requirements:
        if requirement.applies is None and requirement.marker and requirement.name in FRAMEWORKS:
            yield Gap(what=requirement.text, why="whether its marker holds is not known")
        elif requirement.url is not None and requirement.name in FRAMEWORKS and not requirement.version:
            yield Gap(what=requirement.text, why="what its address serves is not known")


def of_releases(environments: Iterable[Environment], matrix: Matrix, findings: Iterable[Finding]) -> tuple[Gap, ...]:
    """Return the releases of frameworks that the facts do not have and no finding speaks of, each once."""
    told = {finding.span for finding in findings}
    gaps = (gap for environment in environments for gap in _without_facts(environment, matrix))
    return tuple(dict.fromkeys(gap for gap in gaps if gap.span not in told))
