"""Projects: pyproject.toml of every school, and the locks of uv and poetry."""

from __future__ import annotations

import re
from typing import Any

from provision.audit.model import Environment, Index, Install, Requirement, Source, Span
from provision.audit.places import Placed, read_toml
from provision.audit.requirement import clean_version, parse_requirement
from provision.audit.shell import Text
from provision.errors import UsageError, without_secrets
from provision.records import record, replace
from provision.resolve.requirements import normalise_name
from provision.versions import spec_of

_PACKAGE = re.compile(r"^\[\[package\]\]", re.MULTILINE)
_CARET = re.compile(r"[~^]?\s*([0-9]+(?:\.[0-9]+)*)")


@record
class Project:
    """What one group of a project asks for.

    Attributes:
        name: ``dependencies``, an extra (``extra gpu``), a group (``group dev``) or ``lock``.
        requirements: In order.
        indexes: Of the whole project.
        has_default_index: PyPI is asked too.
        python: The Python that it pins, ``None`` for a range.
        pythons: The Pythons that it allows, as a specifier; empty where it does not say.
        is_complete: Everything was understood.
        left: What was not, as written.
    """

    name: str
    requirements: tuple[Requirement, ...]
    indexes: tuple[Index, ...] = ()
    has_default_index: bool = True
    python: str | None = None
    pythons: str = ""
    is_complete: bool = True
    left: tuple[str, ...] = ()


def read_project(pyproject: Source | None, lock: Source | None) -> Project:
    """Return what installing a project brings: its lock where there is one, else what it depends on.

    Raises:
        UsageError: A file is malformed.
    """
    if lock is not None:
        return _read_lock(lock)
    if pyproject is None:
        return Project(name="dependencies", requirements=(), is_complete=False)
    groups = read_groups(pyproject)
    return (
        next((group for group in groups if group.name == "dependencies"), groups[0])
        if groups
        else Project(name="dependencies", requirements=(), is_complete=False)
    )


def parse_pyproject(source: Source) -> list[Environment]:
    """Return an environment for each set of dependencies that is installed together.

    An extra or group is judged with the dependencies of the project, which come with it.

    Raises:
        UsageError: It is not TOML.
    """
    groups = read_groups(source)
    main = next((group for group in groups if group.name == "dependencies"), None)
    found = []
    for group in groups:
        parts = [group] if group is main or main is None else [main, group]
        found.append(environment_of("pyproject", source, group, parts))
    return found


def parse_lock(source: Source) -> Environment:
    """Return the environment that a lock of uv or poetry describes.

    Raises:
        UsageError: It is no such lock.
    """
    project = _read_lock(source)
    return environment_of("lock", source, project, [project])


def environment_of(kind: str, source: Source, group: Project, parts: list[Project]) -> Environment:
    """Return what one set of dependencies comes to.

    Args:
        kind: ``pyproject`` or ``lock``.
        source: The file.
        group: The set.
        parts: All that is installed with it, itself last.
    """
    installs = tuple(
        Install(
            installer="uv" if source.file.endswith("uv.lock") else "pip",
            command=f"{source.file.rpartition('/')[2]} {part.name}",
            requirements=part.requirements,
            indexes=part.indexes,
            has_default_index=part.has_default_index,
            is_complete=part.is_complete,
            python=part.python,
            span=part.requirements[0].span if part.requirements else source.span(0, 0),
            is_file=True,
        )
        for part in parts
    )
    return Environment(
        kind=kind,
        file=source.file,
        name=group.name,
        span=source.span(0, 0),
        installs=installs,
        own_installs=installs[-1:],
        python=group.python,
        pythons=group.pythons,
    )


