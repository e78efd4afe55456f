"""Filters that judge a lock, a host and its variables before anything changes.

All problems are found in one go and told together, each with what to do about it. They are judged here, on the
controller and in Python, from the one document that gpu_facts brought: nothing is asked of the node again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible.errors import AnsibleFilterError
from jinja2 import pass_context

__all__ = ["FilterModule"]

# Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
_GPU = ModuleType("provision_filters_gpu")
SourceFileLoader(_GPU.__name__, str(Path(__file__).with_name("gpu.py"))).exec_module(_GPU)
_order = _GPU.order_version
_CODE = ModuleType("provision_filters_gpu_code")
SourceFileLoader(_CODE.__name__, str(Path(__file__).with_name("gpu_code.py"))).exec_module(_CODE)

LOCK_VERSION = 1
_PLAY_VARIABLES = (
    "gpu_become",
    "gpu_hosts",
    "gpu_nodes",
    "gpu_rollback_to",
    "gpu_rollout_all_or_nothing",
    "gpu_rollout_batches",
    "gpu_rollout_drain",
    "gpu_rollout_max_fail_percentage",
    "gpu_rollout_rollback",
    "gpu_rollout_undrain",
)
"""Variables of the playbooks themselves, which no role documents."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~-]*")
_RELEASE = re.compile(r"\d+\.[A-Za-z0-9.+~_-]+")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_@:.-]*")
_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
_URI = re.compile(r"(https?://|file:/|mirror\+)[^\s\"'<>\\^`{|}]+")
_SUITE = re.compile(r"[A-Za-z0-9./~+-]+")
_PIN = re.compile(r"(src:)?[a-z0-9*][a-z0-9*+.-]*")
_SHA256 = re.compile(r"(sha256:)?[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f ]{40,80}")
_MULTILINE = ("requirements",)
"""Keys of a lock whose values are whole files; elsewhere a line end is hostile."""
_METHODS = ("distro", "cuda_repo", "precompiled")
_OTHER_FLAVOUR = {"open": "proprietary", "proprietary": "open"}
_MODULE_OPTIONS = {
    "nvidia": re.compile(r"NVreg_[A-Za-z0-9_]+"),
    "nvidia-drm": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-modeset": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-peermem": re.compile(r"[a-z][a-z0-9_]*"),
    "nvidia-uvm": re.compile(r"[a-z][a-z0-9_]*"),
}
"""Modules whose options may be set, and what the names of their options look like."""

_OPTION_VALUE = re.compile(r"[A-Za-z0-9_.,:;=/+-]+")
_OPTIONS_FILE = "/etc/modprobe.d/zz-provision-gpu.conf"
_PINNED_MAX = 1000
_LOCK_AGAIN = "lock again with `provision node lock`"


def _problem(what: str, way: str) -> str:
    return f"{what}. {way[:1].upper()}{way[1:]}."


# ---------------------------------------------------------------------------------------------------- the lock alone


@pass_context
def read_raw(context: Any, name: str) -> Any:
    """Return a variable as it was written, its templates not rendered.

    A lock is data: a template in one is an attack or an accident, and looking for it must not run it.

    Args:
        context: Jinja's, with the host's variables.
        name: Of the variable.

    Returns:
        Mappings, lists and scalars; None where there is no such variable.
    """
    try:
        return _unwrap(context.parent[name])
    except KeyError:
        return None


