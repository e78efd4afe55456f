"""Make each GPU work through PyTorch and print the outcome as one JSON document; runs on the target.

Products and a convolution are compared with the processor's own result in double precision, copies and a large
product are timed. A test that raises is a failed test; the others go on.
"""

import ctypes
import json
import math
import os
import subprocess
import sys
import time

MARKER = "@provision-payload "
TEXT_MAX = 400
SIDE = 4096
ROWS = 64
COPY_MIB = 256
# Largest error, in units of the standard deviation of an element of the result. Single precision keeps 24 bits of a
# sum, TF32 and half 11 of each factor, bfloat16 8 of the result; each limit leaves a factor of five and more.
LIMITS = {"fp32": 1e-3, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}


def say(error):
    """Return an exception as one line."""
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split()))[:TEXT_MAX]


class NotApplicableError(Exception):
    """A test that does not apply to this GPU."""


class WrongResultError(Exception):
    """A result that is not what it should be."""


class References:
    """Random factors and what the processor makes of them, computed once for all GPUs."""

    def __init__(self, torch):
        """Draw the factors."""
        self.torch = torch
        draw = torch.Generator().manual_seed(20240229)
        self.left = torch.randn(SIDE, SIDE, generator=draw)
        self.right = torch.randn(SIDE, SIDE, generator=draw)
        self.rows = torch.randperm(SIDE, generator=draw)[:ROWS].sort()[0]
        self.image = torch.randn(8, 16, 64, 64, generator=draw)
        self.weight = torch.randn(32, 16, 3, 3, generator=draw)
        self.known = {}

    def product(self, kind):
        """Return some rows of the product of the factors as rounded to a kind of number, in double precision."""
        if kind not in self.known:
            left, right = self.left[self.rows].to(kind).double(), self.right.to(kind).double()
            self.known[kind] = left @ right
        return self.known[kind]

    def convolution(self):
        """Return the convolution in double precision."""
        if "convolution" not in self.known:
            convolve = self.torch.nn.functional.conv2d
            self.known["convolution"] = convolve(self.image.double(), self.weight.double(), padding=1)
        return self.known["convolution"]


