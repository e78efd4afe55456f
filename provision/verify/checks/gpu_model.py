"""The GPUs are of the planned model."""

from __future__ import annotations

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus, normalise_gpu
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import FieldReading, find_device, find_models, judge_gpus, read_field
from provision.verify.outcome import Outcome, skipped, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare as models of the facts, so that any spelling of the plan will do.

    A name that the facts do not know is compared letter by letter.
    """
    if expected.gpu is None:
        return skipped("no model is planned")
    try:
        wanted = find_gpus(matrix, expected.gpu)
    except ProvisionError:
        wanted = ()
    readings = []
    for gpu in host.smi.gpus:
        name, absence = read_field(gpu, "name")
        if name is None:
            readings.append(FieldReading(gpu, None, "", absence or "broken"))
            continue
        models = find_models(matrix, name=name, device=find_device(host, gpu.pci))
        if normalise_gpu(name) == normalise_gpu(expected.gpu) or any(model in wanted for model in models):
            readings.append(FieldReading(gpu, True, ""))
        elif wanted and models:
            readings.append(FieldReading(gpu, False, f"is {name}"))
        else:
            unfamiliar = name if wanted else expected.gpu
            return unknown(
                f"the facts know no GPU called {unfamiliar}, so {name} and {expected.gpu} cannot be compared"
            )
    names = sorted({gpu.name for gpu in host.smi.gpus if gpu.name})
    return judge_gpus(readings, fine=", ".join(names), expected=expected.gpu)
