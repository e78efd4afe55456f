"""`provision cluster` as people run it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

IMAGE = "registry.example/team/train:1"


@pytest.fixture
def image_lock(tmp_path: Path, provision) -> Path:
    folder = tmp_path / "image"
    assert provision("image", "--torch", "2.8", "--gpu", "h100", "-o", folder).code == 0
    return folder / "provision.lock"


@pytest.fixture
def node_lock(tmp_path: Path, provision) -> Path:
    path = tmp_path / "provision_lock.yml"
    answer = provision("node", "lock", "--cuda", "12.8", "--os", "ubuntu24.04", "-o", path)
    assert answer.code == 0, answer.err
    return path


def test_a_request_and_its_lock_give_the_same_files(provision, image_lock, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert provision("cluster", "--lock", image_lock, "--image", IMAGE, "-o", one).code == 0
    assert provision("cluster", "--torch", "2.8", "--gpu", "h100", "--image", IMAGE, "-o", two).code == 0
    names = sorted(path.name for path in one.iterdir())
    assert names == ["gpu-operator-values.yaml", "kustomization.yaml", "verify.yaml"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_the_lock_of_nodes_brings_the_plugin(provision, node_lock, tmp_path):
    answer = provision("cluster", "--lock", node_lock, "-o", tmp_path / "out", "--json")
    result = answer.document["result"]
    assert result["driver"]["owner"] == "node"
    assert result["files"] == ["device-plugin.yaml", "kustomization.yaml"]
    assert result["apply"] == ["device-plugin.yaml"]
    documents = list(yaml.safe_load_all((tmp_path / "out" / "device-plugin.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["RuntimeClass", "ConfigMap", "DaemonSet"]


def test_two_owners_of_the_driver_end_with_3(provision, node_lock, tmp_path):
    answer = provision("cluster", "--lock", node_lock, "--driver-owner", "operator", "-o", tmp_path / "out")
    assert answer.code == 3
    assert "two would install the driver" in answer.err
    assert not (tmp_path / "out").exists()


def test_a_lock_that_somebody_edited_ends_with_2(provision, image_lock, node_lock, tmp_path):
    image_lock.write_text(image_lock.read_text().replace('"python": "3.', '"python": "2.', 1))
    assert provision("cluster", "--lock", image_lock, "-o", tmp_path / "out").code == 2
    node_lock.write_text(node_lock.read_text().replace("ubuntu24.04", "ubuntu22.04"))
    assert provision("cluster", "--lock", node_lock, "-o", tmp_path / "out").code == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"unverified": 0}', "a: [", "\x00", '{"lock_version": 1}'])
def test_a_file_that_is_no_lock_ends_with_2(provision, tmp_path, text):
    path = tmp_path / "lock"
    path.write_text(text)
    assert provision("cluster", "--lock", path, "-o", tmp_path / "out").code == 2


def test_check_tells_drift(provision, image_lock, tmp_path):
    words = ("cluster", "--lock", image_lock, "--tenant", "vision=4", "-o", tmp_path / "out")
    assert provision(*words, "--check").code == 8
    assert provision(*words).code == 0
    assert provision(*words, "--check").code == 0
    (tmp_path / "out" / "tenant-vision.yaml").write_text("x")
    assert provision(*words, "--check").code == 8


def test_what_an_earlier_request_left_is_told(provision, image_lock, tmp_path):
    out = tmp_path / "out"
    words = ("cluster", "--lock", image_lock, "-o", out)
    assert provision(*words, "--tenant", "vision=4").code == 0
    (out / "own.yaml").write_text("a: 1\n")
    answer = provision(*words, "--tenant", "speech=4")
    assert answer.code == 0
    assert "warning: tenant-vision.yaml is left over of another request" in answer.err
    answer = provision(*words, "--tenant", "speech=4", "--check")
    assert answer.code == 8
    assert "because tenant-vision.yaml is left over of another request\n" in answer.err
    assert "own.yaml" not in answer.err
    assert "without `--check`" not in answer.err
    (out / "tenant-vision.yaml").unlink()
    assert provision(*words, "--tenant", "speech=4", "--check").code == 0


def test_a_dry_run_writes_nothing(provision, image_lock, tmp_path):
    answer = provision("cluster", "--lock", image_lock, "-o", tmp_path / "out", "--dry-run")
    assert answer.code == 0
    assert "would write 1 of 1 files" in answer.out
    assert not (tmp_path / "out").exists()


def test_words_behind_two_dashes_are_the_script(provision, image_lock, tmp_path):
    words = ("--image", IMAGE, "--nodes", "2", "--gpus", "8", "-o", tmp_path, "--", "train.py", "--epochs", "3")
    assert provision("cluster", "--lock", image_lock, *words).code == 0
    job = yaml.safe_load((tmp_path / "train.yaml").read_text())
    command = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-3:] == ["train.py", "--epochs", "3"]


def test_a_variable_that_its_vendor_refutes_ends_with_3(provision, image_lock, tmp_path):
    answer = provision("cluster", "--lock", image_lock, "--env", "NCCL_ALGO=Ring", "-o", tmp_path / "out")
    assert answer.code == 3
    assert "folk/nccl-algo" in answer.err


def test_a_pointless_variable_gets_a_warning(provision, image_lock, tmp_path):
    words = ("--image", IMAGE, "--env", "NCCL_DEBUG=INFO", "-o", tmp_path / "out", "--", "train.py")
    answer = provision("cluster", "--lock", image_lock, *words)
    assert answer.code == 0
    assert "warning: NCCL_DEBUG=INFO" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--torch", "2.8"),
        ("-o", "out"),
        ("--lock", "absent", "-o", "out"),
        ("--torch", "2.8", "--lock", "provision.lock", "-o", "out"),
        ("--torch", "2.8", "-o", "out", "--tenant", "kube-system=1"),
        ("--torch", "2.8", "-o", "out", "--gpus", "many"),
        ("--torch", "2.8", "-o", "out", "--gpus", "0"),
        ("--torch", "2.8", "-o", "out", "--nodes", "0"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--nodes", "2"),
        ("--torch", "2.8", "-o", "out", "--gpus", "8"),
        ("--torch", "2.8", "-o", "out", "--namespace", "vision"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--namespace", "Foo_Bar"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--", "torchrun", "train.py"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--", "python3", "train.py"),
        ("--torch", "2.8", "-o", "out", "--sharing", "mps", "--replicas", "1"),
        ("--torch", "2.8", "-o", "out", "--image", "a b"),
        ("--torch", "2.8", "-o", "out", "--env", "A=1", "--env", "A=2"),
        ("--torch", "2.8", "-o", "out", "train.py"),
        ("--torch", "2.8", "-o", "out", "--kueue"),
        ("--torch", "2.8", "-o", "out", "--name", "train"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--port", "80"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--rdma", "hca"),
        ("--torch", "2.8", "-o", "out", "--image", IMAGE, "--runner", "deployment", "--", "serve"),
        ("--torch", "2.8", "-o", "out", "--mig-strategy", "mixed"),
        ("--torch", "2.8", "-o", "out", "--monitoring", "prod", "--runbooks", "docs/runbooks.md"),
        ("--torch", "2.8", "-o", "out", "--existing", "hub"),
        ("--judge", "absent"),
        ("--judge", ".", "-o", "out"),
    ],
)
def test_wrong_words_end_with_2(provision, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = provision("cluster", *words)
    assert answer.code == 2, answer.err
    assert not (tmp_path / "out").exists()


def test_json_names_what_was_decided(provision, image_lock, tmp_path):
    answer = provision("cluster", "--lock", image_lock, "-o", tmp_path / "out", "--json")
    result = answer.document["result"]
    assert result["driver"]["owner"] == "operator"
    assert result["lock"]["digest"] == json.loads(image_lock.read_text())["lock_digest"]
    assert result["commands"][0].startswith("helm upgrade --install gpu-operator ")


KUBECTL = """#!/bin/sh
# A stand-in for kubectl and the cluster behind it: it says what it was asked, and answers by the file's name.
echo "$*" >>"$KUBECTL_ASKED"
for word; do file=$word; done
case $KUBECTL_ANSWER in
*no-cluster*) echo 'error: current-context must exist in order to minify' >&2; exit 1 ;;
*"$file:quota"*)
    echo 'Error from server (Forbidden): error when creating "x": pods "x" is forbidden: exceeded quota' >&2; exit 1 ;;
