"""What role gpu_facts reads from a node: on this machine for real, and on trees and answers recorded elsewhere."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import playbook_files
import pytest

SCRIPT = playbook_files.ROLES / "gpu_facts" / "files" / "node.py"
facts = playbook_files.load_script(SCRIPT)

PARTS = {
    *("schema", "os", "kernel", "gpus", "nvswitches", "nics", "module", "dkms", "modules", "dpkg", "packages", "holds"),
    *("files", "links", "folders", "units", "secure_boot", "foreign", "engines", "disk", "busy", "alternatives"),
    *(
        "python",
        "state",
        "generations",
        "has_baseline",
        "work",
        "dcgm_before",
        "environments",
        "problems",
        "accounts",
        "network",
    ),
}


class Tree:
    """A node's file system below a folder, and what its commands answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, str] = {}

    def has(self, path: str, text: str | bytes = "") -> Path:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def has_device(self, address: str, *, vendor: str, device: str, kind: str, driver: str | None = None) -> None:
        base = f"/sys/bus/pci/devices/{address}"
        self.has(f"{base}/vendor", f"0x{vendor}\n")
        self.has(f"{base}/device", f"0x{device}\n")
        self.has(f"{base}/class", f"0x{kind}\n")
        if driver:
            (self.folder / base.lstrip("/") / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")

    def collect(self, **options: object) -> dict:
        """Run the script as the role does, on this tree."""
        done = subprocess.run(
            [sys.executable, "-", json.dumps({"root": str(self.folder), **options})],
            input=SCRIPT.read_text(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def node(self):
        """The tree with its recorded answers, for a single reader."""
        node = facts.Node(str(self.folder))
        node.run = lambda *argv, is_needed=False: next(
            (said for words, said in self.answers.items() if " ".join(argv).startswith(words)), None
        )
        return node


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


# This machine


@pytest.fixture(scope="module")
def here() -> dict:
    done = subprocess.run(
        [sys.executable, "-", "{}"], input=SCRIPT.read_text(), capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_every_part_is_there(here: dict) -> None:
    assert set(here) == PARTS
    assert here["schema"] == 1


def test_this_machine_is_what_python_says(here: dict) -> None:
    assert here["os"]["machine"] == platform.machine()
    assert here["os"]["hostname"] == platform.node()
    assert here["kernel"]["running"] == platform.release()
    assert here["python"]["version"] == platform.python_version()
    assert here["os"]["is_root"] is (os.geteuid() == 0)
    assert here["disk"]["/"] > 0


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this machine has no dpkg")
def test_installed_packages_are_dpkgs(here: dict) -> None:
    said = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "dpkg"], capture_output=True, text=True, check=True
    ).stdout
    assert here["packages"]["dpkg"]["version"] == said
    assert here["packages"]["dpkg"]["status"] == "ii"


def test_without_options_it_looks_at_the_whole_machine() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert set(json.loads(done.stdout)) == PARTS


def test_nothing_is_written(tree: Tree) -> None:
    tree.has("/etc/os-release", "ID=debian\nVERSION_ID=12\n")
    tree.has("/var/lib/dpkg/lock-frontend")
    before = {path: path.lstat().st_mtime_ns for path in tree.folder.rglob("*")}
    tree.collect()
    assert {path: path.lstat().st_mtime_ns for path in tree.folder.rglob("*")} == before


def test_syntax_is_that_of_the_oldest_python_on_a_node() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_old_python_runs_it(version: str) -> None:
    places = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    python = shutil.which(f"python{version}") if not places else str(places[-1])
    if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip(f"no Python {version} on this machine")
    done = subprocess.run([python, SCRIPT, '{"root": "/proc/self/nowhere"}'], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["schema"] == 1


# Trees


def test_empty_node_is_empty_and_not_guessed(tree: Tree) -> None:
    found = tree.collect()
    assert set(found) == PARTS
    assert (found["gpus"], found["packages"], found["files"], found["units"]) == ([], {}, {}, {})
    assert (found["module"]["version"], found["module"]["is_open"], found["module"]["refcount"]) == (None, None, None)
    assert (found["state"], found["generations"], found["foreign"]) == (None, [], {"runfile": None, "repos": []})


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', "debian12"),
        ('ID=debian\nVERSION_ID="13"\n', "debian13"),
        ('ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', "ubuntu24.04"),
    ],
)
def test_system_is_named_as_the_facts_name_it(tree: Tree, release: str, name: str) -> None:
    tree.has("/etc/os-release", release)
    assert tree.collect()["os"]["id"] == name


def test_devices_are_told_apart_by_vendor_and_class(tree: Tree) -> None:
    tree.has_device("0000:17:00.0", vendor="10de", device="2330", kind="030200", driver="nvidia")
    tree.has_device("0000:18:00.0", vendor="10de", device="2204", kind="030000", driver="nouveau")
    tree.has_device("0000:18:00.1", vendor="10de", device="1aef", kind="040300", driver="snd_hda_intel")
    tree.has_device("0000:07:00.0", vendor="10de", device="22a3", kind="068000")
    tree.has_device("0000:19:00.0", vendor="15b3", device="1021", kind="020700", driver="mlx5_core")
    tree.has_device("0000:00:02.0", vendor="1a03", device="2000", kind="030000")
    found = tree.collect()
    assert [(row["device"], row["driver"]) for row in found["gpus"]] == [("2330", "nvidia"), ("2204", "nouveau")]
    assert [row["device"] for row in found["nvswitches"]] == ["22a3"]
    assert [row["address"] for row in found["nics"]] == ["0000:19:00.0"]


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu\n", False),
    ],
)
def test_loaded_module(tree: Tree, text: str, is_open: bool) -> None:
    tree.has("/sys/module/nvidia/version", "535.261.03\n")
    tree.has("/sys/module/nvidia/refcnt", "3\n")
    tree.has("/proc/driver/nvidia/version", text)
    module = tree.collect()["module"]
    assert (module["version"], module["refcount"], module["is_open"]) == ("535.261.03", 3, is_open)


