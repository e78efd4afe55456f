"""Verify: a node is held to its lock, what changed makes a generation, and a removal knows what to take."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

_JUDGE = playbook_files.ROLES / "gpu_verify" / "files" / "judge.py"


gpu_verify = playbook_files.load_filters("gpu_verify")
node = playbook_files.load_script(playbook_files.ROLES / "gpu_facts" / "files" / "node.py")
BARE = {
    "os": {"id": "debian12"},
    "packages": {},
    "holds": [],
    "folders": {},
    "accounts": {},
    "modules": {},
    "files": {},
}
judge = playbook_files.load_script(_JUDGE)

Document = dict[str, Any]
KERNEL = "6.1.0-50-amd64"


def make_profile() -> Document:
    flavour = {
        "packages": [{"name": "nvidia-kernel-dkms", "version": "535.1-1"}],
        "module": "nvidia-current",
        "dkms_name": "nvidia-current",
        "license": "NVIDIA",
    }
    return {
        "method": "distro",
        "repos": {"pins": [{"packages": "src:nvidia-graphics-drivers", "version": "535.1-1"}]},
        "kernel": {"build": ["gcc"], "headers": "linux-headers-amd64"},
        "driver": {
            "version": "535.1",
            "package_version": "535.1-1",
            "flavours": {"proprietary": flavour},
            "profiles": {"compute": [{"name": "nvidia-modprobe", "version": "530-1"}]},
        },
    }


def make_lock() -> Document:
    return {
        "digest": "sha256:1",
        "name": "test",
        "stack": {"driver_minimum": "525.1", "gpus": ["a100"]},
        "profiles": {"debian12": make_profile()},
    }


@pytest.mark.parametrize(
    ("names", "frameworks", "chosen"),
    [
        pytest.param(["jax", "tensorflow-jax"], "tensorflow-jax", "tensorflow-jax", id="not-the-first-of-all"),
        pytest.param(["jax", "notebook"], "torch", "jax", id="not-made-yet"),
        pytest.param(["notebook"], None, "notebook", id="none-locked"),
    ],
)
def test_frameworks_are_asked_of_the_environment_of_the_lock(
    names: list[str], frameworks: str | None, chosen: str
) -> None:
    links = {f"/opt/provision/envs/{name}": f"{name}-000000000000" for name in names} | {"/usr/local/cuda": "cuda-12"}
    profile = {"frameworks": {"environments": [{"name": frameworks}]} if frameworks else None}
    assert gpu_verify.choose_python(links, profile) == f"/opt/provision/envs/{chosen}/bin/python"


def test_without_an_environment_no_interpreter_is_named() -> None:
    assert gpu_verify.choose_python({"/usr/local/cuda": "cuda-12"}, {}) == ""


def package(version: str, status: str = "ii", **more: Any) -> Document:
    return {"version": version, "status": status, "source": "", "is_auto": False, **more}


def make_host() -> Document:
    pins = "Package: src:nvidia-graphics-drivers\nPin: version 535.1-1\n"
    return {
        "os": {"id": "debian12", "hostname": "node"},
        "kernel": {"target": KERNEL},
        "gpus": [],
        "dkms": [{"module": "nvidia-current", "version": "535.1", "kernel": KERNEL, "status": "installed"}],
        "modules": {KERNEL: [{"name": "nvidia-current", "path": "/x.ko", "version": "535.1", "license": "NVIDIA"}]},
        "dpkg": {"audit": "", "half": []},
        "packages": {"nvidia-kernel-dkms": package("535.1-1"), "nvidia-modprobe": package("530-1")},
        "files": {"/etc/apt/preferences.d/provision-gpu": {"text": pins, "sha256": "a"}},
        "links": {},
        "state": None,
        "generations": [{"number": 0, "kind": "baseline"}],
    }


def failures(host: Document, **wanted: Any) -> list[str]:
    settings = {"flavour": "proprietary", **wanted}
    rows = gpu_verify.judge_packages(host, make_profile(), settings)
    return [row["id"] for row in rows if row["status"] == "fail"]


# Packages


def test_node_that_is_as_planned_passes() -> None:
    rows = gpu_verify.judge_packages(make_host(), make_profile(), {"flavour": "proprietary"})
    assert {row["status"] for row in rows} == {"pass"}
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("path", "value", "failing"),
    [
        ("packages/nvidia-kernel-dkms", package("535.2-1"), ["package.nvidia-kernel-dkms"]),
        ("packages/nvidia-modprobe", package("530-1", "iU"), ["package.nvidia-modprobe"]),
        ("packages/nvidia-modprobe", package("530-1", "rc"), ["package.nvidia-modprobe"]),
        ("dkms", [], ["module.dkms"]),
        ("dkms/0/status", "built", ["module.dkms"]),
        ("dkms/0/kernel", "6.1.0-49-amd64", ["module.dkms"]),
        ("modules", {}, ["module.version", "module.license"]),
        (f"modules/{KERNEL}/0/license", "Dual MIT/GPL", ["module.license"]),
        (f"modules/{KERNEL}/0/version", "535.2", ["module.version"]),
        ("kernel/target", None, ["module"]),
        ("dpkg/half", ["gcc"], ["dpkg"]),
        ("files", {}, ["pins"]),
    ],
)
def test_what_differs_fails_by_name(path: str, value: Any, failing: list[str]) -> None:
    host = make_host()
    place: Any = host
    *folders, name = path.split("/")
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    place[name] = value
    assert failures(host) == failing


def test_other_driver_version_is_judged_by_its_upstream_part() -> None:
    host = make_host()
    assert failures(host, driver_version="535.1") == []
    assert set(failures(host, driver_version="550.2")) == {
        "package.nvidia-kernel-dkms",
        "module.dkms",
        "module.version",
    }


def test_other_parts_are_judged_too() -> None:
    assert failures(make_host(), packages=[{"name": "libnccl2", "version": "2-1"}]) == ["package.libnccl2"]
    assert failures(make_host(), packages=[{"name": "nvidia-modprobe", "version": None}]) == []


def test_driver_that_is_not_wanted_is_not_judged() -> None:
    host = make_host()
    host.update(packages={}, dkms=[], modules={})
    assert failures(host, is_driver_absent=True) == []


# What is expected of the machine


def test_gpus_are_counted_on_the_bus_unless_promised() -> None:
    host, lock = make_host(), make_lock()
    expected = gpu_verify.expect_node(host, lock, make_profile(), {"gpus": "auto"})
    assert expected == {"gpus": 0, "os": "debian12", "driver": "535.1", "driver_minimum": "525.1"}
    assert gpu_verify.expect_node(host, lock, make_profile(), {"gpus": "8"})["gpus"] == 8
    assert gpu_verify.expect_node(host, lock, make_profile(), {"gpus": 8})["gpu"] == "a100"
    more = gpu_verify.expect_node(host, lock, make_profile(), {"extra": {"mtu": 9000, "driver": "1.2"}})
    assert (more["mtu"], more["driver"]) == (9000, "1.2")


def test_verdict_is_summed_up() -> None:
    rows = [{"id": "a", "status": "pass"}, {"id": "b", "status": "fail", "seen": "x", "severity": "high"}]
    document = {"result": {"targets": [{"ok": False, "counts": {"pass": 1, "fail": 1}, "checks": rows}]}}
    verdict = gpu_verify.read_verdict(json.dumps({"code": 6, "document": document}), "quick")
    assert verdict["is_judged"]
    assert not verdict["ok"]
    assert [row["id"] for row in verdict["failures"]] == ["b"]


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"code": 2, "error": "bad", "document": None})])
def test_answer_without_a_verdict_is_not_taken_for_one(text: str) -> None:
    assert not gpu_verify.read_verdict(text, "quick")["is_judged"]


# Generations


def generation(host: Document, **settings: Any) -> Document:
    return gpu_verify.describe_generation(host, make_lock(), {"flavour": "proprietary", **settings})


def written(host: Document, result: Document) -> Document:
    texts = {item["path"]: item["content"] for item in result["files"]}
    number = result["number"]
    rows = [
        *host["generations"],
        {"number": number, **json.loads(texts[f"/var/lib/provision/generations/{number}/generation.json"])},
    ]
    return {**host, "state": json.loads(texts["/var/lib/provision/state.json"]), "generations": rows}


def test_generation_is_written_once() -> None:
    host = make_host()
    first = generation(host)
    assert first["is_new"]
    assert first["number"] == 1
    assert {Path(item["path"]).name for item in first["files"]} == {
        *("lock.json", "packages.json", "files.json", "generation.json", "state.json")
    }
    again = generation(written(host, first))
    assert (again["is_new"], again["files"], again["number"]) == (False, [], 1)


@pytest.mark.parametrize("path", ["/etc/docker/daemon.json", "/etc/modprobe.d/zz-provision-gpu.conf"])
def test_changed_file_or_package_makes_a_new_generation(path: str) -> None:
    host = written(make_host(), generation(make_host()))
    host["files"][path] = {"sha256": "b"}
    assert generation(host)["number"] == 2
    host = written(make_host(), generation(make_host()))
    host["packages"]["nvidia-modprobe"] = package("530-2")
    assert generation(host)["number"] == 2


@pytest.mark.parametrize("path", ["/etc/hosts", "/var/lib/provision/state.json"])
def test_file_that_is_not_ours_makes_none(path: str) -> None:
    host = written(make_host(), generation(make_host()))
    host["files"][path] = {"sha256": "b"}
    host["packages"]["htop"] = package("3-1")
    assert not generation(host)["is_new"]


def test_record_that_names_the_generation_comes_after_its_lock() -> None:
    names = [Path(item["path"]).name for item in generation(make_host())["files"]]
    assert names.index("lock.json") < names.index("generation.json") < names.index("state.json")


def with_generations(*digests: str, current: int | None = None) -> Document:
    rows = [{"number": 0, "kind": "baseline"}]
    rows += [{"number": number, "lock_digest": digest} for number, digest in enumerate(digests, start=1)]
    return {"os": {"hostname": "node"}, "generations": rows, "state": {"generation": current or len(digests)}}


@pytest.mark.parametrize(
    ("digests", "wanted", "number"),
    [
        (("a", "b"), "", 1),
        (("a", "b", "b"), "", 1),
        (("b", "b"), "", 1),
        (("a", "b", "c"), "", 2),
        (("a", "b"), "2", 2),
        (("sha256:a", "sha256:b", "sha256:a", "sha256:c"), "sha256:a", 3),
        (("sha256:a", "sha256:b"), "sha256:b", 2),
    ],
)
def test_rollback_goes_to_the_last_other_lock(digests: tuple[str, ...], wanted: str, number: int) -> None:
    assert gpu_verify.choose_generation(with_generations(*digests), wanted) == number


@pytest.mark.parametrize(
    ("digests", "wanted"),
    [((), ""), (("a",), ""), (("a", "b"), "0"), (("a", "b"), "9"), (("a",), "x"), (("sha256:a",), "sha256:b")],
)
def test_rollback_to_nowhere_is_refused_with_what_there_is(digests: tuple[str, ...], wanted: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"it has: 0 \(baseline\)"):
        gpu_verify.choose_generation(with_generations(*digests), wanted)


# Removal

BASELINE = {"packages": {"bash": {"version": "5", "is_auto": False}, "gcc-12": {"version": "12", "is_auto": True}}}


def removal_host() -> Document:
    host = make_host()
    host["packages"] |= {
        "bash": package("5"),
        "gcc-12": package("12"),
        "htop": package("3"),
        "gcc": package("4:12"),
        "dkms": package("3", is_auto=True),
        "linux-headers-6.1.0-50-amd64": package("6.1"),
        "libodd1": package("1", source="nvidia-graphics-drivers"),
        "libnvpair3linux": package("2"),
        "nvidia-support": package("1", "rc"),
    }
    return host


def test_removal_takes_what_came_and_leaves_the_rest() -> None:
    result = gpu_verify.list_purgeable(removal_host(), BASELINE, make_lock())
    assert result["purge"] == ["libodd1", "nvidia-kernel-dkms", "nvidia-modprobe", "nvidia-support"]
    assert result["release"] == ["gcc", "linux-headers-6.1.0-50-amd64"]
    assert result["auto"] == ["gcc-12"]
    assert "htop" in result["new"]
    assert "bash" not in result["new"]


def test_gpu_software_from_before_stays() -> None:
    baseline = {"packages": {"nvidia-modprobe": {"version": "529-1", "is_auto": False}}}
    result = gpu_verify.list_purgeable(removal_host(), baseline, make_lock())
    assert "nvidia-modprobe" not in result["purge"]
    assert result["kept"] == ["nvidia-modprobe"]
    assert result["changed"] == {"nvidia-modprobe": "529-1"}


@pytest.mark.parametrize(
    ("before", "accounts", "keys"),
    [
        ({"packages": {"bash": {}}, "accounts": ["sshd"]}, ["nvpd"], ["/var/lib/dkms/mok.key"]),
        ({"packages": {"dkms": {}}, "accounts": ["sshd", "nvpd"]}, [], []),
        ({"packages": {"bash": {}}}, [], ["/var/lib/dkms/mok.key"]),
        (None, [], []),
    ],
    ids=["new", "from before", "an older baseline", "no baseline"],
)
def test_accounts_and_keys_go_with_what_made_them(
    before: dict[str, Any] | None, accounts: list[str], keys: list[str]
) -> None:
    host = removal_host()
    host["accounts"] = {"sshd": "", "nvpd": "NVIDIA Persistence Daemon,,,", "postgres": "PostgreSQL administrator"}
    host["files"]["/var/lib/dkms/mok.key"] = {}
    if before:
        before["packages"] = {name: {"version": "1", "is_auto": True} for name in before["packages"]}
    result = gpu_verify.list_purgeable(host, before, make_lock())
    assert (result["accounts"], result["keys"]) == (accounts, keys)


def test_driver_from_before_stays_with_its_modules_and_is_no_residue() -> None:
    host = removal_host()
    host["packages"]["libnccl2"] = package("2-1")
    rows = {name: {"version": "535.1-1", "is_auto": False} for name in ("nvidia-kernel-dkms", "libodd1")}
    result = gpu_verify.list_purgeable(host, {"packages": rows, "modules": []}, make_lock())
    assert result["kept"] == ["libodd1", "nvidia-kernel-dkms"]
    assert result["purge"] == ["libnccl2", "nvidia-modprobe", "nvidia-support"]
    assert result["changed"] == {"libodd1": "535.1-1"}
    for name in result["purge"]:
        del host["packages"][name]
    assert gpu_verify.list_residue(host, result) == ["file /etc/apt/preferences.d/provision-gpu"]


def test_what_a_lock_has_no_more_goes_where_a_run_had_brought_it() -> None:
    def row(*names: str) -> list[Document]:
        return [{"name": name, "version": None} for name in names]

    old = {
        "driver": {"packages": row("nvidia-kernel-dkms")},
        "cuda": {
            "versions": ["12.1", "12.4"],
            "packages": {"12.1": row("cuda-toolkit-12-1"), "12.4": row("cuda-toolkit-12-4")},
            "homes": {"12.1": "/usr/local/cuda-12.1", "12.4": "/usr/local/cuda-12.4"},
        },
        "nccl": {"packages": row("libnccl2", "libnccl-dev")},
        "dcgm": {"packages": row("datacenter-gpu-manager-4-core")},
    }
    new = {"cuda": {**old["cuda"], "packages": {"12.4": row("cuda-toolkit-12-4")}, "homes": {"12.4": "/"}}}
    names = (
        "nvidia-kernel-dkms",
        "cuda-toolkit-12-1",
        "cuda-toolkit-12-4",
        "libnccl2",
        "datacenter-gpu-manager-4-core",
    )
    packages = {name: package("1") for name in names}
    packages["cuda-cudart-12-1"] = package("1", is_auto=True)
    packages["gcc-12"] = package("1", is_auto=True)
    choices = {"/usr/local/cuda-12.1": 121, "/usr/local/cuda-12.4": 124}
    host = {"os": {"id": "debian12"}, "packages": packages, "alternatives": {"cuda": {"choices": choices}}}
    locks = [{"profiles": {"debian12": profile}} for profile in (old, new)]
    before = {"packages": {"libnccl2": {"version": "1", "is_auto": False}}}
    assert gpu_verify.list_dropped(host, *locks, before, row("datacenter-gpu-manager-4-core")) == {
        "packages": ["cuda-toolkit-12-1"],
        "homes": ["/usr/local/cuda-12.1"],
        "along": ["cuda-cudart-12-1"],
    }
    assert gpu_verify.list_dropped(host, *locks, None)["packages"] == [], "nobody knows what was there before"
    assert gpu_verify.list_dropped(host, locks[0], locks[0], before)["packages"] == []


def test_former_versions_come_back_but_those_of_a_driver() -> None:
    host = removal_host()
    host["packages"] |= {"libnccl2": package("2-1"), "nvidia-container-toolkit": package("1.19")}
    host["packages"]["nvidia-kernel-dkms"]["source"] = "nvidia-graphics-drivers"
    changed = {"nvidia-container-toolkit": "1.17", "libodd1": "535.1", "libnccl2": "1-1"}
    marks = {"nvidia-container-toolkit": False, "libodd1": True, "libnccl2": True}
    before = {"packages": {name: {"version": "1", "is_auto": is_auto} for name, is_auto in marks.items()}}
    assert gpu_verify.split_former(changed, host, before) == {
        "auto": ["libnccl2"],
        "back": {"libnccl2": "1-1", "nvidia-container-toolkit": "1.17"},
        "left": {"libodd1": "535.1"},
    }
    del host["packages"]["nvidia-kernel-dkms"]
    assert gpu_verify.split_former({"libodd1": "535.1"}, host, None)["left"] == {}


def test_record_of_before_has_the_texts_of_files_that_are_edited() -> None:
    files = {
        "/etc/docker/daemon.json": {"text": "{}"},
        "/etc/containerd/config.toml": {"size": 9},
        "/etc/x": {"text": "x"},
    }
    assert node.describe_baseline({**BARE, "files": files})["texts"] == {"/etc/docker/daemon.json": "{}"}


def test_driver_from_before_that_another_took_the_place_of_is_named() -> None:
    rows = {name: {"version": "1", "is_auto": False} for name in ("nvidia-open-kernel-dkms", "nvidia-support", "bash")}
    result = gpu_verify.list_purgeable(removal_host(), {"packages": rows}, make_lock())
    assert result["lost"] == {"nvidia-open-kernel-dkms": "1", "nvidia-support": "1"}
    assert result["changed"] == {}


def test_modules_of_no_package_from_before_are_no_residue() -> None:
    host = removal_host()
    result = gpu_verify.list_purgeable(host, {**BASELINE, "modules": ["/x.ko"]}, make_lock())
    host.update(packages={}, files={})
    assert gpu_verify.list_residue(host, result) == []


def test_what_is_left_of_removed_packages_goes_with_its_siblings() -> None:
    host = removal_host()
    host["packages"] |= {
        "glx-alternative-nvidia": package("1.2", "rc", source="glx-alternatives"),
        "update-glx": package("1.2", "rc", source="glx-alternatives"),
        "htop": package("3", "rc", source="htop"),
    }
    purge = gpu_verify.list_purgeable(host, BASELINE, make_lock())["purge"]
    assert {"glx-alternative-nvidia", "update-glx", "nvidia-support"} <= set(purge)
    assert "htop" not in purge


def test_what_was_left_of_a_driver_before_stays_until_a_run_installs_it() -> None:
    before = {"nvidia-support": package("1", "rc"), "bash": package("5", is_auto=False)}
    baseline = node.describe_baseline({**BARE, "packages": before})
    assert list(baseline["packages"]) == ["bash"]
    assert baseline["leftovers"] == ["nvidia-support"]
    host = removal_host()
    result = gpu_verify.list_purgeable(host, baseline, make_lock())
    assert "nvidia-support" not in result["purge"]
    assert "package nvidia-support 1 (rc)" not in gpu_verify.list_residue(host, result)
    host["packages"]["nvidia-support"] = package("2")
    assert "nvidia-support" in gpu_verify.list_purgeable(host, baseline, make_lock())["purge"]


@pytest.mark.parametrize("trace", ["files", "generations", "state"])
def test_where_only_the_record_is_lost_gpu_software_goes(trace: str) -> None:
    host = removal_host()
    host.update({"files": {}, "generations": [], "state": None, trace: removal_host()[trace] or {"generation": 1}})
    result = gpu_verify.list_purgeable(host, None, make_lock())
    assert "nvidia-kernel-dkms" in result["purge"]
    assert (result["release"], result["new"], result["auto"]) == ([], [], [])


def test_where_no_run_has_been_nothing_goes_and_nothing_is_residue() -> None:
    host = removal_host()
    host.update(files={"/var/lib/dkms/mok.key": {}}, generations=[], state=None)
    host["accounts"] = {"nvpd": "NVIDIA Persistence Daemon"}
    result = gpu_verify.list_purgeable(host, None, make_lock())
    going = ("purge", "release", "new", "auto", "manual", "accounts", "keys")
    assert {key: result[key] for key in going} == {key: [] for key in going}
    assert "nvidia-kernel-dkms" in result["kept"]
    assert gpu_verify.list_residue(host, result) == []


def test_residue_is_named() -> None:
    host = removal_host()
    result = gpu_verify.list_purgeable(host, BASELINE, make_lock())
    left = gpu_verify.list_residue(host, result)
    assert "package nvidia-support 1 (rc)" in left
    assert "file /etc/apt/preferences.d/provision-gpu" in left
    assert f"module /x.ko of kernel {KERNEL}" in left
    record = {"/var/lib/provision/state.json": {}}
    host.update(packages={"bash": package("5"), "htop": package("3"), "dkms": package("3")}, files=record, modules={})
    assert gpu_verify.list_residue(host, result, ["/var/lib/provision/"]) == []


FOLDERS = ["/etc/provision", "/etc/provision/deep", "/etc/systemd/system.conf.d", "/etc/docker", "/etc/apt/keyrings"]


@pytest.mark.parametrize(
    ("before", "gone"),
    [
        (["/etc/apt/keyrings"], ["/etc/provision/deep", "/etc/systemd/system.conf.d", "/etc/provision"]),
        (["/etc/systemd/system.conf.d", "/etc/provision", "/etc/provision/deep", "/etc/apt/keyrings"], []),
        # A baseline of before folders were written down.
        (None, ["/etc/provision"]),
    ],
)
def test_folders_that_were_made_go_when_they_are_empty(before: list[str] | None, gone: list[str]) -> None:
    folders = FOLDERS if before is not None else ["/etc/provision", "/etc/docker", "/etc/systemd/system.conf.d"]
    host = {"folders": {key: {} for key in folders}, "files": {"/etc/docker/daemon.json": {}}, "links": {}}
    baseline = {"packages": {}} if before is None else {"packages": {}, "folders": before}
    assert gpu_verify.list_empty_folders(host, baseline) == gone


def test_a_folder_that_holds_a_link_is_not_empty() -> None:
    host = {"folders": {"/etc/provision": {}}, "files": {}, "links": {"/etc/provision/x": "/y"}}
    assert gpu_verify.list_empty_folders(host, None) == []


# The bridge to `provision verify`


def test_collectors_answer_is_judged_by_provision() -> None:
    composed = judge.compose_program("quick", None)
    shell = shutil.which("sh")
    assert shell
    done = subprocess.run([shell, "-s"], input=composed["program"].encode(), capture_output=True, check=True)
    request = {
        "nonce": composed["nonce"],
        "answer": base64.b64encode(done.stdout).decode(),
        "level": "quick",
        "host": "node1",
        "expect": {"gpus": 0, "frameworks": {}},
    }
    report = judge.give_verdict(request)
    verdict = gpu_verify.read_verdict(json.dumps(report), "quick")
    assert verdict["is_judged"], report
    assert sum(verdict["counts"].values()) > 20


def test_answer_of_another_call_is_refused() -> None:
    request = {
        "nonce": "0" * 16,
        "answer": base64.b64encode(b"noise").decode(),
        "level": "quick",
        "host": "a",
        "expect": {},
    }
    report = judge.give_verdict(request)
    assert report["code"] != 0
    assert not gpu_verify.read_verdict(json.dumps(report), "quick")["is_judged"]


def test_controller_without_provision_is_told_by_the_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(_JUDGE), "compose", "quick"]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert "not on the controller" in done.stderr


def test_provision_in_an_environment_of_its_own_is_found(tmp_path: Path) -> None:
    program = tmp_path / "provision"
    program.write_text(f"#!{sys.executable}\n", encoding="utf-8")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin", "PYTHONPATH": str(playbook_files.PLAYBOOKS.parent)}
    # -I leaves PYTHONPATH out, so that the first interpreter does not see the package and the second does.
    command = [sys.executable, "-I", "-S", str(_JUDGE), "compose", "quick"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {"nonce", "program"}


def test_expectation_survives_as_toml() -> None:
    import tomllib

    values = {"gpus": 0, "os": 'de"b', "is_mig": False, "sm": ["90"], "frameworks": {"torch": "2.1"}, "gpu": None}
    assert tomllib.loads(judge.write_toml(values)) == {key: value for key, value in values.items() if value is not None}
