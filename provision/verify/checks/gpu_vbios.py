"""GPUs of one model have one VBIOS on all hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import name_gpu
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["compare"]


def compare(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Outcome]:
    """Compare every GPU with the majority of its model; where there is no majority, every host is told so."""
    del expected, matrix
    outcomes: dict[str, Outcome] = {}
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
        outcomes[name] = _judge(gpus, counts, homes)
    return outcomes


def _judge(gpus: tuple[SmiGpu, ...], counts: Mapping[str, Counter[str]], homes: Mapping[str, set[str]]) -> Outcome:
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
