"""The checks of how GPUs reach each other."""

from __future__ import annotations

import machines
import pytest
from asking import ask

H100 = machines.hgx_h100()


def test_all_pairs_pass() -> None:
    assert ask("topo.p2p", H100).seen == "all 56 pairs can"


@pytest.mark.parametrize("word", ["NS", "CNS", "GNS", "TNS"])
def test_a_denied_pair_is_named_with_the_word(word: str) -> None:
    outcome = ask("topo.p2p", machines.change(H100, "nvidia-smi-p2p", "GPU0\tX\tOK", f"GPU0\tX\t{word}"))

    assert (outcome.status, outcome.subjects) == ("fail", ("GPU0",))
    assert outcome.seen.startswith(f"GPU0 to GPU1: {word} (")


def test_many_denied_pairs_are_cut_and_counted() -> None:
    outcome = ask("topo.p2p", machines.change(H100, "nvidia-smi-p2p", "OK\t", "CNS\t"))

    assert outcome.seen.endswith("; 50 more pairs")


def test_an_unknown_pair_is_unknown() -> None:
    assert ask("topo.p2p", machines.change(H100, "nvidia-smi-p2p", "X\tOK", "X\tU")).status == "unknown"


def test_nobody_asks_cards_without_a_plan() -> None:
    assert ask("topo.p2p", machines.l40s_pcie(), machine="l40s_pcie").status == "skip"


def test_a_board_with_links_needs_no_plan() -> None:
    assert ask("topo.p2p", H100, needs_p2p=None).status == "pass"


def test_pairs_that_are_not_listed_are_unknown() -> None:
    lines = H100["nvidia-smi-p2p"].text.splitlines(keepends=True)
    half = [line for line in lines if not line.startswith((" GPU5", " GPU6", " GPU7"))]
    heading = half[0].replace("\tGPU5\tGPU6\tGPU7", "")
    rows = ["\t".join(line.split("\t")[:6]) + "\t\n" if line.startswith(" GPU") else line for line in half[1:]]
    outputs = machines.replace_output(H100, "nvidia-smi-p2p", text="".join([heading, *rows]))
    outcome = ask("topo.p2p", outputs)
    assert (outcome.status, outcome.seen) == ("unknown", "nvidia-smi lists 20 pairs of 8 GPUs")
