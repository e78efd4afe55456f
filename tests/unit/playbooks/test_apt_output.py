"""What apt says: transactions that must not be made are refused with a reason, and every failure names its cause."""

from __future__ import annotations

from typing import Any

import playbook_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

gpu_apt = playbook_files.load_filters("gpu_apt")

Document = dict[str, Any]

SIMULATION = """Reading package lists...
The following packages will be REMOVED:
  nvidia-kernel-dkms
The following packages will be DOWNGRADED:
  nvidia-modprobe nvidia-smi
  libcuda1
Remv nvidia-kernel-dkms [535.309.01-1]
Inst nvidia-smi [535.309.01-1] (535.261.03-1 Debian:12/oldstable [amd64]) []
Inst libcuda1:i386 (535.261.03-1 Debian:12/oldstable [i386])
Conf nvidia-smi (535.261.03-1 Debian:12/oldstable [amd64])
"""


def judge(text: str, *, code: int = 0, host: Document | None = None, **more: Any) -> list[str]:
    result = {"stdout": text, "stderr": "", "rc": code}
    wanted = [{"name": "nvidia-smi", "version": "535.261.03-1"}]
    return gpu_apt.gpu_apt_plan_problems(result, wanted, more.pop("offers", {}), host or {"packages": {}}, **more)


def test_transaction_is_read() -> None:
    plan = gpu_apt.gpu_apt_plan(SIMULATION)
    assert plan["remove"] == [{"name": "nvidia-kernel-dkms", "old": "535.309.01-1", "new": None}]
    assert [(row["name"], row["old"], row["new"]) for row in plan["install"]] == [
        ("nvidia-smi", "535.309.01-1", "535.261.03-1"),
        ("libcuda1", None, "535.261.03-1"),
    ]


def test_driver_may_replace_the_other_flavour_of_itself() -> None:
    assert judge(SIMULATION, may_downgrade=True) == []


def test_going_back_is_refused_with_all_names_until_it_is_allowed() -> None:
    (problem,) = judge(SIMULATION)
    assert "libcuda1, nvidia-modprobe, nvidia-smi" in problem


@pytest.mark.parametrize("name", ["postgresql-15", "libc6", "linux-image-amd64"])
def test_removing_what_is_not_ours_is_refused(name: str) -> None:
    (problem,) = judge(f"Remv {name} [1-1]\n")
    assert name in problem
    assert judge(f"Remv {name} [1-1]\n", removable=[name]) == []


def test_removing_is_allowed_by_the_name_of_the_source() -> None:
    host = {"packages": {"libodd1": {"source": "nvidia-graphics-drivers"}}}
    assert judge("Remv libodd1 [1-1]\n", host=host) == []


def test_held_package_is_refused_until_that_is_allowed() -> None:
    host = {"packages": {}, "holds": ["nvidia-smi"]}
    assert "apt-mark unhold nvidia-smi" in judge(SIMULATION, may_downgrade=True, host=host)[0]
    assert judge(SIMULATION, may_downgrade=True, host=host, may_change_held=True) == []


@pytest.mark.parametrize(
    "line",
    [
        "E: Version '535.261.03-1' for 'nvidia-smi' was not found",
        "E: Unable to locate package nvidia-smi",
        "E: Package 'nvidia-smi' has no installation candidate",
    ],
)
def test_missing_version_is_told_with_what_there_is(line: str) -> None:
    (problem,) = judge(line, code=100, offers={"nvidia-smi": ["535.309.01-1", "530.1-1"]})
    assert "nvidia-smi 535.261.03-1" in problem
    assert "535.309.01-1, 530.1-1" in problem
    assert "provision node lock" in problem


def test_offers_are_read_each_once() -> None:
    text = " a | 2 | http://mirror.example x Packages\n a | 2 | http://other.example\n a | 1 | x\nnoise\n"
    assert gpu_apt.gpu_apt_offers(text) == {"a": ["2", "1"]}


# The lists

URI = "http://mirror.example/debian"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"W: GPG error: {URI} x InRelease: NO_PUBKEY 0123", "not signed by the key"),
        (f"E: The repository '{URI} x InRelease' is not signed.", "not signed by the key"),
        (f"W: Failed to fetch {URI}/x  Could not connect to mirror.example:80", "cannot be reached"),
        (f"E: Failed to fetch {URI}/x  Hash Sum mismatch", "do not match"),
        (f"E: The repository '{URI} x Release' does not have a Release file.", "does not hold this release"),
        (f"E: Failed to fetch {URI}/x  404  Not Found", "does not hold this release"),
    ],
)
def test_failing_repository_is_named_with_the_reason(line: str, words: str) -> None:
    (problem,) = gpu_apt.gpu_apt_update_problems({"stderr": line, "rc": 0}, [URI, URI])
    assert URI in problem
    assert words in problem


