"""The tables that are understood, told apart by their columns: each row becomes a request and what was measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from provision.errors import UsageError
from provision.predict.collective import bus_factor, canonical
from provision.predict.precision import read_precision
from provision.predict.request import PredictRequest
from provision.predict.tables.sheet import Cells, Sheet
from provision.predict.vision import family
from provision.records import fields_of, record

__all__ = ["KINDS", "Kind", "Measured", "detect"]


@record
class Measured:
    """One row: what was run, what was measured, and the groups it belongs to (``model``, ``gpu``, …)."""

    line: int
    request: PredictRequest
    value: float
    groups: dict[str, str]

    def __post_init__(self) -> None:
        """Refuse a value that no logarithm has.

        Raises:
            UsageError: It is not above zero, or not finite.
        """
        if not 0 < self.value < math.inf:
            raise UsageError(f"row {self.line}: what was measured comes to {self.value:g}")


@record
class Kind:
    """One kind of table.

    ``needs`` are columns without which it is another table, ``value`` begins the name of the one that was measured,
    and ``empty_with`` are those that are empty beside it where a run failed. ``read`` makes a row's records.
    ``is_suite`` marks tables of networks whose operations are not stated, which only rows of their own can forecast.
    ``assumes`` pairs columns that may be missing with what is then taken to be so.
    """

    name: str
    needs: tuple[str, ...]
    read: Callable[[Cells], Measured]
    value: str
    empty_with: tuple[str, ...] = ()
    is_suite: bool = False
    assumes: tuple[tuple[str, str], ...] = ()

    def assumed(self, sheet: Sheet) -> tuple[tuple[str, str], ...]:
        """Return the columns that a table of this kind has not, each with what is taken to be so instead."""
        # A disaggregated deployment writes `decode_tp_size`.
        return tuple(
            (column, value)
            for column, value in self.assumes
            if not any(name == column or name.endswith(f"_{column}") for name in sheet.columns)
        )

    def is_unmeasured(self, cells: Cells) -> bool:
        """Tell whether a row says itself that its run brought nothing, as after running out of memory."""
        if (cells.text("status") or "").upper() in {"OOM", "FAILED", "ERROR"}:
            return True
        return bool(self.empty_with) and not cells.text(self.value, *self.empty_with)


def detect(sheet: Sheet) -> Kind:
    """Return which kind of table a sheet is.

    Raises:
        UsageError: None whose columns it has; says which columns the nearest kind lacks.
    """
    have = set(sheet.columns)
    found = [kind for kind in KINDS if have.issuperset(kind.needs) and _has_value(have, kind.value)]
    if found:
        return max(found, key=lambda kind: len(kind.needs))
    near = max(KINDS, key=lambda kind: len(have.intersection(kind.needs)) / len(kind.needs))
    lacking = [name for name in near.needs if name not in have]
    lacking += [] if _has_value(have, near.value) else [near.value]
    raise UsageError(
        f"{sheet.path} is no table that predict understands",
        because=(f"as a table of `{near.name}` it lacks the columns {', '.join(f'`{name}`' for name in lacking)}",),
        hints=("`docs/predict.md` lists the tables and their columns",),
    )


def _has_value(columns: set[str], value: str) -> bool:
    """Tell whether a column is there; a heading may go on with where the table is from, in parentheses."""
    return any(name == value or name.startswith(f"{value} (") for name in columns)


def _read_timm(cells: Cells) -> Measured:
    value = cells.need("samples_per_sec")
    model = cells.need_text("model")
    parameters = _above_zero(cells.number("params_m"))
    task = "vision-training" if (cells.text("kind") or "infer").startswith("train") else "vision-inference"
    request = PredictRequest(
        task=task,
        model=model,
        gpu=cells.need_text("gpu"),
        precision={"amp_fp16": "amp"}.get(name := _precision(cells, "precision", default="amp"), name),
        layout=(cells.text("layout") or "nchw").lower(),
        framework=cells.text("torch"),
        is_compiled=(cells.text("mode") or "eager").lower().startswith("comp"),
        image_size=cells.whole("img_size"),
        batch=cells.number("batch_size"),
        parameters=parameters * 1e6 if parameters else None,
        gmacs=_above_zero(cells.number("gmacs")),
        macts_m=_above_zero(cells.number("macts_m")),
    )
    return Measured(
        line=cells.line,
        request=request,
        value=value,
        groups={"model": model, "family": family(model), "gpu": request.gpu, "task": task},
    )


def _read_foundry(cells: Cells) -> Measured:
    value = cells.need("Throughput (T/s/GPU)")
    name = cells.need_text("Model")
    request = PredictRequest(
        task="train",
        stack="fsdp",
        model=f"mpt-{name.lower().removeprefix('mpt-')}",
        parameters=_above_zero(cells.number("NumParams")),
        gpu=cells.need_text("GPU"),
        gpus=round(cells.need("# GPUs")),
        precision=_of_training(_precision(cells, "Precision", default="bf16")),
        sequence=round(cells.need("SeqLen (T)")),
        micro_batch=_above_zero(cells.number("MicroBatchSize")),
        global_batch=_above_zero(cells.number("GlobalBatchSize")),
        recompute="full" if (cells.text("Activation Checkpointing") or "").lower() in {"true", "1", "yes"} else "none",
    )
    groups = {"model": name, "gpu": request.gpu, "gpus": str(request.gpus), "sequence": str(request.sequence)}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_megatron(cells: Cells) -> Measured:
    value = cells.need("tokens_s_gpu")
    kind = (cells.text("kind") or "").lower()
    batch = cells.number("gbs")
    model = cells.need_text("model")
    # A batch as small as the number of GPUs is what the fine-tuning tables have, whose heading is lost in some rows.
    is_finetune = any(word in kind for word in ("fine", "lora", "sft", "peft")) or (not kind and (batch or 99) <= 32)
    request = PredictRequest(
        task="train",
        stack="megatron",
        model=model,
        gpu=cells.need_text("system"),
        gpus=round(cells.need("gpus")),
        precision=_of_training(_precision(cells, "precision", default="bf16")),
        global_batch=_above_zero(batch),
        micro_batch=_above_zero(cells.number("mbs")),
        sequence=round(cells.need("seq_len")),
        tensor_parallel=cells.whole("tp", default=1) or 1,
        pipeline_parallel=cells.whole("pp", default=1) or 1,
        context_parallel=cells.whole("cp", default=1) or 1,
        expert_parallel=cells.whole("ep", default=1) or 1,
        is_finetune=is_finetune,
    )
    release = cells.text("container") or "?"
    groups = {"model": model, "gpu": request.gpu, "release": release, "precision": request.precision}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_torchtitan(cells: Cells) -> Measured:
    value = cells.need("tps_per_gpu")
    caption = cells.need_text("caption")
    try:
        config = json.loads(cells.text("config") or "{}")
    except ValueError:
        config = None
    if not isinstance(config, dict):
        config = {}
    words = caption + " " + " ".join(f"{key} {value}" for key, value in config.items() if isinstance(value, str))
    lower = words.lower()
    model = re.search(r"llama[\s-]*(\d(?:\.\d)?)[\s-]*(\d+)\s*b", lower)
    gpus = re.search(r"(\d+)\s*(?:h100|h200|a100|b200|gb200|mi\d+\w*)?\s*gpus", lower)
    if not gpus or not model:
        raise UsageError(f"row {cells.line}: `caption` tells no {'model' if gpus else 'number of GPUs'}")
    board = re.search(
        r"\b(gb200|b200|h200|h100|a100|mi3\d+x?)\b", lower + " " + (cells.text(*cells.values) or "").lower()
    )
    degrees = {
        name: int(found[1]) if (found := re.search(rf"\b{name}\s*(\d+)", lower)) else 1 for name in ("tp", "pp", "cp")
    }
    local = re.search(r"local batch size\s*(\d+)", lower)
    batch = re.search(r"global batch size\s*(\d+)", lower)
    sequence = re.search(r"(?:sequence|seq)[\s_-]*(?:length|len)?\D{0,4}(\d{3,7})", lower)
    micro = float(local[1]) if local else 1.0
    if degrees["pp"] > 1:
        micro = max(1.0, micro / degrees["pp"])
    request = PredictRequest(
        task="train",
        stack="fsdp",
        model=f"llama-{model[1]}-{model[2]}b",
        gpu=board[1] if board else "h100",
        gpus=int(gpus[1]),
        precision="fp8" if re.search(r"float8|fp8", lower) else "bf16",
        sequence=int(sequence[1]) if sequence else 8192,
        micro_batch=micro,
        global_batch=float(batch[1]) if batch else None,
        recompute="full" if "full activation" in lower else "selective" if "selective" in lower else "none",
        is_compiled="compile" in lower,
        tensor_parallel=degrees["tp"],
        pipeline_parallel=degrees["pp"],
        context_parallel=degrees["cp"],
    )
    groups = {"model": request.model or "", "gpu": request.gpu, "table": caption[:8]}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_nccl(cells: Cells) -> Measured:
    operation = canonical(cells.need_text("op_name"))
    gpus = round(cells.need("num_gpus"))
    elements = cells.number("message_elements_fp16")
    message = cells.number("bytes") or (2 * elements if elements else None)
    if message is None or message <= 0:
        raise UsageError(f"row {cells.line}: column `bytes` is empty or not above zero")
    value = cells.number("busbw_gbs")
    if value is None or value <= 0:
        value = message * bus_factor(operation, gpus) / (cells.need("latency_ms") * 1e6)
    system = cells.need_text("system")
    request = PredictRequest(task="collective", gpu=system, gpus=gpus, operation=operation, message_bytes=message)
    groups = {"gpu": system, "operation": operation, "gpus": str(gpus), "release": cells.text("dir_version") or "?"}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_serving(cells: Cells) -> Measured:
    value = cells.need("silicon_tpot_ms")
    model = cells.need_text("model_path")
    # A disaggregated deployment makes its tokens on the decoding workers.
    prefix = "decode_" if cells.number("tp_size") is None else ""
    concurrency = re.search(r"silicon_concurrency=(\d+)", cells.text("silicon_data_source") or "")
    attention = cells.whole(f"{prefix}attention_dp_size", default=1) or 1
    batch = float(concurrency[1]) if concurrency else None
    if batch is None:
        batch = (_above_zero(cells.number(f"{prefix}batch_size")) or 1.0) * attention
    elif prefix:
        batch = max(1.0, batch / (_above_zero(cells.number("decode_num_workers")) or 1.0))
    gpus = _gpus_of_worker(cells, prefix, attention)
    request = PredictRequest(
        task="serve",
        model=model,
        gpu=cells.need_text("system"),
        gpus=gpus,
        precision=_of_weights(
            _precision(cells, "precision", "gemm_quant_mode", default=read_precision(model) or "bf16")
        ),
        backend=(cells.text("backend") or "").lower() or None,
        batch=batch,
        input_tokens=round(cells.need("isl")),
        output_tokens=round(cells.need("osl")),
        tensor_parallel=gpus,
        pipeline_parallel=cells.whole(f"{prefix}pp_size", default=1) or 1,
        expert_parallel=min(cells.whole(f"{prefix}moe_ep_size", default=1) or 1, gpus),
        attention_parallel=min(attention, gpus),
        is_disaggregated=(cells.text("mode") or "agg").lower().startswith("disagg"),
    )
    groups = {"model": model.rsplit("/", 1)[-1], "gpu": request.gpu, "backend": request.backend or "?"}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _gpus_of_worker(cells: Cells, prefix: str, attention: int) -> int:
    """Return how many GPUs one worker has, of columns that in places hold the product of two ways to split one."""
    tensor = cells.whole(f"{prefix}tp_size", default=1) or 1
    expert_tensor = cells.whole(f"{prefix}moe_tp_size", default=1) or 1
    expert = cells.whole(f"{prefix}moe_ep_size", default=1) or 1
    if expert_tensor == expert > 1:
        return expert
    if tensor == attention > 1:
        return tensor
    return max(tensor * attention, expert_tensor * expert)


def _read_llamacpp(cells: Cells) -> Measured:
    value = cells.need("tokens_per_s")
    model = cells.need_text("model_file")
    prompt = cells.number("n_prompt") or 0
    request = PredictRequest(
        task="decode",
        model=_bare(model),
        parameters=_above_zero(cells.number("params")),
        weight_bytes=_above_zero(cells.number("model_bytes")),
        gpu=cells.need_text("gpu"),
        gpus=1,
        precision="int4",
        input_tokens=round(prompt) or None,
        output_tokens=cells.whole("n_gen"),
    )
    groups = {"model": _bare(model), "gpu": request.gpu, "phase": "prompt" if prompt else "decode"}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_runpod(cells: Cells) -> Measured:
    column = next(name for name in cells.values if name.startswith("tokens_per_s"))
    value = cells.need(column)
    size, _, quant = cells.need_text("model_quant").partition(" ")
    board, _, count = cells.need_text("gpu").partition("*")
    is_decode = cells.need_text("phase").lower().startswith("decode")
    bits = _bits(quant)
    model = f"llama-3-{size.lower()}"
    billions = re.fullmatch(r"(\d+(?:\.\d+)?)b", size.lower())
    request = PredictRequest(
        task="decode",
        model=model,
        gpu=board.strip(),
        gpus=int(count) if count.strip().isdigit() else 1,
        precision="int4" if bits < 8 else "fp16",
        weight_bytes=_above_zero(float(billions[1]) * 1e9 * bits / 8) if billions else None,
        input_tokens=None if is_decode else 1024,
        output_tokens=1024,
    )
    groups = {"model": model, "gpu": request.gpu, "phase": "decode" if is_decode else "prompt"}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _read_lambda(cells: Cells) -> Measured:
    request = PredictRequest(
        task="suite",
        model=f"{cells.need_text('model')}/{cells.text('unit') or ''}",
        gpu=cells.need_text("gpu"),
        gpus=round(cells.need("gpu_count")),
        precision=_any_precision(cells),
        batch=_above_zero(cells.number("batch_per_gpu")),
    )
    groups = {"model": request.model or "", "gpu": request.gpu}
    return Measured(line=cells.line, request=request, value=cells.need("throughput"), groups=groups)


def _read_examples(cells: Cells) -> Measured:
    column = cells.need_text("throughput_column")
    where = " ".join(cells.text(name) or "" for name in ("gpu", "system", "throughput_column", "heading_path", "row"))
    board = re.search(r"\b(H100|A100|V100|A30|A10|T4)\b", where.replace("-", " "))
    model = "/".join(
        (cells.need_text("model_dir"), cells.text("kind") or "", re.sub(r"\W+", " ", column).strip().lower())
    )
    request = PredictRequest(
        task="suite",
        model=model,
        gpu=board[1] if board else "not stated",
        gpus=round(_first_number(cells.text("gpus")) or 1) or 1,
        precision=_any_precision(cells),
        batch=_first_number(cells.text("batch_size")),
    )
    groups = {"model": model, "gpu": request.gpu}
    return Measured(line=cells.line, request=request, value=cells.need("throughput"), groups=groups)


_QUANTISED = {"Q8_0": 8.5, "Q6_K": 6.56, "Q5_K_M": 5.69, "Q4_K_M": 4.85}
"""Bits of a weight, its scales shared out among the weights (llama.cpp)."""


def _bits(quant: str) -> float:
    name = quant.strip().upper()
    if name in _QUANTISED:
        return _QUANTISED[name]
    digits = re.match(r"I?Q(\d)", name)
    return float(digits[1]) + 0.6 if digits else 32.0 if "32" in name else 16.0


def _precision(cells: Cells, *columns: str, default: str) -> str:
    """Return the precision of a row, the default where no column has one.

    Raises:
        UsageError: Something stands there that names none.
    """
    text = cells.text(*columns)
    if text is None:
        return default
    name = read_precision(text)
    if name is None:
        raise UsageError(f"row {cells.line}: `{text}` in column `{columns[0]}` names no precision")
    return name


def _any_precision(cells: Cells) -> str:
    """Return a precision that only tells rows apart."""
    text = cells.text("precision") or "fp32"
    return read_precision(text) or text.lower()


def _of_training(precision: str) -> str:
    """Return the precision of the products, mixed or not."""
    return {"amp": "bf16"}.get(precision, precision.removeprefix("amp_"))


def _of_weights(precision: str) -> str:
    return "bf16" if precision == "amp" else precision.removeprefix("amp_")


def _read_mlperf(cells: Cells) -> Measured:
    gpus = round(cells.need("accelerators"))
    batch = _above_zero(cells.number("global_batch_size"))
    request = PredictRequest(
        task="suite",
        model=cells.need_text("benchmark"),
        gpu=cells.need_text("accelerator"),
        gpus=gpus,
        batch=batch / max(gpus, 1) if batch else None,
    )
    groups = {"model": request.model or "", "gpu": request.gpu}
    # A speed, as everything that is forecast: runs to the target a minute.
    return Measured(
        line=cells.line, request=request, value=1 / cells.need("minutes_to_target_olympic_mean"), groups=groups
    )


def _read_gemm(cells: Cells) -> Measured:
    sizes = [round(cells.need(name)) for name in ("m", "n", "k")]
    value = cells.number("tflops")
    if value is None or value <= 0:
        value = 2e-9 * math.prod(sizes) / cells.need("latency_ms")
    request = PredictRequest(
        task="suite", model="x".join(map(str, sizes)), gpu=cells.need_text("system"), precision="bf16"
    )
    groups = {"model": request.model or "", "gpu": request.gpu}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


def _first_number(text: str | None) -> float | None:
    """Return the first number in a cell of prose such as ``256 (8 GPUs)``."""
    found = re.search(r"\d+(?:\.\d+)?", text or "")
    return _above_zero(float(found[0])) if found else None


def _read_probe(cells: Cells) -> Measured:
    values: dict[str, object] = {}
    for name, (kind, _) in fields_of(PredictRequest).items():
        if kind in {"bool", "bool | None"}:
            text = cells.text(name)
            if text is not None:
                values[name] = text.lower() in {"true", "1", "yes"}
        elif kind.startswith("str"):
            text = cells.text(name)
            if text is not None:
                values[name] = text
        else:
            number = cells.number(name)
            if number is not None:
                values[name] = round(number) if kind.startswith("int") else number
    values |= {"task": cells.need_text("task"), "gpu": cells.need_text("gpu")}
    if values["task"] == "suite":
        raise UsageError(f"row {cells.line}: nothing is known of a `suite` but what others measured of it")
    if cells.text("precision") is not None:
        values["precision"] = _precision(cells, "precision", default="bf16")
    request = PredictRequest(**values)  # type: ignore[arg-type]
    groups = {"model": request.model or "", "gpu": request.gpu, "task": request.task}
    return Measured(line=cells.line, request=request, value=cells.need("measured"), groups=groups)


def _above_zero(number: float | None) -> float | None:
    return number if number is not None and number > 0 else None


def _bare(model: str) -> str:
    """Return a model file's name without its quantisation: ``gemma-2b.Q4_K_M.gguf`` → ``gemma-2b``."""
    return re.sub(
        r"[._-](chat|instruct)?[._-]?(i?q\d\w*|f16|bf16)?\.gguf$", "", model, flags=re.IGNORECASE
    ).removesuffix("-Instruct")


