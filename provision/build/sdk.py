"""Build with the engine's classic builder through the docker SDK, where BuildKit is out of reach."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.build.archive import copied_to, written_beside
from provision.build.engine import BuildRequest, BuildResult, Completed, Frontend, ImageInfo
from provision.build.export import CONTAINERD, choose_export
from provision.build.failures import engine_absent, explain_build, explain_push
from provision.build.progress import ClassicLog, Observer, PushLog
from provision.errors import ActionFailedError, UsageError

if TYPE_CHECKING:
    from docker import DockerClient

# Between two words of the engine a large layer may take long to commit.
_SILENCE_SECONDS = 3600


class SdkEngine:
    """An engine driven through its HTTP interface.

    Args:
        client: A connected client of the docker SDK.
    """

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self._info: dict[str, Any] = client.info()

    @property
    def name(self) -> str:
        """Who builds."""
        return "docker SDK"

    @property
    def version(self) -> str:
        """Version of the engine."""
        return str(self._info.get("ServerVersion", "unknown"))

    @property
    def frontend(self) -> Frontend:
        """The newest form of Dockerfile that this engine builds."""
        return "classic"

    @property
    def image_store(self) -> str:
        """``containerd``, or the graph driver."""
        status = str(self._info.get("DriverStatus") or "")
        return CONTAINERD if "io.containerd.snapshotter" in status else str(self._info.get("Driver", "unknown"))

    def build(self, context: Path, request: BuildRequest, observer: Observer) -> BuildResult:
        """Build the context; see ``Engine.build``."""
        if request.secrets:
            raise UsageError(
                "the engine's classic builder cannot keep the secret " + ", ".join(sorted(request.secrets)),
                because=("it would have to be copied into a layer",),
                hints=("install the buildx plug-in (Debian, Ubuntu: `apt install docker-buildx`)",),
            )
        export = choose_export(
            self.image_store,
            request.purpose,
            is_buildx=False,
            compression=request.compression,
            destination=request.destination,
        )
        started = time.monotonic()
        log = ClassicLog(observer)
        self._follow(context, request, log)
        if log.error:
            raise explain_build(log, context, is_engine_alive=self._is_answering(), log_path=request.log_path)
        log.finish()
        for tag in request.tags[1:]:
            self._client.api.tag(request.tags[0], tag)
        archive = request.archive if request.purpose == "file" else None
        if archive is not None:
            self._save(request.tags, archive)
        return BuildResult(
            image=self.inspect(log.image_id or request.tags[0]),
            archive=archive,
            export=export,
            steps=tuple(log.steps),
            seconds=time.monotonic() - started,
        )

    def _follow(self, context: Path, request: BuildRequest, log: ClassicLog) -> None:
        with copied_to(request.log_path, log.feed_line) as feed_line:
            try:
                for event in self._client.api.build(
                    path=str(context),
                    tag=request.tags[0],
                    buildargs=request.all_build_args(),
                    platform=request.platform,
                    network_mode=request.network,
                    nocache=not request.is_cached,
                    rm=True,
                    forcerm=True,
                    decode=True,
                ):
                    for line in str(event.get("stream", "")).splitlines():
                        feed_line(line.rstrip())
                    log.feed(event)
            except _engine_errors() as error:
                log.feed({"error": str(error)})

    def _save(self, tags: tuple[str, ...], archive: Path) -> None:
        with written_beside(archive) as unfinished, unfinished.open("wb") as file:
            try:
                for chunk in self._client.images.get(tags[0]).save(named=True):
                    file.write(chunk)
            except _engine_errors() as error:
                raise ActionFailedError("the engine could not save the image", because=(str(error),)) from error

    def _is_answering(self) -> bool:
        try:
            return bool(self._client.ping())
        except _engine_errors():
            return False

    def inspect(self, image: str) -> ImageInfo:
        """Look an image up; see ``Engine.inspect``."""
        try:
            return ImageInfo.read(self._client.images.get(image).attrs)
        except _engine_errors() as error:
            raise ActionFailedError(f"the engine could not find the image {image}", because=(str(error),)) from error

    def run(self, image: str, command: tuple[str, ...], *, entrypoint: str | None = None) -> Completed:
        """Run a command in a container; see ``Engine.run``."""
        container = None
        try:
            container = self._client.containers.create(
                image, list(command), entrypoint=[entrypoint] if entrypoint else None, network_mode="none"
            )
            container.start()
            returncode = int(container.wait()["StatusCode"])
            stdout = container.logs(stdout=True, stderr=False)
            stderr = container.logs(stdout=False, stderr=True)
        except _engine_errors() as error:
            raise ActionFailedError(f"a container of {image} could not be started", because=(str(error),)) from error
        finally:
            if container is not None:
                with contextlib.suppress(*_engine_errors()):
                    container.remove(force=True)
        return Completed(
            returncode=returncode, stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace")
        )

    def push(self, tag: str, observer: Observer) -> str:
        """Push a tag; see ``Engine.push``."""
        log = PushLog(tag, observer)
        try:
            for event in self._client.api.push(tag, stream=True, decode=True):
                text = str(event.get("error") or event.get("status") or "")
                log.error = str(event.get("error") or log.error)
                # A bar of progress is many events that say the same.
                if text and "progress" not in event:
                    log.feed(text)
        except _engine_errors() as error:
            log.error = str(error)
        log.finish(is_done=not log.error)
        if log.error or log.digest is None:
            raise explain_push(tag, log.error or log.text)
        return log.digest


def connect() -> SdkEngine:
    """Connect to the engine that the environment names.

    Raises:
        ModuleNotFoundError: The docker SDK is not installed.
        MissingDependencyError: No engine answers.
    """
    import docker

    try:
        client = docker.from_env(timeout=_SILENCE_SECONDS)
    except _engine_errors() as error:
        raise engine_absent(str(error)) from error
    try:
        return SdkEngine(client)
    except _engine_errors() as error:
        client.close()
        raise engine_absent(str(error)) from error


def _engine_errors() -> tuple[type[Exception], ...]:
    from docker.errors import DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    return (DockerException, RequestException, HTTPError, OSError)
