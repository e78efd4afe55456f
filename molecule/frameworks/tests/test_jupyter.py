"""Jupyter answers on the loopback address alone, to nobody without the token, and encrypted where that is asked for."""

import pytest

testinfra_hosts = ["gpu_nodes"]
TOKEN = "/var/lib/provision-jupyter/token"  # noqa: S105  a path
ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8888/api/contents", headers={})
if len(sys.argv) > 1:
    request.add_header("Authorization", "token " + open(sys.argv[1]).read().strip() + sys.argv[2])
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
ASK_ENCRYPTED = """
import ssl, sys, urllib.error, urllib.request
request = urllib.request.Request("https://127.0.0.1:8888/api/contents", headers={})
if len(sys.argv) > 2:
    request.add_header("Authorization", "token " + open(sys.argv[2]).read().strip())
try:
    context = ssl.create_default_context(cafile=sys.argv[1])
    print(urllib.request.urlopen(request, timeout=20, context=context).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
CERTIFICATE, KEY = "/etc/provision/tls/jupyter.crt", "/etc/provision/tls/jupyter.key"


@pytest.fixture(autouse=True)
def answering(node, wait):
    """It takes some seconds to start."""
    assert wait(lambda: node.run("ss -Hltn sport = :8888").stdout.strip() != "", 60), node.say(
        "systemctl status --no-pager provision-jupyter || true"
    )


def test_it_listens_on_the_loopback_address_alone(host):
    assert host.service("provision-jupyter").is_running
    assert host.service("provision-jupyter").is_enabled
    listening = host.check_output("ss -Hltn sport = :8888").splitlines()
    assert [line.split()[3] for line in listening] == ["127.0.0.1:8888"]


def test_nobody_comes_in_without_the_token(host):
    assert host.check_output("python3 -c %s", ASK) == "403"
    assert host.check_output("python3 -c %s %s wrong", ASK, TOKEN) == "403"


def test_the_token_opens_it(host):
    assert host.check_output("python3 -c %s %s ''", ASK, TOKEN) == "200"


def test_the_token_is_its_users_alone(host):
    token = host.file(TOKEN)
    assert token.mode == 0o600
    assert token.user == "provision-jupyter"
    assert len(token.content_string.strip()) >= 32


def test_it_runs_as_a_user_without_rights(host):
    pid = host.check_output("systemctl show -p MainPID --value provision-jupyter")
    assert host.check_output("ps -o user:32= -p %s", pid) == "provision-jupyter"
    assert "CapEff:\t0000000000000000" in host.check_output("cat /proc/%s/status", pid)


def test_an_environment_comes_from_a_folder_of_wheels_without_any_index(host, node, play, site_vars):
    folder = "/srv/wheels"
    node.say(
        'PIP_CERT="$1" /opt/provision/envs/notebook/bin/python -m pip download -q --no-deps -d "$2" idna'
        ' || PIP_CERT="$1" python3 -m pip download -q --no-deps -d "$2" idna',
        site_vars["gpu_frameworks_ca"],
        folder,
    )
    name, digest = node.say(f"cd {folder} && sha256sum idna-*.whl | awk '{{print $2, $1}}'").split()
    extra = {
        "environment": "carried",
        "requirements": f"idna=={name.split('-')[1]} --hash=sha256:{digest}\n",
        "imports": ["idna"],
    }
    play(
        "gpu-node.yml",
        gpu_frameworks_extra=[*site_vars["gpu_frameworks_extra"], extra],
        gpu_frameworks_wheelhouse=folder,
        gpu_frameworks_index_url="https://index.invalid/simple",
    ).expect_success()
    assert host.run("/opt/provision/envs/carried/bin/python -c 'import idna'").rc == 0


def test_a_certificate_is_made_and_nobody_is_answered_in_the_clear(host, node, play, wait):
    play("gpu-node.yml", gpu_access_tls="self_signed").expect_success()
    assert wait(lambda: node.run('python3 -c "$1" "$2"', ASK_ENCRYPTED, CERTIFICATE).stdout.strip() == "403", 60)
    assert host.check_output("python3 -c %s %s %s", ASK_ENCRYPTED, CERTIFICATE, TOKEN) == "200"
    assert host.run("python3 -c %s %s ''", ASK, TOKEN).rc != 0
    key = host.file(KEY)
    assert (key.mode, key.user, key.group) == (0o640, "root", "provision-jupyter")
    assert play("gpu-node.yml", gpu_access_tls="self_signed").expect_success().changed(node.name) == []


def test_without_it_all_is_as_before(host, node, play, wait):
    play("gpu-node.yml").expect_success()
    assert wait(lambda: node.run('python3 -c "$1" "$2" \'\'', ASK, TOKEN).stdout.strip() == "200", 60)
