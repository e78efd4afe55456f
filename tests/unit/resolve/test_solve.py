"""What the solver answers over the shipped facts: the cases people meet, and the refusals they must get."""

import json
import re
import shutil

import pytest

from provision.assets import asset_dir
from provision.errors import DataError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.query import find_first_branch
from provision.resolve.options import index_requires
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack


@pytest.fixture(scope="module")
def matrix():
    return Matrix()


def answer(matrix, **values):
    found = solve(parse_request(values), matrix)
    assert isinstance(found, Stack), (found.message, [reason.because for reason in found.because])
    return found


def refusal(matrix, **values):
    found = solve(parse_request(values), matrix)
    assert isinstance(found, Refusal), found.name
    return found


def test_headline_request(matrix):
    stack = answer(matrix, cuda="11.8", torch="2.1")
    assert stack.frameworks == {"torch": "2.1.2"}
    assert (stack.cuda, stack.variant) == ("11.8", "cu118")
    assert stack.packages["torch"] == "2.1.2+cu118"
    assert stack.packages["torchvision"] == "0.16.2+cu118"
    assert stack.packages["torchaudio"] == "2.1.2+cu118"
    assert stack.packages["numpy"] == "1.26.4"
    assert stack.packages["triton"] == "2.1.0"
    assert stack.cudnn.startswith("8.7.0")
    assert stack.driver.minimum == "450.80.02"
    assert stack.image.base.ref == f"python:{stack.python}-slim-bookworm"
    assert stack.image.cuda_base is None


def test_default_build_is_locked_with_every_hash(matrix):
    stack = answer(matrix, torch="2.1", cuda="12.1", python="3.11")
    assert stack.packages["torch"] == "2.1.2"
    assert stack.packages["nvidia-cudnn-cu12"] == "8.9.2.26"
    assert stack.cudnn == "8.9.2.26"
    assert stack.packages["nvidia-nvjitlink-cu12"] == "12.1.105"
    assert all(package.sha256 and package.size and package.installed for package in stack.image.packages)
    assert stack.sm == ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def test_newest_torch(matrix):
    stack = answer(matrix, torch="2")
    assert (stack.frameworks["torch"], stack.variant, stack.cuda) == ("2.15.0", "cu132", "13.2")
    assert stack.packages["torchaudio"] == "2.11.1"
    # 2.11.0 was built for no CUDA 13.2, and refuses to be imported beside another minor than its own.
    assert answer(matrix, torch="2.14.1", cuda="13.2").packages["torchaudio"] == "2.11.1"
    # Of 2.11.1 only the build of the package index is known, which is none for the CPU.
    assert answer(matrix, torch="2.15+cpu").packages["torchaudio"] == "2.11.0+cpu"
    before = answer(matrix, torch="2.14.1", cuda="13.0")
    assert (before.packages["torch"], before.packages["torchaudio"]) == ("2.14.1", "2.11.0")
    assert stack.driver.minimum == "580.65.06"
    assert stack.packages["torchvision"] == "0.29.2"


@pytest.mark.parametrize("cuda", ["11.0", "11.4", "12.4", "13.5"])
def test_toolkit_released_in_a_known_year_month_or_day_has_an_epoch(matrix, cuda):
    found = solve(parse_request({"cuda": cuda}), matrix)
    assert not isinstance(found, Stack) or found.image.source_date_epoch > 1_500_000_000


def test_tensorflow_takes_its_cuda_from_wheels_or_from_an_image(matrix):
    new = answer(matrix, tensorflow="2.15")
    assert new.image.cuda_base is None
    assert "nvidia-cudnn-cu12" in new.packages
    old = answer(matrix, tensorflow="2.10")
    assert old.cuda == "11.2"
    assert old.image.cuda_base.ref.startswith("nvidia/cuda:11.2.2-cudnn8-runtime-")
    assert old.cudnn.startswith("8.1.1")
    assert "tensorflow" in old.packages


@pytest.mark.parametrize(
    ("jax", "gpu", "how"),
    [("0.4.34", "h100", "sm_90"), ("0.4.34", "b200", "compute_90"), ("0.8", "b300", "sm_100"), ("0.8", "t4", "sm_75")],
)
def test_jax_says_which_code_a_gpu_runs(matrix, jax, gpu, how):
    stack = answer(matrix, jax=jax, gpu=gpu)
    assert any(f"its {how} code" in reason.because for reason in stack.reasons)
    assert any("has no code for" in text for text in stack.warnings) is how.startswith("compute_")


