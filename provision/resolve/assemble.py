"""Write a found solution down as a Stack, with a sentence and its facts for every decision."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import lru_cache

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, CudaImage, Extra, HiddenConstraint, PythonImage, TorchBuild
from provision.matrix.query import (
    capability_of,
    cuda_releases,
    is_settled,
    recommended_branch,
    runs_on,
    secure_minimums,
    serves,
)
from provision.records import record, replace
from provision.resolve.environment import (
    MACHINES,
    Demand,
    Environment,
    Pick,
    applies,
    cuda_runtime,
    solve_environment,
)
from provision.resolve.fit import open_bounds
from provision.resolve.foreign import base_cuda, known_base, name_and_tag
from provision.resolve.halves import bounds_of, layer_of
from provision.resolve.kernels import find_codeless, find_unlisted
from provision.resolve.named import named_lines
from provision.resolve.options import Option, fact_of, index_of, index_requires
from provision.resolve.request import AUTO, CPU
from provision.resolve.requirements import is_wheel, parse_requirements, requirement_of
from provision.resolve.rules import (
    Wish,
    as_derived,
    brings_any_cuda,
    called,
    driver_floor,
    driver_warning,
    first_branch,
    insecure_toolkit,
    partial_pairs,
    taken,
)
from provision.resolve.stack import (
    INIT,
    BaseImage,
    DriverNeed,
    ExtraPart,
    FrameworkBuild,
    ImagePart,
    LockedPackage,
    Reason,
    Stack,
)
from provision.resolve.targets import compile_targets, target_variables
from provision.versions import branch_of, minor_of, parse

_INSTALLER = "uv"
_INDEX_OF = {"jax": "pypi", "jaxlib": "jax"}
"""Where a wheel without a row comes from; everything else without one is a build of the PyTorch index."""


@record
class Solution:
    """What the search found: one option a framework, a Python, a closed environment and the images.

    ``pairs`` are the releases of extras that go with the framework, as the facts pair them.
    """

    wish: Wish
    options: tuple[Option, ...]
    python: str | None
    cuda: str
    picks: tuple[Pick, ...] = ()
    constraints: tuple[HiddenConstraint, ...] = ()
    python_image: PythonImage | None = None
    cuda_image: CudaImage | None = None
    extras: tuple[Extra, ...] = ()
    pairs: tuple[CompanionPackage, ...] = ()


def assemble(solution: Solution, matrix: Matrix) -> Stack:
    """Return the Stack of a solution.

    Args:
        solution: What the search found.
        matrix: The facts it was found in.
    """
    wish, options, first = solution.wish, solution.options, solution.options[0]
    versions = {pick.name: pick.version for pick in solution.picks}
    cudnn, nccl = _libraries(solution, versions)
    driver = _driver_need(solution, matrix)
    sm, ptx = _code(options)
    frameworks = {option.framework: option.version for option in options if option.framework != "cuda"}
    variants = {option.framework: option.variant for option in options if option.framework != "cuda"}
    stack = Stack(
        request=wish.request,
        facts_date=matrix.dated,
        python=solution.python,
        platform=wish.platform,
        os=_os(solution),
        cuda=solution.cuda,
        variant=first.variant,
        variants=variants,
        cudnn=cudnn,
        nccl=nccl,
        frameworks=frameworks,
        packages=versions,
        driver=driver,
        sm=sm,
        ptx=ptx,
        builds=tuple(_build(option, cudnn, nccl) for option in options) if len(options) > 1 else (),
        gpus=tuple(called(name, rows) for name, rows in wish.gpus),
        reasons=tuple(_reasons(solution, matrix, driver, cudnn)),
        warnings=tuple(_warnings(solution, matrix, driver)),
        image=_image(solution, matrix),
    )
    if stack.image is None or not stack.image.compiled:
        return stack
    return replace(stack, warnings=(*stack.warnings, *_published(stack, matrix)))


def _libraries(solution: Solution, versions: dict[str, str]) -> tuple[str | None, str | None]:
    first, image = solution.options[0], solution.cuda_image
    cudnn = next((version for name, version in versions.items() if name.startswith("nvidia-cudnn")), None)
    nccl = next((version for name, version in versions.items() if name.startswith("nvidia-nccl")), None)
    if first.system_cuda or first.framework == "cuda":
        return (image.cudnn if image and image.has_cudnn else None), (image.nccl if image else None)
    return cudnn or first.cudnn, nccl or first.nccl


def _build(option: Option, cudnn: str | None, nccl: str | None) -> FrameworkBuild:
    """Return what one framework of several was built for.

    Args:
        option: Its build.
        cudnn: The installed one, which is also that of a PyTorch whose metadata pins it and whose row does not say it.
        nccl: Likewise.
    """
    is_pinned = isinstance(option.row, TorchBuild) and not option.row.is_cuda_bundled and option.variant != CPU
    return FrameworkBuild(
        framework=option.framework,
        cuda=option.cuda or (str(option.cuda_major) if option.cuda_major else None),
        cudnn=option.cudnn or (cudnn if is_pinned else None),
        nccl=option.nccl or (nccl if is_pinned else None),
        sm=tuple(sorted(option.sm or (), key=capability_of)),
        ptx=tuple(sorted(option.ptx, key=capability_of)),
    )


def _os(solution: Solution) -> str:
    if solution.wish.os is not None:
        return solution.wish.os.id
    if solution.python_image is not None:
        return solution.python_image.os
    return solution.cuda_image.os if solution.cuda_image is not None else "unknown"


def _code(options: tuple[Option, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets whose GPUs every framework of the stack serves, by code or by PTX."""
    listed = [option for option in options if option.sm is not None]
    if not listed:
        return (), ()
    sm = [
        target
        for target in sorted({target for option in listed for target in option.sm or ()}, key=capability_of)
        if all(runs_on(capability_of(target), option.sm or (), option.ptx) for option in listed)
    ]
    ptx = [
        target
        for target in sorted({target for option in listed for target in option.ptx}, key=capability_of)
        if all(any(capability_of(other) <= capability_of(target) for other in option.ptx) for option in listed)
    ]
    return tuple(sm), tuple(ptx)