def read_groups(source: Source) -> list[Project]:
    """Return what each set of dependencies of a ``pyproject.toml`` asks for.

    Raises:
        UsageError: It is not TOML, or a requirement in it is none.
    """
    placed = read_toml(source)
    data = placed.data
    tool = table_of(data, "tool")
    indexes, has_default = _indexes(placed, tool)
    bound = _bound_indexes(tool, {index.name: index.url for index in indexes})
    pythons = _specifier(table_of(data, "project").get("requires-python"))
    groups: list[tuple[str, list[Requirement], list[str]]] = []
    project = table_of(data, "project")
    if project:
        groups.append(("dependencies", *_listed(placed, ("project", "dependencies"), project.get("dependencies"))))
        for name, items in table_of(project, "optional-dependencies").items():
            groups.append((f"extra {name}", *_listed(placed, ("project", "optional-dependencies", name), items)))
    poetry = table_of(tool, "poetry")
    if poetry:
        groups += _poetry_groups(placed, poetry)
        own = table_of(poetry, "dependencies").get("python")
        pythons = pythons or _specifier(poetry_specifier(own) if isinstance(own, str) else None)
    for name, items in table_of(data, "dependency-groups").items():
        groups.append((f"group {name}", *_listed(placed, ("dependency-groups", name), items)))
    for name, items in table_of(table_of(tool, "pdm"), "dev-dependencies").items():
        groups.append((f"group {name}", *_listed(placed, ("tool", "pdm", "dev-dependencies", name), items)))
    for name, table in table_of(table_of(tool, "hatch"), "envs").items():
        requirements: list[Requirement] = []
        for key in ("dependencies", "extra-dependencies"):
            items = table.get(key) if isinstance(table, dict) else None
            # What hatch fills in itself, such as `{root:uri}`, is not a requirement.
            if isinstance(items, list) and "{" not in str(items):
                requirements += _listed(placed, ("tool", "hatch", "envs", name, key), items)[0]
        groups.append((f"group {name}", requirements, []))
    uv = table_of(tool, "uv")
    if isinstance(uv.get("dev-dependencies"), list):
        groups.append(("group dev", *_listed(placed, ("tool", "uv", "dev-dependencies"), uv["dev-dependencies"])))
    return [
        Project(
            name=name,
            requirements=tuple(
                replace(item, index=bound[item.name]) if item.name in bound else item for item in requirements
            ),
            indexes=tuple(indexes),
            has_default_index=has_default,
            python=_pinned(pythons),
            pythons=pythons,
            is_complete=not left,
            left=tuple(left),
        )
        for name, requirements, left in groups
        if requirements or left
    ]


