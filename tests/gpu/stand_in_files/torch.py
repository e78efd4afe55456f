"""A stand-in of PyTorch: what the program's scripts ask of it, answered through libcuda as PyTorch would."""

import ctypes
import json
import os
from pathlib import Path
from types import SimpleNamespace

_FOLDER = Path(__file__).resolve().parents[2]
_FACTS = json.loads((_FOLDER / "facts.json").read_text(encoding="utf-8"))
_NO_DRIVER = (
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from "
    "http://www.nvidia.com/Download/index.aspx"
)
_UNEXPECTED = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
    "might have already set an error? Error {}"
)
_WORDS = {
    100: "No CUDA GPUs are available",
    999: "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
    "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
}


def libraries_in_front(name):
    """Return the files of a name that LD_LIBRARY_PATH puts before the machine's own."""
    found = []
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if Path(folder) == _FOLDER / "nvidia":
            break
        if Path(folder, name).exists():
            found.append(Path(folder, name))
    return found


def _look():
    """Return how many GPUs there are, and in PyTorch's words why there is none."""
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except (OSError, AttributeError):
        return 0, _NO_DRIVER
    if code == 0 and libraries_in_front("libcuda.so.1"):
        return 0, _NO_DRIVER
    return (1, "") if code == 0 else (0, _WORDS.get(code, _UNEXPECTED.format(code)))


def _init():
    count, words = _look()
    if not count:
        raise RuntimeError(words)


def _cudnn_version():
    """Return cuDNN's number; the first one on the loader's path is taken, as PyTorch's check has it."""
    own = tuple(int(part) for part in _FACTS["cudnn"].split(".")[:3])
    for library in libraries_in_front("libcudnn.so.9"):
        numbers = library.resolve().name.partition(".so.")[2].split(".")
        found = tuple(int(part) for part in numbers) if len(numbers) == 3 else (9, 1, 0)
        raise RuntimeError(
            f"cuDNN version incompatibility: PyTorch was compiled  against {own} but found runtime version {found}. "
            "PyTorch already comes bundled with cuDNN. One option to resolving this error is to ensure PyTorch can "
            "find the bundled cuDNN. Looks like your LD_LIBRARY_PATH contains incompatible version of cudnn. Please "
            f"either remove it from the path or install cudnn {own}"
        )
    return own[0] * 10000 + own[1] * 100 + own[2]


class _Tensor:
    """Numbers that nobody looks at: every product is right."""

    def _same(self, *_):
        return self

    reshape = cuda = cpu = __matmul__ = _same


__version__ = _FACTS["torch"]
version = SimpleNamespace(cuda=_FACTS["cuda"])
OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
_C = SimpleNamespace(
    _cuda_getArchFlags=lambda: " ".join(_FACTS["sm"]),
    _cuda_getDeviceCount=lambda: _look()[0],
)
backends = SimpleNamespace(cudnn=SimpleNamespace(version=_cudnn_version, is_available=lambda: True))
cuda = SimpleNamespace(
    init=_init,
    is_available=lambda: bool(_look()[0]),
    device_count=lambda: _look()[0],
    empty_cache=lambda: None,
    synchronize=lambda device=None: None,
    reset_peak_memory_stats=lambda device=None: None,
    max_memory_allocated=lambda device=None: 0,
    get_device_name=lambda device=0: _FACTS["gpu"],
    get_device_capability=lambda device=0: (9, 0),
    get_device_properties=lambda device=0: SimpleNamespace(name=_FACTS["gpu"], total_memory=_FACTS["memory_bytes"]),
    nccl=SimpleNamespace(version=lambda: tuple(int(part) for part in _FACTS["nccl"].split("."))),
    OutOfMemoryError=OutOfMemoryError,
)


def device(type, index=None):  # noqa: A002
    """Return a device."""
    return SimpleNamespace(type=type.partition(":")[0], index=index)


def arange(*_):
    """Return numbers."""
    return _Tensor()


def allclose(*_):
    """Tell that all is well."""
    return True


def get_num_threads():
    """Return how many threads the processor's part uses."""
    return os.cpu_count()


def set_grad_enabled(_):
    """Do nothing: there are no gradients."""
