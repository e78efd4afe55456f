"""A machine that begins as the image has an identity of its own, and the driver of the lock for its kernel."""


def test_it_has_an_identity_of_its_own(gpu_node):
    identity = gpu_node.say("cat /etc/machine-id")
    assert len(identity) == 32
    assert gpu_node.say("cat /var/lib/dbus/machine-id 2>/dev/null || cat /etc/machine-id") == identity


def test_it_has_made_its_own_host_keys(gpu_node):
    assert gpu_node.say("systemctl show -P Result gpu-host-keys.service") == "success"
    born = int(gpu_node.say("stat -c %Y /etc/ssh/ssh_host_ed25519_key"))
    assert born >= int(gpu_node.say("awk '/^btime/ { print $2 }' /proc/stat"))


def test_nothing_of_the_build_is_left(gpu_node):
    assert gpu_node.say("ls /var/lib/apt/lists") == ""
    assert gpu_node.say("ls -A /root/.ansible 2>/dev/null | grep -v tmp || true") == ""
    assert gpu_node.say("find /var/cache/apt/archives -name '*.deb'") == ""


def test_the_first_boot_was_checked(gpu_node):
    assert gpu_node.say("systemctl show -P Result gpu-first-boot.service") == "success"
    assert "no NVIDIA GPU on the PCI bus" in gpu_node.say("cat /var/lib/provision/first-boot.log")


def test_its_kernel_takes_the_module(gpu_node, node_lock):
    assert gpu_node.say("modinfo -F vermagic nvidia-current").split()[0] == gpu_node.say("uname -r")
    assert gpu_node.say("modinfo -F version nvidia-current") == node_lock["profiles"]["debian12"]["driver"]["version"]
    gpu_node.run("modprobe nvidia-current")
    assert "No NVIDIA GPU found" in gpu_node.say("dmesg")


def test_it_is_the_node_of_the_lock(gpu_node, play):
    outcome = play("gpu-node-verify.yml").expect_success()
    assert "driver installed, no GPU" in " ".join(outcome.output.split())
    # Each run of a scenario signs its stand-in repositories anew, so the first play brings other keys, and no package.
    outcome = play("gpu-node.yml").expect_success()
    assert [task for task in outcome.changed(gpu_node.name) if not task.startswith("gpu_facts : ")] == []
    outcome = play("gpu-node.yml").expect_success()
    assert outcome.changed(gpu_node.name) == []
