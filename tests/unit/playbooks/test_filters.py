"""The filters that decide on the controller what a node lacks."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess

import playbook_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

gpu = playbook_files.load_filters("gpu")

FILTERS = gpu.FilterModule().filters()
order = gpu.order_version
drifted = FILTERS["gpu_drifted"]
missing = FILTERS["gpu_missing"]
specs = FILTERS["gpu_specs"]
unit = FILTERS["gpu_unit"]
merge = FILTERS["gpu_merge_json"]
unmerge = FILTERS["gpu_unmerge_json"]


def node(*, files=(), links=(), packages=(), units=(), folders=(), generations=(0, 1)):
    """What gpu_facts collects, cut down to what the filters read."""
    return {
        "files": dict(files),
        "links": dict(links),
        "folders": {path: {} for path in folders},
        "packages": {name: {"version": version, "status": status} for name, version, status in packages},
        "units": dict(units),
        "generations": [{"number": number} for number in generations],
    }


def on_disk(content: str, **changes: str) -> dict[str, str]:
    row = {
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "mode": "0644",
        "owner": "root",
        "group": "root",
    }
    return row | changes


ITEM = {"path": "/etc/nccl.conf", "content": "NCCL_DEBUG=WARN\n"}


class TestDrifted:
    def test_file_as_it_should_be_is_not_listed(self) -> None:
        assert drifted([ITEM], node(files={"/etc/nccl.conf": on_disk("NCCL_DEBUG=WARN\n")})) == []

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param({}, id="missing"),
            pytest.param({"/etc/nccl.conf": on_disk("NCCL_DEBUG=INFO\n")}, id="other-content"),
            pytest.param({"/etc/nccl.conf": on_disk("NCCL_DEBUG=WARN\n", mode="0666")}, id="other-mode"),
            pytest.param({"/etc/nccl.conf": on_disk("NCCL_DEBUG=WARN\n", owner="mallory")}, id="other-owner"),
            pytest.param({"/etc/nccl.conf": on_disk("NCCL_DEBUG=WARN\n", group="mallory")}, id="other-group"),
        ],
    )
    def test_file_that_differs_is_listed_whole(self, found: dict[str, dict[str, str]]) -> None:
        assert drifted([ITEM], node(files=found)) == [ITEM]

    def test_each_drifted_file_is_its_own_item_in_the_order_given(self) -> None:
        items = [{"path": f"/etc/{name}", "content": name} for name in "cab"]
        assert drifted(items, node(files={"/etc/a": on_disk("a")})) == [items[0], items[2]]

    def test_wanted_mode_is_compared(self) -> None:
        item = {**ITEM, "mode": "0600"}
        assert drifted([item], node(files={"/etc/nccl.conf": on_disk("NCCL_DEBUG=WARN\n", mode="0600")})) == []

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            (node(), False),
            (node(files={"/etc/nccl.conf": on_disk("")}), True),
            (node(links={"/etc/nccl.conf": "/dev/null"}), True),
        ],
        ids=["gone", "file", "link"],
    )
    def test_file_that_should_be_gone(self, host: dict[str, object], expected: bool) -> None:
        assert bool(drifted([{"path": "/etc/nccl.conf", "state": "absent"}], host)) is expected

    def test_a_link_in_the_place_of_a_file_is_drift(self) -> None:
        assert drifted([ITEM], node(links={"/etc/nccl.conf": "/dev/null"})) == [ITEM]

    @pytest.mark.parametrize(
        ("item", "word"),
        [
            ({"path": "etc/x", "content": ""}, "etc/x"),
            ({"path": "/etc/../shadow", "content": ""}, "/etc/../shadow"),
            ({"content": ""}, "None"),
            ({"path": "/etc/x"}, "/etc/x has no content"),
            ({"path": "/etc/x", "content": {"a": 1}}, "/etc/x"),
            ({"path": "/etc/x", "content": "", "mode": 420}, "420"),
            ({"path": "/etc/x", "content": "", "mode": "644"}, "644"),
        ],
    )
    def test_malformed_item_is_named(self, item: dict[str, object], word: str) -> None:
        with pytest.raises(AnsibleFilterError, match=word.replace(".", r"\.")):
            drifted([item], node())


class TestWritePlan:
    """How files that differ come to a node."""

    @staticmethod
    def plan(items: list[dict[str, object]], host: dict[str, object], *, one_by_one: bool = False) -> dict:
        return FILTERS["gpu_write_plan"](items, host, one_by_one)

    def test_missing_folder_is_listed_once_with_the_first_file_that_needs_it(self) -> None:
        items = [{"path": f"/etc/docker/{name}", "content": ""} for name in "ab"]
        found = self.plan(items, node(), one_by_one=True)
        assert found["folders"] == [{"path": "/etc/docker", "for": "/etc/docker/a"}]

    def test_folder_that_is_there_or_not_needed_is_not_listed(self) -> None:
        items = [
            {"path": "/etc/docker/daemon.json", "content": ""},
            {"path": "/etc/nccl.conf", "content": ""},
            {"path": "/etc/gone/x", "state": "absent"},
        ]
        assert self.plan(items, node(folders=["/etc/docker"]), one_by_one=True)["folders"] == []

    def test_first_files_of_a_role_go_together_with_all_that_writing_needs(self) -> None:
        items = [
            {"path": "/etc/a/x", "content": "1"},
            {"path": "/etc/a/y", "content": "2", "mode": "0600", "owner": "prom", "group": "adm"},
        ]
        found = self.plan(items, node())
        assert found["together"] == [
            {"path": "/etc/a/x", "content": "1", "mode": "0644", "owner": "root", "group": "root", "is_secret": False},
            {"path": "/etc/a/y", "content": "2", "mode": "0600", "owner": "prom", "group": "adm", "is_secret": False},
        ]
        assert (found["write"], found["folders"], found["paths"]) == ([], [], ["/etc/a/x", "/etc/a/y"])
        assert not found["has_rest"]

    def test_validated_files_go_by_themselves(self) -> None:
        checked = {"path": "/etc/a/conf", "content": "c", "validate": "visudo -cf %s"}
        found = self.plan([checked, {"path": "/etc/a/x", "content": "1"}], node())
        assert [item["path"] for item in found["together"]] == ["/etc/a/x"]
        assert (found["write"], found["has_rest"]) == ([checked], True)
        assert found["folders"] == [{"path": "/etc/a", "for": "/etc/a/conf"}]

    @pytest.mark.parametrize("one_by_one", [False, True])
    def test_plan_holds_no_content_of_a_secret_file(self, one_by_one: bool) -> None:
        secret = {"path": "/etc/a/key", "content": "hunter2", "is_secret": True}
        found = self.plan([secret, {"path": "/etc/a/x", "content": "1"}], node(), one_by_one=one_by_one)
        assert found["has_secret"] is not one_by_one
        assert "hunter2" not in json.dumps(found)

    @pytest.mark.parametrize(
        ("result", "reason"),
        [
            ({"stderr": "cannot write /etc/x: full\n", "msg": "non-zero return code"}, "cannot write /etc/x: full"),
            ({"module_stderr": "python3: not found", "msg": "MODULE FAILURE"}, "python3: not found"),
            ({"stderr": "", "msg": "Missing sudo password"}, "Missing sudo password"),
            ({}, "no reason given"),
        ],
    )
    def test_reason_is_the_program_s_or_ansible_s(self, result: dict[str, str], reason: str) -> None:
        assert FILTERS["gpu_write_reason"](result) == reason

    def test_pack_brings_every_content_back(self) -> None:
        items = [
            {"path": "/etc/a/key", "content": "hunter2", "is_secret": True, "mode": "0600"},
            {"path": "/etc/a/x", "content": "é"},
            {"path": "/etc/gone", "state": "absent"},
        ]
        packed = FILTERS["gpu_write_pack"](self.plan(items, node())["together"], items)
        assert [(row["path"], row["content"], row["mode"]) for row in packed] == [
            ("/etc/a/key", "hunter2", "0600"),
            ("/etc/a/x", "é", "0644"),
        ]

    @pytest.mark.parametrize("is_link", [False, True])
    def test_where_a_file_of_the_role_is_there_each_is_shown_by_itself(self, is_link: bool) -> None:
        items = [{"path": "/etc/a/x", "content": "1"}, {"path": "/etc/a/y", "content": "2"}]
        there = {"links": {"/etc/a/x": "/dev/null"}} if is_link else {"files": {"/etc/a/x": {"sha256": "0"}}}
        found = self.plan(items, node(**there))
        assert (found["together"], found["write"]) == ([], items)

    @pytest.mark.parametrize("generations", [[], [0]])
    def test_before_the_first_run_has_ended_all_that_the_node_lacks_goes_together(self, generations: list[int]) -> None:
        items = [{"path": f"/etc/a/{name}", "content": name} for name in "xyz"]
        found = self.plan(items, node(files={"/etc/a/x": {"sha256": "0"}}, generations=generations))
        assert [item["path"] for item in found["together"]] == ["/etc/a/y", "/etc/a/z"]
        assert found["write"] == items[:1]

    def test_what_is_deleted_is_not_written(self) -> None:
        doomed = {"path": "/etc/a/x", "state": "absent"}
        found = self.plan([doomed, {"path": "/etc/a/y", "content": "2"}], node(files={"/etc/a/x": {"sha256": "0"}}))
        assert found["delete"] == [doomed]
        assert [item["path"] for item in found["together"]] == ["/etc/a/y"]


class TestMissing:
    @pytest.mark.parametrize(
        ("packages", "wanted", "is_missing"),
        [
            pytest.param([], None, True, id="absent"),
            pytest.param([("dkms", "3.0", "ii")], None, False, id="any-version"),
            pytest.param([("dkms", "3.0", "ii")], "3.0", False, id="that-version"),
            pytest.param([("dkms", "3.0", "ii")], "3.1", True, id="another-version"),
            pytest.param([("dkms", "3.0", "hi")], "3.0", False, id="held"),
            pytest.param([("dkms", "3.0", "rc")], "3.0", True, id="removed-with-its-configuration-left"),
            pytest.param([("dkms", "3.0", "iU")], "3.0", True, id="unpacked-only"),
            pytest.param([("dkms", "3.0", "iF")], "3.0", True, id="half-configured"),
            pytest.param([("dkms", "3.0", "iHR")], "3.0", True, id="half-installed"),
            pytest.param([("dkms", "3.0", "iiR")], "3.0", True, id="to-be-reinstalled"),
        ],
    )
    def test_package(self, packages: list[tuple[str, str, str]], wanted: str | None, is_missing: bool) -> None:
        assert bool(missing([{"name": "dkms", "version": wanted}], node(packages=packages))) is is_missing

    def test_version_may_be_left_out(self) -> None:
        assert missing([{"name": "dkms"}], node(packages=[("dkms", "3.0", "ii")])) == []


class TestSpecs:
    def test_words_of_apt(self) -> None:
        packages = [{"name": "libc++1:amd64", "version": "1:2.0~rc1-1+b1"}, {"name": "dkms", "version": None}]
        assert specs(packages) == ["libc++1:amd64=1:2.0~rc1-1+b1", "dkms"]

    @pytest.mark.parametrize(
        "package",
        [
            {"name": "-oDpkg::Pre-Invoke::=id"},
            {"name": "dkms; reboot"},
            {"name": "dkms/unstable"},
            {"name": "dkms-"},
            {"name": ""},
            {"name": "dkms", "version": "1 --allow-unauthenticated"},
            {"name": "dkms", "version": "$(id)"},
        ],
        ids=str,
    )
    def test_hostile_words_are_refused(self, package: dict[str, str]) -> None:
        with pytest.raises(AnsibleFilterError, match="is not "):
            specs([package])


class TestUnit:
    def test_unknown_unit_has_safe_answers(self) -> None:
        found = unit("docker.service", node())
        assert (found["exists"], found["is_enabled"], found["is_active"]) == (False, False, False)

    @pytest.mark.parametrize(
        ("row", "is_enabled", "is_active"),
        [
            ({"enabled": "enabled", "active": "active"}, True, True),
            ({"enabled": "disabled", "active": "inactive"}, False, False),
            ({"enabled": "masked", "active": "failed"}, False, False),
            ({"enabled": "static", "active": "activating"}, True, True),
        ],
    )
    def test_words_of_systemd_become_yes_or_no(self, row: dict[str, str], is_enabled: bool, is_active: bool) -> None:
        found = unit("docker.service", node(units={"docker.service": row}))
        assert (found["exists"], found["is_enabled"], found["is_active"]) == (True, is_enabled, is_active)


NESTED = st.integers() | st.dictionaries(st.sampled_from("xy"), st.integers(), min_size=1)
USER = '{\n  "log-driver": "journald",\n  "runtimes": {"kata": {"path": "kata"}}\n}\n'
OURS = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}


class TestMerge:
    def test_keys_of_the_user_are_kept(self) -> None:
        merged = json.loads(merge(USER, OURS))
        assert merged["log-driver"] == "journald"
        assert set(merged["runtimes"]) == {"kata", "nvidia"}

    def test_a_second_merge_changes_no_byte(self) -> None:
        once = merge(USER, OURS)
        assert merge(once, OURS) == once

    def test_document_that_already_says_it_keeps_its_bytes(self) -> None:
        text = '{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}},"x":1}'
        assert merge(text, OURS) == text

    @pytest.mark.parametrize("text", [None, "", "  \n"])
    def test_file_that_is_not_there_or_empty_is_begun(self, text: str | None) -> None:
        assert json.loads(merge(text, OURS)) == OURS

    def test_four_spaces(self) -> None:
        assert '\n    "runtimes"' in merge(None, OURS)

    @pytest.mark.parametrize("text", ["{", "[]", "7", '{"a": 1,}'])
    def test_what_is_no_json_object_is_refused(self, text: str) -> None:
        with pytest.raises(AnsibleFilterError, match="JSON"):
            merge(text, OURS)

    def test_taking_back_leaves_what_was_there(self) -> None:
        assert json.loads(unmerge(merge(USER, OURS), OURS)) == json.loads(USER)

    def test_value_that_the_user_changed_is_the_users(self) -> None:
        text = merge(USER, OURS).replace("nvidia-container-runtime", "/usr/local/bin/mine")
        assert json.loads(unmerge(text, OURS))["runtimes"]["nvidia"]["path"] == "/usr/local/bin/mine"

    @pytest.mark.parametrize(
        "text",
        [
            '{"log-driver": "local"}',
            '{"log-driver":"local","runtimes":{"kata":{"path":"kata"}}}\n\n',
            '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}, "features": {}}',
            '{"runtimes": {"nvidia": {"path": "/opt/own/nvidia-container-runtime", "args": ["-d"]}}}',
            "{}",
            "",
        ],
        ids=["compact", "other runtime", "same runtime", "own runtime", "empty object", "empty file"],
    )
    def test_taking_back_gives_the_very_bytes_from_before(self, text: str) -> None:
        assert unmerge(merge(text, OURS), OURS, text) == text

    def test_what_the_user_changed_since_stays_beside_what_was_there_before(self) -> None:
        before = '{"log-driver": "local", "runtimes": {"nvidia": {"path": "mine"}}}'
        now = json.loads(merge(before, OURS))
        now |= {"debug": True, "log-driver": "journald"}
        rest = json.loads(unmerge(json.dumps(now), OURS, before))
        assert rest == {"log-driver": "journald", "debug": True, "runtimes": {"nvidia": {"path": "mine"}}}

    def test_what_the_user_took_out_since_does_not_come_back(self) -> None:
        before = '{"runtimes": {"nvidia": {"path": "mine"}}, "debug": true}'
        assert json.loads(unmerge("{}", OURS, before)) == {}

    @pytest.mark.parametrize("broken", ["{,", "[]"])
    def test_an_original_that_somebody_had_to_mend_stops_no_removal(self, broken: str) -> None:
        assert json.loads(unmerge(merge(USER, OURS), OURS, broken)) == json.loads(USER)

    @given(st.dictionaries(st.sampled_from("abcd"), NESTED), st.dictionaries(st.sampled_from("abcd"), NESTED))
    def test_merge_then_unmerge_with_the_original_gives_it_back(
        self, user: dict[str, object], ours: dict[str, object]
    ) -> None:
        text = json.dumps(user)
        assert unmerge(merge(text, ours), ours, text) == text

    @given(
        st.dictionaries(st.sampled_from("abc"), NESTED),
        st.dictionaries(st.sampled_from("def"), NESTED),
    )
    def test_merge_then_unmerge_of_new_keys_is_nothing(self, user: dict[str, object], ours: dict[str, object]) -> None:
        assert json.loads(unmerge(merge(json.dumps(user), ours), ours)) == user


ORDERED = [
    "1.0~rc1-1",
    "1.0-1",
    "1.0-1+deb12u1",
    "1.0-2",
    "1.0.1-1",
    "1.9-1",
    "1.10-1",
    "535.216.03-2~bpo12+1",
    "535.216.03-2",
    "535.261.03-1",
    "535.309.01-0+deb12u1",
    "1:0.1-1",
]


def random_pairs(count: int) -> list[tuple[str, str]]:
    """Versions, half of them small changes of each other, so that what is decided late is decided often."""
    chance = random.Random(535)  # noqa: S311 - no secret

    def piece(letters: str, longest: int) -> str:
        return "".join(chance.choice(letters) for _ in range(chance.randint(1, longest)))

    def version() -> str:
        epoch = chance.choice(("", "", "0:", "1:"))
        revision = chance.choice(("", "", "-0", "-1", "-00", "-" + piece("012a+~.", 4)))
        return epoch + chance.choice("0159") + piece("00129ab.+~", 5) + revision

    def change(text: str) -> str:
        place = chance.randrange(1, len(text) + 1)
        return chance.choice((text + "-0", text + "0", text + "~", text[:place] + "0" + text[place:], text))

    lefts = [version() for _ in range(count)]
    return [(left, change(left) if chance.random() < 0.5 else version()) for left in lefts]


def compare(left: str, right: str) -> str:
    if order(left) == order(right):
        return "eq"
    return "lt" if order(left) < order(right) else "gt"


ASK_DPKG = """
while read -r left right; do
    for word in lt eq gt; do
        if dpkg --compare-versions "$left" "$word" "$right" 2>/dev/null; then echo "$left $right $word"; fi
    done
