"""The shipped facts contradict neither each other nor what is known beyond doubt about CUDA and its hardware."""

from __future__ import annotations

import pytest

from provision.assets import asset_dir
from provision.matrix.check import RULES, Finding, check
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus, normalise_gpu
from provision.versions import Spec, branch_of, parse

matrix = Matrix()


@pytest.fixture(scope="module")
def findings() -> tuple[Finding, ...]:
    return check(asset_dir("compat"))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_shipped_facts_obey(rule: str, findings: tuple[Finding, ...]) -> None:
    assert [finding for finding in findings if finding.rule == rule] == []


# -- GPUs ----------------------------------------------------------------------------------------------------------

SPELLINGS = {
    "h100": "9.0",
    "H100 SXM": "9.0",
    "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA H100 PCIe": "9.0",
    "NVIDIA H100 NVL": "9.0",
    "NVIDIA H200": "9.0",
    "NVIDIA GH200 480GB": "9.0",
    "a100": "8.0",
    "a100-80gb": "8.0",
    "NVIDIA A100-SXM4-40GB": "8.0",
    "NVIDIA A100 80GB PCIe": "8.0",
    "RTX 4090": "8.9",
    "rtx4090": "8.9",
    "4090": "8.9",
    "NVIDIA GeForce RTX 4090": "8.9",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "8.9",
    "L40S": "8.9",
    "NVIDIA L4": "8.9",
    "NVIDIA RTX 6000 Ada Generation": "8.9",
    "rtx 6000 ada": "8.9",
    "NVIDIA RTX A6000": "8.6",
    "a6000": "8.6",
    "NVIDIA A10G": "8.6",
    "Quadro RTX 6000": "7.5",
    "Quadro RTX 5000": "7.5",
    "Tesla T4": "7.5",
    "t4": "7.5",
    "gtx 1080 ti": "6.1",
    "Tesla P100-PCIE-16GB": "6.0",
    "v100": "7.0",
    "Tesla V100-SXM2-16GB": "7.0",
    "NVIDIA TITAN V": "7.0",
    "Titan RTX": "7.5",
    "k80": "3.7",
    "B200": "10.0",
    "GB200": "10.0",
    "b300": "10.3",
    "RTX PRO 6000": "12.0",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "12.0",
    "rtx 5090": "12.0",
    "NVIDIA GB10": "12.1",
    "dgx spark": "12.1",
    "Orin": "8.7",
    "Jetson AGX Orin": "8.7",
    "thor": "11.0",
}


@pytest.mark.parametrize(("spelling", "capability"), SPELLINGS.items(), ids=SPELLINGS)
def test_spelling_resolves(spelling: str, capability: str) -> None:
    assert {gpu.compute_capability for gpu in find_gpus(matrix, spelling)} == {capability}


def test_the_alias_of_a_family_covers_its_members() -> None:
    assert {gpu.id for gpu in find_gpus(matrix, "a100")} == {
        gpu.id for gpu in matrix.gpus if gpu.id.startswith("a100-")
    }


def test_no_name_is_kept_twice_in_a_row() -> None:
    for gpu in matrix.gpus:
        spellings = [normalise_gpu(name) for name in (gpu.id, *gpu.aliases)]
        assert len(set(spellings)) == len(spellings), gpu.id


ARCHITECTURE_OF = {"3": "Kepler", "5": "Maxwell", "6": "Pascal", "9": "Hopper", "11": "Blackwell", "12": "Blackwell"}


@pytest.mark.parametrize("gpu", matrix.gpus, ids=lambda gpu: gpu.id)
def test_gpu_agrees_with_toolkits_and_branches(gpu) -> None:
    major = gpu.compute_capability.split(".")[0]
    assert ARCHITECTURE_OF.get(major, gpu.architecture) == gpu.architecture
    sm = int(gpu.compute_capability.replace(".", ""))
    compiling = [row for row in matrix.cuda if row.sm is not None and sm in row.sm]
    assert compiling, "no toolkit compiles for it"
    newest = max(parse(row.version) for row in compiling)
    if gpu.last_cuda is not None:
        assert newest.release[:2] == parse(gpu.last_cuda).release
    else:
        assert newest == max(parse(row.version) for row in matrix.cuda)
    if gpu.first_cuda is not None and parse(gpu.first_cuda).release >= (11,):
        oldest = min(parse(row.version) for row in compiling)
        # Thor was sm_101 before CUDA 13 called it sm_110; nvcc knows sm_90 from 11.8 on.
        assert oldest.release[:2] == parse(gpu.first_cuda).release
    if gpu.open_modules == "unsupported":
        assert gpu.last_driver_branch is not None
    listed = {row.branch for row in matrix.driver_branches if gpu.architecture in row.architectures}
    if gpu.last_driver_branch is not None:
        assert max(listed) == gpu.last_driver_branch


