"""How a text says that a program was started, where a message alone leaves open why it was given no GPU."""

from __future__ import annotations

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.doctor.suspect import find_suspect
from provision.matrix.load import Matrix

MATRIX = Matrix()
NONE_GIVEN = "RuntimeError: No CUDA GPUs are available"


def fix_of(*lines: str) -> tuple[str, ...]:
    report = diagnose(Case(MATRIX, None, (("log", "\n".join(lines) + "\n"),)))
    assert report.broken == {}
    finding = (*report.causes, *report.notes)[0]
    assert finding.diagnosis.id == "cuda.hidden-devices"
    return finding.fix


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("      CUDA_VISIBLE_DEVICES: all", "NVIDIA_VISIBLE_DEVICES"),
        ("os.environ[\"CUDA_VISIBLE_DEVICES\"]='1'", "nvidia-smi -L"),
        ("$ docker run --rm -it mirror.example/app:1 serve", "--gpus all"),
        ("$ apptainer exec app.sif python train.py", "--nv"),
        ("#SBATCH --partition=gpu", "#SBATCH --gpus=1"),
        ("Restarting the systemd service cures the problem.", "nvidia-persistenced.service"),
    ],
)
def test_line_that_started_the_program_decides_the_fix(line: str, word: str) -> None:
    assert word in fix_of(line, NONE_GIVEN)[0]


def test_variable_with_a_list_is_asked_after_the_container() -> None:
    assert "--gpus all" in fix_of("docker run -e CUDA_VISIBLE_DEVICES=0 mirror.example/app:1", NONE_GIVEN)[0]


@pytest.mark.parametrize(
    "lines",
    [
        ("NVIDIA_VISIBLE_DEVICES=all",),
        ("$ docker run --rm --gpus all mirror.example/app:1",),
        ("$ docker run --rm \\", "    --gpus all mirror.example/app:1"),
        ("$ docker run --runtime=nvidia mirror.example/app:1",),
        ("$ singularity exec --nv app.sif python train.py",),
        ("#SBATCH --partition=gpu", "#SBATCH --gres=gpu:1"),
    ],
)
def test_start_that_asks_for_a_gpu_leaves_the_steps_of_the_fact(lines: tuple[str, ...]) -> None:
    assert fix_of(*lines, NONE_GIVEN) == MATRIX.diagnoses["cuda.hidden-devices"].fix


def test_own_words_of_a_program_count_only_where_the_start_tells_why() -> None:
    assert "--gpus all" in fix_of("$ docker run mirror.example/app:1 list", "12:00 | - No GPUs detected")[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "torch 2.6.0 was never built for cu121, only for"),
        (("Python version: 3.14.2",), "torch 2.6.0 was never built for cu121, only for"),
    ],
)
def test_published_builds_of_a_pinned_torch_come_first(lines: tuple[str, ...], said: str) -> None:
    assert said in published("torch==2.6.0+cu121", *lines)


def test_python_that_no_wheel_is_for_is_named() -> None:
    lines = ("Python 3.14.2", "pip install torch==2.7.1 --index-url https://mirror.example/whl/cu118")
    assert "has wheels for Python 3.9 to 3.13, and none for 3.14" in published("torch==2.7.1", *lines)
    assert "has wheels for Python" in published("torch==2.7.1", "Python 3.14.2")


def test_index_is_named_only_where_the_text_asks_none() -> None:
    assert "on PyTorch's index of that name" in published("torch==2.6.0+cu124")
    assert "Take what is published" not in published("torch==2.6.0+cu124", "from https://mirror.example/whl/cu124")


def published(pin: str, *lines: str) -> str:
    text = "\n".join((*lines, f"ERROR: No matching distribution found for {pin}", ""))
    (finding,) = diagnose(Case(MATRIX, None, (("log", text),))).causes
    return finding.fix[0]


def test_what_people_tell_of_a_run_that_says_nothing_is_heard_last() -> None:
    told = "The training hangs on 4 RTX 3090 GPUs after a while\n"
    assert [finding.diagnosis.id for finding in diagnose(Case(MATRIX, None, (("log", told),))).causes] == [
        "nccl.no-p2p"
    ]
    known = told + "RuntimeError: CUDA error: device-side assert triggered\n"
    assert diagnose(Case(MATRIX, None, (("log", known),))).causes[0].diagnosis.id == "cuda.device-assert"


def test_what_a_text_proves_comes_before_what_a_deeper_message_suggests() -> None:
    text = (
        "Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!\n"
        "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60.\n"
    )
    found = [finding.diagnosis.id for finding in diagnose(Case(MATRIX, None, (("log", text),))).causes]
    assert found == ["cuda.no-kernel-image", "cudnn.missing"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("CMake Error at CMakeDetermineCUDACompiler.cmake:311 (message):", "it comes from a build"),
        ("mpirun failed: error", "it comes from the network between ranks"),
        ("the plugin refused to transcode", "it comes from the program"),
    ],
)
def test_layer_of_the_failing_line(text: str, where: str) -> None:
    suspect = find_suspect(text + "\n")
    assert suspect is not None
    assert suspect.where == where


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        ("Nvidia driver version: 470.57.02", True),
        ("NVIDIA driver 470.57.02 (CUDA 11.4 max)", True),
        ("The release requires NVIDIA driver 470.57.02", False),
    ],
)
def test_driver_is_read_where_it_is_told_and_not_where_it_is_wanted(line: str, is_known: bool) -> None:
    text = f"{line}\nPyTorch version: 2.9.1+cu130\n"
    found = [finding.diagnosis.id for finding in diagnose(Case(MATRIX, None, (("log", text),))).causes]
    assert found == (["cuda.driver-too-old"] if is_known else [])
