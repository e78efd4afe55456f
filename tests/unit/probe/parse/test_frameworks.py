"""What the payloads print on a target is found among noise, and judged by type before it is believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse.frameworks import (
    Framework,
    GpuWork,
    Nvcc,
    PythonEnvironment,
    WorkOnGpu,
    parse_framework,
    parse_gpu_work,
    parse_nvcc,
    parse_python_environment,
    spell_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT = {
    "executable": "/usr/bin/python3",
    "version": "3.11.2",
    "prefix": "/usr",
    "packages": {"Torch": "2.1.2", "typing_extensions": "4.8.0", "zope.interface": "6.1"},
    "duplicates": ["numpy"],
}
TORCH = {
    "name": "torch",
    "version": "2.1.2+cu121",
    "error": None,
    "is_available": True,
    "reason": None,
    "is_cuda_build": True,
    "cuda": "12.1",
    "cudnn": "8.9.2",
    "nccl": "2.18.1",
    "device_count": 1,
    "names": ["NVIDIA H100 80GB HBM3"],
    "capabilities": ["9.0"],
    "targets": ["sm_80", "sm_90"],
    "warnings": [],
}
WORK = {
    "tool": "torch-work",
    "error": None,
    "gpus": [
        {
            "gpu": 0,
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": "GPU-1",
            "tests": {"alloc": "ok", "matmul-fp16": "failed: 3 of 9 wrong", "conv-cudnn": "skipped: no cuDNN"},
            "figures": {"h2d_gb_s": 25.1, "error-fp32": 0, "d2h_gb_s": None},
        },
        {"gpu": 1},
    ],
    "together": {"allreduce": "ok"},
    "figures": {"busbw_gb_s": 300.5},
    "pairs": [[0, 1, 180.2], [1, 0, 179]],
}
NVCC = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2024 NVIDIA Corporation
Built on Thu_Mar_28_02:18:24_PDT_2024
Cuda compilation tools, release 12.4, V12.4.131
Build cuda_12.4.r12.4/compiler.34097967_0
"""


def payload(document: object) -> str:
    return f"@provision-payload {json.dumps(document)}\n"


def noisy(document: object) -> str:
    first = payload({"name": "earlier", "version": "0", "tool": "earlier", "executable": "no", "gpus": [{"gpu": 9}]})
    return f"\x1b[33mW1121 TensorRT not found\x1b[0m\n{{}}\n{first}\n{payload(document)}*** segfault at exit\n"


SAMPLES: dict[str, tuple[Callable[[str], object], str]] = {
    "environment": (parse_python_environment, noisy(ENVIRONMENT)),
    "framework": (parse_framework, noisy(TORCH)),
    "work": (parse_gpu_work, noisy(WORK)),
    "nvcc": (parse_nvcc, NVCC),
}


def test_python_and_its_distributions() -> None:
    assert parse_python_environment(noisy(ENVIRONMENT)) == PythonEnvironment(
        executable="/usr/bin/python3",
        version="3.11.2",
        prefix="/usr",
        packages={"torch": "2.1.2", "typing-extensions": "4.8.0", "zope-interface": "6.1"},
        duplicates=("numpy",),
    )


def test_two_spellings_of_one_distribution_are_a_duplicate() -> None:
    found = parse_python_environment(payload(ENVIRONMENT | {"packages": {"a_b": "1", "A-B": "2"}, "duplicates": None}))

    assert found.duplicates == ("a-b",)


def test_framework_among_noise_is_that_of_the_last_document() -> None:
    assert parse_framework(noisy(TORCH)) == Framework(
        name="torch",
        version="2.1.2+cu121",
        is_available=True,
        is_cuda_build=True,
        cuda="12.1",
        cudnn="8.9.2",
        nccl="2.18.1",
        device_count=1,
        names=("NVIDIA H100 80GB HBM3",),
        capabilities=("9.0",),
        targets=("sm_80", "sm_90"),
    )


