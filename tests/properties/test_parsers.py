"""Whatever a target prints, a parser answers with records fit for a terminal, or says that it cannot read it."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import machines
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import provision.probe.parse
from provision.probe.output import OK, Unreadable
from provision.probe.snapshot import Snapshot

Parser = Callable[[str], object]


def _find_parsers() -> dict[str, Parser]:
    """Every function of every module there is, so that one nobody thought of here is tried as well."""
    found = {}
    for module in pkgutil.iter_modules(provision.probe.parse.__path__):
        loaded = importlib.import_module(f"provision.probe.parse.{module.name}")
        for name, value in vars(loaded).items():
            if name.startswith("parse_") and callable(value) and value.__module__ == loaded.__name__:
                found[f"{module.name}.{name}"] = value
    return found


PARSERS = _find_parsers()

LISTING = """
==============NVSMI LOG==============

Driver Version                            : 580.105.08
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 0
    PCI
        Bus Id                            : 00000000:18:00.0
        GPU Link Info
            Link Width
                Current                   : 16x
    Clocks Event Reasons
        Idle                              : Active
    Fabric
        Health
            Summary                       : Healthy
    Processes
        Process ID                        : 77
            Type                          : C
            Name                          : python
            Used GPU Memory               : 512 MiB
"""
TABLE = """\
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:01:00.0 Off |                    0 |
| N/A   32C    P0              62W / 400W |      4MiB / 81920MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
"""
HEALTH = (
    '{"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"0": {"value": "Failure", "children": '
    '{"Errors": {"children": {"Memory system": {"value": "Warning", "overflow": ["an error"]}}}}}}}}}'
)
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.42.1000
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
"""


