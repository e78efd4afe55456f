"""The framework facts agree with themselves, with the CUDA facts and with what was read out of the wheels."""

from __future__ import annotations

import re
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from provision.matrix.load import Matrix
from provision.matrix.model import JaxRelease, TensorflowRelease, TorchBuild
from provision.matrix.query import find_gpus
from provision.resolve.rules import excluded_pair, side_holds
from provision.versions import Spec, parse

matrix = Matrix()
BUILDS = {(row.torch, row.variant): row for row in matrix.torch_builds}


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def python_key(python: str) -> tuple[Any, bool]:
    return parse(python.rstrip("t")), python.endswith("t")


def arch_number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))


def name_of(row: object) -> str:
    if isinstance(row, TorchBuild):
        return f"{row.torch}+{row.variant}"
    return "-".join(str(getattr(row, key)) for key in ("package", "version", "variant", "id") if hasattr(row, key))


each_build = pytest.mark.parametrize("build", matrix.torch_builds, ids=name_of)
each_tensorflow = pytest.mark.parametrize("row", matrix.tensorflow, ids=name_of)
each_jax = pytest.mark.parametrize("row", matrix.jax, ids=name_of)

# -- torch ---------------------------------------------------------------------------------------------------------

DEFAULT_VARIANT = {
    **dict.fromkeys(("1.7", "1.8", "1.9", "1.10", "1.11", "1.12"), "cu102"),
    **dict.fromkeys(("1.13", "2.0"), "cu117"),
    **dict.fromkeys(("2.1", "2.2", "2.3", "2.4"), "cu121"),
    **dict.fromkeys(("2.5", "2.6"), "cu124"),
    "2.7": "cu126",
    **dict.fromkeys(("2.8", "2.9", "2.10"), "cu128"),
    **dict.fromkeys(("2.11", "2.12", "2.13", "2.14"), "cu130"),
    "2.15": "cu132",
}


@pytest.mark.parametrize("release", matrix.torch_releases, ids=name_of)
def test_pypi_serves_one_build_of_each_torch(release: Any) -> None:
    builds = [row for row in matrix.torch_builds if row.torch == release.version]
    assert [row.variant for row in builds if row.index == "pypi"] == [DEFAULT_VARIANT[minor(release.version)]]
    assert len([row for row in builds if row.arm64_index == "pypi"]) == (parse(release.version) >= parse("2.11"))


@each_build
def test_build_belongs_to_a_release_and_a_toolkit(build: TorchBuild) -> None:
    assert build.torch in {row.version for row in matrix.torch_releases}
    assert build.variant == "cu" + build.cuda.replace(".", "")
    assert build.cuda in {minor(row.version) for row in matrix.cuda}


@each_build
def test_kernels_are_what_the_toolkit_can_compile(build: TorchBuild) -> None:
    for kernels in (build.sm, build.sm_arm64):
        if kernels is None:
            continue
        numbers = [arch_number(arch) for arch in kernels]
        assert numbers
        assert numbers == sorted(set(numbers))
        known = [set(row.sm) for row in matrix.cuda if minor(row.version) == build.cuda and row.sm is not None]
        if known:
            assert set(numbers) <= set.union(*known)
    assert all(arch.startswith("compute_") for arch in build.ptx)


def test_only_cu126_serves_a_v100_from_211_on() -> None:
    recent = [row for row in matrix.torch_builds if parse(row.torch) >= parse("2.11")]
    serving = {row.variant for row in recent if row.sm and "sm_70" in row.sm}
    assert serving == {"cu126"}
    assert all(row.sm and "sm_70" in row.sm for row in recent if row.variant == "cu126")


def test_an_rtx_5090_has_no_build_of_26() -> None:
    assert not [row for row in matrix.torch_builds if row.torch == "2.6.0" and row.sm and "sm_120" in row.sm]


@each_build
def test_pins_are_specifiers_and_agree_with_the_columns(build: TorchBuild) -> None:
    pins = dict(build.pins or {})
    for requirement, specifier in {**pins, **(build.toolkit_pins or {})}.items():
        Requirement(f"{requirement}{specifier}")
        Spec(specifier)
    for field, prefix in (("cudnn", "nvidia-cudnn-cu"), ("nccl", "nvidia-nccl-cu")):
        pinned = [specifier for name, specifier in pins.items() if name.startswith(prefix)]
        if pinned:
            assert pinned == [f"=={getattr(build, field)}"]
    assert bool(build.toolkit_pins) == any(name.startswith("cuda-toolkit[") for name in pins)
    majors = {name[-2:] for name in pins if re.search(r"-cu[0-9]{2}$", name)}
    assert majors <= {build.cuda.split(".")[0]}


