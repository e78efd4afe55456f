"""Dockerfiles: instructions, stages, variables, and what each RUN does, every word with its place.

Written here because no parser on the package index keeps the offset of a word through line continuations, comments
inside them, heredocs and the shell inside RUN, which is what a finding points at and a fix replaces.

Source: the Dockerfile reference of Docker, and BuildKit's parser for what the reference leaves open.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from provision.audit.installers import find_install
from provision.audit.model import Base, Command, Environment, Index, Install, Source, Span, Variable, Word
from provision.audit.requirements_file import Reader
from provision.audit.shell import (
    Field,
    Part,
    Scope,
    ShellCommand,
    Text,
    find_heredocs,
    parse_shell,
    words_of,
)
from provision.audit.wrappers import SHELLS, find_script, unwrap
from provision.audit.writes import written_files
from provision.errors import UsageError, shown
from provision.matrix.query import split_reference
from provision.records import NOTHING, record, replace

_KEYWORDS = frozenset(
    (
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    )
)
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$")
_FLAG = re.compile(r"--[a-z][a-z-]*")
_JSON_STRING = r'"((?:[^"\\]|\\.)*)"'
_PLATFORM_ARGS = frozenset(
    f"{side}{part}" for side in ("TARGET", "BUILD") for part in ("PLATFORM", "OS", "ARCH", "VARIANT")
)
# Names that every build knows without ARG; their values come from whoever builds.


class Instruction:
    """One instruction.

    Attributes:
        keyword: In capitals.
        span: The keyword as written.
        flags: Its ``--flag=value`` words, name → value.
        body: What follows, line continuations taken out; heredocs behind a line end.
        start: Where the instruction begins.
        end: Where it ends.
        is_onbuild: It stands behind ONBUILD.
    """

    __slots__ = ("body", "end", "flags", "has_heredoc", "is_onbuild", "keyword", "span", "start")

    def __init__(self, keyword: str, span: Span, body: Text, end: int, *, is_onbuild: bool = False) -> None:
        self.keyword = keyword
        self.span = span
        self.body = body
        self.start = span.start
        self.end = end
        self.flags: list[tuple[str, str]] = []
        self.has_heredoc = False
        self.is_onbuild = is_onbuild


@record
class Dockerfile:
    """A parsed Dockerfile.

    Attributes:
        stages: One environment a stage, in order.
        reads: Names of the files of the build context that were looked into.
        comments: Where comments begin, in order.
        ends: Where instructions begin and end, in order; ignores in a comment count for the next one.
    """

    stages: tuple[Environment, ...]
    reads: tuple[str, ...]
    comments: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]


def split_instructions(source: Source) -> tuple[list[Instruction], list[int], str]:
    """Split a Dockerfile into its instructions.

    Returns:
        The instructions, the offsets of all comments, and the escape character.

    Raises:
        UsageError: A line begins with a word that is not an instruction.
    """
    return _Splitter(source).split()


class _Splitter:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.content.text if isinstance(source, Part) else source.text
        self.at: Sequence[int] = source.content.at if isinstance(source, Part) else range(len(source.text))
        self.pos = 1 if self.text.startswith("\ufeff") else 0
        self.comments: list[int] = []
        self.escape = "\\"

    def split(self) -> tuple[list[Instruction], list[int], str]:
        self._read_directives()
        found = []
        while (line := self._logical()) is not None:
            found.append(self._instruction(line))
        return found, self.comments, self.escape

    def _read_directives(self) -> None:
        position = self.pos
        while position < len(self.text):
            end = self._line_end(position)
            match = _DIRECTIVE.match(self.text[position:end].strip())
            if match is None:
                return
            if match[1].lower() == "escape" and match[2] in ("\\", "`"):
                self.escape = match[2]
            position = end + 1

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end

    def _logical(self) -> Text | None:
        """Return the next instruction without its line ends, ``None`` at the end of the file."""
        pieces: list[tuple[int, int]] = []
        while self.pos < len(self.text):
            start, end = self.pos, self._line_end(self.pos)
            self.pos = min(end + 1, len(self.text))
            line = self.text[start:end]
            bare = line.strip()
            if bare.startswith("#"):
                self.comments.append(self.at[start + line.index("#")])
                continue
            if not bare:
                if self.pos >= len(self.text):
                    break
                continue
            stripped = line.rstrip()
            goes_on = stripped.endswith(self.escape) and not stripped.endswith(self.escape * 2)
            goes_on = goes_on or stripped == self.escape
            if not pieces:
                start += len(line) - len(line.lstrip())
            pieces.append((start, end - len(line) + len(stripped) - (1 if goes_on else 0)))
            if not goes_on:
                break
        if not pieces:
            return None
        text = ""
        at: list[int] = []
        for start, end in pieces:
            text += self.text[start:end]
            at += self.at[start:end]
        # A heredoc's body begins on the line after the last one.
        return Text(text, at)

    def _instruction(self, line: Text) -> Instruction:
        match = re.match(r"\S+", line.text)
        word = match[0] if match else ""
        keyword = word.upper()
        span = line.span(self.source.file, 0, len(word))
        if keyword not in _KEYWORDS:
            raise _fault(self.source, span, f"`{shown(word, 60)}` is not an instruction of a Dockerfile")
        body = line.cut(len(word), len(line.text))
        if keyword == "ONBUILD":
            inner = body.cut(len(body.text) - len(body.text.lstrip()), len(body.text))
            if not inner.text:
                raise _fault(self.source, span, "ONBUILD lacks its instruction")
            made = self._instruction(inner)
            if made.keyword in ("ONBUILD", "FROM", "MAINTAINER"):
                raise _fault(self.source, span, f"ONBUILD does not go with {made.keyword}")
            made.is_onbuild = True
            return made
        made = Instruction(keyword, span, body, line.at[-1] + 1)
        self._read_flags(made)
        if keyword in ("RUN", "COPY", "ADD") and "<<" in made.body.text:
            self._read_heredocs(made)
        return made

    def _read_flags(self, made: Instruction) -> None:
        text, position = made.body.text, 0
        while True:
            while position < len(text) and text[position].isspace():
                position += 1
            match = _FLAG.match(text, position)
            if match is None:
                break
            end = match.end()
            while end < len(text) and not text[end].isspace():
                end += 1
            name, _, value = text[match.start() + 2 : end].partition("=")
            made.flags.append((name, value.strip("\"'")))
            position = end
        made.body = made.body.cut(position, len(text))

    def _read_heredocs(self, made: Instruction) -> None:
        """Append the lines of the heredocs that a line announces."""
        heredocs = find_heredocs(made.body)
        if not heredocs:
            return
        start = self.pos
        for heredoc in heredocs:
            while True:
                if self.pos >= len(self.text):
                    raise _fault(self.source, made.span, f"the heredoc `{shown(heredoc.delimiter, 60)}` has no end")
                begin, end = self.pos, self._line_end(self.pos)
                self.pos = min(end + 1, len(self.text))
                line = self.text[begin:end].removesuffix("\r")
                if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                    break
        body = made.body
        made.body = Text(
            f"{body.text}\n{self.text[start : self.pos]}", [*body.at, self.at[start - 1], *self.at[start : self.pos]]
        )
        made.end = self.at[self.pos - 1] + 1
        made.has_heredoc = True


class _Copied:
    """Files that COPY, ADD or a bind mount put into a stage."""

    __slots__ = ("content", "destination", "is_bind", "sources", "stage")

    def __init__(
        self,
        sources: list[str | None],
        destination: str | None,
        *,
        stage: int | None = None,
        content: Text | None = None,
    ) -> None:
        self.sources = sources
        self.destination = destination
        self.stage = stage
        self.content = content


class _Stage:
    """A stage while it is read."""

    def __init__(self, number: int, name: str, span: Span) -> None:
        self.number = number
        self.name = name
        self.span = span
        self.base: Base | None = None
        self.parent: _Stage | None = None
        self.platform: str | None = None
        self.scope: Scope = {}
        self.environment: dict[str, Variable] = {}
        self.labels: dict[str, Variable] = {}
        self.own_variables: list[Variable] = []
        self.commands: list[Command] = []
        self.installs: list[Install] = []
        self.start: dict[str, tuple[Command, ...]] = {}
        self.user: Word | None = None
        self.folder: str | None = "/"
        self.copies: list[_Copied] = []
        self.copies_from: list[str] = []
        self.downloads: list[Word] = []
        self.shell: tuple[str, ...] = ("/bin/sh", "-c")
        self.configured: list[Index] = []

    def inherit(self, parent: _Stage) -> None:
        self.parent = parent
        self.environment = dict(parent.environment)
        self.scope = {name: item for name, item in parent.scope.items() if item.kind == "env"}
        self.labels = dict(parent.labels)
        self.user = parent.user
        self.folder = parent.folder
        self.start = dict(parent.start)
        self.shell = parent.shell
        self.configured = list(parent.configured)

    def lineage(self) -> Iterator[_Stage]:
        if self.parent is not None:
            yield from self.parent.lineage()
        yield self


def parse_dockerfile(
    source: Source,
    read: Reader,
    *,
    build_args: Mapping[str, str | None] = NOTHING,
    target: str = "",
    context: str | None = None,
    contexts: Mapping[str, str] = NOTHING,
) -> Dockerfile:
    """Read a Dockerfile.

    Args:
        source: Its text.
        read: Finds files of the build context.
        build_args: ``--build-arg``; ``None`` for a value that is not known.
        target: Name or number of the stage that is built, empty for the last.
        context: Folder of the build context. When absent it is the folder of the Dockerfile, or the nearest one around
            it that has what is copied.
        contexts: Named contexts that are images, name → reference.

    Raises:
        UsageError: It is not a Dockerfile; the message says where.
    """
    folder = source.file.rpartition("/")[0] if context is None else context
    return _Builder(source, read, build_args, target, folder, contexts, is_context_open=context is None).build()


class _Builder:
    def __init__(
        self,
        source: Source,
        read: Reader,
        build_args: Mapping[str, str | None],
        target: str,
        context: str,
        contexts: Mapping[str, str],
        *,
        is_context_open: bool,
    ) -> None:
        self.source = source
        self.file = source.file
        self.read = read
        self.build_args = build_args
        self.target = target
        self.context = context
        self.is_context_open = is_context_open
        self.contexts = contexts
        self.escape = "\\"
        self.globals: Scope = {}
        self.stages: list[_Stage] = []
        self.reads: list[str] = []
        self.pipeline = 0

    def build(self) -> Dockerfile:
        instructions, comments, self.escape = split_instructions(self.source)
        handlers: dict[str, Callable[[Instruction, _Stage], None]] = {
            "ADD": self._copy,
            "ARG": self._arg,
            "CMD": self._start,
            "COPY": self._copy,
            "ENTRYPOINT": self._start,
            "ENV": self._env,
            "LABEL": self._label,
            "RUN": self._run,
            "SHELL": self._shell,
            "USER": self._user,
            "WORKDIR": self._workdir,
        }
        for item in instructions:
            if item.keyword == "FROM":
                self._from(item)
            elif not self.stages:
                if item.keyword != "ARG":
                    raise _fault(self.source, item.span, f"{item.keyword} stands before the first FROM")
                self._global_arg(item)
            elif not item.is_onbuild and item.keyword in handlers:
                # What ONBUILD says happens in another build.
                handlers[item.keyword](item, self.stages[-1])
        if not self.stages:
            raise UsageError(f"{self.file} has no FROM", hints=("a Dockerfile begins its stages with `FROM IMAGE`",))
        ends = tuple((item.start, item.end) for item in instructions)
        return Dockerfile(
            stages=tuple(self._environment(stage) for stage in self.stages),
            reads=tuple(dict.fromkeys(self.reads)),
            comments=tuple(comments),
            ends=ends,
        )

    def _environment(self, stage: _Stage) -> Environment:
        lineage = list(stage.lineage())
        base = lineage[0].base
        wanted = self._wanted()
        start = [command for keyword in ("ENTRYPOINT", "CMD") for command in stage.start.get(keyword, ())]
        copies = [item for one in lineage for item in one.copies]
        return Environment(
            kind="stage",
            file=self.file,
            name=stage.name or str(stage.number),
            span=stage.span,
            base=base,
            own_base=stage.parent is None,
            is_final=stage is self.stages[-1],
            is_target=stage is wanted,
            installs=tuple(item for one in lineage for item in one.installs),
            own_installs=tuple(stage.installs),
            commands=tuple(item for one in lineage for item in one.commands),
            own_commands=tuple(stage.commands),
            start=tuple(start),
            variables={**stage.scope, **stage.environment},
            own_variables=tuple(stage.own_variables),
            labels=stage.labels,
            user=stage.user,
            platform=next((one.platform for one in reversed(lineage) if one.platform), None),
            copies_from=tuple(item for one in lineage for item in one.copies_from),
            copied=tuple((source, item.destination) for item in copies for source in item.sources),
            downloads=tuple(stage.downloads),
        )

    def _wanted(self) -> _Stage:
        if not self.target:
            return self.stages[-1]
        for stage in self.stages:
            if self.target.lower() == stage.name.lower() or self.target == str(stage.number):
                return stage
        names = [stage.name for stage in self.stages if stage.name]
        raise UsageError(
            f"{self.file} has no stage `{shown(self.target, 60)}`",
            hints=(f"its stages are {', '.join(names)}" if names else "its stages have no names; a number will do",),
        )

    def _words(self, item: Instruction, scope: Mapping[str, Variable], *, is_empty: bool = False) -> list[Field]:
        line = item.body.text.find("\n") if item.has_heredoc else -1
        body = item.body if line < 0 else item.body.cut(0, line)
        return words_of(body, self.file, scope, is_undefined_empty=is_empty, escape=self.escape)

    def _global_arg(self, item: Instruction) -> None:
        for name, variable in self._declared(item, self.globals):
            self.globals[name] = variable

    def _declared(self, item: Instruction, scope: Scope) -> Iterator[tuple[str, Variable]]:
        """Yield the variables that an ARG declares."""
        for field in self._words(item, scope, is_empty=scope is self.globals):
            if field.content is None:
                written = self.source.cut(field.word.span)
                name = written.partition("=")[0].strip("'\"")
                yield name, self._variable(name, None, "arg", field, len(name) + 1)
                continue
            name, equals, default = field.content.text.partition("=")
            value: str | None
            if name in self.build_args:
                value = self.build_args[name]
            elif equals:
                value = default
            elif scope is not self.globals and name in self.globals:
                value = self.globals[name].value
            else:
                # Whoever builds has to give it, or it stays empty.
                value = None
            yield name, self._variable(name, value, "arg", field, len(name) + 1)

    def _variable(self, name: str, value: str | None, kind: str, field: Field, start: int) -> Variable:
        content = field.content
        if content is None or not content.is_in_place(0, len(name)):
            span = name_span = field.word.span
        else:
            name_span = content.span(self.file, 0, len(name))
            end = field.word.span.end
            span = content.span(self.file, min(start, len(content.text)), len(content.text))
            if not self.source.cut(Span(file=self.file, start=name_span.start, end=end)).count("="):
                span = name_span
            elif span.end > end or span.start < name_span.end:
                span = Span(file=self.file, start=end, end=end)
        return Variable(name=name, value=value, kind=kind, span=span, name_span=name_span)

    def _from(self, item: Instruction) -> None:
        fields = self._words(item, {**self._platform_scope(), **self.globals}, is_empty=True)
        if not fields:
            raise _fault(self.source, item.span, "FROM names no image")
        number = len(self.stages)
        name = ""
        if len(fields) >= 2:
            if len(fields) != 3 or (fields[1].word.text or "").lower() != "as":
                raise _fault(self.source, item.span, "FROM takes `IMAGE [AS NAME]`")
            name = fields[2].word.text or ""
        word = fields[0].word
        stage = _Stage(number, name, word.span)
        platform = dict(item.flags).get("platform", "")
        stage.platform = platform if platform and "$" not in platform else None
        reference = word.text
        parent = next((one for one in self.stages if one.name and one.name.lower() == (reference or "").lower()), None)
        if parent is not None:
            stage.inherit(parent)
        else:
            stage.base = self._base(fields[0])
        self.stages.append(stage)

    def _platform_scope(self) -> Scope:
        nowhere = self.source.span(0, 0)
        return {
            name: Variable(name=name, value=None, kind="arg", span=nowhere, name_span=nowhere)
            for name in _PLATFORM_ARGS
        }

    def _base(self, field: Field) -> Base:
        reference, span = field.word.text, field.word.span
        if reference and reference in self.contexts:
            reference = self.contexts[reference]
        if not reference:
            return Base(reference=None, repository=None, span=span, is_literal=False)
        repository, tag, digest = split_reference(reference)
        tag_span = None
        if field.content is not None and tag and reference == field.content.text:
            end = len(reference) - (len(digest) + 1 if digest else 0)
            if field.content.is_in_place(end - len(tag), end):
                tag_span = field.content.span(self.file, end - len(tag), end)
        return Base(
            reference=reference,
            repository=None if repository == "scratch" else repository,
            tag=tag,
            digest=digest,
            span=span,
            tag_span=tag_span,
            is_literal=field.word.is_literal and reference == field.word.text,
        )

    def _arg(self, item: Instruction, stage: _Stage) -> None:
        for name, variable in self._declared(item, stage.scope):
            if name not in stage.environment:
                stage.scope[name] = variable

    def _env(self, item: Instruction, stage: _Stage) -> None:
        for variable in self._pairs(item, stage.scope, "env"):
            stage.own_variables.append(variable)
            stage.environment[variable.name] = variable
            stage.scope[variable.name] = variable

    def _label(self, item: Instruction, stage: _Stage) -> None:
        for variable in self._pairs(item, stage.scope, "label"):
            stage.labels[variable.name] = variable

    def _pairs(self, item: Instruction, scope: Scope, kind: str) -> list[Variable]:
        fields = self._words(item, scope)
        if not fields:
            return []
        first = fields[0]
        written = self.source.cut(first.word.span)
        if "=" not in written and len(fields) > 1:
            # The old form: the rest of the line is the value.
            known = [field.word.text for field in fields[1:]]
            value = None if None in known else " ".join(text for text in known if text is not None)
            span = Span(file=self.file, start=fields[1].word.span.start, end=fields[-1].word.span.end)
            name = first.word.text or written
            return [Variable(name=name, value=value, kind=kind, span=span, name_span=first.word.span)]
        found = []
        for field in fields:
            if field.content is None:
                raw = self.source.cut(field.word.span)
                name, equals, _ = raw.partition("=")
                if not equals:
                    continue
                start = field.word.span.start
                found.append(
                    Variable(
                        name=name,
                        value=None,
                        kind=kind,
                        span=Span(file=self.file, start=start + len(name) + 1, end=field.word.span.end),
                        name_span=Span(file=self.file, start=start, end=start + len(name)),
                    )
                )
                continue
            name, equals, value = field.content.text.partition("=")
            if equals:
                found.append(self._variable(name, value, kind, field, len(name) + 1))
        return found

    def _user(self, item: Instruction, stage: _Stage) -> None:
        fields = self._words(item, stage.scope)
        if fields:
            stage.user = fields[0].word

    def _workdir(self, item: Instruction, stage: _Stage) -> None:
        fields = self._words(item, stage.scope)
        path = fields[0].word.text if fields else None
        if path is None or (not path.startswith("/") and stage.folder is None):
            stage.folder = None
        else:
            stage.folder = posixpath.normpath(posixpath.join(stage.folder or "/", path))

    def _shell(self, item: Instruction, stage: _Stage) -> None:
        words = _exec_form(item.body, self.file)
        if words is not None:
            stage.shell = tuple(field.word.text or "" for field in words)

    def _copy(self, item: Instruction, stage: _Stage) -> None:
        flags = dict(item.flags)
        fields = _exec_form(item.body, self.file) or self._words(item, stage.scope)
        if len(fields) < 2:
            return
        destination = fields[-1].word.text
        if destination is not None:
            destination = self._absolute(stage, destination, keep_slash=True)
        origin: int | None = None
        if (wanted := flags.get("from")) is not None:
            found = next((one for one in self.stages if one.name and one.name.lower() == wanted.lower()), None)
            if found is None and wanted.isdigit() and int(wanted) < len(self.stages):
                found = self.stages[int(wanted)]
            stage.copies_from.append(str(found.number) if found is not None else wanted)
            origin = found.number if found is not None else -1
        sources: list[str | None] = []
        for field in fields[:-1]:
            text = field.word.text
            if text is not None and text.startswith("<<"):
                continue
            if text is not None and item.keyword == "ADD" and "://" in text.partition("?")[0]:
                # A checksum, or the commit of a repository, is compared by the builder.
                if "checksum" not in flags and not text.partition("#")[0].endswith(".git"):
                    stage.downloads.append(field.word)
                text = None
            sources.append(text)
        if item.has_heredoc:
            for name, content in _heredoc_files(item):
                target = destination
                if target is not None and target.endswith("/"):
                    target += name
                stage.copies.append(_Copied([name], target, content=content))
        if sources:
            stage.copies.append(_Copied(sources, destination, stage=origin))
        if destination is not None:
            self._note_configuration(stage, sources, destination, fields[-1].word.span)

    def _note_configuration(self, stage: _Stage, sources: list[str | None], destination: str, span: Span) -> None:
        """Remember that a configuration of pip or uv came in, which may name any index."""
        for source in sources:
            name = (source or "").rpartition("/")[2] if destination.endswith("/") else destination.rpartition("/")[2]
            if name in ("pip.conf", "pip.ini", "uv.toml", ".pip", ".netrc", ".condarc", ".mambarc"):
                stage.configured.append(Index(kind="extra", url=None, origin="file", span=span))

    def _absolute(self, stage: _Stage, path: str, *, keep_slash: bool = False) -> str | None:
        if not path.startswith("/") and stage.folder is None:
            return None
        # Two slashes at the head mean something else to POSIX; here they come from `cd /`.
        whole = f"/{posixpath.normpath(posixpath.join(stage.folder or '/', path)).lstrip('/')}"
        is_folder = path.endswith(("/", "/.")) or path in (".", "..")
        return f"{whole.rstrip('/')}/" if keep_slash and is_folder else whole

    def _run(self, item: Instruction, stage: _Stage) -> None:
        binds = [found for name, value in item.flags if name == "mount" and (found := self._bind(value, stage))]
        self.pipeline += 10_000_000
        scripts = self._scripts(item, stage)
        if mounts := tuple(value for name, value in item.flags if name == "mount"):
            for one in scripts:
                one.command = replace(one.command, mounts=mounts)
        stage.commands += [one.command for one in scripts]
        for one in scripts:
            self._follow(one, stage)
            finder = self._finder(stage, binds)
            installs = find_install(one, self.file, finder, stage=stage.number)
            stage.installs += [self._configured(install, stage) for install in installs]
            for path, content in () if installs else written_files(one):
                stage.copies.append(_Copied([None], self._absolute(stage, path), content=content))

    def _configured(self, install: Install, stage: _Stage) -> Install:
        if not stage.configured:
            return install
        is_replaced = any(index.kind == "index" for index in stage.configured)
        return replace(
            install,
            indexes=(*install.indexes, *stage.configured),
            has_default_index=install.has_default_index and not is_replaced,
        )

    def _follow(self, found: ShellCommand, stage: _Stage) -> None:
        """Remember ``pip config set``, which later installs go by."""
        texts = [word.text for word in found.command.words]
        if "config" not in texts[:4] or "set" not in texts[:6]:
            if found.writes.rpartition("/")[2] in ("pip.conf", "uv.toml", ".condarc"):
                stage.configured.append(Index(kind="extra", url=None, origin="file", span=found.command.span))
            return
        program = found.command.program or ""
        if not program.startswith(("pip", "python")):
            return
        key_at = texts.index("set") + 1
        keys = {"index-url": "index", "extra-index-url": "extra", "find-links": "find-links"}
        key = texts[key_at] if key_at < len(texts) else None
        kind = keys.get((key or "").rpartition(".")[2])
        if kind is None or key_at + 1 >= len(texts):
            return
        word = found.command.words[key_at + 1]
        urls: list[str | None] = [None] if word.text is None else list(word.text.split())
        stage.configured += [Index(kind=kind, url=url, origin="file", span=word.span) for url in urls]

    def _scripts(self, item: Instruction, stage: _Stage) -> list[ShellCommand]:
        """Return the commands of RUN, CMD or ENTRYPOINT, in shell or exec form."""
        words = None if item.has_heredoc else _exec_form(item.body, self.file)
        if words is not None:
            return self._exec(item, words, stage)
        named = [word.rpartition("/")[2].lower() for word in stage.shell]
        # Around the shell there may be another program: `env bash -c`, `conda run -n base bash -c`.
        is_shell = not SHELLS.isdisjoint(named) or (named and "conda" in named[0] and "run" in named)
        if not is_shell or named[0].removesuffix(".exe") in ("powershell", "pwsh", "cmd"):
            return []
        return parse_shell(
            item.body,
            self.file,
            self._run_scope(stage),
            instruction=item.keyword,
            instruction_span=item.span,
            first_pipeline=self.pipeline,
            shell=" ".join(stage.shell),
        )

    def _exec(self, item: Instruction, words: list[Field], stage: _Stage) -> list[ShellCommand]:
        if not words:
            return []
        scope = self._run_scope(stage)
        command = Command(
            words=tuple(field.word for field in words),
            span=Span(file=self.file, start=words[0].word.span.start, end=words[-1].word.span.end),
            environment=scope,
            pipeline=self.pipeline,
            instruction=item.keyword,
            instruction_span=item.span,
        )
        found = ShellCommand(command, words, scope)
        inner = words[unwrap([field.word.text for field in words])[0] :]
        at = find_script([field.word.text for field in inner])
        script = None if at is None else inner[at].content
        if script is None:
            return [found]
        nested = parse_shell(
            script,
            self.file,
            scope,
            instruction=item.keyword,
            instruction_span=item.span,
            first_pipeline=self.pipeline + 1,
            shell=" ".join(field.word.text or "?" for field in inner[:at]),
        )
        return [found, *nested]

    def _run_scope(self, stage: _Stage) -> Scope:
        """Return what a command sees: ENV, then ARG, then proxies and the like that nobody declared."""
        return {**stage.scope, **stage.environment}

    def _start(self, item: Instruction, stage: _Stage) -> None:
        self.pipeline += 10_000_000
        stage.start[item.keyword] = tuple(one.command for one in self._scripts(item, stage))
        if item.keyword == "ENTRYPOINT":
            stage.start.pop("CMD", None)

    def _bind(self, value: str, stage: _Stage) -> _Copied | None:
        """Return what a bind mount of the build context shows to a RUN."""
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        if parts.get("type", "bind") != "bind":
            return None
        target = parts.get("target") or parts.get("dst") or parts.get("destination")
        if not target or "$" in target:
            return None
        origin = parts.get("from")
        stage_number: int | None = None
        if origin is not None:
            found = next(
                (one for one in self.stages if one.name.lower() == origin.lower() or str(one.number) == origin), None
            )
            stage_number = found.number if found is not None else -1
        source = parts.get("source") or parts.get("src") or "."
        return _Copied([None if "$" in source else source], self._absolute(stage, target), stage=stage_number)

    def _finder(self, stage: _Stage, binds: list[_Copied]) -> Reader:
        """Return a look-up from paths inside the image to files of the build context."""

        def find(path: str) -> Source | None:
            whole = self._absolute(stage, path)
            return None if whole is None else self._locate(stage, whole, binds, 0)

        return find

    def _locate(self, stage: _Stage, path: str, binds: list[_Copied], depth: int) -> Source | None:
        copies = [*(item for one in stage.lineage() for item in one.copies), *binds]
        for item in reversed(copies):
            destination = item.destination
            if destination is None:
                # It may have been put just there.
                return None
            if item.content is not None:
                if destination == path:
                    return Part(self.source, item.content)
                continue
            for source in reversed(item.sources):
                inner = _inside(source, destination, path)
                if inner is None:
                    continue
                if source is None:
                    return None
                if item.stage is not None:
                    if item.stage < 0 or depth > 8:
                        return None
                    origin = self.stages[item.stage]
                    for candidate in inner:
                        whole = self._absolute(origin, f"/{candidate.lstrip('/')}")
                        found = None if whole is None else self._locate(origin, whole, [], depth + 1)
                        if found is not None:
                            return found
                    continue
                for candidate in inner:
                    found = self._from_context(candidate)
                    if found is not None:
                        return found
        return None

    def _from_context(self, path: str) -> Source | None:
        relative = posixpath.normpath(path.lstrip("/") or ".")
        if relative.startswith("..") or any(char in relative for char in "*?["):
            return None
        for folder in self._contexts():
            found = self.read(posixpath.join(folder, relative) if folder else relative)
            if found is not None:
                self.reads.append(found.file)
                return found
        return None

    def _contexts(self) -> Iterator[str]:
        """Yield the folder of the build context; where nobody names it, those around the Dockerfile's own after it."""
        yield self.context
        folder = self.context
        while self.is_context_open and folder.strip("/"):
            folder = folder.rpartition("/")[0]
            if folder or not self.context.startswith("/"):
                yield folder


