"""What a GPU can do at best: the ceilings under which every forecast is made."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

from provision.errors import DataError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import find_gpus, normalise_gpu
from provision.predict.precision import first_capabilities, is_lacking
from provision.records import record

_SHORTEST_CUT = 3
"""Letters and digits of a name that may be the beginning of a longer one."""
_WORDS = re.compile(r"[\s_/()-]+")
_COUNTS = re.compile(r"^\s*\d+\s*[x×*]\s*|\s*[x×*]\s*\d+\s*$", re.IGNORECASE)
"""How many there are, before or behind the name: ``8x H100``, ``H100x8``."""
_SYSTEMS = frozenset({"dgx", "hgx", "grid", "nvidia", "tesla", "sxm", "pcie", "gb", "system"})
_TELLING = frozenset({"ada", "sff", "ti", "super", "laptop", "mobile", "max", "maxq", "nvl", "pro", "ultra", "d"})
"""Words without which a name means another GPU."""


@record
class Accelerator:
    """The ceilings of one GPU.

    ``tensor_flop_s`` counts dense FP16/BF16 operations a second with FP32 accumulation, ``memory_bytes_s`` bytes a
    second, ``link_bytes_s`` bytes a second in one direction of the GPU's fastest link to its peers. ``is_switched``
    tells whether every GPU of a node has that link to every other. ``dies`` is the number of chips a GPU is made of.
    ``eight_bit_flop_s``, ``tf32_flop_s`` and ``fp32_flop_s`` are dense peaks of other precisions, ``None`` where no
    fact tells them. ``lacking`` pairs the precisions that its tensor cores do not compute in with the compute
    capability that does; it is empty where nothing is known of them.
    """

    id: str
    name: str
    architecture: str
    compute_capability: float
    tensor_flop_s: float
    memory_bytes_s: float
    memory_gb: float | None = None
    link_bytes_s: float
    is_switched: bool = False
    dies: int = 1
    eight_bit_flop_s: float | None = None
    tf32_flop_s: float | None = None
    fp32_flop_s: float | None = None
    lacking: tuple[tuple[str, str], ...] = ()

    def needs_for(self, precision: str) -> str | None:
        """Return the compute capability that a precision needs where this GPU is below it, else ``None``."""
        return is_lacking(str(self.compute_capability), precision, dict(self.lacking)) if self.lacking else None


class Hardware:
    """Looks GPUs up by the names that people and tables write.

    Args:
        matrix: The facts.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._found: dict[str, Accelerator | UnknownError] = {}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        path = self._matrix.data_dir / "predict" / "hardware.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read", because=(str(error),)) from error
        return facts

    @cached_property
    def _exact(self) -> frozenset[str]:
        """Every spelling in the facts: a name that was cut short must meet one of them whole."""
        names = [(gpu.id, gpu.name, *gpu.aliases) for gpu in self._matrix.gpus]
        return frozenset(normalise_gpu(name) for spellings in names for name in spellings)

    def find(self, name: str) -> Accelerator:
        """Return the GPU of a name; where a name fits several (``h100``), the SXM board.

        Raises:
            UnknownError: No such GPU, or its peak or memory bandwidth is not in the facts.
        """
        if name not in self._found:
            try:
                self._found[name] = self._other(name) or self._describe(self._choose(name))
            except UnknownError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, UnknownError):
            raise found
        return found

    def _other(self, name: str) -> Accelerator | None:
        """Return a GPU of another maker, which gpus.toml does not hold: the longest name that begins the words."""
        folded = re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("apple")
        fitting = [row for row in self._facts["others"] if folded.startswith(row["begins"])]
        if not fitting:
            return None
        row = max(fitting, key=lambda row: len(row["begins"]))
        return Accelerator(
            id=row["id"],
            name=row["name"],
            architecture=row["architecture"],
            compute_capability=0.0,
            tensor_flop_s=row["tensor_tflops"] * 1e12,
            memory_bytes_s=row["memory_gb_s"] * 1e9,
            link_bytes_s=self._facts["pcie_gb_s"]["default"] * 1e9,
        )

    def _choose(self, name: str) -> Gpu:
        aliases = self._facts["aliases"]
        spelled = normalise_gpu(name)
        if spelled in aliases:
            return self._by_id(aliases[spelled])
        if len(spelled) < _SHORTEST_CUT and spelled not in self._exact:
            # `m1` begins M10, and means another maker's chip.
            raise UnknownError(
                f"no GPU called `{name}` is in the facts", hints=("`provision matrix --framework gpu` lists them",)
            )
        tried: UnknownError | None = None
        for text in _spellings(name):
            if normalise_gpu(text) in aliases:
                return self._by_id(aliases[normalise_gpu(text)])
            if text != name and normalise_gpu(text) not in self._exact:
                continue
            try:
                found = find_gpus(self._matrix, text)
            except (UnknownError, UsageError) as error:
                tried = tried or UnknownError(error.message, because=error.because, hints=error.hints)
                continue
            known = [gpu for gpu in found if gpu.memory_bandwidth_gb_s] or list(found)
            return next((gpu for gpu in known if "sxm" in gpu.id), known[0])
        raise tried or UnknownError(f"no GPU called `{name}` is in the facts")

    def _by_id(self, gpu_id: str) -> Gpu:
        for gpu in self._matrix.gpus:
            if gpu.id == gpu_id:
                return gpu
        raise DataError(f"predict/hardware.json names the GPU `{gpu_id}`, which gpus.toml lacks")

    def _describe(self, gpu: Gpu) -> Accelerator:
        facts = self._facts
        own = facts["gpus"].get(gpu.id, {})
        capability = float(gpu.compute_capability)
        tensor = gpu.tflops_fp16_tensor or own.get("tensor_tflops")
        ratio = own.get("tensor_over_fp32") or facts["tensor_over_fp32"].get(f"{gpu.segment}:{gpu.architecture}")
        if tensor is None and gpu.tflops_fp32 is not None and ratio is not None:
            tensor = gpu.tflops_fp32 * ratio
        bandwidth = gpu.memory_bandwidth_gb_s or own.get("memory_gb_s")
        if not tensor or not bandwidth:
            lacking = "peak" if not tensor else "memory bandwidth"
            raise UnknownError(
                f"the {lacking} of {gpu.name} is not in the facts",
                hints=("name another GPU: `provision matrix --framework gpu` lists them",),
            )
        parts = own.get("chips_per_board", 1)
        link = facts["links_gb_s"].get(gpu.nvlink or "no")
        is_switched = (
            link is not None and (gpu.nvlink or "").startswith("NVLink") and "bridge" not in (gpu.nvlink or "")
        )
        if link is None:
            link = facts["pcie_gb_s"]["default"]
            for floor, speed in facts["pcie_gb_s"]["from_capability"]:
                if capability >= floor:
                    link = speed
        return Accelerator(
            id=gpu.id,
            name=gpu.name,
            architecture=gpu.architecture,
            compute_capability=capability,
            tensor_flop_s=tensor / parts * 1e12,
            memory_bytes_s=bandwidth / parts * 1e9,
            memory_gb=gpu.memory_gb / parts if gpu.memory_gb else None,
            link_bytes_s=own.get("link_gb_s", link) * 1e9,
            is_switched=is_switched,
            dies=own.get("dies", 1),
            eight_bit_flop_s=gpu.tflops_fp8 / parts * 1e12 if gpu.tflops_fp8 else None,
            tf32_flop_s=gpu.tflops_tf32 / parts * 1e12 if gpu.tflops_tf32 else None,
            fp32_flop_s=gpu.tflops_fp32 / parts * 1e12 if gpu.tflops_fp32 else None,
            lacking=tuple(
                (name, first)
                for name, first in sorted(first_capabilities(self._matrix).items())
                if is_lacking(gpu.compute_capability, name, {name: first})
            ),
        )


def _spellings(name: str) -> list[str]:
    """Return a name and what is left of it without words that name a system, a form factor or a share.

    Words at its end are left out as well, unless they tell one GPU from another.
    """
    words = [word for word in _WORDS.split(_COUNTS.sub("", name)) if word]
    spellings = [name, " ".join(words)]
    kept = [
        word for word in words if word.lower() not in _SYSTEMS and not re.fullmatch(r"\d+[qQcC]|\d+\s*GB|\d+x", word)
    ]
    spellings.append(" ".join(kept))
    for length in range(len(kept) - 1, 0, -1):
        if kept[length].lower() in _TELLING:
            break
        spellings.append(" ".join(kept[:length]))
    return [spelling for spelling in dict.fromkeys(spellings) if len(normalise_gpu(spelling)) > 1]
