"""A Stack to the playbooks' variables: ``provision_lock.yml``, YAML that is data and nothing else.

Ansible takes ``{{`` in a variable for a template, so no text with template marks is ever written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.matrix.query import cuda_releases, find_gpus, only_flavours, secure_minimums
from provision.records import plain
from provision.resolve.node_code import capabilities_by_architecture, node_gpus
from provision.resolve.request import plain_request
from provision.resolve.stack import (
    LockedPackage,
    NodeDriver,
    NodeEnvironment,
    NodeGroup,
    NodePackage,
    NodeProfile,
    Stack,
)
from provision.versions import parse

NODE_LOCK_VERSION = 1

_PACKAGE_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9!+._-]+"
_SHA256 = r"[0-9a-f]{64}"
_URL = r"https://[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%#-]+"
_PLAIN_KEY = r"[A-Za-z][A-Za-z0-9_]*"
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_HEADER = """\
---
# Written by `provision node lock`; edit the request, not this file.
# provision.lock {digest}
# yamllint disable rule:line-length
"""


def render_node_lock(stack: Stack, matrix: Matrix) -> str:
    """Return the text of ``provision_lock.yml``; the same stack and facts give the same bytes.

    Args:
        stack: With its ``node`` part.
        matrix: The facts that the hosts need beside it: PCI numbers, known-bad modules, security floors.

    Raises:
        UsageError: The stack is for no node, or holds text that Ansible would take for a template.
    """
    document = node_lock(stack, matrix)
    lines = list(_emit({"provision_lock": document}, ""))
    return _HEADER.format(digest=document["digest"]) + "\n".join(lines) + "\n"


def node_lock(stack: Stack, matrix: Matrix) -> dict[str, Any]:
    """Return what the playbooks read as ``provision_lock``, digest included.

    Raises:
        UsageError: The stack is for no node.
    """
    node = stack.node
    if node is None:
        raise UsageError("the lock has no part for nodes", hints=("write it again with `provision node lock`",))
    floor = matrix.settings("container_toolkit.toml").get("minimum_safe")
    keys = matrix.settings("nccl.toml").get("conf_keys")
    switches = matrix.settings("node_packages.toml").get("nvswitch_devices")
    document: dict[str, Any] = {
        "lock_version": NODE_LOCK_VERSION,
        "digest": None,
        "facts_date": stack.facts_date,
        "name": _name(stack),
        "request": {**plain_request(stack.request), "node": dict(node.request)},
        "stack": {
            "cuda": stack.cuda,
            "cudnn": stack.cudnn,
            "nccl": stack.nccl,
            "python": stack.python,
            "frameworks": dict(stack.frameworks),
            "variants": dict(stack.variants),
            "driver_minimum": stack.driver.minimum,
            "driver_branch": stack.driver.recommended_branch,
            "gpus": list(stack.gpus),
            "architectures": list(node.architectures),
            **_gpu_sm(stack, matrix),
            "sm": list(stack.sm),
            "ptx": list(stack.ptx),
            "lock_digest": stack.lock_digest,
        },
        "devices": [
            {"first": row.first, "last": row.last, "architecture": row.architecture} for row in matrix.pci_ranges
        ],
        "compute_capabilities": capabilities_by_architecture(matrix),
        "gpus": [
            {"device": device, "id": gpu.id, "name": gpu.name, "compute_capability": gpu.compute_capability}
            for device, gpu in sorted(
                ((gpu.pci_device_id.lower(), gpu) for gpu in node_gpus(matrix) if gpu.pci_device_id),
                key=lambda pair: (pair[0], pair[1].id),
            )
        ],
        "mig_devices": sorted(
            {gpu.pci_device_id.lower() for gpu in matrix.gpus if gpu.pci_device_id and gpu.mig_max_instances}
        ),
        "nvswitch_devices": list(switches.values) if switches else [],
        "modules": dict(node.modules),
        "only_modules": only_flavours(matrix),
        "secure_minimum": {str(branch): version for branch, (version, _) in sorted(secure_minimums(matrix).items())},
        "container_toolkit_minimum": floor.value if floor else None,
        "known_bad": [
            {
                "driver": row.driver,
                "flavour": row.flavour,
                "kernel_first": row.kernel_first,
                "kernel_last": row.kernel_last,
                "symptom": row.symptom,
                "reference": row.reference,
            }
            for row in matrix.known_bad_modules
        ],
        "nccl_conf_keys": sorted(keys.values) if keys else [],
        "profiles": {profile.os: _profile(profile) for profile in node.profiles},
    }
    document["digest"] = lock_digest(document)
    return document


def lock_digest(document: Mapping[str, Any]) -> str:
    """Return ``sha256:…`` over the canonical JSON of a lock without its digest, as the playbooks reckon it."""
    whole = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def render_requirements(environment: NodeEnvironment) -> str:
    """Return the requirements of an environment for pip's ``--require-hashes``: by name, or by address off PyPI.

    Raises:
        UsageError: A package has no hash, or a value that no requirement has.
    """
    return "".join(_requirement(package) for package in sorted(environment.packages, key=lambda item: item.name))


def _requirement(package: LockedPackage) -> str:
    name = _checked("package name", _PACKAGE_NAME, package.name)
    line = f"{name}=={_checked('version', _VERSION, package.version)}"
    if package.url is not None:
        line = f"{name} @ {_checked('URL', _URL, package.url)}"
    return f"{line} \\\n    --hash=sha256:{_checked('sha256', _SHA256, package.sha256 or '')}\n"


def _checked(kind: str, grammar: str, text: str) -> str:
    if not re.fullmatch(grammar, text):
        raise UsageError(f"{text[:80]!r} is not a valid {kind}")
    return text


def _name(stack: Stack) -> str:
    branches = sorted(
        {profile.driver.branch for profile in (stack.node.profiles if stack.node else ()) if profile.driver}
    )
    parts = [f"driver{branch}" for branch in branches]
    parts.append(f"cuda{stack.cuda}")
    parts += [f"{name}{version}" for name, version in stack.frameworks.items()]
    profiles = stack.node.profiles if stack.node else ()
    toolkits = {toolkit.version for profile in profiles for toolkit in profile.toolkits}
    parts += [f"toolkit{version}" for version in sorted(toolkits, key=parse)]
    return "-".join(parts)


def _gpu_sm(stack: Stack, matrix: Matrix) -> dict[str, list[str]]:
    """Return ``gpu_sm``, what programs are compiled for on these nodes: that of each GPU asked for, in order.

    Nothing where no GPU was named, and where a toolkit of the node is not known to compile for each of them: who
    compiles then takes all that his compiler knows.

    Source: ``sm`` in ``cuda.toml``, what nvcc and ptxas of each toolkit accept.
    """
    sm = {number for name in stack.gpus for gpu in find_gpus(matrix, name) for number in [_sm(gpu.compute_capability)]}
    profiles = stack.node.profiles if stack.node else ()
    toolkits = {toolkit.version for profile in profiles for toolkit in profile.toolkits}
    compiled = [{*(row.sm or ())} for version in toolkits for row in cuda_releases(matrix, version)[:1]]
    if not sm or len(compiled) < len(toolkits) or any(sm - known for known in compiled):
        return {}
    return {"gpu_sm": [f"sm_{number}" for number in sorted(sm)]}


def _sm(compute_capability: str) -> int:
    return int(compute_capability.replace(".", ""))


def _profile(profile: NodeProfile) -> dict[str, Any]:
    if profile.refusal is not None or profile.driver is None or profile.kernel is None:
        return {"os": profile.os, "refusal": profile.refusal or "nothing is known of this system"}
    return {
        "os": profile.os,
        "refusal": None,
        "architectures": list(profile.architectures),
        "warnings": list(profile.warnings),
        "method": profile.method,
        **({} if profile.manager == "apt" else {"manager": profile.manager}),
        "repos": {
            "components": list(profile.components),
            "sources": [
                {
                    "id": item.id,
                    "uri": item.uri,
                    "suite": item.suite,
                    "components": list(item.components),
                    "key": {"url": item.key.url, "sha256": item.key.sha256, "fingerprint": item.key.fingerprint},
                    "for": list(item.purposes),
                    **({} if item.signs == "packages" else {"signs": item.signs}),
                }
                for item in profile.repositories
            ],
            "pins": [{"packages": pin.packages, "version": pin.version} for pin in profile.pins],
        },
        "kernel": plain(profile.kernel),
        "driver": _driver(profile.driver),
        "fabric": _group(profile.fabric),
        "imex": _group(profile.imex),
        "cuda": _cuda(profile),
        "cudnn": _group(profile.cudnn),
        "nccl": {**(_group(profile.nccl) or {}), "tests": None} if profile.nccl else None,
        "container_toolkit": _group(profile.container_toolkit),
        "dcgm": _group(profile.dcgm),
        "rdma": {"inbox": _packages(profile.rdma.packages), "doca": None} if profile.rdma else None,
        "mig": None,
        "access": {"firewall": _packages(profile.firewall), "audit": _packages(profile.audit)},
        "frameworks": _frameworks(profile),
    }


def _packages(packages: tuple[NodePackage, ...]) -> list[dict[str, str | None]]:
    return [{"name": package.name, "version": package.version} for package in packages]


def _driver(driver: NodeDriver) -> dict[str, Any]:
    return {
        "branch": driver.branch,
        "version": driver.version,
        "package_version": driver.package_version,
        "flavours": {
            flavour.name: {
                "packages": _packages(flavour.packages),
                "module": flavour.module,
                "dkms_package": flavour.dkms_package,
                "dkms_name": flavour.dkms_name,
                "license": flavour.license,
                **({"stream": flavour.stream} if flavour.stream else {}),
            }
            for flavour in driver.flavours
        },
        "profiles": {"compute": _packages(driver.compute), "full": _packages(driver.full)},
        "default_profile": driver.default_profile,
        "services": list(driver.services),
    }


def _group(group: NodeGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    found: dict[str, Any] = {"version": group.version, "packages": _packages(group.packages)}
    if group.services:
        found["services"] = list(group.services)
    if group.nvlink5_packages:
        found["nvlink5_packages"] = _packages(group.nvlink5_packages)
    return found


def _cuda(profile: NodeProfile) -> dict[str, Any] | None:
    toolkits = profile.toolkits
    if not toolkits:
        return None
    return {
        "versions": [toolkit.version for toolkit in toolkits],
        "packages": {toolkit.version: _packages(toolkit.packages) for toolkit in toolkits},
        "homes": {toolkit.version: toolkit.home for toolkit in toolkits},
        "default": profile.default_toolkit,
        "compat": {toolkit.version: _packages(toolkit.compat) for toolkit in toolkits},
    }


def _frameworks(profile: NodeProfile) -> dict[str, Any] | None:
    frameworks = profile.frameworks
    if frameworks is None:
        return None
    return {
        "python": frameworks.python,
        "packages": _packages(frameworks.packages),
        "environments": [
            {
                "name": environment.name,
                "requirements": render_requirements(environment),
                "imports": list(environment.imports),
                "versions": dict(environment.versions),
                "builds": [plain(build) for build in environment.builds],
            }
            for environment in frameworks.environments
        ],
        "refusal": frameworks.refusal,
    }


def _emit(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a mapping or list in block style; what is empty or a scalar stands behind its key."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{indent}{_key(key)}:", item, indent)
        return
    for item in value:
        lines = list(_emit(item, f"{indent}  ")) if _is_block(item) else [f"{indent}  {_scalar(item)}"]
        # The first line of a block takes the place of its own indentation behind the dash.
        yield f"{indent}- {lines[0][len(indent) + 2 :]}"
        yield from lines[1:]


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if _is_block(item):
        yield head
        yield from _emit(item, f"{indent}  ")
    elif isinstance(item, str) and _is_literal(item):
        yield f"{head} |"
        yield from (f"{indent}  {_unmarked(line)}" for line in item.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_scalar(item)}"


def _is_block(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) and bool(value)


def _is_literal(text: str) -> bool:
    """Tell whether a text can stand as a literal block: printable lines of ASCII, the first not indented."""
    lines = text.split("\n")
    is_whole = len(lines) > 2 and lines[-1] == "" and all(lines[:-1])
    return is_whole and not lines[0].startswith(" ") and all(line.isascii() and line.isprintable() for line in lines)


def _key(key: str) -> str:
    is_plain = re.fullmatch(_PLAIN_KEY, key) is not None and key.lower() not in _YAML_WORDS
    return key if is_plain else _scalar(key)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    raise TypeError(f"{type(value).__name__} has no place in a lock")


def _unmarked(text: str) -> str:
    for mark in _TEMPLATE_MARKS:
        if mark in text:
            raise UsageError(
                f"{text[:60]!r} holds `{mark}`, which Ansible takes for a template",
                hints=("write the request without it",),
            )
    return text


def _quoted(text: str) -> str:
    """Return a double-quoted scalar; JSON's escapes are YAML's, and so is every character left as it is."""
    quoted = json.dumps(_unmarked(text), ensure_ascii=False)
    return "".join(letter if letter == " " or letter.isprintable() else _escaped(ord(letter)) for letter in quoted)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
