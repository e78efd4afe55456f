"""Calls of pip, uv, conda and poetry inside a script: what they install, from where, into what."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.audit.model import Index, Install, Source, Span, Variable, Word
from provision.audit.requirement import parse_conda, parse_requirement, pinned_python
from provision.audit.requirements_file import Listing, Reader, read_listing
from provision.audit.shell import Field, ShellCommand, Text, content_of
from provision.audit.wrappers import unwrap
from provision.records import replace

Finder = Reader
"""Path inside the image → the file of the build context that lies there, ``None`` where that is not known."""

_PIP = re.compile(r"pip([0-9](?:\.[0-9]+)?)?")
_PYTHON = re.compile(r"(?:python|pypy)([0-9](?:\.[0-9]+)?)?")
_REFUSED = re.compile(r"(?:[A-Za-z0-9._-]+(?:\[[^\]/]*\])?)?\s*(?:[=<>!~]=?=?|=[<>])(?![=<>])\s*[^/\s]*")
"""A name with an operator and no path: no file can be meant, and what is no requirement then is refused."""
_MINOR = r"(?:.*/)?(?:c?python)?@?([0-9]\.[0-9]+)(?:\.[0-9]+)?(?:/bin/python[0-9.]*)?"
_CONDA = frozenset(("conda", "mamba", "micromamba"))
# What follows lists the flags of the installers by what their value means; a flag that is in none of the tables makes
# the call incomplete.
_MEANING = {
    "-r": "file",
    "--requirement": "file",
    "--requirements": "file",
    "--with-requirements": "file",
    "-c": "constraint",
    "--constraint": "constraint",
    "--constraints": "constraint",
    "--override": "override",
    "--overrides": "override",
    "-P": "upgrade",
    "--upgrade-package": "upgrade",
    "-i": "index",
    "--index-url": "index",
    "--pypi-url": "index",
    "--default-index": "index",
    "--extra-index-url": "extra",
    "--index": "extra",
    "-f": "find-links",
    "--find-links": "find-links",
    "-e": "editable",
    "--editable": "editable",
    "--index-strategy": "strategy",
    "--torch-backend": "backend",
    "-p": "python",
    "--python": "python",
    "--python-version": "python",
    "-t": "target",
    "--target": "target",
    "--prefix": "target",
    "--root": "target",
    "--group": "project",
    "--only-group": "project",
    "--extra": "",
}
_VALUED_WORDS = """
--cache-dir --cert --client-cert --proxy --trusted-host --log --src --progress-bar --exists-action --no-binary
--only-binary --global-option --config-settings --config-setting -C --upgrade-strategy --report --timeout --retries
--root-user-action --use-feature --use-deprecated --keyring-provider --build-option --resume-retries --platform
--implementation --abi --build-constraint --build-constraints -b --link-mode --refresh-package --reinstall-package
--no-build-isolation-package --no-build-package --no-binary-package --exclude-newer --package
--color --directory --project --config-file --allow-insecure-host --prerelease --resolution --fork-strategy
--python-platform --python-preference --no-install-package --no-extra --no-group --upload-time --uploaded-prior-to
--default-timeout --exclude-newer-package --tag --branch --rev --source -d --dest --download --wheel-dir -w
--no-editable-package --only-install-package
"""
_BARE_WORDS = """
-U --upgrade -q --quiet -qq -qqq -v --verbose -vv -vvv --no-cache-dir --user --pre --force-reinstall --no-deps
--no-dependencies --no-index --no-build-isolation --ignore-installed -I --break-system-packages --no-cache -n
--system --no-compile
--compile --compile-bytecode --require-hashes --prefer-binary --no-input --isolated --disable-pip-version-check
--no-warn-script-location --no-warn-conflicts --use-pep517 --no-use-pep517 --check-build-dependencies --no-clean
--dry-run --require-virtualenv --no-color --no-python-version-warning --no-progress --no-build --strict --exact
--reinstall --refresh --no-sources --native-tls --system-certs --offline --frozen --locked --no-dev --dev
--only-dev --no-install-project --no-install-workspace --no-install-local --all-extras --all-groups
--no-default-groups --inexact --no-editable --no-config --no-managed-python --managed-python --no-python-downloads
--active --all-packages --force --allow-existing --ignore-requires-python --no-user --verify-hashes
--no-verify-hashes --no-sync --raw --bounds --workspace --no-workspace --debug --require-scripts
--ignore-requires-hashes --no-require-hashes --progress --no-annotate --no-header --preview --exists --no-strict
--script --trusted --build-isolation
"""
_CONDA_MEANING = {
    "-c": "channel",
    "--channel": "channel",
    "-n": "target",
    "--name": "target",
    "-p": "target",
    "--prefix": "target",
    "-f": "file",
    "--file": "file",
}
_CONDA_BARE_WORDS = """
-y --yes -q --quiet --json -v --verbose -vv --override-channels --strict-channel-priority --no-channel-priority
--freeze-installed --update-deps --no-update-deps --no-deps --only-deps --update-all --force-reinstall --copy
--no-pin --no-py-pin --dry-run -d --download-only --offline --use-local --insecure -k --dev --prune --all
--use-index-cache -C --clobber --show-channel-urls --no-default-packages --no-shortcuts --debug --satisfied-skip
--no-rc --no-env --safety-checks --update-specs -S --no-banner --mkdir --solver-verbose --always-yes -U --upgrade
--update --force
"""
_CONDA_VALUED_WORDS = """
--repodata-fn --experimental --solver --root-prefix -r --rc-file --platform --channel-priority --subdir --subdirs
--log-level --clone --revision --cacert --ssl-verify
"""
_VALUED = frozenset(_VALUED_WORDS.split())
_BARE = frozenset(_BARE_WORDS.split())
_CONDA_BARE = frozenset(_CONDA_BARE_WORDS.split())
_CONDA_VALUED = frozenset(_CONDA_VALUED_WORDS.split())


class _Call:
    """The words of an installer, gathered one by one."""

    def __init__(self, found: ShellCommand, file: str, find: Finder) -> None:
        self.found = found
        self.file = file
        self.find = find
        self.listing = Listing()
        self.flag_indexes: list[Index] = []
        self.flags: set[str] = set()
        self.python: str | None = None
        self.target = ""
        self.strategy = ""
        self.is_complete = True
        self.refused: list[Word] = []
        self.has_unknown_flag = False
        self.overrides = False

    def take_file(self, field: Field, *, is_constraint: bool = False) -> None:
        """Read a file that a flag names."""
        path = field.word.text
        source = None if path is None else self._read(path)
        if source is None:
            self.is_complete = False
            return
        content = content_of(source)
        inner = read_listing(content, source, self.find, variables=self.found.scope)
        self.listing.take(inner, is_constraint=is_constraint)

    def _read(self, path: str) -> Source | None:
        if "://" in path or path == "-" or path.startswith("/dev/"):
            return None
        if path.startswith("/"):
            return self.find(path)
        folder = self.found.folder
        return None if folder is None else self.find(f"{folder}/{path}" if folder else path)

    def take_bound(self, field: Field) -> None:
        """Read a package that is to be upgraded; versions behind its name bound it."""
        found = None if field.content is None else parse_requirement(field.content, self.file)
        if found is None:
            self.is_complete = False
        elif found.specifier:
            self.listing.constraints.append(found)

    def take_requirement(self, field: Field, *, ecosystem: str = "pypi") -> None:
        """Read a word that names what to install."""
        if field.content is None:
            self.is_complete = False
            return
        parse = parse_conda if ecosystem == "conda" else parse_requirement
        found = parse(field.content, self.file, is_literal=field.word.is_literal)
        if found is None:
            # A path, or something that the installer itself will refuse.
            self.is_complete = False
            if ecosystem == "pypi" and not self.has_unknown_flag and _REFUSED.fullmatch(field.content.text):
                self.refused.append(field.word)
            return
        if found.span.start == found.span.end:
            found = replace(found, span=field.word.span, name_span=field.word.span, specifier_span=field.word.span)
        self.listing.requirements.append(found)


def find_install(found: ShellCommand, file: str, find: Finder, *, stage: int = 0) -> list[Install]:
    """Return what one command installs; nothing for every other command.

    Args:
        found: The command.
        file: The file it stands in.
        find: Finds the files that its words name.
        stage: Number of the stage.
    """
    start, is_open = unwrap([field.word.text for field in found.fields])
    fields = found.fields[start:]
    if not fields or fields[0].word.text is None:
        return []
    path = fields[0].word.text
    program = path.rpartition("/")[2]
    words = fields[1:]
    call = _Call(found, file, find)
    call.is_complete = not is_open
    if (match := _PIP.fullmatch(program)) is not None:
        call.python = match[1] if match[1] and "." in match[1] else None
        return _pip(call, [fields[0]], words, stage, path)
    if (match := _PYTHON.fullmatch(program)) is not None:
        rest = words
        while rest and rest[0].word.text in ("-u", "-I", "-E", "-s", "-S", "-B", "-X", "-W"):
            rest = rest[1:]
        if len(rest) >= 2 and rest[0].word.text == "-m" and rest[1].word.text == "pip":
            call.python = match[1] if match[1] and "." in match[1] else None
            return _pip(call, [fields[0], rest[1]], rest[2:], stage, path)
        if len(rest) >= 2 and rest[0].word.text == "-m" and rest[1].word.text == "uv":
            return _uv(call, [fields[0], rest[1]], rest[2:], stage)
        return []
    if program == "uv":
        return _uv(call, [fields[0]], words, stage)
    if program in _CONDA:
        return _conda(call, fields[0], words, stage)
    if program == "pip-sync":
        for field in words:
            if field.word.text is None or not field.word.text.startswith("-"):
                call.take_file(field)
        return [_make(call, "pip", "pip-sync", [fields[0]], None, stage)]
    if program in ("poetry", "pdm", "pipenv"):
        return _project(call, fields[0], words, stage)
    return []


def _pip(call: _Call, head: list[Field], words: list[Field], stage: int, path: str) -> list[Install]:
    position = 0
    while position < len(words) and (words[position].word.text or "").startswith("-"):
        position += 2 if words[position].word.text in _VALUED or words[position].word.text == "--python" else 1
    if position >= len(words) or words[position].word.text not in ("install", "download", "wheel"):
        return []
    verb = words[position]
    call.target = _venv_of(path)
    _read_words(call, [*words[:position], *words[position + 1 :]])
    name = f"pip {verb.word.text}"
    made = _make(call, "pip", name, [*head, verb], verb, stage)
    return [replace(made, is_dry=made.is_dry or verb.word.text != "install")]


def _uv(call: _Call, head: list[Field], words: list[Field], stage: int) -> list[Install]:
    position = 0
    while position < len(words) and (words[position].word.text or "").startswith("-"):
        position += 2 if words[position].word.text in _VALUED else 1
    words = words[position:]
    verbs = [field.word.text for field in words[:2]]
    if verbs[:1] == ["pip"] and len(verbs) == 2 and verbs[1] in ("install", "sync"):
        verb = words[1]
        if verbs[1] == "sync":
            for field in words[2:]:
                if field.word.text is None or not field.word.text.startswith("-"):
                    call.take_file(field)
            words = [field for field in words if (field.word.text or "-").startswith("-")]
            _read_words(call, words)
        else:
            _read_words(call, words[2:])
        return [
            _make(
                call,
                "uv",
                f"uv pip {verbs[1]}",
                [*head, words[0] if verbs[1] == "install" else verb, verb],
                verb,
                stage,
            )
        ]
    if verbs[:1] == ["add"]:
        _read_words(call, words[1:])
        call.is_complete = False
        return [_make(call, "uv", "uv add", [*head, words[0]], words[0], stage)]
    if verbs[:1] == ["sync"]:
        _read_words(call, words[1:])
        return [_from_project(call, "uv", "uv sync", [*head, words[0]], words[0], stage)]
    return []


def _project(call: _Call, head: Field, words: list[Field], stage: int) -> list[Install]:
    verb = next((field for field in words if not (field.word.text or "").startswith("-")), None)
    if verb is None or head.word.text is None:
        return []
    program = head.word.text.rpartition("/")[2]
    if verb.word.text in ("install", "sync"):
        return [_from_project(call, program, f"{program} {verb.word.text}", [head, verb], None, stage)]
    if verb.word.text == "add":
        for field in words[words.index(verb) + 1 :]:
            if not (field.word.text or "-").startswith("-"):
                call.take_requirement(field)
        call.is_complete = False
        return [_make(call, program, f"{program} add", [head, verb], None, stage)]
    return []


def _from_project(
    call: _Call, installer: str, command: str, head: list[Field], verb: Field | None, stage: int
) -> Install:
    """Return an install of what a pyproject and its lock say."""
    from provision.audit.project import read_project

    folder = call.found.folder
    prefix = "" if not folder else f"{folder}/"
    lock_name = {"uv": "uv.lock", "poetry": "poetry.lock"}.get(installer)
    pyproject = None if folder is None else call.find(f"{prefix}pyproject.toml")
    lock = None if folder is None or lock_name is None else call.find(f"{prefix}{lock_name}")
    made = _make(call, installer, command, head, verb, stage)
    if pyproject is None and lock is None:
        return replace(made, is_complete=False)
    project = read_project(pyproject, lock)
    return replace(
        made,
        requirements=made.requirements + project.requirements,
        indexes=made.indexes + project.indexes,
        has_default_index=made.has_default_index and project.has_default_index,
        is_complete=made.is_complete and project.is_complete,
    )


def _read_words(call: _Call, words: list[Field]) -> None:
    position = 0
    only_names = False
    while position < len(words):
        field = words[position]
        position += 1
        text = field.word.text
        if text is None:
            call.is_complete = False
            continue
        if only_names or not text.startswith("-") or text == "-":
            call.take_requirement(field)
            continue
        if text == "--":
            only_names = True
            continue
        flag, equals, _ = text.partition("=")
        value: Field | None = None
        if flag not in _MEANING and flag not in _VALUED and flag not in _BARE and not flag.startswith("--"):
            flag, value = _short_flag(field, text)
        elif equals and flag.startswith("--"):
            value = _part_of(field, len(flag) + 1)
        if flag in _BARE:
            call.flags.add(flag)
            continue
        if value is None and (flag in _MEANING or flag in _VALUED):
            value = words[position] if position < len(words) else None
            position += 1
        if flag in _VALUED:
            continue
        if flag not in _MEANING:
            call.is_complete = False
            # The next word may be its value.
            call.has_unknown_flag = True
            continue
        if value is None:
            call.is_complete = False
            continue
        _take_flag(call, flag, value)


def _short_flag(field: Field, text: str) -> tuple[str, Field | None]:
    """Read ``-rfile`` and ``-Uq``: a short flag with its value behind it, or several at once."""
    if text[:2] in _MEANING or text[:2] in _VALUED:
        return text[:2], _part_of(field, 3 if text[2:3] == "=" else 2)
    if all(f"-{letter}" in _BARE for letter in text[1:]):
        return "-q", None
    last = f"-{text[-1]}"
    if last in _MEANING and all(f"-{letter}" in _BARE for letter in text[1:-1]):
        return last, None
    return text, None


def _part_of(field: Field, start: int) -> Field:
    content = field.content
    if content is None:
        return field
    part = content.cut(start, len(content.text))
    span = part.span(field.word.span.file, 0, len(part.text)) if part.text else field.word.span
    if span.start == span.end:
        span = field.word.span
    return Field(part, replace(field.word, text=part.text, span=span))


def _take_flag(call: _Call, flag: str, value: Field) -> None:
    meaning = _MEANING[flag]
    text = value.word.text
    if meaning in ("index", "extra", "find-links"):
        url = text
        if meaning == "extra" and url and "=" in url.partition("://")[0]:
            # An index of uv can carry a name.
            url = url.partition("=")[2]
        call.flag_indexes.append(Index(kind=meaning, url=url, span=value.word.span))
    elif meaning == "backend":
        call.flag_indexes.append(Index(kind="backend", url=text, span=value.word.span))
    elif meaning == "file":
        if text is not None and text.rpartition("/")[2] in ("pyproject.toml", "setup.py", "setup.cfg"):
            call.is_complete = False
        else:
            call.take_file(value)
    elif meaning in ("constraint", "override"):
        call.take_file(value, is_constraint=True)
    elif meaning == "upgrade":
        call.take_bound(value)
    elif meaning == "editable":
        if value.content is None or not (text or "").startswith(("git+", "http")):
            call.is_complete = False
        else:
            call.take_requirement(value)
    elif meaning == "strategy":
        call.strategy = text or "?"
    elif meaning == "python":
        match = re.fullmatch(_MINOR, text or "")
        call.python = match[1] if match else call.python
        if match is None and text:
            call.target = call.target or _venv_of(text)
    elif meaning == "target":
        call.target = text or "?"
    elif meaning == "project":
        call.is_complete = False


def _venv_of(path: str) -> str:
    """Return the environment that a program lies in: what is before ``/bin/``, empty for the system's own folders."""
    folder = path.rpartition("/")[0]
    if not folder.endswith("/bin") or folder in ("/usr/bin", "/usr/local/bin", "/bin"):
        return ""
    return folder.removesuffix("/bin")


