"""Decide which kernel the driver is for, which packages it needs and what the kernel guard watches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

_RELEASE = re.compile(r"\d+\.[A-Za-z0-9.+~_-]+")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+._-]*[a-z0-9]")
_WORD = re.compile(r"[A-Za-z0-9._+~:/#-]+")
_HOOKS = ("/etc/kernel/postinst.d/dkms", "/etc/kernel/header_postinst.d/dkms")
_ORIGINAL = ".provision-original"


def plan_kernel(
    host: Mapping[str, Any],
    policy: str,
    version: str,
    headers: str,
    headers_pattern: str,
    image_pattern: str,
    planned: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the target kernel, the packages it needs, and apt's preferences for its metapackages.

    Args:
        host: ``gpu_facts_host``.
        policy: ``track``, ``hold`` or ``pin``.
        version: Release of the kernel for ``pin``.
        headers: Metapackage of the headers, empty for the one that suits the image installed.
        headers_pattern: Name of a kernel's headers package, ``{kernel}`` for its release.
        image_pattern: Name of a kernel's image package.
        planned: The lock's ``kernel`` section.

    Returns:
        ``target`` (empty where the headers' metapackage decides), ``packages``, ``preferences`` and ``problems``.
    """
    planned = planned or {}
    kernel = host["kernel"]
    packages = host["packages"]
    problems: list[str] = []
    target = kernel["target"] or ""
    if policy == "pin":
        if not _RELEASE.fullmatch(version):
            problems.append(
                f"gpu_kernel_policy is pin, and gpu_kernel_version {version!r} is not a release of a kernel: set it to "
                "what `uname -r` prints there, or use policy hold"
            )
            version = ""
        target = version
    images = sorted(
        name
        for name, row in packages.items()
        if re.fullmatch(r"linux-image-[a-z][a-z0-9.-]*(?<!-dbg)", name) and row["status"][1:2] == "i"
    )
    metapackages = [headers] if headers else [name.replace("-image-", "-headers-", 1) for name in images]
    # A bare system has no kernel of its own yet: a container, or an image being made.
    if not metapackages and planned.get("headers") and not any(row["has_image"] for row in kernel["installed"]):
        metapackages = [planned["headers"]]

    wanted: list[dict[str, Any]] = []
    if policy == "track" or not target:
        wanted += [{"name": name, "version": None} for name in metapackages]
    has_headers = {row["version"] for row in kernel["installed"] if row["has_headers"]}
    has_image = {row["version"] for row in kernel["installed"] if row["has_image"]}
    if target and target not in has_headers:
        wanted.append({"name": headers_pattern.replace("{kernel}", target), "version": None})
    if policy == "pin" and target and target not in has_image and not host["os"]["is_container"]:
        wanted.append({"name": image_pattern.replace("{kernel}", target), "version": None})
    problems += [
        f"{row['name']!r} is not a package name: see gpu_kernel_headers and gpu_kernel_headers_pattern"
        for row in wanted
        if not _PACKAGE.fullmatch(row["name"])
    ]

    preferences = ""
    if policy != "track":
        named = {*metapackages, *images, planned.get("image"), planned.get("headers")} - {None, ""}
        preferences = _preferences(sorted(str(name) for name in named), packages)
    return {"target": target, "packages": wanted, "preferences": preferences, "problems": problems}


def _preferences(names: Sequence[str], packages: Mapping[str, Any]) -> str:
    """Keep installed metapackages at their versions, and others away, so that no new kernel comes by itself."""
    stanzas = []
    for name in names:
        row = packages.get(name)
        if row and row["status"][1:2] == "i":
            stanzas.append(f"Package: {name}\nPin: version {row['version']}\nPin-Priority: 1001\n")
        else:
            stanzas.append(f"Package: {name}\nPin: release *\nPin-Priority: -1\n")
    return "\n".join(["# Managed by provision (role gpu_kernel): the kernel stays.\n", *stanzas]) if stanzas else ""


def render_guard(
    policy: str, version: str, driver: Mapping[str, Any] | None, known_bad: Sequence[Mapping[str, Any]]
) -> str:
    """Return the kernel guard's configuration.

    Args:
        policy: ``track``, ``hold`` or ``pin``.
        version: Release of the kernel for ``pin``.
        driver: The lock's ``driver`` section.
        known_bad: The lock's rows of drivers that do not build on some kernels.

    Raises:
        AnsibleFilterError: A word of the lock would change the meaning of a line.
    """
    lines = ["# Managed by provision (role gpu_kernel).", f"policy {policy}"]
    if policy == "pin":
        lines.append(f"default {version}")
    for flavour, row in sorted(((driver or {}).get("flavours") or {}).items()):
        if row.get("dkms_name"):
            lines.append(_line("module", row["dkms_name"], flavour, row.get("dkms_package") or "-"))
    for row in known_bad:
        first, last = row.get("kernel_first") or "-", row.get("kernel_last") or "-"
        flavour, reference = row.get("flavour") or "-", row.get("reference") or "-"
        lines.append(_line("bad", row["driver"], flavour, first, last, reference))
    return "\n".join(lines) + "\n"


def _line(*words: str) -> str:
    for word in words:
        if not _WORD.fullmatch(word):
            raise AnsibleFilterError(f"the lock's {words[0]} row holds {word!r}, which the kernel guard cannot take")
    return " ".join(words)


def plan_diversions(host: Mapping[str, Any], is_wanted: bool, hook_sha256: str) -> list[dict[str, str]]:
    """Return the diversions of DKMS' kernel hooks to add or to remove.

    Args:
        host: ``gpu_facts_host``.
        is_wanted: Whether the guard stands in for them.
        hook_sha256: Digest of the hook that stands in.

    Returns:
        Rows with ``path``, ``to`` and ``rename``, the option of dpkg-divert: a file of ours is never moved aside as
        if it were DKMS'.
    """
    lines = (host["files"].get("/var/lib/dpkg/diversions") or {}).get("text", "").splitlines()
    known = dict(zip(lines[::3], lines[1::3], strict=False))
    rows = []
    for path in _HOOKS:
        to = path + _ORIGINAL
        if is_wanted and known.get(path) != to:
            is_ours = (host["files"].get(path) or {}).get("sha256") == hook_sha256
            rows.append({"path": path, "to": to, "rename": "--no-rename" if is_ours else "--rename"})
        elif not is_wanted and known.get(path) == to:
            rows.append({"path": path, "to": to, "rename": "--rename"})
    return rows


def list_stale_flags(host: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the kernels the guard flagged: ``flagged`` rightly, and ``stale``, which have their module by now."""
    found: dict[str, list[str]] = {"flagged": [], "stale": []}
    for path in sorted(host["files"]):
        match = re.fullmatch(r"/var/lib/provision/kernel-guard/([^/]+)\.json", path)
        if match:
            is_built = any(row["kernel"] == match[1] and row["status"] == "installed" for row in host["dkms"])
            found["stale" if is_built else "flagged"].append(match[1])
    return found


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_kernel_diversions": plan_diversions,
            "gpu_kernel_flags": list_stale_flags,
            "gpu_kernel_guard": render_guard,
            "gpu_kernel_plan": plan_kernel,
        }
