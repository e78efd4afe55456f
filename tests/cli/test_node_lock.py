"""`provision node lock`: files, drift, refusals, and the lock that is committed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from provision.build import hashes
from provision.cli.node.lock import DEFAULT_LOCK
from provision.errors import MissingDependencyError
from provision.records import replace
from provision.resolve.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "playbooks" / "group_vars" / "all" / "provision_lock.yml"
COMMITTED_REQUEST = ("--driver", "580", "--torch", "2.14")
REQUEST = ("--driver", "535.261.03", "--torch", "2.1", "--cuda", "12.1", "--os", "debian12")


def read(path: Path) -> dict[str, object]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["provision_lock"]


def test_the_committed_lock_is_what_the_command_writes(provision):
    answer = provision("node", "lock", *COMMITTED_REQUEST, "--check", "-o", COMMITTED)
    assert answer.code == 0, answer.err


def test_the_committed_lock_serves_every_system():
    profiles = read(COMMITTED)["profiles"]
    debian, ubuntu = {"debian12", "debian13"}, {"ubuntu22.04", "ubuntu24.04", "ubuntu26.04"}
    rhel = {"rhel8", "rhel9", "rhel10", "amzn2023"}
    assert set(profiles) == debian | ubuntu | rhel
    for name, profile in profiles.items():
        assert profile["refusal"] is None
        # The release for RHEL 10 has no proprietary modules.
        assert set(profile["driver"]["flavours"]) == {"open", *(["proprietary"] if name != "rhel10" else [])}
        assert bool(profile["repos"]["sources"]) == (name not in ubuntu)
    # The Python that comes with RHEL 8 and 9 is older than this PyTorch; the one of Amazon Linux is unknown.
    assert {name for name, row in profiles.items() if row["frameworks"]["refusal"]} == {"rhel8", "rhel9", "amzn2023"}


def test_it_writes_the_file_that_is_named(provision, tmp_path):
    target = tmp_path / "inventory" / "lock.yml"
    answer = provision("node", "lock", *REQUEST, "-o", target)
    assert answer.code == 0, answer.err
    assert "535.261.03-1 (distro, proprietary or open)" in answer.out
    assert str(target) in answer.out
    assert read(target)["profiles"]["debian12"]["driver"]["version"] == "535.261.03"


def test_without_a_name_it_is_here(provision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert provision("node", "lock", *REQUEST).code == 0
    assert [path.name for path in tmp_path.iterdir()] == [DEFAULT_LOCK.name]


def test_a_dry_run_writes_nothing(provision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = provision("node", "lock", *REQUEST, "--dry-run", "--stack", "provision.lock")
    assert answer.code == 0
    assert "would be written" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_the_lock_can_go_to_the_standard_output(provision):
    answer = provision("node", "lock", *REQUEST, "-o", "-")
    assert yaml.safe_load(answer.out)["provision_lock"]["lock_version"] == 1


def test_json_holds_the_lock_and_where_it_is(provision, tmp_path):
    target = tmp_path / "lock.yml"
    result = provision("node", "lock", *REQUEST, "-o", target, "--json").document["result"]
    assert result["files"] == [str(target)]
    assert result["node_lock"] == read(target)
    assert result["digest"] == result["node_lock"]["digest"]


def test_the_stack_beside_it_reads_back(provision, tmp_path):
    stack, target = tmp_path / "provision.lock", tmp_path / "lock.yml"
    assert provision("node", "lock", *REQUEST, "-o", target, "--stack", stack).code == 0
    found = Stack.from_lock(stack.read_text(encoding="utf-8"))
    assert [profile.os for profile in found.node.profiles] == ["debian12"]
    assert read(target)["stack"]["lock_digest"] == found.lock_digest


def test_check_is_silent_about_what_is_there_and_8_about_what_is_not(provision, tmp_path):
    target = tmp_path / "lock.yml"
    answer = provision("node", "lock", *REQUEST, "-o", target, "--check")
    assert answer.code == 8
    assert "is missing" in answer.err
    assert not target.exists()
    provision("node", "lock", *REQUEST, "-o", target)
    assert provision("node", "lock", *REQUEST, "-o", target, "--check").code == 0
    text = target.read_text(encoding="utf-8")
    target.write_text(text.replace("535.261.03-1", "535.261.03-2", 1), encoding="utf-8")
    answer = provision("node", "lock", *REQUEST, "-o", target, "--check")
    assert answer.code == 8
    assert "535.261.03-2" in answer.err
    assert "535.261.03-2" in target.read_text(encoding="utf-8")


def test_check_compares_no_standard_output(provision):
    assert provision("node", "lock", *REQUEST, "-o", "-", "--check").code == 2


def test_a_failed_write_leaves_the_old_file(provision, tmp_path):
    target = tmp_path / "lock.yml"
    provision("node", "lock", *REQUEST, "-o", target)
    before = target.read_bytes()
    assert provision("node", "lock", "--driver", "580", "--gpu", "v100", "--flavour", "open", "-o", target).code == 3
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["lock.yml"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--gpu", "v100", "--driver", "595"), 3),
        (("--gpu", "b200", "--flavour", "proprietary", "--driver", "580"), 3),
        (("--driver", "580", "--os", "debian12", "--method", "distro"), 4),
        (("--driver", "535.104.05", "--os", "debian12"), 4),
        (("--driver", "580", "--os", "plan9"), 4),
        (("--driver", "banana"), 2),
        (("--driver", "580", "--method", "apt"), 2),
        (("--driver", "580", "--toolkit", "newest"), 2),
        (("--torch", "{{ lookup('pipe', 'id') }}"), 2),
        (("--gpu", "{{ x }}"), 2),
        ((), 2),
    ],
)
def test_exit_codes_of_refusals(provision, tmp_path, words, code):
    answer = provision("node", "lock", *words, "-o", tmp_path / "lock.yml")
    assert answer.code == code, answer.err
    assert list(tmp_path.iterdir()) == []


def test_hints_are_commands_that_work(provision, tmp_path):
    answer = provision("node", "lock", "--driver", "580", "--os", "debian12", "--method", "distro", "--json")
    alternatives = answer.document["error"]["alternatives"]
    assert alternatives
    for item in alternatives:
        words = item["command"].split()
        assert words[:3] == ["provision", "node", "lock"]
        assert provision(*words[1:], "-o", tmp_path / "lock.yml").code == 0


@pytest.mark.parametrize("words", [("--os", "ubuntu2404"), ("--driver", "999"), ("--os", "plan9", "--method", "auto")])
def test_hints_are_never_a_command_that_asks_for_nothing(provision, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    alternatives = provision("node", "lock", *words, "--json").document["error"]["alternatives"]
    assert alternatives
    for item in alternatives:
        answer = provision(*shlex.split(item["command"])[1:])
        assert answer.code == 0, (item["command"], answer.err)


def test_hints_write_the_files_that_were_asked_for(provision, tmp_path):
    target, stack = tmp_path / "my lock.yml", tmp_path / "provision.lock"
    answer = provision("node", "lock", "--gpu", "v100", "--cuda", "13.0", "-o", target, "--stack", stack, "--json")
    words = shlex.split(answer.document["error"]["alternatives"][0]["command"])
    assert provision(*words[1:]).code == 0
    assert target.exists()
    assert stack.exists()


def test_missing_hashes_are_fetched_by_a_command_that_can_be_pasted(provision, tmp_path):
    target = tmp_path / "lock.yml"
    answer = provision("node", "lock", "--torch", "2.14", "--gpu", "v100", "--os", "debian12", "-o", target)
    assert answer.code == 4
    assert f"`provision node lock --torch 2.14 --gpu v100 --os debian12 --fetch-hashes -o {target}`" in answer.err


def test_next_step_is_named_and_knows_where_the_lock_lies(provision, tmp_path):
    target = tmp_path / "lock.yml"
    answer = provision("node", "lock", *REQUEST, "-o", target)
    assert f"next: `provision node plan -i INVENTORY --lock {target}`" in answer.err
    assert f"`provision node export --lock {target} -o site`" in answer.err
    site = tmp_path / "site"
    answer = provision("node", "lock", *REQUEST, "-o", site / "group_vars" / "gpu_nodes" / "provision_lock.yml")
    assert f"next: `provision node plan -i {site}`" in answer.err
    assert "next:" not in provision("node", "lock", *REQUEST, "-o", target, "--check").err
    assert provision("node", "lock", *REQUEST, "-o", target, "-q").err == ""


def test_what_a_person_should_know_is_said_once(provision, tmp_path):
    answer = provision("node", "lock", "--driver", "535.261.03", "--os", "debian12", "-o", tmp_path / "lock.yml")
    assert answer.err.count("has known vulnerabilities") == 1
    assert "debian12: driver branch 535 is past its end of life" in answer.err


def test_fetched_hashes_complete_an_environment(provision, tmp_path, monkeypatch):
    def complete(stack, **_):
        packages = tuple(replace(package, sha256=package.sha256 or "a" * 64) for package in stack.image.packages)
        return replace(stack, image=replace(stack.image, packages=packages)), ()

    monkeypatch.setattr(hashes, "complete_hashes", complete)
    target = tmp_path / "lock.yml"
    request = ("node", "lock", "--torch", "2.14", "--driver", "535", "--os", "debian12", "-o", target)
    refused = provision(*request)
    assert refused.code == 4
    assert "--fetch-hashes" in refused.err
    assert provision(*request, "--fetch-hashes").code == 0
    (environment,) = read(target)["profiles"]["debian12"]["frameworks"]["environments"]
    assert len(re.findall("--hash=", environment["requirements"])) == environment["requirements"].count("\\\n")


def test_hashes_that_stay_unknown_are_refused(provision, tmp_path, monkeypatch):
    monkeypatch.setattr(hashes, "complete_hashes", lambda stack, **_: (stack, ("torch: nothing fits",)))
    words = ("node", "lock", "--torch", "2.14", "--driver", "535", "--os", "debian12", "--fetch-hashes")
    answer = provision(*words, "-o", tmp_path / "lock.yml")
    assert answer.code == 4
    assert "torch: nothing fits" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_does_not_answer_is_7(provision, tmp_path, monkeypatch):
    def fail(stack, **_):
        raise MissingDependencyError("the index gave no hashes", hints=("the image says so",))

    monkeypatch.setattr(hashes, "complete_hashes", fail)
    words = ("node", "lock", "--torch", "2.14", "--driver", "535", "--os", "debian12", "--fetch-hashes")
    answer = provision(*words, "-o", tmp_path / "lock.yml")
    assert answer.code == 7
    assert "image" not in answer.err


def test_an_index_is_an_https_address(provision, tmp_path):
    words = ("node", "lock", *REQUEST, "--fetch-hashes", "--index-url", "file:///etc", "-o", tmp_path / "lock.yml")
    assert provision(*words).code == 2


def test_changed_facts_change_the_lock(provision, tmp_path):
    import shutil

    from provision.assets import asset_dir

    facts = tmp_path / "compat"
    shutil.copytree(asset_dir("compat"), facts)
    cuda = facts / "cuda.toml"
    cuda.write_text(cuda.read_text(encoding="utf-8").replace('"525.60.13"', '"525.85.12"'), encoding="utf-8")
    before, after = tmp_path / "before.yml", tmp_path / "after.yml"
    provision("node", "lock", *REQUEST, "-o", before)
    assert provision("node", "lock", *REQUEST, "-o", after, "--data-dir", facts).code == 0
    assert (read(before)["stack"]["driver_minimum"], read(after)["stack"]["driver_minimum"]) == (
        "525.60.13",
        "525.85.12",
    )
    assert read(before)["digest"] != read(after)["digest"]


def test_an_edited_lock_does_not_match_its_digest(provision, tmp_path):
    from provision.generate.node import lock_digest

    target = tmp_path / "lock.yml"
    provision("node", "lock", *REQUEST, "-o", target)
    document = read(target)
    assert lock_digest(document) == document["digest"]
    document["profiles"]["debian12"]["driver"]["package_version"] = "1"
    assert lock_digest(json.loads(json.dumps(document))) != document["digest"]
