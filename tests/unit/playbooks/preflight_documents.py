"""A lock and a node without problems, for the tests of what the preflight refuses."""

from __future__ import annotations

from typing import Any

import playbook_files

gpu_lock = playbook_files.load_filters("gpu_lock")

Document = dict[str, Any]


def signed(lock: Document) -> Document:
    lock["digest"] = gpu_lock.digest_lock(lock)
    return lock


def make_lock() -> Document:
    driver = {
        **playbook_files.make_driver(),
        "profiles": {"compute": [{"name": "nvidia-smi", "version": "535.261.03-1"}]},
    }
    source = {
        "id": "cuda",
        "uri": "https://mirror.example/debian12/",
        "suite": "/",
        "components": [],
        "key": {"url": "https://mirror.example/key", "sha256": None, "fingerprint": "A" * 40},
    }
    return signed(
        {
            "lock_version": 1,
            "name": "test",
            "stack": {"driver_minimum": "525.60.13", "architectures": ["Ampere"]},
            "modules": {"Volta": "proprietary", "Ampere": "open", "Blackwell": "open"},
            "only_modules": {"Volta": "proprietary", "Blackwell": "open"},
            "known_bad": [
                {
                    "driver": "535.261.03",
                    "flavour": "open",
                    "kernel_first": "6.12.97",
                    "kernel_last": None,
                    "symptom": "does not compile",
                    "reference": "owner/repo#1",
                }
            ],
            "profiles": {
                "debian12": {
                    "os": "debian12",
                    "refusal": None,
                    "method": "distro",
                    "repos": {
                        "components": ["contrib"],
                        "sources": [source],
                        "pins": [{"packages": "src:nvidia-graphics-drivers", "version": "535.261.03-1"}],
                    },
                    "kernel": {"build": ["dkms", "gcc"]},
                    "driver": driver,
                    "cuda": {"packages": {"12.1": [{"name": "cuda-toolkit-12-1", "version": "12.1.1-1"}]}},
                },
                "debian13": {"os": "debian13", "refusal": "its compiler is too new for this toolkit."},
            },
        }
    )


def make_host() -> Document:
    return {
        "os": {"id": "debian12", "name": "Debian 12", "arch": "amd64", "is_root": True},
        "kernel": {"target": "6.1.0-50-amd64"},
        "gpus": [{"device": "20b0"}],
        "module": {"version": None},
        "dkms": [],
        "dpkg": {"audit": "", "half": [], "is_locked": False},
        "packages": {},
        "files": {},
        "foreign": {"runfile": None, "repos": []},
        "secure_boot": False,
        "disk": {"/usr": 9000, "/var": 8000, "/opt": 7000},
        "busy": [],
    }
