"""What users run is run here: ``pytest --pyargs provision.verify.testinfra`` over the same hosts."""

import os
import subprocess
import sys

import nodes as machines


def test_the_shipped_layer_finds_nothing_that_a_node_without_gpu_must_not_have(gpu_node, tmp_path):
    inventory = machines.ephemeral() / "inventory"
    report = tmp_path / "layer.xml"
    words = [sys.executable, "-m", "pytest", "--pyargs", "provision.verify.testinfra", "-q", "-p", "no:cacheprovider"]
    words += [
        "-p",
        "provision.verify.testinfra.options",
        "--provision-gpus=0",
        f"--junitxml={report}",
        "--rootdir",
        str(tmp_path),
    ]
    lock = machines.ephemeral() / "provision.lock"
    words += [f"--provision-lock={lock}"] if lock.exists() else []
    words += [f"--hosts=ansible://{gpu_node.name}", f"--ansible-inventory={inventory}", "--import-mode=importlib"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
    # 5, no test found, is as red as a failure or a fixture that broke.
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout, done.stdout[-4000:]
