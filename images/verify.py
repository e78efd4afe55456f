"""Prove that this environment is the one its lock describes. Standard library only; runs inside the image.

    python verify.py --static     without a GPU: versions, CUDA, cuDNN, kernels, companions, requirements
    python verify.py --packages   the installed distributions alone; nothing is imported but what --import names
    python verify.py --gpu        on a GPU: the driver, the device, a matrix product

Prints a line per check, or one JSON document with ``--json``. Ends with 0 if every check passed and 6 if one failed or
could not be carried out: what is unknown is not passed. One thing unknown is let through, and said: a package that
cannot be imported without a GPU, since no image is built on one.
"""

import argparse
import ast
import ctypes
import email.parser
import importlib
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
EXIT_FAILED = 6
DRIVER_FILE = "/proc/driver/nvidia/version"
IMPORT_SECONDS = 900
# Runs in an interpreter of its own: what crashes there crashes alone.
PROBE = """
import importlib, sys
frameworks, modules = sys.argv[1].split(), sys.argv[2].split()
for name in frameworks:
    try:
        importlib.import_module(name)
    except Exception:
        pass  # it has a check of its own
for name in modules:
    try:
        importlib.import_module(name)
    except Exception as error:
        # What a framework has loaded by itself refuses to register a second time.
        if type(error).__name__ != "AlreadyExistsError":
            raise
for name in [name for name in modules if name in sys.modules]:
    is_available = getattr(sys.modules[name], "is_torch_available", None)
    if "torch" in frameworks and callable(is_available) and not is_available():
        sys.exit(name + " says that it cannot use torch")
"""
# What a package says that imports and yet lacks a part of itself. The driver's own libraries come with the machine.
DISABLED = re.compile(
    r"undefined symbol|cannot open shared object file|Could not load dynamic library|can't load C\+\+"
    r"|[Dd]isabling (PyTorch|TensorFlow|JAX)|[Mm]odels won't be available",
)
DRIVER_LIBRARY = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+|nvcuvid)\.so")
# Libraries that TensorFlow looks for and does without.
OPTIONAL_LIBRARY = re.compile(r"libnvinfer(_plugin)?\.so")
# What ends an import where there is no driver or no device.
NEEDS_GPU = re.compile(
    DRIVER_LIBRARY.pattern + r"|\d+ active drivers|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|no CUDA-capable device is detected|CUDA driver version is insufficient|CUDA_ERROR_NO_DEVICE"
    r"|NVML Shared Library Not Found"
)
NOT_MODULES = ("test", "tests", "doc", "docs", "example", "examples", "benchmarks", "scripts", "setup", "conftest")


class Findings(list):
    """The outcome of every check, in order."""

    def add(self, check, status, detail):
        """Record one outcome."""
        self.append({"check": check, "status": status, "detail": detail})

    def need_gpu(self, check, detail):
        """Record what only a machine with a GPU can tell; it is unknown and yet no reason to refuse an image."""
        self.append({"check": check, "status": UNKNOWN, "detail": detail, "needs_gpu": True})

    def equal(self, check, found, wanted):
        """Record whether what was found is what the lock says."""
        if found is None:
            self.add(check, UNKNOWN, f"not reported; the lock says {wanted}")
        elif found == wanted:
            self.add(check, PASS, str(found))
        else:
            self.add(check, FAIL, f"found {found}, the lock says {wanted}")

    def attempt(self, check, action):
        """Run one check; an exception is a failure of that check and of no other."""
        try:
            action()
        except Exception as error:  # what a broken installation raises is not known beforehand
            reason = (str(error).strip() or repr(error)).splitlines()[0]
            self.add(check, FAIL, f"{type(error).__name__}: {reason}")


