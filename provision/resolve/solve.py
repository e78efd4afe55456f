"""Request + Matrix → Stack or Refusal.

The domain is finite: builds × Pythons × bases. So the solver enumerates, best first, lets the rules reject, and
closes the environment of what is left; the first that holds is the answer. A refused request is taken apart until
the smallest set of its parts that cannot be met together is left, and every alternative offered was solved first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from provision.errors import DataError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import Extra, Gpu, HiddenConstraint, TorchBuild
from provision.matrix.query import called_extras, driver_release, find_extras, find_gpus, is_settled
from provision.records import replace
from provision.resolve.assemble import Solution, assemble, find_installer
from provision.resolve.bases import Base, choose_base, choose_cuda_image
from provision.resolve.environment import MACHINES, Clash, Environment, cuda_runtime, wheel_rank
from provision.resolve.explain import NOT_COMPLETED, OF_LINES, Proof, refuse
from provision.resolve.kernels import reject_triton, serve_extras
from provision.resolve.named import AddressLine, address_lines, implied_by, lines_about, named_lines
from provision.resolve.needs import close
from provision.resolve.options import Option, fact_of, offer
from provision.resolve.pairs import pair_extras
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, Request, is_askable_os, matches, python_fits
from provision.resolve.requirements import is_wheel, parse_requirements, requirement_of, wheel_file
from provision.resolve.rules import (
    Rejection,
    Wish,
    excluded_pair,
    reject_option,
    reject_wish,
    side_holds,
)
from provision.resolve.stack import Reason, Refusal, Stack
from provision.versions import parse

_CUDA_PIN = re.compile(r"(?:nvidia-[a-z0-9-]+-cu|jax-cuda)([0-9]+)(?![0-9a-z])")
"""A line for a library of CUDA or a plugin of JAX, as PyPI names them, with the CUDA that it is of."""
_WHEEL_DASHES = 4
TENSORFLOW_CPU = "tensorflow-cpu"
"""TensorFlow without CUDA under a name of its own, which the facts have no builds of."""


def solve(request: Request, matrix: Matrix, *, is_image: bool = False, proof: Proof | None = None) -> Stack | Refusal:
    """Find the best stack for a request.

    Args:
        request: What is wanted.
        matrix: The facts.
        is_image: An image is to be built: Pythons that its installer has no wheel for are taken only where no other
            is left.
        proof: Has a say in whether an alternative works, beside the facts.

    Returns:
        The newest versions that satisfy every part, or why there are none.

    Raises:
        UsageError: A part of the request is ambiguous or contradicts itself.
        DataError: The facts are broken.
    """
    try:
        if lines := address_lines(request):
            return _refuse_addresses(request, matrix, lines, is_image)
        found = _attempt(request, matrix, is_image)
        if isinstance(found, Solution):
            return assemble(found, matrix)
        if not any(getattr(request, name) for name in FRAMEWORKS) and not request.extras:
            # Without the line that brings the framework a part of the request would be asked beside nothing.
            changes: dict[str, Any] = dict.fromkeys(implied_by(matrix, request), ANY)
            request = replace(request, **changes)
        return refuse(request, matrix, found, lambda other: _trial(other, matrix, is_image), proof)
    except ValueError as error:
        # What people ask for was checked before; a malformed version can only come from a file.
        raise DataError(
            "the facts hold a malformed value",
            because=(str(error),),
            hints=("run `provision data check` for every fault of the data at once",),
        ) from error


def _trial(request: Request, matrix: Matrix, is_image: bool) -> Solution | list[Rejection]:
    """Attempt a changed request; one that makes no sense counts as not met."""
    try:
        return _attempt(named_again(request), matrix, is_image)
    except UsageError as error:
        return [Rejection(rule="usage", is_proved=True, subject="", because=error.message)]


def named_again(request: Request) -> Request:
    """Return a changed request as it is once its command is run.

    A framework that a requirement line names is still asked for when its flag is gone, and the solver holds every
    version to the lines: whoever follows the advice still has them.
    """
    for line in named_lines(request.requirements):
        if getattr(request, line.framework) is None and line.can_hold(request.python, request.platform):
            changes: dict[str, Any] = {line.framework: ANY}
            request = replace(request, **changes)
    return request


def _attempt(request: Request, matrix: Matrix, is_image: bool = False) -> Solution | list[Rejection]:
    wish = _look_up(request, matrix)
    if isinstance(wish, Rejection):
        return [wish]
    wish = replace(wish, is_image=is_image)
    rejections = list(reject_wish(matrix, wish))
    if rejections:
        return rejections
    frameworks = _frameworks(request, matrix)
    offers: list[list[Option]] = []
    for framework in frameworks:
        options = _as_named(offer(matrix, framework, request, wish.platform), wish)
        if not options:
            return [reject_version(matrix, framework, request)]
        kept = []
        for option in options:
            rejection = reject_option(matrix, wish, option)
            if rejection is None:
                kept.append(option)
            else:
                rejections.append(rejection)
        rejections += open_ends(options, kept, rejections)
        offers.append(kept)
    for combination in _combinations(offers):
        found = _try_combination(matrix, wish, combination)
        if isinstance(found, Solution):
            return found
        rejections += found
    return rejections


def _refuse_addresses(request: Request, matrix: Matrix, lines: tuple[AddressLine, ...], is_image: bool) -> Refusal:
    conflict = tuple(f"requirement {line.text}" for line in lines)
    return Refusal(
        is_proved=False,
        message=f"the facts do not know whether {' and '.join(f'`{words}`' for words in conflict)} can be met",
        conflict=conflict,
        because=tuple(
            Reason(subject="address", because=_on_address(request, matrix, line, is_image), facts=()) for line in lines
        ),
        alternatives=(),
    )


def _on_address(request: Request, matrix: Matrix, line: AddressLine, is_image: bool) -> str:
    """Return why a framework is not taken from an address, with the line to write instead where that works."""
    because = f"{line.framework} would come from an address, and the facts do not know the wheel there"
    if line.version is None:
        because += f"; write the version that it has, as in `{line.framework}==VERSION`, in its place"
    elif line.python is not None and not python_fits(request.python, line.python):
        because += f"; its name says Python {line.python}"
    elif line.platform is not None and request.platform not in (None, line.platform):
        because += f"; its name says {line.platform}"
    else:
        wanted = {"python": line.python, "platform": line.platform if line.platform != PLATFORMS[0] else None}
        added: dict[str, Any] = {name: text for name, text in wanted.items() if text and text != getattr(request, name)}
        kept = tuple(other for other in request.requirements if other != line.text)
        asked = replace(request, requirements=kept, **{line.framework: line.version, **added})
        if isinstance(_trial(asked, matrix, is_image), Solution):
            flags = " ".join(f"--{name} {text}" for name, text in added.items())
            because += (
                f"; write `{line.framework}=={line.version}` in its place{f' and say `{flags}`' if flags else ''}"
            )
            because += ", and the wheel of that version is locked by its hash"
    return because


def _as_named(options: list[Option], wish: Wish) -> list[Option]:
    """Return the options that a requirement line asks for on some Python, where lines are what names the framework."""
    if not options or getattr(wish.request, options[0].framework) != ANY:
        return options
    lines = [
        line
        for line in lines_about(wish.request, options[0].framework)
        if not line.is_bound and line.can_hold(wish.request.python, wish.platform)
    ]
    return [option for option in options if not lines or any(line.admits(option) for line in lines)]


def _reject_lines(wish: Wish, options: tuple[Option, ...], python: str) -> Rejection | None:
    """Return what keeps options from being what the requirement lines ask for on one Python."""
    for option in options:
        lines = lines_about(wish.request, option.framework)
        holding = [line for line in lines if line.holds(python, wish.platform)]
        because = ""
        for line in holding:
            if not line.admits(option):
                because = f"fails `{line.text}` of the {'constraints' if line.is_bound else 'requirements'}"
        lines = tuple(line for line in lines if not line.is_bound)
        if lines and not any(line in holding for line in lines) and getattr(wish.request, option.framework) == ANY:
            texts = " and ".join(f"`{line.text}`" for line in lines)
            because = f"is not asked for on Python {python}: {texts} of the requirements does not hold there"
        if because:
            # Of several frameworks named by markers, fewer may be what is meant on this Python.
            is_proved = bool(holding) or len(options) == 1
            return Rejection(
                rule="requirements", is_proved=is_proved, subject=option.label, because=because, facts=(option.fact,)
            )
    return None


def _reject_majors(wish: Wish, options: tuple[Option, ...], python: str) -> Rejection | None:
    """Return which line for a CUDA library is of another CUDA than the builds that it would lie beside."""
    majors = {option.cuda_major for option in options if option.cuda_major}
    pins = _cuda_pins(wish.request.requirements, python, MACHINES[wish.platform])
    if not majors or not pins or any(major in majors for _, major in pins):
        return None
    label = " with ".join(option.label for option in options)
    because = f"fails `{pins[0][0]}` of the requirements, a library of CUDA {pins[0][1]}"
    return Rejection(
        rule="requirements",
        is_proved=True,
        subject=label,
        because=because,
        facts=tuple(option.fact for option in options),
    )


def _reject_open_library(wish: Wish, options: tuple[Option, ...], python: str) -> Rejection | None:
    """Return which pin of cuDNN or NCCL cannot be held against a build, since the facts lack what that build needs.

    Who names the build by its local part has decided already.
    """
    for option in options:
        row = option.row
        if not isinstance(row, TorchBuild) or row.is_cuda_bundled is not False or "+" in (wish.request.torch or ""):
            continue
        for text, _ in _cuda_pins(wish.request.requirements, python, MACHINES[wish.platform]):
            is_pin = "==" in requirement_of(text).specifier
            called = next((name for name in ("cudnn", "nccl") if is_pin and text.startswith(f"nvidia-{name}-")), None)
            if called is not None and getattr(row, called) is None and not row.pins:
                because = f"needs a release of {_LIBRARIES[called]} that the facts do not hold; your lines say `{text}`"
                facts = (option.fact,)
                return Rejection(
                    rule="requirements", is_proved=False, subject=option.label, because=because, facts=facts
                )
    return None


_LIBRARIES = {"cudnn": "cuDNN", "nccl": "NCCL"}


@lru_cache(maxsize=64)
def _cuda_pins(lines: tuple[str, ...], python: str, machine: str) -> tuple[tuple[str, int], ...]:
    """Return the lines that name a library of CUDA and hold there, each with its CUDA; every candidate asks."""
    found = [match for text in lines if (match := re.match(_CUDA_PIN, text))]
    return tuple((one.string, int(one[1])) for one in found if requirement_of(one.string).holds(python, machine))


def _reject_wheels(wish: Wish, options: tuple[Option, ...], python: str) -> Rejection | None:
    """Return which wheel that a line takes from an address was built for another Python or machine."""
    for text in wish.request.requirements:
        line = requirement_of(text) if "://" in text else None
        file = wheel_file(line) if line is not None and line.marker is None else None
        if file is None or file.count("-") < _WHEEL_DASHES:
            continue
        if wheel_rank(file, python, MACHINES[wish.platform], None) is None:
            label = " with ".join(option.label for option in options)
            because = f"would be on a Python or machine that {file} of your requirements was not built for"
            return Rejection(rule="requirements", is_proved=True, subject=label, because=because, facts=())
    return None


def _cpu_hints(request: Request) -> tuple[str, ...]:
    lines = (requirement_of(line).name for line in request.requirements)
    return (f"write `tensorflow` in place of `{TENSORFLOW_CPU}`, with `--cpu`",) if TENSORFLOW_CPU in lines else ()


def _frameworks(request: Request, matrix: Matrix) -> tuple[str, ...]:
    """Return the frameworks of a request: those it names, else what its packages need, else CUDA alone.

    Raises:
        UsageError: There is to be something installed, and nothing says beside what.
    """
    if named := tuple(name for name in FRAMEWORKS if getattr(request, name) is not None):
        return named
    if (request.extras or not request.is_cpu) and (implied := implied_by(matrix, request)):
        return implied
    asked = [row for rows in _asked_extras(matrix, request) for row in rows]
    is_for_cuda = any(text.startswith("cuda") for row in asked for text in row.conflicts)
    if request.is_cpu and (is_for_cuda or not request.extras):
        what = f"`--with {','.join(request.extras)}` is for CUDA, and `--cpu` asks for a stack without it"
        hints = _cpu_hints(request) or ("name one, as in `--torch 2.1 --cpu`",)
        raise UsageError("`--cpu` names no framework", because=(what,) if is_for_cuda else (), hints=hints)
    is_bare = not (request.extras or request.requirements)
    if is_for_cuda or is_bare or (request.cuda is not None and request.python is not None):
        return ("cuda",)
    what = f"`--with {','.join(request.extras)}` names no framework"
    if request.requirements:
        what = "your requirements file names no framework"
        if request.extras:
            what = f"neither `--with {','.join(request.extras)}` nor your requirements file names a framework"
    raise UsageError(
        f"{what}, so there is no framework to install it with",
        hints=_cpu_hints(request)
        or (
            "name one, as in `--torch 2.1`, or by a line such as `torch>=2.1` in the requirements file",
            "or name the Python to install it in with CUDA alone, as in `--cuda 12.4 --python 3.11`",
        ),
    )


def _look_up(request: Request, matrix: Matrix) -> Wish | Rejection:
    gpus = []
    for name in request.gpus:
        try:
            gpus.append((name, find_gpus(matrix, name)))
        except UnknownError as error:
            because = "; ".join((error.message, *error.hints))
            return Rejection(rule="gpu-name", is_proved=False, subject="", because=because)
    os_row = None
    if request.os is not None:
        os_row = matrix.os_release(request.os)
        if os_row is None:
            known = ", ".join(row.id for row in matrix.os_releases if is_askable_os(row.id))
            because = f"no operating system called `{request.os}` is in the facts; known are {known}"
            return Rejection(rule="os-name", is_proved=False, subject="", because=because)
    for name in request.extras:
        if not find_extras(matrix, name):
            if meant := dict.fromkeys((row.by_cuda or (row.id,))[0] for row in called_extras(matrix, name)):
                because = f"`{name}` is not an extra; what is known of it is called {', '.join(meant)}"
            else:
                because = f"nothing called `{name}` can be added; {_nearest_names(name, matrix)}"
            return Rejection(rule="extra-name", is_proved=False, subject="", because=because)
    asked = _asked_extras(matrix, request)
    for row, *_ in asked:
        if row.refused is not None:
            return _extra_rejection(row, f"{row.title} cannot be added: {row.refused}")
    for named in asked:
        for name, rows in gpus:
            # Whatever the build: where no candidate is left open, it is proved.
            of_gpu = {"gpu-architecture": rows[0].architecture}
            conflicts = [next((text for text in row.conflicts if side_holds(text, of_gpu)), None) for row in named]
            if all(conflicts):
                facts = (*(fact_of("extra", row.id, row) for row in named), fact_of("gpu", rows[0].id, rows[0]))
                titles = " or ".join(row.title for row in named)
                because = f"{titles} does not run on {name}: it excludes {conflicts[0]}"
                return Rejection(rule="extra", is_proved=True, subject="", because=because, facts=facts)
    # What has a row for each CUDA needs the same compiler with each.
    wanted = [row for row, *_ in asked]
    wanted += _compiled_lines(request, matrix, wanted)
    if request.is_cpu and (compiled := next((row for row in wanted if row.needs_nvcc), None)):
        because = f"{compiled.id} is compiled with nvcc, and `--cpu` asks for a stack without CUDA"
        fact = fact_of("extra", compiled.id, compiled)
        return Rejection(rule="flavor", is_proved=True, subject="", because=because, facts=(fact,))
    needed = "jit" if any(row.needs_compiler for row in wanted) else None
    needed = "devel" if any(row.needs_nvcc for row in wanted) else needed
    lacking = {"runtime": wanted, "dev": [row for row in wanted if row.needs_nvcc]}.get(request.flavor or "", [])
    lacking = [row for row in lacking if row.needs_nvcc or row.needs_compiler]
    if lacking:
        compiler = "nvcc" if request.flavor == "dev" else "compiler"
        return Rejection(
            rule="flavor",
            is_proved=True,
            subject="",
            because=f"{', '.join(row.id for row in lacking)} compiles code, which the flavor {request.flavor} has no "
            f"{compiler} for",
            facts=tuple(fact_of("extra", row.id, row) for row in lacking),
        )
    flavor = "devel" if "devel" in (request.flavor, needed) else request.flavor or needed or "runtime"
    return Wish(
        request=request,
        platform=request.platform or _platform_of(gpus),
        gpus=tuple(gpus),
        os=os_row,
        flavor=flavor,
        driver=driver_release(matrix, request.driver) if request.driver is not None else None,
    )


def _nearest_names(name: str, matrix: Matrix) -> str:
    """Return the names of extras that are most like one, in words; all of them where none is."""
    from difflib import get_close_matches

    known = sorted({name for row in matrix.extras for name in (row.id, *row.by_cuda, *row.names)})
    near = [item for item in known if name in item.split("-") or item in name.split("-")]
    near = list(dict.fromkeys((*get_close_matches(name, known, n=3), *near)))[:3]
    if near:
        return f"the nearest known {'name is' if len(near) == 1 else 'names are'} {', '.join(near)}"
    return f"known are {', '.join(sorted({(row.by_cuda or (row.id,))[0] for row in matrix.extras}))}"


def _asked_extras(matrix: Matrix, request: Request) -> tuple[tuple[Extra, ...], ...]:
    """Return the rows that each extra of a request may be, of which one goes with a stack at most; each set once."""
    found = {tuple(row.id for row in rows): rows for name in request.extras if (rows := find_extras(matrix, name))}
    return tuple(found.values())


def _compiled_lines(request: Request, matrix: Matrix, extras: list[Extra]) -> list[Extra]:
    """Return the rows of what the user's lines name and nvcc compiles: it takes what the extra of that name takes."""
    if not request.requirements:
        return []
    lines = parse_requirements("\n".join(request.requirements), "-r")
    named = {line.name for line in lines if not is_wheel(line)}
    rows = (row for row in matrix.extras if row.needs_nvcc and row not in extras)
    return [row for row in rows if named.intersection(row.compiles or (row.id,))]