def table_of(data: Any, key: str) -> dict[str, Any]:
    """Return a table of a document, an empty one where there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _listed(placed: Placed, path: tuple[str, ...], items: object) -> tuple[list[Requirement], list[str]]:
    """Read a list of requirements; what is none of PEP 508 is an error, since pip would refuse the file."""
    found: list[Requirement] = []
    left: list[str] = []
    for number, item in enumerate(items if isinstance(items, list) else []):
        if not isinstance(item, str):
            # A group may include another one.
            left.append(str(item))
            continue
        requirement = parse_requirement(placed.text(*path, number), placed.source.file)
        if requirement is None:
            place = placed.source.position(placed.span(*path, number))
            raise UsageError(
                f"{place.file}:{place.line}:{place.column}: `{without_secrets(item)[:60]}` is not a requirement",
                hints=("write it as `name==version` or as another requirement of PEP 508",),
            )
        found.append(_placed(requirement, placed.span(*path, number)))
    return found, left


def _placed(requirement: Requirement, span: Span) -> Requirement:
    """Return a requirement with a place, where its own text could not be found in the file."""
    if requirement.span.start != requirement.span.end:
        return requirement
    return replace(requirement, span=span, name_span=span, specifier_span=span, is_literal=False)


def _poetry_groups(placed: Placed, poetry: dict[str, Any]) -> list[tuple[str, list[Requirement], list[str]]]:
    groups: list[tuple[str, list[Requirement], list[str]]] = []
    tables: list[tuple[str, tuple[str, ...]]] = [
        ("dependencies", ("tool", "poetry", "dependencies")),
        ("group dev", ("tool", "poetry", "dev-dependencies")),
    ]
    tables += [
        (f"group {name}", ("tool", "poetry", "group", name, "dependencies")) for name in table_of(poetry, "group")
    ]
    for title, path in tables:
        values: Any = placed.data
        for part in path:
            values = table_of(values, part)
        found: list[Requirement] = []
        left: list[str] = []
        for name, value in values.items():
            if name == "python":
                continue
            # What differs from place to place is a list, one entry a place.
            for item in value if isinstance(value, list) else [value]:
                made = table_requirement(placed, path, name, item)
                if made is None:
                    left.append(f"{name} = {item}")
                else:
                    found.append(made)
        if found or left:
            groups.append((title, found, left))
    return groups


def table_requirement(placed: Placed, path: tuple[str, ...], name: str, value: object) -> Requirement | None:
    """Read an entry of a table of dependencies as poetry, pipenv and pixi write them.

    Args:
        placed: The file.
        path: Keys of the table.
        name: Key of the entry.
        value: The versions, or a table with them.

    Returns:
        ``None`` for what has no form in PEP 508. Its text is that form; ``applies`` is ``None`` for an optional one.
    """
    table = value if isinstance(value, dict) else {"version": value}
    version = table.get("version", "")
    if not isinstance(version, str) or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        return None
    specifier = poetry_specifier(version)
    if specifier is None:
        return None
    extras = table.get("extras")
    extras = tuple(sorted(normalise_name(str(item)) for item in extras)) if isinstance(extras, list) else ()
    url = address_of(table)
    marker = _marker_of(table)
    raw = name + (f"[{','.join(extras)}]" if extras else "") + (f" @ {url}" if url else specifier)
    raw += f" ; {marker}" if marker else ""
    made = parse_requirement(Text(raw, [-1] * len(raw)), placed.source.file)
    if made is None:
        return None
    span = placed.span(*path, name) if isinstance(value, str) else placed.span(*path, name, "version")
    bound = table.get("source") or table.get("index")
    return replace(
        made,
        applies=None if marker or table.get("optional") else True,
        index=bound if isinstance(bound, str) else None,
        is_literal=False,
        span=span,
        name_span=span,
        specifier_span=span,
    )


def address_of(table: dict[str, Any]) -> str:
    """Return the address or path that an entry takes its distribution from, empty for an index."""
    git = table.get("git")
    if isinstance(git, str):
        ref = next((table[key] for key in ("rev", "ref", "tag", "branch") if isinstance(table.get(key), str)), "")
        folder = table.get("subdirectory")
        address = git if git.startswith("git+") else f"git+{git}"
        return address + (f"@{ref}" if ref else "") + (f"#subdirectory={folder}" if isinstance(folder, str) else "")
    return next((table[key] for key in ("url", "file", "path") if isinstance(table.get(key), str)), "")


def _marker_of(table: dict[str, Any]) -> str:
    """Return the conditions of an entry as one marker."""
    parts = [f"({text})" for text in (table.get("markers"), table.get("marker")) if isinstance(text, str) and text]
    python = poetry_specifier(str(table.get("python", ""))) or ""
    parts += [re.sub(r"^([=<>!~]+)(.*)$", r"python_version \1 '\2'", clause) for clause in python.split(",") if clause]
    if isinstance(table.get("platform"), str):
        parts.append(f"sys_platform == '{table['platform']}'")
    return parts[0].removeprefix("(").removesuffix(")") if len(parts) == 1 else " and ".join(parts)


def poetry_specifier(version: str) -> str | None:
    """Return poetry's versions as PEP 440 clauses, ``None`` where they have no such form."""
    text = version.strip()
    if text in ("", "*"):
        return ""
    if "||" in text or "|" in text:
        return None
    clauses = []
    for part in (piece.strip() for piece in text.split(",")):
        match = _CARET.fullmatch(part)
        if match and part.startswith("^"):
            numbers = [int(number) for number in match[1].split(".")]
            at = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
            upper = ".".join(str(number) for number in [*numbers[:at], numbers[at] + 1])
            clauses += [f">={match[1]}", f"<{upper}"]
        elif match and part.startswith("~"):
            numbers = [int(number) for number in match[1].split(".")]
            upper = ".".join(
                str(number) for number in ([numbers[0], numbers[1] + 1] if len(numbers) > 1 else [numbers[0] + 1])
            )
            clauses += [f">={match[1]}", f"<{upper}"]
        elif re.fullmatch(r"[0-9][A-Za-z0-9.+!-]*(?:\.\*)?", part):
            clauses.append(f"=={part}")
        elif part.startswith(("=", "!", "<", ">", "~=")):
            clauses.append(f"={part}" if re.match(r"=[^=]", part) else part.replace(" ", ""))
        else:
            return None
    return ",".join(clauses)


