"""The runner of Molecule scenarios: what it believes, what it does not, and what it says when nothing can be booted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[3]
_SPEC = importlib.util.spec_from_file_location("molecule_runner", _ROOT / "tools" / "molecule.py")
runner = importlib.util.module_from_spec(_SPEC)
sys.modules["molecule_runner"] = runner
_SPEC.loader.exec_module(runner)

SAID = {"hosts": ["one", "two"], "tests": 3}


def play(folder: Path, hosts: dict, number: int = 1, playbook: str = "gpu-node.yml") -> None:
    rows = {name: {"changed": 0, "failures": 0, "modules": 2, **row} for name, row in hosts.items()}
    text = json.dumps({"playbook": playbook, "seconds": 1, "hosts": rows})
    (folder / f"{number:03}-{playbook}.json").write_text(text, encoding="utf-8")


def verified(folder: Path, **counts: object) -> None:
    report = {"collected": 3, "passed": 3, "failed": 0, "skipped": [], **counts}
    (folder / "verify-1.json").write_text(json.dumps(report), encoding="utf-8")


def test_a_run_with_its_hosts_and_its_tests_passes(tmp_path):
    play(tmp_path, {"one": {}, "two": {}})
    verified(tmp_path)
    assert runner.judge_run(0, tmp_path, SAID) == ("passed", ())


def test_a_converge_without_hosts_is_not_believed(tmp_path):
    play(tmp_path, {})
    verified(tmp_path)
    status, reasons = runner.judge_run(0, tmp_path, SAID)
    assert status == "failed"
    assert "gpu-node.yml ran on no host" in reasons


def test_a_host_that_is_missing_from_the_recap_is_named(tmp_path):
    play(tmp_path, {"one": {}})
    verified(tmp_path)
    assert runner.judge_run(0, tmp_path, SAID) == ("failed", ("the first play did not have two",))


def test_plays_that_only_make_nodes_do_not_count(tmp_path):
    play(tmp_path, {"localhost": {}}, playbook="create.yml")
    verified(tmp_path)
    assert runner.judge_run(0, tmp_path, SAID)[1] == ("no play of the committed playbooks left a record",)


def test_plays_of_monitoring_count_as_those_of_nodes_do(tmp_path):
    play(tmp_path, {"one": {}, "two": {}}, playbook="gpu-monitoring.yml")
    verified(tmp_path)
    assert runner.judge_run(0, tmp_path, SAID) == ("passed", ())
    assert runner.count_remote(tmp_path) == {"one": 2, "two": 2}


@pytest.mark.parametrize("found", [0, 2])
def test_fewer_tests_than_promised_are_not_believed(tmp_path, found):
    play(tmp_path, {"one": {}, "two": {}})
    verified(tmp_path, collected=found, passed=found)
    assert runner.judge_run(0, tmp_path, SAID) == ("failed", (f"{found} tests were found, 3 or more are there",))


def test_a_verifier_that_left_no_report_is_not_believed(tmp_path):
    play(tmp_path, {"one": {}, "two": {}})
    assert runner.judge_run(0, tmp_path, SAID)[0] == "failed"


def test_the_exit_status_of_molecule_decides_too(tmp_path):
    play(tmp_path, {"one": {}, "two": {}})
    verified(tmp_path)
    assert runner.judge_run(2, tmp_path, SAID) == ("failed", ("molecule ended with 2",))


def test_an_archive_that_does_not_answer_skips_with_the_reason(tmp_path):
    (tmp_path / "skipped.txt").write_text("jammy: the archive does not answer\n", encoding="utf-8")
    assert runner.judge_run(2, tmp_path, SAID) == ("skipped", ("jammy: the archive does not answer",))


def test_a_scenario_whose_tests_were_all_skipped_is_no_pass(tmp_path):
    play(tmp_path, {"one": {}, "two": {}})
    verified(tmp_path, passed=0, skipped=["test_upgrade: fewer than two releases"])
    assert runner.judge_run(0, tmp_path, SAID) == ("skipped", ("test_upgrade: fewer than two releases",))


def test_remote_executions_are_those_of_the_last_play_that_changed_nothing(tmp_path):
    play(tmp_path, {"one": {"changed": 5, "modules": 40}}, 1)
    play(tmp_path, {"one": {"modules": 3}}, 2)
    play(tmp_path, {"one": {"failures": 1, "modules": 9}}, 3)
    assert runner.count_remote(tmp_path) == {"one": 3}


def test_an_emptied_role_has_no_task_and_the_others_keep_theirs(tmp_path):
    for role in ("gpu_a", "gpu_b"):
        tasks = tmp_path / "playbooks/roles" / role / "tasks"
        tasks.mkdir(parents=True)
        for name in ("main", "absent"):
            (tasks / f"{name}.yml").write_text("---\n- name: Work\n", encoding="utf-8")
    copy = runner.empty_role("gpu_a", tmp_path / "copy", tmp_path / "playbooks")
    found = {path.relative_to(copy).as_posix(): yaml.safe_load(path.read_text()) for path in copy.rglob("*.yml")}
    assert found["roles/gpu_a/tasks/main.yml"] == found["roles/gpu_a/tasks/absent.yml"] == []
    assert found["roles/gpu_b/tasks/main.yml"] == [{"name": "Work"}]
    assert "Work" in (tmp_path / "playbooks/roles/gpu_a/tasks/main.yml").read_text()


def test_an_unknown_role_is_named_with_those_that_exist(tmp_path):
    (tmp_path / "playbooks/roles/gpu_a/tasks").mkdir(parents=True)
    with pytest.raises(ValueError, match="`gpu_x` is not a role; there are gpu_a"):
        runner.empty_role("gpu_x", tmp_path / "copy", tmp_path / "playbooks")


@pytest.mark.parametrize("text", ["tests: 3", "hosts: [one]", "hosts: [one]\ntests: 0", ""])
def test_a_scenario_that_promises_nothing_is_refused(tmp_path, text):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/scenario.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="are needed"):
        runner.read_said("x", tmp_path)


def test_every_scenario_promises_hosts_and_tests_and_has_what_molecule_needs():
    names = runner.list_scenarios()
    assert names[0] == "default"
    for name in names:
        said = runner.read_said(name)
        config = yaml.safe_load((runner.SCENARIOS / name / "molecule.yml").read_text(encoding="utf-8"))
        platforms = {platform["name"]: platform for platform in config["platforms"]}
        assert set(said["hosts"]) <= platforms.keys(), name
        assert all(
            {"gpu_nodes", "gpu_monitor", "gpu_slurm"} & {*platforms[host]["groups"]} for host in said["hosts"]
        ), name
        assert list((runner.SCENARIOS / name / "tests").glob("test_*.py")), name
        assert "verify" in config["scenario"]["test_sequence"], name


@pytest.mark.parametrize("text", ["", "emptied: []", "emptied: gpu_a", "emptied: [1]"])
def test_a_scenario_that_names_no_role_to_turn_red_without_is_refused(tmp_path, text):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/scenario.yml").write_text(f"hosts: [one]\ntests: 1\n{text}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="`emptied` is needed"):
        runner.read_pairs(["x"], tmp_path)


def test_every_role_that_a_scenario_names_makes_a_pair(tmp_path):
    for name, roles in (("x", "[gpu_a, gpu_b]"), ("y", "[gpu_a]")):
        (tmp_path / name).mkdir()
        text = f"hosts: [one]\ntests: 1\nemptied: {roles}\n"
        (tmp_path / name / "scenario.yml").write_text(text, encoding="utf-8")
    assert runner.read_pairs(["x", "y"], tmp_path) == [("x", "gpu_a"), ("x", "gpu_b"), ("y", "gpu_a")]


def ended(tmp_path, status="failed", log=""):
    (tmp_path / "log").write_text(log, encoding="utf-8")
    return runner.Result("x", status, 1.0, 2, 3, ("molecule ended with 1",), log=str(tmp_path / "log"))


def test_a_red_run_tells_which_tests_failed(tmp_path):
    play(tmp_path, {"one": {}})
    verified(tmp_path, passed=2, failed=1)
    log = "PASSED a::b\nFAILED x/tests/test_x.py::test_one[a b] - assert 1\nERROR x/tests/test_x.py::test_two - no\n"
    proof = runner.judge_red("gpu_a", ended(tmp_path, log=log), tmp_path)
    assert (proof.is_red, proof.failed_tests) == (True, ("test_one[a b]", "test_two"))
    assert proof.why == "1 tests failed"


def test_a_run_that_broke_before_any_play_proves_nothing(tmp_path):
    play(tmp_path, {"localhost": {}}, playbook="create.yml")
    proof = runner.judge_red("gpu_a", ended(tmp_path), tmp_path)
    assert not proof.is_red
    assert "before any play: molecule ended with 1" in proof.why


@pytest.mark.parametrize(("status", "why"), [("passed", "it stayed green"), ("skipped", "skipped; molecule ended")])
def test_a_run_that_did_not_fail_is_not_red(tmp_path, status, why):
    play(tmp_path, {"one": {}})
    proof = runner.judge_red("gpu_a", ended(tmp_path, status), tmp_path)
    assert not proof.is_red
    assert proof.why.startswith(why)
    assert proof.is_skipped == (status == "skipped")


def test_a_play_that_failed_is_told_with_its_task_and_reason(tmp_path):
    play(tmp_path, {"one": {}}, 1)
    failed = ["Refuse to call it done: one is not what its lock says:\n1. pins: 0 of 3\n2. more", "later"]
    play(tmp_path, {"one": {}, "two": {"failures": 1, "failed_tasks": failed}}, 2)
    proof = runner.judge_red("gpu_a", ended(tmp_path), tmp_path)
    assert proof.is_red
    reason = "Refuse to call it done: one is not what its lock says: 1. pins: 0 of 3"
    assert proof.why == f"the play failed on two, {reason}"


def test_a_role_whose_scenario_cannot_run_here_is_called_skipped_and_fails_nothing(tmp_path, monkeypatch, capsys):
    ends = {"x": "skipped", "y": "failed"}

    def run(scenario, logs, programs, extra):
        records = logs / scenario / "records"
        records.mkdir(parents=True)
        play(records, {"one": {}})
        return runner.Result(scenario, ends[scenario], 1.0, reasons=("no archive",))

    monkeypatch.setattr(runner, "list_scenarios", lambda: ["x", "y"])
    monkeypatch.setattr(runner, "read_pairs", lambda names: [("x", "gpu_nccl"), ("y", "gpu_cuda")])
    monkeypatch.setattr(runner, "_start", lambda asked: (tmp_path, {}))
    monkeypatch.setattr(runner, "run_scenario", run)
    words = ["--prove-red", "x", "y", "--logs", str(tmp_path / "logs")]
    assert runner.main(words) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("x "))
    assert "skipped" in line
    assert "no archive" in line
    ends["x"] = "passed"
    assert runner.main([*words[:-1], str(tmp_path / "again")]) == 5


def test_proving_red_runs_each_pair_and_writes_down_what_it_saw(tmp_path, monkeypatch, capsys):
    seen = []

    def run(scenario, logs, programs, extra):
        role = next(path.name for path in Path(extra["PROVISION_PLAYBOOKS"]).glob("roles/*") if is_empty(path))
        seen.append((scenario, role))
        records = logs / scenario / "records"
        records.mkdir(parents=True)
        play(records, {"one": {}})
        return runner.Result(scenario, "failed" if scenario == "x" else "passed", 1.0)

    def is_empty(role):
        return yaml.safe_load((role / "tasks/main.yml").read_text(encoding="utf-8")) == []

    monkeypatch.setattr(runner, "list_scenarios", lambda: ["x", "y"])
    monkeypatch.setattr(runner, "read_pairs", lambda names: [("x", "gpu_nccl"), ("y", "gpu_cuda")])
    monkeypatch.setattr(runner, "_start", lambda asked: (tmp_path, {"engine": "docker"}))
    monkeypatch.setattr(runner, "run_scenario", run)
    words = ["--prove-red", "x", "y", "--logs", str(tmp_path / "logs"), "--json", str(tmp_path / "red.json")]
    assert runner.main(words) == 5
    assert seen == [("x", "gpu_nccl"), ("y", "gpu_cuda")]
    proofs = json.loads((tmp_path / "red.json").read_text())["proofs"]
    assert [(row["scenario"], row["is_red"]) for row in proofs] == [("x", True), ("y", False)]
    assert "it stayed green" in capsys.readouterr().out


def test_a_python_of_a_version_manager_is_found(tmp_path, monkeypatch):
    programs = tmp_path / ".pyenv/versions/3.19.0/bin"
    programs.mkdir(parents=True)
    (programs / "python3.19").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (programs / "python3.19").chmod(0o755)
    monkeypatch.setattr(runner.Path, "home", lambda: tmp_path)
    monkeypatch.setattr(runner.sys, "executable", "/bin/false")
    monkeypatch.setenv("PATH", "")
    assert runner.find_python() == str(programs / "python3.19")
    (programs / "python3.19").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(runner.MissingError, match=r"wants Python 3\.12 or newer"):
        runner.find_python()


def test_an_unknown_scenario_is_refused_and_the_known_are_named(capsys):
    with pytest.raises(SystemExit) as ended:
        runner.main(["no-such"])
    assert ended.value.code == 2
    assert "default" in capsys.readouterr().err


def test_without_engine_and_root_it_says_so_and_ends_with_7(tmp_path, monkeypatch, capsys):
    for name in ("molecule", "pytest", "ansible-playbook"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.setenv("PROVISION_NODE_ENGINE", "docker")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner.main(["default", "--ansible-core", str(tmp_path), "--logs", str(tmp_path / "logs")]) == 7
    assert "no container engine answers" in capsys.readouterr().err


def test_a_folder_without_ansible_ends_with_7_and_says_what_makes_it(tmp_path, capsys):
    assert runner.main(["default", "--ansible-core", str(tmp_path)]) == 7
    assert "make dev" in capsys.readouterr().err


def test_the_table_gives_reasons_and_the_log_of_what_failed():
    results = [
        runner.Result("default", "passed", 200.4, 30, 31, (), ("test_x: no GPU",), {"one": 4}),
        runner.Result("remove", "failed", 9.0, 1, 2, ("2 tests failed",), (), {}, "/logs/remove/molecule.log"),
    ]
    table = runner.write_table(results)
    assert "30/31" in table
    assert "one 4" in table
    assert "test skipped: test_x: no GPU" in table
    assert table.endswith("2 tests failed\n    log: /logs/remove/molecule.log")


def test_a_run_of_a_fake_molecule_is_judged_by_what_it_left(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    script = """#!/bin/sh
echo "$@" >>"$PROVISION_MOLECULE_RECORDS/../calls"
[ "$3" = destroy ] || echo '{"playbook": "gpu-node.yml", "hosts": {}}' >"$PROVISION_MOLECULE_RECORDS/001-gpu-node.json"
"""
    (programs / "molecule").write_text(script, encoding="utf-8")
    (programs / "molecule").chmod(0o755)
    monkeypatch.setattr(runner, "read_said", lambda name: SAID)
    result = runner.run_scenario("default", tmp_path / "logs", programs, {})
    assert result.status == "failed"
    assert "gpu-node.yml ran on no host" in result.reasons
    calls = (tmp_path / "logs/default/calls").read_text().splitlines()
    assert [line.split()[2] for line in calls] == ["test", "destroy"]


@pytest.mark.parametrize(
    ("ends", "words", "status"),
    [
        (["failed", "passed"], ["--again"], 0),
        (["failed", "failed"], ["--again"], 5),
        (["failed"], [], 5),
    ],
)
def test_what_failed_runs_once_more_where_that_is_asked_and_says_why_it_failed(
    tmp_path, monkeypatch, capsys, ends, words, status
):
    left = list(ends)
    log = tmp_path / "molecule.log"
    log.write_text(
        "PLAY [x]\nfatal: [bare]: FAILED! => no route\nE   AssertionError: exit status 2\n", encoding="utf-8"
    )
    monkeypatch.setattr(runner, "list_scenarios", lambda: ["x"])
    monkeypatch.setattr(runner, "_start", lambda asked: (tmp_path, {}))
    monkeypatch.setattr(runner, "run_scenario", lambda name, *_: runner.Result(name, left.pop(0), 1.0, log=str(log)))
    assert runner.main([*words, "x"]) == status
    assert left == []
    shown = capsys.readouterr()
    assert "no route" in shown.err
    assert "exit status 2" in shown.err
    assert "PLAY" not in shown.err
    assert [line.split()[1] for line in shown.out.splitlines() if line.startswith("x ")] == ends


def test_a_log_that_names_no_error_is_shown_by_its_end(tmp_path):
    log = tmp_path / "molecule.log"
    log.write_text("one\ntwo\nthree\n", encoding="utf-8")
    assert runner.read_errors(log, 2) == "two\nthree"
    assert runner.read_errors(tmp_path / "absent") == ""


@pytest.fixture(scope="module")
def sites():
    folder = str(runner.SCENARIOS / "shared")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("inventory")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize(
    ("text", "mode"), [("[a]\n", 0o644), ("#!/bin/sh\n", 0o755), ("", 0o644)], ids=["text", "script", "empty"]
)
def test_a_file_of_a_scenario_is_written_in_folders_of_its_own(tmp_path, sites, text, mode):
    path = tmp_path / "a b" / "file"
    subprocess.run(["sh", "-c", sites.file_script(str(path), text)], check=True, input=text, text=True)
    assert path.read_text(encoding="utf-8") == text
    assert path.stat().st_mode & 0o777 == mode


def test_a_file_that_a_scenario_calls_null_is_not_there(tmp_path, sites):
    path = tmp_path / "a b"
    path.write_text("of an image", encoding="utf-8")
    for _ in range(2):
        subprocess.run(["sh", "-c", sites.file_script(str(path), None)], check=True, input="", text=True)
        assert list(tmp_path.iterdir()) == []


def test_what_a_scenario_takes_away_is_something_that_a_role_writes():
    """A path that a role has renamed would leave the image's own file where it is, and the scenario green."""
    texts = [path.read_text(encoding="utf-8") for path in (_ROOT / "playbooks").rglob("*.yml")]
    texts += [path.read_text(encoding="utf-8") for path in (_ROOT / "playbooks/filter_plugins").glob("*.py")]
    gone = {
        name
        for scenario in runner.list_scenarios()
        for name, text in (runner.read_said(scenario).get("files") or {}).items()
        if text is None
    }
    assert gone
    assert [name for name in sorted(gone) if not any(name in text for text in texts)] == []


