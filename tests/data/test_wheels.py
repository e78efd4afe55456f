"""The wheel files say what can be installed, from where and with which hash."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from provision.assets import asset_dir
from provision.matrix.canonical import encode_json
from provision.matrix.load import Matrix
from provision.matrix.model import Wheel

FOLDER = asset_dir("compat") / "wheels"
FILES = sorted(FOLDER.glob("*.json"))
DOCUMENTS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FILES}
WHEELS = {
    wheel["file"]: wheel
    for document in DOCUMENTS.values()
    for release in document["releases"]
    for wheel in release["wheels"]
}
SOURCE_ONLY = {("clang", "5.0"), ("termcolor", "1.1.0"), ("wrapt", "1.12.1")} | {
    ("jax", f"0.4.{patch}") for patch in range(15)
}
"""Pinned by old TensorFlow, or JAX itself, and published as source distributions only."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_canonical_and_its_releases_fall(path: Path) -> None:
    document = DOCUMENTS[path.stem]
    assert encode_json(document) == path.read_text(encoding="utf-8")
    assert document["package"] == path.stem == canonicalize_name(path.stem)
    versions = [Version(release["version"]) for release in document["releases"]]
    assert versions == sorted(set(versions), reverse=True)
    assert set(document["source"]) <= set(Matrix().sources)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_decodes_and_its_parts_parse(path: Path) -> None:
    package = Matrix().package(path.stem)
    assert package is not None
    for version in package.versions:
        release = package.release(version)
        assert release is not None
        assert release.index in {"pypi", "pytorch"}
        assert (release.index == "pytorch") == ("+" in version)
        for name, specifier, marker, extra in release.requires:
            requirement = Requirement(f"{name}{specifier}{f' ; {marker}' if marker else ''}")
            assert canonicalize_name(requirement.name) == requirement.name
            assert extra == (canonicalize_name(extra) if extra else "")
            if marker:
                variables = set(re.findall(r"[a-z_]{4,}", re.sub(r'"[^"]*"', "", str(Marker(marker)))))
                assert variables <= {"python_version", "python_full_version", "platform_machine"}
        for wheel in release.wheels:
            if wheel.file.endswith(".whl"):
                named, spelled, _, tags = parse_wheel_filename(wheel.file)
                assert any(_is_linux(tag) for tag in tags)
            else:
                named, spelled = parse_sdist_filename(wheel.file)
                assert wheel.installed is None
                assert wheel.size
            assert (named, spelled) == (path.stem, Version(version))
            assert re.fullmatch(r"[0-9a-f]{64}", wheel.sha256 or "")
            assert (wheel.url is not None) == (release.index == "pytorch")


def _is_linux(tag: Tag) -> bool:
    return tag.platform == "any" or tag.platform.endswith(("_x86_64", "_aarch64"))


def test_only_known_releases_have_no_wheel() -> None:
    sources = {
        (name, release["version"])
        for name, document in DOCUMENTS.items()
        for release in document["releases"]
        if not any(wheel["file"].endswith(".whl") for wheel in release["wheels"])
    }
    assert sources == SOURCE_ONLY


def test_every_release_has_a_file_and_sources_stand_alone() -> None:
    for name, document in DOCUMENTS.items():
        for release in document["releases"]:
            is_wheel = {wheel["file"].endswith(".whl") for wheel in release["wheels"]}
            assert len(is_wheel) == 1, (name, release["version"])
            assert is_wheel == {True} or len(release["wheels"]) == 1, (name, release["version"])


def test_a_source_distribution_states_its_needs() -> None:
    package = Matrix().package("jax")
    release = package.release("0.4.13") if package else None
    assert release is not None
    plain = {name: bound for name, bound, _, extra in release.requires if not extra}
    assert plain["ml-dtypes"] == ">=0.1.0"
    assert plain["scipy"] == ">=1.7"
    assert ("jaxlib", "==0.4.13+cuda12.cudnn89", "", "cuda12-pip") in release.requires


def test_no_two_files_share_a_hash() -> None:
    hashes = [wheel["sha256"] for wheel in WHEELS.values()]
    assert len(hashes) == len(set(hashes)) == len(WHEELS)


def _wheels_of(name: str, version: str) -> tuple[Wheel, ...]:
    package = Matrix().package(name)
    release = package.release(version) if package else None
    return release.wheels if release else ()


def test_every_torch_on_pypi_has_a_measured_wheel_for_each_python() -> None:
    lacking = []
    for build in Matrix().torch_builds:
        machines = [m for m, index in (("x86_64", build.index), ("aarch64", build.arm64_index)) if index == "pypi"]
        for machine in machines:
            for python in build.pythons:
                abi = f"cp{python.replace('.', '')}" + ("m" if python in {"3.6", "3.7"} else "")
                found = [
                    wheel
                    for wheel in _wheels_of("torch", build.torch)
                    if f"-{abi}-" in wheel.file and wheel.file.endswith(f"{machine}.whl")
                ]
                if not any(wheel.size and wheel.installed for wheel in found):
                    lacking.append((build.torch, python, machine))
    assert lacking == []


