"""The files of images/ that run inside an image: verify.py, entrypoint.sh, compile_bytecode.py."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any

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
        'python_version ~= "3.8"',
        "python_version~='2.7' or '3.0' ~= python_version",
        'python_version === "3.8"',
        'sys_platform == "linux" and os_name == "a ~= b === c"',
    ],
)
def test_markers_hold_as_packaging_says(marker: str) -> None:
    assert verify.holds(marker) == Marker(marker).evaluate({"extra": ""})


@pytest.mark.parametrize(
    "marker",
    [
        "nonsense",
        "__import__('os')",
        'python_version ~= "3"',
        'unknown == "x"',
        "1 < 2 < 3",
        'python_version @ "3.8"',
        "-os_name",
    ],
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


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = {**LOCK, "cuda": None, "cudnn": None, "nccl": None, "sm": [], "ptx": [], "builds": []}
    monkeypatch.setattr(verify, "find_distributions", lambda: {"numpy": None})
    assert _run_torch(monkeypatch, lock, cuda=None)["torch without CUDA"] == "pass"
    assert _run_torch(monkeypatch, lock, cuda="12.1")["torch without CUDA"] == "fail"
    monkeypatch.setattr(verify, "find_distributions", lambda: {"nvidia-cudnn-cu12": None})
    assert _run_torch(monkeypatch, lock, cuda=None)["torch without CUDA"] == "fail"


def test_no_gpu_is_looked_for_without_cuda() -> None:
    (found,) = verify.run({**LOCK, "driver": {"minimum": None}}, "gpu")
    assert (found["check"], found["status"]) == ("driver", "unknown")


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


def test_the_common_kernels_of_an_older_lock_are_those_of_no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = {**LOCK, "frameworks": {"torch": "2.1.2", "jax": "0.4.30"}, "sm": ["sm_80"], "ptx": []}
    assert _run_torch(monkeypatch, lock=lock)["torch kernels"] == "pass"
    assert _run_torch(monkeypatch, lock=lock, flags=None)["torch kernels"] == "unknown"
    build = {"framework": "torch", "cuda": "12.1", "sm": ["sm_80"], "ptx": []}
    assert _run_torch(monkeypatch, lock={**lock, "builds": [build]})["torch kernels"] == "fail"


@pytest.mark.parametrize(("flags", "status"), [("sm_80 sm_90", "pass"), ("", "unknown"), (None, "unknown")])
def test_where_the_lock_names_no_kernels_torch_must_name_some(
    monkeypatch: pytest.MonkeyPatch, flags: str | None, status: str
) -> None:
    found = _run_torch(monkeypatch, lock={**LOCK, "sm": [], "ptx": []}, flags=flags)
    assert found["torch kernels"] == status


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


TENSORFLOW = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_80", "sm_90", "compute_90"],
}


def _run_tensorflow(monkeypatch: pytest.MonkeyPatch, lock: dict, info: dict) -> set[str]:
    module = types.ModuleType("tensorflow")
    module.__version__ = "2.21.0"
    module.sysconfig = types.SimpleNamespace(get_build_info=lambda: info)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    findings = verify.Findings()
    verify.check_tensorflow(findings, lock)
    return {item["check"] for item in findings if item["status"] != "pass"}


@pytest.mark.parametrize(
    ("info", "failed"),
    [
        ({}, set()),
        ({"cuda_version": "12.2", "cudnn_version": "8"}, {"tensorflow cuda", "tensorflow cudnn"}),
        ({"cuda_compute_capabilities": ["sm_80", "compute_90"]}, {"tensorflow kernels"}),
        ({"cuda_compute_capabilities": None}, {"tensorflow kernels"}),
        (dict.fromkeys(TENSORFLOW), {f"tensorflow {part}" for part in ("is a CUDA build", "cuda", "cudnn", "kernels")}),
    ],
)
def test_tensorflow(monkeypatch: pytest.MonkeyPatch, info: dict, failed: set) -> None:
    lock = {**LOCK, "cuda": "12.5", "cudnn": "9", "frameworks": {"tensorflow": "2.21.0"}}
    assert _run_tensorflow(monkeypatch, lock, {**TENSORFLOW, **info}) == failed


MIXED = {
    **LOCK,
    "frameworks": {"tensorflow": "2.21.0", "torch": "2.1.2"},
    "builds": [
        {"framework": "torch", "cuda": "12.1", "cudnn": "8.9.2.26", "nccl": "2.18.1", "sm": ["sm_80"], "ptx": []},
        {
            "framework": "tensorflow",
            "cuda": "12.5",
            "cudnn": "9",
            "nccl": None,
            "sm": ["sm_80", "sm_90"],
            "ptx": ["compute_90"],
        },
    ],
}


def test_each_framework_of_several_is_held_to_its_own_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_run_torch(monkeypatch, lock=MIXED, flags="sm_80").values()) == {"pass"}
    assert _run_tensorflow(monkeypatch, MIXED, TENSORFLOW) == set()


def test_one_wrong_framework_of_several_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _run_torch(monkeypatch, lock=MIXED, flags="sm_80 sm_90", cuda="12.5")
    assert {check for check, status in found.items() if status != "pass"} == {"torch cuda", "torch kernels"}
    assert _run_tensorflow(monkeypatch, MIXED, {**TENSORFLOW, "cuda_version": "12.1"}) == {"tensorflow cuda"}


def _run_jax(monkeypatch: pytest.MonkeyPatch, **changed: object) -> dict[str, str]:
    said = {"cuda_runtime": (12060, 12090), "cudnn": (91000, 90800), "cufft": (11300, 11012), **changed}
    versions = types.ModuleType("jax_cuda12_plugin._versions")
    for part, (have, built) in said.items():
        setattr(versions, f"{part}_build_version", lambda built=built: built)
        setattr(versions, f"{part}_get_version", lambda have=have: have if have is not None else 1 / 0)
    jax, jaxlib = types.ModuleType("jax"), types.ModuleType("jaxlib")
    jax.__version__ = jaxlib.__version__ = "0.7.1"
    plugin, plugins = types.ModuleType("jax_plugins.xla_cuda12"), types.ModuleType("jax_plugins")
    for module in (jax, jaxlib, plugins, plugin, versions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "jax_cuda12_plugin", types.ModuleType("jax_cuda12_plugin"))
    findings = verify.Findings()
    lock = {
        **LOCK,
        "cuda": "12.9",
        "frameworks": {"jax": "0.7.1"},
        "packages": {"jaxlib": "0.7.1", "jax-cuda12-plugin": "0.7.1"},
    }
    findings.attempt("jax", lambda: verify.check_jax(findings, lock))
    return _statuses(findings)


def test_jax_with_all_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_run_jax(monkeypatch).values()) == {"pass"}


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"cuda_runtime": (12090, 13000)}, "jax cuda"),
        ({"cudnn": (None, 90800)}, "jax cuDNN"),
        ({"cudnn": (8907, 90800)}, "jax cuDNN"),
        ({"cufft": (None, 11012)}, "jax cuFFT"),
    ],
)
def test_a_library_that_jax_cannot_load_is_a_failure(monkeypatch: pytest.MonkeyPatch, changed, check) -> None:
    assert _run_jax(monkeypatch, **changed)[check] == "fail"


def _run_import(
    site: Path,
    files: dict[str, str],
    *,
    name: str = "my-pkg",
    frameworks: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Install one distribution with these files and return what is said of its import."""
    _install(site, name.replace("-", "_"), "1.5", *requires)
    lines = [f"{name.replace('-', '_')}-1.5.dist-info/METADATA,,"]
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
        lines.append(f"{path},sha256=x,1")
    record = site / f"{name.replace('-', '_')}-1.5.dist-info" / "RECORD"
    record.write_text("\n".join(lines) + "\n", encoding="utf-8")
    lock = site / "lock"
    lock.write_text(
        json.dumps({**LOCK, "packages": {}, "frameworks": dict.fromkeys(frameworks, "1")}), encoding="utf-8"
    )
    words = [sys.executable, "-S", str(IMAGES / "verify.py"), "--packages", "--json", "--lock", str(lock)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([*words, "--import", name], env=environment, capture_output=True, text=True, check=False)
    return next(item for item in json.loads(done.stdout)["findings"] if item["check"] == f"import {name}")


def _import(site: Path, files: dict[str, str], **given: Any) -> tuple[str, str]:
    found = _run_import(site, files, **given)
    return found["status"], found["detail"]


@pytest.mark.parametrize(
    "files",
    [
        {"my_pkg/__init__.py": "", "my_pkg/tests/__init__.py": "1 / 0", "tests/__init__.py": "1 / 0"},
        {"other.py": "", "setup.py": "1 / 0", "_private.py": "1 / 0"},
        {"space/inner/__init__.py": "", "space/inner/deep/__init__.py": "1 / 0"},
        {"space/inner/__init__.py": "", "convert.py": "1 / 0"},
        {"my_pkg/__init__.py": "import sys; print('libcuda.so.1: cannot open shared object file')"},
        {"my_pkg/__init__.py": "class AlreadyExistsError(Exception): pass\nraise AlreadyExistsError"},
        {"my_pkg/__init__.py": "print('W: Could not load dynamic library libnvinfer.so.7; dlerror: none')"},
        {"my_pkg/__init__.py": "", "my_pkg/_imagingtk.cpython-311-x86_64-linux-gnu.so": "needs Tk"},
        {"my_pkg/__init__.py": "import os; assert os.environ['TF_CPP_MIN_LOG_LEVEL']"},
        {"my_pkg/__init__.py": "print('PyTorch was not found. Models will not run, models won\\'t be available.')"},
        {"my_pkg/my_pkg.abi3.so": "loaded in a way of its own", "my_pkg/__init__.py": ""},
        {},
    ],
    ids=[
        "own",
        "other name",
        "namespace",
        "script beside",
        "driver is said",
        "loaded already",
        "optional",
        "part",
        "quiet",
        "no torch",
        "own loader",
        "nothing",
    ],
)
def test_a_distribution_that_imports(tmp_path: Path, files: dict[str, str]) -> None:
    assert _import(tmp_path, files)[0] == "pass"


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"my_pkg/__init__.py": "1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"my_pkg/__init__.py": "import os; os.abort()"}, "signal 6"),
        ({"my_pkg/__init__.py": "print('W: ImportError(\"my_pkg/_C.so: undefined symbol: _ZN3c10\")')"}, "undefined"),
        ({"my_pkg/__init__.py": "", "my_pkg_cuda.abi3.so": "broken"}, "ImportError"),
        ({"my_pkg/__init__.py": "raise ImportError('libcudart.so.11.0: cannot open shared object file')"}, "libcudart"),
        ({"my_pkg/__init__.py": "raise ImportError('libnvinfer.so.8: cannot open shared object file')"}, "libnvinfer"),
        ({"my_pkg/__init__.py": "print('No CUDA GPUs are available'); 1 / 0"}, "ZeroDivisionError"),
        ({"my_pkg/__init__.py": "print('undefined symbol: _ZN'); raise OSError('No CUDA GPUs are available')"}, "_ZN"),
    ],
    ids=["error", "crash", "symbol", "extension beside", "library", "needed", "other error", "symbol first"],
)
def test_a_distribution_that_does_not_import_whole_is_a_failure(
    tmp_path: Path, files: dict[str, str], text: str
) -> None:
    status, detail = _import(tmp_path, files)
    assert status == "fail"
    assert text in detail


