"""Nothing came from outside, and nothing but the folder is asked for packages of the driver."""

testinfra_hosts = ["gpu_nodes"]


def test_the_node_has_no_way_out(host):
    assert host.check_output("ip route show default") == ""


def test_the_driver_came_from_the_folder(host, driver):
    policy = host.check_output("apt-cache policy nvidia-kernel-dkms")
    assert "file:/opt/provision-stubs/mirror" in policy
    assert f"Installed: {driver.packages['nvidia-kernel-dkms']}" in policy


def test_no_repository_of_the_vendor_was_configured(host):
    names = host.check_output("ls /etc/apt/sources.list.d").split()
    assert [name for name in names if name.startswith("provision-")] == ["provision-offline.sources"]
