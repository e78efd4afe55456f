"""Role gpu_spot writes the settings that `provision fleet spot` writes, and refuses what leaves nothing to do.

ansible-playbook evaluates the role's variables on this machine; no node is touched.
"""

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
import yaml

from provision.generate.spot import SpotOptions, render_settings
from provision.generate.verify_units import TEXTFILES
from provision.matrix.load import Matrix

ROLE = playbook_files.ROLES / "gpu_spot"
PROGRAM = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="ansible-core is not installed")

CASES: dict[str, dict[str, Any]] = {
    "aws": {
        "gpu_spot_provider": "aws",
        "gpu_spot_checkpoint": ["sh", "-c", "save '$HOME' \"now\""],
        "gpu_spot_drain": ["drain"],
        "gpu_spot_resume": ["resume"],
        "gpu_spot_advice": "checkpoint",
    },
    "gcp": {
        "gpu_spot_provider": "gcp",
        "gpu_spot_requeue": ["requeue"],
        "gpu_spot_hooks": "/etc/provision/spot.d",
        "gpu_spot_warning_seconds": 120,
        "gpu_spot_reserve_seconds": 20,
        "gpu_spot_textfiles": "",
    },
    "nothing": {"gpu_spot_provider": "azure"},
    "hasty": {"gpu_spot_provider": "gcp", "gpu_spot_checkpoint": ["save"], "gpu_spot_reserve_seconds": 27},
    "strange": {"gpu_spot_provider": "lambda", "gpu_spot_drain": ["drain"]},
    "off": {},
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Case → what the role makes of it."""
    folder = tmp_path_factory.mktemp("role")
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    notices = json.loads((ROLE / "files/notices.json").read_text(encoding="utf-8"))
    inventory = {
        "all": {
            "hosts": {
                name: {**defaults, **case, **variables, "gpu_spot_notices": notices} for name, case in CASES.items()
            },
            "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
        }
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    answer = "{{ {'problems': gpu_spot_problems, 'settings': gpu_spot_settings} | to_json }}"
    copy = {"dest": f"{folder}/{{{{ inventory_hostname }}}}.json", "content": answer, "mode": "0600"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.copy": copy}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")}
    done = subprocess.run(
        [str(PROGRAM), "-i", folder / "hosts.yml", folder / "play.yml"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in CASES}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "aws",
            SpotOptions(
                provider="aws",
                checkpoint=("sh", "-c", "save '$HOME' \"now\""),
                drain=("drain",),
                resume=("resume",),
                textfiles=TEXTFILES,
                advice="checkpoint",
            ),
        ),
        (
            "gcp",
            SpotOptions(
                provider="gcp",
                requeue=("requeue",),
                hooks="/etc/provision/spot.d",
                warning_seconds=120.0,
                reserve_seconds=20.0,
            ),
        ),
    ],
    ids=["aws", "gcp"],
)
def test_settings_are_those_of_the_command(said: dict[str, Any], name: str, options: SpotOptions) -> None:
    assert said[name]["problems"] == []
    assert said[name]["settings"] == json.loads(render_settings(Matrix(), options))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "there is nothing to do when a notice comes"),
        ("hasty", "nothing of the warning of 30 s is left"),
        ("strange", "gpu_spot_provider lambda is none of aliyun, aws, azure, gcp, tencent"),
    ],
)
def test_what_leaves_nothing_to_do_is_refused(said: dict[str, Any], name: str, words: str) -> None:
    (problem,) = said[name]["problems"]
    assert words in problem


def test_role_is_off_until_a_provider_is_named(said: dict[str, Any]) -> None:
    assert said["off"]["problems"] == []
