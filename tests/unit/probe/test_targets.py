"""The grammar of targets: what is read, and what never gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.probe.targets import parse_jump, parse_target


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        pytest.param("local", {"kind": "local"}, id="local"),
        pytest.param("localhost", {"kind": "local"}, id="localhost"),
        pytest.param("node1", {"kind": "ssh", "host": "node1", "user": "", "port": None}, id="bare"),
        pytest.param("me@node1.example", {"kind": "ssh", "host": "node1.example", "user": "me"}, id="bare-user"),
        pytest.param("ssh://me@n:2222", {"kind": "ssh", "host": "n", "user": "me", "port": 2222}, id="ssh"),
        pytest.param("ssh://localhost", {"kind": "ssh", "host": "localhost"}, id="ssh-localhost"),
        pytest.param("ssh://n/", {"kind": "ssh", "host": "n"}, id="ssh-slash"),
        pytest.param("ssh://[2001:db8::1]:22", {"host": "2001:db8::1", "port": 22}, id="ipv6"),
        pytest.param("me@[fe80::1%eth0]", {"host": "fe80::1%eth0", "user": "me"}, id="ipv6-zone"),
        pytest.param("10.0.0.7", {"kind": "ssh", "host": "10.0.0.7"}, id="ipv4"),
        pytest.param("docker://web_1", {"kind": "docker", "container": "web_1"}, id="docker"),
        pytest.param("podman://0a1b2c", {"kind": "podman", "container": "0a1b2c"}, id="podman"),
        pytest.param("image://r.io:5000/a/b:1.0", {"kind": "image", "image": "r.io:5000/a/b:1.0"}, id="image"),
        pytest.param(
            "image://a@sha256:" + "0" * 64, {"kind": "image", "image": "a@sha256:" + "0" * 64}, id="image-digest"
        ),
        pytest.param("kubectl://pod-0", {"pod": "pod-0", "namespace": "", "container": ""}, id="pod"),
        pytest.param("kubectl://ns/pod", {"pod": "pod", "namespace": "ns"}, id="pod-namespace"),
        pytest.param("kubectl://ns/pod/c", {"pod": "pod", "namespace": "ns", "container": "c"}, id="pod-container"),
        pytest.param("kubectl://p?container=c", {"pod": "p", "container": "c", "namespace": ""}, id="pod-query"),
        pytest.param(
            "kubectl://p?context=arn:aws:eks:x:1:cluster/a",
            {"pod": "p", "context": "arn:aws:eks:x:1:cluster/a"},
            id="pod-context",
        ),
    ],
)
def test_every_form_is_read(text, fields):
    target = parse_target(text)
    assert target.name == text
    assert {name: getattr(target, name) for name in fields} == fields


@pytest.mark.parametrize(
    "text",
    [
        "", "-oProxyCommand=x", "--", "ssh://", "ssh://-n", "ssh://-l@n", "ssh://me@", "ssh://n:0", "ssh://n:65536",
        "ssh://n:", "ssh://n:22:33", "ssh://n;id", "ssh://$(id)", "n`id`", "n|id", "n\nm", "n\n", "a b", "n'", 'n"',
        "ssh://n/../x", "ssh://[::1", "ssh://[node]", "ssh://[::1]x", "[::1%-x]", "ssh://n%0a", "a..b", "ftp://n",
        "docker://", "docker://-x", "docker://a/b", "docker://a;b", "podman://a b", "image://", "image://-x",
        "image://a//b", "image://a b", "image://a\n", "kubectl://", "kubectl://-p", "kubectl://a/b/c/d", "kubectl://A",
        "kubectl://p?x=1", "kubectl://p?context=", "kubectl://p?context=-x", "kubectl://p?namespace=a&namespace=b",
        "../x", "/x", "~/x", "x.tar.gz", "node\x00", "nodé", "ssh://n@m@o",
        "٣::", "x" * 300,
    ],
    ids=lambda text: repr(text)[:24],
)  # fmt: skip
def test_nothing_else_is(text):
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert caught.value.hints
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 120


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        pytest.param("node:22", "`ssh://node:22`", id="port"),
        pytest.param("fe80::1", "`[fe80::1]`", id="brackets"),
        pytest.param("gpu.tar.gz", "`--from gpu.tar.gz`", id="bundle"),
    ],
)
def test_what_was_meant_is_named(text, way_out):
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert way_out in " ".join(caught.value.hints)


@given(st.text(max_size=40))
def test_no_text_reaches_a_program_as_a_flag_or_a_shell(text):
    for prefix in ("", "ssh://", "docker://", "image://", "kubectl://"):
        try:
            target = parse_target(prefix + text)
        except UsageError:
            continue
        for value in (target.host, target.user, target.container, target.image, target.pod, target.namespace):
            assert not value.startswith("-")
            assert not set(value) & set("\n\r\0;&|$`'\"<>(){}*? \\")


def test_jump_hosts_are_checked_one_by_one():
    assert parse_jump("a,me@b:22,[::1]:2") == "a,me@b:22,[::1]:2"
    with pytest.raises(UsageError, match="is not a target"):
        parse_jump("a,-oProxyCommand=x")
