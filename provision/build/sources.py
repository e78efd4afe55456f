"""What a source asks for to be built, be it a folder, an archive or a commit of a repository.

That is ``[build-system] requires``, and for setuptools ``setup_requires`` too. Nothing of it is run, so that what shows
only when a script runs is not told.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from provision.build.local import Local
from provision.build.reader import Reader
from provision.build.uv import Found, account_variables
from provision.errors import ProvisionError, UsageError
from provision.index.account import Accounts
from provision.index.address import IndexAddress
from provision.records import record
from provision.resolve.requirements import LOCAL, normalise_name, parse_line, requirement_of

if TYPE_CHECKING:
    from provision.audit.setup_script import Needs

_BYTES_MAX = 1024 * 1024
_ARCHIVE_BYTES_MAX = 512 * 1024 * 1024
_GIT_SECONDS = 120
_SHOWN = 4
_PYPROJECT = "pyproject.toml"
_SCRIPTS = ("setup.py", "setup.cfg")
_OF_TAGS = frozenset(
    {
        *("setuptools-scm", "setuptools-git-versioning", "hatch-vcs", "flit-scm", "pbr"),
        *("versioningit", "dunamai", "poetry-dynamic-versioning", "uv-dynamic-versioning", "versioneer"),
    }
)
# The facts hold what builds a package to a setuptools that has the last one.
_OF_SETUPTOOLS = frozenset({"setuptools", "distutils", "pkg_resources"})
_OF_TORCH = frozenset({"CUDAExtension", "CppExtension"})
_TOLD = ("packages", "py_modules", "package_dir", "ext_modules", "configuration")
"""What keeps setuptools from looking for packages itself; as keywords of ``setup`` and as keys of its files."""
_NOT_FOLDERS = frozenset(
    {
        *("ci", "bin", "debian", "doc", "docs", "documentation", "manpages", "news", "newsfragments", "changelog"),
        *("test", "tests", "unit_test", "unit_tests", "example", "examples", "scripts", "tools", "util", "utils"),
        *("python", "build", "dist", "venv", "env", "requirements", "tasks", "fabfile", "site_scons", "benchmark"),
        *("benchmarks", "exercise", "exercises", "htmlcov", "ez_setup"),
    }
)
_NOT_MODULES = frozenset(
    {
        *("setup", "conftest", "test", "tests", "example", "examples", "build", "toxfile", "noxfile", "pavement"),
        *("dodo", "tasks", "fabfile", "sconstruct", "Sconstruct", "SConstruct", "sConstruct", "conanfile", "manage"),
        *("benchmark", "benchmarks", "exercise", "exercises"),
    }
)
"""What setuptools takes for no part of a package: setuptools/discovery.py of 84.2.1."""


@record
class BuildNeeds:
    """What a build asks for.

    Attributes:
        lines: Requirements, sorted.
        unread: Places of what shows only when a script runs.
    """

    lines: tuple[str, ...]
    unread: tuple[str, ...] = ()


class Sources:
    """Reads what sources ask for that uv chose.

    Args:
        address: How this machine is told to reach its index.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords.
        local: Archives of this machine.
    """

    def __init__(
        self, address: IndexAddress | None, *, ca_cert: str | None, accounts: Accounts | None, local: Local
    ) -> None:
        self._address = address
        self._ca_cert = ca_cert
        self._accounts = accounts
        self._local = local

    def requires(self, found: Found) -> tuple[str, ...] | None:
        """Return what a source asks for, sorted; nothing where that cannot be told without running it."""
        texts: Mapping[str, str] = {}
        with suppress(OSError, ProvisionError, subprocess.SubprocessError, tarfile.TarError, zipfile.BadZipFile):
            texts = self._commit(found) if (found.url or "").startswith("git+") else self._archive(found)
        if not texts:
            return None
        with suppress(UsageError):
            needs = _needs_of(texts, f"{found.name} {found.version} ")
            return None if needs.unread else needs.lines
        return None

    def _archive(self, found: Found) -> dict[str, str]:
        name, url = found.file or "", found.url or ""
        with tempfile.TemporaryFile() as file:
            if url.startswith(LOCAL):
                path = self._local.find(name)
                file.write(path.read_bytes() if path is not None else b"")
            else:
                reader = Reader(self._address, ca_cert=self._ca_cert, accounts=self._accounts)
                with reader.open(url, {"User-Agent": "provision"}) as answer:
                    while file.tell() < _ARCHIVE_BYTES_MAX and (piece := answer.read(_BYTES_MAX)):
                        file.write(piece)
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != found.sha256:
                return {}
            file.seek(0)
            return _zipped(file) if name.endswith(".zip") else _tarred(file)

    def _commit(self, found: Found) -> dict[str, str]:
        address, _, folder = (found.url or "").removeprefix("git+").partition("#subdirectory=")
        repository, _, commit = address.rpartition("@")
        with tempfile.TemporaryDirectory(prefix="provision-source-") as name:
            place = Path(name)
            environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
            if self._accounts is not None and self._accounts.is_told:
                count = int(environment.get("GIT_CONFIG_COUNT") or 0)
                environment |= account_variables(self._accounts, place, count)

            def git(*words: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    ["git", "-C", str(place / "repository"), *words],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_GIT_SECONDS,
                    check=False,
                )

            (place / "repository").mkdir()
            git("init", "--quiet")
            # Files are fetched as they are asked for, where the server can.
            git("fetch", "--quiet", "--depth=1", "--filter=blob:limit=1m", repository, commit)
            if git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
                return {}
            prefix = f"{folder.strip('/')}/" if folder else ""
            shown = {path: git("show", f"{commit}:{prefix}{path}") for path in (_PYPROJECT, *_SCRIPTS)}
            return {path: done.stdout for path, done in shown.items() if done.returncode == 0}


def _tarred(file: IO[bytes]) -> dict[str, str]:
    texts = {}
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            if (path := _wanted(member.name)) and member.isfile() and member.size <= _BYTES_MAX:
                content = archive.extractfile(member)
                texts[path] = content.read().decode("utf-8", errors="replace") if content is not None else ""
    return texts


def _zipped(file: IO[bytes]) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        members = [(path, item) for item in archive.infolist() if (path := _wanted(item.filename))]
        return {
            path: archive.read(item).decode("utf-8", errors="replace")
            for path, item in members
            if item.file_size <= _BYTES_MAX
        }


def _wanted(member: str) -> str | None:
    """Return the name of a file of interest in the one folder that an archive has."""
    match = re.fullmatch(r"(?:\./)?[^/]+/([^/]+)", member)
    return match[1] if match is not None and match[1] in (_PYPROJECT, *_SCRIPTS) else None


def is_package(folder: Path) -> bool:
    """Tell whether a project that says how it is built is meant to be installed; one that cannot be read is.

    Source: https://docs.astral.sh/uv/concepts/projects/config/#project-packaging; for ``package-mode`` what
    ``poetry install`` says of a project that is no package.
    """
    try:
        data = _pyproject_of(_texts_of(folder), folder)
    except UsageError:
        return True
    return False not in (_value(data, "tool", "uv", "package"), _value(data, "tool", "poetry", "package-mode"))


def find_obstacle(folder: Path) -> str | None:
    """Return why a wheel of a project cannot be made of its files and of what they say builds it, where that shows."""
    try:
        texts = _texts_of(folder)
        needs = _needs_of(texts, f"{folder}{os.sep}")
    except UsageError as error:
        return error.message
    if needs.unread:
        return f"what {needs.unread[0]} asks for (`setup_requires`) shows only when the script runs"
    data = _pyproject_of(texts, folder)
    names = {normalise_name(requirement_of(line).name) for line in needs.lines}
    tags = sorted(names & _OF_TAGS)
    if tags or _value(data, "tool", "pdm", "version", "source") == "scm":
        return f"its version comes from tags of git ({tags[0] if tags else 'pdm'}), and `.git` is not copied"
    backend = str(_value(data, "build-system", "build-backend") or "")
    if backend and not backend.startswith("setuptools"):
        return None
    script = _parsed(texts.get("setup.py", ""))
    modules = _imported(script)
    if "versioneer" in modules:
        return "its version comes from tags of git (versioneer), and `.git` is not copied"
    if compiled := _compiled(script):
        return f"its setup.py compiles code for torch or CUDA ({compiled}), and the stage that builds it has no nvcc"
    for module in modules:
        is_beside = not backend and ((folder / f"{module}.py").is_file() or (folder / module).is_dir())
        is_known = module in sys.stdlib_module_names or module in _OF_SETUPTOOLS or normalise_name(module) in names
        if not (is_known or is_beside):
            return f"its setup.py imports {module}, and `[build-system] requires` names no package of that name"
    return _several(folder, texts, data, script)


def _value(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _parsed(script: str) -> ast.Module:
    """Return the tree of a script, an empty one where it is not Python 3."""
    with suppress(SyntaxError, ValueError, RecursionError):
        return ast.parse(script.removeprefix("\ufeff"))
    return ast.Module(body=[], type_ignores=[])


def _imported(script: ast.Module) -> list[str]:
    """Return the modules that a script imports whatever happens, by their first names."""
    names = [name.name for node in script.body if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in script.body if isinstance(node, ast.ImportFrom) and not node.level]
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _compiled(script: ast.Module) -> str | None:
    """Return what in a script tells that it compiles an extension of torch, or a source in CUDA C++."""
    for node in ast.walk(script):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in _OF_TORCH:
            return name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".cu"):
            return f"`{node.value}`"
    return None


def _several(folder: Path, texts: Mapping[str, str], data: Mapping[str, Any], script: ast.Module) -> str | None:
    """Return which packages, or else modules, setuptools would find and refuse, where it looks for them itself.

    Source: https://setuptools.pypa.io/en/latest/userguide/package_discovery.html#flat-layout
    """
    calls = [node for node in ast.walk(script) if isinstance(node, ast.Call)]
    setups = [call for call in calls if "setup" in (getattr(call.func, "id", None), getattr(call.func, "attr", None))]
    keywords = {word.arg for call in setups for word in call.keywords}
    told = set(_TOLD) - ({"ext_modules"} if "project" in data else set())
    is_told = ("setup.py" in texts and not setups) or None in keywords or not keywords.isdisjoint(told)
    is_told |= re.search(rf"(?m)^(?:{'|'.join(_TOLD)})\s*[=:]", texts.get("setup.cfg", "")) is not None
    is_told |= any(_value(data, "tool", "setuptools", name.replace("_", "-")) is not None for name in _TOLD)
    if is_told or (folder / "src").is_dir():
        return None
    from provision.build.code import find_files

    try:
        paths = [path.split("/") for path in find_files(folder)[0]]
    except UsageError as error:
        return error.message
    names = {parts[0] for parts in paths if parts[1:]} - _NOT_FOLDERS
    kind = "packages"
    if not any(map(_is_name, names)):
        names = {parts[0].removesuffix(".py") for parts in paths if parts[0].endswith(".py")} - _NOT_MODULES
        kind = "modules"
    found = sorted(filter(_is_name, names))
    if not found[1:]:
        return None
    shown = f"{', '.join(found[:_SHOWN])}{', …' if found[_SHOWN:] else ''}"
    return f"setuptools refuses several top-level {kind} ({shown}) where its files do not name those that are meant"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not text.startswith("_")


def build_needs(folder: Path) -> BuildNeeds:
    """Return what the build of a project asks for.

    Raises:
        UsageError: It is not there, does not say, or says what cannot be locked.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not there, which says what builds the project",
            hints=("write the folder again with `--project DIR --install-project`",),
        )
    return _needs_of(_texts_of(folder), f"{folder}{os.sep}")