KINDS = (
    Kind(
        name="vision",
        needs=("gpu", "model"),
        read=_read_timm,
        value="samples_per_sec",
        empty_with=("batch_size",),
        assumes=(
            ("kind", "inference"),
            ("precision", "amp"),
            ("layout", "nchw"),
            ("mode", "eager"),
            ("img_size", "the network's own"),
            ("batch_size", "256"),
        ),
    ),
    Kind(
        name="training-foundry",
        needs=("Model", "SeqLen (T)", "# GPUs", "GPU"),
        read=_read_foundry,
        value="Throughput (T/s/GPU)",
        assumes=(
            ("Precision", "bf16"),
            ("MicroBatchSize", "some thousand tokens a pass"),
            ("Activation Checkpointing", "none"),
        ),
    ),
    Kind(
        name="training-megatron",
        needs=("model", "system", "gpus", "seq_len"),
        read=_read_megatron,
        value="tokens_s_gpu",
        assumes=(
            ("precision", "bf16"),
            ("mbs", "some thousand tokens a pass"),
            *((name, "1") for name in ("tp", "pp", "cp", "ep")),
        ),
    ),
    Kind(name="training-torchtitan", needs=("caption",), read=_read_torchtitan, value="tps_per_gpu"),
    Kind(name="collective", needs=("system", "op_name", "num_gpus"), read=_read_nccl, value="busbw_gbs"),
    Kind(
        name="serving",
        needs=("model_path", "system", "isl", "osl"),
        read=_read_serving,
        value="silicon_tpot_ms",
        assumes=(("precision", "what the model's name says, else bf16"), ("batch_size", "1"), ("tp_size", "1")),
    ),
    Kind(
        name="suite",
        needs=("gpu", "gpu_count", "model"),
        read=_read_lambda,
        value="throughput",
        is_suite=True,
    ),
    Kind(
        name="examples",
        needs=("model_dir", "throughput_column"),
        read=_read_examples,
        value="throughput",
        is_suite=True,
    ),
    Kind(
        name="mlperf",
        needs=("benchmark", "accelerator", "accelerators"),
        read=_read_mlperf,
        value="minutes_to_target_olympic_mean",
        is_suite=True,
    ),
    Kind(name="products", needs=("system", "m", "n", "k"), read=_read_gemm, value="tflops", is_suite=True),
    Kind(name="probes", needs=("task", "gpu"), read=_read_probe, value="measured"),
    Kind(name="decode", needs=("gpu", "model_file"), read=_read_llamacpp, value="tokens_per_s"),
    Kind(name="decode-table", needs=("phase", "gpu", "model_quant"), read=_read_runpod, value="tokens_per_s"),
)
