"""What a stack says about packages that are compiled against its framework."""

from __future__ import annotations

import re
from typing import Any

import pytest

from provision.generate.image import render_image
from provision.matrix.load import Matrix
from provision.resolve.request import Request, parse_request, plain_request, request_of
from provision.resolve.solve import solve
from provision.resolve.stack import Stack
from provision.resolve.targets import target_variables

MATRIX = Matrix(None)


def _stack(**values: Any) -> Stack:
    found = solve(
        parse_request({"torch": "2.5", **{name.replace("_", "-"): value for name, value in values.items()}}), MATRIX
    )
    assert isinstance(found, Stack)
    assert found.image is not None
    return found


def test_what_is_compiled_leaves_the_final_image_on_the_slim_base() -> None:
    image = _stack(**{"with": "flash-attn"}).image
    assert image.compiled == ("flash-attn",)
    assert "slim" in image.base.ref
    assert "slim" not in image.compile_base.ref
    assert image.base.os == image.compile_base.os
    assert "-devel-" in image.cuda_base.ref


def test_a_line_of_the_user_names_it_too() -> None:
    image = _stack(flavor="devel", requirements=["Flash_Attn>=2.5", "einops"]).image
    assert image.compiled == ("flash-attn",)
    assert image.compile_base is not None


def test_what_compiles_at_run_time_keeps_nvcc() -> None:
    image = _stack(**{"with": "deepspeed,flash-attn"}).image
    assert image.compiled == ("deepspeed", "flash-attn")
    assert image.compile_base is None
    assert "slim" not in image.base.ref


@pytest.mark.parametrize("values", [{}, {"flavor": "devel"}, {"flavor": "devel", "requirements": ["einops"]}])
def test_other_stacks_compile_nothing(values: dict[str, Any]) -> None:
    image = _stack(**values).image
    assert (image.compiled, image.compile_base) == ((), None)


def test_the_base_of_a_person_stays() -> None:
    image = _stack(**{"with": "flash-attn", "base": "registry.example/team/base:1", "python": "3.11"}).image
    assert image.base.ref == image.compile_base.ref == "registry.example/team/base:1"


def test_locks_without_it_do_not_speak_of_it() -> None:
    plain = _stack().to_lock()
    assert '"compile' not in plain
    stack = _stack(**{"with": "flash-attn"})
    assert Stack.from_lock(stack.to_lock()) == stack
    assert Stack.from_lock(plain).to_lock() == plain


def test_a_request_survives_its_lock() -> None:
    request = parse_request(
        {
            "torch": "2.5",
            "gpu": ["h100", "a100"],
            "with": "jupyter",
            "container-toolkit": "1.17.8",
            "require-secure": True,
        }
    )
    assert request_of(plain_request(request)) == request
    assert request_of({}) == Request()


def test_a_stack_on_an_image_of_cuda_keeps_it() -> None:
    found = solve(parse_request({"tensorflow": "2.10", "with": "horovod"}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image.compiled == ("horovod",)
    assert found.image.compile_base is None


def test_the_reason_of_the_base_speaks_of_the_final_image() -> None:
    stack = _stack(**{"with": "flash-attn"})
    reason = next(reason for reason in stack.reasons if reason.subject == "base")
    assert "flash-attn" in reason.because
    assert reason.facts[0].id == f"image/{stack.image.base.ref}"


def test_what_compiling_needs_of_the_system_stays_in_the_stage_that_compiles() -> None:
    apart = solve(parse_request({"torch": "2.0", "with": "horovod", "apt": "ffmpeg"}), MATRIX)
    assert isinstance(apart, Stack)
    assert apart.image.compile_base is not None
    assert (apart.image.apt, apart.image.build_apt) == (("ffmpeg",), ("cmake",))
    whole = solve(parse_request({"tensorflow": "2.10", "with": "horovod"}), MATRIX)
    assert (whole.image.compile_base, whole.image.apt, whole.image.build_apt) == (None, ("cmake",), ())


def test_a_build_gets_the_variables_without_which_it_has_no_code_for_gpus_or_takes_what_no_lock_has_seen() -> None:
    graph = _stack(**{"with": "torch-scatter"})
    assert graph.image.build_env == {"FORCE_CUDA": "1"}
    assert Stack.from_lock(graph.to_lock()) == graph
    assert _stack(**{"with": "flash-attn"}).image.build_env == {"FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
    assert _stack(flavor="devel", requirements=["torch_sparse"]).image.build_env == {"FORCE_CUDA": "1"}
    assert "build_env" not in _stack().to_lock()


@pytest.mark.parametrize(
    ("asked", "torch", "own"),
    [
        ({"gpu": "a100"}, "8.0", "80"),
        ({"gpu": "rtx 4090"}, "8.9", "80"),
        ({"gpu": ("h100", "a100")}, "8.0;9.0", "80;90"),
        ({"gpu": "rtx 4090", "cuda": "11.8", "torch": "2.4"}, "8.9", "80"),
        ({"gpu": "rtx 5090", "torch": "2.8", "cuda": "12.8"}, "12.0", "120"),
    ],
)
def test_a_named_gpu_is_all_that_is_compiled_for(asked: dict[str, Any], torch: str, own: str) -> None:
    stack = _stack(**{"with": "flash-attn", **asked})
    assert stack.image.build_env == {
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "FLASH_ATTN_CUDA_ARCHS": own,
        "TORCH_CUDA_ARCH_LIST": torch,
    }
    files = {artifact.path: artifact.text for artifact in render_image(stack)}
    assert re.search(rf'TORCH_CUDA_ARCH_LIST="?{re.escape(torch)}"?', files["Dockerfile"])
    assert all(name in files["Dockerfile"] for name in ("dev.provision.gpus", *stack.gpus))
    assert any(reason.subject == "compiled" for reason in stack.reasons)


def test_without_a_gpu_all_that_the_framework_runs_on_is_compiled_for() -> None:
    stack = _stack(**{"with": "flash-attn"})
    files = {artifact.path: artifact.text for artifact in render_image(stack)}
    assert "dev.provision.gpus" not in files["Dockerfile"]
    assert stack.sm[0].removeprefix("sm_") in files["Dockerfile"].replace(".", "")
    assert "TORCH_CUDA_ARCH_LIST" not in stack.image.build_env


def test_targets_are_written_as_each_build_reads_them() -> None:
    known = {"SOME": "80;90", "ANY": ","}
    assert target_variables(("sm_86", "sm_90a", "compute_90"), known) == {
        "TORCH_CUDA_ARCH_LIST": "8.6;9.0a;9.0+PTX",
        "SOME": "80;90",
        "ANY": "86,90",
    }
    assert target_variables(("sm_75",), known) == {"TORCH_CUDA_ARCH_LIST": "7.5", "ANY": "75"}
