"""The committed lock, as users run it."""

import pytest

testinfra_hosts = ["gpu_nodes"]
LINK = "/opt/provision/envs/torch"


@pytest.fixture
def torch(node, profile):
    """What the lock says of its torch, on the node that has one."""
    if node.name != "noble":
        pytest.skip("the scenario leaves frameworks out on this node: their wheels are several gigabytes")
    return next(each for each in profile["frameworks"]["environments"] if each["name"] == "torch")


def test_it_is_the_committed_lock_that_was_used(node_lock, node):
    assert "gpu_nodes/provision_lock" not in node_lock
    assert node_lock["digest"] in node.read("/var/lib/provision/state.json")


def test_no_variable_of_the_scenario_changes_what_the_lock_asks_for(site_vars):
    assert site_vars == {}


def test_the_driver_is_the_one_that_ubuntu_supports(host, driver):
    policy = host.check_output(f"apt-cache policy {next(iter(driver.packages))}")
    assert "ubuntu" in policy


def test_torch_has_the_version_of_the_lock_and_its_cuda(host, torch, node_lock):
    said = host.check_output(f"{LINK}/bin/python -c 'import torch; print(torch.__version__, torch.version.cuda)'")
    version, cuda = said.split()
    assert version.split("+")[0] == torch["versions"]["torch"]
    assert cuda == node_lock["stack"]["cuda"]


def test_torch_sees_no_gpu_and_says_why(host, torch):
    script = "import torch; print(torch.cuda.is_available()); torch.cuda.init()"
    done = host.run(f"{LINK}/bin/python -W always -c '{script}'")
    assert done.stdout.strip() == "False"
    assert done.stderr.rstrip().endswith("No CUDA GPUs are available"), done.stderr
