"""Filters that hold a node's packages, modules and pins to its lock, and describe what it became.

What needs the machine's own tools to answer is no matter of these: that is asked and judged by ``provision verify``,
whose table of checks is the only one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

# Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
_GPU = ModuleType("provision_filters_gpu")
SourceFileLoader(_GPU.__name__, str(Path(__file__).with_name("gpu.py"))).exec_module(_GPU)

_ROOT = "/var/lib/provision"
_ENVIRONMENTS = "/opt/provision/envs/"
_PREFERENCES = "/etc/apt/preferences.d/provision-gpu"
_VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
_FAMILY = re.compile(r"nvidia|cuda|cudnn|nccl|datacenter-gpu-manager|^libnv(?!me|pair)|^dkms$")
_MODULE_PACKAGE = re.compile(r"dkms|modules|kernel")
"""Packages of the family that bring a module, or build one."""
# What gpu-monitoring.yml wrote, and a program called provision: neither is of gpu-node.yml, be it as a trace or a rest.
_OF_OTHERS = re.compile(
    r"/usr/(?:local/)?bin/provision|/usr/local/lib/provision/gpu_textfile\.py"
    r"|/etc/provision/monitoring/.+|/etc/sysusers\.d/provision-monitoring\.conf|/var/lib/prometheus/.+"
    r"|/etc/systemd/system/(?:[\w.-]+\.wants/)?provision-(?:gpu-exporter|gpu-textfile|grafana|verify)\.(?:service|timer)"
    r"|/etc/systemd/system/(?:grafana-server|nvidia-dcgm-exporter|prometheus(?:-[a-z-]+)?)\.service\.d/provision\.conf"
)
_PARTS = ("cuda", "cudnn", "nccl", "dcgm")
"""Parts of a lock that can go by their packages alone, with nothing else of the stack depending on them."""
_GOING = ("accounts", "keys", "purge", "release", "new", "auto", "manual")
_DKMS_KEYS = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
_SCHEMA = 1


def judge_packages(
    host: Mapping[str, Any], profile: Mapping[str, Any], wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Hold what gpu_facts saw to the lock.

    Args:
        host: ``gpu_facts_host``.
        profile: The lock's part for the host's OS.
        wanted: ``flavour``, ``driver_profile``, ``driver_version``, ``is_driver_absent``, ``has_pins``, and
            ``packages`` of the other parts.

    Returns:
        Rows with ``id``, ``status`` (pass or fail), ``seen`` and ``wanted``, failures first.
    """
    rows: list[dict[str, Any]] = []

    def add(name: str, is_fine: bool, seen: Any, want: Any) -> None:
        rows.append({"id": name, "status": "pass" if is_fine else "fail", "seen": seen, "wanted": want})

    driver = _mapping(profile.get("driver"))
    if driver and not wanted.get("is_driver_absent"):
        flavour = _mapping(_mapping(driver.get("flavours")).get(str(wanted.get("flavour"))))
        version = str(driver.get("version") or "")
        override = _upstream(str(wanted.get("driver_version") or version))
        kind = str(wanted.get("driver_profile") or "compute")
        for row in [*(flavour.get("packages") or []), *(_mapping(driver.get("profiles")).get(kind) or [])]:
            is_planned = override == version or row.get("version") != driver.get("package_version")
            _judge_package(add, host, row["name"], row.get("version") if is_planned else f"{override}-*")
        _judge_module(add, host, flavour, override, str(profile.get("method")))
    for row in wanted.get("packages") or []:
        _judge_package(add, host, row["name"], row.get("version"))
    dpkg = _mapping(host.get("dpkg"))
    broken = ", ".join(dpkg.get("half") or []) or (str(dpkg.get("audit") or "").splitlines() or [""])[0]
    add("dpkg", not broken, broken or "clean", "clean")
    pins = _mapping(profile.get("repos")).get("pins") or []
    if pins and wanted.get("has_pins", True):
        path = _PREFERENCES if profile.get("manager", "apt") == "apt" else _VERSION_LOCKS
        text = str(_mapping(host["files"].get(path)).get("text", ""))
        missing = [pin for pin in pins if not all(line in text for line in _pin_lines(pin, path))]
        add("pins", not missing, f"{len(pins) - len(missing)} of {len(pins)} in {path}", f"{len(pins)}")
    return sorted(rows, key=lambda row: row["status"] != "fail")


