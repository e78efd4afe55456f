"""`provision verify` as people run it, over bundles of stand-in machines."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import machines
import pytest

from provision.cli.output import Output as CommandOutput
from provision.cli.text.verdict import show_verdict
from provision.matrix.load import Matrix
from provision.probe.bundle import write_bundle
from provision.probe.output import Output
from provision.records import replace
from provision.signals.signal import failed, unknown
from provision.verify.engine import Result, Verdict
from provision.verify.fleet import Difference

Machine = Mapping[str, Output]

OTHER_DRIVER = "580.95.05"
DRIVER = "580.105.08"


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Path]:
    """Write machines, target → what was collected there, into one file."""

    def write(name: str = "b.tar.gz", **hosts: Machine) -> Path:
        path = tmp_path / name
        write_bundle(path, {target: machines.snapshot(outputs, target) for target, outputs in hosts.items()})
        return path

    return write


@pytest.fixture(scope="module")
def lock_text(tmp_path_factory) -> str:
    """The lock of the stack that the stand-in with eight H100 runs."""
    from provision.cli.main import main

    folder = tmp_path_factory.mktemp("image") / "context"
    assert main(["image", "--torch", "2.8", "--cuda", "12.8", "--python", "3.11", "-q", "-o", str(folder)]) == 0
    return (folder / "provision.lock").read_text()


@pytest.fixture
def lock(lock_text: str, tmp_path: Path) -> Path:
    (tmp_path / "provision.lock").write_text(lock_text)
    return tmp_path / "provision.lock"


def other_driver(outputs: Machine) -> Machine:
    """Return a machine that is well and has another driver throughout."""
    return {name: replace(row, text=row.text.replace(DRIVER, OTHER_DRIVER)) for name, row in outputs.items()}


def hot(outputs: Machine, index: int, degrees: int) -> Machine:
    """Return a machine with one GPU too warm."""
    text = outputs["nvidia-smi-xml"].text
    blocks = text.split("<gpu id=")
    blocks[index + 1] = re.sub(r"<gpu_temp>[0-9]+ C<", f"<gpu_temp>{degrees} C<", blocks[index + 1])
    blocks[index + 1] = re.sub(r"(<gpu_temp_tlimit>)[0-9]+ C<", r"\g<1>1 C<", blocks[index + 1])
    assert "<gpu id=".join(blocks) != text
    return machines.replace_output(outputs, "nvidia-smi-xml", text="<gpu id=".join(blocks))


def statuses(answer, target: str) -> dict[str, str]:
    (row,) = [row for row in answer.document["result"]["targets"] if row["target"] == target]
    return {check["id"]: check["status"] for check in row["checks"]}


class TestVerdict:
    def test_a_healthy_machine_passes(self, provision, bundle):
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()))
        assert answer.code == 0
        assert answer.out.startswith("passed: 1 target; checks: ")
        assert ", 0 failed, 0 unknown, " in answer.out
        assert "facts of" in answer.err
        assert "hint:" not in answer.err

    def test_a_failure_ends_with_6_and_says_what_was_seen_expected_and_to_be_done(self, provision, bundle):
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--gpus", "9")
        assert answer.code == 6
        first = answer.out.splitlines()[0]
        assert first.startswith("FAIL gpu.")
        for label in (
            "  seen      8 GPUs",
            "  expected  9",
            "  remedy    ",
            "  more      provision explain check/gpu.",
        ):
            assert label in answer.out
        assert answer.out.splitlines()[-1].startswith("failed: 1 target; checks: ")
        assert "looks for the cause" in answer.err

    def test_the_way_on_leads_to_the_bundle_that_failed_too(self, provision, bundle):
        good = bundle("good.tar.gz", gpu001=machines.hgx_h100())
        bad = bundle("bad.tar.gz", gpu002=hot(machines.hgx_h100(), 0, 95))
        answer = provision("verify", "--from", good, "--from", bad)
        assert f"`provision doctor --from {good} --from {bad}` looks for the cause" in answer.err

    def test_the_way_on_reaches_a_host_of_an_inventory_as_this_run_did(self, provision, tmp_path):
        hosts = tmp_path / "hosts.ini"
        hosts.write_text("gpu01 ansible_connection=local\n")
        answer = provision("verify", "-i", hosts, "--gpus", "9")
        assert answer.code == 6
        assert f"`provision doctor -i {hosts} --limit gpu01` looks for the cause" in answer.err

    @pytest.mark.parametrize("text", ["---\n# Written\nprovision_lock:\n  digest: x\n", '{"provision_lock": {}}'])
    def test_a_lock_of_nodes_is_told_from_one_of_an_image(self, provision, tmp_path, text):
        lock = tmp_path / "provision_lock.yml"
        lock.write_text(text)
        answer = provision("verify", "--lock", lock)
        assert answer.code == 2
        assert f"{lock} is a lock of nodes" in answer.err
        assert f"`provision node verify -i INVENTORY --lock {lock}`" in answer.err
        assert "--stack provision.lock" in answer.err

    def test_unknown_is_never_pass(self, provision, bundle):
        silent = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", status="hung")
        answer = provision("verify", "--from", bundle(gpu001=silent), "--json")
        assert answer.code == 6
        found = statuses(answer, "gpu001")
        assert found["gpu.count"] == "unknown"
        assert found["gpu.ecc.uncorrected"] == "unknown"
        assert not answer.document["result"]["ok"]

    def test_checks_that_lack_the_same_answer_stand_together(self, provision, bundle):
        silent = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", status="hung")
        answer = provision("verify", "--from", bundle(gpu001=silent))
        assert answer.out.count("UNKNOWN ") == len({line for line in answer.out.splitlines() if "UNKNOWN" in line})
        lines = answer.out.splitlines()
        (start,) = [number for number, line in enumerate(lines) if line.startswith("UNKNOWN nvidia-smi")]
        assert lines[start + 1].startswith("  critical  fabric.state, gpu.count, ")
        # What the facts advise is for a wrong answer, and here is none.
        assert "remedy" not in "\n".join(lines[start:])

    def test_nothing_collected_at_all_fails(self, provision, bundle):
        answer = provision("verify", "--from", bundle(gpu001={}), "--json")
        assert answer.code == 6
        assert "pass" not in statuses(answer, "gpu001").values()

    def test_a_plan_without_gpus_skips_with_the_reason_and_one_with_them_does_not(self, provision, bundle):
        path = bundle(web=machines.cpu_only())
        answer = provision("verify", "--from", path, "--gpus", "0", "--json")
        assert answer.code == 0
        assert statuses(answer, "web")["gpu.count"] == "skip"
        without = provision("verify", "--from", path)
        assert without.code == 6
        assert "`--gpus 0` says so" in without.err

    def test_a_gpu_where_none_is_planned_is_not_skipped(self, provision, bundle):
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--gpus", "0", "--json")
        assert answer.code == 6
        assert statuses(answer, "gpu001")["gpu.count"] == "fail"

    def test_where_all_is_skipped_it_says_that_nothing_was_proved(self, provision, bundle):
        path = bundle(web=machines.cpu_only())
        answer = provision("verify", "--from", path, "--gpus", "0", "--only", "nvlink")
        assert answer.code == 0
        assert "nothing was proved" in answer.err

    def test_verbose_shows_every_check(self, provision, bundle):
        path = bundle(gpu001=machines.hgx_h100())
        listed = provision("verify", "--list", "--json").document["result"]["checks"]
        out = provision("verify", "--from", path, "-v").out
        for check in listed:
            assert f" {check['id']} " in out

    def test_the_same_input_gives_the_same_words(self, provision, bundle):
        path = bundle(gpu001=machines.hgx_h100(), gpu002=other_driver(machines.hgx_h100()))
        words = ("verify", "--from", path, "--diff-fleet", "--json")
        assert provision(*words).out == provision(*words).out


class TestChoice:
    def test_only_and_skip_take_ids_and_their_beginnings(self, provision, bundle):
        path = bundle(gpu001=machines.hgx_h100())
        words = ("verify", "--from", path, "--only", "gpu", "--only", "fabric.state", "--skip", "gpu.driver", "--json")
        found = statuses(provision(*words), "gpu001")
        assert "fabric.state" in found
        assert "gpu.temp" in found
        assert not [name for name in found if name.startswith(("gpu.driver", "net", "fabric.manager"))]

    def test_a_check_that_was_skipped_does_not_fail_the_rest(self, provision, bundle):
        path = bundle(gpu001=machines.hgx_h100())
        words = ("verify", "--from", path, "--gpus", "9", "--only", "gpu")
        assert provision(*words).code == 6
        assert provision(*words, "--skip", "gpu.count", "--skip", "gpu.pci").code == 0

    @pytest.mark.parametrize("bar", ["critical", "high", "medium", "low"])
    def test_fail_on_moves_the_bar(self, provision, bundle, bar):
        ranks = ["critical", "high", "medium", "low"]
        off = machines.hgx_h100()
        off = {**off, "nvidia-smi-xml": _changed(off, "persistence_mode>Enabled", "persistence_mode>Disabled")}
        (severity,) = {row.severity for row in Matrix().checks.values() if row.id == "gpu.persistence"}
        answer = provision("verify", "--from", bundle(gpu001=off), "--only", "gpu.persistence", "--fail-on", bar)
        is_counted = ranks.index(severity) <= ranks.index(bar)
        assert answer.code == (6 if is_counted else 0)
        assert ("FAIL gpu.persistence" in answer.out) is is_counted
        assert ("below the bar: gpu.persistence" in answer.out) is not is_counted

    def test_list_names_the_checks_of_a_level_and_asks_nothing(self, provision):
        quick = provision("verify", "--list", "--json").document["result"]["checks"]
        deep = provision("verify", "--list", "--deep", "--json").document["result"]["checks"]
        assert {row["id"] for row in quick} < {row["id"] for row in deep}
        assert {row["id"] for row in deep} == set(Matrix().checks)
        answer = provision("verify", "--list", "--only", "nvlink")
        assert answer.code == 0
        assert [line.split()[0] for line in answer.out.splitlines()] == sorted(
            name for name in (row["id"] for row in quick) if name.startswith("nvlink")
        )

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            pytest.param(["--only", "gpu.tmp"], "did you mean `gpu.temp`?", id="only"),
            pytest.param(["--skip", "nvlnk"], "no check is called `nvlnk`", id="skip"),
            pytest.param(["--only", "gpu", "--skip", "gpu"], "no check is left to ask", id="none-left"),
            pytest.param(["--gpus", "many"], "--gpus `many` is not a whole number", id="gpus"),
            pytest.param(["--gpus", "-1"], "is not from 0 to 1024", id="negative"),
            pytest.param(["--level", "deeep"], "did you mean `deep`?", id="level"),
            pytest.param(["--fail-on", "hihg"], "did you mean `high`?", id="fail-on"),
            pytest.param(["--expect", "/none/x"], "cannot be read", id="no-file"),
        ],
    )
    def test_wrong_usage_ends_with_2(self, provision, bundle, words, said):
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), *words)
        assert answer.code == 2
        assert said in answer.err
        assert answer.out == ""


def _changed(outputs: Machine, old: str, new: str) -> Output:
    return machines.change(outputs, "nvidia-smi-xml", old, new)["nvidia-smi-xml"]


class TestExpectation:
    def test_the_lock_is_held_to(self, provision, bundle, lock):
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--lock", lock, "--json")
        assert answer.code == 0
        found = statuses(answer, "gpu001")
        assert {found[name] for name in ("fw.torch.import", "fw.torch.cuda", "cuda.cudnn", "cuda.nccl")} == {"pass"}

    def test_another_cudnn_than_the_locks_fails(self, provision, bundle, lock):
        old = {
            name: replace(row, text=row.text.replace("9.10.2.21", "8.9.2.26").replace("91002", "8902"))
            for name, row in machines.hgx_h100().items()
        }
        answer = provision("verify", "--from", bundle(gpu001=old), "--lock", lock, "--only", "cuda.cudnn")
        assert answer.code == 6
        assert "8.9.2.26" in answer.out
        assert "expected  cuDNN 9.10.2.21" in answer.out

    def test_an_edited_lock_is_refused(self, provision, bundle, lock):
        lock.write_text(lock.read_text().replace('"cudnn": "9.10.2.21"', '"cudnn": "8.9.2.26"'))
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--lock", lock)
        assert answer.code == 2
        assert "lock" in answer.err
        assert answer.out == ""

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\x00"], ids=repr)
    def test_what_is_no_lock_is_refused(self, provision, bundle, tmp_path, content):
        (tmp_path / "other.lock").write_text(content)
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--lock", tmp_path / "other.lock")
        assert answer.code == 2

    def test_a_file_says_more_and_the_flag_wins(self, provision, bundle, tmp_path):
        path = bundle(gpu001=machines.hgx_h100())
        (tmp_path / "expect.toml").write_text('gpus = 4\ngpu = "H100"\n')
        words = ("verify", "--from", path, "--expect", tmp_path / "expect.toml", "--only", "gpu.count")
        assert provision(*words).code == 6
        assert provision(*words, "--gpus", "8").code == 0

    def test_everything_in_the_guide_can_be_expected(self, provision, bundle, tmp_path):
        guide = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
        (tmp_path / "expect.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--expect", tmp_path / "expect.toml")
        assert answer.code in (0, 6)
        assert "is nothing that can be expected" not in answer.err

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            pytest.param("gpus = ", "is not TOML", id="toml"),
            pytest.param("a = " + "[" * 100_000, "nested too deep", id="deep"),
            pytest.param("gpu_count = 8", "known are gpus, ", id="unknown"),
            pytest.param("drivr = '1'", "did you mean `driver`?", id="near"),
            pytest.param("gpus = '8'", "`gpus` must be a whole number", id="type"),
            pytest.param("gpus = -1", "`gpus` must be a whole number", id="negative"),
            pytest.param("is_mig = 1", "`is_mig` must be true or false", id="bool"),
            pytest.param("driver = 580.95", "`driver` must be text", id="float"),
            pytest.param("[packages]\ntorch = 2", "`packages` must be a table of text", id="table"),
            pytest.param('gpu = "NoSuch9000"', "NoSuch9000", id="gpu"),
        ],
    )
    def test_wrong_files_are_told_before_anything_is_asked(self, provision, bundle, tmp_path, content, said):
        (tmp_path / "expect.toml").write_text(content + "\n")
        answer = provision("verify", "--from", bundle(gpu001=machines.hgx_h100()), "--expect", tmp_path / "expect.toml")
        if "NoSuch9000" in content:
            assert answer.code in (2, 4, 6)
            assert said in answer.err + answer.out
            return
        assert answer.code == 2
        assert said in answer.err
        assert answer.out == ""


class TestFleet:
    @pytest.fixture
    def fleet(self, bundle) -> Path:
        hosts = {f"gpu{number:03}": machines.hgx_h100() for number in range(1, 6)}
        return bundle("fleet.tar.gz", **{**hosts, "gpu003": other_driver(hosts["gpu003"])})

    def test_the_odd_driver_is_named(self, provision, fleet):
        answer = provision("verify", "--from", fleet, "--diff-fleet")
        lines = answer.out.splitlines()
        start = lines.index("differences:")
        assert f"  driver: most (4) have {DRIVER}" in lines[start:]
        assert f"    {OTHER_DRIVER}: gpu003" in lines[start:]
        differences = provision("verify", "--from", fleet, "--diff-fleet", "--json").document["result"]["differences"]
        assert {"trait": "driver", "majority": DRIVER, "majority_count": 4, "targets": {OTHER_DRIVER: ["gpu003"]}} in (
            differences
        )

    def test_equal_hosts_do_not_differ(self, provision, bundle):
        path = bundle(a=machines.hgx_h100(), b=machines.hgx_h100())
        assert "differences" not in provision("verify", "--from", path, "--diff-fleet").out

    def test_traits_that_one_host_cannot_tell_share_a_line(self, provision, bundle):
        silent = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", status="hung")
        path = bundle(a=machines.hgx_h100(), b=machines.hgx_h100(), c=silent)
        answer = provision("verify", "--from", path, "--diff-fleet")
        (line,) = [line for line in answer.out.splitlines() if line.startswith("  not known on c: ")]
        assert "VBIOS" in line
        assert "VBIOS: most" not in answer.out

    def test_identical_failures_are_one(self, provision, bundle):
        hosts = {f"gpu{number:03}": hot(machines.hgx_h100(), number % 8, 91 + number) for number in range(1, 6)}
        answer = provision("verify", "--from", bundle(**hosts, well=machines.hgx_h100()), "--only", "gpu.temp")
        assert answer.code == 6
        assert answer.out.count("FAIL gpu.temp") == 1
        assert ": 5 of 6 targets" in answer.out
        assert "targets   gpu001, gpu002, gpu003, gpu004, gpu005" in answer.out
        assert "failed: 5 of 6 targets; checks: 1 passed, 5 failed" in answer.out

    def test_many_names_are_cut_and_counted(self, provision, bundle):
        hosts = {f"gpu{number:03}": hot(machines.hgx_h100(), 0, 95) for number in range(1, 13)}
        out = provision("verify", "--from", bundle(**hosts), "--only", "gpu.temp").out
        assert "gpu008 and 4 more" in out
        assert "gpu009" not in out

    def test_bundles_may_be_several(self, provision, bundle):
        one = bundle("one.tar.gz", gpu001=machines.hgx_h100())
        two = bundle("two.tar.gz", gpu002=machines.cloud_a10g())
        answer = provision("verify", "--from", one, "--from", two, "--json")
        assert [row["target"] for row in answer.document["result"]["targets"]] == ["gpu001", "gpu002"]
        assert answer.code == 0

    def test_a_target_that_does_not_answer_is_one_critical_failure_beside_the_others(self, provision, bundle):
        path = bundle(gpu001=machines.hgx_h100())
        words = ("verify", "--from", path, "ssh://no-such-1.invalid", "ssh://no-such-2.invalid")
        answer = provision(*words)
        assert answer.code == 6
        assert "FAIL host.reachable (critical): 2 of 3 targets" in answer.out
        assert answer.out.count("FAIL host.reachable") == 1

    def test_no_target_that_answers_ends_with_7(self, provision):
        answer = provision("verify", "ssh://no-such-1.invalid")
        assert answer.code == 7
        assert "FAIL host.reachable (critical)" in answer.out
        assert "looks for the cause" not in answer.err


class TestMerge:
    @pytest.fixture
    def parts(self, provision, bundle, tmp_path) -> tuple[Path, Path, dict]:
        well = machines.hgx_h100()
        hosts = {"gpu001": well, "gpu002": hot(well, 3, 97), "gpu003": well}
        chosen = ("--only", "gpu", "--skip", "gpu.vbios", "--json")
        whole = provision("verify", "--from", bundle("w.tar.gz", **hosts), *chosen)
        paths = []
        for name, names in (("a", ("gpu001", "gpu002")), ("b", ("gpu003",))):
            path = bundle(f"{name}.tar.gz", **{host: hosts[host] for host in names})
            paths.append(tmp_path / f"{name}.json")
            assert provision("verify", "--from", path, *chosen, "-o", paths[-1]).code == (6 if name == "a" else 0)
        return (*paths, whole.document)

    def test_two_parts_are_the_whole(self, provision, parts):
        first, second, whole = parts
        merged = provision("verify", "--merge", first, "--merge", second, "--json")
        assert merged.code == 6
        assert merged.document["result"] == whole["result"]

    def test_the_bar_is_the_one_given_now(self, provision, parts):
        first, second, _ = parts
        answer = provision("verify", "--merge", first, "--merge", second, "--fail-on", "critical")
        assert answer.code == 0
        assert "below the bar: gpu.temp on gpu002" in answer.out

    def test_parts_that_overlap_are_refused(self, provision, parts):
        first, _, _ = parts
        answer = provision("verify", "--merge", first, "--merge", first)
        assert answer.code == 2
        assert "has targets that another report has too" in answer.err
        assert "gpu001" in answer.err

    def test_a_part_and_a_bundle_are_merged(self, provision, parts, bundle):
        first, _, _ = parts
        path = bundle(gpu009=machines.hgx_h100())
        answer = provision("verify", "--merge", first, "--from", path, "--only", "gpu", "--json")
        assert [row["target"] for row in answer.document["result"]["targets"]] == ["gpu009", "gpu001", "gpu002"]

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda text: text[:200], id="cut"),
            pytest.param(lambda _: "[]", id="list"),
            pytest.param(lambda _: '{"ok": true}', id="other"),
            pytest.param(lambda _: "[" * 200_000, id="deep"),
            pytest.param(lambda text: text.replace('"status": "pass"', '"status": "fine"'), id="status"),
            pytest.param(lambda text: text.replace('"target": "gpu003"', '"target": 3'), id="target"),
        ],
    )
    def test_other_files_are_refused(self, provision, parts, damage):
        _, second, _ = parts
        second.write_text(damage(second.read_text()))
        answer = provision("verify", "--merge", second)
        assert answer.code == 2
        assert "is not a report of `provision verify --json`" in answer.err

    def test_other_facts_are_told(self, provision, parts):
        _, second, whole = parts
        second.write_text(second.read_text().replace(whole["result"]["facts_date"], "2020-01-01"))
        answer = provision("verify", "--merge", second)
        assert answer.code == 0
        assert "was judged by the facts of 2020-01-01" in answer.err

    def test_a_report_commands_no_terminal(self, provision, parts):
        _, second, _ = parts
        second.write_text(second.read_text().replace("gpu003", r"gpu\u001b]0;x\u0007\u001b[31m003"))
        answer = provision("verify", "--merge", second, "-v", "--diff-fleet")
        assert "\x1b" not in answer.out + answer.err
        assert "\x07" not in answer.out + answer.err
        merged = provision("verify", "--merge", second, "--json").document["result"]
        assert [row["target"] for row in merged["targets"]] == ["gpu003"]


class TestReports:
    def test_files_are_written_beside_the_answer(self, provision, bundle, tmp_path):
        path = bundle(gpu001=machines.hgx_h100(), gpu002=hot(machines.hgx_h100(), 3, 97))
        junit, page, metrics = tmp_path / "j.xml", tmp_path / "r.html", tmp_path / "m.prom"
        words = ("verify", "--from", path, "--junit", junit, "--html", page, "--prometheus", metrics)
        answer = provision(*words)
        assert answer.code == 6
        root = ET.fromstring(junit.read_text())
        assert [suite.get("name") for suite in root] == ["gpu001", "gpu002"]
        assert root.get("failures") == "1"
        assert "gpu.temp" in page.read_text()
        assert 'gpu002"' in metrics.read_text()
        assert f"wrote {junit}" in answer.err

    def test_o_takes_the_result(self, provision, bundle, tmp_path):
        answer = provision("verify", "--from", bundle(a=machines.hgx_h100()), "--json", "-o", tmp_path / "r.json")
        assert answer.out == ""
        assert json.loads((tmp_path / "r.json").read_text())["result"]["ok"] is True

    def test_a_dry_run_writes_nothing(self, provision, bundle, tmp_path):
        path = bundle(a=machines.hgx_h100())
        before = sorted(tmp_path.rglob("*"))
        flags = [word for flag in ("junit", "html", "prometheus") for word in (f"--{flag}", tmp_path / flag)]
        answer = provision("verify", "--from", path, *flags, "-o", tmp_path / "out", "--dry-run")
        assert answer.code == 0
        assert sorted(tmp_path.rglob("*")) == before
        assert answer.err.count("would write") == 4

    @pytest.mark.parametrize("flag", ["--junit", "--html", "--prometheus", "-o"])
    def test_a_report_that_cannot_be_written_ends_with_5(self, provision, bundle, flag):
        # Nobody may write there, root included.
        answer = provision("verify", "--from", bundle(a=machines.hgx_h100()), flag, "/proc/none/report")
        assert answer.code == 5
        assert "error: cannot write" in answer.err
        assert "/proc/none" in answer.err
        assert ("-o FILE" in answer.err) is (flag == "-o")

    def test_a_report_below_a_file_is_wrong_usage(self, provision, bundle, tmp_path):
        (tmp_path / "file").write_text("x")
        answer = provision("verify", "--from", bundle(a=machines.hgx_h100()), "--junit", tmp_path / "file" / "r.xml")
        assert answer.code == 2
        assert "file is a file" in answer.err

    @pytest.mark.parametrize("flag", ["--junit", "--html", "--prometheus"])
    def test_a_folder_is_refused_before_anything_is_asked(self, provision, tmp_path, flag):
        answer = provision("verify", "--from", "/none/x", flag, tmp_path)
        assert answer.code == 2
        assert f"{flag}: {tmp_path} is a folder" in answer.err

    def test_one_file_for_two_reports_is_refused(self, provision, tmp_path):
        answer = provision("verify", "--from", "/none/x", "--junit", tmp_path / "r", "--html", tmp_path / "r")
        assert answer.code == 2
        assert "name the same file" in answer.err

    def test_the_document_holds_every_answer(self, provision, bundle):
        path = bundle(gpu001=hot(machines.hgx_h100(), 3, 97))
        result = provision("verify", "--from", path, "--json").document["result"]
        assert result["counts"]["targets"] == 1
        assert result["counts"]["fail"] == result["counts"]["failures"] == 1
        (row,) = result["targets"]
        assert sum(row["counts"].values()) == len(row["checks"])
        (failed,) = [check for check in row["checks"] if check["status"] == "fail"]
        assert {"id", "seen", "expected", "severity", "remedy", "runbook", "source"} <= failed.keys()
        (group,) = result["groups"]
        assert (group["check"], group["targets"]) == ("gpu.temp", ["gpu001"])


class TestHostileText:
    """What a target says is anybody's text."""

    ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"

    @pytest.fixture
    def hostile(self) -> Machine:
        outputs = machines.hgx_h100()
        changed = {
            name: replace(row, text=self.ESCAPE + row.text + self.ESCAPE, error=self.ESCAPE + row.error)
            for name, row in outputs.items()
        }
        return machines.fail(
            changed, "nvidia-smi-xml", 1, error=f"{self.ESCAPE}NVRM: \x9b31m oh\u202e no", text="x\x1b[1m"
        )

    @pytest.mark.parametrize("flags", [(), ("-v",), ("--diff-fleet",), ("--json",)], ids=str)
    def test_no_escape_reaches_the_terminal(self, provision, bundle, hostile, flags):
        path = bundle(gpu001=hostile, gpu002=machines.hgx_h100())
        answer = provision("verify", "--from", path, *flags)
        assert answer.code == 6
        for character in ("\x1b", "\x07", "\x9b", "\u202e"):
            assert character not in answer.out + answer.err

    @pytest.mark.parametrize("make", [failed, unknown], ids=["fail", "unknown"])
    @pytest.mark.parametrize("severity", ["high", "low"])
    def test_no_escape_of_an_answer_is_shown(self, make, severity):
        row = Result(
            check="gpu.temp",
            target=f"gpu{self.ESCAPE}001",
            level="quick",
            severity=severity,
            title="cool",
            outcome=make(f"{self.ESCAPE}97 C"),
            remedy="Cool it.",
            runbook="docs/runbooks.md#gpu-temp",
        )
        other = Difference(trait="driver", majority=self.ESCAPE, majority_count=2, targets={self.ESCAPE: (row.target,)})
        output = CommandOutput()
        output.verbosity = 1
        shown = show_verdict(Verdict(results=(row, replace(row, target="b"))), [other], output)
        assert "97 C" in shown
        assert "\x1b" not in shown
        assert "\x07" not in shown

    def test_no_escape_reaches_a_report(self, provision, bundle, hostile, tmp_path):
        path = bundle(gpu001=hostile)
        flags = [word for flag in ("junit", "html", "prometheus") for word in (f"--{flag}", tmp_path / flag)]
        provision("verify", "--from", path, *flags)
        for name in ("junit", "html", "prometheus"):
            assert "\x1b" not in (tmp_path / name).read_text()

    def test_the_name_of_a_target_is_plain_too(self, provision, tmp_path):
        name = f"gpu{self.ESCAPE}001<script>"
        write_bundle(tmp_path / "b.tar.gz", {name: machines.snapshot(machines.hgx_h100(), name)})
        answer = provision(
            "verify", "--from", tmp_path / "b.tar.gz", "--gpus", "9", "--html", tmp_path / "r.html", "-v"
        )
        assert "\x1b" not in answer.out + answer.err
        assert "<script>" not in (tmp_path / "r.html").read_text()


