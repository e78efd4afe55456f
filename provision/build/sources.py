"""What a source asks for to be built, be it a folder, an archive or a commit of a repository.

That is ``[build-system] requires``, and for setuptools ``setup_requires`` too. Nothing of it is run, so that what shows
only when a script runs is not told.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
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
from provision.resolve.requirements import LOCAL, parse_line

if TYPE_CHECKING:
    from provision.audit.setup_script import Needs

__all__ = ["BuildNeeds", "Sources", "build_needs"]

_BYTES_MAX = 1024 * 1024
_ARCHIVE_BYTES_MAX = 512 * 1024 * 1024
_GIT_SECONDS = 120
_PYPROJECT = "pyproject.toml"
_SCRIPTS = ("setup.py", "setup.cfg")


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
    texts = {}
    for path in (folder / name for name in (_PYPROJECT, *_SCRIPTS)):
        try:
            if path.is_file():
                texts[path.name] = path.read_bytes()[: _BYTES_MAX + 1].decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--install-project: {path} cannot be read", because=(str(error),)) from error
    return _needs_of(texts, f"{folder}{os.sep}")


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