def _pin_lines(pin: Mapping[str, Any], path: str) -> list[str]:
    """Return the lines by which a pin is known in the file of apt's preferences or of dnf's version locks."""
    if path == _PREFERENCES:
        return [f"Package: {_words(pin['packages'])}\n"]
    return [f"{name}-{pin['version']}.*\n" for name in str(pin["packages"]).split()]


def _judge_package(add: Any, host: Mapping[str, Any], name: str, version: str | None) -> None:
    found = _mapping(_mapping(host.get("packages")).get(name))
    seen = (
        str(found.get("version"))
        if found.get("status") in ("ii", "hi")
        else str(found.get("status") or "not installed")
    )
    if version in (None, ""):
        is_fine = found.get("status") in ("ii", "hi")
    elif str(version).endswith("-*"):
        is_fine = _upstream(seen) == str(version)[:-2]
    else:
        is_fine = seen == version
    add(f"package.{name}", is_fine, seen, version or "installed")


def _judge_module(add: Any, host: Mapping[str, Any], flavour: Mapping[str, Any], version: str, method: str) -> None:
    kernel = _mapping(host.get("kernel")).get("target")
    if not kernel or not flavour:
        add("module", False, "no kernel of its own" if flavour else "no flavour", version)
        return
    name = str(flavour.get("dkms_name") or "")
    if name and method != "precompiled":
        states = [
            row.get("status")
            for row in host.get("dkms") or []
            if row.get("module") == name and row.get("version") == version and row.get("kernel") == kernel
        ]
        add("module.dkms", "installed" in states, states[0] if states else "not built", f"installed for {kernel}")
    module = str(flavour.get("module") or "nvidia")
    built = [row for row in _mapping(host.get("modules")).get(kernel) or [] if row.get("name") == module]
    add("module.version", any(row.get("version") == version for row in built), _seen(built, "version"), version)
    licence = flavour.get("license")
    if licence:
        add("module.license", any(row.get("license") == licence for row in built), _seen(built, "license"), licence)


def _seen(rows: list[Mapping[str, Any]], key: str) -> str:
    return ", ".join(str(row.get(key)) for row in rows) or "no module"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _words(packages: Any) -> str:
    return packages if isinstance(packages, str) else " ".join(packages)


def _upstream(version: str) -> str:
    return re.sub(r"^\d+:", "", version).split("-")[0]


def choose_python(links: Iterable[str], profile: Mapping[str, Any]) -> str:
    """Return the interpreter that is asked about frameworks.

    Args:
        links: Paths of the links that gpu_facts saw.
        profile: The lock's part for the host's OS.

    Returns:
        That of the lock's environment where its name is there, else of the first name; empty where there is none.
    """
    there = sorted(link for link in links if link.startswith(_ENVIRONMENTS))
    locked = [
        _ENVIRONMENTS + str(row.get("name")) for row in _mapping(profile.get("frameworks")).get("environments") or []
    ]
    chosen = [link for link in locked if link in there] or there
    return f"{chosen[0]}/bin/python" if chosen else ""