def _driver_need(solution: Solution, matrix: Matrix) -> DriverNeed:
    if solution.wish.request.is_cpu:
        return DriverNeed(minimum="")
    floors = [floor[0] for option in solution.options if (floor := driver_floor(matrix, option)) is not None]
    minimum = max(floors, key=parse)
    for _, rows in solution.wish.gpus:
        first = first_branch(matrix, rows)[0]
        if first > branch_of(minimum):
            minimum = str(first)
    gpus = tuple(row for _, rows in solution.wish.gpus for row in rows)
    branch = recommended_branch(matrix, minimum=minimum, cuda=solution.cuda, gpus=gpus)
    last = min((row.last_driver_branch for row in gpus if row.last_driver_branch is not None), default=None)
    secure = secure_minimums(matrix)
    newest = next(iter(cuda_releases(matrix, solution.cuda)), None)
    return DriverNeed(
        minimum=minimum,
        recommended_branch=str(branch.branch) if branch else None,
        native=newest.bundled_driver if newest else None,
        maximum_branch=str(last) if last is not None else None,
        secure_minimum={
            str(number): version
            for number, (version, _) in sorted(secure.items())
            if number >= branch_of(minimum) and (last is None or number <= last)
        },
    )


def _image(solution: Solution, matrix: Matrix) -> ImagePart | None:
    wish, request = solution.wish, solution.wish.request
    base: BaseImage
    cuda_base = None
    if request.base is not None:
        ref, _, digest = request.base.partition("@")
        base = BaseImage(ref=ref, digest=digest or None, os=request.os)
    elif solution.python_image is not None:
        image = solution.python_image
        base = BaseImage(ref=image.tag, digest=image.digest, os=image.os, size_mb=image.size_mb)
    elif solution.python is None and solution.cuda_image is not None:
        tag = solution.cuda_image
        base = _image_of(tag)
    else:
        return None
    if solution.cuda_image is not None and base.ref != solution.cuda_image.tag:
        tag = solution.cuda_image
        cuda_base = _image_of(tag)
    packages = _locked(solution, matrix)
    compiled, is_apart = _compiled(solution, matrix)
    compile_base = None
    if is_apart and solution.python_image is None:
        compile_base = base
    elif is_apart and (slim := _slim_image(solution, matrix)) is not None:
        compile_base, base = base, BaseImage(ref=slim.tag, digest=slim.digest, os=slim.os, size_mb=slim.size_mb)
    apt, build_apt = _apt(solution, matrix, base.os, is_apart=compile_base is not None)
    uploaded = [pick.wheel.uploaded for pick in solution.picks if pick.wheel and pick.wheel.uploaded]
    released = max((option.released for option in solution.options), default="")
    return ImagePart(
        flavor=wish.flavor,
        base=base,
        cuda_base=cuda_base,
        packages=packages,
        tools=_tools(solution, matrix),
        apt=tuple(sorted(apt)),
        build_apt=tuple(sorted(build_apt)),
        build_env=_build_env(compiled, solution, matrix),
        apt_snapshot=matrix.dated if request.apt_snapshot == AUTO else request.apt_snapshot,
        extras=tuple(
            ExtraPart(id=row.id, requires=row.requires, constraints=row.constraints, port=row.port, command=row.command)
            for row in solution.extras
        ),
        source_date_epoch=_epoch(max(uploaded)) if uploaded else _epoch(released or matrix.dated),
        library_path=_library_path(solution),
        user_requirements=request.requirements,
        compiled=compiled,
        compile_base=compile_base,
    )


