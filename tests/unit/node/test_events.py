"""Events of a playbook become results: complete or not, never better than what was seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.node.events import CHANGED, FAILED, INCOMPLETE, NOT_RUN, OK, UNREACHABLE, Run, shorten


def _feed(run: Run, *events: dict[str, Any]) -> Run:
    for event in events:
        run.take(json.dumps(event))
    return run


def _start(*plays: str) -> dict[str, Any]:
    return {"event": "start", "ansible": "2.19.0", "plays": list(plays)}


def _play(number: int) -> dict[str, Any]:
    return {"event": "play", "number": number, "name": f"play {number}"}


def _result(host: str, status: str = "ok", role: str = "gpu_a", **more: Any) -> dict[str, Any]:
    return {"event": "result", "host": host, "status": status, "task": "Do it", "role": role, "remote": 1, **more}


def _stats(**hosts: dict[str, int]) -> dict[str, Any]:
    return {"event": "stats", "hosts": hosts}


def test_hosts_of_a_batch_are_done_when_the_next_one_begins() -> None:
    run = _feed(Run(["a", "b"]), _start("look", "make"), _play(0), _result("a"), _result("b"))
    assert run.done() == ()
    _feed(run, _play(1), _result("a"))
    assert run.done() == ()
    _feed(run, _play(1), _result("b"))
    assert run.done() == ("a",)
    assert run.batch == 2


def test_host_with_a_failure_is_not_done_until_the_counts_say_that_a_rescue_mended_it() -> None:
    events = (_start("make"), _play(0), _result("a", "failed", message="broken"), _result("a"), _play(0))
    run = _feed(Run(["a"]), *events)
    assert run.done() == ()
    assert run.result_of("a").status == FAILED
    _feed(run, _stats(a={"ok": 2, "failures": 0, "rescued": 1}))
    assert run.result_of("a").status == OK
    assert run.result_of("a").message is None


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({"ok": 3, "failures": 0, "unreachable": 0}, OK),
        ({"ok": 3, "failures": 1, "unreachable": 0}, FAILED),
        ({"ok": 3, "failures": 0, "unreachable": 1}, UNREACHABLE),
    ],
)
def test_counts_of_ansible_decide(counts: dict[str, int], status: str) -> None:
    run = _feed(Run(["a"]), _start("make"), _play(0), _result("a"), _stats(a=counts))
    assert run.result_of("a").status == status


def test_host_that_never_had_its_turn_is_not_run() -> None:
    run = _feed(Run(["a", "b"]), _start("make"), _play(0), _result("a"), _stats(a={"ok": 1}))
    assert [row.status for row in run.results()] == [OK, NOT_RUN]


def test_host_without_a_last_word_is_incomplete() -> None:
    run = _feed(Run(["a"]), _start("make"), _play(0), _result("a", "changed", changes=[{"what": "/etc/x"}]))
    assert run.result_of("a").status == INCOMPLETE
    assert run.result_of("a").changes[0].what == "/etc/x"


def test_changes_and_executions_are_collected() -> None:
    changes = [{"item": "one", "diff": [{"before": "", "after": "1\n"}]}, {"item": "two"}]
    run = _feed(
        Run(["a"]),
        _start("make"),
        _play(0),
        _result("a", "skipped", remote=0),
        _result("a", "changed", role="gpu_b", remote=2, changes=changes),
        _result("a", "ok", role="gpu_b"),
        _stats(a={"ok": 2, "changed": 1}),
    )
    row = run.result_of("a")
    assert row.status == CHANGED
    assert row.remote_executions == 3
    assert row.roles == {"gpu_a": "skipped", "gpu_b": "changed"}
    assert [item.what for item in row.changes] == ["one", "two"]
    assert row.changes[0].diff == ({"before": "", "after": "1\n"},)


def test_what_roles_say_to_people_is_kept_once_and_the_proof_says_nothing_new() -> None:
    said = "had another version\nhttps://user:hunter2@mirror.example/"
    events = [_result("a", said=said), _result("a", said=said), _result("a", role="gpu_verify", said="44 of 44")]
    run = _feed(Run(["a"]), _start("make"), _play(0), *events)
    (note,) = run.result_of("a").notes
    assert note.startswith("had another version\n")
    assert "hunter2" not in note


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        "[]",
        "7",
        '"event"',
        '{"event": "party"}',
        '{"event": "result"}',
        '{"event": "result", "host": "a", "status": "excellent", "task": "x"}',
        '{"event": "stats", "hosts": [1]}',
        '{"event": ["stats"]}',
        "[" * 100_000,
    ],
)
def test_rubbish_is_counted_and_nothing_else(line: str) -> None:
    run = Run(["a"])
    assert run.take(line) is None
    assert run.unread == 1
    assert [row.status for row in run.results()] == [NOT_RUN]


def test_secrets_and_escapes_do_not_reach_a_message() -> None:
    message = "\x1b[31mfailed\x1b[0m: password=hunter2secret"
    run = _feed(Run(["a"]), _start("make"), _play(0), _result("a", "failed", message=message))
    assert "hunter2secret" not in (run.result_of("a").message or "")
    assert "\x1b" not in (run.result_of("a").message or "")


def test_long_message_is_cut_but_a_list_of_problems_is_not() -> None:
    message = "\n".join(f"problem {number} of many, each worth knowing" for number in range(90))
    run = _feed(
        Run(["a", "b"]),
        _start("make"),
        _play(0),
        _result("a", "failed", role="gpu_preflight", message=message),
        _result("b", "failed", role="gpu_driver", message=message),
    )
    assert shorten(run.result_of("a")) == message
    cut = shorten(run.result_of("b")).splitlines()
    assert (cut[0], cut[10], cut[-1]) == (
        "problem 0 of many, each worth knowing",
        "… 40 lines left out …",
        "problem 89 of many, each worth knowing",
    )


def test_what_ansible_puts_around_a_message_is_no_part_of_it() -> None:
    inner = "gpu01 has no generation 3 to go back to; it has: 0 (baseline)"
    message = (
        "Task failed: Finalization of task args for 'ansible.builtin.slurp' failed: Error while resolving value for "
        f"'path': The filter plugin 'gpu_choose_generation' failed: {inner}"
    )
    run = _feed(
        Run(["a", "b"]),
        _start("make"),
        _play(0),
        _result("a", "failed", message=message),
        _result("b", "failed", message="make said:\nTask failed: cc1"),
    )
    assert shorten(run.result_of("a")) == inner
    # What a program printed is its own.
    assert shorten(run.result_of("b")) == "make said:\nTask failed: cc1"
    assert run.result_of("a").message == message


def test_long_line_keeps_its_end_where_the_reason_stands() -> None:
    sentence = "the controller cannot read a key. " + "Set it or a mirror. " * 40
    message = f"{sentence}Failed lookup url for https://mirror.example/{'x' * 2000}: Name or service not known"
    run = _feed(Run(["a"]), _start("make"), _play(0), _result("a", "failed", message=message))
    shown = shorten(run.result_of("a"))
    assert len(shown) < len(message)
    assert shown.startswith("the controller cannot read a key")
    assert shown.endswith("Name or service not known")
