"""Ask uv which distributions an environment needs: the resolver of Python packages that this program relies on.

uv is given requirement lines, bounds, what is already decided, and a day after which nothing was published for it. What
is decided stands as wheels of metadata alone, so that their needs count and neither they nor their index are asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from provision.build.local import Local
from provision.build.reader import Reader, trusted_certificates
from provision.errors import ActionFailedError, MissingDependencyError, UsageError, install_command, without_secrets
from provision.index.account import Accounts
from provision.index.address import IndexAddress
from provision.index.page import IndexFile
from provision.records import NOTHING, record, replace
from provision.resolve.environment import wheel_rank
from provision.resolve.halves import Fixed
from provision.resolve.requirements import LOCAL, SECRETS_HINT, normalise_name, requirement_of
from provision.versions import admits_python

_UNREACHABLE = re.compile(r"Failed to fetch|error sending request|Request failed|dns error|timed out|Could not connect")
_UNAUTHORIZED = re.compile(
    r"An index URL \((?P<url>[^)\s]+)\) (?:could not be queried|returned a)[^\n]*?"
    r"(?P<status>401 Unauthorized|403 Forbidden)"
    r"|\((?P<answer>401 Unauthorized|403 Forbidden)\) for url \((?P<file>[^)\s]+)\)"
)
_GIT_UNREACHABLE = re.compile(
    r"unable to access '|[Cc]ould not read from remote repository|could not read Username|Git operation failed"
)
_GIT_ADDRESS = re.compile(r"(?:git\+|unable to access ')([^\s`']+)[`']")
_NOT_OFFLINE = "Network connectivity is disabled"
_UNSOLVABLE = "No solution found"
_STEPS_MAX = 8
_FLAGS_OF_UV = ("exclude-newer", "`--python-version`")
"""What only uv's own advice speaks of."""
_MISSING = re.compile(r"there (?:is|are) no versions? of ([a-z0-9._-]+)(?:\[[^\]]*\]|\{[^}]*\})?([<>=!~][^\s,]*)")
_MISMATCH = re.compile(
    r"Hash mismatch for `([^`]+)`.*?Expected:\s*sha256:([0-9a-f]+).*?Computed:\s*sha256:([0-9a-f]+)", re.DOTALL
)
_SAID_MAX = 300
_ABSENT_SHOWN = 10
_SOURCES_REFUSED_MAX = 10
_NAMES_LOOKED_AT = 200
_PAGES_AT_ONCE = 8
_PAGE_SECONDS = 5
_SECONDS_MAX = 600
_UV_KEPT = (
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_CACHE_DIR",
    "UV_HTTP",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_INSECURE_HOST",
    "UV_OFFLINE",
    "UV_CONCURRENT",
)


@record
class Place:
    """Where an environment will be: ``3.11``, ``x86_64`` and the glibc that wheels may ask for, of those uv names."""

    python: str
    machine: str
    glibc: str


@record
class Bound:
    """A distribution that comes from one index alone, and where that is; ``is_flat`` for a page of links."""

    package: str
    url: str
    name: str = ""
    is_flat: bool = False


@record
class SourceNeeds:
    """What releases of a distribution need that exist as source alone, so that no build of theirs has to be asked."""

    name: str
    versions: tuple[str, ...]
    requires: tuple[str, ...]


