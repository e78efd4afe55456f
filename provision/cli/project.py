"""What requirements files and whole projects ask for, read without running anything.

The readers are those of ``provision check``. Here is what a request makes of what they found: each line is one that a
request can hold, or is refused with its file, its line and the way out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from provision.cli.files import read_text
from provision.cli.pins import LOCKS, Pin, read_pins
from provision.errors import IncompatibleError, UnknownError, UsageError, without_secrets
from provision.index.account import Accounts
from provision.matrix.load import Matrix
from provision.records import NOTHING, record
from provision.resolve.environment import MACHINES
from provision.resolve.named import FrameworkLine
from provision.resolve.request import FIND_LINKS, FRAMEWORKS, PLATFORMS
from provision.resolve.requirements import LOCAL, SECRETS_HINT, is_local_name, normalise_name, parse_line

if TYPE_CHECKING:
    from provision.audit.conda import CondaFile
    from provision.audit.model import Index, Requirement, Source, Span, Variable
    from provision.audit.project import Project
    from provision.audit.requirements_file import Left, Listing
    from provision.audit.setup_script import Needs

__all__ = ["PROJECT_FILES", "Inputs", "python_bound", "read_inputs"]

_BYTES_MAX = 1024 * 1024
_FILES_MAX = 64
_LENGTH_MAX = 2000  # addresses of wheels are long
_SHOWN = 100
_TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
_PYTHON_MINORS = 40
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
_CONDA_EXPORT = re.compile(r"[A-Za-z0-9_.-]+=[^=\s]+=[^=\s]+")
PROJECT_FILES = ("pyproject.toml", "pixi.toml", "environment.yml", "setup.cfg", "setup.py", "Pipfile")
"""Files that make a project of a folder, beside lists of requirements."""
_ENVIRONMENTS = ("environment*.y*ml", "conda*.y*ml", "env*/*.y*ml", "conda*/*.y*ml")
_FOR_LESS = frozenset(("cpu", "mac", "macos", "osx", "win", "windows", "doc", "docs", "test", "tests", "dev"))
"""Words in the name of an environment that is not the one for a GPU."""
_FOR_A_GPU = frozenset(("gpu", "cuda"))
_CONDA_WAYS_OUT = (
    "write `conda env export --from-history > environment.yml` in the environment, and give that file to `-r`",
    "or give `-r` what `pip list --format=freeze` prints",
)
_ARCHIVE = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?P<extras>\[[^\]]*\])?\s+@\s+)?"
    r"(?P<place>(?:file:|(?![a-z+]+://))[^\s;#]+?\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz))"
    r"(?P<behind>\[[^\]]*\])?(?:#[^\s;]*)?(?P<marker>\s+;.*)?"
)
"""A wheel or archive by its path, with what may stand around it."""
_INSTALLABLE = ("pyproject.toml", "setup.py", "setup.cfg")
_KINDS = {
    "pyproject.toml": "a project of Python",
    "pixi.toml": "a manifest of pixi",
    "setup.py": "a setup script",
    "setup.cfg": "the settings of a project of Python",
    "Pipfile": "a manifest of pipenv",
} | dict.fromkeys(LOCKS, "a lock")


@record
class Inputs:
    """What files ask for.

    Attributes:
        lines: Requirements, each with its place.
        constraints: Bounds on what is there.
        overrides: Requirements that stand for whatever else is asked of the packages they name.
        excludes: Packages that nothing brings.
        indexes: Further package indexes, the one that is asked first at the front; pages of links after
            ``find-links:``.
        sources: Packages that come from one index alone, as a request has them.
        cuda: CUDA that an index of PyTorch's, or a package of conda, names.
        is_cpu: An index of PyTorch's without CUDA is named.
        python: The Pythons that will do, as ``--python`` takes them.
        code: The folder of the project.
        empty: That it asks for nothing, a sentence.
        pins: Versions that a lock of the project holds: wishes, kept where they fit.
        files: Name → path of wheels and archives of this machine that lines name.
        folders: Folders of this machine with more of them.
        projects: Folders of this machine whose own code is meant too, the project's first.
        read: What was read, a sentence each.
        warnings: What was left out, a sentence each.
        places: Where ``cuda``, ``cpu`` and ``python`` stand.
    """

    lines: tuple[FrameworkLine, ...] = ()
    constraints: tuple[FrameworkLine, ...] = ()
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    cuda: str | None = None
    is_cpu: bool = False
    python: str | None = None
    code: Path | None = None
    empty: str | None = None
    pins: tuple[Pin, ...] = ()
    files: Mapping[str, Path] = NOTHING
    folders: tuple[Path, ...] = ()
    projects: tuple[Path, ...] = ()
    read: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: Mapping[str, str] = NOTHING


def read_inputs(
    files: Sequence[Path],
    project: Path | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    *,
    matrix: Matrix | None = None,
    platform: str | None = None,
    accounts: Accounts | None = None,
) -> Inputs:
    """Read requirements files and a project.

    Args:
        files: Requirements files; ``-`` is the standard input.
        project: Folder of a project.
        extras: Names of its optional dependencies, and
        groups: of its dependency groups, to take too.
        matrix: The facts; the shipped ones, unless given.
        platform: What the image is for, where sources differ by it; linux/amd64, unless given.
        accounts: Where users and passwords go that stand in addresses.

    Raises:
        UsageError: A file is missing or malformed, or asks for what a request cannot hold.
        UnknownError: It asks for builds that the facts do not cover.
        IncompatibleError: Two places ask for different CUDA.
    """
    found = _Collector(matrix or Matrix(), platform or PLATFORMS[0], accounts or Accounts())
    for path in files:
        _read_file(found, path)
    if project is not None:
        _Folder(found, project, extras, groups).read()
    elif extras or groups:
        flag = "--extra" if extras else "--group"
        raise UsageError(f"{flag} chooses a part of a project", hints=("name its folder with `--project DIR`",))
    return found.result(project)


def python_bound(text: str) -> str | None:
    """Return which Python minors a specifier admits, as ``--python`` takes it; ``None`` for any.

    An image is built for a minor, on its newest patch, so bounds on patches count by their minor.
    """
    clauses = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(
            r"(===|~=|==|!=|<=|>=|<|>|=)?v?([0-9]+)(?:\.([0-9]+|\*))?(?:\.([0-9]+|\*))?[A-Za-z0-9.+*]*", part
        )
        if match is None:
            continue
        operator, major, minor, patch = match[1] or "==", match[2], match[3], match[4]
        if minor in (None, "*"):
            bound = {">": f">={int(major) + 1}", "<=": f"<{int(major) + 1}"}.get(operator, f"{operator}{major}")
            clauses.append(f"=={major}.*" if operator in ("==", "===", "=", "~=") else bound)
        elif operator in ("==", "===", "="):
            clauses.append(f"=={major}.{minor}.*")
        elif operator == "~=":
            clauses += [f"=={major}.{minor}.*"] if patch else [f">={major}.{minor}", f"<{int(major) + 1}"]
        elif operator == "!=":
            clauses += [] if patch and patch != "*" else [f"!={major}.{minor}.*"]
        elif operator == "<" and patch and patch.strip("0*"):
            clauses.append(f"<={major}.{minor}")
        elif operator == ">":
            clauses.append(f">={major}.{minor}" if patch else f">={major}.{int(minor) + 1}")
        else:
            clauses.append(f"{operator}{major}.{minor}")
    if len(clauses) == 1 and (pin := re.fullmatch(r"==([0-9]+\.[0-9]+)\.\*", clauses[0])):
        return pin[1]
    return ",".join(dict.fromkeys(clauses)) or None


class _Files:
    """Reads files for the parsers, each once, and not without end."""

    def __init__(self, flag: str) -> None:
        self.flag = flag
        self.sources: dict[str, Source] = {}

    def __call__(self, name: str) -> Source | None:
        return self.take(Path(name)) if Path(name).is_file() else None

    def take(self, path: Path, bytes_max: int = _BYTES_MAX) -> Source:
        from provision.audit.model import Source

        if str(path) not in self.sources:
            if len(self.sources) >= _FILES_MAX:
                raise UsageError(f"{self.flag}: more than {_FILES_MAX} files are named, one by the other")
            self.sources[str(path)] = Source(str(path), read_text(path, self.flag, bytes_max=bytes_max))
        return self.sources[str(path)]


class _Collector:
    """What was found so far."""

    def __init__(self, matrix: Matrix, platform: str, accounts: Accounts) -> None:
        self.matrix = matrix
        self.accounts = accounts
        self.platform = platform
        self.lines: list[FrameworkLine] = []
        self.constraints: list[FrameworkLine] = []
        self.overrides: list[FrameworkLine] = []
        self.excludes: list[str] = []
        self.indexes: list[str] = []
        self.sources: dict[str, str] = {}
        self.defaults: list[str] = []
        self.cuda: list[tuple[str, str]] = []
        self.cpu: list[str] = []
        self.pythons: list[tuple[str, str]] = []
        self.pins: tuple[Pin, ...] = ()
        self.folders: set[Path] = set()
        self.files: dict[str, tuple[Path, str]] = {}
        self.pages: dict[Path, None] = {}
        self.projects: list[Path] = []
        self.empty: str | None = None
        self.read: list[str] = []
        self.warnings: list[str] = []

    def result(self, project: Path | None) -> Inputs:
        """Return all of it as one record."""
        places = {}
        self._override()
        self._check_variants()
        if self.cuda:
            places["cuda"] = self.cuda[0][1]
        if self.cpu:
            places["cpu"] = self.cpu[0]
        python = self._join_pythons(places)
        return Inputs(
            lines=tuple(self.lines),
            constraints=tuple(self.constraints),
            overrides=tuple(line.requirement.text for line in self.overrides),
            excludes=tuple(self.excludes),
            # The one in place of PyPI stands where PyPI would: behind those that are asked beside it.
            indexes=tuple(dict.fromkeys([*self.indexes, *self.defaults])),
            sources=tuple(f"{name} @ {source}" for name, source in self.sources.items()),
            cuda=self.cuda[0][0] if self.cuda else None,
            is_cpu=bool(self.cpu),
            python=python,
            code=project,
            empty=self.empty,
            pins=self.pins,
            files={name: path for name, (path, _) in self.files.items()},
            folders=tuple(self.pages),
            projects=tuple(folder for folder in self.projects if _is_built(folder)),
            read=tuple(self.read),
            warnings=tuple(dict.fromkeys(self.warnings)),
            places=places,
        )

    def _override(self) -> None:
        """Put overrides in the place of the lines that they stand for, and take out what is excluded."""
        overrides: dict[str, list[FrameworkLine]] = {}
        for line in self.overrides:
            overrides.setdefault(line.requirement.name, []).append(line)
        lines: dict[FrameworkLine, None] = {}
        for line in self.lines:
            if line.requirement.name not in self.excludes:
                lines |= dict.fromkeys(overrides.get(line.requirement.name, [line]))
        self.lines = list(lines)
        # The facts hold what they decide to them too.
        self.constraints += [line for line in self.overrides if " @ " not in line.requirement.text]

    def _check_variants(self) -> None:
        """Refuse two places that ask for different CUDA, or for one and for none.

        Raises:
            IncompatibleError: There are two.
        """
        from provision.audit.wanted import cuda_of

        asked = list(self.cuda)
        if asked:
            for line in self.lines:
                local = re.search(r"==[^,]*\+([a-z0-9]+)", line.requirement.specifier)
                cuda = cuda_of(local[1]) if local and line.requirement.name in _TORCH_FAMILY else None
                if cuda is not None and ";" not in line.requirement.text:
                    asked.append((cuda, f"`{line.requirement.text}` in {line.where}"))
        for cuda, said in asked[:1]:
            for other in self.cpu[:1]:
                raise IncompatibleError(
                    f"{said} and {other} cannot be met together",
                    because=(f"the one asks for CUDA {cuda}, the other for builds without CUDA",),
                    hints=("change one of the two, or leave it out",),
                    details={"conflict": [said.replace("`", ""), other.replace("`", "")]},
                )
        first, said = asked[0] if asked else ("", "")
        for cuda, other in asked[1:]:
            if not _is_same_cuda(first, cuda):
                raise IncompatibleError(
                    f"{said} and {other} cannot be met together",
                    because=(f"the one asks for CUDA {first}, the other for CUDA {cuda}",),
                    hints=("change one of the two, or leave it out",),
                    details={"conflict": [said.replace("`", ""), other.replace("`", "")]},
                )

    def _join_pythons(self, places: dict[str, str]) -> str | None:
        """Return the bounds on Python as one; a pin that the others admit stands for them."""
        bounds = [(bound, said) for text, said in self.pythons if (bound := python_bound(text)) is not None]
        if not bounds:
            return None
        for index, (left, said) in enumerate(bounds):
            for right, other in bounds[index + 1 :]:
                if not _pythons_of(left) & _pythons_of(right):
                    raise IncompatibleError(
                        f"{said} and {other} cannot be met together",
                        because=("no Python is both",),
                        hints=("change one of the two, or leave it out",),
                    )
        pin = next(((bound, said) for bound, said in bounds if bound[0].isdigit()), None)
        if pin is not None:
            places["python"] = pin[1]
            return pin[0]
        places["python"] = " and ".join(dict.fromkeys(said for _, said in bounds))
        return ",".join(dict.fromkeys(clause for bound, _ in bounds for clause in bound.split(",")))

    def add(self, text: str, where: str, *, to: list[FrameworkLine] | None = None) -> None:
        """Take a requirement; ``to`` is where it goes, to those that are installed unless given."""
        text = self.accounts.take(" ".join(text.split()), where)
        if len(text) > _LENGTH_MAX:
            raise UsageError(
                f"{where}: the requirement is {len(text)} characters long",
                because=(f"more than {_LENGTH_MAX} are not taken",),
            )
        text = self._take_archive(text, where)
        name, _, address = text.partition(" @ ")
        if LOCAL not in address and address.startswith(("file:", ".", "/")) and to is None:
            extras = re.search(r"\[.*\]", name)
            if self._take_path(f"{address}{extras[0] if extras else ''}", where):
                return
        text = self._real(self._named(text, where), where)
        line = FrameworkLine(where=where, requirement=parse_line(text, where))
        (self.lines if to is None else to).append(line)

    def take_folder(self, folder: Path, extras: Sequence[str], said: str) -> bool:
        """Take what a project on this machine needs, if there is one in a folder; ``said`` is what asks for it."""
        try:
            place = folder.resolve()
            if not place.is_dir():
                return False
        except OSError:
            return False
        if place not in self.folders:
            _Folder(self, folder, extras, (), is_member=True).read()
            way_out = f"only `--install-project` or `--copy {folder}` puts its code into the image"
            self.warnings.append(f"{said}: what {folder} needs is installed; {way_out}")
        return True

    def _take_archive(self, text: str, where: str) -> str:
        """Return a requirement of a wheel or archive of this machine as one of its copy, fixed by hash.

        Raises:
            UsageError: Its name does not say what it holds, or is that of another file.
            IncompatibleError: It is a wheel for another platform.
        """
        match = _ARCHIVE.fullmatch(text)
        path = _place_of(match["place"], where, Path.is_file) if match is not None else None
        if match is None or path is None:
            return text
        if not is_local_name(path.name):
            raise UsageError(
                f"{where}: {path.name!r} has a name that cannot be copied as it is",
                hints=("rename it: letters, digits and `.`, `_`, `+`, `!`, `-` are taken",),
            )
        import hashlib

        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if self.files.setdefault(path.name, (path, sha256))[1] != sha256:
            raise UsageError(
                f"{where}: {path} and {self.files[path.name][0]} have one name and are two files",
                hints=("leave one of the two out",),
            )
        name = match["name"] or self._name_of(path, where)
        if path.suffix == ".whl":
            self._check_wheel(path, where)
        extras, marker = match["extras"] or match["behind"] or "", match["marker"] or ""
        return f"{name}{extras} @ {LOCAL}{path.name}#sha256={sha256}{marker}"

    def _name_of(self, path: Path, where: str) -> str:
        from packaging.utils import (
            InvalidSdistFilename,
            InvalidWheelFilename,
            parse_sdist_filename,
            parse_wheel_filename,
        )

        try:
            return str((parse_wheel_filename if path.suffix == ".whl" else parse_sdist_filename)(path.name)[0])
        except (InvalidSdistFilename, InvalidWheelFilename) as error:
            raise UsageError(
                f"{where}: the name of {path} does not say what it holds",
                hints=(f"say it before the path: `NAME @ ./{path.name}`",),
            ) from error

    def _check_wheel(self, path: Path, where: str) -> None:
        """Refuse a wheel for another platform, and hold the Python to those that it is for."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        try:
            tags = parse_wheel_filename(path.name)[3]
        except InvalidWheelFilename as error:
            raise UsageError(
                f"{where}: {path.name} is no name of a wheel", hints=("give it its own name back",)
            ) from error
        machine = MACHINES[self.platform]
        fitting = [tag for tag in tags if tag.platform == "any" or re.fullmatch(rf".*linux.*_{machine}", tag.platform)]
        if not fitting:
            platforms = ", ".join(sorted({tag.platform for tag in tags}))
            raise IncompatibleError(
                f"{where}: {path.name} is a wheel for {platforms}, and the image is for {self.platform}",
                hints=("name a wheel for Linux on that machine, its source, or a release",),
            )
        found = {re.fullmatch(r"(?:cp|py)3([0-9]+)", tag.interpreter) for tag in fitting}
        if None in found or any(tag.abi == "none" for tag in fitting):
            return
        minors = sorted({int(match[1]) for match in found if match is not None})
        if any(tag.abi == "abi3" for tag in fitting):
            bound = f">=3.{minors[0]}"
        else:
            bound = f">=3.{minors[0]},<3.{minors[-1] + 1}" if minors[1:] else f"==3.{minors[0]}"
        self.pythons.append((bound, f"{path.name} in {where}"))

    def _take_path(self, written: str, where: str) -> bool:
        """Take what a project on this machine needs, where a requirement names its folder."""
        address, _, rest = written.partition("[")
        folder = _folder_of(address.partition(" ;")[0].partition("#")[0].strip(), where)
        extras = [name.strip() for name in rest.partition("]")[0].split(",") if name.strip()]
        if folder is None or not any((folder / name).is_file() for name in _INSTALLABLE):
            return False
        return self.take_folder(folder, extras, where)

    def _named(self, text: str, where: str) -> str:
        """Return a requirement whose address says what it holds by name, and by version for PyTorch's own wheels."""
        from provision.audit.requirement import parse_requirement
        from provision.audit.shell import Text
        from provision.audit.wanted import is_pytorch_index

        if "://" not in text:
            return text
        # Behind a bare address pip takes a marker that touches it too.
        parts = re.split(" ;" if " @ " in text else " ;|; ", text, maxsplit=1)
        address, marker = (part.strip() for part in (*parts, "")[:2])
        behind = f" ; {marker}" if marker else ""
        found = parse_requirement(Text(address, [-1] * len(address)), "")
        if found is None or found.url is None:
            return text
        if found.version and found.name in _TORCH_FAMILY and is_pytorch_index(self.matrix, found.url):
            self.warnings.append(f"{where}: the wheel of {found.name} is taken as `{found.name}=={found.version}`")
            return f"{found.name}=={found.version}{behind}"
        if " @ " in address:
            return text
        if address.partition("#")[0].endswith(".whl"):
            return f"{found.name} @ {address}{behind}"
        if (egg := re.search(r"([#&])egg=([A-Za-z0-9._-]+(?:\[[A-Za-z0-9._,-]+\])?)&?", address)) is not None:
            rest = address[: egg.start()] + egg[1] + address[egg.end() :]
            return f"{egg[2]} @ {rest.rstrip('#&')}{behind}"
        return text

    def _real(self, text: str, where: str) -> str:
        """Return a requirement under the name of the framework, where it has that of its placeholder on the index."""
        named = re.match(r"[A-Za-z0-9._-]+", text)
        real = self.matrix.settings("audit_rules.toml")["placeholders"].entries
        if named is None or " @ " in text or (name := normalise_name(named[0])) not in real:
            return text
        self.warnings.append(f"{where}: {name} is taken as {real[name]}, which is the framework's name on the index")
        return real[name] + text[named.end() :]

    def add_index(self, index: Index, where: str, *, is_default: bool = False, package: str | None = None) -> None:
        """Take an index, or the wish for a build of PyTorch that its address is.

        Args:
            index: It.
            where: Its place.
            is_default: It stands in the place of PyPI.
            package: The one package that it is asked for; any, unless given.

        Raises:
            UsageError: It is none that a request can hold.
            UnknownError: It has builds that the facts do not cover.
        """
        from provision.audit.wanted import CPU, cuda_of, index_variant, is_pytorch_index

        flag = {"index": "--index-url", "extra": "--extra-index-url"}.get(index.kind, "--find-links")
        url = index.url or ""
        if not url or "$" in url:
            raise UsageError(
                f"{where}: the address after `{flag}` holds a variable that is not set",
                hints=("set it, or write the address itself", f"a password: {SECRETS_HINT}"),
            )
        url = self.accounts.take(url, where)
        self.accounts.take_named(index.name, url)
        said = f"`{flag} {without_secrets(url)}` in {where}"
        page = re.sub(r"/[A-Za-z0-9_.-]+\.html$", "", url)
        if (variant := index_variant(self.matrix, page)) == CPU:
            self.cpu.append(said)
            return
        if variant is not None and (cuda := cuda_of(variant)) is not None:
            self.cuda.append((cuda, said))
            return
        if is_pytorch_index(self.matrix, url):
            root = (self.matrix.setting("frameworks/torch.toml", "wheel_index").value or "").partition("{")[0]
            if page.rstrip("/") == root.rstrip("/"):
                return
            raise UnknownError(
                f"{said}: the facts do not cover the builds of that index",
                hints=("leave the line out, so that a released build for a GPU is chosen",),
            )
        legacy = self.matrix.settings("frameworks/jax.toml").get("legacy_index")
        if legacy is not None and url == legacy.value:
            return
        if index.kind == "find-links" and ("://" not in url or url.startswith("file:")):
            folder = _folder_of(url, where)
            if folder is None:
                raise UsageError(f"{said} is no folder here", hints=("correct it, or leave the line out",))
            self.pages[folder] = None
            return
        if not url.startswith("https://") and not re.match(r"http://(localhost|127\.0\.0\.1)[:/]", url):
            raise UsageError(f"{said}: only https addresses are asked", hints=("write the address with `https://`",))
        if package is not None:
            name = f"{index.name}=" if re.fullmatch(r"[A-Za-z0-9._-]+", index.name) else ""
            flat = FIND_LINKS if index.kind == "find-links" else ""
            self.sources[package] = f"{flat}{name}{url.rstrip('/')}"
        elif index.kind == "find-links":
            self.indexes.append(f"{FIND_LINKS}{url}")
        elif is_default:
            self.defaults.append(url.rstrip("/"))
        else:
            self.indexes.append(url.rstrip("/"))

    def take_listing(self, listing: Listing, files: _Files, *, root: Path | None = None) -> None:
        """Take what a requirements file asks for.

        Args:
            listing: It.
            files: Where its files were read.
            root: Folder of the project it belongs to, which it may name itself.
        """
        for item in listing.left:
            self._judge(item, self._where(item.span, files), root)
        for is_constraint, requirements in ((False, listing.requirements), (True, listing.constraints)):
            for requirement in requirements:
                where = self._where(requirement.span, files)
                self.add(requirement.text, where, to=self.constraints if is_constraint else None)
                if not is_constraint and _is_editable(requirement, files):
                    self.warnings.append(f"{where}: {requirement.name} is installed, and not for editing")
        for index in listing.indexes:
            where = self._where(index.span, files)
            if index.url is None and index.span is not None:
                span = index.span
                raise _unset(files.sources[span.file].text[span.start : span.end], where)
            self.add_index(index, where, is_default=index.kind == "index")

    def _where(self, span: Span | None, files: _Files) -> str:
        source = files.sources.get(span.file) if span is not None else None
        if span is None or source is None:
            return span.file if span is not None else ""
        return f"{span.file}, line {source.position(span).line}"

    def _judge(self, item: Left, where: str, root: Path | None) -> None:
        """Refuse what a file says and a request cannot hold, or tell that it is left out."""
        text = without_secrets(item.text)
        shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
        if item.kind in ("path", "editable"):
            if root is not None and _is_itself(text, where, root):
                self.warnings.append(f"{where}: {shown} is the project itself, which only `--install-project` installs")
                return
            if self._take_path(re.sub(r"^(?:-e|--editable)[\s=]*", "", text).strip("'\" "), where):
                return
            bare = re.split(r"\s+--", text, maxsplit=1)[0]
            if self._take_archive(bare, where) != bare:
                self.add(bare, where)
                return
        if item.kind == "option" and not text.startswith("--no-index"):
            self.warnings.append(f"{where}: {shown} is left out: {_why_ignored(text)}")
            return
        raise _refusal(item, where, shown)


