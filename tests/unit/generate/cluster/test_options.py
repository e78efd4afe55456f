"""No value that a person gives becomes anything but a value."""

from __future__ import annotations

from typing import Any

import pytest

from provision.errors import UsageError
from provision.generate.cluster.options import (
    ClusterOptions,
    Place,
    Tenant,
    WarmUp,
    parse_existing,
    parse_machine,
    parse_node_class,
    parse_rdma,
    parse_scale,
    parse_tenant,
    parse_volume,
    parse_warm_up,
)

IMAGE = "registry.example/team/train:1"


S3, OSS = Place(scheme="s3", path="a"), Place(scheme="oss", path="a")
UP = {"machine": ("aws", "a", ""), "runner": "raycluster", "image": IMAGE}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("namespace", "Team"),
        ("namespace", "a\nb"),
        ("namespace", "x" * 64),
        ("namespace", "-a"),
        ("namespace", "team\u0661"),
        ("image", "x; rm -rf /"),
        ("image", "registry.example/a:1\nprivileged: true"),
        ("nccl_tests_image", "$(reboot)"),
        ("owner", "me"),
        ("runner", "cron"),
        ("nodes", 0),
        ("nodes", 10_001),
        ("gpus", 17),
        ("memory_gib", 0),
        ("port", 65_536),
        ("name", "1st"),
        ("name", "x" * 41),
        ("name", "a.b"),
        ("cluster", 'a"b'),
        ("secrets", ("Hub",)),
        ("priority", "a b"),
        ("prometheus", "prometheus:9090"),
        ("warm_up", WarmUp(path="/x", body="$(SECRET)")),
        ("variables", {"lower": "x"}),
        ("variables", {"A": "x\ny"}),
        ("variables", {"A": "$(SECRET)"}),
    ],
)
def test_a_hostile_or_senseless_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        ClusterOptions(**{name: value})


