"""Every pair of frameworks that can be solved: the facts about its wheels pass the proof that its image runs."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from itertools import combinations, product
from typing import Any

import pytest

from provision.assets import asset_dir
from provision.generate.image import _expectations
from provision.matrix.load import Matrix
from provision.resolve.assemble import Solution, assemble
from provision.resolve.request import FRAMEWORKS, Request, parse_request
from provision.resolve.solve import _attempt
from provision.resolve.stack import Stack

_SPEC = importlib.util.spec_from_file_location("verify", asset_dir("images") / "verify.py")
verify = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(verify)
_PROVED = ("torch", "tensorflow")
_PAIRS_MIN = 500


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


def _versions(facts: Matrix, framework: str) -> list[str]:
    rows: dict[str, Any] = {"torch": facts.torch_releases, "tensorflow": facts.tensorflow, "jax": facts.jax}
    return list(dict.fromkeys(row.version for row in rows[framework]))


def _stacks(facts: Matrix, frameworks: tuple[str, ...], wanted: list[tuple[str, ...]]) -> dict[tuple[str, ...], Stack]:
    stacks = {}
    for versions in wanted:
        request: Request = parse_request(dict(zip(frameworks, versions, strict=True)))
        found = _attempt(request, facts)
        if isinstance(found, Solution):
            stacks[versions] = assemble(found, facts)
    return stacks


def _wheels(stack: Stack, facts: Matrix) -> dict[str, types.ModuleType]:
    """Return modules that say of themselves what the facts say of the wheels in a stack."""
    modules = {}
    installed = {
        part: next((version for name, version in stack.packages.items() if name.startswith(f"nvidia-{part}")), None)
        for part in ("cudnn", "nccl")
    }
    for name in stack.frameworks:
        module = modules[name] = types.ModuleType(name)
        module.__version__ = stack.packages[name]
        if name == "torch":
            key = (stack.frameworks[name], stack.variants[name])
            row = next(row for row in facts.torch_builds if (row.torch, row.variant) == key)
            cudnn, nccl = (row.cudnn, row.nccl) if row.is_cuda_bundled else (installed["cudnn"], installed["nccl"])
            native = types.SimpleNamespace(version=lambda cudnn=cudnn: _number(cudnn))
            module.version = types.SimpleNamespace(cuda=row.cuda)
            module.backends = types.SimpleNamespace(cudnn=native)
            numbers = tuple(map(int, nccl.split("."))) if nccl else None
            module.cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda numbers=numbers: numbers))
            flags = " ".join([*(row.sm or ("sm_80",)), *row.ptx])
            module._C = types.SimpleNamespace(_cuda_getArchFlags=lambda flags=flags: flags)
        elif name == "tensorflow":
            release = next(row for row in facts.tensorflow if row.version == stack.frameworks[name])
            said = {
                "is_cuda_build": True,
                "cuda_version": release.cuda,
                "cudnn_version": release.cudnn_major,
                "cuda_compute_capabilities": [*release.sm, *release.ptx],
            }
            module.sysconfig = types.SimpleNamespace(get_build_info=lambda said=said: said)
    return modules


def _number(version: str | None) -> int | None:
    if version is None:
        return None
    major, minor, patch = map(int, [*version.split("."), "0", "0"][:3])
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def _expected(stack: Stack) -> dict[str, Any]:
    """Return the expect.json of a stack, less the packages, which nothing here has installed."""
    return {**json.loads(_expectations(stack)), "packages": {}}


def _failures(stack: Stack, facts: Matrix, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    findings = verify.Findings()
    expected = _expected(stack)
    for name, module in _wheels(stack, facts).items():
        if name in _PROVED:
            monkeypatch.setitem(sys.modules, name, module)
            check = getattr(verify, f"check_{name}")
            findings.attempt(name, lambda check=check: check(findings, expected))
    return [item for item in findings if item["status"] != "pass"]


@pytest.mark.parametrize("pair", list(combinations(FRAMEWORKS, 2)), ids="-".join)
def test_every_pair_of_frameworks_passes_its_own_proof(
    pair: tuple[str, str], facts: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = _stacks(facts, pair, list(product(*(_versions(facts, name) for name in pair))))
    assert len(stacks) >= _PAIRS_MIN
    wrong = {
        versions: failures for versions, stack in stacks.items() if (failures := _failures(stack, facts, monkeypatch))
    }
    assert not wrong, f"{len(wrong)} of {len(stacks)}: {next(iter(wrong.items()))}"


def test_stacks_of_all_three_frameworks_pass_their_own_proof(facts: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, tensorflow, jax = (_versions(facts, name) for name in FRAMEWORKS)
    wanted = [(one, two, three) for one in torch[::4] for two in tensorflow[::5] for three in jax[::5]]
    stacks = _stacks(facts, FRAMEWORKS, wanted)
    assert stacks
    wrong = {
        versions: failures for versions, stack in stacks.items() if (failures := _failures(stack, facts, monkeypatch))
    }
    assert not wrong, f"{len(wrong)} of {len(stacks)}: {next(iter(wrong.items()))}"


def test_a_number_that_is_wrong_for_one_framework_fails(facts: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, stack),) = _stacks(facts, ("torch", "tensorflow"), [("2.7.1", "2.20.0")]).items()
    expected = _expected(stack)
    modules = _wheels(stack, facts)
    for number, build in enumerate(expected["builds"]):
        for part in ("cuda", "cudnn", "sm"):
            wrong = [*expected["builds"]]
            wrong[number] = {**build, part: ["sm_90"] if part == "sm" else "7.0"}
            findings = verify.Findings()
            for name in _PROVED:
                monkeypatch.setitem(sys.modules, name, modules[name])
                getattr(verify, f"check_{name}")(findings, {**expected, "builds": wrong})
            failed = [item["check"] for item in findings if item["status"] != "pass"]
            assert failed == [f"{build['framework']} {'kernels' if part == 'sm' else part}"]
