"""The schemas say what the row classes say, and the shipped files obey them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from provision.assets import asset_dir
from provision.matrix import model
from provision.matrix.check import RULES
from provision.matrix.decode import field_order
from provision.records import fields_of
from tools.check_schemas import main, validator_of

COMPAT = asset_dir("compat")
SCHEMAS = COMPAT / "schema"


def schema_name(file: str) -> str:
    return f"{Path(file).stem}.schema.json"


def load(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


def faults_of(name: str, document: dict[str, Any]) -> list[str]:
    return [error.message for error in validator_of(SCHEMAS / name).iter_errors(document)]


ROWS = [(file, array, row_type) for file, arrays in model.ARRAY_OF.items() for array, row_type in arrays.items()]
ROW_IDS = [f"{file}:{array}" for file, array, _ in ROWS]


def test_every_file_has_a_schema_and_every_schema_a_file() -> None:
    others = {"common.schema.json", "predict.schema.json", "published.schema.json"}
    others |= {"shapes.schema.json", "wheels.schema.json"}
    expected = {schema_name(file) for file in model.ARRAY_OF} | others
    assert {path.name for path in SCHEMAS.iterdir()} == expected


@pytest.mark.parametrize("path", sorted(SCHEMAS.iterdir()), ids=lambda path: path.name)
def test_schema_is_valid_and_written_as_json_prints_it(path: Path) -> None:
    from jsonschema import Draft202012Validator  # makes a grammar of addresses, which takes two seconds

    document = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(document)
    assert path.read_text(encoding="utf-8") == json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(("file", "array", "row_type"), ROWS, ids=ROW_IDS)
def test_properties_are_the_fields(file: str, array: str, row_type: type) -> None:
    row = load(schema_name(file))["$defs"][array]
    assert tuple(row["properties"]) == field_order(row_type)
    assert row["additionalProperties"] is False
    required = {name for name, (_, is_required) in fields_of(row_type).items() if is_required}
    assert set(row["required"]) == required


@pytest.mark.parametrize(("name", "row_type"), [("release", model.WheelRelease), ("wheel", model.Wheel)])
def test_wheel_properties_are_the_fields(name: str, row_type: type) -> None:
    row = load("wheels.schema.json")["$defs"][name]
    assert tuple(row["properties"]) == tuple(fields_of(row_type))
    assert row["additionalProperties"] is False


def test_shipped_files_obey_their_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out
    assert int(capsys.readouterr().out.split()[0]) > len(model.ARRAY_OF)


def test_readme_names_every_file_array_and_rule() -> None:
    text = (COMPAT / "README.md").read_text(encoding="utf-8")
    for file, arrays in model.ARRAY_OF.items():
        line = next((line for line in text.splitlines() if line.startswith(f"| `{file}` |")), "")
        assert [array for array in arrays if f"`{array}`" not in line] == [], file
    assert [rule for rule in RULES if rule not in text] == []


ROW = {"version": "12.9.0", "minimum_driver": "525.60.13", "source": ["guide"], "where": "a table"}
SOUND = {**ROW, "status": "stated", "confidence": "high"}


@pytest.mark.parametrize(
    "row",
    [
        {**SOUND, "version": "12,9"},
        {**SOUND, "status": "guessed"},
        {**SOUND, "confidence": "total"},
        {**SOUND, "because": ["it follows"]},
        {**SOUND, "status": "derived"},
        {**SOUND, "status": "measured", "because": ["it follows"]},
        {**SOUND, "source": []},
        {**SOUND, "colour": "green"},
        {**SOUND, "gcc_max": "12"},
        {**SOUND, "runfile_sha256": "abc"},
        {**SOUND, "runfile_url": "http://vendor.example/x.run"},
        {**SOUND, "evidence": {"sm": {"source": ["guide"], "where": "there"}}},
        {key: value for key, value in SOUND.items() if key != "where"},
    ],
    ids=str,
)
def test_schema_refuses(row: dict[str, Any]) -> None:
    document = {"schema_version": 1, "dated": "2026-01-02", "release": [row]}
    assert faults_of("cuda.schema.json", document)


def test_schema_accepts_a_sound_row() -> None:
    derived = {**SOUND, "status": "derived", "because": ["it follows"]}
    document = {"schema_version": 1, "dated": "2026-01-02", "release": [SOUND, derived]}
    assert faults_of("cuda.schema.json", document) == []


@pytest.mark.parametrize("given", [{}, {"value": "a", "values": ["b"]}])
def test_a_setting_has_exactly_one_kind_of_value(given: dict[str, Any]) -> None:
    setting = {"id": "x", **given, **{key: SOUND[key] for key in ("source", "where", "status", "confidence")}}
    document = {"schema_version": 1, "dated": "2026-01-02", "release": [SOUND], "setting": [setting]}
    assert faults_of("cuda.schema.json", document)


@pytest.mark.parametrize("file", model.ARRAY_OF)
def test_first_line_points_editors_to_the_schema(file: str) -> None:
    path = COMPAT / file
    first = path.read_text(encoding="utf-8").splitlines()[0]
    target = path.parent / first.removeprefix("#:schema ")
    assert target.resolve() == (SCHEMAS / schema_name(file)).resolve()
    assert tomllib.loads(path.read_text(encoding="utf-8"))["schema_version"] == 1
