"""Preflight: every problem of a lock is found, whatever the host, each with a way out."""

from __future__ import annotations

import copy
import re
from typing import Any

import playbook_files
import preflight_documents
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

gpu_lock = playbook_files.load_filters("gpu_lock")
gpu_untrusted = playbook_files.load_filters("gpu_untrusted")

Document = preflight_documents.Document
make_lock, signed = preflight_documents.make_lock, preflight_documents.signed


def test_honest_lock_has_no_problem() -> None:
    assert gpu_lock.list_lock_problems(make_lock()) == []


def test_digest_ignores_itself_and_the_order_of_keys_and_nothing_else() -> None:
    digest = gpu_lock.digest_lock
    assert digest({"a": 1, "b": 2, "digest": "sha256:x"}) == digest({"b": 2, "a": 1})
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest({"a": 1}))
    assert len({digest({"a": value}) for value in (1, "1", None, [1], {"b": 1})}) == 5


@pytest.mark.parametrize("lock", [None, "text", {}, {"profiles": []}, {**make_lock(), "lock_version": 2}])
def test_what_is_no_lock_is_refused_in_one_sentence(lock: Any) -> None:
    (problem,) = gpu_lock.list_lock_problems(lock)
    assert "`provision_lock`" in problem
    assert "provision node lock" in problem


def test_changed_lock_is_refused_by_its_digest() -> None:
    lock = make_lock()
    lock["profiles"]["debian12"]["driver"]["services"] = ["other"]
    (problem,) = gpu_lock.list_lock_problems(lock)
    assert "changed after it was written" in problem


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{ lookup('pipe', 'id') }}", "a template"),
        ("{% raw %}", "a template"),
        ("one\ntwo", "more than one line"),
        ("bell\x07", "control characters"),
        ("left\u202eright", "control characters"),
        ("../../etc/shadow", "a path that leaves its folder"),
        (b"bytes", "a bytes"),
    ],
)
def test_hostile_value_is_named_by_its_place(value: Any, words: str) -> None:
    lock = make_lock()
    lock["profiles"]["debian12"]["driver"]["services"] = [value]
    (problem,) = gpu_lock.list_lock_problems(lock)
    assert "profiles.debian12.driver.services[0]" in problem
    assert words in problem


def test_what_is_no_package_is_named_beside_what_is_hostile() -> None:
    lock = make_lock()
    names = ["$(reboot)", "{{ lookup('pipe', 'id') }}", "nvidia-smi"]
    lock["profiles"]["debian12"]["driver"]["profiles"]["compute"] = [{"name": name, "version": "1"} for name in names]
    problems = gpu_lock.list_lock_problems(lock)
    places = [f"driver.profiles.compute[{number}]" for number in range(len(names))]
    assert [sum(place in problem for problem in problems) for place in places] == [1, 1, 0]


def test_requirements_may_have_lines_and_nothing_else() -> None:
    lock = make_lock()
    lock["profiles"]["debian12"]["frameworks"] = {"environments": [{"name": "torch", "requirements": "a==1\nb==2\n"}]}
    assert gpu_lock.list_lock_problems(signed(lock)) == []


def change(path: str, value: Any) -> Document:
    lock = make_lock()
    place = lock["profiles"]["debian12"]
    *folders, name = path.split("/")
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    place[int(name) if name.isdigit() else name] = value
    return signed(lock)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("driver/version", "515.1", "needs 525.60.13 or newer"),
        ("driver/branch", 550, "its version is 535.261.03"),
        ("driver/package_version", "550.1-1", "not a package of 535.261.03"),
        ("driver/flavours/open/packages", [], "nothing to install"),
        ("driver/flavours", {}, "no module to install"),
        ("driver/flavours/open/packages/0/name", "Bad Name", "is not a package"),
        ("driver/flavours/open/packages/0/version", "1; id", "has a version that is none"),
        ("driver/services", ["a b"], "a unit that is none"),
        ("method", "magic", "not one of distro"),
        ("repos/sources/0/uri", "ftp://x y", "no address that apt reads"),
        ("repos/sources/0/key", {"url": "x"}, "neither sha256 nor fingerprint"),
        ("repos/sources/0/id", "../x", "leaves its folder"),
        ("repos/pins/0", {"packages": "a;b", "version": "1"}, "is not a pin"),
        ("repos/components/0", "non free", "is not a component"),
    ],
)
def test_contradiction_in_a_profile_is_named(path: str, value: Any, words: str) -> None:
    problems = gpu_lock.list_lock_problems(change(path, value))
    assert any(words in problem for problem in problems), problems


def test_refused_profile_is_not_examined() -> None:
    lock = make_lock()
    lock["profiles"]["debian12"] = {"refusal": "never", "method": "magic"}
    assert gpu_lock.list_lock_problems(signed(lock)) == []


def test_lock_of_a_generation_is_checked_like_any_other() -> None:
    import json

    lock = make_lock()
    assert gpu_lock.read_generation_lock(json.dumps(lock), 3) == lock
    broken = copy.deepcopy(lock)
    broken["name"] = "other"
    with pytest.raises(AnsibleFilterError, match="generation 3"):
        gpu_lock.read_generation_lock(json.dumps(broken), 3)
    with pytest.raises(AnsibleFilterError, match="not JSON"):
        gpu_lock.read_generation_lock("{", 3)


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (None, True),
        ({"profiles": {"debian12": {"name": "x"}}}, True),
        ({"profiles": {"debian12": {"name": "{{ lookup('pipe', 'id') }}"}}}, False),
        ("{{ lookup('file', 'lock.json') }}", False),
    ],
)
def test_a_lock_that_would_run_something_is_not_looked_into(lock: Any, expected: bool) -> None:
    assert gpu_untrusted.is_inert(lock) is expected
