"""Build the bake file of a folder with whichever buildx builder is selected, and say what came of it.

Unlike a single build, which happens in the engine at hand so that the image can be proved there, a bake goes to the
builder that a person chose with ``docker buildx use`` or ``BUILDX_BUILDER``: a container, another machine or a cluster.
Every image is proved by the static verification inside its own build.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

from provision.build.archive import copied_to
from provision.build.buildx import follow
from provision.build.failures import explain_build
from provision.build.progress import BuildKitLog, Observer
from provision.errors import MissingDependencyError

_FILE = "docker-bake.hcl"


def bake(folder: Path, *, is_push: bool, observer: Observer, log_path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Build every stack of a folder.

    Args:
        folder: Holds the bake file; contexts in it are relative to the folder.
        is_push: Push the images; else they go into the engine at hand.
        observer: Is told how it goes.
        log_path: Where everything that the builder says is written.

    Returns:
        Target → its ``digest`` and ``tags``, in the order of the names.

    Raises:
        ActionFailedError: A step, a push or the builder failed.
        MissingDependencyError: There is no docker command.
        VerificationFailedError: A static verification inside a build found the contents wrong.
    """
    import shutil

    if shutil.which("docker") is None:
        raise MissingDependencyError(
            "there is no docker command on PATH",
            because=("bake is a part of its buildx plug-in",),
            hints=("install it (Debian, Ubuntu: `apt install docker-cli docker-buildx`)",),
        )
    log = BuildKitLog(observer)
    with tempfile.TemporaryDirectory(prefix="provision-bake-") as scratch:
        metadata = Path(scratch) / "metadata.json"
        words = ["docker", "buildx", "bake", "--progress=plain", f"--file={_FILE}", f"--metadata-file={metadata}"]
        words.append("--push" if is_push else "--load")
        with copied_to(log_path, log.feed) as feed:
            returncode = follow(words, feed, folder=folder)
        if returncode != 0:
            # The builder may be elsewhere, so whether an engine answers here says nothing.
            error = explain_build(log, folder, is_engine_alive=True, log_path=log_path)
            hints = [hint for hint in error.hints if "docker buildx build" not in hint]
            by_hand = f"bake it by hand to look closer: `cd {shlex.quote(str(folder))} && docker buildx bake`"
            raise type(error)(error.message, because=error.because, hints=(*hints, by_hand), details=error.details)
        return _images(metadata)


def _images(metadata: Path) -> dict[str, dict[str, Any]]:
    """Return what the builder says of each target; parts that are not images have no name."""
    try:
        document = json.loads(metadata.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {
        target: {
            "digest": row.get("containerimage.digest"),
            "tags": sorted(str(row["image.name"]).split(",")),
        }
        for target, row in sorted(document.items())
        if isinstance(row, dict) and "image.name" in row
    }
