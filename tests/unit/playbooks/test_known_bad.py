"""Which kernels a row of the facts excludes: the preflight and the guard on the node say the same of each."""

from __future__ import annotations

import shutil
from pathlib import Path

import playbook_files
import pytest

guard, preflight = (
    playbook_files.load_script(Path(__file__).with_name(f"test_{name}.py")) for name in ("kernel_guard", "host_filters")
)
kernel = playbook_files.load_filters("gpu_kernel", "gpu_kernel")

DRIVER = "535.261.03"
ROWS = [
    # package's version of the kernel, first, last, flavour of the row, whether it is excluded
    ("6.12.96-1", "6.12.97", None, "open", False),
    ("6.12.97-1", "6.12.97", None, "open", True),
    ("6.12.107-1", "6.12.97", None, "open", True),
    ("7.1.2-1", "6.12.97", None, "open", True),
    ("6.12.97-1", None, "6.12.97", "open", True),
    ("6.12.98-1", None, "6.12.97", "open", False),
    ("6.2.9-1", None, "6.2", "open", True),
    ("6.20.1-1", None, "6.2", "open", False),
    ("6.1.99-1", "6.2", "6.2", "open", False),
    ("6.2.0-1", "6.2", "6.2", "open", True),
    ("6.3.0-1", "6.2", "6.2", "open", False),
    ("6.12.97+deb13.1-1", "6.12.97", "6.12.97", "open", True),
    ("6.12.97-1~bpo12+1", "6.12.97", "6.12.97", "open", True),
    ("6.12.97-1", "6.12.97", None, None, True),
    ("6.12.97-1", "6.12.97", None, "proprietary", False),
]


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="the guard compares versions with dpkg, which is absent")
@pytest.mark.parametrize(("version", "first", "last", "flavour", "is_bad"), ROWS)
def test_preflight_and_guard_exclude_the_same_kernels(
    tmp_path: Path, version: str, first: str | None, last: str | None, flavour: str | None, is_bad: bool
) -> None:
    lock = preflight.make_lock()
    bad = {"driver": DRIVER, "kernel_first": first, "kernel_last": last, "symptom": "no", "reference": "a/b#1"}
    lock["known_bad"] = [{**bad, "flavour": flavour}]

    release = "6-cloud-amd64"
    host = preflight.with_host(kernel__target=release)
    host["packages"][f"linux-image-{release}"] = {"version": version, "status": "ii"}
    assert any("a/b#1" in problem for problem in preflight.judge(host, preflight.signed(lock))["problems"]) is is_bad

    node = guard.Node(tmp_path)
    modules = {"flavours": {"open": {"dkms_name": "nvidia-current-open", "dkms_package": "nvidia-open-kernel-dkms"}}}
    node.configure(kernel.render_guard("hold", "", modules, lock["known_bad"]))
    node.builds(guard.row(guard.OLD, version=DRIVER))
    done = node.run("apt", text=guard.plan(guard.incoming(release, version)))
    assert (done.returncode == 1, "a/b#1" in done.stderr) == (is_bad, is_bad)