class Gpu:
    """One GPU and what it did."""

    def __init__(self, torch, index, references):
        """Keep the device."""
        self.torch = torch
        self.index = index
        self.references = references
        self.device = torch.device("cuda", index)
        self.address = None
        self.seen = {"gpu": index, "name": None, "uuid": None, "tests": {}, "figures": {}}

    def test(self, name, step):
        """Run one test; what it raises becomes its outcome."""
        try:
            step()
            self.seen["tests"][name] = "ok"
        except NotApplicableError as reason:
            self.seen["tests"][name] = f"skipped: {reason}"
        except Exception as error:
            self.seen["tests"][name] = f"failed: {say(error) if not isinstance(error, WrongResultError) else error}"
        return self.seen["tests"][name] == "ok"

    def work(self):
        """Return what was seen after all tests."""
        torch = self.torch
        torch.cuda.set_device(self.device)
        self.identify()
        if not self.test("alloc", self.allocate):
            return self.seen
        self.test("matmul-fp32", lambda: self.multiply("fp32", torch.float32))
        self.test("matmul-tf32", lambda: self.multiply("tf32", torch.float32))
        self.test("matmul-fp16", lambda: self.multiply("fp16", torch.float16))
        self.test("matmul-bf16", lambda: self.multiply("bf16", torch.bfloat16))
        self.test("conv-cudnn", self.convolve)
        self.test("copies", self.copy)
        self.test("gemm-bf16", self.time_products)
        torch.cuda.empty_cache()
        return self.seen

    def identify(self):
        """Note name, uuid and address, which PyTorch's releases tell in different ways and libcuda in one."""
        self.seen["name"] = self.torch.cuda.get_device_name(self.device)
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return
        uuid = (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGetUuid(uuid, self.index) == 0:
            digits = bytes(uuid).hex()
            words = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            self.seen["uuid"] = "GPU-" + "-".join(words)
        address = ctypes.create_string_buffer(64)
        if driver.cuDeviceGetPCIBusId(address, 64, self.index) == 0:
            self.address = address.value.decode()

    def allocate(self):
        """Write and read back memory."""
        values = self.torch.arange(16 << 20, device=self.device, dtype=self.torch.int32)
        total = int(values.sum(dtype=self.torch.int64).item())
        expected = (16 << 20) * ((16 << 20) - 1) // 2
        if total != expected:
            raise WrongResultError(f"memory gives back {total} for {expected}")

    def multiply(self, name, kind):
        """Compare a product with the processor's."""
        torch = self.torch
        if name in ("tf32", "bf16") and torch.cuda.get_device_capability(self.device)[0] < 8:
            raise NotApplicableError(f"this GPU has no {name.upper()}")
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for reduced in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
            if hasattr(torch.backends.cuda.matmul, reduced):
                setattr(torch.backends.cuda.matmul, reduced, False)
        left = self.references.left.to(self.device, kind)
        right = self.references.right.to(self.device, kind)
        result = (left @ right)[self.references.rows.to(self.device)].double().cpu()
        torch.backends.cuda.matmul.allow_tf32 = False
        self.compare(name, result, self.references.product(kind), math.sqrt(SIDE))

    def compare(self, name, result, expected, unit, limit=None):
        """Note the largest error.

        Raises:
            WrongResultError: It is too large, or the result is not finite.
        """
        limit = LIMITS[name] if limit is None else limit
        if not bool(self.torch.isfinite(result).all()):
            raise WrongResultError("the result is not finite")
        error = float((result - expected).abs().max()) / unit
        self.seen["figures"]["error-" + name] = error
        if error > limit:
            raise WrongResultError(f"the largest error is {error:.2g}, allowed are {limit:.2g}")

    def convolve(self):
        """Compare a convolution with the processor's."""
        torch = self.torch
        if not torch.backends.cudnn.is_available():
            raise WrongResultError("PyTorch finds no cuDNN")
        torch.backends.cudnn.allow_tf32 = False
        image, weight = self.references.image.to(self.device), self.references.weight.to(self.device)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            result = torch.nn.functional.conv2d(image, weight, padding=1).double().cpu()
        self.compare("conv", result, self.references.convolution(), math.sqrt(16 * 9), LIMITS["fp32"])

    def seconds(self, step, times):
        """Return how long some repetitions take on the GPU."""
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        step()
        torch.cuda.synchronize(self.device)
        begin.record()
        for _ in range(times):
            step()
        end.record()
        torch.cuda.synchronize(self.device)
        return begin.elapsed_time(end) / 1000

    def copy(self):
        """Time copies from and to pinned memory, and read the link's generation while they run."""
        torch = self.torch
        size = COPY_MIB << 20
        host = torch.empty(size, dtype=torch.uint8).pin_memory()
        there = torch.empty(size, dtype=torch.uint8, device=self.device)
        host.random_(0, 255)
        for name, step in (
            ("h2d_gb_s", lambda: there.copy_(host, non_blocking=True)),
            ("d2h_gb_s", lambda: host.copy_(there, non_blocking=True)),
        ):
            self.seen["figures"][name] = 10 * size / self.seconds(step, 10) / 1e9
        generation = self.generation_under_load(lambda: there.copy_(host, non_blocking=True))
        if generation is not None:
            self.seen["figures"]["pcie_gen_under_load"] = generation
        before = host.clone()
        there.copy_(before)
        if not torch.equal(there.cpu(), before):
            raise WrongResultError("what was copied there and back is not the same")

    def generation_under_load(self, step):
        """Return what nvidia-smi says while copies run, or nothing: an idle link slows down."""
        if self.address is None:
            return None
        fields = ["--query-gpu=pcie.link.gen.current", "--format=csv,noheader"]
        command = ["nvidia-smi", *fields, "-i", self.address]
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            return None
        last = time.monotonic() + 15
        while process.poll() is None and time.monotonic() < last:
            step()
            self.torch.cuda.synchronize(self.device)
        if process.poll() is None:
            process.kill()
            return None
        said = process.communicate()[0].decode("ascii", "replace").strip()
        return float(said) if said.isdigit() else None

    def time_products(self):
        """Time a large product in bfloat16."""
        torch = self.torch
        if torch.cuda.get_device_capability(self.device)[0] < 8:
            raise NotApplicableError("this GPU has no BF16")
        side = 8192
        left = torch.randn(side, side, device=self.device, dtype=torch.bfloat16)
        right = torch.randn(side, side, device=self.device, dtype=torch.bfloat16)
        out = torch.empty_like(left)
        for _ in range(5):
            torch.mm(left, right, out=out)
        times = 30
        took = self.seconds(lambda: torch.mm(left, right, out=out), times)
        self.seen["figures"]["gemm-bf16_tflops"] = 2 * side**3 * times / took / 1e12


def copy_between(torch, count, document):
    """Time copies between each two GPUs and compare what arrives."""
    size = 64 << 20
    for source in range(count):
        for target in range(count):
            if source == target:
                continue
            torch.cuda.set_device(source)
            values = torch.randint(0, 255, (size,), dtype=torch.uint8, device=torch.device("cuda", source))
            there = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", target))
            there.copy_(values)
            for device in (source, target):
                torch.cuda.synchronize(device)
            begin = time.perf_counter()
            for _ in range(8):
                there.copy_(values, non_blocking=True)
            for device in (source, target):
                torch.cuda.synchronize(device)
            took = time.perf_counter() - begin
            document["pairs"].append([source, target, 8 * size / took / 1e9])
            if not torch.equal(there.cpu(), values.cpu()):
                raise WrongResultError(f"what GPU {source} sent to GPU {target} arrived changed")


def work_on(torch, index, references):
    """Return what one GPU did; one that cannot even be opened failed at its first test."""
    try:
        return Gpu(torch, index, references).work()
    except Exception as error:
        return {"gpu": index, "tests": {"alloc": f"failed: {say(error)}"}}


def work():
    """Return the document."""
    document = {"tool": "torch-work", "error": None, "gpus": [], "together": {}, "figures": {}, "pairs": []}
    try:
        import torch

        count = torch.cuda.device_count()
        if count == 0:
            # It raises, and says why.
            torch.cuda.init()
        torch.set_grad_enabled(False)
        references = References(torch)
    except (Exception, SystemExit) as error:
        document["error"] = say(error)
        return document
    if count == 0:
        document["error"] = "PyTorch sees no GPU"
    document["gpus"] = [work_on(torch, index, references) for index in range(count)]
    if count > 1:
        try:
            copy_between(torch, count, document)
            document["together"]["p2p-copy"] = "ok"
        except Exception as error:
            document["together"]["p2p-copy"] = f"failed: {say(error)}"
    return document


if __name__ == "__main__":
    DOCUMENT = work()
    print("\n" + MARKER + json.dumps(DOCUMENT))
    sys.stdout.flush()
    # A framework that cannot shut down well must not turn its answer into a failure.
    os._exit(0)
