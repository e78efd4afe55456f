"""Every rule has a fact, is silent on healthy machines, and is the first answer to its own messages.

The messages are the well-known ones, as people paste them: one line or a few, written here for the purpose.
"""

from __future__ import annotations

import re
import re._constants as opcodes
import re._parser as parser
from pathlib import Path
from types import ModuleType

import machines
import pytest

from provision.doctor import rules
from provision.doctor.case import Case
from provision.doctor.engine import diagnose, rule_of
from provision.doctor.message import Message
from provision.doctor.sign import CONFIDENCES, Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()
IDS = tuple(MATRIX.diagnoses)

CORPUS: dict[str, tuple[str, ...]] = {
    "driver.device-nodes": (
        'runtime spec devices: error gathering device information while adding custom device "/dev/nvidia-uvm-tools"'
        ": lstat /dev/nvidia-uvm-tools: no such file or directory",
        "NVIDIA: could not open the device file /dev/nvidia0 (No such file or directory).",
        'openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = -1 ENOENT (No such file or directory)',
        'error gathering device information while adding custom device "/dev/nvidia3": No such file or directory',
        "nvidia-container-cli: mount error: stat failed: /dev/nvidia-modeset: no such file or directory",
    ),
    "gpu.failed-test": (
        "17 of 1048576 sums are wrong",
        "| Memory                    | Fail - GPU: 3                                  |",
        "| Targeted Stress           | Fail - GPU: 3                                  |",
        "the loss jumps on this host only, we suspect silent data corruption",
    ),
    "nccl.iommu": (
        "BOOT_IMAGE=/boot/vmlinuz-6.8.0-87-generic root=/dev/sda1 ro quiet intel_iommu=on",
        "[ 81.2] DMAR: [DMA Write NO_PASID] Request device [5d:00.0] fault addr 0xf7a00000 [fault reason 0x05]",
        "[ 81.2] nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0023 address=0xf0000 flags=0x0]",
    ),
    "nccl.slow": (
        "busbw is 18 instead of 180 GB/s inside one node",
        "the bus bandwidth of eight GPUs is 40, and should be 400",
        "our all-reduce is ten times slower than on the other nodes",
        "NCCL reaches 18 GB/s instead of 180",
    ),
    "driver.mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
        "[ 99.1] NVRM: API mismatch: the client has the version 550.54.15, but",
        "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
        'level=INFO msg="unable to load NVML management library, nvml init failure: 18"',
        "nvml: NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    ),
    "driver.stale-initramfs": (
        "nvidia/535.104.05, 6.8.0-49-generic, x86_64: installed\nnvidia/550.54.15, 6.8.0-49-generic, x86_64: installed",
        "the old module is still in the initramfs",
    ),
    "driver.not-built": (
        "insmod: ERROR: could not insert module nvidia.ko: Invalid module format",
        "ERROR: NVIDIA driver is not loaded",
        '(EE) Failed to load module "nvidia" (module does not exist, 0)',
        "modprobe: ERROR: could not insert 'nvidia': Invalid argument",
        "(EE) NVIDIA: Failed to initialize the NVIDIA kernel module.",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed.",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-49-generic",
        "modprobe: ERROR: could not insert 'nvidia': No such file or directory",
        "pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded",
        "modprobe: ERROR: could not insert 'nvidia': Exec format error",
        "modprobe: FATAL: Module nvidia not found.",
        "nvidia: version magic '5.15.0-91-generic SMP mod_unload modversions ' should be '5.15.0-94-generic",
        "nvidia-persistenced: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist",
        "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/6.8.0-40-generic",
        "nvidia: Unknown symbol drm_gem_object_free (err -2)",
    ),
    "driver.secure-boot": (
        "ERROR: nvidia-installer cannot sign nvidia.ko without the `sign-file` utility.",
        "ERROR: Failed to sign the linked kernel module.",
        "Loading of unsigned module is rejected",
        "ERROR: The kernel module failed to load, because it was not signed by a key that is trusted by the kernel.",
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "insmod: ERROR: could not insert module ./kernel-open/nvidia.ko: Required key not available",
        "[ 5.1] Lockdown: modprobe: nvidia.ko: Loading of unsigned module is rejected",
        "systemd-modules-load[312]: Failed to insert module 'nvidia_drm': Key was rejected by service",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        "modprobe: ERROR: could not insert 'nvidia': Operation not permitted",
        "kernel: Loading of module with unavailable key is rejected",
        "ERROR: The kernel module failed to load. Secure boot is enabled on this system, so this is likely because",
    ),
    "driver.nouveau": (
        "[ 6.2] NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
        "[ 6.2] NVRM: GPU 0000:01:00.0 is already bound to NovaCore.",
        "[ 6.2] NVRM: The NVIDIA probe routine was not called for 1 device(s).\n"
        "NVRM: nouveau, rivafb, nvidiafb or rivatv",
        "[ 5.6] nouveau 0000:01:00.0: bus: MMIO write of 8000012c FAULT at 10eb14 [ IBUS ]",
        "[ 5.6] nouveau: probe of 0000:01:00.0 failed with error -12",
        "ERROR: The Nouveau kernel driver is currently in use by your system.",
        "\tKernel driver in use: nouveau",
        "nouveau              2306048  4",
        "NVRM: Try unloading the conflicting kernel module (and/or reconfigure your kernel without the "
        "conflicting driver(s))",
    ),
    "driver.gsp-firmware": (
        "[ 9.1] NVRM: failed to wait for bar firewall to lower",
        "[ 9.1] NVRM: gpuHandleSanityCheckRegReadError_GM107: Possible bad register read",
        "[ 7.1] nvidia 0000:18:00.0: Direct firmware load for nvidia/550.54.15/gsp_ga10x.bin failed with error -2",
        "[ 7.2] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x40:1860)",
        "[ 7.2] NVRM: Cannot initialize GSP firmware RM",
        "NVRM: rm_init_adapter(0) failed",
        "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
    ),
    "pci.bar-space": (
        "[ 9.1] NVRM: No address space to allocate resized BAR1.",
        "[ 3.3] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "[ 3.3] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:18:00.0)",
    ),
    "gpu.lost": (
        "[ 9.1] NVRM: A GPU crash dump has been created. If possible, please run",
        "Unable to determine the device handle for GPU0000:5D:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU",
        "[ 8123.4] NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.",
        "The GPU has fallen off the bus and is not responding to commands.",
        "nvml: NVML_ERROR_GPU_IS_LOST",
    ),
    "pci.d3cold": ("[ 4.4] nvidia 0000:5d:00.0: Unable to change power state from D3cold to D0, device inaccessible",),
    "xid.79": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ),
    "xid.48": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit "
        "error has been detected",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    "xid.63": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 63, pid=4242, name=python3, Row Remapper: New row marked for "
        "remapping, reset gpu to activate.",
    ),
    "xid.64": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 64, pid=4242, name=python3, Row Remapper: Failed to write",
        "        Remapping Failure Occurred        : Yes",
    ),
    "xid.94": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 94, pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    ),
    "xid.95": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2). "
        "RST: Yes, D-RST: No",
    ),
    "xid.92": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
    ),
    "xid.nvlink": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected "
        "on link 6",
    ),
    "xid.gsp-hang": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 119, pid=4242, name=nvidia-smi, Timeout after 6s of waiting for "
        "RPC response from GPU0 GSP!",
    ),
    "xid.109": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 109, pid=4242, name=python3, Ch 00000008, errorString CTX SWITCH "
        "TIMEOUT",
    ),
    "xid.application": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS",
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 13, pid=4242, name=python3, Graphics Exception: ESR 0x504730=0x20",
    ),
    "xid.45": ("[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 45, pid=4242, name=python3, Ch 00000010",),
    "xid.microcontroller": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 62, pid='<unknown>', name=<unknown>, 0a5c(2d50) 00000000 00000000",
    ),
    "xid.54": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 54, pid='<unknown>', name=<unknown>, Auxiliary power not connected",
    ),
    "xid.154": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset"
        " Required)",
    ),
    "xid.unrecoverable": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 140, pid='<unknown>', name=<unknown>, Unrecovered ECC Error",
    ),
    "xid.other": (
        "[ 8123.4] NVRM: Xid (PCI:0000:5d:00): 32, pid=4242, name=python3, Channel ID 00000008 intr0 00040000",
    ),
    "gpu.thermal-slowdown": (
        "        HW Thermal Slowdown               : Active",
        "        HW Slowdown                       : Active",
        "<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>",
        "<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>",
    ),
    "pci.width": (
        "[ 2.2] pci 0000:5d:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at "
        "0000:5c:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
        "\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)",
    ),
    "gpu.ecc-off": ("ECC mode is disabled on GPU 3", "<current_ecc>Disabled</current_ecc>"),
    "pci.aer": (
        "[ 99.9] pcieport 0000:5c:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
        "[ 99.9] pcieport 0000:5c:01.0: AER: Uncorrectable (Fatal) error message received from 0000:5d:00.0",
    ),
    "gpu.persistence-off": (
        "Persistence mode is disabled on this device",
        "    Persistence Mode                      : Disabled",
        "the first CUDA call takes 12 seconds, later ones are fast",
        "nvidia-smi takes about 10 s on this host",
    ),
    "gpu.reset-refused": (
        "The following GPUs could not be reset:",
        "GPU 00000000:18:00.0 is currently in use: In use by another client",
        "GPU 00000000:18:00.0 could not be reset because it's being used by one or more processes",
        "Unable to reset this GPU because it's being used by some other process",
        "The following GPUs could not be reset: the device is currently being used by one or more other processes",
    ),
    "driver.hung": (
        "nvidia-smi did not answer within 20 seconds",
        "[ 9000.1] INFO: task nvidia-smi:4242 blocked for more than 120 seconds.",
    ),
    "gpu.missing": (
        "[ 9.1] NVRM: No NVIDIA PCI devices found.",
        "No devices were found",
        "[ 8.1] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "[ 8.1] NVRM: None of the NVIDIA devices were initialized.",
        "[ 8.1] nvidia: probe of 0000:5d:00.0 failed with error -1",
        "NVRM: Can't find an IRQ for your NVIDIA card!",
        "NVRM: No NVIDIA GPU found.",
    ),
    "cuda.driver-too-old": (
        "Detected driver version 470.82.01. Minimum required driver version: 525.60.13",
        "Your current NVIDIA GPU driver version is not supported. Required: driver version >= 580 (CUDA >= 13.0)",
        "UserWarning: CUDA driver version 11.2 does not support this CUDA runtime 12.0",
        "RuntimeError: PTX was compiled with an unsupported toolchain",
        "NCCL WARN CUDA Driver version found is 11040. Minimum requirement is 12020",
        "numba.cuda.cudadrv.error.CudaDriverError: Driver missing function: cuLinkCreate_v2",
        'level=WARN msg="old CUDA driver detected - please upgrade to a newer driver for best performance"',
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
        "driver",
        "CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "ImportError: /venv/sgl_kernel/common_ops.abi3.so: undefined symbol: cuGreenCtxStreamCreate",
        "cudaErrorInsufficientDriver: CUDA driver version is insufficient",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        "[hevc_nvenc @ 0x5581] Driver does not support the required nvenc API version. Required: 12.1 Found: 12.0",
        "Minimum required Nvidia driver is 570.0 or newer",
        "Unable to load /usr/lib/libcuda.so.418.74 library: /usr/lib/libcuda.so.418.74: undefined symbol:"
        " cuCtxCreate_v3",
        "ERROR: This container was built for NVIDIA Driver Release 535.86 or later, but version 470.82.01"
        " was detected and compatibility mode is UNAVAILABLE.",
        "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.4; current version is '8.2'",
        "CUDA failure 222",
        "cudaErrorUnsupportedPtxVersion",
        "cuTENSOR error: CUTENSOR_STATUS_INSUFFICIENT_DRIVER",
    ),
    "cuda.no-kernel-image": (
        "CUDA error : ggml-cuda.cu was compiled for: 520",
        "This kernel only supports sm120.",
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.",
        "Found GPU0 Tesla K80 which is of cuda capability 3.7.",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "cudaErrorNoKernelImageForDevice",
        "Unable to fix the error: no kernel image is available for execution",
        "RuntimeError: CUDA error: invalid device function",
        "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
        "FATAL: kernel `fmha_cutlassF_f16_aligned_64x64_rf_sm80` is for sm80-sm100, but was built for sm37",
        "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. CUDA"
        " kernels will be jit-compiled from PTX",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "the extension was compiled for sm_80, but your GPU has compute capability 12.0",
        "RuntimeError: CUDA error: named symbol not found",
        "cudaLaunchKernel failed with error code 209",
        "ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA arch 520.",
        "Mismatched GPU Architecture: The installed PaddlePaddle package was compiled for 80, but your "
        "current GPU is 61.",
        "No compiled cutlass_scaled_mm for a compute capability less than CUDA device capability: 121",
        "Error: CUDA binary kernel for this graphics card compute capability (12.0) not found.",
        "Current region was compiled for: NVIDIA Tesla GPU sm70",
    ),
    "torch.cpu-build": (
        "_pytorch_select           0.1                       cpu_0",
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        "RuntimeError: PyTorch was compiled without CUDA support",
        "RuntimeError: CUDA is not available. Please switch to a GPU device.",
        "AssertionError: Torch not compiled with CUDA enabled",
        "torch==2.4.1+cpu",
        "CUDA used to build PyTorch: None",
        "This TensorFlow binary is not built with CUDA",
        "    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.1.0+cpu)",
        ">>> torch.__version__ '1.9.0+cpu'",
        "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
    ),
    "cuda.fabric-not-ready": (
        "nv-fabricmanager: failed to initialize NVSwitch devices",
        "fabricmanager.log: Failed to start NVSwitch fabric",
        "fabric manager NVSwitch driver version 535.104 does not match",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY",
        "the fabric manager is not running on this host",
        "fabric manager NVIDIA GPU driver interface version 535.104.05 don't match with driver version "
        "550.54.15. Please update with matching NVIDIA driver package.",
        "cuda driver library init failure: 802",
    ),
    "cuda.uvm": (
        "CUDA fails to initialize after resuming from suspend",
        "cu->cuInit(0) failed -> CUDA_ERROR_NOT_INITIALIZED: initialization",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
        "env variable"
        " CUDA_VISIBLE_DEVICES after program start.",
        "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",
        "cuInit returned 999",
        "RuntimeError: CUDA error: unknown error",
        'level=INFO msg="Unable to load cudart library libcuda.so.575.57.08: cuda driver library init failure: 3"',
        "CUDA error 999: cudaErrorUnknown",
        "ggml_cuda_init: failed to initialize CUDA: unknown error",
        "cuda driver library init failure: 999",
        "cuda runtime error (30) : unknown error at THCGeneral.cpp:74",
        "cudaGetDeviceCount returned 3",
    ),
    "cuda.hidden-devices": (
        "RuntimeError: GPU is required to quantize or run quantize model.",
        'level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"',
        "ValueError: invalid literal for int() with base 10: 'NoDevFiles'",
        "RuntimeError: No CUDA GPUs are available",
        "CUDA error: no CUDA-capable device is detected",
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE",
        "CUDA_VISIBLE_DEVICES=-1",
        "cuInit(0) returned 100",
        "CUDA error 100",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
        "cuda driver library init failure: 100",
        "RuntimeError: Failed to infer device type",
        "But your machine only has: []",
        'exec: "nvidia-smi": executable file not found in $PATH: unknown',
        "RuntimeError: Unable to proceed, no GPU resources available",
        "ValueError: only 0 Devices available, 2 requested. Exiting.",
        "    arch_list[-1] += '+PTX'",
        "openmm.OpenMMException: No compatible CUDA device is available",
    ),
    "cuda.bad-ordinal": (
        "ERROR: not enough cuda devices: 1",
        "AssertionError: num_gpus must be less than or equal to the number of available GPUs",
        "ValueError: 8 GPUs required but 4 found",
        "IndexError: CUDA device index out of range",
        "RuntimeError: CUDA error: invalid device ordinal",
        "CUDA_ERROR_INVALID_DEVICE",
        "cudaSetDevice(3) returned 101",
        "Error 101: device",
        "ValueError: device 'cuda:3' is not available",
        "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        "ValueError: World size (2) is larger than the number of available GPUs (1) in this node.",
        "Tensor parallel size (4) cannot be larger than the number of available GPUs (2).",
        "You requested gpu: [0, 1] but your machine only has: [0]",
        "Invalid argument: instance group llama3_0 of model llama3 specifies invalid or unsupported gpu id 2.",
    ),
    "cuda.device-order": (
        "WARNING Detected different devices in the system: NVIDIA GeForce RTX 3090, NVIDIA GeForce GTX 1080 Ti."
        " Please make sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID` to avoid unexpected behavior.",
        "CUDA_DEVICE_ORDER is FASTEST_FIRST",
        "the order of devices in PyTorch differs from nvidia-smi",
        "nvidia-smi numbers the GPUs in another order, which does not match CUDA's",
    ),
    "cudnn.conflict": (
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found runtime "
        "version"
        " (8, 7, 0).",
        "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.2.4.",
        "Loaded runtime CuDNN library: 7201 (compatibility version 7200) but source was compiled with 7004",
        "/opt/lib/libcudnn_ops.so.9: undefined symbol: _ZN5cudnn7fatbinE, version libcudnn_graph.so.9",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "RuntimeError: GET was unable to find an engine to execute this computation",
        "Check failed: status == CUDNN_STATUS_SUCCESS (3 vs. 0)  CUDNN_STATUS_BAD_PARAM",
        "[TRT] TensorRT was linked against cuDNN 8.9.0 but loaded cuDNN 8.8.1",
        "RuntimeError: No execution plans support the graph.",
        "Outdated cuDNN installation found.",
        "The installed Paddle is compiled with CUDNN 7.6, but CUDNN version in your machine is 7.3, which may cause",
    ),
    "cuda.no-driver-library": (
        'thread main panicked: Unable to dynamically load the "cuda" shared library - searched for library names',
        "CUDA.jl did not successfully initialize, and is not usable.",
        'Unable to find cuda lib under the names ["cuda", "nvcuda"]. Please open GitHub issue.',
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "Could not load dynamic library 'libcuda.so.1'; dlerror: file not found",
        "libcuda.so could not be found",
        "failed call to cuInit: UNKNOWN ERROR (303)",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        'Unable to dynamically load the "cuda" shared library: failed to dlopen libcuda.so.1',
        "| NVIDIA-SMI 535.129.03   Driver Version: 535.129.03   CUDA Version: ERR!      |",
        "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
        "OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        "numba.cuda.cudadrv.error.CudaSupportError: CUDA driver library cannot be found.",
    ),
    "cuda.out-of-memory": (
        "ValueError: Free memory on device (3.2/23.6 GiB) on startup is less than desired GPU memory utilization (0.9)",
        "RuntimeError: No executable batch size found, reached zero.",
        "Not enough GPU memory to place the DAG",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of"
        " which 1.20 GiB is free. Including non-PyTorch memory, this process has 3.10 GiB memory in use.",
        "CUDA error: out of memory",
        "failed to allocate 2.0G: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 13000.00 MiB on device 0: cudaMalloc "
        "failed: out of memory",
        "ResourceExhaustedError: OOM when allocating tensor with shape[32,512,512,3]",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: cuda_memory_resource.hpp",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 8",
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
        "NCCL WARN Cuda failure 2 'out of memory'",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "InternalError: Dst tensor is not initialized.",
        'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830',
        "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:66",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
        "misc/alloc.h NCCL WARN Failed to CUDA malloc 10485760 bytes",
        "ERROR: Out of GPU memory trying to allocate 1.000 GiB",
    ),
    "cuda.profiling-denied": (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    ),
    "cuda.nvcc-mismatch": (
        "RuntimeError: ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch (%s).', "
        "'11.3', '12.8')",
        "RuntimeError: FlashAttention is only supported on CUDA 11.6 and above.",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch "
        "(12.4).",
        "The detected CUDA version (12.2) has a minor version mismatch with the version that was used to compile "
        "PyTorch",
        "Exception: >- DeepSpeed Op Builder: Installed CUDA version 12.0 does not match the version torch was compiled "
        "with 11.8, unable to compile cuda/cpp extensions without a matching cuda version.",
        "RuntimeError: Cuda extensions are being compiled with a version of Cuda that does not match the "
        "version used to compile Pytorch binaries.",
    ),
    "mig.no-utilization": (
        "DCGM_FI_DEV_GPU_UTIL is missing for every instance",
        "utilization.gpu [%], [N/A]",
        "MIG is on and the GPU utilization is N/A",
    ),
    "gpu.unified-memory": (
        "| N/A   40C    P8              4W /  N/A  | Not Supported          |      0%      Default |",
        "NVIDIA GB10, memory: [N/A]",
        "memory.total [MiB], [Not Supported]",
        "Orin (nvgpu): memory usage Memory N/A",
        "nvmlDeviceGetMemoryInfo failed: NVML_ERROR_NOT_SUPPORTED",
    ),
    "container.cgroup-reload": ("Failed to initialize NVML: Unknown Error",),
    "container.no-cgroups": ("no-cgroups = true",),
    "container.device-policy": (
        'openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = -1 EACCES (Permission denied)',
        "Operation not permitted: '/dev/nvidia0'",
        "cuInit(0) returned 304",
        "cudaErrorOperatingSystem - OS call failed or operation not supported on this OS",
        "Failed to initialize NVML: Insufficient Permissions",
    ),
    "container.no-toolkit": (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        'could not select device driver "nvidia"',
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
        'exec: "nvidia-container-runtime": executable file not found in $PATH: unknown',
        "docker: Error response from daemon: Unknown runtime specified nvidia.",
        "ERROR: for worker  Cannot create container: unknown runtime nvidia",
        "fork/exec /usr/bin/nvidia-container-runtime: no such file or directory",
        "[ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container",
        "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found",
    ),
    "container.cuda-requirement": (
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to"
        " a newer"
        " version, or use an earlier cuda container: unknown.",
        "requirement error: unsatisfied condition: brand=tesla",
    ),
    "container.host-driver": (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object",
        "could not initialize NVML: ERROR_DRIVER_NOT_LOADED",
        "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
        "stderr: nvidia-container-cli.real: initialization error: driver error: failed to process request: unknown",
        "INFO:    Could not find any nv files on this host!",
    ),
    "container.stale-cdi": (
        "failed to fulfil mount request: open /usr/lib/x86_64-linux-gnu/libcuda.so.1: no such file or directory",
        'failed to load CDI Spec: failed to parse CDI Spec "/etc/cdi/nvidia.yaml": failed to unmarshal CDI Spec: json: '
        'unknown field "hostPath"',
        "Error: crun: cannot stat `/lib64/libEGL_nvidia.so.550.54.14`: No such file or directory",
        "INFO[0000] Found 0 CDI devices",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        "error modifying OCI spec: failed to inject CDI devices",
        "CDI device injection failed",
        'Error response from daemon: failed to stat CDI host device "/dev/nvidia-modeset": no such file or directory',
    ),
    "container.shm": (
        "OSError: [Errno 28] No space left on device: '/psm_b7c1d2e3'",
        "mm_iface failed to allocate receive FIFO",
        "sys.c:915  UCX  ERROR   shmget(size=134221824 flags=0x7b0) for mm_recv_desc failed: No space left on device",
        "No space left on device while creating shared memory segment",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error.",
        "It is possible that dataloader's workers are out of shared memory.",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Xk3v9a (size 9637888)",
        "OSError: /dev/shm/data-1: No space left on device",
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
        "RuntimeError: unable to write to file </torch_4242_12>",
        "shm_open failed",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_4242_12_0>: Success (0)",
        "Bus error (core dumped)",
        "./train.sh: line 3:  4242 Bus error               (core dumped) python train.py",
        "Bus error",
        "Fatal Python error: Bus error",
        "[gpu001:4242 :0:4301] Caught signal 7 (Bus error: nonexistent physical address)",
        "  traceback : Signal 7 (SIGBUS) received by PID 4242",
        "NCCL WARN Call to posix_fallocate failed : No space left on device",
        "NCCL WARN Error while creating shared memory segment nccl-shm-recv-4a1b-0-1-2 (size 9637888)",
        "NCCL WARN Error: failed to extend /dev/shm/nccl-8fTp3k to 9637892 bytes",
        "Unable to initialize shared memory key 'triton_python_backend_shm_region_1' to requested size",
        "  exitcode  : -7 (pid: 4242)",
    ),
    "nccl.wrong-interface": (
        "NCCL WARN NET/IB : No IP interface found.",
        "NCCL WARN NET/Socket : No usable listening interface found",
        "NCCL WARN no device found matching eth9, verify NCCL_SOCKET_IFNAME",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152]",
        "node-a:4242:4301 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>",
        "NCCL WARN Bootstrap : no socket interface found",
        "socketProgress: Connect to 172.17.0.1<43210>",
        "btl_tcp_endpoint.c:796 connect() to 172.17.0.1 failed: Connection refused (111)",
        "node-b:4152:4206 [0] NCCL INFO NET : Using interface lo:127.0.0.1<0>",
        "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
        "include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol",
        "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find "
        "address for: ens3",
        "RuntimeError: [enforce fail at tcp/device.cc] rp != nullptr. Unable to resolve hostname to a (local) address",
        "NCCL WARN Call to connect to 127.0.1.1<42131> failed : Connection refused",
    ),
    "nccl.firewall": (
        "NCCL WARN Net : Connect to 10.20.0.7<43211> failed : Connection timed out",
        "NCCL WARN Call to connect returned Connection refused, retrying",
        "misc/socket.cc NCCL WARN socketPollConnect: connect to 10.20.0.7 returned No route to host",
        "The client socket has timed out after 900s while trying to connect to (gpu001, 29500).",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<43210> failed : Software "
        "caused connection abort",
    ),
    "nccl.watchdog": (
        "To avoid data inconsistency, we are taking the entire process down.",
        "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long> >) + 0x1d2",
        "[rank3]:[E] [PG 0 Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, "
        "OpType=ALLREDUCE,"
        " NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.",
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels",
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
        "Received a dump signal due to a collective timeout from this local rank",
        "crashed with NCCL communicator Socket Timeout",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1",
        "RuntimeError: Rank 1 failed to pass monitoredBarrier in 1800000 ms",
    ),
    "nccl.remote-error": (
        "worker0:15:91 [3] include/socket.h 398 NCCL WARN Call to write failed : Connection reset by peer.",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
        "remote process exited or there was a network error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\n"
        "socketProgressOpt: Call to recv from 10.20.0.7<33759> failed : Connection reset by peer",
        "NCCL failure: remote process exited or there was a network error",
        "misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer gpu002<47861>",
        "misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.20.0.7<58355> failed : Broken pipe",
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value stor"
        "e by key '0', but store->get('0') got error: Connection reset by peer",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:4321",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. "
        "Did the remote server shutdown or crash?",
    ),
    "nccl.no-rdma": (
        "NCCL WARN NET/IB : Unable to open device mlx5_0",
        "NCCL INFO NET/IB : No device found.",
        "NCCL WARN Failed to open libibverbs.so[.1]",
        "NCCL INFO Using network Socket",
        "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",
        "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "nvidia-peermem is not loaded",
    ),
    "nccl.no-p2p": (
        "NCCL WARN failed to peer with device 1(=c1000): 217 peer access is not supported",
        "NCCL WARN P2P is disabled between connected GPUs 1 and 0. You can repair this with "
        "NCCL_IGNORE_DISABLED_P2P=1.",
        "NCCL INFO Could not enable P2P between dev 0(=18000) and dev 1(=2a000)",
        "NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
        "cudaErrorPeerAccessUnsupported: peer access is not supported between these two devices",
        "Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
    ),
    "nccl.acs": (
        "# Out of bounds values : 42 FAILED",
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+",
    ),
    "nccl.memlock": (
        "misc/ibvwrap.cc NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",
        "NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, Error: Cannot allocate memory",
        "UCX  ERROR ibv_reg_mr(address) failed: Cannot allocate memory",
        "NCCL WARN Call to ibv_create_qp failed",
    ),
    "rdma.port": (
        "\t\tState: Initializing\n\t\tPhysical state: LinkUp",
        "mlx5_0 1 state 2: INIT",
        "NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "port_state: PORT_DOWN (1)",
    ),
    "rdma.flap": (
        "\n".join(f"Nov 21 1{hour}:00:00 gpu001 systemd-networkd[900]: ib0: Lost carrier" for hour in range(6)),
        "the switch reports a link flap on port 12",
    ),
    "rdma.roce": (
        "NCCL WARN NET/IB : Got completion from peer 10.20.0.7<40123> with status=12 opcode=1 len=0 vendor err 129",
        "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        "IBV_WC_RETRY_EXC_ERR",
        "send completion with error: transport retry counter exceeded",
        "Call to ibv_modify_qp failed with error Connection timed out",
        "ibv_modify_qp 110",
        "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1",
        "NCCL WARN NET/IB : Got completion with error 13, opcode 0, len 0, vendor err 130",
    ),
    "net.mtu": (
        "ping: local error: message too long, mtu=1500",
        "From 10.20.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)",
        "completion with status IBV_WC_LOC_LEN_ERR",
        "local length error",
    ),
    "rdma.nic-power": (
        "[   11.2] mlx5_core 0000:3b:00.0: mlx5_pcie_event: Detected insufficient power on the PCIe slot (27W).",
        "[ 9000.1] mlx5_core 0000:3b:00.0: temp_warn: High Temperature",
        "[ 9000.2] mlx5_core 0000:3b:00.0: over temperature",
    ),
    "nccl.segfault": (
        "[ 8123.4] python3[4242]: segfault at 18 ip 00007f1c3c0a1b2c sp 00007ffd error 4 in "
        "libnccl.so.2.18.1[7f1c38000000+9e0]",
        "Fatal signal 11 in /opt/lib/libnccl.so.2",
        "#3 0x00007f1c in ncclAllReduce () from /usr/lib/libnccl.so.2",
    ),
    "nccl.version-skew": (
        "NCCL WARN Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703",
        "NCCL version 2.18.1+cuda12.1\nNCCL version 2.20.5+cuda12.4",
    ),
}
CORPUS |= {name: row.examples for name, row in MATRIX.diagnoses.items() if row.patterns}
"""Rule → texts that it, and before all others it, explains."""

