"""Each rule of the checker finds its own fault in a small sound data set, and no other rule does."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision.matrix.canonical import encode_json, encode_pretty, encode_toml
from provision.matrix.check import RULES, check

DAY = datetime.date(2026, 1, 2)
FACT = {"source": ["guide"], "where": "a table", "status": "stated", "confidence": "high"}


# In two parts, so that no line of the tree names a registry.
_REGISTRY = "files.pythonhosted" + ".example"


def fact(**own: Any) -> dict[str, Any]:
    return {**own, **copy.deepcopy(FACT)}


def instance(**own: Any) -> dict[str, Any]:
    usual = {"provider": "cloud", "region": "here", "gpu": "h1", "gpu_count": 1, "gpu_memory_gb": 80.0}
    prices = {"interconnect": "none", "currency": "USD", "on_demand": 1.0, "on_demand_date": DAY}
    return fact(**{**usual, **prices, **own})


def small_data() -> dict[str, Any]:
    """Two toolkits, two branches, two GPUs and one of everything else, all in order."""
    torch_build = {"torch": "2.1.0", "index": "pypi", "pythons": ["3.11"], "pythons_with_companions": ["3.11"]}
    jax = {"version": "0.4.30", "variant": "cuda12", "released": DAY, "requires_python": ">=3.9", "delivery": "plugin"}
    tensorflow = {"version": "2.16.1", "released": DAY, "pythons": ["3.11"], "is_pythons_complete": True}
    tables: dict[str, dict[str, list[dict[str, Any]]]] = {
        "sources.toml": {"source": [{"id": "guide", "title": "A guide", "kind": "documentation", "retrieved": DAY}]},
        "cuda.toml": {
            "release": [
                fact(version="12.10.0", matching_driver_branch=550, minimum_driver="525.60"),
                fact(version="12.9.0", minimum_driver="525.60"),
                fact(version="11.8.0", minimum_driver="450.80"),
            ],
            "setting": [fact(id="minor_compatibility_floors", entries={"11": "450.80", "12": "525.60"})],
        },
        "drivers.toml": {
            "branch": [
                fact(branch=550, cuda_majors=[11, 12], architectures=["Ampere"], open_modules="optional"),
                fact(branch=470, cuda_majors=[11], architectures=["Ampere"], open_modules="none"),
            ],
            "security_floor": [fact(bulletin="1", title="First", updated=DAY, fixed={"550": "550.1"})],
            "distro_driver": [fact(os="debian12", branch=550, flavour="desktop")],
        },
        "gpus.toml": {
            "gpu": [
                fact(id="h1", name="H1", segment="datacenter", architecture="Hopper", compute_capability="9.0"),
                fact(id="a1", name="A1", segment="datacenter", architecture="Ampere", compute_capability="8.0"),
            ],
            "pci_range": [
                fact(first="2080", last="20ff", architecture="Ampere"),
                fact(first="2300", last="23ff", architecture="Hopper"),
            ],
            "setting": [fact(id="architectures", values=["Hopper", "Ampere"])],
        },
        "cudnn.toml": {"release": [fact(version="9.1.0", cuda=["==12.*"])]},
        "nccl.toml": {"pairing": [fact(cuda="12.9.0", nccl="2.20.5")]},
        "os.toml": {"os": [fact(id="debian12", name="Debian 12", package_format="deb")]},
        "node_packages.toml": {
            "system": [
                fact(
                    id="debian12",
                    components=["contrib"],
                    headers="linux-headers-amd64",
                    headers_pattern="linux-headers-{kernel}",
                    image="linux-image-amd64",
                    build=["dkms"],
                    python=["python3-venv"],
                )
            ],
            "driver": [
                fact(
                    id="debian12-distro-550",
                    os="debian12",
                    method="distro",
                    branch=550,
                    versions={"550.2": "550.2-1", "550.1": "550.1-1"},
                    open={"550.1": "550.1-1"},
                    compute=["nvidia-smi"],
                    full=["nvidia-driver"],
                    open_packages=["nvidia-open-kernel-dkms"],
                    open_module="nvidia-current-open",
                ),
                fact(
                    id="debian12-distro-470",
                    os="debian12",
                    method="distro",
                    branch=470,
                    versions={"470.1": "470.1-1"},
                    compute=["nvidia-smi"],
                    full=["nvidia-driver"],
                ),
            ],
            "known_bad": [fact(id="bad", driver="550.1", flavour="open", symptom="does not build")],
        },
        "python.toml": {"python": [fact(version="3.11", released=DAY)]},
        "ngc.toml": {"release": [fact(release="25.01", cuda="12.9.0", python="3.11", os="debian12", driver="470.1")]},
        "images.toml": {
            "python_image": [
                fact(
                    tag="python:3.11-slim-bookworm",
                    python="3.11",
                    os="debian12",
                    flavour="slim",
                    platforms=["linux/amd64"],
                )
            ],
            "cuda_image": [
                fact(
                    tag="nvidia/cuda:12.9.0-base-x",
                    cuda="12.9.0",
                    flavour="base",
                    os="debian12",
                    has_cudnn=False,
                    lifecycle="supported",
                )
            ],
        },
        "container_toolkit.toml": {"release": [fact(version="1.17.8")]},
        "frameworks/torch.toml": {
            "release": [
                fact(
                    version="2.1.0",
                    released=DAY,
                    requires_python=">=3.8",
                    is_variants_complete=True,
                    variants=["cu129"],
                    is_pythons_complete=True,
                )
            ],
            "build": [fact(**torch_build, variant="cu129", cuda="12.9")],
            "unknown_build": [],
        },
        "frameworks/tensorflow.toml": {
            "release": [fact(**tensorflow, cuda="12.9", cudnn_major="9", sm=["sm_80"], has_cuda_extra=True)]
        },
        "frameworks/jax.toml": {
            "release": [fact(**jax, pythons=["3.11"], is_pythons_complete=True, cuda_floor="12.9")],
        },
        "companions.toml": {"release": [fact(package="vllm", version="0.1.0")]},
        "constraints.toml": {
            "constraint": [
                fact(id="c", package="torch", versions="<2.3", kind="bound", requires={"numpy": "<2"}, symptom="fails")
            ]
        },
        "exceptions.toml": {"exclusion": [fact(id="e", left="torch>=2", right="tensorflow<2", symptom="fails")]},
        "extras.toml": {"extra": [fact(id="x", title="X", requires=["x>=1"])]},
        "prebuilt.toml": {
            "release": [
                fact(
                    package="flash-attn",
                    version="2.6.3",
                    address="https://project.example/{version}.whl",
                    cuda={"12": "cu12"},
                    pythons={"2.1": "3.11"},
                    cxx11_abi=[0],
                    machines=["x86_64"],
                )
            ]
        },
        "system_libraries.toml": {
            "library": [fact(id="libGL.so.1", packages={"debian12": "libgl1"})],
            "need": [fact(id="opencv-python", version="4.10.0", libraries=["libGL.so.1"])],
        },
        "knowledge.toml": {"item": [fact(id="k", topic="driver", text="A rule.")]},
        "checks.toml": {
            "check": [
                fact(
                    id="gpu.temp",
                    level="quick",
                    severity="medium",
                    scope="host",
                    title="cool",
                    remedy="Cool it.",
                    runbook="docs/runbooks.md#gpu-temp",
                    probes=["nvidia-smi-xml"],
                )
            ],
            "limit": [fact(id="temperature", value=85.0, unit="C")],
        },
        "diagnoses.toml": {
            "diagnosis": [
                fact(
                    id="gpu.lost",
                    layer="hardware",
                    severity="critical",
                    title="lost",
                    cause="Power.",
                    fix=["Reseat it."],
                    runbook="docs/runbooks.md#gpu-lost",
                )
            ]
        },
        "performance.toml": {
            "floor": [fact(id="any-h2d", measure="h2d", floor=10.0, unit="GB/s")],
            "nvlink": [fact(gpu="b200", links=18, gb_s_per_link=50.0)],
        },
        "xid.toml": {"xid": [fact(code=79, meaning="lost", severity="fatal")]},
        "audit_rules.toml": {
            "rule": [
                fact(
                    id="B03",
                    module="base_without_digest",
                    severity="warn",
                    title="no digest",
                    why="Tags move.",
                    remedy="Pin it.",
                )
            ]
        },
        "alerts.toml": {
            "recording": [fact(name="gpu:temperature:celsius", title="Heat", expression="max by (gpu) (temperature)")],
            "alert": [
                fact(
                    id="gpu-lost",
                    group="presence",
                    expression="up == 0",
                    severity="critical",
                    summary="lost",
                    runbook=["gpu.temp", "gpu.lost"],
                )
            ],
            "inhibition": [fact(id="lost", sources=["gpu-lost"], targets=["gpu-lost"], equal=["node"])],
            "counter": [fact(name="DCGM_FI_DEV_GPU_TEMP", kind="gauge", title="Heat")],
            "limit": [fact(id="idle", value=30.0, unit="%")],
            "notifier": [
                fact(
                    id="slack",
                    title="Slack",
                    config="slack_configs",
                    field="api_url",
                    is_address=True,
                    hosts=["hooks.example"],
                )
            ],
        },
        "scaling.toml": {
            "gap": [fact(id="aws.idle", engine="aws", says="it does not know")],
            "limit": [fact(id="policy.idle-after", value=60.0, unit="s")],
        },
        "dashboards.toml": {
            "panel": [
                fact(
                    id="fleet.heat",
                    dashboard="fleet",
                    order=1,
                    title="Heat",
                    kind="stat",
                    unit="celsius",
                    expression="max(temperature)",
                    warn="temperature",
                )
            ]
        },
        "cluster.toml": {
            "component": [fact(id="plugin", version="v1", image="registry.example/plugin:v1")],
            "driver_image": [fact(branch=550, version="550.1", systems=["debian12"])],
            "product": [fact(gpu="h1", labels=["H1"])],
            "setting": [fact(id="resource", value="vendor.example/gpu")],
        },
        "spot.toml": {
            "notice": [
                fact(
                    id="cloud-interruption",
                    provider="cloud",
                    kind="interruption",
                    form="moment",
                    host="metadata.example",
                    path="/termination-time",
                    poll_seconds=5,
                )
            ]
        },
        "tuning.toml": {
            "tuning": [
                fact(
                    id="a",
                    kind="env",
                    name="A",
                    value="1",
                    library="torch",
                    versions=">=2",
                    is_default=True,
                    reason="x",
                )
            ],
            "folk": [fact(id="b", names=["B"], verdict="wrong", claim="c", truth="t", instead="i")],
        },
        "refresh.toml": {"setting": [fact(id="redistrib_folder", value="https://vendor.example/redist/")]},
        "models.toml": {
            "model": [
                fact(
                    id="m",
                    name="M",
                    parameters=1000,
                    active_parameters=1000,
                    layers=1,
                    hidden=8,
                    heads=2,
                    kv_heads=1,
                    head_size=4,
                    ffn=16,
                    vocab=100,
                    is_gated=True,
                    is_tied=False,
                )
            ]
        },
        "planning.toml": {
            "limit": [fact(id="price_age_days", value=365.0, unit="d")],
            "utilisation": [fact(id="train", work="train", low=0.3, median=0.4, high=0.5, runs=3)],
            "mig_profile": [
                fact(id="a", gpus=["a1"], profile="1g.5gb", slices=1, of_slices=7, memory_gb=5.0, instances_max=7)
            ],
        },
        "cloud/providers.toml": {"provider": [fact(id="cloud", name="Cloud", currency="USD")]},
        "cloud/instances.toml": {
            "instance": [instance(type="big", gpu_count=2, on_demand=2.0), instance(type="small")]
        },
    }
    documents: dict[str, Any] = {name: {"schema_version": 1, "dated": DAY, **rows} for name, rows in tables.items()}
    documents["wheels/torch.json"] = {
        "schema_version": 1,
        "package": "torch",
        "dated": "2026-01-02",
        "source": ["guide"],
        "releases": [
            {
                "version": "2.1.0",
                "index": "pypi",
                "requires": [["numpy", "<2", 'python_version < "3.12"', ""]],
                "wheels": [{"file": "torch-2.1.0-cp311-cp311-manylinux1_x86_64.whl", "sha256": "0" * 64}],
            }
        ],
    }
    documents["published/torch.json"] = {
        "schema_version": 1,
        "package": "torch",
        "dated": "2026-01-02",
        "source": ["guide"],
        "scope": "0" * 12,
        "requires": [["", "numpy<2"], ["opt"]],
        "files": ["any 3.10 3.11; sdist"],
        "releases": [
            {"versions": ["2.1.0"], "requires_python": ">=3.8", "requires": "0-1", "files": 0},
            {"versions": ["2.0.1", "2.0.0"], "files": 0, "yanked": ["2.0.0"]},
        ],
    }
    documents["shapes/queue.json"] = {
        "schema_version": 1,
        "name": "Queue",
        "api": "queue.example/v1",
        "is_namespaced": True,
        "component": "plugin",
        "version": "v1",
        "source": ["guide"],
        "where": "crds",
        "fields": {"spec!": {"names": {"[]": "string"}, "order": ["First", "Last"], "pod": "PodSpec"}},
    }
    return documents


def write(folder: Path, documents: dict[str, Any]) -> Path:
    for name, document in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encode = encode_pretty if name.startswith("shapes/") else encode_json
        text = encode(document) if name.endswith(".json") else encode_toml(name, document)
        path.write_text(text, encoding="utf-8")
    return folder


def rules_of(folder: Path) -> set[str]:
    return {finding.rule for finding in check(folder)}


def test_small_data_is_sound(tmp_path: Path) -> None:
    assert check(write(tmp_path, small_data())) == ()


Change = Callable[[dict[str, Any]], Any]


def cuda(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["cuda.toml"]["release"]


def gpu(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["gpus.toml"]["gpu"]


def wheel_release(data: dict[str, Any]) -> dict[str, Any]:
    return data["wheels/torch.json"]["releases"][0]


def published(data: dict[str, Any]) -> dict[str, Any]:
    return data["published/torch.json"]


def driver_packages(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["node_packages.toml"]["driver"]


def instances(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["cloud/instances.toml"]["instance"]


def pci_ranges(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["gpus.toml"]["pci_range"]


ONE_FAULT: dict[str, tuple[str, Change]] = {
    "an instance of no provider": ("D008", lambda data: instances(data)[0].update(provider="aaa")),
    "an instance of no GPU": ("D008", lambda data: instances(data)[0].update(gpu="h9")),
    "instances out of order": ("D005", lambda data: instances(data).reverse()),
    "an instance twice": ("D006", lambda data: instances(data).append(instance(type="small"))),
    "a price of nothing": ("D017", lambda data: instances(data)[0].update(on_demand=0.0)),
    "a price below nothing": ("D017", lambda data: instances(data)[0].update(spot=-1.0, spot_date=DAY)),
    "a price without a date": ("D017", lambda data: instances(data)[0].pop("on_demand_date")),
    "a reserved price without a date": ("D017", lambda data: instances(data)[0].update(reserved_3y=0.5)),
    "spot above on demand": ("D017", lambda data: instances(data)[0].update(spot=2.5, spot_date=DAY)),
    "a price of another unit": ("D017", lambda data: instances(data)[0].update(on_demand=100.0)),
    "more than a whole GPU": ("D017", lambda data: instances(data)[1].update(gpu_share=1.5)),
    "memory of another GPU": ("D017", lambda data: gpu(data)[0].update(memory_gb=40)),
    "packages of no system": ("D008", lambda data: driver_packages(data)[1].update(os="debian99")),
    "packages of no branch": (
        "D008",
        lambda data: driver_packages(data)[1].update(branch=460, versions={"460.1": "460.1-1"}),
    ),
    "a node of no system": ("D008", lambda data: data["node_packages.toml"]["system"][0].update(id="debian99")),
    "branches out of order": ("D005", lambda data: driver_packages(data).reverse()),
    "a driver of another branch": ("D016", lambda data: driver_packages(data)[1].update(versions={"550.1": "1"})),
    "a module without user space": ("D016", lambda data: driver_packages(data)[0].update(open={"550.3": "550.3-1"})),
    "a flavour without packages": ("D016", lambda data: driver_packages(data)[0].pop("open_packages")),
    "a flavour without a module": ("D016", lambda data: driver_packages(data)[0].pop("open_module")),
    "packages of no flavour": (
        "D016",
        lambda data: driver_packages(data)[0].update(proprietary_packages=["nvidia-kernel-dkms"]),
    ),
    "a label of no GPU": ("D008", lambda data: data["cluster.toml"]["product"][0].update(gpu="h900")),
    "keys of another release": ("D019", lambda data: data["shapes/queue.json"].update(version="v2")),
    "keys of no component": ("D019", lambda data: data["shapes/queue.json"].update(component="other")),
    "keys in another's file": ("D019", lambda data: data["shapes/queue.json"].update(name="Other")),
    "keys with a head that nobody knows": ("D019", lambda data: data["shapes/queue.json"].update(more=1)),
    "a key of no type": ("D019", lambda data: data["shapes/queue.json"]["fields"]["spec!"].update(x="text")),
    "a key without a value": ("D019", lambda data: data["shapes/queue.json"]["fields"]["spec!"].update(x=[])),
    "an unknown source of keys": ("D003", lambda data: data["shapes/queue.json"]["source"].append("rumour")),
    "a driver image of no branch": ("D008", lambda data: data["cluster.toml"]["driver_image"][0].update(branch=560)),
    "a setting for versions that do not parse": (
        "D015",
        lambda data: data["tuning.toml"]["tuning"][0].update(versions="above 2"),
    ),
    "PCI blocks that overlap": ("D016", lambda data: pci_ranges(data)[0].update(last="2300")),
    "PCI blocks out of order": ("D005", lambda data: pci_ranges(data).reverse()),
    "a GPU in another's PCI block": ("D016", lambda data: gpu(data)[0].update(pci_device_id="20B0")),
    "a GPU in no PCI block": ("D016", lambda data: gpu(data)[0].update(pci_device_id="2100")),
    "a key of the wrong type": ("D002", lambda data: cuda(data)[0].update(gcc_max="12")),
    "a required key missing": ("D002", lambda data: data["os.toml"]["os"][0].pop("package_format")),
    "evidence without a place": (
        "D002",
        lambda data: cuda(data)[0].update(evidence={"minimum_driver": {**FACT, "where": None}}),
    ),
    "an unknown top-level key": ("D002", lambda data: data["cuda.toml"].update(extra=1)),
    "another schema version": ("D002", lambda data: data["cuda.toml"].update(schema_version=2)),
    "a date that is text": ("D002", lambda data: data["cuda.toml"].update(dated="soon")),
    "an unknown source": ("D003", lambda data: cuda(data)[0]["source"].append("rumour")),
    "an unknown source in evidence": (
        "D003",
        lambda data: cuda(data)[0].update(evidence={"minimum_driver": {**FACT, "source": ["rumour"]}}),
    ),
    "an unknown source of releases": ("D003", lambda data: published(data)["source"].append("rumour")),
    "releases in another's file": ("D018", lambda data: published(data).update(package="other")),
    "releases with a key that nobody knows": ("D018", lambda data: published(data).update(more=1, releases=[])),
    "releases that are not in order": ("D018", lambda data: published(data)["releases"].reverse()),
    "a release twice": ("D018", lambda data: published(data)["releases"][1]["versions"].insert(0, "2.1.0")),
    "a requirement that is none": ("D018", lambda data: published(data)["requires"][0].append("numpy ><")),
    "Pythons that are no bound": ("D018", lambda data: published(data)["releases"][0].update(requires_python="3")),
    "needs that are not there": ("D018", lambda data: published(data)["releases"][0].update(requires="0-2")),
    "an extra without the release itself": ("D018", lambda data: published(data)["releases"][0].update(requires="1")),
    "files that nobody can read": ("D018", lambda data: published(data)["files"].__setitem__(0, "linux 3.10")),
    "a withdrawn release that is not there": ("D018", lambda data: published(data)["releases"][1].update(yanked=["1"])),
    "an unknown source of wheels": ("D003", lambda data: data["wheels/torch.json"]["source"].append("rumour")),
    "a source nobody names": (
        "D004",
        lambda data: data["sources.toml"]["source"].append(
            {"id": "idle", "title": "Idle", "kind": "article", "retrieved": DAY}
        ),
    ),
    "versions sorted as text": ("D005", lambda data: cuda(data).insert(0, cuda(data).pop(1))),
    "GPUs out of order": ("D005", lambda data: gpu(data).reverse()),
    "a version twice": ("D006", lambda data: cuda(data).insert(0, copy.deepcopy(cuda(data)[0]))),
    "a GPU id twice": ("D006", lambda data: gpu(data).append(copy.deepcopy(gpu(data)[1]))),
    "a torch build of no release": (
        "D008",
        lambda data: data["frameworks/torch.toml"]["build"][0].update(torch="2.0.0"),
    ),
    "a torch build of no toolkit": ("D008", lambda data: data["frameworks/torch.toml"]["build"][0].update(cuda="12.4")),
    "a TensorFlow of no toolkit": (
        "D008",
        lambda data: data["frameworks/tensorflow.toml"]["release"][0].update(cuda="12.4"),
    ),
    "a JAX of no toolkit": ("D008", lambda data: data["frameworks/jax.toml"]["release"][0].update(cuda_floor="12.4")),
    "an image of no toolkit": ("D008", lambda data: data["images.toml"]["cuda_image"][0].update(cuda="12.4.0")),
    "an image of no system": ("D008", lambda data: data["images.toml"]["cuda_image"][0].update(os="debian99")),
    "a GPU of no branch": ("D008", lambda data: gpu(data)[0].update(last_driver_branch=999)),
    "a GPU of no toolkit": ("D008", lambda data: gpu(data)[0].update(first_cuda="12.4")),
    "an alert without a runbook": ("D008", lambda data: data["alerts.toml"]["alert"][0].update(runbook=["gpu.none"])),
    "an alert that says nothing": ("D008", lambda data: data["alerts.toml"]["alert"][0].pop("runbook")),
    "an alert that says it twice": ("D008", lambda data: data["alerts.toml"]["alert"][0].update(remedy="Reseat it.")),
    "no such alert to silence": (
        "D008",
        lambda data: data["alerts.toml"]["inhibition"][0].update(targets=["node-down"]),
    ),
    "wheels for no torch": (
        "D008",
        lambda data: data["prebuilt.toml"]["release"][0].update(pythons={"2.0": "3.11"}),
    ),
    "a need of no library": (
        "D008",
        lambda data: data["system_libraries.toml"]["need"][0].update(libraries=["libEGL.so.1"]),
    ),
    "a library of no system": (
        "D008",
        lambda data: data["system_libraries.toml"]["library"][0].update(packages={"debian99": "libgl1"}),
    ),
    "a panel of no limit": ("D008", lambda data: data["dashboards.toml"]["panel"][0].update(warn="cold")),
    "a release in the future": ("D009", lambda data: cuda(data)[0].update(released=datetime.date(2026, 1, 3))),
    "a wheel of the future": (
        "D009",
        lambda data: wheel_release(data)["wheels"][0].update(uploaded="2026-01-03T00:00:00Z"),
    ),
    "a derived row without because": ("D010", lambda data: cuda(data)[0].update(status="derived")),
    "a stated row with because": ("D010", lambda data: cuda(data)[0].update(because=["it follows"])),
    "an unheard-of status": ("D010", lambda data: cuda(data)[0].update(status="guessed")),
    "an unheard-of confidence": ("D010", lambda data: cuda(data)[0].update(confidence="total")),
    "no source at all": (
        "D010",
        lambda data: cuda(data)[0].update(evidence={"minimum_driver": {**FACT, "source": []}}),
    ),
    "evidence of an absent key": ("D010", lambda data: cuda(data)[0].update(evidence={"gcc_max": FACT})),
    "a name of two capabilities": ("D011", lambda data: gpu(data)[1].update(aliases=["Tesla h-1"])),
    "a name of filler only": ("D011", lambda data: gpu(data)[1].update(aliases=["NVIDIA Tesla"])),
    "a falling floor": ("D012", lambda data: cuda(data)[0].update(minimum_driver="450.80")),
    "a branch that misses a major": ("D012", lambda data: data["drivers.toml"]["branch"][0].update(cuda_majors=[12])),
    "a short hash": ("D013", lambda data: wheel_release(data)["wheels"][0].update(sha256="0" * 63)),
    "a wheel of another version": ("D013", lambda data: wheel_release(data).update(version="2.1.1")),
    "a name that is not a wheel": ("D013", lambda data: wheel_release(data)["wheels"][0].update(file="torch.zip")),
    "sources beside a wheel": (
        "D013",
        lambda data: wheel_release(data)["wheels"].append({"file": "torch-2.1.0.tar.gz", "sha256": "1" * 64}),
    ),
    "a marker that does not parse": ("D013", lambda data: wheel_release(data)["requires"][0].__setitem__(2, "when")),
    "a specifier that does not parse": ("D013", lambda data: wheel_release(data)["requires"][0].__setitem__(1, "2?")),
    "an address PyPI does not need": (
        "D013",
        lambda data: wheel_release(data)["wheels"][0].update(url="https://vendor.example/torch.whl"),
    ),
    "a package in another's file": ("D013", lambda data: data["wheels/torch.json"].update(package="Torch_2")),
    "a floor that is not a version": (
        "D015",
        lambda data: data["cuda.toml"]["release"][0].update(minimum_driver="banana"),
    ),
    "code of no GPU": ("D015", lambda data: data["frameworks/torch.toml"]["build"][0].update(sm=["sm_x"])),
    "a build the release does not name": (
        "D015",
        lambda data: data["frameworks/torch.toml"]["release"][0].update(variants=["cu118"]),
    ),
    "an address without TLS": (
        "D014",
        lambda data: data["sources.toml"]["source"][0].update(url="http://vendor.example/guide"),
    ),
    "a package registry": (
        "D014",
        lambda data: data["sources.toml"]["source"][0].update(url=f"https://{_REGISTRY}/torch.whl"),
    ),
}


@pytest.mark.parametrize("name", ONE_FAULT)
def test_a_fault_breaks_exactly_its_rule(name: str, tmp_path: Path) -> None:
    rule, change = ONE_FAULT[name]
    data = small_data()
    change(data)
    if name == "a package in another's file":  # its wheels then belong to another package too, by the same rule
        wheel_release(data)["wheels"] = []
    assert rules_of(write(tmp_path, data)) == {rule}


def test_an_absent_file_is_one_finding(tmp_path: Path) -> None:
    (write(tmp_path, small_data()) / "python.toml").unlink()
    assert [(finding.rule, finding.file) for finding in check(tmp_path)] == [("D001", "python.toml")]


@pytest.mark.parametrize("content", [b'version = "1', b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_broken_file_is_one_finding(content: bytes, tmp_path: Path) -> None:
    (write(tmp_path, small_data()) / "extras.toml").write_bytes(content)
    assert [(finding.rule, finding.file) for finding in check(tmp_path)] == [("D001", "extras.toml")]


def test_a_broken_wheel_file_is_one_finding(tmp_path: Path) -> None:
    (write(tmp_path, small_data()) / "wheels" / "torch.json").write_text("[", encoding="utf-8")
    assert [(finding.rule, finding.file) for finding in check(tmp_path)] == [("D001", "wheels/torch.json")]


@pytest.mark.parametrize("folder", ["published", "shapes"])
def test_a_broken_list_is_one_finding(folder: str, tmp_path: Path) -> None:
    place = write(tmp_path, small_data()) / folder
    place.mkdir(exist_ok=True)
    (place / "broken.json").write_text("[", encoding="utf-8")
    assert [(finding.rule, finding.file) for finding in check(tmp_path)] == [("D001", f"{folder}/broken.json")]


@pytest.mark.parametrize(
    "change",
    [lambda text: text + "\n", lambda text: text.replace(" = ", "  = ", 1), lambda text: "# aside\n" + text],
    ids=["a blank line", "a space", "a comment"],
)
def test_other_bytes_for_the_same_facts_break_only_the_canonical_rule(
    change: Callable[[str], str], tmp_path: Path
) -> None:
    path = write(tmp_path, small_data()) / "cuda.toml"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert rules_of(tmp_path) == {"D007"}


def test_json_with_other_spacing_breaks_only_the_canonical_rule(tmp_path: Path) -> None:
    path = write(tmp_path, small_data()) / "wheels" / "torch.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    assert rules_of(tmp_path) == {"D007"}


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    data = small_data()
    cuda(data)[0].update(status="derived", source=["rumour"], gcc_max="twelve")
    cuda(data)[1].update(source=["rumour"], status="derived")
    gpu(data)[0].update(last_driver_branch=999)
    findings = check(write(tmp_path, data))
    assert {finding.rule for finding in findings} == {"D002", "D003", "D008", "D010"}
    assert findings == tuple(sorted(findings))


def test_every_rule_has_a_fault_here_and_says_what_it_means() -> None:
    elsewhere = {"D001", "D007"}
    assert set(RULES) == {rule for rule, _ in ONE_FAULT.values()} | elsewhere
    assert all(function.__doc__ for function in RULES.values())