def variable_indexes(installer: str, scope: Mapping[str, Variable]) -> tuple[list[Index], bool]:
    """Return the indexes that variables name, and whether they replace the default one.

    Args:
        installer: ``pip`` or ``uv``.
        scope: Variables in force.
    """
    table = {
        "pip": {"PIP_INDEX_URL": "index", "PIP_EXTRA_INDEX_URL": "extra", "PIP_FIND_LINKS": "find-links"},
        "uv": {
            "UV_INDEX": "extra",
            "UV_DEFAULT_INDEX": "index",
            "UV_INDEX_URL": "index",
            "UV_EXTRA_INDEX_URL": "extra",
            "UV_FIND_LINKS": "find-links",
            "UV_TORCH_BACKEND": "backend",
        },
    }.get(installer, {})
    found = []
    for name, kind in table.items():
        variable = scope.get(name)
        if variable is None or variable.value == "":
            continue
        urls: list[str | None] = [None] if variable.value is None else list(variable.value.split())
        for url in urls:
            address = url.partition("=")[2] if url and "=" in url.partition("://")[0] else url
            found.append(Index(kind=kind, url=address, origin="environment", span=variable.span))
    return found, any(index.kind == "index" for index in found)


def _make(call: _Call, installer: str, command: str, head: list[Field], verb: Field | None, stage: int) -> Install:
    scope = call.found.scope
    from_variables, _ = variable_indexes(installer, scope)
    is_replaced = {index.kind for index in call.flag_indexes}
    # A flag stands before the variable of the same meaning.
    inherited = [index for index in from_variables if index.kind not in is_replaced]
    indexes = [*call.flag_indexes, *call.listing.indexes, *inherited]
    constraints = list(call.listing.constraints)
    is_complete = call.is_complete and call.listing.is_complete
    for name in ("PIP_CONSTRAINT",) if installer == "pip" else ("UV_CONSTRAINT", "UV_OVERRIDE"):
        variable = scope.get(name)
        if variable is not None and variable.value != "":
            for path in (variable.value or "?").split():
                source = call.find(path)
                if source is None:
                    is_complete = False
                    continue
                content = content_of(source)
                constraints += read_listing(content, source, call.find, variables=scope).requirements
    span = Span(file=call.file, start=head[0].word.span.start, end=head[-1].word.span.end)
    has_no_index = "--no-index" in call.flags or call.listing.has_no_index
    return Install(
        installer=installer,
        command=command,
        requirements=tuple(call.listing.requirements),
        constraints=tuple(constraints),
        indexes=tuple(indexes),
        has_default_index=not has_no_index and not any(index.kind == "index" for index in indexes),
        has_no_index=has_no_index,
        has_no_deps="--no-deps" in call.flags or "--no-dependencies" in call.flags,
        is_dry="--dry-run" in call.flags,
        is_build_isolated="--no-build-isolation" not in call.flags and not _is_false(scope, "PIP_NO_BUILD_ISOLATION"),
        is_complete=is_complete,
        refused=tuple(call.refused),
        is_index_known=call.is_complete and call.listing.is_index_known,
        is_certain=call.found.command.is_certain,
        index_strategy=call.strategy or _known(scope, "UV_INDEX_STRATEGY"),
        python=call.python,
        target=call.target,
        stage=stage,
        environment=scope,
        span=span,
        flags_at=_behind(verb),
    )


