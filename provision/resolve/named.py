"""Which frameworks the lines of a requirements file name, joined with what was asked for otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from provision.errors import IncompatibleError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.environment import MACHINES
from provision.resolve.options import Option
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, Request, matches, parse_request, python_fits
from provision.resolve.requirements import UserRequirement, parse_requirements, place_of, requirement_of
from provision.versions import is_empty, spec_of

if TYPE_CHECKING:
    from packaging.markers import Marker

_PYTHONS = tuple(f"3.{minor}" for minor in range(40))
_CUDA_EXTRA = re.compile(r"cuda([0-9]+)(?:-pip|-cudnn[0-9]+)?")
_FOREIGN_EXTRA = re.compile(r"cuda.*-local|tpu|rocm.*|neuron.*")


@record
class FrameworkLine:
    """A requirement and where it stands (``requirements.txt, line 3``)."""

    where: str
    requirement: UserRequirement


@record
class NamedLine:
    """A line that names a framework, and where it holds.

    Attributes:
        framework: ``torch``, ``tensorflow`` or ``jax``.
        text: The line.
        specifier: Versions without local part that will do, empty for any.
        variant: Local part (``cu118``), where one was written.
        cuda_major: CUDA that its extra names.
        marker: What decides where it holds.
        is_bound: It bounds the framework where that is there, and does not ask for it.
    """

    framework: str
    text: str
    specifier: str
    variant: str | None
    cuda_major: int | None
    marker: Marker | None
    is_bound: bool = False

    def holds(self, python: str, platform: str) -> bool:
        """Tell whether the line counts on a Python (``3.11``) of a platform."""
        return self.marker is None or self.marker.evaluate(place_of(python, MACHINES[platform]))

    def can_hold(self, python: str | None, platform: str | None) -> bool:
        """Tell whether the line counts on a Python that a wish asks for."""
        return _can_hold(self.marker, python, platform)

    def admits(self, option: Option) -> bool:
        """Tell whether a build is what the line asks for."""
        if self.specifier and option.version not in spec_of(self.specifier):
            return False
        if self.variant is not None and self.variant != option.variant:
            return False
        return self.cuda_major is None or self.cuda_major == option.cuda_major


@record
class AddressLine:
    """A line that takes a framework from an address, and what the name of the file there says.

    Attributes:
        framework: ``torch``, ``tensorflow`` or ``jax``.
        text: The line.
        version: Version with local part (``2.4.1+cu121``), where the file is a wheel of the framework.
        python: Python of such a wheel (``3.11``), where it is for one.
        platform: Platform of such a wheel, where it is for one.
    """

    framework: str
    text: str
    version: str | None
    python: str | None
    platform: str | None


@record
class _Wish:
    """What one place asks of a framework: an exact version, a prefix, a specifier, or nothing in particular."""

    text: str | None
    said: str

    @property
    def is_exact(self) -> bool:
        return self.text is not None and self.text.startswith("==") and "*" not in self.text and "," not in self.text

    @property
    def specifier(self) -> str:
        if self.text is None:
            return ANY
        return self.text if self.text[0] in "<>=!~" else f"=={self.text}.*"


@lru_cache(maxsize=64)
def named_lines(lines: tuple[str, ...]) -> tuple[NamedLine, ...]:
    """Return the lines that ask for a version of a framework; an address does not say which one it holds."""
    if not any(framework in line.lower() for line in lines for framework in FRAMEWORKS):
        return ()
    found = []
    for line in parse_requirements("\n".join(lines), "-r"):
        parsed = requirement_of(line.text)
        if line.name not in FRAMEWORKS or parsed.url is not None:
            continue
        variants = re.findall(r"\+([A-Za-z0-9.]+)", line.specifier)
        majors = _cuda_majors(parsed.extras) if line.name == "jax" else []
        found.append(
            NamedLine(
                framework=line.name,
                text=line.text,
                specifier=re.sub(r"\+[A-Za-z0-9.]+", "", line.specifier),
                variant=variants[0].lower() if variants else None,
                cuda_major=majors[0] if majors else None,
                marker=parsed.marker,
            )
        )
    return tuple(found)


def address_lines(request: Request) -> tuple[AddressLine, ...]:
    """Return the lines of a request that take a framework from an address and can count for it."""
    if not any("@" in line for line in request.requirements):
        return ()
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    found = []
    for line in parse_requirements("\n".join(request.requirements), "-r"):
        parsed = requirement_of(line.text)
        if line.name not in FRAMEWORKS or parsed.url is None:
            continue
        if not _can_hold(parsed.marker, request.python, request.platform):
            continue
        file = re.split(r"[?#]", parsed.url)[0].rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
        version, python, platform = None, None, None
        try:
            name, number, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            name = None
        if name == line.name:
            version = str(number)
            pythons = {tag.interpreter for tag in tags}
            machines = {machine for tag in tags for machine in MACHINES.values() if tag.platform.endswith(machine)}
            match = re.fullmatch(r"cp3([0-9]+)", pythons.pop()) if len(pythons) == 1 else None
            is_free_threaded = any(tag.abi.endswith("t") for tag in tags)
            python = f"3.{match[1]}{'t' if is_free_threaded else ''}" if match else None
            platform = next((name for name, machine in MACHINES.items() if {machine} == machines), None)
        found.append(
            AddressLine(framework=line.name, text=line.text, version=version, python=python, platform=platform)
        )
    return tuple(found)


def _can_hold(marker: Marker | None, python: str | None, platform: str | None) -> bool:
    if marker is None:
        return True
    platforms = [platform] if platform else PLATFORMS
    return any(marker.evaluate(place_of(one, MACHINES[other])) for one in _pythons_of(python) for other in platforms)


def implied_frameworks(matrix: Matrix, names: Iterable[str]) -> tuple[str, ...]:
    """Return the frameworks that packages cannot be without, as far as the facts know what they need.

    Args:
        matrix: The facts.
        names: Normalised names of distributions (``vllm``), or of extras.

    Returns:
        Names of frameworks; of a package that stands on any of several, the first.
    """
    extras = {row.id: row for row in matrix.extras}
    # A row may be called otherwise than what it is about, which is the first that it brings.
    extras |= {requirement_of(row.requires[0]).name: row for row in matrix.extras if row.requires}
    extras |= {name: row for row in matrix.extras for name in row.by_cuda}
    wanted = set(names)
    found = {extras[name].frameworks[0] for name in wanted if name in extras and extras[name].frameworks}
    rest = wanted - {name for name in extras if extras[name].frameworks}
    for row in matrix.rows_where("companions.toml", "release", "package", rest.__contains__):
        found.update(row.requires)
    if rest:
        dependents = {name: matrix.setting(f"frameworks/{name}.toml", "dependents").values for name in FRAMEWORKS}
        found.update(name for name, values in dependents.items() if rest.intersection(values))
    for name in rest:
        package = matrix.package(name)
        for version in package.versions if package is not None else ():
            release = package.release(version) if package is not None else None
            found.update(need for need, *_ in (release.requires if release is not None else ()))
    return tuple(name for name in FRAMEWORKS if name in found)


def implied_by(matrix: Matrix, request: Request) -> tuple[str, ...]:
    """Return the frameworks that the extras and the lines of a request cannot be without."""
    if not request.requirements:
        return implied_frameworks(matrix, request.extras)
    lines = parse_requirements("\n".join(request.requirements), "-r")
    held = [line for line in lines if _can_hold(requirement_of(line.text).marker, request.python, request.platform)]
    return implied_frameworks(matrix, (*request.extras, *(line.name for line in held)))


def lines_about(request: Request, framework: str) -> tuple[NamedLine, ...]:
    """Return the requirements and constraints of a request that say which versions of a framework will do."""
    bounds = tuple(replace(line, is_bound=True) for line in named_lines(request.constraints))
    return tuple(line for line in (*named_lines(request.requirements), *bounds) if line.framework == framework)


def is_honoured(framework: str, extras: Iterable[str]) -> bool:
    """Tell whether extras of a framework say no more than which CUDA it brings, which its lock holds already."""
    plain = [extra.strip().lower().replace("_", "-") for extra in extras if extra.strip()]
    if framework == "jax":
        return all(extra == "cuda" or _CUDA_EXTRA.fullmatch(extra) for extra in plain)
    return all(framework == "tensorflow" and extra == "and-cuda" for extra in plain)


def join_frameworks(
    values: Mapping[str, Any], lines: Sequence[FrameworkLine], constraints: Sequence[FrameworkLine] = ()
) -> dict[str, Any]:
    """Return the values of a request with the frameworks that its requirement lines name.

    A line that holds on some of the Pythons in question only asks for its framework in any version here: the solver
    holds every Python it tries to the lines that count there.

    Args:
        values: Flag without its dashes → value.
        lines: The requirements, in order.
        constraints: Lines that bound a framework where something else asks for it.

    Raises:
        IncompatibleError: Two of them, or one and a flag, cannot be met together.
        UnknownError: A line asks for a build that the facts do not cover.
        UsageError: A value or a line is malformed, or the lines name a framework for other Pythons only.
    """
    joined = dict(values)
    everywhere: list[FrameworkLine] = []
    elsewhere: list[FrameworkLine] = []
    partial: list[FrameworkLine] = []
    for line in lines:
        if line.requirement.name not in FRAMEWORKS:
            continue
        groups = {True: everywhere, None: partial, False: elsewhere}
        found = _where_holds(line, values)
        if found != ():
            groups[found].append(line)
    for framework in FRAMEWORKS:
        own = [line for line in everywhere if line.requirement.name == framework]
        wishes = [_wish_of(line, framework) for line in own]
        for line in partial:
            if line.requirement.name == framework:
                _wish_of(line, framework)
                wishes.append(_Wish(text=None, said=_said(line)))
        if not wishes and values.get(framework) is None:
            continue
        bounds = [line for line in constraints if line.requirement.name == framework]
        wishes += [_wish_of(line, framework) for line in bounds if _where_holds(line, values) is True]
        if not wishes:
            continue
        if values.get(framework) is not None:
            text = getattr(parse_request({framework: values[framework]}), framework)
            wishes.insert(0, _Wish(text=text, said=f"`--{framework} {values[framework]}`"))
        joined[framework] = _join(framework, wishes)
    if elsewhere and not any(joined.get(framework) for framework in FRAMEWORKS):
        line = elsewhere[0]
        raise UsageError(
            f"{_said(line)} does not hold on Python {values.get('python')}, and nothing else names a framework",
            hints=(
                "leave --python out, so that one is chosen on which the line holds",
                f"or name the framework whatever the Python, as in `--{line.requirement.name} VERSION`",
            ),
        )
    for line in everywhere:
        if line.requirement.name == "jax" and (major := _cuda_major(line)) is not None:
            _join_cuda(joined, line, str(major))
    for line in partial:
        if line.requirement.name == "jax":
            _cuda_major(line)
    return joined


def _said(line: FrameworkLine) -> str:
    return f"`{line.requirement.text}` in {line.where}"


def _pythons_of(wish: str | None) -> list[str]:
    """Return the Pythons that a wish leaves open, the newest patch of each."""
    if wish is not None and wish.endswith("t"):
        return [wish]
    return [python for python in _PYTHONS if python_fits(wish, python)]


def _where_holds(line: FrameworkLine, values: Mapping[str, Any]) -> Any:
    """Tell where a line asks for a version of its framework.

    Returns:
        True for every Python in question, None for some, False for none but others, and () where no Python matters:
        an address, which does not say what it holds, and a marker that is about another system.
    """
    parsed = requirement_of(line.requirement.text)
    if parsed.url is not None or parsed.marker is None:
        return True if parsed.url is None else ()
    asked = parse_request({name: values.get(name) for name in ("python", "platform", "gpu")})
    platforms = [asked.platform] if asked.platform else PLATFORMS if asked.gpus else PLATFORMS[:1]

    def holds(pythons: Iterable[str]) -> set[bool]:
        return {
            parsed.marker is not None and parsed.marker.evaluate(place_of(python, MACHINES[platform]))
            for python in pythons
            for platform in platforms
        }

    found = holds(_pythons_of(asked.python))
    if found == {True}:
        return True
    if True in found:
        return None
    return False if True in holds(_PYTHONS) else ()


def _wish_of(line: FrameworkLine, framework: str) -> _Wish:
    written = line.requirement.specifier.replace(" ", "")
    if not written:
        return _Wish(text=None, said=_said(line))
    if "===" in written:
        raise UsageError(f"{line.where}: `{line.requirement.text}` compares text with ===", hints=("write == instead",))
    local = re.search(r"==[^,]*\+[^,]+", written)
    try:
        text = getattr(parse_request({framework: re.sub(r"\+[^,]+", "", written)}), framework)
    except UsageError as error:
        flag = f"--{framework} "
        message = error.message.removeprefix(flag)
        raise UsageError(f"{line.where}: {message}", because=error.because, hints=error.hints) from error
    # Together with others an exact version is the one that counts; that they admit it was checked just now.
    return _Wish(text=local[0] if local else text, said=_said(line))


def _join(framework: str, wishes: Sequence[_Wish]) -> str:
    """Return one wish that asks for all of them."""
    exact = next((wish for wish in wishes if wish.is_exact), None)
    if exact is None:
        for index, left in enumerate(wishes):
            for right in wishes[index + 1 :]:
                if is_empty((left.specifier, right.specifier)):
                    raise _contradiction(framework, left, right)
        prefix = [wish for wish in wishes if wish.text is not None]
        if len(prefix) == 1 and prefix[0].text is not None:
            return prefix[0].text
        return ",".join(dict.fromkeys(wish.specifier for wish in prefix)) or ANY
    version = str(exact.text).removeprefix("==")
    variants = {}
    for wish in wishes:
        bare, _, variant = (wish.text or "").partition("+")
        if not matches(bare or None, version.partition("+")[0]):
            raise _contradiction(framework, *sorted((wish, exact), key=wishes.index))
        if variant:
            variants[variant] = wish
    if len(variants) > 1:
        raise _contradiction(framework, *list(variants.values())[:2])
    return "+".join((version.partition("+")[0], *variants))


def _cuda_majors(extras: Iterable[str]) -> list[int]:
    found = (_CUDA_EXTRA.fullmatch(extra.lower().replace("_", "-")) for extra in extras)
    return sorted({int(match[1]) for match in found if match})


def _cuda_major(line: FrameworkLine) -> int | None:
    """Return the CUDA that the extras of a line for JAX name.

    Raises:
        UnknownError: They ask for another accelerator, or for a CUDA that is already there.
        UsageError: They name two.
    """
    extras = requirement_of(line.requirement.text).extras
    for extra in extras:
        if _FOREIGN_EXTRA.fullmatch(extra.lower().replace("_", "-")):
            what = "takes CUDA from the system" if "local" in extra and "cuda" in extra else "is not for NVIDIA GPUs"
            raise UnknownError(
                f"{line.where}: `{line.requirement.text}`: the extra {extra} {what}, which the facts do not cover",
                hints=("write `jax[cuda12]` for CUDA in wheels, or leave the extra out to have it chosen",),
            )
    majors = _cuda_majors(extras)
    if len(majors) > 1:
        names = " and ".join(f"CUDA {major}" for major in majors)
        raise UsageError(
            f"{line.where}: `{line.requirement.text}` asks for {names} at once", hints=("leave one extra",)
        )
    return majors[0] if majors else None


def _join_cuda(joined: dict[str, Any], line: FrameworkLine, major: str) -> None:
    """Add the CUDA that an extra of JAX names, such as ``jax[cuda12]``."""
    given = joined.get("cuda")
    if given is None:
        joined["cuda"] = major
        return
    wish = parse_request({"cuda": given}).cuda or ANY
    flag = _Wish(text=wish, said=f"`--cuda {given}`")
    own = _Wish(text=major, said=_said(line))
    if is_empty((flag.specifier, own.specifier)):
        raise _contradiction("cuda", flag, own)


def _contradiction(name: str, left: _Wish, right: _Wish) -> IncompatibleError:
    return IncompatibleError(
        f"{left.said} and {right.said} cannot be met together",
        because=(f"no version of {name} is both",),
        hints=("change one of the two, or leave it out",),
        details={"conflict": [left.said.replace("`", ""), right.said.replace("`", "")]},
    )
