"""Faults that can be made on a healthy GPU machine without harm, each with the cause that doctor must name.

A fault lives in the environment of one process, in a mount namespace of its own, or in the memory that a process of
this suite holds; nothing outlasts it, and no setting of a GPU is touched.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof_process import run, started

__all__ = ["FAULTS", "Fault", "Made", "NotHereError", "Scene"]

PROGRAMS = Path(__file__).resolve().parent / "programs"
_PROGRAM_SECONDS = 90


class NotHereError(Exception):
    """A fault cannot be made on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What faults are made with.

    ``python`` is a Python with PyTorch or ``None``; ``folder`` an empty one that is removed afterwards; ``driver`` the
    version of the driver; ``major`` the major compute capability of the GPU, both ``None`` where they are not known.
    """

    python: str | None
    folder: Path
    driver: str | None
    major: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A fault that is there: variables that are set, words in front of a command, and what a failing program said."""

    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, the diagnosis that is right, and what makes it for as long as it is looked at."""

    id: str
    title: str
    cause: str
    make: Callable[[Scene], object]


def run_program(scene: Scene, name: str, *arguments: str, made: Made | None = None, needs_torch: bool = True) -> str:
    """Return what a program complained of; one that ends well although it should not is an empty text.

    Raises:
        NotHereError: It needs PyTorch, and no Python here has it.
    """
    if needs_torch and scene.python is None:
        raise NotHereError("no Python with PyTorch is here")
    made = made or Made()
    command = [*made.prefix, scene.python or sys.executable, "-B", str(PROGRAMS / name), *arguments]
    done = run(command, _PROGRAM_SECONDS, made.environment, scene.folder)
    if done.is_late:
        raise NotHereError(f"{name} did not end within {_PROGRAM_SECONDS} seconds")
    return done.err if done.code else ""


def in_namespace(*mounts: str) -> tuple[str, ...]:
    """Return the words that run a command among other mounts.

    Raises:
        NotHereError: This user may not make a mount namespace, or one of the mounts is refused.
    """
    prefix = ("unshare", "-m", "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh")
    try:
        tried = run([*prefix, "true"], 20)
    except OSError as error:
        raise NotHereError(f"no mount namespace can be made: {error}") from error
    if tried.code:
        said = tried.err.strip().splitlines()
        raise NotHereError(f"no mount namespace can be made: {said[-1] if said else 'unshare failed'}")
    return prefix


def in_front(folder: Path) -> dict[str, str]:
    """Return LD_LIBRARY_PATH with a folder in front of what is there."""
    rest = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{folder}:{rest}" if rest else str(folder)}


def fake_library(folder: Path, soname: str, version: str = "") -> None:
    """Put a library there, of some version or, as stubs are, of none: the loader opens it, and it holds no function.

    Raises:
        NotHereError: No library that could serve is found.
    """
    places = ("/lib64", "/lib", f"/lib/{os.uname().machine}-linux-gnu", f"/usr/lib/{os.uname().machine}-linux-gnu")
    found = next((path for place in places if (path := Path(place, "libutil.so.1")).exists()), None)
    if found is None:
        raise NotHereError("no small library is here to take the place of another")
    folder.mkdir(parents=True, exist_ok=True)
    if not version:
        shutil.copyfile(found.resolve(), folder / soname)
        return
    real = folder / f"{soname.partition('.so')[0]}.so.{version}"
    shutil.copyfile(found.resolve(), real)
    (folder / soname).symlink_to(real.name)


def hide_by_variable(value: str) -> Callable[[Scene], Made]:
    """Return what hides the GPUs from programs by CUDA_VISIBLE_DEVICES."""
    return lambda _: Made(environment={"CUDA_VISIBLE_DEVICES": value})


def put_old_libcuda_first(scene: Scene) -> Made:
    """Let the loader find a libcuda of an older branch before the driver's own."""
    if scene.driver is None:
        raise NotHereError("the version of the driver is not known")
    folder = scene.folder / "old"
    fake_library(folder, "libcuda.so.1", f"{int(scene.driver.partition('.')[0]) - 45}.54.03")
    return Made(environment=in_front(folder))


def put_stub_first(scene: Scene) -> Made:
    """Let the loader find the stub of libcuda, which is for linking, as a copied Dockerfile does."""
    folder = scene.folder / "lib64" / "stubs"
    fake_library(folder, "libcuda.so.1")
    return Made(environment=in_front(folder))


def put_other_nvml_first(scene: Scene) -> Made:
    """Let nvidia-smi load an NVML of another version than the kernel's driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotHereError("no C compiler is here to make a library of another version")
    folder = scene.folder / "nvml"
    folder.mkdir()
    real = folder / "libnvidia-ml.so.535.104.05"
    words = [compiler, "-shared", "-fPIC", "-o", str(real), str(PROGRAMS / "nvml_mismatch.c")]
    words.append("-Wl,-soname,libnvidia-ml.so.1")
    done = run(words, 60)
    if done.code:
        raise NotHereError(f"the library of another version does not compile: {done.err[-200:]}")
    (folder / "libnvidia-ml.so.1").symlink_to(real.name)
    return Made(environment=in_front(folder))


def put_other_cudnn_first(scene: Scene) -> Made:
    """Let the loader find another cuDNN than that of the framework's wheels."""
    folder = scene.folder / "cudnn"
    fake_library(folder, "libcudnn.so.9", "9.0.0")
    made = Made(environment=in_front(folder))
    # PyTorch's own path to its cuDNN may win; then nothing fails yet, and doctor sees the danger in the environment.
    return Made(environment=made.environment, text=run_program(scene, "convolve.py", made=made))