def test_the_documents_of_jax_bind_beside_its_code(matrix):
    assert "sm_50" in next(row for row in matrix.jax if row.version == "0.6.2").sm
    refused = solve(parse_request({"jax": "0.6.2", "gpu": "5.0"}), matrix)
    assert "needs compute capability 5.2" in " ".join(reason.because for reason in refused.because)


def test_jax_brings_its_plugin(matrix):
    stack = answer(matrix, jax="0.4.38")
    assert stack.variant == "cuda12"
    assert stack.packages["jax-cuda12-plugin"] == "0.4.38"
    assert stack.cuda.startswith("12.")
    assert stack.cudnn.startswith("9.")


def test_cuda_alone_stands_on_a_listed_tag(matrix):
    stack = answer(matrix, cuda="12.4", flavor="devel")
    assert stack.python is None
    assert stack.frameworks == {}
    assert stack.image.base.ref.startswith("nvidia/cuda:12.4.1-devel-")


@pytest.mark.parametrize(
    ("gpu", "torch", "variant"),
    [
        ("V100", ">=2.11", "cu126"),
        ("GTX 1080 Ti", "2.8", "cu126"),
        ("h100", "2.0", "cu118"),
        ("RTX 5090", "2.7", "cu128"),
    ],
)
def test_gpu_decides_the_build(matrix, gpu, torch, variant):
    assert answer(matrix, torch=torch, gpu=gpu).variant == variant


def test_driver_decides_the_build(matrix):
    stack = answer(matrix, torch="2.11", driver="550.54.15")
    assert stack.variant in ("cu129", "cu128")
    assert answer(matrix, torch="2.11", driver="580.126.20").variant == "cu130"


def test_v100_with_a_torch_that_dropped_it_is_pointed_to_the_last_build(matrix):
    found = refusal(matrix, torch="2.15", gpu="V100")
    assert any("2.14" in " ".join(way.flags) for way in found.alternatives)


def test_insecure_driver_warns_and_is_refused_on_demand(matrix):
    stack = answer(matrix, torch="2.4", driver="535.104.05")
    assert any("535.104.05 is below" in warning for warning in stack.warnings)
    found = refusal(matrix, torch="2.4", driver="535.104.05", **{"require-secure": True})
    assert found.is_proved
    assert "--require-secure" in found.conflict
    fixed = stack.driver.secure_minimum["535"]
    assert answer(matrix, torch="2.4", driver=fixed, **{"require-secure": True})


def test_insecure_container_toolkit_is_refused_on_demand(matrix):
    values = {"torch": "2.4", "container-toolkit": "1.16.1"}
    assert any("1.16.1" in warning for warning in answer(matrix, **values).warnings)
    assert refusal(matrix, **values, **{"require-secure": True}).is_proved


PROVED = [
    pytest.param({"torch": "2.1", "cuda": "12.4"}, id="cuda-never-built"),
    pytest.param({"torch": "2.9", "cuda": "11.8"}, id="cuda-dropped"),
    pytest.param({"torch": "2.1", "python": "3.12"}, id="python-too-new"),
    pytest.param({"torch": "2.6", "gpu": "RTX 5090"}, id="gpu-too-new"),
    pytest.param({"cuda": "13", "gpu": "V100"}, id="gpu-dropped"),
    pytest.param({"cuda": "11.8", "platform": "arm64", "torch": "2.1"}, id="no-arm64-cu118"),
    pytest.param({"torch": "2.4", "driver": "440"}, id="driver-too-old"),
    pytest.param({"tensorflow": "2.10", "python": "3.11"}, id="tf-python"),
    pytest.param({"tensorflow": "2.15", "platform": "arm64"}, id="tf-arm64-is-cpu"),
    pytest.param({"gpu": "K80,RTX 5090"}, id="no-common-driver"),
    pytest.param({"gpu": "V100", "driver": "595.71.05"}, id="driver-dropped-the-gpu"),
    pytest.param({"torch": "2.1", "requirements": ["numpy>=2"]}, id="requirements-contradict"),
]


@pytest.mark.parametrize("values", PROVED)
def test_refusal_is_proved_explained_and_has_a_way_out(matrix, values):
    found = refusal(matrix, **values)
    assert found.is_proved, found.because
    assert found.because
    assert all(fact.source for reason in found.because for fact in reason.facts)
    assert any(reason.facts for reason in found.because)


