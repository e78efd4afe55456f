"""Nodes of rpms: dnf's files, what dnf says it would do, and what speaks against that."""

from __future__ import annotations

from typing import Any

import playbook_files
import pytest

FILTERS = playbook_files.load_filters("gpu_rpm")
PROGRAM = playbook_files.load_script(playbook_files.ROLES / "gpu_repos" / "files" / "rpm.py")
FACTS = playbook_files.load_script(playbook_files.ROLES / "gpu_facts" / "files" / "node.py")

KEY = "610C7B14E068A878070DA4E99CD0A493D42D0685"
LOCKS = "/etc/dnf/plugins/versionlock.list"
CUDA = "/etc/yum.repos.d/provision-cuda.repo"

# As dnf 4.14 prints it.
PLAN = """\
Dependencies resolved.
================================================================================
 Package                  Arch    Version              Repository          Size
================================================================================
Installing:
 nvidia-driver-cuda       x86_64  3:580.178.04-1.el9   provision-cuda     8.0 k
Upgrading:
 libnvidia-ml             x86_64  3:580.178.04-1.el9   provision-cuda     8.1 M
Downgrading:
 nvidia-persistenced      x86_64  3:580.159.03-1.el9   provision-cuda      40 k
Removing dependent packages:
 site-tool                noarch  1.0-1                @site              120

Transaction Summary
================================================================================
Install  1 Package
Operation aborted.
"""


def profile(**changes: Any) -> dict[str, Any]:
    source = {
        "id": "cuda",
        "uri": "https://repos.example/rhel9/x86_64/",
        "key": {"url": "https://repos.example/rhel9/x86_64/D42D0685.pub", "fingerprint": KEY},
        "for": ["driver"],
    }
    flavours = {"open": {"stream": "580-open"}, "proprietary": {"stream": "580-dkms"}}
    pins = [{"packages": "nvidia-driver* libnvidia-ml", "version": "3:580.178.04-1.el9"}]
    return {"driver": {"flavours": flavours}, "repos": {"sources": [{**source, **changes}], "pins": pins}}


def host(**files: str) -> dict[str, Any]:
    rows = {path: {"text": text, "mode": "0644", "owner": "root", "group": "root"} for path, text in files.items()}
    return {"files": rows, "holds": [], "foreign": {"repos": []}}


def planned(there: dict[str, Any], lock: dict[str, Any], flavour: str = "open", **settings: Any) -> dict[str, Any]:
    return dict(FILTERS.plan_repositories(there, lock, settings, {}, flavour))


def contents(plan: dict[str, Any]) -> dict[str, str]:
    return {item["path"]: item.get("content", "") for item in plan["files"]}


def test_packages_are_checked_by_a_key_on_the_node() -> None:
    text = contents(planned(host(), profile()))[CUDA]
    assert "baseurl=https://repos.example/rhel9/x86_64/\n" in text
    assert "gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/provision-cuda.asc\n" in text


def test_repository_that_signs_its_index_alone_has_that_checked() -> None:
    assert "gpgcheck=0\nrepo_gpgcheck=1\n" in contents(planned(host(), profile(signs="metadata")))[CUDA]


def test_mirror_proxy_and_authority_reach_the_repository() -> None:
    authority = "-----BEGIN CERTIFICATE-----\n"
    settings = {"mirror": "https://mirror.example", "proxy": "http://proxy.example:3128", "ca": authority}
    files = contents(planned(host(), profile(), **settings))
    assert "baseurl=https://mirror.example/rhel9/x86_64/\n" in files[CUDA]
    assert "proxy=http://proxy.example:3128\n" in files[CUDA]
    assert "sslcacert=/etc/provision/repositories-ca.pem\n" in files[CUDA]
    assert files["/etc/provision/repositories-ca.pem"] == authority


def test_own_block_of_version_locks_leaves_the_lines_of_others() -> None:
    plan = planned(host(**{LOCKS: "kernel-0:5.14.0-1.el9.*\n"}), profile())
    text = contents(plan)[LOCKS]
    assert text.startswith("kernel-0:5.14.0-1.el9.*\n# provision: begin\n")
    assert "nvidia-driver*-3:580.178.04-1.el9.*\nlibnvidia-ml-3:580.178.04-1.el9.*\n# provision: end\n" in text
    again = planned(host(**{LOCKS: text}), profile())
    assert contents(again)[LOCKS] == text
    without = planned(host(**{LOCKS: text}), profile(), has_pins=False)
    assert contents(without)[LOCKS] == "kernel-0:5.14.0-1.el9.*\n"