def _platform_of(gpus: list[tuple[str, tuple[Gpu, ...]]]) -> str:
    """Return the platform of the hosts that the GPUs come with; most come with either."""
    hosts = {row.host for _, rows in gpus for row in rows}
    return f"linux/{hosts.pop()}" if len(hosts) == 1 and None not in hosts else "linux/amd64"


def reject_version(matrix: Matrix, framework: str, request: Request) -> Rejection:
    """Return why no option of a framework has the version that was asked for."""
    versions = {
        "torch": [row.version for row in matrix.torch_releases],
        "tensorflow": [row.version for row in matrix.tensorflow],
        "jax": [row.version for row in matrix.jax],
        "cuda": [row.version for row in matrix.cuda],
    }[framework]
    wanted = getattr(request, framework) or ""
    plain, _, variant = wanted.partition("+")
    if framework == "torch" and variant and not re.fullmatch(r"cu[0-9]{2,3}", variant):
        because = (
            f"torch {plain}+{variant} is a build for other hardware, which the facts do not cover; "
            f"leave `+{variant}` out for one with CUDA"
        )
        return Rejection(rule="version", is_proved=False, subject="", because=because)
    if framework == "torch" and variant:
        closed = [row for row in matrix.torch_releases if matches(plain, row.version) and row.is_variants_complete]
        is_open = any(matches(plain, row.torch) and row.variant == variant for row in matrix.unknown_torch_builds)
        if closed and not is_open:
            return Rejection(
                rule="version",
                is_proved=True,
                subject="",
                because=f"torch {plain} was never built as {variant}, and all its builds are known",
                facts=tuple(fact_of("torch", row.version, row) for row in closed),
            )
    elsewhere = matrix.settings("frameworks/torch.toml").get("separate_indexes") if framework == "torch" else None
    if elsewhere is not None and plain in elsewhere.entries:
        address = elsewhere.entries[plain]
        because = (
            f"torch {plain} is on an index of its own, {address}, and the facts hold none of its wheels; "
            f"`pip install torch=={plain} -f {address}` takes them from there"
        )
        fact = fact_of("torch", plain, elsewhere)
        return Rejection(rule="version", is_proved=False, subject="", because=because, facts=(fact,))
    ordered = sorted(set(versions), key=parse)
    span = f"they reach from {ordered[0]} to {ordered[-1]}" if ordered else "they hold none"
    lines = [f"`{line.text}`" for line in lines_about(request, framework)]
    what = f"that {' or '.join(lines)} admits" if lines and wanted == ANY else wanted
    because = f"the facts know no {framework} {what}; {span}"
    return Rejection(rule="version", is_proved=False, subject="", because=because)