def _compiled(solution: Solution, matrix: Matrix) -> tuple[tuple[str, ...], bool]:
    """Return what is compiled against the framework, and whether the final image then needs no compiler itself."""
    wish = solution.wish
    if wish.flavor != "devel" or solution.python is None:
        return (), False
    sources = _sources(matrix)
    wanted = {name for row in solution.extras for name in row.compiles or (row.id,)}
    if wish.request.requirements:
        lines = parse_requirements("\n".join(wish.request.requirements), "-r")
        wanted |= {requirement.name for requirement in lines}
        wanted -= {requirement.name for requirement in lines if is_wheel(requirement)}
    compiled = tuple(sorted(wanted & set(sources)))
    runs_nvcc = any(sources[name].runs_nvcc for name in compiled)
    takes_cuda = any(option.system_cuda or option.framework == "cuda" for option in solution.options)
    return compiled, bool(compiled) and not runs_nvcc and not takes_cuda


def _sources(matrix: Matrix) -> dict[str, Extra]:
    """Return the extras that nvcc compiles, by each package that is compiled."""
    return {name: row for row in matrix.extras if row.needs_nvcc for name in row.compiles or (row.id,)}


def _build_env(compiled: tuple[str, ...], solution: Solution, matrix: Matrix) -> dict[str, str]:
    """Return the variables that builds of packages read: what they need, and the GPUs where these are named."""
    sources = _sources(matrix) if compiled else {}
    needed = {name: value for package in compiled for name, value in sources[package].build_env.items()}
    archs = {name: value for package in compiled for name, value in sources[package].build_archs.items()}
    return dict(sorted((needed | target_variables(_targets(compiled, solution, matrix), archs)).items()))


def _targets(compiled: tuple[str, ...], solution: Solution, matrix: Matrix) -> tuple[str, ...]:
    return compile_targets(matrix, solution.wish, solution.options, solution.cuda) if compiled else ()


def _slim_image(solution: Solution, matrix: Matrix) -> PythonImage | None:
    """Return the image without compilers that stands on the same system as the chosen one."""
    full = solution.python_image
    if full is None:
        return None
    rows = matrix.python_images_of(full.python)
    fitting = (row for row in rows if row.os == full.os and solution.wish.platform in row.platforms)
    return next((row for row in fitting if row.flavour == "slim"), None)


def _image_of(row: CudaImage) -> BaseImage:
    cuda = minor_of(row.cuda)
    return BaseImage(ref=row.tag, digest=row.digest, os=row.os, cuda=cuda, size_mb=row.size_mb)


def _epoch(stamp: str) -> int:
    # Of old toolkits only the month or the year is known; their first day stands for it.
    day = stamp + "-01-01"[len(stamp) - len("2020") :] if len(stamp) <= len("2020-10") else stamp
    moment = datetime.datetime.fromisoformat(day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp())


