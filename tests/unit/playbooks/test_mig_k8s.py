"""MIG configurations, and the labels and settings of a Kubernetes node."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

mig = playbook_files.load_filters("gpu_mig")
k8s = playbook_files.load_filters("gpu_k8s")

ROW: dict[str, Any] = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}


def test_document_has_the_asked_and_the_two_that_fit_every_gpu() -> None:
    document = json.loads(mig.write_document({"small": [ROW]}, "small"))
    assert document["version"] == "v1"
    assert set(document["mig-configs"]) == {"all-disabled", "all-enabled", "small"}
    assert document["mig-configs"]["small"] == [ROW]


class Tagged(int):
    """A number as Ansible hands it over: of a class of its own."""


def test_numbers_from_an_inventory_are_numbers() -> None:
    row = {"devices": [Tagged(0)], "mig-enabled": True, "mig-devices": {"1g.10gb": Tagged(7)}}
    assert json.loads(mig.write_document({"x": [row]}, "x"))["mig-configs"]["x"] == [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}
    ]


@pytest.mark.parametrize("chosen", ["none", "all-disabled", "all-enabled"])
def test_no_configuration_of_ones_own_is_needed(chosen: str) -> None:
    assert mig.write_document({}, chosen)


@pytest.mark.parametrize("profile", ["1g.10gb", "1g.10gb+me", "2c.3g.40gb", "1g.5gb.me"])
def test_names_of_profiles_are_taken(profile: str) -> None:
    assert mig.write_document({"x": [{**ROW, "mig-devices": {profile: 1}}]}, "x")


@pytest.mark.parametrize(
    ("configs", "chosen", "reason"),
    [
        ({}, "small", "gpu_mig_configs has all-disabled, all-enabled"),
        ({"x; reboot": [ROW]}, "none", "not a name"),
        ({"x": []}, "none", "list of rows"),
        ({"x": ["all"]}, "none", "not a row"),
        ({"x": [{**ROW, "devices": "some"}]}, "none", "neither all nor"),
        ({"x": [{**ROW, "devices": [True]}]}, "none", "neither all nor"),
        ({"x": [{**ROW, "mig-enabled": "yes"}]}, "none", "neither true nor false"),
        ({"x": [{**ROW, "mig-devices": {"7": 1}}]}, "none", "not a profile"),
        ({"x": [{**ROW, "mig-devices": {"1g.10gb": 0}}]}, "none", "not a count"),
        ({"x": [{**ROW, "mig-enabled": False}]}, "none", "mig-enabled is false"),
        ({"x": [{**ROW, "mode": 1}]}, "none", "unknown key 'mode'"),
    ],
)
def test_bad_configuration_is_refused_with_the_reason(configs: Any, chosen: str, reason: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        mig.write_document(configs, chosen)
    assert reason in str(caught.value)


def test_services_that_are_stopped_are_no_strangers() -> None:
    busy = [
        {"pid": 1, "command": "nvidia-persiste"},
        {"pid": 2, "command": "nv-hostengine"},
        {"pid": 3, "command": "python3"},
    ]
    assert mig.list_strangers(busy, ["nvidia-persistenced.service", "nvidia-dcgm.service"]) == ["python3 (3)"]
    assert len(mig.list_strangers(busy, [])) == 3


# Kubernetes


def test_partitions_are_due_where_the_file_differs() -> None:
    text = mig.write_document({}, "all-enabled")
    host: dict[str, Any] = {"gpus": [{"device": "20b0"}], "files": {}}
    wanted = {"profile": "all-enabled", "configs": {}, "capable": "auto"}
    assert mig.is_due(host, wanted, ["20b0"])
    assert not mig.is_due(host, wanted, ["2330"])
    assert mig.is_due(host, {**wanted, "capable": True}, [])
    assert not mig.is_due(host, {**wanted, "profile": "none"}, ["20b0"])
    host["files"][mig.FILE] = {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert not mig.is_due(host, wanted, ["20b0"])
    assert mig.list_refusals(wanted) == []
    assert "gpu_mig_configs" in mig.list_refusals({"profile": "small", "configs": {}})[0]


def test_labels_are_sorted_and_unknown_ones_left_out() -> None:
    text = k8s.write_labels({"b": "x", "a": 1, "c": "", "d": None, "e": True})
    assert text.splitlines()[1:] == ["a=1", "b=x", "e=true"]


@pytest.mark.parametrize(
    "labels",
    [{"a b": "x"}, {"a": "x y"}, {"a": "-x"}, {"a": "x" * 64}, {"a": "x\nb=y"}, {"UPPER.example/a": "x"}, {"": "x"}],
)
def test_label_that_kubernetes_refuses_is_refused(labels: dict[str, str]) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_k8s_labels"):
        k8s.write_labels(labels)


@pytest.mark.parametrize("text", ["Ada Lovelace", "all-1g.10gb+me", "x" * 80, "--a--"])
def test_shortened_text_is_a_value(text: str) -> None:
    assert k8s.write_labels({"a": k8s.shorten_value(text)})


def test_settings_are_sorted() -> None:
    assert k8s.write_sysctl({"net.b": 1, "net.a": "2"}).splitlines()[1:] == ["net.a = 2", "net.b = 1"]


@pytest.mark.parametrize("settings", [{"net.a": "1\nkernel.x = 1"}, {"a b": 1}, {"net": 1}, {"net.a": ""}])
def test_bad_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_k8s_sysctl"):
        k8s.write_sysctl(settings)


@pytest.mark.parametrize("module", ["over lay", "", "x\ny", None])
def test_bad_module_is_refused(module: Any) -> None:
    assert k8s.write_modules(["overlay", "br_netfilter"]).splitlines()[1:] == ["overlay", "br_netfilter"]
    with pytest.raises(AnsibleFilterError, match="gpu_k8s_modules"):
        k8s.write_modules(["overlay", module])


def test_everything_that_a_node_of_kubernetes_cannot_be_told_is_listed() -> None:
    found = k8s.list_problems({"labels": {"a b": "c"}, "modules": ["a;b"], "sysctl": {"x": 1}})
    assert [line.partition(":")[0] for line in found] == ["gpu_k8s_labels", "gpu_k8s_modules", "gpu_k8s_sysctl"]
    assert k8s.list_problems({"labels": {"a": "c"}, "modules": ["overlay"]}) == []
