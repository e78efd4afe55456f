"""A Stack for hosts: packages of the driver and of all around it, one profile a system.

The stack itself is solved as for an image. Then each system gets the driver from the best of its repositories, the
parts that were asked for, and the frameworks again for its own Python. A system that cannot have it says why; when it
was the user who named it, that is a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from provision.errors import DataError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import DriverBranch, Gpu, NodeSystem, OsRelease
from provision.matrix.query import cuda_releases, find_gpus, module_flavours
from provision.records import plain, replace
from provision.resolve.node_code import describe_builds
from provision.resolve.node_driver import choose_driver, describe_driver
from provision.resolve.node_job import ARCHITECTURE, PLATFORM, Job, No, RefusedError, name_packages
from provision.resolve.node_options import AUTOMATIC_METHODS, NodeOptions, node_flags
from provision.resolve.node_parts import Parts, pin_group
from provision.resolve.options import fact_of
from provision.resolve.request import FRAMEWORKS, Request, matches, parse_request, to_flags
from provision.resolve.solve import solve
from provision.resolve.stack import (
    Alternative,
    NodeEnvironment,
    NodeFrameworks,
    NodeGroup,
    NodeKernel,
    NodePart,
    NodeProfile,
    Reason,
    Refusal,
    Stack,
)
from provision.versions import branch_of, is_prefix_of, parse

_HOST = "host"
"""What an environment stands on instead of an image; the facts know nothing of it, so any Python will do."""
_ALTERNATIVES_MAX = 3


def solve_node(request: Request, options: NodeOptions, matrix: Matrix) -> Stack | Refusal:
    """Find the stack with a profile for every system, or say why there is none.

    Args:
        request: The request; its ``os`` is left to the options.
        options: What is asked about nodes.
        matrix: The facts.

    Raises:
        UsageError: The request is ambiguous or contradicts itself.
        DataError: The facts are malformed.
    """
    try:
        found = _attempt(request, options, matrix)
        if isinstance(found, Refusal):
            found = replace(found, alternatives=_alternatives(request, options, matrix, found))
    except ValueError as error:
        raise DataError(
            "the facts hold a malformed value",
            because=(str(error),),
            hints=("run `provision data check` for every fault of the data at once",),
        ) from error
    return found


def _attempt(request: Request, options: NodeOptions, matrix: Matrix) -> Stack | Refusal:
    systems = options.systems or tuple(sorted(matrix.node_systems))
    try:
        gpus = _gpus(request, matrix)
        _reject_unknown_systems(systems, matrix)
        _reject_options(request, options, matrix, gpus)
    except RefusedError as refused:
        return _refusal("no node can have this", [refused.no])
    stack = _solve_stack(request, options, systems, matrix)
    if isinstance(stack, Refusal):
        return _as_typed(stack, request)
    try:
        branch = _branch(request, stack, matrix)
        modules = _modules(branch, options, matrix)
        _reject_flavour(options, branch, gpus)
    except RefusedError as refused:
        return _refusal("no node can have this", [refused.no])
    job = Job(request=request, options=options, matrix=matrix, stack=stack, gpus=gpus, branch=branch, modules=modules)
    profiles: list[NodeProfile] = []
    refused_systems: list[tuple[str, No]] = []
    for name in systems:
        try:
            profiles.append(_profile(job, name))
        except RefusedError as refused:
            refused_systems.append((name, refused.no))
            profiles.append(NodeProfile(os=name, refusal=refused.no.because))
    if refused_systems and (options.systems or len(refused_systems) == len(systems)):
        names = ", ".join(name for name, _ in refused_systems)
        return _refusal(f"{names} cannot have this", [no for _, no in refused_systems])
    nos = [profile.frameworks.refusal for profile in profiles if profile.frameworks and profile.frameworks.refusal]
    if nos and not any(profile.frameworks and profile.frameworks.environments for profile in profiles):
        no = No(is_proved=False, because=nos[0])
        return _refusal(f"no system's own Python can have {' with '.join(stack.frameworks)}", [no])
    part = NodePart(
        request=_plain_options(options),
        modules=modules,
        architectures=tuple(sorted({gpu.architecture for gpu in gpus})),
        profiles=tuple(profiles),
    )
    return replace(stack, image=None, request=request, node=part)


def _gpus(request: Request, matrix: Matrix) -> tuple[Gpu, ...]:
    try:
        return tuple(row for name in request.gpus for row in find_gpus(matrix, name))
    except UnknownError as error:
        raise RefusedError(No(is_proved=False, because="; ".join((error.message, *error.hints)))) from error


def _reject_unknown_systems(systems: Iterable[str], matrix: Matrix) -> None:
    known = matrix.node_systems
    for name in systems:
        if name not in known:
            because = f"the facts know no packages of `{name}`; they know those of {', '.join(sorted(known))}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--os", name)))


def _reject_options(request: Request, options: NodeOptions, matrix: Matrix, gpus: tuple[Gpu, ...]) -> None:
    if options.method == "runfile":
        because = "a runfile is outside what the package manager knows: it is found and removed, never installed"
        raise RefusedError(No(is_proved=True, because=because, flags=("--method", "runfile")))
    if request.platform not in (None, PLATFORM):
        because = f"the facts know the packages of {PLATFORM} nodes only"
        raise RefusedError(No(is_proved=False, because=because, flags=("--platform", request.platform or "")))
    for name in request.gpus:
        rows = find_gpus(matrix, name)
        if all(gpu.host is not None and f"linux/{gpu.host}" != PLATFORM for gpu in rows):
            because = (
                f"{rows[0].name} is part of {rows[0].host} machines, and the facts know the packages of {PLATFORM}"
            )
            facts = (fact_of("gpu", rows[0].id, rows[0]),)
            raise RefusedError(No(is_proved=False, because=because, facts=facts, flags=("--gpu", name)))
    for minor in options.toolkits:
        releases = cuda_releases(matrix, minor)
        if not releases:
            because = f"the facts know no CUDA toolkit {minor}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--toolkit", minor)))
        for gpu in gpus:
            if gpu.last_cuda is not None and parse(minor) > parse(gpu.last_cuda):
                because = f"CUDA {minor} dropped {gpu.name}; CUDA {gpu.last_cuda} was its last"
                facts = (fact_of("gpu", gpu.id, gpu),)
                raise RefusedError(No(is_proved=True, because=because, facts=facts, flags=("--toolkit", minor)))


def _solve_stack(request: Request, options: NodeOptions, systems: tuple[str, ...], matrix: Matrix) -> Stack | Refusal:
    """Solve the stack that all systems share; one system alone decides Python and glibc too."""
    base = replace(request, os=None, driver=_newest(request.driver, options, systems, matrix), base=None, flavor=None)
    names = [name for name in FRAMEWORKS if getattr(request, name) is not None]
    if names and len(systems) == 1:
        row = _os_row(matrix, systems[0])
        found = solve(replace(base, os=row.id, python=base.python or row.python), matrix)
        if isinstance(found, Stack) or base.python is None:
            return found
    return solve(base, matrix)


def _newest(driver: str | None, options: NodeOptions, systems: tuple[str, ...], matrix: Matrix) -> str | None:
    """Return the newest version a driver wish can mean here, so that a branch is held to what it offers."""
    if driver is None:
        return None
    methods = AUTOMATIC_METHODS if options.method == "auto" else (options.method,)
    versions = [
        version
        for row in matrix.driver_packages
        if row.os in systems and row.method in methods and row.branch == branch_of(driver)
        for version in row.versions
        if is_prefix_of(driver, version)
    ]
    return max(versions, key=parse, default=driver)


def _as_typed(refusal: Refusal, request: Request) -> Refusal:
    """Return a refusal that names the driver as it was asked for."""
    typed = f"--driver {request.driver}"

    def retype(text: str) -> str:
        return re.sub(r"--driver [0-9.]+", typed, text)

    return replace(refusal, message=retype(refusal.message), conflict=tuple(map(retype, refusal.conflict)))


def _os_row(matrix: Matrix, name: str) -> OsRelease:
    row = matrix.os_release(name)
    if row is None:
        raise DataError(f"os.toml: `{name}` is missing")
    return row


def _branch(request: Request, stack: Stack, matrix: Matrix) -> DriverBranch:
    number = branch_of(request.driver) if request.driver else int(stack.driver.recommended_branch or 0)
    row = next((item for item in matrix.driver_branches if item.branch == number), None)
    if row is None:
        because = f"the facts know no driver branch {number}" if number else "no driver branch serves this"
        flags = ("--driver", request.driver) if request.driver else ()
        raise RefusedError(No(is_proved=False, because=because, flags=flags))
    return row


def _modules(branch: DriverBranch, options: NodeOptions, matrix: Matrix) -> dict[str, str]:
    """Return the flavour of each architecture that the branch drives; a wished one wherever it is possible."""
    modules = module_flavours(matrix, branch)
    if options.flavour == "auto":
        return {name: flavours[0] for name, flavours in modules.items()}
    return {name: options.flavour if options.flavour in flavours else flavours[0] for name, flavours in modules.items()}


def _reject_flavour(options: NodeOptions, branch: DriverBranch, gpus: tuple[Gpu, ...]) -> None:
    wish = options.flavour
    if wish == "auto":
        return
    flags = ("--flavour", wish)
    fact = fact_of("driver", str(branch.branch), branch, "open_modules")
    if (branch.open_modules, wish) in (("none", "open"), ("only", "proprietary")):
        said = "has no open modules" if wish == "open" else "has open modules only"
        raise RefusedError(No(is_proved=True, because=f"branch {branch.branch} {said}", facts=(fact,), flags=flags))
    for gpu in gpus:
        if (gpu.open_modules, wish) in (("unsupported", "open"), ("required", "proprietary")):
            said = "is not driven by open modules" if wish == "open" else "is driven by open modules only"
            facts = (fact_of("gpu", gpu.id, gpu),)
            raise RefusedError(No(is_proved=True, because=f"{gpu.name} {said}", facts=facts, flags=flags))


def _profile(job: Job, name: str) -> NodeProfile:
    matrix = job.matrix
    system, os_row = matrix.node_systems[name], _os_row(matrix, name)
    row, version, warnings = choose_driver(job, name)
    parts = Parts(job, os_row, system, row, version)
    driver, pins = describe_driver(job, row, version)
    fabric, imex = parts.fabric(driver.package_version)
    cudnn = parts.optional("cudnn", warnings)
    nccl = parts.optional("nccl", warnings)
    container_toolkit = parts.optional("container-toolkit", warnings)
    dcgm = parts.optional("dcgm", warnings)
    groups = {"fabric": fabric, "cudnn": cudnn, "nccl": nccl, "dcgm": dcgm, "container_toolkit": container_toolkit}
    for group in (fabric, imex, cudnn, nccl, container_toolkit, dcgm):
        pins += pin_group(group)
    frameworks = _frameworks(job, system, os_row, version)
    return NodeProfile(
        os=name,
        architectures=(ARCHITECTURE,),
        method=row.method,
        manager=system.manager,
        components=system.components,
        repositories=parts.repositories(frozenset(name for name, group in groups.items() if group is not None)),
        pins=tuple(pins),
        kernel=NodeKernel(
            headers=system.headers,
            image=system.image,
            headers_pattern=system.headers_pattern,
            build=() if row.method == "precompiled" else system.build,
        ),
        driver=driver,
        fabric=fabric,
        imex=imex,
        toolkits=parts.toolkits,
        default_toolkit=parts.default_toolkit,
        rdma=NodeGroup(packages=name_packages(system.rdma, None)) if system.rdma else None,
        firewall=name_packages(system.firewall, None),
        audit=name_packages(system.audit, None),
        frameworks=frameworks,
        cudnn=cudnn,
        nccl=nccl,
        container_toolkit=container_toolkit,
        dcgm=dcgm,
        warnings=tuple(warnings),
    )


def _frameworks(job: Job, system: NodeSystem, os_row: OsRelease, version: str) -> NodeFrameworks | None:
    """Return the environment of a system's own Python, or why it has none; nothing without a framework."""
    if not job.stack.frameworks:
        return None
    python = os_row.python
    if python is None:
        return NodeFrameworks(python="unknown", refusal=f"the facts do not know the Python of {os_row.name}")
    packages = name_packages(system.python, None)

    def refuse(because: str) -> NodeFrameworks:
        return NodeFrameworks(python=python, packages=packages, refusal=because)

    wish = job.request.python
    if wish is not None and not matches(wish, python):
        return refuse(f"{os_row.name} has Python {python}, not {wish}")
    found = solve(_own_request(job, os_row, python, version), job.matrix)
    if isinstance(found, Refusal):
        because = "; ".join(dict.fromkeys((found.message, *(reason.because for reason in found.because[:2]))))
        return refuse(because)
    locked = found.image.packages if found.image is not None else ()
    if not locked:
        return refuse(f"the facts know no environment for Python {python}")
    bare = [package.name for package in locked if package.sha256 is None]
    if bare and not job.options.keeps_unverified:
        return refuse(
            f"the facts know no hash of {', '.join(bare)} for Python {python}; `--fetch-hashes` asks the index"
        )
    name = "-".join(found.frameworks)
    environment = NodeEnvironment(
        name=name,
        packages=locked,
        imports=tuple(found.frameworks),
        versions=dict(found.frameworks),
        builds=describe_builds(found, version, job.matrix),
    )
    return NodeFrameworks(python=python, packages=packages, environments=(environment,))