def _apt(solution: Solution, matrix: Matrix, os_id: str | None, *, is_apart: bool) -> tuple[set[str], set[str]]:
    """Return the packages of the system that the image needs, and those that only the stage needs which compiles."""
    packages: set[str] = set()
    compiling: set[str] = set()
    for row in solution.extras:
        (compiling if is_apart and row.needs_nvcc else packages).update(row.apt)
    for setting_id, flavors in (("compiler_packages", ("jit", "dev")), ("development_packages", ("dev",))):
        if solution.wish.flavor in flavors:
            setting = matrix.settings("images.toml").get(setting_id)
            packages |= set((setting.entries.get(os_id or "", "") if setting else "").split())
    own = solution.wish.request.apt
    # Who names a version of what the stack needs anyway means that one.
    named = {item.partition("=")[0] for item in own}
    return {*own, *(item for item in packages if item not in named)}, compiling


def _library_path(solution: Solution) -> tuple[str, ...]:
    """Return the folders TensorFlow cannot find by itself, where a fact says so."""
    if not any(getattr(option.row, "needs_library_path", None) for option in solution.options):
        return ()
    folders = set()
    for pick in solution.picks:
        if pick.name.startswith("nvidia-") and pick.name != "nvidia-cuda-nvcc-cu12":
            part = pick.name.removeprefix("nvidia-").rpartition("-cu")[0] or pick.name.removeprefix("nvidia-")
            folders.add(f"nvidia/{part.replace('-', '_')}/lib")
    return tuple(sorted(folders))


def _locked(solution: Solution, matrix: Matrix) -> tuple[LockedPackage, ...]:
    rows = []
    wish = solution.wish
    has_open_needs = any(
        isinstance(option.row, TorchBuild)
        and index_of(option.row, MACHINES[wish.platform]) != "pypi"
        and index_requires(matrix, option.row) is None
        for option in solution.options
    )
    urls = matrix.settings("frameworks/torch.toml").get("wheel_index")
    jax_urls = matrix.settings("frameworks/jax.toml").get("legacy_index")
    for pick in solution.picks:
        local = pick.version.partition("+")[2]
        index = pick.release.index if pick.release else _INDEX_OF.get(pick.name, "pytorch")
        index_url = None
        if index == "pytorch" and urls is not None and urls.value is not None:
            index_url = urls.value.replace("{variant}", local)
        elif index == "jax" and jax_urls is not None:
            index_url = jax_urls.value
        is_source = pick.wheel is None and pick.name == "jax"
        is_open = is_source or (pick.name == "torch" and has_open_needs)
        rows.append(
            _package(
                pick,
                index=index,
                layer=layer_of(pick.name),
                index_url=index_url,
                has_unknown_dependencies=is_open,
                is_source=is_source or (pick.wheel is not None and not pick.wheel.file.endswith(".whl")),
            )
        )
    return tuple(rows)


def _tools(solution: Solution, matrix: Matrix) -> tuple[LockedPackage, ...]:
    """Return the newest installer whose wheel runs where the image is built, and the init that the image starts."""
    if solution.python is None:
        return ()
    tools: list[LockedPackage] = []
    for name in (_INSTALLER, INIT):
        found = find_tool(matrix, name, solution.python, solution.wish.platform)
        if not found:
            break
        tools += [_package(pick, index="pypi", layer="tools") for pick in found]
    return tuple(tools)


def find_installer(matrix: Matrix, python: str, platform: str) -> tuple[Pick, ...]:
    """Return the newest installer whose wheel runs where an image is built; nothing where none does."""
    return find_tool(matrix, _INSTALLER, python, platform)


@lru_cache(maxsize=None)
def find_tool(matrix: Matrix, name: str, python: str, platform: str) -> tuple[Pick, ...]:
    """Return the newest release of a tool whose wheel runs where an image is built; nothing where none does."""
    demand = Demand(name=name, specifier="", why="the build", part="image")
    found = solve_environment(matrix, (demand,), python=python, machine=MACHINES[platform], glibc=None, given={})
    return found.picks if isinstance(found, Environment) else ()


def _package(
    pick: Pick,
    *,
    index: str,
    layer: str,
    index_url: str | None = None,
    has_unknown_dependencies: bool = False,
    is_source: bool = False,
) -> LockedPackage:
    wheel = pick.wheel
    return LockedPackage(
        name=pick.name,
        version=pick.version,
        index=index,
        file=wheel.file if wheel else None,
        sha256=wheel.sha256 if wheel else None,
        size=wheel.size if wheel else None,
        installed=wheel.installed if wheel else None,
        url=wheel.url if wheel else None,
        index_url=index_url,
        layer=layer,
        why=pick.why,
        has_unknown_dependencies=has_unknown_dependencies,
        is_source=is_source,
    )


