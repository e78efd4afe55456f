"""The lock of a run: read, checked, and handed to Ansible as data."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.assets import asset_dir
from provision.errors import MissingDependencyError, UsageError, install_command
from provision.generate.node import NODE_LOCK_VERSION, lock_digest
from provision.records import record, replace
from provision.resolve.node_options import node_flags, parse_node_options
from provision.resolve.request import request_of, to_flags

COMMITTED = "group_vars/all/provision_lock.yml"
"""Where the playbooks keep the lock that they use unless another is named."""

_MARKS = ("{{", "{%", "{#")
_VALUES_MAX = 1_000_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SYSTEM = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_WHOLE_FILES = ("requirements",)
"""Keys whose values are files; everywhere else a line end would begin another line of what is written from it."""


@record
class NodeLock:
    """What nodes become.

    Attributes:
        document: The mapping ``provision_lock``.
        origin: The file it was read from.
        text: The same as a file that Ansible reads.
        is_committed: It is the playbooks' own.
    """

    document: Mapping[str, Any]
    origin: str
    text: str
    is_committed: bool = False

    @property
    def digest(self) -> str:
        """``sha256:…`` over the contents."""
        return str(self.document["digest"])

    @property
    def name(self) -> str:
        """A name for people."""
        return str(self.document.get("name") or self.digest)

    @property
    def facts_date(self) -> str:
        """Day of the facts (ISO)."""
        return str(self.document.get("facts_date", ""))


def committed_lock() -> NodeLock:
    """Return the lock that the playbooks use unless another is named.

    Raises:
        UsageError: It is damaged.
        MissingDependencyError: PyYAML is not installed.
    """
    path = asset_dir("playbooks") / COMMITTED
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            because=(error.strerror or str(error),),
            hints=("write a lock with `provision node lock -o FILE` and name it with `--lock FILE`",),
        ) from error
    found = parse_lock(text, str(path))
    return replace(found, is_committed=True)


def parse_lock(text: str, where: str) -> NodeLock:
    """Read a lock as `provision node lock` writes it, YAML or JSON.

    Args:
        text: The file.
        where: Its name, for the message.

    Raises:
        UsageError: It is not a lock, of another version, edited by hand, or holds what Ansible would run as a template.
        MissingDependencyError: It is YAML, and PyYAML is not installed.
    """
    document, is_bare = _load(text, where), True
    if isinstance(document, dict) and set(document) == {"provision_lock"}:
        document = document["provision_lock"]
        is_bare = False
    if not isinstance(document, dict) or "profiles" not in document or "digest" not in document:
        raise UsageError(
            f"{where} is not a lock of nodes",
            because=("it holds no `provision_lock` with profiles and a digest",),
            hints=("`provision node lock -o FILE` writes one",),
        )
    version = document.get("lock_version")
    if version != NODE_LOCK_VERSION:
        raise UsageError(
            f"{where} has version {str(version)[:20]!a}, this program reads version {NODE_LOCK_VERSION}",
            hints=("write it again with `provision node lock`",),
        )
    if _count(document) > _VALUES_MAX:
        raise UsageError(
            f"{where} holds more than {_VALUES_MAX} values, or itself", because=("YAML's aliases may write that",)
        )
    try:
        digest = lock_digest(document)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where} holds what JSON cannot say", because=(str(error),)) from error
    path = _find_template(document, "provision_lock")
    if path is not None:
        raise UsageError(
            f"{where}: {path} holds a template", because=("Ansible would run it; a lock is data and nothing else",)
        )
    if digest != document["digest"]:
        raise UsageError(
            f"{where} was edited: its digest does not match its contents",
            because=(f"it says {str(document['digest'])[:80]}", f"its contents have {digest}"),
            hints=(
                _write_again(document, where),
                "what a site wants otherwise belongs into the inventory's variables",
            ),
        )
    fault = _find_fault(document) or _find_control(document, "provision_lock")
    if fault is not None:
        raise UsageError(
            f"{where} is not a lock of nodes",
            because=(fault,),
            hints=("`provision node lock -o FILE` writes one",),
        )
    if is_bare:
        text = json.dumps({"provision_lock": document}, indent=1) + "\n"
    return NodeLock(document=document, origin=where, text=text)


def _write_again(document: Mapping[str, Any], where: str) -> str:
    """Return how a lock is written again: by the request that it holds, where that can be read."""
    try:
        wanted = dict(document["request"])
        node = dict(wanted.pop("node"))
        options = {
            "os": node.get("systems"),
            "toolkit": node.get("toolkits"),
            # A list without a word asks for none of the parts, its absence for the usual ones.
            "include": ["none"] if node.get("includes") == [] else node.get("includes"),
            **{name: node.get(name) for name in ("method", "flavour", "profile")},
        }
        flags = (*to_flags(request_of(wanted)), *node_flags(parse_node_options(options)))
    except (KeyError, TypeError, ValueError, AttributeError, UsageError):
        return "write it again with `provision node lock`"
    words = shlex.join(("provision", "node", "lock", *flags, "-o", where.removeprefix("--lock: ")))
    return f"`{words}` writes what its request asks for"


def _load(text: str, where: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON", because=(_first_line(error),)) from error
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{where} is read with PyYAML, which is not installed", hints=(install_command(),)
        ) from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not YAML", because=(_first_line(error),)) from error


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or "it is nested too deep"


def _count(document: object) -> int:
    """Count the values, up to one more than there may be: YAML's aliases make a few lines endless."""
    count, left = 0, [document]
    while left and count <= _VALUES_MAX:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return count


