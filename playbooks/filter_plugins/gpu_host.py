"""Judge a host against its lock before anything changes.

All problems are found in one go and told together, each with what to do about it. They are judged here, on the
controller and in Python, from the one document that gpu_facts brought: nothing is asked of the node again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]


def _neighbour(name: str) -> ModuleType:
    # Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
    spec = spec_from_file_location(f"provision_filters_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside {Path(__file__).name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_LOCK, _PROBLEMS, _UNTRUSTED = _neighbour("gpu_lock"), _neighbour("gpu_problems"), _neighbour("gpu_untrusted")
_order = _neighbour("gpu").order_version
render_options = _neighbour("gpu_options").render_options
_problem = _PROBLEMS.word_problem
_list, _mapping, _matches = _UNTRUSTED.as_list, _UNTRUSTED.as_mapping, _UNTRUSTED.is_match
_LOCK_AGAIN, _METHODS, _OTHER_FLAVOUR, _VERSION = _LOCK.LOCK_AGAIN, _LOCK.METHODS, _LOCK.OTHER_FLAVOUR, _LOCK.VERSION
_find_packages = _LOCK.find_packages

_RELEASE = re.compile(r"\d+\.[A-Za-z0-9.+~_-]+")
_OPTIONS_FILE = "/etc/modprobe.d/zz-provision-gpu.conf"
_OURS = re.compile(r"nvidia|cuda|cudnn|nccl|datacenter-gpu-manager|^libnv(?!me|pair)|^dkms$|^linux-(headers|kbuild)-")


def decide_flavour(
    requested: str, architectures: Iterable[str], lock: Mapping[str, Any], profile: Mapping[str, Any]
) -> dict[str, Any]:
    """Decide between open and proprietary modules.

    Args:
        requested: ``auto``, ``open`` or ``proprietary``.
        architectures: Of the GPUs found in the host.
        lock: The lock.
        profile: Its part for the host's OS.

    Returns:
        ``flavour`` (None where nothing is to be installed) and ``problems``.
    """
    flavours = _mapping(_mapping(profile.get("driver")).get("flavours"))
    if not flavours:
        return {"flavour": None, "problems": []}
    rules = _mapping(lock.get("modules"))
    found = sorted(set(architectures))
    offered = ", ".join(sorted(flavours))
    problems = []
    needed = {name: rules[name] for name in found if rules.get(name) in _OTHER_FLAVOUR}
    problems += [
        _problem(
            f"This node has a {name} GPU, which the lock does not know",
            "lock for it (`provision node lock --gpu …`), or refresh the facts",
        )
        for name in found
        if name not in rules and rules
    ]
    wanted = sorted(set(needed.values()))
    if requested in ("auto", None, ""):
        if len(wanted) > 1:
            rows = ", ".join(f"{name} takes {flavour}" for name, flavour in needed.items())
            problems.append(
                _problem(
                    f"The GPUs of this node want different modules: {rows}", "set `gpu_driver_flavour` for this host"
                )
            )
        planned = [rules[name] for name in _architectures_of(lock) if rules.get(name) in flavours]
        # For no GPU at all what most take. Not what stands first: the lock of a generation has its keys sorted.
        most = sorted(flavours, key=lambda name: (-list(rules.values()).count(name), name))
        flavour = wanted[0] if wanted else planned[0] if planned else most[0]
    else:
        flavour = requested
        for name, only in _never(lock).items():
            if name in found and only != flavour:
                problems.append(
                    _problem(
                        f"`gpu_driver_flavour` is {flavour}, but {name} GPUs run with {only} modules alone",
                        f"set `gpu_driver_flavour: {only}` or `auto` for this host",
                    )
                )
    if flavour not in flavours and flavour in _OTHER_FLAVOUR:
        problems.append(
            _problem(
                f"This node needs {flavour} kernel modules, and the lock's driver "
                f"{_mapping(profile.get('driver')).get('version')} for {profile.get('os')} offers {offered} alone",
                "choose a driver branch or a method that has them: " + _LOCK_AGAIN,
            )
        )
    return {"flavour": flavour if flavour in flavours else None, "problems": problems}


def _architectures_of(lock: Mapping[str, Any]) -> list[str]:
    """Return the architectures that the lock was made for, where it says so."""
    stack = _mapping(lock.get("stack"))
    named = _list(stack.get("architectures"))
    return [str(name) for name in named]


def _never(lock: Mapping[str, Any]) -> dict[str, str]:
    """Return architecture → the only flavour that can ever drive it, as the lock's facts say."""
    return {str(name): str(flavour) for name, flavour in _mapping(lock.get("only_modules")).items()}