def open_ends(options: list[Option], kept: list[Option], rejections: list[Rejection]) -> list[Rejection]:
    """Return what keeps a refusal from being proved: versions whose list of builds is not known to be closed."""
    ends = []
    kept_versions = {option.version for option in kept}
    for version in dict.fromkeys(option.version for option in options if not option.is_complete):
        if version in kept_versions:
            continue
        first = next(option for option in options if option.version == version)
        reasons = {item.rule for item in rejections if item.version == (first.framework, version)}
        if reasons <= {"os"}:
            continue
        ends.append(
            Rejection(
                rule="open-list",
                is_proved=False,
                subject=f"{first.framework} {version}",
                version=(first.framework, version),
                because="may have builds that the facts do not list",
                facts=(first.fact,),
            )
        )
    return ends


def _combinations(offers: list[list[Option]]) -> Iterator[tuple[Option, ...]]:
    """Yield one option per framework, those nearest to the newest of each first."""
    if len(offers) == 1:
        yield from ((option,) for option in offers[0])
        return
    ranked = []
    for options in offers:
        versions = list(dict.fromkeys(option.version for option in options))
        ranked.append([(versions.index(option.version), position, option) for position, option in enumerate(options)])
    joint = sorted(
        product(*ranked),
        key=lambda combination: (
            sum(rank for rank, _, _ in combination),
            max(rank for rank, _, _ in combination),
            tuple(position for _, position, _ in combination),
        ),
    )
    yield from (tuple(option for _, _, option in combination) for combination in joint)


