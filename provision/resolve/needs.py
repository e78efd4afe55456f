"""What an environment must hold beyond its roots, and its closure under all of it.

Beyond the framework's own needs there are the hidden constraints of the matrix, the lines of the user and what
``--with`` brings. A constraint may be woken by a package that only the closure brings in, so closing repeats until
no constraint is left asleep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provision.matrix.load import Matrix
from provision.matrix.model import Extra, HiddenConstraint
from provision.records import NOTHING
from provision.resolve.environment import MACHINES, Clash, Demand, Environment, Given, solve_environment
from provision.resolve.fit import cudnn_bounds
from provision.resolve.halves import binds, bounds_of, is_open
from provision.resolve.options import Option, companions_of, demands_of, fact_of
from provision.resolve.request import matches
from provision.resolve.rules import Wish, called, cuda_minors
from provision.versions import parse

_OWN_PARTS = ("requirements", "with")


def close(
    matrix: Matrix,
    wish: Wish,
    options: tuple[Option, ...],
    python: str,
    glibc: str | None,
    extras: tuple[Extra, ...],
    more_bounds: Sequence[Demand] = (),
) -> tuple[Environment, tuple[HiddenConstraint, ...]] | Clash:
    """Close an environment.

    Args:
        matrix: The facts.
        wish: The request.
        options: One build a framework.
        python: The Python.
        glibc: glibc of the base, where known.
        extras: What ``--with`` adds.
        more_bounds: What it asks of packages that may be there.

    Returns:
        The environment with the hidden constraints that shaped it, or the clash.
    """
    demands: list[Demand] = []
    given: dict[str, Given] = {}
    for option in options:
        more, more_given = demands_of(matrix, option, python, MACHINES[wish.platform])
        demands += more
        given.update(more_given)
        if not option.cuda:
            demands += _cuda_demands(matrix, wish, option)
        demands += _gpu_demands(matrix, wish, option)
    if lacking := _lacking_companion(matrix, wish, options, python, {demand.name for demand in demands}):
        return lacking
    bounds, direct = _user_demands(matrix, wish, options, python)
    demands += [*bounds, *more_bounds]
    for extra in extras:
        lines = (*extra.requires, *extra.constraints)
        demands += _requirement_demands(lines, f"--with {extra.id}", "with", wish, python)[0]
    machine = MACHINES[wish.platform]
    builds = {option.variant for option in options}
    left_open: set[str] = set()
    applied: list[HiddenConstraint] = []
    versions = {option.framework: option.version for option in options}
    for demand in demands:
        if demand.specifier.startswith("==") and "*" not in demand.specifier:
            versions.setdefault(demand.name.partition("[")[0], demand.specifier.removeprefix("==").partition("+")[0])
    while True:
        fresh = [
            row
            for row in matrix.constraints_of(versions)
            if row not in applied and binds(row, versions, builds, python)
        ]
        for row in fresh:
            applied.append(row)
            demands += [
                Demand(
                    name=name,
                    specifier=bound,
                    why=f"{row.package} {versions[row.package]} ({row.id})",
                    part=options[0].framework,
                    is_bound=row.kind == "bound",
                )
                for name, bound in bounds_of(row, wish.request).items()
            ]
        solved = solve_environment(matrix, tuple(demands), python=python, machine=machine, glibc=glibc, given=given)
        while isinstance(solved, Clash) and _is_unlisted(solved):
            # The facts do not list what is asked for; a resolver with an index may know it.
            left_open.add(solved.name)
            demands = [item for item in demands if not (item.name == solved.name and item.part in _OWN_PARTS)]
            solved = solve_environment(matrix, tuple(demands), python=python, machine=machine, glibc=glibc, given=given)
        if isinstance(solved, Clash):
            return solved
        for pick in solved.picks:
            if pick.name in direct and is_open(pick.name):
                left_open.add(pick.name)
            elif pick.name in direct:
                asked = Demand(
                    name=pick.name, specifier=" from an address", why="your requirements file", part="requirements"
                )
                locked = Demand(name=pick.name, specifier=f"=={pick.version}", why=pick.why, part=options[0].framework)
                return Clash(is_proved=True, name=pick.name, demands=(asked, locked))
        before = dict(versions)
        versions.update({pick.name: pick.version.partition("+")[0] for pick in solved.picks})
        if versions == before or not any(
            row not in applied and binds(row, versions, builds, python) for row in matrix.constraints_of(versions)
        ):
            names = {pick.name for pick in solved.picks}
            kept = Environment(picks=tuple(pick for pick in solved.picks if pick.name not in left_open))
            return kept, tuple(row for row in applied if names & set(row.requires))


def _lacking_companion(
    matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str, there: set[str]
) -> Clash | None:
    """Return why a build will not do where lines name what is released with it, and there is no wheel of that."""
    for option in options if wish.request.requirements else ():
        absent = {name: version for name, version in companions_of(matrix, option).items() if name not in there}
        asked = _asked_versions(wish.request.requirements, python, wish.platform) if absent else {}
        for name in sorted(absent.keys() & asked.keys()):
            version = absent[name]
            if not all(matches(specifier, version) for specifier in asked[name]):
                continue  # Another release than the one of this framework: the line says which.
            label = f"{option.framework} {option.version}"
            why = f"your requirements file, beside {label},"
            own = Demand(name=name, specifier=f"=={version}", why=why, part="requirements")
            versions = {option.framework: option.version}
            stated = [
                Demand(
                    name=name,
                    specifier=row.requires[name],
                    why=f"{label} ({row.id})",
                    part=option.framework,
                    facts=(fact_of("constraint", row.id, row),),
                )
                for row in matrix.constraints_of(versions)
                if binds(row, versions, (option.variant,), python)
                and name in row.requires
                and not matches(row.requires[name], version)
            ]
            return Clash(is_proved=bool(stated), name=name, demands=(own, *stated))
    return None


def _asked_versions(lines: tuple[str, ...], python: str, platform: str) -> dict[str, list[str | None]]:
    """Return what the lines ask for that count on a Python of a platform: name → specifiers, none for any version."""
    from provision.resolve.requirements import parse_requirements, place_of, requirement_of

    place = place_of(python, MACHINES[platform])
    asked: dict[str, list[str | None]] = {}
    for line in parse_requirements("\n".join(lines), "-r"):
        held = requirement_of(line.text)
        if held.marker is None or held.marker.evaluate(place):
            asked.setdefault(line.name, []).append(held.specifier or None)
    return asked


def _is_unlisted(clash: Clash) -> bool:
    """Tell whether a clash is only that the facts know no wheel of an open distribution that the user's lines want."""
    own = any(demand.part in _OWN_PARTS and demand.specifier for demand in clash.demands)
    return own and not clash.is_proved and is_open(clash.name)


