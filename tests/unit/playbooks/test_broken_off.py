"""What the roles' variables say of a node on which a run ended early, rendered by the real ansible-core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

PROGRAM = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
DROP_IN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/provision.conf"
RUNNING = {"enabled": "enabled", "active": "active"}

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="ansible-core is not installed")


def render(folder: Path, role: str, expression: str, **variables: Any) -> Any:
    """Return an expression over the variables of a role."""
    path = playbook_files.ROLES / role
    answer = folder / "answer.json"
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(path / "defaults/main.yml"), str(path / "vars/main.yml")],
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"ansible.builtin.copy": {"dest": str(answer), "content": f"{{{{ {expression} | to_json }}}}"}}],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    assert PROGRAM is not None
    done = subprocess.run(
        [PROGRAM, "-i", "localhost,", folder / "play.yml", "--extra-vars", json.dumps(variables)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_FILTER_PLUGINS": str(playbook_files.ROLES.parent / "filter_plugins")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(answer.read_text(encoding="utf-8"))


@pytest.mark.parametrize("needs_reload", [False, True])
def test_a_unit_that_systemd_has_not_read_again_is_read_and_started(tmp_path: Path, needs_reload: bool) -> None:
    units = {
        "nvidia-cdi-refresh.path": {**RUNNING, "needs_reload": False},
        "nvidia-cdi-refresh.service": {**RUNNING, "active": "inactive", "needs_reload": needs_reload},
    }
    found = render(
        tmp_path,
        "gpu_container_toolkit",
        "{'reload': gpu_container_toolkit_must_reload, 'wrong': gpu_container_toolkit_units | selectattr('is_wrong')"
        " | map(attribute='name') | list}",
        gpu_facts_host={"units": units, "files": {DROP_IN: {}}, "links": {}, "gpus": [{}], "module": {"version": "1"}},
        gpu_facts_profile={},
        gpu_container_toolkit_is_new=False,
        gpu_container_toolkit_unit_files=[],
    )
    assert found == {"reload": needs_reload, "wrong": ["nvidia-cdi-refresh.service"] if needs_reload else []}


@pytest.mark.parametrize("has_guard", [True, False])
def test_what_stands_in_for_diverted_hooks_is_written_before_all_else(tmp_path: Path, has_guard: bool) -> None:
    found = render(
        tmp_path,
        "gpu_kernel",
        "gpu_kernel_wanted_files",
        gpu_facts_profile={},
        gpu_kernel_guard=has_guard,
        gpu_kernel_hooks=["hook"],
        gpu_kernel_nouveau=["nouveau"],
        gpu_kernel_files=["guard"],
    )
    assert found == [*(["hook"] if has_guard else []), "nouveau", "guard"]
