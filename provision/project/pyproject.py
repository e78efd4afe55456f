"""A ``pyproject.toml``: its dependencies, those of the extras and groups that were chosen, and their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.audit.project import table_of
from provision.errors import IncompatibleError, UsageError, without_secrets
from provision.project.choices import no_such, others
from provision.project.conda import take_pixi
from provision.project.listing import SHOWN
from provision.project.pythons import PYTHON_MINORS
from provision.resolve.request import FRAMEWORKS
from provision.resolve.requirements import normalise_name

if TYPE_CHECKING:
    from provision.audit.model import Index, Requirement
    from provision.audit.project import Project
    from provision.project.files import Files
    from provision.project.folder import Folder

_CHOICE = ": a release is chosen as for every other line"
_UV_LEFT_OUT = {
    "build-constraint-dependencies": ": the facts bound what builds from source",
    "dependency-metadata": ": what a package needs is asked of the index",
    "exclude-newer": "; `--exclude-newer DAY` is its flag here",
    "exclude-newer-package": "; `--exclude-newer DAY` is a flag for all of them",
    "extra-build-dependencies": ": what a package itself names builds it",
    "index-strategy": ": the first index that has a name is the one it comes from",
    "no-binary": _CHOICE,
    "no-binary-package": _CHOICE,
    "no-build": _CHOICE,
    "no-build-package": _CHOICE,
    "prerelease": ": a pre-release is taken only where a line names one",
    "resolution": ": the newest release that fits is taken",
}


def take_pyproject(folder: Folder) -> bool:
    """Take what a ``pyproject.toml`` asks for, and tell whether it says so."""
    path = folder.file("pyproject.toml")
    if path is None:
        return False
    before = len(folder.found.lines)
    manifest = _Manifest(folder, path)
    has_own = manifest.read()
    if not has_own and manifest.project.get("dependencies") == []:
        folder.taken.append(path.name)
        folder.empty.append(f"{path} asks for no package{others(manifest.extras())}")
    if not has_own and len(folder.found.lines) == before:
        return False
    folder.tell(path, len(folder.found.lines) - before)
    return True


class _Manifest:
    """A ``pyproject.toml``: its dependencies, those of the extras and groups that were chosen, and their sources."""

    def __init__(self, folder: Folder, path: Path) -> None:
        from provision.audit.places import read_toml
        from provision.audit.project import read_groups

        self.folder = folder
        self.found = folder.found
        self.path = path
        self.source = folder.files.take(path)
        self.placed = read_toml(self.source)
        self.data: dict[str, Any] = self.placed.data
        self.sets: dict[str, Project] = {}
        for group in read_groups(self.source):
            # Where a project has tables of poetry's too, its own come first and count.
            self.sets.setdefault(_set_name(group.name), group)
        self.project = table_of(self.data, "project")
        tool = table_of(self.data, "tool")
        self.poetry = table_of(tool, "poetry")
        self.uv = table_of(tool, "uv")
        self.done: set[str] = set()
        self.added = 0

    def read(self) -> bool:
        """Read it, and tell whether it says what the project needs."""
        self._check_choices()
        self._take("dependencies")
        self._take_dynamic()
        for name in self.folder.extras:
            self._take_extra(name)
        for name in self.folder.groups:
            self._take_group(name, ())
        if table_of(table_of(self.data, "tool"), "pixi"):
            take_pixi(self.folder, self.path, ("tool", "pixi"))
        for key, text in self._pythons():
            self.found.pythons.append((text, f"`{key} = {text}` in {self.path}"))
        if self.added:
            self._take_indexes()
        if self.added and not self.folder.is_member:
            self._take_settings()
        return self.added > 0

    def _take_settings(self) -> None:
        """Take what ``[tool.uv]`` says of the whole resolution, and tell what of it is left out."""
        for key, target in (
            ("constraint-dependencies", self.found.constraints),
            ("override-dependencies", self.found.overrides),
        ):
            for text, where in self._listed(key):
                self.found.add(text, where, to=target)
        for text, where in self._listed("exclude-dependencies"):
            if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", text):
                raise UsageError(f"{where}: `{text[:SHOWN]}` is not a package name", hints=("leave the rest out",))
            if normalise_name(text) in FRAMEWORKS:
                self.found.warnings.append(f"{where}: {text} is excluded, and yet installed where the stack has it")
            self.found.excludes.append(normalise_name(text))
        if environments := list(self._listed("environments")):
            self._take_environments(environments)
        for key, why in _UV_LEFT_OUT.items():
            if key in self.uv:
                self.found.warnings.append(f"{self.path}: `{key}` of [tool.uv] is left out{why}")

    def _listed(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield the texts of a list of ``[tool.uv]``, each with its place.

        Raises:
            UsageError: It is not a list of texts.
        """
        value = self.uv.get(key, [])
        items = [value] if isinstance(value, str) else value
        for number, item in enumerate(items if isinstance(items, list) else [None]):
            if not isinstance(item, str):
                raise UsageError(f"{self.path}: `{key}` of [tool.uv] is not a list of texts", hints=("correct it",))
            path = ("tool", "uv", key, number) if isinstance(value, list) else ("tool", "uv", key)
            yield item, self.found.where(self.placed.span(*path), self.folder.files)

    def _take_environments(self, environments: list[tuple[str, str]]) -> None:
        """Take the Pythons of the environments that the project is locked for.

        Raises:
            UsageError: One is not a marker.
            IncompatibleError: None is of the platform.
        """
        from provision.audit.markers import holds

        platform = self.found.platform
        minors: set[int] = set()
        for text, where in environments:
            answers = [holds(text, f"3.{minor}", (platform,)) for minor in range(PYTHON_MINORS)]
            if None in answers:
                raise UsageError(
                    f"{where}: `{text[:SHOWN]}` is not a marker of an environment",
                    hints=("write it as in `sys_platform == 'linux'`",),
                )
            minors.update(minor for minor, answer in enumerate(answers) if answer)
        said = f"`environments` of [tool.uv] in {environments[0][1]}"
        if not minors:
            raise IncompatibleError(
                f"{said} leave {platform} out",
                because=("the project is locked for " + ", ".join(f"`{text}`" for text, _ in environments),),
                hints=("add `sys_platform == 'linux'` to them", "or ask for another `--platform`"),
            )
        clauses = [f">=3.{min(minors)}"] if min(minors) else []
        clauses += [f"<3.{max(minors) + 1}"] if max(minors) + 1 < PYTHON_MINORS else []
        clauses += [f"!=3.{minor}.*" for minor in range(min(minors), max(minors)) if minor not in minors]
        if clauses:
            self.found.pythons.append((",".join(clauses), said))

    def _pythons(self) -> Iterator[tuple[str, str]]:
        from provision.audit.project import poetry_specifier

        text = self.project.get("requires-python")
        if isinstance(text, str):
            yield "requires-python", text
            return
        text = table_of(self.poetry, "dependencies").get("python")
        if isinstance(text, str) and (specifier := poetry_specifier(text)):
            yield "python", specifier

    def extras(self) -> dict[str, list[str]]:
        """Return the extras by name, with the names that an extra of poetry's chooses."""
        found: dict[str, list[str]] = {
            normalise_name(name): [] for name in table_of(self.project, "optional-dependencies")
        }
        for name, items in table_of(self.poetry, "extras").items():
            found[normalise_name(name)] = (
                [normalise_name(str(item)) for item in items] if isinstance(items, list) else []
            )
        tool = table_of(self.data, "tool")
        dynamic = table_of(table_of(table_of(tool, "setuptools"), "dynamic"), "optional-dependencies")
        listed = table_of(_hatch_lists(tool), "optional-dependencies")
        return {normalise_name(name): [] for name in (*dynamic, *listed)} | found

    def _groups(self) -> set[str]:
        found = {name.removeprefix("group ") for name in self.sets if name.startswith("group ")}
        return found | {normalise_name(name) for name in table_of(self.data, "dependency-groups")}

    def _check_choices(self) -> None:
        extras, groups = self.extras(), self._groups()
        has_setup = "optional-dependencies" in self.project.get("dynamic", ()) or not (self.project or self.poetry)
        for name in self.folder.extras:
            if name not in extras and not has_setup:
                raise no_such("--extra", name, self.path, extras)
        for name in self.folder.groups:
            if name not in groups:
                raise no_such("--group", name, self.path, groups)

    def _take(self, name: str, chosen: Sequence[str] | None = None) -> None:
        """Take a set; of poetry's optional ones those that were chosen."""
        key = f"{name} {chosen}"
        if key in self.done or name not in self.sets:
            return
        self.done.add(key)
        group = self.sets[name]
        if not name.startswith("group "):
            self.folder.refuse_left(group.left, self.path)
        optional = {
            normalise_name(item)
            for item, value in table_of(self.poetry, "dependencies").items()
            if isinstance(value, dict) and value.get("optional") is True
        }
        own = normalise_name(str(self.project.get("name") or self.poetry.get("name") or ""))
        for requirement in group.requirements:
            if name == "dependencies" and (requirement.name in optional) != (chosen is not None):
                continue
            if chosen is not None and requirement.name not in chosen:
                continue
            if requirement.name == own:
                # An extra may stand for others of the same project.
                for extra in requirement.extras:
                    self._take_extra(extra)
                continue
            self._take_requirement(requirement, group)

    def _take_extra(self, name: str) -> None:
        extras = self.extras()
        if name not in extras and (self.project or self.poetry):
            raise no_such("--extra", name, self.path, extras)
        self._take(f"extra {name}")
        if extras.get(name):
            self._take("dependencies", tuple(extras[name]))

    def _take_group(self, name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise UsageError(f"{self.path}: the groups lead in a circle", because=(" → ".join((*chain, name)),))
        self._take(f"group {name}")
        groups = {normalise_name(key): value for key, value in table_of(self.data, "dependency-groups").items()}
        items = groups.get(name)
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and isinstance(item.get("include-group"), str):
                self._take_group(normalise_name(item["include-group"]), (*chain, name))

    def _take_requirement(self, requirement: Requirement, group: Project) -> None:
        """Take one, from where ``[tool.uv.sources]`` says."""
        self.added += 1
        where = self.found.where(requirement.span, self.folder.files)
        if self.folder.take_member(requirement):
            return
        source = self._source_of(requirement.name)
        bound = requirement.index if source is None else source.get("index")
        if bound:
            self._take_bound(str(bound), group, requirement.name, where)
        if source is None:
            self.found.add(requirement.text, where)
            return
        if source.get("workspace") is True or isinstance(source.get("path"), str):
            if self._take_local(requirement.name, source, requirement.extras):
                return
            if (path := self.path.parent / str(source.get("path"))).is_file():
                extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
                self.found.add(f"{requirement.name}{extras} @ {path.resolve().as_uri()}", where)
                return
            raise UsageError(
                f"{where}: `{requirement.name}` comes from a path that is neither folder nor file here",
                hints=("leave it out of the dependencies, or name a release, a repository or a wheel by address",),
            )
        text = requirement.text
        address = _uv_address(source)
        if address:
            extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            text = f"{requirement.name}{extras} @ {address}{marker}"
        self.found.add(text, where)

    def _take_bound(self, bound: str, group: Project, package: str, where: str) -> None:
        """Take the index that a requirement is bound to by its name or address, for that one alone.

        Raises:
            UsageError: The project has no such index.
        """
        for index in group.indexes:
            if bound in (index.name, index.url):
                place = self.found.where(index.span, self.folder.files) or where
                self.found.add_index(index, place, package=package)
                return
        if bound.lower() != "pypi":
            raise UsageError(
                f"{where}: `{package}` comes from an index called `{without_secrets(bound)[:SHOWN]}`, "
                f"and {self.path} has none",
                hints=("add the index with its name and its address, or name another one",),
            )

    def _source_of(self, name: str) -> dict[str, Any] | None:
        from provision.audit.markers import holds

        sources = {normalise_name(key): value for key, value in table_of(self.uv, "sources").items()}
        entries = sources.get(name)
        for item in entries if isinstance(entries, list) else [entries]:
            if not isinstance(item, dict):
                continue
            marker = str(item.get("marker", ""))
            if marker and holds(marker, None, (self.found.platform,)) is False:
                continue
            extra, group = item.get("extra"), item.get("group")
            if extra is not None and normalise_name(str(extra)) not in self.folder.extras:
                continue
            if group is not None and normalise_name(str(group)) not in self.folder.groups:
                continue
            return item
        return None

    def _take_local(self, name: str, source: Mapping[str, Any], extras: Sequence[str]) -> bool:
        if isinstance(source.get("path"), str):
            return self.found.take_folder(self.path.parent / source["path"], extras, name)
        members = table_of(self.uv, "workspace").get("members")
        for pattern in members if isinstance(members, list) else []:
            if not isinstance(pattern, str) or pattern.startswith(("/", "..")):
                continue
            for folder in sorted(self.path.parent.glob(pattern)):
                if normalise_name(_project_name(folder / "pyproject.toml", self.folder.files)) == name:
                    return self.found.take_folder(folder, extras, name)
        return False

    def _take_dynamic(self) -> None:
        """Take lists that setuptools or hatch reads from requirements files."""
        tool = table_of(self.data, "tool")
        dynamic = table_of(table_of(tool, "setuptools"), "dynamic")
        hook = _hatch_lists(tool)
        optional = table_of(dynamic, "optional-dependencies")
        chosen = [optional[name] for name in optional if normalise_name(name) in self.folder.extras]
        for row in (table_of(dynamic, "dependencies"), *chosen):
            names = row.get("file") if isinstance(row, dict) else None
            self._take_files(names if isinstance(names, list) else [names])
        files = hook.get("files")
        self._take_files(files if isinstance(files, list) else [hook.get("filename")])
        for name, names in table_of(hook, "optional-dependencies").items():
            if normalise_name(name) in self.folder.extras:
                self._take_files(names if isinstance(names, list) else [names])

    def _take_files(self, names: Iterable[object]) -> None:
        for name in names:
            if isinstance(name, str):
                before = len(self.found.lines)
                self.folder.take_list(self.path.parent / name, self.path)
                self.added += len(self.found.lines) - before

    def _take_indexes(self) -> None:
        """Take the indexes that every package may come from."""
        group = next(iter(self.sets.values()), None)
        for index in group.indexes if group is not None else ():
            if index.kind == "backend":
                self._take_backend(index)
            elif not index.is_explicit:
                where = self.found.where(index.span, self.folder.files)
                self.found.add_index(index, where, is_default=index.kind == "index")

    def _take_backend(self, index: Index) -> None:
        from provision.audit.wanted import cuda_of

        cuda = cuda_of(index.url)
        if cuda is not None:
            self.found.cuda.append((cuda, f"`torch-backend = {index.url}` in {self.path}"))


def _set_name(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return f"{kind} {normalise_name(rest)}" if rest else kind


def _hatch_lists(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the plugin of hatch that reads requirements files is told."""
    return table_of(table_of(table_of(table_of(tool, "hatch"), "metadata"), "hooks"), "requirements_txt")


def _uv_address(source: Mapping[str, Any]) -> str:
    from provision.audit.project import address_of

    return address_of({key: value for key, value in source.items() if key != "path"})


def _project_name(path: Path, files: Files) -> str:
    from provision.audit.places import read_toml

    if not path.is_file():
        return ""
    return str(table_of(read_toml(files.take(path)).data, "project").get("name", ""))
