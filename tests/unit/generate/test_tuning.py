"""Recommendations fit the machine, the job and the versions; folk settings meet the fact about them."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.generate.tuning import Situation, container_variables, judge, parse_setting, recommend
from provision.generate.tuning_files import render_tuning
from provision.matrix.load import Matrix

HEADER = ("a comment",)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def ids(matrix: Matrix, *facts: str, values: dict[str, str] | None = None, **libraries: str) -> dict[str, str]:
    situation = Situation(libraries=libraries, facts=frozenset(facts), values=values or {})
    return {advice.row.id: advice.value for advice in recommend(situation, matrix)}


@pytest.mark.parametrize(
    ("version", "is_wanted"), [("2.23.4", False), ("2.24.3", True), ("2.26.2", True), ("2.26.5", False)]
)
def test_a_row_holds_for_its_versions_alone(version: str, is_wanted: bool, matrix: Matrix) -> None:
    assert ("nccl-cumem-host" in ids(matrix, "container", nccl=version)) is is_wanted
    assert ("NCCL_CUMEM_HOST_ENABLE" in container_variables(_in_container(version), matrix)) is is_wanted


def _in_container(nccl: str) -> Situation:
    return Situation(libraries={"nccl": nccl}, facts=frozenset({"container"}))


def test_an_unknown_version_gets_nothing_that_rests_on_one(matrix: Matrix) -> None:
    assert "nccl-cumem-host" not in ids(matrix, "container")


@pytest.mark.parametrize(
    ("version", "name"), [("2.9.1", "torch-cuda-alloc-conf"), ("2.10.0", "torch-alloc-conf"), ("2.1.0", None)]
)
def test_the_allocator_has_one_name_a_version(version: str, name: str | None, matrix: Matrix) -> None:
    found = {key for key in ids(matrix, torch=version) if key.endswith("alloc-conf")}
    assert found == ({name} if name else set())


def test_every_condition_counts(matrix: Matrix) -> None:
    row = next(row for row in matrix.tunings if row.id == "nccl-socket-threads")
    assert row.id in ids(matrix, *row.when, nccl="2.27.3")
    for left_out in row.when:
        assert row.id not in ids(matrix, *(set(row.when) - {left_out}), nccl="2.27.3")


def test_a_value_of_the_machine_is_put_in_and_never_left_open(matrix: Matrix) -> None:
    facts = ("multi-node", "rdma", "idle-rdma")
    assert (
        ids(matrix, *facts, values={"rdma_devices": "mlx5_0,mlx5_2"}, nccl="2.27.3")["nccl-ib-hca"] == "=mlx5_0,mlx5_2"
    )
    assert "nccl-ib-hca" not in ids(matrix, *facts, nccl="2.27.3")


def test_what_is_safe_stands_first(matrix: Matrix) -> None:
    situation = Situation(
        libraries={"nccl": "2.26.2", "torch": "2.7.1"},
        facts=frozenset({"container", "rdma", "limited-memlock", "node"}),
    )
    marks = [advice.row.is_default for advice in recommend(situation, matrix)]
    assert marks == sorted(marks, reverse=True)
    assert len(set(marks)) == 2


def only(matrix: Matrix, text: str, *facts: str, **libraries: str) -> tuple[str | None, bool]:
    (item,) = judge([parse_setting(text)], Situation(libraries=libraries, facts=frozenset(facts)), matrix)
    return (item.row.id if item.row is not None else None), item.is_refused


@pytest.mark.parametrize(
    ("text", "facts", "libraries", "verdict"),
    [
        ("NCCL_PORT=12345", (), {}, ("nccl-port", True)),
        ("NCCL_IB_DISABLE=1", ("rdma",), {}, ("nccl-ib-disable", True)),
        ("NCCL_IB_DISABLE=1", (), {}, ("nccl-ib-disable-unseen", False)),
        ("NCCL_IB_DISABLE=0", (), {}, ("nccl-ib-enable", False)),
        ("NCCL_SOCKET_IFNAME=eth0", (), {}, ("nccl-eth0", True)),
        ("NCCL_SOCKET_IFNAME==ens5", (), {}, (None, False)),
        ("NCCL_SOCKET_IFNAME=^docker0,lo", (), {}, ("nccl-not-docker", False)),
        ("NCCL_ALGO=Ring", (), {}, ("nccl-algo", True)),
        ("NCCL_IB_GID_INDEX=3", (), {"nccl": "2.21.5"}, ("nccl-gid-index", True)),
        ("NCCL_IB_GID_INDEX=3", (), {"nccl": "2.20.5"}, (None, False)),
        ("NCCL_DEBUG=INFO", (), {}, ("nccl-debug", False)),
        ("NCCL_DEBUG=WARN", (), {}, (None, False)),
        ("NCCL_NO_SUCH_THING=1", (), {}, (None, True)),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", (), {"torch": "2.9.0"}, ("torch-max-split", False)),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", (), {"torch": "2.10.0"}, ("torch-max-split", False)),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", (), {"torch": "2.10.0"}, ("torch-old-name", False)),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", (), {"torch": "2.9.0"}, (None, False)),
        ("OMP_NUM_THREADS=4", (), {}, (None, False)),
    ],
)
def test_a_setting_meets_the_fact_about_it(
    text: str,
    facts: tuple[str, ...],
    libraries: dict[str, str],
    verdict: tuple[str | None, bool],
    matrix: Matrix,
) -> None:
    assert only(matrix, text, *facts, **libraries) == verdict


@pytest.mark.parametrize("text", ["", "=1", "NAME", "A=x\ny", "A=\x1b[0m", "1A=2", "A" * 200 + "=1"])
def test_no_setting_is_refused_before_anything_is_judged(text: str) -> None:
    with pytest.raises(UsageError):
        parse_setting(text)


def test_each_kind_goes_into_its_file() -> None:
    settings = {
        "nccl": {"NCCL_SOCKET_IFNAME": "=ens5", "NCCL_IB_TC": "1e3"},
        "env": {"B": "x y", "A": "1"},
        "sysctl": {"net.ipv4.ip_local_port_range": "50000 51000"},
        "limit": {"memlock": "unlimited"},
        "logind": {"RemoveIPC": "no"},
        "mount": {"nfs": "rdma"},
    }
    files = {artifact.path: artifact.text for artifact in render_tuning(settings, HEADER)}
    assert files["gpu_nccl.yml"].endswith('gpu_nccl_conf:\n  NCCL_IB_TC: "1e3"\n  NCCL_SOCKET_IFNAME: "=ens5"\n')
    assert files["tune.env"] == "# a comment\nA=1\nB=x y\n"
    assert "net.ipv4.ip_local_port_range = 50000 51000\n" in files["90-provision-tune.conf"]
    assert "* soft memlock unlimited\n* hard memlock unlimited\n" in files["90-provision-limits.conf"]
    assert files["90-provision-logind.conf"].endswith("[Login]\nRemoveIPC=no\n")
    assert len(files) == 5


def test_no_settings_are_no_files() -> None:
    assert render_tuning({}, HEADER) == ()
