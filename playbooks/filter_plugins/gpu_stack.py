"""Judge what the roles for CUDA, NCCL, DCGM and the NVLink fabric were asked for, before anything reaches a node."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["FilterModule"]


# Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
_GPU = ModuleType("provision_filters_gpu")
SourceFileLoader(_GPU.__name__, str(Path(__file__).with_name("gpu.py"))).exec_module(_GPU)
_order = _GPU.order_version


def find_cuda_problems(
    versions: Iterable[Any],
    packages: Mapping[str, Any],
    homes: Mapping[str, str],
    default: Any,
    compat: Iterable[Any],
    compat_packages: Mapping[str, Any],
) -> list[str]:
    """Say why a set of CUDA toolkits cannot be had.

    Args:
        versions: Toolkits wanted.
        packages: Version → packages.
        homes: Version → folder.
        default: The version that the alternative leads to; empty for none.
        compat: Versions whose forward compatibility libraries are wanted.
        compat_packages: Version → packages of those.

    Returns:
        A sentence a problem, with its way out.
    """
    versions, compat = list(versions), list(compat)
    problems = [
        f'CUDA {value} is a number, and 12.10 would be read as 12.1: write it in quotes, "{value}"'
        for value in [*versions, default, *compat]
        if not isinstance(value, str)
    ]
    if problems:
        return sorted(set(problems))
    known = ", ".join(sorted(packages, key=_order)) or "none"
    problems += [
        f"gpu_cuda_versions names CUDA {value}, for which the lock has no packages (it has: {known}): "
        "lock again (`provision node lock`), or give them in gpu_cuda_packages"
        for value in versions
        if not packages.get(value)
    ]
    problems += [
        f"gpu_cuda_homes does not say where CUDA {value} lies"
        for value in versions
        if packages.get(value) and not homes.get(value)
    ]
    if default and default not in versions:
        problems.append(f"gpu_cuda_default is {default}, which is none of gpu_cuda_versions ({', '.join(versions)})")
    for value in compat:
        if value not in versions:
            problems.append(
                f"gpu_cuda_compat names {value}, which is none of gpu_cuda_versions ({', '.join(versions)})"
            )
        elif not compat_packages.get(value):
            problems.append(
                f"the lock has no forward compatibility packages for CUDA {value}: take it out of gpu_cuda_compat"
            )
    return problems


NCCL_BEGIN = "# BEGIN provision (role gpu_nccl): changes made between these lines are undone by its next run"
NCCL_END = "# END provision (role gpu_nccl)"
_NCCL_BLOCK = re.compile(rf"^{re.escape(NCCL_BEGIN)}\n.*?^{re.escape(NCCL_END)}\n?", re.MULTILINE | re.DOTALL)
_NCCL_KEY = re.compile(r"NCCL_[A-Z0-9_]+")
_MAKE_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_SM = re.compile(r"sm_[0-9]{2,3}[af]?")


def find_nccl_problems(
    conf: Any, known: Iterable[str], text: str | None = None, topology: str | None = None
) -> list[str]:
    """Say what is wrong with the settings for /etc/nccl.conf.

    Args:
        conf: Key → value.
        known: Keys that NCCL reads; with none, every key of the right form passes.
        text: The file on the node, None where there is none.
        topology: Text of the topology file, empty for none.

    Returns:
        A sentence a problem, with its way out.
    """
    if not isinstance(conf, Mapping):
        return [f"gpu_nccl_conf is {type(conf).__name__}: it is a mapping of keys such as NCCL_DEBUG to values"]
    known = list(known or [])
    problems = []
    for key, value in conf.items():
        if not isinstance(key, str) or not _NCCL_KEY.fullmatch(key) or (known and key not in known):
            near = difflib.get_close_matches(str(key).upper(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(f"gpu_nccl_conf: NCCL reads no `{key}`{hint}")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            problems.append(
                f"gpu_nccl_conf: the value of {key} is {value!r}: NCCL reads text and whole numbers (1 for yes)"
            )
        elif not str(value).strip() or str(value) != str(value).strip() or not str(value).isprintable():
            problems.append(
                f"gpu_nccl_conf: the value of {key} is {value!r}: use one line of text without spaces at its ends"
            )
    if topology is not None and topology.strip():
        if "NCCL_TOPO_FILE" in conf:
            problems.append(
                "gpu_nccl_conf sets NCCL_TOPO_FILE and gpu_nccl_topology gives a file for it: keep one of them"
            )
        if not re.search(r"<system\b", topology):
            problems.append("gpu_nccl_topology is not a topology of NCCL: its XML has no element `system`")
    if text is not None and len(_NCCL_BLOCK.findall(text)) != text.count(NCCL_BEGIN):
        problems.append(f"/etc/nccl.conf has a damaged block of provision's: delete it, from `{NCCL_BEGIN}` on")
    return problems


def merge_nccl_conf(text: str | None, conf: Mapping[str, Any]) -> str:
    """Return /etc/nccl.conf with these settings in a block of their own, the user's lines kept.

    The block stands first, for NCCL keeps the first value that it reads of a key.

    Args:
        text: The file on the node, None where there is none.
        conf: Key → value; empty takes the block away.
    """
    rest = _NCCL_BLOCK.sub("", text or "", count=1)
    if not conf:
        return rest
    lines = [NCCL_BEGIN, *(f"{key}={value}" for key, value in sorted(conf.items())), NCCL_END]
    return "\n".join(lines) + "\n" + rest


def find_nccl_overridden(text: str | None, conf: Mapping[str, Any]) -> list[str]:
    """Name the keys of a user's own lines that lose against the block, sorted."""
    rest = _NCCL_BLOCK.sub("", text or "")
    own = set(re.findall(r"^[ \t]*(\w+)[ \t]*=", rest, re.MULTILINE))
    return sorted(own & set(conf))


