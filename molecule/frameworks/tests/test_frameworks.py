"""The environment of the lock: its versions, its hashes, its link, and what torch says of a machine without GPU."""

import json

import pytest

testinfra_hosts = ["gpu_nodes"]
BASE = "/opt/provision/envs"


@pytest.fixture
def wanted(profile):
    return next(each for each in profile["frameworks"]["environments"] if each["name"] == "torch")


@pytest.fixture
def python(host):
    """The interpreter behind the link that users are told of."""
    links = host.check_output(f"find {BASE} -maxdepth 2 -type l").split()
    for link in sorted(links):
        if host.run(f"{link}/bin/python -c 'import torch'").rc == 0:
            return f"{link}/bin/python"
    pytest.fail(f"no link below {BASE} leads to a torch: {links}")


def test_torch_has_the_version_of_the_lock(host, python, wanted):
    version = host.check_output(f"{python} -c 'import torch; print(torch.__version__)'")
    assert version.split("+")[0] == wanted["versions"]["torch"].split("+")[0]


def test_torch_sees_no_gpu_and_says_why(host, python):
    done = host.run(f"{python} -W always -c 'import torch; print(torch.cuda.is_available()); torch.cuda.init()'")
    assert done.stdout.strip() == "False"
    # Its wheels and the driver's library agree; a missing or older driver would be what it complains of instead.
    assert done.stderr.rstrip().endswith("No CUDA GPUs are available"), done.stderr


def test_torch_was_built_for_the_cuda_of_the_lock(host, python, node_lock):
    cuda = host.check_output(f"{python} -c 'import torch; print(torch.version.cuda)'")
    assert cuda == node_lock["stack"]["cuda"]


def test_torch_computes_on_the_processor(host, python):
    assert (
        host.check_output(f"{python} -c 'import torch; print(int((torch.ones(3, 3) @ torch.ones(3, 3)).sum()))'")
        == "27"
    )


def test_every_installed_package_is_one_of_the_lock(host, python, wanted):
    listed = json.loads(
        host.check_output(f"{python} -m pip list --format json --disable-pip-version-check 2>/dev/null || echo []")
    )
    known = {line.split("==")[0].strip().lower() for line in wanted["requirements"].splitlines() if "==" in line}
    for row in listed:
        assert row["name"].lower().replace("_", "-") in known | {"pip", "setuptools", "wheel"}, row


def test_the_environment_is_named_after_its_content_and_the_link_is_relative_to_it(host, python):
    target = host.check_output(f"readlink -f {python.rsplit('/bin/', 1)[0]}")
    assert target.startswith(BASE)
    assert len(target.rsplit("/", 1)[1].rsplit("-", 1)[-1]) >= 12, target


def test_nobody_but_root_writes_there(host, python):
    folder = host.file(python.rsplit("/bin/", 1)[0])
    real = host.file(host.check_output(f"readlink -f {folder.path}"))
    assert real.user == "root"
    assert real.mode & 0o022 == 0


def test_a_requirement_with_another_hash_is_refused_and_the_old_environment_stays(
    play, altered_lock, node, host, python
):
    before = host.check_output(f"readlink -f {python}")

    def change(lock):
        part = lock["profiles"]["debian12"]["frameworks"]["environments"][0]
        part["requirements"] = "idna==3.20 --hash=sha256:" + "0" * 64 + "\n"
        part["imports"], part["versions"] = ["idna"], {}

    outcome = play("gpu-node.yml", "-e", altered_lock(change))
    assert outcome.status != 0
    assert "idna" in outcome.failures
    assert host.check_output(f"readlink -f {python}") == before
    play("gpu-node.yml").expect_success()
