"""The handler of spot notices, as a process of its own against a stand-in for the providers' metadata services.

The stand-in is ``tests/fake_metadata.py``; commands are small shells that leave traces in a folder.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import fake_metadata as metadata
import playbook_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.generate.spot import SpotOptions, render_settings
from provision.matrix.load import Matrix
from provision.matrix.model import SpotNotice

HANDLER = playbook_files.ROLES / "gpu_spot" / "files" / "spot_notice.py"
SCRIPT = playbook_files.load_script(HANDLER)
MATRIX = Matrix()
PATIENCE_SECONDS = 20.0
PROVIDERS = ("aliyun", "aws", "azure", "gcp", "tencent")


def now(seconds: float = 0.0) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def announce(fake: metadata.FakeMetadata, provider: str, seconds: float = 60.0, name: str = "one") -> None:
    """Have a provider say that the machine goes in some seconds."""
    at = now(seconds)
    iso = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    if provider == "aws":
        fake.say(metadata.AWS_ACTION, {"action": "terminate", "time": iso})
    elif provider == "azure":
        event = {"EventId": name, "EventType": "Preempt", "Resources": ["Node_7"], "EventStatus": "Scheduled"}
        event["NotBefore"] = format_datetime(at, usegmt=True)
        fake.say(metadata.AZURE_EVENTS, {"DocumentIncarnation": 2, "Events": [event]})
    elif provider == "gcp":
        fake.say(metadata.GCP_FLAG, "TRUE")
    elif provider == "aliyun":
        fake.say(metadata.ALIYUN_TIME, iso)
    else:
        local = at + datetime.timedelta(hours=8)
        fake.say(metadata.TENCENT_TIME, local.strftime("%Y-%m-%d %H:%M:%S"))


def take_back(fake: metadata.FakeMetadata, provider: str) -> None:
    if provider == "azure":
        fake.say(metadata.AZURE_EVENTS, {"DocumentIncarnation": 1, "Events": []})
    elif provider == "gcp":
        fake.say(metadata.GCP_FLAG, "FALSE")
    else:
        fake.say(
            {"aws": metadata.AWS_ACTION, "aliyun": metadata.ALIYUN_TIME}.get(provider, metadata.TENCENT_TIME), None
        )


class Node:
    """A folder that stands for a node, and the handler on it."""

    def __init__(self, folder: Path, fake: metadata.FakeMetadata, provider: str) -> None:
        self.folder = folder
        self.fake = fake
        self.provider = provider
        self.process: subprocess.Popen[str] | None = None
        self.traces = folder / "traces"
        self.state = folder / "state"
        self.textfile = folder / "provision_spot.prom"
        self.log = folder / "log"
        fake.has_tokens = provider == "aws"
        fake.needs = {"azure": {"Metadata": "true"}, "gcp": {"Metadata-Flavor": "Google"}}.get(provider, {})
        fake.say(metadata.AZURE_NAME, "node_7")
        take_back(fake, provider)

    def trace(self, name: str, then: str = "true") -> list[str]:
        """A command that leaves its name and its deadline, and then does something."""
        line = f'echo "{name} $PROVISION_SECONDS $PROVISION_ACTION $PROVISION_NOTICE" >> {self.traces}; {then}'
        return ["/bin/sh", "-c", line]

    def configure(self, **changes: Any) -> None:
        options = SpotOptions(provider=self.provider, checkpoint=("true",), drain=("true",))
        settings = json.loads(render_settings(MATRIX, options))
        for row in settings["notices"]:
            row["address"] = self.fake.address
            row["poll_seconds"] = 0.1
        settings |= {
            "checkpoint": self.trace("checkpoint"),
            "drain": self.trace("drain"),
            "requeue": self.trace("requeue"),
            "resume": self.trace("resume"),
            "textfile": str(self.textfile),
            "state": str(self.state),
            "timeout_seconds": 0.5,
            "least_seconds": 0.5,
        }
        for name, value in changes.items():
            if name == "warning_seconds":
                for row in settings["notices"]:
                    row["warning_seconds"] = value
            else:
                settings[name] = value
        (self.folder / "spot.json").write_text(json.dumps(settings))

    def start(self, python: str = sys.executable) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [python, str(HANDLER), str(self.folder / "spot.json")],
                stderr=log,
                text=True,
                # What a machine is told of proxies does not lead to its metadata.
                env={**os.environ, "http_proxy": "http://127.0.0.1:9"},
            )
        self.until(lambda: "watching" in self.log.read_text())

    def run(self, **changes: Any) -> None:
        self.configure(**changes)
        self.start()

    def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            assert time.monotonic() < end, f"it did not come; {self.log.read_text()}"
            assert self.process is None or self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def names(self) -> list[str]:
        """What was run so far."""
        return [line.split()[0] for line in self.traces.read_text().splitlines()] if self.traces.exists() else []

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.state.glob("notice-*.json"))]

    def metrics(self) -> dict[str, float]:
        if not self.textfile.exists():
            return {}
        lines = [line for line in self.textfile.read_text().splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def is_over(self, state: str = "done") -> bool:
        return [record["state"] for record in self.records()] == [state]

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    with contextlib.ExitStack() as stack:
        made: list[Node] = []

        def make(provider: str) -> Node:
            folder = tmp_path / provider
            folder.mkdir()
            made.append(Node(folder, stack.enter_context(metadata.serve_metadata()), provider))
            return made[-1]

        yield make
        for node in made:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


# Every provider


@pytest.mark.parametrize("provider", PROVIDERS)
def test_notice_that_arrives_is_acted_on_once(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    node.run()
    node.until(lambda: len(node.fake.seen) > 6 or provider == "gcp")
    assert node.names() == []
    assert node.records() == []
    announce(node.fake, provider)
    node.until(node.is_over)
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 5 or provider == "gcp")
    assert node.names() == ["checkpoint", "drain", "requeue"]
    (record,) = node.records()
    assert record["provider"] == provider
    assert record["kind"] == "interruption"
    assert [step["ok"] for step in record["steps"]] == [True, True, True]
    node.until(lambda: any(key.startswith("provision_spot_notice{") and node.metrics()[key] for key in node.metrics()))
    metrics = node.metrics()
    assert metrics['provision_spot_step_ok{step="checkpoint"}'] == 1
    assert metrics["provision_spot_metadata_up"] == 1
    assert metrics["provision_spot_deadline_seconds"] > time.time()
    assert node.stop() == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_seconds_that_are_left_are_the_checkpoints(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    warning = {"gcp": 60.0}.get(provider)
    node.run(**({"warning_seconds": warning} if warning else {}))
    announce(node.fake, provider, 60.0)
    node.until(lambda: node.names() == ["checkpoint", "drain", "requeue"])
    seconds = int(node.traces.read_text().splitlines()[0].split()[1])
    # 60 less a margin of 3 and a reserve of 10, and what starting took.
    assert 37 <= seconds <= 47


@pytest.mark.parametrize("provider", PROVIDERS)
def test_answer_that_cannot_be_read_is_no_notice_and_no_end(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    path = {
        "aws": metadata.AWS_ACTION,
        "azure": metadata.AZURE_EVENTS,
        "gcp": metadata.GCP_FLAG,
        "aliyun": metadata.ALIYUN_TIME,
        "tencent": metadata.TENCENT_TIME,
    }[provider]
    node.fake.say(path, '{"action": [], "Events": [7], TRUE')
    node.run()
    node.until(lambda: node.metrics().get("provision_spot_metadata_up") == 0)
    assert node.names() == []
    assert "cannot be read" in node.log.read_text()
    announce(node.fake, provider)
    node.until(node.is_over)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_service_that_hangs_or_fails_is_asked_again(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    node.fake.delay_seconds = 0.8
    node.run()
    node.until(lambda: node.metrics().get("provision_spot_metadata_errors_total", 0) >= 1)
    node.fake.delay_seconds = 0.0
    node.fake.status = 503
    node.until(lambda: "status 503" in node.log.read_text() or "no token" in node.log.read_text())
    assert node.names() == []
    node.fake.status = None
    announce(node.fake, provider)
    node.until(node.is_over)


ANSWERS = st.one_of(
    st.text(max_size=60),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["action", "time", "noticeTime", "Events", "EventType", "Resources", "NotBefore"]),
                inner,
            ),
        ),
        max_leaves=8,
    ).map(json.dumps),
    st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)?", fullmatch=True),
    st.just("[" * 50_000),
)


@pytest.mark.parametrize("row", MATRIX.spot_notices, ids=lambda row: row.id)
@given(text=ANSWERS)
def test_no_answer_is_anything_but_a_notice_a_no_or_an_error(row: SpotNotice, text: str) -> None:
    metadata_ = SCRIPT.Metadata([], 1.0)
    metadata_.own_name = "node_7"
    metadata_.fetch = lambda *_: SCRIPT.Answer(200, text, {})
    fields = {"id": row.id, "provider": row.provider, "kind": row.kind, "form": row.form, "address": "", "path": "/"}
    try:
        found = metadata_.ask({**fields, "utc_offset_hours": row.utc_offset_hours or 0}, 1.0)
    except SCRIPT.MetadataError:
        return
    assert found is None or found.id.startswith(row.id)
    if found is not None and row.form != "flag":
        assert found.at is None or abs(found.at) < 1e12


# Tokens, headers, names


def test_token_that_ran_out_is_renewed(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run()
    node.until(lambda: len(node.fake.seen) > 5)
    assert node.fake.token_lifetimes == ["21600"]
    node.fake.tokens.clear()
    announce(node.fake, "aws")
    node.until(node.is_over)
    assert len(node.fake.token_lifetimes) == 2
    assert node.metrics()["provision_spot_metadata_errors_total"] == 0


def test_event_of_another_machine_of_the_scale_set_is_not_ours(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    other = {"EventId": "x", "EventType": "Preempt", "Resources": ["node_8"], "NotBefore": ""}
    reboot = {"EventId": "y", "EventType": "Reboot", "Resources": ["node_7"], "NotBefore": ""}
    node.fake.say(metadata.AZURE_EVENTS, {"DocumentIncarnation": 2, "Events": [other, reboot]})
    node.run()
    node.until(lambda: len(node.fake.seen) > 10)
    assert node.names() == []
    announce(node.fake, "azure")
    node.until(node.is_over)


def test_machine_without_a_name_is_an_error_and_not_a_no(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    node.fake.say(metadata.AZURE_NAME, None)
    announce(node.fake, "azure")
    node.run()
    node.until(lambda: node.metrics().get("provision_spot_metadata_up") == 0)
    assert node.names() == []


def test_event_is_acknowledged_when_all_is_done(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    node.run(requeue=node.trace("requeue", "sleep 0.5"))
    announce(node.fake, "azure", name="E-1")
    node.until(lambda: "requeue" in node.names())
    assert node.fake.posted == []
    node.until(node.is_over)
    assert [json.loads(body) for body in node.fake.posted] == [{"StartRequests": [{"EventId": "E-1"}]}]
    assert node.records()[0]["acknowledged"]


def test_event_is_not_acknowledged_when_the_checkpoint_failed(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    node.run(checkpoint=["/bin/false"])
    announce(node.fake, "azure")
    node.until(lambda: node.is_over("failed"))
    assert node.fake.posted == []
    assert node.names() == ["drain", "requeue"]


def test_answer_is_waited_for_and_comes_at_once(make_node: Callable[[str], Node]) -> None:
    node = make_node("gcp")
    node.configure()
    settings = json.loads((node.folder / "spot.json").read_text())
    settings["notices"][0]["poll_seconds"] = 8
    (node.folder / "spot.json").write_text(json.dumps(settings))
    node.start()
    node.until(lambda: any("wait_for_change=true" in path for _, path in node.fake.seen))
    began = time.monotonic()
    announce(node.fake, "gcp")
    node.until(node.is_over)
    # It came in answer to the open question, and not with the next one.
    assert time.monotonic() - began < 6


# Deadlines


def test_hanging_checkpoint_ends_at_its_deadline_with_all_it_started(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    child = node.folder / "child"
    hang = f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {child}; sleep 600' & wait; sleep 600"
    node.run(checkpoint=node.trace("checkpoint", hang), warning_seconds=3, margin_seconds=0.5, reserve_seconds=0.5)
    announce(node.fake, "aws", 3.0)
    node.until(child.exists)
    node.until(lambda: node.is_over("failed"))
    step = node.records()[0]["steps"][0]
    assert step["name"] == "checkpoint"
    assert step["killed"]
    assert not step["ok"]
    assert node.names() == ["checkpoint", "drain", "requeue"]
    assert node.metrics()['provision_spot_step_ok{step="checkpoint"}'] == 0
    pid = int(child.read_text())
    node.until(lambda: not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text())


def test_command_is_asked_to_end_before_it_is_killed(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run(
        checkpoint=node.trace("checkpoint", f"trap 'echo asked >> {node.traces}; exit 0' TERM; sleep 600 & wait"),
        warning_seconds=3,
        margin_seconds=0,
        reserve_seconds=1,
    )
    announce(node.fake, "aws", 3.0)
    node.until(lambda: node.is_over("failed"))
    assert node.names()[:2] == ["checkpoint", "asked"]


def test_clocks_that_differ_do_not_change_the_time_that_is_left(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.fake.clock_ahead_seconds = 3600.0
    node.run()
    announce(node.fake, "aws", 3600.0 + 60.0)
    node.until(node.is_over)
    seconds = int(node.traces.read_text().splitlines()[0].split()[1])
    assert 37 <= seconds <= 48


def test_time_far_away_is_bounded_by_the_warning(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run()
    announce(node.fake, "aws", 7200.0)
    node.until(node.is_over)
    assert int(node.traces.read_text().splitlines()[0].split()[1]) <= 107


def test_command_that_is_not_there_does_not_keep_the_others(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run(checkpoint=["/does/not/exist"])
    announce(node.fake, "aws")
    node.until(lambda: node.is_over("failed"))
    assert node.records()[0]["steps"][0]["code"] == 127
    assert node.names() == ["drain", "requeue"]


def test_hooks_run_by_name_after_the_drain(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    hooks = node.folder / "hooks [1]"
    hooks.mkdir()
    for name, mode in (("20-b", 0o755), ("10-a", 0o755), ("15-note", 0o644)):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {node.traces}\n")
        (hooks / name).chmod(mode)
    node.run(hooks=str(hooks))
    announce(node.fake, "aws")
    node.until(node.is_over)
    assert node.names() == ["checkpoint", "drain", "10-a", "20-b", "requeue"]


# Once


def test_second_notice_is_ignored_and_named(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    node.run()
    announce(node.fake, "azure", name="one")
    node.until(node.is_over)
    announce(node.fake, "azure", name="two")
    node.until(lambda: bool(node.records()[0]["ignored"]))
    assert node.records()[0]["ignored"][0]["id"] == "azure-interruption:two"
    assert node.names() == ["checkpoint", "drain", "requeue"]


def test_notice_is_not_acted_on_again_after_a_restart(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run()
    announce(node.fake, "aws")
    node.until(node.is_over)
    assert node.stop() == 0
    node.log.write_text("")
    node.start()
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 5)
    assert node.names() == ["checkpoint", "drain", "requeue"]
    assert node.metrics()['provision_spot_notice{action="terminate",provider="aws"}'] == 1


def test_notice_goes_on_where_it_was_when_the_handler_died(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run(drain=node.trace("drain", f"test -e {node.folder}/again || sleep 600"))
    announce(node.fake, "aws")
    node.until(lambda: "drain" in node.names())
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    (node.folder / "again").touch()
    node.log.write_text("")
    node.start()
    node.until(node.is_over)
    assert node.names() == ["checkpoint", "drain", "drain", "requeue"]


def test_notice_of_an_earlier_boot_is_over(make_node: Callable[[str], Node]) -> None:
    node = make_node("gcp")
    node.run()
    announce(node.fake, "gcp")
    node.until(node.is_over)
    node.stop()
    (path,) = node.state.glob("notice-*.json")
    record = json.loads(path.read_text())
    path.rename(path.with_name("notice-earlier.json"))
    (node.state / "notice-earlier.json").write_text(json.dumps(record | {"boot": "another"}))
    take_back(node.fake, "gcp")
    node.log.write_text("")
    node.start()
    node.until(lambda: node.metrics().get('provision_spot_notice{action="none",provider="gcp"}') == 0)
    # It is not taken back either, which would put a machine into service that somebody else drained.
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked)
    assert "taken back" not in node.log.read_text()
    assert "resume" not in node.names()


def test_record_that_is_damaged_does_not_keep_a_notice_from_being_seen(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.state.mkdir()
    (node.state / "notice-x.json").write_text("{")
    node.run()
    announce(node.fake, "aws")
    node.until(lambda: node.names() == ["checkpoint", "drain", "requeue"])


# Taken back


@pytest.mark.parametrize("provider", ["aws", "azure"])
def test_notice_taken_back_puts_the_node_into_service_again(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    node.run(acknowledge=False)
    announce(node.fake, provider)
    node.until(node.is_over)
    take_back(node.fake, provider)
    node.until(lambda: node.is_over("withdrawn"))
    assert node.names() == ["checkpoint", "drain", "requeue", "resume"]
    node.until(
        lambda: not any(node.metrics()[key] for key in node.metrics() if key.startswith("provision_spot_notice"))
    )
    announce(node.fake, provider, 50.0, name="two")
    node.until(lambda: node.names()[4:] == ["checkpoint", "drain", "requeue"])


def test_notice_taken_back_during_the_checkpoint_drains_nothing(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    gate = node.folder / "gate"
    node.run(checkpoint=node.trace("checkpoint", f"until test -e {gate}; do sleep 0.05; done"))
    announce(node.fake, "aws")
    node.until(lambda: node.names() == ["checkpoint"])
    take_back(node.fake, "aws")
    node.until(lambda: "taken back" in node.log.read_text())
    gate.touch()
    node.until(lambda: node.is_over("withdrawn"))
    assert node.names() == ["checkpoint"]


def test_one_odd_answer_takes_no_notice_back(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run()
    announce(node.fake, "aws")
    node.until(node.is_over)
    node.fake.lapses[metadata.AWS_ACTION] = 1
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 8)
    assert node.fake.lapses[metadata.AWS_ACTION] == 0
    assert node.is_over()
    assert "resume" not in node.names()


def test_failing_service_takes_no_notice_back(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run()
    announce(node.fake, "aws")
    node.until(node.is_over)
    node.fake.status = 500
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 4)
    node.fake.status = None
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 4)
    assert node.is_over()
    assert "resume" not in node.names()


# Advice


def advise(node: Node) -> None:
    node.fake.say(metadata.AWS_ADVICE, {"noticeTime": now().strftime("%Y-%m-%dT%H:%M:%SZ")})


@pytest.mark.parametrize(
    ("advice", "names"),
    [("ignore", []), ("checkpoint", ["checkpoint"]), ("drain", ["checkpoint", "drain", "requeue"])],
)
def test_advice_does_what_was_asked_for(advice: str, names: list[str], make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.run(advice=advice)
    advise(node)
    node.until(lambda: node.metrics().get("provision_spot_advice") == 1)
    node.until(lambda: node.names() == names)
    asked = len(node.fake.seen)
    node.until(lambda: len(node.fake.seen) > asked + 8)
    assert node.names() == names
    assert node.metrics()['provision_spot_notice{action="none",provider="aws"}'] == 0


def test_interruption_waits_for_the_checkpoint_that_advice_began(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    gate = node.folder / "gate"
    node.run(advice="checkpoint", checkpoint=node.trace("checkpoint", f"until test -e {gate}; do sleep 0.05; done"))
    advise(node)
    node.until(lambda: node.names() == ["checkpoint"])
    announce(node.fake, "aws")
    node.until(lambda: any(record["kind"] == "interruption" for record in node.records()))
    gate.touch()
    node.until(lambda: node.names() == ["checkpoint", "drain", "requeue"])
    node.until(lambda: {record["kind"]: record["state"] for record in node.records()}["interruption"] == "done")
    assert {record["kind"]: record["state"] for record in node.records()}["advice"] == "overtaken"


# Stopping


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_stop_without_a_notice_is_clean_and_runs_nothing(provider: str, make_node: Callable[[str], Node]) -> None:
    node = make_node(provider)
    node.run()
    node.until(lambda: bool(node.metrics()))
    assert node.stop() == 0
    assert node.names() == []
    assert list(node.folder.glob("*.tmp")) == []


def test_notice_that_comes_with_the_order_to_power_off_is_seen(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.configure()
    settings = json.loads((node.folder / "spot.json").read_text())
    for row in settings["notices"]:
        row["poll_seconds"] = 600
    (node.folder / "spot.json").write_text(json.dumps(settings))
    node.start()
    node.until(lambda: bool(node.metrics()))
    announce(node.fake, "aws")
    assert node.stop() == 0
    assert node.names() == ["checkpoint", "drain", "requeue"]


def test_stop_during_a_notice_waits_for_it(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    gate = node.folder / "gate"
    node.run(checkpoint=node.trace("checkpoint", f"until test -e {gate}; do sleep 0.05; done"))
    announce(node.fake, "aws")
    node.until(lambda: node.names() == ["checkpoint"])
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert node.process.poll() is None
    gate.touch()
    assert node.process.wait(PATIENCE_SECONDS) == 0
    assert node.names() == ["checkpoint", "drain", "requeue"]


def test_second_stop_ends_at_once_what_runs(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    child = node.folder / "child"
    node.run(checkpoint=node.trace("checkpoint", f"echo $$ > {child}; sleep 600"))
    announce(node.fake, "aws")
    node.until(lambda: child.exists() and bool(child.read_text().strip()))
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE_SECONDS) == 0
    assert node.is_over("stopped")
    assert not Path(f"/proc/{int(child.read_text())}").exists()


# Settings


def ask(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(HANDLER), *words, str(node.folder / "spot.json")]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"checkpoint": "save me"}, "`checkpoint` is not a list of words"),
        ({"checkpoints": []}, "`checkpoints` is not a setting"),
        ({"margin_seconds": -1}, "`margin_seconds`"),
        ({"timeout_seconds": 0}, "no answer can come"),
        ({"hooks": "spot.d"}, "`hooks` is not an absolute path"),
        ({"advice": "panic"}, "`advice` is none of"),
        ({"acknowledge": "yes"}, "`acknowledge`"),
        ({"notices": []}, "`notices` names no place"),
        ({"schema_version": 2}, "another version"),
        ({"notices": [{"id": "x", "form": "guess"}]}, "`form` is none of"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    changes: dict[str, Any], word: str, make_node: Callable[[str], Node]
) -> None:
    node = make_node("aws")
    node.configure(**changes)
    done = ask(node, "--check")
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_as_written_are_taken(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.configure()
    assert ask(node, "--check").returncode == 0


def test_settings_that_are_no_json_are_named(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    (node.folder / "spot.json").write_text("{")
    done = ask(node)
    assert done.returncode == 2
    assert "spot.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_look_says_what_the_provider_says(make_node: Callable[[str], Node]) -> None:
    node = make_node("aws")
    node.configure()
    announce(node.fake, "aws")
    done = ask(node, "--look")
    assert done.returncode == 0
    rows = {row["id"]: row["notice"] for row in json.loads(done.stdout)}
    assert rows["aws-advice"] is None
    assert rows["aws-interruption"].endswith("Z")
    node.fake.status = 500
    assert ask(node, "--look").returncode == 7
    assert node.names() == []


def _old_python() -> str | None:
    """The oldest Python that the handler promises to run on, where this machine has one."""
    found = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))]
    on_path = shutil.which("python3.8")
    # A version manager puts names on the path for which it may have nothing to run.
    found += (
        [on_path]
        if on_path and subprocess.run([on_path, "-V"], check=False, capture_output=True).returncode == 0
        else []
    )
    return next(iter(found), None)


@pytest.mark.skipif(_old_python() is None, reason="there is no Python 3.8 here")
def test_handler_runs_on_the_oldest_python(make_node: Callable[[str], Node]) -> None:
    node = make_node("azure")
    node.configure()
    node.start(_old_python() or "")
    announce(node.fake, "azure")
    node.until(node.is_over)
    assert node.names() == ["checkpoint", "drain", "requeue"]