def check_packages(findings, lock):
    """Compare every installed version with the lock, then check what the distributions require of each other."""
    installed = find_distributions()
    wanted = {normalise(name): version for name, version in lock["packages"].items()}
    wrong = []
    for name, version in sorted(wanted.items()):
        have = installed[name].version if name in installed else None
        if have is None:
            wrong.append(f"{name} is missing")
        elif not is_same_version(have, version):
            wrong.append(f"{name} is {have}, the lock says {version}")
    findings.add("packages", FAIL if wrong else PASS, "; ".join(wrong) or f"{len(wanted)} as locked")

    broken, unclear = [], []
    for name, item in sorted(installed.items()):
        for text in item.requires:
            try:
                problem = find_problem(text, installed)
            except ValueError as error:
                unclear.append(f"{name}: {error}")
                continue
            if problem:
                broken.append(f"{name} {item.version} requires {problem}")
    if broken:
        findings.add("requirements", FAIL, "; ".join(broken))
    elif unclear:
        findings.add("requirements", UNKNOWN, "; ".join(unclear))
    else:
        findings.add("requirements", PASS, f"{len(installed)} distributions agree")


class Distribution:
    """An installed distribution: its version and what it requires."""

    def __init__(self, metadata, folder):
        """Take what matters out of a METADATA file and keep the folder it lies in."""
        self.version = metadata["Version"]
        self.requires = metadata.get_all("Requires-Dist") or []
        self.folder = folder

    def files(self):
        """Return the paths of its modules, relative to where it is installed."""
        try:
            lines = (self.folder / "RECORD").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        paths = [line.rsplit(",", 2)[0].strip('"') for line in lines]
        return [path for path in paths if path.endswith((".py", ".so")) and not path.startswith(("..", "/"))]


def find_distributions():
    """Return normalised name → distribution, the first on the path winning, as imports do.

    importlib.metadata would do, but the oldest Python an image can have is without it.
    """
    found = {}
    for folder in sys.path:
        for path in sorted(pathlib.Path(folder).glob("*.dist-info/METADATA")):
            metadata = email.parser.HeaderParser().parsestr(path.read_text(encoding="utf-8", errors="replace"))
            if metadata["Name"] and metadata["Version"]:
                found.setdefault(normalise(metadata["Name"]), Distribution(metadata, path.parent))
    return found


def find_build(lock, framework):
    """Return what a framework was built for: its own line of the lock, or what the lock says of the whole."""
    for build in lock.get("builds") or ():
        if build["framework"] == framework:
            return build
    return lock


def is_common(lock):
    """Tell whether a lock holds only what all of its frameworks serve, which is not a list of any single one."""
    return not lock.get("builds") and len(lock["frameworks"]) > 1


def check_python(findings, lock):
    """Compare the interpreter and the machine with the lock."""
    findings.equal("python", ".".join(platform.python_version_tuple()[:2]), lock["python"].rstrip("t"))
    machine = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[lock["platform"]]
    findings.equal("machine", platform.machine(), machine)


def check_torch(findings, lock):
    """Import torch and its companions and read out what they were built with."""
    import torch

    build = find_build(lock, "torch")
    findings.equal("torch", public(torch.__version__), public(lock["frameworks"]["torch"]))
    if build["cuda"] is None:
        check_without_cuda(findings, "torch", torch.version.cuda)
        findings.attempt("torch numpy", lambda: check_numpy_bridge(findings, torch))
        check_companions(findings, lock)
        return
    findings.equal("torch cuda", torch.version.cuda, build["cuda"])
    if build.get("cudnn"):
        findings.attempt("torch cudnn", lambda: check_cudnn(findings, torch.backends.cudnn.version(), build["cudnn"]))
    if build.get("nccl"):
        findings.attempt("torch nccl", lambda: check_nccl(findings, torch, build["nccl"]))
    findings.attempt("torch kernels", lambda: check_kernels(findings, torch, build, is_common(lock)))
    if "numpy" in lock["packages"]:
        findings.attempt("torch numpy", lambda: check_numpy_bridge(findings, torch))
    check_companions(findings, lock)


def check_companions(findings, lock):
    """Import what was built for torch, and compare the versions."""
    for name in ("torchvision", "torchaudio"):
        if name in lock["packages"]:
            findings.attempt(name, lambda name=name: check_import(findings, name, lock["packages"][name]))


