"""What is finished survives a break, and only the same run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.errors import UsageError
from provision.node.state import Identity, StateFile
from provision.records import replace

IDENTITY = Identity(lock="sha256:1", playbook="sha256:2", tags=("driver",), variables="3")
KIND = ("apply", "hosts.yml", "limit None")


def test_run_that_broke_off_is_found_again(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", KIND, IDENTITY)
    assert state.resume() is None
    state.save({"a": "changed"})
    state.save({"b": "ok"})
    assert StateFile(tmp_path / "state", KIND, IDENTITY).resume() == ("a", "b")


def test_other_hosts_have_a_file_of_their_own(tmp_path: Path) -> None:
    StateFile(tmp_path, KIND, IDENTITY).save({"a": "ok"})
    assert StateFile(tmp_path, ("apply", "others.yml", "limit None"), IDENTITY).resume() is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lock": "sha256:9"}, "the lock is another one"),
        ({"playbook": "sha256:9"}, "the playbooks were changed since"),
        ({"tags": ()}, "other --tags were given"),
        ({"variables": "9"}, "other variables were given with -e"),
    ],
)
def test_different_run_is_refused_with_the_difference(tmp_path: Path, change: dict[str, object], said: str) -> None:
    StateFile(tmp_path, KIND, IDENTITY).save({"a": "ok"})
    with pytest.raises(UsageError) as refused:
        StateFile(tmp_path, KIND, replace(IDENTITY, **change)).resume()
    assert refused.value.because == (said,)
    assert "--resume" in refused.value.hints[0]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"done": {}}', '{"schema_version": 1, "identity": 7, "done": {}}'])
def test_damaged_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    state = StateFile(tmp_path, KIND, IDENTITY)
    state.path.write_text(content)
    with pytest.raises(UsageError, match="is damaged"):
        state.resume()


def test_file_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFile(tmp_path, KIND, IDENTITY)
    state.save({"a": "ok"})
    before = state.path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("provision.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        state.save({"b": "ok"})
    assert state.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [state.path.name]


def test_finished_run_leaves_nothing(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", KIND, IDENTITY)
    state.save({"a": "ok"})
    state.remove()
    assert list(tmp_path.iterdir()) == []
