"""What the collector tells of RDMA ports: which of them manage the switches of a GPU board."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import provision.probe
from provision.probe.parse.fabric_network import parse_infiniband_sysfs

COLLECTOR = (Path(provision.probe.__file__).parent / "collector.sh").read_text(encoding="utf-8")


def function(name: str) -> str:
    found = re.search(rf"(?ms)^{name}\(\) \{{.*?^\}}$", COLLECTOR)
    assert found, name
    return found[0]


def ask(tree: Path) -> str:
    """Return what the collector's own function says of a stand-in for sysfs."""
    script = f"set -eu\n{function('line_of')}\n{function('probe_infiniband')}\nprobe_infiniband\n"
    script = script.replace("/sys/class", str(tree / "class"))
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout


def add_port(tree: Path, device: str, *, layer: str = "InfiniBand", product: bytes | None = None) -> None:
    port = tree / "class" / "infiniband" / device / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text(f"{layer}\n")
    (port.parent.parent / "device").mkdir()
    if product is not None:
        (port.parent.parent / "device" / "vpd").write_bytes(product)


@pytest.mark.parametrize(
    ("layer", "product", "role"),
    [
        ("InfiniBand", b"\x82\x10PN\x00SMDL=SW_MNG\x00\xff", True),
        ("InfiniBand", b"\x82\x10PN\x00MCX75310\x00\xff", False),
        ("InfiniBand", None, None),
        ("Ethernet", b"\x82\x10PN\x00MCX75310\x00\xff", None),
    ],
    ids=["manages-switches", "network", "unread", "ethernet"],
)
def test_product_data_tells_what_a_port_is_for(tmp_path: Path, layer: str, product: bytes | None, role: object) -> None:
    add_port(tmp_path, "mlx5_0", layer=layer, product=product)
    add_port(tmp_path, "mlx5_1")
    first, second = parse_infiniband_sysfs(ask(tmp_path))
    assert first.is_switch_management is role
    assert second.is_switch_management is None
    assert (first.state, second.state) == ("ACTIVE", "ACTIVE")


def test_word_that_is_no_role_is_not_known() -> None:
    (port,) = parse_infiniband_sysfs("mlx5_0 1 state 4: ACTIVE\nmlx5_0 1 role something\n")
    assert port.is_switch_management is None
