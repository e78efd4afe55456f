"""What an audit reads and what it says: the contract between the parsers, the rules and the reports.

How the parts fit together::

    text ──► a parser ──► Document ──► Environment(s) ──► every rule ──► Finding(s) ──► a report, a fix

A *source* is the text of one file. A *span* is a pair of character offsets into it, so a parser can say exactly where a
word stands and a fix can replace just that word; lines and columns are worked out when something is printed.

An *environment* is what one rule call judges: one stage of a Dockerfile with everything it inherits, one requirements
file, one conda environment, one set of dependencies of a pyproject, one service of a compose file, one built image. A
parser fills in what is written. What follows from it by the facts (the operating system of a base, its Python, whether
nvcc is there) is filled in too, and is ``None`` where nobody knows: a rule must not report what rests on a ``None``.

How to write a rule: a module in ``provision.audit.rules``, named after what it finds (``base_has_no_digest.py``), that
has the attributes of :class:`Rule`::

    ID = "B03"          # its row in compat/audit_rules.toml: the module, severity, title, why, remedy, sources

    def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
        base = environment.base
        if base is not None and base.repository is not None and base.digest is None:
            yield found(matrix, ID, span=base.span, message="…", reasons=("…",), hint="…")

Its examples, files that fail and files that pass, are in ``tests/corpus/rules/``; its doc page is made of that row and
them. ``check`` is called once for every environment; the engine drops
equal findings (same rule, span and message), so a stage that inherits an install may report it again without harm.
Facts come from ``matrix`` and nowhere else.
``Finding.edits`` holds only changes that cannot make anything worse; they must make the finding go away.
Spans: ``requirement.span`` is the whole requirement as written, without quotes; ``requirement.specifier_span`` its
versions, ``requirement.name_span`` its name and extras. Edit a requirement only where ``requirement.is_literal``.
To add a flag to a command, insert at ``install.flags_at``: an empty span behind the word ``install``, in a requirements
file one at its head, where an option needs a line of its own. ``install.flag_text("--index-url URL")`` gives the text
to insert in either.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Protocol

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.records import NOTHING, record

ERROR, WARN, INFO = "error", "warn", "info"
SEVERITIES = (INFO, WARN, ERROR)
"""From the mildest to the gravest."""


class NotJudgedError(UsageError):
    """A file is of another kind than its name says; what else was asked for is done all the same."""


@record
class Span:
    """A piece of a file: character offsets, the end not included. Empty where something is to be inserted."""

    file: str
    start: int
    end: int


@record
class Position:
    """A place for people: line and column count from 1, ``length`` is that of the part on this line."""

    file: str
    line: int
    column: int
    length: int
    text: str


class Source:
    """The text of one file, and lines for its offsets.

    Args:
        file: The name as it was typed; spans carry it.
        text: The whole contents, line ends as they are on disk.
    """

    __slots__ = ("_starts", "file", "text")

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self._starts: list[int] = []

    def position(self, span: Span) -> Position:
        """Return where a span begins, and the line it begins on."""
        if not self._starts:
            at = -1
            self._starts = [0]
            while (at := self.text.find("\n", at + 1)) >= 0:
                self._starts.append(at + 1)
        line = bisect_right(self._starts, span.start) - 1
        start = self._starts[line]
        end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self.text)
        whole = self.text[start:end].rstrip("\r")
        skipped = 1 if start == 0 and whole.startswith("\ufeff") else 0
        return Position(
            file=self.file,
            line=line + 1,
            column=max(span.start - start - skipped, 0) + 1,
            length=max(min(span.end, start + len(whole)) - span.start, 0),
            text=whole[skipped:],
        )

    def span(self, start: int, end: int) -> Span:
        """Return a span of this file."""
        return Span(file=self.file, start=start, end=end)

    def cut(self, span: Span) -> str:
        """Return the text of a span."""
        return self.text[span.start : span.end]


@record
class Word:
    """A word of a command or a value of an instruction.

    Attributes:
        text: What the program sees, after quotes and variables; ``None`` where that is not known before it runs.
        span: Where it is written, with its quotes.
        is_literal: No quote, escape or variable changed anything but quotes around the whole word: the text stands in
            the file as it is.
    """

    text: str | None
    span: Span
    is_literal: bool = True


@record
class Variable:
    """A variable that is set: ENV, ARG, ``NAME=value`` before a command, ``environment:`` of a service.

    ``value`` is ``None`` where it is not known. ``kind`` is ``env``, ``arg``, ``assignment`` (for one command) or
    ``base`` (from the configuration of a built image). ``span`` is the value as written, ``name_span`` the name.
    """

    name: str
    value: str | None
    kind: str
    span: Span
    name_span: Span


@record
class Command:
    """One simple command of a RUN, CMD or ENTRYPOINT, or of a heredoc that a shell runs.

    Attributes:
        words: The program and its arguments, assignments before it and redirections left out.
        span: From the first word to the last.
        assignments: ``NAME=value`` before the program.
        before: The operator that leads to it, empty at the beginning: ``&&``, ``||``, ``;``, ``|``, ``&`` or a newline.
        pipeline: Commands joined by ``|`` share this number.
        is_certain: It surely runs: it is neither behind ``||`` nor inside ``if``, a loop, ``case`` or a function.
        environment: The variables in force: ENV and ARG of the stage, exports before it, its assignments.
        instruction: ``RUN``, ``CMD`` or ``ENTRYPOINT``.
        instruction_span: The word RUN, CMD or ENTRYPOINT.
        substitutes: It holds a command or process substitution (``$(…)``, ``<(…)``).
        split: Words that a redirection takes apart, ``torch>=2.0`` for one, whole as they stand there.
        shell: What runs it (``/bin/bash -c``), by SHELL, by the words around it or by its first line; empty where
            nobody tells, as in a script.
        mounts: What ``--mount`` of its RUN says.
    """

    words: tuple[Word, ...]
    span: Span
    assignments: tuple[Variable, ...] = ()
    before: str = ""
    pipeline: int = 0
    is_certain: bool = True
    environment: Mapping[str, Variable] = NOTHING
    instruction: str = "RUN"
    instruction_span: Span
    substitutes: tuple[Command, ...] = ()
    split: tuple[Word, ...] = ()
    shell: str = ""
    mounts: tuple[str, ...] = ()

    @property
    def program(self) -> str | None:
        """The program's name without its folder (``curl`` for ``/usr/bin/curl``), ``None`` where it is not known."""
        text = self.words[0].text if self.words else None
        return None if text is None else text.rpartition("/")[2]