def check_without_cuda(findings, framework, found=None):
    """Tell whether a framework that the lock has without CUDA is: neither built for it nor beside its libraries."""
    beside = sorted(name for name in find_distributions() if re.match(r"nvidia-|jax-cuda", name))
    if found is not None:
        beside.insert(0, f"CUDA {found}")
    findings.add(f"{framework} without CUDA", FAIL if beside else PASS, ", ".join(beside) or "neither built nor beside")


def check_cudnn(findings, found, wanted):
    """Compare cuDNN's own number with the lock.

    cuDNN counts major, minor and patch as one number: 8.9.2 is 8902 and 9.1.0 is 90100.
    """
    parts = [int(part) for part in wanted.split(".")[:3]]
    if len(parts) < 3:
        divisor = 10000 if parts[0] >= 9 else 1000
        findings.equal("torch cudnn", None if found is None else str(found // divisor), str(parts[0]))
        return
    factors = (10000, 100, 1) if parts[0] >= 9 else (1000, 100, 1)
    findings.equal("torch cudnn", found, sum(part * factor for part, factor in zip(parts, factors)))


def check_nccl(findings, torch, wanted):
    """Compare the NCCL inside torch with the lock."""
    found = torch.cuda.nccl.version()
    if isinstance(found, int):
        major, rest = divmod(found, 10000) if found >= 10000 else divmod(found, 1000)
        found = (major, *divmod(rest, 100))
    have = ".".join(map(str, found[:3]))
    findings.equal("torch nccl", have, ".".join(public(wanted).split(".")[:3]))


def check_kernels(findings, torch, build, has_common=False):
    """Compare the architectures torch has kernels for with the lock, unless that has a common list alone."""
    wanted = sorted([*build["sm"], *build["ptx"]])
    flags = torch._C._cuda_getArchFlags()
    have = " ".join(sorted(flags.split())) if flags else None
    if has_common and have:
        findings.add("torch kernels", PASS, f"{have}; the lock has no list of torch's own")
    elif wanted or not have:
        findings.equal("torch kernels", have, " ".join(wanted) or "nothing about them")
    else:
        # Where the facts know no list none was promised; that there is GPU code at all can still be told.
        findings.add("torch kernels", PASS, f"{have}; the lock names none")


def check_requested(findings, lock, names):
    """Import every distribution that was asked for, each in an attempt of its own."""
    installed = find_distributions()
    frameworks = " ".join(name for name in ("torch",) if name in lock["frameworks"])
    for name in sorted(set(map(normalise, names))):
        item = installed.get(name)
        if item is None:
            findings.add(f"import {name}", FAIL, "is not installed")
            continue
        modules = find_modules(name, item.files(), is_built_against(name, item, lock))
        if not modules:
            findings.add(f"import {name}", PASS, f"{item.version} holds no module")
            continue
        problem, needs_gpu = try_modules(frameworks, modules)
        if needs_gpu:
            findings.need_gpu(f"import {name}", f"needs a GPU to be imported: {problem}")
        else:
            findings.add(f"import {name}", FAIL if problem else PASS, problem or f"{item.version}: {' '.join(modules)}")


def is_built_against(name, item, lock):
    """Tell whether a distribution is compiled against a framework of the lock: the lock says so, or its metadata.

    Compiled modules of such a distribution are what breaks when the framework is another one.
    """
    if name in map(normalise, (lock.get("image") or {}).get("compiled") or ()):
        return True
    for text in item.requires:
        head, _, marker = text.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)", head)
        try:
            if match and normalise(match.group(1)) in lock["frameworks"] and (not marker.strip() or holds(marker)):
                return True
        except ValueError:
            continue
    return False


def find_modules(name, files, is_against=False):
    """Return what to import of a distribution: the modules called like it, or all of them.

    Args:
        name: Of the distribution.
        files: Paths of its modules.
        is_against: Whether it is compiled against a framework. Its private compiled modules are then imported as well;
            those of other distributions may be optional parts, such as one for a toolkit that is not there.
    """
    packages, compiled, scripts = {}, [], []
    for path in files:
        parts = path.split("/")
        stem = parts[-1].split(".")[0]
        if re.search(r"\.(cpython-[^/]+|abi3)\.so$", path) and len(parts) < 3:
            compiled.append(".".join([*parts[:-1], stem]))
        elif parts[-1] == "__init__.py" and len(parts) > 1:
            packages[".".join(parts[:-1])] = len(parts) - 2
        elif len(parts) == 1 and path.endswith(".py"):
            scripts.append(stem)
    # Beside a package a file that stands alone is a script, unless it is what the distribution is called after.
    packages.update({stem: 0 for stem in scripts if not packages or normalise(stem) == name})
    depth = min(packages.values(), default=0)
    top = [
        module
        for module, level in packages.items()
        if level == depth and module.split(".")[-1] not in NOT_MODULES and not module.startswith("_")
    ]
    own = [module for module in top if normalise(module) == name] or top
    tops = {module.split(".")[0] for module in own}
    # One that stands alone is a module of the distribution; of those inside a package, the private ones that it loads.
    alone = [module for module in compiled if "." not in module and (is_against or not module.startswith("_"))]
    inside = [module for module in compiled if is_against and module.split(".")[0] in tops and "._" in module]
    return sorted(own) + sorted(set(alone + inside) - set(own))


def try_modules(frameworks, modules):
    """Import modules in an interpreter of their own; return what is wrong, or nothing, and whether a GPU is missing."""
    words = [sys.executable, "-c", PROBE, frameworks, " ".join(modules)]
    environment = dict(os.environ)
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=IMPORT_SECONDS,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"does not import within {IMPORT_SECONDS} seconds", False
    raw = [line.rstrip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [line.strip() for line in raw]
    said = [line for line in lines if DISABLED.search(line) and not DRIVER_LIBRARY.search(line)]
    if done.returncode == 0:
        said = [line for line in said if not OPTIONAL_LIBRARY.search(line)]
    if "torch" not in frameworks.split():
        said = [line for line in said if "PyTorch" not in line]
    if said:
        return said[-1], False
    if done.returncode < 0:
        return f"ends with signal {-done.returncode}", False
    if done.returncode == 0:
        return None, False
    # Without a driver nothing that needs it can be tried; what the exception itself says decides, not what came before.
    raised = find_exception(raw)
    missing = [line for line in raised if NEEDS_GPU.search(line)]
    if missing:
        return missing[-1], True
    return lines[-1] if lines else f"ends with {done.returncode}", False


def find_exception(lines):
    """Return the lines of the exception that ended a program, without those of its traceback."""
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    rest = lines[starts[-1] + 1 :] if starts else lines[-1:]
    while rest and rest[0].startswith(" "):
        rest = rest[1:]
    return [line.strip() for line in rest]


def check_asked(findings, lock):
    """Import what a lock was asked for."""
    check_requested(findings, lock, find_requested(findings, lock))


def find_requested(findings, lock):
    """Return the distributions that a lock was asked for beyond its frameworks, those whose marker holds here.

    A line that cannot be read is unknown.
    """
    image = lock.get("image") or {}
    lines = list(image.get("user_requirements") or ())
    for extra in image.get("extras") or ():
        lines += extra["requires"]
    names = []
    for line in lines:
        # An address may hold a semicolon, and then a marker has a space before its own.
        head = line.partition(";")[0]
        marker = line.partition(" ;" if "@" in head else ";")[2]
        match = re.match(r"\s*([A-Za-z0-9._-]+)", line)
        if match is None:
            findings.add(f"import {line}", UNKNOWN, f"cannot read {line!r}")
            continue
        try:
            if not marker.strip() or holds(marker):
                names.append(match.group(1))
        except ValueError as error:
            findings.add(f"import {match.group(1)}", UNKNOWN, str(error))
    return names


def check_numpy_bridge(findings, torch):
    """Hand an array from numpy to torch and back."""
    import numpy

    total = int(torch.from_numpy(numpy.arange(4)).sum())
    back = torch.ones(2).numpy().sum()
    findings.equal("torch numpy", (total, float(back)), (6, 2.0))


def check_import(findings, name, wanted):
    """Import a companion and compare its version."""
    findings.equal(name, public(importlib.import_module(name).__version__), public(wanted))


def check_tensorflow(findings, lock):
    """Import TensorFlow and read out what it was built with."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    findings.equal("tensorflow", tensorflow.__version__, public(lock["frameworks"]["tensorflow"]))
    build = find_build(lock, "tensorflow")
    if build["cuda"] is None:
        # The wheel is the one that has GPU code too; without the libraries it stays unused.
        check_without_cuda(findings, "tensorflow")
        return
    said = tensorflow.sysconfig.get_build_info()
    findings.equal("tensorflow is a CUDA build", bool(said.get("is_cuda_build")), True)
    findings.equal("tensorflow cuda", cut(said.get("cuda_version"), build["cuda"]), build["cuda"])
    if build.get("cudnn"):
        found = said.get("cudnn_version")
        findings.equal("tensorflow cudnn", found and found.split(".")[0], build["cudnn"].split(".")[0])
    wanted = sorted([*build["sm"], *build["ptx"]])
    if wanted and not is_common(lock):
        have = " ".join(sorted(said.get("cuda_compute_capabilities") or ())) or None
        findings.equal("tensorflow kernels", have, " ".join(wanted))


def check_jax(findings, lock):
    """Import JAX and its CUDA plugin."""
    import jax
    import jaxlib

    build = find_build(lock, "jax")
    findings.equal("jax", jax.__version__, public(lock["frameworks"]["jax"]))
    if "jaxlib" in lock["packages"]:
        findings.equal("jaxlib", public(jaxlib.__version__), public(lock["packages"]["jaxlib"]))
    if build["cuda"] is None:
        check_without_cuda(findings, "jax")
    for name in sorted(lock["packages"]):
        match = re.fullmatch(r"jax-(cuda[0-9]+)-plugin", normalise(name))
        if match:
            plugin = match[1]
            findings.attempt(f"jax_plugins.xla_{plugin}", lambda plugin=plugin: check_plugin(findings, plugin, build))


def check_plugin(findings, name, build):
    """Import the plugin through which JAX reaches the GPU, and ask which libraries it finds.

    JAX goes on without GPUs where one is missing, and says so only on a machine that has some.
    """
    importlib.import_module(f"jax_plugins.xla_{name}")
    findings.add(f"jax_plugins.xla_{name}", PASS, "imports")
    try:
        versions = importlib.import_module(f"jax_{name}_plugin._versions")
    except ModuleNotFoundError:
        return  # early plugins tell nothing
    found = versions.cuda_runtime_build_version() // 1000
    findings.equal("jax cuda", str(found), build["cuda"].split(".")[0])
    for label, part in (("CUDA runtime", "cuda_runtime"), ("cuDNN", "cudnn"), ("cuFFT", "cufft")):
        findings.attempt(f"jax {label}", lambda label=label, part=part: check_library(findings, versions, label, part))


def check_library(findings, versions, label, part):
    """Load a library of JAX and compare its major with that of the one JAX was built with."""
    built, have = getattr(versions, f"{part}_build_version")(), getattr(versions, f"{part}_get_version")()
    divisor = 10000 if part == "cudnn" and built >= 90000 else 1000
    is_same = have // divisor == built // divisor
    findings.add(f"jax {label}", PASS if is_same else FAIL, f"{have}, built with {built}")


def check_gpu(findings, lock):
    """Check the driver, then compute something on every framework's first device."""
    if lock["driver"]["minimum"] is None:
        findings.add("driver", UNKNOWN, "the lock is of a stack without CUDA: there is nothing to do on a GPU")
        return
    findings.attempt("driver", lambda: check_driver(findings, lock["driver"]["minimum"]))
    checks = {
        "torch": lambda: compute_torch(findings, find_build(lock, "torch")["sm"], find_build(lock, "torch")["ptx"]),
        "tensorflow": lambda: compute_tensorflow(findings),
        "jax": lambda: compute_jax(findings),
    }
    for name in lock["frameworks"]:
        findings.attempt(f"{name} gpu", checks[name])


def check_driver(findings, minimum):
    """Compare the kernel's driver with the lock's floor."""
    try:
        head = pathlib.Path(os.environ.get("PROVISION_DRIVER_FILE", DRIVER_FILE)).read_text(encoding="utf-8")
    except OSError as error:
        head = f" {ask_nvml()} "
        if not head.strip():
            findings.add("driver", UNKNOWN, f"no driver is visible: {error.strerror}")
            return
    found = re.search(r"\s(\d+(?:\.\d+)+)\s", head.partition("\n")[0] + " ")
    if not found:
        findings.add("driver", UNKNOWN, "its version cannot be read")
    elif release(found[1]) < release(minimum):
        findings.add("driver", FAIL, f"{found[1]} is older than {minimum}")
    else:
        findings.add("driver", PASS, f"{found[1]}, at least {minimum}")


def ask_nvml():
    """Return the driver's version as its own library tells it, where a sandbox shows no kernel module, else nothing."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        is_told = library.nvmlInit_v2() == 0 and library.nvmlSystemGetDriverVersion(text, len(text)) == 0
    except (OSError, AttributeError):
        return ""
    return text.value.decode("ascii", "replace") if is_told else ""


def compute_torch(findings, sm, ptx):
    """Multiply on the GPU and compare with the processor; the kernels must serve the device."""
    import torch

    count = torch.cuda.device_count()
    findings.add("torch devices", PASS if count else FAIL, str(count))
    for index in range(count):
        major, minor = torch.cuda.get_device_capability(index)
        name = torch.cuda.get_device_name(index)
        served = is_served(major * 10 + minor, sm, ptx)
        findings.add(f"torch kernels for device {index}", PASS if served else FAIL, f"{name}, sm_{major}{minor}")
    if count:
        left = torch.arange(64.0).reshape(8, 8)
        findings.equal("torch product", bool(torch.allclose((left.cuda() @ left.cuda()).cpu(), left @ left)), True)


def compute_tensorflow(findings):
    """Multiply on TensorFlow's first GPU."""
    import tensorflow

    count = len(tensorflow.config.list_physical_devices("GPU"))
    findings.add("tensorflow devices", PASS if count else FAIL, str(count))
    if count:
        with tensorflow.device("/GPU:0"):
            product = tensorflow.linalg.matmul(tensorflow.ones((8, 8)), tensorflow.ones((8, 8)))
        findings.equal("tensorflow product", float(product[0][0]), 8.0)


def compute_jax(findings):
    """Multiply on JAX's first GPU."""
    import jax

    devices = jax.devices("gpu")
    findings.add("jax devices", PASS if devices else FAIL, str(len(devices)))
    with jax.default_device(devices[0]):
        ones = jax.numpy.ones((8, 8))
        findings.equal("jax product", float((ones @ ones)[0][0]), 8.0)


def is_served(capability, sm, ptx):
    """Tell whether a device runs cubins of its own major and a lower or equal minor, or PTX compiled for less."""
    for name in sm:
        number = int(re.search(r"\d+", name)[0])
        if name[-1].isdigit() and number // 10 == capability // 10 and number <= capability:
            return True
        if number == capability:
            return True
    return any(int(re.search(r"\d+", name)[0]) <= capability for name in ptx if name[-1].isdigit())


# Requirements. The packaging library may be absent from an environment, so what metadata needs of it is here.


def find_problem(text, installed):
    """Return what a requirement of an installed distribution lacks, or ``None``.

    Raises:
        ValueError: The requirement cannot be understood.
    """
    head, _, marker = text.partition(";")
    match = re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*(\[[^]]*\])?\s*(@.*|\(?[^()]*\)?)\s*", head)
    if not match:
        raise ValueError(f"cannot read {text!r}")
    if marker.strip() and not holds(marker):
        return None
    name, specifier = match[1], match[3].strip().strip("()")
    item = installed.get(normalise(name))
    if item is None:
        return f"{name}, which is missing"
    if specifier and not specifier.startswith("@") and not satisfies(item.version, specifier):
        return f"{name}{specifier}, but {item.version} is installed"
    return None


def holds(marker):
    """Evaluate an environment marker; no extra counts as asked for."""
    values = {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "extra": "",
    }
    # Two operators of markers are none of Python's; two of Python's that no marker has stand for them.
    pieces = re.split(r"""('[^']*'|"[^"]*")""", marker.strip())
    bare, quoted = pieces[::2], [*pieces[1::2], ""]
    if any("@" in piece or "//" in piece for piece in bare):
        raise ValueError(f"cannot read the marker {marker.strip()!r}")
    try:
        bare = [piece.replace("~=", " @ ").replace("===", " // ") for piece in bare]
        text = "".join(itertools.chain.from_iterable(zip(bare, quoted)))
        return evaluate(ast.parse(text, mode="eval").body, values)
    except (SyntaxError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"cannot read the marker {marker.strip()!r}") from error


def evaluate(node, values):
    """Evaluate the Python expression that a marker is."""
    if isinstance(node, ast.BoolOp):
        results = [evaluate(part, values) for part in node.values]
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if isinstance(node, ast.BinOp):
        sides, operator = (node.left, node.right), type(node.op)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides, operator = (node.left, node.comparators[0]), type(node.ops[0])
    else:
        raise TypeError("neither a comparison nor and/or")
    left, right = (values[side.id] if isinstance(side, ast.Name) else ast.literal_eval(side) for side in sides)
    if operator in (ast.In, ast.NotIn):
        return (left in right) == (operator is ast.In)
    symbols = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
    symbols.update({ast.MatMult: "~=", ast.FloorDiv: "==="})
    is_version = any(isinstance(side, ast.Name) and side.id.endswith("version") for side in sides)
    if is_version and re.match(r"\d", left) and re.match(r"\d", right):
        return satisfies(left, symbols[operator] + right)
    if operator in (ast.Eq, ast.NotEq):
        return (left == right) == (operator is ast.Eq)
    raise TypeError("order of texts")


def satisfies(version, specifier):
    """Tell whether a version lies in a PEP 440 specifier; a local part counts only when the specifier names one."""
    return all(satisfies_clause(version, clause.strip()) for clause in specifier.split(",") if clause.strip())


def satisfies_clause(version, clause):
    """Tell whether a version meets one comparison."""
    match = re.fullmatch(r"(===|~=|==|!=|<=|>=|<|>)\s*(\S+)", clause)
    if not match:
        raise ValueError(f"cannot read {clause!r}")
    operator, wanted = match.groups()
    have = version if "+" in wanted else public(version)
    if wanted.endswith(".*"):
        prefix = release(wanted[:-2])
        return (padded(release(have), len(prefix)) == prefix) == (operator == "==")
    if operator == "~=":
        prefix = release(wanted)[:-1]
        if not prefix:
            raise ValueError(f"cannot read {clause!r}")
        return order(have) >= order(wanted) and padded(release(have), len(prefix)) == prefix
    left, right = order(have), order(wanted)
    return {
        "===": version == wanted,
        "==": left == right,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right and not (is_early(have) and not is_early(wanted) and release(have) == release(wanted)),
        ">": left > right and not (".post" in have and ".post" not in wanted and release(have) == release(wanted)),
    }[operator]


def order(version):
    """Return a key that orders versions as PEP 440 does: dev, alpha, beta, candidate, final, post."""
    match = re.fullmatch(
        r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)[-_.]?(?:(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?"
        r"(?:(?:[-_.]?(?:post|rev|r)[-_.]?(\d*))|-(\d+))?(?:[-_.]?dev[-_.]?(\d*))?(?:\+([a-z0-9._-]+))?",
        version.strip().lower(),
    )
    if not match:
        raise ValueError(f"cannot read the version {version!r}")
    epoch, numbers, phase, phase_number, post, dash_post, dev, local = match.groups()
    parts = [int(part) for part in numbers.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    is_post = post is not None or dash_post is not None
    if phase:
        rank = {"a": 0, "alpha": 0, "b": 1, "beta": 1}.get(phase, 2)
        before = (rank, int(phase_number or 0))
    else:
        before = (-1, 0) if dev is not None and not is_post else (3, 0)
    after = (1, int(post or dash_post or 0)) if is_post else (0, 0)
    development = (0, int(dev or 0)) if dev is not None else (1, 0)
    segments = tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"[._-]", local or "") if part
    )
    return (int(epoch or 0), tuple(parts), before, after, development, segments)


def release(version):
    """Return the release numbers of a version, zeros at the end dropped."""
    numbers = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    if not numbers:
        raise ValueError(f"cannot read the version {version!r}")
    return [int(part) for part in numbers[1].split(".")]


def padded(numbers, length):
    """Return the first ``length`` numbers, zeros where there are fewer."""
    return [number for number, _ in zip(itertools.chain(numbers, itertools.repeat(0)), range(length))]


def is_early(version):
    """Tell whether a version is a pre-release or a development release."""
    return bool(re.search(r"\d[-_.]?(a|b|c|rc|alpha|beta|pre|preview|dev)", public(version)))


def public(version):
    """Return a version without its local part."""
    return version.split("+")[0]


def is_same_version(have, wanted):
    """Tell whether two versions are equal; a local part counts only when the lock names one."""
    return order(have if "+" in wanted else public(have)) == order(wanted)


def cut(version, like):
    """Return as many parts of a version as another one has."""
    return version and ".".join(version.split(".")[: like.count(".") + 1])


def normalise(name):
    """Return a distribution's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(lock, mode, names=None):
    """Carry out the checks of a mode.

    Args:
        lock: The document of provision.lock, or the part of it that the build writes.
        mode: ``static``, ``packages`` or ``gpu``.
        names: Distributions to import; what the lock was asked for unless given.

    Returns:
        One dict a check: ``check``, ``status`` (pass, fail, unknown) and ``detail``; with ``needs_gpu`` where nothing
        but a GPU is missing.
    """
    findings = Findings()
    if mode in ("static", "packages"):
        findings.attempt("python", lambda: check_python(findings, lock))
        findings.attempt("packages", lambda: check_packages(findings, lock))
    if mode == "static":
        checks = {"torch": check_torch, "tensorflow": check_tensorflow, "jax": check_jax}
        for name in lock["frameworks"]:
            findings.attempt(name, lambda name=name: checks[name](findings, lock))
    if names is None and mode == "static":
        findings.attempt("imports", lambda: check_asked(findings, lock))
    elif names:
        findings.attempt("imports", lambda: check_requested(findings, lock, names))
    if mode == "gpu":
        check_gpu(findings, lock)
    return findings


def main(arguments=None):
    """Read the lock, check, print; return the exit status."""
    beside = pathlib.Path(__file__).resolve().with_name("provision.lock")
    parser = argparse.ArgumentParser(description="Prove that this environment is the one its lock describes.")
    modes = parser.add_mutually_exclusive_group()
    for mode, text in (
        ("static", "everything that needs no GPU (the default)"),
        ("packages", "the installed distributions alone"),
        ("gpu", "the driver and the devices"),
    ):
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, help=text)
    parser.add_argument("--lock", type=pathlib.Path, default=beside, help="default: beside this file")
    parser.add_argument(
        "--import", dest="names", nargs="+", metavar="NAME", help="distributions to import; default: those of the lock"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = parser.parse_args(arguments)
    mode = chosen.mode or "static"
    try:
        lock = json.loads(chosen.lock.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"verify: cannot read {chosen.lock}: {error}", file=sys.stderr)
        return EXIT_FAILED
    findings = run(lock, mode, chosen.names)
    passed = [finding for finding in findings if finding["status"] == PASS]
    waiting = [finding for finding in findings if finding.get("needs_gpu")]
    is_ok = bool(passed) and len(passed) + len(waiting) == len(findings)
    if chosen.json:
        print(json.dumps({"mode": mode, "ok": is_ok, "findings": findings}))
    else:
        for finding in findings:
            print(f"{finding['status']:<8}{finding['check']}: {finding['detail']}")
        rest = f", {len(waiting)} need a GPU" if waiting else ""
        print(f"verify: {len(passed)} of {len(findings)} checks passed{rest}", file=sys.stderr)
    return 0 if is_ok else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
