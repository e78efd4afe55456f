"""The driver is loaded, and a program cannot reach it: nodes below /dev are missing or closed."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.probe.parse.system import DeviceNode

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"could not open the device file /dev/nvidia",
    r"/dev/nvidia(?:ctl|[0-9]{1,3})\b.{0,60}(?:No such file or directory|ENOENT)",
)

_CONTROL = "/dev/nvidiactl"
_GPU_NODE = re.compile(r"/dev/nvidia(?:ctl|[0-9]{1,3})")
_WORLD = 0o006
_GROUP = 0o060
_EXPECTED = f"{_CONTROL} and a node for every GPU, open to everybody or to a group"
_LISTING = "which nodes there are: `ls -l /dev/nvidia*`"


def examine(case: Case) -> Sign | None:
    """Compare the nodes with the GPUs the module serves; a container has those of the GPUs it was given."""
    quote = case.find(*SYMPTOMS)
    nodes = case.look(lambda host: host.device_nodes)
    driver = case.look(lambda host: host.driver)
    where = case.look(lambda host: host.virtualization)
    if nodes is None or (where is not None and where.kind == "wsl"):
        return hint(quote, expected=_EXPECTED, unseen=(_LISTING,))
    if driver is None:
        # A sandbox shows no kernel module, so that only what stands in the place of a node can be told.
        replaced = [node for node in nodes if _GPU_NODE.fullmatch(node.path) and node.kind != "character"]
        if not replaced:
            return hint(quote, expected=_EXPECTED, unseen=(_LISTING,))
        return Sign(
            confidence="high",
            seen=(*(_describe(node) for node in replaced), *quoted(quote)),
            expected=_EXPECTED,
            subjects=tuple(node.path for node in replaced),
        )
    known = {node.path: node for node in nodes}
    is_container = where is not None and where.is_container
    wanted = [*(f"/dev/nvidia{minor}" for minor in _minors(case, is_container=is_container)), _CONTROL]
    missing = [path for path in wanted if path not in known]
    closed = [path for path in wanted if path in known and not _can_be_opened(known[path])]
    if not missing and not closed:
        # What complains may run in a container with a /dev of its own.
        unseen = (f"{_LISTING}, where the program runs",)
        return hint(quote, confidence="low", seen=("the nodes are there",), expected=_EXPECTED, unseen=unseen)
    seen = [f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"] if missing else []
    seen += [_describe(known[path]) for path in closed]
    # A plain container on such a host has none of them, and need not have.
    is_plain = is_container and not any(path.startswith("/dev/nvidia") for path in known) and quote is None
    return Sign(
        confidence="low" if is_plain else "high",
        seen=(f"the driver {driver.version} is loaded", *seen, *quoted(quote)),
        expected=_EXPECTED,
        subjects=(*missing, *closed),
    )


def _minors(case: Case, *, is_container: bool) -> list[int]:
    """Return the numbers of the nodes; the module's list may hold GPUs that a container was not given."""
    told = {gpu.minor for gpu in smi_gpus(case) if gpu.minor is not None}
    if not is_container:
        listed = case.look(lambda host: host.driver_gpus) or ()
        told = {gpu.minor for gpu in listed if gpu.minor is not None and not gpu.is_excluded} or told
    return sorted(told)


def _can_be_opened(node: DeviceNode) -> bool:
    if node.mode is None:
        return True
    is_grouped = node.mode & _GROUP == _GROUP and node.group not in (None, "0", "root")
    return node.kind == "character" and (node.mode & _WORLD == _WORLD or is_grouped)


def _describe(node: DeviceNode) -> str:
    if node.kind != "character":
        return f"{node.path} is a {node.kind} and no device"
    return f"{node.path} has mode {node.mode or 0:04o}, owner {node.owner}, group {node.group}"
