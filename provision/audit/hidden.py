"""Needs that no metadata declares, held against what an environment gets.

A constraint of the facts speaks of a package in some versions. What it asks for is broken surely where a pin says so,
and else by what a walk through the commands finds there at the end, as sure as that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provision.audit.bases import is_framework_image, may_have_frameworks
from provision.audit.channels import is_from_channel
from provision.audit.commands import command_of, is_removed, is_upgrade
from provision.audit.model import WARN, Edit, Environment, Finding, Install, Options, Requirement, Way
from provision.audit.presence import origin_at_end, origin_of, taken_of_all, walks_of
from provision.audit.verdict import found
from provision.audit.wanted import CPU, Wanted, admits, excludes, python_of, standing
from provision.audit.ways import write_pins
from provision.matrix.load import Matrix
from provision.matrix.model import HiddenConstraint, WheelRelease
from provision.records import record
from provision.resolve.request import matches
from provision.versions import is_empty, outside_of, parse

_FRAMEWORKS = ("torch", "tensorflow", "jax")
_COMPANIONS = ("torchvision", "torchaudio")
# Of these it is only said something where a file names them.
_UNNAMED = frozenset(("setuptools", "torch", "torchaudio", "torchcodec", "torchvision"))
_LIBRARIES = "nvidia-"
# They need nothing that a framework needs.
_TOOLS = frozenset(("pip", "setuptools", "wheel", "uv", "build"))


@record
class _Held:
    """A package whose version is known, with the requirement that says so.

    ``because`` tells how, where no pin does and it is what an installer likely takes, and ``brought`` names it where
    the requirement is of the package that brings it.
    """

    install: Install
    requirement: Requirement
    version: str
    wanted: Wanted | None
    because: str = ""
    brought: str = ""

    @property
    def name(self) -> str:
        """Name on the index; conda calls torch otherwise."""
        return self.brought or (self.wanted.framework if self.wanted is not None else self.requirement.name)


def broken_bounds(
    environment: Environment,
    matrix: Matrix,
    options: Options,
    rule: str,
    names: Iterable[str] | None,
    *,
    other_than: Iterable[str] = (),
    is_newer_fine: bool = False,
) -> Iterator[Finding]:
    """Yield each bound that is surely broken.

    Args:
        environment: What is judged.
        matrix: The facts.
        options: What the person told.
        rule: Id of the rule that speaks.
        names: Packages that are bounded; any when absent.
        other_than: Packages that other rules speak of.
        is_newer_fine: A pin on a release above the one that is bounded breaks nothing.
    """
    only, without = set(names or ()), set(other_than)
    told: set[tuple[str, bool]] = set()
    # The tightest first: what an installer takes is said once, and so that all others are met too.
    awake = sorted(
        _bound(environment, matrix, options, "bound"), key=lambda pair: (_width(matrix, pair[1]), pair[0].because)
    )
    for held, row in awake:
        for name, bound in row.requires.items():
            if (names is not None and name not in only) or name in without:
                continue
            broken = _broken(environment, matrix, options, held, name, bound)
            if broken is None:
                continue
            requirement, because, is_sure = broken
            pinned = requirement.version if requirement is not None else None
            # What an installer takes is said once, whatever else it breaks.
            if pinned is None and (name, is_sure) in told:
                continue
            told.add((name, is_sure))
            if is_newer_fine and pinned is not None and admits(bound.replace("==", ">="), pinned):
                continue
            own = _older(environment, matrix, options, held) if held.because else None
            together = [f"`{row.package}<={own}`"] if own is not None else list(_together(matrix, awake, name, bound))
            edits, fix = _edits(held, requirement, name, bound) if len(together) == 1 and own is None else ((), "")
            ways = _ways(matrix, requirement, bound) if requirement is not None and pinned is not None else ()
            is_excluded = requirement is not None and excludes(bound, requirement.specifier)
            # A later command takes back what one before it bounds.
            is_several = pinned is None and len(environment.installs) > 1
            where = "each install" if is_several else "the same install"
            yield found(
                matrix,
                rule,
                span=(held.requirement if requirement is None or own is not None else requirement).span,
                message=f"{row.package} {held.version} does not work with "
                + (requirement.text if pinned is not None and requirement is not None else f"the {name} it gets"),
                reasons=(
                    *((held.because,) if held.because else ()),
                    *((because,) if pinned is None else ()),
                    f"{row.package} {row.versions or 'in every version'} needs {name}{bound}",
                    row.symptom,
                ),
                hint="" if ways or is_excluded else f"bound it in {where}: {' '.join(together)}",
                ways=ways,
                facts=(f"constraint/{row.id}",),
                edits=edits,
                fix=fix,
                severity="" if is_sure and not held.because else WARN,
            )


def _older(environment: Environment, matrix: Matrix, options: Options, held: _Held) -> str | None:
    """Return the newest release before one that an installer takes which goes with all that is there at the end."""
    package = matrix.published(held.name)
    walks = walks_of(environment, matrix, options)
    rows = matrix.rows_with("constraints.toml", "constraint", "package", held.name)
    for version in package.versions if package is not None else ():
        if parse(version) >= parse(held.version) or parse(version).is_prerelease:
            continue
        needs = [need for row in rows if matches(row.versions or None, version) for need in row.requires.items()]
        there = [(walk.end.get(name), bound) for name, bound in needs for walk in walks]
        if all(item is None or item.version is None or admits(bound, item.version) for item, bound in there):
            return str(version)
    return None


def _width(matrix: Matrix, row: HiddenConstraint) -> int:
    """Return how many releases a constraint leaves."""
    left = [
        package.places(bound, admits).bit_count()
        for name, bound in row.requires.items()
        if (package := matrix.published(name)) is not None
    ]
    return min(left, default=0)


def _together(matrix: Matrix, awake: Sequence[tuple[_Held, HiddenConstraint]], name: str, bound: str) -> Iterator[str]:
    """Yield a bound that meets the others on the same package too, and one for each package that it leaves no release.

    That is one which no line bounds, and whose newest release wants what the bound excludes.
    """
    others = [row.requires[name] for _, row in awake if name in row.requires]
    joint = [bound]
    for other in others:
        package = matrix.published(name)
        versions = package.versions if package is not None else ()
        newest = next((version for version in versions if all(admits(text, version) for text in joint)), None)
        if newest is not None and not admits(other, newest) and not is_empty((*joint, other)):
            joint.append(other)
    yield f"`{name}{','.join(joint)}`"
    for held, row in awake:
        own = next(outside_of(row.versions or ""), None)
        if held.because and own is not None and name in row.requires and is_empty((bound, row.requires[name])):
            yield f"`{row.package}{own}`"


def missing_packages(environment: Environment, matrix: Matrix, options: Options, rule: str) -> Iterator[Finding]:
    """Yield each package that is imported and surely not there: a lock lists all there is, a fresh Python has no more.

    Args:
        environment: What is judged.
        matrix: The facts.
        options: What the person told.
        rule: Id of the rule that speaks.
    """
    for held, row in _bound(environment, matrix, options, "add"):
        for name in row.requires:
            if not _is_absent(environment, matrix, options, held, name):
                continue
            yield found(
                matrix,
                rule,
                span=held.requirement.span,
                message=f"{row.package} {held.version} needs {name}, and nothing installs it",
                reasons=(f"{row.package} {row.versions} does not ask for {name} itself", f"without it: {row.symptom}"),
                hint=f"add `{name}` to what is locked, and lock again"
                if held.requirement.is_locked
                else f"add `{name}` to the same install",
                facts=(f"constraint/{row.id}",),
            )


def _bound(
    environment: Environment, matrix: Matrix, options: Options, kind: str
) -> Iterator[tuple[_Held, HiddenConstraint]]:
    """Yield the constraints that are awake, each with what wakes it."""
    held = {item.name: item for item in _held(environment, matrix, options)}
    if kind == "bound":
        held = {item.name: item for item in _taken(environment, matrix, options)} | held
    for row in matrix.rows_where("constraints.toml", "constraint", "package", held.__contains__):
        item = held.get(row.package)
        if row.kind != kind or item is None or not matches(row.versions or None, item.version):
            continue
        # Constraints on builds speak of wheels and of what these ask for.
        is_wheel = item.wanted is not None and item.wanted.install.installer not in ("base", "conda")
        is_named = is_wheel and item.wanted is not None and item.wanted.variant in row.variants
        if row.variants and not is_named and not _is_default_in(matrix, item, row):
            continue
        python = python_of(environment, item.wanted, options)
        if row.pythons is not None and (python is None or not matches(row.pythons, python.rstrip("t"))):
            continue
        yield item, row


def _is_default_in(matrix: Matrix, item: _Held, row: HiddenConstraint) -> bool:
    """Tell whether a build that nobody named is, being PyPI's, one that the constraint speaks of."""
    if item.wanted is None or not item.wanted.is_default or item.wanted.framework != "torch":
        return False
    builds = matrix.torch_builds_of({item.version})
    return any(build.index == "pypi" and build.variant in row.variants for build in builds)