TEXTS = [(name, text) for name, texts in CORPUS.items() for text in texts]


def module_name(diagnosis: str) -> str:
    return diagnosis.replace(".", "_").replace("-", "_")


def case_of(text: str) -> Case:
    return Case(MATRIX, texts=[("pasted", text)])


def test_every_diagnosis_has_a_module_and_every_module_a_diagnosis():
    files = {path.stem for path in Path(rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {module_name(name) for name in IDS if not MATRIX.diagnoses[name].patterns}


def is_public_of(module: ModuleType, key: str, value: object) -> bool:
    return not key.startswith("_") and getattr(value, "__module__", None) == module.__name__


@pytest.mark.parametrize("name", IDS)
def test_module_says_what_it_is(name: str):
    rule = rule_of(MATRIX.diagnoses[name])
    assert rule.__doc__
    if MATRIX.diagnoses[name].patterns:
        assert isinstance(rule, Message)
        return
    assert [key for key, value in vars(rule).items() if is_public_of(rule, key, value)] == ["examine"]
    assert isinstance(rule.SYMPTOMS, tuple)


def test_what_is_explained_exists():
    known = {name: (*row.explains, *row.fits) for name, row in MATRIX.diagnoses.items()}
    assert not {(name, other) for name, others in known.items() for other in others if other not in IDS}


def test_only_generic_messages_fit_several_causes_and_all_of_them_say_which():
    assert {name for name, row in MATRIX.diagnoses.items() if row.fits} == {
        name for name, row in MATRIX.diagnoses.items() if row.message_kind == "generic"
    }


def test_what_a_generic_message_fits_does_not_explain_it_once_more():
    twice = {
        (name, other)
        for name, row in MATRIX.diagnoses.items()
        for other in row.fits
        if name in MATRIX.diagnoses[other].explains
    }
    assert not twice


def test_no_diagnosis_explains_itself_by_a_detour():
    def reach(name: str, seen: tuple[str, ...]) -> tuple[str, ...] | None:
        if name in seen:
            return (*seen, name)
        for other in (*MATRIX.diagnoses[name].explains, *(row for row in IDS if name in MATRIX.diagnoses[row].fits)):
            found = reach(other, (*seen, name))
            if found:
                return found
        return None

    assert [circle for name in IDS if (circle := reach(name, ()))] == []


def test_runbook_is_named_after_the_diagnosis():
    assert {row.id: row.runbook for row in MATRIX.diagnoses.values()} == {
        name: f"docs/runbooks.md#{name.replace('.', '-')}" for name in IDS
    }


def test_what_can_be_undone_is_among_the_steps():
    missing = {
        (row.id, command)
        for row in MATRIX.diagnoses.values()
        for command in row.undo
        if command.split()[0] not in " ".join(row.fix)
    }
    assert not missing


@pytest.mark.parametrize("machine", sorted(machines.MACHINES))
def test_every_rule_is_silent_on_a_healthy_machine(machine: str):
    snapshot = machines.snapshot(machines.MACHINES[machine]())
    found = {name: rule_of(MATRIX.diagnoses[name]).examine(Case(MATRIX, snapshot)) for name in IDS}
    assert {name: sign.seen for name, sign in found.items() if sign} == {}


def test_every_rule_is_silent_when_there_is_nothing():
    assert [name for name in IDS if rule_of(MATRIX.diagnoses[name]).examine(Case(MATRIX))] == []


def test_every_rule_is_silent_on_a_text_without_trouble():
    text = "epoch 1 loss 0.42\nsaved the model\n\n"
    assert [name for name in IDS if rule_of(MATRIX.diagnoses[name]).examine(case_of(text))] == []


@pytest.mark.parametrize("machine", sorted(machines.MACHINES))
def test_every_rule_bears_a_machine_that_answers_nothing_well(machine: str):
    broken = machines.MACHINES[machine]()
    for probe in list(broken):
        broken = machines.replace_output(broken, probe, text="\x1b[31m{<\x00 nonsense")
    found = [rule_of(MATRIX.diagnoses[name]).examine(Case(MATRIX, machines.snapshot(broken))) for name in IDS]
    assert {type(sign) for sign in found} <= {Sign, type(None)}
    assert all(sign is None or sign.confidence != "high" for sign in found)


def symptoms() -> list[tuple[str, str]]:
    return [(name, pattern) for name in IDS for pattern in rule_of(MATRIX.diagnoses[name]).SYMPTOMS]


SYMPTOMS = symptoms()


def _is_endless(code: object, argument: object) -> bool:
    return code in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT) and argument[1] > 400


def _has_nested_repeats(pattern: parser.SubPattern, inside: bool = False) -> bool:
    for code, argument in pattern:
        is_endless = _is_endless(code, argument)
        if is_endless and inside:
            return True
        parts = argument if isinstance(argument, (tuple, list)) else (argument,)
        for part in parts:
            inner = part if isinstance(part, list) else [part]
            for one in inner:
                if isinstance(one, parser.SubPattern) and _has_nested_repeats(one, inside or is_endless):
                    return True
    return False


def _count_endless(pattern: parser.SubPattern) -> int:
    return sum(_is_endless(code, argument) for code, argument in pattern)


@pytest.mark.parametrize(
    ("name", "pattern"), SYMPTOMS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(SYMPTOMS)]
)
def test_symptom_is_linear_and_known(name: str, pattern: str):
    parsed = parser.parse(pattern)
    assert not _has_nested_repeats(parsed), "a repeat without an end inside another takes exponential time"
    assert _count_endless(parsed) <= 1, "two repeats without an end take quadratic time"
    compiled = re.compile(pattern, re.IGNORECASE)
    assert not compiled.search(""), "it matches nothing at all"
    lines = [line for _, text in TEXTS for line in text.splitlines()]
    assert any(compiled.search(line) for line in lines), "no text of the corpus shows what it is for"


