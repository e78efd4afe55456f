"""``nvidia-smi nvlink -s`` and ``-e``: the state and the error counters of each link."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import NOTHING, record

_GPU: Final = re.compile(r"GPU ([0-9]{1,4}): [^()]{1,120}\(UUID: ([A-Za-z0-9-]{1,64})\)", re.ASCII)
_LINK: Final = re.compile(r"Link ([0-9]{1,3}): (.{1,120})", re.ASCII)
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,6})?) GB/s", re.ASCII)
_COUNTER: Final = re.compile(r"([A-Za-z][A-Za-z0-9 -]{0,60}): (\S{1,40})", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_BIT_ERROR_RATE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?e-?[0-9]{1,4}", re.ASCII)

_REASONS: Final = (
    "device does not have or support nvlink",
    "nvlink queries are not supported",
    "nvml: unable to retrieve nvlink information as all links are inactive",
    "unable to retrieve nvlink information as all links are inactive",
)
"""How nvidia-smi says that it has nothing to list."""

_TRAFFIC: Final = ("packets", "bytes")


@record
class NvlinkState:
    """The links of one GPU: number → GB/s in one direction, ``None`` where the link is inactive.

    ``reason`` is what nvidia-smi said instead of listing links: that there are none, that all are inactive, or that
    it cannot tell (MIG).
    """

    gpu: int
    uuid: str | None = None
    links: Mapping[int, float | None] = NOTHING
    reason: str | None = None


@record
class NvlinkCounters:
    """The errors of one GPU: link → counter → count.

    Counters are ``replay``, ``recovery``, ``crc``, ``ecc`` and others in snake case.
    """

    gpu: int
    links: Mapping[int, Mapping[str, int]] = NOTHING


class _Line(NamedTuple):
    """A line below a GPU: ``link`` is ``None`` where the tool said something about the whole GPU."""

    link: int | None
    said: str


def parse_nvlink_status(text: str) -> tuple[NvlinkState, ...]:
    """Read ``nvlink -s``; an empty listing is a machine without NVLink and gives no state.

    Args:
        text: What nvidia-smi printed.

    Returns:
        One state a GPU, in the order of the listing.

    Raises:
        Unreadable: The text is something else.
    """
    states = []
    for gpu, uuid, lines in _read_blocks(text):
        links: dict[int, float | None] = {}
        for line in lines:
            if line.link is not None:
                links[line.link] = _read_rate(line)
        reason = next((line.said for line in lines if line.link is None), None)
        states.append(NvlinkState(gpu=gpu, uuid=uuid, links=links, reason=reason))
    return tuple(states)


def parse_nvlink_errors(text: str) -> tuple[NvlinkCounters, ...]:
    """Read ``nvlink -e``; an empty listing is a machine without NVLink and gives none.

    Counters that this generation of links does not have, rates and amounts of traffic are left out.

    Args:
        text: What nvidia-smi printed.

    Returns:
        The counters of one GPU after the other, in the order of the listing.

    Raises:
        Unreadable: The text is something else.
    """
    # Without its line end the last count may have lost a digit.
    if text and not text.endswith("\n"):
        raise Unreadable("the counters of nvidia-smi nvlink end in the middle of a line")
    counters = []
    for gpu, _, lines in _read_blocks(text):
        links: dict[int, dict[str, int]] = {}
        for line in lines:
            if line.link is not None:
                found = links.setdefault(line.link, {})
                name, count = _read_counter(line)
                if count is not None:
                    found[name] = count
        counters.append(NvlinkCounters(gpu=gpu, links=links))
    return tuple(counters)


def _read_blocks(text: str) -> Iterator[tuple[int, str, list[_Line]]]:
    blocks: list[tuple[int, str, list[_Line]]] = []
    for raw in clean(text).split("\n"):
        line = raw.strip()
        if not line:
            continue
        if gpu := _GPU.fullmatch(line):
            blocks.append((int(gpu[1]), gpu[2], []))
        elif (link := _LINK.fullmatch(line)) and blocks:
            blocks[-1][2].append(_Line(int(link[1]), link[2]))
        elif line.lower().startswith(_REASONS) and blocks:
            blocks[-1][2].append(_Line(None, clean_line(line)))
        elif not line.lower().startswith(_REASONS):
            raise Unreadable(f"nvidia-smi nvlink said `{clean_line(line, 80)}`")
    yield from blocks


def _read_rate(line: _Line) -> float | None:
    if line.said == "<inactive>":
        return None
    rate = _RATE.fullmatch(line.said)
    if rate is None:
        raise Unreadable(f"nvidia-smi nvlink said `{clean_line(line.said, 80)}` of link {line.link}")
    return float(rate[1])


def _read_counter(line: _Line) -> tuple[str, int | None]:
    counter = _COUNTER.fullmatch(line.said)
    if counter is None:
        raise Unreadable(f"nvidia-smi nvlink said `{clean_line(line.said, 80)}` of link {line.link}")
    words = counter[1].lower().replace("-", " ").split()
    # `Replay Errors` is the counter `replay`; a number behind the word (`FEC Errors - 3`) keeps it apart from others.
    name = "_".join(word for word in words if word not in ("error", "errors")) or "errors"
    value = counter[2]
    if _COUNT.fullmatch(value):
        return name, None if words[-1] in _TRAFFIC else int(value)
    if value == "N/A" or _BIT_ERROR_RATE.fullmatch(value):
        return name, None
    raise Unreadable(f"nvidia-smi nvlink said `{clean_line(value, 80)}` of link {line.link}")