def _folder_of(address: str, where: str) -> Path | None:
    return _place_of(address, where, Path.is_dir)


def _place_of(address: str, where: str, is_meant: Callable[[Path], bool]) -> Path | None:
    """Return what an address of a requirement names, relative to its file or to where this program runs."""
    path = Path(unquote(re.sub(r"^file:(?://(?:localhost)?(?=/))?", "", address)))
    with suppress(OSError, ValueError):
        for place in (Path(where.rpartition(", line ")[0]).parent / path, path):
            if is_meant(place):
                return place
    return None


def _is_built(folder: Path) -> bool:
    """Tell whether a folder says how a wheel is made of it."""
    with suppress(OSError, UnicodeDecodeError):
        if (folder / "setup.py").is_file():
            return True
        return re.search(r"^\[build-system\]", (folder / "pyproject.toml").read_text("utf-8"), re.MULTILINE) is not None
    return False


def _is_same_cuda(left: str, right: str) -> bool:
    return left == right or left.startswith(f"{right}.") or right.startswith(f"{left}.")


def _pythons_of(bound: str) -> set[int]:
    from provision.resolve.request import python_fits

    return {minor for minor in range(_PYTHON_MINORS) if python_fits(bound, f"3.{minor}")}


def _is_editable(requirement: Requirement, files: _Files) -> bool:
    source = files.sources.get(requirement.span.file)
    return source is not None and source.position(requirement.span).text.lstrip().startswith(("-e", "--editable"))