def test_nouveau_is_seen(tree: Tree) -> None:
    tree.has("/sys/module/nouveau/refcnt", "1\n")
    assert tree.collect()["module"]["is_nouveau_loaded"] is True


def test_kernels_are_ordered_by_number_and_the_newest_is_a_containers_target(tree: Tree) -> None:
    tree.has("/.dockerenv")
    for version in ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-56-amd64"):
        tree.has(f"/boot/vmlinuz-{version}")
        tree.has(f"/lib/modules/{version}/modules.dep")
    tree.has("/lib/modules/6.1.0-50-amd64/build/Makefile")
    tree.has("/lib/modules/6.18.5-host/modules.dep")
    kernel = tree.collect()["kernel"]
    assert [row["version"] for row in kernel["installed"]] == ["6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-56-amd64"]
    assert (kernel["newest"], kernel["target"]) == ("6.1.0-56-amd64", "6.1.0-56-amd64")
    assert kernel["has_target_headers"] is False
    assert [row["has_headers"] for row in kernel["installed"]] == [False, True, False]


def test_machine_that_is_no_container_builds_for_the_kernel_it_runs(tree: Tree) -> None:
    for version in ("1.10.0-amd64", "1.9.0-amd64"):
        tree.has(f"/boot/vmlinuz-{version}")
    kernel = tree.collect()["kernel"]
    assert [row["version"] for row in kernel["installed"]] == ["1.9.0-amd64", "1.10.0-amd64", platform.release()]
    assert kernel["target"] == kernel["running"] == platform.release()


def test_files_are_told_with_digest_mode_and_text_only_where_roles_merge(tree: Tree) -> None:
    tree.has("/etc/docker/daemon.json", '{"debug": true}').chmod(0o640)
    tree.has("/etc/sudoers.d/admin", "admin ALL=(ALL) ALL\n")
    found = tree.collect()
    daemon = found["files"]["/etc/docker/daemon.json"]
    assert daemon["sha256"] == hashlib.sha256(b'{"debug": true}').hexdigest()
    assert (daemon["mode"], daemon["text"], daemon["size"]) == ("0640", '{"debug": true}', 15)
    assert "text" not in found["files"]["/etc/sudoers.d/admin"]
    assert "/etc/docker" in found["folders"]