class TestScreen:
    def test_color_always_and_never(self, provision, bundle, monkeypatch):
        words = ("verify", "--from", bundle(a=machines.hgx_h100()), "--gpus", "9")
        assert "\x1b[1;31mFAIL\x1b[0m" in provision(*words, "--color", "always").out
        assert "\x1b" not in provision(*words).out
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in provision(*words).out

    def test_without_a_terminal_lines_are_of_one_width(self, provision, bundle, monkeypatch):
        monkeypatch.setenv("COLUMNS", "50")
        out = provision("verify", "--from", bundle(a=machines.cpu_only())).out
        assert 80 < max(map(len, out.splitlines())) <= 100

    @pytest.mark.parametrize(("columns", "widest"), [(60, 60), (200, 120), (10, 100)], ids=["narrow", "wide", "absurd"])
    def test_lines_fit_the_terminal(self, command, environment, bundle, columns, widest):
        words = [*command, "verify", "--from", bundle(a=machines.cpu_only()), "--color", "never", "-q"]
        out = _on_terminal(words, environment, columns)
        lengths = [len(line) for line in out.splitlines()[:-1] if " " in line[12:]]
        assert max(lengths) <= widest
        if columns == 200:
            assert max(lengths) > 100

    def test_a_command_stays_on_one_line(self, provision, bundle):
        out = provision("verify", "--from", bundle(a=machines.cpu_only())).out
        assert all(line.count("`") % 2 == 0 for line in out.splitlines())