def _try_combination(matrix: Matrix, wish: Wish, options: tuple[Option, ...]) -> Solution | list[Rejection]:
    subject = " with ".join(option.label for option in options)
    version = (options[0].framework, options[0].version)
    majors = {option.cuda_major for option in options}
    if len(majors) > 1:
        because = f"would load CUDA {' and CUDA '.join(map(str, sorted(majors)))} into one process"
        facts = tuple(option.fact for option in options)
        return [
            Rejection(rule="majors", is_proved=True, subject=subject, version=version, because=because, facts=facts)
        ]
    gpus = [rows[0] for _, rows in wish.gpus]
    pairs = [excluded_pair(matrix, named_of(options), gpu) for gpu in gpus or (None,)]
    pair = max((pair for pair in pairs if pair is not None), key=lambda pair: pair.is_proved, default=None)
    if pair is not None:
        return [replace(pair, subject=subject, version=version)]
    pythons = order_pythons(matrix, wish, options)
    if not pythons:
        return [reject_python(wish, options)]
    rejections: list[Rejection] = []
    for python in pythons:
        found = _try_python(matrix, wish, options, python)
        if isinstance(found, Solution):
            return found
        rejections.append(replace(found, version=version))
    return rejections


def order_pythons(matrix: Matrix, wish: Wish, options: tuple[Option, ...]) -> list[str | None]:
    """Return the Pythons to try, best first; ``[None]`` where none is needed."""
    wanted = wish.request.python
    if options[0].framework == "cuda":
        if wanted is None and not (wish.request.extras or wish.request.requirements):
            return [None]
        candidates = {row.version for row in matrix.pythons}
    else:
        candidates = set(options[0].pythons).intersection(*(option.pythons for option in options[1:]))
    fitting = [text for text in candidates if python_fits(wanted, text)]
    if wish.is_image:
        fitting = [text for text in fitting if find_installer(matrix, text, wish.platform)] or fitting
    preferred = set(options[0].pythons_preferred or fitting).intersection(
        *(option.pythons_preferred for option in options[1:])
    )
    born = {row.version: row for row in matrix.pythons}
    released = max((option.released for option in options), default="")

    def rank(text: str) -> tuple[bool, bool, bool, bool, int]:
        row = born.get(text)
        is_alive = row is not None and (row.end_of_life is None or row.end_of_life > matrix.dated)
        is_old_enough = row is not None and is_settled(row, released or matrix.dated)
        number = parse(text.rstrip("t"))
        distance = number.minor if is_old_enough else -number.minor
        return (not text.endswith("t"), text in preferred, is_alive, is_old_enough, distance)

    return [*sorted(fitting, key=rank, reverse=True)]


