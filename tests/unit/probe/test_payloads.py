"""The scripts that run on targets: with frameworks and drivers that stand in for the real ones."""

from __future__ import annotations

import array
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from provision.probe import compose
from provision.probe.parse.frameworks import Framework, GpuWork, PythonEnvironment, WorkOnGpu
from provision.records import fields_of

PAYLOADS = Path(compose.__file__).with_name("payloads")
MARKER = "@provision-payload "


def document_of(text: str) -> dict:
    lines = [line for line in text.splitlines() if line.startswith(MARKER)]
    assert len(lines) == 1
    return json.loads(lines[0][len(MARKER) :])


def run(name: str, *arguments: str, folder: Path | None = None, **environment: str) -> dict:
    """Run a script as the collector does, with a folder of stand-in modules first on the path."""
    done = subprocess.run(
        [sys.executable, "-B", str(PAYLOADS / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder or ""), **environment},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return document_of(done.stdout)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"payload_{name}", PAYLOADS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")


@pytest.mark.parametrize("path", sorted(PAYLOADS.glob("*.py")), ids=lambda path: path.name)
def test_scripts_keep_to_the_grammar_of_old_interpreters(path: Path) -> None:
    import ast

    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))


# ------------------------------------------------------------------------------------------------------ environment


def test_distributions_are_named_and_duplicates_told(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name in [
        (first, "torch-2.1.2+cu121.dist-info"),
        (first, "NVIDIA_cudnn.cu12-8.9.2.26.dist-info"),
        (first, "numpy-1.26.4.dist-info"),
        (first, "numpy-2.0.0.dist-info"),
        (second, "torch-2.1.2+cu121.dist-info"),
        (second, "jax-0.4.30.dist-info"),
    ]:
        write(folder / name / "METADATA", "Name: whatever\n")
    (first / "~orch-2.0.0.dist-info").mkdir()
    (first / "gone-1.0.dist-info").mkdir()
    write(second / "old_style-1.5-py3.8.egg-info", "Name: old-style\n")
    document = run("environment", PYTHONPATH=f"{first}:{second}")
    assert set(document) == set(fields_of(PythonEnvironment))
    assert document["executable"] == sys.executable
    assert document["version"] == ".".join(map(str, sys.version_info[:3]))
    packages = document["packages"]
    assert packages["torch"] == "2.1.2+cu121"
    assert packages["nvidia-cudnn-cu12"] == "8.9.2.26"
    assert packages["old-style"] == "1.5"
    assert packages["jax"] == "0.4.30"
    assert "gone" not in packages
    assert "orch" not in packages
    assert "numpy" in document["duplicates"]
    assert "torch" not in document["duplicates"]


# -------------------------------------------------------------------------------------------------------- framework

TORCH = """
    import types, warnings
    __version__ = "{version}"
    version = types.SimpleNamespace(cuda={cuda!r})
    print("a library speaks")
    def count():
        {count}
    class cuda:
        nccl = types.SimpleNamespace(version=lambda: (2, 18, 1))
        @staticmethod
        def is_available():
            try:
                return count() > 0
            except RuntimeError:
                return False
        @staticmethod
        def device_count():
            try:
                return count()
            except RuntimeError:
                return 0
        @staticmethod
        def init():
            count()
        @staticmethod
        def get_device_name(device):
            return "GPU " + str(device)
        @staticmethod
        def get_device_capability(device):
            return (9, 0)
    backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: {cudnn}))
    _C = types.SimpleNamespace(_cuda_getDeviceCount=count, _cuda_getArchFlags=lambda: "sm_80 sm_90 compute_90")
"""


def torch_in(folder: Path, *, version: str = "2.1.2+cu121", cuda: str | None = "12.1", count: str, cudnn: str = "8902"):
    write(folder / "torch.py", textwrap.dedent(TORCH).format(version=version, cuda=cuda, count=count, cudnn=cudnn))


def test_torch_with_gpus(tmp_path: Path) -> None:
    torch_in(tmp_path, count="return 2")
    document = run("framework", "torch", folder=tmp_path)
    assert set(document) <= set(fields_of(Framework))
    assert document == {
        "name": "torch",
        "version": "2.1.2+cu121",
        "error": None,
        "is_available": True,
        "reason": None,
        "is_cuda_build": True,
        "cuda": "12.1",
        "cudnn": "8.9.2",
        "nccl": "2.18.1",
        "device_count": 2,
        "names": ["GPU 0", "GPU 1"],
        "capabilities": ["9.0", "9.0"],
        "targets": ["sm_80", "sm_90", "compute_90"],
        "warnings": [],
    }


def test_torch_says_why_it_sees_no_gpu(tmp_path: Path) -> None:
    words = "The NVIDIA driver on your system is too old (found version 11040)."
    torch_in(tmp_path, count=f'raise RuntimeError("{words}")')
    document = run("framework", "torch", folder=tmp_path, CUDA_VISIBLE_DEVICES="-1")
    assert document["is_available"] is False
    assert document["device_count"] == 0
    assert document["reason"] == f"RuntimeError: {words} (CUDA_VISIBLE_DEVICES is '-1')"


def test_torch_that_only_warns_is_quoted(tmp_path: Path) -> None:
    torch_in(tmp_path, count='warnings.warn("CUDA initialization: unknown error"); return 0')
    document = run("framework", "torch", folder=tmp_path)
    assert document["reason"].startswith("CUDA initialization: unknown error")


def test_torch_without_cuda_is_told_from_torch_without_gpu(tmp_path: Path) -> None:
    torch_in(tmp_path, version="2.1.2+cpu", cuda=None, count="return 0")
    document = run("framework", "torch", folder=tmp_path)
    assert document["is_cuda_build"] is False
    assert document["is_available"] is False
    assert "2.1.2+cpu" in document["reason"]


def test_torch_of_which_a_part_is_broken_tells_the_rest(tmp_path: Path) -> None:
    torch_in(tmp_path, count="return 1", cudnn='(_ for _ in ()).throw(RuntimeError("cuDNN version incompatibility"))')
    document = run("framework", "torch", folder=tmp_path)
    assert document["is_available"] is True
    assert "cudnn" not in document
    assert document["warnings"] == ["cudnn: RuntimeError: cuDNN version incompatibility"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(
            "import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'", id="no"
        ),
        pytest.param(
            "raise ImportError('libcudnn.so.8: cannot open shared object file')",
            "ImportError: libcudnn.so.8: cannot open shared object file",
            id="library",
        ),
        pytest.param("raise SystemExit(3)", "SystemExit: 3", id="exit"),
    ],
)
@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_an_import_that_fails_is_a_field(tmp_path: Path, name: str, line: str, error: str) -> None:
    write(tmp_path / f"{name}.py", line + "\n")
    document = run("framework", name, folder=tmp_path)
    assert document["error"] == error
    assert document["is_available"] is None


