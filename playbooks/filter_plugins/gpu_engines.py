"""Decide on the controller how container engines are told of NVIDIA's runtime, from what a node already says.

Files of a user are edited, never rewritten: a merge that finds its words already there returns the text as it was.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["FilterModule"]

# Ansible loads filters by path, and puts none of their folders where Python would look for a neighbour.
_GPU = ModuleType("provision_filters_gpu")
SourceFileLoader(_GPU.__name__, str(Path(__file__).with_name("gpu.py"))).exec_module(_GPU)
_order = _GPU.order_version

ENGINES = ("docker", "containerd", "crio", "podman")
RUNTIME = "nvidia"
RUNTIME_PATH = "/usr/bin/nvidia-container-runtime"

DOCKER_CONFIG = "/etc/docker/daemon.json"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CONTAINERD_DROP_IN = "/etc/containerd/conf.d/99-provision-nvidia.toml"
CRIO_DROP_IN = "/etc/crio/crio.conf.d/99-provision-nvidia.conf"

# containerd's configuration has a schema version of its own; its CRI plugin got another name with the third.
SCHEMA_OLD = 2
SCHEMA_NEW = 3
CRI_PLUGIN = {SCHEMA_OLD: "io.containerd.grpc.v1.cri", SCHEMA_NEW: "io.containerd.cri.v1.runtime"}
CRI_NAMES = frozenset({"cri", *CRI_PLUGIN.values()})
LOW_LEVEL_RUNTIMES = ("runc", "crun")
RUNTIME_TYPE = "io.containerd.runc.v2"

HEADER = "# Managed by provision (role gpu_container_toolkit): changes made here are undone by its next run.\n"
MARK = "# provision: the GPU runtime"

RESTARTS = ("true", "false", "live-restore")


def plan_engines(host: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Plan what every engine of a node has to be told.

    Args:
        host: What gpu_facts collected.
        options: ``engines`` (``auto`` or names), ``has_cdi``, ``is_default_runtime``, ``restart``.

    Returns:
        ``engines`` that are configured; ``docker``, the mapping to merge into daemon.json, empty without docker;
        ``containerd`` and ``crio``, files with ``path``, ``content`` and ``mode``; ``restart``, engine → ``restart``,
        ``reload`` or ``none``; ``notes`` on what is left alone and why; ``problems``, each with its way out.
    """
    problems: list[str] = []
    notes: list[str] = []
    plan: dict[str, Any] = {"docker": {}, "containerd": [], "crio": [], "notes": notes, "problems": problems}
    restart = str(options.get("restart", "true")).lower()
    if restart not in RESTARTS:
        problems.append(f"gpu_container_toolkit_restart is `{restart}`: use one of {', '.join(RESTARTS)}")
        restart = "false"
    engines, is_auto = _choose_engines(host, options.get("engines", "auto"), problems)
    has_cdi, is_default = bool(options.get("has_cdi")), bool(options.get("is_default_runtime"))
    if "docker" in engines:
        plan["docker"] = _docker_changes(host, has_cdi, is_default, problems)
    if "containerd" in engines:
        files = _containerd_files(host, has_cdi, is_default, is_auto, notes, problems)
        if files:
            plan["containerd"] = files
        else:
            engines.remove("containerd")
    if "crio" in engines:
        plan["crio"] = [_file(host, CRIO_DROP_IN, _crio_text(is_default))]
    if "podman" in engines and not has_cdi:
        notes.append("podman knows GPUs by CDI alone, and gpu_container_toolkit_cdi is false")
    plan["engines"] = engines
    plan["restart"] = {name: _how_to_restart(name, host, restart) for name in engines if name != "podman"}
    return plan