def _own_request(job: Job, os_row: OsRelease, python: str, version: str) -> Request:
    """Ask for the very versions of the shared stack, on one system and its Python."""
    stack = job.stack
    torch = stack.frameworks.get("torch")
    if torch is not None and (variant := stack.variants.get("torch")):
        torch = f"{torch}+{variant}"
    cuda = job.request.cuda
    if cuda is None and "jax" in stack.frameworks:
        cuda = stack.cuda.split(".")[0]
    return Request(
        torch=torch,
        tensorflow=stack.frameworks.get("tensorflow"),
        jax=stack.frameworks.get("jax"),
        cuda=cuda,
        python=python,
        os=os_row.id,
        platform=PLATFORM,
        gpus=job.request.gpus,
        driver=version,
        base=_HOST,
    )


def _plain_options(options: NodeOptions) -> dict[str, Any]:
    document: dict[str, Any] = plain(replace(options, keeps_unverified=False))
    del document["keeps_unverified"]
    return {name: value for name, value in sorted(document.items()) if value not in (None, []) or name == "includes"}


def _refusal(message: str, nos: list[No]) -> Refusal:
    conflict = dict.fromkeys(" ".join(no.flags) for no in nos if no.flags)
    return Refusal(
        is_proved=all(no.is_proved for no in nos),
        message=message,
        conflict=tuple(conflict),
        # What holds for several systems is one reason.
        because=tuple(dict.fromkeys(Reason(subject="node", because=no.because, facts=no.facts) for no in nos)),
    )


