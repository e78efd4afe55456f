"""The rules: each looks at one candidate and returns why it will not do, or nothing.

A rejection says whether the facts prove it. Rules know no other rule; their order is the order of explanation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from provision.matrix.load import Matrix
from provision.matrix.model import DriverBranch, Exclusion, Gpu, OsRelease
from provision.matrix.query import capability_of, cuda_releases, find_first_branch, secure_minimums, serves
from provision.records import record, replace
from provision.resolve.fit import excluding_bound
from provision.resolve.options import Option, fact_of, has_code_for, late_compiler
from provision.resolve.request import FRAMEWORKS, Request, matches
from provision.resolve.stack import FactRef
from provision.versions import branch_of, minor_of, parse


@record
class Wish:
    """A request with its names looked up.

    Attributes:
        gpus: For each name in the request, the rows it may mean (all of one compute capability).
        os: The row of ``--os``.
        flavor: The flavor in force, ``runtime`` unless asked or needed.
        driver: The release of ``--driver``; a branch stands for its newest known release.
        is_image: An image is to be built, which takes a Python that the installer runs on where there is a choice.
    """

    request: Request
    platform: str
    gpus: tuple[tuple[str, tuple[Gpu, ...]], ...]
    os: OsRelease | None
    flavor: str
    driver: str | None = None
    is_image: bool = False


@record
class Rejection:
    """Why one candidate will not do.

    Attributes:
        rule: The rule's name.
        is_proved: The facts exclude it; else they are silent.
        subject: The candidate (``torch 2.1.2+cu121``); empty when the whole request is meant.
        version: Framework and version of the candidate, for grouping.
        because: What is wrong with it, as the rest of a sentence.
        facts: The rows it rests on.
    """

    rule: str
    is_proved: bool
    subject: str
    version: tuple[str, str] = ("", "")
    because: str
    facts: tuple[FactRef, ...] = ()


def cuda_matches(matrix: Matrix, wish: str | None, minor: str) -> bool:
    """Tell whether a build for one CUDA minor is what ``--cuda`` asks for; a patch names its minor."""
    if wish is None or matches(wish, minor):
        return True
    if wish[0] in "<>=!~":
        names_patch = any(clause.strip("<>=!~").count(".") > 1 for clause in wish.split(","))
        return names_patch and any(matches(wish, row.version) for row in cuda_releases(matrix, minor))
    parts = parse(wish).release
    is_patch = len(parts) > len(("major", "minor"))
    return is_patch and any(row.version == wish for row in cuda_releases(matrix, minor))


def cuda_minors(matrix: Matrix, wish: str | None, major: int | None) -> tuple[str, ...]:
    """Return the minors of a CUDA major that are what a wish asks for, oldest first."""

    def find() -> tuple[str, ...]:
        minors = {minor_of(row.version) for row in matrix.cuda_below(str(major))}
        return tuple(sorted((minor for minor in minors if cuda_matches(matrix, wish, minor)), key=parse))

    return matrix.keep(("cuda_minors", wish, major), find)


def driver_floor(matrix: Matrix, option: Option) -> tuple[str, FactRef] | None:
    """Return the lowest driver an option runs on, with the fact; ``None`` when its CUDA is not in the matrix.

    A toolkit has the floor of its own patch. Wheels tell the minor alone, so the lowest floor of its patches is all
    that can be claimed; images of a minor hold its newest patch.

    Source: CUDA minor-version compatibility: a build runs on any driver at or above its major's floor.
    """
    patch = option.version if option.framework == "cuda" else None
    is_lowest = bool(option.cuda) and not option.system_cuda
    asked = minor_of(option.cuda) if option.cuda else str(option.cuda_major), patch, is_lowest
    floor = matrix.keep(("driver_floor", *asked), lambda: _cuda_floor(matrix, *asked))
    own = option.minimum_driver
    return (own, option.fact) if own is not None and (floor is None or parse(own) > parse(floor[0])) else floor


def _cuda_floor(matrix: Matrix, cuda: str, patch: str | None, is_lowest: bool) -> tuple[str, FactRef] | None:
    rows = [row for row in matrix.cuda_below(cuda) if patch is None or row.version == patch]
    row = (min if is_lowest else max)(rows, key=lambda row: parse(row.minimum_driver), default=None)
    return (row.minimum_driver, fact_of("cuda", row.version, row, "minimum_driver")) if row is not None else None


def taken(branch: str | None, release: str) -> str:
    """Return the words that say which release a branch stands for."""
    return f"`--driver {branch}` is taken as {release}, the newest known release of that branch"


def reject_wish(matrix: Matrix, wish: Wish) -> Iterator[Rejection]:
    """Reject what no stack could meet: GPUs no driver drives together, a driver that is not secure."""
    for name, rows in wish.gpus:
        for other, other_rows in wish.gpus:
            last = _last_branch(rows)
            first = first_branch(matrix, other_rows)[0]
            if first > last:
                yield Rejection(
                    rule="gpu-pair",
                    is_proved=True,
                    subject="",
                    because=f"{called(name, rows)} ends with driver branch {last}, "
                    f"{called(other, other_rows)} begins with {first}",
                    facts=(fact_of("gpu", rows[0].id, rows[0]), fact_of("gpu", other_rows[0].id, other_rows[0])),
                )
    for name, rows in wish.gpus:
        host = _host(rows)
        if host is not None and host != wish.platform:
            yield Rejection(
                rule="gpu-host",
                is_proved=True,
                subject="",
                because=f"{called(name, rows)} comes with {host} hosts only, not {wish.platform}",
                facts=(fact_of("gpu", rows[0].id, rows[0]),),
            )
        if all(row.segment == "embedded" for row in rows):
            yield Rejection(
                rule="gpu-embedded",
                is_proved=False,
                subject="",
                because=f"{called(name, rows)} runs NVIDIA's Linux for embedded boards, which the facts do not cover",
                facts=(fact_of("gpu", rows[0].id, rows[0]),),
            )
    driver = wish.driver
    if driver is not None:
        yield from _reject_driver(matrix, wish, driver)
    yield from _reject_toolkit(matrix, wish)


def _reject_driver(matrix: Matrix, wish: Wish, driver: str) -> Iterator[Rejection]:
    branch = branch_of(driver)
    for name, rows in wish.gpus:
        last = _last_branch(rows)
        first, known, is_derived = first_branch(matrix, rows)
        fact = fact_of("gpu", rows[0].id, rows[0])
        if branch > last:
            because = f"driver {driver} no longer drives {called(name, rows)}, whose last branch is {last}"
            yield Rejection(rule="gpu-driver", is_proved=True, subject="", because=because, facts=(fact,))
        if branch < first:
            because = f"driver {driver} does not know {called(name, rows)} yet, whose first branch is {first}"
            if is_derived:
                because += as_derived(known, rows)
                fact = replace(fact_of("gpu", known.id, known), status="derived")
            yield Rejection(rule="gpu-driver", is_proved=True, subject="", because=because, facts=(fact,))
    if wish.request.require_secure:
        problem = insecure_driver(matrix, driver)
        if problem:
            because, fact = problem
            yield Rejection(rule="secure", is_proved=True, subject="", because=because, facts=(fact,))


def insecure_driver(matrix: Matrix, driver: str) -> tuple[str, FactRef] | None:
    """Return why a driver has known vulnerabilities, with the bulletin, or ``None``."""
    if not matrix.security_floors:
        return None
    newest = max(matrix.security_floors, key=lambda row: row.updated)
    fact = fact_of("security", newest.bulletin, newest)
    floors = secure_minimums(matrix)
    branch = branch_of(driver)
    if branch in floors:
        floor = floors[branch][0]
        if parse(driver) < parse(floor):
            return f"driver {driver} is below {floor}, the lowest of its branch without a known vulnerability", fact
        return None
    if branch < max(floors, default=0):
        return f"driver branch {branch} gets no security fixes any more; bulletins name {_join(floors)}", fact
    return None


def driver_warning(matrix: Matrix, driver: str) -> str | None:
    """Return what to say of a driver that no rule need reject: not secure, past its end, or newer than the facts."""
    problem = insecure_driver(matrix, driver)
    if problem is not None:
        return problem[0]
    newest = max(row.branch for row in matrix.driver_branches)
    if branch_of(driver) > newest:
        return f"driver {driver} is newer than every branch of the facts, the newest of which is {newest}"
    row = next((row for row in matrix.driver_branches if row.branch == branch_of(driver)), None)
    return end_warning(matrix, row) if row is not None else None


def end_warning(matrix: Matrix, row: DriverBranch) -> str | None:
    """Return that a driver branch is past its end of life, or ``None``."""
    if row.end_of_life is None or row.end_of_life > matrix.dated:
        return None
    return f"driver branch {row.branch} is past its end of life ({row.end_of_life})"


def _reject_toolkit(matrix: Matrix, wish: Wish) -> Iterator[Rejection]:
    have = wish.request.container_toolkit
    if have is None or not wish.request.require_secure:
        return
    problem = insecure_toolkit(matrix, have)
    if problem:
        because, fact = problem
        yield Rejection(rule="secure", is_proved=True, subject="", because=because, facts=(fact,))


def insecure_toolkit(matrix: Matrix, version: str) -> tuple[str, FactRef] | None:
    """Return why a container toolkit has known vulnerabilities, with the fact, or ``None``."""
    floor = matrix.settings("container_toolkit.toml").get("minimum_safe")
    if floor is None or floor.value is None or parse(version) >= parse(floor.value):
        return None
    fact = fact_of("container-toolkit", floor.value, floor)
    return f"container toolkit {version} is below {floor.value}, the lowest without a known vulnerability", fact


def _join(numbers: dict[int, tuple[str, str]]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def _last_branch(rows: tuple[Gpu, ...]) -> int:
    return max((row.last_driver_branch or _NO_END for row in rows), default=_NO_END)


def first_branch(matrix: Matrix, rows: tuple[Gpu, ...]) -> tuple[int, Gpu, bool]:
    """Return the first driver branch of GPUs that a name may mean, the row that says it, and whether it is derived."""
    found = [find_first_branch(matrix, row) or (0, row, False) for row in rows]
    return min(found, key=lambda item: (item[0], item[2]))


def as_derived(known: Gpu, rows: tuple[Gpu, ...]) -> str:
    """Return the words that go with a first branch that no fact states of the GPU."""
    if any(row.id == known.id for row in rows):
        return " (derived)"
    if known.compute_capability == rows[0].compute_capability:
        return f" (derived from other GPUs of compute capability {known.compute_capability})"
    return f" (derived from other GPUs of the {known.architecture} architecture)"


def called(name: str, rows: tuple[Gpu, ...]) -> str:
    """Return what to call the GPUs a name may mean: the model where it is one, else the name as it was typed."""
    return rows[0].name if len({row.name for row in rows}) == 1 else name


def _host(rows: tuple[Gpu, ...]) -> str | None:
    """Return the one platform these GPUs come with, or ``None`` where there is a choice."""
    hosts = {row.host for row in rows}
    return f"linux/{hosts.pop()}" if len(hosts) == 1 and None not in hosts else None


_NO_END = 10_000

Rule = Callable[[Matrix, Wish, Option], "Rejection | None"]


def _cuda(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    wanted = wish.request.cuda
    if wanted is None or option.framework == "cuda":
        return None
    if cuda_matches(matrix, wanted, option.cuda) if option.cuda else cuda_minors(matrix, wanted, option.cuda_major):
        return None
    because = f"is built for CUDA {option.cuda or option.cuda_major}"
    return _rejection("cuda", option, because)


def _platform(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    del matrix
    if option.has_platform:
        return None
    if option.has_platform is None:
        return _rejection("platform", option, f"is not known to have {wish.platform} wheels with CUDA", is_proved=False)
    return _rejection("platform", option, f"has no {wish.platform} wheels with CUDA")


def _gpu(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    for name, rows in wish.gpus:
        gpu, title = rows[0], called(name, rows)
        facts = (option.fact, fact_of("gpu", gpu.id, gpu))
        number = "".join(gpu.compute_capability.split("."))
        if option.framework == "cuda":
            if gpu.last_cuda is not None and parse(option.cuda) > parse(gpu.last_cuda):
                return _rejection(
                    "gpu", option, f"dropped {title} (sm_{number}); CUDA {gpu.last_cuda} was its last", facts=facts
                )
            is_older = gpu.first_cuda is not None and parse(option.cuda) < parse(gpu.first_cuda)
            if is_older and serves(gpu, option.sm or (), ()) is None:
                return _rejection(
                    "gpu",
                    option,
                    f"is older than {title} (sm_{number}), which begins with CUDA {gpu.first_cuda}",
                    facts=facts,
                )
            continue
        has_code = has_code_for(option, capability_of(f"sm_{number}"))
        if has_code is False:
            because = f"has no code for {title} (sm_{number}), only {_span(option)}"
            if option.sm_min is not None and int(number) < option.sm_min:
                because = f"needs compute capability {option.sm_min / 10:.1f}, {title} has {gpu.compute_capability}"
            return _rejection("gpu", option, because, facts=facts)
        if has_code is None and option.is_known:
            because = f"has no known list of GPU code, so whether it serves {title} is open"
            return _rejection("gpu", option, because, is_proved=False, facts=facts)
        if gpu.first_cuda is not None and brings_any_cuda(option) and _is_earlier(matrix, wish, option, gpu.first_cuda):
            because = (
                f"stands on a CUDA older than {title} (sm_{number}), which begins with CUDA {gpu.first_cuda}, and no "
                "fact says that its libraries run there"
            )
            return _rejection("gpu", option, because, is_proved=False, facts=facts)
        if gpu.last_cuda is not None and _is_later(option, gpu.last_cuda):
            because = f"brings a CUDA that dropped {title} (sm_{number}); CUDA {gpu.last_cuda} was its last"
            return _rejection("gpu", option, because, facts=facts)
    return None


def _is_later(option: Option, cuda: str) -> bool:
    """Tell whether a build's CUDA is surely later than one, also where the packages decide its minor."""
    if option.cuda:
        return parse(option.cuda) > parse(cuda)
    return option.cuda_major > parse(cuda).major


