"""What can be asked about nodes beyond the stack, checked against a grammar before anything else sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError
from provision.records import record
from provision.resolve.request import parse_request
from provision.versions import parse

METHODS = ("auto", "distro", "cuda_repo", "precompiled", "runfile")
FLAVOURS = ("auto", "open", "proprietary")
PROFILES = ("compute", "full")
INCLUDES = ("container-toolkit", "cudnn", "dcgm", "fabric", "nccl")
AUTOMATIC_METHODS = ("distro", "cuda_repo")
"""What ``auto`` tries, in this order."""
AUTOMATIC_INCLUDES = ("container-toolkit", "dcgm", "nccl")
"""What is added unasked where the driver comes from NVIDIA's repository anyway."""
_NONE = "none"


@record
class NodeOptions:
    """What is asked about nodes beyond the stack.

    Attributes:
        systems: Ids of systems; none means every system the facts know packages for.
        method: How the driver comes to the host.
        flavour: Of the kernel module; ``auto`` goes by the GPU.
        profile: ``compute``, or ``full`` for hosts with a display.
        toolkits: CUDA minors to install side by side.
        includes: Parts from NVIDIA's repositories to install too; absent, those that cost no repository of their own.
        keeps_unverified: Wheels whose hash the facts lack may stay, because somebody is going to add it.
    """

    systems: tuple[str, ...] = ()
    method: str = "auto"
    flavour: str = "auto"
    profile: str = "compute"
    toolkits: tuple[str, ...] = ()
    includes: tuple[str, ...] | None = None
    keeps_unverified: bool = False


def parse_node_options(values: Mapping[str, Any]) -> NodeOptions:
    """Check node options as they come from flags or JSON.

    Args:
        values: ``os``, ``toolkit`` and ``include`` (a list or one text), ``method``, ``flavour``, ``profile``.

    Raises:
        UsageError: An unknown name or a value outside its grammar.
    """
    unknown = sorted(set(values) - {"os", "method", "flavour", "profile", "toolkit", "include"})
    if unknown:
        raise UsageError(f"`{unknown[0]}` is nothing a node can be asked for")
    systems = tuple(sorted({parse_request({"os": name}).os or "" for name in _texts("--os", values.get("os"))}))
    toolkits = {_minor("--toolkit", text) for text in _texts("--toolkit", values.get("toolkit"))}
    return NodeOptions(
        systems=systems,
        method=_choice("--method", values.get("method"), METHODS),
        flavour=_choice("--flavour", values.get("flavour"), FLAVOURS),
        profile=_choice("--profile", values.get("profile"), PROFILES),
        toolkits=tuple(sorted(toolkits, key=parse)),
        includes=_includes(values.get("include")),
    )


def node_flags(options: NodeOptions) -> tuple[str, ...]:
    """Return the command-line words that ask for these options."""
    words: list[str] = []
    for name in options.systems:
        words += ["--os", name]
    for flag, value, default in (
        ("--method", options.method, "auto"),
        ("--flavour", options.flavour, "auto"),
        ("--profile", options.profile, "compute"),
    ):
        if value != default:
            words += [flag, value]
    includes = options.includes if options.includes != () else (_NONE,)
    for flag, values in (("--toolkit", options.toolkits), ("--include", includes or ())):
        for value in values:
            words += [flag, value]
    return tuple(words)


def _texts(flag: str, value: object) -> list[str]:
    if value is None:
        return []
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise UsageError(f"{flag} takes text or a list of texts")
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def _includes(value: object) -> tuple[str, ...] | None:
    if value is None or value in ([], ()):
        return None
    names = {_choice("--include", text, (*INCLUDES, _NONE)) for text in _texts("--include", value)}
    if _NONE in names and len(names) > 1:
        raise UsageError("--include names parts, and none", hints=("leave one of the two out",))
    return tuple(sorted(names - {_NONE}))


def _choice(flag: str, value: object, known: tuple[str, ...]) -> str:
    if value is None:
        return known[0]
    if value not in known:
        said = repr(value)[:60]
        raise UsageError(f"{flag} {said} is not known", hints=("choose " + ", ".join(known),))
    return str(value)


def _minor(flag: str, text: str) -> str:
    found = re.fullmatch(r"(?:cuda)?([0-9]{1,2}\.[0-9]{1,2})(?:\.[0-9]{1,3})?", text.lower())
    if found is None:
        raise UsageError(f"{flag} {text[:60]!r} is not a CUDA version", hints=(f"write it as in `{flag} 12.1`",))
    return found[1]