@pytest.mark.parametrize("word", ["a\nb", "$(PATH)", "x\x00", "é", "x" * 5000])
def test_a_word_of_the_script_is_printable_and_no_variable(word: str) -> None:
    with pytest.raises(UsageError):
        ClusterOptions(image=IMAGE, script=("train.py", word))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sharing": "mps"}, "--replicas"),
        ({"replicas": 4}, "--sharing"),
        # k8s-device-plugin, api/config/v1/replicas.go: "number of replicas must be >= 2".
        ({"sharing": "time-slicing", "replicas": 1}, "shares a GPU with no other Pod"),
        ({"mig_strategy": "mixed"}, "--mig-profile"),
        ({"mig_strategy": "single"}, "--mig-profile"),
        ({"mig_profile": "1g.10gb"}, "--mig-strategy"),
        ({"is_queued": True}, "there is none"),
        ({"runbooks": "https://docs.example/r"}, "--monitoring"),
        ({"runner": "raycluster"}, "--image"),
        ({"image": IMAGE, "runner": "raycluster", "script": ("x",)}, "starts no script"),
        ({"image": IMAGE, "runner": "deployment", "script": ("serve",)}, "--warm-up"),
        ({"image": IMAGE, "script": ("x",), "warm_up": WarmUp(path="/")}, "--runner deployment"),
        ({"scale": (1, 2)}, "--prometheus"),
        ({"prometheus": "http://a"}, "--autoscale"),
        ({"scale": (1, 2), "prometheus": "http://a"}, "--runner deployment"),
        (UP | {"secrets": ("s",)}, "--env-from exclude"),
        (UP | {"volumes": (("c", "/a"),)}, "--volume exclude"),
        (UP | {"rdma": ("rdma/hca", 1)}, "--rdma exclude"),
        (UP | {"priority": "batch"}, "--priority exclude"),
        (UP | {"cpus": 8}, "--cpus exclude"),
        (UP | {"memory_gib": 64}, "--memory-gib exclude"),
        (UP | {"sharing": "time-slicing", "replicas": 4}, "--sharing exclude"),
        (UP | {"mig_strategy": "mixed", "mig_profile": "1g.10gb"}, "--mig-profile exclude"),
        ({"monitors": 2}, "without --monitoring"),
        ({"monitors": 1, "cluster": "prod"}, "from 2 to 5"),
        ({"store_secret": "a"}, "--store-secret has no effect"),
        ({"data": OSS}, "--store-endpoint"),
        ({"data": S3, "checkpoints": OSS, "store_endpoint": "https://a"}, "two providers"),
        ({"data": S3, "runner": "rayjob"}, "copy nothing for a Ray cluster"),
        ({"checkpoints": S3, "runner": "deployment"}, "about a training"),
        ({"data": S3, "volumes": (("c", "/data"),)}, "both at /data"),
        ({"data": S3, "volumes": (("c", "/data/sub"),)}, "both at /data"),
        ({"data": S3, "checkpoints": S3, "volumes": (("c", "/checkpoints/a"),)}, "both at /checkpoints"),
        ({"volumes": (("a", "/sets"), ("b", "/sets"))}, "two claims at /sets"),
        ({"scale": (0, 2), "prometheus": "http://a", "runner": "deployment"}, "no Pod"),
        ({"machine": ("aws", "a", "")}, "--runner raycluster"),
        ({"machine": ("aws", "a", ""), "runner": "rayjob"}, "--runner raycluster"),
        ({"idle_seconds": 60, "scale": (1, 2)}, "--policy"),
        ({"scale": (0, 2), "runner": "rayjob", "prometheus": "http://a"}, "--prometheus"),
        ({"scale": (0, 2), "runner": "rayjob", "nodes": 2}, "--nodes 2"),
        ({"scale": (0, 2), "runner": "rayjob", "is_queued": True, "tenants": (Tenant(name="a", gpus=1),)}, "--kueue"),
        ({"mig_strategy": "mixed", "mig_profile": "9g.1tb"}, "MIG profile"),
        ({"script": ("train.py",)}, "--image"),
        ({"shm_gib": 8, "memory_gib": 8}, "--shm-gib"),
        ({"tenants": (Tenant(name="a", gpus=1), Tenant(name="a", gpus=2))}, "twice"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ClusterOptions(**values)


def test_a_volume_beside_object_storage_is_kept() -> None:
    volumes = (("a", "/database"), ("b", "/checkpoints"))
    assert ClusterOptions(data=S3, volumes=volumes).volumes == volumes


@pytest.mark.parametrize("flag", ["store_endpoint", "prometheus"])
@pytest.mark.parametrize(
    ("address", "is_taken"),
    [
        ("https://h", True),
        ("https://h:1/a", True),
        ("http://10.0.0.5:65535", True),
        ("http://[fd00::6]:9000/", True),
        ("https://h:99999", False),
        ("https://h:0", False),
        ("https://u:p", False),
        ("https://h:", False),
        ("https://:9000", False),
        ("https:///a", False),
        ("https://[fd00::6", False),
        ("https://u:p@h", False),
        ("https://h/a:9", False),
    ],
)
def test_the_address_of_a_server_has_a_host_and_a_port_that_can_be(flag: str, address: str, is_taken: bool) -> None:
    values: dict[str, Any] = {flag: address}
    if flag == "store_endpoint":
        values["data"] = S3
    else:
        values |= {"scale": (1, 2), "cluster": "prod", "runner": "deployment"}
    if is_taken:
        assert getattr(ClusterOptions(**values), flag) == address
    else:
        with pytest.raises(UsageError, match="is not a valid address of a server"):
            ClusterOptions(**values)


def test_a_tenant_is_a_name_and_a_number() -> None:
    assert parse_tenant("vision=8") == Tenant(name="vision", gpus=8)
    assert parse_tenant("off=0").gpus == 0


@pytest.mark.parametrize(
    "text",
    ["vision", "vision=", "vision=-1", "Vision=1", "kube-system=1", "default=1", "a=9999999", "a=\u0661", "a=1=2"],
)
def test_no_tenant_is_anything_else(text: str) -> None:
    with pytest.raises(UsageError):
        parse_tenant(text)


def test_flags_with_two_parts_are_read() -> None:
    assert parse_rdma("rdma/hca_a") == ("rdma/hca_a", 1)
    assert parse_rdma("rdma/hca_a=8") == ("rdma/hca_a", 8)
    assert parse_node_class("EC2NodeClass.karpenter.k8s.aws/gpu") == ("EC2NodeClass", "karpenter.k8s.aws", "gpu")
    assert parse_volume("datasets=/data") == ("datasets", "/data")
    assert parse_volume("datasets=//data/./a//") == ("datasets", "/data/a")
    assert parse_existing("Secret/hub-token") == "Secret/hub-token"
    assert parse_scale("1:8") == (1, 8)
    assert parse_scale("0:8") == (0, 8)
    assert parse_machine("aws/p5.48xlarge/us-east-1") == ("aws", "p5.48xlarge", "us-east-1")
    assert parse_machine("aws/p5.48xlarge") == ("aws", "p5.48xlarge", "")
    assert parse_warm_up("/health") == WarmUp(path="/health")
    assert parse_warm_up('/v1/chat {"a": 1}') == WarmUp(path="/v1/chat", body='{"a": 1}')


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_rdma, "hca"),
        (parse_rdma, "rdma/hca=0"),
        (parse_node_class, "gpu"),
        (parse_node_class, "EC2NodeClass/gpu"),
        (parse_volume, "datasets"),
        (parse_volume, "datasets=data"),
        (parse_volume, "datasets=/dev/shm"),
        (parse_volume, "datasets=//dev/./shm/"),
        (parse_volume, "datasets=/"),
        (parse_volume, "datasets=//"),
        (parse_volume, "datasets=/a/../data"),
        (parse_existing, "hub-token"),
        (parse_existing, "Secret/Hub"),
        (parse_scale, "8"),
        (parse_scale, "0:0"),
        (parse_machine, "p5.48xlarge"),
        (parse_scale, "8:1"),
        (parse_warm_up, "health"),
        (parse_warm_up, "/a\n/b"),
    ],
)
def test_and_nothing_else_is(parse: Any, text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_work_goes_to_the_only_tenant() -> None:
    one, two = Tenant(name="a", gpus=1), Tenant(name="b", gpus=1)
    assert ClusterOptions(tenants=(one,)).place == "a"
    assert ClusterOptions(tenants=(one, two)).place == "default"
    assert ClusterOptions(tenants=(one, two), namespace="b").place == "b"