def test_framework_that_is_not_installed() -> None:
    found = parse_framework(payload({"name": "jax", "error": "ModuleNotFoundError: No module named 'jax'", "new": [1]}))

    assert found == Framework(name="jax", error="ModuleNotFoundError: No module named 'jax'")


def test_escapes_inside_a_document_do_not_reach_a_terminal() -> None:
    found = parse_framework(payload({"name": "torch", "error": "\x1b]0;owned\x07bad\nline"}))

    assert found.error == "bad line"


def test_work_on_gpus() -> None:
    assert parse_gpu_work(noisy(WORK)) == GpuWork(
        tool="torch-work",
        gpus=(
            WorkOnGpu(
                gpu=0,
                name="NVIDIA H100 80GB HBM3",
                uuid="GPU-1",
                tests={"alloc": "ok", "matmul-fp16": "failed: 3 of 9 wrong", "conv-cudnn": "skipped: no cuDNN"},
                figures={"h2d_gb_s": 25.1, "error-fp32": 0.0},
            ),
            WorkOnGpu(gpu=1),
        ),
        together={"allreduce": "ok"},
        figures={"busbw_gb_s": 300.5},
        pairs={(0, 1): 180.2, (1, 0): 179.0},
    )


def test_work_that_could_not_begin() -> None:
    found = parse_gpu_work(payload({"tool": "cuda-work", "error": "libcuda.so.1: cannot open shared object file"}))

    assert (found.error, found.gpus) == ("libcuda.so.1: cannot open shared object file", ())


@pytest.mark.parametrize(
    ("text", "release", "version"),
    [
        (NVCC, "12.4", "12.4.131"),
        ("Cuda compilation tools, release 9.1, V9.1.85\n", "9.1", "9.1.85"),
        ("Cuda compilation tools, release 12.4\n", "12.4", None),
    ],
    ids=["12", "9", "short"],
)
def test_nvcc(text: str, release: str, version: str | None) -> None:
    assert parse_nvcc(text) == Nvcc(release=release, version=version)


def changed(document: dict[str, Any], **changes: object) -> str:
    return payload(document | changes)


