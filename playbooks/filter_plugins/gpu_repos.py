"""Filters that turn a lock's repositories into apt's files, from what is on the node and without asking it again.

Components go into the host's own sources, whatever mirror those name; repositories of others get a file and a keyring
of their own. A file that was there before is edited as little as possible, and its original is kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

_SOURCES = "/etc/apt/sources.list.d"
_KEYRINGS = "/etc/apt/keyrings"
_PREFERENCES = "/etc/apt/preferences.d/provision-gpu"
_UPGRADES = "/etc/apt/apt.conf.d/52provision-gpu"
_NETWORK = "/etc/apt/apt.conf.d/90provision-network"
_CA = "/etc/provision/repositories-ca.pem"
_NEEDRESTART = "/etc/needrestart/conf.d/provision-gpu.conf"
_BASELINE = "/var/lib/provision/baseline/files"
_PIN_PRIORITY = 1001
_HEADER = "# Written by provision; a change here is undone by the next run.\n"
_MARK = "# provision: "
"""Before a line of the host's own that competes with the lock's repositories."""

_LINE = re.compile(
    r"^(?P<head>\s*deb\s+(?P<options>\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+)(?P<rest>[^#\n]*?)(?P<tail>\s*(#.*)?)$"
)
_OWN_KEYRING = re.compile(r"(debian|ubuntu)-archive")
_SIGNED_BY = re.compile(r"\bsigned-by\s*=", re.IGNORECASE)
_PERSONAL = re.compile(r"://(?:[^/@]*@)?ppa\.")
"""Personal archives end their addresses like the distribution's own."""
_OFF = ("no", "false", "without", "off", "disable", "0")
"""What apt takes for no."""
_ADDRESS = re.compile(r"(https?://|file:/|copy:/|mirror\+)[^\s\"'<>\\^`{|}]+")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~*-]*")
_OWN_PATH = re.compile(r"(^|/)(debian|debian-security|ubuntu|ubuntu-ports)(\.list)?(/|$)")
_GUARDED = ("nvidia", "libnvidia", "libcuda", "cuda-", "libcudnn", "libnccl", "datacenter-gpu-manager")
"""What every part of the driver and the toolkits begins with; names that the lock knows are added."""
_ROOT = re.compile(r"^[a-z+]+://[^/]+")


# ------------------------------------------------------------------------------------------------------------- plan