@record
class Requirement:
    """A distribution that somebody asks an installer for.

    Attributes:
        name: Normalised name (``torch``, ``flash-attn``). Conda's ``pytorch`` keeps conda's name.
        extras: Normalised extras.
        specifier: PEP 440 clauses as written without spaces (``>=2.1,<2.3``, ``==2.1.2+cu118``), empty for any. Conda's
            are put in PEP 440 form where they have one.
        version: The exact version, where one clause pins it: ``==2.1.2+cu118`` (no wildcard) or conda's
            ``=2.1.2=py310_0``. Locks always have one.
        marker: The environment marker as written, empty for none.
        applies: Whether the marker holds for Linux, the environment's Python and platform; ``None`` = not known.
        url: Where it is fetched from, for ``name @ url`` and bare addresses of wheels.
        ecosystem: ``pypi`` or ``conda``.
        build: Conda's build string (``py3.10_cuda11.8*``), else empty.
        channel: Conda's ``channel::``, else empty.
        is_hashed: At least one ``--hash`` comes with it.
        hashes: Those of them that are SHA-256, as hexadecimal digits.
        is_literal: The text stands in the file as it is and may be edited.
        is_locked: It comes from a lock file: chosen by a resolver, not written by a person.
        index: In locks and pyproject: the address of the index it is bound to, ``None`` for none, empty where it is
            bound to one that is not known.
        text: The requirement as the installer sees it.
    """

    name: str
    extras: tuple[str, ...] = ()
    specifier: str = ""
    version: str | None = None
    marker: str = ""
    applies: bool | None = True
    url: str | None = None
    ecosystem: str = "pypi"
    build: str = ""
    channel: str = ""
    is_hashed: bool = False
    hashes: tuple[str, ...] = ()
    is_literal: bool = True
    is_locked: bool = False
    index: str | None = None
    text: str
    span: Span
    name_span: Span
    specifier_span: Span

    @property
    def local(self) -> str:
        """The local part of the exact version (``cu118``), else empty."""
        return (self.version or "").partition("+")[2]


@record
class Index:
    """Where an installer looks for files.

    Attributes:
        kind: ``index`` (replaces the default), ``extra`` (beside it), ``find-links``, ``channel`` (conda), or
            ``backend`` (uv's ``--torch-backend``: ``url`` is then its word, such as ``cu128``, ``cpu`` or ``auto``).
        url: The address; ``None`` where it is not known. Variables are resolved, credentials left in.
        origin: ``flag``, ``environment`` (PIP_*, UV_*) or ``file`` (a requirements file, a pyproject, a pip.conf).
        name: Its name in a pyproject, else empty.
        is_explicit: Only what names it is taken from it (uv's ``explicit``, poetry's ``priority = "explicit"``).
    """

    kind: str
    url: str | None
    origin: str = "flag"
    name: str = ""
    is_explicit: bool = False
    span: Span


