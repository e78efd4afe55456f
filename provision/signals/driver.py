"""The driver: which one is loaded, whether its parts are of one version, what kept it from loading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.parse.pci import PciDevice
from provision.probe.parse.system import Library
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import (
    find_models,
    judge_field,
    list_driven_devices,
    name_address,
    name_gpu,
    read_events,
)
from provision.signals.signal import Fault, Signal, failed, passed, skipped, unknown
from provision.versions import branch_of, is_older, minor_of, parse


def gpu_driver_loaded(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for a live module called nvidia."""
    modules = {module.name: module for module in host.modules}
    if not modules:
        return unknown("the kernel lists no module at all")
    if "nvidia" not in modules:
        instead = " and nouveau is" if "nouveau" in modules else ""
        said = f"the nvidia module is not loaded{instead}"
        return failed(
            said, "nvidia loaded", faults=[Fault(said=said, kind="nouveau" if instead else _why_absent(host))]
        )
    state = modules["nvidia"].state
    if state != "Live":
        return failed(f"the nvidia module is {state}", "nvidia loaded and live")
    return passed("nvidia is loaded")


def _why_absent(host: Snapshot) -> str:
    """Return ``not-built`` where the kernel that runs has no module, nothing where that is not known."""
    try:
        module = host.nvidia_module
    except Unreadable:
        return ""
    return "" if module.is_on_disk or module.disk_version else "not-built"