@pytest.mark.parametrize("requires", ["torch>=2", "torch==2.1 ; python_version >= '3'"])
def test_the_compiled_parts_of_what_is_built_against_a_framework_are_imported(tmp_path: Path, requires: str) -> None:
    files = {"my_pkg/__init__.py": "", "my_pkg/_C.abi3.so": "broken"}
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    status, detail = _import(tmp_path, files, frameworks=("torch",), requires=(requires,))
    assert (status, detail.partition(":")[0]) == ("fail", "ImportError")


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the fault")
@pytest.mark.parametrize("name", ["vllm", "bitsandbytes"])
def test_an_extra_whose_library_lacks_a_symbol_is_a_failure(tmp_path: Path, name: str) -> None:
    """A wheel of another PyTorch: the library loads, and what it calls is not there."""
    source = tmp_path / "planted.c"
    source.write_text("extern int _ZN3c104cudaE(void);\nint planted(void) { return _ZN3c104cudaE(); }\n")
    library = tmp_path / name / "_C.abi3.so"
    library.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, capture_output=True)
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    code = "import ctypes, os; ctypes.CDLL(os.path.join(os.path.dirname(__file__), '_C.abi3.so'), os.RTLD_NOW)"
    status, detail = _import(tmp_path, {f"{name}/__init__.py": code}, name=name, frameworks=("torch",))
    assert status == "fail"
    assert "undefined symbol: _ZN3c104cudaE" in detail


