"""Take nearly all memory of the first GPU through libcuda, say so, and hold it until the standard input ends."""

import ctypes
import sys

LEFT = 512 << 20
SMALLEST = 64 << 20


def main():
    """Take, tell, wait."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for call in (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        lambda: driver.cuCtxSetCurrent(context),
        lambda: driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
    ):
        code = call()
        if code:
            raise SystemExit(f"libcuda answers {code}")
    size = taken = 0
    left = free.value - LEFT
    # What is free need not be in one piece.
    size = left
    while left >= SMALLEST and size >= SMALLEST:
        if driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(min(size, left))):
            size //= 2
            continue
        taken += min(size, left)
        left -= min(size, left)
    print(f"holding {taken >> 20} of {total.value >> 20} MiB", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