def gpu_driver_nouveau(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the module, and for a GPU bound to it."""
    modules = [module.name for module in host.modules]
    bound = read_or(lambda: [device.address for device in list_driven_devices(host) if device.driver == "nouveau"], [])
    if "nouveau" in modules or bound:
        held = f" and holds {', '.join(bound)}" if bound else ""
        names = [name_address(host, address) for address in bound]
        said = f"nouveau is loaded{held}"
        # Beside nvidia it may drive a display and no GPU that anybody computes on.
        alone = Fault(said=said, certainty="low" if "nvidia" in modules else "high")
        faults = [Fault(said=f"nouveau holds {name}", subject=name) for name in names] or [alone]
        return failed(said, "not loaded", subjects=[f"GPU {address}" for address in bound], faults=faults)
    return passed("nouveau is not loaded") if modules else unknown("the kernel lists no module at all")


def gpu_driver_version(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare exactly; a plan that names only a floor is judged by ``gpu.driver.min_for_cuda``."""
    if expected.driver is None:
        return skipped("no exact driver is planned")
    loaded = host.find_driver_version()
    return passed(f"driver {loaded}") if loaded == expected.driver else failed(f"driver {loaded}", expected.driver)


def gpu_driver_min_for_cuda(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare with the highest floor among the lock's, the planned CUDA's and those of installed frameworks.

    Source: CUDA compatibility guide: minor-version compatibility gives each CUDA major one floor; a forward
    compatibility package lifts listed branches on data-centre GPUs.
    """
    loaded = host.find_driver_version()
    floors: list[tuple[str, str]] = []
    unclear: list[str] = []
    if expected.driver_minimum is not None:
        floors.append((expected.driver_minimum, "the lock"))
    for cuda, where in _cuda_wanted(host, expected):
        releases = matrix.cuda_below(minor_of(cuda))
        floors += [(release.minimum_driver, f"CUDA {cuda} of {where}") for release in releases]
        if not releases:
            unclear.append(f"the facts do not know CUDA {cuda} of {where}")
    if not floors:
        return unknown(unclear[0]) if unclear else skipped("no CUDA is planned and no framework with CUDA is installed")
    try:
        floor, why = max(floors, key=lambda pair: parse(pair[0]))
        is_enough = parse(loaded) >= parse(floor)
    except ValueError as error:
        return unknown(str(error))
    if is_enough:
        return unknown(unclear[0]) if unclear else passed(f"driver {loaded}, {why} needs {floor}")
    if (bridge := _find_compatibility(host, matrix, floor, loaded)) is not None:
        return passed(f"driver {loaded} is below {floor} of {why}, and {bridge} lifts it")
    return failed(f"driver {loaded}, and {why} needs {floor}", f"{floor} or newer")


def _cuda_wanted(host: Snapshot, expected: Expectation) -> Iterator[tuple[str, str]]:
    if expected.cuda is not None:
        yield expected.cuda, "the plan"
    for name in ("torch", "tensorflow", "jax"):
        try:
            framework = getattr(host, name)
        except Unreadable:
            continue
        if framework.cuda:
            yield framework.cuda, name


def _find_compatibility(host: Snapshot, matrix: Matrix, floor: str, loaded: str) -> str | None:
    """Return the path of a forward-compatibility library that serves the loaded branch, if one is found."""
    branches = {
        branch
        for release in matrix.cuda
        if release.minimum_driver == floor
        for branch in release.forward_compatibility_branches or ()
    }
    if branch_of(loaded) not in branches:
        return None
    try:
        found = [library for library in host.libraries if library.soname == "libcuda.so.1" and library.version]
        return next(
            (row.path for row in found if "/compat/" in row.path and parse(row.version or "") >= parse(floor)), None
        )
    except (Unreadable, ValueError):
        return None


_DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_ASIDE = ("/compat/", "/i386-linux-gnu/", "/lib32/", "/stubs/")
"""Folders whose copies are meant to differ, or that no program of this machine loads."""


def gpu_driver_lib_match(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the version in memory with the file names of the libraries the loader would take.

    NVML's own complaint counts too, as it has compared the two. Where a sandbox hides the kernel's file, the version
    that nvidia-smi tells proves that a library is wrong, and not that all are right.
    """
    hidden: Unreadable | None = None
    try:
        loaded = host.driver.version
    except Unreadable as error:
        loaded, hidden = host.find_smi_driver_version(), error
    said = host.output("nvidia-smi-xml")
    should = f"libraries of {loaded}"
    faults: list[Fault] = []
    if "version mismatch" in f"{said.text[:2000]}{said.error[:2000]}":
        complaint = f"nvidia-smi says that its library differs from the loaded {loaded}"
        faults.append(Fault(said=complaint, kind="complaint"))
    try:
        found = [
            library
            for library in host.libraries
            if library.soname in _DRIVER_LIBRARIES and not any(folder in library.path for folder in _ASIDE)
        ]
    except Unreadable as error:
        return failed(faults[0].said, should, faults=faults) if faults else unknown(error.reason)
    known = [library for library in found if "." in (library.version or "")]
    wrong = [library for library in known if library.version != loaded]
    if wrong:
        return failed(
            f"{', '.join(f'{library.path} is {library.version}' for library in wrong)}, the kernel runs {loaded}",
            should,
            subjects=[library.path for library in wrong],
            faults=(*(_misfit(library, loaded) for library in wrong), *faults),
        )
    if faults:
        return failed(faults[0].said, should, faults=faults)
    if hidden is not None:
        raise hidden
    if len(known) < len(found):
        nameless = next(library for library in found if library not in known)
        return unknown(f"{nameless.path} does not report its version")
    if not found:
        return unknown("the loader finds no library of the driver")
    return passed(f"kernel and libraries are {loaded}")


def _misfit(library: Library, loaded: str) -> Fault:
    """Tell a library of the driver that was exchanged from one that somebody put before it."""
    kind = "installed"
    if library.origin == "LD_LIBRARY_PATH":
        is_cuda = library.soname == _DRIVER_LIBRARIES[0]
        kind = "older-in-front" if is_cuda and is_older(library.version, loaded) else "in-front"
    said = f"{library.path} is {library.version}, the kernel runs {loaded}"
    return Fault(said=said, subject=library.path, kind=kind)


def gpu_driver_flavour(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the loaded flavour with what the facts say of each GPU on the bus, whether the driver sees it or not."""
    is_open = host.driver.is_open
    if is_open is None:
        return unknown("the record names the driver, and not which of its modules are loaded")
    flavour = "open" if is_open else "proprietary"
    against = "unsupported" if is_open else "required"
    wrong: dict[str, str] = {}
    unclear: list[str] = []
    devices = list_driven_devices(host)
    for device in devices:
        models = _find_models(host, matrix, device)
        words = {model.open_modules for model in models if model.open_modules is not None}
        if words == {against}:
            wrong[name_address(host, device.address)] = models[0].name
        elif not words or against in words:
            unclear.append(name_address(host, device.address))
    if wrong:
        needed = "proprietary" if is_open else "open"
        return failed(
            f"the {flavour} modules are loaded, and {', '.join(wrong)} works with the {needed} ones only",
            f"{needed} kernel modules",
            subjects=wrong,
            faults=[
                Fault(
                    said=f"{name} is a {model} and needs the {needed} modules; the {flavour} ones are loaded",
                    subject=name,
                    kind=f"open-{against}",
                )
                for name, model in wrong.items()
            ],
        )
    if unclear:
        return unknown(f"the facts do not say which modules {', '.join(unclear)} needs; the {flavour} ones are loaded")
    return passed(f"the {flavour} modules are loaded") if devices else unknown("no GPU is on the PCI bus")


def _find_models(host: Snapshot, matrix: Matrix, device: PciDevice) -> tuple[Gpu, ...]:
    """Return the models that a GPU can be, all of its architecture where the facts do not know its own."""
    name = architecture = None
    seen = read_or(lambda: next((gpu for gpu in host.smi.gpus if gpu.pci == device.address), None), None)
    if seen is not None:
        name, architecture = seen.name, seen.architecture
    models = find_models(matrix, name=name, device=device)
    if not models and architecture:
        family = architecture.split()[0].lower()
        models = tuple(gpu for gpu in matrix.gpus if gpu.architecture.lower() == family)
    return models


def gpu_gsp(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare the firmware of the GPU system processor with the driver; without one, or with it off, there is none."""
    version = host.find_smi_driver_version()
    return judge_field(
        host.smi.gpus,
        "gsp_firmware",
        lambda firmware: f"runs firmware {firmware}" if firmware != version else None,
        fine=f"firmware and driver are {version}",
        expected=f"firmware {version}",
    )


def gpu_vbios(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Signal]:
    """Compare every GPU with the majority of its model; where there is no majority, every host is told so."""
    outcomes: dict[str, Signal] = {}
    listed: dict[str, tuple[SmiGpu, ...]] = {}
    for name, host in hosts.items():
        try:
            listed[name] = host.smi.gpus
        except Unreadable as error:
            outcomes[name] = unknown(error.reason)
    counts: dict[str, Counter[str]] = {}
    homes: dict[str, set[str]] = {}
    for name, gpus in listed.items():
        for gpu in gpus:
            if gpu.name and gpu.vbios:
                counts.setdefault(gpu.name, Counter())[gpu.vbios] += 1
                homes.setdefault(gpu.name, set()).add(name)
    for name, gpus in listed.items():
        outcomes[name] = _judge_vbios(gpus, counts, homes)
    return outcomes


def _judge_vbios(gpus: tuple[SmiGpu, ...], counts: Mapping[str, Counter[str]], homes: Mapping[str, set[str]]) -> Signal:
    odd: dict[str, str] = {}
    usual: dict[str, str] = {}
    for gpu in gpus:
        if not gpu.name or not gpu.vbios:
            continue
        ranked = counts[gpu.name].most_common(2)
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            odd[name_gpu(gpu)] = f"has {gpu.vbios}"
            usual[gpu.name] = "one version; the hosts are split evenly"
        elif gpu.vbios != ranked[0][0]:
            odd[name_gpu(gpu)] = f"has {gpu.vbios}"
            usual[gpu.name] = f"{ranked[0][0]}, as most have"
    if odd:
        said = "; ".join(f"{name} {fault}" for name, fault in odd.items())
        return failed(said, "; ".join(dict.fromkeys(usual.values())), subjects=odd)
    silent = [gpu for gpu in gpus if not gpu.name or not gpu.vbios]
    if silent or not gpus:
        return unknown(f"{name_gpu(silent[0])} tells no VBIOS" if silent else "nvidia-smi lists no GPU")
    if all(len(homes[gpu.name]) < 2 for gpu in gpus if gpu.name):
        return skipped("no other host has such a GPU")
    return passed(f"{', '.join(sorted({gpu.vbios for gpu in gpus if gpu.vbios}))}, as on the other hosts")


_ENROL = (
    "Enrol the key that signs the module (`mokutil --import MOK.der`, confirmed at the console on the next boot), or "
    "install the distribution's signed module packages."
)


def host_secureboot(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask for the state, and where it is on, for proof that the kernel takes the module."""
    state = host.secure_boot
    is_enforced = _enforces_signatures(host)
    on = "module.sig_enforce is set" if is_enforced else "Secure Boot is on"
    if not is_enforced:
        if state.is_enabled is None:
            return skipped("the machine has no Secure Boot")
        if not state.is_enabled or state.is_setup_mode:
            return passed(
                "Secure Boot is off" if not state.is_enabled else "Secure Boot is in setup mode and lets all load"
            )
    module = host.nvidia_module
    if module.disk_version is not None and not module.signer:
        said = f"{on} and the nvidia module is unsigned"
        is_sure = module.signer == "" and module.loaded_version is None
        return failed(
            said, "a signed module", remedy=_ENROL, faults=[Fault(said=said, certainty="high" if is_sure else "medium")]
        )
    signed = f", the module signed by {module.signer}" if module.signer else ""
    if module.loaded_version is not None:
        return passed(f"{on}{signed} and loaded")
    refused = read_or(lambda: read_events(host, "module-key-rejected"), ())
    if refused:
        return failed(
            f"{on}{signed}, and the kernel refused its key: {refused[-1].text}",
            "a module signed with an enrolled key",
            remedy=_ENROL,
        )
    return unknown(f"{on}{signed} and not loaded; whether the key is enrolled shows only then")


def _enforces_signatures(host: Snapshot) -> bool:
    """Tell whether the kernel takes signed modules only, whatever the firmware says."""
    return read_or(lambda: "module.sig_enforce" in host.command_line, False)
