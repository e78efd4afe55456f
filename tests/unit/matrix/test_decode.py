import pytest

from provision.errors import DataError
from provision.matrix.decode import decode_row, field_order
from provision.matrix.model import Cudnn, PythonRelease

ROW = {
    "version": "3.11",
    "released": "2022-10-24",
    "source": ["pep-664"],
    "where": "release schedule",
    "status": "stated",
    "confidence": "high",
}


def test_row_becomes_a_frozen_object():
    row = decode_row(PythonRelease, ROW, "python.toml: python[0]")
    assert (row.version, row.source, row.end_of_life, row.because) == ("3.11", ("pep-664",), None, ())
    with pytest.raises(AttributeError):
        row.version = "3.12"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3.11}, r"python\[0\]\.version must be a string, not float 3\.11; versions are quoted"),
        ({"version": None}, r"version must be a string"),
        ({"source": "pep-664"}, r"source must be a list"),
        ({"source": [1]}, r"source\[0\] must be a string"),
        ({"colour": "red"}, r"unknown key `colour`"),
    ],
)
def test_wrong_key_is_named_with_its_path(change, message):
    with pytest.raises(DataError, match=message):
        decode_row(PythonRelease, {**ROW, **change}, "python.toml: python[0]")


def test_missing_key_is_named():
    with pytest.raises(DataError, match="lacks the key `where`"):
        decode_row(PythonRelease, {key: value for key, value in ROW.items() if key != "where"}, "x")


def test_whole_number_is_no_flag_and_a_flag_no_number():
    row = {**ROW, "cuda": [], "sm_min": True}
    del row["released"]
    with pytest.raises(DataError, match="sm_min must be a whole number"):
        decode_row(Cudnn, row, "cudnn.toml: release[0]")


def test_keys_stand_before_their_origin_in_a_file():
    order = field_order(PythonRelease)
    assert order[:3] == ("version", "released", "end_of_life")
    assert order[-1] == "evidence"


def test_origin_of_a_field_is_decoded_when_it_is_asked_for():
    row = decode_row(PythonRelease, {**ROW, "evidence": {"released": {"where": "x"}}}, "python.toml: python[0]")
    assert list(row.evidence) == ["released"]
    assert row.evidence.get("version", row) is row
    with pytest.raises(DataError, match=r"evidence\.released lacks the key `source`"):
        row.evidence.get("released")
