"""Lists of machines: an inventory read by Ansible's own program, and plain lists."""

import sys
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError, UsageError, install_command
from provision.probe.inventory import parse_hosts, read_inventory, take_shard
from provision.probe.targets import parse_target

needs_ansible = pytest.mark.skipif(
    not Path(sys.executable).with_name("ansible-inventory").is_file(),
    reason="ansible-core is not installed (`pip install 'gpu-provision[ansible]'`)",
)

INVENTORY = """
all:
  children:
    train:
      vars: {provision_gpus: 8}
      hosts:
        gpu001: {ansible_host: 10.0.0.1, ansible_user: ops, ansible_port: 2222}
        gpu002:
          ansible_ssh_common_args: -o ProxyJump=me@gate:22 -o StrictHostKeyChecking=no -C
          ansible_ssh_private_key_file: /keys/a
          provision_expect: {gpu: H100, driver: "1.2.3"}
    serve:
      hosts:
        gpu003: {ansible_ssh_common_args: '-o ProxyCommand="ssh -q -W %h:%p -p 2200 me@gate"'}
        box: {ansible_connection: community.docker.docker, ansible_host: web_1}
        pod: {ansible_connection: kubernetes.core.kubectl, ansible_kubectl_pod: p-0, ansible_kubectl_namespace: ns}
        gpu002:
    here:
      hosts:
        me: {ansible_connection: local}
        localhost:
"""


@pytest.fixture
def inventory(tmp_path):
    def write(text: str = INVENTORY, name: str = "hosts.yml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@needs_ansible
class TestAnsible:
    def test_connection_variables_become_targets(self, inventory):
        found = {target.name: target for target in read_inventory(inventory()).targets}
        assert set(found) == {"gpu001", "gpu002", "gpu003", "box", "pod", "me", "localhost"}
        assert (found["gpu001"].host, found["gpu001"].user, found["gpu001"].port) == ("10.0.0.1", "ops", 2222)
        assert (found["gpu002"].jump, found["gpu002"].identity) == ("me@gate:22", "/keys/a")
        assert found["gpu003"].jump == "me@gate:2200"
        assert (found["box"].kind, found["box"].container) == ("docker", "web_1")
        assert (found["pod"].kind, found["pod"].pod, found["pod"].namespace) == ("kubectl", "p-0", "ns")
        assert (found["me"].kind, found["localhost"].kind) == ("local", "local")

    def test_expectations_come_along(self, inventory):
        found = {target.name: dict(target.expect) for target in read_inventory(inventory()).targets}
        assert found["gpu001"] == {"gpus": 8}
        assert found["gpu002"] == {"gpu": "H100", "driver": "1.2.3", "gpus": 8}
        assert found["gpu003"] == {}

    def test_what_weakens_checks_is_reported_and_not_taken_over(self, inventory):
        read = read_inventory(inventory())
        assert [note for note in read.notes if "StrictHostKeyChecking" in note]
        assert len(read.notes) == 1

    @pytest.mark.parametrize(
        ("limit", "names"),
        [
            pytest.param("gpu001", {"gpu001"}, id="host"),
            pytest.param("train", {"gpu001", "gpu002"}, id="group"),
            pytest.param("train:&serve", {"gpu002"}, id="both"),
            pytest.param("serve:!train", {"gpu003", "box", "pod"}, id="without"),
            pytest.param("gpu*,me", {"gpu001", "gpu002", "gpu003", "me"}, id="wildcard"),
        ],
    )
    def test_patterns_are_ansibles_own(self, inventory, limit, names):
        assert {target.name for target in read_inventory(inventory(), limit).targets} == names

    def test_an_ini_file_holds_numbers_as_text(self, inventory):
        path = inventory("[train]\nn[01:03] provision_gpus=4\n", "hosts")
        assert [(target.name, dict(target.expect)) for target in read_inventory(path).targets] == [
            (name, {"gpus": 4}) for name in ("n01", "n02", "n03")
        ]

    def test_a_folder_with_group_variables_is_read(self, inventory, tmp_path):
        inventory("[train]\nn1\n", "hosts")
        (tmp_path / "group_vars").mkdir()
        (tmp_path / "group_vars" / "train.yml").write_text("provision_expect: {gpus: 2}\n")
        (target,) = read_inventory(tmp_path).targets
        assert dict(target.expect) == {"gpus": 2}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("all: {hosts: {a: {ansible_host: '-oProxyCommand=x'}}}", "is not a target", id="flag"),
            pytest.param("all: {hosts: {a: {ansible_host: 'a;id'}}}", "is not a target", id="shell"),
            pytest.param("all: {hosts: {a: {ansible_host: '{{ x }}'}}}", "is a template", id="template"),
            pytest.param("all: {hosts: {a: {ansible_connection: winrm}}}", "is not known here", id="winrm"),
            pytest.param("all: {hosts: {a: {provision_gpus: many}}}", "whole number", id="gpus-text"),
            pytest.param("all: {hosts: {a: {provision_gpus: true}}}", "whole number", id="gpus-bool"),
            pytest.param("all: {hosts: {a: {provision_expect: 3}}}", "must be a mapping", id="expect"),
            pytest.param(
                "all: {hosts: {a: {provision_gpus: 1, provision_expect: {gpus: 2}}}}", "two numbers", id="two-numbers"
            ),
            pytest.param('all: {hosts: {a: {ansible_ssh_common_args: "-o \'x"}}}', "open quote", id="quote"),
            pytest.param("all: {hosts: {a: {ansible_ssh_private_key_file: '-x'}}}", "not a file name", id="identity"),
            pytest.param("all: {hosts: {}}", "no host is listed", id="empty"),
        ],
    )
    def test_what_has_no_meaning_is_refused_by_host(self, inventory, text, said):
        with pytest.raises(UsageError, match=said):
            read_inventory(inventory(text))

    def test_a_pattern_that_matches_nothing_is_told(self, inventory):
        with pytest.raises(UsageError, match=r"nowhere|no host"):
            read_inventory(inventory(), "nowhere")

    def test_a_file_that_is_no_inventory_is_told(self, inventory):
        with pytest.raises(UsageError):
            read_inventory(inventory("{[", "broken.yml"))


