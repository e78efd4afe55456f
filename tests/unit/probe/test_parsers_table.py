"""Recorded output of any tool in the table is read by its parser and becomes JSON."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import machines
import pytest

from provision.errors import UsageError
from provision.probe.output import Unreadable
from provision.probe.parsers import TOOLS, parse_recorded, to_json
from provision.records import NOTHING, record

PROBES = {
    "cdi": "cdi",
    "clock": "clock",
    "command-line": "command-line",
    "containerd": "containerd-config",
    "dcgmi": "dcgmi-diag",
    "device-nodes": "device-nodes",
    "df": "file-systems",
    "dkms": "dkms",
    "dmesg": "kernel-log",
    "docker-daemon": "docker-config",
    "docker-info": "docker-info",
    "driver-gpus": "driver-gpus",
    "driver-params": "driver-params",
    "driver-version": "driver-version",
    "fabric-manager-log": "fabric-manager",
    "firewall": "firewall",
    "framework": "torch",
    "gpu-work": "torch-work",
    "lspci": "lspci",
    "modules": "modules",
    "nccl-tests": "nccl-tests",
    "nvbandwidth": "nvbandwidth",
    "nvcc": "nvcc",
    "nvidia-smi": "nvidia-smi-xml",
    "nvidia-smi-topo": "nvidia-smi-topology",
    "nvidia-smi-xml": "nvidia-smi-xml",
    "nvlink": "nvlink-status",
    "nvlink-errors": "nvlink-errors",
    "os-release": "os-release",
    "prometheus": "exporter",
    "python": "python",
    "secure-boot": "secure-boot",
    "systemctl": "units",
    "toolkit-config": "toolkit-config",
    "uname": "uname",
}
"""Tool → the probe that prints the same."""

TEXTS = {
    "dpkg": "ii  nvidia-driver-535  535.104.05-0ubuntu1  amd64  NVIDIA driver metapackage\n",
    "ibstat": "CA 'mlx5_0'\n\tFirmware version: 28.36.1010\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n",
    "ldconfig": "1 libs found in cache `/etc/ld.so.cache'\n\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n",
    "nvidia-smi-text": """\

==============NVSMI LOG==============

Timestamp                                 : Sat Nov 21 12:00:00 2026
Driver Version                            : 535.104.05
CUDA Version                              : 12.2

Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU UUID                              : GPU-00000000-0000-0000-0000-000000000001
    Minor Number                          : 0
    Processes                             : None
""",
    "dcgmi-health": (
        '{"body": {"Overall Health": {"value": "Warning"}, "GPU": {"children": {"0": {"children": '
        '{"Errors": {"children": {"PCIe system": {"value": "Warning"}}}}}}}}}'
    ),
    "rpm": "nvidia-driver-535.104.05-1.el9.x86_64\n",
}


def text_of(tool: str) -> str:
    return TEXTS[tool] if tool in TEXTS else machines.hgx_h100()[PROBES[tool]].text


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_reads_its_own_output_into_json(tool: str) -> None:
    value = parse_recorded(tool, text_of(tool))

    assert value
    assert json.loads(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_refuses_what_is_binary(tool: str) -> None:
    with pytest.raises(Unreadable):
        parse_recorded(tool, "\x7fELF\0\1\2\3")


@pytest.mark.parametrize("tool", TOOLS)
def test_every_parser_of_the_table_exists_and_says_what_it_reads(tool: str) -> None:
    module, _, function = TOOLS[tool].parser.partition(":")
    parsers = import_module(f"provision.probe.parse.{module}")

    assert callable(getattr(parsers, function))
    assert TOOLS[tool].reads


def test_tools_are_listed_by_name() -> None:
    assert list(TOOLS) == sorted(TOOLS)


@pytest.mark.parametrize(
    ("tool", "path", "expected"),
    [
        ("driver-version", ("version",), "580.105.08"),
        ("dpkg", (0, "name"), "nvidia-driver-535"),
        ("rpm", (0, "version"), "535.104.05-1.el9"),
        ("ibstat", (0, "rate_gbit"), 400.0),
        ("ldconfig", (0, "soname"), "libcuda.so.1"),
        ("nvidia-smi-text", ("gpus", 0, "name"), "NVIDIA H100 80GB HBM3"),
        ("nvidia-smi-xml", ("attached",), 8),
        ("systemctl", ("docker", "active"), "active"),
        ("cdi", (0, "kind"), "nvidia.com/gpu"),
        ("firewall", ("local_ports",), [32768, 60999]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_stand_where_the_records_have_them(tool: str, path: tuple[str | int, ...], expected: object) -> None:
    value: Any = parse_recorded(tool, text_of(tool))
    for key in path:
        value = value[key]

    assert value == expected


def test_links_between_devices_become_rows() -> None:
    value: Any = parse_recorded("nvidia-smi-topo", text_of("nvidia-smi-topo"))

    assert {"from": "GPU0", "to": "GPU1", "value": "NV18"} in value["links"]


def test_a_field_has_one_form_whether_it_holds_something_or_not() -> None:
    document = '{"tool": "torch-work", "gpus": [{"gpu": 0}], "pairs": PAIRS}'
    mark = "@provision-payload "

    full: Any = parse_recorded("gpu-work", mark + document.replace("PAIRS", "[[0, 1, 2.5]]"))
    empty: Any = parse_recorded("gpu-work", mark + document.replace("PAIRS", "[]"))

    assert full["pairs"] == [{"from": 0, "to": 1, "value": 2.5}]
    assert empty["pairs"] == []
    assert empty["gpus"][0]["tests"] == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b", "a"}, ["a", "b"]),
        ((1, (2, None)), [1, [2, None]]),
        ({1: {"a": (True,)}}, {"1": {"a": [True]}}),
        (float("nan"), None),
        (float("-inf"), None),
        (2.5, 2.5),
        (NOTHING, {}),
    ],
    ids=["set", "tuple", "mapping", "nan", "infinity", "number", "nothing"],
)
def test_plain_data(value: object, expected: object) -> None:
    assert to_json(value) == expected


def test_records_become_objects_in_the_order_of_their_fields() -> None:
    @record
    class Inner:
        z: float
        a: str | None = None

    @record
    class Outer:
        inner: tuple[Inner, ...]

    assert json.dumps(to_json(Outer(inner=(Inner(z=float("inf")),)))) == '{"inner": [{"z": null, "a": null}]}'


def test_unknown_tool_names_the_nearest_and_all_others() -> None:
    with pytest.raises(UsageError, match="no parser is called `nvidia-smi-xlm`") as caught:
        parse_recorded("nvidia-smi-xlm", "")

    assert caught.value.hints[0] == "did you mean `nvidia-smi-xml`?"
    assert "nvlink-errors" in caught.value.hints[1]


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(UsageError) as caught:
        parse_recorded("zzzz", "")

    assert len(caught.value.hints) == 1