def test_the_tree_of_a_folder_tells_content_mode_and_links_apart(tmp_path):
    spec = importlib.util.spec_from_file_location("tree", _ROOT / "molecule/shared/tree.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    path = tmp_path / "file"
    path.write_text("a", encoding="utf-8")
    first = tree.describe(str(path), os.lstat(path))
    path.chmod(0o600)
    second = tree.describe(str(path), os.lstat(path))
    path.write_text("b", encoding="utf-8")
    third = tree.describe(str(path), os.lstat(path))
    (tmp_path / "link").symlink_to("file")
    assert len({first, second, third}) == 3
    assert tree.describe(str(tmp_path / "link"), os.lstat(tmp_path / "link")) == "link file"
    os.utime(path, (1, 1))
    assert tree.describe(str(path), os.lstat(path)) == third


def test_every_exception_of_the_tree_has_a_reason():
    spec = importlib.util.spec_from_file_location("tree", _ROOT / "molecule/shared/tree.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    assert all(
        len(reason.split()) > 0 and path.startswith("/") for path, reason in {**tree.VOLATILE, **tree.RESIDUE}.items()
    )
    assert not {"/", "/etc", "/usr", "/var", "/var/lib"} & {*tree.VOLATILE, *tree.RESIDUE}


def test_the_counter_writes_one_record_a_play_and_counts_no_work_of_the_controller(tmp_path):
    book = tmp_path / "gpu-node.yml"
    tasks = [
        {"name": "Decide", "ansible.builtin.set_fact": {"a": 1}},
        {"name": "Look", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": False},
        {"name": "Leave", "ansible.builtin.command": {"argv": ["true"]}, "when": False},
    ]
    play_ = {"name": "P", "hosts": "all", "gather_facts": False, "tasks": tasks}
    book.write_text(yaml.safe_dump([play_]), encoding="utf-8")
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(_ROOT / "molecule/shared/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "remote_executions",
        "PROVISION_MOLECULE_RECORDS": str(tmp_path / "records"),
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [
        str(program),
        "-i",
        "here,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        str(book),
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = runner.read_records(tmp_path / "records", "[0-9]*.json")
    assert record["playbook"] == "gpu-node.yml"
    assert record["hosts"]["here"]["ok"] == 2
    assert record["hosts"]["here"]["modules"] == 0, "a local connection is not a remote execution"


def test_one_that_is_told_to_end_destroys_its_nodes(tmp_path):
    said = tmp_path / "said"
    molecule = tmp_path / "bin" / "molecule"
    molecule.parent.mkdir()
    molecule.write_text(f'#!/bin/sh\necho "$@" >>{said}\ncase "$*" in *" test "*) exec sleep 300 ;; esac\n')
    molecule.chmod(0o755)
    code = (
        "import importlib.util, pathlib, sys\n"
        f"spec = importlib.util.spec_from_file_location('runner', {str(_ROOT / 'tools' / 'molecule.py')!r})\n"
        "runner = sys.modules['runner'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(runner)\n"
        "runner.end_in_order()\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "runner.run_scenario('default', folder / 'logs', folder / 'bin', {})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while not (said.is_file() and said.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 143
    assert "destroy -s default" in said.read_text().splitlines()[-1]