def hide_node(scene: Scene) -> Made:
    """Put an ordinary file in the place of every GPU's device node, in a namespace."""
    nodes = [path for path in sorted(Path("/dev").glob("nvidia[0-9]*")) if path.is_char_device()]
    if not nodes:
        raise NotHereError("no GPU has a device node here")
    file = scene.folder / "no-device"
    file.touch()
    return Made(prefix=in_namespace(*(f"mount --bind '{file}' {node}" for node in nodes)))


def shrink_shared_memory(scene: Scene) -> Made:
    """Leave one MiB of shared memory, as little as a container may have, in a namespace."""
    made = Made(prefix=in_namespace("mount -t tmpfs -o size=1m tmpfs /dev/shm"))
    text = run_program(scene, "share_memory.py", made=made)
    if not text:
        raise NotHereError("a data loader gets by with one MiB of shared memory here")
    return Made(prefix=made.prefix, text=text)


@contextmanager
def fill_memory(scene: Scene) -> Iterator[Made]:
    """Let another process hold nearly all memory of the first GPU while a program asks for four GiB."""
    command = [scene.python or sys.executable, "-B", str(PROGRAMS / "fill_memory.py")]
    with started(command, folder=scene.folder) as holder:
        assert holder.stdout is not None
        is_ready, _, _ = select.select([holder.stdout], [], [], _PROGRAM_SECONDS)
        line = holder.stdout.readline().decode("utf-8", "replace") if is_ready else ""
        if not line.startswith("holding"):
            raise NotHereError(f"the memory cannot be filled: {line.strip() or 'libcuda refuses, or does not answer'}")
        text = run_program(scene, "need_memory.py")
        if not text:
            raise NotHereError(f"four GiB were free all the same; the other process was {line.strip()}")
        yield Made(text=text)


def load_foreign_code(scene: Scene) -> Made:
    """Load machine code of an architecture that this GPU cannot run."""
    if scene.major is None:
        raise NotHereError("the compute capability of the GPU is not known")
    target = "sm_75" if scene.major != 7 else "sm_80"
    code = scene.folder / "foreign.cubin"
    compiler = _find_ptxas(scene.python)
    if compiler is None:
        raise NotHereError("neither nvcc nor Triton is here, which bring the assembler ptxas")
    words = [compiler, f"-arch={target}", "-o", str(code), str(PROGRAMS / "nothing.ptx")]
    done = run(words, 60)
    if done.code:
        raise NotHereError(f"ptxas compiles nothing for {target}: {done.err[-200:]}")
    text = run_program(scene, "load_code.py", str(code), needs_torch=False)
    if not text:
        raise NotHereError(f"this GPU runs machine code of {target}")
    return Made(text=text)


def _find_ptxas(python: str | None) -> str | None:
    found = shutil.which("ptxas", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if found or python is None:
        return found
    code = "import triton, pathlib; print(pathlib.Path(triton.__file__).parent / 'backends/nvidia/bin/ptxas')"
    done = run([python, "-c", code], 60)
    path = done.out.strip()
    return path if done.code == 0 and os.access(path, os.X_OK) else None


_UNKNOWN_UUID = "GPU-00000000-0000-0000-0000-000000000000"

FAULTS = (
    Fault(
        id="hidden-empty",
        title="CUDA_VISIBLE_DEVICES is empty",
        cause="cuda.hidden-devices",
        make=hide_by_variable(""),
    ),
    Fault(
        id="hidden-number",
        title="CUDA_VISIBLE_DEVICES names a GPU that is not there",
        cause="cuda.bad-ordinal",
        make=hide_by_variable("99"),
    ),
    Fault(
        id="hidden-uuid",
        title="CUDA_VISIBLE_DEVICES names another machine's GPU",
        cause="cuda.hidden-devices",
        make=hide_by_variable(_UNKNOWN_UUID),
    ),
    Fault(
        id="old-libcuda",
        title="LD_LIBRARY_PATH leads to an older libcuda",
        cause="cuda.driver-library-conflict",
        make=put_old_libcuda_first,
    ),
    Fault(
        id="stub-libcuda",
        title="LD_LIBRARY_PATH leads to the stub of libcuda",
        cause="cuda.stub-library",
        make=put_stub_first,
    ),
    Fault(
        id="other-nvml",
        title="nvidia-smi's library is of another version than the kernel's driver",
        cause="driver.mismatch",
        make=put_other_nvml_first,
    ),
    Fault(
        id="other-cudnn",
        title="LD_LIBRARY_PATH leads to another cuDNN",
        cause="cudnn.conflict",
        make=put_other_cudnn_first,
    ),
    Fault(
        id="no-node",
        title="the device node of the GPU is hidden",
        cause="driver.device-nodes",
        make=hide_node,
    ),
    Fault(
        id="small-shm",
        title="/dev/shm has one MiB",
        cause="container.shm",
        make=shrink_shared_memory,
    ),
    Fault(
        id="full-memory",
        title="another process holds the memory of the GPU",
        cause="cuda.out-of-memory",
        make=fill_memory,
    ),
    Fault(
        id="foreign-code",
        title="a program holds no code for this GPU",
        cause="cuda.no-kernel-image",
        make=load_foreign_code,
    ),
)
