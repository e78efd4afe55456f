"""What Python and the frameworks in it say of themselves: the JSON that the payload scripts print."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from provision.probe.clean import clean_line
from provision.probe.output import Unreadable
from provision.probe.parse.recorded import ITEMS_MAX, bounded, frozen, kept, load_json, read_lines
from provision.records import NOTHING, record

_MARK = "@provision-payload "
_SENTENCE_CHARACTERS = 4000
_FIGURE_MAX = 1e18
_SEPARATORS = re.compile(r"[-_.]+")
_NVCC = re.compile(r"release ([0-9]{1,3}\.[0-9]{1,3})(?:, V([0-9]{1,3}(?:\.[0-9]{1,6}){1,3}))?")
_RESULT = re.compile(r"ok|(?:skipped|failed)(?::.*)?")


@record
class PythonEnvironment:
    """The interpreter that runs the frameworks, and its distributions: normalised name → version.

    ``executable`` and ``version`` are ``None`` where a record lists the distributions alone.
    """

    executable: str | None = None
    version: str | None = None
    prefix: str = ""
    packages: Mapping[str, str] = NOTHING
    duplicates: tuple[str, ...] = ()


@record
class Framework:
    """One framework, imported.

    Attributes:
        name: ``torch``, ``tensorflow`` or ``jax``.
        error: What importing it raised; everything below is then unknown.
        is_available: Whether it can use a GPU. ``reason`` says why not, in the framework's own words.
        cuda: The CUDA it was built for; ``None`` of a CPU build, where ``is_cuda_build`` is false.
        cudnn: As its own number says, in dots (``8.9.2``); ``nccl`` likewise.
        targets: Compiled architectures (``sm_90``, ``compute_90``).
        capabilities: Compute capability of each device it sees (``9.0``); ``names`` likewise.
    """

    name: str
    version: str | None = None
    error: str | None = None
    is_available: bool | None = None
    reason: str | None = None
    is_cuda_build: bool | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    device_count: int | None = None
    names: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@record
class WorkOnGpu:
    """What one GPU was made to do.

    ``tests`` maps a name (``alloc``, ``matmul-fp32``, ``matmul-tf32``, ``matmul-fp16``, ``matmul-bf16``,
    ``conv-cudnn``, ``vector-add``) to ``ok``, ``skipped: reason`` or ``failed: reason``; ``figures`` a measure
    (``h2d_gb_s``, ``d2h_gb_s``, ``gemm-bf16_tflops``, ``error-fp32``, ``pcie_gen_under_load``) to its value.
    """

    gpu: int
    name: str | None = None
    uuid: str | None = None
    tests: Mapping[str, str] = NOTHING
    figures: Mapping[str, float] = NOTHING


@record
class GpuWork:
    """The answer of a payload that makes GPUs work; ``error`` when it could not begin.

    ``together`` holds tests over all GPUs (``allreduce`` → ``ok``), ``pairs`` (from, to) → GB/s between GPUs.
    """

    tool: str
    error: str | None = None
    gpus: tuple[WorkOnGpu, ...] = ()
    together: Mapping[str, str] = NOTHING
    figures: Mapping[str, float] = NOTHING
    pairs: Mapping[tuple[int, int], float] = NOTHING


@record
class Nvcc:
    """``nvcc --version``: ``release`` is ``12.4``, ``version`` the full ``12.4.131``."""

    release: str
    version: str | None = None


def parse_python_environment(text: str) -> PythonEnvironment:
    """Read the ``python`` probe.

    Raises:
        Unreadable: It is not the payload's JSON, or a value has another type.
    """
    document = _payload(text)
    if not document.keys() & {"executable", "packages"}:
        raise Unreadable("the payload names neither an interpreter nor distributions")
    packages: dict[str, str] = {}
    repeated = list(_strings(document, "duplicates"))
    for name, version in _texts(document, "packages").items():
        normal = _SEPARATORS.sub("-", name).lower()
        if normal in packages:
            repeated.append(normal)
        packages[normal] = version
    return PythonEnvironment(
        executable=_text(document, "executable"),
        version=_text(document, "version"),
        prefix=_text(document, "prefix") or "",
        packages=frozen(packages),
        duplicates=tuple(dict.fromkeys(repeated)),
    )


def parse_framework(text: str) -> Framework:
    """Read the ``torch``, ``tensorflow`` or ``jax`` probe; what a library prints around the document is ignored.

    Raises:
        Unreadable: The payload's document is not in it, says neither a version nor an error, or a value has another
            type.
    """
    document = _payload(text)
    version, error = _text(document, "version"), _text(document, "error")
    if version is None and error is None:
        raise Unreadable("the payload says neither a version nor why there is none")
    return Framework(
        name=_required(document, "name"),
        version=version,
        error=error,
        is_available=_switch(document, "is_available"),
        reason=_text(document, "reason"),
        is_cuda_build=_switch(document, "is_cuda_build"),
        cuda=_text(document, "cuda"),
        cudnn=_text(document, "cudnn"),
        nccl=_text(document, "nccl"),
        device_count=_count(document, "device_count"),
        names=_strings(document, "names"),
        capabilities=_strings(document, "capabilities"),
        targets=_strings(document, "targets"),
        warnings=_strings(document, "warnings"),
    )


def parse_gpu_work(text: str) -> GpuWork:
    """Read the ``cuda-work``, ``torch-work`` or ``torch-nccl`` probe.

    Raises:
        Unreadable: The payload's document is not in it, says neither a result nor an error, or a value has another
            type.
    """
    document = _payload(text)
    error = _text(document, "error")
    gpus = tuple(_work_on_gpu(item) for item in _list(document, "gpus"))
    if len({work.gpu for work in gpus}) != len(gpus):
        raise Unreadable("the payload tells of one GPU twice")
    together, figures = _results(document, "together"), _figures(document)
    pairs = _pairs(document)
    if error is None and not (gpus or together or figures or pairs):
        raise Unreadable("the payload says neither a result nor why there is none")
    return GpuWork(
        tool=_required(document, "tool"), error=error, gpus=gpus, together=together, figures=figures, pairs=pairs
    )


def spell_out(text: str) -> str:
    """Return a payload's answer as lines a person would read: noise around the document, then each text inside it.

    An answer without a document is returned as it is.
    """
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if line.startswith(_MARK)]
    if not places:
        return text
    try:
        document = load_json(lines[places[-1]][len(_MARK) :], "the payload's document")
    except Unreadable:
        return text
    noise = [line for place, line in enumerate(lines) if place not in places]
    return "\n".join([*noise, *_texts_in(document)])


def _texts_in(value: Any) -> Iterator[str]:
    waiting = deque([value])
    while waiting:
        item = waiting.popleft()
        if isinstance(item, str):
            yield clean_line(item, _SENTENCE_CHARACTERS)
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item


def parse_nvcc(text: str) -> Nvcc:
    """Read ``nvcc --version``.

    Raises:
        Unreadable: No release stands in it.
    """
    for line in read_lines(text, "nvcc"):
        if line.startswith("Cuda compilation tools") and (found := _NVCC.search(line)):
            return Nvcc(release=found[1], version=found[2])
    raise Unreadable("nvcc names no release")


def _payload(text: str) -> Mapping[str, Any]:
    """Return the document on the last line that is marked as the payload's."""
    if "\0" in text:
        raise Unreadable("the payload's output is binary")
    marked = [line for line in text.split("\n") if line.startswith(_MARK)]
    if not marked:
        raise Unreadable("the payload printed no document")
    document = load_json(marked[-1][len(_MARK) :], "the payload's document")
    if not isinstance(document, dict):
        raise Unreadable("the payload's document is not an object")
    return document