*"$file:namespace"*)
    echo namespace/vision
    echo 'Error from server (NotFound): error when creating "x": namespaces "vision" not found' >&2; exit 1 ;;
esac
echo 'Warning: would violate PodSecurity' >&2
echo "job.batch/$file"
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for kubectl, first on the path; returns the file of what it was asked."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECTL_ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("KUBECTL_ANSWER", "")
    return tmp_path / "asked"


def test_the_cluster_is_asked_for_every_file_that_goes_to_it_and_keeps_none(provision, image_lock, kubectl, tmp_path):
    words = ("--image", IMAGE, "--tenant", "vision=2", "--server-dry-run", "--context", "lab")
    answer = provision("cluster", "--lock", image_lock, *words, "-o", tmp_path / "out", "--json")
    assert answer.code == 0, answer.err
    assert [(row["file"], row["verdict"]) for row in answer.document["result"]["server"]] == [
        ("tenant-vision.yaml", "taken"),
        ("verify.yaml", "taken"),
    ]
    asked = kubectl.read_text().splitlines()
    assert [line.split()[:4] for line in asked] == [["--context", "lab", "apply", "--dry-run=server"] for _ in range(2)]


def test_what_the_cluster_would_not_take_ends_with_6_and_its_reason(
    provision, image_lock, kubectl, tmp_path, monkeypatch
):
    monkeypatch.setenv("KUBECTL_ANSWER", "verify.yaml:quota")
    words = ("--lock", image_lock, "--image", IMAGE, "--server-dry-run", "-o", tmp_path / "out")
    answer = provision("cluster", *words)
    assert answer.code == 6
    assert "the cluster would not take verify.yaml\n  Error from server (Forbidden)" in answer.out
    document = provision("cluster", *words, "--json").document
    assert document["ok"] is False
    assert document["result"]["server"][0]["verdict"] == "refused"


