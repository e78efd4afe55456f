"""The way back from a failed driver installation: which packages it touches, and what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import playbook_files
import pytest

restore = playbook_files.load_script(playbook_files.ROLES / "gpu_facts" / "files" / "node.py")

DRIVER, OTHER = "nvidia-graphics-drivers", "glibc"


class Dpkg:
    """A stand-in for apt and dpkg: packages in a mapping, and what may fail."""

    def __init__(self, packages: dict[str, tuple[str, str, str]]) -> None:
        self.packages = dict(packages)
        self.sources = {name: row[2] for name, row in packages.items()}
        self.offered: set[tuple[str, str]] = set()
        self.orphans: list[str] = []
        self.audit = ""
        self.broken: set[str] = set()
        self.calls: list[tuple[str, ...]] = []

    def run(self, *argv: str) -> tuple[int, str]:
        self.calls.append(argv)
        if argv[0] == "dpkg-query":
            rows = (f"{name}\t{row[0]}\t{row[1]} \t{row[2]}\n" for name, row in self.packages.items())
            return 0, "".join(rows)
        if argv[:3] == ("apt-get", "-s", "autoremove"):
            return 0, "".join(f"Remv {name} [1]\n" for name in self.orphans if name in self.packages)
        if argv[:2] == ("dpkg", "--audit"):
            return 0, self.audit
        if argv[0] == "dpkg" and "--configure" in argv:
            for name in argv[2:]:
                if name in self.packages and name not in self.broken:
                    self.packages[name] = (self.packages[name][0], "ii", self.packages[name][2])
            return 0, ""
        if "install" in argv:
            return self.install(argv[argv.index("install") + 1 :])
        if "purge" in argv:
            words = argv[argv.index("purge") + 1 :]
            for name in words:
                self.packages.pop(name, None)
            return 0, ""
        raise AssertionError(argv)

    def install(self, words: tuple[str, ...]) -> tuple[int, str]:
        wanted = []
        for word in words:
            if word.endswith("-"):
                continue
            name, _, version = word.partition("=")
            if word.endswith(".deb"):
                name, version, _ = Path(word).name.split("_")
            elif (name, version) not in self.offered:
                return 100, f"E: Version '{version}' for '{name}' was not found"
            wanted.append((name, version))
        for name, version in wanted:
            self.packages[name] = (version, "ii", self.sources.get(name, DRIVER))
        for word in words:
            if word.endswith("-"):
                self.packages.pop(word[:-1], None)
        return 0, ""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "etc/apt/preferences.d").mkdir(parents=True)
    (tmp_path / "var/cache/apt/archives").mkdir(parents=True)
    monkeypatch.setattr(restore, "ROOT", str(tmp_path))
    return tmp_path


def ask(
    monkeypatch: pytest.MonkeyPatch,
    dpkg: Dpkg,
    before: dict[str, tuple[str, str]],
    packages: list[str],
    along: tuple[str, ...] = (),
    there: tuple[str, ...] = (),
) -> Any:
    monkeypatch.setattr(restore, "call", dpkg.run)
    request = {
        "before": {name: {"version": version, "source": source} for name, (version, source) in before.items()},
        "packages": packages,
        "along": list(along),
        "there": [*before, *there],
        "modules": ["nvidia-current"],
        "log_lines": 40,
        "lock_seconds": 5,
    }
    return restore.go_back(request, 0)


def test_first_installation_is_purged_with_what_it_brought(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg(
        {
            "libc6": ("2.36", "ii", OTHER),
            "nvidia-kernel-dkms": ("535.2", "iF", DRIVER),
            "libcuda1": ("535.2", "iU", DRIVER),
            "dkms": ("3.0", "ii", "dkms"),
            "docker.io": ("20", "ii", "docker.io"),
        }
    )
    dpkg.orphans = ["dkms", "libc6"]
    report = ask(monkeypatch, dpkg, {"libc6": ("2.36", OTHER)}, ["nvidia-kernel-dkms", "libcuda1"])
    assert set(dpkg.packages) == {"libc6", "docker.io"}
    assert report["purged"] == ["dkms", "libcuda1", "nvidia-kernel-dkms"]
    assert (report["restored"], report["problems"], report["missing"]) == ({}, [], [])
    assert not (root / restore.PREFERENCES).exists()


def test_what_came_along_goes_and_what_somebody_else_installed_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {
        "libnccl2": ("2.17", "iU", "nccl"),
        "nvidia-kernel-dkms": ("535.2", "ii", DRIVER),
        "docker.io": ("20", "ii", "docker.io"),
        "python3-venv": ("3.11", "ii", "python3-defaults"),
    }
    before = {"python3-venv": ("3.11", "python3-defaults")}
    along = ("libnccl2", "python3-venv")
    dpkg = Dpkg(packages)
    assert ask(monkeypatch, dpkg, before, [], along)["purged"] == ["libnccl2"]
    assert set(dpkg.packages) == {"nvidia-kernel-dkms", "docker.io", "python3-venv"}, "the driver did not fail"
    dpkg = Dpkg(packages)
    assert ask(monkeypatch, dpkg, before, ["nvidia-kernel-dkms"], along)["purged"] == ["libnccl2", "nvidia-kernel-dkms"]
    assert set(dpkg.packages) == {"docker.io", "python3-venv"}


def test_half_packages_that_came_as_dependencies_go_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {
        "nvidia-kernel-dkms": ("535.2", "iU", DRIVER),
        "cuda-toolkit-12-1": ("12.1", "iU", "cuda"),
        "libcublas-12-1": ("12.1", "iH", "libcublas"),
        "libcufft-12-1": ("12.1", "ii", "libcufft"),
    }
    dpkg = Dpkg(packages)
    dpkg.broken = {"libcublas-12-1"}
    ask(monkeypatch, dpkg, {}, ["nvidia-kernel-dkms"], ("cuda-toolkit-12-1",))
    assert set(dpkg.packages) == {"libcufft-12-1"}, "that one is whole; whether anybody needs it is for apt to say"
    dpkg = Dpkg(packages)
    ask(monkeypatch, dpkg, {}, [], ("cuda-toolkit-12-1", "libcublas-12-1"))
    assert set(dpkg.packages) == {"nvidia-kernel-dkms", "libcufft-12-1"}, "the driver is unpacked and will be finished"


def test_what_was_half_installed_before_is_nobodys_to_remove(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg(
        {
            "linux-image-6.1.0-40-amd64": ("6.1", "iF", "linux"),
            "initramfs-tools": ("0.142", "it", "initramfs-tools"),
            "linux-headers-6.1.0-40-amd64": ("6.1", "iU", "linux"),
            "nvidia-kernel-dkms": ("535.2", "iF", DRIVER),
            "libnccl2": ("2.17", "iU", "nccl"),
        }
    )
    dpkg.broken = {"linux-image-6.1.0-40-amd64"}
    there = ("linux-image-6.1.0-40-amd64", "initramfs-tools")
    ask(monkeypatch, dpkg, {}, ["nvidia-kernel-dkms"], ("libnccl2", "linux-image-6.1.0-40-amd64"), there)
    assert set(dpkg.packages) == {*there, "linux-headers-6.1.0-40-amd64"}
    assert dpkg.packages["linux-headers-6.1.0-40-amd64"][1] == "ii", "a kernel's package may need it now"
    assert dpkg.packages["linux-image-6.1.0-40-amd64"][1] == "iF"


def test_without_anything_along_only_the_driver_s_sources_are_touched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dpkg = Dpkg({"gcc-12": ("12", "iU", "gcc-12"), "nvidia-kernel-dkms": ("535.2", "iF", DRIVER)})
    ask(monkeypatch, dpkg, {}, ["nvidia-kernel-dkms"])
    assert set(dpkg.packages) == {"gcc-12"}


def test_driver_of_another_branch_that_was_displaced_comes_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = "nvidia-graphics-drivers-580-server", "nvidia-graphics-drivers-535-server"
    dpkg = Dpkg({"nvidia-dkms-580-server": ("580.1", "iF", new)})
    dpkg.sources["nvidia-dkms-535-server"] = old
    dpkg.offered = {("nvidia-dkms-535-server", "535.1")}
    before = {"nvidia-dkms-535-server": ("535.1", old), "hello": ("2", "hello")}
    report = ask(monkeypatch, dpkg, before, ["nvidia-dkms-580-server"])
    assert set(dpkg.packages) == {"nvidia-dkms-535-server"}, "what is none of the driver's is not brought back"
    assert report["restored"] == {"nvidia-dkms-535-server": "535.1"}


def test_upgrade_goes_back_in_one_transaction_and_is_pinned(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg(
        {
            "libc6": ("2.36", "ii", OTHER),
            "nvidia-kernel-dkms": ("535.2", "iF", DRIVER),
            "libcuda1": ("535.2", "ii", DRIVER),
            "libnew1": ("535.2", "ii", DRIVER),
            "libsame1": ("535.1", "ii", DRIVER),
        }
    )
    dpkg.offered = {("nvidia-kernel-dkms", "535.1"), ("libcuda1", "535.1"), ("libgone1", "535.1")}
    before = {
        "libc6": ("2.36", OTHER),
        **dict.fromkeys(("nvidia-kernel-dkms", "libcuda1", "libgone1", "libsame1"), ("535.1", DRIVER)),
    }
    report = ask(monkeypatch, dpkg, before, ["nvidia-kernel-dkms", "libcuda1"])
    assert {name: row[0] for name, row in dpkg.packages.items()} == {name: row[0] for name, row in before.items()}
    assert report["restored"] == {"nvidia-kernel-dkms": "535.1", "libcuda1": "535.1", "libgone1": "535.1"}
    assert report["purged"] == ["libnew1"]
    installs = [call for call in dpkg.calls if "install" in call]
    assert len(installs) == 1
    assert "--allow-downgrades" in installs[0]
    assert "libnew1-" in installs[0]
    assert "--purge" in installs[0]
    pinned = (root / restore.PREFERENCES).read_text()
    assert "Package: libcuda1\nPin: version 535.1\nPin-Priority: 1002\n" in pinned
    assert "Package: libsame1\n" in pinned
    assert "libc6" not in pinned


def test_versions_the_archive_no_longer_has_come_from_the_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "var/cache/apt/archives/libcuda1_535.1_amd64.deb").write_text("")
    dpkg = Dpkg({"libcuda1": ("535.2", "iF", DRIVER)})
    report = ask(monkeypatch, dpkg, {"libcuda1": ("535.1", DRIVER)}, ["libcuda1"])
    assert report["restored"] == {"libcuda1": "535.1"}
    assert report["problems"] == []


def test_what_cannot_be_put_back_is_said_and_half_a_driver_goes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg({"libcuda1": ("535.2", "ii", DRIVER), "nvidia-kernel-dkms": ("535.2", "iF", DRIVER)})
    before = dict.fromkeys(("libcuda1", "nvidia-kernel-dkms"), ("535.1", DRIVER))
    report = ask(monkeypatch, dpkg, before, ["libcuda1", "nvidia-kernel-dkms"])
    assert "could not be put back" in report["problems"][0]
    assert "Version '535.1'" in report["problems"][0]
    assert report["missing"] == ["libcuda1", "nvidia-kernel-dkms"]
    assert "nvidia-kernel-dkms" not in dpkg.packages
    assert report["restored"] == {}


def test_failure_before_anything_was_unpacked_touches_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg({"libcuda1": ("535.1", "ii", DRIVER)})
    report = ask(monkeypatch, dpkg, {"libcuda1": ("535.1", DRIVER)}, ["libcuda1", "nvidia-kernel-dkms"])
    assert (report["restored"], report["purged"], report["problems"]) == ({}, [], [])
    assert not any("install" in call or "purge" in call for call in dpkg.calls)


def test_what_people_installed_meanwhile_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = Dpkg({"nvidia-kernel-dkms": ("535.2", "iF", DRIVER), "htop": ("3", "ii", "htop")})
    ask(monkeypatch, dpkg, {}, ["nvidia-kernel-dkms"])
    assert set(dpkg.packages) == {"htop"}


def test_log_is_the_failed_builds_last_lines_cut_to_length(root: Path) -> None:
    failed = root / "var/lib/dkms/nvidia-current/535.2/build/make.log"
    good = root / "var/lib/dkms/nvidia-current/535.2/6.1.0/x86_64/log/make.log"
    for path, text in (
        (good, "all is well\n"),
        (failed, "\n".join(f"line {n}" for n in range(100)) + "\n" + "x" * 5000),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    os.utime(failed, (1, 1))
    found, lines = restore.read_log(["nvidia-current"], 40, 0)
    assert found == str(failed)
    assert len(lines) == 40
    assert lines[0] == "line 61"
    assert len(lines[-1]) == restore.LINE_CHARACTERS + 1
    assert restore.read_log(["nothing"], 40, 0) == (None, [])
    failed.unlink()
    assert restore.read_log(["nvidia-current"], 40, 0) == (None, []), "a build that succeeded explains no failure"


def test_log_shows_the_first_error_also_where_make_went_on_after_it(root: Path) -> None:
    failed = root / "var/lib/dkms/nvidia-current/535.2/build/make.log"
    failed.parent.mkdir(parents=True)
    rows = [f"line {n}" for n in range(500)]
    rows[200] = "/var/lib/dkms/x/nvidia/nv-pci.c:222:13: error: too many arguments to function pci_resize_resource"
    rows[450] = "#define NV_IS_ERROR_PRESENT"
    failed.write_text("\n".join(rows))
    _path, lines = restore.read_log(["nvidia-current"], 40, 0)
    assert rows[200] in lines
    assert rows[499] == lines[-1]
    assert len(lines) == 40
    # One that the last lines show anyway is not told twice.
    rows[480] = rows[200]
    rows[200] = "line 200"
    failed.write_text("\n".join(rows))
    assert restore.read_log(["nvidia-current"], 40, 0)[1] == rows[-40:]
