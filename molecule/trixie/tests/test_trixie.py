"""Both flavours, and the pair of driver and kernel of which the facts know that it does not build."""

import pytest


@pytest.fixture(scope="module")
def nodes(node_named):
    return {name: node_named(name) for name in ("proprietary", "open")}


@pytest.fixture(scope="module")
def refused(nodes, play, node_lock):
    """The open module asked for on the newest kernel, in check mode of nothing: a real run."""
    bad = [row for row in node_lock["known_bad"] if row["flavour"] == "open"]
    if not bad:
        pytest.skip("the facts know no kernel on which the open module of this driver breaks")
    node = nodes["proprietary"]
    before = (node.tree(), node.packages())
    outcome = play("gpu-node.yml", "-l", "proprietary", gpu_driver_flavour="open")
    return outcome, before, (node.tree(), node.packages()), bad[0]


def test_the_two_nodes_have_the_two_flavours(nodes):
    for name, wanted in (("proprietary", "NVIDIA"), ("open", "Dual MIT/GPL")):
        files = nodes[name].say(
            "find /lib/modules -path '*dkms*' -name 'nvidia-current*.ko*' | grep -v -e drm -e uvm -e peermem -e modeset"
        )
        licenses = {nodes[name].say('modinfo -F license "$1"', path) for path in files.split()}
        assert licenses == {wanted}, name


def test_the_known_bad_pair_is_refused_with_its_reference(refused):
    assert refused[0].status != 0
    assert refused[3]["reference"] in refused[0].failures
    assert refused[3]["symptom"].split(":")[0] in refused[0].failures


def test_a_refusal_changes_nothing(refused, difference):
    assert difference(refused[1][0], refused[2][0]) == []
    assert difference(refused[1][1], refused[2][1]) == []


def test_only_the_pinned_kernel_is_on_the_node_of_the_open_module(nodes):
    built = nodes["open"].say("dkms status")
    assert "nvidia-current-open" in built
    assert "installed" in built
