"""Texts that no diagnosis knows: what their failing lines say of a thing is answered, and nothing else is."""

from __future__ import annotations

import pytest

from provision.doctor.case import Case
from provision.doctor.claim import guess
from provision.doctor.engine import diagnose
from provision.matrix.load import Matrix

MATRIX = Matrix()


def case_of(*lines):
    return Case(MATRIX, None, [("text", "\n".join(lines) + "\n")])


def named(*lines):
    found = guess(case_of(*lines))
    return found[0] if found is not None else None


@pytest.mark.parametrize("claim", MATRIX.rows("diagnoses.toml", "claim"), ids=lambda claim: claim.id)
def test_example_of_a_claim_is_answered_by_one_of_its_diagnoses_and_no_earlier_claim(claim) -> None:
    assert named("RuntimeError: the program ended" if claim.id == "frame" else "", claim.example) in claim.of
    assert claim.of.keys() <= MATRIX.diagnoses.keys()


@pytest.mark.parametrize(
    ("line", "diagnosis"),
    [
        ("error: the frobnicator needs nvcc, which was not found", "cuda.home-unset"),
        ("error: could not find nvcc for the frobnicator", "cuda.home-unset"),
        ("FrobError: graphics driver is outdated", "cuda.driver-too-old"),
        ("fatal: failed to allocate the film on the GPU", "cuda.out-of-memory"),
        ("AttributeError: 'frob' object has no attribute 'nicate'", "python.version-mismatch"),
        ("AttributeError: 'NoneType' object has no attribute 'nicate'", None),
        ("the frobnicator needs nvcc, which is on PATH", None),
    ],
)
def test_subject_and_what_is_said_of_it_are_read_in_either_order(line, diagnosis) -> None:
    assert named(line) == diagnosis


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: nvcc was not found, kernels are fetched instead",
        "2026-11-24 10:00:00 INFO could not find nvcc, going on",
        "[    4.100000] nvidia: kernel headers not found, going on",
    ],
)
def test_what_goes_on_after_it_said_so_is_no_failure(line) -> None:
    assert named(line) is None


def test_function_that_raised_tells_where_its_message_does_not() -> None:
    frame = '  File "/env/lib/python3/site-packages/torch/utils/cpp_extension.py", line 9, in _join_cuda_home'
    assert named("Traceback (most recent call last):", frame, "OSError: of a kind that nobody saw") == "cuda.home-unset"


def test_line_that_failed_comes_before_what_stands_near_it() -> None:
    lines = ["error: not enough VRAM for the film on the GPU", *["."] * 5, "and then nvcc was not found"]
    assert named(*lines) == "cuda.out-of-memory"


def test_claim_far_from_the_failure_is_left_alone() -> None:
    assert named("error: the film tore", *["."] * 40, "ninja is missing") is None


def test_guess_is_unsure_and_yields_to_every_message_that_is_known() -> None:
    report = diagnose(case_of("error: not enough VRAM to hold the film on the GPU"))
    assert [finding.sign.confidence for finding in (*report.causes, *report.notes)] == ["low"]
    known = diagnose(case_of("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "error: ninja is missing"))
    assert [finding.diagnosis.id for finding in (*known.causes, *known.notes)] == ["cuda.out-of-memory"]


def test_quotes_that_a_program_escaped_are_read_as_plain_ones() -> None:
    report = diagnose(case_of("HTTPError: {'message': '\"LayerNormKernelImpl\" not implemented for \\'Half\\''}"))
    assert [finding.diagnosis.id for finding in report.causes] == ["torch.half-on-cpu"]


def test_last_resort_yields_to_what_else_is_said_and_is_left_open_alone() -> None:
    stopped = "ninja: build stopped: subcommand failed."
    alone = diagnose(case_of(stopped))
    assert [finding.diagnosis.id for finding in alone.causes] == ["build.failed"]
    assert alone.causes[0].fits
    both = diagnose(case_of("error: the frobnicator needs nvcc, which was not found", stopped))
    assert [finding.diagnosis.id for finding in (*both.causes, *both.notes)] == ["cuda.home-unset"]


def test_excerpt_of_few_lines_needs_no_line_that_reads_like_an_error() -> None:
    said = "the frobnicator can only run on a CUDA GPU"
    assert named(said) == "cuda.hidden-devices"
    assert named(said, *["."] * 9) is None


def test_what_a_last_resort_does_not_name_is_no_answer_in_its_own_line() -> None:
    line = "RuntimeError: Your device does not support the current version of Torch/CUDA! Consider another version"
    assert guess(case_of(line)) is not None
    assert [finding.diagnosis.id for finding in diagnose(case_of(line)).causes] == ["torch.no-gpu"]


@pytest.mark.parametrize(
    "line",
    [
        "We run inference on the CPU for unit tests and training on GPU.",
        "Training is running on the GPU, data loading runs on CPU.",
        "LightGBM tutorial: training on CPU takes 3 s.",
        "LightGBM tutorial: training on CPU only takes 3 s.",
        "The unit tests run on CPU only.",
        "It runs on the CPU, although slower.",
        "Training runs on the GPU instead of the CPU since 2.0.",
        "the GPU is not used on weekends",
        "The GPU is used during training.",
        "The tests no longer hang on 4 GPUs, all_reduce returns in 3 ms.",
        "No more hangs on 8x A100 GPUs since NCCL 2.20.",
        "Since the upgrade all_reduce never hangs on 4 GPUs.",
        "The deadlock of all_reduce on 4 GPUs was fixed in 2.20.",
        "[rank0]:[W1124 12:00:00.1 ProcessGroupNCCL.cpp:1] barrier() on 4 GPUs can potentially cause a hang of NCCL",
        "our web server is stuck, two servers behind nginx hang, no GPU here",
        "two servers behind nginx hang",
        "Pods that do not use GPUs are put on other nodes.",
    ],
)
def test_text_of_what_works_is_no_failure_that_people_tell(line) -> None:
    report = diagnose(case_of("step 10 loss 2.31", line))
    assert (*report.causes, *report.notes) == ()


@pytest.mark.parametrize(
    ("line", "diagnosis"),
    [
        ("Training runs on the CPU instead of the GPU.", "torch.cpu-build"),
        ("The model is running on CPU although I have a RTX 3090", "torch.cpu-build"),
        ("I have a RTX 3090, but inference runs on CPU, not using the GPU", "torch.cpu-build"),
        ("It runs using only the CPU", "torch.cpu-build"),
        ("My GPU is not being used during training", "torch.cpu-build"),
        ("GPU isn't used.", "torch.cpu-build"),
        ("It should be fixed in 2.20, and all_reduce still hangs on 4 GPUs", "nccl.no-p2p"),
        ("Training hangs on 4 GPUs since I upgraded the driver", "nccl.no-p2p"),
        ("The unit tests hang on 2 GPUs", "nccl.no-p2p"),
        ("As in the tutorial, and training hangs on 2 GPUs", "nccl.no-p2p"),
        ("Multi-node training hangs in init", "nccl.wrong-interface"),
        ("NCCL is stuck between two nodes", "nccl.wrong-interface"),
        ("The container cannot see the GPU", "cuda.hidden-devices"),
    ],
)
def test_failure_that_people_tell_is_heard(line, diagnosis) -> None:
    assert named(line) == diagnosis