def test_a_board_keeps_failures_and_fits_the_screen(monkeypatch):
    from rich.console import Console

    from provision.cli.text.live import Board

    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("COLUMNS", "80")
    counts = {f"gpu{number:03}": {"pass": 50, "fail": int(number % 10 == 0), "unknown": 0} for number in range(100)}
    board = Board(101, counts, has_color=False)
    for name, row in counts.items():
        board.advance(name, not row["fail"])
    board.advance("ssh://\x1b[31mdown", None)
    console = Console(width=80, height=12, force_terminal=False)
    with console.capture() as captured:
        console.print(board.draw())
    lines = captured.get().splitlines()
    assert len(lines) <= 12
    assert any(line.split() == ["gpu090", "50", "1", "0"] for line in lines)
    assert any("down" in line and "no answer" in line for line in lines)
    assert "\x1b" not in captured.get()
    assert "101/101" in lines[-1]


def test_a_person_sees_a_table_while_several_targets_answer(command, environment):
    words = [*command, "verify", "local", "localhost", "ssh://no-such-host.invalid", "--gpus", "0", "--color", "never"]
    out = _on_terminal(words, environment, 100)
    assert "answered" in out
    assert "passed" in out
    # The table goes away; what stays is the verdict.
    assert "targets; checks: " in out.splitlines()[-1] or "hint:" in out