def _indexes(placed: Placed, tool: dict[str, Any]) -> tuple[list[Index], bool]:
    found: list[Index] = []
    has_default = True
    uv = table_of(tool, "uv")
    for number, item in enumerate(uv.get("index", []) if isinstance(uv.get("index"), list) else []):
        if not isinstance(item, dict):
            continue
        is_default = item.get("default") is True
        has_default = has_default and not is_default
        found.append(
            Index(
                kind="find-links" if item.get("format") == "flat" else "index" if is_default else "extra",
                url=str(item.get("url", "")) or None,
                origin="file",
                name=str(item.get("name", "")),
                is_explicit=item.get("explicit") is True,
                span=placed.span("tool", "uv", "index", number, "url"),
            )
        )
    pip = table_of(uv, "pip")
    for table, path in ((uv, ("tool", "uv")), (pip, ("tool", "uv", "pip"))):
        for key, kind in (("index-url", "index"), ("extra-index-url", "extra"), ("find-links", "find-links")):
            values = table.get(key)
            for number, url in enumerate(values if isinstance(values, list) else [values] if values else []):
                span = placed.span(*path, key, number) if isinstance(values, list) else placed.span(*path, key)
                found.append(Index(kind=kind, url=str(url), origin="file", span=span))
                has_default = has_default and kind != "index"
    backend = pip.get("torch-backend") or uv.get("torch-backend")
    if isinstance(backend, str):
        found.append(Index(kind="backend", url=backend, origin="file", span=placed.span("tool", "uv")))
    poetry = table_of(tool, "poetry")
    for number, item in enumerate(poetry.get("source", []) if isinstance(poetry.get("source"), list) else []):
        # Poetry knows the address of the one called PyPI.
        if not isinstance(item, dict) or (not item.get("url") and str(item.get("name", "")).lower() == "pypi"):
            continue
        priority = str(item.get("priority", "primary"))
        found.append(
            Index(
                kind="extra",
                url=str(item.get("url", "")) or None,
                origin="file",
                name=str(item.get("name", "")),
                is_explicit=priority == "explicit",
                span=placed.span("tool", "poetry", "source", number, "url"),
            )
        )
        if priority in ("primary", "default") and item.get("url"):
            has_default = False
    pdm = table_of(tool, "pdm")
    for number, item in enumerate(pdm.get("source", []) if isinstance(pdm.get("source"), list) else []):
        if isinstance(item, dict):
            found.append(
                Index(
                    kind="extra",
                    url=str(item.get("url", "")) or None,
                    origin="file",
                    name=str(item.get("name", "")),
                    span=placed.span("tool", "pdm", "source", number, "url"),
                )
            )
    return found, has_default


def _bound_indexes(tool: dict[str, Any], urls: dict[str, str | None]) -> dict[str, str]:
    """Return the index that each distribution is bound to on Linux, empty where that is not settled."""
    found: dict[str, str] = {}
    for name, value in table_of(table_of(tool, "uv"), "sources").items():
        entries = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        answers = [(_holds_on_linux(str(item.get("marker", ""))), item) for item in entries]
        possible = [(is_sure, item) for is_sure, item in answers if is_sure is not False]
        if not possible:
            continue
        is_sure, item = possible[0]
        is_settled = len(possible) == 1 and is_sure is True and "index" in item and not {"extra", "group"} & set(item)
        index = str(item.get("index", ""))
        found[normalise_name(name)] = (urls.get(index) or index) if is_settled else ""
    return found


