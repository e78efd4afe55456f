"""The driver's libraries were upgraded and the old kernel module is still loaded."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import own_seconds, quote_events
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults
from provision.probe.parse.kernel_log import KernelEvent
from provision.records import replace

SYMPTOMS = (
    r"driver/library version mismatch",
    r"NVRM: API mismatch",
    r"NVML/RM version mismatch|NVMLError_LibRmVersionMismatch",
    r"\bnvml.{0,30}(?:init|err)\w{0,10}.{0,12}\b18\b",
    r"NVML_ERROR_LIB_RM_VERSION_MISMATCH",
)

_VERSIONS = re.compile(r"client has the version ([0-9.]{3,20}).{0,20}kernel module has the version ([0-9.]{3,20})")
_EXPECTED = "one version in memory, on disk and in the libraries"


def examine(case: Case) -> Sign | None:
    """Compare the module in memory with the one on disk and with the libraries; a message alone is a good hint."""
    quote = case.find(*SYMPTOMS)
    events = case.events("api-mismatch")
    module = case.look(lambda host: host.nvidia_module)
    driver = case.look(lambda host: host.driver)
    libraries = case.look(lambda host: host.libraries) or ()
    loaded = (module.loaded_version if module else None) or (driver.version if driver else None)
    faults = case.faults("gpu.driver.lib_match/installed")
    other = module.disk_version if module is not None and module.disk_version != loaded else None
    disk = (f"the kernel runs {loaded}, the module on disk is {other}",) if loaded and other else ()
    if faults or disk:
        seen = (*disk, *_messages(events, quoted(quote)))
        found = explain_faults(case, faults, expected=_EXPECTED, seen=seen)
        found = found or Sign(confidence="medium", seen=seen, expected=_EXPECTED)
        return replace(found, seen=tuple(dict.fromkeys((*disk, *found.seen))), seconds=own_seconds(case, events))
    seconds = own_seconds(case, events)
    if quote is None and not events:
        return None
    front = [
        library
        for library in libraries
        if library.soname == "libnvidia-ml.so.1"
        and library.origin == "LD_LIBRARY_PATH"
        and loaded is not None
        and library.version not in (None, loaded)
    ]
    if front:
        return Sign(
            confidence="high",
            seen=(
                f"LD_LIBRARY_PATH puts {front[0].path} ({front[0].version}) before the libraries of driver {loaded}",
                *_messages(events, quoted(quote)),
            ),
            expected=_EXPECTED,
            fix=(
                f"Take the folder of {front[0].path} out of LD_LIBRARY_PATH, and of the image if it is set there.",
                "Look again: `nvidia-smi`.",
            ),
            seconds=seconds,
        )
    is_settled = module is not None and module.disk_version == loaded and case.is_well("gpu.driver.lib_match/installed")
    if is_settled:
        return Sign(
            confidence="low",
            seen=(f"now the module and the libraries are all {loaded}", *_messages(events, quoted(quote))),
            expected=_EXPECTED,
            unseen=("which program still brings other libraries, most often one inside a container",),
            seconds=seconds,
        )
    return Sign(
        confidence="medium",
        seen=_messages(events, quoted(quote)),
        expected=_EXPECTED,
        unseen=("which versions these are: `cat /sys/module/nvidia/version`, `modinfo -F version nvidia`",)
        if not any(_VERSIONS.search(event.text) for event in events)
        else (),
        seconds=seconds,
    )


def _messages(events: tuple[KernelEvent, ...], quotes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kernel's message with the versions it names, else whatever line there was."""
    for event in events:
        if (match := _VERSIONS.search(event.text)) is not None:
            return (f"the kernel refused a program with libraries of {match[1]} beside its module of {match[2]}",)
    return quotes or quote_events(events)
