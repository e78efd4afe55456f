"""A machine that flags describe to `provision tune`, where none can be looked at."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from provision.cli.number import number, whole
from provision.cli.parser import add_choice, add_switch, add_value
from provision.cli.targets import has_targets
from provision.cli.tune.situation import FAST_MBIT
from provision.errors import UsageError
from provision.generate.tuning import Situation

UNTOLD = "limits, bridges, RDMA ports that are not in use and whose machine it is"
"""What a description does not tell; settings that follow from it are left out."""

_FLAGS = ("gpus", "cpus", "numa_nodes", "interconnect", "network_gbit", "container")
_RDMA = ("ib", "efa", "rdma")
_INTERCONNECTS = (*_RDMA, "ethernet")
_GPUS_MAX, _CPUS_MAX, _NUMA_NODES_MAX, _GBIT_MAX = 1024, 65_536, 1024, 100_000
_MBIT_OF_GBIT = 1000


def add_machine_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe a machine."""
    group = parser.add_argument_group("description of a machine, instead of a target")
    for name, most, text in (
        ("--gpus", _GPUS_MAX, "number of GPUs"),
        ("--cpus", _CPUS_MAX, "number of CPUs, as printed by `nproc`"),
        ("--numa-nodes", _NUMA_NODES_MAX, "number of NUMA nodes, as printed by `lscpu`"),
    ):
        add_value(group, name, "N", text, whole(name, 1, most))
    add_choice(group, "--interconnect", _INTERCONNECTS, help="network between machines; the first three are RDMA")
    add_value(
        group,
        "--network-gbit",
        "N",
        "speed of the fastest network interface in Gbit/s",
        number("--network-gbit", 0, _GBIT_MAX, is_above=True, example="100"),
    )
    add_switch(group, "--container", "the job runs in a container")


def is_described(options: argparse.Namespace) -> bool:
    """Tell whether the flags describe a machine.

    Raises:
        UsageError: They name a target or a bundle too, or processors without the GPUs that share them.
    """
    given = [name for name in _FLAGS if getattr(options, name)]
    if not given:
        return False
    flag = f"--{given[0].replace('_', '-')}"
    if has_targets(options):
        raise UsageError(
            f"{flag} describes a machine, and another one is named",
            because=("what a machine has is read from it",),
            hints=(f"leave out {flag}, or the target",),
        )
    for name in ("cpus", "numa_nodes"):
        if getattr(options, name) and options.gpus is None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} needs the GPUs that share them", hints=("add them: `--gpus N`",))
    if options.cpus is not None and options.cpus < options.gpus:
        raise UsageError(
            f"--cpus {options.cpus} are fewer than --gpus {options.gpus}",
            hints=("count processors as `nproc` does, of the whole machine",),
        )
    return True


def situation_of_description(
    options: argparse.Namespace, libraries: Mapping[str, str], asked: frozenset[str]
) -> Situation:
    """Return what flags tell of a machine; what they do not tell does not hold, and neither does its opposite.

    Args:
        options: The flags.
        libraries: Library → version, from a lock.
        asked: Conditions of the job.
    """
    facts = {*asked, "container" if options.container else "node"}
    values: dict[str, str] = {}
    if options.interconnect is not None:
        facts.add("rdma" if options.interconnect in _RDMA else "no-rdma")
    if options.network_gbit is not None and options.network_gbit * _MBIT_OF_GBIT >= FAST_MBIT:
        facts.add("100g")
        values["fast_interfaces"] = f"its interfaces of {options.network_gbit:g} Gbit/s"
    if options.cpus is not None:
        facts.add("cpus")
        values["cpus_per_gpu"] = str(options.cpus // options.gpus)
    if (options.numa_nodes or 1) > 1 and options.gpus > 1:
        facts.add("affinity")
        values["affinity"] = "each GPU on the processors of its NUMA node"
    return Situation(libraries=dict(libraries), facts=frozenset(facts), values=values)
