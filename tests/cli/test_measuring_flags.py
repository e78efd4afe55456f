"""The flags of `provision verify` that name the programs to measure with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from provision.cli.commands import verify
from provision.cli.main import main
from provision.errors import UsageError
from provision.probe.compose import CollectOptions


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CollectOptions]:
    """What would have been collected; nothing is."""
    found: list[CollectOptions] = []

    def collect_each(options: object, output: object, take: object, what: CollectOptions, *_: object) -> Mapping:
        found.append(what)
        return {}

    monkeypatch.setattr(verify, "collect_each", collect_each)
    return found


def test_the_programs_that_were_named_are_asked_for(asked: list[CollectOptions]) -> None:
    main(["verify", "--deep", "--nccl-tests", "/opt/my tests", "--nvbandwidth", "/opt/nvbandwidth"])

    (what,) = asked
    assert (what.all_reduce_perf, what.nvbandwidth) == ("/opt/my tests", "/opt/nvbandwidth")


def test_without_a_name_they_are_looked_for(asked: list[CollectOptions]) -> None:
    main(["verify", "--deep"])

    assert (asked[0].all_reduce_perf, asked[0].nvbandwidth) == ("", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--nccl-tests", "/x"], "--nccl-tests has no use at level quick", id="quick"),
        pytest.param(
            ["--level", "standard", "--nccl-tests", "/x"], "runs at level deep and above", id="nccl-tests-at-standard"
        ),
        pytest.param(["--nvbandwidth", "/x"], "add `--level standard`", id="nvbandwidth-at-quick"),
        pytest.param(["--deep", "--nccl-tests", ""], "--nccl-tests `` is not a path", id="empty"),
        pytest.param(["--deep", "--nccl-tests=-x"], "--nccl-tests `-x` is not a path", id="dash"),
        pytest.param(["--deep", "--nvbandwidth", "a\nb"], "--nvbandwidth `a", id="line-end"),
        pytest.param(["--deep", "--nccl-tests", "/x", "--nccl-tests", "/y"], "--nccl-tests", id="twice"),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused(
    words: list[str], said: str, asked: list[CollectOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *words]) == UsageError.exit_code
    assert said in capsys.readouterr().err
    assert asked == []


def test_a_bundle_cannot_be_measured_again(
    asked: list[CollectOptions], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b.tar.gz"
    assert main(["verify", "--deep", "--from", str(bundle), "--nvbandwidth", "/x"]) == UsageError.exit_code
    assert "--nvbandwidth needs a target that can be reached" in capsys.readouterr().err
