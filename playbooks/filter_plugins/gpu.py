"""Filters that compare what a node is with what it should be, on the controller.

A task that would change nothing is skipped before anything is sent to the node: that is what makes a second run
cheap, and every drifted file, package or unit reported by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule", "order_version"]

MERGED_FILES = ("/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/nccl.conf")
"""Files that belong to others too, and are edited rather than owned."""

_MODE = "0644"
_JSON_INDENT = 4


def find_drifted(files: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files that are not on the node as they should be, in the order given.

    Args:
        files: Items with ``path``, ``content``, and optional ``mode``, ``owner``, ``group``, ``state``.
        host: What gpu_facts collected.
    """
    drifted = []
    for item in files:
        path = _path_of(item)
        found = host["files"].get(path)
        if _is_doomed(item):
            if found is not None or path in host["links"]:
                drifted.append(dict(item))
            continue
        if "content" not in item:
            raise AnsibleFilterError(f"gpu_drifted: {path} has no content")
        content = item["content"]
        if not isinstance(content, str):
            raise AnsibleFilterError(f"gpu_drifted: the content of {path} is {type(content).__name__}, not text")
        wanted = {
            "sha256": hashlib.sha256(content.encode()).hexdigest(),
            "mode": _mode_of(item, path),
            "owner": item.get("owner", "root"),
            "group": item.get("group", "root"),
        }
        if found is None or any(found.get(key) != value for key, value in wanted.items()):
            drifted.append(dict(item))
    return drifted