def _reasons(solution: Solution, matrix: Matrix, driver: DriverNeed, cudnn: str | None) -> list[Reason]:
    wish, request = solution.wish, solution.wish.request
    is_held = request.base is not None and base_cuda(matrix, request.base) is not None
    reasons = [_option_reason(option, wish, solution.python, is_held=is_held) for option in solution.options]
    reasons.append(_cuda_reason(solution))
    if cudnn is not None:
        first = solution.options[0]
        where = "the nvidia/cuda image" if first.system_cuda or first.framework == "cuda" else "the wheels"
        kind, _, key = first.fact.id.partition("/")
        fact = fact_of(kind, key, first.row, "cudnn")
        reasons.append(Reason(subject="cudnn", because=f"cuDNN {cudnn} comes with {where}", facts=(fact,)))
    if solution.python is not None:
        reasons.append(_python_reason(solution, matrix))
    floor = max(
        (found for option in solution.options if option.variant != CPU and (found := driver_floor(matrix, option))),
        key=lambda found: parse(found[0]),
        default=None,
    )
    if floor is not None:
        because = f"CUDA {solution.cuda} runs on driver {floor[0]} or newer"
        if driver.native:
            because += f"; it was released with {driver.native}"
        facts = [floor[1]]
        for name, rows in wish.gpus:
            begins, known, is_derived = first_branch(matrix, rows)
            if driver.minimum != floor[0] and str(begins) == driver.minimum:
                how = as_derived(known, rows) if is_derived else ""
                because = f"{called(name, rows)} begins with driver branch {driver.minimum}{how}; {because}"
                row_of = fact_of("gpu", known.id, known)
                facts.append(replace(row_of, status="derived") if is_derived else row_of)
        if wish.driver != request.driver and wish.driver is not None:
            because += f"; {taken(request.driver, wish.driver)}"
        reasons.append(Reason(subject="driver", because=because, facts=tuple(facts)))
    if driver.recommended_branch is not None:
        row = next(item for item in matrix.driver_branches if str(item.branch) == driver.recommended_branch)
        until = f", supported until {row.end_of_life}" if row.end_of_life else ""
        kind = {"LTSB": "a long-term branch", "PB": "a production branch"}.get(row.kind or "", "the newest that serves")
        because = f"branch {row.branch} is {kind}{until}"
        reasons.append(
            Reason(subject="driver branch", because=because, facts=(fact_of("driver", str(row.branch), row),))
        )
    reasons += _gpu_reasons(solution, matrix)
    for pair in solution.pairs:
        torch = next(option for option in solution.options if option.framework == "torch")
        because = f"{pair.package} {pair.version} is the newest release that goes with torch {torch.version}"
        fact = fact_of("companion", f"{pair.package}-{pair.version}", pair)
        reasons.append(Reason(subject=pair.package, because=because, facts=(fact,)))
    for extra in solution.extras:
        if extra.by_cuda and extra.id not in request.extras:
            line = re.sub(r",?!=[^,]+", "", extra.requires[0])
            because = f"{line} is its build for CUDA {solution.cuda.partition('.')[0]}"
            reasons.append(
                Reason(subject=extra.by_cuda[0], because=because, facts=(fact_of("extra", extra.id, extra),))
            )
    for constraint in solution.constraints:
        needs = ", ".join(f"{name}{bound}" for name, bound in sorted(constraint.requires.items()))
        held = bounds_of(constraint, request)
        kept = ", ".join(name for name, bound in sorted(constraint.requires.items()) if held[name] != bound)
        reasons.append(
            Reason(
                subject=", ".join(sorted(constraint.requires)),
                because=f"{constraint.package} {constraint.versions} needs {needs}, which its metadata does not say: "
                f"{constraint.symptom}{f'; the {kept} of your lines is kept' if kept else ''}",
                facts=(fact_of("constraint", constraint.id, constraint),),
            )
        )
    reasons += base_reasons(solution, matrix)
    return reasons


def _lines_for(option: Option, wish: Wish, python: str | None) -> str:
    """Return the user's lines that ask for a framework on a Python, in words."""
    return " and ".join(
        f"`{line.text}`"
        for line in named_lines(wish.request.requirements)
        if line.framework == option.framework and python is not None and line.holds(python, wish.platform)
    )


