"""The CUDA repository is read with the key that no longer signs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.apt import may_bring_archive
from provision.audit.bases import has_old_key
from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wrappers import is_script
from provision.matrix.load import Matrix

ID = "S04"

_BECAUSE = "the CUDA repository has been signed with another key since April 2022"
_LISTS = "sources.list.d"
_FOLDER = "/etc/apt/sources.list.d"
_FACT = "knowledge/key2022"
_SHELLS = ("bash", "dash", "sh", "source", ".")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the file of the old key, and for a base that still has it; deleting it is what everybody should do."""
    settings = matrix.settings("audit_rules.toml")
    old, new = settings["withdrawn_keys"].values, settings["new_key_marks"].values
    if not any(mark in text for command in environment.commands for text in _texts(command) for mark in new):
        yield from _fetched(environment, matrix, old, settings["old_key_repositories"].values)
    yield from _inherited(environment, matrix, old, new)


def _texts(command: Command) -> Iterator[str]:
    return (word.text.lower() for word in command.words if word.text)


def _fetched(environment: Environment, matrix: Matrix, old: Iterable[str], kept: Iterable[str]) -> Iterator[Finding]:
    """Yield each fetch of the old key for a repository that has a new one."""
    for command in environment.own_commands:
        for word in command.words:
            text = (word.text or "").lower()
            key = next((name for name in old if f"{name}.pub" in text), None)
            if key is not None and not any(name in text for name in kept):
                yield found(
                    matrix,
                    ID,
                    span=word.span,
                    message=f"the key {key} was withdrawn",
                    reasons=(_BECAUSE,),
                    facts=(_FACT,),
                )


def _may_bring_key(command: Command, texts: list[str], old: Iterable[str]) -> bool:
    """Tell whether a command may bring another key, or has apt do without one: a script, a key of any other name."""
    if any("insecure" in text or "allow-unauthenticated" in text for text in texts):
        return True
    if (
        command.program is None
        or command.program in _SHELLS
        or command.program == "gpg"
        or is_script(next(iter(texts), ""))
    ):
        return True
    return "apt-key" in texts and ("add" in texts or "adv" in texts) and not any(key in " ".join(texts) for key in old)


def _inherited(environment: Environment, matrix: Matrix, old: Iterable[str], new: Iterable[str]) -> Iterator[Finding]:
    """Yield the first ``apt-get update`` over a base whose list of repositories needs the new key."""
    base = environment.base
    if base is None or base.digest or not has_old_key(matrix, base):
        return
    if may_bring_archive(environment):
        return
    for command in environment.commands:
        texts = list(_texts(command))
        # What touches the lists may take the repository out, and what names the new key brings it.
        if any(_LISTS in text or any(mark in text for mark in new) for text in texts):
            return
        if _may_bring_key(command, texts, old):
            return
        is_update = command.program in ("apt-get", "apt", "sudo") and "update" in texts
        if is_update and command.is_certain and command.instruction == "RUN":
            yield found(
                matrix,
                ID,
                span=command.span,
                message=f"apt refuses the CUDA repository of {base.repository}:{base.tag}",
                reasons=(_BECAUSE, "the image was built before that, and has the old key alone"),
                hint=_remedy(base.tag),
                facts=(_FACT,),
            )
            return


def _remedy(tag: str) -> str:
    newer = "a tag of a release" if tag.startswith("latest") else "a newer tag"
    return f"take {newer}, or put `rm -f {_FOLDER}/cuda.list {_FOLDER}/nvidia-ml.list` before it"