def _behind(verb: Field | None) -> Span | None:
    if verb is None or not verb.word.is_literal:
        return None
    # A quote behind the word would swallow the flag.
    content = verb.content
    end = content.at[-1] + 1 if content is not None and content.at else verb.word.span.end
    return Span(file=verb.word.span.file, start=end, end=end) if end == verb.word.span.end else None


def _known(scope: Mapping[str, Variable], name: str) -> str:
    variable = scope.get(name)
    return "" if variable is None else variable.value if variable.value is not None else "?"


def _is_false(scope: Mapping[str, Variable], name: str) -> bool:
    """Tell whether a variable of pip switches build isolation off: ``0``, by an old accident ``1`` too."""
    return _known(scope, name) in ("0", "1", "false", "true", "no", "yes", "off", "on", "False", "True")


def _conda(call: _Call, head: Field, words: list[Field], stage: int) -> list[Install]:
    position = 0
    while position < len(words) and (words[position].word.text or "").startswith("-"):
        flag = words[position].word.text or ""
        position += 2 if flag in _CONDA_VALUED or (flag in _CONDA_MEANING and "=" not in flag) else 1
    if position >= len(words):
        return []
    verbs = [field.word.text for field in words[position : position + 2]]
    if verbs[0] == "env" and len(verbs) == 2 and verbs[1] in ("create", "update"):
        verb, start = words[position + 1], position + 2
    elif verbs[0] in ("install", "create", "update"):
        verb, start = words[position], position + 1
    else:
        return []
    is_environment = verbs[0] == "env"
    channels: list[Index] = []
    rest = [*words[:position], *words[start:]]
    position = 0
    while position < len(rest):
        field = rest[position]
        position += 1
        text = field.word.text
        if text is None:
            call.is_complete = False
            continue
        if not text.startswith("-"):
            call.take_requirement(field, ecosystem="conda")
            continue
        flag, equals, _ = text.partition("=")
        if flag in _CONDA_BARE or flag in _CONDA_VALUED:
            position += flag in _CONDA_VALUED and not equals
            continue
        value = _part_of(field, len(flag) + 1) if equals else None
        if flag not in _CONDA_MEANING and text[:2] in _CONDA_MEANING and not text.startswith("--"):
            flag, value = text[:2], _part_of(field, 2)
        meaning = _CONDA_MEANING.get(flag)
        if meaning is None:
            call.is_complete = call.is_complete and all(f"-{letter}" in _CONDA_BARE for letter in text[1:])
            continue
        if value is None:
            value = rest[position] if position < len(rest) else None
            position += 1
        if value is None:
            call.is_complete = False
        elif meaning == "channel":
            channels.append(Index(kind="channel", url=value.word.text, span=value.word.span))
        elif meaning == "target":
            call.target = value.word.text or "?"
        else:
            _take_conda_file(call, value, channels)
    if is_environment and not call.listing.sources:
        call.is_complete = False
    span = Span(file=call.file, start=head.word.span.start, end=verb.word.span.end)
    program = (head.word.text or "conda").rpartition("/")[2]
    requirements = tuple(call.listing.requirements)
    python = next((item.specifier for item in requirements if item.name == "python" and item.ecosystem == "conda"), "")
    return [
        Install(
            installer="conda",
            command=f"{program} {verbs[0]} {verbs[1]}" if is_environment else f"{program} {verbs[0]}",
            requirements=requirements,
            indexes=(*channels, *call.listing.indexes),
            has_default_index=not any((field.word.text == "--override-channels") for field in rest),
            is_complete=call.is_complete and call.listing.is_complete,
            is_certain=call.found.command.is_certain,
            python=pinned_python(python),
            target=call.target,
            stage=stage,
            environment=call.found.scope,
            span=span,
            flags_at=_behind(verb),
        )
    ]


def _take_conda_file(call: _Call, value: Field, channels: list[Index]) -> None:
    path = value.word.text
    source = None if path is None else call._read(path)
    if source is None:
        call.is_complete = False
        return
    if path is not None and path.endswith((".yml", ".yaml")):
        from provision.audit.conda import read_conda_file

        listing = read_conda_file(source, call.find)
        call.listing.take(listing.as_listing(), is_constraint=False)
        channels += listing.channels
        call.target = call.target or listing.name
        return
    for start, end in _plain_lines(source.text):
        found = parse_conda(Text.of(source.text, start, end), source.file)
        if found is None:
            call.is_complete = False
        else:
            call.listing.requirements.append(found)
    call.listing.sources.append(source.file)


def _plain_lines(text: str) -> list[tuple[int, int]]:
    found, position = [], 0
    for line in text.splitlines(keepends=True):
        bare = line.partition("#")[0].rstrip()
        if bare.strip() and not bare.startswith("@"):
            found.append((position, position + len(bare)))
        position += len(line)
    return found
