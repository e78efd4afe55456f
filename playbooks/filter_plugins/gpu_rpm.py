"""Filters that turn a lock's repositories into dnf's files, and say what of them a node lacks.

Repositories get a file and a key of their own; a version lock keeps the packages of the lock at their versions. The
file of version locks belongs to the node's owner too: one block of it is ours.
"""

from __future__ import annotations

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


_list_fingerprints = _neighbour("gpu_repos").list_fingerprints

_REPOSITORIES = "/etc/yum.repos.d"
_KEYS = "/etc/pki/rpm-gpg"
_LOCKS = "/etc/dnf/plugins/versionlock.list"
_STREAMS = "/etc/dnf/modules.d/nvidia-driver.module"
_CA = "/etc/provision/repositories-ca.pem"
_HEADER = "# Written by provision; a change here is undone by the next run.\n"
_BEGIN, _END = "# provision: begin\n", "# provision: end\n"
_BLOCK = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_ADDRESS = re.compile(r"(https?://|file:/)[^\s\"'<>\\^`{|}]+")
_ROOT = re.compile(r"^[a-z+]+://[^/]+")


def list_needed_keys(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the signing keys whose text the controller must find: rows with ``id``, ``url`` and ``given``."""
    needed = []
    for source in _sources(profile, settings):
        given = str((settings.get("keys") or {}).get(source["id"], ""))
        if not given and _key(source["id"]) in host["files"]:
            continue
        url, uri = str((source.get("key") or {}).get("url") or ""), str(source["uri"])
        if url.startswith(uri):
            url = _mirrored(source, settings) + url[len(uri) :]
        elif isinstance(settings.get("mirror"), str) and settings["mirror"]:
            url = _ROOT.sub(lambda _: str(settings["mirror"]).rstrip("/"), url, count=1)
        needed.append({"id": source["id"], "url": url, "given": given})
    return needed


def plan_repositories(
    host: Mapping[str, Any],
    profile: Mapping[str, Any],
    settings: Mapping[str, Any],
    keys: Mapping[str, str],
    flavour: str = "",
) -> dict[str, Any]:
    """Return dnf's files for a host.

    Args:
        host: ``gpu_facts_host``.
        profile: The lock's part for the host's OS.
        settings: As of role gpu_repos: ``mirror``, ``offline``, ``proxy``, ``ca`` (text), ``keys``, ``has_pins``,
            ``without``.
        keys: Source → text of its key, for those of :func:`list_needed_keys`.
        flavour: ``open`` or ``proprietary``; the module stream depends on it.

    Returns:
        ``files`` for gpu_facts' write, ``ids`` of the repositories, ``stream`` that is to be enabled (None where the
        right one is, or where the system has none), ``fingerprints`` and ``problems``.
    """
    problems: list[str] = []
    files: list[dict[str, Any]] = []
    sources = _sources(profile, settings)
    authority = str(settings.get("ca") or "")
    for source in sources:
        name = source["id"]
        if name in keys:
            problems += _key_problems(name, keys[name], source.get("key") or {})
            files.append({"path": _key(name), "content": keys[name]})
        uri = _mirrored(source, settings)
        text = _stanza(source, uri, settings)
        is_secret = bool(re.search(r"://[^/\s]*@", text))
        files.append({"path": f"{_REPOSITORIES}/provision-{name}.repo", "content": text, "is_secret": is_secret})
    if settings.get("offline"):
        files.append({"path": f"{_REPOSITORIES}/provision-offline.repo", "content": _offline(str(settings["offline"]))})
    files.append({"path": _CA, "content": authority} if authority else {"path": _CA, "state": "absent"})
    files += _lock_files(host, profile, settings)
    wanted = {item["path"] for item in files} | {_key(source["id"]) for source in sources}
    files += [
        {"path": path, "state": "absent"}
        for path in sorted(host["files"])
        if re.match(rf"({_REPOSITORIES}|{_KEYS})/provision-", path) and path not in wanted
    ]
    if settings.get("foreign") != "keep":
        problems += [
            f"{row['file']} has packages of NVIDIA too ({row['uri']}), and two sources of one driver contradict each "
            "other: disable it, or say `gpu_repos_foreign: keep`."
            for row in (host.get("foreign") or {}).get("repos") or []
        ]
    return {
        "files": files,
        "ids": [f"provision-{source['id']}" for source in sources] or ["provision-offline"],
        "stream": _missing_stream(host, profile, flavour),
        "problems": problems,
    }


def find_held(words: Iterable[str], host: Mapping[str, Any], is_allowed: bool) -> list[str]:
    """Say which packages that are to be installed somebody else's version lock holds.

    Args:
        words: ``NAME`` or ``NAME=VERSION``.
        host: ``gpu_facts_host``; its ``holds`` are the lines of others.
        is_allowed: Whether holds are lifted.
    """
    if is_allowed:
        return []
    problems = []
    for word in words:
        name, _, version = word.partition("=")
        for line in host.get("holds") or []:
            held = re.match(r"!?(.+?)-(?:\d+:)?\d[^-]*-[^-]+$", str(line))
            if held and held[1] == name and version and version.partition(":")[2] not in line and version not in line:
                problems.append(
                    f"{name} is held by the version lock {line}: delete it on the node (`dnf versionlock delete`), or "
                    "say gpu_repos_allow_held"
                )
    return problems


def list_fingerprints(profile: Mapping[str, Any]) -> list[str]:
    """Return the fingerprints of the keys that a profile's repositories have."""
    sources = ((profile.get("repos") or {}).get("sources")) or []
    return [str(row["key"]["fingerprint"]) for row in sources if (row.get("key") or {}).get("fingerprint")]


