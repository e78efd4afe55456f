"""Add two vectors on each GPU through libcuda alone and print the outcome as one JSON document; runs on the target.

It needs no framework and no toolkit: the kernel is a text that the driver compiles for the GPU at hand. So it tells
whether the driver itself works where a framework does not.
"""

import array
import ctypes
import json
import os

MARKER = "@provision-payload "
LENGTH = 1 << 20
THREADS = 256
# The text names an old architecture, which newer ones can run, so that one text serves all GPUs.
LANGUAGE = (6, 0)
ARCHITECTURE = 50
KERNEL = """
.version {major}.{minor}
.target sm_{architecture}
.address_size 64

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{{
    .reg .pred %p1;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd4, %r5, 4;
    add.s64 %rd5, %rd1, %rd4;
    add.s64 %rd6, %rd2, %rd4;
    add.s64 %rd7, %rd3, %rd4;
    cvta.to.global.u64 %rd5, %rd5;
    cvta.to.global.u64 %rd6, %rd6;
    cvta.to.global.u64 %rd7, %rd7;
    ld.global.f32 %f1, [%rd5];
    ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
DONE:
    ret;
}}
"""


class CudaError(Exception):
    """A call of libcuda that did not end with success."""


class Driver:
    """libcuda, each call checked."""

    def __init__(self, library):
        """Keep the loaded library."""
        self.library = library

    def call(self, name, *arguments):
        """Call a function.

        Raises:
            CudaError: It returned something else than success; the message has the name and the number.
        """
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name}: {self.explain(code)}")

    def explain(self, code):
        """Return an error's name, number and words."""
        name, words = ctypes.c_char_p(), ctypes.c_char_p()
        try:
            self.library.cuGetErrorName(code, ctypes.byref(name))
            self.library.cuGetErrorString(code, ctypes.byref(words))
        except AttributeError:
            pass
        texts = [(word.value or b"").decode("utf-8", "replace") for word in (name, words)]
        return "{} ({}): {}".format(texts[0] or "CUDA error", code, texts[1] or "no description")

    def name_of(self, device):
        """Return a device's name."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        return name.value.decode("utf-8", "replace")

    def uuid_of(self, device):
        """Return a device's uuid as nvidia-smi writes it."""
        uuid = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", uuid, device)
        digits = bytes(uuid).hex()
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def compile_kernel(driver):
    """Return the module that the driver made of the kernel.

    Raises:
        CudaError: It cannot be compiled; the message has the compiler's own words.
    """
    text = KERNEL.format(major=LANGUAGE[0], minor=LANGUAGE[1], architecture=ARCHITECTURE).encode() + b"\0"
    log = ctypes.create_string_buffer(4096)
    # CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
    options = (ctypes.c_int * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
    module = ctypes.c_void_p()
    try:
        driver.call("cuModuleLoadDataEx", ctypes.byref(module), text, 2, options, values)
    except CudaError as error:
        words = " ".join(log.value.decode("utf-8", "replace").split())
        raise CudaError("{}{}".format(error, " - " + words if words else "")) from None
    return module


def add_vectors(driver, tests):
    """Run the kernel in the current context; what was reached is written into the tests."""
    first = array.array("f", (float(index % 1000) for index in range(LENGTH)))
    second = array.array("f", (float(index % 77) * 2 for index in range(LENGTH)))
    size = first.itemsize * LENGTH
    pointers = [ctypes.c_uint64() for _ in range(3)]
    for pointer in pointers:
        driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    tests["alloc"] = "ok"
    module = compile_kernel(driver)
    function = ctypes.c_void_p()
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"add")
    for pointer, values in zip(pointers, (first, second)):
        source = ctypes.c_void_p(values.buffer_info()[0])
        driver.call("cuMemcpyHtoD_v2", pointer, source, ctypes.c_size_t(size))
    length = ctypes.c_uint32(LENGTH)
    arguments = [*pointers, length]
    addresses = (ctypes.c_void_p * 4)(*(ctypes.addressof(argument) for argument in arguments))
    blocks = (LENGTH + THREADS - 1) // THREADS
    driver.call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, addresses, None)
    driver.call("cuCtxSynchronize")
    result = array.array("f", bytes(size))
    driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.buffer_info()[0]), pointers[2], ctypes.c_size_t(size))
    wrong = sum(1 for a, b, c in zip(first, second, result) if a + b != c)
    tests["vector-add"] = f"failed: {wrong} of {LENGTH} sums are wrong" if wrong else "ok"
    for pointer in pointers:
        driver.call("cuMemFree_v2", pointer)
    driver.call("cuModuleUnload", module)


def work_on(driver, gpu):
    """Return what one GPU did."""
    seen = {"gpu": gpu, "name": None, "uuid": None, "tests": {}, "figures": {}}
    device, context = ctypes.c_int(), ctypes.c_void_p()
    try:
        driver.call("cuDeviceGet", ctypes.byref(device), gpu)
        seen["name"] = driver.name_of(device)
        seen["uuid"] = driver.uuid_of(device)
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        driver.call("cuCtxSetCurrent", context)
        add_vectors(driver, seen["tests"])
        driver.call("cuDevicePrimaryCtxRelease_v2", device)
    except (CudaError, AttributeError, ValueError) as error:
        missing = "alloc" if "alloc" not in seen["tests"] else "vector-add"
        seen["tests"][missing] = f"failed: {error}"
        seen["tests"].setdefault("vector-add", "failed: nothing could be allocated")
    return seen


def work():
    """Return the document."""
    document = {"tool": "cuda-work", "error": None, "gpus": []}
    try:
        driver = Driver(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        document["error"] = str(error)
        return document
    count = ctypes.c_int()
    try:
        driver.call("cuInit", 0)
        driver.call("cuDeviceGetCount", ctypes.byref(count))
    except (CudaError, AttributeError) as error:
        document["error"] = str(error)
        return document
    document["gpus"] = [work_on(driver, gpu) for gpu in range(count.value)]
    if not document["gpus"]:
        document["error"] = "libcuda sees no GPU"
    return document


if __name__ == "__main__":
    print("\n" + MARKER + json.dumps(work()), flush=True)
    os._exit(0)
