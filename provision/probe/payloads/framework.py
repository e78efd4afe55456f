"""Import one framework and print what it says of itself as one JSON document; runs on the target.

usage: framework.py torch|tensorflow|jax

What goes wrong becomes a field: ``error`` where the import failed, ``reason`` where it sees no GPU. No GPU is made to
work here, and JAX is kept from taking the memory of all of them.
"""

import json
import logging
import os
import re
import sys
import tempfile
import warnings

MARKER = "@provision-payload "
TEXT_MAX = 600


def say(error):
    """Return an exception as one line: its class and its words."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:TEXT_MAX]


def dotted(number, is_cudnn=False):
    """Return a version that a library gives as one number in dots."""
    number = int(number)
    if is_cudnn:
        # Three digits below the major version until 8, four from 9 on.
        unit = 10000 if number >= 90000 else 1000
        return f"{number // unit}.{number % unit // 100}.{number % 100}"
    return f"{number // 1000}.{number % 1000 // 10}"


class Spoken:
    """What C++ code writes to the standard error while this is open; all of it is passed on at the end."""

    def __enter__(self):
        """Begin to listen."""
        self.text = ""
        try:
            self.file = tempfile.TemporaryFile()
        except OSError:
            self.file = None
            return self
        sys.stderr.flush()
        self.real = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        """Give the standard error back."""
        if self.file is None:
            return
        sys.stderr.flush()
        os.dup2(self.real, 2)
        os.close(self.real)
        self.file.seek(0)
        said = self.file.read(1 << 20)
        self.file.close()
        os.write(2, said[:8192])
        self.text = said.decode("utf-8", "replace")

    def about_gpus(self):
        """Return the lines that speak of GPUs, joined."""
        # The severity, time and thread before the words differ between two runs that say the same.
        lines = [re.sub(r"^[IWEF]\d{4} [\d:.]+ +\d+ ", "", line.strip()) for line in self.text.splitlines()]
        lines = [line for line in lines if re.search(r"GPU|CUDA|cuda|dlopen|libcu", line)]
        return "; ".join(lines)[:TEXT_MAX] or None


class Remarks(logging.Handler):
    """What JAX logs of plugins that it could not use: its own error only says that there is no such backend."""

    def __init__(self):
        """Begin to listen."""
        super().__init__(logging.WARNING)
        self.lines = []
        logging.getLogger("jax").addHandler(self)

    def emit(self, record):
        """Keep the words of an exception, or of the record where there is none."""
        error = record.exc_info[1] if record.exc_info else None
        line = say(error) if error else " ".join(record.getMessage().split())
        if line not in self.lines:
            self.lines.append(line)


def visible():
    """Return a remark on CUDA_VISIBLE_DEVICES where it is set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f" (CUDA_VISIBLE_DEVICES is {value[:80]!r})"


def ask(document, key, question):
    """Put the answer to a question into the document; what it raises goes to the warnings."""
    try:
        document[key] = question()
    except Exception as error:
        document["warnings"].append(f"{key}: {say(error)}")


def ask_torch(document):
    """Fill in what PyTorch says."""
    import torch

    document["version"] = str(torch.__version__)
    document["cuda"] = torch.version.cuda
    document["is_cuda_build"] = torch.version.cuda is not None
    document["is_available"] = False
    document["device_count"] = 0
    if not document["is_cuda_build"]:
        document["reason"] = "this build of PyTorch ({}) has no CUDA".format(document["version"])
        return
    ask(document, "cudnn", lambda: dotted(torch.backends.cudnn.version(), is_cudnn=True))
    ask(document, "nccl", lambda: torch_nccl(torch))
    ask(document, "targets", lambda: str(torch._C._cuda_getArchFlags() or "").split())
    ask(document, "is_available", lambda: bool(torch.cuda.is_available()))
    ask(document, "device_count", lambda: int(torch.cuda.device_count()))
    if document["is_available"]:
        devices = range(document["device_count"])
        ask(document, "names", lambda: [torch.cuda.get_device_name(device) for device in devices])
        ask(
            document,
            "capabilities",
            lambda: ["{}.{}".format(*torch.cuda.get_device_capability(device)) for device in devices],
        )
        return
    document["reason"] = torch_reason(torch) + visible()