def _sources(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    if settings.get("offline"):
        return []
    rows = ((profile.get("repos") or {}).get("sources")) or []
    needed = [row for row in rows if not row.get("for") or any(profile.get(part) for part in row["for"])]
    return [row for row in needed if row["id"] not in (settings.get("without") or [])]


def _key(name: str) -> str:
    return f"{_KEYS}/provision-{name}.asc"


def _mirrored(source: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    mirror, uri = settings.get("mirror"), str(source["uri"])
    if isinstance(mirror, Mapping):
        found = str(mirror.get(source["id"], uri))
    else:
        found = _ROOT.sub(lambda _: str(mirror).rstrip("/"), uri, count=1) if mirror else uri
    if not _ADDRESS.fullmatch(found):
        raise AnsibleFilterError(
            f"`gpu_repos_mirror` must hold addresses such as https://mirror.example, not {found!r:.80}"
        )
    return found


def _stanza(source: Mapping[str, Any], uri: str, settings: Mapping[str, Any]) -> str:
    is_metadata = source.get("signs") == "metadata"
    lines = [
        f"[provision-{source['id']}]",
        f"name=provision-{source['id']}",
        f"baseurl={uri}",
        "enabled=1",
        f"gpgcheck={0 if is_metadata else 1}",
        f"repo_gpgcheck={1 if is_metadata else 0}",
        f"gpgkey=file://{_key(source['id'])}",
        "skip_if_unavailable=0",
    ]
    proxy = str(settings.get("proxy") or "")
    host = re.match(r"https?://(?:[^/@]*@)?([^/:]+)", uri)
    if proxy and host and host[1] not in (settings.get("no_proxy") or []):
        if not re.fullmatch(r"(https?|socks5h)://[^\s\"'\\;{}]+", proxy):
            raise AnsibleFilterError(
                f"`gpu_repos_proxy` must be an address such as http://proxy.example:3128, not {proxy!r:.60}"
            )
        lines.append(f"proxy={proxy}")
    if settings.get("ca") and uri.startswith("https://"):
        if "-----BEGIN CERTIFICATE-----" not in str(settings["ca"]):
            raise AnsibleFilterError("`gpu_repos_ca` names no file with certificates in PEM")
        lines.append(f"sslcacert={_CA}")
    return _HEADER + "\n".join(lines) + "\n"


def _offline(place: str) -> str:
    path = re.sub(r"^file:/*", "/", place)
    if not path.startswith("/") or re.search(r"[\s\"'\\]|(^|/)\.\.(/|$)", path):
        raise AnsibleFilterError(
            f"`gpu_repos_offline` must be an absolute folder on the node or its file:// address, not {place!r}"
        )
    # Whoever can write to this folder is root on the node already: there is nobody a signature would protect from.
    stanza = f"[provision-offline]\nname=provision-offline\nbaseurl=file://{path.rstrip('/')}/\nenabled=1\ngpgcheck=0\n"
    return _HEADER + stanza


def _lock_files(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the file of version locks with our block at its end; others' lines stay."""
    found = host["files"].get(_LOCKS) or {}
    if found and "text" not in found:
        return []
    others = _BLOCK.sub("", found.get("text", ""))
    lines = [
        f"{name}-{pin['version']}.*"
        for pin in (profile.get("repos") or {}).get("pins") or []
        for name in str(pin["packages"]).split()
    ]
    block = _BEGIN + "\n".join(lines) + "\n" + _END if lines and settings.get("has_pins", True) else ""
    if others and not others.endswith("\n"):
        others += "\n"
    if not others and not block:
        return [{"path": _LOCKS, "state": "absent"}] if found.get("text") else []
    kept = {key: found[key] for key in ("mode", "owner", "group") if key in found}
    return [{**kept, "path": _LOCKS, "content": others + block}]


def _missing_stream(host: Mapping[str, Any], profile: Mapping[str, Any], flavour: str) -> str | None:
    """Return the module stream to enable, None where it is enabled or the system has no streams."""
    flavours = (profile.get("driver") or {}).get("flavours") or {}
    row = flavours.get(flavour) or next(iter(flavours.values()), {})
    wanted = row.get("stream")
    if not wanted:
        return None
    text = str((host["files"].get(_STREAMS) or {}).get("text", ""))
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    is_enabled = said.get("stream", "").strip() == wanted and said.get("state", "").strip() == "enabled"
    return None if is_enabled else str(wanted)


def _key_problems(name: str, text: str, key: Mapping[str, Any]) -> list[str]:
    """Say why a key is not the one that the lock names; of some the facts know the last digits alone."""
    wanted = re.sub(r"\s", "", str(key.get("fingerprint") or "")).upper()
    where = key.get("url") or "`gpu_repos_keys`"
    try:
        found = _list_fingerprints(text)
    except AnsibleFilterError as error:
        return [f"repository {name}: what {where} gives is not a key: {error}."]
    if wanted and not (len(found) == 1 and found[0].endswith(wanted)):
        return [
            f"repository {name}: its key is {', '.join(found)}, and the lock promises {wanted}: it was replaced or "
            "tampered with. Compare with what the vendor publishes, then lock again."
        ]
    return []


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_rpm_fingerprints": list_fingerprints,
            "gpu_rpm_held": find_held,
            "gpu_rpm_needed_keys": list_needed_keys,
            "gpu_rpm_plan": plan_repositories,
        }
