"""Modules that Ubuntu compiled: nothing is built on the node, and who signed them can be told."""

testinfra_hosts = ["gpu_nodes"]


def kernels(host, driver):
    """Kernels that have the module of the driver."""
    found = host.check_output(f"find /lib/modules /usr/lib/modules -name '{driver.module}.ko*'")
    return sorted({path.partition("/modules/")[2].split("/")[0] for path in found.splitlines()})


def test_nothing_was_compiled_on_the_node(host):
    assert host.run("command -v dkms").rc != 0
    assert host.run("command -v make").rc != 0


def test_the_module_is_one_of_a_package(host, driver):
    assert kernels(host, driver)
    for kernel in kernels(host, driver):
        path = host.check_output(f"modinfo -k {kernel} -n {driver.module}")
        owner = host.check_output(f"dpkg -S {path} || dpkg -S {path.removeprefix('/usr')} || dpkg -S /usr{path}")
        assert owner.startswith("linux-modules-nvidia-580"), owner


def test_ubuntu_signed_it(host, driver):
    for kernel in kernels(host, driver):
        assert "Canonical" in host.check_output(f"modinfo -k {kernel} -F signer {driver.module}")


def test_the_node_has_an_image_for_that_kernel(host, driver):
    for kernel in kernels(host, driver):
        assert host.run(f"ls /boot/vmlinuz-{kernel}").rc == 0, kernel