class TestWithout:
    def test_a_missing_ansible_names_the_extra(self, inventory, monkeypatch, tmp_path):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingDependencyError) as caught:
            read_inventory(inventory())
        assert install_command("ansible") in caught.value.hints

    def test_a_missing_file_is_told_first(self, tmp_path):
        with pytest.raises(UsageError, match="does not exist"):
            read_inventory(tmp_path / "none")

    @pytest.mark.parametrize("limit", ["", "-x", "a\nb"], ids=["empty", "flag", "newline"])
    def test_a_limit_cannot_be_a_flag(self, inventory, limit):
        with pytest.raises(UsageError, match="not a pattern"):
            read_inventory(inventory(), limit)


class TestHosts:
    def test_one_target_a_line(self):
        text = "# rack 1\nnode1\n\n  me@node2  # broken fan\nnode1\ndocker://web\n"
        assert [target.name for target in parse_hosts(text, "f")] == ["node1", "me@node2", "docker://web"]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("node1\n-x\n", "f, line 2: `-x` is not a target", id="flag"),
            pytest.param("a b\n", "f, line 1: one target a line", id="two"),
            pytest.param("[gpu]\na\n", "looks like an Ansible inventory", id="ini"),
            pytest.param("# nothing\n", "f names no target", id="empty"),
        ],
    )
    def test_a_bad_line_is_named(self, text, said):
        with pytest.raises(UsageError, match=said):
            parse_hosts(text, "f")


class TestShard:
    targets = tuple(parse_target(f"n{number}") for number in range(7))

    def test_parts_are_disjoint_and_together_everything(self):
        parts = [take_shard(self.targets, f"{part}/3") for part in (1, 2, 3)]
        assert sorted(target.name for part in parts for target in part) == [target.name for target in self.targets]
        assert [len(part) for part in parts] == [3, 2, 2]

    @pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/3\n", ""])
    def test_what_is_no_part_is_refused(self, shard):
        with pytest.raises(UsageError, match="not part of a whole"):
            take_shard(self.targets, shard)
