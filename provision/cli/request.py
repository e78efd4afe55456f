"""The flags that ask for a stack, shared by the commands that take them, and the answer as a Stack or an error."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.errors import IncompatibleError, ProvisionError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.records import NOTHING, plain, replace
from provision.resolve.request import FLAVORS, PLATFORMS, Request, parse_request

if TYPE_CHECKING:
    from provision.build.ways import Trials, Way
    from provision.cli.output import Output
    from provision.project.inputs import Inputs
    from provision.resolve.named import FrameworkLine
    from provision.resolve.stack import Reason, Refusal, Stack

_FACTS_SHOWN = 3
FLAG_HELP: dict[str, tuple[str, str]] = {
    "torch": ("VERSION", "PyTorch: a prefix (2.1) or a range ('>=2.3,<2.5')"),
    "tensorflow": ("VERSION", "TensorFlow, same syntax"),
    "jax": ("VERSION", "JAX, same syntax"),
    "cuda": ("VERSION", "CUDA, same syntax"),
    "python": ("VERSION", "Python, same syntax"),
    "os": ("NAME", "operating system of the image (debian12, ubuntu22.04)"),
    "driver": (
        "VERSION",
        "driver version, or a branch for its newest known release; `host` reads it from this machine",
    ),
    "container-toolkit": ("VERSION", "NVIDIA container toolkit on the machines that run the image"),
    "base": ("IMAGE", "base image to use instead of the chosen one"),
}


def add_request_flags(parser: argparse.ArgumentParser, *, can_be_cpu: bool = False) -> None:
    """Add the flags of a request; none is required.

    Args:
        parser: Takes them.
        can_be_cpu: The command has a use for a stack without CUDA.
    """
    group = parser.add_argument_group("request (whatever is not given is chosen)")
    for name, (metavar, text) in FLAG_HELP.items():
        add_value(group, f"--{name}", metavar, text)
    add_value(
        group,
        "--gpu",
        "NAME",
        "GPU to support, by name (h100, 'RTX 4090') or compute capability; may be repeated",
        action="append",
    )
    if can_be_cpu:
        add_switch(group, "--cpu", "builds without CUDA, for machines without a GPU")
    add_value(group, "--platform", "PLATFORM", " or ".join(PLATFORMS))
    add_choice(
        group,
        "--flavor",
        FLAVORS,
        help="runtime only; jit adds a C compiler for Triton; dev also git and uv; devel nvcc",
    )
    add_value(group, "--with", "NAME,…", "extra packages (jupyter, ray, …); may be repeated", action="append")
    add_value(
        group,
        "--apt",
        "NAME",
        "system package to install in the image, NAME or NAME=VERSION; may be repeated",
        action="append",
    )
    add_value(
        group,
        "--apt-snapshot",
        "DAY",
        "install system packages from the archive of this day (2026-05-01); auto uses the day of the facts",
    )
    add_value(
        group,
        "--requirements",
        "FILE",
        "your requirements file, constrained by the stack; it may name the framework; may be repeated",
        parse_path,
        short="-r",
        action="append",
    )
    add_value(
        group,
        "--project",
        "DIR",
        "read the dependencies of a project: pyproject.toml, pixi.toml, environment.yml, setup.py, "
        "requirements.txt or Pipfile; nothing is executed",
        parse_path,
    )
    add_value(
        group, "--extra", "NAME", "include these optional dependencies of the project; may be repeated", action="append"
    )
    add_value(group, "--group", "NAME", "include a dependency group of the project; may be repeated", action="append")
    add_switch(group, "--require-secure", "refuse drivers and toolkits with known vulnerabilities")


_NAMES = (*FLAG_HELP, "gpu", "cpu", "platform", "flavor", "with", "apt", "apt-snapshot", "require-secure")
_LOOKS = {"json", "dry_run", "quiet", "verbose", "color", "batch"}


def read_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of the request that were given, as they were given, the files left out."""
    values = {name: getattr(options, name.replace("-", "_"), None) for name in _NAMES}
    return {name: value for name, value in values.items() if value not in (None, False)}


def has_inputs(options: argparse.Namespace) -> bool:
    """Tell whether files of the user's own are part of the request."""
    return bool(options.requirements or options.project or options.extra or options.group)


