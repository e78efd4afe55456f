"""What a container engine is to this program, and which one is at hand.

The engine is asked what it can do by letting it build two lines, not by comparing version numbers:

===========================  ==========  ================================================
at hand                      frontend    built by
===========================  ==========  ================================================
buildx, BuildKit with links  ``modern``  ``docker buildx build``
buildx, an older BuildKit    ``builtin`` ``docker buildx build``
no buildx, BuildKit inside   ``builtin`` ``docker build`` with ``DOCKER_BUILDKIT=1``
neither                      ``classic`` the engine's HTTP interface, through the docker SDK
===========================  ==========  ================================================

Builds always run in the engine's own builder, also where another is selected: the image is verified and used in this
engine, and from a builder beside it every layer would travel here as one archive.

Proxies are Docker's business: it hands the ones of the ``proxies`` part of its client configuration to every build
step and keeps them out of the image's history. The proxy variables of this process are not passed on, because they
often name a loopback address or hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from provision.build.export import Destination, Export, Purpose
from provision.build.progress import Observer, Step
from provision.errors import MissingDependencyError, install_command

Frontend = Literal["modern", "builtin", "classic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What is to be built from a context.

    Attributes:
        tags: Names of the image, at least one.
        purpose: ``local``, ``push`` (pushed by a later call, once proved) or ``file``.
        archive: The archive to write, for the purpose ``file``.
        destination: What to write, where somebody said so exactly; its path is the archive.
        compression: Of the layers, where somebody asked for one.
        platform: ``linux/amd64`` or ``linux/arm64``; the engine's own when absent.
        source_date_epoch: Seconds; the date that image and archive carry.
        build_args: Values for ``ARG``.
        secrets: Id of a secret (``provision-ca``) → file that only the steps asking for it can read.
        network: Network of the build steps (``host``, ``none``); the engine's default when absent.
        has_ssh: The steps that ask for it see the ssh agent of this process.
        is_cached: Earlier results of equal steps may be reused.
        log_path: Where everything that the builder says is written.
    """

    tags: tuple[str, ...]
    purpose: Purpose = "local"
    archive: Path | None = None
    destination: Destination | None = None
    compression: str | None = None
    platform: str | None = None
    source_date_epoch: int | None = None
    build_args: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    network: str | None = None
    has_ssh: bool = False
    is_cached: bool = True
    log_path: Path | None = None

    def all_build_args(self) -> dict[str, str]:
        """Return the build arguments, the epoch among them, sorted by name."""
        values = dict(self.build_args)
        if self.source_date_epoch is not None:
            values["SOURCE_DATE_EPOCH"] = str(self.source_date_epoch)
        return dict(sorted(values.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image as its engine knows it.

    Attributes:
        id: ``sha256:…``.
        size_bytes: As the engine counts: unpacked layers in a graph-driver store, blobs and unpacked layers in the
            containerd store.
        repo_digests: ``name@sha256:…`` of every registry that has it.
        layers: Digests of the unpacked layers, lowest first.
        environment: ``NAME=value`` of the variables that its containers have.
    """

    id: str
    size_bytes: int
    repo_digests: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ImageInfo:
        """Return what the Docker API says of an image."""
        return cls(
            id=document["Id"],
            size_bytes=int(document["Size"]),
            repo_digests=tuple(sorted(document.get("RepoDigests") or ())),
            layers=tuple((document.get("RootFS") or {}).get("Layers") or ()),
            environment=tuple((document.get("Config") or {}).get("Env") or ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """A finished build.

    Attributes:
        image: The image in the engine's store; absent where only an archive was written.
        archive: The archive, where one was asked for.
        seconds: From the first word to the builder until the image was handed over.
    """

    image: ImageInfo | None
    archive: Path | None
    export: Export
    steps: tuple[Step, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A container that ran to its end."""

    returncode: int
    stdout: str
    stderr: str


class Engine(Protocol):
    """Builds, inspects, runs and pushes images."""

    @property
    def name(self) -> str:
        """Who builds: ``docker buildx``, ``docker build`` or ``docker SDK``."""

    @property
    def version(self) -> str:
        """Version of the engine."""

    @property
    def frontend(self) -> Frontend:
        """The newest form of Dockerfile that this engine builds."""

    @property
    def image_store(self) -> str:
        """``containerd``, or the graph driver (``overlay2``)."""

    def build(self, context: Path, request: BuildRequest, observer: Observer) -> BuildResult:
        """Build the context.

        Raises:
            ActionFailedError: A step, the export or the engine failed; the context is left as it is.
            VerificationFailedError: The static verification inside the build found the contents wrong.
        """

    def inspect(self, image: str) -> ImageInfo:
        """Look an image up by tag or id.

        Raises:
            ActionFailedError: The engine has no such image.
        """

    def run(self, image: str, command: tuple[str, ...], *, entrypoint: str | None = None) -> Completed:
        """Run a command in a throw-away container without a network and wait for it.

        Raises:
            ActionFailedError: The container could not be started.
        """

    def push(self, tag: str, observer: Observer) -> str:
        """Push a tag and return its ``sha256:…`` in the registry.

        Raises:
            ActionFailedError: The registry or the way to it failed; the image stays in the engine.
        """


def find_engine() -> Engine:
    """Find the engine at hand and what it can build.

    Raises:
        MissingDependencyError: No engine answers, or nothing here can talk to it.
    """
    import shutil

    from provision.build import buildx, sdk

    if shutil.which("docker"):
        engine = buildx.connect()
        if engine is not None:
            return engine
        because = "the docker command has neither buildx nor a working BuildKit"
    else:
        because = "there is no docker command on PATH"
    try:
        return sdk.connect()
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "no way to build an image was found",
            because=(because, "the docker SDK for Python, which builds without them, is not installed"),
            hints=(
                "install the engine with its buildx plug-in (Debian, Ubuntu: `apt install docker.io docker-buildx`)",
                f"or install the SDK: {install_command('docker')}",
                "the context is complete without an engine: take it to a machine that has one",
            ),
        ) from error