@pass_context
def read_variables(context: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the rendered values of variables; those that cannot be rendered yet are None.

    Args:
        context: Jinja's, with the host's variables.
        names: Of the variables.
    """
    values: dict[str, Any] = {}
    for name in names:
        try:
            values[name] = _render(context.parent[name])
        except Exception:  # A default may rest on what only a later role finds out: it is judged there.
            values[name] = None
    return values


def _render(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _render(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_render(item) for item in value]
    return value


def _unwrap(value: Any) -> Any:
    # The templating engine's lazy containers render what is taken out of them by their own methods, not by dict's.
    if isinstance(value, dict):
        return {str(key): _unwrap(item) for key, item in dict.items(value)}
    if isinstance(value, list):
        return [_unwrap(item) for item in list.__iter__(value)]
    if "Lazy" in type(value).__name__:
        return _unwrap(value.value)
    return value


def digest_lock(lock: Mapping[str, Any]) -> str:
    """Return ``sha256:…`` over a lock's canonical JSON, its own ``digest`` left out."""
    document = {key: value for key, value in lock.items() if key != "digest"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def list_lock_problems(lock: Any) -> list[str]:
    """Say what is wrong with a lock, whatever the host.

    Args:
        lock: As it was written, from :func:`read_raw`.

    Returns:
        A sentence or two a problem: what, and the way out.
    """
    if lock is None:
        return [
            _problem(
                "There is no `provision_lock`",
                "write one with `provision node lock` to group_vars of the inventory, or use the playbooks' own",
            )
        ]
    if not isinstance(lock, Mapping) or not isinstance(lock.get("profiles"), Mapping):
        return [_problem("`provision_lock` is no lock: it holds no mapping with `profiles`", _LOCK_AGAIN)]
    version = lock.get("lock_version")
    if version != LOCK_VERSION or isinstance(version, bool):
        return [
            _problem(
                f"`provision_lock` has lock_version {version!r:.40}, these playbooks read {LOCK_VERSION}",
                "use the playbooks that came with the program that wrote it, or " + _LOCK_AGAIN,
            )
        ]
    hostile = list(_find_hostile(lock, ""))
    problems = [
        _problem(
            f"`provision_lock.{place}` holds {what}: {value!r:.60}", "such a lock was tampered with; " + _LOCK_AGAIN
        )
        for place, what, value in hostile
    ]
    if hostile:
        # What is wrong beside it is said too, each place once.
        named = [re.sub(r"(\[\d+\]|\.\w+)$", "", place) for place, _, _ in hostile if "." in place]
        others = [row for name in sorted(lock["profiles"]) for row in _problems_of(lock, name)]
        return problems + [row for row in others if not any(place in row for place in named)]
    digest = lock.get("digest")
    try:
        real = digest_lock(lock)
    except (TypeError, ValueError) as error:
        return [_problem(f"`provision_lock` holds what no JSON can: {error}", _LOCK_AGAIN)]
    if digest != real:
        problems.append(
            _problem(
                f"`provision_lock` was changed after it was written: its digest says {str(digest)[:23]}…, "
                f"its content is {real[:23]}…",
                "change the request and not the lock: " + _LOCK_AGAIN,
            )
        )
    for name in sorted(lock["profiles"]):
        problems += _problems_of(lock, name)
    return problems


def is_inert(lock: Any) -> bool:
    """Tell whether a lock, from :func:`read_raw`, is mere data, so that looking anything up in it runs nothing."""
    return not isinstance(lock, str) and next(_find_hostile(lock, ""), None) is None


def _problems_of(lock: Mapping[str, Any], name: str) -> list[str]:
    return _list_profile_problems(f"profiles.{name}", lock["profiles"][name], lock)


def _find_hostile(value: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Yield place, what and value of everything that no honest lock holds."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{place}.{key}" if place else str(key)
            if _TEMPLATE.search(str(key)) or _CONTROL.search(str(key)) or "\n" in str(key):
                yield place or ".", "a key that is no name", key
            else:
                yield from _find_hostile(item, inner)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _find_hostile(item, f"{place}[{number}]")
    elif isinstance(value, str):
        if _TEMPLATE.search(value):
            yield place, "a template", value
        elif _CONTROL.search(value):
            yield place, "control characters", value
        elif re.search(r"[\n\r\t]", value) and place.rpartition(".")[2] not in _MULTILINE:
            yield place, "more than one line", value
        elif re.search(r"(^|/)\.\.(/|$)", value):
            yield place, "a path that leaves its folder", value
    elif value is not None and not isinstance(value, bool | int | float):
        yield place, f"a {type(value).__name__}", value


def _list_profile_problems(place: str, profile: Any, lock: Mapping[str, Any]) -> list[str]:
    """Return what in one profile is malformed or contradicts itself."""
    if not isinstance(profile, Mapping):
        return [_problem(f"`provision_lock.{place}` is no mapping", _LOCK_AGAIN)]
    if profile.get("refusal"):
        return []
    problems = []

    def wrong(inner: str, what: str) -> None:
        problems.append(_problem(f"`provision_lock.{place}{inner}` {what}", _LOCK_AGAIN))

    method = profile.get("method")
    if method not in _METHODS:
        wrong(".method", f"is {method!r:.40}, not one of {', '.join(_METHODS)}")
    for inner, item in _find_packages(profile, ""):
        if not isinstance(item, Mapping) or not _NAME.fullmatch(str(item.get("name", ""))):
            wrong(inner, f"is no package: {item!r:.60}")
        elif item.get("version") is not None and not _matches(_VERSION, item["version"]):
            wrong(inner, f"has a version that is none: {item['version']!r:.60}")
    repos = _mapping(profile.get("repos"))
    for number, source in enumerate(_list(repos.get("sources"))):
        inner = f".repos.sources[{number}]"
        if not isinstance(source, Mapping) or not _matches(_ID, source.get("id")):
            wrong(inner, "has no id of letters, digits and dashes")
            continue
        key = _mapping(source.get("key"))
        if not _matches(_URI, source.get("uri")):
            wrong(inner, f"has no address that apt reads: {source.get('uri')!r:.80}")
        if not _matches(_SUITE, source.get("suite", "/")):
            wrong(inner, f"has a suite that is none: {source.get('suite')!r:.60}")
        if key.get("sha256") is not None and not _matches(_SHA256, key["sha256"]):
            wrong(inner, f"has a sha256 that is none: {key['sha256']!r:.80}")
        if key.get("fingerprint") is not None and not _matches(_FINGERPRINT, key["fingerprint"]):
            wrong(inner, f"has a fingerprint that is none: {key['fingerprint']!r:.80}")
        if not key.get("sha256") and not key.get("fingerprint"):
            wrong(inner, "names neither sha256 nor fingerprint of its key, so nothing can be checked")
    for number, component in enumerate(_list(repos.get("components"))):
        if not _matches(_SUITE, component):
            wrong(f".repos.components[{number}]", f"is no component: {component!r:.60}")
    for number, pin in enumerate(_list(repos.get("pins"))):
        if not (isinstance(pin, Mapping) and _matches(_VERSION, pin.get("version")) and _is_pin(pin.get("packages"))):
            wrong(f".repos.pins[{number}]", f"is no pin: {pin!r:.80}")
    for inner, fault in _CODE.find_contradictions(lock, profile):
        wrong(inner, fault)
    driver = profile.get("driver")
    if driver is None:
        return problems
    if not isinstance(driver, Mapping) or not isinstance(driver.get("flavours"), Mapping):
        wrong(".driver", "has no flavours")
        return problems
    for name, flavour in driver["flavours"].items():
        if name not in _OTHER_FLAVOUR:
            wrong(f".driver.flavours.{name}", "is neither open nor proprietary")
        elif not isinstance(flavour, Mapping) or not _list(flavour.get("packages")):
            wrong(f".driver.flavours.{name}", f"has no packages, so method {method} has nothing to install")
        elif not _matches(_MODULE, flavour.get("module", "nvidia")):
            wrong(f".driver.flavours.{name}", f"has a module name that is none: {flavour.get('module')!r:.60}")
    if not driver["flavours"]:
        wrong(".driver.flavours", "is empty, so there is no module to install")
    for section in ("driver", "fabric", "imex", "dcgm"):
        for unit in _list(_mapping(profile.get(section)).get("services")):
            if not _matches(_UNIT, unit):
                wrong(f".{section}.services", f"names a unit that is none: {unit!r:.60}")
    floor = _mapping(lock.get("stack")).get("driver_minimum")
    version = driver.get("version")
    if not _matches(_VERSION, version):
        wrong(".driver.version", f"is no version: {version!r:.60}")
    elif floor and _order(str(version)) < _order(str(floor)):
        wrong(".driver.version", f"is {version}, but the lock's own stack needs {floor} or newer")
    elif driver.get("branch") is not None and str(version).split(".")[0] != str(driver["branch"]):
        wrong(".driver.branch", f"is {driver['branch']}, but its version is {version}")
    package_version = driver.get("package_version")
    if _matches(_VERSION, version) and package_version and str(version) not in str(package_version):
        wrong(".driver.package_version", f"is {package_version}, which is no package of {version}")
    return problems


def _find_packages(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield place and item of every list of packages in a profile."""
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        inner = f"{place}.{key}"
        parent = place.rpartition(".")[2]
        if isinstance(item, list) and (key in ("packages", "inbox") or parent in ("packages", "profiles", "compat")):
            for number, row in enumerate(item):
                yield f"{inner}[{number}]", row
        else:
            yield from _find_packages(item, inner)


def _is_pin(packages: Any) -> bool:
    words = packages.split() if isinstance(packages, str) else packages
    return isinstance(words, list) and bool(words) and all(_matches(_PIN, word) for word in words)


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# ------------------------------------------------------------------------------------------------------- variables


def list_known_variables(roles: str) -> list[str]:
    """Return every variable that the roles document, and those that their tasks set for each other.

    Args:
        roles: Folder of the roles, on the controller.

    Returns:
        Names, sorted.
    """
    return list(_read_known(str(Path(roles).resolve())))


@lru_cache(maxsize=4)
def _read_known(roles: str) -> tuple[str, ...]:
    import yaml

    known = set(_PLAY_VARIABLES)
    for path in sorted(Path(roles).glob("gpu_*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for entry in _mapping(specs.get("argument_specs")).values():
            known.update(_mapping(entry.get("options")))
    folders = ("tasks", "defaults", "handlers", "vars")
    for path in sorted(path for folder in folders for path in Path(roles).glob(f"gpu_*/{folder}/**/*.yml")):
        text = path.read_text(encoding="utf-8")
        known.update(re.findall(r"^[ -]*(gpu_[a-z0-9_]+):", text, re.MULTILINE))
        known.update(re.findall(r"^\s+(?:register|loop_var|index_var): [\"']?(gpu_[a-z0-9_]+)", text, re.MULTILINE))
    # What the plays make for themselves before the preflight, as a rollback does.
    for path in sorted([*Path(roles).parent.glob("gpu-node*.yml"), *Path(roles).parent.glob("tasks/*.yml")]):
        known.update(re.findall(r"\b(gpu_node_[a-z0-9_]+)\b", path.read_text(encoding="utf-8")))
    return tuple(sorted(known))


def list_variable_problems(values: Mapping[str, Any], known: Iterable[str], ignored: Iterable[str] = ()) -> list[str]:
    """Say which of a host's variables no role knows, and which hold what no honest one does.

    Args:
        values: Name → rendered value of every variable that begins with ``gpu_``.
        known: From :func:`list_known_variables`.
        ignored: Names that belong to somebody else.

    Returns:
        A sentence or two a problem, sorted by name.
    """
    names = set(known)
    problems = []
    for name in sorted(set(values) - set(ignored)):
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.75)
            problems.append(
                _problem(
                    f"No role knows the variable `{name}`",
                    (f"did you mean `{near[0]}`? Take that, " if near else "")
                    + "remove it, or name it in `gpu_preflight_ignored_variables` where it is yours",
                )
            )
            continue
        problems += [
            _problem(f"`{place}` holds {what}: {value!r:.60}", "write it as plain text")
            for place, what, value in _find_hostile(values[name], name)
            if what in ("a template", "control characters", "a path that leaves its folder")
        ]
    return problems


# ------------------------------------------------------------------------------------------------------------- host


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
            _problem(f"`gpu_driver_version` is {str(asked)!r:.60}, which is no version", "leave it to the lock")
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
                f"`gpu_kernel_policy` is pin, and `gpu_kernel_version` {release!r:.60} is no release of a kernel",
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
                    f"gpu_driver_module_options: {key!r} is no option of {name}; `modinfo -p` lists them"
                )
            if not _OPTION_VALUE.fullmatch(text):
                raise AnsibleFilterError(f"gpu_driver_module_options: {text!r} cannot be the value of {key}")
            words.append(f"{key}={text}")
        real = name.replace("nvidia", module or "nvidia", 1)
        lines.append(f"options {real} {' '.join(words)}\n" if words else "")
    text = "".join(lines)
    return f"# Managed by provision (role gpu_driver).\n{text}" if text else ""


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


_OURS = re.compile(r"nvidia|cuda|cudnn|nccl|datacenter-gpu-manager|^libnv(?!me|pair)|^dkms$|^linux-(headers|kbuild)-")


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


def number_lines(problems: Iterable[str]) -> str:
    """Return problems one a line, numbered from 1."""
    return "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, start=1))


def read_generation_lock(document: Any, number: Any) -> dict[str, Any]:
    """Return the lock of a generation, checked as any other.

    Args:
        document: Text of its ``lock.json``.
        number: Of the generation, for messages.

    Raises:
        AnsibleFilterError: It is damaged.
    """
    try:
        lock = json.loads(document)
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"the lock of generation {number} on the node is no JSON: {error}") from error
    problems = list_lock_problems(lock)
    if problems:
        raise AnsibleFilterError(f"the lock of generation {number} on the node is unusable: {' '.join(problems)}")
    result: dict[str, Any] = lock
    return result


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_baseline": describe_baseline,
            "gpu_decide_flavour": decide_flavour,
            "gpu_driver_options": render_options,
            "gpu_generation_lock": read_generation_lock,
            "gpu_host_problems": list_host_problems,
            "gpu_known_variables": list_known_variables,
            "gpu_is_inert": is_inert,
            "gpu_lock_problems": list_lock_problems,
            "gpu_numbered": number_lines,
            "gpu_raw": read_raw,
            "gpu_users": find_users,
            "gpu_variable_problems": list_variable_problems,
            "gpu_variables": read_variables,
        }
