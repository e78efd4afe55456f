"""Every part of the stack that no other scenario runs, on the node and as its own programs read it."""

import json
import tomllib

import pytest

testinfra_hosts = ["gpu_nodes"]
RUNTIME = "/usr/bin/nvidia-container-runtime"
PLUGIN = "io.containerd.grpc.v1.cri"


def test_both_toolkits_are_there_side_by_side(host, profile):
    assert profile["cuda"]["versions"] == ["11.8", "12.1"]
    for version, home in profile["cuda"]["homes"].items():
        assert f"release {version}" in host.check_output(f"{home}/bin/nvcc --version")


def test_both_are_alternatives_and_the_default_was_chosen_by_hand(host):
    query = host.check_output("update-alternatives --query cuda")
    for home in ("/usr/local/cuda-11.8", "/usr/local/cuda-12.1"):
        assert f"Alternative: {home}" in query
    assert "Status: manual" in query
    assert "Value: /usr/local/cuda-12.1" in query


def test_cudnn_is_that_of_the_lock(host, profile):
    for row in profile["cudnn"]["packages"]:
        assert host.check_output(f"dpkg-query -W -f '${{Version}}' {row['name']}") == row["version"]


def test_nccl_conf_has_the_block_and_keeps_the_lines_of_the_site(host):
    lines = host.file("/etc/nccl.conf").content_string.splitlines()
    assert {"NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5", "# of the site", "NCCL_SOCKET_IFNAME=eth0"} <= set(lines)
    assert lines.index("NCCL_DEBUG=WARN") < lines.index("NCCL_SOCKET_IFNAME=eth0"), "NCCL keeps the first value"


def test_fabric_manager_has_the_version_of_the_driver_and_waits(host, profile):
    for row in profile["fabric"]["packages"]:
        version = host.check_output(f"dpkg-query -W -f '${{Version}}' {row['name']}")
        assert version.startswith(profile["driver"]["version"])
    service = host.service("nvidia-fabricmanager")
    assert service.exists
    assert not service.is_enabled, "it fails at every start where there is no switch"
    assert host.check_output("systemctl show -p NRestarts,ActiveState nvidia-fabricmanager --value").split() == [
        "0",
        "inactive",
    ]


def test_rdma_packages_are_debians(host, profile):
    for row in profile["rdma"]["inbox"]:
        assert host.package(row["name"]).is_installed, row["name"]


def test_memory_may_be_locked_by_users_and_services(host):
    assert host.run("grep -q '^[*] hard memlock unlimited' /etc/security/limits.d/90-provision-rdma.conf").rc == 0
    assert host.check_output("systemctl show -p DefaultLimitMEMLOCK --value") == "infinity"


def test_peer_memory_is_loaded_at_every_start(host):
    assert host.service("provision-peermem").is_enabled
    assert host.run("systemd-analyze verify /etc/systemd/system/provision-peermem.service").rc == 0


def test_docker_runs_and_knows_the_runtime(host):
    assert host.service("docker").is_running
    runtimes = json.loads(host.check_output("docker info --format '{{json .Runtimes}}'"))
    assert runtimes["nvidia"]["path"].endswith("nvidia-container-runtime")


def test_docker_keeps_what_the_user_wrote(host):
    settings = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert settings["log-driver"] == "local"
    assert settings["features"]["buildkit"] is True
    assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "local"
    assert host.check_output("docker info --format '{{.DefaultRuntime}}'") == "runc"


