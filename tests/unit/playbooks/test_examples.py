"""The example inventories and the plays are what Ansible itself accepts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
EXAMPLES = sorted(path.parent for path in (PLAYBOOKS / "inventory").glob("*/hosts.yml"))
LISTED = sorted((PLAYBOOKS / "inventory").glob("*/gpu.*.yml"))
"""Examples whose hosts an inventory plugin lists."""
PLAYS = sorted(PLAYBOOKS.glob("*.yml"))


def ansible(tool: str, *words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs far from the checkout, with no configuration but its own defaults."""
    beside = Path(sys.executable).with_name(tool)
    program = str(beside) if beside.exists() else shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not installed: `pip install 'gpu-provision[ansible]'`")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    return subprocess.run(
        [program, *words],
        cwd=folder,
        env={**clean, "HOME": str(folder), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_are_plays_and_examples() -> None:
    assert {path.name for path in EXAMPLES} == {"single", "fleet", "slurm", "kubernetes", "airgap", "monitoring"}
    assert {path.name for path in PLAYS} == {
        *("gpu-node.yml", "gpu-node-verify.yml", "gpu-node-upgrade.yml", "gpu-node-rollback.yml"),
        *("gpu-node-remove.yml", "gpu-monitoring.yml", "gpu-monitoring-remove.yml"),
        *("gpu-slurm.yml", "gpu-slurm-remove.yml"),
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_lists_hosts_in_the_group_of_the_play(example: Path, tmp_path: Path) -> None:
    done = ansible("ansible-inventory", "-i", example, "--list", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    inventory = json.loads(done.stdout)
    members = [*inventory["gpu_nodes"].get("hosts", ())]
    members += [host for group in inventory["gpu_nodes"].get("children", ()) for host in inventory[group]["hosts"]]
    assert members
    for host in members:
        assert "ansible_python_interpreter" in inventory["_meta"]["hostvars"][host], host


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_play_accepts_the_example(example: Path, tmp_path: Path) -> None:
    # Only an inventory that names a monitor is one for that play.
    plays = [play for play in PLAYS if not play.name.startswith("gpu-monitoring") or example.name == "monitoring"]
    done = ansible("ansible-playbook", "--syntax-check", "-i", example, *plays, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    assert "DEPRECATION" not in done.stderr, done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_told_of(example: Path) -> None:
    assert f"({example.name}/hosts.yml)" in (PLAYBOOKS / "inventory" / "README.md").read_text(encoding="utf-8")


def test_listed_hosts_become_nodes_and_the_file_is_one_that_its_plugin_reads() -> None:
    assert {path.parent.name for path in LISTED} == {"aws", "azure", "gcp", "netbox"}
    readme = (PLAYBOOKS / "inventory" / "README.md").read_text(encoding="utf-8")
    for path in LISTED:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        plugin = document["plugin"].rpartition(".")[2]
        # amazon.aws, google.cloud and azure.azcollection take the names of files that end in the plugin's.
        assert path.name in (f"gpu.{plugin}.yml", "gpu.netbox.yml"), path
        conditions = {**document.get("groups", {}), **document.get("conditional_groups", {})}
        assert isinstance(conditions["gpu_nodes"], str), path
        variables = yaml.safe_load((path.parent / "group_vars/gpu_nodes/main.yml").read_text(encoding="utf-8"))
        assert "ansible_python_interpreter" in variables
        assert f"({path.relative_to(PLAYBOOKS / 'inventory')})" in readme


def test_addresses_of_examples_belong_to_nobody() -> None:
    for example in (*EXAMPLES, *(path.parent for path in LISTED)):
        for file in example.rglob("*.yml"):
            for line in file.read_text(encoding="utf-8").splitlines():
                assert "://" not in line or ".example" in line, f"{file}: {line}"


def listed(play: Path, folder: Path, *words: str) -> dict[str, set[str]]:
    """The tasks of a play that do something → their tags: neither looking, judging nor the scheduler's words."""
    single = PLAYBOOKS / "inventory" / "single"
    done = ansible("ansible-playbook", "--list-tasks", "-i", single, play, *words, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ {6}(\S.*)\tTAGS: \[(.*)\]$", done.stdout, re.MULTILINE)
    idle = re.compile(r"Validating arguments|gpu_facts :|gpu_preflight :|(Take|Put) the node .*service|Look at")
    return {name: set(tags.split(", ")) for name, tags in rows if not idle.search(name)}


@pytest.mark.parametrize("play", PLAYS, ids=lambda path: path.name)
def test_no_play_passes_by_doing_nothing_when_asked_for_one_part(play: Path, tmp_path: Path) -> None:
    found = listed(play, tmp_path, "--tags", "driver")
    wanted = {
        "gpu-monitoring.yml": "Make the authority and the password",
        "gpu-monitoring-remove.yml": "Take a server away",
        "gpu-node-remove.yml": "Refuse to take a part away",
        "gpu-node-verify.yml": "Prove the node",
        "gpu-slurm.yml": "Prove the cluster",
        "gpu-slurm-remove.yml": "Take Slurm and the health program away",
    }
    assert wanted.get(play.name, "gpu_driver : Put the driver there") in found


def test_first_run_and_upgrade_have_the_documented_tags(tmp_path: Path) -> None:
    text = (PLAYBOOKS / "README.md").read_text(encoding="utf-8")
    part = re.search(r"^## Tags\n\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert part
    tags = set(re.findall(r"`([a-z0-9_]+)`", part[1]))
    assert {"repos", "driver", "verify"} <= tags
    for play in ("gpu-node.yml", "gpu-node-upgrade.yml"):
        found = {tag for row in listed(PLAYBOOKS / play, tmp_path).values() for tag in row}
        assert tags <= found, play


@pytest.mark.parametrize("words", [("--tags", "driver"), ("--skip-tags", "cuda")], ids=" ".join)
def test_removal_of_a_part_is_refused(words: tuple[str, str], tmp_path: Path) -> None:
    # In check mode and at an address that nobody has: were it not refused, nothing would be taken away.
    nowhere = ("--check", "-i", "192.0.2.1,", "-e", "gpu_hosts=all", "-e", "ansible_timeout=1")
    done = ansible("ansible-playbook", *nowhere, PLAYBOOKS / "gpu-node-remove.yml", *words, folder=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Removal knows no tags" in done.stdout
    assert re.search(r"192.0.2.1 +: ok=0 +changed=0 ", done.stdout), done.stdout
