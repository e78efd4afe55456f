"""How the GPUs are joined: NVLink, its switches, peer access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.matrix.load import Matrix
from provision.matrix.query import find_layout, gpu_ids
from provision.probe.gpus import has_visible_nvswitch
from provision.probe.output import Unreadable
from provision.probe.parse.nvlink import NvlinkCounters
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.gpus import FieldReading, is_field_told, judge_gpus, read_field
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown
from provision.signals.work import name_index


def nvlink_active(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare number and speed of the links with the board; without a known board, a GPU's links with each other."""
    gpus = host.smi.gpus
    states = {state.gpu: state.links for state in host.nvlinks}
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    if not any(states.values()) and not any(find_layout(matrix, gpu.name) for gpu in gpus):
        return skipped("no GPU here has NVLink")
    faults: list[Fault] = []
    unlisted: list[str] = []
    seen: set[tuple[int, float]] = set()
    most = max((sum(speed is not None for speed in links.values()) for links in states.values()), default=0)
    for index, gpu in enumerate(gpus):
        if gpu.mig_current:
            continue
        if index not in states and states:
            unlisted.append(name_index(host, index))
            continue
        links = states.get(index, {})
        active = [speed for speed in links.values() if speed is not None]
        layout = find_layout(matrix, gpu.name)
        count = layout.links if layout is not None else len(links) if active else 0
        # Tools round the speed in several ways, so whole GB/s are compared.
        slow = [speed for speed in active if layout is not None and int(speed) < int(layout.gb_s_per_link)]
        name = name_index(host, index)
        if len(active) < count:
            said = f"{name} has {len(active)} of {count} NVLinks{_list_inactive(links)}"
            certainty = "high" if len(active) < most else "medium"
            faults.append(Fault(said=said, subject=name, kind="inactive", certainty=certainty))
        elif slow and layout is not None:
            said = f"{name} has {len(slow)} NVLinks at {min(slow):g} of {layout.gb_s_per_link:g} GB/s"
            faults.append(Fault(said=said, subject=name, kind="slow"))
        elif active:
            seen.add((len(active), min(active)))
    if faults:
        should = {
            f"{row.links} links of {row.gb_s_per_link:g} GB/s" for gpu in gpus if (row := find_layout(matrix, gpu.name))
        }
        return faulty(faults, " or ".join(sorted(should)) or "all links of a GPU active")
    if unlisted:
        return unknown(f"nvidia-smi lists no NVLink of {', '.join(unlisted)}, and those of others")
    if not seen:
        return skipped("no bridge joins the GPUs, or MIG divides them")
    return passed("each GPU has " + " or ".join(f"{count} links of {speed:g} GB/s" for count, speed in sorted(seen)))


def _list_inactive(links: Mapping[int, float | None]) -> str:
    down = [str(link) for link, speed in links.items() if speed is None]
    return f" (inactive: {', '.join(down)})" if down else ""


_COUNTERS = ("replay", "recovery")
_TRAFFIC = ("torch-nccl", "nvbandwidth", "nccl-tests")
"""What sends over NVLink; without any of it a second reading says nothing."""
_LOOK_AGAIN = "The counters run since the driver was loaded: `--level standard` tells whether they still rise."


