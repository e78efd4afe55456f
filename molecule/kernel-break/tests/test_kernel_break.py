"""A driver that does not build: dpkg stays whole, the driver from before is back, other kernels still boot."""

import functools
import re

import pytest

# DKMS reads this file beside the package's own settings.
OVERRIDE = "/etc/dkms/nvidia-current-{version}.conf"
# The module's source is broken for real, and the compiler says so; without the minutes of a whole build.
BROKEN = (
    """MAKE[0]="sed -i '1i #error broken on purpose' nvidia/nv.c"""
    """ && $(command -v gcc-12 gcc | head -n 1) -c nvidia/nv.c"\n"""
)
COMPLAINT = "nvidia/nv.c:1:2: error: #error broken on purpose"
PACKAGE = "nvidia-kernel-dkms"
# A container has no disk: what the real update-grub asks about it is answered by this.
PROBE = """#!/bin/sh
case $* in
*target=device*) echo /dev/vda1 ;;
*target=fs_uuid*) echo 0123abcd-0000-4000-8000-000000000000 ;;
*target=fs*) echo ext2 ;;
*target=partmap*) echo msdos ;;
esac
"""
DROPIN = "/etc/default/grub.d/zz-provision-kernel-guard.cfg"


def kernel_of(node):
    return node.say("ls -d /lib/modules/*/build | head -n 1 | cut -d/ -f4")


def is_older(node, one, other):
    """Debian's own opinion."""
    return node.run('dpkg --compare-versions "$1" lt "$2"', one, other).returncode == 0


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
    assert COMPLAINT in broken.failures


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
    # The pins say what was asked for, and above that what was put back.
    pins = ("/etc/apt/preferences.d/provision-gpu", "/etc/apt/preferences.d/provision-restored")
    built = ("/dkms/", "/modules.", *pins)
    assert [line for line in changed if not any(part in line for part in built)] == []


def test_the_next_run_with_the_old_lock_converges(broken, gpu_node, play):
    play("gpu-node.yml").expect_success()
    assert play("gpu-node.yml").expect_success().changed(gpu_node.name) == []


@pytest.fixture(scope="module")
def kernels(gpu_node):
    """The kernel of the node, and a newer one of the archive that no module was built for."""
    now = kernel_of(gpu_node)
    listed = gpu_node.say("apt-cache search --names-only '^linux-image-[0-9].*[0-9]-amd64$' | cut -d' ' -f1").split()
    found = [name.removeprefix("linux-image-") for name in listed]
    newer = [kernel for kernel in found if is_older(gpu_node, now, kernel)]
    if not newer:
        pytest.skip(f"the archive has no kernel after {now} today: {', '.join(found)}")
    return now, max(newer, key=functools.cmp_to_key(lambda one, other: -1 if is_older(gpu_node, one, other) else 1))


@pytest.fixture(scope="module")
def bootable(gpu_node, kernels):
    """A boot menu, as a machine has one: GRUB's own, of the kernel of the node, which is started now."""
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends install grub2-common")
    gpu_node.say("dpkg-divert --quiet --local --rename --add /usr/sbin/grub-probe")
    gpu_node.write("/usr/sbin/grub-probe", PROBE)
    gpu_node.say('chmod 755 /usr/sbin/grub-probe && mkdir -p /boot/grub && : >"/boot/vmlinuz-$1"', kernels[0])
    gpu_node.say("update-grub")
    return menu_of(gpu_node)


def menu_of(node):
    """Which entry GRUB starts by itself, and the kernels that it has entries for."""
    text = node.read("/boot/grub/grub.cfg")
    default = re.findall(r'^\s*set default="([^$"]+)"$', text, flags=re.MULTILINE)
    return default, set(re.findall(r"'gnulinux-([^']+)-advanced-", text))


@pytest.fixture(scope="module")
def upgraded_kernel(gpu_node, kernels, bootable, node_lock):
    """A kernel whose module does not build arrives by apt, as an unattended upgrade would bring it."""
    now, kernel = kernels
    version = node_lock["profiles"]["debian12"]["driver"]["version"]
    gpu_node.write(f"/etc/dkms/nvidia-current-{version}-{kernel}.conf", BROKEN)
    words = f"linux-headers-{kernel} linux-image-{kernel}"
    done = gpu_node.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends install {words} 2>&1")
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


def test_the_old_kernel_stays_the_one_that_boots(upgraded_kernel, bootable, gpu_node):
    now, kernel, done = upgraded_kernel
    assert bootable[1] == {now}, "the menu was read"
    default, listed = menu_of(gpu_node)
    assert listed == {now, kernel}
    assert f"gnulinux-{now}-advanced-" in gpu_node.read(DROPIN)
    assert [f"gnulinux-{now}-advanced-" in entry for entry in default] == [True], default
    assert f"the next boot starts {now}" in done.stdout


def test_a_run_names_the_flagged_kernel_and_keeps_the_old_one(upgraded_kernel, gpu_node, play):
    now, kernel, _done = upgraded_kernel
    # A container has no kernel that runs: which one is meant has to be said, where a machine starts it.
    outcome = play("gpu-node.yml", gpu_kernel_policy="pin", gpu_kernel_version=now).expect_success()
    assert f"No NVIDIA module for: {kernel}" in " ".join(outcome.output.split())
    assert gpu_node.say("dpkg --audit") == ""
    assert f"gnulinux-{now}-advanced-" in gpu_node.read(DROPIN)