done
"""


class TestVersions:
    def test_order_is_debians(self) -> None:
        assert sorted(ORDERED, key=order) == ORDERED
        assert len({order(version) for version in ORDERED}) == len(ORDERED)

    @pytest.mark.parametrize(
        ("left", "right"), [("1.0", "1.0-0"), ("1.0", "0:1.0-00"), ("1.", "1.0"), ("1a", "1a0"), ("1.01", "1.1")]
    )
    def test_what_is_left_out_is_nought(self, left: str, right: str) -> None:
        assert order(left) == order(right)

    @pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg, which decides the order, is not on this machine")
    def test_order_is_what_dpkg_says(self) -> None:
        pairs = "".join(f"{left} {right}\n" for left, right in random_pairs(400))
        done = subprocess.run(["sh", "-c", ASK_DPKG], input=pairs, capture_output=True, text=True, check=True)
        said = [tuple(line.split()) for line in done.stdout.splitlines()]
        assert len(said) == 400
        assert {word for *_, word in said} == {"lt", "eq", "gt"}
        assert [(left, right, compare(left, right)) for left, right, _ in said] == said


DEVICES = [
    {"first": "1d81", "last": "1df6", "architecture": "Volta"},
    {"first": "2321", "last": "233f", "architecture": "Hopper"},
]


class TestArchitectures:
    def test_ids_become_names_each_once(self) -> None:
        gpus = [{"device": "2330"}, {"device": "1db1"}, {"device": "2331"}]
        assert FILTERS["gpu_architectures"](gpus, DEVICES) == ["Hopper", "Volta"]

    def test_bounds_belong_to_the_range(self) -> None:
        assert FILTERS["gpu_architectures"]([{"device": "2321"}, {"device": "233f"}], DEVICES) == ["Hopper"]

    def test_id_of_no_range_is_unknown_and_not_left_out(self) -> None:
        assert FILTERS["gpu_architectures"]([{"device": "2340"}], DEVICES) == ["unknown"]


def test_every_filter_is_prefixed() -> None:
    assert FILTERS
    assert all(name.startswith("gpu_") for name in FILTERS)