def test_links_are_no_files_and_are_not_followed(tree: Tree) -> None:
    tree.has("/etc/alternatives/nvidia--nvidia.conf", "x")
    link = tree.folder / "etc/modprobe.d/nvidia.conf"
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc/alternatives/nvidia--nvidia.conf")
    found = tree.collect()
    assert found["links"]["/etc/modprobe.d/nvidia.conf"] == "/etc/alternatives/nvidia--nvidia.conf"
    assert "/etc/modprobe.d/nvidia.conf" not in found["files"]


def test_a_file_of_the_users_own_choice_is_read_too(tree: Tree) -> None:
    tree.has("/srv/gpu/topology.xml", "<system/>")
    assert "/srv/gpu/topology.xml" in tree.collect(paths=["/srv/gpu"])["files"]


def test_large_text_is_left_out(tree: Tree) -> None:
    tree.has("/etc/docker/daemon.json", b" " * (facts.TEXT_BYTES_MAX + 1))
    assert "text" not in tree.collect()["files"]["/etc/docker/daemon.json"]


def test_strange_bytes_do_not_stop_it(tree: Tree) -> None:
    tree.has("/etc/docker/daemon.json", b"\xff\xfe\0{")
    tree.has("/var/lib/provision/state.json", b"{broken")
    found = tree.collect()
    assert "/etc/docker/daemon.json" in found["files"]
    assert found["state"] is None
    assert any("state.json" in line for line in found["problems"])


def test_repositories_of_someone_else_are_named_without_their_password(tree: Tree) -> None:
    tree.has(
        "/etc/apt/sources.list.d/cuda.list",
        "deb [signed-by=/usr/share/k.gpg] https://me:secret@nvidia.mirror.example/debian12 /\n"
        "# deb https://nvidia.example x\n",
    )
    tree.has(
        "/etc/apt/sources.list.d/toolkit.sources", "Types: deb\nURIs: https://nvidia.mirror.example/stable\nSuites: /\n"
    )
    tree.has("/etc/apt/sources.list.d/provision-cuda.sources", "URIs: https://nvidia.mirror.example/ours\n")
    tree.has("/etc/apt/sources.list", "deb https://mirror.example/debian bookworm main\n")
    found = tree.collect()
    assert [row["uri"] for row in found["foreign"]["repos"]] == [
        "https://nvidia.mirror.example/debian12",
        "https://nvidia.mirror.example/stable",
    ]
    assert "secret" not in json.dumps(found["foreign"])


def test_runfile_installation_is_seen(tree: Tree) -> None:
    tree.has("/usr/bin/nvidia-uninstall")
    assert tree.collect()["foreign"]["runfile"] == "/usr/bin/nvidia-uninstall"


@pytest.mark.parametrize(("byte", "said"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False)])
def test_secure_boot(tree: Tree, byte: bytes, said: bool) -> None:
    tree.has("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", byte)
    assert tree.collect()["secure_boot"] is said


def test_firmware_that_does_not_tell_is_unknown(tree: Tree) -> None:
    tree.has("/sys/firmware/efi/runtime")
    assert tree.collect()["secure_boot"] is None


def test_generations_are_ordered_by_number(tree: Tree) -> None:
    for number in (10, 9, 0):
        tree.has(f"/var/lib/provision/generations/{number}/generation.json", f'{{"lock_digest": "d{number}"}}')
    tree.has("/var/lib/provision/generations/new/generation.json", "{}")
    assert [(row["number"], row["lock_digest"]) for row in tree.collect()["generations"]] == [
        (0, "d0"),
        (9, "d9"),
        (10, "d10"),
    ]


# Answers of commands


def test_dkms_of_both_forms(tree: Tree) -> None:
    tree.answers["dkms status"] = (
        "nvidia-current/535.261.03, 6.1.0-50-amd64, x86_64: installed\n"
        "nvidia-current-open/550.163.01, 6.12.94+deb13-amd64, x86_64: built "
        "(WARNING! Diff between built and installed module!)\n"
        "nvidia, 470.57, 5.10.0-8-amd64, x86_64: installed\n"
        "nvidia-current/535.309.01: added\n"
        "Deprecated feature: REMAKE_INITRD (/var/lib/dkms/nvidia-current/535.261.03/source/dkms.conf)\n"
    )
    rows = facts.read_dkms(tree.node())
    assert [(row["module"], row["version"], row["kernel"], row["status"]) for row in rows] == [
        ("nvidia-current", "535.261.03", "6.1.0-50-amd64", "installed"),
        ("nvidia-current-open", "550.163.01", "6.12.94+deb13-amd64", "built"),
        ("nvidia", "470.57", "5.10.0-8-amd64", "installed"),
        ("nvidia-current", "535.309.01", None, "added"),
    ]