def find_missing_folders(files: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the parent folders that the node lacks, each once, with the first file that needs it."""
    seen: dict[str, str] = {}
    for item in files:
        folder = _path_of(item).rpartition("/")[0]
        if _is_doomed(item) or folder in seen or folder in host["folders"]:
            continue
        # Only folders below what was looked at are known; what every system has is never missing.
        if folder not in _ALWAYS_THERE:
            seen[folder] = item["path"]
    return [{"path": folder, "for": path} for folder, path in seen.items()]


def plan_writing(
    files: Iterable[Mapping[str, Any]], host: Mapping[str, Any], is_one_by_one: bool = False
) -> dict[str, list[Any]]:
    """Divide the files that differ by how they come to the node.

    Returns:
        ``paths`` of all that differ; ``together``, new files that one round trip writes, complete with mode, owner and
        group; ``folders`` that the others lack; ``write``, one by one; ``delete``. Items that are secret come without
        their content, since Ansible prints facts and loop items with -v; ``has_secret`` says that one of them is in
        ``together``, ``has_rest`` that something is left for the others, ``is_editing`` that a file of its owner is
        among these.
    """
    items = list(files)
    drifted = find_drifted(items, host)
    together = [] if is_one_by_one else _pick_together(items, drifted, host)
    rest = [item for item in drifted if not any(item["path"] == other["path"] for other in together)]
    return {
        "paths": [item["path"] for item in drifted],
        "together": together,
        "has_secret": any(item["is_secret"] for item in together),
        "folders": find_missing_folders(rest, host),
        "write": [_conceal(item) for item in rest if not _is_doomed(item)],
        "delete": [item for item in rest if _is_doomed(item)],
        "has_rest": bool(rest),
        "is_editing": any(item["path"] in MERGED_FILES for item in rest),
    }


def pack_together(together: Iterable[Mapping[str, Any]], files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the items that are written together, each with its content.

    Args:
        together: From :func:`plan_writing`.
        files: What that was planned from; it holds the contents that the plan conceals.
    """
    contents = {item["path"]: item["content"] for item in files if not _is_doomed(item)}
    return [{**item, "content": contents[item["path"]]} for item in together]


def _pick_together(
    items: Iterable[Mapping[str, Any]], drifted: Iterable[Mapping[str, Any]], host: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what may be written in one go: what the node lacks and cannot have lost.

    That is all of it before the first run has come to its end, and later a role's first files. What is there already
    or must be validated is written by itself.
    """
    has_generation = any(int(row["number"]) > 0 for row in host["generations"])
    wanted = [item["path"] for item in items if not _is_doomed(item)]
    there = {path for path in wanted if path in host["files"] or path in host["links"]}
    if has_generation and there:
        return []
    return [
        _conceal(
            {
                "path": item["path"],
                "content": item["content"],
                "mode": _mode_of(item, item["path"]),
                "owner": item.get("owner", "root"),
                "group": item.get("group", "root"),
                "is_secret": bool(item.get("is_secret", False)),
            }
        )
        for item in drifted
        if not (_is_doomed(item) or item["path"] in there or item.get("validate"))
    ]


def _conceal(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "content" or not item.get("is_secret", False)}


def tell_reason(result: Mapping[str, Any]) -> str:
    """Return why a program failed: what it said, else what Ansible says of it."""
    return str(result.get("stderr") or result.get("module_stderr") or result.get("msg") or "no reason given").strip()


def _is_doomed(item: Mapping[str, Any]) -> bool:
    return item.get("state", "present") == "absent"


_ALWAYS_THERE = frozenset(
    {"", "/etc", "/etc/apt", "/etc/apt/apt.conf.d", "/etc/apt/preferences.d", "/etc/apt/sources.list.d"}
    | {"/etc/systemd/system", "/etc/profile.d", "/usr/local/sbin", "/usr/local/lib", "/opt", "/var/lib"}
)


def find_missing_packages(packages: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the packages that are not installed, or not at the wanted version; ``version: null`` takes any."""
    missing = []
    for item in packages:
        found = host["packages"].get(item["name"])
        is_there = found is not None and found["status"][1:2] == "i" and "R" not in found["status"]
        if not is_there or item.get("version") not in (None, "", found["version"]):
            missing.append(dict(item))
    return missing


def name_kernel(profile: Any, host: Mapping[str, Any]) -> Any:
    """Return a lock's part for a system with the kernel's flavour where it says ``{kernel_flavour}``.

    A node without a kernel of its own yet gets the plain one.
    """
    if isinstance(profile, str):
        return profile.replace("{kernel_flavour}", str(host["kernel"].get("flavour") or "generic"))
    if isinstance(profile, Mapping):
        return {key: name_kernel(value, host) for key, value in profile.items()}
    return [name_kernel(value, host) for value in profile] if isinstance(profile, list) else profile


def list_specs(packages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return apt's words for packages: ``name=version``, or ``name`` where any version will do."""
    words = []
    for item in packages:
        name, version = item["name"], item.get("version")
        if not re.fullmatch(r"[a-z0-9][a-z0-9+._-]*([a-z0-9.]|\+\+)(:[a-z0-9]+)?", name):
            raise AnsibleFilterError(f"gpu_specs: {name!r} is not a package name")
        if version and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+:~-]*", version):
            raise AnsibleFilterError(f"gpu_specs: {version!r} is not a version of {name}")
        words.append(f"{name}={version}" if version else name)
    return words


def find_unit(name: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``exists``, ``is_enabled``, ``is_active`` and systemd's own words for a unit."""
    row = host["units"].get(name)
    if row is None:
        return {"exists": False, "is_enabled": False, "is_active": False, "enabled": None, "active": None}
    return {
        "exists": True,
        "is_enabled": row["enabled"] in ("enabled", "enabled-runtime", "static", "alias", "generated"),
        "is_active": row["active"] in ("active", "activating", "reloading"),
        **row,
    }


def merge_json(text: str | None, changes: Mapping[str, Any]) -> str:
    """Return a JSON document with a mapping merged in, the user's own keys and indent kept.

    An unchanged document keeps its bytes, so that a file that already says it is not rewritten.

    Raises:
        AnsibleFilterError: The text is not a JSON object.
    """
    document = _read_json(text)
    merged = _merged(document, changes)
    return text if text and merged == document else _write_json(merged, text)


def unmerge_json(text: str | None, changes: Mapping[str, Any], original: str | None = None) -> str:
    """Return the document without what :func:`merge_json` would put there; a changed value is the user's own.

    Args:
        text: The file now.
        changes: What was merged into it.
        original: The file from before the first merge, None where there was none or nobody knows. What it said in a
            place that is taken back it says again, and where nothing else was changed since its bytes are returned.
            One that was no JSON somebody has mended since, or nothing could be merged: it counts as unknown.

    Raises:
        AnsibleFilterError: The text is not a JSON object.
    """
    document = _read_json(text)
    rest = _without(document, changes)
    former = _former_json(original)
    if original is not None and former is not None:
        rest = _merged(rest, _said_before(former, document, changes))
        if rest == former:
            return original
    return text if text and rest == document else _write_json(rest, text)


def _write_json(document: Mapping[str, Any], former: str | None) -> str:
    """Return JSON indented as the former text was, so that taking a change back restores its bytes."""
    indent = re.search(r"^([ \t]+)\S", former or "", re.MULTILINE)
    return json.dumps(document, indent=indent[1] if indent else _JSON_INDENT, ensure_ascii=False) + "\n"


def _read_json(text: str | None) -> dict[str, Any]:
    if not text or not text.strip():
        return {}
    try:
        document = json.loads(text)
    except ValueError as error:
        raise AnsibleFilterError(f"the file on the node is not JSON: {error}; mend or remove it") from error
    if not isinstance(document, dict):
        raise AnsibleFilterError("the file on the node holds no JSON object; mend or remove it")
    return document


def _former_json(text: str | None) -> dict[str, Any] | None:
    try:
        return None if text is None else _read_json(text)
    except AnsibleFilterError:
        return None


def _merged(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return {**left, **{key: _merged(left.get(key), value) for key, value in right.items()}}
    return right


def _without(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for key, value in left.items():
        if key not in right:
            rest[key] = value
        elif isinstance(value, Mapping) and isinstance(right[key], Mapping):
            inner = _without(value, right[key])
            if inner:
                rest[key] = inner
        elif value != right[key]:
            rest[key] = value
    return rest


def _said_before(former: Mapping[str, Any], now: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a former document said in those places that hold our own words now."""
    said: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in former or key not in now:
            continue
        if all(isinstance(each, Mapping) for each in (former[key], now[key], value)):
            said[key] = _said_before(former[key], now[key], value)
        elif now[key] == value:
            said[key] = former[key]
    return said


def order_version(version: str) -> tuple[Any, ...]:
    """Return a key that orders Debian package versions as dpkg does: epoch, then upstream, then revision.

    Drivers' and kernels' own versions are ordered by it too. The other filters take it from here.
    """
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, ""
    return (int(epoch) if epoch.isdigit() else 0, _order_part(upstream), _order_part(revision))


def _order_part(text: str) -> tuple[tuple[int, ...], ...]:
    """Order alternating runs of non-digits and digits; ``~`` before the end, letters before all else."""
    key: list[tuple[int, ...]] = []
    # Nothing at all is as much as 0: a version without a revision has revision 0.
    text = text or "0"
    while text:
        word = re.split(r"\d", text, maxsplit=1)[0]
        number = re.split(r"\D", text[len(word) :], maxsplit=1)[0]
        letters = [(-1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256) for char in word]
        # The end of a run of non-digits sorts after `~` and before everything else.
        key.append((*letters, 0))
        key.append((int(number or 0),))
        text = text[len(word) + len(number) :]
    return (*key, (0,), (0,))


def name_architectures(gpus: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the architectures of the GPUs of a node by their PCI device ids, sorted, ``unknown`` included.

    Args:
        gpus: Rows with ``device``, four hexadecimal digits.
        devices: Ranges of the lock: ``first``, ``last``, ``architecture``.
    """
    ranges = [(int(row["first"], 16), int(row["last"], 16), row["architecture"]) for row in devices]
    found = set()
    for gpu in gpus:
        number = int(gpu["device"], 16)
        found.add(next((name for first, last, name in ranges if first <= number <= last), "unknown"))
    return sorted(found)


def _path_of(item: Mapping[str, Any]) -> str:
    path = item.get("path")
    if not isinstance(path, str) or not path.startswith("/") or "/../" in path + "/":
        raise AnsibleFilterError(f"{path!r} is not an absolute path of a file")
    return path


def _mode_of(item: Mapping[str, Any], path: str) -> str:
    mode = item.get("mode", _MODE)
    if not isinstance(mode, str) or not re.fullmatch(r"0[0-7]{3}", mode):
        raise AnsibleFilterError(f"the mode of {path} must be text such as '{_MODE}', not {mode!r}")
    return mode


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_architectures": name_architectures,
            "gpu_drifted": find_drifted,
            "gpu_merge_json": merge_json,
            "gpu_missing": find_missing_packages,
            "gpu_name_kernel": name_kernel,
            "gpu_specs": list_specs,
            "gpu_unit": find_unit,
            "gpu_unmerge_json": unmerge_json,
            "gpu_write_pack": pack_together,
            "gpu_write_plan": plan_writing,
            "gpu_write_reason": tell_reason,
        }