def test_only_machines_without_a_switch_go_without_fabric_manager() -> None:
    by_id = {gpu.id: gpu.fabric_manager for gpu in matrix.gpus}
    assert by_id["h100-sxm5-80gb"] == by_id["a100-sxm4-80gb"] == by_id["b200"] == "nvswitch"
    assert by_id["gb200"] == by_id["gb300"] == "imex"
    assert by_id["h100-pcie-80gb"] == by_id["l40s"] == by_id["rtx-4090"] == "no"


# -- drivers and toolkits ------------------------------------------------------------------------------------------


def test_open_modules_never_go_back() -> None:
    order = ["none", "optional", "default", "only"]
    ranks = [order.index(row.open_modules) for row in sorted(matrix.driver_branches, key=lambda row: row.branch)]
    assert ranks == sorted(ranks)
    by_branch = {row.branch: row for row in matrix.driver_branches}
    assert by_branch[510].open_modules == "none"
    assert by_branch[515].open_modules == "optional"
    assert by_branch[560].open_modules == "default"
    assert by_branch[615].open_modules == "only"
    assert "Blackwell" in by_branch[570].open_modules_required_for


def test_branches_hold_their_own_releases() -> None:
    for row in matrix.driver_branches:
        for version in (row.last_release, row.last_release_datacenter):
            assert version is None or branch_of(version) == row.branch
    for bulletin in matrix.security_floors:
        assert all(branch_of(version) == int(branch) for branch, version in bulletin.fixed.items())
    for driver in matrix.distro_drivers:
        assert driver.version is None or branch_of(driver.version) == driver.branch
        assert driver.transition_to is None or driver.transition_to > driver.branch


def test_a_toolkit_carries_a_driver_of_its_branch() -> None:
    for row in matrix.cuda:
        if row.bundled_driver is not None:
            assert branch_of(row.bundled_driver) == row.matching_driver_branch, row.version
        if row.forward_compatibility_branches is not None:
            assert row.matching_driver_branch is not None
            assert max(row.forward_compatibility_branches) < row.matching_driver_branch, row.version


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [
        ("11.8.0", "450.80.02"),
        ("12.4.1", "525.60.13"),
        ("13.0.0", "580.65.06"),
        ("10.2.89", "440.33"),
        ("9.2.88", "396.26"),
    ],
)
def test_known_floor(cuda: str, driver: str) -> None:
    assert [row.minimum_driver for row in matrix.cuda if row.version == cuda] == [driver]


@pytest.mark.parametrize(
    ("sm", "first", "last"),
    [(37, "9.2.88", "11.8.0"), (70, "9.2.88", "12.9.2"), (90, "11.8.0", None), (120, "12.8.0", None)],
)
def test_known_architecture_range(sm: int, first: str, last: str | None) -> None:
    versions = [row.version for row in matrix.cuda if row.sm is not None and sm in row.sm]
    assert versions[-1] == first
    assert versions[0] == (last or matrix.cuda[0].version)


# -- cuDNN, NCCL, systems ------------------------------------------------------------------------------------------


def test_cudnn_ranges_are_specifiers() -> None:
    for row in matrix.cudnn:
        assert row.cuda
        for text in row.cuda:
            assert Spec(text)
    by_version = {row.version: row for row in matrix.cudnn}
    assert any("11.8.0" in Spec(text) for text in by_version["9.10.2"].cuda)
    assert not any("11.8.0" in Spec(text) for text in by_version["9.11.0"].cuda)


