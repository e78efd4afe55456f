"""The options of the driver's kernel modules, as modprobe reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

_MODULE_OPTIONS = {
    "nvidia": re.compile(r"NVreg_[A-Za-z0-9_]+"),
    "nvidia-drm": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-modeset": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-peermem": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-uvm": re.compile(r"[a-z][a-z0-9_]*"),
}
"""Modules whose options may be set, and what the names of their options look like."""

_OPTION_VALUE = re.compile(r"[A-Za-z0-9_.,:;=/+-]+")


def render_options(options: Mapping[str, Any], module: str | None) -> str:
    """Return the module options as modprobe reads them; empty where there are none.

    Args:
        options: Module → option → value. An option of ``nvidia`` may stand at the top by itself.
        module: What the main module is called here, ``nvidia-current`` on Debian, for instance.

    Raises:
        AnsibleFilterError: A module, an option or a value that is not one.
    """
    sorted_out: dict[str, dict[str, Any]] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            sorted_out.setdefault(key, {}).update(value)
        else:
            sorted_out.setdefault("nvidia", {})[key] = value
    lines = []
    for name, rows in sorted(sorted_out.items()):
        if name not in _MODULE_OPTIONS:
            raise AnsibleFilterError(
                f"gpu_driver_module_options: {name!r} is none of the driver's modules: {', '.join(_MODULE_OPTIONS)}"
            )
        words = []
        for key, value in sorted(rows.items()):
            text = str(int(value)) if isinstance(value, bool) else str(value)
            if not _MODULE_OPTIONS[name].fullmatch(key):
                raise AnsibleFilterError(
                    f"gpu_driver_module_options: {key!r} is not an option of {name}; `modinfo -p` lists them"
                )
            if not _OPTION_VALUE.fullmatch(text):
                raise AnsibleFilterError(f"gpu_driver_module_options: {text!r} cannot be the value of {key}")
            words.append(f"{key}={text}")
        real = name.replace("nvidia", module or "nvidia", 1)
        lines.append(f"options {real} {' '.join(words)}\n" if words else "")
    text = "".join(lines)
    return f"# Managed by provision (role gpu_driver).\n{text}" if text else ""


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_driver_options": render_options,
        }
