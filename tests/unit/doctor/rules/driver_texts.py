"""What people paste when a driver or a GPU fails: rule → texts that it, and before all others it, explains.

Written here for the purpose, after the form in which the kernel, nvidia-smi and modprobe say it.
"""

from __future__ import annotations


def xid(code: int, rest: str = "pid=4242, name=python3, Ch 00000008", address: str = "0000:5d:00") -> str:
    return f"[ 8123.456789] NVRM: Xid (PCI:{address}): {code}, {rest}"


TEXTS: dict[str, tuple[str, ...]] = {
    "driver.mismatch": (
        "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
        "unable to load NVML management library, nvml init failure: 18",
        "nvml: NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105",
        "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
        "NVRM: API mismatch: the client has the version 580.105.08, but\n"
        "NVRM: this kernel module has the version 580.95.05.  Please\n",
    ),
    "driver.stale-initramfs": (
        "nvidia/580.95.05, 6.8.0-87-generic, x86_64: installed\nnvidia/580.105.08, 6.8.0-87-generic, x86_64: installed",
        "the old kernel modules stay in the initrd",
    ),
    "driver.not-built": (
        "insmod: ERROR: could not insert module nvidia.ko: Invalid module format",
        "modprobe: ERROR: could not insert 'nvidia': Invalid argument",
        '(EE) Failed to load module "nvidia" (module does not exist, 0)',
        "modprobe: ERROR: could not insert 'nvidia': Exec format error",
        "modprobe: FATAL: Module nvidia not found.",
        "nvidia: version magic '5.15.0-91-generic SMP mod_unload modversions ' should be '5.15.0-94-generic",
        "nvidia-persistenced: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist",
        "pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running.",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-87-generic",
        "modprobe: ERROR: could not insert 'nvidia': No such file or directory",
        "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/6.8.0-40-generic",
        "nvidia_uvm: disagrees about version of symbol nvidia_p2p_get_pages",
        "nvidia: Unknown symbol drm_gem_object_free (err -2)\n",
    ),
    "driver.secure-boot": (
        "ERROR: nvidia-installer cannot sign nvidia.ko without the `sign-file` utility.",
        "ERROR: Failed to sign the linked kernel module.",
        "Loading of unsigned module is rejected",
        "modprobe: ERROR: could not insert 'nvidia': Operation not permitted",
        "systemd-modules-load[312]: Failed to insert module 'nvidia_drm': Key was rejected by service",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "modprobe: ERROR: could not insert 'nvidia_uvm': Required key not available",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "nvidia.ko: Loading of unsigned module is rejected",
        "kernel: Loading of module with unavailable key is rejected",
        "ERROR: The kernel module failed to load. Secure boot is enabled on this system, so this is likely\n",
    ),
    "driver.nouveau": (
        "nouveau              2306048  4",
        "NVRM: Try unloading the conflicting kernel module (and/or reconfigure your kernel without",
        "NVRM: GPU 0000:5d:00.0 is already bound to nouveau.",
        "NVRM: nouveau, rivafb, nvidiafb or rivatv",
        "nouveau 0000:01:00.0: bus: MMIO write of 8000012c FAULT at 10eb14 [ IBUS ]",
        "nouveau: probe of 0000:01:00.0 failed with error -12",
        "ERROR: The Nouveau kernel driver is currently in use by your system.",
        "\tKernel driver in use: nouveau",
    ),
    "driver.open-unsupported": (
        "[    3.5] NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",
        "NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:15f8)\n"
        "NVRM: installed in this system is not supported by open\n"
        "NVRM: nvidia.ko because it does not include the required GPU\n",
    ),
    "driver.open-required": (
        "NVRM: The NVIDIA GPU 0000:5d:00.0 (PCI ID: 10de:2901)\n"
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n",
    ),
    "driver.gsp-firmware": (
        "[ 9.1] NVRM: failed to wait for bar firewall to lower",
        "[ 9.1] NVRM: gpuHandleSanityCheckRegReadError_GM107: Possible bad register read",
        "NVRM: rm_init_adapter(0) failed",
        "nvidia 0000:5d:00.0: Direct firmware load for nvidia/580.105.08/gsp_ga10x.bin failed with error -2",
        "loading /lib/firmware/nvidia/580.105.08/gsp_ga10x.bin failed with error -4",
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\nNVRM: GPU 0000:5d:00.0: RmInitAdapter failed!",
        "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\n",
    ),
    "pci.bar-space": (
        "[ 9.1] NVRM: No address space to allocate resized BAR1.",
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:5d:00.0)",
    ),
    "gpu.lost": (
        "[ 9.1] NVRM: A GPU crash dump has been created. If possible, please run",
        "nvml: NVML_ERROR_GPU_IS_LOST",
        "Unable to determine the device handle for GPU0000:5D:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.  Reboot to recover this GPU",
        "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:5d:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        "the GPU has fallen off the bus and is not responding",
    ),
    "pci.d3cold": (
        "nvidia 0000:5d:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "[ 9.1] vfio-pci 0000:5d:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
    ),
    "xid.79": (
        xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        f"{xid(79, 'GPU has fallen off the bus.')}\n[ 8123.5] NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.\n"
        f"{xid(45)}\n{xid(154, 'GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)')}",
    ),
    "xid.48": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"),
        f"{xid(48, 'DBE')}\n{xid(63, 'Row Remapper: New row marked for remapping')}\n{xid(45)}",
        xid(171, "Uncorrectable DRAM error"),
    ),
    "xid.63": (xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."),),
    "xid.64": (
        xid(64, "Row Remapper: Error"),
        f"{xid(48, 'DBE')}\n{xid(64, 'Row Remapper: Error')}",
        "        Remapping Failure Occurred      : Yes",
    ),
    "xid.94": (xid(94, "Contained: CE User Channel"), f"{xid(94)}\n{xid(43)}"),
    "xid.95": (xid(95, "Uncontained: LTC TAG"), f"{xid(95)}\n{xid(94)}\n{xid(45)}"),
    "xid.92": (xid(92, "High single-bit ECC error rate"),),
    "xid.nvlink": (
        xid(74, "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        xid(145, "RLW_REMAP Fatal XC0 i0 Link 12 (0x00000082 0x00000040 0x00000000 0x00000000 0x00000000 0x00000000)"),
        xid(137, "NVLink privilege error"),
    ),
    "xid.gsp-hang": (
        xid(119, "Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL)"),
        "Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76",
        f"{xid(120, 'GSP task exception')}\n{xid(109)}",
    ),
    "xid.109": (xid(109, "pid=4242, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x4c003"),),
    "xid.application": (
        xid(13, "pid=4242, name=python3, Graphics SM Warp Exception on (GPC 2, TPC 2, SM 1): Out Of Range Address"),
        xid(31, "pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"),
        f"{xid(13)}\n{xid(43)}\n{xid(45)}",
        xid(68),
        xid(69),
    ),
    "xid.45": (xid(45, "pid=4242, name=python3, Ch 00000008, preemptive removal"),),
    "xid.microcontroller": (xid(62, "0000(0000) 00000000 00000000"), xid(61, "0cde(3098) 00000000 00000000")),
    "xid.54": (xid(54, "Auxiliary power is not connected"),),
    "xid.154": (
        xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x4 (Drain and Reset)"),
    ),
    "xid.unrecoverable": (xid(140, "Unrecovered ECC error"), xid(143, "GPU initialisation failed"), xid(158)),
    "xid.other": (
        xid(32, "Invalid or corrupted push buffer stream"),
        xid(121, "C2C link"),
        xid(99999, "something new"),
    ),
    "sxid.fatal": (
        "[ 9.5] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:85:00.0",
    ),
    "gpu.thermal-slowdown": (
        "        HW Thermal Slowdown               : Active",
        "        HW Slowdown                       : Active\n            HW Thermal Slowdown           : Not Active",
        "<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>",
        "<clocks_event_reason_sw_thermal_slowdown>Active</clocks_event_reason_sw_thermal_slowdown>",
    ),
    "gpu.power-brake": (
        "        HW Power Brake Slowdown           : Active",
        "        HW Slowdown                       : Active\n            HW Power Brake Slowdown       : Active",
        "<clocks_event_reason_hw_power_brake_slowdown>Active</clocks_event_reason_hw_power_brake_slowdown>",
    ),
    "gpu.power-cap": (
        "        SW Power Cap                      : Active",
        "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>",
    ),
    "pci.width": (
        "pci 0000:5d:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:5c:00.0"
        " (capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)",
        "\t\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)",
    ),
    "pci.generation": ("\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x16",),
    "pci.aer": (
        "pcieport 0000:5c:00.0: AER: Uncorrected (Fatal) error received: 0000:5d:00.0",
        "nvidia 0000:5d:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
        "\n".join(
            f"[ {100 + index}.0] pcieport 0000:5c:00.0: AER: Corrected error received: 0000:5d:00.0"
            for index in range(40)
        ),
    ),
    "gpu.ecc-off": ("GPU 3: ECC mode is disabled", "<current_ecc>Disabled</current_ecc>"),
    "gpu.remap-pending": (
        "        Pending                           : Yes",
        "<remapped_row_pending>Yes</remapped_row_pending>",
        "GPU 3 has a row remap that is pending",
    ),
    "gpu.persistence-off": (
        "Persistence mode is not enabled on GPU 0",
        "    Persistence Mode                      : Disabled",
        "the first CUDA call takes 12 seconds",
        "nvidia-smi takes 10 s",
    ),
    "gpu.reset-refused": (
        "The following GPUs could not be reset:\n  GPU 00000000:5D:00.0: In use by another client",
        "GPU 00000000:5D:00.0 could not be reset because it's being used by some other process",
        "Unable to reset this GPU because it's being used by some other process",
        "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application)",
    ),
    "driver.hung": (
        "nvidia-smi timed out after 60 s",
        "[ 9000.5] INFO: task nvidia-smi:4242 blocked for more than 122 seconds.",
    ),
    "gpu.missing": (
        "[ 9.1] NVRM: No NVIDIA PCI devices found.",
        "NVRM: Can't find an IRQ for your NVIDIA card!",
        "No devices were found",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "NVRM: None of the NVIDIA devices were initialized.",
        "nvidia: probe of 0000:5d:00.0 failed with error -1",
        "NVRM: No NVIDIA GPU found.\n",
    ),
}
