"""A lock of either kind, read into what `cluster`, `slurm` and `tune` need of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.errors import UsageError
from provision.files import read_text
from provision.generate.subject import Subject
from provision.resolve.stack import Stack

_BYTES_MAX = 16 * 1024 * 1024
_LIBRARIES = ("torch", "tensorflow", "jax")


def read_subject(path: Path) -> Subject:
    """Read ``provision.lock`` of an image or of nodes, or ``provision_lock.yml``.

    Raises:
        UsageError: It is neither, or was edited.
    """
    text = read_text(path, "--lock", bytes_max=_BYTES_MAX)
    if _is_stack(text):
        return subject_of(Stack.from_lock(text))
    from provision.node.lock import parse_lock

    return _of_nodes(parse_lock(text, str(path)).document, str(path))


def subject_of(stack: Stack) -> Subject:
    """Return what a stack says."""
    profiles = stack.node.profiles if stack.node is not None else ()
    return Subject(
        name=stack.name,
        digest=stack.lock_digest,
        facts_date=stack.facts_date,
        driver_minimum=stack.driver.minimum,
        driver_branch=stack.driver.recommended_branch,
        gpus=stack.gpus,
        libraries=_libraries(stack.nccl, stack.frameworks),
        ray=_ray(stack),
        node_drivers={profile.os: profile.driver.version for profile in profiles if profile.driver is not None},
    )


def _ray(stack: Stack) -> str | None:
    """Return the version of Ray in an image, where its packages are locked."""
    packages = stack.image.packages if stack.image is not None else ()
    return next((str(package.version) for package in packages if package.name == "ray"), None)


def _is_stack(text: str) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "unverified" in document


def _of_nodes(document: Mapping[str, Any], where: str) -> Subject:
    try:
        stack = document["stack"]
        branch = stack["driver_branch"]
        return Subject(
            name=str(document.get("name") or document["digest"]),
            digest=str(document["digest"]),
            facts_date=str(document["facts_date"]),
            driver_minimum=str(stack["driver_minimum"]),
            driver_branch=None if branch is None else str(branch),
            gpus=tuple(str(name) for name in stack["gpus"]),
            libraries=_libraries(stack["nccl"], stack["frameworks"]),
            node_drivers={
                str(system): str(profile["driver"]["version"])
                for system, profile in sorted(document["profiles"].items())
                if not profile["refusal"]
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{where} lacks what a cluster needs: {error}", hints=("write it again with `provision node lock`",)
        ) from error


def _libraries(nccl: str | None, frameworks: Mapping[str, str]) -> dict[str, str]:
    """Return library → version, without local parts."""
    found = {name: str(frameworks[name]) for name in _LIBRARIES if frameworks.get(name)}
    if nccl:
        found["nccl"] = nccl
    return {name: version.partition("+")[0] for name, version in sorted(found.items())}
