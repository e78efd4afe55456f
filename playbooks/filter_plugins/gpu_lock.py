"""Judge a lock by itself, whatever the host: whose it is, whether it was changed, and where it contradicts itself.

All problems are found in one go, each with what to do about it, and before anything of the lock is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
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


_CODE, _PROBLEMS, _UNTRUSTED = _neighbour("gpu_code"), _neighbour("gpu_problems"), _neighbour("gpu_untrusted")
_order = _neighbour("gpu").order_version
_problem = _PROBLEMS.word_problem
_list, _mapping, _matches = _UNTRUSTED.as_list, _UNTRUSTED.as_mapping, _UNTRUSTED.is_match
_find_hostile = _UNTRUSTED.find_hostile

LOCK_VERSION = 1

_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_@:.-]*")
_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
_URI = re.compile(r"(https?://|file:/|mirror\+)[^\s\"'<>\\^`{|}]+")
_SUITE = re.compile(r"[A-Za-z0-9./~+-]+")
_PIN = re.compile(r"(src:)?[a-z0-9*][a-z0-9*+.-]*")
_SHA256 = re.compile(r"(sha256:)?[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f ]{40,80}|[0-9A-Fa-f]{8}")
"""Whole, or its last digits where the facts know no more: a key of dnf is held to those, and one of apt refused."""
METHODS = ("distro", "cuda_repo", "precompiled")
OTHER_FLAVOUR = {"open": "proprietary", "proprietary": "open"}
LOCK_AGAIN = "lock again with `provision node lock`"


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
        return [_problem("`provision_lock` is not a lock: it holds no mapping with `profiles`", LOCK_AGAIN)]
    version = lock.get("lock_version")
    if version != LOCK_VERSION or isinstance(version, bool):
        return [
            _problem(
                f"`provision_lock` has lock_version {version!r:.40}, these playbooks read {LOCK_VERSION}",
                "use the playbooks that came with the program that wrote it, or " + LOCK_AGAIN,
            )
        ]
    hostile = list(_find_hostile(lock, ""))
    problems = [
        _problem(
            f"`provision_lock.{place}` holds {what}: {value!r:.60}", "such a lock was tampered with; " + LOCK_AGAIN
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
        return [_problem(f"`provision_lock` holds what no JSON can: {error}", LOCK_AGAIN)]
    if digest != real:
        problems.append(
            _problem(
                f"`provision_lock` was changed after it was written: its digest says {str(digest)[:23]}…, "
                f"its content is {real[:23]}…",
                "change the request and not the lock: " + LOCK_AGAIN,
            )
        )
    for name in sorted(lock["profiles"]):
        problems += _problems_of(lock, name)
    return problems


def _problems_of(lock: Mapping[str, Any], name: str) -> list[str]:
    return _list_profile_problems(f"profiles.{name}", lock["profiles"][name], lock)


def _list_profile_problems(place: str, profile: Any, lock: Mapping[str, Any]) -> list[str]:
    """Return what in one profile is malformed or contradicts itself."""
    if not isinstance(profile, Mapping):
        return [_problem(f"`provision_lock.{place}` is not a mapping", LOCK_AGAIN)]
    if profile.get("refusal"):
        return []
    problems = []

    def wrong(inner: str, what: str) -> None:
        problems.append(_problem(f"`provision_lock.{place}{inner}` {what}", LOCK_AGAIN))

    method = profile.get("method")
    if method not in METHODS:
        wrong(".method", f"is {method!r:.40}, not one of {', '.join(METHODS)}")
    for inner, item in find_packages(profile, ""):
        if not isinstance(item, Mapping) or not _NAME.fullmatch(str(item.get("name", ""))):
            wrong(inner, f"is not a package: {item!r:.60}")
        elif item.get("version") is not None and not _matches(VERSION, item["version"]):
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
            wrong(f".repos.components[{number}]", f"is not a component: {component!r:.60}")
    for number, pin in enumerate(_list(repos.get("pins"))):
        if not (isinstance(pin, Mapping) and _matches(VERSION, pin.get("version")) and _is_pin(pin.get("packages"))):
            wrong(f".repos.pins[{number}]", f"is not a pin: {pin!r:.80}")
    for inner, fault in _CODE.find_contradictions(lock, profile):
        wrong(inner, fault)
    driver = profile.get("driver")
    if driver is None:
        return problems
    if not isinstance(driver, Mapping) or not isinstance(driver.get("flavours"), Mapping):
        wrong(".driver", "has no flavours")
        return problems
    for name, flavour in driver["flavours"].items():
        if name not in OTHER_FLAVOUR:
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
    if not _matches(VERSION, version):
        wrong(".driver.version", f"is not a version: {version!r:.60}")
    elif floor and _order(str(version)) < _order(str(floor)):
        wrong(".driver.version", f"is {version}, but the lock's own stack needs {floor} or newer")
    elif driver.get("branch") is not None and str(version).split(".")[0] != str(driver["branch"]):
        wrong(".driver.branch", f"is {driver['branch']}, but its version is {version}")
    package_version = driver.get("package_version")
    if _matches(VERSION, version) and package_version and str(version) not in str(package_version):
        wrong(".driver.package_version", f"is {package_version}, which is not a package of {version}")
    return problems


def find_packages(value: Any, place: str) -> Iterator[tuple[str, Any]]:
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
            yield from find_packages(item, inner)


def _is_pin(packages: Any) -> bool:
    words = packages.split() if isinstance(packages, str) else packages
    return isinstance(words, list) and bool(words) and all(_matches(_PIN, word) for word in words)


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
        raise AnsibleFilterError(f"the lock of generation {number} on the node is not JSON: {error}") from error
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
            "gpu_generation_lock": read_generation_lock,
            "gpu_lock_problems": list_lock_problems,
        }