def _texts_of(folder: Path) -> dict[str, str]:
    texts = {}
    for path in (folder / name for name in (_PYPROJECT, *_SCRIPTS)):
        try:
            if path.is_file():
                texts[path.name] = path.read_bytes()[: _BYTES_MAX + 1].decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8", because=(str(error),)) from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read", because=(str(error),)) from error
    return texts


def _pyproject_of(texts: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
    from provision.audit.model import Source
    from provision.audit.places import read_toml

    return read_toml(Source(str(folder / _PYPROJECT), texts[_PYPROJECT])).data if _PYPROJECT in texts else {}


def _needs_of(texts: Mapping[str, str], before: str) -> BuildNeeds:
    """Return what files ask for, by their names; ``before`` is what stands before these in messages.

    Raises:
        UsageError: They do not say, or say what cannot be locked.
    """
    from provision.audit.model import Source
    from provision.audit.places import read_toml
    from provision.audit.setup_script import read_setup_cfg, read_setup_py

    path = f"{before}{_PYPROJECT}"
    table: Any = {"requires": ["setuptools"]}
    if _PYPROJECT in texts:
        table = read_toml(Source(path, texts[_PYPROJECT])).data.get("build-system", table)
    requires = table.get("requires") if isinstance(table, dict) else None
    if not isinstance(requires, list) or not all(isinstance(line, str) for line in requires):
        raise UsageError(
            f"{path}: [build-system] has no list `requires`",
            hints=('name there what builds the project, as in `requires = ["setuptools"]`',),
        )
    lines = [(line, f"{path} ([build-system] requires)") for line in requires]
    unread = []
    if str(table.get("build-backend", "setuptools")).startswith("setuptools"):
        for name, read in (("setup.py", read_setup_py), ("setup.cfg", read_setup_cfg)):
            if "setup_requires" not in texts.get(name, ""):
                continue
            builds: Needs | None = None
            with suppress(UsageError):
                builds = read(Source(f"{before}{name}", texts[name])).builds
            if builds is None:
                unread.append(f"{before}{name}")
                continue
            if builds.unread is not None or builds.files:
                unread.append(f"{before}{name}{f', line {builds.unread}' if builds.unread else ''}")
            for text, number in builds.lines:
                if line := re.sub(r"(?:^|\s)#.*$", "", text).strip():
                    lines.append((line, f"{before}{name}{f', line {number}' if number else ''} (setup_requires)"))
    return BuildNeeds(
        lines=tuple(sorted({parse_line(line.strip(), where).text for line, where in lines})), unread=tuple(unread)
    )
