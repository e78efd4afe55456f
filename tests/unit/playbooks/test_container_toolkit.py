"""How container engines are told of NVIDIA's runtime, decided on the controller from what a node says."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")


engines = playbook_files.load_filters("gpu_engines")

DEBIAN = """version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
KUBERNETES = """# kubeadm's
version = 3
root = "/var/lib/containerd"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
DOCKERS_OWN = 'disabled_plugins = ["cri"]\n#root = "/var/lib/containerd"\n'
OLD = "plugin_dir = ''\n[plugins.cri]\nsandbox_image = 'pause'\n"


def host(**texts: str) -> dict[str, Any]:
    """A node with Docker and containerd and the files given by a short name."""
    paths = {
        "docker": engines.DOCKER_CONFIG,
        "containerd": engines.CONTAINERD_CONFIG,
        "drop_in": engines.CONTAINERD_DROP_IN,
    }
    files = {
        paths.get(name, f"/etc/containerd/conf.d/{name}.toml"): {
            "text": text,
            "mode": "0640",
            "owner": "root",
            "group": "root",
        }
        for name, text in texts.items()
    }
    found = {"docker": "26.1.5", "containerd": "1.7.24", "crio": None, "podman": None, "kubelet": None}
    return {"engines": found, "files": files, "links": {}, "folders": {}}


def plan(node: dict[str, Any], **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = engines.plan_engines(node, {"has_cdi": True, **options})
    return result


def drop_in(result: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(
        next(item["content"] for item in result["containerd"] if item["path"] == engines.CONTAINERD_DROP_IN)
    )


def config(result: dict[str, Any]) -> str:
    return str(next(item["content"] for item in result["containerd"] if item["path"] == engines.CONTAINERD_CONFIG))


def test_auto_takes_the_engines_that_are_there() -> None:
    assert plan(host(containerd=DEBIAN))["engines"] == ["docker", "containerd"]


def test_an_engine_asked_for_and_not_there_is_a_problem() -> None:
    problems = plan(host(), engines=["docker", "crio", "dokcer"])["problems"]
    assert len(problems) == 2
    assert "`crio`, which is not installed" in problems[0]
    assert "`dokcer`" in problems[1]


@pytest.mark.parametrize("wanted", ["docker,containerd", ["docker", "containerd"]])
def test_engines_may_be_words_or_a_list(wanted: Any) -> None:
    assert plan(host(containerd=DEBIAN), engines=wanted)["engines"] == ["docker", "containerd"]


def test_drop_in_keeps_the_users_section_since_containerd_replaces_it_whole() -> None:
    section = drop_in(plan(host(containerd=DEBIAN)))["plugins"]["io.containerd.grpc.v1.cri"]
    assert section["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"}
    assert section["enable_cdi"] is True


def test_drop_in_names_the_default_runtime_that_a_table_of_runtimes_would_drop() -> None:
    runtimes = drop_in(plan(host(containerd=DEBIAN)))["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert runtimes["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert runtimes["nvidia"]["options"]["BinaryName"] == engines.RUNTIME_PATH


def test_nvidia_runtime_inherits_the_options_of_the_default() -> None:
    section = drop_in(plan(host(containerd=KUBERNETES)))["plugins"]["io.containerd.cri.v1.runtime"]
    assert section["containerd"]["runtimes"]["nvidia"]["options"] == {
        "SystemdCgroup": True,
        "BinaryName": engines.RUNTIME_PATH,
    }
    assert "default_runtime_name" in section["containerd"]
    assert section["containerd"]["default_runtime_name"] == "runc"


def test_default_runtime_only_when_asked_for() -> None:
    def default(**options: Any) -> Any:
        node = host(containerd=DEBIAN, docker="{}")
        result = plan(node, **options)
        containerd = drop_in(result)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
        return containerd.get("default_runtime_name"), result["docker"].get("default-runtime")

    assert default() == (None, None)
    assert default(is_default_runtime=True) == ("nvidia", "nvidia")


def test_import_is_one_line_and_leaves_every_other_byte() -> None:
    text = config(plan(host(containerd=KUBERNETES)))
    added = [line for line in text.splitlines() if line not in KUBERNETES.splitlines()]
    assert len(added) == 1
    assert tomllib.loads(text) == {**tomllib.loads(KUBERNETES), "imports": [engines.CONTAINERD_DROP_IN]}


@pytest.mark.parametrize(
    "line",
    [
        'imports = ["/etc/containerd/conf.d/*.toml"]',
        'imports = ["conf.d/*.toml"]',
        "imports = ['/etc/containerd/conf.d/99-provision-nvidia.toml']",
    ],
)
def test_import_that_already_covers_the_drop_in_is_left_alone(line: str) -> None:
    text = DEBIAN.replace("version = 2\n", f"version = 2\n{line}\n")
    assert config(plan(host(containerd=text))) == text


@pytest.mark.parametrize(
    "imports",
    [
        'imports = ["/etc/containerd/a.toml"]',
        'imports = [\n  "/etc/containerd/a.toml", # the site\'s "own"\n]',
        "imports = ['/etc/containerd/a.toml',]",
        "imports = []",
    ],
)
def test_import_is_added_to_a_list_and_taken_out_again(imports: str) -> None:
    text = DEBIAN.replace("version = 2\n", f"{imports}\nversion = 2 # schema\n")
    edited = engines.add_import(text, 2)
    assert tomllib.loads(edited)["imports"] == [*tomllib.loads(text)["imports"], engines.CONTAINERD_DROP_IN]
    assert engines.remove_import(edited) == text


@pytest.mark.parametrize("text", [DEBIAN, KUBERNETES, "# nothing\n", "version = 2\n"])
def test_removal_gives_the_bytes_back(text: str) -> None:
    assert engines.remove_import(engines.add_import(text, 2)) == text


def test_file_made_here_is_deleted_by_removal() -> None:
    assert engines.remove_import(engines.add_import("", 2)) is None


@pytest.mark.parametrize(("engine", "schema"), [("1.6.20", 2), ("2.1.4", 3)])
def test_schema_of_a_new_file_suits_the_engine(engine: str, schema: int) -> None:
    node = host()
    node["engines"]["containerd"] = engine
    assert tomllib.loads(config(plan(node)))["version"] == schema
    assert drop_in(plan(node))["version"] == schema


def test_switched_off_cri_is_left_alone_by_auto_and_refused_when_asked_for() -> None:
    automatic = plan(host(containerd=DOCKERS_OWN))
    assert (automatic["engines"], automatic["containerd"], automatic["problems"]) == (["docker"], [], [])
    assert "disabled_plugins" in automatic["notes"][0]
    assert "disabled_plugins" in plan(host(containerd=DOCKERS_OWN), engines=["containerd"])["problems"][0]


@pytest.mark.parametrize(
    ("text", "words"), [(OLD, "schema version 1"), ("version = [", "is not TOML"), ("version = '2'", "not a number")]
)
def test_config_that_cannot_be_merged_with_is_named(text: str, words: str) -> None:
    result = plan(host(containerd=text))
    assert result["containerd"] == []
    assert [words in problem for problem in result["problems"]] == [True]


def test_sections_of_files_imported_before_are_kept() -> None:
    text = DEBIAN.replace("version = 2\n", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    other = '[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'
    node = host(**{"containerd": text, "50-registry": other, "drop_in": "version = 2\n"})
    section = drop_in(plan(node))["plugins"]["io.containerd.grpc.v1.cri"]
    assert section["registry"] == {"config_path": "/etc/containerd/certs.d"}


def test_a_second_plan_over_its_own_result_changes_nothing() -> None:
    first = plan(host(containerd=DEBIAN))
    node = host(containerd=config(first))
    node["files"][engines.CONTAINERD_DROP_IN] = {"text": first["containerd"][0]["content"], "mode": "0644"}
    assert [item["content"] for item in plan(node)["containerd"]] == [item["content"] for item in first["containerd"]]


def test_docker_gets_its_runtime_and_cdi() -> None:
    assert plan(host(docker='{"log-driver": "local"}'))["docker"] == {
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
        "features": {"cdi": True},
    }
    assert "features" not in plan(host(), has_cdi=False)["docker"]


@pytest.mark.parametrize("text", ["{ bad", "[]", '{"runtimes": []}'])
def test_daemon_json_that_cannot_be_merged_with_is_named(text: str) -> None:
    result = plan(host(docker=text, containerd=DEBIAN))
    assert result["docker"] == {}
    assert len(result["problems"]) == 1
    assert "/etc/docker/daemon.json" in result["problems"][0]


@pytest.mark.parametrize(
    ("policy", "daemon", "docker", "containerd"),
    [
        (True, "{}", "restart", "restart"),
        ("false", "{}", "none", "none"),
        (False, "{}", "none", "none"),
        ("live-restore", "{}", "reload", "restart"),
        ("live-restore", '{"live-restore": true}', "restart", "restart"),
    ],
)
def test_restart_costs_no_more_than_the_policy_allows(policy: Any, daemon: str, docker: str, containerd: str) -> None:
    result = plan(host(docker=daemon, containerd=DEBIAN), restart=policy)
    assert result["restart"] == {"docker": docker, "containerd": containerd}


def test_unknown_restart_policy_is_a_problem() -> None:
    assert "`sometimes`" in plan(host(), restart="sometimes")["problems"][0]


def test_mode_of_a_users_file_is_kept() -> None:
    files = plan(host(containerd=DEBIAN))["containerd"]
    assert {item["path"]: item["mode"] for item in files} == {
        engines.CONTAINERD_DROP_IN: "0644",
        engines.CONTAINERD_CONFIG: "0640",
    }


def test_link_is_not_written_through() -> None:
    node = host()
    node["links"][engines.DOCKER_CONFIG] = "/srv/daemon.json"
    assert "is a link to /srv/daemon.json" in plan(node)["problems"][0]


def test_crio_gets_a_drop_in() -> None:
    node = host()
    node["engines"] = {"crio": "1.33.0"}
    [item] = plan(node, is_default_runtime=True)["crio"]
    runtime = tomllib.loads(item["content"])["crio"]["runtime"]
    assert runtime["default_runtime"] == "nvidia"
    assert runtime["runtimes"]["nvidia"]["runtime_path"] == engines.RUNTIME_PATH


def test_undo_takes_out_what_was_put_in() -> None:
    node = host(
        docker=json.dumps({"default-runtime": "nvidia"}), containerd=engines.add_import(DEBIAN, 2), drop_in="x = 1\n"
    )
    undo = engines.undo_engines(node)
    assert undo["docker"]["default-runtime"] == "nvidia"
    assert undo["containerd"][0] == {"path": engines.CONTAINERD_DROP_IN, "state": "absent"}
    assert undo["containerd"][1]["content"] == DEBIAN


@pytest.mark.parametrize(
    "text",
    [
        DEBIAN,
        KUBERNETES,
        "",
        "  \n",
        "# nothing",
        "version = 2",
        "imports = [ ]\nversion = 2\n",
        engines.HEADER + "version = 2\n",
    ],
)
def test_undo_gives_containerd_the_very_bytes_from_before(text: str) -> None:
    node = host(containerd=engines.add_import(text, 2), drop_in="x = 1\n")
    undo = engines.undo_engines(node, {engines.CONTAINERD_CONFIG: text})
    assert [item["content"] for item in undo["containerd"] if item["path"] == engines.CONTAINERD_CONFIG] == [text]


def test_undo_keeps_what_the_user_wrote_since_the_first_run() -> None:
    now = engines.add_import(DEBIAN, 2) + "[debug]\n  level = 'warn'\n"
    undo = engines.undo_engines(host(containerd=now), {engines.CONTAINERD_CONFIG: DEBIAN})
    assert undo["containerd"][-1]["content"] == DEBIAN + "[debug]\n  level = 'warn'\n"


def test_undo_leaves_a_host_that_was_never_touched() -> None:
    undo = engines.undo_engines(host(containerd=DEBIAN))
    assert undo == {"docker": {}, "containerd": [], "crio": []}


def test_toml_is_read_back_as_it_was_written() -> None:
    document = {
        "a": 'quote " back \\ tab \t del \x7f',
        "list": ["x", 1, True, {"k": "v"}],
        "plain": {"b": False, "dotted.key": {"deep": {"n": 1.5}}, "empty": {}},
    }
    assert tomllib.loads(engines.render_toml(document)) == document


SET = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.17.8-1", "below 1.19.1"),
        ("1.9.1-1", "below 1.19.1"),
        ("1:1.17.8-1", "below 1.19.1"),
        ("1.19.1~rc.1-1", "below 1.19.1"),
        ("1.19.1-1", ""),
        ("1.20.0-1", ""),
        ("2.0.0~rc.1-1", ""),
    ],
)
def test_toolkit_below_the_floor_is_refused(version: str, words: str) -> None:
    problems = engines.find_toolkit_problems([{"name": name, "version": version} for name in SET], "1.19.1")
    assert len(problems) == bool(words)
    assert words in "".join(problems)


def test_toolkit_of_two_versions_is_refused() -> None:
    packages = [{"name": name, "version": "1.20.1-1"} for name in SET[:3]] + [{"name": SET[3], "version": "1.20.0-1"}]
    assert "must all have one version" in engines.find_toolkit_problems(packages, "")[0]
    assert "without a version" in engines.find_toolkit_problems([{"name": SET[0], "version": None}], "")[0]
