"""Filters for the labels and kernel settings of a Kubernetes node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SYSCTL = re.compile(r"[a-z0-9_-]+([./][A-Za-z0-9_*-]+)+")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")


def write_labels(labels: Mapping[str, Any]) -> str:
    """Return labels as node feature discovery reads them from a file, ``name=value`` a line, sorted.

    A label whose value is None or empty is left out: what is unknown is not said.

    Raises:
        AnsibleFilterError: A name or a value is none that Kubernetes takes; all that are not are named.
    """
    lines, problems = [], []
    for name, value in sorted(labels.items()):
        if value is None or value == "":
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(text):
            problems.append(f"{name}={text}")
        lines.append(f"{name}={text}\n")
    if problems:
        raise AnsibleFilterError(f"gpu_k8s_labels: Kubernetes takes no label {', '.join(problems)}")
    return "# Written by provision.\n" + "".join(lines)


def write_sysctl(settings: Mapping[str, Any]) -> str:
    """Return kernel settings as sysctl.d reads them, sorted."""
    problems = [
        f"{name}={value}"
        for name, value in settings.items()
        if not _SYSCTL.fullmatch(str(name)) or not re.fullmatch(r"[\x20-\x7e]+", str(value))
    ]
    if problems:
        raise AnsibleFilterError(f"gpu_k8s_sysctl: {', '.join(problems)} is not a setting of the kernel")
    return "# Written by provision.\n" + "".join(f"{name} = {value}\n" for name, value in sorted(settings.items()))


def write_modules(modules: list[Any]) -> str:
    """Return names of kernel modules as modules-load.d reads them, in the order given."""
    problems = [str(name) for name in modules if not isinstance(name, str) or not _MODULE.fullmatch(name)]
    if problems:
        raise AnsibleFilterError(f"gpu_k8s_modules: {', '.join(problems)} is not a name of a module")
    return "# Written by provision.\n" + "".join(f"{name}\n" for name in modules)


def shorten_value(text: Any) -> str:
    """Return text as a value of a label: other signs become ``-``, no more than 63."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(text))[:63].strip("._-")


def list_problems(settings: Mapping[str, Any]) -> list[str]:
    """Return everything for which the texts above would be refused, for the list of preflight.

    Args:
        settings: ``labels``, ``modules``, ``sysctl``, as far as somebody set them.
    """
    problems = []
    for name, write in (("labels", write_labels), ("modules", write_modules), ("sysctl", write_sysctl)):
        if name in settings:
            try:
                write(settings[name])
            except AnsibleFilterError as error:
                problems.append(str(error))
    return problems


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_k8s_label": shorten_value,
            "gpu_k8s_labels_text": write_labels,
            "gpu_k8s_modules_text": write_modules,
            "gpu_k8s_problems": list_problems,
            "gpu_k8s_sysctl_text": write_sysctl,
        }