def list_host_problems(host: Mapping[str, Any], lock: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Say why a host cannot become what the lock plans for it, and what would change on it.

    Args:
        host: ``gpu_facts_host``.
        lock: A lock without problems of its own.
        wanted: ``flavour``, ``driver_version``, ``driver_method``, ``architectures``, ``connection``,
            ``secure_boot``, ``is_no_gpu_allowed``,
            ``is_busy_allowed``, ``foreign``, ``reboot``, ``is_driver_absent``, ``disk_mib``, ``has_drain``,
            ``kernel_policy``, ``kernel_version``, ``module_options``, ``requests``, ``services`` (that hold GPUs for
            nobody in particular), ``is_mig_due``, ``refusals`` (problems that others found), ``notes`` (of theirs).

    Returns:
        ``problems``, ``notes``, ``flavour``, ``is_disruptive``, ``disruptions`` (why), ``missing`` (names of packages
        to be installed).
    """
    problems: list[str] = []
    notes: list[str] = []
    system = _mapping(host.get("os"))
    result: dict[str, Any] = {"problems": problems, "notes": notes, "flavour": None, "missing": []}
    result.update(is_disruptive=False, disruptions=[])
    if not system.get("is_root"):
        problems.append(
            _problem(
                "The play is not root on this node",
                "give it `become: true` and a user who may become root, or leave `gpu_become` alone",
            )
        )
    profiles = _mapping(lock.get("profiles"))
    name = str(system.get("id"))
    if name not in profiles:
        problems.append(
            _problem(
                f"The lock has no profile for this node's system {name} ({system.get('name') or 'unknown'})",
                f"it has {', '.join(sorted(profiles)) or 'none'}; lock again with this one among them",
            )
        )
        return result
    profile = profiles[name]
    if profile.get("refusal"):
        problems.append(
            _problem(
                f"{name} cannot have this stack: {str(profile['refusal']).rstrip('.')}",
                "change the request and lock again",
            )
        )
        return result
    architectures = _list(profile.get("architectures")) or [str(profile.get("arch") or "amd64")]
    if system.get("arch") not in architectures:
        problems.append(
            _problem(
                f"This node is {system.get('arch')}, the lock's packages for {name} are for {', '.join(architectures)}",
                "lock for its architecture, or take the node out of the group",
            )
        )
    decided = decide_flavour(str(wanted.get("flavour") or "auto"), _list(wanted.get("architectures")), lock, profile)
    result["flavour"] = decided["flavour"]
    problems += decided["problems"]
    if not host.get("gpus"):
        text = "no NVIDIA GPU on the bus of this node"
        if wanted.get("is_no_gpu_allowed", True):
            notes.append(f"{text}: everything is installed, nothing that needs one is proved")
        else:
            problems.append(
                _problem(f"There is {text}", "set `gpu_preflight_allow_no_gpu: true` to prepare it all the same")
            )
    missing = _find_missing(host, profile, decided["flavour"], wanted)
    result["missing"] = sorted(missing["all"])
    has_driver_change = bool(missing["driver"]) and not wanted.get("is_driver_absent")
    driver = _mapping(profile.get("driver"))
    asked = wanted.get("driver_version")
    if asked and not _matches(_VERSION, str(asked)):
        problems.append(
            _problem(f"`gpu_driver_version` is {str(asked)!r:.60}, which is not a version", "leave it to the lock")
        )
    method = wanted.get("driver_method") or "auto"
    if driver and not wanted.get("is_driver_absent") and method not in ("auto", profile.get("method")):
        problems.append(
            _problem(
                f"`gpu_driver_method` is {method}, and the lock was made for {profile.get('method')}",
                f"leave it at auto, or lock again with `--method {method}`"
                if method in _METHODS
                else "leave it at auto: a runfile is removed by `gpu_driver_remove_runfile`, never installed",
            )
        )
    release = str(wanted.get("kernel_version") or "")
    if wanted.get("kernel_policy") == "pin" and not _matches(_RELEASE, release):
        problems.append(
            _problem(
                f"`gpu_kernel_policy` is pin, and `gpu_kernel_version` {release!r:.60} is not a release of a kernel",
                "set it to what `uname -r` prints there, or use policy hold",
            )
        )
    version = _upstream(str(asked or driver.get("version") or ""))
    if not wanted.get("is_driver_absent"):
        built_as = _mapping(_mapping(driver.get("flavours")).get(decided["flavour"])).get("dkms_name")
        problems += _list_known_bad(host, lock, version, decided["flavour"], built_as)
    problems += _list_state_problems(host, profile, wanted, bool(missing["all"]), notes)
    problems += [str(line) for line in _list(wanted.get("refusals"))]
    notes += [str(line) for line in _list(wanted.get("notes"))]
    reasons = (["the driver is installed or changed"] if has_driver_change else []) + _list_disruptions(
        host, driver, version, decided["flavour"], wanted, problems
    )
    result["is_disruptive"] = bool(reasons)
    result["disruptions"] = reasons
    if reasons and host.get("busy"):
        users = ", ".join(find_users(host, _list(wanted.get("services")))[:8])
        if users and (wanted.get("is_busy_allowed") or wanted.get("has_drain")):
            notes.append(f"GPUs are in use by {users}, and this run would disturb them: {'; '.join(reasons)}")
        elif users:
            problems.append(
                _problem(
                    f"GPUs are in use by {users}, and this run would disturb them: {'; '.join(reasons)}",
                    "drain the node first (`gpu_rollout_drain`), or set `gpu_preflight_allow_busy: true`",
                )
            )
    if has_driver_change:
        problems += _list_boot_problems(host, profile, decided["flavour"], wanted, notes)
    if missing["all"]:
        problems += _list_disk_problems(host, missing, _mapping(wanted.get("disk_mib")))
    return result


def _list_disruptions(
    host: Mapping[str, Any],
    driver: Mapping[str, Any],
    version: str,
    flavour: str | None,
    wanted: Mapping[str, Any],
    problems: list[str],
) -> list[str]:
    """Return for what else than new packages those who work on this node would be disturbed.

    What gpu_reboot will find due is foreseen here, before the node is drained.
    """
    reasons: list[str] = []
    name = _mapping(_mapping(driver.get("flavours")).get(flavour or "")).get("module")
    options = None
    try:
        options = render_options(_mapping(wanted.get("module_options")), name)
    except AnsibleFilterError as error:
        problems.append(_problem(str(error), "mend `gpu_driver_module_options`"))
    if _mapping(host.get("os")).get("is_container"):
        return reasons
    kernel, module = _mapping(host.get("kernel")), _mapping(host.get("module"))
    if wanted.get("reboot") == "always":
        reasons.append("`gpu_reboot_policy` is always")
    reasons += [str(row) for row in _list(wanted.get("requests"))]
    target = wanted.get("kernel_version") if wanted.get("kernel_policy") == "pin" else kernel.get("target")
    if target and kernel.get("running") and target != kernel["running"]:
        reasons.append(f"kernel {kernel['running']} runs, and {target} is the one to run")
    if wanted.get("is_mig_due"):
        reasons.append("the partitions of the GPUs are due to change")
    loaded = module.get("version")
    if not driver or wanted.get("is_driver_absent"):
        if driver and loaded and wanted.get("is_driver_removed"):
            reasons.append(f"the driver that is loaded, {loaded}, is removed")
        return reasons
    bound = [str(gpu.get("address")) for gpu in _list(host.get("gpus")) if gpu.get("driver") == "nouveau"]
    if bound:
        reasons.append(f"nouveau has {', '.join(bound)}")
    if loaded and version and loaded != version:
        reasons.append(f"driver {loaded} is loaded, and {version} is planned")
    if loaded and flavour and module.get("is_open") is not None and module["is_open"] != (flavour == "open"):
        reasons.append(f"the modules that are loaded are not the {flavour} ones")
    if options is not None and loaded:
        found = _mapping(_mapping(host.get("files")).get(_OPTIONS_FILE)).get("sha256")
        if found != (hashlib.sha256(options.encode()).hexdigest() if options else None):
            reasons.append("the options of the driver's modules change")
    if not loaded and host.get("gpus") and not bound:
        reasons.append("no module is loaded for the GPUs")
    return reasons


def find_users(host: Mapping[str, Any], services: Iterable[str]) -> list[str]:
    """Return who works on the GPUs of a node, as text; services that hold them for nobody are left out.

    Args:
        host: ``gpu_facts_host``.
        services: Names of those services.
    """
    # The kernel tells fifteen letters of a name; DCGM's daemon is not called as its service.
    known = {str(name).removesuffix(".service")[:15] for name in services}
    known |= {"nv-hostengine"} if "nvidia-dcgm" in known else set()
    return [
        f"{row.get('command')} ({row.get('pid')})" for row in _list(host.get("busy")) if row["command"] not in known
    ]


def _is_installed(host: Mapping[str, Any], name: str, version: str | None) -> bool:
    row = _mapping(_mapping(host.get("packages")).get(name))
    if row.get("status") not in ("ii", "hi"):
        return False
    if version and version.endswith("-*"):
        return _upstream(str(row["version"])) == _upstream(version)
    return version in (None, "", row.get("version"))


def _find_missing(
    host: Mapping[str, Any], profile: Mapping[str, Any], flavour: str | None, wanted: Mapping[str, Any]
) -> dict[str, set[str]]:
    """Return part of the stack → names of packages that a run would install or change; ``all`` is their union."""
    driver = _mapping(profile.get("driver"))
    kind = str(wanted.get("driver_profile") or "compute")
    rows = _list(_mapping(_mapping(driver.get("flavours")).get(flavour or "")).get("packages"))
    rows = rows + _list(_mapping(driver.get("profiles")).get(kind))
    override = str(wanted.get("driver_version") or "")
    version = str(driver.get("package_version") or "")
    if override in (version, driver.get("version")):
        override = ""
    cuda = _mapping(profile.get("cuda"))
    parts = {
        "driver": [
            {**row, "version": f"{override}-*"} if override and row.get("version") == version else row for row in rows
        ],
        "cuda": [row for rows in _mapping(cuda.get("packages")).values() for row in _list(rows)],
        "frameworks": _list(_mapping(profile.get("frameworks")).get("packages")),
        "other": [
            row
            for section in ("cudnn", "nccl", "container_toolkit", "dcgm")
            for row in _list(_mapping(profile.get(section)).get("packages"))
        ],
    }
    missing = {
        part: {row["name"] for row in rows if not _is_installed(host, row["name"], row.get("version"))}
        for part, rows in parts.items()
    }
    missing["all"] = set().union(*missing.values())
    return missing


def _upstream(version: str) -> str:
    return re.sub(r"^\d+:", "", version).split("-")[0]


def _list_known_bad(
    host: Mapping[str, Any], lock: Mapping[str, Any], version: str, flavour: str | None, built_as: str | None
) -> list[str]:
    """Return the refusals of rows of known-bad combinations of driver, flavour and kernel.

    What DKMS has built already is no refusal; ``built_as`` is its name for this flavour, as the other may be built.
    """
    kernel = _mapping(host.get("kernel"))
    target = kernel.get("target")
    if not target or not version:
        return []
    problems = []
    real = _kernel_version(host, str(target))
    for row in _list(lock.get("known_bad")):
        if row.get("driver") != version or row.get("flavour") not in (None, flavour):
            continue
        first, last = row.get("kernel_first"), row.get("kernel_last")
        # A bound of a series, such as `6.2`, holds all of it.
        is_in_last = last and f"{real}.".startswith(f"{last}.")
        if (first and _order(real) < _order(first)) or (last and not is_in_last and _order(real) > _order(last)):
            continue
        is_built = any(
            item.get("kernel") == target
            and item.get("version") == version
            and item.get("status") == "installed"
            and built_as in (None, item.get("module"))
            for item in _list(host.get("dkms"))
        )
        if is_built:
            continue
        limits = " and newer" if not last else f" to {last}"
        problems.append(
            _problem(
                f"Driver {version} ({flavour}) does not work with kernel {target}: {row.get('symptom')} "
                f"({row.get('reference')}; kernels {first or 'before'}{limits})",
                "boot another kernel, take the other flavour where the GPU allows it, or lock another driver",
            )
        )
    return problems


def _kernel_version(host: Mapping[str, Any], release: str) -> str:
    """Return the upstream version of a kernel: of its package, since a release's name may hide the patch level."""
    packages = _mapping(host.get("packages"))
    for name in (f"linux-image-{release}", f"linux-headers-{release}", f"linux-image-unsigned-{release}"):
        if name in packages:
            return _upstream(packages[name]["version"]).split("+")[0]
    return re.split(r"[-+]", release)[0]


def _list_state_problems(
    host: Mapping[str, Any], profile: Mapping[str, Any], wanted: Mapping[str, Any], has_work: bool, notes: list[str]
) -> list[str]:
    """Return what is wrong with the node's package state, whoever caused it."""
    problems = []
    dpkg = _mapping(host.get("dpkg"))
    half = [str(name) for name in _list(dpkg.get("half"))]
    names = ", ".join(half[:10])
    if half and all(_is_ours(host, profile, name) for name in half):
        # A run that died in the middle: the role that installs them finishes them first.
        notes.append(f"an earlier run left half done: {names}; they are finished first")
    elif dpkg.get("audit") or half:
        lines = str(dpkg.get("audit") or "").splitlines()
        problems.append(
            _problem(
                f"dpkg has unfinished business: {names or (lines[0] if lines else 'see `dpkg --audit`')}",
                "mend it on the node: `dpkg --configure -a`, then `apt-get -f install`",
            )
        )
    if has_work and dpkg.get("is_locked") and not wanted.get("is_lock_waited_for", True):
        problems.append(_problem("Another program holds dpkg's lock", "let it end, then run this again"))
    foreign = _mapping(host.get("foreign"))
    if foreign.get("runfile") and not wanted.get("is_runfile_removed") and profile.get("driver"):
        problems.append(
            _problem(
                f"NVIDIA's runfile put a driver here ({foreign['runfile']}), which overwrites what packages bring",
                f"run `{foreign['runfile']} --silent` on the node, or set `gpu_driver_remove_runfile: true`",
            )
        )
    if wanted.get("foreign", "refuse") == "refuse":
        problems += [
            _problem(
                f"{row.get('file')} brings packages from {row.get('uri')}, which would compete with the lock's",
                "remove it, or set `gpu_repos_foreign: replace` (kept and put back on removal) or `keep`",
            )
            for row in _list(foreign.get("repos"))
        ]
    if wanted.get("connection") == "local" and wanted.get("reboot") == "always":
        problems.append(
            _problem(
                "`gpu_reboot_policy` is always and the connection is local: the controller would reboot itself",
                "set `gpu_reboot_policy: report`, or reach the node over ssh",
            )
        )
    return problems


def _is_ours(host: Mapping[str, Any], profile: Mapping[str, Any], name: str) -> bool:
    """Tell whether a run installs a package, or brings it along."""
    planned = {str(row.get("name")) for _, row in _find_packages(profile, "") if isinstance(row, Mapping)}
    planned |= {str(word) for word in _list(_mapping(profile.get("kernel")).get("build"))}
    row = _mapping(_mapping(host.get("packages")).get(name))
    if name in planned or _OURS.search(name) or _OURS.search(str(row.get("source", ""))):
        return True
    broken_off = set(_list(_mapping(host.get("dpkg")).get("broken_off")))
    if not any(word in planned or _OURS.search(word) for word in broken_off):
        return False
    # A transaction of ours that never ended: what it brought along is ours too, and so are triggers that wait for it.
    return name in broken_off or str(row.get("status"))[1:2] in ("t", "W")


def _list_boot_problems(
    host: Mapping[str, Any],
    profile: Mapping[str, Any],
    flavour: str | None,
    wanted: Mapping[str, Any],
    notes: list[str],
) -> list[str]:
    """Return why a module that is built here would not load."""
    if not host.get("secure_boot") or profile.get("method") == "precompiled":
        return []
    policy = wanted.get("secure_boot", "refuse")
    text = f"Secure Boot is on, and {flavour} modules built on the node are signed by no key that its firmware trusts"
    if policy == "refuse":
        return [
            _problem(
                text,
                "lock with method `precompiled` where the system has it, or set `gpu_driver_secure_boot: stage` to "
                "sign them and stage the key, which somebody enrols at the console at the next boot",
            )
        ]
    notes.append(text + (": staged for enrolment at the next boot" if policy == "stage" else ": ignored as told"))
    return []


def _list_disk_problems(
    host: Mapping[str, Any], missing: Mapping[str, set[str]], sizes: Mapping[str, Any]
) -> list[str]:
    """Return the file systems that are too small for what is missing.

    ``sizes`` is part → folder → MiB. Folders with the same free space are taken for one file system.
    """
    needed: dict[str, int] = {}
    for part, folders in sizes.items():
        if missing.get(part):
            for folder, mib in _mapping(folders).items():
                needed[folder] = needed.get(folder, 0) + int(mib)
    free = _mapping(host.get("disk"))
    groups: dict[int, list[str]] = {}
    for folder in needed:
        if folder in free:
            groups.setdefault(int(free[folder]), []).append(folder)
    problems = []
    for mib, folders in sorted(groups.items()):
        want = sum(needed[folder] for folder in folders)
        if mib < want:
            problems.append(
                _problem(
                    f"{' and '.join(sorted(folders))} have {mib} MiB free, and about {want} MiB are needed",
                    "make room, or change `gpu_preflight_disk_mib` if you know better",
                )
            )
    return problems


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_decide_flavour": decide_flavour,
            "gpu_host_problems": list_host_problems,
            "gpu_users": find_users,
        }