def _cuda_demands(matrix: Matrix, wish: Wish, option: Option) -> list[Demand]:
    """Hold the CUDA components of a plugin to the minor that was asked for."""
    wanted = wish.request.cuda
    if wanted is None or wanted.isdigit():
        return []
    fitting = cuda_minors(matrix, wanted, option.cuda_major)
    if not fitting or fitting == cuda_minors(matrix, None, option.cuda_major):
        return []
    low, high = parse(fitting[0]), parse(fitting[-1])
    bound = f">={low.major}.{low.minor},<{high.major}.{high.minor + 1}"
    suffix = f"-cu{option.cuda_major}" if option.cuda_major < 13 else ""
    return [
        Demand(name=f"nvidia-cuda-{part}{suffix}", specifier=bound, why="the request", part="cuda", is_bound=True)
        for part in ("runtime", "nvcc", "nvrtc", "cupti")
    ]


def _gpu_demands(matrix: Matrix, wish: Wish, option: Option) -> list[Demand]:
    """Hold the libraries of a build to versions that serve every GPU."""
    return [
        Demand(
            name=bound.name,
            specifier=bound.specifier,
            why=f"{called(name, rows)} ({bound.because})",
            part="gpus",
            is_bound=True,
            facts=(bound.fact, fact_of("gpu", rows[0].id, rows[0])),
        )
        for name, rows in wish.gpus
        for bound in cudnn_bounds(matrix, rows[0], option.cuda_major)
    ]


def _user_demands(
    matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str
) -> tuple[list[Demand], dict[str, str]]:
    """Return the bounds of the user's lines, and those that name an address instead: name → line."""
    lines, bounds = wish.request.requirements, wish.request.constraints
    if not lines and not bounds:
        return [], {}
    # What is released with a build of PyTorch bears the same local part.
    variants = {
        name: option.variant for option in options for name in (option.framework, *companions_of(matrix, option))
    }
    demands, direct = _requirement_demands(lines, "your requirements file", "requirements", wish, python, variants)
    more, _ = _requirement_demands(bounds, "your constraints file", "constraints", wish, python, variants)
    return [*demands, *more], direct


def _requirement_demands(
    lines: tuple[str, ...], why: str, part: str, wish: Wish, python: str, variants: Mapping[str, str] = NOTHING
) -> tuple[list[Demand], dict[str, str]]:
    from provision.resolve.requirements import parse_requirements, place_of, requirement_of

    demands, direct = [], {}
    place = place_of(python, MACHINES[wish.platform])
    for line in parse_requirements("\n".join(lines), why):
        requirement = requirement_of(line.text)
        if requirement.marker is not None and not requirement.marker.evaluate(place):
            continue
        if requirement.url is not None:
            # The name of an address alone is only suggested by it.
            if line.is_named:
                direct[line.name] = line.text
        elif line.specifier:
            # The build that PyPI serves has no local part, so one that is chosen is not asked for its own again.
            variant = variants.get(line.name)
            specifier = re.sub(rf"\+{re.escape(variant)}(?=,|$)", "", line.specifier) if variant else line.specifier
            demands.append(Demand(name=line.name, specifier=specifier, why=why, part=part, is_bound=True))
    return demands, direct