@pytest.mark.parametrize(
    "line",
    [
        f"W: {URI}/dists/x/InRelease: Key is stored in legacy trusted.gpg keyring (x), see apt-key(8)",
        f"W: {URI}/dists/x/InRelease: Policy will reject signature within a year, see --audit for details",
        f"W: {URI}/dists/x/InRelease: Signature by key 0123 uses weak algorithm (rsa1024)",
        f"W: Skipping acquire of configured file 'c/binary-amd64/Packages' as repository '{URI} x InRelease' doesn't "
        "have the component 'c' (component misspelt in sources.list?)",
    ],
)
def test_warning_about_lists_that_were_read_is_no_failure(line: str) -> None:
    assert gpu_apt.gpu_apt_update_problems({"stderr": line, "rc": 0}, [URI]) == []


def test_folder_without_an_index_is_told_as_such() -> None:
    result = {"stderr": "E: Failed to fetch file:/srv/a/./Packages  File not found - /srv/a/./Packages", "rc": 100}
    (problem,) = gpu_apt.gpu_apt_update_problems(result, ["file:/srv/a/"])
    assert "gpu_repos_offline" in problem
    assert not gpu_apt.gpu_apt_is_worth_retrying(result, 300, 3, 5)


def test_failing_repository_of_somebody_else_is_no_problem() -> None:
    result = {"stderr": "W: Failed to fetch https://other.example/x  Could not resolve", "rc": 0}
    assert gpu_apt.gpu_apt_update_problems(result, [URI]) == []


def test_failure_without_a_repository_is_a_problem() -> None:
    (problem,) = gpu_apt.gpu_apt_update_problems(
        {"stderr": "E: The list of sources could not be read.", "rc": 100}, [URI]
    )
    assert "could not be read" in problem


def test_transaction_that_touches_the_driver_is_refused_where_that_is_another_role_s() -> None:
    (problem,) = judge(SIMULATION, untouched="^(libcuda1$|nvidia-kernel)", may_downgrade=True)
    assert "libcuda1, nvidia-kernel-dkms" in problem
    assert "nvidia-smi" not in problem
    assert judge(SIMULATION, untouched="^cuda-drivers", may_downgrade=True) == []


# What comes along

PARTS = [
    {"tags": ["cuda", "packages"], "packages": [{"name": "cuda-toolkit-12-1", "version": None}]},
    {"tags": ["dcgm", "packages"], "packages": [{"name": "datacenter-gpu-manager", "version": "1:3"}]},
    {"tags": ["frameworks"], "packages": [{"name": "python3-venv", "version": None}]},
]


@pytest.mark.parametrize(
    ("run", "skip", "names"),
    [
        (["all"], [], ["cuda-toolkit-12-1", "datacenter-gpu-manager", "python3-venv"]),
        (["packages"], [], ["cuda-toolkit-12-1", "datacenter-gpu-manager"]),
        (["packages"], ["dcgm"], ["cuda-toolkit-12-1"]),
        (["cuda", "dcgm"], [], []),
        (["all"], ["frameworks"], ["cuda-toolkit-12-1", "datacenter-gpu-manager"]),
        (["all"], ["packages"], ["python3-venv"]),
        (["all"], ["tagged"], []),
        (["driver"], [], []),
        (["tagged"], [], []),
    ],
)
def test_what_comes_along_is_what_the_tags_let_through(run: list[str], skip: list[str], names: list[str]) -> None:
    assert [item["name"] for item in gpu_apt.gpu_along(PARTS, {"packages": {}}, run, skip)] == names


def test_a_part_that_is_there_in_any_version_is_left_to_its_role() -> None:
    parts = [
        {"tags": ["nccl"], "packages": [{"name": "libnccl2", "version": "2"}, {"name": "libnccl-dev", "version": "2"}]}
    ]
    assert gpu_apt.gpu_along(parts, {"packages": {"libnccl2": {"version": "1"}}}, ["all"], []) == []


# Failures

LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 42 (unattended-upgr)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LOCKED, "process 42 (unattended-upgr)"),
        ("dpkg: error processing archive x: No space left on device", "disk of the node is full"),
        ("E: Failed to fetch http://mirror.example/x  Hash Sum mismatch", "not the one its repository signed"),
        ("E: Failed to fetch http://mirror.example/x  Connection timed out", "could not be reached"),
        ("E: Sub-process /usr/bin/dpkg returned an error code (1)", "apt failed"),
    ],
)
def test_failure_is_explained(text: str, words: str) -> None:
    message = gpu_apt.gpu_apt_explain({"stderr": text, "msg": "failed"})
    assert words in message
    assert text in message


GONE = """Err:1 http://mirror.example/debian bookworm/non-free amd64 nvidia-smi amd64 1:535.261.03-1
  404  Not Found [IP: 192.0.2.1 80]
E: Failed to fetch http://mirror.example/debian/pool/n/nvidia-smi_1%3a535.261.03-1_amd64.deb  404  Not Found [IP: 192.0.2.1 80]
E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?"""  # noqa: E501


def test_a_package_that_the_archive_has_no_more_is_named_with_the_way_out() -> None:
    (problem,) = gpu_apt.gpu_apt_fetch_problems({"stderr": GONE, "rc": 100})
    assert problem.startswith("nvidia-smi 1:535.261.03-1 is gone from the repository")
    assert "provision node lock" in problem
    assert "gpu_repos_mirror" in problem
    assert "could not be reached" not in problem
    assert not gpu_apt.gpu_apt_is_worth_retrying({"stderr": GONE, "rc": 100}, 300, 3, 5)


def test_a_package_that_a_folder_lacks_is_named_too() -> None:
    text = "E: Failed to fetch file:/srv/debs/dkms_3.0-1_all.deb  File not found - /srv/debs/dkms_3.0-1_all.deb"
    assert gpu_apt.gpu_apt_explain({"stderr": text, "rc": 100}).startswith("dkms 3.0-1 is gone")


@pytest.mark.parametrize(
    "text",
    [
        GONE + "\nE: Failed to fetch http://mirror.example/x_1_all.deb  Connection timed out",
        "E: Failed to fetch http://mirror.example/dists/x/InRelease  404  Not Found",
    ],
)
def test_what_else_fails_is_no_package_that_is_gone(text: str) -> None:
    assert "could not be reached" in gpu_apt.gpu_apt_explain({"stderr": text, "rc": 100})
    assert gpu_apt.gpu_apt_is_worth_retrying({"stderr": text, "rc": 100}, 300, 3, 5)


@pytest.mark.parametrize(
    ("text", "attempts", "is_worth"),
    [
        (LOCKED, 1, True),
        (LOCKED, 60, False),
        ("E: Failed to fetch x  Connection timed out", 1, True),
        ("E: Failed to fetch x  Connection timed out", 3, False),
        ("W: GPG error: x: NO_PUBKEY 1", 1, False),
        ("E: No space left on device", 1, False),
        ("E: Unable to locate package x", 1, False),
        ("Reading package lists...", 1, False),
    ],
)
def test_only_what_may_pass_is_tried_again(text: str, attempts: int, is_worth: bool) -> None:
    result = {"stderr": text, "rc": 0 if text.startswith(("W", "R")) else 100, "attempts": attempts}
    assert gpu_apt.gpu_apt_is_worth_retrying(result, 300, 3, 5) is is_worth


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("E: Failed to fetch file:/srv/x.deb  Hash Sum mismatch", "x.deb"),
        ("E: Failed to fetch http://mirror.example/x.deb  Connection timed out", "could not be reached"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk of the node is full"),
        (LOCKED, "process 42"),
    ],
)
def test_a_package_that_cannot_be_fetched_is_a_problem(text: str, words: str) -> None:
    (problem,) = gpu_apt.gpu_apt_fetch_problems({"stderr": text, "rc": 100})
    assert words in problem


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("E: Unable to correct problems, you have held broken packages.", 100),
        ("E: Version '1' for 'x' was not found", 100),
        ("W: Failed to fetch http://mirror.example/x  tried again", 0),
    ],
)
def test_what_the_role_itself_tells_is_no_problem_of_fetching(text: str, status: int) -> None:
    assert gpu_apt.gpu_apt_fetch_problems({"stderr": text, "rc": status}) == []


@given(st.text(max_size=300))
def test_any_output_is_read(text: str) -> None:
    result = {"stdout": text, "stderr": text, "rc": 100}
    gpu_apt.gpu_apt_plan(text)
    gpu_apt.gpu_apt_offers(text)
    assert gpu_apt.gpu_apt_explain(result)
    assert gpu_apt.gpu_apt_update_problems(result, [URI])
