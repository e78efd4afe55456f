"""What every role keeps to: its variables are documented as they are, and nothing is sent to a node in vain."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import role_files as roles

if TYPE_CHECKING:
    from collections.abc import Iterator


PLAYBOOKS = roles.PLAYBOOKS
NAMES = [role.name for role in roles.ROLES]
EXPECTED = {
    *("gpu_facts", "gpu_preflight", "gpu_repos", "gpu_kernel", "gpu_driver", "gpu_fabric", "gpu_rdma", "gpu_reboot"),
    *("gpu_cuda", "gpu_nccl", "gpu_container_toolkit", "gpu_dcgm", "gpu_mig", "gpu_frameworks", "gpu_k8s"),
    *("gpu_monitoring", "gpu_exporter", "gpu_prometheus", "gpu_alertmanager", "gpu_grafana"),
    *("gpu_access", "gpu_slurm", "gpu_spot", "gpu_verify"),
}
TYPES = {
    "str": str,
    "raw": object,
    "path": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "list": list,
    "dict": dict,
}
# They run on the controller, or only say what the play does next.
ON_THE_CONTROLLER = {
    f"ansible.builtin.{name}"
    for name in (
        *("set_fact", "assert", "fail", "debug", "meta", "include_vars", "add_host", "group_by", "pause"),
        *("include_tasks", "import_tasks", "include_role", "import_role", "validate_argument_spec", "set_stats"),
    )
}
DEPRECATED = {
    f"ansible.builtin.{name}" for name in ("apt_key", "apt_repository", "deb822_repository", "include", "systemd")
}
INJECTED = re.compile(r"\bansible_(distribution|kernel|os_family|architecture|service_mgr)\b")
INCLUDES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
WRITING = {
    f"ansible.builtin.{name}"
    for name in ("copy", "template", "file", "lineinfile", "blockinfile", "get_url", "replace")
}
INSTALLING = {("gpu_facts", "write"), ("gpu_repos", "install")}
# One execution that reads the node, one that proves it: these are meant to run every time.
EVERY_TIME = {"gpu_facts": 1, "gpu_verify": 1}

each_role = pytest.mark.parametrize("role", roles.ROLES, ids=lambda role: role.name)


def test_every_role_of_the_play_is_there() -> None:
    assert set(NAMES) == EXPECTED


# Variables and their documentation


@each_role
def test_role_says_who_it_is(role: Path) -> None:
    meta = roles.load(role / "meta" / "main.yml")
    info = meta["galaxy_info"]
    assert info["author"] == "provision"
    assert info["license"] == "Apache-2.0"
    assert info["min_ansible_version"] == "2.19"
    assert info["description"].strip()
    assert {row["name"] for row in info["platforms"]} >= {"Debian", "Ubuntu"}
    assert meta["dependencies"] == []


def same(value: object) -> str:
    """A form in which 1, True and "1" differ."""
    return json.dumps(value, sort_keys=True)


def options_of(role: Path) -> dict[str, Any]:
    """The options of all entry points; one that several take is the same in each."""
    specs = roles.specs_of(role)
    assert "main" in specs, "meta/argument_specs.yml has no entry point `main`"
    found: dict[str, Any] = {}
    for spec in specs.values():
        for name, option in spec.get("options", {}).items():
            assert found.setdefault(name, option) == option, f"{name} is described in two ways"
    return found


@each_role
def test_documented_defaults_are_the_defaults(role: Path) -> None:
    options = options_of(role)
    defaults = roles.defaults_of(role)
    assert set(options) == set(defaults), "meta/argument_specs.yml and defaults/main.yml name different variables"
    differing = {
        name: (option.get("default"), defaults[name])
        for name, option in options.items()
        if "default" not in option or same(option["default"]) != same(defaults[name])
    }
    assert not differing


@each_role
def test_every_entry_point_and_option_is_described(role: Path) -> None:
    specs = roles.specs_of(role)
    assert specs
    for entry, spec in specs.items():
        assert spec.get("short_description"), entry
        for name, option in spec.get("options", {}).items():
            assert option.get("description"), name
            assert option["type"] in TYPES, name
            assert "required" not in option, f"{name}: the lock may not supply it, and its task runs under every tag"


@each_role
def test_default_has_the_type_and_is_a_choice(role: Path) -> None:
    for name, option in options_of(role).items():
        default = option.get("default")
        if default is None or (isinstance(default, str) and "{{" in default):
            continue
        assert isinstance(default, TYPES[option["type"]]), name
        assert not (option["type"] in ("int", "float") and isinstance(default, bool)), name
        if "choices" in option:
            assert default in option["choices"], name


@each_role
def test_entry_points_exist(role: Path) -> None:
    for entry in roles.specs_of(role):
        assert (role / "tasks" / f"{entry}.yml").is_file(), entry


@each_role
def test_variables_carry_the_roles_name(role: Path) -> None:
    files = [*(role / "defaults").glob("*.yml"), *(role / "vars").glob("*.yml")]
    names = [name for file in files for name in roles.load(file) or {}]
    names += [task.body["register"] for task in roles.tasks_of(role) if "register" in task.body]
    assert not [name for name in names if not name.lstrip("_").startswith(f"{role.name}_")]
    # A fact may be handed over to another role; then it carries that role's name.
    made = [
        name
        for task in roles.tasks_of(role)
        if task.module == "ansible.builtin.set_fact"
        for name in task.arguments
        if name != "cacheable"
    ]
    prefixes = tuple(f"{name}_" for name in NAMES)
    assert not [name for name in made if not name.startswith(prefixes)]


@each_role
def test_readme_tells_what_people_ask(role: Path) -> None:
    text = (role / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {role.name}\n")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [name for name in ("Variables", "Tags", "Check mode", "On the node") if name not in headings] == []
    # tools/docs.py writes the table from the specification; tests/docs refuses a stale one.
    assert "<!-- generated: variables -->" in text


# What is defined anywhere: a name that nothing defines is a slip that only shows on a node.


def defined_names() -> set[str]:
    found: set[str] = set()
    for role in roles.ROLES:
        for file in [*(role / "defaults").glob("*.yml"), *(role / "vars").glob("*.yml")]:
            found |= set(roles.load(file) or {})
        for entry in roles.specs_of(role).values():
            found |= set(entry.get("options", {}))
        found |= {name for task in roles.tasks_of(role) for name in names_made_by(task)}
    for file in [*PLAYBOOKS.glob("*.yml"), *PLAYBOOKS.glob("tasks/*.yml")]:
        for row in roles.mappings_in(roles.load(file)):
            found |= set(row.get("vars") or ()) | set(row.get("ansible.builtin.set_fact") or ())
            found |= {row["register"]} if "register" in row else set()
    return found | documented()


def names_made_by(task: Any) -> Iterator[str]:
    for layer in (task.body, *task.outer):
        yield from layer.get("vars") or ()
        yield from (row for row in [(layer.get("loop_control") or {}).get("loop_var")] if row)
        yield from (row for row in [(layer.get("loop_control") or {}).get("index_var")] if row)
    if "register" in task.body:
        yield task.body["register"]
    if task.module == "ansible.builtin.set_fact":
        yield from task.arguments


@each_role
def test_every_variable_used_is_defined_somewhere(role: Path) -> None:
    known = defined_names() | set(NAMES)
    used: dict[str, str] = {}
    for task in roles.tasks_of(role):
        for text in roles.strings_in(dict(task.body)):
            if "{{" in text or "{%" in text or text in _conditions(task):
                used |= dict.fromkeys(roles.variables_in(_without_words(text)), str(task))
    for file in [*(role / "defaults").glob("*.yml"), *(role / "vars").glob("*.yml")]:
        for text in roles.strings_in(roles.load(file)):
            if "{{" in text:
                used |= dict.fromkeys(roles.variables_in(_without_words(text)), file.name)
    assert {name: where for name, where in used.items() if name not in known} == {}


def _conditions(task: Any) -> list[str]:
    found: list[str] = []
    for layer in (task.body, *task.outer):
        for key in ("when", "changed_when", "failed_when", "until"):
            value = layer.get(key)
            found += value if isinstance(value, list) else [value]
        that = (layer.get("ansible.builtin.assert") or {}).get("that", [])
        found += that if isinstance(that, list) else [that]
    return [text for text in found if isinstance(text, str)]


def _without_words(text: str) -> str:
    """A template without its quoted words, its filters, its comments and the prose around it."""
    inside = "\n".join(re.findall(r"\{\{.*?\}\}|\{%.*?%\}", text, re.DOTALL)) if "{{" in text or "{%" in text else text
    inside = re.sub(r"'[^']*'|\"[^\"]*\"", " ", inside)
    inside = re.sub(r"\|\s*\w+(\.\w+)*", "| ", inside)
    return re.sub(r"\.\s*gpu_\w+", "", inside)


# Tasks


@each_role
def test_only_modules_that_come_with_the_core_and_stay(role: Path) -> None:
    found = {task.module: str(task) for task in roles.tasks_of(role)}
    assert {module: task for module, task in found.items() if not module.startswith("ansible.builtin.")} == {}
    assert {module: task for module, task in found.items() if module in DEPRECATED} == {}


def _is_remote(task: Any) -> bool:
    delegated = {layer.get("delegate_to") for layer in (task.body, *task.outer)}
    return task.module not in ON_THE_CONTROLLER and "localhost" not in delegated


def _guarded_files(tasks: list[Any]) -> set[str]:
    """The task files of a role that nothing but a conditional include reaches."""
    reached: dict[str, list[bool]] = {}
    for _ in range(5):
        guarded = {name for name, all_of in reached.items() if all(all_of)}
        reached = {}
        for task in tasks:
            if task.module in INCLUDES:
                file = task.arguments if isinstance(task.arguments, str) else task.arguments["file"]
                reached.setdefault(file, []).append(task.is_conditional or task.file.name in guarded)
    return {name for name, all_of in reached.items() if all(all_of)}


@each_role
def test_nothing_is_sent_to_a_node_that_is_as_planned(role: Path) -> None:
    tasks = roles.tasks_of(role, "tasks")
    guarded = _guarded_files(tasks)
    unguarded = [
        str(task)
        for task in tasks
        if _is_remote(task)
        and not task.is_conditional
        and task.file.name not in guarded
        # `main` decides for itself; a file that only other roles call is guarded where it is called.
        and (task.file.name in _reached_from_main(tasks) or task.file.name == "absent.yml")
    ]
    assert len(unguarded) <= EVERY_TIME.get(role.name, 0), unguarded


def _reached_from_main(tasks: list[Any]) -> set[str]:
    reached = {"main.yml"}
    for _ in range(5):
        reached |= {
            task.arguments if isinstance(task.arguments, str) else task.arguments["file"]
            for task in tasks
            if task.module in INCLUDES and task.file.name in reached
        }
    return reached


@each_role
def test_calls_of_the_shared_writers_are_guarded(role: Path) -> None:
    tasks = roles.tasks_of(role, "tasks")
    guarded = _guarded_files(tasks)
    assert [
        str(task)
        for task in tasks
        if _shared_call(task) in INSTALLING and not task.is_conditional and task.file.name not in guarded
    ] == []


def _shared_call(task: Any) -> tuple[str, str] | None:
    if task.module not in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
        return None
    return task.arguments["name"], task.arguments.get("tasks_from", "main").removesuffix(".yml")


@each_role
def test_included_roles_run_whatever_tag_was_asked_for(role: Path) -> None:
    # A tag does not reach into what is included while the play runs: without this its tasks are skipped in silence.
    assert [
        str(task)
        for task in roles.tasks_of(role)
        if task.module == "ansible.builtin.include_role"
        and (task.arguments.get("apply") or {}).get("tags") not in (["always"], "always")
    ] == []


def _static(value: object) -> str | None:
    """The part of a path before its first template, where it begins with one folder at least."""
    if not isinstance(value, str):
        return None
    start = value.split("{{")[0]
    return start if re.match(r"/\w+/", start) else None


FACTS = {
    node.targets[0].id: ast.literal_eval(node.value)
    for node in ast.parse((PLAYBOOKS / "roles/gpu_facts/files/node.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    if node.targets[0].id in ("PATHS", "UNITS", "LINKS")
}


def _is_covered(path: str) -> bool:
    places = [*FACTS["PATHS"], *(link.removesuffix("/*") for link in FACTS["LINKS"])]
    return path.startswith(("/tmp/", "/run/", "/proc/", "/sys/")) or any(
        path == place or path.startswith(place.rstrip("/") + "/") or fnmatch.fnmatch(path, place) for place in places
    )


def written_paths(role: Path) -> Iterator[tuple[str, str]]:
    """Every path that a role writes, as far as it is written down, and where."""
    for task in roles.tasks_of(role):
        if task.module in WRITING and isinstance(task.arguments, dict) and _is_remote(task):
            for key in ("dest", "path"):
                path = _static(task.arguments.get(key))
                if path:
                    yield path, str(task)
    rows = [(dict(task.body), str(task)) for task in roles.tasks_of(role)]
    rows += [
        (roles.load(file) or {}, f"{role.name}/{file.parent.name}")
        for file in [*(role / "vars").glob("*.yml"), *(role / "defaults").glob("*.yml")]
    ]
    for value, where in rows:
        for row in roles.mappings_in(value):
            path = _static(row.get("path"))
            if path and "content" in row:
                yield path, where


@each_role
def test_every_path_written_is_read_by_gpu_facts(role: Path) -> None:
    assert {path: where for path, where in written_paths(role) if not _is_covered(path)} == {}


@each_role
def test_every_unit_named_is_read_by_gpu_facts(role: Path) -> None:
    named: dict[str, str] = {}
    for task in roles.tasks_of(role):
        if task.module in ("ansible.builtin.systemd_service", "ansible.builtin.systemd", "ansible.builtin.service"):
            named[str(task.arguments.get("name", "{{"))] = str(task)
        for text in roles.strings_in(dict(task.body)):
            named |= dict.fromkeys(re.findall(r"'([\w@.-]+)'\s*\|\s*gpu_unit", text), str(task))
    units = {name if "." in name else f"{name}.service": where for name, where in named.items() if "{{" not in name}
    assert {name: where for name, where in units.items() if name not in FACTS["UNITS"]} == {}


@each_role
def test_only_gpu_reboot_reboots(role: Path) -> None:
    if role.name == "gpu_reboot":
        return
    for task in roles.tasks_of(role):
        assert task.module != "ansible.builtin.reboot", str(task)
        if task.module in ("ansible.builtin.command", "ansible.builtin.shell"):
            words = list(roles.strings_in(task.arguments))
            assert not {"reboot", "shutdown", "poweroff"} & {word for text in words for word in text.split()}, str(task)


@each_role
def test_role_that_installs_can_take_it_back(role: Path) -> None:
    tasks = [task for task in roles.tasks_of(role, "tasks") if task.file.name != "absent.yml"]
    writes = [task for task in tasks if task.module in WRITING | {"ansible.builtin.apt"} and _is_remote(task)]
    calls = [task for task in tasks if _shared_call(task) in INSTALLING]
    # What these leave is the record of the node, which gpu-node-remove.yml deletes last.
    if role.name in ("gpu_facts", "gpu_preflight", "gpu_reboot", "gpu_verify") or not (writes or calls):
        return
    assert (role / "tasks" / "absent.yml").is_file()
    assert "absent" in roles.specs_of(role)


@each_role
def test_no_shell_is_given_a_template(role: Path) -> None:
    for task in roles.tasks_of(role):
        if task.module == "ansible.builtin.shell":
            words = task.arguments if isinstance(task.arguments, str) else task.arguments.get("cmd", "")
            assert "{{" not in words, f"{task}: hand values over in `environment:`"
        if task.module == "ansible.builtin.command":
            assert isinstance(task.arguments, dict), f"{task}: give the words one by one in `argv`"
            assert "argv" in task.arguments, f"{task}: give the words one by one in `argv`"


@each_role
def test_facts_of_ansible_are_not_gathered_again(role: Path) -> None:
    for task in roles.tasks_of(role):
        assert task.module not in ("ansible.builtin.setup", "ansible.builtin.gather_facts"), str(task)
        for text in roles.strings_in(dict(task.body)):
            assert not re.search(r"\bansible_(distribution|kernel|os_family|architecture|service_mgr)\b", text), str(
                task
            )


# The plays


def test_committed_lock_is_pure_data_and_carries_its_digest() -> None:
    path = PLAYBOOKS / "group_vars" / "all" / "provision_lock.yml"
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\{\{|\{%|!unsafe|!vault", text)
    lock = roles.load(path)
    assert list(lock) == ["provision_lock"]
    assert lock["provision_lock"]["digest"].startswith("sha256:")


def test_every_filter_is_called_by_a_play_or_a_role() -> None:
    files = [path for path in PLAYBOOKS.rglob("*") if path.suffix in (".yml", ".j2")]
    called = {name for path in files for name in re.findall(r"\bgpu_\w+", path.read_text(encoding="utf-8"))}
    offered = {
        key.value
        for path in PLAYBOOKS.rglob("filter_plugins/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "filters"
        for row in ast.walk(node)
        if isinstance(row, ast.Dict)
        for key in row.keys
        if isinstance(key, ast.Constant)
    }
    assert len(offered) > 40
    assert sorted(offered - called) == []


OF_THE_PLAYS = re.compile(r"\b(?:gpu_rollout_\w+|gpu_rollback_to|gpu_hosts|gpu_become)\b")


def documented() -> set[str]:
    """The variables of the plays themselves, by their table."""
    return set(re.findall(r"^\| `(gpu_\w+)` \|", (PLAYBOOKS / "README.md").read_text(encoding="utf-8"), re.MULTILINE))


def test_variables_of_the_plays_are_those_of_the_readme() -> None:
    files = [*PLAYBOOKS.glob("*.yml"), *(PLAYBOOKS / "tasks").glob("*.yml")]
    used = {name for file in files for name in OF_THE_PLAYS.findall(file.read_text(encoding="utf-8"))}
    assert used == documented()


def test_plays_set_and_use_only_variables_that_exist() -> None:
    """Names with ``gpu_node_`` are the plays' own, made and used in them."""
    made_by_roles = {name for role in roles.ROLES for task in roles.tasks_of(role) for name in names_made_by(task)}
    known = {name for role in roles.ROLES for name in options_of(role)} | documented() | made_by_roles | set(NAMES)
    known |= {name for role in roles.ROLES for file in (role / "vars").glob("*.yml") for name in roles.load(file) or {}}
    unknown: dict[str, str] = {}
    for file in [*PLAYBOOKS.glob("*.yml"), *(PLAYBOOKS / "tasks").glob("*.yml")]:
        document = roles.load(file)
        names = {name for row in roles.mappings_in(document) for name in row.get("vars") or ()}
        for text in roles.strings_in(document):
            if "{{" in text or "{%" in text:
                names |= roles.variables_in(_without_words(text))
        unknown |= {
            name: file.name
            for name in names
            if name.startswith("gpu_") and name not in known | {"gpu_nodes"}
            if not name.startswith("gpu_node_")
        }
    assert unknown == {}


EXAMPLES = sorted(path.parent for path in (PLAYBOOKS / "inventory").glob("*/hosts.yml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_sets_only_variables_that_exist(example: Path) -> None:
    known = {name for role in roles.ROLES for name in roles.defaults_of(role)}
    known |= documented()
    files = [*example.rglob("*.yml")]
    used = {
        key for file in files for row in roles.mappings_in(roles.load(file)) for key in row if key.startswith("gpu_")
    }
    assert used - known - {"gpu_nodes", "gpu_monitor", "gpu_slurm"} == set()


def test_same_roles_in_both_lists() -> None:
    """The upgrade runs what gpu-node.yml runs, in the same order."""
    plays = roles.load(PLAYBOOKS / "gpu-node.yml")
    steps = roles.load(PLAYBOOKS / "tasks" / "stack.yml")
    listed = [row["role"] for row in plays[1]["roles"]]
    imported = [step["ansible.builtin.import_role"]["name"] for step in steps if "ansible.builtin.import_role" in step]
    assert imported == [*listed, "gpu_verify"]
