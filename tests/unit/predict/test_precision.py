"""Names of precisions, and the GPUs that compute in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from provision.errors import IncompatibleError
from provision.matrix.load import Matrix
from provision.predict.precision import first_capabilities, is_lacking, read_precision
from provision.predict.predictor import Predictor
from provision.predict.request import PredictRequest

COMPAT = Path(__file__).resolve().parents[3] / "compat"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("BF16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("BFloat16", "bf16"),
        ("amp_bf16", "amp_bf16"),
        ("AMP BFLOAT16", "amp_bf16"),
        ("bf16-mixed", "amp_bf16"),
        ("amp", "amp"),
        ("Mixed precision", "amp"),
        ("FP16", "fp16"),
        ("float16", "fp16"),
        ("half", "fp16"),
        ("FP8", "fp8"),
        ("FP8-CS", "fp8"),
        ("float8_e4m3fn", "fp8"),
        ("fp8_block", "fp8"),
        ("MXFP8", "mxfp8"),
        ("FP8_MX", "mxfp8"),
        ("FP8-MX", "mxfp8"),
        ("NVFP4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        ("FP4", "fp4"),
        ("int4_wo", "int4"),
        ("AWQ", "int4"),
        ("Q4_K_M", "int4"),
        ("w8a8", "int8"),
        ("TF32", "tf32"),
        ("float32", "fp32"),
        ("fp32", "fp32"),
    ],
)
def test_one_precision_is_read_however_it_is_written(written, name):
    assert read_precision(written) == name


@pytest.mark.parametrize("written", ["", "fast", "17", "sample"])
def test_what_names_no_precision_is_not_guessed(written):
    assert read_precision(written) is None


@pytest.mark.parametrize(
    ("capability", "precision", "needed"),
    [
        ("7.5", "bf16", "8.0"),
        ("8.0", "bf16", None),
        ("8.6", "fp8", "8.9"),
        ("8.9", "amp_fp8", None),
        ("9.0", "mxfp4", "10.0"),
        ("10.0", "fp4", None),
        ("5.2", "fp32", None),
    ],
)
def test_a_precision_begins_with_the_capability_of_the_facts(capability, precision, needed):
    assert is_lacking(capability, precision, first_capabilities(Matrix())) == needed


def test_the_facts_alone_decide_where_a_precision_begins(tmp_path):
    """Moving one entry of gpus.toml moves plan's filter and predict's refusal alike."""
    facts = tmp_path / "compat"
    shutil.copytree(COMPAT, facts)
    gpus = facts / "gpus.toml"
    gpus.write_text(gpus.read_text(encoding="utf-8").replace('fp8 = "8.9"', 'fp8 = "8.0"'), encoding="utf-8")
    request = PredictRequest(task="train", gpu="a100", gpus=8, model="llama-3.1-8b", precision="fp8")
    with pytest.raises(IncompatibleError, match="does not compute in fp8"):
        Predictor(Matrix()).describe(request)
    moved = Matrix(facts)
    assert is_lacking("8.0", "fp8", first_capabilities(moved)) is None
    assert Predictor(moved).describe(request).estimate.middle > 0


def test_every_figure_of_the_hardware_has_a_source_and_every_source_a_figure():
    document = json.loads((COMPAT / "predict" / "hardware.json").read_text(encoding="utf-8"))
    named = {row["source"] for row in (*document["gpus"].values(), *document["others"])}
    named |= set(document["source_of"].values())
    assert named == set(document["sources"])
    assert set(document["source_of"]) == {"tensor_over_fp32", "links_gb_s", "pcie_gb_s", "aliases.t4g"}