def list_needed_keys(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the signing keys whose text the controller must find before the files can be planned.

    A key that the node already has, as the lock's sha256 says, is not looked for again.

    Args:
        host: ``gpu_facts_host``.
        profile: The lock's part for the host's OS.
        settings: ``offline``, ``mirror``, ``keys``.

    Returns:
        Rows with ``id``, ``url`` and ``given`` (what the user named instead, or an empty text).
    """
    needed = []
    for source in _third_parties(profile, settings):
        key = source.get("key") or {}
        given = str((settings.get("keys") or {}).get(source["id"], ""))
        found = host["files"].get(_keyring(source["id"]))
        wanted = _bare_digest(key.get("sha256"))
        if not given and found is not None and wanted in (None, found["sha256"]):
            continue
        url = str(key.get("url") or "")
        if url.startswith(str(source["uri"])):
            url = _mirrored(source, settings) + url[len(str(source["uri"])) :]
        elif isinstance(settings.get("mirror"), str) and settings["mirror"]:
            url = _moved(url, settings["mirror"])
        needed.append({"id": source["id"], "url": url, "given": given})
    return needed


def plan_repositories(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any], keys: Mapping[str, str]
) -> dict[str, Any]:
    """Return apt's files for a host.

    Args:
        host: ``gpu_facts_host``.
        profile: The lock's part for the host's OS.
        settings: ``mirror``, ``offline``, ``proxy``, ``no_proxy``, ``ca`` (text), ``keys``, ``archives``, ``foreign``,
            ``has_pins``, ``has_guard``, ``driver_version``, ``components``.
        keys: Source → text of its key, for those of :func:`list_needed_keys`.

    Returns:
        ``files`` and ``originals`` for gpu_facts' write, ``watched`` (addresses whose failure counts) and ``problems``.
    """
    problems: list[str] = []
    edited = _edit_own(host, profile, settings, problems)
    files = [*edited["files"]]
    watched = [*edited["watched"]]
    sources = _third_parties(profile, settings)
    for source in sources:
        name = source["id"]
        if name in keys:
            text = _checked_key(name, keys[name], source.get("key") or {}, problems)
            files.append({"path": _keyring(name), "content": text})
        uri = _mirrored(source, settings)
        watched.append(uri)
        item = {"path": f"{_SOURCES}/provision-{name}.sources", "content": _stanza(source, uri)}
        # An address may hold a password, which belongs into no diff.
        files.append({**item, "is_secret": True} if re.search(r"://[^/]*@", uri) else item)
    if settings.get("offline"):
        uri = _offline_uri(str(settings["offline"]))
        watched.append(uri)
        files.append({"path": f"{_SOURCES}/provision-offline.sources", "content": _offline_stanza(uri)})
    files += _network_files(settings, [_mirrored(source, settings) for source in sources])
    pins = _pins(profile, settings)
    files.append({"path": _PREFERENCES, "content": pins} if pins else {"path": _PREFERENCES, "state": "absent"})
    files += _guard_files(host, profile, settings)
    planned = {item["path"] for item in files}
    for path in sorted(host["files"]):
        if re.match(rf"({_SOURCES}|{_KEYRINGS})/provision-", path) and path not in planned:
            kept = {_keyring(source["id"]) for source in sources}
            if path not in kept:
                files.append({"path": path, "state": "absent"})
    return {"files": files, "originals": edited["originals"], "watched": watched, "problems": problems}


def plan_restore(drifted: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return how to take back files that were just written, since what they say turned out unusable.

    Args:
        drifted: The files that were written.
        host: ``gpu_facts_host`` from before they were.

    Returns:
        Items for gpu_facts' write; a file whose former text is not known is left alone.
    """
    back = []
    for item in drifted:
        found = host["files"].get(item["path"])
        if item["path"].startswith(_BASELINE):
            continue
        if found is None and item.get("state", "present") == "present":
            back.append({"path": item["path"], "state": "absent"})
        elif found is not None and "text" in found:
            back.append({**_attributes(found), "path": item["path"], "content": found["text"]})
    return back


def list_sources(files: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths of those files that decide which lists apt reads, and how it gets them."""
    places = (_SOURCES, _KEYRINGS, _NETWORK, "/etc/apt/sources.list", _CA)
    return [item["path"] for item in files if item["path"].startswith(places)]


def _attributes(found: Mapping[str, Any]) -> dict[str, str]:
    return {"mode": found["mode"], "owner": found["owner"], "group": found["group"]}


def _third_parties(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the repositories of others that the node is to have: none where all comes from a folder."""
    if settings.get("offline"):
        return []
    sources = ((profile.get("repos") or {}).get("sources")) or []
    without = settings.get("without") or []
    needed = [row for row in sources if not row.get("for") or any(profile.get(part) for part in row["for"])]
    return [row for row in needed if row["id"] not in without]


def _keyring(name: str) -> str:
    return f"{_KEYRINGS}/provision-{name}.asc"


def _moved(uri: str, base: str) -> str:
    """Return an address with its scheme and host replaced by a mirror's base."""
    return _ROOT.sub(lambda _: base.rstrip("/"), uri, count=1)


def _mirrored(source: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    mirror = settings.get("mirror")
    uri = str(source["uri"])
    if isinstance(mirror, Mapping):
        found = str(mirror.get(source["id"], uri))
    else:
        found = _moved(uri, str(mirror)) if mirror else uri
    if not _ADDRESS.fullmatch(found):
        raise AnsibleFilterError(
            f"`gpu_repos_mirror` must hold addresses such as https://mirror.example, not {found!r:.80}"
        )
    return found


def _stanza(source: Mapping[str, Any], uri: str) -> str:
    suite = str(source.get("suite") or "/")
    lines = [_HEADER + "Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    components = source.get("components") or []
    if components and not suite.endswith("/"):
        lines.append(f"Components: {' '.join(components)}")
    lines.append(f"Signed-By: {_keyring(source['id'])}")
    return "\n".join(lines) + "\n"


def _offline_uri(place: str) -> str:
    path = re.sub(r"^(file|copy):/*", "/", place)
    if not path.startswith("/") or re.search(r"[\s\"'\\]|(^|/)\.\.(/|$)", path):
        raise AnsibleFilterError(
            f"`gpu_repos_offline` must be an absolute folder on the node or its file:// address, not {place!r}"
        )
    return f"file:{path.rstrip('/')}/"


def _offline_stanza(uri: str) -> str:
    # Whoever can write to this folder is root on the node already: there is nobody a signature would protect from.
    return _HEADER + f"Types: deb\nURIs: {uri}\nSuites: ./\nTrusted: yes\n"


# ------------------------------------------------------------------------------------------------ the host's sources


def _edit_own(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    components = [] if settings.get("offline") else list((profile.get("repos") or {}).get("components") or [])
    result: dict[str, Any] = {"files": [], "originals": [], "watched": []}
    foreign = {}
    if settings.get("foreign") == "replace":
        for row in (host.get("foreign") or {}).get("repos", []):
            foreign.setdefault(row["file"], []).append(row["uri"])
    is_own_found = False
    secret: list[str] = []
    for path, row in sorted(host["files"].items()):
        is_list = path == "/etc/apt/sources.list" or (path.startswith(_SOURCES + "/") and path.endswith(".list"))
        if not is_list and not (path.startswith(_SOURCES + "/") and path.endswith(".sources")):
            continue
        if "/provision-" in path:
            continue
        if "text" not in row:
            if row.get("has_secret"):
                secret.append(path)
            continue
        edit = _edit_lines if is_list else _edit_stanzas
        text, uris = edit(row["text"], components, host["os"].get("codename"), settings, foreign.get(path, []))
        is_own_found = is_own_found or bool(uris)
        if components:
            result["watched"] += [uri for uri in uris if uri not in result["watched"]]
        if text == row["text"]:
            continue
        if "\ufffd" in row["text"]:
            problems.append(f"{path} is not UTF-8 text and so cannot be edited safely: mend it first.")
            continue
        result["files"].append({**_attributes(row), "path": path, "content": text})
        copy = _BASELINE + path
        if copy not in host["files"]:
            result["originals"].append({"path": copy, "content": row["text"], "mode": "0600"})
    if components and not is_own_found and secret:
        problems.append(
            f"{', '.join(secret)} holds a password in an address, so it was not read, and {', '.join(components)} "
            f"cannot be added: move the password to a file in /etc/apt/auth.conf.d."
        )
    elif components and not is_own_found:
        problems.append(
            f"none of this node's apt sources was recognised as the distribution's own archive, so that "
            f"{', '.join(components)} can be added to none: name its address in `gpu_repos_archives`."
        )
    return result


def _is_own(
    uri: str, suite: str, components: list[str], signed_by: str, codename: str | None, settings: Mapping[str, Any]
) -> bool:
    if "main" not in components or suite.endswith("/"):
        return False
    release = re.split(r"[-/]", suite)[0]
    if codename and release not in (codename, "stable", "oldstable", "testing"):
        return False
    if any(uri.rstrip("/").startswith(str(item).rstrip("/")) for item in settings.get("archives") or []):
        return True
    if signed_by:
        # Vendors name the system in their paths too; their key tells them apart.
        return bool(_OWN_KEYRING.search(signed_by))
    return bool(_OWN_PATH.search(uri)) and not _PERSONAL.search(uri)


def _edit_lines(
    text: str, components: list[str], codename: str | None, settings: Mapping[str, Any], foreign: list[str]
) -> tuple[str, list[str]]:
    """Return a ``sources.list`` with components added, and the addresses of the host's own archive in it."""
    lines, own = [], []
    for line in text.split("\n"):
        match = _LINE.match(line)
        if line.split()[:1] == ["deb"] and any(uri in line.split() for uri in foreign):
            lines.append(_MARK + line)
            continue
        if not match:
            lines.append(line)
            continue
        have = match["rest"].split()
        signed_by = match["options"] if _SIGNED_BY.search(match["options"] or "") else ""
        if not _is_own(match["uri"], match["suite"], have, signed_by, codename, settings):
            lines.append(line)
            continue
        own.append(match["uri"])
        more = [name for name in components if name not in have]
        lines.append(match["head"] + " ".join([match["rest"].rstrip(), *more]) + match["tail"] if more else line)
    return "\n".join(lines), list(dict.fromkeys(own))


def _edit_stanzas(
    text: str, components: list[str], codename: str | None, settings: Mapping[str, Any], foreign: list[str]
) -> tuple[str, list[str]]:
    """Return a deb822 file likewise; comments, order and wrapping stay."""
    own: list[str] = []
    parts = re.split(r"(\n[ \t]*\n+)", text)
    for number in range(0, len(parts), 2):
        fields = _read_stanza(parts[number])
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in _OFF:
            continue
        uris, have = fields.get("uris", "").split(), fields.get("components", "").split()
        if any(uri in uris for uri in foreign):
            end = "" if parts[number].endswith("\n") or number + 1 < len(parts) else "\n"
            parts[number] = f"{parts[number]}{end}" if _MARK in parts[number] else _disabled(parts[number])
            continue
        suites = fields.get("suites", "").split()
        signed_by = fields.get("signed-by", "")
        if not any(_is_own(uri, suite, have, signed_by, codename, settings) for uri in uris for suite in suites):
            continue
        own += uris
        more = [name for name in components if name not in have]
        if more:
            parts[number] = re.sub(
                r"(?im)^(components:[^\n]*(?:\n[ \t]+[^\n]*)*)",
                lambda found, more=more: found[1].rstrip() + " " + " ".join(more),
                parts[number],
                count=1,
            )
    return "".join(parts), list(dict.fromkeys(own))


def _disabled(stanza: str) -> str:
    # apt takes the last word of two, so one that is there is put out of the way.
    stanza = re.sub(r"(?im)^(?=enabled[ \t]*:)", _MARK, stanza)
    body = stanza.rstrip("\n")
    return f"{_MARK}disabled\nEnabled: no\n{body}" + stanza[len(body) :]


def _read_stanza(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in " \t" and name:
            fields[name] += " " + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def restore_original(current: str | None, original: str) -> str | None:
    """Return what an edited source file becomes when the edit is taken back.

    Args:
        current: Its text now, None where it is gone.
        original: Its text from before the first edit.

    Returns:
        The original where nobody else changed the file since; None where somebody did, and it is left to them.
    """
    if current is None:
        return None
    return original if _without_components(current) == _without_components(original) else None


def list_originals(host: Mapping[str, Any], slurped: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the edited files with the content they had before.

    Args:
        host: ``gpu_facts_host``.
        slurped: Results of reading the copies, with ``source`` and ``content`` in base64.

    Returns:
        ``files`` to write, and ``left``: paths that somebody else changed since.
    """
    result: dict[str, Any] = {"files": [], "left": []}
    for row in slurped:
        path = str(row["source"]).removeprefix(_BASELINE)
        found = host["files"].get(path) or {}
        original = base64.b64decode(row["content"]).decode()
        text = restore_original(found.get("text"), original)
        if text is None:
            result["left"].append(path)
        elif text != found["text"]:
            result["files"].append({**_attributes(found), "path": path, "content": text})
    return result


def _without_components(text: str) -> str:
    text = text.replace(f"{_MARK}disabled\nEnabled: no\n", "").replace(_MARK, "")
    text = re.sub(r"(?im)^(components:)[^\n]*(\n[ \t]+[^\n]*)*", r"\1", text)
    return "\n".join(
        f"{match['head']}{match['tail'].strip()}" if (match := _LINE.match(line)) else line for line in text.split("\n")
    )


# -------------------------------------------------------------------------------------------------------- other files


def _pins(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the preferences: what the lock names is taken at its version, back as well as forward, and kept there."""
    if not settings.get("has_pins", True):
        return ""
    driver = profile.get("driver") or {}
    override, planned = str(settings.get("driver_version") or ""), driver.get("package_version")
    if override in (planned, driver.get("version")):
        override = ""
    if override and not _VERSION.fullmatch(override):
        raise AnsibleFilterError(f"`gpu_driver_version` must be a version, not {override!r:.60}")
    if override and "-" not in override:
        override += "-*"
    stanzas = []
    for pin in (profile.get("repos") or {}).get("pins") or []:
        words = pin["packages"] if isinstance(pin["packages"], str) else " ".join(pin["packages"])
        version = override if override and pin["version"] == planned else pin["version"]
        priority = pin.get("priority", _PIN_PRIORITY)
        stanzas.append(f"Package: {words}\nPin: version {version}\nPin-Priority: {priority}\n")
    return _HEADER + "\n" + "\n".join(stanzas) if stanzas else ""


def _guard_files(
    host: Mapping[str, Any], profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if not settings.get("has_guard", True):
        return [{"path": path, "state": "absent"} for path in (_UPGRADES, _NEEDRESTART)]
    names = sorted(name for name in _names(profile) if not name.startswith(_GUARDED))
    patterns = [*_GUARDED, *(re.sub(r"([.+])", r"\\\1", name) + "$" for name in names)]
    rows = "\n".join(f'    "{pattern}";' for pattern in patterns)
    files: list[dict[str, Any]] = [
        {
            "path": _UPGRADES,
            "content": _HEADER.replace("#", "//", 1)
            + "// Half an upgrade of these splits the driver's libraries from the module that is loaded.\n"
            + f"Unattended-Upgrade::Package-Blacklist {{\n{rows}\n}};\n",
        }
    ]
    if "/etc/needrestart/conf.d" in (host.get("folders") or {}):
        files.append(
            {
                "path": _NEEDRESTART,
                "content": _HEADER
                + "# Restarting these ends the work on the GPUs.\n"
                + "$nrconf{override_rc}{qr(^nvidia-)} = 0;\n"
                + "$nrconf{override_rc}{qr(^(docker|containerd|crio|kubelet)\\.service$)} = 0;\n",
            }
        )
    return files


def _names(profile: Any) -> set[str]:
    """Return the names of all packages in a profile that have a version."""
    if isinstance(profile, Mapping):
        if isinstance(profile.get("name"), str) and profile.get("version") and "requirements" not in profile:
            return {profile["name"]}
        return {name for key, value in profile.items() if key != "repos" for name in _names(value)}
    if isinstance(profile, list):
        return {name for value in profile for name in _names(value)}
    return set()


def _network_files(settings: Mapping[str, Any], uris: list[str]) -> list[dict[str, Any]]:
    lines = []
    proxy = str(settings.get("proxy") or "")
    if proxy:
        if not re.fullmatch(r"(https?|socks5h)://[^\s\"'\\;{}]+", proxy):
            raise AnsibleFilterError(
                f"`gpu_repos_proxy` must be an address such as http://proxy.example:3128, not {proxy!r:.60}"
            )
        lines += [f'Acquire::{scheme}::Proxy "{proxy}";' for scheme in ("http", "https")]
        for name in settings.get("no_proxy") or []:
            if not re.fullmatch(r"[A-Za-z0-9.-]+", str(name)):
                raise AnsibleFilterError(f"`gpu_repos_no_proxy` must hold names of hosts, not {name!r:.60}")
            lines += [f'Acquire::{scheme}::Proxy::{name} "DIRECT";' for scheme in ("http", "https")]
    files: list[dict[str, Any]] = []
    authority = str(settings.get("ca") or "")
    if authority:
        if "-----BEGIN CERTIFICATE-----" not in authority:
            raise AnsibleFilterError("`gpu_repos_ca` names no file with certificates in PEM")
        names = sorted({match[1] for uri in uris if (match := re.match(r"https://(?:[^/@]*@)?([A-Za-z0-9.-]+)", uri))})
        # For these hosts alone: a certificate of the site must not take the place of the system's for all others.
        lines += [f'Acquire::https::{name}::CaInfo "{_CA}";' for name in names]
        files.append({"path": _CA, "content": authority})
    else:
        files.append({"path": _CA, "state": "absent"})
    if lines:
        content = _HEADER.replace("#", "//", 1) + "\n".join(lines) + "\n"
        files.append({"path": _NETWORK, "content": content, "is_secret": "@" in proxy})
    else:
        files.append({"path": _NETWORK, "state": "absent"})
    return files


# --------------------------------------------------------------------------------------------------------------- keys


def list_fingerprints(text: str) -> list[str]:
    """Return the fingerprints of the primary keys in armored OpenPGP text, in capitals.

    Source: RFC 9580, sections 4.2 (packets), 5.5.4.2 and 5.5.4.3 (fingerprints of version 4 and 6) and 6.2 (armor).

    Raises:
        AnsibleFilterError: It is not an armored key.
    """
    found = []
    blocks = re.findall(r"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", text, re.DOTALL)
    for block in blocks:
        _, _, body = block.replace("\r", "").partition("\n\n")
        body = re.sub(r"\n=[A-Za-z0-9+/]{4}\s*$", "", body.rstrip())
        try:
            data = base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error as error:
            raise AnsibleFilterError(f"the key is damaged: {error}") from error
        found += [_fingerprint(packet) for tag, packet in _packets(data) if tag == 6]
    if not found:
        raise AnsibleFilterError("there is no armored OpenPGP key in it (`gpg --armor --export` writes one)")
    return found


def _fingerprint(packet: bytes) -> str:
    if packet[0] >= 6:
        return hashlib.sha256(b"\x9b" + len(packet).to_bytes(4, "big") + packet).hexdigest().upper()
    return hashlib.sha1(b"\x99" + len(packet).to_bytes(2, "big") + packet, usedforsecurity=False).hexdigest().upper()


def _packets(data: bytes) -> list[tuple[int, bytes]]:
    packets = []
    place = 0
    while place < len(data):
        head = data[place]
        if not head & 0x80 or place + 1 >= len(data):
            raise AnsibleFilterError("the key is damaged: it holds no OpenPGP packets")
        place += 1
        if head & 0x40:
            tag, first = head & 0x3F, data[place]
            if first < 192:
                size, place = first, place + 1
            elif first < 224:
                size, place = ((first - 192) << 8) + data[place + 1] + 192, place + 2
            elif first == 255:
                size, place = int.from_bytes(data[place + 1 : place + 5], "big"), place + 5
            else:
                raise AnsibleFilterError("the key is damaged: a key is never of unknown length")
        else:
            tag, width = (head >> 2) & 15, (1, 2, 4, 0)[head & 3]
            size = int.from_bytes(data[place : place + width], "big") if width else len(data) - place - width
            place += width
        packets.append((tag, data[place : place + size]))
        place += size
    return packets


def _bare_digest(digest: Any) -> str | None:
    return str(digest).removeprefix("sha256:") if digest else None


def _checked_key(name: str, text: str, key: Mapping[str, Any], problems: list[str]) -> str:
    """Return the key, with a problem added where it is not the one that the lock names."""
    wanted = _bare_digest(key.get("sha256"))
    fingerprint = re.sub(r"\s", "", str(key.get("fingerprint") or "")).upper()
    real = hashlib.sha256(text.encode()).hexdigest()
    where = key.get("url") or "`gpu_repos_keys`"
    try:
        found = list_fingerprints(text)
    except AnsibleFilterError as error:
        problems.append(f"repository {name}: what {where} gives is not a key: {error}.")
        return text
    if fingerprint and found != [fingerprint]:
        problems.append(
            f"repository {name}: its key is {', '.join(found)}, and the lock promises {fingerprint}: it was replaced "
            f"or tampered with. Compare with what the vendor publishes, then lock again."
        )
    elif wanted and wanted != real and not fingerprint:
        problems.append(
            f"repository {name}: the file of its key has sha256 {real}, and the lock promises {wanted}: it was "
            f"replaced or tampered with. Compare with what the vendor publishes, then lock again."
        )
    return text


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_source_files": list_sources,
            "gpu_originals": list_originals,
            "gpu_repos_needed_keys": list_needed_keys,
            "gpu_repos_plan": plan_repositories,
            "gpu_repos_restore": plan_restore,
        }
