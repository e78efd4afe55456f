"""The numbers that flags take: one grammar, bounds, and one wording of what is wrong with a value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from provision.errors import UsageError, shown
from provision.records import NOTHING

SCALES: Mapping[str, float] = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
"""What a letter behind a count multiplies it by."""

_WHOLE_MAX = 10**9
"""No machine, token or layer is counted further by a flag that has no bound of its own."""
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([^\W\d_]*)", re.ASCII | re.IGNORECASE)


def number(
    flag: str,
    least: float = 0,
    most: float = math.inf,
    *,
    is_above: bool = False,
    is_whole: bool = False,
    units: Mapping[str, float] = NOTHING,
    example: str = "",
) -> Callable[[str], float]:
    """Return a reader of the number that a flag takes.

    Args:
        flag: With its dashes.
        least: The smallest value.
        most: The largest value.
        is_above: The value must be above ``least``, not at it.
        is_whole: Only whole numbers are taken.
        units: What may stand behind the number, in small letters, and what each multiplies it by.
        example: A value that is told to one who gave none.

    Returns:
        A function of the text, which raises :class:`UsageError` with the flag, the value, the reason and the way out.
    """
    what, bounds = f"{'whole ' if is_whole else ''}number", _span(least, most, is_above)

    def read(text: str) -> float:
        because: tuple[str, ...] = ()
        value, unit = _parse(text)
        value *= units.get(unit, 1) if unit else 1
        if not math.isfinite(value) or (unit and unit not in units):
            reason, because = f"not a {what}", _why(text, unit, units)
        elif is_whole and value != int(value):
            reason = f"not a {what}"
        elif not least <= value <= most or (is_above and value == least):
            reason = f"not {bounds}"
        else:
            return value
        way_out = f"write a {what} {bounds}"
        way_out += f", as in `{flag} {example}`" if example else ""
        raise UsageError(f"{flag} `{shown(text)}` is {reason}", because=because, hints=(way_out,))

    return read


def whole(
    flag: str, least: int = 1, most: int = _WHOLE_MAX, *, units: Mapping[str, float] = NOTHING, example: str = ""
) -> Callable[[str], int]:
    """Return a reader of the whole number that a flag takes; its arguments are those of :func:`number`."""
    read = number(flag, least, most, is_whole=True, units=units, example=example)
    return lambda text: int(read(text))


def read_number(flag: str, text: str | None, least: float, most: float, default: float) -> float:
    """Return the number that a flag was given, within bounds; the default where it was not given.

    Raises:
        UsageError: It is not a number, or beyond its bounds.
    """
    return default if text is None else number(flag, least, most)(text)


def _parse(text: str) -> tuple[float, str]:
    """Return the number that a text begins with and the unit behind it; NaN where it is anything else."""
    found = _NUMBER.fullmatch(text.strip())
    return (float(found[1]), found[2].lower()) if found else (math.nan, "")


def _why(text: str, unit: str, units: Mapping[str, float]) -> tuple[str, ...]:
    """Say what keeps a text from being a number, where that can be seen."""
    if unit:
        return (f"`{unit}` is not a unit it takes" + (f"; these are {', '.join(units)}" if units else ""),)
    if re.fullmatch(r"[0-9.]+(?:,[0-9.]+)+", text.strip()):
        return ("a point parts decimals, and nothing parts thousands",)
    return ()


def _span(least: float, most: float, is_above: bool) -> str:
    """Return bounds in words that fit behind "a number" and behind "is not"."""
    if is_above:
        return f"above {least:.15g}" + ("" if most == math.inf else f" and up to {most:.15g}")
    return f"from {least:.15g} " + ("on" if most == math.inf else f"to {most:.15g}")