def test_every_requirement_of_an_index_build_can_be_met() -> None:
    matrix = Matrix()
    package = matrix.package("torch")
    assert package is not None
    lacking = set()
    for version in package.versions:
        release = package.release(version)
        assert release is not None
        for wheel in release.wheels if release.index == "pytorch" else ():
            tag = min(parse_wheel_filename(wheel.file)[3], key=str)
            python = f"3.{tag.interpreter.removeprefix('cp3')}"
            place = {"python_version": python, "platform_machine": tag.platform.partition("x86_64")[1] or "aarch64"}
            for name, specifier, marker, _ in release.requires:
                if marker and not Marker(marker).evaluate({**place, "python_full_version": f"{python}.9"}):
                    continue
                bound = Requirement(f"{name}{specifier}")
                known = matrix.package(bound.name)
                have = [v for v in known.versions if bound.specifier.contains(v, prereleases=True)] if known else []
                tags = {f"cp3{python[2:]}", "py3", "py2.py3", "cp37", "cp38", "cp39", "cp310", "cp311"}
                fitting = [
                    other
                    for each in have
                    for other in _wheels_of(bound.name, each)
                    if other.file.split("-")[-3] in tags
                    and other.file.endswith(("any.whl", f"{place['platform_machine']}.whl"))
                ]
                if not fitting:
                    lacking.add((version, python, place["platform_machine"], str(bound)))
    assert lacking == set()


@pytest.mark.parametrize("name", ["numpy", "packaging", "pillow", "pip", "setuptools", "uv", "wheel"])
def test_what_images_add_is_there(name: str) -> None:
    newest = DOCUMENTS[name]["releases"][0]
    assert any(wheel.get("installed") for wheel in newest["wheels"])


@pytest.mark.parametrize(
    ("file", "sha256", "size", "installed"),
    [
        (
            "torch-1.13.1-cp310-cp310-manylinux1_x86_64.whl",
            "fd12043868a34a8da7d490bf6db66991108b00ffbeecb034228bfcbbd4197143",
            887450534,
            1877098566,
        ),
        (
            "torch-2.0.1-cp310-cp310-manylinux1_x86_64.whl",
            "8ced00b3ba471856b993822508f77c98f48a458623596a4c43136158781e306a",
            619913492,
            1350680307,
        ),
        (
            "nvidia_cublas_cu12-12.1.3.1-py3-none-manylinux1_x86_64.whl",
            "ee53ccca76a6fc08fb9701aa95b6ceb242cdaab118c3bb152af4e579af792728",
            410594774,
            623922568,
        ),
        (
            "nvidia_cuda_runtime_cu12-12.4.127-py3-none-manylinux2014_x86_64.whl",
            "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5",
            883737,
            4558796,
        ),
        (
            "nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_x86_64.whl",
            "d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf",
            366066321,
            493809061,
        ),
        (
            "tensorflow-2.13.1-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            "2cd54d7cf979de0e407db182eea27dbed37361af5c329c2dbf71c486be3e432b",
            479665638,
            1308657643,
        ),
    ],
)
def test_wheels_measured_by_other_means_agree(file: str, sha256: str, size: int, installed: int) -> None:
    wheel = WHEELS[file]
    assert (wheel["sha256"], wheel["size"], wheel["installed"]) == (sha256, size, installed)


@pytest.mark.parametrize(
    ("file", "sha256"),
    [
        (
            "torch-2.1.0+cu118-cp310-cp310-linux_x86_64.whl",
            "a81b554184492005543ddc32e96469f9369d778dedd195d73bda9bed407d6589",
        ),
        (
            "torch-2.1.2+cu118-cp310-cp310-linux_x86_64.whl",
            "60396358193f238888540f4a38d78485f161e28ec17fa445f0373b5350ef21f0",
        ),
        (
            "torchvision-0.16.0+cu118-cp310-cp310-linux_x86_64.whl",
            "033712f65d45afe806676c4129dfe601ad1321d9e092df62b15847c02d4061dc",
        ),
        (
            "torchaudio-2.1.0+cu118-cp310-cp310-linux_x86_64.whl",
            "cdfd0a129406155eee595f408cafbb92589652da4090d1d2040f5453d4cae71f",
        ),
    ],
)
def test_hashes_of_the_other_index_agree_with_independent_reports(file: str, sha256: str) -> None:
    wheel = WHEELS[file]
    assert wheel["sha256"] == sha256
    assert wheel["url"].endswith(file.replace("+", "%2B"))


def test_doubtful_hashes_are_named() -> None:
    for name in ("torch", "torchvision", "torchaudio"):
        low = DOCUMENTS[name]["confidence_low"]
        assert low == sorted(low)
        assert all("url" in WHEELS[file] for file in low)