def _on_terminal(words: list[object], environment: Mapping[str, str], columns: int) -> str:
    """Run a program on a terminal of some width and return all that it wrote there."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [str(word) for word in words],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment, "TERM": "xterm"},
        close_fds=True,
    )
    os.close(follower)
    held = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 60)
        try:
            piece = os.read(leader, 65536) if ready else b""
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        held += piece
    os.close(leader)
    process.wait(timeout=60)
    return held.decode(errors="replace").replace("\r\n", "\n")


def test_targets_stand_as_they_were_named_and_not_as_they_answered(provision, monkeypatch) -> None:
    names = ["gpu003", "gpu001", "gpu002"]

    def collect_each(options, output, take, *_):
        for name in sorted(names, reverse=True):
            take(machines.snapshot(machines.hgx_h100(), name))
        return {}

    monkeypatch.setattr("provision.cli.commands.verify.collect_each", collect_each)
    answer = provision("verify", *names, "--json")
    assert [target["target"] for target in answer.document["result"]["targets"]] == names


def test_plan_has_no_use_where_reports_are_only_merged(provision, bundle, tmp_path: Path) -> None:
    provision(
        "verify", "--from", bundle(gpu001=machines.cpu_only()), "--gpus", 0, "--json", "-o", tmp_path / "one.json"
    )
    answer = provision("verify", "--merge", tmp_path / "one.json", "--gpus", 8)
    assert (answer.code, "--gpus has no use" in answer.err) == (2, True)


def test_merged_reports_of_targets_nobody_reached_say_so(provision, tmp_path: Path) -> None:
    for name in ("one", "two"):
        answer = provision("verify", f"docker://{name}-that-is-not-there", "--json", "-o", tmp_path / f"{name}.json")
        assert answer.code == 7
    written = [path for path in (tmp_path / "one.json", tmp_path / "two.json") if "targets" in path.read_text()]
    if written:
        words = [word for path in written for word in ("--merge", path)]
        assert provision("verify", *words).code == 7


def test_prometheus_is_not_asked_where_no_check_reads_its_answer(provision, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('prometheus = "http://127.0.0.1:1"\n')
    monkeypatch.setattr("provision.probe.prometheus.ask_prometheus", lambda *_: pytest.fail("it was asked"))
    answer = provision("verify", "--expect", tmp_path / "plan.toml", "--gpus", 0, "--only", "host.memlock")
    assert answer.code == 0


def test_result_and_report_in_one_file_are_refused(provision, bundle, tmp_path: Path) -> None:
    same = tmp_path / "same"
    answer = provision("verify", "--from", bundle(gpu001=machines.cpu_only()), "--junit", same, "-o", same)
    assert (answer.code, same.exists()) == (2, False)
