"""One requirement, as pip, uv and conda read it, with the place of its name and of its versions.

``packaging.requirements`` takes longer to import than this command may last, and tells no places; a property test holds
the two equal on everything that it accepts.
"""

from __future__ import annotations

import re

from provision.audit.model import Requirement
from provision.audit.shell import Text
from provision.resolve.requirements import normalise_name

_HEAD = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*\b)?)\s*(\[[^\]]*\])?\s*")
_CLAUSE = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,;()]+)\s*")
_SIMPLE = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:\.\*|\+[a-z0-9]+)?")
# These are compiled when they are first used: most requirements are a name and a simple version.
_VERSION = (
    r"v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]*)?"
    r"(?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?(?:[-_.]?dev[-_.]?[0-9]*)?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*|\.\*)?"
)
_WHEEL = r"([A-Za-z0-9._]+)-([0-9][A-Za-z0-9._!]*(?:(?:\+|%2[Bb])[A-Za-z0-9._]+)?)-.*\.whl"
_EGG = r"[#&]egg=([A-Za-z0-9._-]+)"
_REMOTE = ("http://", "https://", "git+", "hg+", "svn+", "bzr+", "file:", "ssh://")
_CONDA = r"(?:([^\s:]+)::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)"
_CONDA_CLAUSE = r"(==|!=|<=|>=|~=|<|>|=)?\s*([0-9][^\s,|=<>!]*)"


def pinned_version(specifier: str) -> str | None:
    """Return the exact version that a specifier pins, ``None`` for any other."""
    for operator in ("===", "=="):
        if specifier.startswith(operator):
            version = specifier[len(operator) :]
            return None if "," in version or version.endswith("*") else version
    return None


def pinned_python(specifier: str) -> str | None:
    """Return the Python minor that a specifier pins (``==3.10.*``, ``==3.10.4``), ``None`` for any other."""
    match = re.fullmatch(r"={2,3}([0-9]+\.[0-9]+)(?:\..*)?", specifier)
    return match[1] if match else None


def parse_requirement(
    source: Text, file: str, *, is_literal: bool = True, is_hashed: bool = False
) -> Requirement | None:
    """Read a requirement.

    Args:
        source: Its text without options.
        file: The file it stands in.
        is_literal: No quotes or escapes changed it.
        is_hashed: It comes with a hash.

    Returns:
        ``None`` for what is not a requirement with a name: a local path, or text that is malformed.
    """
    text = source.text
    bare = text.strip()
    if bare.lower().startswith(_REMOTE) or (bare.endswith(".whl") and "@" not in bare):
        return _from_address(source, file)
    head = _HEAD.match(text)
    if head is None or "/" in text[: head.end() + 1] or bare.startswith("."):
        return None
    position = head.end()
    extras = tuple(
        sorted({normalise_name(part.strip()) for part in (head[2] or "[]")[1:-1].split(",") if part.strip()})
    )
    name_end = head.end(2) if head[2] else head.end(1)
    url: str | None = None
    clauses: list[str] = []
    spec_start = spec_end = name_end
    if text.startswith("@", position):
        end = text.find(" ;", position)
        end = len(text) if end < 0 else end
        url = text[position + 1 : end].strip() or None
        position = end
        if url is None:
            return None
    else:
        has_bracket = text.startswith("(", position)
        position += has_bracket
        while match := _CLAUSE.match(text, position):
            if match[1] != "===" and not _is_version(match[2]):
                return None
            # Neither a wild card nor a local part has an order.
            if (match[2].endswith(".*") or "+" in match[2]) and match[1] not in ("==", "!=", "==="):
                return None
            if not clauses:
                spec_start = match.start(1)
            spec_end = match.end(2)
            clauses.append(match[1] + match[2])
            position = match.end()
            if not text.startswith(",", position):
                break
            position += 1
        if has_bracket:
            if not text.startswith(")", position):
                return None
            position += 1
            spec_end = position
            spec_start = text.index("(", head.end() - 1)
    rest = text[position:].strip()
    if rest and not rest.startswith(";"):
        return None
    if rest == ";":
        return None
    specifier = ",".join(clauses)
    version = clean_version(pinned_version(specifier))
    if url is not None and (match := re.fullmatch(_WHEEL, _file_of(url))) is not None:
        version = clean_version(_unquoted(match[2]))
    end = len(text.rstrip())
    return Requirement(
        name=normalise_name(head[1]),
        extras=extras,
        specifier=specifier,
        version=version,
        marker=rest[1:].strip(),
        applies=None if rest else True,
        url=url,
        is_hashed=is_hashed,
        is_literal=is_literal and source.is_in_place(head.start(1), end),
        text=bare,
        span=source.span(file, head.start(1), end),
        name_span=source.span(file, head.start(1), name_end),
        specifier_span=source.span(file, spec_start, spec_end),
    )