def test_containerd_reads_the_runtime_and_what_the_user_wrote(host):
    dump = tomllib.loads(host.check_output("containerd config dump"))
    cri = dump["plugins"][PLUGIN]
    assert cri["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == RUNTIME
    assert cri["sandbox_image"] == "registry.example/pause:3.9"
    assert cri["cni"]["conf_dir"] == "/etc/cni/net.d"
    assert dump["metrics"]["address"] == "127.0.0.1:1338"
    assert cri["containerd"]["default_runtime_name"] != "nvidia"


def test_the_comments_of_the_user_are_still_in_config_toml(host):
    text = host.file("/etc/containerd/config.toml").content_string
    assert "# The registry of this site has no other pause." in text
    assert '"registry.example/pause:3.9"  # kept' in text


def test_containerd_still_serves_kubernetes(host):
    assert host.service("containerd").is_running
    rows = [line.split() for line in host.check_output("ctr plugins list").splitlines()]
    assert any(row[1] == "cri" and row[-1] == "ok" for row in rows if len(row) > 2)


def test_podman_needs_nothing_but_cdi(host):
    assert host.run("podman --version").rc == 0
    assert host.service("nvidia-cdi-refresh.path").is_enabled


def test_kubernetes_finds_modules_settings_and_labels(host):
    assert "br_netfilter" in host.file("/etc/modules-load.d/zz-provision-k8s.conf").content_string
    assert "net.ipv4.ip_forward" in host.file("/etc/sysctl.d/90-provision-k8s.conf").content_string
    labels = host.file("/etc/kubernetes/node-feature-discovery/features.d/provision").content_string
    assert "example.com/rack=r1" in labels
    assert "provision-driver=" in labels


def test_swap_stays_off_at_every_start(host):
    assert host.file("/etc/systemd/system/swap.target").linked_to == "/dev/null"


def test_only_the_networks_of_the_list_reach_ssh(host):
    rules = json.loads(host.check_output("nft -j list table inet provision"))["nftables"]
    sets = {row["set"]["name"]: row["set"] for row in rules if "set" in row}
    allowed = {
        f"{each['prefix']['addr']}/{each['prefix']['len']}" for each in sets["ssh4"]["elem"] if isinstance(each, dict)
    }
    assert allowed == {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}
    assert "drop" in host.check_output("nft list chain inet provision ssh")
    assert host.service("provision-access").is_enabled


def test_an_allow_list_without_the_controller_is_refused_and_nothing_changes(play, gpu_node):
    before = gpu_node.say("nft list table inet provision")
    outcome = play("gpu-node.yml", "-t", "access", gpu_access_ssh_from=["192.0.2.0/24"])
    assert outcome.status != 0
    assert "gpu_access_force" in outcome.failures
    assert gpu_node.say("nft list table inet provision") == before


def test_ssh_says_which_key_opened_a_session(host):
    assert "loglevel VERBOSE" in host.check_output("sshd -T")


def test_sudo_notes_each_command(host):
    assert host.run("visudo -c").rc == 0
    assert host.run("sudo -n true").rc == 0
    assert "COMMAND=" in host.check_output("cat /var/log/sudo.log")


def test_audit_rules_are_such_that_the_daemon_reads_them(host):
    assert host.package("auditd").is_installed
    done = host.run("augenrules --check")
    assert done.rc == 0, done
    assert "provision-ssh" in host.file("/etc/audit/rules.d/50-provision.rules").content_string


def test_needrestart_leaves_services_of_the_gpu_alone(host):
    done = host.run("needrestart -b -r l")
    assert done.rc == 0, done
    assert "syntax" not in done.stderr
    script = (
        "our %nrconf = (override_rc => {}); "
        "defined do '/etc/needrestart/conf.d/provision-gpu.conf' or die $@ || $!; "
        "for my $unit (@ARGV) { print join(',', map { $nrconf{override_rc}{$_} } "
        "grep { $unit =~ /$_/ } keys %{$nrconf{override_rc}}), qq(\\n) }"
    )
    said = host.check_output("perl -e %s nvidia-persistenced.service nvidia-fabricmanager.service ssh.service", script)
    assert said.split("\n")[:2] == ["0", "0"]
    assert "0" not in said.split("\n")[2:], "no other service is held"


@pytest.mark.parametrize("unit", ["nvidia-cdi-refresh.path", "containerd", "docker", "provision-access"])
def test_services_are_enabled(host, unit):
    assert host.service(unit).is_enabled
