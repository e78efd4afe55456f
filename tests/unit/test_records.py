from __future__ import annotations

import pytest

from provision.records import NOTHING, fields_of, plain, record, replace


@record
class Base:
    source: str
    note: str | None = None


@record
class Row(Base):
    version: str
    tags: tuple[str, ...] = ()
    bounds: dict[str, str] = NOTHING

    def __post_init__(self):
        if not self.version:
            raise ValueError("empty")


def test_record_takes_keywords_and_fills_defaults():
    row = Row(source="s", version="1")
    assert (row.source, row.note, row.version, row.tags, dict(row.bounds)) == ("s", None, "1", (), {})
    assert not hasattr(row, "__dict__")


@pytest.mark.parametrize("values", [{"version": "1"}, {"source": "s", "version": "1", "colour": "red"}])
def test_missing_and_unknown_fields_are_refused(values):
    with pytest.raises(TypeError, match=r"source|colour"):
        Row(**values)


def test_record_is_frozen():
    row = Row(source="s", version="1")
    with pytest.raises(AttributeError, match="frozen"):
        row.version = "2"
    with pytest.raises(AttributeError, match="frozen"):
        del row.version


def test_records_compare_and_hash_by_their_fields():
    assert Row(source="s", version="1") == Row(source="s", version="1")
    assert Row(source="s", version="1") != Row(source="s", version="2")
    assert Base(source="s") != Row(source="s", version="1")
    assert len({Base(source="s"), Base(source="s")}) == 1


def test_post_init_runs_also_for_a_copy():
    with pytest.raises(ValueError, match="empty"):
        replace(Row(source="s", version="1"), version="")


def test_fields_of_a_base_come_first():
    assert list(fields_of(Row)) == ["source", "note", "version", "tags", "bounds"]
    assert fields_of(Row)["note"] == ("str | None", False)


def test_plain_goes_all_the_way_down():
    row = Row(source="s", version="1", tags=("a",), bounds={"x": ">1"})
    assert plain({"rows": (row,)}) == {
        "rows": [{"source": "s", "note": None, "version": "1", "tags": ["a"], "bounds": {"x": ">1"}}]
    }


@record
class Empty:
    """A record without fields."""


@record
class Single:
    name: str


def test_records_of_one_field_or_none_compare_and_hash_too():
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1
    assert Single(name="a") == Single(name="a")
    assert Single(name="a") != Single(name="b")
    assert Single(name="a") != "a"
    assert len({Single(name="a"), Single(name="a"), Single(name="b")}) == 2