def _is_earlier(matrix: Matrix, wish: Wish, option: Option, cuda: str) -> bool:
    """Tell whether a build's CUDA is surely earlier than one, also where the packages decide its minor as asked."""
    if option.cuda:
        return parse(option.cuda) < parse(cuda)
    wanted = wish.request.cuda
    asked = cuda_minors(matrix, wanted, option.cuda_major) if wanted is not None else ()
    return bool(asked) and parse(asked[-1]) < parse(cuda)


def brings_any_cuda(option: Option) -> bool:
    """Tell whether a build takes its CUDA libraries as they come: they may be older than a GPU that its code serves."""
    return option.framework != "cuda" and (option.sm is None or not option.cuda)


def _span(option: Option) -> str:
    return " ".join((*(option.sm or ()), *option.ptx))


def _gpu_floor(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    floor = driver_floor(matrix, option)
    if floor is None:
        return None
    for name, rows in wish.gpus:
        last = _last_branch(rows)
        if branch_of(floor[0]) > last:
            because = f"needs driver {floor[0]}, and {called(name, rows)} ends with branch {last}"
            return _rejection("gpu", option, because, facts=(floor[1], fact_of("gpu", rows[0].id, rows[0])))
    return None


def _gpu_libraries(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    """Reject a build that pins, bundles or stands on a library that does not serve the GPU."""
    for name, rows in wish.gpus:
        found = excluding_bound(matrix, option, rows[0])
        if found is None:
            continue
        wanted, bound = found
        number = rows[0].compute_capability.replace(".", "")
        because = f"needs cuDNN {wanted.removeprefix('==')}, and {bound.because}; {called(name, rows)} is sm_{number}"
        return _rejection(
            "gpu-library", option, because, facts=(option.fact, bound.fact, fact_of("gpu", rows[0].id, rows[0]))
        )
    return None


def _driver(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    driver = wish.driver
    if driver is None:
        return None
    floor = driver_floor(matrix, option)
    if floor is None:
        return None
    if parse(driver) < parse(floor[0]):
        return _rejection("driver", option, f"needs driver {floor[0]} or newer", facts=(floor[1],))
    for name, rows in wish.gpus:
        how = serves(rows[0], option.sm, option.ptx) if option.sm is not None else None
        if how is None or not how.startswith("compute_"):
            continue
        newest = late_compiler(matrix, option, driver)
        if newest is not None:
            because = (
                f"reaches {called(name, rows)} only through {how}, which a driver below branch "
                f"{newest.matching_driver_branch} cannot compile"
            )
            return _rejection("driver", option, because, facts=(fact_of("cuda", newest.version, newest),))
    return None


def _os(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    del matrix
    if wish.os is None or option.glibc is None or wish.os.glibc is None:
        return None
    if parse(wish.os.glibc) >= parse(option.glibc):
        return None
    because = f"needs glibc {option.glibc}, {wish.os.name} has {wish.os.glibc}"
    return _rejection("os", option, because, facts=(option.fact, fact_of("os", wish.os.id, wish.os)))


def _floor(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    if wish.request.is_cpu or driver_floor(matrix, option) is not None:
        return None
    return _rejection("driver", option, "has a CUDA whose driver floor the facts do not hold", is_proved=False)


def _existence(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    del matrix, wish
    if option.is_known:
        return None
    return _rejection("existence", option, "may or may not have been published", is_proved=False)


OPTION_RULES: tuple[Rule, ...] = (
    _cuda,
    _platform,
    _gpu,
    _gpu_libraries,
    _floor,
    _gpu_floor,
    _driver,
    _os,
    _existence,
)


def reject_option(matrix: Matrix, wish: Wish, option: Option) -> Rejection | None:
    """Return why an option will not do whatever Python goes with it, the first rule's word; else ``None``.

    A proved rejection comes before one that is merely open.
    """
    first = None
    for rule in OPTION_RULES:
        found = rule(matrix, wish, option)
        if found is not None and found.is_proved:
            return found
        first = first or found
    return first


def _rejection(
    rule: str, option: Option, because: str, *, is_proved: bool = True, facts: tuple[FactRef, ...] | None = None
) -> Rejection:
    return Rejection(
        rule=rule,
        is_proved=is_proved,
        subject=option.label,
        version=(option.framework, option.version),
        because=because,
        facts=facts if facts is not None else (option.fact,),
    )


_SIDE = r"([a-z][a-z0-9-]*)\s*((?:~=|==|!=|<=|>=|<|>).*)?"


def excluded_pair(matrix: Matrix, named: dict[str, str], gpu: Gpu | None = None) -> Rejection | None:
    """Return the known-bad pair a set of named versions falls under, one that is proved first, or ``None``.

    Args:
        matrix: The facts.
        named: Distribution, ``cuda`` or ``python`` → version.
        gpu: What it runs on.
    """
    found = find_exclusion(matrix, named, gpu)
    if found is None:
        return None
    row, because = found
    return Rejection(
        rule="exclusion",
        is_proved=not row.is_open,
        subject="",
        because=because,
        facts=(fact_of("exclusion", row.id, row),),
    )


def find_exclusion(matrix: Matrix, named: dict[str, str], gpu: Gpu | None = None) -> tuple[Exclusion, str] | None:
    """Return the row of :func:`excluded_pair`, and what fails in words that follow what is named."""
    named = {**named, **_named_of(gpu)} if gpu is not None else named
    rows = matrix.exclusions_where(lambda left: side_holds(left, named))
    for row in sorted(rows, key=lambda row: bool(row.is_open)):
        if not row.is_partial and side_holds(row.right, named):
            return row, f"{_failing(row, named)}: {row.symptom}"
    return None


def _named_of(gpu: Gpu) -> dict[str, str]:
    """Return what requirement texts of the facts may say of a GPU."""
    return {"gpu-architecture": gpu.architecture, "gpu-capability": gpu.compute_capability}


def _failing(row: Exclusion, named: dict[str, str]) -> str:
    """Return the words, after what is named, that say what fails; which versions are meant stands in the row."""
    verb = "is not known to work" if row.is_open else "does not work"
    if row.right.startswith("gpu-architecture"):
        return f"{verb} on {named['gpu-architecture']} GPUs"
    if row.right.startswith("gpu-capability"):
        return f"{verb} on GPUs of compute capability {named['gpu-capability']}"
    return "fail together" if len(set(FRAMEWORKS) & set(named)) > 1 else f"{verb} with {row.right}"


def partial_pairs(matrix: Matrix, option: Option, gpu: Gpu) -> tuple[Exclusion, ...]:
    """Return what of a build's own parts does not work on a GPU on which the rest of it does."""
    named = {option.framework: option.version, **_named_of(gpu)}
    triton = getattr(option.row, "triton", None)
    if triton and triton.startswith("=="):
        named["triton"] = triton.removeprefix("==")
    return tuple(
        row
        for row in matrix.exclusions_where(lambda left: side_holds(left, named))
        if row.is_partial and side_holds(row.right, named)
    )


def side_holds(side: str, named: dict[str, str]) -> bool:
    """Tell whether a requirement text (``torch>=2.11``, ``gpu-architecture==Volta``) holds of what is named."""
    found = re.fullmatch(_SIDE, side)
    if found is None or found[1] not in named:
        return False
    value, comparison = named[found[1]], found[2]
    if not comparison:
        return True
    if found[1] == "gpu-architecture":
        return value == comparison.removeprefix("==")
    return matches(comparison.replace(" ", ""), value)