def _held(environment: Environment, matrix: Matrix, options: Options) -> Iterator[_Held]:
    walks = walks_of(environment, matrix, options)
    for framework in _FRAMEWORKS:
        wanted = standing(environment, matrix, framework)
        if wanted is None or (wanted.requirement.ecosystem == "conda" and not is_from_channel(wanted.install)):
            # Other channels compile PyTorch against what they have, and tell their solver.
            continue
        ends = [walk.end.get(framework) for walk in walks]
        if ends and not any(item is None or item.version in (None, wanted.version) for item in ends):
            # Another package moved it, which other rules tell.
            continue
        if wanted.version is not None and wanted.variant != CPU:
            yield _Held(install=wanted.install, requirement=wanted.requirement, version=wanted.version, wanted=wanted)
    for install, requirement in environment.requirements():
        is_sure = install.is_certain and not install.is_dry and requirement.applies is True
        if requirement.name in _FRAMEWORKS or requirement.ecosystem != "pypi" or not is_sure:
            continue
        if any(walk.is_whole and requirement.name not in walk.end for walk in walks):
            # It was taken out again.
            continue
        if requirement.version is not None:
            version = requirement.version.partition("+")[0]
            yield _Held(install=install, requirement=requirement, version=version, wanted=None)


def _taken(environment: Environment, matrix: Matrix, options: Options) -> Iterator[_Held]:
    """Yield the packages that no pin names, where it is one release alone that an installer likely takes."""
    told = {item.name for _, item in environment.requirements() if item.version or item.url}
    walks = walks_of(environment, matrix, options)
    for name, present in walks[0].end.items() if walks else ():
        is_open = name not in told and name not in _FRAMEWORKS and present.step is not None
        if not is_open or not matrix.rows_with("constraints.toml", "constraint", "package", name):
            continue
        versions = {walk.end[name].version if name in walk.end else None for walk in walks}
        version = versions.pop()
        if versions or version is None:
            continue
        step = walks[0].steps[present.step or 0]
        requirement = origin_of(matrix, step, name)
        if requirement is None or requirement.ecosystem != "pypi":
            continue
        if requirement.name not in walks[0].end:
            # What brought it was taken out again, and nothing loads it.
            continue
        verb = "an installer takes" if requirement.name == name else f"`{requirement.text}` brings"
        because = f"as of {matrix.dated} {verb} {name} {version}"
        yield _Held(
            install=step.asked.install,
            requirement=requirement,
            version=version,
            wanted=None,
            because=because,
            brought=name,
        )