def given_inputs(options: argparse.Namespace, output: Output, matrix: Matrix | None = None) -> Inputs | None:
    """Read the files that the flags name, and tell what was read and what was left out.

    Args:
        options: The flags.
        output: Where to tell it.
        matrix: The facts, where they are read already.

    Returns:
        What they ask for, ``None`` where no file is named.
    """
    if not has_inputs(options):
        return None
    from provision.project.read import read_inputs

    inputs = read_inputs(
        options.requirements or (),
        options.project,
        options.extra or (),
        options.group or (),
        matrix=matrix or read_matrix(options),
        platform=parse_request({"platform": options.platform}).platform,
        accounts=getattr(options, "accounts", None),
    )
    for text in inputs.read:
        output.note(text)
    for text in inputs.warnings:
        output.warn(text)
    return inputs


def read_request(
    values: Mapping[str, Any],
    inputs: Inputs | None = None,
    *,
    can_be_empty: bool = False,
    can_be_cpu: bool = False,
) -> Request:
    """Turn values into a request, with this machine's driver where they ask for it.

    Args:
        values: Flag without its dashes → value.
        inputs: What files ask for.
        can_be_empty: Asking for nothing makes sense.
        can_be_cpu: So does a stack without CUDA.

    Raises:
        UsageError: Nothing was asked for, or a value is malformed.
        IncompatibleError: Files and flags cannot be met together.
        MissingDependencyError: ``--driver host`` on a machine without a driver.
    """
    driver = values.get("driver")
    if isinstance(driver, str) and driver.strip().lower() == "host":
        from provision.cli.host import read_host_driver

        values = {**values, "driver": read_host_driver()}
    if inputs is not None:
        values = _join_inputs(values, inputs)
        lines, bounds = list(inputs.lines), list(inputs.constraints)
    else:
        lines = _given_lines(values.get("requirements"), "requirements")
        bounds = _given_lines(values.get("constraints"), "constraints")
    if lines or bounds:
        from provision.resolve.named import join_frameworks

        values = join_frameworks(values, lines, bounds)
    try:
        request = parse_request(dict(values))
    except UsageError as error:
        place = inputs.places.get("cpu") if inputs is not None else None
        if place is None:
            raise
        message = error.message.replace("`--cpu`", place)
        raise UsageError(message, because=error.because, hints=error.hints) from error
    if request.is_cpu and not can_be_cpu:
        raise UsageError(
            "a build without CUDA was asked for, and this command is about GPUs",
            hints=("leave out the `+cpu` of the version, or the index of such builds",),
        )
    if inputs is not None and inputs.empty and request == Request(python=request.python) and not can_be_empty:
        raise UsageError(
            f"{inputs.empty}, and no flag names one",
            hints=("choose an extra of it with `--extra NAME`, or name a framework, as in `--torch 2.1`",),
        )
    if request == Request() and not can_be_empty:
        raise UsageError(
            "nothing was asked for", hints=("name at least a framework, a CUDA or a GPU, as in `--torch 2.1`",)
        )
    return request