@pytest.mark.parametrize("values", [case for case in PROVED if "requirements" not in case.values[0]])
def test_every_alternative_resolves(matrix, values):
    found = refusal(matrix, **values)
    assert found.alternatives or "K80" in values.get("gpu", "")
    for way in found.alternatives:
        words = iter(way.flags)
        request: dict[str, object] = {}
        for flag in words:
            name = flag.removeprefix("--")
            request.setdefault("gpu", []).append(next(words)) if name == "gpu" else request.update({name: next(words)})
        assert isinstance(solve(parse_request(request), matrix), Stack), way.flags


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"torch": "99"}, id="torch-99"),
        pytest.param({"torch": "1.4"}, id="torch-before-the-facts"),
        pytest.param({"jax": "9.9"}, id="jax-9.9"),
        pytest.param({"torch": "2.15", "cuda": "12.6"}, id="open-list-of-builds"),
        pytest.param({"torch": "2.4", "gpu": "RTX 9999"}, id="gpu-nobody-knows"),
        pytest.param({"torch": "2.4", "os": "plan9"}, id="os-nobody-knows"),
        pytest.param({"torch": "2.4", "with": "teapot"}, id="extra-nobody-knows"),
    ],
)
def test_what_the_facts_do_not_say_is_unknown(matrix, values):
    assert not refusal(matrix, **values).is_proved


def test_conflict_is_the_smallest(matrix):
    found = refusal(matrix, torch="2.1", cuda="12.4", python="3.10", gpu="a100", os="debian12")
    assert set(found.conflict) == {"--torch 2.1", "--cuda 12.4"}


def test_two_frameworks_share_one_environment_or_are_refused_with_the_pins(matrix):
    both = answer(matrix, torch="2.4", jax="0.4.30", python="3.11")
    assert both.frameworks == {"torch": "2.4.1", "jax": "0.4.30"}
    assert both.packages["nvidia-cudnn-cu12"] == "9.1.0.70"
    for values in ({"torch": "2.3", "jax": "0.4.30"}, {"torch": "2.5", "tensorflow": "2.18"}):
        found = refusal(matrix, **values)
        assert found.is_proved
        assert any("cudnn" in reason.because.lower() for reason in found.because)


def copy_facts(tmp_path):
    return shutil.copytree(asset_dir("compat"), tmp_path / "compat")


def test_deleted_row_turns_the_request_unknown(matrix, tmp_path):
    data = copy_facts(tmp_path)
    path = data / "frameworks" / "torch.toml"
    blocks = path.read_text().split("\n\n")
    kept = [block for block in blocks if 'version = "2.1.2"' not in block and 'torch = "2.1.2"' not in block]
    assert len(kept) < len(blocks)
    path.write_text("\n\n".join(kept))
    assert isinstance(solve(parse_request({"torch": "2.1.2"}), matrix), Stack)
    assert not refusal(Matrix(data), torch="2.1.2").is_proved


def test_changed_pin_changes_the_lock(matrix, tmp_path):
    data = copy_facts(tmp_path)
    path = data / "wheels" / "torch.json"
    before = answer(matrix, torch="2.1.2", cuda="12.1", python="3.11")
    document = json.loads(path.read_text())
    row = next(row for row in document["releases"] if row["version"] == "2.1.2")
    for need in row["requires"]:
        if need[0] == "nvidia-nccl-cu12":
            need[1] = "==2.19.3"
    path.write_text(json.dumps(document))
    after = answer(Matrix(data), torch="2.1.2", cuda="12.1", python="3.11")
    assert (before.packages["nvidia-nccl-cu12"], after.packages["nvidia-nccl-cu12"]) == ("2.18.1", "2.19.3")
    assert before.lock_digest != after.lock_digest


def test_changed_driver_floor_reaches_the_stack(tmp_path):
    data = copy_facts(tmp_path)
    path = data / "cuda.toml"
    path.write_text(path.read_text().replace('minimum_driver = "450.80.02"', 'minimum_driver = "451.99.01"'))
    assert answer(Matrix(data), torch="2.1", cuda="11.8").driver.minimum == "451.99.01"


def test_user_line_constrains_a_package_of_the_stack(matrix):
    stack = answer(matrix, torch="2.3", requirements=["numpy<2", "pandas>=2"])
    assert stack.packages["numpy"].startswith("1.")
    assert "pandas" not in stack.packages
    assert stack.image.user_requirements == ("numpy<2", "pandas>=2")