def _holds_on_linux(marker: str) -> bool | None:
    if not marker:
        return True
    if "python" in marker or "extra" in marker or "implementation" in marker:
        return None
    from packaging.markers import InvalidMarker, Marker

    answers = set()
    for machine in ("x86_64", "aarch64"):
        values = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine}
        try:
            answers.add(Marker(marker).evaluate(values))
        except InvalidMarker:
            return None
    return answers.pop() if len(answers) == 1 else None


def _pinned(specifier: str) -> str | None:
    match = re.fullmatch(r"\s*(?:==|~=)\s*([0-9]+\.[0-9]+)(?:\.[0-9*]+)?\s*", specifier)
    if match:
        return match[1]
    between = re.fullmatch(r"\s*>=\s*([0-9]+)\.([0-9]+)(?:\.[0-9]+)?\s*,\s*<\s*([0-9]+)\.([0-9]+)\s*", specifier)
    if between and between[1] == between[3] and int(between[4]) == int(between[2]) + 1:
        return f"{between[1]}.{between[2]}"
    return None


def _specifier(value: object) -> str:
    """Return which Pythons a project allows, empty where that makes no sense."""
    if not isinstance(value, str):
        return ""
    try:
        spec_of(value)
    except ValueError:
        return ""
    return value.strip()


def _read_lock(source: Source) -> Project:
    import tomllib

    try:
        data = tomllib.loads(source.text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = f"{source.file}:{match[1]}:{match[2]}: it" if match else source.file
        raise UsageError(f"{place} is not TOML", because=(str(error).partition(" (at ")[0],)) from error
    packages = data.get("package", [])
    if not isinstance(packages, list) or not all(isinstance(item, dict) for item in packages):
        raise UsageError(
            f"{source.file} is not a lock of uv or poetry", because=("`package` is not an array of tables",)
        )
    # A lock is long: places are found by its headings, not by reading it a second time.
    heads = [match.start() for match in _PACKAGE.finditer(source.text)]
    requirements = []
    versions: dict[str, int] = {}
    for item in packages:
        versions[str(item.get("name"))] = versions.get(str(item.get("name")), 0) + 1
    for number, item in enumerate(packages):
        name, version = item.get("name"), item.get("version")
        version = clean_version(version) if isinstance(version, str) else None
        if not isinstance(name, str) or version is None:
            continue
        span = _entry(source, heads[number]) if number < len(heads) else source.span(0, 0)
        origin = item.get("source") if isinstance(item.get("source"), dict) else {}
        if any(key in origin for key in ("editable", "virtual", "directory", "workspace")):
            continue
        url = origin.get("registry") or origin.get("url")
        requirements.append(
            Requirement(
                name=normalise_name(name),
                specifier=f"=={version}",
                version=version,
                # Of several versions, markers that were resolved away say which one a machine gets.
                applies=True if versions[name] == 1 and not item.get("markers") and not item.get("optional") else None,
                index=url if isinstance(url, str) else None,
                is_hashed=True,
                is_literal=False,
                is_locked=True,
                text=f"{name}=={version}",
                span=span,
                name_span=span,
                specifier_span=span,
            )
        )
    python = data.get("requires-python")
    metadata = data.get("metadata")
    if python is None and isinstance(metadata, dict):
        python = poetry_specifier(str(metadata.get("python-versions", ""))) or ""
    return Project(
        name="lock",
        requirements=tuple(requirements),
        python=_pinned(str(python or "")),
        pythons=_specifier(python),
        has_default_index=False,
    )


def _entry(source: Source, head: int) -> Span:
    """Return the version line of an entry, its name where there is none."""
    text = source.text
    position = head
    for _ in range(6):
        end = text.find("\n", position)
        if end < 0:
            break
        line = text[position:end].rstrip("\r")
        if line.startswith("version"):
            return source.span(position, position + len(line))
        position = end + 1
    return source.span(head, head + len("[[package]]"))
