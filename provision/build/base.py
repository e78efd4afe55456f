"""Whether a base that somebody named has the Python and the glibc that a stack needs, asked before the build."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable

from provision.build.engine import Engine
from provision.errors import ActionFailedError, IncompatibleError
from provision.resolve.environment import needed_glibc
from provision.versions import minor_of

_VARIABLE = "PYTHON_VERSION"
_ANSWER_SECONDS = 30
_QUESTION = "import platform, venv; print(*platform.libc_ver())"


def check_base(engine: Engine, base: str, python: str, files: Iterable[str] = ()) -> None:
    """Refuse a base with another Python or glibc, or none; what nobody here can tell is left to the build.

    Args:
        engine: An image that it has is run to see; of others a registry is asked for the configuration.
        base: What stands in ``FROM``.
        python: The minor that the stack needs (``3.11``).
        files: Names of the wheels that it installs, which say the glibc that they need.

    Raises:
        IncompatibleError: It has not that Python, or no glibc that is new enough.
    """
    is_here = True
    try:
        environment = engine.inspect(base).environment
    except ActionFailedError:
        is_here, environment = False, _ask_registry(base)
    exact = dict(item.partition("=")[::2] for item in environment).get(_VARIABLE, "")
    if exact and not f"{exact}.".startswith(f"{python.rstrip('t')}."):
        minor = minor_of(exact)
        raise IncompatibleError(
            f"{base} cannot hold this stack",
            because=(f"it is made with Python {exact}, the stack needs {python}",),
            hints=(f"ask for its Python with `--python {minor}`", "or leave `--base` out: one that fits is chosen"),
        )
    if not is_here:
        return
    try:
        done = engine.run(base, ("-c", _QUESTION), entrypoint=f"python{python}")
    except ActionFailedError:
        return
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"])[-1]
        raise IncompatibleError(
            f"{base} cannot hold this stack",
            because=(f"`python{python} -c 'import venv'` does not run in it: {said[:200]}",),
            hints=(
                "name a base with that Python and its venv module",
                "or leave `--base` out: one that fits is chosen",
            ),
        )
    _check_glibc(base, done.stdout.split(), files)


def _check_glibc(base: str, libc: list[str], files: Iterable[str]) -> None:
    """Refuse a base whose C library, by name and version, is not what wheels were built for."""
    needed = needed_glibc(files)
    if not needed or (libc[:1] == ["glibc"] and not _is_older(libc[1:], needed)):
        return
    has = f"glibc {libc[1]}" if libc[:1] == ["glibc"] else "no glibc"
    raise IncompatibleError(
        f"{base} cannot hold this stack",
        because=(f"it has {has}, and a wheel of the stack needs glibc 2.{needed}",),
        hints=("name a base with a newer glibc", "or leave `--base` out: one that fits is chosen"),
    )


def _is_older(version: list[str], minor: int) -> bool:
    found = re.match(r"2\.([0-9]+)", version[0]) if version else None
    return found is not None and int(found[1]) < minor


def _ask_registry(base: str) -> tuple[str, ...]:
    """Return the variables of an image of one platform in a registry; nothing where it does not say."""
    words = ["docker", "buildx", "imagetools", "inspect", "--format", "{{json .Image}}", base]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
        document = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
    if not isinstance(document, dict):
        return ()
    # Of several platforms each has its own; what they are made with is the same.
    images = [document, *(item for item in document.values() if isinstance(item, dict))]
    found = [(item.get("config") or {}).get("Env") for item in images if isinstance(item.get("config"), dict)]
    return tuple(str(item) for item in (found[0] or ())) if found else ()
