"""The health loop over hosts that only ssh reaches: the file of maintenance is real, what the hosts say a stand-in."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from provision.errors import MissingDependencyError
from provision.fleet.health import Verdict, load_loop, run_pass
from provision.fleet.hosts import Hosts

PASSED = (0, json.dumps({"result": {"ok": True, "counts": {"pass": 9, "fail": 0}}}), "")
LOST = Verdict(node="n1", id="gpu.lost", sentence="GPU 1 is lost", since=1.0)


class Site:
    """A controller with a list of hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "maintenance.json"
        self.settings = {"state": str(folder / "state"), "limit_percent": 50, "returns_per_day": 3, "jobs": "keep"}
        self.names = ["n1", "n2", "n3", "n4"]
        self.busy: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.proved: list[str] = []
        self.answer: tuple[int | None, str, str] = PASSED

    def engine(self) -> Hosts:
        def ask(name: str, command: str) -> tuple[int, str]:
            self.asked.append((name, command))
            if name not in self.busy:
                return 0, ""
            if self.busy[name][0] == 255:
                raise MissingDependencyError(f"`{name}` cannot be reached")
            return self.busy[name]

        return Hosts({name: (name,) for name in self.names}, self.file, ask)

    def run(self, *verdicts: Verdict, is_dry: bool = False) -> list[str]:
        def prove(node: str) -> tuple[int | None, str, str]:
            self.proved.append(node)
            return self.answer

        rows = run_pass(self.engine(), self.settings, lambda: verdicts, prove, is_dry=is_dry)
        return [row["what"] for row in rows]

    def held(self) -> dict[str, Any]:
        document = json.loads(self.file.read_text(encoding="utf-8"))
        hosts: dict[str, Any] = document["hosts"]
        return hosts

    def last(self) -> str:
        line = (Path(self.settings["state"]) / "ledger.jsonl").read_text(encoding="utf-8").splitlines()[-1]  # type: ignore[arg-type]
        return str(json.loads(line)["why"])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_bad_host_is_written_into_the_file_and_taken_out_of_it_after_a_proof(site) -> None:
    assert site.run(LOST, is_dry=True) == ["would drain"]
    assert not site.file.exists()
    assert site.run(LOST) == ["drain"]
    assert site.held()["n1"]["reason"] == "provision: GPU 1 is lost"
    assert site.held()["n1"]["since"].endswith("Z")
    assert site.run(LOST) == []
    assert site.run() == ["resume"]
    assert site.held() == {}
    assert site.proved == ["n1"]


def test_a_host_whose_gpus_are_in_use_is_not_proved(site) -> None:
    site.run(LOST)
    site.busy["n1"] = (0, "python3\n")
    assert site.run() == []
    assert site.proved == []
    site.busy["n1"] = (0, "/usr/bin/nvidia-cuda-mps-server\n[Not Supported]\n")
    assert site.run() == ["resume"]


@pytest.mark.parametrize("answer", [(255, ""), (9, "NVIDIA-SMI has failed")])
def test_a_host_that_does_not_say_what_runs_on_it_is_left_to_its_proof(site, answer) -> None:
    site.run(LOST)
    site.busy["n1"] = answer
    site.answer = (7, "", "`n1` cannot be reached")
    assert site.run() == ["not proved"]
    assert "cannot be reached" in site.last()
    assert list(site.held()) == ["n1"]


def test_an_entry_of_a_person_counts_for_the_limit_and_stays(site) -> None:
    site.file.write_text('{"hosts": {"n2": {"reason": "new fans"}, "n3": {}, "other": {}}}', encoding="utf-8")
    before = site.held()
    assert site.run(LOST) == ["limit"]
    assert "2 of 4 nodes are out, 50 % are 2" in site.last()
    assert site.run(Verdict(node="n2", id="gpu.lost", sentence="GPU 1 is lost", since=1.0)) == []
    assert site.held() == before
    assert site.asked == []


@pytest.mark.parametrize("text", ["{", "[]", '{"hosts": []}', '{"hosts": {"n1": "why"}}'])
def test_a_file_that_is_none_stops_the_pass_before_anything_is_done(site, text) -> None:
    site.file.write_text(text, encoding="utf-8")
    with pytest.raises(MissingDependencyError) as caught:
        site.run(LOST)
    assert "is not a file of maintenance" in caught.value.because[0]
    assert site.file.read_text(encoding="utf-8") == text


def test_while_another_controller_writes_the_file_it_is_left_alone(site) -> None:
    site.run(LOST)
    with (site.folder / "maintenance.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert site.run() == ["failed"]
        assert "is being written" in site.last()
        assert list(site.held()) == ["n1"]
    # The next pass settles what the last one did not do, and does it.
    assert site.run() == ["not done", "resume"]


def test_nothing_half_written_is_left_where_the_file_cannot_be_replaced(site) -> None:
    site.file.mkdir()
    with pytest.raises(MissingDependencyError):
        site.run(LOST)
    assert sorted(path.name for path in site.folder.iterdir()) == ["maintenance.json", "state"]


def test_a_verdict_about_a_host_that_is_not_in_the_list_is_told(site) -> None:
    assert site.run(Verdict(node="n9", id="gpu.lost", sentence="GPU 1 is lost", since=1.0)) == ["failed"]
    assert site.last() == "n9 is not a node of a list of hosts"


def test_the_engine_has_all_that_the_loop_asks_for() -> None:
    documented = str(load_loop().__doc__)
    for name in ("nodes", "node", "drain", "resume", "jobs", "requeue", "take_lock", "give_lock"):
        assert f"{name}(" in documented
        assert callable(getattr(Hosts, name))
