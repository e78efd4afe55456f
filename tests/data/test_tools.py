"""What the scripts that fetch facts make of the formats they read."""

from __future__ import annotations

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import import_locked_wheels  # noqa: E402

LOCK = """
[[package]]
name = "torch"
version = "2.9.0+cu129"
dependencies = [{{ name = "nvidia-cudnn-cu12" }}, {{ name = "nvidia-nccl-cu12" }}]

[[package.wheels]]
url = "https://mirror.example/torch-2.9.0%2Bcu129-cp310-cp310-manylinux_2_28_x86_64.whl"
hash = "sha256:{digest}"

[[package]]
name = "nvidia-cudnn-cu12"
version = "{cudnn}"

[[package]]
name = "nvidia-nccl-cu12"
version = "2.27.5"

[manifest]
overrides = [{forced}]
"""


def test_a_version_that_a_project_forces_is_no_pin_of_torch() -> None:
    findings = import_locked_wheels.Findings()
    forced = LOCK.format(
        digest="a" * 64, cudnn="9.19.0.56", forced='{ name = "nvidia-cudnn-cu12", specifier = ">=9.15" }'
    )
    import_locked_wheels.collect("a/forces", forced, findings)
    key = ("torch", "2.9.0+cu129")
    assert {name: bound for name, bound, _, _ in findings.pins[key]} == {
        "nvidia-cudnn-cu12": "",
        "nvidia-nccl-cu12": "==2.27.5",
    }
    import_locked_wheels.collect("b/free", LOCK.format(digest="a" * 64, cudnn="9.10.2.21", forced=""), findings)
    assert {name: bound for name, bound, _, _ in findings.pins[key]} == {
        "nvidia-cudnn-cu12": "==9.10.2.21",
        "nvidia-nccl-cu12": "==2.27.5",
    }
