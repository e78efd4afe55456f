"""What must stop a refresh until a person has looked: each alarm has a name, by which it can be accepted."""

from __future__ import annotations

from collections.abc import Iterable

from provision.errors import DataError
from provision.records import record

KINDS = {
    "fewer": "something that the facts have is no longer there",
    "unseen": "an answer has a column that is not known",
    "hash": "a file has another hash under the same name",
    "requires": "the same release says another requirement",
    "yanked": "a known release was withdrawn, or came back",
    "older": "a version went back",
    "meaning": "what was read before now reads otherwise",
}
"""Kind of an alarm → what it means."""


@record
class Alarm:
    """One reason to stop.

    Attributes:
        kind: A key of :data:`KINDS`.
        name: What it is about: a file, a release, a column.
        message: What was found, without a full stop.
    """

    kind: str
    name: str
    message: str

    @property
    def id(self) -> str:
        """What accepts it: ``hash:torch-2.15.0-…whl``."""
        return f"{self.kind}:{self.name}"


class Alarms:
    """Collects alarms, and knows which of them a person has accepted.

    Args:
        accepted: Ids; an id that ends in ``*`` accepts all that begin so.
    """

    def __init__(self, accepted: Iterable[str] = ()) -> None:
        self._accepted = tuple(accepted)
        self._raised: dict[str, Alarm] = {}
        self._used: set[str] = set()

    def raise_(self, kind: str, name: str, message: str) -> bool:
        """Note an alarm; return whether it was accepted, so that what it is about may be changed."""
        alarm = Alarm(kind=kind, name=name, message=message)
        for text in self._accepted:
            if text == alarm.id or (text.endswith("*") and alarm.id.startswith(text[:-1])):
                self._used.add(text)
                return True
        self._raised.setdefault(alarm.id, alarm)
        return False

    @property
    def raised(self) -> tuple[Alarm, ...]:
        """What nobody accepted, by id."""
        return tuple(self._raised[name] for name in sorted(self._raised))

    @property
    def unused(self) -> tuple[str, ...]:
        """Acceptances that nothing needed."""
        return tuple(text for text in self._accepted if text not in self._used)

    def stop(self) -> None:
        """End the refresh where an alarm was raised.

        Raises:
            DataError: With every alarm, and how to accept it.
        """
        alarms = self.raised
        if not alarms:
            return
        shown = [f"{alarm.message} ({alarm.id})" for alarm in alarms[:_SHOWN]]
        if len(alarms) > _SHOWN:
            shown.append(f"{len(alarms) - _SHOWN} more, which `--json` lists")
        kinds = sorted({alarm.kind for alarm in alarms})
        raise DataError(
            f"upstream does not agree with the facts in {len(alarms)} {'place' if len(alarms) == 1 else 'places'};"
            " nothing was written",
            because=shown,
            hints=(
                *(f"{kind}: {KINDS[kind]}" for kind in kinds),
                f"review each; then accept it with `--accept '{alarms[0].id}'`, one flag each",
            ),
            details={"alarms": [{"id": item.id, "kind": item.kind, "message": item.message} for item in alarms]},
        )


_SHOWN = 20