def test_transformers_that_finds_no_torch_is_a_failure(tmp_path: Path) -> None:
    code = "import importlib.util\ndef is_torch_available(): return importlib.util.find_spec('torch') is not None"
    files = {"transformers/__init__.py": code}
    status, detail = _import(tmp_path / "without", files, name="transformers", frameworks=("torch",))
    assert (status, "cannot use torch" in detail) == ("fail", True)
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "torch.py").write_text("", encoding="utf-8")
    assert _import(tmp_path / "with", files, name="transformers", frameworks=("torch",))[0] == "pass"


def test_the_lock_tells_what_is_compiled_against_its_framework() -> None:
    lock = {**LOCK, "image": {"compiled": ["My_Pkg"]}}
    item = types.SimpleNamespace(requires=["a", "torch; extra == 'x'"])
    assert verify.is_built_against("my-pkg", item, lock)
    assert not verify.is_built_against("my-pkg", item, LOCK)


@pytest.mark.parametrize(
    "text",
    [
        "0 active drivers ([]). There should only be one.",
        "No CUDA GPUs are available",
        "Found no NVIDIA driver on your system.",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
    ],
)
def test_what_cannot_be_imported_without_a_gpu_is_unknown_and_lets_the_image_through(tmp_path: Path, text: str) -> None:
    found = _run_import(tmp_path, {"my_pkg/__init__.py": f"raise RuntimeError({text!r})"})
    assert found["status"] == "unknown"
    assert found["needs_gpu"] is True
    assert found["detail"] == f"needs a GPU to be imported: RuntimeError: {text}"