def torch_nccl(torch):
    """Return NCCL's version in dots."""
    version = torch.cuda.nccl.version()
    if isinstance(version, int):
        unit = 10000 if version >= 10000 else 1000
        return f"{version // unit}.{version % unit // 100}.{version % 100}"
    return ".".join(str(part) for part in version)


def torch_reason(torch):
    """Return in PyTorch's own words why it sees no GPU."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch._C._cuda_getDeviceCount()
        except Exception as error:
            return say(error)
        try:
            torch.cuda.init()
        except Exception as error:
            return say(error)
    return "; ".join(str(warning.message) for warning in caught)[:TEXT_MAX] or "it sees no device and gives no reason"


def ask_tensorflow(document):
    """Fill in what TensorFlow says."""
    import tensorflow as tf

    document["version"] = str(tf.__version__)
    build = dict(tf.sysconfig.get_build_info())
    document["is_cuda_build"] = bool(build.get("is_cuda_build"))
    document["cuda"] = build.get("cuda_version")
    document["cudnn"] = build.get("cudnn_version")
    document["targets"] = list(build.get("cuda_compute_capabilities") or ())
    devices = list(tf.config.list_physical_devices("GPU"))
    document["device_count"] = len(devices)
    document["is_available"] = bool(devices)
    details = [tf.config.experimental.get_device_details(device) for device in devices]
    document["names"] = [str(detail.get("device_name", "")) for detail in details]
    document["capabilities"] = [".".join(map(str, detail.get("compute_capability", ()))) for detail in details]
    if not document["is_cuda_build"]:
        document["reason"] = "this build of TensorFlow ({}) has no CUDA".format(document["version"])


def ask_jax(document):
    """Fill in what JAX says."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    remarks = Remarks()
    import jax

    document["version"] = str(jax.__version__)
    versions = None
    try:
        from jax._src.lib import cuda_versions as versions
    except ImportError as error:
        document["warnings"].append(say(error))
    document["is_cuda_build"] = versions is not None
    if versions is not None:
        ask(document, "cuda", lambda: dotted(versions.cuda_runtime_build_version()))
        ask(document, "cudnn", lambda: dotted(versions.cudnn_build_version(), is_cudnn=True))
    document["is_available"] = False
    document["device_count"] = 0
    try:
        devices = list(jax.devices("gpu"))
    except RuntimeError as error:
        document["reason"] = jax_reason(jax, document, remarks, error) + visible()
        return
    document["is_available"] = bool(devices)
    document["device_count"] = len(devices)
    document["names"] = [str(device.device_kind) for device in devices]
    document["capabilities"] = [str(getattr(device, "compute_capability", "")) for device in devices]


def jax_reason(jax, document, remarks, error):
    """Return in JAX's own words why it sees no GPU, the deepest first."""
    lines = list(remarks.lines)
    try:
        # "gpu" stands for several backends, so that its error names the reason of none.
        jax.devices("cuda")
    except RuntimeError as deeper:
        if "failed to initialize" in str(deeper):
            lines.append(say(deeper))
    if not lines and not document["is_cuda_build"]:
        return "this installation of JAX ({}) has no CUDA plugin".format(document["version"])
    return "; ".join([*lines, say(error)])[:TEXT_MAX]


ASK = {"torch": ask_torch, "tensorflow": ask_tensorflow, "jax": ask_jax}


def main():
    """Print the document."""
    name = sys.argv[1]
    document = {"name": name, "version": None, "error": None, "is_available": None, "reason": None, "warnings": []}
    with Spoken() as spoken, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ASK[name](document)
        except (Exception, SystemExit) as error:
            document["error"] = say(error)
    if document["is_available"] is False and not document["reason"]:
        document["reason"] = (spoken.about_gpus() or "it sees no device and gives no reason") + visible()
    for warning in caught:
        text = " ".join(str(warning.message).split())[:TEXT_MAX]
        is_about_use = issubclass(warning.category, (DeprecationWarning, ImportWarning, ResourceWarning))
        if text not in document["warnings"] and not is_about_use:
            document["warnings"].append(text)
    document["warnings"] = document["warnings"][:20]
    print("\n" + MARKER + json.dumps(document))
    sys.stdout.flush()
    # A framework that cannot shut down well must not turn its answer into a failure.
    os._exit(0)


if __name__ == "__main__":
    main()