@record
class Install:
    """One call of an installer, or one list of requirements that an installer is meant to be given.

    Attributes:
        installer: ``pip``, ``uv``, ``conda`` (conda, mamba and micromamba), ``poetry``, ``pdm``.
        command: For people: ``pip install``, ``uv sync``, ``conda env``, or the kind of file.
        requirements: All that it asks for, those of ``-r`` files included, in order.
        constraints: What limits them: ``-c`` files, PIP_CONSTRAINT, UV_CONSTRAINT.
        indexes: Every index in force, the nearest first.
        has_default_index: The installer's own default index (PyPI) is asked; false where an index replaces it.
        has_no_index: ``--no-index``.
        has_no_deps: ``--no-deps``.
        is_dry: It only downloads or compiles and installs nothing (``pip download``, ``pip wheel``).
        is_build_isolated: False with ``--no-build-isolation``.
        is_complete: Every word was understood; else there may be more requirements and indexes than these.
        refused: Words in the place of a requirement that the installer refuses.
        is_index_known: What was not understood are packages alone, such as a project in a folder: no index is missing.
        is_certain: It surely runs.
        index_strategy: uv's, empty for its default (``first-index``).
        python: The Python it installs for, where its own words say so (``python3.9 -m pip``, ``--python 3.11``).
        target: Environment that it installs into, as far as the words tell: a path or name, empty for the default one.
            Installs with different targets do not meet.
        stage: Number of the Dockerfile stage it stands in.
        environment: Variables in force.
        span: The words that name the installer (``pip install``); in a file, its first requirement.
        flags_at: Where a flag can be inserted, ``None`` where none can.
    """

    installer: str
    command: str
    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    indexes: tuple[Index, ...] = ()
    has_default_index: bool = True
    has_no_index: bool = False
    has_no_deps: bool = False
    is_dry: bool = False
    is_build_isolated: bool = True
    is_complete: bool = True
    refused: tuple[Word, ...] = ()
    is_index_known: bool = False
    is_certain: bool = True
    index_strategy: str = ""
    python: str | None = None
    target: str = ""
    stage: int = 0
    environment: Mapping[str, Variable] = NOTHING
    span: Span
    flags_at: Span | None = None
    is_file: bool = False

    def flag_text(self, flag: str) -> str:
        """Return what to insert at :attr:`flags_at` to add a flag such as ``--index-url URL``."""
        return f"{flag}\n" if self.is_file else f" {flag}"


@record
class Base:
    """What an environment stands on.

    Attributes:
        reference: The image as written, variables resolved; ``None`` where they are not known.
        repository: Without tag and digest, ``docker.io/`` and ``library/`` left out (``nvidia/cuda``, ``python``);
            ``None`` where it is not known or the base is ``scratch``.
        tag: Tag, empty for none.
        digest: ``sha256:…``, empty for none.
        span: The reference as written.
        tag_span: The tag as written, ``None`` where a variable holds it.
        is_literal: The reference stands in the file as it is.
        cuda: CUDA of the toolkit or runtime in the image (``11.6.2``), by its tag.
        flavour: ``base``, ``runtime`` or ``devel`` for CUDA images, ``slim`` or ``full`` for Python's, else empty.
        has_cudnn: cuDNN is inside; ``None`` = not known.
        cudnn: Its version, or its major where the tag says no more.
        python: The Python that comes with it (``3.10``), by its tag and the facts.
        frameworks: Frameworks that come with the image, name → version by its tag, empty where that does not say.
        is_own_build: They are builds of the vendor's own, of a pre-release: no exact pin meets them.
    """

    reference: str | None
    repository: str | None
    tag: str = ""
    digest: str = ""
    span: Span
    tag_span: Span | None = None
    is_literal: bool = True
    cuda: str | None = None
    flavour: str = ""
    has_cudnn: bool | None = None
    cudnn: str | None = None
    python: str | None = None
    frameworks: Mapping[str, str] = NOTHING
    is_own_build: bool = False