GPU = WORK["gpus"][0]
REFUSED = [
    (parse_python_environment, "", "printed no document"),
    (parse_python_environment, "{}", "printed no document"),
    (parse_python_environment, payload([]), "not an object"),
    (parse_python_environment, payload({}), "neither an interpreter nor distributions"),
    (parse_python_environment, changed(ENVIRONMENT, version=3.11), "`version` has the wrong type: text expected"),
    (parse_python_environment, changed(ENVIRONMENT, packages={"torch": 2}), "table of texts"),
    (parse_python_environment, changed(ENVIRONMENT, packages=["torch"]), "table of names"),
    (parse_python_environment, payload(ENVIRONMENT)[:-20], "not JSON"),
    (parse_framework, f"\0{payload(TORCH)}", "is binary"),
    (parse_framework, f" {payload(TORCH)}", "printed no document"),
    (parse_framework, payload({"name": "torch"}), "neither a version nor"),
    (parse_framework, payload({"name": "torch", "version": ""}), "neither a version nor"),
    (parse_framework, payload({"version": "2.1"}), "lacks `name`"),
    (parse_framework, changed(TORCH, is_available="True"), "yes or no expected"),
    (parse_framework, changed(TORCH, device_count=True), "count expected"),
    (parse_framework, changed(TORCH, device_count=-1), "count expected"),
    (parse_framework, changed(TORCH, targets="sm_90"), "list expected"),
    (parse_framework, changed(TORCH, targets=[90]), "list of texts"),
    (parse_gpu_work, payload({"tool": "torch-work"}), "neither a result nor"),
    (parse_gpu_work, payload({"tool": "torch-work", "gpus": []}), "neither a result nor"),
    (parse_gpu_work, payload({"gpus": [{"gpu": 0}]}), "lacks `tool`"),
    (parse_gpu_work, changed(WORK, gpus=[GPU, GPU]), "one GPU twice"),
    (parse_gpu_work, changed(WORK, gpus=[{"tests": {}}]), "`gpu` has the wrong type: count expected"),
    (parse_gpu_work, changed(WORK, gpus=[7]), "list of objects"),
    (parse_gpu_work, changed(WORK, gpus=[{"gpu": 0, "tests": {"alloc": "fine"}}]), "not known: `fine`"),
    (parse_gpu_work, changed(WORK, together={"allreduce": "okay"}), "not known: `okay`"),
    (parse_gpu_work, changed(WORK, figures={"x": "fast"}), "`x` has the wrong type: number expected"),
    (parse_gpu_work, changed(WORK, figures={"x": True}), "`x` has the wrong type: number expected"),
    (parse_gpu_work, changed(WORK, figures={"x": float("nan")}), "not JSON"),
    (parse_gpu_work, payload(WORK).replace("300.5", "1e999"), "number expected"),
    (parse_gpu_work, changed(WORK, pairs=[[0, 1]]), "from, to and figure"),
    (parse_gpu_work, changed(WORK, pairs=[[0, "1", 2.0]]), "count expected"),
    (parse_nvcc, "", "names no release"),
    (parse_nvcc, "nvcc: command not found, release 12.4\n", "names no release"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize("sample", SAMPLES)
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(sample: str, data: st.DataObject) -> None:
    parse, text = SAMPLES[sample]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from('\x1b\0\n {}[]:,"\\'), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize(
    "value",
    ["text", 7, 7.5, True, None, [], {}, [[]], {"a": []}, "\ud800", 10**400],
    ids=lambda value: repr(value)[:12],
)
@pytest.mark.parametrize("parse", [parse_python_environment, parse_framework, parse_gpu_work], ids=lambda f: f.__name__)
def test_values_of_any_type_end_in_a_value_or_a_refusal(parse: Callable[[str], object], value: object) -> None:
    whole = ENVIRONMENT | TORCH | WORK
    for key in whole:
        try:
            parse(changed(whole, **{key: value}))
        except Unreadable as error:
            error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())
    expected = machines.EXPECTED[name]

    if expected.python:
        assert host.python.version.startswith(f"{expected.python}.")
    for framework, version in expected.frameworks.items():
        assert host.python.packages[framework].startswith(version)
    if "torch" in expected.frameworks:
        assert (host.torch.is_available, host.torch.device_count) == (True, expected.gpus)
        assert len(host.torch.names) == len(host.torch.capabilities) == expected.gpus
        assert host.torch.cuda == expected.cuda
        assert [work.gpu for work in host.torch_work.gpus] == list(range(expected.gpus))
        results = {result for work in host.torch_work.gpus for result in work.tests.values()}
        assert "ok" in results
        assert not any(result.startswith("failed") for result in results)
        assert host.torch_work.gpus[0].figures["h2d_gb_s"] > 1
    else:
        assert host.torch.error
    assert host.jax.error == "ModuleNotFoundError: No module named 'jax'"
    if host.has("nvcc"):
        assert host.nvcc.release == expected.cuda


def test_payload_is_spelled_out_line_by_line() -> None:
    document = {
        "reason": "Error 804: \x1b[2Jforward",
        "gpus": [{"tests": {"alloc": "failed: out of memory"}}],
        "count": 1,
    }
    text = f"a library's noise\n@provision-payload {json.dumps(document)}\nmore"
    lines = spell_out(text).splitlines()
    assert lines == ["a library's noise", "more", "Error 804: forward", "failed: out of memory"]


@pytest.mark.parametrize("text", ["", "no document", "@provision-payload {broken", "@provision-payload "])
def test_answer_without_a_document_is_spelled_out_as_it_is(text: str) -> None:
    assert spell_out(text) == text
