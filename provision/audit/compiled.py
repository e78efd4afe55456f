"""Packages that are surely compiled with nvcc: no prebuilt wheel fits, their setup insists, or somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provision.audit.commands import command_of
from provision.audit.model import Environment, Install, Options, Requirement, Span
from provision.audit.wanted import Wanted, build_of, cuda_of, excludes, python_of, standing
from provision.matrix.load import Matrix
from provision.records import record
from provision.versions import minor_of, parse

_FLASH_ATTN = "flash-attn"
_FORCE = "FLASH_ATTENTION_FORCE_BUILD"
_TRUE = ("1", "true")


@record
class Compiled:
    """One package that is compiled, where that is written, and how it is known."""

    name: str
    span: Span
    install: Install
    torch: Wanted | None
    because: str
    facts: tuple[str, ...] = ()


def builds_from_source(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Compiled]:
    """Yield what is surely compiled, in the order of the installs."""
    torch = standing(environment, matrix, "torch")
    for install in environment.installs:
        if install.is_dry or not install.is_certain:
            continue
        for requirement in install.requirements:
            if requirement.ecosystem != "pypi" or requirement.applies is not True:
                continue
            because = _why(environment, matrix, options, install, requirement, torch)
            if because:
                yield Compiled(
                    name=requirement.name,
                    span=requirement.span,
                    install=install,
                    torch=torch,
                    because=because,
                    facts=("knowledge/flash-attn-wheels",) if requirement.name == _FLASH_ATTN else (),
                )
        yield from _asked_by_flag(environment, matrix, install, torch)


def _why(
    environment: Environment,
    matrix: Matrix,
    options: Options,
    install: Install,
    requirement: Requirement,
    torch: Wanted | None,
) -> str:
    """Return how it is known that a requirement is compiled, empty where that is not sure."""
    switches = matrix.setting("audit_rules.toml", "cuda_build_switches").entries
    for variable, names in switches.items():
        if requirement.name in names.split() and _is_on(install, variable):
            return f"{variable} asks for its kernels, and only nvcc compiles them"
    if requirement.url is not None:
        return ""
    if requirement.name == _FLASH_ATTN:
        return _why_flash_attn(environment, matrix, options, install, requirement, torch)
    settings = matrix.settings("audit_rules.toml")
    bound = settings["cuda_source_packages"].entries.get(requirement.name)
    if bound is None or not requirement.specifier or not excludes(requirement.specifier, f">{bound.lstrip('<=')}"):
        return ""
    if _is_on(install, settings["cuda_source_spared"].entries[requirement.name]):
        return ""
    return f"the setup of {requirement.name} {bound} asks nvcc for its version, also where a prebuilt wheel would fit"


def _why_flash_attn(
    environment: Environment,
    matrix: Matrix,
    options: Options,
    install: Install,
    requirement: Requirement,
    torch: Wanted | None,
) -> str:
    """Return why flash-attn is compiled.

    It takes a prebuilt wheel where its release has one for this torch, CUDA major and Python. Wheels for what came
    later than the release were added to some, so that only what is older is sure.
    """
    if _is_on(install, _FORCE):
        return f"{_FORCE} makes its setup compile"
    release = matrix.setting("audit_rules.toml", "flash_attn_prebuilt").entries.get(requirement.version or "")
    if release is None or torch is None or torch.version is None or torch.install.target != install.target:
        return ""
    lists = _lists(release)
    minor = minor_of(torch.version)
    if _is_after(minor, lists["torch"]):
        return ""
    if minor not in lists["torch"]:
        return (
            f"release {requirement.version} has prebuilt wheels for torch {', '.join(lists['torch'])}, not for {minor}"
        )
    python = python_of(environment, torch, options)
    if python is not None and python not in lists["python"] and not _is_after(python, lists["python"]):
        return f"release {requirement.version} has no prebuilt wheel for Python {python}"
    cuda = cuda_of(build_of(matrix, torch))
    major = cuda.partition(".")[0] if cuda is not None else None
    if major is not None and major not in lists["cuda"] and not _is_after(major, lists["cuda"]):
        return f"release {requirement.version} has prebuilt wheels for CUDA {', '.join(lists['cuda'])}, not for {cuda}"
    return ""


def _is_after(version: str, versions: Sequence[str]) -> bool:
    return parse(version) > max(map(parse, versions))


def _asked_by_flag(
    environment: Environment, matrix: Matrix, install: Install, torch: Wanted | None
) -> Iterator[Compiled]:
    """Yield what an option to the build asks for; it is often given with the path of a checkout."""
    command = command_of(environment, install)
    flags = matrix.setting("audit_rules.toml", "cuda_build_flags").entries
    for word in command.words if command is not None else ():
        for flag, name in flags.items():
            if word.text is not None and word.text.endswith(flag):
                yield Compiled(
                    name=name,
                    span=word.span,
                    install=install,
                    torch=torch,
                    because=f"{flag} asks for its kernels, and only nvcc compiles them",
                )


def _is_on(install: Install, variable: str) -> bool:
    value = install.environment.get(variable)
    return value is not None and (value.value or "").lower() in _TRUE


def _lists(text: str) -> dict[str, list[str]]:
    """Read ``torch 2.4 2.5 cuda 12 python 3.9 3.10``."""
    found: dict[str, list[str]] = {}
    key = ""
    for word in text.split():
        if word[0].isdigit():
            found[key].append(word)
        else:
            key = word
            found[key] = []
    return found
