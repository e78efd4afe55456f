"""Looking for a literal first changes how long a search takes and nothing else."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from types import SimpleNamespace

import machines
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.cli.main import main
from provision.cli.request import read_matrix
from provision.doctor import needles
from provision.doctor.case import Case
from provision.doctor.engine import rule_of
from provision.doctor.needles import Page, find_needles, fold
from provision.probe.output import Unreadable
from provision.probe.parse.kernel_log import EVENT_WORDS, parse_kernel_log

MATRIX = read_matrix(SimpleNamespace(data_dir=None))
PATTERNS = sorted({pattern for row in MATRIX.diagnoses.values() for pattern in rule_of(row).SYMPTOMS})
WORDS = (
    *(
        "error",
        "Error:",
        " 802",
        "Xid (PCI:0000:5d:00): 79, ",
        "NVRM: ",
        "NCCL INFO ",
        "torch==2.1.2+cpu",
        "fallen off the bus",
    ),
    *(
        "GPU is lost",
        "\u017fystem not yet initiali\u017fed",
        "\u212aernel",
        "N\u0130CCL",
        "\u00df",
        "\u0130",
        "\x85",
        "\u2028",
        "\r",
    ),
    *("\n", "\n", "\n", " ", "No devices were found", "no kernel image is available", "0", "\x00", "\U0001f600"),
)


def search_plainly(text, patterns):
    """Return (line, what matched) as a search without any needles finds them."""
    found = []
    for line in text.splitlines():
        for pattern in patterns:
            match = re.search(pattern, line, re.IGNORECASE)
            if match is not None:
                found.append((match.string, match.span(), match.re.pattern))
                break
    return found


def search(text, patterns):
    quotes = Case(MATRIX, None, [("text", text)]).find_all(*patterns)
    return [(quote.match.string, quote.match.span(), quote.match.re.pattern) for quote in quotes]


@settings(max_examples=150)
@given(
    text=st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=40).map("".join),
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6),
)
def test_the_same_lines_are_found_with_and_without_needles(text, patterns) -> None:
    assert search(text, patterns) == search_plainly(text, patterns)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), pattern=st.sampled_from(PATTERNS))
def test_what_a_pattern_matches_holds_one_of_its_needles(data, pattern) -> None:
    line = data.draw(st.from_regex(re.compile(pattern, re.IGNORECASE)))
    assert any(needle in fold(line) for needle in find_needles(pattern) or ("",))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param(r"GPU is lost", ("gpu is lost",), id="literal"),
        pytest.param(r"\berror:? 802\b", ("error",), id="longest"),
        pytest.param(r"(?:is running|was stopped)", ("is running", "was stopped"), id="either"),
        pytest.param(r"(?:running|\d+)", None, id="one-without"),
        pytest.param(r"(?:abcdef)?ghi", ("ghi",), id="optional"),
        pytest.param(r"(?:abcdef)+g", ("abcdef",), id="repeated"),
        pytest.param(r"(?:abcdef){0,3}", None, id="maybe-never"),
        pytest.param(r"(?!abcdef)g", None, id="must-not-be"),
        pytest.param(r"[ab]c", None, id="too-short"),
        pytest.param(r"gro\u00dfe", ("gro",), id="not-ascii"),
    ],
)
def test_needles_of_a_pattern(pattern, expected) -> None:
    assert find_needles(pattern) == expected


def test_every_pattern_of_a_rule_has_needles() -> None:
    assert [pattern for pattern in PATTERNS if find_needles(pattern) is None] == []


def test_whatever_matches_a_letter_without_its_case_is_folded_to_it() -> None:
    letters = re.compile("[a-z]", re.IGNORECASE)
    matched = [char for char in map(chr, range(sys.maxunicode + 1)) if letters.fullmatch(char)]
    assert len(matched) > 52
    wrong = [
        char for char in matched if not re.fullmatch(re.escape(fold(char)), char, re.IGNORECASE) or fold(char) > "z"
    ]
    assert wrong == []


def test_lines_come_in_their_order_whichever_pattern_they_match() -> None:
    text = "no such device\nGPU is lost\nnot here\nNo such device, GPU is lost\nGPU is lost\n"
    found = search(text, ["GPU is lost", "no such device"])
    assert [line for line, _, _ in found] == [line for line in text.splitlines() if line != "not here"]
    assert found == search_plainly(text, ["GPU is lost", "no such device"])


def test_folding_moves_nothing() -> None:
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))
    assert len(fold(text)) == len(text)


def test_a_line_without_a_needle_is_never_asked() -> None:
    page = Page("text", "".join(f"step {number}\n" for number in range(500)) + "GPU is lost\n")
    asked = list(page.candidates(PATTERNS))
    assert {number for number, _ in asked} == {500}
    assert len(asked) < 10


def test_without_the_interpreters_parser_every_line_is_asked(monkeypatch) -> None:
    def refuse(name):
        if name == "re._parser":
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(needles, "import_module", refuse)
    find_needles.cache_clear()
    try:
        text = "a\nGPU is lost\n"
        assert search(text, ["GPU is lost"]) == search_plainly(text, ["GPU is lost"]) != []
    finally:
        find_needles.cache_clear()


def test_every_event_of_the_kernel_holds_a_word_by_which_its_log_is_told() -> None:
    lines = [line for build in machines.MACHINES.values() for line in build()["kernel-log"].text.splitlines()]
    lines += [text for row in MATRIX.diagnoses.values() for text in row.examples]
    lines += KERNEL_LINES
    found = {event.kind for line in lines for event in parse_kernel_log_or_none(line)}
    assert len(found) >= 12
    for line in lines:
        if parse_kernel_log_or_none(line):
            assert Page("log", line).has_any(EVENT_WORDS), line


KERNEL_LINES = [
    "[1.1] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
    "[1.1] nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 44 egress",
    "[1.1] python3[77]: segfault at 10 ip 00007f in libnccl.so.2[7f]",
    "[1.1] pcieport 0000:00:1c.0: AER: Corrected error received: 0000:41:00.0",
    "[1.1] nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
    "[1.1] pci 0000:41:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]",
    "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
    "[1.1] NVRM: RmInitAdapter failed! (0x26:0x56:1474)",
    "[1.1] NVRM: API mismatch: the client has the version 550.76",
    "[1.1] mlx5_core 0000:17:00.0: Detected insufficient power on the PCIe slot (27W)",
    "[1.1] mlx5_core 0000:17:00.0 ens5: Link down",
    "[1.1] Out of memory: Killed process 4242 (python3)",
    "[1.1] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]",
    "[1.1] INFO: task nvidia-smi:4242 blocked for more than 120 seconds.",
    "[1.1] PM: suspend entry (deep)",
    "[1.1] nvidia: probe of 0000:41:00.0 failed with error -1",
]


def parse_kernel_log_or_none(line):
    """Return the events of a line, none where it is not a line of a kernel's."""
    try:
        return parse_kernel_log(line).events
    except Unreadable:
        return ()