def test_lock_reads_back_equal(matrix):
    stack = answer(matrix, torch="2.1", gpu="a100", requirements=["pandas"])
    assert Stack.from_lock(stack.to_lock()) == stack


@pytest.mark.parametrize(
    ("cuda", "variant"),
    [(">12.4", "cu126"), ("!=12.4", "cu126"), (">=12.4,<12.6", "cu124"), ("12.4.1", "cu124"), ("<12", "cu118")],
)
def test_cuda_range_is_about_minors_unless_it_names_a_patch(matrix, cuda, variant):
    assert answer(matrix, torch="2.6", cuda=cuda).variant == variant


def test_gpu_with_an_arm_host_decides_the_platform(matrix):
    assert answer(matrix, torch="2.15", gpu="gb200").platform == "linux/arm64"
    found = refusal(matrix, torch="2.15", gpu="gb200", platform="linux/amd64")
    assert found.is_proved
    assert set(found.conflict) == {"--gpu gb200", "--platform linux/amd64"}


def test_unknown_driver_floor_is_never_guessed(tmp_path):
    data = copy_facts(tmp_path)
    path = data / "cuda.toml"
    blocks = path.read_text().split("\n\n")
    path.write_text("\n\n".join(block for block in blocks if 'version = "12.1.' not in block))
    assert not refusal(Matrix(data), torch="2.1.2+cu121").is_proved


def test_companions_of_the_same_minor_are_kept(matrix):
    stack = answer(matrix, torch="2.0.1", cuda="11.7")
    assert (stack.packages["torchvision"], stack.packages["torchaudio"]) == ("0.15.2", "2.0.2")


def test_variant_that_was_never_built_is_a_proved_refusal(matrix):
    assert refusal(matrix, torch="2.1.2+cu124").is_proved


def test_python_nobody_knows_is_not_blamed_on_cuda(matrix):
    found = refusal(matrix, torch="2.6", python="4")
    assert set(found.conflict) == {"--torch 2.6", "--python 4"}


def test_known_base_must_hold_the_python(matrix):
    found = refusal(matrix, torch="2.6", python="3.11", base="python:3.9-slim-bookworm")
    assert found.is_proved
    assert refusal(matrix, torch="2.6", base="nvidia/cuda:12.4.1-base-ubuntu22.04").is_proved
    assert (
        answer(matrix, torch="2.6", python="3.11", base="registry.example/team/python:3.11").image.base.digest is None
    )


@pytest.mark.parametrize("line", ['torch==2.0; python_version > "3"', "torch @ https://mirror.example/torch-2.0.whl"])
def test_line_that_would_replace_the_framework_is_refused(matrix, line):
    found = refusal(matrix, torch="2.6", requirements=[line])
    # What is at an address nobody knows.
    assert found.is_proved is ("@" not in line)
    assert any("torch" in reason.because for reason in found.because)


def test_line_for_another_python_binds_nothing(matrix):
    assert answer(matrix, torch="2.6", requirements=['numpy<1.20; python_version < "3"'])


def test_code_common_to_two_frameworks_counts_ptx(matrix):
    stack = answer(matrix, torch="2.10", tensorflow="2.20", gpu="h100")
    assert "sm_90" in stack.sm


def test_malformed_fact_is_a_fault_of_the_data(tmp_path):
    data = copy_facts(tmp_path)
    path = data / "cuda.toml"
    path.write_text(path.read_text().replace('minimum_driver = "525.60.13"', 'minimum_driver = "banana"'))
    with pytest.raises(DataError, match="malformed"):
        solve(parse_request({"torch": "2.4", "driver": "550.54.15"}), Matrix(data))


def test_old_gpu_gets_the_last_long_term_branch(matrix):
    stack = answer(matrix, cuda="11.4", gpu="k80")
    assert stack.driver.recommended_branch == "470"
    assert any("end of life" in warning for warning in stack.warnings)


@pytest.mark.parametrize("name", ["Blackwell", "Hopper"])
def test_architecture_is_no_gpu(matrix, name):
    with pytest.raises(UsageError, match="architecture"):
        solve(parse_request({"torch": "2.15", "gpu": name}), matrix)


def test_lost_build_row_is_unknown_and_not_proved_absent(matrix, tmp_path):
    data = copy_facts(tmp_path)
    path = data / "frameworks" / "torch.toml"
    blocks = path.read_text().split("\n\n")
    kept = [block for block in blocks if not ('torch = "2.1.' in block and 'variant = "cu118"' in block)]
    assert len(kept) == len(blocks) - 3
    path.write_text("\n\n".join(kept))
    assert not refusal(Matrix(data), torch="2.1", cuda="11.8").is_proved
    assert refusal(Matrix(data), torch="2.1", cuda="12.4").is_proved


