"""Why an input is refused, and what stops work that has become pointless."""

from __future__ import annotations

import threading

from provision.errors import ActionFailedError


class Stopped(Exception):  # noqa: N818 - not an error of its own: another thread has one
    """Another part of the work failed, so this part ended early."""


class Halt:
    """A flag that every worker looks at between two chunks."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask every worker to end."""
        self._event.set()

    def check(self) -> None:
        """Go on, unless somebody asked for the end.

        Raises:
            Stopped: Somebody did.
        """
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Pause, but not longer than until the end is asked for.

        Raises:
            Stopped: It was.
        """
        if self._event.wait(seconds):
            raise Stopped


def refuse_wheel(file: str, why: str) -> ActionFailedError:
    """Return the error for a wheel that cannot be trusted or understood."""
    return ActionFailedError(
        f"the wheel {file} is refused",
        because=(why,),
        hints=("nothing of it was kept; ask who publishes it, or choose another version",),
    )


def refuse_base(where: str, why: str, *hints: str) -> ActionFailedError:
    """Return the error for a base that is damaged or not what the image needs."""
    return ActionFailedError(
        f"the base {where} cannot be built on",
        because=(why,),
        hints=hints or ("write it anew, for instance with `skopeo copy docker://IMAGE oci:DIR`",),
    )