def test_tensorflow_is_asked(tmp_path: Path) -> None:
    write(
        tmp_path / "tensorflow.py",
        """
        import os, types
        __version__ = "2.16.1"
        os.write(2, b"Cannot dlopen some GPU libraries. Skipping registering GPU devices...\\n")
        build = {"is_cuda_build": True, "cuda_version": "12.3", "cudnn_version": "8"}
        build["cuda_compute_capabilities"] = ["sm_90"]
        sysconfig = types.SimpleNamespace(get_build_info=lambda: build)
        config = types.SimpleNamespace(list_physical_devices=lambda kind: [], experimental=types.SimpleNamespace())
        """,
    )
    document = run("framework", "tensorflow", folder=tmp_path)
    assert (document["cuda"], document["cudnn"], document["targets"]) == ("12.3", "8", ["sm_90"])
    assert document["is_available"] is False
    assert document["reason"].startswith("Cannot dlopen some GPU libraries")


def test_the_reason_of_tensorflow_is_the_same_in_two_runs(tmp_path: Path) -> None:
    words = "cuda_platform.cc:52] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    write(
        tmp_path / "tensorflow.py",
        f"""
        import os, types
        __version__ = "2.21.0"
        os.write(2, b"E0000 00:00:1795383601.102397    1825 {words}\\n")
        sysconfig = types.SimpleNamespace(get_build_info=lambda: {{"is_cuda_build": True}})
        config = types.SimpleNamespace(list_physical_devices=lambda kind: [], experimental=types.SimpleNamespace())
        """,
    )
    assert run("framework", "tensorflow", folder=tmp_path)["reason"] == words


JAX_WITHOUT_GPU = """
    import logging
    __version__ = "0.10.2"
    def devices(kind):
        logger = logging.getLogger("jax._src.xla_bridge")
        if kind == "cuda":
            raise RuntimeError({deeper!r})
        try:
            {plugin}
        except RuntimeError:
            logger.exception("Jax plugin configuration error: Exception when calling %s.initialize()", "xla_cuda12")
        raise RuntimeError("Unknown backend: 'gpu'")
"""


