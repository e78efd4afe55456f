"""Edits of other people's files: TOML with its comments and order, requirement lines, and what was changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.markers import Marker, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from provision.errors import UsageError
from provision.generate.fragment.half import GpuHalf
from provision.records import record

_CUDA_EXTRA = re.compile(r"cuda[0-9_a-z]*|and-cuda|and_cuda|gpu|tpu|rocm.*")


@record
class Edit:
    """A file after the edit, and a sentence for each entry of it that had to give way."""

    text: str
    told: tuple[str, ...] = ()


class Log:
    """Collects what was replaced, each thing once."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, sentence: str) -> None:
        """Add a sentence."""
        if sentence not in self.told:
            self.told.append(sentence)


def parse_toml(text: str, path: str) -> Any:
    """Return a TOML document that keeps its comments and order.

    Raises:
        UsageError: It is not TOML.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError) as error:
        raise UsageError(
            f"{path} is not TOML", because=(str(error),), hints=("nothing was written: mend the file first",)
        ) from error


def dump_toml(document: Any, before: str | None) -> str:
    """Return the text of a document: a blank line before each table that is new, ends as they were.

    Args:
        document: The document.
        before: Its text before the edit.
    """
    import tomlkit

    text = (before or "").replace("\r\n", "\n")
    known = set(zip(text.split("\n"), text.split("\n")[1:], strict=False))
    lines: list[str] = []
    for line in tomlkit.dumps(document).strip("\n").split("\n"):
        last = lines[-1] if lines else ""
        if line.startswith("[") and last.strip() and not last.startswith("#") and (last, line) not in known:
            lines.append("")
        lines.append(line)
    stripped = text.strip("\n")
    head, _, tail = text.partition(stripped) if stripped else ("", "", "\n")
    return head + "\n".join(lines) + tail


def table_in(parent: Any, *names: str, is_super: bool = False) -> Any:
    """Return a table below another, made where it is missing.

    Raises:
        UsageError: There is something else of that name.
    """
    import tomlkit

    for number, name in enumerate(names):
        if name not in parent:
            is_inner = is_super or number < len(names) - 1
            parent[name] = tomlkit.table(is_super_table=is_inner)
        parent = parent[name]
        if not isinstance(parent, Mapping):
            raise UsageError(f"`{'.'.join(names[: number + 1])}` is not a table", hints=("nothing was written",))
    return parent


def list_in(parent: Any, name: str) -> Any:
    """Return a list in a table, made where it is missing.

    Raises:
        UsageError: There is something else of that name.
    """
    import tomlkit

    if name not in parent:
        parent[name] = tomlkit.array()
    if not isinstance(parent[name], list):
        raise UsageError(f"`{name}` is not a list", hints=("nothing was written",))
    return parent[name]


def set_entry(table: Any, key: str, value: Any, where: str, log: Log) -> None:
    """Set a key to a value unless it holds it already; what was there is told."""
    import tomlkit

    if key in table:
        if _plain(table[key]) == value:
            return
        log.tell(f"{where}: {_shown(_plain(table[key]))} became {_shown(value)}")
    table[key] = _item(value) if not isinstance(value, str) else tomlkit.string(value)


def _plain(item: Any) -> Any:
    return item.unwrap() if hasattr(item, "unwrap") else item


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {_shown(part)}" for key, part in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(part) for part in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _item(value: Any) -> Any:
    import tomlkit

    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, part in value.items():
            table[key] = _item(part)
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        for part in value:
            array.append(_item(part))
        if any(isinstance(part, Mapping) for part in value) or len(value) > 1:
            array.multiline(any(isinstance(part, Mapping) for part in value))
        return array
    return value


def read_requirement(line: object) -> Requirement | None:
    """Return a requirement, or nothing where an entry is none (a group that includes another, a malformed line)."""
    try:
        return Requirement(line) if isinstance(line, str) else None
    except InvalidRequirement:
        return None


def can_hold(marker: Marker | None, half: GpuHalf) -> bool:
    """Tell whether a marker holds on the platform of the stack on any Python that it has wheels for."""
    if marker is None:
        return True
    environment = {
        **{name: str(value) for name, value in default_environment().items()},
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": half.machine,
        "extra": "",
    }
    return any(
        marker.evaluate({**environment, "python_version": python, "python_full_version": f"{python}.0"})
        for python in half.pythons
    )


def rewrite_requirement(line: str, half: GpuHalf, *, style: str = "{0}=={1}") -> str | None:
    """Return what a line that asks for a framework must become so that the stack's version fits it.

    Args:
        line: A requirement.
        half: The GPU half.
        style: How name and version are joined.

    Returns:
        ``None`` where it stays: another package, another platform, or a range that admits the version.
    """
    wanted = read_requirement(line)
    if wanted is None:
        return None
    name = canonicalize_name(wanted.name)
    pin = next((pin for pin in half.cpu_pins if pin.name == name), None)
    if pin is None or not can_hold(wanted.marker, half):
        return None
    extras = sorted(extra for extra in wanted.extras if not _CUDA_EXTRA.fullmatch(extra))
    if wanted.url is None and len(extras) == len(wanted.extras):
        local = f"+{pin.local}" if any(part.version.partition("+")[2] for part in wanted.specifier) else ""
        if not local and wanted.specifier.contains(pin.version, prereleases=True):
            return None
    label = f"{pin.name}[{','.join(extras)}]" if extras else pin.name
    marker = f" ; {wanted.marker}" if wanted.marker else ""
    return style.format(label, pin.version) + marker


def merge_requirements(array: Any, lines: Iterable[str], half: GpuHalf, where: str, log: Log) -> None:
    """Put requirement lines into an array: one that names the same package is replaced, the rest is appended."""
    for line in lines:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        found = [
            (place, own)
            for place, entry in enumerate(array)
            if (own := read_requirement(_plain(entry))) is not None
            and canonicalize_name(own.name) == name
            and can_hold(own.marker, half)
        ]
        if not found:
            _append(array, line)
            continue
        place, own = found[0]
        if str(own) != str(wanted):
            log.tell(f'{where}: "{_plain(array[place])}" became "{line}"')
            array[place] = line
        for place, own in reversed(found[1:]):
            log.tell(f'{where}: "{own}" is gone, since "{line}" stands there')
            del array[place]


def _append(array: Any, line: str) -> None:
    is_multiline = "\n" in array.as_string()
    array.append(line)
    if not is_multiline and len(array.as_string()) > 100:
        array.multiline(True)


def narrow_pythons(existing: str | None, half: GpuHalf) -> str:
    """Return the Pythons of a project, held to those that have wheels of the frameworks.

    Args:
        existing: The specifier of the project; absent where it has none.
        half: The GPU half.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if existing is None:
        return half.python_range
    try:
        wanted = SpecifierSet(existing)
    except InvalidSpecifier:
        return half.python_range
    from provision.versions import parse

    first, last = parse(half.pythons[0]), parse(half.pythons[-1])
    minors = [f"{first.major}.{minor}" for minor in range(last.minor + 20)]
    # A bound at a patch admits the minor all the same.
    admitted = [minor for minor in minors if any(wanted.contains(f"{minor}.{patch}") for patch in (0, 99))]
    if half.python in admitted and set(admitted) <= set(half.pythons):
        return existing
    both = [python for python in half.pythons if python in admitted]
    if half.python not in both:
        return half.python_range
    low = next((str(part) for part in wanted if part.operator == ">=" and part.version.startswith(f"{both[0]}.")), None)
    end = parse(both[-1])
    return f"{low or f'>={both[0]}'},<{end.major}.{end.minor + 1}"
