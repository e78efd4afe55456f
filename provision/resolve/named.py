"""Which frameworks the lines of a requirements file name, joined with what was asked for otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import IncompatibleError
from provision.records import record
from provision.resolve.environment import MACHINES
from provision.resolve.request import FRAMEWORKS, PLATFORMS, matches, parse_request
from provision.resolve.requirements import UserRequirement, place_of
from provision.versions import is_empty

__all__ = ["FrameworkLine", "join_frameworks"]

_ANY = ">=0"
_CUDA_EXTRA = re.compile(r"cuda([0-9]+)(?:-(?:pip|local))?")


@record
class FrameworkLine:
    """A requirement and where it stands (``requirements.txt, line 3``)."""

    where: str
    requirement: UserRequirement


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
            return _ANY
        return self.text if self.text[0] in "<>=!~" else f"=={self.text}.*"


def join_frameworks(values: Mapping[str, Any], lines: Sequence[FrameworkLine]) -> dict[str, Any]:
    """Return the values of a request with the frameworks that its requirement lines name.

    Args:
        values: Flag without its dashes → value.
        lines: The requirements, in order.

    Raises:
        IncompatibleError: Two of them, or one and a flag, cannot be met together.
        UsageError: A value or a line is malformed.
    """
    joined = dict(values)
    for framework in FRAMEWORKS:
        named = [line for line in lines if line.requirement.name == framework and _counts(line.requirement, values)]
        if not named:
            continue
        wishes = [_wish_of(line, framework) for line in named]
        if values.get(framework) is not None:
            text = getattr(parse_request({framework: values[framework]}), framework)
            wishes.insert(0, _Wish(text=text, said=f"`--{framework} {values[framework]}`"))
        joined[framework] = _join(framework, wishes)
    for line in lines:
        if (
            line.requirement.name == "jax"
            and _counts(line.requirement, values)
            and (major := _cuda_major(line.requirement)) is not None
        ):
            _join_cuda(joined, line, major)
    return joined


def _counts(requirement: UserRequirement, values: Mapping[str, Any]) -> bool:
    """Tell whether a line asks for a version of its framework here; an address does not say which one it holds.

    A marker that turns on a Python nobody named counts: the solver tries Pythons until one meets the line.
    """
    from packaging.requirements import Requirement

    parsed = Requirement(requirement.text)
    if parsed.url is not None or parsed.marker is None:
        return parsed.url is None
    asked = parse_request({name: values.get(name) for name in ("python", "platform")})
    python = asked.python if asked.python is not None and asked.python[:1].isdigit() else None
    if python is None and "python_" in str(parsed.marker):
        return True
    return parsed.marker.evaluate(place_of(python or "", MACHINES[asked.platform or PLATFORMS[0]]))


def _wish_of(line: FrameworkLine, framework: str) -> _Wish:
    text = line.requirement.specifier.replace(" ", "") or None
    if text is not None and "+" not in text:
        text = getattr(parse_request({framework: text}), framework)
    return _Wish(text=text, said=f"`{line.requirement.text}` in {line.where}")


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
        return ",".join(dict.fromkeys(wish.specifier for wish in prefix)) or _ANY
    version = str(exact.text).removeprefix("==")
    variants = {}
    for wish in wishes:
        bare, _, variant = (wish.text or "").partition("+")
        if not matches(bare or None, version.partition("+")[0]):
            raise _contradiction(framework, wish, exact)
        if variant:
            variants[variant] = wish
    if len(variants) > 1:
        raise _contradiction(framework, *list(variants.values())[:2])
    return "+".join((version.partition("+")[0], *variants))


def _cuda_major(requirement: UserRequirement) -> str | None:
    from packaging.requirements import Requirement

    for extra in sorted(Requirement(requirement.text).extras):
        found = _CUDA_EXTRA.fullmatch(extra.replace("_", "-"))
        if found:
            return found[1]
    return None


def _join_cuda(joined: dict[str, Any], line: FrameworkLine, major: str) -> None:
    """Add the CUDA that an extra of JAX names, such as ``jax[cuda12]``."""
    given = joined.get("cuda")
    if given is None:
        joined["cuda"] = major
        return
    wish = parse_request({"cuda": given}).cuda or _ANY
    flag = _Wish(text=wish, said=f"`--cuda {given}`")
    own = _Wish(text=major, said=f"`{line.requirement.text}` in {line.where}")
    if is_empty((flag.specifier, own.specifier)):
        raise _contradiction("cuda", flag, own)


def _contradiction(name: str, left: _Wish, right: _Wish) -> IncompatibleError:
    return IncompatibleError(
        f"{left.said} and {right.said} cannot be met together",
        because=(f"no version of {name} is both",),
        hints=("change one of the two, or leave it out",),
        details={"conflict": [left.said.replace("`", ""), right.said.replace("`", "")]},
    )