def _alternatives(request: Request, options: NodeOptions, matrix: Matrix, refusal: Refusal) -> tuple[Alternative, ...]:
    """Return changed requests that were tried and met: those of the stack's own refusal first."""
    trials = [(item.change, _read_flags(item.flags), options) for item in refusal.alternatives]
    changes: tuple[tuple[bool, str, Callable[[], tuple[Request, NodeOptions]]], ...] = (
        (options.method != "auto", "another way to get the driver", lambda: (request, replace(options, method="auto"))),
        (options.flavour != "auto", "the module's flavour by GPU", lambda: (request, replace(options, flavour="auto"))),
        (request.driver is not None, "another driver", lambda: (replace(request, driver=None), options)),
        (
            request.driver is not None and "." in request.driver,
            "another driver of the branch",
            lambda: (replace(request, driver=str(branch_of(request.driver or "0"))), options),
        ),
        (
            request.container_toolkit is not None,
            "another container toolkit",
            lambda: (replace(request, container_toolkit=None), options),
        ),
        (
            bool(options.toolkits),
            "no CUDA toolkit besides the wheels",
            lambda: (request, replace(options, toolkits=())),
        ),
        (
            bool(options.includes),
            "none of the parts from NVIDIA's repositories",
            lambda: (request, replace(options, includes=())),
        ),
        (len(options.systems) > 0, "another system", lambda: (request, replace(options, systems=()))),
    )
    trials += [(change, *make()) for is_possible, change, make in changes if is_possible]
    found: dict[tuple[str, ...], Alternative] = {}
    for change, other_request, other_options in trials:
        if len(found) == _ALTERNATIVES_MAX:
            break
        try:
            answer = _attempt(other_request, other_options, matrix)
        except UsageError:
            continue
        if isinstance(answer, Stack):
            flags = (*to_flags(replace(other_request, os=None)), *node_flags(other_options))
            if not flags and answer.node is not None:
                # A command without a word asks for nothing: name the systems that it was met on.
                names = tuple(profile.os for profile in answer.node.profiles if profile.driver is not None)
                flags = node_flags(replace(other_options, systems=names))
            found.setdefault(flags, Alternative(flags=flags, change=change))
    return tuple(found.values())


def _read_flags(words: tuple[str, ...]) -> Request:
    values: dict[str, Any] = {}
    position = 0
    while position < len(words):
        name = words[position].removeprefix("--")
        if name == "require-secure":
            values[name] = True
            position += 1
            continue
        value = words[position + 1]
        values[name] = [*values.get(name, []), value] if name in ("gpu", "with") else value
        position += 2
    return parse_request({name: value for name, value in values.items() if name != "os"})
