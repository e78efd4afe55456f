"""Build with BuildKit through the docker command: its buildx plug-in, or the BuildKit inside older engines."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.build.archive import copied_to, written_beside
from provision.build.engine import BuildRequest, BuildResult, Completed, Frontend, ImageInfo
from provision.build.export import CONTAINERD, choose_export, quote_field
from provision.build.failures import engine_absent, explain_build, explain_push
from provision.build.progress import BuildKitLog, Observer, PushLog
from provision.errors import ActionFailedError, MissingDependencyError, UsageError

if TYPE_CHECKING:
    import subprocess

_ANSWER_SECONDS = 30
_CONTAINERD_SNAPSHOTTER = "io.containerd.snapshotter"
_PROBE = "provision-probe:latest"
# Both lines are understood by BuildKit alone; neither pulls anything.
_LINKS = "FROM scratch\nCOPY --link Dockerfile /\n"
_MODES = "FROM scratch\nCOPY --chmod=0644 Dockerfile /\n"


class CommandEngine:
    """An engine driven by the docker command.

    Args:
        build_words: The command that builds, up to its first flag.
        info: The engine's description of itself.
        frontend: What the builder was seen to build.
    """

    def __init__(self, build_words: tuple[str, ...], info: dict[str, Any], frontend: Frontend) -> None:
        self._build_words = build_words
        self._info = info
        self._frontend = frontend

    @property
    def name(self) -> str:
        """Who builds."""
        return " ".join(self._build_words[:2])

    @property
    def version(self) -> str:
        """Version of the engine."""
        return str(self._info.get("ServerVersion", "unknown"))

    @property
    def frontend(self) -> Frontend:
        """The newest form of Dockerfile that this engine builds."""
        return self._frontend

    @property
    def image_store(self) -> str:
        """``containerd``, or the graph driver."""
        status = json.dumps(self._info.get("DriverStatus") or [])
        return CONTAINERD if _CONTAINERD_SNAPSHOTTER in status else str(self._info.get("Driver", "unknown"))

    @property
    def _is_buildx(self) -> bool:
        return "buildx" in self._build_words

    def build(self, context: Path, request: BuildRequest, observer: Observer) -> BuildResult:
        """Build the context; see ``Engine.build``."""
        export = choose_export(
            self.image_store,
            request.purpose,
            is_buildx=self._is_buildx,
            compression=request.compression,
            destination=request.destination,
        )
        archive = request.archive if request.purpose == "file" else None
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            unfinished = archive
            if archive is not None and export.exporter != "local":
                unfinished = stack.enter_context(written_beside(archive))
            output = export.output(str(unfinished) if unfinished else None)
            words = [*self._build_words, "--progress=plain", *_flags(request)]
            if output is not None:
                words.append(f"--output={output}")
            log = BuildKitLog(observer)
            feed = stack.enter_context(copied_to(request.log_path, log.feed))
            returncode = follow([*words, str(context)], feed)
            if returncode != 0:
                raise explain_build(log, context, is_engine_alive=_is_answering(), log_path=request.log_path)
            image = None
            if export.is_saved or export.exporter in ("image", "engine") or archive is None:
                # The id that builders report is unknown to a containerd store; the tag is known to every store.
                image = self.inspect(request.tags[0])
            if export.is_saved and unfinished is not None:
                _must("save the image", ["docker", "save", f"--output={unfinished}", *request.tags])
                if request.destination is not None and request.destination.kind == "oci":
                    _check_layout(unfinished)
        return BuildResult(
            image=image,
            archive=archive,
            export=export,
            steps=tuple(log.steps),
            seconds=time.monotonic() - started,
        )

    def inspect(self, image: str) -> ImageInfo:
        """Look an image up; see ``Engine.inspect``."""
        text = _must(f"find the image {image}", ["docker", "image", "inspect", image])
        return ImageInfo.read(json.loads(text)[0])

    def run(self, image: str, command: tuple[str, ...], *, entrypoint: str | None = None) -> Completed:
        """Run a command in a container; see ``Engine.run``."""
        words = ["docker", "run", "--rm", "--network=none"]
        if entrypoint is not None:
            words.append(f"--entrypoint={entrypoint}")
        done = _run([*words, image, *command])
        # The docker command's own code for a container that never ran.
        if done.returncode == 125:
            raise ActionFailedError(f"a container of {image} could not be started", because=(done.stderr.strip(),))
        return Completed(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def push(self, tag: str, observer: Observer) -> str:
        """Push a tag; see ``Engine.push``."""
        log = PushLog(tag, observer)
        returncode = follow(["docker", "push", tag], log.feed)
        is_done = returncode == 0 and log.digest is not None
        log.finish(is_done=is_done)
        if log.digest is None or not is_done:
            raise explain_push(tag, log.text)
        return log.digest


def _check_layout(archive: Path) -> None:
    """Refuse an archive of the engine's own kind where an OCI layout was asked for; newer engines write both in one."""
    import tarfile

    with tarfile.open(archive) as tar:
        if "oci-layout" not in tar.getnames():
            raise MissingDependencyError(
                "the archives of this engine are no OCI layout",
                because=("it keeps images in a store that knows only its own kind",),
                hints=("write that kind with `--output type=docker,dest=FILE`", "or use a newer engine"),
            )