def test_packages_with_their_state_marks_and_holds(tree: Tree) -> None:
    tree.answers["dpkg-query"] = (
        "nvidia-smi\t535.261.03-1\tii \tnvidia-graphics-drivers\n"
        "dkms\t3.0.10-8\thi \tdkms\n"
        "linux-image-6.12.117\t6.12.117-1\tiF \tlinux-signed-amd64\n"
        "nvidia-open\t1-1\tiHR\tx\n"
        "gone\t\tun \tgone\n"
    )
    tree.has(
        "/var/lib/apt/extended_states",
        "Package: nvidia-smi\nArchitecture: amd64\nAuto-Installed: 1\n\n"
        "Package: dkms\nArchitecture: amd64\nAuto-Installed: 0\n",
    )
    tree.has(
        "/var/lib/dpkg/status",
        "Package: dkms\nStatus: hold ok installed\n\nPackage: unwanted\nStatus: hold ok not-installed\n"
        "\nPackage: gone\nStatus: unknown ok not-installed\n",
    )
    packages, holds = facts.read_packages(tree.node())
    assert "gone" not in packages
    assert packages["nvidia-smi"]["is_auto"] is True
    assert packages["dkms"]["is_auto"] is False
    assert "unwanted" not in packages
    assert holds == ["dkms", "unwanted"]
    found = facts.read_dpkg(tree.node(), packages)
    assert found["half"] == ["linux-image-6.12.117", "nvidia-open"]
    assert found["broken_off"] == []


HISTORY = """
Start-Date: 2026-11-20  10:00:00
Commandline: apt-get install tree
Install: tree:amd64 (2.1.0-1)
End-Date: 2026-11-20  10:00:09

Start-Date: 2026-11-21  10:00:00
Commandline: /usr/bin/apt-get -y install nvidia-smi=535.261.03-1
Install: nvidia-smi:amd64 (535.261.03-1), gcc-12:amd64 (12.2.0-14, automatic), libstdc++6:amd64 (12, automatic)
Upgrade: libc6:amd64 (2.36-9, 2.36-10)
"""


def test_transaction_that_never_ended_is_named(tree: Tree) -> None:
    half = {"gcc-12": {"status": "iHR"}}
    tree.has("/var/log/apt/history.log", HISTORY)
    assert facts.read_dpkg(tree.node(), half)["broken_off"] == ["gcc-12", "libc6", "libstdc++6", "nvidia-smi"]
    assert facts.read_dpkg(tree.node(), {})["broken_off"] == []
    tree.has("/var/log/apt/history.log", HISTORY + "End-Date: 2026-11-21  10:01:00\n")
    assert facts.read_dpkg(tree.node(), half)["broken_off"] == []


def test_modules_of_other_purposes_are_left_out(tree: Tree) -> None:
    base = "/lib/modules/6.1.0-50-amd64"
    tree.has(f"{base}/updates/dkms/nvidia-current.ko")
    tree.has(f"{base}/updates/dkms/nvidia-current-uvm.ko")
    tree.has(f"{base}/kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.xz")
    tree.has(f"{base}/kernel/drivers/usb/typec/altmodes/typec_nvidia.ko")
    tree.answers["modinfo -F version"] = "535.261.03\n"
    tree.answers["modinfo -F license"] = "NVIDIA\n"
    rows = facts.read_modules(tree.node(), ["6.1.0-50-amd64"])["6.1.0-50-amd64"]
    assert {row["name"] for row in rows} >= {"nvidia-current"}
    assert not [row for row in rows if "wmi" in row["name"] or "typec" in row["name"]]
    main = next(row for row in rows if row["name"] == "nvidia-current")
    assert (main["version"], main["license"], main["path"]) == (
        "535.261.03",
        "NVIDIA",
        f"{base}/updates/dkms/nvidia-current.ko",
    )