@record
class Question:
    """What is asked of uv.

    Attributes:
        lines: Requirement lines; what stands first is chosen first.
        bounds: Lines that limit and add nothing.
        build_bounds: Lines that limit what builds a source distribution.
        fixed: What is decided already.
        preferred: Name → version to take where nothing speaks against it.
        published_before: Moment (RFC 3339) from which on nothing counts; absent = whatever is there now.
        extra_indexes: Roots of further indexes, the first one first.
        find_links: Pages that list files.
        overrides: Lines that stand for whatever is asked of the distributions they name.
        excludes: Distributions that nothing brings.
        bound: Distributions among the lines that come from one index alone.
        known: What sources need, where that is known.
        has_needs: What the lines need counts too.
    """

    lines: tuple[str, ...]
    place: Place
    bounds: tuple[str, ...] = ()
    build_bounds: tuple[str, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    preferred: Mapping[str, str] = NOTHING
    published_before: str | None = None
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    bound: tuple[Bound, ...] = ()
    known: tuple[SourceNeeds, ...] = ()
    has_needs: bool = True


@record
class Found:
    """One distribution that uv chose.

    Attributes:
        file: Name of the wheel that fits best, else of the source distribution; absent for a commit of a repository.
        sha256: Of the file.
        size: Bytes, where the index says.
        url: Where the file is, or ``git+https://…@COMMIT``.
        uploaded: When the file was published (ISO).
        is_source: No wheel of it fits, so one has to be built.
        is_addressed: It is found at its address alone: a line named that, or a further index serves it.
    """

    name: str
    version: str
    file: str | None
    sha256: str | None
    size: int | None
    url: str | None
    uploaded: str | None
    is_source: bool
    is_addressed: bool


@record
class NoSolution:
    """Why there is no environment.

    Attributes:
        because: In sentences, the most telling first.
        is_dated: A release was too new.
        absent: A distribution that the index does not have.
        unbuilt: A source distribution that could not be asked what it needs, since that takes a build, which failed.
        is_about_python: With the frameworks left open it was the Python, or a wheel for it, that lacked.
    """

    because: tuple[str, ...]
    is_dated: bool = False
    absent: str | None = None
    unbuilt: str | None = None
    is_about_python: bool = False


def find_uv() -> str:
    """Return the path of the uv to run: the one installed beside this program, else the one on PATH.

    Raises:
        MissingDependencyError: There is none.
    """
    try:
        from uv import find_uv_bin

        return os.fspath(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise MissingDependencyError(
            "uv is not installed",
            because=("it resolves what your requirements need",),
            hints=(install_command(), "or leave these lines to the build with `--offline`"),
        )
    return found


class Uv:
    """Asks one uv, of one index.

    What it found is kept by name and version: in ``uploaded`` when it was published (ISO), in ``sources`` what is to be
    built, in ``urls`` where its wheel is.

    Args:
        program: Its path.
        index_url: Index to ask instead of the machine's own.
        address: The machine's own index and how it is reached, as pip is told.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords beside those in the address and those that uv finds itself.
        local: Wheels and archives of this machine.
    """

    def __init__(
        self,
        program: str,
        *,
        index_url: str | None = None,
        address: IndexAddress | None = None,
        ca_cert: str | None = None,
        accounts: Accounts | None = None,
        local: Local | None = None,
    ) -> None:
        self._program = program
        self._local = local or Local()
        self._accounts = accounts
        self._index_url = index_url
        self._address = address
        self._ca_cert = ca_cert
        self._deadline: float | None = None
        self._answers: dict[str, tuple[Found, ...] | NoSolution] = {}
        self.uploaded: dict[tuple[str, str], str] = {}
        self.sources: dict[tuple[str, str], Found] = {}
        self.urls: dict[tuple[str, str], str] = {}
        self._files: dict[str, tuple[IndexFile, ...]] = {}

    @contextmanager
    def until(self, deadline: float) -> Iterator[None]:
        """Wait for answers no longer than until a moment of the monotonic clock."""
        before, self._deadline = self._deadline, deadline
        try:
            yield
        finally:
            self._deadline = before

    def ask(self, question: Question) -> tuple[Found, ...] | NoSolution:
        """Return what an environment holds beside what is decided, by name; or why there is none.

        The same question gets the same answer, and is put to the index once.

        Raises:
            MissingDependencyError: The index cannot be reached.
            ActionFailedError: uv failed in a way of its own.
        """
        key = repr(question)
        if key not in self._answers:
            answer = self._answers[key] = self._ask_for_python(question)
            for item in answer if not isinstance(answer, NoSolution) else ():
                if item.is_source:
                    self.sources[item.name, item.version] = item
                elif item.url is not None:
                    self.urls[item.name, item.version] = item.url
                if item.uploaded is not None:
                    self.uploaded[item.name, item.version] = item.uploaded
        return self._answers[key]

    def _ask_for_python(self, question: Question) -> tuple[Found, ...] | NoSolution:
        """Ask without sources that name another Python: uv does not read the upper bound of a Requires-Python."""
        refused: list[str] = []
        kept_out: set[str] = set()
        for _ in range(_SOURCES_REFUSED_MAX):
            answer = self._ask(question)
            if isinstance(answer, NoSolution):
                if not refused:
                    return answer
                # What uv says of a version that was kept out is about that, and not about the lines.
                said = (text for text in answer.because if not any(kept in text for kept in kept_out))
                return replace(answer, because=(*refused, *said), is_about_python=True)
            unfit = [(item, bound) for item in answer if (bound := self._other_python(item, question.place.python))]
            if not unfit:
                return answer
            refused += [f"the source of {item.name} {item.version} is for Python {bound}" for item, bound in unfit]
            kept_out |= {f"{item.name}>{item.version}" for item, _ in unfit}
            bounds = (*question.bounds, *(f"{item.name}!={item.version}" for item, _ in unfit))
            question = replace(question, bounds=bounds)
        return NoSolution(because=tuple(refused), is_about_python=True)

    def _other_python(self, item: Found, python: str) -> str | None:
        """Return the Requires-Python of a source of the index that a Python does not meet."""
        if not item.is_source or item.is_addressed or item.file is None:
            return None
        bound = next((row.requires_python for row in self.files(item.name) if row.file == item.file), None)
        return bound if bound is not None and not admits_python(bound, python) else None

    def files(self, name: str) -> tuple[IndexFile, ...]:
        """Return the files of a distribution that the index has, none where it does not answer; asked for once."""
        from provision.build.hashes import read_page

        indexes = self._default_indexes()
        if name not in self._files:
            try:
                self._files[name] = read_page(self.reader(), indexes[0], name).files if indexes else ()
            except (MissingDependencyError, UsageError):
                self._files[name] = ()
        return self._files[name]

    def _ask(self, question: Question) -> tuple[Found, ...] | NoSolution:
        with tempfile.TemporaryDirectory(prefix="provision-uv-") as name:
            folder = Path(name)
            stubs = {item.name: f"{item.name} @ {_write_stub(folder, item).as_uri()}" for item in question.fixed}
            bound = {item.package for item in question.bound}
            free = [self._placed(line) for line in question.lines if _name_of(line) not in bound]
            _write(folder / "requirements.in", [*stubs.values(), *free])
            _write(folder / "pyproject.toml", _project(question))
            _write(folder / "bounds.txt", question.bounds)
            # What is decided stands: an override can but say that it is not asked for otherwise.
            overrides = [stubs.get(_name_of(line), self._placed(line)) for line in question.overrides]
            _write(folder / "overrides.txt", dict.fromkeys(overrides))
            _write(folder / "excludes.txt", question.excludes)
            _write(folder / "builds.txt", question.build_bounds)
            _write(folder / "uv.toml", _known(question.known))
            lock = folder / "pylock.toml"
            if question.preferred:
                _write(lock, _preferences(question.preferred))
            done = self._run(question, folder)
            if done.returncode == 0:
                document = tomllib.loads(lock.read_text(encoding="utf-8"))
                decided = {item.name for item in question.fixed}
                rows = [row for row in document.get("packages", ()) if row["name"] not in decided]
                elsewhere = self._found_elsewhere(question, folder)
                return tuple(_found(row, question, row["name"] in elsewhere) for row in rows)
            return self._failure(done.stderr, question)

    def _placed(self, line: str) -> str:
        """Return a line whose file of a context is where this machine has it."""
        match = re.search(rf"{re.escape(LOCAL)}([^#\s]+)", line)
        path = self._local.find(match[1]) if match is not None else None
        if match is None or path is None:
            return line
        return f"{line[: match.start()]}{path.resolve().as_uri()}{line[match.end() :]}"

    def _found_elsewhere(self, question: Question, folder: Path) -> set[str]:
        """Return what further indexes and pages serve: uv tells it in a list of requirements, and not in a lock."""
        further = (*question.extra_indexes, *self._default_indexes()[1:], *question.find_links)
        names, name = {item.package for item in question.bound}, ""
        if not further:
            return names
        shown = self._run(question, folder, "--emit-index-annotation", form="requirements.txt")
        places = {without_secrets(url).rstrip("/") for url in further}
        for line in shown.stdout.splitlines():
            if match := re.match(r"([a-z0-9-]+)==", line):
                name = match[1]
            elif (match := re.match(r"\s+# from (\S+)", line)) and without_secrets(match[1]).rstrip("/") in places:
                names.add(name)
        return names

    def _run(
        self, question: Question, folder: Path, *more: str, form: str = "pylock.toml"
    ) -> subprocess.CompletedProcess[str]:
        place = question.place
        words = [self._program, "pip", "compile", "requirements.in", "--constraints", "bounds.txt", *more]
        words += ["--build-constraints", "builds.txt"]
        if question.bound:
            words.append("pyproject.toml")
        if question.overrides:
            words += ["--overrides", "overrides.txt"]
        if question.excludes:
            words += ["--excludes", "excludes.txt"]
        if form == "pylock.toml":
            words += ["--output-file", "pylock.toml", "--generate-hashes"]
        words += ["--format", form]
        words += [
            "--config-file",
            "uv.toml",
            "--no-header",
            "--quiet",
            "--color",
            "never",
            "--python-version",
            place.python,
        ]
        # This interpreter reads what only a build tells; looking for one of the other version can take seconds.
        words += [
            "--python-platform",
            f"{place.machine}-manylinux_{place.glibc.replace('.', '_')}",
            "--python",
            sys.executable,
        ]
        if question.published_before is not None:
            words += ["--exclude-newer", question.published_before]
        if not question.has_needs:
            words.append("--no-deps")
        seconds = _SECONDS_MAX if self._deadline is None else max(self._deadline - time.monotonic(), 0.01)
        try:
            return subprocess.run(
                words,
                cwd=folder,
                env=self._environment(question, folder),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MissingDependencyError(
                f"uv gave no answer within {seconds:.0f} seconds",
                hints=("try again", "or leave your lines to the build with `--offline`"),
            ) from error

    def _environment(self, question: Question, folder: Path) -> dict[str, str]:
        """Return the variables of uv's process: addresses may hold a password, which no list of processes may show."""
        # uv's own variables reach it where they say how an index is reached; none may change what it answers.
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("UV_") or name.startswith(_UV_KEPT)
        }
        variables["UV_PYTHON_DOWNLOADS"] = "never"
        indexes = self._default_indexes()
        if indexes:
            variables["UV_DEFAULT_INDEX"] = indexes[0]
            variables.pop("UV_INDEX_URL", None)
        more = [*question.extra_indexes, *indexes[1:]]
        if more:
            variables.pop("UV_EXTRA_INDEX_URL", None)
            variables["UV_INDEX"] = " ".join(more)
        pages = (*question.find_links, *(str(place.resolve()) for place in self._local.folders if place.is_dir()))
        if pages:
            variables["UV_FIND_LINKS"] = ",".join(pages)
        certificates = trusted_certificates(self._address, self._ca_cert)
        if certificates is not None:
            path = folder / "certificates.pem"
            path.write_text(certificates, encoding="utf-8")
            variables["SSL_CERT_FILE"] = str(path)
        if self._accounts is not None and self._accounts.is_told:
            variables |= account_variables(self._accounts, folder, int(variables.get("GIT_CONFIG_COUNT") or 0))
        return variables

    def absent(self, names: Iterable[str], question: Question) -> tuple[str, ...]:
        """Return those of some names that no index has: the first few, of the first that are looked at.

        Args:
            names: Normalised names of distributions.
            question: Where they are looked for.
        """
        indexes = (*self._default_indexes(), *question.extra_indexes)
        if not indexes or question.find_links:
            return ()
        from concurrent.futures import ThreadPoolExecutor

        reader = self.reader()
        found: list[str] = []
        asked = list(dict.fromkeys(names))[:_NAMES_LOOKED_AT]
        with ThreadPoolExecutor(_PAGES_AT_ONCE) as pool:
            for start in range(0, len(asked), _PAGES_AT_ONCE):
                part = asked[start : start + _PAGES_AT_ONCE]
                lacking = pool.map(lambda name: all(_lacks(reader, index, name) for index in indexes), part)
                found += [name for name, is_lacking in zip(part, lacking, strict=True) if is_lacking]
                if len(found) >= _ABSENT_SHOWN:
                    break
        return tuple(found[:_ABSENT_SHOWN])

    def serving(self, urls: Iterable[str]) -> set[str]:
        """Return those of some addresses where a file is, as far as this machine reaches; all are asked at once."""
        asked = tuple(urls)
        if not asked:
            return set()
        from concurrent.futures import ThreadPoolExecutor
        from http.client import HTTPException

        reader = self.reader()

        def serves(url: str) -> bool:
            try:
                with reader.open(url, {"User-Agent": "provision"}):
                    return True
            except (HTTPException, OSError, ValueError):
                return False

        with ThreadPoolExecutor(_PAGES_AT_ONCE) as pool:
            return {url for url, is_served in zip(asked, pool.map(serves, asked), strict=True) if is_served}

    def reader(self) -> Reader:
        """Return who asks the index beside uv."""
        return Reader(self._address, ca_cert=self._ca_cert, accounts=self._accounts, timeout_seconds=_PAGE_SECONDS)

    def _default_indexes(self) -> tuple[str, ...]:
        if self._index_url is not None:
            return (self._index_url,)
        return (self._address.url, *self._address.extra) if self._address is not None else ()

    def _failure(self, said: str, question: Question) -> NoSolution:
        text = without_secrets(said)
        if refused := _UNAUTHORIZED.search(text):
            raise MissingDependencyError(
                f"{refused['url'] or refused['file']} requires credentials: {refused['status'] or refused['answer']}",
                because=("no credentials were found here, or the server rejected them",),
                hints=(SECRETS_HINT,),
            )
        if _GIT_UNREACHABLE.search(text):
            named = _GIT_ADDRESS.search(text)
            raise MissingDependencyError(
                f"the repository {named[1] if named else 'of a line'} cannot be read",
                because=(text.rpartition("fatal: ")[2].splitlines()[0].strip(),) if "fatal: " in text else (),
                hints=(
                    *(("`ssh-add -l` shows whether the ssh agent has its key",) if "git+ssh:" in said else ()),
                    "let git reach it (`git config --global url.MIRROR.insteadOf ADDRESS` names another place)",
                    "with `--offline` your lines are left to the build, and the image says so",
                ),
            )
        if _UNSOLVABLE not in text and (_UNREACHABLE.search(text) or _NOT_OFFLINE in text):
            raise MissingDependencyError(
                "the package index does not answer",
                because=_sentences(text, question)[:2],
                hints=(
                    "try again, or name another index with `--index-url URL`",
                    "with `--offline` your lines are left to the build, and the image says so",
                ),
            )
        if mismatch := _MISMATCH.search(text):
            stated, found = (f"sha256:{digest}" for digest in mismatch.groups()[1:])
            raise ActionFailedError(
                f"the index serves another file of {mismatch[1].replace('==', ' ')} than the one that it names",
                because=(f"it states {stated}, and the file has {found}",),
                hints=("ask whoever runs the index, or name another one with `--index-url URL`",),
            )
        sentences = _sentences(text, question)
        if not sentences:
            raise ActionFailedError(
                "uv failed without a word", hints=("with `--offline` your lines are left to the build",)
            )
        absent = re.search(r"Because ([a-z0-9._-]+) was not found in the package registry", text)
        if unbuilt := re.search(r"Failed to (?:download and )?build `([^`]+)`", text):
            sentences = (f"its build ended with: {_last_of_build(text)}",)
        return NoSolution(
            because=sentences,
            is_dated="exclude-newer" in text,
            absent=absent[1] if absent else None,
            unbuilt=unbuilt[1] if unbuilt else None,
        )


def account_variables(accounts: Accounts, folder: Path, count: int) -> dict[str, str]:
    """Write users and passwords where nobody else can read them, and return what tells uv and its git of that.

    Args:
        accounts: They.
        folder: One that this user alone can enter.
        count: How many settings of git the environment has already.
    """
    files = {"netrc": accounts.netrc(), "git-credentials": accounts.git_credentials()}
    for name, text in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    return {
        "NETRC": str(folder / "netrc"),
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": "credential.helper",
        f"GIT_CONFIG_VALUE_{count}": f"store --file={folder / 'git-credentials'}",
    }


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _name_of(line: str) -> str:
    return normalise_name(requirement_of(line).name)


def _project(question: Question) -> list[str]:
    """Return a project that needs the lines of bound distributions: nothing else tells uv where to look for one."""
    bound = {item.package: item for item in question.bound}
    needed = [line for line in question.lines if _name_of(line) in bound]
    lines = ["[project]", 'name = "provision-own"', 'version = "0"', f"dependencies = {json.dumps(needed)}"]
    urls = dict.fromkeys(item.url for item in bound.values())
    names = {url: f"provision-{number}" for number, url in enumerate(urls)}
    # The variables that hold a password are called after the index.
    names |= {item.url: item.name for item in bound.values() if item.name}
    lines += ["[tool.uv.sources]", *(f"{name} = {{ index = {json.dumps(names[bound[name].url])} }}" for name in bound)]
    flat = {item.url for item in bound.values() if item.is_flat}
    for url, name in names.items():
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}", "explicit = true"]
        lines += ['format = "flat"'] if url in flat else []
    return lines


def _lacks(reader: Reader, index: str, name: str) -> bool:
    """Tell whether an index says that it has no such distribution."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        with reader.open(f"{index.rstrip('/')}/{name}/", {"User-Agent": "provision"}):
            return False
    except HTTPError as error:
        error.close()
        return error.code in (404, 410)
    except (HTTPException, OSError, ValueError):
        return False


def _known(known: Iterable[SourceNeeds]) -> Iterator[str]:
    """Yield the settings that tell uv what sources need."""
    for item in known:
        for version in item.versions:
            yield "[[dependency-metadata]]"
            yield f"name = {json.dumps(item.name)}"
            yield f"version = {json.dumps(version)}"
            yield f"requires-dist = {json.dumps(item.requires)}"


def _write_stub(folder: Path, item: Fixed) -> Path:
    """Write a wheel that says what a distribution needs and holds nothing else."""
    stem = f"{re.sub(r'[-_.]+', '_', item.name)}-{item.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    metadata = ["Metadata-Version: 2.1", f"Name: {item.name}", f"Version: {item.version}"]
    metadata += [f"Requires-Dist: {line}" for line in item.requires]
    tags = ["Wheel-Version: 1.0", "Generator: provision", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, lines in (("METADATA", metadata), ("WHEEL", tags), ("RECORD", [])):
            archive.writestr(f"{stem}.dist-info/{name}", "".join(f"{line}\n" for line in lines))
    return path


def _preferences(preferred: Mapping[str, str]) -> list[str]:
    lines = ['lock-version = "1.0"', 'created-by = "provision"']
    for name, version in sorted(preferred.items()):
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"']
    return lines


def _found(row: Mapping[str, Any], question: Question, is_elsewhere: bool) -> Found:
    place = question.place
    wheels = [(_file_of(item), item) for item in row.get("wheels", ())]
    ranked = [
        (rank, file, item) for file, item in wheels if (rank := wheel_rank(file, place.python, place.machine, None))
    ]
    file: str | None
    item: Mapping[str, Any]
    if "vcs" in row:
        vcs = row["vcs"]
        folder = f"#subdirectory={vcs['subdirectory']}" if vcs.get("subdirectory") else ""
        url = f"{vcs['type']}+{vcs['url'].removesuffix('/')}@{vcs['commit-id']}{folder}"
        file, item, is_source = None, {"url": url}, True
    elif "archive" in row:
        item = row["archive"]
        file = _file_of(item)
        is_source = not file.endswith(".whl")
    elif ranked:
        _, file, item = max(ranked, key=lambda entry: entry[:2])
        is_source = False
    else:
        item = row.get("sdist", {})
        file, is_source = _file_of(item), True
    uploaded = item.get("upload-time")
    is_local = "path" in item or str(item.get("url", "")).startswith("file:")
    if is_local:
        item = {**item, "url": f"{LOCAL}{file}"}
    return Found(
        name=row["name"],
        version=str(row.get("version") or "0"),
        file=file,
        sha256=(item.get("hashes") or {}).get("sha256"),
        size=item.get("size"),
        # The user of an address of ssh is part of where it is, and no secret.
        url=item["url"]
        if str(item.get("url", "")).startswith("git+ssh:")
        else without_secrets(item.get("url") or "") or None,
        uploaded=uploaded.isoformat() if uploaded is not None else None,
        is_source=is_source,
        is_addressed=is_local or is_elsewhere or "vcs" in row or "archive" in row,
    )


def _file_of(item: Mapping[str, Any]) -> str:
    named = item.get("name") or unquote(urlsplit(str(item.get("url") or item.get("path") or "")).path)
    return str(named).rpartition("/")[2]


def _last_of_build(text: str) -> str:
    """Return the last lines of a build that say something: before uv's own advice, and after its frame."""
    said = re.split(r"\n\s*(?:hint|help):", text)[0]
    _, stream, tail = said.rpartition("[stderr]")
    lines = [line.strip(" │├╰─▶▸\t") for line in (tail if stream else said).splitlines()]
    kept = [line for line in lines if line]
    # The last line of a traceback says it all; other programs need two.
    count = 1 if kept and re.match(r"[A-Za-z_.]*(?:Error|Exception|Exit)\b", kept[-1]) else 2
    return " / ".join(kept[-count:])[:_SAID_MAX] or "no word"


def _sentences(text: str, question: Question) -> tuple[str, ...]:
    """Return what uv says went wrong, a sentence each, in the words of a stack."""
    fixed = {item.name: item.version for item in question.fixed}

    def held(match: re.Match[str]) -> str:
        version = fixed.get(match[1])
        return match[0] if version is None else f"{match[1]} is {version} here"

    joined = re.sub(r"\n\s+(?!\s|cause:|hint:)", " ", text)
    found: list[str] = []
    for line in joined.splitlines():
        said = re.sub(r"^\s*(?:error|cause|hint|warning):\s*", "", line).strip()
        if said and not said.startswith(_UNSOLVABLE) and not any(flag in said for flag in _FLAGS_OF_UV):
            said = re.sub(r" @ file://\S+", "", _MISSING.sub(held, said))
            found += [_plain(part) for part in re.split(r"(?<=\.)\s+(?=And |Because )", said)]
    told = tuple(dict.fromkeys(filter(None, found)))
    left = len(told) - _STEPS_MAX
    return told if left < 2 else (*told[:1], f"{left} more steps lead on", *told[left + 1 :])


# What uv makes of `name!=1.2.*`.
_LEFT_OUT = re.compile(r"one of: ([a-z0-9-]+)<([0-9.]+)\.dev0 \1>=[0-9.]+\.dev0")


def _plain(sentence: str) -> str:
    """Return a step of uv's proof as a reason of ours: what it stands on; what follows from that is seen by the end."""
    text = re.sub(r"^(?:\(\d+\) )?(?:Because|And because|And) ", "", sentence.strip().removesuffix("."))
    given, _, followed = re.sub(r"\{[^{}]*\}", "", text).partition("we can conclude that")
    given = re.sub(r"(?:^| and )we know from \(\d+\) that .*", "", given)
    given = _LEFT_OUT.sub(r"\1!=\2.*", given)
    return given.strip().removesuffix(",") or (followed.strip() if not text.startswith("we know from") else "")
