"""Keys, hashes, mirrors, locks and variables that are not what was promised: refused by name, nothing is installed."""

import subprocess

import nodes as machines
import pytest
from inventory import STUBS

# One GPU package is taken out, so that every run below has something that it would install.
STUB = "libnccl2"


@pytest.fixture(scope="module")
def wanting(gpu_node):
    """A node that wants a part of the driver and one of NCCL; the tests after these let it converge."""
    gpu_node.say("DEBIAN_FRONTEND=noninteractive apt-get -y -q purge nvidia-smi libnccl2 libnccl-dev && apt-get clean")
    return gpu_node.tree(residue=True), gpu_node.packages()


@pytest.fixture(autouse=True)
def untouched(wanting, gpu_node, difference):
    """Every refusal leaves files and packages as they were."""
    yield
    assert difference(wanting[1], gpu_node.packages()) == []
    assert difference(wanting[0], gpu_node.tree(residue=True)) == []


def refused(outcome, *words):
    assert outcome.status != 0, outcome.output[-3000:]
    said = " ".join(outcome.failures.split())
    for word in words:
        assert word in said, said
    return said


def test_a_key_that_is_not_the_promised_one_is_refused_by_fingerprint(play, tmp_path, node_lock):
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    user = "somebody else <nobody@example.invalid>"
    subprocess.run([*gpg, "--passphrase", "", "--quick-gen-key", user, "ed25519", "sign", "never"], check=True)
    subprocess.run([*gpg, "--armor", "--output", str(tmp_path / "other.asc"), "--export"], check=True)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    source = node_lock["profiles"]["debian12"]["repos"]["sources"][0]
    outcome = play("gpu-node.yml", gpu_repos_keys={source["id"]: str(tmp_path / "other.asc")})
    refused(outcome, f"repository {source['id']}", source["key"]["fingerprint"], "tampered")


def test_a_package_whose_hash_is_not_the_promised_one_is_refused_by_name(play, gpu_node):
    path = gpu_node.say(f"ls {STUBS}/*/{STUB}_*.deb").split()[0]
    gpu_node.say('cp "$1" /run/kept && printf x >>"$1"', path)
    try:
        said = refused(play("gpu-node.yml"), STUB)
        assert any(word in said for word in ("ash", "size")), said
    finally:
        gpu_node.say('cp /run/kept "$1"', path)


def test_a_mirror_that_does_not_answer_is_named(play, node_lock):
    mirror = "http://mirror.example.invalid/cuda/"
    source = node_lock["profiles"]["debian12"]["repos"]["sources"][0]
    refused(play("gpu-node.yml", gpu_repos_mirror={source["id"]: mirror}), "mirror.example.invalid")


def test_a_lock_that_was_changed_after_it_was_written_is_refused(play, altered_lock):
    def change(lock):
        lock["name"] = "mine"

    refused(play("gpu-node.yml", "-e", altered_lock(change, is_digested=False)), "digest")


def test_a_lock_that_contradicts_itself_is_refused(play, altered_lock):
    def change(lock):
        lock["profiles"]["debian12"]["driver"]["branch"] = 470

    refused(play("gpu-node.yml", "-e", altered_lock(change)), "branch", "470")


def test_hostile_values_in_a_lock_are_refused_each_by_its_place(play, altered_lock, tmp_path):
    owned = tmp_path / "owned"
    values = ["$(reboot)", f"{{{{ lookup('pipe', 'touch {owned}') }}}}", "a\nb", "../../etc/passwd"]

    def change(lock):
        for row, value in zip(lock["profiles"]["debian12"]["driver"]["profiles"]["compute"], values, strict=False):
            row["name"] = value

    outcome = play("gpu-node.yml", "-e", altered_lock(change))
    refused(outcome, *(f"driver.profiles.compute[{number}]" for number in range(len(values))))
    assert not owned.exists(), "the controller ran it"


def test_a_hostile_value_is_never_run(play, gpu_node):
    outcome = play("gpu-node.yml", gpu_driver_version="535; touch /root/owned")
    assert outcome.status != 0
    assert not gpu_node.has("/root/owned")


def test_a_variable_that_no_role_knows_is_refused_with_the_nearest(play):
    refused(play("gpu-node.yml", gpu_drivr_version="535.1"), "gpu_drivr_version", "gpu_driver_version")


def test_all_problems_come_in_one_list(play, altered_lock):
    def change(lock):
        lock["profiles"]["debian12"]["driver"]["branch"] = 470

    outcome = play("gpu-node.yml", "-e", altered_lock(change, is_digested=False), gpu_drivr=1, gpu_cudda=2)
    refused(outcome, "digest", "gpu_drivr", "gpu_cudda", "1.", "2.", "3.")


def test_the_open_module_is_refused_where_the_lock_offers_none(play, altered_lock):
    def change(lock):
        lock["profiles"]["debian12"]["driver"]["flavours"].pop("open", None)

    outcome = play("gpu-node.yml", "-e", altered_lock(change), gpu_driver_flavour="open")
    refused(outcome, "open")


def test_a_kernel_of_which_it_is_known_that_it_breaks_is_refused_before_anything_is_built(play, altered_lock):
    def change(lock):
        driver = lock["profiles"]["debian12"]["driver"]["version"]
        # The proprietary module is built on this node already, which no row can deny; the open one is not.
        row = {"driver": driver, "flavour": "open", "kernel_first": "6.1", "kernel_last": None}
        lock["known_bad"] = [{**row, "symptom": "implicit declaration", "reference": "example#1"}]

    outcome = play("gpu-node.yml", "-e", altered_lock(change), gpu_driver_flavour="open")
    refused(outcome, "example#1", "implicit declaration")


def test_refusals_left_the_connection_of_the_scenario(gpu_node):
    assert machines.instances()[0]["instance"] == gpu_node.name