@pytest.mark.parametrize(
    "name", ["nvidia.ko", "nvidia-current.ko", "nvidia-current-open.ko.xz", "nvidia-tesla-470.ko.zst", "nvidia-open.ko"]
)
def test_every_name_of_the_module_is_known(tree: Tree, name: str) -> None:
    tree.has(f"/lib/modules/6.1.0-50-amd64/updates/dkms/{name}")
    (row,) = facts.read_modules(tree.node(), ["6.1.0-50-amd64"])["6.1.0-50-amd64"]
    assert row["name"] == name.partition(".")[0]


def test_units_that_do_not_exist_are_left_out(tree: Tree) -> None:
    tree.answers["systemctl show"] = (
        "Id=docker.service\nNames=docker.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=crio.service\nNames=crio.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"
        "Id=ssh.service\nNames=ssh.service sshd.service\nLoadState=loaded\nActiveState=inactive\n"
        "UnitFileState=disabled\n"
    )
    found = facts.read_units(tree.node(), ["docker.service", "crio.service", "ssh.service"])
    assert {name: (row["enabled"], row["active"]) for name, row in found.items()} == {
        "docker.service": ("enabled", "active"),
        "ssh.service": ("disabled", "inactive"),
    }


@pytest.mark.parametrize(
    ("state", "restarts", "seconds_ago", "is_looping"),
    [
        pytest.param("active", "7", 4, True, id="just-started-again"),
        pytest.param("activating", "7", 900, True, id="between-two-starts"),
        pytest.param("active", "7", 900, False, id="mended-since"),
        pytest.param("active", "1", 4, False, id="ended-once"),
        pytest.param("active", "0", 4, False, id="started-by-hand"),
        pytest.param("failed", "7", 4, False, id="given-up"),
        pytest.param("active", "", 4, False, id="systemd-that-does-not-count"),
    ],
)
def test_a_unit_that_ends_soon_after_each_start_is_looping(
    tree: Tree, state: str, restarts: str, seconds_ago: int, is_looping: bool
) -> None:
    entered = int((time.monotonic() - seconds_ago) * 1e6)
    tree.answers["systemctl show"] = (
        f"Id=ssh.service\nNames=ssh.service\nLoadState=loaded\nActiveState={state}\nUnitFileState=enabled\n"
        f"ActiveEnterTimestampMonotonic={entered}\nNRestarts={restarts}\n"
    )
    assert facts.read_units(tree.node(), ["ssh.service"])["ssh.service"]["is_looping"] is is_looping


@pytest.mark.parametrize(("said", "needs_reload"), [("yes", True), ("no", False)])
def test_a_unit_whose_files_changed_since_systemd_read_them_needs_a_reload(
    tree: Tree, said: str, needs_reload: bool
) -> None:
    tree.answers["systemctl show"] = (
        f"Id=ssh.service\nNames=ssh.service\nLoadState=loaded\nActiveState=active\nNeedDaemonReload={said}\n"
    )
    assert facts.read_units(tree.node(), ["ssh.service"])["ssh.service"]["needs_reload"] is needs_reload


def test_alternatives_with_their_choices(tree: Tree) -> None:
    tree.answers["update-alternatives --query cuda"] = (
        "Name: cuda\nLink: /usr/local/cuda\nStatus: manual\nBest: /usr/local/cuda-12.4\nValue: /usr/local/cuda-11.8\n\n"
        "Alternative: /usr/local/cuda-11.8\nPriority: 118\n\nAlternative: /usr/local/cuda-12.4\nPriority: 124\n"
    )
    assert facts.read_alternatives(tree.node(), ["cuda", "glx"]) == {
        "cuda": {
            "value": "/usr/local/cuda-11.8",
            "mode": "manual",
            "choices": {"/usr/local/cuda-11.8": 118, "/usr/local/cuda-12.4": 124},
        }
    }


def test_command_that_hangs_is_a_problem_and_not_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "COMMAND_SECONDS", 0.2)
    node = facts.Node()
    assert node.run("sleep", "20") is None
    assert any("sleep" in line for line in node.problems)


