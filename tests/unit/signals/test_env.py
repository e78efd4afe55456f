"""The check of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import json

import machines
import pytest
from asking import MATRIX, ask

from provision.probe.output import Output
from provision.records import replace
from provision.verify.engine import verify_one

H100 = machines.hgx_h100()
UUID = "GPU-75303031-0003"


def visible(value: str) -> dict[str, Output]:
    return machines.change(H100, "environment", "PATH=", f"CUDA_VISIBLE_DEVICES={value}\nPATH=")


def test_nothing_said_passes() -> None:
    assert ask("env.visible", H100).seen == "`CUDA_VISIBLE_DEVICES` is not set"


@pytest.mark.parametrize("value", ["0,1,2,3,4,5,6,7", "7,6,5,4,3,2,1,0"])
def test_all_gpus_in_any_order_pass(value: str) -> None:
    assert ask("env.visible", visible(value)).status == "pass"


@pytest.mark.parametrize("value", ["3", UUID], ids=["number", "uuid"])
def test_some_gpus_pass_where_no_number_is_planned(value: str) -> None:
    assert ask("env.visible", visible(value), gpus=None).status == "pass"


def test_a_part_of_a_gpu_passes_where_one_is_divided_and_is_none_elsewhere() -> None:
    outputs = visible("MIG-75303031-0003")
    assert "is none of 8 GPUs" in ask("env.visible", outputs, gpus=None).seen
    divided = machines.xml_gpu(outputs, 0, "<current_mig>Disabled", "<current_mig>Enabled")
    assert ask("env.visible", divided, gpus=None).status == "pass"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "hides every GPU"),
        ("-1", "hides every GPU"),
        ("0,0", "names a GPU twice"),
        ("0,8", "`8` is none of 8 GPUs, and hides all from place 1 on"),
        ("GPU-ffff", "`GPU-ffff` is none of 8 GPUs, and hides every GPU"),
        ("GPU-", "`GPU-` is none of 8 GPUs"),
        ("0,1", "leaves 2 of 8 GPUs"),
    ],
    ids=["empty", "minus-one", "twice", "no-such-number", "no-such-uuid", "every-uuid", "too-few"],
)
def test_what_hides_gpus_fails_with_the_value(value: str, said: str) -> None:
    outcome = ask("env.visible", visible(value))

    assert outcome.status == "fail"
    assert f"`CUDA_VISIBLE_DEVICES={value}`" in outcome.seen
    assert said in outcome.seen


def test_numbers_cannot_be_judged_without_nvidia_smi() -> None:
    assert ask("env.visible", machines.fail(visible("0"), "nvidia-smi-xml", status="hung")).status == "unknown"


def test_no_gpu_no_question() -> None:
    assert ask("env.visible", machines.cpu_only(), machine="cpu_only").status == "skip"


PLAN = {"packages": {"torch": "2.8.0+cu128", "Typing_Extensions": "4.16.0"}, "python": "3.11"}


def environment(**changes):
    document = {
        "executable": "/opt/env/bin/python",
        "version": "3.11.14",
        "prefix": "/opt/env",
        "packages": {"torch": "2.8.0+cu128", "typing-extensions": "4.16.0", "extra": "1.0"},
        "duplicates": [],
    } | changes
    return machines.replace_output(machines.cpu_only(), "python", text=f"@provision-payload {json.dumps(document)}\n")


def test_environment_of_the_lock_passes() -> None:
    assert ask_packages(environment()).seen == "2 packages as locked, Python 3.11.14"


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        pytest.param({"packages": {"typing-extensions": "4.16.0"}}, "torch is missing", id="missing"),
        pytest.param(
            {"packages": {"torch": "2.8.0+cu128", "typing-extensions": "4.1.0"}},
            "Typing_Extensions is 4.1.0, not 4.16.0",
            id="version",
        ),
        pytest.param(
            {"packages": {"torch": "2.8.0+cpu", "typing-extensions": "4.16.0"}},
            "torch is 2.8.0+cpu, not 2.8.0+cu128",
            id="build",
        ),
        pytest.param({"duplicates": ["torch"]}, "torch is installed twice", id="twice"),
        pytest.param({"version": "3.12.1"}, "Python is 3.12.1, not 3.11", id="python"),
    ],
)
def test_environment_that_differs_fails(changes, seen) -> None:
    outcome = ask_packages(environment(**changes))
    assert outcome.status == "fail"
    assert seen in outcome.seen


def test_without_a_lock_packages_are_not_asked() -> None:
    assert ask_packages(environment(), packages={}).status == "skip"


def test_environment_that_cannot_be_read_is_unknown() -> None:
    assert ask_packages(machines.absent(machines.cpu_only(), "python")).status == "unknown"


def ask_packages(outputs, **plan):
    expected = replace(machines.EXPECTED["cpu_only"], **{**PLAN, **plan})
    (result,) = verify_one(machines.snapshot(outputs), expected, MATRIX, [MATRIX.checks["env.packages"]])
    return result.outcome