def _is_itself(text: str, where: str, root: Path) -> bool:
    """Tell whether a path of a requirements file is the project that the file belongs to."""
    path = re.sub(r"^(?:-e|--editable)[\s=]*", "", text).strip("'\" ").partition("[")[0].removeprefix("file:")
    folder = Path(where.rpartition(", line ")[0]).parent
    try:
        return (folder / path).resolve() == root.resolve()
    except OSError:
        return False


def _why_ignored(text: str) -> str:
    if text.startswith("--pre"):
        return "a pre-release is taken only where a line names one"
    if text.startswith("--trusted-host"):
        return "addresses are asked over https alone"
    return "it chooses between the files of a release, or ways to ask for them, and the lock holds files by hash"


def _refusal(item: Left, where: str, shown: str) -> UsageError:
    flag = re.split(r"[\s=]", without_secrets(item.text), maxsplit=1)[0]
    if item.kind == "option":
        return UsageError(
            f"{where}: `--no-index` cannot be kept to: the frameworks come from their own indexes",
            hints=("leave it out; pages after `--find-links` are asked all the same",),
        )
    if item.kind == "line option":
        return UsageError(
            f"{where}: of the options of one requirement only `--hash` is taken: {shown}",
            hints=("leave the others out",),
        )
    if item.kind == "unknown option":
        return UsageError(
            f"{where}: `{flag}` is no option that is taken from a requirements file", hints=("leave the line out",)
        )
    if item.kind == "variable":
        return _unset(item.text, where)
    if item.kind in ("path", "editable"):
        return UsageError(
            f"{where}: no such wheel, archive or project is here: {shown}",
            hints=(
                "correct the path; for a project of your own write `--project DIR` in place of the line",
                "for anything else write `name==version`, or the https address of its wheel",
            ),
        )
    if item.kind == "missing":
        return UsageError(
            f"{where}: the file that it names is not there: {shown}",
            hints=("a file is looked for beside the one that names it",),
        )
    if item.kind == "cycle":
        return UsageError(
            f"{where}: the files lead in a circle",
            because=(" → ".join(item.chain),),
            hints=("leave one of these lines out",),
        )
    if item.kind == "depth":
        return UsageError(
            f"{where}: too many files lead from one to the next",
            because=(" → ".join(item.chain),),
            hints=("write their lines into one file",),
        )
    if item.kind == "address":
        return UsageError(
            f"{where}: no file is fetched from an address: {shown}",
            hints=("save the file beside this one and name it",),
        )
    if _CONDA_EXPORT.fullmatch(item.text):
        return _CondaListError(
            f"{where}: {shown} is a package of conda, as `conda list --export` prints it", hints=_CONDA_WAYS_OUT
        )
    return UsageError(
        f"{where}: {shown} is no requirement",
        hints=("write one requirement such as `name==version`, or one option of pip, a line",),
    )