def _is_version(text: str) -> bool:
    return _SIMPLE.fullmatch(text) is not None or re.fullmatch(_VERSION, text, re.IGNORECASE) is not None


def clean_version(version: str | None) -> str | None:
    """Return a pinned version in the form that facts have it, ``None`` for what is not a version."""
    if version is None or version.endswith("*") or not _is_version(version):
        return None
    return version.removeprefix("v").lower()


def _from_address(source: Text, file: str) -> Requirement | None:
    """Read the name and version from an address or the name of a wheel."""
    text = source.text.strip()
    start = source.text.index(text)
    # Beside a bare address pip tells a marker by the space on either side.
    address, *rest = re.split(r" ;|; ", text, maxsplit=1)
    marker = "".join(rest)
    end = start + len(address)
    match = re.fullmatch(_WHEEL, _file_of(address))
    egg = re.search(_EGG, address)
    if match:
        name, version = match[1], _unquoted(match[2])
    elif egg:
        name, version = egg[1], ""
    else:
        name, version = _repository_name(address), ""
        if not name:
            return None
    version = version.lower()
    span = source.span(file, start, end)
    return Requirement(
        name=normalise_name(name),
        specifier=f"=={version}" if version else "",
        version=version or None,
        marker=marker.strip(),
        applies=None if marker else True,
        url=address,
        is_hashed="#sha256=" in address,
        is_literal=False,
        text=text,
        span=span,
        name_span=span,
        specifier_span=span,
    )


def _file_of(address: str) -> str:
    return address.partition("#")[0].partition("?")[0].rpartition("/")[2]


def _unquoted(version: str) -> str:
    return version.replace("%2B", "+").replace("%2b", "+")


def _repository_name(address: str) -> str:
    """Return the last part of a repository's address, which is what most projects are called too."""
    if not address.lower().startswith(("git+", "hg+", "svn+", "bzr+")):
        return ""
    path = address.partition("#")[0].partition("?")[0].partition("://")[2] or address.partition(":")[2]
    last = path.rstrip("/").rpartition("/")[2].partition("@")[0].removesuffix(".git")
    return last if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", last) else ""


def parse_conda(source: Text, file: str, *, is_literal: bool = True) -> Requirement | None:
    """Read a match specification of conda: ``channel::name=version=build``, ``name >=1,<2`` or ``name==1``.

    Returns:
        ``None`` for what is none, such as a path to a package.
    """
    text = source.text.rstrip()
    start = len(text) - len(text.lstrip())
    match = re.compile(_CONDA).fullmatch(text, start)
    if match is None or "/" in match[2]:
        return None
    rest = match[3].partition("[")[0].strip()
    version_text, build = rest, ""
    words = rest.split()
    if len(words) == 2 and not rest.startswith(("<", ">", "!", "~")) and "," not in rest:
        version_text, build = words
    elif rest.startswith("=") and not rest.startswith("==") and "=" in rest[1:]:
        version_text, _, build = rest[1:].partition("=")
        version_text = f"={version_text}" if not build else f"=={version_text}"
    elif rest.startswith("==") and "=" in rest[2:]:
        version_text, _, build = rest[2:].partition("=")
        version_text = f"=={version_text}"
    specifier = _conda_specifier(version_text)
    name_end = match.end(2)
    return Requirement(
        name=match[2].lower(),
        specifier=specifier,
        version=clean_version(pinned_version(specifier)),
        ecosystem="conda",
        build=build,
        channel=match[1] or "",
        is_literal=is_literal and source.is_in_place(start, len(text)),
        text=text.strip(),
        span=source.span(file, start, len(text)),
        name_span=source.span(file, match.start(2), name_end),
        specifier_span=source.span(file, match.start(3) if match[3] else name_end, len(text)),
    )


def _conda_specifier(text: str) -> str:
    """Return conda's versions as PEP 440 clauses, empty where they have no such form."""
    text = text.strip()
    if not text or "|" in text:
        return ""
    clauses = []
    for part in text.split(","):
        match = re.fullmatch(_CONDA_CLAUSE, part.strip())
        if match is None:
            return ""
        operator, version = match[1] or "==", match[2]
        if operator == "=":
            version = version.removesuffix("*").removesuffix(".")
            operator, version = "==", f"{version}.*"
        elif version.endswith("*"):
            version = f"{version.removesuffix('*').removesuffix('.')}.*"
        if not _is_version(version) or (version.endswith("*") and operator not in ("==", "!=")):
            return ""
        clauses.append(operator + version)
    return ",".join(clauses)