@pytest.mark.parametrize(
    "row", [row for row in Matrix().jax if row.delivery == "legacy"], ids=lambda row: f"{row.version}-{row.variant}"
)
def test_legacy_jaxlib_gets_the_cudnn_it_was_built_against(matrix, row):
    stack = answer(matrix, jax=row.version, cuda=row.variant.removeprefix("cuda"))
    built = re.search(r"cudnn([0-9])", stack.packages["jaxlib"])
    assert built is None or stack.cudnn.split(".")[0] == built[1]


@pytest.mark.parametrize("flavor", ["runtime", "devel"])
def test_cuda_alone_is_not_put_on_another_system_than_asked(matrix, flavor):
    refusal(matrix, cuda="12.4", os="debian12", flavor=flavor)
    assert answer(matrix, cuda="12.4", os="ubuntu22.04", flavor=flavor).image.base.ref.endswith("ubuntu22.04")


def test_driver_branch_stands_for_its_newest_known_release_and_the_answer_says_which(matrix):
    found = answer(matrix, torch="2.9", cuda="13.0", driver="580")
    newest = next(row.last_release for row in matrix.driver_branches if row.branch == 580)
    (reason,) = [item for item in found.reasons if item.subject == "driver"]
    assert f"`--driver 580` is taken as {newest}" in reason.because
    assert found.request.driver == "580"
    # A release is meant as it is written.
    assert refusal(matrix, torch="2.9", cuda="13.0", driver="580.0").is_proved


@pytest.mark.parametrize("cpu", [False, True])
def test_tensorflow_under_its_name_for_the_cpu_is_told_what_to_write(matrix, cpu):
    with pytest.raises(UsageError) as caught:
        solve(parse_request({"requirements": ["tensorflow-cpu==2.16.1"], "cpu": cpu}), matrix)
    assert caught.value.hints == ("write `tensorflow` in place of `tensorflow-cpu`, with `--cpu`",)


def test_a_driver_newer_than_the_facts_is_taken_and_told(matrix):
    newest = max(row.branch for row in matrix.driver_branches)
    for driver, is_told in ((str(newest), False), (str(newest + 1), True)):
        stack = solve(parse_request({"torch": "2.8", "driver": driver}), matrix)
        assert any("newer than every branch of the facts" in text for text in stack.warnings) == is_told


def test_refusal_about_a_driver_branch_says_the_release_that_was_taken(matrix):
    found = refusal(matrix, torch="2.9", cuda="13.0", driver="570")
    assert found.is_proved
    newest = next(row.last_release for row in matrix.driver_branches if row.branch == 570)
    assert any(f"`--driver 570` is taken as {newest}" in reason.because for reason in found.because)


def test_gpu_without_a_first_driver_takes_that_of_its_compute_capability_and_says_so(matrix):
    unstated = [
        gpu
        for gpu in matrix.gpus
        if gpu.first_driver_branch is None
        and gpu.first_driver_branch_derived is None
        and gpu.compute_capability == "12.0"
    ]
    assert unstated
    for gpu in unstated:
        found = refusal(matrix, torch="2.9", gpu=gpu.id, driver="535.104.05")
        assert found.is_proved
        (reason,) = [item for item in found.because if item.subject == "gpu-driver"]
        assert "first branch is 570 (derived from other GPUs of compute capability 12.0)" in reason.because
        assert [fact.status for fact in reason.facts] == ["derived"]
        assert "(derived from" in next(
            item.because
            for item in answer(matrix, torch="2.9", gpu=gpu.id, cuda="12.8").reasons
            if item.subject == "driver"
        )


def test_every_gpu_of_a_desktop_or_server_has_a_first_driver(matrix):
    assert not [
        gpu.id
        for gpu in matrix.gpus
        if gpu.segment != "embedded" and gpu.last_driver_branch is None and find_first_branch(matrix, gpu) is None
    ]


@pytest.mark.parametrize("driver", ["450.51.06", "450.80.02"])
def test_cuda_runs_on_the_driver_it_was_released_with(matrix, driver):
    assert answer(matrix, cuda="11.0", driver=driver).driver.minimum == "450.51.06"
    assert answer(matrix, torch="1.7.1", cuda="11.0", driver=driver).variant == "cu110"