class _CondaListError(UsageError):
    """A file is what ``conda list --export`` prints, and no list of requirements."""


def _unset(text: str, where: str) -> UsageError:
    """Return the refusal of a text with variables that are not set, by their names."""
    names = [name for name in re.findall(r"\$\{([A-Z0-9_]+)\}", text) if name not in os.environ]
    return UsageError(
        f"{where}: the variable `{names[0]}` is not set",
        because=("the file names it, and pip would take its text as it stands",),
        hints=(f"set it, as in `{names[0]}=… provision …`, or write its value into the file",),
    )


def _variables() -> Mapping[str, Variable]:
    """Return the variables of this process, for the ``${NAME}`` of a requirements file."""
    from provision.audit.model import Span, Variable

    nowhere = Span(file="", start=0, end=0)
    return {
        name: Variable(name=name, value=value, kind="env", span=nowhere, name_span=nowhere)
        for name, value in os.environ.items()
    }


def _read_file(found: _Collector, path: Path) -> None:
    from provision.audit.requirements_file import read_listing
    from provision.audit.shell import content_of

    _refuse_other(path)
    files = _Files("-r")
    source = files.take(path)
    if path.suffix in (".yml", ".yaml") or _is_environment(source):
        _Folder(found, path.parent, (), (), files=files).read_environment(path)
        return
    listing = read_listing(content_of(source), source, files, variables=_variables(), is_strict=False)
    found.take_listing(listing, files)


