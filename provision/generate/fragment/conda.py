"""The GPU half in an ``environment.yml``: conda's Python, and the wheels in its pip section.

The frameworks come from pip: PyTorch ended its own conda channel, and no channel has the builds that the facts are
about. The file is edited as text, at the places where the YAML reader says that its parts stand.
"""

from __future__ import annotations

import re
from typing import Any

from provision.errors import UsageError
from provision.generate.fragment.edit import Edit, Log
from provision.generate.fragment.half import GpuHalf
from provision.generate.fragment.pip import option_lines, place_lines, requirement_lines

_CHANNEL = "conda-forge"
_CONDA_NAMES = ("pytorch", "pytorch-cuda", "pytorch-gpu", "pytorch-cpu", "cudatoolkit", "cpuonly")


def write_conda(half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into an ``environment.yml``.

    Args:
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name, for messages.
        name: Name of a new environment; absent where only the fragment is wanted.

    Raises:
        UsageError: The file is not YAML, or its dependencies are no list.
    """
    if text is None or not text.strip():
        lines = [f"name: {name}"] if name is not None else []
        lines += [f"channels: [{_CHANNEL}, nodefaults]", "dependencies:", f"  - python={half.python}", "  - pip"]
        lines += ["  - pip:", *(f"      - {line}" for line in (*option_lines(half), *requirement_lines(half)))]
        return Edit(text="\n".join(lines) + "\n")
    log = Log()
    lines = text.splitlines()
    lines = _set_python(lines, half, path, log)
    lines = _drop_conda(lines, half, path, log)
    lines = _set_pip(lines, half, path, log)
    return Edit(text="\n".join(lines) + "\n", told=tuple(log.told))


def _dependencies(lines: list[str], path: str) -> Any:
    """Return the node of the dependencies.

    Raises:
        UsageError: There is none, or it is not a list with one entry a line.
    """
    import yaml

    try:
        root = yaml.compose("\n".join(lines) + "\n", Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(
            f"{path} is not YAML", because=(" ".join(str(error).split()),), hints=("nothing was written",)
        ) from error
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    node = next((value for key, value in pairs if key.value == "dependencies"), None)
    if not isinstance(node, yaml.SequenceNode) or node.flow_style or not node.value:
        raise UsageError(f"{path} has no list `dependencies` with one entry a line", hints=("nothing was written",))
    return node


def _set_python(lines: list[str], half: GpuHalf, path: str, log: Log) -> list[str]:
    node = _dependencies(lines, path)
    wanted = f"python={half.python}"
    indent = " " * node.value[0].start_mark.column
    kept = list(lines)
    for item in node.value:
        number = item.start_mark.line
        if isinstance(item.value, str) and re.match(r"python\s*($|[=<>!~ ])", item.value):
            if not re.fullmatch(rf"python\s*==?\s*{re.escape(half.python)}(\.[0-9*]+)?", item.value):
                log.tell(f'{path}, line {number + 1}: "{item.value}" became "{wanted}"')
                kept[number] = lines[number].replace(item.value, wanted, 1)
            return kept
    first = node.value[0].start_mark
    dash = lines[first.line][: first.column] if not indent.strip() else indent
    kept.insert(first.line, f"{dash}{wanted}")
    return kept


def _drop_conda(lines: list[str], half: GpuHalf, path: str, log: Log) -> list[str]:
    """Take out the frameworks of conda: pip would replace them, and what was built against them would break."""
    names = {*_CONDA_NAMES, *half.names} if "torch" in half.names else set(half.names) | {"cudatoolkit"}
    gone = set()
    for item in _dependencies(lines, path).value:
        if not isinstance(item.value, str):
            continue
        name = re.split(r"[=<>!~ \[]", item.value.rpartition("::")[2], maxsplit=1)[0]
        if name in names:
            gone.add(item.start_mark.line)
            log.tell(f'{path}, line {item.start_mark.line + 1}: "{item.value}" is gone: pip installs it')
    return [line for number, line in enumerate(lines) if number not in gone]


def _set_pip(lines: list[str], half: GpuHalf, path: str, log: Log) -> list[str]:
    import yaml

    node = _dependencies(lines, path)
    wanted = [*option_lines(half), *requirement_lines(half)]
    last = node.value[-1]
    column = node.value[0].start_mark.column
    dash = lines[node.value[0].start_mark.line][:column]
    inner = " " * (column + 2)
    for item in node.value:
        if not isinstance(item, yaml.MappingNode) or item.value[0][0].value != "pip":
            continue
        section = item.value[0][1]
        if isinstance(section, yaml.SequenceNode) and section.value and not section.flow_style:
            return _edit_section(lines, section, half, path, log)
        raise UsageError(
            f"the pip section of {path} is not a list with one entry a line", hints=("nothing was written",)
        )
    end = last.start_mark.line + 1
    names = {item.value for item in node.value if isinstance(item.value, str)}
    has_pip = any(re.match(r"pip\s*($|[=<>])", name) for name in names)
    added = [] if has_pip else [f"{dash}pip"]
    added += [f"{dash}pip:", *(f"{inner}- {line}" for line in wanted)]
    return [*lines[:end], *added, *lines[end:]]


def _edit_section(lines: list[str], section: Any, half: GpuHalf, path: str, log: Log) -> list[str]:
    """Edit the lines of the pip section as those of a requirements file, without the dashes."""
    first, last = section.value[0].start_mark, section.value[-1].start_mark
    dash = lines[first.line][: first.column]
    bodies, marks = [], []
    for line in lines[first.line : last.line + 1]:
        found = re.fullmatch(r"(\s*-\s+)([\"']?)(.*?)\2(\s+#.*)?", line)
        bodies.append(f"{found[3]}{found[4] or ''}" if found else f"#{line}")
        marks.append((bodies[-1], line))
    edited = place_lines(bodies, half, path, log)
    remaining = list(marks)
    result = []
    for body in edited:
        known = next((pair for pair in remaining if pair[0] == body), None)
        if known is not None:
            remaining.remove(known)
            result.append(known[1])
        else:
            result.append(f"{dash}{body}")
    return [*lines[: first.line], *result, *lines[last.line + 1 :]]
