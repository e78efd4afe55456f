"""Decide the driver's package set, and judge what is installed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FilterModule"]

_VERSION = re.compile(r"[0-9][A-Za-z0-9.+:~-]*")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9]")
_BLAMED = re.compile(
    r"^dpkg: error processing (?:package|archive) (?:\S*/)?(?:\d+-)?([a-z0-9][a-z0-9+.-]*)", re.MULTILINE
)
"""The name of a package; of an archive, apt may have put a number before the name."""
_DRIVER = re.compile(
    r"(cuda-drivers|nvidia-(open|kernel|dkms|driver|utils|compute-utils|firmware|alternative|legacy|tesla)|libcuda1$|"
    r"libnvidia-(compute|ml|cfg)|xserver-xorg-video-nvidia|linux-(modules|objects|signatures)-nvidia)"
)
"""Packages of a driver of any branch and any vendor of packages."""


def upstream_of(version: str) -> str:
    """Return a package version without epoch and revision: what the driver itself says it is."""
    rest = version.partition(":")[2] or version
    return rest.rpartition("-")[0] or rest


def plan_driver(
    host: Mapping[str, Any],
    profile: Mapping[str, Any],
    flavour: str,
    version: str,
    branch: str,
    method: str,
    user_space: str,
    kernel: str,
) -> dict[str, Any]:
    """Return the package set for one node, and what is wrong with what was asked.

    Args:
        host: ``gpu_facts_host``.
        profile: The lock's profile of this system.
        flavour: ``open`` or ``proprietary``; empty takes the first one the lock has.
        version: Upstream or package version; empty takes the lock's.
        branch: Driver branch; empty takes the lock's.
        method: How to install; ``auto`` takes the lock's.
        user_space: ``compute`` or ``full``.
        kernel: Release of the target kernel, empty where not known yet.

    Returns:
        ``problems``; ``packages`` with their exact versions, null where ``lookup`` names packages whose version the
        archive has to tell; ``rivals``, installed packages of the other flavour; ``upstream``, ``flavour``,
        ``module``, ``dkms_name``, ``license``, ``services``.
    """
    plan: dict[str, Any] = {"problems": [], "packages": [], "rivals": [], "lookup": [], "services": [], "module": None}
    problems: list[str] = plan["problems"]
    driver = profile.get("driver")
    if profile.get("refusal"):
        problems.append(f"{host['os'].get('name') or host['os']['id']}: {profile['refusal']}")
    if problems or not driver:
        return plan

    flavours: Mapping[str, Any] = driver["flavours"]
    chosen = flavour or next(iter(flavours))
    if chosen not in flavours:
        problems.append(
            f"gpu_driver_flavour is {chosen}, and the lock has only {' and '.join(sorted(flavours))} for "
            f"{host['os']['id']}: take that, or lock again with a branch that has it"
        )
    if method == "runfile":
        problems.append(
            "gpu_driver_method runfile installs nothing here: a driver that no package owns cannot be pinned, verified "
            "or taken back. Use auto; gpu_driver_remove_runfile: true removes such an installation"
        )
    elif method not in ("auto", profile.get("method")):
        problems.append(
            f"gpu_driver_method is {method}, and the lock was made for {profile.get('method')}: use auto, or lock "
            f"again for {method}"
        )
    sets = driver.get("profiles") or {}
    if user_space not in sets:
        problems.append(f"gpu_driver_profile is {user_space}, and the lock has only {' and '.join(sorted(sets))}")
    if version and not _VERSION.fullmatch(version):
        problems.append(f"gpu_driver_version {version!r} is not a version: give one as the lock's, {driver['version']}")
    if problems:
        return plan

    row = flavours[chosen]
    locked = driver["version"]
    is_locked = not version or version in (locked, driver.get("package_version"))
    upstream = locked if is_locked else upstream_of(version)
    if branch and branch != upstream.partition(".")[0]:
        problems.append(
            f"gpu_driver_branch is {branch}, and the driver is {upstream}: set gpu_driver_version too, or lock again "
            f"with --driver {branch}"
        )
    for item in [*row["packages"], *sets[user_space]]:
        name = item["name"].replace("{kernel}", kernel)
        if not _PACKAGE.fullmatch(name):
            problems.append(f"{item['name']!r} of the lock is not a package name: lock again")
        wanted = item.get("version")
        if wanted and not is_locked and upstream_of(wanted) == locked:
            found = (host["packages"].get(name) or {}).get("version")
            if version != upstream:
                wanted = version
            elif found and upstream_of(found) == upstream:
                wanted = found
            else:
                wanted = None
                plan["lookup"].append(name)
        plan["packages"].append({"name": name, "version": wanted})
    names = {item["name"] for item in plan["packages"]}
    others = {item["name"].replace("{kernel}", kernel) for row in flavours.values() for item in row["packages"]}
    plan.update(
        rivals=sorted(name for name in others - names if name in host["packages"]),
        upstream=upstream,
        flavour=chosen,
        module=row["module"],
        dkms_name=row.get("dkms_name"),
        license=row.get("license"),
        services=list(driver.get("services") or []),
    )
    return plan


def resolve_lookup(plan: Mapping[str, Any], offers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Put the archive's newest package of the wanted upstream version where the plan left one open.

    Args:
        plan: What :func:`plan_driver` returned.
        offers: Package → versions that the archive offers, newest first.
    """
    problems = list(plan["problems"])
    packages = []
    for item in plan["packages"]:
        version = item["version"]
        if item["name"] in plan["lookup"]:
            offered = offers.get(item["name"], ())
            version = next((one for one in offered if upstream_of(one) == plan["upstream"]), None)
            if version is None:
                problems.append(
                    f"{item['name']} {plan['upstream']} is in none of this node's repositories, which offer: "
                    f"{', '.join(offered) or 'none'}. Set gpu_driver_version to one of them, or lock again"
                )
        packages.append({**item, "version": version})
    return {**plan, "packages": packages, "problems": problems, "lookup": []}