def _inside(source: str | None, destination: str, path: str) -> list[str] | None:
    """Return where in the build context a path of the image may come from, ``None`` where it does not come from this.

    Whether a source is a file or a folder is not known here, so both are tried.
    """
    folder = destination.rstrip("/")
    if source is None:
        return [] if path == folder or path.startswith(f"{folder}/") else None
    if path == folder and not destination.endswith("/"):
        return [source]
    if not path.startswith(f"{folder}/"):
        return None
    rest = path[len(folder) + 1 :]
    candidates = []
    name = posixpath.basename(source.rstrip("/"))
    if any(char in source for char in "*?["):
        import fnmatch

        if "/" not in rest and fnmatch.fnmatchcase(rest, name):
            candidates.append(posixpath.join(posixpath.dirname(source), rest))
    elif name == rest:
        candidates.append(source)
    candidates.append(posixpath.join(source, rest))
    return candidates


def _heredoc_files(item: Instruction) -> Iterator[tuple[str, Text]]:
    """Yield the documents of a COPY with their names."""
    text = item.body.text
    line_end = text.find("\n")
    position = line_end + 1
    for heredoc in find_heredocs(item.body.cut(0, line_end)):
        start = position
        while position < len(text):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end].removesuffix("\r")
            if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                break
            position = end + 1
        yield heredoc.delimiter, item.body.cut(start, position)
        end = text.find("\n", position)
        position = len(text) if end < 0 else end + 1