def find_nccl_tests_problems(source: Any, sha256: Any, make: Any, sm: Any) -> list[str]:
    """Say why nccl-tests cannot be built as asked; with no source nothing is.

    Args:
        source: Archive of the sources: an address or a path on the controller.
        sha256: Its digest.
        make: Variable of their Makefile → value.
        sm: GPUs to compile for (``sm_90``); empty for all that the Makefile names.

    Returns:
        A sentence a problem, with its way out.
    """
    if not source:
        return []
    problems = []
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        problems.append("gpu_nccl_tests_source needs gpu_nccl_tests_sha256, the 64 hexadecimal digits of its digest")
    if not isinstance(make, Mapping):
        return [*problems, f"gpu_nccl_tests_make is {type(make).__name__}: it is a mapping such as {{MPI: 1}}"]
    for key, value in make.items():
        if not isinstance(key, str) or not _MAKE_VARIABLE.fullmatch(key):
            problems.append(f"gpu_nccl_tests_make: `{key}` is not a variable of a Makefile: name one such as MPI_HOME")
        elif key == "CUDA_HOME":
            problems.append("gpu_nccl_tests_make sets CUDA_HOME: say gpu_nccl_tests_cuda_home instead")
        elif isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).isprintable():
            problems.append(
                f"gpu_nccl_tests_make: the value of {key} is {value!r}: give a line of text or a number (1 for yes)"
            )
    if not isinstance(sm, list) or not all(isinstance(each, str) and _SM.fullmatch(each) for each in sm):
        problems.append(f"gpu_nccl_tests_sm is {sm!r}: it is a list of words such as `sm_90`")
    return problems


def make_nccl_tests_words(cuda_home: str, make: Mapping[str, Any], sm: Iterable[str]) -> list[str]:
    """Return what make is told, sorted: the toolkit, the user's variables, and the GPUs to compile for.

    Without GPUs the Makefile compiles for a handful of generations, which takes several times as long.

    Source: https://github.com/NVIDIA/nccl-tests, ``src/common.mk``: NVCC_GENCODE.
    """
    numbers = [each.removeprefix("sm_") for each in sm]
    code = " ".join(f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers)
    words = {**({"NVCC_GENCODE": code} if code else {}), **make, "CUDA_HOME": cuda_home}
    return [f"{key}={value}" for key, value in sorted(words.items())]


