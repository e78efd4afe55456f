"""How a text says that a program was started, where a message alone leaves open why it was given no GPU."""

from __future__ import annotations

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import Finding, diagnose
from provision.doctor.suspect import find_suspect
from provision.matrix.load import Matrix
from provision.records import replace

MATRIX = Matrix()
NONE_GIVEN = "RuntimeError: No CUDA GPUs are available"


def found_in(*lines: str) -> Finding:
    report = diagnose(Case(MATRIX, None, (("log", "\n".join(lines) + "\n"),)))
    assert report.broken == {}
    return (*report.causes, *report.notes)[0]


def fix_of(*lines: str) -> tuple[str, ...]:
    finding = found_in(*lines)
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


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('CUDA_VISIBLE_DEVICES="" python train.py', ""),
        ("export CUDA_VISIBLE_DEVICES=''", ""),
        ("export CUDA_VISIBLE_DEVICES=", ""),
        ("CUDA_VISIBLE_DEVICES= python train.py", ""),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ""', ""),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", "-1"),
        ("      - CUDA_VISIBLE_DEVICES=none", "none"),
        ('  "CUDA_VISIBLE_DEVICES": "all",', "all"),
        ("docker run -e CUDA_VISIBLE_DEVICES=NoDevFiles --gpus all mirror.example/app:1", "NoDevFiles"),
    ],
)
def test_value_that_names_no_gpu_is_the_cause(line: str, value: str) -> None:
    finding = found_in(line, NONE_GIVEN)
    assert f"the text sets CUDA_VISIBLE_DEVICES to `{value}`, which names no GPU" in finding.sign.seen


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = str(local_rank)',
        'os.environ["CUDA_VISIBLE_DEVICES"] = "" if args.cpu else gpus',
        "os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu",
        "CUDA_VISIBLE_DEVICES: not set",
        "CUDA_VISIBLE_DEVICES=unset",
        "CUDA_VISIBLE_DEVICES: None",
        "CUDA_VISIBLE_DEVICES: ",
        "CUDA_VISIBLE_DEVICES: all that is set for the job",
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]",
        "CUDA_VISIBLE_DEVICES=$GPU python train.py",
        'CUDA_VISIBLE_DEVICES="$GPU" python train.py',
    ],
)
def test_value_that_is_not_literal_tells_nothing(line: str) -> None:
    assert fix_of(line, NONE_GIVEN) == MATRIX.diagnoses["cuda.hidden-devices"].fix


@pytest.mark.parametrize(
    "lines",
    [
        ("$ docker run -d redis:7", "$ torchrun --nproc-per-node 2 train.py"),
        ("$ docker run --rm busybox ls", "$ torchrun --nproc-per-node 2 train.py"),
        ("$ docker run -it --rm busybox ls", "$ docker compose up"),
        ("$ docker run -it --rm busybox ls /data/sets", "$ python train.py"),
        ("$ docker run mirror.example/app:1", "$ docker run --gpus all mirror.example/app:1"),
        ("$ docker run -d redis:7", "$ apptainer exec --nv app.sif python train.py"),
    ],
)
def test_container_beside_the_start_that_failed_tells_nothing(lines: tuple[str, ...]) -> None:
    assert fix_of(*lines, NONE_GIVEN) == MATRIX.diagnoses["cuda.hidden-devices"].fix


@pytest.mark.parametrize(
    "lines",
    [
        ("$ docker run -it mirror.example/app:1 bash", "root@0:/# python train.py", NONE_GIVEN),
        ("$ docker run --rm -it mirror.example/app:1", "root@0:/# python train.py", NONE_GIVEN),
        ("$ docker run --rm mirror.example/app:1 \\", "  torchrun train.py", NONE_GIVEN),
        ("$ docker run -d redis:7", "$ docker run mirror.example/app:1", NONE_GIVEN),
        ("$ docker run --gpus all mirror.example/cuda:1 nvidia-smi", "$ docker run mirror.example/app:1", NONE_GIVEN),
        (NONE_GIVEN, "This is how I start it:", "$ docker run mirror.example/app:1"),
    ],
)
def test_container_is_the_start_that_failed(lines: tuple[str, ...]) -> None:
    assert "--gpus all" in fix_of(*lines)[0]


def test_whole_node_is_no_job_that_asks_for_no_gpu() -> None:
    lines = ("#SBATCH -p gpu --exclusive",)
    assert fix_of(*lines, NONE_GIVEN) == MATRIX.diagnoses["cuda.hidden-devices"].fix
    assert found_in(*lines, "No GPU detected by the web UI widget, ignoring").sign.confidence == "low"


def test_list_of_gpus_makes_nothing_sure_that_a_program_says_in_its_own_words() -> None:
    lines = ("$ CUDA_VISIBLE_DEVICES=0,1 vllm serve mirror.example/model", "INFO detected 2 GPUs")
    finding = found_in(*lines, "CUDA is not available in this browser widget")
    assert finding.sign.confidence == "low"
    assert not any("Take the setting" in step for step in finding.fix)


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


@pytest.mark.parametrize(
    "lines",
    [
        ("torch==2.1.0", "/opt/venv/lib/python3.12/site-packages"),
        ("$ pip install torch==2.1.0 bitsandbytes==0.99", "/opt/venv/lib/python3.12/site-packages"),
    ],
)
def test_torch_beside_another_refused_package_is_not_the_refused_one(lines: tuple[str, ...]) -> None:
    assert "torch 2.1.0" not in published("bitsandbytes==0.99", *lines)


def test_torch_is_the_refused_one_where_the_command_pins_it_and_no_package_is_named() -> None:
    wheel = "ERROR: torch-2.1.0-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform."
    assert "has wheels for Python 3.8 to 3.11" in found_in("Python 3.12.1", "pip install torch==2.1.0", wheel).fix[0]
    assert "has wheels" not in found_in("Python 3.12.1", "torch==2.1.0", wheel).fix[0]


def test_torch_with_free_threaded_builds_alone_breaks_no_answer() -> None:
    matrix = Matrix()
    matrix.__dict__["torch_builds"] = tuple(
        replace(row, pythons=("3.13t",)) if row.torch == "2.7.1" else row for row in matrix.torch_builds
    )
    text = "Python 3.14.2\nERROR: No matching distribution found for torch==2.7.1\n"
    report = diagnose(Case(matrix, None, (("log", text),)))
    assert report.broken == {}
    assert report.causes[0].fix[0] == "Take what is published: torch 2.7.1 has wheels for Python 3.13t alone."


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