def _find_fault(document: Mapping[str, Any]) -> str | None:
    """Return which of the things that every reader rests on is not there, if any."""
    for key in ("name", "facts_date"):
        if not isinstance(document.get(key), str) or not document[key]:
            return f"`{key}` is not text"
    profiles = document["profiles"]
    if not isinstance(profiles, dict):
        return "`profiles` is not a mapping"
    for os, profile in profiles.items():
        if not isinstance(os, str) or not _SYSTEM.fullmatch(os):
            return f"`profiles` has {str(os)[:40]!a}, which is not a system name"
        if not isinstance(profile, dict):
            return f"`profiles.{os}` is not a mapping"
        for key in ("repos", "driver", "cuda", "frameworks"):
            if not isinstance(profile.get(key) or {}, dict):
                return f"`profiles.{os}.{key}` is not a mapping"
        for part, key in (("frameworks", "environments"), ("repos", "sources")):
            rows = (profile.get(part) or {}).get(key) or []
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                return f"`profiles.{os}.{part}.{key}` is not a list of mappings"
        for row in (profile.get("frameworks") or {}).get("environments") or ():
            if not isinstance(row.get("name"), str) or not isinstance(row.get("requirements"), str):
                return f"an environment of `profiles.{os}` has no name or no requirements"
    return None


def _find_control(value: object, path: str) -> str | None:
    """Return where a value begins another line, or hides what it says."""
    if isinstance(value, str):
        return f"{path} holds a control character" if _CONTROL.search(value) else None
    if isinstance(value, Mapping):
        pairs = [(f"{path}.{key}", item) for key, item in value.items() if key not in _WHOLE_FILES]
        pairs += [(f"{path} (a key)", key) for key in value]
    elif isinstance(value, (list, tuple)):
        pairs = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    else:
        return None
    return next((found for where, item in pairs if (found := _find_control(item, where)) is not None), None)


def _find_template(value: object, path: str) -> str | None:
    """Return where a template's mark stands, if anywhere."""
    if isinstance(value, str):
        return path if any(mark in value for mark in _MARKS) else None
    if isinstance(value, Mapping):
        pairs = [(f"{path}.{key}", item) for key, item in value.items()]
        pairs += [(f"{path} (a key)", key) for key in value if isinstance(key, str)]
    elif isinstance(value, (list, tuple)):
        pairs = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    else:
        return None
    return next((found for where, item in pairs if (found := _find_template(item, where)) is not None), None)


def digest_folder(folder: Path, patterns: tuple[str, ...]) -> str:
    """Return ``sha256:…`` over the names and contents of files below a folder."""
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    whole = hashlib.sha256()
    for path in sorted(found):
        name = path.relative_to(folder).as_posix()
        whole.update(f"{len(name)} {name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def digest_inventory_locks(inventories: Sequence[str]) -> str:
    """Return a digest of the files of some inventories that set ``provision_lock``; empty where none does.

    Args:
        inventories: As Ansible takes them; lists of hosts and scripts hold no files of variables.
    """
    files: dict[Path, bytes] = {}
    for word in inventories:
        place = Path(word)
        if "," in word:
            continue
        folder = place if place.is_dir() else place.parent
        paths = {path for name in ("group_vars", "host_vars") for path in folder.glob(f"{name}/**/*")}
        for path in paths | (set(place.glob("*")) if place.is_dir() else {place}):
            try:
                content = path.read_bytes() if path.is_file() else b""
            except OSError:
                continue
            if b"provision_lock" in content:
                files[path.resolve()] = hashlib.sha256(content).digest()
    if not files:
        return ""
    return " " + hashlib.sha256(b"".join(files[path] for path in sorted(files))).hexdigest()
