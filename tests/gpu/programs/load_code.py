"""Load machine code from a file on the first GPU through libcuda; what libcuda says of it is the standard error.

usage: load_code.py FILE
"""

import ctypes
import sys
from pathlib import Path


def main():
    """Load it."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    code = Path(sys.argv[1]).read_bytes()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuModuleLoadData", (ctypes.byref(module), code + b"\0")),
    ):
        number = getattr(driver, name)(*arguments)
        if number:
            words, text = ctypes.c_char_p(), ctypes.c_char_p()
            driver.cuGetErrorName(number, ctypes.byref(words))
            driver.cuGetErrorString(number, ctypes.byref(text))
            said = f"{(words.value or b'').decode()} ({number}): {(text.value or b'').decode()}"
            raise SystemExit(f"{name}: {said}")
    print("ok")


if __name__ == "__main__":
    main()