def nvlink_errors(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look at the counters that stay at zero on a sound link; single CRC errors are repaired by design."""
    states = [state for state in host.nvlink_errors if state.links]
    before = _count_errors(states) if host.has("nvlink-errors-later") and any(map(host.has, _TRAFFIC)) else {}
    if before:
        states = [state for state in host.nvlink_errors_later if state.links]
        after = _count_errors(states)
        if any(after.get(place, -1) < count for place, count in before.items()):
            return unknown("the counters were reset, or links went missing, while the GPUs worked")
    gpus = host.smi.gpus
    if not gpus:
        return unknown("nvidia-smi lists no GPU")
    built = {index for index, gpu in enumerate(gpus) if find_layout(matrix, gpu.name) and not gpu.mig_current}
    if not states and not built:
        return skipped("no GPU here has NVLink")
    least = {counter: matrix.limit(f"nvlink.{counter}-errors") for counter in _COUNTERS}
    certainty = "medium" if before else "low"
    faults = [
        Fault(said=f"{name} link {link}: {count} {counter} errors", subject=name, kind="errors", certainty=certainty)
        for state in states
        for name in [name_index(host, state.gpu)]
        for link, counters in state.links.items()
        for counter in _COUNTERS
        if (count := counters.get(counter, 0) - before.get((state.gpu, link, counter), 0)) >= least[counter]
    ]
    if faults:
        should = "no replay and no recovery while the GPUs worked" if before else "no replay and no recovery"
        return faulty(faults, should, remedy="" if before else _LOOK_AGAIN)
    if silent := sorted(built - {state.gpu for state in states}):
        names = ", ".join(name_index(host, index) for index in silent)
        return unknown(f"nvidia-smi counts no errors of the NVLinks of {names}")
    if not any(counter in counters for state in states for counters in state.links.values() for counter in _COUNTERS):
        return skipped("this driver counts neither replays nor recoveries")
    if old := sum(before.values()):
        said = f"{old} replays and recoveries since the driver was loaded, none more while the GPUs worked"
        return passed(said, faults=[Fault(said=f"the NVLinks had {said}", kind="errors", certainty="low")])
    return passed(f"no replay and no recovery on the links of {len(states)} GPUs")


def _count_errors(states: Sequence[NvlinkCounters]) -> dict[tuple[int, int, str], int]:
    return {
        (state.gpu, link, counter): counters.get(counter, 0)
        for state in states
        for link, counters in state.links.items()
        for counter in _COUNTERS
    }


_DENIALS = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "DR": "the driver's settings forbid it",
    "NS": "it is not supported",
}
_PAIRS_SHOWN = 6


def topo_p2p(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask for peer access where it is planned, or where the board is built for it."""
    wanted = expected.needs_p2p
    if wanted is None:
        gpus = host.smi.gpus
        wanted = bool(gpus) and all(find_layout(matrix, gpu.name) for gpu in gpus)
    if not wanted:
        return skipped("no plan asks the GPUs to read each other's memory")
    links = {pair: word for pair, word in host.p2p.links.items() if pair[0] != pair[1]}
    denied = {pair: word for pair, word in links.items() if word in _DENIALS}
    if denied:
        pairs = [f"{a} to {b}: {word} ({_DENIALS[word]})" for (a, b), word in denied.items()]
        more = f"; {len(pairs) - _PAIRS_SHOWN} more pairs" if len(pairs) > _PAIRS_SHOWN else ""
        return failed(
            "; ".join(pairs[:_PAIRS_SHOWN]) + more,
            "OK between every pair",
            subjects=dict.fromkeys(a for a, _ in denied),
        )
    odd = [(pair, word) for pair, word in links.items() if word != "OK"]
    if odd:
        (a, b), word = odd[0]
        return unknown(f"nvidia-smi says `{word}` of {a} and {b}")
    if not links:
        return unknown("nvidia-smi lists no pair of GPUs")
    count = len(host.smi.gpus)
    if len(links) < count * (count - 1):
        return unknown(f"nvidia-smi lists {len(links)} pairs of {count} GPUs")
    return passed(f"all {len(links)} pairs can")


_FABRIC_MANAGER = "nvidia-fabricmanager"


def fabric_manager(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look at the unit first, then at the version: another one refuses to bring the NVSwitches up."""
    if host.virtualization.is_virtual_machine and not has_visible_nvswitch(host):
        return skipped("the switches are not handed to this virtual machine, and its host manages them")
    unit = host.units.get(_FABRIC_MANAGER)
    driver = host.driver.version
    should = f"`{_FABRIC_MANAGER}` {driver}, active"
    try:
        version = host.fabric_manager.version
        silence = " and does not report its version"
    except Unreadable as error:
        version, silence = None, f"; {error.reason}"
    faults = []
    if unit is None or not unit.is_installed:
        return faulty([Fault(said="fabric manager is not installed", subject=_FABRIC_MANAGER, kind="absent")], should)
    if not unit.is_active:
        why = f" ({unit.result})" if unit.result not in ("", "success") else ""
        said = f"`{_FABRIC_MANAGER}` is {unit.active}{why}"
        faults.append(Fault(said=said, subject=_FABRIC_MANAGER, kind="stopped"))
    if version not in (None, driver):
        said = f"fabric manager is {version}, the driver {driver}"
        faults.append(Fault(said=said, subject=_FABRIC_MANAGER, kind="version"))
    if faults:
        return faulty(faults, should)
    if version is None:
        return unknown(f"`{_FABRIC_MANAGER}` is active{silence}")
    return passed(f"`{_FABRIC_MANAGER}` {version} is active")


_IMEX = "nvidia-imex"


def fabric_imex(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask for the unit where the facts say that GPUs of this model are built for it."""
    names = {gpu.name for gpu in host.smi.gpus}
    if not names:
        return unknown("nvidia-smi lists no GPU")
    ids = {id_ for name in names for id_ in gpu_ids(matrix, name)}
    if not any(gpu.fabric_manager == "imex" for gpu in matrix.gpus if gpu.id in ids):
        return skipped("these GPUs share no memory between nodes")
    unit = host.units.get(_IMEX)
    if unit is None or not unit.is_installed:
        return failed(f"`{_IMEX}` is not installed", "active", subjects=[_IMEX])
    if not unit.is_active:
        return failed(f"`{_IMEX}` is {unit.active}", "active", subjects=[_IMEX])
    return passed(f"`{_IMEX}` is active")


def fabric_state(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask each GPU for its registration with fabric manager, and for what it says of it."""
    readings = [
        FieldReading(
            gpu, None if value is None else value.lower() == fine, f"has the fabric {what} `{value}`", absence, field
        )
        for gpu in host.smi.gpus
        for field, what, fine in (("fabric_state", "state", "completed"), ("fabric_status", "status", "success"))
        for value, absence in [read_field(gpu, field)]
    ]
    return judge_gpus(
        readings,
        fine="every GPU has joined the fabric",
        expected="state Completed, status Success",
        is_told=is_field_told(host.smi, matrix, "fabric"),
    )
