"""The collection that is assembled from the playbooks: built, installed from its tarball, and used by full names."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = ROOT / "playbooks"

_PLAY = """
- name: Look at this machine by full names alone
  hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: gpu.provision.gpu_facts
  tasks:
    - name: Use a filter that takes from another
      ansible.builtin.debug:
        msg: "{{ ['first', 'second'] | gpu.provision.gpu_numbered }}"
    - name: Judge a lock that is none
      ansible.builtin.debug:
        msg: "{{ 'provision_lock' | gpu.provision.gpu_raw | gpu.provision.gpu_lock_problems }}"
"""


def load_tool() -> Any:
    """Return tools/collection.py as a module."""
    spec = importlib.util.spec_from_file_location("collection_tool", ROOT / "tools" / "collection.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


def run(program: str, *words: str | Path, folder: Path, collections: Path) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs with the collections of one folder and nothing of the checkout."""
    beside = Path(sys.executable).with_name(program)
    if not beside.exists():
        pytest.skip(f"{program} is not installed: `pip install 'gpu-provision[ansible]'`")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    clean |= {"HOME": str(folder), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"}
    clean |= {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0"}
    return subprocess.run(
        [str(beside), *map(str, words)], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the collection was assembled."""
    target = tmp_path_factory.mktemp("tree") / "ansible_collections" / "gpu" / "provision"
    TOOL.assemble(target)
    return target


@pytest.fixture(scope="module")
def installed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections into which the tarball was installed."""
    folder = tmp_path_factory.mktemp("installed")
    done = run(
        "ansible-galaxy", "collection", "build", "--output-path", folder, tree, folder=folder, collections=folder
    )
    assert done.returncode == 0, done.stderr
    tarball = next(folder.glob("gpu-provision-*.tar.gz"))
    words = ("collection", "install", "--offline", "-p", folder / "collections", tarball)
    done = run("ansible-galaxy", *words, folder=folder, collections=folder)
    assert done.returncode == 0, done.stderr
    return folder / "collections"


def texts(tree: Path) -> list[Path]:
    places = ("roles", "playbooks")
    found = [path for place in places for path in (tree / place).rglob("*") if path.suffix in (".yml", ".j2")]
    return [path for path in found if "group_vars" not in path.parts]


def filter_names() -> set[str]:
    sources = [*PLAYBOOKS.glob("filter_plugins/*.py"), *PLAYBOOKS.glob("roles/*/filter_plugins/*.py")]
    names: set[str] = set()
    for path in sources:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        if hasattr(module, "FilterModule"):
            names |= set(module.FilterModule().filters())
    return names


def test_every_filter_role_and_play_has_its_full_name(tree: Path) -> None:
    names = "|".join(sorted(filter_names(), key=len, reverse=True))
    roles = {path.name for path in (PLAYBOOKS / "roles").iterdir()}
    for path in texts(tree):
        text = path.read_text(encoding="utf-8")
        short = re.findall(rf"(?<!: )\|\s*(?:{names})\b(?!:)|(?:map|select|reject)\(\s*['\"](?:{names})['\"]", text)
        assert not short, f"{path}: {short}"
        assert not re.search(r"\bgpu-(node|monitoring|slurm)[a-z-]*\.yml", text), path
        for name in re.findall(r"^\s*(?:- )?(?:role|name): (gpu_\w+)$", text, re.MULTILINE):
            assert name not in roles, f"{path}: {name}"


def test_variables_that_are_called_like_a_filter_stay(tree: Path) -> None:
    text = (tree / "roles" / "gpu_driver" / "tasks" / "present.yml").read_text(encoding="utf-8")
    assert "    gpu_driver_plan: >-" in text
    assert "| gpu.provision.gpu_driver_plan(gpu_facts_profile" in text
    assert "gpu_driver_plan.problems" in text


def test_no_plugin_loads_another_by_its_path(tree: Path) -> None:
    plugins = sorted((tree / "plugins").rglob("*.py"))
    assert plugins
    for path in plugins:
        text = path.read_text(encoding="utf-8")
        compile(text, str(path), "exec")
        for word in ("_neighbour", "spec_from_file_location", "SourceFileLoader", "importlib"):
            assert word not in text, f"{path}: {word}"


def test_collection_has_the_version_of_the_program_and_what_ansible_it_needs(tree: Path) -> None:
    from provision import __version__

    galaxy = yaml.safe_load((tree / "galaxy.yml").read_text(encoding="utf-8"))
    assert (galaxy["namespace"], galaxy["name"], galaxy["version"]) == ("gpu", "provision", __version__)
    runtime = yaml.safe_load((tree / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    least = {
        yaml.safe_load(path.read_text(encoding="utf-8"))["galaxy_info"]["min_ansible_version"]
        for path in PLAYBOOKS.glob("roles/*/meta/main.yml")
    }
    assert {f">={version}.0" for version in least} == {runtime["requires_ansible"]}


def test_a_play_uses_roles_and_filters_of_the_installed_tarball(installed: Path, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(_PLAY, encoding="utf-8")
    interpreter = f"ansible_python_interpreter={sys.executable}"
    done = run("ansible-playbook", "-i", "localhost,", play, "-e", interpreter, folder=tmp_path, collections=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu.provision.gpu_facts : Ask the node what it is" in done.stdout
    assert "1. first" in done.stdout
    assert "There is no `provision_lock`" in done.stdout or "provision_lock" in done.stdout


def test_every_play_can_be_named_from_anywhere(installed: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": {"here": host}}}), encoding="utf-8")
    plays = [f"gpu.provision.{path.stem.replace('-', '_')}" for path in sorted(PLAYBOOKS.glob("gpu-*.yml"))]
    assert "gpu.provision.gpu_node" in plays
    done = run("ansible-playbook", "--syntax-check", "-i", inventory, *plays, folder=tmp_path, collections=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    # Every file that a play includes is found, and every filter that a task names is known, only when they are used.
    done = run(
        "ansible-playbook", "-i", inventory, plays[plays.index("gpu.provision.gpu_node")], "--check", "-e",
        json.dumps({"gpu_become": False, "provision_lock": {}}), folder=tmp_path, collections=installed,
    )  # fmt: skip
    assert done.returncode != 0
    assert "here was left as it is. Reasons:" in done.stdout + done.stderr, done.stdout + done.stderr
    assert "No filter named" not in done.stdout + done.stderr


def test_ansible_tells_the_variables_of_a_role(installed: Path, tmp_path: Path) -> None:
    words = ("-t", "role", "-j", "gpu.provision.gpu_cuda")
    done = run("ansible-doc", *words, folder=tmp_path, collections=installed)
    assert done.returncode == 0, done.stderr
    options = json.loads(done.stdout)["gpu.provision.gpu_cuda"]["entry_points"]["main"]["options"]
    assert options["gpu_cuda_versions"]["type"] == "list"
