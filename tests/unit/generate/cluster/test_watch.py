"""The plugin that node-problem-detector runs on a node, with a stand-in for dmesg and files for the buses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provision.generate.cluster.health import render_check
from provision.matrix.load import Matrix

MATRIX = Matrix()
XID_79 = "[ 4242.500000] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."
XID_13 = "[ 4243.500000] NVRM: Xid (PCI:0000:01:00): 13, pid=1, Graphics exception"


@pytest.mark.parametrize(
    ("log", "offered", "drivers", "code", "said"),
    [
        ("[    1.000000] Linux", 2, "nn", 0, "2 GPUs"),
        (XID_13, 2, "nn", 0, "2 GPUs"),
        (
            f"{XID_79}\n{XID_13}",
            2,
            "nn",
            1,
            "The driver lost its connection to a GPU (Xid 79), 4242.500000 s after the start",
        ),
        (XID_79.replace("79", "791"), 2, "nn", 0, "2 GPUs"),
        (f"{XID_79}\n{XID_79.replace('4242', '9000')}", 2, "nn", 1, "9000.500000 s after the start"),
        ("", 1, "nn", 1, "1 of 2"),
        # One that the driver could not take.
        ("", 1, "n-", 1, "1 of 2"),
        # One that a virtual machine has.
        ("", 1, "nv", 0, "1 GPUs"),
        ("", None, "--", 2, "the driver is not loaded"),
        ("", None, "vv", 0, "0 GPUs"),
        (XID_79, None, "--", 1, "Xid 79"),
        (None, 2, "nn", 2, "cannot be read"),
    ],
)
def test_status_and_message_are_what_a_plugin_says(
    tmp_path: Path, log: str | None, offered: int | None, drivers: str, code: int, said: str
) -> None:
    script = tmp_path / "check.sh"
    script.write_text(render_check(MATRIX), encoding="utf-8")
    (tmp_path / "log").write_text(f"{log}\n", encoding="utf-8")
    (tmp_path / "dmesg").write_text("#!/bin/sh\n" + ("exit 1\n" if log is None else f"cat {tmp_path}/log\n"))
    (tmp_path / "dmesg").chmod(0o755)
    for index, vendor in enumerate(("0x10de", "0x10de", "0x8086")):
        device = tmp_path / "pci" / str(index)
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text("0x030200\n")
        name = {"n": "nvidia", "v": "vfio-pci"}.get(f"{drivers}-"[index])
        if name:
            (device / "driver").symlink_to(f"../../bus/pci/drivers/{name}")
    if offered is not None:
        (tmp_path / "driver").mkdir()
        (tmp_path / "driver" / "version").touch()
    for index in range(offered or 0):
        (tmp_path / "driver" / "gpus" / str(index)).mkdir(parents=True)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PCI": f"{tmp_path}/pci", "DRIVER": f"{tmp_path}/driver"}
    done = subprocess.run(["sh", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout
    # node-problem-detector cuts what is longer.
    assert len(done.stdout) <= 200
