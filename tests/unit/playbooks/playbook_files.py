"""The Python of the playbooks: filters and what runs on nodes, loaded by path as Ansible loads them."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
ROLES = PLAYBOOKS / "roles"

_FLAVOURS = {
    "proprietary": {
        "packages": [{"name": "nvidia-kernel-dkms", "version": "535.261.03-1"}],
        "module": "nvidia-current",
        "dkms_name": "nvidia-current",
        "license": "NVIDIA",
    },
    "open": {
        "packages": [{"name": "nvidia-open-kernel-dkms", "version": "535.261.03-1"}],
        "module": "nvidia-current-open",
        "dkms_name": "nvidia-current-open",
        "license": "Dual MIT/GPL",
    },
}


def load_filters(name: str, role: str | None = None) -> Any:
    """Return the module of filters of that name, of the playbooks or of one role."""
    return load_script((ROLES / role if role else PLAYBOOKS) / "filter_plugins" / f"{name}.py")


def load_script(path: Path) -> Any:
    """Return a file of Python as a module."""
    name = f"playbooks_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_driver() -> dict[str, Any]:
    """Return the driver of a lock, both flavours of one version, without user space."""
    return {
        "branch": 535,
        "version": "535.261.03",
        "package_version": "535.261.03-1",
        "flavours": copy.deepcopy(_FLAVOURS),
        "services": ["nvidia-persistenced"],
    }