@pytest.mark.parametrize(
    ("text", "flavour", "wanted"),
    [
        ("", "open", "580-open"),
        ("", "proprietary", "580-dkms"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", "open", None),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=enabled\n", "proprietary", "580-dkms"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=disabled\n", "open", "580-open"),
    ],
)
def test_stream_is_enabled_where_it_is_not(text: str, flavour: str, wanted: str | None) -> None:
    there = host(**{"/etc/dnf/modules.d/nvidia-driver.module": text})
    assert planned(there, profile(), flavour)["stream"] == wanted


def test_system_without_streams_gets_none() -> None:
    lock = profile()
    lock["driver"]["flavours"] = {"open": {}}
    assert planned(host(), lock)["stream"] is None


def test_another_source_of_the_driver_is_refused_unless_it_may_stay() -> None:
    there = host()
    there["foreign"]["repos"] = [{"file": "/etc/yum.repos.d/cuda.repo", "uri": "https://nvidia.example/"}]
    assert "/etc/yum.repos.d/cuda.repo has packages of NVIDIA too" in planned(there, profile())["problems"][0]
    assert planned(there, profile(), foreign="keep")["problems"] == []


def test_key_is_not_fetched_where_it_is_there() -> None:
    rows = FILTERS.list_needed_keys(host(), profile(), {"mirror": "https://mirror.example"})
    assert [row["url"] for row in rows] == ["https://mirror.example/rhel9/x86_64/D42D0685.pub"]
    assert FILTERS.list_needed_keys(host(**{"/etc/pki/rpm-gpg/provision-cuda.asc": "key"}), profile(), {}) == []


def test_lock_of_somebody_else_holds_a_package() -> None:
    there = {**host(), "holds": ["nvidia-driver-cuda-3:580.159.03-1.el9.*"]}
    words = ["nvidia-driver-cuda=3:580.178.04-1.el9", "libnccl"]
    assert len(FILTERS.find_held(words, there, False)) == 1
    assert FILTERS.find_held(words, there, True) == []
    assert FILTERS.find_held(["nvidia-driver-cuda=3:580.159.03-1.el9"], there, False) == []


def test_what_dnf_would_do_is_read_from_its_table() -> None:
    assert PROGRAM.read_plan(PLAN) == {
        "install": [("nvidia-driver-cuda", "3:580.178.04-1.el9")],
        "upgrade": [("libnvidia-ml", "3:580.178.04-1.el9")],
        "downgrade": [("nvidia-persistenced", "3:580.159.03-1.el9")],
        "remove": [("site-tool", "1.0-1")],
        "orphan": [],
    }


def judged(text: str, status: int = 1, **request: Any) -> list[str]:
    wanted = {"packages": ["nvidia-driver-cuda=3:580.178.04-1.el9"], "family": "nvidia", **request}
    return list(PROGRAM.judge(wanted, status, text, PROGRAM.read_plan(text), {}))


def test_strangers_stay_and_nothing_goes_back_unasked() -> None:
    problems = judged(PLAN)
    assert any("it would remove site-tool, which is not GPU software" in row for row in problems)
    assert any("dnf would take back nvidia-persistenced" in row for row in problems)
    assert judged(PLAN, removable=["site-tool"], allow_downgrade=True) == []


def test_packages_of_another_role_stay_untouched() -> None:
    problems = judged(PLAN, removable=["site-tool"], allow_downgrade=True, untouched="^libnvidia")
    assert problems == ["it would move libnvidia-ml, which is another role's"]


def test_no_kernel_comes_along() -> None:
    text = PLAN.replace(" libnvidia-ml ", " kernel-core  ")
    assert any("another kernel (kernel-core)" in row for row in judged(text, removable=["site-tool"]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("All matches were filtered out by exclude filtering for argument: x", "a version lock or an exclude"),
        ("All matches were filtered out by modular filtering for argument: x", "its module stream is not enabled"),
        ("Error: Failed to download metadata for repo 'provision-cuda': Yum repo\n", "provision-cuda does not answer"),
        ("Package x.rpm is not signed\nError: GPG check FAILED", "a signature is missing or wrong"),
        ("Waiting for process with pid 4711 to finish.", "process 4711 holds dnf's lock"),
        ("Error: Transaction test error:\n  At least 12MB more space needed on the / filesystem.", "not enough room"),
    ],
)
def test_reasons_are_told_in_words(text: str, why: str) -> None:
    assert any(why in row for row in judged(text)), judged(text)


def test_unused_block_of_locks_is_taken_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "etc/dnf/plugins/versionlock.list"
    path.parent.mkdir(parents=True)
    path.write_text("mine\n# provision: begin\nx\n# provision: end\nalso mine\n", encoding="utf-8")
    monkeypatch.setattr(PROGRAM, "ROOT", str(tmp_path))
    assert PROGRAM.release_locks()
    assert path.read_text(encoding="utf-8") == "mine\nalso mine\n"
    assert not PROGRAM.release_locks()


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("rocky", "9.6", ("rhel9", "dnf")),
        ("almalinux", "8.10", ("rhel8", "dnf")),
        ("ol", "10.0", ("rhel10", "dnf")),
        ("rhel", "9.8", ("rhel9", "dnf")),
        ("amzn", "2023", ("amzn2023", "dnf")),
        ("sles", "15.6", ("sles15", "zypper")),
        ("opensuse-leap", "15.6", ("opensuse15", "zypper")),
        ("debian", "12", ("debian12", "apt")),
        ("ubuntu", "24.04", ("ubuntu24.04", "apt")),
    ],
)
def test_rebuild_is_named_as_its_system(name: str, version: str, wanted: tuple[str, str]) -> None:
    assert FACTS.name_system(name, version) == wanted