@each_build
def test_cuda_is_inside_the_wheel_or_pinned(build: TorchBuild) -> None:
    if build.is_cuda_bundled:
        assert not build.pins
    else:
        # Nobody published what these ask for.
        assert bool(build.pins) != (name_of(build) in {"2.10.0+cu130", "2.11.0+cu129", "2.12.1+cu129"})
    if build.index == "pytorch":
        assert build.is_cuda_bundled == (parse(build.torch) < parse("2.2"))


@each_build
def test_pythons_are_sorted_and_allowed(build: TorchBuild) -> None:
    release = next(row for row in matrix.torch_releases if row.version == build.torch)
    assert list(build.pythons) == sorted(build.pythons, key=python_key)
    assert set(build.pythons_with_companions) <= set(build.pythons)
    known = {row.version for row in matrix.pythons}
    for python in build.pythons:
        assert python.rstrip("t") in known
        assert f"{python.rstrip('t')}.99" in SpecifierSet(release.requires_python)


@each_build
def test_arm64_claims_agree(build: TorchBuild) -> None:
    if build.arm64_index or build.sm_arm64:
        assert build.is_arm64_published is True
    if parse(build.cuda) < parse("12"):
        assert build.is_arm64_published is False


def test_triples_are_one_to_one() -> None:
    """A torchvision that pins torch belongs to one torch; so does a torchaudio before its last release."""
    for field in ("torchvision", "torchaudio"):
        pairs = [(getattr(row, field), row.version) for row in matrix.torch_releases]
        shared = {version for version, _ in pairs if [item for item, _ in pairs].count(version) > 1}
        assert shared <= {"2.11.0"}


def test_an_open_build_is_no_known_build() -> None:
    assert not {(row.torch, row.variant) for row in matrix.unknown_torch_builds} & set(BUILDS)


def test_the_newest_torch_is_open_to_more_builds() -> None:
    open_releases = [row.version for row in matrix.torch_releases if not row.is_variants_complete]
    assert open_releases == [matrix.torch_releases[0].version]


def test_wheel_index_names_the_variant() -> None:
    setting = matrix.settings("frameworks/torch.toml")["wheel_index"]
    assert setting.value is not None
    assert setting.value.count("{variant}") == 1


# -- TensorFlow ----------------------------------------------------------------------------------------------------


@each_tensorflow
def test_cuda_extra_and_its_pins(row: TensorflowRelease) -> None:
    assert row.has_cuda_extra == (parse(row.version) >= parse("2.14"))
    assert bool(row.pins) == row.has_cuda_extra
    pins = dict(row.pins or {})
    for specifier in (*pins.values(), *filter(None, [row.numpy])):
        Spec(specifier)
    if pins:
        suffix = "cu" + row.cuda.split(".")[0]
        assert all(name.endswith(suffix) for name in pins)
        assert re.search(rf"=={minor(row.cuda)}\.|>={minor(row.cuda)}\.", pins[f"nvidia-cuda-runtime-{suffix}"])
        assert re.search(rf"[>=]={row.cudnn_major}\.", pins[f"nvidia-cudnn-{suffix}"])


@each_tensorflow
def test_tensorflow_kernels_and_pythons(row: TensorflowRelease) -> None:
    assert list(row.sm) == sorted(row.sm, key=arch_number)
    assert all(arch.startswith("sm_") for arch in row.sm)
    assert len(row.ptx) == 1
    assert max(map(arch_number, row.sm)) < 100
    assert list(row.pythons) == sorted(row.pythons, key=python_key)
    assert minor(row.cuda) in {minor(item.version) for item in matrix.cuda}
    assert row.is_arm64_cuda is False


def test_only_a_stated_release_asks_for_a_library_path() -> None:
    assert [row.version for row in matrix.tensorflow if row.needs_library_path] == ["2.16.1"]


# -- JAX -----------------------------------------------------------------------------------------------------------