def _refusal(key: str, kind: str) -> Unreadable:
    return Unreadable(f"the payload's `{kept(key, 40)}` has the wrong type: {kind} expected")


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise _refusal(key, "text")
    return None if value is None else kept(value, 4000) or None


def _required(document: Mapping[str, Any], key: str) -> str:
    value = _text(document, key)
    if value is None:
        raise Unreadable(f"the payload's document lacks `{key}`")
    return value


def _switch(document: Mapping[str, Any], key: str) -> bool | None:
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise _refusal(key, "yes or no")
    return value


def _count(document: Mapping[str, Any], key: str) -> int | None:
    value = document.get(key)
    return None if value is None else _whole(value, key)


def _whole(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= ITEMS_MAX:
        raise _refusal(key, "count")
    return value


def _figure(value: object, key: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -_FIGURE_MAX <= value <= _FIGURE_MAX:
        raise _refusal(key, "number")
    return float(value)


def _list(document: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _refusal(key, "list")
    return bounded(value, f"the payload's `{key}`")


def _strings(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _list(document, key)
    if not all(isinstance(value, str) for value in values):
        raise _refusal(key, "list of texts")
    return tuple(kept(value) for value in values)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    if value is None:
        return NOTHING
    if not isinstance(value, dict) or len(value) > ITEMS_MAX:
        raise _refusal(key, "table of names and values")
    return value


def _texts(document: Mapping[str, Any], key: str) -> Mapping[str, str]:
    values = _table(document, key)
    if not all(isinstance(value, str) for value in values.values()):
        raise _refusal(key, "table of texts")
    return {kept(name): kept(value) for name, value in values.items()}


def _results(document: Mapping[str, Any], key: str) -> Mapping[str, str]:
    results = _texts(document, key)
    for result in results.values():
        if not _RESULT.fullmatch(result):
            raise Unreadable(f"the payload's `{key}` has a result that is not known: `{kept(result, 80)}`")
    return frozen(results)


def _figures(document: Mapping[str, Any]) -> Mapping[str, float]:
    values = _table(document, "figures")
    return frozen({kept(name): _figure(value, name) for name, value in values.items() if value is not None})


def _work_on_gpu(item: object) -> WorkOnGpu:
    if not isinstance(item, dict):
        raise _refusal("gpus", "list of objects")
    return WorkOnGpu(
        gpu=_whole(item.get("gpu"), "gpu"),
        name=_text(item, "name"),
        uuid=_text(item, "uuid"),
        tests=_results(item, "tests"),
        figures=_figures(item),
    )


def _pairs(document: Mapping[str, Any]) -> Mapping[tuple[int, int], float]:
    pairs: dict[tuple[int, int], float] = {}
    for item in _list(document, "pairs"):
        if not isinstance(item, list) or len(item) != 3:
            raise _refusal("pairs", "list of from, to and figure")
        pairs[_whole(item[0], "pairs"), _whole(item[1], "pairs")] = _figure(item[2], "pairs")
    return frozen(pairs)