@pytest.mark.parametrize("needs_gpu", [True, False])
def test_only_what_needs_a_gpu_may_stay_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], needs_gpu: bool
) -> None:
    (tmp_path / "lock").write_text(json.dumps(LOCK), encoding="utf-8")

    def pretend(*_: object) -> list:
        findings = verify.Findings()
        findings.add("python", "pass", "3.11")
        (findings.need_gpu("import x", "y") if needs_gpu else findings.add("import x", "unknown", "y"))
        return findings

    monkeypatch.setattr(verify, "run", pretend)
    assert verify.main(["--lock", str(tmp_path / "lock")]) == (0 if needs_gpu else 6)
    said = capsys.readouterr()
    assert "unknown import x: y" in said.out
    assert ("1 of 2 checks passed, 1 need a GPU" in said.err) is needs_gpu


@pytest.mark.parametrize(
    "code",
    ["def is_torch_available(): return False", "print('Disabling PyTorch because it is too old')"],
    ids=["asked", "said"],
)
def test_a_backend_that_is_switched_off_is_a_failure_where_the_lock_has_it(tmp_path: Path, code: str) -> None:
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    (tmp_path / "without").mkdir()
    assert _import(tmp_path, {"my_pkg/__init__.py": code}, frameworks=("torch",))[0] == "fail"
    assert _import(tmp_path / "without", {"my_pkg/__init__.py": code}, frameworks=("jax",))[0] == "pass"


def test_one_that_is_not_installed_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    findings = verify.Findings()
    verify.check_requested(findings, LOCK, ["gone"])
    assert findings == [{"check": "import gone", "status": "fail", "detail": "is not installed"}]


def test_what_a_lock_was_asked_for_is_imported() -> None:
    lines = [
        "Einops>=0.7",
        "old; python_version < '3'",
        "a @ https://example.org/a;b.whl",
        "new ; python_version > '3'",
    ]
    image = {"user_requirements": lines, "extras": [{"id": "x", "requires": ["jupyterlab>=4,<5"]}]}
    findings = verify.Findings()
    assert verify.find_requested(findings, {**LOCK, "image": image}) == ["Einops", "a", "new", "jupyterlab"]
    assert verify.find_requested(findings, LOCK) == []
    assert findings == []


@pytest.mark.parametrize("line", ["a; nonsense ~~ 'x'", "a; python_version ~= '3'", "=odd"])
def test_a_line_that_cannot_be_read_is_unknown_and_no_traceback(line: str) -> None:
    image = {"user_requirements": [line, "nowhere"]}
    found = verify.run({**LOCK, "frameworks": {}, "packages": {}, "image": image}, "static")
    statuses = _statuses(found)
    assert statuses[f"import {'=odd' if line == '=odd' else 'a'}"] == "unknown"
    assert statuses["import nowhere"] == "fail"


def test_a_lock_whose_lines_are_no_lines_is_a_failure_and_no_traceback() -> None:
    lock = {**LOCK, "frameworks": {}, "packages": {}, "image": {"user_requirements": [1]}}
    assert _statuses(verify.run(lock, "static"))["imports"] == "fail"


