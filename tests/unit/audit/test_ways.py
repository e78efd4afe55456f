"""Every way out that is printed was tried: applied to the same files, the same rules no longer find it."""

from __future__ import annotations

import re

import pytest

from provision.audit import ways
from provision.audit.engine import audit
from provision.audit.model import Options, Source
from provision.matrix.load import Matrix

MATRIX = Matrix()
INDEX = "https://download.pytorch.org/whl"
CASES = {
    "index of another build": f"--index-url {INDEX}/cu124\ntorch==2.2.0\n",
    "local version": f"--extra-index-url {INDEX}/cu126\ntorch==2.4.1+cu126\n",
    "older than its index": f"--index-url {INDEX}/cu121\ntorch==1.13.1\n",
    "build that ended": f"-f {INDEX}/torch_stable.html\ntorch==1.9.0+cu92\n",
}


def rules_of(text: str, options: Options = Options()) -> list[tuple[str, str]]:  # noqa: B008
    sources = {"requirements.txt": Source("requirements.txt", text)}
    return [(item.rule, item.hint) for item in audit([*sources.values()], sources.get, MATRIX, options).findings]


def apply(text: str, hint: str) -> str:
    """Return the text as a person writes it who does what the hint says."""
    for words in re.findall("`([^`]*)`", hint):
        text = (
            re.sub(r"https?://\S*/(?:cu[0-9]+|cpu)", words, text)
            if "://" in words
            else (re.sub(rf"{words.partition('==')[0]}==\S+", words, text))
        )
    return text


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_a_hint_takes_the_finding_away(text: str) -> None:
    hint = next(hint for rule, hint in rules_of(text) if rule == "C02")
    assert "`" in hint
    for way in hint.split("; or "):
        after = apply(text, way)
        assert after != text
        assert "C02" not in [rule for rule, _ in rules_of(after)], (way, after)


def test_a_way_that_does_not_help_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CASES["index of another build"]
    monkeypatch.setattr(ways, "_helps", lambda *_: False)
    assert [hint for rule, hint in rules_of(text) if rule == "C02"] == [MATRIX.audit_rules["C02"].remedy]


def test_a_way_that_breaks_another_package_is_not_printed() -> None:
    text = f"--index-url {INDEX}/cu126\ntorch==2.4.1+cu126\ntorchvision==0.19.1+cu126\n"
    hint = next(hint for rule, hint in rules_of(text) if rule == "C02")
    for way in hint.split("; or ") if "`" in hint else ():
        before, after = rules_of(text), rules_of(apply(text, way))
        assert {rule for rule, _ in after} <= {rule for rule, _ in before}