def connect() -> CommandEngine | None:
    """Ask the docker command for an engine that builds with BuildKit.

    Returns:
        The engine, or nothing where it answers but has no BuildKit that this command can use.

    Raises:
        MissingDependencyError: No engine answers.
    """
    done = _run(["docker", "info", "--format", "{{json .}}"], seconds=_ANSWER_SECONDS)
    try:
        info = json.loads(done.stdout)
    except ValueError:
        info = {}
    if done.returncode != 0 or not info.get("ServerVersion"):
        errors = info.get("ServerErrors") or [done.stderr]
        raise engine_absent(str(errors[-1]))
    if _run(["docker", "buildx", "version"], seconds=_ANSWER_SECONDS).returncode == 0:
        words: tuple[str, ...] = ("docker", "buildx", "build", f"--builder={_context_name()}")
        if _can_build(words, _LINKS):
            return CommandEngine(words, info, "modern")
        if _can_build(words, _MODES):
            return CommandEngine(words, info, "builtin")
    elif _can_build(("docker", "build"), _MODES):
        return CommandEngine(("docker", "build"), info, "builtin")
    return None


def _context_name() -> str:
    # The engine's own builder is called as the client's context is.
    done = _run(["docker", "context", "inspect", "--format", "{{.Name}}"], seconds=_ANSWER_SECONDS)
    return done.stdout.strip() or "default"


def _can_build(words: tuple[str, ...], dockerfile: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="provision-probe-") as folder:
        Path(folder, "Dockerfile").write_text(dockerfile)
        done = _run([*words, f"--tag={_PROBE}", folder], seconds=_ANSWER_SECONDS)
        if done.returncode == 0:
            _run(["docker", "image", "rm", _PROBE], seconds=_ANSWER_SECONDS)
        return done.returncode == 0


def _flags(request: BuildRequest) -> Iterator[str]:
    for tag in request.tags:
        yield f"--tag={tag}"
    for name, value in request.all_build_args().items():
        yield f"--build-arg={name}={value}"
    for name, path in sorted(request.secrets.items()):
        if not path.is_file():
            raise UsageError(f"the secret {name}: {path} is not a file", hints=("name a file that can be read",))
        yield f"--secret=id={name},{quote_field(f'src={path}')}"
    if request.has_ssh:
        yield "--ssh=default"
    if request.platform is not None:
        yield f"--platform={request.platform}"
    if request.network is not None:
        yield f"--network={request.network}"
    if not request.is_cached:
        yield "--no-cache"


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "DOCKER_BUILDKIT": "1",
        "DOCKER_CLI_HINTS": "false",
        # Attestations hold the time of the build, so equal builds would have unequal digests; what they would say
        # about the origin stands in the lock inside the image.
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }


def follow(words: list[str], feed: Callable[[str], None], *, folder: Path | None = None) -> int:
    """Run a command, hand over each line that it prints, and return its exit status.

    Args:
        words: The command.
        feed: Takes each line.
        folder: Where it runs; here unless said.
    """
    import subprocess

    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=_environment(),
        cwd=folder,
    ) as process:
        try:
            for line in process.stdout or ():
                feed(line.rstrip("\r\n"))
        except BaseException:
            # An interrupt, or a disk that takes no more log: the builder must not go on alone.
            process.terminate()
            raise
        return process.wait()


def _run(words: list[str], *, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    import subprocess

    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"`{' '.join(words)}` gave no answer in {seconds:.0f} s")
    except FileNotFoundError as error:
        raise engine_absent(str(error)) from error


def _is_answering() -> bool:
    return _run(["docker", "version", "--format", "{{.Server.Version}}"], seconds=_ANSWER_SECONDS).returncode == 0


def _must(action: str, words: list[str]) -> str:
    done = _run(words)
    if done.returncode != 0:
        raise ActionFailedError(f"the engine could not {action}", because=tuple(done.stderr.strip().splitlines()[-1:]))
    return done.stdout
