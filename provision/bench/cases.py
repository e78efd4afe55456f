"""Which workloads there are: the test matrix, and parts of it that say nearly as much in less time."""

from __future__ import annotations

from itertools import product

from provision.errors import UsageError
from provision.records import plain, record

SUITES = ("quick", "standard", "full")
KINDS = ("gemm", "copy", "stream", "cnn", "rnn", "transformer", "loader", "allreduce")
_NETWORKS = ("cnn", "rnn", "transformer")
_SIZES = {"cnn": (224, 512, 1024), "rnn": (64, 128, 256), "transformer": (128, 512, 2048)}
_BATCHES = (32, 128, 512, 2048)
_MIB = 2**20
_FRACTION = 6


@record
class Case:
    """One workload.

    ``size`` is the edge of matrices or images, the steps of a sequence, or the bytes that are moved. ``mode`` is
    ``train`` or ``infer``, of a copy ``device``, ``h2d`` or ``d2h``, else empty.
    """

    id: str
    kind: str
    size: int
    precision: str
    batch: int = 1
    optimizer: str = "sgd"
    mode: str = ""
    workers: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the case as plain data."""
        document: dict[str, object] = plain(self)
        return document


def choose(suite: str, device: str, only: tuple[str, ...] = ()) -> tuple[Case, ...]:
    """Return the cases of a suite, in the order they are run.

    Args:
        suite: ``quick`` ends within minutes on any machine. ``standard`` is a sixth of the networks' whole product of
            batch, size, optimizer and precision, in which every pair of two values still occurs (a Latin design);
            ``full`` is the product.
        device: ``cuda`` or ``cpu``; a CPU is spared what it cannot do.
        only: Kinds to keep; all where empty.

    Raises:
        UsageError: A kind that does not exist, or none left.
    """
    for kind in only:
        if kind not in KINDS:
            raise UsageError(f"no kind of workload `{kind}`", hints=(f"choose among {', '.join(KINDS)}",))
    cases = [*_micro(suite, device), *_networks(suite, device), *_rest(suite)]
    chosen = tuple(case for case in cases if not only or case.kind in only)
    if not chosen:
        raise UsageError(f"the suite `{suite}` has nothing of {', '.join(only)}")
    return chosen


def _micro(suite: str, device: str) -> list[Case]:
    is_gpu = device == "cuda"
    precisions: tuple[str, ...] = ("bf16", "fp16", "tf32", "fp32") if is_gpu else ("fp32", "bf16")
    sizes: tuple[int, ...] = (1024, 2048, 4096, 8192) if is_gpu else (256, 512, 1024)
    if suite == "quick":
        precisions, sizes = precisions[:2], sizes[-2:] if is_gpu else sizes[:2]
    moved = (1024 if is_gpu else 64) * _MIB
    cases = [
        Case(id=f"gemm/{size}/{precision}", kind="gemm", size=size, precision=precision)
        for precision, size in product(precisions, sizes)
    ]
    cases += [
        Case(id=f"copy/{mode}", kind="copy", size=moved, precision="fp32", mode=mode)
        for mode in (("device", "h2d", "d2h") if is_gpu else ("device",))
    ]
    cases.append(Case(id="stream/fp32", kind="stream", size=moved, precision="fp32"))
    return cases


def _networks(suite: str, device: str) -> list[Case]:
    is_gpu = device == "cuda"
    if suite == "quick":
        batch = 32 if is_gpu else 2
        precision = "bf16" if is_gpu else "fp32"
        sizes = {"cnn": 224 if is_gpu else 64, "rnn": 64 if is_gpu else 16, "transformer": 128 if is_gpu else 32}
        return [
            _network(kind, batch, sizes[kind], "adamw", precision, mode)
            for kind, mode in product(_NETWORKS, ("train", "infer"))
        ]
    precisions = ("fp32", "tf32", "fp16", "bf16") if is_gpu else ("fp32", "bf16")
    batches = _BATCHES if is_gpu else (2, 8)
    cases = []
    for kind in _NETWORKS:
        sizes_of_kind = _SIZES[kind] if is_gpu else tuple(size // 4 for size in _SIZES[kind][:2])
        grid = product(enumerate(batches), enumerate(sizes_of_kind), enumerate(("sgd", "adamw")), enumerate(precisions))
        for (i, batch), (j, size), (k, optimizer), (n, precision) in grid:
            if suite == "full" or (i + 2 * j + 3 * k + n) % _FRACTION == 0:
                cases.append(_network(kind, batch, size, optimizer, precision, "train"))
    return cases


def _network(kind: str, batch: int, size: int, optimizer: str, precision: str, mode: str) -> Case:
    name = f"{kind}/{mode}/b{batch}/s{size}/{precision}"
    if mode == "train":
        name += f"/{optimizer}"
    return Case(id=name, kind=kind, size=size, precision=precision, batch=batch, optimizer=optimizer, mode=mode)


def _rest(suite: str) -> list[Case]:
    workers = (2,) if suite == "quick" else (0, 2, 4, 8)
    cases = [
        Case(id=f"loader/w{count}", kind="loader", size=224, precision="fp32", batch=32, workers=count)
        for count in workers
    ]
    return [*cases, Case(id="allreduce", kind="allreduce", size=256 * _MIB, precision="fp32")]
