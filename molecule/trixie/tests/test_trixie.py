"""Both flavours, and the pair of driver and kernel of which the facts know that it does not build."""

import re

import nodes as machines
import pytest
import yaml

LICENSES = {"proprietary": "NVIDIA", "open": "Dual MIT/GPL"}
SYSTEM = "debian13"


@pytest.fixture(scope="module")
def nodes(node_named):
    return {name: node_named(name) for name in ("proprietary", "open")}


@pytest.fixture(scope="module")
def with_open(nodes):
    """The node of the open module, where the archive still has a kernel that it builds on."""
    path = machines.ephemeral() / "site/host_vars/open.yml"
    if yaml.safe_load(path.read_text(encoding="utf-8"))["gpu_driver_flavour"] != "open":
        pytest.skip("the archive has no kernel any more that the open module builds on: both nodes are proprietary")
    return nodes["open"]


def modules_of(node):
    """Kernel → licenses of the main modules that DKMS made for it."""
    listed = node.say("find /lib/modules -path '*dkms*' -name 'nvidia-current*.ko*'").split()
    found = {}
    for path in listed:
        if re.fullmatch(r"nvidia-current(-open)?\.ko(\.xz)?", path.rpartition("/")[2]):
            found.setdefault(path.split("/")[3], set()).add(node.say('modinfo -F license "$1"', path))
    return found


@pytest.fixture(scope="module")
def bad(nodes, node_lock):
    """The row of the facts that excludes the open module of this driver on the kernel of the node."""
    driver = node_lock["profiles"][SYSTEM]["driver"]["version"]
    rows = [row for row in node_lock["known_bad"] if (row["driver"], row["flavour"]) == (driver, "open")]
    node = nodes["proprietary"]
    kernel = next(iter(modules_of(node)))
    version = node.say(f"dpkg-query -W -f '${{Version}}' linux-headers-{kernel}")
    for row in rows:
        if node.run('dpkg --compare-versions "$1" ge "$2"', version, row["kernel_first"]).returncode == 0:
            return row
    pytest.skip(f"the facts know no reason why open {driver} would not build on {kernel}, the archive's newest")


@pytest.fixture(scope="module")
def refused(nodes, play, bad):
    """The open module asked for on the newest kernel."""
    node = nodes["proprietary"]
    before = (node.tree(), node.packages())
    outcome = play("gpu-node.yml", "-l", "proprietary", gpu_driver_flavour="open")
    return outcome, before, (node.tree(), node.packages())


@pytest.fixture(scope="module")
def broken(nodes, play, bad, refused):
    """The same where the preflight only warns: the compiler fails for real."""
    node = nodes["proprietary"]
    before = node.packages()
    outcome = play(
        "gpu-node.yml",
        "-l",
        "proprietary",
        gpu_driver_flavour="open",
        gpu_preflight_mode="warn",
    )
    return outcome, before


def test_each_node_has_its_flavour_and_no_other(nodes, with_open):
    for name, node in nodes.items():
        assert set().union(*modules_of(node).values()) == {LICENSES[name]}, name


def test_the_known_bad_pair_is_refused_with_its_reference(refused, bad):
    assert refused[0].status != 0
    assert bad["reference"] in refused[0].failures
    assert bad["symptom"].split(":")[0] in refused[0].failures


def test_a_refusal_changes_nothing(refused, difference):
    assert difference(refused[1][0], refused[2][0]) == []
    assert difference(refused[1][1], refused[2][1]) == []


def test_what_the_facts_say_of_the_pair_is_what_the_compiler_says(broken, bad):
    assert broken[0].status != 0
    function = bad["symptom"].split()[-1]
    assert re.search(rf"nv-pci\.c:\d+:\d+: error: .*{function}", broken[0].failures), broken[0].failures[-3000:]


def test_a_module_that_does_not_build_leaves_dpkg_whole_and_the_packages_as_they_were(broken, nodes, difference):
    assert nodes["proprietary"].say("dpkg --audit") == ""
    assert difference(broken[1], nodes["proprietary"].packages()) == []


def test_the_module_from_before_is_there_still(broken, nodes):
    node = nodes["proprietary"]
    assert list(modules_of(node).values()) == [{LICENSES["proprietary"]}]
    assert "nvidia-current-open" not in node.say("dkms status")


def test_the_next_run_converges_again(broken, nodes, play):
    play("gpu-node.yml", "-l", "proprietary").expect_success()
    assert play("gpu-node.yml", "-l", "proprietary").expect_success().changed("proprietary") == []


def test_only_the_pinned_kernel_is_on_the_node_of_the_open_module(with_open):
    built = with_open.say("dkms status")
    assert "nvidia-current-open" in built
    assert "installed" in built
    assert len(modules_of(with_open)) == 1