def _is_environment(source: Source) -> bool:
    return re.search(r"^dependencies:\s*(?:\[|$)", source.text, re.MULTILINE) is not None


def _refuse_other(path: Path) -> None:
    """Refuse what is no list of requirements by its name, with the flag that reads it."""
    if path.is_dir():
        raise UsageError(
            f"-r: {path} is a folder", hints=(f"`--project {path}` reads what the project in it asks for",)
        )
    kind = _KINDS.get(path.name)
    if kind is not None and path.exists():
        raise _other_kind(path, kind)


def _other_kind(path: Path, kind: str) -> UsageError:
    return UsageError(
        f"-r: {path} is {kind}, not a list of requirements",
        hints=(f"`--project {path.parent}` reads what the project in its folder asks for",),
    )


class _Folder:
    """A project, read from the one of its files that says the most."""

    def __init__(
        self,
        found: _Collector,
        folder: Path,
        extras: Sequence[str],
        groups: Sequence[str],
        *,
        is_member: bool = False,
        files: _Files | None = None,
    ) -> None:
        self.found = found
        self.folder = folder
        self.extras = tuple(dict.fromkeys(normalise_name(name) for name in extras))
        self.groups = tuple(dict.fromkeys(normalise_name(name) for name in groups))
        self.files = files or _Files("--project")
        self.taken: list[str] = []
        # Files that are not what their name promises, and environments that are a picture of one machine.
        self.unlike: list[UsageError] = []
        self.exports: list[tuple[Path, CondaFile]] = []
        self.empty: list[str] = []
        self.unread: list[str] = []
        # A part of another project, whose settings count.
        self.is_member = is_member
        found.folders.add(folder.resolve())

    def read(self) -> None:
        """Read it.

        Raises:
            UsageError: The folder holds nothing that says what the project needs.
        """
        if not self.folder.is_dir():
            hint = "name the folder of the project"
            if self.folder.is_file():
                hint = f"name its folder, as in `--project {self.folder.parent}`, or give a list to `-r`"
            raise UsageError(f"--project: {self.folder} is no folder", hints=(hint,))
        self.found.projects.append(self.folder)
        # What is installed by its path is so by what it says of itself, whatever lists lie beside that.
        readers = [self._pyproject, self._setup]
        if not self.is_member:
            lists = [self._lists, self._pipfile, self._exported]
            readers = [self._pyproject, self._pixi, self._conda, self._setup, *lists]
        if not any(reader() for reader in readers):
            if self.unlike:
                raise self.unlike[0]
            if not (self.empty or self.is_member):
                raise self._nothing()
            self.found.read += self.empty[:1]
            self.found.empty = self.empty[0] if self.empty and not self.is_member else self.found.empty
        self.found.warnings += [f"{error.message}; that file is not read" for error in self.unlike]
        self.found.warnings += [
            f"{path} lists what one machine had, to the build of each package, and is not read; `-r {path}` reads it"
            for path, _ in self.exports
            if path.name not in self.taken
        ]
        if not self.is_member:
            self._python_version()
            self._tell_ignored()

    def _path(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.is_file() else None

    def _here(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.folder.glob(pattern) if path.is_file())

    def _nothing(self) -> UsageError:
        lists = self._here("requirements*/**/*.txt") or self._here("*/*requirements*.txt")
        hints = [f"give one of its lists to `-r`, as in `-r {lists[0]}`"] if lists else []
        if self.extras or self.groups or any(self._path(name) for name in PROJECT_FILES):
            hints.append("where its files name no package, write a requirements.txt, and give that to `-r`")
        return UsageError(
            f"--project: nothing in {self.folder} says what the project needs",
            because=(
                f"looked for {', '.join(PROJECT_FILES)} and requirements.txt with packages in them",
                *self.unread,
            ),
            hints=hints or ("name the folder that holds one of these files",),
        )

    def _tell(self, path: Path, count: int) -> None:
        self.taken.append(path.name)
        if self.is_member:
            return
        chosen = [f"extra {name}" for name in self.extras] + [f"group {name}" for name in self.groups]
        behind = f" ({', '.join(chosen)})" if chosen else ""
        self.found.read.append(f"read {count} requirement{'s'[: count != 1]} from {path}{behind}")

    def _tell_ignored(self) -> None:
        names = (*PROJECT_FILES, "environment.yaml")
        others = [name for name in names if name not in self.taken and self._path(name)]
        others += [path.name for path in self._here("*requirements*.txt") if path.name not in self.taken]
        if others:
            self.found.warnings.append(f"{self.folder}: not read: {', '.join(others)}")
        locks = [path for name in LOCKS if (path := self._path(name)) is not None]
        for path in locks[: not self.found.pins]:
            try:
                pins = read_pins(path, self.found.platform, self.found.matrix)
                self.found.pins = self.found.pins or pins
                self.found.read.append(f"{path} holds {len({pin.name for pin in pins})} versions, kept where they fit")
            except UsageError as error:
                self.found.warnings.append(f"{error.message}: {''.join(error.because[:1])}; its versions do not count")
        if locks[1:]:
            spare = ", ".join(path.name for path in locks[1:])
            self.found.warnings.append(f"of several locks {locks[0]} counts, and not {spare}")

    def _add(self, requirement: Requirement) -> None:
        self.found.add(requirement.text, self.found._where(requirement.span, self.files))

    def _pyproject(self) -> bool:
        path = self._path("pyproject.toml")
        if path is None:
            return False
        before = len(self.found.lines)
        manifest = _Manifest(self, path)
        has_own = manifest.read()
        if not has_own and manifest.project.get("dependencies") == []:
            self.taken.append(path.name)
            self.empty.append(f"{path} asks for no package{_others(manifest.extras())}")
        if not has_own and len(self.found.lines) == before:
            return False
        self._tell(path, len(self.found.lines) - before)
        return True

    def _pixi(self) -> bool:
        path = self._path("pixi.toml")
        return path is not None and self._take_pixi(path)

    def _take_pixi(self, path: Path, prefix: tuple[str, ...] = ()) -> bool:
        from provision.audit.manifests import read_pixi

        before = len(self.found.lines)
        source = self.files.take(path)
        pixi = read_pixi(source, prefix)
        self._refuse_left(pixi.left, path)
        self._take_conda(pixi.packages)
        for requirement in pixi.pypi:
            if not self._is_member(requirement):
                self._add(requirement)
        if prefix:
            return len(self.found.lines) > before
        self._refuse_choices(path)
        if len(self.found.lines) > before:
            self._tell(path, len(self.found.lines) - before)
        return len(self.found.lines) > before

    def _is_member(self, requirement: Requirement) -> bool:
        """Tell whether a requirement is a folder of the project; what that needs is read in its place."""
        path = requirement.text.partition(" @ ")[2].partition(" ;")[0].strip()
        if not path or "://" in path:
            return False
        return self.found.take_folder(self.folder / path, requirement.extras, requirement.name)

    def _refuse_left(self, left: Iterable[str], path: Path) -> None:
        for text in left:
            raise UsageError(
                f"{path}: `{text[:_SHOWN]}` has no form that pip and uv know",
                hints=("write it as one range, such as `>=1.2,<3`",),
            )

    def _refuse_choices(self, path: Path) -> None:
        for flag, names in (("--extra", self.extras), ("--group", self.groups)):
            if names:
                raise UsageError(f"{flag} {names[0]}: {path} has none", hints=(f"leave `{flag}` out",))

    def _conda(self) -> bool:
        paths = self._environments()
        if not paths:
            return False
        if paths[1:]:
            others = ", ".join(str(path.relative_to(self.folder)) for path in paths[1:])
            self.found.warnings.append(
                f"of several environments {paths[0]} is read, and not {others}; `-r FILE` reads another one"
            )
        try:
            environment = self._read_conda(paths[0])
        except UsageError as error:
            self.unlike.append(error)
            return False
        if environment.is_export:
            self.exports.append((paths[0], environment))
            return False
        return self._take_environment(paths[0], environment)

    def _environments(self) -> list[Path]:
        """Return the environments of conda that the project has, the one for a GPU first."""
        choices = self.found.matrix.settings("audit_rules.toml")["conda_cuda_choices"].values
        ranked: dict[Path, tuple[bool, bool, bool, int, str]] = {}
        for pattern in _ENVIRONMENTS:
            for path in self._here(pattern):
                place = path.relative_to(self.folder)
                source = self.files.take(path)
                if path.name in LOCKS or (place.parts[1:] and not _is_environment(source)):
                    continue
                words = set(re.split(r"[^a-z0-9]+", path.stem.lower()))
                has_cuda = bool(words & _FOR_A_GPU) or any(choice in source.text for choice in choices)
                is_usual = place.stem == "environment"
                ranked[path] = (bool(words & _FOR_LESS), not has_cuda, not is_usual, len(place.parts), str(place))
        return sorted(ranked, key=lambda path: ranked[path])

    def _read_conda(self, path: Path) -> CondaFile:
        from provision.audit.conda import read_conda_file

        try:
            return read_conda_file(self.files.take(path), self.files, variables=_variables())
        except UsageError as error:
            raise UsageError(error.message, because=error.because, hints=error.hints or _CONDA_WAYS_OUT) from error

    def read_environment(self, path: Path) -> None:
        """Read an environment of conda that was named itself."""
        self._take_environment(path, self._read_conda(path))

    def _exported(self) -> bool:
        return any(self._take_environment(*export) for export in self.exports)

    def _take_environment(self, path: Path, environment: CondaFile) -> bool:
        before = len(self.found.lines)
        self._refuse_left((item.text for item in environment.left), path)
        self._take_conda(environment.packages)
        self.found.take_listing(environment.pip, self.files, root=self.folder)
        self._refuse_choices(path)
        if len(self.found.lines) > before:
            self._tell(path, len(self.found.lines) - before)
        return len(self.found.lines) > before

    def _take_conda(self, packages: Iterable[Requirement]) -> None:
        """Take packages of conda by their names on PyPI."""
        packages = list(packages)
        settings = self.found.matrix.settings("audit_rules.toml")
        names = dict(settings["conda_names"].entries)
        names |= {normalise_name(name): name for name in settings["conda_same_names"].values}
        choices = settings["conda_cuda_choices"].values
        has_torch = any(names.get(item.name) == "torch" for item in packages)
        unknown: list[str] = []
        for item in packages:
            where = self.found._where(item.span, self.files)
            said = f"`{item.text}` in {where}"
            name = names.get(item.name) or names.get(normalise_name(item.name))
            if item.name == "python":
                if item.specifier:
                    self.found.pythons.append((item.specifier, said))
            elif item.name in choices:
                self._take_cuda(item, said, has_torch=has_torch)
            elif name is None:
                unknown.append(item.name)
            elif name not in ("pip", "setuptools", "wheel"):
                self.found.add(f"{name}{item.specifier}", where)
                if name == "torch" and (cuda := re.search(r"cuda_?([0-9]+\.[0-9]+)", item.build)):
                    self.found.cuda.append((cuda[1], said))
        if unknown:
            shown = ", ".join(unknown[:20]) + (f" and {len(unknown) - 20} more" if len(unknown) > 20 else "")
            self.found.warnings.append(
                f"{self.taken or self.folder}: packages of conda that are not known on PyPI are left out: {shown}"
            )

    def _take_cuda(self, item: Requirement, said: str, *, has_torch: bool) -> None:
        version = re.search(r"==([0-9]+\.[0-9]+)", item.specifier)
        if has_torch and version is not None:
            self.found.cuda.append((version[1], said))
        elif item.specifier:
            self.found.warnings.append(f"{said} is left out: what it would serve does not come from conda here")

    def _setup(self) -> bool:
        from provision.audit.setup_script import Setup, read_setup_cfg, read_setup_py

        setups: list[tuple[Path, Setup]] = []
        if (path := self._path("setup.cfg")) is not None:
            setups.append((path, read_setup_cfg(self.files.take(path))))
        if (path := self._path("setup.py")) is not None:
            try:
                setups.append((path, read_setup_py(self.files.take(path))))
            except UsageError as error:
                # Scripts for an older Python are still lying about; what else there is may say it all.
                self.found.warnings.append(f"{error.message}, and is not read")
        known = {normalise_name(name): (path, needs) for path, setup in setups for name, needs in setup.extras.items()}
        lists = [(path, setup.needs) for path, setup in setups if setup.needs is not None]
        before = len(self.found.lines)
        for path, needs in lists[:1]:
            self.take_needs(path, needs)
        for path, setup in setups:
            if setup.python:
                self.found.pythons.append((setup.python, f"`python_requires = {setup.python}` in {path}"))
        if len(self.found.lines) == before and not any(name in known for name in self.extras):
            self.unread += [
                f"{path}, line {needs.unread}: what it asks for shows only when it runs"
                for path, needs in lists[:1]
                if needs.unread is not None
            ]
            if lists and lists[0][1].unread is None:
                self.taken.append(lists[0][0].name)
                self.empty.append(f"{lists[0][0]} asks for no package{_others(known)}")
            return False
        for name in self.extras:
            if name not in known:
                raise _no_such("--extra", name, setups[-1][0], known)
            self.take_needs(*known[name])
        if self.groups:
            raise _no_such("--group", self.groups[0], setups[-1][0], ())
        self._tell((lists or setups)[0][0], len(self.found.lines) - before)
        return True

    def take_needs(self, path: Path, needs: Needs) -> None:
        """Take a list of a setup script."""
        for text, line in needs.lines:
            where = f"{path}, line {line}" if line else str(path)
            if bare := re.sub(r"(?:^|\s)#.*$", "", text).strip():
                self.found.add(bare, where)
        for name in needs.files:
            self._take_list(path.parent / name, path)
        if needs.unread is not None:
            self.found.warnings.append(f"{path}, line {needs.unread}: what is added here shows only when it runs")

    def _take_list(self, path: Path, named_by: Path) -> None:
        from provision.audit.requirements_file import read_listing
        from provision.audit.shell import content_of

        if not path.is_file():
            raise UsageError(f"{named_by}: {path}, from which it takes its requirements, is not there")
        source = self.files.take(path)
        self.taken.append(path.name)
        listing = read_listing(content_of(source), source, self.files, variables=_variables(), is_strict=False)
        self.found.take_listing(listing, self.files, root=self.folder)

    def _lists(self) -> bool:
        paths = self._here("requirements.txt")
        others = [path for path in self._here("*requirements*.txt") if path not in paths]
        if not paths:
            if len(others) > 1:
                raise UsageError(
                    f"--project: {self.folder} has several lists of requirements and no requirements.txt",
                    because=("they are " + ", ".join(path.name for path in others),),
                    hints=tuple(f"give one to `-r`, as in `-r {path}`" for path in others[:1]),
                )
            paths = others
        if not paths:
            return False
        self._refuse_choices(paths[0])
        before = len(self.found.lines)
        try:
            self._take_list(paths[0], paths[0])
        except _CondaListError as error:
            self.unlike.append(error)
            return False
        self._tell(paths[0], len(self.found.lines) - before)
        return len(self.found.lines) > before

    def _pipfile(self) -> bool:
        path = self._path("Pipfile")
        if path is None:
            return False
        from provision.audit.manifests import read_pipfile

        project = read_pipfile(self.files.take(path))
        self._refuse_left(project.left, path)
        self._refuse_choices(path)
        before = len(self.found.lines)
        for requirement in project.requirements:
            if self._is_member(requirement):
                continue
            self._add(requirement)
            for index in project.indexes:
                if requirement.index and requirement.index in (index.name, index.url):
                    self.found.add_index(index, str(path), package=requirement.name)
        for number, index in enumerate(project.indexes):
            self.found.add_index(index, str(path), is_default=number == 0)
        if project.python:
            self.found.pythons.append((f"=={project.python}", f"`python_version = {project.python}` in {path}"))
        self._tell(path, len(self.found.lines) - before)
        return True

    def _python_version(self) -> None:
        path = self._path(".python-version")
        if path is None:
            return
        text = read_text(path, "--project", bytes_max=_BYTES_MAX).split("\n")[0].strip()
        if re.fullmatch(r"(?:cpython-?|python-?)?3\.[0-9]+(?:\.[0-9]+)?", text):
            version = re.sub(r"^[a-z-]+", "", text)
            self.found.pythons.append((f"=={version}", f"`{text}` in {path}"))


def _others(extras: Iterable[str]) -> str:
    return f"; it has the extras {', '.join(sorted(extras))}" if extras else ""


def _no_such(flag: str, name: str, path: Path, known: Iterable[str]) -> UsageError:
    names = ", ".join(sorted(known))
    return UsageError(
        f"{flag} {name}: {path} has none of that name",
        hints=(f"known are: {names}" if names else f"leave `{flag}` out",),
    )


class _Manifest:
    """A ``pyproject.toml``: its dependencies, those of the extras and groups that were chosen, and their sources."""

    def __init__(self, folder: _Folder, path: Path) -> None:
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
        self.project = _table(self.data, "project")
        tool = _table(self.data, "tool")
        self.poetry = _table(tool, "poetry")
        self.uv = _table(tool, "uv")
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
        if _table(_table(self.data, "tool"), "pixi"):
            self.folder._take_pixi(self.path, ("tool", "pixi"))
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
                raise UsageError(f"{where}: `{text[:_SHOWN]}` is no name of a package", hints=("leave the rest out",))
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
            UsageError: It is no list of texts.
        """
        value = self.uv.get(key, [])
        items = [value] if isinstance(value, str) else value
        for number, item in enumerate(items if isinstance(items, list) else [None]):
            if not isinstance(item, str):
                raise UsageError(f"{self.path}: `{key}` of [tool.uv] is no list of texts", hints=("correct it",))
            path = ("tool", "uv", key, number) if isinstance(value, list) else ("tool", "uv", key)
            yield item, self.found._where(self.placed.span(*path), self.folder.files)

    def _take_environments(self, environments: list[tuple[str, str]]) -> None:
        """Take the Pythons of the environments that the project is locked for.

        Raises:
            UsageError: One is no marker.
            IncompatibleError: None is of the platform.
        """
        from provision.audit.markers import holds

        platform = self.found.platform
        minors: set[int] = set()
        for text, where in environments:
            answers = [holds(text, f"3.{minor}", (platform,)) for minor in range(_PYTHON_MINORS)]
            if None in answers:
                raise UsageError(
                    f"{where}: `{text[:_SHOWN]}` is no marker of an environment",
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
        clauses += [f"<3.{max(minors) + 1}"] if max(minors) + 1 < _PYTHON_MINORS else []
        clauses += [f"!=3.{minor}.*" for minor in range(min(minors), max(minors)) if minor not in minors]
        if clauses:
            self.found.pythons.append((",".join(clauses), said))

    def _pythons(self) -> Iterator[tuple[str, str]]:
        from provision.audit.project import poetry_specifier

        text = self.project.get("requires-python")
        if isinstance(text, str):
            yield "requires-python", text
            return
        text = _table(self.poetry, "dependencies").get("python")
        if isinstance(text, str) and (specifier := poetry_specifier(text)):
            yield "python", specifier

    def extras(self) -> dict[str, list[str]]:
        """Return the extras by name, with the names that an extra of poetry's chooses."""
        found: dict[str, list[str]] = {
            normalise_name(name): [] for name in _table(self.project, "optional-dependencies")
        }
        for name, items in _table(self.poetry, "extras").items():
            found[normalise_name(name)] = (
                [normalise_name(str(item)) for item in items] if isinstance(items, list) else []
            )
        tool = _table(self.data, "tool")
        dynamic = _table(_table(_table(tool, "setuptools"), "dynamic"), "optional-dependencies")
        listed = _table(_hatch_lists(tool), "optional-dependencies")
        return {normalise_name(name): [] for name in (*dynamic, *listed)} | found

    def _groups(self) -> set[str]:
        found = {name.removeprefix("group ") for name in self.sets if name.startswith("group ")}
        return found | {normalise_name(name) for name in _table(self.data, "dependency-groups")}

    def _check_choices(self) -> None:
        extras, groups = self.extras(), self._groups()
        has_setup = "optional-dependencies" in self.project.get("dynamic", ()) or not self.project
        for name in self.folder.extras:
            if name not in extras and not has_setup:
                raise _no_such("--extra", name, self.path, extras)
        for name in self.folder.groups:
            if name not in groups:
                raise _no_such("--group", name, self.path, groups)

    def _take(self, name: str, chosen: Sequence[str] | None = None) -> None:
        """Take a set; of poetry's optional ones those that were chosen."""
        key = f"{name} {chosen}"
        if key in self.done or name not in self.sets:
            return
        self.done.add(key)
        group = self.sets[name]
        if not name.startswith("group "):
            self.folder._refuse_left(group.left, self.path)
        optional = {
            normalise_name(item)
            for item, value in _table(self.poetry, "dependencies").items()
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
        if name not in extras and self.project:
            raise _no_such("--extra", name, self.path, extras)
        self._take(f"extra {name}")
        if extras.get(name):
            self._take("dependencies", tuple(extras[name]))

    def _take_group(self, name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise UsageError(f"{self.path}: the groups lead in a circle", because=(" → ".join((*chain, name)),))
        self._take(f"group {name}")
        groups = {normalise_name(key): value for key, value in _table(self.data, "dependency-groups").items()}
        items = groups.get(name)
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and isinstance(item.get("include-group"), str):
                self._take_group(normalise_name(item["include-group"]), (*chain, name))

    def _take_requirement(self, requirement: Requirement, group: Project) -> None:
        """Take one, from where ``[tool.uv.sources]`` says."""
        self.added += 1
        where = self.found._where(requirement.span, self.folder.files)
        if self.folder._is_member(requirement):
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
                place = self.found._where(index.span, self.folder.files) or where
                self.found.add_index(index, place, package=package)
                return
        if bound.lower() != "pypi":
            raise UsageError(
                f"{where}: `{package}` comes from an index called `{without_secrets(bound)[:_SHOWN]}`, "
                f"and {self.path} has none",
                hints=("add the index with its name and its address, or name another one",),
            )

    def _source_of(self, name: str) -> dict[str, Any] | None:
        from provision.audit.markers import holds

        sources = {normalise_name(key): value for key, value in _table(self.uv, "sources").items()}
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
        members = _table(self.uv, "workspace").get("members")
        for pattern in members if isinstance(members, list) else []:
            if not isinstance(pattern, str) or pattern.startswith(("/", "..")):
                continue
            for folder in sorted(self.path.parent.glob(pattern)):
                if normalise_name(_project_name(folder / "pyproject.toml", self.folder.files)) == name:
                    return self.found.take_folder(folder, extras, name)
        return False

    def _take_dynamic(self) -> None:
        """Take lists that setuptools or hatch reads from requirements files."""
        tool = _table(self.data, "tool")
        dynamic = _table(_table(tool, "setuptools"), "dynamic")
        hook = _hatch_lists(tool)
        optional = _table(dynamic, "optional-dependencies")
        chosen = [optional[name] for name in optional if normalise_name(name) in self.folder.extras]
        for row in (_table(dynamic, "dependencies"), *chosen):
            names = row.get("file") if isinstance(row, dict) else None
            self._take_files(names if isinstance(names, list) else [names])
        files = hook.get("files")
        self._take_files(files if isinstance(files, list) else [hook.get("filename")])
        for name, names in _table(hook, "optional-dependencies").items():
            if normalise_name(name) in self.folder.extras:
                self._take_files(names if isinstance(names, list) else [names])

    def _take_files(self, names: Iterable[object]) -> None:
        for name in names:
            if isinstance(name, str):
                before = len(self.found.lines)
                self.folder._take_list(self.path.parent / name, self.path)
                self.added += len(self.found.lines) - before

    def _take_indexes(self) -> None:
        """Take the indexes that every package may come from."""
        group = next(iter(self.sets.values()), None)
        for index in group.indexes if group is not None else ():
            if index.kind == "backend":
                self._take_backend(index)
            elif not index.is_explicit:
                where = self.found._where(index.span, self.folder.files)
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
    return _table(_table(_table(_table(tool, "hatch"), "metadata"), "hooks"), "requirements_txt")


def _uv_address(source: Mapping[str, Any]) -> str:
    from provision.audit.project import address_of

    return address_of({key: value for key, value in source.items() if key != "path"})


def _project_name(path: Path, files: _Files) -> str:
    from provision.audit.places import read_toml

    if not path.is_file():
        return ""
    return str(_table(read_toml(files.take(path)).data, "project").get("name", ""))


def _table(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}
