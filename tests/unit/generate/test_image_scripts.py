"""The files of images/ that run inside an image: verify.py, entrypoint.sh, compile_bytecode.py."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision.assets import asset_dir

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = asset_dir("images")


def _load(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, IMAGES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verify = _load("verify")

LOCK = {
    "cuda": "12.1",
    "cudnn": "8.9.2.26",
    "nccl": "2.18.1",
    "driver": {"minimum": "525.60.13"},
    "frameworks": {"torch": "2.1.2"},
    "packages": {},
    "platform": "linux/amd64",
    "ptx": ["compute_90"],
    "python": "3.11",
    "sm": ["sm_80", "sm_90"],
    "variants": {"torch": "cu121"},
}

RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
SUFFIXES = st.sampled_from(["", "a1", "b2", "rc1", ".post1", ".dev3", "rc1.dev2", ".post2.dev1", "+cu118", "+local.2"])
VERSIONS = st.builds("{}{}".format, RELEASES, SUFFIXES)


@given(VERSIONS, VERSIONS)
def test_versions_are_ordered_as_packaging_orders_them(left: str, right: str) -> None:
    assert (verify.order(left) < verify.order(right)) == (Version(left) < Version(right))
    assert (verify.order(left) == verify.order(right)) == (Version(left) == Version(right))


@given(VERSIONS, st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~="]), RELEASES, st.sampled_from(["", ".post1"]))
def test_specifiers_match_as_packaging_matches_them(version: str, operator: str, release: str, suffix: str) -> None:
    if operator == "~=" and "." not in release:
        return
    if suffix and Version(version).is_prerelease:
        return  # releases of packaging disagree on whether 1.0a1 lies below 1.0.post1
    wanted = f"{operator}{release}{suffix}"
    assert verify.satisfies(version, wanted) == SpecifierSet(wanted).contains(version, prereleases=True)


@given(VERSIONS, st.sampled_from(["==", "!="]), RELEASES)
def test_wildcards_match_as_packaging_matches_them(version: str, operator: str, release: str) -> None:
    wanted = f"{operator}{release}.*"
    assert verify.satisfies(version, wanted) == SpecifierSet(wanted).contains(version, prereleases=True)


@pytest.mark.parametrize(
    "marker",
    [
        'python_version < "3.12"',
        'python_full_version >= "3.10.1"',
        "platform_system == 'Linux' and platform_machine == 'x86_64'",
        'sys_platform == "win32" or extra == "test"',
        'extra == ""',
        '"linux" in sys_platform',
        "python_version not in '3.9 3.10'",
        '(os_name == "posix" and implementation_name != "pypy") or python_version < "2.7"',
        'platform_python_implementation != "PyPy"',
    ],
)
def test_markers_hold_as_packaging_says(marker: str) -> None:
    assert verify.holds(marker) == Marker(marker).evaluate({"extra": ""})


@pytest.mark.parametrize(
    "marker", ["nonsense", "__import__('os')", 'python_version ~= "3.9"', 'unknown == "x"', "1 < 2 < 3"]
)
def test_a_marker_that_cannot_be_read_is_no_pass(marker: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        verify.holds(marker)


def _install(site: Path, name: str, version: str, *requires: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {item}" for item in requires)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n\nText\n", encoding="utf-8")


def _statuses(findings) -> dict[str, str]:
    return {item["check"]: item["status"] for item in findings}


def _check_packages(site: Path, monkeypatch: pytest.MonkeyPatch, packages: dict[str, str]):
    monkeypatch.setattr(sys, "path", [str(site)])
    findings = verify.Findings()
    verify.check_packages(findings, {"packages": packages})
    return {item["check"]: (item["status"], item["detail"]) for item in findings}


def test_packages_as_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(
        tmp_path, "Torch", "2.1.2+cu121", "my_pkg (>=1.0)", 'gone; extra == "x"', "my-pkg[fast]<3 ; os_name=='posix'"
    )
    _install(tmp_path, "my_pkg", "1.5")
    found = _check_packages(tmp_path, monkeypatch, {"torch": "2.1.2", "my-pkg": "1.5"})
    assert found == {"packages": ("pass", "2 as locked"), "requirements": ("pass", "2 distributions agree")}


@pytest.mark.parametrize(
    ("packages", "requires", "check", "status", "text"),
    [
        ({"torch": "2.1.2+cu118"}, (), "packages", "fail", "torch is 2.1.2+cu121, the lock says 2.1.2+cu118"),
        ({"torch": "2.1.1"}, (), "packages", "fail", "torch is 2.1.2+cu121"),
        ({"numpy": "1.26.4"}, (), "packages", "fail", "numpy is missing"),
        ({}, ("numpy<2",), "requirements", "fail", "torch 2.1.2+cu121 requires numpy, which is missing"),
        ({}, ("torch>=3",), "requirements", "fail", "requires torch>=3, but 2.1.2+cu121 is installed"),
        ({}, ("torch>>3",), "requirements", "unknown", "cannot read"),
        ({}, ("torch; what",), "requirements", "unknown", "cannot read"),
    ],
)
def test_packages_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages, requires, check, status, text
) -> None:
    _install(tmp_path, "torch", "2.1.2+cu121", *requires)
    found = _check_packages(tmp_path, monkeypatch, packages)[check]
    assert found[0] == status
    assert text in found[1]


def _torch(**changed):
    backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: changed.get("cudnn", 8902)))
    native = types.SimpleNamespace(_cuda_getArchFlags=lambda: changed.get("flags", "sm_90 sm_80 compute_90"))
    module = types.ModuleType("torch")
    module.__version__ = changed.get("version", "2.1.2+cu121")
    module.version = types.SimpleNamespace(cuda=changed.get("cuda", "12.1"))
    module.backends = backends
    module._C = native
    module.cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: changed.get("nccl", (2, 18, 1))))
    return module


def _run_torch(monkeypatch: pytest.MonkeyPatch, lock=LOCK, **changed) -> dict[str, str]:
    monkeypatch.setitem(sys.modules, "torch", _torch(**changed))
    findings = verify.Findings()
    findings.attempt("torch", lambda: verify.check_torch(findings, lock))
    return _statuses(findings)


def test_torch_as_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_run_torch(monkeypatch).values()) == {"pass"}


@pytest.mark.parametrize(
    ("changed", "check", "status"),
    [
        ({"version": "2.1.1+cu121"}, "torch", "fail"),
        ({"cuda": "11.8"}, "torch cuda", "fail"),
        ({"cuda": None}, "torch cuda", "unknown"),
        ({"cudnn": 8700}, "torch cudnn", "fail"),
        ({"cudnn": None}, "torch cudnn", "unknown"),
        ({"nccl": (2, 19, 3)}, "torch nccl", "fail"),
        ({"flags": "sm_80 sm_90"}, "torch kernels", "fail"),
        ({"flags": None}, "torch kernels", "unknown"),
    ],
)
def test_torch_that_differs(monkeypatch: pytest.MonkeyPatch, changed, check, status) -> None:
    assert _run_torch(monkeypatch, **changed)[check] == status


def test_kernels_the_lock_does_not_know_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run_torch(monkeypatch, lock={**LOCK, "sm": [], "ptx": []})["torch kernels"] == "unknown"


@pytest.mark.parametrize(
    ("number", "version", "status"),
    [
        (90100, "9.1.0.70", "pass"),
        (90100, "9", "pass"),
        (8902, "8.9", "pass"),
        (8902, "9", "fail"),
        (8600, "8.6.0", "pass"),
    ],
)
def test_cudnns_own_number(number: int, version: str, status: str) -> None:
    findings = verify.Findings()
    verify.check_cudnn(findings, number, version)
    assert findings[0]["status"] == status


@pytest.mark.parametrize(
    ("info", "failed"),
    [
        ({"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}, set()),
        ({"is_cuda_build": False}, {"tensorflow is a CUDA build", "tensorflow cuda", "tensorflow cudnn"}),
        (
            {"is_cuda_build": True, "cuda_version": "12.2", "cudnn_version": "8"},
            {"tensorflow cuda", "tensorflow cudnn"},
        ),
    ],
)
def test_tensorflow(monkeypatch: pytest.MonkeyPatch, info: dict, failed: set) -> None:
    module = types.ModuleType("tensorflow")
    module.__version__ = "2.21.0"
    module.sysconfig = types.SimpleNamespace(get_build_info=lambda: info)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    findings = verify.Findings()
    verify.check_tensorflow(findings, {**LOCK, "cuda": "12.5", "cudnn": "9", "frameworks": {"tensorflow": "2.21.0"}})
    assert {item["check"] for item in findings if item["status"] != "pass"} == failed


def test_an_import_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    findings = verify.run({**LOCK, "packages": {}}, "static")
    assert _statuses(findings)["torch"] == "fail"


@pytest.mark.parametrize(
    ("capability", "sm", "ptx", "is_served"),
    [
        (86, ["sm_80"], [], True),
        (80, ["sm_86"], [], False),
        (90, ["sm_80"], [], False),
        (90, ["sm_80"], ["compute_80"], True),
        (90, ["sm_90a"], [], True),
        (100, ["sm_90"], ["compute_90a"], False),
        (120, ["sm_100", "sm_120"], [], True),
        (75, [], [], False),
    ],
)
def test_which_kernels_serve_a_device(capability: int, sm: list, ptx: list, is_served: bool) -> None:
    assert verify.is_served(capability, sm, ptx) is is_served


PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Dec  4 22:00:00 UTC 2024\nGCC version: 12.2.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (x)\n"


@pytest.mark.parametrize("text", [PROPRIETARY, OPEN])
@pytest.mark.parametrize(
    ("found", "minimum", "is_enough"),
    [
        ("535.104.05", "525.60.13", True),
        ("525.60.13", "525.60.13", True),
        ("525.60.08", "525.60.13", False),
        ("525.9.13", "525.60.13", False),
        ("450.80", "450.80.02", False),
        ("580.65.06", "580.65.06", True),
        ("1000.1", "580.65.06", True),
    ],
)
def test_the_driver_gate_and_the_driver_check_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: str, minimum: str, is_enough: bool
) -> None:
    file = tmp_path / "version"
    file.write_text(text.format(found), encoding="utf-8")
    monkeypatch.setenv("PROVISION_DRIVER_FILE", str(file))
    findings = verify.Findings()
    verify.check_driver(findings, minimum)
    assert findings[0]["status"] == ("pass" if is_enough else "fail")
    done = _start(["echo", "a  b"], PROVISION_DRIVER_FILE=str(file), PROVISION_DRIVER_MIN=minimum)
    if is_enough:
        assert (done.returncode, done.stdout, done.stderr) == (0, "a  b\n", "")
    else:
        assert (done.returncode, done.stdout) == (78, "")
        assert done.stderr.count("\n") == 1
        assert found in done.stderr
        assert minimum in done.stderr


class _Nvml:
    """A libnvidia-ml that knows the driver's version, or answers with an error."""

    def __init__(self, version: bytes, code: int = 0) -> None:
        self.version, self.code = version, code

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the library's own name
        return self.code

    def nvmlSystemGetDriverVersion(self, text, size: int) -> int:  # noqa: N802
        assert size > len(self.version)
        text.value = self.version
        return 0