def undo_engines(host: Mapping[str, Any], originals: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Plan how the files of a node become what they were before :func:`plan_engines`.

    Args:
        host: What gpu_facts collected.
        originals: Path → text of the files from before the first run, as far as they were there and are known.

    Returns:
        ``docker``, the mapping to take out of daemon.json; ``containerd`` and ``crio``, files with ``path`` and
        ``content``, or ``state: absent``.
    """
    docker: dict[str, Any] = {}
    text = _text(host, DOCKER_CONFIG)
    if text:
        docker = _docker_mapping(True, _default_runtime(text) == RUNTIME)
    containerd = []
    if CONTAINERD_DROP_IN in host["files"]:
        containerd.append({"path": CONTAINERD_DROP_IN, "state": "absent"})
    main = _text(host, CONTAINERD_CONFIG)
    if main:
        rest = _said_by_user(main, (originals or {}).get(CONTAINERD_CONFIG))
        if rest is None:
            containerd.append({"path": CONTAINERD_CONFIG, "state": "absent"})
        elif rest != main:
            containerd.append(_file(host, CONTAINERD_CONFIG, rest))
    crio = [{"path": CRIO_DROP_IN, "state": "absent"}] if CRIO_DROP_IN in host["files"] else []
    return {"docker": docker, "containerd": containerd, "crio": crio}


def _said_by_user(text: str, original: str | None) -> str | None:
    """Return config.toml without our words; the original's very bytes where nobody else changed it since."""
    rest = remove_import(text)
    if original is None:
        return rest
    # A line end that the import needed, or blanks in an empty list, are all that taking it out may leave.
    return original if "".join((rest or "").split()) == "".join(original.split()) else rest


def _choose_engines(host: Mapping[str, Any], wanted: Any, problems: list[str]) -> tuple[list[str], bool]:
    found = [name for name in ENGINES if host["engines"].get(name)]
    if wanted in ("auto", ["auto"]):
        return found, True
    if isinstance(wanted, str):
        wanted = [word for word in re.split(r"[,\s]+", wanted) if word]
    if not isinstance(wanted, Iterable) or isinstance(wanted, Mapping):
        problems.append(f"gpu_container_toolkit_engines is {type(wanted).__name__}: use `auto` or a list of engines")
        return [], False
    chosen = []
    for word in wanted:
        name = {"cri-o": "crio"}.get(word, word)
        if name not in ENGINES:
            problems.append(f"gpu_container_toolkit_engines names `{name}`: known are {', '.join(ENGINES)}")
        elif name not in found:
            problems.append(
                f"gpu_container_toolkit_engines names `{name}`, which is not installed on this node: "
                "install it first, or leave it out"
            )
        elif name not in chosen:
            chosen.append(name)
    return chosen, False


def _text(host: Mapping[str, Any], path: str) -> str | None:
    """Return the text of a file on the node, None where there is no file.

    Raises:
        ValueError: The file is there and its text was not brought along.
    """
    row = host["files"].get(path)
    if row is None:
        if path in host["links"]:
            raise ValueError(
                f"{path} is a link to {host['links'][path]}: make it a file, or configure that engine yourself"
            )
        return None
    if "text" not in row:
        raise ValueError(f"{path} is too large to be merged with ({row.get('size')} bytes)")
    return str(row["text"])


def _file(host: Mapping[str, Any], path: str, content: str) -> dict[str, Any]:
    """Return a file to write, in the mode and for the owner it already has."""
    row = host["files"].get(path, {})
    kept = {key: row[key] for key in ("mode", "owner", "group") if key in row}
    return {"path": path, "content": content, "mode": "0644", **kept}


def _docker_mapping(has_cdi: bool, is_default: bool) -> dict[str, Any]:
    mapping: dict[str, Any] = {"runtimes": {RUNTIME: {"args": [], "path": posixpath.basename(RUNTIME_PATH)}}}
    if has_cdi:
        mapping["features"] = {"cdi": True}
    if is_default:
        mapping["default-runtime"] = RUNTIME
    return mapping


def _default_runtime(text: str) -> Any:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document.get("default-runtime") if isinstance(document, dict) else None


def _docker_changes(host: Mapping[str, Any], has_cdi: bool, is_default: bool, problems: list[str]) -> dict[str, Any]:
    try:
        text = _text(host, DOCKER_CONFIG)
    except ValueError as error:
        problems.append(str(error))
        return {}
    if text and text.strip():
        try:
            document = json.loads(text)
        except ValueError as error:
            problems.append(
                f"{DOCKER_CONFIG} is not JSON ({error}): mend or remove it; docker itself cannot start with it"
            )
            return {}
        if not isinstance(document, dict):
            problems.append(f"{DOCKER_CONFIG} holds no JSON object: mend or remove it")
            return {}
        for key in ("runtimes", "features"):
            if not isinstance(document.get(key, {}), dict):
                problems.append(f"{DOCKER_CONFIG} has `{key}` that is not an object: mend it")
                return {}
    return _docker_mapping(has_cdi, is_default)


def _how_to_restart(name: str, host: Mapping[str, Any], restart: str) -> str:
    """Say how an engine takes up its configuration.

    ``live-restore`` means: never at the cost of a running container. containerd and cri-o leave containers alone when
    they restart; docker does so only with its own ``live-restore`` on, and reads runtimes on a reload otherwise.
    """
    if restart == "false":
        return "none"
    if restart == "true" or name != "docker":
        return "restart"
    try:
        document = json.loads(host["files"].get(DOCKER_CONFIG, {}).get("text") or "{}")
    except ValueError:
        return "none"
    return "restart" if isinstance(document, dict) and document.get("live-restore") is True else "reload"


def _containerd_files(
    host: Mapping[str, Any],
    has_cdi: bool,
    is_default: bool,
    is_auto: bool,
    notes: list[str],
    problems: list[str],
) -> list[dict[str, Any]]:
    try:
        text = _text(host, CONTAINERD_CONFIG) or ""
        document = _read_toml(CONTAINERD_CONFIG, text)
        disabled = CRI_NAMES & set(document.get("disabled_plugins") or [])
        if disabled:
            reason = f"{CONTAINERD_CONFIG} switches containerd's CRI plugin off (disabled_plugins)"
            if is_auto:
                notes.append(f"containerd is left alone: {reason}; Docker and nerdctl need nothing of it")
            else:
                problems.append(f"{reason}: take it out of there, or containerd out of gpu_container_toolkit_engines")
            return []
        schema = _schema(document, str(host["engines"].get("containerd") or ""))
        if schema < SCHEMA_OLD:
            problems.append(
                f"{CONTAINERD_CONFIG} is written in schema version 1, which cannot import files: "
                "convert it with `containerd config migrate`"
            )
            return []
        imports = [str(item) for item in document.get("imports") or []]
        sources = [document]
        others = _imported_files(imports, host)
        plugin = CRI_PLUGIN[min(schema, SCHEMA_NEW)]
        for path in others:
            other = _read_toml(path, _text(host, path) or "")
            if path > CONTAINERD_DROP_IN and plugin in (other.get("plugins") or {}):
                notes.append(f"{path} is read after {CONTAINERD_DROP_IN} and may take its place")
                continue
            sources.append(other)
    except ValueError as error:
        problems.append(str(error))
        return []
    section: dict[str, Any] = {}
    for source in sources:
        section = _merged(section, (source.get("plugins") or {}).get(plugin) or {})
    drop_in = render_containerd_drop_in(section, schema, has_cdi, is_default)
    files = [_file(host, CONTAINERD_DROP_IN, drop_in)]
    try:
        files.append(_file(host, CONTAINERD_CONFIG, add_import(text, schema)))
    except ValueError as error:
        problems.append(str(error))
        return []
    return files


def _schema(document: Mapping[str, Any], engine: str) -> int:
    version = document.get("version")
    if version is None and not document:
        # A file that says nothing may be given the schema that suits the engine.
        major = re.match(r"\d+", engine)
        return SCHEMA_NEW if major and int(major[0]) >= SCHEMA_OLD else SCHEMA_OLD
    if version is None:
        return 1
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError(f"{CONTAINERD_CONFIG} has version {version!r}, which is not a number: mend it")  # noqa: TRY004
    return version


def _imported_files(imports: list[str], host: Mapping[str, Any]) -> list[str]:
    """List the files that containerd imports, in the order in which it reads them, ours left out."""
    base = posixpath.dirname(CONTAINERD_CONFIG)
    found: list[str] = []
    for item in imports:
        pattern = posixpath.join(base, item)
        found += [path for path in sorted(host["files"]) if _matches(path, pattern) and path not in found]
    return [path for path in found if path not in (CONTAINERD_DROP_IN, CONTAINERD_CONFIG)]


def _matches(path: str, pattern: str) -> bool:
    same_folder = posixpath.dirname(path) == posixpath.dirname(pattern)
    return same_folder and fnmatch.fnmatchcase(posixpath.basename(path), posixpath.basename(pattern))


def _read_toml(path: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML ({error}): mend it; containerd itself cannot start with it") from error


def _merged(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return {**left, **{key: _merged(left.get(key), value) for key, value in right.items()}}
    return right


def render_containerd_drop_in(section: Mapping[str, Any], schema: int, has_cdi: bool, is_default: bool) -> str:
    """Return the text of containerd's drop-in.

    Args:
        section: The CRI plugin's section as it is without the drop-in. containerd 1 and 2.0 replace a plugin's whole
            section by the one of the file that is read last, so everything in it has to be said again.
        schema: Schema version of the configuration.
        has_cdi: Whether devices may be asked for by CDI.
        is_default: Whether NVIDIA's runtime is the one that containers get unasked.
    """
    containerd = dict(section.get("containerd") or {})
    runtimes = dict(containerd.get("runtimes") or {})
    default = containerd.get("default_runtime_name") or LOW_LEVEL_RUNTIMES[0]
    if default in LOW_LEVEL_RUNTIMES and default not in runtimes:
        # A table of runtimes takes the place of the built-in one: without its own default the plugin does not load.
        runtimes = {default: {"runtime_type": RUNTIME_TYPE}, **runtimes}
    like = next((name for name in (default, *LOW_LEVEL_RUNTIMES) if name in runtimes and name != RUNTIME), None)
    runtime = dict(runtimes[like]) if like else {}
    runtime.setdefault("runtime_type", RUNTIME_TYPE)
    runtime["options"] = {**(runtime.get("options") or {}), "BinaryName": RUNTIME_PATH}
    runtimes[RUNTIME] = runtime
    containerd["runtimes"] = runtimes
    if is_default:
        containerd["default_runtime_name"] = RUNTIME
    whole = {**section, "containerd": containerd}
    if has_cdi:
        whole["enable_cdi"] = True
    plugin = CRI_PLUGIN[min(schema, SCHEMA_NEW)]
    return (
        HEADER
        + "# It repeats the plugin's section of config.toml: containerd replaces that as a whole by an imported one.\n"
        + render_toml({"version": schema, "plugins": {plugin: whole}})
    )


def add_import(text: str, schema: int) -> str:
    """Return config.toml with the drop-in imported; comments and order stay, one line comes.

    Args:
        text: The file, empty where there is none.
        schema: Schema version for a file that names none.

    Raises:
        ValueError: The place for the import cannot be told with certainty.
    """
    document = _read_toml(CONTAINERD_CONFIG, text)
    imports = [str(item) for item in document.get("imports") or []]
    base = posixpath.dirname(CONTAINERD_CONFIG)
    if any(_matches(CONTAINERD_DROP_IN, posixpath.join(base, item)) for item in imports):
        return text
    wanted = {"version": schema, **document, "imports": [*imports, CONTAINERD_DROP_IN]}
    entry = _value(CONTAINERD_DROP_IN)
    line = f"imports = [{entry}] {MARK}\n"
    if not document:
        head = text if not text or text.endswith("\n") else text + "\n"
        result = f"{head or HEADER}version = {schema} {MARK}\n{line}"
    elif imports:
        result = _append_import(text)
    elif "imports" in document:
        result = re.sub(r"^([ \t]*imports\s*=\s*\[)\s*\]", rf"\g<1>{entry}]", text, count=1, flags=re.MULTILINE)
    else:
        # A key before the first table belongs to the top level, and the line of the version is there.
        result = re.sub(r"^([ \t]*version\s*=[^\n]*)(\n|\Z)", rf"\g<1>\n{line}", text, count=1, flags=re.MULTILINE)
    if _try_toml(result) != wanted:
        raise ValueError(
            f"{CONTAINERD_CONFIG} is laid out so that an import cannot be added safely: "
            f'add "{CONTAINERD_DROP_IN}" to its `imports` yourself'
        )
    return result


def _append_import(text: str) -> str:
    """Add the drop-in behind the last entry of the list of imports."""
    content = r"(?P<list>(?:[^\]\"'#]|\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*)*)"
    found = re.search(rf"^[ \t]*imports\s*=\s*\[{content}\]", text, re.MULTILINE)
    if not found:
        return text
    items = [item for item in re.finditer(r"#[^\n]*|(?P<item>\"[^\"\n]*\"|'[^'\n]*')", found["list"]) if item["item"]]
    if not items:
        return text
    place = found.start("list") + items[-1].end()
    return f"{text[:place]}, {_value(CONTAINERD_DROP_IN)}{text[place:]}"


def remove_import(text: str) -> str | None:
    """Return config.toml as it was before :func:`add_import`, None where the file was made by it."""
    rest = "".join(line for line in text.splitlines(keepends=True) if not line.rstrip("\n").endswith(MARK))
    if rest == HEADER:
        return None
    entry = _value(CONTAINERD_DROP_IN)
    return rest.replace(f", {entry}", "", 1).replace(f"[{entry}]", "[]", 1)


def _try_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def render_toml(document: Mapping[str, Any]) -> str:
    """Return a mapping as TOML: plain keys before tables, in the order given."""
    lines: list[str] = []
    _render_table((), document, lines)
    return "\n".join(lines) + "\n"


def _render_table(path: tuple[str, ...], table: Mapping[str, Any], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (plain or not table):
        if lines:
            lines.append("")
        lines.append(f"[{'.'.join(_key(part) for part in path)}]")
    lines.extend(f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            _render_table((*path, key), value, lines)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes all that TOML wants escaped, and DEL, which it does not.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value)


def _crio_text(is_default: bool) -> str:
    document: dict[str, Any] = {"runtime_path": RUNTIME_PATH, "runtime_type": "oci"}
    table = {"runtimes": {RUNTIME: document}}
    runtime: dict[str, Any] = {"default_runtime": RUNTIME, **table} if is_default else table
    return HEADER + render_toml({"crio": {"runtime": runtime}})


def find_toolkit_problems(packages: Iterable[Mapping[str, Any]], floor: str | None) -> list[str]:
    """Say why a set of toolkit packages must not be installed.

    Args:
        packages: ``name`` and ``version`` of each.
        floor: The oldest version without a known hole, None where the lock names none.
    """
    packages = list(packages)
    problems = []
    versions = {str(item.get("version")) for item in packages}
    if packages and None in (item.get("version") for item in packages):
        problems.append(
            "gpu_container_toolkit_packages has a package without a version: the four move together, pin each"
        )
    elif len(versions) > 1:
        pairs = ", ".join(f"{item['name']}={item['version']}" for item in packages)
        problems.append(f"the packages of the container toolkit must all have one version, and have: {pairs}")
    below = sorted({item["version"] for item in packages if floor and item.get("version")}, key=_order)
    # No epoch lifts a package above the floor, which has none.
    if floor and below and _order(below[0].rpartition(":")[2]) < _order(floor):
        problems.append(
            f"version {below[0]} of the container toolkit is below {floor}, the oldest without a known hole: "
            "lock again (`provision node lock`)"
        )
    return problems


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_engine_plan": plan_engines,
            "gpu_toolkit_problems": find_toolkit_problems,
            "gpu_engine_undo": undo_engines,
        }
