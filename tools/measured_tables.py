"""Tables that other projects publish, told apart by their columns: each row becomes a request and what was measured."""

from __future__ import annotations

import json
import re
from functools import partial

from provision.errors import UsageError
from provision.predict.collective import bus_factor, canonical
from provision.predict.precision import read_precision
from provision.predict.request import PredictRequest
from provision.predict.tables import PROBES, Kind, Measured, precision_of
from provision.predict.tables.sheet import Cells
from provision.predict.vision import family


def _read_timm(cells: Cells) -> Measured:
    value = cells.need("samples_per_sec")
    model = cells.need_text("model")
    parameters = above_zero(cells.number("params_m"))
    task = "vision-training" if (cells.text("kind") or "infer").startswith("train") else "vision-inference"
    request = PredictRequest(
        task=task,
        model=model,
        gpu=cells.need_text("gpu"),
        precision={"amp_fp16": "amp"}.get(name := precision_of(cells, "precision", default="amp"), name),
        layout=(cells.text("layout") or "nchw").lower(),
        framework=cells.text("torch"),
        is_compiled=(cells.text("mode") or "eager").lower().startswith("comp"),
        image_size=cells.whole("img_size"),
        batch=cells.number("batch_size"),
        parameters=parameters * 1e6 if parameters else None,
        gmacs=above_zero(cells.number("gmacs")),
        macts_m=above_zero(cells.number("macts_m")),
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
        parameters=above_zero(cells.number("NumParams")),
        gpu=cells.need_text("GPU"),
        gpus=round(cells.need("# GPUs")),
        precision=_of_training(precision_of(cells, "Precision", default="bf16")),
        sequence=round(cells.need("SeqLen (T)")),
        micro_batch=above_zero(cells.number("MicroBatchSize")),
        global_batch=above_zero(cells.number("GlobalBatchSize")),
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
        precision=_of_training(precision_of(cells, "precision", default="bf16")),
        global_batch=above_zero(batch),
        micro_batch=above_zero(cells.number("mbs")),
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


_TENSOR_MOST = 32
"""GPUs that share each product at most."""
_GPUS_MOST = 128
"""GPUs of one worker at most: what is more is the product of ways to count them."""


def _read_serving(cells: Cells, metric: str = "tpot") -> Measured:
    value = cells.need("silicon_tpot_ms" if metric == "tpot" else "silicon_ttft_ms")
    model = cells.need_text("model_path")
    # A disaggregated deployment makes its tokens on the decoding workers.
    prefix = "decode_" if cells.number("tp_size") is None else ""
    concurrency = re.search(r"silicon_concurrency=(\d+)", cells.text("silicon_data_source") or "")
    attention = cells.whole(f"{prefix}attention_dp_size", default=1) or 1
    workers = cells.whole("decode_num_workers") if prefix else None
    # What a worker has at once; of the whole deployment where nobody says how many workers there are.
    batch = float(concurrency[1]) if concurrency else None
    if batch is None:
        batch = (above_zero(cells.number(f"{prefix}batch_size")) or 1.0) * attention * (workers or 1)
    gpus = _gpus_of_worker(cells, prefix, attention)
    is_disaggregated = (cells.text("mode") or "agg").lower().startswith("disagg")
    if not is_disaggregated and gpus > attention * _TENSOR_MOST:
        # Nobody splits each product so far: such a row is of a deployment of several machines.
        is_disaggregated, attention = True, gpus
    prefill = _gpus_of_worker(cells, "prefill_", cells.whole("prefill_attention_dp_size", default=1) or 1)
    request = PredictRequest(
        task="serve",
        metric=metric,
        model=model,
        gpu=cells.need_text("system"),
        gpus=gpus,
        precision=_of_weights(
            precision_of(cells, "precision", "gemm_quant_mode", default=read_precision(model) or "bf16")
        ),
        backend=(cells.text("backend") or "").lower() or None,
        batch=batch,
        input_tokens=round(cells.need("isl")),
        output_tokens=round(cells.need("osl")),
        tensor_parallel=gpus,
        pipeline_parallel=cells.whole(f"{prefix}pp_size", default=1) or 1,
        expert_parallel=min(cells.whole(f"{prefix}moe_ep_size", default=1) or 1, gpus),
        attention_parallel=min(attention, gpus),
        is_disaggregated=is_disaggregated,
        workers=workers,
        prefill_workers=cells.whole("prefill_num_workers") if prefix else None,
        prefill_gpus=prefill if prefix and prefill <= _GPUS_MOST else None,
    )
    figures = [cells.number(name) or 0.0 for name in ("isl", "osl", "silicon_tpot_ms", "silicon_ttft_ms")]
    groups = {
        "model": model.rsplit("/", 1)[-1],
        "gpu": request.gpu,
        "backend": request.backend or "?",
        # The same in every dump of a table, however much of the deployment each of them states.
        "measurement": " ".join([request.gpu, concurrency[1] if concurrency else "?", *(f"{x:.6g}" for x in figures)]),
    }
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
        parameters=above_zero(cells.number("params")),
        weight_bytes=above_zero(cells.number("model_bytes")),
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
        weight_bytes=above_zero(float(billions[1]) * 1e9 * bits / 8) if billions else None,
        input_tokens=None if is_decode else 1024,
        output_tokens=1024,
    )
    groups = {"model": model, "gpu": request.gpu, "phase": "decode" if is_decode else "prompt"}
    return Measured(line=cells.line, request=request, value=value, groups=groups)


_QUANTISED = {"Q8_0": 8.5, "Q6_K": 6.56, "Q5_K_M": 5.69, "Q4_K_M": 4.85}
"""Bits of a weight, its scales shared out among the weights (llama.cpp)."""


def _bits(quant: str) -> float:
    name = quant.strip().upper()
    if name in _QUANTISED:
        return _QUANTISED[name]
    digits = re.match(r"I?Q(\d)", name)
    return float(digits[1]) + 0.6 if digits else 32.0 if "32" in name else 16.0


def _of_training(precision: str) -> str:
    """Return the precision of the products, mixed or not."""
    return {"amp": "bf16"}.get(precision, precision.removeprefix("amp_"))


def _of_weights(precision: str) -> str:
    return "bf16" if precision == "amp" else precision.removeprefix("amp_")


def above_zero(number: float | None) -> float | None:
    """Return a number where it is one that counts something."""
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
    PROBES,
    Kind(name="decode", needs=("gpu", "model_file"), read=_read_llamacpp, value="tokens_per_s"),
    Kind(name="decode-table", needs=("phase", "gpu", "model_quant"), read=_read_runpod, value="tokens_per_s"),
)

FIRST_TOKENS = Kind(
    name="first tokens",
    needs=("model_path", "system", "isl", "osl"),
    read=partial(_read_serving, metric="ttft"),
    value="silicon_ttft_ms",
)
"""The other figure of a table of `serving`: milliseconds to the first token."""
