"""Data sets and checkpoints in object storage: who copies what, with whose keys, and that rclone does it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.generate.cluster.options import ClusterOptions, Place, Tenant, WarmUp, parse_place
from provision.generate.cluster.render import ClusterFiles, render_cluster
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.records import replace

TRAIN = ClusterOptions(
    image="registry.example/team/train:1",
    script=("train.py",),
    nodes=2,
    gpus=8,
    tenants=(Tenant(name="vision", gpus=16),),
    data=Place(scheme="s3", path="sets/imagenet"),
    checkpoints=Place(scheme="s3", path="runs/one"),
    store_secret="store-keys",
    existing=("Secret/store-keys",),
)
needs_rclone = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")


def documents(files: ClusterFiles, path: str) -> list[Any]:
    (text,) = [item.text for item in files.artifacts if item.path == path]
    return list(yaml.safe_load_all(text))


def find_pod(node: Any) -> dict[str, Any]:
    if isinstance(node, dict):
        if "initContainers" in node:
            return node
        node = list(node.values())
    for item in node if isinstance(node, list) else ():
        if found := find_pod(item):
            return found
    return {}


def steps(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in pod["initContainers"]}


@pytest.mark.parametrize("runner", ["jobset", "trainjob", "job"])
def test_a_training_gets_its_data_first_and_keeps_its_checkpoints(
    runner: str, image_lock: Subject, matrix: Matrix
) -> None:
    options = replace(TRAIN, runner=runner, nodes=1 if runner == "job" else 2)
    pod = find_pod(documents(render_cluster(image_lock, options, matrix), "train.yaml"))
    assert list(steps(pod)) == ["store-data", "store-checkpoints", "store-keep"]
    assert steps(pod)["store-data"]["command"][-2:] == ["store:sets/imagenet", "/data"]
    # Only the last of them goes on beside the work, and it is given the time for a last copy.
    assert [row.get("restartPolicy") for row in pod["initContainers"]] == [None, None, "Always"]
    assert pod["terminationGracePeriodSeconds"] == 600
    mounts = {row["mountPath"]: row.get("readOnly", False) for row in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"/dev/shm": False, "/data": True, "/checkpoints": False}


def test_keys_are_in_a_secret_and_nowhere_else(image_lock: Subject, matrix: Matrix) -> None:
    pod = find_pod(documents(render_cluster(image_lock, TRAIN, matrix), "train.yaml"))
    for row in pod["initContainers"]:
        assert row["envFrom"] == [{"secretRef": {"name": "store-keys"}}]
        names = {item["name"] for item in row["env"]}
        assert names == {f"RCLONE_CONFIG_STORE_{name}" for name in ("TYPE", "PROVIDER", "ENV_AUTH", "NO_CHECK_BUCKET")}
    assert "envFrom" not in pod["containers"][0]


@pytest.mark.parametrize(
    ("scheme", "endpoint", "provider", "port"),
    [
        ("s3", None, "AWS", 443),
        ("s3", "http://minio.storage:9000", "Other", 9000),
        ("oss", "https://oss-eu-central-1.storage.example", "Alibaba", 443),
        ("cos", "http://cos.ap-guangzhou.storage.example", "TencentCOS", 80),
    ],
)
def test_each_provider_is_reached_at_its_address(
    scheme: str, endpoint: str | None, provider: str, port: int, image_lock: Subject, matrix: Matrix
) -> None:
    options = replace(TRAIN, data=Place(scheme=scheme, path="sets/a"), checkpoints=None, store_endpoint=endpoint)
    files = render_cluster(image_lock, options, matrix)
    said = {
        row["name"].rpartition("STORE_")[2]: row["value"]
        for row in find_pod(documents(files, "train.yaml"))["initContainers"][0]["env"]
    }
    assert (said["PROVIDER"], said.get("ENDPOINT")) == (provider, endpoint)
    (policy,) = [row for row in documents(files, "tenant-vision.yaml") if row["metadata"]["name"] == "object-storage"]
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": port}]}]


def test_a_service_gets_its_weights_and_keeps_nothing(image_lock: Subject, matrix: Matrix) -> None:
    options = replace(TRAIN, runner="deployment", nodes=1, checkpoints=None, warm_up=WarmUp(path="/v1/models"), gpus=1)
    pod = find_pod(documents(render_cluster(image_lock, options, matrix), "serve.yaml"))
    assert list(steps(pod)) == ["store-data"]


def test_other_work_has_other_names_and_the_old_ones_stay(image_lock: Subject, matrix: Matrix) -> None:
    without = replace(TRAIN, data=None, checkpoints=None, store_secret=None, existing=())
    more = (
        replace(TRAIN, store_endpoint="https://one.example"),
        replace(TRAIN, store_endpoint="https://two.example"),
        replace(TRAIN, store_secret="others", existing=("Secret/others",)),
    )
    names = [render_cluster(image_lock, options, matrix).name for options in (without, TRAIN, *more)]
    assert len(set(names)) == 5
    assert names[0] == "train-e4008b7d"


@pytest.mark.parametrize(
    "text",
    [
        *("bucket/path", "s3://", "s3://key:secret@bucket/path", "gs://bucket/a", "s3://B/a", "s3://bucket/a b"),
        *("s3://sets/../../x", "s3://sets/a/..", "s3://sets/./a", "s3://sets//a"),
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="not in object storage"):
        parse_place("--data", text)


def test_compose_waits_for_the_data_and_holds_no_key(image_lock: Subject, matrix: Matrix) -> None:
    (document,) = documents(render_cluster(image_lock, TRAIN, matrix), "compose.yaml")
    services = document["services"]
    assert set(services) == {"data", "checkpoints", "keep", "train"}
    assert services["train"]["depends_on"] == {
        "data": {"condition": "service_completed_successfully"},
        "checkpoints": {"condition": "service_completed_successfully"},
        "keep": {"condition": "service_started"},
    }
    assert all(services[name]["env_file"] == ["store.env"] for name in ("data", "checkpoints", "keep"))
    assert set(document["volumes"]) == {"store-data", "store-checkpoints"}
    mounted = {row.partition(":")[0] for service in services.values() for row in service["volumes"]}
    assert mounted == set(document["volumes"])
    # A dollar that the shell of the container is to see is two in a file of Compose.
    assert '"$$1" "$$2"' in services["data"]["entrypoint"][2]


def run(words: list[str], root: Path, **more: str) -> subprocess.Popen[bytes]:
    """Run what a container runs, with folders of this machine in the place of its own and of the storage."""
    places = {"/data": str(root / "data"), "/checkpoints": str(root / "checkpoints"), "60": "1"}
    environment = {**os.environ, "RCLONE_CONFIG": str(root / "none"), "RCLONE_CONFIG_STORE_TYPE": "alias"}
    environment |= {"RCLONE_CONFIG_STORE_REMOTE": str(root / "storage"), **more}
    return subprocess.Popen([places.get(word, word) for word in words], env=environment, stderr=subprocess.DEVNULL)


@needs_rclone
def test_rclone_brings_data_and_keeps_checkpoints_until_the_last(
    tmp_path: Path, image_lock: Subject, matrix: Matrix
) -> None:
    pod = find_pod(documents(render_cluster(image_lock, TRAIN, matrix), "train.yaml"))
    words = {name: row["command"] for name, row in steps(pod).items()}
    source = tmp_path / "storage/sets/imagenet"
    assert run(words["store-data"], tmp_path).wait(60) != 0, "data that is not there ends the Pod"
    source.mkdir(parents=True)
    (source / "a").write_text("a")
    assert run(words["store-data"], tmp_path).wait(60) == 0
    assert (tmp_path / "data/a").read_text() == "a"

    mine, kept = tmp_path / "checkpoints", tmp_path / "storage/runs/one"
    mine.mkdir(mode=0o755)
    assert run(words["store-checkpoints"], tmp_path).wait(60) == 0, "the first run has no checkpoint"
    assert mine.stat().st_mode & 0o777 == 0o777, "the user of the work may write there"
    (mine / "step1").write_text("1")
    os.utime(mine / "step1", (time.time() - 120,) * 2)
    keeper = run(words["store-keep"], tmp_path)
    try:
        end = time.monotonic() + 60
        while not (kept / "step1").exists() and time.monotonic() < end:
            time.sleep(0.2)
        assert (kept / "step1").read_text() == "1"
        (mine / "step2").write_text("2")
        time.sleep(2.5)
        assert not (kept / "step2").exists(), "what was just written may not be whole"
    finally:
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(60) == 0
    assert (kept / "step2").read_text() == "2"
    shutil.rmtree(mine)
    assert run(words["store-checkpoints"], tmp_path).wait(60) == 0
    assert {path.name for path in mine.iterdir()} == {"step1", "step2"}
    assert (mine / "step1").stat().st_mode & 0o022 == 0o022, "the user of the work may write it"


@needs_rclone
def test_a_pod_that_restored_takes_no_newer_checkpoint_from_another(
    tmp_path: Path, image_lock: Subject, matrix: Matrix
) -> None:
    pod = find_pod(documents(render_cluster(image_lock, TRAIN, matrix), "train.yaml"))
    words = {name: row["command"] for name, row in steps(pod).items()}
    kept = tmp_path / "storage/runs/one"
    kept.mkdir(parents=True)
    (kept / "last").write_text("old")
    os.utime(kept / "last", (time.time() - 600,) * 2)
    writes, idles = tmp_path / "writes", tmp_path / "idles"
    for root in (writes, idles):
        root.mkdir()
        (root / "storage").symlink_to(tmp_path / "storage")
        assert run(words["store-checkpoints"], root).wait(60) == 0
    (writes / "checkpoints/last").write_text("new")
    os.utime(writes / "checkpoints/last", (time.time() - 120,) * 2)
    # The one that only restored copies after the other did: each second, and once more as it ends.
    for root in (writes, idles):
        keeper = run(words["store-keep"], root)
        time.sleep(2.5)
        assert (kept / "last").read_text() == "new"
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(60) == 0
        assert (kept / "last").read_text() == "new"
    # What a last copy did not bring out is newer on the disk that is still there.
    (kept / "last").write_text("old")
    os.utime(kept / "last", (time.time() - 600,) * 2)
    assert run(words["store-checkpoints"], writes).wait(60) == 0
    assert (writes / "checkpoints/last").read_text() == "new"


def test_a_service_of_compose_is_healthy_once_it_answered(image_lock: Subject, matrix: Matrix) -> None:
    options = replace(
        TRAIN, runner="deployment", nodes=1, checkpoints=None, gpus=1, script=("serve", "$MODEL"), port=8001,
        warm_up=WarmUp(path="/v1/models"),
    )  # fmt: skip
    (document,) = documents(render_cluster(image_lock, options, matrix), "compose.yaml")
    service = document["services"]["serve"]
    assert service["command"] == ["serve", "$$MODEL"]
    assert service["healthcheck"]["test"][-2:] == ["http://127.0.0.1:8001/v1/models", ""]
    assert (service["healthcheck"]["start_period"], service["stop_grace_period"]) == ("1200s", "140s")
    assert service["ports"] == ["127.0.0.1:8001:8001"]
    assert service["depends_on"] == {"data": {"condition": "service_completed_successfully"}}
