"""Ask a cluster's own API server whether it would take what was written, without keeping any of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.probe.clean import clean_line
from provision.records import record

TAKEN, REFUSED, UNJUDGED = "taken", "refused", "unjudged"

_SECONDS = 60
_WORDS_MAX = 400
_NO_NAMESPACE = re.compile(r'namespaces? "([^"]+)" not found', re.IGNORECASE)
_NO_SERVER = re.compile(
    r"was refused - did you specify|no such host|i/o timeout|unable to connect to the server|"
    r"current-context|context .* does not exist|no configuration has been provided|invalid configuration|"
    r"you must be logged in|unauthorized|deadline exceeded|timed out|x509:",
    re.IGNORECASE,
)


@record
class Judged:
    """What the server said of one file.

    Attributes:
        path: The file, as it was named.
        verdict: ``taken``; ``refused``; or ``unjudged``, where an object's namespace is in the files and not yet there.
        objects: Objects that it would take, as kubectl names them (``job.batch/verify``).
        because: Its reasons, a line each.
    """

    path: str
    verdict: str
    objects: tuple[str, ...] = ()
    because: tuple[str, ...] = ()


def judge_files(
    folder: Path, files: Iterable[tuple[str, str]], *, context: str | None = None, namespaces: Iterable[str] = ()
) -> tuple[Judged, ...]:
    """Send each file as a dry run of the server: admission, quotas and custom resources are its own.

    Args:
        folder: Where the files lie.
        files: Verb of kubectl (``apply`` or ``create``) and file.
        context: Of kubeconfig; the current one unless given.
        namespaces: Those that the files themselves make. A dry run makes none, so what belongs into them is unjudged.

    Raises:
        MissingDependencyError: There is no kubectl here, or no cluster behind it.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise MissingDependencyError(
            "a cluster can only be asked through kubectl, which is not here",
            hints=("install kubectl and point KUBECONFIG at the cluster",),
        )
    where = () if context is None else ("--context", context)
    made = frozenset(namespaces)
    return tuple(_judge(kubectl, where, folder, verb, path, made) for verb, path in files)


def _judge(
    kubectl: str, where: tuple[str, ...], folder: Path, verb: str, path: str, namespaces: frozenset[str]
) -> Judged:
    words = (kubectl, *where, verb, "--dry-run=server", f"--request-timeout={_SECONDS}s", "-o", "name", "-f", path)
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=2 * _SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _no_cluster((f"kubectl said nothing for {2 * _SECONDS} s",)) from error
    except OSError as error:
        raise MissingDependencyError(
            f"{kubectl} cannot be started", because=(error.strerror or str(error),), hints=("install kubectl anew",)
        ) from error
    objects = tuple(clean_line(line, _WORDS_MAX) for line in done.stdout.splitlines() if line.strip())
    if done.returncode == 0:
        return Judged(path=path, verdict=TAKEN, objects=objects)
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Warning:")]
    because = tuple(clean_line(line, _WORDS_MAX) for line in lines) or (f"kubectl ended with {done.returncode}",)
    if not objects and any(map(_NO_SERVER.search, because)):
        raise _no_cluster(because)
    missing = [found[1] if (found := _NO_NAMESPACE.search(line)) else None for line in because]
    verdict = UNJUDGED if all(name in namespaces for name in missing) else REFUSED
    return Judged(path=path, verdict=verdict, objects=objects, because=because)


def _no_cluster(because: tuple[str, ...]) -> MissingDependencyError:
    return MissingDependencyError(
        "kubectl reaches no cluster",
        because=because,
        hints=("`kubectl cluster-info` says where it looks", "`--context NAME` takes another cluster of kubeconfig"),
    )
