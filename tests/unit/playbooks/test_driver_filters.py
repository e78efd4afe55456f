"""The filters that choose the driver's packages, judge what is installed, and decide about a restart."""

from __future__ import annotations

import copy
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

driver = playbook_files.load_filters("gpu_driver", "gpu_driver")
kernel = playbook_files.load_filters("gpu_kernel", "gpu_kernel")
reboot = playbook_files.load_filters("gpu_reboot", "gpu_reboot")
gpu_options = playbook_files.load_filters("gpu_options")

KERNEL = "6.1.0-50-amd64"
NOTHING_LOADED = {"version": None, "is_open": None}
PROFILE: dict[str, Any] = {
    "method": "distro",
    "driver": {
        **playbook_files.make_driver(),
        "profiles": {
            "compute": [
                {"name": "libcuda1", "version": "535.261.03-1"},
                {"name": "nvidia-persistenced", "version": "535.171.04-1"},
            ],
            "full": [],
        },
    },
}


def node(**changes: Any) -> dict[str, Any]:
    """What gpu_facts collects, of a node with the proprietary driver in place."""
    host: dict[str, Any] = {
        "os": {"id": "debian12", "name": "Debian 12", "is_container": False, "boot_id": "a"},
        "kernel": {
            "running": KERNEL,
            "newest": KERNEL,
            "target": KERNEL,
            "has_target_headers": True,
            "installed": [{"version": KERNEL, "has_image": True, "has_headers": True, "has_modules": True}],
        },
        "packages": {
            "nvidia-kernel-dkms": {"version": "535.261.03-1", "status": "ii", "source": "nvidia-graphics-drivers"},
            "libcuda1": {"version": "535.261.03-1", "status": "ii", "source": "nvidia-graphics-drivers"},
            "linux-image-amd64": {"version": "6.1.176-1", "status": "ii", "source": "linux-signed-amd64"},
        },
        "dkms": [
            {
                "module": "nvidia-current",
                "version": "535.261.03",
                "kernel": KERNEL,
                "arch": "x86_64",
                "status": "installed",
            }
        ],
        "modules": {KERNEL: [module()]},
        "module": {"version": "535.261.03", "is_open": False, "refcount": 0, "is_nouveau_loaded": False},
        "gpus": [{"address": "0000:01:00.0", "device": "2330", "driver": "nvidia"}],
        "files": {},
    }
    host.update(changes)
    return host


def module(**changes: Any) -> dict[str, Any]:
    row = {"name": "nvidia-current", "path": "/lib/m.ko", "version": "535.261.03", "license": "NVIDIA"}
    return {**row, **changes}


def built(**changes: Any) -> dict[str, Any]:
    row = {"module": "nvidia-current", "version": "535.261.03", "kernel": KERNEL, "status": "installed"}
    return {**row, **changes}