@pytest.mark.parametrize(
    ("program", "read"),
    [
        ("dkms", facts.read_dkms),
        ("dpkg-query", facts.read_packages),
        ("rpm", facts.read_rpms),
        ("dpkg", lambda node: facts.read_dpkg(node, {})),
    ],
)
def test_packages_and_modules_that_are_not_told_in_time_are_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, read: Callable[[object], object]
) -> None:
    slow = tmp_path / program
    slow.write_text("#!/bin/sh\nexec sleep 20\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(facts, "NEEDED_SECONDS", 0.2)
    with pytest.raises(SystemExit) as caught:
        read(facts.Node())
    assert f"it is unknown what is installed: `{program}" in str(caught.value)
    assert "timed out" in str(caught.value)


def test_command_that_is_absent_is_none_and_no_problem() -> None:
    node = facts.Node()
    assert node.run("no-such-command-anywhere") is None
    assert node.problems == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("not json", None),
        ('{"packages": {"bash": {"version": "5"}}}', []),
        ('{"packages": {"bash": {}, "datacenter-gpu-manager-4-core": {}}}', ["datacenter-gpu-manager-4-core"]),
    ],
)
def test_dcgm_from_before_the_first_run(tree: Tree, text: str | None, names: list[str] | None) -> None:
    if text is not None:
        tree.has("/var/lib/provision/baseline/packages.json", text)
    assert facts.read_dcgm_before(tree.node()) == names


# Which packages of compiled modules go with a kernel. Releases and versions are those of Ubuntu's archive.


@pytest.mark.parametrize(
    ("release", "packages", "flavour"),
    [
        ("6.8.0-45-generic", {"linux-image-generic": "6.8.0-45.45"}, "generic"),
        ("6.8.0-45-generic", {}, "generic"),
        ("6.8.0-45-generic", {"linux-image-generic-hwe-22.04": "6.8.0-45.45~22.04.1"}, "generic-hwe-22.04"),
        ("6.8.0-45-generic", {"linux-image-6.8.0-45-generic": "6.8.0-45.45~22.04.1"}, "generic-hwe-22.04"),
        (
            "5.15.0-122-generic",
            {"linux-image-generic": "5.15.0.122.122", "linux-image-generic-hwe-22.04": "6.8.0-45.45~22.04.1"},
            "generic",
        ),
        (
            "6.8.0-45-generic",
            {"linux-image-generic": "5.15.0.122.122", "linux-image-generic-hwe-22.04": "6.8.0-45.45~22.04.1"},
            "generic-hwe-22.04",
        ),
        ("6.8.0-1021-aws", {"linux-image-aws": "6.8.0-1021.23~22.04.1"}, "aws"),
        ("6.8.0-1021-aws", {"linux-image-6.8.0-1021-aws": "6.8.0-1021.23~22.04.1"}, "aws"),
        ("5.15.0-1070-aws", {"linux-image-aws-lts-22.04": "5.15.0.1070.76"}, "aws-lts-22.04"),
        ("6.8.0-1015-azure", {}, "azure"),
        ("6.8.0-1015-azure-fde", {}, "azure-fde"),
        ("6.8.0-1014-gcp", {}, "gcp"),
        ("6.8.0-1012-oracle", {"linux-modules-6.8.0-1012-oracle": "6.8.0-1012.12~22.04.1"}, "oracle"),
        ("6.8.0-1014-nvidia", {"linux-image-nvidia-64k": "6.8.0-1014.15"}, "nvidia"),
        ("6.8.0-1014-nvidia-64k", {"linux-image-nvidia-64k": "6.8.0-1014.15"}, "nvidia-64k"),
        (
            "6.8.0-1036-nvidia-64k",
            {
                "linux-image-nvidia-64k-6.8": "6.8.0-1036.39~22.04.1",
                "linux-image-nvidia-64k-hwe-22.04": "6.8.0-1036.39~22.04.1",
            },
            "nvidia-64k-hwe-22.04",
        ),
        (
            "7.0.0-1019-nvidia-64k",
            {"linux-image-7.0.0-1019-nvidia-64k": "7.0.0-1019.19~24.04.2"},
            "nvidia-64k-hwe-24.04",
        ),
        ("6.8.0-45-lowlatency", {}, "lowlatency"),
        ("6.1.0-50-cloud-amd64", {}, "cloud-amd64"),
        (None, {}, None),
        ("6.8.12", {}, None),
    ],
)
def test_modules_of_the_archive_are_those_of_the_kernel(
    release: str | None, packages: dict[str, str], flavour: str | None
) -> None:
    rows = {name: {"version": version, "status": "ii"} for name, version in packages.items()}
    assert facts.name_flavour(release, rows) == flavour