@pytest.mark.parametrize(("tenant", "code"), [("vision=2", 0), ("speech=2", 6)])
def test_a_namespace_of_its_own_that_is_not_there_yet_is_no_refusal(
    provision, image_lock, kubectl, tmp_path, monkeypatch, tenant, code
):
    path = f"tenant-{tenant.partition('=')[0]}.yaml"
    monkeypatch.setenv("KUBECTL_ANSWER", f"{path}:namespace")
    answer = provision(
        "cluster", "--lock", image_lock, "--tenant", tenant, "--server-dry-run", "-o", tmp_path / "out", "--json"
    )
    assert answer.code == code
    assert answer.document["result"]["server"][0]["verdict"] == ("refused" if code else "unjudged")


@pytest.mark.parametrize(
    ("path", "cluster", "words"),
    [("", "", "through kubectl, which is not here"), (None, "no-cluster", "kubectl reaches no cluster")],
)
def test_without_a_cluster_it_ends_with_7_and_the_files_are_there(
    provision, image_lock, kubectl, tmp_path, monkeypatch, path, cluster, words
):
    monkeypatch.setenv("KUBECTL_ANSWER", cluster)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    answer = provision("cluster", "--lock", image_lock, "--image", IMAGE, "--server-dry-run", "-o", tmp_path / "out")
    assert answer.code == 7
    assert words in answer.err
    assert (tmp_path / "out" / "verify.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--context", "lab"), "--context has no effect without --server-dry-run"),
        (("--server-dry-run", "--context", "--help me"), "is not a context"),
        (("--server-dry-run", "--dry-run"), "--dry-run writes none"),
    ],
)
def test_flags_that_say_nothing_are_refused(provision, image_lock, kubectl, tmp_path, words, said):
    answer = provision("cluster", "--lock", image_lock, "--image", IMAGE, *words, "-o", tmp_path / "out")
    assert answer.code == 2
    assert said in answer.err
    assert not kubectl.exists()


def test_torchrun_is_not_started_by_torchrun(provision, tmp_path):
    words = ("cluster", "--torch", "2.8", "-o", tmp_path / "out", "--image", IMAGE, "--")
    answer = provision(*words, "torchrun", "train.py", "--epochs", "3")
    assert answer.code == 2
    assert "hint: write `-- train.py --epochs 3`" in answer.err
    assert not (tmp_path / "out").exists()
    assert provision(*words, "-m", "train").code == 0


