"""What the tests of the playbooks share, importable by name, as in ``import playbook_files``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for _name in ("playbook_files", "preflight_documents", "role_files"):
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
    _module = importlib.util.module_from_spec(_spec)
    sys.modules[_name] = _module
    _spec.loader.exec_module(_module)