def reject_python(wish: Wish, options: tuple[Option, ...]) -> Rejection:
    """Return why the options have no Python that was asked for."""
    if options[0].framework == "cuda":
        because = f"the facts know no Python {wish.request.python}"
        return Rejection(rule="python", is_proved=False, subject="", because=because)
    lists = [", ".join(sorted(option.pythons, key=lambda text: parse(text.rstrip("t")))) for option in options]
    if len(options) == 1:
        because = f"has wheels for Python {lists[0]}"
    else:
        each = "; ".join(f"{option.label}: {pythons}" for option, pythons in zip(options, lists, strict=True))
        wanted = "that Python" if wish.request.python is not None else "any one Python"
        because = f"share no wheels for {wanted}: {each}"
    return Rejection(
        rule="python",
        is_proved=all(option.is_pythons_complete for option in options),
        subject=" with ".join(option.label for option in options),
        version=(options[0].framework, options[0].version),
        because=because,
        facts=tuple(option.fact for option in options),
    )


def _try_python(matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str | None) -> Solution | Rejection:
    """Choose the base and close the environment of options on one Python, or say why that cannot be done."""
    subject = " with ".join(option.label for option in options)
    has_lines = bool(wish.request.requirements or wish.request.constraints)
    if python is not None and has_lines:
        unasked = _reject_lines(wish, options, python) or _reject_majors(wish, options, python)
        unasked = unasked or _reject_open_library(wish, options, python) or _reject_wheels(wish, options, python)
        if unasked is not None:
            return unasked
    base = choose_base(matrix, wish, options, python)
    if isinstance(base, Rejection):
        return replace(base, subject=subject)
    return complete(matrix, wish, options, python, base)


