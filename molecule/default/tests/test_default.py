"""Only here: the module was really compiled on the node, from Debian's own source package."""

testinfra_hosts = ["gpu_nodes"]


def test_the_module_was_compiled_here(host, driver):
    log = host.check_output(f"cat /var/lib/dkms/{driver.dkms_name}/{driver.version}/*/x86_64/log/make.log")
    assert log.startswith(f"DKMS make.log for {driver.dkms_name}-{driver.version}")
    assert "nvidia.ko" in log


def test_the_compiled_module_is_no_empty_file(host, driver):
    path = host.check_output("find /lib/modules -name %s.ko*", driver.module)
    assert path
    assert all(host.file(one).size > 100_000 for one in path.split())
