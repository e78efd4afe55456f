"""What an image is made of: stages, each a base and typed steps, from which every way to build it is written.

A step says what is wanted. How that is done is its writer's: ``generate.dockerfile`` for container engines,
``generate.apptainer``, and ``build.oci`` for an image that no engine makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provision.generate.quote import join_shell
from provision.records import record

LOCAL_FOLDER = "local"
"""The folder of a context that holds wheels and archives of the machine that wrote it."""

NETRC = "netrc"
"""The build secret with users and passwords."""

BUILD = "/build"
"""Where steps find the files of the context."""

CERTIFICATES = "provision-ca.crt"
"""The file of the context with certificates to trust. They are public, so a file will do; a secret mount makes
BuildKit read through all that earlier steps wrote before each step that has one."""

VENV = "/opt/venv"
TOOLS = "/opt/tools"
WHEELS = "/wheels"
PROJECTS = "/projects"
CACHE = "/root/.cache/uv"

_UV = (f"{TOOLS}/bin/uv", "pip", "install", "--python", f"{VENV}/bin/python", "--no-config", "--no-progress")
_WITH_CACHE = ("--link-mode", "copy")  # the cache is a mount, which no hard link can leave
_ALONE = ("--no-cache",)  # unpacked once, beside the environment, and linked: the large layers are not written twice


@record
class When:
    """Commands that are run where a test holds."""

    test: str
    then: tuple[str, ...]


@record
class Listed:
    """A command whose last words are a list, on a line each where the list shall be read."""

    command: str
    words: tuple[str, ...]


Command = str | When | Listed
"""What a shell runs; a text goes on over lines that end in a backslash."""


@record
class Mount:
    """A folder that a step sees while it runs.

    Attributes:
        target: Where it is seen.
        stage: The stage that has it, at the same place; without, it is the builder's own cache.
        is_writable: What is written there is thrown away.
        secret: The build secret that is seen there, a file, in place of all that.
        is_ssh: The ssh agent of who builds, which needs no target.
    """

    target: str = ""
    stage: str | None = None
    is_writable: bool = False
    is_ssh: bool = False
    secret: str | None = None


SSH = Mount(is_ssh=True)
LOGINS = Mount(target="/root/.netrc", secret=NETRC)
"""Where pip, uv and git look for users and passwords."""


@record
class Run:
    """Commands that root runs one after the other; the first that fails ends the build.

    Attributes:
        commands: What is run.
        mounts: Folders that they need.
        files: Files of the context that they find below ``BUILD``.
    """

    commands: tuple[Command, ...]
    mounts: tuple[Mount, ...] = ()
    files: tuple[str, ...] = ()


@record
class Setup:
    """The start of an image: its user, and an empty Python environment in the place of pip.

    Attributes:
        uid: Number of the user and of its group.
        python: The program that makes the environment; an image of CUDA alone has none.
        removed: Patterns of what is taken out of the base, for each place that may have it.
    """

    uid: int
    python: str | None = None
    removed: tuple[tuple[str, ...], ...] = ()


@record
class Install:
    """One installation, which makes one layer of the image.

    Attributes:
        layer: Name of the layer.
        file: The file of requirements to install; wheels alone need none.
        title: What the file says of itself.
        lines: The requirements.
        options: Options of ``uv pip install``, quoted for a shell.
        is_constrained: Whether the options name constraints.txt.
        is_locked: Everything in it is known; only what is resolved now profits from a cache.
        is_own: Asked for by the user or an extra, and installed after all that the frameworks need.
        built_in: The earlier stage whose wheels are installed with it.
        has_certificates: The index is trusted by ``CERTIFICATES``.
        has_login: What it asks wants a user and a password.
    """

    layer: str
    file: str
    title: str
    lines: tuple[str, ...]
    options: str
    is_constrained: bool = False
    is_locked: bool = True
    is_own: bool = False
    built_in: str | None = None
    has_certificates: bool = False
    has_login: bool = False

    def to_run(self, *, has_cache: bool = False) -> Run:
        """Return what installs it, with the builder's cache where there is one and it helps."""
        has_cache = has_cache and not self.is_locked
        trust = f"SSL_CERT_FILE={BUILD}/{CERTIFICATES} " if self.has_certificates else ""
        words = [self.options, *([f"-r {BUILD}/{self.file}"] if self.file else [])]
        words += [f"{WHEELS}/*.whl"] if self.built_in else []
        uv = trust + join_shell(*_UV, *(_WITH_CACHE if has_cache else _ALONE))
        mounts = (
            Mount(target=TOOLS, stage="tools"),
            *((Mount(target=CACHE),) if has_cache else ()),
            *((Mount(target=WHEELS, stage=self.built_in),) if self.built_in else ()),
            *((LOGINS,) if self.has_login else ()),
        )
        files = (
            *((CERTIFICATES,) if self.has_certificates else ()),
            *((self.file,) if self.file else ()),
            *local_files(self.lines),
            *(("constraints.txt",) if self.is_constrained else ()),
            "compile_bytecode.py",
        )
        commands = (f"{uv} \\\n  {' '.join(words)}", f"python {BUILD}/compile_bytecode.py")
        return Run(commands=commands, mounts=mounts, files=files)