def expect_node(
    host: Mapping[str, Any], lock: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what ``provision verify --expect`` is to hold the node to.

    Args:
        host: ``gpu_facts_host``.
        lock: The lock.
        profile: Its part for the host's OS.
        settings: ``gpus`` (a number or ``auto``), ``driver_version``, ``is_driver_absent``, ``extra``.

    Returns:
        Fields of an expectation.
    """
    gpus = settings.get("gpus", "auto")
    count = len(host.get("gpus") or []) if str(gpus) == "auto" else int(gpus)
    stack, driver = _mapping(lock.get("stack")), _mapping(profile.get("driver"))
    values: dict[str, Any] = {"gpus": count, "os": str(_mapping(host.get("os")).get("id"))}
    if driver and not settings.get("is_driver_absent"):
        values["driver"] = _upstream(str(settings.get("driver_version") or driver.get("version")))
    if stack.get("driver_minimum"):
        values["driver_minimum"] = str(stack["driver_minimum"])
    planned = stack.get("gpus") or []
    if count and len(planned) == 1:
        values["gpu"] = str(planned[0])
    values.update(settings.get("extra") or {})
    return values


def read_verdict(text: str, level: str) -> dict[str, Any]:
    """Return the summary of a report of ``provision verify``.

    Args:
        text: What ``judge.py verdict`` printed.
        level: That was asked for.

    Returns:
        ``is_judged``, ``counts``, and ``failures``: rows with ``id``, ``status``, ``seen``, ``wanted``, ``remedy``.
    """
    try:
        report = json.loads(text)
    except ValueError:
        return {"is_judged": False, "why": "the controller's `provision` gave no report", "failures": [], "counts": {}}
    document = report.get("document") or {}
    result = document.get("result") or _mapping(_mapping(document.get("error")).get("result"))
    targets = result.get("targets") or []
    if not targets:
        why = report.get("error") or _mapping(document.get("error")).get("message") or "no target in the report"
        return {"is_judged": False, "why": str(why), "failures": [], "counts": {}, "level": level}
    rows = [
        {
            "id": row.get("id"),
            "status": row.get("status"),
            "severity": row.get("severity"),
            "seen": row.get("seen"),
            "wanted": row.get("expected"),
            "remedy": row.get("remedy"),
        }
        for row in targets[0].get("checks") or []
        if row.get("status") in ("fail", "unknown") and row.get("is_failure", row.get("status") == "fail")
    ]
    return {
        "is_judged": True,
        "level": level,
        "ok": bool(targets[0].get("ok")),
        "counts": dict(targets[0].get("counts") or {}),
        "failures": rows,
    }


def write_failures(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return failures one a line, numbered, each with what was seen, what was wanted and what helps."""
    lines = []
    for number, row in enumerate(rows, start=1):
        wanted = f", wanted {row['wanted']}" if row.get("wanted") else ""
        remedy = f". {row['remedy']}" if row.get("remedy") else ""
        lines.append(f"{number}. {row.get('id')}: {row.get('seen')}{wanted}{remedy}")
    return "\n".join(lines)


def describe_generation(
    host: Mapping[str, Any], lock: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the generation that a node has become, and the files that record it.

    Args:
        host: ``gpu_facts_host``, read after the last change.
        lock: As it was written.
        settings: ``flavour``, ``kind``.

    Returns:
        ``is_new``, ``number``, and ``files`` for gpu_facts' write, none where the last generation is the same.
    """
    names = _lock_names(lock)
    packages = {
        name: row["version"] for name, row in sorted(host["packages"].items()) if name in names or _is_family(name, row)
    }
    files = {
        path: row["sha256"]
        for path, row in sorted(host["files"].items())
        if (path in _GPU.MERGED_FILES or "provision" in path) and not path.startswith(_ROOT)
    }
    content = {
        "lock_digest": lock.get("digest"),
        "flavour": settings.get("flavour"),
        "packages": packages,
        "files": files,
    }
    digest = "sha256:" + hashlib.sha256(_json(content).encode()).hexdigest()
    state = _mapping(host.get("state"))
    numbers = [int(row["number"]) for row in host.get("generations") or []]
    if state.get("content_digest") == digest and state.get("generation") in numbers:
        return {"is_new": False, "number": state["generation"], "files": []}
    number = max([0, *numbers]) + 1
    about = {
        "kind": settings.get("kind") or "apply",
        "lock_digest": lock.get("digest"),
        "lock_name": lock.get("name"),
        "driver": _mapping(_mapping(_mapping(lock.get("profiles")).get(host["os"]["id"])).get("driver")).get("version"),
        "flavour": settings.get("flavour"),
        "kernel": _mapping(host.get("kernel")).get("target"),
    }
    folder = f"{_ROOT}/generations/{number}"
    texts = {
        # What names the generation comes last: half a generation is none.
        f"{folder}/lock.json": _json(lock),
        f"{folder}/packages.json": _json(packages),
        f"{folder}/files.json": _json(files),
        f"{folder}/generation.json": _json(about),
        f"{_ROOT}/state.json": _json({"schema": _SCHEMA, "generation": number, "content_digest": digest, **about}),
    }
    written = [{"path": path, "content": text + "\n"} for path, text in texts.items()]
    # A lock and a list of packages say nothing in a diff.
    written = [{**item, "is_secret": item["path"].endswith(("lock.json", "packages.json"))} for item in written]
    return {"is_new": True, "number": number, "files": written}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _lock_names(value: Any) -> set[str]:
    """Return the names of all packages that a lock plans."""
    if isinstance(value, Mapping):
        own = {str(value["name"])} if "version" in value and isinstance(value.get("name"), str) else set()
        return own.union(*(_lock_names(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_lock_names(item) for item in value))
    return set()


def list_dropped(
    host: Mapping[str, Any],
    former: Mapping[str, Any],
    lock: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    *named: Any,
) -> dict[str, list[str]]:
    """Return what the lock before had of parts that stand by themselves, and this one has not.

    Args:
        host: ``gpu_facts_host``.
        former: The lock of the present generation.
        lock: The lock that is applied.
        baseline: What the node was before the first run: that stays. Without it nothing goes.
        named: What the roles' variables ask for besides.

    Returns:
        ``packages`` that are installed and go, ``homes`` of CUDA toolkits among them that the alternative has, and
        ``along``, GPU software that had come as a dependency and goes where nothing needs it.
    """
    old, new = (_mapping(_mapping(row.get("profiles")).get(host["os"]["id"])) for row in (former, lock))
    installed = {name for name, row in host["packages"].items() if row["status"][1:2] == "i"}
    before = _mapping(_mapping(baseline).get("packages"))
    stays = _lock_names(new) | _lock_names(list(named)) | set(before)
    had = set().union(*(_lock_names(old.get(part)) for part in _PARTS))
    gone = sorted((had - stays) & installed) if baseline is not None else []
    homes = _mapping(_mapping(old.get("cuda")).get("homes"))
    kept = _mapping(_mapping(new.get("cuda")).get("homes"))
    choices = _mapping(_mapping(_mapping(host.get("alternatives")).get("cuda")).get("choices"))
    return {
        "packages": gone,
        "homes": sorted({str(homes[version]) for version in homes if version not in kept} & set(choices)),
        "along": sorted(
            name
            for name in installed - stays
            if host["packages"][name].get("is_auto") and _is_family(name, host["packages"][name])
        ),
    }


def choose_generation(host: Mapping[str, Any], wanted: Any = "") -> int:
    """Return the generation to go back to.

    Args:
        host: ``gpu_facts_host``.
        wanted: Its number; or the digest of its lock, of which the last is taken, whatever number it has on this node;
            or empty for the last one before the present with another lock, or failing that the last.

    Raises:
        AnsibleFilterError: There is none.
    """
    rows = {int(row["number"]): row for row in host.get("generations") or []}
    name = _mapping(host.get("os")).get("hostname")
    listed = ", ".join(f"{number} ({row.get('lock_name') or row.get('kind')})" for number, row in sorted(rows.items()))
    if str(wanted).startswith("sha256:"):
        same = [number for number, row in rows.items() if number and row.get("lock_digest") == wanted]
        if not same:
            raise AnsibleFilterError(
                f"{name} has no generation with the lock {wanted} to go back to; it has: {listed or 'none'}. "
                f"A lock that a node never had is no way back: gpu-node-upgrade.yml goes to it"
            )
        return max(same)
    if str(wanted) != "":
        if not str(wanted).isdecimal() or int(wanted) not in rows or int(wanted) == 0:
            hint = " (0 is the bare node: gpu-node-remove.yml goes there)" if str(wanted) == "0" else ""
            raise AnsibleFilterError(
                f"{name} has no generation {wanted} to go back to{hint}; it has: {listed or 'none'}"
            )
        return int(wanted)
    current = _mapping(host.get("state")).get("generation") or max(rows, default=0)
    before = sorted((number for number in rows if 0 < number < int(current)), reverse=True)
    other = [
        row for row in before if rows[row].get("lock_digest") != _mapping(rows.get(int(current))).get("lock_digest")
    ]
    if not before:
        raise AnsibleFilterError(
            f"{name} has no generation before the present one to go back to; it has: {listed or 'none'}. "
            f"gpu-node-remove.yml takes everything away"
        )
    return (other or before)[0]


def list_purgeable(
    host: Mapping[str, Any], baseline: Mapping[str, Any] | None, lock: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the packages that a removal purges, and the marks that it puts back.

    What was there before the first run stays, whatever version it has now. On a node without a record and without a
    trace of a run nothing was put there, so nothing goes.

    Args:
        host: ``gpu_facts_host``.
        baseline: What ``gpu_baseline`` wrote before the first change; None where there is none. Where only the record
            is lost, what is certainly part of the GPU software goes.
        lock: Names what was planned.

    Returns:
        ``purge``, ``release`` (what the lock asked for besides, to go unless something else needs it), ``new`` (all
        that came since the baseline), ``auto`` and ``manual`` (marks to restore), ``kept`` (GPU software from before),
        ``kept_modules`` (paths of modules likewise), ``changed`` (such of another version now → its version before),
        ``lost`` (such that is not installed any more → its version before), ``accounts`` (that packages of the GPU
        software made, and leave) and ``keys`` (with which a DKMS that came along signed).
    """
    before = _mapping(_mapping(baseline).get("packages"))
    packages = host["packages"]
    family = {name for name, row in packages.items() if _is_family(name, row) and name != "dkms"}
    modules = [str(row["path"]) for rows in (host.get("modules") or {}).values() for row in rows]
    if baseline is None and not _has_trace(host):
        nothing: dict[str, Any] = {key: [] for key in _GOING}
        return {**nothing, "kept": sorted(family), "kept_modules": modules, "changed": {}, "lost": {}}
    names = _lock_names(lock or {}) | _kernel_names(lock or {})
    # What somebody had removed before, and is no more than its configuration still.
    leftovers = {
        name for name in _mapping(baseline).get("leftovers") or [] if name in packages and _is_leftover(packages[name])
    }
    stays = leftovers | set(before)
    # The driver's packages bring others of their source, whose own names do not tell.
    sources = {packages[name]["source"] for name in family if packages[name].get("source")}
    along = {name for name, row in packages.items() if _is_leftover(row) and row.get("source") in sources}
    purge = (family | (along if before else set())) - stays
    new = {name for name in packages if before and name not in stays}
    release = {
        name for name in new - purge if name in names or re.match(r"linux-(headers|kbuild|compiler)-|dkms$", name)
    }
    marks = {name: bool(row.get("is_auto")) for name, row in packages.items() if name in before}
    accounts = _mapping(baseline).get("accounts")
    kept = family & stays
    is_module_kept = any(_MODULE_PACKAGE.search(name) for name in kept - leftovers)
    return {
        "accounts": sorted(
            name
            for name, words in (host.get("accounts") or {}).items()
            if accounts is not None and name not in accounts and _FAMILY.search(f"{name} {words}".lower())
        ),
        "keys": [path for path in _DKMS_KEYS if before and "dkms" not in before and path in host["files"]],
        "purge": sorted(purge),
        "release": sorted(name for name in release if not packages[name].get("is_auto")),
        "new": sorted(new),
        "auto": sorted(name for name, is_auto in marks.items() if before[name]["is_auto"] and not is_auto),
        "manual": sorted(name for name, is_auto in marks.items() if not before[name]["is_auto"] and is_auto),
        "kept": sorted(kept),
        "kept_modules": modules if is_module_kept else list(_mapping(baseline).get("modules") or []),
        "changed": {
            name: before[name]["version"]
            for name in sorted(kept - leftovers)
            if not _is_leftover(packages[name]) and before[name]["version"] != packages[name]["version"]
        },
        "lost": {
            name: row["version"]
            for name, row in sorted(before.items())
            if _FAMILY.search(name) and (name not in packages or _is_leftover(packages[name]))
        },
    }


def split_former(
    changed: Mapping[str, str], host: Mapping[str, Any], baseline: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Divide what a removal leaves at another version into what may go back unasked and what may not.

    The set of a driver is left to its owner: its module would be built anew, which may fail, and take a restart.

    Args:
        changed: Package → its version from before the first run, as :func:`list_purgeable` has it.
        host: ``gpu_facts_host``.
        baseline: What ``gpu_baseline`` wrote before the first change.

    Returns:
        ``back`` and ``left``, package → version, in the order of names; ``auto``, those that go back and had come along
        with others: apt takes what it is asked to install for installed by hand.
    """
    packages = host["packages"]
    before = _mapping(_mapping(baseline).get("packages"))
    drivers = {
        row.get("source") or name
        for name, row in packages.items()
        if _is_family(name, row) and _MODULE_PACKAGE.search(name) and not _is_leftover(row)
    }
    rows = {name: (packages[name].get("source") or name) in drivers for name in sorted(changed)}
    return {
        "auto": [
            name for name, is_driver in rows.items() if not is_driver and _mapping(before.get(name)).get("is_auto")
        ],
        "back": {name: changed[name] for name, is_driver in rows.items() if not is_driver},
        "left": {name: changed[name] for name, is_driver in rows.items() if is_driver},
    }


def _is_leftover(row: Mapping[str, Any]) -> bool:
    """Tell whether a package is removed and its configuration is still there."""
    return str(row.get("status"))[1:2] == "c"


def _has_trace(host: Mapping[str, Any]) -> bool:
    """Tell whether anything on a node says that a run has been there."""
    return bool(host.get("state") or host.get("generations") or _own_files(host))


def _own_files(host: Mapping[str, Any]) -> list[str]:
    return [path for path in sorted(host.get("files") or {}) if "provision" in path and not _OF_OTHERS.fullmatch(path)]


def _is_family(name: str, row: Mapping[str, Any]) -> bool:
    return bool(_FAMILY.search(name) or _FAMILY.search(str(row.get("source", ""))))


def _kernel_names(lock: Mapping[str, Any]) -> set[str]:
    """Return the packages that building modules needs, which a lock names without a version."""
    found: set[str] = set()
    for profile in _mapping(lock.get("profiles")).values():
        kernel = _mapping(_mapping(profile).get("kernel"))
        found.update(str(name) for name in kernel.get("build") or [])
        found.update(str(kernel[key]) for key in ("headers", "image") if kernel.get(key))
    return found


def list_residue(host: Mapping[str, Any], removal: Mapping[str, Any], ignored: Iterable[str] = ()) -> list[str]:
    """Return what a removal left behind: packages of the GPU software, and files of ours.

    Args:
        host: ``gpu_facts_host``, read at the end.
        removal: From :func:`list_purgeable`; what it keeps is not left behind.
        ignored: Beginnings of paths that are somebody else's, or go last.
    """
    kept = {*removal["kept"], "dkms"}
    left = [
        f"package {name} {row['version']} ({row['status']})"
        for name, row in sorted(host["packages"].items())
        if name not in kept and _is_family(name, row)
    ]
    skip = tuple(ignored)
    left += [f"file {path}" for path in _own_files(host) if not path.startswith(skip)]
    left += [
        f"link {path}"
        for path, target in sorted(host["links"].items())
        if "provision" in path + target and not path.startswith(skip) and not _OF_OTHERS.fullmatch(path)
    ]
    for kernel, rows in sorted((host.get("modules") or {}).items()):
        left += [
            f"module {row['path']} of kernel {kernel}" for row in rows if row["path"] not in removal["kept_modules"]
        ]
    return left


def list_empty_folders(host: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> list[str]:
    """Return the folders that came since the baseline and hold nothing any more, the deepest first.

    Args:
        host: ``gpu_facts_host``, read after everything else was taken away.
        baseline: As in :func:`list_purgeable`; where it is lost, only folders that carry this project's name go.
    """
    folders = host.get("folders") or {}
    before = _mapping(baseline).get("folders")
    entries = {*host.get("files", {}), *host.get("links", {})}
    gone: list[str] = []
    for path in sorted(folders, key=lambda path: (-path.count("/"), path)):
        is_new = path not in before if before is not None else path.endswith("/provision")
        is_full = any(other.startswith(f"{path}/") for other in entries | (set(folders) - set(gone)))
        if is_new and not is_full:
            gone.append(path)
    return gone


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_choose_generation": choose_generation,
            "gpu_choose_python": choose_python,
            "gpu_dropped": list_dropped,
            "gpu_empty_folders": list_empty_folders,
            "gpu_expect_node": expect_node,
            "gpu_former": split_former,
            "gpu_failures_text": write_failures,
            "gpu_generation": describe_generation,
            "gpu_judge_packages": judge_packages,
            "gpu_purgeable": list_purgeable,
            "gpu_read_verdict": read_verdict,
            "gpu_residue": list_residue,
        }
