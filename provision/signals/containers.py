"""What containers need to get GPUs: runtime, devices, rights, shared memory."""

from __future__ import annotations

import re

from provision.errors import first_of
from provision.matrix.load import Matrix
from provision.probe.output import ABSENT, FAILED, NOT_RUN, Unreadable, read_or
from provision.probe.parse.system import DeviceNode
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.frameworks import loaded_driver
from provision.signals.gpus import list_gpu_devices
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown
from provision.signals.work import count_gpus, counted

_RUNTIME = "nvidia"
_CDI_KIND = "nvidia.com/gpu"


def ctr_runtime(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the runtime in the engines' configurations and for a CDI specification, and hold that to the driver."""
    engines: dict[str, bool] = {}
    silent: list[str] = []
    for name, ask in (("docker", "docker"), ("docker", "docker_info"), ("containerd", "containerd")):
        try:
            runtimes = getattr(host, ask).runtimes
        except Unreadable as error:
            if error.status not in ("absent", "not-run"):
                silent.append(error.reason)
            continue
        engines[name] = engines.get(name, False) or any(runtime.startswith(_RUNTIME) for runtime in runtimes)
    registered = [name for name, has_runtime in engines.items() if has_runtime]
    try:
        specs = [spec for spec in host.cdi if spec.kind == _CDI_KIND]
    except Unreadable as error:
        specs = []
        if error.status not in ("absent", "not-run"):
            silent.append(error.reason)
    driver = loaded_driver(host)
    stale = [
        spec for spec in specs if spec.driver_versions and driver is not None and driver not in spec.driver_versions
    ]
    is_needed = not registered and len(stale) == len(specs)
    faults = [
        Fault(
            said=f"{spec.path} is of driver {spec.driver_versions[0]}, {driver} is loaded",
            subject=spec.path,
            kind="stale",
            certainty="high" if is_needed else "low",
        )
        for spec in stale
    ]
    if registered:
        aside = f"; {stale[0].path} is of driver {stale[0].driver_versions[0]}" if stale else ""
        said = f"{' and '.join(registered)} {'have' if len(registered) > 1 else 'has'} the runtime `nvidia`{aside}"
        return passed(said, faults=faults)
    if stale and is_needed:
        return failed(
            faults[0].said,
            f"a CDI specification of {driver}",
            subjects=[spec.path for spec in stale],
            remedy="Write it again: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
            faults=faults,
        )
    if specs:
        return passed(f"{specs[0].path} describes {len(specs[0].devices)} devices", faults=faults)
    if silent:
        return unknown(silent[0])
    known = " and ".join(sorted(engines)) or "no container engine"
    missing = (
        f"{known} {'know' if len(engines) > 1 else 'knows'} no runtime `nvidia`"
        if engines
        else "no engine is configured"
    )
    said = f"{missing}, and there is no CDI specification"
    fault = Fault(said=said, kind="none", certainty="low")
    return failed(said, "the runtime `nvidia`, or a CDI specification", faults=[fault])


def ctr_gpu(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count what nvidia-smi lists inside a container."""
    output = host.output("container-gpu")
    if output.status in (ABSENT, NOT_RUN):
        if expected.container_image is not None:
            lines = [line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()]
            said = lines[0][:300] if lines else "no engine, or the image is not on the target"
            return unknown(f"no container could be started from the planned `{expected.container_image}`: {said}")
        return skipped("no container could be started: no engine, or no image on the target")
    count = count_gpus(host, expected)
    should = counted(count, "GPU") if count else "a GPU"
    if output.status == FAILED:
        said = next((line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()), "no word")
        return failed(f"the container ended with {output.code}: {said[:300]}", should)
    found = [line for line in host.container_gpus if line.startswith("GPU ")]
    if not found:
        return failed("the container lists no GPU", should)
    if count is not None and len(found) < count:
        return failed(f"the container lists {len(found)} of {count} GPUs", should)
    return (
        passed(f"the container lists {counted(len(found), 'GPU')}")
        if count
        else unknown(f"{len(found)} GPUs, and no plan says how many")
    )


def ctr_daemon_reload(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Count what nvidia-smi lists inside the container afterwards."""
    if expected.is_in_use:
        return skipped("the GPUs are in use, and a reload could take them from running containers")
    output = host.output("daemon-reload")
    if output.status == ABSENT and expected.container_image is not None:
        return unknown(f"no container could be started from the planned `{expected.container_image}`")
    if output.status in (ABSENT, NOT_RUN):
        return skipped("no container could be started: no engine, or no image on the target")
    count = count_gpus(host, expected)
    should = counted(count, "GPU") if count else "a GPU"
    if output.status == FAILED:
        said = next((line.strip() for line in f"{output.error}\n{output.text}".splitlines() if line.strip()), "no word")
        return failed(f"nvidia-smi in the container ended with {output.code} after the reload: {said[:300]}", should)
    found = [line for line in host.daemon_reload if line.startswith("GPU ")]
    if not found or (count is not None and len(found) < count):
        said = f"the container lists {counted(len(found), 'GPU')} after the reload"
        return failed(said, should)
    return passed(f"the container still lists {counted(len(found), 'GPU')}")


def ctr_cgroup(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the one unlucky mixture: systemd's control groups, devices given the old way, no links in /dev/char."""
    if (mode := _toolkit_mode(host)) == "cdi":
        return passed("the toolkit gives devices by CDI")
    drivers = _cgroup_drivers(host)
    if drivers and "systemd" not in drivers:
        return passed(f"the control-group driver is {', '.join(sorted(drivers))}")
    nodes = host.device_nodes
    links = [node for node in nodes if node.path.startswith("/dev/char/") and "nvidia" in (node.target or "")]
    if links:
        return passed(f"/dev/char has {len(links)} links to the GPUs' devices")
    if not drivers:
        return unknown("which control-group driver containers get is not known, and /dev/char has no link to a GPU")
    said = f"control groups are systemd's, the toolkit's mode is {mode or 'its default'}, and /dev/char links to no GPU"
    return failed(said, "links in /dev/char, or CDI", faults=[Fault(said=said, certainty="low")])


def _toolkit_mode(host: Snapshot) -> str | None:
    return read_or(lambda: host.toolkit_config.mode, None)


def _cgroup_drivers(host: Snapshot) -> set[str]:
    for ask in ("docker_info", "docker"):
        try:
            driver = getattr(host, ask).cgroup_driver
        except Unreadable:
            continue
        if driver:
            return {driver}
    try:
        has_systemd = host.containerd.has_systemd_cgroup
    except Unreadable:
        return set()
    return set() if has_systemd is None else {"systemd" if has_systemd else "cgroupfs"}


_SHM_SIZE = re.compile(r"([0-9]{1,12})\s*([bkmgt]?)i?b?", re.IGNORECASE)
_EXPONENTS = {"b": 0, "": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SHM = "/dev/shm"  # noqa: S108 - it is looked at, nothing is written there


def ctr_shm(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Measure /dev/shm inside a container; on a host, read what docker gives when nobody asks."""
    count = count_gpus(host, expected)
    if count is None:
        return unknown("how many GPUs there are is not known")
    full = _find_full_shm(host, matrix.limit("ctr.shm-used"))
    if full is not None:
        said = f"{_SHM} is {full} % full"
        fault = Fault(said=said, kind="full", certainty="medium")
        return failed(said, "room in the shared memory that NCCL and data loaders use", faults=[fault])
    least_gib = matrix.limit("ctr.shm-per-gpu") * count
    if host.virtualization.is_container:
        sizes = (_mounted_shm_kib(host), host.limits.get("shm_kib"))
        size_kib = min((size for size in sizes if size is not None), default=None)
        if size_kib is None:
            return unknown("the size of /dev/shm is not known")
        where, size_gib = "the container's shared memory", size_kib / 2**20
    else:
        text = _default_shm(host)
        if text is None:
            return skipped("each container is given its own, and docker's configuration sets no default")
        size = _SHM_SIZE.fullmatch(text.strip())
        if size is None:
            return unknown(f"docker's default for shared memory reads `{text}`")
        where, size_gib = "docker's default", int(size[1]) * 1024 ** _EXPONENTS[size[2].lower()] / 2**30
    said = f"{where} is {size_gib:.3g} GiB for {count} GPU{'s' if count != 1 else ''}"
    if size_gib < least_gib:
        # It is no fault until something runs out of it.
        return failed(said, f"{least_gib:g} GiB or more", faults=[Fault(said=said, kind="small", certainty="low")])
    return passed(said)


def _mounted_shm_kib(host: Snapshot) -> int | None:
    return read_or(lambda: next((system.size_kib for system in host.file_systems if system.mount == _SHM), None), None)


def _find_full_shm(host: Snapshot, percent_max: float) -> int | None:
    """Return how full /dev/shm is where that is too full; where nobody tells, its size is judged alone."""
    try:
        systems = host.file_systems
    except Unreadable:
        return None
    for system in systems:
        if system.mount == _SHM and system.size_kib and system.used_kib * 100 >= system.size_kib * percent_max:
            return system.used_kib * 100 // system.size_kib
    return None


def _default_shm(host: Snapshot) -> str | None:
    try:
        return host.docker.default_shm_size
    except Unreadable as error:
        if error.status == "absent":
            return None
        raise


_GPU_NODE = re.compile(r"/dev/nvidia(?:ctl|[0-9]{1,3})")
_UVM = "/dev/nvidia-uvm"
_SHARED_NODES = ("/dev/nvidiactl", _UVM)
_WORLD = 0o006
_GROUP = 0o060


def gpu_devnodes(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for nvidiactl, nvidia-uvm and a node a GPU, readable and writable by everybody or by a group."""
    if host.virtualization.kind == "wsl":
        return skipped("WSL reaches its GPUs through another device")
    nodes = {node.path: node for node in host.device_nodes}
    replaced = [node for path, node in nodes.items() if _GPU_NODE.fullmatch(path) and node.kind != "character"]
    try:
        minors = _minors(host)
    except Unreadable:
        if not replaced:
            raise
        minors = []
    if replaced and not minors:
        faults = [_fault_of_node(host, node.path, _say_closed(node)) for node in replaced]
        return faulty(faults, "all nodes, open to everybody or to a group")
    if not minors:
        return unknown("nothing tells how many GPUs there are")
    wanted = [*(f"/dev/nvidia{minor}" for minor in minors), *_SHARED_NODES]
    missing = [path for path in wanted if path not in nodes]
    closed = [path for path in wanted if path in nodes and not _can_be_opened(nodes[path])]
    if missing or closed:
        said = [f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"] if missing else []
        said += [_say_closed(nodes[path]) for path in closed]
        is_plain = host.virtualization.is_container and not any(path.startswith("/dev/nvidia") for path in nodes)
        faults = [_fault_of_node(host, path, f"{path} is missing", is_plain=is_plain) for path in missing]
        faults += [_fault_of_node(host, path, _say_closed(nodes[path])) for path in closed]
        should = "all nodes, open to everybody or to a group"
        return failed("; ".join(said), should, subjects=[*missing, *closed], faults=faults)
    unclear = [path for path in wanted if nodes[path].mode is None]
    if unclear:
        return unknown(f"the mode of {unclear[0]} is not known")
    return passed(f"{len(wanted)} nodes for {len(minors)} GPUs, nvidiactl and nvidia-uvm included")


def _fault_of_node(host: Snapshot, path: str, said: str, *, is_plain: bool = False) -> Fault:
    """Return a fault; on a host the first program makes the node for unified memory, and a plain container has none."""
    if path == _UVM:
        certainty = "medium" if host.virtualization.is_container else "low"
        return Fault(said=said, subject=path, kind="uvm", certainty=certainty)
    # Without the driver there are no nodes; what stands in the place of one is a fault all the same.
    is_sure = "no device" in said or (host.has("driver-version") and not is_plain)
    return Fault(said=said, subject=path, kind="node", certainty="high" if is_sure else "low")


def _say_closed(node: DeviceNode) -> str:
    if node.kind != "character":
        return f"{node.path} is a {node.kind} and no device"
    return f"{node.path} has mode {node.mode or 0:04o} and belongs to root"


def _minors(host: Snapshot) -> list[int]:
    """Return the numbers of the GPUs' nodes.

    The kernel module knows them best; in a container its list may hold the GPUs of others, and nvidia-smi's does not.
    """
    readers = [_minors_of_module, _minors_of_smi]
    for read in reversed(readers) if host.virtualization.is_container else readers:
        try:
            if found := read(host):
                return sorted(found)
        except Unreadable:
            continue
    return list(range(len(list_gpu_devices(host))))


def _minors_of_module(host: Snapshot) -> list[int]:
    return [gpu.minor for gpu in host.driver_gpus if gpu.minor is not None and not gpu.is_excluded]


def _minors_of_smi(host: Snapshot) -> list[int]:
    return [gpu.minor for gpu in host.smi.gpus if gpu.minor is not None]


def _can_be_opened(node: DeviceNode) -> bool:
    mode = node.mode
    if mode is None:
        return True
    is_grouped = mode & _GROUP == _GROUP and node.group not in (None, "0", "root")
    return node.kind == "character" and (mode & _WORLD == _WORLD or is_grouped)


_LINKED = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)")
_LINKS_SHOWN = 4


def gpu_devchar(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare devices that containers compute through with links; with cgroupfs or CDI these do not matter."""
    if (why := _why_links_do_not_matter(host)) is not None:
        return skipped(why)
    nodes = host.device_nodes
    devices = [node for node in nodes if _LINKED.fullmatch(node.path) and node.major is not None]
    if not devices:
        return unknown("no device node of the driver is there")
    links = {node.path for node in nodes if node.path.startswith("/dev/char/")}
    missing = [f"/dev/char/{node.major}:{node.minor}" for node in devices if node.minor is not None]
    missing = [path for path in missing if path not in links]
    if missing:
        shown = first_of(missing, _LINKS_SHOWN)
        return failed(f"{shown} of {len(devices)} links missing", "a link for each device node", subjects=missing)
    return passed(f"all {len(devices)} links are there")


def _why_links_do_not_matter(host: Snapshot) -> str | None:
    for probe in ("docker_info", "docker"):
        try:
            driver = getattr(host, probe).cgroup_driver
        except Unreadable:
            continue
        if driver == "cgroupfs":
            return "containers get their device rights from cgroupfs, not from systemd"
    try:
        if host.toolkit_config.mode == "cdi" and host.cdi:
            return "containers get their GPUs through CDI"
    except Unreadable:
        pass
    return None