def test_later_minor_of_a_major_needs_the_floor_of_its_major(matrix):
    assert refusal(matrix, cuda="11.1", driver="450.51.06").is_proved
    assert answer(matrix, cuda="11.1", driver="450.80.02").driver.minimum == "450.80.02"


@pytest.mark.parametrize(
    ("torch", "cuda", "torchaudio"),
    [
        ("2.12", "12.6", "2.11.0+cu126"),
        ("2.12", "13.2", "2.11.1"),
        ("2.14", "13.0", "2.11.0"),
        ("2.11", "12.8", "2.11.0+cu128"),
    ],
)
def test_torch_gets_the_torchaudio_that_its_release_names(matrix, torch, cuda, torchaudio):
    stack = answer(matrix, torch=torch, cuda=cuda)
    assert stack.packages.get("torchaudio") == torchaudio
    assert not any("no torchaudio" in warning for warning in stack.warnings)


@pytest.mark.parametrize("torch", ["2.9", "2.10"])
@pytest.mark.parametrize("cuda", ["12.8", "13.0"])
def test_arm_stack_has_triton_and_the_wheel_with_cuda(matrix, torch, cuda):
    stack = answer(matrix, torch=torch, cuda=cuda, platform="linux/arm64")
    assert stack.packages["triton"] == answer(matrix, torch=torch, cuda=cuda).packages["triton"]
    # What PyPI has for Arm is a build without CUDA.
    assert stack.packages["torch"].endswith(f"+{stack.variant}")


def test_arm_build_before_triton_was_built_for_arm_asks_for_none(matrix):
    for build in matrix.torch_builds:
        if build.torch == "2.8.0":
            needs = index_requires(matrix, build, "aarch64") or ()
            assert [marker for name, _, marker, _ in needs if name == "triton"] == ['platform_machine == "x86_64"']


def test_long_term_release_on_an_index_of_its_own_is_refused_with_the_way_there(matrix):
    found = refusal(matrix, torch="1.8.2")
    assert not found.is_proved
    (reason,) = found.because
    assert "pip install torch==1.8.2 -f https://" in reason.because
    # Its neighbour is on the common index.
    assert answer(matrix, torch="1.8.1").frameworks["torch"] == "1.8.1"


def test_refusal_that_no_single_change_lifts_gets_a_way_that_changes_two(matrix):
    found = refusal(matrix, torch="1.13", cuda="11.7", gpu="b200")
    (way, *_) = found.alternatives
    asked = dict(zip(way.flags[::2], way.flags[1::2], strict=True))
    assert asked["--torch"] != "1.13"
    assert asked["--cuda"] != "11.7"
    assert asked["--gpu"] == "b200"
    assert way.change == f"torch {asked['--torch']} and CUDA {asked['--cuda']}"
    assert answer(matrix, **{name.removeprefix("--"): value for name, value in asked.items()}).gpus == ("B200",)


def test_refusal_that_one_change_lifts_changes_one(matrix):
    for way in refusal(matrix, torch="2.1", cuda="12.6").alternatives:
        assert " and " not in way.change


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("alpine:3.20", "musl"),
        (f"docker.io/library/alpine@sha256:{'a' * 64}", "musl"),
        ("python:3.11-alpine3.20", "musl"),
        ("registry.example/team/app:1-alpine", "musl"),
        ("ubuntu:22.04", "no Python"),
        ("docker.io/library/debian:bookworm-slim", "no Python"),
    ],
)
def test_base_on_which_no_wheel_can_be_installed_is_refused(matrix, base, said):
    found = refusal(matrix, torch="2.5", base=base)
    assert found.is_proved
    assert any(said in reason.because for reason in found.because)
    assert any(way.change.startswith("without --base") for way in found.alternatives)