def _cuda_lines(wish: Wish, python: str | None) -> list[str]:
    """Return the user's lines that hold a library of CUDA to releases, and with it the build of the framework."""
    lines = [line for line in (*wish.request.requirements, *wish.request.constraints) if line.startswith("nvidia-")]
    needed = [(line, requirement_of(line)) for line in lines if python is not None]
    return [
        line
        for line, item in needed
        if item.specifier and (not item.marker or applies(str(item.marker), python or "", MACHINES[wish.platform]))
    ]


def _option_reason(option: Option, wish: Wish, python: str | None, *, is_held: bool) -> Reason:
    wanted = getattr(wish.request, option.framework)
    if option.framework == "cuda":
        asked = f"the newest CUDA that `--cuda {wanted}` admits" if wanted else "the newest CUDA"
        if is_held:
            asked += " and the base holds" if wanted else " that the base holds"
    elif wanted == option.version:
        asked = "as asked"
    elif wanted is None:
        extras = f"`--with {','.join(wish.request.extras)}`" if wish.request.extras else "your requirements file"
        asked = f"the newest {option.framework} that {extras} and the rest of the request admit"
    elif texts := _lines_for(option, wish, python):
        asked = f"the newest {option.framework} that {texts} of your requirements and the rest of the request admit"
    else:
        asked = f"the newest {option.framework} that `--{option.framework} {wanted}` and the rest of the request admit"
    because = asked
    if option.framework == "torch":
        if option.variant == CPU:
            because += "; cpu is its build without CUDA"
        elif option.is_default:
            because += f"; {option.variant} is the build its own index serves"
        elif wish.request.cuda is not None:
            because += f"; {option.variant} is its build for CUDA {option.cuda}"
        elif wish.gpus or wish.request.driver is not None:
            because += f"; {option.variant} is its newest build that serves the GPU and the driver"
        else:
            held = " and ".join(f"`{line}`" for line in _cuda_lines(wish, python)[:2])
            because += f"; {option.variant} is its newest build that {f'goes with {held}' if held else 'does'}"
    elif option.system_cuda:
        because += "; its wheel brings no CUDA, so an nvidia/cuda image does"
    return Reason(subject=option.framework, because=because, facts=(option.fact,))


def _cuda_reason(solution: Solution) -> Reason:
    first = solution.options[0]
    taking = next((row.title for row in solution.extras if row.system_cudnn is not None), None)
    tag = solution.cuda_image.tag if solution.cuda_image else "the base you named"
    rest = f"{taking} takes its own from {tag}" if taking else "nothing is taken from the base"
    if solution.wish.request.is_cpu:
        because = "none, as `--cpu` asks: no driver is needed, and no library of NVIDIA's is installed"
    elif first.framework == "cuda" or first.system_cuda:
        because = f"CUDA {solution.cuda} comes from {tag}"
    elif getattr(first.row, "is_cuda_bundled", False):
        because = f"CUDA {solution.cuda} is inside the {first.framework} wheel; {rest}"
    else:
        because = f"CUDA {solution.cuda} comes as wheels; {rest}"
        runtime = cuda_runtime(solution.picks)
        if runtime and runtime != solution.cuda:
            because = f"{first.framework} was built for CUDA {solution.cuda}; the wheels bring CUDA {runtime}"
    return Reason(subject="cuda", because=because, facts=(first.fact,))


def _python_reason(solution: Solution, matrix: Matrix) -> Reason:
    facts = tuple(option.fact for option in solution.options)
    row = next((item for item in matrix.pythons if item.version == solution.python), None)
    until = f"supported until {row.end_of_life}" if row is not None and row.end_of_life else "of unknown support"
    if row is not None and row.end_of_life is not None and row.end_of_life <= matrix.dated:
        until = f"out of support since {row.end_of_life}"
    wanted = solution.wish.request.python
    if wanted == solution.python:
        because = f"as asked; {until}"
    else:
        released = max(option.released for option in solution.options)
        is_old_enough = row is not None and is_settled(row, released or matrix.dated)
        because = f"{until}; the newest supported one with every wheel"
        if is_old_enough:
            because = f"{until}; the newest with every wheel that other packages supported at the time of the release"
        if solution.wish.is_image and solution.python is not None:
            known = sorted({text for option in solution.options for text in option.pythons})
            left = [text for text in known if not find_installer(matrix, text, solution.wish.platform)]
            if left:
                because += f"; {_INSTALLER}, which installs in the build, has no wheel for {' and '.join(left)}"
    return Reason(subject="python", because=because, facts=facts)