def _broken(
    environment: Environment, matrix: Matrix, options: Options, held: _Held, name: str, bound: str
) -> tuple[Requirement | None, str, bool] | None:
    """Return the requirement that breaks a bound, if one is written, why, and whether that is sure.

    It is not where a package of which nothing is known may bound it too; ``None`` where nothing breaks it.
    """
    asked = [
        (install, item)
        for install, item in environment.requirements()
        if item.name == name and install.target == held.install.target and not install.is_dry
    ]
    if any(item.applies is None or item.url is not None or not install.is_certain for install, item in asked):
        return None
    limits = [item for install, _ in asked for item in install.constraints if item.name == name]
    limits += [item for item in held.install.constraints if item.name == name]
    is_gone, asked = _standing(environment, asked, name)
    if is_gone and not asked:
        return None
    pinned = asked[0][1] if asked and asked[0][1].version is not None else None
    walks = walks_of(environment, matrix, options)
    versions, is_sure = taken_of_all(environment, matrix, options, name)
    public = (pinned.version or "").partition("+")[0] if pinned is not None else ""
    if pinned is not None and (not versions or all(admits(f"=={public}", version) for version in versions)):
        is_fine = admits(bound, pinned.version or "")
        return None if is_fine else (pinned, f"{pinned.text} is installed", True)
    texts = [item.specifier for item in (*(item for _, item in asked), *limits) if item.specifier]
    if not versions and asked and excludes(bound, *texts):
        return asked[-1][1], f"{asked[-1][1].text} admits no version that works", True
    if not versions or any(admits(bound, version) for version in versions):
        return None
    if not asked and (name in _UNNAMED or name.startswith(_LIBRARIES)):
        return None
    if asked and pinned is None and excludes(bound, *texts):
        return asked[-1][1], f"{asked[-1][1].text} admits no version that works", True
    is_upgraded = any(is_upgrade(environment, install, name) for install, _ in asked)
    if may_have_frameworks(matrix, environment) and not (is_framework_image(matrix, environment) or is_upgraded):
        return None
    if pinned is not None:
        by = origin_at_end(matrix, walks[0], name)
        if by is None or not walks[0].is_whole:
            return None
        return (
            None,
            f"as of {matrix.dated} `{by.text}` puts {name} {versions[0]} in the place of {pinned.text}",
            is_sure,
        )
    because = f"nothing bounds {name} enough, and as of {matrix.dated} that is {name} {versions[0]}"
    return (asked[-1][1] if asked else None), because, is_sure


