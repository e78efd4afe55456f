"""`apt-get install` where apt knows no packages: nobody fetched its lists, or they were deleted again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provision.audit.apt import may_bring_archive, not_inside, packages_of
from provision.audit.commands import is_caught
from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wrappers import unwrap
from provision.matrix.load import Matrix

ID = "B18"

_LISTS = "/var/lib/apt"
_UPDATES = ("update", "build-dep")
_APT = ("apt-get", "apt", "aptitude")
_HARMLESS = (
    *_APT,
    "rm",
    "mkdir",
    "echo",
    "printf",
    "ln",
    "cp",
    "mv",
    "chmod",
    "pip",
    "pip3",
    "set",
    "cd",
    "export",
    "git",
    "wget",
)


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Follow the lists through the commands of a stage and those below, as long as nothing else may bring them."""
    foreign = not_inside(matrix, environment)
    keeping = matrix.setting("audit_rules.toml", "images_with_apt_lists").values
    base = environment.base
    if not foreign or base is None or base.repository in keeping or may_bring_archive(environment):
        return
    because = "no command before it runs `apt-get update`, and the base has no lists"
    has_lists, installed = False, set[str]()
    for number, command in enumerate(environment.commands):
        program, texts = _called(command)
        if command.instruction != "RUN":
            continue
        if program not in _HARMLESS or any(_LISTS in mount for mount in command.mounts):
            return
        names = packages_of(program, texts)
        if any(text in _UPDATES for text in texts) and program in _APT:
            has_lists = True
        elif program == "rm" and any(text.startswith(f"{_LISTS}/lists") for text in texts):
            has_lists = has_lists and not command.is_certain
            because = "the lists were deleted before it, and no command after that runs `apt-get update`"
        elif names and not has_lists:
            if number < environment.first_own or not command.is_certain or is_caught(environment, command):
                return
            missing = [name for name in names if name in foreign and name not in installed]
            if missing:
                yield found(
                    matrix,
                    ID,
                    span=command.span,
                    message=f"{program} finds no {missing[0]}: it has no lists of packages",
                    reasons=(because, "it ends with `Unable to locate package`"),
                )
            return
        installed.update(names)


def _called(command: Command) -> tuple[str, Sequence[str]]:
    texts = [word.text or "?" for word in command.words]
    texts = texts[unwrap(texts)[0] :]
    if not texts:
        return "", ()
    is_known = "/" not in texts[0] or "/bin/" in texts[0]
    return texts[0].rpartition("/")[2] if is_known else "?", texts[1:]
