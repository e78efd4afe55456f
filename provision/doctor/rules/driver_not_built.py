"""There is no nvidia module for the kernel that runs."""

from __future__ import annotations

from provision.doctor.case import Case, Quote
from provision.doctor.gpus import is_in_container, nvidia_devices
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"couldn't communicate with the NVIDIA driver",
    r"Module nvidia(?:[-_]current)? not found in directory",
    r"could not insert '?nvidia'?: No such file",
    r"NVMLError_DriverNotLoaded|\bNVML: Driver Not Loaded\b",
    r"could not insert '?nvidia'?: (?:Exec format error|Unknown symbol in module)",
    r"FATAL: Module nvidia not found|ERROR: module not found: '?nvidia",
    r"\bnvidia: (?:version magic '|disagrees about version of symbol)",
    r"Failed to query NVIDIA devices\. Please ensure",
    r"NVML_ERROR_DRIVER_NOT_LOADED|FATAL: Module nvidia[\w-]{1,12} not found|"
    r"\bnvidia[\w-]{1,12}: (?:version magic '|disagrees about version of symbol (?!ib_|rdma_))|"
    r"kernel driver does not appear to be running on this host|Failed to initialize the NVIDIA kernel module",
    r"\bnvidia[\w-]{0,12}: Unknown symbol \w{3,60} \(err",
    r"could not insert '?nvidia(?:[-_]\w{2,8})?'?: Invalid argument",
    r"could not insert module \S{0,120}nvidia\S{0,12}\.ko\S{0,4}: (?:Invalid module format|Unknown symbol)|"
    r"modinfo: ERROR: Module nvidia\S{0,12} not found|NVIDIA driver is not loaded",
    r"Failed to load module .{0,2}nvidia.{0,2} \(module does not exist",
)

_EXPECTED = "a module for the running kernel, built and loaded"


def examine(case: Case) -> Sign | None:
    """Ask whether the running kernel has the module; the message alone says only that none is loaded."""
    if is_in_container(case):
        return None
    quote = case.find(*SYMPTOMS)
    module = case.look(lambda host: host.nvidia_module)
    if module is not None and (module.loaded_version or module.is_on_disk):
        return None
    uname = case.look(lambda host: host.uname)
    if module is None or not nvidia_devices(case) or uname is None:
        is_certain = quote is not None and "not found in directory" in quote.line
        return _from_message(quote, is_certain=is_certain)
    built = [row for row in case.look(lambda host: host.dkms) or () if row.name.startswith("nvidia")]
    elsewhere = sorted({row.kernel for row in built if row.kernel and row.kernel != uname.release})
    broken = [row for row in built if row.kernel == uname.release and row.state != "installed"]
    seen = [f"no nvidia module is loaded, and kernel {uname.release} has none on disk"]
    if broken:
        seen.append(f"DKMS left {broken[0].name} {broken[0].version} for this kernel in the state {broken[0].state}")
    if elsewhere:
        seen.append(f"DKMS built it for {', '.join(elsewhere)}")
    is_proved = module.is_on_disk is False or bool(elsewhere) or bool(broken)
    return Sign(
        confidence="high" if is_proved else "medium",
        seen=(*seen, *quoted(quote)),
        expected=_EXPECTED,
        unseen=() if is_proved else ("whether a module is on disk: `modinfo -F version nvidia`",),
    )


def _from_message(quote: Quote | None, *, is_certain: bool) -> Sign | None:
    return hint(
        quote,
        expected=_EXPECTED,
        unseen=()
        if is_certain
        else ("whether the module is built for this kernel: `dkms status`, `modinfo -F version nvidia`, `uname -r`",),
    )