def judge_driver(host: Mapping[str, Any], plan: Mapping[str, Any], kernel: str) -> list[str]:
    """Say what of the driver is not in place for the target kernel, by DKMS and by the module itself."""
    if not plan["packages"]:
        return []
    if not kernel:
        return ["no kernel with headers is installed, so that no module can be built: see gpu_kernel"]
    problems = []
    if plan.get("dkms_name"):
        known = (plan["dkms_name"], plan["upstream"])
        rows = [row for row in host["dkms"] if (row["module"], row["version"]) == known]
        here = {row["status"] for row in rows if row["kernel"] == kernel}
        states = sorted(here or {row["status"] for row in rows})
        if "installed" not in here:
            problems.append(
                f"DKMS says {plan['dkms_name']} {plan['upstream']} is {' and '.join(states) or 'unknown to it'} for "
                f"kernel {kernel}, not installed"
            )
    modules = [row for row in host["modules"].get(kernel, ()) if row["name"] == plan["module"]]
    if not modules:
        problems.append(f"kernel {kernel} has no module {plan['module']}")
    for row in modules:
        if row["version"] != plan["upstream"]:
            problems.append(f"{row['path']} is version {row['version']}, not {plan['upstream']}")
        if plan.get("license") and row["license"] != plan["license"]:
            problems.append(f"{row['path']} has license {row['license']}, not {plan['license']}: the other flavour")
    return problems


def remember_packages(host: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return package → version and source of all that is properly installed: what a restore goes back to."""
    return {
        name: {"version": row["version"], "source": row["source"]}
        for name, row in host["packages"].items()
        if row["status"][1:2] == "i"
    }


def is_first_driver(host: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Tell whether the node has nothing of any driver yet, so that a failure has nothing to go back to.

    Args:
        host: ``gpu_facts_host``.
        plan: What :func:`plan_driver` returned.
    """
    names = {item["name"] for item in plan["packages"]}
    return bool(names) and not (
        any(name in names or _DRIVER.match(name) for name in host["packages"])
        or any("nvidia" in row["module"] for row in host["dkms"])
    )


def find_blamed(text: str) -> list[str]:
    """Return the packages that dpkg could not process, by what it said; empty where something else failed."""
    return list(dict.fromkeys(_BLAMED.findall(text)))


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_driver_blamed": find_blamed,
            "gpu_driver_is_first": is_first_driver,
            "gpu_driver_judge": judge_driver,
            "gpu_driver_plan": plan_driver,
            "gpu_driver_remember": remember_packages,
            "gpu_driver_resolve": resolve_lookup,
        }