CDI = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08
"""
VECTOR = (
    '{"status": "success", "data": {"resultType": "vector", "result": '
    '[{"metric": {"__name__": "up", "node": "gpu001"}, "value": [1795262400.25, "1"]}]}}'
)
DPKG = """Desired=Unknown/Install/Remove/Purge/Hold
| Status=Not/Inst/Conf-files/Unpacked/halF-conf/Half-inst/trig-aWait/Trig-pend
|/ Err?=(none)/Reinst-required (Status,Err: uppercase=bad)
||/ Name                  Version                  Architecture Description
+++-=====================-========================-============-==========================
hi  nvidia-driver-580     580.105.08-0ubuntu1      amd64        NVIDIA driver metapackage
rc  nvidia-dkms-570       570.195.03-0ubuntu1      amd64        NVIDIA DKMS package
"""
RPM = "nvidia-driver-580.105.08-1.el9.x86_64\nlibnccl-2.27.3-1+cuda12.8.x86_64\n"
LDCONFIG = """2 libs found in cache `/etc/ld.so.cache'
\tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcudnn.so.9
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
"""
BESIDE_PROBES = {
    "containers.parse_cdi_file": CDI,
    "fabric_network.parse_ibstat": IBSTAT,
    "measurements.parse_prometheus_vector": VECTOR,
    "measurements.parse_dcgmi_health": HEALTH,
    "nvidia_smi.parse_nvidia_smi_table": TABLE,
    "nvidia_smi.parse_nvidia_smi_text": LISTING,
    "packages.parse_dpkg_list": DPKG,
    "packages.parse_rpm_list": RPM,
    "system.parse_ldconfig": LDCONFIG,
}
"""What parsers that serve no probe read: texts that a person hands over."""


class _Spy(Snapshot):
    """A machine that tells which text goes to which parser."""

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        super().__init__("spy", outputs)
        self.asked: list[tuple[str, Parser]] = []

    def _read(self, probe: str, parse: Callable[[str], Any], **_: Any) -> Any:
        self.asked.append((probe, parse))


def _find_texts() -> dict[str, list[str]]:
    """Parser → what healthy machines print for it."""
    names = {parser: name for name, parser in PARSERS.items()}
    texts: dict[str, dict[str, None]] = {name: {} for name in PARSERS}
    for build in machines.MACHINES.values():
        outputs = build()
        spy = _Spy(outputs)
        for name, value in vars(Snapshot).items():
            if isinstance(value, property):
                getattr(spy, name)
        for probe, parser in spy.asked:
            if probe in outputs and outputs[probe].status == OK and outputs[probe].text:
                texts[names[parser]][outputs[probe].text] = None
    for name, text in BESIDE_PROBES.items():
        texts[name][text] = None
    texts["nvidia_smi.parse_nvidia_smi_xml"] |= texts["nvidia_smi.parse_nvidia_smi"]
    return {name: list(found) for name, found in texts.items()}


TEXTS = _find_texts()

HOSTILE = (
    "\x1b]0;title\x07",
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J",
    "\x1b[31m",
    "\x1bP0;0|payload\x1b\\",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\x1b",
    "\r",
    "\r\n",
    "\x00",
    "\x07",
    "\x08",
    "\x0b",
    "\x0c",
    "\x7f",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ufeff",
    "\ufffd",
    "\ud800",
)
NUMBERS = ("9" * 5000, "-1", "1e999", "nan", "-inf", "", "\u0663", "\u00b2", "0x10", "1_000", "18446744073709551616")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

EXAMPLES = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def walk(value: object) -> Iterator[str]:
    """Every text inside a record."""
    if isinstance(value, str):
        yield value
    elif hasattr(value, "__record_fields__"):
        for name in value.__record_fields__:
            yield from walk(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(key)
            yield from walk(item)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from walk(item)


def read(name: str, text: str) -> object:
    """Parse; the only way to fail is to say so, in words that are fit to be shown."""
    try:
        found = PARSERS[name](text)
    except Unreadable as error:
        assert error.reason
        assert not FORBIDDEN.search(error.reason), f"{error.reason!r}"
        assert "\n" not in error.reason
        assert len(error.reason) < 1000
        return None
    for said in walk(found):
        assert not FORBIDDEN.search(said), f"{said!r}"
    return found


ANY_PARSER = pytest.mark.parametrize("name", sorted(PARSERS))
WITH_TEXTS = pytest.mark.parametrize("name", sorted(name for name, texts in TEXTS.items() if texts))


def test_every_parser_is_tried_with_what_healthy_machines_print() -> None:
    assert len(PARSERS) > 40
    assert sorted(name for name, texts in TEXTS.items() if not texts) == []


@ANY_PARSER
@EXAMPLES
@given(text=st.one_of(st.text(), st.binary().map(lambda data: data.decode("utf-8", "replace"))))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    read(name, text)


@ANY_PARSER
@EXAMPLES
@given(
    text=st.text(alphabet=st.sampled_from(" \t\n=:;,.'\"<>[](){}/#|-_0123456789abcefxXGPUN%\\\x1b\x00"), max_size=200)
)
def test_any_punctuation_is_read_or_refused(name: str, text: str) -> None:
    read(name, text)


@ANY_PARSER
@EXAMPLES
@given(data=st.data())
def test_lines_of_another_tool_are_read_or_refused(name: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from([text for texts in TEXTS.values() for text in texts[:2]]))
    read(name, other)


@WITH_TEXTS
def test_what_healthy_machines_print_is_read(name: str) -> None:
    for text in TEXTS[name]:
        PARSERS[name](text)
        read(name, text)


@WITH_TEXTS
@EXAMPLES
@given(data=st.data())
def test_a_capture_cut_anywhere_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS[name]))
    read(name, text[: data.draw(st.integers(0, len(text)))])
    read(name, text[data.draw(st.integers(0, len(text))) :])


@WITH_TEXTS
@EXAMPLES
@given(data=st.data())
def test_a_capture_with_bytes_flipped_is_read_or_refused(name: str, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(TEXTS[name])).encode())
    for place in data.draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=20)):
        raw[place] ^= data.draw(st.integers(1, 255))
    read(name, raw.decode("utf-8", "replace"))


@WITH_TEXTS
@EXAMPLES
@given(data=st.data())
def test_no_escape_comes_through(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS[name]))
    for place in data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=8)):
        text = text[:place] + data.draw(st.sampled_from(HOSTILE)) + text[place:]
    read(name, text)


@WITH_TEXTS
def test_no_escape_comes_through_from_any_word(name: str) -> None:
    text = min(TEXTS[name], key=len)
    for hostile in HOSTILE:
        read(name, re.sub(r"(?<=[A-Za-z]{2})(?=[A-Za-z])", lambda _, hostile=hostile: hostile, text))
        read(name, text.replace(" ", hostile))
        read(name, text + hostile)
        read(name, hostile + text)


@WITH_TEXTS
@EXAMPLES
@given(data=st.data())
def test_a_capture_with_odd_numbers_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS[name]))
    places = [match.span() for match in re.finditer(r"[0-9]+(?:\.[0-9]+)?", text)]
    for start, end in sorted(data.draw(st.lists(st.sampled_from(places or [(0, 0)]), max_size=5, unique=True)))[::-1]:
        text = text[:start] + data.draw(st.sampled_from(NUMBERS)) + text[end:]
    read(name, text)


@WITH_TEXTS
def test_a_capture_of_odd_numbers_alone_is_read_or_refused(name: str) -> None:
    for number in NUMBERS:
        read(name, re.sub(r"[0-9]+", lambda _, number=number: number, min(TEXTS[name], key=len)))


@WITH_TEXTS
@EXAMPLES
@given(data=st.data())
def test_lines_in_any_order_and_number_are_read_or_refused(name: str, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(TEXTS[name])).splitlines(keepends=True)
    read(name, "".join(data.draw(st.lists(st.sampled_from(lines), max_size=30))))


@EXAMPLES
@given(data=st.data())
def test_a_cut_document_of_nvidia_smi_never_passes_for_a_whole_one(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS["nvidia_smi.parse_nvidia_smi_xml"]))
    cut = text[: data.draw(st.integers(0, len(text.rstrip()) - 1))]
    with pytest.raises(Unreadable):
        PARSERS["nvidia_smi.parse_nvidia_smi_xml"](cut)


SHAPES: dict[str, Callable[[int], str]] = {
    "letters": lambda size: "a" * size,
    "digits": lambda size: "1" * size,
    "spaces": lambda size: " " * size,
    "tabs": lambda size: "\t" * size,
    "lines": lambda size: "\n" * size,
    "words": lambda size: "a " * (size // 2),
    "dots": lambda size: "1." * (size // 2),
    "escapes": lambda size: "\x1b" * size,
    "titles": lambda size: "\x1b]" * (size // 2),
    "brackets": lambda size: "[" * size,
    "braces": lambda size: '{"a":' * (size // 5),
    "equals": lambda size: "a=" * (size // 2),
    "colons": lambda size: "a: " * (size // 3),
    "quotes": lambda size: '"' * size,
    "slashes": lambda size: "/" * size,
    "backslashes": lambda size: "\\" * size,
    "headings": lambda size: "== a\n" * (size // 5),
    "deeper": lambda size: "".join(" " * depth + "a : b\n" for depth in range(int((2 * size) ** 0.5))),
    "elements": lambda size: "<a>" * (size // 3),
}
"""Texts of a size that make a careless pattern slow, or a careless program deep."""


def _seconds(parser: Parser, text: str) -> float:
    start = time.thread_time()
    with contextlib.suppress(Unreadable):
        parser(text)
    return time.thread_time() - start


def _grows_evenly(parser: Parser, make: Callable[[int], str]) -> bool:
    """Eight times the text takes about eight times as long; of its square, sixty-four times.

    A pause of the machine makes one measurement wrong, not five; what takes less than a millisecond is not judged.
    """
    small, large = make(5_000), make(40_000)
    return any(_seconds(parser, large) <= 32 * max(_seconds(parser, small), 0.001) for _ in range(5))


@ANY_PARSER
def test_time_grows_with_the_text_and_no_faster(name: str) -> None:
    slow = [shape for shape, make in SHAPES.items() if not _grows_evenly(PARSERS[name], make)]
    assert slow == []


@ANY_PARSER
def test_texts_of_one_kind_are_read_or_refused(name: str) -> None:
    for make in SHAPES.values():
        read(name, make(20_000))


@WITH_TEXTS
def test_time_grows_evenly_on_long_lines_of_a_real_kind(name: str) -> None:
    longest = max(min(TEXTS[name], key=len).splitlines(), key=len)
    start, end = longest[: len(longest) // 2], longest[len(longest) // 2 :]
    slow = [
        shape
        for shape, make in SHAPES.items()
        if not _grows_evenly(PARSERS[name], lambda size, make=make: f"{start}{make(size)}{end}\n")
    ]
    assert slow == []


@WITH_TEXTS
def test_time_grows_evenly_with_many_lines(name: str) -> None:
    text = min(TEXTS[name], key=len)
    assert _grows_evenly(PARSERS[name], lambda size: text * (size // len(text) + 1))


@ANY_PARSER
def test_megabytes_are_read_or_refused(name: str) -> None:
    read(name, "a" * 3_000_000)
    read(name, "[" * 3_000_000)