def test_a_line_without_an_end_is_searched_in_parts() -> None:
    page = Page("log", "x" * 100_000 + " GPU is lost\nnext\n")
    assert "".join(page.lines) == "x" * 100_000 + " GPU is lostnext"
    assert max(map(len, page.lines)) < 20_000
    ((number, _),) = list(page.candidates((r"\bGPU is lost\b",)))
    assert page.lines[number].endswith(" GPU is lost")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache folder, with nothing found or read before."""
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(needles, "_FOUND", {})
    forget()
    yield tmp_path / "cache"
    forget()


def forget():
    for function in (needles._kept_path, needles._kept, find_needles):
        function.cache_clear()


def refuse(*arguments):
    raise AttributeError(arguments)


def test_needles_are_found_once_and_then_read(cache, monkeypatch):
    sought = {pattern: find_needles(pattern) for pattern in (*PATTERNS, r"\d+ \d+")}
    needles.keep_needles()
    forget()
    monkeypatch.setattr(needles, "_of_sequence", refuse)
    assert {pattern: find_needles(pattern) for pattern in sought} == sought


def test_needles_of_another_run_are_kept_beside_those_of_this_one(cache, monkeypatch):
    find_needles("no devices were found")
    needles.keep_needles()
    forget()
    find_needles("fallen off the bus")
    needles.keep_needles()
    forget()
    monkeypatch.setattr(needles, "_of_sequence", refuse)
    assert find_needles("no devices were found") == ("no devices were found",)
    assert find_needles("fallen off the bus") == ("fallen off the bus",)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"fallen off the bus": 5}', b'{"a": [1]}'])
def test_kept_needles_that_are_damaged_are_found_again(cache, content):
    cache.mkdir()
    needles._kept_path().write_bytes(content)
    assert find_needles("fallen off the bus") == ("fallen off the bus",)
    needles.keep_needles()
    forget()
    assert needles._kept() == {"fallen off the bus": ["fallen off the bus"]}


def test_a_cache_folder_that_cannot_be_made_keeps_no_needles(tmp_path, cache, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert find_needles("fallen off the bus") == ("fallen off the bus",)
    needles.keep_needles()
    assert not (tmp_path / "file").is_dir()


def test_explaining_a_text_keeps_its_needles(tmp_path, cache, capsys):
    (tmp_path / "error.log").write_text("RuntimeError: Numpy is not available\n")
    assert main(["doctor", "--text", str(tmp_path / "error.log")]) == 0
    assert [path.name.split("-")[0] for path in cache.glob("needles-*")] == ["needles"]
