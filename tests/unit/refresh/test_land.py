"""New facts on disk: all of them or none, and what the changelog says."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from provision.errors import ActionFailedError
from provision.refresh.book import Book
from provision.refresh.diff import changelog_lines, changes_of, show_changes
from provision.refresh.land import Claim, land, write_entry

DAY = datetime.date(2026, 11, 23)


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def texts(facts):
    book = Book(facts)
    book.find("drivers.toml", "distro_driver", os="debian13", branch=550)["version"] = "550.199.01"
    book.date("drivers.toml", DAY)
    book.document("wheels/torch.json")["releases"].pop()
    return book.texts()


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_write_that_breaks_off_leaves_every_old_file(facts, texts, monkeypatch, fails_at, write):
    before = state(facts)
    real, calls = Path.open, [0]

    def fail(self, mode="r", *rest, **more):
        if "x" in mode:
            calls[0] += 1
            if calls[0] == fails_at:
                raise KeyboardInterrupt if fails_at == 2 else OSError(28, "No space left on device", str(self))
        return real(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", fail)
    if fails_at == 3:
        write(facts, texts)
        assert state(facts).keys() == before.keys()
        return
    with pytest.raises((ActionFailedError, KeyboardInterrupt)):
        write(facts, texts)
    assert state(facts) == before


def test_a_change_names_its_row_fields_and_source(facts):
    book = Book(facts)
    book.find("drivers.toml", "distro_driver", os="debian13", branch=550)["version"] = "550.199.01"
    (change,) = changes_of(book)
    assert change.fields == (("version", "550.163.01", "550.199.01"),)
    text = show_changes([change])
    assert "~ distro_driver debian13 550 desktop  [debian-archive]" in text
    assert "version: 550.163.01 → 550.199.01" in text


def test_an_entry_goes_under_facts_once(facts):
    book = Book(facts)
    book.find("drivers.toml", "distro_driver", os="debian13", branch=550)["version"] = "550.199.01"
    lines = changelog_lines(changes_of(book), DAY)
    assert lines == ["- Upstream as of 2026-11-23: corrected driver packages of debian13 (550 desktop)."]
    text = "# Changelog\n\n## [Unreleased]\n\n### Facts\n\n- older\n\n## [1.0]\n\n### Facts\n\n- oldest\n"
    once = write_entry(text, lines)
    assert once == text.replace("- older\n", f"- older\n{lines[0]}\n")
    assert write_entry(once, lines) == once
    assert changelog_lines([], DAY) == []


@pytest.mark.parametrize(
    "text", ["# Changelog\n", "# C\n\n## [Unreleased]\n\n### Added\n\n- x\n", "# C\n\n## [1.0]\n\n- x\n", ""]
)
def test_an_entry_finds_a_place_in_any_changelog(text):
    made = write_entry(text, ["- new"])
    assert made.index("## [Unreleased]") < made.index("### Facts") < made.index("- new")
    assert "## [1.0]" not in made or made.index("- new") < made.index("## [1.0]")


# two at once


def test_a_folder_that_another_refresh_has_is_left_alone(facts, texts, write):
    before = state(facts)
    with Claim(facts):
        with pytest.raises(ActionFailedError, match="another refresh of the facts"), Claim(facts):
            pass
        with pytest.raises(ActionFailedError, match="another refresh of the facts"):
            write(facts, texts)
    assert state(facts) == before


def test_who_has_the_claim_writes_with_it_and_gives_it_back(facts, texts):
    with Claim(facts) as claim:
        assert sorted(land(claim, texts)) == sorted(texts)
    with Claim(facts):
        pass


def test_a_folder_that_two_want_to_make_is_the_firsts(tmp_path):
    target = tmp_path / "new"
    with Claim(target) as one, Claim(target) as two:
        assert land(one, {"a.toml": "one\n"}) == ("a.toml",)
        with pytest.raises(ActionFailedError):
            land(two, {"a.toml": "two\n"})
    assert (target / "a.toml").read_text() == "one\n"
    with Claim(target) as late:
        late.is_new = True
        with pytest.raises(ActionFailedError, match="changed while upstream was read"):
            land(late, {"a.toml": "late\n"})


def test_rows_that_another_refresh_wrote_in_the_meantime_stay(facts, texts, write):
    path = facts / "drivers.toml"
    path.write_text(path.read_text() + "# theirs\n")
    before = state(facts)
    with pytest.raises(ActionFailedError, match="changed while upstream was read") as caught:
        write(facts, texts)
    assert "drivers.toml" in caught.value.because[0]
    assert state(facts) == before
    Book(facts).document("drivers.toml")
    assert "drivers.toml" in write(facts, texts)