@record
class Environment:
    """What one call of a rule judges.

    Attributes:
        kind: ``stage``, ``requirements``, ``constraints`` (its install is never complete), ``conda``, ``pyproject``,
            ``lock``, ``script``, ``service`` or ``image``.
        file: The file it was read from.
        name: Name of the stage (its number when it has none), group, service or image.
        span: Where it begins: the FROM, the first line, the service.
        base: What it stands on, the first image below all stages it comes from; ``None`` where there is none.
        own_base: The FROM of this very stage is an image, not an earlier stage.
        is_final: The stage that is built when nobody asks for another; true for everything but stages.
        is_target: Final, or the one named by ``--target`` or a compose file.
        installs: All that is installed in it, by the stages below first, in order.
        own_installs: Those of this very stage.
        commands: All commands of RUN, by the stages below first.
        own_commands: Those of this very stage.
        start: CMD and ENTRYPOINT as commands.
        variables: ENV (and ARG) at its end, or the variables of a service.
        own_variables: Every ENV of this very stage, in order, for rules that point at the line.
        labels: LABEL at its end.
        user: USER at its end, ``None`` where no stage sets one.
        platform: ``linux/arm64`` where FROM or the service says so, else ``None``.
        copies_from: What ``COPY --from`` takes from: the number of a stage as text (``0``), or an image as written.
        copied: Paths that COPY and ADD put in, as (source, destination) texts; ``None`` where not known.
        downloads: Addresses that ADD fetches without a checksum, repositories left out.
        os: Id of a row in ``os.toml`` (``ubuntu22.04``), ``None`` where not known.
        python: The Python that is in force (``3.10``), by the flag, the base, the commands; ``None`` where not known.
        pythons: The Pythons that a project allows, as a specifier; empty where it does not say.
        has_nvcc: nvcc is there; ``None`` where not known.
        gpus: What a service reserves: ``None`` for nothing, else the count as written (``all``, ``1``).
        runtime: ``runtime:`` of a service, else empty.
        profiles: ``profiles:`` of a service.
        is_gpu: GPU packages, a CUDA base or a reservation make it an environment for GPUs.
    """

    kind: str
    file: str
    name: str = ""
    span: Span
    base: Base | None = None
    own_base: bool = False
    is_final: bool = True
    is_target: bool = True
    installs: tuple[Install, ...] = ()
    own_installs: tuple[Install, ...] = ()
    commands: tuple[Command, ...] = ()
    own_commands: tuple[Command, ...] = ()
    start: tuple[Command, ...] = ()
    variables: Mapping[str, Variable] = NOTHING
    own_variables: tuple[Variable, ...] = ()
    labels: Mapping[str, Variable] = NOTHING
    user: Word | None = None
    platform: str | None = None
    copies_from: tuple[str, ...] = ()
    copied: tuple[tuple[str | None, str | None], ...] = ()
    downloads: tuple[Word, ...] = ()
    os: str | None = None
    python: str | None = None
    pythons: str = ""
    has_nvcc: bool | None = None
    gpus: str | None = None
    runtime: str = ""
    profiles: tuple[str, ...] = ()
    is_gpu: bool = False

    @property
    def first_own(self) -> int:
        """Where the commands of this very stage begin among all."""
        return len(self.commands) - len(self.own_commands)

    def requirements(self) -> Iterable[tuple[Install, Requirement]]:
        """Yield everything that is asked for and does not surely fall away by its marker, with its install."""
        for install in self.installs:
            for requirement in install.requirements:
                if requirement.applies is not False:
                    yield install, requirement


@record
class Options:
    """What the person who asks told beside the files.

    Attributes:
        gpus: GPUs that it must run on, as ``--gpu`` names them; each is known to the facts.
        driver: The driver on the hosts.
        platforms: Platforms that it is built for (``linux/arm64``), empty for what the files say.
        python: The Python in force, where the files do not tell.
        build_args: ``--build-arg``.
        target: ``--target``, empty for the last stage.
    """

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platforms: tuple[str, ...] = ()
    python: str | None = None
    build_args: Mapping[str, str] = NOTHING
    target: str = ""


@record
class Edit:
    """Replace a piece of a file; an empty span inserts."""

    span: Span
    text: str


@record
class Way:
    """A way out that can be tried: what it says to people, and what it changes."""

    text: str
    edits: tuple[Edit, ...]


@record
class Finding:
    """One thing that is wrong.

    Attributes:
        rule: Id of the rule.
        severity: ``error``, ``warn`` or ``info``.
        span: The words to point at.
        message: What is wrong, one sentence without a full stop.
        reasons: Why, most general first, each with its fact.
        hint: The way out, one sentence or one exact piece of text.
        facts: Ids of the facts it rests on (``torch/2.1.2+cu118``), as ``provision explain`` takes them.
        ways: Ways out, the nearest first, to be read once; the engine puts those that take the finding away into the
            hint.
        edits: A safe fix; empty where there is none.
        fix: What the edits do, one short sentence (``pin the index of the CUDA builds``).
    """

    rule: str
    severity: str
    span: Span
    message: str
    reasons: tuple[str, ...] = ()
    hint: str = ""
    facts: tuple[str, ...] = ()
    ways: Iterable[Way] = ()
    edits: tuple[Edit, ...] = ()
    fix: str = ""


class Rule(Protocol):
    """What a module of ``provision.audit.rules`` offers."""

    ID: str

    def check(self, environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
        """Yield what is wrong with one environment."""
