"""The GPU half as lines of a requirements file, for pip and for the pip section of conda."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from provision.generate.fragment.edit import Edit, Log, can_hold, read_requirement
from provision.generate.fragment.half import GpuHalf


def option_lines(half: GpuHalf) -> list[str]:
    """Return the options that name the indexes; the local part of each version says which build is meant."""
    flags = {pin.index: "--find-links" if pin.is_flat else "--extra-index-url" for pin in half.pins if pin.index}
    return [f"{flag} {url}" for url, flag in flags.items()]


def requirement_lines(half: GpuHalf) -> list[str]:
    """Return the requirements, frameworks first."""
    bounds = {name: bound for name, bound in half.bounds if name not in half.names}
    added = [line for line in half.added if (own := read_requirement(line)) and own.name not in bounds]
    return [
        *(pin.exact_line for pin in half.pins),
        *added,
        *(f"{name}{bound}" for name, bound in bounds.items()),
        *(f"{name}=={version}" for name, version in half.held),
    ]


def write_pip(half: GpuHalf, text: str | None, path: str, *, name: str | None = None) -> Edit:
    """Write the GPU half into a requirements file.

    Args:
        half: The GPU half.
        text: The file as it is; absent for a new one.
        path: Its name, for the comment of a new one.
        name: Nothing is named in such a file.
    """
    del name
    log = Log()
    if text is None or not text.strip():
        head = [
            f"# {half.stack}",
            f"# Install: python{half.python} -m pip install -r {path}",
        ]
        return Edit(text="\n".join([*head, *option_lines(half), *requirement_lines(half)]) + "\n")
    lines = place_lines(text.splitlines(), half, path, log)
    return Edit(text="\n".join(lines) + "\n", told=tuple(log.told))


def place_lines(lines: list[str], half: GpuHalf, path: str, log: Log) -> list[str]:
    """Return lines of a requirements file with the GPU half among them, comments and order kept.

    Args:
        lines: The lines as they are.
        half: The GPU half.
        path: The file, for what is told.
        log: Takes what was replaced.
    """
    kept = list(lines)
    for line in requirement_lines(half):
        wanted = read_requirement(line)
        assert wanted is not None  # noqa: S101 - made above
        place = None
        for number, old in enumerate(kept):
            body, gap, comment = _split(old)
            own = read_requirement(body)
            if own is None or canonicalize_name(own.name) != canonicalize_name(wanted.name):
                continue
            if not can_hold(own.marker, half):
                continue
            place = number
            if line.partition("<")[2] and wanted.specifier and "==" not in line:
                new = _bounded(body, line)
            else:
                new = f"{line} ; {own.marker}" if own.marker else line
            if read_requirement(new) is not None and str(read_requirement(new)) != str(own) and body != new:
                log.tell(f'{path}, line {number + 1}: "{body}" became "{new}"')
                kept[number] = f"{new}{gap}{comment}"
            break
        if place is None:
            kept.append(line)
    return _place_options(kept, half, path, log)


def _place_options(kept: list[str], half: GpuHalf, path: str, log: Log) -> list[str]:
    """Name the indexes; that of another build of the same kind is replaced."""
    missing = []
    for option in option_lines(half):
        flag, _, url = option.partition(" ")
        bodies = [_split(line)[0] for line in kept]
        if any(
            url.rstrip("/") in body.replace("=", " ").split() or f"{url.rstrip('/')}/" in body.split()
            for body in bodies
        ):
            continue
        root = url.rstrip("/").rpartition("/")[0]
        place = next(
            (
                number
                for number, body in enumerate(bodies)
                if body.startswith("-") and re.search(re.escape(root) + r"/(cu[0-9]+|cpu)/?\s*$", body)
            ),
            None,
        )
        if place is None:
            missing.append(option)
        else:
            _, gap, comment = _split(kept[place])
            log.tell(f'{path}, line {place + 1}: "{bodies[place]}" became "{option}"')
            kept[place] = f"{option}{gap}{comment}"
        del flag
    first = next(
        (number for number, line in enumerate(kept) if line.strip() and not line.lstrip().startswith("#")), len(kept)
    )
    return [*kept[:first], *missing, *kept[first:]]


def _bounded(body: str, line: str) -> str:
    own, wanted = read_requirement(body), read_requirement(line)
    if own is None or wanted is None or own.url is not None:
        return line
    if set(wanted.specifier) <= set(own.specifier):
        return body
    own.specifier &= wanted.specifier
    return str(own)


def _split(line: str) -> tuple[str, str, str]:
    """Return what a line says, the space after it, and its comment."""
    found = re.fullmatch(r"(.*?)(\s*)((?:(?<=\s)|^)#.*)?", line)
    assert found is not None  # noqa: S101 - every line fits
    return found[1], found[2], found[3] or ""
