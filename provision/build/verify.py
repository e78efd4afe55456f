"""Prove an image: run its own static verification inside it, without a network and without a GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass

from provision.build.engine import Engine
from provision.errors import VerificationFailedError

_COMMAND = ("/opt/provision/verify.py", "--static", "--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of the verification.

    Attributes:
        status: ``pass``, ``fail`` or ``unknown``; only the first is good.
        needs_gpu: Whether it is unknown for want of a GPU alone, which no build has.
    """

    check: str
    status: str
    detail: str
    needs_gpu: bool = False


def verify_image(engine: Engine, image: str) -> tuple[Finding, ...]:
    """Run the static verification that the image carries.

    Args:
        engine: The engine that has the image.
        image: Tag or id.

    Returns:
        The checks in the order they ran: all passed, but for what only a GPU can tell.

    Raises:
        VerificationFailedError: A check did not pass, or the verification gave no answer.
        ActionFailedError: The container could not be started.
    """
    done = engine.run(image, _COMMAND, entrypoint="python")
    findings = _read(done.stdout)
    if not findings:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise VerificationFailedError(
            f"the verification inside {image} gave no answer",
            because=(f"it ended with exit code {done.returncode}", *said),
            hints=(_by_hand(image),),
        )
    bad = [item for item in findings if item.status != "pass" and not item.needs_gpu]
    if bad or done.returncode != 0:
        raise VerificationFailedError(
            f"{image} was built, but is not what its lock says",
            because=[f"{item.check}: {item.detail}" for item in bad]
            or [f"every check passed and yet the verification ended with exit code {done.returncode}"],
            hints=(_by_hand(image),),
        )
    return findings


def _read(text: str) -> tuple[Finding, ...]:
    try:
        items = json.loads(text)["findings"]
        return tuple(
            Finding(
                check=str(item["check"]),
                status=str(item["status"]),
                detail=str(item["detail"]),
                needs_gpu=item["status"] == "unknown" and item.get("needs_gpu") is True,
            )
            for item in items
        )
    except (ValueError, KeyError, TypeError):
        return ()


def _by_hand(image: str) -> str:
    return f"see for yourself: `docker run --rm --entrypoint python {image} {' '.join(_COMMAND[:2])}`"