def _exec_form(body: Text, file: str) -> list[Field] | None:
    """Return the words of a JSON array, ``None`` where the text is none and therefore a line for the shell."""
    text = body.text.strip()
    if not text.startswith("["):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    fields = []
    for value, match in zip(values, re.finditer(_JSON_STRING, body.text), strict=False):
        at = body.at[match.start(1) : match.end(1)]
        is_plain = match[1] == value
        content = Text(value, list(at) if is_plain else _unescaped(match[1], list(at), value))
        span = body.span(file, match.start(), match.end())
        fields.append(
            Field(content, Word(text=value, span=span, is_literal=is_plain and content.is_in_place(0, len(value))))
        )
    return fields


def _unescaped(raw: str, at: list[int], value: str) -> list[int]:
    """Return where each character of a JSON string stands."""
    found, position = [], 0
    while position < len(raw):
        found.append(at[position])
        if raw[position] != "\\":
            position += 1
        elif raw[position + 1 : position + 2] == "u":
            position += 6
        else:
            position += 2
    # A character beyond the basic plane is written as two escapes.
    return found if len(found) == len(value) else [-1] * len(value)


def _fault(source: Source, span: Span, what: str) -> UsageError:
    place = source.position(span)
    return UsageError(
        f"{place.file}:{place.line}:{place.column}: {what}",
        hints=("`docker build --check` reads the file as Docker does",),
    )