def plan(host: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    words = {"flavour": "", "version": "", "branch": "", "method": "auto", "user_space": "compute", "kernel": KERNEL}
    profile = asked.pop("profile", PROFILE)
    return driver.plan_driver(host or node(), profile, **{**words, **asked})


# The package set


def test_set_is_flavour_and_user_space_at_the_locks_versions() -> None:
    found = plan()
    assert found["problems"] == []
    assert found["packages"] == [
        {"name": "nvidia-kernel-dkms", "version": "535.261.03-1"},
        {"name": "libcuda1", "version": "535.261.03-1"},
        {"name": "nvidia-persistenced", "version": "535.171.04-1"},
    ]
    assert found["rivals"] == []
    assert (found["module"], found["license"], found["upstream"]) == ("nvidia-current", "NVIDIA", "535.261.03")


def test_other_flavour_makes_a_rival_of_the_installed_one() -> None:
    found = plan(flavour="open")
    assert found["rivals"] == ["nvidia-kernel-dkms"]
    assert found["module"] == "nvidia-current-open"


@pytest.mark.parametrize("version", ["535.261.03", "535.261.03-1"])
def test_locked_version_may_be_said_either_way(version: str) -> None:
    assert plan(version=version)["packages"] == plan()["packages"]


def test_package_version_moves_the_set_and_no_other_source() -> None:
    found = plan(version="535.309.01-0+deb12u1")
    assert found["upstream"] == "535.309.01"
    assert [row["version"] for row in found["packages"]] == ["535.309.01-0+deb12u1"] * 2 + ["535.171.04-1"]
    assert found["lookup"] == []


def test_upstream_version_asks_the_archive_once() -> None:
    found = plan(version="535.309.01")
    assert found["lookup"] == ["nvidia-kernel-dkms", "libcuda1"]
    offers = {"nvidia-kernel-dkms": ["535.309.01-0+deb12u1", "535.261.03-1"], "libcuda1": ["535.309.01-0+deb12u1"]}
    resolved = driver.resolve_lookup(found, offers)
    assert resolved["problems"] == []
    assert resolved["packages"][0]["version"] == "535.309.01-0+deb12u1"
    lacking = driver.resolve_lookup(found, {"nvidia-kernel-dkms": ["535.261.03-1"]})["problems"]
    assert "offer: 535.261.03-1" in lacking[0]
    assert "offer: none" in lacking[1]

    host = node()
    for name in ("nvidia-kernel-dkms", "libcuda1"):
        host["packages"][name]["version"] = "535.309.01-0+deb12u1"
    again = plan(host, version="535.309.01")
    assert again["lookup"] == []
    assert again["packages"] == resolved["packages"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"flavour": "shut"}, ["gpu_driver_flavour is shut", "open and proprietary"]),
        ({"method": "cuda_repo"}, ["made for distro", "cuda_repo"]),
        ({"method": "runfile"}, ["runfile", "gpu_driver_remove_runfile"]),
        ({"user_space": "games"}, ["compute and full"]),
        ({"branch": "580"}, ["gpu_driver_branch is 580", "535.261.03"]),
        ({"version": "535; rm -rf /"}, ["is not a version"]),
        ({"profile": {"refusal": "no driver of this branch there"}}, ["Debian 12: no driver of this branch there"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(asked: dict[str, Any], words: list[str]) -> None:
    problems = plan(**asked)["problems"]
    assert len(problems) == 1
    for word in words:
        assert word in problems[0]


def test_hostile_package_names_are_refused() -> None:
    profile = copy.deepcopy(PROFILE)
    profile["driver"]["profiles"]["compute"][0]["name"] = "--purge"
    assert "is not a package name" in plan(profile=profile)["problems"][0]
    profile["driver"]["profiles"]["compute"][0]["name"] = "dkms-"
    assert "is not a package name" in plan(profile=profile)["problems"][0]


def test_precompiled_modules_follow_the_target_kernel() -> None:
    profile = copy.deepcopy(PROFILE)
    names = ["linux-modules-nvidia-535-server-{kernel}", "linux-modules-nvidia-535-server-generic"]
    profile["driver"]["flavours"]["proprietary"] = {
        "packages": [{"name": name, "version": None} for name in names],
        "module": "nvidia",
        "license": "NVIDIA",
    }
    found = plan(profile=profile, flavour="proprietary", kernel="6.8.0-40-generic")
    assert [row["name"] for row in found["packages"][:2]] == [
        "linux-modules-nvidia-535-server-6.8.0-40-generic",
        "linux-modules-nvidia-535-server-generic",
    ]
    assert found["dkms_name"] is None


def test_system_without_a_driver_section_gets_none() -> None:
    found = plan(profile={})
    assert (found["packages"], found["problems"]) == ([], [])
    assert driver.judge_driver(node(), found, KERNEL) == []


# What is installed


def test_driver_in_place_has_no_defect() -> None:
    assert driver.judge_driver(node(), plan(), KERNEL) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dkms": []}, "unknown to it"),
        (
            {"dkms": [{"module": "nvidia-current", "version": "535.261.03", "kernel": None, "status": "added"}]},
            "is added",
        ),
        (
            {"dkms": [{"module": "nvidia-current", "version": "535.1", "kernel": KERNEL, "status": "installed"}]},
            "unknown",
        ),
        ({"modules": {}}, "has no module nvidia-current"),
        ({"modules": {"6.9": [module()]}}, "has no module nvidia-current"),
        ({"modules": {KERNEL: [module(version="535.1")]}}, "is version 535.1, not 535.261.03"),
        ({"modules": {KERNEL: [module(license="Dual MIT/GPL")]}}, "the other flavour"),
    ],
)
def test_each_defect_is_named(changes: dict[str, Any], words: str) -> None:
    defects = driver.judge_driver(node(**changes), plan(), KERNEL)
    assert len(defects) == 1
    assert words in defects[0]