@pytest.mark.parametrize("base", ["registry.example/ubuntu:22.04", "registry.example/alpine-glibc:1", "x:alpine_glibc"])
def test_base_that_only_sounds_so_is_warned_of(matrix, base):
    assert any(base in warning for warning in answer(matrix, torch="2.5", base=base).warnings)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("foo/bar:1", "is not in the facts"),
        ("python:3.12-slim", "does not name its system"),
        ("python:latest", "is not in the facts"),
        ("registry.example:5000/team/base", "is not in the facts"),
        ("nvcr.io/nvidia/pytorch:21.01-py3", "brings a torch of its own"),
        ("nvcr.io/nvidia/pytorch:25.01-py3", "brings torch 2.6.0a0+ecf3bae40a, CUDA 12.8.0 and Python 3.12, built"),
        ("nvcr.io/nvidia/jax:25.01-py3", "brings a jax of its own, CUDA 12.8.0 and Python 3.12, built"),
        ("docker.io/pytorch/pytorch:2.4.1-cuda12.1-cudnn9-devel", "brings torch 2.4.1, CUDA 12.1 and cuDNN 9, built"),
        ("pytorch/pytorch:latest", "brings a torch of its own"),
        ("python:3.12-slim-bookworm", None),
    ],
)
def test_base_that_the_facts_do_not_know_is_warned_of(matrix, base, said):
    stack = answer(matrix, torch="2.5", base=base)
    warned = [warning for warning in stack.warnings if base in warning]
    assert [said in warning for warning in warned] == ([True] if said else [])


NGC = "nvcr.io/nvidia/pytorch:25.01-py3"
HUB = "pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime"


@pytest.mark.parametrize(
    ("base", "wish", "neighbour", "said"),
    [
        (NGC, {"torch": "2.5", "python": "3.11"}, {"torch": "2.5", "python": "3.12"}, "holds Python 3.12"),
        (NGC, {"torch": "2.7", "cuda": "12.6"}, {"torch": "2.7", "cuda": "12.8"}, "holds CUDA 12.8.0"),
        (NGC, {"cuda": "12.4"}, {"cuda": "12"}, "holds CUDA 12.8.0"),
        (NGC, {"torch": "2.5", "os": "debian12"}, {"torch": "2.5", "os": "ubuntu24.04"}, "is ubuntu24.04"),
        (HUB, {"torch": "2.5", "cuda": "12.4"}, {"torch": "2.5", "cuda": "12.1"}, "holds CUDA 12.1"),
    ],
)
def test_base_with_a_framework_of_its_own_holds_what_its_tag_says(matrix, tmp_path, base, wish, neighbour, said):
    found = refusal(matrix, base=base, **wish)
    assert found.is_proved
    assert f"--base {base}" in found.conflict
    assert any(said in reason.because for reason in found.because)
    stack = answer(matrix, base=base, **neighbour)
    assert stack.cuda.startswith("12.8") or "cuda" not in neighbour or base == HUB
    if base == HUB:
        return
    assert any(fact.id == "image/ngc-25.01" for reason in stack.reasons for fact in reason.facts)
    data = copy_facts(tmp_path)
    rows = (data / "ngc.toml").read_text().split("\n\n")
    (data / "ngc.toml").write_text("\n\n".join(row for row in rows if 'release = "25.01"' not in row))
    without = answer(Matrix(data), base=base, **wish)
    assert any("nothing of the image is in the facts" in warning for warning in without.warnings)


def test_a_base_of_cuda_alone_holds_its_own_cuda(matrix):
    base = "nvidia/cuda:12.4.1-devel-ubuntu22.04"
    found = refusal(matrix, cuda="12.6", base=base)
    assert found.is_proved
    assert any("which holds CUDA 12.4.1" in reason.because for reason in found.because)
    stack = answer(matrix, base=base)
    assert stack.cuda == "12.4"
    assert stack.reasons[0].because == "the newest CUDA that the base holds"


def test_a_toolkit_has_the_floor_of_its_own_patch(matrix):
    assert not refusal(matrix, cuda="11.0.2", driver="450.51.05").is_proved
    assert not refusal(matrix, cuda="11.0", driver="450.51.05").is_proved
    for cuda, driver in (("11.0.3", "450.51.05"), ("11.0.2", "450.51.04"), ("11.0", "450.51.04")):
        assert refusal(matrix, cuda=cuda, driver=driver).is_proved


def test_wheels_of_a_minor_claim_the_lowest_floor_of_its_patches_and_images_that_of_the_newest(matrix):
    assert answer(matrix, torch="1.7.1", cuda="11.0", driver="450.51.05").driver.minimum == "450.51.05"
    assert refusal(matrix, torch="1.7.1", cuda="11.0", driver="450.51.04").is_proved
    assert refusal(matrix, tensorflow="2.4", driver="450.51.05").is_proved