@pytest.mark.parametrize(
    ("pattern", "is_nested"), [(r"(a+)+b", True), (r"(?:a|b*)*c", True), (r"a+b", False), (r"(?:a{1,3}){2}", False)]
)
def test_nested_repeats_are_seen(pattern: str, is_nested: bool):
    assert _has_nested_repeats(parser.parse(pattern)) is is_nested


def test_every_rule_has_a_text():
    assert set(IDS) - set(CORPUS) == set()
    assert set(CORPUS) - set(IDS) == set()


@pytest.mark.parametrize(("name", "text"), TEXTS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(TEXTS)])
def test_text_is_explained_by_its_rule_first(name: str, text: str):
    report = diagnose(case_of(text))
    assert report.broken == {}
    found = [finding.diagnosis.id for finding in (*report.causes, *report.notes)]
    assert found[:1] == [name], f"found {found}"


@pytest.mark.parametrize(("name", "text"), TEXTS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(TEXTS)])
def test_sign_of_a_text_is_whole(name: str, text: str):
    sign = rule_of(MATRIX.diagnoses[name]).examine(case_of(text))
    assert sign is not None
    assert sign.confidence in CONFIDENCES
    assert sign.seen
    assert sign.expected
    assert all(one == one.strip() and one and "\n" not in one for one in (*sign.seen, *sign.fix, *sign.unseen))