@record
class Verify:
    """The proof that what was installed is what the lock says.

    Attributes:
        part: ``static``, or ``packages`` once the user's own are installed.
        imports: Distributions that must import.
        toolkit: The folder that an image of CUDA alone must have; nothing else of it is proved.
    """

    part: str = "static"
    imports: tuple[str, ...] = ()
    toolkit: str | None = None

    def to_run(self, folder: str = BUILD) -> Run:
        """Return what proves it with the files that lie in a folder."""
        if self.toolkit is not None:
            return Run(commands=(join_shell("test", "-d", self.toolkit),))
        words = ["python", f"{folder}/verify.py", f"--{self.part}", "--lock", f"{folder}/expect.json"]
        words += ["--import", *self.imports] if self.imports else []
        return Run(commands=(join_shell(*words),), files=("verify.py", "expect.json"))


@record
class Copy:
    """Files put into the image.

    Attributes:
        sources: Files of the context, or of a stage; a folder's contents where it ends in a slash.
        target: The new place of one file, or the folder they go to, which ends in a slash.
        stage: Where they come from, in place of the context.
        uid: The user and the group they belong to, in place of root.
    """

    sources: tuple[str, ...]
    target: str
    stage: str | None = None
    uid: int | None = None


@record
class Own:
    """A folder, and all folders below it, given to the image's user."""

    folder: str
    uid: int


@record
class Env:
    """Variables; ``${NAME}`` in a value is what NAME was before."""

    values: Mapping[str, str]


@record
class Arg:
    """A variable that steps after it get from who builds."""

    name: str


@record
class Label:
    """What the image says of itself."""

    name: str
    value: str


@record
class Expose:
    """A port on which the command listens."""

    port: int


@record
class Workdir:
    """The folder that the command starts in."""

    path: str


@record
class User:
    """Number of the user, and of its group, that the command runs as."""

    uid: int


@record
class Entrypoint:
    """The program that starts the command."""

    words: tuple[str, ...]


@record
class Cmd:
    """The command, unless who starts the image names another."""

    words: tuple[str, ...]


Step = Run | Setup | Install | Verify | Copy | Own | Env | Arg | Label | Expose | Workdir | User | Entrypoint | Cmd


@record
class Stage:
    """One file system that is built up.

    Attributes:
        name: What other stages call it.
        base: An image, or an earlier stage.
        steps: What is done, in order.
        comment: What the stage is for, where that is not plain.
    """

    name: str
    base: str
    steps: tuple[Step, ...] = ()
    comment: str | None = None


@record
class Recipe:
    """A whole image.

    Attributes:
        stages: In the order in which they are built; the last is the image.
        files: Path → text of the context, but for what says how it is built.
        own_files: Files of the context that are the user's.
        driver: The oldest driver that it runs with; an image without CUDA has none.
        logins: Hosts that the build asks with a user and a password, which it gets as a secret.
        has_ssh: The build reads a repository with a key of the ssh agent.
    """

    name: str
    lock_digest: str
    facts_date: str
    platform: str
    source_date_epoch: int | None
    stages: tuple[Stage, ...]
    files: Mapping[str, str]
    own_files: tuple[str, ...]
    driver: str = ""
    logins: tuple[str, ...] = ()
    has_ssh: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the image's own stage."""
        return self.stages[-1].steps

    def head(self, *how: str) -> list[str]:
        """Return the comment that begins each file that is written of it: whose it is, and how it is used."""
        return [
            f"# provision.lock {self.lock_digest}",
            f"# {self.name}: facts of {self.facts_date}. Written by `provision image`; edits here count as drift.",
            *(f"# {line}" for line in how),
        ]


def local_files(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the context that requirement lines name, sorted."""
    return tuple(
        sorted({found for line in lines for found in re.findall(rf"file://{BUILD}/({LOCAL_FOLDER}/[^\s#]+)", line)})
    )


def lines_of(command: str) -> list[str]:
    """Return the lines of a command, those that go on with their backslash."""
    *first, last = command.split(" \\\n")
    return [*(f"{line} \\" for line in first), last]
