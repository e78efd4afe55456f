"""The rest of the stack, from stand-ins where no archive has it: what lies on the node, and how engines know it."""

import json

import pytest

testinfra_hosts = ["gpu_nodes"]


def pinned(section):
    """Package → version of every row with both, anywhere below a section."""
    if isinstance(section, dict):
        if isinstance(section.get("name"), str) and isinstance(section.get("version"), str):
            return {section["name"]: section["version"]}
        section = list(section.values())
    rows = {}
    for part in section if isinstance(section, list) else []:
        rows |= pinned(part)
    return rows


@pytest.mark.parametrize("name", ["cuda", "nccl", "container_toolkit", "dcgm"])
def test_packages_of_the_section_have_the_versions_of_the_lock(host, profile, name):
    section = dict(profile.get(name) or {})
    for optional in ("compat", "tests"):
        section.pop(optional, None)
    wanted = pinned(section)
    if not wanted:
        pytest.skip(f"the lock has no {name} for this release")
    for package, version in wanted.items():
        assert host.check_output(f"dpkg-query -W -f '${{Version}}' {package}") == version, package


def test_keys_that_a_user_wrote_into_daemon_json_are_kept(host, profile):
    if not profile.get("container_toolkit"):
        pytest.skip("the lock has no container toolkit")
    settings = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert settings["log-driver"] == "local", "the user's own key"
    assert "nvidia" in settings["runtimes"]


def test_cuda_is_chosen_by_alternatives(host, profile):
    cuda = profile.get("cuda")
    if not cuda:
        pytest.skip("the lock has no CUDA toolkit")
    assert host.file("/usr/local/cuda").is_symlink
    assert host.check_output("readlink -f /usr/local/cuda") == cuda["homes"][cuda["default"]]
    assert host.run("update-alternatives --query cuda").rc == 0


def test_login_shells_find_cuda(host, profile):
    if not profile.get("cuda"):
        pytest.skip("the lock has no CUDA toolkit")
    assert "/usr/local/cuda/bin" in host.check_output("bash -lc 'echo $PATH'")


def test_no_fabric_manager_where_there_is_no_switch(host, site_vars):
    if site_vars.get("gpu_fabric_enabled") is True:
        pytest.skip("the scenario asks for it")
    assert "fabric" not in host.check_output("dpkg-query -W -f '${Package}\\n'")


def test_stand_ins_are_marked(host):
    stubs = host.check_output("ls /usr/share/doc/*/STUB 2>/dev/null || true").split()
    for path in stubs:
        assert "STUB" in host.check_output(f"dpkg-query -W -f '${{Description}}' {path.split('/')[4]}")
