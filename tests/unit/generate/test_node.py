"""``provision_lock.yml``: data and nothing else, the same bytes for the same stack, whatever a text holds."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.generate.node import _emit, lock_digest, node_lock, render_node_lock, render_requirements
from provision.matrix.load import Matrix
from provision.matrix.query import find_gpus
from provision.records import replace
from provision.resolve.node import solve_node
from provision.resolve.node_options import parse_node_options
from provision.resolve.request import parse_request
from provision.resolve.stack import LockedPackage, NodeEnvironment, Stack

ROOT = Path(__file__).resolve().parents[3]
YAMLLINT = Path(sys.executable).with_name("yamllint")


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture(scope="module")
def stack(matrix: Matrix) -> Stack:
    options = parse_node_options(
        {"os": ["debian12", "ubuntu22.04"], "toolkit": ["11.8", "12.1"], "include": ["dcgm", "nccl", "cudnn"]}
    )
    request = parse_request({"driver": "535", "torch": "2.1", "cuda": "12.1", "gpu": "a100"})
    found = solve_node(request, options, matrix)
    assert isinstance(found, Stack), found
    return found


@pytest.fixture(scope="module")
def document(stack: Stack, matrix: Matrix) -> dict[str, Any]:
    return yaml.safe_load(render_node_lock(stack, matrix))["provision_lock"]


def test_locks_with_and_without_a_toolkit_have_names_of_their_own(matrix: Matrix) -> None:
    request = parse_request({"driver": "580", "gpu": "h100"})
    names = []
    for toolkits in ([], ["12.8"], ["12.6", "12.8"]):
        options = parse_node_options({"os": ["ubuntu24.04"], "toolkit": toolkits})
        found = solve_node(request, options, matrix)
        assert isinstance(found, Stack), found
        names.append(node_lock(found, matrix)["name"])
    assert [name.partition("-toolkit")[2] for name in names] == ["", "12.8", "12.6-toolkit12.8"]


def playbook_filters() -> ModuleType:
    path = ROOT / "playbooks" / "filter_plugins" / "gpu_lock.py"
    spec = importlib.util.spec_from_file_location("playbook_filters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requirements_of(package: LockedPackage) -> str:
    return render_requirements(NodeEnvironment(name="x", packages=(package,), imports=(), versions={}))


def test_what_is_written_is_what_is_read(stack: Stack, matrix: Matrix, document: dict[str, Any]) -> None:
    assert document == json.loads(json.dumps(node_lock(stack, matrix)))


def test_keys_of_the_lock(document: dict[str, Any]) -> None:
    assert set(document) == {
        *(
            "lock_version",
            "digest",
            "facts_date",
            "name",
            "request",
            "stack",
            "devices",
            "compute_capabilities",
            "gpus",
            "nvswitch_devices",
            "mig_devices",
            "modules",
        ),
        *("only_modules", "secure_minimum", "container_toolkit_minimum", "known_bad", "nccl_conf_keys", "profiles"),
    }
    assert set(document["profiles"]["debian12"]) == {
        *(
            "os",
            "refusal",
            "architectures",
            "warnings",
            "method",
            "repos",
            "kernel",
            "driver",
            "fabric",
            "imex",
            "cuda",
        ),
        *("cudnn", "nccl", "container_toolkit", "dcgm", "rdma", "mig", "access", "frameworks"),
    }
    assert document["profiles"]["debian12"]["driver"]["branch"] == 535
    assert document["stack"]["architectures"] == ["Ampere"]
    assert document["only_modules"]["Volta"] == "proprietary"
    assert document["only_modules"]["Blackwell"] == "open"
    assert "Ampere" not in document["only_modules"]
    assert {"20b0", "2330"} <= set(document["mig_devices"])
    assert document["profiles"]["debian12"]["access"]["firewall"] == [{"name": "nftables", "version": None}]
    assert "NCCL_DEBUG" in document["nccl_conf_keys"]


def test_the_digest_is_the_playbooks_own(document: dict[str, Any]) -> None:
    assert document["digest"] == lock_digest(document) == playbook_filters().digest_lock(document)
    document = {**document, "facts_date": "2020-01-01"}
    assert document["digest"] != lock_digest(document)


def test_head_carries_the_digest_and_no_time(stack: Stack, matrix: Matrix, document: dict[str, Any]) -> None:
    text = render_node_lock(stack, matrix)
    head = text.split("provision_lock:")[0]
    assert text.startswith("---\n")
    assert document["digest"] in head
    assert not re.search(r"\b\d{2}:\d{2}\b", head)


def gpu_sm(matrix: Matrix, gpus: list[str], toolkits: list[str], cuda: str) -> object:
    options = parse_node_options({"os": ["ubuntu22.04"], "toolkit": toolkits})
    found = solve_node(parse_request({"cuda": cuda, "gpu": gpus}), options, matrix)
    assert isinstance(found, Stack), found
    return node_lock(found, matrix)["stack"].get("gpu_sm", "nothing")


def test_programs_are_compiled_for_the_gpus_that_were_asked_for(matrix: Matrix) -> None:
    assert gpu_sm(matrix, ["a100"], ["12.4"], "12.4") == ["sm_80"]
    assert gpu_sm(matrix, ["h100", "l40s", "a100"], ["12.4"], "12.4") == ["sm_80", "sm_89", "sm_90"]
    assert gpu_sm(matrix, ["rtx 5090", "a100"], ["12.8"], "12.8") == ["sm_80", "sm_120"]


def test_no_gpu_asked_for_is_no_word_about_what_to_compile_for(matrix: Matrix) -> None:
    assert gpu_sm(matrix, [], ["12.4"], "12.4") == "nothing"


def test_a_toolkit_that_does_not_compile_for_each_gpu_leaves_the_choice_to_who_compiles(matrix: Matrix) -> None:
    assert gpu_sm(matrix, ["h100"], ["11.8", "12.4"], "12.4") == ["sm_90"]
    assert gpu_sm(matrix, ["h100"], ["11.7", "12.4"], "12.4") == "nothing"


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    words = ("node", "lock", "--driver", "580", "--torch", "2.14", "--include", "dcgm")
    texts = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.yml"
        environment = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TZ": f"UTC+{seed}"}
        words_here = [sys.executable, "-m", "provision", *words, "-o", str(target)]
        subprocess.run(words_here, check=True, env=environment, cwd=ROOT, capture_output=True)
        texts.append(target.read_bytes())
    assert texts[0] == texts[1]


def test_it_holds_no_template(stack: Stack, matrix: Matrix) -> None:
    text = render_node_lock(stack, matrix)
    assert not re.search(r"\{\{|\{%|\{#", text)


@pytest.mark.parametrize("mark", ["{{", "{%", "{#"])
def test_a_template_in_a_text_is_refused(stack: Stack, matrix: Matrix, mark: str) -> None:
    hostile = replace(stack, request=replace(stack.request, torch=f"{mark} lookup('pipe', 'id') }}}}"))
    with pytest.raises(UsageError, match="takes for a template"):
        render_node_lock(hostile, matrix)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{")),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{")), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_any_data_reads_back_as_it_was(value: Any) -> None:
    text = "\n".join(_emit({"root": value}, "")) + "\n"
    assert yaml.safe_load(text) == {"root": value}


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "null", "~", "1e3", "0o17", "2026-11-21", "- x", "a: b", "# no", "'", '"', "\\", "%TAG", "&a", "*a"),
        *("!!python/object:os.system", "\x85", "\u2028", "\x7f", "\ufeff", "\U0001f600", "\ttab\n", "\u00e9\n\u00e8\n"),
        *("a\nb\n", "a\n b\n\n", " a\nb\n", "a\n---\nb\n", "a\r\nb\r\nc\n"),
    ],
)
def test_hostile_texts_stay_texts(text: str) -> None:
    lines = "\n".join(_emit({"root": [text, {"k": text}]}, "")) + "\n"
    assert yaml.safe_load(lines) == {"root": [text, {"k": text}]}


def test_requirements_are_sorted_and_hashed(document: dict[str, Any]) -> None:
    (environment,) = document["profiles"]["debian12"]["frameworks"]["environments"]
    lines = environment["requirements"].splitlines()
    names = [re.split(r"==| @ ", line)[0] for line in lines[::2]]
    assert names == sorted(names)
    assert all(line.endswith(" \\") for line in lines[::2])
    assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", line) for line in lines[1::2])
    assert environment["versions"] == {"torch": "2.1.2"}
    assert environment["imports"] == ["torch"]


def test_a_wheel_off_pypi_is_named_by_address() -> None:
    url = "https://wheels.example/whl/torch-2.1.2%2Bcu118-cp311-cp311-linux_x86_64.whl"
    package = LockedPackage(name="torch", version="2.1.2+cu118", index="pytorch", url=url, sha256="a" * 64, why="x")
    assert requirements_of(package) == f"torch @ {url} \\\n    --hash=sha256:{'a' * 64}\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "torch --index-url https://wheels.example"},
        {"name": "-r/etc/passwd"},
        {"version": "1 ; os_name"},
        {"version": "1\n--pre"},
        {"sha256": None},
        {"sha256": "A" * 64},
        {"url": "http://wheels.example/x.whl"},
        {"url": "https://wheels.example/x.whl --pre"},
        {"url": "file:///etc/passwd"},
    ],
)
def test_a_value_that_no_requirement_has_is_refused(changes: dict[str, Any]) -> None:
    package = LockedPackage(name="torch", version="2.1.2", index="pypi", sha256="a" * 64, why="x")
    with pytest.raises(UsageError):
        requirements_of(replace(package, **changes))


def test_pip_takes_the_requirements(document: dict[str, Any], tmp_path: Path) -> None:
    (environment,) = document["profiles"]["debian12"]["frameworks"]["environments"]
    path = tmp_path / "requirements.txt"
    path.write_text(environment["requirements"], encoding="utf-8")
    words = ("pip", "install", "--dry-run", "--no-deps", "--no-index", "--require-hashes", "-r", str(path))
    found = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    # Without an index it gets as far as looking for a wheel: every line was read, and none lacks a hash.
    missing = re.search(r"No matching distribution found for (\S+)", found.stderr)
    assert missing is not None, found.stderr
    assert f"{missing[1]} \\\n" in environment["requirements"]


def test_a_refused_system_has_its_reason_and_nothing_else(matrix: Matrix) -> None:
    found = solve_node(parse_request({"driver": "535", "torch": "2.6"}), parse_node_options({}), matrix)
    profile = node_lock(found, matrix)["profiles"]["debian13"]
    assert set(profile) == {"os", "refusal"}
    assert "535" in profile["refusal"]


def test_a_stack_without_nodes_is_refused(stack: Stack, matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="no part for nodes"):
        render_node_lock(replace(stack, node=None), matrix)


@pytest.mark.skipif(not YAMLLINT.exists(), reason="yamllint is not installed beside this Python")
def test_yamllint_finds_nothing(stack: Stack, matrix: Matrix, tmp_path: Path) -> None:
    path = tmp_path / "provision_lock.yml"
    path.write_text(render_node_lock(stack, matrix), encoding="utf-8")
    words = [str(YAMLLINT), "-s", "-c", str(ROOT / ".yamllint"), str(path)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_gpus_are_told_by_number_name_and_capability_and_can_be_asked_for(
    document: dict[str, Any], matrix: Matrix
) -> None:
    assert [row["device"] for row in document["gpus"]] == sorted(row["device"] for row in document["gpus"])
    capabilities = {item for items in document["compute_capabilities"].values() for item in items}
    for row in document["gpus"]:
        assert re.fullmatch("[0-9a-f]{4}", row["device"])
        assert {gpu.compute_capability for gpu in find_gpus(matrix, row["id"])} == {row["compute_capability"]}
        assert row["compute_capability"] in capabilities


def test_every_environment_says_what_its_builds_are_for(document: dict[str, Any]) -> None:
    for profile in document["profiles"].values():
        (environment,) = profile["frameworks"]["environments"]
        (build,) = environment["builds"]
        assert (build["framework"], build["version"]) == ("torch", environment["versions"]["torch"])
        assert "8.0" in build["runs_on"]
        assert build["code"]