def test_no_kernel_is_a_defect() -> None:
    assert "gpu_kernel" in driver.judge_driver(node(), plan(), "")[0]


def test_only_whole_packages_are_remembered() -> None:
    host = node()
    host["packages"]["half"] = {"version": "1", "status": "iF", "source": "x"}
    host["packages"]["rest"] = {"version": "1", "status": "rc", "source": "x"}
    assert "libcuda1" in driver.remember_packages(host)
    assert "rest" not in driver.remember_packages(host)
    assert "half" not in driver.remember_packages(host)


# Options of the modules


def test_options_are_written_for_the_modules_as_they_are_called_here() -> None:
    options = {"NVreg_EnableGpuFirmware": 0, "nvidia-drm": {"modeset": True}, "nvidia": {"NVreg_DmaRemapPeerMmio": "1"}}
    assert gpu_options.render_options(options, "nvidia-current-open").splitlines()[1:] == [
        "options nvidia-current-open NVreg_DmaRemapPeerMmio=1 NVreg_EnableGpuFirmware=0",
        "options nvidia-current-open-drm modeset=1",
    ]
    assert gpu_options.render_options({}, "nvidia") == ""


@pytest.mark.parametrize(
    "options",
    [
        {"EnableGpuFirmware": 0},
        {"NVreg_X": "1\ninstall nvidia /bin/sh"},
        {"NVreg_X": "1 2"},
        {"NVreg_X": ""},
        {"nouveau": {"modeset": 0}},
        {"nvidia-drm": {"mode set": 1}},
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_driver_module_options"):
        gpu_options.render_options(options, "nvidia")


# The kernel


def plan_kernel(host: dict[str, Any], policy: str = "track", version: str = "", headers: str = "") -> dict[str, Any]:
    planned = {"headers": "linux-headers-amd64", "image": "linux-image-amd64"}
    patterns = ("linux-headers-{kernel}", "linux-image-{kernel}")
    return kernel.plan_kernel(host, policy, version, headers, *patterns, planned)


def names(found: dict[str, Any]) -> list[str]:
    return [row["name"] for row in found["packages"]]


def test_tracked_kernel_gets_the_headers_beside_its_image() -> None:
    host = node()
    assert names(plan_kernel(host)) == ["linux-headers-amd64"]
    host["kernel"]["installed"][0]["has_headers"] = False
    assert names(plan_kernel(host)) == ["linux-headers-amd64", f"linux-headers-{KERNEL}"]


def test_headers_are_those_of_the_installed_image() -> None:
    host = node()
    host["packages"]["linux-image-cloud-amd64"] = host["packages"].pop("linux-image-amd64")
    assert names(plan_kernel(host)) == ["linux-headers-cloud-amd64"]
    host["packages"]["linux-image-generic-hwe-22.04"] = host["packages"].pop("linux-image-cloud-amd64")
    assert names(plan_kernel(host)) == ["linux-headers-generic-hwe-22.04"]
    assert names(plan_kernel(host, headers="linux-headers-own")) == ["linux-headers-own"]


def test_bare_container_gets_the_locks_headers() -> None:
    empty = {"running": "6.18", "newest": None, "target": None, "has_target_headers": False, "installed": []}
    found = plan_kernel(node(kernel=empty, packages={}))
    assert (found["target"], names(found)) == ("", ["linux-headers-amd64"])


def test_kernel_of_the_users_own_gets_only_what_it_lacks() -> None:
    found = plan_kernel(node(packages={}))
    assert (found["target"], names(found)) == (KERNEL, [])


def test_held_kernel_keeps_its_metapackages() -> None:
    found = plan_kernel(node(), "hold")
    assert names(found) == []
    assert "Package: linux-image-amd64\nPin: version 6.1.176-1\nPin-Priority: 1001\n" in found["preferences"]
    assert "Package: linux-headers-amd64\nPin: release *\nPin-Priority: -1\n" in found["preferences"]
    assert plan_kernel(node())["preferences"] == ""


def test_pinned_kernel_brings_its_image_and_headers() -> None:
    found = plan_kernel(node(), "pin", "6.1.0-56-amd64")
    assert found["target"] == "6.1.0-56-amd64"
    assert names(found) == ["linux-headers-6.1.0-56-amd64", "linux-image-6.1.0-56-amd64"]
    inside = node()
    inside["os"]["is_container"] = True
    assert names(plan_kernel(inside, "pin", "6.1.0-56-amd64")) == ["linux-headers-6.1.0-56-amd64"]


@pytest.mark.parametrize("version", ["", "latest", "6.1; reboot", "../6.1"])
def test_pin_without_a_kernel_is_refused(version: str) -> None:
    assert "gpu_kernel_version" in plan_kernel(node(), "pin", version)["problems"][0]


def test_guard_is_told_modules_and_bad_kernels() -> None:
    bad = {"driver": "550.1", "flavour": "open", "kernel_first": "6.12.97", "kernel_last": None, "reference": "a/b#1"}
    lines = kernel.render_guard("pin", KERNEL, PROFILE["driver"], [bad]).splitlines()
    assert lines[1:] == [
        "policy pin",
        f"default {KERNEL}",
        "module nvidia-current-open open -",
        "module nvidia-current proprietary -",
        "bad 550.1 open 6.12.97 - a/b#1",
    ]
    with pytest.raises(AnsibleFilterError, match="cannot take"):
        kernel.render_guard("track", "", None, [{**bad, "driver": "1\npolicy track"}])


def test_hooks_are_diverted_once_and_ours_is_never_moved_aside() -> None:
    first, second = "/etc/kernel/postinst.d/dkms", "/etc/kernel/header_postinst.d/dkms"
    host = node(files={first: {"sha256": "ours"}, second: {"sha256": "theirs"}})
    rows = kernel.plan_diversions(host, True, "ours")
    assert [(row["path"], row["rename"]) for row in rows] == [(first, "--no-rename"), (second, "--rename")]
    known = "".join(f"{path}\n{path}.provision-original\n:\n" for path in (first, second))
    host["files"]["/var/lib/dpkg/diversions"] = {"text": known}
    assert kernel.plan_diversions(host, True, "ours") == []
    assert [row["path"] for row in kernel.plan_diversions(host, False, "ours")] == [first, second]
    assert kernel.plan_diversions(node(), False, "ours") == []


def test_flags_of_kernels_that_have_their_module_are_stale() -> None:
    files = {f"/var/lib/provision/kernel-guard/{name}.json": {} for name in (KERNEL, "6.9")}
    assert kernel.list_stale_flags(node(files=files)) == {"flagged": ["6.9"], "stale": [KERNEL]}


# The restart


def due(
    host: dict[str, Any], target: str = KERNEL, must: bool = False, requests: tuple[str, ...] = ()
) -> dict[str, Any]:
    return reboot.plan_reboot(host, PROFILE, target, must, list(requests))


def test_node_that_runs_what_is_installed_needs_nothing() -> None:
    assert due(node()) == {"reload": [], "restart": []}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"module": {"version": "535.1", "is_open": False}}, "535.1 is loaded, and 535.261.03 is installed"),
        ({"module": {"version": "535.261.03", "is_open": True}}, "other flavour"),
        ({"module": NOTHING_LOADED}, "no module is loaded"),
        ({"modules": {}}, "none is installed"),
        (
            {"gpus": [{"address": "0000:01:00.0", "driver": "nouveau"}], "module": {"version": None, "is_open": None}},
            "nouveau",
        ),
    ],
)
def test_driver_that_differs_is_to_be_loaded_again(changes: dict[str, Any], words: str) -> None:
    found = due(node(**changes))
    assert found["restart"] == []
    assert len(found["reload"]) == 1
    assert words in found["reload"][0]


