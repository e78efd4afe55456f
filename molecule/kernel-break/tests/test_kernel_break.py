"""A driver that does not build: dpkg stays whole, the driver from before is back, other kernels still boot."""

import pytest

OVERRIDE = "/etc/dkms/nvidia-current-{version}.conf"
# DKMS reads this file instead of the package's own settings; what it says ends up in make.log.
BROKEN = """MAKE[0]="sh -c 'echo provision.c:1:2: error: broken on purpose; exit 1'"\n"""
PACKAGE = "nvidia-kernel-dkms"


def kernel_of(node):
    return node.say("ls -d /lib/modules/*/build | head -n 1 | cut -d/ -f4")


@pytest.fixture(scope="module")
def newer(gpu_node):
    """Another release of the branch that apt could install."""
    now = gpu_node.say(f"dpkg-query -W -f '${{Version}}' {PACKAGE}")
    listed = gpu_node.say(f"apt-cache madison {PACKAGE}").splitlines()
    found = sorted({line.split("|")[1].strip() for line in listed if "|" in line} - {now})
    found = [version for version in found if version.split(".")[0] == now.split(".")[0]]
    if not found:
        pytest.skip("the archive has one release of this branch alone today")
    return found[-1]


@pytest.fixture(scope="module")
def healthy(gpu_node):
    return gpu_node.packages(), gpu_node.tree(residue=True)


@pytest.fixture(scope="module")
def broken(gpu_node, newer, healthy, play):
    """An upgrade to a release whose module does not build."""
    path = OVERRIDE.format(version=newer.partition("-")[0])
    gpu_node.write(path, BROKEN)
    outcome = play("gpu-node-upgrade.yml", gpu_driver_version=newer.partition("-")[0])
    gpu_node.say('rm "$1"', path)
    return outcome


def test_the_upgrade_fails(broken, gpu_node):
    assert broken.status != 0
    assert broken.hosts[gpu_node.name]["failures"] >= 1


def test_the_last_lines_of_the_compiler_are_printed(broken):
    assert "broken on purpose" in broken.failures


def test_the_message_names_driver_and_ways_out(broken, newer):
    assert newer.partition("-")[0] in broken.failures
    assert "provision node lock" in broken.failures


def test_dpkg_has_nothing_half_done(broken, gpu_node):
    assert gpu_node.say("dpkg --audit") == ""


def test_the_packages_from_before_are_back(broken, gpu_node, healthy, difference):
    assert difference(healthy[0], gpu_node.packages()) == []


def test_the_module_from_before_is_back_and_built(broken, gpu_node, node_lock):
    version = node_lock["profiles"]["debian12"]["driver"]["version"]
    assert gpu_node.say(f"modinfo -k {kernel_of(gpu_node)} -F version nvidia-current") == version
    assert f"{version}, {kernel_of(gpu_node)}" in gpu_node.say("dkms status")


def test_nothing_else_on_the_node_was_changed(broken, gpu_node, healthy, difference):
    changed = difference(healthy[1], gpu_node.tree(residue=True))
    built = ("/dkms/", "/modules.", "/etc/apt/preferences.d/provision-restored")
    assert [line for line in changed if not any(part in line for part in built)] == []


def test_the_next_run_with_the_old_lock_converges(broken, gpu_node, play):
    play("gpu-node.yml").expect_success()
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []


@pytest.fixture(scope="module")
def upgraded_kernel(gpu_node, broken, node_lock):
    """A kernel whose module does not build arrives by apt, as an unattended upgrade would bring it."""
    now = kernel_of(gpu_node)
    listed = gpu_node.say(
        "apt-cache search --names-only '^linux-headers-6[.]1[.]0-[0-9]+-amd64$' | cut -d' ' -f1"
    ).split()
    others = [name for name in listed if now not in name]
    if not others:
        pytest.skip("the archive has one kernel alone today")
    kernel = others[-1].removeprefix("linux-headers-")
    version = node_lock["profiles"]["debian12"]["driver"]["version"]
    gpu_node.write(f"/etc/dkms/nvidia-current-{version}-{kernel}.conf", BROKEN)
    done = gpu_node.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y -q install linux-headers-{kernel} 2>&1")
    return now, kernel, done


def test_a_kernel_without_module_does_not_break_dpkg(upgraded_kernel, gpu_node):
    _now, _kernel, done = upgraded_kernel
    assert done.returncode == 0, done.stdout[-3000:]
    assert gpu_node.say("dpkg --audit") == ""


def test_a_kernel_without_module_is_flagged_by_name_with_the_reason(upgraded_kernel, gpu_node):
    _now, kernel, done = upgraded_kernel
    assert f"kernel {kernel} has no NVIDIA module" in done.stdout
    assert "make.log" in gpu_node.read(f"/var/lib/provision/kernel-guard/{kernel}.json")


def test_the_old_kernel_keeps_its_module(upgraded_kernel, gpu_node, node_lock):
    now, _kernel, _done = upgraded_kernel
    version = node_lock["profiles"]["debian12"]["driver"]["version"]
    assert gpu_node.say(f"modinfo -k {now} -F version nvidia-current") == version


def test_a_run_names_the_flagged_kernel(upgraded_kernel, gpu_node, play):
    now, kernel, _done = upgraded_kernel
    outcome = play("gpu-node.yml", gpu_kernel_policy="hold")
    assert kernel in outcome.output
    assert gpu_node.say("dpkg --audit") == ""
    assert gpu_node.has(f"/lib/modules/{now}/build")