def test_the_static_proof_imports_what_the_lock_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = {**LOCK, "frameworks": {}, "packages": {}, "image": {"user_requirements": ["nowhere"]}}
    assert "import nowhere" in _statuses(verify.run(lock, "static"))
    assert "import nowhere" not in _statuses(verify.run(lock, "packages"))


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
        environment.pop("PYTHONPYCACHEPREFIX", None)
        for _ in range(2):  # the second run finds nothing to do
            subprocess.run([sys.executable, str(copy)], cwd=copy.parent, env=environment, check=True)
        cached = {path.relative_to(site): path.read_bytes() for path in site.rglob("*.pyc")}
        assert len(cached) == 9
        assert not any("tests" in path.parts for path in cached)
        assert all(data[4:8] == b"\x01\0\0\0" for data in cached.values())  # hash-based, unchecked
        trees.append(cached)
    assert trees[0] == trees[1]


_ONE_LINE = """\
# deb http://snapshot.mirror.example/archive/debian/20240130T000000Z bullseye main
deb http://mirror.example/debian bullseye main
# deb http://snapshot.mirror.example/archive/debian-security/20240130T000000Z bullseye-security main
deb http://mirror.example/debian-security bullseye-security main
"""
_STANZA = """\
Types: deb
# http://snapshot.mirror.example/archive/debian/20250520T000000Z
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
_UBUNTU = (
    "deb http://mirror.example/ubuntu jammy main\ndeb [arch=amd64] http://mirror.example/ubuntu jammy-updates main\n"
)
_NOBLE = "Types: deb\nURIs: http://mirror.example/ubuntu/\nSuites: noble\n"


@pytest.mark.parametrize(
    ("system", "file", "before", "after"),
    [
        (
            "debian",
            "sources.list",
            _ONE_LINE,
            "deb [check-valid-until=no] http://snapshot.mirror.example/archive/debian/20260501T000000Z bullseye main\n"
            "deb [check-valid-until=no] http://snapshot.mirror.example/archive/debian-security/20260501T000000Z "
            "bullseye-security main\n",
        ),
        (
            "debian",
            "sources.list.d/debian.sources",
            _STANZA,
            "Types: deb\nURIs: http://snapshot.mirror.example/archive/debian/20260501T000000Z\nCheck-Valid-Until: no\n"
            "Suites: bookworm bookworm-updates\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        ),
        (
            "ubuntu",
            "sources.list",
            _UBUNTU,
            "deb [ snapshot=20260501T000000Z] http://mirror.example/ubuntu jammy main\n"
            "deb [arch=amd64 snapshot=20260501T000000Z] http://mirror.example/ubuntu jammy-updates main\n",
        ),
        (
            "ubuntu",
            "sources.list.d/ubuntu.sources",
            _NOBLE,
            "Snapshot: 20260501T000000Z\nTypes: deb\nURIs: http://mirror.example/ubuntu/\nSuites: noble\n",
        ),
    ],
)
def test_sources_are_those_of_a_day(tmp_path: Path, system: str, file: str, before: str, after: str) -> None:
    done = _snapshot(tmp_path, system, {file: before, "sources.list.d/other.list": "deb http://other.example/x ./\n"})
    assert done.returncode == 0, done.stderr
    made = tmp_path / "made"
    assert (made / file).read_text() == after
    assert not (made / "sources.list.d" / "other.list").exists()
    assert (tmp_path / "etc" / "apt" / file).read_text() == before
    assert f'Dir::Etc::SourceParts "{made}/sources.list.d";' in (made / "snapshot.conf").read_text()


@pytest.mark.parametrize("text", ["deb http://mirror.example/debian bookworm main\n", ""])
def test_sources_that_name_no_archive_of_days_are_refused(tmp_path: Path, text: str) -> None:
    done = _snapshot(tmp_path, "debian", {"sources.list": text})
    assert done.returncode == 1
    assert "leave --apt-snapshot out" in done.stderr


def _snapshot(folder: Path, system: str, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    etc = folder / "etc"
    for name, text in files.items():
        path = etc / "apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (etc / "os-release").write_text(f'PRETTY_NAME="x"\nID={system}\n')
    words = ["sh", str(IMAGES / "apt_snapshot.sh"), "20260501T000000Z", str(folder / "made"), str(etc)]
    return subprocess.run(words, capture_output=True, text=True, check=False)
