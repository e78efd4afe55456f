"""Files of ``published/``: what releases ask for is read a list at a time."""

import json

import pytest

from provision.assets import asset_dir
from provision.errors import DataError
from provision.matrix.published import PublishedPackage

FILE = asset_dir("compat") / "published" / "accelerate.json"


def test_lists_that_are_read_one_by_one_are_those_of_the_whole_file() -> None:
    whole = json.loads(FILE.read_bytes())["requires"]
    package = PublishedPackage(FILE)
    assert [package.ask(place) for place in range(len(whole))] == whole
    assert package.ask(0) is package.ask(0)


def test_another_layout_of_the_same_facts_says_the_same(tmp_path) -> None:
    document = json.loads(FILE.read_bytes())
    other = tmp_path / FILE.name
    other.write_text(json.dumps(document, indent=2), encoding="utf-8")
    have, same = PublishedPackage(FILE), PublishedPackage(other)
    assert have.versions == same.versions
    assert [have.ask(place) for place in range(len(document["requires"]))] == document["requires"]
    assert [same.ask(place) for place in range(len(document["requires"]))] == document["requires"]


@pytest.mark.parametrize("damage", [('"accelerate', "accelerate"), ('["","', '["", oops "')])
def test_a_damaged_file_is_named(tmp_path, damage) -> None:
    broken = tmp_path / FILE.name
    broken.write_text(FILE.read_text(encoding="utf-8").replace(*damage), encoding="utf-8")
    with pytest.raises(DataError, match=r"published/accelerate\.json cannot be read"):
        PublishedPackage(broken).ask(0)


def test_a_list_that_is_not_there_is_a_fault_of_the_file() -> None:
    with pytest.raises(DataError, match=r"published/accelerate\.json"):
        PublishedPackage(FILE).ask(9999)