def test_other_kernel_and_requests_need_a_restart() -> None:
    assert due(node(), "6.1.0-56-amd64")["restart"] == [f"kernel {KERNEL} runs, and 6.1.0-56-amd64 is the one to run"]
    assert due(node(), requests=("MIG mode",))["restart"] == ["MIG mode"]
    assert due(node(), must=True)["reload"]
    inside = node()
    inside["os"]["is_container"] = True
    assert due(inside, "6.1.0-56-amd64")["restart"] == []


def test_node_without_a_gpu_needs_no_module() -> None:
    assert due(node(gpus=[], module=NOTHING_LOADED)) == {"reload": [], "restart": []}


SETTINGS: dict[str, Any] = {"policy": "if_needed", "users": [], "is_drained": False, "is_busy_allowed": False}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"users": ["train (7)"]}, "in use by train (7)"),
        ({"users": ["train (7)"], "policy": "always"}, "in use by train (7)"),
        ({"users": ["train (7)"], "is_drained": True}, ""),
        ({"users": ["train (7)"], "is_busy_allowed": True}, ""),
        ({"policy": "report"}, "gpu_reboot_policy is report"),
    ],
)
def test_nobody_loses_a_gpu_who_works_on_it(changes: dict[str, Any], words: str) -> None:
    obstacle = reboot.find_obstacle(node(), {**SETTINGS, **changes})
    assert words in obstacle
    assert bool(words) == bool(obstacle)


