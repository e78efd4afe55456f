"""Shell text as far as it can be known without running it: simple commands, their words, and where each is written.

Written here because a finding needs the offset of every word, through Docker's line continuations and quotes inside
quotes, and variables that may or may not be known; the parsers on the package index either know no offsets, or carry a
licence that does not go with this one, or bring a compiled grammar that takes longer to load than the command may last.
What is not understood is never guessed: a word that depends on it has no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provision.audit.model import Command, Source, Span, Variable, Word
from provision.audit.wrappers import SHELLS, find_script, reads_input, unwrap

_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>(){}#]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", "<<<", "<<-", "<<", ">>", "&>>", "&>", ">&", "<&", "<>", ">|")
_REDIRECTIONS = frozenset(("<", ">", ">>", "&>", "&>>", ">&", "<&", "<>", ">|", "<<<"))
_RUN_TEXT = SHELLS | {"eval", "su", "runuser"}
"""Programs that may be given a script to run."""
_DEPTH_MAX = 6

_OPENING = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac"}
_CLOSING = frozenset(_OPENING.values())
_SKIPPED = frozenset(("then", "else", "elif", "do", "!", "time", "coproc"))

Scope = dict[str, Variable]


class Text:
    """Characters with the offset in a file that each was read from.

    Attributes:
        text: The characters.
        at: Their offsets; -1 for what came from a variable.
    """

    __slots__ = ("at", "text")

    def __init__(self, text: str, at: list[int]) -> None:
        self.text = text
        self.at = at

    @classmethod
    def of(cls, text: str, start: int, end: int) -> Text:
        """Return a piece of a file."""
        return cls(text[start:end], list(range(start, end)))

    def cut(self, start: int, end: int) -> Text:
        """Return a part."""
        return Text(self.text[start:end], self.at[start:end])

    def span(self, file: str, start: int, end: int) -> Span:
        """Return where a part is written; what came from a variable counts as the place the variable stands at."""
        if start < end and self.at[start] >= 0 and self.at[end - 1] >= 0:
            return Span(file=file, start=self.at[start], end=self.at[end - 1] + 1)
        known = [offset for offset in self.at[start:end] if offset >= 0]
        if known:
            return Span(file=file, start=known[0], end=known[-1] + 1)
        near = next((offset + 1 for offset in reversed(self.at[:start]) if offset >= 0), None)
        if near is None:
            near = next((offset for offset in self.at[end:] if offset >= 0), 0)
        return Span(file=file, start=near, end=near)

    def is_in_place(self, start: int, end: int) -> bool:
        """Tell whether a part stands in the file as it is, in one piece."""
        part = self.at[start:end]
        return bool(part) and part[0] >= 0 and part == list(range(part[0], part[0] + len(part)))


class Part(Source):
    """A document that another file holds: its places are those of that file."""

    __slots__ = ("content",)

    def __init__(self, whole: Source, content: Text) -> None:
        super().__init__(whole.file, whole.text)
        self.content = content


def content_of(source: Source) -> Text:
    """Return the characters of a file, or of the part of one that stands for a file."""
    return source.content if isinstance(source, Part) else Text.of(source.text, 0, len(source.text))


class Field:
    """One word after expansion.

    Attributes:
        content: Its characters, ``None`` where they are not known.
        word: The same for rules.
    """

    __slots__ = ("content", "word")

    def __init__(self, content: Text | None, word: Word) -> None:
        self.content = content
        self.word = word


class Heredoc:
    """A document inside a command: what ends it, and its text once that was read."""

    __slots__ = ("body", "delimiter", "is_quoted", "strips_tabs")

    def __init__(self, delimiter: str, *, strips_tabs: bool, is_quoted: bool) -> None:
        self.delimiter = delimiter
        self.strips_tabs = strips_tabs
        self.is_quoted = is_quoted
        self.body: Text | None = None


class ShellCommand:
    """A command with the characters of its words, for parsers that look into them.

    Attributes:
        command: For rules.
        fields: Its words with their characters.
        scope: Variables in force.
        heredocs: Documents on its standard input.
        folder: Where ``cd`` went before it, relative to where the script began; ``None`` where that is not known.
        writes: Path its standard output goes to, empty for none, ``?`` for one that is not known.
        is_appending: What the path holds already stays.
    """

    __slots__ = ("command", "fields", "folder", "heredocs", "is_appending", "scope", "writes")

    def __init__(self, command: Command, fields: list[Field], scope: Scope) -> None:
        self.command = command
        self.fields = fields
        self.scope = scope
        self.heredocs: list[Heredoc] = []
        self.folder: str | None = ""
        self.writes = ""
        self.is_appending = False


class _Part:
    """A piece of a word: characters, a variable, or something that only running tells."""

    __slots__ = ("alternative", "end", "is_quoted", "kind", "modifier", "start", "text")

    def __init__(self, kind: str, start: int, end: int, *, is_quoted: bool, text: Text | None = None) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.is_quoted = is_quoted
        self.text = text
        self.modifier = ""
        self.alternative: Text | None = None


class _Token:
    __slots__ = ("end", "heredoc", "kind", "parts", "start", "text")

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        self.kind = kind
        self.text = text
        self.start = start
        self.end = end
        self.parts: list[_Part] = []
        self.heredoc: Heredoc | None = None

    @property
    def bare(self) -> str | None:
        """The word where it has no quotes and no variables."""
        if self.kind == "word" and len(self.parts) == 1:
            part = self.parts[0]
            if part.kind == "text" and not part.is_quoted and part.text is not None:
                return part.text.text
        return None


class _Lexer:
    def __init__(self, source: Text, escape: str = "\\", *, is_shell: bool = True) -> None:
        self.source = source
        self.is_shell = is_shell
        self.text = source.text
        self.escape = escape
        self.pos = 0
        self.pending: list[Heredoc] = []

    def tokens(self) -> Iterator[_Token]:
        text, size = self.text, len(self.text)
        if not self.is_shell:
            yield from self._docker_words()
            return
        wants_delimiter: _Token | None = None
        while self.pos < size:
            char = text[self.pos]
            if char == "\n":
                start = self.pos
                self.pos += 1
                self._read_bodies()
                yield _Token("op", "\n", start, start + 1)
                continue
            if char.isspace():
                self.pos += 1
                continue
            if char == "\\" and text.startswith(("\\\n", "\\\r\n"), self.pos):
                self.pos = text.index("\n", self.pos) + 1
                continue
            if char == "#" and (self.pos == 0 or text[self.pos - 1] in " \t\r\n;&|()"):
                end = text.find("\n", self.pos)
                self.pos = size if end < 0 else end
                continue
            operator = self._operator()
            if operator is not None:
                token = _Token("op", operator, self.pos, self.pos + len(operator))
                self.pos = token.end
                if operator in ("<<", "<<-"):
                    wants_delimiter = token
                else:
                    yield token
                continue
            token = self._word()
            if wants_delimiter is not None:
                token = self._heredoc(wants_delimiter, token)
                wants_delimiter = None
            yield token

    def _docker_words(self) -> Iterator[_Token]:
        while self.pos < len(self.text):
            if self.text[self.pos].isspace():
                self.pos += 1
            else:
                yield self._word()

    def _operator(self) -> str | None:
        text, pos = self.text, self.pos
        if text[pos] in ";&|<>":
            if text.startswith(("<(", ">("), pos):
                return None
            for operator in _OPERATORS:
                if text.startswith(operator, pos):
                    return operator
            return text[pos]
        return text[pos] if text[pos] in "()" else None

    def _heredoc(self, operator: _Token, word: _Token) -> _Token:
        delimiter = "".join(part.text.text for part in word.parts if part.text is not None)
        heredoc = Heredoc(
            delimiter, strips_tabs=operator.text == "<<-", is_quoted=any(part.is_quoted for part in word.parts)
        )
        self.pending.append(heredoc)
        token = _Token("heredoc", delimiter, operator.start, word.end)
        token.heredoc = heredoc
        return token

    def _read_bodies(self) -> None:
        for heredoc in self.pending:
            start = self.pos
            while True:
                if self.pos >= len(self.text):
                    stop = self.pos
                    break
                end = self.text.find("\n", self.pos)
                end = len(self.text) if end < 0 else end
                line = self.text[self.pos : end].removesuffix("\r")
                if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                    stop = self.pos
                    self.pos = min(end + 1, len(self.text))
                    break
                self.pos = min(end + 1, len(self.text))
            heredoc.body = self.source.cut(start, stop)
        self.pending.clear()

    def _word(self) -> _Token:
        text, size, start = self.text, len(self.text), self.pos
        token = _Token("word", "", start, start)
        while self.pos < size:
            char = text[self.pos]
            if char.isspace() or (char in ";&|" and self.is_shell):
                break
            if char in "<>" and self.is_shell:
                if text.startswith(("<(", ">("), self.pos):
                    self._substitution(token, self.pos + 2, is_quoted=False)
                    continue
                break
            if char in "()" and self.is_shell:
                # Inside a word, as in an array or a pattern of bash; alone it is an operator.
                if self.pos == start:
                    self.pos += 1
                break
            if char == "'":
                end = text.find("'", self.pos + 1)
                end = size if end < 0 else end
                self._text(token, self.pos + 1, end, is_quoted=True)
                self.pos = min(end + 1, size)
            elif char == '"':
                self.pos += 1
                self._quoted(token)
            elif char == self.escape:
                self._escaped(token, is_quoted=False)
            elif char == "$":
                self._dollar(token, is_quoted=False)
            elif char == "`" and self.is_shell:
                self._backquote(token, is_quoted=False)
            else:
                match = _PLAIN.match(text, self.pos)
                end = match.end() if match else self.pos + 1
                self._text(token, self.pos, end, is_quoted=False)
                self.pos = end
        token.end = self.pos
        return token

    def _text(self, token: _Token, start: int, end: int, *, is_quoted: bool) -> None:
        if token.parts and not is_quoted:
            last = token.parts[-1]
            if last.kind == "text" and not last.is_quoted and last.end == start and last.text is not None:
                last.text = Text(last.text.text + self.text[start:end], last.text.at + self.source.at[start:end])
                last.end = end
                return
        token.parts.append(_Part("text", start, end, is_quoted=is_quoted, text=self.source.cut(start, end)))

    def _escaped(self, token: _Token, *, is_quoted: bool) -> None:
        follows = self.text[self.pos + 1 : self.pos + 2]
        if follows == "\n" or self.text.startswith("\\\r\n", self.pos):
            self.pos = self.text.index("\n", self.pos) + 1
        elif not follows:
            self._text(token, self.pos, self.pos + 1, is_quoted=True)
            self.pos += 1
        elif is_quoted and follows not in '$`"\\':
            self._text(token, self.pos, self.pos + 2, is_quoted=True)
            self.pos += 2
        else:
            self._text(token, self.pos + 1, self.pos + 2, is_quoted=True)
            self.pos += 2

    def _quoted(self, token: _Token) -> None:
        """Read up to the closing double quote."""
        text, size = self.text, len(self.text)
        # An empty pair of quotes is a word too.
        token.parts.append(_Part("text", self.pos, self.pos, is_quoted=True, text=Text("", [])))
        while self.pos < size:
            char = text[self.pos]
            if char == '"':
                self.pos += 1
                return
            if char == self.escape:
                self._escaped(token, is_quoted=True)
            elif char == "$":
                self._dollar(token, is_quoted=True)
            elif char == "`" and self.is_shell:
                self._backquote(token, is_quoted=True)
            else:
                end = self.pos
                while end < size and text[end] not in '"\\$`':
                    end += 1
                end = max(end, self.pos + 1)
                self._text(token, self.pos, end, is_quoted=True)
                self.pos = end

    def _backquote(self, token: _Token, *, is_quoted: bool) -> None:
        end = self.pos + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        end = min(end, len(self.text))
        part = _Part("run", self.pos, end, is_quoted=is_quoted, text=self.source.cut(self.pos + 1, end))
        token.parts.append(part)
        self.pos = min(end + 1, len(self.text))

    def _substitution(self, token: _Token, start: int, *, is_quoted: bool) -> None:
        end = self._closing(start, "(", ")")
        part = _Part("run", self.pos, end, is_quoted=is_quoted, text=self.source.cut(start, end))
        token.parts.append(part)
        self.pos = min(end + 1, len(self.text))

    def _closing(self, start: int, opening: str, closing: str) -> int:
        """Return where the bracket that is open at ``start`` closes."""
        text, size, depth, pos = self.text, len(self.text), 1, start
        while pos < size:
            char = text[pos]
            if char == "\\":
                pos += 1
            elif char == "'" and opening == "(":
                found = text.find("'", pos + 1)
                pos = size if found < 0 else found
            elif char == '"':
                pos += 1
                while pos < size and text[pos] != '"':
                    pos += 2 if text[pos] == "\\" else 1
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    return pos
            pos += 1
        return size

    def _dollar(self, token: _Token, *, is_quoted: bool) -> None:
        text, start = self.text, self.pos
        follows = text[start + 1 : start + 2]
        if follows == "(" and not self.is_shell:
            self._text(token, start, start + 1, is_quoted=is_quoted)
            self.pos = start + 1
        elif text.startswith("$((", start):
            end = self._closing(start + 2, "(", ")")
            token.parts.append(_Part("unknown", start, end, is_quoted=is_quoted))
            self.pos = min(end + 1, len(text))
        elif follows == "(":
            self._substitution(token, start + 2, is_quoted=is_quoted)
        elif follows == "{":
            end = self._closing(start + 2, "{", "}")
            self._braced(token, start + 2, end, is_quoted=is_quoted)
            self.pos = min(end + 1, len(text))
        elif follows == "'" and not is_quoted:
            end = start + 2
            while end < len(text) and text[end] != "'":
                end += 2 if text[end] == "\\" else 1
            end = min(end, len(text))
            if "\\" in text[start + 2 : end]:
                token.parts.append(_Part("unknown", start, end, is_quoted=True))
            else:
                self._text(token, start + 2, end, is_quoted=True)
            self.pos = min(end + 1, len(text))
        elif follows == '"' and not is_quoted:
            self.pos += 2
            self._quoted(token)
        elif match := _NAME.match(text, start + 1):
            part = _Part("variable", start, match.end(), is_quoted=is_quoted, text=self.source.cut(*match.span()))
            token.parts.append(part)
            self.pos = match.end()
        elif follows and follows in "@*#?-$!0123456789":
            token.parts.append(_Part("unknown", start, start + 2, is_quoted=is_quoted))
            self.pos = start + 2
        else:
            self._text(token, start, start + 1, is_quoted=is_quoted)
            self.pos = start + 1

    def _braced(self, token: _Token, start: int, end: int, *, is_quoted: bool) -> None:
        match = _NAME.match(self.text, start, end)
        if match is None:
            token.parts.append(_Part("unknown", start - 2, end, is_quoted=is_quoted))
            return
        part = _Part("variable", start - 2, end, is_quoted=is_quoted, text=self.source.cut(*match.span()))
        rest = match.end()
        for modifier in (":-", ":+", ":=", ":?", "-", "+", "=", "?"):
            if self.text.startswith(modifier, rest) and rest < end:
                part.modifier = modifier
                part.alternative = self.source.cut(rest + len(modifier), end)
                break
        else:
            if rest < end:
                part.kind = "unknown"
        token.parts.append(part)


def find_heredocs(source: Text) -> list[Heredoc]:
    """Return the documents that a line announces, without their text."""
    return [token.heredoc for token in _Lexer(source).tokens() if token.heredoc is not None]


def words_of(
    source: Text, file: str, scope: Mapping[str, Variable], *, is_undefined_empty: bool = False, escape: str = "\\"
) -> list[Field]:
    """Return the words of a line as Docker reads its own instructions: quotes, escapes, variables, nothing else.

    Args:
        source: The line.
        file: The file it is in.
        scope: Variables in force.
        is_undefined_empty: A variable that nobody set is empty, else it is not known.
        escape: The escape character of the file.
    """
    fields = []
    for token in _Lexer(source, escape, is_shell=False).tokens():
        fields += _expand(token, source, file, scope, is_undefined_empty=is_undefined_empty, splits=False)
    return fields


def parse_shell(
    source: Text,
    file: str,
    scope: Scope,
    *,
    instruction: str,
    instruction_span: Span,
    first_pipeline: int = 0,
    depth: int = 0,
    is_certain: bool = True,
    shell: str = "",
) -> list[ShellCommand]:
    """Return the simple commands of a script, in order.

    Args:
        source: The script.
        file: The file it is in.
        scope: Variables in force at its beginning; not changed.
        instruction: ``RUN``, ``CMD`` or ``ENTRYPOINT``.
        instruction_span: Where that word is.
        first_pipeline: Number of its first pipeline.
        depth: How many scripts it is inside.
        is_certain: It surely runs.
        shell: What runs it.
    """
    return _Reader(source, file, scope, instruction, instruction_span, first_pipeline, depth, is_certain, shell).read()


class _Reader:
    def __init__(
        self,
        source: Text,
        file: str,
        scope: Scope,
        instruction: str,
        instruction_span: Span,
        first_pipeline: int,
        depth: int,
        is_certain: bool,
        shell: str,
    ) -> None:
        self.source = source
        self.file = file
        self.scope = dict(scope)
        self.instruction = instruction
        self.instruction_span = instruction_span
        self.pipeline = first_pipeline
        self.depth = depth
        self.is_certain = is_certain
        self.shell = shell
        self.blocks: list[str] = []
        self.scopes: list[tuple[Scope, str | None]] = []
        self.before = ""
        self.folder: str | None = ""
        self.commands: list[ShellCommand] = []

    def read(self) -> list[ShellCommand]:
        tokens = list(_Lexer(self.source).tokens())
        pending: list[_Token] = []
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            if not pending and token.kind == "word" and token.bare is not None:
                skipped = self._keyword(token.bare, tokens, position)
                if skipped is not None:
                    position = skipped
                    continue
            if token.kind != "op":
                pending.append(token)
                continue
            if token.text in _REDIRECTIONS:
                pending.append(token)
                if position < len(tokens) and tokens[position].kind == "word":
                    pending.append(tokens[position])
                    position += 1
                continue
            if token.text == "(":
                position = self._bracket(pending, tokens, position)
                pending = []
                continue
            self._finish(pending)
            pending = []
            if token.text == ")":
                if self.scopes:
                    self.scope, self.folder = self.scopes.pop()
                self.before = ")"
                continue
            if token.text in (";;", ";&", ";;&") and self.blocks and self.blocks[-1] == "case":
                position = self._skip_pattern(tokens, position)
            if token.text not in ("|", "|&"):
                self.pipeline += 1
            self.before = "|" if token.text == "|&" else token.text
        self._finish(pending)
        return self.commands

    def _keyword(self, word: str, tokens: list[_Token], position: int) -> int | None:
        """Handle a word of the grammar; return where to go on, ``None`` where it is a command."""
        if word in _SKIPPED:
            return position
        if word in _OPENING:
            self.blocks.append(word)
            if word in ("for", "select"):
                if position < len(tokens) and (name := tokens[position].bare):
                    self._forget(name)
                while position < len(tokens) and not (tokens[position].kind == "op" and tokens[position].text in ";\n"):
                    if tokens[position].bare == "do":
                        break
                    position += 1
            elif word == "case":
                while position < len(tokens) and tokens[position].bare != "in":
                    position += 1
                position = self._skip_pattern(tokens, position + 1)
            return position
        if word in _CLOSING:
            if self.blocks:
                self.blocks.pop()
            while position < len(tokens) and tokens[position].kind == "word":
                position += 1
            return position
        if word == "function":
            self.blocks.append("{")
            while position < len(tokens) and tokens[position].bare != "{":
                position += 1
            return position + 1
        if word == "{":
            self.blocks.append("group")
            return position
        if word == "}":
            if self.blocks:
                self.blocks.pop()
            return position
        if word == "[[":
            while position < len(tokens) and tokens[position].bare != "]]":
                position += 1
            return position + 1
        return None

    def _skip_pattern(self, tokens: list[_Token], position: int) -> int:
        """Go behind the ``)`` of the next arm of a case, or to its end."""
        start = position
        while position < len(tokens):
            if tokens[position].bare == "esac":
                return position
            if tokens[position].kind == "op" and tokens[position].text == ")":
                return position + 1
            position += 1
        return start

    def _bracket(self, pending: list[_Token], tokens: list[_Token], position: int) -> int:
        """Handle ``(``: a subshell, a function or an array."""
        if pending:
            bare = pending[-1].bare
            closes = position < len(tokens) and tokens[position].kind == "op" and tokens[position].text == ")"
            if closes and bare and len(pending) == 1:
                # A function: what follows runs when it is called, if it is.
                position += 1
                while position < len(tokens) and tokens[position].kind == "op" and tokens[position].text == "\n":
                    position += 1
                if position < len(tokens) and tokens[position].bare == "{":
                    self.blocks.append("{")
                    position += 1
                return position
            if bare and _ASSIGNMENT.match(bare):
                self._forget(bare.partition("=")[0].rstrip("+"))
            while position < len(tokens) and not (tokens[position].kind == "op" and tokens[position].text == ")"):
                position += 1
            return position + 1
        self.scopes.append((dict(self.scope), self.folder))
        return position

    def _forget(self, name: str) -> None:
        place = self.instruction_span
        self.scope[name] = Variable(name=name, value=None, kind="assignment", span=place, name_span=place)

    @property
    def _is_sure(self) -> bool:
        return self.is_certain and self.before != "||" and all(block == "group" for block in self.blocks)

    def _finish(self, tokens: list[_Token]) -> None:
        if not tokens:
            return
        fields: list[Field] = []
        assignments: list[Variable] = []
        substitutes: list[Command] = []
        heredocs: list[Heredoc] = []
        writes = ""
        is_appending = False
        span_start, span_end = tokens[0].start, tokens[-1].end
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            if token.kind == "heredoc":
                if token.heredoc is not None:
                    heredocs.append(token.heredoc)
                continue
            if token.kind == "op":
                if position < len(tokens):
                    if token.text in (">", ">>", "&>", ">|"):
                        target = _expand(tokens[position], self.source, self.file, self.scope)
                        writes = (target[0].word.text or "?") if target else "?"
                        is_appending = token.text == ">>"
                    substitutes += self._substitutes(tokens[position])
                    position += 1
                # A number right before a redirection names a stream.
                if fields and token.start > 0 and (fields[-1].word.text or "").isdigit():
                    last = fields[-1].word.span.end
                    if self.source.at[token.start] == last:
                        fields.pop()
                continue
            substitutes += self._substitutes(token)
            if not fields and (assigned := self._assignment(token)) is not None:
                assignments.append(assigned)
                continue
            fields += _expand(token, self.source, self.file, self.scope)
        if not fields and not heredocs:
            self._assign(assignments)
            self._append_substitutes(substitutes)
            return
        place = self.source.span(self.file, span_start, span_end)
        split = tuple(self._split_words(tokens))
        self._append(fields, assignments, substitutes, heredocs, writes, place, is_appending=is_appending, split=split)

    def _split_words(self, tokens: list[_Token]) -> Iterator[Word]:
        """Yield the words that an operator without spaces around it stands in: the shell redirects there."""
        position = 0
        while position < len(tokens):
            first = last = position
            while last + 2 < len(tokens) and self._are_joined(tokens[last : last + 3]):
                last += 2
            if last > first:
                span = self.source.span(self.file, tokens[first].start, tokens[last].end)
                text = self.source.text[tokens[first].start : tokens[last].end]
                yield Word(text=text, span=span, is_literal=span.end - span.start == len(text))
            position = last + 1

    def _are_joined(self, tokens: list[_Token]) -> bool:
        word, operator, target = tokens
        if word.kind != "word" or operator.kind != "op" or target.kind != "word" or operator.text not in "<>":
            return False
        return word.end == operator.start and operator.end == target.start

    def _append_substitutes(self, substitutes: list[Command]) -> None:
        """Keep what an assignment ran: it is not the program of any command, but it runs."""
        for command in substitutes:
            fields = [
                Field(Text(word.text, [-1] * len(word.text)) if word.text is not None else None, word)
                for word in command.words
            ]
            self.commands.append(ShellCommand(command, fields, dict(self.scope)))

    def _append(
        self,
        fields: list[Field],
        assignments: list[Variable],
        substitutes: list[Command],
        heredocs: list[Heredoc],
        writes: str,
        span: Span,
        *,
        is_appending: bool,
        split: tuple[Word, ...] = (),
    ) -> None:
        scope = {**self.scope, **{item.name: item for item in assignments}}
        if fields:
            span = Span(file=self.file, start=fields[0].word.span.start, end=fields[-1].word.span.end)
        command = Command(
            words=tuple(field.word for field in fields),
            span=span,
            assignments=tuple(assignments),
            before="" if self.before == ")" else self.before,
            pipeline=self.pipeline,
            is_certain=self._is_sure,
            environment=scope,
            instruction=self.instruction,
            instruction_span=self.instruction_span,
            substitutes=tuple(substitutes),
            split=split,
            shell=self.shell,
        )
        found = ShellCommand(command, fields, scope)
        found.heredocs = heredocs
        found.folder = self.folder
        found.writes = writes
        found.is_appending = is_appending
        inner = fields[unwrap([field.word.text for field in fields])[0] :]
        program = (inner[0].word.text or "").rpartition("/")[2] if inner else ""
        if program in _RUN_TEXT or not fields:
            nested = self._nested(found, inner)
            if nested is not None:
                if fields:
                    self.commands.append(found)
                self.commands += nested
                return
        if not fields:
            # A document that nothing reads.
            return
        self.commands.append(found)
        self._effects(found)

    def _nested(self, found: ShellCommand, inner: list[Field]) -> list[ShellCommand] | None:
        """Return the commands of a script inside a command (``sh -c "…"``, ``bash <<EOF``), ``None`` for none."""
        if self.depth >= _DEPTH_MAX:
            return None
        script: Text | None = None
        words = [field.word.text for field in inner]
        shell = " ".join(text or "?" for text in words) or self.shell
        if words and words[0] == "eval":
            script = inner[1].content if len(inner) == 2 else None
            shell = self.shell
        elif (at := find_script(words)) is not None:
            script = inner[at].content
            shell = " ".join(text or "?" for text in words[:at])
        elif reads_input(words):
            script = found.heredocs[-1].body if found.heredocs else None
            if script is not None and script.text.startswith("#!"):
                if not _is_shell_line(script.text):
                    return None
                shell = script.text.partition("\n")[0][2:].strip()
        if script is None:
            return None
        nested = _Reader(
            script,
            self.file,
            found.scope,
            self.instruction,
            self.instruction_span,
            self.pipeline + 1000,
            self.depth + 1,
            found.command.is_certain,
            shell,
        )
        nested.folder = found.folder
        return nested.read()

    def _effects(self, found: ShellCommand) -> None:
        """Follow what a builtin does to variables and the folder."""
        program, words = found.command.program, found.fields[1:]
        if program in ("export", "declare", "readonly", "local", "typeset"):
            for field in words:
                match = _ASSIGNMENT.match(field.word.text or "")
                if match and field.content is not None:
                    value = field.content.text[match.end() :]
                    self._assign([self._variable(match[1], None if match[2] else value, field.word.span)])
        elif program in ("read", "mapfile", "readarray", "unset"):
            for field in words:
                if field.word.text and _NAME.fullmatch(field.word.text):
                    self._forget(field.word.text)
        elif program in ("cd", "pushd"):
            text = words[0].word.text if words else None
            if text is None or not self._is_sure or self.folder is None or text == "-":
                self.folder = None
            else:
                self.folder = text if text.startswith("/") else f"{self.folder}/{text}" if self.folder else text
        elif program == "popd":
            self.folder = None

    def _variable(self, name: str, value: str | None, span: Span) -> Variable:
        return Variable(name=name, value=value, kind="assignment", span=span, name_span=span)

    def _assign(self, assignments: list[Variable]) -> None:
        for item in assignments:
            if self._is_sure:
                self.scope[item.name] = item
            else:
                self._forget(item.name)

    def _assignment(self, token: _Token) -> Variable | None:
        if not token.parts or token.parts[0].kind != "text" or token.parts[0].is_quoted:
            return None
        first = token.parts[0]
        match = _ASSIGNMENT.match(first.text.text) if first.text is not None else None
        if match is None or first.text is None:
            return None
        fields = _expand(token, self.source, self.file, self.scope, splits=False)
        content = fields[0].content if fields else None
        value = None if content is None or match[2] else content.text[match.end() :]
        at = first.start + match.end()
        return Variable(
            name=match[1],
            value=value,
            kind="assignment",
            span=self.source.span(self.file, at, token.end),
            name_span=self.source.span(self.file, first.start, first.start + len(match[1])),
        )

    def _substitutes(self, token: _Token) -> list[Command]:
        if self.depth >= _DEPTH_MAX:
            return []
        found: list[Command] = []
        for part in token.parts:
            if part.kind == "run" and part.text is not None:
                nested = _Reader(
                    part.text,
                    self.file,
                    self.scope,
                    self.instruction,
                    self.instruction_span,
                    self.pipeline + 1000,
                    self.depth + 1,
                    self._is_sure,
                    self.shell,
                )
                found += [item.command for item in nested.read()]
        return found


def _is_shell_line(script: str) -> bool:
    """Tell whether the first line of a script names a shell."""
    words = script.partition("\n")[0][2:].split()
    names = [word.rpartition("/")[2] for word in words]
    return any(name in SHELLS for name in names[:2])


def _expand(
    token: _Token,
    source: Text,
    file: str,
    scope: Mapping[str, Variable],
    *,
    is_undefined_empty: bool = False,
    splits: bool = True,
) -> list[Field]:
    """Return the words that a word becomes: one, or several where an unquoted variable holds blanks."""
    span = source.span(file, token.start, token.end)
    if len(token.parts) == 1 and token.parts[0].kind == "text" and token.parts[0].text is not None:
        # Most words are just text.
        only = token.parts[0].text
        return [Field(only, Word(text=only.text, span=span, is_literal=only.is_in_place(0, len(only.text))))]
    contents: list[tuple[list[str], list[int]]] = [([], [])]
    is_known, is_empty_word = True, all(part.kind == "variable" and not part.is_quoted for part in token.parts)
    for part in token.parts:
        if part.kind == "text" and part.text is not None:
            contents[-1][0].append(part.text.text)
            contents[-1][1].extend(part.text.at)
            continue
        value = _value(part, file, scope, is_undefined_empty=is_undefined_empty)
        if value is None:
            is_known = False
            break
        pieces = value.split() if splits and not part.is_quoted else [value]
        if splits and not part.is_quoted and len(pieces) > 1:
            for number, piece in enumerate(pieces):
                if number:
                    contents.append(([], []))
                contents[-1][0].append(piece)
                contents[-1][1].extend([-1] * len(piece))
        else:
            piece = value if part.is_quoted or not splits else value.strip()
            contents[-1][0].append(piece)
            contents[-1][1].extend([-1] * len(piece))
    if not is_known:
        return [Field(None, Word(text=None, span=span, is_literal=False))]
    fields = []
    for characters, at in contents:
        content = Text("".join(characters), at)
        if is_empty_word and splits and not content.text:
            continue
        is_literal = content.is_in_place(0, len(content.text)) and _is_bare_or_quoted(token)
        fields.append(Field(content, Word(text=content.text, span=span, is_literal=is_literal)))
    return fields


def _is_bare_or_quoted(token: _Token) -> bool:
    parts = [part for part in token.parts if part.text is None or part.text.text]
    return len(parts) <= 1 and all(part.kind == "text" for part in parts)


def _value(part: _Part, file: str, scope: Mapping[str, Variable], *, is_undefined_empty: bool) -> str | None:
    if part.kind != "variable" or part.text is None:
        return None
    variable = scope.get(part.text.text)
    if variable is None and not is_undefined_empty:
        return None
    if variable is not None and variable.value is None:
        return None
    value = variable.value if variable is not None and variable.value is not None else ""
    if not part.modifier or part.alternative is None:
        return value
    is_set = variable is not None and (bool(value) or not part.modifier.startswith(":"))
    if part.modifier.endswith("+"):
        return _flat(part.alternative, file, scope, is_undefined_empty=is_undefined_empty) if is_set else ""
    if is_set:
        return value
    if part.modifier.endswith("?"):
        return None
    return _flat(part.alternative, file, scope, is_undefined_empty=is_undefined_empty)


def _flat(text: Text, file: str, scope: Mapping[str, Variable], *, is_undefined_empty: bool) -> str | None:
    if not text.text:
        return ""
    lexer = _Lexer(text)
    if any(char.isspace() for char in text.text):
        return text.text if not set(text.text) & set("$`\\'\"") else None
    token = lexer._word()
    if lexer.pos < len(text.text):
        return None
    fields = _expand(token, text, file, scope, is_undefined_empty=is_undefined_empty, splits=False)
    return fields[0].content.text if fields and fields[0].content is not None else None