@pytest.mark.parametrize(
    ("system", "glibc", "python"),
    [
        ("debian11", "2.31", "3.9"),
        ("debian12", "2.36", "3.11"),
        ("debian13", "2.41", "3.13"),
        ("ubuntu20.04", "2.31", "3.8"),
        ("ubuntu22.04", "2.35", "3.10"),
        ("ubuntu24.04", "2.39", "3.12"),
        ("ubuntu26.04", "2.43", "3.14"),
        ("rhel8", "2.28", "3.6"),
        ("rhel9", "2.34", "3.9"),
        ("rhel10", "2.39", "3.12"),
    ],
)
def test_system_has_its_own_glibc_and_python(system: str, glibc: str, python: str) -> None:
    row = next(row for row in matrix.os_releases if row.id == system)
    assert (row.glibc, row.python) == (glibc, python)
    assert row.gcc is not None
    assert row.end_of_life is not None


# -- images --------------------------------------------------------------------------------------------------------

images = {row.tag.removeprefix("nvidia/cuda:"): row for row in matrix.cuda_images}


def test_a_tag_says_what_its_row_says() -> None:
    for tag, row in images.items():
        assert tag.startswith(f"{row.cuda}-")
        assert tag.endswith(f"{row.flavour}-{row.os}")
        assert ("-cudnn" in tag) == row.has_cudnn
        assert row.cudnn is None or row.has_cudnn
        assert row.nccl is None or row.flavour != "base"
        assert not (row.has_cudnn and row.flavour == "base")
        assert "linux/amd64" in row.platforms


def test_every_image_stands_on_the_one_before_it() -> None:
    for row in images.values():
        if row.lifecycle in ("supported", "unlisted"):
            below = {"devel": "runtime", "runtime": "base"}.get(row.flavour)
            assert below is None or f"{row.cuda}-{below}-{row.os}" in images, row.tag


@pytest.mark.parametrize(
    ("tag", "lifecycle"),
    [
        ("11.8.0-cudnn8-devel-ubuntu22.04", "supported"),
        ("12.4.1-cudnn-runtime-ubuntu22.04", "supported"),
        ("12.3.2-cudnn9-devel-ubuntu22.04", "supported"),
        ("12.6.0-base-ubuntu24.04", "unsupported"),
        ("11.0.3-base-ubuntu20.04", "unsupported"),
        ("11.7.0-cudnn8-devel-ubuntu20.04", "deleted"),
        ("13.4.2-cudnn-runtime-ubuntu24.04", "unlisted"),
    ],
)
def test_known_tag(tag: str, lifecycle: str) -> None:
    assert images[tag].lifecycle == lifecycle


@pytest.mark.parametrize(
    "tag",
    ["12.4.0-cudnn-devel-ubuntu22.04", "12.5.1-cudnn-devel-ubuntu24.04", "12.4.1-cudnn9-devel-ubuntu22.04", "latest"],
)
def test_tag_that_never_was_is_absent(tag: str) -> None:
    assert tag not in images


def test_contents_differ_by_system() -> None:
    assert images["11.8.0-runtime-ubuntu22.04"].nccl == "2.15.5"
    assert images["11.8.0-runtime-ubuntu20.04"].nccl == "2.16.2"
    assert images["11.8.0-cudnn8-devel-ubuntu22.04"].cudnn == "8.9.6.50"


def test_a_digest_is_dated_because_tags_move() -> None:
    for row in (*matrix.cuda_images, *matrix.python_images):
        if row.digest is not None:
            assert row.evidence["digest"].note


def test_python_image_tags_are_proper() -> None:
    for row in matrix.python_images:
        assert row.tag.startswith(f"python:{row.python}-")
        assert ("slim" in row.tag) == (row.flavour == "slim")
    tags = {row.tag for row in matrix.python_images}
    assert {f"python:3.{minor}-slim-bookworm" for minor in range(8, 15)} <= tags
    assert "python:3.14-slim-bullseye" not in tags


# -- container toolkit ---------------------------------------------------------------------------------------------


def test_the_safe_toolkit_holds_every_known_fix() -> None:
    safe = parse(matrix.settings("container_toolkit.toml")["minimum_safe"].value)
    fixes = {fix: parse(row.version) for row in matrix.container_toolkits for fix in row.fixes}
    assert len(fixes) >= 10
    assert max(fixes.values()) == safe
    assert parse(matrix.settings("container_toolkit.toml")["hard_floor"].value) <= safe
