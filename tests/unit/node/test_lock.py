"""A lock is data that nobody has edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.errors import UsageError
from provision.generate.node import lock_digest
from provision.node.lock import digest_folder, digest_inventory_locks, parse_lock


def _lock(**more: Any) -> dict[str, Any]:
    document = {"lock_version": 1, "facts_date": "2026-11-21", "name": "test", "profiles": {"debian12": {}}, **more}
    return {**document, "digest": lock_digest(document)}


def test_yaml_and_json_are_the_same_lock() -> None:
    document = _lock()
    yaml = "provision_lock:\n" + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in document.items())
    found = parse_lock(yaml, "x.yml")
    assert found.document == document
    assert found.text == yaml
    assert parse_lock(json.dumps({"provision_lock": document}), "x.json").digest == found.digest


def test_bare_lock_becomes_a_file_that_ansible_reads() -> None:
    document = _lock()
    assert json.loads(parse_lock(json.dumps(document), "x").text) == {"provision_lock": document}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a lock of nodes"),
        ("[1, 2]", "is not a lock of nodes"),
        ("provision_lock: 7", "is not a lock of nodes"),
        ("a: [", "is not YAML"),
        ('{"a": ', "is not JSON"),
        ("{" * 100_000, "is not JSON"),
        ("a: &a [*a]\nb: *c", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_lock(text, "my.yml")
    assert "my.yml" in refused.value.message
    assert said in refused.value.message


def test_lock_that_holds_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="or itself"):
        parse_lock("lock_version: 1\ndigest: x\nprofiles: &a\n  b: *a\n", "x")


def test_edited_lock_is_refused() -> None:
    document = _lock()
    document["profiles"]["debian12"]["driver"] = None
    with pytest.raises(UsageError, match="was edited"):
        parse_lock(json.dumps(document), "x")


def test_edited_lock_is_written_again_by_the_request_that_it_holds() -> None:
    node = {"flavour": "auto", "includes": [], "method": "distro", "profile": "compute", "systems": ["debian12"]}
    document = _lock(request={"driver": "580", "gpus": ["h100"], "node": node})
    document["request"]["driver"] = "595"
    with pytest.raises(UsageError, match="was edited") as edited:
        parse_lock(json.dumps(document), "--lock: my lock.yml")
    words = "provision node lock --gpu h100 --driver 595 --os debian12 --method distro --include none -o 'my lock.yml'"
    assert f"`{words}`" in edited.value.hints[0]


@pytest.mark.parametrize("request_", [None, [], "x", {"node": 7}, {"driver": "$(x)", "node": {}}, {"node": {"os": 1}}])
def test_edited_lock_without_a_request_that_can_be_read_has_a_way_out_too(request_: object) -> None:
    document = _lock(request=request_)
    document["name"] = "other"
    with pytest.raises(UsageError, match="was edited") as edited:
        parse_lock(json.dumps(document), "x")
    assert "`provision node lock" in edited.value.hints[0]
    assert "$(x)" not in edited.value.hints[0]


def test_lock_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="this program reads version 1"):
        parse_lock(json.dumps(_lock(lock_version=2)), "x")


@pytest.mark.parametrize("place", ["name", "profiles", "key"])
def test_template_in_a_lock_is_refused_with_its_place(place: str) -> None:
    mark = "{{ lookup('pipe', 'id') }}"
    more: dict[str, Any] = {
        "name": {"name": mark},
        "profiles": {"profiles": {"debian12": {"repos": [mark]}}},
        "key": {"profiles": {"debian12": {mark: 1}}},
    }[place]
    with pytest.raises(UsageError, match="holds a template") as refused:
        parse_lock(json.dumps(_lock(**more)), "x")
    assert "provision_lock." in refused.value.message


def test_digest_of_a_folder_changes_with_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("1")
    first = digest_folder(tmp_path, ("*.yml",))
    (tmp_path / "b.txt").write_text("not looked at")
    assert digest_folder(tmp_path, ("*.yml",)) == first
    (tmp_path / "a.yml").rename(tmp_path / "b.yml")
    renamed = digest_folder(tmp_path, ("*.yml",))
    (tmp_path / "b.yml").write_text("2")
    assert len({first, renamed, digest_folder(tmp_path, ("*.yml",))}) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"name": ["a"]},
        {"name": "one\nTrusted: yes"},
        {"facts_date": None},
        {"profiles": "x"},
        {"profiles": ["x"]},
        {"profiles": {"../x": {}}},
        {"profiles": {"debian12": None}},
        {"profiles": {"debian12": {"driver": "x"}}},
        {"profiles": {"debian12": {"frameworks": {"environments": ["x"]}}}},
        {"profiles": {"debian12": {"frameworks": {"environments": [{"requirements": "x"}]}}}},
        {"profiles": {"debian12": {"frameworks": {"environments": [{"name": "x"}]}}}},
        {"profiles": {"debian12": {"repos": {"sources": [{"uri": "https://mirror.example/\nTrusted: yes"}]}}}},
    ],
)
def test_lock_with_a_right_digest_and_a_wrong_shape_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is not a lock of nodes"):
        parse_lock(json.dumps({"provision_lock": _lock(**more)}), "my.json")


def test_files_in_a_lock_may_have_lines() -> None:
    environments = [{"name": "torch", "requirements": "a==1\nb==2\n"}]
    document = _lock(profiles={"debian12": {"frameworks": {"environments": environments}}})
    assert parse_lock(json.dumps(document), "x").document == document


def test_lock_that_aliases_make_endless_is_refused_at_once() -> None:
    rows = ["  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"  a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 10)]
    text = "\n".join(["provision_lock:", *rows, "  lock_version: 1", "  digest: x", "  profiles: {x: *a9}"])
    with pytest.raises(UsageError, match="more than"):
        parse_lock(text, "x")


def test_lock_of_an_inventory_is_told_from_another(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("gpu_nodes: {}\n")
    assert digest_inventory_locks([str(inventory), "gpu01,"]) == ""
    file = tmp_path / "group_vars" / "gpu_nodes" / "lock.yml"
    file.parent.mkdir(parents=True)
    file.write_text("provision_lock: {a: 1}\n")
    one = digest_inventory_locks([str(inventory)])
    assert one
    assert digest_inventory_locks([str(tmp_path)]) == one
    file.with_name("other.yml").write_text("gpu_mig_layout: x\n")
    assert digest_inventory_locks([str(inventory)]) == one
    file.write_text("provision_lock: {a: 2}\n")
    assert digest_inventory_locks([str(inventory)]) not in ("", one)
