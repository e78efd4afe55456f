"""Which hosts a run is about; Ansible itself reads the inventory, and no host is never fine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError, UsageError
from provision.node.ansible import errors_in, find_program, find_way_out, make_environment
from provision.node.hosts import check_inventory, list_hosts, take_slice

ENVIRONMENT = make_environment(os.environ)


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    path = tmp_path / "hosts.ini"
    path.write_text("[gpu_nodes]\nn[1:3]\n[rack1]\nn1\nn2\n[others]\nx1\n")
    return str(path)


def test_hosts_of_the_group_come_in_order(inventory: str) -> None:
    assert list_hosts([inventory], environment=ENVIRONMENT) == ("n1", "n2", "n3")


@pytest.mark.parametrize("limit", ["n1,gone", "rack1:!gone"])
def test_word_of_a_limit_that_matches_nothing_is_refused(inventory: str, limit: str) -> None:
    with pytest.raises(UsageError, match="gone"):
        list_hosts([inventory], limit=limit, environment=ENVIRONMENT)


def test_limit_and_pattern_are_ansibles(inventory: str) -> None:
    assert list_hosts([inventory], limit="rack1:!n1", environment=ENVIRONMENT) == ("n2",)
    assert list_hosts([inventory], pattern="others", environment=ENVIRONMENT) == ("x1",)


def test_several_inventories_are_one(inventory: str, tmp_path: Path) -> None:
    (tmp_path / "more.yml").write_text("gpu_nodes:\n  hosts:\n    m1:\n")
    found = list_hosts([inventory, str(tmp_path / "more.yml")], environment=ENVIRONMENT)
    assert found == ("n1", "n2", "n3", "m1")


def test_no_host_is_an_error_with_a_way_out(inventory: str) -> None:
    with pytest.raises(MissingDependencyError, match="no host matches") as nobody:
        list_hosts([inventory], limit="nowhere", environment=ENVIRONMENT)
    assert any("--limit" in hint for hint in nobody.value.hints)
    with pytest.raises(MissingDependencyError, match="no host matches") as no_group:
        list_hosts(["localhost,"], environment=ENVIRONMENT)
    assert any("gpu_nodes" in hint for hint in no_group.value.hints)


def test_broken_inventory_is_refused_even_beside_a_good_one(inventory: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ini"
    bad.write_text("[[x")
    with pytest.raises(UsageError, match="not an inventory that Ansible can read"):
        list_hosts([inventory, str(bad)], environment=ENVIRONMENT)


def test_broken_inventory_is_named_with_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "hosts.yml"
    bad.write_text("gpu_nodes:\n  hosts:\n    n1:\n  - bad\n")
    with pytest.raises(UsageError, match="not an inventory that Ansible can read") as broken:
        list_hosts([str(bad)], environment=ENVIRONMENT)
    assert any(f"{bad}:4" in reason for reason in broken.value.because)
    assert any(f"-i {bad} --graph" in hint for hint in broken.value.hints)


def test_folder_without_an_inventory_is_no_inventory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an inventory that Ansible can read"):
        list_hosts([str(tmp_path)], environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[gpu_node]\nn1\n[rack1]\nn1\n", "no group `gpu_nodes`, but `gpu_node`"),
        ("[rack1]\nn1\n[rack2]\nn2\n", "no group `gpu_nodes`, but `rack1`, `rack2`"),
        ("n1\n", "in no group"),
        ("", "nor another with hosts"),
        ("[gpu_nodes]\n", "the group `gpu_nodes` has no hosts"),
    ],
)
def test_group_that_is_not_there_is_told_from_what_is(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(text)
    with pytest.raises(MissingDependencyError, match="no host matches") as nobody:
        list_hosts([str(path)], environment=ENVIRONMENT)
    assert reason in nobody.value.because[0]
    assert "put the hosts into the group `gpu_nodes`" in nobody.value.hints[0]
    # As it can be pasted.
    assert f"`ansible-inventory -i {path} --graph`" in nobody.value.hints[1]


def test_inventory_is_a_path_or_a_list(inventory: str) -> None:
    assert check_inventory(inventory) == inventory
    assert check_inventory("a,b") == "a,b"
    for word in ("", "nowhere.ini", "--list-hosts", "a\nb,"):
        with pytest.raises(UsageError):
            check_inventory(word)


def test_slices_cover_all_hosts_once() -> None:
    names = [f"n{number}" for number in range(7)]
    parts = [take_slice(names, f"{part}/3") for part in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == names


@pytest.mark.parametrize("word", ["0/3", "4/3", "1", "1/0", "a/b", "1/2/3", "-1/3"])
def test_slice_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not part of a whole"):
        take_slice(["a"], word)


def test_empty_slice_is_an_error() -> None:
    with pytest.raises(MissingDependencyError, match="has no host") as empty:
        take_slice(["a"], "2/2")
    assert empty.value.because == ("there is one host to share",)
    assert empty.value.hints


def test_missing_ansible_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError) as missing:
        find_program("ansible-playbook")
    assert "gpu-provision[ansible]" in missing.value.hints[0]


def test_errors_are_preferred_to_warnings_and_those_to_anything() -> None:
    assert errors_in("noise\n[WARNING]: w.\n[ERROR]: e.\nmore") == ("e",)
    assert errors_in("noise\n[WARNING]: w\nmore") == ("w",)
    assert errors_in("noise\nlast\n\n") == ("last",)
    assert errors_in("") == ()


@pytest.mark.parametrize(
    ("message", "way"),
    [
        ("Missing sudo password", "--become-password-file"),
        ("Task failed: Incorrect sudo password", "--become-password-file"),
        ("The module interpreter '/usr/bin/python9' was not found.", "ansible_python_interpreter"),
    ],
)
def test_ansibles_own_words_get_a_way_out(message: str, way: str) -> None:
    assert way in (find_way_out(message) or "")


def test_words_that_are_not_known_get_none() -> None:
    assert find_way_out("the disk is full") is None


def test_callbacks_of_the_user_are_kept() -> None:
    made = make_environment({"ANSIBLE_CALLBACK_PLUGINS": "/mine"})
    assert made["ANSIBLE_CALLBACK_PLUGINS"].endswith("/node/callback:/mine")
