"""GPUs and models are found by the names that tables write, and never mistaken for others."""

from __future__ import annotations

import pytest

from provision.errors import UnknownError
from provision.matrix.load import Matrix
from provision.predict.hardware import Hardware
from provision.predict.networks import Networks
from provision.predict.request import PredictRequest
from provision.predict.shapes import Shapes

MATRIX = Matrix()
HARDWARE = Hardware(MATRIX)
SHAPES = Shapes(MATRIX.data_dir)


@pytest.mark.parametrize(
    ("written", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("8x H100 SXM", "h100-sxm5-80gb"),
        ("h100x8", "h100-sxm5-80gb"),
        ("DGX-GB300", "gb300"),
        ("GB200 NVL72", "gb200"),
        ("h100_pcie", "h100-pcie-80gb"),
        ("NVIDIA A100 - PCIe - 80 GB", "a100-pcie-80gb"),
        ("H100 NVL Tensor Core GPU (PCIe)", "h100-nvl"),
        ("GRID T4-16Q", "t4"),
        ("NVIDIA T4G", "t4"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("RTX 6000 Ada Generation", "rtx-6000-ada"),
    ],
)
def test_a_gpu_is_found_by_what_tables_write(written, gpu):
    assert HARDWARE.find(written).id == gpu


@pytest.mark.parametrize("written", ["RTX 4000 SFF Ada", "M2 Max", "MI300X", "TPU-v5p", "NVIDIA T4X", "a", ""])
def test_a_gpu_that_is_not_known_is_not_taken_for_another(written):
    with pytest.raises(UnknownError):
        HARDWARE.find(written)


def _shape(model):
    return SHAPES.of(PredictRequest(task="serve", gpu="h100", model=model))


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nemotron-3-nano"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.1-70b"),
        ("gemma-2b.Q4_K_M", "gemma-2b"),
        ("LLAMA3_8B", "llama-3-8b"),
        ("zai-org/GLM-5-FP8", "glm-5"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4-pro"),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek-v4-pro"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "deepseek-v4-flash"),
        ("XiaomiMiMo/MiMo-V2-Flash", "mimo-v2-flash"),
    ],
)
def test_how_a_model_was_tuned_or_stored_does_not_change_its_shape(written, model):
    assert _shape(written).name == model


@pytest.mark.parametrize(
    ("written", "billions", "active"),
    [
        ("gemma-3-4b", 4, 4),
        ("ERNIE-4.5-300B-A47B", 300, 47),
        ("Some-8x3B", 24, 24),
        ("Qwen3.5-35B-A3B", 35, 3),
        ("GPT3_175B", 175, 175),
    ],
)
def test_a_size_is_read_out_of_a_name_and_a_version_is_none(written, billions, active):
    shape = _shape(written)
    assert (shape.parameters, shape.active_parameters) == (billions * 1e9, active * 1e9)
    assert not shape.is_exact


@pytest.mark.parametrize("written", ["DeepSeek V2 Lite", "grok-2", "step-3.5-flash", "roberta-large"])
def test_a_model_whose_size_nobody_says_is_unknown(written):
    with pytest.raises(UnknownError, match="the size of the model"):
        _shape(written)


def test_a_network_is_known_by_its_name_whatever_it_was_trained_on():
    networks = Networks(MATRIX.data_dir)
    bare = networks.of(PredictRequest(task="vision-inference", gpu="rtx-3090", model="vit_base_patch16_224"))
    told = networks.of(PredictRequest(task="vision-inference", gpu="rtx-3090", model="timm/vit_base_patch16_224.mae"))
    assert told == bare
    assert bare.is_exact


def test_operations_alone_describe_a_network_that_nobody_knows():
    networks = Networks(MATRIX.data_dir)
    found = networks.of(PredictRequest(task="vision-inference", gpu="rtx-3090", model="new_net", gmacs=4.1))
    assert found.gmacs == 4.1
    assert 1e6 < found.parameters < 1e9
    assert not found.is_exact