def _gpu_reasons(solution: Solution, matrix: Matrix) -> list[Reason]:
    reasons = []
    for name, rows in solution.wish.gpus:
        gpu, title = rows[0], called(name, rows)
        for option in solution.options:
            if option.sm is None or option.framework == "cuda":
                continue
            how = serves(gpu, option.sm, option.ptx)
            if how is None:
                continue
            verb = "runs its" if how.startswith("sm_") else "compiles its"
            because = f"{title} ({gpu.compute_capability}) {verb} {how} code"
            facts = (option.fact, fact_of("gpu", gpu.id, gpu))
            reasons.append(Reason(subject=f"gpu {title}", because=because, facts=facts))
        for option in solution.options:
            reasons += [
                Reason(
                    subject=f"gpu {title}",
                    because=f"{bound.because}, so an older one is taken for {title} ({gpu.compute_capability})",
                    facts=(bound.fact, fact_of("gpu", gpu.id, gpu)),
                )
                for bound in open_bounds(matrix, option, gpu)
                if bound.specifier.startswith("<")
            ]
    return reasons


def base_reasons(solution: Solution, matrix: Matrix) -> list[Reason]:
    """Return why a stack stands on its images."""
    reasons = []
    flavor = solution.wish.flavor
    compiled, is_apart = _compiled(solution, matrix)
    if targets := _targets(compiled, solution, matrix):
        own = {
            row.package
            for row in matrix.rows_where("companions.toml", "release", "package", compiled.__contains__)
            if row.sm
        }
        if led := [name for name in compiled if name not in own]:
            gpus = " and ".join(called(name, rows) for name, rows in solution.wish.gpus)
            because = f"{' and '.join(led)}: code for {' and '.join(targets)} alone, since {gpus} is asked for"
            reasons.append(Reason(subject="compiled", because=because))
        if own:
            because = f"{' and '.join(sorted(own))}: code for the GPUs of a list in its setup.py, which nothing changes"
            reasons.append(Reason(subject="compiled", because=because))
    slim = _slim_image(solution, matrix) if is_apart else None
    if slim is not None:
        because = f"only wheels of {', '.join(compiled)} leave the stage that compiles, so a slim Python base will do"
        reasons.append(Reason(subject="base", because=because, facts=(fact_of("image", slim.tag, slim),)))
    elif solution.python_image is not None:
        image = solution.python_image
        why = {
            "runtime": "nothing is compiled, so a slim Python base will do",
            "jit": "Triton compiles at run time, so a C compiler is added to a slim Python base",
            "dev": "it is worked in, so a C compiler, git and uv are added to a slim Python base",
            "devel": "code is compiled, so the base has compilers that this nvcc accepts",
        }[flavor]
        reasons.append(Reason(subject="base", because=why, facts=(fact_of("image", image.tag, image),)))
    named = solution.wish.request.base
    foreign = known_base(matrix, named) if named is not None else None
    if foreign is not None and foreign.facts:
        reasons.append(Reason(subject="base", because=f"as asked; it brings {foreign.contents}", facts=foreign.facts))
    if solution.cuda_image is not None:
        image_row = solution.cuda_image
        because = f"{image_row.tag} holds the CUDA {image_row.cuda} libraries"
        if image_row.has_cudnn and image_row.cudnn:
            because += f" and cuDNN {image_row.cudnn}"
        reasons.append(
            Reason(subject="cuda image", because=because, facts=(fact_of("image", image_row.tag, image_row),))
        )
    return reasons


def _foreign_base(base: str, matrix: Matrix) -> list[str]:
    """Return what nobody knows of a base that is not in the facts."""
    ref = base.partition("@")[0]
    if ref in {row.tag for row in matrix.python_images} | {row.tag for row in matrix.cuda_images}:
        return []
    foreign = known_base(matrix, base)
    if foreign is not None:
        rest = "" if foreign.cuda else ", and nothing of the image is in the facts"
        return [f"`{base}` brings {foreign.contents}, built and tested as a whole; this stack goes beside it{rest}"]
    name, tag = name_and_tag(matrix, base)
    if name in {row.tag.partition(":")[0] for row in matrix.python_images} and tag[:1].isdigit():
        return [f"`{base}` does not name its system: whether its glibc and libraries fit this stack is not checked"]
    return [f"`{base}` is not in the facts: whether its Python, glibc and libraries fit this stack is not checked"]