def test_a_flag_about_jobs_that_are_not_written_is_refused_and_not_dropped(provision, tmp_path):
    answer = provision("cluster", "--torch", "2.8", "-o", tmp_path / "out", "--gpus", "8")
    assert answer.code == 2
    assert answer.err.startswith(
        "error: --gpus has no effect here\n  because it applies to a workload, and there is none"
    )
    assert not (tmp_path / "out").exists()


TRAIN = ("--image", IMAGE, "--nodes", "2", "--gpus", "8")


def test_a_share_that_is_too_small_ends_with_3_and_nothing_is_written(provision, image_lock, tmp_path):
    words = ("cluster", "--lock", image_lock, *TRAIN, "-o", tmp_path / "out")
    answer = provision(*words, "--tenant", "vision=8", "--", "train.py")
    assert answer.code == 3
    assert "asks for 16 of requests.nvidia.com/gpu with all its Pods" in answer.err
    assert "hint: raise the share of --tenant vision" in answer.err
    assert not (tmp_path / "out").exists()
    assert provision(*words, "--tenant", "vision=16", "--", "train.py").code == 0


def test_what_the_cluster_has_must_be_said(provision, image_lock, tmp_path):
    words = ("cluster", "--lock", image_lock, *TRAIN, "--namespace", "vision", "-o", tmp_path / "out")
    answer = provision(*words, "--env-from", "hub", "--", "train.py")
    assert answer.code == 3
    assert "--existing Namespace/vision" in answer.err
    assert "--existing Secret/hub" in answer.err
    said = ("--existing", "Namespace/vision", "--existing", "Secret/hub")
    assert provision(*words, "--env-from", "hub", *said, "--", "train.py").code == 0


def test_two_requests_do_not_meet_in_one_namespace(provision, image_lock, tmp_path):
    names = []
    for script in ("a/train.py", "b/train.py"):
        words = ("--lock", image_lock, *TRAIN, "-o", tmp_path / "out", "--json", "--", script)
        names.append(provision("cluster", *words).document["result"]["name"])
    assert len(set(names)) == 2
    assert all(name.startswith("train-") for name in names)


def test_json_names_every_file_in_order_and_what_must_run_in_the_cluster(provision, image_lock, tmp_path):
    words = ("--lock", image_lock, *TRAIN, "--tenant", "vision=16", "--kueue", "--monitoring", "prod")
    answer = provision("cluster", *words, "-o", tmp_path / "out", "--json", "--", "train.py")
    result = answer.document["result"]
    assert result["apply"] == ["tenant-vision.yaml", "monitoring.yaml", "queues.yaml", "verify.yaml", "train.yaml"]
    assert result["commands"][0].startswith("helm upgrade --install gpu-operator ")
    assert result["commands"][1:] == [f"kubectl apply -f {path}" for path in result["apply"]]
    assert [row["component"] for row in result["needs"]] == ["jobset", "kueue", "prometheus-operator"]
    assert yaml.safe_load((tmp_path / "out" / "kustomization.yaml").read_text())["resources"] == result["apply"]