def find_dcgm_kept(packages: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[str]:
    """Name the DCGM packages on a node that are newer than the lock's and a vendor's, and are therefore kept.

    Where there was no DCGM before the first run, a newer one is what an earlier lock brought, and goes back.

    Args:
        packages: What the lock plans.
        host: What gpu_facts collected.

    Returns:
        ``name version`` of each, sorted; a newer generation under another name counts.
    """
    installed = host["packages"]
    if host.get("dcgm_before") == []:
        return []
    planned = {item["name"]: item.get("version") for item in packages}
    kept = {
        f"{name} {installed[name]['version']}"
        for name, version in planned.items()
        if version and name in installed and _order(installed[name]["version"]) > _order(version)
    }
    generation = max((_dcgm_generation(name) for name in planned), default=0)
    kept |= {f"{name} {row['version']}" for name, row in installed.items() if _dcgm_generation(name) > generation > 0}
    return sorted(kept)


def _dcgm_generation(name: str) -> int:
    match = re.match(r"datacenter-gpu-manager-(\d+)-", name)
    return int(match[1]) if match else 0


_OF_DRIVER = re.compile(r"fabric-?manager|nscq|nvsdm|imex")


def plan_fabric(host: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Plan what a node's NVLink fabric needs.

    Args:
        host: What gpu_facts collected.
        options: ``enabled`` and ``imex`` (``auto`` or a boolean), ``fabric`` and ``imex_section`` of the profile,
            ``nvswitch_devices`` and ``driver_version`` of the lock.

    Returns:
        ``packages``; ``services``, each with ``name`` and whether it ``is_wanted`` running; ``why`` in words;
        ``problems``, each with its way out.
    """
    problems: list[str] = []
    devices = {str(device).lower() for device in options.get("nvswitch_devices") or []}
    switches = [row for row in host["nvswitches"] if not devices or row["device"].lower() in devices]
    # From the fifth NVLink on the switches hide behind a network card that says so in its vital product data.
    managers = [row for row in host["nics"] if row.get("is_switch_manager")]
    has_fabric = bool(switches or managers)
    fabric, imex = options.get("fabric") or {}, options.get("imex_section") or {}
    imex_devices = {str(device).lower() for device in imex.get("devices") or []}
    has_imex = any(row["device"].lower() in imex_devices for row in host["gpus"])
    wants_fabric = _decide("gpu_fabric_enabled", options.get("enabled", "auto"), has_fabric, problems)
    wants_imex = _decide("gpu_fabric_imex", options.get("imex", "auto"), has_imex, problems)
    if wants_fabric and not fabric.get("packages"):
        problems.append(
            "this node has NVSwitches and the lock has no fabric manager for it: lock again with its GPUs (`--gpu`)"
        )
    if wants_imex and not imex.get("packages"):
        problems.append("this node needs IMEX and the lock has none for it: lock again with its GPUs (`--gpu`)")
    packages = [
        *(fabric.get("packages") or [] if wants_fabric else []),
        *(imex.get("packages") or [] if wants_imex else []),
    ]
    driver = str(options.get("driver_version") or "")
    problems += [
        f"{item['name']} {item.get('version')} is not of driver {driver}, and the two must be the same: "
        "leave gpu_driver_version to the lock, or lock that driver (`provision node lock --driver`)"
        for item in packages
        if driver and _OF_DRIVER.search(item["name"]) and not _is_of(str(item.get("version") or ""), driver)
    ]
    services = [
        {"name": _unit(name), "is_wanted": has_fabric} for name in (fabric.get("services") or []) if wants_fabric
    ]
    services += [{"name": _unit(name), "is_wanted": has_imex} for name in (imex.get("services") or []) if wants_imex]
    why = f"{len(switches)} NVSwitch(es), {len(managers)} switch manager(s)"
    return {"packages": packages, "services": services, "why": why, "problems": problems}


def _decide(name: str, value: Any, is_there: bool, problems: list[str]) -> bool:
    text = str(value).lower()
    if text not in ("auto", "true", "false", "yes", "no"):
        problems.append(f"{name} is `{value}`: use auto, true or false")
    return is_there if text == "auto" else text in ("true", "yes")


def _is_of(version: str, driver: str) -> bool:
    upstream = version.rpartition(":")[2]
    return re.match(re.escape(driver) + r"(?![0-9.])", upstream) is not None


def _unit(name: str) -> str:
    return name if "." in name else f"{name}.service"


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_cuda_problems": find_cuda_problems,
            "gpu_dcgm_kept": find_dcgm_kept,
            "gpu_fabric_plan": plan_fabric,
            "gpu_nccl_merge": merge_nccl_conf,
            "gpu_nccl_overridden": find_nccl_overridden,
            "gpu_nccl_problems": find_nccl_problems,
            "gpu_nccl_tests_problems": find_nccl_tests_problems,
            "gpu_nccl_tests_words": make_nccl_tests_words,
        }
