import json

import pytest

from provision.errors import DataError
from provision.matrix.cache import ParsedFile


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(folder))
    return folder


def write(tmp_path, text):
    path = tmp_path / "python.toml"
    path.write_text(text)
    return path


def test_second_read_comes_from_the_cache_and_is_equal(tmp_path, cache):
    path = write(tmp_path, 'dated = 2026-11-21\n[[python]]\nversion = "3.11"\nreleased = 2022-10-24\n')
    first = ParsedFile(path, "python.toml").part("python")
    (kept,) = cache.glob("python-*.python.json")
    assert json.loads(kept.read_text()) == first == [{"version": "3.11", "released": "2022-10-24"}]
    kept.write_text('[{"version": "from the cache"}]')
    assert ParsedFile(path, "python.toml").part("python") == [{"version": "from the cache"}]


def test_edited_file_is_parsed_again(tmp_path, cache):
    path = write(tmp_path, "dated = 2026-11-21\n")
    assert ParsedFile(path, "python.toml").part("dated") == "2026-11-21"
    write(tmp_path, "dated = 2026-11-22\n")
    assert ParsedFile(path, "python.toml").part("dated") == "2026-11-22"


def test_damaged_cache_only_costs_time(tmp_path, cache):
    path = write(tmp_path, "dated = 2026-11-21\n")
    ParsedFile(path, "python.toml").part("dated")
    for kept in cache.iterdir():
        kept.write_text("{")
    assert ParsedFile(path, "python.toml").part("dated") == "2026-11-21"


def test_cache_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    path = write(tmp_path, "dated = 2026-11-21\n")
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(path / "below-a-file"))
    assert ParsedFile(path, "python.toml").part("dated") == "2026-11-21"


def test_absent_array_is_empty(tmp_path, cache):
    path = write(tmp_path, "schema_version = 1\n")
    assert ParsedFile(path, "python.toml").part("python") == []
    assert ParsedFile(path, "python.toml").part("python") == []


@pytest.mark.parametrize("content", [b"a = \xff", b"a = = 1", b"[[a]\n"])
def test_broken_file_names_itself(tmp_path, cache, content):
    path = tmp_path / "cuda.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cuda\.toml"):
        ParsedFile(path, "cuda.toml").part("release")


def test_missing_file_says_which(tmp_path):
    with pytest.raises(DataError, match=r"cuda\.toml is missing"):
        ParsedFile(tmp_path / "cuda.toml", "cuda.toml")


def test_rows_with_a_value_are_read_without_the_others(tmp_path, cache):
    names = ("a", "b", "a", 'q"x')
    rows = "".join(f"[[python]]\nversion = '{name}'\nnote = 'version: {name}'\n" for name in names)
    file = ParsedFile(write(tmp_path, rows), "python.toml")
    assert file.rows_with("python", "version", "a") is None, "nothing is kept yet"
    whole = file.part("python")
    again = ParsedFile(tmp_path / "python.toml", "python.toml")
    for value in ("a", "b", 'q"x', "absent"):
        expected = [(index, row) for index, row in enumerate(whole) if row["version"] == value]
        assert again.rows_with("python", "version", value) == expected
    (kept,) = cache.glob("python-*.python.json")
    kept.write_text(json.dumps(whole))
    assert again.rows_with("python", "version", "a") is None, "kept by an earlier release, all on one line"