def _standing(
    environment: Environment, asked: list[tuple[Install, Requirement]], name: str
) -> tuple[bool, list[tuple[Install, Requirement]]]:
    """Return whether a package was taken out at some point, and the wishes for it that still count.

    A later wish that the pin before it does not meet takes its place, and so does an upgrade.
    """
    order = {(command.span.file, command.span.start): place for place, command in enumerate(environment.commands)}
    removed = [
        order[command.span.file, command.span.start] for command in environment.commands if is_removed(command, name)
    ]
    kept: list[tuple[Install, Requirement]] = []
    for install, item in asked:
        command = command_of(environment, install)
        place = order[command.span.file, command.span.start] if command is not None else -1
        if removed and place < max(removed):
            continue
        pin = kept[0][1].version if kept else None
        is_other = pin is not None and not admits(item.specifier, pin)
        if item.version is not None or is_other or is_upgrade(environment, install, name):
            kept = [pair for pair in kept if pair[0].span == install.span and pair[1].version is None]
            kept = [(install, item), *kept] if item.version is not None else [*kept, (install, item)]
        else:
            kept.append((install, item))
    return bool(removed), kept


def _release(matrix: Matrix, requirement: Requirement, held: _Held) -> WheelRelease | None:
    """Return the release that a requirement comes to: its pin, what is held already, or what goes with the torch."""
    package = matrix.package(requirement.name)
    if package is None:
        return None
    version = (requirement.version or "").partition("+")[0]
    if not version and requirement.name == held.name:
        # A wish that another release would have to meet would have taken the place of the one that is held.
        version = held.version
    if not version and requirement.name in _COMPANIONS and held.name == "torch":
        rows = matrix.torch_releases_where(lambda have: have == held.version)
        version = (getattr(rows[0], requirement.name) or "") if rows else ""
    return package.release(version) if version else None


def _is_absent(environment: Environment, matrix: Matrix, options: Options, held: _Held, name: str) -> bool:
    if any(not install.is_complete for install in environment.installs):
        return False
    if any(item.name == name for install in environment.installs for item in install.requirements):
        return False
    if environment.kind == "lock" and held.requirement.is_locked:
        # pkg_resources, which some of these are wanted for, comes with setuptools.
        return not any(item.name == "setuptools" for _, item in environment.requirements())
    base = environment.base
    python = python_of(environment, held.wanted, options)
    if base is None or base.repository != "python" or python is None or name != "setuptools":
        return False
    until = matrix.setting("audit_rules.toml", "setuptools_bundled_until").value or "0"
    if parse(python.rstrip("t")) <= parse(until):
        return False
    packages = {item.name for _, item in environment.requirements()}
    known = [_release(matrix, item, held) for _, item in environment.requirements()]
    if any(release is None for release in known) or not packages:
        return False
    return not any(need == name and not extra for release in known if release for need, _, _, extra in release.requires)


def _ways(matrix: Matrix, requirement: Requirement, bound: str) -> tuple[Way, ...]:
    """Return the newest release within a bound that a pin could name instead."""
    package = matrix.published(requirement.name) if requirement.ecosystem == "pypi" else None
    is_plain = requirement.is_literal and not requirement.is_hashed and not requirement.is_locked
    if package is None or not is_plain or "," in requirement.specifier:
        return ()
    fitting = (item for item in package.versions if admits(bound, item) and not parse(item).is_prerelease)
    newest = next(fitting, None)
    return (write_pins((requirement, newest)),) if newest is not None else ()


def _edits(held: _Held, requirement: Requirement | None, name: str, bound: str) -> tuple[tuple[Edit, ...], str]:
    """Return how to bound a package in a file; in a command a shell would take ``<`` for a redirection."""
    install = held.install
    fix = f"bound {name}"
    if requirement is None:
        if install.is_file and not held.requirement.is_locked and install.flags_at is not None:
            return (Edit(span=install.flags_at, text=install.flag_text(f"{name}{bound}")),), fix
        return (), ""
    if requirement.specifier or requirement.is_locked or not requirement.is_literal or requirement.marker:
        return (), ""
    if install.is_file and requirement.span.file == held.requirement.span.file:
        return (Edit(span=requirement.specifier_span, text=bound),), fix
    return (), ""