@pytest.mark.parametrize(
    ("plugin", "deeper", "versions", "reason"),
    [
        pytest.param(
            "raise RuntimeError('operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE')",
            "Unknown backend cuda",
            True,
            "RuntimeError: operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE; RuntimeError: Unknown backend: 'gpu'",
            id="plugin",
        ),
        pytest.param(
            "pass",
            "Backend 'cuda' failed to initialize: no room",
            True,
            "RuntimeError: Backend 'cuda' failed to initialize: no room; RuntimeError: Unknown backend: 'gpu'",
            id="backend",
        ),
        pytest.param("pass", "Unknown backend cuda", True, "RuntimeError: Unknown backend: 'gpu'", id="mute"),
        pytest.param(
            "pass",
            "Unknown backend cuda",
            False,
            "this installation of JAX (0.10.2) has no CUDA plugin",
            id="processor",
        ),
    ],
)
def test_jax_says_why_it_sees_no_gpu(tmp_path: Path, plugin: str, deeper: str, versions: bool, reason: str) -> None:
    write(tmp_path / "jax" / "__init__.py", textwrap.dedent(JAX_WITHOUT_GPU).format(plugin=plugin, deeper=deeper))
    write(tmp_path / "jax" / "_src" / "__init__.py", "")
    stand_in = "types.SimpleNamespace(cuda_runtime_build_version=lambda: 12090, cudnn_build_version=lambda: 90800)"
    text = f"import types\ncuda_versions = {stand_in if versions else None}\n"
    write(tmp_path / "jax" / "_src" / "lib" / "__init__.py", text)
    document = run("framework", "jax", folder=tmp_path)
    assert document["is_cuda_build"] is versions
    assert document["is_available"] is False
    assert document["reason"] == reason


def test_jax_is_asked_and_kept_from_taking_all_memory(tmp_path: Path) -> None:
    write(
        tmp_path / "jax" / "__init__.py",
        """
        import os, types
        __version__ = "0.4.30"
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
        def devices(kind):
            return [types.SimpleNamespace(device_kind="NVIDIA L4", compute_capability="8.9")]
        """,
    )
    write(tmp_path / "jax" / "_src" / "__init__.py", "")
    write(
        tmp_path / "jax" / "_src" / "lib" / "__init__.py",
        """
        import types
        cuda_versions = types.SimpleNamespace(
            cuda_runtime_build_version=lambda: 12030, cudnn_build_version=lambda: 90100
        )
        """,
    )
    document = run("framework", "jax", folder=tmp_path)
    assert document["error"] is None
    assert (document["cuda"], document["cudnn"]) == ("12.3", "9.1.0")
    assert (document["is_available"], document["names"], document["capabilities"]) == (True, ["NVIDIA L4"], ["8.9"])


# --------------------------------------------------------------------------------------------------------- cuda-work


class FakeCuda:
    """libcuda over the memory of this process: one function for each call of the script."""

    def __init__(self, *, init: int = 0, alloc: int = 0, load: int = 0, add: float = 0.0, count: int = 1) -> None:
        self.codes = {"cuInit": init, "cuMemAlloc_v2": alloc, "cuModuleLoadDataEx": load}
        self.add = add
        self.count = count
        self.memory: dict[int, ctypes.Array] = {}

    def __getattr__(self, name: str):
        own = {"cuMemAlloc_v2": self.allocate, "cuMemcpyHtoD_v2": self.write, "cuMemcpyDtoH_v2": self.read}
        own |= {"cuLaunchKernel": self.launch, "cuGetErrorName": self.error_name, "cuGetErrorString": self.error_text}
        own |= {"cuDeviceGetCount": self.devices, "cuDeviceGetName": self.name, "cuDeviceGetUuid": self.uuid}

        def call(*arguments):
            code = self.codes.get(name, 0)
            if code == 0 and name in own:
                own[name](*arguments)
            return code

        return call

    def devices(self, number) -> None:
        number._obj.value = self.count

    def name(self, buffer, *_) -> None:
        buffer.value = b"NVIDIA Imaginary"

    def uuid(self, buffer, _) -> None:
        for index in range(16):
            buffer[index] = index

    def error_name(self, code, pointer) -> None:
        pointer._obj.value = b"CUDA_ERROR_SYSTEM_NOT_READY"

    def error_text(self, code, pointer) -> None:
        pointer._obj.value = b"system not yet initialized"

    def allocate(self, pointer, size) -> None:
        memory = (ctypes.c_char * size.value)()
        pointer._obj.value = ctypes.addressof(memory)
        self.memory[pointer._obj.value] = memory

    def write(self, pointer, source, size) -> None:
        ctypes.memmove(pointer.value, source, size.value)

    def read(self, target, pointer, size) -> None:
        ctypes.memmove(target, pointer.value, size.value)

    def launch(self, function, blocks, _y, _z, threads, *rest) -> None:
        addresses = rest[5 - 1]
        first, second, third = (ctypes.c_uint64.from_address(addresses[index]).value for index in range(3))
        length = ctypes.c_uint32.from_address(addresses[3]).value
        assert blocks * threads >= length
        a, b = (array.array("f", ctypes.string_at(address, 4 * length)) for address in (first, second))
        sums = array.array("f", (x + y for x, y in zip(a, b, strict=True)))
        sums[17] += self.add
        ctypes.memmove(third, sums.tobytes(), 4 * length)