@pytest.mark.parametrize("cuda", ["12.2", "12.2.2", "<12.8"])
def test_libraries_older_than_the_gpu_are_open_and_offered_by_no_hint(matrix, cuda):
    found = refusal(matrix, jax="0.4", cuda=cuda, gpu="b200")
    assert not found.is_proved
    assert "stand on a CUDA older than B200 (sm_100), which begins with CUDA 12.8" in found.because[0].because
    assert found.alternatives
    assert all("12.9" in item.flags or "--cuda" not in item.flags for item in found.alternatives)
    assert answer(matrix, jax="0.4", cuda="12.9", gpu="b200").cuda == "12.9"
    assert answer(matrix, jax="0.4", cuda="12.2", gpu="h100").cuda == "12.2"


def test_what_fails_together_is_said_in_words(matrix):
    assert "fail together: " in refusal(matrix, torch="2.5.1", tensorflow="2.18.0").because[0].because
    assert "does not work on GPUs of" in refusal(matrix, tensorflow="2.20", gpu="rtx-5090").because[0].because
    assert "is not known to work on GPUs of" in refusal(matrix, tensorflow="2.20", gpu="b200").because[0].because


def test_a_pin_of_a_cuda_library_keeps_the_stack_on_its_cuda(matrix):
    found = refusal(matrix, torch="2.4", requirements=["nvidia-cudnn-cu12==8.9.2.26"])
    assert any(
        "fail `nvidia-cudnn-cu12==8.9.2.26` of the requirements, a library of CUDA 12" in reason.because
        for reason in found.because
    )
    stack = answer(matrix, torch="2.4", requirements=["nvidia-cudnn-cu11==9.1.0.70"])
    assert stack.variant == "cu118"
    # A list frozen from an environment of two frameworks may have both.
    both = ["nvidia-cudnn-cu12==9.1.0.70", "nvidia-cudnn-cu11==9.1.0.70"]
    assert answer(matrix, torch="2.4", requirements=both).cuda.startswith("12")


def test_a_pin_chooses_no_build_of_which_it_is_unknown_what_it_needs(matrix):
    cudnn = ["nvidia-cudnn-cu12==8.9.2.26"]
    stack = answer(matrix, torch="2", requirements=cudnn)
    assert (stack.frameworks["torch"], stack.cudnn) == ("2.3.1", "8.9.2.26")
    found = refusal(matrix, torch="2.12.1", requirements=["nvidia-nccl-cu12==2.18.1"])
    assert "needs a release of NCCL that the facts do not hold" in " ".join(reason.because for reason in found.because)
    # Who names the build has decided.
    assert answer(matrix, torch="2.11.0+cu129", requirements=["nvidia-cudnn-cu12==9.10.2.21"]).variant == "cu129"


def test_what_stands_of_a_request_is_told_where_no_two_changes_are_enough(matrix):
    found = refusal(matrix, torch="2.9", cuda="13.0", python="3.8", driver="450", gpu="v100", **{"with": "cupy,foo"})
    (way,) = found.alternatives
    assert way.change == "torch 2.4 without foo and --torch 2.9 and --cuda 13.0"
    assert "foo" in way.change
    asked = {way.flags[at].removeprefix("--"): way.flags[at + 1] for at in range(0, len(way.flags), 2)}
    assert asked["gpu"] == "v100"
    assert isinstance(solve(parse_request(asked), matrix), Stack)


def test_several_candidates_take_the_verb_of_many(matrix):
    found = refusal(matrix, torch="2.15", gpu="p100")
    assert any(" bring a CUDA" in reason.because for reason in found.because)


@pytest.mark.parametrize("line", ["nvidia-cudnn-cu13", "nvidia-cudnn-cu13>=9.10", "jax-cuda13-plugin"])
def test_a_line_for_a_library_of_another_cuda_chooses_the_build_or_is_refused(matrix, line):
    assert answer(matrix, torch="2.10", requirements=[line]).cuda.startswith("13.")
    found = refusal(matrix, torch="2.8", requirements=[line])
    assert f"fail `{line}` of the requirements, a library of CUDA 13" in found.because[0].because


@pytest.mark.parametrize("marker", ['sys_platform == "win32"', 'python_version < "3.9"'])
def test_a_line_for_a_library_of_another_cuda_that_does_not_hold_there_is_left(matrix, marker):
    assert answer(matrix, torch="2.8", requirements=[f"nvidia-cudnn-cu13; {marker}"]).cuda.startswith("12.")


def test_a_line_for_a_library_counts_on_the_pythons_where_it_holds(matrix):
    line = 'nvidia-cudnn-cu13; python_version >= "3.12"'
    assert answer(matrix, torch="2.8", requirements=[line]).python == "3.11"
    assert refusal(matrix, torch="2.8", python="3.12", requirements=[line])
