"""What a spot instance is given: settings that the handler takes, whatever is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.errors import UnknownError, UsageError
from provision.generate.spot import SpotOptions, providers_with_notices, render_settings, render_spot
from provision.matrix.load import Matrix

MATRIX = Matrix()
ADVICE = ("ignore", "checkpoint", "drain")


@pytest.mark.parametrize("provider", providers_with_notices(MATRIX))
@pytest.mark.parametrize("advice", ADVICE)
def test_handler_takes_what_is_written_for_it(provider: str, advice: str, tmp_path: Path) -> None:
    options = SpotOptions(
        provider=provider,
        checkpoint=("save", "a 'quoted' word", "$HOME"),
        drain=("drain",),
        resume=("resume",),
        hooks="/etc/provision/spot.d",
        textfiles="/var/lib/textfiles/",
        advice=advice,
    )
    for artifact in render_spot(MATRIX, options):
        path = tmp_path / Path(artifact.path).name
        path.write_text(artifact.text, encoding="utf-8")
    argv = [sys.executable, str(tmp_path / "spot_notice.py"), "--check", str(tmp_path / "spot.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    settings = json.loads((tmp_path / "spot.json").read_text(encoding="utf-8"))
    # Words stay words: nothing of them is read by a shell.
    assert settings["checkpoint"] == ["save", "a 'quoted' word", "$HOME"]
    assert settings["textfile"] == "/var/lib/textfiles/provision_spot.prom"


def test_same_facts_give_the_same_bytes() -> None:
    options = SpotOptions(provider="aws", drain=("true",))
    assert render_spot(MATRIX, options) == render_spot(MATRIX, options)


def test_unit_starts_the_handler_that_lies_there_and_outlives_what_it_saves() -> None:
    unit = (asset_dir("playbooks") / "roles/gpu_spot/files/provision-spot.service").read_text(encoding="utf-8")
    paths = {f"/{artifact.path}" for artifact in render_spot(MATRIX, SpotOptions(provider="aws", drain=("true",)))}
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert set(start.split()[1:]) < paths
    # Units stop in the reverse of their order.
    after = {word for line in unit.splitlines() if line.startswith("After=") for word in line[6:].split()}
    assert {"slurmd.service", "docker.service", "kubelet.service", "remote-fs.target"} <= after
    # A stop must not reach the checkpoint that is being written.
    assert "KillMode=mixed" in unit
    assert "TimeoutStopSec=infinity" in unit


def test_margin_and_reserve_may_use_up_the_warning_only_where_nothing_is_saved() -> None:
    with pytest.raises(UsageError, match="nothing of the warning is left"):
        render_settings(MATRIX, SpotOptions(provider="gcp", checkpoint=("x",), reserve_seconds=27.0))
    assert render_settings(MATRIX, SpotOptions(provider="gcp", checkpoint=("x",), reserve_seconds=26.0))
    assert render_settings(MATRIX, SpotOptions(provider="gcp", drain=("x",), reserve_seconds=27.0))


def test_provider_without_notices_is_unknown() -> None:
    with pytest.raises(UnknownError, match="know no spot notice of `runpod`"):
        render_settings(MATRIX, SpotOptions(provider="runpod", drain=("x",)))