def test_files_that_were_edited_are_judged(provision, image_lock, tmp_path):
    out = tmp_path / "out"
    words = ("--lock", image_lock, *TRAIN, "--tenant", "vision=16", "--env-from", "hub", "--existing", "Secret/hub")
    assert provision("cluster", *words, "-o", out, "--", "train.py").code == 0
    answer = provision("cluster", "--judge", out, "--existing", "Secret/hub")
    assert answer.code == 0
    assert "6 files agree" in answer.out
    path = out / "tenant-vision.yaml"
    path.write_text(path.read_text().replace('requests.nvidia.com/gpu: "16"', 'requests.nvidia.com/gpu: "4"'))
    answer = provision("cluster", "--judge", out, "--json")
    assert answer.code == 6
    assert answer.document["ok"] is False
    found = answer.document["result"]["contradictions"]
    assert {(row["rule"], row["path"]) for row in found} == {
        ("reference", "train.yaml"),
        ("reference", "verify.yaml"),
        ("quota", "train.yaml"),
    }


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00", "!!python/object:os.system {}"])
def test_files_that_are_no_manifests_are_named(provision, tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    answer = provision("cluster", "--judge", tmp_path)
    assert answer.code == 2
    assert "x.yaml" in answer.err


def test_a_ray_cluster_scales_and_runs_the_version_of_its_image(provision, tmp_path):
    asked = ("--torch", "2.8", "--gpu", "h100-sxm5-80gb", "--with", "ray")
    assert provision("image", *asked, "-o", tmp_path / "image").code == 0
    lock = tmp_path / "image" / "provision.lock"
    (tmp_path / "policy.toml").write_text(
        'minimum = 1\nmaximum = 4\nmetric = "utilisation"\nidle_after_seconds = 900\n'
    )
    words = (
        "cluster",
        "--lock",
        lock,
        "--image",
        IMAGE,
        "--runner",
        "raycluster",
        "--gpus",
        "8",
        "--monitoring",
        "prod",
    )
    words += ("--monitoring-replicas", "2", "--ray-up", "aws/p5.48xlarge")
    for number, bounds in enumerate((("--autoscale", "0:4"), ("--policy", tmp_path / "policy.toml"))):
        out = tmp_path / str(number)
        answer = provision(*words, *bounds, "-o", out)
        assert answer.code == 0, answer.err
        spec = yaml.safe_load((out / "ray.yaml").read_text())["spec"]
        # Without an index the lock names no version, which is said.
        found = {row["version"] for row in _packages(json.loads(lock.read_text())) if row["name"] == "ray"}
        assert {*filter(None, [spec.get("rayVersion")])} == found
        assert ("no version of Ray is locked" in answer.err) == (not found)
        assert spec["workerGroupSpecs"][0]["maxReplicas"] == 4
        assert spec["workerGroupSpecs"][0]["minReplicas"] == 1 - (number == 0)
        assert spec["autoscalerOptions"].get("idleTimeoutSeconds") == (900 if number else None)
        up = yaml.safe_load((out / "ray-up.yaml").read_text())
        assert up["provider"]["region"] == "REPLACE-WITH-REGION"
        judged = provision("cluster", "--judge", out)
        assert judged.code == 0, judged.out
    answer = provision(*words, "--autoscale", "0:4", "--policy", tmp_path / "policy.toml", "-o", tmp_path / "both")
    assert answer.code == 2
    assert "--policy and --autoscale exclude each other" in answer.err


@pytest.mark.parametrize(
    ("runner", "script"), [("rayjob", ("tune.py",)), ("raycluster", ()), ("rayservice", ("app:model",))]
)
def test_each_ray_runner_is_scaled_by_the_flag(provision, image_lock, tmp_path, runner, script):
    words = ("--lock", image_lock, "--image", IMAGE, "--gpus", "8", "--runner", runner, "--autoscale", "1:4")
    answer = provision("cluster", *words, "-o", tmp_path / "out", "--", *script)
    assert answer.code == 0, answer.err
    spec = yaml.safe_load((tmp_path / "out" / "ray.yaml").read_text())["spec"]
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    (group,) = cluster["workerGroupSpecs"]
    assert (cluster["enableInTreeAutoscaling"], group["minReplicas"], group["maxReplicas"]) == (True, 1, 4)


def _packages(node):
    if isinstance(node, dict):
        if {"name", "version"} <= set(node):
            yield node
        node = list(node.values())
    for item in node if isinstance(node, list) else ():
        yield from _packages(item)


def test_data_comes_from_object_storage_with_keys_that_stand_nowhere(provision, image_lock, tmp_path):
    words = ("cluster", "--lock", image_lock, "--image", IMAGE, "--data", "s3://sets/a", "--store-secret", "keys")
    answer = provision(*words, "-o", tmp_path / "out", "--", "train.py")
    assert answer.code == 3
    assert "--existing Secret/keys" in answer.err
    answer = provision(*words, "--existing", "Secret/keys", "-o", tmp_path / "out", "--", "train.py")
    assert answer.code == 0, answer.err
    assert "store:sets/a" in (tmp_path / "out" / "train.yaml").read_text()
    answer = provision("cluster", "--lock", image_lock, "--image", IMAGE, "--data", "s3://sets/a", "-o", tmp_path / "x")
    assert answer.code == 2
    assert "--data has no effect here" in answer.err
