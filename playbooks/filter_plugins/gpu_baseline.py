"""What a node was before its first change, so that a removal can leave it so."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["FilterModule"]


def _neighbour(name: str) -> ModuleType:
    # Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
    spec = spec_from_file_location(f"provision_filters_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside {Path(__file__).name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_GPU = _neighbour("gpu")


def describe_baseline(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node was before its first change: packages, leftovers, holds, folders, accounts, modules, texts.

    The texts are those of the files that are edited and not owned, so that a removal gives back their very bytes.

    Args:
        host: ``gpu_facts_host``.
    """
    # What is left of a removed package is no package: a run that installs it brings it.
    leftovers = {name for name, row in host["packages"].items() if str(row.get("status"))[1:2] == "c"}
    packages = {
        name: {"version": row["version"], "is_auto": bool(row.get("is_auto"))}
        for name, row in host["packages"].items()
        if name not in leftovers
    }
    return {
        "os": host["os"]["id"],
        "packages": packages,
        "leftovers": sorted(leftovers),
        "holds": list(host.get("holds", [])),
        "folders": sorted(host.get("folders") or {}),
        "accounts": sorted(host.get("accounts") or {}),
        "modules": sorted(row["path"] for rows in (host.get("modules") or {}).values() for row in rows),
        "texts": {
            path: row["text"]
            for path in _GPU.MERGED_FILES
            if "text" in (row := (host.get("files") or {}).get(path) or {})
        },
    }


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_baseline": describe_baseline,
        }
