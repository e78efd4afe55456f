"""Look-ups over the facts: which GPU a name means, what a CUDA needs, which branch to recommend."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache, partial

from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import CudaRelease, DriverBranch, Extra, Gpu, NvlinkLayout, PerformanceFloor, PythonRelease
from provision.records import replace
from provision.versions import branch_of, minor_of, parse

NVLINK = "nvlink"
PCIE = "pcie"

_LANES = 16
"""Of the slot that floors of copies hold for."""
_RDMA_RATE = "net.rdma.rate-"

_FILLER = r"\b(nvidia|geforce|tesla|quadro)\b"


@lru_cache(maxsize=4096)
def normalise_gpu(name: str) -> str:
    """Reduce a GPU name to what tells GPUs apart: ``NVIDIA GeForce RTX 4090`` → ``rtx4090``."""
    return re.sub(r"[^a-z0-9]", "", re.sub(_FILLER, " ", name.lower().replace("_", " ").replace("-", " ")))


def find_gpus(matrix: Matrix, text: str) -> tuple[Gpu, ...]:
    """Return the GPUs a person may mean; all share one compute capability.

    Args:
        matrix: The facts.
        text: ``h100``, ``RTX 4090``, ``a100-80gb``, ``sm_90`` or ``9.0``.

    Raises:
        UnknownError: No GPU of that name.
        UsageError: The name fits GPUs of several compute capabilities.
    """
    digits = re.fullmatch(r"(?:sm_?|compute_?|cc)?\s*([0-9]{1,2})\.?([0-9])[af]?", text.lower())
    if digits and ("." in text or not text[0].isdigit()):
        capability = f"{digits[1]}.{digits[2]}"
        found = [gpu for gpu in matrix.gpus if gpu.compute_capability == capability]
        if not found:
            raise UnknownError(
                f"no GPU with compute capability {capability} is in the facts",
                hints=("`provision matrix --framework gpu` lists those that are",),
            )
        return tuple(found)
    wanted = normalise_gpu(text)
    if wanted in {normalise_gpu(gpu.architecture) for gpu in matrix.gpus}:
        several = sorted({gpu.compute_capability for gpu in matrix.gpus if normalise_gpu(gpu.architecture) == wanted})
        raise UsageError(
            f"`{text}` is an architecture, not a GPU",
            because=(f"its GPUs have compute capability {', '.join(several)}",),
            hints=("name the GPU, or a compute capability such as `sm_90`",),
        )
    names = _spellings(matrix)
    found = [gpu for gpu, spellings in names if wanted in spellings]
    if not found and wanted:
        found = [gpu for gpu in matrix.gpus if any(_begins(name, wanted) for name in (gpu.name, gpu.id, *gpu.aliases))]
    if not found:
        near = _nearest(wanted, {gpu.name: spellings for gpu, spellings in names})
        raise UnknownError(
            f"no GPU called `{text}` is in the facts",
            hints=(
                *((f"the nearest names are {', '.join(near)}",) if near else ()),
                "`provision matrix --framework gpu` lists them all; `sm_90` names a compute capability",
            ),
        )
    capabilities = sorted({gpu.compute_capability for gpu in found}, key=parse)
    if len(capabilities) > 1:
        raise UsageError(
            f"`{text}` fits GPUs of different compute capabilities",
            because=[f"{gpu.name} has {gpu.compute_capability}" for gpu in found[:8]],
            hints=("name one of them in full",),
        )
    return tuple(found)


def _begins(name: str, wanted: str) -> bool:
    """Tell whether a folded text begins a name and does not end inside a number: ``40`` does not begin ``4050``."""
    whole = normalise_gpu(name)
    if not whole.startswith(wanted):
        return False
    if len(whole) == len(wanted) or not (wanted[-1].isdigit() and whole[len(wanted)].isdigit()):
        return True
    # Digits of two words stand side by side once folded: `a100-sxm4` begins `A100-SXM4-80GB`.
    words = re.split(r"[^a-z0-9]+", name.lower())
    return any(normalise_gpu("-".join(words[:count])) == wanted for count in range(1, len(words)))


def gpu_ids(matrix: Matrix, name: str | None) -> frozenset[str]:
    """Return the ids of ``gpus.toml`` that a name may mean; none where the facts do not know it."""
    if not name:
        return frozenset()
    try:
        return frozenset(gpu.id for gpu in find_gpus(matrix, name))
    except (UnknownError, UsageError):
        return frozenset()


def find_layout(matrix: Matrix, name: str | None) -> NvlinkLayout | None:
    """Return the NVLinks a GPU of this name has on its board, or ``None`` where the facts tell none."""
    ids = gpu_ids(matrix, name)
    return next((row for row in matrix.nvlinks if ids & gpu_ids(matrix, row.gpu)), None)


def find_floor(
    matrix: Matrix,
    measure: str,
    *,
    gpu: str | None = None,
    topology: str | None = None,
    gpus: int | None = None,
    message_bytes: int | None = None,
    edge: int | None = None,
) -> PerformanceFloor | None:
    """Return the row that fits best: of this GPU before any, then of this number, of this link, nearest this size.

    Args:
        matrix: The facts.
        measure: As in ``performance.toml``.
        gpu: Name of the GPU, as anybody writes it.
        topology: ``nvlink``, ``pcie`` or ``pcie-gen4``; a row of ``pcie`` holds for every generation.
        gpus: How many took part.
        message_bytes: Size of a collective's message. Rows that hold from a larger one do not fit; of the others that
            of the largest size is taken. Where it is not given, rows of any size fit, the smallest first.
        edge: Edge of a square product, likewise.
    """
    ids = gpu_ids(matrix, gpu)
    fitting = [
        row
        for row in matrix.performance_floors
        if row.measure == measure
        and (row.gpu is None or ids & gpu_ids(matrix, row.gpu))
        and (row.gpus is None or row.gpus == gpus)
        and (row.topology is None or row.topology == topology or (row.topology == PCIE and _is_pcie(topology)))
        and (message_bytes is None or (row.message_bytes_min or 0) <= message_bytes)
        and (edge is None or (row.edge_min or 0) <= edge)
    ]
    is_sized = message_bytes is not None or edge is not None

    def closeness(row: PerformanceFloor) -> tuple[bool, bool, bool, bool, int, float]:
        size = row.message_bytes_min or row.edge_min or 0
        return (
            row.gpu is not None,
            row.gpus is not None,
            row.topology == topology,
            row.topology is not None,
            size if is_sized else -size,
            -row.floor,
        )

    return max(fitting, key=closeness, default=None)


def find_slot_floor(
    matrix: Matrix, measure: str, *, gpu: str | None = None, generation: int | None, lanes: int | None
) -> PerformanceFloor | None:
    """Return what a copy between host and GPU reaches over its slot, ``None`` where the facts tell nothing of the slot.

    Args:
        matrix: The facts, whose rows of a generation are of a full slot.
        measure: ``h2d`` or ``d2h``.
        gpu: Name of the GPU, as anybody writes it.
        generation: Of PCIe, the highest that GPU and slot both do; ``None`` where nobody knows it.
        lanes: How many GPU and slot both have; ``None`` where nobody knows it, which counts as a full slot.

    Returns:
        The row, its floor lowered to the lanes.
    """
    row = find_floor(matrix, measure, gpu=gpu, topology=f"{PCIE}-gen{generation}" if generation else None)
    if row is None or not lanes or lanes >= _LANES:
        return row
    return replace(row, floor=row.floor * lanes / _LANES)


def find_rdma_rate(matrix: Matrix, names: Iterable[str | None]) -> float | None:
    """Return the Gb/s of the RDMA ports that machines with such GPUs are sold with, ``None`` where no fact tells it.

    Args:
        matrix: The facts.
        names: Names of the machine's GPUs.
    """
    ids = {id_ for name in names for id_ in gpu_ids(matrix, name)}
    for row in matrix.rows("checks.toml", "limit"):
        if row.id.startswith(_RDMA_RATE) and ids & gpu_ids(matrix, row.id.removeprefix(_RDMA_RATE)):
            return float(row.value)
    return None


def _is_pcie(topology: str | None) -> bool:
    return topology is not None and topology.startswith(PCIE)


@lru_cache(maxsize=4)
def _spellings(matrix: Matrix) -> list[tuple[Gpu, set[str]]]:
    """Return every GPU with all ways to write it; a fleet of hosts asks for the same ones again and again."""
    return [(gpu, {normalise_gpu(name) for name in (gpu.name, gpu.id, *gpu.aliases)}) for gpu in matrix.gpus]


def _nearest(wanted: str, names: dict[str, set[str]]) -> list[str]:
    from difflib import get_close_matches

    by_spelling = {spelling: name for name, spellings in names.items() for spelling in sorted(spellings)}
    close = get_close_matches(wanted, sorted(by_spelling), n=5, cutoff=0.6)
    return list(dict.fromkeys(by_spelling[spelling] for spelling in close))[:3]


@lru_cache(maxsize=None)
def find_extras(matrix: Matrix, name: str) -> tuple[Extra, ...]:
    """Return the extra that a name means: its own, or that of the distribution that it alone is about.

    Args:
        matrix: The facts.
        name: Normalised.

    Returns:
        The row, and one that is refused also under each of its other names; of what has a row for each CUDA all of
        them, of which at most one goes with a stack; nothing where the name means none or several.
    """
    rows = {row.id: row for row in matrix.extras}
    if name in rows:
        return (rows[name],)
    if of_cuda := tuple(row for row in rows.values() if name in row.by_cuda):
        return of_cuda
    about = tuple(row for row in rows.values() if distribution_of(row) == name)
    refused = tuple(row for row in rows.values() if row.refused is not None and name in row.names)
    found = about or refused
    is_one = len({row.by_cuda or row.id for row in found}) == 1
    return found if is_one else ()


def called_extras(matrix: Matrix, name: str) -> tuple[Extra, ...]:
    """Return the extras that a name may mean, which no extra has for itself, in the order of the facts."""
    return tuple(
        row for row in matrix.extras if row.refused is None and (name in row.names or distribution_of(row) == name)
    )


def distribution_of(row: Extra) -> str:
    """Return what the first requirement of an extra is about, which is what it is for."""
    name = re.match(r"[A-Za-z0-9._-]+", row.requires[0]) if row.requires else None
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def split_reference(reference: str) -> tuple[str, str, str]:
    """Split an image reference into repository, tag and digest."""
    rest, _, digest = reference.partition("@")
    head, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        head, tag = rest, ""
    return head, tag, digest


def hub_name(matrix: Matrix, repository: str) -> str:
    """Return a repository in its short form: the names of Docker Hub are left out, as people write it."""
    host, slash, rest = repository.partition("/")
    if slash and host in matrix.setting("audit_rules.toml", "hub_names").values:
        repository = rest
    return repository.removeprefix("library/")


@lru_cache(maxsize=None)
def capability_of(sm: str) -> tuple[int, int]:
    """Return the compute capability of a compiled target: ``sm_120`` → (12, 0), ``compute_90a`` → (9, 0)."""
    number = re.sub(r"[^0-9]", "", sm.split("_")[1])
    return int(number[:-1]), int(number[-1])


def serves(gpu: Gpu, sm: Iterable[str], ptx: Iterable[str]) -> str | None:
    """Tell how compiled code runs on a GPU.

    Returns:
        The best cubin (``sm_86`` for a GPU of 8.9), else the PTX the driver would compile (``compute_90``),
        else ``None``.

    Source: CUDA C++ programming guide, binary and PTX compatibility: a cubin runs on the same major capability
    with an equal or higher minor, PTX on any equal or higher capability.
    """
    major, minor = (int(part) for part in gpu.compute_capability.split("."))
    return runs_on((major, minor), sm, ptx)


def runs_on(capability: tuple[int, int], sm: Iterable[str], ptx: Iterable[str]) -> str | None:
    """Tell how compiled code runs on a compute capability; see :func:`serves`."""
    major, minor = capability
    cubins = [
        target
        for target in sm
        if capability_of(target)[0] == major
        and (capability_of(target)[1] == minor if target.endswith("a") else capability_of(target)[1] <= minor)
    ]
    if cubins:
        return max(cubins, key=capability_of)
    texts = [target for target in ptx if _compiles_for(target, (major, minor))]
    return max(texts, key=capability_of) if texts else None


def _compiles_for(ptx: str, capability: tuple[int, int]) -> bool:
    """Tell whether a driver can compile PTX for a capability: ``a`` means that one alone, ``f`` its family."""
    own = capability_of(ptx)
    if ptx.endswith("a"):
        return own == capability
    return own <= capability and (not ptx.endswith("f") or own[0] == capability[0])


def cuda_releases(matrix: Matrix, minor: str) -> tuple[CudaRelease, ...]:
    """Return the toolkits of one CUDA minor (``11.8``), newest patch first."""
    return matrix.cuda_below(minor_of(minor))


def cudnn_distribution(matrix: Matrix, cuda_major: int) -> str | None:
    """Return the distribution with the cuDNN built for a CUDA major, or ``None`` where there is none."""
    return matrix.setting("cudnn.toml", "pip_names").entries.get(str(cuda_major))


def secure_minimums(matrix: Matrix) -> dict[int, tuple[str, str]]:
    """Return driver branch → (lowest version without a known vulnerability, bulletin) per the newest bulletins.

    A branch that an older bulletin fixed and a newer one no longer names is past support and not in the result.
    """
    if not matrix.security_floors:
        return {}
    newest = max(matrix.security_floors, key=lambda row: row.updated)
    return {int(branch.lstrip("R")): (version, newest.bulletin) for branch, version in newest.fixed.items()}


def recommended_branch(matrix: Matrix, *, minimum: str, cuda: str, gpus: tuple[Gpu, ...]) -> DriverBranch | None:
    """Return the driver branch to install: long-term before production, then the latest end of life.

    Args:
        matrix: The facts.
        minimum: Lowest driver version that will do.
        cuda: CUDA minor of the stack.
        gpus: Every GPU it must drive.
    """
    major = parse(cuda).release[0]
    able = [
        row
        for row in matrix.driver_branches
        if row.branch >= branch_of(minimum)
        and (major in row.cuda_majors or (row.max_cuda is not None and parse(row.max_cuda) >= parse(cuda)))
        and all(drives(matrix, row, gpu) for gpu in gpus)
    ]
    newest = max((row.branch for row in matrix.driver_branches), default=0)
    alive = [
        row
        for row in able
        if (row.end_of_life is not None and row.end_of_life > matrix.dated)
        or (row.end_of_life is None and row.branch == newest)
    ]
    kept = [row for row in alive if row.kind in ("LTSB", "PB") and row.end_of_life is not None]
    if kept:
        return max(kept, key=lambda row: (row.kind == "LTSB", row.end_of_life or "", row.branch))
    return max(alive or able, key=lambda row: row.branch, default=None)


def is_settled(python: PythonRelease, date: str) -> bool:
    """Tell whether a Python had been out two years on a day, when other packages have wheels for it too.

    Args:
        python: The Python.
        date: ISO.
    """
    return f"{int(python.released[:4]) + 2}{python.released[4:]}" <= date


def find_first_branch(matrix: Matrix, gpu: Gpu) -> tuple[int, Gpu, bool] | None:
    """Return the first driver branch of a GPU, the GPU whose row says it, and whether it is derived.

    What no fact says of a GPU is derived from the others of its compute capability, or else of its architecture: no
    driver knows it before the first that knows one of them.
    """
    if gpu.first_driver_branch is not None:
        return gpu.first_driver_branch, gpu, False
    if gpu.first_driver_branch_derived is not None:
        return gpu.first_driver_branch_derived, gpu, True
    if gpu.segment == "embedded":
        return None
    for trait in ("compute_capability", "architecture"):
        value = getattr(gpu, trait)
        found = matrix.keep(("first_branch", trait, value), partial(_first_with, matrix, trait, value))
        if found is not None:
            return *found, True
    return None


def _first_with(matrix: Matrix, trait: str, value: object) -> tuple[int, Gpu] | None:
    """Return the first branch that the facts say of a GPU with a trait, and that GPU."""
    alike = ((_first_known(row), row) for row in matrix.gpus if getattr(row, trait) == value)
    known = [(branch, row) for branch, row in alike if branch is not None]
    return min(known, key=lambda item: (item[0], item[1].id), default=None)


def _first_known(gpu: Gpu) -> int | None:
    return gpu.first_driver_branch if gpu.first_driver_branch is not None else gpu.first_driver_branch_derived


def driver_release(matrix: Matrix, driver: str) -> str:
    """Return the release a driver wish means: a branch stands for its newest known one, as far as any is known."""
    return driver if "." in driver else newest_release(matrix, int(driver)) or driver


def newest_release(matrix: Matrix, branch: int) -> str | None:
    """Return the newest release of a driver branch that the facts know, or ``None`` where they know none."""
    named = {row.last_release for row in matrix.driver_branches}
    named |= {row.last_release_datacenter for row in matrix.driver_branches}
    named |= {version for row in matrix.security_floors for version in row.fixed.values()}
    named |= {row.bundled_driver for row in matrix.cuda}
    known = (version for version in named if version is not None and branch_of(version) == branch)
    return max(known, key=parse, default=None)


def drives(matrix: Matrix, branch: DriverBranch, gpu: Gpu) -> bool:
    """Tell whether a driver branch supports a GPU, as far as the facts say."""
    if gpu.last_driver_branch is not None and branch.branch > gpu.last_driver_branch:
        return False
    first = find_first_branch(matrix, gpu)
    if first is not None and branch.branch < first[0]:
        return False
    return gpu.architecture in branch.architectures


def module_flavours(matrix: Matrix, branch: DriverBranch) -> dict[str, tuple[str, ...]]:
    """Return the module flavours of each architecture a branch drives, newest first, the one to take before the other.

    Args:
        matrix: The facts.
        branch: The driver branch.
    """
    demands = _demands(matrix)
    order = matrix.setting("gpus.toml", "architectures").values
    ranked = sorted(branch.architectures, key=lambda name: order.index(name) if name in order else len(order))
    return {name: _flavours(branch, name, demands.get(name, set())) for name in ranked}


def only_flavours(matrix: Matrix) -> dict[str, str]:
    """Return the flavour of each architecture that one flavour alone can drive, newest architecture first."""
    demands = _demands(matrix)
    only = {"required": "open", "unsupported": "proprietary"}
    order = matrix.setting("gpus.toml", "architectures").values
    return {
        name: only[next(iter(demands[name]))]
        for name in order
        if len(demands.get(name, ())) == 1 and next(iter(demands[name])) in only
    }


def _demands(matrix: Matrix) -> dict[str, set[str]]:
    """Return what the GPUs of each architecture say of open modules."""
    demands: dict[str, set[str]] = {}
    for gpu in matrix.gpus:
        if gpu.open_modules is not None:
            demands.setdefault(gpu.architecture, set()).add(gpu.open_modules)
    return demands


def _flavours(branch: DriverBranch, architecture: str, demands: set[str]) -> tuple[str, ...]:
    if branch.open_modules == "only" or demands == {"required"} or architecture in branch.open_modules_required_for:
        return ("open",)
    if branch.open_modules == "none" or demands == {"unsupported"}:
        return ("proprietary",)
    return ("open", "proprietary") if branch.open_modules == "default" else ("proprietary", "open")


def is_placeholder(matrix: Matrix, name: str, version: str | None) -> bool:
    """Tell whether a release of a distribution may hold no files; of an unknown version it may."""
    since = matrix.setting("audit_rules.toml", "placeholders_since").entries.get(name)
    return since is not None and (version is None or parse(version) >= parse(since))


def same_files(matrix: Matrix, names: Collection[str]) -> Iterator[list[str]]:
    """Yield those of some distributions that put their files into one folder, a list for each such folder."""
    for group in matrix.setting("audit_rules.toml", "same_files").entries.values():
        there = [name for name in group.split() if name in names]
        if len(there) > 1:
            yield there