@pytest.mark.parametrize(
    ("library", "status"),
    [
        (_Nvml(b"580.159.04"), "pass"),
        (_Nvml(b"470.82.01"), "fail"),
        (_Nvml(b"580.159.04", code=18), "unknown"),
        (None, "unknown"),
    ],
)
def test_where_a_sandbox_hides_the_kernels_file_the_drivers_library_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: _Nvml | None, status: str
) -> None:
    def load(name: str) -> _Nvml:
        assert name == "libnvidia-ml.so.1"
        if library is None:
            raise OSError(name)
        return library

    monkeypatch.setenv("PROVISION_DRIVER_FILE", str(tmp_path / "version"))
    monkeypatch.setattr(verify.ctypes, "CDLL", load)
    findings = verify.Findings()
    verify.check_driver(findings, "525.60.13")
    assert findings[0]["status"] == status


def _start(words: list[str], **environment: str):
    return subprocess.run(
        [shutil.which("sh"), str(IMAGES / "entrypoint.sh"), *words],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_gate_can_be_passed_by(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(PROPRIETARY.format("390.157"), encoding="utf-8")
    done = _start(["true"], PROVISION_DRIVER_FILE=str(file), PROVISION_DRIVER_MIN="525.60.13", PROVISION_SKIP_CHECK="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", [None, "", "NVRM version: no number\n", "NVRM version: x86_64 5.x 535.\n"])
def test_no_driver_or_no_number_warns_and_goes_on(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    done = _start(["sh", "-c", "exit 3"], PROVISION_DRIVER_FILE=str(file), PROVISION_DRIVER_MIN="525.60.13")
    assert done.returncode == 3
    assert done.stderr.startswith("provision: ")
    assert done.stderr.count("\n") == 1


def test_the_gate_starts_no_process_before_the_command(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(PROPRIETARY.format("535.104.05"), encoding="utf-8")
    true = shutil.which("true")
    done = _start([true], PROVISION_DRIVER_FILE=str(file), PROVISION_DRIVER_MIN="525.60.13", PATH="/nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    text = (IMAGES / "entrypoint.sh").read_text(encoding="utf-8")
    assert "$(" not in text
    assert "`" not in text


def test_the_command_prints_json_and_its_status_is_6(tmp_path: Path) -> None:
    lock = tmp_path / "provision.lock"
    lock.write_text(json.dumps({**LOCK, "packages": {"absent": "1.0"}, "frameworks": {}}), encoding="utf-8")
    words = [sys.executable, str(IMAGES / "verify.py"), "--packages", "--json", "--lock", str(lock)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["mode"]) == (6, False, "packages")
    assert {"check": "packages", "status": "fail", "detail": "absent is missing"} in document["findings"]


@pytest.mark.parametrize("text", [None, "not json"])
def test_a_lock_that_cannot_be_read_is_no_pass(tmp_path: Path, text: str | None) -> None:
    lock = tmp_path / "provision.lock"
    if text is not None:
        lock.write_text(text, encoding="utf-8")
    words = [sys.executable, str(IMAGES / "verify.py"), "--lock", str(lock)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "Traceback" not in done.stderr


def test_bytecode_is_the_same_each_time_and_tests_get_none(tmp_path: Path) -> None:
    trees = []
    for run in ("one", "two"):
        site = tmp_path / run / "site"
        for number in range(9):
            package = site / f"package{number}"
            (package / "tests").mkdir(parents=True)
            (package / "__init__.py").write_text(
                f"NAMES = {{'a', 'b', 'c{number}'}}\n\ndef f():\n    return NAMES\n", "utf-8"
            )
            (package / "tests" / "test_it.py").write_text("x = 1\n", "utf-8")
        (site / "broken.py").write_text("print 'two'\n", "utf-8")
        script = (IMAGES / "compile_bytecode.py").read_text("utf-8")
        copy = tmp_path / run / "compile_bytecode.py"
        copy.write_text(script.replace('sysconfig.get_path("purelib")', '"site"'), "utf-8")
        environment = {**os.environ, "PYTHONHASHSEED": "7" if run == "one" else "random"}
        for _ in range(2):  # the second run finds nothing to do
            subprocess.run([sys.executable, str(copy)], cwd=copy.parent, env=environment, check=True)
        cached = {path.relative_to(site): path.read_bytes() for path in site.rglob("*.pyc")}
        assert len(cached) == 9
        assert not any("tests" in path.parts for path in cached)
        assert all(data[4:8] == b"\x01\0\0\0" for data in cached.values())  # hash-based, unchecked
        trees.append(cached)
    assert trees[0] == trees[1]