def _warnings(solution: Solution, matrix: Matrix, driver: DriverNeed) -> list[str]:
    wish = solution.wish
    warnings: list[str] = []
    if wish.driver is not None and (said := driver_warning(matrix, wish.driver)):
        warnings.append(said)
    if wish.request.base is not None:
        warnings += _foreign_base(wish.request.base, matrix)
    if wish.request.container_toolkit is not None:
        problem = insecure_toolkit(matrix, wish.request.container_toolkit)
        if problem:
            warnings.append(problem[0])
    row = next((item for item in matrix.driver_branches if str(item.branch) == driver.recommended_branch), None)
    if row is not None and row.end_of_life is not None and row.end_of_life <= matrix.dated:
        warnings.append(f"every driver branch that serves this is past its end of life; the last is {row.branch}")
    warnings += base_warnings(solution, matrix)
    for option in solution.options:
        for name, rows in wish.gpus:
            how = serves(rows[0], option.sm or (), option.ptx)
            if option.sm is not None and how is not None and how.startswith("compute_"):
                warnings.append(
                    f"{option.label} has no code for {called(name, rows)} itself; the driver compiles {how}, once"
                )
            first = rows[0].first_cuda
            if first and brings_any_cuda(option) and parse(solution.cuda) < parse(first):
                warnings.append(
                    f"{called(name, rows)} begins with CUDA {first}: the libraries of CUDA {solution.cuda} were made "
                    "before it, and no fact says whether they run there"
                )
            warnings += [
                f"on {called(name, rows)} {row.symptom}" + (f"; what lifts it: {row.until}" if row.until else "")
                for row in partial_pairs(matrix, option, rows[0])
            ]
    # With a GPU in the request such a build is no candidate.
    unlisted = [item.label for item in solution.options if item.framework == "torch" and not _is_listed(item)]
    unlisted += find_unlisted(matrix, solution.extras, wish) if wish.gpus else []
    if unlisted:
        its = "its code is" if len(unlisted) == 1 else "their code is"
        warnings.append(f"the GPU fit of {' and '.join(unlisted)} is unknown: no fact lists the GPUs that {its} for")
    warnings += find_codeless(matrix, solution.extras, wish) if wish.gpus else []
    return [*warnings, *package_warnings(solution)]


def _is_listed(option: Option) -> bool:
    """Tell whether it is known which GPUs a build is for."""
    return option.variant == CPU or option.sm is not None or option.sm_min is not None


def base_warnings(solution: Solution, matrix: Matrix) -> list[str]:
    """Return what is to be known of the Python and the images that a stack stands on."""
    warnings = []
    python = next((item for item in matrix.pythons if item.version == solution.python), None)
    if python is not None and python.end_of_life is not None and python.end_of_life <= matrix.dated:
        warnings.append(f"Python {python.version} is past its end of life ({python.end_of_life})")
    if solution.cuda_image is not None and solution.cuda_image.lifecycle in ("unsupported", "deleted"):
        warnings.append(f"{solution.cuda_image.tag} is end of life upstream, where such tags get deleted: mirror it")
    return warnings


def package_warnings(solution: Solution) -> list[str]:
    """Return what is to be known of the packages of a stack."""
    if solution.python is None or all(option.framework != "torch" for option in solution.options):
        return []
    names = {pick.name for pick in solution.picks}
    missing = [name for name in ("torchvision", "torchaudio") if name not in names]
    if not missing:
        return []
    return [f"no {' and no '.join(missing)} was built for this torch and Python, so none is included"]


def _published(stack: Stack, matrix: Matrix) -> Iterator[str]:
    """Yield where a wheel of what will be compiled is published; the lock can have its hash, and a few facts do."""
    from provision.resolve.prebuilt import hash_of, published_wheels

    for name, version, address in published_wheels(stack, matrix):
        known = hash_of(matrix, name, address)
        line, how = (f"{address}#sha256={known}", "by this hash") if known else (address, "by hash")
        yield (
            f"{name} is compiled, which takes long; its project publishes {version} as a wheel for this stack, "
            f"which the line `{name} @ {line}` takes in its place, {how} where that address answers"
        )