def test_jax_variants_begin_and_end() -> None:
    def versions(variant: str) -> list[Any]:
        return sorted(parse(row.version) for row in matrix.jax if row.variant == variant)

    assert str(versions("cuda13")[0]) == "0.7.2"
    assert str(versions("cuda11")[-1]) == "0.4.25"
    assert str(versions("cuda12")[0]) == "0.4.7"
    assert versions("cuda12")[-1] == versions("cuda13")[-1]


@each_jax
def test_jax_delivery(row: JaxRelease) -> None:
    major = row.variant.removeprefix("cuda")
    assert row.cuda_floor.split(".")[0] == major
    if row.delivery == "plugin":
        assert row.extra == row.variant
        assert row.plugin is not None
        assert row.pins
    else:
        assert row.delivery == "legacy"
        assert row.legacy_builds
        assert row.jaxlib is not None
        assert all(build.startswith(f"{row.variant}.cudnn") for build in row.legacy_builds)
    for specifier in (row.pins or {}).values():
        Spec(specifier)
    assert list(row.pythons) == sorted(row.pythons, key=python_key)
    for python in row.pythons:
        assert f"{python.rstrip('t')}.99" in SpecifierSet(row.requires_python)


@each_jax
def test_jax_floors(row: JaxRelease) -> None:
    floors = {"cuda11": "450.80.02", "cuda12": "525.60.13", "cuda13": "580.65.06"}
    assert row.minimum_driver in (None, floors[row.variant])
    lowest = {"cuda11": (None,), "cuda12": (None, 52), "cuda13": (75,)}
    assert row.sm_min in lowest[row.variant]


# -- Python --------------------------------------------------------------------------------------------------------


def test_pythons_follow_each_other() -> None:
    rows = matrix.pythons
    assert [row.released for row in rows] == sorted((row.released for row in rows), reverse=True)
    assert all(row.end_of_life is not None and row.end_of_life > row.released for row in rows)
    named = {python for row in matrix.tensorflow for python in row.pythons}
    named |= {python.rstrip("t") for row in matrix.jax for python in row.pythons}
    assert named <= {row.version for row in rows}


# -- what metadata does not say ------------------------------------------------------------------------------------

CONSTRAINTS = {row.id: row for row in matrix.constraints}


@pytest.mark.parametrize("row", matrix.constraints, ids=name_of)
def test_constraint_is_well_formed(row: Any) -> None:
    assert row.kind in ("bound", "add")
    assert Spec(row.versions)
    assert row.requires
    for name, specifier in row.requires.items():
        Requirement(f"{name}{specifier}")
        assert specifier or row.kind == "add"


@pytest.mark.parametrize(
    ("constraint", "package", "inside", "outside"),
    [
        ("torch-numpy-1", "numpy", "1.26.4", "2.0.2"),
        ("torch-cpp-extension-setuptools", "setuptools", "69.5.1", "70.0.0"),
        ("torch-cpp-extension-setuptools", "setuptools", "81.0.0", "82.0.0"),
        ("torch-cpp-extension-setuptools", "setuptools", "71.0.0", "70.3.0"),
        ("jax-numpy-1", "numpy", "1.26.4", "2.0.2"),
        ("jax-scipy", "scipy", "1.12.0", "1.13.1"),
        ("torch-cu121-nvjitlink", "nvidia-nvjitlink-cu12", "12.1.105", "12.9.86"),
        ("tensorboard-setuptools", "setuptools", "81.0.0", "82.0.0"),
        ("torch-cuda12-torchcodec", "torchcodec", "0.13.0", "0.17.0"),
        ("torchcodec-torch-stable", "torch", "2.14.1", "2.10.0"),
        ("torchcodec-torch-2.9", "torch", "2.9.1", "2.10.0"),
        ("transformers-stream-generator", "transformers", "4.56.2", "4.57.6"),
    ],
)
def test_constraint_parts_what_works_from_what_fails(constraint: str, package: str, inside: str, outside: str) -> None:
    bound = Spec(CONSTRAINTS[constraint].requires[package])
    assert inside in bound
    assert outside not in bound