def complete(
    matrix: Matrix, wish: Wish, options: tuple[Option, ...], python: str | None, base: Base
) -> Solution | Rejection:
    """Close the environment of options on one Python and base, or say why that cannot be done."""
    subject = " with ".join(option.label for option in options)
    extras = _extras(matrix, wish, options)
    if isinstance(extras, Rejection):
        return replace(extras, subject=subject)
    is_paired = bool(extras or wish.request.requirements)
    paired = pair_extras(matrix, extras, wish, options, python) if is_paired else (extras, (), [])
    if isinstance(paired, Rejection):
        return replace(paired, subject=subject)
    extras, pairs, more = paired
    served = serve_extras(matrix, extras, wish)
    if isinstance(served, Rejection):
        return replace(served, subject=subject)
    extras = served
    environment = Environment(picks=())
    constraints: tuple[HiddenConstraint, ...] = ()
    if python is not None:
        solved = close(matrix, wish, options, python, base.glibc, extras, more)
        if isinstance(solved, Clash):
            parts = {demand.part for demand in solved.demands}
            own = {"requirements", "constraints"}
            return Rejection(
                rule=OF_LINES if solved.is_proved and parts <= own else "requirements" if own & parts else "packages",
                is_proved=solved.is_proved,
                subject=subject,
                because=f"{NOT_COMPLETED}{solved.sentence}",
                facts=(
                    *(option.fact for option in options),
                    *(fact for demand in solved.demands for fact in demand.facts),
                ),
            )
        environment, constraints = solved
    cuda = options[0].cuda or cuda_runtime(environment.picks)
    if not cuda and not wish.request.is_cpu:
        return Rejection(rule="cuda", is_proved=False, subject=subject, because="names no CUDA runtime the facts know")
    cudnn = next((row.system_cudnn for row in extras if row.system_cudnn is not None), None)
    held = base.cuda_image
    if (held is None and wish.flavor == "devel") or (cudnn and not (held and held.has_cudnn)):
        flavour = "devel" if wish.flavor == "devel" else "runtime"
        image = choose_cuda_image(matrix, wish, cuda, flavour=flavour, cudnn_major=cudnn)
        if isinstance(image, Rejection):
            return replace(image, subject=subject)
        base = replace(base, cuda_image=image)
    return Solution(
        wish=wish,
        options=options,
        python=python,
        cuda=cuda,
        picks=environment.picks,
        constraints=constraints,
        python_image=base.python_image,
        cuda_image=base.cuda_image,
        extras=extras,
        pairs=pairs,
    )


