"""`provision probe` as people run it."""

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provision.cli.commands.probe import VALUES
from provision.cli.targets import add_target_flags, expectations_of, targets_of
from provision.probe import inventory
from provision.probe.catalogue import PROBES
from provision.probe.snapshot import Snapshot
from provision.probe.targets import Target

PROBE = ("probe", "--probes", "uname,limits,nvidia-smi-xml")


@pytest.fixture
def no_gpu_tools(monkeypatch, tmp_path):
    """A PATH without the tools of GPUs, so that these tests say the same everywhere."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (path.name for path in Path("/usr/bin").iterdir()):
        if not name.startswith(("nvidia", "docker", "podman", "kubectl")):
            (folder / name).symlink_to(f"/usr/bin/{name}")
    for name in ("sh", "mktemp", "cat", "dd", "rm", "mkdir"):
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(folder))


def test_this_machine_is_looked_at_when_none_is_named(provision):
    answer = provision(*PROBE)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "local"
    assert [line.split()[0] for line in lines[1:]] == ["uname", "limits", "nvidia-smi-xml"]
    assert f"Linux {os.uname().release}" in answer.out


def test_json_holds_raw_text_and_what_was_understood(provision):
    probes = provision(*PROBE, "--json").document["result"]["targets"]["local"]["probes"]
    assert probes["uname"]["status"] == "ok"
    assert probes["uname"]["code"] == 0
    assert probes["uname"]["value"]["release"] == os.uname().release
    assert os.uname().release in probes["uname"]["text"]


def test_what_is_absent_has_a_reason_and_no_value(provision, no_gpu_tools):
    found = provision(*PROBE, "--json").document["result"]["targets"]["local"]["probes"]["nvidia-smi-xml"]
    assert found["status"] == "absent"
    assert "value" not in found
    assert "nvidia-smi" in found["reason"]


def test_a_target_that_cannot_be_reached_ends_with_7_and_the_others_are_printed(provision, monkeypatch):
    answer = provision(*PROBE, "local", "ssh://no-such-host.invalid", "--json")
    assert answer.code == 7
    result = answer.document["result"]
    assert list(result["targets"]) == ["local"]
    assert "is not known here" in result["unreachable"]["ssh://no-such-host.invalid"]
    assert "unreachable: the name" in provision(*PROBE, "ssh://no-such-host.invalid").out


def test_a_missing_program_ends_with_7_and_the_way_out(provision, no_gpu_tools):
    answer = provision(*PROBE, "podman://web")
    assert answer.code == 7
    assert "error: `podman` is not on this machine" in answer.err
    assert "hint:" in answer.err
    assert answer.out == ""


class TestBundle:
    def test_a_bundle_is_written_and_read_without_the_machine(self, provision, tmp_path):
        path = tmp_path / "gpu.tar.gz"
        written = provision(*PROBE, "--bundle", path, "--json")
        assert written.code == 0
        again = provision("probe", "--from", path, "--json").document["result"]["targets"]["local"]["probes"]
        before = written.document["result"]["targets"]["local"]["probes"]
        assert {name: again[name] for name in before} == before

    def test_two_bundles_of_one_target_stay_apart(self, provision, tmp_path):
        for name in ("a.tar.gz", "b.tar.gz"):
            provision("probe", "--probes", "uname", "--bundle", tmp_path / name)
        words = ("--from", tmp_path / "a.tar.gz", "--from", tmp_path / "b.tar.gz", "--json")
        assert list(provision("probe", *words).document["result"]["targets"]) == ["local", "local (b.tar.gz)"]

    def test_a_bundle_and_a_live_target_stay_apart(self, provision, tmp_path):
        path = tmp_path / "a.tar.gz"
        provision("probe", "--probes", "uname", "--bundle", path)
        found = provision("probe", "--probes", "uname", "--from", path, "local", "--json").document["result"]["targets"]
        assert list(found) == ["local (a.tar.gz)", "local"]

    def test_a_dry_run_writes_none(self, provision, tmp_path):
        answer = provision("probe", "--probes", "uname", "--bundle", tmp_path / "x.tar.gz", "--dry-run")
        assert answer.code == 0
        assert "would write" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_what_is_no_bundle_is_refused(self, provision, tmp_path):
        (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8bno")
        answer = provision("probe", "--from", tmp_path / "x.tar.gz")
        assert answer.code == 2
        assert "x.tar.gz cannot be read" in answer.err


class TestParse:
    def test_recorded_output_becomes_records(self, provision, tmp_path):
        (tmp_path / "u").write_text("Linux 6.1.0-18-amd64 x86_64\n")
        answer = provision("probe", "--parse", "uname", tmp_path / "u", "--json")
        assert answer.code == 0
        assert answer.document["result"]["records"]["release"] == "6.1.0-18-amd64"

    def test_the_standard_input_is_read_too(self, command, environment):
        words = [*command, "probe", "--parse", "uname", "-"]
        done = subprocess.run(
            words, input="Linux 6.1.0 x86_64\n", capture_output=True, text=True, env=environment, check=True
        )
        assert json.loads(done.stdout)["release"] == "6.1.0"

    @pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"<html>"], ids=["empty", "binary", "other"])
    def test_what_cannot_be_read_ends_with_2_and_the_reason(self, provision, tmp_path, content):
        (tmp_path / "x").write_bytes(content)
        answer = provision("probe", "--parse", "nvidia-smi-xml", tmp_path / "x")
        assert answer.code == 2
        assert "is not an output of nvidia-smi-xml that can be read" in answer.err
        assert "because" in answer.err

    def test_an_unknown_tool_names_the_nearest(self, provision, tmp_path):
        answer = provision("probe", "--parse", "nvidia-smi-xm", tmp_path / "x")
        assert answer.code == 2
        assert "did you mean `nvidia-smi-xml`?" in answer.err


def test_probes_and_tools_are_listed(provision):
    answer = provision("probe", "--list", "--json")
    assert set(answer.document["result"]["probes"]) == set(PROBES)
    assert "nvidia-smi-xml" in answer.document["result"]["tools"]
    assert "tools for --parse:" in provision("probe", "--list").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["-x"], "unknown flag", id="flag"),
        pytest.param(["a;b"], "is not a target", id="target"),
        pytest.param(["--limit", "x"], "chooses from an inventory", id="limit"),
        pytest.param(["--shard", "3/2"], "not part of a whole", id="shard"),
        pytest.param(["--probes", "unam"], "`unam` is not known", id="probe"),
        pytest.param(["--probes", ","], "names none", id="no-probe"),
        pytest.param(["--parallel", "0"], "write a whole number from 1 to 1024, as in `--parallel 16`", id="parallel"),
        pytest.param(["--parallel", "9" * 5000], "is not a whole number", id="parallel-endless"),
        pytest.param(["--port", "65536"], "--port `65536` is not from 1 to 65535", id="port"),
        pytest.param(["--timeout", "1.5"], "--timeout `1.5` is not a whole number", id="timeout"),
        pytest.param(["--connect-timeout", "1 h"], "`h` is not a unit it takes", id="connect-timeout"),
        pytest.param(["--user=-x"], "not a user name", id="user"),
        pytest.param(["--jump", "a;b"], "is not a target", id="jump"),
        pytest.param(["--python", "-c"], "expected one argument", id="python"),
        pytest.param(["--python="], "not an interpreter", id="python-empty"),
        pytest.param(["--identity", "/none/x", "node1"], "is not a file", id="identity"),
        pytest.param(["--hosts", "/none/x"], "cannot be read", id="hosts"),
        pytest.param(["--inventory", "/none/x"], "does not exist", id="inventory"),
        pytest.param(["--mask"], "is about a bundle", id="mask"),
        pytest.param(["--parse", "uname", "/none", "node1"], "looks at no target", id="parse-target"),
        pytest.param(["--parse", "uname", "/none"], "cannot be read", id="parse-none"),
    ],
)
def test_wrong_usage_ends_with_2(provision, words, said):
    answer = provision("probe", *words)
    assert answer.code == 2
    assert said in answer.err


def test_targets_come_from_lists_each_once(provision, tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("local\nlocalhost # again\nlocal\n")
    found = provision("probe", "local", "--probes", "uname", "--hosts", tmp_path / "hosts", "--json").document["result"]
    assert list(found["targets"]) == ["local", "localhost"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"local\nlocalhost\n")))
    words = ("probe", "--probes", "uname", "--hosts", "-", "--shard", "2/2", "--json")
    assert list(provision(*words).document["result"]["targets"]) == ["localhost"]


def test_every_probe_with_a_parser_is_understood():
    properties = {name for name, value in vars(Snapshot).items() if isinstance(value, property)}
    assert set(VALUES.values()) == properties
    assert set(VALUES) == set(PROBES)
    for probe, name in VALUES.items():
        with pytest.raises(Exception, match="was not asked") as caught:
            getattr(Snapshot("x", {}), name)
        assert caught.value.probe == probe


def test_nothing_is_left_in_the_temporary_folder(command, environment, tmp_path):
    environment = environment | {"TMPDIR": str(tmp_path)}
    subprocess.run([*command, "probe", "--probes", "uname,limits"], env=environment, check=True, capture_output=True)
    assert list(Path(tmp_path).iterdir()) == []


STUBBORN = """#!/bin/sh
trap '' TERM HUP INT
echo $$ >"$MARK"
while :; do sleep 33.25; done
"""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_until(condition, seconds: float = 20.0) -> bool:
    last = time.monotonic() + seconds
    while not condition() and time.monotonic() < last:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize(
    ("number", "flags", "code"),
    [
        pytest.param(signal.SIGINT, (), 130, id="interrupted"),
        pytest.param(signal.SIGTERM, (), 130, id="told-to-end"),
        pytest.param(None, ("--timeout", "2"), 7, id="out-of-time"),
    ],
)
def test_one_that_is_ended_takes_its_probes_and_its_folder_along(command, environment, tmp_path, number, flags, code):
    mark, tools, temporary = tmp_path / "pid", tmp_path / "tools", tmp_path / "temporary"
    tools.mkdir()
    temporary.mkdir()
    (tools / "nvidia-smi").write_text(STUBBORN)
    (tools / "nvidia-smi").chmod(0o755)
    environment = environment | {
        "PATH": f"{tools}:{environment.get('PATH', os.environ['PATH'])}",
        "TMPDIR": str(temporary),
        "MARK": str(mark),
    }
    words = [*command, "probe", "--probes", "nvlink-status,uname", *flags]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert _wait_until(lambda: mark.exists() and mark.read_text().strip() != "")
    if number is not None:
        process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert list(temporary.iterdir()) == []
    assert _wait_until(lambda: not _is_alive(int(mark.read_text())), 2.0)


@pytest.mark.parametrize("lists", [("gpu001",), ("gpu002", "gpu001", "gpu001")], ids=["alone", "among-others"])
def test_a_name_that_the_inventory_knows_is_its_host(monkeypatch, lists):
    own = Target(name="gpu001", kind="local", expect={"gpus": 8})
    monkeypatch.setattr(inventory, "read_inventory", lambda *_: inventory.Inventory(targets=(own,)))
    parser = argparse.ArgumentParser()
    add_target_flags(parser)
    options = parser.parse_args([*lists, "--inventory", "hosts.ini"])
    found = {target.name: target.kind for target in targets_of(options)}
    assert found == dict.fromkeys(lists, "ssh") | {"gpu001": "local"}
    assert list(found) == list(dict.fromkeys(lists))
    assert expectations_of(options) == {"gpu001": {"gpus": 8}}