def _join_inputs(values: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Return values with what files ask for; a flag goes before them where the two can be met together.

    Raises:
        IncompatibleError: They cannot.
    """
    joined = dict(values)
    joined["requirements"] = [line.requirement.text for line in inputs.lines]
    joined["constraints"] = [line.requirement.text for line in inputs.constraints]
    joined["overrides"] = list(inputs.overrides)
    joined["excludes"] = list(inputs.excludes)
    joined["indexes"] = list(inputs.indexes)
    joined["sources"] = list(inputs.sources)
    if inputs.cuda is not None and _is_about_torch(values, inputs):
        joined["cuda"] = _join_wish("cuda", values.get("cuda"), inputs.cuda, inputs.places["cuda"])
    if inputs.is_cpu and _is_about_torch(values, inputs):
        joined["cpu"] = True
    if inputs.python is not None:
        joined["python"] = _join_wish("python", values.get("python"), inputs.python, inputs.places["python"])
    return joined


def _is_about_torch(values: Mapping[str, Any], inputs: Inputs) -> bool:
    """Tell whether PyTorch is, or may be, part of the stack: what else is asked for takes CUDA from elsewhere."""
    from provision.resolve.request import FRAMEWORKS

    named = {name for name in FRAMEWORKS if values.get(name)} | {line.requirement.name for line in inputs.lines}
    return not named & set(FRAMEWORKS) or "torch" in named


def _join_wish(name: str, given: object, own: str, place: str) -> str:
    """Return one wish for what a flag and a file ask for.

    Raises:
        IncompatibleError: No version is both.
    """
    if given is None:
        return own
    from provision.resolve.request import ANY, python_fits
    from provision.versions import is_empty

    wish: str = getattr(parse_request({name: given}), name) or ANY
    specifiers = [text if text[0] in "<>=!~" else f"=={text}.*" for text in (wish, own) if not text.endswith("t")]
    if is_empty(specifiers) or (wish.endswith("t") and not python_fits(own, wish.removesuffix("t"))):
        raise IncompatibleError(
            f"`--{name} {given}` and {place} cannot be met together",
            because=(f"no {'Python' if name == 'python' else 'CUDA'} is both",),
            hints=("change one of the two, or leave it out",),
            details={"conflict": [f"--{name} {given}", place.replace("`", "")]},
        )
    if wish[0] not in "<>=!~":
        return wish
    return own if own[0] not in "<>=!~" else ",".join(dict.fromkeys([*wish.split(","), *own.split(",")]))


def _given_lines(value: object, what: str) -> list[FrameworkLine]:
    """Return the lines of a request that brings them itself; whoever checks its grammar refuses what is none."""
    from provision.resolve.named import FrameworkLine
    from provision.resolve.requirements import parse_requirements

    given = [value] if isinstance(value, str) else value
    if not given or not isinstance(given, (list, tuple)) or not all(isinstance(line, str) for line in given):
        return []
    found = parse_requirements("\n".join(given), what)
    return [FrameworkLine(where=f"{what}, line {item.line}", requirement=item) for item in found]


def read_matrix(options: argparse.Namespace) -> Matrix:
    """Return the facts that ``--data-dir`` names, or the shipped ones."""
    folder: Path | None = options.data_dir
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--data-dir: {folder} is not a folder", hints=("name a folder laid out like compat/",))
    return Matrix(folder)


def solve_request(
    request: Request,
    matrix: Matrix,
    command: str,
    others: Sequence[str] = (),
    *,
    values: Mapping[str, Any] = NOTHING,
    inputs: Inputs | None = None,
    trials: Trials | None = None,
) -> Stack:
    """Solve a request.

    Args:
        request: The request.
        matrix: The facts.
        command: Subcommand that alternatives are worded with (``resolve``, ``node lock``).
        others: Words of the command line beyond the request, for the same purpose.
        values: Flags of the request as they were given, and
        inputs: what files ask for, for a refusal to name what was written.
        trials: Tries alternatives with the index too.

    Raises:
        IncompatibleError: The facts exclude it.
        UnknownError: The facts do not know it.
        UsageError: It is ambiguous or contradicts itself.
    """
    from provision.resolve.solve import solve
    from provision.resolve.stack import Refusal

    proof = None if trials is None else lambda other, change: trials(other, change) is not None
    try:
        found = solve(request, matrix, is_image=command == "image", proof=proof)
    except UsageError as error:
        hints = (*_optional_frameworks(request, inputs), *error.hints)
        raise UsageError(error.message, because=error.because, hints=hints) from error
    if isinstance(found, Refusal):
        ways: Sequence[Way] = ()
        if trials is not None or request.requirements:
            from provision.build.ways import Trials, find_ways

            tries = trials or Trials(lambda other: solve(other, matrix), lambda _, stack: stack)
            ways = find_ways(request, matrix, None, found.conflict, tries, has_extras=False)
        tried = trials.said() if trials is not None else ()
        raise refuse(place_refusal(found, request, values, inputs), command, others, ways, tried)
    if request.requirements and trials is None:
        # With an index a lock says which releases the lines take, and is held to its CUDA itself.
        from provision.build.majors import fit_cuda

        found = fit_cuda(found, matrix, is_image=command == "image")
    return keep_pins(found, request, matrix, inputs, is_image=command == "image")


def _optional_frameworks(request: Request, inputs: Inputs | None) -> Iterator[str]:
    """Yield which flags would take a framework that the project names and does not ask for by itself."""
    from provision.project.optional import optional_packages
    from provision.resolve.request import FRAMEWORKS

    if inputs is None or inputs.code is None or any(getattr(request, name) for name in FRAMEWORKS):
        return
    packages = optional_packages(inputs.code)
    for name in FRAMEWORKS:
        if flags := packages.get(name):
            yield f"{' or '.join(f'`{flag}`' for flag in flags)} adds the {name} that the project names"


def keep_pins(
    stack: Stack, request: Request, matrix: Matrix, inputs: Inputs | None, *, is_image: bool = False
) -> Stack:
    """Return the answer to a request with the frameworks that a lock of the project pins, where they can be had."""
    if inputs is None or not inputs.pins:
        return stack
    from provision.project.pins import with_pinned_frameworks

    pinned = with_pinned_frameworks(stack, request, matrix, inputs.pins, is_image=is_image)
    return replace(pinned, request=stack.request)


def refuse(
    refusal: Refusal,
    command: str,
    others: Sequence[str] = (),
    ways: Sequence[Way] = (),
    tried: Iterable[str] = (),
) -> ProvisionError:
    """Return a refusal as the error of its kind, its alternatives as commands that can be pasted.

    Args:
        refusal: The refusal.
        command: Subcommand.
        others: Words of the command line beyond the request.
        ways: Further ways out, which change lines.
        tried: What else was tried, as hints.
    """
    import shlex

    kind = IncompatibleError if refusal.is_proved else UnknownError
    alternatives = [
        {"command": shlex.join(("provision", *command.split(), *item.flags, *others)), "change": item.change}
        for item in refusal.alternatives
    ]
    return kind(
        refusal.message,
        because=[show_facts(reason) for reason in refusal.because],
        hints=[
            *(f"`{item['command']}` works: {item['change']}" for item in alternatives),
            *(way.hint for way in ways),
            *tried,
        ],
        details={
            "conflict": list(refusal.conflict),
            "reasons": plain(refusal.because),
            "alternatives": [*alternatives, *(way.to_json() for way in ways)],
        },
    )


def place_refusal(refusal: Refusal, request: Request, values: Mapping[str, Any], inputs: Inputs | None) -> Refusal:
    """Return a refusal that names what was written, and where, for what files ask for.

    Args:
        refusal: The refusal, with the parts of the request.
        request: The request.
        values: Flags as they were given.
        inputs: What files ask for.
    """
    places = _places_of(request, values, inputs)
    message = refusal.message
    for part, place in places.items():
        message = message.replace(f"`{part}`", place)
    conflict = tuple(places.get(part, part).replace("`", "") for part in refusal.conflict)
    # What a file bounds, a flag does not free.
    fitting = tuple(item for item in refusal.alternatives if inputs is None or _admits(inputs, item.flags))
    return replace(refusal, message=message, conflict=conflict, alternatives=fitting)


def _admits(inputs: Inputs, flags: Sequence[str]) -> bool:
    """Tell whether the files admit a request of flags, as is asked when these are given."""
    try:
        _join_inputs({flag.removeprefix("--"): value for flag, value in pairwise(flags)}, inputs)
    except IncompatibleError:
        return False
    return True


def _places_of(request: Request, values: Mapping[str, Any], inputs: Inputs | None) -> dict[str, str]:
    """Return where the parts of a request stand that files ask for, by what a conflict calls them."""
    from provision.resolve.request import FRAMEWORKS

    own_lines = inputs.lines if inputs is not None else _given_lines(values.get("requirements"), "requirements")
    own_bounds = inputs.constraints if inputs is not None else _given_lines(values.get("constraints"), "constraints")
    stated = inputs.places if inputs is not None else NOTHING
    said = {line: f"`{line.requirement.text}` in {line.where}" for line in own_lines}
    bounds = {line: f"`{line.requirement.text}` in {line.where}" for line in own_bounds}
    places = {f"requirement {line.requirement.text}": text for line, text in said.items()}
    places |= {f"constraint {line.requirement.text}": text for line, text in bounds.items()}
    for name in ("cuda", "python"):
        if name in stated:
            given = [f"`--{name} {values[name]}`"] if values.get(name) else []
            places[f"--{name} {getattr(request, name)}"] = " and ".join([*given, stated[name]])
    said |= bounds
    for name in (*FRAMEWORKS, "cuda"):
        own = [
            text
            for line, text in said.items()
            if " @ " not in line.requirement.text
            and line.requirement.name == ("jax" if name == "cuda" else name)
            and (name != "cuda" or "[cuda" in line.requirement.text)
        ]
        if own:
            given = [f"`--{name} {values[name]}`"] if values.get(name) else []
            more = [stated[name]] if name in stated else []
            places[f"--{name} {getattr(request, name)}"] = " and ".join([*given, *more, *own])
    return places


def show_facts(reason: Reason) -> str:
    """Return the sentence of a reason with the ids of its facts."""
    ids = [fact.id for fact in reason.facts]
    more = f", {len(ids) - _FACTS_SHOWN} more" if len(ids) > _FACTS_SHOWN else ""
    return f"{reason.because}   [{', '.join(ids[:_FACTS_SHOWN])}{more}]" if ids else reason.because


def other_words(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of a command line that are neither part of the request nor about how the answer looks."""
    ignored = {name.replace("-", "_") for name in _NAMES} | _LOOKS
    words: list[str] = []
    for action in options.parser._actions:
        value = getattr(options, action.dest, action.default)
        if action.dest in ignored or not action.option_strings or value in (action.default, None):
            continue
        flag = action.option_strings[0]
        if value is True:
            words.append(flag)
        else:
            for item in value if isinstance(value, list) else [value]:
                words += [flag, str(item)]
    return tuple(words)