def _extras(matrix: Matrix, wish: Wish, options: tuple[Option, ...]) -> tuple[Extra, ...] | Rejection:
    if not wish.request.extras:
        return ()
    named = named_of(options)
    architectures = sorted({row.architecture for _, rows in wish.gpus for row in rows}) or [""]
    chosen: dict[str, Extra] = {}
    for rows in _asked_extras(matrix, wish.request):
        row = rows[0]
        if row.frameworks and not set(row.frameworks) & set(named):
            asked = next((name for name in row.by_cuda if name in wish.request.extras), row.id)
            return _extra_rejection(row, f"lacks {' or '.join(row.frameworks)}, which `--with {asked}` is for")
        conflicts = {row.id: _conflict(row, named, architectures) for row in rows}
        fitting = next((row for row in rows if conflicts[row.id] is None), None)
        if fitting is None:
            said = {name: str(text).replace("torch-cuda==", "torch for CUDA ") for name, text in conflicts.items()}
            each = "; ".join(f"{name}, which excludes {text}" for name, text in said.items())
            return _extra_rejection(rows[-1], f"cannot hold {each}", *rows[:-1])
        unserved = reject_triton(matrix, fitting, wish, options)
        if unserved is not None:
            return unserved
        chosen[fitting.id] = fitting
    return tuple(chosen.values())


def _conflict(row: Extra, named: dict[str, str], architectures: list[str]) -> str | None:
    """Return what of a stack an extra excludes, if anything."""
    places = [named | {"gpu-architecture": architecture} for architecture in architectures]
    return next((text for text in row.conflicts for place in places if side_holds(text, place)), None)


def named_of(options: tuple[Option, ...]) -> dict[str, str]:
    """Return what requirement texts of the facts may speak of; ``torch-cuda`` is the CUDA whose wheels PyTorch pins."""
    cuda = options[0].cuda or str(options[0].cuda_major)
    named = {option.framework: option.version for option in options}
    torch = next((option.cuda for option in options if option.framework == "torch" and option.cuda), None)
    return {**named, **({"torch-cuda": torch} if torch else {}), "cuda": cuda}


def _extra_rejection(row: Extra, because: str, *others: Extra) -> Rejection:
    facts = tuple(fact_of("extra", item.id, item) for item in (row, *others))
    return Rejection(rule="extra", is_proved=True, subject="", because=because, facts=facts)
