"""systemd units, fabric manager and its log."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import frozen, kept, read_integer, read_lines
from provision.records import record

_PROPERTY = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PROGRAM_VERSION = re.compile(r"Fabric Manager version is\s{0,8}:?\s{0,8}([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})")
_STAMP = re.compile(r"\[[A-Z][a-z]{2} [0-9 ]{2} [0-9]{4} [0-9:]{8}\] ")
_ENTRY = re.compile(r"\[(?P<level>[A-Z]{3,8})\] (?:\[tid [0-9]{1,12}\] )?(?P<message>.*)")
_SXID = re.compile(r"detected NVSwitch (non-)?fatal error ([0-9]{1,9})", re.IGNORECASE)
_BAD_LEVELS = ("ERROR", "FATAL", "CRITICAL")
_WORTH_SHOWING = (
    "NV_WARN_NOTHING_TO_DO",
    "any supported system topology",
    "failed to ",
    "not supported",
    "aborting",
)
_MESSAGES_MAX = 200


@record
class Unit:
    """A systemd unit, from ``systemctl show``; ``load`` is ``not-found`` where it is not installed."""

    name: str
    load: str
    active: str
    sub: str = ""
    enabled: str = ""
    result: str = ""
    restarts: int | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the unit exists."""
        return self.load not in ("not-found", "")

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self.active == "active"


@record
class FabricManager:
    """Fabric manager's own version and the events of its log.

    Attributes:
        version: ``535.104.05``; ``None`` when the program is absent.
        fatal: SXid numbers its log calls fatal; ``nonfatal`` the others.
        messages: Other lines worth showing: initialisation errors, unsupported topology, nothing to do.
    """

    version: str | None = None
    fatal: tuple[int, ...] = ()
    nonfatal: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()


def parse_units(text: str) -> Mapping[str, Unit]:
    """Read ``systemctl show`` of several units, blank lines between them; the key is the name without ``.service``.

    Raises:
        Unreadable: A block has no ``Id``, no ``LoadState`` or no ``ActiveState``, or there is no block.
    """
    blocks: list[dict[str, str]] = [{}]
    for line in read_lines(text, "systemctl show"):
        name, equals, value = line.partition("=")
        if not line:
            blocks.append({})
        elif not equals or not _PROPERTY.fullmatch(name):
            raise Unreadable(f"systemctl show has a line of another form: `{kept(line, 80)}`")
        else:
            blocks[-1][name] = kept(value)
    units = [_unit(block) for block in blocks if block]
    if not units:
        raise Unreadable("systemctl show tells of no unit")
    return frozen({unit.name: unit for unit in units})


def parse_fabric_manager(text: str) -> FabricManager:
    """Read the ``fabric-manager`` probe: the program's version line (or ``no-program``), then the end of its log.

    The log alone is read as well.

    Raises:
        Unreadable: It is binary, or nothing in it is fabric manager's.
    """
    version: str | None = None
    fatal: dict[int, None] = {}
    nonfatal: dict[int, None] = {}
    messages: dict[str, None] = {}
    is_known = False
    # An entry that was cut while it was written is followed by the next one on the same line.
    for line in (part for whole in read_lines(text, "fabric manager's log") for part in _STAMP.split(whole)):
        if found := _PROGRAM_VERSION.match(line.strip()):
            version = found[1]
            is_known = True
        elif line.strip() == "no-program":
            is_known = True
        elif entry := _ENTRY.match(line):
            is_known = True
            level, message = entry["level"], entry["message"]
            if sxid := _SXID.search(message):
                (nonfatal if sxid[1] else fatal)[int(sxid[2])] = None
            elif level in _BAD_LEVELS or any(words in message for words in _WORTH_SHOWING):
                messages[kept(message)] = None
    if not is_known:
        raise Unreadable("nothing of fabric manager's stands in what was read")
    return FabricManager(
        version=version,
        fatal=tuple(fatal),
        nonfatal=tuple(nonfatal),
        # The last ones are those of this boot.
        messages=tuple(message for message in messages if message)[-_MESSAGES_MAX:],
    )


def _unit(block: Mapping[str, str]) -> Unit:
    name = block.get("Id", "").removesuffix(".service")
    for wanted in ("Id", "LoadState", "ActiveState"):
        if not block.get(wanted):
            raise Unreadable(f"systemctl show tells of a unit without `{wanted}`{f': {name}' if name else ''}")
    restarts = block.get("NRestarts", "")
    return Unit(
        name=name,
        load=block["LoadState"],
        active=block["ActiveState"],
        sub=block.get("SubState", ""),
        enabled=block.get("UnitFileState", ""),
        result=block.get("Result", ""),
        restarts=read_integer(restarts, "systemctl show: the number of restarts") if restarts else None,
    )