@pytest.mark.parametrize(
    ("constraint", "last", "first_free"),
    [
        ("torch-numpy-1", "2.2.2", "2.3.0"),
        ("torch-21-packaging", "2.1.2", "2.2.0"),
        ("torch-cpp-extension-setuptools", "2.1.2", "2.2.0"),
        ("triton-setuptools", "3.2.0", "3.3.0"),
        ("tensorflow-numpy-1", "2.17.1", "2.18.0"),
        ("jax-numpy-1", "0.4.25", "0.4.26"),
        ("jax-scipy", "0.4.23", "0.4.24"),
    ],
)
def test_constraint_ends_where_it_was_seen_to_end(constraint: str, last: str, first_free: str) -> None:
    versions = Spec(CONSTRAINTS[constraint].versions)
    assert last in versions
    assert first_free not in versions


@pytest.mark.parametrize("row", matrix.exclusions, ids=name_of)
def test_exclusion_sides_are_requirements(row: Any) -> None:
    for side in (row.left, row.right):
        if side.startswith("gpu-"):
            named = [
                {"gpu-architecture": gpu.architecture, "gpu-capability": gpu.compute_capability} for gpu in matrix.gpus
            ]
            assert any(side_holds(side, names) for names in named)
            assert not all(side_holds(side, names) for names in named)
        else:
            assert Requirement(side).specifier


@pytest.mark.parametrize(
    ("named", "is_excluded"),
    [
        ({"torch": "2.5.1", "tensorflow": "2.18.0", "cuda": "12.4"}, True),
        ({"torch": "2.7.1", "tensorflow": "2.20.0", "cuda": "12.6"}, False),
        ({"torch": "2.14.1", "tensorflow": "2.21.0", "cuda": "13.0"}, True),
        ({"torch": "2.14.1", "tensorflow": "2.21.0", "cuda": "12.6"}, False),
        ({"torch": "2.3.1", "tensorflow": "2.17.1", "cuda": "12.1"}, False),
        ({"torch": "2.3.1", "tensorflow": "2.18.0", "cuda": "12.1"}, True),
        ({"torch": "2.5.1", "cuda": "12.4"}, False),
    ],
)
def test_known_bad_pairs(named: dict[str, str], is_excluded: bool) -> None:
    assert (excluded_pair(matrix, named) is not None) is is_excluded


@pytest.mark.parametrize(
    ("named", "gpu", "is_proved"),
    [
        ({"tensorflow": "2.20.0"}, "rtx-5090", True),
        ({"tensorflow": "2.21.0"}, "rtx-5090", False),
        ({"tensorflow": "2.20.0"}, "b200", False),
        ({"tensorflow": "2.20.0"}, "b300", False),
        ({"tensorflow": "2.20.0"}, "h100-sxm5-80gb", None),
        ({"triton": "3.5.1"}, "gb10", None),
    ],
)
def test_known_bad_pairs_go_by_the_compute_capability(named: dict[str, str], gpu: str, is_proved: bool | None) -> None:
    (row,) = find_gpus(matrix, gpu)
    found = excluded_pair(matrix, named, row)
    assert (found.is_proved if found is not None else None) is is_proved


@pytest.mark.parametrize("row", matrix.extras, ids=name_of)
def test_extra_is_installable_text(row: Any) -> None:
    assert bool(row.requires) != bool(row.refused)
    for text in row.requires:
        assert Requirement(text).specifier
    for text in (*row.constraints, *(side for side in row.conflicts if not side.startswith("gpu-"))):
        Requirement(text)
    assert row.needs_compiler or not row.needs_nvcc
    if row.command and row.port:
        assert f"--port={row.port}" in row.command


def test_jupyter_keeps_its_token() -> None:
    jupyter = next(row for row in matrix.extras if row.id == "jupyter")
    assert jupyter.port == 8888
    assert not [word for word in jupyter.command if "token" in word or "password" in word]


# -- packages built against a framework ----------------------------------------------------------------------------


@pytest.mark.parametrize("row", matrix.companions, ids=name_of)
def test_companion_asks_for_a_torch_that_exists(row: Any) -> None:
    for specifier in (*row.requires.values(), *row.extra_pins.values()):
        Spec(specifier)
    torch = row.requires.get("torch", "")
    if torch.startswith("=="):
        assert torch.removeprefix("==") in {release.version for release in matrix.torch_releases}
    if row.built_with:
        version, _, variant = row.built_with.removeprefix("torch ").partition("+")
        assert (version, variant) in BUILDS