@pytest.fixture
def cuda_work(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("cuda_work")
    monkeypatch.setattr(module, "LENGTH", 5000)
    return module


def work_with(module: ModuleType, monkeypatch: pytest.MonkeyPatch, **options: float) -> dict:
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: FakeCuda(**options))
    return module.work()


def test_vectors_are_added_on_each_gpu(cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    document = work_with(cuda_work, monkeypatch, count=2)
    assert set(document) <= set(fields_of(GpuWork))
    assert document["error"] is None
    assert [gpu["gpu"] for gpu in document["gpus"]] == [0, 1]
    for gpu in document["gpus"]:
        assert set(gpu) <= set(fields_of(WorkOnGpu))
        assert gpu["tests"] == {"alloc": "ok", "vector-add": "ok"}
        assert gpu["name"] == "NVIDIA Imaginary"
        assert gpu["uuid"] == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_wrong_sum_is_a_failure(cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = work_with(cuda_work, monkeypatch, add=1.0)["gpus"][0]
    assert gpu["tests"]["vector-add"] == "failed: 1 of 5000 sums are wrong"


@pytest.mark.parametrize(
    ("options", "test", "call"),
    [
        pytest.param({"alloc": 2}, "alloc", "cuMemAlloc_v2", id="memory"),
        pytest.param({"load": 209}, "vector-add", "cuModuleLoadDataEx", id="compile"),
    ],
)
def test_a_call_that_fails_is_named(
    cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch, options: dict[str, int], test: str, call: str
) -> None:
    tests = work_with(cuda_work, monkeypatch, **options)["gpus"][0]["tests"]
    assert tests[test].startswith(f"failed: {call}: CUDA_ERROR_SYSTEM_NOT_READY ({next(iter(options.values()))})")
    assert tests["vector-add"].startswith("failed: ")


def test_a_driver_that_does_not_start_is_an_error_with_name_and_number(
    cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = work_with(cuda_work, monkeypatch, init=802)
    assert document["error"] == "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802): system not yet initialized"
    assert document["gpus"] == []


def test_no_gpu_is_an_error_and_not_an_empty_success(cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_with(cuda_work, monkeypatch, count=0)["error"] == "libcuda sees no GPU"


def test_a_machine_without_libcuda_says_so(cuda_work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cuda_work.ctypes, "CDLL", refuse)
    assert cuda_work.work()["error"] == "libcuda.so.1: cannot open shared object file"


# ------------------------------------------------------------------------------------------- torch-work, torch-nccl


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("torch_work", ()), ("torch_nccl", ("local",)), ("torch_nccl", ("local", "gloo"))],
    ids=["work", "nccl", "gloo"],
)
@pytest.mark.parametrize(
    "line", ["raise ImportError('libtorch_cuda.so')", "raise SystemExit(1)"], ids=["error", "exit"]
)
def test_work_without_a_framework_is_an_error(tmp_path: Path, name: str, arguments: tuple[str, ...], line: str) -> None:
    write(tmp_path / "torch.py", line + "\n")
    document = run(name, *arguments, folder=tmp_path)
    assert document["error"].split(":")[0] in ("ImportError", "SystemExit")
    assert document.get("gpus", []) == []
    assert document["together"] == {}


def test_work_without_a_gpu_is_an_error(tmp_path: Path) -> None:
    torch_in(tmp_path, count='raise RuntimeError("no driver")')
    for name, arguments in (("torch_work", ()), ("torch_nccl", ("local",))):
        assert run(name, *arguments, folder=tmp_path)["error"] == "RuntimeError: no driver"


def test_one_gpu_has_nobody_to_add_with(tmp_path: Path) -> None:
    torch_in(tmp_path, count="return 1")
    assert run("torch_nccl", "local", folder=tmp_path)["together"] == {"allreduce": "skipped: there is one GPU"}


def test_ranks_that_do_not_answer_are_a_failure(tmp_path: Path) -> None:
    # The stand-in counts two GPUs and knows no collectives.
    torch_in(tmp_path, count="return 2")
    said = run("torch_nccl", "local", folder=tmp_path)["together"]["allreduce"]
    assert said.startswith("failed: GPU 0: ")
    assert "GPU 1: " in said


def test_a_pair_needs_to_know_its_partner() -> None:
    assert "MASTER_ADDR" in run("torch_nccl", "pair", "gloo")["error"]