def test_container_is_never_restarted() -> None:
    inside = node()
    inside["os"]["is_container"] = True
    assert "container" in reboot.find_obstacle(inside, SETTINGS)


def test_what_dpkg_could_not_process_is_found_by_name() -> None:
    said = (
        "Packages for driver 535.261.03, and with it what later roles need: apt failed\n"
        "dpkg: error processing package libnccl2:amd64 (--configure):\n"
        "dpkg: error processing package libnccl-dev (--configure):\n"
        "dpkg: error processing package libnccl-dev (--configure):\n"
        "dpkg: error processing archive "
        "/var/cache/apt/archives/datacenter-gpu-manager-4-core_1%3a4.6.0-1_amd64.deb (--unpack):\n"
        "dpkg: error processing archive /tmp/apt-dpkg-install-Xy1/07-g++-12_12.2.0-14_amd64.deb (--unpack):\n"
        "E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )
    assert driver.find_blamed(said) == ["libnccl2", "libnccl-dev", "datacenter-gpu-manager-4-core", "g++-12"]
    assert driver.find_blamed("E: Failed to fetch libnccl2_2.17_amd64.deb") == []


@pytest.mark.parametrize(
    ("packages", "modules", "expected"),
    [
        ((), (), True),
        (("libc6", "nvidia-container-toolkit", "libnvidia-container1", "cuda-toolkit-12-1"), (), True),
        (("nvidia-kernel-dkms",), (), False),
        (("nvidia-dkms-470-server",), (), False),
        (("linux-modules-nvidia-535-server-open-generic",), (), False),
        (("libcuda1",), (), False),
        ((), ("nvidia-srv",), False),
    ],
)
def test_a_node_with_any_driver_is_no_first_one(
    packages: tuple[str, ...], modules: tuple[str, ...], expected: bool
) -> None:
    host = {"packages": {name: {} for name in packages}, "dkms": [{"module": name} for name in modules]}
    plan = {"packages": [{"name": "nvidia-dkms-580-server-open", "version": "1"}]}
    assert driver.is_first_driver(host, plan) is expected
    assert driver.is_first_driver(host, {"packages": []}) is False
