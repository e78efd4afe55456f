"""What a node gets: every system and branch, the way of the driver, the flavour of its module, and the refusals."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision.assets import asset_dir
from provision.errors import UsageError
from provision.matrix.canonical import encode_toml
from provision.matrix.load import Matrix
from provision.resolve.node import solve_node
from provision.resolve.node_options import METHODS, NodeOptions, node_flags, parse_node_options
from provision.resolve.request import parse_request
from provision.resolve.stack import NodeProfile, Refusal, Stack
from provision.versions import parse

NODE_KEYS = {"os", "method", "flavour", "profile", "toolkit", "include"}
SYSTEMS = ("debian12", "debian13", "ubuntu22.04", "ubuntu24.04", "ubuntu26.04")
RPM_SYSTEMS = ("amzn2023", "rhel10", "rhel8", "rhel9")


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def solve(matrix: Matrix, **values: Any) -> Stack | Refusal:
    node = {key: value for key, value in values.items() if key in NODE_KEYS}
    rest = {key: value for key, value in values.items() if key not in NODE_KEYS}
    return solve_node(parse_request(rest), parse_node_options(node), matrix)


def answer(matrix: Matrix, **values: Any) -> Stack:
    found = solve(matrix, **values)
    assert isinstance(found, Stack), (found.message, [reason.because for reason in found.because])
    return found


def refusal(matrix: Matrix, **values: Any) -> Refusal:
    found = solve(matrix, **values)
    assert isinstance(found, Refusal), found.name
    return found


def profile(matrix: Matrix, os: str, **values: Any) -> NodeProfile:
    (found,) = [row for row in answer(matrix, os=os, **values).node.profiles if row.os == os]
    return found


def flavours(row: NodeProfile) -> list[str]:
    return [flavour.name for flavour in row.driver.flavours]


def changed(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Matrix:
    """The shipped facts with one file changed."""
    shutil.copytree(asset_dir("compat"), folder, dirs_exist_ok=True)
    document = tomllib.loads((folder / name).read_text(encoding="utf-8"))
    change(document)
    (folder / name).write_text(encode_toml(name, document), encoding="utf-8")
    return Matrix(folder)


def packages_row(document: dict[str, Any], key: str) -> dict[str, Any]:
    return next(row for row in document["driver"] if row["id"] == key)


def all_rows() -> list[tuple[str, str, str, str]]:
    matrix = Matrix()
    return [(row.os, row.method, version, row.id) for row in matrix.driver_packages for version in row.versions]


@pytest.mark.parametrize(
    ("os", "method", "version", "key"), all_rows(), ids=[f"{row[3]}-{row[2]}" for row in all_rows()]
)
def test_every_driver_of_the_facts_makes_a_profile(
    matrix: Matrix, os: str, method: str, version: str, key: str
) -> None:
    row = next(item for item in matrix.driver_packages if item.id == key)
    found = profile(matrix, os, method=method, driver=version)
    assert (found.method, found.driver.version, found.driver.branch) == (method, version, row.branch)
    assert found.driver.package_version == row.versions[version]
    have = {name for name, listed in (("open", row.open), ("proprietary", row.proprietary)) if version in listed}
    assert set(flavours(found)) == have
    for flavour in found.driver.flavours:
        assert flavour.packages
        assert flavour.module
        assert (flavour.dkms_package is None) == (method == "precompiled")
        assert {flavour.dkms_package} - {None} <= {package.name for package in flavour.packages}
    assert found.kernel.headers_pattern.count("{kernel}") == 1
    assert (found.kernel.build == ()) == (method == "precompiled")


def test_without_systems_every_system_has_a_profile(matrix: Matrix) -> None:
    stack = answer(matrix, driver="580", torch="2.14")
    assert tuple(row.os for row in stack.node.profiles) == tuple(sorted((*SYSTEMS, *RPM_SYSTEMS)))
    assert all(row.refusal is None for row in stack.node.profiles)
    # The others have an older Python than this torch takes, or one that the facts do not know.
    assert {row.os for row in stack.node.profiles if row.frameworks.environments} == {*SYSTEMS, "rhel10"}


def test_auto_takes_the_archive_where_it_has_the_branch_and_nvidias_repository_elsewhere(matrix: Matrix) -> None:
    found = {row.os: row.method for row in answer(matrix, driver="580", torch="2.14").node.profiles}
    assert found == {os: "distro" if os.startswith("ubuntu") else "cuda_repo" for os in (*SYSTEMS, *RPM_SYSTEMS)}


def test_each_system_solves_for_its_own_python(matrix: Matrix) -> None:
    stack = answer(matrix, driver="580", torch="2.14")
    systems = {row.id: row for row in matrix.os_releases}
    for row in [row for row in stack.node.profiles if row.frameworks.environments]:
        python = systems[row.os].python
        assert row.frameworks.python == python
        (environment,) = row.frameworks.environments
        assert environment.versions == stack.frameworks
        assert all(package.sha256 for package in environment.packages)
        (torch,) = [package for package in environment.packages if package.name == "torch"]
        assert f"-cp{python.replace('.', '')}-" in torch.file


def test_a_driver_is_the_recommended_branch_where_none_is_asked_for(matrix: Matrix) -> None:
    stack = answer(matrix, torch="2.14", os="ubuntu24.04")
    assert str(stack.node.profiles[0].driver.branch) == stack.driver.recommended_branch


def test_a_branch_is_its_newest_version_that_has_the_flavour(matrix: Matrix) -> None:
    assert profile(matrix, "debian12", driver="535").driver.package_version == "535.309.01-0+deb12u1"
    assert profile(matrix, "debian12", driver="535", flavour="open").driver.package_version == "535.261.03-1"


@pytest.mark.parametrize("os", ["amzn2023", "rhel8", "rhel9"])
def test_a_driver_of_rpms_has_its_epoch_and_the_stream_of_its_flavour(matrix: Matrix, os: str) -> None:
    row = profile(matrix, os, driver="580")
    assert (row.manager, row.method) == ("dnf", "cuda_repo")
    assert row.driver.package_version == f"3:580.178.04-1.{os.replace('rhel', 'el')}"
    assert {flavour.name: flavour.stream for flavour in row.driver.flavours} == {
        "open": "580-open",
        "proprietary": "580-dkms",
    }
    assert {row.id: row.signs for row in row.repositories}.get("container-toolkit", "metadata") == "metadata"


def test_rhel_10_has_no_streams_and_open_modules_alone(matrix: Matrix) -> None:
    row = profile(matrix, "rhel10", driver="580")
    assert [(flavour.name, flavour.stream) for flavour in row.driver.flavours] == [("open", None)]


def test_an_older_version_for_its_flavour_is_warned_of(matrix: Matrix) -> None:
    warnings = profile(matrix, "debian12", driver="535", flavour="open").warnings
    assert any("535.309.01 is newer and has no open module" in text for text in warnings)
    assert any("known vulnerabilities" in text for text in warnings)


@pytest.mark.parametrize(
    ("system", "wish", "said"),
    [
        ("debian12", {"driver": "535.261.03", "flavour": "open"}, "on kernels 6.1.192 to 6.2: nv-pci.c"),
        ("debian13", {"driver": "550", "flavour": "open"}, "on kernels 6.12.97 and newer: nv-pci.c"),
        ("debian12", {"driver": "535.261.03", "flavour": "proprietary"}, None),
        ("debian12", {"driver": "535.261.03"}, None),
        ("debian12", {"driver": "580", "flavour": "open"}, None),
    ],
)
def test_a_module_that_some_kernels_do_not_build_is_warned_of(
    matrix: Matrix, system: str, wish: dict[str, str], said: str | None
) -> None:
    found = [text for text in profile(matrix, system, **wish).warnings if "does not build" in text]
    assert len(found) == bool(said)
    if said:
        assert said in found[0]
        assert "open-gpu-kernel-modules#1272" in found[0]


def test_a_module_that_is_compiled_elsewhere_is_not_warned_of(matrix: Matrix, tmp_path: Path) -> None:
    wish = {"driver": "580", "flavour": "open"}

    def warnings(method: str) -> list[str]:
        version = profile(matrix, "ubuntu24.04", **wish, method=method).driver.version
        own = changed(tmp_path, "node_packages.toml", lambda document: document["known_bad"][0].update(driver=version))
        return [text for text in profile(own, "ubuntu24.04", **wish, method=method).warnings if "not build" in text]

    assert len(warnings("distro")) == 1
    assert warnings("precompiled") == []


def test_a_branch_that_the_archive_moved_on_is_taken_from_nvidia_or_refused(matrix: Matrix) -> None:
    assert profile(matrix, "ubuntu22.04", driver="535").method == "cuda_repo"
    found = refusal(matrix, driver="535", os="ubuntu22.04", method="distro")
    assert found.is_proved
    assert "pull in branch 580" in found.because[0].because
    assert refusal(matrix, driver="535", os="ubuntu22.04", method="precompiled").is_proved


def test_an_exact_version_is_that_one(matrix: Matrix) -> None:
    found = profile(matrix, "debian12", driver="535.261.03")
    assert found.driver.package_version == "535.261.03-1"
    assert flavours(found) == ["proprietary", "open"]


def test_packages_with_versions_of_their_own_have_them_and_are_pinned(matrix: Matrix) -> None:
    found = profile(matrix, "debian12", driver="535.261.03")
    versions = {package.name: package.version for package in found.driver.compute}
    assert versions["nvidia-smi"] == "535.261.03-1"
    assert versions["nvidia-persistenced"] == "535.171.04-1~deb12u1"
    pins = {pin.packages: pin.version for pin in found.pins}
    assert pins["src:nvidia-graphics-drivers"] == pins["src:nvidia-open-gpu-kernel-modules"] == "535.261.03-1"
    assert pins["nvidia-persistenced"] == "535.171.04-1~deb12u1"


def test_an_absent_flavour_is_not_pinned(matrix: Matrix) -> None:
    pins = {pin.packages for pin in profile(matrix, "debian12", driver="535.309.01").pins}
    assert "src:nvidia-open-gpu-kernel-modules" not in pins


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("535", {"Volta": "proprietary", "Ampere": "proprietary", "Hopper": "proprietary"}),
        ("580", {"Maxwell": "proprietary", "Volta": "proprietary", "Turing": "open", "Blackwell": "open"}),
        ("615", {"Turing": "open", "Hopper": "open", "Blackwell": "open"}),
    ],
)
def test_auto_flavour_goes_by_architecture_and_branch(matrix: Matrix, driver: str, expected: dict[str, str]) -> None:
    modules = answer(matrix, driver=driver, os="ubuntu22.04").node.modules
    assert {name: modules[name] for name in expected} == expected


def test_a_wished_flavour_yields_where_it_is_impossible(matrix: Matrix) -> None:
    modules = answer(matrix, driver="580", flavour="open", os="ubuntu24.04").node.modules
    assert (modules["Volta"], modules["Turing"]) == ("proprietary", "open")
    modules = answer(matrix, driver="580", flavour="proprietary", os="ubuntu24.04").node.modules
    assert (modules["Blackwell"], modules["Turing"]) == ("open", "proprietary")


@pytest.mark.parametrize(("gpu", "first"), [("v100", "proprietary"), ("b200", "open"), ("h100", "open")])
def test_the_gpus_own_flavour_comes_first(matrix: Matrix, gpu: str, first: str) -> None:
    assert flavours(profile(matrix, "ubuntu24.04", driver="580", gpu=gpu))[0] == first


def test_modules_that_follow_the_kernel_have_no_version(matrix: Matrix) -> None:
    found = profile(matrix, "ubuntu24.04", driver="580", method="precompiled", flavour="open")
    versions = {package.name: package.version for package in found.driver.flavours[0].packages}
    assert versions["linux-modules-nvidia-580-server-open-{kernel_flavour}"] is None
    assert versions["nvidia-headless-no-dkms-580-server-open"] == found.driver.package_version


@pytest.mark.parametrize("gpu", ["gh200", "gb200", "gb10"])
def test_gpus_of_arm64_machines_get_no_packages_of_amd64(matrix: Matrix, gpu: str) -> None:
    found = refusal(matrix, driver="580", gpu=gpu)
    assert "is part of arm64 machines" in found.because[0].because
    assert found.conflict == (f"--gpu {gpu}",)
    assert not found.is_proved


def test_fabric_manager_is_the_drivers_version(matrix: Matrix) -> None:
    found = profile(matrix, "ubuntu24.04", driver="580")
    assert {package.version for package in found.fabric.packages} == {found.driver.package_version}
    assert found.fabric.services == ("nvidia-fabricmanager",)
    assert "nvidia-fabricmanager-580" in {package.name for package in found.fabric.packages}
    renamed = profile(matrix, "debian12", driver="580")
    assert "nvidia-fabricmanager" in {package.name for package in renamed.fabric.packages}


def test_a_fabric_manager_of_another_revision_keeps_its_own(matrix: Matrix) -> None:
    row = next(item for item in matrix.driver_packages if item.id == "ubuntu24.04-distro-615")
    found = profile(matrix, "ubuntu24.04", driver="615")
    assert {package.version for package in found.fabric.packages} == {row.fabric_versions[found.driver.version]}
    assert row.fabric_versions[found.driver.version] != found.driver.package_version


def test_a_foreign_fabric_manager_is_added_only_for_gpus_that_need_it(matrix: Matrix) -> None:
    assert profile(matrix, "debian12", driver="535").fabric is None
    assert profile(matrix, "debian12", driver="535").repositories == ()
    found = profile(matrix, "debian12", driver="535", gpu="a100")
    assert [repository.purposes for repository in found.repositories] == [("fabric",)]
    assert profile(matrix, "debian12", driver="535", include="fabric").fabric is not None


def test_none_of_the_parts_brings_no_repository_of_its_own(matrix: Matrix) -> None:
    found = profile(matrix, "debian12", driver="535", gpu="a100", include="none")
    assert (found.fabric, found.repositories) == (None, ())
    # Where the driver's own repository has it, it costs none.
    assert profile(matrix, "ubuntu24.04", driver="580", gpu="a100", include="none").fabric is not None


def test_toolkits_stand_side_by_side(matrix: Matrix) -> None:
    found = profile(matrix, "ubuntu22.04", driver="580", torch="2.1", cuda="12.1", toolkit=["12.1", "11.8"])
    assert [toolkit.version for toolkit in found.toolkits] == ["11.8", "12.1"]
    assert [toolkit.home for toolkit in found.toolkits] == ["/usr/local/cuda-11.8", "/usr/local/cuda-12.1"]
    assert found.toolkits[0].packages[0].name == "cuda-toolkit-11-8"
    assert found.default_toolkit == "12.1"


def test_cuda_alone_is_a_toolkit_and_a_frameworks_is_not(matrix: Matrix) -> None:
    assert [toolkit.version for toolkit in profile(matrix, "ubuntu22.04", cuda="12.1", driver="580").toolkits] == [
        "12.1"
    ]
    assert profile(matrix, "ubuntu22.04", cuda="12.1", torch="2.1", driver="580").toolkits == ()
    assert profile(matrix, "ubuntu22.04", driver="580").toolkits == ()


def test_parts_come_where_the_driver_is_from_nvidia_or_where_they_are_asked_for(matrix: Matrix) -> None:
    debian, ubuntu = (profile(matrix, os, driver="580", torch="2.14") for os in ("debian12", "ubuntu24.04"))
    assert debian.container_toolkit is not None
    assert debian.dcgm is not None
    assert debian.nccl is not None
    assert (ubuntu.container_toolkit, ubuntu.dcgm, ubuntu.nccl, ubuntu.repositories) == (None, None, None, ())
    none = profile(matrix, "debian12", driver="580", torch="2.14", include="none")
    assert (none.container_toolkit, none.dcgm, none.nccl) == (None, None, None)
    asked = profile(matrix, "ubuntu24.04", driver="580", torch="2.14", include="dcgm")
    assert [repository.id for repository in asked.repositories] == ["cuda"]


def test_nccl_and_cudnn_are_those_of_the_cuda(matrix: Matrix) -> None:
    found = profile(matrix, "ubuntu22.04", driver="580", cuda="12.1", include="nccl,cudnn")
    assert {package.version.partition("+cuda")[2] for package in found.nccl.packages} == {"12.1"}
    assert [package.name for package in found.cudnn.packages] == ["libcudnn9-cuda-12"]


def test_dcgm_serves_the_drivers_cuda_and_that_of_the_toolkits(matrix: Matrix) -> None:
    names = [package.name for package in profile(matrix, "debian12", driver="535", include="dcgm").dcgm.packages]
    assert "datacenter-gpu-manager-4-cuda12" in names
    assert len(names) == len(set(names))
    both = profile(matrix, "ubuntu22.04", driver="580", toolkit="12.1", include="dcgm").dcgm.packages
    assert {"datacenter-gpu-manager-4-cuda12", "datacenter-gpu-manager-4-cuda13"} <= {package.name for package in both}


def test_container_toolkit_is_safe_and_co_versioned(matrix: Matrix) -> None:
    found = profile(matrix, "ubuntu24.04", driver="580", include="container-toolkit").container_toolkit
    floor = matrix.setting("container_toolkit.toml", "minimum_safe").value
    assert parse(found.version) >= parse(floor)
    assert len(found.packages) == 4
    assert {package.version for package in found.packages} == {f"{found.version}-1"}


def test_every_repository_has_a_key_to_check(matrix: Matrix) -> None:
    for row in answer(matrix, driver="580", torch="2.14", include="container-toolkit,dcgm").node.profiles:
        # DKMS of RHEL is EPEL's.
        build = {"build"} if row.os.startswith("rhel") else set()
        assert {repository.id for repository in row.repositories} == {"cuda", "container-toolkit", *build}
        for repository in row.repositories:
            assert repository.key.url.startswith("https://")
            # Of the key for RHEL 10 the last digits alone are known.
            assert len(repository.key.fingerprint) == (8 if (row.os, repository.id) == ("rhel10", "cuda") else 40)
            assert repository.uri.endswith("/")


@pytest.mark.parametrize(
    ("values", "because"),
    [
        ({"gpu": "v100", "driver": "595"}, "whose last branch is 580"),
        ({"torch": "2.14", "cuda": "13.0", "driver": "535"}, "need driver 580.65.06 or newer"),
        ({"gpu": "v100", "driver": "580", "flavour": "open"}, "is not driven by open modules"),
        ({"gpu": "b200", "driver": "580", "flavour": "proprietary"}, "is driven by open modules only"),
        ({"driver": "615", "flavour": "proprietary"}, "branch 615 has open modules only"),
        (
            {"driver": "535.309.01", "flavour": "open", "os": "debian12", "method": "distro"},
            "no open module of driver 535.309.01",
        ),
        ({"driver": "580", "os": "debian13", "toolkit": "12.1"}, "begins with CUDA 13.1.0"),
        ({"driver": "535", "os": "ubuntu22.04", "toolkit": "13.0"}, "needs driver 580.65.06 or newer"),
        ({"driver": "580", "gpu": "v100", "os": "ubuntu22.04", "toolkit": "13.0"}, "dropped"),
        ({"driver": "580", "method": "runfile"}, "never installed"),
        ({"driver": "535.261.03", "os": "debian12", "require_secure": True}, "known vulnerability"),
        ({"driver": "580", "include": "container-toolkit", "container_toolkit": "1.17.8"}, "known vulnerabilities"),
    ],
)
def test_what_the_facts_exclude_is_refused_as_proved(
    matrix: Matrix, values: dict[str, Any], because: str | None
) -> None:
    found = refusal(matrix, **values)
    assert found.is_proved, [reason.because for reason in found.because]
    assert any(because in reason.because for reason in found.because) or because in found.message


@pytest.mark.parametrize(
    ("values", "because"),
    [
        ({"driver": "580", "os": "debian12", "method": "distro"}, "is not known to have branch 580 for debian12"),
        ({"driver": "580", "os": "debian12", "method": "precompiled"}, "is not known to have branch 580"),
        ({"driver": "535.104.05", "os": "debian12"}, "is not known to have driver 535.104.05"),
        ({"driver": "580", "os": "sles15"}, "the facts know no packages of `sles15`"),
        ({"driver": "580", "os": "rhel10", "flavour": "proprietary"}, "no proprietary module of driver 580.178.04"),
        ({"driver": "580", "os": "ubuntu24.04", "toolkit": "99.9"}, "know no CUDA toolkit 99.9"),
        ({"driver": "580", "platform": "linux/arm64"}, "linux/amd64 nodes only"),
        ({"driver": "580", "gpu": "nonesuch"}, "no GPU called `nonesuch`"),
    ],
)
def test_what_the_facts_do_not_know_is_refused_as_unknown(matrix: Matrix, values: dict[str, Any], because: str) -> None:
    found = refusal(matrix, **values)
    assert not found.is_proved
    assert any(because in reason.because for reason in found.because), [reason.because for reason in found.because]


def test_a_refusal_names_the_driver_as_it_was_typed(matrix: Matrix) -> None:
    found = refusal(matrix, torch="2.14", cuda="13.0", driver="535")
    assert "--driver 535" in found.conflict
    assert "535.309.01" not in found.message


def test_alternatives_work_when_they_are_tried(matrix: Matrix) -> None:
    found = refusal(matrix, driver="580", os="debian12", method="distro", torch="2.14")
    assert found.alternatives
    for item in found.alternatives:
        values: dict[str, Any] = {}
        words = list(item.flags)
        while words:
            key, value = words[0].removeprefix("--").replace("-", "_"), words[1]
            values[key] = [*values.get(key, []), value] if key in ("os", "gpu", "toolkit", "include") else value
            words = words[2:]
        assert isinstance(solve(matrix, **values), Stack), item.flags


def test_a_system_that_cannot_have_it_says_why_and_the_others_stay(matrix: Matrix) -> None:
    stack = answer(matrix, driver="535", torch="2.6")
    found = {row.os: row for row in stack.node.profiles}
    assert found["debian13"].refusal is not None
    assert found["debian12"].refusal is None
    assert found["debian12"].driver is not None


def test_a_named_system_that_cannot_have_it_is_a_refusal(matrix: Matrix) -> None:
    found = refusal(matrix, driver="535", torch="2.6", os=["debian12", "debian13"])
    assert found.message == "debian13 cannot have this"


def test_a_reason_that_holds_for_every_system_is_said_once_with_a_way_out_that_works(matrix: Matrix) -> None:
    old = "1.13.0"
    found = refusal(matrix, driver="580", include="container-toolkit", **{"container-toolkit": old})
    assert [f"container toolkit {old} has known vulnerabilities" in row.because for row in found.because] == [True]
    assert any("container-toolkit" in row.flags and old not in row.flags for row in found.alternatives)


def test_a_system_whose_driver_is_below_the_floor_says_so(tmp_path: Path) -> None:
    def age(document: dict[str, Any]) -> None:
        row = packages_row(document, "ubuntu24.04-cuda_repo-535")
        for key in ("versions", "open", "proprietary"):
            row[key] = {"535.54.03": "535.54.03-0ubuntu1"}

    def raise_floor(document: dict[str, Any]) -> None:
        for row in document["release"]:
            if row["version"].startswith("12.4."):
                row["minimum_driver"] = "535.200"

    changed(tmp_path, "node_packages.toml", age)
    text = (tmp_path / "node_packages.toml").read_text(encoding="utf-8")
    facts = changed(tmp_path, "cuda.toml", raise_floor)
    (tmp_path / "node_packages.toml").write_text(text, encoding="utf-8")
    stack = answer(facts, driver="535", torch="2.6", cuda="12.4")
    found = {row.os: row for row in stack.node.profiles}
    assert "535.200 is the least that will do" in found["ubuntu24.04"].refusal
    assert found["ubuntu22.04"].refusal is None


def test_a_framework_without_wheels_for_a_python_is_refused_there_alone(matrix: Matrix) -> None:
    stack = answer(matrix, driver="580", torch="2.1", os=["ubuntu22.04", "ubuntu24.04"])
    found = {row.os: row.frameworks for row in stack.node.profiles}
    assert found["ubuntu22.04"].refusal is None
    assert found["ubuntu22.04"].environments
    assert "3.12" in found["ubuntu24.04"].refusal
    assert found["ubuntu24.04"].environments == ()


def test_a_framework_that_no_named_system_can_have_is_refused(matrix: Matrix) -> None:
    assert refusal(matrix, driver="580", torch="2.1", os="ubuntu24.04").is_proved


def test_a_python_that_the_system_lacks_is_refused(matrix: Matrix) -> None:
    stack = answer(matrix, driver="580", torch="2.14", python="3.12")
    found = {row.os: row.frameworks.refusal for row in stack.node.profiles}
    assert found["ubuntu24.04"] is None
    assert "has Python 3.11, not 3.12" in found["debian12"]


@pytest.mark.parametrize("framework", [{"tensorflow": "2.16"}, {"jax": "0.4.30"}])
def test_other_frameworks_get_environments_too(matrix: Matrix, framework: dict[str, str]) -> None:
    found = profile(matrix, "debian12", driver="580", **framework)
    (environment,) = found.frameworks.environments
    assert environment.imports == tuple(framework)


def test_one_changed_driver_floor_changes_the_lock(tmp_path: Path, matrix: Matrix) -> None:
    before = answer(matrix, driver="580", torch="2.1", cuda="12.1", os="debian12")

    def raise_floor(document: dict[str, Any]) -> None:
        for row in document["release"]:
            if row["version"].startswith("12.1."):
                row["minimum_driver"] = "530.30.02"

    after = answer(changed(tmp_path, "cuda.toml", raise_floor), driver="580", torch="2.1", cuda="12.1", os="debian12")
    assert (before.driver.minimum, after.driver.minimum) == ("525.60.13", "530.30.02")
    assert before.lock_digest != after.lock_digest


def test_a_driver_below_the_floor_is_refused_once_the_floor_rises(tmp_path: Path) -> None:
    def raise_floor(document: dict[str, Any]) -> None:
        for row in document["release"]:
            if row["version"].startswith("12.1."):
                row["minimum_driver"] = "535.300"

    facts = changed(tmp_path, "cuda.toml", raise_floor)
    assert profile(facts, "debian12", driver="535", torch="2.1", cuda="12.1").driver.version == "535.309.01"
    assert refusal(facts, driver="535.261.03", torch="2.1", cuda="12.1", os="debian12").is_proved


def test_a_package_that_leaves_the_facts_leaves_the_lock(tmp_path: Path) -> None:
    def drop_open(document: dict[str, Any]) -> None:
        row = packages_row(document, "ubuntu24.04-distro-580")
        for key in ("open", "open_packages", "open_dkms", "open_name", "open_module"):
            row.pop(key)

    facts = changed(tmp_path, "node_packages.toml", drop_open)
    assert flavours(profile(facts, "ubuntu24.04", driver="580", gpu="v100")) == ["proprietary"]
    assert profile(facts, "ubuntu24.04", driver="580", gpu="b200").method == "cuda_repo"
    assert refusal(facts, driver="580", gpu="b200", os="ubuntu24.04", method="distro").is_proved


def test_the_lock_reads_back(matrix: Matrix) -> None:
    stack = answer(
        matrix, driver="580", torch="2.14", include="container-toolkit,dcgm", toolkit="13.0", os="ubuntu22.04"
    )
    again = Stack.from_lock(stack.to_lock())
    assert again == stack
    assert again.node.profiles[0].driver.flavours[0].packages == stack.node.profiles[0].driver.flavours[0].packages


def test_an_edited_node_part_is_noticed(matrix: Matrix) -> None:
    document = json.loads(answer(matrix, driver="580", os="ubuntu24.04").to_lock())
    document["node"]["profiles"][0]["driver"]["package_version"] = "580.1-1"
    with pytest.raises(UsageError, match="was edited"):
        Stack.from_lock(json.dumps(document))


def test_a_lock_from_before_nodes_still_reads() -> None:
    text = (Path(__file__).parents[2] / "golden" / "torch-cu121" / "provision.lock").read_text(encoding="utf-8")
    assert "node" not in json.loads(text)
    assert Stack.from_lock(text).node is None


def test_a_wheel_without_a_hash_is_refused_unless_somebody_adds_it(matrix: Matrix) -> None:
    found = refusal(matrix, torch="2.14", driver="535", os="debian12")
    assert not found.is_proved
    assert "no hash of torch" in found.because[0].because
    options = NodeOptions(systems=("debian12",), keeps_unverified=True)
    stack = solve_node(parse_request({"torch": "2.14", "driver": "535"}), options, matrix)
    (environment,) = stack.node.profiles[0].frameworks.environments
    assert any(package.sha256 is None for package in environment.packages)
    assert "keeps_unverified" not in stack.node.request


def test_the_same_request_gives_the_same_stack() -> None:
    values = {"driver": "580", "torch": "2.14", "include": "dcgm"}
    assert answer(Matrix(), **values).to_lock() == answer(Matrix(), **values).to_lock()


def test_options_are_words_and_back() -> None:
    options = NodeOptions(
        systems=("debian12",), method="distro", flavour="open", toolkits=("11.8",), includes=("dcgm", "nccl")
    )
    words = node_flags(options)
    assert words == (
        *("--os", "debian12", "--method", "distro", "--flavour", "open", "--toolkit", "11.8"),
        *("--include", "dcgm", "--include", "nccl"),
    )
    assert node_flags(NodeOptions(includes=())) == ("--include", "none")
    assert node_flags(NodeOptions()) == ()


@pytest.mark.parametrize(
    "values",
    [
        {"method": "apt"},
        {"flavour": "free"},
        {"profile": "{{ all }}"},
        {"toolkit": "latest"},
        {"toolkit": "12.1; rm"},
        {"include": "everything"},
        {"include": "none,dcgm"},
        {"os": "debian12\nx"},
        {"os": 12},
        {"reboot": "yes"},
    ],
)
def test_options_outside_their_grammar_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        parse_node_options(values)


def test_toolkits_lose_their_patch_and_their_repeats() -> None:
    assert parse_node_options({"toolkit": ["12.1.1", "11.8", "12.1"]}).toolkits == ("11.8", "12.1")
    assert parse_node_options({}).method == METHODS[0] == "auto"


def test_the_known_bad_module_is_bounded_by_the_kernel_that_broke_it(matrix: Matrix) -> None:
    (row,) = [item for item in matrix.known_bad_modules if item.driver == "550.163.01"]
    assert row.flavour == "open"
    assert parse("6.12.94") < parse(row.kernel_first) <= parse("6.12.107")
    assert row.kernel_last is None
