"""What every converged node has: the driver of the lock, built, pinned and kept apart from what would break it."""

import json

import pytest

testinfra_hosts = ["gpu_nodes"]


def kernels(node):
    """Kernels whose headers are there: those a module must have been built for."""
    listed = node.say("ls -d /lib/modules/*/build 2>/dev/null || true").split()
    return [path.split("/")[3] for path in listed]


def target_of(node):
    facts = json.loads(node.read("/var/lib/provision/state.json"))
    for key in ("kernel", "target_kernel"):
        if isinstance(facts.get(key), str):
            return facts[key]
    return kernels(node)[-1]


def test_converge_had_this_host_and_nothing_failed(converged, node):
    assert node.name in converged.hosts
    row = converged.hosts[node.name]
    assert (row["failures"], row["unreachable"]) == (0, 0), row["failed_tasks"]
    assert row["ok"] > 0


def test_driver_packages_have_exactly_the_versions_of_the_lock(host, driver):
    assert driver.packages
    for name, version in driver.packages.items():
        package = host.package(name)
        assert package.is_installed, name
        # What is not pinned follows another source; what is, carries the driver's own version.
        if version is not None:
            assert host.check_output(f"dpkg-query -W -f '${{Version}}' {name}") == version, name


def test_dkms_says_installed_for_every_kernel_that_has_headers(host, node, driver):
    if driver.dkms_name is None:
        pytest.skip("this method brings modules that are built already")
    status = host.check_output("dkms status")
    assert kernels(node), "no headers, so nothing was built"
    for kernel in kernels(node):
        lines = [line for line in status.splitlines() if kernel in line and line.startswith(driver.dkms_name)]
        assert any(f"/{driver.version}, {kernel}" in line and "installed" in line for line in lines), status


def test_the_module_is_the_driver_of_the_lock_in_version_and_license(host, node, driver):
    for kernel in kernels(node):
        # Debian names the file nvidia-current; modinfo knows no module `nvidia` then.
        assert host.check_output(f"modinfo -k {kernel} -F version {driver.module}") == driver.version
        assert host.check_output(f"modinfo -k {kernel} -F license {driver.module}") == driver.license


def test_modprobe_nvidia_leads_to_that_module(host, node, driver):
    for kernel in kernels(node):
        graph = host.check_output(f"modprobe -S {kernel} --show-depends nvidia")
        assert driver.module in graph.splitlines()[-1], graph


def test_nouveau_cannot_take_the_gpu(host):
    rules = host.check_output("modprobe --showconfig")
    assert "blacklist nouveau" in rules


def test_links_of_the_distribution_in_modprobe_d_are_links_still(host, node):
    if not node.has("/etc/alternatives/nvidia--nvidia.conf"):
        pytest.skip("this release keeps no alternatives of it")
    assert host.file("/etc/modprobe.d/nvidia.conf").is_symlink


def test_the_libraries_of_the_driver_resolve(host):
    cache = host.check_output("ldconfig -p")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        assert library in cache


def test_user_space_and_module_are_of_one_version(host, driver):
    path = host.check_output("ldconfig -p | sed -n 's/.*libcuda.so.1 .*x86-64.* => //p' | head -n 1")
    real = host.check_output(f"readlink -f {path}")
    assert real.endswith(f".so.{driver.version}"), real


def test_the_pin_keeps_the_whole_set_where_it_is(host, driver):
    moved = host.check_output("apt-get -s -o Debug::NoLocking=1 dist-upgrade")
    lines = [
        line for line in moved.splitlines() if line.startswith(("Inst", "Remv")) and line.split()[1] in driver.packages
    ]
    assert lines == []


def test_unattended_upgrades_would_leave_the_driver_alone(host, driver):
    text = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    script = (
        "import re, sys; rules = re.findall(r'\"(.+?)\";', sys.argv[1]); "
        "print([name for name in sys.argv[2:] if not any(re.match(rule, name) for rule in rules)])"
    )
    own = [name for name in driver.packages if "nvidia" in name or name.startswith("libcuda")]
    own = [name for name in own if name not in driver.followers]
    assert own
    assert host.run("python3 -c %s %s %s", script, text, " ".join(own)).rc == 0
    done = host.check_output("python3 -c %s %s " + " ".join(own), script, text)
    assert done == "[]", f"not guarded: {done}"


def test_persistence_is_enabled_and_was_not_forced_to_start(host, profile):
    for service in profile["driver"].get("services") or []:
        assert host.service(service).is_enabled, service


def test_nvidia_smi_finds_no_gpu_which_is_all_it_complains_of(host):
    # Which status and which of the two sentences depends on the branch; 255 would pass for a failure of ssh.
    said = host.run("nvidia-smi 2>&1; echo status $?").stdout
    assert "NVIDIA-SMI has failed because it couldn't communicate" in said or "Failed to initialize NVML" in said, said
    assert "mismatch" not in said
    assert "status 0" not in said


def test_verification_calls_a_node_without_gpu_well_and_says_so(node, play):
    outcome = play("gpu-node-verify.yml", "-v", "-l", node.name).expect_success()
    assert "driver installed, no GPU" in " ".join(outcome.output.split())
    assert outcome.changed(node.name) == []


def test_dpkg_has_nothing_half_done(host):
    assert host.check_output("dpkg --audit") == ""


def test_the_kernel_guard_is_in_place(host):
    guard = host.file("/usr/local/lib/provision/kernel-guard")
    assert guard.is_file
    assert guard.mode == 0o755
    assert host.file("/etc/kernel/postinst.d/dkms").exists


def test_the_state_names_the_lock(node, node_lock):
    state = json.loads(node.read("/var/lib/provision/state.json"))
    assert node_lock["digest"] in json.dumps(state)


def test_a_generation_was_kept_and_the_baseline_before_it(node):
    assert node.say("ls /var/lib/provision/generations").split()
    assert node.has("/var/lib/provision/baseline/packages.json")
