"""Turn what a builder or a registry says when it fails into one message with a reason and a way out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from provision.build.progress import BuildLog
from provision.errors import ActionFailedError, MissingDependencyError, ProvisionError, VerificationFailedError

_SHOWN_LINES = 12
_VERIFICATION_EXIT = VerificationFailedError.exit_code


@dataclass(frozen=True, slots=True)
class _Cause:
    """A pattern in the text, what it means (with the pattern's named groups) and what to do."""

    pattern: re.Pattern[str]
    because: str
    hint: str


def _cause(pattern: str, because: str, hint: str) -> _Cause:
    return _Cause(re.compile(pattern, re.IGNORECASE | re.DOTALL | re.MULTILINE), because, hint)


# The first that matches is taken, so the narrow ones come first.
_BUILD_CAUSES = (
    _cause(
        r"hash mismatch for `(?P<wheel>[^`]+)`.*?expected:\s+(?P<expected>\w+:[0-9a-f]+).*?"
        r"computed:\s+(?P<computed>\w+:[0-9a-f]+)",
        "the index served another file for {wheel}: the lock says {expected}, what came is {computed}",
        "trust neither file: find out why they differ (a mirror that rebuilds wheels?), "
        "then name the right index with `--index-url`",
    ),
    _cause(
        r"do not match the hashes from the requirements file.*?\n\s+(?P<wheel>[^\s:]+)[^\n]*:\n\s+"
        r"expected sha256 (?P<expected>[0-9a-f]+)\s+got\s+(?P<computed>[0-9a-f]+)",
        "the index served another file for {wheel}: the lock says sha256:{expected}, what came is sha256:{computed}",
        "trust neither file: find out why they differ (a mirror that rebuilds wheels?), "
        "then name the right index with `--index-url`",
    ),
    _cause(
        r"cache export (?:feature )?is (?:currently )?not supported for (?:the )?(?P<driver>\S+) driver",
        "the `{driver}` driver of this builder writes no registry cache",
        "leave `cache` out of [bake], or set `CACHE=` for this call; a builder of another driver, and an engine with "
        "the containerd store, can",
    ),
    _cause(
        r"401 error, credentials not correct for (?P<index>\S+?)\.?\s|"
        r"an index url \((?P<index2>\S+)\) could not be queried due to a lack of valid authentication|"
        r"http status client error \(401 unauthorized\) for url \((?P<index3>\S+)\)",
        "{index} rejected the credentials that the build was given",
        "correct the entry for its host in `~/.netrc`, or the credentials in its address",
    ),
    _cause(
        # What pip is told by an index that does not let it in is shown by none of its messages.
        r"looking in indexes: (?P<index>[^\s,]+).*?\(from versions: none\).*?"
        r"no matching distribution found for (?P<wheel>\S+)",
        "{index} shows no file of {wheel}: it has none, or it requires other credentials than the build was given",
        "check that the index has it, and that `~/.netrc` or the address has the right credentials for its host",
    ),
    _cause(
        r"error: command '(?P<compiler>\S*(?:gcc|g\+\+|cc|c\+\+|clang))' failed: no such file or directory",
        "a package is compiled, and the base has no `{compiler}`",
        "name a base with a C compiler with `--base`, or leave `--base` out: one that has it is chosen for this step",
    ),
    _cause(
        r"no space left on device|disk quota exceeded",
        "the disk that the engine keeps its images on is full",
        "make room with `docker system df` and `docker builder prune`, then build again",
    ),
    _cause(
        r"load metadata for (?P<image>\S+)|^step \d+/\d+ : from (?P<image2>\S+)|"
        r"pull access denied for (?P<image3>[^,\s]+)",
        "the base image {image} cannot be pulled",
        "check the way to its registry, or name a mirror with `--registry-mirror` or another image with `--base`",
    ),
    _cause(
        r"(?P<what>unknownissuer|certificate_verify_failed|certificate verify failed|x509: certificate)",
        "a server's certificate is signed by no authority that the build trusts ({what})",
        "hand the certificate of your proxy to the build with `--ca-cert FILE`",
    ),
    _cause(
        r"temporary failure in name resolution|could not resolve host|failed to lookup address|no such host|"
        r"network is unreachable|dns error|connection timed out|tcp connect error",
        "the build cannot reach the network",
        "name the index that it can reach with `--index-url`, or set `proxies` in Docker's client configuration",
    ),
    _cause(
        r"exec format error",
        "the engine's machine cannot run programs of the image's architecture",
        "build on a machine of that architecture, or install an emulator there (`apt install qemu-user-static`)",
    ),
    _cause(
        r"(?P<what>dockerfile parse error[^\n]*|unknown flag: link|requires buildkit)",
        "this engine does not understand the Dockerfile ({what})",
        "write it for an older engine with `--frontend builtin` or `--frontend classic`",
    ),
    _cause(
        r"exit code: 137|returned a non-zero code: 137|signal: killed",
        "the step was killed, most likely because the machine ran out of memory",
        "give the engine more memory and build again",
    ),
)
_ENGINE_DIED = re.compile(
    r"cannot connect to the docker daemon|error reading from server|code = unavailable|connection refused|"
    r"connection reset|transport is closing|connection aborted|broken pipe|unexpected eof|remotedisconnected",
    re.IGNORECASE,
)
_PUSH_CAUSES = (
    _cause(
        r"(?P<what>5\d\d (?:internal server error|bad gateway|service unavailable|gateway timeout))",
        "the registry answered {what}",
        "the fault is the registry's: read its log, then push again; what it already has is not sent twice",
    ),
    _cause(
        r"denied|unauthorized|no basic auth credentials|authentication required",
        "the registry refuses to take it from you",
        "run `{login}` with an account that may push there",
    ),
    _cause(
        r"server gave http response to https client",
        "the registry speaks plain HTTP and the engine insists on TLS",
        "give the registry a certificate, or list it under `insecure-registries` in the engine's configuration",
    ),
    _cause(
        r"no such host|connection refused|i/o timeout|no route to host|network is unreachable",
        "the registry cannot be reached from the engine",
        "check the name {registry} and the network route to it",
    ),
    _cause(
        r"does not exist locally|no such image|not been tagged|tag does not exist",
        "the engine has no image of that name",
        "build it first with `--build --tag`",
    ),
    _cause(
        r"no space left on device",
        "a disk is full, the registry's or the engine's",
        "make room there, then push again",
    ),
)


def _recognise(text: str, causes: tuple[_Cause, ...], **known: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for cause in causes:
        match = cause.pattern.search(text)
        if match:
            found = {key: value for key, value in match.groupdict().items() if value}
            # An alternative of a pattern names its group with a number behind.
            words = known | {key.rstrip("23"): value for key, value in found.items()}
            return (cause.because.format_map(words),), (cause.hint.format_map(words),)
    return (), ()


def _plain(name: str) -> str:
    return " ".join(re.sub(r"--mount=\S+ ", "", name).split())


def explain_build(log: BuildLog, context: Path, *, is_engine_alive: bool, log_path: Path | None) -> ProvisionError:
    """Word a failed build.

    Args:
        log: What the builder said.
        context: The folder that was built.
        is_engine_alive: The engine still answers.
        log_path: Where the whole log lies.

    Returns:
        The error to raise: a failed verification where the step that checks the contents found them wrong, else a
        failed action. It names the step, the recognised reason and the step's last lines.
    """
    step = log.failed_step
    text = f"{step.name if step else ''}\n{log.text}"
    kept = [f"the context is kept in {context}"]
    if log_path is not None:
        kept.append(f"the whole log is {log_path}")
    if not is_engine_alive or (step is None and _ENGINE_DIED.search(text)):
        running = next((item.name for item in reversed(log.steps) if item.status in ("running", "failed")), None)
        during = (f"it was at the step {_plain(running)}",) if running else ()
        return ActionFailedError(
            "the engine stopped answering during the build",
            because=(*during, *_last_line(log.error)),
            hints=("start the engine again, read its log, then build again", *kept),
        )
    because, hints = _recognise(text, _BUILD_CAUSES)
    if step is None:
        message = "the build failed" if log.line is None else f"the build failed at Dockerfile line {log.line}"
        return ActionFailedError(
            message, because=because or _last_line(log.error), hints=(*hints, *kept, _again(context))
        )
    place = f"Dockerfile line {log.line}, " if log.line is not None else ""
    shown = [line for line in step.tail if line.strip()][-_SHOWN_LINES:]
    details = (*(because or _ending(log.error)), *(f"the step said: {line}" for line in shown))
    is_verification = "verify.py" in step.name and re.search(
        rf"(?:exit code:|non-zero code:) {_VERIFICATION_EXIT}\b", log.error
    )
    if is_verification:
        return VerificationFailedError(
            f"what was installed is not what the lock says, found at {place}step {_plain(step.name)}",
            because=details,
            hints=kept,
        )
    return ActionFailedError(
        f"the build failed at {place}step {_plain(step.name)}",
        because=details,
        hints=(*hints, *kept, _again(context)),
    )


def explain_push(tag: str, text: str) -> ActionFailedError:
    """Word a failed push.

    Args:
        tag: What was pushed.
        text: What the engine said.
    """
    head = tag.split("/", 1)[0] if "/" in tag else ""
    is_named = "." in head or ":" in head or head == "localhost"
    registry = head if is_named else "the default registry"
    login = f"docker login {head}" if is_named else "docker login"
    because, hints = _recognise(text, _PUSH_CAUSES, registry=registry, login=login)
    return ActionFailedError(
        f"{tag} was not pushed",
        because=(*because, *(f"the engine said: {line}" for line in _last_line(text))),
        hints=(*hints, f"the image is still in the engine: `docker push {tag}` sends it"),
    )


def engine_absent(said: str) -> MissingDependencyError:
    """Word an engine that does not answer.

    Args:
        said: What the attempt to reach it printed.
    """
    if "permission denied" in said.lower():
        return MissingDependencyError(
            "this user may not talk to the container engine",
            because=_last_line(said),
            hints=(
                "add the user to the group of the engine's socket: `sudo usermod -aG docker $USER`, then log in again",
            ),
        )
    return MissingDependencyError(
        "no container engine answers",
        because=_last_line(said),
        hints=(
            "start it: `sudo systemctl start docker`",
            "or install one (Debian, Ubuntu: `apt install docker.io docker-buildx`)",
            "the context is complete without an engine: take it to a machine that has one",
        ),
    )


def _last_line(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1][:400],) if lines else ()


def _ending(error: str) -> tuple[str, ...]:
    # The builder repeats the whole command, which the message names already.
    code = re.search(r"exit code: (\d+)$|returned a non-zero code: (\d+)$", error.strip())
    return (f"it ended with exit code {code[1] or code[2]}",) if code else _last_line(error)


def _again(context: Path) -> str:
    return f"build it by hand to look closer: `docker buildx build {context}`"
