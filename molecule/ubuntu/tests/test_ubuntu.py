"""The committed lock, as users run it."""

testinfra_hosts = ["gpu_nodes"]


def test_it_is_the_committed_lock_that_was_used(node_lock, node):
    assert "gpu_nodes/provision_lock" not in node_lock
    assert node_lock["digest"] in node.read("/var/lib/provision/state.json")


def test_the_driver_is_the_one_that_ubuntu_supports(host, driver):
    policy = host.check_output(f"apt-cache policy {next(iter(driver.packages))}")
    assert "ubuntu" in policy
