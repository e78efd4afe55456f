"""What the code for GPUs inside a compiled file is for, read while the file passes by."""

from __future__ import annotations

import pytest
from upstream import fatbin_of

from provision.refresh.fatbin import FatbinScanner, ordered_targets

TARGETS = ("sm_75", "sm_90", "sm_90a", "sm_100f", "sm_121a", "compute_90", "compute_100f")


def scan(content: bytes, step: int) -> FatbinScanner:
    scanner = FatbinScanner()
    for start in range(0, len(content), step):
        scanner.feed(content[start : start + step])
    return scanner


@pytest.mark.parametrize("step", [1, 7, 64, 1000, 1_000_000])
def test_targets_are_found_whatever_the_pieces(step):
    content = b"\x7fELF code" + fatbin_of(*TARGETS[:3]) + b"between" * 99 + fatbin_of(*TARGETS[3:]) + b"\x50\xed"
    found = scan(content, step)
    assert found.is_whole
    assert ordered_targets(found.targets) == list(TARGETS)


def test_what_stands_in_the_code_is_no_header():
    inner = fatbin_of("sm_20")
    found = scan(fatbin_of("sm_80", code=inner + b"\0" * 40), 50)
    assert found.targets == {"sm_80"}
    assert found.is_whole


@pytest.mark.parametrize("content", [b"", b"\x50\xed\x55\xba" * 9, b"\x50\xed\x55\xba\x02\x00\x10\x00" + b"\0" * 90])
def test_a_file_without_a_container_has_no_targets(content):
    found = scan(content, 16)
    assert not found.targets
    assert found.is_whole


def test_a_container_that_is_not_as_its_kind_has_to_be_is_said():
    whole = fatbin_of("sm_80", "sm_90")
    broken = whole[:20] + b"\xff\xff" + whole[22:]
    found = scan(broken, 64)
    assert not found.is_whole
    nonsense = fatbin_of("sm_9999")
    assert not scan(nonsense, 64).is_whole


def test_other_kinds_in_a_container_are_passed_over():
    content = fatbin_of("sm_80", "other_80", "sm_90")
    found = scan(content, 40)
    assert (found.targets, found.is_whole) == ({"sm_80", "sm_90"}, True)


def test_cubins_come_before_ptx_and_old_before_new():
    assert ordered_targets(["compute_90", "sm_100", "sm_90a", "sm_90"]) == ["sm_90", "sm_90a", "sm_100", "compute_90"]
